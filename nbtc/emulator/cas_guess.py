"""Plain loads whose value is only the first guess of a compare-and-swap.

The programming guide builds every missing atomic that way: load, compute, ``atom.cas``, and again
with what the swap saw. The load races with the swaps of others; an old value costs one more trip.
"""

from __future__ import annotations

from collections.abc import Iterable

from .clocks import ORDER, Conflict
from .program import Instruction, Reg

__all__ = ["is_guess", "split_guesses"]


def is_guess(ins: Instruction) -> bool:
    """Say whether a plain load gives the value that an ``atom.cas`` compares with."""
    if ins.parts[0] != "ld" or ins.sem != "weak" or not isinstance(ins.operands[0], Reg):
        return False
    known = _GUESSES.get(ins)
    if known is None:
        if len(_GUESSES) > 4096:
            _GUESSES.clear()
        known = _GUESSES[ins] = _feeds_swap(ins)
    return known


_GUESSES: dict[Instruction, bool] = {}


def _feeds_swap(load: Instruction) -> bool:
    """Follow the loaded register through moves to the compared operand of a swap."""
    instructions = [i for block in load.function.blocks for i in block.instructions]
    copies = [
        (i.operands[0], i.operands[1])
        for i in instructions
        if i.parts[0] == "mov" and all(isinstance(o, Reg) for o in i.operands)
    ]
    names = {load.operands[0].text}
    while more := {d.text for d, s in copies if s.text in names} - names:
        names |= more
    return any(
        i.parts[0] == "atom" and "cas" in i.mods and i.operands[2].text in names
        for i in instructions
    )


def split_guesses(
    found: Iterable[Conflict], ins: Instruction
) -> tuple[list[Conflict], list[Conflict]]:
    """Split conflicts of a load or an atomic into those of a guess with an atomic, and others."""
    guesses, others = [], []
    for old, reason in found:
        place = old.place
        mine, other = (ins, place) if old.write else (place, ins)
        fits = (
            reason == ORDER
            and isinstance(place, Instruction)
            and other.parts[0] in ("atom", "red")
            and is_guess(mine)
        )
        (guesses if fits else others).append((old, reason))
    return guesses, others
