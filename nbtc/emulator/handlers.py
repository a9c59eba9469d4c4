"""Handlers: the functions that execute what the engine does not, by opcode; see `machine`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .program import Instruction


class HandlerEntry:
    """A registered handler with its flags."""

    __slots__ = ("always", "check", "function", "touches")

    def __init__(
        self, function: Callable, check: Callable | None, always: bool, touches: bool
    ) -> None:
        """Store the function and flags."""
        self.function, self.check, self.always, self.touches = function, check, always, touches


_HANDLERS: dict[str, HandlerEntry] = {}


def handler(
    *names: str,
    check: Callable[[Instruction], None] | None = None,
    always: bool = False,
    touches: bool = True,
) -> Callable[[Callable], Callable]:
    """Register a handler for opcodes that start with one of the dotted ``names``.

    Args:
        *names: dotted prefixes, for example ``"mbarrier.arrive"``.
        check: called once per instruction when its function is first compiled; parse modifiers
            into ``ins.info`` and call ``ins.unmodelled(...)`` for forms that are not modelled.
        always: call the handler even if the guard leaves no active lane.
        touches: report reads and writes of watched registers to `Hooks.touch` (False for
            wgmma instructions that may name registers in flight).
    """

    def register(function: Callable) -> Callable:
        for name in names:
            _HANDLERS[name] = HandlerEntry(function, check, always, touches)
        return function

    return register


def find_handler(ins: Instruction) -> HandlerEntry | None:
    """Find the handler of an instruction by its longest registered dotted prefix."""
    for end in range(len(ins.parts), 0, -1):
        entry = _HANDLERS.get(".".join(ins.parts[:end]))
        if entry is not None:
            return entry
    return None
