"""mma.sync with a sparse A; users import it through ``nbtc.intrinsics.mma``.

A is stored compressed to half its columns: 2 of 4 kept (f16, bf16, 8-bit), 1 of 2 (tf32), 4 of 8
in pairs (4-bit integers). ``metadata`` gives the kept positions, two ascending 2-bit indices a
group (tf32: 0b0100 first, 0b1110 second); ``selector`` names the lanes of each group of four that
supply it. The ordered-metadata form is used throughout: it needs PTX ISA 8.5, and ptxas advises
against the older one. fp8 with float16 D exists only on sm_120a.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from nbtc.ptx.kinds import F32_KIND, S32_KIND, U32, U32_KIND, Imm, Kind, Regs
from nbtc.ptx.spec import Variant, ptx

FAMILY = "mma"
SECTION = "9.7.14.6 Matrix multiply-accumulate operation using mma.sp"
MMA = "mma.sp::ordered_metadata.sync.aligned.m16n8k{k}.row.col"
TAIL = " {ret}, {a}, {b}, {c}, {metadata}, {selector};"
Flag = Literal[False, True]
Selector = Annotated[int, Imm(0, 3)]


def _d_kind(v: Variant) -> Kind:
    return F32_KIND if v.d_type == "f32" else U32_KIND


def _d_count(v: Variant) -> int:
    return 4 if v.d_type == "f32" else 2


def _count(k_per_register: int) -> Callable[[Variant], int]:
    def count(v: Variant) -> int:
        return v.k // k_per_register

    return count


def _selector(highest: dict[int, int]) -> Callable[[Variant], str | None]:
    def check(v: Variant) -> str | None:
        if v.selector > highest[v.k]:
            return f"selector={v.selector} with k={v.k}: must be 0..{highest[v.k]}"
        return None

    return check


DFloat = Annotated[tuple[float, float, float, float], Regs(F32_KIND, 4)]
DEither = Annotated[
    tuple[float, ...], Regs(_d_kind, _d_count, note="4 float32, or 2 uint32 for d_type='f16'")
]
DInteger = Annotated[tuple[int, int, int, int], Regs(S32_KIND, 4)]
AB32 = Annotated[tuple[int, ...], Regs(U32_KIND, _count(4), note="k / 4")]
AB16 = Annotated[tuple[int, ...], Regs(U32_KIND, _count(8), note="k / 8")]
AB8 = Annotated[tuple[int, ...], Regs(U32_KIND, _count(16), note="k / 16")]
AB4 = Annotated[tuple[int, ...], Regs(U32_KIND, _count(32), note="k / 32")]


@ptx(
    MMA + ".{d_type}.f16.f16.{d_type}" + TAIL,
    isa=(8, 5),
    arch="sm_80",
    effects="volatile convergent",
    check=_selector({16: 3, 32: 1}),
    section=SECTION,
)
def sp_f16(
    a: AB16,
    b: AB16,
    c: DEither,
    metadata: U32,
    *,
    k: Literal[32, 16] = 32,
    selector: Selector = 0,
    d_type: Literal["f32", "f16"] = "f32",
) -> DEither:
    """Compute D = A * B + C, f16, sparse A, 16 x 8 x k.

    Args:
        a: fragment of compressed A, 16 x k/2.
        b: fragment of B, k x 8.
        c: fragment of C, 16 x 8; may be the previous D.
        metadata: positions of A's kept elements.
        k: inner dimension, before compression.
        selector: lanes that supply the metadata.
        d_type: type of C and D.
    """
    ...


@ptx(
    MMA + ".f32.bf16.bf16.f32" + TAIL,
    isa=(8, 5),
    arch="sm_80",
    effects="volatile convergent",
    check=_selector({16: 3, 32: 1}),
    section=SECTION,
)
def sp_bf16(
    a: AB16, b: AB16, c: DFloat, metadata: U32, *, k: Literal[32, 16] = 32, selector: Selector = 0
) -> DFloat:
    """Compute D = A * B + C, bf16 into float32, sparse A, 16 x 8 x k.

    Args:
        a: fragment of compressed A, 16 x k/2.
        b: fragment of B, k x 8.
        c: fragment of C, 16 x 8; may be the previous D.
        metadata: positions of A's kept elements.
        k: inner dimension, before compression.
        selector: lanes that supply the metadata.
    """
    ...


@ptx(
    MMA + ".f32.tf32.tf32.f32" + TAIL,
    isa=(8, 5),
    arch="sm_80",
    effects="volatile convergent",
    check=_selector({8: 3, 16: 1}),
    section=SECTION,
)
def sp_tf32(
    a: AB32, b: AB32, c: DFloat, metadata: U32, *, k: Literal[16, 8] = 16, selector: Selector = 0
) -> DFloat:
    """Compute D = A * B + C, tf32 into float32, sparse A, 16 x 8 x k.

    Args:
        a: fragment of compressed A, 16 x k/2.
        b: fragment of B, k x 8.
        c: fragment of C, 16 x 8; may be the previous D.
        metadata: positions of A's kept elements.
        k: inner dimension, before compression.
        selector: lanes that supply the metadata.
    """
    ...


@ptx(
    MMA + "{.satfinite}.s32.{a_type}.{b_type}.s32" + TAIL,
    isa=(8, 5),
    arch="sm_80",
    effects="volatile convergent",
    check=_selector({32: 1, 64: 0}),
    section=SECTION,
)
def sp_int8(
    a: AB8,
    b: AB8,
    c: DInteger,
    metadata: U32,
    *,
    k: Literal[64, 32] = 64,
    selector: Selector = 0,
    a_type: Literal["s8", "u8"],
    b_type: Literal["s8", "u8"],
    satfinite: Flag = False,
) -> DInteger:
    """Compute D = A * B + C, 8-bit integers into int32, sparse A, 16 x 8 x k.

    Args:
        a: fragment of compressed A, 16 x k/2.
        b: fragment of B, k x 8.
        c: fragment of C, 16 x 8; may be the previous D.
        metadata: positions of A's kept elements.
        k: inner dimension, before compression.
        selector: lanes that supply the metadata.
        a_type: element type of A.
        b_type: element type of B; may differ.
        satfinite: clamp instead of wrapping on overflow.
    """
    ...


@ptx(
    MMA + "{.satfinite}.s32.{a_type}.{b_type}.s32" + TAIL,
    isa=(8, 5),
    arch="sm_80",
    effects="volatile convergent",
    check=_selector({64: 1, 128: 0}),
    section=SECTION,
)
def sp_int4(
    a: AB4,
    b: AB4,
    c: DInteger,
    metadata: U32,
    *,
    k: Literal[128, 64] = 128,
    selector: Selector = 0,
    a_type: Literal["s4", "u4"],
    b_type: Literal["s4", "u4"],
    satfinite: Flag = False,
) -> DInteger:
    """Compute D = A * B + C, 4-bit integers into int32, sparse A, 16 x 8 x k.

    Args:
        a: fragment of compressed A, 16 x k/2.
        b: fragment of B, k x 8.
        c: fragment of C, 16 x 8; may be the previous D.
        metadata: positions of A's kept elements.
        k: inner dimension, before compression.
        selector: lanes that supply the metadata.
        a_type: element type of A.
        b_type: element type of B; may differ.
        satfinite: clamp instead of wrapping on overflow.
    """
    ...


@ptx(
    MMA + ".f32.{a_type}.{b_type}.f32" + TAIL,
    isa=(8, 5),
    arch="sm_89",
    effects="volatile convergent",
    check=_selector({64: 0}),
    section=SECTION,
)
def sp_fp8(
    a: AB8,
    b: AB8,
    c: DFloat,
    metadata: U32,
    *,
    k: Literal[64] = 64,
    selector: Selector = 0,
    a_type: Literal["e4m3", "e5m2"],
    b_type: Literal["e4m3", "e5m2"],
) -> DFloat:
    """Compute D = A * B + C, fp8 into float32, sparse A, 16 x 8 x 64.

    Args:
        a: fragment of compressed A, 16 x k/2.
        b: fragment of B, k x 8.
        c: fragment of C, 16 x 8; may be the previous D.
        metadata: positions of A's kept elements.
        k: inner dimension, before compression.
        selector: lanes that supply the metadata.
        a_type: element type of A.
        b_type: element type of B; may differ.
    """
    ...
