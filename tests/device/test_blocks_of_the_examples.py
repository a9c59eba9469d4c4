"""Building blocks that the examples use: swizzled addresses, pointers, warp products, rings."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda
from numba.cuda.types import uint32

import nbtc
from nbtc import testing
from nbtc.device import pipeline, pointer, shared, swizzle, warp_mma
from nbtc.errors import NbtcError
from nbtc.intrinsics import memory
from nbtc.layout import swizzle as patterns
from nbtc.layout.fragments import mma_a_col, mma_a_row, mma_b_col, mma_b_row, mma_col, mma_row


@pytest.fixture(autouse=True)
def _emulator():
    with testing.emulated(1):
        yield


@pytest.mark.parametrize("mode", ["none", "32B", "64B", "128B"])
def test_swizzled_addresses_are_those_of_the_layout(mode):
    layout = shared.Layout(tile=shared.tile("float32", (32, 32), swizzle="128B"))

    @nbtc.jit(shared=layout, launch_bounds=1024)
    def kernel(out):
        offset = 4 * cuda.threadIdx.x
        start = layout.tile + 0
        out[cuda.threadIdx.x] = uint32(swizzle.apply(start + offset, mode) - start)

    out = np.zeros(1024, np.uint32)
    kernel[1, 1024](out)
    # The tile starts on the repeat of every mode, so offsets behave like addresses.
    np.testing.assert_array_equal(out, patterns.swizzle(4 * np.arange(1024), mode))


def test_an_element_pointer_reads_that_element():
    @nbtc.jit
    def kernel(source, out):
        i = cuda.threadIdx.x
        out[i] = memory.ld_global(pointer.element(source, i // 8, i % 8), type="f32")

    whole = testing.random_normal((6, 20))
    view = whole[1:5, 3:19:2]  # strides of its own in both directions
    out = np.zeros(32, np.float32)
    kernel[1, 32](view, out)
    np.testing.assert_array_equal(out, view.reshape(-1))


def _fragments(matrix, row_of, column_of, registers):
    """Return the 32-bit words of each lane and register, two neighbours along K in each."""
    words = np.zeros((32, registers), np.uint32)
    bits = matrix.view(np.uint16).astype(np.uint32)
    for lane in range(32):
        for register in range(registers):
            pair = [bits[row_of(lane, register, e), column_of(lane, register, e)] for e in range(2)]
            words[lane, register] = pair[0] | pair[1] << 16
    return words


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_warp_product_of_several_fragments(dtype):
    a = testing.random_normal((32, 16), dtype, 1)
    b = testing.random_normal((24, 16), dtype, 2)  # N x K
    a_words = _fragments(
        a,
        lambda lane, r, e: 16 * (r // 4) + mma_a_row(lane, r % 4),
        lambda lane, r, e: mma_a_col(lane, r % 4, e, 16), 8,
    )  # fmt: skip
    b_words = _fragments(
        b,
        lambda lane, r, e: 8 * (r // 2) + mma_b_col(lane),
        lambda lane, r, e: mma_b_row(lane, r % 2, e, 16), 6,
    )  # fmt: skip
    start = testing.random_normal((32, 24), seed=3)
    d_words = np.zeros((32, 24), np.float32)
    for lane in range(32):
        for r in range(24):
            row = 16 * (r // 12) + mma_row(lane, r % 4)
            d_words[lane, r] = start[row, 8 * (r // 4 % 3) + mma_col(lane, r % 4)]

    @nbtc.device
    def store(left, right, row, column, out):
        out[row, column] = left
        out[row, column + 1] = right

    @nbtc.device
    def four(words, lane, i):
        return words[lane, i], words[lane, i + 1], words[lane, i + 2], words[lane, i + 3]

    @nbtc.jit
    def kernel(a, b, d, out):
        lane = cuda.threadIdx.x
        left = four(a, lane, 0) + four(a, lane, 4)
        last = (b[lane, 4], b[lane, 5])
        right = four(b, lane, 0) + last
        total = four(d, lane, 0) + four(d, lane, 4) + four(d, lane, 8)
        total = total + four(d, lane, 12) + four(d, lane, 16) + four(d, lane, 20)
        total = warp_mma.multiply(total, left, right, dtype)
        warp_mma.each_pair(store, total, 0, 0, 24, out)

    out = np.full((32, 24), np.nan, np.float32)
    kernel[1, 32](a_words, b_words, d_words, out)
    testing.assert_close(out, testing.matmul_reference(a, b.T) + start)


RING = shared.Layout(
    full=shared.barriers(2), empty=shared.barriers(2), other=shared.barriers(3),
    data=shared.array("float32", 8),
)  # fmt: skip


@nbtc.jit(shared=RING)
def ring_of_unequal_parts(x):
    """Give a ring three empty and two full barriers."""
    pipeline.init(RING.full, RING.other, 1, 1)


@nbtc.jit(shared=RING)
def ring_of_data(x):
    """Give a ring an array in place of barriers."""
    pipeline.init(RING.data, RING.empty, 1, 1)


@nbtc.jit
def pointer_with_one_index(x):
    """Name an element of a matrix by one index."""
    pointer.element(x, 3)


@nbtc.jit
def product_of_unequal_parts(x):
    """Give a product accumulators of another shape."""
    d = (x[0, 0], x[0, 1], x[0, 2], x[0, 3])
    a = (uint32(1), uint32(1), uint32(1), uint32(1))
    warp_mma.multiply(d, a, a, "bfloat16")


@nbtc.jit(shared=RING)
def unknown_swizzle(x):
    """Ask for a swizzle that does not exist."""
    swizzle.apply(RING.data, "256B")


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (ring_of_unequal_parts, "2 full and 3 empty barriers; a ring has one of each per stage"),
        (ring_of_data, "full is .*, needs barriers of a shared layout"),
        (pointer_with_one_index, "1 indices for an array of 2 dimensions"),
        (product_of_unequal_parts, r"d has 4 registers, needs 1 \* 2 \* 4 = 8"),
        (unknown_swizzle, "swizzle '256B'; must be one of"),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_errors_say_what_is_needed(kernel, message):
    with pytest.raises(NbtcError, match=message):
        kernel.compile("float32[:, ::1]", arch="sm_90a")


def test_an_empty_ring_has_the_counts_it_was_given():
    layout = shared.Layout(full=shared.barriers(3), empty=shared.barriers(3))

    @nbtc.jit(shared=layout, launch_bounds=64)
    def kernel(out):
        thread = cuda.threadIdx.x
        if thread == 0:
            pipeline.init(layout.full, layout.empty, 1, 32)
        cuda.syncthreads()
        if thread < 32:
            state = pipeline.consumer_start()
            for i in range(6):
                pipeline.wait(layout.full[state.stage], state.parity)
                out[i, thread] = 10 * i + state.stage
                nbtc.intrinsics.mbarrier.arrive(layout.empty[state.stage])
                state = pipeline.advance(state, 3)
        elif thread == 32:
            state = pipeline.producer_start()
            for _ in range(6):
                pipeline.acquire(layout.full, layout.empty, state, 0)
                state = pipeline.advance(state, 3)

    out = np.zeros((6, 32), np.int32)
    kernel[1, 64](out)
    np.testing.assert_array_equal(out[:, 5], [0, 11, 22, 30, 41, 52])
