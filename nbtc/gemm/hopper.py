"""The Hopper GEMM kernel: persistent, warp-specialised, multi-stage, with cluster multicast.

One producer warpgroup (a single thread of it) fills a ring of A and B tiles by TMA; one to three
consumer warpgroups multiply them with wgmma and write C to shared memory; one further warp for each
consumer stores it by TMA, so that the store of one tile overlaps the main loop of the next.
Everything is Numba Python.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda.types import int32, uint16, uint32, uint64

from nbtc.device import epilogue, math32, mma, pipeline, scheduler, unroll
from nbtc.device import shared_numba as _shared_numba  # noqa: F401 - teaches Numba layouts
from nbtc.gemm.config import EVICT_NORMAL, LAST_USE, POLICIES, HopperConfig
from nbtc.intrinsics import cluster, fence, mbarrier, sync, tensormap, tma, wgmma
from nbtc.jit import Kernel, device, jit
from nbtc.ptx import registers


def make_kernel(config: HopperConfig, function: Callable[..., Any] | None = None) -> Kernel:
    """Return the kernel of one configuration, the same object each time.

    Its arguments are ``(a_map, b_map, c_map, m, n, k, order, extra)``: tensor maps of A, B and C
    with the boxes of the configuration, the sizes as int32, the list of tiles of a Hilbert schedule
    (None otherwise), and a tuple of what the epilogue takes.

    Args:
        config: tile, stages, cluster and the rest.
        function: epilogue, a device function of (value, row, column, *extra); None stores the
            product itself.
    """
    return _make_kernel(config, function)


@functools.lru_cache(maxsize=256)
def _make_kernel(config: HopperConfig, function: Callable[..., Any] | None) -> Kernel:
    # Compile-time constants of the kernel are bare names.
    layout = config.layout
    TILE_M, TILE_N, TILE_K = config.tile
    STAGES, CONSUMERS = config.stages, config.consumers
    GROUP = config.group if config.schedule == "grouped" else 1
    CLUSTER_M, CLUSTER_N = config.cluster
    CTAS = CLUSTER_M * CLUSTER_N
    DTYPE, OUT_DTYPE = config.dtype, config.out_dtype
    A_MAJOR, B_MAJOR = config.a_major, config.b_major
    CLUSTER_ROWS, CLUSTER_COLUMNS = CLUSTER_M * TILE_M, CLUSTER_N * TILE_N
    WG_ROWS = TILE_M // CONSUMERS
    ACCUMULATORS = config.accumulators
    PRODUCER_REGISTERS = config.producer_registers
    CONSUMER_REGISTERS = config.consumer_registers
    COLUMNS, BUFFERS = config.store_columns, config.buffers
    a_tile, b_tile = config.a_tile, config.b_tile
    A_WG_BYTES = a_tile.mn_offset(WG_ROWS) if CONSUMERS > 1 else 0
    STAGE_BYTES = a_tile.size_bytes + b_tile.size_bytes
    EMPTY_ARRIVALS = CONSUMERS * CTAS
    # A CTA of a cluster loads one of CLUSTER_N parts of A and one of CLUSTER_M parts of B.
    A_PART, B_PART = TILE_M // CLUSTER_N, TILE_N // CLUSTER_M
    A_K_MAJOR, B_K_MAJOR = A_MAJOR == "K", B_MAJOR == "K"
    A_SPAN, B_SPAN = a_tile.box[1], b_tile.box[1]
    A_COPIES = a_tile.copies if A_K_MAJOR else a_tile.copies // CLUSTER_N
    B_COPIES = b_tile.copies if B_K_MAJOR else b_tile.copies // CLUSTER_M
    A_BOX, B_BOX = a_tile.box_bytes, b_tile.box_bytes
    A_PART_BYTES = a_tile.mn_offset(A_PART) if CLUSTER_N > 1 else 0
    B_PART_BYTES = b_tile.mn_offset(B_PART) if CLUSTER_M > 1 else 0
    SAME_ROW = (1 << CLUSTER_N) - 1
    SAME_COLUMN = sum(1 << (i * CLUSTER_N) for i in range(CLUSTER_M))
    HILBERT = config.schedule == "hilbert"
    RING = STAGES > 1
    A_POLICY, B_POLICY, C_POLICY = (POLICIES.get(p) for p in config.policies)
    A_LAST_USE, B_LAST_USE = (p == LAST_USE for p in config.policies[:2])
    NORMAL, FIRST = EVICT_NORMAL, POLICIES["evict_first"]
    # A tile of C leaves in pieces: COLUMNS wide, 64 rows high.
    PIECES_N = TILE_N // COLUMNS
    PIECES = WG_ROWS // 64 * PIECES_N
    PIECE_BYTES = layout.pieces["c"].stride // BUFFERS
    STORE_THREADS = 32 * (1 + CONSUMERS)
    STORE_SLOTS, KEPT = CONSUMERS * BUFFERS, BUFFERS - 1
    epilogue_function = function

    @device
    def multiply(d, index, k_block, stage, parity, consumer, target, signals):
        """Multiply the k-block number ``index`` from ``k_block`` on, whose stage is ``stage``."""
        first = (uint32(k_block) | index) == 0
        stage = uint32(stage + index)
        pipeline.wait(layout.full[stage], parity)
        a = layout.a[stage] + consumer * A_WG_BYTES
        d = wgmma.fence(d)
        d = mma.block(d, a, layout.b[stage], first, DTYPE, WG_ROWS, TILE_N,
                      TILE_K, TILE_M, TILE_N, A_MAJOR, B_MAJOR)  # fmt: skip
        wgmma.commit_group()
        if RING:
            # The wgmma of the k-block before are done: its stage is free.
            d = wgmma.wait_group(d, n=1)
            previous = uint32(STAGES - 1) if stage == 0 else uint32(stage - 1)
            if signals and not first:
                mbarrier.arrive_remote(cluster.mapa(layout.empty[previous], target))
        else:
            d = wgmma.wait_group(d, n=0)
            if signals:
                mbarrier.arrive_remote(cluster.mapa(layout.empty[stage], target))
        return d

    @jit(shared=layout, launch_bounds=(config.threads, 1), cluster=(CTAS, 1, 1), pdl=True)
    def gemm(a_map, b_map, c_map, m, n, k, order, extra):
        # The next kernel's blocks may start as soon as ours leave an SM; they wait below.
        sync.launch_dependents()
        thread = int32(cuda.threadIdx.x)
        warpgroup = thread // 128
        rank = cluster.cta_rank()
        # The rank counts columns of the cluster first.
        part_n = math32.mod(rank, CLUSTER_N)
        part_m = math32.div(rank, CLUSTER_N)

        if thread == 0:
            for stage in range(STAGES):
                mbarrier.init(layout.full[stage], 1)
                mbarrier.init(layout.empty[stage], EMPTY_ARRIVALS)
            for slot in range(STORE_SLOTS):
                mbarrier.init(layout.c_ready[slot], 4)
                mbarrier.init(layout.c_free[slot], 1)
            fence.mbarrier_init()
            tensormap.prefetch(a_map)
            tensormap.prefetch(b_map)
            tensormap.prefetch(c_map)
        if CTAS > 1:
            cluster.arrive(sem="relaxed")
            cluster.wait()
        else:
            cuda.syncthreads()
        sync.grid_wait()

        k_blocks = int32(math32.ceil_div(k, TILE_K))
        rows = math32.ceil_div(m, CLUSTER_ROWS)
        columns = math32.ceil_div(n, CLUSTER_COLUMNS)
        tiles = math32.mul(rows, columns)
        tile = cluster.cluster_id_x()
        step = cluster.num_cluster_x()

        if warpgroup == 0:
            sync.setmaxnreg_dec(n=PRODUCER_REGISTERS)
            if thread < 32 and sync.elect():
                state = pipeline.producer_start()
                while tile < tiles:
                    if HILBERT:
                        tile_m, tile_n = scheduler.listed(order, tile)
                    else:
                        tile_m, tile_n = scheduler.grouped(tile, rows, columns, GROUP)
                    row = int32((tile_m * CLUSTER_M + part_m) * TILE_M + part_n * A_PART)
                    column = int32((tile_n * CLUSTER_N + part_n) * TILE_N + part_m * B_PART)
                    a_policy, b_policy = A_POLICY, B_POLICY
                    following = math32.add(tile, step)
                    again = scheduler.reuse(tile, following, rows, columns, GROUP)
                    if A_LAST_USE:
                        a_policy = uint64(NORMAL) if again[0] else uint64(FIRST)
                    if B_LAST_USE:
                        b_policy = uint64(NORMAL) if again[1] else uint64(FIRST)
                    for k_block in range(k_blocks):
                        depth = int32(k_block * TILE_K)
                        stage = state.stage
                        full = layout.full[stage]
                        pipeline.wait(layout.empty[stage], state.parity)
                        mbarrier.arrive_expect_tx(full, STAGE_BYTES)
                        a = layout.a[stage] + part_n * A_PART_BYTES
                        for copy in range(A_COPIES):
                            if A_K_MAJOR:
                                x, y = int32(depth + copy * A_SPAN), row
                            else:
                                x, y = int32(row + copy * A_SPAN), depth
                            if CLUSTER_N > 1:
                                mask = uint16(SAME_ROW << (part_m * CLUSTER_N))
                                tma.load(a + copy * A_BOX, a_map, (x, y), full, mask, a_policy)
                            else:
                                tma.load(a + copy * A_BOX, a_map, (x, y), full, None, a_policy)
                        b = layout.b[stage] + part_m * B_PART_BYTES
                        for copy in range(B_COPIES):
                            if B_K_MAJOR:
                                x, y = int32(depth + copy * B_SPAN), column
                            else:
                                x, y = int32(column + copy * B_SPAN), depth
                            if CLUSTER_M > 1:
                                mask = uint16(SAME_COLUMN << part_n)
                                tma.load(b + copy * B_BOX, b_map, (x, y), full, mask, b_policy)
                            else:
                                tma.load(b + copy * B_BOX, b_map, (x, y), full, None, b_policy)
                        state = pipeline.advance(state, STAGES)
                    tile = math32.add(tile, step)
            elif thread >= 32 and thread < STORE_THREADS and sync.elect():
                # One warp for each consumer stores the pieces of C that it wrote.
                consumer = int32(thread // 32 - 1)
                first_slot = consumer * BUFFERS
                state = pipeline.consumer_start()
                issued = 0
                while tile < tiles:
                    if HILBERT:
                        tile_m, tile_n = scheduler.listed(order, tile)
                    else:
                        tile_m, tile_n = scheduler.grouped(tile, rows, columns, GROUP)
                    row = int32((tile_m * CLUSTER_M + part_m) * TILE_M + consumer * WG_ROWS)
                    column = int32((tile_n * CLUSTER_N + part_n) * TILE_N)
                    for piece in range(PIECES):
                        pipeline.wait(layout.c_ready[first_slot + state.stage], state.parity)
                        x = int32(column + piece % PIECES_N * COLUMNS)
                        y = int32(row + piece // PIECES_N * 64)
                        source = layout.c[consumer] + state.stage * PIECE_BYTES
                        tma.store(c_map, (x, y), source, C_POLICY)
                        tma.commit_group()
                        tma.wait_group_read(n=KEPT)
                        state = pipeline.advance(state, BUFFERS)
                        issued += 1
                        if issued > KEPT:
                            mbarrier.arrive(layout.c_free[first_slot + state.stage])
                    tile = math32.add(tile, step)
                tma.wait_group_read(n=0)
        else:
            sync.setmaxnreg_inc(n=CONSUMER_REGISTERS)
            # A redux result is warp-uniform to ptxas, which then keeps descriptors in uniform
            # registers.
            consumer = int32(sync.redux(uint32(warpgroup - 1), op="min", type="u32"))
            signals = thread % 128 < CTAS
            target = math32.mod(thread, 128)
            c = layout.c[consumer]
            c_free, c_ready = layout.c_free[consumer * BUFFERS], layout.c_ready[consumer * BUFFERS]
            c_parity = uint32(1)
            state = pipeline.consumer_start()
            while tile < tiles:
                d = registers.undefined(ACCUMULATORS)
                previous = state.stage
                k_block = int32(0)
                while k_block < k_blocks:
                    stage, parity = state.stage, state.parity
                    if RING and stage == 0 and k_blocks - k_block >= STAGES:
                        # A whole lap: stages that are constants cost no address arithmetic.
                        d = unroll.repeat(multiply, d, STAGES, k_block, uint32(0), parity, consumer,
                                          target, signals)  # fmt: skip
                        previous = uint32(STAGES - 1)
                        state = pipeline.advance_lap(state)
                        k_block = int32(k_block + STAGES)
                    else:
                        d = multiply(d, uint32(0), k_block, stage, parity, consumer, target,
                                     signals)  # fmt: skip
                        previous = stage
                        state = pipeline.advance(state, STAGES)
                        k_block = int32(k_block + 1)
                # While the last wgmma run: where this tile is, for the epilogue.
                if HILBERT:
                    tile_m, tile_n = scheduler.listed(order, tile)
                else:
                    tile_m, tile_n = scheduler.grouped(tile, rows, columns, GROUP)
                row = int32((tile_m * CLUSTER_M + part_m) * TILE_M + consumer * WG_ROWS)
                column = int32((tile_n * CLUSTER_N + part_n) * TILE_N)
                d = wgmma.wait_group(d, n=0)
                if RING and signals:
                    mbarrier.arrive_remote(cluster.mapa(layout.empty[previous], target))
                c_parity = epilogue.write(d, c, c_free, c_ready, c_parity, row, column, OUT_DTYPE,
                                          TILE_N, COLUMNS, BUFFERS, epilogue_function,
                                          extra)  # fmt: skip
                tile = math32.add(tile, step)

        if CTAS > 1:
            # A CTA stays until its peers' copies and arrivals into its memory are over.
            cluster.arrive(sem="relaxed")
            cluster.wait()

    return gemm
