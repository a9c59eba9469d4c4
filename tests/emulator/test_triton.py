"""Kernels compiled by Triton for other types and shapes than the corpus (see data/)."""

from __future__ import annotations

import gzip
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from nbtc.emulator import launch

DATA = Path(__file__).parent / "data"
RUNS = [("random", 0), ("earliest", 1), ("latest", 2)]
MATMULS = {
    "mm_bf16_64x64x32_90": (ml_dtypes.bfloat16, 16384, 1e-5),
    "mm_fp32_64x64x32_90": (np.float32, 49152, 2e-3),  # tf32
    "mm_e4m3_64x64x32_100": (ml_dtypes.float8_e4m3fn, 16384, 1e-5),
    "mm_fp16_64x64x32_100": (np.float16, 16400, 1e-5),
}


def source(name: str) -> str:
    return gzip.decompress((DATA / f"{name}.ptx.gz").read_bytes()).decode()


@pytest.mark.parametrize(("completion", "seed"), RUNS)
@pytest.mark.parametrize("name", MATMULS)
def test_matmul_with_ragged_edges(name, completion, seed):
    dtype, shared, tolerance = MATMULS[name]
    m, n, k = 112, 80, 96
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((m, k)).astype(dtype)
    b = rng.standard_normal((k, n)).astype(dtype)
    c = np.zeros((m, n), np.float32)
    report = launch(
        source(name),
        grid=(2, 2),
        block=128,
        dynamic_smem=shared,
        seed=seed,
        args=[a, b, c, m, n, k, k, n, n, None, None],
        completion=completion,
    )
    assert report.ok, str(report)
    want = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(c, want, atol=tolerance * np.abs(want).max())


@pytest.mark.parametrize(("completion", "seed"), RUNS[::2])
@pytest.mark.parametrize(("name", "shared"), [("attn_90", 16384), ("attn_100", 32792)])
def test_attention(name, shared, completion, seed):
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal((128, 64)).astype(np.float16) for _ in range(3))
    out = np.zeros((128, 64), np.float32)
    report = launch(
        source(name),
        grid=2,
        block=128,
        dynamic_smem=shared,
        seed=seed,
        args=[q, k, v, out, 128, None, None],
        completion=completion,
    )
    assert report.ok, str(report)
    scores = q.astype(np.float64) @ k.astype(np.float64).T
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    want = p @ v.astype(np.float64) / p.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(out, want, atol=2e-3 * np.abs(want).max())


def test_reduce_scan_and_sort():
    n = 250
    x = np.random.default_rng(5).integers(-1000, 1000, n).astype(np.int32)
    y = np.zeros(8 + 2 * n, np.int32)
    y[1] = -(10**9)
    report = launch(
        source("reduce_90"), grid=1, block=128, args=[x, y, n, None, None], dynamic_smem=1024
    )
    assert report.ok, str(report)
    assert (y[0], y[1]) == (x.sum(), x.max())
    np.testing.assert_array_equal(y[8 : 8 + n], x.cumsum())
    np.testing.assert_array_equal(y[8 + n :], np.sort(np.append(x, np.zeros(6, np.int32)))[:n])
