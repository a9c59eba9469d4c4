"""Kernels saved on one machine and loaded on another."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from numba import cuda

import nbtc
from nbtc import gemm, ptxas, testing
from nbtc.errors import CompileError


def make(scale=2):
    @nbtc.jit
    def scaled(x):
        i = cuda.threadIdx.x
        x[i] = x[i] * np.float32(scale)

    return scaled


TYPES = ("float32[::1]",)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "deep" / "scaled.nbtc"
    make().save(path, *TYPES, arch="sm_90a")
    return path


def test_a_saved_kernel_is_the_one_that_runs(file, monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")
    monkeypatch.setenv("NBTC_CACHE_DIR", "")
    want = make().compile(*TYPES, arch="sm_90a")
    kernel = make()

    def refuse(*args, **kwargs):
        raise AssertionError("assembled")

    monkeypatch.setattr(ptxas, "assemble", refuse)
    found = kernel.load(file, *TYPES)
    assert (found.cubin, found.ptx, found.arch) == (want.cubin, want.ptx, "sm_90a")
    assert found.resources == want.resources
    assert kernel.compile(*TYPES) is found
    x = np.arange(32, dtype=np.float32)
    kernel[1, 32](x)
    assert (x == 2 * np.arange(32)).all()
    with pytest.raises(CompileError, match="assembled"):
        kernel.compile("float64[::1]")  # the refusal works


def test_matmul_runs_a_loaded_kernel(tmp_path, monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")
    monkeypatch.setenv("NBTC_CACHE_DIR", "")
    config = gemm.HopperConfig(tile=(64, 32, 32), stages=2, consumers=1, cluster=(1, 1), group=5)
    signature = gemm.argument_types(config)
    kernel = gemm.make_kernel(config)
    kernel.save(tmp_path / "gemm.nbtc", *signature, arch="sm_90a")
    kernel.load(tmp_path / "gemm.nbtc", *signature)
    monkeypatch.setenv("NBTC_PTXAS", "/nowhere/ptxas")
    a = testing.random_normal((64, 64), "bfloat16", seed=1)
    b = testing.random_normal((32, 64), "bfloat16", seed=2).T
    testing.assert_close(nbtc.matmul(a, b, config=config), testing.matmul_reference(a, b))


def test_no_tool_is_needed_to_load(file):
    """Neither ptxas nor libNVVM is looked for where a kernel is only launched."""
    code = f"""
import os
os.environ["NBTC_PTXAS"] = "/nowhere/ptxas"
os.environ["NBTC_EMULATE"] = "1"
import numpy as np
from tests.test_saved import make, TYPES
kernel = make()
kernel.load({str(file)!r}, *TYPES)
x = np.ones(32, np.float32)
kernel[1, 32](x)
assert (x == 2).all()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_other_types_are_refused(file):
    with pytest.raises(CompileError, match=r"other argument types: argument x is float32.*64"):
        make().load(file, "float64[::1]")
    with pytest.raises(CompileError, match="1 arguments, not 2"):
        make().load(file, *TYPES, "int32")


def test_another_version_of_the_source_is_refused(file):
    with pytest.raises(CompileError, match=r"another version of kernel make.<locals>.scaled"):
        make(scale=5).load(file, *TYPES)


def test_another_kernel_is_refused(file):
    @nbtc.jit
    def other(x):
        x[0] = 1

    with pytest.raises(CompileError, match=r"has kernel scaled, not .*other"):
        other.load(file, *TYPES)


def test_files_that_are_none(file, tmp_path):
    with pytest.raises(CompileError, match="no such file"):
        make().load(tmp_path / "none", *TYPES)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CompileError, match=r"damaged, or was not written by kernel\.save"):
        make().load(file, *TYPES)
