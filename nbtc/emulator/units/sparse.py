"""Structured sparsity of operand A: metadata nibbles to positions along K.

A nibble describes one group of the dense row: two 2-bit indices out of four elements, or, for
4-bit types, of four pairs; for 32-bit types 0b0100 keeps the first of two elements and 0b1110 the
second. PTX ISA 9.7.14.6.1.
"""

from __future__ import annotations

import numpy as np

from nbtc.emulator.units import UnitFault


def group_size(bits: int) -> int:
    """Return the dense elements that one nibble describes, for elements of ``bits`` bits."""
    return {32: 2, 4: 8}.get(bits, 4)


def positions(nibbles: np.ndarray, bits: int) -> np.ndarray:
    """Return the dense k of every stored element.

    Args:
        nibbles: integer array (rows, groups).
        bits: bits per element.

    Returns:
        Integer array (rows, k / 2).

    Raises:
        UnitFault: kind "illegal-instruction", a nibble is not a legal pair of indices.
    """
    rows = nibbles.shape[0]
    nibbles = nibbles.astype(np.int64)
    group = np.arange(nibbles.shape[1])[None, :]
    if bits == 32:
        if not np.isin(nibbles, (0x4, 0xE)).all():
            raise UnitFault("illegal-instruction", "tf32 sparse metadata: nibbles must be 4 or 0xE")
        return group * 2 + (nibbles == 0xE)
    first, second = nibbles & 3, nibbles >> 2
    if (first >= second).any():
        raise UnitFault(
            "illegal-instruction",
            "sparse metadata: both 2-bit indices of a group must differ and ascend",
        )
    kept = np.stack([group * 4 + first, group * 4 + second], axis=-1).reshape(rows, -1)
    if bits == 4:
        return np.stack([2 * kept, 2 * kept + 1], axis=-1).reshape(rows, -1)
    return kept


def expand(stored: np.ndarray, places: np.ndarray, k: int) -> np.ndarray:
    """Return the dense matrix (rows, k) of stored values (rows, k / 2) and their positions."""
    dense = np.zeros((stored.shape[0], k), stored.dtype)
    np.put_along_axis(dense, places, stored, axis=1)
    return dense
