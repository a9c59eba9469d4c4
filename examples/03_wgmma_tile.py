"""Example 3: one wgmma tile: D (64 x N) = A (64 x 64) times B (64 x N), operands in shared memory.

wgmma is the tensor-core instruction of Hopper: the 128 threads of a warpgroup issue it together, it
reads A and B from shared memory by 64-bit descriptors, runs asynchronously, and leaves D in
registers, N / 2 of each thread. One instruction takes 16 of K (32 bytes of a row), so a row of 64
elements, 128 bytes, is four instructions; the descriptor's address moves by 32 bytes each.

A descriptor says where the tile starts, how it is swizzled, and how far apart groups of 8 rows are
(8 rows of 128 bytes = 1024). It must tell the same story as the tensor map that filled the tile.
B is stored as N x K here ("K-major" like A, the layout of a weight matrix).

The order is always: ``fence``, the ``mma_async``, ``commit_group``, ``wait_group``. D is passed
through all of them, so that the compiler cannot touch it while the tensor core still writes it.

What goes wrong otherwise: another swizzle in the descriptor than in the tensor map multiplies the
right numbers in the wrong places; reading D before ``wait_group`` gives half-finished sums; a D
that the compiler must move in between makes ptxas serialise everything (nbtc raises that note as
an error).
"""

from __future__ import annotations

import numpy as np
from numba import cuda
from numba.cuda.types import int32

import nbtc
from nbtc import TensorMap, testing
from nbtc.compile import Compiled
from nbtc.device import epilogue, pipeline, shared
from nbtc.intrinsics import fence, mbarrier, tma, wgmma
from nbtc.jit import Kernel
from nbtc.ptx import registers

M, K, K_STEP = 64, 64, 16
GROUP_BYTES = 8 * 128


@nbtc.device
def store_element(value, row, column, d):
    """Store one accumulator register where it belongs."""
    d[row, column] = value


def make_kernel(n: int) -> Kernel:
    """Return the kernel (a_map, b_map, d): float16 operands, float32 result."""
    layout = shared.Layout(
        a=shared.tile("float16", (M, K), swizzle="128B"),
        b=shared.tile("float16", (n, K), swizzle="128B"),
        full=shared.barriers(1),
    )
    tile_bytes = (M + n) * K * 2
    accumulators = n // 2

    @nbtc.jit(shared=layout, launch_bounds=128)
    def multiply(a_map, b_map, out):
        thread = int32(cuda.threadIdx.x)
        full = layout.full[0]
        if thread == 0:
            mbarrier.init(full, 1)
            fence.mbarrier_init()
        cuda.syncthreads()
        if thread == 0:
            mbarrier.arrive_expect_tx(full, tile_bytes)  # both copies on one barrier
            tma.load(layout.a, a_map, (0, 0), full)
            tma.load(layout.b, b_map, (0, 0), full)
        pipeline.wait(full, 0)

        d = registers.zeros(accumulators)
        d = wgmma.fence(d)
        for k in range(0, K, K_STEP):
            a = wgmma.matrix_descriptor(layout.a + 2 * k, "128B", 16, GROUP_BYTES)
            b = wgmma.matrix_descriptor(layout.b + 2 * k, "128B", 16, GROUP_BYTES)
            d = wgmma.mma_async_f16(d, a, b, n=n)
        wgmma.commit_group()
        d = wgmma.wait_group(d, n=0)

        # Which thread and register hold which element is a fixed map that the epilogue knows.
        epilogue.each(store_element, d, 0, 0, out)

    return multiply


def reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return what the kernel computes, in float64."""
    return testing.matmul_reference(a, b.T)


def compiled(arch: str = "sm_90a") -> Compiled:
    """Compile for a GPU that need not be there."""
    return make_kernel(128).compile(TensorMap, TensorMap, "float32[:, ::1]", arch=arch)


def check(n: int = 128) -> float:
    """Run the kernel and return its relative error; n is a multiple of 8, at most 256."""
    a = testing.random_normal((M, K), "float16", seed=1)
    b = testing.random_normal((n, K), "float16", seed=2)
    d = testing.on_device(np.full((M, n), np.nan, np.float32))
    a_map = TensorMap.tiled(testing.on_device(a), (M, K), swizzle="128B")
    b_map = TensorMap.tiled(testing.on_device(b), (n, K), swizzle="128B")
    make_kernel(n)[1, 128](a_map, b_map, d)
    return testing.assert_close(d, reference(a, b))


def main(argv: list[str] | None = None) -> None:
    testing.run_example(check, argv)


if __name__ == "__main__":
    main()
