"""Epilogues of rows in registers: the user's function sees the elements inside the matrix only."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda
from numba.cuda.types import float32, int32

import nbtc
from nbtc.device import tmem_epilogue
from nbtc.ptx import registers

ROWS, COLUMNS, FIRST, COUNT = 20, 13, 8, 8


@nbtc.device
def put(value, row, column, out):
    out[row, column] = value + float32(100 * row + column)


@nbtc.device
def add_bias(value, row, column, bias):
    return value + bias[row, column]


@pytest.fixture(autouse=True)
def _emulate(monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")


def inside():
    """Return which elements a warp's 32 rows of 8 columns from column 8 on reach."""
    reached = np.zeros((ROWS, COLUMNS), bool)
    reached[:, FIRST:] = True
    return reached


def test_each_is_called_inside_the_matrix_only():
    @nbtc.jit
    def kernel(out):
        values = registers.full(COUNT, 0.5)
        row = int32(cuda.threadIdx.x)
        tmem_epilogue.each(put, values, row, FIRST, ROWS, COLUMNS, out)

    out = np.zeros((ROWS, COLUMNS), np.float32)
    kernel[1, 32](out)  # an access outside would be a finding
    rows, columns = np.indices(out.shape)
    assert (out == np.where(inside(), 0.5 + 100 * rows + columns, 0)).all()


def test_apply_leaves_what_is_outside():
    @nbtc.jit
    def kernel(bias, out):
        row = int32(cuda.threadIdx.x)
        values = registers.full(COUNT, 0.5)
        values = tmem_epilogue.apply(add_bias, values, row, FIRST, ROWS, COLUMNS, bias)
        for i in range(COUNT):
            out[row, i] = values[i]

    bias = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
    out = np.zeros((32, COUNT), np.float32)
    kernel[1, 32](bias, out)
    want = np.full((32, COUNT), 0.5, np.float32)
    want[:ROWS, : COLUMNS - FIRST] += bias[:, FIRST:]
    assert (out == want).all()
