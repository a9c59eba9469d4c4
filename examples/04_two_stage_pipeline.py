"""Example 4: a two-stage pipeline: TMA fills one stage while threads work on the other.

A ring of stages, each with a ``full`` and an ``empty`` barrier. A producer thread walks round the
ring: wait until the stage is empty, expect its bytes, start the copy, go on to the next stage at
once. The consumers walk behind it: wait until the stage is full, use it, arrive on ``empty``. The
copy of the next tile then runs while this one is being added up, and the only state that anybody
keeps is (stage, parity), which ``pipeline.advance`` moves along: the parity flips whenever the
stage wraps to 0, and it is never reset.

The kernel sums the columns of a matrix, one block for each 128 columns. Try ``--stages 1``: still
right, but copy and sum take turns. It is the first thing to try when a result is wrong: if one
stage is right and two are not, it is a race; if both are wrong, it is the layout.

What goes wrong otherwise: a parity kept per loop instead of carried is right only while the number
of tiles is even; an ``arrive`` before the last read lets TMA overwrite the tile; rows over the
edge are zeros, but their bytes count, so ``expect_tx`` always takes the bytes of a whole box.
"""

from __future__ import annotations

import numpy as np
from numba import cuda
from numba.cuda.types import float32, int32

import nbtc
from nbtc import TensorMap, testing
from nbtc.compile import Compiled
from nbtc.device import pipeline, shared
from nbtc.intrinsics import fence, mbarrier, sync, tma
from nbtc.jit import Kernel

ROWS, COLUMNS = 16, 128
STAGE_BYTES = ROWS * COLUMNS * 4
CONSUMERS = 128
THREADS = CONSUMERS + 32  # the last warp is the producer


def make_kernel(stages: int = 2) -> Kernel:
    """Return the kernel (source_map, sums, m): float32 sums of 128 columns per block."""
    layout = shared.Layout(
        tile=shared.tile("float32", (ROWS, COLUMNS), stages=stages),
        full=shared.barriers(stages),
        empty=shared.barriers(stages),
    )

    @nbtc.jit(shared=layout, launch_bounds=THREADS)
    def sum_columns(source_map, sums, m):
        thread = int32(cuda.threadIdx.x)
        first = int32(cuda.blockIdx.x * COLUMNS)
        if thread == 0:
            for stage in range(stages):
                mbarrier.init(layout.full[stage], 1)
                mbarrier.init(layout.empty[stage], CONSUMERS)
            fence.mbarrier_init()
        cuda.syncthreads()

        if thread >= CONSUMERS:
            if sync.elect():
                state = pipeline.producer_start()
                for row in range(0, m, ROWS):
                    full = layout.full[state.stage]
                    pipeline.wait(layout.empty[state.stage], state.parity)
                    mbarrier.arrive_expect_tx(full, STAGE_BYTES)
                    tma.load(layout.tile[state.stage], source_map, (first, int32(row)), full)
                    state = pipeline.advance(state, stages)
        else:
            tile = layout.tile.array
            total = float32(0)
            state = pipeline.consumer_start()
            for _ in range(0, m, ROWS):
                pipeline.wait(layout.full[state.stage], state.parity)
                for i in range(ROWS):
                    total += tile[state.stage, i, thread]
                mbarrier.arrive(layout.empty[state.stage])
                state = pipeline.advance(state, stages)
            if first + thread < sums.size:
                sums[first + thread] = total

    return sum_columns


def reference(source: np.ndarray) -> np.ndarray:
    """Return what the kernel computes, in float64."""
    return source.astype(np.float64).sum(axis=0)


def compiled(arch: str = "sm_90a") -> Compiled:
    """Compile for a GPU that need not be there."""
    return make_kernel().compile(TensorMap, "float32[::1]", "int32", arch=arch)


def check(m: int = 107, n: int = 200, stages: int = 2) -> float:
    """Run the kernel and return its relative error; n is a multiple of 4."""
    source = testing.random_normal((m, n))
    sums = testing.on_device(np.full(n, np.nan, np.float32))
    source_map = TensorMap.tiled(testing.on_device(source), (ROWS, COLUMNS))
    make_kernel(stages)[-(-n // COLUMNS), THREADS](source_map, sums, np.int32(m))
    return testing.assert_close(sums, reference(source))


def main(argv: list[str] | None = None) -> None:
    testing.run_example(check, argv)


if __name__ == "__main__":
    main()
