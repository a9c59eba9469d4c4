"""From a line of PTX text back to Python lines, through ``.loc`` and ``inlined_at``."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"((?:[^"\\]|\\.)*)"(?:\s*,?\s*"((?:[^"\\]|\\.)*)")?')
_LOC = re.compile(
    r"^\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)"
    r"(?:\s*,\s*function_name\s+[^,]+,\s*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?"
)

_Position = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class PythonLine:
    """A place in a source file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class LineTable:
    """The ``.loc`` directives of a PTX module."""

    def __init__(self, ptx: str) -> None:
        files: dict[int, str] = {}
        self._starts: list[int] = []
        self._chains: list[tuple[_Position, ...]] = []
        parents: dict[_Position, tuple[_Position, ...]] = {}
        for number, text in enumerate(ptx.splitlines(), start=1):
            if ".loc" in text:
                match = _LOC.match(text)
                if match is None:
                    continue
                here = _position(match.groups()[:3])
                # Line 0 stands for code of no line of its own; its caller is the best answer.
                chain: tuple[_Position, ...] = (here,) if here[1] else ()
                if match[4] is not None:
                    caller = _position(match.groups()[3:])
                    chain += parents.get(caller, (caller,))
                parents[here] = chain
                self._starts.append(number)
                self._chains.append(chain)
            elif ".file" in text:
                match = _FILE.match(text)
                if match is not None:
                    directory = f"{match[2]}/{match[3]}" if match[3] else match[2]
                    files[int(match[1])] = directory
        self._files = files

    def at(self, ptx_line: int) -> tuple[PythonLine, ...]:
        """Return the Python lines behind a 1-based PTX line: the user's kernel first, callee last.

        Empty where the PTX carries no line information before that line.
        """
        index = bisect_right(self._starts, ptx_line) - 1
        if index < 0:
            return ()
        return tuple(
            PythonLine(self._files.get(file, "?"), line)
            for file, line, _ in reversed(self._chains[index])
        )

    def chain_of(self, innermost: PythonLine) -> tuple[PythonLine, ...]:
        """Return the first chain that ends in ``innermost``, or that line alone."""
        for start in self._starts:
            chain = self.at(start)
            if chain and chain[-1] == innermost:
                return chain
        return (innermost,)


def _position(fields: tuple[str | None, ...]) -> _Position:
    file, line, column = (int(f or 0) for f in fields)
    return file, line, column


def chain_text(lines: tuple[PythonLine, ...]) -> str:
    """Return ``"kernel.py:20 -> helper.py:7"``, or ``"unknown line"``."""
    return " -> ".join(str(line) for line in lines) or "unknown line"
