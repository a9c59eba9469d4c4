"""What ptxas noted about a kernel: codes, Python lines, causes and remedies.

ptxas keeps a kernel correct by serialising wgmma, adding waits and fences, or dropping
``setmaxnreg``, and says so in an information line at most. Codes are parsed, never the words, which
change between releases. Two faults that some releases do not print are found by counting
instructions in the SASS.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from nbtc import sass
from nbtc.errors import CompileError
from nbtc.source_lines import LineTable, PythonLine, chain_text

NotesMode = Literal["error", "warn", "ignore"]

SERIOUS = range(7504, 7521)
"""Codes that mean slower or different code than was written: errors by default."""

_SETMAXNREG = (
    "setmaxnreg is ignored: the register count at entry is not known to ptxas",
    "give launch_bounds=(threads, 1), or max_registers=n",
)
_CALLS = (
    "wgmma is serialised: the kernel calls a function that is not inlined",
    "make helpers nbtc.device functions; remove print (vprintf) from the kernel, or print "
    "on the emulator with notes='ignore'; convert narrow floats by array access or nbtc.intrinsics",
)
_REGISTERS = (
    "wgmma is serialised: not enough registers for the accumulators in flight",
    "use a smaller tile or more warpgroups, do not keep two accumulators alive, and raise the cap "
    "(launch_bounds, max_registers, setmaxnreg)",
)
_ACCUMULATORS = (
    "wgmma is serialised: other instructions touch accumulators while wgmma is in flight",
    "pass accumulators through wgmma.wait_group, and touch them only after it; start with "
    "scale_d=False instead of writing zeros",
)
_DIVERGENT = (
    "wgmma is serialised: ptxas would have to add a wait or fence in a divergent path",
    "put fence, mma, commit and wait into the same branch, taken by the whole warpgroup, and pass "
    "accumulators through wgmma.wait_group(d, n=0) before they are read",
)
_FENCE = (
    "a wgmma fence was added: registers were written or first used with no wgmma.fence before "
    "the mma",
    "put wgmma.fence(accumulators) before the first mma, and again after anything touches them",
)
_WAITS = ("C7517", "C7518", "C7520")
_FENCE_BY_WAIT = (
    "the same missing wait as {} causes it: repair that first; a wgmma.fence that is written "
    "already is right"
)

CAUSES: dict[str, tuple[str, str]] = {
    "C7504": (
        "setmaxnreg is ignored: the code is compiled as a relocatable object",
        "let nbtc assemble the kernel as a whole program",
    ),
    "C7506": (
        "setmaxnreg is ignored: the kernel calls a function that is not inlined",
        _CALLS[1],
    ),
    "C7508": _SETMAXNREG,
    "C7509": _CALLS,
    "C7510": _CALLS,
    "C7511": _REGISTERS,
    "C7512": _REGISTERS,
    "C7514": _ACCUMULATORS,
    "C7515": _ACCUMULATORS,
    "C7517": (
        "a wgmma wait was added: accumulators are read before a wait_group covers them, so nothing "
        "overlaps",
        "commit, then pass the accumulators through wgmma.wait_group before reading them",
    ),
    "C7518": _DIVERGENT,
    "C7519": _FENCE,
    "C7520": _DIVERGENT,
}
"""Cause and remedy of the codes known."""


@dataclass(frozen=True, slots=True)
class Note:
    """One note.

    Attributes:
        code: ``"C7517"``; empty for a warning without a code.
        text: the words of ptxas, or what the count showed.
        lines: Python lines, the kernel's own first; empty if ptxas names none.
    """

    code: str
    text: str
    lines: tuple[PythonLine, ...] = ()

    @property
    def serious(self) -> bool:
        """Whether the note is an error by default."""
        return bool(self.code) and int(self.code[1:]) in SERIOUS

    @property
    def cause(self) -> str:
        """What happened, in nbtc's words where the code is known."""
        return CAUSES[self.code][0] if self.code in CAUSES else self.text

    @property
    def remedy(self) -> str:
        """What to do about it; empty where the code is not known."""
        return CAUSES[self.code][1] if self.code in CAUSES else ""

    def __str__(self) -> str:
        return self._words(self.remedy)

    def beside(self, codes: Collection[str]) -> str:
        """Return the words of ``str`` where notes of ``codes`` came with it."""
        wait = next((code for code in _WAITS if code in codes), None)
        if self.code == "C7519" and wait is not None:
            return self._words(_FENCE_BY_WAIT.format(wait))
        return self._words(self.remedy)

    def _words(self, remedy: str) -> str:
        where = f"{chain_text(self.lines)}: " if self.lines else ""
        said = f" (seen: {self.text})" if self.code in CAUSES else ""
        remedy = f". Remedy: {remedy}" if remedy else ""
        return f"{self.code or 'ptxas'} {where}{self.cause}{remedy}{said}"


_CODE = re.compile(r"^ptxas \w+\s*:\s*\((C\d+)\)\s*(.*)$", re.MULTILINE)
_WARNING = re.compile(r"^ptxas warning\s*:\s*(?!\(C\d)(.*)$", re.MULTILINE)
_NEAR = re.compile(r"\bline (\d+)")


def parse(log: str, ptx: str) -> list[Note]:
    """Return the notes in a log of ptxas, with the Python lines behind the PTX lines it names."""
    table = LineTable(ptx)
    notes = []
    for match in _CODE.finditer(log):
        near = _NEAR.search(match[2])
        lines = table.at(int(near[1])) if near else _first_line(match[1], ptx, table)
        note = Note(match[1], match[2].strip(), lines)
        if note not in notes:
            notes.append(note)
    for match in _WARNING.finditer(log):
        notes.append(Note("", match[1].strip()))
    return notes


def _first_line(code: str, ptx: str, table: LineTable) -> tuple[PythonLine, ...]:
    """Find the line of the first instruction that a note without a line is about."""
    word = "setmaxnreg" if code in {"C7504", "C7506", "C7508"} else "wgmma.mma_async"
    number = _line_of(ptx, word)
    return table.at(number) if number else ()


def _line_of(ptx: str, word: str) -> int | None:
    for number, text in enumerate(ptx.splitlines(), start=1):
        if word in text and not text.lstrip().startswith("//"):
            return number
    return None


def _uses(ptx: str, word: str) -> list[int]:
    return [
        number
        for number, text in enumerate(ptx.splitlines(), start=1)
        if word in text and not text.lstrip().startswith("//")
    ]


def needs_sass(ptx: str, cubin: bytes) -> bool:
    """Return whether :func:`count_against_sass` may find something.

    Errs on the side of looking: where a count cannot be trusted, nvdisasm is to decide.
    """
    multiplies, changes = "wgmma.mma_async" in ptx, "setmaxnreg" in ptx
    if not (multiplies or changes):
        return False
    arrives, kept = sass.quick_counts(cubin)
    if multiplies and not 0 < arrives <= len(_uses(ptx, "wgmma.fence")):
        return True
    return changes and kept == 0


def count_against_sass(ptx: str, disassembly: str, known: list[Note]) -> list[Note]:
    """Return notes for faults that ptxas left unsaid.

    Args:
        ptx: the module.
        disassembly: its SASS with source lines.
        known: the notes already parsed; nothing is reported twice.
    """
    table = LineTable(ptx)
    codes = {note.code for note in known}
    notes = []
    fences = _uses(ptx, "wgmma.fence")
    arrives = [where for name, where in sass.opcodes(disassembly) if name == "WARPGROUP.ARRIVE"]
    if len(arrives) > len(fences) and not codes & {"C7519", "C7520"}:
        # An added arrive has the line of the mma; a fence that ptxas duplicated has its own.
        own = {table.at(number)[-1] for number in fences if table.at(number)}
        added = [where for where in arrives if where not in own] if own or not fences else arrives
        for where in dict.fromkeys(added):
            lines = table.chain_of(where) if where else ()
            notes.append(
                Note(
                    "C7519",
                    f"{len(arrives)} WARPGROUP.ARRIVE in the SASS, {len(fences)} wgmma.fence in "
                    "the PTX",
                    lines,
                )
            )
    changes = _uses(ptx, "setmaxnreg")
    if changes and not codes & {"C7504", "C7506", "C7508"}:
        kept = sum(1 for name, _ in sass.opcodes(disassembly) if name.startswith("USETMAXREG"))
        if kept == 0:
            text = f"{len(changes)} setmaxnreg in the PTX, no USETMAXREG in the SASS"
            notes.append(Note("C7508", text, table.at(changes[0])))
    return notes


def report(notes: list[Note] | tuple[Note, ...], kernel: str, mode: NotesMode) -> None:
    """Raise, warn, or say nothing about the serious notes of a kernel.

    Raises:
        CompileError: ``mode`` is ``"error"`` and a serious note is there.
    """
    serious = [note for note in notes if note.serious]
    if not serious or mode == "ignore":
        return
    codes = {note.code for note in serious}
    text = "\n".join(f"  {note.beside(codes)}" for note in serious)
    message = f"kernel {kernel}: ptxas changed what was written\n{text}"
    if mode == "warn":
        warnings.warn(message, stacklevel=2)
        return
    raise CompileError(f'{message}\n  (notes="warn" or notes="ignore" compiles it all the same)')
