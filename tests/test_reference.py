"""The reference page follows the declarations."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nbtc import emulator, gemm, reference, testing


@pytest.fixture(scope="module")
def page() -> str:
    return reference.page()


def test_committed_page_is_current(page: str) -> None:
    assert reference.PAGE.read_text() == page, "run python -m nbtc.reference"


def test_every_instruction_has_an_entry(page: str) -> None:
    entries = re.findall(r"^### (.+)$", page, re.MULTILINE)
    more = [f"{name}.{key}" for name, module in reference.modules().items()
            for key in reference.conversions(module)]  # fmt: skip
    assert sorted(entries) == sorted([*reference.instructions(), *more])
    assert "wgmma.matrix_descriptor" in more


def test_instructions_declared_elsewhere_are_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    known = next(iter(reference.instructions().values()))
    monkeypatch.setitem(reference.REGISTRY, "user_module.instruction", known)
    assert "user_module.instruction" not in reference.instructions()


def test_explanations_reach_the_table(page: str) -> None:
    start = page.index("### mbarrier.init\n")
    entry = page[start : page.index("\n### ", start)]
    assert "| `count` | a 32-bit integer, 1..1048575 | arrivals a phase, 1 to 1048575. |" in entry
    assert "mbarrier.init.shared::cta.b64 [{bar}], {count};" in entry
    assert "PTX 7.8 on sm_80 or later" in entry
    assert "Args:" not in page


def test_building_blocks_are_current() -> None:
    assert reference.BLOCKS.read_text() == reference.blocks_page(), "run python -m nbtc.reference"


def test_every_block_of_the_guide_has_an_entry() -> None:
    guide = (reference.DOCS / "kernel-guide.md").read_text()
    named = set(re.findall(r"^\| `(\w+\.\w+)\(", guide, re.MULTILINE))
    pages = reference.blocks_page(), reference.page()
    blocks, instructions = (set(re.findall(r"^### ([\w.]+)", x, re.MULTILINE)) for x in pages)
    assert len(named & blocks) > 10
    assert named <= blocks | instructions


def test_blocks_show_what_a_kernel_writes() -> None:
    page = reference.blocks_page()
    assert "\npipeline.wait(bar, parity)\n" in page
    assert "\nunroll.repeat(function, carry, count, *args)\n" in page
    assert "| `full` | barriers of the ring, `layout.full`. |" in page
    assert "### shared.tile (host)" in page
    assert "Args:" not in page
    assert "Emitter" not in page


def test_check_tells_a_stale_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reference, "page", lambda: "short\n")
    output = tmp_path / "docs"
    assert reference.main(["--output", str(output)]) == 0
    assert reference.main(["--check", "--output", str(output)]) == 0
    for name in ("reference.md", "building-blocks.md"):
        page = output / name
        text = page.read_text()
        page.write_text(text + "stale")
        assert reference.main(["--check", "--output", str(output)]) == 1
        assert f"{name} is out of date" in capsys.readouterr().err
        page.write_text(text)


def test_the_page_of_the_host_is_current() -> None:
    assert reference.HOST.read_text() == reference.host_page(), "run python -m nbtc.reference"


def test_everything_public_is_on_the_page_of_the_host() -> None:
    entries = re.findall(r"^### (.+)$", reference.host_page(), re.MULTILINE)
    wanted = {f"gemm.{name}" for name in gemm.__all__ if callable(getattr(gemm, name))}
    wanted |= {f"emulator.{name}" for name in emulator.__all__}
    wanted |= {f"testing.{name}" for name in testing.__all__}
    wanted -= {"gemm.matmul"}
    wanted |= {"nbtc.matmul", "nbtc.jit", "nbtc.TensorMap", "TensorMap.tiled", "kernel.compile"}
    assert wanted <= set(entries)
    assert len(entries) == len(set(entries))


def test_every_entry_of_the_host_says_something() -> None:
    for entry in reference.host_page().split("\n### ")[1:]:
        text = entry.split("```")[2].strip()
        assert len(text) > 20, entry
