"""Everything that needs a GPU, in one command: tests, correctness, speed, launch time, sanitizer.

``python benchmarks/run_gpu.py`` runs all sections within ``--budget`` seconds, each in a process of
its own with a time limit, so that one that fails or hangs stops nothing else. What was measured
goes to ``benchmarks/results/<gpu>.json`` after each section; a short table is printed last.

``--only correctness,perf`` runs some of them; results of the others, from earlier runs, stay in the
file with their own date and commit. ``--smoke`` runs tiny problems, also without a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT), str(HERE)]

# Module, and the most seconds a section gets; in the order in which they run.
SECTIONS = {
    "tests": ("gpu.hardware_tests", 150),
    "correctness": ("gpu.correctness", 150),
    "carried": ("gpu.carried", 40),
    "agreement": ("gpu.agreement", 90),
    "racecheck": ("gpu.racecheck", 90),
    "perf": ("gpu.performance", 120),
    "shapes": ("gpu.shapes", 60),
    "migration": ("gpu.migration", 60),
    "host": ("gpu.host", 40),
    "sweep": ("gpu.sweep", 70),
    "sanitizer": ("gpu.sanitizer", 120),
    "tiles": ("gpu.tiles", 300),
}
ON_REQUEST = {"tiles"}
"""Sections that only ``--only`` runs."""
START_SECONDS = 15
"""What a process needs beside its section: imports, a context, the end."""


def main(argv: list[str] | None = None) -> int:
    """Run the sections; return 0 if none failed."""
    options = _options(argv)
    if options.child:
        return _child(options)
    os.environ.setdefault("NBTC_CACHE_DIR", str(Path(options.cache).resolve()))
    everything = [name for name in SECTIONS if name not in ON_REQUEST]
    names = options.only.split(",") if options.only else everything
    unknown = [name for name in names if name not in SECTIONS]
    if unknown:
        print(f"unknown section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
        return 2
    device = describe(options.smoke)
    folder = Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{device['file']}.json"
    results = _read(path)
    results["device"] = {key: value for key, value in device.items() if key != "file"}
    sections = results.setdefault("sections", {})
    end = time.monotonic() + options.budget
    for name in names:
        left = end - time.monotonic() - START_SECONDS
        if left < 10:
            print(f"== {name}: no time left")
            continue
        seconds = min(left, SECTIONS[name][1])
        print(f"== {name} (at most {seconds:.0f} s)", flush=True)
        sections[name] = _section(name, seconds, folder, options.smoke)
        path.write_text(json.dumps(results, indent=1) + "\n")
    _table({name: sections[name] for name in names if name in sections}, results["device"])
    print(f"results: {path}")
    return int(any(sections[n]["status"] == "failed" for n in names if n in sections))


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help=f"comma-separated: {', '.join(SECTIONS)}")
    parser.add_argument("--budget", type=float, default=470, help="seconds in all (default 470)")
    parser.add_argument("--output", default=str(HERE / "results"), help="folder of the results")
    parser.add_argument("--cache", default="build/nbtc-cache", help="folder of compiled kernels")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to test this script")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    parser.add_argument("--json", default="", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=60, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def describe(smoke: bool) -> dict[str, Any]:
    """Return what identifies the machine and the software."""
    from gpu.common import file_name

    from nbtc import driver, tools
    from nbtc.jit import emulating

    emulated = emulating()
    name = "emulator" if emulated else driver.device_name()
    versions = {}
    for package in ("nbtc", "numba-cuda", "numpy", "torch", "triton", "cupy-cuda13x"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    ptxas = tools.find("ptxas")
    return {
        "file": file_name(smoke),
        "name": name,
        "driver": None if emulated else driver.driver_version(),
        "cuda_of_driver": None if emulated else ".".join(map(str, driver.cuda_version())),
        "python": sys.version.split()[0],
        "ptxas": str(getattr(ptxas, "version", ptxas)),
        "versions": versions,
    }


def commit() -> str:
    """Return the commit that is measured, ``NBTC_COMMIT`` if it is set, empty if unknown."""
    known = os.environ.get("NBTC_COMMIT")
    if known:
        return known
    try:
        done = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"],
            cwd=ROOT, capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _read(path: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        return json.loads(path.read_text())
    return {}


def _section(name: str, seconds: float, folder: Path, smoke: bool) -> dict[str, Any]:
    """Run one section in a child process and return its result, whatever happens to it."""
    answer = folder / f".{name}.json"
    answer.unlink(missing_ok=True)
    command = [
        sys.executable, str(Path(__file__).resolve()), "--child", name, "--json", str(answer),
        "--seconds", f"{seconds:.0f}",
    ]  # fmt: skip
    if smoke:
        command.append("--smoke")
    start = time.monotonic()
    # A group of its own, so that what the child started ends with it.
    child = subprocess.Popen(command, start_new_session=True)
    try:
        code = child.wait(timeout=seconds + START_SECONDS)
        trouble = f"the process ended with status {code}"
    except subprocess.TimeoutExpired:
        trouble = f"stopped after {seconds + START_SECONDS:.0f} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    found = _read(answer)
    answer.unlink(missing_ok=True)
    result = found or {"status": "failed", "summary": trouble}
    return {
        **result,
        "seconds": round(time.monotonic() - start, 1),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
    }


def _child(options: argparse.Namespace) -> int:
    """Run a section in this process and write its result."""
    from gpu import common, libraries

    try:
        module = import_module(SECTIONS[options.child][0])
        folder = Path(options.json).resolve().parent
        context = common.Context(libraries.pick(), options.seconds, options.smoke, folder)
        result = module.run(context)
        result.setdefault("library", f"{context.library.name} {context.library.version}".strip())
    except Exception as error:  # whatever it is, it goes into the result
        traceback.print_exc()
        text = str(error).splitlines()
        result = {"status": "failed", "summary": f"{type(error).__name__}: {' '.join(text)[:300]}"}
    Path(options.json).write_text(json.dumps(result))
    return int(result["status"] == "failed")


def _table(sections: dict[str, dict[str, Any]], device: dict[str, Any]) -> None:
    print(f"\n{device['name']}, driver {device['driver']}, ptxas {device['ptxas']}, {commit()}")
    for name, result in sections.items():
        print(f"{name:<12} {result['status']:<11} {result['seconds']:5.0f} s  {result['summary']}")


if __name__ == "__main__":
    sys.exit(main())
