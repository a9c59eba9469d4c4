"""Helper functions that kernels call, compiled for the kernel's own target and without a driver."""

from __future__ import annotations

import functools
import inspect
import itertools
import types as pytypes
import weakref
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

from numba.cuda import types
from numba.cuda.cudaimpl import registry as lowering_registry
from numba.cuda.datamodel import models
from numba.cuda.extending import register_model, typeof_impl
from numba.cuda.typing.templates import fold_arguments, signature

from nbtc import fingerprint, numba_compat
from nbtc.diagnostics import unknown_name
from nbtc.errors import CompileError
from nbtc.ptx.operands import binding_problem
from nbtc.routine import Routine
from nbtc.source_lines import PythonLine

P = ParamSpec("P")
R = TypeVar("R")

_serial = itertools.count()


class DeviceFunctionType(types.Callable, types.Opaque):
    """The Numba type of one helper function."""

    def __init__(self, function: DeviceFunction[..., Any]) -> None:
        self.function = function
        super().__init__(f"device({function.__qualname__}#{function.serial})")

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        """Compile for these argument types and return the signature."""
        function = self.function
        arguments = function.fold(args, kws)
        result = function.overload(arguments).result
        return signature(result.signature.return_type, *arguments).replace(
            pysig=function.numba_signature
        )

    def get_call_signatures(self) -> Any:
        """Return no fixed signatures; every use is compiled on its own."""
        return [], True

    def get_impl_key(self, sig: Any) -> Any:
        """Return the key under which the compiled helper is known."""
        return self.function.overload(tuple(sig.args)).key


register_model(DeviceFunctionType)(models.OpaqueModel)


@lowering_registry.lower_constant(DeviceFunctionType)
def _lower_constant(context: Any, builder: Any, ty: Any, value: Any) -> Any:
    return context.get_dummy_value()


class _Overload:
    """One compiled specialisation."""

    __slots__ = ("key", "result")

    def __init__(self, key: object, result: Any) -> None:
        self.key = key
        self.result = result


class DeviceFunction(Routine, Generic[P, R]):
    """A function that kernels of ``nbtc.jit`` and ``numba.cuda.jit`` can call.

    It is compiled for the target of the kernel that calls it, with its own line information, and
    inlined. Constants stay constants: a literal, or an integer bound to a bare name in the caller,
    can be a modifier of an instruction inside the helper. Keyword-only parameters and defaults
    work. Called from ordinary Python, it runs as ordinary Python.

    Attributes:
        py_func: the decorated function.
    """

    __name__: str
    __qualname__: str

    def __init__(self, py_func: Callable[P, R]) -> None:
        if not isinstance(py_func, pytypes.FunctionType):
            raise CompileError(f"nbtc.device takes a Python function, got {type(py_func).__name__}")
        functools.update_wrapper(self, py_func)
        self.py_func = py_func
        self.serial = next(_serial)
        self._opened = numba_compat.open_keywords(py_func)
        self.numba_signature = inspect.signature(self._opened)
        self._overloads: dict[Any, _Overload] = {}
        self._compiling: set[Any] = set()
        self._numba_type = DeviceFunctionType(self)
        self._keys: list[object] = []
        weakref.finalize(self, _forget, self._keys)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run as ordinary Python; inside a kernel Numba compiles the call instead."""
        return self.py_func(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<nbtc.device {self.__qualname__}>"

    def __reduce__(self) -> str:
        return self.__qualname__  # pickled by name, as functions are

    @property
    def _numba_type_(self) -> DeviceFunctionType:
        return self._numba_type

    def fold(self, args: Any, kws: Any) -> tuple[Any, ...]:
        """Return one Numba type per parameter, ``Omitted`` where the default holds."""
        try:
            bound = self.numba_signature.bind(*args, **dict(kws))
        except TypeError as error:
            problem = binding_problem(self.numba_signature, dict(kws), error)
            code = self.py_func.__code__
            raise CompileError(
                f"{self.__name__}{self.numba_signature}: {problem} (defined at "
                f"{PythonLine(code.co_filename, code.co_firstlineno)})"
            ) from None
        del bound
        return fold_arguments(
            self.numba_signature,
            args,
            dict(kws),
            lambda index, parameter, value: value,
            lambda index, parameter, default: types.Omitted(default),
            lambda index, parameter, values: types.StarArgTuple(values),
        )

    def overload(self, args: tuple[Any, ...]) -> _Overload:
        """Return the specialisation for argument types under the options of the running compile."""
        options = numba_compat.code_options()
        key = (options, args, fingerprint.current(self.py_func))
        found = self._overloads.get(key)
        if found is not None:
            return found
        if key in self._compiling:
            raise CompileError(
                f"{self.__qualname__} calls itself; device functions are inlined and cannot recurse"
            )
        self._compiling.add(key)
        try:
            result = numba_compat.compile_function(self._opened, args, options, inline=True)
        except Exception as error:
            unknown = unknown_name(error, self.py_func)
            if unknown is None:
                raise
            raise unknown from None
        finally:
            self._compiling.discard(key)
        identity = object()
        numba_compat.insert_device_function(identity, result)
        self._keys.append(identity)
        made = self._overloads[key] = _Overload(identity, result)
        return made


def _forget(keys: list[object]) -> None:
    for key in keys:
        numba_compat.remove_device_function(key)


def device(function: Callable[P, R]) -> DeviceFunction[P, R]:
    """Make a Python function callable from kernels; use as a decorator.

    The helper is compiled for the target of each kernel that calls it, needs no driver, has lines
    of its own in findings and profilers, and is inlined.

    Raises:
        CompileError: ``function`` is not a plain Python function.
    """
    if isinstance(function, DeviceFunction):
        return function
    return DeviceFunction(function)


_adopted: weakref.WeakKeyDictionary[Any, DeviceFunction[..., Any]] = weakref.WeakKeyDictionary()


@typeof_impl.register(pytypes.FunctionType)
def _typeof_function(value: Any, c: Any) -> Any:
    # nbtc.layout is pure Python below this module, and its integer functions serve kernels too.
    if not str(value.__module__).startswith("nbtc.layout"):
        return None
    function = _adopted.get(value)
    if function is None:
        function = _adopted[value] = DeviceFunction(value)
    return function._numba_type_
