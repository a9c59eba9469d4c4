"""Advice on float64 arithmetic in kernels without float64 data."""

from __future__ import annotations

import math

import numba_helper
import numpy as np
from numba import cuda
from numba.cuda.types import float32
from report_helper import said


def advice(kernel, *args):
    report = numba_helper.run(kernel, 1, 32, *args, options={"debug": False, "lineinfo": True})
    assert report.ok, str(report)
    return report, [f for f in report.advice if f.kind == "float64_arithmetic"]


def test_a_python_constant_and_a_python_float():
    def scale(x, out, y):
        i = cuda.threadIdx.x
        v = x[i] * 0.1  # constant
        if v > 100.0:
            v = v / 3.1  # never reached
        out[i] = v + y  # scalar

    x, out = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    report, found = advice(scale, x, out, 0.3)
    np.testing.assert_allclose(out, x * 0.1 + 0.3, rtol=1e-6)
    assert len({(f.file, f.line) for f in found}) == len(found) >= 2
    item = said(report, "float64_arithmetic", "float64 arithmetic", at="constant",
                severity="advice")  # fmt: skip
    assert "np.float32(...)" in item.message
    said(report, "float64_arithmetic", at="scalar", severity="advice")


def test_float32_alone_and_the_sine_of_libdevice():
    def scale(x, out, y):
        i = cuda.threadIdx.x
        out[i] = math.sin(x[i] * float32(1e7)) + y

    x, out = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    _, found = advice(scale, x, out, np.float32(0.3))
    np.testing.assert_allclose(out, np.sin(x * np.float32(1e7)) + np.float32(0.3), atol=1e-5)
    assert not found


def test_float64_in_memory_is_meant():
    def scale(x, out):
        i = cuda.threadIdx.x
        out[i] = x[i] * 0.1

    x, out = np.arange(32, dtype=np.float32), np.zeros(32)
    _, found = advice(scale, x, out)
    np.testing.assert_array_equal(out, x * np.float64(0.1))
    assert not found
