"""Handlers of warp-level matrix instructions: ldmatrix, stmatrix, movmatrix, mma.sync."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from .access import fault
from .machine import LANES, RANK_SHIFT, SHARED_BASE, MemoryFault, handler
from .program import Instruction, Vec
from .units import UnitFault, matrix_moves, mma_sync
from .warp_ops import mask_bits

_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)$")
_TYPES = {"f16", "bf16", "tf32", "s8", "u8", "s4", "u4", "b1", "e4m3", "e5m2", "f64", "f32", "s32"}


def _converged(warp: Any, ins: Instruction) -> None:
    if not warp.full:
        warp.machine.finding(
            "aligned-divergence", f"`{ins.text}` is executed by lanes {mask_bits(warp.active):#010x}"
            f" only; all 32 lanes must execute it together", ins=ins, warp=warp,
            lanes=warp.active)


def _check_move(ins: Instruction) -> None:
    shape = next((p for p in ins.parts if p in ("m8n8", "m16n16", "m8n16", "m16n8")), None)
    count = next((int(p[1:]) for p in ins.parts if p in ("x1", "x2", "x4")), None)
    if shape is None or count is None:
        ins.unmodelled("unknown shape or count")
    packed = 4 if "b4x16_p64" in ins.mods else 6 if "b6x16_p32" in ins.mods else 0
    ins.info = (shape, count, "trans" in ins.mods, packed)


def _rows(warp: Any, ins: Instruction, operand: Any, shape: str, count: int) -> tuple:
    """Resolve the row addresses: (cta, offsets int64[32], mask of address lanes)."""
    lanes = matrix_moves.row_lanes(shape, count)
    address = warp.address(operand)
    mask = np.zeros(LANES, bool)
    mask[lanes] = True
    chosen = address[lanes]
    if int(chosen.max()) >> 32:
        chosen = chosen & 0xFFFFFFFF
    cta = warp.cta
    offsets = np.zeros(LANES, np.int64)
    offsets[lanes] = chosen - ((cta.rank << RANK_SHIFT) | SHARED_BASE)
    part = offsets[lanes]
    if int(np.bitwise_or.reduce(part)) & 15 or int(part.min()) < 0 or (
            int(part.max()) + 16 > cta.shared.size):
        for lane, place in zip(lanes.tolist(), chosen.tolist(), strict=True):
            try:
                warp.locate_shared(place, 16, 16)
            except MemoryFault as error:
                fault(ins, error.kind, f"row address of lane {lane}: {error.message}")
    return cta, offsets, None if lanes.size == LANES else mask, part


@handler("ldmatrix", check=_check_move)
def ldmatrix(warp: Any, ins: Instruction) -> None:
    """``ldmatrix``: a load of 16 bytes by each address lane."""
    _converged(warp, ins)
    shape, count, trans, packed = ins.info
    cta, offsets, mask, part = _rows(warp, ins, ins.operands[1], shape, count)
    machine = warp.machine
    if machine.hooks.wants_memory:
        machine.hooks.load(warp, "shared", cta, offsets, 16, mask, ins)
    index = part[:, None] + np.arange(16)
    if not cta.shared.initialised[index].all():
        machine.finding("uninitialised-read", f"`{ins.text}` reads shared memory that was never "
                        f"written", ins=ins, warp=warp)
    machine.bytes_read["shared"] += 16 * part.size
    values = matrix_moves.ldmatrix(cta.shared.data[index], shape, count, trans=trans, packed=packed)
    dst = ins.operands[0]
    warp.write_matrix(dst if isinstance(dst, Vec) else Vec([dst]), values)


@handler("stmatrix", check=_check_move)
def stmatrix(warp: Any, ins: Instruction) -> None:
    """``stmatrix``: a store of 16 bytes by each address lane."""
    _converged(warp, ins)
    shape, count, trans, _ = ins.info
    source = ins.operands[1]
    registers = warp.read_matrix(source if isinstance(source, Vec) else Vec([source]))
    cta, offsets, mask, part = _rows(warp, ins, ins.operands[0], shape, count)
    machine = warp.machine
    if machine.hooks.wants_memory:
        machine.hooks.store(warp, "shared", cta, offsets, 16, mask, ins)
    index = part[:, None] + np.arange(16)
    cta.shared.data[index] = matrix_moves.stmatrix(registers, shape, count, trans=trans)
    cta.shared.initialised[index] = 1
    machine.bytes_written["shared"] += 16 * part.size
    machine.events += 1


@handler("movmatrix")
def movmatrix(warp: Any, ins: Instruction) -> None:
    """``movmatrix``: transpose an 8x8 b16 fragment."""
    _converged(warp, ins)
    warp.write(ins.operands[0], matrix_moves.movmatrix(warp.read(ins.operands[1], np.uint32)))


def _check_mma(ins: Instruction) -> None:
    shape = next((m for m in (_SHAPE.match(p) for p in ins.parts) if m), None)
    types = [p for p in ins.parts if p in _TYPES]
    if ins.parts[1] != "sync" or shape is None or len(types) != 4:
        ins.unmodelled("only dense mma.sync with four types")
    m, n, k = (int(v) for v in shape.groups())
    try:
        op = mma_sync.operation(m, n, k, types[0], types[1], types[2])
    except UnitFault as error:
        ins.unmodelled(error.message)
    ins.info = (op, "satfinite" in ins.mods, "xor" in ins.mods)


def _registers(warp: Any, operand: Any, wide: bool) -> np.ndarray:
    vec = operand if isinstance(operand, Vec) else Vec([operand])
    return warp.read_matrix(vec, np.uint64 if wide else np.uint32)


@handler("mma", check=_check_mma)
def mma(warp: Any, ins: Instruction) -> None:
    """``mma.sync``: D = A * B + C on fragments of the whole warp."""
    _converged(warp, ins)
    op, satfinite, xor = ins.info
    wide = op.d == "f64"
    a, b, c = (_registers(warp, o, wide) for o in ins.operands[1:4])
    result = mma_sync.mma(op, a, b, c, satfinite=satfinite, xor=xor)
    dst = ins.operands[0]
    warp.write_matrix(dst if isinstance(dst, Vec) else Vec([dst]), result)
