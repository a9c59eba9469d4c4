"""One readable error, with the Python lines, for anything that goes wrong while Numba compiles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nbtc.errors import CompileError, NbtcError
from nbtc.source_lines import PythonLine, chain_text

_LOCATED = "_nbtc_located"
_DURING = re.compile(r"^During: .* at (\S+) \((\d+)\)$", re.MULTILINE)
_IN_FILE = re.compile(r'File "([^"]+)", line (\d+)')
_NOISE = re.compile(r"^(Failed in .* mode pipeline .*|During: .*|\s*)$")


def locations(error: BaseException) -> tuple[PythonLine, ...]:
    """Return the Python lines being compiled when ``error`` was raised, the kernel's own first.

    Numba keeps the position in the object that is being worked on, not in the exception; so they
    are read from the frames of the traceback.
    """
    found: list[PythonLine] = []
    traceback = error.__traceback__
    while traceback is not None:
        worker = traceback.tb_frame.f_locals.get("self")
        name = type(worker).__name__
        if name.endswith("Constraint") or name.endswith("Lower"):
            location: Any = getattr(worker, "loc", None)
            line = getattr(location, "line", None)
            if line is not None and "numba_cuda" not in location.filename:
                here = PythonLine(location.filename, line)
                if not found or found[-1] != here:
                    found.append(here)
        traceback = traceback.tb_next
    return tuple(found)


def _own_error(error: BaseException) -> NbtcError | None:
    """Return the nbtc error inside a chain of Numba's."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        if isinstance(current, NbtcError):
            return current
        seen.add(id(current))
        current = current.__cause__ or current.__context__
    return None


def _summary(text: str) -> str:
    """Return the essential lines of one of Numba's messages."""
    kept: list[str] = []
    for line in text.splitlines():
        if _NOISE.match(line):
            if kept:
                break
            continue
        if _IN_FILE.match(line.strip()):
            break
        kept.append(line.rstrip())
    return "\n".join(kept[:12]) or text.strip()


def _lines_in(error: BaseException) -> tuple[PythonLine, ...]:
    # Numba writes the innermost place first.
    told = [PythonLine(name, int(line)) for name, line in _DURING.findall(str(error))]
    found = tuple(dict.fromkeys(reversed([t for t in told if "numba_cuda" not in t.file])))
    found = found or locations(error)
    if found:
        return found
    for name, line in _IN_FILE.findall(str(error)):
        if "numba_cuda" not in name and not name.startswith("<"):
            return (PythonLine(name, int(line)),)
    location: Any = getattr(error, "loc", None)
    if getattr(location, "line", None) is not None:
        return (PythonLine(location.filename, location.line),)
    return ()


@contextmanager
def readable(kernel: str) -> Iterator[None]:
    """Turn what is raised inside the block into one nbtc error that starts with the Python line.

    An nbtc error keeps its class; errors of Numba become :class:`CompileError` with the original as
    its cause.
    """
    try:
        yield
    except Exception as error:
        own = _own_error(error)
        if own is not None:
            if not getattr(own, _LOCATED, False):
                lines = locations(error) or locations(own)
                if lines:
                    own.args = (f"{chain_text(lines)}: {own}",)
                setattr(own, _LOCATED, True)
            raise own.with_traceback(None) from own.__cause__
        lines = _lines_in(error)
        where = f"{chain_text(lines)}: " if lines else ""
        kind = "" if _is_numba(error) else f"{type(error).__name__}: "
        made = CompileError(
            f"{where}kernel {kernel} does not compile: {kind}{_summary(str(error))}"
        )
        setattr(made, _LOCATED, True)
        raise made from error.with_traceback(None)


def _is_numba(error: Any) -> bool:
    return any(cls.__name__ == "NumbaError" for cls in type(error).__mro__)
