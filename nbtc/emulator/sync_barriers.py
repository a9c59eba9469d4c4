"""Named barriers of the CTA and the barrier of the cluster (PTX ISA 9.7.13.1 to 9.7.13.3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from .clocks import Clock, join
from .findings import BarrierInfo
from .handlers import handler
from .machine import Wait
from .race import AT_CLUSTER_START, AT_LANES_EXIT, lane_bits, related, where

if TYPE_CHECKING:
    from .machine import Cluster, Cta, Instruction, Warp

_FULL = 0xFFFFFFFF
_NAMED = 12  # warps that a message lists


def _live(warp: Warp) -> int:
    return lane_bits(warp.live)


def check_converged(
    warp: Warp, ins: Instruction, what: str, *, without_exited: bool = False
) -> None:
    """Report an ``.aligned`` instruction that only a part of the warp's lanes executes.

    Lanes that exited are missing too, unless they may be; lanes that a small last warp never had
    are not.
    """
    active, needed = lane_bits(warp.active), lane_bits(warp.born)
    if without_exited:
        needed = lane_bits(warp.live)
    if active != needed:
        report_lanes(warp, ins, what, active, needed, "`.aligned` needs the whole warp converged")


def report_lanes(
    warp: Warp, ins: Instruction, what: str, active: int, needed: int, rule: str
) -> None:
    """Report an instruction that ``active`` lanes (a bit mask) of the ``needed`` ones execute."""
    if "barrier" not in warp.machine.sync.checks:
        return
    missing = needed & ~active
    exits: dict[str, int] = {}
    for lanes, at in warp.exits:
        if lanes & missing:
            exits[where(at)] = exits.get(where(at), 0) + (lanes & missing).bit_count()
    gone = "".join(f"; {count} exited at {line}" for line, count in exits.items())
    warp.machine.finding(
        "aligned_divergence",
        f"{what} executed by {active.bit_count()} of {needed.bit_count()} lanes of warp "
        f"{warp.index}{gone}: {rule}",
        ins=ins, warp=warp, lanes=active,
    )  # fmt: skip


def missing_text(warps: Iterable[Warp], arrived: dict[Any, int], *, ranks: bool = False) -> str:
    """Give words for the live lanes that a barrier lacks; whole warps by their number."""
    lacking = []
    for warp in warps:
        missing = _live(warp) & ~arrived.get(warp, 0)
        if not missing:
            continue
        name = f"rank {warp.cta.rank} warp {warp.index}" if ranks else f"warp {warp.index}"
        if warp in arrived:
            name += f": {missing.bit_count()} of {_live(warp).bit_count()} lanes"
        lacking.append(name)
    if len(lacking) > _NAMED:
        lacking[_NAMED:] = [f"{len(lacking) - _NAMED} more"]
    return "; missing " + ", ".join(lacking) if lacking else ""


class NamedBarrier:
    """One of the 16 barriers of a CTA: one generation at a time."""

    def __init__(self, cta: Cta, number: int) -> None:
        """Make an idle barrier."""
        self.cta, self.number = cta, number
        self.agent = cta.machine.sync.agents.new(f"barrier {number} of CTA {cta.ctaid}")
        self.generation = 0
        self.last: dict[Any, str] = {}
        self.last_ins: Instruction | None = None
        self.done: Clock = {}
        self.result: dict[str, Any] = {}
        self._reset()

    def _reset(self) -> None:
        self.count: int | None = None
        self.first: Instruction | None = None
        self.first_warp: Any = None
        self.lanes: dict[Any, int] = {}
        self.kinds: dict[Any, str] = {}
        self.clock: Clock = {}
        self.reduction: list[bool] = []

    @property
    def name(self) -> str:
        """Name for messages."""
        return f"barrier {self.number}"

    def arrived(self) -> int:
        """Threads of warps that arrived as a whole, counted by warp."""
        return sum(32 for warp, lanes in self.lanes.items() if not _live(warp) & ~lanes)

    def needed(self) -> int:
        """Threads that complete the generation."""
        return self.count if self.count is not None else self.cta.nthreads

    def arrive(self, warp: Warp, ins: Instruction, count: int | None, kind: str) -> None:
        """Let the active lanes of a warp arrive."""
        machine = warp.machine
        lanes = lane_bits(warp.active)
        checked = "barrier" in machine.sync.checks
        if not self.lanes:
            self.count, self.first, self.first_warp = count, ins, warp
            if checked:
                self._cohort(warp, ins)
        elif checked:
            if count != self.count:
                machine.fatal(
                    "barrier_mismatch",
                    f"{self.name}: count {count} at {where(ins)} but {self.count} at "
                    f"{where(self.first)} in one generation",
                    ins=ins, warp=warp, related=related("first arrival", self.first),
                )  # fmt: skip
            if (kind == "red") != ("red" in self.kinds.values()):
                machine.finding(
                    "barrier_mismatch", f"{self.name}: .red mixed with .sync or .arrive",
                    ins=ins, warp=warp, related=related("first arrival", self.first),
                )  # fmt: skip
            if warp not in self.lanes:
                self._cohort(warp, ins)
        if self.lanes.get(warp, 0) & lanes:
            machine.fatal(
                "barrier_mismatch",
                f"warp {warp.index} arrives again on {self.name} at {where(ins)} before the "
                f"generation it arrived in at {where(self.first)} is complete "
                f"({self.arrived()} of {self.needed()} threads)",
                ins=ins, warp=warp, related=related("first arrival", self.first),
            )  # fmt: skip
        self.lanes[warp] = self.lanes.get(warp, 0) | lanes
        self.kinds[warp] = kind
        join(self.clock, warp.sync.release())
        self.evaluate()

    def _cohort(self, warp: Warp, ins: Instruction) -> None:
        """A warp that did not wait for the last generation must be ordered after it."""
        if self.generation == 0 or (self.count is None and self.number == 0):
            return
        if warp.sync.clock.get(self.agent, 0) >= self.generation:
            return
        if self.last.get(warp) is None:
            groups = sorted({w.index // 4 for w in (*self.last, warp)})
            names = " and ".join(map(str, groups))
            text = (
                f"{self.name}: threads of warpgroup{'s' if len(groups) > 1 else ''} {names} in one "
                f"generation (expected {self.count} of one cohort): warp {warp.index} is not "
                f"ordered after the generation of warps {sorted(w.index for w in self.last)}; give "
                "each cohort its own id"
            )
        else:
            text = (
                f"{self.name}: warp {warp.index} arrives for the next generation and is not "
                "ordered after the completion of the last one"
            )
        warp.machine.finding(
            "barrier_cohort", text, ins=ins, warp=warp,
            related=related("last generation", self.last_ins),
        )  # fmt: skip
        warp.sync.clock[self.agent] = self.generation

    def evaluate(self) -> None:
        """Complete the generation when everybody is here."""
        if not self.lanes:
            return
        exited: list[Any] = []
        if self.count is None:
            for warp in self.cta.warps:
                live = _live(warp)
                if live & ~self.lanes.get(warp, 0):
                    return
                if not live and warp not in self.lanes:
                    exited.append(warp)
        elif self.arrived() < self.count:
            return
        machine = self.cta.machine
        if exited and "barrier" in machine.sync.checks:
            here = 32 * len(self.lanes)
            machine.finding(
                "barrier_partial",
                f"syncthreads at {where(self.first)}: {here} of {self.cta.nthreads} threads; the "
                f"rest are past it or exited. Use a named barrier of {here}",
                ins=self.first, warp=self.first_warp,
            )  # fmt: skip
        self.generation += 1
        self.done = self.clock
        self.done[self.agent] = self.generation
        self.last, self.last_ins = dict(self.kinds), self.first
        values = self.reduction
        self.result = {"popc": sum(values), "and": all(values), "or": any(values)}
        self._reset()
        machine.touch_event()

    def info(self) -> BarrierInfo:
        """Give the state for a finding."""
        return BarrierInfo(
            self.name, self.number, self.generation, self.generation, self.arrived(),
            self.needed(),
        )  # fmt: skip


class NamedWait(Wait):
    """A warp that waits in ``bar.sync`` or ``bar.red``."""

    def __init__(self, warp: Warp, ins: Instruction, barrier: NamedBarrier, target: Any) -> None:
        """Store the generation that must complete."""
        self.warp, self.ins, self.barrier, self.target = warp, ins, barrier, target
        self.generation = barrier.generation

    def ready(self) -> bool:
        """Say whether the generation is complete."""
        return self.barrier.generation > self.generation

    def resume(self, warp: Warp) -> None:
        """Learn what the participants published."""
        _pass(warp, self.barrier, self.target)

    def describe(self) -> str:
        """Say how many threads are missing."""
        barrier = self.barrier
        missing = missing_text(barrier.cta.warps, barrier.lanes)
        return (
            f"waits {barrier.name} at {where(self.ins)}: {barrier.arrived()} of "
            f"{barrier.needed()} threads arrived{missing}"
        )

    def barrier_info(self) -> BarrierInfo:
        """Give the state of the barrier."""
        return self.barrier.info()


def _pass(warp: Warp, barrier: NamedBarrier, target: Any) -> None:
    warp.sync.acquire(barrier.done)
    # The block barrier also ends the window of relaxed operations, as shipped code relies on.
    warp.sync.fence(release=False)
    if target is not None:
        destination, operation = target
        value = barrier.result[operation]
        if operation == "popc":
            warp.write(destination, np.full(32, value, np.uint32))
        else:
            warp.write(destination, np.full(32, bool(value)))


def _named(warp: Warp, number: int) -> NamedBarrier:
    barriers = warp.cta.sync.named
    barrier = barriers.get(number)
    if barrier is None:
        barrier = barriers[number] = NamedBarrier(warp.cta, number)
    return barrier


@handler(
    "bar.sync", "bar.arrive", "bar.red", "bar.cta", "barrier.sync", "barrier.arrive",
    "barrier.red", "barrier.cta",
)  # fmt: skip
def named_barrier(warp: Warp, ins: Instruction) -> Wait | None:
    """``bar`` and ``barrier``: sync, arrive and red on one of 16 barriers."""
    parts = [part for part in ins.parts if part != "cta"]
    kind = parts[1]
    operands = list(ins.operands)
    target = predicate = None
    if kind == "red":
        target = (operands.pop(0), parts[2])
        predicate = operands.pop()
    number = warp.scalar(operands[0])
    count = warp.scalar(operands[1]) if len(operands) > 1 else None
    if number > 15 or (count is not None and (count % 32 or not 0 < count <= 1024)):
        warp.machine.fatal(
            "barrier_count",
            f"{kind} on barrier {number} with count {count}: ids are 0..15, counts are multiples "
            "of 32 in 32..1024",
            ins=ins, warp=warp,
        )  # fmt: skip
    if count is not None and count > (warp.cta.nthreads + 31) // 32 * 32:
        warp.machine.fatal(
            "barrier_count",
            f"barrier {number} waits for {count} threads, the CTA has {warp.cta.nthreads}",
            ins=ins, warp=warp,
        )  # fmt: skip
    if ins.parts[0] == "bar" or "aligned" in ins.mods:
        # CUDA: __syncthreads waits for the threads that have not exited.
        check_converged(warp, ins, f"`{ins.op}`", without_exited=True)
    barrier = _named(warp, number)
    generation = barrier.generation
    if predicate is not None:
        values = warp.predicate(predicate)
        barrier.reduction += values[warp.active].tolist()
    wait = NamedWait(warp, ins, barrier, target) if kind != "arrive" else None
    barrier.arrive(warp, ins, count, kind)
    if wait is None:
        return None
    if barrier.generation > generation:
        _pass(warp, barrier, target)
        return None
    return wait


# -- cluster barrier ------------------------------------------------------------------------------


class ClusterBarrier:
    """The barrier of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        """Make an idle barrier."""
        self.cluster = cluster
        self.generation = 0
        self.lanes: dict[Any, int] = {}
        self.clock: Clock = {}
        self.done: Clock = {}
        self.executed: Clock = {}
        self.all_executed: Clock = {}
        self.first: Instruction | None = None
        self.first_warp: Any = None

    def threads(self) -> tuple[int, int]:
        """Give threads that arrived and threads of the cluster."""
        total = sum(cta.nthreads for cta in self.cluster.ctas)
        return sum(lanes.bit_count() for lanes in self.lanes.values()), total

    def arrive(self, warp: Warp, ins: Instruction, *, relaxed: bool) -> None:
        """Let the active lanes arrive."""
        lanes = lane_bits(warp.active)
        if self.lanes.get(warp, 0) & lanes:
            warp.machine.fatal(
                "cluster_barrier_order",
                f"barrier.cluster.arrive twice by warp {warp.index} before the barrier completed",
                ins=ins, warp=warp, related=related("first arrival", self.first),
            )  # fmt: skip
        if not self.lanes:
            self.first, self.first_warp = ins, warp
        self.lanes[warp] = self.lanes.get(warp, 0) | lanes
        warp.sync.state["cluster_generation"] = self.generation
        join(self.executed, warp.sync.clock)
        join(self.executed, warp.sync.executed)
        if relaxed:
            warp.sync.note_relaxed(ins)
        join(self.clock, warp.sync.release(relaxed=relaxed))
        if relaxed:
            warp.sync.tick()  # what follows was not executed before the barrier
        self.evaluate()

    def evaluate(self) -> None:
        """Complete when every live thread arrived."""
        if not self.lanes:
            return
        missing = False
        for cta in self.cluster.ctas:
            for warp in cta.warps:
                live = _live(warp)
                if live & ~self.lanes.get(warp, 0):
                    return
                missing = missing or (not live and warp not in self.lanes)
        machine = self.cluster.machine
        if missing and "barrier" in machine.sync.checks:
            here, total = self.threads()
            machine.finding(
                "cluster_barrier_partial",
                f"cluster barrier: {here} of {total} threads; the rest exited. It counts all "
                "threads of all CTAs and has no subset form",
                ins=self.first, warp=self.first_warp, severity="warning",
            )  # fmt: skip
        self.generation += 1
        self.done, self.clock = self.clock, {}
        self.all_executed, self.executed = self.executed, {}
        self.lanes = {}
        machine.touch_event()


class ClusterWait(Wait):
    """A warp in ``barrier.cluster.wait``."""

    def __init__(self, warp: Warp, ins: Instruction, barrier: ClusterBarrier, target: int) -> None:
        """Store the generation that must complete."""
        self.warp, self.ins, self.barrier, self.target = warp, ins, barrier, target

    def ready(self) -> bool:
        """Say whether the generation is complete."""
        return self.barrier.generation > self.target

    def resume(self, warp: Warp) -> None:
        """Learn what the cluster published."""
        warp.sync.acquire(self.barrier.done)
        warp.sync.fence(release=False)
        join(warp.sync.executed, self.barrier.all_executed)

    def describe(self) -> str:
        """Say how many threads are missing."""
        here, total = self.barrier.threads()
        warps = [warp for cta in self.barrier.cluster.ctas for warp in cta.warps]
        missing = missing_text(warps, self.barrier.lanes, ranks=True)
        return (
            f"waits at the cluster barrier: {here} of {total} threads{missing}. It counts all "
            "threads of all CTAs and has no subset form"
        )

    def barrier_info(self) -> BarrierInfo:
        """Give the state of the barrier."""
        here, total = self.barrier.threads()
        generation = self.barrier.generation
        return BarrierInfo("cluster barrier", 0, generation, generation, here, total)


@handler("barrier.cluster.arrive")
def cluster_arrive(warp: Warp, ins: Instruction) -> None:
    """Arrive at the cluster barrier."""
    if "aligned" in ins.mods:
        check_converged(warp, ins, f"`{ins.op}`")
    warp.cta.cluster.sync["barrier"].arrive(warp, ins, relaxed="relaxed" in ins.mods)


@handler("barrier.cluster.wait")
def cluster_wait(warp: Warp, ins: Instruction) -> Wait | None:
    """Wait at the cluster barrier."""
    if "aligned" in ins.mods:
        check_converged(warp, ins, f"`{ins.op}`")
    barrier: ClusterBarrier = warp.cta.cluster.sync["barrier"]
    target = warp.sync.state.pop("cluster_generation", None)
    if target is None:
        warp.machine.fatal(
            "cluster_barrier_order",
            f"barrier.cluster.wait by warp {warp.index} without a barrier.cluster.arrive",
            ins=ins, warp=warp,
        )  # fmt: skip
    wait = ClusterWait(warp, ins, barrier, target)
    if wait.ready():
        wait.resume(warp)
        return None
    return wait


def _start(cluster: Cluster) -> None:
    cluster.sync["barrier"] = ClusterBarrier(cluster)


def _lanes_exit(warp: Warp) -> None:
    for barrier in warp.cta.sync.named.values():
        barrier.evaluate()
    warp.cta.cluster.sync["barrier"].evaluate()


AT_CLUSTER_START.append(_start)
AT_LANES_EXIT.append(_lanes_exit)
