"""Times that mean something: interleaved rounds, CUDA events, a stated L2 policy, clocks.

Two kernels are compared only within one run: the card's clock moves with heat and power, so each
round runs every function once, and the ratio is taken per round.
"""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nbtc import driver, streams
from nbtc.errors import NbtcError


class BenchmarkError(NbtcError, ValueError):
    """A measurement is not usable, for example faster than the memory of the device."""


@dataclass(frozen=True)
class Comparison:
    """Times of several functions, measured in interleaved rounds.

    Attributes:
        samples: microseconds per call and round, by name.
        clocks: SM clock in MHz at start and end, None where it cannot be read.
        flushed: whether L2 was overwritten before every sample.
    """

    samples: Mapping[str, Sequence[float]]
    clocks: tuple[int | None, int | None] = (None, None)
    flushed: bool = True
    notes: tuple[str, ...] = field(default=())

    @property
    def baseline(self) -> str:
        """Name of the first function."""
        return next(iter(self.samples))

    @property
    def medians(self) -> dict[str, float]:
        """Median microseconds per call."""
        return {name: statistics.median(times) for name, times in self.samples.items()}

    @property
    def ratios(self) -> dict[str, float]:
        """Speed relative to the first function: the median over rounds of t_first / t.

        Above 1 is faster than the first function.
        """
        first = self.samples[self.baseline]
        return {
            name: statistics.median(a / b for a, b in zip(first, times, strict=True))
            for name, times in self.samples.items()
        }

    def __str__(self) -> str:
        """Return a table."""
        width = max(len(name) for name in self.samples)
        ratios, medians = self.ratios, self.medians
        lines = [f"{'':{width}}  median us  ratio to {self.baseline}"]
        lines += [f"{name:{width}}  {medians[name]:9.2f}  {ratios[name]:.3f}" for name in medians]
        rounds = len(self.samples[self.baseline])
        policy = "L2 overwritten before each sample" if self.flushed else "L2 as left by the last"
        start, end = self.clocks
        lines.append(f"{rounds} rounds; {policy}; SM clock {start} -> {end} MHz")
        return "\n".join([*lines, *self.notes])


def interleaved(
    functions: Mapping[str, Callable[[], Any]],
    *,
    rounds: int = 30,
    warmup: int = 3,
    calls: int = 1,
    flush_l2: bool = True,
    stream: Any = None,
) -> Comparison:
    """Time functions that launch GPU work, in interleaved rounds, with CUDA events.

    Args:
        functions: by name; the first is the baseline of the ratios. Each only launches.
        rounds: samples per function. The order rotates from round to round.
        warmup: calls of each function before anything is timed (compilation, caches, clocks).
        calls: calls per sample; more than one hides the host's launch time for short kernels.
        flush_l2: overwrite a buffer larger than L2 before each sample. It also keeps the GPU busy
            while the host enqueues, so that the sample has no gap in it.
        stream: the stream that the functions launch on; None is the legacy default stream.

    Returns:
        Medians, ratios and clocks; print it.
    """
    driver.ensure_context()
    api = driver.api()
    handle = streams.handle(stream)
    flush = Flush() if flush_l2 else None
    for _ in range(warmup):
        for function in functions.values():
            function()
    driver.synchronize()
    before = after = sm_clock()
    names = list(functions)
    events: dict[str, list[tuple[Any, Any]]] = {name: [] for name in names}
    for turn in range(rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            function = functions[name]
            if flush is not None:
                flush(handle)
            start, end = _event(api), _event(api)
            driver.check(api.cuEventRecord(start, handle), "recording an event")
            for _ in range(calls):
                function()
            driver.check(api.cuEventRecord(end, handle), "recording an event")
            events[name].append((start, end))
        if turn == rounds // 2:
            after = sm_clock()  # while work is queued, not after it has drained
    driver.synchronize()
    samples = {
        name: [_elapsed(api, *pair) * 1e3 / calls for pair in pairs]
        for name, pairs in events.items()
    }
    for pairs in events.values():
        for start, end in pairs:
            api.cuEventDestroy(start)
            api.cuEventDestroy(end)
    return Comparison(samples, (before, after), flush_l2)


def host_time(function: Callable[[], Any], *, calls: int = 200, repeats: int = 7) -> float:
    """Return the host's microseconds per call of a function that launches: the best of ``repeats``.

    The device is idle at the start of each repeat and ``calls`` is below the launch queue's length,
    so that nothing waits for the GPU.
    """
    for _ in range(10):
        function()
    best = float("inf")
    for _ in range(repeats):
        driver.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            function()
        best = min(best, time.perf_counter() - start)
    driver.synchronize()
    return best / calls * 1e6


class Flush:
    """Overwrites a buffer of four times the L2 cache, on a stream."""

    def __init__(self) -> None:
        """Allocate the buffer."""
        from nbtc.device_array import DeviceArray

        self.nbytes = 4 * max(driver.attribute(driver.current_device(), "L2_CACHE_SIZE"), 1 << 20)
        self._buffer = DeviceArray(self.nbytes, "uint8")

    def __call__(self, stream: Any = None) -> None:
        """Enqueue the overwriting; asynchronous."""
        api = driver.api()
        handle = streams.handle(stream)
        done = api.cuMemsetD8Async(self._buffer.address, 0, self.nbytes, handle)
        driver.check(done, "overwriting the L2 cache")


def peak_bandwidth(device: int = 0) -> float:
    """Return the theoretical memory bandwidth of a device in GB/s."""
    kilohertz = driver.attribute(device, "MEMORY_CLOCK_RATE")
    bits = driver.attribute(device, "GLOBAL_MEMORY_BUS_WIDTH")
    return 2 * kilohertz * 1e3 * bits / 8 / 1e9


def bandwidth(nbytes: int, microseconds: float, device: int = 0) -> float:
    """Return GB/s for bytes moved to and from memory.

    Raises:
        BenchmarkError: it is above the peak of the device, so the data came from L2.
    """
    reached = nbytes / microseconds / 1e3
    peak = peak_bandwidth(device)
    if reached > peak:
        raise BenchmarkError(
            f"{reached:.0f} GB/s > {peak:.0f} GB/s, the peak of this device: {nbytes} B fit the L2 "
            "cache; overwrite L2 before each sample or use more data"
        )
    return reached


def sm_clock(device: int = 0) -> int | None:
    """Return the current SM clock in MHz, None where neither NVML nor nvidia-smi tells."""
    try:
        from cuda.bindings import nvml  # pyright: ignore[reportAttributeAccessIssue]

        nvml.init_v2()
        try:
            bus = driver.check(driver.api().cuDeviceGetPCIBusId(32, driver.device(device)), "bus")
            text = bus.split(b"\0")[0].decode() if isinstance(bus, bytes) else str(bus)
            handle = nvml.device_get_handle_by_pci_bus_id_v2(text)
            return int(nvml.device_get_clock_info(handle, nvml.ClockType.SM))
        finally:
            nvml.shutdown()
    except Exception:  # informative only: no NVML, or no permission
        return _smi_clock()


def _smi_clock() -> int | None:
    command = ["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
        return int(done.stdout.split()[0])
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return None


def _event(api: Any) -> Any:
    return driver.check(api.cuEventCreate(0), "making an event")


def _elapsed(api: Any, start: Any, end: Any) -> float:
    return driver.check(api.cuEventElapsedTime(start, end), "reading an event")
