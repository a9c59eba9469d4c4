"""Cases C01 to C17: mbarriers, phases, deadlocks; the faulty kernel and the repaired one."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_helper import FILE, kernel, line_of, wait

from nbtc.emulator import launch

SHARED = """
.shared .align 8 .b8 full[32];
.shared .align 8 .b8 empty[32];
.shared .align 1024 .b8 tiles[16384];
"""
POLICIES = ("random", "earliest", "latest")


def run(body, *, args=(), params="", block=128, grid=1, cluster=(1, 1, 1), seed=0,
        completion="random", shared=SHARED, **more):  # fmt: skip
    ptx = kernel(body, shared=shared, params=params, **more)
    return launch(ptx, "k", grid=grid, block=block, args=list(args), cluster=cluster, seed=seed,
                  completion=completion)  # fmt: skip


def kinds(report):
    return {finding.kind for finding in report.findings}


def the(report, kind):
    found = [f for f in report.findings if f.kind == kind]
    assert found, f"no {kind} in:\n{report}"
    return found[0]


def silent(report):
    assert not report.findings, str(report)
    assert not report.warnings, str(report)


INIT = """
mov.u32 %r10, full; mov.u32 %r11, empty; mov.u32 %r12, tiles; ld.param.u64 %rd1, [src];
setp.eq.u32 %p1, %thread, 0;
@%p1 mbarrier.init.shared::cta.b64 [full], {full};  // init
@%p1 mbarrier.init.shared::cta.b64 [empty], {empty};
bar.sync 0;
"""
COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
SRC = ".param .u64 src"


def src(size=16384):
    return np.arange(size, dtype=np.uint8)


def two_copies(expect, *, form="arrive.expect_tx.shared::cta.b64 _,"):
    return (
        INIT.format(full=1, empty=1)
        + f"""
@%p1 mbarrier.{form} [full], {expect};  // expect
@%p1 {COPY} [%r12], [%rd1], 1024, [full];  // copyA
@%p1 {COPY} [%r12+1024], [%rd1], 1024, [full];  // copyB
{wait("full", 0)}  // wait
ld.shared.u32 %r20, [tiles];
ld.shared.u32 %r21, [tiles+1024];  // read
"""
    )


@pytest.mark.parametrize("completion", POLICIES)
def test_c01_expect_more_than_delivered(completion):
    body = two_copies(4096)
    report = run(body, args=[src()], params=SRC, completion=completion)
    found = the(report, "deadlock")
    assert "barrier full[0] phase 0: arrivals 1/1, tx 2048 of 4096 bytes delivered" in found.message
    assert "2048 will never arrive" in found.message
    assert (found.file, found.line) == (FILE, line_of(body, "wait"))
    lines = {(item.label, item.line) for item in found.related}
    assert ("expect_tx", line_of(body, "expect")) in lines
    assert {("copy", line_of(body, "copyA")), ("copy", line_of(body, "copyB"))} <= lines
    assert found.barrier.bytes_missing == 2048
    silent(run(two_copies(2048), args=[src()], params=SRC, completion=completion))


@pytest.mark.parametrize("completion", POLICIES)
def test_c02_expect_fewer_than_delivered(completion):
    body = two_copies(1024)
    report = run(body, args=[src()], params=SRC, completion=completion)
    found = the(report, "mbarrier_tx_mismatch")
    assert "completed phase 0 with 1024 of 2048 bytes" in found.message
    assert found.line == line_of(body, "expect")
    race = [f for f in report.findings if f.kind == "read_in_flight"]
    if race:
        assert race[0].line in (line_of(body, "read"), line_of(body, "read") - 1)


def test_c03_bare_expect_does_not_arrive():
    body = two_copies(2048, form="expect_tx.relaxed.cta.shared::cta.b64 ")
    found = the(run(body, args=[src()], params=SRC), "deadlock")
    assert "arrivals 0/1" in found.message
    assert "expect_tx does not arrive; use arrive_expect_tx" in found.message
    assert found.line == line_of(body, "wait")


def test_c04_too_few_arrivals():
    def body(count):
        return (
            INIT.format(full=count, empty=1)
            + f"""
elect.sync _|%p2, -1;
@%p2 mbarrier.arrive.shared::cta.b64 _, [full];  // arrive
{wait("full", 0)}  // wait
"""
        )

    found = the(run(body(128), args=[src()], params=SRC), "deadlock")
    assert "4 of 128 arrivals and no other thread can arrive" in found.message
    assert found.line == line_of(body(128), "wait")
    silent(run(body(4), args=[src()], params=SRC))


def test_c04_too_many_arrivals():
    def body(count):
        return (
            INIT.format(full=count, empty=1)
            + f"""
setp.eq.u32 %p2, %warp, 1; @!%p2 bra DONE;
mbarrier.arrive.shared::cta.b64 _, [full];  // arrive
DONE: {wait("full", 0)}  // wait
"""
        )

    report = run(body(1), args=[src()], params=SRC)
    found = the(report, "mbarrier_overrun")
    assert "phase advanced twice before" in found.message
    assert found.line == line_of(body(1), "arrive")
    silent(run(body(32), args=[src()], params=SRC))


@pytest.mark.parametrize(("value", "text"), [(0, "got 0"), (1 << 20, "got 1048576")])
def test_c05_count_out_of_range(value, text):
    body = f"""
setp.eq.u32 %p1, %thread, 0; mov.u32 %r1, {value};
@%p1 mbarrier.init.shared::cta.b64 [full], %r1;  // init
"""
    found = the(run(body), "mbarrier_count")
    assert f"must be 1..1048575, {text}" in found.message
    assert found.line == line_of(body, "init")


def test_c05_expect_out_of_range():
    body = (
        INIT.format(full=1, empty=1)
        + """
mov.u32 %r1, 1048576;
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], %r1;  // expect
"""
    )
    found = the(run(body, args=[src()], params=SRC), "mbarrier_tx_range")
    assert "expect_tx 1048576 exceeds 1048575" in found.message
    assert found.line == line_of(body, "expect")


def ring(producer_parity, *, trips=3):
    """One stage; warp 0 loads, warps 1..3 read; parities carried as they should be."""
    return (
        INIT.format(full=1, empty=96)
        + f"""
mov.u32 %r1, 0; mov.u32 %r2, {producer_parity}; mov.u32 %r3, 0;
setp.eq.u32 %p2, %warp, 0; @!%p2 bra CONSUMER;
LOOP: setp.ge.u32 %p3, %r1, {trips}; @%p3 bra DONE;
setp.ne.u32 %p4, %lane, 0; @%p4 bra NEXT;
{wait("empty", "%r2")}  // produce
mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], 1024;
{COPY} [%r12], [%rd1], 1024, [full];  // copy
NEXT: xor.b32 %r2, %r2, 1; add.u32 %r1, %r1, 1; bra LOOP;
CONSUMER: setp.ge.u32 %p3, %r1, {trips}; @%p3 bra DONE;
{wait("full", "%r3")}  // consume
shl.b32 %r5, %lane, 2; add.u32 %r5, %r5, %r12; ld.shared.u32 %r4, [%r5];
mbarrier.arrive.shared::cta.b64 _, [empty];  // release
xor.b32 %r3, %r3, 1; add.u32 %r1, %r1, 1; bra CONSUMER;
DONE: bar.sync 0;
"""
    )


@pytest.mark.parametrize("completion", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_c06_fresh_empty_barrier_needs_parity_1(completion, seed):
    body = ring(0)
    found = the(run(body, args=[src()], params=SRC, seed=seed, completion=completion), "deadlock")
    text = found.message
    assert "empty[0] parity 0 (phase 0 open, 0/96 arrivals)" in text
    assert "full[0] parity 0" in text
    assert "<-" in text
    assert "barrier empty[0] phase 0: arrivals 0/96. A fresh empty barrier is passed with" in text
    assert "No phase of empty[0] ever completed, and no wait on it returned" in text
    assert found.line == line_of(body, "produce")
    silent(run(ring(1), args=[src()], params=SRC, seed=seed, completion=completion))


def test_the_first_wait_of_a_producer_leads_whatever_the_names():
    body = ring(0).replace("empty", "barriers").replace("full", "more")
    shared = SHARED.replace("empty", "barriers").replace("full", "more")
    for seed in range(3):
        found = the(run(body, args=[src()], params=SRC, seed=seed, shared=shared), "deadlock")
        assert found.line == line_of(body, "produce")
    body = ring(1).replace("mbarrier.arrive.expect_tx", "// ").replace(COPY, "// ")
    found = the(run(body, args=[src()], params=SRC), "deadlock")
    assert "A fresh empty barrier" not in found.message
    assert found.line == line_of(body, "consume")


def test_a_deadlock_in_many_ctas_is_told_once_and_short():
    report = run(ring(0), args=[src()], params=SRC, grid=12)
    text = the(report, "deadlock").message
    assert text.startswith("barrier empty[0] of CTA 0,0,0 phase 0")
    assert "CTA 0,0,0 warp 0, CTA 1,0,0 warp 0, CTA 2,0,0 warp 0 and 9 more wait empty[0]" in text
    cycle = text.partition("Cycle: ")[2]
    assert cycle.count("<-") == 1
    assert "CTA 0,0,0 warp 0 on empty[0] <- CTA 0,0,0 warp" in cycle
    assert "CTA 1" not in cycle


def test_no_cycle_where_bytes_are_missing():
    body = ring(1).replace("_, [full], 1024", "_, [full], 2048")
    text = the(run(body, args=[src()], params=SRC), "deadlock").message
    assert "1024 of 2048 bytes delivered" in text
    assert "Cycle" not in text


@pytest.mark.parametrize("completion", POLICIES)
def test_c07_parity_from_the_loop_counter(completion):
    def body(parity):
        steps = "\n".join(
            f"""@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [full+{8 * s}], 1024;
@%p1 {COPY} [%r12+{1024 * s}], [%rd1], 1024, [full+{8 * s}];
{wait(f"full+{8 * s}", parity(s))}  // wait{s}
ld.shared.u32 %r2{s}, [tiles+{1024 * s}];  // read{s}"""
            for s in range(4)
        )
        return (
            """
mov.u32 %r12, tiles; ld.param.u64 %rd1, [src]; setp.eq.u32 %p1, %thread, 0;
@%p1 mbarrier.init.shared::cta.b64 [full], 1;
@%p1 mbarrier.init.shared::cta.b64 [full+8], 1;
@%p1 mbarrier.init.shared::cta.b64 [full+16], 1;
@%p1 mbarrier.init.shared::cta.b64 [full+24], 1;
bar.sync 0;
"""
            + steps
        )

    wrong = body(lambda s: s & 1)
    report = run(wrong, args=[src()], params=SRC, completion=completion)
    found = [f for f in report.findings if f.kind == "read_in_flight"]
    if completion == "earliest":
        # The copy is there before the wait: the wrong parity waits for the next phase instead.
        assert "full[1] parity 1 (phase 1 open" in the(report, "deadlock").message
        return
    assert {f.line for f in found} >= {line_of(wrong, "read1"), line_of(wrong, "read3")}
    text = " ".join(f.message for f in found)
    assert "wait(full[1], parity 1)" in text
    assert "returned without a completed phase since init" in text
    silent(run(body(lambda s: 0), args=[src()], params=SRC, completion=completion))


def persistent(reset):
    """Two tiles of 6 steps over 4 stages; with ``reset`` the state restarts per tile."""
    # %r20 stage, %r21 parity, %r22 k, %r23 tile
    restart = "mov.u32 %r20, 0; mov.u32 %r21, {};" if reset else "mov.u32 %r25, 0; // {}"
    advance = (
        "add.u32 %r20, %r20, 1; setp.eq.u32 %p5, %r20, 4; @%p5 mov.u32 %r20, 0; "
        "@%p5 xor.b32 %r21, %r21, 1;"
    )
    return "\n".join(
        [
            """
mov.u32 %r10, full; mov.u32 %r11, empty; mov.u32 %r12, tiles; ld.param.u64 %rd1, [src];
setp.eq.u32 %p1, %thread, 0; @!%p1 bra INITED;
mov.u32 %r1, 0;
INITLOOP: shl.b32 %r2, %r1, 3; add.u32 %r3, %r2, %r10; add.u32 %r4, %r2, %r11;
mbarrier.init.shared::cta.b64 [%r3], 1; mbarrier.init.shared::cta.b64 [%r4], 1;
add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, 4; @%p2 bra INITLOOP;
INITED: bar.sync 0;
mov.u32 %r23, 0; mov.u32 %r20, 0; mov.u32 %r21, 0; mov.u32 %r24, 0;
setp.eq.u32 %p2, %warp, 0; @!%p2 bra CONSUMER;
setp.ne.u32 %p6, %lane, 0; @%p6 bra DONE;
mov.u32 %r21, 1;
PTILE: setp.ge.u32 %p3, %r23, 2; @%p3 bra DONE; mov.u32 %r22, 0;""",
            restart.format(1),
            f"""PLOOP: shl.b32 %r2, %r20, 3; add.u32 %r3, %r2, %r10; add.u32 %r4, %r2, %r11;
shl.b32 %r5, %r20, 10; add.u32 %r5, %r5, %r12;
{wait("%r4", "%r21")}  // produce
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 1024;
{COPY} [%r5], [%rd1], 1024, [%r3];  // copy
{advance}
add.u32 %r22, %r22, 1; setp.lt.u32 %p3, %r22, 6; @%p3 bra PLOOP;
add.u32 %r23, %r23, 1; bra PTILE;
CONSUMER: setp.eq.u32 %p2, %warp, 1; @!%p2 bra DONE;
CTILE: setp.ge.u32 %p3, %r23, 2; @%p3 bra DONE; mov.u32 %r22, 0;""",
            restart.format(0),
            f"""CLOOP: shl.b32 %r2, %r20, 3; add.u32 %r3, %r2, %r10; add.u32 %r4, %r2, %r11;
shl.b32 %r5, %r20, 10; add.u32 %r5, %r5, %r12;
{wait("%r3", "%r21")}  // consume
ld.shared.u32 %r6, [%r5];  // read
bar.warp.sync -1;
setp.eq.u32 %p4, %lane, 0; @%p4 mbarrier.arrive.shared::cta.b64 _, [%r4];  // release
{advance}
add.u32 %r22, %r22, 1; setp.lt.u32 %p3, %r22, 6; @%p3 bra CLOOP;
add.u32 %r23, %r23, 1; bra CTILE;
DONE: bar.sync 0;
""",
        ]
    )


@pytest.mark.parametrize("completion", POLICIES)
def test_c08_state_restarted_per_tile(completion):
    body = persistent(True)
    report = run(body, args=[src()], params=SRC, block=64, completion=completion)
    expected = {"read_in_flight", "overwrite_while_read", "deadlock", "mbarrier_overrun"}
    assert kinds(report) & expected, str(report)
    assert any("carry the stage/phase" in f.message or f.kind == "deadlock"
               for f in report.findings), str(report)  # fmt: skip
    for seed in range(3):
        silent(run(persistent(False), args=[src()], params=SRC, block=64, completion=completion,
                   seed=seed))  # fmt: skip


def test_c09_skip_on_one_side_only():
    def body(skip):
        arrive = "mbarrier.arrive.shared::cta.b64 _, [full];  // commit"
        return INIT.format(full=1, empty=1) + "\n".join(
            [
                "setp.eq.u32 %p2, %thread, 0; @!%p2 bra CONSUMER;",
                *(arrive if not (skip and 1 <= t <= 3) else "mov.u32 %r1, 0;" for t in range(5)),
                "bra DONE;",
                "CONSUMER: setp.eq.u32 %p3, %thread, 32; @!%p3 bra DONE;",
                *(wait("full", t & 1) + "  // wait" for t in range(1)),
                "DONE: bar.sync 0;",
            ]
        )

    # Five tiles, three of them empty: the consumer counts five phases, the producer two.
    faulty = INIT.format(full=1, empty=1) + "\n".join(
        [
            "setp.eq.u32 %p2, %thread, 0; @!%p2 bra CONSUMER;",
            "mbarrier.arrive.shared::cta.b64 _, [full];  // commit",
            wait("empty", 0),
            "mbarrier.arrive.shared::cta.b64 _, [full];",
            "bra DONE;",
            "CONSUMER: setp.eq.u32 %p3, %thread, 32; @!%p3 bra DONE;",
            wait("full", 0),
            "mbarrier.arrive.shared::cta.b64 _, [empty];",
            wait("full", 1),
            wait("full", 0) + "  // wait",
            "DONE: bar.sync 0;",
        ]
    )
    found = the(run(faulty, args=[src()], params=SRC), "deadlock")
    assert "full[0] completed 2 phases so far; the warp that is furthest returned from 2 waits" in (
        found.message
    )
    assert body(False)


def test_c12_init_over_a_live_barrier():
    def body(inval):
        middle = "@%p1 mbarrier.inval.shared::cta.b64 [full];" if inval else "mov.u32 %r1, 0;"
        return f"""
setp.eq.u32 %p1, %thread, 0;
@%p1 mbarrier.init.shared::cta.b64 [full], 1;  // first
bar.sync 0;
{middle}
@%p1 mbarrier.init.shared::cta.b64 [full], 1;  // second
"""

    found = the(run(body(False)), "mbarrier_reinit")
    assert "a live mbarrier (init kernel.py:" in found.message
    assert "inval first" in found.message
    assert found.line == line_of(body(False), "second")
    assert found.related[0].line == line_of(body(False), "first")
    silent(run(body(True)))


def test_c12_data_over_a_live_barrier():
    body = """
setp.eq.u32 %p1, %thread, 0;
@%p1 mbarrier.init.shared::cta.b64 [full], 1;
bar.sync 0;
setp.eq.u32 %p2, %thread, 32; mov.u32 %r1, 7; @%p2 st.shared.u32 [full+4], %r1;  // store
"""
    assert the(run(body), "mbarrier_reinit").line == line_of(body, "store")


def test_c16_init_not_visible():
    def body(barrier):
        return f"""
setp.eq.u32 %p1, %thread, 0;
@%p1 mbarrier.init.shared::cta.b64 [full], 1;
{barrier}
@%p1 mbarrier.arrive.shared::cta.b64 _, [full];
setp.ge.u32 %p2, %warp, 2; @!%p2 bra DONE;
{wait("full", 0)}  // wait
DONE: mov.u32 %r1, 0;
"""

    seen = set()
    for seed in range(4):
        report = run(body("mov.u32 %r1, 0;"), seed=seed)
        seen |= kinds(report)
        for f in report.findings:
            if f.kind == "mbarrier_init_order":
                assert "without a synchronisation after its init by thread 0" in f.message
                assert f.line == line_of(body(""), "wait")
    assert seen & {"mbarrier_init_order", "mbarrier_uninitialised"}
    assert seen <= {"mbarrier_init_order", "mbarrier_uninitialised"}
    silent(run(body("bar.sync 0;")))


def cluster_init(fence, arrive):
    return f"""
setp.eq.u32 %p1, %thread, 0; mov.u32 %r3, %cluster_ctarank;
@%p1 mbarrier.init.shared::cta.b64 [full], 1;
{fence}
{arrive}
setp.ne.u32 %p3, %r3, 0; mov.u32 %r1, full; mapa.shared::cluster.u32 %r2, %r1, 0;
and.pred %p4, %p3, %p1;
@%p4 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r2];  // remote
@%p3 bra DONE;
{wait("full", 0, sem=".acquire.cluster")}
DONE: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
"""


def test_c16_cluster_needs_the_init_fence():
    fence = "@%p1 fence.mbarrier_init.release.cluster;"
    sync = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;"
    missing = run(cluster_init("mov.u32 %r9, 0;", sync), cluster=(2, 1, 1), grid=2, block=32)
    found = the(missing, "mbarrier_init_order")
    assert "needs fence.mbarrier_init() by the initialising thread and a cluster barrier" in (
        found.message
    )
    assert found.line == line_of(cluster_init("", ""), "remote")
    silent(run(cluster_init(fence, sync), cluster=(2, 1, 1), grid=2, block=32))
    full = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
    silent(run(cluster_init("mov.u32 %r9, 0;", full), cluster=(2, 1, 1), grid=2, block=32))


@pytest.mark.parametrize("completion", POLICIES)
def test_c17_expect_after_the_copy_is_legal(completion):
    body = (
        INIT.format(full=1, empty=1)
        + f"""
@%p1 {COPY} [%r12], [%rd1], 1024, [full];
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], 1024;
{wait("full", 0)}
ld.shared.u32 %r20, [tiles];
"""
    )
    silent(run(body, args=[src()], params=SRC, completion=completion))


@pytest.mark.parametrize("completion", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_c17_phase_can_complete_before_the_expect(completion, seed):
    body = (
        INIT.format(full=2, empty=1)
        + f"""
setp.eq.u32 %p2, %thread, 32;
@%p2 mbarrier.arrive.shared::cta.b64 _, [full];  // other
@%p1 mbarrier.arrive.shared::cta.b64 _, [full];  // own
@%p1 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [full], 1024;  // expect
@%p1 {COPY} [%r12], [%rd1], 1024, [full];
"""
    )
    report = run(body, args=[src()], params=SRC, completion=completion, seed=seed)
    assert not report.ok


def test_c76_remote_arrive_needs_a_producer_tail():
    def body(tail):
        return f"""
setp.eq.u32 %p1, %thread, 0; mov.u32 %r3, %cluster_ctarank;
@%p1 mbarrier.init.shared::cta.b64 [full], 1;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
setp.eq.u32 %p3, %r3, 0; mov.u32 %r1, full; mapa.shared::cluster.u32 %r2, %r1, 1;
and.pred %p4, %p3, %p1;
@%p4 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r2];  // remote
{tail}
"""

    for seed in range(3):
        found = the(run(body("mov.u32 %r9, 0;"), cluster=(2, 1, 1), grid=2, block=32, seed=seed),
                    "cta_exited")  # fmt: skip
        assert "end with a cluster barrier (producer tail)" in found.message
        assert found.line == line_of(body(""), "remote")
        tail = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
        silent(run(body(tail), cluster=(2, 1, 1), grid=2, block=32, seed=seed))
        drained = "setp.eq.u32 %p5, %r3, 1; @!%p5 bra DONE;" + wait("full", 0) + "DONE: ret;"
        silent(run(body(drained), cluster=(2, 1, 1), grid=2, block=32, seed=seed))
        # On an H200 this launch fails: the arrival is posted, and the barrier does not wait for it.
        relaxed = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;"
        found = the(run(body(relaxed), cluster=(2, 1, 1), grid=2, block=32, seed=seed),
                    "cta_exited")  # fmt: skip
        assert "a relaxed cluster barrier does not wait for what is under way" in found.message
        assert "let the last one be cluster.arrive(), which releases" in found.message
        assert "pipeline.drain" in found.message
        assert found.line == line_of(body(""), "remote")


def test_c76_a_load_is_over_before_a_relaxed_barrier():
    body = """
mov.u32 %r3, %cluster_ctarank;
st.shared.u32 [tiles], %r3;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
mov.u32 %r1, tiles; xor.b32 %r4, %r3, 1; mapa.shared::cluster.u32 %r2, %r1, %r4;
{access}
barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;
"""
    load = body.format(access="ld.shared::cluster.u32 %r6, [%r2];")
    silent(run(load, cluster=(2, 1, 1), grid=2, block=32))
    store = body.format(access="st.shared::cluster.u32 [%r2+4], %r3;  // store")
    found = the(run(store, cluster=(2, 1, 1), grid=2, block=32), "cta_exited")
    assert "remote store" in found.message
    assert found.line == line_of(store, "store")


RELAXED = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;"
PEER = """
mov.u32 %r3, %cluster_ctarank;
st.shared.u32 [tiles], %r3; st.shared.u32 [tiles+4], %r3;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
mov.u32 %r1, tiles; xor.b32 %r4, %r3, 1; mapa.shared::cluster.u32 %r2, %r1, %r4;
"""


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (RELAXED + "ld.shared::cluster.u32 %r6, [%r2];  // access", "nothing makes rank"),
        (RELAXED + "st.shared::cluster.u32 [%r2+4], %r3;  // access", "nothing makes rank"),
        ("barrier.cluster.arrive.relaxed.aligned; ld.shared::cluster.u32 %r6, [%r2];  // access\n"
         "barrier.cluster.wait.aligned;", "nothing makes rank"),
        ("red.shared::cluster.add.u32 [%r2+4], 1;  // access\n" + RELAXED, "is under way"),
    ],
    ids=["load behind it", "store behind it", "load within it", "reduction before it"],
)  # fmt: skip
def test_c76_what_a_relaxed_barrier_does_not_cover(end, why):
    for seed in range(4):
        report = run(PEER + end, cluster=(2, 1, 1), grid=2, block=32, seed=seed)
        found = the(report, "cta_exited")
        assert why in found.message or "after rank" in found.message
        assert found.line == line_of(PEER + end, "access")


@pytest.mark.parametrize("arrive", ["release", "relaxed"])
@pytest.mark.parametrize("waits", ["acquire", "relaxed"])
def test_c76_an_arrival_whose_phase_was_seen_is_over(arrive, waits):
    def body(end):
        return f"""
setp.eq.u32 %p1, %thread, 0; mov.u32 %r3, %cluster_ctarank; xor.b32 %r4, %r3, 1;
@%p1 mbarrier.init.shared::cta.b64 [full], 32;
@%p1 fence.mbarrier_init.release.cluster;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
mov.u32 %r1, full; mapa.shared::cluster.u32 %r2, %r1, %r4;
mbarrier.arrive.{arrive}.cluster.shared::cluster.b64 _, [%r2];  // remote
{end}
"""

    for seed in range(4):
        end = wait("full", 0, sem=f".{waits}.cluster")
        silent(run(body(end), cluster=(2, 1, 1), grid=2, block=32, seed=seed))
        found = the(run(body(RELAXED), cluster=(2, 1, 1), grid=2, block=32, seed=seed),
                    "cta_exited")  # fmt: skip
        assert found.line == line_of(body(""), "remote")


def test_c76_an_atomic_that_gives_a_value_is_over():
    atomic = PEER + "atom.shared::cluster.add.u32 %r6, [%r2+4], 1;\n" + RELAXED
    silent(run(atomic, cluster=(2, 1, 1), grid=2, block=32))


def test_c77_remote_barrier_with_the_local_form():
    body = """
setp.eq.u32 %p1, %thread, 0;
@%p1 mbarrier.init.shared::cta.b64 [full], 1;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
mov.u32 %r1, full; mapa.shared::cluster.u32 %r2, %r1, 1; mov.u32 %r3, %cluster_ctarank;
setp.eq.u32 %p3, %r3, 0; and.pred %p4, %p3, %p1;
@%p4 mbarrier.arrive.shared::cta.b64 _, [%r2];  // remote
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
"""
    found = the(run(body, cluster=(2, 1, 1), grid=2, block=32), "mbarrier_remote")
    assert "only arrive/expect_tx in shared::cluster form" in found.message
    assert found.line == line_of(body, "remote")


def test_state_form_and_pending_count():
    body = (
        INIT.format(full=2, empty=1)
        + """
setp.eq.u32 %p2, %thread, 0; @!%p2 bra DONE;
mbarrier.arrive.noComplete.shared::cta.b64 %rd5, [full], 1;
mbarrier.pending_count.b64 %r5, %rd5;
mbarrier.arrive.shared::cta.b64 %rd6, [full];
mbarrier.test_wait.shared::cta.b64 %p3, [full], %rd6;
selp.u32 %r6, 1, 0, %p3;
cvta.to.global.u64 %rd2, %rd1; st.global.u32 [%rd2], %r5; st.global.u32 [%rd2+4], %r6;
DONE: bar.sync 0;
"""
    )
    out = np.zeros(4, np.uint32)
    silent(run(body, args=[out], params=SRC))
    assert out[0] == 2
    assert out[1] == 1
