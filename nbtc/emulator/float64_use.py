"""Advice on float64 arithmetic that nobody asked for.

A Python constant such as ``0.1`` is float64 in Numba and widens the float32 it meets. Tensor-core
GPUs run float64 at a small part of the float32 rate. A kernel that keeps float64 in memory means
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .codegen import CODE
from .program import Imm, Instruction, Reg, writes_operand
from .race_places import place, where

__all__ = ["advise_float64"]

_ARITHMETIC = frozenset(
    ("abs", "add", "div", "fma", "mad", "max", "min", "mul", "neg", "rcp", "rsqrt", "setp", "sqrt",
     "sub")
)  # fmt: skip
_MEMORY = frozenset(("atom", "ld", "red", "st"))
_PRIVATE = frozenset(("param", "local", "const"))
_PI_OVER_2_64 = 0x3BF921FB54442D19  # of libdevice's float32 sine and cosine, for large arguments


def advise_float64(machine: Any) -> None:
    """Give an advice for every line with float64 arithmetic, if no float64 is in memory."""
    lines: dict[tuple[str, int], list[Instruction]] = {}
    for step in _run_steps(machine):
        for ins in step.instructions:
            if _is_arithmetic(ins):
                lines.setdefault(place(ins), []).append(ins)
    if not lines or _in_memory(machine.module):
        return
    for found in lines.values():
        if any(isinstance(o, Imm) and o.value == _PI_OVER_2_64 for i in found for o in i.operands):
            continue
        count = len(found)
        machine.finding(
            "float64_arithmetic",
            f"float64 arithmetic ({count} instruction{'s' * (count != 1)}) at {where(found[0])}, "
            "in a kernel that loads and stores no float64: write np.float32(...) constants, and "
            "pass np.float32 numbers",
            ins=found[0], severity="advice",
        )  # fmt: skip


def _run_steps(machine: Any) -> Iterator[Any]:
    """Give the steps of plain instructions that have run; their code is made on first use."""
    for function in machine.module.functions.values():
        code = machine.program.made(function)
        for steps in code.blocks if code is not None else ():
            for step in steps:
                if step.kind == CODE and (step.plain is not None or step.masked is not None):
                    yield step


def _is_arithmetic(ins: Instruction) -> bool:
    return ins.parts[0] in _ARITHMETIC and "f64" in ins.parts


def _in_memory(module: Any) -> bool:
    """Say whether a float64 is loaded from, or stored to, global or shared memory."""
    for function in module.functions.values():
        instructions = [i for block in function.blocks for i in block.instructions]
        doubles = {
            (r.bits, r.index)
            for i in instructions if _is_arithmetic(i)
            for o in i.operands for r in o.registers() if r.bits == 64
        }  # fmt: skip
        for ins in instructions:
            if ins.parts[0] not in _MEMORY or _PRIVATE & {p.split("::")[0] for p in ins.parts}:
                continue
            if "f64" in ins.parts:
                return True
            values = [
                o for n, o in enumerate(ins.operands)
                if writes_operand(ins, n) or (ins.parts[0] != "ld" and n > 0)
            ]  # fmt: skip
            if any(isinstance(r, Reg) and (r.bits, r.index) in doubles
                   for o in values for r in o.registers()):  # fmt: skip
                return True
    return False
