"""Names that do not exist: the error says what was written, what was meant, and what there is."""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path

import numpy as np
import pytest

import nbtc
from nbtc import TensorMap, gemm, shared
from nbtc.device import mma
from nbtc.errors import CompileError, InstructionError, LayoutError
from nbtc.gemm import BlackwellConfig, HopperConfig
from nbtc.intrinsics import mbarrier, tma
from nbtc.jit import jit
from nbtc.spelling import checked, meant

layout = shared.Layout(full=shared.barriers(2))
HALVES = np.zeros((64, 64), np.float16)


@nbtc.jit
def kernel(out):
    out[0] = 1


@pytest.mark.parametrize(
    ("call", "what", "wrong", "right"),
    [
        (lambda: nbtc.jit(clutser=(2, 1)), "jit", "clutser", "cluster"),
        (lambda: nbtc.jit(max_dynamic_shared=1024), "jit", "max_dynamic_shared", "shared"),
        (lambda: kernel.compile("float32[::1]", acrh="sm_90a"), "Kernel.compile", "acrh", "arch"),
        (lambda: kernel.emulate(1, 1, HALVES, sede=1), "kernel.emulate", "sede", "seed"),
        (lambda: TensorMap.tiled(HALVES, (64, 64), swizle="128B"), "TensorMap.tiled", "swizle",
         "swizzle"),
        (lambda: TensorMap.described((64, 64), None, "float16", (64, 64), swizle="128B"),
         "TensorMap.described", "swizle", "swizzle"),
        (lambda: nbtc.matmul(HALVES, HALVES, epilog=None), "matmul", "epilog", "epilogue"),
        (lambda: gemm.quantize(HALVES, blok=32), "quantize", "blok", "block"),
        (lambda: HopperConfig(stage=4), "HopperConfig", "stage", "stages"),
        (lambda: HopperConfig().replace(stage=4), "HopperConfig", "stage", "stages"),
        (lambda: BlackwellConfig(stage=4), "BlackwellConfig", "stage", "stages"),
        (lambda: gemm.compile(stage=4), "HopperConfig", "stage", "stages"),
        (lambda: shared.tile("float32", (8, 8), swizle="none"), "tile", "swizle", "swizzle"),
    ],
)  # fmt: skip
def test_a_misspelt_option(call, what, wrong, right, monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")
    with pytest.raises(TypeError) as caught:
        call()
    text = str(caught.value)
    assert f"{what}: no option {wrong!r}; did you mean {right!r}?" in text
    listed = text.split("Options: ")[1].split(", ")
    assert right in listed
    assert not {"self", "cls", "args", "kwargs"} & set(listed)


def test_an_option_like_none_that_exists():
    with pytest.raises(TypeError, match=r"^jit: no option 'zzz'\. Options: cluster, "):
        nbtc.jit(zzz=1)


def test_other_wrong_calls_are_told_by_python():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'b'"):
        nbtc.matmul(HALVES)

    @checked
    def fails(value, *, option=1):
        raise TypeError(f"from inside {value} {option}")

    with pytest.raises(TypeError, match=r"^from inside 1 2$"):
        fails(1, option=2)


def test_signatures_and_texts_stay():
    for function in (jit, nbtc.matmul, TensorMap.tiled, HopperConfig, kernel.compile):
        assert function.__doc__
        assert not {"args", "options"} & set(inspect.signature(function).parameters)
    assert list(inspect.signature(nbtc.matmul).parameters)[:3] == ["a", "b", "out"]
    for function in (jit, nbtc.matmul, gemm.quantize, HopperConfig, shared.tile):
        assert pickle.loads(pickle.dumps(function)) is function


@pytest.mark.parametrize(
    ("word", "names", "wanted"),
    [
        ("relase", ["release", "acquire"], "; did you mean 'release'?"),
        ("full", ["full", "empty"], ""),
        ("x", ["stages"], ""),
    ],
)
def test_meant(word, names, wanted):
    assert meant(word, names) == wanted


def arrives(out):
    mbarrier.arive(layout.full[0])  # mistake


def loads(out):
    tma.laod(layout.full[0], out, (0, 0), layout.full[0])  # mistake


def block(out):
    mma.blok(out)  # mistake


def module(out):
    nbtc.intrinsics.mbarier.init(layout.full[0], 1)  # mistake


def bare_name(out):
    mbarier.init(layout.full[0], 1)  # noqa: F821  # mistake


def piece(out):
    mbarrier.init(layout.ful[0], 1)  # mistake


def parameter(out):
    mbarrier.init(layout.full[0], cuont=1)  # mistake


@nbtc.device
def helper(bar):
    mbarrier.arive(bar)  # mistake


def in_helper(out):
    helper(layout.full[0])


@pytest.mark.parametrize(
    ("function", "error", "right"),
    [
        (arrives, CompileError, "arrive"),
        (loads, CompileError, "load"),
        (block, CompileError, "block"),
        (module, CompileError, "mbarrier"),
        (bare_name, CompileError, "mbarrier"),
        (piece, LayoutError, "full"),
        (parameter, InstructionError, "count"),
        (in_helper, CompileError, "arrive"),
    ],
)
def test_a_misspelt_name_in_a_kernel(function, error, right):
    with pytest.raises(error) as caught:
        nbtc.jit(shared=layout)(function).compile("float32[::1]", arch="sm_90a")
    text = str(caught.value)
    lines = Path(__file__).read_text().splitlines()
    first = (helper.py_func if function is in_helper else function).__code__.co_firstlineno
    line = next(n for n, code in enumerate(lines[first:], first + 1) if "# mistake" in code)
    assert text.split(": ", maxsplit=1)[0].endswith(f"{Path(__file__)}:{line}")
    assert text.endswith(f"; did you mean {right!r}?")
