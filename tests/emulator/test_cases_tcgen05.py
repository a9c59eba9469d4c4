"""Cases C56 to C68 and cluster launch control, by hand-written PTX for sm_100a."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_helper import kernel, line_of, wait

from nbtc.emulator import launch
from nbtc.layout.tensormap_description import TensorMapDescription

POLICIES = ("random", "earliest", "latest")
SHARED = """
.shared .align 8 .b8 full[16];
.shared .align 8 .b8 done[16];
.shared .align 16 .b8 slot[16];
.shared .align 1024 .b8 tile_a[16384];
.shared .align 1024 .b8 tile_b[8192];
"""
LOAD = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
PARAMS = ".param .align 64 .b8 map_a[128], .param .align 64 .b8 map_b[128], .param .u64 out"
COMMIT = (
    "@%p1 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [done];  // commit"
)
DESCRIPTOR = 0x08100010  # f16 x f16 -> f32, M 128, N 64
LD = "tcgen05.ld.sync.aligned.32x32b.x64.b32 {{{}}}, [{}];"
REGISTERS = ", ".join(f"%r{100 + i}" for i in range(64))
ALLOC = "@%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], {};  // alloc"
DEALLOC = "@%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r30, {};  // dealloc"


class Map:
    """A tensor map with its array."""

    def __init__(self, array, box, swizzle="128B"):
        self.array = array
        self.description = TensorMapDescription.tiled(
            array.shape, array.dtype.name, box, swizzle=swizzle
        )


def mma(step, enable):
    return (
        "@%p1 tcgen05.mma.cta_group::1.kind::f16 [%r30], "
        f"%rd{20 + step}, %rd{30 + step}, %r31, {enable};  // mma{step}"
    )


def gemm(*, columns=64, alloc=None, after_alloc="bar.sync 0;", descriptor=DESCRIPTOR,
         version=1, first="%p0", commit=COMMIT, done=None, before_ld="", lane="%r32",
         after_ld="tcgen05.wait::ld.sync.aligned;", before_free="bar.sync 0;", dealloc=None,
         extra="mov.u32 %r9, 0;"):  # fmt: skip
    """128 x 64 x 64 in float16 on one CTA."""
    descriptors = "\n".join(
        f"add.s64 %rd{20 + s}, %rd10, {2 * s}; add.s64 %rd{30 + s}, %rd11, {2 * s};"
        for s in range(4)
    )
    chain = "\n".join(mma(s, first if s == 0 else "1") for s in range(4))
    stores = " ".join(f"st.global.b32 [%rd9+{4 * i}], %r{100 + i};" for i in range(64))
    fields = (2 << 61) | (version << 46) | (64 << 32) | (1 << 16)
    return f"""
mov.u32 %r12, tile_a; mov.u32 %r13, tile_b; mov.u32 %r14, 0;
mov.b64 %rd3, map_a; cvta.param.u64 %rd1, %rd3; mov.b64 %rd4, map_b; cvta.param.u64 %rd2, %rd4;
setp.eq.u32 %p1, %thread, 0; setp.ne.u32 %p0, %r14, 0; setp.eq.u32 %p2, %warp, 0;
@%p1 mbarrier.init.shared::cta.b64 [full], 1; @%p1 mbarrier.init.shared::cta.b64 [done], 1;
{alloc if alloc is not None else ALLOC.format(columns)}
{after_alloc}
ld.shared.u32 %r30, [slot];  // slot
bar.sync 0;
@%p2 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], 24576;
@%p1 {LOAD} [%r12], [%rd1, {{%r14, %r14}}], [full];
@%p1 {LOAD} [%r13], [%rd2, {{%r14, %r14}}], [full];
{wait("full", 0)}
shr.u32 %r1, %r12, 4; shr.u32 %r2, %r13, 4; cvt.u64.u32 %rd5, %r1; cvt.u64.u32 %rd6, %r2;
mov.u64 %rd7, {fields}; mov.u32 %r31, {descriptor};
or.b64 %rd10, %rd5, %rd7; or.b64 %rd11, %rd6, %rd7;
{descriptors}
{chain}
{commit}
{done if done is not None else wait("done", 0)}
{before_ld}
shl.b32 %r32, %warp, 21; add.u32 %r33, {lane}, %r30;
{LD.format(REGISTERS, "%r33")}  // ld
{extra}
{after_ld}
ld.param.u64 %rd8, [out]; mul.wide.u32 %rd9, %thread, 256; add.s64 %rd9, %rd9, %rd8;
{stores}
{before_free}
{dealloc if dealloc is not None else DEALLOC.format(columns)}
"""


def run(body, *, completion="random", seed=0, shared=SHARED, params=PARAMS, args=None, block=128,
        **more):  # fmt: skip
    rng = np.random.default_rng(5)
    a = rng.standard_normal((128, 64)).astype(np.float16)
    b = rng.standard_normal((64, 64)).astype(np.float16)
    out = np.zeros((128, 64), np.float32)
    if args is None:
        args = [Map(a, (128, 64)), Map(b, (64, 64)), out]
    more.setdefault("grid", 1)
    report = launch(kernel(body, shared=shared, params=params, target="sm_100a"), "k",
                    block=block, args=args, seed=seed, completion=completion, **more)  # fmt: skip
    return report, a, b, out


def the(report, kind):
    found = [f for f in report.findings if f.kind == kind]
    assert found, f"no {kind} in:\n{report}"
    return found[0]


def silent(report):
    assert not report.findings, str(report)
    assert not report.warnings, str(report)


@pytest.mark.parametrize("completion", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_product_and_no_finding(completion, seed):
    report, a, b, out = run(gemm(), completion=completion, seed=seed)
    silent(report)
    assert np.abs(out - a.astype(np.float64) @ b.astype(np.float64).T).max() < 1e-4


def test_c56_no_allocation():
    body = gemm(alloc="@%p1 st.shared.u32 [slot], %r14;", dealloc="")
    report, *_ = run(body)
    found = the(report, "tmem_unallocated")
    assert "tcgen05.mma D of columns 0..63; allocated:" in found.message
    assert found.line == line_of(body, "mma0")


def test_c56_use_beyond_the_allocation():
    report, *_ = run(gemm(columns=32))
    assert the(report, "tmem_unallocated")


@pytest.mark.parametrize("columns", [240, 48, 16, 1024, 0])
def test_c57_column_count(columns):
    body = f"""
setp.eq.u32 %p2, %warp, 0; mov.u32 %r1, {columns};
{ALLOC.format("%r1")}
"""
    report, *_ = run(body, params="", args=[])
    found = the(report, "tmem_columns")
    assert "must be a power of two in 32..512" in found.message
    if columns == 240:
        assert "next is 256" in found.message
    assert found.line == line_of(body, "alloc")


def test_c58_oversubscribed():
    body = f"""
setp.eq.u32 %p2, %warp, 0;
@%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 512;
{ALLOC.format(128)}
"""
    report, *_ = run(body, params="", args=[])
    found = the(report, "tmem_oversubscribed")
    assert "allocations 512+128=640 > 512 columns" in found.message
    assert found.line == line_of(body, "alloc")


def test_c59_never_freed_and_freed_by_another_warp():
    body = gemm(dealloc="mov.u32 %r9, 0;")
    report, *_ = run(body)
    found = the(report, "tmem_leak")
    assert found.line == line_of(body, "alloc")
    other = gemm(dealloc="setp.eq.u32 %p3, %warp, 1; @%p3 tcgen05.dealloc.cta_group::1.sync."
                 "aligned.b32 %r30, 64;")  # fmt: skip
    report, *_ = run(other)
    assert report.ok
    assert report.warnings[0].kind == "tmem_dealloc"


def test_c61_slot_read_too_early():
    body = gemm(after_alloc="mov.u32 %r9, 0;")
    kinds, messages = set(), []
    for seed in range(4):
        report, *_ = run(body, seed=seed)
        kinds |= {f.kind for f in report.findings}
        messages += [f.message for f in report.findings if f.kind == "tmem_slot"]
    assert "tmem_slot" in kinds
    assert all("with no synchronisation after tcgen05.alloc" in m for m in messages)


def test_c63_cta_group_mixed():
    body = gemm(commit=COMMIT.replace("cta_group::1", "cta_group::2"))
    report, *_ = run(body, grid=2, cluster=(2, 1, 1))
    found = the(report, "tcgen05_cta_group")
    assert "commit cta_group=2 but" in found.message
    assert "uses 1" in found.message
    assert found.line == line_of(body, "commit")


def test_c64_wrong_quarter():
    body = gemm(lane="%r35").replace(
        "shl.b32 %r32, %warp, 21;", "sub.u32 %r34, 3, %warp; shl.b32 %r35, %r34, 21;"
    )
    report, *_ = run(body)
    found = the(report, "tmem_lane")
    assert "can only reach" in found.message
    assert found.line == line_of(body, "ld")


@pytest.mark.parametrize("completion", POLICIES)
def test_c65_overwritten_before_wait_ld(completion):
    again = f"""bar.sync 0;
{mma(0, "1").replace("// mma0", "// again")}
{COMMIT.replace("// commit", "// second")}
{wait("done", 1)}"""
    body = gemm(extra=again)
    report, *_ = run(body, completion=completion)
    found = the(report, "tmem_in_flight")
    again_line = line_of(body, "again")
    overwritten = f"columns 0..63 overwritten at kernel.py:{again_line} while tcgen05.ld at kernel"
    assert overwritten in found.message
    assert "tcgen05.wait_ld first" in found.message
    assert found.line == again_line
    silent(run(gemm(extra="tcgen05.wait::ld.sync.aligned;\n" + again), completion=completion)[0])


def test_c65_registers_used_before_the_wait_are_legal():
    body = gemm(extra="add.u32 %r100, %r100, 0;  // early")
    report, *_ = run(body)
    silent(report)
    assert [(a.kind, a.line) for a in report.advice] == [
        ("tcgen05_ld_early", line_of(body, "early"))
    ]


def test_freed_before_wait_ld():
    report, *_ = run(gemm(after_ld="mov.u32 %r9, 0;"))
    assert "freed" in the(report, "tmem_in_flight").message


def test_freed_while_another_warp_reads():
    body = gemm(before_free="mov.u32 %r9, 0;")
    seen = set()
    for seed in range(6):
        report, *_ = run(body, seed=seed)
        seen |= {(f.kind, f.line) for f in report.findings}
    assert seen <= {
        ("tmem_in_flight", line_of(body, "dealloc")),
        ("tmem_unallocated", line_of(body, "ld")),
        ("tmem_unallocated", line_of(body, "mma0")),
    }
    assert len({kind for kind, _ in seen}) == 2


@pytest.mark.parametrize("completion", POLICIES)
def test_c66_relaxed_wait_needs_the_fence(completion):
    relaxed = wait("done", 0, sem=".relaxed.cta")
    body = gemm(done=relaxed)
    report, *_ = run(body, completion=completion)
    found = the(report, "tcgen05_fence")
    assert found.line == line_of(body, "ld")
    fenced = gemm(done=relaxed, before_ld="tcgen05.fence::after_thread_sync;")
    silent(run(fenced, completion=completion)[0])


@pytest.mark.parametrize("completion", POLICIES)
def test_read_before_the_commit_is_waited_for(completion):
    body = gemm(done="mov.u32 %r9, 0;")
    report, *_ = run(body, completion=completion)
    found = [f for f in report.findings if f.kind in ("tmem_in_flight", "tmem_uninitialised")]
    assert any(f.line == line_of(body, "ld") and "tcgen05.commit" in f.message for f in found)


def test_c51_first_step_accumulates():
    body = gemm(first="1")
    report, *_ = run(body)
    found = the(report, "tmem_uninitialised")
    assert "uninitialised accumulator" in found.message
    assert found.line == line_of(body, "mma0")


def test_accumulator_in_another_layout():
    body = gemm(commit="mov.u32 %r31, 0x04100010;\n" + mma(0, "1").replace("mma0", "other") + "\n"
                + COMMIT)  # fmt: skip
    report, *_ = run(body)
    found = the(report, "tmem_layout")
    assert "in layout F" in found.message
    assert "in layout D" in found.message
    assert found.line == line_of(body, "other")


def test_c67_n_out_of_range():
    body = gemm(descriptor=(DESCRIPTOR & ~(0x3F << 17)) | (33 << 17))
    report, *_ = run(body)
    assert the(report, "tcgen05_descriptor").line == line_of(body, "mma0")


def test_c68_hopper_descriptor():
    body = gemm(version=0)
    report, *_ = run(body)
    found = the(report, "tcgen05_descriptor")
    assert found.line == line_of(body, "mma0")


@pytest.mark.parametrize("completion", POLICIES)
def test_stage_overwritten_while_mma_reads(completion):
    refill = f"""@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], 16384;
@%p1 {LOAD} [%r12], [%rd1, {{%r14, %r14}}], [full];  // refill"""
    tail = f"\n{wait('full', 1)}"
    early = gemm(commit=COMMIT + "\n" + refill, extra=tail.strip())
    report, *_ = run(early, completion=completion)
    found = the(report, "overwrite_while_read")
    assert found.line == line_of(early, "refill")
    late = gemm(before_ld="bar.sync 0;\n" + refill + tail)
    silent(run(late, completion=completion)[0])


def pair(between):
    return f"""
setp.eq.u32 %p2, %warp, 0; mov.u32 %r20, %cluster_ctarank;
@%p2 tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [slot], 64;  // alloc
bar.sync 0;
ld.shared.u32 %r30, [slot];
bar.sync 0;
{between}
@%p2 tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r30, 64;  // dealloc
"""


@pytest.mark.parametrize("seed", range(3))
def test_c62_pair_out_of_step(seed):
    call = {"params": "", "args": [], "grid": 2, "cluster": (2, 1, 1), "block": 64, "seed": seed}
    report, *_ = run(pair("mov.u32 %r9, 0;"), **call)
    found = the(report, "tcgen05_pair_order")
    assert "put a cluster barrier between" in found.message
    assert found.line == line_of(pair(""), "dealloc")
    silent(run(pair("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"), **call)[0])


# -- cluster launch control -----------------------------------------------------------------------


def persistent(*, again=False, guard=True, fence="fence.proxy.async.shared::cta;"):
    """Every CTA counts the tiles it takes over."""
    ask = (
        "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], 16;\n"
        "@%p1 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 "
        "[slot], [full];  // ask"
    )
    stop = "@!%p4 bra DONE;" if guard else "mov.u32 %r9, 0;"
    extra = ask.replace("// ask", "// again") + "\nxor.b32 %r3, %r3, 1;" if again else ""
    return f"""
ld.param.u64 %rd1, [out]; setp.eq.u32 %p1, %thread, 0; mov.u32 %r3, 0;
@%p1 mbarrier.init.shared::cta.b64 [full], 1;
bar.sync 0;
mov.u32 %r1, %ctaid.x;
TILE: mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd1, %rd2;
@%p1 red.global.add.u32 [%rd2], 1;
{ask}
{wait("full", "%r3", sem=".acquire.cta")}
ld.shared.b128 %q1, [slot];  // response
{fence}
bar.sync 0;
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p4, %q1;
xor.b32 %r3, %r3, 1;
{stop}
clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r1, %q1;  // get
@%p4 bra TILE;
DONE: mov.u32 %r9, 0;
{extra}
"""


CLC = {"params": ".param .u64 out", "shared": SHARED + "\n.reg .b128 %q<4>;"}


@pytest.mark.parametrize("completion", POLICIES)
def test_launch_control_runs_every_tile_once(completion):
    out = np.zeros(37, np.uint32)
    report, *_ = run(persistent(), args=[out], grid=37, block=64, completion=completion, **CLC)
    silent(report)
    assert out.tolist() == [1] * 37


def test_try_cancel_after_a_failure():
    out = np.zeros(3, np.uint32)
    body = persistent(again=True) + wait("full", "%r3")
    report, *_ = run(body, args=[out], grid=3, block=64, **CLC)
    assert the(report, "clc_after_failure").line == line_of(body, "again")


def test_first_ctaid_of_a_failed_request():
    out = np.zeros(3, np.uint32)
    body = persistent(guard=False)
    report, *_ = run(body, args=[out], grid=3, block=64, **CLC)
    assert the(report, "clc_response").line == line_of(body, "get")


def test_response_slot_reused_without_a_proxy_fence():
    out = np.zeros(5, np.uint32)
    body = persistent(fence="mov.u32 %r9, 0;")
    report, *_ = run(body, args=[out], grid=5, block=64, **CLC)
    found = the(report, "missing_proxy_fence")
    assert f"read by thread 0 at kernel.py:{line_of(body, 'response')}" in found.message
    assert found.line == line_of(body, "ask")


def test_pair_freed_while_the_peer_reads():
    def body(between):
        return f"""
setp.eq.u32 %p2, %warp, 0; mov.u32 %r40, 7;
@%p2 tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [slot], 32;
bar.sync 0;
ld.shared.u32 %r30, [slot];
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
shl.b32 %r32, %warp, 21; add.u32 %r33, %r32, %r30;
tcgen05.st.sync.aligned.32x32b.x1.b32 [%r33], {{%r40}};
tcgen05.wait::st.sync.aligned;
tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r41}}, [%r33];  // ld
tcgen05.wait::ld.sync.aligned;
bar.sync 0;
{between}
@%p2 tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r30, 32;  // dealloc
"""

    call = {"params": "", "args": [], "grid": 2, "cluster": (2, 1, 1), "block": 128}
    kinds = set()
    for seed in range(4):
        report, *_ = run(body("mov.u32 %r9, 0;"), seed=seed, **call)
        kinds |= {(f.kind, f.line) for f in report.findings}
    assert ("tcgen05_pair_order", line_of(body(""), "dealloc")) in kinds
    for form in ("", ".relaxed"):
        barrier = f"barrier.cluster.arrive{form}.aligned; barrier.cluster.wait.aligned;"
        silent(run(body(barrier), **call)[0])
