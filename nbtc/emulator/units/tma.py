"""The TMA unit: tensor copies between global and shared memory (PTX ISA 9.7.9.27).

A copy is *planned* at issue and *carried out* at completion::

    plan = tma.plan(description, coordinates, shared_address, store=False)
    plan.transaction_bytes  # complete_tx bytes of a load, the whole box
    plan.global_low, plan.global_high  # absolute bytes touched, or (0, 0) if nothing is in bounds
    plan.global_boxes  # [(address, rows, pitch, width)] exact, in bytes
    plan.shared_low, plan.shared_high  # absolute shared bytes touched (hull)
    plan.shared_chunks()  # absolute addresses of the 16-byte chunks touched
    data = plan.read_global(memory, base)  # uint8[], fill applied, box order
    plan.write_shared(data, shared, shared_base)  # swizzled; again per CTA for multicast
    data = plan.read_shared(shared, shared_base)
    plan.write_global(data, memory, base)
    plan.reduce_global(data, memory, base, "add")

``description`` is a `TensorMapDescription`, ``coordinates`` are innermost first, signed;
``memory`` is uint8[] with absolute address ``base``, and must cover ``global_low..global_high``.
`plan`, `plan_gather4` and `plan_im2col` raise `UnitFault` with kind "tma-coordinate" (16-byte
rule of the innermost coordinate, negative store coordinate), "tma-alignment" (128-byte rule of
the shared address) or "tma-descriptor". `swizzle_advice` tells of a tile off its repeat.

Not modelled (kind "unmodelled"): interleaved layouts and the wide im2col modes. TFLOAT32 and the
FTZ types are copied unchanged, without rounding or flushing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from nbtc.emulator.units import UnitFault
from nbtc.emulator.units.reduce import reduce_bytes
from nbtc.layout.swizzle import repeat, span, swizzle
from nbtc.layout.tensormap_description import TensorMapDescription

_NAN = {
    "FLOAT16": 0x7FF7, "BFLOAT16": 0x7FF7, "FLOAT32": 0x7FF77FF7, "FLOAT32_FTZ": 0x7FF77FF7,
    "TFLOAT32": 0x7FF77FF7, "TFLOAT32_FTZ": 0x7FF77FF7, "FLOAT64": 0x7FF77FF77FF77FF7,
}  # fmt: skip
"""Bits of an element out of bounds with the NaN fill: seen on an H200 for float32; the others
repeat its 16-bit pattern."""
_PADDED = {"16U4_ALIGN16B": 8, "16U6_ALIGN16B": 12}  # data bytes of every 16 in shared memory
_REDUCE_TYPES = {
    "UINT8": "u8", "UINT16": "u16", "UINT32": "u32", "INT32": "s32", "UINT64": "u64",
    "INT64": "s64", "FLOAT16": "f16", "FLOAT32": "f32", "FLOAT64": "f64", "BFLOAT16": "bf16",
    "FLOAT32_FTZ": "f32", "TFLOAT32": "f32", "TFLOAT32_FTZ": "f32",
}  # fmt: skip

Block = tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def _linear(rows: int, inner: int, pitch: int, step: int) -> np.ndarray:
    """Offsets of every ``step``-th byte of ``rows`` rows of ``inner`` bytes."""
    return (np.arange(rows)[:, None] * pitch + np.arange(0, inner, step)).reshape(-1)


@lru_cache(maxsize=1024)
def _chunk_index(rows: int, inner: int, pitch: int, mode: str, phase: int) -> np.ndarray | None:
    """Chunk numbers, from the repeat boundary, of a tile; None when it is a plain range."""
    if mode == "none":
        return None
    index = swizzle(phase + _linear(rows, inner, pitch, 16), mode) >> 4
    index.flags.writeable = False
    return index


@lru_cache(maxsize=256)
def _byte_index(rows: int, inner: int, pitch: int, mode: str, phase: int) -> np.ndarray:
    index = swizzle(phase + _linear(rows, inner, pitch, 1), mode)
    index.flags.writeable = False
    return index


class Plan:
    """One planned tensor copy; see the module docstring."""

    def __init__(
        self,
        description: TensorMapDescription,
        blocks: list[Block],
        shape: tuple[int, ...],
        shared_address: int,
    ) -> None:
        """Store the plan.

        Args:
            description: the map.
            blocks: parts that are in bounds: (global address, counts, byte strides, first index
                in the box), outermost dimension first, innermost counted in bytes.
            shape: box in shared memory, outermost first, the innermost in (packed) bytes.
            shared_address: absolute shared address.
        """
        self.description = description
        self.shape = shape
        self.shared_address = shared_address
        self._blocks = blocks
        self.transaction_bytes = prod(shape)
        self._padding = _PADDED.get(description.data_type, 16)
        inner = shape[-1] * 16 // self._padding
        rows = prod(shape[:-1])
        # Rows narrower than the swizzle's span lie a span apart: measured on an H200.
        mode = description.swizzle
        pitch = inner if mode == "none" else max(inner, span(mode))
        self._rows = (rows, inner, pitch)
        self.shared_bytes = (rows - 1) * pitch + inner
        self.global_low = self.global_high = 0
        if blocks:
            self.global_low = min(block[0] for block in blocks)
            self.global_high = max(
                block[0]
                + sum((n - 1) * s for n, s in zip(block[1][:-1], block[2][:-1], strict=True))
                + block[1][-1]
                for block in blocks
            )
        # Only the phase inside the repeat matters for the pattern.
        self._mode = description.swizzle
        size = repeat(self._mode) if self._mode != "none" else 16
        self._phase = shared_address % size
        self._fine = self._mode == "128B_ATOM_32B_FLIP_8B"
        if self._phase and self._mode != "none":
            chunks = self.shared_chunks()
            self.shared_low, self.shared_high = int(chunks.min()), int(chunks.max()) + 16
        else:
            self.shared_low = shared_address
            self.shared_high = shared_address + self.shared_bytes

    @property
    def global_boxes(self) -> list[tuple[int, int, int, int]]:
        """Exact global bytes in bounds as (address, rows, pitch, width) boxes."""
        boxes = []
        for address, counts, strides, _ in self._blocks:
            if len(counts) == 1:
                boxes.append((address, 1, counts[0], counts[0]))
                continue
            *outer, rows, width = counts
            for place in np.ndindex(*outer):
                start = address + sum(i * s for i, s in zip(place, strides, strict=False))
                boxes.append((start, rows, strides[-2], width))
        return boxes

    def shared_chunks(self) -> np.ndarray:
        """Return the absolute addresses of the 16-byte chunks touched, in box order."""
        linear = self.shared_address + _linear(*self._rows, 16)
        return swizzle(linear, self._mode) & ~15

    # -- global side --------------------------------------------------------------------------

    def _views(self, memory: np.ndarray, base: int, staging: np.ndarray) -> list[Any]:
        """Pair the global bytes of each block with their place in the staging box."""
        pairs = []
        for address, counts, strides, first in self._blocks:
            source = np.ndarray(counts, np.uint8, memory, address - base, strides)
            place = tuple(slice(f, f + n) for f, n in zip(first, counts, strict=True))
            pairs.append((source, staging[place]))
        return pairs

    @property
    def _complete(self) -> bool:
        return len(self._blocks) == 1 and self._blocks[0][1] == self.shape

    def read_global(self, memory: np.ndarray, base: int) -> np.ndarray:
        """Return the box as packed bytes in box order, out-of-bounds elements filled."""
        if self._complete:
            staging = np.empty(self.shape, np.uint8)
        else:
            staging = np.zeros(self.shape, np.uint8)
            if self.description.fill == "nan":
                bits = self.description.element_bits
                pattern = _NAN[self.description.data_type]
                staging.view(f"u{bits // 8}")[...] = pattern
        for source, place in self._views(memory, base, staging):
            place[...] = source
        return staging.reshape(-1)

    def write_global(self, data: np.ndarray, memory: np.ndarray, base: int) -> None:
        """Write the box's elements that are in bounds."""
        for target, place in self._views(memory, base, data.reshape(self.shape)):
            target[...] = place

    def reduce_global(self, data: np.ndarray, memory: np.ndarray, base: int, op: str) -> None:
        """Combine the box's elements in bounds with global memory.

        Args:
            data: packed bytes in box order.
            memory: global bytes.
            base: absolute address of ``memory[0]``.
            op: "add", "min", "max", "inc", "dec", "and", "or" or "xor"; the element type is the
                map's.
        """
        kind = _REDUCE_TYPES.get(self.description.data_type)
        if kind is None:
            raise UnitFault(
                "tma-descriptor", f"cp.reduce.async.bulk.tensor with {self.description.data_type}"
            )
        for target, place in self._views(memory, base, data.reshape(self.shape)):
            target[...] = reduce_bytes(target.copy(), np.ascontiguousarray(place), op, kind)

    # -- shared side --------------------------------------------------------------------------

    def _pad(self, data: np.ndarray) -> np.ndarray:
        if self._padding == 16:
            return data
        padded = np.zeros((data.size // self._padding, 16), np.uint8)
        padded[:, : self._padding] = data.reshape(-1, self._padding)
        return padded.reshape(-1)

    def write_shared(self, data: np.ndarray, shared: np.ndarray, shared_base: int) -> None:
        """Write packed bytes in box order into shared memory, swizzled, padded where packed."""
        data = self._pad(data)
        start = self.shared_address - shared_base
        index = _chunk_index(*self._rows, self._mode, self._phase)
        if index is None:
            shared[start : start + data.size] = data
            return
        start -= self._phase
        if self._fine or start % 16 or start < 0:
            shared[_byte_index(*self._rows, self._mode, self._phase) + start] = data
            return
        window = shared[start : start + (shared.size - start) // 16 * 16]
        window.view(np.complex128)[index] = data.view(np.complex128)

    def read_shared(self, shared: np.ndarray, shared_base: int) -> np.ndarray:
        """Return the box from shared memory as packed bytes in box order."""
        start = self.shared_address - shared_base
        index = _chunk_index(*self._rows, self._mode, self._phase)
        if index is None:
            data = shared[start : start + self.shared_bytes].copy()
        else:
            start -= self._phase
            if self._fine or start % 16 or start < 0:
                data = shared[_byte_index(*self._rows, self._mode, self._phase) + start]
            else:
                window = shared[start : start + (shared.size - start) // 16 * 16]
                data = window.view(np.complex128)[index].view(np.uint8)
        if self._padding != 16:
            data = data.reshape(-1, 16)[:, : self._padding].reshape(-1)
        return data

    def spill_advice(self) -> str | None:
        """Say that a store writes behind the rows of the tensor, or return None."""
        d = self.description
        row = d.dims[0] * d.element_bits // 8
        if row % STORE_BYTES == 0 or not any(
            (block[0] - d.address) % (d.strides[0] if d.strides else 1 << 62) + block[1][-1] > row
            for block in self._blocks
        ):
            return None
        return (
            f"a row of the tensor is {row} B ({row % 16} mod 16); a TMA store writes whole 16-byte "
            f"pieces, so {-row % 16} B behind each row are written too: pad the rows, or store "
            "elsewhere and copy"
        )

    def swizzle_advice(self) -> str | None:
        """Say that the tile does not start on the repeat of its swizzle, or return None."""
        if self._mode == "none" or not self._phase:
            return None
        size = repeat(self._mode)
        return (
            f"tile base {self.shared_address:#x} is {self.shared_address % size} mod {size}; "
            f"SWIZZLE_{self._mode} needs {size} (128B: 1024, 64B: 512, 32B: 256)"
        )


def check_shared_address(address: int) -> None:
    """Check the 128-byte rule of a tensor copy's shared address.

    Raises:
        UnitFault: kind "tma-alignment".
    """
    if address % 128:
        raise UnitFault(
            "tma-alignment",
            f"TMA shared address {address:#x} is {address % 128} mod 128; tensor copies need a "
            "multiple of 128: align the buffer and every stage of a ring to 128 bytes",
        )


def check_coordinates(
    description: TensorMapDescription, coordinates: Sequence[int], *, store: bool
) -> None:
    """Check rank, the 16-byte rule of the innermost coordinate, and the sign for stores.

    Raises:
        UnitFault: kind "tma-coordinate" or "tma-descriptor".
    """
    m = description
    if len(coordinates) != m.rank:
        raise UnitFault(
            "tma-descriptor",
            f"tensor copy with {len(coordinates)} coordinates through a map of rank {m.rank}",
        )
    if m.interleave != "none":
        raise UnitFault("unmodelled", f"tensor copy through a map with interleave {m.interleave}")
    first = coordinates[0]
    if m.data_type in _PADDED:
        if first % 128:
            raise UnitFault(
                "tma-coordinate",
                f"TMA coordinate[0]={first} of {m.data_type} must be a multiple of 128",
            )
    elif first * m.element_bits % 128:
        step = 128 // m.element_bits
        raise UnitFault(
            "tma-coordinate",
            f"TMA coordinate[0]={first} -> byte offset {first * m.element_bits / 8:g}, must be a "
            f"multiple of 16 ({step} {m.dtype})",
        )
    if store:
        for dim, value in enumerate(coordinates):
            if value < 0:
                raise UnitFault(
                    "tma-coordinate",
                    f"TMA store coordinate[{dim}]={value} is negative; store coordinates must be "
                    ">= 0",
                )


def _clip(start: int, count: int, step: int, size: int) -> tuple[int, int]:
    """First index and number of the traversal ``start + i * step`` inside ``0..size-1``."""
    first = -(start // step) if start < 0 else 0
    last = (size - 1 - start) // step
    return first, max(min(last, count - 1) - first + 1, 0)


STORE_BYTES = 16
"""A store or a reduction works on whole pieces of this size along the innermost dimension, also
where the tensor ends inside one: measured on an H200, 7 elements behind a row of 777 bfloat16."""


def _block(m: TensorMapDescription, starts: Sequence[int], counts: Sequence[int],
           row: int | None = None, piece: int = 1) -> Block | None:  # fmt: skip
    """Clip one box.

    ``row`` is its place along the last but one axis of a gathered tile, ``piece`` the bytes up to
    whose multiple the innermost dimension is written.
    """
    bits = m.element_bits
    address = m.address
    first_index, sizes, strides = [], [], []
    steps = m.element_strides or (1,) * m.rank
    for dim in range(m.rank):
        step = 1 if dim == 0 else steps[dim] or 1
        first, count = _clip(starts[dim], counts[dim], step, m.dims[dim])
        if count == 0:
            return None
        place = starts[dim] + first * step
        if dim == 0:
            address += place * bits // 8
            first_index.append(first * bits // 8)
            sizes.append(min(-(-count * bits // 8 // piece) * piece, counts[0] * bits // 8))
            strides.append(1)
        else:
            address += place * m.strides[dim - 1]
            first_index.append(first)
            sizes.append(count)
            strides.append(step * m.strides[dim - 1])
    if row is not None:
        first_index[1] = row
    return address, tuple(sizes[::-1]), tuple(strides[::-1]), tuple(first_index[::-1])


def plan(
    description: TensorMapDescription,
    coordinates: Sequence[int],
    shared_address: int,
    *,
    store: bool = False,
) -> Plan:
    """Plan a tiled copy.

    Args:
        description: map in tiled mode.
        coordinates: start of the box, innermost first, signed.
        shared_address: absolute shared address (without the rank bits of a cluster address).
        store: True for stores and reductions, whose coordinates must not be negative.

    Raises:
        UnitFault: see the module docstring.
    """
    if description.mode != "tiled":
        raise UnitFault("tma-descriptor", "a .tile copy through an im2col map")
    check_coordinates(description, coordinates, store=store)
    check_shared_address(shared_address)
    counts = description.box_shape
    piece = STORE_BYTES if store else 1
    block = _block(description, coordinates, counts, piece=piece)
    inner = counts[0] * description.element_bits // 8
    shape = (*counts[:0:-1], inner)
    return Plan(description, [block] if block else [], shape, shared_address)


def plan_im2col(
    description: TensorMapDescription,
    coordinates: Sequence[int],
    offsets: Sequence[int],
    shared_address: int,
    *,
    store: bool = False,
) -> Plan:
    """Plan an im2col copy; see `nbtc.emulator.units.im2col.plan_im2col`."""
    from nbtc.emulator.units import im2col

    return im2col.plan_im2col(description, coordinates, offsets, shared_address, store=store)


def plan_gather4(
    description: TensorMapDescription,
    coordinates: Sequence[int],
    shared_address: int,
    *,
    store: bool = False,
) -> Plan:
    """Plan a ``.tile::gather4`` load or a ``.tile::scatter4`` store.

    Args:
        description: two-dimensional map whose box has one row.
        coordinates: (column, row0, row1, row2, row3).
        shared_address: absolute shared address.
        store: True for scatter4.

    Raises:
        UnitFault: see the module docstring.
    """
    name = "scatter4" if store else "gather4"
    if description.rank != 2 or description.mode != "tiled" or description.box[1] != 1:
        raise UnitFault(
            "tma-descriptor",
            f".tile::{name} needs a tiled map of rank 2 with a box of one row; got {description!r}",
        )
    if len(coordinates) != 5:
        raise UnitFault("tma-descriptor", f".tile::{name} takes 5 coordinates, one column, 4 rows")
    blocks = []
    counts = (description.box[0], 1)
    for row, y in enumerate(coordinates[1:]):
        check_coordinates(description, (coordinates[0], y), store=store)
        block = _block(description, (coordinates[0], y), counts, row)
        if block:
            blocks.append(block)
    check_shared_address(shared_address)
    inner = description.box[0] * description.element_bits // 8
    return Plan(description, blocks, (4, inner), shared_address)
