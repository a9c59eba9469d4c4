"""The reference page of all instructions, written from their declarations.

``python -m nbtc.reference`` writes ``docs/reference.md``; ``--check`` fails if that file is not
what the declarations say.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import nbtc.intrinsics
from nbtc.arch import requirement_text
from nbtc.ptx import conformance
from nbtc.ptx.kinds import Kind, Regs
from nbtc.ptx.spec import REGISTRY, Instruction, Modifier, Operand

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference.md"

_HEAD = """\
# Instructions

Written by `python -m nbtc.reference` from the declarations in `intrinsics/`; do not edit.

A function is one PTX instruction. Parameters behind the `*` are chosen at compile time. Where a
parameter says "or nothing", leaving it out drops it from the instruction.
"""


def modules() -> dict[str, ModuleType]:
    """Return every module of ``nbtc.intrinsics`` by name, imported."""
    names = sorted(m.name for m in pkgutil.iter_modules(nbtc.intrinsics.__path__))
    return {name: importlib.import_module(f"nbtc.intrinsics.{name}") for name in names}


def instructions() -> dict[str, Instruction]:
    """Return every declared instruction by name, ``"mbarrier.init"``."""
    modules()
    return dict(sorted(REGISTRY.items()))


def _markdown(doc: str) -> str:
    text = inspect.cleandoc(doc)
    text = re.sub(r":\w+:`~?([^`]*)`", r"`\1`", text)
    return text.replace("``", "`")


def _kind_words(kind: Kind | Regs) -> str:
    if isinstance(kind, Kind):
        return kind.words
    if kind.note:
        return kind.note
    if isinstance(kind.count, int):
        return f"{kind.count} registers"
    return "registers"


def _operand_row(operand: Operand) -> str:
    words = _kind_words(operand.kind)
    if operand.literal is not None:
        words += f", {operand.literal.words}"
    if operand.optional:
        words += ", or nothing"
    return f"| `{operand.name}` | {words} |"


def _modifier_row(modifier: Modifier) -> str:
    return f"| `{modifier.name}` | compile time: {modifier.legal_words.replace('|', '/')} |"


def _floors(instruction: Instruction) -> str:
    found: dict[tuple[tuple[int, int], str], int] = {}
    for case in conformance.cases(instruction, 500):
        need = requirement_text(instruction.arch(case.variant))
        found.setdefault((case.isa, need), len(found))
    words = [f"PTX {isa[0]}.{isa[1]} on {need}" for isa, need in sorted(found)]
    return words[0] if len(words) == 1 else "by form: " + "; ".join(words)


def _entry(instruction: Instruction) -> str:
    signature = re.sub(r"<object object at [^>]*>", "...", str(instruction.written_signature))
    rows = [_operand_row(o) for o in instruction.operands]
    rows += [_modifier_row(m) for m in instruction.modifiers]
    text = instruction.template
    if not isinstance(text, str):
        default = next(iter(instruction.variants()))
        text = conformance.render(instruction, default)
    parts = [
        f"### {instruction.name}",
        f"```python\n{instruction.name}{signature}\n```",
        f"```text\n{' '.join(text.split())}\n```",
        _markdown(instruction.__doc__ or ""),
    ]
    if rows:
        parts.append("\n".join(["| parameter | takes |", "|---|---|", *rows]))
    effects = ", ".join(sorted(instruction.effects))
    section = f" PTX ISA {instruction.section}." if instruction.section else ""
    parts.append(f"Needs {_floors(instruction)}. Effects: {effects}.{section}")
    return "\n\n".join(parts)


def page() -> str:
    """Return the reference page."""
    loaded = modules()
    families: dict[str, list[Instruction]] = {}
    for name, instruction in instructions().items():
        families.setdefault(name.split(".")[0], []).append(instruction)
    parts = [_HEAD, _index(families)]
    for family, members in families.items():
        parts.append(f"## {family}")
        parts.append(_markdown(loaded[family].__doc__ or ""))
        parts += [_entry(i) for i in members]
    return "\n\n".join(p.strip() for p in parts) + "\n"


def _index(families: dict[str, list[Instruction]]) -> str:
    lines = []
    for family, members in families.items():
        names = ", ".join(f"`{i.__name__}`" for i in members)
        lines.append(f"- [{family}](#{family}): {names}")
    return "\n".join(lines)


def main(arguments: Iterable[str] | None = None) -> int:
    """Write the page, or compare it; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m nbtc.reference", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    parser.add_argument("--output", type=Path, default=PAGE)
    options = parser.parse_args(None if arguments is None else list(arguments))
    text = page()
    if options.check:
        same = options.output.exists() and options.output.read_text() == text
        if not same:
            print(f"{options.output} is out of date: run python -m nbtc.reference", file=sys.stderr)
        return 0 if same else 1
    options.output.parent.mkdir(exist_ok=True)
    options.output.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
