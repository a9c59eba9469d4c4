"""``python -m nbtc demo``: compile the pipelined GEMM, show what came out, run it, check it."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from nbtc.compile import Compiled

DTYPE = "bfloat16"
GPU_SIZE = 4096
EMULATED_SHAPE = (512, 512, 256)
EMULATED_SEEDS = 2

_TENSOR_CORE = re.compile(r"(?:UTC\w*|[HQIBO]G?)MMA")


def main(targets: Sequence[str] | None = None, size: int | None = None) -> int:
    """Compile for every target, then multiply on the GPU or the emulator; return the exit status.

    Args:
        targets: architectures to compile for; None takes all that the GEMM has.
        size: edge of the matrices to multiply; None picks one that takes seconds.

    Returns:
        0 if everything compiled and the product was right (or nothing could run it), else 1.
    """
    from nbtc import gemm
    from nbtc.jit import emulating

    console = Console(highlight=False, soft_wrap=True)
    targets = targets or gemm.TARGETS
    _introduce(console)
    _compile_all(console, targets)
    return _emulated(console, targets, size) if emulating() else _on_gpu(console, size)


def _introduce(console: Console) -> None:
    import nbtc
    from nbtc import tools

    console.print(
        f"nbtc {nbtc.__version__}, Python {platform.python_version()}, "
        f"numba-cuda {metadata.version('numba-cuda')}, ptxas {tools.find('ptxas').version}"
    )


def _compile_all(console: Console, targets: Sequence[str]) -> None:
    from nbtc import gemm

    table = Table(title=f"pipelined GEMM in Numba Python, {DTYPE}, compiled without a GPU")
    for heading in ("target", "compile", "registers", "spills", "shared"):
        table.add_column(heading, justify="left" if heading == "target" else "right")
    table.add_column("tensor-core instructions", no_wrap=True)
    for target in targets:
        with _no_disk_cache():
            start = time.perf_counter()
            compiled = gemm.compile(DTYPE, arch=target)
            seconds = time.perf_counter() - start
        made = compiled.resources
        found = tensor_core_instructions(compiled)
        table.add_row(
            target,
            f"{seconds:.2f} s",
            str(made.registers),
            f"{made.spill_bytes} B",
            f"{made.static_smem_bytes + made.dynamic_smem_bytes} B",
            ", ".join(f"{count} {name}" for name, count in sorted(found.items())) or "none",
        )
    console.print(table)


def tensor_core_instructions(compiled: Compiled) -> Counter[str]:
    """Count the tensor-core instructions in machine code, by opcode: ``{"HGMMA": 4}``."""
    from nbtc import sass

    names = (opcode.split(".")[0] for opcode, _ in sass.opcodes(compiled.sass()))
    return Counter(name for name in names if _TENSOR_CORE.fullmatch(name))


@contextlib.contextmanager
def _no_disk_cache() -> Iterator[None]:
    """Compile afresh, so that the time shown is that of compiling."""
    before = os.environ.get("NBTC_CACHE_DIR")
    os.environ["NBTC_CACHE_DIR"] = ""
    try:
        yield
    finally:
        if before is None:
            del os.environ["NBTC_CACHE_DIR"]
        else:
            os.environ["NBTC_CACHE_DIR"] = before


def _on_gpu(console: Console, size: int | None) -> int:
    import nbtc
    from nbtc import driver, testing

    n = size or GPU_SIZE
    console.print(f"running on {driver.device_name(driver.current_device())}")
    a, b = _inputs(n, n, n)
    da, db = testing.DeviceArray.copy_of(a), testing.DeviceArray.copy_of(b.T).T
    out = testing.DeviceArray((n, n), DTYPE).fill_bytes()
    nbtc.matmul(da, db, out)
    with console.status("checking against NumPy in float64"):
        error = testing.relative_error(out, testing.matmul_reference(a, b))
    times = testing.interleaved({"nbtc": lambda: nbtc.matmul(da, db, out)}, rounds=20)
    micros = times.medians["nbtc"]
    console.print(
        f"{n} x {n} x {n}: {micros:.0f} us, {2 * n**3 / micros / 1e6:.0f} TFLOP/s "
        "(random normal inputs, median of 20 launches, L2 overwritten before each)"
    )
    return _verdict(console, error)


def _emulated(console: Console, targets: Sequence[str], size: int | None) -> int:
    console.print(_why_emulated())
    try:
        from nbtc.emulator import progress
    except ImportError as error:
        console.print(f"The emulator does not import ({error}): only compilation was checked.")
        return 0
    from nbtc import testing

    m, n, k = (size, size, size) if size else EMULATED_SHAPE
    a, b = _inputs(m, n, k)
    reference = testing.matmul_reference(a, b)
    console.print(f"{m} x {n} x {k}, {EMULATED_SEEDS} schedules each, every check on:")
    status = 0
    for target in targets:
        with progress.several(f"{target} on the emulator", EMULATED_SEEDS):
            start = time.perf_counter()
            runs = [_emulate(target, a, b, seed) for seed in range(EMULATED_SEEDS)]
            seconds = time.perf_counter() - start
        findings = [f for _, reports in runs for report in reports for f in report.findings]
        instructions = sum(report.instructions for _, reports in runs for report in reports)
        console.print(
            f"{target}: {seconds:.1f} s, {instructions} warp-instructions, {len(findings)} findings"
        )
        for finding in findings:
            console.print(str(finding), markup=False)
        error = max(testing.relative_error(result, reference) for result, _ in runs)
        status |= _verdict(console, error) | int(bool(findings))
    return status


def _emulate(target: str, a: Any, b: Any, seed: int) -> tuple[Any, list[Any]]:
    """Multiply under one schedule; return the product and the reports of its launches."""
    import nbtc
    from nbtc import testing
    from nbtc.jit import set_report_hook

    reports: list[Any] = []
    set_report_hook(lambda kernel, report: reports.append(report))
    try:
        with testing.emulated(seed=seed):
            return nbtc.matmul(a, b, arch=target), reports
    finally:
        set_report_hook(None)


def _why_emulated() -> str:
    from nbtc import driver

    if driver.available():
        return "NBTC_EMULATE is set: the emitted PTX runs on the CPU emulator"
    return "no GPU on this machine: the emitted PTX runs on the CPU emulator"


def _inputs(m: int, n: int, k: int) -> tuple[Any, Any]:
    """Return A (M x K, K contiguous) and B (K x N, the transposed view of N x K)."""
    from nbtc import testing

    a = testing.random_normal((m, k), DTYPE, seed=1)
    return a, testing.random_normal((n, k), DTYPE, seed=2).T


def _verdict(console: Console, error: float) -> int:
    from nbtc import testing

    limit = testing.tolerance(DTYPE)
    right = error <= limit
    console.print(
        f"  relative error against NumPy in float64: {error:.2e}, "
        + (f"within {limit:.0e}: correct" if right else f"above {limit:.0e}: WRONG")
    )
    return 0 if right else 1
