"""Time from a Python function to a cubin, with nothing cached on disk; needs no GPU."""

from __future__ import annotations

import importlib.util
from itertools import count
from pathlib import Path

import pytest

import nbtc
from nbtc.gemm import HopperConfig

EXAMPLES = sorted((Path(__file__).resolve().parent.parent / "examples").glob("[0-9]*.py"))
_fresh = count(1000)


@pytest.fixture(autouse=True)
def _no_disk_cache(monkeypatch):
    monkeypatch.setenv("NBTC_CACHE_DIR", "")


def test_default_gemm(benchmark):
    def compile_new():
        # Another raster group is another constant: a kernel that was never compiled before.
        return nbtc.gemm.compile("bfloat16", "sm_90a", group=next(_fresh))

    compiled = benchmark.pedantic(compile_new, rounds=3, warmup_rounds=1)
    assert compiled.notes == ()
    benchmark.extra_info["registers"] = compiled.resources.registers


def test_a_second_look_is_free(benchmark):
    """The kernel object keeps what it compiled; asking again costs only the hash of its inputs."""
    kernel = nbtc.gemm.make_kernel(HopperConfig())
    nbtc.gemm.compile("bfloat16", "sm_90a")
    compiled = benchmark(nbtc.gemm.compile, "bfloat16", "sm_90a")
    assert kernel.__name__ in compiled.entry


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_example(benchmark, path):
    def compile_new():
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.compiled()

    compiled = benchmark.pedantic(compile_new, rounds=1)
    assert compiled.resources.spill_bytes == 0
