"""Warp matrix multiply of a register tile: many mma.sync on fragments from ldmatrix."""

from __future__ import annotations

from typing import Any

from numba.cuda import types

from nbtc.dtypes import canonical
from nbtc.errors import InstructionError
from nbtc.layout import fragments
from nbtc.ptx.staging import Emitter, staged

_MMA = {"bfloat16": "bf16", "float16": "f16"}


def _returns_multiply(d: Any, a: Any, b: Any, dtype: Any) -> Any:
    if canonical(dtype).name not in _MMA:
        raise InstructionError(f"warp_mma.multiply: dtype={dtype!r}; legal: {', '.join(_MMA)}")
    for name, value, unit in (("d", d, 4), ("a", a, 4), ("b", b, 2)):
        if not isinstance(value, types.BaseTuple) or len(value) % unit:
            raise InstructionError(
                f"warp_mma.multiply: {name} is {value}, needs a tuple of a multiple of {unit} "
                "registers"
            )
    need = len(a) // 4 * (len(b) // 2) * 4
    if len(d) != need:
        raise InstructionError(
            f"warp_mma.multiply: d has {len(d)} registers, needs "
            f"{len(a) // 4} * {len(b) // 2} * 4 = {need}"
        )
    return d


@staged(_returns_multiply, constants=("dtype",))
def multiply(e: Emitter, d: Any, a: Any, b: Any, dtype: str) -> Any:
    """Return D + A times B for a tile of m16n8k16 fragments, 16-bit types into float32.

    Executed by all 32 lanes of a warp; synchronous.

    Args:
        e: given by the compiler.
        d: 4 float32 for each m16n8 tile, row of tiles after row of tiles.
        a: 4 uint32 for each 16 rows, as ``ldmatrix`` gives them.
        b: 2 uint32 for each 8 columns.
        dtype: ``"bfloat16"`` or ``"float16"``.
    """
    from nbtc.intrinsics import mma

    instruction = getattr(mma, _MMA[canonical(dtype).name])
    rows, columns = len(a) // 4, len(b) // 2
    result: list[Any] = [None] * (4 * rows * columns)
    for m in range(rows):
        # Back and forth, so that neighbours in time share an operand register.
        for n in range(columns) if m % 2 == 0 else reversed(range(columns)):
            at = 4 * (m * columns + n)
            tile = e.call(instruction, a[4 * m : 4 * m + 4], b[2 * n : 2 * n + 2], d[at : at + 4])
            result[at : at + 4] = list(tile)
    return e.tuple(result)


def _returns_each(function: Any, d: Any, row: Any, column: Any, columns: Any, *extra: Any) -> Any:
    if not isinstance(columns, int) or columns % 8 or len(d) % (columns // 2):
        raise InstructionError(
            f"warp_mma.each_pair: columns={columns!r} for {len(d)} registers; must be the columns "
            "of the tile, a multiple of 8"
        )
    return types.none


@staged(_returns_each, constants=("columns",))
def each_pair(
    e: Emitter, function: Any, d: Any, row: Any, column: Any, columns: int, *extra: Any
) -> None:
    """Call ``function(left, right, row, column, *extra)`` for each pair of neighbours in a row.

    Executed by all 32 lanes of a warp, each for its own registers; the function is inlined.

    Args:
        e: given by the compiler.
        function: a device function that stores the two float32, for example.
        d: accumulator of :func:`multiply`.
        row: row of the warp's tile in the whole matrix.
        column: column of the warp's tile in the whole matrix.
        columns: columns of the warp's tile.
        extra: arrays or scalars handed through to the function.
    """
    lane = e.special_register("tid.x") % 32
    base_row, base_column = row + fragments.mma_row(lane, 0), column + fragments.mma_col(lane, 0)
    tiles = columns // 8
    for i in range(0, len(d), 2):
        tile, register = divmod(i, 4)
        r = base_row + (tile // tiles * 16 + fragments.mma_row(0, register))
        c = base_column + tile % tiles * 8
        place = [e.cast(r, types.int32), e.cast(c, types.int32)]
        e.call_function(function.type, [d[i], d[i + 1], *place, *extra])
