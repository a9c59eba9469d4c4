"""Example 8: a kernel that is no GEMM: softmax of long rows, each row spread over a cluster.

A row that does not fit into one block's shared memory need not be read twice. The blocks of a
cluster each load a part of it by one bulk copy, reduce it, and tell the others their maximum and
sum by writing into *their* shared memory: ``cluster.mapa`` turns an address into that of the same
place in another block. After one cluster barrier everybody has all partial results and scales its
part, which never left shared memory. Global memory is read once and written once.

The barrier does three things: its arrive releases the remote writes, its wait acquires them, and no
block can leave before its peers have written into it, because after it nobody touches another
block any more.

What goes wrong otherwise: write to a peer before it runs (the first barrier is for that) and the
address is not there yet; ``cluster.arrive(sem="relaxed")`` would not release the writes; with
reads from the peers instead of writes a second barrier is needed, or a block that has finished
early takes its memory along.
"""

from __future__ import annotations

import math

import numpy as np
from numba import cuda
from numba.cuda.types import float32, int32

import nbtc
from nbtc import testing
from nbtc.compile import Compiled
from nbtc.device import pipeline, pointer, shared
from nbtc.intrinsics import bulk, cluster, fence, mbarrier
from nbtc.jit import Kernel

THREADS, WARPS = 256, 8
CLUSTER = 4
ALL_LANES = 0xFFFFFFFF


@nbtc.device
def block_max(value, scratch):
    """Return the largest value of all threads of the block."""
    for distance in (16, 8, 4, 2, 1):
        value = max(value, cuda.shfl_xor_sync(ALL_LANES, value, distance))
    scratch[cuda.threadIdx.x // 32] = value
    cuda.syncthreads()
    for i in range(WARPS):
        value = max(value, scratch[i])
    return value


@nbtc.device
def block_sum(value, scratch):
    """Return the sum of the values of all threads of the block."""
    for distance in (16, 8, 4, 2, 1):
        value += cuda.shfl_xor_sync(ALL_LANES, value, distance)
    scratch[cuda.threadIdx.x // 32] = value
    cuda.syncthreads()
    value = float32(0)
    for i in range(WARPS):
        value += scratch[i]
    return value


def make_kernel(part: int) -> Kernel:
    """Return the kernel (source, target): a row of 4 * ``part`` float32 per cluster."""
    layout = shared.Layout(
        row=shared.array("float32", part),
        maxima=shared.array("float32", WARPS),
        sums=shared.array("float32", WARPS),
        partial=shared.array("float32", (CLUSTER, 2)),
        full=shared.barriers(1),
    )
    part_bytes = part * 4

    @nbtc.jit(shared=layout, launch_bounds=THREADS, cluster=CLUSTER)
    def softmax(source, target):
        thread = int32(cuda.threadIdx.x)
        rank = cluster.cta_rank()
        line = cluster.cluster_id_x()
        first = rank * part
        row, partial, full = layout.row.array, layout.partial.array, layout.full[0]
        if thread == 0:
            mbarrier.init(full, 1)
            fence.mbarrier_init()
            mbarrier.arrive_expect_tx(full, part_bytes)
            bulk.load(layout.row, pointer.element(source, line, first), part_bytes, full)
        cluster.arrive()
        cluster.wait()  # all blocks of the cluster run, and the barrier is initialised
        pipeline.wait(full, 0)

        highest = float32(-math.inf)
        for i in range(thread, part, THREADS):
            highest = max(highest, row[i])
        highest = block_max(highest, layout.maxima.array)
        total = float32(0)
        for i in range(thread, part, THREADS):
            row[i] = math.exp(row[i] - highest)
            total += row[i]
        total = block_sum(total, layout.sums.array)

        if thread < CLUSTER:  # thread i tells block i
            place = cluster.mapa(layout.partial + rank * 8, thread)
            cluster.store(place, (highest, total), type="f32", vec="v2")
        cluster.arrive()
        cluster.wait()

        row_highest, row_total = highest, float32(0)
        for i in range(CLUSTER):
            row_highest = max(row_highest, partial[i, 0])
        for i in range(CLUSTER):
            row_total += partial[i, 1] * math.exp(partial[i, 0] - row_highest)
        scale = math.exp(highest - row_highest) / row_total
        for i in range(thread, part, THREADS):
            target[line, first + i] = row[i] * scale

    return softmax


def reference(source: np.ndarray) -> np.ndarray:
    """Return what the kernel computes, in float64."""
    powers = np.exp(source.astype(np.float64) - source.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def compiled(arch: str = "sm_90a") -> Compiled:
    """Compile for a GPU that need not be there."""
    return make_kernel(1024).compile("float32[:, ::1]", "float32[:, ::1]", arch=arch)


def check(rows: int = 2, part: int = 260) -> float:
    """Run the kernel and return its relative error; ``part`` is a multiple of 4."""
    source = testing.random_normal((rows, CLUSTER * part)) * np.float32(3)
    target = testing.on_device(np.full_like(source, np.nan))
    make_kernel(part)[rows * CLUSTER, THREADS](testing.on_device(source), target)
    return testing.assert_close(target, reference(source))


def main(argv: list[str] | None = None) -> None:
    testing.run_example(check, argv)


if __name__ == "__main__":
    main()
