"""The examples on hardware, at sizes of several waves and ragged edges."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from nbtc import testing

FOLDER = Path(__file__).resolve().parents[2] / "examples"
# Those of Hopper; the examples from 11 on need Blackwell.
SIZES = {
    "01": [{"boxes": 100}],
    "02": [{"m": 4096, "n": 1028}],
    "03": [{"n": 8}, {"n": 128}, {"n": 256}],
    "04": [{"m": 5000, "n": 4100, "stages": s} for s in (1, 2, 4)],
    "05": [{"m": 1030, "n": 1026, "k": 1032}, {"m": 64, "n": 8, "k": 8}],
    "06": [{"m": 1030, "n": 1032, "k": 1032}, {"m": 64, "n": 8, "k": 8}],
    "07": [{"m": 4100, "n": 1032, "k": 1032, "blocks": 132}, {"m": 64, "n": 8, "k": 8}],
    "08": [{"rows": 1000, "part": 4096}, {"rows": 1, "part": 4}],
}

CASES = [
    pytest.param(path, sizes, id=f"{path.stem}-{i}")
    for path in sorted(FOLDER.glob("[0-9]*.py"))
    for i, sizes in enumerate(SIZES.get(path.stem[:2], ()))
]


@pytest.mark.skipif(not testing.has_gpu((9, 0)), reason="needs a Hopper GPU")
@pytest.mark.parametrize(("path", "sizes"), CASES)
def test_example(path, sizes):
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.check(**sizes)
