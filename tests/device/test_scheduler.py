"""Tile schedulers: the same answers in kernels as on the host, and every tile exactly once."""

from __future__ import annotations

import time

import numpy as np
import pytest
from numba import cuda
from numba.cuda import types
from numba.cuda.types import int32

import nbtc
from nbtc.device import scheduler
from nbtc.errors import InstructionError, LayoutError

GRIDS = [(1, 1), (1, 7), (7, 1), (8, 8), (9, 5), (5, 9), (16, 3), (13, 17), (64, 2), (33, 31)]


@pytest.fixture(autouse=True)
def _emulate(monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")


@pytest.mark.parametrize("group", [1, 2, 8, 100])
@pytest.mark.parametrize(("rows", "columns"), GRIDS)
def test_grouped_raster_visits_every_tile_once(rows, columns, group):
    visited = [scheduler.grouped_raster(i, rows, columns, group) for i in range(rows * columns)]
    assert sorted(visited) == [(m, n) for m in range(rows) for n in range(columns)]


def test_grouped_raster_goes_down_columns_inside_groups_and_back_in_every_other():
    visited = [scheduler.grouped_raster(i, 5, 3, 2) for i in range(15)]
    assert visited[:6] == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
    assert visited[6:12] == [(2, 2), (3, 2), (2, 1), (3, 1), (2, 0), (3, 0)]
    assert visited[12:] == [(4, 0), (4, 1), (4, 2)]  # the last group has one row


@pytest.mark.parametrize("group", [1, 3, 8])
def test_kernels_agree_with_the_host(group):
    @nbtc.jit(launch_bounds=128)
    def kernel(sizes, out):
        thread = int32(cuda.threadIdx.x)
        for grid in range(sizes.shape[0]):
            rows, columns = int32(sizes[grid, 0]), int32(sizes[grid, 1])
            tile = thread
            while tile < rows * columns:
                m, n = scheduler.grouped(tile, rows, columns, group)
                out[grid, tile, 0] = m
                out[grid, tile, 1] = n
                tile = int32(tile + 128)

    grids = [g for g in GRIDS if g[0] * g[1] <= 256]
    out = np.full((len(grids), 256, 2), -1, np.int32)
    kernel[1, 128](np.array(grids, np.int32), out)
    for (rows, columns), got in zip(grids, out, strict=True):
        want = [scheduler.grouped_raster(i, rows, columns, group) for i in range(rows * columns)]
        assert got[: rows * columns].tolist() == [list(pair) for pair in want]
        assert (got[rows * columns :] == -1).all()


def test_grouped_divides_in_32_bits():
    @nbtc.jit
    def kernel(out, tile, rows, columns):
        m, n = scheduler.grouped(tile, rows, columns, 8)
        out[0], out[1] = m, n

    body = kernel.compile("int32[::1]", "int32", "int32", "int32", arch="sm_90a").ptx
    assert "div.u32" in body
    assert "div.u64" not in body
    assert "div.s64" not in body


# Rows, columns, columns of wide and narrow tiles, clusters, tile rows of a group.
BALANCED = [
    (16, 4096, 256, 240, 66, 8),
    (16, 4096, 256, 224, 66, 8),
    (32, 4096, 128, 112, 132, 16),
    (32, 8192, 256, 240, 66, 4),
    (7, 5000, 256, 240, 66, 3),  # ragged columns
    (5, 1111, 128, 112, 20, 100),
    (13, 2049, 256, 224, 33, 1),
    (3, 960, 192, 128, 4, 2),
    (9, 577, 32, 16, 5, 4),
    (1, 8192, 256, 240, 30, 8),  # one row
    (1, 3841, 256, 240, 132, 1),
    (40, 1, 256, 240, 66, 8),  # one column
    (1, 1, 256, 240, 66, 8),
    (6, 100, 256, 224, 4, 2),  # narrower than one tile
    (6, 240, 256, 240, 4, 2),
    (6, 241, 256, 240, 4, 2),
    (6, 300, 256, 240, 66, 4),  # wider than two narrow tiles need be
    (20, 2000, 256, 240, 1, 8),  # few clusters
    (20, 2000, 256, 240, 3, 8),
    (20, 2000, 256, 240, 1000, 8),  # more clusters than tiles
    (21, 4000, 128, 112, 700, 5),
]


def tiles_of_row(row, count, units, quotient, shift):
    """Return (first unit, units) of the tiles of one row: narrow ones spread like Bresenham's."""
    narrow = min(count * quotient - units, count)
    error = row * shift // 2 % count * narrow % count
    start, tiles = 0, []
    for _ in range(count):
        error += narrow
        width = quotient - 1 if error >= count else quotient
        error %= count
        tiles.append((start, width))
        start += width
    return tiles


def tiles_in_order(balance, rows, units, quotient, group):
    """Return (row, first unit, units, group) of all tiles, from lists of rows and columns."""
    order, number = [], 0
    for first, last, count in (
        (0, balance.long, balance.tiles + 1), (balance.long, rows, balance.tiles)
    ):  # fmt: skip
        for start in range(first, last, group):
            members = range(start, min(start + group, last))
            cut = [tiles_of_row(row, count, units, quotient, balance.shift) for row in members]
            columns = list(range(count))[:: -1 if number % 2 else 1]
            order += [(row, *cut[row - start][c], number) for c in columns for row in members]
            number += 1
    return order


def balanced_tiles(balance, rows, columns, wide, narrow, group):
    """Return (row, first unit, units, group) of all tiles, from the scheduler."""
    quotient, units = wide // (wide - narrow), -(-columns // (wide - narrow))
    places = [
        scheduler.balanced_raster(tile, rows, units, *balance[:3], group, quotient)
        for tile in range(balance.total)
    ]
    assert {place[2] for place in places} <= {0, 1}
    return [(row, start, quotient - small, number) for row, start, small, number in places]


@pytest.mark.parametrize(("rows", "columns", "wide", "narrow", "clusters", "group"), BALANCED)
def test_balanced_tiles_cover_every_row_once(rows, columns, wide, narrow, clusters, group):
    balance = scheduler.balance(rows, columns, wide, narrow, clusters, group)
    assert balance.total == rows * balance.tiles + balance.long
    assert 0 <= balance.long < rows
    # The fewest clusters that need no more waves than all of them.
    waves = -(-balance.total // clusters)
    fewest = next(c for c in range(1, clusters + 1) if -(-balance.total // c) == waves)
    assert balance.clusters == fewest
    unit = wide - narrow
    cut = [[] for _ in range(rows)]
    for row, start, width, _ in balanced_tiles(balance, rows, columns, wide, narrow, group):
        assert width * unit in (wide, narrow)
        cut[row].append((start * unit, (start + width) * unit))
    for row, tiles in enumerate(cut):
        assert len(tiles) == balance.tiles + (row < balance.long)
        tiles.sort()
        assert tiles[0][0] == 0
        assert [end for _, end in tiles[:-1]] == [start for start, _ in tiles[1:]]
        # No tile is outside the matrix; beyond its edge is less than a unit of work, or the tiles
        # cannot be narrower.
        assert tiles[-1][0] < columns <= tiles[-1][1]
        assert tiles[-1][1] - columns < unit or all(b - a == narrow for a, b in tiles)


@pytest.mark.parametrize(("rows", "columns", "wide", "narrow", "clusters", "group"), BALANCED)
def test_balanced_raster_is_grouped_and_evenly_cut(rows, columns, wide, narrow, clusters, group):
    balance = scheduler.balance(rows, columns, wide, narrow, clusters, group)
    quotient, units = wide // (wide - narrow), -(-columns // (wide - narrow))
    got = balanced_tiles(balance, rows, columns, wide, narrow, group)
    assert got == tiles_in_order(balance, rows, units, quotient, group)


@pytest.mark.parametrize(("rows", "columns", "wide", "narrow", "clusters", "group"), BALANCED)
def test_tiles_of_a_raster_group_share_rows(rows, columns, wide, narrow, clusters, group):
    balance = scheduler.balance(rows, columns, wide, narrow, clusters, group)
    tiles = balanced_tiles(balance, rows, columns, wide, narrow, group)
    numbers = np.array([number for *_, number in tiles])
    assert numbers[0] == 0
    assert set(np.diff(numbers).tolist()) <= {0, 1}
    before = 0
    for number in range(numbers[-1] + 1):
        own = [tile for tile in tiles if tile[3] == number]
        members = {row for row, *_ in own}
        assert len(members) <= group
        # The rows follow those of the group before; all of their tiles are in this group.
        assert members == set(range(before, before + len(members)))
        assert len(own) == sum(balance.tiles + (row < balance.long) for row in members)
        before += len(members)
    assert before == rows


@pytest.mark.parametrize(
    ("m", "n", "units"),
    [(4096, 4096, 63), (8192, 8192, 249), (16384, 16384, 996), (8192, 28672, 871)],
)
def test_balance_of_a_machine(m, n, units):
    """66 clusters of two CTAs, tiles of 256 rows that are 256 or 240 columns wide."""
    rows = m // 256
    balance = scheduler.balance(rows, n, 256, 240, 66, 8)
    assert balance.clusters == 66
    assert balance.units == units
    load = [0] * 66
    for i, (_, _, width, _) in enumerate(tiles_in_order(balance, rows, n // 16, 16, 8)):
        load[i % 66] += width
    assert sum(load) == rows * n // 16
    assert max(load) == units
    ideal = sum(load) / 66
    assert units <= 1.016 * ideal
    # Wide tiles alone are further from it.
    assert units < -(-rows * (n // 256) // 66) * 16


@pytest.mark.parametrize(("rows", "columns", "wide", "narrow", "clusters", "group"), BALANCED)
def test_balance_counts_the_units_of_the_busiest_cluster(
    rows, columns, wide, narrow, clusters, group
):
    balance = scheduler.balance(rows, columns, wide, narrow, clusters, group)
    quotient, units = wide // (wide - narrow), -(-columns // (wide - narrow))
    load = [0] * balance.clusters
    for i, (_, _, width, _) in enumerate(tiles_in_order(balance, rows, units, quotient, group)):
        load[i % balance.clusters] += width
    assert min(load) > 0
    assert balance.units == max(load)
    # Never more work than without narrow tiles.
    assert balance.units <= -(-rows * -(-columns // wide) // clusters) * quotient


@pytest.mark.parametrize(
    ("wide", "narrow", "group"), [(256, 240, 8), (256, 224, 3), (128, 112, 1), (32, 16, 2)]
)
def test_balanced_kernels_agree_with_the_host(wide, narrow, group):
    quotient, most = wide // (wide - narrow), 256

    @nbtc.jit(launch_bounds=128)
    def kernel(sizes, out):
        thread = int32(cuda.threadIdx.x)
        for grid in range(sizes.shape[0]):
            rows, units = int32(sizes[grid, 0]), int32(sizes[grid, 1])
            tiles, long = int32(sizes[grid, 2]), int32(sizes[grid, 3])
            shift, total = int32(sizes[grid, 4]), int32(sizes[grid, 5])
            tile = thread
            while tile < total:
                place = scheduler.balanced(tile, rows, units, tiles, long, shift, group, quotient)
                for i in range(4):
                    out[grid, tile, i] = place[i]
                tile = int32(tile + 128)

    # Rows, tiles of a row, long rows; these need rows that can be cut into more tiles.
    cuts = [
        (1, 1, 0), (1, 200, 0), (20, 1, 0), (8, 10, 0), (7, quotient + 2, 3), (9, quotient, 1),
        (5, quotient + 5, 4),
    ]  # fmt: skip
    sizes, wanted = [], []
    for rows, tiles, long in cuts:
        for missing in (0, tiles - quotient + 1 if long else tiles // 2):
            for shift in (0, 5, 32):
                cut = (rows, tiles * quotient - missing, tiles, long, shift)
                total = rows * tiles + long
                sizes.append((*cut, total))
                wanted.append([
                    list(scheduler.balanced_raster(tile, *cut, group, quotient))
                    for tile in range(total)
                ])  # fmt: skip
    out = np.full((len(sizes), most, 4), -1, np.int32)
    kernel[1, 128](np.array(sizes, np.int32), out)
    for want, got in zip(wanted, out, strict=True):
        assert got[: len(want)].tolist() == want
        assert (got[len(want) :] == -1).all()


def test_the_longest_rows_fit_in_32_bits():
    """Rows of 32767 tiles, with a pattern that starts at every place of the row."""
    tiles, quotient = 32767, 2
    units = tiles * quotient - tiles // 2

    @nbtc.jit(launch_bounds=128)
    def kernel(numbers, out, rows, units, tiles):
        i = int32(cuda.threadIdx.x)
        place = scheduler.balanced(int32(numbers[i]), rows, units, tiles, 0, 2, 1, quotient)
        for j in range(4):
            out[i, j] = place[j]

    # The phase of a row is its number: the products grow to 2 * 32767**2 in the last ones.
    rows = np.repeat([0, 1, 16384, 32766], 32)
    columns = np.tile(np.r_[0:16, tiles - 16 : tiles], 4)
    numbers = rows * tiles + columns
    out = np.zeros((128, 4), np.int64)
    kernel[1, 128](numbers.astype(np.int32), out, *np.int32([tiles, units, tiles]))
    want = [
        scheduler.balanced_raster(int(i), tiles, units, tiles, 0, 2, 1, quotient) for i in numbers
    ]
    assert out.tolist() == [list(place) for place in want]


def test_balanced_divides_in_32_bits():
    @nbtc.jit
    def kernel(out, tile, rows, units, order):
        place = scheduler.balanced(tile, rows, units, order[0], order[1], order[2], 8, 16)
        out[0], out[1], out[2], out[3] = place

    order = types.UniTuple(types.int32, 3)
    body = kernel.compile("int32[::1]", "int32", "int32", "int32", order, arch="sm_90a").ptx
    assert "div.u32" in body or "rem.u32" in body
    for wide in ("div.u64", "div.s64", "rem.u64", "rem.s64"):
        assert wide not in body


def test_order_is_what_kernels_take():
    order = scheduler.balance(32, 28672, 256, 240, 66, 8).order
    assert order == (113, 14, 9)
    assert all(type(value) is np.int32 for value in order)


def test_rows_of_too_many_tiles():
    with pytest.raises(LayoutError) as caught:
        scheduler.balance(1, 32768 * 240, 256, 240, 66, 8)
    assert str(caught.value) == (
        "a row of 32768 tiles that are 240 or 256 columns wide; narrow tiles take rows of at most "
        "32767: use tiles of one width"
    )
    assert scheduler.balance(1, 32768 * 240 - 16, 256, 240, 66, 8).tiles < 32768


@pytest.mark.parametrize("order", range(6))
def test_the_hilbert_curve(order):
    points = [scheduler.hilbert(i, order) for i in range(4**order)]
    side = 2**order
    assert sorted(points) == [(x, y) for x in range(side) for y in range(side)]
    steps = np.abs(np.diff(np.array(points), axis=0)).sum(axis=1)
    assert (steps == 1).all()
    assert points[0] == (0, 0)
    assert points[-1] == (side - 1, 0)


@pytest.mark.parametrize(("rows", "columns"), [*GRIDS, (1, 4096), (3, 1000), (200, 180)])
def test_hilbert_tiles_cover_the_grid_once(rows, columns):
    tiles = scheduler.hilbert_tiles(rows, columns)
    assert len(tiles) == rows * columns
    assert sorted(tiles) == [(m, n) for m in range(rows) for n in range(columns)]


@pytest.mark.parametrize(("rows", "columns"), [(8, 8), (16, 4), (4, 16), (2, 50), (8, 24), (1, 9)])
def test_neighbours_of_the_order_are_neighbours_in_the_grid(rows, columns):
    """Where the short side is a power of two, no step leaves the grid."""
    tiles = np.array(scheduler.hilbert_tiles(rows, columns))
    assert (np.abs(np.diff(tiles, axis=0)).sum(axis=1) == 1).mean() >= 0.95
    if columns % rows == 0 or rows % columns == 0:
        assert (np.abs(np.diff(tiles, axis=0)).sum(axis=1) == 1).all()


def test_long_grids_are_listed_at_once():
    start = time.perf_counter()
    assert len(scheduler.hilbert_tiles(1, 60000)) == 60000
    assert time.perf_counter() - start < 5


def test_runs_of_a_wave_are_compact():
    """132 tiles at a time touch few rows and columns, the point of the curve."""
    tiles = np.array(scheduler.hilbert_tiles(32, 32))
    touched = [
        len(set(wave[:, 0])) + len(set(wave[:, 1])) for wave in np.array_split(tiles, 1024 // 128)
    ]
    assert max(touched) <= 32  # a raster over rows would touch 4 + 32


def test_listed_tiles_in_kernels():
    tiles = [(0, 0), (3, 65535), (32767, 1), (5, 40000)]

    @nbtc.jit
    def kernel(order, out):
        for i in range(order.size):
            m, n = scheduler.listed(order, i)
            out[i, 0], out[i, 1] = m, n

    out = np.zeros((4, 2), np.int64)
    kernel[1, 1](scheduler.pack_tiles(tiles), out)
    assert [tuple(row) for row in out.tolist()] == tiles


@pytest.mark.parametrize("tile", [(32768, 0), (0, 65536)])
def test_lists_that_do_not_fit(tile):
    with pytest.raises(LayoutError, match="at most 32768 tile rows and 65536 tile columns"):
        scheduler.pack_tiles([tile])


def test_wrong_arguments():
    @nbtc.jit
    def wide(out, tile):
        m, n = scheduler.grouped(tile, 4, 4, 2)
        out[0] = m + n

    with pytest.raises(InstructionError, match=r"scheduler\.grouped: tile is int64, needs int32"):
        wide.compile("int32[::1]", "int64", arch="sm_90a")

    @nbtc.jit
    def none(out):
        m, n = scheduler.grouped(1, 4, 4, 0)
        out[0] = m + n

    with pytest.raises(InstructionError, match="group=0; must be an integer >= 1"):
        none.compile("int32[::1]", arch="sm_90a")


@pytest.mark.parametrize(
    ("group", "quotient", "message"),
    [
        (0, 16, r"scheduler\.balanced: group=0; must be an integer >= 1"),
        (8, 1, r"scheduler\.balanced: quotient=1; must be an integer >= 2"),
    ],
)
def test_wrong_constants_of_balanced(group, quotient, message):
    @nbtc.jit
    def kernel(out):
        place = scheduler.balanced(1, 4, 64, 4, 0, 0, group, quotient)
        out[0] = place[0]

    with pytest.raises(InstructionError, match=message):
        kernel.compile("int32[::1]", arch="sm_90a")


def test_wide_arguments_of_balanced():
    @nbtc.jit
    def tile(out, value):
        place = scheduler.balanced(value, 4, 64, 4, 0, 0, 8, 16)
        out[0] = place[0]

    @nbtc.jit
    def units(out, value):
        place = scheduler.balanced(1, 4, value, 4, 0, 0, 8, 16)
        out[0] = place[0]

    for kernel, name in ((tile, "tile"), (units, "units")):
        with pytest.raises(
            InstructionError, match=rf"scheduler\.balanced: {name} is int64, needs int32"
        ):
            kernel.compile("int32[::1]", "int64", arch="sm_90a")


@pytest.mark.parametrize(
    ("wide", "narrow"), [(256, 256), (256, 272), (256, 0), (256, 206), (96, 32)]
)
def test_widths_that_do_not_fit_together(wide, narrow):
    with pytest.raises(LayoutError, match=rf"wide={wide} and narrow={narrow}.*divide wide"):
        scheduler.balance(4, 4096, wide, narrow, 66, 8)


@pytest.mark.parametrize("name", ["rows", "columns", "clusters", "group"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_counts_of_a_balance(name, value):
    counts = {"rows": 4, "columns": 512, "clusters": 3, "group": 8, name: value}
    with pytest.raises(LayoutError, match=rf"balance: {name}={value}; must be an integer >= 1"):
        scheduler.balance(wide=128, narrow=112, **counts)


def test_more_tiles_than_are_worth_a_search_are_balanced_at_once():
    start = time.perf_counter()
    found = scheduler.balance(4000, 1_000_000, 256, 240, 66, 8)
    assert time.perf_counter() - start < 1
    assert found.total == 4000 * found.tiles + found.long
    assert 62500 <= found.tiles * 16 < 62500 + 16 * 16
    assert found.units >= -(-4000 * 62500 // 66)
