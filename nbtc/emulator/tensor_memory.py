"""Tensor memory of a CTA in the emulator: bytes, allocations, and who accessed what last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .clocks import ORDER, UNINITIALISED, Access, Clock, Conflict, conflict, happened
from .race import related, where
from .shadow import ByteShadow
from .units.tmem import Rect

if TYPE_CHECKING:
    from .machine import Cta, Instruction, Warp

__all__ = ["COLUMNS", "Allocation", "IssueQueue", "TensorMemory", "issue_queue", "tensor_memory"]

COLUMNS = 512
_GROUP = 16  # lanes per shadow cell
_GROUPS = 128 // _GROUP


class Allocation:
    """One live allocation of columns."""

    def __init__(self, column: int, count: int, warp: Warp, ins: Instruction, group: int) -> None:
        """Store place and owner."""
        self.column, self.count = column, count
        self.warp, self.ins, self.group = warp, ins, group
        self.event = (0, 0)


class TensorMemory:
    """Tensor memory of one CTA (``cta.sync.tmem``).

    Attributes:
        data: uint32[128, 512], filled with a NaN pattern.
        allocations: Live allocations.
        freed: Column, count and dealloc of what was freed.
        relinquished: The instruction that gave up the permit, or None.
        waiting: The `AllocWait` of a paired allocation that waits for the peer.
    """

    def __init__(self, cta: Cta) -> None:
        """Start with nothing allocated."""
        self.cta = cta
        self.data = np.full((128, COLUMNS), 0xFFFFFFFF, np.uint32)
        self.allocations: list[Allocation] = []
        self.freed: list[tuple[int, int, Instruction]] = []
        self.relinquished: Instruction | None = None
        self.waiting: Any = None
        self.shadow = ByteShadow(_GROUPS * COLUMNS, cta.machine.sync.table)
        self.shadow.poison = True
        self.shadow.written = True

    def free_block(self, count: int, other: TensorMemory | None = None) -> int | None:
        """Give the lowest free block of columns (in both CTAs of a pair), or None."""
        taken = [*self.allocations, *(other.allocations if other is not None else ())]
        for column in range(0, COLUMNS - count + 1, 32):
            if all(column + count <= a.column or a.column + a.count <= column for a in taken):
                return column
        return None

    def covered(self, rect: Rect) -> bool:
        """Say whether live allocations cover all columns of a rectangle."""
        column = rect.column
        end = column + rect.columns
        for allocation in sorted(self.allocations, key=lambda a: a.column):
            if allocation.column <= column < allocation.column + allocation.count:
                column = allocation.column + allocation.count
        return column >= end

    def access(self, rects: list[Rect], access: Access, clock: Clock | Any) -> list[Conflict]:
        """Record an access to rectangles; return what conflicts with it."""
        found: list[Conflict] = []
        for rect in rects:
            first, last = rect.lane // _GROUP, (rect.lane + rect.lanes - 1) // _GROUP
            found += self.shadow.box(
                first * COLUMNS + rect.column, last - first + 1, COLUMNS, rect.columns, access,
                clock,
            )  # fmt: skip
        return found

    def peek(self, rects: list[Rect], access: Access, clock: Clock) -> list[Conflict]:
        """Give what an access would conflict with, without recording it."""
        table = self.cta.machine.sync.table
        numbers = self.writers(rects)
        for rect in rects:
            for group in range(rect.lane // _GROUP, (rect.lane + rect.lanes - 1) // _GROUP + 1):
                start = group * COLUMNS + rect.column
                for readers in set(self.shadow.reader[start : start + rect.columns].tolist()):
                    numbers.update(table.sets[readers])
        found: list[Conflict] = []
        for number in sorted(numbers - {0}):
            old = table.accesses[number]
            reason = conflict(old, access, clock)
            if reason == ORDER:
                found.append((old, reason))
        return found

    def writers(self, rects: list[Rect]) -> set[int]:
        """Give the numbers of the last writes to rectangles."""
        found: set[int] = set()
        for rect in rects:
            for group in range(rect.lane // _GROUP, (rect.lane + rect.lanes - 1) // _GROUP + 1):
                start = group * COLUMNS + rect.column
                found.update(self.shadow.writers(start, start + rect.columns))
        return found

    def forget(self, column: int, count: int) -> None:
        """Forget freed columns: they are undefined again."""
        for group in range(_GROUPS):
            start = group * COLUMNS + column
            self.shadow.clear(start, start + count)
        self.data[:, column : column + count] = 0xFFFFFFFF


def tensor_memory(cta: Cta) -> TensorMemory:
    """Give the tensor memory of a CTA."""
    if cta.sync.tmem is None:
        cta.sync.tmem = TensorMemory(cta)
    return cta.sync.tmem


class IssueQueue:
    """The mma, cp and shift operations that one thread issued.

    Attributes:
        agent: Time ``n`` means that operations up to ``n`` are complete.
        count: Operations issued.
        open: Operations not committed yet.
        enqueued, done: Batches handed to the scheduler, and completed.
    """

    def __init__(self, warp: Warp, lane: int) -> None:
        """Start empty."""
        thread = warp.index * 32 + lane
        self.thread = thread
        name = f"tcgen05 of CTA {warp.cta.ctaid} thread {thread}"
        self.agent = warp.machine.sync.agents.new(name)
        self.count = 0
        self.committed = 0
        self.open: list[Any] = []
        self.enqueued = self.done = 0

    def explain(self, old: Access, warp: Warp) -> str:
        """Say which wait is missing."""
        if old.time is not None and old.time > self.committed:
            return "it is not committed: tcgen05.commit to an mbarrier, then wait on it"
        return "no wait on the mbarrier of a tcgen05.commit covers it"


def issue_queue(warp: Warp, lane: int) -> IssueQueue:
    """Give the queue of one thread."""
    queues = warp.sync.state.setdefault("tcgen05", {})
    queue = queues.get(lane)
    if queue is None:
        queue = queues[lane] = IssueQueue(warp, lane)
    return queue


def report_conflicts(
    found: list[Conflict], access: Access, warp: Warp, ins: Instruction, rects: list[Rect],
    memory: TensorMemory,
) -> None:  # fmt: skip
    """Turn conflicts in tensor memory into findings."""
    machine = warp.machine
    if not found or "tcgen05" not in machine.sync.checks:
        return
    columns = f"columns {rects[0].column}..{rects[0].column + rects[0].columns - 1}"
    seen: set[Any] = set()
    for old, reason in found:
        key = (id(old.place), reason)
        if key in seen:
            continue
        seen.add(key)
        if reason == UNINITIALISED:
            text = f"{access.what} reads TMEM {columns}, which were never written"
            severity = "finding"
            if access.write:
                text = (f"{access.what} reads uninitialised accumulator in TMEM {columns} "
                        "(enable-input-d on first use)")  # fmt: skip
            elif any(memory.writers(rects)):
                # Lanes and columns that only feed discarded results are often left unwritten.
                severity = "warning"
            machine.finding("tmem_uninitialised", text, ins=ins, warp=warp, severity=severity)
        elif reason == ORDER:
            _order(old, access, warp, ins, columns)


def _order(old: Access, access: Access, warp: Warp, ins: Instruction, columns: str) -> None:
    kind = "tmem_in_flight"
    at = where(ins)
    before = where(old.place)
    if old.time is not None and happened(old, warp.sync.pending):
        kind = "tcgen05_fence"
        text = (
            f"TMEM {columns}: {access.what} at {at} follows the {old.what} at {before} through a "
            "relaxed wait: tcgen05.fence::after_thread_sync is missing"
        )
    elif old.what == "tcgen05.ld":
        verb = "freed" if access.what == "tcgen05.dealloc" else "overwritten"
        text = (
            f"{columns} {verb} at {at} while tcgen05.ld at {before} may still read them: "
            "tcgen05.wait_ld first, then a barrier"
        )
    elif old.what == "tcgen05.st":
        text = (
            f"{columns} used by {access.what} at {at} while tcgen05.st at {before} may still "
            "write them: tcgen05.wait_st first, then a barrier"
        )
    elif old.channel is not None and hasattr(old.channel, "explain"):
        verb = "write" if old.write else "read"
        done = "freed" if access.what == "tcgen05.dealloc" else f"used by {access.what}"
        text = (
            f"{columns} {done} at {at} while the {old.what} at {before} may still {verb} them: "
            f"{old.channel.explain(old, warp)}"
        )
    else:
        kind = "tmem_race"
        text = f"{columns}: {access.what} at {at} is not ordered after the {old.what} at {before}"
    warp.machine.finding(kind, text, ins=ins, warp=warp, related=related(old.what, old.place))
