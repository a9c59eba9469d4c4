"""Host time per launch beside prepacked ``cuLaunchKernelEx``, torch and numba-cuda; compiling."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda

import nbtc
from nbtc import TensorMap, arguments, driver, testing
from nbtc.gemm import HopperConfig
from nbtc.jit import emulating

from .common import Context, tn


@nbtc.jit
def three_arrays(x, y, z):
    """Do nothing with three arrays."""


@nbtc.jit
def map_and_sizes(tensor_map, n, k):
    """Do nothing with a tensor map and two numbers."""


def _numba_three_arrays(x, y, z):
    """Do nothing with three arrays, for numba-cuda's own launcher."""


def prepacked(kernel: Any, *args: Any) -> Callable[[], Any]:
    """Return a function that launches with parameters packed once: the floor of any launcher."""
    configured = kernel[1, 32]
    plan = configured.plan(*args)
    configured(*args)  # loads the code
    _, fields = arguments.probe(args)
    buffer, table, keep = plan._frame()
    plan.layout.write(buffer, 0, *fields)
    made, api = plan._launch_config(configured.config), driver.api()
    function, call = api.CUfunction(int(plan.load())), api.cuLaunchKernelEx

    def launch(keep: Any = (buffer, keep)) -> None:
        call(made, function, table, 0)

    return launch


def launches(context: Context) -> dict[str, Callable[[], Any]]:
    """Return what is timed, by name."""
    library = context.library
    x, y, z = (library.normal((256, 256), context.dtype) for _ in range(3))
    box = TensorMap.tiled(x, (64, 64), swizzle="128B")
    n = np.int32(256)
    arrays, mapped = three_arrays[1, 32], map_and_sizes[1, 32]
    found: dict[str, Callable[[], Any]] = {
        "cuLaunchKernelEx, 3 arrays prepacked": prepacked(three_arrays, x, y, z),
        "nbtc kernel, 3 arrays": lambda: arrays(x, y, z),
        "nbtc kernel[grid, block], 3 arrays": lambda: three_arrays[1, 32](x, y, z),
        "cuLaunchKernelEx, map and sizes prepacked": prepacked(map_and_sizes, box, n, n),
        "nbtc kernel, map and sizes": lambda: mapped(box, n, n),
        "nbtc.matmul 256^3": lambda: tn(x, y, z),
    }
    if library.has_mm:
        found[f"{library.name} mm 256^3"] = lambda: library.mm(x, y.T, z)
    try:
        plain = cuda.jit(_numba_three_arrays)
        words = [library.words(array) for array in (x, y, z)]
        plain[1, 32](*words)
        found["numba-cuda kernel, 3 arrays"] = lambda: plain[1, 32](*words)
    except Exception as reason:  # its own compiler may not work on every machine
        print(f"numba-cuda: not compared ({type(reason).__name__}: {str(reason)[:200]})")
    return found


def compile_seconds(repeats: int) -> list[float]:
    """Return seconds to compile the default GEMM from Python to cubin, nothing cached."""
    kept = os.environ.get("NBTC_CACHE_DIR")
    os.environ["NBTC_CACHE_DIR"] = ""
    try:
        times = []
        for i in range(repeats):
            start = time.perf_counter()
            # A kernel of its own each time: other sizes of a raster group change only a constant.
            config = HopperConfig(group=5 + i)
            nbtc.gemm.compile(arch="sm_90a", dtype=config.dtype, group=config.group)
            times.append(round(time.perf_counter() - start, 3))
        return times
    finally:
        if kept is None:
            del os.environ["NBTC_CACHE_DIR"]
        else:
            os.environ["NBTC_CACHE_DIR"] = kept


def run(context: Context) -> dict[str, Any]:
    """Measure."""
    seconds = compile_seconds(1 if context.smoke else 3)
    times: dict[str, float] = {}
    if not emulating():
        for name, function in launches(context).items():
            if context.left < 3:
                break
            times[name] = round(testing.host_time(function), 2)
    raw = times.get("cuLaunchKernelEx, 3 arrays prepacked")
    lines = [f"  {name:<44} {value:7.2f} us" for name, value in times.items()]
    if raw:
        lines = [
            f"{line}  {value / raw:5.2f}x"
            for line, value in zip(lines, times.values(), strict=True)
        ]
    lines.append(f"  compile time of the default GEMM: first {seconds[0]} s, then {seconds[1:]}")
    return {
        "status": "ok" if times or emulating() else "failed",
        "host_us": times,
        "compile_seconds": seconds,
        "summary": "\n" + "\n".join(lines),
    }
