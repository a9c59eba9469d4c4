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

from typing import Any, NamedTuple

import numpy as np
from numba.cuda import types

from nbtc.errors import InstructionError, LayoutError
from nbtc.jit import device
from nbtc.ptx import kinds
from nbtc.ptx.operands import check_operand
from nbtc.ptx.staging import Emitter, staged


def grouped_raster(
    tile: Any, tiles_m: Any, tiles_n: Any, group: Any, minimum: Any = min, turn: Any = 0
) -> Any:
    """Return (row, column) of a tile, column by column inside groups of ``group`` tile rows.

    Every other group runs backwards. Tiles that run at the same time then share rows of A and
    columns of B in L2, and so do those before and after the step from one group to the next.

    Args:
        tile: 0 .. tiles_m * tiles_n - 1.
        tiles_m: tile rows.
        tiles_n: tile columns.
        group: tile rows in a group.
        minimum: function that gives the smaller of two values.
        turn: 1 if the first group runs backwards.
    """
    in_group = tiles_n * group
    number, inner = tile // in_group, tile % in_group
    first = number * group
    rows = minimum(tiles_m - first, group)
    column = inner // rows
    backwards = (number + turn) % 2
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


def balanced_raster(
    tile: Any, rows: Any, units: Any, tiles: Any, long: Any, shift: Any, group: Any, quotient: Any,
    minimum: Any = min,
) -> Any:  # fmt: skip
    """Return (row, first unit, narrow, group) of a tile of a :class:`Balance`.

    A row of tiles has wide ones of ``quotient`` units of columns and narrow ones (``narrow`` is 1)
    that are one unit smaller, evenly spread; the first ``long`` rows have one tile more than the
    others. The order is that of :func:`grouped_raster`, first over the long rows, then over the
    others; ``group`` in the result is the number of the raster group.

    Args:
        tile: 0 .. rows * tiles + long - 1.
        rows: tile rows.
        units: units of columns in the matrix, rounded up.
        tiles: tiles in a row that is not long.
        long: rows with one tile more.
        shift: by how many tiles the pattern of narrow tiles moves from one row to the next.
        group: tile rows in a raster group.
        quotient: units in a wide tile.
        minimum: function that gives the smaller of two values.
    """
    boundary = (tiles + 1) * long
    # Without a branch: 0 in the long rows, 1 in the others.
    after = tile + 1
    other = minimum(after - minimum(after, boundary), 1)
    count = tiles + 1 - other
    some_rows = long + other * (rows - long - long)
    groups_before = other * ((long + (group - 1)) // group)
    inner = tile - other * boundary
    row, column = grouped_raster(inner, some_rows, count, group, minimum, groups_before)
    row = row + other * long
    narrow = minimum(count * quotient - units, count)
    phase = row * shift // 2 % count
    before = (phase + column) * narrow // count
    start = column * quotient - (before - phase * narrow // count)
    is_narrow = (phase + column + 1) * narrow // count - before
    return row, start, is_narrow, groups_before + inner // (count * group)


def _returns_four(
    tile: Any, rows: Any, units: Any, tiles: Any, long: Any, shift: Any, group: Any, quotient: Any
) -> Any:
    values = {
        "tile": tile, "rows": rows, "units": units, "tiles": tiles, "long": long, "shift": shift,
    }  # fmt: skip
    for name, value in values.items():
        if not isinstance(value, int):
            check_operand(f"scheduler.balanced: {name}", kinds.U32_KIND, value)
    for name, value, least in (("group", group, 1), ("quotient", quotient, 2)):
        if not isinstance(value, int) or value < least:
            raise InstructionError(
                f"scheduler.balanced: {name}={value!r}; must be an integer >= {least}"
            )
    return types.UniTuple(types.uint32, 4)


@staged(_returns_four, constants=("group", "quotient"))
def balanced(
    e: Emitter, tile: Any, rows: Any, units: Any, tiles: Any, long: Any, shift: Any, group: int,
    quotient: int,
) -> Any:  # fmt: skip
    """Return (row, first unit, narrow, group) of a tile, four uint32; see :func:`balanced_raster`.

    Args:
        e: given by the compiler.
        tile: 0 .. rows * tiles + long - 1, at most 32 bits, as the next five.
        rows: tile rows.
        units: units of columns in the matrix, rounded up.
        tiles: tiles in a row that is not long.
        long: rows with one tile more.
        shift: by how many tiles the pattern of narrow tiles moves from one row to the next.
        group: tile rows in a raster group, a compile-time constant.
        quotient: units in a wide tile, a compile-time constant.
    """
    return e.tuple(
        list(balanced_raster(tile, rows, units, tiles, long, shift, group, quotient, e.minimum))
    )


class Balance(NamedTuple):
    """How many tiles each row of tiles is cut into, so that all clusters get as much to do.

    Attributes:
        tiles: tiles in a row that is not long.
        long: rows with one tile more, the first ones.
        shift: by how many tiles the pattern of narrow tiles moves from one row to the next.
        total: all tiles.
        clusters: clusters to launch.
        units: units of columns that the busiest cluster computes, at most.
    """

    tiles: int
    long: int
    shift: int
    total: int
    clusters: int
    units: int

    @property
    def order(self) -> tuple[np.int32, np.int32, np.int32]:
        """What a kernel hands to :func:`balanced`: tiles, long, shift."""
        return np.int32(self.tiles), np.int32(self.long), np.int32(self.shift)


MOST_SIMULATED = 1 << 14
"""Tiles for which :func:`balance` tries shifts; more of them are too many waves to matter."""
MOST_BALANCED = 1 << 15
"""Tiles of a row that :func:`balanced` takes: products of two such numbers fit in 32 bits."""


def balance(rows: int, columns: int, wide: int, narrow: int, clusters: int, group: int) -> Balance:
    """Cut a matrix into wide and narrow tiles that fill the last wave of a persistent kernel.

    256 tiles on 66 clusters are four waves, the last with 58 tiles. Eight more tiles of which some
    are narrower are four full waves of less work.

    Args:
        rows: tile rows.
        columns: columns of the matrix.
        wide: columns of a wide tile, a multiple of ``wide - narrow``.
        narrow: columns of a narrow tile.
        clusters: clusters that run at the same time.
        group: tile rows in a raster group.

    Raises:
        LayoutError: a number is not positive, the widths do not fit together, or a row has too
            many tiles.
    """
    counts = {"rows": rows, "columns": columns, "clusters": clusters, "group": group}
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise LayoutError(f"scheduler.balance: {name}={value!r}; must be an integer >= 1")
    unit = wide - narrow
    if unit < 1 or wide % unit or narrow < unit:
        raise LayoutError(
            f"tiles of wide={wide} and narrow={narrow} columns; wide - narrow = {unit} must be "
            "positive, divide wide, and be at most half of it"
        )
    quotient = wide // unit
    units = -(-columns // unit)
    least = -(-units // quotient)
    most = max(least, units // (quotient - 1))
    if most >= MOST_BALANCED:
        raise LayoutError(
            f"a row of {most} tiles that are {narrow} or {wide} columns wide; narrow tiles take "
            f"rows of at most {MOST_BALANCED - 1}: use tiles of one width"
        )
    waves = -(-rows * least // clusters)
    total = min(waves * clusters, rows * most)
    more, long = divmod(total - rows * least, rows)
    tiles, used = least + more, -(-total // waves)
    if total > MOST_SIMULATED:
        return Balance(tiles, long, 0, total, used, waves * quotient)
    index = np.arange(total)
    best = None
    # A pattern that repeats with the waves would give all its wide tiles to the same clusters.
    for shift in range(33):
        places = balanced_raster(
            index, rows, units, tiles, long, shift, group, quotient, np.minimum
        )
        load = np.bincount(index % used, quotient - places[2]).max()
        if best is None or load < best.units:
            best = Balance(tiles, long, shift, total, used, int(load))
    assert best is not None
    return best


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
