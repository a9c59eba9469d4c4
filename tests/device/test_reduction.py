"""Sums over a cluster: what is refused. What they compute is in ``tests/gemm/test_choice.py``."""

from __future__ import annotations

import pytest

import nbtc
from nbtc import shared
from nbtc.device import pipeline, reduction
from nbtc.errors import InstructionError
from nbtc.intrinsics import cluster
from nbtc.ptx import registers

LAYOUT = shared.Layout(box=shared.array("float32", 512), full=shared.barriers(2))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            lambda d: reduction.send(d[:3], cluster.mapa(LAYOUT.box, 0), LAYOUT.full[0], 128),
            "reduction.send: d is .* needs float32 accumulators, a multiple of 4",
        ),
        (
            lambda d: reduction.send(d, cluster.mapa(LAYOUT.box, 0), LAYOUT.full[0], 0),
            "reduction.send: threads=0; needs the number of threads that call it",
        ),
        (
            lambda d: reduction.add(d, LAYOUT.box, 1, True),
            "reduction.add: threads=True; needs the number of threads",
        ),
        (
            lambda d: reduction.add(d, LAYOUT.box, 0, 128),
            "reduction.add: count=0; needs the number of CTAs that sent",
        ),
        (
            lambda d: pipeline.drain(LAYOUT.full, d),
            "pipeline.drain: state is .* needs a PipelineState",
        ),
        (
            lambda d: pipeline.drain(LAYOUT.box, pipeline.producer_start()),
            r"pipeline.drain: empty is .* needs barriers of a shared layout .layout.empty",
        ),
    ],
)
def test_refused(function, words):
    function = nbtc.device(function)

    @nbtc.jit(shared=LAYOUT, launch_bounds=128, cluster=2)
    def kernel():
        function(registers.zeros(8))

    with pytest.raises(InstructionError, match=words):
        kernel.compile(arch="sm_90a")
