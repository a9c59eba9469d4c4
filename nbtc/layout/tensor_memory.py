"""Tensor memory (TMEM): addresses, ld/st shapes, operand layouts, cp shapes (PTX ISA 9.7.16.3).

TMEM has 128 lanes and 512 columns of 32 bits per CTA; an address is ``lane << 16 | column``.
Functions of (lane, register) and of matrix positions are plain integer arithmetic for kernels,
host and emulator; lanes and columns are relative to the address in the instruction.

Layout letters of D (and of A in TMEM) are those of the PTX ISA:

    A: pair, M=256        B: pair, M=128 dense      C: pair, M=128 sparse    D: one CTA, M=128
    E: ws, M=64           F: one CTA, M=64          G: ws, M=32
"""

from __future__ import annotations

from typing import Any

from nbtc.errors import LayoutError

LANES = 128
COLUMNS = 512

# --- addresses ------------------------------------------------------------------------------------


def address(lane: Any, column: Any) -> Any:
    """Return the TMEM address of a lane and a column."""
    return (lane << 16) | column


def lane_of(tmem_address: Any) -> Any:
    """Return the lane of a TMEM address."""
    return (tmem_address >> 16) & 0xFFFF


def column_of(tmem_address: Any) -> Any:
    """Return the column of a TMEM address."""
    return tmem_address & 0xFFFF


def warp_lane(warp: Any) -> Any:
    """Return the first of the 32 lanes that a warp (index in its CTA) can load and store."""
    return (warp & 3) * 32


def check_columns(count: int) -> None:
    """Check the column count of tcgen05.alloc and tcgen05.dealloc.

    Raises:
        LayoutError: it is not a power of two in 32..512.
    """
    if not 32 <= count <= 512 or count & (count - 1):
        right = max(32, 1 << max(count - 1, 0).bit_length())
        hint = f"use {right}" if right <= 512 else "a CTA has 512 columns"
        raise LayoutError(
            f"tcgen05.alloc of {count} columns; must be a power of two, 32..512: {hint}"
        )


# --- ld and st ------------------------------------------------------------------------------------

SHAPES = ("32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2")
"""Shapes of tcgen05.ld and tcgen05.st."""

_PER = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}
_SPAN = {"32x32b": 1, "16x64b": 2, "16x128b": 4, "16x256b": 8, "16x32bx2": 1}


def registers(shape: str, count: int) -> int:
    """Return the registers per thread of a shape with ``.xN``.

    Raises:
        LayoutError: the shape or the count does not exist.
    """
    if shape not in _PER:
        raise LayoutError(f"tcgen05 shape {shape!r}; must be one of {', '.join(SHAPES)}")
    most = 128 // _PER[shape]
    if count < 1 or count & (count - 1) or count > most:
        raise LayoutError(f"tcgen05.ld/st {shape}.x{count}; N must be a power of two, 1..{most}")
    return count * _PER[shape]


def column_span(shape: str, count: int) -> int:
    """Return the columns of a shape with ``.xN`` (16x32bx2: of each of its two halves)."""
    registers(shape, count)
    return count * _SPAN[shape]


def lane_32x32b(lane: Any, register: Any) -> Any:
    """Return the TMEM lane of a register of 32x32b."""
    return lane + 0 * register


def column_32x32b(lane: Any, register: Any) -> Any:
    """Return the column of a register of 32x32b."""
    return register + 0 * lane


def lane_16x64b(lane: Any, register: Any) -> Any:
    """Return the TMEM lane of a register of 16x64b."""
    return (lane & 1) * 8 + (lane >> 2) + 0 * register


def column_16x64b(lane: Any, register: Any) -> Any:
    """Return the column of a register of 16x64b."""
    return register * 2 + ((lane >> 1) & 1)


def lane_16x128b(lane: Any, register: Any) -> Any:
    """Return the TMEM lane of a register of 16x128b."""
    return (lane >> 2) + (register & 1) * 8


def column_16x128b(lane: Any, register: Any) -> Any:
    """Return the column of a register of 16x128b."""
    return (lane & 3) + (register >> 1) * 4


def lane_16x256b(lane: Any, register: Any) -> Any:
    """Return the TMEM lane of a register of 16x256b (rows of an m16n8 accumulator fragment)."""
    return (lane >> 2) + ((register >> 1) & 1) * 8


def column_16x256b(lane: Any, register: Any) -> Any:
    """Return the column of a register of 16x256b."""
    return (lane & 3) * 2 + (register & 1) + (register >> 2) * 8


def lane_16x32bx2(lane: Any, register: Any) -> Any:
    """Return the TMEM lane of a register of 16x32bx2."""
    return (lane & 15) + 0 * register


def column_16x32bx2(lane: Any, register: Any, half_split: Any) -> Any:
    """Return the column of a register of 16x32bx2."""
    return register + (lane >> 4) * half_split


# --- D, and A in TMEM -----------------------------------------------------------------------------


def d_layout(cta_group: int, m: int, *, ws: bool = False, sparse: bool = False) -> str:
    """Return the layout letter of D (and of A in TMEM) of an instruction.

    Raises:
        LayoutError: there is no such instruction.
    """
    table = {
        (1, 128, False): "D", (1, 64, False): "F", (1, 128, True): "D", (1, 64, True): "E",
        (1, 32, True): "G", (2, 256, False): "A", (2, 128, False): "C" if sparse else "B",
    }  # fmt: skip
    letter = table.get((cta_group, m, ws))
    if letter is None:
        raise LayoutError(
            f"no TMEM layout for M={m} with cta_group::{cta_group}{' ws' if ws else ''}"
        )
    return letter


def d_cta(layout: str, row: Any) -> Any:
    """Return the CTA of the pair (0 or 1) that holds a row of D."""
    if layout == "A":
        return row >> 7
    if layout in ("B", "C"):
        return row >> 6
    return row * 0


def d_lane(layout: str, row: Any, column: Any, n: int) -> Any:
    """Return the lane of D element (row, column), relative to the address (F, C: 0 or 16)."""
    if layout == "A":
        return row & 127
    if layout == "B":
        return (row & 63) + (column >= n // 2) * 64
    if layout in ("C", "F"):
        return (row & 15) + ((row & 63) >> 4) * 32
    if layout == "E":
        return row + (column >= n // 2) * 64
    if layout == "G":
        return row + (column // (n // 4)) * 32
    return row


def d_column(layout: str, row: Any, column: Any, n: int) -> Any:
    """Return the column of D element (row, column), relative to the address."""
    if layout in ("B", "E"):
        return column % (n // 2) + 0 * row
    if layout == "G":
        return column % (n // 4) + 0 * row
    return column + 0 * row


def d_columns(layout: str, n: int) -> int:
    """Return the columns that D of N columns occupies."""
    return n // {"B": 2, "E": 2, "G": 4}.get(layout, 1)


# --- cp -------------------------------------------------------------------------------------------

CP_SHAPES = {
    "128x256b": (128, 32), "128x128b": (128, 16), "4x256b": (4, 32),
    "64x128b.warpx2::02_13": (64, 16), "64x128b.warpx2::01_23": (64, 16),
    "32x128b.warpx4": (32, 16),
}  # fmt: skip
"""Rows and bytes per row that tcgen05.cp reads, by shape."""


def cp_lanes(shape: str) -> list[list[int]]:
    """Return, for each copy that tcgen05.cp makes of its rows, the lane of every row.

    Raises:
        LayoutError: the shape does not exist.
    """
    if shape not in CP_SHAPES:
        raise LayoutError(f"tcgen05.cp shape {shape!r}; must be one of {', '.join(CP_SHAPES)}")
    rows = range(CP_SHAPES[shape][0])
    if shape == "4x256b":
        return [[32 * row for row in rows]]
    if shape == "64x128b.warpx2::02_13":
        return [[row + 64 * copy for row in rows] for copy in range(2)]
    if shape == "64x128b.warpx2::01_23":
        return [[row % 32 + 64 * (row // 32) + 32 * copy for row in rows] for copy in range(2)]
    if shape == "32x128b.warpx4":
        return [[row + 32 * copy for row in rows] for copy in range(4)]
    return [list(rows)]


# --- scale factors and sparse metadata ------------------------------------------------------------


def scale_lane(row: Any, repetition: Any) -> Any:
    """Return the lane of the scale factors of a row, for one of the four repetitions.

    Rows of A (in the CTA) and columns of B, except B of a pair with M=128.
    """
    return row % 32 + 32 * repetition


def scale_column(row: Any) -> Any:
    """Return the column, relative to the address, of the scale factors of a row."""
    return row // 32


def scale_lane_m128_pair(column: Any, repetition: Any, n: int) -> Any:
    """Return the lane of the scale factors of a column of B, pair with M=128; repetition 0, 1."""
    return column % 32 + 64 * (column >= n // 2) + 32 * repetition


def scale_column_m128_pair(column: Any, n: int) -> Any:
    """Return the column of the scale factors of a column of B, pair with M=128."""
    return column % (n // 2) // 32


def metadata_lane(row: Any, group: Any, bits: int) -> Any:
    """Return the lane of sparse metadata, M=128 per CTA.

    Args:
        row: row of A in the CTA.
        group: index along K of the 4-bit metadata group (4 elements, tf32: 2, 4-bit types: 8).
        bits: bits of an element.
    """
    if bits >= 16:
        return row % 8 + 8 * (group // 4) + 16 * (row // 16)
    return row + 0 * group


def metadata_bit(row: Any, group: Any, bits: int) -> Any:
    """Return the first bit of a metadata group: column ``bit // 32``, bit ``bit % 32`` in it."""
    if bits >= 16:
        return 16 * (row // 8 % 2) + 4 * (group % 4)
    return 4 * group + 0 * row
