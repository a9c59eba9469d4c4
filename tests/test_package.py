"""The package as a whole: what importing loads, what is exported, what a wheel holds."""

from __future__ import annotations

import importlib
import inspect
import os
import runpy
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import nbtc

ROOT = Path(__file__).resolve().parent.parent
wheel_problems = runpy.run_path(str(ROOT / "tests" / "wheel_content.py"))["problems"]


def python(code: str, cwd: Path | None = None, **environment: str) -> str:
    """Run code in a fresh interpreter and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


_LOADED = "import sys; print(sorted(n for n in ('numba', 'cuda', 'llvmlite') if n in sys.modules))"


@pytest.mark.parametrize(
    "module",
    ["nbtc", "nbtc.emulator", "nbtc.layout", "nbtc.errors", "nbtc.arch", "nbtc.dtypes", "nbtc.cli",
     "nbtc.ptx.spec"],
)  # fmt: skip
def test_import_loads_neither_numba_nor_cuda(module):
    assert python(f"import {module}; {_LOADED}") == "[]"


def test_import_loads_no_array_library_either():
    assert python("import nbtc, sys; print('numpy' in sys.modules)") == "False"


def test_the_guard_above_notices_numba():
    assert python(f"import nbtc; nbtc.jit; {_LOADED}") != "[]"


@pytest.mark.parametrize("name", nbtc.__all__)
def test_every_exported_name_exists_and_is_documented(name):
    value = getattr(nbtc, name)
    assert name in dir(nbtc)
    assert inspect.getdoc(value), f"nbtc.{name} has no docstring"


_PACKAGES = ["nbtc.gemm", "nbtc.emulator", "nbtc.testing", "nbtc.layout", "nbtc.device.shared"]


@pytest.mark.parametrize("package", _PACKAGES)
def test_every_public_name_of_a_package_is_documented(package):
    module = importlib.import_module(package)
    names = getattr(module, "__all__", None) or [
        n for n, v in vars(module).items()
        if not n.startswith("_") and getattr(v, "__module__", None) == package
    ]  # fmt: skip
    assert names
    for name in names:
        value = getattr(module, name)
        if inspect.isroutine(value) or inspect.isclass(value):
            assert inspect.getdoc(value), f"{package}.{name} has no docstring"


def test_every_module_says_what_it_is():
    sources = [*ROOT.glob("nbtc/**/*.py"), *ROOT.glob("intrinsics/*.py")]
    assert len(sources) > 100
    for path in sources:
        assert path.read_text().startswith(('"""', 'r"""')), f"{path} has no docstring"


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'nbtc' has no attribute 'warp'"):
        nbtc.warp  # noqa: B018


def test_version_is_that_of_the_project():
    text = (ROOT / "pyproject.toml").read_text()
    assert f'\nversion = "{nbtc.__version__}"\n' in text


def test_declarations_refuse_another_name():
    message = python(
        "try:\n import intrinsics\nexcept ImportError as error: print(error)", cwd=ROOT
    )
    assert "nbtc.intrinsics" in message


def test_users_module_called_intrinsics_does_not_get_in_the_way(tmp_path):
    (tmp_path / "intrinsics.py").write_text("mine = True\n")
    code = (
        "import intrinsics, nbtc.intrinsics.mbarrier as m; "
        "print(intrinsics.mine, m.__name__, m.init.name)"
    )
    # -c puts the working directory first on the path, as a script does with its own folder.
    assert python(code, cwd=tmp_path, PYTHONPATH=str(ROOT)) == (
        "True nbtc.intrinsics.mbarrier mbarrier.init"
    )


def test_checkout_works_uninstalled(tmp_path):
    """The committed symlink stands for the package folder of the declarations."""
    assert os.readlink(ROOT / "nbtc" / "intrinsics") == "../intrinsics"
    for name in ("nbtc", "intrinsics"):
        shutil.copytree(
            ROOT / name, tmp_path / name, symlinks=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )  # fmt: skip
    code = (
        "import nbtc, nbtc.intrinsics.tma as t, nbtc.jit; from pathlib import Path; "
        "print(Path(t.__file__).parent.parent.name, Path(nbtc.__file__).parent.parent.name)"
    )
    assert python(code, cwd=tmp_path, PYTHONPATH=str(tmp_path)) == f"nbtc {tmp_path.name}"


def _packages_on_disk() -> set[str]:
    inits = [*ROOT.glob("nbtc/**/__init__.py")]
    found = {".".join(p.parent.relative_to(ROOT).parts) for p in inits}
    return found | {"nbtc.intrinsics"}


def test_every_package_is_listed_for_the_wheel():
    text = (ROOT / "pyproject.toml").read_text()
    block = text.split("packages = [")[1].split("]")[0]
    listed = {part.strip().strip('"') for part in block.split(",") if part.strip()}
    assert listed == _packages_on_disk()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """A wheel built from a copy of the sources, without the network."""
    source = tmp_path_factory.mktemp("source")
    for name in ("nbtc", "intrinsics"):
        shutil.copytree(
            ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    target = tmp_path_factory.mktemp("wheel")
    code = f"from setuptools import build_meta; print(build_meta.build_wheel({str(target)!r}))"
    name = python(code, cwd=source).splitlines()[-1]
    return target / name


def test_wheel_holds_the_sources_and_nothing_else(wheel):
    assert wheel_problems(wheel) == []


def test_content_check_notices_what_is_wrong(wheel, tmp_path):
    bad = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(bad, "w") as new:
        for item in old.infolist():
            if item.filename != "nbtc/intrinsics/tma.py":
                new.writestr(item, old.read(item))
        new.writestr("intrinsics/tma.py", "")
    assert wheel_problems(bad) == [
        "nbtc/intrinsics/tma.py is missing",
        "intrinsics/tma.py does not belong there",
    ]


def test_console_script_and_module_are_one():
    text = (ROOT / "pyproject.toml").read_text()
    assert '[project.scripts]\nnbtc = "nbtc.cli:main"' in text
    assert "from nbtc.cli import main" in (ROOT / "nbtc" / "__main__.py").read_text()
