"""Persistent tile loops: the next tile from cluster launch control or from a static stride.

Every role of a warp-specialised kernel walks the same sequence of tiles. With a static schedule
each computes it for itself; with cluster launch control a scheduler warp asks for clusters that
have not started, and the others read its responses from a ring in shared memory.
"""

from __future__ import annotations

from typing import Any

from numba.cuda.types import uint32

from nbtc.device import math32, pipeline
from nbtc.intrinsics import clc, cluster, fence, mbarrier, sync
from nbtc.jit import device

NO_TILE = 0xFFFFFFFF
"""Number that stands for the end of the sequence; no grid has as many tiles."""


@device
def taken(response, ctas):
    """Return the number of the cluster that a launch-control response took, or NO_TILE.

    Executed by each thread for itself, after the response's mbarrier. The fence orders the read
    before the next response, which the async proxy writes.

    Args:
        response: shared address of the 16 bytes.
        ctas: CTAs of a cluster, a 32-bit value; the grid is one-dimensional.
    """
    words = clc.load_response(response)
    fence.proxy_async()
    tile = uint32(NO_TILE)
    if clc.query_is_canceled(words):
        tile = math32.div(clc.query_first_ctaid_x(words), ctas)
    return tile


def next_tile(layout: Any, stages: int, ctas: int, *, whole_warp: bool) -> Any:
    """Return a device function ``(tile, step, claim) -> (tile, claim)`` for one role.

    Args:
        layout: shared memory with ``clc_response``, ``clc_full`` and ``clc_empty`` of ``stages``
            stages, or anything if ``stages`` is 0.
        stages: responses that can wait to be read; 0 for the static schedule.
        ctas: CTAs of a cluster.
        whole_warp: True if the 32 threads of a warp call it together, False for one thread. Either
            way it makes one arrival on ``clc_empty`` of the cluster's first CTA.
    """
    STAGES, CTAS, WHOLE_WARP = stages, ctas, whole_warp

    @device
    def static(tile, step, claim):
        return math32.add(tile, step), claim

    @device
    def claimed(tile, step, claim):
        stage = claim.stage
        pipeline.wait(layout.clc_full[stage], claim.parity)
        tile = taken(layout.clc_response[stage], CTAS)
        if WHOLE_WARP:
            sync.warp_sync()
            if sync.elect():
                mbarrier.arrive_remote(cluster.mapa(layout.clc_empty[stage], 0))
        else:
            mbarrier.arrive_remote(cluster.mapa(layout.clc_empty[stage], 0))
        return tile, pipeline.advance(claim, STAGES)

    return claimed if stages else static
