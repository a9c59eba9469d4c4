"""The mma.sync unit: one warp, all m16n8 and m8n8 shapes, dense and sparse (PTX ISA 9.7.14).

    op = mma_sync.operation(16, 8, 16, "f32", "bf16", "bf16")
    d = mma_sync.mma(op, a, b, c)            # registers uint32 (registers, 32), f64: uint64
    op = mma_sync.operation(16, 8, 32, "f32", "bf16", "bf16", sparse=True)
    d = mma_sync.mma(op, a, b, c, metadata=meta, selector=0)

``a``, ``b``, ``c`` and the result hold registers in operand order, lane last; f64 operands are
uint64. Rounding: f32 products are exact and summed in float32 in an unspecified order; f16
results are rounded once; integers and f64 (up to order) are exact. The bits of sparse metadata
are shown in figures of the ISA only; they are taken to lie as in wgmma, whose warps have the same
fragments, and in the selected lanes alone for the shapes of half that K.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from nbtc.emulator.units import UnitFault
from nbtc.emulator.units import sparse as sparse_a
from nbtc.emulator.units.formats import BITS, decode, unpack_pairs
from nbtc.layout import fragments as fr

_SHAPES = {
    "f16": {(16, 8, 8), (16, 8, 16)}, "bf16": {(16, 8, 8), (16, 8, 16)},
    "tf32": {(16, 8, 4), (16, 8, 8)}, "s8": {(16, 8, 16), (16, 8, 32)},
    "s4": {(16, 8, 32), (16, 8, 64)}, "b1": {(16, 8, 128), (16, 8, 256)},
    "e4m3": {(16, 8, 16), (16, 8, 32)},
    "f64": {(8, 8, 4), (16, 8, 4), (16, 8, 8), (16, 8, 16)},
}  # fmt: skip
_SPARSE_SELECTORS = {  # (family, K): legal selectors
    ("f16", 16): 4, ("f16", 32): 2, ("bf16", 16): 4, ("bf16", 32): 2, ("tf32", 8): 4,
    ("tf32", 16): 2, ("s8", 32): 2, ("s8", 64): 1, ("e4m3", 64): 1, ("s4", 64): 2, ("s4", 128): 1,
}  # fmt: skip
_FAMILY = {"u8": "s8", "u4": "s4", "e5m2": "e4m3"}
_D_TYPES = {
    "f16": ("f32", "f16"), "bf16": ("f32",), "tf32": ("f32",), "s8": ("s32",), "s4": ("s32",),
    "b1": ("s32",), "e4m3": ("f32", "f16"), "f64": ("f64",),
}  # fmt: skip
_BITS = {**BITS, "s4": 4, "u4": 4, "f64": 64}


@dataclass(frozen=True, eq=False)
class Operation:
    """One mma.sync shape and type combination; get it from `operation`."""

    m: int
    n: int
    k: int
    d: str
    a: str
    b: str
    sparse: bool = False

    @property
    def stored_k(self) -> int:
        """Elements along K of A as stored."""
        return self.k // 2 if self.sparse else self.k

    @property
    def bits(self) -> int:
        """Bits of an element of A and B."""
        return _BITS[self.a]

    @property
    def a_registers(self) -> int:
        """Registers of A per lane."""
        return self.m * self.stored_k * self.bits // (64 if self.bits == 64 else 32) // 32

    @property
    def b_registers(self) -> int:
        """Registers of B per lane."""
        return self.n * self.k * self.bits // (64 if self.bits == 64 else 32) // 32

    @property
    def d_registers(self) -> int:
        """Registers of C and D per lane."""
        return self.m * self.n // 32 // (2 if self.d == "f16" else 1)


@cache
def operation(m: int, n: int, k: int, d: str, a: str, b: str, *, sparse: bool = False) -> Operation:
    """Return the operation of a shape and its types; K of a sparse one is that of dense A.

    Raises:
        UnitFault: kind "illegal-instruction".
    """
    family = _FAMILY.get(a, a)
    same = _FAMILY.get(b, b) == family
    if sparse:
        exists = (m, n) == (16, 8) and (family, k) in _SPARSE_SELECTORS
    else:
        exists = (m, n, k) in _SHAPES.get(family, ())
    if not same or not exists or d not in _D_TYPES[family]:
        name = "mma.sp.sync" if sparse else "mma.sync"
        raise UnitFault("illegal-instruction", f"{name} m{m}n{n}k{k} with D {d}, A {a}, B {b}")
    if family in ("f16", "bf16") and a != b:
        raise UnitFault("illegal-instruction", f"mma.sync with A {a} and B {b}; must be equal")
    return Operation(m, n, k, d, a, b, sparse)


@cache
def _a_index(op: Operation) -> tuple[np.ndarray, np.ndarray]:
    """(register, lane) of every 32-bit word of A by (row, word along K)."""
    register, lane = np.meshgrid(np.arange(op.a_registers), np.arange(32), indexing="ij")
    bits = 32 if op.bits == 64 else op.bits
    row = fr.mma_a_row(lane, register)
    if op.m == 8:
        row = lane >> 2
    word = fr.mma_a_col(lane, register, 0, bits) * bits // 32
    return _inverse(row, word, register, lane, op.m)


@cache
def _b_index(op: Operation) -> tuple[np.ndarray, np.ndarray]:
    """(register, lane) of every 32-bit word of B by (column, word along K)."""
    register, lane = np.meshgrid(np.arange(op.b_registers), np.arange(32), indexing="ij")
    bits = 32 if op.bits == 64 else op.bits
    word = fr.mma_b_row(lane, register, 0, bits) * bits // 32
    column = np.broadcast_to(fr.mma_b_col(lane), word.shape)
    return _inverse(column, word, register, lane, op.n)


@cache
def _d_index(op: Operation) -> tuple[np.ndarray, np.ndarray]:
    """(register, lane) of every word of C and D by (row, word along N)."""
    register, lane = np.meshgrid(np.arange(op.d_registers), np.arange(32), indexing="ij")
    if op.d == "f16":
        row, word = fr.mma_f16_row(lane, register), fr.mma_f16_col(lane, 0) // 2
        word = np.broadcast_to(word, row.shape)
    else:
        row, word = fr.mma_row(lane, register), fr.mma_col(lane, register)
    return _inverse(row, word, register, lane, op.m)


def _inverse(
    row: np.ndarray, word: np.ndarray, register: np.ndarray, lane: np.ndarray, rows: int
) -> tuple[np.ndarray, np.ndarray]:
    shape = (rows, row.size // rows)
    where_register, where_lane = np.empty(shape, np.intp), np.empty(shape, np.intp)
    where_register[row, word] = register
    where_lane[row, word] = lane
    return where_register, where_lane


def _values(words: np.ndarray, kind: str) -> np.ndarray:
    """Values (rows, K) of words (rows, words along K)."""
    if kind == "f64":
        return words.view(np.float64)
    raw = words.view(np.uint8)
    if kind in ("s4", "u4"):
        nibbles = unpack_pairs(raw).astype(np.float32)
        return np.where(nibbles > 7, nibbles - 16, nibbles) if kind == "s4" else nibbles
    return decode(raw, kind)


def metadata_positions(op: Operation, metadata: np.ndarray, selector: int) -> np.ndarray:
    """Return the dense k, (16, k / 2), of every stored element of sparse A.

    Args:
        op: sparse operation.
        metadata: uint32[32], one register per lane.
        selector: sparsity selector.

    Raises:
        UnitFault: illegal selector or metadata.
    """
    count = _SPARSE_SELECTORS[_FAMILY.get(op.a, op.a), op.k]
    if not 0 <= selector < count:
        raise UnitFault(
            "illegal-instruction", f"sparsity selector {selector}; must be 0..{count - 1}"
        )
    groups = op.k // sparse_a.group_size(op.bits)
    row, group = np.arange(16)[:, None], np.arange(groups)[None, :]
    lane = 4 * (row % 8)
    if op.bits >= 16:
        lane = lane + selector * (4 // count) + group // 4
        bit = 16 * (row // 8) + 4 * (group % 4)
    else:
        lane = lane + 2 * selector + row // 8 + 2 * (group // 8)
        bit = 4 * (group % 8) + 0 * row
    nibbles = metadata[lane] >> bit.astype(np.uint32) & np.uint32(15)
    return sparse_a.positions(nibbles, op.bits)


def mma(
    op: Operation,
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    *,
    satfinite: bool = False,
    xor: bool = False,
    metadata: np.ndarray | None = None,
    selector: int = 0,
) -> np.ndarray:
    """Return the registers of D = A * B + C.

    Args:
        op: from `operation`.
        a: registers (a_registers, 32), uint32 (f64: uint64).
        b: registers (b_registers, 32).
        c: registers (d_registers, 32).
        satfinite: clamp s32 results.
        xor: single-bit operands combine by xor instead of and.
        metadata: sparse: uint32[32], one register per lane.
        selector: sparse: sparsity selector.
    """
    values_a = _values(np.ascontiguousarray(a[_a_index(op)]), op.a)
    if op.sparse:
        if metadata is None:
            raise UnitFault("illegal-instruction", "sparse mma.sync without metadata")
        places = metadata_positions(op, metadata, selector)
        values_a = sparse_a.expand(values_a, places, op.k)
    values_b = _values(np.ascontiguousarray(b[_b_index(op)]), op.b)
    index = _d_index(op)
    start = np.ascontiguousarray(c[index])
    with np.errstate(over="ignore", invalid="ignore"):
        product = values_a @ values_b.T
        if op.a == "b1" and xor:
            # popc(a ^ b) = popc(a) + popc(b) - 2 popc(a & b)
            ones = values_a.sum(axis=1)[:, None] + values_b.sum(axis=1)[None, :]
            product = ones - 2 * product
        if op.d == "s32":
            total = product.astype(np.int64) + start.view(np.int32)
            if satfinite:
                total = np.clip(total, -(1 << 31), (1 << 31) - 1)
            words = total.astype(np.int32).view(np.uint32)
        elif op.d == "f16":
            words = (product + start.view(np.float16)).astype(np.float16).view(np.uint32)
        elif op.d == "f64":
            words = (product + start.view(np.float64)).view(np.uint64)
        else:
            words = (product + start.view(np.float32)).view(np.uint32)
    result = np.empty(c.shape, c.dtype)
    result[index] = words
    return result
