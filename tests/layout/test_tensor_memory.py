"""TMEM maps: every element in one place, and the figures of the reference."""

from __future__ import annotations

import numpy as np
import pytest

from nbtc.errors import LayoutError
from nbtc.layout import fragments as fr
from nbtc.layout import scale_factors as sf
from nbtc.layout import tensor_memory as tm


def test_addresses():
    assert tm.address(64, 5) == 0x400005
    assert (tm.lane_of(0x400005), tm.column_of(0x400005)) == (64, 5)
    assert [tm.warp_lane(w) for w in range(2, 6)] == [64, 96, 0, 32]


def test_c57_column_counts():
    for count in (32, 64, 128, 256, 512):
        tm.check_columns(count)
    for count, hint in ((48, "use 64"), (16, "use 32"), (1024, "512 columns"), (0, "use 32")):
        with pytest.raises(LayoutError, match=hint):
            tm.check_columns(count)


@pytest.mark.parametrize(
    ("shape", "count", "lanes"),
    [("32x32b", 4, 32), ("16x64b", 8, 16), ("16x128b", 8, 16), ("16x256b", 4, 16)],
)
def test_ld_shapes_cover_a_rectangle(shape, count, lanes):
    regs = tm.registers(shape, count)
    lane_function = getattr(tm, f"lane_{shape}")
    column_function = getattr(tm, f"column_{shape}")
    places = {
        (lane_function(lane, reg), column_function(lane, reg))
        for lane in range(32)
        for reg in range(regs)
    }
    assert places == {(i, j) for i in range(lanes) for j in range(tm.column_span(shape, count))}
    assert len(places) == 32 * regs


def test_16x256b_is_the_mma_fragment():
    for lane, reg in np.ndindex(32, 4):
        assert tm.lane_16x256b(lane, reg) == fr.mma_row(lane, reg)
        assert tm.column_16x256b(lane, reg) == fr.mma_col(lane, reg)


def test_16x32bx2():
    assert tm.lane_16x32bx2(21, 3) == 5
    assert (tm.column_16x32bx2(21, 3, 8), tm.column_16x32bx2(5, 3, 8)) == (11, 3)


def test_illegal_shapes():
    for shape, count in (("16x256b", 64), ("16x128b", 128), ("32x32b", 3), ("8x8b", 1)):
        with pytest.raises(LayoutError, match="tcgen05"):
            tm.registers(shape, count)
    assert tm.registers("16x256b", 32) == 128


@pytest.mark.parametrize(
    ("letter", "cta_group", "m", "ws", "sparse"),
    [("A", 2, 256, False, False), ("B", 2, 128, False, False), ("C", 2, 128, False, True),
     ("D", 1, 128, False, False), ("D", 1, 128, True, False), ("E", 1, 64, True, False),
     ("F", 1, 64, False, False), ("G", 1, 32, True, False)],
)  # fmt: skip
def test_d_layouts(letter, cta_group, m, ws, sparse):
    n = 64
    assert tm.d_layout(cta_group, m, ws=ws, sparse=sparse) == letter
    places = set()
    for row, column in np.ndindex(m, n):
        lane = tm.d_lane(letter, row, column, n)
        place = (tm.d_cta(letter, row), lane, tm.d_column(letter, row, column, n))
        assert lane < 128
        assert place[2] < tm.d_columns(letter, n)
        places.add(place)
    assert len(places) == m * n
    if letter in ("C", "F"):
        assert {lane % 32 for _, lane, _ in places} == set(range(16))
    rows, columns = np.arange(m)[:, None], np.arange(n)[None, :]
    lanes = tm.d_lane(letter, rows, columns, n)
    assert np.broadcast_to(lanes, (m, n))[m - 1, n - 1] == tm.d_lane(letter, m - 1, n - 1, n)


def test_no_such_layout():
    with pytest.raises(LayoutError, match="M=256 with cta_group::1"):
        tm.d_layout(1, 256)


def test_cp_lanes():
    assert tm.cp_lanes("4x256b") == [[0, 32, 64, 96]]
    assert tm.cp_lanes("128x128b") == [list(range(128))]
    first, second = tm.cp_lanes("64x128b.warpx2::02_13")
    assert (first[0], first[63], second[0], second[63]) == (0, 63, 64, 127)
    first, second = tm.cp_lanes("64x128b.warpx2::01_23")
    assert (first[31], first[32], second[31], second[32]) == (31, 64, 63, 96)
    assert [copy[5] for copy in tm.cp_lanes("32x128b.warpx4")] == [5, 37, 69, 101]


def test_scale_factors_in_tmem_match_the_copy():
    # One 512-byte tile, copied as 32 rows of 16 bytes to all four groups of lanes.
    for row, k, rep in np.ndindex(128, 4, 4):
        byte = sf.tile_offset(row, k)
        memory_row, within = divmod(byte, 16)
        assert tm.scale_lane(row, rep) == memory_row + 32 * rep
        assert (tm.scale_column(row), k) == divmod(within, 4)


def test_scale_factors_of_a_pair_with_m128():
    n = 128
    places = {
        (tm.scale_lane_m128_pair(c, rep, n), tm.scale_column_m128_pair(c, n))
        for c in range(n)
        for rep in range(2)
    }
    assert len(places) == 2 * n
    assert {lane for lane, _ in places} == set(range(128))


@pytest.mark.parametrize(("rows", "blocks"), [(128, 4), (256, 8), (100, 5), (1, 1)])
def test_pack_scale_factors(rows, blocks):
    scales = np.random.default_rng(0).integers(1, 256, (rows, blocks)).astype(np.uint8)
    packed = sf.pack(scales)
    assert packed.size == sf.size_bytes(rows, blocks)
    np.testing.assert_array_equal(sf.unpack(packed, rows, blocks), scales)
    assert np.count_nonzero(packed) == rows * blocks
    assert packed[sf.offset(rows - 1, blocks - 1, blocks)] == scales[-1, -1]
    with pytest.raises(LayoutError, match="one byte each"):
        sf.pack(scales.astype(np.uint16))


@pytest.mark.parametrize(
    ("bits", "groups", "columns"), [(16, 8, 1), (32, 8, 1), (8, 16, 2), (4, 16, 2)]
)
def test_metadata_covers_every_bit_once(bits, groups, columns):
    seen = set()
    for row, group in np.ndindex(128, groups):
        bit = tm.metadata_bit(row, group, bits)
        for i in range(4):
            seen.add((tm.metadata_lane(row, group, bits), (bit + i) // 32, (bit + i) % 32))
    assert len(seen) == 128 * groups * 4
    assert {c for _, c, _ in seen} == set(range(columns))
