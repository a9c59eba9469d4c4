"""Loops that are written out: every call with its own constant index."""

from __future__ import annotations

import numpy as np
import pytest
from numba.cuda.types import float32, uint32

import nbtc
from nbtc.device import unroll
from nbtc.errors import InstructionError


@nbtc.device
def add(carry, index, scale):
    return carry[0] + float32(index) * scale, carry[1] * float32(2) + float32(index == 2)


def test_calls_are_made_in_order_with_what_is_carried(monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")

    @nbtc.jit
    def kernel(out, scale):
        out[0], out[1] = unroll.repeat(add, (float32(1), float32(1)), 5, scale)

    out = np.zeros(2, np.float32)
    kernel[1, 1](out, np.float32(10))
    assert out.tolist() == [1 + 10 * (0 + 1 + 2 + 3 + 4), ((1 * 8) + 1) * 4]


def test_the_index_is_a_constant_of_each_call():
    @nbtc.device
    def store(carry, index, out):
        out[index * uint32(3)] = carry
        return carry

    @nbtc.jit
    def kernel(out):
        unroll.repeat(store, uint32(7), 4, out)

    compiled = kernel.compile("uint32[::1]", arch="sm_90a")
    stores = [line for line in compiled.ptx.splitlines() if "st.global" in line]
    assert len(stores) == 4
    assert [f"+{3 * 4 * i}]" in stores[i] for i in range(1, 4)] == [True] * 3
    assert "bra" not in compiled.ptx


@pytest.mark.parametrize("count", [0, 65, True])
def test_the_count_is_a_small_constant(count):
    @nbtc.jit
    def kernel(out):
        out[0], out[1] = unroll.repeat(add, (float32(1), float32(1)), count, float32(1))

    with pytest.raises(InstructionError, match=r"count=.*must be an integer, 1\.\.64"):
        kernel.compile("float32[::1]", arch="sm_90a")


def test_a_call_must_return_what_is_carried():
    @nbtc.device
    def forgets(carry, index):
        return carry[0]

    @nbtc.jit
    def kernel(out):
        out[0], out[1] = unroll.repeat(forgets, (float32(1), float32(1)), 2)

    with pytest.raises(InstructionError, match="returns float32, carry is UniTuple"):
        kernel.compile("float32[::1]", arch="sm_90a")
