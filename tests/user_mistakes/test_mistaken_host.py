"""Mistakes outside kernels: options, names, types and how a kernel is called."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import nbtc
from nbtc import TensorMap, shared
from nbtc.errors import CompileError, DtypeError, InstructionError, LayoutError, TensorMapError
from nbtc.intrinsics import mbarrier
from nbtc.launch import Configured

from .mistake_helper import layout


@nbtc.jit(launch_bounds=32)
def scaled(A, scale, k):
    A[k] = scale


def test_a_piece_that_does_not_exist():
    with pytest.raises(AttributeError, match=r"no piece 'ful'; .*did you mean 'full'"):
        _ = layout.ful
    assert not hasattr(layout, "__array_interface__")
    assert copy.copy(layout).offsets == layout.offsets


def test_a_piece_outside_a_kernel():
    with pytest.raises(AttributeError, match=r"inside kernels only.*layout.offsets\['full'\]"):
        _ = layout.full


@pytest.mark.parametrize(("given", "meant"), [(128, "128B"), ("128b", "128B"), (None, "none")])
def test_swizzles_written_otherwise(given, meant):
    hint = rf"did you mean '{meant}'\?"
    with pytest.raises(LayoutError, match=hint):
        shared.tile("bfloat16", (64, 64), swizzle=given)
    with pytest.raises(TensorMapError, match=hint):
        TensorMap.tiled(np.zeros((64, 32), np.float32), (64, 32), swizzle=given)


def test_the_swizzle_that_no_map_of_the_host_has():
    with pytest.raises(TensorMapError, match=r"96B exists only as a value of tensormap\.replace"):
        TensorMap.tiled(np.zeros((64, 24), np.float32), (64, 24), swizzle="96B")


@pytest.mark.parametrize("text", ["tensormap", "tensor_map", "Tensormap", "TensorMap[:]"])
def test_tensor_maps_as_type_strings(text):
    with pytest.raises(CompileError, match=r'did you mean "TensorMap", or nbtc\.TensorMap'):
        scaled.compile(text, "float32", "int32")


def test_a_misspelt_dtype():
    with pytest.raises(DtypeError, match=r"'flot32' is not known.*did you mean 'float32'"):
        scaled.compile("flot32[:]", "float32", "int32")


def test_arguments_by_name():
    A = np.zeros(4, np.float32)
    says = r"scaled takes positional arguments \(A, scale, k\), got scale, k by name"
    for call in (
        scaled[1, 32],
        Configured(scaled, 1, 32),  # as on a GPU
        lambda *args, **named: scaled.emulate(1, 32, *args, **named),
    ):
        with pytest.raises(TypeError, match=says):
            call(A, scale=1.0, k=2)


@pytest.mark.parametrize(
    ("types", "says"),
    [
        (("float32[::1]", "float32", "int64"), "argument k is int32, not int64"),
        (("bfloat16[:, ::1]", "float32", "int32"), r"A is float32\[::1\], not bfloat16\[:, ::1\]"),
        (("float32[::1, :]", "float32", "int32"), r"A is float32\[::1\], not float32\[::1, :\]"),
        (("float16[:]", "float32", "int32"), r"A is float32\[::1\], not float16\[:\]"),
        ((nbtc.TensorMap, "float32", "int32"), r"A is float32\[::1\], not TensorMap"),
    ],
)
def test_loading_for_other_types(tmp_path, types, says):
    file = tmp_path / "kernel"
    scaled.save(file, "float32[::1]", "float32", "int32")
    with pytest.raises(CompileError, match=says):
        scaled.load(file, *types)


def test_a_python_integer_where_32_bits_are_needed():
    @nbtc.jit(shared=layout, launch_bounds=32)
    def kernel(out, n, k):
        count = k + 1
        mbarrier.init(layout.full[0], count)

    with pytest.raises(InstructionError, match=r"k is argument 2 and int64.*np\.int32\(k\)") as e:
        kernel[1, 32](np.zeros(1, np.float32), np.int32(1), 3)
    assert "np.int32(n)" not in str(e.value)
    with pytest.raises(InstructionError) as e:  # k + 1 is int64 all the same, but not because of k
        kernel.compile("float32[::1]", "int32", "int32")
    assert "np.int32" not in str(e.value)
