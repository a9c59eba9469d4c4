"""wgmma with A in registers; users import it through ``nbtc.intrinsics.wgmma``.

The fragment of A is 4 uint32 a thread. It is read asynchronously: leave its registers alone until
``wgmma.wait_group`` covers the instruction, and pass them through ``wgmma.fence`` after writing
them. A in registers is always K-major.
"""

from __future__ import annotations

from typing import Literal

from nbtc.intrinsics.wgmma_types import (
    A4,
    ARCH,
    MMA,
    SECTION,
    Bit,
    DEither,
    DFloat,
    DInteger,
    Fp8,
    Int8,
    N,
    NInteger,
    Sign,
    k_major_only,
    mixed_isa,
)
from nbtc.ptx.kinds import Descriptor90, Pred
from nbtc.ptx.spec import ptx

FAMILY = "wgmma"


@ptx(
    MMA + "k16.{d_type}.f16.f16 {d}, {a}, {b_desc}, {scale_d}, {scale_a}, {scale_b}, {trans_b};",
    isa=(8, 0),
    arch=ARCH,
    effects="memory convergent",
    ties={"d": "ret"},
    section=SECTION + ": wgmma.mma_async",
)
def mma_async_f16_ra(
    d: DEither,
    a: A4,
    b_desc: Descriptor90,
    scale_d: Pred = True,
    *,
    n: N,
    d_type: Literal["f32", "f16"] = "f32",
    scale_a: Sign = 1,
    scale_b: Sign = 1,
    trans_b: Bit = 0,
) -> DEither:
    """Start D = A * B + D, f16, 64 x n x 16, A in registers, B in shared memory.

    Args:
        d: accumulator, n/2 float32 or (``d_type="f16"``) n/4 uint32 of two float16.
        a: fragment of A, 64 x 16: 4 uint32, in the layout of ``mma_async``'s A.
        b_desc: descriptor of B, 16 x n.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        n: columns.
        d_type: type of D.
        scale_a: -1 negates A.
        scale_b: -1 negates B.
        trans_b: 1 if B is stored N-major (N contiguous).

    Returns:
        D, readable only after :func:`wait_group`; until then pass it to further ``mma_async``
        and change neither D nor A.
    """
    ...


@ptx(
    MMA + "k16.f32.bf16.bf16 {d}, {a}, {b_desc}, {scale_d}, {scale_a}, {scale_b}, {trans_b};",
    isa=(8, 0),
    arch=ARCH,
    effects="memory convergent",
    ties={"d": "ret"},
    section=SECTION + ": wgmma.mma_async",
)
def mma_async_bf16_ra(
    d: DFloat,
    a: A4,
    b_desc: Descriptor90,
    scale_d: Pred = True,
    *,
    n: N,
    scale_a: Sign = 1,
    scale_b: Sign = 1,
    trans_b: Bit = 0,
) -> DFloat:
    """Start D = A * B + D, bf16 into float32, 64 x n x 16, A in registers.

    Args:
        d: accumulator, n/2 float32.
        a: fragment of A, 64 x 16: 4 uint32, in the layout of ``mma_async``'s A.
        b_desc: descriptor of B, 16 x n.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        n: columns.
        scale_a: -1 negates A.
        scale_b: -1 negates B.
        trans_b: 1 if B is stored N-major (N contiguous).

    Returns:
        D, readable only after :func:`wait_group`; until then pass it to further ``mma_async``
        and change neither D nor A.
    """
    ...


@ptx(
    MMA + "k8.f32.tf32.tf32 {d}, {a}, {b_desc}, {scale_d}, {scale_a}, {scale_b};",
    isa=(8, 0),
    arch=ARCH,
    effects="memory convergent",
    check=k_major_only,
    ties={"d": "ret"},
    section=SECTION + ": wgmma.mma_async",
)
def mma_async_tf32_ra(
    d: DFloat,
    a: A4,
    b_desc: Descriptor90,
    scale_d: Pred = True,
    *,
    n: N,
    scale_a: Sign = 1,
    scale_b: Sign = 1,
    trans_b: Bit = 0,
) -> DFloat:
    """Start D = A * B + D, tf32 into float32, 64 x n x 8, A in registers.

    The hardware ignores the low 13 bits of each 32-bit element.

    Args:
        d: accumulator, n/2 float32.
        a: fragment of A, 64 x 8: 4 uint32, in the layout of ``mma_async``'s A.
        b_desc: descriptor of B, 8 x n.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        n: columns.
        scale_a: -1 negates A.
        scale_b: -1 negates B.
        trans_b: must be 0; tf32 has no transpose.

    Returns:
        D, readable only after :func:`wait_group`; until then pass it to further ``mma_async``
        and change neither D nor A.
    """
    ...


@ptx(
    MMA + "k32.{d_type}.{a_type}.{b_type} {d}, {a}, {b_desc}, {scale_d}, {scale_a}, {scale_b};",
    isa=(8, 0),
    arch=ARCH,
    effects="memory convergent",
    check=k_major_only,
    ties={"d": "ret"},
    section=SECTION + ": wgmma.mma_async",
)
def mma_async_fp8_ra(
    d: DEither,
    a: A4,
    b_desc: Descriptor90,
    scale_d: Pred = True,
    *,
    n: N,
    a_type: Fp8,
    b_type: Fp8,
    d_type: Literal["f32", "f16"] = "f32",
    scale_a: Sign = 1,
    scale_b: Sign = 1,
    trans_b: Bit = 0,
) -> DEither:
    """Start D = A * B + D, fp8, 64 x n x 32, A in registers, B K-major in shared memory.

    The tensor core adds fp8 products with fewer bits than float32; long sums are kept exact by
    adding D into other registers every few k-steps.

    Args:
        d: accumulator, n/2 float32 or (``d_type="f16"``) n/4 uint32 of two float16.
        a: fragment of A, 64 x 32: 4 uint32, in the layout of ``mma_async``'s A.
        b_desc: descriptor of B, 32 x n.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        n: columns.
        a_type: element type of A.
        b_type: element type of B; may differ from A's.
        d_type: type of D.
        scale_a: -1 negates A.
        scale_b: -1 negates B.
        trans_b: must be 0; 8-bit operands have no transpose.

    Returns:
        D, readable only after :func:`wait_group`; until then pass it to further ``mma_async``
        and change neither D nor A.
    """
    ...


@ptx(
    MMA + "k32{.satfinite}.s32.{a_type}.{b_type} {d}, {a}, {b_desc}, {scale_d};",
    isa=mixed_isa,
    arch=ARCH,
    effects="memory convergent",
    check=k_major_only,
    ties={"d": "ret"},
    section=SECTION + ": wgmma.mma_async",
)
def mma_async_int8_ra(
    d: DInteger,
    a: A4,
    b_desc: Descriptor90,
    scale_d: Pred = True,
    *,
    n: NInteger,
    a_type: Int8,
    b_type: Int8,
    satfinite: Literal[False, True] = False,
    trans_b: Bit = 0,
) -> DInteger:
    """Start D = A * B + D, 8-bit integers into int32, 64 x n x 32, A in registers.

    Args:
        d: accumulator, n/2 int32.
        a: fragment of A, 64 x 32: 4 uint32, in the layout of ``mma_async``'s A.
        b_desc: descriptor of B, 32 x n.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        n: columns: 8, 24 or a multiple of 16.
        a_type: element type of A.
        b_type: element type of B; may differ from A's.
        satfinite: clamp instead of wrapping on overflow.
        trans_b: must be 0; 8-bit operands have no transpose.

    Returns:
        D, readable only after :func:`wait_group`; until then pass it to further ``mma_async``
        and change neither D nor A.
    """
    ...


@ptx(
    MMA + "k256.s32.b1.b1.and.popc {d}, {a}, {b_desc}, {scale_d};",
    isa=(8, 0),
    arch=ARCH,
    effects="memory convergent",
    ties={"d": "ret"},
    section=SECTION + ": wgmma.mma_async",
)
def mma_async_b1_ra(
    d: DInteger,
    a: A4,
    b_desc: Descriptor90,
    scale_d: Pred = True,
    *,
    n: NInteger,
) -> DInteger:
    """Start D = popcount(A and B) + D, bits into int32, 64 x n x 256, A in registers.

    Args:
        d: accumulator, n/2 int32.
        a: fragment of A, 64 x 256 bits: 4 uint32, in the layout of ``mma_async``'s A.
        b_desc: descriptor of B, 256 x n bits, K-major.
        scale_d: False drops what D held; a boolean or a literal.
        n: columns: 8, 24 or a multiple of 16.

    Returns:
        D, readable only after :func:`wait_group`; until then pass it to further ``mma_async``
        and change neither D nor A.
    """
    ...
