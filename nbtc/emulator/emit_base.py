"""Registry of emitters and what they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .codegen import Gen
from .program import Instruction, Operand

Emitter = Callable[[Gen, Instruction], None]
_EMITTERS: dict[str, Emitter] = {}
INTS = {"s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"}
PLAIN = {"add": "add", "sub": "subtract", "mul": "multiply"}
_ROUNDINGS = ("rn", "rz", "rm", "rp")


def emitter(*names: str) -> Callable[[Emitter], Emitter]:
    """Register an emitter for base opcodes (or dotted prefixes)."""

    def register(function: Emitter) -> Emitter:
        for name in names:
            _EMITTERS[name] = function
        return function

    return register


def find_emitter(ins: Instruction) -> Any:
    """Find the emitter of an instruction (longest dotted prefix), or None."""
    from . import emit, emit_float, emit_memory, emit_move  # noqa: F401  (registration)

    for end in range(min(len(ins.parts), 3), 0, -1):
        found = _EMITTERS.get(".".join(ins.parts[:end]))
        if found is not None:
            return found
    return None


def operands(ins: Instruction, count: int) -> list[Operand]:
    """Check the number of operands."""
    if len(ins.operands) != count:
        ins.unmodelled(f"expected {count} operands, found {len(ins.operands)}")
    return ins.operands


def rounding(ins: Instruction) -> str:
    """Rounding mode of a float instruction."""
    return next((m for m in _ROUNDINGS if m in ins.mods), "rn")
