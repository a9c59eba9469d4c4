"""Names of arguments and of shared memory in messages."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda
from numba.cuda.types import int32, uint32

import nbtc
from nbtc import TensorMap, shared
from nbtc.device import pipeline
from nbtc.intrinsics import cluster, fence, mbarrier, tma
from nbtc.layout.shared_pieces import SharedPiece

from .report_helper import said

layout = shared.Layout(
    a=shared.tile("float32", (16, 32), stages=2),
    bias=shared.array("float32", (64,)),
    full=shared.barriers(2),
)


def test_offsets_as_text():
    ring = SharedPiece("a", 1024, 2000, 2048, 3)
    assert [ring.text(1024 + n) for n in (0, 2048, 4096 + 1024)] == ["a[0]", "a[1]", "a[2]+0x400"]
    assert ring.end == 1024 + 2 * 2048 + 2000
    assert SharedPiece("slot", 64, 4, 4).text(64) == "slot"


@nbtc.jit(shared=layout, launch_bounds=32)
def index(out, bias, scales, n, at):
    layout.bias.array[at] = bias[n]
    out[0] = layout.bias.array[at] * scales[1][n]


def emulated(n=0, at=0, scales=5):
    two = (np.ones(3, np.float32), np.ones(scales, np.float32))
    return index.emulate(1, 1, np.ones(1, np.float32), np.ones(7, np.float32), two,
                         np.int32(n), np.int32(at))  # fmt: skip


def test_arguments_have_their_python_names():
    assert emulated().ok
    said(emulated(n=7), "out_of_bounds", r"byte offset 28 of argument 'bias' \(float32 7\)")
    said(emulated(n=6, scales=6), "out_of_bounds", r"argument 'scales\[1\]' \(float32 6\)")


def test_an_access_behind_the_layout_tells_the_last_piece():
    at = (layout.nbytes - layout.offsets["bias"]) // 4
    said(emulated(at=at), "out_of_bounds", r"0 B behind the end of full \(smem\+0x")


def test_plain_launches_keep_the_number():
    @nbtc.jit
    def kernel(x, n):
        x[n] = 0

    x = np.ones(7, np.float32)
    made = kernel.compile("float32[::1]", "int32")
    report = nbtc.emulator.launch(
        made.ptx, grid=1, block=1, args=[0, 0, 7, 4, x, 7, 4, np.int32(7)]
    )
    said(report, "out_of_bounds", r"byte offset 28 of argument 4 \(float32 7\)")


def box(rows, stage=0):
    @nbtc.jit(shared=layout, launch_bounds=32)
    def kernel(source_map, out):
        thread = int32(cuda.threadIdx.x)
        for i in range(thread, 2 * 16 * 32, 32):
            layout.a.array[i // 512, i // 32 % 16, i % 32] = 0  # clear
        if thread == 0:
            mbarrier.init(layout.full[0], 1)
            fence.mbarrier_init()
        cuda.syncthreads()
        if thread == 0:
            mbarrier.arrive_expect_tx(layout.full[0], int32(rows * 128))
            tma.load(layout.a[stage], source_map, (int32(0), int32(0)), layout.full[0])  # copy
        pipeline.wait(layout.full[0], 0)
        for i in range(16):
            out[i, thread] = layout.a.array[stage, i, thread]

    source = np.ones((64, 32), np.float32)
    return kernel.emulate(1, 32, TensorMap.tiled(source, (rows, 32)), np.ones((16, 32), np.float32))


def test_ranges_have_the_stages_they_cover():
    one, two = r"shared memory a\[1\] \[0x800, 0x1000\)", r"a\[0\] to a\[1\] \[0x0, 0x1000\)"
    said(box(16, stage=1), "missing_proxy_fence", one, severity="advice")
    said(box(32), "missing_proxy_fence", two, severity="advice")


def test_a_barrier_without_init_is_named():
    @nbtc.jit(shared=layout, launch_bounds=32)
    def kernel(out):
        mbarrier.arrive(layout.full[1])

    said(kernel.emulate(1, 1, np.ones(1)), "mbarrier_uninitialised", r"full\[1\] \(smem\+0x1108\)")


@pytest.mark.parametrize("stage", [0, 1])
def test_races_of_plain_accesses_name_piece_and_argument(stage):
    @nbtc.jit(shared=layout, launch_bounds=64)
    def kernel(out):
        thread = int32(cuda.threadIdx.x)
        layout.a.array[stage, 0, thread % 32] = thread
        out[thread % 32] = layout.a.array[stage, 0, thread % 32] + thread

    report = kernel.emulate(1, 64, np.ones(32, np.float32))
    said(report, "race", rf"shared memory a\[{stage}\]")
    said(report, "race", r"global memory of argument 'out' \(float32 32\)")


def test_lanes_that_a_barrier_lacks_are_counted():
    @nbtc.jit(launch_bounds=64)
    def kernel(out):
        thread = int32(cuda.threadIdx.x)
        if thread == 0:
            cuda.syncthreads()
        out[thread] = 1
        if thread > 0:
            cuda.syncthreads()
            cuda.syncthreads()

    text = str(kernel.emulate(1, 64, np.ones(64, np.float32)))
    assert "warp 0: 31 of 32 lanes" in text, text
    assert "[]" not in text


def store(commit, wait):
    @nbtc.jit(shared=layout, launch_bounds=32)
    def kernel(target):
        thread = int32(cuda.threadIdx.x)
        for i in range(16):
            layout.a.array[0, i, thread] = i
        fence.proxy_async()
        cuda.syncthreads()
        if thread == 0:
            tma.store(target, (0, 0), layout.a[0])
            if commit:
                tma.commit_group()
            if wait:
                tma.wait_group_read(0)

    target = TensorMap.tiled(np.zeros((16, 32), np.float32), (16, 32))
    return kernel.emulate(1, 32, target)


def test_bulk_groups_have_their_python_names():
    assert store(True, True).ok
    said(store(False, False), "bulk_incomplete",
         r"not even committed: tma.commit_group\(\), then tma.wait_group_read\(0\)")  # fmt: skip
    said(store(True, False), "bulk_incomplete", r"no tma.wait_group_read by thread 0 covers it")


ring = shared.Layout(
    a=shared.tile("float32", (16, 32), stages=2), full=shared.barriers(2), empty=shared.barriers(2)
)


def run_ring(expects, waits):
    @nbtc.jit(shared=ring, launch_bounds=64)
    def kernel(source, out):
        thread = int32(cuda.threadIdx.x)
        if thread == 0:
            for stage in range(2):
                mbarrier.init(ring.full[stage], 1)
                mbarrier.init(ring.empty[stage], 32)
            fence.mbarrier_init()
        cuda.syncthreads()
        if thread < 32:
            if thread == 0:
                for block in range(4):
                    full = ring.full[block % 2]
                    if waits:
                        pipeline.wait(ring.empty[block % 2], uint32(block // 2 & 1 ^ 1))
                    if expects:
                        mbarrier.arrive_expect_tx(full, 2048)  # arrive
                    else:
                        mbarrier.arrive(full)  # arrive
                    tma.load(ring.a[block % 2], source, (0, int32(16 * block)), full)  # copy
        else:
            for block in range(4):
                pipeline.wait(ring.full[block % 2], uint32(block // 2 & 1))
                for i in range(16):
                    out[i, thread - 32] += ring.a.array[block % 2, i, thread - 32]
                mbarrier.arrive(ring.empty[block % 2])

    source = TensorMap.tiled(np.ones((64, 32), np.float32), (16, 32))
    return kernel.emulate(1, 64, source, np.zeros((16, 32), np.float32), completion="latest")


def test_the_ring_is_right():
    assert run_ring(True, True).ok


def test_an_arrive_without_bytes_is_told():
    said(run_ring(False, True), "read_in_flight", r"no expect_tx for full\[0\]",
         r"mbarrier.arrive_expect_tx\(full\[0\], 2048\) in place of the arrive at")  # fmt: skip


def test_a_producer_that_does_not_wait_is_told_of_empty():
    report = run_ring(True, False)
    said(report, "write_in_flight", r"wait for empty\[0\] before the next copy into a\[0\]",
         at="copy")  # fmt: skip
    said(report, "mbarrier_arrivals", r"wait for empty\[0\] first", at="arrive")
    assert "it never waited on full" not in str(report)


@pytest.mark.parametrize("relaxed", [False, True])
def test_a_relaxed_arrive_is_named(relaxed):
    layout = shared.Layout(x=shared.array("float32", (32,)))

    @nbtc.jit(shared=layout, launch_bounds=32, cluster=2)
    def kernel(out):
        thread = int32(cuda.threadIdx.x)
        layout.x.array[thread] = 1
        if relaxed:
            cluster.arrive(sem="relaxed")  # arrive
        else:
            cluster.arrive()
        cluster.wait()
        other = cluster.mapa(layout.x + thread * 4, uint32(cluster.cta_rank() ^ 1))
        out[thread] = cluster.load(other, type="u32")
        cluster.arrive()
        cluster.wait()

    report = kernel.emulate(2, 32, np.zeros(32, np.uint32))
    if not relaxed:
        assert not any("relaxed" in str(f) for f in report.findings), str(report)
        return
    said(report, "race", r"the arrive at test_shared_names.py:\d+ is relaxed and releases nothing")


def test_copies_by_all_lanes_are_told_to_elect_one():
    @nbtc.jit(shared=ring, launch_bounds=32)
    def kernel(source):
        if cuda.threadIdx.x == 0:
            mbarrier.init(ring.full[0], 1)
            fence.mbarrier_init()
        cuda.syncthreads()
        mbarrier.arrive_expect_tx(ring.full[0], 2048)  # arrive
        tma.load(ring.a[0], source, (0, 0), ring.full[0])  # copy

    report = kernel.emulate(1, 32, TensorMap.tiled(np.ones((64, 32), np.float32), (16, 32)))
    one = r"another lane of its warp .* too: let one thread do it"
    said(report, "mbarrier_arrivals", one, at="arrive")
    said(report, "write_in_flight", one, at="copy")
