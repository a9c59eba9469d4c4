"""compute-sanitizer's memcheck and racecheck on small products and the examples, where it runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from .common import Context

HERE = Path(__file__).resolve().parent
TOOLS = ("memcheck", "racecheck")
SHORTEST = 5.0
"""Seconds that a tool gets at least."""
_PLACES = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/opt/cuda/bin")
_UNABLE = re.compile(
    r"unable to|not supported|failed to (initialize|attach|connect)|Target application terminated "
    r"before|Device not supported|permission|Internal Sanitizer Error",
    re.IGNORECASE,
)


def find() -> str | None:
    """Return the path of compute-sanitizer, None if there is none."""
    path = os.pathsep.join([os.environ.get("PATH", ""), *_PLACES])
    found = shutil.which("compute-sanitizer", path=path)
    if found:
        return found
    for folder in map(Path, sys.path):
        for candidate in folder.glob("nvidia/**/compute-sanitizer"):
            if candidate.is_file():
                return str(candidate)
    return None


def check(program: str, tool: str, seconds: float) -> dict[str, Any]:
    """Run the small program under one tool."""
    command = [
        program, "--tool", tool, "--error-exitcode", "99", sys.executable, str(HERE / "small.py"),
    ]  # fmt: skip
    paths = [str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=max(SHORTEST, seconds), check=False,
            env=environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"status": "timeout", "text": f"did not end within {seconds:.0f} s"}
    text = done.stdout + done.stderr
    tail = "\n".join(text.splitlines()[-12:])
    finished = "small: done" in text
    clean = re.search(r"ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards", text)
    if done.returncode == 0 and finished and clean:
        return {"status": "clean"}
    if not finished and (_UNABLE.search(text) or not re.search("SUMMARY: [1-9]", text)):
        return {"status": "unavailable", "text": tail}
    return {"status": "findings", "text": tail}


def run(context: Context) -> dict[str, Any]:
    """Run all tools."""
    program = None if context.smoke else find()
    if program is None:
        text = "compute-sanitizer is not installed on this machine"
        return {"status": "unavailable", "summary": text}
    results = {
        tool: check(program, tool, context.left / (len(TOOLS) - i) - 2)
        for i, tool in enumerate(TOOLS)
    }
    for tool, result in results.items():
        if result["status"] != "clean":
            print(f"{tool}: {result['status']}\n{result['text']}")
    states = {result["status"] for result in results.values()}
    status = "failed" if "findings" in states else "ok" if states == {"clean"} else "unavailable"
    return {
        "status": status,
        "tools": results,
        "summary": ", ".join(f"{tool} {result['status']}" for tool, result in results.items()),
    }
