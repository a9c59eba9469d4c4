"""Example 12: a GEMM of 4-bit floats with scale factors (nvfp4): C = (A SA) (B SB)^T on Blackwell.

An nvfp4 number has four bits; 16 neighbours along K share an eight-bit factor (ue4m3). One mma of
kind mxf4nvf4 takes 64 of K and four factors of each row, a 32-bit word in tensor memory.

On the host ``gemm.quantize`` rounds a matrix and lays the factors out: 128 rows by four factors are
512 bytes in the order of ``nbtc.layout.scale_factors``. TMA brings those of a k-block along, and
``tcgen05.cp`` copies each 512 bytes to four columns of tensor memory, once for every 32 lanes. The
thread that multiplies copies, too: the tensor core keeps the order of its operations. Roles, ring
and epilogue are those of example 11.

What goes wrong otherwise: hand the factors over in plain row order and every number is scaled by
another row's factor; expect the bytes of the tiles alone and the factors are copied while they
arrive; leave a copy out and the tensor core multiplies by what the columns held before.
"""

from __future__ import annotations

import sys

import numpy as np
from numba import cuda
from numba.cuda.types import int32

import nbtc
from nbtc import TensorMap, gemm, testing
from nbtc.compile import Compiled
from nbtc.device import math32, pipeline, shared, tmem_epilogue
from nbtc.intrinsics import address, mbarrier, sync, tcgen05, tma
from nbtc.jit import Kernel
from nbtc.layout.instruction_descriptor import InstructionDescriptor

TILE, TILE_K, BLOCK, STEPS = 128, 256, 16, 4  # a step is 64 of K: 32 bytes, one word of factors
SCALE_BYTES, SCALE_WORDS = STEPS * 512, STEPS * 64  # TMA words of 8 bytes
STAGE_BYTES = 2 * (TILE * TILE_K // 2 + SCALE_BYTES)
PRODUCER, MULTIPLIER, THREADS = 4, 5, 192  # warps 0 to 3 are the epilogue
COLUMNS, PIECE_BYTES = 32, 32 * 128  # of C in one store: 128 bytes of float32 a row
CODE = InstructionDescriptor("mxf4nvf4", TILE, TILE, "e2m1", "e2m1", scale="ue4m3").encode()
D_COLUMNS, STAGE_COLUMNS = TILE, 2 * STEPS * 4  # a word of 128 rows takes four columns


def make_kernel(stages: int = 4) -> Kernel:
    """Return the kernel (a_map, sa_map, b_map, sb_map, c_map, k); grid (tiles of N, of M)."""
    layout = shared.Layout(
        a=shared.tile("float4_e2m1fn", (TILE, TILE_K), swizzle="128B", stages=stages),
        b=shared.tile("float4_e2m1fn", (TILE, TILE_K), swizzle="128B", stages=stages),
        sa=shared.tile("uint8", SCALE_BYTES, stages=stages),
        sb=shared.tile("uint8", SCALE_BYTES, stages=stages),
        c=shared.tile("float32", (2, 32, COLUMNS), swizzle="128B", stages=4),
        full=shared.barriers(stages), empty=shared.barriers(stages), done=shared.barriers(1),
        slot=shared.array("uint32", 1),
    )  # fmt: skip

    @nbtc.jit(shared=layout, launch_bounds=THREADS, arch="sm_100a")
    def multiply(a_map, sa_map, b_map, sb_map, c_map, k):
        warp = int32(cuda.threadIdx.x // 32)
        tile_m, tile_n = int32(cuda.blockIdx.y), int32(cuda.blockIdx.x)
        row, column = int32(tile_m * TILE), int32(tile_n * TILE)
        if cuda.threadIdx.x == 0:
            mbarrier.init(layout.done[0], 1)
            pipeline.init(layout.full, layout.empty, 1, 1)
        if warp == PRODUCER:
            tcgen05.alloc(layout.slot, 256)  # D and the factors of all stages
            tcgen05.relinquish_alloc_permit()
        cuda.syncthreads()
        d = address.tmem(layout.slot.array[0])

        if warp == PRODUCER:
            if sync.elect():
                state = pipeline.producer_start()
                for block in range(math32.ceil_div(k, TILE_K)):
                    full = pipeline.acquire(layout.full, layout.empty, state, STAGE_BYTES)
                    depth, word = int32(block * TILE_K), int32(block * SCALE_WORDS)
                    tma.load(layout.a[state.stage], a_map, (depth, row), full)
                    tma.load(layout.b[state.stage], b_map, (depth, column), full)
                    tma.load(layout.sa[state.stage], sa_map, (word, tile_m), full)
                    tma.load(layout.sb[state.stage], sb_map, (word, tile_n), full)
                    state = pipeline.advance(state, stages)
        elif warp == MULTIPLIER:
            if sync.elect():
                state = pipeline.consumer_start()
                for block in range(math32.ceil_div(k, TILE_K)):
                    s = state.stage
                    pipeline.wait(layout.full[s], state.parity)
                    for step in range(STEPS):
                        sfa = d + (D_COLUMNS + s * STAGE_COLUMNS + 4 * step)
                        sfb = sfa + STAGE_COLUMNS // 2
                        sa = tcgen05.matrix_descriptor(layout.sa[s] + 512 * step, "none", 16, 128)
                        sb = tcgen05.matrix_descriptor(layout.sb[s] + 512 * step, "none", 16, 128)
                        tcgen05.cp(sfa, sa, shape="32x128b", multicast="warpx4")
                        tcgen05.cp(sfb, sb, shape="32x128b", multicast="warpx4")
                        a = tcgen05.matrix_descriptor(layout.a[s] + 32 * step, "128B", 16, 1024)
                        b = tcgen05.matrix_descriptor(layout.b[s] + 32 * step, "128B", 16, 1024)
                        more = block > 0 or step > 0
                        tcgen05.mma_mxf4nvf4(d, a, b, CODE, sfa, sfb, more, scale_vec="block16")
                    tcgen05.commit(layout.empty[s])
                    state = pipeline.advance(state, stages)
                tcgen05.commit(layout.done[0])
        else:
            pipeline.wait(layout.done[0], 0)
            tcgen05.fence_after_thread_sync()
            for piece in range(TILE // COLUMNS):
                values = tcgen05.ld_32x32b(d + (warp * 32 << 16) + piece * COLUMNS, num=COLUMNS)
                buffer = layout.c[warp] + (piece % 2) * PIECE_BYTES
                at, right = int32(row + warp * 32), int32(column + piece * COLUMNS)
                tmem_epilogue.store(tcgen05.wait_ld(values), c_map, buffer, at, right, "float32")
            tma.wait_group_read(0)

        cuda.syncthreads()
        if warp == PRODUCER:
            tcgen05.dealloc(d, 256)

    return multiply


def reference(a: gemm.Quantized, b: gemm.Quantized) -> np.ndarray:
    """Return what the kernel computes, in float64."""
    return testing.matmul_reference(a.dequantize(), b.T.dequantize())


def compiled(arch: str = "sm_100a") -> Compiled:
    """Compile for a GPU that need not be there."""
    return make_kernel().compile(*[TensorMap] * 5, "int32", arch=arch)


def maps(q: gemm.Quantized) -> list[TensorMap]:
    """Return the maps of the elements and of the scale factors of a matrix."""
    factors = q.scales.view(np.uint64).reshape(-(-q.rows // TILE), -1)
    elements = TensorMap.tiled(q.data, (TILE, TILE_K), swizzle="128B", dtype="16U4_ALIGN8B")
    return [elements, TensorMap.tiled(factors, (1, SCALE_WORDS))]


def check(m: int = 130, n: int = 200, k: int = 600) -> float:
    """Run the kernel and return its relative error; n is a multiple of 4."""
    numbers = (testing.random_normal((rows, k), seed=rows) for rows in (m, n))
    a, b = (gemm.quantize(x, "float4_e2m1fn", block=BLOCK) for x in numbers)
    c = np.full((m, n), np.nan, np.float32)
    c_map = TensorMap.tiled(c, (32, COLUMNS), swizzle="128B")
    make_kernel()[(-(-n // TILE), -(-m // TILE)), THREADS](*maps(a), *maps(b), c_map, np.int32(k))
    return testing.assert_close(c, reference(a, b))


def main(argv: list[str] | None = None) -> None:
    """Run on the emulator; on a Blackwell GPU the arrays would have to be copied to it."""
    testing.run_example(check, [*(sys.argv[1:] if argv is None else argv), "--emulate"])


if __name__ == "__main__":
    main()
