"""Modifiers, operand kinds and rules that the declarations of ``tcgen05`` share."""

from __future__ import annotations

from typing import Annotated, Literal

from nbtc.arch import TCGEN05, Requirement
from nbtc.errors import LayoutError
from nbtc.layout.instruction_descriptor import InstructionDescriptor
from nbtc.ptx.kinds import U32_KIND, Checked, Imm, Regs
from nbtc.ptx.spec import Isa, Variant

SECTION = "9.7.16 TensorCore 5th Generation Family Instructions"
CHIPS = ("sm_100a", "sm_103a")
"""Targets of the forms that the family target sm_100f does not have."""
CtaGroup = Literal[1, 2]
Flag = Literal[False, True]
Collector = Literal["", "fill", "use", "lastuse", "discard"]
CollectorB = Literal[
    "",
    "b0::fill", "b0::use", "b0::lastuse", "b0::discard",
    "b1::fill", "b1::use", "b1::lastuse", "b1::discard",
    "b2::fill", "b2::use", "b2::lastuse", "b2::discard",
    "b3::fill", "b3::use", "b3::lastuse", "b3::discard",
]  # fmt: skip
ScaleInputD = Annotated[int, Imm(0, 15)]
HalfOffset = Annotated[int, Imm(0, 511)]
VecMxf8f6f4 = Literal["", "scale_vec::1X", "block32"]
VecMxf4 = Literal["", "scale_vec::2X", "block32"]
VecMxf4nvf4 = Literal["scale_vec::2X", "scale_vec::4X", "block16", "block32"]


def _lanes(v: Variant) -> int:
    return 4 * v.cta_group


Lanes = Annotated[tuple[int, ...], Regs(U32_KIND, _lanes, note="4 * cta_group")]
"""Mask of lanes of D that stay unwritten."""


def _idesc(kind: str, *, ts: bool = False, sparse: bool = False, ws: bool = False) -> Checked:
    def rule(value: int, v: Variant) -> str | None:
        try:
            found = InstructionDescriptor.decode(value & 0xFFFFFFFF, kind)
            found.check(1 if ws else v.cta_group, ws=ws, a_in_tmem=ts)
        except LayoutError as e:
            return f"= {value:#x}: {e}"
        if found.sparse != sparse:
            have, name = ("a sparse", "mma_sp_...") if found.sparse else ("a dense", "mma_...")
            return f"= {value:#x} is for {have} A (bit 2); use {name}, or change the descriptor"
        return None

    return Checked(rule, f"an instruction descriptor of kind {kind}")


IdescF16 = Annotated[int, U32_KIND, _idesc("f16")]
IdescTf32 = Annotated[int, U32_KIND, _idesc("tf32")]
IdescF8f6f4 = Annotated[int, U32_KIND, _idesc("f8f6f4")]
IdescI8 = Annotated[int, U32_KIND, _idesc("i8")]
IdescMxf8f6f4 = Annotated[int, U32_KIND, _idesc("mxf8f6f4")]
IdescMxf4 = Annotated[int, U32_KIND, _idesc("mxf4")]
IdescMxf4nvf4 = Annotated[int, U32_KIND, _idesc("mxf4nvf4")]
IdescF16Ts = Annotated[int, U32_KIND, _idesc("f16", ts=True)]
IdescTf32Ts = Annotated[int, U32_KIND, _idesc("tf32", ts=True)]
IdescF8f6f4Ts = Annotated[int, U32_KIND, _idesc("f8f6f4", ts=True)]
IdescI8Ts = Annotated[int, U32_KIND, _idesc("i8", ts=True)]
IdescMxf8f6f4Ts = Annotated[int, U32_KIND, _idesc("mxf8f6f4", ts=True)]
IdescMxf4Ts = Annotated[int, U32_KIND, _idesc("mxf4", ts=True)]
IdescMxf4nvf4Ts = Annotated[int, U32_KIND, _idesc("mxf4nvf4", ts=True)]
IdescSpF16 = Annotated[int, U32_KIND, _idesc("f16", sparse=True)]
IdescSpTf32 = Annotated[int, U32_KIND, _idesc("tf32", sparse=True)]
IdescSpF8f6f4 = Annotated[int, U32_KIND, _idesc("f8f6f4", sparse=True)]
IdescSpI8 = Annotated[int, U32_KIND, _idesc("i8", sparse=True)]
IdescSpMxf8f6f4 = Annotated[int, U32_KIND, _idesc("mxf8f6f4", sparse=True)]
IdescSpMxf4 = Annotated[int, U32_KIND, _idesc("mxf4", sparse=True)]
IdescSpMxf4nvf4 = Annotated[int, U32_KIND, _idesc("mxf4nvf4", sparse=True)]
IdescSpF16Ts = Annotated[int, U32_KIND, _idesc("f16", ts=True, sparse=True)]
IdescSpTf32Ts = Annotated[int, U32_KIND, _idesc("tf32", ts=True, sparse=True)]
IdescSpF8f6f4Ts = Annotated[int, U32_KIND, _idesc("f8f6f4", ts=True, sparse=True)]
IdescSpI8Ts = Annotated[int, U32_KIND, _idesc("i8", ts=True, sparse=True)]
IdescSpMxf8f6f4Ts = Annotated[int, U32_KIND, _idesc("mxf8f6f4", ts=True, sparse=True)]
IdescSpMxf4Ts = Annotated[int, U32_KIND, _idesc("mxf4", ts=True, sparse=True)]
IdescSpMxf4nvf4Ts = Annotated[int, U32_KIND, _idesc("mxf4nvf4", ts=True, sparse=True)]
IdescWsF16 = Annotated[int, U32_KIND, _idesc("f16", ws=True)]
IdescWsTf32 = Annotated[int, U32_KIND, _idesc("tf32", ws=True)]
IdescWsF8f6f4 = Annotated[int, U32_KIND, _idesc("f8f6f4", ws=True)]
IdescWsI8 = Annotated[int, U32_KIND, _idesc("i8", ws=True)]
IdescWsF16Ts = Annotated[int, U32_KIND, _idesc("f16", ts=True, ws=True)]
IdescWsTf32Ts = Annotated[int, U32_KIND, _idesc("tf32", ts=True, ws=True)]
IdescWsF8f6f4Ts = Annotated[int, U32_KIND, _idesc("f8f6f4", ts=True, ws=True)]
IdescWsI8Ts = Annotated[int, U32_KIND, _idesc("i8", ts=True, ws=True)]
IdescWsSpF16 = Annotated[int, U32_KIND, _idesc("f16", sparse=True, ws=True)]
IdescWsSpTf32 = Annotated[int, U32_KIND, _idesc("tf32", sparse=True, ws=True)]
IdescWsSpF8f6f4 = Annotated[int, U32_KIND, _idesc("f8f6f4", sparse=True, ws=True)]
IdescWsSpI8 = Annotated[int, U32_KIND, _idesc("i8", sparse=True, ws=True)]
IdescWsSpF16Ts = Annotated[int, U32_KIND, _idesc("f16", ts=True, sparse=True, ws=True)]
IdescWsSpTf32Ts = Annotated[int, U32_KIND, _idesc("tf32", ts=True, sparse=True, ws=True)]
IdescWsSpF8f6f4Ts = Annotated[int, U32_KIND, _idesc("f8f6f4", ts=True, sparse=True, ws=True)]
IdescWsSpI8Ts = Annotated[int, U32_KIND, _idesc("i8", ts=True, sparse=True, ws=True)]


def no_shift_with_reuse(v: Variant) -> str | None:
    """Refuse ashift together with the collector hints that exclude it."""
    if v.ashift and v.collector_a in ("fill", "use"):
        return (
            f"ashift=True with collector_a={v.collector_a!r}; with ashift, collector_a is '', "
            "'lastuse' or 'discard'"
        )
    return None


def block_isa(v: Variant) -> Isa:
    """Return the PTX ISA version of mxf8f6f4 and mxf4."""
    return (8, 8) if v.scale_vec.startswith("block") else (8, 6)


def nvf4_isa(v: Variant) -> Isa:
    """Return the PTX ISA version of mxf4nvf4."""
    return (8, 8) if v.scale_vec.startswith("block") else (8, 7)


def block_arch(v: Variant) -> Requirement:
    """Return the targets of a block-scaled form."""
    return CHIPS if v.scale_vec.startswith("scale_vec") else TCGEN05


def block_arch_sparse(v: Variant) -> Requirement:
    """Return the targets of a sparse block-scaled form of 4-bit types."""
    return CHIPS
