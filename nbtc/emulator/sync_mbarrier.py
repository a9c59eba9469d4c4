"""Handlers of the mbarrier instructions (PTX ISA 9.7.13.15)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .clocks import Clock, join
from .handlers import handler
from .machine import Sink, Wait
from .mbarrier import MAX_COUNT, MBarrier
from .race import (
    AT_CTA_EXIT,
    knows_started,
    lane_bits,
    note_incoming,
    related,
    where,
)
from .shared_names import address_text

if TYPE_CHECKING:
    from .machine import Cta, Instruction, Operand, Warp

__all__ = ["check_exit_of", "find_mbarrier", "use_mbarrier"]


def find_mbarrier(cta: Cta, offset: int) -> MBarrier | None:
    """Give the live mbarrier at a byte offset of a CTA's shared memory, or None."""
    barrier = cta.sync.mbarriers.get(offset)
    return barrier if barrier is not None and barrier.live else None


def use_mbarrier(
    warp: Warp, cta: Cta, offset: int, ins: Instruction, *, lanes: int = 1, incoming: bool = True,
    dead: bool = False,
) -> MBarrier:  # fmt: skip
    """Give the mbarrier at an offset for use by a warp, after checking its init.

    A use of another CTA's barrier is noted for the check at that CTA's exit, unless ``incoming``
    is False because an asynchronous operation notes its own completion. With ``dead`` an
    invalidated barrier is given too. Stops the launch with a finding when no live mbarrier is
    there, or when its CTA has exited.
    """
    machine = warp.machine
    if cta.exited and cta is not warp.cta:
        machine.fatal(
            "cta_exited",
            f"rank {warp.cta.rank} remote {ins.parts[1]} to rank {cta.rank} after rank {cta.rank} "
            "exited; end with a cluster barrier (producer tail)",
            ins=ins, warp=warp, lanes=lanes,
        )  # fmt: skip
    barrier = cta.sync.mbarriers.get(offset)
    if barrier is None or (not barrier.live and not dead):
        state = "after mbarrier.inval" if barrier is not None else "that was never initialised"
        name = barrier.place_text if barrier is not None else address_text(machine, offset)
        if barrier is None and cta is not warp.cta:
            name += f" of CTA rank {cta.rank}"
            if not knows_started(warp, cta):
                state += (
                    f" so far: rank {cta.rank} may not have started; fence.mbarrier_init() by the "
                    "initialising thread and a cluster barrier before the first use"
                )
        machine.fatal(
            "mbarrier_uninitialised",
            f"`{'.'.join(ins.parts[:2])}` on {name}, an mbarrier {state}",
            ins=ins, warp=warp, lanes=lanes,
        )  # fmt: skip
    sync = warp.sync
    if incoming:
        barrier.users[sync.agent] = (sync.time, warp, ins)
    agent, time = barrier.init_event
    if sync.clock.get(agent, 0) < time and "mbarrier" in machine.sync.checks:
        thread = warp.index * 32 + (lanes & -lanes).bit_length() - 1
        other = barrier.init_warp
        text = (
            f"thread {thread} uses {barrier.name} without a synchronisation after its init by "
            f"thread {other.index * 32}"
        )
        if other.cta is not warp.cta:
            text = (
                f"thread {thread} of rank {warp.cta.rank} uses {barrier.name}: this needs "
                "fence.mbarrier_init() by the initialising thread and a cluster barrier"
            )
        machine.finding(
            "mbarrier_init_order", text, ins=ins, warp=warp, lanes=lanes,
            related=related("init", barrier.init_ins), barrier=barrier.info(),
        )  # fmt: skip
        sync.clock[agent] = time
    if cta is not warp.cta and incoming:
        arrival = (barrier, barrier.phase) if ins.parts[1].startswith("arrive") else None
        note_incoming(cta, sync.agent, sync.time, warp, ins, f"remote {ins.parts[1]}", arrival)
    return barrier


def check_exit_of(cta: Cta) -> None:
    """Check at a CTA's exit that everything that touches its memory is known to be done."""
    if "mbarrier" not in cta.machine.sync.checks:
        return
    ordered: Clock = {}
    known: Clock = {}
    for warp in cta.warps:
        join(ordered, warp.sync.clock)
        join(known, warp.sync.executed)
    join(known, ordered)
    for barrier in cta.sync.mbarriers.values():
        barrier.at_exit()
    incoming = cta.sync.state.get("incoming", {})
    for agent, time, warp, ins, what, arrival, posted in incoming.values():
        if arrival is not None and arrival[0].observed >= arrival[1]:
            continue  # however relaxed the arrival or the wait was
        if known.get(agent, 0) < time:
            why = (
                f"nothing makes rank {cta.rank} wait for it; end with a cluster barrier (producer "
                "tail)"
            )
        elif posted and ordered.get(agent, 0) < time:
            why = (
                "a relaxed cluster barrier does not wait for what is under way; let the last one "
                "be cluster.arrive(), which releases, or wait for the last phase of its mbarrier "
                "(pipeline.drain)"
            )
        else:
            continue
        cta.machine.finding(
            "cta_exited",
            f"rank {warp.cta.rank} {what} to rank {cta.rank} at {where(ins)} can come after "
            f"rank {cta.rank} exited: {why}",
            ins=ins, warp=warp, cta=cta,
        )  # fmt: skip
    for access in cta.sync.state.get("copies", {}).values():
        if access.time is None or known.get(access.agent, 0) < access.time:
            name = getattr(access.channel, "name", "its barrier")
            way = "into" if access.write else "out of"
            cta.machine.finding(
                "cta_exited",
                f"CTA exits while the {access.what} at {where(access.place)} {way} its shared "
                f"memory is not known complete: no thread waited for it on {name}",
                ins=access.place, warp=access.warp, cta=cta,
                barrier=access.channel.info() if hasattr(access.channel, "info") else None,
            )  # fmt: skip


AT_CTA_EXIT.append(check_exit_of)


def _targets(
    warp: Warp, operand: Operand, ins: Instruction
) -> Iterator[tuple[np.ndarray, int, Any, int]]:
    """Yield (lanes, first lane, CTA, offset) of every distinct mbarrier addressed."""
    active = warp.active
    addresses = warp.address(operand)
    left = active.copy()
    while True:
        lane = int(left.argmax())
        if not left[lane]:
            return
        same = left & (addresses == addresses[lane])
        cta, offset = warp.shared_offset(operand, 8, 8, lane=lane, cluster=True)
        if cta is not warp.cta and "shared::cluster" not in ins.mods:
            warp.machine.fatal(
                "mbarrier_remote",
                f"address of rank {cta.rank} in the shared::cta form `{ins.op}`: remote mbarrier: "
                "only arrive/expect_tx in shared::cluster form",
                ins=ins, warp=warp, lanes=lane_bits(same),
            )  # fmt: skip
        yield same, lane, cta, offset
        left = left & ~same


def _count(value: int, what: str, warp: Warp, ins: Instruction, *, low: int = 1) -> None:
    if not low <= value <= MAX_COUNT:
        rule = f"mbarrier {what} must be {low}..{MAX_COUNT}, got {value}"
        kind = "mbarrier_count"
        if what == "expect_tx":
            rule = f"expect_tx {value} exceeds {MAX_COUNT}"
            kind = "mbarrier_tx_range"
        warp.machine.fatal(kind, rule, ins=ins, warp=warp)


def _signed32(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value


@handler("mbarrier.init")
def mbarrier_init(warp: Warp, ins: Instruction) -> None:
    """Make a barrier: phase 0, ``count`` arrivals per phase."""
    counts = warp.read(ins.operands[1])
    for lanes, lane, cta, offset in _targets(warp, ins.operands[0], ins):
        count = int(counts[lane])
        _count(count, "count", warp, ins)
        state = cta.sync
        for at, other in state.mbarriers.items():
            if other.live and at - 8 < offset < at + 8:
                warp.machine.finding(
                    "mbarrier_reinit",
                    f"mbarrier.init at {other.place_text}: a live mbarrier "
                    f"(init {where(other.init_ins)}) is there; inval first",
                    ins=ins, warp=warp, lanes=lane_bits(lanes),
                    related=related("earlier init", other.init_ins), barrier=other.info(),
                )  # fmt: skip
        barrier = state.mbarriers.get(offset)
        if barrier is None:
            barrier = state.mbarriers[offset] = MBarrier(cta, offset)
        state.mbarrier_pages.add(offset >> 8)
        state.mbarrier_pages.add((offset + 7) >> 8)
        barrier.init(count, warp, ins)
        sync = warp.sync
        access = sync.access(warp, ins, lane_bits(lanes), write=True, strong=False, fences=None)
        found = state.shadow.span(offset, offset + 8, access, sync.clock)
        found = [item for item in found if item[1] == "order"]
        if found:
            warp.machine.hooks.conflicts(
                found, access, warp, ins, space="shared", target=cta,
                place_text=f"at {barrier.name} ",
            )  # fmt: skip
        cta.shared.write(offset, np.zeros(8, np.uint8))


@handler("mbarrier.inval")
def mbarrier_inval(warp: Warp, ins: Instruction) -> None:
    """End a barrier's life, so that its bytes may be used for something else."""
    for lanes, _, cta, offset in _targets(warp, ins.operands[0], ins):
        barrier = use_mbarrier(warp, cta, offset, ins, lanes=lane_bits(lanes))
        barrier.live = False
        clock = warp.sync.clock
        for agent, (time, user, use) in barrier.users.items():
            if clock.get(agent, 0) < time and "mbarrier" in warp.machine.sync.checks:
                warp.machine.finding(
                    "mbarrier_inval_order",
                    f"mbarrier.inval on {barrier.name} is not ordered after its use by warp "
                    f"{user.index} at {where(use)}: that warp may still wait on it",
                    ins=ins, warp=warp, related=related("use", use), barrier=barrier.info(),
                    severity="advice",
                )  # fmt: skip
                break
        if not any(b.live and b.offset >> 8 == offset >> 8 for b in cta.sync.mbarriers.values()):
            cta.sync.mbarrier_pages.discard(offset >> 8)
        waiting = [w for w in barrier.waiters if not w.ready()]
        if waiting:
            warp.machine.finding(
                "mbarrier_uninitialised",
                f"mbarrier.inval on {barrier.name} while warp {waiting[0].warp.index} waits on it",
                ins=ins, warp=warp, related=related("waiter", waiting[0].ins),
                barrier=barrier.info(),
            )  # fmt: skip


@handler("mbarrier.expect_tx")
def mbarrier_expect_tx(warp: Warp, ins: Instruction) -> None:
    """Announce bytes for the current phase without arriving."""
    values = warp.read(ins.operands[1], np.uint32)
    for lanes, _, cta, offset in _targets(warp, ins.operands[0], ins):
        barrier = use_mbarrier(warp, cta, offset, ins, lanes=lane_bits(lanes))
        for lane in np.flatnonzero(lanes).tolist():
            count = _signed32(int(values[lane]))
            _count(count, "expect_tx", warp, ins, low=0)
            barrier.expect_tx(count, warp, ins)


@handler("mbarrier.complete_tx")
def mbarrier_complete_tx(warp: Warp, ins: Instruction) -> None:
    """Simulate the completion of bytes by a thread."""
    values = warp.read(ins.operands[1], np.uint32)
    for lanes, _, cta, offset in _targets(warp, ins.operands[0], ins):
        barrier = use_mbarrier(warp, cta, offset, ins, lanes=lane_bits(lanes))
        clock = warp.sync.release(relaxed=True)
        for lane in np.flatnonzero(lanes).tolist():
            barrier.complete_tx(_signed32(int(values[lane])), clock)


def _state_of(barrier: MBarrier) -> int:
    return (barrier.phase << 32) | barrier.pending


@handler("mbarrier.arrive", "mbarrier.arrive_drop")
def mbarrier_arrive(warp: Warp, ins: Instruction) -> None:
    """Arrive, with or without bytes, count, drop or noComplete; local or remote."""
    operands = list(ins.operands)
    state = None
    if not hasattr(operands[0], "base"):
        state = operands.pop(0)
    address, extra = operands[0], operands[1] if len(operands) > 1 else None
    with_tx = "expect_tx" in ins.mods
    drop = ins.parts[1] == "arrive_drop"
    values = warp.read(extra, np.uint32) if extra is not None else None
    relaxed = "relaxed" in ins.mods
    states = np.zeros(32, np.uint64)
    clock = None
    # All before the first release: one instruction is one event, also on several barriers.
    targets = [
        (lanes, lane_bits(lanes), use_mbarrier(warp, cta, offset, ins, lanes=lane_bits(lanes)))
        for lanes, _, cta, offset in _targets(warp, address, ins)
    ]
    for lanes, bits, barrier in targets:
        phase = barrier.phase
        for lane in np.flatnonzero(lanes).tolist():
            count = 1
            if barrier.phase == phase + 1:
                barrier.spilled(phase, warp, ins, bits, lane)
            states[lane] = _state_of(barrier)
            if with_tx and values is not None:
                _count(_signed32(int(values[lane])), "expect_tx", warp, ins, low=0)
                barrier.expect_tx(int(values[lane]), warp, ins)
            elif values is not None:
                count = int(values[lane])
                _count(count, "arrival count", warp, ins)
            if clock is None:
                clock = warp.sync.release(relaxed=relaxed)
                if relaxed:
                    warp.sync.note_relaxed(ins)
            if "noComplete" in ins.mods and count >= barrier.pending and barrier.tx == 0:
                warp.machine.finding(
                    "mbarrier_no_complete",
                    f"mbarrier.arrive.noComplete would complete phase {barrier.local_phase} of "
                    f"{barrier.name}: {barrier.pending} arrivals pending, {count} arrive",
                    ins=ins, warp=warp, lanes=1 << lane, barrier=barrier.info(),
                )  # fmt: skip
            barrier.arrive(count, clock, warp, ins, 1 << lane, drop=drop)
    warp.machine.touch_event()
    if state is not None and not isinstance(state, Sink):
        warp.write(state, states)


@handler("mbarrier.pending_count")
def mbarrier_pending_count(warp: Warp, ins: Instruction) -> None:
    """Give the pending count inside an opaque state."""
    warp.write(ins.operands[0], (warp.read(ins.operands[1]) & 0xFFFFF).astype(np.uint32))


class MbarrierWait(Wait):
    """A ``try_wait`` that has not succeeded yet."""

    weak = True

    def __init__(self, warp: Warp, ins: Instruction, groups: list[Any]) -> None:
        """Store the (lanes, barrier, parity, absolute phase) groups that are awaited."""
        self.warp, self.ins, self.groups = warp, ins, groups
        for group in groups:
            group[1].waiters.append(self)
            group[1].waited = True

    def ready(self) -> bool:
        """Say whether every awaited phase is complete."""
        return all(_done(group) for group in self.groups)

    def leave(self) -> None:
        """Stop counting as a waiter of the barriers."""
        for group in self.groups:
            if self in group[1].waiters:
                group[1].waiters.remove(self)

    def resume(self, warp: Warp) -> None:
        """Learn the clocks and give true."""
        self.leave()
        _finish(warp, self.ins, self.groups)

    def expire(self, warp: Warp) -> None:
        """Give false where the phase is not complete."""
        self.leave()
        _finish(warp, self.ins, self.groups)

    def _first(self) -> Any:
        return next((g for g in self.groups if not _done(g)), self.groups[0])

    def describe(self) -> str:
        """Name the barrier, the phase awaited and the phase now."""
        _, barrier, parity, phase = self._first()
        awaited = f"parity {parity}" if parity is not None else f"phase {phase}"
        return (
            f"waits {barrier.name} {awaited} (phase {barrier.local_phase} open, "
            f"{barrier.expected - barrier.pending}/{barrier.expected} arrivals"
            + (f", {barrier.tx} bytes missing" if barrier.tx > 0 else "")
            + (f", {-barrier.tx} bytes too many" if barrier.tx < 0 else "")
            + ")"
        )

    def barrier_info(self) -> Any:
        """Give the state of the awaited barrier."""
        barrier = self._first()[1]
        return barrier.info(barrier.local_phase)

    @property
    def barrier(self) -> MBarrier:
        """The first barrier that is awaited."""
        return self._first()[1]

    @property
    def parity(self) -> int | None:
        """Parity awaited, or None for the state form."""
        return self._first()[2]


def _done(group: Any) -> bool:
    _, barrier, parity, phase = group
    if parity is not None:
        return barrier.parity_done(parity)
    return phase < barrier.phase


def _finish(warp: Warp, ins: Instruction, groups: list[Any]) -> None:
    result = np.zeros(32, bool)
    relaxed = "relaxed" in ins.mods
    for group in groups:
        lanes, barrier, parity, _ = group
        if not _done(group):
            continue
        result |= lanes
        if barrier.done:
            warp.sync.acquire(barrier.done, relaxed=relaxed)
        barrier.observe(warp, parity, ins, barrier.phase - 1)
    if len(ins.operands) and not isinstance(ins.operands[0], Sink):
        warp.write(ins.operands[0], result)


@handler("mbarrier.test_wait", "mbarrier.try_wait")
def mbarrier_wait(warp: Warp, ins: Instruction) -> Wait | None:
    """Test a phase by parity or by state; ``try_wait`` may suspend."""
    parity_form = "parity" in ins.mods
    values = warp.read(ins.operands[2], np.uint32 if parity_form else np.uint64)
    groups: list[Any] = []
    for lanes, _, cta, offset in _targets(warp, ins.operands[1], ins):
        barrier = use_mbarrier(warp, cta, offset, ins, lanes=lane_bits(lanes), dead=True)
        chosen = values[lanes]
        for value in set(chosen.tolist()):
            part = lanes & (values == value)
            if parity_form:
                groups.append((part, barrier, int(value) & 1, None))
                continue
            phase = int(value) >> 32
            if phase not in (barrier.phase, barrier.phase - 1):
                warp.machine.finding(
                    "mbarrier_state",
                    f"wait on {barrier.name} with the state of phase "
                    f"{phase - barrier.base_phase}; only phases {barrier.local_phase} (current) "
                    f"and {barrier.local_phase - 1} are legal",
                    ins=ins, warp=warp, lanes=lane_bits(part), barrier=barrier.info(),
                )  # fmt: skip
            groups.append((part, barrier, None, phase))
    late = next((g[1] for g in groups if not g[1].live), None)
    if late is not None:
        # Shipped code invalidates a barrier whose phase is complete while slower warps still test
        # it; anything else would wait for a barrier that is gone.
        if not all(_done(group) for group in groups):
            use_mbarrier(warp, late.cta, late.offset, ins)
        warp.machine.finding(
            "mbarrier_inval_order",
            f"wait on {late.name} after its mbarrier.inval: order the inval after every wait",
            ins=ins, warp=warp, severity="advice", barrier=late.info(),
        )  # fmt: skip
    done = all(_done(group) for group in groups)
    if done:
        warp.sync.state.pop("failing_test", None)
    elif ins.parts[1] == "test_wait":
        # Kept for the deadlock report: a warp that spins on it is a waiter, too.
        failing = MbarrierWait(warp, ins, groups)
        failing.leave()
        warp.sync.state["failing_test"] = failing
    if done or ins.parts[1] == "test_wait":
        _finish(warp, ins, groups)
        return None
    return MbarrierWait(warp, ins, groups)
