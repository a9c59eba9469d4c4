"""The kernels of the GPU tests compile and run on the emulator, so that those tests do not rot."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from nbtc import testing
from nbtc.tensormap import TensorMap

_FILE = Path(__file__).parent / "gpu" / "launch_scenarios.py"
_spec = importlib.util.spec_from_file_location("launch_scenarios", _FILE)
assert _spec is not None
assert _spec.loader is not None
scenarios = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(scenarios)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("name", scenarios.KERNELS)
def test_kernel_compiles(name, arch):
    kernel, types = scenarios.KERNELS[name]
    compiled = kernel.compile(*types, arch=arch)
    assert compiled.resources.spill_bytes == 0
    assert len(compiled.argument_types) == len(types)


@pytest.fixture
def emulated():
    with testing.emulated(seed=1):
        yield


def zeros(shape, dtype="int32") -> np.ndarray:
    return np.zeros(shape, dtype)


def test_grid_is_counted_in_blocks(emulated):
    count, rank, clusters = zeros(1), zeros(8), zeros(8)
    scenarios.clusters_of_two[8, 32](count, rank, clusters)
    assert count[0] == 8
    assert rank.tolist() == [0, 1] * 4
    assert sorted(clusters.tolist()) == [0, 0, 1, 1, 2, 2, 3, 3]
    ranks = zeros((4, 6))
    scenarios.square_clusters[(6, 4), 32](ranks)
    assert ranks.tolist() == [[0, 1] * 3, [2, 3] * 3] * 2


def test_scalars_of_every_width(emulated):
    whole, real = zeros(10, "int64"), zeros(3, "float64")
    scenarios.scalars[1, 1](
        whole, real, np.int8(-100), np.int16(-30000), np.int32(-(2**31)), -(2**62), np.uint8(200),
        np.uint16(60000), np.uint32(2**32 - 1), np.uint64(2**64 - 2), np.float32(0.1), 0.1, True,
        (7, 2.5),
    )  # fmt: skip
    expected = [-100, -30000, -(2**31), -(2**62), 200, 60000, 2**32 - 1, 2**63 - 1, 1, 7]
    assert whole.tolist() == expected
    assert real.tolist() == [float(np.float32(0.1)), 0.1, 2.5]


@pytest.mark.parametrize(("row", "column"), [(0, 0), (7, 100), (80, 0), (-4, -8)])
def test_tensor_maps_of_numpy_memory(emulated, row, column):
    a = testing.random_normal((96, 128), "float32", seed=1)
    out, target = zeros((32, 32), "float32"), zeros((32, 32), "float32")
    scenarios.copy_tile[1, 32](
        np.int32(row), TensorMap.tiled(a, (32, 32)), np.int32(column), out,
        TensorMap.tiled(target, (32, 32)),
    )  # fmt: skip
    padded = np.zeros((160, 192), np.float32)
    padded[32:128, 32:160] = a
    expected = padded[32 + row : 64 + row, 32 + column : 64 + column]
    assert np.array_equal(out, expected)
    assert np.array_equal(target, expected)


def test_whole_shared_memory(emulated):
    ends = zeros(2)
    scenarios.ends_of_whole_shared[1, 32](ends)
    assert ends.tolist() == [11, 22]


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"])
def test_narrow_arrays(emulated, name):
    host = testing.random_normal((5, 7), name, seed=4)
    for view in (host, host.T, host[1:4, ::2]):
        target = zeros(view.shape, "float32")
        scenarios.widen[1, 1](view, target)
        assert np.array_equal(target, view.astype(np.float32))


def test_declared_dtype(emulated):
    values = testing.random_normal((4, 4), "bfloat16")
    target = zeros((4, 4), "float32")
    scenarios.widen[1, 1](scenarios.arguments.as_dtype(values.view(np.uint16), "bfloat16"), target)
    assert np.array_equal(target, values.astype(np.float32))
    assert values.dtype == ml_dtypes.bfloat16
