"""``nbtc.matmul`` on the emulator: strides, dtypes, edges, and what is refused."""

from __future__ import annotations

import itertools
import sys

import ml_dtypes
import numpy as np
import pytest

import nbtc
from nbtc import gemm, testing
from nbtc.errors import ArchError, DtypeError, LaunchError, LayoutError, NbtcError
from nbtc.gemm import HopperConfig, arrays

BF16 = ml_dtypes.bfloat16
CONFIG = HopperConfig(tile=(64, 64, 32), stages=3, consumers=1, cluster=(1, 1))
"""Small tiles, so that small problems have several tiles, k-blocks and waves."""


@pytest.fixture(autouse=True)
def _emulate(monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")


def matrix(rows, columns, dtype="bfloat16", seed=0, order="row", pad=0):
    """Return random numbers with rows or columns contiguous and ``pad`` elements more in each."""
    shape = (rows, columns) if order == "row" else (columns, rows)
    pitch = -(-shape[1] // 8) * 8 + pad
    whole = testing.random_normal((shape[0], pitch), dtype, seed)
    view = whole[:, : shape[1]]
    return view if order == "row" else view.T


def poisoned(rows, columns, dtype, order="row", pad=0):
    shape = (rows, columns) if order == "row" else (columns, rows)
    item = np.dtype(dtype).itemsize
    pitch = -(-shape[1] * item // 16) * 16 // item + pad
    whole = np.full((shape[0], pitch), np.nan, dtype)
    view = whole[:, : shape[1]]
    return (view if order == "row" else view.T), whole


def check(a, b, out=None, config=CONFIG, **options):
    got = nbtc.matmul(a, b, out, config=config, **options)
    if out is not None:
        assert got is out
    testing.assert_close(got, testing.matmul_reference(a, b))
    return got


# -- right -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("a_order", "b_order"), [*itertools.product(("row", "column"), repeat=2)])
def test_every_majorness_with_ragged_edges(a_order, b_order):
    # Two waves of tiles on four SMs, edges in M, N and K, more k-blocks than stages.
    a = matrix(100, 120, order=a_order, pad=8)
    b = matrix(120, 200, seed=1, order=b_order)
    check(a, b, out_dtype="float32")


@pytest.mark.parametrize(
    ("dtype", "out"),
    [("float16", "float16"), ("float16", "float32"), ("bfloat16", "bfloat16"),
     pytest.param("float16", "bfloat16", marks=pytest.mark.slow),
     pytest.param("bfloat16", "float16", marks=pytest.mark.slow)],
)  # fmt: skip
def test_dtypes(dtype, out):
    got = check(matrix(70, 40, dtype), matrix(40, 66, dtype, 1, "column"), out_dtype=out)
    assert got.dtype == nbtc.dtypes.canonical(out).numpy


def test_the_result_has_the_dtype_of_the_operands_and_padded_rows():
    got = check(matrix(5, 8), matrix(8, 3, order="column"))
    assert got.dtype == BF16
    assert got.shape == (5, 3)
    assert got.strides == (16, 2)
    assert got.ctypes.data % 16 == 0


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(1, 1, 8), (1, 1, 1), (1, 64, 64), (64, 1, 64), (2, 3, 5), (63, 65, 31), (65, 63, 33),
     (7, 130, 97)],
)  # fmt: skip
def test_tiny_and_odd_sizes(m, n, k):
    check(matrix(m, k), matrix(k, n, seed=1, order="column"))


@pytest.mark.parametrize("order", ["row", "column"])
def test_out_is_written_inside_its_edges_only(order):
    out, whole = poisoned(70, 37, np.float32, order, pad=4)
    check(matrix(70, 40), matrix(40, 37, seed=1, order="column"), out)
    padding = whole[:, out.shape[1] if order == "row" else out.shape[0] :]
    assert np.isnan(padding).all()


def test_columns_of_one_wider_matrix():
    whole = np.full((64, 96), np.nan, BF16)
    whole[:, :32] = testing.random_normal((64, 32), "bfloat16")
    a, out = whole[:, :32], whole[:, 32:64]
    check(a, matrix(32, 32, seed=1, order="column"), out)
    assert np.isnan(whole[:, 64:].astype(np.float32)).all()


def test_views():
    base = testing.random_normal((80, 80), "bfloat16")
    b = matrix(32, 64, seed=1, order="column")
    check(base[:64, 8:40], b)  # a start at a multiple of 16 bytes
    check(base[1:65:2, :32], b)  # every second row
    check(base[:32, :64].T, b, out_dtype="float32")
    check(base[:32, :32], base[:32, :32].T)  # one array is both operands


@pytest.mark.parametrize("config", [None, gemm.HopperConfig()], ids=["chosen", "default"])
def test_more_tiles_than_clusters(config):
    a, b = matrix(270, 72), matrix(72, 300, seed=1, order="column")
    used = config or gemm.choose(270, 300, 72, *["bfloat16"] * 2, "K", "K", arrays.EMULATED_SMS)
    tiles = -(-270 // (used.tile[0] * used.cluster[0])) * -(-300 // used.tile[1])
    assert tiles > arrays.EMULATED_SMS // used.cluster[0]
    check(a, b, config=config)


def test_nan_and_infinity_come_through():
    a, b = matrix(64, 32), matrix(32, 64, seed=1, order="column")
    a[3, 5], a[7, 2] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        want = testing.matmul_reference(a, b)
    got = nbtc.matmul(a, b, config=CONFIG, out_dtype="float32").astype(np.float64)
    assert np.isnan(got[3]).all()
    assert (got[7] == want[7]).all()
    rest = np.delete(np.arange(64), [3, 7])
    testing.assert_close(got[rest], want[rest], tol=1e-5)


def test_repeated_calls_take_the_arrays_of_each_call():
    b = matrix(32, 64, seed=1, order="column")
    first = [check(matrix(64, 32, seed=s), b) for s in (2, 3)]
    assert not np.array_equal(*first)
    a = matrix(64, 32, seed=4)
    before = check(a, b).copy()
    a *= 2
    assert np.array_equal(check(a, b), 2 * before)


def test_the_emulator_may_be_turned_on_after_a_refusal(monkeypatch):
    """What a GPU refuses, host memory, is not remembered for the emulator."""
    a, b = matrix(64, 32, seed=5), matrix(32, 64, seed=6, order="column")
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["nbtc.gemm.matmul"], "emulating", lambda: False)
        patch.setattr(nbtc.driver, "attribute", lambda *_: 4)
        with pytest.raises(NbtcError):
            nbtc.matmul(a, b, config=CONFIG)
    check(a, b)


# -- empty -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "n"), [(0, 5), (5, 0), (0, 0)])
def test_no_rows_or_no_columns(m, n):
    got = nbtc.matmul(matrix(m, 8), matrix(8, n))
    assert got.shape == (m, n)
    assert got.dtype == BF16


def test_no_depth_gives_zeros():
    a, b = np.empty((5, 0), BF16), np.empty((0, 3), BF16)
    assert np.array_equal(nbtc.matmul(a, b), np.zeros((5, 3)))
    out, whole = poisoned(5, 3, np.float32, "column", pad=4)
    assert nbtc.matmul(a, b, out) is out
    assert np.array_equal(out, np.zeros((5, 3)))
    assert np.isnan(whole[:, 5:]).all()
    assert nbtc.matmul(a[:0], b).shape == (0, 3)


def test_no_depth_with_an_epilogue_is_refused():
    double = nbtc.device(lambda value, row, column: value)
    with pytest.raises(LayoutError, match="K = 0 with an epilogue"):
        nbtc.matmul(np.empty((5, 0), BF16), np.empty((0, 3), BF16), epilogue=double)


# -- refused ---------------------------------------------------------------------------------------

A, B = matrix(64, 64), matrix(64, 64, seed=1)
HUGE = np.lib.stride_tricks.as_strided(np.zeros(8, BF16), (2**31, 8), (0, 2))
ODD = matrix(64, 65)[:, 1:]


@pytest.mark.parametrize(
    ("a", "b", "parts"),
    [
        ([[1.0]], B, ["a is list", "needs an array"]),
        (A, None, ["b is NoneType", "needs an array"]),
        (A[0], B, ["a has shape (64,)", "two dimensions"]),
        (A, B[0], ["b has shape (64,)", "two dimensions"]),
        (A[None], B, ["a has shape (1, 64, 64)"]),
        (np.array(1, BF16), B, ["a has shape ()"]),
        (A, B[:32], ["a is 64 x 64, b is 32 x 64", "columns of a (64)", "rows of b (32)"]),
        (A[::-1], B, ["a of shape", "-128 bytes (a reversed view)", "copy it"]),
        (A[:, ::-1], B, ["strides are (128, -2) bytes", "one of them must be 2"]),
        (A[:, ::2], B[:32], ["strides are (128, 4) bytes", "must be 2"]),
        (np.broadcast_to(A[0], (64, 64)), B, ["pitch is 0 bytes (a broadcast view)"]),
        (A, ODD, ["b starts at", "2 mod 16", "multiple of 8 elements"]),
        (matrix(64, 63).copy(), B[:63], ["row pitch is 126 bytes (14 mod 16)", "64 elements"]),
        (A[:63], B[:, :36].copy(), ["b of shape (64, 36)", "72 bytes (8 mod 16)", "40 elements"]),
        (HUGE, B[:8], ["2**31"]),
    ],
)
def test_operands_that_tma_cannot_address(a, b, parts):
    with pytest.raises(LayoutError) as caught:
        nbtc.matmul(a, b)
    for part in ["matmul: ", *parts]:
        assert part in str(caught.value)


def test_the_operand_is_named_also_where_the_product_is_transposed():
    out = np.empty((64, 64), np.float32).T
    with pytest.raises(LayoutError, match=r"matmul: b of shape \(64, 36\)"):
        nbtc.matmul(A, B[:, :36].copy(), out[:, :36])


@pytest.mark.parametrize(
    ("a", "b", "parts"),
    [
        (A.astype(np.float32), B.astype(np.float32), ["a is float32, b is float32", "bfloat16"]),
        (A, B.astype(np.float16), ["a is bfloat16, b is float16", "both must be the same"]),
        (A.astype(np.int32), B, ["a is int32"]),
        (A.astype(np.float32).astype(np.complex64), B, ["complex64"]),
        (A.astype(">f2"), B.astype(np.float16), ["other byte order", "newbyteorder"]),
    ],
)
def test_dtypes_without_a_kernel(a, b, parts):
    with pytest.raises(DtypeError) as caught:
        nbtc.matmul(a, b)
    for part in parts:
        assert part in str(caught.value)


def _readonly():
    out = np.empty((64, 64), np.float32)
    out.flags.writeable = False
    return out


@pytest.mark.parametrize(
    ("out", "error", "parts"),
    [
        ([[0.0]], LayoutError, ["out is list"]),
        (np.empty((64, 32), BF16), LayoutError, ["out is (64, 32); a @ b is (64, 64)"]),
        (np.empty((64, 64)), DtypeError, ["bfloat16, float16, float32, not float64"]),
        (np.empty((64, 64), np.int8), DtypeError, ["not int8"]),
        (np.empty((64, 64), np.float32)[::-1], LayoutError, ["out of", "reversed view"]),
        (np.empty((64, 128), np.float32)[:, ::2], LayoutError, ["(512, 8) bytes", "must be 4"]),
        (_readonly(), LayoutError, ["out is read-only"]),
        (A, LayoutError, ["overlaps a", "memory of its own"]),
        (B.T, LayoutError, ["overlaps b"]),
    ],
)
def test_outputs_that_cannot_be_written(out, error, parts):
    with pytest.raises(error) as caught:
        nbtc.matmul(A, B.T if out is A else B, out, config=CONFIG)
    for part in ["matmul: ", *parts]:
        assert part in str(caught.value)


def test_out_dtype_that_is_not_that_of_out():
    with pytest.raises(DtypeError, match="out is float32, out_dtype=float16"):
        nbtc.matmul(A, B, np.empty((64, 64), np.float32), out_dtype="float16")
    with pytest.raises(DtypeError, match="not int8"):
        nbtc.matmul(A, B, out_dtype="int8")


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"epilogue": lambda v, r, c: v}, ["epilogue is <lambda>", "@nbtc.device"]),
        ({"epilogue": 3}, ["epilogue is int", "(value, row, column, *extra)"]),
        ({"epilogue": []}, ["epilogue is list", "@nbtc.device"]),
        ({"extra": 1}, ["extra is int", "extra=(bias,)"]),
        ({"extra": (1,)}, ["extra without an epilogue"]),
        ({"config": {"stages": 2}}, ["config is dict", "HopperConfig"]),
    ],
)
def test_options_of_the_wrong_kind(options, parts):
    with pytest.raises(LaunchError) as caught:
        nbtc.matmul(A, B, **options)
    for part in ["matmul: ", *parts]:
        assert part in str(caught.value)


def test_targets_without_a_kernel():
    with pytest.raises(ArchError, match=r"no kernel for sm_90;.* sm_90a"):
        nbtc.matmul(A, B, arch="sm_90")


def test_an_epilogue_needs_contiguous_rows():
    double = nbtc.device(lambda value, row, column: value * 2)
    with pytest.raises(LayoutError, match="contiguous rows"):
        nbtc.matmul(A, B, np.empty((64, 64), np.float32).T, epilogue=double)


# -- overlap ---------------------------------------------------------------------------------------


def test_overlap_is_never_missed():
    """Against NumPy's exact answer, for random parts of one buffer."""
    rng = np.random.default_rng(0)
    buffer = np.zeros((24, 32), np.float16)

    def part():
        rows, columns = (np.sort(rng.choice(n + 1, 2, replace=False)) for n in buffer.shape)
        view = buffer[rows[0] : rows[1] : rng.integers(1, 3), columns[0] : columns[1]]
        return view if rng.integers(2) else view.T

    wrong_refusals = 0
    for _ in range(2000):
        x, y = part(), part()
        try:
            arrays.check_output(arrays.view(x, "out"), ("a", arrays.view(y, "a")))
        except LayoutError:
            wrong_refusals += not np.shares_memory(x, y)
        else:
            assert not np.shares_memory(x, y)
    assert wrong_refusals < 400
