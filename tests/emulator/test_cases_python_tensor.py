"""Faults in wgmma, cluster and tensor-memory kernels in Numba Python: kind, message, line."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda
from numba.cuda.types import int32, uint32
from report_helper import said

import nbtc
from nbtc import TensorMap, testing
from nbtc.device import pipeline, shared
from nbtc.device import swizzle as swizzles
from nbtc.errors import InstructionError
from nbtc.intrinsics import address, cluster, fence, mbarrier, memory, tcgen05, tma, wgmma
from nbtc.ptx import registers

ROWS, COLUMNS = 16, 32


# -- wgmma ------------------------------------------------------------------------------------


def product(
    fence_first=True, waits=0, swizzle="128B", accumulate=False, proxy=True, tma_swizzle=""
):
    """One 64 x 32 x 64 product of bf16; B is written by the threads."""
    layout = shared.Layout(
        a=shared.tile("bfloat16", (64, 64), swizzle="128B"),
        b=shared.tile("bfloat16", (32, 64), swizzle="128B"),
        full=shared.barriers(1),
    )

    @nbtc.jit(shared=layout, launch_bounds=128, notes="ignore")
    def kernel(a_map, out):
        thread = int32(cuda.threadIdx.x)
        full = layout.full[0]
        if thread == 0:
            mbarrier.init(full, 1)
        for i in range(8):
            word = thread + 128 * i
            at = swizzles.apply(layout.b + word // 32 * 128 + word % 32 * 4, "128B")
            memory.st_shared(at, uint32(0x3F803F80))  # write b: two ones
        if proxy:
            fence.proxy_async()
        cuda.syncthreads()
        if thread == 0:
            mbarrier.arrive_expect_tx(full, 8192)
            tma.load(layout.a, a_map, (0, 0), full)
        pipeline.wait(full, 0)
        if accumulate:
            d = registers.undefined(16)
        else:
            d = registers.zeros(16)
        if fence_first:
            d = wgmma.fence(d)
        for k in range(0, 64, 16):
            a = wgmma.matrix_descriptor(layout.a + 2 * k, swizzle, 16, 1024)
            b = wgmma.matrix_descriptor(layout.b + 2 * k, "128B", 16, 1024)
            d = wgmma.mma_async_bf16(d, a, b, n=32)  # mma
        wgmma.commit_group()
        wgmma.wait_group(n=waits)
        for i in range(16):
            out[i, thread] = d[i]  # use
        wgmma.wait_group(n=0)

    a = testing.random_normal((64, 64), "bfloat16")
    a_map = TensorMap.tiled(a, (64, 64), swizzle="128B")
    out = np.zeros((16, 128), np.float32)
    report = kernel.emulate(1, 128, a_map, out)
    return report, a, out


def test_the_product_is_right():
    report, a, out = product()
    assert report.ok, str(report)
    rows = a.astype(np.float64).sum(axis=1)
    thread, register = np.arange(128)[None], np.arange(16)[:, None]
    row = thread // 32 * 16 + thread % 32 // 4 + register // 2 % 2 * 8
    np.testing.assert_allclose(out, rows[row], atol=1e-4)


def test_c41_swizzles_differ():
    report, _, _ = product(swizzle="64B")
    said(report, "descriptor_swizzle", "128B", "64B", at="mma", severity="advice")


def test_c44_accumulators_read_before_the_wait():
    said(product(waits=1)[0], "wgmma_in_flight", "before wait_group", at="use")


def test_c46_missing_fence():
    said(product(fence_first=False)[0], "wgmma_fence", "without wgmma_fence", at="mma")


def test_c50_operand_written_by_threads():
    said(product(proxy=False)[0], "missing_proxy_fence", "wgmma", r"no fence.proxy_async\(\)",
         at="mma")  # fmt: skip


def test_c51_first_step_accumulates():
    report, _, _ = product(accumulate=True)
    said(report, "wgmma_uninitialised", "accumulator", at="mma")


# -- clusters ---------------------------------------------------------------------------------


def multicast(expect=(2048, 2048), mask=0b11, tail=True, init_fence=True):
    """Rank 0 loads one tile into both CTAs."""
    first, second = expect
    layout = shared.Layout(tile=shared.tile("float32", (ROWS, COLUMNS)), full=shared.barriers(1))

    @nbtc.jit(shared=layout, launch_bounds=32, cluster=2)
    def kernel(source_map, out):
        thread = int32(cuda.threadIdx.x)
        rank = cluster.cta_rank()
        full = layout.full[0]
        if thread == 0:
            mbarrier.init(full, 1)
            if init_fence:
                fence.mbarrier_init()
            if rank == 0:
                mbarrier.arrive_expect_tx(full, first)  # expect
            else:
                mbarrier.arrive_expect_tx(full, second)  # expect
        cluster.arrive(sem="relaxed")
        cluster.wait()
        if thread == 0 and rank == 0:
            tma.load(layout.tile, source_map, (int32(0), int32(0)), full, mask)  # copy
        if rank == 0 or tail:
            pipeline.wait(full, 0)  # wait
            out[rank, thread] = layout.tile.array[3, thread]
            cluster.arrive()
            cluster.wait()

    source = testing.random_normal((ROWS, COLUMNS))
    out = np.zeros((2, 32), np.float32)
    report = kernel.emulate(2, 32, TensorMap.tiled(source, (ROWS, COLUMNS)), out)
    if report.ok:
        np.testing.assert_array_equal(out, [source[3], source[3]])
    return report


def test_multicast_is_right():
    report = multicast()
    assert report.ok, str(report)


def test_c16_cluster_init_fence():
    said(multicast(init_fence=False), "mbarrier_init_order", r"fence.mbarrier_init\(\)", at="copy")


def test_c73_nobody_sends_to_rank_1():
    said(multicast(mask=0b01), "deadlock", "rank 1 expects 2048 B on",
         "no CTA issues a copy for it", at="wait")  # fmt: skip


def test_c75_half_of_the_bytes():
    report = multicast(expect=(2048, 1024))
    said(report, "deadlock", "1024 bytes more than expected", at="wait")


def test_c76_a_cta_exits_early():
    report = multicast(tail=False)
    assert "exit" in str(report)
    assert any(f.kind in {"cta_exited", "cluster_barrier_partial"} for f in report.findings)


def test_c77_local_form_of_a_remote_barrier():
    """The type of a mapped address refuses the local form while the kernel is compiled."""
    layout = shared.Layout(bar=shared.barriers(1))

    @nbtc.jit(shared=layout, launch_bounds=32, cluster=2)
    def kernel():
        peer = cluster.mapa(layout.bar[0], uint32(cluster.cta_rank() ^ 1))
        mbarrier.arrive(peer)

    with pytest.raises(InstructionError, match=r"mbarrier\.arrive: bar is .*cluster"):
        kernel.emulate(2, 32)


# -- tensor memory ----------------------------------------------------------------------------


def tmem(columns=64, frees=True, quarter_off=0, waits=True, syncs=True, allocates=True):
    """Each of four warps writes its lanes of tensor memory and reads them back."""
    layout = shared.Layout(slot=shared.array("uint32", 1))

    @nbtc.jit(shared=layout, launch_bounds=128, arch="sm_100a")
    def kernel(out, columns):
        thread = int32(cuda.threadIdx.x)
        warp = thread // 32
        if thread == 0:
            layout.slot.array[0] = uint32(0)
        cuda.syncthreads()
        if warp == 0 and allocates:
            tcgen05.alloc(layout.slot, uint32(columns))  # alloc
            tcgen05.relinquish_alloc_permit()
        if syncs:
            cuda.syncthreads()
        base = address.tmem(layout.slot.array[0])  # slot
        mine = base + ((warp ^ quarter_off) * 32 << 16)
        values = (uint32(thread), uint32(thread + 1), uint32(7), uint32(8))
        tcgen05.st_32x32b(mine, values, num=4, dtype="u32")  # st
        tcgen05.wait_st()
        got = tcgen05.ld_32x32b(mine, num=4, dtype="u32")
        got = tcgen05.wait_ld(got)
        out[thread] = got[0] + got[1]
        if waits:
            cuda.syncthreads()
        if warp == 0 and frees:
            tcgen05.dealloc(base, uint32(columns))  # dealloc

    out = np.zeros(128, np.uint32)
    report = kernel.emulate(1, 128, out, np.int32(columns), arch="sm_100a")
    if report.ok:
        np.testing.assert_array_equal(out, 2 * np.arange(128) + 1)
    return report


def test_tmem_is_right():
    report = tmem()
    assert report.ok, str(report)


def test_c56_no_allocation():
    said(tmem(allocates=False, frees=False), "tmem_unallocated", "allocated: none", at="st")


def test_c57_columns():
    said(tmem(columns=240), "tmem_columns", "240", r"power of two in 32\.\.512", "256", at="alloc")


def test_c59_never_freed():
    said(tmem(frees=False), "tmem_leak")


def test_c61_slot_read_too_early():
    report = tmem(syncs=False)
    kinds = {f.kind for f in report.findings}
    assert kinds & {"tmem_slot", "race", "tmem_unallocated"}, str(report)


def test_c64_wrong_quarter():
    said(tmem(quarter_off=1), "tmem_lane", r"warp \d accesses lane base", "can only reach", at="st")


def test_freed_while_other_warps_use_it():
    report = tmem(waits=False)
    kinds = {f.kind for f in report.findings}
    assert kinds & {"tmem_in_flight", "tmem_race", "tmem_unallocated"}, str(report)
