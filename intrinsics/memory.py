"""memory: loads and stores by address, cache hints, L2 policies, prefetches.

Numba's own ``array[i]`` is the usual way to memory; these functions take addresses and say how the
caches shall treat the access. Every one is executed by each thread on its own; a load is complete
when its value is used, a store is visible to others after a fence or barrier.

``type`` is the PTX type of one element: f16 and bf16 travel as ``"u16"``; ``"u8"`` and ``"s8"`` are
widened to 32 bits. ``vec`` moves 2, 4 or 8 elements as a tuple, at an address aligned to all of
them; 256 bits at once need Blackwell.

Not covered: 128-bit registers (``vec="v4"`` moves as much), generic addresses, local and constant
memory, ``volatile`` and ``mmio``, the sink ``_`` for elements that nobody reads, and
``st.async`` to global memory.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from nbtc.intrinsics.sections import DATA_MOVEMENT, TYPE_BITS, TYPE_KINDS
from nbtc.ptx.kinds import F32, U32, U64, U64_KIND, Global, Imm, Kind, Regs, Shared
from nbtc.ptx.spec import Isa, Variant, ptx

Type = Literal["u8", "s8", "u16", "u32", "s32", "u64", "s64", "f32", "f64"]
Scope = Literal["", "cta", "cluster", "gpu", "sys"]
Vec = Literal["", "v2", "v4"]
WideVec = Literal["", "v2", "v4", "v8"]
L1 = Literal[
    "",
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L1::evict_first",
    "L1::evict_last",
    "L1::no_allocate",
]
L2 = Literal["", "L2::evict_first", "L2::evict_last", "L2::evict_normal"]

LD = DATA_MOVEMENT + ": ld"
ST = DATA_MOVEMENT + ": st"
CREATEPOLICY = DATA_MOVEMENT + ": createpolicy"
PREFETCH = DATA_MOVEMENT + ": prefetch"


def _kind(v: Variant) -> Kind:
    return TYPE_KINDS[v.type]


def _count(v: Variant) -> int | None:
    return int(v.vec[1]) if v.vec else None


Data = Annotated[Any, Regs(_kind, _count, note="one register, or a tuple for vec")]


def _bits(v: Variant) -> int:
    return TYPE_BITS[v.type] * (_count(v) or 1)


def _width(v: Variant, limit: int) -> str | None:
    if v.vec == "v8" and TYPE_BITS[v.type] != 32:
        return f"vec='v8' with type={v.type!r}: v8 takes 32-bit types"
    if _bits(v) > limit:
        return f"vec={v.vec!r} with type={v.type!r} is {_bits(v)} bits; at most {limit}"
    return None


def _strong(v: Variant, limit: int = 128) -> str | None:
    if bool(v.sem) != bool(v.scope):
        return f"sem={v.sem!r} with scope={v.scope!r}: give both or neither"
    return _width(v, limit)


def _scope_isa(v: Variant) -> Isa:
    return (7, 8) if v.scope == "cluster" else (7, 0)


def _scope_arch(v: Variant) -> str:
    return "sm_90" if v.scope == "cluster" else "sm_80"


@ptx(
    "ld{.sem}{.scope}.shared::cta{.vec}.{type} {ret}, [{address}];",
    isa=(7, 8),
    arch=_scope_arch,
    check=_strong,
    section=LD,
)
def ld_shared(
    address: Shared,
    *,
    type: Type = "u32",
    vec: Vec = "",
    sem: Literal["", "relaxed", "acquire"] = "",
    scope: Scope = "",
) -> Data:
    """Return a value from this block's shared memory.

    Args:
        address: aligned to the whole access.
        type: PTX type of one element.
        vec: ``"v2"`` or ``"v4"`` returns a tuple.
        sem: makes it a strong access; give ``scope`` too.
        scope: threads with which it synchronises.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "st{.sem}{.scope}.shared::cta{.vec}.{type} [{address}], {value};",
    isa=(7, 8),
    arch=_scope_arch,
    check=_strong,
    section=ST,
)
def st_shared(
    address: Shared,
    value: Data,
    *,
    type: Type = "u32",
    vec: Vec = "",
    sem: Literal["", "relaxed", "release"] = "",
    scope: Scope = "",
) -> None:
    """Write a value to this block's shared memory.

    A reader through the async proxy (TMA, wgmma) needs ``fence.proxy_async`` after it.

    Args:
        address: aligned to the whole access.
        value: one value, or a tuple for ``vec``.
        type: PTX type of one element.
        vec: ``"v2"`` or ``"v4"``.
        sem: makes it a strong access; give ``scope`` too. Release beyond the CTA costs a
            MEMBAR.ALL.GPU.
        scope: threads with which it synchronises.

    Executes: each thread on its own.
    """
    ...


def _global_check(v: Variant) -> str | None:
    if v.cop and v.l1:
        return f"cop={v.cop!r} with l1={v.l1!r}: give one of them"
    if v.l2 and _bits(v) != 256:
        return f"l2={v.l2!r} needs a 256-bit access: vec='v8' of 32 or 'v4' of 64 bits"
    return _width(v, 256)


def _load_check(v: Variant) -> str | None:
    if v.nc and v.cop in ("lu", "cv"):
        return f"nc=True with cop={v.cop!r}: nc takes 'ca', 'cg' or 'cs'"
    return _global_check(v)


def _hint_isa(v: Variant) -> Isa:
    if _bits(v) == 256:
        return (8, 8)
    hinted = v.l1 or v.get("prefetch") or v.has("cache_policy")
    return (7, 4) if hinted else (7, 0)


def _wide_arch(v: Variant) -> str:
    return "sm_100" if _bits(v) == 256 else "sm_80"


@ptx(
    "ld.global{.cop}{.nc}{.l1}{.l2}{?cache_policy:.L2::cache_hint}{.prefetch}{.vec}.{type} "
    "{ret}, [{address}]{, cache_policy};",
    isa=_hint_isa,
    arch=_wide_arch,
    check=_load_check,
    section=LD,
)
def ld_global(
    address: Global,
    cache_policy: U64 | None = None,
    *,
    type: Type = "u32",
    vec: WideVec = "",
    nc: Literal[False, True] = False,
    cop: Literal["", "ca", "cg", "cs", "lu", "cv"] = "",
    l1: L1 = "",
    l2: L2 = "",
    prefetch: Literal["", "L2::64B", "L2::128B", "L2::256B"] = "",
) -> Data:
    """Return a value from global memory, with cache hints.

    Args:
        address: aligned to the whole access.
        cache_policy: L2 policy.
        type: PTX type of one element.
        vec: returns a tuple; ``"v8"`` of 32 or ``"v4"`` of 64 bits needs Blackwell.
        nc: read-only path; nobody may write the data during the kernel.
        cop: cache operator, instead of ``l1``.
        l1: eviction priority in L1.
        l2: eviction priority in L2, for 256-bit loads.
        prefetch: how much to bring into L2 along with it.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "st.global{.cop}{.l1}{.l2}{?cache_policy:.L2::cache_hint}{.vec}.{type} "
    "[{address}], {value}{, cache_policy};",
    isa=_hint_isa,
    arch=_wide_arch,
    check=_global_check,
    section=ST,
)
def st_global(
    address: Global,
    value: Data,
    cache_policy: U64 | None = None,
    *,
    type: Type = "u32",
    vec: WideVec = "",
    cop: Literal["", "wb", "cg", "cs", "wt"] = "",
    l1: L1 = "",
    l2: L2 = "",
) -> None:
    """Write a value to global memory, with cache hints.

    Args:
        address: aligned to the whole access.
        value: one value, or a tuple for ``vec``.
        cache_policy: L2 policy.
        type: PTX type of one element.
        vec: takes a tuple; ``"v8"`` of 32 or ``"v4"`` of 64 bits needs Blackwell.
        cop: cache operator, instead of ``l1``.
        l1: eviction priority in L1.
        l2: eviction priority in L2, for 256-bit stores.

    Executes: each thread on its own.
    """
    ...


def _strong_isa(v: Variant) -> Isa:
    return (8, 8) if _bits(v) == 256 else _scope_isa(v)


def _strong_arch(v: Variant) -> str:
    return "sm_100" if _bits(v) == 256 else _scope_arch(v)


@ptx(
    "ld.{sem}.{scope}.global{.vec}.{type} {ret}, [{address}];",
    isa=_strong_isa,
    arch=_strong_arch,
    check=lambda v: _width(v, 256),
    section=LD,
)
def ld_global_strong(
    address: Global,
    *,
    type: Type = "u32",
    vec: WideVec = "",
    sem: Literal["relaxed", "acquire"],
    scope: Literal["cta", "cluster", "gpu", "sys"],
) -> Data:
    """Return a value from global memory that other threads may be writing.

    Args:
        address: aligned to the whole access.
        type: PTX type of one element.
        vec: returns a tuple.
        sem: ``"acquire"`` beyond the CTA invalidates L1.
        scope: threads with which it synchronises.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "st.{sem}.{scope}.global{.vec}.{type} [{address}], {value};",
    isa=_strong_isa,
    arch=_strong_arch,
    check=lambda v: _width(v, 256),
    section=ST,
)
def st_global_strong(
    address: Global,
    value: Data,
    *,
    type: Type = "u32",
    vec: WideVec = "",
    sem: Literal["relaxed", "release"],
    scope: Literal["cta", "cluster", "gpu", "sys"],
) -> None:
    """Write a value to global memory that other threads may be reading.

    Args:
        address: aligned to the whole access.
        value: one value, or a tuple for ``vec``.
        type: PTX type of one element.
        vec: takes a tuple.
        sem: ``"release"`` beyond the CTA costs a MEMBAR.ALL.GPU.
        scope: threads with which it synchronises.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "st.bulk.weak.shared::cta [{address}], {size}, 0;",
    isa=(8, 6),
    arch="sm_100",
    section=DATA_MOVEMENT + ": st.bulk",
)
def st_bulk_zero(address: Shared, size: Annotated[int, U64_KIND, Imm(0, 16777216, 8)]) -> None:
    """Fill shared memory with zeros.

    Args:
        address: 8-byte aligned.
        size: bytes, a multiple of 8, as a 64-bit value.

    Executes: each thread on its own.
    """
    ...


Primary = Literal["evict_last", "evict_normal", "evict_first", "evict_unchanged"]
Secondary = Literal["", "L2::evict_first", "L2::evict_unchanged"]


@ptx(
    "createpolicy.fractional.L2::{primary}{.secondary}.b64 {ret}{, fraction};",
    isa=(7, 4),
    arch="sm_80",
    effects="pure",
    section=CREATEPOLICY,
)
def createpolicy_fractional(
    fraction: F32 | None = None, *, primary: Primary, secondary: Secondary = ""
) -> U64:
    """Return an L2 policy that treats a fraction of the accesses as ``primary``.

    Args:
        fraction: above 0, at most 1; 1 when left out.
        primary: priority of that fraction.
        secondary: priority of the rest.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "createpolicy.range.global.L2::{primary}{.secondary}.b64 "
    "{ret}, [{address}], {primary_size}, {total_size};",
    isa=(7, 4),
    arch="sm_80",
    section=CREATEPOLICY,
)
def createpolicy_range(
    address: Global,
    primary_size: U32,
    total_size: U32,
    *,
    primary: Primary,
    secondary: Secondary = "",
) -> U64:
    """Return an L2 policy for an address range.

    Args:
        address: start of the range.
        primary_size: bytes from there with the primary priority.
        total_size: bytes around it, up to 4 GiB, with the secondary one.
        primary: priority of the primary part.
        secondary: priority of the rest.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "createpolicy.cvt.L2.b64 {ret}, {access_property};",
    isa=(7, 4),
    arch="sm_80",
    effects="pure",
    section=CREATEPOLICY,
)
def createpolicy_cvt(access_property: U64) -> U64:
    """Return the L2 policy of a CUDA access property.

    Args:
        access_property: 64 bits made by the host's access-property API.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "prefetch.global.{level} [{address}];",
    isa=lambda v: (7, 4) if "evict" in v.level else (7, 0),
    arch="sm_80",
    section=PREFETCH,
)
def prefetch(
    address: Global, *, level: Literal["L1", "L2", "L2::evict_last", "L2::evict_normal"] = "L2"
) -> None:
    """Bring the cache line of a global address into a cache.

    Args:
        address: any address in the line.
        level: which cache, or which priority in L2.

    Executes: each thread on its own. Completion: none; it is a hint.
    """
    ...


@ptx(
    "applypriority.global.L2::evict_normal [{address}], 128;",
    isa=(7, 4),
    arch="sm_80",
    section=DATA_MOVEMENT + ": applypriority",
)
def apply_priority(address: Global) -> None:
    """Give 128 bytes back the normal eviction priority in L2.

    Args:
        address: 128-byte aligned.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "discard.global.L2 [{address}], 128;",
    isa=(7, 4),
    arch="sm_80",
    section=DATA_MOVEMENT + ": discard",
)
def discard(address: Global) -> None:
    """Drop 128 bytes from L2 without writing them back; their content becomes indeterminate.

    Args:
        address: 128-byte aligned.

    Executes: each thread on its own.
    """
    ...
