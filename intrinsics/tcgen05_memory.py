"""tcgen05: tensor memory: allocation, loads, stores, copies, ordering; imported as ``tcgen05``."""

from __future__ import annotations

from typing import Annotated, Literal

from nbtc.arch import TCGEN05
from nbtc.intrinsics.tcgen05_types import SECTION, CtaGroup, Flag, HalfOffset
from nbtc.ptx.kinds import F32_KIND, S32_KIND, U32_KIND, Imm, Kind, Regs, Shared, Tmem
from nbtc.ptx.spec import Variant, ptx

FAMILY = "tcgen05"
Columns = Annotated[int, U32_KIND, Imm(32, 32, extra=(64, 128, 256, 512))]


@ptx(
    "tcgen05.alloc.cta_group::{cta_group}.sync.aligned.shared::cta.b32 [{slot}], {columns};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory convergent",
    section=SECTION + ": alloc",
)
def alloc(slot: Shared, columns: Columns, *, cta_group: CtaGroup = 1) -> None:
    """Allocate columns of tensor memory and write their address to shared memory.

    One full warp executes it; with ``cta_group=2`` one warp in each CTA of the pair, and both get
    the same address. Blocks until the columns are free. The address is written by a weak store:
    other warps read it after a barrier. Every allocation must be freed before the CTA exits, and a
    CTA's allocations must not grow from one to the next.

    Args:
        slot: 4 bytes of shared memory for the address.
        columns: 32, 64, 128, 256 or 512, all 128 lanes each.
        cta_group: 1, or 2 for a CTA pair; one kernel uses only one of them.
    """
    ...


@ptx(
    "tcgen05.dealloc.cta_group::{cta_group}.sync.aligned.b32 {taddr}, {columns};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory convergent",
    section=SECTION + ": dealloc",
)
def dealloc(taddr: Tmem, columns: Columns, *, cta_group: CtaGroup = 1) -> None:
    """Free columns of tensor memory. One full warp executes it (one in each CTA of a pair).

    Nothing may still use them: wait for the mbarrier of the last commit and for the last loads,
    and with ``cta_group=2`` synchronise both CTAs first.

    Args:
        taddr: address that :func:`alloc` gave.
        columns: as allocated.
        cta_group: as allocated.
    """
    ...


@ptx(
    "tcgen05.relinquish_alloc_permit.cta_group::{cta_group}.sync.aligned;",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory convergent",
    section=SECTION + ": relinquish",
)
def relinquish_alloc_permit(*, cta_group: CtaGroup = 1) -> None:
    """Give up the right to allocate, so that another CTA on the SM can. A full warp executes it."""
    ...


def _reg_kind(v: Variant) -> Kind:
    return {"f32": F32_KIND, "u32": U32_KIND, "s32": S32_KIND}[v.dtype]


def _packed_are_bits(v: Variant) -> str | None:
    if (v.get("pack") or v.get("unpack")) and v.dtype != "u32":
        word = "pack" if v.get("pack") else "unpack"
        rule = "registers hold two 16-bit values; pass dtype='u32'"
        return f"{word}=True with dtype={v.dtype!r}: {rule}"
    return None


def _n1(v: Variant) -> int:
    return v.num


def _n2(v: Variant) -> int:
    return 2 * v.num


def _n4(v: Variant) -> int:
    return 4 * v.num


R1 = Annotated[tuple[float, ...], Regs(_reg_kind, _n1, note="num")]
R2 = Annotated[tuple[float, ...], Regs(_reg_kind, _n2, note="2 * num")]
R4 = Annotated[tuple[float, ...], Regs(_reg_kind, _n4, note="4 * num")]
N128 = Literal[1, 2, 4, 8, 16, 32, 64, 128]
N64 = Literal[1, 2, 4, 8, 16, 32, 64]
N32 = Literal[1, 2, 4, 8, 16, 32]
Dtype = Literal["f32", "u32", "s32"]


@ptx(
    "tcgen05.ld.sync.aligned.32x32b.x{num}{?pack:.pack::16b}.b32 {ret}, [{taddr}];",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory convergent",
    check=_packed_are_bits,
    section=SECTION + ": ld",
)
def ld_32x32b(
    taddr: Tmem,
    *,
    num: N128,
    pack: Flag = False,
    dtype: Dtype = "f32",
) -> R1:
    """Load 32 lanes of tensor memory into registers, num columns.

    Register ``j`` of thread ``l``: lane ``l``, column ``j``.
    A warp executes it and reaches only its own 32 lanes, ``32 * (warp % 4)`` and up.
    Asynchronous: the columns may be overwritten, freed or handed on only after :func:`wait_ld`.

    Args:
        taddr: address, the same in all lanes: lane 0 or the warp's own first lane.
        num: repetitions along the columns.
        pack: put the low 16 bits of two neighbouring columns into one register; the span doubles.
        dtype: type of the registers.
    """
    ...


@ptx(
    "tcgen05.ld.sync.aligned.16x64b.x{num}{?pack:.pack::16b}.b32 {ret}, [{taddr}];",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory convergent",
    check=_packed_are_bits,
    section=SECTION + ": ld",
)
def ld_16x64b(
    taddr: Tmem,
    *,
    num: N128,
    pack: Flag = False,
    dtype: Dtype = "f32",
) -> R1:
    """Load 16 lanes of tensor memory into registers, 2 * num columns.

    Register ``j`` of thread ``l``: lane ``8 * (l & 1) + l // 4``, column ``2 * j + (l // 2 & 1)``.
    A warp executes it and reaches only its own 32 lanes, ``32 * (warp % 4)`` and up.
    Asynchronous: the columns may be overwritten, freed or handed on only after :func:`wait_ld`.

    Args:
        taddr: address, the same in all lanes: lane 0 or 16 of the warp's 32.
        num: repetitions along the columns.
        pack: put the low 16 bits of two neighbouring columns into one register; the span doubles.
        dtype: type of the registers.
    """
    ...


@ptx(
    "tcgen05.ld.sync.aligned.16x128b.x{num}{?pack:.pack::16b}.b32 {ret}, [{taddr}];",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory convergent",
    check=_packed_are_bits,
    section=SECTION + ": ld",
)
def ld_16x128b(
    taddr: Tmem,
    *,
    num: N64,
    pack: Flag = False,
    dtype: Dtype = "f32",
) -> R2:
    """Load 16 lanes of tensor memory into registers, 4 * num columns.

    Register ``j`` of thread ``l``: lane ``l // 4 + 8 * (j & 1)``, column ``l % 4 + 4 * (j >> 1)``.
    A warp executes it and reaches only its own 32 lanes, ``32 * (warp % 4)`` and up.
    Asynchronous: the columns may be overwritten, freed or handed on only after :func:`wait_ld`.

    Args:
        taddr: address, the same in all lanes: lane 0 or 16 of the warp's 32.
        num: repetitions along the columns.
        pack: put the low 16 bits of two neighbouring columns into one register; the span doubles.
        dtype: type of the registers.
    """
    ...


@ptx(
    "tcgen05.ld.sync.aligned.16x256b.x{num}{?pack:.pack::16b}.b32 {ret}, [{taddr}];",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory convergent",
    check=_packed_are_bits,
    section=SECTION + ": ld",
)
def ld_16x256b(
    taddr: Tmem,
    *,
    num: N32,
    pack: Flag = False,
    dtype: Dtype = "f32",
) -> R4:
    """Load 16 lanes of tensor memory into registers, 8 * num columns.

    Register ``j`` of thread ``l``: lane ``l // 4 + 8 * (j >> 1 & 1)``, column
    ``2 * (l % 4) + (j & 1) + 8 * (j >> 2)``; the accumulator fragment of mma.
    A warp executes it and reaches only its own 32 lanes, ``32 * (warp % 4)`` and up.
    Asynchronous: the columns may be overwritten, freed or handed on only after :func:`wait_ld`.

    Args:
        taddr: address, the same in all lanes: lane 0 or 16 of the warp's 32.
        num: repetitions along the columns.
        pack: put the low 16 bits of two neighbouring columns into one register; the span doubles.
        dtype: type of the registers.
    """
    ...


@ptx(
    "tcgen05.ld.sync.aligned.16x32bx2.x{num}{?pack:.pack::16b}.b32 {ret}, "
    "[{taddr}], {half_offset};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory convergent",
    check=_packed_are_bits,
    section=SECTION + ": ld",
)
def ld_16x32bx2(
    taddr: Tmem,
    *,
    num: N128,
    half_offset: HalfOffset,
    pack: Flag = False,
    dtype: Dtype = "f32",
) -> R1:
    """Load 16 lanes of tensor memory into registers, num, twice columns.

    Register ``j`` of thread ``l``: lane ``l % 16``, column ``j``, plus
    ``half_offset`` for l >= 16.
    A warp executes it and reaches only its own 32 lanes, ``32 * (warp % 4)`` and up.
    Asynchronous: the columns may be overwritten, freed or handed on only after :func:`wait_ld`.

    Args:
        taddr: address, the same in all lanes: lane 0 or 16 of the warp's 32.
        num: repetitions along the columns.
        half_offset: offset of the second half in columns of TMEM, usually ``num``, ``2 * num``
            with ``pack``.
        pack: put the low 16 bits of two neighbouring columns into one register; the span doubles.
        dtype: type of the registers.
    """
    ...


@ptx(
    "tcgen05.st.sync.aligned.32x32b.x{num}{?unpack:.unpack::16b}.b32 [{taddr}], {regs};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory convergent",
    check=_packed_are_bits,
    section=SECTION + ": st",
)
def st_32x32b(
    taddr: Tmem,
    regs: R1,
    *,
    num: N128,
    unpack: Flag = False,
    dtype: Dtype = "f32",
) -> None:
    """Store registers to 32 lanes of tensor memory, num columns.

    The layout and the reach are those of :func:`ld_32x32b`. Asynchronous: finished after
    :func:`wait_st`.

    Args:
        taddr: address, the same in all lanes.
        regs: registers to store.
        num: repetitions along the columns.
        unpack: spread two 16-bit values of a register over two columns; the span doubles.
        dtype: type of the registers.
    """
    ...


@ptx(
    "tcgen05.st.sync.aligned.16x64b.x{num}{?unpack:.unpack::16b}.b32 [{taddr}], {regs};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory convergent",
    check=_packed_are_bits,
    section=SECTION + ": st",
)
def st_16x64b(
    taddr: Tmem,
    regs: R1,
    *,
    num: N128,
    unpack: Flag = False,
    dtype: Dtype = "f32",
) -> None:
    """Store registers to 16 lanes of tensor memory, 2 * num columns.

    The layout and the reach are those of :func:`ld_16x64b`. Asynchronous: finished after
    :func:`wait_st`.

    Args:
        taddr: address, the same in all lanes.
        regs: registers to store.
        num: repetitions along the columns.
        unpack: spread two 16-bit values of a register over two columns; the span doubles.
        dtype: type of the registers.
    """
    ...


@ptx(
    "tcgen05.st.sync.aligned.16x128b.x{num}{?unpack:.unpack::16b}.b32 [{taddr}], {regs};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory convergent",
    check=_packed_are_bits,
    section=SECTION + ": st",
)
def st_16x128b(
    taddr: Tmem,
    regs: R2,
    *,
    num: N64,
    unpack: Flag = False,
    dtype: Dtype = "f32",
) -> None:
    """Store registers to 16 lanes of tensor memory, 4 * num columns.

    The layout and the reach are those of :func:`ld_16x128b`. Asynchronous: finished after
    :func:`wait_st`.

    Args:
        taddr: address, the same in all lanes.
        regs: registers to store.
        num: repetitions along the columns.
        unpack: spread two 16-bit values of a register over two columns; the span doubles.
        dtype: type of the registers.
    """
    ...


@ptx(
    "tcgen05.st.sync.aligned.16x256b.x{num}{?unpack:.unpack::16b}.b32 [{taddr}], {regs};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory convergent",
    check=_packed_are_bits,
    section=SECTION + ": st",
)
def st_16x256b(
    taddr: Tmem,
    regs: R4,
    *,
    num: N32,
    unpack: Flag = False,
    dtype: Dtype = "f32",
) -> None:
    """Store registers to 16 lanes of tensor memory, 8 * num columns.

    The layout and the reach are those of :func:`ld_16x256b`. Asynchronous: finished after
    :func:`wait_st`.

    Args:
        taddr: address, the same in all lanes.
        regs: registers to store.
        num: repetitions along the columns.
        unpack: spread two 16-bit values of a register over two columns; the span doubles.
        dtype: type of the registers.
    """
    ...


@ptx(
    "tcgen05.st.sync.aligned.16x32bx2.x{num}{?unpack:.unpack::16b}.b32 [{taddr}], {half_offset}, "
    "{regs};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory convergent",
    check=_packed_are_bits,
    section=SECTION + ": st",
)
def st_16x32bx2(
    taddr: Tmem,
    regs: R1,
    *,
    num: N128,
    half_offset: HalfOffset,
    unpack: Flag = False,
    dtype: Dtype = "f32",
) -> None:
    """Store registers to 16 lanes of tensor memory, num, twice columns.

    The layout and the reach are those of :func:`ld_16x32bx2`. Asynchronous: finished after
    :func:`wait_st`.

    Args:
        taddr: address, the same in all lanes.
        regs: registers to store.
        num: repetitions along the columns.
        half_offset: column offset of the second half, usually ``num``.
        unpack: spread two 16-bit values of a register over two columns; the span doubles.
        dtype: type of the registers.
    """
    ...
