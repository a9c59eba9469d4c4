"""Epilogues: element functions see the right value, row and column, and stay in registers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numba import cuda
from numba.cuda.types import float32, int32

import nbtc
from nbtc import TensorMap, shared
from nbtc.device import epilogue
from nbtc.errors import DtypeError, InstructionError
from nbtc.intrinsics import tma
from nbtc.ptx import registers


@pytest.fixture(autouse=True)
def _emulate(monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")


def fragment(n):
    """Return (row, column) of every register of every thread, from the text of the PTX ISA."""
    threads = np.arange(128)[:, None]
    i = np.arange(n // 2)[None, :]
    rows = threads // 32 * 16 + threads % 32 // 4 + 8 * (i // 2 % 2)
    columns = i // 4 * 8 + threads % 4 * 2 + i % 2
    return rows, columns


@nbtc.device
def place(value, row, column, scale, table):
    return value + row * scale + column + table[column % 8]


def test_apply_gives_every_register_its_place():
    @nbtc.jit(launch_bounds=128)
    def kernel(table, out):
        thread = int32(cuda.threadIdx.x)
        d = registers.full(16, 0.5)
        d = epilogue.apply(place, d, 1000, 64, float32(100), table)
        for i in range(16):
            out[thread, i] = d[i]

    table = np.arange(8, dtype=np.float32) / 16
    out = np.zeros((128, 16), np.float32)
    kernel[1, 128](table, out)
    rows, columns = fragment(32)
    want = 0.5 + (rows + 1000) * 100 + columns + 64 + table[columns % 8]
    assert np.array_equal(out, want.astype(np.float32))


def test_each_calls_for_the_effect():
    @nbtc.device
    def keep(value, row, column, out):
        out[row, column] = value * 2

    @nbtc.jit(launch_bounds=128)
    def kernel(out):
        d = registers.full(16, 0.25)
        epilogue.each(keep, d, 0, 0, out)

    out = np.full((64, 32), np.nan, np.float32)
    kernel[1, 128](out)
    assert (out == 0.5).all()


@pytest.mark.parametrize(
    ("dtype", "columns", "buffers", "n"),
    [("bfloat16", 64, 2, 128), ("float16", 32, 1, 32), ("float32", 32, 3, 96),
     ("bfloat16", 64, 1, 64)],
)  # fmt: skip
def test_store_writes_the_tile(dtype, columns, buffers, n):
    kind = nbtc.dtypes.canonical(dtype)
    swizzle = f"{columns * kind.itemsize}B"
    layout = shared.Layout(
        c=shared.tile(dtype, (buffers, 64, columns), swizzle=swizzle), full=shared.barriers(1)
    )
    count = n // 2

    @nbtc.device
    def numbered(value, row, column):
        return value + row * 2 + column / 4

    @nbtc.jit(shared=layout, launch_bounds=128)
    def kernel(c_map, row, column):
        d = registers.full(count, 1.0)
        epilogue.store(d, c_map, layout.c, row, column, 1, dtype, n, columns, buffers, None,
                       numbered)  # fmt: skip
        if cuda.threadIdx.x == 0:
            tma.wait_group_read(n=0)

    out = np.full((100, 2 * n), np.nan, kind.numpy)
    raw = np.zeros(out.nbytes + 16, np.uint8)
    start = -raw.ctypes.data % 16
    out = raw[start : start + out.nbytes].view(kind.numpy).reshape(out.shape)
    out[:] = np.nan
    c_map = TensorMap.tiled(out, (64, columns), swizzle=swizzle)
    kernel[1, 128](c_map, np.int32(40), np.int32(n))
    rows, places = np.indices((60, n))
    want = (1 + (rows + 40) * 2.0 + (places + n) / 4).astype(np.float32).astype(kind.numpy)
    assert np.array_equal(out[40:, n:], want)
    assert np.isnan(out[:40].astype(np.float32)).all()
    assert np.isnan(out[:, :n].astype(np.float32)).all()


@pytest.mark.ptxas
@pytest.mark.parametrize("name", ["gelu", "rows"])
def test_element_functions_need_no_local_memory(name):
    @nbtc.device
    def gelu(value, row, column, bias):
        x = value + bias[column]
        inner = float32(0.7978845608) * (x + float32(0.044715) * x * x * x)
        return float32(0.5) * x * (float32(1) + math.tanh(inner))

    @nbtc.device
    def rows(value, row, column, bias):
        return value * bias[row] if column <= row else float32(-math.inf)

    function = {"gelu": gelu, "rows": rows}[name]

    @nbtc.jit(launch_bounds=128)
    def kernel(bias, out):
        d = registers.full(64, 2.0)
        d = epilogue.apply(function, d, 0, 0, bias)
        for i in range(1):
            out[cuda.threadIdx.x] = d[i]

    compiled = kernel.compile("float32[::1]", "float32[::1]", arch="sm_90a")
    assert compiled.resources.stack_bytes == 0
    assert compiled.count("LDL") + compiled.count("STL") == 0


forgets = nbtc.device(lambda value, row, column: None)
text = nbtc.device(lambda value, row, column: "text")


@pytest.mark.parametrize(("function", "returned"), [(forgets, "none"), (text, "unicode_type")])
def test_functions_that_return_no_number(function, returned):
    @nbtc.jit(launch_bounds=128)
    def kernel(out):
        d = epilogue.apply(function, registers.zeros(4), 0, 0)
        out[0] = d[0]

    with pytest.raises(InstructionError, match=f"returns {returned}; it must return a number"):
        kernel.compile("float32[::1]", arch="sm_90a")


layout = shared.Layout(c=shared.tile("float32", (2, 64, 32), swizzle="128B"))


def wrong_dtype(c_map):
    epilogue.store(registers.zeros(32), c_map, layout.c, 0, 0, 1, "int8", 64, 32)


def wrong_count(c_map):
    epilogue.store(registers.zeros(31), c_map, layout.c, 0, 0, 1, "float32", 64, 32)


def wrong_columns(c_map):
    epilogue.store(registers.zeros(32), c_map, layout.c, 0, 0, 1, "float32", 64, 48)


def wrong_buffers(c_map):
    epilogue.store(registers.zeros(32), c_map, layout.c, 0, 0, 1, "float32", 64, 32, 4)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (wrong_dtype, DtypeError, "dtype='int8'; legal: bfloat16, float16, float32"),
        (wrong_count, InstructionError, "needs a multiple of 32 registers"),
        (wrong_columns, InstructionError, "columns=48 does not divide n=64"),
        (wrong_buffers, InstructionError, "buffers=4 for 2 pieces"),
    ],
)
def test_wrong_arguments(function, error, message):
    with pytest.raises(error, match=message):
        nbtc.jit(shared=layout, launch_bounds=128)(function).compile(TensorMap, arch="sm_90a")
