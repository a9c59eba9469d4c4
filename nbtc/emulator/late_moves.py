"""Unpacking of 16-bit accumulators that a compiler left in front of its wait.

LLVM splits the registers of a float16 wgmma into halves as soon as the asm statement ends, which
is before the ``wgmma.wait_group`` that covers it. By the ISA that is undefined; ptxas waits first
(its note C7517). Such moves are carried out behind the wait, where nothing in between uses them.
"""

from __future__ import annotations

from .program import Function, Instruction, Reg, Vec

__all__ = ["sink_unpacking"]


def sink_unpacking(function: Function) -> list[Instruction]:
    """Move the unpacking of accumulators behind the wait of its block; return what moved."""
    moved: list[Instruction] = []
    for block in function.blocks:
        if any(_is(ins, "wait_group") for ins in block.instructions):
            moved += _sink(block.instructions)
    return moved


def _sink(instructions: list[Instruction]) -> list[Instruction]:
    accumulators: set[tuple[int, int]] = set()
    held: list[Instruction] = []
    touched: set[tuple[int, int]] = set()
    moved: list[Instruction] = []
    out: list[Instruction] = []
    for ins in instructions:
        registers = _registers(ins)
        if held and not registers.isdisjoint(touched):
            # Something uses the halves, or changes the accumulator, before the wait.
            out, held, touched = [*out, *held], [], set()
        if _is(ins, "mma_async"):
            accumulators |= _registers_of(ins.operands[0])
        elif _is(ins, "wait_group"):
            out += [ins, *held]
            moved += held
            accumulators, held, touched = set(), [], set()
            continue
        elif _unpacks(ins) and _registers_of(ins.operands[1]) <= accumulators:
            held.append(ins)
            touched |= registers
            continue
        out.append(ins)
    if moved:
        instructions[:] = [*out, *held]
    return moved


def _is(ins: Instruction, name: str) -> bool:
    return ins.parts[0] == "wgmma" and ins.parts[1] == name


def _unpacks(ins: Instruction) -> bool:
    if ins.op != "mov.b32" or ins.guard is not None or len(ins.operands) != 2:
        return False
    halves, source = ins.operands
    return isinstance(halves, Vec) and len(halves.items) == 2 and isinstance(source, Reg)


def _registers(ins: Instruction) -> set[tuple[int, int]]:
    found = {(r.bits, r.index) for operand in ins.operands for r in operand.registers()}
    if ins.guard is not None:
        found |= _registers_of(ins.guard)
    return found


def _registers_of(operand: object) -> set[tuple[int, int]]:
    return {(r.bits, r.index) for r in operand.registers()}  # type: ignore[attr-defined]
