"""Small correct kernels of barriers, mbarrier forms, and memory shared by CTAs."""

from __future__ import annotations

import numpy as np
from numba import cuda
from numba.cuda.types import int32, uint32

import nbtc
from mutations.base import ARRIVE, SYNC, TRY, Base, equal
from nbtc import testing
from nbtc.device import pipeline, pointer, shared
from nbtc.intrinsics import mbarrier, memory, sync

# -- named barriers ---------------------------------------------------------------------------


def named_hand_over():
    """Producers arrive and consumers sync on one named barrier, and the other way round (C14)."""
    layout = shared.Layout(box=shared.array("float32", 64))

    @nbtc.jit(shared=layout, launch_bounds=128)
    def kernel(source, target, rounds):
        thread = int32(cuda.threadIdx.x)
        lane = thread % 64
        box = layout.box.array
        if thread < 64:
            for i in range(rounds):
                if i > 0:
                    sync.barrier_sync(2, 128)  # the box was emptied
                box[lane] = 2 * source[i, lane]
                sync.barrier_arrive(1, 128)  # the box is full
        else:
            for i in range(rounds):
                sync.barrier_sync(1, 128)  # wait until it is full
                target[i, lane] = box[63 - lane]
                if i < rounds - 1:
                    sync.barrier_arrive(2, 128)  # hand it back

    return kernel


def named_data():
    source = testing.random_normal((4, 64))
    target = np.full_like(source, np.nan)
    return (source, target, np.int32(4)), equal(target, 2 * source[:, ::-1])


def two_cohorts():
    """Two groups of warps each reduce with a named barrier of their own."""
    layout = shared.Layout(part=shared.array("float32", (2, 64)))

    @nbtc.jit(shared=layout, launch_bounds=128)
    def kernel(source, target):
        thread = int32(cuda.threadIdx.x)
        group, lane = thread // 64, thread % 64
        part = layout.part.array
        for step in range(3):
            part[group, lane] = source[step, thread]
            sync.barrier_sync(int32(group + 1), 64)  # filled
            total = np.float32(0)
            for i in range(64):
                total += part[group, i]
            sync.barrier_sync(int32(group + 1), 64)  # read
            target[step, thread] = total

    return kernel


def two_cohorts_data():
    source = np.random.default_rng(0).integers(-8, 8, (3, 128)).astype(np.float32)
    target = np.full_like(source, np.nan)
    want = np.repeat(source.reshape(3, 2, 64).sum(axis=2), 64, axis=1)
    return (source, target), equal(target, want)


# -- mbarrier forms ---------------------------------------------------------------------------


def tokens():
    """Every thread arrives and waits for the state that it got; the box turns every round."""
    layout = shared.Layout(box=shared.array("float32", 64), bar=shared.barriers(1))

    @nbtc.jit(shared=layout, launch_bounds=64)
    def kernel(source, target, rounds):
        thread = int32(cuda.threadIdx.x)
        bar, box = layout.bar[0], layout.box.array
        if thread == 0:
            mbarrier.init(bar, 64)
        cuda.syncthreads()
        for i in range(rounds):
            box[thread] = source[i, thread]
            state = mbarrier.arrive(bar)  # written
            while not mbarrier.try_wait(bar, state):
                pass
            target[i, thread] = box[63 - thread]
            state = mbarrier.arrive(bar)  # read
            while not mbarrier.test_wait(bar, state):
                sync.nanosleep(20)

    return kernel


def tokens_data():
    source = testing.random_normal((3, 64))
    target = np.full_like(source, np.nan)
    return (source, target, np.int32(3)), equal(target, source[:, ::-1])


def dropping_out():
    """Warps leave a barrier by arrive_drop; later phases expect fewer arrivals."""
    layout = shared.Layout(count=shared.array("uint32", 4), bar=shared.barriers(1))

    @nbtc.jit(shared=layout, launch_bounds=128)
    def kernel(target):
        thread = int32(cuda.threadIdx.x)
        warp = thread // 32
        bar, count = layout.bar[0], layout.count.array
        if thread == 0:
            mbarrier.init(bar, 128)
        if thread < 4:
            count[thread] = uint32(0)
        cuda.syncthreads()
        parity = uint32(0)
        for step in range(4):
            if thread % 32 == 0:
                cuda.atomic.add(count, step, 1)
            if warp == step:
                mbarrier.arrive_drop(bar)
                break
            mbarrier.arrive(bar)
            pipeline.wait(bar, parity)
            parity = uint32(parity ^ 1)
        cuda.syncthreads()
        if thread < 4:
            target[thread] = count[thread]

    return kernel


def dropping_data():
    target = np.zeros(4, np.uint32)
    return (target,), equal(target, np.array([4, 3, 2, 1], np.uint32))


def early_arrivals():
    """Arrivals that cannot complete the phase (noComplete) before the one that can."""
    layout = shared.Layout(box=shared.array("uint32", 64), bar=shared.barriers(1))

    @nbtc.jit(shared=layout, launch_bounds=64)
    def kernel(source, target):
        thread = int32(cuda.threadIdx.x)
        bar, box = layout.bar[0], layout.box.array
        if thread == 0:
            mbarrier.init(bar, 128)
        cuda.syncthreads()
        for i in range(3):
            box[thread] = source[i, thread]
            state = mbarrier.arrive_no_complete(bar, 1)
            pending = mbarrier.pending_count(state)  # at least this thread's next arrival
            mbarrier.arrive(bar)
            pipeline.wait(bar, uint32(i & 1))
            target[i, thread] = box[63 - thread]
            cuda.syncthreads()
            if pending < 2:
                target[i, thread] = uint32(0xFFFFFFFF)

    return kernel


def early_data():
    source = np.arange(192, dtype=np.uint32).reshape(3, 64)
    target = np.zeros_like(source)
    return (source, target), equal(target, source[:, ::-1])


def reused_barrier():
    """A barrier is invalidated, its bytes hold data, and then another barrier."""
    layout = shared.Layout(bar=shared.barriers(1), box=shared.array("uint32", 32))

    @nbtc.jit(shared=layout, launch_bounds=64)
    def kernel(target):
        thread = int32(cuda.threadIdx.x)
        bar = layout.bar[0]
        for step in range(2):
            if thread == 0:
                mbarrier.init(bar, 32)
            cuda.syncthreads()
            if thread < 32:
                layout.box.array[thread] = uint32(thread + 100 * step)
                mbarrier.arrive(bar)
            else:
                pipeline.wait(bar, 0)
                target[step, thread - 32] = layout.box.array[63 - thread]
            cuda.syncthreads()
            if thread == 0:
                mbarrier.inval(bar)
                memory.st_shared(bar, uint32(7))
            cuda.syncthreads()

    return kernel


def reused_data():
    target = np.zeros((2, 32), np.uint32)
    want = np.arange(31, -1, -1)[None] + [[0], [100]]
    return (target,), equal(target, want.astype(np.uint32))


# -- global memory ----------------------------------------------------------------------------


def flags():
    """CTAs hand a value on through global memory with release and acquire at gpu scope."""

    @nbtc.jit(launch_bounds=32)
    def kernel(data, ready):
        lane, block = int32(cuda.threadIdx.x), int32(cuda.blockIdx.x)
        if block > 0:
            if lane == 0:
                flag = pointer.element(ready, block - 1)
                while memory.ld_global_strong(flag, sem="acquire", scope="gpu") == 0:
                    pass
            sync.warp_sync()
            data[block, lane] = data[block - 1, lane] + 1
        sync.warp_sync()
        if lane == 0:
            flag = pointer.element(ready, block)
            memory.st_global_strong(flag, uint32(1), sem="release", scope="gpu")

    return kernel


def flags_data():
    data = np.zeros((4, 32), np.uint32)
    data[0] = np.arange(32)
    want = (np.arange(32) + np.arange(4)[:, None]).astype(np.uint32)
    return (data, np.zeros(4, np.uint32)), equal(data, want)


def warp_tools():
    """Shuffles, votes, redux and a block-wide reduction of predicates."""

    @nbtc.jit(launch_bounds=64)
    def kernel(source, target):
        thread = int32(cuda.threadIdx.x)
        value = source[thread]
        total = sync.redux(value, op="add")
        other, _ = sync.shfl(value, uint32(1), mode="bfly")
        ballot = sync.vote_ballot(value > 16)
        count = sync.barrier_red_popc(0, value > 16)
        target[0, thread] = total
        target[1, thread] = other
        target[2, thread] = ballot
        target[3, thread] = count

    return kernel


def warp_tools_data():
    source = np.random.default_rng(3).integers(0, 32, 64).astype(np.uint32)
    target = np.zeros((4, 64), np.uint32)
    high = source > 16
    want = np.empty_like(target)
    want[0] = np.repeat(source.reshape(2, 32).sum(axis=1), 32)
    want[1] = source[np.arange(64) ^ 1]
    bits = (high.reshape(2, 32) * (1 << np.arange(32, dtype=np.uint64))).sum(axis=1)
    want[2] = np.repeat(bits.astype(np.uint32), 32)
    want[3] = high.sum()
    return (source, target), equal(target, want)


SYNCS = [
    Base("named-hand-over", named_hand_over, (1, 128), named_data, {
        "bar_full": (ARRIVE, "is full"), "bar_wait": (SYNC, "until it is full"),
        "bar_back": (ARRIVE, "hand it back"), "bar_empty": (SYNC, "was emptied"),
        "write": (r"st\.shared", ""), "read": (r"ld\.shared", ""),
    }),
    Base("two-cohorts", two_cohorts, (1, 128), two_cohorts_data, {
        "cohort_filled": (SYNC, "filled"), "cohort_read": (SYNC, "# read"),
        "write": (r"st\.shared", ""), "read": (r"ld\.shared", ""),
    }),
    Base("tokens", tokens, (1, 64), tokens_data, {
        "token_arrive": (r"mbarrier\.arrive", "# written"),
        "token_read": (r"mbarrier\.arrive", "# read"), "token_wait": (TRY, ""),
        "token_test": (r"mbarrier\.test_wait", ""),
        "read": (r"ld\.shared", ""), "write": (r"st\.shared", ""),
    }),
    Base("dropping-out", dropping_out, (1, 128), dropping_data),
    Base("early-arrivals", early_arrivals, (1, 64), early_data),
    Base("reused-barrier", reused_barrier, (1, 64), reused_data, {
        "inval": (r"mbarrier\.inval", ""), "again": (r"mbarrier\.init", ""),
        "overwrite": (r"st\.shared::cta", "st_shared"),
    }),
    Base("flags", flags, (4, 32), flags_data, {
        "flag_wait": (r"ld\.acquire", ""), "flag_set": (r"st\.release", ""),
        "global_read": (r"ld\.global", ""), "global_write": (r"st\.global", ""),
    }),
    Base("warp-tools", warp_tools, (1, 64), warp_tools_data),
]  # fmt: skip
