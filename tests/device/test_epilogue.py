"""Epilogues: element functions see the right value, row and column, and stay in registers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numba import cuda
from numba.cuda.types import float32, int32, uint32

import nbtc
from nbtc import TensorMap, shared
from nbtc.device import epilogue, pipeline
from nbtc.errors import DtypeError, InstructionError
from nbtc.intrinsics import fence, mbarrier, tma
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


@nbtc.device
def read(value, row, column, source):
    return source[row, column]


@nbtc.device
def counted(value, row, column, calls, scale):
    calls[row, column] += 1
    return value * scale + row / 8


ROW, COLUMN = 64, 16
"""Where the tile of the tests below lies in C."""


def aligned(rows, columns, kind):
    """Return a matrix of NaN whose address TMA takes."""
    nbytes = rows * columns * kind.itemsize
    raw = np.zeros(nbytes + 16, np.uint8)
    start = -raw.ctypes.data % 16
    out = raw[start : start + nbytes].view(kind.numpy).reshape(rows, columns)
    out[:] = np.nan
    return out


def written(dtype, n, columns, buffers, atoms, valids, function=None, halves=False):
    """Write a tile for each of ``valids`` below each other, and store it as the GEMM kernel does.

    Returns:
        C, what the accumulators held, and how often the function was called for each element.
    """
    kind = nbtc.dtypes.canonical(dtype)
    swizzle, strip_swizzle = f"{columns * kind.itemsize}B", f"{16 * kind.itemsize}B"
    layout = shared.Layout(
        c=shared.tile(dtype, (buffers, 64, columns), swizzle=swizzle),
        ready=shared.barriers(buffers), free=shared.barriers(buffers),
    )  # fmt: skip
    tiles, half = len(valids), atoms * n // 8
    balanced = valids[0] is not None
    last_strips = n if balanced else None
    pieces_n, strips = n // columns, columns // 16
    pieces = atoms * pieces_n
    piece_bytes, strip_bytes = 64 * columns * kind.itemsize, 64 * 16 * kind.itemsize

    def writers(valid):
        accumulators = (n if valid is None else valid) // 2

        @nbtc.device
        def filled(source, row):
            d = epilogue.apply(read, registers.zeros(accumulators), row, COLUMN, source)
            if atoms > 1:
                below = registers.zeros(accumulators)
                below = epilogue.apply(read, below, row + 64, COLUMN, source)
                d = registers.join(d, below)
            return d

        @nbtc.device
        def write(source, parity, row, extra):
            d = filled(source, row)
            return epilogue.write(d, layout.c, layout.free, layout.ready, parity, row, COLUMN,
                                  dtype, n, columns, buffers, function, extra, valid)  # fmt: skip

        @nbtc.device
        def write_half(source, parity, row, extra):
            d = filled(source, row)
            return epilogue.write_half(d, layout.c, layout.free, layout.ready, parity, row, COLUMN,
                                       dtype, n, columns, buffers, function, extra,
                                       valid)  # fmt: skip

        return write_half if halves else write

    write, write_last = writers(valids[0]), writers(valids[-1])

    @nbtc.device
    def write_rest(rest, parity):
        epilogue.write_rest(rest, layout.c, layout.free, layout.ready, parity, dtype, n, columns,
                            buffers, last_strips)  # fmt: skip

    @nbtc.jit(shared=layout, launch_bounds=160)
    def kernel(c_map, strip_map, source, ends, extra):
        thread = int32(cuda.threadIdx.x)
        if thread == 0:
            for slot in range(buffers):
                mbarrier.init(layout.ready[slot], 4)
                mbarrier.init(layout.free[slot], 1)
            fence.mbarrier_init()
        cuda.syncthreads()
        if thread == 128:
            state = pipeline.consumer_start()
            for tile in range(tiles):
                for piece in range(pieces):
                    pipeline.wait(layout.ready[state.stage], state.parity)
                    x = int32(COLUMN + piece % pieces_n * columns)
                    y = int32(ROW + (tile * atoms + piece // pieces_n) * 64)
                    source_bytes = layout.c + state.stage * piece_bytes
                    if balanced and piece % pieces_n == pieces_n - 1:
                        for strip in range(strips):
                            if x + strip * 16 < COLUMN + ends[tile]:
                                tma.store(strip_map, (int32(x + strip * 16), y),
                                          source_bytes + strip * strip_bytes)  # fmt: skip
                    else:
                        tma.store(c_map, (x, y), source_bytes)
                    tma.commit_group()
                    tma.wait_group_read(n=0)
                    mbarrier.arrive(layout.free[state.stage])
                    state = pipeline.advance(state, buffers)
            tma.wait_group(n=0)
        elif thread < 128:
            parity = uint32(1)
            rest = registers.undefined(half, "uint32")
            for tile in range(tiles):
                row = int32(ROW + tile * atoms * 64)
                if halves:
                    if tile > 0:
                        write_rest(rest, parity)
                    if tile < tiles - 1:
                        rest = write(source, parity, row, extra)
                    else:
                        rest = write_last(source, parity, row, extra)
                elif tile < tiles - 1:
                    parity = write(source, parity, row, extra)
                else:
                    parity = write_last(source, parity, row, extra)
            if halves:
                write_rest(rest, parity)

    shape = ROW + tiles * atoms * 64 + 8, COLUMN + n + 16
    out, calls = aligned(*shape, kind), np.zeros(shape, np.int32)
    # Arithmetic is exact on these numbers; only the type of C rounds them.
    source = np.random.default_rng(n + columns).integers(-8192, 8192, shape) / np.float32(64)
    c_map = TensorMap.tiled(out, (64, columns), swizzle=swizzle)
    strip_map = TensorMap.tiled(out, (64, 16), swizzle=strip_swizzle)
    ends = np.array([n if valid is None else valid for valid in valids], np.int32)
    extra = () if function is None else (calls, np.float32(3))
    kernel[1, 160](c_map, strip_map, source, ends, extra)
    return out, source, calls


def check(out, source, calls, n, atoms, valids, function):
    """Compare C with NumPy; elements outside the valid columns are as before."""
    want = np.full(out.shape, np.nan, np.float32)
    inside = np.zeros(out.shape, bool)
    for tile, valid in enumerate(valids):
        first = ROW + tile * atoms * 64
        end = COLUMN + (n if valid is None else valid)
        inside[first : first + atoms * 64, COLUMN:end] = True
    values = source
    if function is not None:
        values = source * 3 + np.arange(len(out))[:, None] / 8
    want[inside] = values[inside]
    want = want.astype(out.dtype).astype(np.float32)
    assert np.array_equal(out.astype(np.float32), want, equal_nan=True)
    assert np.array_equal(calls, inside.astype(np.int32) * (function is not None))


# Type, n, columns of a piece, buffers, atoms of 64 rows, valid columns of each tile, function.
@pytest.mark.parametrize(
    ("dtype", "n", "columns", "buffers", "atoms", "valids", "function"),
    [
        ("bfloat16", 128, 64, 2, 1, (None, None), None),
        ("float32", 64, 32, 1, 2, (None,), counted),
        ("bfloat16", 128, 64, 2, 1, (128, 80), None),
        ("float16", 128, 64, 2, 2, (96, 128), counted),
        ("float32", 64, 32, 2, 2, (64, 48), counted),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                ("bfloat16", 128, 64, 1, 1, (112, 128), counted),
                ("bfloat16", 256, 64, 2, 1, (240, 224), counted),
                ("float16", 96, 32, 3, 1, (96, 80), counted),
                ("float16", 32, 16, 2, 1, (32, 32), counted),
                ("float32", 64, 32, 2, 1, (48, 64), None),
                ("float32", 96, 16, 3, 1, (96,), counted),
            ]
        ),
    ],
)
def test_write_cuts_the_last_piece_into_strips(dtype, n, columns, buffers, atoms, valids, function):
    got = written(dtype, n, columns, buffers, atoms, valids, function)
    check(*got, n, atoms, valids, function)


@pytest.mark.parametrize(
    ("dtype", "n", "columns", "buffers", "atoms", "valids", "function"),
    [
        ("bfloat16", 128, 64, 2, 2, (None, None), None),
        ("bfloat16", 128, 64, 1, 1, (80, 128), counted),
        ("float16", 64, 32, 2, 2, (64, 48), counted),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                ("bfloat16", 128, 64, 1, 1, (None,), counted),
                ("bfloat16", 256, 64, 2, 1, (256, 256, 240), None),
                ("float16", 64, 16, 4, 2, (64, 64), None),
            ]
        ),
    ],
)
def test_the_half_that_waits_in_registers(dtype, n, columns, buffers, atoms, valids, function):
    got = written(dtype, n, columns, buffers, atoms, valids, function, halves=True)
    check(*got, n, atoms, valids, function)


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


strips = shared.Layout(
    c=shared.tile("bfloat16", (2, 64, 64), swizzle="128B"),
    ready=shared.barriers(2), free=shared.barriers(2),
)  # fmt: skip
STRIPS = r"needs whole strips of 16 that end in the last piece: a multiple of 16 from 80 to 128"


@pytest.mark.parametrize(
    ("count", "dtype", "n", "columns", "buffers", "valid", "error", "message"),
    [
        (64, "bfloat16", 128, 64, 2, 100, InstructionError,
         rf"epilogue\.NAME: valid=100 of n=128 columns in pieces of 64; {STRIPS}$"),
        (64, "bfloat16", 128, 64, 2, 64, InstructionError, rf"valid=64 of n=128 .*; {STRIPS}$"),
        (64, "bfloat16", 128, 64, 2, 144, InstructionError, rf"valid=144 of n=128 .*; {STRIPS}$"),
        (64, "bfloat16", 128, 64, 2, 0, InstructionError, rf"valid=0 of n=128 .*; {STRIPS}$"),
        (64, "float32", 128, 8, 2, 128, InstructionError,
         r"epilogue\.NAME: valid=128 with columns=8; .*: columns must be a multiple of 16$"),
        (64, "int8", 128, 64, 2, None, DtypeError,
         r"epilogue\.NAME: dtype='int8'; legal: bfloat16, float16, float32$"),
        (62, "bfloat16", 128, 64, 2, None, InstructionError,
         r"epilogue\.NAME: d is .*, needs a multiple of 64 registers$"),
        (64, "bfloat16", 128, 48, 2, None, InstructionError,
         r"epilogue\.NAME: columns=48 does not divide n=128$"),
        (64, "bfloat16", 128, 64, 2, 112, InstructionError,
         r"epilogue\.NAME: d is .*, needs a multiple of 56 registers$"),
        (64, "bfloat16", 128, 64, 3, None, InstructionError,
         r"epilogue\.NAME: buffers=3 for 2 pieces; each call must use every buffer"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["write", "write_half"])
def test_wrong_arguments_of_write(name, count, dtype, n, columns, buffers, valid, error, message):
    function = getattr(epilogue, name)

    @nbtc.jit(shared=strips, launch_bounds=128)
    def kernel():
        function(registers.zeros(count), strips.c, strips.free, strips.ready, 1, 0, 0, dtype, n,
                 columns, buffers, None, (), valid)  # fmt: skip

    with pytest.raises(error, match=message.replace("NAME", name)):
        kernel.compile(arch="sm_90a")


@pytest.mark.parametrize(
    ("dtype", "buffers", "error", "message"),
    [
        ("float32", 1, DtypeError,
         r"epilogue\.NAME: dtype='float32'; keeps pairs of a 16-bit type: bfloat16, float16$"),
        ("bfloat16", 2, InstructionError,
         r"epilogue\.NAME: 2 pieces, buffers=2; half of the pieces must fill .*: 4 pieces$"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["write_half", "write_rest"])
def test_halves_that_do_not_fill_the_buffers(name, dtype, buffers, error, message):
    @nbtc.jit(shared=strips, launch_bounds=128)
    def write_half():
        epilogue.write_half(registers.zeros(64), strips.c, strips.free, strips.ready, 1, 0, 0,
                            dtype, 128, 64, buffers)  # fmt: skip

    @nbtc.jit(shared=strips, launch_bounds=128)
    def write_rest():
        rest = registers.zeros(16, "uint32")
        epilogue.write_rest(rest, strips.c, strips.free, strips.ready, 1, dtype, 128, 64, buffers)

    kernel = {"write_half": write_half, "write_rest": write_rest}[name]
    with pytest.raises(error, match=message.replace("NAME", name)):
        kernel.compile(arch="sm_90a")


@pytest.mark.parametrize(
    ("kind", "columns", "valid", "message"),
    [
        ("float32", 64, None, r"rest is .*float32.*, needs what epilogue\.write_half returned$"),
        ("int32", 64, None, r"rest is .*int32.*, needs what epilogue\.write_half returned$"),
        ("uint32", 64, 100, rf"epilogue\.write_rest: valid=100 of n=128 .*; {STRIPS}$"),
        ("uint32", 48, None, r"epilogue\.write_rest: columns=48 does not divide n=128$"),
    ],
)
def test_wrong_arguments_of_write_rest(kind, columns, valid, message):
    @nbtc.jit(shared=strips, launch_bounds=128)
    def kernel():
        rest = registers.zeros(16, kind)
        epilogue.write_rest(rest, strips.c, strips.free, strips.ready, 1, "bfloat16", 128, columns,
                            1, valid)  # fmt: skip

    with pytest.raises(InstructionError, match=message):
        kernel.compile(arch="sm_90a")


def test_a_rest_that_is_no_tuple():
    @nbtc.jit(shared=strips, launch_bounds=128)
    def kernel():
        epilogue.write_rest(uint32(0), strips.c, strips.free, strips.ready, 1, "bfloat16", 128, 64,
                            1)  # fmt: skip

    with pytest.raises(InstructionError, match=r"epilogue\.write_rest: rest is uint32, needs what"):
        kernel.compile(arch="sm_90a")
