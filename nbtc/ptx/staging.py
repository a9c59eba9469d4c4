"""Staged functions: Python that runs while a kernel compiles and emits its code.

A staged function is called from a kernel like any other, but its body runs at compile time, with
:class:`Value` objects for run-time values and plain Python for constants. Loops over registers are
therefore unrolled for certain, and indices into a register tuple are constants: an accumulator
never goes to local memory.

.. code-block:: python

    @staged(lambda regs: types.UniTuple(regs.dtype, len(regs)))
    def doubled(e, regs):
        return e.tuple([e.add(r, r) for r in regs])
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from llvmlite import ir
from numba.cuda import nvvmutils, types
from numba.cuda.extending import _Intrinsic
from numba.cuda.typing.templates import signature

from nbtc.errors import InstructionError
from nbtc.ptx.kinds import U32_KIND
from nbtc.ptx.operands import binding_problem, to_register
from nbtc.ptx.spec import Instruction
from nbtc.ptx.types_numba import BY_SPACE, AddressType
from nbtc.routine import Routine

P = ParamSpec("P")
R = TypeVar("R")

_EMITTER_TEXT = re.compile(r"^ +e: given by the compiler\.\n", re.MULTILINE)


class Value:
    """A run-time value inside a staged function: a Numba type and its LLVM value.

    Integer arithmetic with ``+ - * & | ^ << >>`` is 32-bit and wraps; an address keeps its type.
    ``>>``, ``//`` and ``%`` are unsigned.
    """

    __slots__ = ("emitter", "llvm", "type")

    def __init__(self, emitter: Emitter, type_: Any, llvm: Any) -> None:
        self.emitter = emitter
        self.type = type_
        self.llvm = llvm

    def __len__(self) -> int:
        return len(self.type)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        member = self.type[index]
        return Value(self.emitter, member, self.emitter.builder.extract_value(self.llvm, index))

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def _binary(self, other: Any, opcode: str, swap: bool = False) -> Value:
        e = self.emitter
        type_ = self.type
        if isinstance(other, Value) and isinstance(other.type, AddressType):
            type_ = other.type
        if isinstance(type_, AddressType):
            type_ = BY_SPACE[type_.space]
        else:
            type_ = types.uint32
        a, b = e.word(self), e.word(other)
        if swap:
            a, b = b, a
        return Value(e, type_, getattr(e.builder, opcode)(a, b))

    def __add__(self, other: Any) -> Value:
        return self._binary(other, "add")

    __radd__ = __add__

    def __sub__(self, other: Any) -> Value:
        return self._binary(other, "sub")

    def __rsub__(self, other: Any) -> Value:
        return self._binary(other, "sub", swap=True)

    def __mul__(self, other: Any) -> Value:
        return self._binary(other, "mul")

    __rmul__ = __mul__

    def __and__(self, other: Any) -> Value:
        return self._binary(other, "and_")

    def __or__(self, other: Any) -> Value:
        return self._binary(other, "or_")

    def __xor__(self, other: Any) -> Value:
        return self._binary(other, "xor")

    def __floordiv__(self, other: Any) -> Value:
        return self._binary(other, "udiv")

    def __mod__(self, other: Any) -> Value:
        return self._binary(other, "urem")

    def __lshift__(self, other: Any) -> Value:
        return self._binary(other, "shl")

    def __rshift__(self, other: Any) -> Value:
        return self._binary(other, "lshr")


class Emitter:
    """What a staged function emits code with."""

    def __init__(self, context: Any, builder: Any) -> None:
        self.context = context
        self.builder = builder

    def word(self, value: Any) -> Any:
        """Return a Value or an int as a 32-bit LLVM integer."""
        if isinstance(value, int):
            return ir.Constant(ir.IntType(32), value & 0xFFFFFFFF)
        return to_register(self.context, self.builder, U32_KIND, value.type, value.llvm)

    def constant(self, type_: Any, value: Any) -> Value:
        """Return a constant of a Numba scalar type."""
        return Value(self, type_, self.context.get_constant(type_, value))

    def tuple(self, values: Sequence[Value]) -> Value:
        """Return the values as one register tuple."""
        items = [v.type for v in values]
        same = all(t == items[0] for t in items)
        type_ = types.UniTuple(items[0], len(items)) if same else types.Tuple(items)
        return Value(
            self, type_, self.context.make_tuple(self.builder, type_, [v.llvm for v in values])
        )

    def cast(self, value: Value, type_: Any) -> Value:
        """Convert a value to another Numba type."""
        return Value(self, type_, self.context.cast(self.builder, value.llvm, value.type, type_))

    def call(self, instruction: Any, *args: Any, **modifiers: Any) -> Any:
        """Emit a declared instruction; arguments are Values, lists of Values, ints or None."""
        from nbtc.ptx.lower import emit

        assert isinstance(instruction, Instruction)
        values = [self._argument(a) for a in args]
        type_, llvm = emit(instruction, self.context, self.builder, values, modifiers)
        return None if type_ == types.none else Value(self, type_, llvm)

    def _argument(self, arg: Any) -> tuple[Any, Any]:
        if isinstance(arg, Value):
            return arg.type, arg.llvm
        if isinstance(arg, list | tuple):
            packed = self.tuple([self._as_value(a) for a in arg])
            return packed.type, packed.llvm
        if arg is None:
            return types.none, None
        return types.literal(arg), None

    def _as_value(self, arg: Any) -> Value:
        if isinstance(arg, Value):
            return arg
        return self.constant(types.int32, arg)

    def inline(self, function: Any, *args: Any) -> Any:
        """Run another staged function here."""
        return function.__wrapped__(self, *args)

    def add64(self, value: Value, amount: int) -> Value:
        """Return a 64-bit value plus a constant, keeping its type."""
        if amount == 0:
            return value
        constant = ir.Constant(ir.IntType(64), amount)
        return Value(self, value.type, self.builder.add(value.llvm, constant))

    def special_register(self, name: str) -> Value:
        """Return a special register such as ``"tid.x"`` as uint32."""
        return Value(self, types.uint32, nvvmutils.call_sreg(self.builder, name))

    def minimum(self, a: Any, b: Any) -> Value:
        """Return the smaller of two unsigned 32-bit values."""
        x, y = self.word(a), self.word(b)
        less = self.builder.icmp_unsigned("<", x, y)
        return Value(self, types.uint32, self.builder.select(less, x, y))

    def equals(self, a: Any, b: Any) -> Value:
        """Return whether two 32-bit values are equal."""
        same = self.builder.icmp_unsigned("==", self.word(a), self.word(b))
        return Value(self, types.boolean, same)

    def when(self, condition: Value) -> Any:
        """Return a context manager: what it encloses runs only where ``condition`` holds."""
        return self.builder.if_then(condition.llvm)

    def call_device(self, function: Any, *args: Value) -> Value:
        """Call a device function (made by ``nbtc.device``) with run-time values."""
        return self.call_function(self.context.typing_context.resolve_value_type(function), args)

    def call_function(self, function_type: Any, args: Sequence[Value]) -> Value:
        """Call a device function (a Numba function type) with run-time values."""
        argument_types = tuple(a.type for a in args)
        sig = self.context.typing_context.resolve_function_type(function_type, argument_types, {})
        implementation = self.context.get_function(function_type, sig)
        cast_args = [
            self.context.cast(self.builder, a.llvm, a.type, t)
            for a, t in zip(args, sig.args, strict=True)
        ]
        return Value(self, sig.return_type, implementation(self.builder, cast_args))


def constant_of(ty: Any) -> Any:
    """Return the compile-time value behind a Numba type, or raise ValueError."""
    if isinstance(ty, types.Omitted):
        return ty.value
    if isinstance(ty, types.Literal):
        return ty.literal_value
    if isinstance(ty, types.NoneType):
        return None
    if not isinstance(ty, types.Type):
        return ty
    raise ValueError(str(ty))


class _Staged(_Intrinsic, Routine):
    """A staged function as Numba sees it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: staged functions emit code, so they exist in kernels only."""
        raise InstructionError(
            f"{self._name} emits code: call it inside a kernel (nbtc.jit or numba.cuda.jit), not "
            "from Python"
        )


def staged(
    returns: Callable[..., Any], *, constants: Sequence[str] = ()
) -> Callable[[Callable[Concatenate[Emitter, P], R]], Callable[P, R]]:
    """Make a staged function callable from kernels, without its first parameter.

    Args:
        returns: called with the Numba types of the arguments (compile-time constants as Python
            values); gives the Numba return type, raising InstructionError for illegal arguments.
        constants: names of the parameters that must be compile-time constants.
    """

    def decorate(func: Callable[Concatenate[Emitter, P], R]) -> Callable[P, R]:
        parameters = list(inspect.signature(func).parameters.values())[1:]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        variadic = inspect.Parameter.VAR_POSITIONAL
        parameters = [
            p if p.kind is variadic else p.replace(kind=kind, annotation=p.empty)
            for p in parameters
        ]
        fixed = [p for p in parameters if p.kind is not variadic]

        def split(argument_types: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            named = list(argument_types[: len(fixed)])
            for i, p in enumerate(fixed):
                if p.name in constants:
                    try:
                        named[i] = constant_of(named[i])
                    except ValueError as e:
                        raise InstructionError(
                            f"{func.__name__}: {p.name} is {e}, and must be a compile-time "
                            "constant: write it out, or bind it to a bare name outside the kernel"
                        ) from None
            rest = argument_types[len(fixed) :]
            if len(rest) == 1 and isinstance(rest[0], types.BaseTuple):
                rest = list(rest[0])
            return named, list(rest)

        call_signature = inspect.Signature(parameters)

        def define(typingctx: Any, *args: Any, **kws: Any) -> Any:
            try:
                bound = call_signature.bind(*args, **kws)
            except TypeError as e:
                problem = binding_problem(call_signature, kws, e)
                raise InstructionError(f"{func.__name__}{call_signature}: {problem}") from None
            given = [
                bound.arguments[p.name] if p.name in bound.arguments else types.Omitted(p.default)
                for p in fixed
            ]
            if len(fixed) < len(parameters):
                given.append(types.Tuple(bound.arguments.get(parameters[-1].name, ())))
            named, rest = split(given)
            return_type = returns(*named, *rest)

            def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
                e = Emitter(context, builder)
                named, _ = split(sig.args)
                values = [
                    v if p.name in constants else Value(e, t, a)
                    for p, v, t, a in zip(fixed, named, sig.args, args, strict=False)
                ]
                if len(sig.args) > len(fixed):
                    values += list(Value(e, sig.args[-1], args[-1]))
                result = cast("Any", func)(e, *values)
                return context.get_dummy_value() if result is None else result.llvm

            return signature(return_type, *given), codegen

        context_parameter = inspect.Parameter("typingctx", inspect.Parameter.POSITIONAL_ONLY)
        define.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [context_parameter.replace(kind=kind), *parameters]
        )
        made = _Staged(func.__name__, define, prefer_literal=True, target="cuda")
        functools.update_wrapper(made, func)
        # What a kernel passes: the emitter comes from the compiler.
        made.__signature__ = call_signature
        made.__doc__ = _EMITTER_TEXT.sub("", func.__doc__ or "") or None
        made._register()
        return cast("Callable[P, R]", made)

    return decorate
