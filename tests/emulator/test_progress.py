"""The line on stderr of a launch that takes over two seconds."""

from __future__ import annotations

import io
import itertools
import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import nbtc
from nbtc.emulator import launch, progress

PTX = """.version 8.8
.target sm_90a
.address_size 64
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.const .align 1 .b8 text[4] = {104, 105, 10, 0};
.visible .entry quiet() { bar.sync 0; ret; }
.visible .entry stuck() {
.shared .align 8 .b64 bar; .reg .b32 r; .reg .pred p;
mov.u32 r, bar; mbarrier.init.shared.b64 [r], 2; bar.sync 0;
L: mbarrier.try_wait.parity.shared.b64 p, [r], 0; @!p bra L; ret; }
.visible .entry talks() {
.reg .b64 d<2>; .reg .b32 r;
mov.u64 d0, text; cvta.const.u64 d0, d0; mov.u64 d1, 0;
{ .param .b64 f; .param .b64 a; .param .b32 q; st.param.b64 [f], d0; st.param.b64 [a], d1;
  call.uni (q), vprintf, (f, a); ld.param.b32 r, [q]; }
ret; }
"""


class Screen(io.StringIO):
    """A terminal of one line, which keeps every line that was drawn."""

    def __init__(self, terminal: bool = True) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    def lines(self) -> list[str]:
        return [part.rstrip() for part in self.getvalue().replace("\n", "\r").split("\r")]

    def left(self) -> str:
        """What is on the line in the end."""
        cells: dict[int, str] = {}
        at = 0
        for character in self.getvalue():
            at = 0 if character == "\r" else at + 1
            if character != "\r":
                cells[at] = character
        return "".join(cells.values()).rstrip()


@pytest.fixture
def clock(monkeypatch):
    """Let half a second pass between two looks at the clock; stderr is a terminal of 80 columns."""
    now = [100.0]

    def tick() -> float:
        now[0] += 0.5
        return now[0]

    monkeypatch.setattr(progress, "monotonic", tick)
    monkeypatch.delenv("NBTC_PROGRESS", raising=False)
    monkeypatch.setattr(progress.shutil, "get_terminal_size", lambda: os.terminal_size((80, 24)))
    return now


def show_on(monkeypatch, stream):
    # pytest replaces sys.stderr between fixture and test, so only the module sees this one.
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=stream))
    return stream


@pytest.fixture
def screen(monkeypatch, clock):
    return show_on(monkeypatch, Screen())


def run(entry: str = "quiet", grid: int = 8, **options):
    return launch(PTX, entry, grid=grid, block=32, args=[], **options)


def test_a_long_launch_shows_ended_ctas_and_seconds(screen):
    run(grid=8)
    drawn = [line for line in screen.lines() if line]
    # The bar looks at the clock when it is made (0 s) and when a CTA ends.
    assert drawn[0] == "quiet [############............]  50% of CTAs, 2 s"
    assert drawn[-1] == "quiet [########################] 100% of CTAs, 4 s"
    assert len(drawn) == 5
    assert "\n" not in screen.getvalue()
    assert screen.left() == ""


def test_a_short_launch_shows_nothing(screen):
    run(grid=3)
    assert screen.getvalue() == ""


def test_a_deadlock_wipes_the_line(screen, monkeypatch):
    monkeypatch.setattr(progress, "DELAY", 0.0)
    # Nothing ends, so that only the scheduler's look at the clock every 64 turns shows it.
    monkeypatch.setattr("nbtc.emulator.scheduler.monotonic", itertools.count().__next__)
    report = run("stuck", grid=100)
    assert [f.kind for f in report.findings] == ["deadlock"]
    assert "stuck [" in screen.getvalue()
    assert screen.left() == ""


@pytest.mark.parametrize("asked", ["0", "no", "false"])
def test_it_is_switched_off(screen, monkeypatch, asked):
    monkeypatch.setenv("NBTC_PROGRESS", asked)
    run(grid=8)
    assert screen.getvalue() == ""


def test_no_terminal_no_line(monkeypatch, clock):
    stream = show_on(monkeypatch, Screen(terminal=False))
    run(grid=8)
    assert stream.getvalue() == ""
    show_on(monkeypatch, None)
    run(grid=8)


def test_forced_without_a_terminal_it_is_plain_lines_now_and_then(monkeypatch, clock):
    stream = show_on(monkeypatch, Screen(terminal=False))
    monkeypatch.setenv("NBTC_PROGRESS", "1")
    run(grid=32)
    assert stream.getvalue() == (
        "quiet: 12% of CTAs, 2 s\nquiet: 44% of CTAs, 7 s\nquiet: 75% of CTAs, 12 s\n"
    )


def test_an_own_function_takes_the_place_of_the_line(screen):
    seen = []
    run(grid=8, progress=seen.append)
    assert seen == pytest.approx([i / 8 for i in range(1, 9)])
    assert screen.getvalue() == ""


def test_a_narrow_terminal_does_not_wrap(screen, monkeypatch):
    monkeypatch.setattr(progress.shutil, "get_terminal_size", lambda: os.terminal_size((20, 24)))
    run(grid=8)
    assert max(len(line) for line in screen.lines()) == 19


def test_prints_of_the_kernel_find_an_empty_line(screen, monkeypatch):
    """Both streams go to one terminal: what the kernel prints must not stick to the bar."""
    monkeypatch.setattr(sys, "stdout", screen)
    run("talks", grid=8)
    text = screen.getvalue()
    assert text.count("hi\n") == 8 * 32
    for before in text.split("hi\n")[:-1]:
        assert not before.split("\r")[-1].strip()


def test_several_launches_share_a_line(screen):
    with progress.several("twice", 2):
        run(grid=8)
        run(grid=8)
        assert screen.left() != ""
    shares = [line.split("] ")[1].split("%")[0].strip() for line in screen.lines() if line]
    assert shares[0] == "25"
    assert shares[-1] == "100"
    assert list(map(int, shares)) == sorted(map(int, shares))
    assert all(line.startswith("twice [") for line in screen.lines() if line)
    assert screen.left() == ""


@nbtc.jit
def mark(out):
    out[0] = 1.0


def test_launches_of_kernels_show_it(screen, monkeypatch):
    monkeypatch.setattr(progress, "DELAY", 0.0)
    monkeypatch.setenv("NBTC_EMULATE", "1")
    out = np.zeros(1, np.float32)
    mark[1, 1](out)
    assert screen.getvalue().count("mark [") == 1
    mark.emulate(1, 1, out)
    assert screen.getvalue().count("mark [") == 2
    assert screen.left() == ""
