"""The mbarrier object: pending arrivals, signed transaction count, phase, and its history.

The model is that of the PTX ISA (9.7.13.15): ``init`` sets phase 0; ``expect_tx`` adds bytes;
``complete_tx`` takes bytes off and checks; ``arrive`` takes arrivals off and checks; the check
completes the phase when neither arrivals nor bytes are outstanding. On top of it every phase keeps
the clock that its arrivals and copies publish, and who did what, for the messages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .clocks import Access, Clock, happened, join
from .findings import BarrierInfo, Related
from .race import place, related, where
from .shared_names import partner_name, shared_name

if TYPE_CHECKING:
    from .machine import Cta, Instruction, Warp

__all__ = ["MAX_COUNT", "CopyRecord", "MBarrier", "WaitRecord", "stale_text"]

MAX_COUNT = (1 << 20) - 1


def stale_text(warp: Warp | None) -> tuple[str, Any]:
    """Words and line of a wait that returned for a phase that the warp had seen before."""
    stale = warp.sync.state.get("stale_wait") if warp is not None else None
    if stale is None:
        return "", None
    barrier, parity, ins, phase = stale
    text = (
        f". The wait on {barrier.name} at {where(ins)} returned for phase {phase}, which the warp "
        f"had seen before: parity {parity} given, barrier is in phase {barrier.local_phase}; carry "
        "the stage/phase state across tiles"
    )
    return text, ins


ONE_THREAD = "let one thread do it, chosen by sync.elect() or its number"


@dataclass(eq=False, slots=True)
class CopyRecord:
    """One asynchronous operation that signals bytes on a barrier; ``filled``: by which map."""

    ins: Instruction | None
    warp: Any
    bytes: int
    issued_phase: int
    landed_phase: int | None = None
    valid: int = -1
    filled: Any = None

    @property
    def text(self) -> str:
        """Where, how many bytes, and from which rank of a cluster."""
        rank = ""
        if self.warp is not None and len(self.warp.cta.cluster.ctas) > 1:
            rank = f" by rank {self.warp.cta.rank}"
        return f"{where(self.ins)} ({self.bytes} B{rank})"


@dataclass(slots=True)
class WaitRecord:
    """Last successful wait of a warp on a barrier: the phase it proved complete, -1 for none."""

    phase: int
    parity: int | None
    now: int
    ins: Instruction | None


@dataclass(eq=False, slots=True)
class _Phase:
    arrivals: int = 0
    expects: list[tuple[Any, Any, int, int, int]] = field(default_factory=list)
    expected: int = 0
    delivered: int = 0
    last_arrive: Any = None
    arrive_clocks: list[Clock] = field(default_factory=list)


class MBarrier:
    """One mbarrier in shared memory.

    Attributes:
        cta, offset: Where it lives.
        expected, pending, tx, phase: The state of the PTX model.
        live: False after ``inval``.
        clock: Published by arrivals and copies so far.
        done: Clock of the last completed phase.
        agent: Agent whose time ``p + 1`` means that phase ``p`` is known complete.
    """

    def __init__(self, cta: Cta, offset: int) -> None:
        """Make an object that is not initialised."""
        self.cta, self.offset = cta, offset
        self.machine = cta.machine
        launch = cta.machine.sync
        self.name = self._name()
        self.agent = launch.agents.new(self.name)
        self.live = False
        self.expected = self.pending = self.tx = self.phase = 0
        self.base_phase = 0
        self.clock: Clock = {}
        self.done: Clock = {}
        self.init_ins: Instruction | None = None
        self.init_event = (0, 0)
        self.init_fenced = False
        self.init_warp: Any = None
        self.current = _Phase()
        self.history: dict[int, _Phase] = {}
        self.copies: list[CopyRecord] = []
        self.observed = -1
        self.waited = False
        self.waiters: list[Any] = []
        self.overrun: tuple[Any, Any] | None = None
        self.arrivers: dict[tuple[int, int], Any] = {}
        self.users: dict[int, tuple[int, Any, Any]] = {}
        self.commits = 0
        self.advances: dict[int, int] = {}
        self.reported: set[str] = set()

    # -- names --------------------------------------------------------------------------------

    def _name(self) -> str:
        cta = self.cta
        suffix = f" of CTA rank {cta.rank}" if len(cta.cluster.ctas) > 1 else ""
        return self._short + suffix

    @property
    def _short(self) -> str:
        """Name inside its CTA."""
        return shared_name(self.machine, self.offset) or f"smem+{self.offset:#x}"

    @property
    def place_text(self) -> str:
        """Words for its address."""
        plain = f"smem+{self.offset:#x}"
        return plain if plain in self.name else f"{self.name} ({plain})"

    @property
    def local_phase(self) -> int:
        """Phases completed since the last init."""
        return self.phase - self.base_phase

    @property
    def never_arrived(self) -> bool:
        """No thread has arrived, and no bytes were announced or came, since the init."""
        now = self.current
        return not (self.arrivers or self.commits or now.arrivals or now.expected or now.delivered)

    def info(self, awaited: int | None = None) -> BarrierInfo:
        """Give the state for a finding; phases are counted since the last init."""
        now = self.current
        return BarrierInfo(
            self.name,
            self.cta.shared_address(self.offset),
            awaited,
            self.local_phase,
            self.expected - self.pending,
            self.expected,
            now.delivered,
            now.expected,
        )

    # -- the model ----------------------------------------------------------------------------

    def init(self, count: int, warp: Warp, ins: Instruction) -> None:
        """``mbarrier.init``; phases go on counting so that old clocks stay old."""
        self.live = True
        self.expected = self.pending = count
        self.tx = 0
        if self.init_ins is not None:
            self.phase += 2
        self.base_phase = self.phase
        self.observed = self.phase - 1
        self.waited = False
        self.overrun = None
        self.clock = {}
        self.done = {}
        self.current = _Phase()
        self.history = {}
        self.copies = []
        self.users = {}
        self.init_ins, self.init_warp = ins, warp
        sync = warp.sync
        clock = sync.clock
        clock[sync.init_agent] = clock.get(sync.init_agent, 0) + 1
        self.init_event = (sync.init_agent, clock[sync.init_agent])
        self.init_fenced = False
        self.machine.touch_event()

    def expect_tx(self, count: int, warp: Warp, ins: Instruction) -> None:
        """Add bytes to the current phase; no completion check."""
        self.tx += count
        self.current.expected += count
        sync = warp.sync
        self.current.expects.append((ins, warp, count, sync.agent, sync.time))

    def complete_tx(self, count: int, clock: Clock, copy: CopyRecord | None = None) -> None:
        """Take bytes off; ``clock`` is what the copy's completion publishes."""
        if not self.live:
            self._finding(
                "gone", "mbarrier_uninitialised",
                f"{count} bytes are signalled on {self.name} after its mbarrier.inval",
                ins=copy.ins if copy is not None else self.init_ins,
                warp=copy.warp if copy is not None else None,
            )  # fmt: skip
        self.tx -= count
        self.current.delivered += count
        join(self.clock, clock)
        if copy is not None:
            copy.landed_phase = self.phase
            if copy.issued_phase != self.phase:
                self._late(copy)
        self._check(None, None)

    def arrive(
        self, count: int, clock: Clock, warp: Any, ins: Any, lanes: int = 1, *, drop: bool = False
    ) -> None:
        """Take arrivals off the current phase and publish ``clock``."""
        if drop:
            self.expected -= count
        if count > self.pending:
            self._too_many(count, warp, ins, lanes)
            count = min(count, max(self.pending, 0))
        self.pending -= count
        self.current.arrivals += count
        self.current.last_arrive = (warp, ins, lanes)
        if clock:
            join(self.clock, clock)
            known = self.current.arrive_clocks
            if not known or known[-1] is not clock:  # lanes of one instruction share a clock
                known.append(clock)
        if warp is not None and ins is not None:
            self.arrivers[warp.id, id(ins)] = (warp, ins)
        self._check(warp, ins)

    def _check(self, warp: Any, ins: Any) -> None:
        if self.pending != 0 or self.tx != 0:
            if self.tx > MAX_COUNT or self.tx < -MAX_COUNT:
                self._range(warp, ins)
            return
        finished = self.current
        number = self.phase
        self._check_expects(finished)
        if self.observed < number - 1 and self.overrun is None:
            self.overrun = (finished.last_arrive, number - self.base_phase)
        self.history[number] = finished
        self.history.pop(number - 4, None)
        self.phase = number + 1
        self.pending = self.expected
        self.commits += 1
        self.current = _Phase()
        self.copies = [c for c in self.copies if c.landed_phase is None]
        self.done = dict(self.clock)
        self.done[self.agent] = self.phase
        self.machine.touch_event()
        if self.overrun is not None and (self.waited or self.waiters):
            self.report_overrun(None)

    # -- waits --------------------------------------------------------------------------------

    def parity_done(self, parity: int) -> bool:
        """``test_wait.parity``: is the phase of that parity complete?"""
        return (self.local_phase & 1) != parity

    def observe(self, warp: Warp, parity: int | None, ins: Instruction, phase: int) -> None:
        """Note a successful wait that proved ``phase`` (absolute) complete."""
        self.observed = max(self.observed, phase)
        self.waited = True
        self.advances[warp.id] = self.advances.get(warp.id, 0) + 1
        before = warp.sync.waits.get(self)
        local = phase - self.base_phase
        stale = warp.sync.state.get("stale_wait")
        if before is not None and before.phase == local >= 0 and parity is not None:
            warp.sync.state["stale_wait"] = (self, parity, ins, local)
        elif stale is not None and stale[0] is self and local > stale[3]:
            del warp.sync.state["stale_wait"]
        warp.sync.waits[self] = WaitRecord(phase - self.base_phase, parity, self.local_phase, ins)
        if self.overrun is not None:
            self.report_overrun((warp, ins))

    # -- findings -----------------------------------------------------------------------------

    def _finding(self, key: str, kind: str, message: str, **more: Any) -> None:
        if key in self.reported or "mbarrier" not in self.machine.sync.checks:
            return
        self.reported.add(key)
        more.setdefault("barrier", self.info())
        self.machine.finding(kind, message, **more)

    def report_overrun(self, waiter: tuple[Any, Any] | None) -> None:
        """Report that two phases completed with no wait between them."""
        assert self.overrun is not None
        last, phase = self.overrun
        self.overrun = None
        arriver, ins, lanes = last or (None, None, 1)
        if waiter is None and self.waiters:
            waiter = (self.waiters[0].warp, self.waiters[0].ins)
        who = "the last arrival"
        if arriver is not None:
            who = f"arrival by thread {arriver.index * 32 + (lanes & -lanes).bit_length() - 1}"
        until = f"thread {waiter[0].index * 32}" if waiter else "any thread"
        text, at = stale_text(arriver)
        self._finding(
            f"overrun{id(ins)}",
            "mbarrier_overrun",
            f"{who} at {where(ins)} completed phase {phase} of {self.name} (init count "
            f"{self.expected}): phase advanced twice before {until} waited on it{text}",
            ins=at or ins, warp=arriver, lanes=lanes,
            related=related("arrive", ins) + related("init", self.init_ins)
            + (related("waiter", waiter[1]) if waiter else ()),
        )  # fmt: skip

    def _too_many(self, count: int, warp: Any, ins: Any, lanes: int) -> None:
        thread = ""
        if warp is not None:
            thread = f" by thread {warp.index * 32 + (lanes & -lanes).bit_length() - 1}"
        last, again = self.current.last_arrive, ""
        if warp is not None and last and last[0] is warp and place(last[1]) == place(ins):
            empty = partner_name(self.machine, self.offset)
            if not last[2] & lanes:
                again = "; another lane of its warp arrived here too: " + ONE_THREAD
            elif empty is not None and "expect_tx" in ins.op:
                again = f"; it arrived here before in this phase: wait for {empty} first"
        self._finding(
            f"arrivals{id(ins)}",
            "mbarrier_arrivals",
            f"arrival {self.current.arrivals + count} of {self.expected} in phase "
            f"{self.local_phase} of {self.name}{thread}: more arrivals than the init count "
            f"allows{again}",
            ins=ins, warp=warp, lanes=lanes, related=related("init", self.init_ins),
        )  # fmt: skip

    def spilled(self, phase: int, warp: Warp, ins: Instruction, lanes: int, lane: int) -> None:
        """Report that the arrivals of one instruction fall into two phases.

        Which lanes complete the first phase is not specified, so what the others did before is not
        ordered before its waiters.
        """
        self._finding(
            f"spilled{id(ins)}",
            "mbarrier_arrivals",
            f"arrival {self.expected + 1} of {self.expected} in phase {phase - self.base_phase} of "
            f"{self.name} by thread {warp.index * 32 + lane}: {lanes.bit_count()} lanes arrive at "
            "once, and those that the phase has no room for count for the next one; init the "
            "barrier with the number of arriving threads",
            ins=ins, warp=warp, lanes=1 << lane, related=related("init", self.init_ins),
        )  # fmt: skip

    def _range(self, warp: Any, ins: Any) -> None:
        self._finding(
            "tx", "mbarrier_tx_range",
            f"transaction count {self.tx} of {self.name} leaves -{MAX_COUNT}..{MAX_COUNT}",
            ins=ins or self.init_ins, warp=warp,
        )  # fmt: skip

    def _late(self, copy: CopyRecord) -> None:
        phase = copy.issued_phase
        record = self.history.get(phase)
        if record is None:
            return
        total = record.delivered + copy.bytes
        expects = record.expects
        self._finding(
            f"late{id(copy.ins)}",
            "mbarrier_tx_mismatch",
            f"barrier {self.name} completed phase {phase - self.base_phase} with "
            f"{record.delivered} of {total} bytes: the copy at {where(copy.ins)} was still in "
            f"flight; expect {total} bytes instead of {record.expected}",
            ins=expects[0][0] if expects else copy.ins,
            warp=expects[0][1] if expects else copy.warp,
            related=related("copy", copy.ins),
        )  # fmt: skip

    def _check_expects(self, finished: _Phase) -> None:
        """Every expect_tx must be ordered before some arrival of its phase."""
        for ins, warp, _, agent, time in finished.expects:
            if "arrive" in ins.op or "arrive_drop" in ins.op:
                continue
            if any(clock.get(agent, 0) >= time for clock in finished.arrive_clocks):
                continue
            last = finished.last_arrive
            at = where(last[1]) if last else "the last arrival"
            self._finding(
                f"expect{id(ins)}",
                "mbarrier_expect_order",
                f"phase {self.local_phase} of {self.name} can complete at {at} before expect_tx "
                f"at {where(ins)}: nothing keeps the phase open until the bytes are announced",
                ins=ins, warp=warp, related=related("arrive", last[1]) if last else (),
            )  # fmt: skip

    def explain(self, old: Access, warp: Warp) -> str:
        """Say why a warp does not know that a copy on this barrier is complete."""
        wait = warp.sync.waits.get(self)
        if wait is None:
            return f"it never waited on {self.name}, on which the copy completes"
        if wait.phase < 0:
            return (
                f"wait({self.name}, parity {wait.parity}) at {where(wait.ins)} returned without a "
                "completed phase since init; the reader is not ordered after the copy"
            )
        copy: CopyRecord | None = old.copy
        proven = wait.phase + self.base_phase
        record = self.history.get(proven)
        if copy is not None and record is not None and self._unexpected(copy, proven):
            missing = [c for c in self.copies if self._unexpected(c, proven)] or [copy]
            total = record.delivered + sum(c.bytes for c in missing)
            text = (
                f"barrier {self.name} completed phase {wait.phase} with {record.delivered} of "
                f"{total} bytes"
            )
            if not record.expects and record.last_arrive is not None:
                text += (
                    f": no expect_tx for {self.name}; mbarrier.arrive_expect_tx({self._short}, "
                    f"{total}) in place of the arrive at {where(record.last_arrive[1])}"
                )
            return text
        now = self.local_phase
        text = f"the last wait on {self.name} at {where(wait.ins)} proved phase {wait.phase} only"
        if wait.parity is not None:
            text += (
                f" (parity {wait.parity} given, barrier is in phase {now}; carry the stage/phase "
                "state across tiles)"
            )
        if old.time is not None and not happened(old, warp.sync.clock):
            text += f"; the copy completes in phase {old.time - 1 - self.base_phase}"
        return text

    def refill_text(self, stage: str, *, lanes_apart: bool) -> str:
        """Say what a copy into ``stage`` must wait for, whose last copy completes on this."""
        if lanes_apart:
            return f"another lane of its warp issues it too: {ONE_THREAD}"
        empty = partner_name(self.machine, self.offset)
        if empty is not None and stage:
            return f"wait for {empty} before the next copy into {stage}"
        return (
            "wait until the readers of the last copy are done, on a barrier where they arrive, "
            "before the next copy"
        )

    def _unexpected(self, copy: CopyRecord, proven: int) -> bool:
        """Say whether a copy counts for a phase after ``proven`` only because none expected it."""
        if copy.issued_phase == proven:
            return copy.landed_phase != proven
        return copy.issued_phase == proven + 1 == self.phase and not self.current.expects

    def at_exit(self) -> None:
        """Report bytes that do not add up when the CTA ends."""
        if not self.live or self.tx == 0 or any(c.landed_phase is None for c in self.copies):
            return
        now, before = self.current, self.history.get(self.phase - 1)
        if self.tx < 0 and before is not None and not now.expects:
            total = before.delivered - self.tx
            expects = before.expects
            text = (
                f"barrier {self.name} completed phase {self.local_phase - 1} with "
                f"{before.delivered} of {total} bytes; expect {total} bytes instead of "
                f"{before.expected}"
            )
        else:
            expects = now.expects
            text = (
                f"barrier {self.name} phase {self.local_phase}: {now.expected} bytes expected, "
                f"{now.delivered} delivered, and the CTA ends"
            )
        ins, warp = (expects[0][0], expects[0][1]) if expects else (self.init_ins, self.init_warp)
        lines = tuple(r for c in self.copies[-2:] for r in related("copy", c.ins))
        self._finding(
            f"exit{self.base_phase}", "mbarrier_tx_mismatch", text, ins=ins, warp=warp,
            related=lines,
        )  # fmt: skip

    def ledger(self) -> str:
        """Completions and waits so far, for deadlock reports."""
        passed = max(self.advances.values(), default=0)
        if not self.commits and not passed:
            return f"No phase of {self.name} ever completed, and no wait on it returned"
        return (
            f"{self.name} completed {self.commits} phase{'s' * (self.commits != 1)} so far; "
            f"the warp that is furthest returned from {passed} wait{'s' * (passed != 1)} on it"
        )

    def deadlock_text(
        self, parity: int | None, waiter: Warp | None, name: str
    ) -> tuple[str, tuple[Related, ...]]:
        """Words for a deadlock: counts, what is missing, and the lines that belong to it."""
        now = self.current
        arrived = self.expected - self.pending
        phase = self.local_phase
        text = f"barrier {name} phase {phase}: arrivals {arrived}/{self.expected}"
        lines: list[Related] = list(related("init", self.init_ins))
        expects = [e[0] for e in now.expects]
        copies = [c for c in self.copies if c.landed_phase == self.phase or c.landed_phase is None]
        if now.expected or now.delivered:
            text += f", tx {now.delivered} of {now.expected} bytes delivered"
            missing = now.expected - now.delivered
            if missing > 0:
                text += f"; {missing} will never arrive"
            elif missing < 0:
                text += f"; {-missing} bytes more than expected"
                if not expects:
                    text += (
                        ", and no expect_tx announced them: "
                        f"mbarrier.arrive_expect_tx({self._short}, {now.delivered}) before"
                    )
            if expects:
                text += f"; expect issued at {where(expects[-1])}"
                lines += related("expect_tx", expects[-1])
            if copies:
                text += ", copies at " + ", ".join(dict.fromkeys(c.text for c in copies[-8:]))
                for copy in copies[-4:]:
                    lines += related("copy", copy.ins)
            elif missing > 0:
                text += (
                    f"; rank {self.cta.rank} expects {now.expected} B on {self.name}, no CTA "
                    "issues a copy for it"
                )
            valid = sum(c.valid for c in copies if c.valid >= 0)
            if expects and valid < sum(c.bytes for c in copies) and now.expected == valid:
                whole = sum(c.bytes for c in copies)
                text += f"; expect {valid} B for an edge box; TMA counts the full {whole} B"
        if self.pending > 0:
            bare = expects and all("arrive" not in e.op for e in expects)
            if bare and now.expected == now.delivered:
                text += "; expect_tx does not arrive; use arrive_expect_tx"
            elif arrived:
                text += f"; {arrived} of {self.expected} arrivals and no other thread can arrive"
            if self.arrivers and not arrived:
                ins = next(iter(self.arrivers.values()))[1]
                text += f"; earlier phases were released by the arrive at {where(ins)}"
                if not any(warp.live.any() for warp, _ in self.arrivers.values()):
                    text += ", whose warp has exited"
        seen = waiter.sync.waits.get(self) if waiter is not None else None
        following = (seen.phase if seen is not None else -1) + 1
        if parity is not None and parity == phase & 1 and following < phase:
            if following & 1 == parity:
                text += (
                    f". Phase {following} completed and phase {phase - 1} after it before this "
                    "warp waited: the phase advanced twice"
                )
            else:
                text += (
                    f". Phase {following} is complete and this warp never waited for it; parity "
                    f"{1 - parity} passes"
                )
        return text, tuple(dict.fromkeys(lines))
