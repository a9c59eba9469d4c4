"""Divergence, reconvergence, warp-level instructions, calls, spinning and deadlock."""

from __future__ import annotations

import numpy as np
import pytest

from nbtc.emulator import launch

HEAD = ".version 8.8\n.target sm_90a\n.address_size 64\n"
LANES = np.arange(32)


def run(body: str, args: list, *, block: int = 32, grid: int = 1, top: str = "", **kwargs):
    """Run a body; pointers in a0.., thread in t, out address of the thread (4 bytes) in o."""
    names = ", ".join(f".param .u64 arg{i}" for i in range(len(args)))
    loads = " ".join(f"ld.param.u64 a{i}, [arg{i}];" for i in range(len(args)))
    text = f"""{HEAD}{top}
.visible .entry k({names}) {{
.reg .b64 a<8>; .reg .b64 d<9>; .reg .b32 r<40>; .reg .pred p<8>; .reg .b32 t; .reg .b64 o;
{loads}
mov.u32 t, %tid.x; mul.wide.u32 o, t, 4; add.u64 o, a0, o;
{body}
ret; }}"""
    return launch(text, "k", grid=grid, block=block, args=args, **kwargs)


def test_nested_divergence_and_values_after_the_join():
    out = np.zeros(32, np.uint32)
    report = run(
        """
mov.u32 r0, 0; and.b32 r1, t, 1; setp.eq.u32 p0, r1, 0; setp.lt.u32 p1, t, 16;
@p0 bra EVEN;
  add.u32 r0, r0, 1; @p1 bra LOW; add.u32 r0, r0, 2; bra JOIN1; LOW: add.u32 r0, r0, 4; JOIN1:
  bra JOIN;
EVEN: add.u32 r0, r0, 100;
JOIN: activemask.b32 r2; add.u32 r0, r0, 1000; setp.ne.u32 p2, r2, -1; @p2 mov.u32 r0, 7;
st.global.u32 [o], r0;
""",
        [out],
    )
    assert report.ok, str(report)
    want = np.where(LANES % 2 == 0, 1100, np.where(LANES < 16, 1005, 1003))
    np.testing.assert_array_equal(out, want)


def test_loop_with_different_trip_counts_and_breaks():
    out = np.zeros(32, np.uint32)
    report = run(
        """
mov.u32 r0, 0; mov.u32 r1, 0;
L: setp.ge.u32 p0, r1, t; @p0 bra DONE;
   add.u32 r0, r0, r1; setp.gt.u32 p1, r0, 60; @p1 bra DONE;
   add.u32 r1, r1, 1; bra L;
DONE: activemask.b32 r2; setp.ne.u32 p2, r2, -1; @p2 mov.u32 r0, 999;
st.global.u32 [o], r0;
""",
        [out],
    )
    assert report.ok, str(report)

    def trip(n):
        total = i = 0
        while i < n:
            total += i
            if total > 60:
                break
            i += 1
        return total

    np.testing.assert_array_equal(out, [trip(n) for n in range(32)])


def test_returned_lanes_do_not_hold_up_the_rest():
    out = np.zeros(64, np.uint32)
    report = run(
        """
setp.ge.u32 p0, t, 40; @p0 bra END;
mov.u32 r1, -1; bar.sync 0; add.u32 r0, t, 5; st.global.u32 [o], r0;
END:
""",
        [out],
        block=64,
    )
    np.testing.assert_array_equal(out[:40], np.arange(40) + 5)
    assert "deadlock" not in {f.kind for f in report.findings}


def test_exit_inside_a_function_ends_the_lane():
    out = np.zeros(32, np.uint32)
    top = """.func quit(.param .b32 x) { .reg .b32 r; .reg .pred p; ld.param.b32 r, [x];
setp.lt.u32 p, r, 8; @p exit; ret; }"""
    report = run(
        "{ .param .b32 x; st.param.b32 [x], t; call quit, (x); } mov.u32 r0, 1; "
        "st.global.u32 [o], r0;",
        [out],
        top=top,
    )
    assert report.ok, str(report)
    np.testing.assert_array_equal(out, LANES >= 8)


def test_wait_for_another_lane_of_the_same_warp():
    flag, out = np.zeros(1, np.uint32), np.zeros(32, np.uint32)
    for seed in range(4):
        flag[:] = 0
        report = run(
            """
setp.eq.u32 p0, t, 31; @p0 bra SET;
W: ld.volatile.global.u32 r0, [a1]; setp.eq.u32 p1, r0, 0; @p1 bra W;
bra END;
SET: mov.u32 r1, 1; st.volatile.global.u32 [a1], r1;
END: mov.u32 r2, 3; st.global.u32 [o], r2;
""",
            [out, flag],
            seed=seed,
        )
        assert "deadlock" not in {f.kind for f in report.findings}, str(report)
        assert (out == 3).all()


def test_flag_between_blocks_that_run_one_after_the_other():
    flag, out = np.zeros(1, np.uint32), np.zeros(32, np.uint32)
    report = run(
        """
mov.u32 r5, %ctaid.x; setp.ne.u32 p0, r5, 0; @p0 bra SET;
W: ld.acquire.gpu.global.u32 r0, [a1]; setp.eq.u32 p1, r0, 0; @p1 bra W;
st.global.u32 [o], r0; bra END;
SET: setp.eq.u32 p2, t, 0; mov.u32 r1, 9; @p2 st.release.gpu.global.u32 [a1], r1;
END:
""",
        [out, flag],
        grid=2,
    )
    assert report.ok, str(report)
    assert (out == 9).all()


def test_spinning_for_ever_is_reported():
    flag, out = np.zeros(1, np.uint32), np.zeros(32, np.uint32)
    report = run(
        "W: ld.volatile.global.u32 r0, [a1]; setp.eq.u32 p1, r0, 0; @p1 bra W;", [out, flag], grid=2
    )
    assert {f.kind for f in report.findings} <= {"livelock", "deadlock"}
    assert not report.ok


def test_long_computation_is_not_a_livelock():
    out = np.zeros(32, np.uint32)
    report = run(
        """
mov.u32 r0, 0; mov.u32 r1, 0;
L: add.u32 r0, r0, 3; add.u32 r1, r1, 1; setp.lt.u32 p0, r1, 3000; @p0 bra L;
st.global.u32 [o], r0;
""",
        [out],
    )
    assert report.ok
    assert (out == 9000).all()


def test_branch_table():
    out = np.zeros(32, np.uint32)
    report = run(
        """
T: .branchtargets A, B, C, A;
and.b32 r1, t, 3; brx.idx r1, T;
A: mov.u32 r0, 10; bra END; B: mov.u32 r0, 20; bra END; C: mov.u32 r0, 30;
END: st.global.u32 [o], r0;
""",
        [out],
    )
    assert report.ok
    np.testing.assert_array_equal(out, np.array([10, 20, 30, 10])[LANES % 4])
    report = run("T: .branchtargets A, B; brx.idx t, T; A: mov.u32 r0, 1; B: mov.u32 r0, 2;", [out])
    assert [f.kind for f in report.findings] == ["illegal_instruction"]


RECURSION = """
.func (.param .b32 y) fact(.param .b32 x) {
.reg .b32 r<4>; .reg .pred p; .local .align 4 .b8 keep[4];
ld.param.b32 r0, [x]; st.local.b32 [keep], r0;
setp.gt.u32 p, r0, 1; @p bra DEEP; mov.u32 r2, 1; bra OUT;
DEEP: sub.u32 r1, r0, 1;
{ .param .b32 a; .param .b32 b; st.param.b32 [a], r1; call (b), fact, (a); ld.param.b32 r2, [b]; }
ld.local.b32 r0, [keep]; mul.lo.u32 r2, r2, r0;
OUT: st.param.b32 [y], r2; ret; }
"""


def test_divergent_recursion_with_local_memory():
    out = np.zeros(32, np.uint32)
    report = run(
        """
and.b32 r0, t, 7; setp.eq.u32 p0, r0, 0; mov.u32 r1, 0; @p0 bra SKIP;
{ .param .b32 a; .param .b32 b; st.param.b32 [a], r0; call.uni (b), fact, (a);
  ld.param.b32 r1, [b]; }
SKIP: st.global.u32 [o], r1;
""",
        [out],
        top=RECURSION,
    )
    assert report.ok, str(report)
    table = [0, 1, 2, 6, 24, 120, 720, 5040]
    np.testing.assert_array_equal(out, [table[i % 8] for i in range(32)])


def test_predicated_and_indirect_and_register_calls():
    out = np.zeros(32, np.uint32)
    top = """
.func (.reg .b32 y) twice(.reg .b32 x) { add.u32 y, x, x; ret; }
.func (.param .b32 y) plus(.param .b32 x) { .reg .b32 r; ld.param.b32 r, [x]; add.u32 r, r, 7;
st.param.b32 [y], r; ret; }
.global .u64 table[1] = {plus};
"""
    report = run(
        """
mov.u32 r0, t; setp.lt.u32 p0, t, 5; @p0 call (r0), twice, (t);
P: .callprototype (.param .b32 _) _ (.param .b32 _);
ld.global.u64 d0, [table];
{ .param .b32 a; .param .b32 b; st.param.b32 [a], r0; call (b), d0, (a), P; ld.param.b32 r0, [b]; }
st.global.u32 [o], r0;
""",
        [out],
        top=top,
    )
    assert report.ok, str(report)
    np.testing.assert_array_equal(out, np.where(LANES < 5, 2 * LANES, LANES) + 7)


def test_shuffles():
    values = np.random.default_rng(0).integers(0, 2**32, 32, dtype=np.uint32)
    for mode in ("up", "down", "bfly", "idx"):
        for width in (32, 8):
            for b in (0, 1, 5, 31):
                control = (32 - width) << 8 | (0 if mode == "up" else 31)
                out, good = np.zeros(32, np.uint32), np.zeros(32, np.uint32)
                report = run(
                    f"""
mul.wide.u32 d0, t, 4; add.u64 d1, a2, d0; ld.global.u32 r0, [d1];
shfl.sync.{mode}.b32 r1|p0, r0, {b}, {control}, -1;
st.global.u32 [o], r1; selp.u32 r2, 1, 0, p0; add.u64 d1, a1, d0; st.global.u32 [d1], r2;
""",
                    [out, good, values],
                )
                assert report.ok, str(report)
                low = LANES // width * width
                source = {
                    "up": LANES - b,
                    "down": LANES + b,
                    "bfly": LANES ^ b,
                    "idx": low + b % width,
                }[mode]
                inside = (source >= low) & (source < low + width)
                if mode == "bfly":
                    inside = (LANES ^ b) < low + width
                np.testing.assert_array_equal(good, inside, err_msg=f"{mode} {width} {b}")
                np.testing.assert_array_equal(out, values[np.where(inside, source, LANES)])


def test_shuffle_from_a_lane_that_takes_no_part():
    out = np.zeros(32, np.uint32)
    report = run(
        """
setp.ge.u32 p0, t, 16; @p0 bra END;
shfl.sync.idx.b32 r1, t, 20, 31, 0xFFFF; st.global.u32 [o], r1; END:
""",
        [out],
    )
    assert [f.kind for f in report.findings] == ["shuffle_inactive"]


def test_lane_outside_the_mask():
    out = np.zeros(32, np.uint32)
    report = run("vote.sync.ballot.b32 r1, 1, 0xFFFF; st.global.u32 [o], r1;", [out])
    assert "sync_mask" in {f.kind for f in report.findings}


def test_split_warp_meets_at_a_warp_instruction():
    """Both sides of a branch run the same shuffle with a full mask, in a function."""
    out = np.zeros(32, np.uint32)
    report = run(
        """
mov.u32 r0, 0; setp.lt.u32 p0, t, 16; @p0 bra X;
add.u32 r0, r0, 1;
X: redux.sync.add.u32 r1, r0, -1; st.global.u32 [o], r1;
""",
        [out],
    )
    assert report.ok
    assert (out == 16).all()


def test_warp_instruction_that_waits_for_lanes_elsewhere():
    out = np.zeros(32, np.uint32)
    report = run(
        """
setp.lt.u32 p0, t, 16; @p0 bra X;
vote.sync.any.pred p1, p0, -1; bra END;
X: redux.sync.add.u32 r1, t, -1;
END: st.global.u32 [o], r1;
""",
        [out],
    )
    assert not report.ok
    finding = report.findings[0]
    assert finding.kind == "deadlock"
    assert "member mask" in finding.message, str(report)


def test_votes_match_redux_elect():
    out = np.zeros((12, 32), np.uint32)
    rows = []

    def store(register):
        rows.append(register)
        return f"st.global.u32 [o+{128 * (len(rows) - 1)}], {register};"

    report = run(
        f"""
setp.lt.u32 p0, t, 7; and.b32 r9, t, 3;
vote.sync.all.pred p1, p0, -1; selp.u32 r0, 1, 0, p1; {store("r0")}
vote.sync.any.pred p1, p0, -1; selp.u32 r0, 1, 0, p1; {store("r0")}
vote.sync.uni.pred p1, !p0, -1; selp.u32 r0, 1, 0, p1; {store("r0")}
vote.sync.ballot.b32 r0, p0, -1; {store("r0")}
match.any.sync.b32 r0, r9, -1; {store("r0")}
match.all.sync.b32 r0|p1, r9, -1; {store("r0")}
redux.sync.min.s32 r0, r9, -1; {store("r0")}
redux.sync.xor.b32 r0, t, -1; {store("r0")}
elect.sync r0|p1, -1; selp.u32 r1, 5, 6, p1; {store("r1")}
mov.u32 r0, %lanemask_gt; {store("r0")}
""",
        [out],
    )
    assert report.ok, str(report)
    bits = 1 << LANES
    assert (out[0] == 0).all()
    assert (out[1] == 1).all()
    assert (out[2] == 0).all()
    assert (out[3] == 0x7F).all()
    np.testing.assert_array_equal(out[4], [bits[LANES % 4 == v].sum() for v in LANES % 4])
    assert (out[5] == 0).all()
    assert (out[6] == 0).all()
    assert (out[7] == np.bitwise_xor.reduce(LANES)).all()
    np.testing.assert_array_equal(out[8], np.where(LANES == 0, 5, 6))
    np.testing.assert_array_equal(out[9], [(0xFFFFFFFF << (i + 1)) & 0xFFFFFFFF for i in LANES])


def test_special_registers():
    out = np.zeros((4, 2, 24), np.uint32)
    names = [
        "%tid.x",
        "%tid.y",
        "%ntid.x",
        "%ntid.y",
        "%ctaid.x",
        "%ctaid.y",
        "%nctaid.x",
        "%cluster_ctarank",
        "%cluster_ctaid.x",
        "%clusterid.x",
        "%nclusterid.x",
        "%cluster_nctarank",
        "%laneid",
    ]
    body = """
mov.u32 r1, %tid.y; mov.u32 r2, %ntid.x; mad.lo.u32 r3, r1, r2, t;
setp.ne.u32 p0, r3, 13; @p0 bra END;
mov.u32 r4, %ctaid.x; mov.u32 r5, %ctaid.y; mad.lo.u32 r4, r4, 2, r5; mul.wide.u32 d0, r4, 96;
add.u64 d0, a0, d0;
""" + "\n".join(f"mov.u32 r6, {n}; st.global.u32 [d0+{4 * i}], r6;" for i, n in enumerate(names))
    report = run(body + "\nEND:", [out], block=(8, 4), grid=(4, 2), cluster=(2, 1, 1))
    assert report.ok, str(report)
    for x in range(4):
        for y in range(2):
            want = [5, 1, 8, 4, x, y, 4, x % 2, x % 2, x // 2, 2, 2, 13]
            assert out[x, y, : len(want)].tolist() == want


def test_neighbour_shared_memory_in_a_cluster():
    out = np.zeros((2, 32), np.uint32)
    report = run(
        """
mov.u32 r0, %cluster_ctarank; mul.lo.u32 r1, r0, 100; add.u32 r1, r1, t;
mov.u32 r2, sh; shl.b32 r3, t, 2; add.u32 r2, r2, r3; st.shared.u32 [r2], r1;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
xor.b32 r4, r0, 1; mapa.shared::cluster.u32 r5, r2, r4; ld.shared::cluster.u32 r6, [r5];
getctarank.shared::cluster.u32 r7, r5; setp.ne.u32 p0, r7, r4; @p0 trap;
mul.wide.u32 d0, r0, 128; add.u64 d0, o, d0; st.global.u32 [d0], r6;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
""",
        [out],
        grid=2,
        cluster=(2, 1, 1),
        top=".shared .align 4 .b8 sh[128];",
    )
    assert report.ok, str(report)
    np.testing.assert_array_equal(out[0], LANES + 100)
    np.testing.assert_array_equal(out[1], LANES)


@pytest.mark.parametrize("completion", ["random", "earliest", "latest"])
def test_same_seed_same_run(completion):
    reports = []
    for _ in range(2):
        out = np.zeros(32, np.uint32)
        lock = np.zeros(1, np.uint32)
        report = run(
            """
bar.sync 0; mov.u32 r1, %ctaid.x; setp.eq.u32 p0, t, 0;
@p0 atom.global.exch.b32 r0, [a1], r1; bar.sync 0; st.global.u32 [o], r1;
""",
            [out, lock],
            grid=4,
            block=64,
            seed=7,
            completion=completion,
        )
        reports.append((report.instructions, lock[0], str(report)))
    assert reports[0] == reports[1]


def test_progress_and_counts():
    seen = []
    out = np.zeros(32, np.uint32)
    report = run("st.global.u32 [o], t;", [out], grid=5, progress=seen.append)
    assert seen == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert report.bytes_written["global"] == 5 * 128
    assert report.instructions == 5 * 6


def test_printf(capsys):
    text = (
        HEAD
        + """
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.const .align 1 .b8 fmt[16] = {37, 100, 32, 37, 108, 108, 117, 32, 37, 102, 32, 37, 115, 10, 0};
.const .align 1 .b8 word[4] = {104, 105, 0};
.visible .entry k() {
.local .align 8 .b8 depot[32]; .reg .b64 d<6>; .reg .b32 r<3>; .reg .f64 x;
mov.u64 d0, depot; cvta.local.u64 d1, d0; mov.u32 r0, -3; st.local.b32 [d0], r0;
mov.u64 d2, 12345678901; st.local.b64 [d0+8], d2; mov.f64 x, 0d3FF8000000000000;
st.local.f64 [d0+16], x; mov.u64 d3, word; cvta.const.u64 d3, d3; st.local.b64 [d0+24], d3;
mov.u64 d4, fmt; cvta.const.u64 d4, d4;
{ .param .b64 f; .param .b64 a; .param .b32 r; st.param.b64 [f], d4; st.param.b64 [a], d1;
  call.uni (r), vprintf, (f, a); ld.param.b32 r1, [r]; }
ret; }"""
    )
    assert launch(text, grid=1, block=1, args=[]).ok
    assert capsys.readouterr().out == "-3 12345678901 1.500000 hi\n"


def test_explicit_cluster_predicate():
    out = np.zeros(32, np.uint32)
    body = "mov.pred p0, %is_explicit_cluster; selp.u32 r0, 1, 0, p0; st.global.u32 [o], r0;"
    assert run(body, [out]).ok
    assert not out.any()
    run(body, [out], grid=2, cluster=(2, 1, 1))
    assert out.all()


def test_branch_that_breaks_its_promise():
    report = run("setp.lt.u32 p0, t, 9; @p0 bra.uni X; X: bra Y; Y:", [np.zeros(32, np.uint32)])
    assert {f.kind for f in report.findings} <= {"uniform_branch"}
    report = run(
        "mov.u32 r0, 0; setp.lt.u32 p0, t, 9; @p0 bra.uni X; mov.u32 r0, 1; "
        "X: st.global.u32 [o], r0;",
        [np.zeros(32, np.uint32)],
    )
    assert [f.kind for f in report.findings] == ["uniform_branch"]


def test_register_that_nothing_writes():
    report = run("add.u32 r0, r7, 1; st.global.u32 [o], r0;", [np.zeros(32, np.uint32)])
    assert [w.kind for w in report.warnings] == ["uninitialised_read"]
    assert "register r7" in report.warnings[0].message
    report = run(
        "setp.eq.u32 p0, t, 0; @p0 mov.u32 r7, 5; add.u32 r0, r7, 1;", [np.zeros(32, np.uint32)]
    )
    assert not report.warnings


def test_wait_with_a_time_limit_ends():
    flag = np.zeros(32, np.uint32)
    report = run(
        """
mov.u64 d0, %clock64;
W: ld.volatile.global.u32 r0, [a0]; setp.ne.u32 p0, r0, 0; @p0 bra END;
mov.u64 d1, %clock64; sub.u64 d1, d1, d0; setp.gt.u64 p1, d1, 20000000000; @p1 trap; bra W;
END:
""",
        [flag],
        block=64,
    )
    assert [f.kind for f in report.findings] == ["trap"]
