"""Narrow conversions: exhaustive over 8- and 16-bit patterns against ml_dtypes and NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from nbtc.emulator.units.convert import FORMATS, cvt, narrow, widen

DTYPES = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2, "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn, "e2m1": ml_dtypes.float4_e2m1fn,
}  # fmt: skip
RAW = np.random.default_rng(0).integers(0, 1 << 32, 200_000, dtype=np.uint64).astype(np.uint32)
NEAR = (np.random.default_rng(1).standard_normal(200_000) * 8).astype(np.float32)
ALL16 = np.arange(1 << 16, dtype=np.uint16)


def inputs():
    halves = ALL16.view(np.float16).astype(np.float32)
    bfloats = ALL16.view(ml_dtypes.bfloat16).astype(np.float32)
    subnormal = np.arange(0, 1 << 23, 997, dtype=np.uint32).view(np.float32)
    return np.concatenate([halves, bfloats, NEAR, RAW.view(np.float32), subnormal, -subnormal])


def as_bits(array):
    return array.view(f"u{array.dtype.itemsize}").astype(np.uint32)


@pytest.mark.parametrize("kind", DTYPES)
def test_round_to_nearest_even(kind):
    values = inputs()
    values = values[~np.isnan(values)]
    largest = np.float32(ml_dtypes.finfo(DTYPES[kind]).max)
    with np.errstate(over="ignore"):
        want = as_bits(np.clip(values, -largest, largest).astype(DTYPES[kind]))
    got = narrow(values, kind, "rn", satfinite=True)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kind", ["f16", "bf16", "e5m2"])
def test_overflow_to_infinity(kind):
    values = inputs()
    values = values[~np.isnan(values)]
    with np.errstate(over="ignore"):
        want = as_bits(values.astype(DTYPES[kind]))
    np.testing.assert_array_equal(narrow(values, kind, "rn"), want)


@pytest.mark.parametrize("kind", DTYPES)
def test_round_toward_zero(kind):
    values = inputs()
    values = values[np.isfinite(values)]
    got = widen(narrow(values, kind, "rz"), kind)
    largest = np.float32(ml_dtypes.finfo(DTYPES[kind]).max)
    assert (np.abs(got) <= np.minimum(np.abs(values), largest)).all()
    # The next pattern away from zero must lie beyond the value.
    pattern = narrow(np.abs(values), kind, "rz")
    inside = pattern < FORMATS[kind].largest
    beyond = widen(pattern[inside] + 1, kind)
    assert (beyond > np.abs(values[inside])).all()


@pytest.mark.parametrize("kind", DTYPES)
def test_widen_every_pattern(kind):
    width = FORMATS[kind].width
    patterns = np.arange(1 << width, dtype=np.uint16 if width > 8 else np.uint8)
    want = patterns.view(DTYPES[kind]).astype(np.float32)
    np.testing.assert_array_equal(widen(patterns, kind), want)
    finite = ~np.isnan(want)
    np.testing.assert_array_equal(
        narrow(want[finite], kind, "rn", satfinite=False), patterns[finite].astype(np.uint32)
    )


def test_tf32():
    values = inputs()
    values = values[np.isfinite(values)]
    bits = values.view(np.uint32).astype(np.uint64)
    away = (bits + 0x1000) & 0xFFFFE000
    np.testing.assert_array_equal(narrow(values, "tf32", "rna"), away)
    even = (bits + 0x0FFF + (bits >> np.uint64(13) & np.uint64(1))) & 0xFFFFE000
    np.testing.assert_array_equal(narrow(values, "tf32", "rn"), even)
    np.testing.assert_array_equal(narrow(values, "tf32", "rz"), bits & 0xFFFFE000)
    assert narrow(np.float32([3.4028235e38]), "tf32", "rna", satfinite=True)[0] == 0x7F7FE000
    nan = np.uint32([0x7F810000, 0xFFC01FFF, 0x7FFFFFFF]).view(np.float32)
    assert narrow(nan, "tf32", "rna").tolist() == [0x7F810000, 0xFFC00000, 0x7FFFE000]
    assert narrow(nan, "tf32", "rn").tolist() == [0x7FFFE000] * 3


def test_special_values():
    special = np.float32([np.inf, -np.inf, np.nan, -0.0, -1.0])
    cases = {
        "f16": [0x7BFF, 0xFBFF, 0x7FFF, 0x8000, 0xBC00],
        "e4m3": [0x7E, 0xFE, 0x7F, 0x80, 0xB8],
        "e5m2": [0x7B, 0xFB, 0x7F, 0x80, 0xBC],
        "e2m3": [0x1F, 0x3F, 0x1F, 0x20, 0x28],
        "e3m2": [0x1F, 0x3F, 0x1F, 0x20, 0x2C],
        "e2m1": [0x7, 0xF, 0x7, 0x8, 0xA],
    }
    for kind, want in cases.items():
        assert narrow(special, kind, satfinite=True).tolist() == want
        relu = [want[0], 0, want[2], 0, 0]
        assert narrow(special, kind, satfinite=True, relu=True).tolist() == relu
    assert narrow(np.float32([1e30, -1e30, np.inf]), "f16", "rz").tolist() == [
        0x7BFF, 0xFBFF, 0x7C00,
    ]  # fmt: skip


def test_ue8m0():
    values = np.float32([1.0, 1.5, 2.0**-126, 2.0**-127, 2.0**-128, 3.4e38, 0.0, np.inf, np.nan])
    assert narrow(values, "ue8m0", "rz", satfinite=True).tolist() == [
        127, 127, 1, 0, 0, 254, 0, 254, 255,
    ]  # fmt: skip
    assert narrow(values, "ue8m0", "rp", satfinite=True).tolist() == [
        127, 128, 1, 0, 0, 254, 0, 254, 255,
    ]  # fmt: skip
    patterns = np.arange(255, dtype=np.uint32)
    np.testing.assert_array_equal(widen(patterns, "ue8m0"), np.float32(2.0) ** (patterns - 127.0))
    np.testing.assert_array_equal(narrow(widen(patterns, "ue8m0"), "ue8m0", "rp"), patterns)
    assert cvt("bf16x2", "ue8m0x2", [np.uint32([0x80FF])])[0] == 0x40007FFF


def test_packing_order():
    a, b = np.float32([1.0]).view(np.uint32), np.float32([2.0]).view(np.uint32)
    assert cvt("f16x2", "f32", [a, b])[0] == 0x3C004000
    assert cvt("bf16x2", "f32", [a, b])[0] == 0x3F804000
    assert cvt("e4m3x2", "f32", [a, b], satfinite=True)[0] == 0x3840
    assert cvt("e2m1x2", "f32", [a, b], satfinite=True)[0] == 0x24
    assert cvt("f16x2", "e4m3x2", [np.uint32([0x3840])])[0] == 0x3C004000
    assert cvt("e4m3x2", "f16x2", [np.uint32([0x3C004000])], satfinite=True)[0] == 0x3840
    assert cvt("f16x2", "e2m1x2", [np.uint32([0x24])])[0] == 0x3C004000
    assert cvt("f32", "bf16", [np.uint32([0x4000])])[0] == b[0]
    zero = np.zeros(1, np.uint32)
    four = cvt("e4m3x4", "f32", [a, b, b, a], rounding="rs", satfinite=True, random=zero)
    assert four[0] == 0x38404038
    four = cvt("e2m1x4", "f32", [a, b, b, a], rounding="rs", satfinite=True, random=zero)
    assert four[0] == 0x2442


def test_stochastic_rounding_rate():
    count = 1 << 13
    x = np.full(count, 1.0 + 2.0**-12, np.float32)  # a quarter of the way to the next f16
    bits = x.view(np.uint32)
    random = np.arange(count, dtype=np.uint32)
    got = cvt("f16x2", "f32", [bits, bits], rounding="rs", random=random | random << np.uint32(16))
    for half in (got & 0xFFFF, got >> 16):
        assert (half == 0x3C01).sum() == count // 4
        assert ((half == 0x3C00) | (half == 0x3C01)).all()


def test_f16_source_exhaustive():
    values = ALL16.astype(np.uint32)
    floats = ALL16.view(np.float16).astype(np.float32)
    keep = ~np.isnan(floats)
    packed = values | (values << np.uint32(16))
    got = cvt("e5m2x2", "f16x2", [packed], satfinite=True)
    want = narrow(floats, "e5m2", satfinite=True)
    np.testing.assert_array_equal(got[keep] & 0xFF, want[keep])
    np.testing.assert_array_equal(got[keep] >> 8, want[keep])
