"""Allocation of tensor memory (PTX ISA 9.7.16.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .clocks import Access, join
from .handlers import handler
from .machine import Wait
from .race import AT_CTA_EXIT, related, where
from .sync_barriers import check_converged
from .tensor_memory import COLUMNS, Allocation, TensorMemory, report_conflicts, tensor_memory
from .units.tmem import Rect

if TYPE_CHECKING:
    from .machine import Cta, Instruction, Warp

__all__ = ["check_group", "cta_group", "cta_pair"]


def cta_group(ins: Instruction) -> int:
    """Give the cta_group of an instruction."""
    return 2 if "cta_group::2" in ins.mods else 1


def check_group(warp: Warp, ins: Instruction) -> int:
    """Check that the kernel uses one cta_group only, and that a pair exists."""
    group = cta_group(ins)
    launch = warp.machine.sync
    first = getattr(launch, "cta_group", None)
    if first is None:
        launch.cta_group = (group, ins)
    elif first[0] != group:
        warp.machine.fatal(
            "tcgen05_cta_group",
            f"{'.'.join(ins.parts[:2])} cta_group={group} but {'.'.join(first[1].parts[:2])} at "
            f"{where(first[1])} uses {first[0]}: all tcgen05 instructions of a kernel must agree",
            ins=ins, warp=warp, related=related("first", first[1]),
        )  # fmt: skip
    if group == 2 and len(warp.cta.cluster.ctas) % 2:
        warp.machine.fatal(
            "tcgen05_cta_group", f"`{ins.op}` needs a CTA pair; the cluster has "
            f"{len(warp.cta.cluster.ctas)} CTAs", ins=ins, warp=warp,
        )  # fmt: skip
    return group


def cta_pair(cta: Cta, group: int) -> list[Cta]:
    """Give the CTAs that an instruction works on, even rank first."""
    if group == 1:
        return [cta]
    even = cta.rank & ~1
    return cta.cluster.ctas[even : even + 2]


class AllocWait(Wait):
    """A warp whose ``tcgen05.alloc`` waits for columns, or for the peer."""

    def __init__(self, warp: Warp, ins: Instruction, count: int, group: int) -> None:
        """Store what is wanted."""
        self.warp, self.ins, self.count, self.group = warp, ins, count, group
        self.column: int | None = None
        self.memory = tensor_memory(warp.cta)
        self.peer: TensorMemory | None = None
        if group == 2:
            self.memory.waiting = self
            self.peer = tensor_memory(warp.cta.cluster.ctas[warp.cta.rank ^ 1])

    def ready(self) -> bool:
        """Say whether columns are free, and for a pair whether the peer asks too."""
        if self.column is not None:
            return True
        if self.peer is not None and self.peer.waiting is None:
            return False
        return self.memory.free_block(self.count, self.peer) is not None

    def resume(self, warp: Warp) -> None:
        """Take the columns and write the address."""
        if self.column is None:
            self.column = self.memory.free_block(self.count, self.peer)
            self.memory.allocations.append(self._make(self))
            if self.peer is not None:
                other = self.peer.waiting
                if other.count != self.count:
                    warp.machine.fatal(
                        "tcgen05_pair_order",
                        f"tcgen05.alloc.cta_group::2 of {self.count} columns by rank "
                        f"{warp.cta.rank} and of {other.count} columns by rank "
                        f"{other.warp.cta.rank}",
                        ins=self.ins, warp=warp, related=related("peer", other.ins),
                    )  # fmt: skip
                other.column = self.column
                self.peer.allocations.append(self._make(other))
        if self.group == 2:
            self.memory.waiting = None
        sync = warp.sync
        own = next(a for a in self.memory.allocations if a.column == self.column)
        own.event = (sync.agent, sync.time)
        _write_slot(warp, self.ins, own.column)
        sync.tick()
        warp.machine.touch_event()

    def _make(self, wait: AllocWait) -> Allocation:
        return Allocation(self.column or 0, self.count, wait.warp, wait.ins, self.group)

    def hopeless(self) -> bool:
        """Say whether the columns do not fit beside what is allocated."""
        return self.memory.free_block(self.count) is None

    def describe(self) -> str:
        """Say what is taken."""
        held = [a.count for a in self.memory.allocations]
        if self.hopeless():
            total = sum(held) + self.count
            parts = "+".join(map(str, [*held, self.count]))
            return (
                f"waits in tcgen05.alloc at {where(self.ins)}: allocations {parts}={total} > "
                f"{COLUMNS} columns"
            )
        return (
            f"waits in tcgen05.alloc.cta_group::2 at {where(self.ins)} for the alloc of rank "
            f"{self.warp.cta.rank ^ 1}"
        )


def _write_slot(warp: Warp, ins: Instruction, column: int) -> None:
    """Write the address as a weak store of this warp."""
    home, offset = warp.shared_offset(ins.operands[0], 4, 4)
    home.shared.write(offset, np.array([column], np.uint32).view(np.uint8))
    launch = warp.machine.sync
    sync = warp.sync
    access = Access(
        sync.agent, sync.time, write=True, warp=warp, place=ins, what="tcgen05.alloc",
        fences=sync.shared_fences,
    )  # fmt: skip
    launch.table.add(access)
    found = home.sync.shadow.span(offset, offset + 4, access, sync.clock)
    if found:
        warp.machine.hooks.conflicts(
            found, access, warp, ins, space="shared", target=home, place_text="(address slot) "
        )


@handler("tcgen05.alloc")
def tcgen05_alloc(warp: Warp, ins: Instruction) -> Wait | None:
    """Allocate columns; blocks until they are free."""
    check_converged(warp, ins, "tcgen05.alloc")
    group = check_group(warp, ins)
    count = warp.scalar(ins.operands[1])
    if count & (count - 1) or not 32 <= count <= COLUMNS:
        following = min(max(32, 1 << max(count - 1, 1).bit_length()), COLUMNS)
        warp.machine.fatal(
            "tmem_columns",
            f"tcgen05.alloc of {count} columns: must be a power of two in 32..512; next is "
            f"{following}",
            ins=ins, warp=warp,
        )  # fmt: skip
    memory = tensor_memory(warp.cta)
    if memory.relinquished is not None:
        warp.machine.finding(
            "tmem_permit",
            f"tcgen05.alloc after relinquish_alloc_permit at {where(memory.relinquished)}",
            ins=ins, warp=warp, related=related("relinquish", memory.relinquished),
        )  # fmt: skip
    wait = AllocWait(warp, ins, count, group)
    if wait.ready():
        wait.resume(warp)
        return None
    return wait


@handler("tcgen05.dealloc")
def tcgen05_dealloc(warp: Warp, ins: Instruction) -> None:
    """Free columns; nothing may use them any more."""
    check_converged(warp, ins, "tcgen05.dealloc")
    group = check_group(warp, ins)
    machine = warp.machine
    column = warp.scalar(ins.operands[0]) & 0xFFFF
    count = warp.scalar(ins.operands[1])
    memory = tensor_memory(warp.cta)
    found = next((a for a in memory.allocations if a.column == column and a.count == count), None)
    if found is None:
        live = ", ".join(f"{a.column}..{a.column + a.count - 1}" for a in memory.allocations)
        machine.fatal(
            "tmem_dealloc",
            f"tcgen05.dealloc of columns {column}..{column + count - 1}: no live allocation "
            f"starts there with that size (live: {live or 'none'})",
            ins=ins, warp=warp,
        )  # fmt: skip
        return
    if found.warp is not warp and found.warp.index != warp.index:
        machine.finding(
            "tmem_dealloc",
            f"tcgen05.dealloc by warp {warp.index}, the allocation is of warp {found.warp.index}; "
            "the ISA text can be read as asking for one warp",
            ins=ins, warp=warp, severity="warning", related=related("alloc", found.ins),
        )  # fmt: skip
    if group == 2:
        _check_pair_order(warp, ins, column)
    rect = Rect(0, 128, column, count)
    sync = warp.sync
    access = Access(sync.agent, sync.time, write=True, warp=warp, place=ins, what="tcgen05.dealloc")
    machine.sync.table.add(access)
    if group == 2:
        _check_peer_use(warp, ins, rect, access)
    conflicts = [c for c in memory.access([rect], access, sync.clock) if c[1] == "order"]
    report_conflicts(conflicts, access, warp, ins, [rect], memory)
    memory.allocations.remove(found)
    memory.freed.append((column, count, ins))
    memory.forget(column, count)
    machine.touch_event()


def _check_peer_use(warp: Warp, ins: Instruction, rect: Rect, access: Access) -> None:
    """The pair shares one allocation: the peer's use of the columns must be over, too."""
    peer = warp.cta.cluster.ctas[warp.cta.rank ^ 1]
    clock = dict(warp.sync.clock)
    join(clock, warp.sync.executed)
    for old, _ in tensor_memory(peer).peek([rect], access, clock)[:1]:
        warp.machine.finding(
            "tcgen05_pair_order",
            f"dealloc.cta_group::2 by rank {warp.cta.rank} is not ordered after the {old.what} at "
            f"{where(old.place)} on rank {peer.rank}'s columns {rect.column}.."
            f"{rect.column + rect.columns - 1}; put a cluster barrier between",
            ins=ins, warp=warp, related=related(old.what, old.place),
        )  # fmt: skip


def _check_pair_order(warp: Warp, ins: Instruction, column: int) -> None:
    peer = tensor_memory(warp.cta.cluster.ctas[warp.cta.rank ^ 1])
    for allocation in peer.allocations:
        agent, time = allocation.event
        if allocation.column == column and (
                not agent or warp.sync.clock.get(agent, 0) < time):  # fmt: skip
            warp.machine.finding(
                "tcgen05_pair_order",
                f"dealloc.cta_group::2 by rank {warp.cta.rank} is not ordered after rank "
                f"{warp.cta.rank ^ 1}'s alloc; put a cluster barrier between",
                ins=ins, warp=warp, related=related("peer's alloc", allocation.ins),
            )  # fmt: skip


@handler("tcgen05.relinquish_alloc_permit")
def tcgen05_relinquish(warp: Warp, ins: Instruction) -> None:
    """Give up the right to allocate."""
    check_converged(warp, ins, "tcgen05.relinquish_alloc_permit")
    check_group(warp, ins)
    tensor_memory(warp.cta).relinquished = ins


def _exit(cta: Cta) -> None:
    memory = cta.sync.tmem
    if memory is None or "tcgen05" not in cta.machine.sync.checks:
        return
    for allocation in memory.allocations:
        cta.machine.finding(
            "tmem_leak",
            f"columns {allocation.column}..{allocation.column + allocation.count - 1} were never "
            "freed: tcgen05.dealloc before exit",
            ins=allocation.ins, warp=allocation.warp,
        )  # fmt: skip


AT_CTA_EXIT.append(_exit)
