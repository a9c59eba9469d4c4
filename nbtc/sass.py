"""Disassembly of cubins, and counts of what is in it."""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

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


_OPCODE = np.uint64(0xFFF)
_WARPGROUP = np.uint64(0x9C5)
_DEPBAR = np.uint64(1 << 47)
_USETMAXREG = np.uint64(0x9C8)


def quick_counts(cubin: bytes) -> tuple[int, int]:
    """Count WARPGROUP.ARRIVE and USETMAXREG by their encodings, without running nvdisasm.

    nvdisasm takes half a second. The encodings are those of Hopper and Blackwell, found by
    disassembly and not documented: a count that looks wrong is to be confirmed by nvdisasm.
    """
    arrives = changes = 0
    for code in _code_sections(cubin):
        words = np.frombuffer(code[: len(code) // 16 * 16], np.uint64)[::2]
        opcodes_ = words & _OPCODE
        arrives += int(((opcodes_ == _WARPGROUP) & (words & _DEPBAR == 0)).sum())
        changes += int((opcodes_ == _USETMAXREG).sum())
    return arrives, changes


def _code_sections(cubin: bytes) -> Iterator[bytes]:
    """Yield the contents of the ``.text`` sections of a 64-bit little-endian ELF file."""
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    entry_size, count_, names_index = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", cubin, table + i * entry_size) for i in range(count_)]
    names = headers[names_index][4]
    for name, _, _, _, offset, size in headers:
        if cubin.startswith(b".text", names + name):
            yield cubin[offset : offset + size]


def count(sass: str, opcode: str) -> int:
    """Return how many instructions have ``opcode``, modifiers counting only if given."""
    dotted = opcode + "."
    return sum(1 for name, _ in opcodes(sass) if name == opcode or name.startswith(dotted))
