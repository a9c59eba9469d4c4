"""Modifiers, operand kinds and rules that the declarations of ``tcgen05`` share."""

from __future__ import annotations

from typing import Annotated, Literal

from nbtc.arch import TCGEN05, Requirement
from nbtc.ptx.kinds import U32_KIND, Imm, Regs, ZeroBits
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
IdescKMajorA = Annotated[
    int,
    U32_KIND,
    ZeroBits(
        1 << 15,
        "an instruction descriptor with bit 15 (transpose A) 0: A from tensor memory is K-major",
    ),
]
"""Instruction descriptor of a form that takes A from tensor memory."""


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
