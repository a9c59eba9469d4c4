"""Every block of the README and of the docs does what its page says."""

from __future__ import annotations

import itertools
import re
import runpy
from pathlib import Path

import pytest

from nbtc import check
from nbtc.errors import NbtcError

ROOT = Path(__file__).resolve().parent.parent
GENERATED = {"reference.md", "building-blocks.md", "host.md"}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = [page for page in PAGES if page.name not in GENERATED]
TEXTS = [*PAGES, *(ROOT / n for n in ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"))]

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    """Return the blocks of one language."""
    return [text for kind, text in _BLOCK.findall(page.read_text()) if kind == language]


PROGRAMS = [
    pytest.param(page, index, id=f"{page.stem}-{index + 1}")
    for page in PAGES
    for index in range(len(blocks(page, "python")))
]


@pytest.fixture
def emulated(monkeypatch):
    """Run as on a machine without a GPU."""
    monkeypatch.setenv("NBTC_EMULATE", "1")


@pytest.mark.parametrize(("page", "index"), PROGRAMS)
def test_program(page, index, tmp_path, emulated):
    """Each block is a whole program, and checks itself."""
    path = tmp_path / f"{page.stem.lower().replace('-', '_')}.py"
    path.write_text(blocks(page, "python")[index])
    runpy.run_path(str(path), run_name="__main__")


ERRORS = ROOT / "docs" / "errors.md"


def _raising() -> list:
    """Return each program of the page of errors with the message that stands below it."""
    found = _BLOCK.findall(ERRORS.read_text())
    pairs = itertools.pairwise(found)
    return [
        pytest.param(program, message, id=message.split("\n")[0][:40])
        for (kind, program), (below, message) in pairs
        if kind == "py" and below == "text"
    ]


@pytest.mark.parametrize(("program", "message"), _raising())
def test_message(program, message, tmp_path, emulated):
    path = tmp_path / "program.py"
    imports = blocks(ERRORS, "text")[0]
    path.write_text(imports + program)
    with pytest.raises(NbtcError) as error:
        runpy.run_path(str(path))
    raised = " ".join(str(error.value).split())
    for part in " ".join(message.split()).split(" ... "):
        assert part in raised


def test_every_program_of_the_page_of_errors_is_run():
    assert len(_raising()) == len(blocks(ERRORS, "py")) > 10


def test_every_block_is_of_a_kind_that_is_run():
    """CI runs sh; the tests here run python, and py for the message below it."""
    for page in PAGES:
        kinds = {kind for kind, _ in _BLOCK.findall(page.read_text())}
        assert kinds <= {"sh", "python", "text"} | ({"py"} if page == ERRORS else set()), page
        if page.name != "README.md":
            assert "sh" not in kinds, page


def test_every_kind_of_finding_is_listed():
    from nbtc.emulator.findings import KINDS

    page = (ROOT / "docs" / "emulator.md").read_text()
    section = page.split("\n## What is checked\n")[1].split("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert [name for name in KINDS if name not in listed] == []
    assert [name for name in listed if name not in KINDS] == []


def test_shell_blocks_are_the_two_commands():
    install, tests = blocks(ROOT / "README.md", "sh")
    assert install.strip().endswith("python -m nbtc demo")
    assert "\n" not in install.strip()
    assert tests.strip().endswith("python -m pytest -n 2")
    assert "\n" not in tests.strip()
    ci = (ROOT / ".ci" / "run").read_text()
    assert "$(readme 1)" in ci
    assert "$(readme 2)" in ci


def test_opens_with_the_commands():
    text = (ROOT / "README.md").read_text()
    assert text.index("```sh") < 200
    assert _BLOCK.findall(text)[1][0] == "sh"


def test_finding_of_the_readme(tmp_path, monkeypatch, capsys, emulated):
    """The text block is what `check` prints for the mistake that the page names."""
    page = ROOT / "README.md"
    program = blocks(page, "python")[0]
    wrong = program.replace("ROWS * COLUMNS * 4", "ROWS * COLUMNS * 8")
    assert wrong != program
    monkeypatch.chdir(tmp_path)
    Path("row_sums.py").write_text(wrong)
    assert check.main("row_sums.py") == 1
    printed = " ".join(capsys.readouterr().out.split())
    (shown,) = blocks(page, "text")
    for part in " ".join(shown.split()).split(" ... "):
        assert part in printed


def test_compile_line_of_the_readme(tmp_path, emulated):
    page = ROOT / "README.md"
    (line,) = re.findall(r"`(row_sums\.compile\(.*?\))`", page.read_text())
    path = tmp_path / "row_sums.py"
    path.write_text(blocks(page, "python")[0] + f"\ncompiled = {line}\n")
    compiled = runpy.run_path(str(path))["compiled"]
    assert compiled.resources.spill_bytes == 0
    assert compiled.count("UTMALDG") == 1


@pytest.mark.parametrize("page", TEXTS, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    prose = re.sub(r"`[^`]*`", "", _BLOCK.sub("", page.read_text()))
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", prose):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_targets_of_the_readme_are_the_supported_ones():
    from nbtc.arch import SUPPORTED

    table = (ROOT / "README.md").read_text().split("## Targets")[1].split("\n\n")[1]
    assert set(re.findall(r"`(sm_\w+)`", table)) == set(SUPPORTED)
