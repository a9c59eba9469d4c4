"""wgmma: groups of a warpgroup, accumulators in flight, fences (PTX ISA 9.7.15).

Four warps execute each wgmma; the operation exists when the last of them came. A group is handed
to the scheduler when all four committed it, and is known complete to a warp after its
``wait_group``. Accumulators stay matrices until an instruction touches their registers
(`Hooks.touch`), and every register of the kernel that a wgmma names is watched, so that touching
one in flight, or without ``wgmma.fence``, is seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .bulk_copies import fault
from .clocks import Access, conflict, happened
from .handlers import handler
from .machine import SHARED_BASE, AsyncOp, Vec, Wait
from .operand_advice import check_operand
from .race import AT_CLUSTER_START, AT_DEADLOCK, AT_LANES_EXIT, AT_TOUCH, related, where
from .shared_names import span_text
from .sync_barriers import check_converged
from .units import UnitFault, wgmma
from .warpgroup import (
    Info,
    Meet,
    Op,
    WarpgroupState,
    WarpState,
    check_info,
    mask_of,
    operand_spans,
    warp_state,
    warpgroup,
)

if TYPE_CHECKING:
    from .machine import Cluster, Instruction, Machine, Warp


# -- instructions ---------------------------------------------------------------------------------


@handler("wgmma.fence", touches=False)
def wgmma_fence(warp: Warp, ins: Instruction) -> None:
    """Order register accesses with the wgmmas that follow."""
    check_converged(warp, ins, "wgmma.fence")
    state = warp_state(warp)
    state.fences += 1
    state.dirty = 0


@handler("wgmma.mma_async", check=check_info, touches=False)
def wgmma_mma(warp: Warp, ins: Instruction) -> None:
    """Take part in one wgmma of the warpgroup."""
    check_converged(warp, ins, "wgmma.mma_async")
    group = warpgroup(warp, ins)
    state = warp_state(warp)
    info: Info = ins.info
    index = state.issued - group.first_op
    state.issued += 1
    while len(group.ops) <= index:
        group.ops.append(Op(ins))
    op = group.ops[index]
    if op.ins is not ins and op.ins.text != ins.text:
        warp.machine.fatal(
            "aligned_divergence",
            f"warp {warp.index} executes the wgmma at {where(ins)} while warp "
            f"{op.warps[0].index} of the warpgroup executes the one at {where(op.ins)}",
            ins=ins, warp=warp, related=related("other warp", op.ins),
        )  # fmt: skip
    op.warps.append(warp)
    op.frames[warp.index] = warp.frame
    op.clocks.append(dict(warp.sync.clock))
    accumulate = True
    if info.scale is not None:
        accumulate = bool(warp.predicate(info.scale)[warp.lane])
    b = warp.scalar(info.b)
    a = 0 if info.a_registers else warp.scalar(info.a)
    if len(op.warps) == 1:
        op.a, op.b, op.accumulate = a, b, accumulate
    elif (a, b, accumulate) != (op.a, op.b, op.accumulate):
        warp.machine.finding(
            "wgmma_descriptor",
            f"warps {op.warps[0].index} and {warp.index} of one warpgroup give different "
            f"descriptors or scale-d to the wgmma at {where(ins)}: A {op.a:#x} and {a:#x}, B "
            f"{op.b:#x} and {b:#x}",
            ins=ins, warp=warp,
        )  # fmt: skip
    if info.meta is not None:
        op.meta.append(warp.read(info.meta).copy())
    d_mask = mask_of(warp.rows(info.d))
    a_mask = mask_of(warp.rows(info.a)) if info.a_registers else 0
    _check_registers(warp, ins, state, d_mask, a_mask, accumulate=accumulate)
    number = state.committed + 1
    state.open.append(op)
    state.in_flight.append((number, d_mask, a_mask, op))
    state.mask |= d_mask | a_mask
    state.written |= d_mask
    if len(op.warps) == 4:
        _issue(group, op, number)


def _check_registers(warp: Warp, ins: Instruction, state: WarpState, d_mask: int, a_mask: int,
                     *, accumulate: bool) -> None:  # fmt: skip
    if "wgmma" not in warp.machine.sync.checks or warp.frame is not warp.watch_frame:
        return
    if accumulate and d_mask & ~state.written:
        warp.machine.finding(
            "wgmma_uninitialised",
            "wgmma reads uninitialised accumulator (scale_d=1 on first use)", ins=ins, warp=warp,
        )  # fmt: skip
    if state.dirty & (d_mask | a_mask):
        last = state.touched_by
        name = "acc" if state.dirty & d_mask else "the A fragment"
        text = f"registers of {name} "
        text += f"written at {where(last)} and " if last is not None else "are "
        warp.machine.finding(
            "wgmma_fence", f"{text}used by wgmma at {where(ins)} without wgmma_fence",
            ins=ins, warp=warp, related=related("written", last),
        )  # fmt: skip
        state.dirty &= ~(d_mask | a_mask)


def _issue(group: WarpgroupState, op: Op, number: int) -> None:
    """All four warps are here: check what the operation reads."""
    warp = op.warps[-1]
    launch = warp.machine.sync
    info: Info = op.ins.info
    operands = [("b", op.b, info.transpose_b)]
    if not info.a_registers:
        operands.insert(0, ("a", op.a, info.transpose_a))
    if "race" not in launch.checks:
        return
    meet: Any = Meet(op.clocks)
    for name, descriptor, transpose in operands:
        try:
            found = wgmma.describe_access(info.op, name, [descriptor], transpose=transpose)
        except UnitFault as error:
            fault(warp, op.ins, error)
            raise
        check_operand(warp, warp.cta, op.ins, name, found)
        access = Access(
            group.agent, number, write=False, is_async=True, warp=warp, place=op.ins,
            what=f"wgmma operand {name.upper()}", channel=group,
            exact=lambda found=found: found.chunk_addresses() - SHARED_BASE,
        )  # fmt: skip
        launch.table.add(access)
        spans = list(operand_spans(found))
        for low, high in spans:
            if low < 0 or high > warp.cta.shared.size:
                warp.machine.fatal(
                    "out_of_bounds",
                    f"wgmma operand {name.upper()} reads shared bytes "
                    f"{span_text(warp.machine, low, high)}, the CTA has {warp.cta.shared.size:#x}",
                    ins=op.ins, warp=warp,
                )  # fmt: skip
        for low, high in spans:
            conflicts = warp.cta.sync.shadow.span(low, high, access, meet)
            if conflicts:
                _report(op, access, conflicts, low, high)


def _report(op: Op, access: Access, conflicts: Any, low: int, high: int) -> None:
    """Blame the first warp that lacks the order."""
    hooks = op.warps[0].machine.hooks
    for old, reason in conflicts:
        guilty = op.warps[-1]
        if reason != "uninitialised":
            guilty = next(
                (w for w, c in zip(op.warps, op.clocks, strict=True) if conflict(old, access, c)),
                guilty,
            )
        hooks.conflicts(
            [(old, reason)], access, guilty, op.ins, space="shared", target=guilty.cta,
            place_text=f"{span_text(guilty.machine, low, high)} ",
            late=lambda old: all(
                happened(old, w.sync.shared_fences.known) for w in op.warps
            ),
        )  # fmt: skip


class _Group(AsyncOp):
    """A committed group of wgmmas; groups run in order."""

    def __init__(self, group: WarpgroupState, number: int, ops: list[Op], warp: Warp,
                 ins: Instruction) -> None:  # fmt: skip
        self.cta, self.warp, self.ins = group.cta, warp, ins
        self.group, self.number, self.ops = group, number, ops

    def ready(self) -> bool:
        """Groups complete in order."""
        return self.group.done == self.number - 1

    def complete(self) -> None:
        """Multiply, several K-steps at once where they continue each other."""
        ops, index = self.ops, 0
        while index < len(ops):
            end = index + 1
            while end < len(ops) and _continues(ops[index], ops[end]):
                end += 1
            try:
                _multiply(self.group, ops[index:end])
            except UnitFault as error:
                fault(ops[index].warps[-1], ops[index].ins, error)
            index = end
        self.ops = []
        self.group.done = self.number
        self.cta.machine.touch_event()

    def describe(self) -> str:
        """Name the group."""
        return f"wgmma group {self.number} at {where(self.ins)}"


_START = 0x3FFF


def _continues(first: Op, following: Op) -> bool:
    one, two = first.ins.info, following.ins.info
    return (
        not one.a_registers
        and not one.sparse
        and following.accumulate
        and one.op is two.op
        and first.a & ~_START == following.a & ~_START
        and first.b & ~_START == following.b & ~_START
        and one.d.text == two.d.text
        and (one.negate_a, one.negate_b, one.transpose_a, one.transpose_b, one.satfinite)
        == (two.negate_a, two.negate_b, two.transpose_a, two.transpose_b, two.satfinite)
        and not (one.op.d == "s32" and one.satfinite)
        and one.op.d != "f16"
    )


def _multiply(group: WarpgroupState, ops: list[Op]) -> None:
    op = ops[0]
    info: Info = op.ins.info
    a: Any = [o.a for o in ops]
    if info.a_registers:
        rows = group.warps[0].rows(info.a)
        group.flush(mask_of(rows))
        frames = [op.frames[w.index] for w in group.warps]
        a = np.concatenate([frame.bank[32][rows] for frame in frames], axis=1)
    accumulator = group.accumulator(op)
    metadata = None
    if info.sparse:
        order = sorted(range(4), key=lambda i: op.warps[i].index)
        metadata = np.concatenate([op.meta[i] for i in order])
    accumulator.matrix = wgmma.mma(
        info.op,
        accumulator.load() if op.accumulate else None,
        a,
        [o.b for o in ops],
        group.cta.shared.data,
        SHARED_BASE,
        accumulate=op.accumulate,
        negate_a=info.negate_a,
        negate_b=info.negate_b,
        transpose_a=info.transpose_a,
        transpose_b=info.transpose_b,
        satfinite=info.satfinite,
        metadata=metadata,
        selector=getattr(info.selector, "value", 0) if info.sparse else 0,
    )


@handler("wgmma.commit_group", touches=False)
def wgmma_commit(warp: Warp, ins: Instruction) -> None:
    """Close the group of this warp; the group runs when all four warps closed it."""
    check_converged(warp, ins, "wgmma.commit_group")
    group = warpgroup(warp, ins)
    state = warp_state(warp)
    state.committed += 1
    group.groups.setdefault(state.committed, state.open)
    state.open = []
    numbers = [warp_state(w).committed for w in group.warps]
    while group.enqueued < min(numbers):
        group.enqueued += 1
        ops = group.groups.pop(group.enqueued)
        warp.machine.enqueue(_Group(group, group.enqueued, ops, warp, ins))
    finished = min(warp_state(w).issued for w in group.warps) - group.first_op
    if finished > 64:
        del group.ops[:finished]
        group.first_op += finished


class _GroupWait(Wait):
    """A warp in ``wgmma.wait_group``."""

    def __init__(self, warp: Warp, ins: Instruction, group: WarpgroupState, target: int) -> None:
        self.warp, self.ins, self.group, self.target = warp, ins, group, target

    def ready(self) -> bool:
        """Say whether the groups are complete."""
        return self.group.done >= self.target

    def resume(self, warp: Warp) -> None:
        """Know that they are."""
        warp_state(warp).cover(self.target)
        clock = warp.sync.clock
        if clock.get(self.group.agent, 0) < self.target:
            clock[self.group.agent] = self.target

    def late(self) -> list[Warp]:
        """Give the warps of the warpgroup that have not committed the group."""
        return [w for w in self.group.warps if warp_state(w).committed < self.target]

    def describe(self) -> str:
        """Say who is missing, and where they are."""
        text = f"waits for wgmma group {self.target} at {where(self.ins)}"
        for warp in self.late():
            text += f"; warp {warp.index} of the warpgroup has not committed it"
            stuck = next((path.wait for path in warp.paths if path.wait is not None), None)
            if not warp.live.any():
                text += ": it has exited"
            elif stuck is not None:
                text += f": it waits at {where(stuck.ins)}"
        return text


@handler("wgmma.wait_group", touches=False)
def wgmma_wait(warp: Warp, ins: Instruction) -> Wait | None:
    """Wait until at most N newest groups are pending."""
    check_converged(warp, ins, "wgmma.wait_group")
    group = warpgroup(warp, ins)
    target = warp_state(warp).committed - warp.scalar(ins.operands[0])
    if target <= 0:
        return None
    wait = _GroupWait(warp, ins, group, target)
    if wait.ready():
        wait.resume(warp)
        return None
    return wait


# -- registers ------------------------------------------------------------------------------------


def _touch(warp: Warp, ins: Instruction, reads: int, writes: int) -> None:
    if not warp.machine.sync.wgmma_mask:
        return
    state = warp_state(warp)
    touched = reads | writes
    group = warp.cta.sync.state.get("warpgroups", {}).get(warp.index // 4)
    if state.mask & touched and "wgmma" in warp.machine.sync.checks:
        for number, d_mask, a_mask, op in state.in_flight:
            if touched & d_mask:
                verb = "written" if writes & d_mask else "read"
                kind = f"accumulator of wgmma group {number - 1} {verb}"
            elif writes & a_mask:
                kind = f"A fragment of wgmma group {number - 1} written"
            else:
                continue
            if (op.ins, kind) in state.reported:
                break
            state.reported.add((op.ins, kind))
            left = max(state.committed - number, 0)
            tail = "" if number <= state.committed else " (the group is not committed yet)"
            warp.machine.finding(
                "wgmma_in_flight", f"{kind} at {where(ins)} before wait_group({left}){tail}",
                ins=ins, warp=warp, related=related("wgmma", op.ins),
            )  # fmt: skip
            break
    if group is not None and group.accumulators:
        group.flush(touched)
    state.dirty |= touched
    state.written |= writes
    state.touched_by = ins


def _watched(cluster: Cluster) -> int:
    launch = cluster.machine.sync
    mask = getattr(launch, "wgmma_mask", None)
    if mask is None:
        mask = 0
        for block in cluster.machine.entry.blocks:
            for ins in block.instructions:
                if ins.parts[:2] == ("wgmma", "mma_async"):
                    for operand in ins.operands:
                        if isinstance(operand, Vec):
                            for register in operand.registers():
                                mask |= 1 << register.index
        launch.wgmma_mask = mask
        if "wgmma" in launch.checks:
            _late_moves(cluster.machine)
    return mask


def _late_moves(machine: Machine) -> None:
    for ins in machine.program.late_moves:
        machine.finding(
            "wgmma_in_flight",
            f"accumulators unpacked at {where(ins)} before wait_group: undefined by the ISA; ptxas "
            "waits first (C7517), and so does the emulator",
            ins=ins, severity="advice",
        )  # fmt: skip


def _start(cluster: Cluster) -> None:
    mask = _watched(cluster)
    if mask:
        for cta in cluster.ctas:
            for warp in cta.warps:
                warp.watch = mask
                warp.watch_frame = warp.paths[0].frame if warp.paths else getattr(
                    warp, "frame", None)  # fmt: skip


def _lanes_exit(warp: Warp) -> None:
    state = warp.sync.state.get("wgmma")
    if state is None or warp.live.any() or "wgmma" not in warp.machine.sync.checks:
        return
    if state.in_flight:
        number, _, _, op = state.in_flight[0]
        what = "committed" if number > state.committed else "waited for"
        warp.machine.finding(
            "wgmma_uncommitted",
            f"warp {warp.index} exits and the wgmma at {where(op.ins)} was never {what}",
            ins=op.ins, warp=warp,
        )  # fmt: skip
        state.in_flight = []


def _deadlock(machine: Machine) -> None:
    """Check the wgmmas that some warps of a warpgroup executed and the others will not."""
    for cluster in machine.clusters:
        for cta in cluster.ctas:
            for group in cta.sync.state.get("warpgroups", {}).values():
                for op in group.ops:
                    if 0 < len(op.warps) < 4:
                        _issue(group, op, warp_state(op.warps[0]).committed + 1)


AT_CLUSTER_START.append(_start)
AT_DEADLOCK.append(_deadlock)
AT_TOUCH.append(_touch)
AT_LANES_EXIT.append(_lanes_exit)
