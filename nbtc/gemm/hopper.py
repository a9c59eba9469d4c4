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
from numba.cuda import types
from numba.cuda.types import int32, uint16, uint32, uint64

from nbtc.device import epilogue, math32, mma, pipeline, reduction, scheduler, unroll
from nbtc.device import shared_numba as _shared_numba  # noqa: F401 - teaches Numba layouts
from nbtc.errors import LaunchError
from nbtc.gemm.config import EVICT_NORMAL, LAST_USE, POLICIES, HopperConfig
from nbtc.intrinsics import cluster, fence, mbarrier, memory, sync, tensormap, tma, wgmma
from nbtc.jit import Kernel, device, jit
from nbtc.ptx import registers
from nbtc.tensormap import TensorMap


def make_kernel(config: HopperConfig, function: Callable[..., Any] | None = None) -> Kernel:
    """Return the kernel of one configuration, the same object each time.

    Its arguments are ``(a_map, b_map, c_map, strip_map, m, n, k, order, extra)``: tensor maps of A,
    B and C with the boxes of the configuration, with narrow tiles a second map of C with its
    ``strip_box`` (None without), the sizes as int32, the order of tiles, and a tuple of what the
    epilogue takes. The order is the list of tiles of a Hilbert schedule, with narrow tiles the
    ``order`` of ``scheduler.balance``, otherwise None. Sizes are 1 or more. The list is read before
    the kernel in front has ended: that kernel must not write it.

    Args:
        config: tile, stages, cluster and the rest.
        function: epilogue, a device function of (value, row, column, *extra); None stores the
            product itself.

    Raises:
        LaunchError: ``config`` is of another kind.
    """
    _check_config("make_kernel", config)
    return _make_kernel(config, function)


def argument_types(config: HopperConfig, extra: tuple[Any, ...] = ()) -> tuple[Any, ...]:
    """Return the types of the kernel's arguments, to compile, save or load it without arrays.

    Args:
        config: the configuration.
        extra: Numba types of what the epilogue takes.

    Raises:
        LaunchError: an argument is of another kind.
    """
    _check_config("argument_types", config)
    if not isinstance(extra, tuple) or not all(isinstance(x, types.Type) for x in extra):
        raise LaunchError(
            f"gemm.argument_types: extra={extra!r}; needs a tuple of Numba types, such as "
            "(types.float32[::1],)"
        )
    i32 = types.int32
    strips, order = types.none, types.none
    if config.narrow:
        strips, order = TensorMap, types.UniTuple(i32, 3)
    elif config.schedule == "hilbert":
        order = types.Array(i32, 1, "C")
    maps = (TensorMap, TensorMap, TensorMap, strips)
    return (*maps, i32, i32, i32, order, types.Tuple(extra))


def _check_config(name: str, config: Any) -> None:
    if not isinstance(config, HopperConfig):
        raise LaunchError(
            f"gemm.{name}: config is {type(config).__name__}, needs a nbtc.gemm.HopperConfig"
        )


@functools.lru_cache(maxsize=256)
def _make_kernel(config: HopperConfig, function: Callable[..., Any] | None) -> Kernel:
    # Compile-time constants of the kernel are bare names.
    layout = config.layout
    TILE_M, TILE_N, TILE_K = config.tile
    THREADS = config.threads
    STAGES, CONSUMERS = config.stages, config.consumers
    GROUP = config.group if config.schedule == "grouped" else 1
    CLUSTER_M, CLUSTER_N = config.cluster
    CTAS = CLUSTER_M * CLUSTER_N
    SPLIT, CLUSTER = config.split_k, config.cluster_size
    CLUSTER_K = TILE_K * SPLIT
    DTYPE, OUT_DTYPE = config.dtype, config.out_dtype
    A_MAJOR, B_MAJOR = config.a_major, config.b_major
    CLUSTER_ROWS, CLUSTER_COLUMNS = CLUSTER_M * TILE_M, CLUSTER_N * TILE_N
    WG_ROWS = TILE_M // CONSUMERS
    PRODUCER_REGISTERS = config.producer_registers
    CONSUMER_REGISTERS = config.consumer_registers
    COLUMNS, BUFFERS = config.store_columns, config.buffers
    a_tile, b_tile = config.a_tile, config.b_tile
    A_WG_BYTES = a_tile.mn_offset(WG_ROWS) if CONSUMERS > 1 else 0
    # Where a problem has fewer rows than a tile, only those are loaded.
    A_ROWS = config.a_rows or TILE_M
    A_LOADED = a_tile.mn_offset(A_ROWS) if config.a_rows else a_tile.box_bytes
    STAGE_BYTES = a_tile.copies * A_LOADED + b_tile.size_bytes
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
    NARROW, UNIT = config.narrow, TILE_N - config.narrow
    QUOTIENT, BALANCED = TILE_N // UNIT, NARROW > 0
    # A tile of C leaves in pieces: COLUMNS wide, 64 rows high. Where there are narrow tiles, the
    # last piece is cut into strips.
    PIECES_N = TILE_N // COLUMNS
    STRIP = config.strip_box[1]
    STRIPS, NARROW_STRIPS = COLUMNS // STRIP, NARROW % COLUMNS // STRIP
    STRIP_BYTES = config.strip_bytes
    PIECES = WG_ROWS // 64 * PIECES_N
    PIECE_BYTES = layout.pieces["c"].stride // BUFFERS
    STORE_THREADS = 32 * (1 + CONSUMERS)
    STORE_SLOTS, KEPT = CONSUMERS * BUFFERS, BUFFERS - 1
    epilogue_function = function

    @device
    def locate(tile, rows, columns, n, order):
        """Return a tile's row (in clusters), its first column, whether it is narrow, its group."""
        if BALANCED:
            units = math32.ceil_div(n, UNIT)
            tile_m, unit, narrow, group = scheduler.balanced(
                tile, rows, units, order[0], order[1], order[2], GROUP, QUOTIENT
            )
            return tile_m, math32.mul(unit, UNIT), narrow, group
        if HILBERT:
            tile_m, tile_n = scheduler.listed(order, tile)
        else:
            tile_m, tile_n = scheduler.grouped(tile, rows, columns, GROUP)
        group = math32.div(tile, math32.mul(columns, GROUP))
        return tile_m, math32.mul(tile_n, CLUSTER_COLUMNS), uint32(0), group

    def position_of(K_MAJOR, SPAN):
        @device
        def position(copy, depth, first):
            """Return the coordinates of a copy's box, innermost first."""
            if K_MAJOR:
                return int32(depth + copy * SPAN), int32(first)
            return int32(first + copy * SPAN), int32(depth)

        return position

    a_position, b_position = position_of(A_K_MAJOR, A_SPAN), position_of(B_K_MAJOR, B_SPAN)

    @device
    def zero_rest(tiles, thread):
        """Fill the rows of A that no copy writes with zeros."""
        for stage in range(STAGES):
            for copy in range(A_COPIES):
                index = int32(thread)
                while index < (A_BOX - A_LOADED) // 16:
                    start = tiles[stage] + (copy * A_BOX + A_LOADED + index * 16)
                    zero = uint32(0)
                    memory.st_shared(start, (zero, zero, zero, zero), vec="v4")
                    index = int32(index + THREADS)
        fence.proxy_async()

    # Where a tile's K is split, the CTA of rank 0 adds what the others send.
    CONSUMER_THREADS, SOURCES = 128 * CONSUMERS, SPLIT - 1
    CONSUMER_WARPS, PARTIAL_BYTES = 4 * CONSUMERS, 4 * TILE_M * TILE_N
    SENT_BYTES = SOURCES * PARTIAL_BYTES

    @device
    def send_partial(d, rank, lap):
        """Send accumulators to the CTA of rank 0 as soon as its buffer is free."""
        parity = uint32(lap ^ 1)
        pipeline.wait(layout.partial_free[0], parity)
        place = (rank - 1) * PARTIAL_BYTES + (cuda.threadIdx.x - 128) * 16
        bar = cluster.mapa(layout.partial_full[0], 0)
        reduction.send(d, cluster.mapa(layout.partial + place, 0), bar, CONSUMER_THREADS)

    @device
    def add_partial(d, lap):
        """Return the accumulators plus those that the other CTAs sent; free the buffer."""
        pipeline.wait(layout.partial_full[0], lap)
        place = (cuda.threadIdx.x - 128) * 16
        d = reduction.add(d, layout.partial + place, SOURCES, CONSUMER_THREADS)
        sync.warp_sync(0xFFFFFFFF)
        lane = cuda.threadIdx.x % 32
        if lane < SOURCES:
            mbarrier.arrive_remote(cluster.mapa(layout.partial_free[0], uint32(lane + 1)))
        return d

    HALF_PACKED = config.accumulators // 4
    HALVES = config.keeps_half
    LAST_STRIPS = TILE_N if BALANCED else None

    def consumer_of(WIDTH):
        """Return the consumer's part of one tile that is ``WIDTH`` columns wide."""
        VALID = WIDTH if BALANCED else None
        ACCUMULATORS = WG_ROWS // 64 * WIDTH // 2

        @device
        def multiply(d, index, stage, parity, consumer, target, signals, first):
            """Multiply the k-block in the stage ``stage + index``."""
            stage = uint32(stage + index)
            pipeline.wait(layout.full[stage], parity)
            a = layout.a[stage] + consumer * A_WG_BYTES
            d = wgmma.fence(d)
            d = mma.block(d, a, layout.b[stage], first, DTYPE, WG_ROWS, WIDTH,
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

        @device
        def consume(state, c_parity, k_blocks, consumer, target, signals, place, following,
                    rows, columns, part_m, part_n, n, order, extra, later, rest, rank,
                    lap):  # fmt: skip
            """Multiply a tile, write it to shared memory for another warp, and find the next."""
            slot = consumer * BUFFERS
            # The first k-block alone: ptxas then sees that it reads no accumulator, which makes
            # those of wide and narrow tiles strangers, and meets no two paths with wgmma in flight.
            previous = state.stage
            d = registers.undefined(ACCUMULATORS)
            d = multiply(d, uint32(0), previous, state.parity, consumer, target, signals, True)
            if HALVES and later:
                # While they run: the second half of the tile before.
                epilogue.write_rest(rest, layout.c[consumer], layout.c_free[slot],
                                    layout.c_ready[slot], c_parity, OUT_DTYPE, TILE_N, COLUMNS,
                                    BUFFERS, LAST_STRIPS)  # fmt: skip
            state = pipeline.advance(state, STAGES)
            k_block = int32(1)
            while k_block < k_blocks:
                stage, parity = state.stage, state.parity
                if RING and stage == 0 and k_blocks - k_block >= STAGES:
                    # A whole lap: stages that are constants cost no address arithmetic.
                    d = unroll.repeat(multiply, d, STAGES, uint32(0), parity, consumer, target,
                                      signals, False)  # fmt: skip
                    previous = uint32(STAGES - 1)
                    state = pipeline.advance_lap(state)
                    k_block = int32(k_block + STAGES)
                else:
                    d = multiply(d, uint32(0), stage, parity, consumer, target, signals, False)
                    previous = stage
                    state = pipeline.advance(state, STAGES)
                    k_block = int32(k_block + 1)
            # While the last wgmma run.
            row = int32((place[0] * CLUSTER_M + part_m) * TILE_M + consumer * WG_ROWS)
            column = int32(place[1] + part_n * TILE_N)
            place = locate(following, rows, columns, n, order)
            d = wgmma.wait_group(d, n=0)
            if RING and signals:
                mbarrier.arrive_remote(cluster.mapa(layout.empty[previous], target))
            if SPLIT > 1:
                if rank != 0:
                    send_partial(d, rank, lap)
                    return state, c_parity, rest, place
                d = add_partial(d, lap)
            if HALVES:
                rest = epilogue.write_half(d, layout.c[consumer], layout.c_free[slot],
                                           layout.c_ready[slot], c_parity, row, column, OUT_DTYPE,
                                           TILE_N, COLUMNS, BUFFERS, epilogue_function, extra,
                                           VALID)  # fmt: skip
            else:
                c_parity = epilogue.write(d, layout.c[consumer], layout.c_free[slot],
                                          layout.c_ready[slot], c_parity, row, column, OUT_DTYPE,
                                          TILE_N, COLUMNS, BUFFERS, epilogue_function, extra,
                                          VALID)  # fmt: skip
            return state, c_parity, rest, place

        return consume

    consume = consumer_of(TILE_N)
    consume_narrow = consumer_of(NARROW) if BALANCED else consume

    @jit(shared=layout, launch_bounds=(config.threads, 1), cluster=(CLUSTER, 1, 1), pdl=True)
    def gemm(a_map, b_map, c_map, strip_map, m, n, k, order, extra):
        # The next kernel's blocks may start as soon as ours leave an SM; they wait below.
        sync.launch_dependents()
        thread = int32(cuda.threadIdx.x)
        warpgroup = thread // 128
        rank = cluster.cta_rank()
        # The rank counts columns of the cluster first.
        part_n = math32.mod(rank, CLUSTER_N)
        part_m = uint32(0) if SPLIT > 1 else math32.div(rank, CLUSTER_N)

        if thread == 0:
            for stage in range(STAGES):
                mbarrier.init(layout.full[stage], 1)
                mbarrier.init(layout.empty[stage], EMPTY_ARRIVALS)
            for slot in range(STORE_SLOTS):
                mbarrier.init(layout.c_ready[slot], 4)
                mbarrier.init(layout.c_free[slot], 1)
            if SPLIT > 1:
                mbarrier.init(layout.partial_full[0], 1)
                mbarrier.init(layout.partial_free[0], CONSUMER_WARPS)
            fence.mbarrier_init()
            tensormap.prefetch(a_map)
            tensormap.prefetch(b_map)
            tensormap.prefetch(c_map)
            if BALANCED:
                tensormap.prefetch(strip_map)
        if A_ROWS < TILE_M:
            if m > A_ROWS:
                sync.trap()  # the other rows would be wrong
            zero_rest(layout.a, thread)
        if CLUSTER > 1 and A_ROWS < TILE_M:
            cluster.arrive()
        elif CLUSTER > 1:
            cluster.arrive(sem="relaxed")

        # Blocks beyond K, where it is split unevenly, are zeros.
        k_blocks = int32(math32.ceil_div(k, CLUSTER_K))
        first_block = int32(rank * k_blocks) if SPLIT > 1 else int32(0)
        rows = math32.ceil_div(m, CLUSTER_ROWS)
        columns = math32.ceil_div(n, CLUSTER_COLUMNS)
        if BALANCED:
            tiles = math32.add(math32.mul(rows, order[0]), order[1])
        else:
            tiles = math32.mul(rows, columns)
        tile = cluster.cluster_id_x()
        step = cluster.num_cluster_x()
        place = locate(math32.minimum(tile, math32.sub(tiles, 1)), rows, columns, n, order)

        if CLUSTER > 1:
            cluster.wait()
        else:
            cuda.syncthreads()
        sync.grid_wait()

        # Where K is split, the CTA of rank 0 alone has results.
        store_threads = 0 if SPLIT > 1 and rank != 0 else STORE_THREADS
        if warpgroup == 0:
            sync.setmaxnreg_dec(n=PRODUCER_REGISTERS)
            if thread < 32 and sync.elect():
                state = pipeline.producer_start()
                while tile < tiles:
                    row = int32((place[0] * CLUSTER_M + part_m) * TILE_M + part_n * A_PART)
                    column = int32(place[1] + part_n * TILE_N + part_m * B_PART)
                    a_policy, b_policy = A_POLICY, B_POLICY
                    following = math32.add(tile, step)
                    last = math32.minimum(following, math32.sub(tiles, 1))
                    next_place = locate(last, rows, columns, n, order)
                    # Tiles of one group share rows of A; the next group starts with the columns of
                    # B that this one ends with.
                    same_group = place[3] == next_place[3]
                    if A_LAST_USE:
                        again = following < tiles and same_group
                        a_policy = uint64(NORMAL) if again else uint64(FIRST)
                    if B_LAST_USE:
                        again = following < tiles and not same_group
                        b_policy = uint64(NORMAL) if again else uint64(FIRST)
                    for k_block in range(k_blocks):
                        depth = int32((first_block + k_block) * TILE_K)
                        stage = state.stage
                        full = layout.full[stage]
                        pipeline.wait(layout.empty[stage], state.parity)
                        mbarrier.arrive_expect_tx(full, STAGE_BYTES)
                        a = layout.a[stage] + part_n * A_PART_BYTES
                        for copy in range(A_COPIES):
                            xy = a_position(copy, depth, row)
                            if CLUSTER_N > 1:
                                mask = uint16(SAME_ROW << (part_m * CLUSTER_N))
                                tma.load(a + copy * A_BOX, a_map, xy, full, mask, a_policy)
                            else:
                                tma.load(a + copy * A_BOX, a_map, xy, full, None, a_policy)
                        b = layout.b[stage] + part_m * B_PART_BYTES
                        for copy in range(B_COPIES):
                            xy = b_position(copy, depth, column)
                            if CLUSTER_M > 1:
                                mask = uint16(SAME_COLUMN << part_n)
                                tma.load(b + copy * B_BOX, b_map, xy, full, mask, b_policy)
                            else:
                                tma.load(b + copy * B_BOX, b_map, xy, full, None, b_policy)
                        state = pipeline.advance(state, STAGES)
                    tile, place = following, next_place
                if CTAS > 1:
                    # The last arrivals of other CTAs must find this one alive. What they copy into
                    # it is waited for anyway.
                    pipeline.drain(layout.empty, state)
            elif thread >= 32 and thread < store_threads and sync.elect():
                # One warp for each consumer stores the pieces of C that it wrote.
                consumer = int32(thread // 32 - 1)
                first_slot = consumer * BUFFERS
                state = pipeline.consumer_start()
                issued = 0
                while tile < tiles:
                    tile_m, start, narrow, _ = locate(tile, rows, columns, n, order)
                    row = int32((tile_m * CLUSTER_M + part_m) * TILE_M + consumer * WG_ROWS)
                    column = int32(start + part_n * TILE_N)
                    for piece in range(PIECES):
                        pipeline.wait(layout.c_ready[first_slot + state.stage], state.parity)
                        x = int32(column + piece % PIECES_N * COLUMNS)
                        y = int32(row + piece // PIECES_N * 64)
                        source = layout.c[consumer] + state.stage * PIECE_BYTES
                        if BALANCED and piece % PIECES_N == PIECES_N - 1:
                            for strip in range(STRIPS):
                                if strip < NARROW_STRIPS or narrow == 0:
                                    tma.store(strip_map, (int32(x + strip * STRIP), y),
                                              source + strip * STRIP_BYTES, C_POLICY)  # fmt: skip
                        else:
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
            target = rank if SPLIT > 1 else math32.mod(thread, 128)
            lap = uint32(0)
            rest = registers.undefined(HALF_PACKED, "uint32")
            c_parity = uint32(1)
            state = pipeline.consumer_start()
            while tile < tiles:
                following = math32.minimum(math32.add(tile, step), math32.sub(tiles, 1))
                if SPLIT > 1 and thread == 128 and rank == 0:
                    mbarrier.arrive_expect_tx(layout.partial_full[0], SENT_BYTES)
                if BALANCED and place[2] != 0:
                    state, c_parity, rest, place = consume_narrow(
                        state, c_parity, k_blocks, consumer, target, signals, place, following,
                        rows, columns, part_m, part_n, n, order, extra, tile >= step, rest, rank,
                        lap)  # fmt: skip
                else:
                    state, c_parity, rest, place = consume(
                        state, c_parity, k_blocks, consumer, target, signals, place, following,
                        rows, columns, part_m, part_n, n, order, extra, tile >= step, rest, rank,
                        lap)  # fmt: skip
                tile = math32.add(tile, step)
                lap = uint32(lap ^ 1)
            if SPLIT > 1 and rank != 0 and tile >= step:
                # The last arrival from the CTA of rank 0 must find this one alive.
                pipeline.wait(layout.partial_free[0], uint32(lap ^ 1))
            if HALVES and tile >= step:
                slot = consumer * BUFFERS
                epilogue.write_rest(rest, layout.c[consumer], layout.c_free[slot],
                                    layout.c_ready[slot], c_parity, OUT_DTYPE, TILE_N, COLUMNS,
                                    BUFFERS, LAST_STRIPS)  # fmt: skip

    return gemm
