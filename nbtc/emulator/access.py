"""Run-time side of memory instructions: bounds, alignment, poison, hooks, byte counts.

Addresses are int64 rows. ``m`` is bool[32] or None (all lanes). A fault carries the instruction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from .machine import (
    LANE,
    LANES,
    LOCAL_WINDOW,
    PARAM_BASE,
    PARAM_WINDOW,
    RANK_SHIFT,
    SHARED_BASE,
    SHARED_WINDOW,
    WINDOW_SIZE,
    MemoryFault,
)

if TYPE_CHECKING:
    from .memory import Region
    from .program import Instruction

_NONE = bytes(LANES)
_ALL = b"\1" * LANES
_SHIFT = {1: 0, 2: 1, 4: 2, 8: 3}
_SIGNED = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
_or = np.bitwise_or.reduce
_putmask = np.putmask


def fault(ins: Instruction, kind: str, message: str) -> NoReturn:
    """Raise a memory fault at an instruction."""
    error = MemoryFault(kind, f"`{ins.text}`: {message}")
    error.ins = ins  # type: ignore[attr-defined]
    raise error


def _settle(address: np.ndarray, m: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None, int]:
    """Give addresses with inactive lanes moved onto an active one, the mask, the first address.

    The mask becomes None when it covers all lanes; the first address is -1 when no lane is active.
    """
    if m is None:
        return address, None, int(address[0])
    packed = m.tobytes()
    if packed == _ALL:
        return address, None, int(address[0])
    if packed == _NONE:
        return address, m, -1
    first = int(address[packed.index(1)])
    return np.where(m, address, first), m, first


def _widths(offsets: np.ndarray, size: int) -> int:
    """Give the OR of all offsets: negative when one is, low bits show misalignment."""
    return int(_or(offsets))


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


def _scatter(rows: tuple, values: list[np.ndarray], m: np.ndarray | None) -> None:
    for row, value in zip(rows, values, strict=True):
        if row is None:
            continue
        if m is None:
            row[:] = value
        else:
            np.copyto(row, value, where=m)


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
    address, m, first = _settle(address, m)
    if first == -1 and m is not None and not m.any():
        return
    machine = w.machine
    size = width * len(rows)
    region = machine.memory.find(first)
    if region is None:
        _diagnose_global(w, ins, address, size, m)
    offsets = address - region.base
    together = int(_or(offsets))
    if together < 0 or (together & (size - 1)):
        together = -1
    view = region.views[width]
    index = offsets >> _SHIFT[width] if width > 1 else offsets
    try:
        if together < 0 or region.base & (size - 1):
            raise IndexError
        values = [view[index]] if len(rows) == 1 else [view[index + k] for k in range(len(rows))]
    except IndexError:
        _diagnose_global(w, ins, address, size, m)
        for _, lanes in _groups(w, address, m):
            load_global(w, ins, address, width, signed, rows, lanes)
        return
    hooks = machine.hooks
    if region.initialised is not None:
        _check_global_poison(w, ins, region, offsets, size, m)
    if hooks.wants_memory and region.writable:
        hooks.load(w, "global", region, offsets, size, m, ins)
    lanes = LANES if m is None else int(m.sum())
    machine.bytes_read["global"] += size * lanes
    if signed:
        values = [v.view(_SIGNED[width]) for v in values]
    _scatter(rows, values, m)


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
    address, m, first = _settle(address, m)
    if first == -1 and m is not None and not m.any():
        return
    machine = w.machine
    size = width * len(rows)
    region = machine.memory.find(first)
    if region is None:
        _diagnose_global(w, ins, address, size, m)
    if not region.writable:
        fault(ins, "out-of-bounds", f"store to {region.name}, which is read-only")
    offsets = address - region.base
    together = int(_or(offsets))
    index = offsets >> _SHIFT[width] if width > 1 else offsets
    view = region.views[width]
    last = len(rows) - 1
    if (
        together < 0
        or together & (size - 1)
        or region.base & (size - 1)
        or (int(index.max()) + last >= view.size)
    ):
        _diagnose_global(w, ins, address, size, m)
        for _, lanes in _groups(w, address, m):
            store_global(w, ins, address, width, rows, lanes)
        return
    if machine.hooks.wants_memory:
        machine.hooks.store(w, "global", region, offsets, size, m, ins)
    _write(view, index, rows, m)
    if region.initialised is not None:
        for k in range(size):
            region.initialised[offsets + k] = 1
    lanes = LANES if m is None else int(m.sum())
    machine.bytes_written["global"] += size * lanes
    machine.events += 1


def _write(view: np.ndarray, index: np.ndarray, rows: tuple, m: np.ndarray | None) -> None:
    if m is not None:
        index = index[m]
    for k, row in enumerate(rows):
        if row is None:
            continue
        view[index + k if k else index] = row if m is None else row[m]


def _shared_offsets(
    w: Any, ins: Instruction, address: np.ndarray, size: int, m: np.ndarray | None
) -> np.ndarray | None:
    """Offsets in the own CTA's shared memory, or None when a lane names another CTA."""
    offsets = address - w.cta.shared_origin
    together = int(_or(offsets))
    if together < 0 or together >= 1 << RANK_SHIFT:
        return None
    if together & (size - 1):
        lane = int(np.argmax((offsets & (size - 1)) != 0))
        fault(
            ins,
            "misaligned",
            f"thread {w.index * LANES + lane}: shared address "
            f"{int(address[lane]):#x} is not a multiple of {size}",
        )
    return offsets


def _shared_fault(
    w: Any, ins: Instruction, address: np.ndarray, size: int, m: np.ndarray | None, cluster: bool
) -> NoReturn:
    for lane in range(LANES):
        if m is not None and not m[lane]:
            continue
        place = int(address[lane])
        try:
            if place < 0 or place >> 32:
                raise MemoryFault("out-of-bounds", f"{place:#x} is not a shared address")
            cta, _ = w.cta.cluster.locate_shared(place, size, size)
        except MemoryFault as error:
            fault(ins, error.kind, f"thread {w.index * LANES + lane}: {error.message}")
        if cta is not w.cta and not cluster:
            fault(
                ins,
                "out-of-bounds",
                f"thread {w.index * LANES + lane}: address {place:#x} is in "
                f"CTA rank {cta.rank}, but .shared::cta reaches only the own CTA (rank "
                f"{w.cta.rank}); use .shared::cluster",
            )
    raise AssertionError("no lane is at fault")


def _remote(w: Any, ins: Instruction, address: np.ndarray, size: int, m: np.ndarray | None) -> list:
    """Split lanes by CTA: list of (cta, offsets, lanes)."""
    ranks = address >> RANK_SHIFT
    out = []
    for rank in np.unique(ranks if m is None else ranks[m]).tolist():
        lanes = ranks == rank
        if m is not None:
            lanes = lanes & m
        ctas = w.cta.cluster.ctas
        if not 0 <= rank < len(ctas):
            _shared_fault(w, ins, address, size, m, True)
        offsets = address - ((rank << RANK_SHIFT) + SHARED_BASE)
        good = (
            (offsets[lanes] >= 0)
            & (offsets[lanes] + size <= ctas[rank].shared.size)
            & (offsets[lanes] % size == 0)
        )
        if not good.all():
            _shared_fault(w, ins, address, size, m, True)
        out.append((ctas[rank], np.where(lanes, offsets, int(offsets[lanes][0])), lanes))
    return out


def load_shared(
    w: Any,
    ins: Instruction,
    address: np.ndarray,
    width: int,
    signed: bool,
    rows: tuple,
    m: np.ndarray | None,
    cluster: bool = False,
) -> None:
    """``ld.shared``."""
    address, m, first = _settle(address, m)
    if first == -1 and m is not None and not m.any():
        return
    size = width * len(rows)
    offsets = _shared_offsets(w, ins, address, size, m)
    if offsets is None:
        if not cluster:
            _shared_fault(w, ins, address, size, m, False)
        for cta, there, lanes in _remote(w, ins, address, size, m):
            _load_shared_at(w, ins, cta, there, width, signed, rows, lanes)
        return
    _load_shared_at(w, ins, w.cta, offsets, width, signed, rows, m)


def _load_shared_at(
    w: Any,
    ins: Instruction,
    cta: Any,
    offsets: np.ndarray,
    width: int,
    signed: bool,
    rows: tuple,
    m: np.ndarray | None,
) -> None:
    shared, machine = cta.shared, w.machine
    size = width * len(rows)
    index = offsets >> _SHIFT[width] if width > 1 else offsets
    view = shared.views[width]
    try:
        values = [view[index]] if len(rows) == 1 else [view[index + k] for k in range(len(rows))]
    except IndexError:
        _shared_fault(w, ins, offsets + ((cta.rank << RANK_SHIFT) + SHARED_BASE), size, m, True)
    good = shared.init_views[width]
    full = (1 << 8 * width) - 1 & 0x0101010101010101
    for k in range(len(rows)):
        if rows[k] is not None and not (good[index + k if k else index] == full).all():
            _poison(w, ins, cta, offsets, size, m)
            break
    if machine.hooks.wants_memory:
        machine.hooks.load(w, "shared", cta, offsets, size, m, ins)
    _bank_conflicts(w, ins, offsets, size, m)
    lanes = LANES if m is None else int(m.sum())
    machine.bytes_read["shared"] += size * lanes
    if signed:
        values = [v.view(_SIGNED[width]) for v in values]
    _scatter(rows, values, m)


def _poison(
    w: Any, ins: Instruction, cta: Any, offsets: np.ndarray, size: int, m: np.ndarray | None
) -> None:
    for lane in range(LANES):
        if m is not None and not m[lane]:
            continue
        at = int(offsets[lane])
        if not cta.shared.initialised[at : at + size].all():
            w.machine.finding(
                "uninitialised-read",
                f"`{ins.text}` reads shared memory at byte offset {at} of CTA "
                f"rank {cta.rank}, which was never written",
                ins=ins,
                warp=w,
                lanes=1 << lane,
            )
            return


def store_shared(
    w: Any,
    ins: Instruction,
    address: np.ndarray,
    width: int,
    rows: tuple,
    m: np.ndarray | None,
    cluster: bool = False,
) -> None:
    """``st.shared``."""
    address, m, first = _settle(address, m)
    if first == -1 and m is not None and not m.any():
        return
    size = width * len(rows)
    offsets = _shared_offsets(w, ins, address, size, m)
    if offsets is None:
        if not cluster:
            _shared_fault(w, ins, address, size, m, False)
        for cta, there, lanes in _remote(w, ins, address, size, m):
            _store_shared_at(w, ins, cta, there, width, rows, lanes)
        return
    _store_shared_at(w, ins, w.cta, offsets, width, rows, m)


def _store_shared_at(
    w: Any,
    ins: Instruction,
    cta: Any,
    offsets: np.ndarray,
    width: int,
    rows: tuple,
    m: np.ndarray | None,
) -> None:
    shared, machine = cta.shared, w.machine
    size = width * len(rows)
    if int(offsets.max()) + size > shared.size:
        _shared_fault(w, ins, offsets + ((cta.rank << RANK_SHIFT) + SHARED_BASE), size, m, True)
    index = offsets >> _SHIFT[width] if width > 1 else offsets
    if machine.hooks.wants_memory:
        machine.hooks.store(w, "shared", cta, offsets, size, m, ins)
    _bank_conflicts(w, ins, offsets, size, m)
    _write(shared.views[width], index, rows, m)
    good, full = shared.init_views[width], (1 << 8 * width) - 1 & 0x0101010101010101
    places = index if m is None else index[m]
    for k, row in enumerate(rows):
        if row is not None:
            good[places + k if k else places] = full
    lanes = LANES if m is None else int(m.sum())
    machine.bytes_written["shared"] += size * lanes
    machine.events += 1


def _bank_conflicts(
    w: Any, ins: Instruction, offsets: np.ndarray, size: int, m: np.ndarray | None
) -> None:
    """Count extra wavefronts; patterns are cached."""
    if m is not None:
        offsets = offsets[m]
    relative = (offsets - int(offsets[0])).astype(np.int32)
    key = (size, int(offsets[0]) & 127, relative.tobytes())
    extra = _conflict_cache.get(key)
    if extra is None:
        if len(_conflict_cache) > 20000:
            _conflict_cache.clear()
        extra = _conflict_cache[key] = conflicts(offsets, size)
    if extra:
        counts = w.machine.conflicts
        counts[ins] = counts.get(ins, 0) + extra


_conflict_cache: dict[tuple, int] = {}


def conflicts(offsets: np.ndarray, size: int) -> int:
    """Extra wavefronts of one shared access.

    Wide accesses go in groups of 128 bytes (8-byte: half warps, 16-byte: quarter warps). Within a
    group, every bank serves one distinct 32-bit word a wavefront.
    """
    lanes_at_once = {8: 16, 16: 8, 32: 4}.get(size, 32)
    extra = 0
    for start in range(0, offsets.size, lanes_at_once):
        part = offsets[start : start + lanes_at_once]
        words = np.unique((part[:, None] + np.arange(0, max(size, 1), 4)) >> 2)
        extra += int(np.bincount(words & 31).max()) - 1
    return extra


def load_cluster(
    w: Any,
    ins: Instruction,
    address: np.ndarray,
    width: int,
    signed: bool,
    rows: tuple,
    m: np.ndarray | None,
) -> None:
    """``ld.shared::cluster``."""
    load_shared(w, ins, address, width, signed, rows, m, True)


def store_cluster(
    w: Any, ins: Instruction, address: np.ndarray, width: int, rows: tuple, m: np.ndarray | None
) -> None:
    """``st.shared::cluster``."""
    store_shared(w, ins, address, width, rows, m, True)


def _local_index(
    w: Any, ins: Instruction, address: np.ndarray, width: int, size: int, m: np.ndarray | None
) -> np.ndarray:
    together = int(_or(address))
    if together & (size - 1):
        fault(ins, "misaligned", f"local address is not a multiple of {size}")
    if together < 0 or int(address.max()) + size > w.local.shape[1]:
        bad = int(address.max()) if together >= 0 else int(address.min())
        fault(ins, "out-of-bounds", f"local address {bad:#x} is outside the thread's local memory")
    return (LANE * w.local.shape[1] + address) >> _SHIFT[width]


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
    address, m, first = _settle(address, m)
    if first == -1 and m is not None and not m.any():
        return
    index = _local_index(w, ins, address, width, width * len(rows), m)
    view = w.local_views[width]
    values = [view[index + k] for k in range(len(rows))]
    if signed:
        values = [v.view(_SIGNED[width]) for v in values]
    _scatter(rows, values, m)


def store_local(
    w: Any, ins: Instruction, address: np.ndarray, width: int, rows: tuple, m: np.ndarray | None
) -> None:
    """``st.local``."""
    address, m, first = _settle(address, m)
    if first == -1 and m is not None and not m.any():
        return
    index = _local_index(w, ins, address, width, width * len(rows), m)
    _write(w.local_views[width], index, rows, m)


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
    address, m, first = _settle(address, m)
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
    address, m, first = _settle(address, m)
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
    data = w.machine.params
    for k, row in enumerate(rows):
        if row is None:
            continue
        at = offset + k * width
        value = data[at : at + width].view(_SIGNED[width] if signed else f"u{width}")[0]
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
    offsets, m, first = _settle(offsets, m)
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
            .view(_SIGNED[width] if signed else f"u{width}")
            .reshape(-1)
        )
        _scatter((row,), [value], m)


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
        value = part.view(_SIGNED[width] if signed else f"u{width}").reshape(-1)
        _scatter((row,), [value], m)


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
        region, offset = w.machine.memory.locate(place, 128)
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

    address, m, first = _settle(address, m)
    if first == -1 and m is not None and not m.any():
        return
    run_atomic(w, ins, space, op, kind, address, values, rows, m)
