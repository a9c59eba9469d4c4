"""Tile schedulers: the same answers in kernels as on the host, and every tile exactly once."""

from __future__ import annotations

import time

import numpy as np
import pytest
from numba import cuda
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


@pytest.mark.parametrize(("rows", "columns", "group", "clusters"), [(16, 16, 8, 64), (6, 8, 2, 4)])
def test_reuse_says_which_operand_the_next_wave_reads(rows, columns, group, clusters):
    @nbtc.jit
    def kernel(out, tiles, step, rows, columns, group):
        for i in range(tiles):
            following = int32(i + step)
            a, b = scheduler.reuse(int32(i), following, rows, columns, group)
            out[i, 0], out[i, 1] = a, b

    tiles = rows * columns
    out = np.zeros((tiles, 2), np.int32)
    sizes = [np.int32(x) for x in (tiles, clusters, rows, columns, group)]
    kernel[1, 1](out, *sizes)
    # A wave is one block of the matrix here, so every tile of it has the same answer.
    places = [scheduler.grouped_raster(i, rows, columns, group) for i in range(tiles)]
    waves = [places[i : i + clusters] for i in range(0, tiles, clusters)]
    for number, wave in enumerate(waves):
        following = waves[number + 1] if number + 1 < len(waves) else []
        read = [{place[side] for place in wave} for side in (0, 1)]
        again = [{place[side] for place in following} for side in (0, 1)]
        want = [int(read[side] == again[side]) for side in (0, 1)]
        got = out[number * clusters : (number + 1) * clusters]
        assert (got == want).all(), (number, want)


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
