"""What holds for all tests: the emulator is chosen by each test, and ptxas must have been there."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_choice_from_outside(monkeypatch):
    """The environment of whoever runs the tests chooses neither emulator nor seed."""
    for name in ("NBTC_EMULATE", "NBTC_SEED"):
        monkeypatch.delenv(name, raising=False)


def pytest_sessionfinish(session):
    """Fail a run that selected tests of ptxas and ran none of them."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or session.exitstatus != pytest.ExitCode.OK:
        return
    marked = {
        outcome: [r.nodeid for r in reporter.stats.get(outcome, ()) if "ptxas" in r.keywords]
        for outcome in ("passed", "skipped")
    }
    if marked["skipped"] and not marked["passed"]:
        reporter.write_line(f"all {len(marked['skipped'])} tests of ptxas were skipped", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
