"""The script for a GPU machine: it measures what it says, notices faults, and never hangs."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
import run_gpu
from gpu import carried, common, correctness, libraries, performance, sanitizer, sweep

import nbtc
from nbtc import testing


@pytest.fixture(autouse=True)
def _emulator():
    with testing.emulated(1):
        yield


def product(a, b, out, **options):
    out[...] = (a.astype(np.float64) @ b.astype(np.float64)).astype(out.dtype)
    return out


CASE = correctness.Case(65, 40, 24, "bfloat16", "bfloat16")


def test_correctness_passes_a_right_product(monkeypatch):
    monkeypatch.setattr(nbtc, "matmul", product)
    for out_dtype in ("bfloat16", "float16", "float32"):
        for a in ("K", "MN"):
            case = correctness.Case(65, 40, 24, "float16", out_dtype, a, "K")
            assert 0 < correctness.run_case(libraries.Plain(), case) <= 1


def test_correctness_notices_one_element_off_by_a_rounding_unit(monkeypatch):
    def wrong(a, b, out, **options):
        product(a, b, out)
        out[3, 5] = float(out[3, 5]) * 1.02

    monkeypatch.setattr(nbtc, "matmul", wrong)
    assert correctness.run_case(libraries.Plain(), CASE) > 1


def test_correctness_notices_an_element_that_is_not_written(monkeypatch):
    def wrong(a, b, out, **options):
        product(a, b, out)
        out[-1, -1] = np.nan

    monkeypatch.setattr(nbtc, "matmul", wrong)
    with pytest.raises(AssertionError, match="1 elements are NaN or not written"):
        correctness.run_case(libraries.Plain(), CASE)


def test_correctness_notices_a_store_over_the_edge(monkeypatch):
    def wrong(a, b, out, **options):
        product(a, b, out)
        np.lib.stride_tricks.as_strided(out, (out.shape[0], out.shape[1] + 2), out.strides)[0] = 0
        product(a, b, out)

    monkeypatch.setattr(nbtc, "matmul", wrong)
    with pytest.raises(AssertionError, match="2 elements outside of the output were written"):
        correctness.run_case(libraries.Plain(), CASE)


def test_a_wrong_product_fails_the_section(monkeypatch):
    monkeypatch.setattr(nbtc, "matmul", lambda a, b, out, **options: out.fill(0))
    result = correctness.run(common.Context(libraries.Plain(), 60, smoke=True))
    assert result["status"] == "failed"
    assert len(result["failures"]) == result["run"] == result["cases"]


def test_the_sweep_covers_sizes_types_and_layouts():
    cases = list(correctness.cases(common.Context(libraries.Plain(), 60)))
    sizes = {size for case in cases for size in (case.m, case.n, case.k)}
    assert {min(sizes), max(sizes)} == {1, 4096}
    assert {(c.a_major, c.b_major) for c in cases} == {
        (a, b) for a in ("K", "MN") for b in ("K", "MN")
    }
    kinds = ("bfloat16", "float16")
    assert {(c.dtype, c.out_dtype) for c in cases} >= {
        (i, o) for i in kinds for o in (*kinds, "float32")
    }
    assert {c.config.stages for c in cases if c.config} >= {1, 2, 4, 6}
    assert {c.config.consumers for c in cases if c.config} == {1, 2, 3}
    assert sum(c.config is None for c in cases) > 300


def test_ratio_is_the_speed_relative_to_the_first():
    def sleeper(seconds):
        return lambda: time.sleep(seconds)

    functions = {"slow": sleeper(0.004), "fast": sleeper(0.001)}
    timed = common.hot(functions, [()], flops=1e12, rounds=5, milliseconds=1)
    assert timed["ratio"]["slow"] == 1
    assert 1.2 < timed["ratio"]["fast"] < 5  # sleeps are never short, but may be long
    assert timed["us"]["slow"] >= 4000
    assert timed["tflops"]["slow"] == pytest.approx(1e12 / timed["us"]["slow"] / 1e6, rel=0.1)


def test_performance_notices_a_wrong_product(monkeypatch):
    monkeypatch.setattr(nbtc, "matmul", lambda a, b, out, **options: out.fill(0))
    result = performance.run(common.Context(libraries.Plain(), 60, smoke=True))
    assert result["status"] == "failed"
    assert "relative error" in result["failures"][0]


def test_the_sweep_of_stages_and_consumers_has_every_step():
    found = sweep.configurations("bfloat16")
    possible = {name for name, config in found.items() if not isinstance(config, str)}
    assert {f"128x128x64, {s} stages" for s in range(1, 7)} <= possible
    assert {c.consumers for c in found.values() if not isinstance(c, str)} == {1, 2, 3}
    assert "do not fit" in found["128x256x64, 6 stages"]


def test_a_section_that_hangs_is_ended(monkeypatch, tmp_path):
    monkeypatch.setattr(run_gpu, "START_SECONDS", 0)
    start = time.monotonic()
    result = run_gpu._section("host", 0.2, tmp_path, True)
    assert time.monotonic() - start < 10
    assert result["status"] == "failed"
    assert result["summary"].startswith("stopped after")


def test_a_section_that_fails_is_reported(tmp_path):
    result = run_gpu._section("nosuch", 60, tmp_path, True)
    assert result["status"] == "failed"
    assert "KeyError: 'nosuch'" in result["summary"]


def test_results_of_other_sections_stay(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("NBTC_COMMIT", "new")
    file = tmp_path / "smoke_emulator.json"
    file.write_text(json.dumps({"sections": {"perf": {"status": "ok", "commit": "old"}}}))
    answer = {"status": "ok", "summary": "fine", "seconds": 1.0, "commit": "new"}
    monkeypatch.setattr(run_gpu, "_section", lambda *_: answer)
    monkeypatch.setenv("NBTC_CACHE_DIR", str(tmp_path))
    assert run_gpu.main(["--smoke", "--only", "sanitizer,host", "--output", str(tmp_path)]) == 0
    kept = json.loads(file.read_text())
    assert {name: s["commit"] for name, s in kept["sections"].items()} == {
        "perf": "old", "sanitizer": "new", "host": "new",
    }  # fmt: skip
    assert kept["device"]["ptxas"]
    assert "sanitizer    ok" in capsys.readouterr().out


def test_a_failed_section_gives_an_exit_status(monkeypatch, tmp_path):
    answer = {"status": "failed", "summary": "", "seconds": 1.0}
    monkeypatch.setattr(run_gpu, "_section", lambda *_: answer)
    assert run_gpu.main(["--smoke", "--only", "host", "--output", str(tmp_path)]) == 1
    assert run_gpu.main(["--only", "nosuch"]) == 2


def test_no_time_left_is_not_a_hang(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(run_gpu, "_section", lambda *_: pytest.fail("must not run"))
    assert run_gpu.main(["--smoke", "--budget", "20", "--output", str(tmp_path)]) == 0
    assert "perf: no time left" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "code", "status"),
    [
        ("small: done\n========= ERROR SUMMARY: 0 errors", 0, "clean"),
        ("small: done\n========= RACECHECK SUMMARY: 0 hazards displayed", 0, "clean"),
        ("Invalid __shared__ read\nsmall: done\n========= ERROR SUMMARY: 3 errors", 99, "findings"),
        ("========= ERROR SUMMARY: 1 error", 99, "findings"),
        ("========= Error: Device not supported", 1, "unavailable"),
        ("========= Unable to attach: permission denied", 1, "unavailable"),
    ],
)
def test_the_sanitizer_tells_findings_from_not_running(tmp_path, text, code, status):
    program = tmp_path / "compute-sanitizer"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {code}\n")
    program.chmod(0o755)
    assert sanitizer.check(str(program), "memcheck", 20)["status"] == status


def test_the_sanitizer_does_not_hang(tmp_path, monkeypatch):
    program = tmp_path / "compute-sanitizer"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(sanitizer, "SHORTEST", 0.2)
    assert sanitizer.check(str(program), "memcheck", 0.3)["status"] == "timeout"


@pytest.mark.ptxas
def test_kernels_to_carry_are_saved_with_the_hash_of_their_code(tmp_path, monkeypatch):
    monkeypatch.setattr(carried, "SIZE", carried.SMALL)
    carried.prepare(tmp_path)
    listed = json.loads((tmp_path / "list.json").read_text())
    names = [name for name in listed if name != "ptxas"]
    assert len(names) == 2
    for name in names:
        assert len(listed[name]) == 64
        assert (tmp_path / f"{name}.nbtc").stat().st_size > 10_000
