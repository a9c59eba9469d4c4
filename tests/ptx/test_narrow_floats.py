"""What x[i] yields and takes on bfloat16, float16 and float8 arrays."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
from numba import cuda
from numba.cuda import types

from nbtc import device, jit
from nbtc.errors import CompileError
from nbtc.ptx.narrow_floats import NARROW, element_type

DTYPES = {
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}
COUNT = 3000
"""Values tried of the 16-bit types; the 8-bit types are tried in full."""

CONVERSIONS = {
    "bfloat16": (None, "cvt.rn.bf16.f32"),
    "float16": ("cvt.f32.f16", "cvt.rn.f16.f32"),
    "float8_e4m3fn": ("cvt.rn.f16x2.e4m3x2", "cvt.rn.satfinite.e4m3x2.f32"),
    "float8_e5m2": ("cvt.rn.f16x2.e5m2x2", "cvt.rn.satfinite.e5m2x2.f32"),
}


@pytest.fixture(autouse=True)
def _no_disk_cache(monkeypatch):
    monkeypatch.setenv("NBTC_CACHE_DIR", "")


@jit
def widen(out, source):
    i = cuda.grid(1)
    if i < source.size:
        out[i] = source[i]


@jit
def narrow(out, source):
    i = cuda.grid(1)
    if i < source.size:
        out[i] = source[i]


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("name", list(DTYPES))
def test_conversions_are_instructions_of_the_kernel(name, arch):
    load, store = CONVERSIONS[name]
    ptx = widen.compile("float32[::1]", f"{name}[::1]", arch=arch).ptx
    assert ".extern" not in ptx
    if load is None:
        assert re.search(r"shl\.b32\s+%\w+, %\w+, 16;", ptx)
    else:
        assert load in ptx
    ptx = narrow.compile(f"{name}[::1]", "float32[::1]", arch=arch).ptx
    assert ".extern" not in ptx
    assert store in ptx
    width = NARROW[name].bitwidth
    assert re.search(rf"st\.global\.[ub]{width}\s", ptx)


@pytest.mark.parametrize("spelling", ["type", "class", "string"])
@pytest.mark.parametrize("name", list(DTYPES))
def test_an_element_is_float32(name, spelling):
    seen = []

    @device
    def look(x):
        return record(x)

    from nbtc.ptx.staging import staged

    @staged(lambda x: seen.append(x) or x)
    def record(e, x):
        return x

    @jit
    def kernel(out, source):
        tile = cuda.shared.array(32, element)
        tile[cuda.threadIdx.x] = source[1, 2]
        cuda.syncthreads()
        out[0] = look(source[0, 1]) + look(tile[3]) + look(source[0][1])

    element = {"type": NARROW[name], "class": DTYPES[name], "string": name}[spelling]
    kernel.compile("float32[:]", f"{name}[:, ::1]", arch="sm_90a")
    assert set(seen) == {types.float32}


def test_stores_take_any_real_number():
    @jit
    def kernel(out, i, f, d, b):
        out[0] = i
        out[1] = f
        out[2] = d
        out[3] = b
        out[4] = 1
        out[5] = 2.5
        out[6] = out[5]
        out[7] += f

    for name in DTYPES:
        assert kernel.compile(f"{name}[::1]", "int32", "float32", "float64", "bool").cubin


def test_stores_refuse_what_is_no_real_number():
    @jit
    def kernel(out, c):
        out[0] = c

    with pytest.raises(CompileError):
        kernel.compile("bfloat16[::1]", types.complex64)


def test_element_types():
    assert element_type("bf16") is NARROW["bfloat16"]
    assert element_type(ml_dtypes.float8_e5m2) is NARROW["float8_e5m2"]
    assert element_type(np.float16) is NARROW["float16"]
    assert element_type("float4_e2m1fn") == types.uint8
    assert element_type("float8_e8m0fnu") == types.uint8
    assert element_type(np.int64) == types.int64


def _all_values(dtype):
    bits = np.dtype(dtype).itemsize * 8
    return np.arange(1 << bits, dtype=f"uint{bits}").view(dtype)


def _expected_narrow(source, dtype):
    with np.errstate(all="ignore"):
        result = source.astype(dtype)
    if np.dtype(dtype).itemsize == 1:
        # PTX clamps where the plain cast gives infinity or NaN.
        top = np.float32(ml_dtypes.finfo(dtype).max)
        result = np.clip(source, -top, top).astype(dtype)
    return result


def _samples(dtype):
    rng = np.random.default_rng(7)
    exact = _all_values(dtype).astype(np.float32)
    exact = exact[np.isfinite(exact)]
    between = exact[:-1] / 2 + exact[1:] / 2
    return np.concatenate([
        exact, between[np.isfinite(between)], np.nextafter(exact, np.float32(np.inf)),
        (rng.normal(size=4000) * np.exp2(rng.integers(-30, 20, 4000))).astype(np.float32),
        np.float32([np.inf, -np.inf, np.nan, 1e30, -1e30, 0.0, -0.0]),
    ]).astype(np.float32)  # fmt: skip


@pytest.mark.parametrize("name", list(DTYPES))
def test_values_on_the_emulator(name, monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")
    dtype = DTYPES[name]
    rng = np.random.default_rng(1)
    values = _all_values(dtype)
    if values.size > COUNT:
        values = rng.choice(values, COUNT, replace=False)
    out = np.zeros(values.size, np.float32)
    widen[(values.size + 127) // 128, 128](out, values)
    np.testing.assert_array_equal(out, values.astype(np.float32))

    source = _samples(dtype)
    if source.size > COUNT:
        source = rng.choice(source, COUNT, replace=False)
    result = np.zeros(source.size, dtype)
    narrow[(source.size + 127) // 128, 128](result, source)
    wanted = _expected_narrow(source, dtype)
    np.testing.assert_array_equal(result.astype(np.float32), wanted.astype(np.float32))
