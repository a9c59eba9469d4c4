"""Faults that people really hit, written as Numba Python kernels: kind, message and Python line.

The faulty kernels differ from the correct one by a constant of their factory; the line that the
report must name carries a comment. The same faults in hand-written PTX are in the files beside.
"""

from __future__ import annotations

import linecache
import re

import numpy as np
import pytest
from numba import cuda
from numba.cuda.types import int32, uint32
from report_helper import said

import nbtc
from nbtc import TensorMap, testing
from nbtc.device import pipeline, pointer, shared
from nbtc.intrinsics import (
    bulk,
    cluster,
    fence,
    mbarrier,
    sync,
    tma,
)

ROWS, COLUMNS = 16, 32
BYTES = ROWS * COLUMNS * 4


# -- one ring, many faults --------------------------------------------------------------------


def ring(
    stages=2, expect=BYTES, full_count=1, empty_count=32, start=1, consumer_start=0,
    restart=False, law="carried",
    arrives=True, fenced_init=True, lead=0, waits_full=True, waits_empty=True,
):  # fmt: skip
    """A producer warp copies rows by TMA, a consumer warp sums their columns, tile after tile."""
    layout = shared.Layout(
        tile=shared.tile("float32", (ROWS, COLUMNS), stages=stages),
        full=shared.barriers(stages),
        empty=shared.barriers(stages),
    )

    @nbtc.jit(shared=layout, launch_bounds=64)
    def kernel(source_map, sums, tiles, blocks, full_arrivals):
        thread = int32(cuda.threadIdx.x)
        if thread == 0:
            for stage in range(stages):
                mbarrier.init(layout.full[stage], uint32(full_arrivals))  # init
                mbarrier.init(layout.empty[stage], empty_count)
        if fenced_init:
            cuda.syncthreads()
        if thread >= 32:
            if sync.elect():
                stage, parity = uint32(0), uint32(start)
                for tile in range(tiles):
                    if restart:
                        stage, parity = uint32(0), uint32(start)
                    for block in range(blocks):
                        full = layout.full[stage]
                        if waits_empty:
                            pipeline.wait(layout.empty[stage], parity)  # wait empty
                        if arrives:
                            mbarrier.arrive_expect_tx(full, expect)  # expect
                        else:
                            mbarrier.expect_tx(full, expect)  # bare expect
                        row = int32((tile * blocks + block) * ROWS)
                        tma.load(layout.tile[stage] + lead, source_map, (int32(0), row), full)
                        stage += uint32(1)
                        if stage == stages:
                            stage, parity = uint32(0), uint32(parity ^ 1)
        else:
            total = np.float32(0)
            data = layout.tile.array
            stage, parity = uint32(0), uint32(consumer_start)
            for _ in range(tiles):
                if restart:
                    stage, parity = uint32(0), uint32(consumer_start)
                for block in range(blocks):
                    if law == "counter":
                        parity = uint32(block & 1)
                    if waits_full:
                        pipeline.wait(layout.full[stage], parity)  # wait full
                    for i in range(ROWS):
                        total += data[stage, i, thread]  # read
                    mbarrier.arrive(layout.empty[stage])  # release
                    stage += uint32(1)
                    if stage == stages:
                        stage, parity = uint32(0), uint32(parity ^ 1)
            sums[thread] = total

    def run(tiles=2, blocks=3, full_arrivals=full_count, completion="random"):
        rows = tiles * blocks * ROWS
        source = np.random.default_rng(0).integers(-8, 8, (rows, COLUMNS)).astype(np.float32)
        sums = np.full(COLUMNS, np.nan, np.float32)
        source_map = TensorMap.tiled(source, (ROWS, COLUMNS))
        report = kernel.emulate(1, 64, source_map, sums, np.int32(tiles), np.int32(blocks),
                                np.int32(full_arrivals), completion=completion)  # fmt: skip
        if report.ok:
            np.testing.assert_array_equal(sums, source.sum(axis=0))
        return report

    return run


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_the_ring_is_right(stages):
    for completion in ("random", "earliest", "latest"):
        report = ring(stages)(completion=completion)
        assert report.ok, str(report)
        assert not report.warnings, str(report)


def test_c01_expect_more():
    words = rf"tx {BYTES} of {2 * BYTES} bytes delivered", f"{BYTES} will never arrive"
    found = said(ring(expect=2 * BYTES)(), "deadlock", *words, at="wait full")
    assert found.barrier.bytes_missing == BYTES
    assert {r.label for r in found.related} >= {"expect_tx", "copy"}


def test_c02_expect_less():
    report = ring(expect=BYTES // 2)()
    said(report, "deadlock", f"{BYTES // 2} bytes more than expected", at="wait full")


def test_c03_bare_expect():
    said(ring(arrives=False)(), "deadlock", "arrivals 0/1",
         "expect_tx does not arrive; use arrive_expect_tx", at="wait full")  # fmt: skip


def test_c04_counts_that_differ():
    said(ring(empty_count=64)(), "deadlock", "32 of 64 arrivals and no other thread can arrive",
         at="wait empty")  # fmt: skip
    said(ring(empty_count=16)(), "mbarrier_arrivals", "17 of 16", at="release")


def test_c05_count_out_of_range():
    said(ring()(full_arrivals=0), "mbarrier_count", r"count must be 1\.\.1048575, got 0", at="init")
    said(ring()(full_arrivals=1 << 20), "mbarrier_count", "got 1048576", at="init")


def test_c06_producer_starts_with_parity_0():
    said(ring(start=0)(), "deadlock", "A fresh empty barrier is passed with parity 1", "waits",
         at="wait empty")  # fmt: skip


def test_c07_parity_from_the_loop_counter():
    report = ring(stages=4, law="counter")(tiles=1, blocks=4)
    # Barrier 1 is waited for with parity 1: too early, or never again, as the order goes.
    if any(f.kind == "deadlock" for f in report.findings):
        said(report, "deadlock", r"full\[1\] phase 1", "parity 0 passes", at="wait full")
    else:
        assert "returned without a completed phase since init" in str(report)
        assert {f.kind for f in report.findings} & {"read_in_flight", "uninitialised_read"}


def test_a_consumer_that_starts_like_a_producer_is_told_of_its_wait():
    report = ring(consumer_start=1)(completion="latest")
    found = report.findings[0]
    assert found.kind in {"uninitialised_read", "read_in_flight"}, str(report)
    assert re.search(r"wait\(full\[0\], parity 1\) at .* returned without a completed phase",
                     found.message), str(report)  # fmt: skip


def test_c08_state_restarted_per_tile():
    clean = ring(stages=2, restart=True)(tiles=3, blocks=4)
    assert clean.ok, str(clean)
    report = ring(stages=2, restart=True)(tiles=3, blocks=3)
    kinds = {f.kind for f in report.findings}
    assert kinds & {"read_in_flight", "mbarrier_overrun", "deadlock", "overwrite_while_read"}
    assert "carry the stage/phase state across tiles" in str(report)


def test_c16_no_synchronisation_after_the_init():
    report = ring(fenced_init=False)()
    kinds = {f.kind for f in report.findings}
    assert kinds & {"mbarrier_init_order", "mbarrier_uninitialised"}, str(report)


def test_c27_destination_off_128_bytes():
    said(ring(lead=64)(), "tma_alignment", "64 mod 128", "multiple of 128")


def test_c97_missing_waits_whatever_the_order():
    for completion in ("random", "earliest", "latest"):
        report = ring(waits_full=False)(completion=completion)
        early = [f for f in report.findings if f.kind in {"read_in_flight", "uninitialised_read"}]
        assert early, str(report)
        assert "# read" in linecache.getline(early[0].file, early[0].line)
        report = ring(waits_empty=False)(completion=completion)
        kinds = {f.kind for f in report.findings}
        assert kinds & {"overwrite_while_read", "write_in_flight", "mbarrier_overrun"}, str(report)


# -- a tile copied by TMA ---------------------------------------------------------------------


def tile(columns=32, x=0, expect=BYTES, swizzle="none", shift=0):
    """One box, read by all threads."""
    layout = shared.Layout(
        pad=shared.array("uint8", 1024, alignment=1024),
        tile=shared.array("float32", 2 * ROWS * COLUMNS, alignment=1024),
        full=shared.barriers(1),
    )

    @nbtc.jit(shared=layout, launch_bounds=32)
    def kernel(source_map, out, x):
        thread = int32(cuda.threadIdx.x)
        full = layout.full[0]
        if thread == 0:
            mbarrier.init(full, 1)
            mbarrier.arrive_expect_tx(full, expect)  # expect
            tma.load(layout.tile + shift, source_map, (x, int32(0)), full)  # copy
        sync.warp_sync()
        pipeline.wait(full, 0)  # wait
        for i in range(ROWS):
            out[i, thread] = layout.tile.array[i * COLUMNS + thread]  # read

    source = testing.random_normal((ROWS, columns))
    source_map = TensorMap.tiled(source, (ROWS, COLUMNS), swizzle=swizzle)
    return kernel.emulate(1, 32, source_map, np.zeros((ROWS, 32), np.float32), np.int32(x))


def test_c26_inner_coordinate():
    said(tile(columns=64, x=1), "tma_coordinate", r"coordinate\[0\]=1", "byte offset 4",
         "multiple of 16", at="copy")  # fmt: skip
    assert tile(columns=64, x=4).ok


def test_c28_swizzled_tile_off_its_repeat():
    report = tile(swizzle="128B", shift=128)
    text = str(report)
    assert "128 mod 1024" in text
    assert "SWIZZLE_128B needs 1024" in text


def test_c35_edge_boxes():
    assert tile(columns=24).ok
    said(
        tile(columns=24, expect=ROWS * 24 * 4), "deadlock", "TMA counts the full 2048 B", at="wait"
    )


def test_c12_init_over_a_live_barrier():
    layout = shared.Layout(bar=shared.barriers(1))

    @nbtc.jit(shared=layout, launch_bounds=32)
    def kernel(inval):
        if cuda.threadIdx.x == 0:
            mbarrier.init(layout.bar[0], 1)
            if inval:
                mbarrier.inval(layout.bar[0])
            mbarrier.init(layout.bar[0], 2)  # again

    said(kernel.emulate(1, 32, np.int32(0)), "mbarrier_reinit", "inval first", at="again")
    assert kernel.emulate(1, 32, np.int32(1)).ok


def test_c17_expect_after_the_copy():
    def make(count):
        layout = shared.Layout(
            data=shared.array("float32", 64, alignment=128), full=shared.barriers(1)
        )

        @nbtc.jit(shared=layout, launch_bounds=64)
        def kernel(source):
            thread = int32(cuda.threadIdx.x)
            full = layout.full[0]
            if thread == 0:
                mbarrier.init(full, count)
            cuda.syncthreads()
            if thread == 0:
                bulk.load(layout.data, pointer.element(source, 0), 256, full)
                if count == 1:
                    mbarrier.arrive_expect_tx(full, 256)
                else:
                    mbarrier.arrive(full)
                    mbarrier.expect_tx(full, 256)  # too late
            if count == 2 and thread == 32:
                mbarrier.arrive(full)
            pipeline.wait(full, 0)

        return kernel.emulate(1, 64, testing.random_normal(64))

    report = make(1)
    assert report.ok, str(report)
    report = make(2)
    kinds = {f.kind for f in report.findings}
    assert kinds & {"mbarrier_expect_order", "mbarrier_tx_mismatch", "deadlock"}, str(report)


# -- barriers ---------------------------------------------------------------------------------


def test_c13_block_barrier_in_one_role():
    @nbtc.jit(launch_bounds=384)
    def kernel(out):
        if cuda.threadIdx.x < 128:
            cuda.syncthreads()  # in one role
            out[cuda.threadIdx.x] = 1
        else:
            sync.barrier_sync(1, 256)
            sync.barrier_sync(2, 384)  # elsewhere

    report = kernel.emulate(1, 384, np.zeros(128, np.int32))
    found = report.findings[0]
    assert found.kind in {"barrier_partial", "deadlock"}, str(report)
    assert "128 of 384 threads" in found.message


@pytest.mark.parametrize("right", [True, False])
def test_c14_cohorts(right):
    second = 2 if right else 1

    @nbtc.jit(launch_bounds=256)
    def kernel(out):
        for _ in range(3):
            if cuda.threadIdx.x < 128:
                sync.barrier_sync(1, 128)  # first cohort
            else:
                sync.barrier_sync(second, 128)  # second cohort
        out[cuda.threadIdx.x] = 1

    report = kernel.emulate(1, 256, np.zeros(256, np.int32))
    if right:
        assert report.ok, str(report)
    else:
        said(report, "barrier_cohort", "barrier 1")


@pytest.mark.parametrize("everywhere", [True, False])
def test_c79_cluster_barrier_under_a_role(everywhere):
    threads = 384 if everywhere else 128

    @nbtc.jit(launch_bounds=384, cluster=2)
    def kernel():
        if cuda.threadIdx.x < threads:
            cluster.arrive()
            cluster.wait()  # in one role
        else:
            sync.barrier_sync(1, 256)
            sync.barrier_sync(2, 384)

    report = kernel.emulate(2, 384)
    if everywhere:
        assert report.ok, str(report)
    else:
        assert "256 of 768 threads" in str(report)


# -- proxies ----------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["each writer", "one thread", "nobody"])
def test_c30_store_after_generic_writes(who):
    every, one = who == "each writer", who == "one thread"
    layout = shared.Layout(tile=shared.tile("float32", (ROWS, COLUMNS)))

    @nbtc.jit(shared=layout, launch_bounds=128)
    def kernel(out_map):
        thread = int32(cuda.threadIdx.x)
        for i in range(4):
            layout.tile.array[i * 4 + thread // 32, thread % 32] = thread  # write
        if every:
            fence.proxy_async()
        cuda.syncthreads()
        if thread == 0:
            if one:
                fence.proxy_async()
            tma.store(out_map, (int32(0), int32(0)), layout.tile)  # store
            tma.commit_group()
            tma.wait_group(0)

    out = np.zeros((ROWS, COLUMNS), np.float32)
    report = kernel.emulate(1, 128, TensorMap.tiled(out, (ROWS, COLUMNS)))
    if every:
        assert report.ok, str(report)
    else:
        found = said(
            report, "missing_proxy_fence", r"with no fence.proxy_async\(\) by thread", at="store"
        )
        assert any("# write" in linecache.getline(r.file, r.line) for r in found.related)
