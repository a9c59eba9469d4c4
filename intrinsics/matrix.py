"""Warp-wide matrix moves: ldmatrix, stmatrix, movmatrix.

All 32 lanes of a warp execute each function together. A matrix is 8 rows of 16 bytes in shared
memory; lane ``8 * i + row`` gives the address of one row of matrix ``i`` (16-byte aligned), and
the lanes of unused matrices give any address. The registers are the fragments of ``mma.sync``:
register ``i`` of lane ``l`` holds row ``l // 4``, columns ``2 * (l % 4)`` and ``+ 1`` of matrix
``i``. Shared accesses are generic-proxy accesses: a following TMA store or wgmma of the data needs
``fence.proxy_async``.

Not covered: ``m16n16.x4`` and ``m8n8`` of 8-bit elements, which ptxas refuses.
"""

from __future__ import annotations

from typing import Annotated, Literal

from nbtc.arch import TCGEN05
from nbtc.ptx.kinds import U32, U32_KIND, Regs, Shared
from nbtc.ptx.spec import Variant, ptx

LOAD = "9.7.14.5.15 Warp-level matrix load instruction: ldmatrix"
STORE = "9.7.14.5.16 Warp-level matrix store instruction: stmatrix"


def _num(v: Variant) -> int:
    return v.num


def _two_num(v: Variant) -> int:
    return 2 * v.num


Matrices = Annotated[tuple[int, ...], Regs(U32_KIND, _num, note="num")]
WideMatrices = Annotated[tuple[int, ...], Regs(U32_KIND, _two_num, note="2 * num")]
Packed6Or4 = Literal["b6x16_p32", "b4x16_p64"]


@ptx(
    "ldmatrix.sync.aligned.m8n8.x{num}{.trans}.shared::cta.b16 {ret}, [{addr}];",
    isa=(7, 8),
    arch="sm_80",
    effects="memory convergent",
    section=LOAD,
)
def ldmatrix(
    addr: Shared, *, num: Literal[1, 2, 4], trans: Literal[False, True] = False
) -> Matrices:
    """Load 1, 2 or 4 matrices of 8 x 8 16-bit elements from shared memory.

    Args:
        addr: this lane's row: lane ``8 * i + row`` gives row ``row`` of matrix ``i``.
        num: matrices.
        trans: transpose each matrix on the way.

    Returns:
        ``num`` uint32, two elements each: register ``i`` is row ``lane // 4``, columns
        ``2 * (lane % 4) + {0, 1}`` of matrix ``i`` (row and column swapped with ``trans``).
    """
    ...


@ptx(
    "stmatrix.sync.aligned.m8n8.x{num}{.trans}.shared::cta.b16 [{addr}], {regs};",
    isa=(7, 8),
    arch="sm_90",
    effects="memory convergent",
    section=STORE,
)
def stmatrix(
    addr: Shared, regs: Matrices, *, num: Literal[1, 2, 4], trans: Literal[False, True] = False
) -> None:
    """Store 1, 2 or 4 matrices of 8 x 8 16-bit elements to shared memory.

    Args:
        addr: this lane's row: lane ``8 * i + row`` gives row ``row`` of matrix ``i``.
        regs: ``num`` uint32 in the layout of :func:`ldmatrix`; an accumulator of mma or wgmma
            packed to 16 bits has it.
        num: matrices.
        trans: transpose each matrix on the way.
    """
    ...


@ptx(
    "movmatrix.sync.aligned.m8n8.trans.b16 {ret}, {value};",
    isa=(7, 8),
    arch="sm_80",
    effects="volatile convergent",
    section="9.7.14.5.17 Warp-level matrix transpose instruction: movmatrix",
)
def movmatrix(value: U32) -> U32:
    """Transpose an 8 x 8 matrix of 16-bit elements across the registers of a warp.

    Args:
        value: two elements in the layout of :func:`ldmatrix`.
    """
    ...


@ptx(
    "ldmatrix.sync.aligned.m16n16.x{num}.trans.shared::cta.b8 {ret}, [{addr}];",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory convergent",
    section=LOAD,
)
def ldmatrix_m16n16_b8(addr: Shared, *, num: Literal[1, 2]) -> WideMatrices:
    """Load 1 or 2 matrices of 16 x 16 bytes, transposed.

    Args:
        addr: this lane's row of 16 bytes: lanes 0-15 give the rows of matrix 0, 16-31 of matrix 1.
        num: matrices.

    Returns:
        ``2 * num`` uint32, four bytes each.
    """
    ...


@ptx(
    "ldmatrix.sync.aligned.m16n16.x{num}.trans.shared::cta.b8x16.{packing} {ret}, [{addr}];",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory convergent",
    section=LOAD,
)
def ldmatrix_m16n16_unpack(
    addr: Shared, *, num: Literal[1, 2], packing: Packed6Or4
) -> WideMatrices:
    """Load 1 or 2 matrices of 16 x 16 packed 6- or 4-bit elements as bytes, transposed.

    Args:
        addr: this lane's row: 16 elements in 16 bytes, 12 data and 4 pad (6-bit) or 8 data and
            8 pad (4-bit).
        num: matrices.
        packing: format in shared memory.

    Returns:
        ``2 * num`` uint32, one element in each byte.
    """
    ...


@ptx(
    "ldmatrix.sync.aligned.m8n16.x{num}.shared::cta.b8x16.{packing} {ret}, [{addr}];",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory convergent",
    section=LOAD,
)
def ldmatrix_m8n16_unpack(addr: Shared, *, num: Literal[1, 2, 4], packing: Packed6Or4) -> Matrices:
    """Load 1, 2 or 4 matrices of 8 x 16 packed 6- or 4-bit elements as bytes.

    Args:
        addr: this lane's row: 16 elements in 16 bytes, 12 data and 4 pad (6-bit) or 8 data and
            8 pad (4-bit).
        num: matrices.
        packing: format in shared memory.

    Returns:
        ``num`` uint32: register ``i`` is row ``lane // 4``, columns ``4 * (lane % 4) + 0..3`` of
        matrix ``i``, one element in each byte.
    """
    ...


@ptx(
    "stmatrix.sync.aligned.m16n8.x{num}.trans.shared::cta.b8 [{addr}], {regs};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory convergent",
    section=STORE,
)
def stmatrix_m16n8_b8(addr: Shared, regs: Matrices, *, num: Literal[1, 2, 4]) -> None:
    """Store 1, 2 or 4 matrices of 16 x 8 bytes, transposed: 8 rows of 16 bytes each in memory.

    Args:
        addr: this lane's row: lane ``8 * i + column`` gives where column ``column`` of matrix
            ``i`` goes.
        regs: ``num`` uint32, four bytes each: byte ``e`` is row ``lane // 4 + 8 * (e // 2)``,
            column ``2 * (lane % 4) + e % 2``.
        num: matrices.
    """
    ...
