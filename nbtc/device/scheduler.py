"""Tile schedulers: which output tile a CTA (or cluster) works on next.

The functions are arithmetic on 32-bit unsigned values: the same code runs on the host, on plain
ints, and inside kernels. A persistent kernel starts at its own cluster's number and adds the number
of clusters::

    tile = cluster.cluster_id_x()
    while tile < tiles_m * tiles_n:
        m, n = scheduler.grouped(tile, tiles_m, tiles_n, 8)
        ...
        tile += clusters
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.cuda import types

from nbtc.device import math32
from nbtc.errors import InstructionError, LayoutError
from nbtc.jit import device
from nbtc.ptx import kinds
from nbtc.ptx.operands import check_operand
from nbtc.ptx.staging import Emitter, staged


def grouped_raster(tile: Any, tiles_m: Any, tiles_n: Any, group: Any, minimum: Any = min) -> Any:
    """Return (row, column) of a tile, column by column inside groups of ``group`` tile rows.

    Every other group runs backwards. Tiles that run at the same time then share rows of A and
    columns of B in L2, and so do those before and after the step from one group to the next.

    Args:
        tile: 0 .. tiles_m * tiles_n - 1.
        tiles_m: tile rows.
        tiles_n: tile columns.
        group: tile rows in a group.
        minimum: function that gives the smaller of two values.
    """
    in_group = group * tiles_n
    number, inner = tile // in_group, tile % in_group
    first = number * group
    rows = minimum(tiles_m - first, group)
    column = inner // rows
    backwards = number % 2
    # Without a branch: column, or tiles_n - 1 - column.
    return first + inner % rows, column + backwards * (tiles_n - 1 - column - column)


def _returns_pair(tile: Any, tiles_m: Any, tiles_n: Any, group: Any) -> Any:
    values = {"tile": tile, "tiles_m": tiles_m, "tiles_n": tiles_n, "group": group}
    for name, value in values.items():
        if not isinstance(value, int):
            check_operand(f"scheduler.grouped: {name}", kinds.U32_KIND, value)
    if not isinstance(group, int) or group < 1:
        raise InstructionError(f"scheduler.grouped: group={group!r}; must be an integer >= 1")
    return types.UniTuple(types.uint32, 2)


@staged(_returns_pair, constants=("group",))
def grouped(e: Emitter, tile: Any, tiles_m: Any, tiles_n: Any, group: int) -> Any:
    """Return (row, column) of a tile as two uint32; see :func:`grouped_raster`.

    Args:
        e: given by the compiler.
        tile: 0 .. tiles_m * tiles_n - 1, at most 32 bits.
        tiles_m: tile rows, at most 32 bits.
        tiles_n: tile columns, at most 32 bits.
        group: tile rows in a group, a compile-time constant.
    """
    return e.tuple(list(grouped_raster(tile, tiles_m, tiles_n, group, e.minimum)))


@device
def reuse(tile, following, tiles_m, tiles_n, group):
    """Return whether the tiles that run after this one read the same part of A, and of B.

    In the order of :func:`grouped`, they stay in the same rows of A until their group is through;
    the next group then starts with the columns of B that this one ended with. What is not read
    again soon can leave L2 first.

    Args:
        tile: tile that is worked on, at most 32 bits, as the rest.
        following: tile that the same cluster takes next.
        tiles_m: tile rows.
        tiles_n: tile columns.
        group: tile rows in a group.
    """
    more = following < math32.mul(tiles_m, tiles_n)
    in_group = math32.mul(tiles_n, group)
    same = math32.div(following, in_group) == math32.div(tile, in_group)
    return more and same, more and not same


@device
def listed(order, tile):
    """Return (row, column) of a tile, two uint32, from a list of ``row << 16 | column``.

    Args:
        order: int32 array with one entry per tile, see :func:`pack_tiles`.
        tile: index into it.
    """
    entry = order[tile]
    return types.uint32(entry >> 16), types.uint32(entry & 0xFFFF)


def pack_tiles(tiles: list[tuple[int, int]]) -> np.ndarray[Any, Any]:
    """Return tiles as the int32 list that :func:`listed` reads.

    Raises:
        LayoutError: a row or column does not fit in its half of a word.
    """
    rows = max((m for m, _ in tiles), default=0)
    columns = max((n for _, n in tiles), default=0)
    if rows >= 1 << 15 or columns >= 1 << 16:
        raise LayoutError(
            f"a list of {rows + 1} x {columns + 1} tiles; takes at most 32768 tile rows and 65536 "
            "tile columns: use schedule='grouped', or larger tiles"
        )
    return np.array([m << 16 | n for m, n in tiles], dtype=np.int32)


def hilbert(index: int, order: int) -> tuple[int, int]:
    """Return (x, y) of the point number ``index`` of the Hilbert curve over 2**order squared.

    It starts at (0, 0) and ends at (2**order - 1, 0).
    """
    x = y = 0
    side = 1
    for _ in range(order):
        rx = (index >> 1) & 1
        ry = (index ^ rx) & 1
        if ry == 0:
            if rx == 1:
                x, y = side - 1 - x, side - 1 - y
            x, y = y, x
        x += side * rx
        y += side * ry
        index >>= 2
        side <<= 1
    return x, y


def hilbert_tiles(tiles_m: int, tiles_n: int) -> list[tuple[int, int]]:
    """Return all (row, column) of a grid of tiles in the order of Hilbert curves (host side).

    Any run of consecutive tiles covers a compact block, so that tiles that run at the same time
    share rows of A and columns of B in L2. A long grid is a row of squares, each with a curve that
    ends beside the start of the next.
    """
    short, long = sorted((tiles_m, tiles_n))
    order = max(short - 1, 0).bit_length()
    curve = [(x, y) for x, y in (hilbert(i, order) for i in range(4**order)) if y < short]
    points = [
        (start + x, y) for start in range(0, long, 1 << order) for x, y in curve if start + x < long
    ]
    return points if tiles_m >= tiles_n else [(y, x) for x, y in points]
