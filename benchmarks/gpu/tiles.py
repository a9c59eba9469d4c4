"""Every tile that ``nbtc.gemm.choose`` compares, on the shapes of ``shapes.py``.

What ``nbtc/gemm/choice.py`` estimates is fitted to these times, and a test holds its choice against
them. Runs on request (``--only tiles``) and writes ``<gpu>_tiles.json`` beside the results.
"""

from __future__ import annotations

import json
from typing import Any

from nbtc.gemm import choice

from .common import Context, file_name, precompile
from .shapes import SHAPES, compare, on_stream, short_name

MOST_FLOPS = 3e11
"""Larger problems get the widest tile anyhow."""


def run(context: Context) -> dict[str, Any]:
    """Time all candidates of all shapes."""
    library, kind = context.library, context.dtype
    shapes = ((16, 64, 64),) if context.smoke else SHAPES
    every: dict[tuple[int, int, int], dict[str, Any]] = {}
    for m, n, k in shapes:
        if 2 * m * n * k <= MOST_FLOPS:
            found = [
                choice.configuration(tile, kind, kind, "K", "K")
                for tile in choice.candidates(m, n, k, "K", "K", context.sms)
            ]
            every[m, n, k] = {short_name(config): config for config in found if config}
    precompile((c for configs in every.values() for c in configs.values()), context.left / 2)
    table: dict[str, dict[str, float]] = {}
    for shape, configs in every.items():
        if context.left < 3:
            break
        functions: dict[str, Any] = {}
        if library.has_mm:
            functions["cublas"] = lambda a, b, out: library.mm(a, b.T, out)
        functions |= {name: on_stream(library, config) for name, config in configs.items()}
        table["x".join(map(str, shape))] = compare(context, shape, functions)["us"]
    path = context.results / f"{file_name(context.smoke)}_tiles.json"
    rows = [f" {json.dumps(shape)}: {json.dumps(times)}" for shape, times in table.items()]
    path.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    return {
        "status": "ok" if len(table) == len(every) else "failed",
        "shapes": len(table),
        "summary": f"{sum(map(len, table.values()))} times of {len(table)} shapes in {path.name}",
    }
