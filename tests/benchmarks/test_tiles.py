"""The tiles that ``nbtc.matmul`` chooses, against the times of every tile on an H200."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

from gpu.shapes import short_name

from nbtc import gemm

RESULTS = Path(__file__).absolute().parents[2] / "benchmarks" / "results"
SMS = 132


def test_the_choice_is_close_to_the_fastest_that_was_measured():
    """79 shapes with up to 35 tiles each, cuBLAS in the same rounds."""
    measured = json.loads((RESULTS / "nvidia_h200_tiles.json").read_text())
    assert len(measured) > 60
    slower, ahead = [], []
    for name, times in measured.items():
        m, n, k = map(int, name.split("x"))
        config = gemm.choose(m, n, k, "bfloat16", "bfloat16", "K", "K", SMS)
        chosen = times[short_name(config)]
        fastest = min(time for kind, time in times.items() if kind != "cublas")
        slower.append(chosen / fastest)
        ahead.append(times["cublas"] / chosen)
    assert max(slower) < 1.2
    assert statistics.geometric_mean(slower) < 1.015
    assert statistics.geometric_mean(ahead) > 1.03
