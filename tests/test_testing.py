"""Helpers for users' tests: comparison, inputs, timing arithmetic."""

from __future__ import annotations

import os

import ml_dtypes
import numpy as np
import pytest

import nbtc
from nbtc import driver, testing, timing
from nbtc.testing import Comparison, assert_close, relative_error


def test_relative_error_is_scaled_by_the_largest_element():
    want = np.array([100.0, 1e-6])
    assert relative_error(want + np.array([0, 1e-3]), want) == pytest.approx(1e-5)
    assert relative_error(want, want) == 0.0
    assert relative_error(np.zeros((0, 3)), np.zeros((0, 3))) == 0.0
    assert relative_error(np.full(2, 0.5), np.zeros(2)) == 0.5


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_not_finite_is_infinitely_wrong(bad):
    assert relative_error(np.array([1.0, bad]), np.ones(2)) == np.inf
    assert relative_error(np.array([1.0, bad]), np.array([1.0, bad])) == 0.0


def test_shapes_must_agree():
    with pytest.raises(AssertionError, match=r"shape \(2,\), expected \(3,\)"):
        relative_error(np.ones(2), np.ones(3))


def test_assert_close_shows_the_worst_element():
    got = np.ones((4, 4), np.float32)
    got[2, 3] = 3
    with pytest.raises(AssertionError, match=r"1 of 16 elements.*worst at \(2, 3\): got 3, exp"):
        assert_close(got, np.ones((4, 4)))
    with pytest.raises(AssertionError, match=r"worst at \(0,\): got nan"):
        assert_close(np.array([np.nan, 1]), np.ones(2))
    assert_close(got, np.ones((4, 4)), tol=2.0)


def test_a_wrong_result_comes_with_the_advice_about_the_last_launch(monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")

    @nbtc.jit
    def store(x, value):
        x[0] = value * 1.5 + 0.25  # float64, which nobody asked for

    x = np.zeros(1, np.float32)
    store[1, 1](x, 2.0)
    with pytest.raises(AssertionError, match=r"(?s)advice about the last launch:.*float64"):
        assert_close(x, np.ones(1))
    monkeypatch.setenv("NBTC_EMULATE", "0")
    with pytest.raises(AssertionError) as caught:
        assert_close(x, np.ones(1))
    assert "advice" not in str(caught.value)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_tolerance_covers_one_rounding_and_not_two_bits(name):
    want = testing.random_normal((64, 64), "float32", seed=1).astype(np.float64)
    dtype = getattr(ml_dtypes, name, None) or np.dtype(name)
    assert_close(want.astype(dtype), want)
    coarse = {"float16": "bfloat16", "bfloat16": "float8_e4m3fn"}
    if name in coarse:
        rounded = want.astype(getattr(ml_dtypes, coarse[name])).astype(dtype)
        with pytest.raises(AssertionError):
            assert_close(rounded, want, tol=testing.tolerance(name))


def test_random_normal_is_normal_and_repeatable():
    values = testing.random_normal((512, 512), "bfloat16", seed=3)
    assert values.dtype == ml_dtypes.bfloat16
    assert np.array_equal(values, testing.random_normal((512, 512), "bfloat16", seed=3))
    wide = values.astype(np.float64)
    assert abs(wide.mean()) < 0.01
    assert abs(wide.std() - 1) < 0.01
    whole = testing.random_normal(1000, "int8")
    assert whole.dtype == np.int8
    assert len(np.unique(whole)) > 50


def test_matmul_reference_is_float64():
    a, b = testing.random_normal((8, 300), "bfloat16"), testing.random_normal((300, 8), "bfloat16")
    reference = testing.matmul_reference(a, b)
    assert reference.dtype == np.float64
    expected = [[float(sum(float(x) * float(y) for x, y in zip(r, c, strict=True)))
                 for c in b.T] for r in a]  # fmt: skip
    assert np.allclose(reference, expected, rtol=1e-12)


def test_emulated_sets_and_restores_the_environment(monkeypatch):
    monkeypatch.delenv("NBTC_EMULATE", raising=False)
    monkeypatch.setenv("NBTC_SEED", "1")
    with testing.emulated(seed=5):
        assert (os.environ["NBTC_EMULATE"], os.environ["NBTC_SEED"]) == ("1", "5")
    assert "NBTC_EMULATE" not in os.environ
    assert os.environ["NBTC_SEED"] == "1"


def test_ratio_is_taken_per_round():
    """A clock that halves in the second half must not move the ratio."""
    result = Comparison({"base": [10.0, 10.0, 20.0, 20.0], "ours": [8.0, 8.0, 16.0, 16.0]})
    assert result.ratios == {"base": 1.0, "ours": 1.25}
    assert result.medians == {"base": 15.0, "ours": 12.0}
    assert "ratio to base" in str(result)
    assert "L2 overwritten" in str(result)


def test_bandwidth_above_the_peak_is_refused(monkeypatch):
    values = {"MEMORY_CLOCK_RATE": 3_201_000, "GLOBAL_MEMORY_BUS_WIDTH": 6144}
    monkeypatch.setattr(driver, "attribute", lambda index, name: values[name])
    assert timing.peak_bandwidth() == pytest.approx(4917, rel=1e-3)
    assert timing.bandwidth(4 << 30, 1000) == pytest.approx(4295, rel=1e-3)
    with pytest.raises(timing.BenchmarkError, match="fit the L2 cache"):
        timing.bandwidth(16 << 20, 2)


def test_views_of_device_memory_have_numpys_strides(monkeypatch):
    from nbtc import device_array

    class Memory:
        address, nbytes = 0x1000, 0

        def __init__(self, nbytes):
            self.nbytes = nbytes

    monkeypatch.setattr(device_array, "_Allocation", Memory)
    array = device_array.DeviceArray((6, 4, 8), "bfloat16")
    host = np.zeros((6, 4, 8), ml_dtypes.bfloat16)
    for key in (np.s_[1:5:2], np.s_[:, 2], np.s_[3, 1, 2], np.s_[..., ::-1], np.s_[2:, :, 3:5]):
        ours, theirs = array[key], host[(*key, ...) if key == (3, 1, 2) else key]
        assert (ours.shape, ours.strides) == (theirs.shape, theirs.strides)
        assert ours.address - array.address == theirs.ctypes.data - host.ctypes.data
    assert (array.T.shape, array.T.strides) == (host.T.shape, host.T.strides)
