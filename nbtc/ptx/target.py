"""The target that is being compiled for, as instructions see it while they are typed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_current: ContextVar[str | None] = ContextVar("nbtc_target", default=None)


def current() -> str | None:
    """Return the target name (``"sm_90a"``), or None outside a compilation by nbtc."""
    return _current.get()


@contextmanager
def compiling_for(arch: str) -> Iterator[None]:
    """Make ``arch`` the current target inside the block."""
    token = _current.set(arch)
    try:
        yield
    finally:
        _current.reset(token)
