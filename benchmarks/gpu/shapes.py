"""bf16 products of many shapes, as ``nbtc.matmul`` chooses its tiles, against cuBLAS.

From 256 to 6144 cubed, and the projections of language models for 16 to 4096 tokens. Batches are
captured in CUDA graphs, so that what is compared is GPU time, also for kernels of 3 us.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

import nbtc
from nbtc.gemm import HopperConfig, choose

from .common import TYPICAL_FLOPS, Context, hot, precompile, relative_error

CUBES = (256, 384, 512, 768, 1024, 1280, 1536, 1792, 2048, 2304, 2560, 3072, 3584, 4608, 6144)
PROJECTIONS = (
    (2048, 2048), (4096, 4096), (6144, 4096), (28672, 4096), (4096, 14336), (5120, 5120),
    (8192, 8192), (10240, 8192), (1024, 8192), (14336, 4096),
)  # fmt: skip
"""(N, K) of layers of models with 1.5 to 70 billion parameters."""
TOKENS = (16, 64, 128, 256, 512, 1024, 4096)
SHAPES = (
    *((size, size, size) for size in CUBES),
    *((m, n, k) for n, k in PROJECTIONS for m in TOKENS),
)
"""(M, N, K)."""

BYTES_PER_S = 3.5e12
LEAST_S = 4e-6
"""Of a call, for the length of a batch."""


def short_name(config: HopperConfig) -> str:
    """Return tile, cluster, narrow width, loaded rows, split of K: 64x64 1x1 a16 k4."""
    m, n, _ = config.tile
    text = f"{m}x{n} {config.cluster[0]}x{config.cluster[1]}"
    text += f" n{config.narrow}" if config.narrow else ""
    text += f" a{config.a_rows}" if config.a_rows else ""
    return text + (f" k{config.split_k}" if config.split_k > 1 else "")


def on_stream(library: Any, config: HopperConfig | None = None) -> Callable[..., Any]:
    """Return out = A B^T on the stream that the library works on."""
    return lambda a, b, out: nbtc.matmul(a, b.T, out, config=config, stream=library.stream())


def compare(
    context: Context, shape: tuple[int, int, int], functions: dict[str, Any], rounds: int = 7
) -> dict[str, Any]:
    """Time functions of (A, B, out) on one shape, in batches of about 2 ms."""
    m, n, k = shape
    flops, traffic = 2 * m * n * k, 2 * (m * k + n * k + m * n)
    seconds = max(flops / TYPICAL_FLOPS, traffic / BYTES_PER_S, LEAST_S)
    return hot(
        functions, context.operands(m, n, k), flops=flops, rounds=rounds, smoke=context.smoke,
        calls=max(4, int(2e-3 / seconds)), capture=context.library.capture,
    )  # fmt: skip


def run(context: Context) -> dict[str, Any]:
    """Time all shapes."""
    library, kind = context.library, context.dtype
    if not library.has_mm:
        return {"status": "unavailable", "summary": "needs a library with cuBLAS"}
    shapes = ((64, 128, 64), (16, 64, 64)) if context.smoke else SHAPES
    chosen = {shape: choose(*shape, kind, kind, "K", "K", context.sms) for shape in shapes}
    precompile(chosen.values(), context.left / 2)
    rows: list[dict[str, Any]] = []
    wrong = []
    for shape in shapes:
        if context.left < 3:
            break
        a, b, out = context.operands(*shape)[0]
        functions = {
            "cublas": lambda a, b, out: library.mm(a, b.T, out),
            "nbtc": on_stream(library),
        }
        functions["nbtc"](a, b, out)
        want = library.mm(a, b.T, library.poison((shape[0], shape[1]), kind))
        error = relative_error(library, out, want)
        if error > 0.01:
            wrong.append(f"{shape}: relative error {error:.3g}")
        timed = compare(context, shape, functions)
        rows.append(
            {
                "shape": list(shape), "tile": short_name(chosen[shape]), "us": timed["us"],
                "ratio": timed["ratio"]["nbtc"], "relative_error": error,
            }
        )  # fmt: skip
        print(_line(rows[-1]), flush=True)
    ratios = sorted(row["ratio"] for row in rows)
    worst = sorted(rows, key=lambda row: row["ratio"])[:3]
    mean = math.exp(statistics.fmean(map(math.log, ratios))) if ratios else 0.0
    return {
        "status": "ok" if len(rows) == len(shapes) and not wrong else "failed",
        "failures": wrong,
        "dtype": kind,
        "table": rows,
        "summary": f"{len(rows)} shapes: geometric mean {mean:.3f} of cuBLAS, at least 1.00 at "
        f"{sum(r >= 1 for r in ratios)}, at least 0.95 at {sum(r >= 0.95 for r in ratios)}; least "
        + ", ".join(f"{row['ratio']:.3f} at {'x'.join(map(str, row['shape']))}" for row in worst),
    }


def _line(row: dict[str, Any]) -> str:
    size, us = "x".join(map(str, row["shape"])), row["us"]
    return (
        f"  {size:<18} cublas {us['cublas']:8.2f} us  nbtc {us['nbtc']:8.2f} us  "
        f"ratio {row['ratio']:.3f}  {row['tile']}"
    )
