"""Kernels compiled on one machine and launched on another: ``kernel.save`` and ``kernel.load``.

The file has the PTX, the cubin, and what they were made from: argument types, and a hash of the
function with everything it refers to. A file that does not fit the kernel it is loaded into is
refused. Hashes cover bytecode, so they are compared only under the same minor version of Python.
"""

from __future__ import annotations

import re
import sys
import types as pytypes
from pathlib import Path
from typing import Any

from nbtc import cache, fingerprint
from nbtc.compile import Compiled, CompileOptions, entry_name, from_entry, to_entry
from nbtc.errors import CompileError


def save(
    path: str | Path, made: Compiled, function: pytypes.FunctionType, options: CompileOptions
) -> None:
    """Write a compiled kernel to ``path``.

    Raises:
        OSError: the file cannot be written.
    """
    entry = to_entry(made)
    entry.meta["types"] = _tokens(made.argument_types)
    entry.meta["source"] = _source(function, options)
    cache.write(Path(path), entry)


def load(
    path: str | Path,
    argument_types: tuple[Any, ...],
    function: pytypes.FunctionType,
    options: CompileOptions,
) -> Compiled:
    """Return the kernel of a file that :func:`save` wrote.

    Raises:
        CompileError: there is no such file, it is damaged, or it was made from another kernel,
            other argument types, or another version of the source.
    """
    file = Path(path)
    if not file.exists():
        raise CompileError(f"{path}: no such file")
    entry = cache.read(file)
    if entry is None or "source" not in entry.meta:
        raise CompileError(f"{path} is damaged, or was not written by kernel.save")
    kept, asked = entry.meta.pop("types"), _tokens(argument_types)
    python, digest = entry.meta.pop("source")
    if entry.meta["entry"] != entry_name(function):
        raise CompileError(f"{path} has kernel {entry.meta['entry']}, not {function.__qualname__}")
    if kept != asked:
        raise CompileError(
            f"{path} was saved for other argument types: "
            f"{_difference(kept, asked, function.__code__.co_varnames)}"
        )
    here, now = _source(function, options)
    if python == here and digest and digest != now:
        raise CompileError(
            f"{path} was saved from another version of kernel {function.__qualname__}: it, an "
            "option, a helper or a constant has changed since; compile and save it again"
        )
    return from_entry(entry, argument_types)


def _difference(kept: list[str], asked: list[str], names: tuple[str, ...]) -> str:
    if len(kept) != len(asked):
        return f"{len(kept)} arguments, not {len(asked)}"
    index = next(i for i, (a, b) in enumerate(zip(kept, asked, strict=True)) if a != b)
    return f"argument {names[index]} is {_written(kept[index])}, not {_written(asked[index])}"


_ARRAY = re.compile(r"\.Array\('([^']*)', (\d+), '(\w)'")
_AXES = {"C": ("", "::1"), "F": ("::1", ""), "A": ("", "")}


def _written(token: str) -> str:
    """Return a type as one writes it for ``compile``: ``float32[:, ::1]``."""
    array = _ARRAY.search(token)
    if array is None:
        return token.rsplit(":", 1)[-1].removeprefix("narrow.")
    axes = [":"] * int(array[2])
    first, last = _AXES[array[3]]
    axes[0] = first or axes[0]
    axes[-1] = last or axes[-1]
    return f"{_written(array[1])}[{', '.join(axes)}]"


def _tokens(argument_types: tuple[Any, ...]) -> list[str]:
    return [fingerprint.type_token(t) for t in argument_types]


def _source(function: pytypes.FunctionType, options: CompileOptions) -> list[str]:
    """Return the version of Python and the hash of the source, empty if it cannot be told."""
    with fingerprint.session() as hasher:
        digest = fingerprint.digest_of([repr(options), hasher.function(function)])
    return ["{}.{}".format(*sys.version_info), digest if hasher.stable else ""]
