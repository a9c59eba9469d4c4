"""Example 7: the full Hopper GEMM, C = gelu(A B^T + bias): persistent, multicast, own epilogue.

Three ideas on top of example 6:

* Persistent: as many clusters as the GPU holds walk over all tiles. Pipeline states are carried
  along, so the next tile is loaded while this one is stored. Two consumer warpgroups take 64 of 128
  rows each; ``setmaxnreg`` moves registers to them, who hold 128 accumulators each.
* Multicast: the two blocks of a cluster work on tiles below each other and need the same columns of
  B. Each loads half of them into the shared memory of both. A stage may be refilled only when the
  consumers of both blocks have released it: ``empty`` expects arrivals from all four.
* The epilogue is a Python function of (value, row, column, ...), inlined into the store.

What goes wrong otherwise: without the cluster barrier at the start a copy arrives at a barrier that
the peer has not initialised; without the one at the end it writes into a block that has left; an
``empty`` that counts only the block's own consumers lets the peer overwrite a stage in use.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
from numba import cuda
from numba.cuda.types import int32

import nbtc
from nbtc import TensorMap, testing
from nbtc.compile import Compiled
from nbtc.device import epilogue, math32, mma, pipeline, scheduler, shared
from nbtc.intrinsics import cluster, packed, sync, tma, wgmma
from nbtc.jit import Kernel
from nbtc.ptx import registers

M, N, K = 128, 256, 64  # tile of a block
ROWS, HALF_N, COLUMNS = 64, N // 2, 64  # of a consumer; of a multicast part of B; of a store
A_BYTES, PART_BYTES, STAGE_BYTES = ROWS * K * 2, HALF_N * K * 2, (M + N) * K * 2
CONSUMERS, CLUSTER, THREADS, GROUP = 2, 2, 384, 8
ARRIVALS, PAIR_M = CONSUMERS * CLUSTER, CLUSTER * M  # constants of a kernel are bare names


HALF, SCALE, CUBIC = map(np.float32, (0.5, 0.7978846, 0.0356774))  # a Python float has 64 bits


@nbtc.device
def bias_gelu(value, row, column, bias):
    """Return gelu(value + bias[column]) in its usual tanh form; columns may lie outside of C."""
    x = value + bias[min(column, bias.size - 1)]
    return HALF * x + HALF * x * packed.tanh_f32(x * (SCALE + CUBIC * (x * x)))


def make_kernel(stages: int = 4, function=bias_gelu) -> Kernel:
    """Return the kernel (a_map, b_map, c_map, m, n, k, bias): A is M x K, B is N x K."""
    layout = shared.Layout(
        a=shared.tile("bfloat16", (M, K), swizzle="128B", stages=stages),
        b=shared.tile("bfloat16", (N, K), swizzle="128B", stages=stages),
        c=shared.tile("bfloat16", (2, ROWS, COLUMNS), swizzle="128B", stages=CONSUMERS),
        full=shared.barriers(stages),
        empty=shared.barriers(stages),
    )

    @nbtc.jit(shared=layout, launch_bounds=THREADS, cluster=CLUSTER)
    def gemm(a_map, b_map, c_map, m, n, k, bias):
        thread, rank = int32(cuda.threadIdx.x), cluster.cta_rank()
        if thread == 0:
            pipeline.init(layout.full, layout.empty, 1, ARRIVALS)
        cluster.arrive(sem="relaxed")
        cluster.wait()

        tiles_m, tiles_n = math32.ceil_div(m, PAIR_M), math32.ceil_div(n, N)
        tiles, k_blocks = math32.mul(tiles_m, tiles_n), int32(math32.ceil_div(k, K))
        tile, step = cluster.cluster_id_x(), cluster.num_cluster_x()
        if thread < 128:
            sync.setmaxnreg_dec(40)
            if thread < 32 and sync.elect():
                state = pipeline.producer_start()
                while tile < tiles:
                    tile_m, tile_n = scheduler.grouped(tile, tiles_m, tiles_n, GROUP)
                    row = int32((tile_m * CLUSTER + rank) * M)
                    column = int32(tile_n * N + rank * HALF_N)
                    for block in range(k_blocks):
                        full = pipeline.acquire(layout.full, layout.empty, state, STAGE_BYTES)
                        tma.load(layout.a[state.stage], a_map, (int32(block * K), row), full)
                        b_part = layout.b[state.stage] + rank * PART_BYTES
                        tma.load(b_part, b_map, (int32(block * K), column), full, 0b11)
                        state = pipeline.advance(state, stages)
                    tile = math32.add(tile, step)
                pipeline.drain(layout.empty, state)  # the peer's last arrivals find this CTA alive
        else:
            sync.setmaxnreg_inc(232)
            consumer, lane = int32(thread // 128 - 1), int32(thread % 128)
            state = pipeline.consumer_start()
            while tile < tiles:
                tile_m, tile_n = scheduler.grouped(tile, tiles_m, tiles_n, GROUP)
                row = int32((tile_m * CLUSTER + rank) * M + consumer * ROWS)
                d = registers.zeros(HALF_N)  # 64 x N float32 over 128 threads
                previous = state.stage
                for block in range(k_blocks):
                    pipeline.wait(layout.full[state.stage], state.parity)
                    a, b = layout.a[state.stage] + consumer * A_BYTES, layout.b[state.stage]
                    d = wgmma.fence(d)
                    d = mma.block(d, a, b, block == 0, "bfloat16", ROWS, N, K, M, N)
                    wgmma.commit_group()
                    d = wgmma.wait_group(d, n=1)
                    if block > 0:
                        pipeline.release(layout.empty[previous], lane, CLUSTER)
                    previous = state.stage
                    state = pipeline.advance(state, stages)
                d = wgmma.wait_group(d, n=0)
                pipeline.release(layout.empty[previous], lane, CLUSTER)
                epilogue.store(d, c_map, layout.c[consumer], row, int32(tile_n * N),
                               int32(consumer + 1), "bfloat16", N, COLUMNS, 2, None, function,
                               (bias,))  # fmt: skip
                tile = math32.add(tile, step)
            tma.wait_group_read(0)

    return gemm


def reference(a: np.ndarray, b: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Return what the kernel computes, in float64."""
    x = testing.matmul_reference(a, b.T) + bias
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def compiled(arch: str = "sm_90a") -> Compiled:
    return make_kernel().compile(*[TensorMap] * 3, *["int32"] * 3, "float32[::1]", arch=arch)


def maps(a, b, c) -> list[TensorMap]:
    boxes = (a, (M, K)), (b, (HALF_N, K)), (c, (ROWS, COLUMNS))
    return [TensorMap.tiled(array, box, swizzle="128B") for array, box in boxes]


def check(m: int = 200, n: int = 264, k: int = 136, blocks: int = 2) -> float:
    """Run the kernel and return its relative error; n and k are multiples of 8, blocks of 2."""
    a, b = (testing.random_normal((rows, k), "bfloat16", seed=rows) for rows in (m, n))
    bias = testing.random_normal(n)
    c = testing.on_device(np.full((m, n), np.nan, ml_dtypes.bfloat16))
    sizes, device = map(np.int32, (m, n, k)), testing.on_device
    make_kernel()[blocks, THREADS](*maps(device(a), device(b), c), *sizes, device(bias))
    return testing.assert_close(c, reference(a, b, bias))


def main(argv: list[str] | None = None) -> None:
    testing.run_example(check, argv)


if __name__ == "__main__":
    main()
