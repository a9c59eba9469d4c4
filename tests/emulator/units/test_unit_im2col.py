"""Im2col copies against convolutions written as loops."""

from __future__ import annotations

import numpy as np
import pytest

from nbtc.emulator.units import UnitFault, tma
from nbtc.emulator.units.im2col import plan_im2col
from nbtc.layout.tensormap_description import TensorMapDescription

BASE = 0x7000_0000


def flat(array):
    return array.view(np.uint8).reshape(-1)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("swizzle", ["none", "128B"])
def test_columns_of_a_convolution(stride, swizzle):
    # NHWC, 3x3 filter, padding 1: every output pixel in turn, 20 per copy.
    rng = np.random.default_rng(0)
    images = rng.integers(1, 1 << 15, (2, 7, 9, 64)).astype(np.uint16)
    pad, filter_size, pixels = 1, 3, 20
    low, high = -pad, pad - (filter_size - 1)
    m = TensorMapDescription.im2col(
        images.shape, "uint16", (low, low), (high, high), channels_per_pixel=64,
        pixels_per_column=pixels, swizzle=swizzle, address=BASE,
        element_strides=(1, stride, stride, 1),
    )  # fmt: skip
    padded = np.zeros((2, 7 + 2, 9 + 2, 64), np.uint16)
    padded[:, 1:-1, 1:-1] = images
    rows = (7 + 2 * pad - filter_size) // stride + 1
    columns = (9 + 2 * pad - filter_size) // stride + 1
    bases = [(n, p, q) for n in range(2) for p in range(rows) for q in range(columns)]
    for start in range(0, len(bases), pixels):
        n, p, q = bases[start]
        for r, s in np.ndindex(filter_size, filter_size):
            plan = plan_im2col(m, (0, q * stride + low, p * stride + low, n), (s, r), 0x800)
            box = plan.read_global(flat(images), BASE).view(np.uint16).reshape(pixels, 64)
            for i in range(pixels):
                want = np.zeros(64, np.uint16)
                if start + i < len(bases):
                    n2, p2, q2 = bases[start + i]
                    want = padded[n2, p2 * stride + r, q2 * stride + s]
                np.testing.assert_array_equal(box[i], want)
    assert plan.transaction_bytes == pixels * 128
    shared = np.zeros(8192, np.uint8)
    plan.write_shared(flat(box), shared, 0x400)
    np.testing.assert_array_equal(plan.read_shared(shared, 0x400), flat(box))


def test_store_and_rules():
    m = TensorMapDescription.im2col((2, 4, 5, 16), "uint32", (0, 0), (0, 0), channels_per_pixel=8,
                                    pixels_per_column=7, address=BASE)  # fmt: skip
    array = np.zeros((2, 4, 5, 16), np.uint32)
    values = np.arange(1, 57, dtype=np.uint32).reshape(7, 8)
    plan = plan_im2col(m, (8, 3, 2, 0), (), 0x400, store=True)
    plan.write_global(flat(values), flat(array), BASE)
    want = np.zeros_like(array)
    want.reshape(2, 20, 16)[0, 13:20, 8:] = values
    np.testing.assert_array_equal(array, want)
    assert len(plan.global_boxes) == 1
    padded = TensorMapDescription.im2col((2, 4, 5, 16), "uint32", (-1, 0), (0, 0),
                                         channels_per_pixel=8, pixels_per_column=7)  # fmt: skip
    with pytest.raises(UnitFault, match="must lie inside the tensor"):
        plan_im2col(padded, (8, 3, 2, 0), (), 0x400, store=True)
    with pytest.raises(UnitFault, match="1 offsets through a map of rank 4; needs 2"):
        plan_im2col(m, (8, 3, 2, 0), (1,), 0x400)
    tiled = TensorMapDescription.tiled((4, 4, 16), "uint32", (1, 4, 8))
    with pytest.raises(UnitFault, match="through a tiled map"):
        plan_im2col(tiled, (0, 0, 0), (0,), 0x400)
    with pytest.raises(UnitFault, match="must be a multiple of 16"):
        tma.plan_im2col(m, (1, 0, 0, 0), (0, 0), 0x400)
