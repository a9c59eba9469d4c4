"""``python -m nbtc check FILE.py``: run a script on the emulator and print every report."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from nbtc.errors import NbtcError


def main(file: str, args: Sequence[str] = (), seed: int | None = None) -> int:
    """Run a script as ``__main__`` with all its launches on the emulator.

    A finding does not stop the script: its report is printed and the script goes on.

    Args:
        file: the script.
        args: its arguments.
        seed: seed of the schedule; None leaves ``NBTC_SEED``.

    Returns:
        0 no findings; 1 findings, or the script failed; 2 there is no such script, or it launched
        no kernel, so that nothing was checked.
    """
    path = Path(file)
    if not path.is_file():
        print(f"nbtc check: {file}: no such file", file=sys.stderr)
        return 2
    os.environ["NBTC_EMULATE"] = "1"
    if seed is not None:
        os.environ["NBTC_SEED"] = str(seed)
    from nbtc.jit import set_report_hook

    reports: list[Any] = []

    def receive(kernel: Any, report: Any) -> None:
        reports.append(report)
        print(f"--- {kernel.__qualname__}, launch {len(reports)}")
        print(report)

    set_report_hook(receive)
    try:
        failed = _run(path, args)
    finally:
        set_report_hook(None)
    findings = sum(len(report.findings) for report in reports)
    print(f"=== {path}: {len(reports)} launches, {findings} findings")
    if findings or failed:
        return 1
    if not reports:
        print(f"nbtc check: {file} launched no kernel: nothing was checked", file=sys.stderr)
        return 2
    return 0


def _run(path: Path, args: Sequence[str]) -> bool:
    """Run the script as Python itself would; return whether it failed."""
    argv, search = sys.argv, sys.path[0]
    sys.argv = [str(path), *args]
    sys.path[0] = str(path.resolve().parent)
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code not in (None, 0)
    except NbtcError as error:
        print(f"nbtc check: {type(error).__name__}: {error}", file=sys.stderr)
        return True
    except Exception as error:  # the script's own, shown as Python would
        traceback.print_exception(type(error), error, _from_script(error.__traceback__, path))
        return True
    finally:
        sys.argv, sys.path[0] = argv, search
    return False


def _from_script(trace: TracebackType | None, path: Path) -> TracebackType | None:
    """Drop the frames above the script's own; all are kept when it has none (a syntax error)."""
    start = trace
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            return trace
        trace = trace.tb_next
    return start
