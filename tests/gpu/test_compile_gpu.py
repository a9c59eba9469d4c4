"""What is compiled here runs on the GPU: narrow elements, helpers, fast math, other targets."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from numba import cuda

from nbtc import device, driver, jit
from nbtc.errors import LaunchError
from nbtc.testing import DeviceArray

pytestmark = pytest.mark.gpu

DTYPES = [ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]


@jit
def convert(out, source):
    i = cuda.grid(1)
    if i < source.size:
        out[i] = source[i]


@jit
def through_shared(out, source):
    tile = cuda.shared.array(256, ml_dtypes.bfloat16)
    i = cuda.threadIdx.x
    tile[i] = source[i]
    cuda.syncthreads()
    out[i] = tile[255 - i]


@device
def polynomial(x, *, degree=2):
    if degree == 2:
        return x * x + x
    return x


@jit(launch_bounds=256)
def helpers(out, source):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = polynomial(source[i]) + polynomial(source[i], degree=1)


def _host(array: DeviceArray) -> np.ndarray:
    return array.numpy()


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_value_widens_exactly(dtype):
    bits = np.dtype(dtype).itemsize * 8
    values = np.arange(1 << bits, dtype=f"uint{bits}").view(dtype)
    out = DeviceArray(values.size, "float32")
    convert[(values.size + 255) // 256, 256](out, DeviceArray.copy_of(values))
    np.testing.assert_array_equal(_host(out), values.astype(np.float32))


@pytest.mark.parametrize("dtype", DTYPES)
def test_stores_round_to_nearest_even_and_saturate(dtype):
    rng = np.random.default_rng(3)
    bits = np.dtype(dtype).itemsize * 8
    exact = np.arange(1 << bits, dtype=f"uint{bits}").view(dtype).astype(np.float32)
    exact = exact[np.isfinite(exact)]
    source = np.concatenate([
        exact, exact[:-1] / 2 + exact[1:] / 2,
        (rng.normal(size=1 << 18) * np.exp2(rng.integers(-40, 40, 1 << 18))).astype(np.float32),
        np.float32([np.inf, -np.inf, np.nan, 1e38, -0.0]),
    ]).astype(np.float32)  # fmt: skip
    out = DeviceArray(source.size, dtype)
    convert[(source.size + 255) // 256, 256](out, DeviceArray.copy_of(source))
    wanted = source
    if bits == 8:
        top = np.float32(ml_dtypes.finfo(dtype).max)
        wanted = np.clip(source, -top, top)
    with np.errstate(all="ignore"):
        wanted = wanted.astype(dtype)
    np.testing.assert_array_equal(_host(out).astype(np.float32), wanted.astype(np.float32))


def test_shared_memory_holds_narrow_elements():
    source = np.random.default_rng(4).normal(size=256).astype(np.float32)
    out = DeviceArray(256, "float32")
    through_shared[1, 256](out, DeviceArray.copy_of(source))
    wanted = source.astype(ml_dtypes.bfloat16).astype(np.float32)[::-1]
    np.testing.assert_array_equal(_host(out), wanted)


def test_helpers_and_their_constants():
    source = np.random.default_rng(5).normal(size=1000).astype(np.float32)
    out = DeviceArray(1000, "float32")
    helpers[4, 256](out, DeviceArray.copy_of(source))
    np.testing.assert_allclose(_host(out), source * source + 2 * source, rtol=1e-5, atol=1e-6)


def test_code_for_another_device_is_refused():
    major, _ = driver.compute_capability()
    other = "sm_100a" if major == 9 else "sm_90a"
    wrong = jit(arch=other)(convert.py_func)
    with pytest.raises(LaunchError, match=other):
        wrong[1, 32](DeviceArray(4, "float32"), DeviceArray(4, "float32"))
