"""The rules for Hopper kernels, and the mutants that are left out or missed."""

from __future__ import annotations

from mutations.rules_epilogue import AMPERE, CLUSTER, EPILOGUE, SPLIT
from mutations.rules_ring import RING, WGMMA
from mutations.rules_small import SMALL_RULES

RULES = [*RING, *WGMMA, *EPILOGUE, *CLUSTER, *SPLIT, *AMPERE, *SMALL_RULES]

_ONE_BUFFER = "C has one buffer: the wait in the loop already waits for every store"
_ONE_CONSUMER = "with 256 threads there are 255 registers for everyone: the plan is still legal"
EQUIVALENT: dict[tuple[str, str], str] = {
    (
        "wgmma-gemm",
        "named barrier before the writes dropped",
    ): "the CTA stores one tile, so that no buffer is written twice",
    **{
        ("async-stores", rule): "each CTA already waits for all that its peer sends"
        for rule in (
            "cluster does not wait at the end",
            "arrive without wait at the end",
            "a CTA leaves before the cluster's last barrier",
        )
    },
    (
        "bw-multicast",
        "cluster does not wait at the end",
    ): "the TMA warp already waits for the last arrivals of its peer",
    **{
        (name, "last wait for the stores dropped"): _ONE_BUFFER
        for name in ("gemm-s1", "gemm-c21", "gemm-w2", "gemm-w3")
    },
    **{
        (name, "setmaxnreg asks for more than there is"): _ONE_CONSUMER
        for name in ("gemm-s1", "gemm-s2", "gemm-c21", "gemm-c12")
    },
}
"""Mutants that are still correct, with the reason; they are not counted."""

_LANES = (
    "the lanes of a warp run in step and share a clock, so that the order of lane 0's arrive after "
    "the other lanes' writes, which __syncwarp makes, is always there"
)
MISSED: dict[tuple[str, str], str] = {
    **{
        (f"gemm-{name}", "lanes not synchronised before the announcement"): _LANES
        for name in ("s1", "s2", "c21", "c12", "w2", "w3")
    },
}
"""Mutants that the emulator does not name rightly, with the reason; they count as missed."""
