"""Disassembly of cubins, and counts of what is in it."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from nbtc import tools
from nbtc.errors import CompileError
from nbtc.source_lines import PythonLine

_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)")
_SOURCE = re.compile(r'//## File "([^"]+)", line (\d+)')


def disassemble(cubin: bytes, *, lines: bool = False) -> str:
    """Return the SASS of a cubin as nvdisasm writes it.

    Args:
        cubin: machine code.
        lines: put the source file and line before the instructions that come from it.
    """
    tool = tools.find("nvdisasm")
    with tempfile.TemporaryDirectory(prefix="nbtc-") as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        command = [tool.path, "-c", *(["-g"] if lines else []), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CompileError(f"nvdisasm failed: {done.stderr.strip()}")
    return done.stdout


def opcodes(sass: str) -> Iterator[tuple[str, PythonLine | None]]:
    """Yield every instruction's opcode with modifiers, and its innermost source line."""
    where: PythonLine | None = None
    for text in sass.splitlines():
        source = _SOURCE.search(text)
        if source is not None:
            where = PythonLine(source[1], int(source[2]))
            continue
        match = _INSTRUCTION.match(text)
        if match is not None:
            yield match[1], where


def count(sass: str, opcode: str) -> int:
    """Return how many instructions have ``opcode``, modifiers counting only if given."""
    dotted = opcode + "."
    return sum(1 for name, _ in opcodes(sass) if name == opcode or name.startswith(dotted))
