"""One readable error, with the Python lines, for anything that goes wrong while Numba compiles."""

from __future__ import annotations

import bisect
import dis
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

from nbtc.errors import CompileError, NbtcError
from nbtc.source_lines import PythonLine, chain_text
from nbtc.spelling import meant

_LOCATED = "_nbtc_located"
_INNERMOST = "_nbtc_innermost"  # lines that no frame of the traceback has
_DURING = re.compile(r"^During: .* at (\S+) \((\d+)\)$", re.MULTILINE)
_REMEDIES = (
    (
        r"Cannot determine Numba type of <class 'function'>",
        "A helper that a kernel calls needs the decorator @nbtc.device",
    ),
    (
        r"Cannot determine Numba type of <class 'nbtc.jit.Kernel'>",
        "A kernel cannot call or launch a kernel; make what both need a helper with @nbtc.device",
    ),
    (
        r"Cannot determine Numba type of",
        "A kernel can use numbers, tuples, dtypes, modules, instructions and helpers from outside; "
        "bind the attributes of an object to bare names before the kernel",
    ),
    (
        r"NRT required|type list\(|list\(undefined\)",
        "Kernels have no lists, dictionaries or new arrays: use tuples, nbtc.shared, "
        "cuda.shared.array or cuda.local.array",
    ),
    (
        r"Cannot unify .*int32.*int64|Cannot unify .*int64.*int32",
        "Python integers are int64: start the variable with int32(...), and keep it 32-bit with "
        "nbtc.device.math32",
    ),
    (
        r"set_try_status|exception_match",
        "Kernels have no try and except; write a code to an array and check it after the launch",
    ),
    (
        r"lowering shared\.Layout\(",
        "A piece of a layout is an address: write elements as layout.name.array[...]",
    ),
    (
        r"terminator_types",
        "Kernels have no with blocks",
    ),
    (
        r"setitem\(array\((bfloat16|float16|float8)",
        "Elements of narrow floats take float32 and integers, and round: x[i] = float32(value)",
    ),
    (
        r"setitem\(readonly ",
        "The array is read-only; pass a copy",
    ),
    (
        r"signature: (add\(Literal\[str\]|str\()",
        'Kernels have no formatted strings: print("x", value)',
    ),
    (
        r"No conversion from .* to none|must have void return type",
        "A kernel returns nothing; write results to an array",
    ),
)
_ATTRIBUTE = re.compile(r"module '([\w.]+)' has no attribute '(\w+)'")
_NAME = re.compile(r"name '(\w+)' is not defined")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
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


def _misspelt(text: str, function: Any) -> str:
    """Return the name that was meant, if the error is of one that does not exist, or ``""``."""
    attribute = _ATTRIBUTE.search(text)
    if attribute is not None:
        names = dir(sys.modules.get(attribute[1]))
        return meant(attribute[2], [name for name in names if not name.startswith("_")])
    unknown = _NAME.search(text)
    if unknown is None:
        return ""
    code = function.__code__
    return meant(unknown[1], {*code.co_varnames, *code.co_freevars, *function.__globals__})


def _summary(text: str, function: Any) -> str:
    """Return the essential lines of one of Numba's messages, and what to do about it."""
    kept: list[str] = []
    for line in _COLOUR.sub("", text).splitlines():
        if _NOISE.match(line):
            if kept and not kept[-1].endswith(":"):
                break
            continue
        if _IN_FILE.match(line.strip()):
            break
        kept.append(line.strip())
    summary = " ".join(kept[:4]).replace(" >>> ", " ") or text.strip()
    for pattern, remedy in _REMEDIES:
        if re.search(pattern, summary):
            return f"{summary}. {remedy}"
    return summary + _misspelt(summary, function)


def _lines_in(error: BaseException) -> tuple[PythonLine, ...]:
    # Numba writes the innermost place first.
    told = [PythonLine(name, int(line)) for name, line in _DURING.findall(str(error))]
    found = tuple(dict.fromkeys(reversed([t for t in told if "numba_cuda" not in t.file])))
    found = found or locations(error)
    if found:
        return found
    for name, line in _IN_FILE.findall(str(error)):
        if "numba_cuda" not in name and not name.startswith("<"):
            return (PythonLine(os.path.abspath(name), int(line)),)
    location: Any = getattr(error, "loc", None)
    if getattr(location, "line", None) is not None:
        return (PythonLine(os.path.abspath(location.filename), location.line),)
    return ()


_TOO_WIDE = re.compile(r" is u?int64, needs (int32|uint32)\b")


class readable:
    """Turn what is raised inside the block into one nbtc error that starts with the Python line.

    An nbtc error keeps its class; errors of Numba become :class:`CompileError` with the original as
    its cause. The traceback leaves out the frames of Numba. (A generator of ``contextlib`` would
    put them back where the error is the one that came in.)
    """

    def __init__(self, function: Any, argument_types: Sequence[Any] = ()) -> None:
        """Take the Python function of the kernel that is compiled in the block, and its types."""
        self.function, self.argument_types = function, argument_types

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        """Raise the readable error in place of ``error``."""
        if not isinstance(error, Exception):
            return
        made, cause = _readable(error, self.function)
        if _TOO_WIDE.search(str(made)):
            made.args = (f"{made}{_wide_arguments(self.function, self.argument_types)}",)
        raise made.with_traceback(None) from cause


def _wide_arguments(function: Any, argument_types: Sequence[Any]) -> str:
    """Tell the arguments that are Python integers, where 32 bits are needed."""
    names = function.__code__.co_varnames
    wide = [
        f"{name} is argument {index} and int64, as a Python int is: pass np.int32({name})"
        for index, (name, ty) in enumerate(zip(names, argument_types, strict=False))
        if str(ty) == "int64"
    ]
    return f" ({'; '.join(wide)})" if wide else ""


def _readable(error: Exception, function: Any) -> tuple[NbtcError, BaseException | None]:
    """Return the nbtc error to raise for ``error``, and its cause."""
    own = _own_error(error)
    if own is not None:
        if not getattr(own, _LOCATED, False):
            lines = (locations(error) or locations(own)) + getattr(own, _INNERMOST, ())
            if lines or not isinstance(own, CompileError):
                own.args = (f"{chain_text(lines or _definition(function))}: {own}",)
            setattr(own, _LOCATED, True)
        return own, own.__cause__
    where = chain_text(_use_of(error, function) or _lines_in(error) or _definition(function))
    kind = "" if _is_numba(error) else f"{type(error).__name__}: "
    made = CompileError(
        f"{where}: kernel {function.__qualname__} does not compile: {kind}"
        f"{_summary(str(error), function)}"
    )
    setattr(made, _LOCATED, True)
    return made, error.with_traceback(None)


def _use_of(error: BaseException, function: Any) -> tuple[PythonLine, ...]:
    """Return where a function uses a name that does not exist, if that is the error."""
    unknown = _NAME.search(str(error))
    if unknown is None:
        return ()
    code = function.__code__
    lines = [line for *_, line in code.co_lines()]
    starts = [start for start, *_ in code.co_lines()]
    for instruction in dis.get_instructions(code):
        if instruction.argval == unknown[1]:
            line = lines[bisect.bisect_right(starts, instruction.offset) - 1]
            return (PythonLine(code.co_filename, line or code.co_firstlineno),)
    return ()


def unknown_name(error: BaseException, helper: Any) -> CompileError | None:
    """Return the error of a helper that uses a name that does not exist, or None for others."""
    lines = _use_of(error, helper)
    if not lines or _own_error(error) is not None:  # a helper that this one calls has told it
        return None
    made = CompileError(
        f"helper {helper.__qualname__} does not compile: {_summary(str(error), helper)}"
    )
    setattr(made, _INNERMOST, lines)
    return made


def _definition(function: Any) -> tuple[PythonLine, ...]:
    code = function.__code__
    return (PythonLine(code.co_filename, code.co_firstlineno),)


def _is_numba(error: Any) -> bool:
    return any(cls.__name__ == "NumbaError" for cls in type(error).__mro__)
