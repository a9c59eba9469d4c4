"""Example 5: the Ampere-style GEMM: cp.async, ldmatrix, mma.sync, three stages. C = A B^T in bf16.

This is how a good GEMM looked before Hopper; it runs on Hopper too, far slower than example 7.
Every thread works for every step: it copies 16 bytes at a time with ``cp.async``, waits for its own
copies, meets the others at a barrier, loads fragments with ``ldmatrix``, and feeds them to
warp-wide ``mma.sync``. Example 6 hands these jobs to hardware: TMA copies whole tiles, mbarriers
replace the barrier of all, and wgmma reads shared memory itself.

Four warps share a tile of 128 x 128, 64 x 64 each, in 128 registers per thread. A row of 64 along K
is 128 bytes; its 16-byte chunks are swizzled, or 8 rows of an ``ldmatrix`` would share their banks.

What goes wrong otherwise: ``wait_group`` covers only a thread's own copies, so without the barrier
after it a warp reads what others have not copied yet; and because that barrier comes before the
next copies start, it keeps them from overwriting a stage that another warp still reads.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
from numba import cuda
from numba.cuda.types import int32, uint32

import nbtc
from nbtc import testing
from nbtc.compile import Compiled
from nbtc.device import math32, pointer, scheduler, shared, swizzle, warp_mma
from nbtc.intrinsics import convert, cp_async, matrix
from nbtc.jit import Kernel
from nbtc.ptx import registers

TILE, TILE_K, WARP_TILE, THREADS = 128, 64, 64, 128
ROW_BYTES, K16 = TILE_K * 2, 32  # K16: bytes of the 16 elements of K that one mma takes
ROWS_PER_COPY = THREADS * 16 // ROW_BYTES


@nbtc.device
def copy_tile(tile, source, first_row, k):
    """Start the copies of 128 x 64 elements; what lies outside of the matrix becomes zero."""
    rows, depth = source.shape
    thread = int32(cuda.threadIdx.x)
    column = k + thread % 8 * 8
    column = k + thread % 8 * 8
    for i in range(TILE // ROWS_PER_COPY):
        row = thread // 8 + i * ROWS_PER_COPY
        inside = first_row + row < rows and column < depth
        target = swizzle.apply(tile + row * ROW_BYTES + thread % 8 * 16, "128B")
        origin = pointer.element(source, first_row + row, column)
        cp_async.cg(target, origin, uint32(16 if inside else 0))


@nbtc.device
def load_fragments(address, k):
    """Load 64 rows and 16 of K of a tile: 16 registers, 4 for each 16 rows."""
    at = swizzle.apply(address + k, "128B")
    top = matrix.ldmatrix(at, num=4) + matrix.ldmatrix(at + 16 * ROW_BYTES, num=4)
    at += 32 * ROW_BYTES
    return top + matrix.ldmatrix(at, num=4) + matrix.ldmatrix(at + 16 * ROW_BYTES, num=4)


@nbtc.device
def store_pair(left, right, row, column, c, columns):
    """Round two neighbours and store them as one 32-bit word."""
    if row < c.shape[0] and column < columns:
        c[row, column // 2] = convert.cvt_bf16x2_f32(right, left)


def make_kernel(stages: int = 3, group: int = 8) -> Kernel:
    """Return the kernel (a, b, c): A is M x K, B is N x K, C is M x N / 2 words of two bf16."""
    layout = shared.Layout(
        a=shared.tile("bfloat16", (TILE, TILE_K), swizzle="128B", stages=stages),
        b=shared.tile("bfloat16", (TILE, TILE_K), swizzle="128B", stages=stages),
    )

    ahead, pending = stages - 1, stages - 2  # constants of a kernel are bare names

    @nbtc.jit(shared=layout, launch_bounds=(THREADS, 2))
    def gemm(a, b, c):
        (m, k), n = a.shape, b.shape[0]
        tiles_m, tiles_n = math32.ceil_div(uint32(m), TILE), math32.ceil_div(uint32(n), TILE)
        tile_m, tile_n = scheduler.grouped(uint32(cuda.blockIdx.x), tiles_m, tiles_n, group)
        row, column = int32(tile_m * TILE), int32(tile_n * TILE)
        k_blocks = math32.ceil_div(uint32(k), TILE_K)
        warp, lane = int32(cuda.threadIdx.x) // 32, int32(cuda.threadIdx.x) % 32
        warp_row, warp_column = warp % 2 * WARP_TILE, warp // 2 * WARP_TILE
        # Lane l's row for ldmatrix: of A 16 rows by 2 chunks, of B 2 chunks by 8 rows, twice.
        a_lane = (warp_row + lane % 16) * ROW_BYTES + lane // 16 * 16
        b_lane = (warp_column + lane // 16 * 8 + lane % 8) * ROW_BYTES + lane // 8 % 2 * 16

        for block in range(ahead):
            if block < k_blocks:
                copy_tile(layout.a[block], a, row, block * TILE_K)
                copy_tile(layout.b[block], b, column, block * TILE_K)
            cp_async.commit_group()

        d = registers.zeros(128)
        for block in range(k_blocks):
            cp_async.wait_group(pending)
            cuda.syncthreads()
            stage = block % stages
            at_a, at_b = layout.a[stage] + a_lane, layout.b[stage] + b_lane
            a0, b0 = load_fragments(at_a, 0), load_fragments(at_b, 0)
            following = block + ahead
            if following < k_blocks:
                stage = following % stages
                copy_tile(layout.a[stage], a, row, following * TILE_K)
                copy_tile(layout.b[stage], b, column, following * TILE_K)
            cp_async.commit_group()  # also an empty one, so that the count goes on
            # The fragments of the next 16 of K are on their way while these are multiplied.
            a1, b1 = load_fragments(at_a, K16), load_fragments(at_b, K16)
            d = warp_mma.multiply(d, a0, b0, "bfloat16")
            a0, b0 = load_fragments(at_a, 2 * K16), load_fragments(at_b, 2 * K16)
            d = warp_mma.multiply(d, a1, b1, "bfloat16")
            a1, b1 = load_fragments(at_a, 3 * K16), load_fragments(at_b, 3 * K16)
            d = warp_mma.multiply(d, a0, b0, "bfloat16")
            d = warp_mma.multiply(d, a1, b1, "bfloat16")

        row, column = int32(row + warp_row), int32(column + warp_column)
        warp_mma.each_pair(store_pair, d, row, column, WARP_TILE, c, n)

    return gemm


def reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return what the kernel computes, in float64."""
    return testing.matmul_reference(a, b.T)


def compiled(arch: str = "sm_90a") -> Compiled:
    """Compile for a GPU that need not be there."""
    return make_kernel().compile(*["bfloat16[:, ::1]"] * 2, "uint32[:, ::1]", arch=arch)


def check(m: int = 100, n: int = 72, k: int = 200) -> float:
    """Run the kernel and return its relative error; k is a multiple of 8, n of 2."""
    a, b = (testing.random_normal((rows, k), "bfloat16", seed=rows) for rows in (m, n))
    c = testing.on_device(np.full((m, n // 2), 0xFFFFFFFF, np.uint32))
    grid = -(-m // TILE) * -(-n // TILE)
    make_kernel()[grid, THREADS](testing.on_device(a), testing.on_device(b), c)
    got, want = testing.to_numpy(c).view(ml_dtypes.bfloat16), reference(a, b)
    return testing.assert_close(got, want)


def main(argv: list[str] | None = None) -> None:
    testing.run_example(check, argv)


if __name__ == "__main__":
    main()
