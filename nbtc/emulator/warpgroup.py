"""State of a warpgroup: its wgmma groups, accumulators, and what each warp has in flight."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from .clocks import Access, Clock
from .machine import SHARED_BASE, Vec
from .units import UnitFault, wgmma

if TYPE_CHECKING:
    from .machine import Cta, Instruction, Warp

__all__ = [
    "Info",
    "Meet",
    "Op",
    "WarpState",
    "WarpgroupState",
    "check_info",
    "mask_of",
    "operand_spans",
    "warp_state",
    "warpgroup",
]


class Meet:
    """What several warps all know: a clock that answers with the smallest time."""

    def __init__(self, clocks: list[Clock]) -> None:
        """Keep the clocks."""
        self._clocks = clocks

    def get(self, agent: int, default: int = 0) -> int:
        """Give the time up to which all know the agent."""
        return min(clock.get(agent, default) for clock in self._clocks)


_RUNS: dict[int, tuple[Any, list[tuple[int, int]]]] = {}


def operand_spans(found: Any) -> list[tuple[int, int]]:
    """Give the spans, as offsets in shared memory, that an operand reads; whole swizzled rows."""
    key = id(found.chunks) * 2 + (found.swizzle == "none")
    cached = _RUNS.get(key)
    if cached is None:
        unit = 16 if found.swizzle == "none" else 128
        rows = np.unique((found.chunks.astype(np.int64) * 16) // unit * unit)
        cuts = np.flatnonzero(np.diff(rows) != unit) + 1
        runs = [(int(run[0]), int(run[-1]) + unit) for run in np.split(rows, cuts)]
        if len(_RUNS) > 4096:
            _RUNS.clear()
        cached = _RUNS[key] = (found.chunks, runs)
    shift = found.base - SHARED_BASE
    return [(low + shift, high + shift) for low, high in cached[1]]


class Info:
    """Parsed modifiers of one wgmma instruction."""

    def __init__(self, ins: Instruction) -> None:
        """Parse the opcode and sort the operands."""
        parts = ins.parts
        self.sparse = "sp" in parts
        shape = next(i for i, p in enumerate(parts) if p.startswith("m64n"))
        types = [p for p in parts[shape + 1 :] if p != "satfinite"]
        n = int(parts[shape][4:].split("k")[0])
        self.op = wgmma.operation(types[0], types[1], types[2], n, sparse=self.sparse)
        self.satfinite = "satfinite" in parts
        self.d, self.a, self.b, *rest = ins.operands
        self.meta = self.selector = None
        if self.sparse:
            self.meta, self.selector, *rest = rest
        self.scale = rest.pop(0) if rest else None
        flags = [getattr(item, "value", 0) for item in rest]
        self.negate_a, self.negate_b = ([*flags, 1, 1])[0] == -1, ([*flags[1:], 1])[0] == -1
        self.a_registers = isinstance(self.a, Vec)
        transposes = flags[2:]
        self.transpose_a = bool(transposes) and not self.a_registers and transposes[0] == 1
        self.transpose_b = bool(transposes) and transposes[-1] == 1


def check_info(ins: Instruction) -> None:
    """Parse an instruction once, when its function is compiled."""
    try:
        ins.info = Info(ins)
    except UnitFault as error:
        ins.unmodelled(error.message)


class _Accumulator:
    """An accumulator matrix whose registers are not up to date."""

    def __init__(self, op: wgmma.Operation, frames: tuple[Any, ...], rows: np.ndarray) -> None:
        self.op, self.frames, self.rows = op, frames, rows
        self.mask = mask_of(rows)
        self.matrix: np.ndarray | None = None

    def load(self) -> np.ndarray:
        """Give the matrix, read from the registers when it is not there."""
        if self.matrix is None:
            words = [frame.bank[32][self.rows] for frame in self.frames]
            self.matrix = wgmma.fragment_to_matrix(self.op, np.concatenate(words, axis=1))
        return self.matrix

    def flush(self) -> None:
        """Write the matrix back into the registers of all four warps."""
        if self.matrix is None:
            return
        words = wgmma.matrix_to_fragment(self.op, self.matrix)
        for part, frame in enumerate(self.frames):
            frame.bank[32][self.rows] = words[:, 32 * part : 32 * part + 32]
        self.matrix = None


def mask_of(rows: np.ndarray) -> int:
    """Give the bit mask of register rows."""
    return _mask_cached(tuple(rows.tolist()))


@lru_cache(maxsize=1024)
def _mask_cached(rows: tuple[int, ...]) -> int:
    mask = 0
    for row in rows:
        mask |= 1 << row
    return mask


class Op:
    """One wgmma of a warpgroup, filled in by its four warps."""

    def __init__(self, ins: Instruction) -> None:
        """Start with no warp."""
        self.ins = ins
        self.warps: list[Warp] = []
        self.frames: dict[int, Any] = {}
        self.clocks: list[Clock] = []
        self.a = self.b = 0
        self.accumulate = True
        self.meta: list[Any] = []


class WarpgroupState:
    """Groups and registers of one warpgroup."""

    name = "wgmma groups"

    def __init__(self, cta: Cta, number: int) -> None:
        """Start idle."""
        self.cta, self.number = cta, number
        self.warps = cta.warps[4 * number : 4 * number + 4]
        self.agent = cta.machine.sync.agents.new(f"wgmma of CTA {cta.ctaid} warpgroup {number}")
        self.ops: list[Op] = []
        self.first_op = 0
        self.groups: dict[int, list[Op]] = {}
        self.done = 0
        self.enqueued = 0
        self.accumulators: dict[Any, _Accumulator] = {}

    def explain(self, old: Access, warp: Warp) -> str:
        """Say which wait is missing."""
        state = self.warps[0].sync.state.get("wgmma")
        committed = state.committed if state else 0
        if old.time is not None and old.time > committed:
            return "the wgmma is not committed: wgmma.commit_group, then wait_group"
        return (
            f"no wgmma.wait_group covers group {old.time} of warpgroup {self.number}, or nothing "
            "orders this access after that wait"
        )

    def accumulator(self, op: Op) -> _Accumulator:
        """Give the accumulator of an operation, flushing others that overlap it."""
        info: Info = op.ins.info
        rows = self.warps[0].rows(info.d)
        frames = tuple(op.frames[w.index] for w in self.warps)
        key = (info.op, rows.tobytes(), tuple(id(f) for f in frames))
        found = self.accumulators.get(key)
        if found is None:
            found = _Accumulator(info.op, frames, rows)
            self.flush(found.mask)
            self.accumulators[key] = found
        return found

    def flush(self, mask: int) -> None:
        """Write back and forget accumulators that contain some of the registers."""
        for key, accumulator in list(self.accumulators.items()):
            if accumulator.mask & mask:
                accumulator.flush()
                del self.accumulators[key]


class WarpState:
    """wgmma state of one warp."""

    def __init__(self) -> None:
        """Start idle; before the first fence every register counts as touched."""
        self.issued = 0
        self.committed = 0
        self.waited = 0
        self.open: list[Op] = []
        self.in_flight: list[tuple[int, int, int, Op]] = []
        self.mask = 0
        self.dirty = -1
        self.written = 0
        self.touched_by: Instruction | None = None
        self.reported: set[tuple[Instruction, str]] = set()
        self.fences = 0

    def cover(self, group: int) -> None:
        """Groups up to ``group`` are complete for this warp."""
        self.waited = max(self.waited, group)
        self.in_flight = [item for item in self.in_flight if item[0] > group]
        self.mask = 0
        for _, d_mask, a_mask, _ in self.in_flight:
            self.mask |= d_mask | a_mask


def warp_state(warp: Warp) -> WarpState:
    """Give the wgmma state of a warp."""
    state = warp.sync.state.get("wgmma")
    if state is None:
        state = warp.sync.state["wgmma"] = WarpState()
    return state


def warpgroup(warp: Warp, ins: Instruction) -> WarpgroupState:
    """Give the state of a warp's warpgroup; stops the launch when it has no four warps."""
    groups = warp.cta.sync.state.setdefault("warpgroups", {})
    number = warp.index // 4
    found = groups.get(number)
    if found is None:
        if len(warp.cta.warps) < 4 * number + 4:
            warp.machine.fatal(
                "aligned_divergence",
                f"`{ins.op}` in warp {warp.index}: warps {4 * number}..{4 * number + 3} form the "
                f"warpgroup, but the CTA has {len(warp.cta.warps)} warps",
                ins=ins, warp=warp,
            )  # fmt: skip
        found = groups[number] = WarpgroupState(warp.cta, number)
    return found
