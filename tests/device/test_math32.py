"""32-bit arithmetic of kernels against Python's integers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numba import cuda
from numba.cuda.types import int32

import nbtc
from nbtc.device import math32
from nbtc.errors import InstructionError

EDGES = [0, 1, 2, 3, 7, 31, 32, 127, 128, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1]
MASK = 0xFFFFFFFF


@pytest.fixture(autouse=True)
def _emulate(monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")


@nbtc.jit(launch_bounds=128)
def everything(a, b, out):
    i = int32(cuda.threadIdx.x)
    while i < a.size:
        x, y = a[i], b[i]
        out[0, i] = math32.div(x, y)
        out[1, i] = math32.mod(x, y)
        quotient, remainder = math32.divmod32(x, y)
        out[2, i], out[3, i] = quotient, remainder
        out[4, i] = math32.minimum(x, y)
        out[5, i] = math32.maximum(x, y)
        out[6, i] = math32.add(x, y)
        out[7, i] = math32.sub(x, y)
        out[8, i] = math32.mul(x, y)
        out[9, i] = math32.ceil_div(x, y)
        i = int32(i + 128)


def reference(x, y):
    ceiling = ((x + y - 1) & MASK) // y
    return [
        x // y, x % y, x // y, x % y, min(x, y), max(x, y), (x + y) & MASK, (x - y) & MASK,
        (x * y) & MASK, ceiling,
    ]  # fmt: skip


def test_many_values():
    rng = np.random.default_rng(0)
    pairs = [(x, y) for x, y in itertools.product(EDGES, EDGES) if y]
    pairs += [(int(x), int(y) or 1) for x, y in rng.integers(0, 2**32, (150, 2), np.uint64)]
    pairs += [(int(x), int(y) or 1) for x, y in rng.integers(0, 300, (100, 2))]
    a, b = (np.array(column, np.uint32) for column in zip(*pairs, strict=True))
    out = np.zeros((10, len(pairs)), np.uint32)
    everything[1, 128](a, b, out)
    want = np.array([reference(x, y) for x, y in pairs], np.uint64).T
    assert np.array_equal(out, want)


def test_ceil_div_within_its_range():
    for x, y in itertools.product([0, 1, 63, 64, 65, 2**31], [1, 64, 4096]):
        assert reference(x, y)[9] == -(-x // y)


def test_code_is_32_bits_wide():
    text = everything.compile("uint32[::1]", "uint32[::1]", "uint32[:, ::1]", arch="sm_90a").ptx
    assert "div.u32" in text
    assert "div.u64" not in text
    assert "div.s64" not in text


def test_literals_fold():
    @nbtc.jit
    def kernel(out):
        out[0] = math32.ceil_div(1000, 64)

    assert "div" not in kernel.compile("int32[::1]", arch="sm_90a").ptx.partition("{")[2]


@pytest.mark.parametrize(
    ("types", "text"),
    [
        (("int64", "int32"), r"math32\.div: a is int64, needs int32 or uint32"),
        (("int32", "float32"), r"math32\.div: b is float32, needs a 32-bit integer"),
    ],
)
def test_other_types(types, text):
    @nbtc.jit
    def kernel(out, a, b):
        out[0] = math32.div(a, b)

    with pytest.raises(InstructionError, match=text):
        kernel.compile("int32[::1]", *types, arch="sm_90a")
