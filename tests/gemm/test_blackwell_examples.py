"""The mistakes that the Blackwell examples warn of are found, and named by their line."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from nbtc import testing
from nbtc.errors import FindingsError

FOLDER = Path(__file__).resolve().parents[2] / "examples"

MISTAKES = [
    # example, text, what it becomes, finding, a word of the line it names
    ("11", "tcgen05.commit(layout.empty[state.stage])",
     "mbarrier.arrive(layout.empty[state.stage])", "overwrite_while_read", "tma.load"),
    ("11", "            pipeline.wait(layout.done[0], 0)\n", "", "tmem_in_flight", "ld_32x32b"),
    ("11", "warp * 32 << 16", "((warp + 1) % 4) * 32 << 16", "tmem_lane", "ld_32x32b"),
    ("11", "tcgen05.dealloc(d, TILE_N)", "pass", "tmem_leak", "tcgen05.alloc"),
    ("12", "2 * (TILE * TILE_K // 2 + SCALE_BYTES)", "TILE * TILE_K",
     "read_in_flight", "tcgen05.cp"),
    ("12", '                        tcgen05.cp(sfb, sb, shape="32x128b", multicast="warpx4")\n', "",
     "tmem_uninitialised", "mma_mxf4nvf4"),
]  # fmt: skip


def _load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("number", "old", "new", "kind", "where"), MISTAKES)
def test_mistakes_are_found(number, old, new, kind, where, tmp_path):
    source = next(FOLDER.glob(f"{number}_*.py")).read_text()
    assert source.count(old) == 1
    path = tmp_path / f"mistake_{number}.py"
    path.write_text(source.replace(old, new))
    with testing.emulated(1), pytest.raises(FindingsError) as caught:
        _load(path).check()
    lines = path.read_text().splitlines()
    found = re.findall(r"finding \d+: (.*?):(\d+) in .*?: ([\w-]+):", str(caught.value))
    assert any(
        (Path(file), kind) == (path, found_kind) and where in lines[int(line) - 1]
        for file, line, found_kind in found
    ), found
