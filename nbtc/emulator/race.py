"""Happens-before state of warps and CTAs, and the hooks that check every access against it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .box_advice import check_all_boxes
from .cas_guess import split_guesses
from .clocks import Access, AccessTable, Agents, Clock, Conflict, FenceLog, join
from .hooks import Hooks
from .machine import Instruction
from .race_places import lane_bits, place, related, where
from .race_report import Wording
from .shadow import ByteShadow, PagedShadow
from .shared_names import place_of
from .silent_store import difference, split

if TYPE_CHECKING:
    from .machine import Cluster, Cta, Machine, Path, Wait, Warp
    from .memory import Region

__all__ = [
    "AT_CLUSTER_START",
    "AT_CTA_EXIT",
    "AT_DEADLOCK",
    "AT_LANES_EXIT",
    "AT_TOUCH",
    "CHECKS",
    "Checks",
    "CtaSync",
    "LaunchSync",
    "WarpSync",
    "create_hooks",
    "knows_started",
    "lane_bits",
    "note_incoming",
    "place",
    "related",
    "where",
]

CHECKS = frozenset({"race", "proxy", "poison", "mbarrier", "barrier", "wgmma", "tcgen05", "tma"})
"""Groups of checks that ``create_hooks`` can switch; deadlocks are always reported."""

AT_CLUSTER_START: list[Callable[[Any], None]] = []
AT_CTA_EXIT: list[Callable[[Any], None]] = []
AT_LANES_EXIT: list[Callable[[Any], None]] = []
AT_DEADLOCK: list[Callable[[Any], None]] = []
AT_TOUCH: list[Callable[[Any, Any, int, int], None]] = []
"""Functions of the ``sync_*`` modules, called by the hooks of the same name."""


class LaunchSync:
    """Happens-before state of one launch (``machine.sync``)."""

    def __init__(self, machine: Machine, checks: frozenset[str]) -> None:
        """Start with no agent; ``boxes`` and ``reaches`` are those of `box_advice`."""
        self.machine = machine
        self.checks = checks
        self.agents = Agents()
        self.table = AccessTable()
        self.boxes: dict[Any, Any] = {}
        self.reaches: dict[Any, Any] = {}


class WarpSync:
    """Happens-before state of one warp (``warp.sync``).

    Attributes:
        agent: Agent of the warp's own accesses.
        init_agent: Agent of the mbarrier inits of the warp, which ``fence.mbarrier_init``
            publishes without ordering anything else.
        clock: What the warp knows to have happened.
        released: Clock at the last release fence; relaxed operations publish it.
        pending: Clocks read by relaxed operations; an acquire fence turns them into knowledge.
        executed: What is known to have been executed, though perhaps not ordered, by relaxed
            cluster barriers. Enough to keep memory alive for what ends with its instruction, a
            load. What is posted, a store or an arrival, can still be under way: on an H200 the CTA
            exits first and the launch fails.
        started: Other CTAs of the cluster that need no further check of having started.
        shared_fences, global_fences: Proxy fences by state space.
        waits: Last successful wait on each mbarrier.
        relaxed: Last relaxed arrives, with the warp's time.
    """

    def __init__(self, launch: LaunchSync, warp: Warp) -> None:
        """Register the warp as an agent."""
        name = f"CTA {warp.cta.ctaid} warp {warp.index}"
        self.launch = launch
        self.agent = launch.agents.new(name)
        self.init_agent = launch.agents.new(name + " inits")
        self.clock: Clock = {self.agent: 1}
        self.released: Clock = {}
        self.pending: Clock = {}
        self.executed: Clock = {}
        self.started: set[int] = set()
        self.shared_fences = FenceLog()
        self.global_fences = FenceLog()
        self.tensormap_fences: dict[int, int] = {}
        self.waits: dict[Any, Any] = {}
        self.groups: dict[Any, Any] = {}
        self.relaxed: deque[tuple[int, Instruction]] = deque(maxlen=8)
        self.state: dict[str, Any] = {}
        self._cached: dict[tuple[int, int, bool, bool], Access] = {}
        self._cached_time = 0

    @property
    def time(self) -> int:
        """Current time of the warp."""
        return self.clock[self.agent]

    def tick(self) -> None:
        """Start a new epoch: later accesses are not covered by earlier releases or fences."""
        self.clock[self.agent] += 1

    def release(self, *, relaxed: bool = False) -> Clock:
        """Publish what the warp knows; a relaxed operation publishes its last release fence."""
        if relaxed:
            return self.released
        snapshot = dict(self.clock)
        self.clock[self.agent] += 1
        return snapshot

    def note_relaxed(self, ins: Instruction) -> None:
        """Remember a relaxed arrive, for messages."""
        if not self.relaxed or self.relaxed[-1] != (self.time, ins):
            self.relaxed.append((self.time, ins))

    def issued(self) -> Clock:
        """What an asynchronous operation carries along when it completes.

        Everything that the issuing warp knew at the issue happened before the completion; the
        warp's own accesses are left out, because the operation is no release of them.
        """
        snapshot = dict(self.clock)
        del snapshot[self.agent]
        return snapshot

    def acquire(self, clock: Clock, *, relaxed: bool = False) -> None:
        """Learn a published clock; a relaxed operation learns it at the next acquire fence."""
        join(self.pending if relaxed else self.clock, clock)

    def fence(self, *, release: bool = True, acquire: bool = True) -> None:
        """Execute a memory fence."""
        if acquire and self.pending:
            join(self.clock, self.pending)
            self.pending = {}
        if release:
            self.released = dict(self.clock)
            self.tick()

    def access(
        self, warp: Warp, ins: Instruction, lanes: int, *, write: bool, strong: bool,
        fences: FenceLog | None, reads: bool = False,
    ) -> Access:  # fmt: skip
        """Give the access object for a generic access now; equal ones in an epoch are shared."""
        time = self.clock[self.agent]
        if time != self._cached_time:
            self._cached.clear()
            self._cached_time = time
        key = (id(ins), lanes, write, strong)
        access = self._cached.get(key)
        if access is None:
            access = Access(
                self.agent, time, write, strong, warp=warp, lanes=lanes, place=ins,
                what="store" if write else "load", fences=fences, reads=reads,
            )  # fmt: skip
            self.launch.table.add(access)
            self._cached[key] = access
        return access


class CtaSync:
    """Happens-before state of one CTA (``cta.sync``)."""

    def __init__(self, launch: LaunchSync, cta: Cta) -> None:
        """Make the shadow of the CTA's shared memory."""
        self.launch = launch
        self.shadow = PagedShadow(cta.shared.size, launch.table)
        self.shadow.poison = "poison" in launch.checks
        self.mbarriers: dict[int, Any] = {}
        self.mbarrier_pages: set[int] = set()
        self.locations: dict[int, Clock] = {}
        self.named: dict[int, Any] = {}
        self.swizzles: dict[int, tuple[str, Any]] = {}
        self.tmem: Any = None
        self.state: dict[str, Any] = {}


class RegionSync:
    """Happens-before state of one global region (``region.sync``)."""

    def __init__(self, launch: LaunchSync, size: int) -> None:
        """Make the shadow of the region."""
        self.shadow = ByteShadow(size, launch.table)
        self.locations: dict[int, Clock] = {}


def region_sync(launch: LaunchSync, region: Region) -> RegionSync:
    """Give the state of a region, made on first use."""
    state = region.sync
    if state is None or state.shadow.table is not launch.table:
        state = region.sync = RegionSync(launch, region.size)
    return state


def note_incoming(
    cta: Cta, agent: int, time: int, warp: Warp, ins: Instruction, what: str,
    arrival: tuple[Any, int] | None = None, *, posted: bool = True,
) -> None:  # fmt: skip
    """Note that another CTA touched the shared memory of ``cta``; checked when it exits.

    ``arrival`` is an mbarrier and its phase: a thread that saw the phase complete saw it, too. An
    access is ``posted`` if it goes on after its instruction: all but one that gives a value.
    """
    entry = agent, time, warp, ins, what, arrival, posted
    cta.sync.state.setdefault("incoming", {})[agent, id(ins)] = entry


def knows_started(warp: Warp, cta: Cta) -> bool:
    """Say whether something before proves to the warp that another CTA has started."""
    sync: WarpSync = warp.sync
    if cta.rank in sync.started:
        return True
    clocks = (sync.clock, sync.executed, sync.pending)
    if not any(w.sync.agent in clock for w in cta.warps for clock in clocks):
        # A relaxed arrival reaches the other warps of a CTA by no clock, so that a completed
        # cluster barrier is taken as proof, but for a warp that has arrived and not waited.
        if not cta.cluster.sync["barrier"].generation or "cluster_generation" in sync.state:
            return False
    sync.started.add(cta.rank)
    return True


class Checks(Wording, Hooks):
    """Checks of one launch: feeds the shadow and words the findings."""

    wants_memory = True

    def __init__(self, machine: Machine, checks: frozenset[str]) -> None:
        """Attach the state to the machine."""
        self.machine = machine
        self.checks = checks
        self.launch = machine.sync = LaunchSync(machine, checks)
        self.race = "race" in checks
        self._lines: dict[tuple[str, int], set[int]] = {}
        self._told: set[tuple[int, int, int]] = set()
        self._late: list[tuple[Any, ...]] = []
        self._semantics: dict[int, tuple[str, bool, Instruction]] = {}

    # -- life of things -----------------------------------------------------------------------

    def start_cluster(self, cluster: Cluster) -> None:
        """Make the state of every CTA and warp."""
        cluster.sync = {}
        for cta in cluster.ctas:
            cta.sync = CtaSync(self.launch, cta)
            for warp in cta.warps:
                warp.sync = WarpSync(self.launch, warp)
        for function in AT_CLUSTER_START:
            function(cluster)

    def exit_lanes(self, warp: Warp, lanes: np.ndarray) -> None:
        """Lanes that ended may complete barriers that waited for them."""
        for function in AT_LANES_EXIT:
            function(warp)
        self.machine.touch_event()

    def exit_cta(self, cta: Cta) -> None:
        """Run the checks at the end of a CTA."""
        self.late_fences(cta)
        for function in AT_CTA_EXIT:
            function(cta)

    def end(self, machine: Machine) -> None:
        """Report what a launch that stopped early left open."""
        self.late_fences()
        check_all_boxes(machine)

    def touch(self, warp: Warp, ins: Instruction, reads: int, writes: int) -> None:
        """Registers with work in flight are about to be touched."""
        for function in AT_TOUCH:
            function(warp, ins, reads, writes)

    def deadlock(
        self, machine: Machine, waiting: list[tuple[Path, Wait]], spinning: list[Path]
    ) -> None:
        """Report a deadlock with every waiter."""
        from .deadlock import report_deadlock

        for function in AT_DEADLOCK:
            function(machine)
        report_deadlock(machine, waiting, spinning)

    # -- generic accesses ---------------------------------------------------------------------

    def load(self, warp: Warp, space: str, target: Any, offsets: np.ndarray, size: int,
             mask: np.ndarray | None, ins: Instruction) -> None:  # fmt: skip
        """Check a generic load and take part in synchronisation through memory."""
        sem, strong = self._sem(ins)
        sync: WarpSync = warp.sync
        chosen = offsets if mask is None else offsets[mask]
        if space == "shared" and target is not warp.cta:
            self._remote(warp, target, ins, "load")
        state = target.sync if space == "shared" else region_sync(self.launch, target)
        if strong:
            self._observe(sync, state, chosen, acquire=sem in ("acquire", "acq_rel"))
        if not self.race:
            return
        fences = sync.shared_fences if space == "shared" else None
        access = sync.access(warp, ins, lane_bits(mask), write=False, strong=strong, fences=fences)
        found = self._shadowed(state.shadow, chosen, size, access, sync.clock)
        if found:
            found = self._without_guesses(found, warp, ins)
            self._plain(found, access, warp, ins, space, target, chosen)

    def _plain(self, found: list[Conflict], access: Access, warp: Warp, ins: Instruction,
               space: str, target: Any, chosen: np.ndarray) -> None:  # fmt: skip
        place_text = place_of(self.machine, space, target, chosen)
        self.conflicts(found, access, warp, ins, space=space, target=target, place_text=place_text)

    def _without_guesses(
        self, found: list[Conflict], warp: Warp, ins: Instruction
    ) -> list[Conflict]:
        guesses, others = split_guesses(found, ins)
        if guesses:
            self.guess(guesses[0][0], warp, ins)
        return others

    def store(self, warp: Warp, space: str, target: Any, offsets: np.ndarray, size: int,
              mask: np.ndarray | None, ins: Instruction,
              rows: np.ndarray | None = None) -> None:  # fmt: skip
        """Check a generic store."""
        sem, strong = self._sem(ins)
        sync: WarpSync = warp.sync
        chosen = offsets if mask is None else offsets[mask]
        shared = space == "shared"
        if shared and target is not warp.cta:
            self._remote(warp, target, ins, "store")
        state: Any = target.sync if shared else region_sync(self.launch, target)
        if shared and state.mbarrier_pages:
            self._over_mbarrier(warp, target, chosen, size, ins)
        if self.race:
            fences = sync.shared_fences if shared else sync.global_fences
            access = sync.access(
                warp, ins, lane_bits(mask), write=True, strong=strong, fences=fences
            )
            found = self._shadowed(state.shadow, chosen, size, access, sync.clock)
            if found:
                stores, found = split(found)
                how = ""
                if stores:
                    how = difference(stores, warp, target, offsets, size, mask, ins, rows)
                if how:
                    self.same_value(stores[0][0], warp, ins, access, how)
                else:
                    found = [*stores, *found]
                self._plain(found, access, warp, ins, space, target, chosen)
        if strong or state.locations:
            self._publish(sync, state, chosen, release=sem in ("release", "acq_rel"),
                          strong=strong, modify=False)  # fmt: skip

    def atomic(self, warp: Warp, space: str, target: Any, offsets: np.ndarray, size: int,
               mask: np.ndarray | None, ins: Instruction) -> None:  # fmt: skip
        """Check a generic atomic and take part in synchronisation through memory."""
        sem = ins.sem
        sync: WarpSync = warp.sync
        chosen = offsets if mask is None else offsets[mask]
        shared = space == "shared"
        if shared and target is not warp.cta:
            self._remote(warp, target, ins, "red" if ins.parts[0] == "red" else "atomic")
        state = target.sync if shared else region_sync(self.launch, target)
        if self.race:
            fences = sync.shared_fences if shared else sync.global_fences
            access = sync.access(
                warp, ins, lane_bits(mask), write=True, strong=True, fences=fences,
                reads="exch" not in ins.mods,
            )  # fmt: skip
            found = self._shadowed(state.shadow, chosen, size, access, sync.clock)
            if found:
                found = self._without_guesses(found, warp, ins)
                self._plain(found, access, warp, ins, space, target, chosen)
        if ins.parts[0] != "red":
            self._observe(sync, state, chosen, acquire=sem in ("acquire", "acq_rel"))
        self._publish(sync, state, chosen, release=sem in ("release", "acq_rel"), strong=True,
                      modify=True)  # fmt: skip

    def _remote(self, warp: Warp, cta: Cta, ins: Instruction, what: str) -> None:
        """Check an access to another CTA's shared memory: it must have started, and stay."""
        if cta.exited:
            self.machine.fatal(
                "cta_exited",
                f"rank {warp.cta.rank} remote {what} to rank {cta.rank} after rank {cta.rank} "
                "exited; end with a cluster barrier",
                ins=ins, warp=warp,
            )  # fmt: skip
        if not knows_started(warp, cta) and "barrier" in self.checks:
            warp.sync.started.add(cta.rank)
            self.machine.finding(
                "cluster_start",
                f"remote {what} to rank {cta.rank}, which may not have started: nothing before it "
                "orders the two CTAs; cluster arrive and wait by all threads before the first use",
                ins=ins, warp=warp,
            )  # fmt: skip
        note_incoming(
            cta, warp.sync.agent, warp.sync.time, warp, ins, f"remote {what}",
            posted=what in ("store", "red"),
        )  # fmt: skip

    @staticmethod
    def _shadowed(
        shadow: ByteShadow, offsets: np.ndarray, size: int, access: Access, clock: Clock
    ) -> list[Conflict]:
        first = int(offsets[0])
        if len(offsets) > 1 and first == offsets[-1] and bool((offsets == first).all()):
            return shadow.span(first, first + size, access, clock)
        return shadow.lanes(offsets, size, access, clock)

    def _sem(self, ins: Instruction) -> tuple[str, bool]:
        cached = self._semantics.get(id(ins))
        if cached is None:
            sem = ins.sem
            cached = self._semantics[id(ins)] = (sem, sem != "weak", ins)
        return cached[0], cached[1]

    @staticmethod
    def _observe(sync: WarpSync, state: Any, offsets: np.ndarray, *, acquire: bool) -> None:
        if not state.locations:
            return
        for offset in set(offsets.tolist()):
            clock = state.locations.get(offset)
            if clock:
                sync.acquire(clock, relaxed=not acquire)

    @staticmethod
    def _publish(sync: WarpSync, state: Any, offsets: np.ndarray, *, release: bool, strong: bool,
                 modify: bool) -> None:  # fmt: skip
        clock = sync.release(relaxed=not release) if strong else {}
        for offset in set(offsets.tolist()):
            if modify:
                if clock:
                    join(state.locations.setdefault(offset, {}), clock)
            elif clock:
                state.locations[offset] = dict(clock)
            else:
                state.locations.pop(offset, None)

    def _over_mbarrier(self, warp: Warp, cta: Cta, offsets: np.ndarray, size: int,
                       ins: Instruction) -> None:  # fmt: skip
        pages = cta.sync.mbarrier_pages
        if pages.isdisjoint((offsets >> 8).tolist()):
            return
        low, high = int(offsets.min()), int(offsets.max()) + size
        for at, barrier in cta.sync.mbarriers.items():
            if barrier.live and low < at + 8 and at < high:
                hit = (offsets < at + 8) & (offsets + size > at)
                if hit.any():
                    self.machine.finding(
                        "mbarrier_reinit",
                        f"store to {barrier.place_text}: a live mbarrier "
                        f"(init {where(barrier.init_ins)}) is there; inval first",
                        ins=ins, warp=warp, related=related("init", barrier.init_ins),
                        barrier=barrier.info(),
                    )  # fmt: skip


def create_hooks(machine: Machine, checks: Any = True) -> Checks:
    """Make the hooks of a launch.

    Args:
        machine: The machine; its ``sync`` attribute is set.
        checks: True or None for all, False for none, or names out of ``CHECKS``.
    """
    if checks is None or checks is True:
        chosen = CHECKS
    elif checks is False:
        chosen = frozenset()
    else:
        chosen = frozenset([checks] if isinstance(checks, str) else checks)
        unknown = chosen - CHECKS
        if unknown:
            from nbtc.errors import EmulatorError

            raise EmulatorError(
                f"unknown checks {sorted(unknown)}; known: {sorted(CHECKS)}, or True or False"
            )
    return Checks(machine, chosen)
