"""The reference page follows the declarations."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nbtc import reference


@pytest.fixture(scope="module")
def page() -> str:
    return reference.page()


def test_committed_page_is_current(page: str) -> None:
    assert reference.PAGE.read_text() == page, "run python -m nbtc.reference"


def test_every_instruction_has_an_entry(page: str) -> None:
    entries = re.findall(r"^### (.+)$", page, re.MULTILINE)
    assert entries == list(reference.instructions())


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


def test_check_tells_a_stale_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reference, "page", lambda: "short\n")
    output = tmp_path / "docs" / "page.md"
    assert reference.main(["--output", str(output)]) == 0
    assert reference.main(["--check", "--output", str(output)]) == 0
    output.write_text(output.read_text() + "stale")
    assert reference.main(["--check", "--output", str(output)]) == 1
    assert "python -m nbtc.reference" in capsys.readouterr().err
