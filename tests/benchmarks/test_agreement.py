"""The comparison of GPU and emulator: it covers what it says, and notices what differs."""

from __future__ import annotations

import dataclasses
import itertools

import ml_dtypes
import numpy as np
import pytest
from gpu import (
    agreement,
    agreement_kernels,
    agreement_tma,
    agreement_warp,
    agreement_wgmma,
)
from gpu.agreement_case import Tolerance


def raw(array):
    array = np.ascontiguousarray(array)
    return array.view(np.uint8).reshape(*array.shape, array.itemsize)


def test_equal_bits_are_equal_also_where_they_are_nan():
    values = np.array([1.0, np.nan], np.float32)
    for tolerance in (None, Tolerance("float32", 0.1)):
        assert agreement.compare(raw(values), raw(values), tolerance)["state"] == "equal"


def test_a_difference_of_one_bit_is_named():
    want = np.zeros((4, 8), np.uint16)
    got = want.copy()
    got[2, 5] = 0x0102
    found = agreement.compare(raw(got), raw(want), None)
    assert found["state"] == "mismatch"
    assert found["detail"].startswith("1 of 32 elements differ, first (2, 5): GPU 0x0102, emulator")


@pytest.mark.parametrize(("off", "state"), [(0.009, "within"), (0.02, "mismatch")])
def test_tolerance_is_absolute_and_relative(off, state):
    want = np.array([1.0, 100.0, np.nan], np.float32)
    got = want + np.array([off, 0, 0], np.float32)
    assert agreement.compare(raw(got), raw(want), Tolerance("float32", 0.01))["state"] == state
    got = want + np.array([0, 100 * off, 0], np.float32)
    tolerance = Tolerance("float32", 0, 0.01)
    assert agreement.compare(raw(got), raw(want), tolerance)["state"] == state


def test_a_nan_on_one_side_is_a_mismatch():
    want = np.array([1.0, 2.0], ml_dtypes.bfloat16)
    got = np.array([1.0, np.nan], ml_dtypes.bfloat16)
    tolerance = Tolerance("bfloat16", 1e9)
    assert agreement.compare(raw(got), raw(want), tolerance)["state"] == "mismatch"
    assert agreement.compare(raw(want), raw(got), tolerance)["state"] == "mismatch"


def test_wgmma_has_every_type_majorness_and_width():
    cases = {case.name for case in agreement_wgmma.cases(False)}
    types = ["f32 f16 f16", "f32 bf16 bf16", "f16 f16 f16", "f32 tf32 tf32", "s32 b1 b1"]
    types += [f"s32 {a} {b}" for a in ("s8", "u8") for b in ("s8", "u8")]
    types += [f"{d} {a} {b}" for d in ("f32", "f16") for a in ("e4m3", "e5m2")
              for b in ("e4m3", "e5m2")]  # fmt: skip
    for text, n in itertools.product(types, (8, 24, 64, 128, 256)):
        assert any(name.startswith(f"{text} n={n}") for name in cases), (text, n)
        if n == 128:
            assert any(name.startswith(f"{text} n={n} A in registers") for name in cases)
    majors = {tuple(part for part in name.split() if part.endswith("-major")) for name in cases}
    assert {("K-major", "MN-major"), ("MN-major", "K-major"), ("MN-major", "MN-major")} <= majors


def test_there_are_a_hundred_products_of_all_types_and_majornesses():
    shapes = list(agreement_kernels.shapes(agreement_kernels.SHAPES))
    assert len(shapes) == 100
    assert max(max(shape[:3]) for shape in shapes) <= 300
    assert len({shape[5:] for shape in shapes}) == 4
    assert len({shape[3:5] for shape in shapes}) == 6


def test_names_are_unique():
    for group in agreement.GROUPS:
        names = [(case.family, case.name) for case in agreement.cases_of(group, False)]
        assert len(names) == len(set(names))


def test_the_key_changes_with_inputs_and_code():
    case = next(iter(agreement_warp.matrix_moves()))
    other = dataclasses.replace(case, ptx=case.ptx + "\n")
    changed = dataclasses.replace(case, arrays=[a.copy() for a in case.arrays])
    assert case.key() == changed.key() != other.key()
    changed.arrays[0][3] ^= 1
    assert case.key() != changed.key()


@pytest.fixture
def two_cases(monkeypatch):
    every = list(agreement_tma.bulk())[:1] + list(agreement_warp.matrix_moves())[:1]
    monkeypatch.setattr(agreement, "GROUPS", {"two": (lambda smoke: every, 10)})
    agreement.cases_of.cache_clear()
    yield every
    agreement.cases_of.cache_clear()


def test_a_wrong_result_and_one_that_is_missing_are_reported(two_cases, tmp_path):
    output = tmp_path / "out"
    output.mkdir()
    for i in range(2):
        assert agreement.prepare_case(str(tmp_path), "two", i, False) == ""
    assert agreement.missing(tmp_path, False) == []
    assert agreement.hardware("two", tmp_path, output, 0, True) == 0
    families = agreement.judge("two", tmp_path, output, False)
    assert [(f["equal"], f["mismatch"]) for f in families.values()] == [(1, 0), (1, 0)]

    wrong = two_cases[0].emulate()
    wrong[0][17] ^= 4
    agreement._save(output, "0", wrong)
    (output / "1.npz").unlink()
    bulk, moves = agreement.judge("two", tmp_path, output, False).values()
    assert bulk["mismatch"] == 1
    assert "1 of" in bulk["differences"][0]
    assert "(17,)" in bulk["differences"][0]
    assert moves["not_run"] == 1


def test_a_process_that_dies_is_started_again_behind_its_case(two_cases, tmp_path, monkeypatch):
    script = tmp_path / "child.py"
    script.write_text(
        "import pathlib, sys\n"
        "output, first = pathlib.Path(sys.argv[4]), int(sys.argv[5])\n"
        "(output / 'at').write_text(str(first))\n"
        "if first == 0: sys.exit(7)\n"
        "(output / '1.npz').write_bytes(b'')\n"
    )
    monkeypatch.setattr(agreement, "__file__", str(script))
    assert agreement.run_group("two", tmp_path, tmp_path, 20, False) == ""
    assert (tmp_path / "0.txt").read_text() == "the process ended with status 7"
    assert (tmp_path / "1.npz").exists()


def test_a_process_that_hangs_is_ended(two_cases, tmp_path, monkeypatch):
    script = tmp_path / "child.py"
    script.write_text("import time\ntime.sleep(60)\n")
    monkeypatch.setattr(agreement, "__file__", str(script))
    assert agreement.run_group("two", tmp_path, tmp_path, 0.5, False) == "out of time"


def test_a_case_that_hangs_costs_only_itself(two_cases, tmp_path, monkeypatch):
    script = tmp_path / "child.py"
    script.write_text(
        "import pathlib, sys, time\n"
        "output, first = pathlib.Path(sys.argv[4]), int(sys.argv[5])\n"
        "(output / 'at').write_text(str(first))\n"
        "if first == 0: time.sleep(60)\n"
        "(output / '1.npz').write_bytes(b'')\n"
    )
    monkeypatch.setattr(agreement, "__file__", str(script))
    monkeypatch.setattr(agreement, "STALL_SECONDS", 2)
    assert agreement.run_group("two", tmp_path, tmp_path, 60, False) == ""
    assert (tmp_path / "0.txt").read_text() == "no end within 2 s"
    assert (tmp_path / "1.npz").exists()
