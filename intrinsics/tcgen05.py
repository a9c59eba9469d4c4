"""tcgen05: Blackwell's tensor core and its tensor memory (TMEM).

Tensor memory is 128 lanes by 512 columns of 32 bits per CTA. An address has the lane in bits 16-31
and the column in bits 0-15, and keeps its type through ``+`` and ``|``. A warp reads and writes
only lanes ``32 * (warp % 4)`` to ``+ 31``; the MMA uses all. The order of one tile::

    tcgen05.alloc(slot, 256)                       # one warp; then a barrier; read the slot
    for each k-step: tcgen05.mma_f16(d, a, b, idesc, k != 0)      # one elected thread
    tcgen05.commit(bar)
    ... every reading warp waits for bar ...
    tcgen05.fence_after_thread_sync()
    r = tcgen05.wait_ld(tcgen05.ld_32x32b(d, num=64))
    ... barrier, then one warp: tcgen05.dealloc(d, 256)

**mma.** One thread issues the whole MMA (with ``cta_group=2`` one thread of one CTA of the pair);
it is asynchronous. Its operands in shared memory and tensor memory must not change until the
mbarrier given to :func:`commit` completes. MMAs of one thread, shape and D run in order, and see
``cp`` issued before them by the same thread. Shared memory that ordinary stores wrote needs
``fence.proxy_async``; what TMA wrote and an mbarrier announced needs none. Shapes, element types,
transposes and negation are in the instruction descriptor, a 32-bit constant
(``nbtc.layout.instruction_descriptor``); the kind in the function's name must agree with it. B is
never in tensor memory; A is, in the forms named ``_ts``, and is then K-major. ``mma_sp_*`` take a
sparse A, ``mma_mxf*`` block scales, ``mma_ws_*`` keep B and let M be 32.

One kernel uses one ``cta_group`` in all its tcgen05 instructions. Consumer Blackwell (sm_120) has
no tcgen05. ``kind::i8`` exists on sm_100a only; ``shift_down``, ``scale_vec::NX`` and sparse
mxf4 / mxf4nvf4 not on the family target sm_100f; ``ld_red_*`` on sm_103a only.

Not covered: the generic-address forms of ``alloc`` and ``commit``, the same as these for shared
memory; ``scale_input_d`` of kind::i8, which ptxas takes and the PTX ISA does not define.
"""

from __future__ import annotations

from nbtc.intrinsics.tcgen05_memory import (
    alloc,
    dealloc,
    ld_16x32bx2,
    ld_16x64b,
    ld_16x128b,
    ld_16x256b,
    ld_32x32b,
    relinquish_alloc_permit,
    st_16x32bx2,
    st_16x64b,
    st_16x128b,
    st_16x256b,
    st_32x32b,
)
from nbtc.intrinsics.tcgen05_mma import (
    mma_f8f6f4,
    mma_f8f6f4_ts,
    mma_f16,
    mma_f16_ts,
    mma_i8,
    mma_i8_ts,
    mma_tf32,
    mma_tf32_ts,
)
from nbtc.intrinsics.tcgen05_mma_block_scale import (
    mma_mxf4,
    mma_mxf4_ts,
    mma_mxf4nvf4,
    mma_mxf4nvf4_ts,
    mma_mxf8f6f4,
    mma_mxf8f6f4_ts,
    mma_sp_mxf4,
    mma_sp_mxf4_ts,
    mma_sp_mxf4nvf4,
    mma_sp_mxf4nvf4_ts,
    mma_sp_mxf8f6f4,
    mma_sp_mxf8f6f4_ts,
)
from nbtc.intrinsics.tcgen05_mma_sparse import (
    mma_sp_f8f6f4,
    mma_sp_f8f6f4_ts,
    mma_sp_f16,
    mma_sp_f16_ts,
    mma_sp_i8,
    mma_sp_i8_ts,
    mma_sp_tf32,
    mma_sp_tf32_ts,
)
from nbtc.intrinsics.tcgen05_mma_ws import (
    mma_ws_f8f6f4,
    mma_ws_f8f6f4_ts,
    mma_ws_f16,
    mma_ws_f16_ts,
    mma_ws_i8,
    mma_ws_i8_ts,
    mma_ws_sp_f8f6f4,
    mma_ws_sp_f8f6f4_ts,
    mma_ws_sp_f16,
    mma_ws_sp_f16_ts,
    mma_ws_sp_i8,
    mma_ws_sp_i8_ts,
    mma_ws_sp_tf32,
    mma_ws_sp_tf32_ts,
    mma_ws_tf32,
    mma_ws_tf32_ts,
)
from nbtc.intrinsics.tcgen05_sync import (
    commit,
    cp,
    fence_after_thread_sync,
    fence_before_thread_sync,
    ld_red_16x32bx2,
    ld_red_32x32b,
    shift_down,
    wait_ld,
    wait_st,
)
from nbtc.ptx.addresses import matrix_descriptor_sm100 as matrix_descriptor

__all__ = [
    "alloc",
    "commit",
    "cp",
    "dealloc",
    "fence_after_thread_sync",
    "fence_before_thread_sync",
    "ld_16x32bx2",
    "ld_16x64b",
    "ld_16x128b",
    "ld_16x256b",
    "ld_32x32b",
    "ld_red_16x32bx2",
    "ld_red_32x32b",
    "matrix_descriptor",
    "mma_f8f6f4",
    "mma_f8f6f4_ts",
    "mma_f16",
    "mma_f16_ts",
    "mma_i8",
    "mma_i8_ts",
    "mma_mxf4",
    "mma_mxf4_ts",
    "mma_mxf4nvf4",
    "mma_mxf4nvf4_ts",
    "mma_mxf8f6f4",
    "mma_mxf8f6f4_ts",
    "mma_sp_f8f6f4",
    "mma_sp_f8f6f4_ts",
    "mma_sp_f16",
    "mma_sp_f16_ts",
    "mma_sp_i8",
    "mma_sp_i8_ts",
    "mma_sp_mxf4",
    "mma_sp_mxf4_ts",
    "mma_sp_mxf4nvf4",
    "mma_sp_mxf4nvf4_ts",
    "mma_sp_mxf8f6f4",
    "mma_sp_mxf8f6f4_ts",
    "mma_sp_tf32",
    "mma_sp_tf32_ts",
    "mma_tf32",
    "mma_tf32_ts",
    "mma_ws_f8f6f4",
    "mma_ws_f8f6f4_ts",
    "mma_ws_f16",
    "mma_ws_f16_ts",
    "mma_ws_i8",
    "mma_ws_i8_ts",
    "mma_ws_sp_f8f6f4",
    "mma_ws_sp_f8f6f4_ts",
    "mma_ws_sp_f16",
    "mma_ws_sp_f16_ts",
    "mma_ws_sp_i8",
    "mma_ws_sp_i8_ts",
    "mma_ws_sp_tf32",
    "mma_ws_sp_tf32_ts",
    "mma_ws_tf32",
    "mma_ws_tf32_ts",
    "relinquish_alloc_permit",
    "shift_down",
    "st_16x32bx2",
    "st_16x64b",
    "st_16x128b",
    "st_16x256b",
    "st_32x32b",
    "wait_ld",
    "wait_st",
]
