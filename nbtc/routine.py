"""What ``help`` shows of the callable objects that kernels use."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")


class Routine:
    """Base class of instructions, helpers and staged functions.

    Python's ``help`` takes an object with ``__get__`` for a routine, and so shows its signature
    before its text. As an attribute of a class such an object stays what it is.
    """

    def __get__(self: T, instance: Any, owner: Any = None) -> T:
        return self
