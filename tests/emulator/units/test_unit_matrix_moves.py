"""ldmatrix, stmatrix and movmatrix against the rules of the ISA text."""

from __future__ import annotations

import numpy as np
import pytest

from nbtc.emulator.units import UnitFault
from nbtc.emulator.units import matrix_moves as mv

RNG = np.random.default_rng(1)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", [False, True])
def test_m8n8(count, trans):
    values = RNG.integers(0, 1 << 16, (count, 8, 8)).astype(np.uint16)
    rows = values.view(np.uint8).reshape(-1, 16)
    registers = mv.ldmatrix(rows, "m8n8", count, trans=trans)
    assert registers.shape == (count, 32)
    for i, lane in np.ndindex(count, 32):
        r, c = lane // 4, 2 * (lane % 4)
        matrix = values[i].T if trans else values[i]
        assert registers[i, lane] == int(matrix[r, c]) | int(matrix[r, c + 1]) << 16
    np.testing.assert_array_equal(mv.stmatrix(registers, "m8n8", count, trans=trans), rows)
    assert mv.row_lanes("m8n8", count).tolist() == list(range(8 * count))


def test_movmatrix_transposes():
    values = RNG.integers(0, 1 << 16, (8, 8)).astype(np.uint16)
    fragment = mv.ldmatrix(values.view(np.uint8).reshape(8, 16), "m8n8", 1)[0]
    turned = np.ascontiguousarray(values.T)
    want = mv.ldmatrix(turned.view(np.uint8).reshape(8, 16), "m8n8", 1)[0]
    np.testing.assert_array_equal(mv.movmatrix(fragment), want)


@pytest.mark.parametrize("count", [1, 2])
def test_m16n16_transposes_bytes(count):
    values = RNG.integers(0, 256, (count, 16, 16)).astype(np.uint8)
    registers = mv.ldmatrix(values.reshape(-1, 16), "m16n16", count, trans=True)
    assert registers.shape == (2 * count, 32)
    data = registers.view(np.uint8).reshape(count, 2, 32, 4)
    for i, q, lane, b in np.ndindex(count, 2, 32, 4):
        want = values[i, 4 * (lane % 4) + 2 * q + (b & 1), lane // 4 + 8 * (b >> 1)]
        assert data[i, q, lane, b] == want


def test_m8n16_and_padded():
    values = RNG.integers(0, 16, (8, 16)).astype(np.uint8)
    packed = np.full((8, 16), 0xEE, np.uint8)
    packed[:, :8] = values[:, 0::2] | values[:, 1::2] << 4
    data = mv.ldmatrix(packed, "m8n16", 1, packed=4).view(np.uint8).reshape(32, 4)
    for lane, b in np.ndindex(32, 4):
        assert data[lane, b] == values[lane // 4, 4 * (lane % 4) + b]
    six = RNG.integers(0, 64, (8, 16)).astype(np.uint8)
    bits = np.unpackbits(six[..., None], axis=-1, bitorder="little")[..., :6].reshape(8, 96)
    packed[:, :12] = np.packbits(bits, axis=-1, bitorder="little")
    data = mv.ldmatrix(packed, "m8n16", 1, packed=6).view(np.uint8).reshape(32, 4)
    for lane, b in np.ndindex(32, 4):
        assert data[lane, b] == six[lane // 4, 4 * (lane % 4) + b]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_stmatrix_m16n8(count):
    registers = RNG.integers(0, 1 << 32, (count, 32)).astype(np.uint32)
    rows = mv.stmatrix(registers, "m16n8", count, trans=True).reshape(count, 8, 16)
    data = registers.view(np.uint8).reshape(count, 32, 4)
    for i, lane, e in np.ndindex(count, 32, 4):
        assert rows[i, 2 * (lane % 4) + (e & 1), lane // 4 + 8 * (e >> 1)] == data[i, lane, e]


def test_illegal_forms():
    for shape, count in (("m16n16", 4), ("m8n8", 3), ("m9n9", 1)):
        with pytest.raises(UnitFault, match="matrix move"):
            mv.row_lanes(shape, count)
