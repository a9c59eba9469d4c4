"""Warps that store the same value to the same place in no order: advice; other values: a race."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_helper import kernel

from nbtc.emulator import launch


def run(value: str, width: str = "u32", space: str = "shared"):
    place = "[data]" if space == "shared" else "[%rd1]"
    body = f"""
ld.param.u64 %rd1, [out];
mov.u32 %r1, {value}; cvt.u16.u32 %rs1, %r1; cvt.u64.u32 %rd2, %r1;
st.{space}.{width} {place}, {dict(u8="%rs1", u16="%rs1", u32="%r1", u64="%rd2")[width]};
"""
    ptx = kernel(body, shared=".shared .align 8 .b8 data[8];", params=".param .u64 out")
    return launch(ptx, "k", grid=1, block=128, args=[np.zeros(8, np.uint8)])


@pytest.mark.parametrize("space", ["shared", "global"])
@pytest.mark.parametrize("width", ["u8", "u16", "u32", "u64"])
def test_same_value(width, space):
    report = run("7", width, space)
    assert report.ok, str(report)
    assert [f.kind for f in report.advice] == ["race"]
    assert "same value" in report.advice[0].message


@pytest.mark.parametrize("space", ["shared", "global"])
@pytest.mark.parametrize("width", ["u8", "u16", "u32", "u64"])
def test_other_values(width, space):
    report = run("%warp", width, space)
    assert {f.kind for f in report.findings} == {"race"}


@pytest.mark.parametrize(("value", "same"), [("%lane", True), ("%warp", False)])
def test_matrix_stores(value, same):
    body = f"""
mov.u32 %r2, data; and.b32 %r3, %lane, 7; mad.lo.u32 %r2, %r3, 16, %r2; mov.u32 %r1, {value};
stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r2], {{%r1}};
"""
    ptx = kernel(body, shared=".shared .align 16 .b8 data[128];")
    report = launch(ptx, "k", grid=1, block=128, args=[])
    assert {f.kind for f in report.findings} == (set() if same else {"race"}), str(report)
    assert [f.kind for f in report.advice] == (["race"] if same else [])


@pytest.mark.parametrize(("step", "kind"), [("0f33000000", "warnings"), ("0f3F000000", "findings")])
def test_sums_that_differ_in_rounding(step, kind):
    """Two to the minus 25 or a half, by the number of the warp, on top of a quarter."""
    body = f"""
cvt.rn.f32.u32 %f1, %warp; fma.rn.f32 %f2, %f1, {step}, 0f3E800000; mov.b32 %r1, %f2;
st.shared.b32 [data], %r1;
"""
    report = launch(kernel(body, shared=".shared .align 4 .b8 data[4];"), "k", grid=1, block=128,
                    args=[])  # fmt: skip
    assert {f.kind for f in getattr(report, kind)} == {"race"}, str(report)
    assert report.ok == (kind == "warnings")


def test_numbers_that_are_integers_race():
    body = "add.u32 %r1, %warp, 7; st.shared.u32 [data], %r1;"
    report = launch(kernel(body, shared=".shared .align 4 .b8 data[4];"), "k", grid=1, block=128,
                    args=[])  # fmt: skip
    assert {f.kind for f in report.findings} == {"race"}
