"""The mma.sync unit against products of matrices packed with the layout functions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from nbtc.emulator.units import UnitFault, mma_sync
from nbtc.layout import fragments as fr

NUMPY = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8,
    "u8": np.uint8, "f64": np.float64,
}  # fmt: skip


def operand(rng, shape, kind):
    """Random patterns and their values in float64."""
    if kind in ("s4", "u4"):
        patterns = rng.integers(0, 16, shape)
        values = np.where(patterns > 7, patterns - 16, patterns) if kind == "s4" else patterns
        return patterns.astype(np.uint64), values.astype(np.float64)
    if kind == "b1":
        patterns = rng.integers(0, 2, shape)
        return patterns.astype(np.uint64), patterns.astype(np.float64)
    dtype = np.dtype(NUMPY[kind])
    if dtype.kind in "iu":
        array = rng.integers(-128 if kind == "s8" else 0, 128, shape).astype(dtype)
    else:
        array = rng.standard_normal(shape).astype(dtype)
    if kind == "tf32":
        array = (array.view(np.uint32) & 0xFFFFE000).view(np.float32)
    return array.view(f"u{dtype.itemsize}").astype(np.uint64), array.astype(np.float64)


def pack(patterns, count, bits, row_of, col_of):
    """Pack patterns into registers; positions by (lane, register, element)."""
    width = 64 if bits == 64 else 32
    registers = np.zeros((count, 32), np.uint64)
    for reg, lane, element in np.ndindex(count, 32, width // bits):
        registers[reg, lane] |= patterns[
            row_of(lane, reg, element), col_of(lane, reg, element)
        ] << np.uint64(bits * element)
    return registers if width == 64 else registers.astype(np.uint32)


CASES = [
    (16, 8, 8, "f32", "f16", "f16"), (16, 8, 16, "f32", "f16", "f16"),
    (16, 8, 16, "f16", "f16", "f16"), (16, 8, 8, "f32", "bf16", "bf16"),
    (16, 8, 16, "f32", "bf16", "bf16"), (16, 8, 4, "f32", "tf32", "tf32"),
    (16, 8, 8, "f32", "tf32", "tf32"), (16, 8, 16, "s32", "s8", "u8"),
    (16, 8, 32, "s32", "u8", "s8"), (16, 8, 32, "s32", "s4", "u4"),
    (16, 8, 64, "s32", "s4", "s4"), (16, 8, 128, "s32", "b1", "b1"),
    (16, 8, 256, "s32", "b1", "b1"), (16, 8, 16, "f32", "e4m3", "e5m2"),
    (16, 8, 32, "f32", "e5m2", "e4m3"), (16, 8, 32, "f16", "e4m3", "e4m3"),
    (8, 8, 4, "f64", "f64", "f64"), (16, 8, 4, "f64", "f64", "f64"),
    (16, 8, 8, "f64", "f64", "f64"), (16, 8, 16, "f64", "f64", "f64"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("case", "xor"),
    [(case, False) for case in CASES] + [(case, True) for case in CASES if case[4] == "b1"],
)
def test_products(case, xor):
    m, n, k, d, kind_a, kind_b = case
    rng = np.random.default_rng(k)
    op = mma_sync.operation(*case)
    bits = op.bits
    formula = 32 if bits == 64 else bits
    pa, va = operand(rng, (m, k), kind_a)
    pb, vb = operand(rng, (k, n), kind_b)
    a = pack(pa, op.a_registers, bits,
             lambda lane, r, e: fr.mma_a_row(lane, r) if m == 16 else lane >> 2,
             lambda lane, r, e: fr.mma_a_col(lane, r, e, formula))  # fmt: skip
    b = pack(pb, op.b_registers, bits, lambda lane, r, e: fr.mma_b_row(lane, r, e, formula),
             lambda lane, r, e: fr.mma_b_col(lane))  # fmt: skip
    if d == "s32":
        start = rng.integers(-1000, 1000, (m, n)).astype(np.int32)
    else:
        start = rng.standard_normal((m, n)).astype({"f16": "f2", "f32": "f4", "f64": "f8"}[d])
    row = (lambda lane, r, e: fr.mma_f16_row(lane, r)) if d == "f16" else (
        lambda lane, r, e: fr.mma_row(lane, r))  # fmt: skip
    col = (lambda lane, r, e: fr.mma_f16_col(lane, e)) if d == "f16" else (
        lambda lane, r, e: fr.mma_col(lane, r))  # fmt: skip
    width = {"f16": 16, "f64": 64}.get(d, 32)
    c = pack(start.view(f"u{width // 8}").astype(np.uint64), op.d_registers, width, row, col)
    got = mma_sync.mma(op, a, b, c, xor=xor)
    want = va @ vb + start.astype(np.float64)
    if xor:
        want = (va[:, :, None].astype(int) ^ vb[None].astype(int)).sum(axis=1) + start
    values = np.zeros((m, n))
    flat = got.view({"f16": np.float16, "f32": np.float32, "s32": np.int32, "f64": np.float64}[d])
    flat = flat.reshape(op.d_registers, 32, -1)
    for reg, lane, element in np.ndindex(*flat.shape):
        values[row(lane, reg, element), col(lane, reg, element)] = flat[reg, lane, element]
    tolerance = {"s32": 0, "f16": 2**-9, "f32": 1e-5, "f64": 1e-13}[d]
    np.testing.assert_allclose(values, want, rtol=tolerance, atol=tolerance * 4)


def test_saturation_and_wrap():
    op = mma_sync.operation(16, 8, 16, "s32", "u8", "u8")
    a, b = np.full((2, 32), 0xFFFFFFFF, np.uint32), np.full((1, 32), 0xFFFFFFFF, np.uint32)
    c = np.full((4, 32), 0x7FFFFFFF, np.uint32)
    assert (mma_sync.mma(op, a, b, c, satfinite=True) == 0x7FFFFFFF).all()
    assert (mma_sync.mma(op, a, b, c) == (0x7FFFFFFF + 255 * 255 * 16) & 0xFFFFFFFF).all()


@pytest.mark.parametrize(
    "case",
    [(16, 8, 16, "f32", "f16", "bf16"), (16, 8, 64, "s32", "s8", "s8"),
     (16, 8, 16, "f16", "bf16", "bf16"), (8, 8, 16, "f32", "f16", "f16")],
)  # fmt: skip
def test_illegal(case):
    with pytest.raises(UnitFault, match="mma"):
        mma_sync.operation(*case)


@pytest.mark.parametrize(
    ("k", "d", "kind", "selectors"),
    [(16, "f32", "f16", 4), (32, "f32", "bf16", 2), (8, "f32", "tf32", 4), (16, "f32", "tf32", 2),
     (32, "s32", "s8", 2), (64, "s32", "u8", 1), (64, "f32", "e4m3", 1), (64, "s32", "s4", 2),
     (128, "s32", "u4", 1)],
)  # fmt: skip
def test_sparse(k, d, kind, selectors):
    rng = np.random.default_rng(k)
    op = mma_sync.operation(16, 8, k, d, kind, kind, sparse=True)
    bits, size = op.bits, {"tf32": 2, "s4": 8, "u4": 8}.get(kind, 4)
    stored, values = operand(rng, (16, k // 2), kind)
    pb, vb = operand(rng, (k, 8), kind)
    a = pack(stored, op.a_registers, bits, lambda lane, r, e: fr.mma_a_row(lane, r),
             lambda lane, r, e: fr.mma_a_col(lane, r, e, bits))  # fmt: skip
    b = pack(pb, op.b_registers, bits, lambda lane, r, e: fr.mma_b_row(lane, r, e, bits),
             lambda lane, r, e: fr.mma_b_col(lane))  # fmt: skip
    dense = np.zeros((16, k))
    nibbles = np.zeros((16, k // size), np.int64)
    for row, group in np.ndindex(*nibbles.shape):
        chosen = np.sort(rng.choice(2 if size == 2 else 4, 1 if size == 2 else 2, replace=False))
        spots = np.repeat(2 * chosen, 2) + np.tile([0, 1], 2) if size == 8 else chosen
        dense[row, group * size + spots] = values[row, group * size // 2 :][: size // 2]
        nibbles[row, group] = (4, 14)[chosen[0]] if size == 2 else chosen[0] | chosen[1] << 2
    for selector in range(selectors):
        metadata = rng.integers(0, 1 << 32, 32).astype(np.uint32)
        # A row's nibbles fill whole registers: 16-bit halves of two rows, or one row per lane.
        lanes_per_row = k // size * 4 // (16 if bits >= 16 else 32)
        for row in range(16):
            for i in range(lanes_per_row):
                lane, shift, width = 4 * (row % 8), 0, 32
                if bits >= 16:
                    shift, width = 16 * (row // 8), 16
                    lane += (selector if selectors == 4 else 2 * selector) + i
                else:
                    lane += 2 * selector + row // 8 + 2 * i
                word = sum(int(n) << 4 * j for j, n in enumerate(
                    nibbles[row, i * width // 4 : (i + 1) * width // 4]))  # fmt: skip
                keep = ~(((1 << width) - 1) << shift) & 0xFFFFFFFF
                metadata[lane] = int(metadata[lane]) & keep | word << shift
        c = np.zeros((4, 32), np.uint32)
        got = mma_sync.mma(op, a, b, c, metadata=metadata, selector=selector)
        got = got.view(np.int32 if d == "s32" else np.float32)
        matrix = np.zeros((16, 8))
        for reg, lane in np.ndindex(4, 32):
            matrix[fr.mma_row(lane, reg), fr.mma_col(lane, reg)] = got[reg, lane]
        np.testing.assert_allclose(matrix, dense @ vb, rtol=1e-5, atol=1e-4)
    with pytest.raises(UnitFault, match="selector"):
        mma_sync.mma(op, a, b, c, metadata=metadata, selector=selectors)
