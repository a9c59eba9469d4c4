"""Warps, frames, paths and reconvergence: how generated code runs.

A *path* is a set of lanes with one program counter. A divergent branch splits a path; both parts
carry a `Join` at the immediate post-dominator, where lanes wait for each other. Lanes that end are
taken out of every join, so a join never waits for the dead. Paths of a warp run independently
(as on hardware with independent thread scheduling): one may block while the other goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .codegen import (
    BRANCH,
    CALL,
    CODE,
    EXIT,
    HANDLER,
    JUMP,
    RETURN,
    ROWS,
    TABLE,
    UNSIGNED,
    FunctionCode,
    Step,
)
from .machine import (
    FULL,
    LANES,
    LOCAL_WINDOW,
    PARAM_BASE,
    PARAM_WINDOW,
    SHARED_WINDOW,
    WINDOW_SIZE,
    Frame,
    MemoryFault,
    Path,
    Warp,
)
from .memory import typed_views
from .program import Addr, Imm, Instruction, Not, Operand, Pair, Reg, Sink, Special, Symbol, Vec

if TYPE_CHECKING:
    from .machine import Cta

BLOCKED, ENDED, YIELDED = "blocked", "ended", "yielded"
_NONE = bytes(LANES)
_ALL = b"\1" * LANES
_FILL = {
    1: False,
    8: 0xCD,
    16: 0x7FCD,
    32: 0x7FCDCDCD,
    64: 0x7FF8CDCDCDCDCDCD,
    128: 0x7FF8CDCDCDCDCDCD,
}


class ActiveFrame(Frame):
    """Registers of one activation; row lists (``u32``, ``f32``, ...) are made on first use."""

    def __init__(
        self, code: FunctionCode, caller: ActiveFrame | None, caller_ins: Any, local_base: int
    ) -> None:
        """Allocate registers; with a garbage pattern where one may be read before it is written."""
        self.code, self.function = code, code.function
        self.caller, self.caller_ins, self.local_base = caller, caller_ins, local_base
        self.bank = {}
        for bits, count in code.function.register_count.items():
            rows = count * 2 if bits == 128 else count
            dtype = np.bool_ if bits == 1 else (np.uint64 if bits == 128 else f"u{bits // 8}")
            if code.poisoned:
                self.bank[bits] = np.full((rows, LANES), _FILL[bits], dtype)
            else:
                self.bank[bits] = np.zeros((rows, LANES), dtype)
        self.carry = np.zeros(LANES, bool)
        self.return_to: tuple[int, int] = (0, 0)
        self.params: Any = None
        if code.program.area_size(code.function):
            self.params = np.zeros((LANES, code.program.area_size(code.function)), np.uint8)

    def __getattr__(self, name: str) -> Any:
        """Make a row list."""
        row = ROWS.get(name)
        if row is None:
            raise AttributeError(name)
        bank = self.bank.get(row[0])
        rows = Rows(np.zeros((0, LANES), row[1]) if bank is None else bank.view(row[1]))
        setattr(self, name, rows)
        return rows


class Rows(dict):
    """Row views of a register matrix by row number, made on first use."""

    __slots__ = ("matrix",)

    def __init__(self, matrix: np.ndarray) -> None:
        """Start without views."""
        super().__init__()
        self.matrix = matrix

    def __missing__(self, index: int) -> np.ndarray:
        """Make the view of a row."""
        row = self[index] = self.matrix[index]
        return row


class Join:
    """A place where lanes of a split path meet again."""

    __slots__ = ("block", "frame", "have", "parent", "step", "want")

    def __init__(
        self, block: int, step: int, frame: Frame, want: np.ndarray, parent: Join | None
    ) -> None:
        """Wait at (block, step) of ``frame`` for the lanes ``want``."""
        self.block, self.step, self.frame, self.parent = block, step, frame, parent
        self.want = want.copy()
        self.have = np.zeros(LANES, bool)


class ActivePath(Path):
    """A path with its position and join."""

    __slots__ = (
        "block",
        "edge",
        "edge_count",
        "edge_hash",
        "expired",
        "frame",
        "join",
        "mask",
        "order",
        "spin_events",
        "spin_ins",
        "step",
        "wait",
        "warp",
    )

    def __init__(
        self,
        warp: EngineWarp,
        mask: np.ndarray,
        frame: Any,
        block: int,
        step: int,
        join: Join | None,
    ) -> None:
        """Start at a position."""
        self.warp, self.mask, self.frame = warp, mask, frame
        self.block, self.step, self.join = block, step, join
        self.wait = None
        self.edge: tuple = ()
        self.edge_count = 0
        self.edge_hash: Any = None
        self.spin_events = -1
        self.expired: dict = {}


class EngineWarp(Warp):
    """The executable warp."""

    def __init__(self, cta: Cta, index: int, ident: int, lanes: int) -> None:
        """Create the warp with its first ``lanes`` lanes alive."""
        super().__init__(cta, index, ident)
        self.live = np.arange(LANES) < lanes
        self.active = self.live
        self.specials: dict[str, np.ndarray] = {}
        self.local = np.zeros((LANES, 0), np.uint8)
        self.local_views: dict[int, np.ndarray] = {}
        self.local_top = 16
        self.laziness = 0.0
        self.seen = -1

    def start(self, code: FunctionCode) -> None:
        """Put all live lanes at the entry's first block."""
        base = self.push_local(code.function)
        frame = ActiveFrame(code, None, None, base)
        self.paths = [ActivePath(self, self.live.copy(), frame, 0, 0, None)]
        self.frame = frame

    def push_local(self, function: Any) -> int:
        """Reserve local memory of an activation and give its base."""
        base = (self.local_top + 15) // 16 * 16
        self.local_top = base + function.local_size
        self.reserve_local(self.local_top)
        return base

    def reserve_local(self, size: int) -> None:
        """Grow local memory to at least ``size`` bytes per lane."""
        if size <= self.local.shape[1] or size == 16:
            return
        grown = np.full((LANES, max(1024, 1 << (size - 1).bit_length())), 0xCD, np.uint8)
        grown[:, : self.local.shape[1]] = self.local
        self.local = grown
        self.local_views = typed_views(grown.reshape(-1))

    # -- operands ----------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """All 32 lanes are active."""
        return self.active.tobytes() == _ALL

    def special(self, name: str) -> np.ndarray:
        """Row of a special register (fixed ones are cached)."""
        row = self.specials.get(name)
        if row is None:
            from .special import special_row

            row = self.specials[name] = special_row(self, name)
        return row

    def timer(self, name: str) -> np.ndarray:
        """Row of a clock register; time moves on at each read."""
        machine: Any = self.machine
        machine.clock += 97
        value = machine.clock
        if name in ("clock_hi", "globaltimer_hi"):
            value >>= 32
        return np.full(LANES, value, np.uint64)

    def read(self, operand: Operand, dtype: Any = None) -> np.ndarray:
        """Read an operand (see `Warp.read`)."""
        if isinstance(operand, Reg):
            if operand.bits == 128:
                raise TypeError("read a 128-bit register with read_wide")
            row = self.frame.bank[operand.bits][operand.index]
            if dtype is None:
                return row
            dtype = np.dtype(dtype)
            return row.view(dtype) if dtype.itemsize == row.itemsize else row.astype(dtype)
        if isinstance(operand, Imm):
            dtype = np.dtype(dtype or np.uint32)
            bits = operand.value & ((1 << dtype.itemsize * 8) - 1)
            return np.full(LANES, bits, f"u{dtype.itemsize}").view(dtype)
        if isinstance(operand, Not):
            return ~self.predicate(operand.reg)
        if isinstance(operand, Special):
            from .codegen import DYNAMIC_SPECIAL

            row = (
                self.timer(operand.name)
                if operand.name in DYNAMIC_SPECIAL
                else self.special(operand.name)
            )
            return row if dtype is None else row.astype(dtype)
        if isinstance(operand, Symbol):
            return np.full(LANES, self.symbol_address(operand), dtype or np.uint64)
        if isinstance(operand, Addr):
            return self.address(operand).astype(dtype or np.uint64)
        raise TypeError(f"cannot read operand {operand.text}")

    def read_wide(self, operand: Reg) -> tuple[np.ndarray, np.ndarray]:
        """Read a 128-bit register as (low, high) uint64 rows."""
        bank = self.frame.bank[128]
        return bank[2 * operand.index], bank[2 * operand.index + 1]

    def write(self, operand: Operand, values: Any, mask: np.ndarray | None = None) -> None:
        """Write an operand (see `Warp.write`)."""
        if isinstance(operand, Sink):
            return
        if isinstance(operand, Pair):
            raise TypeError("write the parts of a pair one by one")
        if not isinstance(operand, Reg):
            raise TypeError(f"cannot write operand {operand.text}")
        row = self.frame.bank[operand.bits][operand.index]
        mask = self.active if mask is None else mask
        if isinstance(values, np.ndarray) and values.ndim:
            if operand.bits == 1:
                values = values.astype(bool)
            elif values.itemsize == row.itemsize:
                values = np.ascontiguousarray(values).view(row.dtype)
            else:
                values = values.astype(row.dtype)
        elif operand.bits == 1:
            values = bool(values)
        else:
            scalar = np.asarray(values)
            if scalar.dtype.kind == "f":
                values = scalar.astype(f"f{row.itemsize}").view(row.dtype)
            else:
                values = row.dtype.type(int(values) & ((1 << operand.bits) - 1))
        np.copyto(row, values, where=mask)

    def predicate(self, operand: Operand) -> np.ndarray:
        """Read a predicate."""
        if isinstance(operand, Not):
            return ~self.predicate(operand.reg)
        if isinstance(operand, Imm):
            return np.full(LANES, operand.value != 0)
        assert isinstance(operand, Reg)
        return self.frame.bank[1][operand.index]

    def symbol_address(self, symbol: Symbol) -> int:
        """Address of a symbol in its space."""
        target = symbol.target
        program = self.machine.module.program  # type: ignore[attr-defined]
        if target is None:
            target = program.module.variables.get(symbol.name)
        if target is None or target.__class__.__name__ == "Function":
            return program.function_address(symbol.name)
        if target.space == "shared":
            return self.cta.symbols[target.name] + symbol.offset  # type: ignore[attr-defined]
        if target.space == "local":
            return self.frame.local_base + target.offset + symbol.offset  # type: ignore[attr-defined]
        if target.space == "param":
            return PARAM_BASE + target.offset + symbol.offset
        return target.offset + symbol.offset

    def address(self, operand: Operand) -> np.ndarray:
        """Address row (see `Warp.address`)."""
        if not isinstance(operand, Addr):
            base, offset = operand, 0
        else:
            base, offset = operand.base, operand.offset
        if isinstance(base, Symbol):
            return np.full(LANES, self.symbol_address(base) + offset, np.int64)
        if isinstance(base, Imm):
            return np.full(LANES, base.value + offset, np.int64)
        row = self.read(base)
        row = row.view(np.int64) if row.itemsize == 8 else row.astype(np.int64)
        return row + offset if offset else row

    def rows(self, vec: Vec) -> np.ndarray:
        """Row numbers of a list of 32-bit registers."""
        if vec.index_cache is None:
            vec.index_cache = np.array([r.index for r in vec.items], np.intp)  # type: ignore
        return vec.index_cache

    def read_matrix(self, vec: Vec, dtype: Any = np.uint32) -> np.ndarray:
        """Copy the rows of a brace list."""
        dtype = np.dtype(dtype)
        if all(isinstance(i, Reg) and i.bits == dtype.itemsize * 8 for i in vec.items):
            bank = self.frame.bank[dtype.itemsize * 8]
            return bank[self.rows(vec)].view(dtype)
        return np.stack([self.read(i, dtype) for i in vec.items])

    def write_matrix(self, vec: Vec, values: np.ndarray, mask: np.ndarray | None = None) -> None:
        """Write the rows of a brace list."""
        mask = self.active if mask is None else mask
        first = vec.items[0]
        values = np.ascontiguousarray(values)
        if (
            mask.tobytes() == _ALL
            and isinstance(first, Reg)
            and first.bits == (values.itemsize * 8)
            and all(isinstance(i, Reg) for i in vec.items)
        ):
            bank = self.frame.bank[first.bits]
            bank[self.rows(vec)] = values.view(bank.dtype)
            return
        for item, row in zip(vec.items, values, strict=True):
            self.write(item, row, mask)

    # -- memory ------------------------------------------------------------------------------

    def shared_offset(
        self,
        operand: Operand,
        size: int = 1,
        align: int = 1,
        lane: int | None = None,
        cluster: bool = False,
    ) -> tuple[Cta, int]:
        """Resolve a shared address (see `Warp.shared_offset`)."""
        address = int(self.address(operand)[self.lane if lane is None else lane])
        return self.locate_shared(address, size, align, cluster)

    def locate_shared(
        self, address: int, size: int = 1, align: int = 1, cluster: bool = False
    ) -> tuple[Cta, int]:
        """Resolve a shared or generic address of this warp."""
        if address >> 32:
            if not SHARED_WINDOW <= address < SHARED_WINDOW + WINDOW_SIZE:
                raise MemoryFault("out-of-bounds", f"address {address:#x} is not in shared memory")
            address -= SHARED_WINDOW
        cta, offset = self.cta.cluster.locate_shared(address, size, align)
        if cta is not self.cta and not cluster:
            raise MemoryFault(
                "out-of-bounds",
                f"address {address:#x} is in CTA rank {cta.rank}, but "
                f"this instruction reaches only the own CTA (rank {self.cta.rank})",
            )
        return cta, offset

    def read_generic(self, address: int, size: int, lane: int = 0) -> np.ndarray:
        """Copy bytes at a generic address (see `Warp.read_generic`)."""
        window = address // WINDOW_SIZE * WINDOW_SIZE
        if window == PARAM_WINDOW or 0 < address < (1 << 20):
            data: Any = self.machine.params  # type: ignore[attr-defined]
            start = address % WINDOW_SIZE - PARAM_BASE
            if start < 0 or start + size > data.size:
                raise MemoryFault("out-of-bounds", "address outside the kernel parameters")
            return data[start : start + size].copy()
        if window == SHARED_WINDOW:
            cta, offset = self.cta.cluster.locate_shared(address - window, size)
            return cta.shared.read(offset, size).copy()
        if window == LOCAL_WINDOW:
            start = address - window
            if start < 0 or start + size > self.local.shape[1]:
                raise MemoryFault("out-of-bounds", "address outside local memory")
            return self.local[lane, start : start + size].copy()
        region, offset = self.machine.memory.locate(address, size)
        return region.data[offset : offset + size].copy()


class Runner:
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
                            self.exit_lanes(w, leaving, path.join)
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
                self.exit_lanes(w, leaving, path.join)
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
                self.exit_lanes(w, new.mask, join)
            elif entry and frame.function.blocks[new.block].exit_only:
                w.paths.remove(new)
                self.exit_lanes(w, new.mask, join)

    def table(self, path: ActivePath, ins: Instruction) -> None:
        """``brx.idx``: split by index."""
        w: Any = path.warp
        index = w.read(ins.operands[0])
        table = ins.operands[1].target  # type: ignore[attr-defined]
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

    def exit_lanes(self, w: Any, lanes: np.ndarray, join: Join | None) -> None:
        """Lanes ended: take them out of the joins around them."""
        lanes = lanes.copy()
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
        state = hash(
            (*tuple(bank.tobytes() for bank in frame.bank.values()), path.warp.local.tobytes())
        )  # type: ignore[attr-defined]
        if path.edge_hash == (target, state):
            path.spin_events = machine.events
            path.spin_ins = ins or frame.function.blocks[target].instructions[0]
            return True
        path.edge_hash = (target, state)
        return False

    # -- calls --------------------------------------------------------------------------------

    def call(self, path: ActivePath, step: Step) -> bool:
        """Enter a function; False when a built-in did the work."""
        ins = step.instructions[0]
        w: Any = path.warp
        frame: Any = path.frame
        program = frame.code.program
        mask = path.mask
        if ins.guard is not None:
            mask = mask & w.predicate(ins.guard)
            if not mask.any():
                return False
        target = ins.operands[1]
        if isinstance(target, Reg):
            values = np.unique(w.read(target)[mask])
            if values.size != 1:
                ins.unmodelled("indirect call with several targets in one warp")
            name = program.function_name(int(values[0]))
            if name is None:
                self.machine.fatal(
                    "illegal-instruction",
                    f"call of address {int(values[0]):#x}, which is no function",
                    ins=ins,
                    warp=w,
                )
        else:
            name = target.text
        function = program.module.functions.get(name)
        if function is None or not function.defined:
            from .builtins import call_builtin

            w.active = mask
            call_builtin(w, ins, name)
            return False
        code = program.code(function)
        base = w.push_local(function)
        callee = ActiveFrame(code, frame, ins, base)
        arguments = ins.operands[2].items  # type: ignore[attr-defined]
        for variable, operand in zip(function.params, arguments, strict=True):
            self.pass_value(w, frame, operand, callee, variable)
        callee.return_to = (path.block, path.step + 1)
        if mask is not path.mask and mask.tobytes() != path.mask.tobytes():
            join = Join(path.block, path.step + 1, frame, path.mask, path.join)
            join.have |= path.mask & ~mask
            path.join = join
            path.mask = mask
        path.frame = callee
        path.block = path.step = 0
        w.frame = callee
        return True

    def pass_value(self, w: Any, frame: Any, operand: Operand, callee: Any, variable: Any) -> None:
        """Copy one argument into the callee's parameter area or register."""
        if isinstance(operand, Symbol) and getattr(operand.target, "space", "") == "param":
            start = operand.target.offset
            octets = frame.params[:, start : start + variable.size]
        else:
            kind = f"u{variable.size}"
            row = w.read(operand, kind)
            octets = np.ascontiguousarray(row).view(np.uint8).reshape(LANES, variable.size)
        if variable.space == "reg":
            reg_bits, index = callee.code.program.register_of(callee.function, variable)
            callee.bank[reg_bits][index] = (
                np.ascontiguousarray(octets).view(f"u{variable.size}").reshape(-1)
            )
        else:
            callee.params[:, variable.offset : variable.offset + variable.size] = octets

    def leave(self, path: ActivePath) -> None:
        """Return from a function: copy results, go on after the call."""
        w: Any = path.warp
        callee: Any = path.frame
        frame = callee.caller
        ins = callee.caller_ins
        returns = ins.operands[0].items
        lanes = path.mask
        for variable, operand in zip(callee.function.returns, returns, strict=True):
            if variable.space == "reg":
                bits, index = callee.code.program.register_of(callee.function, variable)
                octets = (
                    np.ascontiguousarray(callee.bank[bits][index]).view(np.uint8).reshape(LANES, -1)
                )
            else:
                octets = callee.params[:, variable.offset : variable.offset + variable.size]
            if isinstance(operand, Symbol):
                start = operand.target.offset
                frame.params[lanes, start : start + variable.size] = octets[lanes]
            elif isinstance(operand, Reg):
                row = frame.bank[operand.bits][operand.index]
                values = np.ascontiguousarray(octets).view(f"u{variable.size}").reshape(-1)
                np.copyto(row, values, where=lanes)
        path.frame = frame
        path.block, path.step = callee.return_to
        w.frame = frame
        others = any(p.frame is not frame and p.frame is not callee for p in w.paths)
        if not others:
            w.local_top = max(callee.local_base, 16)


__all__ = [
    "BLOCKED",
    "ENDED",
    "FULL",
    "UNSIGNED",
    "YIELDED",
    "ActiveFrame",
    "ActivePath",
    "EngineWarp",
    "Join",
    "Runner",
]
