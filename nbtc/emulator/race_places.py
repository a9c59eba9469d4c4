"""Where and who: source positions of instructions and lane masks, for findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .findings import Related, user_first

if TYPE_CHECKING:
    from .machine import Instruction

__all__ = ["lane_bits", "place", "related", "where"]

_FULL = 0xFFFFFFFF
_BITS: dict[bytes, int] = {}


def lane_bits(mask: np.ndarray | None) -> int:
    """Turn bool[32] (None = all) into a bit mask."""
    if mask is None:
        return _FULL
    raw = mask.tobytes()
    bits = _BITS.get(raw)
    if bits is None:
        packed = np.packbits(np.frombuffer(raw, bool), bitorder="little")
        bits = int.from_bytes(packed.tobytes(), "little")
        if len(_BITS) < 65536:
            _BITS[raw] = bits
    return bits


def place(ins: Instruction | None) -> tuple[str, int]:
    """Give file and line of the user's frame of an instruction."""
    if ins is None:
        return "<ptx>", 0
    frames = user_first(ins.chain)
    return (frames[0].file, frames[0].line) if frames else ("<ptx>", ins.ptx_line)


def where(ins: Instruction | None) -> str:
    """Give ``file:line`` of the user's frame of an instruction."""
    file, line = place(ins)
    return f"{file.rsplit('/', 1)[-1]}:{line}"


def related(label: str, ins: Instruction | None) -> tuple[Related, ...]:
    """Give a related line, or nothing when there is no instruction."""
    return () if ins is None else (Related(label, *place(ins)),)
