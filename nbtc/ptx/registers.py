"""Register tuples: make, slice, pack and transform accumulators without local memory."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.cuda import types

from nbtc.dtypes import canonical
from nbtc.errors import DtypeError, InstructionError
from nbtc.ptx.staging import Emitter, Value, staged

_ELEMENTS = {"float32": types.float32, "int32": types.int32, "uint32": types.uint32}


def _returns_full(n: Any, value: Any, dtype: Any) -> Any:
    if not isinstance(types.unliteral(value), types.Number | types.Boolean):
        raise InstructionError(f"registers.full: value is {value}, needs a number")
    return _returns(n, dtype)


def _returns(n: Any, dtype: Any) -> Any:
    if not isinstance(n, int) or not 1 <= n <= 256:
        raise InstructionError(f"registers: n={n!r}; must be 1..256")
    name = canonical(dtype).name
    if name not in _ELEMENTS:
        raise DtypeError(f"registers: dtype={dtype!r}; legal: {', '.join(_ELEMENTS)}")
    return types.UniTuple(_ELEMENTS[name], n)


@staged(_returns_full, constants=("n", "dtype"))
def full(e: Emitter, n: int, value: Any, dtype: str = "float32") -> Any:
    """Return a tuple of ``n`` registers that all hold ``value``.

    Executed by each thread for itself; no instruction but the moves.
    """
    return e.tuple([e.cast(value, _ELEMENTS[canonical(dtype).name])] * n)


@staged(_returns, constants=("n", "dtype"))
def zeros(e: Emitter, n: int, dtype: str = "float32") -> Any:
    """Return a tuple of ``n`` zero registers, the start value of an accumulator."""
    type_ = _ELEMENTS[canonical(dtype).name]
    return e.tuple([e.constant(type_, 0)] * n)


@staged(_returns, constants=("n", "dtype"))
def undefined(e: Emitter, n: int, dtype: str = "float32") -> Any:
    """Return a tuple of ``n`` registers of any content, for an accumulator that is written first.

    No instruction. The first ``mma`` must not read it: ``scale_d`` False.
    """
    type_ = types.UniTuple(_ELEMENTS[canonical(dtype).name], n)
    return Value(e, type_, ir.Constant(e.context.get_value_type(type_), ir.Undefined))


def _returns_take(regs: Any, start: Any, count: Any) -> Any:
    if not isinstance(regs, types.BaseTuple):
        raise InstructionError(f"registers.take: registers are {regs}, needs a tuple")
    if start < 0 or count < 1 or start + count > len(regs):
        raise InstructionError(
            f"registers.take: start={start}, count={count} of {len(regs)} registers; "
            f"start + count must be at most {len(regs)}"
        )
    # Constants among them become values: a literal type would be a claim about all of them.
    members = [types.unliteral(regs[i]) for i in range(start, start + count)]
    return types.BaseTuple.from_types(members)


@staged(_returns_take, constants=("start", "count"))
def take(e: Emitter, regs: Any, start: int, count: int) -> Any:
    """Return ``count`` registers from number ``start`` on."""
    part = regs[start : start + count]
    return e.tuple([e.cast(r, types.unliteral(r.type)) for r in part])


def _returns_join(a: Any, b: Any) -> Any:
    if not isinstance(a, types.UniTuple) or not isinstance(b, types.UniTuple) or a.dtype != b.dtype:
        raise InstructionError(f"registers.join: {a} and {b}; needs two tuples of one type")
    return types.UniTuple(a.dtype, len(a) + len(b))


@staged(_returns_join)
def join(e: Emitter, a: Any, b: Any) -> Any:
    """Return the registers of ``a`` followed by those of ``b``."""
    return e.tuple([*a, *b])


_PACKERS = {"bfloat16": "cvt_bf16x2_f32", "float16": "cvt_f16x2_f32"}


def _returns_pack(regs: Any, dtype: Any) -> Any:
    if canonical(dtype).name not in _PACKERS:
        raise DtypeError(f"registers.pack: dtype={dtype!r}; legal: {', '.join(_PACKERS)}")
    if len(regs) % 2:
        raise InstructionError(f"registers.pack: {len(regs)} registers; needs an even number")
    return types.UniTuple(types.uint32, len(regs) // 2)


@staged(_returns_pack, constants=("dtype",))
def pack(e: Emitter, regs: Any, dtype: str) -> Any:
    """Round pairs of float32 registers to a 16-bit type, two per 32-bit register.

    Register ``i`` of the result holds registers ``2 i`` (low half) and ``2 i + 1`` (high half),
    rounded to nearest even.

    Args:
        e: given by the compiler.
        regs: an even number of float32 registers.
        dtype: ``"bfloat16"`` or ``"float16"``.
    """
    from nbtc.intrinsics import convert

    cvt = getattr(convert, _PACKERS[canonical(dtype).name])
    return e.tuple([e.call(cvt, regs[i + 1], regs[i]) for i in range(0, len(regs), 2)])


def bits_of(e: Emitter, value: Value) -> Value:
    """Return the 32 bits of a float32 value as uint32 (compiler helper)."""
    return Value(e, types.uint32, e.builder.bitcast(value.llvm, ir.IntType(32)))
