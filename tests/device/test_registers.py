"""Register tuples: values, slices and packing against NumPy, and no local memory."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from numba import cuda
from numba.cuda.types import int32

import nbtc
from nbtc.errors import DtypeError, InstructionError
from nbtc.ptx import registers


@pytest.fixture(autouse=True)
def _emulate(monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")


def test_full_zeros_and_take():
    @nbtc.jit
    def kernel(out):
        ones = registers.full(6, 1.5)
        counts = registers.full(3, 7, dtype="int32")
        zeros = registers.zeros(4)
        tail = registers.take((1, 2, 3, 4, 5), 2, 3)
        out[0] = ones[0] + ones[5]
        out[1] = counts[2]
        out[2] = zeros[0] + zeros[3]
        out[3], out[4], out[5] = tail[0], tail[1], tail[2]
        out[6] = len(ones)

    out = np.zeros(7, np.float32)
    kernel[1, 1](out)
    assert out.tolist() == [3, 7, 0, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("dtype", "numpy"), [("bfloat16", ml_dtypes.bfloat16), ("float16", np.float16)]
)
def test_pack_rounds_to_nearest_even_low_half_first(dtype, numpy):
    rng = np.random.default_rng(0)
    ties = np.float32([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-11, 1 + 3 * 2**-11, -0.0, 65519, 1e-8, 0])
    values = np.concatenate([rng.standard_normal(56, np.float32) * 100, ties]).astype(np.float32)

    @nbtc.jit(launch_bounds=32)
    def kernel(source, out):
        i = int32(cuda.threadIdx.x)
        packed = registers.pack((source[2 * i], source[2 * i + 1]), dtype)
        out[i] = packed[0]

    out = np.zeros(32, np.uint32)
    kernel[1, 32](values, out)
    with np.errstate(over="ignore"):
        want = values.astype(numpy)
    assert np.array_equal(out.view(np.uint16), want.view(np.uint16))


def test_undefined_costs_nothing():
    @nbtc.jit
    def kernel(out):
        d = registers.undefined(64)
        out[0] = len(d)

    body = kernel.compile("int32[::1]", arch="sm_90a").ptx.partition("{")[2]
    assert "f32" not in body


@pytest.mark.ptxas
def test_many_registers_stay_registers():
    @nbtc.device
    def doubled(d):
        return registers.take(d, 0, 128)

    @nbtc.jit(launch_bounds=128)
    def kernel(out):
        d = registers.full(128, 2.0)
        for _ in range(int32(out[0])):
            d = doubled(d)
        out[1] = d[127]

    compiled = kernel.compile("float32[::1]", arch="sm_90a")
    assert compiled.resources.stack_bytes == 0
    assert compiled.count("LDL") + compiled.count("STL") == 0


def none(out):
    registers.zeros(0)


def many(out):
    registers.zeros(257)


def runtime(out):
    registers.zeros(int32(out[0]))


def odd(out):
    registers.pack((out[0], out[1], out[2]), "bfloat16")


def outside(out):
    registers.take((1, 2, 3), 2, 2)


def no_tuple(out):
    registers.take(out, 0, 1)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (none, r"n=0; must be 1\.\.256"),
        (many, r"n=257; must be 1\.\.256"),
        (runtime, "zeros: n is int32, and must be a compile-time constant"),
        (odd, "3 registers; needs an even number"),
        (outside, "start=2, count=2 of 3 registers; start .* at most 3"),
        (no_tuple, r"registers are array\(float32, 1d, C\), needs a tuple"),
    ],
)
def test_wrong_arguments(function, text):
    with pytest.raises(InstructionError, match=text):
        nbtc.jit(function).compile("float32[::1]", arch="sm_90a")


def test_dtypes_without_registers():
    @nbtc.jit
    def wide(out):
        registers.zeros(4, dtype="float64")

    with pytest.raises(DtypeError, match="dtype='float64'; legal: float32, int32, uint32"):
        wide.compile("float32[::1]", arch="sm_90a")

    @nbtc.jit
    def narrow(out):
        registers.pack((out[0], out[1]), "float8_e4m3fn")

    with pytest.raises(DtypeError, match="legal: bfloat16, float16"):
        narrow.compile("float32[::1]", arch="sm_90a")
