"""Memory spaces of the emulator: global regions at emulated addresses, shared memory of a CTA."""

from __future__ import annotations

import bisect
import ctypes
from typing import Any

import numpy as np

from .machine import LANES, MemoryFault

GLOBAL_BASE = 0x7F00_0000_0000
_GUARD = 1 << 20


class Region:
    """A range of global memory backed by host bytes, read and written in place.

    Attributes:
        base: emulated address of byte 0; size: bytes; data: uint8[size]; name: for messages;
        writable: False for constants and read-only arrays; views: typed views for gathers;
        initialised: uint8[size] with 1 where defined, or None when all bytes are defined;
        sync: free for the checks (shadow state).
    """

    __slots__ = ("base", "data", "initialised", "keep", "name", "size", "sync", "views", "writable")

    def __init__(
        self, base: int, data: np.ndarray, name: str, writable: bool = True, keep: Any = None
    ) -> None:
        """Wrap ``data`` (uint8, contiguous) at address ``base``."""
        if not writable:
            # Whatever forgets to ask gets an error of NumPy, not somebody's immutable bytes.
            data = data.view()
            data.flags.writeable = False
        self.base, self.data, self.name, self.size = base, data, name, data.size
        self.writable, self.keep = writable, keep
        self.initialised: np.ndarray | None = None
        self.sync: Any = None
        self.views = typed_views(data)


def typed_views(data: np.ndarray) -> dict[int, np.ndarray]:
    """Give unsigned views of a byte array for element sizes 1, 2, 4, 8 (whole elements only)."""
    views = {1: data}
    for width in (2, 4, 8):
        views[width] = data[: data.size // width * width].view(f"u{width}")
    return views


class SharedMemory:
    """Shared memory of one CTA.

    Attributes:
        size: bytes; data, initialised: uint8, padded to a multiple of 16 bytes; initialised is 1
        where written; views: typed views of the first ``size`` bytes of ``data``; static_size:
        bytes before the dynamic part.
    """

    __slots__ = ("data", "init_views", "initialised", "size", "static_size", "sync", "views")

    def __init__(self, size: int, static_size: int = 0) -> None:
        """Allocate ``size`` undefined bytes (filled with a pattern that is NaN in most formats)."""
        padded = (size + 15) // 16 * 16
        self.size, self.static_size = size, static_size
        self.data = np.full(padded, 0xFF, np.uint8)
        self.initialised = np.zeros(padded, np.uint8)
        self.views = typed_views(self.data[:size])
        self.init_views = typed_views(self.initialised[:size])
        self.sync: Any = None

    def read(self, offset: int, size: int) -> np.ndarray:
        """Give a view of ``size`` bytes at ``offset`` (bounds are the caller's duty)."""
        return self.data[offset : offset + size]

    def write(self, offset: int, values: np.ndarray) -> None:
        """Write bytes (uint8 array) at ``offset`` and mark them initialised."""
        self.data[offset : offset + values.size] = values
        self.initialised[offset : offset + values.size] = 1


class GlobalMemory:
    """Global memory: disjoint regions, found by address."""

    def __init__(self) -> None:
        """Start empty."""
        self.regions: list[Region] = []
        self._bases: list[int] = []
        self._next = GLOBAL_BASE
        self._owners: dict[int, int] = {}
        self.last: Region | None = None

    def reserve(self, size: int) -> int:
        """Reserve an address range with guard space around it; returns its base (256-aligned)."""
        base = self._next
        self._next = (base + size + 2 * _GUARD - 1) // _GUARD * _GUARD
        return base

    def add(self, region: Region) -> Region:
        """Insert a region."""
        at = bisect.bisect_left(self._bases, region.base)
        self._bases.insert(at, region.base)
        self.regions.insert(at, region)
        return region

    def allocate(self, data: np.ndarray, name: str, writable: bool = True) -> Region:
        """Place a byte array at a fresh address."""
        return self.add(Region(self.reserve(data.size), data, name, writable))

    def find(self, address: int) -> Region | None:
        """Find the region that contains ``address``."""
        region = self.last
        if region is not None and 0 <= address - region.base < region.size:
            return region
        at = bisect.bisect_right(self._bases, address) - 1
        if at < 0:
            return None
        region = self.regions[at]
        if address - region.base >= region.size:
            return None
        self.last = region
        return region

    def locate(self, address: int, size: int = 1, *, write: bool = False) -> tuple[Region, int]:
        """Find (region, offset) of an address range.

        Raises:
            MemoryFault: no array there, the range leaves it, or it is read-only and ``write``.
        """
        region = self.find(address)
        if region is None:
            raise MemoryFault("out-of-bounds", self.explain(address, size))
        offset = address - region.base
        if offset + size > region.size:
            raise MemoryFault("out-of-bounds", self.explain(address, size))
        if write and not region.writable:
            raise MemoryFault("out-of-bounds", f"write to {region.name}, which is read-only")
        return region, offset

    def explain(self, address: int, size: int) -> str:
        """Say where an address lies relative to the nearest region."""
        if 0 <= address < 0x1000:
            return f"global access of {size} bytes at {address:#x}: null pointer"
        nearest = min(
            self.regions,
            key=lambda r: max(r.base - address, address - (r.base + r.size - 1), 0),
            default=None,
        )
        if nearest is None:
            return f"global access of {size} bytes at {address:#x}: there is no global memory"
        offset = address - nearest.base
        if not -_GUARD <= offset <= nearest.size + _GUARD:
            return f"global access of {size} bytes at {address:#x}: no array is there"
        return (
            f"global access of {size} bytes at byte offset {offset} of {nearest.name}, "
            f"which has {nearest.size} bytes"
        )

    def add_arrays(self, arrays: list[tuple[str, np.ndarray]]) -> list[int]:
        """Place host arrays; overlapping ones share one region. Returns their addresses."""
        spans = []
        for name, array in arrays:
            low, high = byte_bounds(array)
            spans.append((low, high, name, array))
        groups: list[list[int]] = []
        reach = -1
        for i in sorted(range(len(spans)), key=lambda i: spans[i][0]):
            low, high = spans[i][:2]
            if groups and low < reach:
                groups[-1].append(i)
            else:
                groups.append([i])
            reach = max(reach, high)
        addresses = [0] * len(arrays)
        for group in groups:
            low = min(spans[i][0] for i in group)
            high = max(spans[i][1] for i in group)
            owner = owner_of(spans[group[0]][3])
            owner_low = byte_bounds(owner)[0]
            base = self._owners.get(owner_low)
            if base is None:
                base = self.reserve(max(owner.nbytes, high - owner_low, 1))
                self._owners[owner_low] = base
            writable = all(spans[i][3].flags.writeable for i in group)
            names = ", ".join(dict.fromkeys(spans[i][2] for i in group))
            if high > low:
                buffer = (ctypes.c_ubyte * (high - low)).from_address(low)
                data = np.frombuffer(buffer, np.uint8)
                region = Region(
                    base + low - owner_low, data, names, writable, [spans[i][3] for i in group]
                )
                self.add(region)
            for i in group:
                pointer = spans[i][3].__array_interface__["data"][0]
                addresses[i] = base + pointer - owner_low
        return addresses


def byte_bounds(array: np.ndarray) -> tuple[int, int]:
    """Give [low, high) host addresses of the bytes of an array."""
    low = high = array.__array_interface__["data"][0]
    if array.size == 0:
        return low, low
    for n, stride in zip(array.shape, array.strides, strict=True):
        if stride < 0:
            low += (n - 1) * stride
        else:
            high += (n - 1) * stride
    return low, high + array.itemsize


def owner_of(array: np.ndarray) -> np.ndarray:
    """Follow ``.base`` to the array that owns the memory."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


__all__ = [
    "GLOBAL_BASE",
    "LANES",
    "GlobalMemory",
    "Region",
    "SharedMemory",
    "byte_bounds",
    "owner_of",
    "typed_views",
]
