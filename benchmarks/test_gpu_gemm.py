"""GPU time of ``nbtc.matmul`` by CUDA events, and its ratio to cuBLAS in the same rounds.

pytest-benchmark's own columns are the host's time for one interleaved measurement; what counts is
in ``extra_info``: microseconds on the GPU, TFLOP/s, ratio, clock. ``run_gpu.py`` makes the tables.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nbtc import testing

sys.path.insert(0, str(Path(__file__).resolve().parent))
from gpu import common, libraries

pytestmark = pytest.mark.skipif(not testing.has_gpu(), reason="needs a GPU")


@pytest.mark.parametrize("size", common.SIZES[:3], ids=lambda s: "x".join(map(str, s)))
def test_against_cublas(benchmark, size):
    m, n, k = size
    context = common.Context(libraries.pick(), seconds=60)
    library = context.library
    data = context.operands(m, n, k)
    functions = {"nbtc": common.tn}
    if library.has_mm:
        functions = {"cublas": lambda a, b, out: library.mm(a, b.T, out), "nbtc": common.tn}
    timed = benchmark.pedantic(
        common.hot, (functions, data), {"flops": 2 * m * n * k, "rounds": 6}, rounds=1
    )
    benchmark.extra_info.update(timed)
    a, b, out = data[0]
    common.tn(a, b, out)
    assert common.relative_error(library, out, library.double(a) @ library.double(b.T)) < 0.01
