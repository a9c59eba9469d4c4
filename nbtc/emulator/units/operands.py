"""MMA operands in shared memory: gather a tile through matrix descriptors.

The place of every 16-byte chunk depends on the descriptor only through its fields without the
start address and the start modulo 1024, so the index maps are cached and a tile of any stage is
one ``take``. Several descriptors with equal fields (the K-steps of one tile) are gathered at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from nbtc.emulator.units import UnitFault
from nbtc.errors import LayoutError
from nbtc.layout.matrix_descriptor import MatrixDescriptor

_START = 0x3FFF
_WRAP = 1 << 18
_REPEAT = 1024


@lru_cache(maxsize=4096)
def _fields(rest: int, sm: int) -> MatrixDescriptor:
    """Decode a descriptor whose start field is cleared."""
    try:
        return MatrixDescriptor.decode(rest, sm)
    except LayoutError as error:
        kind = "wgmma-descriptor" if sm == 90 else "tcgen05-descriptor"
        raise UnitFault(kind, str(error)) from None


def fields(descriptor: int, sm: int) -> MatrixDescriptor:
    """Decode a descriptor for wgmma (90) or tcgen05 (100).

    Raises:
        UnitFault: kind "wgmma-descriptor" or "tcgen05-descriptor".
    """
    found = _fields(descriptor & ~_START, sm)
    start = (descriptor & _START) << 4
    return MatrixDescriptor(
        start, found.leading, found.stride, found.swizzle, found.base_offset, sm,
        found.absolute_leading,
    )  # fmt: skip


def swizzle_of(descriptor: int, sm: int) -> str:
    """Return the swizzle of a descriptor; errors as in `fields`."""
    return _fields(descriptor & ~_START, sm).swizzle


@dataclass(frozen=True)
class IndexMap:
    """Chunk numbers of a tile relative to a 1024-byte boundary, and their byte hull."""

    chunks: np.ndarray
    low: int
    high: int
    overlaps: bool


@lru_cache(maxsize=4096)
def _index(rest: int, sm: int, starts: tuple[int, ...], mn: int, k: int, bits: int,
           major: str) -> IndexMap:  # fmt: skip
    found = _fields(rest, sm)
    if found.absolute_leading:
        raise UnitFault("unmodelled", "matrix descriptor with an absolute leading address")
    parts = []
    for start in starts:
        at = MatrixDescriptor(start, found.leading, found.stride, found.swizzle,
                              found.base_offset, sm)  # fmt: skip
        per = 128 // bits
        if major == "K":
            rows, columns = np.arange(mn)[:, None], np.arange(0, k, per)[None, :]
            parts.append(at.address(rows, columns, bits, "K"))
        else:
            rows, columns = np.arange(0, mn, per)[None, :], np.arange(k)[:, None]
            parts.append(at.address(rows, columns, bits, "MN"))
    address = np.concatenate(parts, axis=1 if major == "K" else 0)
    chunks = np.ascontiguousarray(address >> 4)
    chunks.flags.writeable = False
    return IndexMap(
        chunks, int(address.min()), int(address.max()) + 16, np.unique(chunks).size < chunks.size
    )


@dataclass(frozen=True)
class Access:
    """Shared memory that an operand reads, for the checks.

    Attributes:
        low: first absolute shared address (modulo 2**18) of the hull.
        high: end of the hull.
        swizzle: swizzle of the descriptor.
        start: start address of the first descriptor.
        base: 1024-byte boundary that ``chunks`` counts from.
        chunks: chunk numbers of 16 bytes relative to ``base``.
        leading: leading dimension byte offset.
        stride: stride dimension byte offset.
        major: "K" or "MN".
        bits: bits per element.
        word: element type in PTX's words.
        overlaps: some chunk is read twice.
    """

    low: int
    high: int
    swizzle: str
    start: int
    base: int
    chunks: np.ndarray
    leading: int
    stride: int
    major: str
    bits: int
    word: str
    overlaps: bool

    def chunk_addresses(self) -> np.ndarray:
        """Return the absolute addresses of the 16-byte chunks read, each once."""
        return np.unique(self.chunks) * 16 + self.base


def _locate(descriptors: Sequence[int], mn: int, k: int, bits: int, major: str,
            sm: int) -> tuple[IndexMap, int, int]:  # fmt: skip
    first = descriptors[0]
    rest = first & ~_START
    base = ((first & _START) << 4) & ~(_REPEAT - 1)
    if len(descriptors) == 1:
        starts: tuple[int, ...] = (((first & _START) << 4) - base,)
    else:
        starts = tuple([(((d & _START) << 4) - base) % _WRAP for d in descriptors])
        if any(d & ~_START != rest for d in descriptors):
            raise ValueError("descriptors of one gather must differ in their start only")
    return _index(rest, sm, starts, mn, k, bits, major), base, rest


def describe_access(
    descriptors: Sequence[int], mn: int, k: int, bits: int, major: str, *, sm: int, word: str = ""
) -> Access:
    """Return what a gather would read; see `gather` for the arguments, ``word`` is the type."""
    index, base, rest = _locate(descriptors, mn, k, bits, major, sm)
    start = (descriptors[0] & _START) << 4
    found = _fields(rest, sm)
    return Access(base + index.low, base + index.high, found.swizzle, start, base, index.chunks,
                  found.leading, found.stride, major, bits, word, index.overlaps)  # fmt: skip


def gather(
    shared: np.ndarray,
    shared_base: int,
    descriptors: Sequence[int],
    mn: int,
    k: int,
    bits: int,
    major: str,
    *,
    sm: int,
) -> np.ndarray:
    """Read an operand tile.

    Args:
        shared: uint8 shared memory of the CTA, a multiple of 16 bytes long.
        shared_base: absolute address of its byte 0, rank bits cleared.
        descriptors: one per K-step, equal but for the start address.
        mn: rows of A or columns of B.
        k: elements along K of one step.
        bits: bits per element in shared memory (4- and 6-bit types in 8-bit containers: 8).
        major: "K" or "MN".
        sm: 90 (wgmma) or 100 (tcgen05).

    Returns:
        uint8 array (mn, steps * k * bits / 8) for K-major, (steps * k, mn * bits / 8) for MN.

    Raises:
        UnitFault: a descriptor is not valid, or the tile leaves the CTA's shared memory.
    """
    index, base, _ = _locate(descriptors, mn, k, bits, major, sm)
    offset = (base - shared_base) % _WRAP
    if offset + index.low >= _WRAP:
        offset -= _WRAP  # the boundary lies below the first byte of the CTA's memory
    if offset + index.low < 0 or offset + index.high > shared.size:
        raise UnitFault(
            "out-of-bounds",
            f"matrix descriptor {descriptors[0]:#018x} reads shared addresses "
            f"{base + index.low:#x}..{base + index.high - 1:#x}; the CTA has "
            f"{shared_base:#x}..{shared_base + shared.size - 1:#x}",
        )
    if offset & 15:
        places = (index.chunks * 16 + offset)[..., None] + np.arange(16)
        raw = shared[places]
        return raw.reshape(raw.shape[0], -1)
    if offset < 0:
        chunks = index.chunks + (offset >> 4)
        return shared.view(np.complex128).take(chunks).view(np.uint8)
    return shared[offset:].view(np.complex128).take(index.chunks).view(np.uint8)
