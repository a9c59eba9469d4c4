"""Integer arithmetic that stays 32 bits wide inside kernels.

Numba computes ``int32 // int32`` in 64 bits, a call of some 70 instructions on the GPU. These
functions take values of at most 32 bits (or literals) and give uint32; division is unsigned.
"""

from __future__ import annotations

from typing import Any

from numba.cuda import types

from nbtc.errors import InstructionError
from nbtc.ptx import kinds
from nbtc.ptx.operands import check_operand
from nbtc.ptx.staging import Emitter, Value, staged


def _two(name: str, result: Any) -> Any:
    def returns(a: Any, b: Any) -> Any:
        for label, value in (("a", a), ("b", b)):
            check_operand(f"math32.{name}: {label}", kinds.U32_KIND, value)
        if isinstance(b, types.IntegerLiteral) and b.literal_value == 0 and "div" in name:
            raise InstructionError(f"math32.{name}: b=0; division by zero")
        return result

    return returns


def _op(e: Emitter, opcode: str, a: Any, b: Any) -> Value:
    return Value(e, types.uint32, getattr(e.builder, opcode)(e.word(a), e.word(b)))


@staged(_two("div", types.uint32))
def div(e: Emitter, a: Any, b: Any) -> Any:
    """Return ``a // b``, unsigned; undefined for ``b == 0``."""
    return _op(e, "udiv", a, b)


@staged(_two("ceil_div", types.uint32))
def ceil_div(e: Emitter, a: Any, b: Any) -> Any:
    """Return ``a / b`` rounded up, unsigned; ``a + b - 1`` must fit in 32 bits."""
    top = e.builder.add(e.word(a), e.builder.sub(e.word(b), e.word(1)))
    return Value(e, types.uint32, e.builder.udiv(top, e.word(b)))


@staged(_two("mod", types.uint32))
def mod(e: Emitter, a: Any, b: Any) -> Any:
    """Return ``a % b``, unsigned; undefined for ``b == 0``."""
    return _op(e, "urem", a, b)


@staged(_two("divmod", types.UniTuple(types.uint32, 2)))
def divmod32(e: Emitter, a: Any, b: Any) -> Any:
    """Return ``(a // b, a % b)``, unsigned; undefined for ``b == 0``."""
    quotient = _op(e, "udiv", a, b)
    return e.tuple([quotient, _remainder(e, a, quotient, b)])


def _remainder(e: Emitter, a: Any, quotient: Value, b: Any) -> Value:
    """Return ``a - quotient * b`` (compiler helper of divmod32)."""
    product = e.builder.mul(quotient.llvm, e.word(b))
    return Value(e, types.uint32, e.builder.sub(e.word(a), product))


@staged(_two("minimum", types.uint32))
def minimum(e: Emitter, a: Any, b: Any) -> Any:
    """Return the smaller of two unsigned values."""
    x, y = e.word(a), e.word(b)
    less = e.builder.icmp_unsigned("<", x, y)
    return Value(e, types.uint32, e.builder.select(less, x, y))


@staged(_two("maximum", types.uint32))
def maximum(e: Emitter, a: Any, b: Any) -> Any:
    """Return the larger of two unsigned values."""
    x, y = e.word(a), e.word(b)
    less = e.builder.icmp_unsigned("<", x, y)
    return Value(e, types.uint32, e.builder.select(less, y, x))


@staged(_two("add", types.uint32))
def add(e: Emitter, a: Any, b: Any) -> Any:
    """Return ``a + b`` modulo 2**32."""
    return _op(e, "add", a, b)


@staged(_two("sub", types.uint32))
def sub(e: Emitter, a: Any, b: Any) -> Any:
    """Return ``a - b`` modulo 2**32."""
    return _op(e, "sub", a, b)


@staged(_two("mul", types.uint32))
def mul(e: Emitter, a: Any, b: Any) -> Any:
    """Return ``a * b`` modulo 2**32."""
    return _op(e, "mul", a, b)
