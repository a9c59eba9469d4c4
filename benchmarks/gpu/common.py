"""What the sections share: context, hot timing, precompiling on all cores."""

from __future__ import annotations

import multiprocessing
import os
import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbtc
from nbtc import driver
from nbtc.gemm import HopperConfig
from nbtc.jit import emulating
from nbtc.testing import sm_clock

L2_BYTES = 200e6
"""Operands of one batch together are more than this, so that L2 holds no whole set."""

TYPICAL_FLOPS = 650e12
SIZES = (
    (2048, 2048, 2048),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (16384, 16384, 8192),
    (8192, 28672, 4096),
    (4096, 4096, 14336),
)
"""(M, N, K) of the performance table."""


def file_name(smoke: bool) -> str:
    """Return the name of the results of this machine, without its ending."""
    name = "emulator" if emulating() else driver.device_name()
    return ("smoke_" if smoke else "") + name.lower().replace(" ", "_")


@dataclass
class Context:
    """One run of a section.

    Attributes:
        library: see ``libraries``.
        seconds: time that the section may take; it stops by itself.
        smoke: tiny sizes, to test the script without a GPU.
        results: folder of the results, for what is too long for the file.
        started: monotonic time of the start.
    """

    library: Any
    seconds: float
    smoke: bool = False
    results: Path = Path("benchmarks/results")
    started: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.seconds - (time.monotonic() - self.started)

    @property
    def sizes(self) -> Sequence[tuple[int, int, int]]:
        """Problems of the performance table."""
        return ((256, 256, 128),) if self.smoke else SIZES

    @property
    def sms(self) -> int:
        """SMs of the GPU, for the choice of a configuration; few on the emulator."""
        return 4 if emulating() else driver.attribute(0, "MULTIPROCESSOR_COUNT")

    @property
    def dtype(self) -> str:
        """Element type of the comparisons: bfloat16 if the library has it."""
        return self.library.dtypes[0]

    def operands(self, m: int, n: int, k: int) -> list[tuple[Any, Any, Any]]:
        """Return sets of A (M x K), B (N x K) and C (M x N), together larger than L2."""
        set_bytes = 2 * (m * k + n * k + m * n)
        count = 1 if self.smoke else max(1, min(8, int(L2_BYTES // set_bytes) + 1))
        make, kind = self.library.normal, self.dtype
        return [
            (make((m, k), kind), make((n, k), kind), self.library.poison((m, n), kind))
            for _ in range(count)
        ]


class _Events:
    """Time of a batch between two CUDA events on the default stream."""

    def __init__(self) -> None:
        self.api = driver.api()
        self.pair = [driver.check(self.api.cuEventCreate(0), "making an event") for _ in "ab"]

    def __call__(self, batch: Callable[[], None]) -> float:
        for event, work in zip(self.pair, (lambda: None, batch), strict=True):
            work()
            driver.check(self.api.cuEventRecord(event, 0), "recording an event")
        driver.check(self.api.cuEventSynchronize(self.pair[1]), "waiting for a kernel")
        return driver.check(self.api.cuEventElapsedTime(*self.pair), "reading an event") * 1e3


def _host_clock(batch: Callable[[], None]) -> float:
    start = time.perf_counter()
    batch()
    return (time.perf_counter() - start) * 1e6


def hot(
    functions: Mapping[str, Callable[..., Any]],
    data: Sequence[tuple[Any, ...]],
    *,
    flops: float,
    rounds: int = 10,
    milliseconds: float = 20,
    seconds: float = 30,
    smoke: bool = False,
    calls: int = 0,
    capture: Callable[[Callable[[], None]], Callable[[], None]] | None = None,
) -> dict[str, Any]:
    """Time functions in interleaved rounds of back-to-back batches, as a training job runs them.

    Each round runs a batch of every function, in shuffled order; the batches cycle through ``data``
    so that the operands of a call are not in L2. Ratios are medians over rounds, paired.

    Args:
        functions: by name, each called with one entry of ``data``; the first is the baseline.
        data: argument tuples.
        flops: floating-point operations of one call.
        rounds: batches per function.
        milliseconds: length of a batch.
        seconds: stop early, after at least three rounds.
        smoke: one call per batch.
        calls: calls of a batch; 0 takes as many as fill ``milliseconds``.
        capture: makes a CUDA graph of a batch and returns what replays it.
    """
    calls = 1 if smoke else calls or max(4, int(milliseconds * 1e-3 / (flops / TYPICAL_FLOPS)))
    timer = _host_clock if emulating() else _Events()
    for function in functions.values():
        for arguments in data:
            function(*arguments)
    if not emulating():
        driver.synchronize()
    batches = {name: _batch(function, data, calls) for name, function in functions.items()}
    if capture is not None:
        batches = {name: capture(batch) for name, batch in batches.items()}
    samples: dict[str, list[float]] = {name: [] for name in functions}
    clocks = []
    shuffler = random.Random(0)
    end = time.monotonic() + seconds
    for turn in range(1 if smoke else rounds):
        order = list(functions)
        shuffler.shuffle(order)
        for name in order:
            samples[name].append(timer(batches[name]) / calls)
        if turn % 4 == 0 and not emulating():
            clocks.append(sm_clock())
        if time.monotonic() > end and turn >= 2:
            break
    first = samples[next(iter(functions))]
    medians = {name: statistics.median(times) for name, times in samples.items()}
    return {
        "us": {name: round(value, 2) for name, value in medians.items()},
        "tflops": {name: round(flops / value / 1e6, 1) for name, value in medians.items()},
        "ratio": {
            name: round(statistics.median(a / b for a, b in zip(first, times, strict=True)), 4)
            for name, times in samples.items()
        },
        "rounds": len(first),
        "calls_per_round": calls,
        "operand_sets": len(data),
        "sm_clock_mhz": clocks,
    }


def _batch(
    function: Callable[..., Any], data: Sequence[tuple[Any, ...]], calls: int
) -> Callable[[], None]:
    def batch() -> None:
        for i in range(calls):
            function(*data[i % len(data)])

    return batch


def tn(a: Any, b: Any, out: Any, config: HopperConfig | None = None) -> Any:
    """Compute out = A B^T with ``nbtc.matmul``."""
    return nbtc.matmul(a, b.T, out, config=config)


def relative_error(library: Any, got: Any, want: Any) -> float:
    """Return max |got - want| / max |want|; infinity if ``got`` has NaN."""
    have, reference = library.double(got), library.double(want)
    if bool((have != have).any()):  # noqa: PLR0124 - true for NaN in any library
        return float("inf")
    return float(abs(have - reference).max() / abs(reference).max())


def _compile(config: HopperConfig, arch: str) -> None:
    names = [name for name in config.__dataclass_fields__ if name != "layout"]
    nbtc.gemm.compile(arch=arch, **{name: getattr(config, name) for name in names})


def precompile(configs: Iterable[HopperConfig], seconds: float) -> int:
    """Compile configurations on all cores into the disk cache; return how many there are."""
    wanted = list(dict.fromkeys(configs))
    if emulating() or len(wanted) < 3:
        return len(wanted)
    arch = nbtc.jit.device_arch()
    workers = min(len(wanted), max(1, (os.cpu_count() or 2) - 2))
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=spawn)
    try:
        wait([pool.submit(_compile, config, arch) for config in wanted], timeout=seconds)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return len(wanted)
