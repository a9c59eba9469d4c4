"""bulk: asynchronous copies of contiguous bytes between global memory and shared memory.

One thread issues a copy; the copy engine (the async proxy) does it. Addresses are 16-byte aligned
and sizes are multiples of 16 bytes. Two ways to learn that a copy is done:

* copies *into* shared memory signal an mbarrier with their bytes: expect them with
  ``mbarrier.arrive_expect_tx``, wait with ``mbarrier.try_wait_parity``; the data is then visible
  to the waiting threads without a fence;
* copies *out of* shared memory belong to bulk groups of the issuing thread: :func:`commit_group`,
  then :func:`wait_group_read` (the source may be overwritten) or :func:`wait_group` (the result is
  visible to this thread). Groups complete in the order of their commits.

Data written to shared memory by ordinary stores needs ``fence.proxy_async`` and a barrier between
the writers and the issuing thread before a copy reads it.

``cache_policy`` is a 64-bit L2 policy from ``memory.createpolicy_fractional``; a constant works
too (0x12F0000000000000 evict first, 0x14F0000000000000 evict last).

Not covered: multimem.cp (multicast addresses), and generic addresses.
"""

from __future__ import annotations

from typing import Annotated, Literal

from nbtc.intrinsics.sections import DATA_MOVEMENT, ReductionOp
from nbtc.ptx.kinds import U16, U32_KIND, U64, Cluster, Global, Imm, Shared
from nbtc.ptx.spec import Isa, Variant, ptx

Size = Annotated[int, U32_KIND, Imm(0, 1048560, 16)]

SECTION = DATA_MOVEMENT + ": cp.async.bulk"
REDUCE_SECTION = DATA_MOVEMENT + ": cp.reduce.async.bulk"


def local_has_no_multicast(v: Variant) -> str | None:
    """Refuse what only the ``shared::cluster`` form of a load has."""
    if v.space == "shared::cta" and v.has("cta_mask"):
        return "space='shared::cta' with cta_mask: multicast needs space='shared::cluster'"
    return None


def _load_isa(v: Variant) -> Isa:
    return (8, 6) if v.space == "shared::cta" else (8, 0)


@ptx(
    "cp.async.bulk.{space}.global.mbarrier::complete_tx::bytes{?cta_mask:.multicast::cluster}"
    "{?cache_policy:.L2::cache_hint} [{dst}], [{src}], {size}, [{bar}]{, cta_mask}"
    "{, cache_policy};",
    isa=_load_isa,
    arch="sm_90",
    check=local_has_no_multicast,
    section=SECTION,
)
def load(
    dst: Cluster,
    src: Global,
    size: Size,
    bar: Cluster,
    cta_mask: U16 | None = None,
    cache_policy: U64 | None = None,
    *,
    space: Literal["shared::cluster", "shared::cta"] = "shared::cluster",
) -> None:
    """Copy ``size`` bytes from global to shared memory; ``bar`` gets the bytes when it is done.

    Args:
        dst: destination, 16-byte aligned, in the same CTA as ``bar``.
        src: source, 16-byte aligned.
        size: bytes, a multiple of 16.
        bar: mbarrier that expects the bytes.
        cta_mask: bit r stands for the CTA of rank r in the cluster: each gets the data at the same
            offset as ``dst`` and the bytes on its barrier at the same offset as ``bar``.
        cache_policy: L2 policy.
        space: spelling of the destination; ``"shared::cta"`` cannot multicast.

    Executes: one thread. Completion: mbarrier.
    """
    ...


@ptx(
    "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
    "[{dst}], [{src}], {size}, [{bar}];",
    isa=(8, 0),
    arch="sm_90",
    section=SECTION,
)
def copy_to_cluster(dst: Cluster, src: Shared, size: Size, bar: Cluster) -> None:
    """Copy bytes of this CTA's shared memory into another CTA of the cluster.

    Args:
        dst: cluster address in another CTA, 16-byte aligned.
        src: source, 16-byte aligned; it may change only after ``bar`` completed.
        size: bytes, a multiple of 16.
        bar: cluster address of an mbarrier in the CTA of ``dst``.

    Executes: one thread. Completion: mbarrier.
    """
    ...


def _mask_rules(v: Variant) -> str:
    return "sm_100" if v.has("byte_mask") else "sm_90"


@ptx(
    "cp.async.bulk.global.shared::cta.bulk_group{?cache_policy:.L2::cache_hint}"
    "{?byte_mask:.cp_mask} [{dst}], [{src}], {size}{, cache_policy}{, byte_mask};",
    isa=lambda v: (8, 6) if v.has("byte_mask") else (8, 0),
    arch=_mask_rules,
    section=SECTION,
)
def store(
    dst: Global,
    src: Shared,
    size: Size,
    cache_policy: U64 | None = None,
    byte_mask: U16 | None = None,
) -> None:
    """Copy bytes from shared to global memory.

    Args:
        dst: destination, 16-byte aligned.
        src: source, 16-byte aligned.
        size: bytes, a multiple of 16.
        cache_policy: L2 policy.
        byte_mask: bit i lets byte i of every 16-byte chunk through (sm_100).

    Executes: one thread. Completion: bulk group.
    """
    ...


_GLOBAL_TYPES: dict[str, tuple[str, ...]] = {
    "add": ("u32", "s32", "u64", "f32", "f64", "f16", "bf16"),
    "min": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "max": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "inc": ("u32",),
    "dec": ("u32",),
    "and": ("b32", "b64"),
    "or": ("b32", "b64"),
    "xor": ("b32", "b64"),
}
CLUSTER_TYPES: dict[str, tuple[str, ...]] = {
    "add": ("u32", "s32", "u64"),
    "min": ("u32", "s32"),
    "max": ("u32", "s32"),
    "inc": ("u32",),
    "dec": ("u32",),
    "and": ("b32",),
    "or": ("b32",),
    "xor": ("b32",),
}
"""Element types of each reduction into shared memory of the cluster."""


def _legal_type(op: str, type_: str, table: dict[str, tuple[str, ...]]) -> str | None:
    if type_ in table[op]:
        return None
    return f"op={op!r} with type={type_!r}: {op} takes {', '.join(map(repr, table[op]))}"


def cluster_type(v: Variant) -> str | None:
    """Refuse an element type that a reduction into the cluster does not take."""
    return _legal_type(v.op, v.type, CLUSTER_TYPES)


def _reduce_text(v: Variant) -> str:
    noftz = ".noftz" if v.op == "add" and v.type in ("f16", "bf16") else ""
    return (
        "cp.reduce.async.bulk.global.shared::cta.bulk_group{?cache_policy:.L2::cache_hint}"
        f".{{op}}{noftz}.{{type}} [{{dst}}], [{{src}}], {{size}}{{, cache_policy}};"
    )


@ptx(
    _reduce_text,
    isa=(8, 0),
    arch="sm_90",
    check=lambda v: _legal_type(v.op, v.type, _GLOBAL_TYPES),
    section=REDUCE_SECTION,
)
def reduce(
    dst: Global,
    src: Shared,
    size: Size,
    cache_policy: U64 | None = None,
    *,
    op: ReductionOp,
    type: Literal["u32", "s32", "u64", "s64", "f16", "bf16", "f32", "f64", "b32", "b64"],
) -> None:
    """Combine each element of shared memory into global memory, atomically element by element.

    Args:
        dst: destination, 16-byte aligned.
        src: source, 16-byte aligned.
        size: bytes, a multiple of 16.
        cache_policy: L2 policy.
        op: the operation; ``inc`` and ``dec`` wrap at the source's value.
        type: element type. ``add`` of f32 flushes subnormals, of f16 and bf16 keeps them.

    Executes: one thread. Completion: bulk group; each element is relaxed at GPU scope.
    """
    ...


@ptx(
    "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.{op}.{type} "
    "[{dst}], [{src}], {size}, [{bar}];",
    isa=(8, 0),
    arch="sm_90",
    check=cluster_type,
    section=REDUCE_SECTION,
)
def reduce_to_cluster(
    dst: Cluster,
    src: Shared,
    size: Size,
    bar: Cluster,
    *,
    op: ReductionOp,
    type: Literal["u32", "s32", "u64", "b32"],
) -> None:
    """Combine elements of this CTA's shared memory into another CTA of the cluster.

    Args:
        dst: cluster address in another CTA, 16-byte aligned.
        src: source, 16-byte aligned.
        size: bytes, a multiple of 16.
        bar: cluster address of an mbarrier in the CTA of ``dst``.
        op: the operation.
        type: element type.

    Executes: one thread. Completion: mbarrier.
    """
    ...


@ptx(
    "cp.async.bulk.prefetch.L2.global{?cache_policy:.L2::cache_hint} "
    "[{src}], {size}{, cache_policy};",
    isa=(8, 0),
    arch="sm_90",
    section=DATA_MOVEMENT + ": cp.async.bulk.prefetch",
)
def prefetch(src: Global, size: Size, cache_policy: U64 | None = None) -> None:
    """Ask for ``size`` bytes of global memory to be brought into L2.

    Args:
        src: address, 16-byte aligned.
        size: bytes, a multiple of 16.
        cache_policy: L2 policy.

    Executes: one thread. Completion: none; it is a hint.
    """
    ...


@ptx(
    "cp.async.bulk.commit_group;",
    isa=(8, 0),
    arch="sm_90",
    section=DATA_MOVEMENT + ": cp.async.bulk.commit_group",
)
def commit_group() -> None:
    """Close a bulk group of all stores and reductions that this thread issued since the last one.

    Copies that signal an mbarrier belong to no group.

    Executes: the thread that issued the copies.
    """
    ...


Pending = Annotated[int, Imm(0, 63)]


@ptx(
    "cp.async.bulk.wait_group {n};",
    isa=(8, 0),
    arch="sm_90",
    section=DATA_MOVEMENT + ": cp.async.bulk.wait_group",
)
def wait_group(n: Pending) -> None:
    """Wait until at most the ``n`` newest bulk groups of this thread are pending.

    The completed ones have written their result, visible to this thread.

    Args:
        n: groups that may stay pending; 0 waits for all.

    Executes: the thread that committed the groups; other threads are not held up.
    """
    ...


@ptx(
    "cp.async.bulk.wait_group.read {n};",
    isa=(8, 0),
    arch="sm_90",
    section=DATA_MOVEMENT + ": cp.async.bulk.wait_group",
)
def wait_group_read(n: Pending) -> None:
    """Wait until all but the ``n`` newest bulk groups of this thread have read their source.

    Their shared memory may then be overwritten. Cheaper than :func:`wait_group`.

    Args:
        n: groups that may stay pending; 0 waits for all.

    Executes: the thread that committed the groups; other threads are not held up.
    """
    ...
