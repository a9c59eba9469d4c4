"""Warps of the engine: registers of an activation, paths, joins, operands, local memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .codegen import DYNAMIC_SPECIAL, ROWS, FunctionCode
from .machine import (
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
from .program import Addr, Imm, Not, Operand, Pair, Reg, Sink, Special, Symbol, Vec

if TYPE_CHECKING:
    from .machine import Cta
    from .program import Instruction

_ALL = b"\1" * LANES
_BY_WARP = frozenset(("tid.x", "tid.y", "tid.z", "warpid"))
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
        self.active = self.born = self.live
        self.exits: list[tuple[int, Instruction | None]] = []
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
            machine: Any = self.machine
            owner: Any = self.index if name in _BY_WARP else self.cta.ctaid
            row = machine.special_rows.get((name, owner))
            if row is None:
                from .special import special_row

                row = machine.special_rows[name, owner] = special_row(self, name)
            self.specials[name] = row
        return row

    def timer(self, name: str) -> np.ndarray:
        """Row of a clock register; time moves on at each read.

        After many reads between which nothing happened it moves ever faster, so that waits with a
        time limit end.
        """
        machine: Any = self.machine
        if machine.clock_event != machine.events:
            machine.clock_event, machine.clock_reads = machine.events, 0
        machine.clock_reads += 1
        machine.clock += 97 << min(max(machine.clock_reads - 2000, 0) >> 7, 24)
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

    def rows(self, vec: Any) -> np.ndarray:
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
