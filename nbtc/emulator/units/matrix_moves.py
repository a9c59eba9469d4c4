"""ldmatrix, stmatrix and movmatrix (PTX ISA 9.7.14.5): rows in shared memory to fragments.

Row addresses are the caller's: it passes the bytes of the rows (loads) or gets the bytes of each
row (stores), in the order of `row_lanes`. Registers are uint32 of shape (registers, 32), lane last.

    lanes = row_lanes("m8n8", 4)                 # lane that gives the address of each row
    registers = ldmatrix(rows, "m8n8", 4, trans=False)            # rows: uint8[n_rows, 16]
    rows = stmatrix(registers, "m8n8", 4, trans=True)

Every row is 16 bytes in memory, also for the packed 4- and 6-bit forms (padding included).
"""

from __future__ import annotations

from functools import cache

import numpy as np

from nbtc.emulator.units import UnitFault
from nbtc.emulator.units.formats import unpack_padded
from nbtc.layout import fragments as fr

_SHAPES = {"m8n8": 8, "m16n16": 16, "m8n16": 8, "m16n8": 8}


@cache
def row_lanes(shape: str, count: int) -> np.ndarray:
    """Return the lanes whose addresses name the rows, matrix by matrix.

    Args:
        shape: "m8n8", "m16n16", "m8n16" or "m16n8".
        count: matrices (.x1, .x2, .x4).

    Raises:
        UnitFault: the combination does not exist.
    """
    if shape not in _SHAPES or count not in ((1, 2) if shape == "m16n16" else (1, 2, 4)):
        raise UnitFault("illegal-instruction", f"matrix move of shape {shape} with .x{count}")
    return np.arange(_SHAPES[shape] * count)


def registers_per_matrix(shape: str) -> int:
    """Return the registers that one matrix takes in every thread."""
    return 2 if shape == "m16n16" else 1


@cache
def _indices(shape: str, trans: bool) -> tuple[np.ndarray, np.ndarray]:
    """Row and byte column, in memory, of every (register, lane, byte) of one matrix."""
    lane = np.arange(32)[None, :, None]
    byte = np.arange(4)[None, None, :]
    register = np.arange(registers_per_matrix(shape))[:, None, None]
    if shape == "m8n8":
        row, col = fr.matrix_row(lane), fr.matrix_col(lane, byte >> 1)
        row, col = (col, row) if trans else (row, col)
        column = 2 * col + (byte & 1)
    elif shape == "m16n16":
        row = fr.matrix_m16n16_row(lane, register, byte)
        column = fr.matrix_m16n16_col(lane, byte)
    elif shape == "m8n16":
        row, column = fr.matrix_row(lane), fr.matrix_m8n16_col(lane, byte)
    else:
        row, column = fr.matrix_m16n8_col(lane, byte), fr.matrix_m16n8_row(lane, byte)
    full = (registers_per_matrix(shape), 32, 4)
    return np.broadcast_to(row, full), np.broadcast_to(column, full)


def ldmatrix(
    rows: np.ndarray, shape: str, count: int, *, trans: bool = False, packed: int = 0
) -> np.ndarray:
    """Return the registers of an ldmatrix.

    Args:
        rows: uint8 (rows, 16), in the order of `row_lanes`.
        shape: "m8n8", "m16n16" or "m8n16".
        count: matrices.
        trans: transpose; fixed by the shape for m16n16 (True) and m8n16 (False).
        packed: 0, or 4 (.b8x16.b4x16_p64) or 6 (.b8x16.b6x16_p32) bits per element; each element
            is spread to one byte, in its low bits.

    Returns:
        uint32 (registers, 32).
    """
    row_lanes(shape, count)
    if packed:
        rows = unpack_padded(np.ascontiguousarray(rows), packed)
    row, column = _indices(shape, trans)
    matrices = rows.reshape(count, -1, 16)
    data = np.ascontiguousarray(matrices[:, row, column])
    return data.view(np.uint32).reshape(-1, 32)


def stmatrix(registers: np.ndarray, shape: str, count: int, *, trans: bool = False) -> np.ndarray:
    """Return the rows, uint8 (rows, 16), that an stmatrix writes, in the order of `row_lanes`.

    Args:
        registers: uint32 (registers, 32).
        shape: "m8n8" or "m16n8".
        count: matrices.
        trans: transpose; fixed by the shape for m16n8 (True).
    """
    row_lanes(shape, count)
    row, column = _indices(shape, trans)
    data = np.ascontiguousarray(registers, np.uint32).view(np.uint8)
    matrices = np.empty((count, _SHAPES[shape], 16), np.uint8)
    matrices[:, row, column] = data.reshape(count, registers_per_matrix(shape), 32, 4)
    return matrices.reshape(-1, 16)


def movmatrix(register: np.ndarray) -> np.ndarray:
    """Return the transposed 8x8 b16 fragment, uint32[32], of a fragment uint32[32]."""
    return ldmatrix(stmatrix(register[None, :], "m8n8", 1), "m8n8", 1, trans=True)[0]
