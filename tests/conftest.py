"""What holds for all tests: a kernel cache of their own, the emulator is chosen by each test.

And ptxas must have been there.
"""

from __future__ import annotations

import os
import shutil
import tempfile

import pytest


def pytest_configure(config):
    """Keep compiled kernels of this run apart; workers of pytest-xdist share the folder."""
    if "NBTC_CACHE_DIR" not in os.environ:
        config.nbtc_cache = tempfile.mkdtemp(prefix="nbtc-tests-")
        os.environ["NBTC_CACHE_DIR"] = config.nbtc_cache


def pytest_unconfigure(config):
    """Remove the folder where it was made."""
    folder = getattr(config, "nbtc_cache", None)
    if folder is not None:
        del os.environ["NBTC_CACHE_DIR"]
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def _no_choice_from_outside(monkeypatch):
    """The environment of whoever runs the tests chooses neither emulator nor seed."""
    for name in ("NBTC_EMULATE", "NBTC_SEED"):
        monkeypatch.delenv(name, raising=False)


_ONE_BYTE = tuple(bytes([value]) for value in range(256))


@pytest.fixture(autouse=True)
def _constants_of_the_interpreter():
    """No test changes the one-byte objects that all of Python shares.

    A C function that fills ``b" " * size`` overwrites ``b" "`` itself where the size is 1, as NVRTC
    did with its empty log: from then on ``print`` writes NUL for each space.
    """
    before = b"".join(_ONE_BYTE)
    yield
    assert b"".join(_ONE_BYTE) == before, "the test wrote into an immutable bytes object"


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
