"""Bulk and tensor copies, reductions and their groups (PTX ISA 9.7.9.25 to 9.7.9.27)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .box_advice import check_box
from .bulk_copies import (
    Landing,
    LoadCopy,
    StoreCopy,
    count_bytes,
    fault,
    find_region,
    global_boxes,
    make_landings,
    multicast_mask,
    shared_read,
    shared_write,
    store_accesses,
)
from .bulk_groups import GroupWait
from .clocks import Access, happened
from .handlers import handler
from .machine import SHARED_BASE, MemoryFault, Wait
from .race import AT_CTA_EXIT, where
from .sync_tensormap import read_tensor_map
from .units import UnitFault, tma
from .units.reduce import reduce_bytes

if TYPE_CHECKING:
    from .machine import Cta, Instruction, Warp

_OPS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
_TYPES = ("f16", "bf16", "f32", "f64", "u32", "s32", "u64", "s64", "b32", "b64")


# -- tensor copies --------------------------------------------------------------------------------


def _plan(warp: Warp, ins: Instruction, lane: int, operand: Any, shared_address: int,
          offsets: list[int], *, store: bool) -> tma.Plan:  # fmt: skip
    """Read the map and the coordinates and plan the copy."""
    description = read_tensor_map(warp, ins, operand, lane)
    coordinates = _coordinates(warp, operand, lane)
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


def _coordinates(warp: Warp, operand: Any, lane: int) -> list[int]:
    return [_signed(warp, item, lane) for item in operand.coords.items]


def _signed(warp: Warp, operand: Any, lane: int) -> int:
    value = getattr(operand, "value", None)
    if value is not None:
        return int(value)
    return int(warp.read(operand, np.uint32).view(np.int32)[lane])


def _check_base(warp: Warp, ins: Instruction, plan: tma.Plan, lane: int) -> None:
    if "tma" not in warp.machine.sync.checks:
        return
    advice = plan.swizzle_advice()
    if advice:
        whole = plan.shared_bytes >= tma.repeat(plan.description.swizzle)
        warp.machine.finding(
            "tma_swizzle_base", advice, ins=ins, warp=warp, lanes=1 << lane,
            severity="finding" if whole else "advice",
        )  # fmt: skip


def _write_plan(plan: tma.Plan, data: np.ndarray, landing: Landing) -> None:
    memory = landing.cta.shared
    plan.write_shared(data, memory.data, SHARED_BASE)
    low, high = plan.shared_low - SHARED_BASE, plan.shared_high - SHARED_BASE
    memory.initialised[low:high] = 1
    count_bytes(landing.cta.machine.report.bytes_written, "shared", plan.shared_bytes)


def _read_plan(plan: tma.Plan, region: Any) -> np.ndarray:
    if region is None:
        return plan.read_global(np.zeros(0, np.uint8), 0)
    return plan.read_global(region.data, region.base)


def _tensor_load(warp: Warp, ins: Instruction, lane: int) -> None:
    rest: list[Any]
    destination, source, mbar, *rest = ins.operands
    offsets: list[int] = []
    if any(part.startswith("im2col") for part in ins.parts) and rest:
        offsets = [int(warp.read(item, np.uint16)[lane]) for item in rest.pop(0).items]
    mask = multicast_mask(warp, ins, rest, lane)
    _home, offset = warp.shared_offset(destination, 1, 1, lane=lane, cluster=True)
    plan = _plan(warp, ins, lane, source, SHARED_BASE + offset, offsets, store=False)
    region = None
    if plan.global_high > plan.global_low:
        region = find_region(warp, plan.global_low, plan.global_high, write=False)
    what = "multicast TMA copy" if mask is not None else "TMA copy"
    landings = make_landings(warp, ins, lane, destination, mbar, plan.transaction_bytes, mask, what)
    for landing in landings:
        span = (plan.shared_low - SHARED_BASE, plan.shared_high - SHARED_BASE)
        if span[0] < 0 or span[1] > landing.cta.shared.size:
            raise MemoryFault(
                "out_of_bounds", f"{what} of {plan.shared_bytes} bytes leaves shared memory"
            )
        shared_write(warp, ins, landing.cta, span, landing.access)
        landing.copy.filled = plan.description
    _check_base(warp, ins, plan, lane)
    check_box(warp, ins, plan, _coordinates(warp, source, lane), lane, store=False)
    boxes = plan.global_boxes
    inside = sum(rows * width for _, rows, _, width in boxes)
    for landing in landings:
        landing.copy.valid = inside
    if region is not None:
        access = Access(
            landings[0].barrier.agent, None, write=False, is_async=True, warp=warp,
            lanes=1 << lane, place=ins, what=what, channel=landings[0].barrier,
        )  # fmt: skip
        global_boxes(warp, ins, region, boxes, access)
        read = partial(_read_noting, plan, region, access, landings[0])
        count_bytes(warp.machine.report.bytes_read, "global", plan.transaction_bytes)
    else:
        read = partial(_read_plan, plan, None)
    warp.machine.enqueue(
        LoadCopy(warp, ins, landings, plan.transaction_bytes, read, partial(_write_plan, plan))
    )


def _read_noting(plan: tma.Plan, region: Any, access: Access, landing: Landing) -> np.ndarray:
    access.time = landing.barrier.phase + 1
    return _read_plan(plan, region)


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
    check_box(warp, ins, plan, _coordinates(warp, target, lane), lane, store=True)
    groups, read, write = store_accesses(
        warp, ins, lane, "TMA reduction" if reduce_op else "TMA store"
    )
    write.strong = reduce_op is not None
    spill = plan.spill_advice() if "tma" in warp.machine.sync.checks else None
    if spill:
        warp.machine.finding(
            "tma_store_spill", spill, ins=ins, warp=warp, lanes=1 << lane, severity="advice"
        )
    boxes = plan.global_boxes
    inside = sum(rows * width for _, rows, _, width in boxes)
    if "race" in warp.machine.sync.checks:
        shared_read(warp, ins, warp.cta, span, read, clipped=inside < plan.transaction_bytes)
    region = None
    if plan.global_high > plan.global_low:
        region = find_region(warp, plan.global_low, plan.global_high, write=True)
        global_boxes(warp, ins, region, boxes, write)
        count_bytes(warp.machine.report.bytes_written, "global", plan.transaction_bytes)
    count_bytes(warp.machine.report.bytes_read, "shared", plan.shared_bytes)

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


# -- bulk copies without a map ---------------------------------------------------------------------


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
    mask = multicast_mask(warp, ins, rest, lane)
    _, offset = warp.shared_offset(destination, 1, 1, lane=lane, cluster=True)
    address = int(warp.address(source)[lane])
    _check_bulk(warp, ins, lane, count, address, offset)
    region = find_region(warp, address, address + count, write=False)
    landings = make_landings(warp, ins, lane, destination, mbar, count, mask, "bulk copy")
    for landing in landings:
        shared_write(warp, ins, landing.cta, (offset, offset + count), landing.access)
    access = Access(
        landings[0].barrier.agent, None, write=False, is_async=True, warp=warp, lanes=1 << lane,
        place=ins, what="bulk copy", channel=landings[0].barrier,
    )  # fmt: skip
    global_boxes(warp, ins, region, [(address, 1, count, count)], access)
    start = address - region.base

    def read() -> np.ndarray:
        access.time = landings[0].barrier.phase + 1
        return region.data[start : start + count].copy()

    def write(data: np.ndarray, landing: Landing) -> None:
        landing.cta.shared.write(landing.offset, data)

    count_bytes(warp.machine.report.bytes_read, "global", count)
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
    region = find_region(warp, address, address + count, write=True)
    groups, read, write = store_accesses(
        warp, ins, lane, "bulk reduction" if reduction else "bulk store"
    )
    write.strong = reduction is not None
    if "race" in warp.machine.sync.checks:
        shared_read(warp, ins, warp.cta, (offset, offset + count), read)
    global_boxes(warp, ins, region, [(address, 1, count, count)], write)
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

    count_bytes(warp.machine.report.bytes_written, "global", count)
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
    landings = make_landings(warp, ins, lane, destination, mbar, count, None, what)
    landing = landings[0]
    landing.access.strong = reduction is not None
    read_access = Access(
        landing.barrier.agent, None, write=False, is_async=True, warp=warp, lanes=1 << lane,
        place=ins, what=what, channel=landing.barrier,
    )  # fmt: skip
    if "race" in warp.machine.sync.checks:
        shared_read(warp, ins, warp.cta, (start, start + count), read_access)
        copies = warp.cta.sync.state.setdefault("copies", {})
        copies[landing.barrier, id(ins), "source"] = read_access
    shared_write(warp, ins, home, (offset, offset + count), landing.access)

    def read() -> np.ndarray:
        read_access.time = landing.barrier.phase + 1
        return warp.cta.shared.data[start : start + count].copy()

    def write(data: np.ndarray, place: Landing) -> None:
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
