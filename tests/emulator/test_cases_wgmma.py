"""Cases C41, C44, C46, C50, C51 and wgmma results; cp.async."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_helper import kernel, line_of, wait

from nbtc.emulator import launch
from nbtc.layout.tensormap_description import TensorMapDescription

POLICIES = ("random", "earliest", "latest")
SHARED = """
.shared .align 8 .b8 full[16];
.shared .align 1024 .b8 tile_a[8192];
.shared .align 1024 .b8 tile_b[8192];
"""
LOAD = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
PARAMS = ".param .align 64 .b8 map_a[128], .param .align 64 .b8 map_b[128], .param .u64 out"
ACC = "{" + ", ".join(f"%f{i}" for i in range(32)) + "}"


class Map:
    """A tensor map with its array."""

    def __init__(self, array, box, swizzle):
        self.array = array
        self.description = TensorMapDescription.tiled(
            array.shape, array.dtype.name, box, swizzle=swizzle
        )


def mma(step, scale="1"):
    return (
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
        f"{ACC}, %rd{20 + step}, %rd{30 + step}, {scale}, 1, 1, 0, 0;  // mma{step}"
    )


def gemm(*, fence="wgmma.fence.sync.aligned;", zero=True, first="%p0", commit=True,
         wait_group="wgmma.wait_group.sync.aligned 0;", early="", load=True, late="",
         layout=1, parity=0):  # fmt: skip
    """64 x 64 x 64 in float16: TMA in, four wgmmas, accumulators out."""
    zeros = " ".join(f"mov.f32 %f{i}, 0f00000000;" for i in range(32)) + "  // zero"
    stores = " ".join(f"st.global.f32 [%rd9+{4 * i}], %f{i};" for i in range(32)) + "  // store"
    load_text = f"""
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], 16384;
@%p1 {LOAD} [%r12], [%rd1, {{%r14, %r14}}], [full];  // loadA
@%p1 {LOAD} [%r13], [%rd2, {{%r14, %r14}}], [full];  // loadB
{wait("full", parity)}  // wait
"""
    descriptors = "\n".join(
        f"add.s64 %rd{20 + s}, %rd10, {2 * s}; add.s64 %rd{30 + s}, %rd11, {2 * s};"
        for s in range(4)
    )
    chain = "\n".join(mma(s, first if s == 0 else "1") for s in range(4))
    return f"""
mov.u32 %r10, full; mov.u32 %r12, tile_a; mov.u32 %r13, tile_b; mov.u32 %r14, 0;
mov.b64 %rd3, map_a; cvta.param.u64 %rd1, %rd3; mov.b64 %rd4, map_b; cvta.param.u64 %rd2, %rd4;
setp.eq.u32 %p1, %thread, 0; setp.ne.u32 %p0, %r14, 0;
@%p1 mbarrier.init.shared::cta.b64 [full], 1;
bar.sync 0;
{load_text if load else late}
shr.u32 %r1, %r12, 4; shr.u32 %r2, %r13, 4; cvt.u64.u32 %rd5, %r1; cvt.u64.u32 %rd6, %r2;
mov.u64 %rd7, {(layout << 62) | (64 << 32) | (1 << 16)};
or.b64 %rd10, %rd5, %rd7; or.b64 %rd11, %rd6, %rd7;
{descriptors}
{zeros if zero else "mov.u32 %r9, 0;"}
{fence}
{chain}
{"wgmma.commit_group.sync.aligned;" if commit else "mov.u32 %r9, 0;"}
{early}
{wait_group}
ld.param.u64 %rd8, [out]; mul.wide.u32 %rd9, %thread, 128; add.s64 %rd9, %rd9, %rd8;
{stores}
"""


def operands():
    rng = np.random.default_rng(3)
    a = rng.standard_normal((64, 64)).astype(np.float16)
    b = rng.standard_normal((64, 64)).astype(np.float16)
    return a, b, np.zeros((128, 32), np.float32)


def run(body, *, completion="random", seed=0, swizzle="128B", shared=SHARED, params=PARAMS,
        args=None, block=128):  # fmt: skip
    a, b, out = operands()
    if args is None:
        args = [Map(a, (64, 64), swizzle), Map(b, (64, 64), swizzle), out]
    report = launch(kernel(body, shared=shared, params=params), "k", grid=1, block=block,
                    args=args, seed=seed, completion=completion)  # fmt: skip
    return report, a, b, out


def the(report, kind):
    found = [f for f in report.findings if f.kind == kind]
    assert found, f"no {kind} in:\n{report}"
    return found[0]


def silent(report):
    assert not report.findings, str(report)
    assert not report.warnings, str(report)


def matrix(out):
    """Accumulator fragments (thread, register) to the 64 x 64 matrix."""
    thread, j = np.meshgrid(np.arange(128), np.arange(32), indexing="ij")
    row = 16 * (thread // 32) + thread % 32 // 4 + 8 * ((j >> 1) & 1)
    col = 8 * (j >> 2) + 2 * (thread % 4) + (j & 1)
    result = np.zeros((64, 64))
    result[row, col] = out
    return result


@pytest.mark.parametrize("completion", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_product_and_no_finding(completion, seed):
    report, a, b, out = run(gemm(), completion=completion, seed=seed)
    silent(report)
    expected = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.abs(matrix(out) - expected).max() < 1e-4
    # The zeroed accumulator with scale-d 1 is the same product.
    report, a, b, out = run(gemm(first="1"), completion=completion, seed=seed)
    silent(report)
    assert np.abs(matrix(out) - expected).max() < 1e-4


@pytest.mark.parametrize("completion", POLICIES)
def test_c44_accumulators_read_before_the_wait(completion):
    body = gemm(wait_group="mov.u32 %r9, 0;")
    report, *_ = run(body, completion=completion)
    found = the(report, "wgmma_in_flight")
    assert f"accumulator of wgmma group 0 read at kernel.py:{line_of(body, 'store')}" in (
        found.message
    )
    assert "before wait_group(0)" in found.message
    assert found.line == line_of(body, "store")


HALVES = " ".join(f"mov.b32 {{%h{2 * i}, %h{2 * i + 1}}}, %r{100 + i};" for i in range(16))


def in_halves(body):
    """The same product with float16 accumulators, stored as halves."""
    body = body.replace(
        f"f32.f16.f16 {ACC}", "f16.f16.f16 {" + ", ".join(f"%r{100 + i}" for i in range(16)) + "}"
    )
    for i in range(32):
        body = body.replace(f"st.global.f32 [%rd9+{4 * i}], %f{i};",
                            f"st.global.b16 [%rd9+{4 * i}], %h{i};")  # fmt: skip
    return body


@pytest.mark.parametrize("completion", POLICIES)
def test_halves_of_an_accumulator_taken_before_the_wait(completion):
    """LLVM unpacks float16 accumulators at once; ptxas waits before it, and so do we."""
    shared = SHARED + ".reg .b16 %h<32>;"
    report, *_, out = run(in_halves(gemm(early=HALVES)), completion=completion, shared=shared)
    silent(report)
    assert "wgmma_in_flight" in {f.kind for f in report.advice}
    _, _, _, want = run(gemm())
    got = out.view(np.float16)[:, ::2].astype(np.float64)
    np.testing.assert_allclose(got, want, atol=4e-3 * np.abs(want).max())
    used = in_halves(gemm(early=HALVES + " mov.b16 %rs1, %h0;"))
    assert the(run(used, completion=completion, shared=shared)[0], "wgmma_in_flight")


def test_c44_wait_for_too_few_groups():
    report, *_ = run(gemm(wait_group="wgmma.wait_group.sync.aligned 1;"))
    assert the(report, "wgmma_in_flight")


def test_registers_written_in_flight():
    body = gemm(early="mov.f32 %f3, 0f3F800000;  // early")
    report, *_ = run(body)
    assert the(report, "wgmma_in_flight").line == line_of(body, "early")


def test_missing_commit():
    report, *_ = run(gemm(commit=False))
    assert the(report, "wgmma_in_flight")
    assert "never committed" in the(report, "wgmma_uncommitted").message


@pytest.mark.parametrize("completion", POLICIES)
def test_c46_missing_fence(completion):
    body = gemm(fence="mov.u32 %r9, 0;")
    report, *_ = run(body, completion=completion)
    found = the(report, "wgmma_fence")
    assert f"written at kernel.py:{line_of(body, 'zero')}" in found.message
    assert f"used by wgmma at kernel.py:{line_of(body, 'mma0')} without wgmma_fence" in (
        found.message
    )
    assert found.line == line_of(body, "mma0")


def test_c46_fence_before_the_registers_are_written():
    body = gemm()
    lines = body.splitlines()
    fence = next(i for i, line in enumerate(lines) if line.startswith("wgmma.fence"))
    lines[fence - 1], lines[fence] = lines[fence], lines[fence - 1]
    report, *_ = run("\n".join(lines))
    assert the(report, "wgmma_fence")


def test_c46_no_alarm_for_the_same_shape_chain():
    """A second group on the same accumulator, untouched in between, needs no fence."""
    second = "\n".join(mma(s) for s in range(4)) + "\nwgmma.commit_group.sync.aligned;"
    report, a, b, out = run(gemm(early=second, wait_group="wgmma.wait_group.sync.aligned 0;"))
    silent(report)
    assert np.abs(matrix(out) - 2 * a.astype(np.float64) @ b.astype(np.float64).T).max() < 1e-3


def test_c51_first_step_accumulates_onto_nothing():
    body = gemm(zero=False, first="1")
    report, *_ = run(body)
    found = the(report, "wgmma_uninitialised")
    assert "scale_d=1 on first use" in found.message
    assert found.line == line_of(body, "mma0")
    silent(run(gemm(zero=False))[0])


def test_c41_swizzles_that_differ_are_advice():
    body = gemm(layout=2)
    report, *_ = run(body)
    found = next(item for item in report.advice if item.kind == "descriptor_swizzle")
    assert "operand A was filled with SWIZZLE_128B, descriptor says 64B" in found.message
    assert found.line == line_of(body, "mma0")


def filled(fence):
    """Both tiles written by threads instead of TMA."""
    return f"""
shl.b32 %r1, %thread, 2; add.u32 %r2, %r12, %r1; mov.u32 %r3, 0; mov.u32 %r4, 0;
FILL: st.shared.u32 [%r2], %r4;  // fill
add.u32 %r2, %r2, 512; add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 32; @%p2 bra FILL;
{fence}
"""


def test_c50_operand_written_by_threads():
    good = gemm(load=False, late=filled("fence.proxy.async.shared::cta;\nbar.sync 0;"))
    silent(run(good)[0])
    bad = gemm(load=False, late=filled("bar.sync 0;"))
    report, *_ = run(bad)
    found = the(report, "missing_proxy_fence")
    assert "wgmma operand A reads shared memory" in found.message
    assert f"kernel.py:{line_of(bad, 'fill')} with no fence.proxy_async()" in found.message
    assert found.line == line_of(bad, "mma0")


def test_operand_written_by_threads_that_fence_after_the_barrier():
    """Triton puts the fence of all threads between the barrier and the wgmma: advice."""
    late = gemm(load=False, late=filled("bar.sync 0;\nfence.proxy.async.shared::cta;"))
    report, *_ = run(late)
    silent(report)
    found = [f for f in report.advice if f.kind == "missing_proxy_fence"]
    assert found
    assert "here they fence after it" in found[0].message


@pytest.mark.parametrize("writers_fence", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_operand_written_by_other_threads_that_fence_after_the_barrier(seed, writers_fence):
    """The fence of the readers alone is not enough: every writing thread needs one."""
    body = gemm(load=False, late="bar.sync 0;\nfence.proxy.async.shared::cta;")
    fence = "fence.proxy.async.shared::cta;" if writers_fence else "mov.u32 %r9, 0;"
    fill = filled("bar.sync 0;").replace("%thread, 2", "%lane128, 2")
    body = body.replace("bar.sync 0;", "bar.sync 0;\nsetp.ge.u32 %p7, %thread, 128;\n"
                        f"@!%p7 bra READ;\nand.b32 %lane128, %thread, 127;\n{fill}\n{fence}\n"
                        "ret;\nREAD:", 1)  # fmt: skip
    report, *_ = run(body, seed=seed, shared=SHARED + ".reg .b32 %lane128;\n", block=256)
    assert {f.kind for f in report.findings} == (
        set() if writers_fence else {"missing_proxy_fence"}
    ), str(report)


@pytest.mark.parametrize("completion", POLICIES)
def test_operand_read_before_its_copy_is_known_complete(completion):
    body = gemm(parity=1)
    report, *_ = run(body, completion=completion)
    if completion == "earliest":
        assert "parity 0 passes" in the(report, "deadlock").message
        return
    found = the(report, "read_in_flight")
    assert found.line == line_of(body, "mma0")
    assert "returned without a completed phase since init" in found.message


@pytest.mark.parametrize("completion", POLICIES)
def test_stage_overwritten_while_wgmma_reads_it(completion):
    def body(before):
        return gemm(
            early=f"""
{before}
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], 8192;
@%p1 {LOAD} [%r12], [%rd1, {{%r14, %r14}}], [full];  // overwrite
{wait("full", 1)}
"""
        )

    bad = body("bar.sync 0;")
    report, *_ = run(bad, completion=completion)
    found = the(report, "overwrite_while_read")
    assert found.line == line_of(bad, "overwrite")
    assert "no wgmma.wait_group covers group 1" in found.message
    silent(run(body("wgmma.wait_group.sync.aligned 0;\nbar.sync 0;"), completion=completion)[0])


# -- cp.async -------------------------------------------------------------------------------------


def cp_async(sync):
    return f"""
ld.param.u64 %rd1, [src]; ld.param.u64 %rd2, [dst]; mov.u32 %r12, tile_a;
mul.wide.u32 %rd3, %thread, 16; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
shl.b32 %r1, %thread, 4; add.u32 %r2, %r12, %r1;
cp.async.cg.shared.global [%r2], [%rd4], 16;  // copy
{sync}
xor.b32 %r3, %r1, 512; add.u32 %r3, %r3, %r12;
ld.shared.v4.b32 {{%r4, %r5, %r6, %r7}}, [%r3];  // read
st.global.v4.b32 [%rd5], {{%r4, %r5, %r6, %r7}};
"""


CP_PARAMS = ".param .u64 src, .param .u64 dst"


@pytest.mark.parametrize("completion", POLICIES)
@pytest.mark.parametrize(
    ("sync", "ok"),
    [
        ("cp.async.commit_group;\ncp.async.wait_group 0;\nbar.sync 0;", True),
        ("cp.async.wait_all;\nbar.sync 0;", True),
        ("cp.async.commit_group;\nbar.sync 0;", False),
        ("cp.async.commit_group;\ncp.async.wait_group 1;\nbar.sync 0;", False),
        ("cp.async.commit_group;\nbar.sync 0;\ncp.async.wait_group 0;", False),
    ],
)
def test_cp_async_groups(completion, sync, ok):
    source = np.arange(512, dtype=np.uint32)
    target = np.zeros_like(source)
    body = cp_async(sync)
    report, *_ = run(body, params=CP_PARAMS, args=[source, target], completion=completion)
    if not ok:
        assert the(report, "read_in_flight").line == line_of(body, "read")
        return
    silent(report)
    expected = source.reshape(4, 32, 4)[[1, 0, 3, 2]].reshape(-1)
    assert np.array_equal(target, expected)


@pytest.mark.parametrize("completion", POLICIES)
@pytest.mark.parametrize(("form", "count"), [(".noinc", 128), ("", 128)])
def test_cp_async_arrives_on_an_mbarrier(completion, form, count):
    body = cp_async(f"""cp.async.mbarrier.arrive{form}.shared::cta.b64 [full];
{"" if form else "mbarrier.arrive.shared::cta.b64 _, [full];"}
{wait("full", 0)}""").replace(
        "shl.b32 %r1", f"""setp.eq.u32 %p1, %thread, 0;
@%p1 mbarrier.init.shared::cta.b64 [full], {count};
bar.sync 0;
shl.b32 %r1""", 1)  # fmt: skip
    source = np.arange(512, dtype=np.uint32)
    target = np.zeros_like(source)
    report, *_ = run(body, params=CP_PARAMS, args=[source, target], completion=completion)
    silent(report)
    assert np.array_equal(target, source.reshape(4, 32, 4)[[1, 0, 3, 2]].reshape(-1))


def test_c41_k_step_leaves_the_swizzle_row():
    body = gemm().replace("add.s64 %rd21, %rd10, 2;", "add.s64 %rd21, %rd10, 16;")
    report, *_ = run(body)
    found = next(item for item in report.advice if item.kind == "descriptor_swizzle")
    assert "the k-step leaves the 128 B swizzle row" in found.message
    assert found.line == line_of(body, "mma1")
