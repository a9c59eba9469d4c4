"""Every example compiles cleanly and gives the NumPy result without a finding, and stays short."""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from nbtc import emulator, testing
from nbtc.errors import FindingsError

FOLDER = Path(__file__).resolve().parent.parent / "examples"
FILES = sorted(FOLDER.glob("[0-9]*.py"))
SCHEDULES = (("random", 1), ("random", 2), ("earliest", 3), ("latest", 4))
INSTRUCTIONS = {
    "02": ("UTMALDG", "UTMASTG"),
    "03": ("HGMMA",),
    "04": ("UTMALDG", "SYNCS"),
    "05": ("HMMA", "LDGSTS", "LDSM"),
    "06": ("HGMMA", "UTMALDG", "UTMASTG", "STSM"),
    "07": ("HGMMA", "UTMALDG", "UTMASTG", "STSM", "USETMAXREG"),
    "08": ("UBLKCP", "UCGABAR"),
    "11": ("UTCHMMA", "UTCBAR", "LDTM", "UTMALDG", "UTMASTG"),
    "12": ("UTCOMMA", "UTCCP", "UTCBAR", "LDTM", "UTMALDG", "UTMASTG"),
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
    """Hopper counts from 1, Blackwell from 11."""
    numbers = [int(p.stem[:2]) for p in FILES]
    hopper = [n for n in numbers if n <= 10]
    assert numbers == [*range(1, len(hopper) + 1), *range(11, 11 + len(numbers) - len(hopper))]
    assert len(hopper) >= 8


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


@pytest.mark.parametrize(("completion", "seed"), SCHEDULES)
def test_runs_on_the_emulator(path, completion, seed, monkeypatch):
    launch, reports = emulator.launch, []

    @functools.wraps(launch)
    def recorded(*args, **options):
        reports.append(launch(*args, **{**options, "completion": completion}))
        return reports[-1]

    monkeypatch.setattr(emulator, "launch", recorded)
    with testing.emulated(seed):
        load(path).check()
    assert [(r.policy, r.seed) for r in reports] == [(completion, seed)]
    assert not reports[0].findings
    assert not reports[0].warnings


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


MISTAKES = [
    # What a docstring says goes wrong: example, text, what it becomes, finding, where.
    ("01", "pipeline.producer_start()", "pipeline.consumer_start()", "deadlock", "pipeline.wait"),
    (
        "01",
        "                pipeline.wait(empty, state.parity)\n",
        "",
        "mbarrier_overrun",
        "arrive(full)",
    ),
    ("02", "        fence.proxy_async()", "        #", "missing_proxy_fence", "tma.store"),
    ("02", "            tma.wait_group_read(0)\n", "", "bulk_incomplete", "tma.store"),
    ("02", "arrive_expect_tx(full, TILE_BYTES)", "arrive(full)", "read_in_flight", "ld_shared"),
    ("04", "STAGE_BYTES = ROWS * COLUMNS * 4", "STAGE_BYTES = 4096", "deadlock", "pipeline.wait"),
    ("05", "            cuda.syncthreads()\n", "", "read_in_flight", "ldmatrix"),
    ("06", "empty[previous])", "empty[state.stage])", "deadlock", "pipeline"),
    (
        "08",
        "arrive()\n        cluster.wait()\n\n",
        'arrive(sem="relaxed")\n        cluster.wait()\n\n',
        "race",
        "partial",
    ),
    ("07", "= CONSUMERS * CLUSTER,", "= CONSUMERS,", "overwrite_while_read", "tma.load"),
]


@pytest.mark.parametrize(
    ("number", "old", "new", "kind", "where"), MISTAKES, ids=lambda x: x.strip()[:28] or "nothing"
)
def test_the_mistakes_that_docstrings_warn_of_are_found(number, old, new, kind, where, tmp_path):
    source = next(p for p in FILES if p.stem.startswith(number)).read_text()
    assert source.count(old) == 1
    path = tmp_path / f"mistake_{number}.py"
    path.write_text(source.replace(old, new))
    with testing.emulated(1), pytest.raises(FindingsError) as caught:
        load(path).check()
    lines = path.read_text().splitlines()
    found = re.findall(r"finding \d+: (.*?):(\d+) in .*?: (\w+):", str(caught.value))
    assert any(
        (Path(file), kind) == (path, found_kind) and where in lines[int(line) - 1]
        for file, line, found_kind in found
    ), found


def test_a_block_barrier_in_place_of_the_first_cluster_barrier_compiles(tmp_path):
    """libNVVM 13.5 refused this one while the debug information named variables."""
    old = 'cluster.arrive(sem="relaxed")\n        cluster.wait()\n\n        tiles'
    source = next(p for p in FILES if p.stem.startswith("07")).read_text()
    assert source.count(old) == 1
    path = tmp_path / "block_barrier.py"
    path.write_text(source.replace(old, "cuda.syncthreads()\n        tiles"))
    compiled = load(path).compiled()
    assert ".loc" in compiled.ptx
    assert "HGMMA" in compiled.sass()
