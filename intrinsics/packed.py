"""Packed and approximate arithmetic: two elements an instruction, one register.

``f16x2`` and ``bf16x2`` values are uint32, ``f32x2`` values uint64 (:func:`pack_f32x2` of
``nbtc.intrinsics.convert``); element 0 is the low half. Integer pairs are uint32. Each thread
executes on its own.

Rounding ``""`` is to nearest even, and lets the assembler fuse a multiplication with a following
addition; ``"rn"`` forbids that. ``ftz`` flushes subnormals to 0, ``sat`` clamps to 0..1, ``relu``
clamps negative results to 0. ``min`` and ``max`` return the operand that is not NaN; with ``NaN``
a NaN operand gives NaN. ``sign="xorsign.abs"`` compares magnitudes and gives the product's sign.

Not covered: minimum, negation and absolute value of ``f32x2``, which PTX does not have; what
Numba's own operators compile to (scalar float32 and integer arithmetic).
"""

from __future__ import annotations

from typing import Literal

from nbtc.ptx.kinds import F32, U16, U32, U64, Pred
from nbtc.ptx.spec import Variant, ptx

FLOAT = "9.7.3 Floating Point Instructions"
HALF = "9.7.4 Half Precision Floating Point Instructions"
MIXED = "9.7.5 Mixed Precision Floating Point Instructions"
INTEGER = "9.7.1 Integer Arithmetic Instructions"
COMPARE = "9.7.7 Half Precision Comparison Instructions"
Flag = Literal[False, True]
Rounding = Literal["", "rn", "rz", "rm", "rp"]
Nearest = Literal["", "rn"]
Comparison = Literal[
    "eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"
]


Sign = Literal["", "xorsign.abs"]


def _xorsign_isa(v: Variant) -> tuple[int, int]:
    return (7, 8) if v.sign else (7, 0)


def _xorsign_arch(v: Variant) -> str:
    return "sm_89" if v.sign else "sm_80"


def _not_both(v: Variant) -> str | None:
    if v.sat and v.relu:
        return "sat=True with relu=True: sat already clamps to 0..1; give one"
    return None


@ptx(
    "add{.rounding}{.ftz}.f32x2 {ret}, {a}, {b};",
    isa=(8, 6),
    arch="sm_100",
    effects="pure",
    section=FLOAT,
)
def add_f32x2(a: U64, b: U64, *, rounding: Rounding = "", ftz: Flag = False) -> U64:
    """Add two pairs of float32."""
    ...


@ptx(
    "sub{.rounding}{.ftz}.f32x2 {ret}, {a}, {b};",
    isa=(8, 6),
    arch="sm_100",
    effects="pure",
    section=FLOAT,
)
def sub_f32x2(a: U64, b: U64, *, rounding: Rounding = "", ftz: Flag = False) -> U64:
    """Subtract two pairs of float32."""
    ...


@ptx(
    "mul{.rounding}{.ftz}.f32x2 {ret}, {a}, {b};",
    isa=(8, 6),
    arch="sm_100",
    effects="pure",
    section=FLOAT,
)
def mul_f32x2(a: U64, b: U64, *, rounding: Rounding = "", ftz: Flag = False) -> U64:
    """Multiply two pairs of float32."""
    ...


@ptx(
    "fma.{rounding}{.ftz}.f32x2 {ret}, {a}, {b}, {c};",
    isa=(8, 6),
    arch="sm_100",
    effects="pure",
    section=FLOAT,
)
def fma_f32x2(
    a: U64, b: U64, c: U64, *, rounding: Literal["rn", "rz", "rm", "rp"] = "rn", ftz: Flag = False
) -> U64:
    """Compute a * b + c on pairs of float32, rounded once."""
    ...


@ptx(
    "add{.rounding}{.ftz}{.sat}.f16x2 {ret}, {a}, {b};",
    isa=(7, 0),
    arch="sm_80",
    effects="pure",
    section=HALF,
)
def add_f16x2(
    a: U32, b: U32, *, rounding: Nearest = "", ftz: Flag = False, sat: Flag = False
) -> U32:
    """Add two pairs of float16."""
    ...


@ptx(
    "add{.rounding}.bf16x2 {ret}, {a}, {b};", isa=(7, 8), arch="sm_90", effects="pure", section=HALF
)
def add_bf16x2(a: U32, b: U32, *, rounding: Nearest = "") -> U32:
    """Add two pairs of bfloat16."""
    ...


@ptx(
    "sub{.rounding}{.ftz}{.sat}.f16x2 {ret}, {a}, {b};",
    isa=(7, 0),
    arch="sm_80",
    effects="pure",
    section=HALF,
)
def sub_f16x2(
    a: U32, b: U32, *, rounding: Nearest = "", ftz: Flag = False, sat: Flag = False
) -> U32:
    """Subtract two pairs of float16."""
    ...


@ptx(
    "sub{.rounding}.bf16x2 {ret}, {a}, {b};", isa=(7, 8), arch="sm_90", effects="pure", section=HALF
)
def sub_bf16x2(a: U32, b: U32, *, rounding: Nearest = "") -> U32:
    """Subtract two pairs of bfloat16."""
    ...


@ptx(
    "mul{.rounding}{.ftz}{.sat}.f16x2 {ret}, {a}, {b};",
    isa=(7, 0),
    arch="sm_80",
    effects="pure",
    section=HALF,
)
def mul_f16x2(
    a: U32, b: U32, *, rounding: Nearest = "", ftz: Flag = False, sat: Flag = False
) -> U32:
    """Multiply two pairs of float16."""
    ...


@ptx(
    "mul{.rounding}.bf16x2 {ret}, {a}, {b};", isa=(7, 8), arch="sm_90", effects="pure", section=HALF
)
def mul_bf16x2(a: U32, b: U32, *, rounding: Nearest = "") -> U32:
    """Multiply two pairs of bfloat16."""
    ...


@ptx(
    "fma.rn{.ftz}{.sat}{.relu}.f16x2 {ret}, {a}, {b}, {c};",
    isa=(7, 0),
    arch="sm_80",
    effects="pure",
    check=_not_both,
    section=HALF,
)
def fma_f16x2(
    a: U32, b: U32, c: U32, *, ftz: Flag = False, sat: Flag = False, relu: Flag = False
) -> U32:
    """Compute a * b + c on pairs of float16, rounded once; ``sat`` or ``relu``, not both."""
    ...


@ptx(
    "fma.rn{.relu}.bf16x2 {ret}, {a}, {b}, {c};",
    isa=(7, 0),
    arch="sm_80",
    effects="pure",
    section=HALF,
)
def fma_bf16x2(a: U32, b: U32, c: U32, *, relu: Flag = False) -> U32:
    """Compute a * b + c on pairs of bfloat16, rounded once."""
    ...


@ptx(
    "fma.rn.oob{.relu}.{type} {ret}, {a}, {b}, {c};",
    isa=(8, 1),
    arch="sm_90",
    effects="pure",
    section=HALF,
)
def fma_oob(a: U32, b: U32, c: U32, *, type: Literal["f16x2", "bf16x2"], relu: Flag = False) -> U32:
    """Compute a * b + c; an operand that is the out-of-bounds NaN of a tensor map gives 0."""
    ...


@ptx("neg{.ftz}.f16x2 {ret}, {a};", isa=(7, 0), arch="sm_80", effects="pure", section=HALF)
def neg_f16x2(a: U32, *, ftz: Flag = False) -> U32:
    """Negate a pair of float16."""
    ...


@ptx("neg.bf16x2 {ret}, {a};", isa=(7, 0), arch="sm_80", effects="pure", section=HALF)
def neg_bf16x2(a: U32) -> U32:
    """Negate a pair of bfloat16."""
    ...


@ptx("abs{.ftz}.f16x2 {ret}, {a};", isa=(7, 0), arch="sm_80", effects="pure", section=HALF)
def abs_f16x2(a: U32, *, ftz: Flag = False) -> U32:
    """Take the absolute value of a pair of float16."""
    ...


@ptx("abs.bf16x2 {ret}, {a};", isa=(7, 0), arch="sm_80", effects="pure", section=HALF)
def abs_bf16x2(a: U32) -> U32:
    """Take the absolute value of a pair of bfloat16."""
    ...


@ptx(
    "min{.ftz}{.NaN}{.sign}.f16x2 {ret}, {a}, {b};",
    isa=_xorsign_isa,
    arch=_xorsign_arch,
    effects="pure",
    section=HALF,
)
def min_f16x2(a: U32, b: U32, *, ftz: Flag = False, NaN: Flag = False, sign: Sign = "") -> U32:
    """Return the smaller of each of two pairs of float16."""
    ...


@ptx(
    "min{.NaN}{.sign}.bf16x2 {ret}, {a}, {b};",
    isa=_xorsign_isa,
    arch=_xorsign_arch,
    effects="pure",
    section=HALF,
)
def min_bf16x2(a: U32, b: U32, *, NaN: Flag = False, sign: Sign = "") -> U32:
    """Return the smaller of each of two pairs of bfloat16."""
    ...


@ptx(
    "max{.ftz}{.NaN}{.sign}.f16x2 {ret}, {a}, {b};",
    isa=_xorsign_isa,
    arch=_xorsign_arch,
    effects="pure",
    section=HALF,
)
def max_f16x2(a: U32, b: U32, *, ftz: Flag = False, NaN: Flag = False, sign: Sign = "") -> U32:
    """Return the larger of each of two pairs of float16."""
    ...


@ptx(
    "max{.NaN}{.sign}.bf16x2 {ret}, {a}, {b};",
    isa=_xorsign_isa,
    arch=_xorsign_arch,
    effects="pure",
    section=HALF,
)
def max_bf16x2(a: U32, b: U32, *, NaN: Flag = False, sign: Sign = "") -> U32:
    """Return the larger of each of two pairs of bfloat16."""
    ...


@ptx(
    "min{.ftz}{.NaN}{.abs}.f32 {ret}, {a}, {b}, {c};",
    isa=(8, 8),
    arch="sm_100",
    effects="pure",
    section=FLOAT,
)
def min3_f32(
    a: F32, b: F32, c: F32, *, ftz: Flag = False, NaN: Flag = False, abs: Flag = False
) -> F32:
    """Return the smallest of three float32, or of their absolute values."""
    ...


@ptx(
    "max{.ftz}{.NaN}{.abs}.f32 {ret}, {a}, {b}, {c};",
    isa=(8, 8),
    arch="sm_100",
    effects="pure",
    section=FLOAT,
)
def max3_f32(
    a: F32, b: F32, c: F32, *, ftz: Flag = False, NaN: Flag = False, abs: Flag = False
) -> F32:
    """Return the largest of three float32, or of their absolute values."""
    ...


@ptx(
    "add{.rounding}{.sat}.f32.{type} {ret}, {a}, {b};",
    isa=(8, 6),
    arch="sm_100",
    effects="pure",
    section=MIXED,
)
def add_f32_mixed(
    a: U16, b: F32, *, type: Literal["f16", "bf16"], rounding: Rounding = "", sat: Flag = False
) -> F32:
    """Add the narrow ``a`` to a float32, in float32."""
    ...


@ptx(
    "sub{.rounding}{.sat}.f32.{type} {ret}, {a}, {b};",
    isa=(8, 6),
    arch="sm_100",
    effects="pure",
    section=MIXED,
)
def sub_f32_mixed(
    a: U16, b: F32, *, type: Literal["f16", "bf16"], rounding: Rounding = "", sat: Flag = False
) -> F32:
    """Subtract a float32 from the narrow ``a``, in float32."""
    ...


@ptx(
    "fma.rn{.sat}.f32.{type} {ret}, {a}, {b}, {c};",
    isa=(8, 6),
    arch="sm_100",
    effects="pure",
    section=MIXED,
)
def fma_f32_mixed(
    a: U16, b: U16, c: F32, *, type: Literal["f16", "bf16"], sat: Flag = False
) -> F32:
    """Compute a * b + c in float32 from 16-bit ``a`` and ``b``."""
    ...


@ptx(
    "set.{comparison}{.ftz}.f16x2.f16x2 {ret}, {a}, {b};",
    isa=(7, 0),
    arch="sm_80",
    effects="pure",
    section=COMPARE,
)
def set_f16x2(a: U32, b: U32, *, comparison: Comparison, ftz: Flag = False) -> U32:
    """Compare pairs of float16: 1.0 where true, 0.0 where false."""
    ...


@ptx(
    "set.{comparison}.bf16x2.bf16x2 {ret}, {a}, {b};",
    isa=(7, 8),
    arch="sm_90",
    effects="pure",
    section=COMPARE,
)
def set_bf16x2(a: U32, b: U32, *, comparison: Comparison) -> U32:
    """Compare pairs of bfloat16: 1.0 where true, 0.0 where false."""
    ...


@ptx(
    "setp.{comparison}{.ftz}.f16x2 {ret0}|{ret1}, {a}, {b};",
    isa=(7, 0),
    arch="sm_80",
    effects="pure",
    section=COMPARE,
)
def setp_f16x2(a: U32, b: U32, *, comparison: Comparison, ftz: Flag = False) -> tuple[Pred, Pred]:
    """Compare pairs of float16; return the result of the low and of the high element."""
    ...


@ptx(
    "setp.{comparison}.bf16x2 {ret0}|{ret1}, {a}, {b};",
    isa=(7, 8),
    arch="sm_90",
    effects="pure",
    section=COMPARE,
)
def setp_bf16x2(a: U32, b: U32, *, comparison: Comparison) -> tuple[Pred, Pred]:
    """Compare pairs of bfloat16; return the result of the low and of the high element."""
    ...


@ptx("{op}.{type} {ret}, {a}, {b};", isa=(8, 0), arch="sm_90", effects="pure", section=INTEGER)
def integer16x2(
    a: U32, b: U32, *, op: Literal["add", "min", "max"], type: Literal["s16x2", "u16x2"]
) -> U32:
    """Add, or take the minimum or maximum of, two pairs of 16-bit integers."""
    ...


@ptx("{op}.relu.{type} {ret}, {a}, {b};", isa=(8, 0), arch="sm_90", effects="pure", section=INTEGER)
def integer_relu(
    a: U32, b: U32, *, op: Literal["min", "max"], type: Literal["s32", "s16x2"]
) -> U32:
    """Take the minimum or maximum, then clamp negative results to 0."""
    ...


@ptx("tanh.approx.f32 {ret}, {a};", isa=(7, 0), arch="sm_80", effects="pure", section=FLOAT)
def tanh_f32(a: F32) -> F32:
    """Approximate tanh; relative error at most 2**-11."""
    ...


@ptx("tanh.approx.f16x2 {ret}, {a};", isa=(7, 0), arch="sm_80", effects="pure", section=HALF)
def tanh_f16x2(a: U32) -> U32:
    """Approximate tanh of a pair of float16; absolute error at most 2**-10.987."""
    ...


@ptx("tanh.approx.bf16x2 {ret}, {a};", isa=(7, 8), arch="sm_90", effects="pure", section=HALF)
def tanh_bf16x2(a: U32) -> U32:
    """Approximate tanh of a pair of bfloat16; absolute error at most 2**-8."""
    ...


@ptx("tanh.approx.f16 {ret}, {a};", isa=(7, 0), arch="sm_80", effects="pure", section=HALF)
def tanh_f16(a: U16) -> U16:
    """Approximate tanh of a float16."""
    ...


@ptx("tanh.approx.bf16 {ret}, {a};", isa=(7, 8), arch="sm_90", effects="pure", section=HALF)
def tanh_bf16(a: U16) -> U16:
    """Approximate tanh of a bfloat16."""
    ...


@ptx("ex2.approx{.ftz}.f32 {ret}, {a};", isa=(7, 0), arch="sm_80", effects="pure", section=FLOAT)
def ex2_f32(a: F32, *, ftz: Flag = True) -> F32:
    """Approximate 2**a, at most 2 ulp off; without ``ftz`` five instructions of machine code."""
    ...


@ptx("ex2.approx.f16x2 {ret}, {a};", isa=(7, 0), arch="sm_80", effects="pure", section=HALF)
def ex2_f16x2(a: U32) -> U32:
    """Approximate 2**a of a pair of float16; relative error at most 2**-9.9."""
    ...


@ptx("ex2.approx.ftz.bf16x2 {ret}, {a};", isa=(7, 8), arch="sm_90", effects="pure", section=HALF)
def ex2_bf16x2(a: U32) -> U32:
    """Approximate 2**a of a pair of bfloat16; relative error at most 2**-7."""
    ...


@ptx("ex2.approx.f16 {ret}, {a};", isa=(7, 0), arch="sm_80", effects="pure", section=HALF)
def ex2_f16(a: U16) -> U16:
    """Approximate 2**a of a float16."""
    ...


@ptx("ex2.approx.ftz.bf16 {ret}, {a};", isa=(7, 8), arch="sm_90", effects="pure", section=HALF)
def ex2_bf16(a: U16) -> U16:
    """Approximate 2**a of a bfloat16."""
    ...


@ptx("lg2.approx{.ftz}.f32 {ret}, {a};", isa=(7, 0), arch="sm_80", effects="pure", section=FLOAT)
def lg2_f32(a: F32, *, ftz: Flag = False) -> F32:
    """Approximate the base-2 logarithm of a float32."""
    ...


@ptx("rcp.approx{.ftz}.f32 {ret}, {a};", isa=(7, 0), arch="sm_80", effects="pure", section=FLOAT)
def rcp_f32(a: F32, *, ftz: Flag = False) -> F32:
    """Approximate 1 / a in float32."""
    ...


@ptx("rsqrt.approx{.ftz}.f32 {ret}, {a};", isa=(7, 0), arch="sm_80", effects="pure", section=FLOAT)
def rsqrt_f32(a: F32, *, ftz: Flag = False) -> F32:
    """Approximate 1 / sqrt(a) in float32."""
    ...


@ptx("sqrt.approx{.ftz}.f32 {ret}, {a};", isa=(7, 0), arch="sm_80", effects="pure", section=FLOAT)
def sqrt_f32(a: F32, *, ftz: Flag = False) -> F32:
    """Approximate the square root of a float32."""
    ...
