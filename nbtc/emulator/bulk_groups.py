"""Groups of asynchronous copies: bulk groups of a thread and cp.async groups of a warp's lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .clocks import Access
from .machine import Wait
from .race import where

if TYPE_CHECKING:
    from .machine import Instruction, Warp

__all__ = ["BulkGroups", "GroupWait", "bulk_groups"]


class BulkGroups:
    """Bulk copies of one thread that complete by groups.

    Attributes:
        read_agent: Time ``g`` means that groups up to ``g`` have read their sources.
        write_agent: Time ``g`` means that groups up to ``g`` are complete.
        committed: Groups committed so far; the open group has number ``committed + 1``.
    """

    def __init__(self, warp: Warp, lane: int) -> None:
        """Start with no group."""
        agents = warp.machine.sync.agents
        name = f"bulk groups of CTA {warp.cta.ctaid} thread {warp.index * 32 + lane}"
        self.thread = warp.index * 32 + lane
        self.read_agent = agents.new(name + ", reads")
        self.write_agent = agents.new(name)
        self.committed = 0
        self.read_known = self.write_known = 0
        self.open: dict[int, list[Any]] = {1: []}
        self.last_store: Access | None = None

    @property
    def current(self) -> int:
        """Number of the open group."""
        return self.committed + 1

    def add(self, op: Any) -> None:
        """Put an operation into the open group."""
        self.open[self.current].append(op)

    def commit(self) -> None:
        """Close the open group."""
        self.committed += 1
        self.open[self.committed + 1] = []

    def finished(self, target: int, *, read: bool) -> bool:
        """Say whether all groups up to ``target`` have read their sources, or are complete."""
        for number in list(self.open):
            if number > target:
                continue
            ops = self.open[number]
            if all(op.done for op in ops):
                if number <= self.committed:
                    del self.open[number]
                continue
            if not (read and all(op.read for op in ops)):
                return False
        return True

    def explain(self, old: Access, warp: Warp) -> str:
        """Say which wait is missing."""
        module = "tma" if old.place is not None and "tensor" in old.place.mods else "bulk"
        form = f"{module}.wait_group(0)" if old.write else f"{module}.wait_group_read(0)"
        if old.time is not None and old.time > self.committed:
            return f"the copy is not even committed: {module}.commit_group(), then {form}"
        return (
            f"no {form.replace('(0)', '')} by thread {self.thread} covers it (group {old.time} of "
            f"{self.committed}), or nothing orders this access after that wait"
        )


def bulk_groups(warp: Warp, lane: int) -> BulkGroups:
    """Give the bulk groups of one thread."""
    groups = warp.sync.groups.get(lane)
    if groups is None:
        groups = warp.sync.groups[lane] = BulkGroups(warp, lane)
    return groups


class GroupWait(Wait):
    """A thread in ``cp.async.bulk.wait_group``."""

    def __init__(self, warp: Warp, ins: Instruction, targets: list[tuple[Any, int]],
                 *, read: bool) -> None:  # fmt: skip
        """Store (groups, last group that must be finished) of every lane."""
        self.warp, self.ins, self.targets, self.read = warp, ins, targets, read

    def ready(self) -> bool:
        """Say whether the groups are finished."""
        return all(groups.finished(target, read=self.read) for groups, target in self.targets)

    def resume(self, warp: Warp) -> None:
        """Know that they are."""
        clock = warp.sync.clock
        for groups, target in self.targets:
            if clock.get(groups.read_agent, 0) < target:
                clock[groups.read_agent] = target
            if not self.read and clock.get(groups.write_agent, 0) < target:
                clock[groups.write_agent] = target

    def describe(self) -> str:
        """Say what is awaited."""
        return f"waits for its bulk copies at {where(self.ins)}"
