"""mma.sync: warp matrix multiply with every operand in registers (Ampere style).

All 32 lanes of a warp execute each function together; it returns when D is there. A is row-major,
B column-major. With ``g = lane // 4``, ``t = lane % 4`` and E elements a register:

===========  =====================================================================
A            row ``g + 8 * (R & 1)``, k ``E * t + e + 4 * E * (R >> 1)``
B            k ``E * t + e + 4 * E * R``, column ``g``
C, D 32-bit  row ``g + 8 * (R >> 1)``, column ``2 * t + (R & 1)``
C, D f16     row ``g + 8 * R``, column ``2 * t + e``
===========  =====================================================================

for element e of register R. :func:`nbtc.intrinsics.matrix.ldmatrix` loads A and B in this layout.

On Hopper and data-centre Blackwell 8-bit floats are widened to float16 first, so fp8 brings no
speed over f16; 4-bit integers (and, on Blackwell, bits) are emulated in software. Use wgmma or
tcgen05 for speed. Sparse forms are in ``nbtc.intrinsics.mma_sparse`` and re-exported here.

Not covered: 6- and 4-bit floats and ``block_scale``, which exist only on consumer Blackwell
(sm_120a), not a target of nbtc; ``kind::f8f6f4`` of e4m3 and e5m2, the same as :func:`fp8`; the
m8n8 shapes of Volta and Turing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from nbtc.intrinsics.mma_sparse import sp_bf16, sp_f16, sp_fp8, sp_int4, sp_int8, sp_tf32
from nbtc.ptx.kinds import F32_KIND, F64_KIND, S32_KIND, U32_KIND, Kind, Regs
from nbtc.ptx.spec import Variant, ptx

__all__ = [
    "b1",
    "bf16",
    "f16",
    "f64",
    "f64_m8n8k4",
    "fp8",
    "int4",
    "int8",
    "sp_bf16",
    "sp_f16",
    "sp_fp8",
    "sp_int4",
    "sp_int8",
    "sp_tf32",
    "tf32",
]

SECTION = "9.7.14.5 Warp-level matrix instructions: mma"
MMA = "mma.sync.aligned.m16n8k{k}.row.col"
Flag = Literal[False, True]


def _d_kind(v: Variant) -> Kind:
    return F32_KIND if v.d_type == "f32" else U32_KIND


def _d_count(v: Variant) -> int:
    return 4 if v.d_type == "f32" else 2


def _count(k_per_b_register: int, factor: int) -> Callable[[Variant], int]:
    def count(v: Variant) -> int:
        return factor * v.k // k_per_b_register

    return count


DFloat = Annotated[tuple[float, float, float, float], Regs(F32_KIND, 4)]
DEither = Annotated[
    tuple[float, ...], Regs(_d_kind, _d_count, note="4 float32, or 2 uint32 for d_type='f16'")
]
DInteger = Annotated[tuple[int, int, int, int], Regs(S32_KIND, 4)]
A32 = Annotated[tuple[int, ...], Regs(U32_KIND, _count(4, 2), note="k / 2")]
B32 = Annotated[tuple[int, ...], Regs(U32_KIND, _count(4, 1), note="k / 4")]
A16 = Annotated[tuple[int, ...], Regs(U32_KIND, _count(8, 2), note="k / 4")]
B16 = Annotated[tuple[int, ...], Regs(U32_KIND, _count(8, 1), note="k / 8")]
A8 = Annotated[tuple[int, ...], Regs(U32_KIND, _count(16, 2), note="k / 8")]
B8 = Annotated[tuple[int, ...], Regs(U32_KIND, _count(16, 1), note="k / 16")]
A4 = Annotated[tuple[int, ...], Regs(U32_KIND, _count(32, 2), note="k / 16")]
B4 = Annotated[tuple[int, ...], Regs(U32_KIND, _count(32, 1), note="k / 32")]
A1 = Annotated[tuple[int, ...], Regs(U32_KIND, _count(128, 2), note="k / 64")]
B1 = Annotated[tuple[int, ...], Regs(U32_KIND, _count(128, 1), note="k / 128")]
A64 = Annotated[tuple[float, ...], Regs(F64_KIND, _count(4, 2), note="k / 2")]
B64 = Annotated[tuple[float, ...], Regs(F64_KIND, _count(4, 1), note="k / 4")]
D64 = Annotated[tuple[float, float, float, float], Regs(F64_KIND, 4)]


@ptx(
    MMA + ".{d_type}.f16.f16.{d_type} {ret}, {a}, {b}, {c};",
    isa=(7, 0),
    arch="sm_80",
    effects="volatile convergent",
    section=SECTION,
)
def f16(
    a: A16,
    b: B16,
    c: DEither,
    *,
    k: Literal[16, 8] = 16,
    d_type: Literal["f32", "f16"] = "f32",
) -> DEither:
    """Compute D = A * B + C, f16, 16 x 8 x k.

    Args:
        a: fragment of A, 16 x k.
        b: fragment of B, k x 8.
        c: fragment of C, 16 x 8; may be the previous D.
        k: inner dimension.
        d_type: type of C and D.
    """
    ...


@ptx(
    MMA + ".f32.bf16.bf16.f32 {ret}, {a}, {b}, {c};",
    isa=(7, 0),
    arch="sm_80",
    effects="volatile convergent",
    section=SECTION,
)
def bf16(a: A16, b: B16, c: DFloat, *, k: Literal[16, 8] = 16) -> DFloat:
    """Compute D = A * B + C, bf16 into float32, 16 x 8 x k.

    Args:
        a: fragment of A, 16 x k.
        b: fragment of B, k x 8.
        c: fragment of C, 16 x 8; may be the previous D.
        k: inner dimension.
    """
    ...


@ptx(
    MMA + ".f32.tf32.tf32.f32 {ret}, {a}, {b}, {c};",
    isa=(7, 0),
    arch="sm_80",
    effects="volatile convergent",
    section=SECTION,
)
def tf32(a: A32, b: B32, c: DFloat, *, k: Literal[8, 4] = 8) -> DFloat:
    """Compute D = A * B + C, tf32 into float32, 16 x 8 x k; A and B are uint32 bit patterns.

    Args:
        a: fragment of A, 16 x k.
        b: fragment of B, k x 8.
        c: fragment of C, 16 x 8; may be the previous D.
        k: inner dimension.
    """
    ...


@ptx(
    MMA + "{.satfinite}.s32.{a_type}.{b_type}.s32 {ret}, {a}, {b}, {c};",
    isa=(7, 0),
    arch="sm_80",
    effects="volatile convergent",
    section=SECTION,
)
def int8(
    a: A8,
    b: B8,
    c: DInteger,
    *,
    k: Literal[32, 16] = 32,
    a_type: Literal["s8", "u8"],
    b_type: Literal["s8", "u8"],
    satfinite: Flag = False,
) -> DInteger:
    """Compute D = A * B + C, 8-bit integers into int32, 16 x 8 x k.

    Args:
        a: fragment of A, 16 x k.
        b: fragment of B, k x 8.
        c: fragment of C, 16 x 8; may be the previous D.
        k: inner dimension.
        a_type: element type of A.
        b_type: element type of B; may differ.
        satfinite: clamp instead of wrapping on overflow.
    """
    ...


@ptx(
    MMA + "{.satfinite}.s32.{a_type}.{b_type}.s32 {ret}, {a}, {b}, {c};",
    isa=(7, 0),
    arch="sm_80",
    effects="volatile convergent",
    section=SECTION,
)
def int4(
    a: A4,
    b: B4,
    c: DInteger,
    *,
    k: Literal[64, 32] = 64,
    a_type: Literal["s4", "u4"],
    b_type: Literal["s4", "u4"],
    satfinite: Flag = False,
) -> DInteger:
    """Compute D = A * B + C, 4-bit integers into int32, 16 x 8 x k; slow on Hopper and later.

    Args:
        a: fragment of A, 16 x k.
        b: fragment of B, k x 8.
        c: fragment of C, 16 x 8; may be the previous D.
        k: inner dimension.
        a_type: element type of A.
        b_type: element type of B; may differ.
        satfinite: clamp instead of wrapping on overflow.
    """
    ...


def _b1_isa(v: Variant) -> tuple[int, int]:
    return (7, 0) if v.op == "xor" else (7, 1)


def _fp8_isa(v: Variant) -> tuple[int, int]:
    return (8, 4) if v.k == 32 and v.d_type == "f32" else (8, 7)


@ptx(
    MMA + ".s32.b1.b1.s32.{op}.popc {ret}, {a}, {b}, {c};",
    isa=_b1_isa,
    arch="sm_80",
    effects="volatile convergent",
    section=SECTION,
)
def b1(
    a: A1, b: B1, c: DInteger, *, k: Literal[256, 128] = 256, op: Literal["and", "xor"]
) -> DInteger:
    """Compute D = popcount(A op B) + C, bits into int32, 16 x 8 x k.

    Args:
        a: fragment of A, 16 x k.
        b: fragment of B, k x 8.
        c: fragment of C, 16 x 8; may be the previous D.
        k: inner dimension.
        op: how bits are combined.
    """
    ...


@ptx(
    MMA + ".{d_type}.{a_type}.{b_type}.{d_type} {ret}, {a}, {b}, {c};",
    isa=_fp8_isa,
    arch="sm_89",
    effects="volatile convergent",
    section=SECTION,
)
def fp8(
    a: A8,
    b: B8,
    c: DEither,
    *,
    k: Literal[32, 16] = 32,
    a_type: Literal["e4m3", "e5m2"],
    b_type: Literal["e4m3", "e5m2"],
    d_type: Literal["f32", "f16"] = "f32",
) -> DEither:
    """Compute D = A * B + C, fp8, 16 x 8 x k; not faster than f16 on Hopper and Blackwell.

    Args:
        a: fragment of A, 16 x k.
        b: fragment of B, k x 8.
        c: fragment of C, 16 x 8; may be the previous D.
        k: inner dimension.
        a_type: element type of A.
        b_type: element type of B; may differ.
        d_type: type of C and D; f16, and k=16, need PTX ISA 8.7.
    """
    ...


@ptx(
    MMA + ".f64.f64.f64.f64 {ret}, {a}, {b}, {c};",
    isa=(7, 8),
    arch="sm_90",
    effects="volatile convergent",
    section=SECTION,
)
def f64(a: A64, b: B64, c: D64, *, k: Literal[16, 8, 4] = 16) -> D64:
    """Compute D = A * B + C, float64, 16 x 8 x k.

    Args:
        a: fragment of A, 16 x k.
        b: fragment of B, k x 8.
        c: fragment of C, 16 x 8; may be the previous D.
        k: inner dimension.
    """
    ...


@ptx(
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {ret}, {a}, {b}, {c};",
    isa=(7, 0),
    arch="sm_80",
    effects="volatile convergent",
    section=SECTION,
)
def f64_m8n8k4(
    a: Annotated[tuple[float], Regs(F64_KIND, 1)],
    b: Annotated[tuple[float], Regs(F64_KIND, 1)],
    c: Annotated[tuple[float, float], Regs(F64_KIND, 2)],
) -> Annotated[tuple[float, float], Regs(F64_KIND, 2)]:
    """Compute D = A * B + C, float64, 8 x 8 x 4.

    Args:
        a: row ``lane // 4``, k ``lane % 4``.
        b: k ``lane % 4``, column ``lane // 4``.
        c: row ``lane // 4``, columns ``2 * (lane % 4)`` and ``+ 1``.
    """
    ...
