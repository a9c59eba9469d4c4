"""Run-time side of memory instructions: bounds, alignment, poison, hooks, byte counts.

Addresses are int64 rows. ``m`` is bool[32] or None (all lanes). A fault carries the instruction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .access_shared import (
    SHIFT,
    SIGNED,
    fault,
    load_shared,
    scatter,
    settle,
    store_shared,
    write_lanes,
)
from .machine import (
    LANE,
    LANES,
    LOCAL_WINDOW,
    PARAM_BASE,
    PARAM_WINDOW,
    RANK_SHIFT,
    SHARED_WINDOW,
    WINDOW_SIZE,
    MemoryFault,
)

if TYPE_CHECKING:
    from .memory import Region
    from .program import Instruction

_or = np.bitwise_or.reduce


def _diagnose_global(
    w: Any, ins: Instruction, address: np.ndarray, size: int, m: np.ndarray | None
) -> None:
    """Raise the fault of the first bad lane; return when all lanes are fine (several regions)."""
    for lane in range(LANES):
        if m is not None and not m[lane]:
            continue
        place = int(address[lane])
        thread = w.index * LANES + lane
        align = min(size, 32)
        if place % align:
            fault(
                ins,
                "misaligned",
                f"thread {thread}: address {place:#x} is not a multiple of {align}",
            )
        try:
            w.machine.memory.locate(place, size)
        except MemoryFault as error:
            fault(ins, error.kind, f"thread {thread}: {error.message}")


def _groups(w: Any, address: np.ndarray, m: np.ndarray | None) -> list[tuple[Any, np.ndarray]]:
    """Split lanes by the region they hit."""
    found: dict[int, tuple[Any, np.ndarray]] = {}
    for lane in range(LANES):
        if m is not None and not m[lane]:
            continue
        region = w.machine.memory.find(int(address[lane]))
        entry = found.setdefault(id(region), (region, np.zeros(LANES, bool)))
        entry[1][lane] = True
    return list(found.values())


def load_global(
    w: Any,
    ins: Instruction,
    address: np.ndarray,
    width: int,
    signed: bool,
    rows: tuple,
    m: np.ndarray | None,
) -> None:
    """``ld.global`` (and const)."""
    address, m, first = settle(address, m)
    if first == -1 and m is not None and not m.any():
        return
    machine = w.machine
    size = width * len(rows)
    region = machine.memory.find(first)
    if region is None:
        _diagnose_global(w, ins, address, size, m)
        raise AssertionError("an address without a region is a fault")
    offsets = address - region.base
    together = int(_or(offsets))
    if together < 0 or (together & (size - 1)):
        together = -1
    view = region.views[width]
    index = offsets >> SHIFT[width] if width > 1 else offsets
    try:
        if together < 0 or region.base & (size - 1):
            raise IndexError
        values = [view[index]] if len(rows) == 1 else [view[index + k] for k in range(len(rows))]
    except IndexError:
        _diagnose_global(w, ins, address, size, m)
        groups = _groups(w, address, m)
        if len(groups) > 1:
            for _, lanes in groups:
                load_global(w, ins, address, width, signed, rows, lanes)
            return
        octets = np.ascontiguousarray(region.data[offsets[:, None] + np.arange(size)])
        values = list(octets.view(f"u{width}").T)
    hooks = machine.hooks
    if region.initialised is not None:
        _check_global_poison(w, ins, region, offsets, size, m)
    if hooks.wants_memory and region.writable:
        hooks.load(w, "global", region, offsets, size, m, ins)
    lanes = LANES if m is None else int(m.sum())
    machine.bytes_read["global"] += size * lanes
    if signed:
        values = [v.view(SIGNED[width]) for v in values]
    scatter(rows, values, m)


def _check_global_poison(
    w: Any, ins: Instruction, region: Region, offsets: np.ndarray, size: int, m: np.ndarray | None
) -> None:
    assert region.initialised is not None
    index = offsets[:, None] + np.arange(size)
    good = region.initialised[index].all(axis=1)
    if m is not None:
        good = good | ~m
    if not good.all():
        lane = int(np.argmin(good))
        w.machine.finding(
            "uninitialised-read",
            f"`{ins.text}` reads {region.name} at byte {int(offsets[lane])} that was never written",
            ins=ins,
            warp=w,
            lanes=1 << lane,
        )


def store_global(
    w: Any, ins: Instruction, address: np.ndarray, width: int, rows: tuple, m: np.ndarray | None
) -> None:
    """``st.global``."""
    address, m, first = settle(address, m)
    if first == -1 and m is not None and not m.any():
        return
    machine = w.machine
    size = width * len(rows)
    region = machine.memory.find(first)
    if region is None:
        _diagnose_global(w, ins, address, size, m)
        raise AssertionError("an address without a region is a fault")
    if not region.writable:
        fault(ins, "out-of-bounds", f"store to {region.name}, which is read-only")
    offsets = address - region.base
    together = int(_or(offsets))
    index = offsets >> SHIFT[width] if width > 1 else offsets
    view = region.views[width]
    last = len(rows) - 1
    if (
        together < 0
        or together & (size - 1)
        or region.base & (size - 1)
        or (int(index.max()) + last >= view.size)
    ):
        _diagnose_global(w, ins, address, size, m)
        groups = _groups(w, address, m)
        if len(groups) > 1:
            for _, lanes in groups:
                store_global(w, ins, address, width, rows, lanes)
            return
    if machine.hooks.wants_memory:
        machine.hooks.store(w, "global", region, offsets, size, m, ins)
    if region.base & (size - 1):
        _write_octets(region, offsets, width, rows, m)
    else:
        write_lanes(view, index, rows, m)
    if region.initialised is not None:
        for k in range(size):
            region.initialised[offsets + k] = 1
    lanes = LANES if m is None else int(m.sum())
    machine.bytes_written["global"] += size * lanes
    machine.events += 1


def _write_octets(
    region: Region, offsets: np.ndarray, width: int, rows: tuple, m: np.ndarray | None
) -> None:
    """Write to an array whose own address is less aligned than the access."""
    lanes = np.arange(LANES) if m is None else np.nonzero(m)[0]
    for k, row in enumerate(rows):
        if row is not None:
            octets = np.ascontiguousarray(row[lanes]).view(np.uint8).reshape(-1, width)
            region.data[offsets[lanes, None] + np.arange(k * width, (k + 1) * width)] = octets


def _local_index(
    w: Any, ins: Instruction, address: np.ndarray, width: int, size: int, m: np.ndarray | None
) -> np.ndarray:
    together = int(_or(address))
    if together & (size - 1):
        fault(ins, "misaligned", f"local address is not a multiple of {size}")
    if together < 0 or int(address.max()) + size > w.local.shape[1]:
        bad = int(address.max()) if together >= 0 else int(address.min())
        fault(ins, "out-of-bounds", f"local address {bad:#x} is outside the thread's local memory")
    return (LANE * w.local.shape[1] + address) >> SHIFT[width]


def load_local(
    w: Any,
    ins: Instruction,
    address: np.ndarray,
    width: int,
    signed: bool,
    rows: tuple,
    m: np.ndarray | None,
) -> None:
    """``ld.local``."""
    address, m, first = settle(address, m)
    if first == -1 and m is not None and not m.any():
        return
    index = _local_index(w, ins, address, width, width * len(rows), m)
    view = w.local_views[width]
    values = [view[index + k] for k in range(len(rows))]
    if signed:
        values = [v.view(SIGNED[width]) for v in values]
    scatter(rows, values, m)


def store_local(
    w: Any, ins: Instruction, address: np.ndarray, width: int, rows: tuple, m: np.ndarray | None
) -> None:
    """``st.local``."""
    address, m, first = settle(address, m)
    if first == -1 and m is not None and not m.any():
        return
    index = _local_index(w, ins, address, width, width * len(rows), m)
    write_lanes(w.local_views[width], index, rows, m)


def _by_window(
    address: np.ndarray, m: np.ndarray | None
) -> list[tuple[str, int, np.ndarray | None]]:
    """Split generic addresses by window: (space, window base, lanes)."""
    windows = address // WINDOW_SIZE
    first = int(windows[0])
    if (windows == first).all():
        return [(_WINDOW_NAMES.get(first, "global"), first * WINDOW_SIZE, m)]
    out: list[tuple[str, int, np.ndarray | None]] = []
    names = {k: _WINDOW_NAMES.get(k, "global") for k in np.unique(windows).tolist()}
    for space in sorted(set(names.values())):
        keys = [k for k, v in names.items() if v == space]
        lanes = np.isin(windows, keys)
        if m is not None:
            lanes = lanes & m
        if lanes.any():
            out.append((space, keys[0] * WINDOW_SIZE, lanes))
    return out


_WINDOW_NAMES = {
    SHARED_WINDOW // WINDOW_SIZE: "shared",
    LOCAL_WINDOW // WINDOW_SIZE: "local",
    PARAM_WINDOW // WINDOW_SIZE: "param",
}


def load_generic(
    w: Any,
    ins: Instruction,
    address: np.ndarray,
    width: int,
    signed: bool,
    rows: tuple,
    m: np.ndarray | None,
) -> None:
    """``ld`` without a space."""
    address, m, first = settle(address, m)
    if first == -1 and m is not None and not m.any():
        return
    for space, base, lanes in _by_window(address, m):
        if space == "global":
            load_global(w, ins, address, width, signed, rows, lanes)
        elif space == "shared":
            load_shared(w, ins, address - base, width, signed, rows, lanes, True)
        elif space == "local":
            load_local(w, ins, address - base, width, signed, rows, lanes)
        else:
            load_param_at(w, ins, address - (base + PARAM_BASE), width, signed, rows, lanes)


def store_generic(
    w: Any, ins: Instruction, address: np.ndarray, width: int, rows: tuple, m: np.ndarray | None
) -> None:
    """``st`` without a space."""
    address, m, first = settle(address, m)
    if first == -1 and m is not None and not m.any():
        return
    for space, base, lanes in _by_window(address, m):
        if space == "global":
            store_global(w, ins, address, width, rows, lanes)
        elif space == "shared":
            store_shared(w, ins, address - base, width, rows, lanes, True)
        elif space == "local":
            store_local(w, ins, address - base, width, rows, lanes)
        else:
            fault(ins, "out-of-bounds", "store to a kernel parameter")


def load_param(
    w: Any, offset: int, width: int, signed: bool, rows: tuple, m: np.ndarray | None
) -> None:
    """``ld.param`` of a kernel parameter at a constant offset."""
    machine = w.machine
    for k, row in enumerate(rows):
        if row is None:
            continue
        key = (offset + k * width, width, signed)
        value = machine.param_values.get(key)
        if value is None:
            octets = machine.params[key[0] : key[0] + width]
            value = octets.view(SIGNED[width] if signed else f"u{width}")[0]
            machine.param_values[key] = value
        if m is None:
            row[:] = value
        else:
            np.copyto(row, value, where=m)


def load_param_at(
    w: Any,
    ins: Instruction,
    offsets: np.ndarray,
    width: int,
    signed: bool,
    rows: tuple,
    m: np.ndarray | None,
) -> None:
    """``ld.param`` through an address."""
    data = w.machine.params
    offsets, m, first = settle(offsets, m)
    if first == -1 and m is not None and not m.any():
        return
    size = width * len(rows)
    if int(offsets.min()) < 0 or int(offsets.max()) + size > data.size:
        fault(ins, "out-of-bounds", "address outside the kernel parameters")
    for k, row in enumerate(rows):
        if row is None:
            continue
        index = (offsets + k * width)[:, None] + np.arange(width)
        value = (
            np.ascontiguousarray(data[index])
            .view(SIGNED[width] if signed else f"u{width}")
            .reshape(-1)
        )
        scatter((row,), [value], m)


def load_frame(
    f: Any, offset: int, width: int, signed: bool, rows: tuple, m: np.ndarray | None
) -> None:
    """``ld.param`` of a function parameter or call result in the frame."""
    area = f.params
    for k, row in enumerate(rows):
        if row is None:
            continue
        at = offset + k * width
        part = np.ascontiguousarray(area[:, at : at + width])
        value = part.view(SIGNED[width] if signed else f"u{width}").reshape(-1)
        scatter((row,), [value], m)


def store_frame(f: Any, offset: int, width: int, rows: tuple, m: np.ndarray | None) -> None:
    """``st.param`` into the frame."""
    for k, row in enumerate(rows):
        if row is None:
            continue
        at = offset + k * width
        octets = np.ascontiguousarray(row).view(np.uint8).reshape(LANES, width)
        if m is None:
            f.params[:, at : at + width] = octets
        else:
            f.params[m, at : at + width] = octets[m]


def is_const(w: Any, address: np.ndarray) -> np.ndarray:
    """``isspacep.const``."""
    out = np.zeros(address.shape, bool)
    for lane in range(address.size):
        region = w.machine.memory.find(int(address[lane]))
        out[lane] = region is not None and region.name.startswith("const ")
    return out


def mapa(
    w: Any, ins: Instruction, address: np.ndarray, rank: np.ndarray, m: np.ndarray | None
) -> np.ndarray:
    """``mapa``: the address of the same variable in another CTA of the cluster."""
    count = len(w.cta.cluster.ctas)
    wrong = rank >= count
    if m is not None:
        wrong = wrong & m
    if wrong.any():
        lane = int(wrong.argmax())
        fault(
            ins, "illegal-instruction", f"CTA rank {int(rank[lane])} of a cluster with {count} CTAs"
        )
    dtype = address.dtype.type
    cleared = address & dtype(~(0xFF << RANK_SHIFT) & ((1 << 8 * address.itemsize) - 1))
    return cleared | (rank.astype(address.dtype) << dtype(RANK_SHIFT))


def alloca(w: Any, f: Any, size: np.ndarray, align: int) -> np.ndarray:
    """``alloca``: grow the stack of the warp by the largest request."""
    base = (w.local_top + align - 1) // align * align
    w.local_top = base + int(size.max())
    w.reserve_local(w.local_top)
    return np.full(LANES, base, np.uint64)


def discard(w: Any, ins: Instruction, address: np.ndarray, m: np.ndarray | None) -> None:
    """``discard.L2``: fill the 128 bytes with a pattern."""
    for lane in range(LANES):
        if m is not None and not m[lane]:
            continue
        place = int(address[lane])
        if place % 128:
            fault(ins, "misaligned", "discard needs a 128-byte aligned address")
        try:
            region, offset = w.machine.memory.locate(place, 128, write=True)
        except MemoryFault as error:
            fault(ins, error.kind, f"thread {w.index * LANES + lane}: {error.message}")
        region.data[offset : offset + 128] = 0xFF
    w.machine.events += 1


def atomic(
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
    """``atom``/``red``: see `atomics`."""
    from .atomics import run_atomic

    address, m, first = settle(address, m)
    if first == -1 and m is not None and not m.any():
        return
    run_atomic(w, ins, space, op, kind, address, values, rows, m)
