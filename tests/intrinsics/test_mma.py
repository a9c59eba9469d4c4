"""mma.sync with ldmatrix and stmatrix, and packed arithmetic: results against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from numba import cuda, types

from nbtc import jit
from nbtc.errors import InstructionError
from nbtc.intrinsics import convert, matrix, mma, packed
from nbtc.ptx import registers


@pytest.fixture(autouse=True)
def _no_disk_cache(monkeypatch):
    monkeypatch.setenv("NBTC_CACHE_DIR", "")


def _f16_tile(d, a, b):
    """D = A * B of 16 x 8 x 16: A and B through shared memory, D through stmatrix."""
    lane = cuda.threadIdx.x
    sa = cuda.shared.array((16, 16), types.uint16, alignment=16)
    sb = cuda.shared.array((8, 16), types.uint16, alignment=16)
    sd = cuda.shared.array((16, 8), types.uint16, alignment=16)
    for i in range(8):
        sa[(lane + 32 * i) // 16, (lane + 32 * i) % 16] = a[lane + 32 * i]
    for i in range(4):
        sb[(lane + 32 * i) // 16, (lane + 32 * i) % 16] = b[lane + 32 * i]
    cuda.syncthreads()
    ra = matrix.ldmatrix(sa[lane % 16, lane // 16 * 8 :], num=4)
    rb = matrix.ldmatrix(sb[lane % 8, lane // 8 % 2 * 8 :], num=2)
    c = mma.f16(ra, rb, registers.zeros(4))
    pair = (convert.cvt_f16x2_f32(c[1], c[0]), convert.cvt_f16x2_f32(c[3], c[2]))
    matrix.stmatrix(sd[lane % 16, 0:], pair, num=2)
    cuda.syncthreads()
    for i in range(4):
        d[lane + 32 * i] = sd[(lane + 32 * i) // 8, (lane + 32 * i) % 8]


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_a_tile_through_shared_memory(arch):
    rng = np.random.default_rng(3)
    a = rng.standard_normal((16, 16)).astype(np.float16)
    b = rng.standard_normal((8, 16)).astype(np.float16)  # column-major: row n holds B[:, n]
    d = np.zeros(128, np.uint16)
    raw = a.view(np.uint16).ravel(), b.view(np.uint16).ravel()
    jit(_f16_tile).emulate(1, 32, d, *raw, arch=arch)
    got = d.view(np.float16).reshape(16, 8).astype(np.float64)
    wanted = a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_allclose(got, wanted, rtol=2e-3, atol=2e-3)


def _int8_fragments(d, a, b):
    lane = cuda.threadIdx.x
    c = registers.zeros(4, "int32")
    ra = (a[lane, 0], a[lane, 1], a[lane, 2], a[lane, 3])
    c = mma.int8(ra, (b[lane, 0], b[lane, 1]), c, a_type="s8", b_type="u8")
    for j in range(2):
        d[lane // 4, 2 * (lane % 4) + j] = c[0] if j == 0 else c[1]
        d[lane // 4 + 8, 2 * (lane % 4) + j] = c[2] if j == 0 else c[3]


def test_the_fragment_formulas_of_the_docstring():
    rng = np.random.default_rng(4)
    a = rng.integers(-128, 128, (16, 32)).astype(np.int8)
    b = rng.integers(0, 256, (32, 8)).astype(np.uint8)
    lane, register, element = np.meshgrid(np.arange(32), np.arange(4), np.arange(4), indexing="ij")
    g, t = lane // 4, lane % 4
    fa = a[g + 8 * (register & 1), 4 * t + element + 16 * (register >> 1)]
    fb = b[(4 * t + element + 16 * register)[:, :2], g[:, :2]]
    ra = np.ascontiguousarray(fa).view(np.uint32)[..., 0]
    rb = np.ascontiguousarray(fb).view(np.uint32)[..., 0]
    d = np.zeros((16, 8), np.int32)
    jit(_int8_fragments).emulate(1, 32, d, ra, rb, arch="sm_90a")
    np.testing.assert_array_equal(d, a.astype(np.int64) @ b.astype(np.int64))


def _packed_halves(out, x, y):
    i = cuda.grid(1)
    a, b = x[i], y[i]
    out[i, 0] = packed.add_bf16x2(a, b)
    out[i, 1] = packed.mul_bf16x2(a, b, rounding="rn")
    out[i, 2] = packed.max_bf16x2(a, b)
    out[i, 3] = packed.neg_bf16x2(a)
    out[i, 4] = packed.abs_bf16x2(a)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_packed_bfloat16(arch):
    rng = np.random.default_rng(5)
    x, y = (rng.standard_normal((32, 2)).astype(ml_dtypes.bfloat16) for _ in range(2))
    out = np.zeros((32, 5), np.uint32)
    words = [v.view(np.uint32)[:, 0].copy() for v in (x, y)]
    jit(_packed_halves).emulate(1, 32, out, *words, arch=arch)
    got = out.view(ml_dtypes.bfloat16).reshape(32, 5, 2)
    wide = x.astype(np.float32), y.astype(np.float32)
    for column, wanted in enumerate(
        [wide[0] + wide[1], wide[0] * wide[1], np.maximum(*wide), -wide[0], abs(wide[0])]
    ):
        np.testing.assert_array_equal(got[:, column], wanted.astype(ml_dtypes.bfloat16))


def _packed_floats(out, x):
    i = cuda.grid(1)
    a = convert.pack_f32x2(x[i, 0], x[i, 1])
    low, high = convert.unpack_f32x2(packed.fma_f32x2(a, a, packed.add_f32x2(a, a)))
    out[i, 0] = low
    out[i, 1] = high


def test_packed_float32():
    x = np.arange(64, dtype=np.float32).reshape(32, 2)
    out = np.zeros_like(x)
    made = jit(_packed_floats)
    made.emulate(1, 32, out, x, arch="sm_100a")
    np.testing.assert_array_equal(out, x * x + 2 * x)
    compiled = made.compile("float32[:, ::1]", "float32[:, ::1]", arch="sm_100a")
    assert compiled.count("FFMA2") + compiled.count("FADD2") == 2


def test_errors():
    def short(out):
        c = mma.bf16(registers.zeros(2, "uint32"), registers.zeros(2, "uint32"), registers.zeros(4))
        out[0] = c[0]

    def both(out):
        out[0] = packed.fma_f16x2(1, 2, 3, sat=True, relu=True)

    def selector(out):
        four = registers.zeros(4, "uint32")
        out[0] = mma.sp_f16(four, four, registers.zeros(4), 0, selector=2)[0]

    for body, words in (
        (short, r"a has 2 registers, needs 4 \(k / 4\)"),
        (both, "sat=True with relu=True"),
        (selector, r"selector=2 with k=32: must be 0\.\.1"),
    ):
        with pytest.raises(InstructionError, match=words):
            jit(body).compile("float32[::1]", arch="sm_90a")
