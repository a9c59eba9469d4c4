"""The reference pages: instructions, building blocks of kernels, and what runs on the host.

``python -m nbtc.reference`` writes ``docs/reference.md`` from declarations, and
``docs/building-blocks.md`` and ``docs/host.md`` from docstrings;
``--check`` fails if those files are not what declarations and docstrings say.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from numba.cuda import types

import nbtc.device
import nbtc.intrinsics
from nbtc import emulator, gemm, testing
from nbtc.arch import requirement_text
from nbtc.device_function import DeviceFunction
from nbtc.jit import Kernel, device, jit
from nbtc.launch import Configured
from nbtc.ptx import conformance, registers
from nbtc.ptx.kinds import Kind, Regs
from nbtc.ptx.spec import REGISTRY, Instruction, Modifier, Operand
from nbtc.routine import Routine
from nbtc.tensormap import TensorMap

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "reference.md"
BLOCKS = DOCS / "building-blocks.md"
HOST = DOCS / "host.md"

_HEAD = """\
# Instructions

Written by `python -m nbtc.reference` from the declarations in `intrinsics/`; do not edit.

A function is one PTX instruction; those at the end of a family make addresses and descriptors.
Parameters behind the `*` are chosen at compile time. Where a parameter says "or nothing", leaving
it out drops it from the instruction.
"""


_BLOCKS_HEAD = """\
# Building blocks

Written by `python -m nbtc.reference` from the docstrings of `nbtc.device`; do not edit.

What kernels are made of beside single [instructions](reference.md):
`from nbtc.device import pipeline`, then `pipeline.wait(...)` in a kernel (`registers` comes from
`nbtc.ptx`). Functions marked *host* run before the kernel is compiled; the others are called from
kernels and helpers.
"""


_HOST_HEAD = """\
# On the host

Written by `python -m nbtc.reference` from docstrings; do not edit.

What a program calls: kernels and their launches, tensor maps, ready-made products, the emulator,
and helpers for tests and measurements.
"""


def modules(package: ModuleType = nbtc.intrinsics) -> dict[str, ModuleType]:
    """Return every module of a package by name, imported."""
    names = sorted(m.name for m in pkgutil.iter_modules(package.__path__))
    return {name: importlib.import_module(f"{package.__name__}.{name}") for name in names}


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
    families: dict[str, list[Instruction]] = {}
    for name, instruction in instructions().items():
        families.setdefault(name.split(".")[0], []).append(instruction)
    parts = [_HEAD]
    index, body = [], []
    for family, module in modules().items():
        members, more = families.get(family, []), conversions(module)
        if not members and not more:
            continue
        names = [*(i.__name__ for i in members), *more]
        index.append(f"- [{family}](#{family}): {', '.join(f'`{name}`' for name in names)}")
        body += [f"## {family}", _markdown(module.__doc__ or "")]
        body += [_entry(i) for i in members]
        body += [_block(family, name, value) for name, value in more.items()]
    parts += ["\n".join(index), *body]
    return "\n\n".join(p.strip() for p in parts) + "\n"


def conversions(module: ModuleType) -> dict[str, Any]:
    """Return what a module of ``nbtc.intrinsics`` has beside instructions."""
    found = vars(module).items()
    plain = {k: v for k, v in found if isinstance(v, Routine) and not isinstance(v, Instruction)}
    return {name: value for name, value in sorted(plain.items()) if not name.startswith("_")}


def blocks() -> dict[str, dict[str, Any]]:
    """Return what kernels and their makers use of ``nbtc.device``: by module, then by name."""
    found: dict[str, dict[str, Any]] = {}
    for module_name, module in _block_modules().items():
        own = {
            name: value
            for name, value in vars(module).items()
            if not name.startswith("_")
            and (isinstance(value, Routine) or inspect.isroutine(value) or inspect.isclass(value))
            and value.__module__ == module.__name__
            and not (inspect.isclass(value) and issubclass(value, types.Type))
        }
        if any(isinstance(value, Routine | DeviceFunction) for value in own.values()) or (
            module_name == "shared"
        ):
            found[module_name] = own
    return found


def _block_modules() -> dict[str, ModuleType]:
    return dict(sorted({**modules(nbtc.device), "registers": registers}.items()))


def _block(module: str, name: str, value: Any) -> str:
    host = "" if isinstance(value, Routine | DeviceFunction) else " (host)"
    return _described(f"{module}.{name}", value, host)


def _described(name: str, value: Any, mark: str = "") -> str:
    text, arguments = _split(value.__doc__ or "")
    signature = "" if inspect.isclass(value) and not arguments else _plain_signature(value)
    call = f"```python\n{name}{signature}\n```"
    parts = [f"### {name}{mark}", call, _listed(text)]
    if arguments:
        rows = [
            f"| `{key}` | {meaning} |".replace("\\|", "|") for key, meaning in arguments.items()
        ]
        parts.append("\n".join(["| parameter | meaning |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def _listed(text: str) -> str:
    """Return a docstring with the entries of its sections as list items."""
    lines, section = [], False
    for line in text.splitlines():
        entry = re.match(r"(\w+(?:, \w+)*): (.*)", line)
        if line in ("Attributes:", "Raises:"):
            section = True
            lines += [line, ""]
        elif section and entry:
            lines.append(f"- `{entry[1]}`: {entry[2]}")
        elif section and line.startswith(" "):
            lines.append(f"  {line.strip()}")
        else:
            section = section and not line
            lines.append(line)
    return "\n".join(lines)


def _plain_signature(value: Any) -> str:
    signature = inspect.signature(value)
    bare = [
        p.replace(annotation=inspect.Parameter.empty)
        for name, p in signature.parameters.items()
        if name != "self"
    ]
    return str(inspect.Signature(bare))


def blocks_page() -> str:
    """Return the page of building blocks."""
    found, loaded = blocks(), _block_modules()
    index = [
        f"- [{module}](#{module}): {', '.join(f'`{name}`' for name in own)}"
        for module, own in found.items()
    ]
    parts = [_BLOCKS_HEAD, "\n".join(index)]
    for module, own in found.items():
        parts += [f"## {module}", _markdown(loaded[module].__doc__ or "")]
        parts += [_block(module, name, value) for name, value in own.items()]
    return "\n\n".join(p.strip() for p in parts) + "\n"


def host() -> dict[str, dict[str, Any]]:
    """Return what programs call, by section, then by name: functions, classes, their methods."""
    sections: dict[str, dict[str, Any]] = {
        "nbtc": {
            "nbtc.jit": jit,
            "nbtc.device": device,
            **_methods("kernel", Kernel, ("compile", "emulate", "save", "load")),
            **_methods("kernel[grid, block, stream]", Configured, ("bind",)),
            "nbtc.TensorMap": TensorMap,
            **_methods("TensorMap", TensorMap),
            "nbtc.Compiled": nbtc.Compiled,
            **_methods("compiled", nbtc.Compiled),
            "nbtc.matmul": nbtc.matmul,
        }
    }
    for module in (gemm, emulator, testing):
        name = module.__name__.split(".")[-1]
        found = {f"{name}.{key}": vars(module)[key] for key in module.__all__}
        sections[name] = {
            key: value
            for key, value in found.items()
            if callable(value) and value is not nbtc.matmul
        }
    return sections


def _methods(prefix: str, cls: type, names: Sequence[str] = ()) -> dict[str, Any]:
    """Return public methods with an explanation, those in ``names`` if any are given."""
    return {
        f"{prefix}.{name}": getattr(cls, name)
        for name, value in vars(cls).items()
        if not name.startswith("_")
        and (name in names or not names)
        and callable(getattr(cls, name))
        and getattr(value, "__doc__", "")
    }


def host_page() -> str:
    """Return the page of what runs on the host."""
    sections = host()
    index = [
        f"- [{name}](#{name}): {', '.join(f'`{key}`' for key in own)}"
        for name, own in sections.items()
    ]
    parts = [_HOST_HEAD, "\n".join(index)]
    for name, own in sections.items():
        parts += [f"## {name}", *(_described(key, value) for key, value in own.items())]
    return "\n\n".join(p.strip() for p in parts) + "\n"


def main(arguments: Iterable[str] | None = None) -> int:
    """Write the pages, or compare them; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m nbtc.reference", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    parser.add_argument("--output", type=Path, default=DOCS, help="folder of the pages")
    options = parser.parse_args(None if arguments is None else list(arguments))
    stale = 0
    pages = ((page, PAGE.name), (blocks_page, BLOCKS.name), (host_page, HOST.name))
    for made, name in pages:
        path, text = options.output / name, made()
        if options.check:
            if not path.exists() or path.read_text() != text:
                print(f"{path} is out of date: run python -m nbtc.reference", file=sys.stderr)
                stale = 1
            continue
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return stale


if __name__ == "__main__":
    sys.exit(main())
