"""Addresses and descriptors from numbers, for the rare place that needs it.

Shared-memory pieces, ``cluster.mapa``, ``tcgen05.alloc`` and the descriptor builders give values
of the right type; these functions are for numbers that come from elsewhere.
"""

from __future__ import annotations

from nbtc.ptx.addresses import (
    bits,
    cluster,
    descriptor_sm90,
    descriptor_sm100,
    shared,
    tensor_map,
    tmem,
)

__all__ = [
    "bits",
    "cluster",
    "descriptor_sm90",
    "descriptor_sm100",
    "shared",
    "tensor_map",
    "tmem",
]
