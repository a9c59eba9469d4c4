"""The Blackwell GEMM kernel: persistent, warp-specialised, CTA pairs, tensor-memory accumulators.

As in the Hopper kernel one thread fills a ring of A and B tiles by TMA. What differs: one thread,
not warpgroups, issues the multiplications; the accumulator is in tensor memory, so that four
epilogue warps read one while the next is being made; two CTAs work on one tile; and tiles come from
cluster launch control. Everything is Numba Python.
"""

# Modifiers come from a configuration: to a checker they are any integers.
# pyright: reportArgumentType=false

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda.types import int32, uint16

from nbtc.device import launch_control, math32, pipeline, scheduler, tcgen05_mma, tmem_epilogue
from nbtc.device import shared_numba as _shared_numba  # noqa: F401 - teaches Numba layouts
from nbtc.gemm.blackwell_config import EPILOGUE_WARPS, THREADS, BlackwellConfig
from nbtc.gemm.config import POLICIES
from nbtc.intrinsics import address, clc, cluster, fence, mbarrier, sync, tcgen05, tensormap, tma
from nbtc.jit import Kernel, jit


def make_kernel(
    config: BlackwellConfig, function: Callable[..., Any] | None = None, arch: str = "sm_100a"
) -> Kernel:
    """Return the kernel of one configuration, the same object each time.

    Its arguments are ``(a_map, b_map, c_map, sfa_map, sfb_map, m, n, k, extra)``: tensor maps of A,
    B and C with the boxes of the configuration, maps of the scale factors (None without), the
    sizes as int32, and a tuple of what the epilogue takes. The grid is one-dimensional: a cluster
    for each cluster tile (``"clc"``), or as many clusters as fit the GPU (``"static"``).

    Args:
        config: tile, stages, cluster and the rest.
        function: epilogue, a device function of (value, row, column, *extra); None stores the
            product itself.
        arch: target where the caller of the kernel names none.
    """
    return _make_kernel(config, function, arch)


@functools.lru_cache(maxsize=256)
def _make_kernel(config: BlackwellConfig, function: Callable[..., Any] | None, arch: str) -> Kernel:
    # Compile-time constants of the kernel are bare names.
    layout = config.layout
    TILE_M, TILE_N, TILE_K = config.tile
    STAGES, ACCUMULATORS = config.stages, config.accumulators
    PAIR, GROUP = config.cta_group, config.group
    CLUSTER_M, CLUSTER_N = config.cluster
    CTAS, ROW_CTAS = config.ctas, config.cta_group * config.cluster[1]
    KIND, A_DTYPE, B_DTYPE, OUT_DTYPE = config.kind, config.dtype, config.b_dtype, config.out_dtype
    D_DTYPE, LOADED = ("int32", "s32") if KIND == "i8" else ("float32", "f32")
    A_MAJOR, B_MAJOR = config.a_major, config.b_major
    CLUSTER_ROWS, CLUSTER_COLUMNS = CLUSTER_M * TILE_M, CLUSTER_N * TILE_N
    COLUMNS, BUFFERS = config.store_columns, config.buffers
    PIECES = TILE_N // COLUMNS
    TMEM_COLUMNS = config.tmem_columns
    a_tile, b_tile = config.a_tile, config.b_tile
    C_BYTES = config.layout.pieces["c"].stage_bytes // BUFFERS
    # A pair's barrier, in its first CTA, counts the bytes of both CTAs.
    STAGE_BYTES = PAIR * config.transaction_bytes
    # A stage is free when all tiles that its copies go to have used it.
    EMPTY_ARRIVALS = CLUSTER_M + CLUSTER_N - 1
    DRAINED_ARRIVALS = PAIR * EPILOGUE_WARPS
    # A CTA holds half of a pair's A rows and B columns; of those it loads one of CLUSTER_N parts of
    # A and one of CLUSTER_M parts of B.
    HALF_M, HALF_N = TILE_M // PAIR, TILE_N // PAIR
    A_PART, B_PART = HALF_M // CLUSTER_N, HALF_N // CLUSTER_M
    A_K_MAJOR, B_K_MAJOR = A_MAJOR == "K", B_MAJOR == "K"
    A_SPAN, B_SPAN = a_tile.box[1], b_tile.box[1]
    A_COPIES = a_tile.copies if A_K_MAJOR else a_tile.copies // CLUSTER_N
    B_COPIES = b_tile.copies if B_K_MAJOR else b_tile.copies // CLUSTER_M
    A_BOX, B_BOX = a_tile.box_bytes, b_tile.box_bytes
    A_PART_BYTES = a_tile.mn_offset(A_PART) if CLUSTER_N > 1 else 0
    B_PART_BYTES = b_tile.mn_offset(B_PART) if CLUSTER_M > 1 else 0
    # Masks over the CTAs of a cluster: those of one tile row (column), of one half.
    SAME_ROW = sum(1 << (j * PAIR) for j in range(CLUSTER_N))
    SAME_COLUMN = sum(1 << (i * CLUSTER_N * PAIR) for i in range(CLUSTER_M))
    BOTH = (1 << PAIR) - 1
    TMA_GROUP = 2 if PAIR == 2 else ""
    A_POLICY, B_POLICY, C_POLICY = (POLICIES[p] for p in config.policies)
    SCALED, SCALE, BLOCK = config.block > 0, config.scale, config.block
    WORDS = config.scale_words
    SFA_COLUMNS, SF_COLUMNS = tcgen05_mma.SCALE_COLUMNS * WORDS, config.scale_columns
    SF_START = ACCUMULATORS * TILE_N
    CLC, MULTICAST = config.schedule == "clc", config.ctas > 1
    CLAIMS = config.claims if CLC else 0
    # Readers of a claim: TMA, scheduler and epilogue warps of every CTA, MMA warps of first CTAs.
    CLAIM_ARRIVALS = CTAS * (2 + EPILOGUE_WARPS) + CTAS // PAIR
    next_tile = launch_control.next_tile(layout, CLAIMS, CTAS, whole_warp=False)
    next_tile_of_warp = launch_control.next_tile(layout, CLAIMS, CTAS, whole_warp=True)
    epilogue_function = function

    @jit(shared=layout, launch_bounds=(THREADS, 1), cluster=(CTAS, 1, 1), pdl=True, arch=arch)
    def gemm(a_map, b_map, c_map, sfa_map, sfb_map, m, n, k, extra):
        # The next kernel's blocks may start as soon as ours leave an SM; they wait below.
        sync.launch_dependents()
        thread = int32(cuda.threadIdx.x)
        warp = thread // 32
        # The rank counts the two CTAs of a pair first, then columns of the cluster.
        rank = cluster.cta_rank()
        half = math32.mod(rank, PAIR)
        part_n = math32.mod(math32.div(rank, PAIR), CLUSTER_N)
        part_m = math32.div(rank, ROW_CTAS)
        leader = math32.sub(rank, half)

        if thread == 0:
            for stage in range(STAGES):
                mbarrier.init(layout.full[stage], 1)
                mbarrier.init(layout.empty[stage], EMPTY_ARRIVALS)
            for stage in range(ACCUMULATORS):
                mbarrier.init(layout.done[stage], 1)
                mbarrier.init(layout.drained[stage], DRAINED_ARRIVALS)
            if CLC:
                for stage in range(CLAIMS):
                    mbarrier.init(layout.clc_full[stage], 1)
                    mbarrier.init(layout.clc_empty[stage], CLAIM_ARRIVALS)
            fence.mbarrier_init()
            tensormap.prefetch(a_map)
            tensormap.prefetch(b_map)
            tensormap.prefetch(c_map)
        if warp == 2:
            tcgen05.alloc(layout.slot, TMEM_COLUMNS, cta_group=PAIR)
            tcgen05.relinquish_alloc_permit(cta_group=PAIR)
        cuda.syncthreads()
        if CTAS > 1:
            cluster.arrive(sem="relaxed")
            cluster.wait()
        tmem = address.tmem(layout.slot.array[0])
        sync.grid_wait()

        k_blocks = int32(math32.ceil_div(k, TILE_K))
        rows = math32.ceil_div(m, CLUSTER_ROWS)
        columns = math32.ceil_div(n, CLUSTER_COLUMNS)
        tiles = math32.mul(rows, columns)
        tile = cluster.cluster_id_x()
        step = cluster.num_cluster_x()
        claim = pipeline.consumer_start()

        if warp == 0:  # TMA
            if sync.elect():
                state = pipeline.producer_start()
                while tile < tiles:
                    tile_m, tile_n = scheduler.grouped(tile, rows, columns, GROUP)
                    first_row = (tile_m * CLUSTER_M + part_m) * TILE_M + half * HALF_M
                    first_column = (tile_n * CLUSTER_N + part_n) * TILE_N
                    row = int32(first_row + part_n * A_PART)
                    column = int32(first_column + half * HALF_N + part_m * B_PART)
                    for k_block in range(k_blocks):
                        depth = int32(k_block * TILE_K)
                        stage = state.stage
                        full = cluster.mapa(layout.full[stage], leader)
                        pipeline.wait(layout.empty[stage], state.parity)
                        if half == 0:
                            mbarrier.arrive_expect_tx(layout.full[stage], STAGE_BYTES)
                        a = layout.a[stage] + part_n * A_PART_BYTES
                        for copy in range(A_COPIES):
                            if A_K_MAJOR:
                                x, y = int32(depth + copy * A_SPAN), row
                            else:
                                x, y = int32(row + copy * A_SPAN), depth
                            if CLUSTER_N > 1:
                                mask = uint16(SAME_ROW << (part_m * CLUSTER_N * PAIR + half))
                                tma.load(a + copy * A_BOX, a_map, (x, y), full, mask, A_POLICY,
                                         cta_group=TMA_GROUP)  # fmt: skip
                            else:
                                tma.load(a + copy * A_BOX, a_map, (x, y), full, None, A_POLICY,
                                         cta_group=TMA_GROUP)  # fmt: skip
                        b = layout.b[stage] + part_m * B_PART_BYTES
                        for copy in range(B_COPIES):
                            if B_K_MAJOR:
                                x, y = int32(depth + copy * B_SPAN), column
                            else:
                                x, y = int32(column + copy * B_SPAN), depth
                            if CLUSTER_M > 1:
                                mask = uint16(SAME_COLUMN << (part_n * PAIR + half))
                                tma.load(b + copy * B_BOX, b_map, (x, y), full, mask, B_POLICY,
                                         cta_group=TMA_GROUP)  # fmt: skip
                            else:
                                tma.load(b + copy * B_BOX, b_map, (x, y), full, None, B_POLICY,
                                         cta_group=TMA_GROUP)  # fmt: skip
                        if SCALED:
                            # Each CTA of a pair has the factors of its own rows and all columns.
                            word = int32(k_block * WORDS * 64)
                            group = int32(first_row // 128)
                            tma.load(layout.sfa[stage], sfa_map, (word, group), full, None,
                                     cta_group=TMA_GROUP)  # fmt: skip
                            group = int32(first_column // 128)
                            tma.load(layout.sfb[stage], sfb_map, (word, group), full, None,
                                     cta_group=TMA_GROUP)  # fmt: skip
                        state = pipeline.advance(state, STAGES)
                    tile, claim = next_tile(tile, step, claim)
                if CTAS > 1:
                    pipeline.drain(layout.empty, state)
        elif warp == 1:  # MMA, in the first CTA of a pair
            if half == 0 and sync.elect():
                state = pipeline.consumer_start()
                accumulator = pipeline.producer_start()
                used = uint16((SAME_ROW * BOTH) << (part_m * CLUSTER_N * PAIR)
                              | (SAME_COLUMN * BOTH) << (part_n * PAIR))  # fmt: skip
                pair = uint16(BOTH << leader)
                while tile < tiles:
                    pipeline.wait(layout.drained[accumulator.stage], accumulator.parity)
                    tcgen05.fence_after_thread_sync()
                    d = tmem + accumulator.stage * TILE_N
                    for k_block in range(k_blocks):
                        stage = state.stage
                        pipeline.wait(layout.full[stage], state.parity)
                        tcgen05.fence_after_thread_sync()
                        a, b = layout.a[stage], layout.b[stage]
                        if SCALED:
                            sfa = tmem + (SF_START + stage * SF_COLUMNS)
                            sfb = sfa + SFA_COLUMNS
                            tcgen05_mma.copy_scales(sfa, layout.sfa[stage], 128, WORDS, PAIR)
                            tcgen05_mma.copy_scales(sfb, layout.sfb[stage], TILE_N, WORDS, PAIR)
                            tcgen05_mma.block_scaled(
                                d, a, b, sfa, sfb, k_block == 0, KIND, A_DTYPE, B_DTYPE, SCALE,
                                BLOCK, TILE_M, TILE_N, TILE_K, PAIR)  # fmt: skip
                        else:
                            tcgen05_mma.block(
                                d, a, b, k_block == 0, KIND, A_DTYPE, B_DTYPE, D_DTYPE, TILE_M,
                                TILE_N, TILE_K, PAIR, A_MAJOR, B_MAJOR)  # fmt: skip
                        if CTAS > 1:
                            tcgen05.commit(layout.empty[stage], used, cta_group=PAIR)
                        else:
                            tcgen05.commit(layout.empty[stage])
                        state = pipeline.advance(state, STAGES)
                    if PAIR > 1:
                        tcgen05.commit(layout.done[accumulator.stage], pair, cta_group=PAIR)
                    else:
                        tcgen05.commit(layout.done[accumulator.stage])
                    accumulator = pipeline.advance(accumulator, ACCUMULATORS)
                    tile, claim = next_tile(tile, step, claim)
                if PAIR > 1:
                    for _ in range(ACCUMULATORS):
                        pipeline.wait(layout.drained[accumulator.stage], accumulator.parity)
                        accumulator = pipeline.advance(accumulator, ACCUMULATORS)
        elif warp == 3:  # asks for tiles
            if CLC and sync.elect():
                slot = pipeline.producer_start()
                while tile < tiles:
                    if rank == 0:
                        pipeline.wait(layout.clc_empty[slot.stage], slot.parity)
                    mbarrier.arrive_expect_tx(layout.clc_full[slot.stage], 16)
                    if rank == 0:
                        clc.try_cancel(layout.clc_response[slot.stage], layout.clc_full[slot.stage],
                                       multicast=MULTICAST)  # fmt: skip
                    slot = pipeline.advance(slot, CLAIMS)
                    tile, claim = next_tile(tile, step, claim)
                if CTAS > 1 and rank == 0:
                    for _ in range(CLAIMS):
                        pipeline.wait(layout.clc_empty[slot.stage], slot.parity)
                        slot = pipeline.advance(slot, CLAIMS)
        elif warp >= 4:  # epilogue
            # A warp reaches 32 lanes of tensor memory: those of its number modulo 4.
            quarter = int32(warp - EPILOGUE_WARPS)
            lane = math32.mod(thread, 32)
            c = layout.c[quarter]
            accumulator = pipeline.consumer_start()
            while tile < tiles:
                tile_m, tile_n = scheduler.grouped(tile, rows, columns, GROUP)
                row = int32((tile_m * CLUSTER_M + part_m) * TILE_M + half * HALF_M + quarter * 32)
                column = int32((tile_n * CLUSTER_N + part_n) * TILE_N)
                stage = accumulator.stage
                pipeline.wait(layout.done[stage], accumulator.parity)
                tcgen05.fence_after_thread_sync()
                d = tmem + stage * TILE_N + (quarter << 21)
                for piece in range(PIECES):
                    values = tcgen05.ld_32x32b(d + piece * COLUMNS, num=COLUMNS, dtype=LOADED)
                    values = tcgen05.wait_ld(values)
                    if piece == PIECES - 1:
                        # All is in registers: the accumulator is free for the tile after next.
                        tcgen05.fence_before_thread_sync()
                        sync.warp_sync()
                        if lane == 0:
                            mbarrier.arrive_remote(cluster.mapa(layout.drained[stage], leader))
                    buffer = c + (piece % BUFFERS) * C_BYTES
                    tmem_epilogue.store(
                        values, c_map, buffer, row, int32(column + piece * COLUMNS), OUT_DTYPE,
                        BUFFERS, C_POLICY, epilogue_function, m, n, extra)  # fmt: skip
                accumulator = pipeline.advance(accumulator, ACCUMULATORS)
                tile, claim = next_tile_of_warp(tile, step, claim)
            if lane == 0:
                tma.wait_group_read(n=0)

        cuda.syncthreads()
        if CTAS > 1:
            # A CTA stays until its peers' copies and arrivals into its memory are over, and frees
            # tensor memory when its pair does.
            cluster.arrive(sem="relaxed")
            cluster.wait()
        if warp == 2:
            tcgen05.dealloc(tmem, TMEM_COLUMNS, cta_group=PAIR)

    return gemm
