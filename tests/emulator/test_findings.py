"""The table of kinds, the report, and the order of frames."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import nbtc.emulator
from nbtc.emulator.findings import (
    KINDS,
    BarrierInfo,
    Frame,
    Related,
    Report,
    plain_name,
    user_first,
)
from nbtc.errors import FindingsError

PACKAGE = Path(nbtc.emulator.__file__).parent
CALL = re.compile(
    r"(?:finding|fatal|_finding|MemoryFault|UnitFault)\(\s*(?:f?\"[^\"]*\",\s*)?\"([a-z0-9_-]+)\"",
)
ASSIGNED = re.compile(r"\bkind = \"([a-z0-9_]+)\"")


def used_kinds():
    found = set()
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        found |= {kind.replace("-", "_") for kind in CALL.findall(text)}
        if path.name in ("race_report.py", "tensor_memory.py", "sync_mbarrier.py"):
            found |= set(ASSIGNED.findall(text))
    return found


def test_every_kind_in_the_sources_is_in_the_table():
    used = used_kinds() - {"unmodelled"}
    assert len(used) > 40
    assert not {kind for kind in used if kind not in KINDS}


def test_kinds_have_explanations():
    assert all(re.fullmatch(r"[a-z0-9_]+", kind) and len(text) > 10 for kind, text in KINDS.items())


def test_unknown_kind_is_refused():
    with pytest.raises(KeyError, match="no_such_kind"):
        Report().add("finding", "no_such_kind", "text")


def test_user_frame_comes_first():
    chain = (
        Frame("/x/nbtc/device/pipeline.py", 10, "wait"),
        Frame("/home/me/kernel.py", 5, "load"),
        Frame("/home/me/kernel.py", 50, "kernel"),
    )
    assert [frame.line for frame in user_first(chain)] == [5, 10, 50]
    library = (chain[0], Frame("/x/nbtc/device/ring.py", 3, "push"))
    assert [frame.line for frame in user_first(library)] == [3, 10]


def test_names_that_numba_mangled_are_plain():
    for name, plain in (
        ("_ZN4nbtc6device8pipeline4waitB2v2B124cw51cXTLSUwv1E14shared_addressj", "wait"),
        ("_ZN8__main__13bias_relu_putB3v12B8cw51cXTLEf", "bias_relu_put"),
        ("kernel", "kernel"),
        ("_ZN4cuda3std8optionalIiE5valueEv", "_ZN4cuda3std8optionalIiE5valueEv"),
        ("_Z6kernelPf", "_Z6kernelPf"),
        ("", None),
        (None, None),
    ):
        assert plain_name(name) == plain
    item = Frame("/home/me/k.py", 5, "_ZN1k3putB2v1B1aEi")
    assert str(user_first((item,))[0]) == "/home/me/k.py:5 in put"


def test_equal_findings_are_counted_once():
    report = Report()
    place = (Frame("k.py", 3, "k"),)
    for thread in range(4):
        report.add("finding", "race", f"by thread {thread}", chain=place, warp=0)
    report.add("finding", "race", "elsewhere", chain=(Frame("k.py", 4, "k"),))
    assert [(f.line, f.count) for f in report.findings] == [(3, 4), (4, 1)]
    assert "and 3 more like it: other stages, threads or trips of a loop" in str(report)


def test_stages_of_a_ring_that_fail_alike_are_one_finding():
    report = Report()
    place = (Frame("k.py", 3, "k"),)
    for name in ("full[0]", "full[1]", "empty[0]", "full[2]"):
        report.add(
            "finding", "mbarrier_arrivals", f"too many on {name}", chain=place,
            related=(Related("init", "k.py", 1),), barrier=BarrierInfo(name, 0),
        )  # fmt: skip
    report.add(
        "finding", "mbarrier_arrivals", "other init", chain=place,
        related=(Related("init", "k.py", 2),), barrier=BarrierInfo("full[0]", 0),
    )  # fmt: skip
    assert [(f.message, f.count) for f in report.findings] == [
        ("too many on full[0]", 3), ("too many on empty[0]", 1), ("other init", 1),
    ]  # fmt: skip
    with pytest.raises(FindingsError) as error:
        report.raise_for_findings()
    assert str(error.value).count("finding ") == 3


def test_only_findings_fail():
    report = Report()
    report.add("warning", "tmem_dealloc", "freed by another warp", chain=(Frame("k.py", 1),))
    report.add("advice", "descriptor_swizzle", "swizzles differ", chain=(Frame("k.py", 2),))
    assert report.ok
    report.raise_for_findings()
    report.add(
        "finding", "deadlock", "stuck", chain=(Frame("k.py", 3),), cta=(1, 0, 0), warp=2,
        related=(Related("init", "k.py", 9),),
        barrier=BarrierInfo("full[0]", 0x400, 0, 0, 1, 1, 2048, 4096),
    )  # fmt: skip
    assert not report.ok
    with pytest.raises(FindingsError, match=r"k\.py:3: deadlock: stuck \[CTA 1,0,0 warp 2\]"):
        report.raise_for_findings()
    assert report.findings[0].barrier.bytes_missing == 2048
    assert "init: k.py:9" in str(report)


def test_a_wait_that_was_none_comes_before_what_it_leads_to():
    report = Report()
    early = "wait(full[0], parity 1) at k.py:3 returned without a completed phase since init"
    for line, kind, message in (
        (1, "mbarrier_count", "first"),
        (2, "uninitialised_read", "second"),
        (3, "race", "third"),
        (4, "read_in_flight", early),
        (5, "deadlock", "last"),
    ):
        report.add("finding", kind, message, chain=(Frame("k.py", line),))
    assert [f.line for f in report.findings] == [1, 4, 2, 3, 5]
    assert "finding 2: k.py:4" in str(report)


def test_thread_of_a_lane_mask():
    report = Report()
    found = report.add("finding", "race", "x", warp=3, lanes=0b1000)
    assert found.thread == 99
