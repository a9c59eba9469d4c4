"""Calls through a register: several targets in one warp, with a guard, nested."""

from __future__ import annotations

import numpy as np
import pytest

from nbtc.emulator import launch

PTX = """
.version 8.8
.target sm_90a
.address_size 64
.func (.param .b32 r) plus(.param .b32 x)
{ .reg .b32 a; ld.param.b32 a, [x]; add.u32 a, a, 100; st.param.b32 [r], a; ret; }
.func (.param .b32 r) twice(.param .b32 x)
{ .reg .b32 a; ld.param.b32 a, [x]; mul.lo.u32 a, a, 2; st.param.b32 [r], a; ret; }
.func (.param .b32 r) both(.param .b32 x)
{ .reg .b32 a, b; .reg .pred p; .reg .b64 f, g;
ld.param.b32 a, [x]; and.b32 b, a, 4; setp.ne.u32 p, b, 0; mov.b64 f, plus; mov.b64 g, twice;
selp.b64 f, f, g, p;
Q: .callprototype (.param .b32 _) _ (.param .b32 _);
{ .param .b32 i; .param .b32 o; st.param.b32 [i], a; call (o), f, (i), Q; ld.param.b32 a, [o]; }
st.param.b32 [r], a; ret; }
.visible .entry k(.param .u64 out) {
.reg .b64 d, f<4>, o; .reg .b32 t, m, v; .reg .pred p<4>;
ld.param.u64 o, [out]; mov.u32 t, %tid.x; mul.wide.u32 d, t, 4; add.u64 o, o, d;
mov.b64 f1, plus; mov.b64 f2, twice; mov.b64 f3, both;
rem.u32 m, t, 3; setp.eq.u32 p1, m, 1; setp.eq.u32 p2, m, 2; setp.lt.u32 p3, t, 60;
selp.b64 f0, f2, f1, p1; selp.b64 f0, f3, f0, p2; mov.u32 v, 7;
P: .callprototype (.param .b32 _) _ (.param .b32 _);
{ .param .b32 i; .param .b32 o1; st.param.b32 [i], t; @p3 call (o1), f0, (i), P;
@p3 ld.param.b32 v, [o1]; }
bar.sync 0;
st.global.u32 [o], v; ret; }
"""


@pytest.mark.parametrize("seed", range(3))
def test_each_lane_calls_its_own_function(seed):
    out = np.zeros(64, np.uint32)
    report = launch(PTX, "k", grid=1, block=64, args=[out], seed=seed)
    assert report.ok, str(report)
    assert not report.warnings, str(report)
    t = np.arange(64)
    nested = np.where(t & 4, t + 100, 2 * t)
    want = np.choose(t % 3, [t + 100, 2 * t, nested])
    np.testing.assert_array_equal(out, np.where(t < 60, want, 7))
