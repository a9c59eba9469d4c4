"""PTX that nvcc makes from CUDA C++ (cuda::ptx, cuda::barrier): the NumPy result, no finding."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from nbtc.emulator import launch
from nbtc.layout.tensormap_description import TensorMapDescription

HERE = Path(__file__).parent / "cuda_cpp"
BF16 = ml_dtypes.bfloat16
RUNS = [("random", 0), ("random", 1), ("earliest", 2), ("earliest", 3), ("latest", 4),
        ("latest", 5)]  # fmt: skip
pytestmark = pytest.mark.parametrize(("completion", "seed"), RUNS)


class Map:
    """A tensor map of a row-major matrix."""

    def __init__(self, array: np.ndarray, box: tuple[int, int], swizzle: str = "none") -> None:
        """Describe ``array``."""
        name = "bfloat16" if array.dtype == BF16 else array.dtype.name
        self.array = array
        self.description = TensorMapDescription.tiled(array.shape, name, box, swizzle=swizzle)


def run(name: str, **options) -> None:
    report = launch((HERE / f"{name}.ptx").read_text(), **options)
    assert report.ok, str(report)
    assert not report.warnings, str(report)


def normal(shape, dtype, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def test_tma_tiles(completion, seed):
    x = np.random.default_rng(seed).integers(-99, 99, (5 * 32 - 4, 60)).astype(np.float32)
    y = np.full_like(x, np.nan)
    run("tma_tiles", entry="scale_tiles", grid=2, block=128, seed=seed, completion=completion,
        args=[Map(x, (32, 32)), Map(y, (32, 32)), np.float32(3), 5])  # fmt: skip
    np.testing.assert_array_equal(y, np.float32(3) * x + (np.arange(len(x)) // 32)[:, None])


def test_barrier_pipeline(completion, seed):
    chunks = 7
    x = np.random.default_rng(seed).integers(-8, 8, (2, chunks, 256)).astype(np.float32)
    out = np.full((2, 128), np.nan, np.float32)
    run("barrier_pipeline", entry="ring_sums", grid=2, block=160, seed=seed, completion=completion,
        args=[x, out, chunks])  # fmt: skip
    np.testing.assert_array_equal(out, (x * x[:, :, ::-1]).sum(axis=1)[:, :128])


def test_cluster_multicast(completion, seed):
    rounds = 3
    x = np.random.default_rng(seed).integers(-8, 8, (16 * rounds, 64)).astype(np.float32)
    out = np.full((2, rounds, 2, 16, 32), np.nan, np.float32)
    run("cluster_multicast", entry="exchange", grid=4, block=128, cluster=(2, 1, 1), seed=seed,
        completion=completion, args=[Map(x, (16, 32)), out, rounds])  # fmt: skip
    left, right = x.reshape(rounds, 16, 64)[..., :32], x.reshape(rounds, 16, 64)[..., 32:]
    mine = np.stack([left - right, 2 * left - right], axis=1)
    np.testing.assert_array_equal(out, np.broadcast_to(mine + 10 * mine[:, ::-1], out.shape))


def test_wgmma_gemm(completion, seed):
    m, n, k = 128, 64, 192
    a, b = normal((m, k), BF16, seed), normal((n, k), BF16, seed + 1)
    c = np.full((m, n), np.nan, np.float32)
    run("wgmma_gemm", entry="gemm", grid=2, block=160, seed=seed, completion=completion,
        dynamic_smem=2 * (64 + 32) * 64 * 2,
        args=[Map(a, (64, 64), "128B"), Map(b, (32, 64), "128B"), c, m, n, k])  # fmt: skip
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64).T, rtol=1e-4,
                               atol=1e-4)  # fmt: skip


def test_async_pipeline(completion, seed):
    chunks = 4
    x = np.random.default_rng(seed).integers(0, 1000, (2, chunks, 128, 4)).astype(np.int32)
    bins, total = np.zeros(16, np.int32), np.zeros(1, np.int32)
    run("async_pipeline", entry="histogram_sums", grid=2, block=128, seed=seed,
        completion=completion, args=[x, bins, total, chunks])  # fmt: skip
    assert total[0] == x.sum()
    want = sum(np.bincount(x[..., i].ravel() & 15, minlength=16) for i in (0, 3))
    np.testing.assert_array_equal(bins, want)


def fibonacci(n: int) -> int:
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def switched(v: int) -> int:
    cases = {0: v * 3, 1: v - 7, 2: fibonacci(v & 7), 3: ~v, 4: v << 3, 5: 55, 6: v // 3, 7: v % 5,
             9: 1 - v, 12: v - 9, 13: v + 1234}  # fmt: skip
    return cases.get(v & 15, 1234)


def shapes(v: int, t: int) -> int:
    area = (lambda x: x * x), (lambda x: 3 * x + 1)
    return sum(area[(i + (t % 3 != 0)) % 2](v + i) for i in range(3))


def test_language_control(completion, seed):
    n = 96
    x = np.random.default_rng(seed).integers(0, 1000, n).astype(np.int32)
    out = np.zeros((4, n), np.int32)
    run("language", entry="control", grid=1, block=n, seed=seed, completion=completion,
        args=[x, out, n])  # fmt: skip
    weights = [1, 2, 3, 5, 7, 11, 13, 17]
    for t, v in enumerate(x.tolist()):
        local = [v * i + weights[i & 7] for i in range(32)]
        want = [switched(v), (v + t, v * t, v - t)[v % 3],
                sum(local[i * (v & 31) & 31] for i in range(32)), shapes(v & 15, t)]  # fmt: skip
        assert out[:, t].tolist() == want, (t, v)


def test_language_wide_integers(completion, seed):
    n = 64
    x = np.random.default_rng(seed).integers(1, 2**63, n).astype(np.uint64)
    out = np.zeros((2, n), np.uint64)
    run("language", entry="wide", grid=1, block=n, seed=seed, completion=completion,
        args=[x, out, n])  # fmt: skip
    products = [int(a) * int(b) + 12345 for a, b in zip(x, np.roll(x, -1), strict=True)]
    mask = 2**64 - 1
    assert out[0].tolist() == [p >> 64 ^ p & mask for p in products]
    assert out[1].tolist() == [p // 1000000007 & mask for p in products]


def test_language_sum_by_compare_and_swap(completion, seed):
    x = np.random.default_rng(seed).integers(-99, 99, 150).astype(np.float64)
    out = np.zeros(1, np.uint64)
    run("language", entry="swap_sum", grid=3, block=64, seed=seed, completion=completion,
        args=[x, out, 150])  # fmt: skip
    assert out.view(np.float64)[0] == x.sum()
