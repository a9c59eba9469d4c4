"""Run-time side of shared-memory loads and stores: windows, bounds, poison, bank conflicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from .machine import LANE, LANES, RANK_SHIFT, SHARED_BASE, MemoryFault
from .shared_names import address_text
from .waiters import early_wait

if TYPE_CHECKING:
    from .program import Instruction

_NONE = bytes(LANES)
_ALL = b"\1" * LANES
SHIFT = {1: 0, 2: 1, 4: 2, 8: 3}
SIGNED = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
_or = np.bitwise_or.reduce


def fault(ins: Instruction, kind: str, message: str) -> NoReturn:
    """Raise a memory fault at an instruction."""
    error = MemoryFault(kind, f"`{ins.text}`: {message}")
    error.ins = ins  # type: ignore[attr-defined]
    raise error


def settle(address: np.ndarray, m: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None, int]:
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


def scatter(rows: tuple, values: list[np.ndarray], m: np.ndarray | None) -> None:
    """Write loaded values into register rows."""
    for row, value in zip(rows, values, strict=True):
        if row is None:
            continue
        if m is None:
            row[:] = value
        else:
            np.copyto(row, value, where=m)


def write_lanes(view: np.ndarray, index: np.ndarray, rows: tuple, m: np.ndarray | None) -> None:
    """Write register rows to memory elements."""
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
            f"{int(address[lane]):#x}, {address_text(w.machine, int(offsets[lane]))}, "
            f"is not a multiple of {size}",
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


def remote(w: Any, ins: Instruction, address: np.ndarray, size: int, m: np.ndarray | None) -> list:
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
    address, m, first = settle(address, m)
    if first == -1 and m is not None and not m.any():
        return
    size = width * len(rows)
    offsets = _shared_offsets(w, ins, address, size, m)
    if offsets is None:
        if not cluster:
            _shared_fault(w, ins, address, size, m, False)
        for cta, there, lanes in remote(w, ins, address, size, m):
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
    index = offsets >> SHIFT[width] if width > 1 else offsets
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
        values = [v.view(SIGNED[width]) for v in values]
    scatter(rows, values, m)


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
                f"`{ins.text}` reads shared memory at "
                f"{address_text(w.machine, at)} of CTA rank {cta.rank}, which was never written"
                f"{early_wait(w)}",
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
    address, m, first = settle(address, m)
    if first == -1 and m is not None and not m.any():
        return
    size = width * len(rows)
    offsets = _shared_offsets(w, ins, address, size, m)
    if offsets is None:
        if not cluster:
            _shared_fault(w, ins, address, size, m, False)
        for cta, there, lanes in remote(w, ins, address, size, m):
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
    index = offsets >> SHIFT[width] if width > 1 else offsets
    if machine.hooks.wants_memory:
        machine.hooks.store(w, "shared", cta, offsets, size, m, ins)
    _bank_conflicts(w, ins, offsets, size, m)
    write_lanes(shared.views[width], index, rows, m)
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


def zero_shared(
    w: Any,
    ins: Instruction,
    address: np.ndarray,
    sizes: np.ndarray,
    generic: bool,
    m: np.ndarray | None,
) -> None:
    """``st.bulk``: every lane zeroes a range of its CTA's shared memory."""
    for lane in range(LANES):
        if m is not None and not m[lane]:
            continue
        size = int(sizes[lane])
        start = int(address[lane])
        if size % 8:
            fault(ins, "misaligned", f"size {size} is not a multiple of 8")
        if generic:
            start &= 0xFFFFFFFF
        try:
            cta, at = w.locate_shared(start, max(size, 1), 8)
        except MemoryFault as error:
            fault(ins, error.kind, error.message)
        if w.machine.hooks.wants_memory:
            for low in range(at, at + size, 256):
                offsets = low + 8 * LANE
                inside = offsets < at + size
                w.machine.hooks.store(w, "shared", cta, offsets, 8, inside, ins)
        cta.shared.write(at, np.zeros(size, np.uint8))
        w.machine.bytes_written["shared"] += size
    w.machine.events += 1
