"""tcgen05: reductions on load, copies, ordering and completion; imported as ``tcgen05``."""

from __future__ import annotations

from typing import Annotated, Literal

from nbtc.arch import TCGEN05
from nbtc.intrinsics.tcgen05_types import CHIPS, SECTION, CtaGroup, Flag, HalfOffset
from nbtc.ptx.kinds import (
    F32_KIND,
    S32_KIND,
    U16,
    U32_KIND,
    AnyRegisters,
    Cluster,
    Descriptor100,
    Kind,
    Regs,
    Tmem,
    chosen,
)
from nbtc.ptx.spec import Variant, ptx

FAMILY = "tcgen05"
ReduceN = Literal[2, 4, 8, 16, 32, 64, 128]
ReduceType = Literal["f32", "u32", "s32"]


def _reduced_kind(v: Variant) -> Kind:
    return {"f32": F32_KIND, "u32": U32_KIND, "s32": S32_KIND}[v.dtype]


def _num(v: Variant) -> int:
    return v.num


def _float_only(v: Variant) -> str | None:
    if v.dtype != "f32" and (v.abs or v.NaN):
        return f"abs and NaN go with dtype='f32', not {v.dtype!r}"
    return None


Reduced = Annotated[tuple[float, ...], Regs(_reduced_kind, _num, note="num")]
Extreme = Annotated[float, chosen(_reduced_kind)]


@ptx(
    "tcgen05.ld.red.sync.aligned.32x32b.x{num}.{op}{.abs}{.NaN}.{dtype} {ret0}, {ret1}, [{taddr}];",
    isa=(8, 8),
    arch="sm_103a",
    effects="memory convergent",
    check=_float_only,
    section=SECTION + ": ld.red",
)
def ld_red_32x32b(
    taddr: Tmem,
    *,
    num: ReduceN,
    op: Literal["min", "max"],
    dtype: ReduceType = "f32",
    abs: Flag = False,
    NaN: Flag = False,
) -> tuple[Reduced, Extreme]:
    """Load as ``ld_32x32b`` does, and return also the extreme of this thread's registers.

    A warp executes it; asynchronous, see :func:`wait_ld`. Blackwell Ultra only.

    Args:
        taddr: address, the same in all lanes.
        num: columns.
        op: minimum or maximum.
        dtype: type of the elements.
        abs: compare absolute values; float32 only.
        NaN: a NaN element gives NaN; float32 only.
    """
    ...


@ptx(
    "tcgen05.ld.red.sync.aligned.16x32bx2.x{num}.{op}{.abs}{.NaN}.{dtype} {ret0}, {ret1}, "
    "[{taddr}], {half_offset};",
    isa=(8, 8),
    arch="sm_103a",
    effects="memory convergent",
    check=_float_only,
    section=SECTION + ": ld.red",
)
def ld_red_16x32bx2(
    taddr: Tmem,
    *,
    num: ReduceN,
    half_offset: HalfOffset,
    op: Literal["min", "max"],
    dtype: ReduceType = "f32",
    abs: Flag = False,
    NaN: Flag = False,
) -> tuple[Reduced, Extreme]:
    """Load as ``ld_16x32bx2`` does, and return also the extreme of this thread's registers.

    A warp executes it; asynchronous, see :func:`wait_ld`. Blackwell Ultra only.

    Args:
        taddr: address, the same in all lanes.
        num: columns of each half.
        half_offset: column offset of the second half.
        op: minimum or maximum.
        dtype: type of the elements.
        abs: compare absolute values; float32 only.
        NaN: a NaN element gives NaN; float32 only.
    """
    ...


@ptx(
    "tcgen05.wait::ld.sync.aligned;",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory convergent",
    ties={"regs": "ret"},
    section=SECTION + ": wait",
)
def wait_ld(regs: AnyRegisters | None = None) -> AnyRegisters:
    """Wait for this thread's tensor-memory loads. A warp executes it.

    Args:
        regs: loaded registers to pass through, so that the compiler cannot use them before the
            wait. Left out: only the wait.

    Returns:
        ``regs``, in the same registers.
    """
    ...


@ptx(
    "tcgen05.wait::st.sync.aligned;",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory convergent",
    section=SECTION + ": wait",
)
def wait_st() -> None:
    """Wait for this thread's tensor-memory stores. A warp executes it.

    For another thread or an MMA to see them, follow with :func:`fence_before_thread_sync` and a
    barrier.
    """
    ...


def _cp_check(v: Variant) -> str | None:
    need = {"64x128b": ("warpx2::02_13", "warpx2::01_23"), "32x128b": ("warpx4",)}
    legal = need.get(v.shape, ("",))
    if v.multicast not in legal:
        return (
            f"shape={v.shape!r} with multicast={v.multicast!r}; this shape takes multicast="
            + " or ".join(map(repr, legal))
        )
    return None


@ptx(
    "tcgen05.cp.cta_group::{cta_group}.{shape}{.multicast}{?decompress:.b8x16}{.decompress} "
    "[{taddr}], {s_desc};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory",
    check=_cp_check,
    section=SECTION + ": cp",
)
def cp(
    taddr: Tmem,
    s_desc: Descriptor100,
    *,
    shape: Literal["128x256b", "128x128b", "4x256b", "64x128b", "32x128b"],
    multicast: Literal["", "warpx2::02_13", "warpx2::01_23", "warpx4"] = "",
    decompress: Literal["", "b6x16_p32", "b4x16_p64"] = "",
    cta_group: CtaGroup = 1,
) -> None:
    """Copy from shared memory to tensor memory. One thread executes it (one of the pair).

    Asynchronous; a later ``mma`` of the same thread and cta_group sees the data without a wait,
    everything else after :func:`commit` and its mbarrier. With ``cta_group=2`` both CTAs copy.

    Args:
        taddr: destination.
        s_desc: source, as 8-row by 16-byte core matrices (stride: next 8 rows, leading: next 16
            bytes).
        shape: rows by bits. ``128x256b`` and ``128x128b``: row r to lane r. ``4x256b``: row i to
            lane 32 * i. ``64x128b`` and ``32x128b``: rows repeated as ``multicast`` says.
        multicast: ``warpx2::02_13``: row r to lanes r and r + 64; ``warpx2::01_23``: rows 0-31 to
            lanes 0-63, rows 32-63 to lanes 64-127, twice each; ``warpx4``: row r to four lanes 32
            apart.
        decompress: widen 16 packed 6-bit (12 bytes and 4 pad) or 4-bit (8 and 8) elements to
            bytes.
        cta_group: 1, or 2 for a CTA pair.
    """
    ...


@ptx(
    "tcgen05.shift.cta_group::{cta_group}.down [{taddr}];",
    isa=(8, 6),
    arch=CHIPS,
    effects="memory",
    section=SECTION + ": shift",
)
def shift_down(taddr: Tmem, *, cta_group: CtaGroup = 1) -> None:
    """Move rows of 32 bytes one lane down, all but the last. One thread executes it.

    Asynchronous and in order with this thread's ``mma`` and ``cp``; completion through
    :func:`commit`.

    Args:
        taddr: address; its lane is a multiple of 32.
        cta_group: 1, or 2 for a CTA pair.
    """
    ...


@ptx(
    "tcgen05.commit.cta_group::{cta_group}.mbarrier::arrive::one.shared::cluster"
    "{?cta_mask:.multicast::cluster}.b64 [{bar}]{, cta_mask};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory",
    section=SECTION + ": commit",
)
def commit(bar: Cluster, cta_mask: U16 | None = None, *, cta_group: CtaGroup = 1) -> None:
    """Make an mbarrier track this thread's earlier ``mma``, ``cp`` and ``shift``.

    One thread executes it, the one that issued them. The mbarrier gets one arrival, of cluster
    scope, when all have finished; operands in shared memory may then be reused and D read. It
    includes :func:`fence_before_thread_sync`.

    Args:
        bar: the mbarrier.
        cta_mask: arrive at the same offset in every CTA of this mask (bit: rank in the cluster).
        cta_group: as in the instructions tracked.
    """
    ...


@ptx(
    "tcgen05.fence::before_thread_sync;",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory",
    section=SECTION + ": fence",
)
def fence_before_thread_sync() -> None:
    """Order this thread's earlier tcgen05 operations before a following synchronisation."""
    ...


@ptx(
    "tcgen05.fence::after_thread_sync;",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory",
    section=SECTION + ": fence",
)
def fence_after_thread_sync() -> None:
    """Order this thread's later tcgen05 operations after a preceding synchronisation."""
    ...
