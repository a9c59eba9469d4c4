"""Warpgroup matrix multiply of a whole k-block: the wgmma of one pipeline stage."""

from __future__ import annotations

from typing import Any

from numba.cuda import types

from nbtc.dtypes import canonical
from nbtc.errors import InstructionError, LayoutError
from nbtc.layout.matrix_descriptor import OperandTile
from nbtc.ptx.addresses import matrix_descriptor_sm90
from nbtc.ptx.staging import Emitter, Value, staged

_MMA = {
    "bfloat16": "mma_async_bf16",
    "float16": "mma_async_f16",
}


def _returns(
    d: Any, a: Any, b: Any, first: Any, dtype: Any, m: Any, n: Any, k: Any,
    tile_m: Any, tile_n: Any, a_major: Any, b_major: Any,
) -> Any:  # fmt: skip
    name = canonical(dtype).name
    if name not in _MMA:
        raise InstructionError(f"mma.block: dtype={dtype!r}; legal: {', '.join(_MMA)}")
    if m % 64:
        raise InstructionError(f"mma.block: m={m}; one wgmma covers 64 rows: a multiple of 64")
    need = m // 64 * n // 2
    if not isinstance(d, types.BaseTuple) or len(d) != need:
        have = len(d) if isinstance(d, types.BaseTuple) else d
        raise InstructionError(
            f"mma.block: d has {have} registers, needs m / 64 * n / 2 = {m} / 64 * {n} / 2 = {need}"
        )
    return d


@staged(_returns, constants=("dtype", "m", "n", "k", "tile_m", "tile_n", "a_major", "b_major"))
def block(
    e: Emitter, d: Any, a: Any, b: Any, first: Any, dtype: str, m: int, n: int, k: int,
    tile_m: int, tile_n: int, a_major: str = "K", b_major: str = "K",
) -> Any:  # fmt: skip
    """Issue the wgmma of one k-block: D (m x n) += A (m x k) times B (k x n).

    Executed by the 128 threads of one warpgroup together. ``wgmma.fence`` comes before it,
    ``wgmma.commit_group`` after it; the result is valid after ``wgmma.wait_group``.

    Args:
        e: given by the compiler.
        d: accumulators, m / 64 * n / 2 float32 registers; 64 rows after each other.
        a: shared address of this warpgroup's first row of the A tile.
        b: shared address of the first column in the B tile.
        first: boolean; True makes D = A B instead of D += A B.
        dtype: ``"bfloat16"`` or ``"float16"``.
        m: rows of this warpgroup, a multiple of 64.
        n: columns, a legal N of wgmma.
        k: depth of the block in elements.
        tile_m: rows of the whole A tile in shared memory.
        tile_n: columns of the whole B tile in shared memory.
        a_major: ``"K"`` or ``"MN"``: which dimension of A is contiguous.
        b_major: likewise for B.
    """
    from nbtc.intrinsics import wgmma

    name = canonical(dtype).name
    a_tile, b_tile = operand_tile(tile_m, k, name, a_major), operand_tile(tile_n, k, name, b_major)
    instruction = getattr(wgmma, _MMA[name])
    registers = n // 2
    parts: list[Any] = [d[i * registers : (i + 1) * registers] for i in range(m // 64)]
    keep = Value(e, types.boolean, e.builder.not_(first.llvm))
    descriptors = {}
    for which, address, tile in (("a", a, a_tile), ("b", b, b_tile)):
        descriptors[which] = e.inline(
            matrix_descriptor_sm90, address, tile.swizzle, tile.leading, tile.stride
        )
    for step in range(k // 16):
        for atom in range(m // 64):
            a_offset = a_tile.k_offset(step) + a_tile.mn_offset(atom * 64)
            parts[atom] = list(
                e.call(
                    instruction,
                    parts[atom],
                    e.add64(descriptors["a"], a_offset >> 4),
                    e.add64(descriptors["b"], b_tile.k_offset(step) >> 4),
                    keep if step == 0 else True,
                    n=n,
                    trans_a=int(a_major == "MN"),
                    trans_b=int(b_major == "MN"),
                )
            )
    return e.tuple([r for part in parts for r in part])


def operand_tile(mn: int, k: int, dtype: str, major: str, sm: int = 90) -> OperandTile:
    """Return the layout of an operand tile with the widest swizzle that its rows fill.

    Args:
        mn: rows of A or columns of B.
        k: depth in elements.
        dtype: element type.
        major: ``"K"`` or ``"MN"``: the contiguous dimension.
        sm: 90 or 100.

    Raises:
        LayoutError: the contiguous row is not a multiple of 32 bytes.
    """
    row = (k if major == "K" else mn) * canonical(dtype).bits // 8
    for span in (128, 64, 32):
        if row % span == 0:
            return OperandTile(mn, k, dtype, major, f"{span}B", sm)
    raise LayoutError(
        f"a {major}-major tile of {mn} x {k} {dtype} has rows of {row} B; needs a multiple of 32 B"
    )
