"""Special registers as rows of lanes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import EmulatorError
from .machine import LANE, LANES

_AXIS = {"x": 0, "y": 1, "z": 2}


def special_row(warp: Any, name: str) -> np.ndarray:
    """Give the row (uint32, or uint64 for 64-bit registers) of a fixed special register."""
    value = _value(warp, name)
    if isinstance(value, np.ndarray):
        return value.astype(np.uint32)
    wide = name in ("current_graph_exec",)
    return np.full(LANES, value & 0xFFFFFFFF, np.uint64 if wide else np.uint32)


def _value(warp: Any, name: str) -> Any:
    cta, machine = warp.cta, warp.machine
    cluster = cta.cluster
    base, _, axis = name.partition(".")
    if axis:
        if axis == "w":
            return 0
        k = _AXIS[axis]
        if base == "tid":
            linear = warp.index * LANES + LANE
            x, y, _ = machine.block
            return (linear % x, linear // x % y, linear // (x * y))[k]
        if base == "cluster_ctaid":
            x, y, _ = cluster.dims
            return (cta.rank % x, cta.rank // x % y, cta.rank // (x * y))[k]
        triples = {
            "ntid": machine.block,
            "ctaid": cta.ctaid,
            "nctaid": machine.grid,
            "clusterid": cluster.clusterid,
            "cluster_nctaid": cluster.dims,
            "nclusterid": tuple(g // c for g, c in zip(machine.grid, cluster.dims, strict=True)),
        }
        if base in triples:
            return triples[base][k]
    masks = {
        "lanemask_eq": 1 << LANE,
        "lanemask_lt": (1 << LANE) - 1,
        "lanemask_le": (2 << LANE) - 1,
        "lanemask_gt": ~((2 << LANE) - 1) & 0xFFFFFFFF,
        "lanemask_ge": ~((1 << LANE) - 1) & 0xFFFFFFFF,
    }
    if name in masks:
        return masks[name]
    if name == "laneid":
        return LANE
    size = cta.shared.size
    simple = {
        "warpid": warp.index,
        "nwarpid": len(cta.warps),
        "smid": cta.rank,
        "nsmid": 132,
        "gridid": 1,
        "cluster_ctarank": cta.rank,
        "cluster_nctarank": len(cluster.ctas),
        "dynamic_smem_size": machine.dynamic_smem,
        "total_smem_size": (size + 127) // 128 * 128,
        "aggr_smem_size": (size + 127) // 128 * 128 + 1024,
        "is_explicit_cluster": int(machine.explicit_cluster),
        "current_graph_exec": 0,
        "reserved_smem_offset_begin": 0,
        "reserved_smem_offset_end": 1024,
        "reserved_smem_offset_cap": 1024,
        "reserved_smem_offset_0": 0,
        "reserved_smem_offset_1": 0,
    }
    if name in simple:
        return simple[name]
    if name.startswith(("envreg", "pm")):
        return 0
    raise EmulatorError(f"special register %{name} is not modelled")
