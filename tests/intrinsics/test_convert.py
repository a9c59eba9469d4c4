"""Conversions: what a kernel computes with them, against ml_dtypes and NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from numba import cuda

from nbtc import jit
from nbtc.errors import ArchError, InstructionError
from nbtc.intrinsics import convert


@pytest.fixture(autouse=True)
def _no_disk_cache(monkeypatch):
    monkeypatch.setenv("NBTC_CACHE_DIR", "")


def _inputs(scale):
    rng = np.random.default_rng(7)
    x = (rng.standard_normal((64, 2)) * scale).astype(np.float32)
    x[0] = 0.0, -0.0
    x[1] = 1e9, -1e9
    x[2] = 1.0, -2.0
    return x


def _bits(values, dtype, limit=None):
    """Return the two rounded values of each row, upper one first, as unsigned bits."""
    if limit is not None:
        values = np.clip(values, -limit, limit)
    rounded = values.astype(dtype)
    raw = rounded.view(np.uint16 if rounded.dtype.itemsize == 2 else np.uint8).astype(np.uint32)
    return raw[:, 0], raw[:, 1]


def _sixteen(out, x):
    i = cuda.grid(1)
    out[i, 0] = convert.cvt_bf16x2_f32(x[i, 0], x[i, 1])
    out[i, 1] = convert.cvt_f16x2_f32(x[i, 0], x[i, 1], satfinite=True)
    out[i, 2] = convert.pack_b16x2(convert.cvt_bf16_f32(x[i, 1]), convert.cvt_bf16_f32(x[i, 0]))
    out[i, 3] = convert.cvt_tf32_f32(x[i, 0])
    low, high = convert.unpack_b16x2(convert.cvt_f16x2_f32(x[i, 0], x[i, 1], relu=True))
    out[i, 4] = low
    out[i, 5] = high


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_16_bit_pairs(arch):
    x = _inputs(100.0)
    out = np.zeros((64, 6), np.uint32)
    jit(_sixteen).emulate(1, 64, out, x, arch=arch)
    high, low = _bits(x, ml_dtypes.bfloat16)
    np.testing.assert_array_equal(out[:, 0], high << 16 | low)
    np.testing.assert_array_equal(out[:, 2], out[:, 0])
    high, low = _bits(x, np.float16, 65504.0)
    np.testing.assert_array_equal(out[:, 1], high << 16 | low)
    kept = x.view(np.uint32)[:, 0].astype(np.uint64)
    nearest = (kept + 0xFFF + (kept >> 13 & 1)) >> 13 << 13
    np.testing.assert_array_equal(out[:, 3], nearest)
    with np.errstate(over="ignore"):
        high, low = _bits(np.maximum(x, 0), np.float16)
    np.testing.assert_array_equal(out[:, 4] & 0x7FFF, low & 0x7FFF)
    np.testing.assert_array_equal(out[:, 5] & 0x7FFF, high & 0x7FFF)


def _eight(out, back, x):
    i = cuda.grid(1)
    e4m3 = convert.cvt_e4m3x2_f32(x[i, 0], x[i, 1])
    e5m2 = convert.cvt_e5m2x2_f32(x[i, 0], x[i, 1])
    out[i, 0] = e4m3
    out[i, 1] = e5m2
    low, high = convert.unpack_b16x2(convert.cvt_f16x2_e4m3x2(e4m3))
    back[i, 0] = convert.cvt_f32_f16(high)
    back[i, 1] = convert.cvt_f32_f16(low)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_8_bit_pairs_and_back(arch):
    x = _inputs(30.0)
    out, back = np.zeros((64, 2), np.uint32), np.zeros((64, 2), np.float32)
    jit(_eight).emulate(1, 64, out, back, x, arch=arch)
    for column, (dtype, limit) in enumerate(
        [(ml_dtypes.float8_e4m3fn, 448.0), (ml_dtypes.float8_e5m2, 57344.0)]
    ):
        high, low = _bits(x, dtype, limit)
        np.testing.assert_array_equal(out[:, column], high << 8 | low)
    clipped = np.clip(x, -448, 448).astype(ml_dtypes.float8_e4m3fn)
    np.testing.assert_array_equal(back, clipped.astype(np.float32))


def _narrow(out, back, x):
    i = cuda.grid(1)
    e2m1 = convert.cvt_e2m1x2_f32(x[i, 0], x[i, 1])
    out[i, 0] = convert.cvt_e2m3x2_f32(x[i, 0], x[i, 1])
    out[i, 1] = convert.cvt_e3m2x2_f32(x[i, 0], x[i, 1])
    out[i, 2] = e2m1
    out[i, 3] = convert.cvt_ue8m0x2_f32(abs(x[i, 0]), abs(x[i, 1]), rounding="rp")
    low, high = convert.unpack_b16x2(convert.cvt_f16x2_e2m1x2(e2m1))
    back[i, 0] = convert.cvt_f32_f16(high)
    back[i, 1] = convert.cvt_f32_f16(low)


def test_6_and_4_bit_pairs():
    x = _inputs(3.0)
    out, back = np.zeros((64, 4), np.uint32), np.zeros((64, 2), np.float32)
    jit(_narrow).emulate(1, 64, out, back, x, arch="sm_100a")
    high, low = _bits(x, ml_dtypes.float6_e2m3fn, 7.5)
    np.testing.assert_array_equal(out[:, 0], high << 8 | low)
    high, low = _bits(x, ml_dtypes.float6_e3m2fn, 28.0)
    np.testing.assert_array_equal(out[:, 1], high << 8 | low)
    high, low = _bits(x, ml_dtypes.float4_e2m1fn, 6.0)
    np.testing.assert_array_equal(out[:, 2], (high & 15) << 4 | (low & 15))
    clipped = np.clip(x, -6, 6).astype(ml_dtypes.float4_e2m1fn)
    np.testing.assert_array_equal(back, clipped.astype(np.float32))
    normal = np.abs(x) > 0
    exponent = np.where(normal, np.ceil(np.log2(np.abs(x), where=normal, out=np.zeros_like(x))), 0)
    scale = (exponent + 127).astype(np.uint32)
    np.testing.assert_array_equal((out[:, 3] >> 8)[normal[:, 0]], scale[normal[:, 0], 0])
    np.testing.assert_array_equal((out[:, 3] & 255)[normal[:, 1]], scale[normal[:, 1], 1])


def _integers(out, wide, x):
    i = cuda.grid(1)
    out[i, 0] = convert.cvt_int32_f32(x[i, 0], type="s32")
    out[i, 1] = convert.cvt_int32_f32(x[i, 0], type="s32", rounding="rmi")
    out[i, 2] = convert.cvt_int32_f32(x[i, 0], type="s8", sat=True)
    wide[i] = convert.cvt_int64_f32(x[i, 1], type="s64", rounding="rzi")


def test_integers_are_signed_and_saturate():
    x = _inputs(1000.0)
    out, wide = np.zeros((64, 3), np.int32), np.zeros(64, np.int64)
    jit(_integers).emulate(1, 64, out, wide, x, arch="sm_90a")
    exact = x[:, 0].astype(np.float64)
    np.testing.assert_array_equal(out[:, 0], np.rint(exact))
    np.testing.assert_array_equal(out[:, 1], np.floor(exact))
    np.testing.assert_array_equal(out[:, 2], np.clip(np.rint(exact), -128, 127))
    np.testing.assert_array_equal(wide, np.trunc(x[:, 1].astype(np.float64)))


def test_packed_conversions_become_one_machine_instruction():
    @jit
    def kernel(out, x):
        out[0] = convert.cvt_bf16x2_f32(x[0], x[1])

    made = kernel.compile("uint32[::1]", "float32[::1]", arch="sm_90a")
    assert made.count("F2FP") == 1
    assert "call" not in made.ptx


def test_errors():
    def relu_with_rna(out, x):
        out[0] = convert.cvt_tf32_f32(x[0], rounding="rna", relu=True)

    def wide(out, x):
        out[0] = convert.cvt_f16x2_e4m3x2(out[0])

    def blackwell(out, x):
        out[0] = convert.cvt_e2m1x2_f32(x[0], x[1])

    types = ("uint32[::1]", "float32[::1]")
    with pytest.raises(InstructionError, match="relu goes with rounding='rn' or 'rz'"):
        jit(relu_with_rna).compile(*types, arch="sm_90a")
    with pytest.raises(InstructionError, match="value is uint32, needs int16 or uint16"):
        jit(wide).compile(*types, arch="sm_90a")
    with pytest.raises(ArchError, match="sm_100a"):
        jit(blackwell).compile(*types, arch="sm_90a")
