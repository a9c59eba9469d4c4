"""Loops of pure arithmetic that never end, and long ones that do."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_helper import kernel, line_of

from nbtc.emulator import endless, launch

LOOP = """
mov.u32 %r1, 1;
setp.lt.u32 %p2, %warp, 2; @!%p2 bra MEET;
LOOP: mad.lo.u32 %r1, %r1, 3, 2;  // loop
setp.ne.u32 %p1, %r1, LAST; @%p1 bra LOOP;
MEET: bar.sync 0;  // meet
ld.param.u64 %rd1, [out]; mul.wide.u32 %rd2, %thread, 4; add.u64 %rd1, %rd1, %rd2;
st.global.u32 [%rd1], %r1;
"""


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(endless, "_TOGETHER", 20_000)
    monkeypatch.setattr(endless, "_ALONE", 200_000)


def run(last, out, grid=2):
    ptx = kernel(LOOP.replace("LAST", str(last)), params=".param .u64 out")
    return launch(ptx, "k", grid=grid, block=128, args=[out], seed=1)


def test_endless_arithmetic_is_a_livelock():
    report = run(0, np.zeros(128, np.uint32))  # r1 stays odd
    assert [f.kind for f in report.findings] == ["livelock"], str(report)
    found = report.findings[0]
    assert found.line == line_of(LOOP, "loop")
    assert "endless loop at kernel.py:4: CTA 0,0,0 warp" in found.message
    assert "without an access to memory or a barrier" in found.message


def test_an_interrupt_says_where_the_warps_are(capsys):
    def interrupt(_):
        raise KeyboardInterrupt

    ptx = kernel(LOOP.replace("LAST", "0"), params=".param .u64 out")
    with pytest.raises(KeyboardInterrupt):
        launch(ptx, "k", grid=1, block=128, args=[np.zeros(128, np.uint32)], progress=interrupt)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 5, lines
    for warp in (0, 1):
        assert f"    CTA 0,0,0 warp {warp}: kernel.py:{line_of(LOOP, 'loop')}: runs" in lines
    for warp in (2, 3):
        at = f"CTA 0,0,0 warp {warp}: kernel.py:{line_of(LOOP, 'meet')}: waits barrier 0 at"
        assert any(at in line for line in lines), lines


def test_long_loops_that_end_are_no_livelock():
    value, trips = 1, 15_000  # of three instructions, in two warps
    for _ in range(trips):
        value = (value * 3 + 2) % 2**32
    out = np.zeros(128, np.uint32)
    report = run(value, out, grid=1)
    assert report.ok, str(report)
    assert report.instructions > 2 * trips * 3 > endless._TOGETHER
    np.testing.assert_array_equal(out, [value] * 64 + [1] * 64)
