"""Loops without an end: warps that compute on and on while nothing in the machine changes."""

from __future__ import annotations

from typing import Any

from .machine import Stop
from .race_places import where

__all__ = ["EndlessWatch", "position"]

_TOGETHER = 2_000_000  # warp-instructions of all warps without an effect: one is looked at alone
_ALONE = 20_000_000  # and of this one, far more than a kernel computes between two accesses


class EndlessWatch:
    """Looks, once in many turns of the scheduler, whether anything happened since the last look.

    An access to memory or an event (a barrier, a copy, an exit) ends the quiet time.
    """

    def __init__(self, scheduler: Any) -> None:
        """Start with the first look."""
        self.scheduler, self.machine = scheduler, scheduler.machine
        self.stamp: Any = None
        self.counts: dict[Any, int] = {}

    def quiet(self) -> bool:
        """Say whether nothing happened since the stamp; else take a new one."""
        machine = self.machine
        stamp = (
            machine.events, sum(machine.bytes_read.values()), sum(machine.bytes_written.values()),
        )  # fmt: skip
        same = stamp == self.stamp
        self.stamp = stamp
        return same

    def look(self, warps: list[Any]) -> None:
        """Report a livelock and end the launch when a warp computes for too long."""
        if not self.quiet():
            self.counts = {warp: warp.count for warp in warps}
            return
        spent = {warp: warp.count - self.counts.setdefault(warp, warp.count) for warp in warps}
        if sum(spent.values()) < _TOGETHER:
            return
        warp = max(warps, key=lambda w: (spent[w], -w.id))
        self._alone(warp, self.counts[warp])

    def _alone(self, warp: Any, start: int) -> None:
        """Run only this warp until something happens: the others cannot change what it does."""
        scheduler = self.scheduler
        scheduler.running = warp
        while True:
            for _ in range(1024):
                path = scheduler.choose_path(warp)
                if path is None:
                    return
                self.machine.runner.run(path, 64)
            if not self.quiet():
                return
            scheduler.progress(scheduler.fraction())
            if warp.count - start >= _ALONE:
                self._report(warp, warp.count - start)

    def _report(self, warp: Any, count: int) -> None:
        ins = position(warp.paths[0])
        rank = f" rank {warp.cta.rank}" if len(warp.cta.cluster.ctas) > 1 else ""
        x, y, z = warp.cta.ctaid
        self.machine.finding(
            "livelock",
            f"endless loop at {where(ins)}: CTA {x},{y},{z}{rank} warp {warp.index} executed "
            f"{count:,} instructions without an access to memory or a barrier, "
            "and no other warp can go on",
            ins=ins, warp=warp,
        )  # fmt: skip
        raise Stop


def position(path: Any) -> Any:
    """Give the instruction at which a path stands, or one near it."""
    if path.wait is not None:
        return path.wait.ins
    blocks = path.frame.function.blocks
    steps = path.frame.code.blocks[path.block] if path.block >= 0 else []
    for step in [*steps[path.step :], *reversed(steps[: path.step])]:
        for ins in step.instructions:
            if ins.chain:
                return ins
    return next((ins for block in blocks for ins in block.instructions), None)
