"""PTX that NVRTC makes from CUDA C++ with cuda::barrier, cuda::ptx and cooperative groups."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from nbtc.emulator import launch
from nbtc.layout.tensormap_description import TensorMapDescription

SOURCE = Path(__file__).parent / "data" / "cuda_kernels.cu"
RUNS = [("random", 0), ("random", 1), ("earliest", 2), ("latest", 3)]


@cache
def compiled(arch: str) -> str:
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc")
    nvidia = pytest.importorskip("nvidia.cu13")
    include = Path(next(iter(nvidia.__path__))) / "include"
    if not (include / "cccl" / "cuda" / "barrier").exists():
        pytest.skip("the CUDA C++ headers are not installed")
    _, program = nvrtc.nvrtcCreateProgram(SOURCE.read_bytes(), b"kernels.cu", 0, [], [])
    options = [
        f"--gpu-architecture={arch}",
        "-std=c++17",
        "-lineinfo",
        f"-I{include}",
        f"-I{include / 'cccl'}",
    ]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = b" " * size
    nvrtc.nvrtcGetProgramLog(program, log)
    assert int(status) == 0, log.decode()
    _, size = nvrtc.nvrtcGetPTXSize(program)
    ptx = b" " * size
    nvrtc.nvrtcGetPTX(program, ptx)
    return ptx.decode().rstrip("\0")


@pytest.fixture(params=["compute_90a", "compute_100a"])
def ptx(request):
    return compiled(request.param)


@pytest.mark.parametrize(("completion", "seed"), RUNS)
def test_bulk_copy_with_a_barrier_object(ptx, completion, seed):
    x = np.arange(2048, dtype=np.float32)
    y = np.zeros_like(x)
    report = launch(ptx, "bulk", grid=2, block=128, args=[x, y], completion=completion, seed=seed)
    assert report.ok, str(report)
    np.testing.assert_array_equal(y, 2 * x + 1)


class Map:
    def __init__(self, array, box):
        self.array = array
        self.description = TensorMapDescription.tiled(array.shape, array.dtype, box)


@pytest.mark.parametrize(("completion", "seed"), RUNS)
def test_ring_of_tensor_copies(ptx, completion, seed):
    tiles = 7
    x = np.random.default_rng(seed).integers(-99, 99, (tiles * 8, 32)).astype(np.int32)
    y = np.zeros_like(x)
    report = launch(
        ptx,
        "tma_ring",
        grid=1,
        block=128,
        completion=completion,
        seed=seed,
        args=[Map(x, (8, 32)), Map(y, (8, 32)), tiles],
    )
    assert report.ok, str(report)
    np.testing.assert_array_equal(y, x * 3 + np.repeat(np.arange(tiles), 8)[:, None])


@pytest.mark.parametrize(("completion", "seed"), RUNS)
def test_pipeline_object(ptx, completion, seed):
    x = np.random.default_rng(seed).standard_normal((5, 128)).astype(np.float32)
    y = np.zeros_like(x)
    report = launch(
        ptx, "pipeline", grid=1, block=128, args=[x, y, 5], completion=completion, seed=seed
    )
    assert report.ok, str(report)
    np.testing.assert_array_equal(y, x[:, ::-1])


def test_cooperative_groups(ptx):
    x = np.random.default_rng(0).integers(0, 100, 64).astype(np.int32)
    out = np.zeros(256, np.int32)
    report = launch(ptx, "groups", grid=1, block=64, args=[x, out])
    assert report.ok, str(report)
    tiles = x.reshape(8, 8)
    np.testing.assert_array_equal(out[:64].reshape(8, 8), tiles.cumsum(axis=1))
    np.testing.assert_array_equal(out[192:].reshape(8, 8), np.repeat(tiles.max(1), 8).reshape(8, 8))
    for warp in range(2):
        odd = np.nonzero(x[warp * 32 : warp * 32 + 32] & 1)[0] + warp * 32
        np.testing.assert_array_equal(out[64 + odd], np.arange(odd.size) * 1000 + odd.size)
        np.testing.assert_array_equal(out[128 + odd], x[odd[0]])


def test_distributed_shared_memory(ptx):
    out = np.zeros((2, 32), np.int32)
    report = launch(ptx, "neighbours", grid=2, block=32, cluster=2, args=[out])
    assert report.ok, str(report)
    np.testing.assert_array_equal(out[0], 131 - np.arange(32))
    np.testing.assert_array_equal(out[1], 31 - np.arange(32))


def test_half_bfloat_and_fp8(ptx):
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(32).astype(np.float16) for _ in range(2))
    f = rng.standard_normal(32).astype(np.float32)
    out = np.zeros(32, np.float16)
    bf, q = np.zeros(32, ml_dtypes.bfloat16), np.zeros(32, np.uint8)
    report = launch(ptx, "halves", grid=1, block=32, args=[a, b, f, out, bf, q])
    assert report.ok, str(report)

    def square_plus(v):
        return (v.astype(np.float64) * v + v).astype(np.float16)

    np.testing.assert_array_equal(out, square_plus(a) + square_plus(b))
    want = (f.astype(ml_dtypes.bfloat16).astype(np.float32) * 1.5).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(bf, want)
    np.testing.assert_array_equal(q, f.astype(ml_dtypes.float8_e4m3fn).view(np.uint8))


def test_atomics(ptx):
    a, f, d = np.zeros(4, np.int32), np.zeros(1, np.float32), np.zeros(1)
    u, h = np.zeros(1, np.uint64), np.zeros(2, np.float16)
    report = launch(ptx, "atomics", grid=1, block=32, args=[a, f, d, u, h])
    assert report.ok, str(report)
    assert a.tolist() == [496, 10, 7, 99]
    assert (f[0], d[0], u[0], h.tolist()) == (48, 8, 31, [32, 64])


def test_language_features(ptx, capsys):
    record = np.zeros(1, np.dtype([("a", "i4"), ("b", "f8"), ("c", "i2", 3)], align=True))
    record["a"], record["b"], record["c"] = 100, 7.9, [1, 2, 3]
    i = np.arange(32)
    x = (i * 13).astype(np.int32)
    for n in (3, 4):
        out, real = np.zeros(128, np.int32), np.zeros(32, np.float32)
        report = launch(ptx, "language", grid=1, block=32, args=[record[0], n, x, out, real])
        assert report.ok, str(report)
        np.testing.assert_array_equal(out[:32], i * n + i + 1 + 10 ** (i & 3))
        np.testing.assert_array_equal(out[32:64], [i + 5, i * 5][n & 1])
        np.testing.assert_array_equal(out[64:96], i * 123456789012345 // (n + 1) % 1000003)

        def case(v):
            return [
                v + 100,
                v - 3,
                v * 5,
                v ^ 0x55,
                v.bit_count(),
                32 - v.bit_length(),
                7 + [1, 2, 3][v % 3],
            ][v % 7]

        np.testing.assert_array_equal(out[96:], [case(int(v)) for v in x])
        want = (
            np.sin(i * 0.1) * np.cos(i * 0.1)
            + (i * 0.5) ** 1.3
            + np.exp(-i * 0.1)
            + np.log1p(i)
            + np.array([0.5, 0.25, 0.125])[i % 3]
        )
        np.testing.assert_allclose(real, want, rtol=1e-5)
    assert capsys.readouterr().out.splitlines() == [f"i=3 x={case(39)} text 2.500"] * 2
    assert math.isfinite(real[0])
