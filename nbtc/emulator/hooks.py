"""What the checks hear of: memory accesses, synchronisation, ends of lanes, CTAs and clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy as np

    from .clocks import Access, Conflict
    from .machine import Cluster, Cta, Machine, Path, Wait, Warp
    from .program import Instruction


class Hooks:
    """Checks called by the engine; this base does nothing. Implemented by ``race.py``.

    ``offsets`` (int64[32]) are byte offsets inside ``target``. ``mask`` is bool[32], or None when
    all 32 lanes access; offsets of lanes outside the mask are meaningless. ``size`` is bytes per
    lane (vector accesses are one call with the whole size, up to 32). ``target`` is the `Cta` that
    owns the shared memory (``space == "shared"``) or the `Region` (``space == "global"``). Calls
    come *before* the bytes are read or written. Local, param and const accesses are not reported.
    ``ins.sem``/``ins.scope`` tell weak/relaxed/acquire/release/volatile.
    """

    #: the engine skips load/store/atomic calls when False
    wants_memory = False

    def begin(self, machine: Machine) -> None:
        """Start of a launch (report, regions and module are ready)."""

    def start_cluster(self, cluster: Cluster) -> None:
        """All CTAs and warps of the cluster exist, none has run."""

    def load(
        self,
        warp: Warp,
        space: str,
        target: Any,
        offsets: np.ndarray,
        size: int,
        mask: np.ndarray | None,
        ins: Instruction,
    ) -> None:
        """A generic-proxy load."""

    def store(
        self,
        warp: Warp,
        space: str,
        target: Any,
        offsets: np.ndarray,
        size: int,
        mask: np.ndarray | None,
        ins: Instruction,
        rows: np.ndarray | None = None,
    ) -> None:
        """A generic-proxy store; ``rows`` are the bytes of a matrix store, row by row."""

    def atomic(
        self,
        warp: Warp,
        space: str,
        target: Any,
        offsets: np.ndarray,
        size: int,
        mask: np.ndarray | None,
        ins: Instruction,
    ) -> None:
        """A generic-proxy atom or red."""

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
        """What a shadow found about one access of an asynchronous unit."""

    def warp_sync(self, warp: Warp, lanes: np.ndarray, ins: Instruction) -> None:
        """``bar.warp.sync``, shuffles, votes, match, redux: ``lanes`` (bool[32]) met."""

    def touch(self, warp: Warp, ins: Instruction, reads: int, writes: int) -> None:
        """Instruction ``ins`` is about to read/write 32-bit registers inside ``warp.watch``.

        ``reads``/``writes`` are bit masks of register rows, already intersected with the watch.
        Called before the generated code that contains ``ins`` runs (the values may be written back
        here). Instructions that go to handlers are reported too, except those whose opcode was
        registered with ``touches=False``.
        """

    def exit_lanes(self, warp: Warp, lanes: np.ndarray) -> None:
        """Lanes ended (``ret`` of the entry, ``exit``); ``warp.live`` is already updated."""

    def exit_cta(self, cta: Cta) -> None:
        """The last lane of a CTA ended. Outstanding async operations are still queued."""

    def end_cluster(self, cluster: Cluster) -> None:
        """All CTAs of the cluster ended and its async operations are drained."""

    def deadlock(
        self, machine: Machine, waiting: list[tuple[Path, Wait]], spinning: list[Path]
    ) -> None:
        """Nothing can make progress: report it (``machine.finding``). The launch ends after it."""
        names = "; ".join(
            f"CTA {p.warp.cta.ctaid} warp {p.warp.index}: {w.describe()}" for p, w in waiting[:8]
        )
        machine.finding(
            "deadlock",
            f"no warp can make progress: {names}",
            ins=waiting[0][1].ins if waiting else spinning[0].spin_ins,
            warp=waiting[0][0].warp if waiting else spinning[0].warp,
        )

    def end(self, machine: Machine) -> None:
        """End of the launch (also after a fatal finding)."""
