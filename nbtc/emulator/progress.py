"""A line on stderr that shows how far an emulated launch has come, once it takes over 2 s.

``NBTC_PROGRESS=0`` turns it off, ``NBTC_PROGRESS=1`` shows it also where stderr is no terminal, as
a plain line every few seconds.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic

DELAY = 2.0
REDRAW = 0.2
PLAIN_PERIOD = 5.0
_CELLS = 24


class Bar:
    """The progress of one launch, or of several in a row, drawn after `DELAY` seconds.

    Args:
        label: what runs.
        launches: launches that the bar covers.
    """

    def __init__(self, label: str, launches: int = 1) -> None:
        self.label, self.launches = label, launches
        self.ended = 0
        self.stream = sys.stderr
        self.terminal = self.stream is not None and self.stream.isatty()
        self.start = monotonic()
        self.due = self.start + DELAY if self._wanted() else float("inf")
        self.drawn = 0

    def _wanted(self) -> bool:
        asked = os.environ.get("NBTC_PROGRESS")
        if self.stream is None or not asked:
            return self.terminal
        return asked not in {"0", "false", "no"}

    def show(self, fraction: float) -> None:
        """Show that ``fraction`` of the running launch's CTAs have ended, if a drawing is due."""
        now = monotonic()
        if now < self.due:
            return
        self.due = now + (REDRAW if self.terminal else PLAIN_PERIOD)
        share = min((self.ended + fraction) / self.launches, 1.0)
        tail = f"{share:4.0%} of CTAs, {now - self.start:.0f} s"
        if not self.terminal:
            print(f"{self.label}: {tail.strip()}", file=self.stream, flush=True)
            return
        filled = round(share * _CELLS)
        tail = f" [{'#' * filled}{'.' * (_CELLS - filled)}] {tail}"
        # A line as wide as the terminal would wrap, and "\r" would not reach its start.
        room = max(shutil.get_terminal_size().columns - 1, 1)
        line = (self.label[: max(room - len(tail), 0)] + tail)[:room]
        self.stream.write("\r" + line.ljust(self.drawn))
        self.stream.flush()
        self.drawn = len(line)

    def wipe(self) -> None:
        """Take the line off the terminal; the next drawing restores it."""
        if self.drawn:
            self.stream.write("\r" + " " * self.drawn + "\r")
            self.stream.flush()
            self.drawn = 0


_shown: ContextVar[Bar | None] = ContextVar("nbtc_progress", default=None)


@contextmanager
def several(label: str, launches: int) -> Iterator[None]:
    """Show one bar for the next ``launches`` launches of the block instead of one for each."""
    bar = Bar(label, launches)
    before = _shown.set(bar)
    try:
        yield
    finally:
        _shown.reset(before)
        bar.wipe()


@contextmanager
def launch(label: str) -> Iterator[Callable[[float], None]]:
    """Give the function that shows the fraction of a launch's grid that has ended."""
    outer = _shown.get()
    if outer is not None:
        yield outer.show
        outer.ended += 1
        return
    bar = Bar(label)
    before = _shown.set(bar)
    try:
        yield bar.show
    finally:
        _shown.reset(before)
        bar.wipe()


def make_way() -> None:
    """Wipe the line before a kernel prints; it comes back with the next drawing."""
    bar = _shown.get()
    if bar is not None:
        bar.wipe()
