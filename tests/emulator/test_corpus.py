"""PTX written by another compiler: the NumPy result and no finding."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from nbtc.emulator import launch
from nbtc.layout.tensormap_description import TensorMapDescription

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus"
BF16 = ml_dtypes.bfloat16
RUNS = [("random", 0), ("random", 1), ("earliest", 2), ("latest", 3)]


class Map:
    """A tensor map of a row-major matrix."""

    def __init__(self, array: np.ndarray, box: tuple[int, int]) -> None:
        """Describe ``array`` with 128-byte swizzle."""
        name = "bfloat16" if array.dtype == BF16 else "float16"
        self.array = array
        self.description = TensorMapDescription.tiled(array.shape, name, box, swizzle="128B")

    @property
    def arguments(self) -> list:
        """Map and the scalars that the compiler passes after it."""
        rows, columns = self.array.shape
        return [self, rows, columns, columns, 1]


def source(name: str) -> str:
    path = CORPUS / name
    if not path.exists():
        pytest.skip(f"{name} is not beside the repository")
    return path.read_text()


def normal(shape: tuple[int, ...], dtype, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize(("completion", "seed"), RUNS)
@pytest.mark.parametrize("n", [1024, 1000, 77])
def test_softmax(n, completion, seed):
    x = normal((3, n), np.float32, seed)
    y = np.zeros_like(x)
    report = launch(
        source("softmax_sm90.ptx"),
        "softmax",
        grid=3,
        block=128,
        seed=seed,
        args=[x, y, n, None, None],
        dynamic_smem=16,
        completion=completion,
    )
    assert report.ok, str(report)
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(axis=1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize(("completion", "seed"), RUNS)
def test_hopper_matmul(completion, seed):
    m, n, k = 256, 128, 320
    a, b = normal((m, k), BF16, seed), normal((n, k), BF16, seed + 1)
    c = np.zeros((m, n), BF16)
    args = [v for x in (a, b, c) for v in Map(x, (128, 64)).arguments]
    report = launch(
        source("mm_tma_sm90.ptx"),
        "mm",
        grid=(m // 128, n // 128),
        block=128,
        args=[*args, m, n, k, None, None],
        dynamic_smem=98328,
        seed=seed,
        completion=completion,
    )
    assert report.ok, str(report)
    want = a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_allclose(c.astype(np.float64), want, rtol=2**-8, atol=1e-3)


@pytest.mark.parametrize(("completion", "seed"), RUNS)
def test_hopper_multicast(completion, seed):
    a, b = normal((256, 192), np.float16, seed), normal((64, 192), np.float16, seed + 1)
    c = np.zeros((256, 64), np.float32)
    report = launch(
        source("t90_tma_mcast.ptx"),
        "wg_mcast",
        grid=(4, 2),
        block=128,
        cluster=(2, 1, 1),
        seed=seed,
        completion=completion,
        dynamic_smem=12296,
        args=[*Map(a, (64, 64)).arguments, *Map(b, (32, 64)).arguments, c, 192, 64, None, None],
    )
    assert report.ok, str(report)
    want = a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_allclose(c, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("completion", "seed"), RUNS[:3])
def test_blackwell_matmul(completion, seed):
    m, n, k = 128, 128, 192
    a, b = normal((m, k), np.float16, seed), normal((n, k), np.float16, seed + 1)
    c = np.zeros((m, n), np.float32)
    report = launch(
        source("mm_ptr_sm100.ptx"),
        "mmp",
        grid=(m // 128, n // 128),
        block=128,
        args=[a, b, c, m, n, k, None, None],
        dynamic_smem=65552,
        seed=seed,
        completion=completion,
    )
    assert report.ok, str(report)
    want = a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_allclose(c, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("completion", "seed"), RUNS)
def test_blackwell_pair(completion, seed):
    a, b = normal((512, 192), BF16, seed), normal((128, 192), BF16, seed + 1)
    c = np.zeros((512, 128), np.float32)
    report = launch(
        source("t100_2cta_m256.ptx"),
        "mma_pair",
        grid=(4, 2),
        block=128,
        cluster=(2, 1, 1),
        seed=seed,
        completion=completion,
        dynamic_smem=20504,
        args=[*Map(a, (128, 64)).arguments, *Map(b, (32, 64)).arguments, c, 192, 128, None, None],
    )
    assert report.ok, str(report)
    want = a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_allclose(c, want, rtol=1e-4, atol=1e-4)


def test_every_file_parses():
    from nbtc.emulator import parse

    files = sorted(CORPUS.glob("*.ptx"))
    if not files:
        pytest.skip("the corpus is not beside the repository")
    for path in files:
        module = parse(path.read_text())
        assert any(f.entry and f.defined for f in module.functions.values())
