"""ldmatrix, stmatrix and mma.sync: warp-wide moves and products (PTX ISA 9.7.14)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .handlers import handler
from .machine import Vec
from .sync_barriers import check_converged
from .units import UnitFault, matrix_moves, mma_sync

if TYPE_CHECKING:
    from .machine import Instruction, Warp

_SHAPES = ("m8n8", "m16n16", "m8n16", "m16n8")


class _Move:
    """Parsed modifiers of one matrix move."""

    def __init__(self, ins: Instruction) -> None:
        parts = ins.parts
        self.shape = next(p for p in parts if p in _SHAPES)
        self.count = int(next(p for p in parts if p in ("x1", "x2", "x4"))[1:])
        self.trans = "trans" in parts
        self.packed = 4 if "b4x16_p64" in parts else 6 if "b6x16_p32" in parts else 0
        self.lanes = matrix_moves.row_lanes(self.shape, self.count)


def _check_move(ins: Instruction) -> None:
    try:
        ins.info = _Move(ins)
    except UnitFault as error:
        ins.unmodelled(error.message)


def _rows(warp: Warp, ins: Instruction, operand: Any, info: _Move) -> tuple[Any, np.ndarray]:
    """Give the CTA and the byte offset of every row."""
    addresses = warp.address(operand)
    home, first = warp.shared_offset(operand, 16, 16, lane=int(info.lanes[0]))
    offsets = (addresses[info.lanes] - int(addresses[info.lanes[0]])) + first
    if (offsets & 15).any() or offsets.min() < 0 or int(offsets.max()) + 16 > home.shared.size:
        for lane in info.lanes.tolist():
            warp.shared_offset(operand, 16, 16, lane=lane)
    return home, offsets


def _padded(offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    count = len(offsets)
    if count == 32:
        return offsets, None
    full = np.zeros(32, np.int64)
    full[:count] = offsets
    return full, np.arange(32) < count


@handler("ldmatrix", check=_check_move)
def ldmatrix(warp: Warp, ins: Instruction) -> None:
    """Load 8x8 (or wider) matrices from rows in shared memory."""
    check_converged(warp, ins, "ldmatrix")
    info: _Move = ins.info
    target, source = ins.operands
    home, offsets = _rows(warp, ins, source, info)
    where, mask = _padded(offsets)
    if warp.machine.hooks.wants_memory:
        warp.machine.hooks.load(warp, "shared", home, where, 16, mask, ins)
    rows = home.shared.data[offsets[:, None] + np.arange(16)]
    registers = matrix_moves.ldmatrix(
        rows, info.shape, info.count, trans=info.trans, packed=info.packed
    )
    items = target if isinstance(target, Vec) else Vec([target])
    warp.write_matrix(items, registers)


@handler("stmatrix", check=_check_move)
def stmatrix(warp: Warp, ins: Instruction) -> None:
    """Store 8x8 (or wider) matrices to rows in shared memory."""
    check_converged(warp, ins, "stmatrix")
    info: _Move = ins.info
    target, source = ins.operands
    home, offsets = _rows(warp, ins, target, info)
    items = source if isinstance(source, Vec) else Vec([source])
    registers = warp.read_matrix(items)
    rows = matrix_moves.stmatrix(registers, info.shape, info.count, trans=info.trans)
    where, mask = _padded(offsets)
    if warp.machine.hooks.wants_memory:
        warp.machine.hooks.store(warp, "shared", home, where, 16, mask, ins, rows)
    index = offsets[:, None] + np.arange(16)
    home.shared.data[index] = rows
    home.shared.initialised[index] = 1
    warp.machine.touch_event()


def _check_mma(ins: Instruction) -> None:
    parts = ins.parts
    if "sp" in parts or any(p.startswith(("sp::", "kind::", "block_scale")) for p in parts):
        ins.unmodelled("sparse and block-scaled mma.sync")
    shape = next(p for p in parts if p.startswith("m") and "n" in p and "k" in p)
    m, rest = shape[1:].split("n")
    n, k = rest.split("k")
    known = ("f16", "bf16", "tf32", "s8", "u8", "s4", "u4", "b1", "e4m3", "e5m2", "f64", "f32",
             "s32")  # fmt: skip
    types = [p for p in parts if p in known]
    try:
        ins.info = mma_sync.operation(int(m), int(n), int(k), types[0], types[1], types[2])
    except UnitFault as error:
        ins.unmodelled(error.message)


@handler("mma", check=_check_mma)
def mma(warp: Warp, ins: Instruction) -> None:
    """``mma.sync``: one product of a warp."""
    check_converged(warp, ins, "mma.sync")
    op = ins.info
    d, a, b, c = (item if isinstance(item, Vec) else Vec([item]) for item in ins.operands[:4])
    dtype = np.uint64 if op.a == "f64" else np.uint32
    extra: dict[str, Any] = {}
    if "satfinite" in ins.mods:
        extra["satfinite"] = True
    if "xor" in ins.mods:
        extra["xor"] = True
    warp.write_matrix(
        d,
        mma_sync.mma(
            op, warp.read_matrix(a, dtype), warp.read_matrix(b, dtype),
            warp.read_matrix(c, dtype), **extra,
        ),
    )  # fmt: skip
