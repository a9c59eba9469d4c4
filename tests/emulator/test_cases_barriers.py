"""Cases C13, C14, C79, setmaxnreg and generic races: barriers of CTA and cluster, plain memory."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_helper import kernel, line_of

from nbtc.emulator import launch

SHARED = ".shared .align 16 .b8 data[4096];"


def run(body, *, args=(), params="", block=384, grid=1, cluster=(1, 1, 1), seed=0, shared=SHARED,
        completion="random", **more):  # fmt: skip
    ptx = kernel(body, shared=shared, params=params, **more)
    return launch(ptx, "k", grid=grid, block=block, args=list(args), cluster=cluster, seed=seed,
                  completion=completion)  # fmt: skip


def the(report, kind):
    found = [f for f in report.findings if f.kind == kind]
    assert found, f"no {kind} in:\n{report}"
    return found[0]


def silent(report):
    assert not report.findings, str(report)
    assert not report.warnings, str(report)


def test_c13_block_barrier_in_one_role():
    body = """
setp.lt.u32 %p1, %warp, 4; @!%p1 bra DONE;
bar.sync 0;  // sync
DONE: mov.u32 %r1, 0;
"""
    found = the(run(body), "barrier_partial")
    assert "128 of 384 threads; the rest are past it or exited" in found.message
    assert "Use a named barrier of 128" in found.message
    assert found.line == line_of(body, "sync")
    silent(run(body.replace("bar.sync 0;", "bar.sync 1, 128;")))


def test_c13_the_others_wait_elsewhere():
    body = """
setp.lt.u32 %p1, %warp, 4; @!%p1 bra OTHER;
bar.sync 0;  // sync
bar.sync 0;
bra DONE;
OTHER: bar.sync 0;
bar.sync 1, 384;  // stuck
DONE: mov.u32 %r1, 0;
"""
    found = the(run(body), "deadlock")
    assert "128 of 384 threads" in found.message


@pytest.mark.parametrize("seed", range(4))
def test_c14_two_cohorts_on_one_id(seed):
    def body(second):
        return f"""
setp.ge.u32 %p1, %warp, 8; @%p1 bra DONE;
setp.ge.u32 %p2, %warp, 4; @%p2 bra SECOND;
bar.sync 1, 128;  // first
bra DONE;
SECOND: bar.sync {second}, 128;  // second
DONE: mov.u32 %r1, 0;
"""

    found = the(run(body(1), seed=seed), "barrier_cohort")
    assert "barrier 1: threads of warpgroups 0 and 1 in one generation (expected 128" in (
        found.message
    )
    assert found.line in (line_of(body(1), "first"), line_of(body(1), "second"))
    silent(run(body(2), seed=seed))


def test_c14_serialised_cohorts_on_one_id_are_legal():
    body = """
setp.ge.u32 %p1, %warp, 8; @%p1 bra DONE;
setp.ge.u32 %p2, %warp, 4; @%p2 bra SECOND;
bar.sync 1, 128; bar.arrive 2, 256; bra DONE;
SECOND: bar.sync 2, 256; bar.sync 1, 128;
DONE: mov.u32 %r1, 0;
"""
    for seed in range(4):
        silent(run(body, seed=seed))


@pytest.mark.parametrize("seed", range(4))
def test_c14_arrive_and_sync_pair_is_legal(seed):
    """Two warpgroups hand each other the turn, as FlashMLA and FlashAttention do."""
    turn = """
{own}: bar.sync {wait}, 256;
add.u32 %r3, %r10, 0; st.shared.u32 [%r3], %r1;
bar.arrive {give}, 256;
"""
    body = (
        "mov.u32 %r10, data; setp.ge.u32 %p1, %warp, 8; @%p1 bra DONE;\n"
        "mov.u32 %r1, 5; setp.ge.u32 %p2, %warp, 4; @%p2 bra SECOND;\n"
        + "bar.arrive 2, 256;\n" * 0
        + "".join(turn.format(own=f"A{i}", wait=1, give=2) for i in range(3)).replace(
            "add.u32 %r3, %r10, 0;", "shl.b32 %r3, %thread, 2; add.u32 %r3, %r3, %r10;"
        )
        + "bar.sync 1, 256;\nbra DONE;\n"
        + "SECOND: bar.arrive 1, 256; and.b32 %r4, %thread, 127;\n"
        + "".join(turn.format(own=f"B{i}", wait=2, give=1) for i in range(3)).replace(
            "add.u32 %r3, %r10, 0;", "shl.b32 %r3, %r4, 2; add.u32 %r3, %r3, %r10;"
        )
        + "DONE: mov.u32 %r1, 0;\n"
    )
    silent(run(body, seed=seed))


def test_c14_different_counts():
    body = """
setp.ge.u32 %p1, %warp, 8; @%p1 bra DONE;
setp.ge.u32 %p2, %warp, 4; @%p2 bra SECOND;
bar.sync 1, 256;
bra DONE;
SECOND: bar.sync 1, 224;
DONE: mov.u32 %r1, 0;
"""
    assert "in one generation" in the(run(body), "barrier_mismatch").message


@pytest.mark.parametrize(("number", "count"), [(16, 128), (1, 100), (1, 0), (1, 512)])
def test_barrier_id_and_count(number, count):
    body = f"mov.u32 %r1, {number}; mov.u32 %r2, {count};\nbarrier.sync %r1, %r2;  // bar"
    found = the(run(body), "barrier_count")
    assert found.line == line_of(body, "bar")


def test_aligned_barrier_in_divergent_code():
    body = """
setp.lt.u32 %p1, %lane, 16; @!%p1 bra OTHER;
bar.sync 0;  // half
bra DONE;
OTHER: bar.sync 0;
DONE: mov.u32 %r1, 0;
"""
    assert "16 of 32 lanes" in the(run(body, block=32), "aligned_divergence").message


@pytest.mark.parametrize(
    "op",
    [
        "wgmma.fence.sync.aligned;", "barrier.cluster.arrive.aligned;",
        "movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2;", "setmaxnreg.dec.sync.aligned.u32 24;",
        "elect.sync _|%p2, 0xffffffff;",
    ],
)  # fmt: skip
def test_lanes_that_exited_are_missing(op):
    body = f"""
mov.u32 %r2, 0;
setp.lt.u32 %p1, %thread, 100; @!%p1 bra DONE;  // leave
{op}  // partial
DONE:
"""
    found = the(run(body, block=128), "aligned_divergence")
    assert f"4 of 32 lanes of warp 3; 28 exited at kernel.py:{line_of(body, 'leave')}" in (
        found.message
    )
    assert found.line == line_of(body, "partial")
    assert not [f for f in run(body, block=100).findings if f.kind == "aligned_divergence"]
    free = body.replace(op, "barrier.cluster.arrive; barrier.cluster.wait;")
    silent(run(free, block=128))


def test_a_block_barrier_waits_for_the_lanes_that_have_not_exited():
    """As CUDA has it: threads without work return, the others synchronise."""
    body = """
setp.lt.u32 %p1, %thread, 100; @!%p1 bra DONE;
bar.sync 0;
DONE:
"""
    silent(run(body, block=128))


def test_reduction_barrier():
    body = """
ld.param.u64 %rd1, [out]; setp.lt.u32 %p1, %thread, 40;
bar.red.popc.u32 %r1, 0, %p1;
bar.red.or.pred %p2, 0, %p1; selp.u32 %r2, 1, 0, %p2;
bar.red.and.pred %p3, 0, %p1; selp.u32 %r3, 1, 0, %p3;
setp.eq.u32 %p4, %thread, 0;
@%p4 st.global.u32 [%rd1], %r1; @%p4 st.global.u32 [%rd1+4], %r2; @%p4 st.global.u32 [%rd1+8], %r3;
"""
    out = np.zeros(3, np.uint32)
    silent(run(body, args=[out], params=".param .u64 out", block=96))
    assert out.tolist() == [40, 1, 0]


def cluster_role(role):
    test = "setp.lt.u32 %p1, %warp, 4; @!%p1 bra OTHER;" if role else "mov.u32 %r1, 0;"
    return f"""
{test}
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;  // cluster
OTHER: bar.sync 0;
"""


def test_c79_cluster_barrier_under_a_role():
    found = the(run(cluster_role(True), grid=2, cluster=(2, 1, 1)), "deadlock")
    assert "cluster barrier: 256 of 768 threads" in found.message
    assert found.line == line_of(cluster_role(True), "cluster")
    silent(run(cluster_role(False), grid=2, cluster=(2, 1, 1)))


def test_cluster_wait_without_arrive():
    body = "barrier.cluster.wait.aligned;  // wait"
    assert the(run(body, block=32), "cluster_barrier_order").line == 1


CLUSTER_SYNC = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


def push_to_peer(arrive, start=CLUSTER_SYNC, access="@%p1 st.shared::cluster.u32 [%r2], %r5;"):
    return f"""
mov.u32 %r3, %cluster_ctarank; mov.u32 %r1, data; mov.u32 %r5, 9;
xor.b32 %r4, %r3, 1; mapa.shared::cluster.u32 %r2, %r1, %r4;
setp.eq.u32 %p1, %thread, 0;
{start}
{access}  // store
{arrive}
ld.shared.u32 %r6, [data];  // load
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
"""


def test_cluster_barrier_orders_remote_memory():
    body = push_to_peer
    sync = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
    silent(run(body(sync), grid=2, cluster=(2, 1, 1), block=64))
    relaxed = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;"
    report = run(body(relaxed), grid=2, cluster=(2, 1, 1), block=64)
    assert the(report, "race").line == line_of(body(sync), "load")
    fenced = "fence.acq_rel.cluster;" + relaxed
    silent(run(body(fenced), grid=2, cluster=(2, 1, 1), block=64))


@pytest.mark.parametrize(
    ("start", "right"),
    [
        ("", False),
        ("bar.sync 0;", False),
        ("barrier.cluster.arrive.aligned;", False),
        (CLUSTER_SYNC, True),
        ("barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;", True),
        ("barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned; bar.sync 0;", True),
    ],
)
@pytest.mark.parametrize("seed", range(4))
def test_a_peer_must_have_started(start, right, seed):
    """A store into a CTA that does not run yet faults; nothing else of this kernel is wrong."""
    # An arrive at the start that is waited for only after the store is no proof.
    late = "barrier.cluster.wait.aligned;" if "arrive" in start and "wait" not in start else ""
    end = late + CLUSTER_SYNC
    body = push_to_peer(end, start)
    report = run(body, grid=4, cluster=(2, 1, 1), block=64, seed=seed)
    if right:
        silent(report)
        return
    found = the(report, "cluster_start")
    assert found.line == line_of(body, "store")
    assert "which may not have started" in found.message
    assert {f.kind for f in report.findings} == {"cluster_start"}


@pytest.mark.parametrize("seed", range(4))
def test_a_flag_in_global_memory_proves_that_a_peer_started(seed):
    """Rank 0 stores into rank 1 after rank 1 said in global memory that it runs."""
    flag = np.zeros(1, np.uint32)
    start = """
ld.param.u64 %rd1, [flag]; cvta.to.global.u64 %rd1, %rd1;
setp.ne.u32 %p2, %r3, 0; and.pred %p3, %p1, %p2;
@%p3 st.release.gpu.global.u32 [%rd1], 1;
@%p2 bra GO; SPIN: ld.SEM.gpu.global.u32 %r7, [%rd1]; setp.eq.u32 %p4, %r7, 0; @%p4 bra SPIN;
GO: not.pred %p2, %p2; and.pred %p1, %p1, %p2;
"""
    access = "@%p1 st.shared.u32 [data], %r5; @%p1 st.shared::cluster.u32 [%r2], %r5;"
    for sem in ("acquire", "relaxed"):
        flag[:] = 0
        body = push_to_peer(CLUSTER_SYNC, start.replace("SEM", sem), access)
        silent(run(body, params=".param .u64 flag", args=[flag], grid=2, cluster=(2, 1, 1),
                   block=64, seed=seed))  # fmt: skip


def test_a_barrier_of_a_peer_that_may_not_have_started():
    body = """
setp.eq.u32 %p1, %thread, 0; mov.u32 %r3, %cluster_ctarank;
@%p1 mbarrier.init.shared::cta.b64 [bar], 1;
@%p1 fence.mbarrier_init.release.cluster;
xor.b32 %r4, %r3, 1; mov.u32 %r1, bar; mapa.shared::cluster.u32 %r2, %r1, %r4;
@%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r2];  // remote
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
"""
    seen = set()
    for seed in range(8):
        report = run(body, grid=2, cluster=(2, 1, 1), block=64, seed=seed,
                     shared=".shared .align 8 .b64 bar;")  # fmt: skip
        found = report.findings[0]
        seen.add(found.kind)
        assert found.line == line_of(body, "remote")
        assert "fence.mbarrier_init() by the initialising thread and a cluster barrier" in (
            found.message
        )
    assert seen <= {"mbarrier_uninitialised", "mbarrier_init_order"}


REGISTERS = ".maxntid 384, 1, 1\n.minnctapersm 1"


def registers(low, high):
    return f"""
setp.lt.u32 %p1, %warp, 4; @!%p1 bra CONSUMER;
setmaxnreg.dec.sync.aligned.u32 {low};  // dec
bra DONE;
CONSUMER: setmaxnreg.inc.sync.aligned.u32 {high};  // inc
DONE: mov.u32 %r1, 0;
"""


def test_setmaxnreg_plan():
    silent(run(registers(40, 232), directives=REGISTERS))
    found = the(run(registers(40, 240), directives=REGISTERS), "deadlock")
    assert "setmaxnreg.inc 240" in found.message
    assert "64512 registers" in found.message
    assert found.line == line_of(registers(0, 0), "inc")
    report = run(registers(176, 176), directives=REGISTERS)
    assert the(report, "setmaxnreg").line == line_of(registers(0, 0), "dec")


def test_setmaxnreg_that_only_frees_is_advice():
    body = registers(40, 232).replace("setmaxnreg.inc.sync.aligned.u32 232;", "")
    report = run(body, directives=REGISTERS)
    silent(report)
    assert [(a.kind, a.line) for a in report.advice] == [("setmaxnreg", line_of(body, "dec"))]
    assert "the kernel has no setmaxnreg.inc" in report.advice[0].message
    assert not run(registers(40, 232), directives=REGISTERS).advice


def test_setmaxnreg_entry_count_is_at_most_the_largest_increase():
    # ptxas 13.5 gives 232, not the 255 that 256 threads would leave.
    bounds = ".maxntid 256, 1, 1\n.minnctapersm 1"
    silent(run(registers(40, 232), directives=bounds, block=256))


def test_setmaxnreg_without_entry_count_is_a_warning():
    report = run(registers(40, 232))
    assert report.ok
    assert "launch_bounds" in report.warnings[0].message


# -- plain races ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_shared_memory_race_between_warps(seed):
    def body(barrier):
        return f"""
mov.u32 %r1, data; shl.b32 %r2, %thread, 2; add.u32 %r3, %r1, %r2;
st.shared.u32 [%r3], %thread;  // store
{barrier}
xor.b32 %r4, %thread, 32; shl.b32 %r4, %r4, 2; add.u32 %r4, %r4, %r1;
ld.shared.u32 %r5, [%r4];  // load
"""

    report = run(body("mov.u32 %r9, 0;"), block=64, seed=seed)
    lines = {f.line for f in report.findings}
    assert lines <= {line_of(body(""), "load"), line_of(body(""), "store")}
    assert {f.kind for f in report.findings} <= {"race", "uninitialised_read"}
    assert any(f.kind == "race" for f in report.findings)
    silent(run(body("bar.sync 0;"), block=64, seed=seed))


def test_byte_neighbours_of_different_warps_do_not_race():
    body = """
mov.u32 %r1, data; add.u32 %r3, %r1, %thread; st.shared.u8 [%r3], %r1;
add.u32 %r3, %r3, 8; mov.u16 %rs1, 3;
"""
    silent(run(body, block=96))


def test_global_race_between_ctas_that_run_one_after_the_other():
    body = """
ld.param.u64 %rd1, [out]; setp.eq.u32 %p1, %thread, 0; mov.u32 %r1, %ctaid.x;
@%p1 st.global.u32 [%rd1], %r1;  // store
"""
    report = run(body, args=[np.zeros(4, np.uint32)], params=".param .u64 out", block=32, grid=2)
    assert the(report, "race").line == line_of(body, "store")


def flag(store, load, fences=("", "")):
    """CTA 0 writes data and raises a flag; CTA 1 spins on it and reads."""
    return f"""
ld.param.u64 %rd1, [out]; mov.u32 %r1, %ctaid.x; setp.ne.u32 %p1, %r1, 0;
setp.ne.u32 %p2, %thread, 0; @%p2 bra DONE; mov.u32 %r2, 1;
@%p1 bra READER;
st.global.u32 [%rd1], %r2;  // data
{fences[0]}
{store}
bra DONE;
READER: {load} setp.ne.u32 %p3, %r3, 1; @%p3 bra READER;
{fences[1]}
ld.global.u32 %r4, [%rd1];  // read
DONE: mov.u32 %r9, 0;
"""


RELEASE = "st.release.gpu.global.u32 [%rd1+64], %r2;"
ACQUIRE = "ld.acquire.gpu.global.u32 %r3, [%rd1+64];"
RELAXED_STORE = "st.relaxed.gpu.global.u32 [%rd1+64], %r2;"
RELAXED_LOAD = "ld.relaxed.gpu.global.u32 %r3, [%rd1+64];"
FENCE = "fence.acq_rel.gpu;"


@pytest.mark.parametrize(
    ("store", "load", "fences", "ok"),
    [
        (RELEASE, ACQUIRE, ("", ""), True),
        (RELAXED_STORE, ACQUIRE, ("", ""), False),
        (RELAXED_STORE, ACQUIRE, (FENCE, ""), True),
        (RELAXED_STORE, RELAXED_LOAD, (FENCE, FENCE), True),
        (RELAXED_STORE, RELAXED_LOAD, ("membar.gl;", "membar.gl;"), True),
        ("atom.release.gpu.global.add.u32 %r5, [%rd1+64], 1;", ACQUIRE, ("", ""), True),
        ("red.release.gpu.global.add.u32 [%rd1+64], 1;", ACQUIRE, ("", ""), True),
        ("atom.global.add.u32 %r5, [%rd1+64], 1;", ACQUIRE, (FENCE, ""), True),
    ],
)
def test_flags_in_global_memory(store, load, fences, ok):
    fences = tuple(f or "mov.u32 %r8, 0;" for f in fences)
    body = flag(store, load, fences)
    out = np.zeros(64, np.uint32)
    report = run(body, args=[out], params=".param .u64 out", block=32, grid=2)
    assert report.ok is ok, str(report)
    if not ok:
        assert the(report, "race").line == line_of(body, "read")


def test_relaxed_flag_without_acquire_fence_is_a_warning():
    body = flag(RELAXED_STORE, RELAXED_LOAD, (FENCE, "mov.u32 %r8, 0;"))
    out = np.zeros(64, np.uint32)
    report = run(body, args=[out], params=".param .u64 out", block=32, grid=2)
    assert report.ok
    assert report.warnings[0].kind == "missing_acquire_fence"


def test_cta_exits_while_a_peer_reads_its_memory():
    def body(tail):
        return f"""
mov.u32 %r3, %cluster_ctarank; mov.u32 %r1, data; shl.b32 %r5, %thread, 2; add.u32 %r1, %r1, %r5;
st.shared.u32 [%r1], %r5;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
xor.b32 %r4, %r3, 1; mapa.shared::cluster.u32 %r2, %r1, %r4;
ld.shared::cluster.u32 %r6, [%r2];  // remote
{tail}
"""

    tail = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
    for seed in range(3):
        report = run(body("mov.u32 %r9, 0;"), grid=2, cluster=(2, 1, 1), block=32, seed=seed)
        assert the(report, "cta_exited").line == line_of(body(""), "remote")
        silent(run(body(tail), grid=2, cluster=(2, 1, 1), block=32, seed=seed))


def test_livelock_on_a_flag_that_nobody_raises():
    body = """
ld.param.u64 %rd1, [out];
SPIN: ld.relaxed.gpu.global.u32 %r3, [%rd1]; setp.ne.u32 %p3, %r3, 1; @%p3 bra SPIN;  // spin
"""
    report = run(body, args=[np.zeros(4, np.uint32)], params=".param .u64 out", block=32)
    found = report.findings[0]
    assert found.kind in ("livelock", "deadlock")
    assert found.line == line_of(body, "spin")


def test_livelock_of_test_wait():
    body = """
setp.eq.u32 %p1, %thread, 0; @%p1 mbarrier.init.shared::cta.b64 [data], 1;
bar.sync 0;
SPIN: mbarrier.test_wait.parity.shared::cta.b64 %p3, [data], 0; @!%p3 bra SPIN;  // spin
"""
    found = the(run(body, block=64), "deadlock")
    assert "barrier smem+0x0 phase 0: arrivals 0/1" in found.message
    assert found.line == line_of(body, "spin")
