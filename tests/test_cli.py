"""The command line: what each command prints, and its exit status."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import nbtc
from nbtc import cli, demo, driver, gemm


@pytest.fixture(autouse=True)
def _emulator(monkeypatch):
    """These tests are about the command line, not about a GPU."""
    monkeypatch.setenv("NBTC_EMULATE", "1")


def write(folder, text: str) -> str:
    path = folder / "script.py"
    path.write_text(textwrap.dedent(text))
    return str(path)


GOOD = """
    import sys
    import numpy as np
    import nbtc
    from numba import cuda

    @nbtc.jit
    def add_one(x):
        x[cuda.threadIdx.x] += 1

    x = np.zeros(32, np.int32)
    add_one[1, 32](x)
    print("sum", x.sum(), sys.argv[1:], __name__)
"""
RACE = """
    import numpy as np
    import nbtc
    from numba import cuda

    @nbtc.jit
    def racing(x):
        x[0] = cuda.threadIdx.x // 32

    x = np.zeros(1, np.int32)
    racing[1, 64](x)
    print("went on")
"""


def test_version(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"nbtc {nbtc.__version__}\n"


@pytest.mark.parametrize("argv", [[], ["dem"], ["check"], ["demo", "--size", "0"]])
def test_unusable_command_is_status_2(argv, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(argv)
    assert end.value.code == 2
    assert "usage: nbtc" in capsys.readouterr().err


def test_error_of_nbtc_is_one_message(capsys):
    assert cli.main(["demo", "--arch", "sm_80"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("nbtc demo: ArchError: arch='sm_80' is not supported; supported: sm_90")
    assert "Traceback" not in err


def test_demo_compiles_runs_and_checks(capsys):
    assert cli.main(["demo", "--size", "128"]) == 0
    out = capsys.readouterr().out
    for target in gemm.TARGETS:
        assert re.search(rf"│ {target}\s*│\s*\d+\.\d\d s\s*│\s*\d+\s*│\s*0 B │\s*\d+ B │", out)
    assert re.search(r"│ \d+ HGMMA\s*│", out)
    assert re.search(r"│ \d+ UTCHMMA\s*│", out)
    assert "128 x 128 x 128, 2 schedules each" in out
    for target in gemm.TARGETS:
        assert re.search(rf"{target}: .* 0 findings\n  relative error .*e-\d\d, .*: correct", out)


def test_demo_fails_on_a_wrong_product(capsys, monkeypatch):
    real = nbtc.matmul

    def wrong(a, b, **options):
        out = real(a, b, **options)
        out[3, 5] += 4
        return out

    monkeypatch.setattr(nbtc, "matmul", wrong)
    assert cli.main(["demo", "--size", "64", "--arch", "sm_90a"]) == 1
    assert "WRONG" in capsys.readouterr().out


def test_demo_says_so_where_nothing_can_run(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "nbtc.emulator", None)
    monkeypatch.delattr(nbtc, "emulator", raising=False)
    monkeypatch.setattr(driver, "available", lambda: False)
    assert cli.main(["demo", "--arch", "sm_90a"]) == 0
    out = capsys.readouterr().out
    assert "only compilation was checked" in out
    assert "correct" not in out


def test_tensor_core_instructions_are_counted_by_opcode():
    class Fake:
        def sass(self) -> str:
            lines = ["HGMMA.64x256x16.F32", "@P0 UTCHMMA.2CTA", "QGMMA.64x8x32", "HGMMA.64x8x16",
                     "UTCQMMA", "UTCBAR", "HMMA.16816.F32", "IMAD", "UTMALDG.2D"]  # fmt: skip
            return "\n".join(f"        /*{i:04x}*/ {text} ;" for i, text in enumerate(lines))

    assert demo.tensor_core_instructions(Fake()) == {
        "HGMMA": 2, "UTCHMMA": 1, "QGMMA": 1, "UTCQMMA": 1, "HMMA": 1,
    }  # fmt: skip


def test_check_passes_a_good_script(tmp_path, capsys):
    file = write(tmp_path, GOOD)
    assert cli.main(["check", file, "--flag", "x"]) == 0
    out = capsys.readouterr().out
    assert "sum 32 ['--flag', 'x'] __main__" in out
    assert "--- add_one, launch 1\nno findings" in out
    assert f"=== {file}: 1 launches, 0 findings" in out


def test_check_prints_findings_and_goes_on(tmp_path, capsys):
    file = write(tmp_path, RACE)
    assert cli.main(["check", file]) == 1
    out = capsys.readouterr().out
    line = 1 + Path(file).read_text().split("\n").index("    x[0] = cuda.threadIdx.x // 32")
    assert f"{file}:{line}" in out
    assert "race" in out
    assert "went on" in out


def test_check_seed_reaches_the_emulator(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("NBTC_SEED", "0")
    file = write(tmp_path, GOOD + '    import os; print("seed", os.environ["NBTC_SEED"])\n')
    assert cli.main(["check", "--seed", "7", file]) == 0
    assert "seed 7" in capsys.readouterr().out


def test_check_of_nothing_is_not_a_pass(tmp_path, capsys):
    assert cli.main(["check", str(tmp_path / "absent.py")]) == 2
    assert "no such file" in capsys.readouterr().err
    assert cli.main(["check", write(tmp_path, "print('no kernel')")]) == 2
    assert "nothing was checked" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "status"),
    [("raise SystemExit(3)", 1), ("1 / 0", 1), ("def broken(:", 1), ("raise SystemExit(0)", 0)],
)
def test_check_of_a_script_that_ends_itself(tmp_path, capsys, text, status):
    file = write(tmp_path, textwrap.dedent(GOOD) + text + "\n")
    assert cli.main(["check", file]) == status
    captured = capsys.readouterr()
    last = captured.out.splitlines()[-1]
    assert last.startswith(f"=== {file}: ")
    assert ("the script failed" in last) == (status != 0)
    if text == "def broken(:":
        assert captured.err.startswith(f'  File "{file}", line ')
        assert captured.err.endswith("SyntaxError: invalid syntax\n")
        assert last.endswith("the script failed: SyntaxError")


OWN_ERROR = """
    import numpy as np, nbtc
    from failing_neighbour import broken

    class Bad:
        @property
        def __cuda_array_interface__(self):
            broken()

    @nbtc.jit
    def kernel(x):
        x[0] = 1

    kernel[1, 1](np.zeros(1, np.float32))
    try:
        kernel[1, 1](Bad())
    except KeyError as error:
        raise ValueError("of the script") from error
"""


def test_check_shows_the_scripts_own_error_without_frames_of_nbtc(tmp_path, capsys):
    (tmp_path / "failing_neighbour.py").write_text("def broken():\n    raise KeyError('deep')\n")
    file = write(tmp_path, OWN_ERROR)
    assert cli.main(["check", file]) == 1
    out, err = capsys.readouterr()
    assert out.endswith(f"=== {file}: 1 launches, 0 findings; the script failed: ValueError\n")
    lines = Path(file).read_text().splitlines()
    where = {text: f'  File "{file}", line {n}' for n, text in enumerate(lines, 1)}
    frames = [line for line in err.splitlines() if line.startswith("  File ")]
    assert [frame.split(", in ")[0] for frame in frames] == [
        where["    kernel[1, 1](Bad())"],
        where["        broken()"],
        f'  File "{tmp_path / "failing_neighbour.py"}", line 2',
        where['    raise ValueError("of the script") from error'],
    ]
    assert "KeyError: 'deep'\n\nThe above exception was the direct cause" in err
    assert err.endswith("ValueError: of the script\n")


def test_check_shows_an_error_of_nbtc_without_traceback(tmp_path, capsys):
    text = textwrap.dedent(GOOD).replace("add_one[1, 32](x)", "add_one[1, 2000](x)")
    assert cli.main(["check", write(tmp_path, text)]) == 1
    err = capsys.readouterr().err
    line = 1 + text.splitlines().index("add_one[1, 2000](x)")
    assert re.match(rf"nbtc check: \S+\.py:{line}: LaunchError: .*2000", err)
    assert "Traceback" not in err


def test_check_runs_beside_its_neighbours(tmp_path, capsys):
    (tmp_path / "neighbour.py").write_text("SIZE = 32\n")
    file = write(tmp_path, GOOD.replace("import sys", "import sys\n    from neighbour import SIZE"))
    before = (list(sys.path), list(sys.argv))
    assert cli.main(["check", file]) == 0
    assert (sys.path, sys.argv) == before


def test_commands_delegate(monkeypatch, tmp_path):
    from nbtc import doctor, reference

    seen = []
    monkeypatch.setattr(doctor, "main", lambda: seen.append("doctor") or 0)
    monkeypatch.setattr(reference, "main", lambda argv: seen.append(argv) or 1)
    assert cli.main(["doctor"]) == 0
    assert cli.main(["reference", "--check", "--output", "page.md"]) == 1
    assert seen == ["doctor", ["--check", "--output", "page.md"]]


def test_module_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "nbtc", "--version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, f"nbtc {nbtc.__version__}\n")
