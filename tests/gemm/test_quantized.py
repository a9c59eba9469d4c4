"""Matrices in narrow formats: what is stored, what comes back, and what is refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from nbtc import testing
from nbtc.dtypes import canonical
from nbtc.errors import LayoutError
from nbtc.gemm import quantize
from nbtc.layout import scale_factors

FORMATS = [
    # dtype, block, largest error of a normal number relative to the largest of its block
    ("float8_e4m3fn", 0, 0.04), ("float8_e4m3fn", 32, 0.04), ("float8_e5m2", 32, 0.08),
    ("float6_e2m3fn", 0, 0.04), ("float6_e3m2fn", 32, 0.08), ("float4_e2m1fn", 0, 0.2),
    ("float4_e2m1fn", 32, 0.2), ("float4_e2m1fn", 16, 0.2),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "block", "error"), FORMATS)
def test_there_and_back(dtype, block, error):
    values = np.clip(testing.random_normal((70, 200), seed=1), -3.5, 3.5)
    q = quantize(values, dtype, block=block)
    assert q.shape == (70, 200)
    assert q.padded_k == 256
    assert q.data.dtype == np.uint8
    assert q.data.shape == (70, 256 * canonical(dtype).bits // 8)
    assert q.data.ctypes.data % 128 == 0
    back = q.dequantize()
    assert testing.relative_error(back, values) < error
    assert np.array_equal(q.T.dequantize(), back.T)
    assert q.T.shape == (200, 70)
    assert q.T.T.key == q.key != q.T.key
    if block:
        assert q.scales.nbytes == scale_factors.size_bytes(70, 256 // block)
        assert q.scale == ("ue4m3" if block == 16 else "ue8m0")
    else:
        assert q.scales is None
        assert np.array_equal(back, values.astype(canonical(dtype).numpy).astype(np.float32))


def test_scale_factors_are_those_of_their_blocks():
    values = np.zeros((33, 64), np.float32)
    values[32, 32:] = 448.0 * 4  # the largest e4m3 times four
    q = quantize(values, "e4m3", block=32)
    factors = scale_factors.unpack(q.scales, 33, 4).view(ml_dtypes.float8_e8m0fnu)
    assert float(factors[32, 1]) == 4.0
    assert float(factors[32, 0]) == float(factors[0, 1]) == 1.0
    assert np.array_equal(q.dequantize(), values)


def test_refused():
    with pytest.raises(LayoutError, match=r"shape \(4,\); needs two dimensions"):
        quantize(np.zeros(4))
    with pytest.raises(LayoutError, match="dtype=bfloat16; legal: float8_e4m3fn"):
        quantize(np.zeros((4, 4)), "bfloat16")
    with pytest.raises(LayoutError, match="scale='ue8m0' without blocks"):
        quantize(np.zeros((4, 4)), scale="ue8m0")
    with pytest.raises(LayoutError, match="block of 64; must be 16 or 32"):
        quantize(np.zeros((4, 64)), block=64)
