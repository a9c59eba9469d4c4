"""Vector clocks, agents and the table of memory accesses that the shadow refers to.

An *agent* is anything that orders events among themselves: a warp, or a channel on which
asynchronous operations complete (an mbarrier, the bulk groups of a thread, the wgmma groups of a
warpgroup). A clock maps agents to the time up to which everything of that agent is known to have
happened. An access is known to have happened when the clock reaches its time on its agent; an
asynchronous access has no time until the emulator knows on which event it completes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = [
    "ORDER",
    "PROXY",
    "UNINITIALISED",
    "Access",
    "AccessTable",
    "Agents",
    "Clock",
    "Conflict",
    "FenceLog",
    "conflict",
    "happened",
    "join",
]

Clock = dict[int, int]
"""Agent -> time. Agents that are missing have time 0."""


def join(into: Clock, other: Clock) -> None:
    """Raise every entry of ``into`` to at least that of ``other``."""
    get = into.get
    for agent, time in other.items():
        if get(agent, 0) < time:
            into[agent] = time


class Agents:
    """Hands out agent numbers and keeps their names."""

    def __init__(self) -> None:
        """Start with no agent."""
        self.names: list[str] = [""]

    def new(self, name: str) -> int:
        """Return the number of a new agent; numbers start at 1."""
        self.names.append(name)
        return len(self.names) - 1


@dataclass(eq=False, slots=True)
class Access:
    """One access to memory by one agent.

    Attributes:
        agent: Agent whose clock tells that the access is done.
        time: Time on that agent, or None while nothing can prove completion.
        write: True for a write.
        strong: True for atomics and relaxed, acquire, release or volatile accesses, which do not
            race with each other.
        is_async: True when made through the async proxy.
        warp: Warp object that executed or issued it.
        lanes: Bit mask of the lanes that took part.
        place: Whatever the engine uses to name the instruction.
        what: Words for messages, such as ``"TMA copy"``.
        channel: Object on which an asynchronous access completes, for messages.
        exact: Function that returns the exact 16-byte chunk addresses when the recorded region is
            wider than what is read.
        fences: Proxy fences of the writing warp, for writes through the generic proxy.
        reads: True for a write that also reads (an atomic).
        copy: Record of the copy on its mbarrier.
        strict: True for an asynchronous write that needs a proxy fence after earlier reads, too.
    """

    agent: int
    time: int | None
    write: bool
    strong: bool = False
    is_async: bool = False
    warp: Any = None
    lanes: int = 0xFFFFFFFF
    place: Any = None
    what: str = "access"
    channel: Any = None
    exact: Callable[[], Any] | None = None
    fences: FenceLog | None = None
    reads: bool = False
    copy: Any = None
    strict: bool = False
    number: int = 0


def happened(access: Access, clock: Clock) -> bool:
    """Tell whether ``clock`` knows that the access is done."""
    time = access.time
    return time is not None and clock.get(access.agent, 0) >= time


ORDER, PROXY, UNINITIALISED = "order", "proxy", "uninitialised"
"""Why accesses conflict: no order, ordered but without a proxy fence, nothing was written."""

Conflict = tuple["Access", str]


def conflict(old: Access, new: Access, clock: Clock) -> str | None:
    """Say why ``new``, made with ``clock``, conflicts with ``old``, or None."""
    time = old.time
    known = clock.get(old.agent, 0)
    if time is None or known < time:
        return None if old.strong and new.strong else ORDER
    if (
        new.is_async
        and old.fences is not None
        and (old.write or new.strict)
        and old.fences.uncovered(old.lanes, time, known)
    ):
        return PROXY
    return None


class AccessTable:
    """Numbers accesses and interns sets of readers, so that the shadow holds plain integers."""

    def __init__(self) -> None:
        """Start with number 0 = never accessed, set 0 = no reader."""
        self.accesses: list[Access] = [Access(0, 0, write=False, what="initial state")]
        self.sets: list[tuple[int, ...]] = [()]
        self._interned: dict[tuple[int, ...], int] = {(): 0}
        self._memo: dict[tuple[int, int], int] = {}

    def add(self, access: Access) -> int:
        """Return the number of a new access."""
        access.number = len(self.accesses)
        self.accesses.append(access)
        return access.number

    def add_reader(self, readers: int, reader: int, clock: Clock) -> int:
        """Return the set ``readers`` plus ``reader``, without those already ordered before it."""
        memo = self._memo.get((readers, reader))
        if memo is not None:
            return memo
        accesses = self.accesses
        new = accesses[reader]
        kept = []
        for number in self.sets[readers]:
            old = accesses[number]
            if old.agent == new.agent and old.time == new.time and old.time is not None:
                continue
            if not happened(old, clock):
                kept.append(number)
        kept.append(reader)
        key = tuple(kept)
        result = self._interned.get(key)
        if result is None:
            result = len(self.sets)
            self.sets.append(key)
            self._interned[key] = result
        self._memo[readers, reader] = result
        return result


class FenceLog:
    """The proxy fences that one warp executed, with the lanes that took part.

    Attributes:
        known: What the warp knew at its last fence with all lanes.
    """

    def __init__(self) -> None:
        """Start with no fence."""
        self._times: list[int] = []
        self._lanes: list[int] = []
        self.known: Clock = {}

    def add(self, time: int, lanes: int, clock: Clock | None = None) -> None:
        """Record a fence: it covers accesses with a smaller time by those lanes."""
        if clock is not None and lanes == 0xFFFFFFFF:
            self.known = dict(clock)
        if self._times and self._times[-1] == time:
            self._lanes[-1] |= lanes
            return
        self._times.append(time)
        self._lanes.append(lanes)

    def uncovered(self, lanes: int, written: int, known: int) -> int:
        """Return the lanes of a write at time ``written`` without a fence known at ``known``."""
        index = bisect_right(self._times, written)
        while lanes and index < len(self._times) and self._times[index] <= known:
            lanes &= ~self._lanes[index]
            index += 1
        return lanes
