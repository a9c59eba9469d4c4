"""Shadow memory: who wrote and who read each byte last.

Every byte has the number of its last write and the number of an interned set of reads since then
(``AccessTable``). Shared memory adds pages of 256 bytes: a page that was written and read as a
whole is one entry, so a tile of 16 KiB costs 64 entries. A page is spelled out byte by byte only
when a part of it is accessed.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.lib.stride_tricks import as_strided

from .clocks import UNINITIALISED, Access, AccessTable, Clock, Conflict, conflict

__all__ = ["PAGE", "ByteShadow", "PagedShadow"]

PAGE = 256
_SHIFT = 8
_MIXED = -1
_MIXED_BYTES = b"\xff\xff\xff\xff"


def _distinct(values: np.ndarray) -> Iterable[int]:
    """Give the different numbers in a part of the shadow; a tuple of one when all are equal."""
    size = values.size
    if size <= 4096:
        raw = values.tobytes()
        first = raw[:4]
        if raw == first * size:
            return (int.from_bytes(first, "little", signed=True),)
    else:
        one = int(values.flat[0])
        if (values == one).all():
            return (one,)
    if size > 1024:
        return np.unique(values).tolist()
    return set(values.ravel().tolist())


class ByteShadow:
    """Shadow of one allocation, byte by byte; arrays are touched lazily by the system."""

    def __init__(self, size: int, table: AccessTable) -> None:
        """Make the shadow of ``size`` bytes that nobody accessed."""
        self.size = size
        self.table = table
        padded = -(-size // PAGE) * PAGE + 2 * PAGE
        self.writer = np.zeros(padded, np.int32)
        self.reader = np.zeros(padded, np.int32)
        self.written = False
        self.was_read = False
        self.poison = False

    # -- what callers use ---------------------------------------------------------------------

    def span(self, low: int, high: int, access: Access, clock: Clock) -> list[Conflict]:
        """Access bytes ``low..high-1``; return earlier accesses that conflict."""
        return self._apply(self.writer[low:high], self.reader[low:high], access, clock)

    def lanes(
        self, addresses: np.ndarray, width: int, access: Access, clock: Clock
    ) -> list[Conflict]:
        """Access ``width`` bytes at each address; return earlier accesses that conflict."""
        count = len(addresses)
        low = int(addresses[0])
        if count == 1:
            return self.span(low, low + width, access, clock)
        high = int(addresses[-1]) + width
        if high - low == count * width and bool((np.diff(addresses) == width).all()):
            return self.span(low, high, access, clock)
        return self._scattered(addresses, width, access, clock)

    def box(
        self, base: int, rows: int, pitch: int, width: int, access: Access, clock: Clock
    ) -> list[Conflict]:
        """Access ``rows`` rows of ``width`` bytes, ``pitch`` bytes apart."""
        if rows == 1 or pitch == width:
            return self.span(base, base + rows * width, access, clock)
        shape, strides = (rows, width), (pitch * 4, 4)
        return self._apply(
            as_strided(self.writer[base:], shape, strides),
            as_strided(self.reader[base:], shape, strides),
            access,
            clock,
        )

    def writers(self, low: int, high: int) -> Iterable[int]:
        """Return the numbers of the last writes to ``low..high-1``."""
        return _distinct(self.writer[low:high])

    def clear(self, low: int, high: int) -> None:
        """Forget everything about ``low..high-1``."""
        self.writer[low:high] = 0
        self.reader[low:high] = 0

    # -- inside -------------------------------------------------------------------------------

    def _scattered(
        self, addresses: np.ndarray, width: int, access: Access, clock: Clock
    ) -> list[Conflict]:
        if width > 1 and not (addresses & (width - 1)).any() and width & (width - 1) == 0:
            index = addresses >> (width.bit_length() - 1)
            writer = self.writer[: self.writer.size // width * width].reshape(-1, width)
            reader = self.reader[: self.reader.size // width * width].reshape(-1, width)
        else:
            index = addresses[:, None] + np.arange(width)
            writer, reader = self.writer, self.reader
        old_writers = writer[index]
        conflicts = self._conflicts(_distinct(old_writers), access, clock)
        if access.write:
            if self.was_read:
                old_readers = reader[index]
                conflicts += self._readers(_distinct(old_readers), access, clock)
                reader[index] = 0
            writer[index] = access.number
            self.written = True
        else:
            self.was_read = True
            old_readers = reader[index]
            self._mark(old_readers, access, clock)
            reader[index] = old_readers
        return conflicts

    def _apply(
        self, writer: np.ndarray, reader: np.ndarray, access: Access, clock: Clock
    ) -> list[Conflict]:
        conflicts: list[Conflict] = []
        if self.written:
            conflicts = self._conflicts(_distinct(writer), access, clock)
        if access.write:
            if self.was_read:
                conflicts += self._readers(_distinct(reader), access, clock)
                reader[...] = 0
            writer[...] = access.number
            self.written = True
        else:
            self.was_read = True
            self._mark(reader, access, clock)
        return conflicts

    def _mark(self, reader: np.ndarray, access: Access, clock: Clock) -> None:
        add, number = self.table.add_reader, access.number
        present = _distinct(reader)
        if isinstance(present, tuple):
            new = add(present[0], number, clock)
            if new != present[0]:
                reader[...] = new
            return
        for old in present:
            new = add(old, number, clock)
            if new != old:
                reader[reader == old] = new

    def _conflicts(self, numbers: Iterable[int], access: Access, clock: Clock) -> list[Conflict]:
        found: list[Conflict] = []
        accesses = self.table.accesses
        for number in numbers:
            if number <= 0:
                if number == 0 and self.poison and (access.reads or not access.write):
                    found.append((accesses[0], UNINITIALISED))
                continue
            old = accesses[number]
            reason = conflict(old, access, clock)
            if reason is not None:
                found.append((old, reason))
        return found

    def _readers(self, sets: Iterable[int], access: Access, clock: Clock) -> list[Conflict]:
        found: list[Conflict] = []
        for number in sets:
            if number > 0:
                members = self.table.sets[number]
                found += self._conflicts(members, access, clock)
        return found


class PagedShadow(ByteShadow):
    """Shadow of shared memory: whole pages are one entry each."""

    def __init__(self, size: int, table: AccessTable) -> None:
        """Make the shadow of ``size`` bytes that nobody accessed."""
        super().__init__(size, table)
        pages = self.writer.size >> _SHIFT
        self.page_writer = np.zeros(pages, np.int32)
        self.page_reader = np.zeros(pages, np.int32)
        self.written = self.was_read = self.poison = True

    def span(self, low: int, high: int, access: Access, clock: Clock) -> list[Conflict]:
        """Access bytes ``low..high-1``; return earlier accesses that conflict."""
        first, last = low >> _SHIFT, (high - 1) >> _SHIFT
        if (low | high) & (PAGE - 1):
            head, tail = first, last
            conflicts: list[Conflict] = []
            if low & (PAGE - 1) or first == last:
                self._split(first)
                end = min(high, (first + 1) << _SHIFT)
                conflicts += self._apply(self.writer[low:end], self.reader[low:end], access, clock)
                head += 1
            if last >= head and high & (PAGE - 1):
                self._split(last)
                start = last << _SHIFT
                conflicts += self._apply(
                    self.writer[start:high], self.reader[start:high], access, clock
                )
                tail -= 1
            if tail >= head:
                conflicts += self._pages(head, tail + 1, access, clock)
            return conflicts
        return self._pages(first, last + 1, access, clock)

    def box(
        self, base: int, rows: int, pitch: int, width: int, access: Access, clock: Clock
    ) -> list[Conflict]:
        """Access ``rows`` rows of ``width`` bytes, ``pitch`` bytes apart."""
        if rows == 1 or pitch == width:
            return self.span(base, base + rows * width, access, clock)
        self._split_range(base, base + (rows - 1) * pitch + width)
        return super().box(base, rows, pitch, width, access, clock)

    def writers(self, low: int, high: int) -> Iterable[int]:
        """Return the numbers of the last writes to ``low..high-1``."""
        found: set[int] = set()
        for page in range(low >> _SHIFT, ((high - 1) >> _SHIFT) + 1):
            number = int(self.page_writer[page])
            if number == _MIXED:
                start, end = max(low, page << _SHIFT), min(high, (page + 1) << _SHIFT)
                found.update(_distinct(self.writer[start:end]))
            else:
                found.add(number)
        return found

    def clear(self, low: int, high: int) -> None:
        """Forget everything about ``low..high-1``."""
        self._split_range(low, high)
        super().clear(low, high)

    def _scattered(
        self, addresses: np.ndarray, width: int, access: Access, clock: Clock
    ) -> list[Conflict]:
        pages = addresses >> _SHIFT
        for which in (pages,) if width == 1 else (pages, (addresses + (width - 1)) >> _SHIFT):
            whole = self.page_writer[which] != _MIXED
            if whole.any():
                for page in set(which[whole].tolist()):
                    self._split(page)
        return super()._scattered(addresses, width, access, clock)

    def _split_range(self, low: int, high: int) -> None:
        for page in range(low >> _SHIFT, ((high - 1) >> _SHIFT) + 1):
            self._split(page)

    def _split(self, page: int) -> None:
        number = int(self.page_writer[page])
        if number == _MIXED:
            return
        start = page << _SHIFT
        self.writer[start : start + PAGE] = number
        self.reader[start : start + PAGE] = self.page_reader[page]
        self.page_writer[page] = _MIXED
        self.page_reader[page] = 0

    def _pages(self, first: int, end: int, access: Access, clock: Clock) -> list[Conflict]:
        writer, reader = self.page_writer[first:end], self.page_reader[first:end]
        conflicts: list[Conflict] = []
        if _MIXED_BYTES in writer.tobytes() and (writer == _MIXED).any():
            mixed = np.flatnonzero(writer == _MIXED)
            for page in (mixed + first).tolist():
                start = page << _SHIFT
                conflicts += self._apply(
                    self.writer[start : start + PAGE],
                    self.reader[start : start + PAGE],
                    access,
                    clock,
                )
            if access.write:
                # Written as a whole: the page is one entry again.
                old = writer[writer != _MIXED]
                if old.size:
                    conflicts += self._conflicts(_distinct(old), access, clock)
                conflicts += self._readers(_distinct(reader), access, clock)
                writer[...] = access.number
                reader[...] = 0
                return conflicts
            whole = writer != _MIXED
            if whole.any():
                conflicts += self._conflicts(_distinct(writer[whole]), access, clock)
                part = reader[whole]
                self._mark(part, access, clock)
                reader[whole] = part
            return conflicts
        return self._apply(writer, reader, access, clock)
