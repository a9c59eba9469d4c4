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
    """Return every instruction declared in ``nbtc.intrinsics`` by name, ``"mbarrier.init"``."""
    families = modules()
    own = (item for item in REGISTRY.items() if item[0].partition(".")[0] in families)
    return dict(sorted(own))


def _markdown(doc: str) -> str:
    text = inspect.cleandoc(doc)
    text = re.sub(r":\w+:`~?([^`]*)`", r"`\1`", text)
    return text.replace("``", "`")


def _split(doc: str) -> tuple[str, dict[str, str]]:
    """Return a docstring without its Args section, and that section by parameter."""
    rest: list[str] = []
    arguments: dict[str, str] = {}
    inside, name = False, ""
    for line in _markdown(doc).splitlines():
        if line.strip() in ("Args:", "Returns:"):
            inside = line.strip() == "Args:"
            rest += [] if inside else ["Returns:"]
        elif line and not line.startswith(" "):
            inside = False
            rest.append(line)
        elif inside and line:
            match = re.match(r"    (\w+): (.*)", line)
            name, text = (match[1], match[2]) if match else (name, line.strip())
            arguments[name] = f"{arguments.get(name, '')} {text}".strip()
        elif not inside:
            rest.append(line[4:] if line.startswith("    ") else line)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(rest)).strip(), arguments


def _kind_words(kind: Kind | Regs) -> str:
    if isinstance(kind, Kind):
        return kind.words
    if kind.note:
        return kind.note
    if isinstance(kind.count, int):
        return f"{kind.count} registers"
    return "registers"


def _takes(parameter: Operand | Modifier) -> str:
    if isinstance(parameter, Modifier):
        return "compile time: " + parameter.legal_words
    words = _kind_words(parameter.kind)
    if parameter.literal is not None:
        words += f", {parameter.literal.words}"
    return words + (", or nothing" if parameter.optional else "")


def _row(parameter: Operand | Modifier, meaning: str) -> str:
    cells = (f"`{parameter.name}`", _takes(parameter), meaning)
    return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"


def _floors(instruction: Instruction) -> str:
    found: dict[str, set[tuple[int, int]]] = {}
    for case in conformance.cases(instruction, 500):
        need = requirement_text(instruction.arch(case.variant))
        found.setdefault(need, set()).add(case.isa)
    words = []
    for need, versions in sorted(found.items()):
        texts = [f"{major}.{minor}" for major, minor in sorted(versions)]
        words.append(f"PTX {', '.join(texts)} on {need}")
    by_form = " by form" if len(words) > 1 or "," in words[0].split(" on ")[0] else ""
    return f"Needs{by_form}: {'; '.join(words)}."


def _entry(instruction: Instruction) -> str:
    signature = re.sub(r"<object object at [^>]*>", "...", str(instruction.written_signature))
    text, arguments = _split(instruction.__doc__ or "")
    parameters = (*instruction.operands, *instruction.modifiers)
    rows = [_row(p, arguments.get(p.name, "")) for p in parameters]
    template = instruction.template
    if not isinstance(template, str):
        template = conformance.render(instruction, next(iter(instruction.variants())))
    parts = [
        f"### {instruction.name}",
        f"```python\n{instruction.name}{signature}\n```",
        f"```text\n{' '.join(template.split())}\n```",
        text,
    ]
    if rows:
        parts.append("\n".join(["| parameter | takes | meaning |", "|---|---|---|", *rows]))
    effects = ", ".join(sorted(instruction.effects))
    section = f" PTX ISA {instruction.section}." if instruction.section else ""
    parts.append(f"{_floors(instruction)} Effects: {effects}.{section}")
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
