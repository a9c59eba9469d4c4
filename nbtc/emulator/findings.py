"""What the emulator found: findings, warnings, advice and the report that carries them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from nbtc.errors import FindingsError

__all__ = ["KINDS", "BarrierInfo", "Finding", "Frame", "Related", "Report", "user_first"]

KINDS: dict[str, str] = {
    # barriers in memory
    "deadlock": "nothing can progress: every waiter is listed with what would release it",
    "livelock": "warps spin or compute without an end, and nothing outstanding could release them",
    "mbarrier_count": "an mbarrier count is outside 1..1048575",
    "mbarrier_tx_range": "a transaction count leaves -1048575..1048575",
    "mbarrier_reinit": "mbarrier.init, or data, over a live mbarrier; mbarrier.inval first",
    "mbarrier_uninitialised": "an mbarrier is used before mbarrier.init, or after mbarrier.inval",
    "mbarrier_init_order": "an mbarrier is used without a synchronisation after its init",
    "mbarrier_inval_order": "mbarrier.inval is not ordered after every use of the barrier",
    "mbarrier_overrun": "a phase completed twice before a waiter saw the first completion",
    "mbarrier_arrivals": "more arrivals than the init count in one phase",
    "mbarrier_expect_order": "a phase can complete before an expect_tx meant for it",
    "mbarrier_tx_mismatch": "a phase completed while bytes of its copies were outstanding",
    "mbarrier_remote": "a remote mbarrier used with a form that is only legal on the own CTA",
    "mbarrier_state": "a wait with the state of neither the current nor the previous phase",
    "mbarrier_no_complete": "a noComplete arrive completed the phase",
    # barriers of CTA and cluster
    "barrier_partial": "a block barrier was not reached by all threads",
    "barrier_mismatch": "one named barrier used with different counts or kinds in a generation",
    "barrier_cohort": "two cohorts of threads can meet in one generation of a named barrier",
    "barrier_count": "a named barrier's id or thread count is out of range",
    "cluster_barrier_partial": "a cluster barrier was not reached by all threads of the cluster",
    "cluster_barrier_order": "barrier.cluster.arrive or wait twice in a row by one thread",
    "cluster_start": "shared memory of a CTA of the cluster is used before it is known to run",
    "aligned_divergence": "an .aligned instruction executed by part of a warp or warpgroup",
    "cta_exited": "a CTA exited while a peer or an asynchronous copy still uses its memory; a "
    "relaxed cluster barrier waits for no posted store or arrival (on an H200 the launch fails)",
    # races
    "race": "two accesses, at least one a write, are not ordered by any synchronisation",
    "read_in_flight": "memory is read while an asynchronous copy into it is not known complete",
    "write_in_flight": "memory is written while an asynchronous operation may still use it",
    "overwrite_while_read": "memory is overwritten while a reader is not known to be done",
    "missing_proxy_fence": "generic writes reach the async proxy without fence.proxy.async",
    "missing_acquire_fence": "a relaxed wait or load with no fence orders nothing",
    "missing_tensormap_fence": "a tensor map in global memory used without its acquire fence",
    "uninitialised_read": "memory or a register is read that was never written",
    # TMA and bulk copies
    "tma_coordinate": "a TMA coordinate breaks the 16-byte rule of the innermost dimension",
    "tma_alignment": "an address or size of a bulk or tensor copy is not aligned",
    "tma_swizzle_base": "a swizzled tile does not start on its repeat boundary",
    "tma_store_spill": "a TMA store writes whole 16-byte pieces behind the rows of the tensor",
    "tma_box": "a TMA box is larger than its piece of the layout, or leaves a part of it out",
    "tma_swizzle": "the tensor map's swizzle differs from that of the layout's tile",
    "tma_outside": "a TMA box lies wholly outside the tensor, and swapped coordinates inside",
    "tma_descriptor": "a tensor map is not valid for the instruction",
    "bulk_incomplete": "a bulk store was never waited for before the CTA exited",
    # wgmma
    "wgmma_in_flight": "registers of a wgmma are touched before wait_group covers it",
    "wgmma_fence": "registers of a wgmma were written without wgmma.fence",
    "wgmma_uninitialised": "a wgmma accumulates onto accumulators that were never written",
    "wgmma_uncommitted": "a wgmma is never committed or never waited for",
    "wgmma_descriptor": "a matrix descriptor is not valid",
    "descriptor_swizzle": "a descriptor's swizzle differs from the one the data was written with",
    "descriptor_stride": "a descriptor's stride or leading offset lets rows overlap",
    "descriptor_step": "a descriptor starts inside a k-step of its swizzle row",
    "operand_type": "the instruction reads another element type than the tensor map loaded",
    "setmaxnreg": "a register plan of setmaxnreg breaks its rules",
    # tcgen05
    "tmem_unallocated": "TMEM is used without a live allocation",
    "tmem_columns": "a TMEM column count is not a power of two in 32..512",
    "tmem_oversubscribed": "allocations exceed the 512 columns of TMEM",
    "tmem_leak": "TMEM was never freed before exit",
    "tmem_dealloc": "a TMEM deallocation does not match a live allocation",
    "tmem_permit": "tcgen05.alloc after relinquish_alloc_permit",
    "tmem_lane": "a warp accesses lanes of TMEM outside its quarter",
    "tmem_bounds": "an access leaves the 128 lanes or 512 columns of TMEM",
    "tmem_slot": "the slot with the TMEM address is read with no synchronisation after alloc",
    "tmem_race": "TMEM accesses that nothing orders",
    "tmem_in_flight": "TMEM is read or reused while an asynchronous operation may use it",
    "tmem_uninitialised": "TMEM is read that was never written",
    "tmem_layout": "TMEM is read in another layout than it was written",
    "tcgen05_cta_group": "cta_group::1 and cta_group::2 are mixed in one kernel",
    "tcgen05_pair_order": "alloc or dealloc of a CTA pair is not ordered with the peer",
    "tcgen05_descriptor": "an instruction or matrix descriptor is not valid",
    "tcgen05_fence": "a relaxed wait without tcgen05.fence::after_thread_sync",
    "tcgen05_ld_early": "registers of tcgen05.ld used before tcgen05.wait::ld",
    # cluster launch control
    "clc_after_failure": "try_cancel after an observed failure",
    "clc_response": "the first CTA of a failed cancellation is undefined",
    # faults of plain instructions
    "float64_arithmetic": "float64 arithmetic in a kernel that has no float64 in memory",
    "out_of_bounds": "an access outside every allocation",
    "misaligned": "an access not aligned to its size",
    "illegal_instruction": "an operand value that the hardware refuses",
    "trap": "a trap instruction was executed",
    "shuffle_inactive": "shfl.sync reads a lane outside the mask or inactive",
    "sync_mask": "a .sync instruction executed by a lane outside its mask",
    "uniform_branch": "a branch marked .uni diverges",
}
"""Every kind of finding and what it means: the one table of identifiers."""


@dataclass(frozen=True)
class Frame:
    """One source position: the user's own frame, or one of the calls inlined into it."""

    file: str
    line: int
    function: str | None = None

    def __str__(self) -> str:
        """Show as ``file:line`` with the function where known."""
        where = f"{self.file}:{self.line}" if self.line else self.file or "<unknown>"
        return f"{where} in {self.function}" if self.function else where


@dataclass(frozen=True)
class Related:
    """Another line that belongs to a finding: the copy, the write, the init."""

    label: str
    file: str
    line: int

    def __str__(self) -> str:
        """Show as ``label: file:line``."""
        return f"{self.label}: {self.file}:{self.line}"


@dataclass(frozen=True)
class BarrierInfo:
    """State of a barrier at the time of a finding."""

    name: str
    address: int
    phase_awaited: int | None = None
    phase: int = 0
    arrivals: int = 0
    arrivals_needed: int = 0
    bytes_delivered: int = 0
    bytes_expected: int = 0

    @property
    def bytes_missing(self) -> int:
        """Bytes that are expected and not delivered; negative when too many came."""
        return self.bytes_expected - self.bytes_delivered


_LIBRARY = (
    "/nbtc/device/",
    "/nbtc/intrinsics/",
    "/intrinsics/",
    "/numba/",
    "/numba_cuda/",
    "/include/cccl/",
    "/include/cooperative_groups",
)


_LENGTH, _VERSION = re.compile(r"\d+"), re.compile(r"B\d+v\d+")


def plain_name(name: str | None) -> str | None:
    """Return the Python name of a function that Numba mangled; others as they are.

    A mangled name is ``_ZN``, parts with their lengths before them, and tags, first a version.
    """
    if not name or not name.startswith("_ZN"):
        return name or None
    at, part = len("_ZN"), name
    while (length := _LENGTH.match(name, at)) is not None:
        at = length.end() + int(length[0])
        part = name[length.end() : at]
    return part if _VERSION.match(name, at) else name


def user_first(chain: Sequence[Any]) -> tuple[Frame, ...]:
    """Order a chain of positions (innermost first) for a reader.

    The user's frame comes first: the innermost one that is not inside nbtc's device library or
    Numba. The calls inlined into it follow, then the callers outside it.
    """
    frames = [
        Frame(item.file, item.line, plain_name(getattr(item, "function", None))) for item in chain
    ]
    for index, frame in enumerate(frames):
        path = frame.file.replace("\\", "/")
        if not any(part in path for part in _LIBRARY):
            return (frame, *reversed(frames[:index]), *frames[index + 1 :])
    return tuple(reversed(frames))


def _thread(warp: int | None, lanes: Any) -> int | None:
    if warp is None or lanes is None:
        return None
    if isinstance(lanes, int):
        return warp * 32 + (lanes & -lanes).bit_length() - 1 if lanes else None
    active = [lane for lane in range(len(lanes)) if lanes[lane]]
    return warp * 32 + active[0] if active else None


@dataclass(frozen=True)
class Finding:
    """One fault, warning or piece of advice.

    Attributes:
        kind: A key of ``KINDS``.
        message: What happened, the rule, and the right value.
        file: Source file of the user's frame.
        line: Line in ``file``; 0 when the PTX carries no line information.
        frames: The user's frame first, then the calls inlined into it, innermost last.
        related: Other lines that belong to it.
        cta: CTA coordinates in the grid, or None.
        warp: Warp index in the CTA, or None.
        thread: Thread index in the CTA where one thread stands for it, or None.
        barrier: State of the barrier where one is concerned.
        ptx_line: Line of the instruction in the PTX text, 0 when unknown.
    """

    kind: str
    message: str
    file: str = ""
    line: int = 0
    frames: tuple[Frame, ...] = ()
    related: tuple[Related, ...] = ()
    cta: tuple[int, int, int] | None = None
    warp: int | None = None
    thread: int | None = None
    barrier: BarrierInfo | None = None
    ptx_line: int = 0
    count: int = field(default=1, compare=False)

    def __str__(self) -> str:
        """Show message, place and related lines in a few lines."""
        where = str(self.frames[0]) if self.frames else f"{self.file or '<ptx>'}:{self.line}"
        if not self.line and self.ptx_line:
            where = f"<ptx>:{self.ptx_line}"
        who = ""
        if self.cta is not None:
            who = f" [CTA {self.cta[0]},{self.cta[1]},{self.cta[2]}"
            who += f" warp {self.warp}]" if self.warp is not None else "]"
        lines = [f"{where}: {self.kind}: {self.message}{who}"]
        lines += [f"    inlined: {frame}" for frame in self.frames[1:]]
        lines += [f"    {item}" for item in self.related]
        if self.count > 1:
            lines.append(
                f"    and {self.count - 1} more like it: other stages, threads or trips of a loop"
            )
        return "\n".join(lines)


_EARLY_WAIT = "returned without a completed phase"
_CONSEQUENCES = ("uninitialised_read", "race")


def _causes_first(met: list[Finding]) -> list[Finding]:
    """Move findings that name a wait that returned too early before what such a wait leads to."""
    causes = [f for f in met if _EARLY_WAIT in f.message]
    follows = [f.kind in _CONSEQUENCES and _EARLY_WAIT not in f.message for f in met]
    if not causes or not any(follows):
        return met
    at = follows.index(True)
    later = [f for f in causes if f in met[at:]]
    return [*met[:at], *later, *(f for f in met[at:] if f not in later)]


class Report:
    """Result of one emulated launch.

    Attributes:
        findings: Faults; empty when the kernel is right.
        warnings: Contested or risky use that is not proven wrong.
        advice: Hints.
        instructions: Executed warp-instructions.
        bytes_read, bytes_written: Traffic by memory space.
        bank_conflicts: ``(file, line) -> extra shared-memory wavefronts``.
    """

    def __init__(self) -> None:
        """Start an empty report."""
        self._items: dict[str, dict[tuple[object, ...], Finding]] = {
            "finding": {},
            "warning": {},
            "advice": {},
        }
        self.instructions = 0
        self.bytes_read: dict[str, int] = {}
        self.bytes_written: dict[str, int] = {}
        self.bank_conflicts: dict[tuple[str, int], int] = {}
        self.counters: dict[str, int] = {}
        self.seed: int | None = None
        self.policy: str | None = None

    def add(
        self,
        severity: str,
        kind: str,
        message: str,
        *,
        chain: Sequence[Any] = (),
        related: Sequence[Related] = (),
        cta: tuple[int, int, int] | None = None,
        warp: int | None = None,
        lanes: Any = None,
        barrier: BarrierInfo | None = None,
        ptx_line: int = 0,
    ) -> Finding:
        """Add one item; the same kind at the same lines is counted, and the first one kept.

        Args:
            severity: ``"finding"``, ``"warning"`` or ``"advice"``.
            kind: A key of ``KINDS``.
            message: What happened, the rule, and the right value.
            chain: Positions (objects with file, line, function), innermost first.
            related: Other lines that belong to it.
            cta: CTA coordinates.
            warp: Warp index in the CTA.
            lanes: Lanes concerned, a bool[32] or a bit mask.
            barrier: State of the barrier concerned.
            ptx_line: Line in the PTX text.
        """
        kind = kind.replace("-", "_")
        if kind not in KINDS:
            raise KeyError(f"unknown kind of finding {kind!r}: add it to KINDS")
        frames = user_first(chain)
        file, line = (frames[0].file, frames[0].line) if frames else ("<ptx>", ptx_line)
        where = (file, line, frames[-1].line if frames else 0)
        key: tuple[object, ...] = (
            kind,
            where,
            tuple((item.label, item.file, item.line) for item in related),
            # the barriers of the stages of a ring fail alike
            barrier.name.partition("[")[0] if barrier is not None else None,
        )
        if kind in ("deadlock", "livelock"):
            key = (*key, message)
        items = self._items[severity]
        old = items.get(key)
        if old is not None:
            object.__setattr__(old, "count", old.count + 1)
            return old
        finding = Finding(
            kind, message, file, line, frames, tuple(related), cta, warp,
            _thread(warp, lanes), barrier, ptx_line,
        )  # fmt: skip
        items[key] = finding
        return finding

    @property
    def findings(self) -> list[Finding]:
        """Faults in the order they were met, but a wait that was none before what follows it."""
        return _causes_first(list(self._items["finding"].values()))

    @property
    def warnings(self) -> list[Finding]:
        """Contested or risky use."""
        return list(self._items["warning"].values())

    @property
    def advice(self) -> list[Finding]:
        """Hints."""
        return list(self._items["advice"].values())

    @property
    def ok(self) -> bool:
        """True when there is no finding (warnings and advice do not count)."""
        return not self._items["finding"]

    def raise_for_findings(self) -> None:
        """Raise ``nbtc.errors.FindingsError`` that lists the findings, if there are any."""
        if not self.ok:
            raise FindingsError(str(self))

    def __repr__(self) -> str:
        """Show the counts."""
        return (
            f"<Report findings={len(self.findings)} warnings={len(self.warnings)} "
            f"advice={len(self.advice)} instructions={self.instructions}>"
        )

    def __str__(self) -> str:
        """Show everything found, then the counts."""
        out: list[str] = []
        for title, items in (
            ("finding", self.findings),
            ("warning", self.warnings),
            ("advice", self.advice),
        ):
            for number, item in enumerate(items, 1):
                out.append(f"{title} {number}: {item}")
        if self.ok:
            out.append("no findings")
        out.append(f"{self.instructions} warp-instructions")
        if self.bytes_read or self.bytes_written:
            spaces = sorted({*self.bytes_read, *self.bytes_written})
            out.append(
                ", ".join(
                    f"{space}: {self.bytes_read.get(space, 0)} B read, "
                    f"{self.bytes_written.get(space, 0)} B written"
                    for space in spaces
                )
            )
        if self.bank_conflicts:
            worst = sorted(self.bank_conflicts.items(), key=lambda item: -item[1])[:8]
            out.append("bank conflicts (extra shared-memory wavefronts):")
            out += [f"    {file}:{line}: {count}" for (file, line), count in worst]
        return "\n".join(out)
