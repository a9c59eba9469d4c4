"""Where the warps of a launch stand when the user interrupts it."""

from __future__ import annotations

import sys
from typing import Any

from . import progress
from .endless import position
from .race_places import where

__all__ = ["show_warps", "warp_lines"]

_LINES = 64


def warp_lines(clusters: list[Any]) -> list[str]:
    """Give a line for every live warp: CTA, warp, Python line, and what it waits for."""
    lines = []
    for cta in (cta for cluster in clusters for cta in cluster.ctas):
        x, y, z = cta.ctaid
        rank = f" rank {cta.rank}" if len(cta.cluster.ctas) > 1 else ""
        for warp in cta.warps:
            for path in warp.paths if warp.live.any() else ():
                lanes = int(path.mask.sum())
                some = f" ({lanes} lanes)" if lanes < warp.live.sum() else ""
                what = "runs" if path.wait is None else path.wait.describe()
                lines.append(
                    f"CTA {x},{y},{z}{rank} warp {warp.index}{some}: "
                    f"{where(position(path))}: {what}"
                )
    return lines


def show_warps(machine: Any) -> None:
    """Print the lines to stderr."""
    progress.make_way()
    lines = warp_lines(machine.clusters)
    rest = len(lines) - _LINES
    if rest > 0:
        lines[_LINES:] = [f"and {rest} more warps"]
    if machine.waiting_clusters:
        lines.append(f"{len(machine.waiting_clusters)} CTAs or clusters have not started")
    text = "\n".join(f"    {line}" for line in lines)
    print(f"interrupted; live warps of the launch:\n{text}", file=sys.stderr, flush=True)
