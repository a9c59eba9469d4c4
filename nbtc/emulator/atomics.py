"""Atomic operations: one lane after another, in lane order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import floats
from .access import _by_window, _groups
from .access_shared import fault, remote
from .machine import LANES, MemoryFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from .program import Instruction

_WIDTH = {
    "b16": 2,
    "u32": 4,
    "s32": 4,
    "b32": 4,
    "f32": 4,
    "f16x2": 4,
    "bf16x2": 4,
    "u64": 8,
    "s64": 8,
    "b64": 8,
    "f64": 8,
    "f16": 2,
    "bf16": 2,
    "b128": 16,
}


def _arithmetic(op: str, kind: str, flush: bool) -> Callable[[int, int], int]:
    """Function (old bits, operand bits) -> new bits of one element."""
    width = _WIDTH[kind]
    bits = width * 8
    mask = (1 << bits) - 1
    top = 1 << (bits - 1)

    def signed(x: int) -> int:
        return x - (1 << bits) if x & top else x

    if kind in ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2"):
        return _float_operation(op, kind, flush)
    if op == "add":
        return lambda a, b: (a + b) & mask
    if op == "inc":
        return lambda a, b: 0 if a >= b else a + 1
    if op == "dec":
        return lambda a, b: b if a == 0 or a > b else a - 1
    if op == "and":
        return lambda a, b: a & b
    if op == "or":
        return lambda a, b: a | b
    if op == "xor":
        return lambda a, b: a ^ b
    if op in ("min", "max"):
        choose = min if op == "min" else max
        if kind[0] == "s":
            return lambda a, b: choose(signed(a), signed(b)) & mask
        return choose
    return lambda a, b: b


def _float_operation(op: str, kind: str, flush: bool) -> Callable[[int, int], int]:
    unsigned = np.dtype(f"u{_WIDTH[kind]}")
    function = {"add": np.add, "min": floats.minimum, "max": floats.maximum}.get(op)
    if function is None:
        return lambda a, b: b
    half = kind.startswith("bf16")
    element = np.dtype({"f32": np.float32, "f64": np.float64}.get(kind, np.float16))

    def run(a: int, b: int) -> int:
        x, y = (np.array([v], unsigned) for v in (a, b))
        if half:
            wide = function(
                floats.bf16_to_f32(x.view(np.uint16)), floats.bf16_to_f32(y.view(np.uint16))
            )
            return int(floats.f32_to_bf16(wide).view(unsigned)[0])
        x, y = x.view(element), y.view(element)
        if flush:
            return int(floats.ftz(function(floats.ftz(x), floats.ftz(y))).view(unsigned)[0])
        return int(function(x, y).view(unsigned)[0])

    return run


def run_atomic(
    w: Any,
    ins: Instruction,
    space: str,
    op: str,
    kind: str,
    address: np.ndarray,
    values: tuple,
    rows: tuple | None,
    m: np.ndarray | None,
) -> None:
    """Execute an atomic of any space; old values go to ``rows`` (None for red)."""
    if space == "generic":
        for name, base, lanes in _by_window(address, m):
            if name not in ("global", "shared"):
                fault(ins, "illegal-instruction", f"atomic on {name} memory")
            where = "cluster" if name == "shared" else name
            place = address - base if name == "shared" else address
            run_atomic(w, ins, where, op, kind, place, values, rows, lanes)
        return
    width = _WIDTH[kind]
    count = max(len(values[0]) // (2 if kind == "b128" else 1), 1)
    size = width * count
    machine = w.machine
    if space == "global":
        _check_global(w, ins, address, size, m)
        for region, lanes in _groups(w, address, m):
            if not region.writable:
                fault(ins, "out-of-bounds", f"atomic on {region.name}, which is read-only")
            offsets = address - region.base
            if machine.hooks.wants_memory:
                machine.hooks.atomic(
                    w, "global", region, offsets, size, None if lanes.all() else lanes, ins
                )
            _each_lane(
                region.data, offsets, op, kind, values, rows, lanes, kind == "f32" and op == "add"
            )
            if region.initialised is not None:
                for lane in np.nonzero(lanes)[0]:
                    region.initialised[offsets[lane] : offsets[lane] + size] = 1
        machine.bytes_written["global"] += size * (LANES if m is None else int(m.sum()))
    else:
        for cta, offsets, lanes in remote(w, ins, address, size, m):
            if cta is not w.cta and space != "cluster":
                fault(
                    ins,
                    "out-of-bounds",
                    f"address in CTA rank {cta.rank}, but .shared::cta "
                    f"reaches only the own CTA; use .shared::cluster",
                )
            if machine.hooks.wants_memory:
                machine.hooks.atomic(
                    w, "shared", cta, offsets, size, None if lanes.all() else lanes, ins
                )
            for lane in np.nonzero(lanes)[0]:
                at = int(offsets[lane])
                if not cta.shared.initialised[at : at + size].all():
                    machine.finding(
                        "uninitialised-read",
                        f"`{ins.text}` works on shared memory at "
                        f"byte offset {at}, which was never written",
                        ins=ins,
                        warp=w,
                        lanes=1 << int(lane),
                    )
                    break
            _each_lane(cta.shared.data, offsets, op, kind, values, rows, lanes, False)
            for lane in np.nonzero(lanes)[0]:
                cta.shared.initialised[offsets[lane] : offsets[lane] + size] = 1
        machine.bytes_written["shared"] += size * (LANES if m is None else int(m.sum()))
    machine.events += 1


def _check_global(
    w: Any, ins: Instruction, address: np.ndarray, size: int, m: np.ndarray | None
) -> None:
    for lane in range(LANES):
        if m is not None and not m[lane]:
            continue
        place = int(address[lane])
        if place % size:
            fault(
                ins,
                "misaligned",
                f"thread {w.index * LANES + lane}: address {place:#x} is not a multiple of {size}",
            )
        try:
            w.machine.memory.locate(place, size)
        except MemoryFault as error:
            fault(ins, error.kind, f"thread {w.index * LANES + lane}: {error.message}")


def _each_lane(
    data: np.ndarray,
    offsets: np.ndarray,
    op: str,
    kind: str,
    values: tuple,
    rows: tuple | None,
    lanes: np.ndarray,
    flush: bool,
) -> None:
    width = _WIDTH[kind]
    parts = 2 if kind == "b128" else 1
    count = len(values[0]) // parts
    function = _arithmetic(op, kind, flush) if op != "cas" else None
    for lane in np.nonzero(lanes)[0].tolist():
        for k in range(count):
            at = int(offsets[lane]) + k * width
            old = int.from_bytes(data[at : at + width].tobytes(), "little")
            operand = _bits(values[0], k, parts, lane)
            if function is None:
                new = _bits(values[1], k, parts, lane) if old == operand else old
            else:
                new = function(old, operand)
            data[at : at + width] = np.frombuffer(new.to_bytes(width, "little"), np.uint8)
            if rows is not None:
                if parts == 2:
                    rows[2 * k][lane] = old & 0xFFFFFFFFFFFFFFFF
                    rows[2 * k + 1][lane] = old >> 64
                elif rows[k] is not None:
                    rows[k][lane] = old


def _bits(rows: tuple, k: int, parts: int, lane: int) -> int:
    if parts == 2:
        return int(rows[2 * k][lane]) | int(rows[2 * k + 1][lane]) << 64
    return int(rows[k][lane])
