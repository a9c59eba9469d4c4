"""``python -m nbtc check FILE.py``: run a script on the emulator and print every report."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from nbtc.errors import NbtcError


def main(
    file: str,
    args: Sequence[str] = (),
    seed: int | None = None,
    completion: str | None = None,
) -> int:
    """Run a script as ``__main__`` with all its launches on the emulator.

    A finding does not stop the script: its report is printed and the script goes on. An exception
    of its own ends it, and is shown as Python would, without the frames of nbtc.

    Args:
        file: the script.
        args: its arguments.
        seed: seed of the schedule; None leaves ``NBTC_SEED``.
        completion: when asynchronous work completes; None leaves ``NBTC_COMPLETION``.

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
    if completion is not None:
        os.environ["NBTC_COMPLETION"] = completion
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
    ending = f"; the script failed: {failed}" if failed else ""
    print(f"=== {path}: {len(reports)} launches, {findings} findings{ending}")
    if findings or failed:
        return 1
    if not reports:
        print(f"nbtc check: {file} launched no kernel: nothing was checked", file=sys.stderr)
        return 2
    return 0


def _run(path: Path, args: Sequence[str]) -> str:
    """Run the script as Python itself would; return what it failed with, or ``""``."""
    argv, search = sys.argv, sys.path[0]
    sys.argv = [str(path), *args]
    sys.path[0] = str(path.resolve().parent)
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return "" if end.code in (None, 0) else f"SystemExit({end.code!r})"
    except NbtcError as error:
        frames = _own_frames(traceback.extract_tb(error.__traceback__), path)
        where = f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""
        print(f"nbtc check: {where}{type(error).__name__}: {error}", file=sys.stderr)
        return type(error).__name__
    except Exception as error:  # the script's own, shown as Python would
        shown = traceback.TracebackException.from_exception(error)
        _leave_out_frames(shown, path)
        print("".join(shown.format()), end="", file=sys.stderr)
        return type(error).__name__
    finally:
        sys.argv, sys.path[0] = argv, search
    return ""


def _own_frames(
    frames: Iterable[traceback.FrameSummary], path: Path
) -> list[traceback.FrameSummary]:
    """Return the frames of the script and of what it uses, without nbtc's and the importer's."""
    package = str(Path(__file__).parent) + os.sep
    return [
        frame
        for frame in frames
        if frame.filename == str(path) or not frame.filename.startswith((package, "<frozen "))
    ]


def _leave_out_frames(shown: traceback.TracebackException, path: Path) -> None:
    """Leave nbtc's frames out of a traceback, of its causes and of the members of a group."""
    shown.stack = traceback.StackSummary.from_list(_own_frames(shown.stack, path))
    for inner in (shown.__cause__, shown.__context__, *(getattr(shown, "exceptions", None) or ())):
        if inner is not None:
            _leave_out_frames(inner, path)
