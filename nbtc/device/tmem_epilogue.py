"""Epilogue of tcgen05 kernels: rows of an accumulator, as ``tcgen05.ld_32x32b`` loads them.

Thread ``l`` of warp ``w`` holds row ``32 * (w % 4) + l`` of D, one register a column. So a warp has
32 whole rows: it transforms, stages and stores them by itself, with no barrier across warps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from numba.cuda import types

from nbtc.dtypes import canonical
from nbtc.errors import DtypeError, InstructionError
from nbtc.ptx.registers import pack
from nbtc.ptx.staging import Emitter, Value, staged

ROWS = 32
"""Rows that one warp holds."""

_STORED = ("bfloat16", "float16", "float32", "int32")


def _returns_apply(
    function: Any, values: Any, row: Any, column: Any, rows: Any, columns: Any, *extra: Any
) -> Any:
    if not isinstance(values, types.BaseTuple):
        raise InstructionError(f"tmem_epilogue: values are {values}, needs registers of a row")
    return values


@staged(_returns_apply)
def apply(
    e: Emitter, function: Any, values: Any, row: Any, column: Any, rows: Any, columns: Any,
    *extra: Any,
) -> Any:  # fmt: skip
    """Return the row with ``function(value, row, column, *extra)`` in every register.

    Executed by each thread for its own row; the function is inlined once per register, and runs for
    elements inside the matrix only, so that it may read other arrays there.

    Args:
        e: given by the compiler.
        function: a device function (``nbtc.device``) of (value, int32 row, int32 column, extra
            values) that gives a number; the value is float32 (int32 for integer kinds).
        values: registers of consecutive columns of one row.
        row: the row in the whole matrix.
        column: column of the first register in the whole matrix.
        rows: rows of the whole matrix.
        columns: columns of the whole matrix.
        extra: arrays or scalars handed through to the function.
    """
    at = e.cast(row, types.int32)
    builder = e.builder
    results = []
    before = list(values)
    for i, (here, inside) in enumerate(_places(e, len(before), row, column, rows, columns)):
        outside_block = builder.block
        with builder.if_then(inside):
            value = e.call_function(function.type, [before[i], at, here, *extra])
            value = e.cast(value, values.type[0])
            inside_block = builder.block
        merged = builder.phi(value.llvm.type)
        merged.add_incoming(before[i].llvm, outside_block)
        merged.add_incoming(value.llvm, inside_block)
        results.append(Value(e, value.type, merged))
    return e.tuple(results)


def _places(
    e: Emitter, count: int, row: Any, column: Any, rows: Any, columns: Any
) -> Iterator[tuple[Value, Any]]:
    """Give the column of each register, and whether the matrix has that element."""
    builder = e.builder
    row_inside = builder.icmp_unsigned("<", e.word(row), e.word(rows))
    for i in range(count):
        here = e.cast(column + i, types.int32)
        inside = builder.icmp_unsigned("<", here.llvm, e.word(columns))
        yield here, builder.and_(row_inside, inside)


def _returns_each(
    function: Any, values: Any, row: Any, column: Any, rows: Any, columns: Any, *extra: Any
) -> Any:
    _returns_apply(function, values, row, column, rows, columns, *extra)
    return types.none


@staged(_returns_each)
def each(
    e: Emitter, function: Any, values: Any, row: Any, column: Any, rows: Any, columns: Any,
    *extra: Any,
) -> None:  # fmt: skip
    """Call ``function(value, row, column, *extra)`` for every element, for what it does.

    As :func:`apply`, but the function returns nothing: it stores the value, for example.
    """
    for i, (here, inside) in enumerate(_places(e, len(values), row, column, rows, columns)):
        with e.builder.if_then(inside):
            e.call_function(function.type, [values[i], e.cast(row, types.int32), here, *extra])


def _returns_store(
    values: Any, tensor_map: Any, buffer: Any, row: Any, column: Any, dtype: Any, buffers: Any,
    policy: Any, function: Any, rows: Any, columns: Any, extra: Any,
) -> Any:  # fmt: skip
    _returns_apply(function, values, row, column, rows, columns)
    name = canonical(dtype).name
    if name not in _STORED:
        raise DtypeError(f"tmem_epilogue.store: dtype={dtype!r}; legal: {', '.join(_STORED)}")
    if (name == "int32") != (values[0] == types.int32):
        raise DtypeError(f"tmem_epilogue.store: {values[0]} registers cannot be stored as {name}")
    width = len(values) * canonical(dtype).itemsize
    if width not in (32, 64, 128):
        raise InstructionError(
            f"tmem_epilogue.store: {len(values)} columns of {name} are {width} bytes; a swizzled "
            "row has 32, 64 or 128"
        )
    return types.none


@staged(_returns_store, constants=("dtype", "buffers", "policy"))
def store(
    e: Emitter, values: Any, tensor_map: Any, buffer: Any, row: Any, column: Any, dtype: str,
    buffers: int = 2, policy: int | None = None, function: Any = None, rows: Any = 0,
    columns: Any = 0, extra: Any = (),
) -> None:  # fmt: skip
    """Store 32 rows of one warp through shared memory by TMA.

    Executed by the 32 threads of one warp together. The registers are rounded, written to the
    buffer, fenced for the async proxy by every thread, and stored by lane 0. At most
    ``buffers - 1`` older stores may still be reading their buffers, so buffers are used in turn;
    let lane 0 call ``tma.wait_group_read(n=0)`` before the CTA exits.

    Args:
        e: given by the compiler.
        values: registers of consecutive columns of this thread's row.
        tensor_map: map of C with box (32 rows, columns), swizzled to rows of the buffer.
        buffer: shared address of 32 rows, 1024-byte aligned, of this warp alone.
        row: row of lane 0 in C, at most 32 bits.
        column: column of the first register in C, at most 32 bits.
        dtype: element type of C.
        buffers: number of buffers that the warp uses in turn.
        policy: L2 cache policy of the store, a constant, or None.
        function: None, or a device function that transforms each value, see :func:`apply`.
        rows: rows of C, for ``function``.
        columns: columns of C, for ``function``.
        extra: tuple of further arguments of ``function``.
    """
    from nbtc.intrinsics import fence, memory, sync, tma

    name = canonical(dtype).name
    row_bytes = len(values) * canonical(dtype).itemsize
    lane = e.special_register("tid.x") % ROWS
    leader = e.equals(lane, 0)
    if not isinstance(function.type, types.NoneType | types.Omitted):
        values = e.inline(apply, function, values, row + lane, column, rows, columns, *extra)
    with e.when(leader):
        e.call(tma.wait_group_read, n=buffers - 1)
    e.call(sync.warp_sync)
    words = values if name in ("float32", "int32") else e.inline(pack, values, name)
    kind = "f32" if name == "float32" else "u32"
    start = buffer + lane * row_bytes
    pattern = _swizzle_bits(row_bytes, lane)
    for i in range(0, len(words), 4):
        e.call(memory.st_shared, start + (pattern ^ (4 * i)), words[i : i + 4], type=kind, vec="v4")
    e.call(fence.proxy_async)
    e.call(sync.warp_sync)
    with e.when(leader):
        e.call(tma.store, tensor_map, [column, row], buffer, policy)
        e.call(tma.commit_group)


def _swizzle_bits(row_bytes: int, row: Any) -> Any:
    """Return what the swizzle of rows of ``row_bytes`` adds (by XOR) to an address in ``row``."""
    if row_bytes == 128:
        return (row & 7) << 4
    if row_bytes == 64:
        return ((row >> 1) & 3) << 4
    return ((row >> 2) & 1) << 4
