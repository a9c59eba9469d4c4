"""Epilogues: transform accumulators element by element, and store them through shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numba.cuda import types

from nbtc.dtypes import Dtype, canonical
from nbtc.errors import DtypeError, InstructionError
from nbtc.layout import fragments
from nbtc.ptx.registers import pack, undefined
from nbtc.ptx.staging import Emitter, Value, staged

_STORED = ("bfloat16", "float16", "float32")
STRIP = 16
"""Columns of a strip, which can be stored alone."""


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
    _check_pieces("store", d, dtype, n, columns, buffers)
    return types.none


def _check_pieces(
    name: str, d: Any, dtype: Any, n: int, columns: int, buffers: int, valid: int | None = None
) -> None:
    if canonical(dtype).name not in _STORED:
        raise DtypeError(f"epilogue.{name}: dtype={dtype!r}; legal: {', '.join(_STORED)}")
    _check_columns(name, n, columns)
    _check_valid(name, n, columns, valid)
    per_atom = (valid or n) // 2
    if not isinstance(d, types.BaseTuple) or len(d) % per_atom:
        raise InstructionError(
            f"epilogue.{name}: d is {d}, needs a multiple of {per_atom} registers"
        )
    pieces = len(d) // per_atom * (n // columns)
    if buffers < 1 or pieces % buffers:
        raise InstructionError(
            f"epilogue.{name}: buffers={buffers} for {pieces} pieces; each call must use every "
            "buffer equally often, so that the next call finds the oldest one free"
        )


def _check_columns(name: str, n: int, columns: int) -> None:
    if n % columns:
        raise InstructionError(f"epilogue.{name}: columns={columns} does not divide n={n}")


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
    n: Any, columns: Any, buffers: Any, function: Any, extra: Any, valid: Any,
) -> Any:  # fmt: skip
    _check_pieces("write", d, dtype, n, columns, buffers, valid)
    return types.uint32


def _check_valid(name: str, n: int, columns: int, valid: Any) -> None:
    if valid is None:
        return
    if columns % STRIP:
        raise InstructionError(
            f"epilogue.{name}: valid={valid!r} with columns={columns}; the last piece is cut into "
            f"strips of {STRIP}: columns must be a multiple of {STRIP}"
        )
    if not isinstance(valid, int) or valid % STRIP or not n - columns < valid <= n:
        raise InstructionError(
            f"epilogue.{name}: valid={valid!r} of n={n} columns in pieces of {columns}; needs "
            f"whole strips of {STRIP} that end in the last piece: a multiple of {STRIP} from "
            f"{n - columns + STRIP} to {n}"
        )


@staged(_returns_write, constants=("dtype", "n", "columns", "buffers", "valid"))
def write(
    e: Emitter, d: Any, buffer: Any, free: Any, ready: Any, parity: Any, row: Any, column: Any,
    dtype: str, n: int, columns: int, buffers: int = 2, function: Any = None, extra: Any = (),
    valid: int | None = None,
) -> Any:  # fmt: skip
    """Write accumulators to shared memory in pieces, for another warp to store by TMA.

    Executed by the 128 threads of one warpgroup together. A piece waits for its buffer to be free,
    is written, fenced for the async proxy by every thread, and announced by one arrival of each
    of the four warps; the warpgroup then goes on without waiting for the store.

    Args:
        e: given by the compiler.
        d: n / 2 float32 registers for each 64 rows, or ``valid`` / 2.
        buffer: shared address of ``buffers`` pieces of 64 x ``columns`` elements.
        free: shared address of ``buffers`` mbarriers of count 1: the buffer may be written.
        ready: shared address of ``buffers`` mbarriers of count 4: the buffer holds a piece.
        parity: parity of ``free`` to wait for; 1 before the first call, then what the last call
            returned.
        row: row of the first element in C, for ``function``.
        column: column of the first element in C, for ``function``.
        dtype: element type of C.
        n: columns of a tile.
        columns: columns of a piece; columns * itemsize is 32, 64 or 128 bytes.
        buffers: number of pieces in the buffer; divides the number of pieces.
        function: None, or a device function that transforms each value, see :func:`apply`.
        extra: tuple of further arguments of ``function``.
        valid: None, or how many of the n columns there are, where tiles of two widths have as many
            pieces: the last piece of each 64 rows is then written as strips of 64 x 16 elements
            after each other, swizzled to their own rows, and those beyond ``valid`` are not.

    Returns:
        The parity for the next call.
    """
    pieces = _Pieces(e, d, row, column, dtype, n, columns, function, extra, valid)
    for number in range(len(pieces)):
        registers = pieces.registers(number)
        _announced(e, pieces.shape, registers, number, buffer, free, ready, parity, buffers)
    return parity ^ (len(pieces) // buffers & 1)


def _returns_half(
    d: Any, buffer: Any, free: Any, ready: Any, parity: Any, row: Any, column: Any, dtype: Any,
    n: Any, columns: Any, buffers: Any, function: Any, extra: Any, valid: Any,
) -> Any:  # fmt: skip
    _check_pieces("write_half", d, dtype, n, columns, buffers, valid)
    elements = len(d) // ((valid or n) // 2) * n
    _check_halves("write_half", dtype, elements, columns, buffers)
    return types.UniTuple(types.uint32, elements // 8)


def _check_halves(name: str, dtype: Any, elements: int, columns: int, buffers: int) -> None:
    if canonical(dtype).itemsize != 2:
        raise DtypeError(
            f"epilogue.{name}: dtype={dtype!r}; keeps pairs of a 16-bit type: bfloat16, float16"
        )
    if elements != 2 * buffers * columns:
        raise InstructionError(
            f"epilogue.{name}: {elements // columns} pieces, buffers={buffers}; half of the "
            f"pieces must fill the buffers: {2 * buffers} pieces"
        )


@staged(_returns_half, constants=("dtype", "n", "columns", "buffers", "valid"))
def write_half(
    e: Emitter, d: Any, buffer: Any, free: Any, ready: Any, parity: Any, row: Any, column: Any,
    dtype: str, n: int, columns: int, buffers: int = 2, function: Any = None, extra: Any = (),
    valid: int | None = None,
) -> Any:  # fmt: skip
    """Write the first half of the accumulators as :func:`write` does, and return the rounded rest.

    Executed by the 128 threads of one warpgroup together. The pieces of the first half fill all
    buffers. The other half waits for them in registers, so that the warpgroup need not:
    :func:`write_rest` writes it, best after the first wgmma of the next tile have been issued.

    Args:
        e: given by the compiler.
        d: n / 2 float32 registers for each 64 rows, or ``valid`` / 2; free on return.
        buffer: as for :func:`write`, and so are the rest.
        free: mbarriers of count 1: the buffer may be written.
        ready: mbarriers of count 4: the buffer holds a piece.
        parity: parity of ``free`` to wait for: 1, the two halves bring it back.
        row: row of the first element in C.
        column: column of the first element in C.
        dtype: ``"bfloat16"`` or ``"float16"``.
        n: columns of the accumulator.
        columns: columns of a piece.
        buffers: number of pieces in the buffer; half the number of pieces.
        function: None, or a device function that transforms each value.
        extra: tuple of further arguments of ``function``.
        valid: None, or how many of the n columns there are.

    Returns:
        The packed registers of the second half, uint32, two elements in each; undefined ones for
        the columns from ``valid`` to n.
    """
    pieces = _Pieces(e, d, row, column, dtype, n, columns, function, extra, valid)
    for number in range(len(pieces) // 2):
        registers = pieces.registers(number)
        _announced(e, pieces.shape, registers, number, buffer, free, ready, parity, buffers)
    rest = [pieces.registers(i) for i in range(len(pieces) // 2, len(pieces))]
    return e.tuple([register for piece in rest for register in piece])


def _returns_rest(
    rest: Any, buffer: Any, free: Any, ready: Any, parity: Any, dtype: Any, n: Any, columns: Any,
    buffers: Any, valid: Any,
) -> Any:  # fmt: skip
    if not isinstance(rest, types.UniTuple) or rest.dtype != types.uint32:
        raise InstructionError(
            f"epilogue.write_rest: rest is {rest}, needs what epilogue.write_half returned"
        )
    _check_columns("write_rest", n, columns)
    _check_valid("write_rest", n, columns, valid)
    _check_halves("write_rest", dtype, len(rest) * 8, columns, buffers)
    return types.none


@staged(_returns_rest, constants=("dtype", "n", "columns", "buffers", "valid"))
def write_rest(
    e: Emitter, rest: Any, buffer: Any, free: Any, ready: Any, parity: Any, dtype: str, n: int,
    columns: int, buffers: int = 2, valid: int | None = None,
) -> None:  # fmt: skip
    """Write the half of a tile that :func:`write_half` kept.

    Executed by the 128 threads of one warpgroup together, once after each ``write_half`` and before
    the next.

    Args:
        e: given by the compiler.
        rest: what ``write_half`` returned.
        buffer: as there, and so are the rest.
        free: mbarriers of count 1: the buffer may be written.
        ready: mbarriers of count 4: the buffer holds a piece.
        parity: what ``write_half`` was given.
        dtype: ``"bfloat16"`` or ``"float16"``.
        n: columns of the accumulator.
        columns: columns of a piece.
        buffers: number of pieces in the buffer.
        valid: None, or n: ``write_half`` was given a ``valid``.
    """
    shape = _Shape(canonical(dtype), n, columns, valid)
    size = len(rest) // buffers
    for i in range(buffers):
        registers = e.tuple(rest[i * size : (i + 1) * size])
        _announced(e, shape, registers, buffers + i, buffer, free, ready, parity, buffers)


def _announced(
    e: Emitter, shape: _Shape, registers: Any, number: int, buffer: Any, free: Any, ready: Any,
    parity: Any, buffers: int,
) -> None:  # fmt: skip
    """Write a piece when its buffer is free, and arrive on the barrier that says it is there."""
    from nbtc.device import pipeline
    from nbtc.intrinsics import fence, mbarrier, sync

    slot = number % buffers
    e.call_device(pipeline.wait, free + 8 * slot, parity ^ (number // buffers & 1))
    shape.write(e, registers, number, buffer + slot * shape.nbytes)
    e.call(fence.proxy_async)
    e.call(sync.warp_sync, 0xFFFFFFFF)
    with e.when(e.equals(e.special_register("tid.x") % 32, 0)):
        e.call(mbarrier.arrive, ready + 8 * slot)


@dataclass(frozen=True)
class _Shape:
    """Pieces of 64 x ``columns`` elements, n / columns for each 64 rows; see ``valid`` of write."""

    dtype: Dtype
    n: int
    columns: int
    valid: int | None = None

    @property
    def nbytes(self) -> int:
        return 64 * self.columns * self.dtype.itemsize

    def end(self, number: int) -> int:
        """Return how many columns of a piece hold results."""
        first = number % (self.n // self.columns) * self.columns
        return min(self.columns, (self.n if self.valid is None else self.valid) - first)

    def write(self, e: Emitter, registers: Any, number: int, target: Any) -> None:
        """Write the registers of a piece to shared memory, swizzled; the last one as strips."""
        last = (number + 1) % (self.n // self.columns) == 0
        width = STRIP if last and self.valid is not None else self.columns
        thread = e.special_register("tid.x") % 128
        row_bytes = width * self.dtype.itemsize
        write = _write_words if self.dtype.name == "float32" else _write_matrices
        size = len(registers) * width // self.columns
        for i in range(self.end(number) // width):
            part = e.tuple(registers[i * size : (i + 1) * size])
            write(e, part, target + i * 64 * row_bytes, thread, row_bytes)


class _Pieces:
    """A warpgroup's accumulators, transformed, as pieces that are rounded one at a time."""

    def __init__(
        self, e: Emitter, d: Any, row: Any, column: Any, dtype: str, n: int, columns: int,
        function: Any, extra: Any, valid: int | None = None,
    ) -> None:  # fmt: skip
        self.e, self.row, self.column = e, row, column
        self.shape = _Shape(canonical(dtype), n, columns, valid)
        self.nbytes = self.shape.nbytes
        self.d, self.per_atom = d, (valid or n) // 2
        atoms = len(d) // self.per_atom
        self.places = [(atom, first) for atom in range(atoms) for first in range(0, n, columns)]
        self.transforms = not isinstance(function.type, types.NoneType | types.Omitted)
        self.function, self.extra = function, extra
        if isinstance(extra, tuple) or isinstance(extra.type, types.Omitted):
            self.extra = ()

    def __len__(self) -> int:
        return len(self.places)

    def corner(self, number: int) -> list[Any]:
        """Return the coordinates of a piece in C, innermost first."""
        atom, first = self.places[number]
        return [self.column + first, self.row + 64 * atom]

    def registers(self, number: int) -> Any:
        """Return the rounded registers of a piece, undefined where there are no results.

        They are transformed here, a piece at a time, so that what the function reads takes few
        registers.
        """
        atom, first = self.places[number]
        start = atom * self.per_atom + first // 2
        values = self.e.tuple(self.d[start : start + self.shape.end(number) // 2])
        if self.transforms:
            row, column = self.row + 64 * atom, self.column + first
            values = self.e.inline(apply, self.function, values, row, column, *self.extra)
        kind, count = "float32", self.shape.columns // 2
        if self.shape.dtype.name != "float32":
            values = self.e.inline(pack, values, self.shape.dtype.name)
            kind, count = "uint32", count // 2
        missing = self.e.inline(undefined, count, kind)[len(values) :]
        return self.e.tuple([*values, *missing])

    def write(self, number: int, target: Any) -> None:
        """Round a piece and write it to shared memory, swizzled."""
        self.shape.write(self.e, self.registers(number), number, target)


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
