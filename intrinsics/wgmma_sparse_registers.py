"""wgmma with a sparse A in registers; users import it through ``nbtc.intrinsics.wgmma``."""

from __future__ import annotations

from typing import Literal

from nbtc.intrinsics.wgmma_sparse import META, MMA_SPARSE, Selector, Zero, sparse_mixed_isa
from nbtc.intrinsics.wgmma_types import (
    A4,
    ARCH,
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
)
from nbtc.ptx.kinds import U32, Descriptor90, Pred
from nbtc.ptx.spec import ptx

FAMILY = "wgmma"


@ptx(
    MMA_SPARSE
    + "k32.{d_type}.f16.f16 {d}, {a}, {b_desc}, "
    + META
    + ", {scale_a}, {scale_b}, {trans_b};",
    isa=(8, 2),
    arch=ARCH,
    effects="memory convergent",
    ties={"d": "ret"},
    section=SECTION + ": wgmma.mma_async.sp",
)
def mma_async_sp_f16_ra(
    d: DEither,
    a: A4,
    b_desc: Descriptor90,
    metadata: U32,
    scale_d: Pred = True,
    *,
    n: N,
    selector: Selector = 0,
    d_type: Literal["f32", "f16"] = "f32",
    scale_a: Sign = 1,
    scale_b: Sign = 1,
    trans_b: Bit = 0,
) -> DEither:
    """Start D = A * B + D, sparse A, f16, 64 x n x 32, A in registers, B in shared memory.

    Args:
        d: accumulator, n/2 float32 or (``d_type="f16"``) n/4 uint32 of two float16.
        a: fragment of compressed A, 64 x 16: 4 uint32, in the layout of ``mma_async``'s A.
        b_desc: descriptor of B, 32 x n.
        metadata: positions of A's nonzero elements, one uint32 a thread.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        n: columns.
        selector: 0: lanes 4i and 4i+1 hold the metadata; 1: lanes 4i+2 and 4i+3.
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
    MMA_SPARSE
    + "k32.f32.bf16.bf16 {d}, {a}, {b_desc}, "
    + META
    + ", {scale_a}, {scale_b}, {trans_b};",
    isa=(8, 2),
    arch=ARCH,
    effects="memory convergent",
    ties={"d": "ret"},
    section=SECTION + ": wgmma.mma_async.sp",
)
def mma_async_sp_bf16_ra(
    d: DFloat,
    a: A4,
    b_desc: Descriptor90,
    metadata: U32,
    scale_d: Pred = True,
    *,
    n: N,
    selector: Selector = 0,
    scale_a: Sign = 1,
    scale_b: Sign = 1,
    trans_b: Bit = 0,
) -> DFloat:
    """Start D = A * B + D, sparse A, bf16 into float32, 64 x n x 32, A in registers.

    Args:
        d: accumulator, n/2 float32.
        a: fragment of compressed A, 64 x 16: 4 uint32, in the layout of ``mma_async``'s A.
        b_desc: descriptor of B, 32 x n.
        metadata: positions of A's nonzero elements, one uint32 a thread.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        n: columns.
        selector: 0: lanes 4i and 4i+1 hold the metadata; 1: lanes 4i+2 and 4i+3.
        scale_a: -1 negates A.
        scale_b: -1 negates B.
        trans_b: 1 if B is stored N-major (N contiguous).

    Returns:
        D, readable only after :func:`wait_group`; until then pass it to further ``mma_async``
        and change neither D nor A.
    """
    ...


@ptx(
    MMA_SPARSE + "k16.f32.tf32.tf32 {d}, {a}, {b_desc}, " + META + ", {scale_a}, {scale_b};",
    isa=(8, 2),
    arch=ARCH,
    effects="memory convergent",
    check=k_major_only,
    ties={"d": "ret"},
    section=SECTION + ": wgmma.mma_async.sp",
)
def mma_async_sp_tf32_ra(
    d: DFloat,
    a: A4,
    b_desc: Descriptor90,
    metadata: U32,
    scale_d: Pred = True,
    *,
    n: N,
    selector: Selector = 0,
    scale_a: Sign = 1,
    scale_b: Sign = 1,
    trans_b: Bit = 0,
) -> DFloat:
    """Start D = A * B + D, sparse A, tf32 into float32, 64 x n x 16, A in registers.

    The hardware ignores the low 13 bits of each 32-bit element.

    Args:
        d: accumulator, n/2 float32.
        a: fragment of compressed A, 64 x 8: 4 uint32, in the layout of ``mma_async``'s A.
        b_desc: descriptor of B, 16 x n.
        metadata: positions of A's nonzero elements, one uint32 a thread.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        n: columns.
        selector: 0: lanes 4i and 4i+1 hold the metadata; 1: lanes 4i+2 and 4i+3.
        scale_a: -1 negates A.
        scale_b: -1 negates B.
        trans_b: must be 0; tf32 has no transpose.

    Returns:
        D, readable only after :func:`wait_group`; until then pass it to further ``mma_async``
        and change neither D nor A.
    """
    ...


@ptx(
    MMA_SPARSE
    + "k64.{d_type}.{a_type}.{b_type} {d}, {a}, {b_desc}, "
    + META
    + ", {scale_a}, {scale_b};",
    isa=(8, 2),
    arch=ARCH,
    effects="memory convergent",
    check=k_major_only,
    ties={"d": "ret"},
    section=SECTION + ": wgmma.mma_async.sp",
)
def mma_async_sp_fp8_ra(
    d: DEither,
    a: A4,
    b_desc: Descriptor90,
    metadata: U32,
    scale_d: Pred = True,
    *,
    n: N,
    selector: Zero = 0,
    a_type: Fp8,
    b_type: Fp8,
    d_type: Literal["f32", "f16"] = "f32",
    scale_a: Sign = 1,
    scale_b: Sign = 1,
    trans_b: Bit = 0,
) -> DEither:
    """Start D = A * B + D, sparse A, fp8, 64 x n x 64, A in registers, B K-major in shared memory.

    The tensor core adds fp8 products with fewer bits than float32; long sums are kept exact by
    adding D into other registers every few k-steps.

    Args:
        d: accumulator, n/2 float32 or (``d_type="f16"``) n/4 uint32 of two float16.
        a: fragment of compressed A, 64 x 32: 4 uint32, in the layout of ``mma_async``'s A.
        b_desc: descriptor of B, 64 x n.
        metadata: positions of A's nonzero elements, one uint32 a thread.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        n: columns.
        selector: 0: all lanes hold metadata.
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
    MMA_SPARSE + "k64{.satfinite}.s32.{a_type}.{b_type} {d}, {a}, {b_desc}, " + META + ";",
    isa=sparse_mixed_isa,
    arch=ARCH,
    effects="memory convergent",
    check=k_major_only,
    ties={"d": "ret"},
    section=SECTION + ": wgmma.mma_async.sp",
)
def mma_async_sp_int8_ra(
    d: DInteger,
    a: A4,
    b_desc: Descriptor90,
    metadata: U32,
    scale_d: Pred = True,
    *,
    n: NInteger,
    selector: Zero = 0,
    a_type: Int8,
    b_type: Int8,
    satfinite: Literal[False, True] = False,
    trans_b: Bit = 0,
) -> DInteger:
    """Start D = A * B + D, sparse A, 8-bit integers into int32, 64 x n x 64, A in registers.

    Args:
        d: accumulator, n/2 int32.
        a: fragment of compressed A, 64 x 32: 4 uint32, in the layout of ``mma_async``'s A.
        b_desc: descriptor of B, 64 x n.
        metadata: positions of A's nonzero elements, one uint32 a thread.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        n: columns: 8, 24 or a multiple of 16.
        selector: 0: all lanes hold metadata.
        a_type: element type of A.
        b_type: element type of B; may differ from A's.
        satfinite: clamp instead of wrapping on overflow.
        trans_b: must be 0; 8-bit operands have no transpose.

    Returns:
        D, readable only after :func:`wait_group`; until then pass it to further ``mma_async``
        and change neither D nor A.
    """
    ...
