"""Words for deadlocks and livelocks: every waiter, what it awaits, and what would release it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .findings import Related
from .mbarrier import stale_text
from .race import place, where
from .waiters import is_fresh, is_root, waits_to_fill, weight

if TYPE_CHECKING:
    from .machine import Machine, Path, Wait

__all__ = ["report_deadlock"]


_GROUPS = 6  # kinds of waiters printed
_NAMES = 3  # warps printed of each
_LINKS = 6  # of a cycle


def _who(path: Path) -> str:
    warp = path.warp
    cta = warp.cta
    rank = f" rank {cta.rank}" if len(cta.cluster.ctas) > 1 else ""
    return f"CTA {cta.ctaid[0]},{cta.ctaid[1]},{cta.ctaid[2]}{rank} warp {warp.index}"


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
    """Chain the waiters of one CTA or cluster: each waits for the one after it.

    The links are known where a barrier was released in earlier phases; else a warp of the same CTA
    that waits on another barrier is taken. Empty where nothing can be said.
    """
    path, wait = waiting[0]
    cta = path.warp.cta
    near = {p.warp.id: (p, w) for p, w in waiting if p.warp.cta.cluster is cta.cluster}
    if any(getattr(w.barrier_info(), "bytes_missing", 0) > 0 for _, w in near.values()):
        return ""  # the bytes are the cause, and what waits for them is no cycle
    steps: list[str] = []
    seen: set[Any] = set()
    while len(steps) < _LINKS:
        warp = path.warp
        seen.add(warp.id)
        barrier = getattr(wait, "barrier", None)
        name = getattr(barrier, "name", None)
        steps.append(f"{_who(path)} on {name}" if name else f"{_who(path)} {wait.describe()}")
        arrivers = [w for w, _ in (getattr(barrier, "arrivers", None) or {}).values()]
        known = [near[w.id] for w in arrivers if w.id in near and w.id not in seen]
        others = [
            item for item in near.values()
            if item[0].warp.cta is warp.cta and item[0].warp.id not in seen
            and getattr(item[1], "barrier", None) is not barrier
        ]  # fmt: skip
        if not known and (arrivers or not others):
            break
        path, wait = (known or others)[0]
    return " <- ".join(steps) if len(steps) > 1 else ""


def _waiters(groups: dict[str, list[Path]], spinning: list[Path]) -> str:
    """List the waiters; those that wait alike together, and of many only a count."""
    words = []
    for what, paths in list(groups.items())[:_GROUPS]:
        names = ", ".join(_who(p) for p in paths[:_NAMES])
        if len(paths) > _NAMES:
            names += f" and {len(paths) - _NAMES} more"
        words.append(f"{names} {what if len(paths) == 1 else what.replace('waits ', 'wait ', 1)}")
    words += [f"{_who(p)} spins at {where(p.spin_ins)}" for p in spinning[:_NAMES]]
    rest = sum(len(paths) for paths in list(groups.values())[_GROUPS:])
    rest += len(spinning[_NAMES:])
    if rest:
        words.append(f"and {rest} more warps")
    return "; ".join(words)


def _threads(machine: Machine) -> str:
    """Say that the block is smaller than the kernel's launch bounds, where it is."""
    most = machine.entry.directives.get("maxntid")
    threads = math.prod(machine.block)
    if not most or threads >= math.prod(most):
        return ""
    return f". The block has {threads} threads, the kernel's launch bounds are {math.prod(most)}"


def _name(barrier: Any, waiting: list[tuple[Path, Wait]]) -> str:
    """Name a barrier, with its CTA where warps of several CTAs wait."""
    if len({p.warp.cta.cluster for p, _ in waiting}) < 2:
        return barrier.name
    x, y, z = barrier.cta.ctaid
    return f"{barrier.name} of CTA {x},{y},{z}"


def _order(item: tuple[Path, Wait]) -> Any:
    warp = item[0].warp
    return -weight(item[1], warp), warp.cta.ctaid[::-1], warp.index


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
    ordered = sorted(waiting, key=_order)
    path, wait = ordered[0]
    lines: list[Related] = []
    special = _special(wait)
    barrier: Any = getattr(wait, "barrier", None)
    if barrier is not None and hasattr(barrier, "deadlock_text"):
        name = _name(barrier, waiting)
        text, lines_of = barrier.deadlock_text(getattr(wait, "parity", None), path.warp, name)
        lines += lines_of
        if is_fresh(wait, path.warp) and waits_to_fill(wait):
            text += ". A fresh empty barrier is passed with parity 1"
        elif barrier.never_arrived:
            text += "; nothing arrives on it"
        text = f"{text}. {barrier.ledger()}"
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
    kind = special[0] if special is not None else "deadlock"
    message = f"{text}{_threads(machine)}. Waiters: {_waiters(groups, spinning)}"
    cycle = _cycle(ordered) if len(groups) > 1 and not is_root(wait, path.warp) else ""
    if cycle:
        message += f". Cycle: {cycle}"
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
