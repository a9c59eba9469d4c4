"""Bulk copies and element-wise reductions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from nbtc.emulator.units import UnitFault, bulk
from nbtc.emulator.units.reduce import combine


def test_rules():
    bulk.check_copy(64, 0x1000, 0x410)
    for arguments in ((24, 0, 0), (16, 8, 0), (16, 0, 0x404)):
        with pytest.raises(UnitFault, match="must be a multiple of 16") as caught:
            bulk.check_copy(*arguments)
        assert caught.value.kind == "tma-alignment"
    with pytest.raises(UnitFault, match=r"\.add\.s64 to global"):
        bulk.check_reduction("add", "s64", to="global")
    with pytest.raises(UnitFault, match=r"\.add\.f32 to shared"):
        bulk.check_reduction("add", "f32", to="shared")


def test_copy_with_byte_mask():
    source, target = np.arange(64, dtype=np.uint8), np.full(64, 255, np.uint8)
    bulk.copy(target, source, mask=0b1000_0000_0000_0101)
    want = np.where(np.isin(np.arange(64) % 16, (0, 2, 15)), source, 255)
    np.testing.assert_array_equal(target, want)
    bulk.copy(target, source)
    np.testing.assert_array_equal(target, source)


def test_integer_reductions():
    old = np.uint32([0, 5, 7, 0xFFFFFFFF])
    new = np.uint32([3, 5, 3, 2])
    want = {
        "add": [3, 10, 10, 1], "min": [0, 5, 3, 2], "max": [3, 5, 7, 0xFFFFFFFF],
        "inc": [1, 0, 0, 0], "dec": [3, 4, 3, 2],
    }  # fmt: skip
    for op, values in want.items():
        target = old.view(np.uint8).copy()
        bulk.reduce(target, new.view(np.uint8), op, "u32", to="shared")
        assert target.view(np.uint32).tolist() == values
    signed = combine(old.view(np.int32), new.view(np.int32), "max")
    assert signed.tolist() == [3, 5, 7, 2]


def test_float_add():
    tiny = np.float32([1e-40, 1.0, -1e-40])
    assert combine(tiny, np.zeros(3, np.float32), "add").tolist() == [0.0, 1.0, 0.0]
    kept = combine(tiny, np.zeros(3, np.float32), "add", flush=False)
    np.testing.assert_array_equal(kept, tiny)
    half = np.float16([6e-8])
    assert combine(half, np.zeros(1, np.float16), "add")[0] == half[0]
    x = np.float32([1.0, 3.0]).astype(ml_dtypes.bfloat16)
    y = np.float32([0.00390625, -1.5]).astype(ml_dtypes.bfloat16)
    assert combine(x, y, "add").astype(np.float32).tolist() == [1.0, 1.5]


def test_float_extremes():
    nan = np.float16([np.nan, 1.0, -0.0, 0.0])
    other = np.float16([2.0, np.nan, 0.0, -0.0])
    top = combine(nan, other, "max")
    assert top[:2].tolist() == [2.0, 1.0]
    assert np.signbit(top[2:]).tolist() == [False, False]
    assert np.signbit(combine(nan, other, "min")[2:]).tolist() == [True, True]
