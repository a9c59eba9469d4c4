"""Which configuration a Hopper product gets: the one with the least estimated time.

The estimate knows what limits a kernel of this package: tensor cores, what reaches an SM from L2,
device memory, power, and whole waves of tiles. Its constants were fitted to times on an H200
(``benchmarks/results/nvidia_h200_tiles.json``, made by ``benchmarks/gpu/tiles.py``): what is chosen
counts, not that each of them is what the hardware has.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from nbtc.device import scheduler
from nbtc.device.epilogue import STRIP
from nbtc.dtypes import canonical
from nbtc.errors import LayoutError
from nbtc.gemm.config import LAST_USE, HopperConfig, integer

WIDEST = (128, 256, 64)
"""The tile of large problems."""
L2_KEPT_BYTES = 1 << 24
"""How much the next tiles still find in an L2 of 50 MB, of which each half has its own copy."""
NARROWER = STRIP
"""Columns that a narrow tile has less."""
LEAST_SAVED = 0.005
"""Share of the work that narrow tiles must save: they take longer to compile."""
MANY_WAVES = 8
"""Waves from which on it does not matter that raster groups of narrow tiles are no whole waves."""
MOST_STAGES = 12
SPLITS = {2: 1.0, 3: 0.875, 4: 0.875, 6: 0.75}
"""How K may be split, and the share of the SMs that clusters of so many CTAs find free at once."""
WIDEST_SPLIT = 128
LEAST_SPLIT_K = 512
"""Elements of K for each CTA, from which on sending partial products pays."""
ROWS_LOADED = 16
"""``a_rows`` is a multiple of this, so that few values of M need a kernel of their own."""

CLOCK_MHZ = 1750
LAUNCH_US = 0.6
CLUSTER_LAUNCH_US = 0.4
EPILOGUE_CYCLES = 760
"""For 64 x 64 elements of C."""
LEAST_CYCLES = 290
"""Of a k-block: a wait, wgmma, and the arrival that frees its stage."""
TENSOR_CYCLES = {1: 1.44, 2: 1.06}
"""Cycles of wgmma, of those that it takes at its peak, by consumer warpgroups."""
CLUSTER_CYCLES = 18
"""More for a k-block of a single consumer in a cluster of two, which waits for its peer."""
SM_BYTES_PER_CYCLE = 64
"""From L2 to one SM."""
TPC_BYTES_PER_CYCLE = 104
"""From L2 to the two SMs of a TPC."""
OUTSIDE_CYCLES = 9
"""Of TMA for a row of 128 bytes that lies outside of the matrix."""
SPLIT_US = 1.1
"""Of a cluster that shares K: its launch, and the wait for partial products."""
SENT_US = 0.58
"""For 64 x 64 partial products of one CTA."""
MEMORY_TB_PER_S = 5.0
TPC_MEMORY_TB_PER_S = 0.083
"""What one TPC gets from device memory."""
POWER_TFLOPS = 880
"""What the power limit leaves with the widest tile on random numbers."""
TRAFFIC_SHARE = 0.46
"""Share of that power that grows with the bytes per flop of a smaller tile."""


class Tile(NamedTuple):
    """What distinguishes the configurations that are compared.

    Attributes:
        m: rows of a CTA's tile.
        n: columns.
        cluster: CTAs along M that share B.
        narrow: columns of narrow tiles, or 0.
        a_rows: rows of A that are loaded, or 0 for all.
        split_k: CTAs that share K.
    """

    m: int
    n: int
    cluster: int
    narrow: int = 0
    a_rows: int = 0
    split_k: int = 1


def choose(
    m: int, n: int, k: int, dtype: str, out_dtype: str, a_major: str, b_major: str, sms: int
) -> HopperConfig:
    """Return the configuration that ``nbtc.matmul`` takes for a problem.

    Args:
        m: rows of A and C.
        n: columns of B and C.
        k: columns of A, rows of B.
        dtype: element type of A and B.
        out_dtype: element type of C.
        a_major: ``"K"`` or ``"MN"``, see :class:`HopperConfig`.
        b_major: likewise.
        sms: SMs of the GPU.

    Raises:
        LayoutError: a size is no positive integer, or a type or majorness has no kernel.
    """
    sizes = {"m": m, "n": n, "k": k, "sms": sms}
    m, n, k, sms = (integer(f"gemm.choose: {name}", value) for name, value in sizes.items())
    if min(m, n, k, sms) < 1:
        raise LayoutError(f"gemm.choose: m={m}, n={n}, k={k}, sms={sms}; each must be 1 or more")
    tiles = candidates(m, n, k, a_major, b_major, sms)
    tiles.sort(key=lambda tile: estimate(tile, m, n, k, sms))
    for tile in tiles:
        config = configuration(tile, dtype, out_dtype, a_major, b_major)
        if config is not None:
            return config.replace(policies=_policies(config, m, n, k, sms))
    # It is not the tile: this names what has no kernel.
    return HopperConfig(dtype, out_dtype, a_major=a_major, b_major=b_major)


def candidates(m: int, n: int, k: int, a_major: str, b_major: str, sms: int) -> list[Tile]:
    """Return the tiles that a problem may get, the preferred ones of equals first."""
    found = []
    loaded = -(-m // ROWS_LOADED) * ROWS_LOADED
    for rows, widths in ((128, (256, 224, 192, 160, 128, 96, 64)), (64, (128, 96, 64))):
        if rows == 128 and m <= 64:
            continue
        for width in widths:
            if b_major == "MN" and width % 64:
                continue  # its TMA boxes would be 64 or 32 bytes wide
            for cluster in (2, 1):
                # One row of tiles has no peer; the widest tile is limited by power, and one in a
                # cluster takes half of B's traffic.
                single = cluster == 1 and (width < 256 or math.ceil(m / rows) % 2)
                if not (single or (cluster == 2 and m > rows)):
                    continue
                narrow = _narrow(m, n, sms) if (width, cluster) == (256, 2) else 0
                fewer = loaded if cluster == 1 and a_major == "K" and loaded < rows else 0
                tile = Tile(rows, width, cluster, narrow, fewer)
                found.append(tile)
                if cluster == 1 and width <= WIDEST_SPLIT:
                    tiles = math.ceil(m / rows) * math.ceil(n / width)
                    found += [
                        tile._replace(split_k=parts)
                        for parts, share in SPLITS.items()
                        if parts * tiles <= sms * share and k >= parts * LEAST_SPLIT_K
                    ]
    return found


def estimate(tile: Tile, m: int, n: int, k: int, sms: int) -> float:
    """Return microseconds of a product of 16-bit operands, from launch to launch."""
    rows, columns = math.ceil(m / (tile.m * tile.cluster)), math.ceil(n / tile.n)
    clusters = max(sms // tile.cluster, 1)
    tiles = rows * columns * tile.split_k
    waves = math.ceil(tiles / clusters)
    k_blocks = math.ceil(k / 64 / tile.split_k)
    tpcs = max(sms // 2, 1)
    both = tile.cluster == 2 or tiles > tpcs  # SMs of a TPC work
    # What one CTA loads for a k-block: rows of 128 bytes, some of them outside of A.
    loaded = tile.a_rows or tile.m
    ctas = 1 if tile.a_rows else rows * tile.cluster
    outside = max(0, loaded * ctas - m) / ctas
    own, shared = loaded - outside + tile.n, loaded - outside + tile.n / tile.cluster
    cycles = max(
        tile.m * tile.n / 32 * TENSOR_CYCLES[tile.m // 64],
        own * 128 / SM_BYTES_PER_CYCLE + outside * OUTSIDE_CYCLES,
        shared * 128 * (2 if both else 1) / TPC_BYTES_PER_CYCLE,
        LEAST_CYCLES,
    )
    if tile.cluster == 2 and tile.m == 64:
        cycles += CLUSTER_CYCLES
    busiest: float = waves
    if tile.narrow:
        busiest = _balance(rows, n, clusters).units * NARROWER / tile.n
    cycles = busiest * k_blocks * cycles + waves * EPILOGUE_CYCLES * tile.m * tile.n / 4096
    total = 2 * (m * k + n * k + m * n)
    memory = max(
        total / MEMORY_TB_PER_S, total * math.ceil(tiles / tpcs) / tiles / TPC_MEMORY_TB_PER_S
    )
    traffic = (1 / tile.m + 1 / tile.n) / (1 / WIDEST[0] + 1 / WIDEST[1]) - 1
    power = 2 * m * n * k / POWER_TFLOPS * (1 + TRAFFIC_SHARE * traffic)
    launch = LAUNCH_US + (CLUSTER_LAUNCH_US if tile.cluster == 2 else 0)
    if tile.split_k > 1:
        launch += SPLIT_US + SENT_US * (tile.split_k - 1) * tile.m * tile.n / 4096
    return launch + max(cycles / CLOCK_MHZ, memory / 1e6, power / 1e6)


@functools.lru_cache(maxsize=256)
def configuration(
    tile: Tile, dtype: str, out_dtype: str, a_major: str, b_major: str
) -> HopperConfig | None:
    """Return the configuration of a tile with as many stages as fit, or None if there is none."""
    for stages in range(MOST_STAGES, 0, -1):
        try:
            return HopperConfig(
                dtype=dtype, out_dtype=out_dtype, a_major=a_major, b_major=b_major,
                tile=(tile.m, tile.n, 64), consumers=tile.m // 64, cluster=(tile.cluster, 1),
                narrow=tile.narrow, a_rows=tile.a_rows, split_k=tile.split_k, stages=stages,
            )  # fmt: skip
        except LayoutError:
            continue
    return None


def tile_rows(config: HopperConfig, m: int) -> int:
    """Return the rows of tiles, in clusters."""
    return math.ceil(m / (config.tile[0] * config.cluster[0]))


def cluster_waves(config: HopperConfig, m: int, n: int, sms: int) -> int:
    """Return how many tiles the busiest cluster has, if none is narrow."""
    columns = math.ceil(n / (config.tile[1] * config.cluster[1]))
    return math.ceil(tile_rows(config, m) * columns / _clusters(config, sms))


def balance(config: HopperConfig, m: int, n: int, sms: int) -> scheduler.Balance:
    """Return how the tiles of a configuration with narrow ones fill the GPU."""
    group = config.group if config.schedule == "grouped" else 1
    return _searched(
        tile_rows(config, m), n, config.tile[1], config.narrow, _clusters(config, sms), group
    )


def _clusters(config: HopperConfig, sms: int) -> int:
    return max(sms // config.cluster_size, 1)


# For the choice of a configuration, and for its plan.
_searched = functools.lru_cache(maxsize=64)(scheduler.balance)


def _balance(rows: int, n: int, clusters: int) -> scheduler.Balance:
    wide = WIDEST[1]
    return _searched(rows, n, wide, wide - NARROWER, clusters, HopperConfig.group)


def _narrow(m: int, n: int, sms: int) -> int:
    """Return the columns of narrower tiles, or 0 if the busiest cluster gains too little."""
    rows, clusters, wide = math.ceil(m / (2 * WIDEST[0])), max(sms // 2, 1), WIDEST[1]
    tiles = rows * math.ceil(n / wide)
    waves = math.ceil(tiles / clusters)
    if tiles < clusters * 3 // 4 or waves * LEAST_SAVED >= 1:  # they save a wave at most
        return 0
    columns = waves * wide
    saved = columns - _balance(rows, n, clusters).units * NARROWER
    return wide - NARROWER if saved > LEAST_SAVED * columns else 0


def _policies(config: HopperConfig, m: int, n: int, k: int, sms: int) -> tuple[str, str, str]:
    """Return the L2 policies: what is read again soon stays, if it fits and not all does anyway."""
    none = "", "", ""
    if config.tile != WIDEST or config.cluster != (2, 1):
        return none
    if config.narrow and cluster_waves(config, m, n, sms) < MANY_WAVES:
        # Groups and waves do not coincide: the last tiles of a group run in the next one's wave.
        return none
    size, out_size = canonical(config.dtype).itemsize, canonical(config.out_dtype).itemsize
    rows_again = config.group * config.cluster[0] * config.tile[0] * k * size
    everything = (m + n) * k * size + m * n * out_size
    if rows_again <= L2_KEPT_BYTES and everything > 2 * L2_KEPT_BYTES:
        return LAST_USE, LAST_USE, "evict_first"
    return none
