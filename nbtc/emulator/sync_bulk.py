"""Bulk and tensor copies, reductions and their groups (PTX ISA 9.7.9.25 to 9.7.9.27)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from nbtc.layout.tensormap_description import SWIZZLES, TensorMapDescription

from .bulk_groups import GroupWait, bulk_groups
from .clocks import Access, Clock, happened
from .machine import PARAM_WINDOW, SHARED_BASE, WINDOW_SIZE, AsyncOp, MemoryFault, Wait, handler
from .mbarrier import CopyRecord, MBarrier
from .race import AT_CTA_EXIT, lane_bits, region_sync, related, where
from .sync_mbarrier import use_mbarrier
from .units import UnitFault, tma
from .units.reduce import reduce_bytes

if TYPE_CHECKING:
    from .machine import Cta, Instruction, Warp

__all__ = ["fault", "read_tensor_map", "shared_write", "tensor_map_of"]

_OPS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
_TYPES = ("f16", "bf16", "f32", "f64", "u32", "s32", "u64", "s64", "b32", "b64")


def fault(warp: Warp, ins: Instruction, error: UnitFault, lane: int = 0) -> None:
    """Turn a broken rule of a unit into a finding that ends the launch."""
    if error.kind == "unmodelled":
        ins.unmodelled(error.message)
    warp.machine.fatal(error.kind, error.message, ins=ins, warp=warp, lanes=1 << lane)


# -- what the checks note -------------------------------------------------------------------------


def shared_write(
    warp: Warp, ins: Instruction, cta: Cta, span: tuple[int, int], access: Access
) -> None:
    """Check and record an asynchronous write to ``span`` (byte offsets) of a CTA's memory."""
    launch = warp.machine.sync
    if not access.number:
        launch.table.add(access)
    if "race" in launch.checks:
        found = cta.sync.shadow.span(span[0], span[1], access, warp.sync.clock)
        if found:
            name = f"[{span[0]:#x}, {span[1]:#x}) of CTA rank {cta.rank} "
            warp.machine.hooks.conflicts(
                found, access, warp, ins, space="shared", target=cta, place_text=name
            )
    if not cta.sync.mbarrier_pages.isdisjoint(range(span[0] >> 8, ((span[1] - 1) >> 8) + 1)):
        for barrier in cta.sync.mbarriers.values():
            if barrier.live and span[0] < barrier.offset + 8 and barrier.offset < span[1]:
                warp.machine.finding(
                    "mbarrier_reinit",
                    f"{access.what} over {barrier.place_text}: a live mbarrier "
                    f"(init {where(barrier.init_ins)}) is there; inval first",
                    ins=ins, warp=warp, related=related("init", barrier.init_ins),
                    barrier=barrier.info(),
                )  # fmt: skip


def _shared_read(
    warp: Warp, ins: Instruction, cta: Cta, span: tuple[int, int], access: Access
) -> None:
    launch = warp.machine.sync
    if not access.number:
        launch.table.add(access)
    found = cta.sync.shadow.span(span[0], span[1], access, warp.sync.clock)
    if found:
        warp.machine.hooks.conflicts(
            found, access, warp, ins, space="shared", target=cta,
            place_text=f"[{span[0]:#x}, {span[1]:#x}) ",
        )  # fmt: skip


def _global_boxes(warp: Warp, ins: Instruction, region: Any, boxes: Any, access: Access) -> None:
    launch = warp.machine.sync
    if "race" not in launch.checks:
        return
    if not access.number:
        launch.table.add(access)
    shadow = region_sync(launch, region).shadow
    for address, rows, pitch, width in boxes:
        found = shadow.box(address - region.base, rows, pitch, width, access, warp.sync.clock)
        if found:
            warp.machine.hooks.conflicts(
                found, access, warp, ins, space="global", target=region,
                place_text=f"of {region.name} ",
            )  # fmt: skip


def _region(warp: Warp, low: int, high: int, *, write: bool) -> Any:
    region, _ = warp.global_region(low, high - low)
    if write and not region.writable:
        raise MemoryFault("out_of_bounds", f"write to {region.name}, which is read-only")
    return region


# -- tensor maps ----------------------------------------------------------------------------------


def tensor_map_of(data: bytes) -> TensorMapDescription:
    """Unpack the 128 bytes of a map; equal bytes give the same object."""
    found = _MAPS.get(data)
    if found is None:
        if len(_MAPS) > 256:
            _MAPS.clear()
        found = _MAPS[data] = TensorMapDescription.unpack(data)
    return found


_MAPS: dict[bytes, TensorMapDescription] = {}


def read_tensor_map(warp: Warp, ins: Instruction, operand: Any, lane: int) -> TensorMapDescription:
    """Read the tensor map that an instruction names, and check its acquire fence."""
    address = int(warp.address(operand)[lane])
    data = warp.read_generic(address, 128, lane).tobytes()
    if not PARAM_WINDOW <= address < PARAM_WINDOW + WINDOW_SIZE:
        _check_map_fence(warp, ins, address, lane)
    try:
        return tensor_map_of(data)
    except Exception as error:
        if isinstance(error, (TypeError, AttributeError, NameError)):
            raise
        warp.machine.fatal(
            "tma_descriptor", f"the 128 bytes at {address:#x} are not a tensor map: {error}",
            ins=ins, warp=warp, lanes=1 << lane,
        )  # fmt: skip
        raise


def _check_map_fence(warp: Warp, ins: Instruction, address: int, lane: int) -> None:
    machine = warp.machine
    region = machine.memory.find(address)
    if region is None or "tma" not in machine.sync.checks:
        return
    if region.name.startswith("const variable"):
        return
    clock = warp.sync.clock
    accesses = machine.sync.table.accesses
    writers: list[Access] = []
    if region.sync is not None:
        offset = address - region.base
        writers = [accesses[n] for n in region.sync.shadow.writers(offset, offset + 128) if n]
    fences = [
        fence
        for cta in warp.cta.cluster.ctas
        for fence in cta.sync.state.get("tensormap_fences", {}).get(address, ())
        if cta is warp.cta
    ]
    for agent, time, snapshot in fences:
        if clock.get(agent, 0) >= time and all(happened(w, snapshot) for w in writers):
            return
    machine.finding(
        "missing_tensormap_fence",
        f"tensor map at {address:#x} used through a pointer without fence_tensormap_acquire: "
        "descriptors in global memory go through the tensormap proxy; fence in every CTA before "
        "use, or pass the map by value",
        ins=ins, warp=warp, lanes=1 << lane,
        related=tuple(r for w in writers[:2] for r in related("written", w.place)),
    )  # fmt: skip


# -- destinations of loads ------------------------------------------------------------------------


class _Landing:
    """One destination CTA of a load: where it lands and what it signals."""

    __slots__ = ("access", "barrier", "clock", "copy", "cta", "offset")

    def __init__(self, cta: Cta, offset: int, barrier: MBarrier, access: Access,
                 copy: CopyRecord, clock: Clock) -> None:  # fmt: skip
        self.cta, self.offset, self.barrier = cta, offset, barrier
        self.access, self.copy, self.clock = access, copy, clock

    def signal(self, count: int) -> None:
        """Signal the bytes; the write is known complete with the phase that they count for."""
        self.access.time = self.barrier.phase + 1
        self.barrier.complete_tx(count, self.clock, self.copy)


def _landings(
    warp: Warp, ins: Instruction, lane: int, destination: Any, mbar: Any, count: int,
    mask: int | None, what: str,
) -> list[_Landing]:  # fmt: skip
    """Resolve destination and barrier of a load, for every CTA of a multicast mask."""
    cluster = warp.cta.cluster
    home, offset = warp.shared_offset(destination, 1, 1, lane=lane, cluster=True)
    bar_cta, bar_offset = warp.shared_offset(mbar, 8, 8, lane=lane, cluster=True)
    pair = "cta_group::2" in ins.mods
    if mask is None:
        pairs = [(home, bar_cta)]
        if bar_cta is not home and not (pair and bar_cta.rank ^ 1 == home.rank):
            warp.machine.fatal(
                "tma_descriptor",
                f"{what}: destination in CTA rank {home.rank}, mbarrier in rank {bar_cta.rank}; "
                "both must be in one CTA (cta_group::2: in its pair)",
                ins=ins, warp=warp, lanes=1 << lane,
            )  # fmt: skip
    else:
        pairs = []
        for rank in range(16):
            if not mask >> rank & 1:
                continue
            if rank >= len(cluster.ctas):
                warp.machine.fatal(
                    "out_of_bounds",
                    f"{what}: multicast mask {mask:#x} names CTA rank {rank} of a cluster with "
                    f"{len(cluster.ctas)} CTAs",
                    ins=ins, warp=warp, lanes=1 << lane,
                )  # fmt: skip
            target = cluster.ctas[rank]
            signal = cluster.ctas[(rank & ~1) | (bar_cta.rank & 1)] if pair else target
            pairs.append((target, signal))
    landings = []
    known = warp.sync.issued()
    for target, signal in pairs:
        if target.exited:
            warp.machine.fatal(
                "cta_exited",
                f"{what} of rank {warp.cta.rank} writes to rank {target.rank} after rank "
                f"{target.rank} exited; end with a cluster barrier (producer tail)",
                ins=ins, warp=warp, lanes=1 << lane,
            )  # fmt: skip
        barrier = use_mbarrier(
            warp, signal, bar_offset, ins, lanes=1 << lane, incoming=False
        )
        if offset + count > target.shared.size:
            raise MemoryFault(
                "out_of_bounds",
                f"{what} of {count} bytes at shared offset {offset}, but the CTA has "
                f"{target.shared.size} bytes",
            )
        access = Access(
            barrier.agent, None, write=True, is_async=True, warp=warp, lanes=1 << lane,
            place=ins, what=what, channel=barrier,
        )  # fmt: skip
        copy = access.copy = CopyRecord(ins, warp, count, barrier.phase)
        barrier.copies.append(copy)
        target.sync.state.setdefault("copies", {})[barrier, id(ins)] = access
        landings.append(_Landing(target, offset, barrier, access, copy, known))
    return landings


class LoadCopy(AsyncOp):
    """A copy into shared memory that signals mbarriers."""

    def __init__(self, warp: Warp, ins: Instruction, landings: list[_Landing], count: int,
                 read: Any, write: Any) -> None:  # fmt: skip
        """Store how to read the data and how to write it into one CTA."""
        self.cta, self.warp, self.ins = warp.cta, warp, ins
        self.landings, self.count, self._read, self._write = landings, count, read, write

    def complete(self) -> None:
        """Copy and signal."""
        data = self._read()
        for landing in self.landings:
            self._write(data, landing)
        for landing in self.landings:
            landing.signal(self.count)

    def describe(self) -> str:
        """Name the copy and its barrier."""
        names = ", ".join(landing.barrier.name for landing in self.landings)
        return f"copy of {self.count} bytes at {where(self.ins)} that signals {names}"


def _multicast_mask(warp: Warp, ins: Instruction, rest: list[Any], lane: int) -> int | None:
    if "multicast::cluster" not in ins.mods:
        return None
    return int(warp.read(rest.pop(0), np.uint16)[lane])


def _plan(warp: Warp, ins: Instruction, lane: int, operand: Any, shared_address: int,
          offsets: list[int], *, store: bool) -> tma.Plan:  # fmt: skip
    """Read the map and the coordinates and plan the copy."""
    description = read_tensor_map(warp, ins, operand, lane)
    coordinates = [_signed(warp, item, lane) for item in operand.coords.items]
    try:
        if any(part in ins.mods for part in ("tile::gather4", "tile::scatter4")):
            return tma.plan_gather4(description, coordinates, shared_address, store=store)
        if any(part.startswith("im2col") for part in ins.parts):
            function = getattr(tma, "plan_im2col", None)
            if function is None:
                ins.unmodelled("im2col tensor copies")
            return function(description, coordinates, offsets, shared_address, store=store)
        return tma.plan(description, coordinates, shared_address, store=store)
    except UnitFault as error:
        fault(warp, ins, error, lane)
        raise


def _signed(warp: Warp, operand: Any, lane: int) -> int:
    value = getattr(operand, "value", None)
    if value is not None:
        return int(value)
    return int(warp.read(operand, np.uint32).view(np.int32)[lane])


def _check_swizzle(warp: Warp, ins: Instruction, plan: tma.Plan, cta: Cta, lane: int) -> None:
    mode = plan.description.swizzle
    if "tma" not in warp.machine.sync.checks:
        return
    advice = plan.swizzle_advice()
    if advice:
        whole = plan.shared_bytes >= tma.repeat(mode)
        warp.machine.finding(
            "tma_swizzle_base", advice, ins=ins, warp=warp, lanes=1 << lane,
            severity="finding" if whole else "advice",
        )  # fmt: skip
    pages = cta.sync.state.get("swizzle")
    if pages is None:
        pages = cta.sync.state["swizzle"] = np.full(len(cta.sync.shadow.page_writer), -1, np.int8)
        cta.sync.state["swizzle_ins"] = {}
    low = plan.shared_low - SHARED_BASE
    code = SWIZZLES.index(mode) if mode in SWIZZLES else len(SWIZZLES)
    pages[low >> 8 : (low + plan.shared_bytes + 255) >> 8] = code
    cta.sync.state["swizzle_ins"][code] = ins


def _write_plan(plan: tma.Plan, data: np.ndarray, landing: _Landing) -> None:
    memory = landing.cta.shared
    plan.write_shared(data, memory.data, SHARED_BASE)
    low, high = plan.shared_low - SHARED_BASE, plan.shared_high - SHARED_BASE
    memory.initialised[low:high] = 1
    _count_bytes(landing.cta.machine.report.bytes_written, "shared", plan.shared_bytes)


def _count_bytes(table: dict[str, int], space: str, count: int) -> None:
    table[space] = table.get(space, 0) + count


def _read_plan(plan: tma.Plan, region: Any) -> np.ndarray:
    if region is None:
        return plan.read_global(np.zeros(0, np.uint8), 0)
    return plan.read_global(region.data, region.base)


def _tensor_load(warp: Warp, ins: Instruction, lane: int) -> None:
    destination, source, mbar, *rest = ins.operands
    offsets: list[int] = []
    if any(part.startswith("im2col") for part in ins.parts) and rest:
        offsets = [int(warp.read(item, np.uint16)[lane]) for item in rest.pop(0).items]
    mask = _multicast_mask(warp, ins, rest, lane)
    _home, offset = warp.shared_offset(destination, 1, 1, lane=lane, cluster=True)
    plan = _plan(warp, ins, lane, source, SHARED_BASE + offset, offsets, store=False)
    region = None
    if plan.global_high > plan.global_low:
        region = _region(warp, plan.global_low, plan.global_high, write=False)
    what = "multicast TMA copy" if mask is not None else "TMA copy"
    landings = _landings(warp, ins, lane, destination, mbar, plan.transaction_bytes, mask, what)
    for landing in landings:
        span = (plan.shared_low - SHARED_BASE, plan.shared_high - SHARED_BASE)
        if span[0] < 0 or span[1] > landing.cta.shared.size:
            raise MemoryFault(
                "out_of_bounds", f"{what} of {plan.shared_bytes} bytes leaves shared memory"
            )
        shared_write(warp, ins, landing.cta, span, landing.access)
        _check_swizzle(warp, ins, plan, landing.cta, lane)
    boxes = plan.global_boxes
    inside = sum(rows * width for _, rows, _, width in boxes)
    for landing in landings:
        landing.copy.valid = inside
    if region is not None:
        access = Access(
            landings[0].barrier.agent, None, write=False, is_async=True, warp=warp,
            lanes=1 << lane, place=ins, what=what, channel=landings[0].barrier,
        )  # fmt: skip
        _global_boxes(warp, ins, region, boxes, access)
        read = partial(_read_noting, plan, region, access, landings[0])
        _count_bytes(warp.machine.report.bytes_read, "global", plan.transaction_bytes)
    else:
        read = partial(_read_plan, plan, None)
    warp.machine.enqueue(
        LoadCopy(warp, ins, landings, plan.transaction_bytes, read, partial(_write_plan, plan))
    )


def _read_noting(plan: tma.Plan, region: Any, access: Access, landing: _Landing) -> np.ndarray:
    access.time = landing.barrier.phase + 1
    return _read_plan(plan, region)


# -- stores ---------------------------------------------------------------------------------------


class StoreCopy(AsyncOp):
    """A copy out of shared memory that completes by bulk groups: a read, then a write stage."""

    def __init__(self, warp: Warp, ins: Instruction, groups: Any, read: Any, write: Any) -> None:
        """Store both stages."""
        self.cta, self.warp, self.ins, self.groups = warp.cta, warp, ins, groups
        self.group = groups.current
        self._read, self._write = read, write
        self.read = self.done = False
        self._data: Any = None

    def complete(self) -> None:
        """Read the source; the write follows as an operation of its own."""
        if not self.read:
            self._data = self._read()
            self.read = True
            self.cta.machine.touch_event()
            self.cta.machine.enqueue(self)
            return
        self._write(self._data)
        self._data = None
        self.done = True
        self.cta.machine.touch_event()

    def ready(self) -> bool:
        """Writes of a later group wait for the groups before."""
        return not self.read or self.groups.finished(self.group - 1, read=False)

    def describe(self) -> str:
        """Name the copy."""
        return f"bulk store at {where(self.ins)}"


def _store_accesses(warp: Warp, ins: Instruction, lane: int, what: str) -> tuple[Any, Any, Any]:
    groups = bulk_groups(warp, lane)
    common: dict[str, Any] = {
        "is_async": True, "warp": warp, "lanes": 1 << lane, "place": ins, "what": what,
        "channel": groups,
    }  # fmt: skip
    read = Access(groups.read_agent, groups.current, write=False, **common)
    write = Access(groups.write_agent, groups.current, write=True, **common)
    groups.last_store = read
    return groups, read, write


def _tensor_store(warp: Warp, ins: Instruction, lane: int) -> None:
    target, source = ins.operands[0], ins.operands[1]
    reduce_op = next((p for p in ins.parts if p in _OPS), None) if "reduce" in ins.mods else None
    _, offset = warp.shared_offset(source, 1, 1, lane=lane)
    plan = _plan(warp, ins, lane, target, SHARED_BASE + offset, [], store=True)
    span = (plan.shared_low - SHARED_BASE, plan.shared_high - SHARED_BASE)
    if span[0] < 0 or span[1] > warp.cta.shared.size:
        raise MemoryFault(
            "out_of_bounds", f"TMA store of {plan.shared_bytes} bytes leaves shared memory"
        )
    groups, read, write = _store_accesses(
        warp, ins, lane, "TMA reduction" if reduce_op else "TMA store"
    )
    write.strong = reduce_op is not None
    if "race" in warp.machine.sync.checks:
        _shared_read(warp, ins, warp.cta, span, read)
    region = None
    if plan.global_high > plan.global_low:
        region = _region(warp, plan.global_low, plan.global_high, write=True)
        _global_boxes(warp, ins, region, plan.global_boxes, write)
        _count_bytes(warp.machine.report.bytes_written, "global", plan.transaction_bytes)
    _count_bytes(warp.machine.report.bytes_read, "shared", plan.shared_bytes)

    def finish(data: np.ndarray) -> None:
        if region is None:
            return
        if reduce_op:
            plan.reduce_global(data, region.data, region.base, reduce_op)
        else:
            plan.write_global(data, region.data, region.base)

    def start() -> np.ndarray:
        return plan.read_shared(warp.cta.shared.data, SHARED_BASE)

    op = StoreCopy(warp, ins, groups, start, finish)
    groups.add(op)
    warp.machine.enqueue(op)


# -- bulk copies without a map --------------------------------------------------------------------


def _check_bulk(warp: Warp, ins: Instruction, lane: int, count: int, *places: int) -> None:
    for place in places:
        if place % 16:
            warp.machine.fatal(
                "tma_alignment",
                f"bulk copy address {place:#x} is {place % 16} mod 16; source and destination "
                "must be multiples of 16",
                ins=ins, warp=warp, lanes=1 << lane,
            )  # fmt: skip
    if count % 16 or count == 0:
        warp.machine.fatal(
            "tma_alignment", f"bulk copy of {count} bytes: the size must be a multiple of 16",
            ins=ins, warp=warp, lanes=1 << lane,
        )  # fmt: skip


def _reduction(ins: Instruction) -> tuple[str, str] | None:
    if "reduce" not in ins.mods:
        return None
    return (next(p for p in ins.parts if p in _OPS), next(p for p in ins.parts if p in _TYPES))


def _bulk_load(warp: Warp, ins: Instruction, lane: int) -> None:
    destination, source, size, mbar, *rest = ins.operands
    count = int(warp.read(size, np.uint32)[lane])
    mask = _multicast_mask(warp, ins, rest, lane)
    _, offset = warp.shared_offset(destination, 1, 1, lane=lane, cluster=True)
    address = int(warp.address(source)[lane])
    _check_bulk(warp, ins, lane, count, address, offset)
    region = _region(warp, address, address + count, write=False)
    landings = _landings(warp, ins, lane, destination, mbar, count, mask, "bulk copy")
    for landing in landings:
        shared_write(warp, ins, landing.cta, (offset, offset + count), landing.access)
    access = Access(
        landings[0].barrier.agent, None, write=False, is_async=True, warp=warp, lanes=1 << lane,
        place=ins, what="bulk copy", channel=landings[0].barrier,
    )  # fmt: skip
    _global_boxes(warp, ins, region, [(address, 1, count, count)], access)
    start = address - region.base

    def read() -> np.ndarray:
        access.time = landings[0].barrier.phase + 1
        return region.data[start : start + count].copy()

    def write(data: np.ndarray, landing: _Landing) -> None:
        landing.cta.shared.write(landing.offset, data)

    _count_bytes(warp.machine.report.bytes_read, "global", count)
    warp.machine.enqueue(LoadCopy(warp, ins, landings, count, read, write))


def _bulk_store(warp: Warp, ins: Instruction, lane: int) -> None:
    target, source, size, *rest = ins.operands
    count = int(warp.read(size, np.uint32)[lane])
    _, offset = warp.shared_offset(source, count, 1, lane=lane)
    address = int(warp.address(target)[lane])
    _check_bulk(warp, ins, lane, count, address, offset)
    keep = None
    if "cp_mask" in ins.mods:
        bits = int(warp.read(rest[-1], np.uint16)[lane])
        keep = np.array([bits >> i & 1 for i in range(16)], bool)
    reduction = _reduction(ins)
    region = _region(warp, address, address + count, write=True)
    groups, read, write = _store_accesses(
        warp, ins, lane, "bulk reduction" if reduction else "bulk store"
    )
    write.strong = reduction is not None
    if "race" in warp.machine.sync.checks:
        _shared_read(warp, ins, warp.cta, (offset, offset + count), read)
    _global_boxes(warp, ins, region, [(address, 1, count, count)], write)
    start = address - region.base

    def begin() -> np.ndarray:
        return warp.cta.shared.data[offset : offset + count].copy()

    def finish(data: np.ndarray) -> None:
        place = region.data[start : start + count]
        if reduction:
            data = reduce_bytes(place.copy(), data, *reduction)
        if keep is not None:
            np.copyto(place.reshape(-1, 16), data.reshape(-1, 16), where=keep)
        else:
            place[...] = data

    _count_bytes(warp.machine.report.bytes_written, "global", count)
    op = StoreCopy(warp, ins, groups, begin, finish)
    groups.add(op)
    warp.machine.enqueue(op)


def _bulk_peer(warp: Warp, ins: Instruction, lane: int) -> None:
    """Copy or reduce from this CTA's shared memory into that of another CTA of the cluster."""
    destination, source, size, mbar, *_ = ins.operands
    count = int(warp.read(size, np.uint32)[lane])
    _, start = warp.shared_offset(source, count, 1, lane=lane)
    home, offset = warp.shared_offset(destination, count, 1, lane=lane, cluster=True)
    _check_bulk(warp, ins, lane, count, start, offset)
    reduction = _reduction(ins)
    what = "cluster bulk reduction" if reduction else "cluster bulk copy"
    landings = _landings(warp, ins, lane, destination, mbar, count, None, what)
    landing = landings[0]
    landing.access.strong = reduction is not None
    read_access = Access(
        landing.barrier.agent, None, write=False, is_async=True, warp=warp, lanes=1 << lane,
        place=ins, what=what, channel=landing.barrier,
    )  # fmt: skip
    if "race" in warp.machine.sync.checks:
        _shared_read(warp, ins, warp.cta, (start, start + count), read_access)
    shared_write(warp, ins, home, (offset, offset + count), landing.access)

    def read() -> np.ndarray:
        read_access.time = landing.barrier.phase + 1
        return warp.cta.shared.data[start : start + count].copy()

    def write(data: np.ndarray, place: _Landing) -> None:
        if reduction:
            old = place.cta.shared.read(place.offset, count).copy()
            data = reduce_bytes(old, data, *reduction)
        place.cta.shared.write(place.offset, data)

    warp.machine.enqueue(LoadCopy(warp, ins, landings, count, read, write))


# -- handlers -------------------------------------------------------------------------------------


def _per_lane(warp: Warp, ins: Instruction, function: Any) -> None:
    for lane in np.flatnonzero(warp.active).tolist():
        function(warp, ins, lane)


@handler("cp.async.bulk", "cp.reduce.async.bulk")
def bulk_copy(warp: Warp, ins: Instruction) -> None:
    """Bulk copies and reductions, with and without a tensor map; one copy per active lane."""
    spaces = [p for p in ins.parts if p in ("shared::cluster", "shared::cta", "global")]
    tensor = "tensor" in ins.mods
    if spaces[:1] == ["global"]:
        _per_lane(warp, ins, _tensor_store if tensor else _bulk_store)
    elif tensor:
        _per_lane(warp, ins, _tensor_load)
    elif spaces[1:2] == ["shared::cta"]:
        _per_lane(warp, ins, _bulk_peer)
    else:
        _per_lane(warp, ins, _bulk_load)


@handler("cp.async.bulk.prefetch", "prefetch", "prefetchu", "applypriority")
def prefetch(warp: Warp, ins: Instruction) -> None:
    """Hints: nothing to do."""


@handler("cp.async.bulk.commit_group")
def commit_group(warp: Warp, ins: Instruction) -> None:
    """Close the bulk group of every active thread."""
    for lane in np.flatnonzero(warp.active).tolist():
        groups = warp.sync.groups.get(lane)
        if groups is not None:
            groups.commit()


@handler("cp.async.bulk.wait_group")
def wait_group(warp: Warp, ins: Instruction) -> Wait | None:
    """Wait until at most N newest groups are pending."""
    left = warp.scalar(ins.operands[0])
    targets = []
    for lane in np.flatnonzero(warp.active).tolist():
        groups = warp.sync.groups.get(lane)
        if groups is not None and groups.committed > left:
            targets.append((groups, groups.committed - left))
    wait = GroupWait(warp, ins, targets, read="read" in ins.mods)
    if wait.ready():
        wait.resume(warp)
        return None
    return wait


@handler("tensormap.replace")
def tensormap_replace(warp: Warp, ins: Instruction) -> None:
    """Change one field of a map in shared or global memory."""
    field = next(p for p in ins.parts[2:] if p not in ("tile", "global", "shared::cta"))
    for lane in np.flatnonzero(warp.active).tolist():
        address = int(warp.address(ins.operands[0])[lane])
        ordinal = warp.scalar(ins.operands[1]) if len(ins.operands) > 2 else 0
        value = int(warp.read(ins.operands[-1])[lane])
        place = _map_bytes(warp, ins, address, lane)
        data = place.tobytes()
        place[...] = np.frombuffer(
            TensorMapDescription.replace_field(data, field, value, ordinal), np.uint8
        )
        _note_map_write(warp, ins, address, lane)


def _map_bytes(warp: Warp, ins: Instruction, address: int, lane: int) -> np.ndarray:
    if "shared::cta" in ins.mods or address < 1 << 32:
        cta, offset = warp.cta.cluster.locate_shared(address & 0xFFFFFFFF, 128, 8)
        cta.shared.initialised[offset : offset + 128] = 1
        return cta.shared.data[offset : offset + 128]
    region, offset = warp.global_region(address, 128)
    return region.data[offset : offset + 128]


def _note_map_write(warp: Warp, ins: Instruction, address: int, lane: int) -> None:
    shared = "shared::cta" in ins.mods or address < 1 << 32
    sync = warp.sync
    fences = sync.shared_fences if shared else sync.global_fences
    access = sync.access(warp, ins, 1 << lane, write=True, strong=False, fences=fences)
    if shared:
        cta, offset = warp.cta.cluster.locate_shared(address & 0xFFFFFFFF, 128, 8)
        cta.sync.shadow.span(offset, offset + 128, access, sync.clock)
    else:
        region, offset = warp.global_region(address, 128)
        state = region_sync(warp.machine.sync, region)
        found = state.shadow.span(offset, offset + 128, access, sync.clock)
        if found:
            warp.machine.hooks.conflicts(found, access, warp, ins, space="global", target=region)


@handler("tensormap.cp_fenceproxy")
def tensormap_copy(warp: Warp, ins: Instruction) -> None:
    """Copy a map from shared to global memory and release it to the tensormap proxy."""
    lane = warp.lane
    target = int(warp.address(ins.operands[0])[lane])
    source, start = warp.shared_offset(ins.operands[1], 128, 16, lane=lane)
    region, offset = warp.global_region(target, 128)
    sync = warp.sync
    read = sync.access(warp, ins, lane_bits(warp.active), write=False, strong=False, fences=None)
    found = source.sync.shadow.span(start, start + 128, read, sync.clock)
    if found:
        warp.machine.hooks.conflicts(found, read, warp, ins, space="shared", target=source)
    region.data[offset : offset + 128] = source.shared.read(start, 128)
    _note_map_write(warp, ins, target, lane)
    sync.fence(acquire=False)


def _exit(cta: Cta) -> None:
    """A CTA must not exit while its bulk stores may still read its shared memory."""
    if "tma" not in cta.machine.sync.checks:
        return
    for warp in cta.warps:
        for groups in warp.sync.groups.values():
            last = groups.last_store
            if last is not None and not any(happened(last, w.sync.clock) for w in cta.warps):
                cta.machine.finding(
                    "bulk_incomplete",
                    f"CTA exits while the {last.what} at {where(last.place)} may still read its "
                    f"shared memory: {groups.explain(last, warp)}",
                    ins=last.place, warp=warp, cta=cta,
                )  # fmt: skip


AT_CTA_EXIT.append(_exit)
