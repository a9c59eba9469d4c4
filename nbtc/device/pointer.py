"""Global addresses of array elements, for instructions that take an address."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.cuda import types

from nbtc.errors import InstructionError
from nbtc.ptx.staging import Emitter, Value, staged


def _returns(array: Any, *indices: Any) -> Any:
    if not isinstance(array, types.Array):
        raise InstructionError(f"pointer.element: array is {array}, needs an array")
    if len(indices) != array.ndim:
        raise InstructionError(
            f"pointer.element: {len(indices)} indices for an array of {array.ndim} dimensions"
        )
    for i, index in enumerate(indices):
        if not isinstance(index, types.Integer):
            raise InstructionError(f"pointer.element: index {i} is {index}, needs an integer")
    return types.uint64


@staged(_returns)
def element(e: Emitter, array: Any, *indices: Any) -> Any:
    """Return the address of ``array[indices]`` as uint64; no bounds are checked.

    Executed by each thread for itself. Add bytes to it to walk through the array.

    Args:
        e: given by the compiler.
        array: an array in global memory.
        indices: one non-negative integer per dimension.
    """
    i64 = ir.IntType(64)
    struct = e.context.make_array(array.type)(e.context, e.builder, array.llvm)
    total = e.builder.ptrtoint(struct.data, i64)
    strides = e.builder.extract_value
    for axis, index in enumerate(indices):
        value = e.cast(index, types.int64).llvm
        total = e.builder.add(total, e.builder.mul(value, strides(struct.strides, axis)))
    return Value(e, types.uint64, total)
