"""A loop that the compiler writes out: the body once per index, each with a constant index.

Numba has no static loop, and LLVM leaves one alone that waits for a barrier or holds inline PTX.
With a constant index, stage addresses and descriptors fold into the instructions.
"""

from __future__ import annotations

from typing import Any

from numba.cuda import types

from nbtc.errors import InstructionError
from nbtc.ptx.staging import Emitter, Value, staged


def _returns_repeat(function: Any, carry: Any, count: Any, *args: Any) -> Any:
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= 64:
        raise InstructionError(f"unroll.repeat: count={count!r}; must be an integer, 1..64")
    return types.unliteral(carry)


@staged(_returns_repeat, constants=("count",))
def repeat(e: Emitter, function: Any, carry: Any, count: int, *args: Any) -> Any:
    """Return ``carry`` after ``carry = function(carry, index, *args)`` for index 0 .. count - 1.

    Executed as the calls would be. The calls are inlined one after the other.

    Args:
        e: given by the compiler.
        function: a device function (``nbtc.device``); ``index`` is a uint32, constant in each call.
        carry: first value, such as a tuple of accumulators; every call returns one of its type.
        count: number of calls, a compile-time constant, at most 64.
        args: values handed to every call.
    """
    kind = types.unliteral(carry.type)
    value = e.cast(carry, kind)
    for index in range(count):
        number = Value(e, types.uint32, e.word(index))
        result = e.call_function(function.type, [value, number, *args])
        if types.unliteral(result.type) != kind:
            raise InstructionError(
                f"unroll.repeat: the function returns {types.unliteral(result.type)}, carry is "
                f"{kind}; it must return the new value of carry"
            )
        value = e.cast(result, kind)
    return value
