"""Which of several waiters is the cause of a deadlock, and what each one waits to do."""

from __future__ import annotations

from typing import Any

from .program import Function, Instruction
from .race_places import where

__all__ = ["early_wait", "is_fresh", "is_root", "waits_to_fill", "weight"]

_PLAIN_WAITS = ("NamedWait", "ClusterWait", "RegisterWait", "AllocWait")
_NAMES_OF_EMPTY = ("empty", "free")


def _decides(ins: Instruction) -> bool | None:
    """Say whether an instruction fills a stage (True), uses one (False) or tells nothing."""
    parts = ins.parts
    if "expect_tx" in parts or parts[:3] == ("cp", "async", "bulk"):
        return "commit_group" not in parts and "wait_group" not in parts
    if parts[0] == "st" and ("shared" in parts or "shared::cta" in parts):
        return True
    if parts[0] in ("ld", "ldmatrix") and any(part.startswith("shared") for part in parts):
        return False
    if parts[0] in ("wgmma", "tcgen05") and parts[1] in ("mma_async", "mma", "ld", "cp"):
        return False
    if parts[0] == "mbarrier" and parts[1] in ("try_wait", "test_wait"):
        return False
    return None


def waits_to_fill(wait: Any) -> bool:
    """Say whether a waiter goes on to fill what its barrier guards: it waits for an empty stage.

    The name of the barrier tells it where it has one; else what the code does after the wait.
    """
    return _fills_after(wait.barrier, wait.ins)


def early_wait(warp: Any) -> str:
    """Name a wait of a reader that returned though no phase had completed, or give ""."""
    waits = getattr(warp.sync, "waits", None) or {}
    for barrier, record in reversed(waits.items()):
        if record.phase < 0 and record.ins and not _fills_after(barrier, record.ins):
            return (
                f"; wait({barrier.name}, parity {record.parity}) at {where(record.ins)} returned "
                "without a completed phase since init"
            )
    return ""


def _fills_after(barrier: Any, ins: Instruction) -> bool:
    if any(word in barrier.name for word in _NAMES_OF_EMPTY):
        return True
    function: Function = ins.function
    start = next(
        (block for block in function.blocks if any(i is ins for i in block.instructions)), None
    )
    if start is None:
        return False
    at = next(n for n, i in enumerate(start.instructions) if i is ins)
    queue = [(start, start.instructions[at + 1 :])]
    seen = {start.number}
    for block, instructions in queue:
        for item in instructions:
            decided = _decides(item)
            if decided is not None:
                return decided
        for number in block.successors:
            if number not in seen:
                seen.add(number)
                queue.append((function.blocks[number], function.blocks[number].instructions))
    return False


def is_fresh(wait: Any, warp: Any) -> bool:
    """Say whether a warp's first wait on a barrier is for its first phase, and nothing came yet.

    A warp that has arrived somewhere has filled the stage without a wait, as is right.
    """
    barrier = getattr(wait, "barrier", None)
    if barrier is None or not hasattr(barrier, "current"):
        return False
    now = barrier.current
    return (
        barrier.local_phase == 0 == getattr(wait, "parity", None)
        and barrier.pending == barrier.expected
        and not (now.expected or now.delivered)
        and barrier not in warp.sync.waits
        and not any(
            by is warp
            for one in warp.cta.sync.mbarriers.values()
            for by, _ in one.arrivers.values()
        )
    )


def weight(wait: Any, warp: Any) -> int:
    """Prefer the waiter whose barrier shows what went wrong."""
    barrier = getattr(wait, "barrier", None)
    if barrier is None or not hasattr(barrier, "current"):
        return 1 if type(wait).__name__ in _PLAIN_WAITS else _warpgroup_weight(wait)
    score = 2
    if barrier.current.expected or barrier.current.delivered:
        score += 5
    if barrier.pending < barrier.expected:
        score += 3
    if is_fresh(wait, warp):
        score += 4 if waits_to_fill(wait) else 1
    if barrier.never_arrived:
        score += 3
    return score


def is_root(wait: Any, warp: Any) -> bool:
    """Say whether nothing that the launch has shown could release a waiter."""
    barrier = getattr(wait, "barrier", None)
    if barrier is None or not hasattr(barrier, "current"):
        return bool(_exited(wait))
    return barrier.never_arrived and not is_fresh(wait, warp)


def _exited(wait: Any) -> list[Any]:
    """Give the warps of a warpgroup that ended before the group that is waited for."""
    return [w for w in getattr(wait, "late", list)() if not w.live.any()]


def _warpgroup_weight(wait: Any) -> int:
    """Prefer a warpgroup that lacks a warp: it ended, or waits at a barrier of the block."""
    late = wait.late() if hasattr(wait, "late") else []
    if _exited(wait):
        return 20
    waits = [path.wait for warp in late for path in warp.paths]
    return 6 if waits and all(type(w).__name__ in _PLAIN_WAITS for w in waits) else 0
