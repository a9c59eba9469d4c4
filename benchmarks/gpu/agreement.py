"""Hardware and emulator agree: the same kernels and inputs on both, results compared.

The emulator's results do not need a GPU: ``python benchmarks/gpu/agreement.py prepare [FOLDER]``
computes them and assembles the kernels on all cores, into ``build/agreement`` by default. On the
GPU machine the section takes from that folder (or from ``NBTC_AGREEMENT``) what is there and
computes the rest beside the GPU's work. A result is used only for the very PTX, inputs and sources
of the emulator that made it.

Each group of cases runs on the GPU in a process of its own, all groups together; a process that
dies is started again behind the case that it died of. What may differ is stated per case: nothing
in copies, layouts, integers, conversions and sums of small integers. In other floating-point sums
(K + 1) 2^-23 times the largest sum of absolute products, 2^-12 more for 8-bit floats, which the
tensor core aligns with 13 bits, and 2^-9 for float16 accumulators. In ``nbtc.matmul`` one rounding
unit of the result and twice the slack of the section ``correctness``; in examples twice their own.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, wait
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

if __package__ in (None, ""):
    ROOT = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]
    __package__ = "gpu"

from . import (
    agreement_kernels,
    agreement_tma,
    agreement_warp,
    agreement_wgmma,
)
from .agreement_case import ROOT, Case, Tolerance, fingerprint

GROUPS: dict[str, tuple[Callable[[bool], Iterable[Case]], float]] = {
    "wgmma": (agreement_wgmma.cases, 40),
    "tma": (agreement_tma.cases, 40),
    "kernels": (agreement_kernels.cases, 60),
    "warp": (agreement_warp.cases, 40),
}
"""Cases, and the most seconds that they get on the GPU."""
RESTARTS = 8
ASSEMBLERS = 4
"""Threads that assemble what is not prepared."""
STALL_SECONDS = 15
"""A case that takes longer hangs; the first one has the start of the process in it."""
_SHOWN = 5


def folder() -> Path:
    """Return where prepared results lie."""
    return Path(os.environ.get("NBTC_AGREEMENT", ROOT / "build" / "agreement")).resolve()


@functools.cache
def cases_of(group: str, smoke: bool) -> list[Case]:
    """Return the cases of a group, in a fixed order."""
    return list(GROUPS[group][0](smoke))


# -- the emulator's side -------------------------------------------------------------------------


def prepare_case(where: str, group: str, index: int, smoke: bool) -> str:
    """Assemble and emulate one case into ``<key>.npz``; return an error, empty if there is none."""
    case = cases_of(group, smoke)[index]
    error, arrays, tolerances = "", [], []
    try:
        cubin = case.cubin()
        arrays = case.emulate()
        tolerances = [t and dataclasses.astuple(t) for t in case.tolerances()]
    except Exception as wrong:  # it becomes the case's result
        error, cubin = f"{type(wrong).__name__}: {wrong}"[:500], b""
    meta = json.dumps({"error": error, "tolerances": tolerances})
    _save(Path(where), case.key(), arrays, cubin=np.frombuffer(cubin, np.uint8), meta=meta)
    return f"{case.family}: {case.name}: {error}" if error else ""


def _save(
    where: Path, name: str, arrays: list[np.ndarray], *, compress: bool = True, **more: Any
) -> None:
    """Write arrays as raw bytes with their shapes, atomically."""
    columns = {f"r{i}": np.ascontiguousarray(a).view(np.uint8) if a.ndim else a
               for i, a in enumerate(arrays)}  # fmt: skip
    shapes = json.dumps([a.shape for a in arrays])
    with tempfile.NamedTemporaryFile(dir=where, suffix=".part", delete=False) as file:
        write = np.savez_compressed if compress else np.savez
        write(file, shapes=shapes, **columns, **more)
    os.replace(file.name, where / f"{name}.npz")


def _load(path: Path) -> dict[str, Any] | None:
    """Read what `_save` wrote; arrays keep their bytes and get their shapes back."""
    try:
        with np.load(path) as found:
            data = {name: found[name] for name in found.files}
    except (OSError, ValueError):
        return None
    shapes = json.loads(str(data["shapes"]))
    arrays = []
    for i, shape in enumerate(shapes):
        raw = np.ascontiguousarray(data[f"r{i}"]).reshape(-1)
        size = max(1, raw.size // max(1, int(np.prod(shape))))
        arrays.append(raw.reshape(*shape, size))
    return {**data, "arrays": arrays}


def missing(where: Path, smoke: bool) -> list[tuple[str, int]]:
    """Return group and index of the cases that are not prepared."""
    return [
        (group, i)
        for group in GROUPS
        for i, case in enumerate(cases_of(group, smoke))
        if not (where / f"{case.key()}.npz").exists()
    ]


def start_preparing(
    where: Path, smoke: bool, workers: int
) -> tuple[ProcessPoolExecutor | None, list[Any]]:
    """Start to prepare what is missing, in processes of their own."""
    where.mkdir(parents=True, exist_ok=True)
    wanted = missing(where, smoke)
    if not wanted:
        return None, []
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    pool = ProcessPoolExecutor(
        min(workers, len(wanted)), mp_context=multiprocessing.get_context("spawn")
    )
    return pool, [pool.submit(prepare_case, str(where), *one, smoke) for one in wanted]


def versions() -> str:
    """Return what decides whether compiled kernels can be used on another machine."""
    packages = ("numba-cuda", "nvidia-nvvm", "nvidia-cuda-nvcc", "numpy", "llvmlite")
    found = [sys.version.split()[0]]
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.append(f"{package} {metadata.version(package)}")
    return ", ".join(found)


def compile_kernels(where: Path, seconds: float) -> None:
    """Compile the kernels of the products on all cores, unless they come from the same tools."""
    from .common import precompile

    note = where / "versions"
    if note.exists() and note.read_text() == versions():
        return
    precompile(agreement_kernels.configurations(), seconds)
    note.write_text(versions())


def prepare(where: Path, smoke: bool) -> int:
    """Prepare everything; return 0 if the emulator found no fault in any case."""
    pool, futures = start_preparing(where, smoke, os.cpu_count() or 2)
    start, errors = time.monotonic(), []
    for i, future in enumerate(futures, 1):
        error = future.result()
        if error:
            errors.append(error)
            print(error, flush=True)
        if i % 50 == 0 or i == len(futures):
            print(f"{i}/{len(futures)} after {time.monotonic() - start:.0f} s", flush=True)
    if pool:
        pool.shutdown()
    (where / "versions").write_text(versions())
    used = {case.key() for group in GROUPS for case in cases_of(group, smoke)}
    stale = [path for path in where.glob("*.npz") if path.stem not in used]
    for path in () if smoke else stale:
        path.unlink()
    size = sum(path.stat().st_size for path in where.rglob("*") if path.is_file())
    print(f"{len(used)} cases in {where}, {size / 1e6:.1f} MB, {len(errors)} with an error")
    return int(bool(errors))


# -- the GPU's side ------------------------------------------------------------------------------


def hardware(group: str, where: Path, output: Path, first: int, smoke: bool) -> int:
    """Run the cases of a group from number ``first`` and write their results."""
    from nbtc.errors import DriverError

    cases = cases_of(group, smoke)
    cubins: dict[int, Any] = {}
    with ThreadPoolExecutor(ASSEMBLERS) as pool:
        if not smoke:
            for i, case in enumerate(cases[first:], first):
                cubins[i] = pool.submit(_cubin, where, case)
        for i, case in enumerate(cases[first:], first):
            (output / "at").write_text(str(i))
            try:
                if smoke:
                    results = case.emulate(seed=1)
                else:
                    results = case.hardware(cubins.pop(i).result())
            except Exception as wrong:  # one case must not stop the others
                (output / f"{i}.txt").write_text(f"{type(wrong).__name__}: {wrong}"[:500])
                if isinstance(wrong, DriverError):
                    pool.shutdown(wait=False, cancel_futures=True)
                    return 3  # the context is gone
                continue
            _save(output, str(i), results, compress=False)
    return 0


def _cubin(where: Path, case: Case) -> bytes:
    found = _load(where / f"{case.key()}.npz")
    return (found["cubin"].tobytes() if found else b"") or case.cubin()


def run_group(group: str, where: Path, output: Path, seconds: float, smoke: bool) -> str:
    """Run a group in child processes; return why it did not get to the end, empty if it did."""
    end = time.monotonic() + seconds
    first, count, trouble = 0, len(cases_of(group, smoke)), ""
    for _ in range(RESTARTS + 1):
        command = [sys.executable, str(Path(__file__).resolve()), "hardware", group, str(where),
                   str(output), str(first), *(["--smoke"] if smoke else [])]  # fmt: skip
        child = subprocess.Popen(command, start_new_session=True)
        try:
            trouble = _watch(child, output / "at", end, STALL_SECONDS * (4 if smoke else 1))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        if not trouble:
            return ""
        at = output / "at"
        last = int(at.read_text()) if at.exists() else first
        if not (output / f"{last}.txt").exists() and not (output / f"{last}.npz").exists():
            (output / f"{last}.txt").write_text(trouble)
        first = last + 1
        if first >= count or end - time.monotonic() < 3:
            break
    return trouble


def _watch(child: subprocess.Popen[bytes], at: Path, end: float, stall: float) -> str:
    """Wait for a child; return what went wrong, also where it is at one case for too long."""
    seen, since = "", time.monotonic()
    while child.poll() is None:
        now = time.monotonic()
        current = at.read_text() if at.exists() else ""
        if current != seen:
            seen, since = current, now
        if now > end:
            return "out of time"
        if now - since > stall:
            return f"no end within {stall:.0f} s"
        time.sleep(0.05)
    return f"the process ended with status {child.returncode}" if child.returncode else ""


# -- comparing -----------------------------------------------------------------------------------


def compare(got: np.ndarray, want: np.ndarray, tolerance: Tolerance | None) -> dict[str, Any]:
    """Compare raw results, uint8 with the bytes of an element along the last axis.

    Returns:
        ``state``: ``"equal"``, ``"within"`` or ``"mismatch"``; ``worst``, the largest difference
        in units of the tolerance; ``detail``, the first places that differ too much.
    """
    if got.shape != want.shape:
        detail = f"shape {got.shape}, expected {want.shape}"
        return {"state": "mismatch", "worst": None, "detail": detail}
    if np.array_equal(got, want):
        return {"state": "equal", "worst": 0.0, "detail": ""}
    if tolerance is None:
        bad, worst, shown = (got != want).any(axis=-1), None, _bits
    else:
        values, wanted = (_values(array, tolerance.dtype) for array in (got, want))
        allowed = tolerance.absolute + tolerance.relative * np.abs(wanted)
        with np.errstate(invalid="ignore"):
            off = np.abs(values - wanted) / allowed
        same = (values == wanted) | (np.isnan(values) & np.isnan(wanted))
        off = np.where(same, 0.0, np.where(np.isnan(off), np.inf, off))
        bad, worst, shown = off > 1, float(off.max()), _number
        got, want = values, wanted

    if not bad.any():
        return {"state": "within", "worst": worst, "detail": ""}
    places = [tuple(map(int, place)) for place in np.argwhere(bad)[:_SHOWN]]
    first = "; ".join(f"{p}: GPU {shown(got, p)}, emulator {shown(want, p)}" for p in places)
    detail = f"{int(bad.sum())} of {bad.size} elements differ, first {first}"
    return {"state": "mismatch", "worst": worst, "detail": detail}


def _bits(array: np.ndarray, place: tuple[int, ...]) -> str:
    return "0x" + array[place][::-1].tobytes().hex()


def _number(array: np.ndarray, place: tuple[int, ...]) -> str:
    return f"{array[place]:.9g}"


def _values(raw: np.ndarray, dtype: str) -> np.ndarray:
    """Return float64 values of elements of a dtype; packed ones get a last axis of their own."""
    from nbtc.dtypes import canonical

    found = np.ascontiguousarray(raw).view(canonical(dtype).numpy).astype(np.float64)
    return found[..., 0] if found.shape[-1] == 1 else found


def judge(group: str, where: Path, output: Path, smoke: bool) -> dict[str, dict[str, Any]]:
    """Compare all results of a group; return counts and what differs, by family."""
    families: dict[str, dict[str, Any]] = {}
    for i, case in enumerate(cases_of(group, smoke)):
        family = families.setdefault(case.family, {
            "cases": 0, "equal": 0, "within": 0, "mismatch": 0, "not_run": 0, "worst": 0.0,
            "differences": [],
        })  # fmt: skip
        family["cases"] += 1
        state, detail, worst = _verdict(case, i, where, output)
        family[state] += 1
        family["worst"] = max(family["worst"], worst)
        if detail:
            family["differences"].append(f"{case.name}: {detail}")
    return families


def _verdict(case: Case, i: int, where: Path, output: Path) -> tuple[str, str, float]:
    expected = _load(where / f"{case.key()}.npz")
    if expected is None:
        return "not_run", "not emulated in time", 0.0
    meta = json.loads(str(expected["meta"]))
    if meta["error"]:
        return "not_run", f"emulator: {meta['error']}", 0.0
    error, found = output / f"{i}.txt", _load(output / f"{i}.npz")
    if error.exists():
        return "mismatch", f"GPU: {error.read_text()}", 0.0
    if found is None:
        return "not_run", "the GPU did not get to it", 0.0
    results = [
        compare(got, want, Tolerance(*tolerance) if tolerance else None)
        for got, want, tolerance in zip(
            found["arrays"], expected["arrays"], meta["tolerances"], strict=True
        )
    ]
    states = [result["state"] for result in results]
    state = next(s for s in ("mismatch", "within", "equal") if s in states)
    detail = " | ".join(result["detail"] for result in results if result["detail"])
    return state, detail, max(result["worst"] or 0.0 for result in results)


# -- the section ---------------------------------------------------------------------------------


def run(context: Any) -> dict[str, Any]:
    """Run all groups on the GPU, the emulator beside it, and compare."""
    where, smoke = folder(), context.smoke
    where.mkdir(parents=True, exist_ok=True)
    os.environ["NBTC_CACHE_DIR"] = str(where / "kernels")
    families: dict[str, dict[str, Any]] = {}
    with (
        tempfile.TemporaryDirectory() as scratch,
        ThreadPoolExecutor(len(GROUPS)) as threads,
    ):

        def timed(group: str) -> tuple[str, float]:
            output = Path(scratch, group)
            output.mkdir()
            start = time.monotonic()
            if group == "kernels" and not smoke:
                compile_kernels(where, min(30.0, context.left / 2))
            seconds = min(GROUPS[group][1], context.left - 6)
            trouble = run_group(group, where, output, seconds, smoke)
            return trouble, round(time.monotonic() - start, 1)

        # Contexts of several processes share the GPU; what faults in one does not reach another.
        running = {group: threads.submit(timed, group) for group in GROUPS}
        workers = max(1, (os.cpu_count() or 2) - len(GROUPS))
        pool, futures = start_preparing(where, smoke, workers)
        outcomes = {group: future.result() for group, future in running.items()}
        if pool:
            wait(futures, timeout=max(0.0, context.left - 3))
            pool.shutdown(wait=False, cancel_futures=True)
        for group in GROUPS:
            families.update(judge(group, where, Path(scratch, group), smoke))
    return {
        "status": _status(families),
        "families": families,
        "seconds": {group: seconds for group, (_, seconds) in outcomes.items()},
        "troubles": {group: trouble for group, (trouble, _) in outcomes.items() if trouble},
        "emulated_here": len(futures),
        "sources": fingerprint(("nbtc/emulator", "nbtc/layout"))[:12],
        "summary": _summary(families),
    }


def _status(families: dict[str, dict[str, Any]]) -> str:
    wrong = any(f["mismatch"] or f["not_run"] for f in families.values())
    for name, family in families.items():
        for line in family["differences"][:6]:
            print(f"DIFFERENT {name}: {line}", flush=True)
    return "failed" if wrong else "ok"


def _summary(families: dict[str, dict[str, Any]]) -> str:
    total: collections.Counter[str] = collections.Counter()
    for family in families.values():
        total.update({key: family[key] for key in ("cases", "equal", "within", "mismatch",
                                                   "not_run")})  # fmt: skip
    parts = [f"{name} {f['equal'] + f['within']}/{f['cases']}" for name, f in families.items()]
    return (
        f"{total['cases']} cases: {total['equal']} equal, {total['within']} within tolerance, "
        f"{total['mismatch']} different, {total['not_run']} not run ({', '.join(parts)})"
    )


def main(argv: list[str]) -> int:
    """Prepare results, or be one of the section's child processes."""
    smoke = "--smoke" in argv
    words = [word for word in argv if word != "--smoke"]
    if words[:1] == ["prepare"] and len(words) <= 2:
        where = Path(words[1]).resolve() if words[1:] else folder()
        os.environ["NBTC_CACHE_DIR"] = str(where / "kernels")
        return prepare(where, smoke)
    if words[:1] == ["hardware"] and len(words) == 5:
        return hardware(words[1], Path(words[2]), Path(words[3]), int(words[4]), smoke)
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
