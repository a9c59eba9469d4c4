"""Emitters of moves, packing, address conversion and other data-less instructions."""

from __future__ import annotations

import numpy as np

from .codegen import BITS, DTYPE, ROWS, UNSIGNED, Gen
from .emit_base import emitter
from .machine import LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WINDOW_SIZE
from .program import Addr, Imm, Instruction, Operand, Reg, Special, Vec

_WINDOWS = {
    "shared": SHARED_WINDOW,
    "shared::cta": SHARED_WINDOW,
    "shared::cluster": SHARED_WINDOW,
    "local": LOCAL_WINDOW,
    "param": PARAM_WINDOW,
    "param::entry": PARAM_WINDOW,
    "global": 0,
    "const": 0,
}


@emitter("mov")
def mov(gen: Gen, ins: Instruction) -> None:
    """``mov``: registers, literals, special registers, addresses, pack and unpack."""
    kind = ins.parts[-1]
    dst, a = ins.operands
    if isinstance(a, Vec):
        pack(gen, dst, a, kind)
        return
    if isinstance(dst, Vec):
        unpack(gen, dst, a, kind)
        return
    if kind == "b128":
        assert isinstance(dst, Reg)
        for half in (0, 1):
            write_wide(gen, dst, half, wide_half(gen, a, half))
        return
    if isinstance(a, Special):
        special(gen, dst, a, kind)
        return
    if isinstance(a, Addr):
        ins.unmodelled("mov from memory")
    if isinstance(dst, Reg) and BITS.get(kind) != dst.bits and kind != "pred":
        ins.unmodelled(f"{dst.text} has {dst.bits} bits")
    gen.put(dst, kind, gen.src(a, kind))


def special(gen: Gen, dst: Operand, a: Special, kind: str) -> None:
    """Read a special register; rows are adapted to the destination's width."""
    if kind == "pred":
        gen.put(dst, kind, f"({gen.src(a, 'u32')} != 0)")
        return
    unsigned = UNSIGNED[BITS[kind]]
    gen.put(dst, unsigned, gen.src(a, unsigned))


def wide_half(gen: Gen, operand: Operand, half: int) -> str:
    """64-bit half of a b128 operand."""
    if isinstance(operand, Reg) and operand.bits == 128:
        return gen.row("q", 2 * operand.index + half)
    if isinstance(operand, Imm):
        return gen.const(operand.value >> (64 * half), "u64")
    gen.ins.unmodelled(f"128-bit operand {operand.text}")


def write_wide(gen: Gen, dst: Reg, half: int, expr: str) -> None:
    """Write one 64-bit half of a b128 register."""
    target = gen.row("q", 2 * dst.index + half)
    mask = gen.mask
    gen.line(f"putmask({target}, {mask}, {expr})" if mask else f"{target}[:] = {expr}")


def pack(gen: Gen, dst: Operand, vec: Vec, kind: str) -> None:
    """``mov.b64 d, {a, b}`` and friends."""
    count = len(vec.items)
    if kind == "b128":
        assert isinstance(dst, Reg)
        if count != 2:
            gen.ins.unmodelled("b128 from other than two parts")
        for half, item in enumerate(vec.items):
            write_wide(gen, dst, half, gen.src(item, "u64"))
        return
    bits = BITS[kind]
    part = bits // count
    inner = f"u{part}"
    rows = [gen.src(item, inner) for item in vec.items]
    if gen.mask is None and isinstance(dst, Reg):
        view = gen.temporary(f"{gen.row(UNSIGNED[bits], dst.index)}.view({gen.obj(DTYPE[inner])})")
        values = (
            [gen.temporary(f"{row}.copy()") for row in rows[:-1]] + rows[-1:]
            if any(_same(item, dst) for item in vec.items)
            else rows
        )
        for i, row in enumerate(values):
            gen.line(f"{view}[{i}::{count}] = {row}")
        return
    expr = f"np.stack([{', '.join(rows)}], axis=1).reshape(-1).view({gen.obj(DTYPE[f'u{bits}'])})"
    gen.put(dst, f"u{bits}", expr)


def _same(item: Operand, dst: Operand) -> bool:
    return (
        isinstance(item, Reg)
        and isinstance(dst, Reg)
        and (item.bits, item.index) == (dst.bits, dst.index)
    )


def unpack(gen: Gen, vec: Vec, a: Operand, kind: str) -> None:
    """``mov.b64 {a, b}, s`` and friends."""
    count = len(vec.items)
    if kind == "b128":
        halves = [gen.temporary(f"{wide_half(gen, a, i)}.copy()") for i in (0, 1)]
        for item, half in zip(vec.items, halves, strict=True):
            gen.put(item, "u64", half)
        return
    bits = BITS[kind]
    inner = f"u{bits // count}"
    source = gen.src(a, f"u{bits}")
    view = gen.temporary(f"{source}.view({gen.obj(DTYPE[inner])})")
    for i, item in enumerate(vec.items):
        gen.put(item, inner, f"{view}[{i}::{count}]")


@emitter("cvta")
def cvta(gen: Gen, ins: Instruction) -> None:
    """``cvta{.to}.space.size``."""
    kind = ins.parts[-1]
    to = "to" in ins.mods
    space = next((p for p in ins.parts[1:] if p in _WINDOWS), None)
    if space is None:
        ins.unmodelled("unknown space")
    dst, a = ins.operands
    window = _WINDOWS[space]
    source = gen.src(a, kind)
    if window == 0:
        gen.put(dst, kind, source)
    elif to:
        expr = f"{source} - {gen.const(window, kind)}"
        gen.put(dst, kind, f"where({source} == 0, {gen.const(0, kind)}, {expr})")
    else:
        gen.put(dst, kind, "", "add", f"{source}, {gen.const(window, kind)}")


@emitter("isspacep")
def isspacep(gen: Gen, ins: Instruction) -> None:
    """``isspacep.space p, a``."""
    space = ins.parts[1]
    dst, a = ins.operands
    source = gen.src(a, "u64")
    window = _WINDOWS.get(space)
    if window is None:
        ins.unmodelled("unknown space")
    if space == "const":
        gen.put(dst, "pred", f"m_is_const(w, {source})")
    elif window == 0:
        gen.put(dst, "pred", f"({source} >= {gen.const(PARAM_WINDOW + WINDOW_SIZE, 'u64')})")
    else:
        low, high = gen.const(window, "u64"), gen.const(window + WINDOW_SIZE, "u64")
        inside = f"(({source} >= {low}) & ({source} < {high}))"
        if space in ("shared", "shared::cta"):
            rank = gen.const(window, "u64")
            inside = f"({inside} & ((({source} - {rank}) >> np.uint64(24)) == w.cta.rank))"
        gen.put(dst, "pred", inside)


@emitter("mapa")
def mapa(gen: Gen, ins: Instruction) -> None:
    """``mapa{.shared::cluster}.u32/.u64 d, a, rank``."""
    kind = ins.parts[-1]
    dst, a, rank = ins.operands
    address = gen.src(a, kind) if not isinstance(a, Reg) or a.bits >= BITS[kind] else None
    if address is None:
        ins.unmodelled("address register too narrow")
    gen.put(
        dst,
        kind,
        f"m_mapa(w, {gen.obj(ins)}, {address}, {gen.src(rank, 'u32')}, {gen.memory_mask})",
    )


@emitter("getctarank")
def getctarank(gen: Gen, ins: Instruction) -> None:
    """``getctarank{.shared::cluster}.u32/.u64 d, a``."""
    kind = ins.parts[-1]
    dst, a = ins.operands
    expr = (
        f"((({gen.src(a, kind)} >> {gen.const(24, kind)}) & {gen.const(0xFF, kind)})"
        f".astype({gen.obj(np.dtype(np.uint32))}))"
    )
    gen.put(dst, "u32", expr)


@emitter("alloca", "stacksave", "stackrestore")
def stack(gen: Gen, ins: Instruction) -> None:
    """Dynamic stack allocation in local memory."""
    if ins.parts[0] == "alloca":
        align = ins.operands[2] if len(ins.operands) > 2 else Imm("8", 8)
        assert isinstance(align, Imm)
        gen.put(
            ins.operands[0],
            "u64",
            f"m_alloca(w, f, {gen.src(ins.operands[1], 'u64')}, {align.value})",
        )
    elif ins.parts[0] == "stacksave":
        gen.put(ins.operands[0], "u64", "full(w.local_top, np.uint64)")
    else:
        gen.line(f"w.local_top = int({gen.src(ins.operands[0], 'u64')}[0])")


@emitter(
    "prefetch",
    "prefetchu",
    "applypriority",
    "pmevent",
    "brkpt",
    "griddepcontrol",
    "createpolicy",
    "setmaxnreg",
    "nanosleep",
)
def hint(gen: Gen, ins: Instruction) -> None:
    """Instructions without an effect on values (createpolicy gives an opaque word)."""
    if ins.parts[0] == "createpolicy":
        gen.put(ins.operands[0], "u64", gen.const(0x10F0000000000000, "u64"))


__all__ = ["ROWS", "cvta", "mov"]
