"""Declarations as PTX modules, so that ptxas can judge every variant at its own floor.

A case is one variant rendered with concrete registers. Cases that share the lowest PTX ISA version
and the lowest target go into one module, a line each, so that a refusal names its variant by line.
"""

from __future__ import annotations

import itertools
import math
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nbtc import arch as arch_module
from nbtc.ptx.kinds import F32_KIND, Kind, Regs
from nbtc.ptx.spec import Instruction, Isa, Variant

_PREFIX = {"pred": "p", "b16": "h", "b32": "r", "b64": "l", "f32": "f", "f64": "d"}
FLOORS = {"sm_80": (7, 0), "sm_89": (7, 8)} | {
    name: target.min_isa for name, target in arch_module.SUPPORTED.items()
}
"""Lowest PTX ISA version that knows each target."""


@dataclass(frozen=True)
class Case:
    """One variant of a declaration with concrete registers.

    Attributes:
        instruction: the declaration.
        variant: the compile-time choices.
        text: PTX on one line.
        isa: lowest PTX ISA version of the variant.
        arch: lowest target of the variant.
    """

    instruction: Instruction
    variant: Variant
    text: str
    isa: Isa
    arch: str

    @property
    def floor(self) -> Isa:
        """Lowest ``.version`` of a module that has the variant and the target."""
        return max(self.isa, FLOORS[self.arch])

    def __str__(self) -> str:
        return f"{self.instruction.name}({self.variant}): {self.text}"


def _registers(kind: Kind, numbers: dict[str, Iterator[int]]) -> str:
    prefix = _PREFIX[kind.reg]
    return f"%{prefix}{next(numbers.setdefault(prefix, itertools.count()))}"


def render(instruction: Instruction, variant: Variant) -> str:
    """Return the PTX of a variant on one line, with registers ``%r0``, ``%l0``, ... in order."""
    numbers: dict[str, Iterator[int]] = {}
    texts: dict[str, str | list[str]] = {}

    def name(key: str, kind: Kind | Regs, count: int | None) -> None:
        if isinstance(kind, Kind):
            texts[key] = _registers(kind, numbers)
            return
        one, fixed = kind.resolve(variant)
        if kind.is_scalar(variant):
            assert one is not None
            texts[key] = _registers(one, numbers)
            return
        length = fixed if fixed is not None else count
        texts[key] = [_registers(one or F32_KIND, numbers) for _ in range(length or 0)]

    for i, kind in enumerate(instruction.results):
        if isinstance(kind, Regs) and kind.kind is None:
            continue
        name(instruction.result_name(i), kind, None)
    for operand in instruction.operands:
        if operand.optional and not variant.has(operand.name):
            continue
        open_length = isinstance(operand.kind, Regs) and operand.kind.count is None
        name(operand.name, operand.kind, variant.count(operand.name) if open_length else None)
        if operand.name in instruction.ties:
            texts[instruction.ties[operand.name]] = texts[operand.name]
    return " ".join(instruction.render(variant, texts).split())


def lowest_arch(instruction: Instruction, variant: Variant) -> str:
    """Return the first target that has the variant."""
    need = instruction.arch(variant)
    return need if isinstance(need, str) else need[0]


def cases(instruction: Instruction, limit: int | None = None) -> list[Case]:
    """Return a case per legal variant, at most ``limit`` of them, spread evenly.

    Args:
        instruction: the declaration.
        limit: largest number of cases; None takes every variant, with every immediate.
    """
    variants: Iterable[Variant] = instruction.variants(exhaustive=limit is None)
    if limit is not None:
        every = list(variants)
        variants = every[:: math.ceil(len(every) / limit)] if every else []
    made: dict[str, Case] = {}
    for v in variants:
        text = render(instruction, v)
        made.setdefault(
            text, Case(instruction, v, text, instruction.isa(v), lowest_arch(instruction, v))
        )
    return list(made.values())


def module(lines: list[str], isa: Isa, target: str) -> tuple[str, dict[int, int]]:
    """Return a PTX module of these lines, and the index of each text by its line number."""
    text = [f".version {isa[0]}.{isa[1]}", f".target {target}", ".address_size 64"]
    index_of_line: dict[int, int] = {}
    # ptxas refuses a function that uses tcgen05 for one CTA and for a pair.
    pair = [i for i, line in enumerate(lines) if "cta_group::2" in line]
    single = [i for i, line in enumerate(lines) if "cta_group::2" not in line]
    for name, members in (("single", single), ("pair", pair)):
        text += [
            f".visible .entry {name}() {{",
            "  .reg .pred %p<8>; .reg .b16 %h<300>; .reg .b32 %r<600>;",
            "  .reg .b64 %l<300>; .reg .f32 %f<600>; .reg .f64 %d<64>;",
        ]
        for i in members:
            text.append(lines[i])
            index_of_line[len(text)] = i
        text += ["  ret;", "}"]
    return "\n".join([*text, ""]), index_of_line


def refused(lines: list[str], isa: Isa, target: str, ptxas: str | Path) -> dict[int, str]:
    """Return what ptxas says against lines of a module, by index; empty when it takes them all.

    Raises:
        RuntimeError: ptxas failed without naming one of the lines.
    """
    text, index_of_line = module(lines, isa, target)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "conformance.ptx"
        source.write_text(text)
        done = subprocess.run(
            [str(ptxas), f"-arch={target}", "-O1", str(source), "-o", str(Path(folder) / "out")],
            capture_output=True,
            text=True,
            check=False,
        )
    found: dict[int, str] = {}
    for line in (done.stderr + done.stdout).splitlines():
        match = re.search(r"line (\d+); +(?:error|fatal) *: (.*)", line)
        if match and int(match[1]) in index_of_line:
            found.setdefault(index_of_line[int(match[1])], match[2])
    if done.returncode and not found:
        raise RuntimeError(f"ptxas failed on a module for {target}: {done.stderr[-2000:]}")
    return found


def by_floor(all_cases: Iterable[Case], size: int = 4000) -> Iterator[tuple[Isa, str, list[Case]]]:
    """Yield groups of cases with the same lowest ``.version`` and target, ``size`` at most."""
    groups: dict[tuple[Isa, str], list[Case]] = {}
    for case in all_cases:
        groups.setdefault((case.floor, case.arch), []).append(case)
    for (isa, target), members in groups.items():
        for i in range(0, len(members), size):
            yield isa, target, members[i : i + size]
