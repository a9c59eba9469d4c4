"""The tests that need a GPU, ``pytest tests/gpu``, in a process of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from .common import Context

ROOT = Path(__file__).resolve().parents[2]


def run(context: Context) -> dict[str, Any]:
    """Run them."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/gpu"]
    if context.smoke:
        command.append("--collect-only")
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False,
            timeout=max(10.0, context.left - 2),
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        tail = (late.stdout or b"")[-2000:]
        print(tail.decode(errors="replace") if isinstance(tail, bytes) else tail)
        return {"status": "failed", "summary": "did not end in time"}
    lines = (done.stdout + done.stderr).strip().splitlines()
    if "No module named pytest" in done.stderr:
        return {"status": "unavailable", "summary": "pytest is not installed"}
    last = lines[-1].strip("= ") if lines else ""
    counts = {kind: int(n) for n, kind in re.findall(r"(\d+) (passed|failed|error|skipped)", last)}
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    nothing_to_run = context.smoke and done.returncode == 5  # no GPU: nothing is collected
    good = done.returncode == 0 or nothing_to_run
    if not good:
        print("\n".join(lines[-80:]))
    return {
        "status": "ok" if good else "failed",
        "counts": counts,
        "failures": failed,
        "summary": last,
    }
