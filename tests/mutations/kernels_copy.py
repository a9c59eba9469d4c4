"""Small correct kernels of copies: bulk, between CTAs, cp.async, tensor copies."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from numba import cuda
from numba.cuda.types import int32, uint32

import nbtc
from mutations.base import COPY, STORE, SYNC, TRY, Base, equal
from nbtc import TensorMap, testing
from nbtc.device import pipeline, pointer, shared
from nbtc.intrinsics import bulk, cluster, cp_async, fence, matrix, mbarrier, sync, tma

BF16 = ml_dtypes.bfloat16


# -- bulk copies ------------------------------------------------------------------------------


def bulk_copies():
    """Bulk copies in and out, one buffer, doubled by the threads in between."""
    layout = shared.Layout(
        data=shared.array("float32", 256, alignment=128),
        full=shared.barriers(1),
    )

    @nbtc.jit(shared=layout, launch_bounds=128)
    def kernel(source, target, rounds):
        thread = int32(cuda.threadIdx.x)
        full, data = layout.full[0], layout.data.array
        if thread == 0:
            mbarrier.init(full, 1)
        cuda.syncthreads()  # after the init
        state = pipeline.consumer_start()
        for i in range(rounds):
            if thread == 0:
                bulk.wait_group_read(0)
                mbarrier.arrive_expect_tx(full, 1024)
                bulk.load(layout.data, pointer.element(source, i, 0), 1024, full)
            pipeline.wait(full, state.parity)
            for k in range(2):
                data[thread + 128 * k] = 2 * data[thread + 128 * k]
            fence.proxy_async()
            cuda.syncthreads()  # before the store
            if thread == 0:
                bulk.store(pointer.element(target, i, 0), layout.data, 1024)
                bulk.commit_group()
            state = pipeline.advance(state, 1)
        if thread == 0:
            bulk.wait_group(0)

    return kernel


def bulk_data():
    source = testing.random_normal((3, 256))
    target = np.full_like(source, np.nan)
    return (source, target, np.int32(3)), equal(target, 2 * source)


def bulk_reduce():
    """Every CTA adds its tile to one row in global memory by a bulk reduction."""
    layout = shared.Layout(data=shared.array("uint32", 64, alignment=128))

    @nbtc.jit(shared=layout, launch_bounds=64)
    def kernel(source, target):
        thread, block = int32(cuda.threadIdx.x), int32(cuda.blockIdx.x)
        layout.data.array[thread] = source[block, thread]
        fence.proxy_async()
        cuda.syncthreads()
        if thread == 0:
            bulk.reduce(pointer.element(target, 0), layout.data, 256, op="add", type="u32")
            bulk.commit_group()
            bulk.wait_group(0)

    return kernel


def bulk_reduce_data():
    source = np.random.default_rng(1).integers(0, 1 << 20, (4, 64)).astype(np.uint32)
    target = np.zeros(64, np.uint32)
    return (source, target), equal(target, source.sum(axis=0, dtype=np.uint32))


# -- distributed shared memory ----------------------------------------------------------------


def swap_through_peers():
    """Each CTA of a pair writes into its peer's shared memory, then reads its own."""
    layout = shared.Layout(box=shared.array("uint32", 64))

    @nbtc.jit(shared=layout, launch_bounds=64, cluster=2)
    def kernel(source, target):
        thread = int32(cuda.threadIdx.x)
        rank = cluster.cta_rank()
        cluster.arrive(sem="relaxed")  # the peer has started
        cluster.wait()
        peer = cluster.mapa(layout.box + thread * 4, uint32(rank ^ 1))
        cluster.store(peer, source[cuda.blockIdx.x, thread])
        cluster.arrive()
        cluster.wait()
        target[cuda.blockIdx.x, thread] = layout.box.array[thread]

    return kernel


def swap_data():
    source = np.arange(256, dtype=np.uint32).reshape(4, 64)
    target = np.zeros_like(source)
    return (source, target), equal(target, source[[1, 0, 3, 2]])


def remote_ring():
    """Rank 0 fills rank 1's box by remote stores; remote arrives hand it over and back."""
    layout = shared.Layout(
        box=shared.array("uint32", 32), full=shared.barriers(1), empty=shared.barriers(1)
    )

    @nbtc.jit(shared=layout, launch_bounds=32, cluster=2)
    def kernel(source, target, rounds):
        thread = int32(cuda.threadIdx.x)
        full, empty = layout.full[0], layout.empty[0]
        if thread == 0:
            mbarrier.init(full, 32)
            mbarrier.init(empty, 32)
            fence.mbarrier_init()
        cluster.arrive(sem="relaxed")
        cluster.wait()
        if cluster.cta_rank() == 0:
            state = pipeline.producer_start()
            there = cluster.mapa(layout.box + thread * 4, uint32(1))
            other = cluster.mapa(full, uint32(1))
            for i in range(rounds):
                while not mbarrier.try_wait_parity(empty, state.parity, sem="acquire",
                                                   scope="cluster"):  # fmt: skip
                    pass
                cluster.store(there, source[i, thread])
                mbarrier.arrive_remote(other, sem="release", scope="cluster")  # full there
                state = pipeline.advance(state, 1)
        else:
            state = pipeline.consumer_start()
            back = cluster.mapa(empty, uint32(0))
            for i in range(rounds):
                while not mbarrier.try_wait_parity(full, state.parity, sem="acquire",
                                                   scope="cluster"):  # fmt: skip
                    pass
                target[i, thread] = layout.box.array[31 - thread]
                mbarrier.arrive_remote(back, sem="release", scope="cluster")  # empty there
                state = pipeline.advance(state, 1)
        cluster.arrive()
        cluster.wait()

    return kernel


def remote_data():
    source = np.arange(96, dtype=np.uint32).reshape(3, 32)
    target = np.zeros_like(source)
    return (source, target, np.int32(3)), equal(target, source[:, ::-1])


def async_stores():
    """st.async and red.async into the peer, counted in bytes on its barrier."""
    layout = shared.Layout(
        box=shared.array("uint32", 32), sums=shared.array("uint32", 32), full=shared.barriers(1)
    )

    @nbtc.jit(shared=layout, launch_bounds=32, cluster=2)
    def kernel(source, target):
        thread = int32(cuda.threadIdx.x)
        peer = uint32(cluster.cta_rank() ^ 1)
        full = layout.full[0]
        layout.sums.array[thread] = uint32(1000)
        if thread == 0:
            mbarrier.init(full, 1)
            fence.mbarrier_init()
            mbarrier.arrive_expect_tx(full, 256)
        cluster.arrive()
        cluster.wait()
        there = cluster.mapa(full, peer)
        value = source[cuda.blockIdx.x, thread]
        cluster.st_async(cluster.mapa(layout.box + thread * 4, peer), value, there)
        cluster.red_async(cluster.mapa(layout.sums + thread * 4, peer), value, there, op="add")
        pipeline.wait(full, 0)
        target[cuda.blockIdx.x, thread] = layout.box.array[thread] + layout.sums.array[31 - thread]
        cluster.arrive()
        cluster.wait()

    return kernel


def async_stores_data():
    source = np.arange(64, dtype=np.uint32).reshape(2, 32)
    target = np.zeros_like(source)
    got = source[[1, 0]]
    return (source, target), equal(target, got + 1000 + got[:, ::-1])


def copy_to_peer():
    """A bulk copy from shared memory into the peer's shared memory."""
    layout = shared.Layout(
        mine=shared.array("uint32", 64, alignment=128),
        theirs=shared.array("uint32", 64, alignment=128),
        full=shared.barriers(1),
    )

    @nbtc.jit(shared=layout, launch_bounds=64, cluster=2)
    def kernel(source, target):
        thread = int32(cuda.threadIdx.x)
        peer = uint32(cluster.cta_rank() ^ 1)
        full = layout.full[0]
        layout.mine.array[thread] = source[cuda.blockIdx.x, thread]
        if thread == 0:
            mbarrier.init(full, 1)
            fence.mbarrier_init()
            mbarrier.arrive_expect_tx(full, 256)
        fence.proxy_async()
        cluster.arrive()
        cluster.wait()
        if thread == 0:
            there, bar = cluster.mapa(layout.theirs, peer), cluster.mapa(full, peer)
            bulk.copy_to_cluster(there, layout.mine, 256, bar)
        pipeline.wait(full, 0)
        target[cuda.blockIdx.x, thread] = layout.theirs.array[thread]
        cluster.arrive(sem="relaxed")
        cluster.wait()

    return kernel


# -- cp.async ---------------------------------------------------------------------------------


def cp_async_barrier():
    """cp.async announced on an mbarrier that already counts the arrival (noinc)."""
    layout = shared.Layout(
        data=shared.array("uint32", (2, 128)), full=shared.barriers(2), empty=shared.barriers(2)
    )

    @nbtc.jit(shared=layout, launch_bounds=64)
    def kernel(source, target, rounds):
        thread = int32(cuda.threadIdx.x)
        if thread == 0:
            pipeline.init(layout.full, layout.empty, 32, 32)
        cuda.syncthreads()
        lane = thread % 32
        if thread < 32:
            state = pipeline.producer_start()
            for i in range(rounds):
                pipeline.wait(layout.empty[state.stage], state.parity)
                to = layout.data + int32(state.stage) * 512 + lane * 16
                cp_async.cg(to, pointer.element(source, i, lane * 4))
                cp_async.mbarrier_arrive(layout.full[state.stage])
                state = pipeline.advance(state, 2)
        else:
            state = pipeline.consumer_start()
            data = layout.data.array
            for i in range(rounds):
                pipeline.wait(layout.full[state.stage], state.parity)
                for k in range(4):
                    target[i, k * 32 + lane] = data[state.stage, 127 - (k * 32 + lane)]
                mbarrier.arrive(layout.empty[state.stage])
                state = pipeline.advance(state, 2)

    return kernel


def cp_async_data():
    source = np.arange(640, dtype=np.uint32).reshape(5, 128)
    target = np.zeros_like(source)
    return (source, target, np.int32(5)), equal(target, source[:, ::-1])


def cp_async_groups():
    """Two stages of cp.async groups, with an empty group at the end and zero fill at the edge."""
    layout = shared.Layout(data=shared.array("uint32", (2, 256)))

    @nbtc.jit(shared=layout, launch_bounds=64)
    def kernel(source, target, rounds):
        lane = int32(cuda.threadIdx.x)
        data = layout.data.array
        origin = pointer.element(source, 0, lane * 4)
        cp_async.cg(layout.data + lane * 16, origin, uint32(16))
        cp_async.commit_group()
        for i in range(rounds):
            if i + 1 < rounds:
                size = uint32(16 if lane < 48 else 0)
                to = layout.data + (i + 1) % 2 * 1024 + lane * 16
                cp_async.cg(to, origin + (i + 1) * 1024, size)
            cp_async.commit_group()
            cp_async.wait_group(1)
            cuda.syncthreads()  # copies of the others
            for k in range(4):
                target[i, k * 64 + lane] = data[i % 2, 255 - (k * 64 + lane)]
            cuda.syncthreads()  # before it is overwritten

    return kernel


def cp_async_groups_data():
    source = np.arange(1280, dtype=np.uint32).reshape(5, 256)
    target = np.zeros_like(source)
    want = source.copy()
    want[1:, 192:] = 0
    return (source, target, np.int32(5)), equal(target, want[:, ::-1])


# -- tensor copies ----------------------------------------------------------------------------


def stmatrix_store():
    """stmatrix into a swizzled tile, then a TMA store that clips the edge."""
    layout = shared.Layout(tile=shared.tile("bfloat16", (16, 64), swizzle="128B"))

    @nbtc.jit(shared=layout, launch_bounds=32)
    def kernel(c_map, rounds):
        lane = int32(cuda.threadIdx.x)
        for i in range(rounds):
            row = lane % 16
            for j in range(4):
                first = (lane * 4 + j + 128 * i) * 0x10001
                byte = (j * 32 + lane // 16 * 16) ^ (row % 8 * 16)
                at = layout.tile + row * 128 + byte
                values = (uint32(first), uint32(first + 1), uint32(first + 2), uint32(first + 3))
                matrix.stmatrix(at, values, num=4)
            fence.proxy_async()
            sync.warp_sync()
            if lane == 0:
                tma.store(c_map, (int32(0), int32(16 * i)), layout.tile)
                tma.commit_group()
                tma.wait_group_read(0)
            sync.warp_sync()

    return kernel


def stmatrix_data():
    rounds = 2
    c = np.full((24, 56), 0xFFFF, np.uint16)
    want = np.zeros((32, 64), np.uint32)
    for i in range(rounds):
        for lane in range(32):
            for j in range(4):
                value = (lane * 4 + j + 128 * i) * 0x10001
                for m in range(4):
                    r, k = lane // 4 + m % 2 * 8, j * 16 + m // 2 * 8 + lane % 4 * 2
                    want[16 * i + r, k] = (value + m) & 0xFFFF
                    want[16 * i + r, k + 1] = (value + m) >> 16
    args = (TensorMap.tiled(c.view(BF16), (16, 64), swizzle="128B"), np.int32(rounds))
    return args, equal(c, want[:24, :56].astype(np.uint16))


def copy_before_expect():
    """The copy is issued before arrive_expect_tx: the count of bytes goes negative (C17)."""
    layout = shared.Layout(tile=shared.tile("float32", (16, 32)), full=shared.barriers(1))

    @nbtc.jit(shared=layout, launch_bounds=64)
    def kernel(source_map, target, rounds):
        thread = int32(cuda.threadIdx.x)
        full, tile = layout.full[0], layout.tile.array
        if thread == 0:
            mbarrier.init(full, 1)
        cuda.syncthreads()  # after the init
        state = pipeline.consumer_start()
        for i in range(rounds):
            if thread == 0:
                tma.load(layout.tile, source_map, (int32(0), int32(16 * i)), full)
                mbarrier.arrive_expect_tx(full, 2048)
            pipeline.wait(full, state.parity)
            for row in range(thread // 32, 16, 2):
                target[16 * i + row, thread % 32] = tile[row, 31 - thread % 32]
            cuda.syncthreads()  # before the next copy
            state = pipeline.advance(state, 1)

    return kernel


def rows_data(rounds=3, rows=48, columns=32):
    source = testing.random_normal((rows, columns))
    target = np.full((16 * rounds, 32), np.nan, np.float32)
    want = np.zeros((16 * rounds, 32), np.float32)
    want[:rows, :columns] = source
    args = (TensorMap.tiled(source, (16, 32)), target, np.int32(rounds))
    return args, equal(target, want[:, ::-1])


def edge_data():
    """Boxes that hang over the edge deliver all their bytes, zeros outside (C35)."""
    return rows_data(3, 40, 24)


def tma_reduce():
    """Every CTA adds its tile by a TMA reduction."""
    layout = shared.Layout(tile=shared.tile("float32", (8, 32)))

    @nbtc.jit(shared=layout, launch_bounds=64)
    def kernel(target_map):
        thread, block = int32(cuda.threadIdx.x), int32(cuda.blockIdx.x)
        tile = layout.tile.array
        for i in range(4):
            index = thread + 64 * i
            tile[index // 32, index % 32] = index * (block + 1)
        fence.proxy_async()
        cuda.syncthreads()
        if thread == 0:
            tma.prefetch(target_map, (int32(0), int32(0)))
            tma.reduce(target_map, (int32(0), int32(0)), layout.tile, op="add")
            tma.commit_group()
            tma.wait_group(0)

    return kernel


def tma_reduce_data():
    target = np.ones((8, 32), np.float32)
    want = 1 + np.arange(256, dtype=np.float32).reshape(8, 32) * 6
    return (TensorMap.tiled(target, (8, 32)),), equal(target, want)


COPIES = [
    Base("bulk-copies", bulk_copies, (1, 128), bulk_data, {
        "init_full": (r"mbarrier\.init", ""), "init_sync": (SYNC, "after the init"),
        "expect": (r"mbarrier\.arrive\.expect_tx", ""),
        "bulk_copy": (r"cp\.async\.bulk\.shared", ""), "full_wait": (TRY, ""),
        "read": (r"ld\.shared", ""), "write": (r"st\.shared", ""),
        "write_fence": (r"fence\.proxy", ""), "block_sync": (SYNC, "before the store"),
        "store": (r"cp\.async\.bulk\.global", ""),
        "store_commit": (r"cp\.async\.bulk\.commit", ""),
        "store_wait": (r"cp\.async\.bulk\.wait_group\.read", ""),
        "store_tail": (r"cp\.async\.bulk\.wait_group", r"wait_group\(0"),
    }),
    Base("bulk-reduce", bulk_reduce, (4, 64), bulk_reduce_data),
    Base("swap-peers", swap_through_peers, (4, 64), swap_data, {
        "cluster_arrive": (r"barrier\.cluster\.arrive", ""),
        "cluster_wait": (r"barrier\.cluster\.wait", ""),
        "peer_write": (r"st\.shared::cluster", ""), "read": (r"ld\.shared", ""),
    }),
    Base("remote-ring", remote_ring, (2, 32), remote_data, {
        "init_fence": (r"fence\.mbarrier_init", ""),
        "cluster_arrive": (r"barrier\.cluster\.arrive", ""),
        "cluster_wait": (r"barrier\.cluster\.wait", ""),
        "peer_write": (r"st\.shared::cluster", ""), "read": (r"ld\.shared", ""),
        "remote_full": (r"mbarrier\.arrive", "full there"),
        "remote_empty": (r"mbarrier\.arrive", "empty there"),
        "full_wait": (TRY, r"\(full"), "empty_wait": (TRY, r"\(empty"),
    }),
    Base("async-stores", async_stores, (2, 32), async_stores_data, {
        "expect": (r"mbarrier\.arrive\.expect_tx", ""), "full_wait": (TRY, ""),
        "async_store": (r"st\.async", ""), "async_red": (r"red\.async", ""),
        "read": (r"ld\.shared", ""), "init_full": (r"mbarrier\.init", ""),
        "cluster_arrive": (r"barrier\.cluster\.arrive", ""),
        "cluster_wait": (r"barrier\.cluster\.wait", ""),
    }),
    Base("copy-to-peer", copy_to_peer, (4, 64), swap_data, {
        "expect": (r"mbarrier\.arrive\.expect_tx", ""), "full_wait": (TRY, ""),
        "bulk_copy": (r"cp\.async\.bulk\.shared::cluster\.shared", ""),
        "read": (r"ld\.shared", ""), "write": (r"st\.shared\.", ""),
        "write_fence": (r"fence\.proxy", ""), "init_full": (r"mbarrier\.init", ""),
        "cluster_arrive": (r"barrier\.cluster\.arrive", ""),
        "cluster_wait": (r"barrier\.cluster\.wait", ""),
    }),
    Base("cp-async-noinc", cp_async_barrier, (1, 64), cp_async_data, {
        "full_wait": (TRY, r"layout\.full"), "empty_wait": (TRY, r"layout\.empty"),
        "release": (r"mbarrier\.arrive", ""), "read": (r"ld\.shared", ""),
        "cp_copy": (r"cp\.async\.cg", ""), "cp_arrive": (r"cp\.async\.mbarrier", ""),
        "init_full": (r"mbarrier\.init", "", "0"), "init_empty": (r"mbarrier\.init", "", "1"),
        "init_sync": (SYNC, ""),
    }),
    Base("cp-async-groups", cp_async_groups, (1, 64), cp_async_groups_data, {
        "commit": (r"cp\.async\.commit_group", ""), "wait": (r"cp\.async\.wait_group", ""),
        "sync": (SYNC, ""), "copy_a": (r"cp\.async\.cg", ""), "read": (r"ld\.shared", ""),
    }),
    Base("stmatrix-store", stmatrix_store, (1, 32), stmatrix_data, {
        "write": (r"stmatrix", ""), "write_fence": (r"fence\.proxy", ""), "store": (STORE, ""),
        "store_commit": (r"cp\.async\.bulk\.commit", ""),
        "store_wait": (r"cp\.async\.bulk\.wait_group", ""),
    }),
    Base("copy-before-expect", copy_before_expect, (1, 64), rows_data, {
        "init_full": (r"mbarrier\.init", ""), "init_sync": (SYNC, "after the init"),
        "expect": (r"mbarrier\.arrive\.expect_tx", ""), "copy_a": (COPY, ""),
        "full_wait": (TRY, ""), "read": (r"ld\.shared", ""),
        "reuse_sync": (SYNC, "before the next copy"),
    }),
    Base("edge-tiles", copy_before_expect, (1, 64), edge_data),
    Base("tma-reduce", tma_reduce, (3, 64), tma_reduce_data),
]  # fmt: skip
