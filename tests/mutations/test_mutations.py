"""Every mutant is caught with a right kind and a right line, or is listed with the reason."""

from __future__ import annotations

import pytest

from mutations.bases import HOPPER
from mutations.corpus import Verdict, judged, mutants
from mutations.rules import EQUIVALENT, MISSED, RULES


def missed(verdicts: list[Verdict]) -> dict[tuple[str, str], str]:
    return {(v.base, v.rule): "; ".join(v.said) or "nothing found" for v in verdicts if not v.right}


@pytest.mark.parametrize("base", HOPPER, ids=lambda b: b.name)
def test_mutants_are_named(base):
    wrong = missed(judged(base))
    new = {key: said for key, said in wrong.items() if key not in MISSED}
    assert not new, "\n".join(f"{b}: {r}: {said}" for (b, r), said in new.items())
    stale = [k for k in MISSED if k[0] == base.name and k not in wrong]
    assert not stale, f"listed as missed, but named rightly: {stale}"


def test_number_and_share():
    everything = mutants(HOPPER, RULES)
    assert len({m.base.name for m in everything}) >= 10
    assert len(everything) >= 150
    assert len({m.name for m in everything}) == len(everything)
    assert len(MISSED) <= 0.05 * len(everything)


def test_lists_name_existing_mutants():
    named = {b.name for b in HOPPER}
    rules = {r.name for r in RULES}
    for base, rule in [*EQUIVALENT, *MISSED]:
        assert base in named
        assert rule in rules
