"""The Hopper GEMM kernel: every axis of its configurations is right, and what its code holds."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from numba.cuda import types

import nbtc
from nbtc import gemm, testing
from nbtc.errors import CompileError, InstructionError
from nbtc.gemm import HopperConfig

SMALL = HopperConfig(tile=(64, 64, 32), stages=3, consumers=1, cluster=(1, 1))


@pytest.fixture(autouse=True)
def _emulate(monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")


def operands(m, n, k, config):
    """Return random operands whose strides are those that the configuration is for."""

    def matrix(rows, columns, seed, by_rows):
        shape = (rows, columns) if by_rows else (columns, rows)
        pitch = -(-shape[1] // 8) * 8
        whole = testing.random_normal((shape[0], pitch), config.dtype, seed)[:, : shape[1]]
        return whole if by_rows else whole.T

    a = matrix(m, k, 0, config.a_major == "K")
    return a, matrix(k, n, 1, config.b_major == "MN")


def is_right(config, m, n, k):
    a, b = operands(m, n, k, config)
    dtype = nbtc.dtypes.canonical(config.out_dtype).numpy
    pitch = -(-n // 8) * 8
    whole = np.full((m, pitch), np.nan, dtype)
    nbtc.matmul(a, b, whole[:, :n], config=config)
    testing.assert_close(whole[:, :n], testing.matmul_reference(a, b))
    assert np.isnan(whole[:, n:].astype(np.float32)).all()


def waves(config):
    """Return a ragged size with more tiles than the emulated SMs hold, in both directions.

    Along K there is one whole lap of the ring, and a k-block and a half more.
    """
    m, n, k = config.tile
    depth = max(2, config.stages + 1) * k + 8
    rows, columns = m * config.cluster[0], n * config.cluster[1]
    return rows + 8 if config.cluster[0] > 2 else 2 * rows + 24, columns + n // 2 + 9, depth


CHOSEN = [
    HopperConfig(tile=(64, 32, 32), stages=1, consumers=1, cluster=(1, 1), schedule="linear",
                 store_buffers=1),
    HopperConfig(tile=(128, 128, 32), stages=2, consumers=2, cluster=(2, 1), dtype="float16",
                 b_major="MN", group=2, policies=("last_use", "last_use", "evict_first")),
    HopperConfig(tile=(192, 32, 16), stages=3, consumers=3, cluster=(1, 3), schedule="grouped",
                 a_major="MN", group=1),
    HopperConfig(tile=(128, 128, 32), stages=4, consumers=1, cluster=(2, 2), schedule="hilbert",
                 out_dtype="float32", dtype="float16", a_major="MN", b_major="MN",
                 policies=("evict_last", "evict_first", "evict_first")),
    HopperConfig(tile=(128, 128, 32), stages=2, consumers=2, cluster=(2, 1), store_buffers=1,
                 narrow=112, group=2, policies=("last_use", "last_use", "")),
    HopperConfig(tile=(256, 64, 32), stages=3, consumers=2, cluster=(1, 1), out_dtype="float32",
                 narrow=48, b_major="MN", schedule="linear"),
]  # fmt: skip


def name_of(config):
    m, n, k = config.tile
    return (
        f"{m}x{n}x{k}-{config.consumers}wg-{config.stages}st-{config.cluster[0]}x"
        f"{config.cluster[1]}-{config.schedule}-{config.a_major}{config.b_major}-"
        f"{config.dtype}-{config.out_dtype}-{config.store_buffers}-{config.narrow}"
    )


@pytest.mark.parametrize("config", CHOSEN, ids=name_of)
def test_every_axis_is_right(config):
    is_right(config, *waves(config))


MORE = [
    SMALL.replace(stages=5),
    SMALL.replace(cluster=(4, 1)),
    SMALL.replace(cluster=(1, 4)),
    SMALL.replace(cluster=(4, 2), schedule="hilbert"),
    SMALL.replace(cluster=(1, 8)),
    SMALL.replace(cluster=(8, 1)),
    SMALL.replace(tile=(64, 160, 48), out_dtype="float32", stages=2),
    SMALL.replace(tile=(64, 256, 16), b_major="MN", cluster=(2, 1)),
    SMALL.replace(tile=(64, 224, 80), b_major="MN", stages=1),
    SMALL.replace(tile=(128, 64, 128), out_dtype="float32", a_major="MN"),
    SMALL.replace(tile=(256, 64, 64), consumers=2, cluster=(1, 2), a_major="MN", stages=2),
    SMALL.replace(tile=(256, 32, 32), consumers=2, cluster=(2, 2), store_buffers=4),
    SMALL.replace(tile=(192, 128, 64), consumers=3, out_dtype="float32", cluster=(2, 1)),
    SMALL.replace(tile=(192, 96, 64), consumers=3, a_major="MN", b_major="MN", store_buffers=1),
    HopperConfig(
        tile=(128, 96, 64),
        stages=6,
        consumers=2,
        cluster=(1, 1),
        store_buffers=3,
        out_dtype="float16",
        schedule="hilbert",
    ),
    HopperConfig(),
    HopperConfig(narrow=240),
    HopperConfig(narrow=224, b_major="MN", a_major="MN"),
    HopperConfig(narrow=240, out_dtype="float32", dtype="float16"),
    HopperConfig(tile=(64, 128, 32), stages=1, consumers=1, narrow=96),
    HopperConfig(tile=(128, 128, 32), stages=3, consumers=1, cluster=(4, 1), narrow=112),
    HopperConfig(tile=(192, 128, 64), stages=2, consumers=3, cluster=(1, 1), narrow=96),
    HopperConfig(tile=(128, 192, 64), out_dtype="float32", schedule="hilbert", group=2),
]


@pytest.mark.slow
@pytest.mark.parametrize("config", MORE, ids=name_of)
def test_more_configurations_are_right(config):
    is_right(config, *waves(config))
    is_right(config, 1, 1, 8)


NARROW = HopperConfig(
    tile=(128, 128, 32), stages=2, consumers=2, cluster=(1, 1), store_buffers=1, narrow=112, group=2
)


@pytest.mark.parametrize("n", [100, 240, 352, 600])
def test_narrow_and_wide_tiles_beside_each_other(n):
    """The columns of all mixtures: one tile that is not full, narrow ones alone, both."""
    assert NARROW.keeps_half
    is_right(NARROW, 3 * 128 - 8, n, 72)


def test_two_rows_of_wgmma_in_a_narrow_tile():
    """The registers of the second 64 rows lie where those of a wide tile do."""
    config = NARROW.replace(tile=(256, 128, 32), out_dtype="float32")
    is_right(config, 256 + 64, 240, 40)


def test_the_epilogue_of_a_narrow_tile_sees_its_own_columns_only():
    @nbtc.device
    def keep(value, row, column, kept):
        if row < kept.shape[0] and column < kept.shape[1]:
            kept[row, column] += value
        return value

    a, b = operands(128, 352, 64, NARROW)
    kept = np.zeros((128, 352), np.float32)
    got = nbtc.matmul(a, b, epilogue=keep, extra=(kept,), config=NARROW)
    want = testing.matmul_reference(a, b)
    testing.assert_close(kept, want, tol=1e-4)  # each element once
    testing.assert_close(got, want)


def test_schedules_and_seeds_give_the_same_result(monkeypatch):
    a, b = operands(100, 150, 72, SMALL)
    results = []
    for seed in ("0", "7"):
        monkeypatch.setenv("NBTC_SEED", seed)
        results.append(nbtc.matmul(a, b, config=SMALL))
    assert np.array_equal(*results)


# -- epilogues -------------------------------------------------------------------------------------


@nbtc.device
def bias_relu(value, row, column, bias, scale):
    return max(value * scale + bias[column], types.float32(0))


@nbtc.device
def gelu_of_position(value, row, column):
    # Row and column say where the element is: the upper triangle gets GELU, the diagonal is marked.
    if column == row:
        return types.float32(-1)
    if column < row:
        return value
    return (
        value
        * types.float32(0.5)
        * (types.float32(1) + math.erf(value * types.float32(0.7071067811865476)))
    )


@nbtc.device
def residual(value, row, column, other):
    return value + other[row, column] if row < other.shape[0] and column < other.shape[1] else value


def reference(name, product, extra):
    if name == "bias_relu":
        bias, scale = extra
        return np.maximum(product * float(scale) + bias[: product.shape[1]].astype(np.float64), 0)
    if name == "residual":
        return product + extra[0].astype(np.float64)
    erf = np.vectorize(math.erf)
    rows, columns = np.indices(product.shape)
    result = np.where(columns < rows, product, product * 0.5 * (1 + erf(product / math.sqrt(2))))
    return np.where(columns == rows, -1, result)


def extra_of(name, m, n):
    if name == "bias_relu":
        # Columns outside C are computed too; what they read must exist.
        return testing.random_normal(256, seed=3), np.float32(0.25)
    if name == "residual":
        return (testing.random_normal((m, n), "bfloat16", 4),)
    return ()


EPILOGUES = {f.__name__: f for f in (bias_relu, gelu_of_position, residual)}


def local_memory(compiled):
    return sum(compiled.count(opcode) for opcode in ("LDL", "STL"))


@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogues_are_right_and_stay_in_registers(name):
    m, n, k = 100, 136, 40
    a, b = operands(m, n, k, SMALL)
    extra = extra_of(name, m, n)
    out = np.full((m, n), np.nan, np.float32)
    function = EPILOGUES[name]
    nbtc.matmul(a, b, out, epilogue=function, extra=extra, config=SMALL)
    testing.assert_close(out, reference(name, testing.matmul_reference(a, b), extra), tol=1e-4)

    (compiled,) = gemm.make_kernel(SMALL.replace(out_dtype="float32"), function)._compiled.values()
    assert local_memory(compiled) == 0
    assert compiled.resources.stack_bytes == 0


def test_the_epilogue_sees_the_value_before_rounding():
    a, b = operands(64, 64, 32, SMALL)
    scaled = nbtc.device(lambda value, row, column: value * types.float32(4096))
    got = nbtc.matmul(a, b, epilogue=scaled, config=SMALL)
    testing.assert_close(got, testing.matmul_reference(a, b) * 4096)


@pytest.mark.parametrize(
    ("function", "extra", "parts"),
    [
        (nbtc.device(lambda v, r: v), (), ["<lambda>(v, r)", "too many positional arguments"]),
        (nbtc.device(lambda v, r, c: v), (1,), ["<lambda>(v, r, c)", "too many"]),
        (nbtc.device(lambda v, r, c, x: v + x), (), ["<lambda>(v, r, c, x)", "'x'"]),
        (nbtc.device(lambda v, r, c: "text"), (), ["epilogue", "unicode_type", "number"]),
        (nbtc.device(lambda v, r, c: None), (), ["epilogue", "none", "number"]),
    ],
)
def test_epilogues_that_do_not_fit(function, extra, parts):
    a, b = operands(64, 64, 32, SMALL)
    with pytest.raises((InstructionError, CompileError)) as caught:
        nbtc.matmul(a, b, epilogue=function, extra=extra, config=SMALL)
    for part in parts:
        assert part in str(caught.value)


# -- code ------------------------------------------------------------------------------------------


@pytest.mark.ptxas
@pytest.mark.parametrize(("dtype", "narrow"), [("bfloat16", 0), ("float16", 240)])
def test_the_default_kernel(dtype, narrow):
    compiled = gemm.compile(dtype, narrow=narrow)
    assert compiled.notes == ()
    assert compiled.resources.spill_bytes == 0
    assert compiled.count("USETMAXREG") == 2
    assert compiled.resources.registers == 168
    loops = main_loops(compiled.sass())
    assert len(loops) == (2 if narrow else 1)
    for loop in loops:
        # One k-block, or a whole lap of the four stages.
        assert sum("HGMMA" in line for line in loop) == 4 * (1 + 4)
        for opcode in ("MEMBAR", "LDL", "STL", "LDG", "STG", "LDS", "STS"):
            assert not any(re.search(rf"\b{opcode}\b", line) for line in loop), opcode


def main_loops(sass):
    """Return the instructions of the loops over HGMMA in which no other such loop lies."""
    lines = sass.splitlines()
    labels = {m[1]: i for i, x in enumerate(lines) if (m := re.match(r"\s*(\.L_x_\d+):", x))}
    found = []
    for i, line in enumerate(lines):
        target = re.search(r"\bBRA\b.*?(\.L_x_\d+)", line)
        if target is None or labels.get(target[1], i) >= i:
            continue
        body = lines[labels[target[1]] : i + 1]
        if any("HGMMA" in x for x in body) and not any(
            labels[target[1]] < j <= i for j, _ in found
        ):
            found.append((i, body))
    assert found
    return [body for _, body in found]


def test_kernels_of_other_targets_are_refused():
    with pytest.raises(nbtc.errors.ArchError, match="sm_90a"):
        gemm.make_kernel(SMALL).compile(*gemm.argument_types(SMALL), arch="sm_90")
