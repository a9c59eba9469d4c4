"""Warps, frames, paths and reconvergence: how generated code runs.

A *path* is a set of lanes with one program counter. A divergent branch splits a path; both parts
carry a `Join` at the immediate post-dominator, where lanes wait for each other. Lanes that end are
taken out of every join, so a join never waits for the dead. Paths of a warp run independently
(as on hardware with independent thread scheduling): one may block while the other goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .calls import Calls
from .codegen import BRANCH, CALL, CODE, EXIT, HANDLER, JUMP, RETURN, TABLE, Step
from .machine import LANES
from .race_places import lane_bits
from .warp import ActivePath, Join

if TYPE_CHECKING:
    from .program import Instruction

BLOCKED, ENDED, YIELDED = "blocked", "ended", "yielded"
_NONE = bytes(LANES)
_ALL = b"\1" * LANES


class Runner(Calls):
    """Runs paths. One per machine."""

    def __init__(self, machine: Any) -> None:
        """Remember the machine."""
        self.machine = machine
        self.current: Instruction | None = None

    def run(self, path: ActivePath, budget: int) -> str:
        """Run a path until it blocks, ends, merges, or ``budget`` handler calls/loop trips pass."""
        w: Any = path.warp
        w.path = path
        w.frame = frame = path.frame
        machine = self.machine
        if path.wait is not None:
            wait, path.wait = path.wait, None
            w.active = wait.mask
            self.current = wait.ins
            wait.resume(w)
        mask = path.mask
        packed = mask.tobytes()
        memory_mask = None if packed == _ALL else mask
        plain = packed == w.live.tobytes()
        steps: list[Step] = frame.code.blocks[path.block]
        i = path.step
        while True:
            step = steps[i]
            kind = step.kind
            if step.undefined is not None:
                self.undefined(w, step)
            if kind == CODE:
                w.count += step.count
                if w.watch and step.regs & w.watch and w.watch_frame is frame:
                    self.touch(w, step)
                if plain:
                    (step.plain or step.make_plain())(w, frame, memory_mask)
                else:
                    (step.masked or step.make_masked())(w, frame, mask)
                i += 1
            elif kind == HANDLER:
                ins = step.instructions[0]
                self.current = ins
                w.count += 1
                i += 1
                active = mask
                if ins.guard is not None:
                    active = mask & w.predicate(ins.guard)
                    if not active.any() and not step.entry.always:
                        continue
                w.active = active
                if (
                    w.watch
                    and step.regs & w.watch
                    and step.entry.touches
                    and (w.watch_frame is frame)
                ):
                    self.touch(w, step)
                path.step = i
                wait = step.entry.function(w, ins)
                if wait is not None:
                    wait.path, wait.ins, wait.mask = path, ins, active
                    path.wait, path.step = wait, i
                    return BLOCKED
                budget -= 1
                if budget < 0:
                    path.step = i
                    return YIELDED
            elif kind in (JUMP, BRANCH):
                target = step.target
                if kind == BRANCH:
                    w.count += 1
                    ins = step.instructions[0]
                    taken = w.predicate(ins.guard)
                    if packed != _ALL:
                        taken = taken & mask
                    bits = taken.tobytes()
                    if bits == _NONE:
                        i += 1
                        continue
                    if bits != packed:
                        taken = taken.copy()  # a register row changes under the path
                        self.split(
                            path, taken, ins, [(target, taken), (path.block + 1, mask & ~taken)]
                        )
                        return YIELDED
                elif step.count:
                    w.count += 1
                join = path.join
                if (
                    join is not None
                    and join.block == target
                    and join.frame is frame
                    and (join.step == 0)
                ):
                    return self.arrive(path)
                if target <= path.block:
                    budget -= 1
                    ins = step.instructions[0] if step.instructions else None
                    if self.spinning(path, target, ins):
                        path.block, path.step = target, 0
                        return BLOCKED
                    if budget < 0:
                        path.block, path.step = target, 0
                        return YIELDED
                path.block = target
                steps = frame.code.blocks[target]
                i = 0
            elif kind == CALL:
                self.current = step.instructions[0]
                w.count += 1
                path.step = i
                if self.call(path, step):
                    frame = path.frame
                    mask = path.mask
                    packed = mask.tobytes()
                    memory_mask = None if packed == _ALL else mask
                    plain = packed == w.live.tobytes()
                    steps = frame.code.blocks[path.block]
                    i = path.step
                else:
                    i += 1
            elif kind in (RETURN, EXIT):
                ins = step.instructions[0] if step.instructions else None
                w.count += 1
                leaving = mask
                if ins is not None and ins.guard is not None:
                    leaving = mask & w.predicate(ins.guard)
                    bits = leaving.tobytes()
                    if bits == _NONE:
                        i += 1
                        continue
                    if bits != packed:
                        if kind == EXIT or frame.caller is None:
                            path.mask = mask & ~leaving
                            path.step = i + 1
                            self.exit_lanes(w, leaving, path.join, ins)
                            return YIELDED
                        self.split(
                            path, leaving, ins, [(-1, leaving), (path.block + 1, mask & ~leaving)]
                        )
                        return YIELDED
                if kind == RETURN and frame.caller is not None:
                    join = path.join
                    if join is not None and join.frame is frame:
                        path.block = -1
                        return self.arrive(path)
                    self.leave(path)
                    frame = path.frame
                    join = path.join
                    if (
                        join is not None
                        and join.frame is frame
                        and (join.block, join.step) == (path.block, path.step)
                    ):
                        return self.arrive(path)
                    steps = frame.code.blocks[path.block]
                    i = path.step
                    continue
                w.paths.remove(path)
                self.exit_lanes(w, leaving, path.join, ins)
                return ENDED
            elif kind == TABLE:
                w.count += 1
                self.table(path, step.instructions[0])
                return YIELDED
            else:
                self.current = ins = step.instructions[0]
                if ins.guard is not None and not (mask & w.predicate(ins.guard)).any():
                    i += 1
                    continue
                machine.fatal("trap", "trap was executed", ins=step.instructions[0], warp=w)

    def touch(self, w: Any, step: Step) -> None:
        """Report each instruction of a step that touches watched registers."""
        for ins, (reads, writes) in zip(step.instructions, step.masks, strict=True):
            if (reads | writes) & w.watch:
                self.machine.hooks.touch(w, ins, reads & w.watch, writes & w.watch)

    def undefined(self, w: Any, step: Step) -> None:
        """Report reads of registers that were never written."""
        for ins, name in step.undefined or ():
            self.machine.finding(
                "uninitialised-read",
                f"`{ins.text}` reads register {name}, which nothing has written",
                ins=ins,
                warp=w,
                severity="warning",
            )

    def split(
        self,
        path: ActivePath,
        taken: np.ndarray,
        ins: Instruction,
        parts: list[tuple[int, np.ndarray]],
    ) -> None:
        """Divide a path among several targets (block -1: the function's end)."""
        w: Any = path.warp
        frame: Any = path.frame
        if "uni" in ins.mods:
            self.machine.finding(
                "uniform-branch",
                f"`{ins.text}` goes two ways in one warp, but .uni promises that all lanes agree",
                ins=ins,
                warp=w,
                lanes=taken,
            )
        block = frame.function.blocks[path.block]
        join = path.join
        ipdom = block.ipdom
        entry = frame.caller is None
        needs = not (entry and (ipdom < 0 or frame.function.blocks[ipdom].exit_only))
        if needs and not (
            join is not None and join.frame is frame and join.block == ipdom and join.step == 0
        ):
            join = Join(ipdom, 0, frame, path.mask, join)
        at = w.paths.index(path)
        fresh = []
        for target, lanes in parts:
            new = ActivePath(w, lanes, frame, target, 0, join)
            fresh.append(new)
        w.paths[at : at + 1] = fresh
        for new in fresh:
            if (
                join is not None
                and join.frame is frame
                and new.block == join.block
                and (join.step == 0)
            ):
                self.arrive(new)
            elif new.block < 0:
                w.paths.remove(new)
                self.exit_lanes(w, new.mask, join, ins)
            elif entry and frame.function.blocks[new.block].exit_only:
                w.paths.remove(new)
                self.exit_lanes(w, new.mask, join, ins)

    def table(self, path: ActivePath, ins: Instruction) -> None:
        """``brx.idx``: split by index."""
        w: Any = path.warp
        index = w.read(ins.operands[0])
        operand: Any = ins.operands[1]
        table = operand.target
        mask = path.mask
        if ins.guard is not None:
            mask = mask & w.predicate(ins.guard)
        parts = []
        for value in np.unique(index[mask]).tolist():
            lanes = mask & (index == value)
            if value >= len(table):
                self.machine.fatal(
                    "illegal-instruction",
                    f"brx.idx {value} of a table with {len(table)} targets",
                    ins=ins,
                    warp=w,
                )
            parts.append((table[value], lanes))
        rest = path.mask & ~mask
        if rest.any():
            parts.append((path.block + 1, rest))
        merged: dict[int, np.ndarray] = {}
        for target, lanes in parts:
            merged[target] = merged[target] | lanes if target in merged else lanes
        self.split(path, mask, ins, list(merged.items()))

    def arrive(self, path: ActivePath) -> str:
        """A path reached its join."""
        w: Any = path.warp
        join = path.join
        assert join is not None
        w.paths.remove(path)
        join.have |= path.mask
        if join.have.tobytes() == join.want.tobytes():
            self.release(w, join)
        return ENDED

    def release(self, w: Any, join: Join) -> None:
        """All lanes of a join are there: go on as one path (possibly into the next join)."""
        frame: Any = join.frame
        path = ActivePath(w, join.have.copy(), frame, join.block, join.step, join.parent)
        w.paths.append(path)
        if join.block < 0:
            parent = join.parent
            if parent is not None and parent.frame is frame and parent.block < 0:
                self.arrive(path)
                return
            self.leave(path)
            frame, parent = path.frame, path.join
            if (
                parent is not None
                and parent.frame is frame
                and (parent.block, parent.step) == (path.block, path.step)
            ):
                self.arrive(path)
            return
        parent = join.parent
        if (
            parent is not None
            and parent.frame is frame
            and (parent.block, parent.step) == (join.block, join.step)
        ):
            self.arrive(path)

    def exit_lanes(
        self, w: Any, lanes: np.ndarray, join: Join | None, ins: Instruction | None
    ) -> None:
        """Lanes ended at ``ins``: take them out of the joins around them."""
        lanes = lanes.copy()
        w.exits.append((lane_bits(lanes), ins))
        w.live = w.live & ~lanes
        self.machine.events += 1
        pending = join
        open_ = True
        while pending is not None:
            pending.want &= ~lanes
            if open_ and pending.want.any():
                open_ = False
                if pending.have.tobytes() == pending.want.tobytes():
                    chain = pending.parent
                    while chain is not None:
                        chain.want &= ~lanes
                        chain = chain.parent
                    self.release(w, pending)
                    break
            pending = pending.parent
        self.machine.lanes_exited(w, lanes)

    def spinning(self, path: ActivePath, target: int, ins: Instruction | None) -> bool:
        """Detect a loop trip that changed nothing: same registers, no event since the last one."""
        machine = self.machine
        if path.edge != (target, machine.events):
            path.edge = (target, machine.events)
            path.edge_count = 0
            return False
        path.edge_count += 1
        count = path.edge_count
        if count & (count - 1) and (count - 1) & (count - 2):
            return False
        frame: Any = path.frame
        warp: Any = path.warp
        state = hash((*tuple(bank.tobytes() for bank in frame.bank.values()), warp.local.tobytes()))
        if path.edge_hash == (target, state):
            path.spin_events = machine.events
            path.spin_ins = ins or frame.function.blocks[target].instructions[0]
            return True
        path.edge_hash = (target, state)
        return False
