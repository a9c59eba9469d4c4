"""wgmma: Hopper's asynchronous warpgroup matrix multiply, D = A * B + D with D in registers.

All 128 threads of a warpgroup (four warps, the first one's index a multiple of 4) execute every
function here together. M is 64 and K covers 32 bytes of a dense row; N is the modifier ``n``.

Order of one stage, with the accumulator passed through so that the compiler cannot touch it early::

    d = wgmma.fence(d)
    for each k-step: d = wgmma.mma_async_bf16(d, a_desc, b_desc, n=256)
    wgmma.commit_group()
    d = wgmma.wait_group(d, n=0)

An operand in shared memory written by ordinary stores needs ``fence.proxy_async`` and a barrier
first; one written by TMA and awaited on its mbarrier needs none. Shared memory may be reused once
:func:`wait_group` covers the readers.

Start a sum with ``scale_d=False`` on its first ``mma_async`` (a literal, or ``k != 0``). Where that
is the only ``mma_async`` of a loop's round, make D anew in the round (``registers.zeros``): ptxas
else moves the old, dead D around and serialises (C7511).

Registers of one thread: D has n/2 float32 or int32, or n/4 pairs of float16. Fragment layouts are
in ``nbtc.layout.fragments``. Sparse A is in ``nbtc.intrinsics.wgmma_sparse`` and re-exported here.

Not covered: nothing of sm_90a. ``.satfinite`` written last is the same instruction as
``satfinite=True``; the ``.xor`` form of b1 does not exist on Hopper.
"""

from __future__ import annotations

from typing import Annotated, Literal

from nbtc.intrinsics.wgmma_registers import (
    mma_async_b1_ra,
    mma_async_bf16_ra,
    mma_async_f16_ra,
    mma_async_fp8_ra,
    mma_async_int8_ra,
    mma_async_tf32_ra,
)
from nbtc.intrinsics.wgmma_sparse import (
    mma_async_sp_bf16,
    mma_async_sp_f16,
    mma_async_sp_fp8,
    mma_async_sp_int8,
    mma_async_sp_tf32,
)
from nbtc.intrinsics.wgmma_sparse_registers import (
    mma_async_sp_bf16_ra,
    mma_async_sp_f16_ra,
    mma_async_sp_fp8_ra,
    mma_async_sp_int8_ra,
    mma_async_sp_tf32_ra,
)
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
    mixed_isa,
)
from nbtc.ptx.addresses import matrix_descriptor_sm90 as matrix_descriptor
from nbtc.ptx.kinds import AnyRegisters, Descriptor90, Imm, Pred
from nbtc.ptx.spec import ptx

__all__ = [
    "commit_group",
    "fence",
    "matrix_descriptor",
    "mma_async_b1",
    "mma_async_b1_ra",
    "mma_async_bf16",
    "mma_async_bf16_ra",
    "mma_async_f16",
    "mma_async_f16_ra",
    "mma_async_fp8",
    "mma_async_fp8_ra",
    "mma_async_int8",
    "mma_async_int8_ra",
    "mma_async_sp_bf16",
    "mma_async_sp_bf16_ra",
    "mma_async_sp_f16",
    "mma_async_sp_f16_ra",
    "mma_async_sp_fp8",
    "mma_async_sp_fp8_ra",
    "mma_async_sp_int8",
    "mma_async_sp_int8_ra",
    "mma_async_sp_tf32",
    "mma_async_sp_tf32_ra",
    "mma_async_tf32",
    "mma_async_tf32_ra",
    "wait_group",
]


@ptx(
    "wgmma.fence.sync.aligned;",
    isa=(8, 0),
    arch=ARCH,
    effects="memory convergent",
    ties={"d": "ret"},
    section=SECTION + ": wgmma.fence",
)
def fence(d: AnyRegisters | None = None) -> AnyRegisters:
    """Order earlier accesses to registers before the wgmma that follow.

    Needed before the first ``mma_async`` and whenever registers used as D or A were touched by
    other instructions; not between ``mma_async`` of the same shape on the same D. ptxas inserts a
    missing one silently. It does not order generic writes to shared memory: that is
    ``fence.proxy_async``.

    Args:
        d: registers (accumulator or A fragment) to pass through, so that the compiler cannot
            touch them later than the fence. Left out: only the fence.

    Returns:
        ``d``, in the same registers.
    """
    ...


@ptx(
    "wgmma.commit_group.sync.aligned;",
    isa=(8, 0),
    arch=ARCH,
    effects="memory convergent",
    section=SECTION + ": wgmma.commit_group",
)
def commit_group() -> None:
    """Close a group of all ``mma_async`` that this warp issued and did not commit yet.

    An empty group is made when there are none. :func:`wait_group` counts groups.
    """
    ...


@ptx(
    "wgmma.wait_group.sync.aligned {n};",
    isa=(8, 0),
    arch=ARCH,
    effects="memory convergent",
    ties={"d": "ret"},
    section=SECTION + ": wgmma.wait_group",
)
def wait_group(d: AnyRegisters | None = None, *, n: Annotated[int, Imm(0, 7)]) -> AnyRegisters:
    """Wait until at most the ``n`` newest groups of this warp are pending.

    Afterwards D of the completed groups is readable, and the shared memory and A registers that
    they read may be reused. A read of D that no wait covers makes ptxas insert one (C7517).

    Args:
        d: accumulator to pass through, so that the compiler cannot read it before the wait. Left
            out: only the wait.
        n: groups that may stay pending; 0 waits for all.

    Returns:
        ``d``, in the same registers.
    """
    ...


@ptx(
    MMA + "k16.{d_type}.f16.f16 {d}, {a_desc}, {b_desc}, {scale_d}, {scale_a}, {scale_b}, "
    "{trans_a}, {trans_b};",
    isa=(8, 0),
    arch=ARCH,
    effects="memory convergent",
    ties={"d": "ret"},
    section=SECTION + ": wgmma.mma_async",
)
def mma_async_f16(
    d: DEither,
    a_desc: Descriptor90,
    b_desc: Descriptor90,
    scale_d: Pred = True,
    *,
    n: N,
    d_type: Literal["f32", "f16"] = "f32",
    scale_a: Sign = 1,
    scale_b: Sign = 1,
    trans_a: Bit = 0,
    trans_b: Bit = 0,
) -> DEither:
    """Start D = A * B + D, f16, 64 x n x 16, A and B in shared memory.

    Args:
        d: accumulator, n/2 float32 or (``d_type="f16"``) n/4 uint32 of two float16.
        a_desc: descriptor of A, 64 x 16.
        b_desc: descriptor of B, 16 x n.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        n: columns.
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
    MMA + "k16.f32.bf16.bf16 {d}, {a_desc}, {b_desc}, {scale_d}, {scale_a}, {scale_b}, "
    "{trans_a}, {trans_b};",
    isa=(8, 0),
    arch=ARCH,
    effects="memory convergent",
    ties={"d": "ret"},
    section=SECTION + ": wgmma.mma_async",
)
def mma_async_bf16(
    d: DFloat,
    a_desc: Descriptor90,
    b_desc: Descriptor90,
    scale_d: Pred = True,
    *,
    n: N,
    scale_a: Sign = 1,
    scale_b: Sign = 1,
    trans_a: Bit = 0,
    trans_b: Bit = 0,
) -> DFloat:
    """Start D = A * B + D, bf16 into float32, 64 x n x 16, A and B in shared memory.

    Args:
        d: accumulator, n/2 float32.
        a_desc: descriptor of A, 64 x 16.
        b_desc: descriptor of B, 16 x n.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        n: columns.
        scale_a: -1 negates A.
        scale_b: -1 negates B.
        trans_a: 1 if A is stored M-major (M contiguous).
        trans_b: 1 if B is stored N-major (N contiguous).

    Returns:
        D, readable only after :func:`wait_group`; until then pass it to further ``mma_async``.
    """
    ...


@ptx(
    MMA + "k8.f32.tf32.tf32 {d}, {a_desc}, {b_desc}, {scale_d}, {scale_a}, {scale_b};",
    isa=(8, 0),
    arch=ARCH,
    effects="memory convergent",
    check=k_major_only,
    ties={"d": "ret"},
    section=SECTION + ": wgmma.mma_async",
)
def mma_async_tf32(
    d: DFloat,
    a_desc: Descriptor90,
    b_desc: Descriptor90,
    scale_d: Pred = True,
    *,
    n: N,
    scale_a: Sign = 1,
    scale_b: Sign = 1,
    trans_a: Bit = 0,
    trans_b: Bit = 0,
) -> DFloat:
    """Start D = A * B + D, tf32 into float32, 64 x n x 8, A and B in shared memory, K-major.

    The hardware ignores the low 13 bits of each 32-bit element.

    Args:
        d: accumulator, n/2 float32.
        a_desc: descriptor of A, 64 x 8.
        b_desc: descriptor of B, 8 x n.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        n: columns.
        scale_a: -1 negates A.
        scale_b: -1 negates B.
        trans_a: must be 0; tf32 has no transpose.
        trans_b: must be 0; tf32 has no transpose.

    Returns:
        D, readable only after :func:`wait_group`; until then pass it to further ``mma_async``.
    """
    ...


@ptx(
    MMA + "k32.{d_type}.{a_type}.{b_type} {d}, {a_desc}, {b_desc}, {scale_d}, {scale_a}, "
    "{scale_b};",
    isa=(8, 0),
    arch=ARCH,
    effects="memory convergent",
    check=k_major_only,
    ties={"d": "ret"},
    section=SECTION + ": wgmma.mma_async",
)
def mma_async_fp8(
    d: DEither,
    a_desc: Descriptor90,
    b_desc: Descriptor90,
    scale_d: Pred = True,
    *,
    n: N,
    a_type: Fp8,
    b_type: Fp8,
    d_type: Literal["f32", "f16"] = "f32",
    scale_a: Sign = 1,
    scale_b: Sign = 1,
    trans_a: Bit = 0,
    trans_b: Bit = 0,
) -> DEither:
    """Start D = A * B + D, fp8, 64 x n x 32, A and B in shared memory, K-major.

    The tensor core adds fp8 products with fewer bits than float32; long sums are kept exact by
    adding D into other registers every few k-steps.

    Args:
        d: accumulator, n/2 float32 or (``d_type="f16"``) n/4 uint32 of two float16.
        a_desc: descriptor of A, 64 x 32.
        b_desc: descriptor of B, 32 x n.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        n: columns.
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
    MMA + "k32{.satfinite}.s32.{a_type}.{b_type} {d}, {a_desc}, {b_desc}, {scale_d};",
    isa=mixed_isa,
    arch=ARCH,
    effects="memory convergent",
    check=k_major_only,
    ties={"d": "ret"},
    section=SECTION + ": wgmma.mma_async",
)
def mma_async_int8(
    d: DInteger,
    a_desc: Descriptor90,
    b_desc: Descriptor90,
    scale_d: Pred = True,
    *,
    n: NInteger,
    a_type: Int8,
    b_type: Int8,
    satfinite: Literal[False, True] = False,
    trans_a: Bit = 0,
    trans_b: Bit = 0,
) -> DInteger:
    """Start D = A * B + D, 8-bit integers into int32, 64 x n x 32.

    Args:
        d: accumulator, n/2 int32.
        a_desc: descriptor of A, 64 x 32.
        b_desc: descriptor of B, 32 x n.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        n: columns: 8, 24 or a multiple of 16.
        a_type: element type of A.
        b_type: element type of B; may differ from A's.
        satfinite: clamp instead of wrapping on overflow.
        trans_a: must be 0; 8-bit operands have no transpose.
        trans_b: must be 0; 8-bit operands have no transpose.

    Returns:
        D, readable only after :func:`wait_group`; until then pass it to further ``mma_async``.
    """
    ...


@ptx(
    MMA + "k256.s32.b1.b1.and.popc {d}, {a_desc}, {b_desc}, {scale_d};",
    isa=(8, 0),
    arch=ARCH,
    effects="memory convergent",
    ties={"d": "ret"},
    section=SECTION + ": wgmma.mma_async",
)
def mma_async_b1(
    d: DInteger,
    a_desc: Descriptor90,
    b_desc: Descriptor90,
    scale_d: Pred = True,
    *,
    n: NInteger,
) -> DInteger:
    """Start D = popcount(A and B) + D, bits into int32, 64 x n x 256, A and B in shared memory.

    Args:
        d: accumulator, n/2 int32.
        a_desc: descriptor of A, 64 x 256 bits, K-major.
        b_desc: descriptor of B, 256 x n bits, K-major.
        scale_d: False drops what D held; a boolean or a literal.
        n: columns: 8, 24 or a multiple of 16.

    Returns:
        D, readable only after :func:`wait_group`; until then pass it to further ``mma_async``.
    """
    ...
