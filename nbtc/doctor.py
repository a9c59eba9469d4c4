"""``python -m nbtc doctor``: the installed tools, whether they fit together, and the GPU."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Literal

from nbtc import arch, driver
from nbtc.errors import ArchError, CompileError, DriverError, NbtcError

Level = Literal["ok", "note", "problem"]

PACKAGES = (
    "nbtc", "numba-cuda", "numba", "llvmlite", "numpy", "ml_dtypes", "cuda-bindings", "cuda-core",
    "nvidia-nvvm", "nvidia-cuda-nvcc", "torch", "cupy-cuda13x",
)  # fmt: skip
_OPTIONAL = ("nbtc", "torch", "cupy-cuda13x")
_MARKS = {"ok": "ok     ", "note": "note   ", "problem": "PROBLEM"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the examination.

    Attributes:
        level: "ok", "note" (something is not there, and not needed for everything) or "problem".
        subject: what was looked at.
        text: what was found.
        remedy: what to do, empty if nothing.
    """

    level: Level
    subject: str
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        line = f"{_MARKS[self.level]} {self.subject:<18} {self.text}"
        return f"{line}\n{'':>27}-> {self.remedy}" if self.remedy else line


def examine() -> list[Finding]:
    """Look at everything; never raises for what it finds."""
    found = [Finding("ok", "Python", f"{platform.python_version()} at {sys.executable}")]
    found += packages()
    found += requirements()
    for name in ("ptxas", "nvdisasm"):
        found.append(_guarded(name, tool, name))
    found.append(_guarded("toolchain", toolchain))
    found += gpu()
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Print the examination; return 1 if there is a problem, else 0."""
    if argv:
        print("usage: python -m nbtc doctor", file=sys.stderr)
        return 2
    found = examine()
    print("\n".join(map(str, found)))
    problems = sum(f.level == "problem" for f in found)
    print(f"\n{problems} problem(s)" if problems else "\nno problems")
    return 1 if problems else 0


def packages() -> list[Finding]:
    """Report the version of every package that matters."""
    found = []
    for name in PACKAGES:
        version = _version(name)
        if version is not None:
            found.append(Finding("ok", name, version))
        elif name not in _OPTIONAL:
            found.append(Finding("problem", name, "not installed", f"pip install {name}"))
    return found


def requirements() -> list[Finding]:
    """Check the installed versions against the requirements of the installed nbtc."""
    try:
        from packaging.requirements import Requirement

        lines = metadata.requires("nbtc") or []
    except (ImportError, metadata.PackageNotFoundError):
        return []  # a checkout that is not installed
    found = []
    for line in lines:
        wanted = Requirement(line)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        version = _version(wanted.name)
        if version is not None and not wanted.specifier.contains(version, prereleases=True):
            text = f"{version} installed, nbtc needs {wanted.specifier}"
            remedy = f"pip install '{wanted.name}{wanted.specifier}'"
            found.append(Finding("problem", wanted.name, text, remedy))
    return found


def tool(name: str) -> Finding:
    """Report a command-line tool of the CUDA toolkit."""
    from nbtc import tools

    try:
        found = tools.find(name)
    except CompileError as error:
        level = "note" if name == "nvdisasm" else "problem"
        text, _, remedy = str(error).partition("; ")
        return Finding(level, name, text, remedy)
    isa = f", reads PTX {found.isa[0]}.{found.isa[1]}" if name == "ptxas" else ""
    return Finding("ok", name, f"{found.version}{isa} ({found.path})")


def toolchain(targets: Iterable[str] = ("sm_90a", "sm_100a")) -> Finding:
    """Compile a kernel of one line for Hopper and Blackwell, and assemble it.

    This is what tells whether libNVVM and ptxas are of one release.
    """
    from numba.cuda import types

    from nbtc import numba_compat, ptxas

    version = (0, 0)
    for name in targets:
        target = arch.parse(name)
        options = numba_compat.CodeOptions.for_arch(target, lineinfo=False, fastmath=False)
        bounds = numba_compat.KernelBounds()
        signature = (types.int32[::1],)
        ptx = numba_compat.kernel_to_ptx(
            _store, signature, target, options, bounds=bounds, entry="store"
        )
        ptxas.assemble(ptx, target, lineinfo=False)
        version = ptxas.ptx_version(ptx)
    text = f"libNVVM writes PTX {version[0]}.{version[1]}; assembled for {', '.join(targets)}"
    return Finding("ok", "toolchain", text)


def _store(out: Any) -> None:
    out[0] = 42


def gpu() -> list[Finding]:
    """Report driver and devices, and launch a kernel if there is one."""
    try:
        count = driver.device_count()
    except DriverError as error:
        return [Finding("note", "GPU", str(error))]
    found = [_guarded("driver", _driver)]
    for index in range(count):
        found.append(_device(index))
    if count and all(f.level == "ok" for f in found):
        found.append(_guarded("launch", _launch))
    return found


def _driver() -> Finding:
    from nbtc import tools

    have = driver.cuda_version()
    need = tools.find("ptxas").release
    name = driver.driver_version() or "?"
    text = f"{name}, CUDA {have[0]}.{have[1]}"
    if have[0] < need[0]:
        return Finding(
            "problem",
            "driver",
            f"{text}: does not load what ptxas {need[0]}.{need[1]} writes",
            f"update the driver to one of CUDA {need[0]}.0 or later",
        )
    return Finding("ok", "driver", text)


def _device(index: int) -> Finding:
    major, minor = driver.compute_capability(index)
    text = f"{driver.device_name(index)}, compute capability {major}.{minor}"
    try:
        return Finding("ok", f"GPU {index}", f"{text}, target {arch.from_cc((major, minor))}")
    except ArchError as error:
        return Finding("note", f"GPU {index}", f"{text}: {error}")


def _launch() -> Finding:
    from nbtc.device_array import DeviceArray
    from nbtc.jit import jit

    out = DeviceArray(1, "int32").fill_bytes(0)
    jit(_store)[1, 1](out)
    got = int(out.numpy()[0])
    if got != 42:
        return Finding("problem", "launch", f"a kernel that stores 42 stored {got}")
    return Finding("ok", "launch", "a kernel was compiled, launched and gave the right value")


def _guarded(subject: str, look: Callable[..., Finding], *args: Any) -> Finding:
    """Return what ``look`` finds, or its error as a problem."""
    try:
        return look(*args)
    except NbtcError as error:
        return Finding("problem", subject, str(error))
    except Exception as error:  # an import that fails is exactly what is looked for here
        text = f"{type(error).__name__}: {error}"
        return Finding("problem", subject, text, _known_remedy(text))


def _known_remedy(text: str) -> str:
    if "row_stack" in text or "numpy" in text.lower():
        return "pip install 'numpy<2.5': numba-cuda does not import with newer NumPy"
    return ""


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
