"""cvt: conversions between float32 and narrow or packed types, one instruction each.

A packed register holds its elements from the low bits up; where an instruction takes two float32,
``hi`` becomes the upper element and ``lo`` the lower one (PTX writes the upper one first). Packed
16-bit types are uint32, packed 8- and 6-bit pairs are uint16, a pair of e2m1 is the low byte of a
uint32. Each thread executes on its own.

``satfinite`` clamps to the largest finite value (NaN stays NaN in types that have one, and becomes
the largest value in e2m1, e2m3, e3m2 and s2f6); ``relu`` turns negative values into 0.

Not covered: conversions that Numba's own casts compile to (integers to float32, float32 to
float64); scalar fp8, which PTX does not have; bfloat16 from and to integers other than int32, and
float64, which go through float32. The 6- and 4-bit types, ue8m0, s2f6 and stochastic
rounding are in ``nbtc.intrinsics.convert_narrow`` and re-exported here.
"""

from __future__ import annotations

from typing import Annotated, Literal

from nbtc.arch import TCGEN05, Requirement
from nbtc.intrinsics.convert_narrow import (
    cvt_bf16x2_e2m1x2,
    cvt_bf16x2_e2m3x2,
    cvt_bf16x2_e3m2x2,
    cvt_bf16x2_f32_rs,
    cvt_bf16x2_s2f6x2,
    cvt_bf16x2_ue8m0x2,
    cvt_e2m1x2_bf16x2,
    cvt_e2m1x2_f16x2,
    cvt_e2m1x2_f32,
    cvt_e2m1x4_f32_rs,
    cvt_e2m3x2_bf16x2,
    cvt_e2m3x2_f16x2,
    cvt_e2m3x2_f32,
    cvt_e2m3x4_f32_rs,
    cvt_e3m2x2_bf16x2,
    cvt_e3m2x2_f16x2,
    cvt_e3m2x2_f32,
    cvt_e3m2x4_f32_rs,
    cvt_e4m3x4_f32_rs,
    cvt_e5m2x4_f32_rs,
    cvt_f16x2_e2m1x2,
    cvt_f16x2_e2m3x2,
    cvt_f16x2_e3m2x2,
    cvt_f16x2_f32_rs,
    cvt_s2f6x2_bf16x2,
    cvt_s2f6x2_f32,
    cvt_ue8m0x2_bf16x2,
    cvt_ue8m0x2_f32,
)
from nbtc.ptx.kinds import (
    F32,
    S32,
    S32_KIND,
    S64_KIND,
    U16,
    U32,
    U32_KIND,
    U64,
    U64_KIND,
    Kind,
    chosen,
)
from nbtc.ptx.spec import Variant, ptx

__all__ = [
    "cvt_bf16_f16", "cvt_bf16_f32", "cvt_bf16_s32", "cvt_bf16x2_e2m1x2", "cvt_bf16x2_e2m3x2",
    "cvt_bf16x2_e3m2x2", "cvt_bf16x2_e4m3x2", "cvt_bf16x2_e5m2x2", "cvt_bf16x2_f32",
    "cvt_bf16x2_f32_rs", "cvt_bf16x2_s2f6x2", "cvt_bf16x2_ue8m0x2", "cvt_e2m1x2_bf16x2",
    "cvt_e2m1x2_f16x2", "cvt_e2m1x2_f32", "cvt_e2m1x4_f32_rs", "cvt_e2m3x2_bf16x2",
    "cvt_e2m3x2_f16x2", "cvt_e2m3x2_f32", "cvt_e2m3x4_f32_rs", "cvt_e3m2x2_bf16x2",
    "cvt_e3m2x2_f16x2", "cvt_e3m2x2_f32", "cvt_e3m2x4_f32_rs", "cvt_e4m3x2_bf16x2",
    "cvt_e4m3x2_f16x2", "cvt_e4m3x2_f32", "cvt_e4m3x4_f32_rs", "cvt_e5m2x2_bf16x2",
    "cvt_e5m2x2_f16x2", "cvt_e5m2x2_f32", "cvt_e5m2x4_f32_rs", "cvt_f16_f32", "cvt_f16x2_e2m1x2",
    "cvt_f16x2_e2m3x2", "cvt_f16x2_e3m2x2", "cvt_f16x2_e4m3x2", "cvt_f16x2_e5m2x2",
    "cvt_f16x2_f32", "cvt_f16x2_f32_rs", "cvt_f32_bf16", "cvt_f32_f16", "cvt_int32_f32",
    "cvt_int64_f32", "cvt_pack_sat", "cvt_s2f6x2_bf16x2", "cvt_s2f6x2_f32", "cvt_s32_bf16",
    "cvt_tf32_f32", "cvt_ue8m0x2_bf16x2", "cvt_ue8m0x2_f32", "pack_b16x2", "pack_f32x2",
    "unpack_b16x2", "unpack_f32x2",
]  # fmt: skip

SECTION = "9.7.9.22 Data Movement and Conversion Instructions: cvt"
MOV = "9.7.9.3 Data Movement and Conversion Instructions: mov"
Flag = Literal[False, True]
NearestOrZero = Literal["rn", "rz"]


def _isa16(v: Variant) -> tuple[int, int]:
    return (8, 1) if v.satfinite else (7, 0)


@ptx(
    "cvt.{rounding}{.relu}{.satfinite}.bf16x2.f32 {ret}, {hi}, {lo};",
    isa=_isa16,
    arch="sm_80",
    effects="pure",
    section=SECTION,
)
def cvt_bf16x2_f32(
    hi: F32, lo: F32, *, rounding: NearestOrZero = "rn", relu: Flag = False, satfinite: Flag = False
) -> U32:
    """Round two float32 to a pair of bfloat16.

    Args:
        hi: value for the upper 16 bits.
        lo: value for the lower 16 bits.
        rounding: to nearest even, or towards zero.
        relu: negative values become 0.
        satfinite: clamp to the largest finite value instead of infinity.
    """
    ...


@ptx(
    "cvt.{rounding}{.relu}{.satfinite}.f16x2.f32 {ret}, {hi}, {lo};",
    isa=_isa16,
    arch="sm_80",
    effects="pure",
    section=SECTION,
)
def cvt_f16x2_f32(
    hi: F32, lo: F32, *, rounding: NearestOrZero = "rn", relu: Flag = False, satfinite: Flag = False
) -> U32:
    """Round two float32 to a pair of float16.

    Args:
        hi: value for the upper 16 bits.
        lo: value for the lower 16 bits.
        rounding: to nearest even, or towards zero.
        relu: negative values become 0.
        satfinite: clamp to 65504 instead of infinity.
    """
    ...


@ptx(
    "cvt.{rounding}{.relu}{.satfinite}.bf16.f32 {ret}, {value};",
    isa=_isa16,
    arch="sm_80",
    effects="pure",
    section=SECTION,
)
def cvt_bf16_f32(
    value: F32, *, rounding: NearestOrZero = "rn", relu: Flag = False, satfinite: Flag = False
) -> U16:
    """Round a float32 to the 16 bits of a bfloat16."""
    ...


@ptx(
    "cvt.{rounding}{.relu}{.satfinite}.f16.f32 {ret}, {value};",
    isa=_isa16,
    arch="sm_80",
    effects="pure",
    section=SECTION,
)
def cvt_f16_f32(
    value: F32, *, rounding: NearestOrZero = "rn", relu: Flag = False, satfinite: Flag = False
) -> U16:
    """Round a float32 to the 16 bits of a float16."""
    ...


@ptx("cvt{.ftz}.f32.f16 {ret}, {value};", isa=(7, 0), arch="sm_80", effects="pure", section=SECTION)
def cvt_f32_f16(value: U16, *, ftz: Flag = False) -> F32:
    """Widen the 16 bits of a float16 to float32; ``ftz`` flushes subnormals to 0."""
    ...


@ptx(
    "cvt{.ftz}.f32.bf16 {ret}, {value};",
    isa=lambda v: (7, 8) if v.ftz else (7, 1),
    arch=lambda v: "sm_90" if v.ftz else "sm_80",
    effects="pure",
    section=SECTION,
)
def cvt_f32_bf16(value: U16, *, ftz: Flag = False) -> F32:
    """Widen the 16 bits of a bfloat16 to float32; ``ftz`` flushes subnormals to 0."""
    ...


def _tf32_isa(v: Variant) -> tuple[int, int]:
    if v.rounding == "rna":
        return (8, 1) if v.satfinite else (7, 0)
    return (8, 6) if v.satfinite else (7, 8)


def _tf32_arch(v: Variant) -> Requirement:
    if v.rounding == "rna":
        return "sm_80"
    return "sm_100" if v.satfinite else "sm_90"


def _tf32_check(v: Variant) -> str | None:
    if v.rounding == "rna" and v.relu:
        return "relu=True with rounding='rna': relu goes with rounding='rn' or 'rz'"
    return None


@ptx(
    "cvt.{rounding}{.satfinite}{.relu}.tf32.f32 {ret}, {value};",
    isa=_tf32_isa,
    arch=_tf32_arch,
    effects="pure",
    check=_tf32_check,
    section=SECTION,
)
def cvt_tf32_f32(
    value: F32,
    *,
    rounding: Literal["rna", "rn", "rz"] = "rn",
    relu: Flag = False,
    satfinite: Flag = False,
) -> U32:
    """Round a float32 to tf32: a float32 bit pattern whose low 13 bits are 0.

    Args:
        value: the number.
        rounding: to nearest, ties away from zero (``rna``, four instructions of machine code) or
            to even (``rn``, one), or towards zero.
        relu: negative values become 0; not with ``rna``.
        satfinite: clamp to the largest finite value; with ``rn`` and ``rz`` from sm_100 on.
    """
    ...


@ptx(
    "cvt.rn.satfinite{.relu}.e4m3x2.f32 {ret}, {hi}, {lo};",
    isa=(7, 8),
    arch="sm_90",
    effects="pure",
    section=SECTION,
)
def cvt_e4m3x2_f32(hi: F32, lo: F32, *, relu: Flag = False) -> U16:
    """Round two float32 to a pair of e4m3, clamped to +-448; ``hi`` in the upper byte."""
    ...


@ptx(
    "cvt.rn.satfinite{.relu}.e5m2x2.f32 {ret}, {hi}, {lo};",
    isa=(7, 8),
    arch="sm_90",
    effects="pure",
    section=SECTION,
)
def cvt_e5m2x2_f32(hi: F32, lo: F32, *, relu: Flag = False) -> U16:
    """Round two float32 to a pair of e5m2, clamped to +-57344; ``hi`` in the upper byte."""
    ...


@ptx(
    "cvt.rn.satfinite{.relu}.e4m3x2.f16x2 {ret}, {value};",
    isa=(7, 8),
    arch="sm_90",
    effects="pure",
    section=SECTION,
)
def cvt_e4m3x2_f16x2(value: U32, *, relu: Flag = False) -> U16:
    """Round a pair of float16 to a pair of e4m3, clamped to +-448."""
    ...


@ptx(
    "cvt.rn.satfinite{.relu}.e5m2x2.f16x2 {ret}, {value};",
    isa=(7, 8),
    arch="sm_90",
    effects="pure",
    section=SECTION,
)
def cvt_e5m2x2_f16x2(value: U32, *, relu: Flag = False) -> U16:
    """Round a pair of float16 to a pair of e5m2, clamped to +-57344."""
    ...


@ptx(
    "cvt.rn{.relu}.f16x2.e4m3x2 {ret}, {value};",
    isa=(7, 8),
    arch="sm_90",
    effects="pure",
    section=SECTION,
)
def cvt_f16x2_e4m3x2(value: U16, *, relu: Flag = False) -> U32:
    """Widen a pair of e4m3 to a pair of float16, exactly."""
    ...


@ptx(
    "cvt.rn{.relu}.f16x2.e5m2x2 {ret}, {value};",
    isa=(7, 8),
    arch="sm_90",
    effects="pure",
    section=SECTION,
)
def cvt_f16x2_e5m2x2(value: U16, *, relu: Flag = False) -> U32:
    """Widen a pair of e5m2 to a pair of float16, exactly."""
    ...


@ptx(
    "cvt.rn.satfinite{.relu}.e4m3x2.bf16x2 {ret}, {value};",
    isa=(9, 1),
    arch=TCGEN05,
    effects="pure",
    section=SECTION,
)
def cvt_e4m3x2_bf16x2(value: U32, *, relu: Flag = False) -> U16:
    """Round a pair of bfloat16 to a pair of e4m3, clamped to +-448."""
    ...


@ptx(
    "cvt.rn.satfinite{.relu}.e5m2x2.bf16x2 {ret}, {value};",
    isa=(9, 1),
    arch=TCGEN05,
    effects="pure",
    section=SECTION,
)
def cvt_e5m2x2_bf16x2(value: U32, *, relu: Flag = False) -> U16:
    """Round a pair of bfloat16 to a pair of e5m2, clamped to +-57344."""
    ...


@ptx(
    "cvt.rn{.relu}{.satfinite}{?scale:.scaled::n2::ue8m0}.bf16x2.e4m3x2 {ret}, {value}{, scale};",
    isa=(9, 2),
    arch=TCGEN05,
    effects="pure",
    section=SECTION,
)
def cvt_bf16x2_e4m3x2(
    value: U16, scale: U16 | None = None, *, relu: Flag = False, satfinite: Flag = False
) -> U32:
    """Widen a pair of e4m3 to a pair of bfloat16, multiplied by a pair of ue8m0 if given."""
    ...


@ptx(
    "cvt.rn{.relu}{.satfinite}{?scale:.scaled::n2::ue8m0}.bf16x2.e5m2x2 {ret}, {value}{, scale};",
    isa=(9, 2),
    arch=TCGEN05,
    effects="pure",
    section=SECTION,
)
def cvt_bf16x2_e5m2x2(
    value: U16, scale: U16 | None = None, *, relu: Flag = False, satfinite: Flag = False
) -> U32:
    """Widen a pair of e5m2 to a pair of bfloat16, multiplied by a pair of ue8m0 if given."""
    ...


@ptx("cvt.rn.bf16.s32 {ret}, {value};", isa=(7, 8), arch="sm_90", effects="pure", section=SECTION)
def cvt_bf16_s32(value: U32) -> U16:
    """Round an int32 to the 16 bits of a bfloat16."""
    ...


@ptx("cvt.rn.bf16.f16 {ret}, {value};", isa=(7, 8), arch="sm_90", effects="pure", section=SECTION)
def cvt_bf16_f16(value: U16) -> U16:
    """Round the 16 bits of a float16 to those of a bfloat16."""
    ...


@ptx("cvt.rzi.s32.bf16 {ret}, {value};", isa=(7, 8), arch="sm_90", effects="pure", section=SECTION)
def cvt_s32_bf16(value: U16) -> S32:
    """Truncate the 16 bits of a bfloat16 to an int32."""
    ...


def _integer_kind(v: Variant) -> Kind:
    return {"s64": S64_KIND, "u64": U64_KIND}.get(v.type) or (
        S32_KIND if v.type[0] == "s" else U32_KIND
    )


Integer = Annotated[int, chosen(_integer_kind)]
IntegerRounding = Literal["rni", "rzi", "rmi", "rpi"]


@ptx(
    "cvt.{rounding}{.sat}.{type}.f32 {ret}, {value};",
    isa=(7, 0),
    arch="sm_80",
    effects="pure",
    section=SECTION,
)
def cvt_int32_f32(
    value: F32,
    *,
    type: Literal["s8", "u8", "s16", "u16", "s32", "u32"],
    rounding: IntegerRounding = "rni",
    sat: Flag = False,
) -> Integer:
    """Round a float32 to an integer of at most 32 bits, in a 32-bit register.

    Args:
        value: the number; values out of range give the nearest integer of ``type``, NaN gives 0.
        type: integer type; narrow ones are extended to 32 bits.
        rounding: to nearest even (``rni``), towards zero (``rzi``), down (``rmi``), up (``rpi``).
        sat: written out, for types below 32 bits that do not saturate by themselves.
    """
    ...


@ptx(
    "cvt.{rounding}.{type}.f32 {ret}, {value};",
    isa=(7, 0),
    arch="sm_80",
    effects="pure",
    section=SECTION,
)
def cvt_int64_f32(
    value: F32, *, type: Literal["s64", "u64"], rounding: IntegerRounding = "rni"
) -> Integer:
    """Round a float32 to a 64-bit integer; NaN gives 2**63."""
    ...


@ptx(
    "cvt.pack.sat.{type}.s32.b32 {ret}, {hi}, {lo}, {rest};",
    isa=(7, 0),
    arch="sm_80",
    effects="pure",
    section="9.7.9.23 Data Movement and Conversion Instructions: cvt.pack",
)
def cvt_pack_sat(hi: U32, lo: U32, rest: U32, *, type: Literal["s8", "u8"]) -> U32:
    """Clamp two int32 to 8 bits and push them below another register's low half.

    Args:
        hi: int32 for bits 8-15.
        lo: int32 for bits 0-7.
        rest: its low 16 bits become bits 16-31; two calls pack four integers.
        type: 8-bit type.
    """
    ...


@ptx("mov.b32 {ret}, {{{lo}, {hi}}};", isa=(7, 0), arch="sm_80", effects="pure", section=MOV)
def pack_b16x2(lo: U16, hi: U16) -> U32:
    """Put two 16-bit values into one 32-bit register."""
    ...


@ptx("mov.b32 {{{ret0}, {ret1}}}, {value};", isa=(7, 0), arch="sm_80", effects="pure", section=MOV)
def unpack_b16x2(value: U32) -> tuple[U16, U16]:
    """Return the lower and the upper 16 bits of a register."""
    ...


@ptx("mov.b64 {ret}, {{{lo}, {hi}}};", isa=(7, 0), arch="sm_80", effects="pure", section=MOV)
def pack_f32x2(lo: F32, hi: F32) -> U64:
    """Put two float32 into one 64-bit register, as packed arithmetic takes them."""
    ...


@ptx("mov.b64 {{{ret0}, {ret1}}}, {value};", isa=(7, 0), arch="sm_80", effects="pure", section=MOV)
def unpack_f32x2(value: U64) -> tuple[F32, F32]:
    """Return the lower and the upper float32 of a 64-bit register."""
    ...
