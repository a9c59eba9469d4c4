"""tcgen05: loads and stores, asynchronous operations and commits (PTX ISA 9.7.16)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .bulk_copies import fault
from .clocks import Access
from .handlers import handler
from .machine import SHARED_BASE, Addr, AsyncOp, Imm, Vec
from .operand_advice import check_operand
from .race import AT_TOUCH, related, where
from .shared_names import span_text
from .sync_barriers import check_converged
from .sync_mbarrier import note_incoming, use_mbarrier
from .sync_tcgen05_alloc import check_group, cta_group, cta_pair
from .tensor_memory import (
    IssueQueue,
    TensorMemory,
    issue_queue,
    report_conflicts,
    tensor_memory,
)
from .units import UnitFault, tcgen05, tmem
from .units.tmem import Rect
from .warpgroup import operand_spans

if TYPE_CHECKING:
    from .machine import Cta, Instruction, Warp

_VECTORS = ("scale_vec::1X", "scale_vec::2X", "scale_vec::4X", "block16", "block32")


# -- loads and stores -----------------------------------------------------------------------------


class _Move:
    """Parsed modifiers of tcgen05.ld and st."""

    def __init__(self, ins: Instruction) -> None:
        parts = ins.parts
        if "red" in parts:
            ins.unmodelled("tcgen05.ld.red")
        self.shape = next(p for p in parts if p[0].isdigit())
        self.count = int(next(p for p in parts if p[0] == "x" and p[1:].isdigit())[1:])
        self.packed = "pack::16b" in parts or "unpack::16b" in parts


def _check_move(ins: Instruction) -> None:
    ins.info = _Move(ins)


def _agents(warp: Warp) -> dict[str, Any]:
    """Agents and counts of the warp's own tcgen05.ld and st."""
    state = warp.sync.state.get("tmem")
    if state is None:
        agents = warp.machine.sync.agents
        name = f"CTA {warp.cta.ctaid} warp {warp.index}"
        state = warp.sync.state["tmem"] = {
            "ld": agents.new(f"tcgen05.ld of {name}"), "st": agents.new(f"tcgen05.st of {name}"),
            "ld_count": 0, "st_count": 0,
        }  # fmt: skip
    return state


class _Overlay:
    """A clock that knows one more agent."""

    def __init__(self, clock: Any, agent: int, time: int) -> None:
        self._clock, self._agent, self._time = clock, agent, time

    def get(self, agent: int, default: int = 0) -> int:
        """Give the time of an agent."""
        known = self._clock.get(agent, default)
        return max(known, self._time) if agent == self._agent else known


def _check_allocated(warp: Warp, ins: Instruction, memory: TensorMemory, rects: list[Rect],
                     what: str) -> None:  # fmt: skip
    for rect in rects:
        if not memory.covered(rect):
            end = rect.column + rect.columns
            freed = next((at for column, count, at in reversed(memory.freed)
                          if column < end and rect.column < column + count), None)  # fmt: skip
            tail = f" (freed at {where(freed)})" if freed is not None else ""
            live = ", ".join(f"{a.column}..{a.column + a.count - 1}" for a in memory.allocations)
            warp.machine.fatal(
                "tmem_unallocated",
                f"{what} of columns {rect.column}..{end - 1}; allocated: {live or 'none'}{tail}",
                ins=ins, warp=warp, related=related("dealloc", freed),
            )  # fmt: skip


def _move(warp: Warp, ins: Instruction, address_operand: Any, split: Any, *,
          write: bool) -> tuple[TensorMemory, int, int]:  # fmt: skip
    """Check a load or store and record it; returns memory, address, half split."""
    name = "st" if write else "ld"
    check_converged(warp, ins, f"tcgen05.{name}")
    info: _Move = ins.info
    address = int(warp.address(address_operand)[warp.lane]) & 0xFFFFFFFF
    half = warp.scalar(split) if split is not None else 0
    memory = tensor_memory(warp.cta)
    try:
        rects = tmem.access_rects(
            address, info.shape, info.count, warp.index, half_split=half, packed=info.packed
        )
    except UnitFault as error:
        fault(warp, ins, error)
        raise
    _check_allocated(warp, ins, memory, rects, f"tcgen05.{name}")
    agents = _agents(warp)
    agents[name + "_count"] += 1
    time = agents[name + "_count"]
    access = Access(agents[name], time, write=write, warp=warp, place=ins, what=f"tcgen05.{name}")
    warp.machine.sync.table.add(access)
    clock: Any = warp.sync.clock
    if write:
        clock = _Overlay(clock, agents["st"], time)
    report_conflicts(memory.access(rects, access, clock), access, warp, ins, rects, memory)
    return memory, address, half


@handler("tcgen05.ld", check=_check_move)
def tcgen05_ld(warp: Warp, ins: Instruction) -> None:
    """Load registers; what is read must not change before ``wait::ld``."""
    target, source = ins.operands[:2]
    split = ins.operands[2] if len(ins.operands) > 2 else None
    memory, address, half = _move(warp, ins, source, split, write=False)
    info: _Move = ins.info
    registers = tmem.ld(
        memory.data, address, info.shape, info.count, warp.index, half_split=half,
        pack=info.packed,
    )  # fmt: skip
    items = target if isinstance(target, Vec) else Vec([target])
    warp.write_matrix(items, registers)
    _watch(warp, ins, items)


def _watch(warp: Warp, ins: Instruction, items: Vec) -> None:
    """Watch the registers of a load until ``wait::ld``: using them earlier is worth advice."""
    if warp.watch_frame not in (None, warp.frame):
        return
    mask = 0
    for register in items.registers():
        if register.bits == 32:
            mask |= 1 << register.index
    warp.sync.state.setdefault("tmem_rows", []).append((mask, ins))
    warp.watch |= mask
    warp.watch_frame = warp.frame


def _touch(warp: Warp, ins: Instruction, reads: int, writes: int) -> None:
    rows = warp.sync.state.get("tmem_rows")
    if not rows:
        return
    for mask, load in rows:
        if mask & reads:
            warp.machine.finding(
                "tcgen05_ld_early",
                f"registers of tcgen05.ld at {where(load)} used at {where(ins)} before "
                "tcgen05.wait_ld: undefined by the ISA text, honoured by the hardware in the "
                "issuing thread",
                ins=ins, warp=warp, severity="advice", related=related("tcgen05.ld", load),
            )  # fmt: skip
            _unwatch(warp)
            return


def _unwatch(warp: Warp) -> None:
    if warp.sync.state.pop("tmem_rows", None):
        warp.watch = getattr(warp.machine.sync, "wgmma_mask", 0)


AT_TOUCH.append(_touch)


@handler("tcgen05.st", check=_check_move)
def tcgen05_st(warp: Warp, ins: Instruction) -> None:
    """Store registers; complete after ``wait::st``."""
    target, *rest = ins.operands
    source = rest.pop()
    memory, address, half = _move(warp, ins, target, rest[0] if rest else None, write=True)
    info: _Move = ins.info
    items = source if isinstance(source, Vec) else Vec([source])
    tmem.st(
        memory.data, address, info.shape, info.count, warp.index, warp.read_matrix(items),
        half_split=half, unpack=info.packed,
    )  # fmt: skip


@handler("tcgen05.wait::ld", "tcgen05.wait::st")
def tcgen05_wait(warp: Warp, ins: Instruction) -> None:
    """The warp's earlier loads or stores are complete."""
    check_converged(warp, ins, ins.op)
    agents = _agents(warp)
    name = ins.parts[1][-2:]
    warp.sync.clock[agents[name]] = agents[name + "_count"]
    if name == "ld":
        _unwatch(warp)


@handler("tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync")
def tcgen05_fence(warp: Warp, ins: Instruction) -> None:
    """Order tcgen05 operations with relaxed synchronisation of threads."""
    sync = warp.sync
    if "after_thread_sync" in ins.op:
        sync.fence(release=False)
        return
    agents = _agents(warp)
    known = {agents[n]: sync.clock.get(agents[n], 0) for n in ("ld", "st")}
    sync.released = {**sync.released, **known}


# -- asynchronous operations ----------------------------------------------------------------------


class _Work:
    """One mma, cp or shift that waits for its turn."""

    __slots__ = ("ctas", "ins", "key", "run", "values", "warp")

    def __init__(self, warp: Warp, ins: Instruction, ctas: list[Cta], run: Any,
                 key: Any = None, values: Any = None) -> None:  # fmt: skip
        self.warp, self.ins, self.ctas, self.run = warp, ins, ctas, run
        self.key, self.values = key, values


class _Batch(AsyncOp):
    """Operations up to a commit, and the arrivals of the commit."""

    def __init__(self, warp: Warp, ins: Instruction, queue: IssueQueue, work: list[_Work],
                 barriers: list[Any], clock: dict[int, int]) -> None:  # fmt: skip
        self.cta, self.warp, self.ins = warp.cta, warp, ins
        self.queue, self.work, self.barriers, self.clock = queue, work, barriers, clock
        self.number = queue.enqueued

    def ready(self) -> bool:
        """Operations of a thread complete in order."""
        return self.queue.done == self.number - 1

    def complete(self) -> None:
        """Carry out, joining K-steps that continue each other, then arrive."""
        work, index = self.work, 0
        while index < len(work):
            end = index + 1
            if work[index].key is not None:
                while end < len(work) and _continues(work[index], work[end]):
                    end += 1
            try:
                work[index].run(work[index:end])
            except UnitFault as error:
                fault(work[index].warp, work[index].ins, error)
            index = end
        self.work = []
        self.queue.done = self.number
        for barrier in self.barriers:
            barrier.arrive(1, self.clock, self.warp, self.ins)
        self.cta.machine.touch_event()

    def describe(self) -> str:
        """Name the commit."""
        return f"tcgen05.commit at {where(self.ins)}"


def _continues(first: _Work, following: _Work) -> bool:
    return following.key is not None and first.key == following.key and following.values[2]


def _issue(warp: Warp, ins: Instruction, queue: IssueQueue, what: str, ctas: list[Cta],
           reads: dict[str, list[Rect]], writes: list[Rect], operands: list[tuple[str, Any]], *,
           accumulate: bool, shape: tuple[Any, ...] | None = None) -> None:  # fmt: skip
    """Record what one asynchronous operation touches."""
    queue.count += 1
    number = queue.count
    launch = warp.machine.sync
    clock: Any = _Overlay(warp.sync.clock, queue.agent, number - 1)
    common: dict[str, Any] = {
        "is_async": True, "warp": warp, "lanes": 1 << warp.lane, "place": ins, "channel": queue,
    }  # fmt: skip
    for cta in ctas:
        memory = tensor_memory(cta)
        for name, rects in reads.items():
            _check_allocated(warp, ins, memory, rects, f"{what} {name.upper()}")
        _check_allocated(warp, ins, memory, writes, f"{what} D")
        if "tcgen05" in launch.checks:
            for rects in reads.values():
                access = Access(queue.agent, number, write=False, what=what, **common)
                launch.table.add(access)
                report_conflicts(
                    memory.access(rects, access, clock), access, warp, ins, rects, memory
                )
            access = Access(
                queue.agent, number, write=True, reads=accumulate, what=what, copy=shape, **common
            )
            launch.table.add(access)
            if accumulate and shape is not None:
                _check_layout(warp, ins, memory, writes, shape)
            report_conflicts(
                memory.access(writes, access, clock), access, warp, ins, writes, memory
            )
        if "race" not in launch.checks:
            continue
        for name, found in operands:
            check_operand(warp, cta, ins, name, found)
            access = Access(
                queue.agent, number, write=False, what=f"{what} operand {name.upper()}",
                exact=lambda found=found: found.chunk_addresses() - SHARED_BASE, **common,
            )  # fmt: skip
            launch.table.add(access)
            for low, high in operand_spans(found):
                if low < 0 or high > cta.shared.size:
                    warp.machine.fatal(
                        "out_of_bounds",
                        f"{what} operand {name.upper()} reads shared bytes "
                        f"{span_text(warp.machine, low, high)}, CTA rank {cta.rank} has "
                        f"{cta.shared.size:#x}",
                        ins=ins, warp=warp,
                    )  # fmt: skip
                conflicts = cta.sync.shadow.span(low, high, access, clock)
                if conflicts:
                    warp.machine.hooks.conflicts(
                        conflicts, access, warp, ins, space="shared", target=cta,
                        place_text=f"{span_text(warp.machine, low, high)} of CTA rank {cta.rank} ",
                    )  # fmt: skip


def _check_layout(warp: Warp, ins: Instruction, memory: TensorMemory, rects: list[Rect],
                  shape: tuple[Any, ...]) -> None:  # fmt: skip
    """An accumulator must be read in the layout and type that it was written in."""
    accesses = warp.machine.sync.table.accesses
    for number in memory.writers(rects):
        old = accesses[number]
        if isinstance(old.copy, tuple) and old.copy != shape:
            warp.machine.finding(
                "tmem_layout",
                f"tcgen05.mma accumulates onto {shape[1]} in layout {shape[0]}, but the mma at "
                f"{where(old.place)} wrote {old.copy[1]} in layout {old.copy[0]} there",
                ins=ins, warp=warp, related=related("written", old.place),
            )  # fmt: skip
            return


class _MmaInfo:
    """Parsed modifiers and operands of tcgen05.mma."""

    def __init__(self, ins: Instruction) -> None:
        parts = ins.parts
        if "ashift" in parts:
            ins.unmodelled("tcgen05.mma with .ashift")
        self.ws = "ws" in parts
        self.sparse = "sp" in parts
        self.kind = next(p for p in parts if p.startswith("kind::"))[6:]
        self.vector = next((p for p in parts if p in _VECTORS), None)
        self.group = cta_group(ins)
        self.d, self.a, self.b, *rest = ins.operands
        self.a_in_tmem = isinstance(self.a, Addr)
        self.meta = rest.pop(0) if self.sparse else None
        self.descriptor = rest.pop(0)
        self.sfa = self.sfb = self.shift = self.zeros = None
        self.mask: Any = None
        if "block_scale" in parts:
            self.sfa, self.sfb = rest.pop(0), rest.pop(0)
        if rest and isinstance(rest[0], Vec):
            self.mask = rest.pop(0)
        self.enable = rest.pop(0)
        if rest and self.ws:
            self.zeros = rest.pop(0)
        elif rest:
            self.shift = rest.pop(0)


def _check_mma(ins: Instruction) -> None:
    ins.info = _MmaInfo(ins)


@handler("tcgen05.mma", check=_check_mma)
def tcgen05_mma(warp: Warp, ins: Instruction) -> None:
    """Issue one product; it runs when the thread commits."""
    info: _MmaInfo = ins.info
    check_group(warp, ins)
    ctas = cta_pair(warp.cta, info.group)
    enable = warp.predicate(info.enable)
    for lane in np.flatnonzero(warp.active).tolist():
        queue = issue_queue(warp, lane)

        def value(operand: Any, lane: int = lane) -> int:
            if isinstance(operand, Addr):
                return int(warp.address(operand)[lane]) & 0xFFFFFFFF
            if isinstance(operand, Imm):
                return operand.value
            return int(warp.read(operand)[lane])

        try:
            op = tcgen05.operation(
                value(info.descriptor) & 0xFFFFFFFF, info.kind, cta_group=info.group, ws=info.ws,
                sparse=info.sparse, a_in_tmem=info.a_in_tmem, vector=info.vector,
            )  # fmt: skip
            d, a, b = value(info.d), value(info.a), value(info.b)
            sfa = value(info.sfa) if info.sfa is not None else None
            sfb = value(info.sfb) if info.sfb is not None else None
            meta = value(info.meta) if info.meta is not None else None
            places = tcgen05.describe_tmem(op, d, a if info.a_in_tmem else None, sfa, sfb, meta)
            operands = [("b", tcgen05.describe_shared(op, "b", [b]))]
            if not info.a_in_tmem:
                operands.insert(0, ("a", tcgen05.describe_shared(op, "a", [a])))
        except UnitFault as error:
            fault(warp, ins, error, lane)
            raise
        accumulate = bool(enable[lane])
        writes = places.pop("d")
        _issue(warp, ins, queue, "tcgen05.mma", ctas, places, writes, operands,
               accumulate=accumulate, shape=(op.layout, op.fields.d, info.group))  # fmt: skip
        mask = None
        if info.mask is not None:
            mask = [int(warp.read(item)[lane]) for item in info.mask.items]
        scale = value(info.shift) if info.shift is not None else 0
        zeros = value(info.zeros) if info.zeros is not None else 0
        key = None
        if not (op.scales or info.sparse or mask or scale or zeros or op.fields.d != "f32"):
            key = (op, d, 0 if info.a_in_tmem else a & ~0x3FFF, b & ~0x3FFF)
        extra: dict[str, Any] = {
            "scale_d": scale, "disable_lanes": mask, "sfa": sfa, "sfb": sfb, "metadata": meta,
            "zero_mask": zeros,
        }  # fmt: skip

        def run(work: list[_Work], op: Any = op, d: int = d, extra: Any = extra) -> None:
            tcgen05.mma(
                op, [tensor_memory(c).data for c in work[0].ctas], d,
                [w.values[0] for w in work], [w.values[1] for w in work],
                [(c.shared.data, SHARED_BASE) for c in work[0].ctas],
                accumulate=work[0].values[2], **extra,
            )  # fmt: skip

        queue.open.append(_Work(warp, ins, ctas, run, key, (a, b, accumulate)))


@handler("tcgen05.cp")
def tcgen05_cp(warp: Warp, ins: Instruction) -> None:
    """Issue a copy from shared to tensor memory."""
    group = check_group(warp, ins)
    ctas = cta_pair(warp.cta, group)
    parts = ins.parts
    shape = next(p for p in parts if p[0].isdigit())
    warpx = next((p for p in parts if p.startswith("warpx")), None)
    shape = f"{shape}.{warpx}" if warpx else shape
    packed = 4 if "b4x16_p64" in parts else 6 if "b6x16_p32" in parts else 0
    for lane in np.flatnonzero(warp.active).tolist():
        queue = issue_queue(warp, lane)
        address = int(warp.address(ins.operands[0])[lane]) & 0xFFFFFFFF
        descriptor = int(warp.read(ins.operands[1])[lane])
        try:
            rects = tmem.cp_rects(address, shape)
            found = tmem.describe_cp(shape, descriptor)
        except UnitFault as error:
            fault(warp, ins, error, lane)
            raise
        _issue(warp, ins, queue, "tcgen05.cp", ctas, {}, rects, [("source", found)],
               accumulate=False)  # fmt: skip

        def run(work: list[_Work], address: int = address, descriptor: int = descriptor) -> None:
            tmem.cp(
                [tensor_memory(c).data for c in work[0].ctas], address, shape, descriptor,
                [(c.shared.data, SHARED_BASE) for c in work[0].ctas], packed=packed,
            )  # fmt: skip

        queue.open.append(_Work(warp, ins, ctas, run))


@handler("tcgen05.shift")
def tcgen05_shift(warp: Warp, ins: Instruction) -> None:
    """Issue a shift of rows in tensor memory."""
    ctas = cta_pair(warp.cta, check_group(warp, ins))
    for lane in np.flatnonzero(warp.active).tolist():
        queue = issue_queue(warp, lane)
        address = int(warp.address(ins.operands[0])[lane]) & 0xFFFFFFFF
        try:
            rects = tmem.shift_rects(address)
        except UnitFault as error:
            fault(warp, ins, error, lane)
            raise
        _issue(warp, ins, queue, "tcgen05.shift", ctas, {}, rects, [], accumulate=True)

        def run(work: list[_Work], address: int = address) -> None:
            tmem.shift([tensor_memory(c).data for c in work[0].ctas], address)

        queue.open.append(_Work(warp, ins, ctas, run))


@handler("tcgen05.commit")
def tcgen05_commit(warp: Warp, ins: Instruction) -> None:
    """Let mbarriers track the thread's earlier operations."""
    check_group(warp, ins)
    cluster = warp.cta.cluster
    for lane in np.flatnonzero(warp.active).tolist():
        queue = issue_queue(warp, lane)
        home, offset = warp.shared_offset(ins.operands[0], 8, 8, lane=lane, cluster=True)
        ranks = [home.rank]
        if "multicast::cluster" in ins.mods:
            mask = int(warp.read(ins.operands[1], np.uint16)[lane])
            ranks = [r for r in range(16) if mask >> r & 1]
            if ranks and ranks[-1] >= len(cluster.ctas):
                warp.machine.fatal(
                    "out_of_bounds",
                    f"tcgen05.commit: mask {mask:#x} names CTA rank {ranks[-1]} of a cluster with "
                    f"{len(cluster.ctas)} CTAs",
                    ins=ins, warp=warp, lanes=1 << lane,
                )  # fmt: skip
        barriers = [
            use_mbarrier(warp, cluster.ctas[r], offset, ins, lanes=1 << lane, incoming=False)
            for r in ranks
        ]
        clock = warp.sync.issued()
        clock[queue.agent] = queue.count
        queue.committed = queue.count
        queue.enqueued += 1
        for rank in ranks:
            if cluster.ctas[rank] is not warp.cta and queue.count:
                note_incoming(
                    cluster.ctas[rank], queue.agent, queue.count, warp, ins, "tcgen05.commit"
                )
        work, queue.open = queue.open, []
        warp.machine.enqueue(_Batch(warp, ins, queue, work, barriers, clock))
