"""The wgmma of one k-block against NumPy, for every layout of its operands."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda
from numba.cuda.types import int32

import nbtc
from nbtc import TensorMap, shared, testing
from nbtc.device import epilogue, mma, pipeline
from nbtc.errors import InstructionError, LayoutError
from nbtc.intrinsics import mbarrier, tma, wgmma
from nbtc.ptx import registers


@pytest.fixture(autouse=True)
def _emulate(monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")


@pytest.mark.parametrize(
    ("dtype", "m", "n", "k", "a_major", "b_major"),
    [
        ("bfloat16", 64, 24, 16, "K", "K"),
        ("float16", 64, 40, 32, "K", "K"),
        ("bfloat16", 128, 64, 128, "MN", "MN"),
        ("bfloat16", 64, 96, 48, "K", "MN"),
    ],
)
def test_a_block_against_numpy(dtype, m, n, k, a_major, b_major):
    a_tile, b_tile = mma.operand_tile(m, k, dtype, a_major), mma.operand_tile(n, k, dtype, b_major)
    layout = shared.Layout(
        a=shared.tile(dtype, a_tile.shape, swizzle=a_tile.swizzle),
        b=shared.tile(dtype, b_tile.shape, swizzle=b_tile.swizzle),
        full=shared.barriers(1),
    )
    total = a_tile.size_bytes + b_tile.size_bytes
    a_copies, a_bytes, a_span = a_tile.copies, a_tile.box_bytes, a_tile.box[1]
    b_copies, b_bytes, b_span = b_tile.copies, b_tile.box_bytes, b_tile.box[1]
    count = m // 64 * n // 2
    half = n // 2
    last = count - half

    @nbtc.device
    def keep(value, row, column, out):
        out[row, column] = value

    @nbtc.jit(shared=layout, launch_bounds=128)
    def kernel(a_map, b_map, out):
        thread = int32(cuda.threadIdx.x)
        if thread == 0:
            mbarrier.init(layout.full[0], 1)
        cuda.syncthreads()
        if thread == 0:
            mbarrier.arrive_expect_tx(layout.full[0], total)
            for i in range(a_copies):
                tma.load(layout.a + i * a_bytes, a_map, (int32(i * a_span), 0), layout.full[0])
            for i in range(b_copies):
                tma.load(layout.b + i * b_bytes, b_map, (int32(i * b_span), 0), layout.full[0])
        pipeline.wait(layout.full[0], 0)
        d = wgmma.fence(registers.undefined(count))
        d = mma.block(d, layout.a, layout.b, True, dtype, m, n, k, m, n, a_major, b_major)
        wgmma.commit_group()
        d = wgmma.wait_group(d, n=0)
        epilogue.each(keep, registers.take(d, 0, half), 0, 0, out)
        if count > half:
            epilogue.each(keep, registers.take(d, last, half), 64, 0, out)

    a = testing.random_normal((m, k) if a_major == "K" else (k, m), dtype)
    b = testing.random_normal((n, k) if b_major == "K" else (k, n), dtype, 1)
    maps = [
        TensorMap.tiled(x, tile.box, swizzle=tile.swizzle) for x, tile in ((a, a_tile), (b, b_tile))
    ]
    out = np.full((m, n), np.nan, np.float32)
    kernel[1, 128](*maps, out)
    left = a if a_major == "K" else a.T
    right = b.T if b_major == "K" else b
    testing.assert_close(out, testing.matmul_reference(left, right))


layout = shared.Layout(
    a=shared.tile("bfloat16", (64, 64), swizzle="128B"),
    b=shared.tile("bfloat16", (64, 64), swizzle="128B"),
)


def wrong_dtype(out):
    d = registers.zeros(32)
    mma.block(d, layout.a, layout.b, True, "float32", 64, 64, 64, 64, 64)


def wrong_rows(out):
    d = registers.zeros(32)
    mma.block(d, layout.a, layout.b, True, "bfloat16", 32, 64, 64, 64, 64)


def wrong_count(out):
    d = registers.zeros(16)
    mma.block(d, layout.a, layout.b, True, "bfloat16", 64, 64, 64, 64, 64)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (wrong_dtype, "dtype='float32'; legal: bfloat16, float16"),
        (wrong_rows, "m=32; one wgmma covers 64 rows"),
        (wrong_count, "d has 16 registers, needs .* 64 / 64 \\* 64 / 2 = 32"),
    ],
)
def test_wrong_arguments(function, text):
    with pytest.raises(InstructionError, match=text):
        nbtc.jit(shared=layout, launch_bounds=128)(function).compile("float32[::1]", arch="sm_90a")


def test_tiles_take_the_widest_swizzle_that_their_rows_fill():
    for k, swizzle in ((16, "32B"), (32, "64B"), (48, "32B"), (64, "128B"), (128, "128B")):
        assert mma.operand_tile(64, k, "bfloat16", "K").swizzle == swizzle
    assert mma.operand_tile(96, 16, "bfloat16", "MN").swizzle == "64B"
    with pytest.raises(LayoutError, match="rows of 16 B; needs a multiple of 32 B"):
        mma.operand_tile(64, 8, "bfloat16", "K")
