"""Launching on a real GPU; every scenario in a process of its own, with a time limit."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

_FILE = Path(__file__).with_name("launch_scenarios.py")
_spec = importlib.util.spec_from_file_location("launch_scenarios", _FILE)
assert _spec is not None
assert _spec.loader is not None
_scenarios = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_scenarios)

LIMIT = 180
"""Seconds for one scenario: import, compile, run."""


@pytest.mark.parametrize("name", _scenarios.SCENARIOS)
def test_scenario(name, capsys):
    paths = [str(_FILE.parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(
        [sys.executable, str(_FILE), name], capture_output=True, text=True, timeout=LIMIT,
        check=False, env=environment,
    )  # fmt: skip
    if done.returncode == 77:
        pytest.skip(done.stdout.strip().splitlines()[-1])
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    if name == "host_overhead":
        with capsys.disabled():
            print(f"\n{done.stdout}")


def test_interleaved_timing_of_real_work():
    """A copy of twice the bytes takes about twice the time, below the peak of the memory."""
    from nbtc import driver, testing
    from nbtc.testing import DeviceArray

    api = driver.api()
    small, large = (1 << 28), (1 << 29)
    source, target = DeviceArray(large, "uint8"), DeviceArray(large, "uint8")

    def copy(nbytes):
        done = api.cuMemcpyDtoDAsync(target.address, source.address, nbytes, 0)
        driver.check(done, "copying")

    result = testing.interleaved({"small": lambda: copy(small), "large": lambda: copy(large)})
    assert 0.4 < result.ratios["large"] < 0.6, str(result)
    assert testing.bandwidth(2 * large, result.medians["large"]) > 500


def test_doctor_launches():
    from nbtc import doctor

    found = {f.subject: f for f in doctor.examine()}
    assert found["launch"].level == "ok", found
