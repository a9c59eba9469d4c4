"""Speed of the emulator with all checks on: the shipped GEMM and the examples; needs no GPU.

The aims, on two cores: the GEMM of 128x256x64 tiles in clusters of two takes less than 2 s for
512^3 and less than 15 s for 1024^3, and an example less than half a second after compilation.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import nbtc
from nbtc import testing
from nbtc.gemm import HopperConfig

EXAMPLES = sorted((Path(__file__).resolve().parent.parent / "examples").glob("[0-9]*.py"))


@pytest.mark.parametrize("size", [512, 1024])
def test_gemm(benchmark, size):
    a = testing.random_normal((size, size), "bfloat16", 1)
    b = testing.random_normal((size, size), "bfloat16", 2)

    def multiply():
        return nbtc.matmul(a, b.T, config=HopperConfig())

    with testing.emulated(0):
        # Compile first, on the smallest problem.
        nbtc.matmul(a[:128, :64], b[:256, :64].T, config=HopperConfig())
        out = benchmark.pedantic(multiply, rounds=1)
    testing.assert_close(out, testing.matmul_reference(a, b.T))
    benchmark.extra_info["GFLOP"] = 2 * size**3 / 1e9


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_example(benchmark, path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with testing.emulated(0):
        # The first run compiles into the disk cache, from which the timed ones read.
        benchmark.pedantic(module.check, rounds=2, warmup_rounds=1)
