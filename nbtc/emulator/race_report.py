"""Words for conflicting accesses: which finding a conflict is, and what it says."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from .clocks import ORDER, PROXY, UNINITIALISED, Access, Conflict, happened
from .race_places import related, where
from .silent_store import EQUAL
from .waiters import early_wait

if TYPE_CHECKING:
    from .machine import Cta, Instruction, Machine, Warp
    from .race import WarpSync

__all__ = ["Wording"]

_LINES = 4  # accesses that are reported against one and the same earlier access


class Wording:
    """The part of the hooks that turns conflicts into findings."""

    machine: Machine
    checks: frozenset[str]
    race: bool
    _lines: dict[tuple[str, int], set[int]]
    _told: set[tuple[int, int, int]]
    _late: list[tuple[Any, ...]]

    def conflicts(
        self,
        found: Iterable[Conflict],
        access: Access,
        warp: Warp,
        ins: Instruction,
        *,
        space: str,
        target: Any,
        place_text: str = "",
        late: Callable[[Access], bool] | None = None,
    ) -> None:
        """Turn conflicts of one access into findings.

        ``late`` says whether the reader itself fenced after it knew of an access: where the
        writing thread does so too, the missing fence before the barrier is advice. Compilers emit
        that for wgmma. The writer may get there later, so that the CTA's exit decides.
        """
        seen: set[tuple[int, str]] = set()
        for old, reason in found:
            key = (id(old.place), reason)
            if key in seen or not self._really(old, access):
                continue
            seen.add(key)
            if reason == UNINITIALISED:
                if "poison" in self.checks:
                    self._poison(access, warp, ins, target, place_text)
            elif reason == PROXY:
                told = (id(ins), id(old.place), old.warp.index if old.warp else -1)
                if "proxy" in self.checks and told not in self._told:
                    self._told.add(told)
                    if late is not None and late(old):
                        self._late.append((old, access, warp, ins, space, place_text))
                    else:
                        self._proxy(old, access, warp, ins, space, place_text)
            elif reason == ORDER and self.race:
                self._order(old, access, warp, ins, space, place_text)

    def late_fences(self, cta: Cta | None = None) -> None:
        """Report the proxy fences that were due at operations of a CTA, or of all CTAs."""
        due = [item for item in self._late if cta is None or item[2].cta is cta]
        self._late = [item for item in self._late if cta is not None and item[2].cta is not cta]
        for old, access, warp, ins, space, place_text in due:
            never = old.fences.uncovered(old.lanes, old.time, sys.maxsize)
            self._proxy(old, access, warp, ins, space, place_text, late=not never)

    @staticmethod
    def _really(old: Access, new: Access) -> bool:
        """Compare exactly where a recorded region is wider than what is read."""
        if old.exact is None and new.exact is None:
            return True
        if old.exact is not None and new.exact is not None:
            return bool(np.isin(new.exact(), old.exact()).any())
        return True

    def _poison(self, access: Access, warp: Warp, ins: Instruction, target: Any,
                place_text: str) -> None:  # fmt: skip
        """Report a read of bytes that nobody wrote.

        Rows of a matrix operand that only feed discarded results are often left unwritten, so an
        operand of which a part was written is a warning.
        """
        severity = "finding"
        if access.exact is not None:
            chunks = access.exact()
            shadow = target.sync.shadow
            written = [any(n != 0 for n in shadow.writers(int(c), int(c) + 16)) for c in chunks]
            if all(written):
                return
            if any(written):
                severity = "warning"
        self.machine.finding(
            "uninitialised_read",
            f"{access.what} of shared memory {place_text}that was never written".replace(
                "  ", " ") + early_wait(warp),
            ins=ins, warp=warp, lanes=access.lanes, severity=severity,
        )  # fmt: skip

    def _proxy(self, old: Access, access: Access, warp: Warp, ins: Instruction, space: str,
               place_text: str, *, late: bool = False) -> None:  # fmt: skip
        fences = old.fences
        known = warp.sync.clock.get(old.agent, 0)
        missing = fences.uncovered(old.lanes, old.time or 0, known) if fences else old.lanes
        missing = missing or old.lanes
        thread = old.warp.index * 32 + (missing & -missing).bit_length() - 1
        memory = "shared" if space == "shared" else "global"
        verb = "writes" if access.write else "reads"
        message = (
            f"{access.what} {verb} {memory} memory {place_text}written by thread {thread} at "
            f"{where(old.place)} with no fence.proxy_async() by thread {thread} before the "
            "barrier; each writing thread fences, then the barrier, then the asynchronous operation"
        )
        if late:
            message += " (here they fence after it, as do the threads of the operation)"
        mild = late or (access.write and not access.strict) or old.what == "cp.async"
        done = "written" if old.write else "read"
        self.machine.finding(
            "missing_proxy_fence", message.replace(" written by ", f" {done} by "), ins=ins,
            warp=warp, severity="advice" if mild else "finding",
            related=related(f"{done} by thread {thread}", old.place), lanes=access.lanes,
        )  # fmt: skip

    def same_value(
        self, old: Access, warp: Warp, ins: Instruction, access: Access, how: str
    ) -> None:
        """Advise about two stores of the same value that nothing orders, or warn: nearly."""
        tail = "no reader can tell" if how == EQUAL else "the last one decides the rounding"
        self.machine.finding(
            "race",
            f"store is not ordered after the {old.what} at {where(old.place)}{self._who(old)}; "
            f"both write {how}, so that {tail}",
            ins=ins, warp=warp, lanes=access.lanes,
            severity="advice" if how == EQUAL else "warning",
            related=related(f"{old.what}", old.place),
        )  # fmt: skip

    def guess(self, old: Access, warp: Warp, ins: Instruction) -> None:
        """Advise about a plain load, compared by an ``atom.cas``, that races with atomics."""
        self.machine.finding(
            "race",
            f"{'load' if old.write else 'atomic'} is not ordered after the access at "
            f"{where(old.place)}{self._who(old)}; the loaded value is only what an atom.cas "
            "compares with, so that an old one costs a trip; ld.relaxed says it",
            ins=ins, warp=warp, severity="advice", related=related("access", old.place),
        )  # fmt: skip

    def _order(self, old: Access, access: Access, warp: Warp, ins: Instruction, space: str,
               place_text: str) -> None:  # fmt: skip
        sync: WarpSync = warp.sync
        severity = "finding"
        extra = ""
        if old.time is not None and happened(old, sync.pending):
            kind = "missing_acquire_fence"
            severity = "warning" if old.channel is None else "finding"
            extra = ("; a relaxed operation saw the release, but no acquire fence follows: use the "
                     "acquire form or fence")  # fmt: skip
        elif old.what == "tcgen05.alloc" and not access.write:
            kind = "tmem_slot"
        elif access.write and not old.write:
            asynchronous = old.channel is not None or access.channel is not None
            kind = "overwrite_while_read" if asynchronous else "race"
        elif old.channel is not None:
            kind = "write_in_flight" if access.write else "read_in_flight"
        else:
            kind = "race"
        lines = self._lines.setdefault((kind, id(old.place)), set())
        lines.add(id(ins))
        if len(lines) > _LINES:
            return
        old_who = self._who(old)
        memory = f"{space} memory {place_text}".strip()
        if kind == "tmem_slot":
            thread = warp.index * 32 + (access.lanes & -access.lanes).bit_length() - 1
            text = (
                f"tmem address slot read by thread {thread} with no synchronisation after "
                f"tcgen05.alloc at {where(old.place)}"
            )
        elif kind == "read_in_flight":
            text = (
                f"{memory} read by the {access.what} while the {old.what} at {where(old.place)} "
                f"into it is in flight: {self._why(old, warp)}"
            )
        elif kind == "overwrite_while_read":
            text = (
                f"{memory} overwritten by the {access.what} while the {old.what} at "
                f"{where(old.place)}{old_who} may still read it: {self._why(old, warp)}"
            )
        else:
            verb = "written" if old.write else "read"
            text = (
                f"{access.what} of {memory} is not ordered after the {old.what} at "
                f"{where(old.place)}{old_who} that {verb.replace('written', 'wrote')} it"
            )
            if old.channel is not None:
                new = access if access.write and old.write else None
                text += f": {self._why(old, warp, refill=new, stage=place_text)}"
        extra += relaxed_text(old)
        if (kind == "overwrite_while_read" and old.warp is not None
                and old.warp.cta is not warp.cta
                and old.warp.cta.cluster is warp.cta.cluster):  # fmt: skip
            extra += f"; rank {warp.cta.rank} has no wait on rank {old.warp.cta.rank}"
        self.machine.finding(
            kind, text + extra, ins=ins, warp=warp, severity=severity, lanes=access.lanes,
            related=related(f"{old.what}", old.place),
            barrier=getattr(old.channel, "info", lambda: None)(),
        )  # fmt: skip

    @staticmethod
    def _who(old: Access) -> str:
        if old.warp is None:
            return ""
        lane = (old.lanes & -old.lanes).bit_length() - 1
        return f" by CTA rank {old.warp.cta.rank} thread {old.warp.index * 32 + lane}"

    @staticmethod
    def _why(old: Access, warp: Warp, *, refill: Access | None = None, stage: str = "") -> str:
        channel = old.channel
        if refill and hasattr(channel, "refill_text") and channel not in warp.sync.waits:
            apart = (old.warp, old.place) == (warp, refill.place) and not old.lanes & refill.lanes
            return channel.refill_text(stage.split(" [", maxsplit=1)[0].strip(), lanes_apart=apart)
        if channel is not None and hasattr(channel, "explain"):
            return channel.explain(old, warp)
        return "no wait or barrier orders the two"


def relaxed_text(old: Access) -> str:
    """Tell a relaxed arrive that was perhaps meant to publish an access."""
    if old.warp is None or old.time is None or old.agent != old.warp.sync.agent:
        return ""
    for time, ins in old.warp.sync.relaxed:
        if time >= old.time:
            return f"; the arrive at {where(ins)} is relaxed and releases nothing"
    return ""
