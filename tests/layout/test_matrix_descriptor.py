"""Matrix descriptors against the reference's vectors and the layout that TMA writes."""

from __future__ import annotations

import numpy as np
import pytest

from nbtc.errors import LayoutError
from nbtc.layout.matrix_descriptor import (
    MatrixDescriptor,
    OperandTile,
    advance,
    encode_sm90,
    encode_sm100,
)
from nbtc.layout.swizzle import span, swizzle


def test_c39_vector():
    tile = OperandTile(128, 64, "bfloat16")
    descriptor = tile.descriptor(0x400)
    assert descriptor.encode() == 0x4000004000010040
    assert encode_sm90(0x400, 16, 1024, 1) == 0x4000004000010040
    tile.check(0x4000004000010040)
    with pytest.raises(LayoutError, match="SBO field 0x400 = 16384 B; expected 1024 B"):
        tile.check(0x4000040000100040)


def test_c68_vector_and_kinds():
    tile = OperandTile(128, 64, "bfloat16", sm=100)
    assert tile.descriptor(0x400).encode() == 0x4000404000010040
    assert encode_sm100(0x400, 16, 1024, 2) == 0x4000404000010040
    with pytest.raises(LayoutError, match="wgmma descriptor 0x4000004000010040 passed to tcgen05"):
        MatrixDescriptor.decode(0x4000004000010040, 100)
    with pytest.raises(LayoutError, match="passed to wgmma"):
        MatrixDescriptor.decode(0x4000404000010040, 90)
    for code in (3, 5, 7):
        with pytest.raises(LayoutError, match=f"layout code {code} is invalid"):
            MatrixDescriptor.decode(code << 61 | 1 << 46)


def test_c42_majorness():
    for dtype in ("float8_e4m3fn", "int8", "tfloat32"):
        with pytest.raises(LayoutError, match="must be K-major"):
            OperandTile(128, 64, dtype, "MN")
    assert OperandTile(128, 64, "float8_e4m3fn", "MN", sm=100)
    with pytest.raises(LayoutError, match="exactly '128B_ATOM_32B'"):
        OperandTile(128, 64, "tfloat32", "MN", sm=100)
    assert OperandTile(128, 64, "tfloat32", "MN", "128B_ATOM_32B", sm=100).stride == 512


def test_c40_rows_fill_the_swizzle():
    with pytest.raises(LayoutError, match="tile row of 32 bfloat16 along K is 64 B; must fill"):
        OperandTile(128, 32, "bfloat16")


@pytest.mark.parametrize("sm", [90, 100])
@pytest.mark.parametrize("swizzle_name", ["none", "32B", "64B", "128B"])
def test_encode_decode(sm, swizzle_name):
    descriptor = MatrixDescriptor(0x12340, 4096, 512, swizzle_name, 3, sm)
    assert MatrixDescriptor.decode(descriptor.encode()) == descriptor
    assert MatrixDescriptor.decode(descriptor.encode(), sm) == descriptor


def test_field_checks():
    with pytest.raises(LayoutError, match="stride 0x28 is 8 mod 16"):
        MatrixDescriptor(0, 16, 40, "none")
    with pytest.raises(LayoutError, match="leading is 262144 bytes"):
        MatrixDescriptor(0, 1 << 18, 16, "none")
    with pytest.raises(LayoutError, match="reserved bits"):
        MatrixDescriptor.decode(0x4000004000010040 | 1 << 15)


def test_advance_never_reaches_lbo():
    value = encode_sm90(0x3FFF0, 16, 1024, 1)
    assert advance(value, 32) == encode_sm90(0x10, 16, 1024, 1)
    assert advance(encode_sm90(0x400, 16, 1024, 1), 32) == encode_sm90(0x420, 16, 1024, 1)


# MN x K tile written box by box as TMA does: a byte position for every element.
def tma_positions(tile: OperandTile, start: int) -> np.ndarray:
    rows, inner = tile.box
    width = span(tile.swizzle)
    size = tile.bits // 8
    out = np.zeros((tile.mn, tile.k), np.int64)
    for mn in range(tile.mn):
        for k in range(tile.k):
            row, column = (mn, k) if tile.major == "K" else (k, mn)
            box, within = divmod(column, inner)
            linear = start + box * rows * width + row * width + within * size
            out[mn, k] = swizzle(linear, tile.swizzle)
    return out


@pytest.mark.parametrize(
    ("mn", "k", "dtype", "major", "mode", "sm"),
    [
        (64, 128, "bfloat16", "K", "128B", 90),
        (64, 64, "bfloat16", "K", "64B", 90),
        (72, 32, "float16", "K", "32B", 90),
        (64, 32, "float16", "K", "none", 90),
        (64, 64, "tfloat32", "K", "128B", 90),
        (64, 256, "float8_e4m3fn", "K", "128B", 90),
        (128, 64, "bfloat16", "MN", "128B", 90),
        (96, 32, "bfloat16", "MN", "64B", 90),
        (64, 32, "bfloat16", "MN", "32B", 90),
        (64, 32, "float16", "MN", "none", 90),
        (64, 64, "tfloat32", "MN", "128B_ATOM_32B", 100),
        (256, 64, "int8", "MN", "128B", 100),
    ],
)
def test_tile_agrees_with_tma(mn, k, dtype, major, mode, sm):
    tile = OperandTile(mn, k, dtype, major, mode, sm)
    start = 0x2000
    want = tma_positions(tile, start)
    step_k = tile.k_per_instruction
    atom = 8 if major == "K" else span(mode) * 8 // tile.bits
    for first in (0, atom):
        for step in range(k // step_k):
            descriptor = tile.descriptor(start, mn=first, step=step)
            assert MatrixDescriptor.decode(descriptor.encode(), sm) == descriptor
            rows = np.arange(mn - first)[:, None]
            columns = np.arange(step_k)[None, :]
            got = descriptor.address(rows, columns, tile.bits, major)
            part = want[first:, step * step_k : (step + 1) * step_k]
            np.testing.assert_array_equal(got, part)


def test_known_strides():
    assert OperandTile(128, 64, "bfloat16", "MN", "128B").leading == 128 * 64
    assert OperandTile(128, 64, "bfloat16", "MN", "64B").leading == 64 * 64
    assert [OperandTile(64, 64, "bfloat16", "K", "128B").k_offset(s) for s in range(4)] == [
        0, 32, 64, 96,
    ]  # fmt: skip
    assert OperandTile(128, 128, "bfloat16").k_offset(4) == 128 * 128
    assert OperandTile(64, 64, "bfloat16", "MN", "128B").k_offset(1) == 128 * 16
    with pytest.raises(LayoutError, match="K-step 4 of a tile with 4 steps"):
        OperandTile(64, 64, "bfloat16").k_offset(4)
