"""The mutants: a deterministic list, and what the emulator says of each."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

from mutations.base import Base
from mutations.rule import Rule, pick
from mutations.rules import EQUIVALENT, RULES
from mutations.rules_blackwell import BLACKWELL_RULES

RUNS = (("random", 0), ("latest", 1), ("earliest", 2))
"""Completion policies and seeds that are tried until there is a finding."""
ALSO = {
    "copy_a": ("bulk_copy", "cp_copy", "peer_write", "async_store", "async_red"),
    "release": ("remote_empty",),
    "expect": ("arrive_full", "remote_full", "cp_arrive"),
}
"""Roles of small kernels that stand for a role of a pipeline."""
SOFT = frozenset(("descriptor_swizzle", "missing_acquire_fence"))
"""Kinds that the emulator reports as advice or warning, never as a finding."""


@dataclass(frozen=True)
class Mutant:
    """A kernel with one fault."""

    base: Base
    rule: Rule

    @property
    def name(self) -> str:
        """Kernel and fault."""
        return f"{self.base.name}: {self.rule.name}"

    @property
    def ptx_lines(self) -> list[int]:
        """Lines of the correct PTX that the fault touches."""
        return [s.line for s in self.rule.sites(self.base)]

    @property
    def python(self) -> tuple[str, int]:
        """Python line of the first touched instruction."""
        site = self.rule.sites(self.base)[0]
        return site.file, site.python

    def ptx(self) -> str:
        """The faulty text."""
        sites = self.rule.sites(self.base)
        return self.base.text.apply(self.rule.edit(self.base, sites))

    def lines(self) -> set[tuple[str, int]]:
        """Python lines that the report may name."""
        named = [r for role in self.rule.lines for r in (role, *ALSO.get(role, ()))]
        roles = [r for r in named if r in self.base.roles]
        return {(s.file, s.python) for r in roles for s in pick(self.base, r)}

    def judge(self) -> Verdict:
        """Run until something is found, and compare with what is expected."""
        text = self.ptx()
        verdict = Verdict(self.base.name, self.rule.name)
        for completion, seed in RUNS:
            report, _ = self.base.run(text, completion=completion, seed=seed)
            verdict = Verdict(self.base.name, self.rule.name, completion=completion, seed=seed)
            verdict.look(report, self.rule.kinds, self.lines())
            if verdict.caught:
                break
        return verdict


@dataclass
class Verdict:
    """What was said of a mutant."""

    base: str
    rule: str
    caught: bool = False
    kind: bool = False
    line: bool = False
    said: list[str] = field(default_factory=list)
    completion: str = ""
    seed: int = 0

    def look(self, report: Any, kinds: frozenset[str], lines: set[tuple[str, int]]) -> None:
        """Read a report; advice counts only for what the report can but advise."""
        found = list(report.findings)
        found += [f for f in report.warnings + report.advice if f.kind in SOFT & kinds]
        self.caught = bool(found)
        right = [f for f in found if f.kind in kinds]
        self.kind = bool(right)
        self.line = any(_places(f) & lines for f in right)
        self.said = [f"{f.kind} at line {f.line}: {f.message[:110]}" for f in found]

    @property
    def right(self) -> bool:
        """Caught with a right kind and a right line."""
        return self.caught and self.kind and self.line


def _places(finding: Any) -> set[tuple[str, int]]:
    """Lines that a finding sends its reader to: a deadlock names every waiter."""
    places = {(finding.file, finding.line)}
    if finding.kind == "deadlock":
        places |= {(r.file, r.line) for r in finding.related if r.label.startswith("wait")}
    return places


def mutants(bases: list[Base], rules: list[Rule]) -> list[Mutant]:
    """Every rule on every kernel that it fits, without the mutants that are still correct."""
    return [
        Mutant(base, rule)
        for base in bases
        for rule in rules
        if rule.fits(base)
        and (not base.rules or rule.name in base.rules)
        and (base.name, rule.name) not in EQUIVALENT
    ]


@functools.cache
def judged(base: Base) -> list[Verdict]:
    """Judge every mutant of a kernel, once."""
    rules = RULES if base.arch == "sm_90a" else BLACKWELL_RULES
    return [mutant.judge() for mutant in mutants([base], rules)]
