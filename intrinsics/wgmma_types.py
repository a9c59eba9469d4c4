"""Operand shapes, rules and texts that the wgmma declarations share."""

from __future__ import annotations

from typing import Annotated, Literal

from nbtc.ptx.kinds import F32_KIND, S32_KIND, U32_KIND, Imm, Kind, Regs
from nbtc.ptx.spec import Variant

SECTION = "9.7.15 Asynchronous Warpgroup Level Matrix Multiply-Accumulate"
ARCH = "sm_90a"


def _d_kind(v: Variant) -> Kind:
    return F32_KIND if v.d_type == "f32" else U32_KIND


def _d_count(v: Variant) -> int:
    return v.n // 2 if v.d_type == "f32" else v.n // 4


def _half_n(v: Variant) -> int:
    return v.n // 2


N = Annotated[int, Imm(8, 256, 8)]
"""Columns of D."""
NInteger = Annotated[int, Imm(16, 256, 16, extra=(8, 24))]
"""Columns of D where A and B are 8-bit integers or bits."""
DFloat = Annotated[tuple[float, ...], Regs(F32_KIND, _half_n, note="n / 2")]
"""Float32 accumulator."""
DEither = Annotated[
    tuple[float, ...],
    Regs(_d_kind, _d_count, note="n / 2 float32, or n / 4 uint32 for d_type='f16'"),
]
"""Accumulator in float32, or in pairs of float16."""
DInteger = Annotated[tuple[int, ...], Regs(S32_KIND, _half_n, note="n / 2")]
"""Int32 accumulator."""
A4 = Annotated[tuple[int, int, int, int], Regs(U32_KIND, 4)]
"""A fragment of A: 64 rows by 32 bytes over the warpgroup."""

Sign = Literal[1, -1]
Bit = Literal[0, 1]
Fp8 = Literal["e4m3", "e5m2"]
Int8 = Literal["s8", "u8"]

MMA = "wgmma.mma_async.sync.aligned.m64n{n}"


def k_major_only(v: Variant) -> str | None:
    """Refuse a transpose of an element type that has none."""
    for operand in ("a", "b"):
        if v.get(f"trans_{operand}"):
            return (
                f"trans_{operand}=1: operand {operand.upper()} must be K-major; only f16 and bf16 "
                "have a transpose bit, 8-bit and tf32 operands do not. Store the operand with K "
                "contiguous"
            )
    return None


def mixed_isa(v: Variant) -> tuple[int, int]:
    """Return the PTX ISA version of an int8 form."""
    return (8, 0) if v.a_type == v.b_type else (8, 4)
