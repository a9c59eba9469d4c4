"""Words for deadlocks and livelocks: every waiter, what it awaits, and what would release it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .findings import Related
from .mbarrier import stale_text
from .race import place, where

if TYPE_CHECKING:
    from .machine import Machine, Path, Wait

__all__ = ["report_deadlock"]


_PLAIN_WAITS = ("NamedWait", "ClusterWait", "RegisterWait", "AllocWait")


def _who(path: Path) -> str:
    warp = path.warp
    cta = warp.cta
    rank = f" rank {cta.rank}" if len(cta.cluster.ctas) > 1 else ""
    return f"CTA {cta.ctaid[0]},{cta.ctaid[1]},{cta.ctaid[2]}{rank} warp {warp.index}"


def _weight(wait: Wait) -> int:
    """Prefer the waiter whose barrier shows what went wrong."""
    barrier = getattr(wait, "barrier", None)
    if barrier is None or not hasattr(barrier, "current"):
        return 1 if type(wait).__name__ in _PLAIN_WAITS else 0
    score = 2
    if barrier.current.expected or barrier.current.delivered:
        score += 4
    if barrier.pending < barrier.expected:
        score += 3
    return score


def _special(wait: Any) -> tuple[str, str] | None:
    """Give kind and words where a barrier of the CTA or cluster explains the deadlock alone."""
    name = type(wait).__name__
    barrier: Any = getattr(wait, "barrier", None)
    if name == "NamedWait" and barrier.count is None:
        here, total = barrier.arrived(), barrier.needed()
        return "deadlock", (
            f"syncthreads at {where(wait.ins)}: {here} of {total} threads; the rest are past it or "
            f"exited. Use a named barrier of {here}"
        )
    if name == "AllocWait" and wait.hopeless():
        return "tmem_oversubscribed", wait.describe()
    if name == "ClusterWait":
        here, total = barrier.threads()
        return "deadlock", (
            f"cluster barrier: {here} of {total} threads; it counts all threads of all CTAs and "
            "has no subset form"
        )
    return None


def _cycle(waiting: list[tuple[Path, Wait]]) -> str:
    """Chain the waiters by who released their barriers in earlier phases, where known."""
    steps: list[str] = []
    seen: set[Any] = set()
    by_warp = {path.warp.id: (path, wait) for path, wait in waiting}
    path, wait = waiting[0]
    while path.warp.id not in seen:
        seen.add(path.warp.id)
        steps.append(f"{_who(path)} {wait.describe()}")
        barrier = getattr(wait, "barrier", None)
        arrivers = getattr(barrier, "arrivers", None) or {}
        following = next(
            (by_warp[warp.id] for warp, _ in arrivers.values()
             if warp.id in by_warp and warp.id not in seen),
            None,
        )  # fmt: skip
        if following is None:
            following = next(
                (item for item in waiting if item[0].warp.id not in seen
                 and getattr(item[1], "barrier", None) is not barrier),
                None,
            )  # fmt: skip
        if following is None:
            break
        path, wait = following
    return " <- ".join(steps)


def report_deadlock(
    machine: Machine, waiting: list[tuple[Path, Wait]], spinning: list[Path]
) -> None:
    """Report one finding that names every waiter."""
    tests = [(p, p.warp.sync.state.get("failing_test")) for p in spinning]
    waiting = [*waiting, *((p, test) for p, test in tests if test is not None)]
    spinning = [p for p, test in tests if test is None]
    if not waiting:
        path = spinning[0]
        machine.finding(
            "livelock",
            "no warp makes progress: "
            + "; ".join(f"{_who(p)} spins at {where(p.spin_ins)}" for p in spinning[:8]),
            ins=path.spin_ins, warp=path.warp,
        )  # fmt: skip
        return
    ordered = sorted(waiting, key=lambda item: -_weight(item[1]))
    path, wait = ordered[0]
    lines: list[Related] = []
    special = _special(wait)
    barrier: Any = getattr(wait, "barrier", None)
    if barrier is not None and hasattr(barrier, "deadlock_text"):
        text, lines_of = barrier.deadlock_text(getattr(wait, "parity", None), path.warp)
        lines += lines_of
        text = f"{text}. {barrier.name}: {barrier.ledger()}"
        for other in (path.warp, *(w for w, _ in barrier.arrivers.values())):
            words, _ = stale_text(other)
            if words:
                text += words
                break
    elif special is not None:
        text = special[1]
    else:
        text = f"{_who(path)} {wait.describe()}"
    groups: dict[str, list[Path]] = {}
    for other, what in ordered:
        groups.setdefault(what.describe(), []).append(other)
    waiters = []
    for words, paths in list(groups.items())[:16]:
        names = ", ".join(_who(p) for p in paths[:4]) + (
            f" and {len(paths) - 4} more" if len(paths) > 4 else ""
        )
        waiters.append(f"{names} {words}")
    for other in spinning[:4]:
        waiters.append(f"{_who(other)} spins at {where(other.spin_ins)}")
    kind = special[0] if special is not None else "deadlock"
    message = f"deadlock: {text}. Waiters: " + "; ".join(waiters)
    if len(groups) > 1:
        message += f". Cycle: {_cycle(ordered)}"
    pending = [op.describe() for op in machine.queue[:4]]
    if pending:
        message += ". Not completed: " + "; ".join(pending)
    places = {place(wait.ins)}
    for other, what in ordered[1:]:
        if place(what.ins) not in places:  # each line once: there may be many warps
            places.add(place(what.ins))
            lines.append(Related(f"waiter warp {other.warp.index}", *place(what.ins)))
    machine.finding(
        kind, message, ins=wait.ins, warp=path.warp,
        related=tuple(dict.fromkeys(lines)), barrier=wait.barrier_info(),
    )  # fmt: skip
