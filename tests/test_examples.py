"""Every example compiles cleanly and gives the NumPy result without a finding, and stays short."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from nbtc import testing

FOLDER = Path(__file__).resolve().parent.parent / "examples"
FILES = sorted(FOLDER.glob("[0-9]*.py"))
SEEDS = (1, 2)
INSTRUCTIONS = {
    "02": ("UTMALDG", "UTMASTG"),
    "03": ("HGMMA",),
    "04": ("UTMALDG", "SYNCS"),
    "05": ("HMMA", "LDGSTS", "LDSM"),
    "06": ("HGMMA", "UTMALDG", "UTMASTG", "STSM"),
    "07": ("HGMMA", "UTMALDG", "UTMASTG", "STSM", "USETMAXREG"),
    "08": ("HGMMA", "UTMALDG"),
}
"""What the machine code of an example must contain."""

_loaded: dict[Path, ModuleType] = {}


def load(path: Path) -> ModuleType:
    """Import an example, whose name starts with a digit."""
    if path not in _loaded:
        spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        _loaded[path] = module
    return _loaded[path]


@pytest.fixture(params=FILES, ids=lambda p: p.stem)
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_the_examples_are_numbered_without_gaps():
    assert [int(p.stem[:2]) for p in FILES] == list(range(1, len(FILES) + 1))
    assert len(FILES) >= 7


def test_is_short_and_explains_itself(path):
    text = path.read_text()
    assert len(text.splitlines()) < 150
    assert "goes wrong otherwise" in (load(path).__doc__ or "")


def test_compiles_without_note_spill_or_stack(path):
    compiled = load(path).compiled()
    assert compiled.notes == ()
    assert compiled.resources.spill_bytes == 0
    assert compiled.resources.stack_bytes == 0
    sass = compiled.sass()
    for instruction in INSTRUCTIONS.get(path.stem[:2], ()):
        assert instruction in sass
    assert " LDL" not in sass
    assert " STL" not in sass


@pytest.mark.parametrize("seed", SEEDS)
def test_runs_on_the_emulator(path, seed):
    with testing.emulated(seed):
        load(path).check()


def test_runs_from_the_command_line(path, capsys):
    if path.stem.startswith("01"):
        load(path).main(["--emulate", "--seed", "3", "--boxes", "2"])
        assert "ok (emulator, seed 3, no findings): boxes=2" in capsys.readouterr().out
    else:
        with pytest.raises(SystemExit) as stopped:
            load(path).main(["--help"])
        assert stopped.value.code == 0
        assert load(path).__doc__.splitlines()[0] in capsys.readouterr().out


def test_a_wrong_result_is_noticed(path, monkeypatch):
    """The check compares with the reference: it must fail for another reference."""
    module = load(path)
    right = module.reference
    monkeypatch.setattr(module, "reference", lambda *args: np.flip(right(*args)))
    with testing.emulated(1), pytest.raises(AssertionError, match="relative error"):
        module.check()


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_pipeline_is_right_for_any_number_of_stages(stages):
    with testing.emulated(1):
        load(FOLDER / "04_two_stage_pipeline.py").check(m=70, stages=stages)
