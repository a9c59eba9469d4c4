"""The Blackwell GEMM on the emulator: every kernel against float64, with no finding."""

from __future__ import annotations

import numpy as np
import pytest

import nbtc
from nbtc import gemm, testing
from nbtc.errors import ArchError, DtypeError, LaunchError, LayoutError
from nbtc.gemm import BlackwellConfig

from .blackwell_helper import ARCH, NARROW, product

POLICIES = ("random", "earliest", "latest")

# Two CTA pairs (four single CTAs) share the tiles of the static schedule, and one cluster takes
# over nearly all with launch control: from five tiles on there are several waves.
SHAPES = [
    (256, 256, 64), (128, 256, 64), (512, 768, 128), (1, 1, 1), (1, 8, 64), (7, 5, 3),
    (64, 64, 64), (127, 129, 63), (129, 257, 65), (255, 255, 255), (256, 264, 8), (300, 520, 200),
    (513, 300, 72), (640, 512, 64), (1024, 256, 64), (257, 1025, 40), (96, 1536, 16),
    (770, 770, 130), (2, 2048, 64), (2049, 2, 64), (384, 640, 448), (200, 200, 1000),
    (31, 33, 500), (128, 128, 832), (520, 64, 384), (260, 136, 24), (512, 1032, 65),
    (1025, 513, 33), (140, 300, 577), (768, 768, 64),
]  # fmt: skip

SMALL = {"stages": 3}
KERNELS = {
    "one CTA": {"cta_group": 1, "accumulators": 1, "schedule": "static", "tile": (128, 256, 64)},
    "one CTA, f16": {"cta_group": 1, "accumulators": 1, "schedule": "static", "dtype": "float16"},
    "pair, clc": {},
    "pair, static": {"schedule": "static", "out_dtype": "float32"},
    "e4m3": {"dtype": "float8_e4m3fn"},
    "e5m2 x e4m3": {"dtype": "float8_e5m2", "b_dtype": "float8_e4m3fn", "out_dtype": "float32"},
    "tf32": {"dtype": "tfloat32"},
    "i8": {"dtype": "int8"},
    "mxfp8": {"dtype": "float8_e4m3fn", "block": 32, "out_dtype": "float32"},
    "nvfp4": {"dtype": "float4_e2m1fn", "block": 16, "out_dtype": "float32"},
}


def _config(name):
    return BlackwellConfig(**{**SMALL, **KERNELS[name]})


@pytest.mark.parametrize("number", range(3, len(SHAPES), 7))
@pytest.mark.parametrize("name", ["pair, clc", "one CTA"])
def test_shapes(name, number):
    product(SHAPES[number], _config(name), seed=number, completion=POLICIES[number // 7 % 3])


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel(name):
    number = list(KERNELS).index(name)
    report = product((260, 300, 136), _config(name), seed=number, completion=POLICIES[number % 3])
    assert report.instructions > 1000


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(SHAPES)))
@pytest.mark.parametrize("name", KERNELS)
def test_all_shapes_of_every_kernel(name, number):
    seed = number + 7 * list(KERNELS).index(name)
    product(SHAPES[number], _config(name), seed=seed, completion=POLICIES[seed % 3])


@pytest.mark.parametrize(
    ("cta_group", "cluster"),
    [
        (2, (2, 1)),
        (1, (1, 2)),
        pytest.param(2, (2, 2), marks=pytest.mark.slow),
        pytest.param(1, (2, 2), marks=pytest.mark.slow),
        pytest.param(2, (1, 4), marks=pytest.mark.slow),
        pytest.param(1, (8, 1), marks=pytest.mark.slow),
    ],
)
def test_multicast(cta_group, cluster):
    config = BlackwellConfig(cta_group=cta_group, cluster=cluster, tile=(0, 64, 0), stages=2)
    product((520, 200, 130), config, seed=cta_group, completion="latest")


@pytest.mark.parametrize(
    ("dtype", "a_major", "b_major"),
    [
        ("bfloat16", "MN", "K"),
        ("bfloat16", "K", "MN"),
        ("float16", "MN", "MN"),
        ("float8_e4m3fn", "MN", "MN"),
        ("int8", "MN", "MN"),
        ("tfloat32", "MN", "MN"),
    ],
)
def test_majorness(dtype, a_major, b_major):
    config = BlackwellConfig(
        dtype=dtype, a_major=a_major, b_major=b_major, tile=(0, 128, 0), stages=2
    )
    product((264, 136, 100), config, seed=3)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(NARROW)))
def test_narrow_types_mix(number):
    dtype, other = NARROW[number], NARROW[(number + 2) % len(NARROW)]
    for block in (0, 32):
        config = BlackwellConfig(
            dtype=dtype, b_dtype=other, out_dtype="float32", block=block, stages=2,
            cta_group=1 + number % 2, tile=(0, 128, 0),
        )  # fmt: skip
        product((140, 130, 300), config, seed=number)


@pytest.mark.parametrize(
    "parameters",
    [
        {"dtype": "float4_e2m1fn", "block": 32},  # mxf4
        {"dtype": "float4_e2m1fn", "block": 16, "tile": (0, 256, 0), "cta_group": 1},
        {"dtype": "float8_e5m2", "block": 32, "tile": (0, 256, 256)},
    ],
)
def test_scale_factors(parameters):
    config = BlackwellConfig(out_dtype="float32", schedule="static", **parameters)
    product((260, 300, 600), config, seed=1, completion="latest")


@pytest.mark.parametrize(
    "parameters",
    [
        {"tile": (0, 96, 0), "store_buffers": 4, "group": 1, "claims": 2},
        {"tile": (0, 32, 0)},
        {"tile": (0, 160, 128), "stages": 2, "out_dtype": "float32"},
        {"stages": 1, "accumulators": 1, "store_buffers": 1, "claims": 1},
        {"policies": ("evict_first", "evict_last", "evict_first"), "cta_group": 1},
    ],
)
@pytest.mark.slow
def test_other_configurations(parameters):
    product((300, 200, 200), BlackwellConfig(**{"tile": (0, 64, 0), **parameters}), seed=5)


# -- matmul ----------------------------------------------------------------------------------------


def _pair(m, n, k, dtype="bfloat16"):
    a, b = testing.random_normal((m, k), dtype, 1), testing.random_normal((n, k), dtype, 2)
    return a, b, testing.matmul_reference(a, b.T)


def test_matmul_of_arrays(monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")
    a, b, want = _pair(136, 72, 64)
    got = nbtc.matmul(a, b.T, arch=ARCH)
    assert got.dtype == a.dtype
    testing.assert_close(got, want)
    out = np.zeros((72, 136), np.float32).T  # columns contiguous
    assert nbtc.matmul(a, b.T, out, arch=ARCH) is out
    testing.assert_close(out, want)


@nbtc.device
def _bias_relu(value, row, column, bias):
    """Add a bias that has no element outside the matrix."""
    return max(value + bias[column], 0.0)


def test_epilogue_runs_inside_the_matrix_only(monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")
    a, b, want = _pair(100, 72, 64)
    bias = testing.random_normal(72, "float32", 3)
    got = nbtc.matmul(a, b.T, out_dtype="float32", epilogue=_bias_relu, extra=(bias,), arch=ARCH)
    testing.assert_close(got, np.maximum(want + bias, 0))


def test_quantised_matrices(monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")
    x, y = testing.random_normal((130, 96), seed=1), testing.random_normal((70, 96), seed=2)
    a, b = (gemm.quantize(v, "float4_e2m1fn", block=16) for v in (x, y))
    got = nbtc.matmul(a, b.T, arch=ARCH)
    testing.assert_close(got, testing.matmul_reference(a.dequantize(), b.T.dequantize()))
    assert testing.relative_error(got, testing.matmul_reference(x, y.T)) < 0.2
    with pytest.raises(LayoutError, match=r"b is .*pass b as the \.T of an N x K matrix"):
        nbtc.matmul(a, b, arch=ARCH)
    with pytest.raises(DtypeError, match=r"ue4m3 .* blocks of 16.*both must agree"):
        nbtc.matmul(a, gemm.quantize(y, block=32).T, arch=ARCH)


def test_refused_operands(monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")
    a = np.zeros((16, 16), np.float64)
    with pytest.raises(DtypeError, match="a is float64; on Blackwell bfloat16"):
        nbtc.matmul(a, a, arch=ARCH)
    with pytest.raises(ArchError, match="no kernel for sm_90;"):
        nbtc.matmul(a, a, arch="sm_90")
    half = np.zeros((16, 16), np.float16)
    with pytest.raises(LayoutError, match="dtype='float16' with b_dtype='int8'"):
        nbtc.matmul(half, np.zeros((16, 16), np.int8), arch=ARCH)
    with pytest.raises(LaunchError, match=r"HopperConfig; sm_100a takes a nbtc\.gemm\.Blackwell"):
        nbtc.matmul(half, half, config=gemm.HopperConfig(), arch=ARCH)
    with pytest.raises(LayoutError, match=r"out .* overlaps a "):
        nbtc.matmul(half, half, half, arch=ARCH)
    with pytest.raises(DtypeError, match=r"a is <Quantized 16 x 32 .*sm_90a has no tensor cores"):
        nbtc.matmul(gemm.quantize(np.zeros((16, 32))), half, arch="sm_90a")
    with pytest.raises(LayoutError, match=r"a \(16\) must equal the rows of b \(8\)"):
        nbtc.matmul(half, half[:8], arch=ARCH)
