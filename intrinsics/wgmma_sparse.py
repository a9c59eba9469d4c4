"""wgmma with a sparse A; users import it through ``nbtc.intrinsics.wgmma``.

A is stored compressed to half its columns. Of every 4 columns 2 are kept (f16, bf16, 8-bit types),
of every 2 columns 1 (tf32); the metadata says which, 4 bits a group: two ascending 2-bit indices,
and for tf32 0b0100 (first) or 0b1110 (second). Everything else is as in the dense forms.
"""

from __future__ import annotations

from typing import Annotated, Literal

from nbtc.intrinsics.wgmma_types import (
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
)
from nbtc.ptx.kinds import U32, Descriptor90, Imm, Pred
from nbtc.ptx.spec import Variant, ptx

FAMILY = "wgmma"
MMA_SPARSE = MMA.replace("mma_async.", "mma_async.sp.")
META = "{metadata}, {selector}, {scale_d}"

Selector = Annotated[int, Imm(0, 1)]
Zero = Annotated[int, Imm(0, 0)]


def sparse_mixed_isa(v: Variant) -> tuple[int, int]:
    """Return the PTX ISA version of a sparse int8 form."""
    return (8, 2) if v.a_type == v.b_type else (8, 4)


@ptx(
    MMA_SPARSE
    + "k32.{d_type}.f16.f16 {d}, {a_desc}, {b_desc}, "
    + META
    + ", {scale_a}, {scale_b}, {trans_a}, {trans_b};",
    isa=(8, 2),
    arch=ARCH,
    effects="memory convergent",
    ties={"d": "ret"},
    section=SECTION + ": wgmma.mma_async.sp",
)
def mma_async_sp_f16(
    d: DEither,
    a_desc: Descriptor90,
    b_desc: Descriptor90,
    metadata: U32,
    scale_d: Pred = True,
    *,
    n: N,
    selector: Selector = 0,
    d_type: Literal["f32", "f16"] = "f32",
    scale_a: Sign = 1,
    scale_b: Sign = 1,
    trans_a: Bit = 0,
    trans_b: Bit = 0,
) -> DEither:
    """Start D = A * B + D, sparse A, f16, 64 x n x 32, A and B in shared memory.

    Args:
        d: accumulator, n/2 float32 or (``d_type="f16"``) n/4 uint32 of two float16.
        a_desc: descriptor of compressed A, 64 x 16.
        b_desc: descriptor of B, 32 x n.
        metadata: positions of A's nonzero elements, one uint32 a thread.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        n: columns.
        selector: 0: lanes 4i and 4i+1 hold the metadata; 1: lanes 4i+2 and 4i+3.
        d_type: type of D.
        scale_a: -1 negates A.
        scale_b: -1 negates B.
        trans_a: 1 if A is stored M-major (M contiguous).
        trans_b: 1 if B is stored N-major (N contiguous).

    Returns:
        D, readable only after :func:`wait_group`; until then pass it to further ``mma_async``.
    """
    ...


@ptx(
    MMA_SPARSE
    + "k32.f32.bf16.bf16 {d}, {a_desc}, {b_desc}, "
    + META
    + ", {scale_a}, {scale_b}, {trans_a}, {trans_b};",
    isa=(8, 2),
    arch=ARCH,
    effects="memory convergent",
    ties={"d": "ret"},
    section=SECTION + ": wgmma.mma_async.sp",
)
def mma_async_sp_bf16(
    d: DFloat,
    a_desc: Descriptor90,
    b_desc: Descriptor90,
    metadata: U32,
    scale_d: Pred = True,
    *,
    n: N,
    selector: Selector = 0,
    scale_a: Sign = 1,
    scale_b: Sign = 1,
    trans_a: Bit = 0,
    trans_b: Bit = 0,
) -> DFloat:
    """Start D = A * B + D, sparse A, bf16 into float32, 64 x n x 32, A and B in shared memory.

    Args:
        d: accumulator, n/2 float32.
        a_desc: descriptor of compressed A, 64 x 16.
        b_desc: descriptor of B, 32 x n.
        metadata: positions of A's nonzero elements, one uint32 a thread.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        n: columns.
        selector: 0: lanes 4i and 4i+1 hold the metadata; 1: lanes 4i+2 and 4i+3.
        scale_a: -1 negates A.
        scale_b: -1 negates B.
        trans_a: 1 if A is stored M-major (M contiguous).
        trans_b: 1 if B is stored N-major (N contiguous).

    Returns:
        D, readable only after :func:`wait_group`; until then pass it to further ``mma_async``.
    """
    ...


@ptx(
    MMA_SPARSE + "k16.f32.tf32.tf32 {d}, {a_desc}, {b_desc}, " + META + ", {scale_a}, {scale_b};",
    isa=(8, 2),
    arch=ARCH,
    effects="memory convergent",
    check=k_major_only,
    ties={"d": "ret"},
    section=SECTION + ": wgmma.mma_async.sp",
)
def mma_async_sp_tf32(
    d: DFloat,
    a_desc: Descriptor90,
    b_desc: Descriptor90,
    metadata: U32,
    scale_d: Pred = True,
    *,
    n: N,
    selector: Selector = 0,
    scale_a: Sign = 1,
    scale_b: Sign = 1,
    trans_a: Bit = 0,
    trans_b: Bit = 0,
) -> DFloat:
    """Start D = A * B + D, sparse A, tf32 into float32, 64 x n x 16, A and B in shared memory.

    The hardware ignores the low 13 bits of each 32-bit element.

    Args:
        d: accumulator, n/2 float32.
        a_desc: descriptor of compressed A, 64 x 8.
        b_desc: descriptor of B, 16 x n.
        metadata: positions of A's nonzero elements, one uint32 a thread.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        n: columns.
        selector: 0: lanes 4i and 4i+1 hold the metadata; 1: lanes 4i+2 and 4i+3.
        scale_a: -1 negates A.
        scale_b: -1 negates B.
        trans_a: must be 0; tf32 has no transpose.
        trans_b: must be 0; tf32 has no transpose.

    Returns:
        D, readable only after :func:`wait_group`; until then pass it to further ``mma_async``.
    """
    ...


@ptx(
    MMA_SPARSE
    + "k64.{d_type}.{a_type}.{b_type} {d}, {a_desc}, {b_desc}, "
    + META
    + ", {scale_a}, {scale_b};",
    isa=(8, 2),
    arch=ARCH,
    effects="memory convergent",
    check=k_major_only,
    ties={"d": "ret"},
    section=SECTION + ": wgmma.mma_async.sp",
)
def mma_async_sp_fp8(
    d: DEither,
    a_desc: Descriptor90,
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
    trans_a: Bit = 0,
    trans_b: Bit = 0,
) -> DEither:
    """Start D = A * B + D, sparse A, fp8, 64 x n x 64, A and B K-major in shared memory.

    The tensor core adds fp8 products with fewer bits than float32; long sums are kept exact by
    adding D into other registers every few k-steps.

    Args:
        d: accumulator, n/2 float32 or (``d_type="f16"``) n/4 uint32 of two float16.
        a_desc: descriptor of compressed A, 64 x 32.
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
        trans_a: must be 0; 8-bit operands have no transpose.
        trans_b: must be 0; 8-bit operands have no transpose.

    Returns:
        D, readable only after :func:`wait_group`; until then pass it to further ``mma_async``.
    """
    ...


@ptx(
    MMA_SPARSE + "k64{.satfinite}.s32.{a_type}.{b_type} {d}, {a_desc}, {b_desc}, " + META + ";",
    isa=sparse_mixed_isa,
    arch=ARCH,
    effects="memory convergent",
    check=k_major_only,
    ties={"d": "ret"},
    section=SECTION + ": wgmma.mma_async.sp",
)
def mma_async_sp_int8(
    d: DInteger,
    a_desc: Descriptor90,
    b_desc: Descriptor90,
    metadata: U32,
    scale_d: Pred = True,
    *,
    n: NInteger,
    selector: Zero = 0,
    a_type: Int8,
    b_type: Int8,
    satfinite: Literal[False, True] = False,
    trans_a: Bit = 0,
    trans_b: Bit = 0,
) -> DInteger:
    """Start D = A * B + D, sparse A, 8-bit integers into int32, 64 x n x 64.

    Args:
        d: accumulator, n/2 int32.
        a_desc: descriptor of compressed A, 64 x 32.
        b_desc: descriptor of B, 64 x n.
        metadata: positions of A's nonzero elements, one uint32 a thread.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        n: columns: 8, 24 or a multiple of 16.
        selector: 0: all lanes hold metadata.
        a_type: element type of A.
        b_type: element type of B; may differ from A's.
        satfinite: clamp instead of wrapping on overflow.
        trans_a: must be 0; 8-bit operands have no transpose.
        trans_b: must be 0; 8-bit operands have no transpose.

    Returns:
        D, readable only after :func:`wait_group`; until then pass it to further ``mma_async``.
    """
    ...
