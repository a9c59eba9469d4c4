"""Example 11: example 6 on Blackwell: tcgen05 in place of wgmma, the accumulator in tensor memory.

C = A B^T in bfloat16. The ring of stages and the producer are those of example 6. What changes is
who multiplies and where the result is. One thread issues each 128 x 256 x 16 multiplication for the
whole block. D lies in tensor memory, 128 lanes by 512 columns of 32 bits, which a warp allocates
and frees; it costs no registers, so no warp has to be large. A stage is given back by
``tcgen05.commit``: the tensor core itself arrives on the barrier when all that the thread issued
is done, and one more commit hands the finished accumulator to the epilogue.

Warp w of a block reaches lanes 32 (w % 4) to + 31 of tensor memory. Row m of D is lane m, column n
is column n, so each of four warps loads 32 whole rows, one row a thread, and stores them by TMA.

What goes wrong otherwise: give the stage back by an ordinary arrive and TMA overwrites what the
tensor core still reads; load before the last commit has arrived and the sums are unfinished; let a
warp use another warp's lanes and it reads nothing; leave without freeing the columns and the next
block on the multiprocessor waits for ever.
"""

from __future__ import annotations

import sys

import ml_dtypes
import numpy as np
from numba import cuda
from numba.cuda.types import int32, uint32

import nbtc
from nbtc import TensorMap, testing
from nbtc.compile import Compiled
from nbtc.device import math32, pipeline, scheduler, shared, tmem_epilogue
from nbtc.intrinsics import address, mbarrier, sync, tcgen05, tma
from nbtc.jit import Kernel
from nbtc.layout.instruction_descriptor import InstructionDescriptor

TILE_M, TILE_N, TILE_K = 128, 256, 64
ROW_BYTES, GROUP_BYTES = 128, 8 * 128
STAGE_BYTES = (TILE_M + TILE_N) * TILE_K * 2
PRODUCER, MULTIPLIER, THREADS = 4, 5, 192  # warps 0 to 3 are the epilogue
COLUMNS = 64  # columns of C in one piece of the store: 128 bytes
PIECE_BYTES = 32 * 128
# Shape, types and majorness of the instruction, in 32 bits.
INSTRUCTION = InstructionDescriptor("f16", TILE_M, TILE_N, "bfloat16", "bfloat16").encode()


def make_kernel(stages: int = 4, group: int = 8) -> Kernel:
    """Return the kernel (a_map, b_map, c_map, m, n, k): A is M x K, B is N x K, C is M x N."""
    layout = shared.Layout(
        a=shared.tile("bfloat16", (TILE_M, TILE_K), swizzle="128B", stages=stages),
        b=shared.tile("bfloat16", (TILE_N, TILE_K), swizzle="128B", stages=stages),
        c=shared.tile("bfloat16", (2, 32, COLUMNS), swizzle="128B", stages=4),
        full=shared.barriers(stages),
        empty=shared.barriers(stages),
        done=shared.barriers(1),
        slot=shared.array("uint32", 1),
    )

    @nbtc.jit(shared=layout, launch_bounds=THREADS, arch="sm_100a")
    def gemm(a_map, b_map, c_map, m, n, k):
        thread = int32(cuda.threadIdx.x)
        warp = thread // 32
        tiles_m, tiles_n = math32.ceil_div(m, TILE_M), math32.ceil_div(n, TILE_N)
        tile_m, tile_n = scheduler.grouped(uint32(cuda.blockIdx.x), tiles_m, tiles_n, group)
        row, column = int32(tile_m * TILE_M), int32(tile_n * TILE_N)
        k_blocks = math32.ceil_div(k, TILE_K)
        if thread == 0:
            mbarrier.init(layout.done[0], 1)
            pipeline.init(layout.full, layout.empty, 1, 1)  # one arrival each
        if warp == PRODUCER:
            tcgen05.alloc(layout.slot, TILE_N)  # writes the address to shared memory
            tcgen05.relinquish_alloc_permit()
        cuda.syncthreads()
        d = address.tmem(layout.slot.array[0])

        if warp == PRODUCER:
            if sync.elect():
                state = pipeline.producer_start()
                for block in range(k_blocks):
                    depth = int32(block * TILE_K)
                    full = pipeline.acquire(layout.full, layout.empty, state, STAGE_BYTES)
                    tma.load(layout.a[state.stage], a_map, (depth, row), full)
                    tma.load(layout.b[state.stage], b_map, (depth, column), full)
                    state = pipeline.advance(state, stages)
        elif warp == MULTIPLIER:
            if sync.elect():
                state = pipeline.consumer_start()
                for block in range(k_blocks):
                    pipeline.wait(layout.full[state.stage], state.parity)
                    for step in range(0, ROW_BYTES, 32):  # 16 of K
                        at_a, at_b = layout.a[state.stage] + step, layout.b[state.stage] + step
                        a = tcgen05.matrix_descriptor(at_a, "128B", 16, GROUP_BYTES)
                        b = tcgen05.matrix_descriptor(at_b, "128B", 16, GROUP_BYTES)
                        tcgen05.mma_f16(d, a, b, INSTRUCTION, block > 0 or step > 0)
                    tcgen05.commit(layout.empty[state.stage])
                    state = pipeline.advance(state, stages)
                tcgen05.commit(layout.done[0])
        else:
            pipeline.wait(layout.done[0], 0)
            tcgen05.fence_after_thread_sync()
            mine = d + (warp * 32 << 16)
            for piece in range(TILE_N // COLUMNS):
                values = tcgen05.ld_32x32b(mine + piece * COLUMNS, num=COLUMNS)
                values = tcgen05.wait_ld(values)
                buffer = layout.c[warp] + (piece % 2) * PIECE_BYTES
                at = int32(column + piece * COLUMNS)
                tmem_epilogue.store(values, c_map, buffer, int32(row + warp * 32), at, "bfloat16")
            tma.wait_group_read(0)

        cuda.syncthreads()
        if warp == PRODUCER:
            tcgen05.dealloc(d, TILE_N)

    return gemm


def reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return what the kernel computes, in float64."""
    return testing.matmul_reference(a, b.T)


def compiled(arch: str = "sm_100a") -> Compiled:
    """Compile for a GPU that need not be there."""
    return make_kernel().compile(*[TensorMap] * 3, *["int32"] * 3, arch=arch)


def check(m: int = 130, n: int = 264, k: int = 328) -> float:
    """Run the kernel and return its relative error; n and k are multiples of 8."""
    a, b = (testing.random_normal((rows, k), "bfloat16", seed=rows) for rows in (m, n))
    c = testing.on_device(np.full((m, n), np.nan, ml_dtypes.bfloat16))
    boxes = (TILE_M, TILE_K), (TILE_N, TILE_K), (32, COLUMNS)
    arrays = testing.on_device(a), testing.on_device(b), c
    maps = [TensorMap.tiled(x, box, swizzle="128B") for x, box in zip(arrays, boxes, strict=True)]
    grid = -(-m // TILE_M) * -(-n // TILE_N)
    make_kernel()[grid, THREADS](*maps, *map(np.int32, (m, n, k)))
    return testing.assert_close(c, reference(a, b))


def main(argv: list[str] | None = None) -> None:
    """Run on a Blackwell GPU, or on the emulator where there is none."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    testing.run_example(check, arguments + ["--emulate"] * (not testing.has_gpu((10, 0))))


if __name__ == "__main__":
    main()
