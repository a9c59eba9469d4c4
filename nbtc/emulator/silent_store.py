"""Stores of the value that is already there, or of one that differs in rounding alone.

Compilers let several warps initialise the same bytes with the same value, without any order. No
reader can tell which store came last, so that such a pair is advice, not a finding. Where several
warps compute one and the same sum, each in its own order, the last digit depends on who is last:
a warning.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from .clocks import ORDER, Conflict
from .program import Vec

if TYPE_CHECKING:
    from .machine import Instruction, Warp

__all__ = ["EQUAL", "ROUNDED", "difference", "split"]

EQUAL, ROUNDED = "the same value", "values that differ in their last bits"
_UNITS = 4  # in the last place
_FLOATS = {4: (np.int32, np.float32, 1e-30), 8: (np.int64, np.float64, 1e-200)}


def difference(
    stores: list[Conflict], warp: Warp, target: Any, offsets: np.ndarray, size: int,
    mask: np.ndarray | None, ins: Instruction, rows: np.ndarray | None = None,
) -> str | None:  # fmt: skip
    """Say how a plain store changes the bytes that are there: EQUAL, ROUNDED, or None for more.

    ``rows`` are the bytes of a matrix store, a row of ``size`` bytes for each of its offsets.
    """
    data = target.shared.data if hasattr(target, "shared") else target.data
    if rows is not None:
        there = data[offsets[: len(rows), None] + np.arange(size)]
        return EQUAL if np.array_equal(there, rows) else None
    if ins.parts[0] != "st" or len(ins.operands) < 2:
        return None
    value = ins.operands[1]
    items = value.items if isinstance(value, Vec) else [value]
    width = size // len(items)
    if width not in (1, 2, 4, 8):
        return None
    lanes = np.arange(32) if mask is None else np.flatnonzero(mask)
    found = EQUAL
    for k, item in enumerate(items):
        new = np.ascontiguousarray(warp.read(item, f"u{width}")[lanes])
        places = (offsets[lanes] + k * width)[:, None] + np.arange(width)
        old = np.ascontiguousarray(data[places]).view(f"u{width}").reshape(-1)
        if np.array_equal(old, new):
            continue
        if any(other.place is not ins for other, _ in stores) or not _rounded(old, new, width):
            return None
        found = ROUNDED
    return found


def _rounded(old: np.ndarray, new: np.ndarray, width: int) -> bool:
    """Say whether numbers are close, and cannot be small integers."""
    if width not in _FLOATS:
        return False
    integer, real, least = _FLOATS[width]
    changed = old != new
    a, b = (np.ascontiguousarray(x[changed]) for x in (old, new))
    apart = np.abs(a.view(integer).astype(np.float64) - b.view(integer).astype(np.float64))
    return bool((apart <= _UNITS).all() and (np.abs(a.view(real)) > least).all()
                and np.isfinite(a.view(real)).all())  # fmt: skip


def split(found: Iterable[Conflict]) -> tuple[list[Conflict], list[Conflict]]:
    """Split conflicts into those with an unordered plain store, and the others."""
    stores, others = [], []
    for old, reason in found:
        plain = reason == ORDER and old.write and old.channel is None and not old.is_async
        (stores if plain else others).append((old, reason))
    return stores, others
