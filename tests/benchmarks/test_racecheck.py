"""The racy kernels for racecheck: the emulator's verdicts, and how the tool's are read."""

from __future__ import annotations

import sys

import pytest
from gpu import racecheck
from gpu.agreement_races import SAMPLES, case_of

ORDER = {"race", "read_in_flight", "overwrite_while_read", "missing_proxy_fence"}
"""What a kernel here may be found guilty of: nothing else is wrong with any."""

TOOL = """#!{python}
import pathlib, sys, time
sys.path[:0] = {path!r}
from gpu.agreement_races import SAMPLES
if "--version" in sys.argv:
    print("Version 1.2.3")
    sys.exit()
printed = 0 if "--print-limit" in sys.argv else 99
for path in sys.argv[sys.argv.index("kernels") + 1:]:
    name = pathlib.Path(path).stem
    if name == {hangs!r}:
        time.sleep(60)
    if SAMPLES[name].expected and name not in {silent!r} and printed < 100:
        print("========= Error: Potential RAW hazard detected at __shared__ 0x3 in block (0,0,0) :")
        print(f"=========     Write Thread (0,0,0) at race_{{name}}+0x2f0")
        printed += 1
    print("ran", name)
print("========= RACECHECK SUMMARY")
"""


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """Return a function that replaces compute-sanitizer by a script with known answers."""

    def make(silent=(), hangs=""):
        program = tmp_path / "compute-sanitizer"
        text = TOOL.format(python=sys.executable, path=sys.path, silent=list(silent), hangs=hangs)
        program.write_text(text)
        program.chmod(0o755)
        monkeypatch.setattr("gpu.sanitizer.find", lambda: str(program))
        names = ("write_sync_read", "no_sync_before_read", "two_writers", "neighbour_no_sync",
                 "tensor_load_wait", "tensor_load_no_wait")  # fmt: skip
        chosen = {name: SAMPLES[name] for name in names}
        monkeypatch.setattr("gpu.agreement_races.SAMPLES", chosen)
        monkeypatch.setattr(racecheck, "SAMPLES", chosen)

    return make


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_emulator_finds_the_races_and_no_others(name, seed):
    kinds = {finding.kind for finding in case_of(name, SAMPLES[name]).report(seed)[0].findings}
    assert bool(kinds) == SAMPLES[name].reported
    assert kinds <= ORDER


def test_the_sample_is_mostly_inside_what_racecheck_sees():
    inside = [s for s in SAMPLES.values() if not s.outside and not s.missed]
    assert sum(s.racy for s in inside) >= 15
    assert sum(not s.racy for s in inside) >= 10
    assert all(s.expected == s.racy for s in inside)


def test_all_as_expected(tool, tmp_path):
    tool()
    found = racecheck.compare(60, tmp_path / "out")
    assert found["status"] == "ok"
    assert found["unexpected"] == []
    assert found["version"] == "Version 1.2.3"
    assert found["default_limit"] == {
        "ran": 2, "reported": ["no_sync_before_read"], "messages": 1
    }  # fmt: skip
    assert found["summary"] == (
        "inside racecheck's domain: 3 of 3 agree (2 racy, 1 correct); "
        "outside: 1 of 1 racy reported by the emulator alone, 1 of 1 correct by neither; "
        "outside the emulator's: 1 of 1 reported by racecheck alone"
    )
    kernel = found["kernels"]["no_sync_before_read"]
    assert kernel == {
        "racy": True, "emulator": ["race"], "racecheck": True, "expected": True, "agree": True,
        "messages": 1,
    }  # fmt: skip
    assert "Potential RAW hazard" in (tmp_path / "out" / "two_writers.txt").read_text()


def test_a_silent_tool_is_a_disagreement(tool, tmp_path):
    tool(silent=["two_writers"])
    found = racecheck.compare(60, tmp_path / "out")
    assert found["status"] == "failed"
    assert found["unexpected"] == ["two_writers: racecheck is silent, expected otherwise"]
    assert found["summary"].startswith("inside racecheck's domain: 2 of 3 agree")
    assert "ran two_writers" in found["kernels"]["two_writers"]["text"]


def test_a_kernel_that_hangs_costs_only_itself(tool, tmp_path, monkeypatch):
    monkeypatch.setattr(racecheck, "KERNEL_SECONDS", 3.0)
    tool(hangs="write_sync_read")
    found = racecheck.compare(60, tmp_path / "out")
    assert found["unexpected"] == ["write_sync_read: racecheck did not run, expected otherwise"]
    assert found["kernels"]["no_sync_before_read"]["racecheck"] is True


def test_racecheck_is_read_by_kernel():
    text = (
        "========= Error: Race reported between Write access at race_copy_no_wait+0x40 and\n"
        "=========     Read access at race_copy_no_wait+0x90 [128 hazards]\n"
        "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n"
    )
    found = racecheck.reported(text, ["copy_no_wait", "copy", "two_writers"])
    assert found == {"copy_no_wait": True, "copy": False, "two_writers": False}
