"""Example 2: transpose a matrix: TMA load, read through the swizzle, TMA store.

One thread asks the TMA unit for a whole 32 x 32 tile; everybody waits on one mbarrier that counts
its bytes. A row of the tile is 128 bytes, all 32 banks of shared memory, so a warp that reads or
writes a column would hit one bank 32 times. With the 128B swizzle TMA permutes the 16-byte chunks
of each row (chunk c of row r lies at c XOR r mod 8), and a column is spread over 8 chunks.

The pattern is an XOR on absolute shared addresses: take the plain row-major address and send it
through ``swizzle.apply``, for reading what TMA loaded and for writing what TMA shall store. The
tile must start on a multiple of 1024 bytes; ``shared.tile(..., swizzle="128B")`` sees to that.

What goes wrong otherwise: read without the swizzle and three quarters of the numbers are from the
wrong columns; forget ``expect_tx`` and the wait returns before the data is there; forget
``fence.proxy_async`` and TMA, which looks at shared memory through another proxy, may store what
was there before the threads wrote; leave without ``wait_group_read`` and the block's memory goes to
the next one while TMA still reads it.
"""

from __future__ import annotations

import numpy as np
from numba import cuda
from numba.cuda.types import int32

import nbtc
from nbtc import TensorMap, testing
from nbtc.compile import Compiled
from nbtc.device import pipeline, shared, swizzle
from nbtc.intrinsics import fence, mbarrier, memory, tma
from nbtc.jit import Kernel

TILE = 32
ROW_BYTES = TILE * 4
TILE_BYTES = TILE * ROW_BYTES
THREADS = 128


def make_kernel() -> Kernel:
    """Return the kernel (source_map, target_map): one 32 x 32 tile of float32 per block."""
    layout = shared.Layout(
        loaded=shared.tile("float32", (TILE, TILE), swizzle="128B"),
        turned=shared.tile("float32", (TILE, TILE), swizzle="128B"),
        full=shared.barriers(1),
    )

    @nbtc.jit(shared=layout, launch_bounds=THREADS)
    def transpose(source_map, target_map):
        thread = int32(cuda.threadIdx.x)
        x = int32(cuda.blockIdx.x * TILE)
        y = int32(cuda.blockIdx.y * TILE)
        full = layout.full[0]
        if thread == 0:
            mbarrier.init(full, 1)
            fence.mbarrier_init()  # the TMA unit must see it too
        cuda.syncthreads()

        if thread == 0:
            mbarrier.arrive_expect_tx(full, TILE_BYTES)
            tma.load(layout.loaded, source_map, (x, y), full)  # coordinates: innermost first
        pipeline.wait(full, 0)

        column = thread % 32
        for row in range(thread // 32, TILE, THREADS // 32):
            source = swizzle.apply(layout.loaded + row * ROW_BYTES + column * 4, "128B")
            target = swizzle.apply(layout.turned + column * ROW_BYTES + row * 4, "128B")
            memory.st_shared(target, memory.ld_shared(source, type="f32"), type="f32")

        fence.proxy_async()  # each writer, before the barrier
        cuda.syncthreads()
        if thread == 0:
            tma.store(target_map, (y, x), layout.turned)
            tma.commit_group()
            tma.wait_group_read(0)

    return transpose


def reference(source: np.ndarray) -> np.ndarray:
    """Return what the kernel computes."""
    return source.astype(np.float64).T


def compiled(arch: str = "sm_90a") -> Compiled:
    """Compile for a GPU that need not be there."""
    return make_kernel().compile(TensorMap, TensorMap, arch=arch)


def check(m: int = 80, n: int = 68) -> float:
    """Run the kernel and return its relative error; m and n are multiples of 4."""
    source = testing.random_normal((m, n))
    target = testing.on_device(np.full((n, m), np.nan, np.float32))
    maps = [
        TensorMap.tiled(array, (TILE, TILE), swizzle="128B")
        for array in (testing.on_device(source), target)
    ]
    grid = (-(-n // TILE), -(-m // TILE))
    make_kernel()[grid, THREADS](*maps)  # tiles may hang over the edge: TMA clips them
    return testing.assert_close(target, reference(source), tol=0)


def main(argv: list[str] | None = None) -> None:
    testing.run_example(check, argv)


if __name__ == "__main__":
    main()
