"""The tcgen05.mma unit: D = A * B + D in tensor memory, every kind (PTX ISA 9.7.16.10).

    op = tcgen05.operation(descriptor, "f16", cta_group=1)        # cached; raises UnitFault
    tcgen05.mma(op, [tmem], d, [a_descriptor], [b_descriptor], [(shared, base)], accumulate=True)

Tensor memory is ``uint32[128, 512]`` per CTA; with ``cta_group=2`` every list has the even CTA of
the pair first. A comes from shared memory (matrix descriptors) or from tensor memory (addresses,
``a_in_tmem`` of the operation). Several K-steps with equal modifiers and descriptor fields can be
passed together, except for block-scaled and sparse forms.

`describe_tmem` and `describe_shared` list what an instruction touches, for the checks.

Rounding: as in the wgmma unit; block-scaled products are formed in float64 and rounded once per
instruction. Not modelled (`UnitFault` kind "unmodelled"): K=96, A in tensor memory with 4- or
6-bit types in 8-bit containers, sparse with fewer than 128 rows per CTA or a selector other than
0, ``.ashift``, a column shift in the zero-column mask of ``.ws``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from nbtc.emulator.units import UnitFault, operands
from nbtc.emulator.units import sparse as sparse_a
from nbtc.emulator.units.formats import BITS, decode, table, unpack_padded, unpack_pairs
from nbtc.emulator.units.product import multiply
from nbtc.emulator.units.tmem import Rect, check_rect
from nbtc.emulator.units.wgmma import combine
from nbtc.errors import LayoutError
from nbtc.layout import tensor_memory as tm
from nbtc.layout.instruction_descriptor import BLOCK_SCALED, InstructionDescriptor

_SCALES = {
    ("mxf8f6f4", None): 1, ("mxf8f6f4", "scale_vec::1X"): 1, ("mxf8f6f4", "block32"): 1,
    ("mxf4", None): 2, ("mxf4", "scale_vec::2X"): 2, ("mxf4", "block32"): 2,
    ("mxf4nvf4", "scale_vec::2X"): 2, ("mxf4nvf4", "block32"): 2,
    ("mxf4nvf4", "scale_vec::4X"): 4, ("mxf4nvf4", "block16"): 4,
}  # fmt: skip
_DTYPE = {"f32": np.float32, "s32": np.int32}


@dataclass(frozen=True, eq=False)
class Operation:
    """A decoded tcgen05.mma; get it from `operation`.

    Attributes:
        fields: the instruction descriptor.
        cta_group: 1 or 2.
        ws: the ``.ws`` form.
        a_in_tmem: A is in tensor memory.
        layout: layout letter of D.
        scales: scale factors per row and instruction, 0 without block scaling.
    """

    fields: InstructionDescriptor
    cta_group: int
    ws: bool
    a_in_tmem: bool
    layout: str
    scales: int

    @property
    def rows(self) -> int:
        """Rows of A and D per CTA."""
        return self.fields.m // self.cta_group

    @property
    def b_rows(self) -> int:
        """Columns of B that each CTA holds in its shared memory."""
        return self.fields.n // self.cta_group

    @property
    def stored_k(self) -> int:
        """Elements of A along K as stored."""
        return self.fields.k // 2 if self.fields.sparse else self.fields.k


@lru_cache(maxsize=512)
def operation(
    descriptor: int,
    kind: str,
    *,
    cta_group: int = 1,
    ws: bool = False,
    sparse: bool = False,
    a_in_tmem: bool = False,
    vector: str | None = None,
) -> Operation:
    """Decode an instruction descriptor and check it against its instruction.

    Args:
        descriptor: 32-bit instruction descriptor.
        kind: PTX kind without ``kind::``.
        cta_group: 1 or 2.
        ws: the ``.ws`` form.
        sparse: the ``.sp`` form.
        a_in_tmem: A is a TMEM address.
        vector: "scale_vec::1X", "2X", "4X", "block16", "block32" as written, or None.

    Raises:
        UnitFault: kind "tcgen05-descriptor", "illegal-instruction" or "unmodelled".
    """
    try:
        fields = InstructionDescriptor.decode(descriptor, kind)
        fields.check(cta_group, ws=ws, a_in_tmem=a_in_tmem)
        layout = tm.d_layout(cta_group, fields.m, ws=ws, sparse=fields.sparse)
    except LayoutError as error:
        raise UnitFault("tcgen05-descriptor", str(error)) from None
    if fields.sparse != sparse:
        raise UnitFault(
            "tcgen05-descriptor",
            f"instruction descriptor {descriptor:#010x} has the sparse bit "
            f"{'set' if fields.sparse else 'clear'}, the instruction is "
            f"{'' if sparse else 'not '}.sp",
        )
    scales = 0
    if kind in BLOCK_SCALED:
        if (kind, vector) not in _SCALES:
            raise UnitFault("illegal-instruction", f"kind::{kind} with {vector or 'no scale size'}")
        scales = _SCALES[kind, vector]
        last = max(fields.sfa_id, fields.sfb_id) + scales
        if last > 4:
            raise UnitFault(
                "tcgen05-descriptor",
                f"scale-factor id {last - scales} with {scales} scales per row leaves the word",
            )
    if fields.k96:
        raise UnitFault("unmodelled", f"kind::{kind} with K=96")
    op = Operation(fields, cta_group, ws, a_in_tmem, layout, scales)
    if sparse and (op.rows != 128 or fields.selector):
        raise UnitFault("unmodelled", "sparse tcgen05.mma with other than 128 rows per CTA or "
                        "with a selector")  # fmt: skip
    if a_in_tmem and fields.container_bits == 8 and BITS[fields.a] < 8:
        raise UnitFault("unmodelled", f"A in TMEM with {fields.a} in 8-bit containers")
    return op


# --- places in tensor memory ----------------------------------------------------------------------


def _half_lane(op: Operation, address: int, what: str) -> int:
    """Lane base of an operand: 0, or 16 where only half of every group is used."""
    lane = tm.lane_of(address)
    legal = (0, 16) if op.layout in ("F", "C") else (0,)
    if lane not in legal:
        raise UnitFault(
            "tmem-lane",
            f"tcgen05.mma with {what} at lane {lane}; must be {' or '.join(map(str, legal))} for "
            f"M={op.fields.m}, cta_group::{op.cta_group}",
        )
    return lane


def _d_rects(op: Operation, address: int) -> list[Rect]:
    lane, column = _half_lane(op, address, "D"), tm.column_of(address)
    columns = tm.d_columns(op.layout, op.fields.n)
    if op.layout in ("F", "C"):
        rects = [Rect(lane + 32 * i, 16, column, columns) for i in range(4)]
    else:
        rects = [Rect(0, 128, column, columns)]
    return [check_rect(rect, "D of tcgen05.mma") for rect in rects]


def _a_rects(op: Operation, address: int) -> list[Rect]:
    lane, column = _half_lane(op, address, "A"), tm.column_of(address)
    if op.layout in ("F", "C"):
        rects = [Rect(lane + 32 * i, 16, column, 8) for i in range(4)]
    else:
        rects = [Rect(0, op.rows, column, 8)]
    return [check_rect(rect, "A of tcgen05.mma") for rect in rects]


def _scale_rect(op: Operation, address: int, rows: int, pair: bool) -> Rect:
    columns = -(-(rows // 2 if pair else rows) // 32)
    rect = Rect(0, 128, tm.column_of(address), columns)
    return check_rect(rect, "scale factors of tcgen05.mma")


def describe_tmem(
    op: Operation,
    d: int,
    a: int | None = None,
    sfa: int | None = None,
    sfb: int | None = None,
    metadata: int | None = None,
) -> dict[str, list[Rect]]:
    """Return the TMEM rectangles of each operand, the same in every CTA of the pair.

    Args:
        op: from `operation`.
        d: address of D.
        a: address of A when it is in tensor memory.
        sfa: address of the scale factors of A.
        sfb: address of the scale factors of B.
        metadata: address of the sparse metadata.
    """
    places = {"d": _d_rects(op, d)}
    if op.a_in_tmem and a is not None:
        places["a"] = _a_rects(op, a)
    if sfa is not None:
        places["sfa"] = [_scale_rect(op, sfa, op.rows, False)]
    if sfb is not None:
        places["sfb"] = [_scale_rect(op, sfb, op.fields.n, op.layout == "B")]
    if metadata is not None:
        columns = 1 if BITS[op.fields.a] >= 16 else 2
        rect = Rect(0, 128, tm.column_of(metadata), columns)
        places["metadata"] = [check_rect(rect, "metadata of tcgen05.mma")]
    return places


def _shared_shape(op: Operation, operand: str) -> tuple[int, int, int, str]:
    fields = op.fields
    if operand == "a":
        major = "MN" if fields.transpose_a else "K"
        return op.rows, op.stored_k, fields.container_bits, major
    major = "MN" if fields.transpose_b else "K"
    return op.b_rows, fields.k, fields.container_bits, major


def describe_shared(op: Operation, operand: str, descriptors: Sequence[int]) -> operands.Access:
    """Return the shared memory that operand "a" or "b" reads in each CTA, and its swizzle."""
    rows, k, bits, major = _shared_shape(op, operand)
    _check_majorness(op, descriptors[0], major, operand)
    word = op.fields.a if operand == "a" else op.fields.b
    return operands.describe_access(descriptors, rows, k, bits, major, sm=100, word=word)


def _check_majorness(op: Operation, descriptor: int, major: str, operand: str) -> None:
    atom = operands.swizzle_of(descriptor, 100) == "128B_ATOM_32B"
    wide = op.fields.container_bits == 32
    if (major == "MN" and atom != wide) or (major == "K" and atom):
        raise UnitFault(
            "tcgen05-descriptor",
            f"operand {operand.upper()} is {major}-major {op.fields.a} with layout code "
            f"{descriptor >> 61}; 128B with 32-byte atoms (code 1) is for MN-major 32-bit types, "
            "and only that",
        )


# --- values ---------------------------------------------------------------------------------------


def _values(raw: np.ndarray, word: str, container: int, role: str, padded: bool) -> np.ndarray:
    if container == 4:
        return table(word).take(unpack_pairs(raw))
    if container == 8 and BITS[word] < 8 and padded:
        return table(word).take(unpack_padded(raw, BITS[word]))
    return decode(raw, word, role)


def _from_shared(
    op: Operation, operand: str, descriptors: Sequence[int], shared: np.ndarray, base: int
) -> np.ndarray:
    rows, k, bits, major = _shared_shape(op, operand)
    _check_majorness(op, descriptors[0], major, operand)
    raw = operands.gather(shared, base, descriptors, rows, k, bits, major, sm=100)
    word = op.fields.a if operand == "a" else op.fields.b
    values = _values(raw, word, bits, operand, True)
    return values.T if major == "MN" else values


def _a_from_tmem(op: Operation, tmem: np.ndarray, addresses: Sequence[int]) -> np.ndarray:
    parts = []
    for address in addresses:
        _a_rects(op, address)
        lane, column = _half_lane(op, address, "A"), tm.column_of(address)
        part = tmem[:, column : column + 8]
        if op.layout in ("F", "C"):
            part = part.reshape(4, 32, 8)[:, lane : lane + 16].reshape(64, 8)
        parts.append(part[: op.rows])
    raw = np.ascontiguousarray(np.concatenate(parts, axis=1)).view(np.uint8)
    return _values(raw, op.fields.a, op.fields.container_bits, "a", False)


def _scales(
    op: Operation, tmem: np.ndarray, address: int, rows: int, first: int, pair: bool
) -> np.ndarray:
    """Scale factors (rows, scales) as float64."""
    column = tm.column_of(address)
    row = np.arange(rows)
    copies = []
    for repetition in range(2 if pair else 4):
        if pair:
            lane = tm.scale_lane_m128_pair(row, repetition, rows)
            place = column + tm.scale_column_m128_pair(row, rows)
        else:
            lane, place = tm.scale_lane(row, repetition), column + tm.scale_column(row)
        copies.append(tmem[lane, place])
    words = copies[0]
    if any((copy != words).any() for copy in copies[1:]):
        raise UnitFault(
            "tmem-layout",
            f"scale factors at column {column} differ between the groups of 32 lanes; they must be "
            "repeated in all four (tcgen05.cp.32x128b.warpx4)",
        )
    patterns = words.view(np.uint8).reshape(rows, 4)[:, first : first + op.scales]
    return table(op.fields.scale or "ue8m0").take(patterns).astype(np.float64)


def _positions(op: Operation, tmem: np.ndarray, address: int) -> np.ndarray:
    """Dense k of every stored element of A, (rows, k / 2)."""
    bits = BITS[op.fields.a] if op.fields.container_bits != 8 else 8
    groups = op.fields.k // sparse_a.group_size(bits)
    row, group = np.arange(op.rows)[:, None], np.arange(groups)[None, :]
    bit = tm.metadata_bit(row, group, bits)
    lane = np.broadcast_to(tm.metadata_lane(row, group, bits), bit.shape)
    words = tmem[lane, tm.column_of(address) + bit // 32]
    nibbles = words >> (bit % 32).astype(np.uint32) & np.uint32(15)
    return sparse_a.positions(nibbles, bits)


# --- the product ----------------------------------------------------------------------------------


def _d_pieces(
    op: Operation, tmem: np.ndarray, address: int, product: np.ndarray, lanes: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Pair the words of D with their part of the product and the lanes they lie in."""
    _d_rects(op, address)
    column, n = tm.column_of(address), op.fields.n
    if op.layout in ("F", "C"):
        lane = _half_lane(op, address, "D")
        words = tmem.reshape(4, 32, -1)[:, lane : lane + 16, column : column + n]
        keep = lanes.reshape(4, 32)[:, lane : lane + 16]
        return [(words, product.reshape(4, 16, n), keep)]
    parts = {"B": 2, "E": 2, "G": 4}.get(op.layout, 1)
    height, width = (op.rows, n // parts)
    return [
        (
            tmem[i * height : (i + 1) * height, column : column + width],
            product[:, i * width : (i + 1) * width],
            lanes[i * height : (i + 1) * height],
        )
        for i in range(parts)
    ]


def _accumulate(
    op: Operation, words: np.ndarray, product: np.ndarray, accumulate: bool, shift: int,
    saturate: bool,
) -> np.ndarray:  # fmt: skip
    """Return the new words of D."""
    d = op.fields.d
    if d == "f16":
        old = np.ascontiguousarray(words).view(np.float16)[..., ::2].astype(np.float32)
        new = product + old * np.float32(2.0**-shift) if accumulate else product
        return new.astype(np.float16).view(np.uint16).astype(np.uint32)
    old = words.view(_DTYPE[d])
    if shift and accumulate:
        old = old * np.float32(2.0**-shift)
    elif d == "f32" and accumulate:
        old = old.copy()
    return combine(d, old, product, accumulate=accumulate, satfinite=saturate).view(np.uint32)


def zero_columns(op: Operation, mask: int) -> np.ndarray:
    """Return, as bool[N], the columns that a zero-column mask descriptor forces to zero.

    Each part of N (one for M=128, halves for M=64, quarters for M=32) has spans of skipped and
    used columns in turn; a start count drops columns of the first span.

    Raises:
        UnitFault: kind "unmodelled" for a mask with a column shift.
    """
    n = op.fields.n
    if not mask >> 39 & 1:
        return np.zeros(n, bool)
    if mask >> 56 & 63:
        raise UnitFault("unmodelled", "zero-column mask with a column shift")
    skip, use = (mask >> 40 & 0xFF) + 1, (mask >> 48 & 0xFF) + 1
    parts = {128: 1, 64: 2, 32: 4}[op.fields.m]
    result = []
    for part in range(parts):
        start, zeros_first = mask >> 8 * part & 0xFF, mask >> 32 + part & 1
        column = np.arange(start, start + n // parts) % (skip + use)
        result.append(column < skip if zeros_first else column >= use)
    return np.concatenate(result)


def mma(
    op: Operation,
    tmem: Sequence[np.ndarray],
    d: int,
    a: Sequence[int],
    b: Sequence[int],
    shared: Sequence[tuple[np.ndarray, int]],
    *,
    accumulate: bool,
    scale_d: int = 0,
    disable_lanes: Sequence[int] | None = None,
    sfa: int | None = None,
    sfb: int | None = None,
    metadata: int | None = None,
    zero_mask: int = 0,
) -> None:
    """Carry out tcgen05.mma on tensor memory.

    Args:
        op: from `operation`.
        tmem: uint32[128, 512] of the CTA, or of both CTAs of the pair, even rank first.
        d: TMEM address of D.
        a: matrix descriptors of A, one per K-step, or TMEM addresses (``op.a_in_tmem``).
        b: matrix descriptors of B, one per K-step.
        shared: (bytes, absolute shared address of byte 0) per CTA.
        accumulate: enable-input-d.
        scale_d: D is scaled by 2**-scale_d before the sum.
        disable_lanes: 32-bit words of the lane mask, 4 per CTA; a set bit keeps the lane as it is.
        sfa: TMEM address of the scale factors of A (block-scaled kinds).
        sfb: TMEM address of the scale factors of B.
        metadata: TMEM address of the sparse metadata.
        zero_mask: zero-column mask descriptor of the ``.ws`` form; 0 for none.

    Raises:
        UnitFault: an operand is not valid; see the module docstring.
    """
    fields = op.fields
    if (op.scales or fields.sparse) and len(b) != 1:
        raise ValueError("block-scaled and sparse instructions are carried out one at a time")
    parts = [_from_shared(op, "b", b, data, base) for data, base in shared[:1]]
    for data, base in shared[1:]:
        parts = [parts[0].copy(), _from_shared(op, "b", b, data, base)]
    values_b = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=0)
    if zero_mask >> 39 & 1:
        values_b = np.where(zero_columns(op, zero_mask)[:, None], np.float32(0), values_b)
    words = np.asarray(disable_lanes or [0] * (4 * op.cta_group), np.uint32)
    masks = (words[:, None] >> np.arange(32, dtype=np.uint32) & 1).astype(bool)
    masks = masks.reshape(op.cta_group, 128)
    for index, (memory, (data, base)) in enumerate(zip(tmem, shared, strict=True)):
        if op.a_in_tmem:
            values_a = _a_from_tmem(op, memory, a)
        else:
            values_a = _from_shared(op, "a", a, data, base)
        if fields.sparse:
            if metadata is None:
                raise UnitFault("illegal-instruction", "sparse tcgen05.mma without metadata")
            places = _positions(op, memory, metadata)
            values_a = sparse_a.expand(values_a, places, fields.k)
        with np.errstate(over="ignore", invalid="ignore"):
            product = _product(op, memory, values_a, values_b, sfa, sfb)
            if fields.negate_a != fields.negate_b:
                product = np.negative(product)
            for target, part, off in _d_pieces(op, memory, d, product, masks[index]):
                masked = bool(off.any())
                if fields.d == "f32" and not masked and not scale_d:
                    floats = target.view(np.float32)
                    np.add(floats, part, out=floats) if accumulate else np.copyto(floats, part)
                    continue
                new = _accumulate(op, target, part, accumulate, scale_d, fields.saturate)
                target[...] = np.where(off[..., None], target, new) if masked else new


def _product(
    op: Operation,
    tmem: np.ndarray,
    values_a: np.ndarray,
    values_b: np.ndarray,
    sfa: int | None,
    sfb: int | None,
) -> np.ndarray:
    """Product (rows, N) of one CTA as float32."""
    if not op.scales:
        if op.fields.kind == "i8" and values_a.shape[1] > 256:
            return multiply(values_a.astype(np.float64), values_b.astype(np.float64))
        return multiply(values_a, values_b)
    if sfa is None or sfb is None:
        raise UnitFault("illegal-instruction", f"kind::{op.fields.kind} without scale factors")
    block = op.fields.k // op.scales
    scale_a = _scales(op, tmem, sfa, op.rows, op.fields.sfa_id, False)
    scale_b = _scales(op, tmem, sfb, op.fields.n, op.fields.sfb_id, op.layout == "B")
    scaled_a = values_a * np.repeat(scale_a, block, axis=1)
    scaled_b = values_b * np.repeat(scale_b, block, axis=1)
    return multiply(scaled_a, scaled_b).astype(np.float32)
