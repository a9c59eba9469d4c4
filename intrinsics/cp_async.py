"""cp_async: copies of 4 to 16 bytes a thread from global to shared memory, as on Ampere.

Each thread copies its own piece and waits for it by groups (:func:`commit_group`,
:func:`wait_group`) or lets it arrive on an mbarrier (:func:`mbarrier_arrive`). After a wait the
data is visible to the issuing thread; other threads need a barrier, readers through the async
proxy (wgmma, TMA) also ``fence.proxy_async``. These groups are not the bulk groups of TMA.

Every function is executed by each thread on its own.

Not covered: the predicate form of ``src_size`` written with a literal.
"""

from __future__ import annotations

from typing import Annotated, Literal

from nbtc.intrinsics.sections import DATA_MOVEMENT, PARALLEL
from nbtc.ptx.kinds import U32, U64, Global, Imm, Pred, Shared
from nbtc.ptx.spec import Isa, Variant, ptx

SECTION = DATA_MOVEMENT + ": cp.async"
L2 = Literal["", "L2::64B", "L2::128B", "L2::256B"]


def _isa(v: Variant) -> Isa:
    return (7, 4) if v.l2 or v.has("cache_policy") else (7, 0)


@ptx(
    "cp.async.ca.shared::cta.global{?cache_policy:.L2::cache_hint}{.l2} [{dst}], [{src}], {size}"
    "{, src_size}{, cache_policy};",
    isa=_isa,
    arch="sm_80",
    section=SECTION,
)
def ca(
    dst: Shared,
    src: Global,
    size: Literal[4, 8, 16],
    src_size: U32 | None = None,
    cache_policy: U64 | None = None,
    *,
    l2: L2 = "",
) -> None:
    """Copy ``size`` bytes through L1 and L2.

    Args:
        dst: shared address, aligned to ``size``.
        src: global address, aligned to ``size``.
        size: 4, 8 or 16 bytes.
        src_size: bytes to read, at most ``size``; the rest of the destination becomes zero.
        cache_policy: L2 policy, see ``memory.createpolicy_fractional``.
        l2: how much to prefetch into L2.

    Executes: each thread on its own. Completion: group or mbarrier.
    """
    ...


@ptx(
    "cp.async.cg.shared::cta.global{?cache_policy:.L2::cache_hint}{.l2} [{dst}], [{src}], 16"
    "{, src_size}{, cache_policy};",
    isa=_isa,
    arch="sm_80",
    section=SECTION,
)
def cg(
    dst: Shared,
    src: Global,
    src_size: U32 | None = None,
    cache_policy: U64 | None = None,
    *,
    l2: L2 = "",
) -> None:
    """Copy 16 bytes through L2 only.

    Args:
        dst: shared address, 16-byte aligned.
        src: global address, 16-byte aligned.
        src_size: bytes to read, at most 16; the rest of the destination becomes zero.
        cache_policy: L2 policy, see ``memory.createpolicy_fractional``.
        l2: how much to prefetch into L2.

    Executes: each thread on its own. Completion: group or mbarrier.
    """
    ...


@ptx(
    "cp.async.ca.shared::cta.global{?cache_policy:.L2::cache_hint}{.l2} [{dst}], [{src}], {size}, "
    "{ignore}{, cache_policy};",
    isa=(7, 5),
    arch="sm_80",
    section=SECTION,
)
def ca_unless(
    dst: Shared,
    src: Global,
    size: Literal[4, 8, 16],
    ignore: Pred,
    cache_policy: U64 | None = None,
    *,
    l2: L2 = "",
) -> None:
    """Copy ``size`` bytes through L1 and L2, or zeros where ``ignore`` is true.

    Args:
        dst: shared address, aligned to ``size``.
        src: global address, aligned to ``size``; not read where ``ignore`` is true.
        size: 4, 8 or 16 bytes.
        ignore: write zeros instead.
        cache_policy: L2 policy.
        l2: how much to prefetch into L2.

    Executes: each thread on its own. Completion: group or mbarrier.
    """
    ...


@ptx(
    "cp.async.cg.shared::cta.global{?cache_policy:.L2::cache_hint}{.l2} [{dst}], [{src}], 16, "
    "{ignore}{, cache_policy};",
    isa=(7, 5),
    arch="sm_80",
    section=SECTION,
)
def cg_unless(
    dst: Shared, src: Global, ignore: Pred, cache_policy: U64 | None = None, *, l2: L2 = ""
) -> None:
    """Copy 16 bytes through L2 only, or zeros where ``ignore`` is true.

    Args:
        dst: shared address, 16-byte aligned.
        src: global address, 16-byte aligned; not read where ``ignore`` is true.
        ignore: write zeros instead.
        cache_policy: L2 policy.
        l2: how much to prefetch into L2.

    Executes: each thread on its own. Completion: group or mbarrier.
    """
    ...


@ptx("cp.async.commit_group;", isa=(7, 0), arch="sm_80", section=SECTION + ".commit_group")
def commit_group() -> None:
    """Close a group of all copies that this thread issued since the last one.

    An empty group is made when there are none, so a pipeline's tail may commit as its body does.

    Executes: each thread on its own.
    """
    ...


@ptx("cp.async.wait_group {n};", isa=(7, 0), arch="sm_80", section=SECTION + ".wait_group")
def wait_group(n: Annotated[int, Imm(0, 63)]) -> None:
    """Wait until at most the ``n`` newest groups of this thread are pending.

    Args:
        n: groups that may stay pending.

    Executes: each thread on its own.
    """
    ...


@ptx("cp.async.wait_all;", isa=(7, 0), arch="sm_80", section=SECTION + ".wait_all")
def wait_all() -> None:
    """Wait for all copies of this thread, committed or not.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "cp.async.mbarrier.arrive{.noinc}.shared::cta.b64 [{bar}];",
    isa=(7, 8),
    arch="sm_80",
    section=PARALLEL + ": cp.async.mbarrier.arrive",
)
def mbarrier_arrive(bar: Shared, *, noinc: Literal[False, True] = True) -> None:
    """Arrive on a barrier once this thread's earlier copies have completed.

    Args:
        bar: the barrier.
        noinc: True: the barrier's count already includes this arrival. False: the pending count
            goes up by one first, so that the pair changes nothing in the end.

    Executes: each thread on its own; it does not wait.
    """
    ...
