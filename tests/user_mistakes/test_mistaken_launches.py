"""Kernels launched, decorated and passed around wrongly."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

import nbtc
from nbtc import TensorMap
from nbtc.errors import ArchError, CompileError, DtypeError, LaunchError, NbtcError, TensorMapError

from .mistake_helper import run


@nbtc.jit
def simple(out):
    out[0] = 5


@pytest.mark.parametrize(
    ("launch", "error", "text"),
    [
        (lambda out: simple(out), LaunchError, r"simple: give grid and block, kernel\[grid"),
        (lambda out: simple[1](out), LaunchError, r"kernel\[1\]: give kernel\[grid, block\]"),
        (lambda out: simple[1.5, 32](out), LaunchError, "grid 1.5: .* integer"),
        (lambda out: simple[0, 32](out), LaunchError, "grid 0: .* at least 1"),
        (lambda out: simple[1, 32](), CompileError, r"takes 1 arguments \(out\), 0 types"),
        (lambda out: simple[1, 32](out, 1), CompileError, r"takes 1 arguments \(out\), 2 types"),
        (lambda out: simple[1, 32]([1.0]), LaunchError, "a list cannot be a kernel argument"),
        (lambda out: simple[1, 32]("x"), LaunchError, "a str cannot be a kernel argument"),
        (lambda out: nbtc.jit(launch_bounds=64)(simple.py_func)[1, 128](out), LaunchError,
         r"block \(128,1,1\) has 128 threads > launch_bounds 64"),
        (lambda out: simple[1, 1025](out), LaunchError, r"block\.x=1025 > 1024"),
        (lambda out: simple[1, (32, 64)](out), LaunchError, "2048 threads; at most 1024"),
        (lambda out: simple[(1, 70000), 1](out), LaunchError, r"grid\.y=70000 > 65535"),
        (lambda out: simple[1, 1, "x"](out), LaunchError, "stream='x' is not a stream"),
        (lambda out: simple[1, 1, 0, -1](out), LaunchError, "memory -1: must be a number of bytes"),
        (lambda out: simple[1, 1, 0, 300000](out), NbtcError, "300000 .* 232448"),
        (lambda out: nbtc.jit(cluster=2)(simple.py_func)[3, 32](out), LaunchError,
         "is not a multiple of cluster"),
        (lambda out: nbtc.jit(cluster=16)(simple.py_func), LaunchError, "needs non_portable=True"),
        (lambda out: nbtc.jit(launch_bounds="128"), CompileError, "launch_bounds='128'"),
        (lambda out: nbtc.jit(max_registers=300), CompileError, r"max_registers=300: must be 16"),
        (lambda out: simple.compile("float32[::1]", arch="h100"), ArchError, "Write 'sm_90a'"),
        (lambda out: simple.compile("float32[::1]", arch=90), ArchError, "Write 'sm_90a'"),
        (lambda out: simple.compile("float32[::1]", arch="sm_120a"), ArchError,
         "consumer Blackwell.*supported: sm_90, sm_90a, sm_100, sm_100a, sm_100f, sm_103a"),
        (lambda out: simple.compile("flaot32[::1]"), DtypeError, "'flaot32' is not known"),
    ],
)  # fmt: skip
def test_launches(launch, error, text):
    with pytest.raises(error, match=text):
        launch(np.zeros(4, np.float32))


@nbtc.device
def doubled(x):
    return 2 * x


class Holder:
    """Kernels as attributes of classes."""

    @nbtc.jit
    def bound(self, out):
        out[0] = 1

    @staticmethod
    @nbtc.jit
    def static(out):
        out[0] = 3


def test_kernels_in_classes():
    assert run(Holder.static) == 3
    with pytest.raises(CompileError, match=r"Holder.bound takes 2 arguments \(self, out\)"):
        run(Holder().bound)
    with pytest.raises(CompileError, match=r"write @staticmethod above @nbtc\.jit"):
        nbtc.jit(staticmethod(run))


@pytest.mark.parametrize("thing", [print, Holder, Holder(), "float32[:]", simple, doubled])
def test_decorating_what_is_no_function(thing):
    with pytest.raises(CompileError, match=r"nbtc\.jit takes a Python function, got "):
        nbtc.jit(thing)


def test_pickling_by_name(tmp_path):
    assert copy.deepcopy(Holder.static) is Holder.static
    (tmp_path / "kernels.py").write_text(
        "import nbtc\n@nbtc.device\ndef helper(x):\n    return x\n"
        "@nbtc.jit\ndef kernel(out):\n    out[0] = helper(1)\n"
    )
    script = (
        "import pickle, kernels\n"
        "for thing in (kernels.kernel, kernels.helper):\n"
        "    assert pickle.loads(pickle.dumps(thing)) is thing\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(nbtc.jit(lambda out: None))


def test_writing_to_a_read_only_array():
    out = np.zeros(4, np.float32)
    out.flags.writeable = False
    with pytest.raises(CompileError, match="The array is read-only; pass a copy"):
        simple[1, 1](out)


def test_tensor_maps_made_wrongly():
    array = np.zeros((64, 64), np.float32)
    with pytest.raises(TensorMapError, match=r"TensorMap\(ndarray\): use TensorMap\.tiled"):
        TensorMap(array)
    with pytest.raises(TensorMapError, match="box=64; needs a tuple of integers, one per axis"):
        TensorMap.tiled(array, 64)
    with pytest.raises(TensorMapError, match="box has 1 entries for an array of rank 2"):
        TensorMap.tiled(array, (64,))
    with pytest.raises(TensorMapError, match="swizzle=128; must be one of 'none', '32B'"):
        TensorMap.tiled(array, (64, 32), swizzle=128)
