"""External functions that the driver provides: vprintf, assertion failure, grid handles, malloc."""

from __future__ import annotations

import re
import struct
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from . import progress
from .machine import LANES, PARAM_BASE

if TYPE_CHECKING:
    from .program import Instruction

_FORMAT = re.compile(
    r"%[-+ #0]*(?:\*|\d+)?(?:\.(?:\*|\d+))?(hh|h|ll|l|j|z|t|L)?([diouxXcsfFeEgGaAp%])"
)


def call_builtin(warp: Any, ins: Instruction, name: str) -> None:
    """Run a built-in for the active lanes, or raise for a function that has no body here."""
    if name == "vprintf":
        _vprintf(warp, ins)
    elif name == "__assertfail":
        message = _string(warp, int(_argument(warp, ins, 0, 8)[warp.lane]), warp.lane)
        warp.machine.fatal("trap", f"assertion failed: {message}", ins=ins, warp=warp)
    elif name in ("malloc", "free"):
        _heap(warp, ins, name)
    elif name == "cudaCGGetIntrinsicHandle":
        _result(warp, ins, np.full(LANES, 1, np.uint64), 8)
    else:
        ins.unmodelled(
            f"function {name} has no body in this module (link its PTX into the same text)"
        )


def _argument(warp: Any, ins: Instruction, position: int, size: int) -> np.ndarray:
    operand = ins.operands[2].items[position]  # type: ignore[attr-defined]
    target = getattr(operand, "target", None)
    if target is not None and getattr(target, "space", "") == "param":
        start = target.offset
        part = np.ascontiguousarray(warp.frame.params[:, start : start + size])
        return part.view(f"u{size}").reshape(-1)
    return warp.read(operand, f"u{size}")


def _result(warp: Any, ins: Instruction, values: np.ndarray, size: int) -> None:
    returns = ins.operands[0].items  # type: ignore[attr-defined]
    if not returns:
        return
    target = getattr(returns[0], "target", None)
    if target is not None:
        octets = values.astype(f"u{size}").view(np.uint8).reshape(LANES, size)
        area = warp.frame.params
        area[warp.active, target.offset : target.offset + size] = octets[warp.active]
    else:
        warp.write(returns[0], values)


def _string(warp: Any, address: int, lane: int) -> str:
    out = bytearray()
    while len(out) < 1 << 16:
        byte = int(warp.read_generic(address + len(out), 1, lane)[0])
        if byte == 0:
            break
        out.append(byte)
    return out.decode("utf-8", "replace")


def _vprintf(warp: Any, ins: Instruction) -> None:
    formats = _argument(warp, ins, 0, 8)
    buffers = _argument(warp, ins, 1, 8)
    counts = np.zeros(LANES, np.uint32)
    progress.make_way()
    for lane in np.nonzero(warp.active)[0].tolist():
        text = _string(warp, int(formats[lane]), lane)
        line, count = format_text(warp, text, int(buffers[lane]), lane)
        counts[lane] = count
        sys.stdout.write(line)
    _result(warp, ins, counts, 4)


def format_text(warp: Any, text: str, buffer: int, lane: int) -> tuple[str, int]:
    """Expand a printf format from an argument buffer (natural alignment of each slot)."""
    out: list[str] = []
    place, position, count = buffer, 0, 0

    def slot(size: int) -> bytes:
        nonlocal place, count
        place = (place + size - 1) // size * size
        data = warp.read_generic(place, size, lane).tobytes()
        place += size
        count += 1
        return data

    for match in _FORMAT.finditer(text):
        out.append(text[position : match.start()])
        position = match.end()
        length, letter = match.group(1) or "", match.group(2)
        spec = match.group().replace(length, "", 1) if length else match.group()
        if letter == "%":
            out.append("%")
            continue
        while "*" in spec:
            spec = spec.replace("*", str(struct.unpack("<i", slot(4))[0]), 1)
        if letter in "fFeEgGaA":
            value: Any = struct.unpack("<d", slot(8))[0]
            out.append(value.hex() if letter in "aA" else spec % value)
        elif letter == "s":
            out.append(spec % _string(warp, struct.unpack("<Q", slot(8))[0], lane))
        elif letter == "p":
            out.append(f"{struct.unpack('<Q', slot(8))[0]:#x}")
        elif letter == "c":
            out.append(chr(struct.unpack("<i", slot(4))[0] & 255))
        else:
            size = 8 if length in ("l", "ll", "j", "z", "t") else 4
            signed = letter in "di"
            value = int.from_bytes(slot(size), "little", signed=signed)
            out.append((spec.replace("u", "d") if letter == "u" else spec) % value)
    out.append(text[position:])
    return "".join(out), count


def _heap(warp: Any, ins: Instruction, name: str) -> None:
    if name == "free":
        return
    sizes = _argument(warp, ins, 0, 8)
    out = np.zeros(LANES, np.uint64)
    for lane in np.nonzero(warp.active)[0].tolist():
        size = max(int(sizes[lane]), 1)
        if size > 8 << 20:
            continue
        region = warp.machine.memory.allocate(np.full(size, 0xCD, np.uint8), "device heap block")
        region.initialised = np.zeros(size, np.uint8)
        out[lane] = region.base
    _result(warp, ins, out, 8)


__all__ = ["PARAM_BASE", "call_builtin", "format_text"]
