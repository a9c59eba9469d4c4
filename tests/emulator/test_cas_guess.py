"""The first guess of a compare-and-swap loop is a plain load: advice; other plain loads race."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_helper import kernel

from nbtc.emulator import launch

LOOP = """
ld.param.u64 %rd1, [out]; add.s64 %rd2, %rd1, 4;
ld.global.u32 %r1, [{place}];  // guess
mov.u32 %r2, %r1;
TRY: add.u32 %r3, %r2, 3;
atom.global.relaxed.gpu.cas.b32 %r4, [%rd1], %r2, %r3;
setp.ne.u32 %p1, %r4, %r2; mov.u32 %r2, %r4; @%p1 bra TRY;
atom.global.relaxed.gpu.add.u32 %r5, [%rd2], 1;
{use}
"""


@pytest.mark.parametrize("seed", range(3))
def test_guess(seed):
    out = np.zeros(2, np.uint32)
    ptx = kernel(LOOP.format(place="%rd1", use=""), params=".param .u64 out")
    report = launch(ptx, "k", grid=3, block=64, args=[out], seed=seed)
    assert report.ok, str(report)
    assert {f.kind for f in report.advice} == {"race"}
    assert "atom.cas compares with" in report.advice[0].message
    assert out.tolist() == [3 * 192, 192]


def test_load_that_no_swap_compares():
    ptx = kernel(LOOP.format(place="%rd1", use="ld.global.u32 %r6, [%rd2];"),
                 params=".param .u64 out")  # fmt: skip
    report = launch(ptx, "k", grid=3, block=64, args=[np.zeros(2, np.uint32)])
    assert {f.kind for f in report.findings} == {"race"}
    assert {f.line for f in report.findings} <= {8, 9}
