"""Stores of the value that is already there.

Compilers let several warps initialise the same bytes with the same value, without any order. No
reader can tell which store came last, so that such a pair is advice, not a finding.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from .clocks import ORDER, Conflict
from .program import Vec

if TYPE_CHECKING:
    from .machine import Instruction, Warp

__all__ = ["changes_nothing", "split"]


def changes_nothing(
    warp: Warp, target: Any, offsets: np.ndarray, size: int, mask: np.ndarray | None,
    ins: Instruction, rows: np.ndarray | None = None,
) -> bool:  # fmt: skip
    """Say whether a plain store would write, in every lane, the bytes that are there.

    ``rows`` are the bytes of a matrix store, a row of ``size`` bytes for each of its offsets.
    """
    data = target.shared.data if hasattr(target, "shared") else target.data
    if rows is not None:
        return bool(np.array_equal(data[offsets[: len(rows), None] + np.arange(size)], rows))
    if ins.parts[0] != "st" or len(ins.operands) < 2:
        return False
    value = ins.operands[1]
    items = value.items if isinstance(value, Vec) else [value]
    width = size // len(items)
    if width not in (1, 2, 4, 8):
        return False
    lanes = np.arange(32) if mask is None else np.flatnonzero(mask)
    for k, item in enumerate(items):
        new = np.ascontiguousarray(warp.read(item, f"u{width}")[lanes]).view(np.uint8)
        places = (offsets[lanes] + k * width)[:, None] + np.arange(width)
        if not np.array_equal(data[places], new.reshape(-1, width)):
            return False
    return True


def split(found: Iterable[Conflict]) -> tuple[list[Conflict], list[Conflict]]:
    """Split conflicts into those with an unordered plain store, and the others."""
    stores, others = [], []
    for old, reason in found:
        plain = reason == ORDER and old.write and old.channel is None and not old.is_async
        (stores if plain else others).append((old, reason))
    return stores, others
