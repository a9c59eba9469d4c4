"""Layouts of shared memory used wrongly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numba import cuda
from numba.cuda.types import float32

import nbtc
from nbtc import shared
from nbtc.errors import FindingsError, LayoutError
from nbtc.intrinsics import mbarrier

from .mistake_helper import compiled, layout


def stage_below(out):
    mbarrier.init(layout.full[-1], 1)


def stage_above(out):
    mbarrier.init(layout.full[2], 1)


def stage_float(out):
    mbarrier.init(layout.full[out[0]], 1)


def piece_unknown(out):
    out[0] = layout.tile


def swizzled_elements(out):
    out[0] = layout.a.array[0, 0, 0]


def index_without_stages(out):
    out[0] = layout.bias[0]


def layout_forgotten(out):
    out[0] = layout.bias.array[0]


other = shared.Layout(x=shared.array("float32", (8,)))


def two_layouts(out):
    layout.bias.array[0] = 1
    other.x.array[0] = 2
    out[0] = layout.bias.array[0]


def layout_and_dynamic_array(out):
    values = cuda.shared.array(0, float32)
    values[0] = 2
    layout.bias.array[0] = 1
    out[0] = values[0]


@pytest.mark.parametrize(
    ("function", "used", "parts"),
    [
        (stage_below, layout, ["full[-1]: stages are 0..1"]),
        (stage_above, layout, ["full[2]: stages are 0..1"]),
        (stage_float, layout, ["the stage is float32, and must be an integer"]),
        (piece_unknown, layout, ["no piece 'tile'; pieces: a, bias, full"]),
        (swizzled_elements, layout, ["a.array", "swizzled", "shared.array"]),
        (index_without_stages, layout, ["no stages", "bias.array[...]"]),
        (layout_forgotten, None, ["a shared.Layout of 16656 B", "@nbtc.jit(shared=layout)"]),
        (layout_forgotten, other, ["a shared.Layout of 16656 B, but has 32 B"]),
        (two_layouts, layout, ["another shared.Layout", "same memory", "one layout"]),
        (layout_and_dynamic_array, layout, ["cuda.shared.array(0, ...)", "same memory"]),
    ],
)
def test_shared_memory(function, used, parts):
    with pytest.raises(LayoutError) as caught:
        compiled(function, "float32[::1]", shared=used)
    text = str(caught.value)
    assert text.startswith(f"{Path(__file__)}:")
    for part in parts:
        assert part in text


@pytest.mark.parametrize("value", [1024, {"a": 1}, shared.barriers(2)])
def test_something_else_than_a_layout(value):
    with pytest.raises(LayoutError, match=r"shared=.*needs a nbtc.shared.Layout"):
        nbtc.jit(shared=value)


def test_a_global_array_as_a_barrier_is_found_by_the_emulator():
    @nbtc.jit(launch_bounds=32)
    def kernel(out):
        mbarrier.init(out, 1)

    with pytest.raises(FindingsError, match=r"test_mistaken_shared_memory\.py:\d+ in kernel"):
        kernel[1, 1](np.zeros(4, np.int64))
