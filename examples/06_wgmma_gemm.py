"""Example 6: the same GEMM with TMA and wgmma: one producer warp, one consumer warpgroup.

C = A B^T in bfloat16, as example 5, but the work is done by units that run by themselves. A thread
of the producer warp keeps the TMA unit busy round a ring of stages (example 4), a warpgroup keeps
the tensor cores busy with wgmma on what lies in shared memory (example 3), and the registers hold
nothing but accumulators: 128 rows are two wgmma of 64 x 128, 64 registers of a thread each.

A stage is given back one step late: ``wait_group(n=1)`` leaves the wgmma just issued in flight and
says that the ones before are done, so the tensor cores never wait for the loop around them. Two
blocks fit on a multiprocessor, so one computes while the other stores its tile.

What goes wrong otherwise: give back a stage right after issuing its wgmma and TMA overwrites it
while it is read; wait for everything in each step and the tensor cores idle between the steps. Rows
and columns outside of the matrices need no test here: TMA reads zeros there and writes nothing.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
from numba import cuda
from numba.cuda.types import int32, uint32

import nbtc
from nbtc import TensorMap, testing
from nbtc.compile import Compiled
from nbtc.device import epilogue, math32, pipeline, scheduler, shared
from nbtc.intrinsics import mbarrier, sync, tma, wgmma
from nbtc.jit import Kernel
from nbtc.ptx import registers

TILE, TILE_K = 128, 64
ROW_BYTES, HALF_BYTES, GROUP_BYTES = 128, 64 * 128, 8 * 128
STAGE_BYTES = 2 * TILE * TILE_K * 2
CONSUMERS, THREADS = 128, 160
COLUMNS = 64  # columns of C in one piece of the store: 128 bytes


def make_kernel(stages: int = 3, group: int = 8) -> Kernel:
    """Return the kernel (a_map, b_map, c_map, m, n, k): A is M x K, B is N x K, C is M x N."""
    layout = shared.Layout(
        a=shared.tile("bfloat16", (TILE, TILE_K), swizzle="128B", stages=stages),
        b=shared.tile("bfloat16", (TILE, TILE_K), swizzle="128B", stages=stages),
        c=shared.tile("bfloat16", (2, 64, COLUMNS), swizzle="128B"),
        full=shared.barriers(stages),
        empty=shared.barriers(stages),
    )

    @nbtc.jit(shared=layout, launch_bounds=(THREADS, 2))
    def gemm(a_map, b_map, c_map, m, n, k):
        thread = int32(cuda.threadIdx.x)
        tiles_m, tiles_n = math32.ceil_div(m, TILE), math32.ceil_div(n, TILE)
        tile_m, tile_n = scheduler.grouped(uint32(cuda.blockIdx.x), tiles_m, tiles_n, group)
        row, column = int32(tile_m * TILE), int32(tile_n * TILE)
        k_blocks = math32.ceil_div(k, TILE_K)
        if thread == 0:
            pipeline.init(layout.full, layout.empty, 1, 1)  # one arrival each
        cuda.syncthreads()

        if thread >= CONSUMERS:
            if sync.elect():
                state = pipeline.producer_start()
                for block in range(k_blocks):
                    depth = int32(block * TILE_K)
                    full = pipeline.acquire(layout.full, layout.empty, state, STAGE_BYTES)
                    tma.load(layout.a[state.stage], a_map, (depth, row), full)
                    tma.load(layout.b[state.stage], b_map, (depth, column), full)
                    state = pipeline.advance(state, stages)
        else:
            top, bottom = registers.zeros(64), registers.zeros(64)
            state = pipeline.consumer_start()
            previous = state.stage
            for block in range(k_blocks):
                pipeline.wait(layout.full[state.stage], state.parity)
                top, bottom = wgmma.fence(top), wgmma.fence(bottom)
                for step in range(0, ROW_BYTES, 32):  # 16 of K
                    at_a, at_b = layout.a[state.stage] + step, layout.b[state.stage] + step
                    a0 = wgmma.matrix_descriptor(at_a, "128B", 16, GROUP_BYTES)
                    a1 = wgmma.matrix_descriptor(at_a + HALF_BYTES, "128B", 16, GROUP_BYTES)
                    b = wgmma.matrix_descriptor(at_b, "128B", 16, GROUP_BYTES)
                    top = wgmma.mma_async_bf16(top, a0, b, n=TILE)
                    bottom = wgmma.mma_async_bf16(bottom, a1, b, n=TILE)
                wgmma.commit_group()
                top, bottom = wgmma.wait_group(top, n=1), wgmma.wait_group(bottom, n=1)
                if block > 0 and thread == 0:
                    mbarrier.arrive(layout.empty[previous])
                previous = state.stage
                state = pipeline.advance(state, stages)
            d = wgmma.wait_group(top + bottom, n=0)
            epilogue.store(d, c_map, layout.c, row, column, 1, "bfloat16", TILE, COLUMNS)
            tma.wait_group_read(0)

    return gemm


def reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return what the kernel computes, in float64."""
    return testing.matmul_reference(a, b.T)


def compiled(arch: str = "sm_90a") -> Compiled:
    """Compile for a GPU that need not be there."""
    return make_kernel().compile(*[TensorMap] * 3, *["int32"] * 3, arch=arch)


def maps(a, b, c) -> list[TensorMap]:
    """Return the tensor maps of A, B and C."""
    boxes = (a, (TILE, TILE_K)), (b, (TILE, TILE_K)), (c, (64, COLUMNS))
    return [TensorMap.tiled(array, box, swizzle="128B") for array, box in boxes]


def check(m: int = 130, n: int = 72, k: int = 200) -> float:
    """Run the kernel and return its relative error; n and k are multiples of 8."""
    a, b = (testing.random_normal((rows, k), "bfloat16", seed=rows) for rows in (m, n))
    c = testing.on_device(np.full((m, n), np.nan, ml_dtypes.bfloat16))
    sizes = map(np.int32, (m, n, k))
    grid = -(-m // TILE) * -(-n // TILE)
    make_kernel()[grid, THREADS](*maps(testing.on_device(a), testing.on_device(b), c), *sizes)
    return testing.assert_close(c, reference(a, b))


def main(argv: list[str] | None = None) -> None:
    testing.run_example(check, argv)


if __name__ == "__main__":
    main()
