"""Example 1: one warp hands a box of data to another warp through two mbarriers.

An mbarrier counts arrivals. When all that it expects have come, its phase is over, the count starts
afresh, and whoever waited for that phase goes on. Two of them make a hand-over:

* ``full``: the producer's lanes arrive after they have written the box; the consumer waits.
* ``empty``: the consumer's lanes arrive after they have read it; the producer waits.

A waiter names the phase by its parity, 0 or 1, and the parity must flip each time round. A fresh
barrier is in phase 0, and "the phase before it" counts as complete. So the consumer starts with
parity 0 (it blocks until the first box is full) and the producer with parity 1 (it passes at once:
nobody has to empty a box that was never filled). ``pipeline`` keeps that parity.

What goes wrong otherwise: a producer that starts with parity 0 waits for ever; without ``empty`` it
overwrites what is still being read; without the flip the second wait returns at once and reads the
old box. All three hang or give wrong numbers on a GPU now and then; the emulator names the line.
"""

from __future__ import annotations

import numpy as np
from numba import cuda
from numba.cuda.types import int32

import nbtc
from nbtc import testing
from nbtc.compile import Compiled
from nbtc.device import pipeline, shared
from nbtc.intrinsics import mbarrier
from nbtc.jit import Kernel

LANES = 32


def make_kernel(boxes: int) -> Kernel:
    """Return the kernel (source, target): ``boxes`` hand-overs of 32 float32 each."""
    layout = shared.Layout(
        box=shared.array("float32", LANES),
        full=shared.barriers(1),
        empty=shared.barriers(1),
    )

    @nbtc.jit(shared=layout, launch_bounds=2 * LANES)
    def hand_over(source, target):
        thread = int32(cuda.threadIdx.x)
        lane = thread % LANES
        box = layout.box.array
        full = layout.full[0]
        empty = layout.empty[0]
        if thread == 0:
            # Every lane of the other warp arrives by itself, so each barrier expects 32.
            mbarrier.init(full, LANES)
            mbarrier.init(empty, LANES)
        cuda.syncthreads()  # nobody touches a barrier before it is initialised

        if thread < LANES:
            state = pipeline.producer_start()
            for i in range(boxes):
                pipeline.wait(empty, state.parity)
                box[lane] = 2 * source[i, lane]
                mbarrier.arrive(full)  # releases the write above
                state = pipeline.advance(state, 1)
        else:
            state = pipeline.consumer_start()
            for i in range(boxes):
                pipeline.wait(full, state.parity)  # acquires it
                target[i, lane] = box[LANES - 1 - lane]
                mbarrier.arrive(empty)
                state = pipeline.advance(state, 1)

    return hand_over


def reference(source: np.ndarray) -> np.ndarray:
    """Return what the kernel computes, in float64."""
    return 2 * source.astype(np.float64)[:, ::-1]


def compiled(arch: str = "sm_90a") -> Compiled:
    """Compile for a GPU that need not be there."""
    return make_kernel(5).compile("float32[:, ::1]", "float32[:, ::1]", arch=arch)


def check(boxes: int = 5) -> float:
    """Run the kernel and return its relative error."""
    source = testing.random_normal((boxes, LANES))
    target = testing.on_device(np.full_like(source, np.nan))
    make_kernel(boxes)[1, 2 * LANES](testing.on_device(source), target)
    return testing.assert_close(target, reference(source), tol=0)


def main(argv: list[str] | None = None) -> None:
    testing.run_example(check, argv)


if __name__ == "__main__":
    main()
