"""Rules: what is changed in the PTX, and what the emulator must say, at which line.

A rule names the role of the instruction it changes, the edit, the kinds of finding that describe
the fault, and the roles whose Python lines a reader of the report may be sent to. A rule makes one
mutant of every kernel that has its roles, unless it is listed for some kernels only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mutations.text import Site, Text, fresh, with_operand

Edits = dict[int, list[str]]
Edit = Callable[[Any, list[Site]], Edits]
"""From the kernel and the sites of the role to the lines that replace others."""


@dataclass(frozen=True)
class Rule:
    """One kind of fault.

    Attributes:
        name: what is done.
        role: role of the changed instruction; ``"role@2"`` is its third site, ``@-1`` the last.
        edit: the change.
        kinds: kinds of finding that describe it.
        lines: roles of the lines that may be named.
        needs: further roles that the kernel must have.
        only: names of kernels, if not all.
        skip: names of kernels where the change is no fault, with the reason.
    """

    name: str
    role: str
    edit: Edit
    kinds: frozenset[str]
    lines: tuple[str, ...]
    needs: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()

    def sites(self, base: Any) -> list[Site]:
        """Sites that the rule changes."""
        return pick(base, self.role)

    def fits(self, base: Any) -> bool:
        """Say whether the kernel has the roles."""
        roles = (self.role, *self.needs)
        if self.only and base.name not in self.only:
            return False
        return base.name not in self.skip and all(r.split("@")[0] in base.roles for r in roles)


def pick(base: Any, role: str) -> list[Site]:
    """Sites of ``role``, or one of them for ``role@index``; several roles are joined by ``|``."""
    if "|" in role:
        return [s for part in role.split("|") for s in pick(base, part)]
    name, _, index = role.partition("@")
    found = base.sites(name)
    return [found[int(index)]] if index else found


# -- edits ------------------------------------------------------------------------------------


def drop(base: Any, sites: list[Site]) -> Edits:
    """Remove the instructions."""
    return {s.line: [] for s in sites}


def passes(base: Any, sites: list[Site]) -> Edits:
    """Let a wait return at once."""
    return {s.line: [f"\tsetp.eq.u32 {s.operands[0]}, 0, 0;"] for s in sites}


def change(index: int, by: str) -> Edit:
    """Change an operand: ``"+16"``, ``"^1"``, ``"=0"``, ``"x+1"``."""

    def edit(base: Any, sites: list[Site]) -> Edits:
        return {s.line: [str(with_operand(s, index, by))] for s in sites}

    return edit


def become(text: str) -> Edit:
    """Replace the instruction; ``{0}``, ``{1}`` are its operands."""

    def edit(base: Any, sites: list[Site]) -> Edits:
        return {s.line: [f"\t{s.guard} {text.format(*s.operands)}"] for s in sites}

    return edit


def double(base: Any, sites: list[Site]) -> Edits:
    """Execute the instructions twice."""
    return {s.line: [str(s), str(s)] for s in sites}


def behind(anchor: str) -> Edit:
    """Move the instructions behind the last site of another role, or its label."""

    def edit(base: Any, sites: list[Site]) -> Edits:
        last = pick(base, anchor)[-1]
        return base.text.moved(sites, last.line)

    return edit


def behind_block(anchor: str) -> Edit:
    """Move the instructions behind the block of the last site of a role: to the next label."""

    def edit(base: Any, sites: list[Site]) -> Edits:
        line = pick(base, anchor)[-1].line
        while not base.text.lines[line - 1].startswith("$L"):
            line += 1
        return base.text.moved(sites, line)

    return edit


def before(anchor: str) -> Edit:
    """Move an instruction up to before the first site of another role."""

    def edit(base: Any, sites: list[Site]) -> Edits:
        where = next(s.line for s in pick(base, anchor) if s.line < sites[0].line)
        return base.text.hoisted(sites[0], where)

    return edit


def wait_after(anchor: str) -> Edit:
    """Let a wait pass, and wait only behind the last site of another role."""

    def edit(base: Any, sites: list[Site]) -> Edits:
        edits = passes(base, sites)
        first, last = sites[0], pick(base, anchor)[-1]
        again = Site(0, first.op, [fresh("pred"), *first.operands[1:]], "", "", 0)
        label = f"$L__again{first.line}"
        text: Text = base.text
        edits[last.line] = [text.lines[last.line - 1], text.loc[first.line], f"{label}:",
                            str(again), f"\t@!{again.operands[0]} bra {label};",
                            text.loc[last.line]]  # fmt: skip
        return edits

    return edit


def everyone(base: Any, sites: list[Site]) -> Edits:
    """Elect all lanes."""
    return {s.line: [f"\tsetp.eq.u32 {s.operands[0].split('|')[1]}, 0, 0;"] for s in sites}


def leave_before(base: Any, sites: list[Site]) -> Edits:
    """Exit in place of the instruction."""
    return {s.line: ["\texit;"] for s in sites}


# -- rules ------------------------------------------------------------------------------------


def kinds(text: str) -> frozenset[str]:
    """A set of kinds, written with blanks."""
    return frozenset(text.split())


READERS = ("read", "mma")
HANG = kinds("deadlock")
EARLY = kinds("read_in_flight uninitialised_read")
REUSE = kinds("overwrite_while_read write_in_flight")
NEIGHBOUR = kinds("deadlock mbarrier_uninitialised out_of_bounds")
SHORT = kinds("mbarrier_tx_mismatch read_in_flight deadlock")
"""Too few bytes: the phase ends early, or the single copy's bytes never match."""
