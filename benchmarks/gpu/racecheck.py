"""racecheck and the emulator on the same small kernels, racy and correct.

Every kernel of ``agreement_races`` runs under compute-sanitizer in a process of its own, some at a
time, all of them without a limit of messages: a kernel alone has a message for each byte, and the
tool stops printing after 100 by default. ``default_limit`` in the result is what is left of several
racy kernels in one process with that limit. The raw output goes to ``racecheck/<kernel>.txt`` in
the folder of the results.

``python benchmarks/gpu/racecheck.py [FOLDER]`` runs this alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    ROOT = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]
    __package__ = "gpu"

from .agreement_case import ROOT
from .agreement_races import SAMPLES, case_of, cases

WORKERS = max(2, min(10, (os.cpu_count() or 2) - 4))
KERNEL_SECONDS = 25.0
"""The most that one process gets."""
OPTIONS = ("--tool", "racecheck", "--racecheck-report", "all", "--show-backtrace", "no")
UNLIMITED = ("--print-limit", "0")
LIMITED = (
    "no_sync_before_read", "warp_sync_for_block_sync", "no_sync_after_read", "two_writers",
    "copy_no_wait", "mbarrier_no_wait",
)  # fmt: skip
"""Racy kernels that run once more in one process, with the tool's default limit of messages."""
_FIRST_PORT, _PORTS = 49152, 16
"""The tool tries some ports from a first one; with ranges of their own processes keep apart."""
_KEPT = 40_000
_SHOWN = 1500


def reported(text: str, names: Iterable[str]) -> dict[str, bool]:
    """Return for which kernels a text of racecheck reports a hazard."""
    lines = [line for line in text.splitlines() if re.search(r"hazard|Race reported| at ", line)]
    return {name: any(re.search(rf"\brace_{name}\b", line) for line in lines) for name in names}


def emulate() -> dict[str, list[str]]:
    """Return the kinds of findings of the emulator, by kernel."""
    return {
        case.name: sorted({finding.kind for finding in case.report()[0].findings})
        for case in cases()
    }


def run_kernels(cubins: Iterable[Path]) -> None:
    """Run assembled kernels on the GPU; this is what compute-sanitizer watches."""
    for cubin in cubins:
        name = cubin.stem
        case_of(name, SAMPLES[name]).hardware(cubin.read_bytes())
        print(f"ran {name}", flush=True)


def watch(program: str, options: Iterable[str], cubins: Iterable[Path], seconds: float) -> str:
    """Run kernels under racecheck and return what was printed, with a note if they hung."""
    command = [program, *OPTIONS, *options, sys.executable, str(Path(__file__).resolve()),
               "kernels", *map(str, cubins)]  # fmt: skip
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        child = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            child.wait(timeout=max(3.0, min(KERNEL_SECONDS, seconds)))
            note = ""
        except subprocess.TimeoutExpired:
            note = "\ndid not end in time\n"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        output.seek(0)
        return output.read() + note


def ran(name: str, text: str) -> bool:
    """Return whether the kernel ran to its end under the tool."""
    return f"ran {name}" in text and "RACECHECK SUMMARY" in text


def judge(name: str, kinds: list[str], text: str | None) -> dict[str, Any]:
    """Return the verdicts of one kernel; ``text`` is None where racecheck is not installed."""
    sample = SAMPLES[name]
    seen = reported(text, [name])[name] if text is not None and ran(name, text) else None
    expected = sample.expected
    result: dict[str, Any] = {
        "racy": sample.racy,
        "emulator": kinds,
        "racecheck": seen,
        "expected": expected,
        "agree": None if seen is None else seen == bool(kinds),
    }
    notes = {key: getattr(sample, key) for key in ("outside", "missed")}
    result |= {key: note for key, note in notes.items() if note}
    if text is not None:
        result["messages"] = _messages(text)
        if seen != expected:
            result["text"] = text.replace(f"{ROOT}/", "")[:_SHOWN]
    return result


def _messages(text: str) -> int:
    return len(re.findall(r"Potential \w+ hazard", text))


def summarize(kernels: dict[str, dict[str, Any]]) -> tuple[str, str, list[str]]:
    """Return status, summary, and what is not as expected."""
    wrong = []
    for name, kernel in kernels.items():
        if bool(kernel["emulator"]) != SAMPLES[name].reported:
            wrong.append(f"{name}: the emulator says {kernel['emulator'] or 'nothing'}")
    if all(kernel["racecheck"] is None for kernel in kernels.values()):
        return ("failed" if wrong else "unavailable"), "racecheck did not run", wrong
    inside = [k for k in kernels.values() if not ("outside" in k or "missed" in k)]
    outside = [k for k in kernels.values() if "outside" in k]
    for name, kernel in kernels.items():
        if kernel["racecheck"] != kernel["expected"]:
            says = {None: "did not run", True: "reports it", False: "is silent"}
            wrong.append(f"{name}: racecheck {says[kernel['racecheck']]}, expected otherwise")
    agreed = sum(kernel["agree"] is True for kernel in inside)
    racy = sum(kernel["racy"] for kernel in inside)
    unseen = [kernel for kernel in outside if kernel["racy"]]
    alone = sum(bool(k["emulator"]) and k["racecheck"] is False for k in unseen)
    correct = [kernel for kernel in outside if not kernel["racy"]]
    quiet = sum(not k["emulator"] and k["racecheck"] is False for k in correct)
    missed = [kernel for kernel in kernels.values() if "missed" in kernel]
    summary = (
        f"inside racecheck's domain: {agreed} of {len(inside)} agree "
        f"({racy} racy, {len(inside) - racy} correct); outside: {alone} of {len(unseen)} racy "
        f"reported by the emulator alone, {quiet} of {len(correct)} correct by neither; "
        f"outside the emulator's: {sum(k['racecheck'] is True for k in missed)} of {len(missed)} "
        "reported by racecheck alone"
    )
    return ("failed" if wrong else "ok"), summary, wrong


def compare(seconds: float, folder: Path, smoke: bool = False) -> dict[str, Any]:
    """Run all kernels on both sides."""
    from .sanitizer import find

    end = time.monotonic() + seconds
    kinds = emulate()
    program = None if smoke else find()
    texts: dict[str, str] = {}
    more: dict[str, Any] = {}
    if program:
        more["version"] = _version(program)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            cubins = {case.name: Path(scratch, f"{case.name}.cubin") for case in cases()}
            for case in cases():
                cubins[case.name].write_bytes(case.cubin())
            texts = _watch_all(program, cubins, end)
            more["default_limit"] = _limited(program, cubins, end, folder)
        for name, text in texts.items():
            (folder / f"{name}.txt").write_text(text[:_KEPT])
    kernels = {name: judge(name, kinds[name], texts.get(name)) for name in SAMPLES}
    status, summary, wrong = summarize(kernels)
    if not program:
        summary = "compute-sanitizer is not installed on this machine; " + (
            "the emulator reports what it should" if not wrong else "the emulator is wrong"
        )
    return {
        "status": status, "summary": summary, "unexpected": wrong, **more, "kernels": kernels
    }  # fmt: skip


def _version(program: str) -> str:
    done = subprocess.run(
        [program, "--version"], capture_output=True, text=True, timeout=20, check=False
    )
    return (done.stdout.strip().splitlines() or [""])[-1]


def _watch_all(program: str, cubins: dict[str, Path], end: float) -> dict[str, str]:
    """Run every kernel under the tool, those that did not get to their end twice."""

    def one(place: int, name: str) -> str:
        left = end - time.monotonic()
        if left < 3:
            return "no time left\n"
        ports = "--port", str(_FIRST_PORT + _PORTS * place)
        return watch(program, (*UNLIMITED, *ports), [cubins[name]], left)

    with ThreadPoolExecutor(WORKERS) as pool:
        answers = list(pool.map(one, range(len(cubins)), cubins))
    texts = dict(zip(cubins, answers, strict=True))
    for place, (name, text) in enumerate(texts.items(), len(cubins)):
        if not ran(name, text) and end - time.monotonic() > 5:
            texts[name] = one(place, name)
    return texts


def _limited(
    program: str, cubins: dict[str, Path], end: float, folder: Path
) -> dict[str, Any] | None:
    """Return which of several racy kernels in one process the tool names within its limit."""
    names = [name for name in LIMITED if name in cubins]
    left = end - time.monotonic()
    if left < 3:
        return None
    text = watch(program, (), [cubins[name] for name in names], left)
    (folder / "default_limit.txt").write_text(text[:_KEPT])
    found = reported(text, names)
    return {
        "ran": sum(f"ran {name}" in text for name in names),
        "reported": [name for name in names if found[name]],
        "messages": _messages(text),
    }


def run(context: Any) -> dict[str, Any]:
    """Run the section."""
    result = compare(context.left - 3, context.results / "racecheck", context.smoke)
    for line in result["unexpected"]:
        print(f"UNEXPECTED {line}", flush=True)
    return result


def main(argv: list[str]) -> int:
    """Run everything, or be one of the processes under the tool."""
    if argv[:1] == ["kernels"]:
        run_kernels(map(Path, argv[1:]))
        return 0
    import json

    folder = Path(argv[0]) if argv else ROOT / "build" / "racecheck"
    result = compare(120, folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "racecheck.json").write_text(json.dumps(result, indent=1) + "\n")
    for name, kernel in result["kernels"].items():
        said = {None: "not run", True: "reports", False: "silent"}[kernel["racecheck"]]
        print(f"{name:<26} emulator {','.join(kernel['emulator']) or 'silent':<32} "
              f"racecheck {said}")  # fmt: skip
    print(*result["unexpected"], sep="\n")
    print(f"default limit: {result.get('default_limit')}; {result.get('version')}")
    print(f"{result['status']}: {result['summary']}")
    return int(result["status"] == "failed")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
