"""Block-scaled quantisation: error bounds, exactness on representable values, packing."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from nbtc.errors import LayoutError
from nbtc.layout import block_scaling as bs

ELEMENTS = ["float8_e4m3fn", "float8_e5m2", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"]


@pytest.mark.parametrize("element", ELEMENTS)
def test_ue8m0_error_and_no_saturation(element):
    rng = np.random.default_rng(0)
    values = rng.standard_normal((64, 256)) * 2.0 ** rng.integers(-60, 60, (64, 1))
    values[3, :32] = 0
    elements, factors = bs.quantize(values, element)
    assert (elements.dtype.name, factors.dtype.name) == (element, "float8_e8m0fnu")
    assert factors.shape == (64, 8)
    got = bs.dequantize(elements, factors).astype(np.float64)
    info = ml_dtypes.finfo(element)
    scale = np.repeat(factors.astype(np.float64), 32, axis=1)
    # Half a unit in the last place of a normal element, or half the least step.
    step = np.maximum(np.abs(values) * 2.0 ** -(info.nmant + 1),
                      scale * float(info.smallest_subnormal) / 2)  # fmt: skip
    assert (np.abs(got - values) <= step * (1 + 1e-6)).all()
    largest = np.abs(values.reshape(64, 8, 32)).max(axis=2)
    assert (largest <= factors.astype(np.float64) * float(info.max)).all()
    smaller = factors.astype(np.float64) / 2 * float(info.max)
    assert (largest[largest > 0] > smaller[largest > 0]).all()
    assert (got[3, :32] == 0).all()


def test_nvfp4():
    rng = np.random.default_rng(1)
    values = rng.standard_normal((16, 64))
    elements, factors = bs.quantize(values, "e2m1", block=16, scale="ue4m3")
    assert factors.shape == (16, 4)
    assert factors.dtype == ml_dtypes.float8_e4m3fn
    got = bs.dequantize(elements, factors, block=16)
    largest = np.abs(values.reshape(16, 4, 16)).max(axis=2)
    np.testing.assert_allclose(factors.astype(np.float64), largest / 6, rtol=2.0**-4)
    # The coarsest step of e2m1 is 2 (4 to 6); the scale's own rounding can saturate by 1/16.
    bound = np.repeat(largest / 6 * 1.1, 16, axis=1)
    assert (np.abs(got - values) <= bound).all()


@pytest.mark.parametrize("element", ELEMENTS)
def test_representable_values_survive(element):
    count = 1 << {"float8_e4m3fn": 8, "float8_e5m2": 8, "float4_e2m1fn": 4}.get(element, 6)
    patterns = np.arange(count, dtype=np.uint8).view(element)
    finite = patterns[np.isfinite(patterns.astype(np.float32))]
    block = np.resize(finite, 32 * -(-len(finite) // 32))
    block = np.concatenate([block.reshape(-1, 32)[:, :31], np.full((len(block) // 32, 1),
                            ml_dtypes.finfo(element).max)], axis=1)  # fmt: skip
    values = block.astype(np.float64) * 2.0**-20
    elements, factors = bs.quantize(values, element)
    np.testing.assert_array_equal(bs.dequantize(elements, factors).astype(np.float64), values)
    assert (factors.astype(np.float64) == 2.0**-20).all()


@pytest.mark.parametrize("element", ["float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"])
def test_packing(element):
    bits = 4 if "4" in element.split("_")[0] else 6
    patterns = np.random.default_rng(2).integers(0, 1 << bits, (5, 64)).astype(np.uint8)
    packed = bs.pack_elements(patterns.view(element))
    assert packed.shape == (5, 64 * bits // 8)
    words = [sum(int(p) << bits * i for i, p in enumerate(row)) for row in patterns]
    for row, word in zip(packed, words, strict=True):
        assert int.from_bytes(row.tobytes(), "little") == word
    back = bs.unpack_elements(packed, element)
    np.testing.assert_array_equal(back.view(np.uint8), patterns)


def test_errors():
    for call, message in [
        (lambda: bs.quantize(np.zeros((4, 40))), "multiple of the block, 32"),
        (lambda: bs.quantize(np.zeros((4, 64)), "float16"), "element float16"),
        (lambda: bs.quantize(np.zeros((4, 64)), block=8), "block of 8"),
        (lambda: bs.quantize(np.zeros((4, 64)), scale="f32"), "scale 'f32'"),
        (lambda: bs.dequantize(np.zeros((4, 64)), np.zeros((4, 4))), "need \\(4, 2\\)"),
        (lambda: bs.pack_elements(np.zeros((4, 64), np.uint8)), "4- or 6-bit"),
    ]:
        with pytest.raises(LayoutError, match=message):
            call()
