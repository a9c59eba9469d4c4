"""tcgen05 matrix multiply of a whole k-block: the MMA of one pipeline stage.

The counterpart of :mod:`nbtc.device.mma` on Blackwell: one thread issues everything, D is in tensor
memory, and nothing is carried through registers.
"""

from __future__ import annotations

from typing import Any

from numba.cuda import types

from nbtc.device.mma import operand_tile
from nbtc.dtypes import canonical
from nbtc.errors import InstructionError, LayoutError
from nbtc.layout.instruction_descriptor import BLOCK_SCALED, KINDS, InstructionDescriptor
from nbtc.layout.matrix_descriptor import OperandTile
from nbtc.layout.scale_factors import TILE_BYTES, TILE_SCALES
from nbtc.ptx.addresses import matrix_descriptor_sm100
from nbtc.ptx.staging import Emitter, Value, staged

SCALE_COLUMNS = 4
"""Columns of tensor memory that 128 rows of four scale factors take."""

_SCALE_VECTORS = {
    ("mxf8f6f4", 32): "block32", ("mxf4", 32): "block32", ("mxf4nvf4", 32): "block32",
    ("mxf4nvf4", 16): "block16",
}  # fmt: skip


def container(kind: str, dtype: Any) -> str:
    """Return the element type whose layout an operand has in shared memory.

    4- and 6-bit elements of f8f6f4 and mxf8f6f4 take a byte each (16 elements in 16 bytes, data
    first, then padding, as TMA unpacks them); those of mxf4 and mxf4nvf4 are packed.
    """
    name = canonical(dtype).name
    if canonical(dtype).bits < 8 and kind in ("f8f6f4", "mxf8f6f4"):
        return "uint8"
    return name


def operand(mn: int, k: int, kind: str, dtype: Any, major: str) -> OperandTile:
    """Return the layout of an operand tile of tcgen05 in shared memory.

    Args:
        mn: rows of A or columns of B that one CTA holds.
        k: depth in elements.
        kind: PTX kind.
        dtype: element type.
        major: ``"K"`` or ``"MN"``: the contiguous dimension.

    Raises:
        LayoutError: there is no such tile.
    """
    name = container(kind, dtype)
    if major == "MN" and canonical(name).bits == 32:
        return OperandTile(mn, k, name, major, "128B_ATOM_32B", 100)
    return operand_tile(mn, k, name, major, 100)


def scale_words(k: int, block: int) -> int:
    """Return how many 32-bit words of four scale factors a row of a k-block has."""
    return -(-k // (block * TILE_SCALES))


def _descriptors(
    kind: str, m: int, n: int, k: int, a_dtype: str, b_dtype: str, d_dtype: str, a_major: str,
    b_major: str, cta_group: int, block: int = 0, scale: str | None = None,
) -> list[int]:  # fmt: skip
    """Return the instruction descriptor of every K-step."""
    depth = 0
    found = []
    while depth < k:
        word = depth // block % TILE_SCALES if block else 0
        fields = InstructionDescriptor(
            kind, m, n, a_dtype, b_dtype, d_dtype, transpose_a=a_major == "MN",
            transpose_b=b_major == "MN", scale=scale, sfa_id=word, sfb_id=word,
        )  # fmt: skip
        fields.check(cta_group)
        found.append(fields.encode())
        depth += fields.k
    if depth != k:
        raise LayoutError(
            f"k-block of {k} with kind::{kind}; must be a multiple of {depth // len(found)}"
        )
    return found


def _check(kind: Any, d: Any) -> None:
    if kind not in KINDS:
        raise InstructionError(f"tcgen05_mma: kind={kind!r}; legal: {', '.join(KINDS)}")
    if getattr(d, "space", "") != "tmem":
        raise InstructionError(f"tcgen05_mma: d is {d}, needs a tensor-memory address")


def _returns_block(
    d: Any, a: Any, b: Any, first: Any, kind: Any, a_dtype: Any, b_dtype: Any, d_dtype: Any,
    m: Any, n: Any, k: Any, cta_group: Any, a_major: Any, b_major: Any,
) -> Any:  # fmt: skip
    _check(kind, d)
    if kind in BLOCK_SCALED:
        raise InstructionError(f"tcgen05_mma.block: kind={kind!r} has scales; use block_scaled")
    return types.none


@staged(
    _returns_block,
    constants=(
        "kind", "a_dtype", "b_dtype", "d_dtype", "m", "n", "k", "cta_group", "a_major", "b_major",
    ),
)  # fmt: skip
def block(
    e: Emitter, d: Any, a: Any, b: Any, first: Any, kind: str, a_dtype: str, b_dtype: str,
    d_dtype: str, m: int, n: int, k: int, cta_group: int = 1, a_major: str = "K",
    b_major: str = "K",
) -> None:  # fmt: skip
    """Issue the tcgen05.mma of one k-block: D (m x n) += A (m x k) times B (k x n).

    Executed by one thread, of a pair by one thread of its even CTA. ``tcgen05.commit`` comes after
    it; the result is valid, and A and B may be overwritten, when the mbarrier completes.

    Args:
        e: given by the compiler.
        d: tensor-memory address of D, n columns.
        a: shared address of the A tile, in each CTA of a pair its half of the rows.
        b: shared address of the B tile, in each CTA of a pair its half of the columns.
        first: boolean; True makes D = A B instead of D += A B.
        kind: PTX kind: ``"f16"``, ``"tf32"``, ``"f8f6f4"`` or ``"i8"``.
        a_dtype: element type of A.
        b_dtype: element type of B.
        d_dtype: element type of D.
        m: rows of D: 128, or 256 for a pair.
        n: columns of D.
        k: depth of the block in elements.
        cta_group: 1, or 2 for a CTA pair.
        a_major: ``"K"`` or ``"MN"``: which dimension of A is contiguous.
        b_major: likewise for B.
    """
    from nbtc.intrinsics import tcgen05

    instruction = getattr(tcgen05, f"mma_{kind}")
    codes = _descriptors(kind, m, n, k, a_dtype, b_dtype, d_dtype, a_major, b_major, cta_group)
    a_steps = _steps(e, a, operand(m // cta_group, k, kind, a_dtype, a_major), len(codes))
    b_steps = _steps(e, b, operand(n // cta_group, k, kind, b_dtype, b_major), len(codes))
    keep = Value(e, types.boolean, e.builder.not_(first.llvm))
    for step, code in enumerate(codes):
        e.call(
            instruction, d, a_steps[step], b_steps[step], code, keep if step == 0 else True,
            cta_group=cta_group,
        )  # fmt: skip


def _steps(e: Emitter, address: Any, tile: OperandTile, count: int) -> list[Value]:
    """Return the matrix descriptor of every K-step of a tile."""
    start = e.inline(matrix_descriptor_sm100, address, tile.swizzle, tile.leading, tile.stride)
    return [e.add64(start, tile.k_offset(step) >> 4) for step in range(count)]


def _returns_scaled(
    d: Any, a: Any, b: Any, sfa: Any, sfb: Any, first: Any, kind: Any, a_dtype: Any, b_dtype: Any,
    scale: Any, size: Any, m: Any, n: Any, k: Any, cta_group: Any,
) -> Any:  # fmt: skip
    _check(kind, d)
    if (kind, size) not in _SCALE_VECTORS:
        raise InstructionError(
            f"tcgen05_mma.block_scaled: kind={kind!r} with blocks of {size}; legal: "
            + ", ".join(f"{k} with {s}" for k, s in _SCALE_VECTORS)
        )
    return types.none


@staged(
    _returns_scaled,
    constants=("kind", "a_dtype", "b_dtype", "scale", "size", "m", "n", "k", "cta_group"),
)
def block_scaled(
    e: Emitter, d: Any, a: Any, b: Any, sfa: Any, sfb: Any, first: Any, kind: str, a_dtype: str,
    b_dtype: str, scale: str, size: int, m: int, n: int, k: int, cta_group: int = 1,
) -> None:  # fmt: skip
    """Issue the block-scaled tcgen05.mma of one k-block: D += (A * SFA) (B * SFB).

    Executed by one thread, the one that issued :func:`copy_scales` for this k-block. A and B are
    K-major.

    Args:
        e: given by the compiler.
        d: tensor-memory address of D, n columns of float32.
        a: shared address of the A tile.
        b: shared address of the B tile.
        sfa: tensor-memory address of the scale factors of A.
        sfb: tensor-memory address of the scale factors of B.
        first: boolean; True makes D = A B instead of D += A B.
        kind: ``"mxf8f6f4"``, ``"mxf4"`` or ``"mxf4nvf4"``.
        a_dtype: element type of A.
        b_dtype: element type of B.
        scale: ``"ue8m0"`` or ``"ue4m3"``.
        size: elements that share a scale factor, 16 or 32.
        m: rows of D: 128, or 256 for a pair.
        n: columns of D, a multiple of 128.
        k: depth of the block in elements.
        cta_group: 1, or 2 for a CTA pair.
    """
    from nbtc.intrinsics import tcgen05

    instruction = getattr(tcgen05, f"mma_{kind}")
    codes = _descriptors(
        kind, m, n, k, a_dtype, b_dtype, "float32", "K", "K", cta_group, size, scale
    )
    depth = k // len(codes)
    a_steps = _steps(e, a, operand(m // cta_group, k, kind, a_dtype, "K"), len(codes))
    b_steps = _steps(e, b, operand(n // cta_group, k, kind, b_dtype, "K"), len(codes))
    keep = Value(e, types.boolean, e.builder.not_(first.llvm))
    for step, code in enumerate(codes):
        word = step * depth // (size * TILE_SCALES)
        e.call(
            instruction, d, a_steps[step], b_steps[step], code, sfa + word * SCALE_COLUMNS,
            sfb + word * SCALE_COLUMNS * (n // 128), keep if step == 0 else True,
            cta_group=cta_group, scale_vec=_SCALE_VECTORS[kind, size],
        )  # fmt: skip


@staged(
    lambda taddr, source, rows, words, cta_group: types.none,
    constants=("rows", "words", "cta_group"),
)
def copy_scales(
    e: Emitter, taddr: Any, source: Any, rows: int, words: int, cta_group: int = 1
) -> None:
    """Copy the scale factors of one k-block from shared to tensor memory.

    Executed by one thread; asynchronous, and ordered before its later :func:`block_scaled`. Each
    group of 32 lanes gets its copy, so that every part of the tensor core finds them.

    Args:
        e: given by the compiler.
        taddr: tensor-memory address; ``words * rows / 32`` columns are written.
        source: shared address of tiles of 512 bytes (128 rows by 4 scales, see
            ``nbtc.layout.scale_factors``), all words of the first 128 rows, then the next.
        rows: rows, a multiple of 128.
        words: groups of four scale factors along K.
        cta_group: 1, or 2: each CTA of the pair copies from its own shared memory.
    """
    from nbtc.intrinsics import tcgen05

    start = e.inline(matrix_descriptor_sm100, source, "none", 16, 128)
    for word in range(words):
        for group in range(rows // 128):
            column = SCALE_COLUMNS * (word * (rows // 128) + group)
            tile = e.add64(start, (group * words + word) * TILE_BYTES >> 4)
            e.call(
                tcgen05.cp, taddr + column, tile, shape="32x128b", multicast="warpx4",
                cta_group=cta_group,
            )  # fmt: skip
