"""Epilogues: transform accumulators element by element, and store them through shared memory."""

from __future__ import annotations

from typing import Any

from numba.cuda import types

from nbtc.dtypes import canonical
from nbtc.errors import DtypeError, InstructionError
from nbtc.layout import fragments
from nbtc.ptx.registers import pack
from nbtc.ptx.staging import Emitter, Value, staged

_STORED = ("bfloat16", "float16", "float32")


def _returns_apply(function: Any, d: Any, row: Any, column: Any, *extra: Any) -> Any:
    if not isinstance(d, types.BaseTuple) or len(d) % 4:
        raise InstructionError(f"epilogue.apply: d is {d}, needs the registers of an accumulator")
    return types.UniTuple(types.float32, len(d))


@staged(_returns_apply)
def apply(e: Emitter, function: Any, d: Any, row: Any, column: Any, *extra: Any) -> Any:
    """Return the accumulator with ``function(value, row, column, *extra)`` in every register.

    Executed by the 128 threads of one warpgroup, each for its own registers; the function is
    inlined once per register.

    Args:
        e: given by the compiler.
        function: a device function (``nbtc.device``) of (float32 value, int32 row, int32 column,
            extra values) that gives a number.
        d: float32 accumulator registers of one m64nN tile (N / 2 of them).
        row: row of the tile's first element in the whole matrix.
        column: column of the tile's first element in the whole matrix.
        extra: arrays or scalars handed through to the function.
    """
    results = _called(e, function, d, row, column, extra)
    for result in results:
        if not isinstance(result.type, types.Number | types.Boolean):
            raise InstructionError(
                f"epilogue: {_name(function)} returns {types.unliteral(result.type)}; it must "
                "return a number, the new value of the element"
            )
    return e.tuple([e.cast(result, types.float32) for result in results])


def _name(function: Value) -> str:
    helper = getattr(function.type, "function", None)
    return helper.__qualname__ if helper is not None else str(function.type)


def _called(
    e: Emitter, function: Value, d: Value, row: Any, column: Any, extra: Any
) -> list[Value]:
    """Return what the function gives for every register."""
    thread = e.special_register("tid.x") % 128
    base_row = row + fragments.wgmma_row(thread, 0)
    base_column = column + fragments.wgmma_col(thread, 0)
    results = []
    for i in range(len(d)):
        r = base_row + (fragments.wgmma_row(0, i) - fragments.wgmma_row(0, 0))
        c = base_column + (fragments.wgmma_col(0, i) - fragments.wgmma_col(0, 0))
        place = [e.cast(r, types.int32), e.cast(c, types.int32)]
        results.append(e.call_function(function.type, [d[i], *place, *extra]))
    return results


def _returns_each(function: Any, d: Any, row: Any, column: Any, *extra: Any) -> Any:
    _returns_apply(function, d, row, column, *extra)
    return types.none


@staged(_returns_each)
def each(e: Emitter, function: Any, d: Any, row: Any, column: Any, *extra: Any) -> None:
    """Call ``function(value, row, column, *extra)`` for every register, for what it does.

    As :func:`apply`, but the function returns nothing: it stores the value, for example. It is also
    called for elements outside the matrix (row and column are int32), and so tests the bounds.
    """
    _called(e, function, d, row, column, extra)


def _returns_store(
    d: Any, tensor_map: Any, buffer: Any, row: Any, column: Any, barrier: Any, dtype: Any,
    n: Any, columns: Any, buffers: Any, policy: Any, function: Any, extra: Any,
) -> Any:  # fmt: skip
    if canonical(dtype).name not in _STORED:
        raise DtypeError(f"epilogue.store: dtype={dtype!r}; legal: {', '.join(_STORED)}")
    if not isinstance(d, types.BaseTuple) or len(d) % (n // 2):
        raise InstructionError(f"epilogue.store: d is {d}, needs a multiple of {n // 2} registers")
    if n % columns:
        raise InstructionError(f"epilogue.store: columns={columns} does not divide n={n}")
    pieces = len(d) * 2 // columns
    if buffers < 1 or pieces % buffers:
        raise InstructionError(
            f"epilogue.store: buffers={buffers} for {pieces} pieces; each call must use every "
            "buffer equally often, so that the next call finds the oldest one free"
        )
    return types.none


@staged(_returns_store, constants=("dtype", "n", "columns", "buffers", "policy"))
def store(
    e: Emitter, d: Any, tensor_map: Any, buffer: Any, row: Any, column: Any, barrier: Any,
    dtype: str, n: int, columns: int, buffers: int = 2, policy: int | None = None,
    function: Any = None, extra: Any = (),
) -> None:  # fmt: skip
    """Store accumulators through shared memory by TMA, in pieces of 64 x ``columns`` elements.

    Executed by the 128 threads of one warpgroup together. Each piece is rounded, written to a
    buffer by ``stmatrix`` (16-bit types) or ``st.shared`` (float32), fenced for the async proxy
    by every writing thread, and stored by one thread. At most ``buffers - 1`` stores are still
    reading their buffer on return: let thread 0 of the warpgroup call ``tma.wait_group_read(n=0)``
    before the buffers serve another purpose or the CTA exits.

    Args:
        e: given by the compiler.
        d: n / 2 float32 registers for each 64 rows.
        tensor_map: map of C with box (64 rows, ``columns``), swizzled to rows of the buffer.
        buffer: shared address of ``buffers`` pieces of 64 x ``columns`` elements.
        row: row of the first element in C, at most 32 bits.
        column: column of the first element in C, at most 32 bits.
        barrier: number of a named barrier that belongs to this warpgroup; a 32-bit value.
        dtype: element type of C.
        n: columns of the accumulator.
        columns: columns of a piece; columns * itemsize is 32, 64 or 128 bytes.
        buffers: number of pieces in the buffer; divides the number of pieces.
        policy: L2 cache policy of the stores, a constant, or None.
        function: None, or a device function that transforms each value, see :func:`apply`.
        extra: tuple of further arguments of ``function``.
    """
    from nbtc.intrinsics import fence, sync, tma

    leader = e.equals(e.special_register("tid.x") % 128, 0)
    pieces = _Pieces(e, d, row, column, dtype, n, columns, function, extra)
    batch = buffers if buffers == len(pieces) else 1
    for start in range(0, len(pieces), batch):
        with e.when(leader):
            e.call(tma.wait_group_read, n=buffers // batch - 1)
        e.call(sync.barrier_sync, barrier, 128)
        for number in range(start, start + batch):
            pieces.write(number, buffer + (number % buffers) * pieces.nbytes)
        e.call(fence.proxy_async)
        e.call(sync.barrier_sync, barrier, 128)
        with e.when(leader):
            for number in range(start, start + batch):
                source = buffer + (number % buffers) * pieces.nbytes
                e.call(tma.store, tensor_map, pieces.corner(number), source, policy)
            e.call(tma.commit_group)


def _returns_write(
    d: Any, buffer: Any, free: Any, ready: Any, parity: Any, row: Any, column: Any, dtype: Any,
    n: Any, columns: Any, buffers: Any, function: Any, extra: Any,
) -> Any:  # fmt: skip
    _returns_store(d, None, buffer, row, column, 0, dtype, n, columns, buffers, None, function,
                   extra)  # fmt: skip
    return types.uint32


@staged(_returns_write, constants=("dtype", "n", "columns", "buffers"))
def write(
    e: Emitter, d: Any, buffer: Any, free: Any, ready: Any, parity: Any, row: Any, column: Any,
    dtype: str, n: int, columns: int, buffers: int = 2, function: Any = None, extra: Any = (),
) -> Any:  # fmt: skip
    """Write accumulators to shared memory in pieces, for another warp to store by TMA.

    Executed by the 128 threads of one warpgroup together. A piece waits for its buffer to be free,
    is written, fenced for the async proxy by every thread, and announced by one arrival of each
    of the four warps; the warpgroup then goes on without waiting for the store.

    Args:
        e: given by the compiler.
        d: n / 2 float32 registers for each 64 rows.
        buffer: shared address of ``buffers`` pieces of 64 x ``columns`` elements.
        free: shared address of ``buffers`` mbarriers of count 1: the buffer may be written.
        ready: shared address of ``buffers`` mbarriers of count 4: the buffer holds a piece.
        parity: parity of ``free`` to wait for; 1 before the first call, then what the last call
            returned.
        row: row of the first element in C, for ``function``.
        column: column of the first element in C, for ``function``.
        dtype: element type of C.
        n: columns of the accumulator.
        columns: columns of a piece; columns * itemsize is 32, 64 or 128 bytes.
        buffers: number of pieces in the buffer; divides the number of pieces.
        function: None, or a device function that transforms each value, see :func:`apply`.
        extra: tuple of further arguments of ``function``.

    Returns:
        The parity for the next call.
    """
    from nbtc.device import pipeline
    from nbtc.intrinsics import fence, mbarrier, sync

    first_lane = e.equals(e.special_register("tid.x") % 32, 0)
    pieces = _Pieces(e, d, row, column, dtype, n, columns, function, extra)
    for number in range(len(pieces)):
        slot = number % buffers
        e.call_device(pipeline.wait, free + 8 * slot, parity ^ (number // buffers & 1))
        pieces.write(number, buffer + slot * pieces.nbytes)
        e.call(fence.proxy_async)
        e.call(sync.warp_sync, 0xFFFFFFFF)
        with e.when(first_lane):
            e.call(mbarrier.arrive, ready + 8 * slot)
    return parity ^ (len(pieces) // buffers & 1)


class _Pieces:
    """Pieces of 64 x ``columns`` elements of a warpgroup's accumulators, rounded and written."""

    def __init__(
        self, e: Emitter, d: Any, row: Any, column: Any, dtype: str, n: int, columns: int,
        function: Any, extra: Any,
    ) -> None:  # fmt: skip
        self.e, self.row, self.column, self.columns = e, row, column, columns
        self.dtype = canonical(dtype)
        self.row_bytes = columns * self.dtype.itemsize
        self.nbytes = 64 * self.row_bytes
        self.places = [
            (atom, first) for atom in range(len(d) * 2 // n) for first in range(0, n, columns)
        ]
        given = [] if isinstance(extra, tuple) or isinstance(extra.type, types.Omitted) else extra
        transforms = not isinstance(function.type, types.NoneType | types.Omitted)
        self.atoms = []
        for atom in range(len(d) * 2 // n):
            values = e.tuple(d[atom * n // 2 : (atom + 1) * n // 2])
            if transforms:
                values = e.inline(apply, function, values, row + 64 * atom, column, *given)
            self.atoms.append(values)

    def __len__(self) -> int:
        return len(self.places)

    def corner(self, number: int) -> list[Any]:
        """Return the coordinates of a piece in C, innermost first."""
        atom, first = self.places[number]
        return [self.column + first, self.row + 64 * atom]

    def write(self, number: int, target: Any) -> None:
        """Round a piece and write it to shared memory, swizzled."""
        atom, first = self.places[number]
        registers = self.atoms[atom][first // 2 : (first + self.columns) // 2]
        thread = self.e.special_register("tid.x") % 128
        if self.dtype.name == "float32":
            _write_words(self.e, registers, target, thread, self.row_bytes)
        else:
            packed = self.e.inline(pack, registers, self.dtype.name)
            _write_matrices(self.e, packed, target, thread, self.row_bytes)


def _swizzle_bits(row_bytes: int, row: Any) -> Any:
    """Return what the swizzle of rows of ``row_bytes`` adds (by XOR) to an address in ``row``."""
    if row_bytes == 128:
        return (row & 7) << 4
    if row_bytes == 64:
        return ((row >> 1) & 3) << 4
    return ((row >> 2) & 1) << 4


def _write_matrices(e: Emitter, packed: Value, target: Any, thread: Any, row_bytes: int) -> None:
    """Write packed 16-bit pairs by stmatrix; four 8x8 matrices cover 16 rows and 16 columns."""
    from nbtc.intrinsics import matrix

    lane = thread % 32
    row = (thread // 32) * 16 + lane % 16
    start = target + row * row_bytes
    # Lanes 0-15 address the first 8 columns (16 bytes) of the 16, lanes 16-31 the others.
    pattern = ((lane // 16) << 4) ^ _swizzle_bits(row_bytes, row)
    for i in range(len(packed) // 4):
        address = start + (pattern ^ (32 * i))
        e.call(matrix.stmatrix, address, packed[4 * i : 4 * i + 4], num=4)


def _write_words(e: Emitter, registers: Any, target: Any, thread: Any, row_bytes: int) -> None:
    """Write float32 pairs; register pairs alternate between a row and the row 8 below."""
    from nbtc.intrinsics import memory

    for i in range(0, len(registers), 2):
        row = fragments.wgmma_row(thread, i)
        byte = fragments.wgmma_col(thread, i) * 4
        address = target + row * row_bytes + (byte ^ _swizzle_bits(row_bytes, row))
        pair = [registers[i], registers[i + 1]]
        e.call(memory.st_shared, address, pair, type="f32", vec="v2")
