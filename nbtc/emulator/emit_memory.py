"""Emitters of loads, stores and atomics; the work is done by `access`."""

from __future__ import annotations

import numpy as np

from .codegen import BITS, SIGNED, UNSIGNED, Gen
from .emit_base import emitter
from .machine import PARAM_BASE
from .program import Addr, Imm, Instruction, Operand, Reg, Sink, Symbol, Vec

_SPACES = {
    "global": "global",
    "shared": "shared",
    "shared::cta": "shared",
    "shared::cluster": "cluster",
    "local": "local",
    "const": "global",
    "param": "param",
    "param::entry": "param",
    "param::func": "param",
}
_SIZES = {
    "b8": 1,
    "u8": 1,
    "s8": 1,
    "b16": 2,
    "u16": 2,
    "s16": 2,
    "f16": 2,
    "bf16": 2,
    "b32": 4,
    "u32": 4,
    "s32": 4,
    "f32": 4,
    "f16x2": 4,
    "bf16x2": 4,
    "b64": 8,
    "u64": 8,
    "s64": 8,
    "f64": 8,
    "b128": 16,
}


def space_of(ins: Instruction) -> str:
    """Name the space of a memory instruction ("generic" when none is written)."""
    return next((_SPACES[p] for p in ins.parts[1:] if p in _SPACES), "generic")


def vector_of(ins: Instruction) -> int:
    """Give the vector length."""
    return next((int(p[1:]) for p in ins.parts[1:] if p in ("v2", "v4", "v8")), 1)


def address(gen: Gen, operand: Operand, space: str) -> str:
    """Expression of an address row as int64."""
    if not isinstance(operand, Addr):
        gen.ins.unmodelled("expected an address")
    base = operand.base
    i64 = gen.obj(np.dtype(np.int64))
    if isinstance(base, Reg):
        if base.bits == 64:
            text = gen.row("s64", base.index)
        elif base.bits == 32:
            text = f"{gen.row('u32', base.index)}.astype({i64})"
        else:
            gen.ins.unmodelled("address in a narrow register")
    elif isinstance(base, Imm):
        return gen.const(base.value + operand.offset, "s64")
    elif isinstance(base, Symbol):
        copy = Symbol(base.name, base.target, operand.offset)
        return gen.symbol(copy, "s64")
    else:
        gen.ins.unmodelled("unknown address")
    return f"({text} + {gen.const(operand.offset, 's64')})" if operand.offset else text


def destinations(gen: Gen, operand: Operand, kind: str) -> str:
    """Tuple expression of destination rows of a load."""
    items = operand.items if isinstance(operand, Vec) else [operand]
    rows = []
    for item in items:
        if isinstance(item, Sink):
            rows.append("None")
        elif isinstance(item, Reg):
            if kind == "b128":
                rows += [gen.row("q", 2 * item.index), gen.row("q", 2 * item.index + 1)]
                continue
            if item.bits < BITS[kind]:
                gen.ins.unmodelled(f"{item.text} is too narrow")
            rows.append(gen.row((SIGNED if kind[0] == "s" else UNSIGNED)[item.bits], item.index))
        else:
            gen.ins.unmodelled(f"destination {item.text}")
    return "(" + ", ".join(rows) + ",)"


def sources(gen: Gen, operand: Operand, kind: str) -> str:
    """Tuple expression of source rows of a store."""
    items = operand.items if isinstance(operand, Vec) else [operand]
    rows = []
    for item in items:
        if isinstance(item, Sink):
            rows.append("None")
        elif kind == "b128":
            assert isinstance(item, Reg)
            rows += [gen.row("q", 2 * item.index), gen.row("q", 2 * item.index + 1)]
        else:
            rows.append(gen.src(item, UNSIGNED[BITS[kind]]))
    return "(" + ", ".join(rows) + ",)"


def _frame_variable(gen: Gen, operand: Operand) -> int | None:
    """Offset in the frame's parameter area of a ``.param`` symbol, None for kernel parameters."""
    if isinstance(operand, Addr) and isinstance(operand.base, Symbol):
        target = operand.base.target
        if target is not None and getattr(target, "space", "") == "param":
            if gen.program.is_entry_param(target, gen.code.function):
                return None
            return target.offset + operand.offset
    return None


@emitter("ld", "ldu")
def load(gen: Gen, ins: Instruction) -> None:
    """``ld`` of every space and width."""
    kind = ins.parts[-1]
    space = space_of(ins)
    dst, source = ins.operands[:2]
    if isinstance(source, Addr) and isinstance(source.base, Symbol):
        target = source.base.target
        if getattr(target, "space", "") == "param":
            space = "param"
    width = min(_SIZES[kind], 8)
    signed = kind[0] == "s"
    rows = destinations(gen, dst, kind)
    if space == "param":
        local = _frame_variable(gen, source)
        if local is not None:
            gen.line(f"m_load_frame(f, {local}, {width}, {signed}, {rows}, {gen.mask})")
            return
        if isinstance(source, Addr) and isinstance(source.base, Symbol):
            offset = source.base.target.offset + source.offset
            gen.line(f"m_load_param(w, {offset}, {width}, {signed}, {rows}, {gen.mask})")
            return
        text = address(gen, source, space)
        gen.line(
            f"m_load_param_at(w, {gen.obj(ins)}, {text} - {PARAM_BASE}, {width}, {signed}, "
            f"{rows}, {gen.memory_mask})"
        )
        return
    text = address(gen, source, space)
    gen.line(
        f"m_load_{space}(w, {gen.obj(ins)}, {text}, {width}, {signed}, {rows}, {gen.memory_mask})"
    )


@emitter("st")
def store(gen: Gen, ins: Instruction) -> None:
    """``st`` of every space and width."""
    kind = ins.parts[-1]
    space = space_of(ins)
    if "async" in ins.mods:
        ins.unmodelled("asynchronous store")
    target, source = ins.operands[:2]
    if "bulk" in ins.mods:
        text = address(gen, target, space)
        size = gen.src(source, "u64")
        gen.line(
            f"m_zero_shared(w, {gen.obj(ins)}, {text}, {size}, {space == 'generic'}, "
            f"{gen.memory_mask})"
        )
        return
    if (
        isinstance(target, Addr)
        and isinstance(target.base, Symbol)
        and getattr(target.base.target, "space", "") == "param"
    ):
        space = "param"
    width = min(_SIZES[kind], 8)
    rows = sources(gen, source, kind)
    if space == "param":
        local = _frame_variable(gen, target)
        if local is None:
            ins.unmodelled("store to a kernel parameter")
        gen.line(f"m_store_frame(f, {local}, {width}, {rows}, {gen.mask})")
        return
    text = address(gen, target, space)
    gen.line(f"m_store_{space}(w, {gen.obj(ins)}, {text}, {width}, {rows}, {gen.memory_mask})")


@emitter("atom", "red")
def atomic(gen: Gen, ins: Instruction) -> None:
    """``atom`` and ``red``: lanes one after another in lane order."""
    space = space_of(ins)
    if "async" in ins.mods:
        ins.unmodelled("asynchronous reduction")
    kind = ins.parts[-1]
    names = ("add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas")
    op = next((p for p in ins.parts[1:] if p in names), None)
    if op is None or kind not in _SIZES:
        ins.unmodelled("unknown atomic operation")
    has_result = ins.parts[0] == "atom"
    rest = ins.operands[1:] if has_result else ins.operands
    dst = ins.operands[0] if has_result else Sink()
    text = address(gen, rest[0], space)
    values = [sources(gen, rest[1], kind)]
    if op == "cas":
        values.append(sources(gen, rest[2], kind))
    rows = (
        destinations(gen, dst, "b" + kind[1:] if kind[0] == "s" else kind)
        if (not isinstance(dst, Sink))
        else "None"
    )
    gen.line(
        f"m_atomic(w, {gen.obj(ins)}, {space!r}, {op!r}, {kind!r}, {text}, "
        f"({', '.join(values)},), {rows}, {gen.memory_mask})"
    )


@emitter("discard")
def discard(gen: Gen, ins: Instruction) -> None:
    """``discard.global.L2``: the 128 bytes become indeterminate."""
    text = address(gen, ins.operands[0], "global")
    gen.line(f"m_discard(w, {gen.obj(ins)}, {text}, {gen.memory_mask})")


__all__ = ["Imm", "Vec"]
