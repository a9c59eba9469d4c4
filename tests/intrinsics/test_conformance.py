"""Every variant of every declaration, judged by ptxas at its own lowest version and target."""

from __future__ import annotations

import os

import pytest

from nbtc import tools
from nbtc.ptx import conformance
from nbtc.reference import instructions

pytestmark = pytest.mark.ptxas

FULL = os.environ.get("NBTC_CONFORMANCE") == "full"
LIMIT = None if FULL else 250
ISAS = [(7, i) for i in range(9)] + [(8, i) for i in range(9)] + [(9, i) for i in range(6)]
LOWER_TARGET = {"sm_90": "sm_89", "sm_90a": "sm_90", "sm_100": "sm_90a", "sm_100a": "sm_100"}
# A newer chip takes what needs "sm_X or later"; its own module floor is 8.6.
LATER = {"sm_80": "sm_100a", "sm_89": "sm_100a", "sm_90": "sm_100a", "sm_100": "sm_103a"}

FAMILIES = sorted({name.split(".")[0] for name in instructions()})


def _cases(family: str, limit: int | None) -> list[conformance.Case]:
    return [
        case
        for name, instruction in instructions().items()
        if name.split(".")[0] == family
        for case in conformance.cases(instruction, limit)
    ]


def _refusals(cases: list[conformance.Case], isa: tuple[int, int], target: str) -> list[str]:
    found = conformance.refused([c.text for c in cases], isa, target, tools.find("ptxas").path)
    return [f"{target} PTX {isa[0]}.{isa[1]}: {cases[i]}: {why}" for i, why in found.items()]


def _report(problems: list[str]) -> str:
    return "\n".join([f"{len(problems)} variants:", *problems[:20]])


@pytest.mark.parametrize("family", FAMILIES)
def test_every_variant_assembles_at_its_floor(family: str) -> None:
    problems: list[str] = []
    for isa, target, cases in conformance.by_floor(_cases(family, LIMIT)):
        problems += _refusals(cases, isa, target)
    assert not problems, _report(problems)


@pytest.mark.parametrize("family", FAMILIES)
def test_or_later_holds_on_newer_targets(family: str) -> None:
    groups: dict[tuple[tuple[int, int], str], list[conformance.Case]] = {}
    for case in _cases(family, 60):
        need = case.instruction.arch(case.variant)
        targets = [LATER[need]] if need in LATER else list(need[1:]) if need != case.arch else []
        for target in targets:
            isa = max(case.isa, conformance.FLOORS[target])
            groups.setdefault((isa, target), []).append(case)
    problems = [p for (isa, target), cases in groups.items() for p in _refusals(cases, isa, target)]
    assert not problems, _report(problems)


def _accepted(groups: dict[tuple[tuple[int, int], str], list[conformance.Case]]) -> list[str]:
    found = []
    for (isa, target), cases in groups.items():
        refused = conformance.refused(
            [c.text for c in cases], isa, target, tools.find("ptxas").path
        )
        found += [
            f"{target} PTX {isa[0]}.{isa[1]} takes {c}"
            for i, c in enumerate(cases)
            if i not in refused
        ]
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_one_version_below_is_refused(family: str) -> None:
    groups: dict[tuple[tuple[int, int], str], list[conformance.Case]] = {}
    for case in _cases(family, 40):
        if case.isa > conformance.FLOORS[case.arch]:
            below = ISAS[ISAS.index(case.isa) - 1]
            groups.setdefault((below, case.arch), []).append(case)
    accepted = _accepted(groups)
    assert not accepted, _report(accepted)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_target_below_refuses(family: str) -> None:
    groups: dict[tuple[tuple[int, int], str], list[conformance.Case]] = {}
    for case in _cases(family, 40):
        if case.arch in LOWER_TARGET:
            lower = LOWER_TARGET[case.arch]
            isa = max(case.floor, conformance.FLOORS[lower])
            groups.setdefault((isa, lower), []).append(case)
    accepted = _accepted(groups)
    assert not accepted, _report(accepted)


CANARIES = [
    ("mbarrier.inval.shared::cluster.b64 [%r0];", "Illegal modifier"),
    ("mbarrier.arrive.release.shared::cta.b64 %l0, [%r0];", "scope"),
    ("mbarrier.init.shared::cta.b64 [%r0], %l0;", "mismatch"),
    ("barrier.cluster.wait.relaxed;", "Illegal modifier"),
    ("cp.async.bulk.wait_group %r0;", "mismatch"),
    ("setmaxnreg.inc.sync.aligned.u32 28;", "setmaxnreg"),
    ("cp.async.bulk.prefetch.L2.global [%l0], 24;", "multiple"),
    ("tcgen05.wait::ld.sync.aligned;", "not supported"),
    ("nbtc.no.such.instruction %r0;", "Unknown"),
]


@pytest.mark.parametrize(("text", "why"), CANARIES, ids=[c[0].split()[0] for c in CANARIES])
def test_canaries_are_refused(text: str, why: str) -> None:
    good = "mbarrier.inval.shared::cta.b64 [%r0];"
    found = conformance.refused([good, text, good], (8, 6), "sm_90a", tools.find("ptxas").path)
    assert list(found) == [1]
    assert why.lower() in found[1].lower()


def test_each_family_has_cases() -> None:
    assert {"mbarrier", "tma", "bulk", "fence", "cluster", "sync", "wgmma"} <= set(FAMILIES)
    assert len(_cases("mbarrier", 250)) > 100
