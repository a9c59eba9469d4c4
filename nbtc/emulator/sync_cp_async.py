"""cp.async, its groups and its mbarrier arrival (PTX ISA 9.7.9.24)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .clocks import Access, FenceLog
from .handlers import handler
from .machine import AsyncOp, Wait
from .race import lane_bits, region_sync, where
from .sync_mbarrier import _targets, use_mbarrier

if TYPE_CHECKING:
    from .machine import Instruction, Warp

__all__ = ["CpAsyncState", "cp_state"]


class CpAsyncState:
    """cp.async operations of one warp.

    Times of ``agent``: operation ``n`` completes at ``2 n``; a proxy fence after it adds one.
    """

    name = "cp.async groups"

    def __init__(self, warp: Warp) -> None:
        """Start with no operation."""
        self.agent = warp.machine.sync.agents.new(
            f"cp.async of CTA {warp.cta.ctaid} warp {warp.index}"
        )
        self.count = 0
        self.open: list[Any] = []
        self.groups: list[tuple[int, list[Any]]] = []
        self.fences = FenceLog()

    def fence(self, warp: Warp, lanes: int) -> None:
        """Note a proxy fence: it covers the operations that the warp knows to be done."""
        clock = warp.sync.clock
        known = clock.get(self.agent, 0) | 1
        clock[self.agent] = known
        self.fences.add(known, lanes)

    def commit(self, lanes: int) -> None:
        """Close the open group of the lanes."""
        self.groups.append((lanes, [op for op in self.open if op.lanes & lanes]))
        self.open = [op for op in self.open if op.lanes & ~lanes]
        if len(self.groups) > 64:
            self.groups = [g for g in self.groups[:-32] if not all(op.done for op in g[1])] + (
                self.groups[-32:]
            )

    def pending(self, lanes: int, left: int | None) -> list[Any]:
        """Operations that ``wait_group left`` (None: ``wait_all``) must see done."""
        needed: list[Any] = []
        newer: dict[int, int] = {}
        for mask, ops in reversed(self.groups):
            chosen = mask & lanes
            if left is None or newer.get(chosen, 0) >= left:
                needed += [op for op in ops if op.lanes & chosen]
            newer[chosen] = newer.get(chosen, 0) + 1
        if left is None:
            needed += [op for op in self.open if op.lanes & lanes]
        return needed

    @staticmethod
    def explain(old: Access, warp: Warp) -> str:
        """Say which wait is missing."""
        return (
            "no cp.async.wait_group by the issuing thread covers it, or nothing orders this access "
            "after that wait"
        )


def cp_state(warp: Warp) -> CpAsyncState:
    """Give the cp.async state of a warp."""
    state = warp.sync.state.get("cp")
    if state is None:
        state = warp.sync.state["cp"] = CpAsyncState(warp)
    return state


class CpAsync(AsyncOp):
    """The copies of one cp.async instruction of a warp."""

    def __init__(self, warp: Warp, ins: Instruction, parts: list[Any], size: int,
                 lanes: int) -> None:  # fmt: skip
        """Store (region, source offset, bytes, destination offset) of every lane."""
        self.cta, self.warp, self.ins = warp.cta, warp, ins
        self.parts, self.size, self.lanes = parts, size, lanes
        self.done = False
        self.number = 0

    def complete(self) -> None:
        """Copy; the rest of the destination is zero."""
        shared = self.cta.shared
        for region, start, count, offset in self.parts:
            if count:
                shared.data[offset : offset + count] = region.data[start : start + count]
            shared.data[offset + count : offset + self.size] = 0
            shared.initialised[offset : offset + self.size] = 1
        self.parts = []
        self.done = True
        self.cta.machine.touch_event()

    def describe(self) -> str:
        """Name the copy."""
        return f"cp.async at {where(self.ins)}"


@handler("cp.async")
def cp_async(warp: Warp, ins: Instruction) -> None:
    """Copy 4, 8 or 16 bytes per lane from global to shared memory."""
    destination, source, size_operand, *rest = ins.operands
    size = warp.scalar(size_operand)
    active = np.flatnonzero(warp.active)
    counts = np.full(32, size, np.int64)
    if rest and not ("L2::cache_hint" in ins.mods and len(rest) == 1):
        operand = rest[0]
        inner = getattr(operand, "reg", operand)
        if getattr(inner, "bits", 0) == 1:
            counts = np.where(warp.predicate(operand), 0, size)
        else:
            counts = np.minimum(warp.read(operand, np.uint32).astype(np.int64), size)
    addresses = warp.address(source)
    state = cp_state(warp)
    parts: list[Any] = []
    offsets = np.zeros(len(active), np.int64)
    reads: dict[Any, list[tuple[int, int]]] = {}
    for index, lane in enumerate(active.tolist()):
        _cta, offset = warp.shared_offset(destination, size, size, lane=lane)
        count = int(counts[lane])
        region, start = None, 0
        if count:
            address = int(addresses[lane])
            if address % size:
                warp.machine.fatal(
                    "misaligned", f"cp.async source {address:#x} is not a multiple of {size}",
                    ins=ins, warp=warp, lanes=1 << lane,
                )  # fmt: skip
            region, start = warp.global_region(address, count)
            reads.setdefault(region, []).append((start, count))
        parts.append((region, start, count, offset))
        offsets[index] = offset
    lanes = lane_bits(warp.active)
    op = CpAsync(warp, ins, parts, size, lanes)
    state.count += 1
    op.number = state.count
    _check(warp, ins, state, op, offsets, size, reads)
    state.open.append(op)
    warp.machine.enqueue(op)


def _check(warp: Warp, ins: Instruction, state: CpAsyncState, op: CpAsync, offsets: np.ndarray,
           size: int, reads: dict[Any, list[tuple[int, int]]]) -> None:  # fmt: skip
    launch = warp.machine.sync
    if "race" not in launch.checks:
        return
    clock = warp.sync.clock
    common: dict[str, Any] = {
        "warp": warp, "lanes": op.lanes, "place": ins, "what": "cp.async", "channel": state,
    }  # fmt: skip
    write = Access(state.agent, 2 * op.number, write=True, fences=state.fences, **common)
    launch.table.add(write)
    hooks = warp.machine.hooks
    found = warp.cta.sync.shadow.lanes(offsets, size, write, clock)
    if found:
        hooks.conflicts(found, write, warp, ins, space="shared", target=warp.cta)
    for region, spans in reads.items():
        read = Access(state.agent, 2 * op.number, write=False, **common)
        launch.table.add(read)
        shadow = region_sync(launch, region).shadow
        whole = [start for start, count in spans if count == size]
        found = shadow.lanes(np.array(whole), size, read, clock) if whole else []
        for start, count in spans:
            if count != size:
                found = found + shadow.span(start, start + count, read, clock)
        if found:
            hooks.conflicts(found, read, warp, ins, space="global", target=region,
                            place_text=f"of {region.name} ")  # fmt: skip


class CpWait(Wait):
    """A warp in ``cp.async.wait_group`` or ``wait_all``."""

    def __init__(self, warp: Warp, ins: Instruction, ops: list[Any]) -> None:
        """Store the operations that must be done."""
        self.warp, self.ins, self.ops = warp, ins, ops

    def ready(self) -> bool:
        """Say whether they are done."""
        return all(op.done for op in self.ops)

    def resume(self, warp: Warp) -> None:
        """Know that they are done."""
        if not self.ops:
            return
        state = cp_state(warp)
        clock = warp.sync.clock
        last = 2 * max(op.number for op in self.ops)
        if clock.get(state.agent, 0) < last:
            clock[state.agent] = last

    def describe(self) -> str:
        """Say what is awaited."""
        return f"waits for its cp.async copies at {where(self.ins)}"


@handler("cp.async.commit_group")
def cp_commit(warp: Warp, ins: Instruction) -> None:
    """Close the open group."""
    cp_state(warp).commit(lane_bits(warp.active))


@handler("cp.async.wait_group", "cp.async.wait_all")
def cp_wait(warp: Warp, ins: Instruction) -> Wait | None:
    """Wait for all but the N newest groups, or for everything."""
    left = None if ins.parts[2] == "wait_all" else warp.scalar(ins.operands[0])
    wait = CpWait(warp, ins, cp_state(warp).pending(lane_bits(warp.active), left))
    if wait.ready():
        wait.resume(warp)
        return None
    return wait


class CpArrive(AsyncOp):
    """An arrival that is made when the earlier cp.async of a warp's lanes are done."""

    def __init__(self, warp: Warp, ins: Instruction, barrier: Any, ops: list[Any], count: int,
                 lanes: int) -> None:  # fmt: skip
        """Store barrier, operations and number of arrivals."""
        self.cta, self.warp, self.ins = warp.cta, warp, ins
        self.barrier, self.ops, self.count, self.lanes = barrier, ops, count, lanes
        self.agent = cp_state(warp).agent

    def ready(self) -> bool:
        """Say whether the copies are done."""
        return all(op.done for op in self.ops)

    def complete(self) -> None:
        """Arrive."""
        clock = {}
        if self.ops:
            clock = {self.agent: 2 * max(op.number for op in self.ops)}
        self.barrier.arrive(self.count, clock, self.warp, self.ins, self.lanes)
        self.cta.machine.touch_event()

    def describe(self) -> str:
        """Name the barrier."""
        return f"arrival of cp.async on {self.barrier.name}"


@handler("cp.async.mbarrier.arrive")
def cp_mbarrier_arrive(warp: Warp, ins: Instruction) -> None:
    """Let an mbarrier track this thread's earlier cp.async."""
    state = cp_state(warp)
    for lanes, _, cta, offset in _targets(warp, ins.operands[0], ins):
        bits = lane_bits(lanes)
        barrier = use_mbarrier(warp, cta, offset, ins, lanes=bits)
        count = bits.bit_count()
        if "noinc" not in ins.mods:
            barrier.pending += count
        ops = state.pending(bits, None)
        warp.machine.enqueue(CpArrive(warp, ins, barrier, ops, count, bits))
