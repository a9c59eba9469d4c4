"""The tests that need a GPU, ``pytest tests/gpu``: in several processes, those that time alone."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .common import Context

ROOT = Path(__file__).resolve().parents[2]
PROCESSES = 6
TIMED = re.compile("host_overhead|timing")
"""Tests that measure time, which others beside them would disturb."""


def _pytest(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def _together(groups: Sequence[Sequence[str]], end: float) -> tuple[Counter[str], list[str]]:
    """Run groups of tests side by side; return counts of outcomes, and what failed."""
    started = [_pytest(*group) for group in groups if group]
    counts: Counter[str] = Counter()
    failed = []
    for process in started:
        try:
            output, _ = process.communicate(timeout=max(5.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            failed.append("did not end in time")
        lines = output.strip().splitlines()
        last = lines[-1] if lines else ""
        counts.update(
            {kind: int(n) for n, kind in re.findall(r"(\d+) (passed|failed|error|skipped)", last)}
        )
        failed += [line for line in lines if line.startswith(("FAILED", "ERROR"))]
        if process.returncode != 0:
            print("\n".join(lines[-60:]), flush=True)
            if not failed:
                failed.append(f"pytest ended with {process.returncode}")
    return counts, failed


def run(context: Context) -> dict[str, Any]:
    """Run them."""
    listing = _pytest("--collect-only", "tests/gpu")
    names, _ = listing.communicate()
    if "No module named pytest" in names:
        return {"status": "unavailable", "summary": "pytest is not installed"}
    found = [line for line in names.splitlines() if "::" in line]
    if context.smoke:
        # Without a GPU nothing is collected, which pytest calls 5.
        good = listing.returncode in (0, 5)
        return {"status": "ok" if good else "failed", "summary": f"{len(found)} tests"}
    if not found:
        print(names)
        return {"status": "failed", "summary": "no test was collected"}
    timed = [name for name in found if TIMED.search(name)]
    others = [name for name in found if name not in timed]
    end = time.monotonic() + context.left - 3
    counts, failed = _together([others[i::PROCESSES] for i in range(PROCESSES)], end - 20)
    alone, failed_alone = _together([timed], end)
    counts += alone
    failed += failed_alone
    total = sum(counts.values())
    if total != len(found):
        failed.append(f"{len(found)} tests were collected, {total} reported")
    return {
        "status": "failed" if failed else "ok",
        "counts": dict(counts),
        "failures": failed,
        "summary": ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())),
    }
