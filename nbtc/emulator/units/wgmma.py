"""The wgmma unit: D = A * B + D for one warpgroup (PTX ISA 9.7.15).

Accumulators are kept as matrices between instructions: float32, float16 or int32 of shape
(64, N). `fragment_to_matrix` and `matrix_to_fragment` convert to registers, uint32 of shape
(registers, 128), thread last.

    op = wgmma.operation("f32", "bf16", "bf16", 256)          # cached; raises UnitFault if illegal
    d = wgmma.mma(op, d, [a_descriptor], [b_descriptor], shared, base, accumulate=True)
    d = wgmma.mma(op, d, a_registers, [b_descriptor], shared, base, accumulate=False)
    wgmma.describe_access(op, "b", [b_descriptor])            # bytes read, swizzle, for the checks

Several K-steps whose descriptors differ only in the start, with equal modifiers, can be passed
together: the second is then accumulated onto the first, which saves most of the time.

Rounding: f32 products are exact and summed in float32 in an unspecified order (BLAS), so results
agree with the exact sum within ``(K + 1) * 2**-24 * sum(|a * b|)``. f16 accumulators are rounded
once per call. Integers are exact. Hardware's own order and its fewer bits for 8-bit floats are
not modelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from nbtc.emulator.units import UnitFault, operands
from nbtc.emulator.units import sparse as sparse_a
from nbtc.emulator.units.formats import BITS, decode
from nbtc.emulator.units.product import multiply

_K = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32, "b1": 256}
_FP8 = ("e4m3", "e5m2")
_INT8 = ("s8", "u8")
_D_DTYPE = {"f32": np.float32, "f16": np.float16, "s32": np.int32}


@dataclass(frozen=True, eq=False)
class Operation:
    """One wgmma shape and type combination; get it from `operation`.

    Attributes:
        d: "f32", "f16" or "s32".
        a: PTX type of A.
        b: PTX type of B.
        n: columns of D.
        k: elements along K of one instruction (sparse: of the dense matrix).
        sparse: A is stored 2:4 (or 1:2 for tf32).
    """

    d: str
    a: str
    b: str
    n: int
    k: int
    sparse: bool

    @property
    def dtype(self) -> np.dtype:
        """Dtype of the accumulator matrix."""
        return np.dtype(_D_DTYPE[self.d])

    @property
    def d_registers(self) -> int:
        """Accumulator registers per thread."""
        return self.n // 4 if self.d == "f16" else self.n // 2

    def zeros(self) -> np.ndarray:
        """Return a zero accumulator matrix."""
        return np.zeros((64, self.n), self.dtype)


@cache
def operation(d: str, a: str, b: str, n: int, *, sparse: bool = False) -> Operation:
    """Return the operation of a wgmma type combination.

    Raises:
        UnitFault: kind "illegal-instruction".
    """
    legal = {
        "f16": ("f32", "f16"), "bf16": ("f32",), "tf32": ("f32",), "e4m3": ("f32", "f16"),
        "e5m2": ("f32", "f16"), "s8": ("s32",), "u8": ("s32",), "b1": ("s32",),
    }  # fmt: skip
    family = next((f for f in (_FP8, _INT8) if a in f), (a,))
    if d not in legal.get(a, ()) or b not in family or (sparse and a == "b1"):
        raise UnitFault(
            "illegal-instruction", f"wgmma with D {d}, A {a}, B {b}{' sparse' if sparse else ''}"
        )
    whole = a in _INT8 or a == "b1"
    if n % 8 or not 8 <= n <= 256 or (whole and n > 32 and n % 16):
        rule = "a multiple of 8, 8..256"
        if whole:
            rule = "8, 16, 24, 32, then a multiple of 16 up to 256"
        raise UnitFault("illegal-instruction", f"wgmma N={n}: must be {rule}")
    return Operation(d, a, b, n, _K[a] * (2 if sparse else 1), sparse)


# --- registers ------------------------------------------------------------------------------------


def fragment_to_matrix(op: Operation, registers: np.ndarray) -> np.ndarray:
    """Return the accumulator matrix (64, N) of registers uint32[d_registers, 128]."""
    groups = op.n // 8
    if op.d == "f16":
        view = np.ascontiguousarray(registers).view(np.float16).reshape(groups, 2, 4, 8, 4, 2)
        return view.transpose(2, 1, 3, 0, 4, 5).reshape(64, op.n)
    view = np.ascontiguousarray(registers).view(op.dtype).reshape(groups, 2, 2, 4, 8, 4)
    return view.transpose(3, 1, 4, 0, 5, 2).reshape(64, op.n)


def matrix_to_fragment(op: Operation, matrix: np.ndarray) -> np.ndarray:
    """Return the registers uint32[d_registers, 128] of an accumulator matrix (64, N)."""
    view = matrix.reshape(4, 2, 8, op.n // 8, 4, 2)
    if op.d == "f16":
        halves = np.ascontiguousarray(view.transpose(3, 1, 0, 2, 4, 5))
        return halves.view(np.uint32).reshape(op.d_registers, 128)
    words = np.ascontiguousarray(view.transpose(3, 1, 5, 0, 2, 4))
    return words.view(np.uint32).reshape(op.d_registers, 128)


def a_fragment_to_bytes(registers: np.ndarray) -> np.ndarray:
    """Return the stored rows of A, uint8 (64, 32) in memory order, of registers uint32[4, 128].

    One map serves all element widths: a register holds 4 bytes of one row.
    """
    view = np.ascontiguousarray(registers).view(np.uint8).reshape(2, 2, 4, 8, 4, 4)
    return np.ascontiguousarray(view.transpose(2, 1, 3, 0, 4, 5)).reshape(64, 32)


# --- sparse A -------------------------------------------------------------------------------------


def metadata_positions(op: Operation, metadata: np.ndarray, selector: int) -> np.ndarray:
    """Return the dense k of every stored element of A.

    Args:
        op: sparse operation.
        metadata: uint32[128], one register per thread.
        selector: sparsity selector of the instruction.

    Returns:
        Integer array (64, k / 2).
    """
    bits = BITS[op.a]
    words = metadata.reshape(4, 8, 4).astype(np.uint32)  # warp, row group, thread of four
    if bits >= 16:
        if selector not in (0, 1):
            raise UnitFault("illegal-instruction", f"sparsity selector {selector}; must be 0 or 1")
        pair = words[:, :, 2 * selector : 2 * selector + 2]
        halves = np.stack([pair & 0xFFFF, pair >> 16], axis=1)  # warp, row half, group, q
        nibbles = np.stack([halves >> (4 * i) & 15 for i in range(4)], axis=-1)
        nibbles = nibbles.reshape(64, 8)
    else:
        if selector != 0:
            raise UnitFault("illegal-instruction", f"sparsity selector {selector}; must be 0")
        quad = words.reshape(4, 8, 2, 2).transpose(0, 3, 1, 2)  # warp, row half, group, k half
        nibbles = np.stack([quad >> (4 * i) & 15 for i in range(8)], axis=-1).reshape(64, 16)
    return sparse_a.positions(nibbles, bits)


# --- the product ----------------------------------------------------------------------------------


def describe_access(
    op: Operation, operand: str, descriptors: Sequence[int], *, transpose: bool = False
) -> operands.Access:
    """Return the shared memory that operand "a" or "b" reads, and its swizzle."""
    kind = op.a if operand == "a" else op.b
    rows = 64 if operand == "a" else op.n
    k = op.k // 2 if operand == "a" and op.sparse else op.k
    major = "MN" if transpose else "K"
    return operands.describe_access(descriptors, rows, k, BITS[kind], major, sm=90, word=kind)


def _operand(op: Operation, role: str, descriptors: Sequence[int], shared: np.ndarray,
             base: int, transpose: bool) -> np.ndarray:  # fmt: skip
    """Return the values (rows, steps * k) of an operand in shared memory."""
    kind = op.a if role == "a" else op.b
    rows = 64 if role == "a" else op.n
    k = op.k // 2 if role == "a" and op.sparse else op.k
    if transpose and kind not in ("f16", "bf16"):
        raise UnitFault(
            "illegal-instruction", f"wgmma {kind} operand {role.upper()} must be K-major"
        )
    major = "MN" if transpose else "K"
    raw = operands.gather(shared, base, descriptors, rows, k, BITS[kind], major, sm=90)
    values = decode(raw, kind, role)
    return values.T if transpose else values


def mma(
    op: Operation,
    accumulator: np.ndarray | None,
    a: Sequence[int] | np.ndarray,
    b: Sequence[int],
    shared: np.ndarray,
    shared_base: int,
    *,
    accumulate: bool,
    negate_a: bool = False,
    negate_b: bool = False,
    transpose_a: bool = False,
    transpose_b: bool = False,
    satfinite: bool = False,
    metadata: np.ndarray | None = None,
    selector: int = 0,
) -> np.ndarray:
    """Return D = A * B (+ D).

    Args:
        op: from `operation`.
        accumulator: matrix (64, N), updated in place when accumulating; may be None otherwise.
        a: descriptors of A, one per K-step, or its registers uint32[4, 128] (one K-step).
        b: descriptors of B, one per K-step.
        shared: uint8 shared memory of the CTA.
        shared_base: absolute shared address of its byte 0.
        accumulate: scale-d: False ignores the accumulator.
        negate_a: imm-scale-a is -1.
        negate_b: imm-scale-b is -1.
        transpose_a: A is MN-major (16-bit types in shared memory only).
        transpose_b: B is MN-major (16-bit types only).
        satfinite: clamp s32 results instead of wrapping.
        metadata: sparse: uint32[128] (one K-step).
        selector: sparse: sparsity selector.

    Raises:
        UnitFault: illegal form, invalid descriptor, or a tile outside shared memory.
    """
    if isinstance(a, np.ndarray):
        values_a = decode(a_fragment_to_bytes(a), op.a, "a")
    else:
        values_a = _operand(op, "a", a, shared, shared_base, transpose_a)
    if op.sparse:
        if metadata is None:
            raise UnitFault("illegal-instruction", "sparse wgmma without metadata")
        positions = metadata_positions(op, metadata, selector)
        values_a = sparse_a.expand(values_a, positions, op.k)
    values_b = _operand(op, "b", b, shared, shared_base, transpose_b)
    with np.errstate(over="ignore", invalid="ignore"):
        if op.d == "s32" and op.a != "b1" and values_a.shape[1] > 256:
            # Beyond 8 steps a sum of products of bytes may leave float32's integers.
            product = multiply(values_a.astype(np.float64), values_b.astype(np.float64))
        else:
            product = multiply(values_a, values_b)
        return combine(op.d, accumulator, product, accumulate=accumulate,
                       negate=negate_a != negate_b, satfinite=satfinite)  # fmt: skip


def combine(
    d: str,
    accumulator: np.ndarray | None,
    product: np.ndarray,
    *,
    accumulate: bool,
    negate: bool = False,
    satfinite: bool = False,
) -> np.ndarray:
    """Add a float32 product to an accumulator of type f32, f16 or s32; in place where it can."""
    if d == "f32":
        if not accumulate or accumulator is None:
            return np.negative(product, out=product) if negate else product
        return (np.subtract if negate else np.add)(accumulator, product, out=accumulator)
    if negate:
        product = -product
    if d == "f16":
        if accumulate and accumulator is not None:
            product = product + accumulator
        return product.astype(np.float16)
    total = product.astype(np.int64)
    if accumulate and accumulator is not None:
        total += accumulator
    if satfinite:
        np.clip(total, -(1 << 31), (1 << 31) - 1, out=total)
    return total.astype(np.int32)
