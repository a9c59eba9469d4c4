"""Every mutant is caught with a right kind and a right line, or is listed with the reason."""

from __future__ import annotations

import pytest

from mutations.bases import ALL, BLACKWELL, HOPPER
from mutations.corpus import BLACKWELL_RULES, Verdict, judged, mutants
from mutations.rules import EQUIVALENT, MISSED, RULES


def missed(verdicts: list[Verdict]) -> dict[tuple[str, str], str]:
    return {(v.base, v.rule): "; ".join(v.said) or "nothing" for v in verdicts if not v.right}


SLOW = ("gemm-s1", "gemm-s2", "gemm-c12", "gemm-w3", "bw-pair")
"""Kernels like others of the list."""


@pytest.mark.parametrize(
    "base",
    [pytest.param(b, marks=[pytest.mark.slow] if b.name in SLOW else []) for b in ALL],
    ids=lambda b: b.name,
)
def test_mutants_are_named(base):
    wrong = missed(judged(base))
    new = {key: said for key, said in wrong.items() if key not in MISSED}
    assert not new, "\n".join(f"{b}: {r}: {said}" for (b, r), said in new.items())
    stale = [k for k in MISSED if k[0] == base.name and k not in wrong]
    assert not stale, f"listed as missed, but named rightly: {stale}"


@pytest.mark.parametrize(
    ("bases", "rules", "number", "kernels"),
    [(HOPPER, RULES, 150, 10), (BLACKWELL, BLACKWELL_RULES, 80, 4)],
    ids=["hopper", "blackwell"],
)
def test_number_and_share(bases, rules, number, kernels):
    everything = mutants(bases, rules)
    assert len({m.base.name for m in everything}) >= kernels
    assert len(everything) >= number
    assert len({m.name for m in everything}) == len(everything)
    unnamed = [m for m in everything if (m.base.name, m.rule.name) in MISSED]
    assert len(unnamed) <= 0.05 * len(everything)


def test_lists_name_existing_mutants():
    named = {b.name for b in ALL}
    rules = {r.name for r in (*RULES, *BLACKWELL_RULES)}
    for base, rule in (*EQUIVALENT, *MISSED):
        assert base in named
        assert rule in rules
