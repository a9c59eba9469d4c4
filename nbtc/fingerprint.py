"""A structural hash of a function and everything its compiled code depends on.

Covered, recursively: bytecode, constants, defaults, line table, closure values, globals that the
code names, attributes it takes from modules, helper functions, and declared instructions. Python
closes over constants in kernel factories, so a hash without these would serve the wrong kernel.
"""

from __future__ import annotations

import dataclasses
import dis
import enum
import functools
import hashlib
import types as pytypes
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

_FOREIGN = {
    "numba", "numba_cuda", "llvmlite", "numpy", "ml_dtypes", "cuda",
    "math", "operator", "typing", "types", "inspect", "re", "__future__",
}  # fmt: skip
"""Top-level packages whose objects are known by name; the versions in the cache key cover them."""


def _is_foreign(module: str | None) -> bool:
    return module is not None and module.partition(".")[0] in _FOREIGN


class Hasher:
    """Hashes functions and values; remembers the functions it has seen.

    Attributes:
        stable: False once something was met whose content cannot be told. Such a hash must not
            outlive the process.
    """

    def __init__(self) -> None:
        self.stable = True
        self._known: dict[int, tuple[str, Any]] = {}
        self._open: set[int] = set()

    def function(self, function: pytypes.FunctionType) -> str:
        """Return the hash of a function and what it refers to."""
        identity = id(function)
        if identity in self._known:
            return self._known[identity][0]
        if identity in self._open:
            return f"recursive {function.__module__}.{function.__qualname__}"
        self._open.add(identity)
        code = function.__code__
        cells: dict[str, Any] = {}
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                cells[name] = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
        parts = [
            "function",
            str(function.__module__),
            function.__qualname__,
            self._code(code),
            self.value(function.__defaults__),
            self.value(function.__kwdefaults__),
        ]
        parts += [f"{name}={self.value(value)}" for name, value in sorted(cells.items())]
        # The cache key has the text of nbtc.ptx as a whole, so only closures differ there.
        if not str(function.__module__).startswith("nbtc.ptx."):
            parts += sorted(set(self._references(code, function.__globals__, cells)))
        digest = digest_of(parts)
        self._open.discard(identity)
        # The function is kept so that its id stays its own.
        self._known[identity] = (digest, function)
        return digest

    def _code(self, code: pytypes.CodeType) -> str:
        constants = [
            self._code(c) if isinstance(c, pytypes.CodeType) else self.value(c)
            for c in code.co_consts
        ]
        fields = (
            code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars,
            code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags,
            code.co_filename, code.co_firstlineno, code.co_linetable,
            getattr(code, "co_exceptiontable", b""),
        )  # fmt: skip
        return digest_of([repr(fields), *constants])

    def _references(
        self, code: pytypes.CodeType, names: dict[str, Any], cells: dict[str, Any]
    ) -> Iterator[str]:
        """Yield one token per global, and per chain of attributes of a module, that code uses."""
        instructions = list(dis.get_instructions(code))
        for position, instruction in enumerate(instructions):
            name = instruction.argval
            if instruction.opname in {"LOAD_GLOBAL", "LOAD_NAME"}:
                if name not in names:
                    continue  # a builtin
                value = names[name]
            elif instruction.opname in {"LOAD_DEREF", "LOAD_CLASSDEREF"} and name in cells:
                value = cells[name]
            else:
                continue
            path = name
            for following in instructions[position + 1 :]:
                if following.opname not in {"LOAD_ATTR", "LOAD_METHOD"}:
                    break
                if not isinstance(value, pytypes.ModuleType):
                    break
                path = f"{path}.{following.argval}"
                value = getattr(value, following.argval, None)
            yield f"{path}={self.value(value)}"
        for constant in code.co_consts:
            if isinstance(constant, pytypes.CodeType):
                yield from self._references(constant, names, cells)

    def value(self, value: Any) -> str:
        """Return a token that is equal for equal values."""
        kind = type(value)
        if value is None or kind in {bool, int, str, bytes, complex} or value is Ellipsis:
            return f"{kind.__name__}:{value!r}"
        if kind is float:
            return f"float:{value.hex()}"
        if isinstance(value, enum.Enum):
            return f"enum:{kind.__module__}.{kind.__qualname__}.{value.name}={value.value!r}"
        if isinstance(value, tuple | list):
            inner = ",".join(map(self.value, value))
            return f"{kind.__module__}.{kind.__qualname__}({inner})"
        if isinstance(value, set | frozenset):
            return f"set({','.join(sorted(map(self.value, value)))})"
        if isinstance(value, dict):
            items = sorted(f"{self.value(k)}:{self.value(v)}" for k, v in value.items())
            return f"dict({','.join(items)})"
        if isinstance(value, np.ndarray):
            data = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
            return f"array:{value.dtype}{value.shape}{value.strides}{data}"
        if isinstance(value, np.generic):
            return f"scalar:{value.dtype}:{value.tobytes().hex()}"
        if isinstance(value, np.dtype):
            return f"dtype:{value!r}"
        if isinstance(value, pytypes.FunctionType):
            if _is_foreign(value.__module__):
                return f"foreign:{value.__module__}.{value.__qualname__}"
            return self.function(value)
        if isinstance(value, pytypes.ModuleType):
            return f"module:{value.__name__}"
        if isinstance(value, type):
            return self._class(value)
        return self._object(value)

    def _class(self, value: type) -> str:
        name = f"class:{value.__module__}.{value.__qualname__}"
        if issubclass(value, enum.Enum):
            return f"{name}({','.join(f'{m.name}={m.value!r}' for m in value)})"
        return f"{name}{getattr(value, '_fields', '')}"

    def _object(self, value: Any) -> str:
        kind = type(value)
        name = f"{kind.__module__}.{kind.__qualname__}"
        inner = getattr(value, "py_func", None) or getattr(value, "__wrapped__", None)
        if isinstance(inner, pytypes.FunctionType):
            options = getattr(value, "targetoptions", None)
            return f"{name}:{self.function(inner)}{sorted(map(str, (options or {}).items()))}"
        definition = getattr(value, "_defn", None)  # an intrinsic of Numba's extension API
        if isinstance(definition, pytypes.FunctionType):
            return f"{name}:{self.function(definition)}"
        own = getattr(value, "fingerprint", None)
        if callable(own):
            return f"{name}:{own()}"
        token = _numba_type_token(value)
        if token is not None:
            return token
        if dataclasses.is_dataclass(value):
            fields = [
                f"{f.name}={self.value(getattr(value, f.name))}" for f in dataclasses.fields(value)
            ]
            return f"{name}({','.join(fields)})"
        module = getattr(value, "__module__", None)
        label = getattr(value, "__qualname__", getattr(value, "__name__", None))
        if isinstance(label, str) and (
            isinstance(value, pytypes.BuiltinFunctionType) or _is_foreign(module)
        ):
            return f"foreign:{module}.{label}"
        if isinstance(value, functools.partial):
            parts = (value.func, value.args, value.keywords)
            return f"partial({','.join(map(self.value, parts))})"
        if _is_foreign(kind.__module__):
            # What a kernel uses of such an object is code of its package, of one version.
            return f"foreign:{name}:{'' if kind.__repr__ is object.__repr__ else repr(value)}"
        self.stable = False
        return f"unknown:{name}:{id(value)}"


def _numba_type_token(value: Any) -> str | None:
    from numba.cuda import types

    return type_token(value) if isinstance(value, types.Type) else None


def type_token(ty: Any) -> str:
    """Return a token of a Numba type; equal exactly for types that compile to the same code."""
    from numba.cuda import types

    name = f"{type(ty).__module__}.{type(ty).__qualname__}"
    if isinstance(ty, types.Array):
        parts = (type_token(ty.dtype), ty.ndim, ty.layout, ty.mutable, ty.aligned)
        return f"{name}{parts}"
    if isinstance(ty, types.BaseTuple):
        return f"{name}({','.join(map(type_token, ty))})"
    return f"{name}:{ty.name}"


def digest_of(parts: list[str]) -> str:
    """Return the hash of texts in this order."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


# Within one compilation a function is hashed once; between two, a global may have changed.
_current: ContextVar[Hasher | None] = ContextVar("nbtc_hasher", default=None)


@contextmanager
def session() -> Iterator[Hasher]:
    """Share one hasher between everything inside the block, with an outer session's if any."""
    outer = _current.get()
    if outer is not None:
        yield outer
        return
    hasher = Hasher()
    token = _current.set(hasher)
    try:
        yield hasher
    finally:
        _current.reset(token)


def current(function: pytypes.FunctionType) -> str:
    """Return a function's hash in the running session, or in one of its own."""
    return (_current.get() or Hasher()).function(function)
