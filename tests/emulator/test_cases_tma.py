"""Cases C26 to C35, C73 to C75: tensor copies, proxies, tensor maps in memory, multicast."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from ptx_helper import kernel, line_of, wait

from nbtc.emulator import launch
from nbtc.layout.tensormap_description import TensorMapDescription

POLICIES = ("random", "earliest", "latest")
SHARED = """
.shared .align 8 .b8 full[16];
.shared .align 1024 .b8 tiles[32768];
"""
LOAD = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
STORE = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"


class Map:
    """A tensor map with its array."""

    def __init__(self, array, box, swizzle="none", **more):
        self.array = array
        self.description = TensorMapDescription.tiled(
            array.shape, array.dtype.name, box, swizzle=swizzle, **more
        )


MAP = ".param .align 64 .b8 map[128]"
SETUP = """
mov.u32 %r10, full; mov.u32 %r12, tiles; mov.b64 %rd3, map; cvta.param.u64 %rd1, %rd3;
setp.eq.u32 %p1, %thread, 0; mov.u32 %r14, 0;
@%p1 mbarrier.init.shared::cta.b64 [full], {count};
bar.sync 0;
"""


def run(body, args, *, params=MAP, block=128, grid=1, cluster=(1, 1, 1), seed=0, shared=SHARED,
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


def one_load(column, *, expect=8192, at=0, row=0):
    return (
        SETUP.format(count=1)
        + f"""
mov.u32 %r1, {column}; mov.u32 %r2, {row};
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], {expect};  // expect
@%p1 {LOAD} [%r12+{at}], [%rd1, {{%r1, %r2}}], [full];  // copy
{wait("full", 0)}  // wait
ld.shared.u32 %r3, [%r12+{at}];  // read
"""
    )


def test_c26_inner_coordinate_not_16_byte_aligned():
    a = np.zeros((64, 64), np.int32)
    body = one_load(1)
    found = the(run(body, [Map(a, (64, 32))]), "tma_coordinate")
    assert "coordinate[0]=1 -> byte offset 4, must be a multiple of 16 (4 int32)" in found.message
    assert found.line == line_of(body, "copy")
    silent(run(one_load(4), [Map(a, (64, 32))]))
    silent(run(one_load(-4), [Map(a, (64, 32))]))


def test_c27_destination_not_128_byte_aligned():
    a = np.zeros((64, 32), np.float16)
    body = one_load(0, expect=64 * 32, at=64)
    found = the(run(body, [Map(a, (32, 32))]), "tma_alignment")
    assert "64 mod 128" in found.message
    assert found.line == line_of(body, "copy")


def test_c28_swizzled_tile_off_its_repeat():
    a = np.zeros((64, 64), np.float16)
    body = one_load(0, at=128)
    found = the(run(body, [Map(a, (64, 64), "128B")]), "tma_swizzle_base")
    assert "128 mod 1024; SWIZZLE_128B needs 1024" in found.message
    assert found.line == line_of(body, "copy")
    silent(run(one_load(0, at=1024), [Map(a, (64, 64), "128B")]))


def test_part_of_a_swizzled_tile_is_advice_only():
    a = np.zeros((64, 64), np.float16)
    report = run(one_load(0, expect=512, at=512), [Map(a, (4, 64), "128B")])
    assert report.ok
    assert report.advice[0].kind == "tma_swizzle_base"


@pytest.mark.parametrize("completion", POLICIES)
@pytest.mark.parametrize(("row", "column"), [(0, 0), (0, 64), (64, 0), (64, 64)])
def test_c35_edge_boxes_count_whole(completion, row, column):
    a = np.ones((104, 104), np.float16)
    a = np.ascontiguousarray(a)
    silent(run(one_load(column, row=row), [Map(a, (64, 64), "128B")], completion=completion))


def test_c35_expecting_only_the_valid_bytes():
    a = np.ones((104, 104), np.float16)
    body = one_load(64, expect=5120)
    report = run(body, [Map(a, (64, 64), "128B")])
    found = the(report, "deadlock")
    assert "8192 of 5120 bytes delivered; 3072 bytes more than expected" in found.message
    assert "expect 5120 B for an edge box; TMA counts the full 8192 B" in found.message


def fill_and_store(order):
    """All threads fill 128 x 32 float32, thread 0 stores the tile."""
    return f"""
mov.u32 %r12, tiles; mov.b64 %rd3, map; cvta.param.u64 %rd1, %rd3; mov.u32 %r14, 0;
setp.eq.u32 %p1, %thread, 0;
shl.b32 %r1, %thread, 2; add.u32 %r2, %r12, %r1; mov.u32 %r3, 0;
FILL: st.shared.u32 [%r2], %thread;  // fill
add.u32 %r2, %r2, 512; add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 32; @%p2 bra FILL;
{order}
@%p1 {STORE} [%rd1, {{%r14, %r14}}], [%r12];  // store
@%p1 cp.async.bulk.commit_group;
@%p1 cp.async.bulk.wait_group 0;
"""


FENCE = "fence.proxy.async.shared::cta;"


@pytest.mark.parametrize("completion", POLICIES)
@pytest.mark.parametrize(
    ("order", "ok"),
    [
        (f"{FENCE}\nbar.sync 0;", True),
        ("fence.proxy.async;\nbar.sync 0;", True),
        (f"bar.sync 0;\n@%p1 {FENCE}", False),
        ("bar.sync 0;", False),
        (f"@%p1 {FENCE}\nbar.sync 0;", False),
        ("fence.proxy.async.global;\nbar.sync 0;", False),
    ],
)
def test_c30_proxy_fence_by_each_writing_thread(completion, order, ok):
    out = np.zeros((128, 32), np.float32)
    body = fill_and_store(order)
    report = run(body, [Map(out, (128, 32))], completion=completion)
    if ok:
        silent(report)
        assert out.view(np.uint32).reshape(-1)[:128].tolist() == list(range(128))
        return
    found = the(report, "missing_proxy_fence")
    assert "TMA store reads shared memory" in found.message
    assert f"at kernel.py:{line_of(body, 'fill')} with no fence.proxy_async() by thread" in (
        found.message
    )
    assert found.line == line_of(body, "store")


def test_tile_reused_before_the_store_has_read_it():
    def body(wait_form):
        return fill_and_store(f"{FENCE}\nbar.sync 0;").replace(
            "@%p1 cp.async.bulk.wait_group 0;",
            f"{wait_form}\nbar.sync 0;\n"
            "st.shared.u32 [%r12], %thread;  // reuse\n@%p1 cp.async.bulk.wait_group 0;",
        )

    out = np.zeros((128, 32), np.float32)
    for completion in POLICIES:
        report = run(body("mov.u32 %r9, 0;"), [Map(out, (128, 32))], completion=completion)
        found = the(report, "overwrite_while_read")
        assert found.line == line_of(body(""), "reuse")
        assert "tma.wait_group_read" in found.message
        good = body("@%p1 cp.async.bulk.wait_group.read 0;").replace(
            "st.shared.u32 [%r12]", "@%p1 st.shared.u32 [%r12]")  # fmt: skip
        silent(run(good, [Map(out, (128, 32))], completion=completion))


def test_cta_exits_before_the_store_is_done():
    body = fill_and_store(f"{FENCE}\nbar.sync 0;").replace("@%p1 cp.async.bulk.wait_group 0;", "")
    out = np.zeros((128, 32), np.float32)
    found = the(run(body, [Map(out, (128, 32))]), "bulk_incomplete")
    assert found.line == line_of(body, "store")


@pytest.mark.parametrize("completion", POLICIES)
def test_read_without_any_wait(completion):
    body = one_load(0).replace(wait("full", 0).split(":")[0], "W")
    lines = [line for line in one_load(0).splitlines() if "// wait" not in line]
    body = "\n".join(lines)
    a = np.ones((64, 64), np.float16)
    report = run(body, [Map(a, (64, 64), "128B")], completion=completion, block=32)
    assert the(report, "read_in_flight").line == line_of(body, "read")


# -- tensor maps in memory ------------------------------------------------------------------------


def pointer_map(fence):
    return one_load(0).replace(
        "mov.b64 %rd3, map; cvta.param.u64 %rd1, %rd3;", "ld.param.u64 %rd1, [map];"
    ).replace("bar.sync 0;", f"{fence}\nbar.sync 0;")  # fmt: skip


def test_c32_map_in_global_memory_needs_the_acquire_fence():
    a = np.ones((64, 64), np.float16)
    target = np.zeros(256, np.uint8)

    def call(body):
        # The map names the address of ``a``, known only to the launch: pass both.
        description = Map(a, (64, 64), "128B")
        params = ".param .u64 map, .param .align 64 .b8 value[128]"
        copy = (
            "mov.b64 %rd5, value; cvta.param.u64 %rd6, %rd5; ld.param.u64 %rd7, [map];\n"
            + "\n".join(
                f"ld.param.b64 %rd8, [value+{8 * i}]; @%p9 st.global.b64 [%rd7+{8 * i}], %rd8;"
                for i in range(16)
            )
        )
        text = "setp.eq.u32 %p9, %thread, 0;\n" + copy + "\n" + body
        return text, run(text, [target, description], params=params)

    body = pointer_map("mov.u32 %r9, 0;")
    text, report = call(body)
    found = the(report, "missing_tensormap_fence")
    assert "without fence_tensormap_acquire" in found.message
    assert found.line == line_of(text, "copy")
    fence = (
        "@%p1 fence.proxy.tensormap::generic.release.gpu;\n"
        "@%p1 fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;"
    )
    _, report = call(pointer_map(fence))
    silent(report)


FIELDS = """
@%p1 tensormap.replace.tile.rank.shared::cta.b1024.b32 [%rd9], 1;
@%p1 tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%rd9], %rd8;
@%p1 tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%rd9], 0, 64;
@%p1 tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%rd9], 1, 32;
@%p1 tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%rd9], 0, 64;
@%p1 tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%rd9], 1, 32;
@%p1 tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%rd9], 0, %rd11;
@%p1 tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%rd9], 0, 1;
@%p1 tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%rd9], 1, 1;
@%p1 tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%rd9], 6;
@%p1 tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%rd9], 0;
@%p1 tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%rd9], 0;
@%p1 tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%rd9], 0;
"""


@pytest.mark.parametrize("acquire", [True, False])
@pytest.mark.parametrize("completion", POLICIES)
def test_map_made_by_the_kernel(completion, acquire):
    """A map put together in shared memory, copied to global memory and fenced, and then used."""
    fence = "@%p2 fence.proxy.tensormap::generic.acquire.gpu [%rd10], 128;"
    body = f"""
setp.eq.u32 %p1, %thread, 0; setp.lt.u32 %p2, %thread, 32; mov.u32 %r14, 0; mov.u32 %r12, tiles;
ld.param.u64 %rd10, [map]; ld.param.u64 %rd8, [a]; ld.param.u64 %rd12, [out]; mov.u64 %rd11, 128;
mov.u32 %r11, tiles; add.u32 %r11, %r11, 8192; cvt.u64.u32 %rd9, %r11; mov.u32 %r1, 0;
mad.lo.u32 %r2, %thread, 4, %r11; @%p2 st.shared::cta.b32 [%r2], %r1;
@%p1 mbarrier.init.shared::cta.b64 [full], 1;
bar.warp.sync -1;
{FIELDS}
bar.warp.sync -1;
@%p2 tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd10], [%rd9], 128;
{fence if acquire else "mov.u32 %r9, 0;"}
bar.sync 0;
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], 4096;
@%p1 {LOAD} [%r12], [%rd10, {{%r14, %r14}}], [full];
{wait("full", 0)}
mad.lo.u32 %r3, %thread, 32, %r12; mul.wide.u32 %rd13, %thread, 32; add.u64 %rd12, %rd12, %rd13;
ld.shared.v4.u32 {{%r4, %r5, %r6, %r7}}, [%r3]; st.global.v4.u32 [%rd12], {{%r4, %r5, %r6, %r7}};
"""  # noqa: E501
    a = np.arange(32 * 64, dtype=np.float16).reshape(32, 64)
    out = np.zeros((128, 16), np.float16)
    report = run(body, [np.zeros(128, np.uint8), a, out], completion=completion,
                 params=".param .u64 map, .param .u64 a, .param .u64 out")  # fmt: skip
    if not acquire:
        the(report, "missing_tensormap_fence")
        return
    silent(report)
    np.testing.assert_array_equal(out[:, :8], a.reshape(128, 16)[:, :8])


# -- multicast ------------------------------------------------------------------------------------


def multicast(*, mask=3, expect=8192, tail=True, both=True, wait_empty=False):
    """Rank 0 loads 64 x 64 float16 into both CTAs."""
    arm = "and.pred %p4, %p1, %p1;" if both else "and.pred %p4, %p1, %p3;"
    end = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" if tail else ""
    return f"""
mov.u32 %r10, full; mov.u32 %r12, tiles; mov.b64 %rd3, map; cvta.param.u64 %rd1, %rd3;
setp.eq.u32 %p1, %thread, 0; mov.u32 %r14, 0; mov.u32 %r20, %cluster_ctarank;
setp.eq.u32 %p3, %r20, 0; {arm} and.pred %p5, %p1, %p3;
@%p1 mbarrier.init.shared::cta.b64 [full], 1;
@%p1 fence.mbarrier_init.release.cluster;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
@%p4 mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], {expect};  // expect
mov.u16 %rs1, {mask};
@%p5 {LOAD}.multicast::cluster [%r12], [%rd1, {{%r14, %r14}}], [full], %rs1;  // copy
{wait("full", 0)}  // wait
shl.b32 %r21, %thread, 2; add.u32 %r21, %r21, %r12; ld.shared.u32 %r22, [%r21];  // read
{end}
"""


@pytest.mark.parametrize("completion", POLICIES)
def test_multicast_counts_in_every_cta(completion):
    a = np.ones((64, 64), np.float16)
    silent(run(multicast(), [Map(a, (64, 64), "128B")], grid=2, cluster=(2, 1, 1),
               completion=completion))  # fmt: skip


def test_c73_a_rank_waits_for_bytes_that_nobody_sends():
    a = np.ones((64, 64), np.float16)
    report = run(multicast(mask=1), [Map(a, (64, 64), "128B")], grid=2, cluster=(2, 1, 1))
    found = the(report, "deadlock")
    assert "full[0] of CTA rank 1" in found.message
    assert "tx 0 of 8192 bytes" in found.message
    assert "rank 1 expects 8192 B on full[0] of CTA rank 1, no CTA issues a copy" in found.message


def test_c75_half_of_the_bytes_expected():
    a = np.ones((64, 64), np.float16)
    report = run(multicast(expect=4096), [Map(a, (64, 64), "128B")], grid=2, cluster=(2, 1, 1))
    message = the(report, "deadlock").message
    assert "8192 of 4096 bytes delivered" in message
    assert "(8192 B by rank 0)" in message


def leader(wait_for_peer):
    """Rank 0 multicasts a second tile over the first; rank 1 may still read it."""
    sync = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
    middle = sync if wait_for_peer else "bar.sync 0;"
    end = f"""
{middle}
@%p4 mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], 8192;
@%p5 {LOAD}.multicast::cluster [%r12], [%rd1, {{%r14, %r14}}], [full], %rs1;  // second
{wait("full", 1)}
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
"""
    return multicast(tail=False) + end


@pytest.mark.parametrize("completion", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_c74_leader_overwrites_the_peers_stage(completion, seed):
    a = np.ones((64, 64), np.float16)
    args = [Map(a, (64, 64), "128B")]
    report = run(leader(False), args, grid=2, cluster=(2, 1, 1), completion=completion, seed=seed)
    found = [f for f in report.findings if "CTA rank 1 " in f.message
             and f.kind in ("overwrite_while_read", "read_in_flight")]  # fmt: skip
    assert found, str(report)
    assert found[0].line in (line_of(leader(False), "second"), line_of(leader(False), "read"))
    silent(run(leader(True), args, grid=2, cluster=(2, 1, 1), completion=completion, seed=seed))


def test_a_copy_into_a_cta_that_exits():
    a = np.ones((64, 64), np.float16)
    body = "\n".join(line for line in multicast(both=False, tail=False).splitlines()
                     if "// wait" not in line and "// read" not in line)  # fmt: skip
    report = run(body, [Map(a, (64, 64), "128B")], grid=2, cluster=(2, 1, 1), block=32)
    assert the(report, "cta_exited").line == line_of(body, "copy")


# -- results --------------------------------------------------------------------------------------


@pytest.mark.parametrize("completion", POLICIES)
def test_copy_through_shared_memory(completion):
    a = np.random.default_rng(1).standard_normal((64, 64)).astype(ml_dtypes.bfloat16)
    out = np.zeros_like(a)
    body = (
        SETUP.format(count=1).replace(
            "cvta.param.u64 %rd1, %rd3;",
            "cvta.param.u64 %rd1, %rd3; mov.b64 %rd4, out; cvta.param.u64 %rd2, %rd4;",
        )
        + f"""
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], 8192;
@%p1 {LOAD} [%r12], [%rd1, {{%r14, %r14}}], [full];
{wait("full", 0)}
@%p1 {STORE} [%rd2, {{%r14, %r14}}], [%r12];
@%p1 cp.async.bulk.commit_group;
@%p1 cp.async.bulk.wait_group 0;
"""
    )
    params = MAP + ", .param .align 64 .b8 out[128]"
    report = run(body, [Map(a, (64, 64), "128B"), Map(out, (64, 64), "128B")], params=params,
                 completion=completion)  # fmt: skip
    silent(report)
    assert np.array_equal(a, out)


def test_clipped_store_may_leave_rows_unwritten():
    """Half of the tile is outside the tensor and was never written: no finding."""
    order = f"{FENCE}\nbar.sync 0;"
    body = fill_and_store(order).replace("setp.lt.u32 %p2, %r3, 32;", "setp.lt.u32 %p2, %r3, 16;")
    out = np.zeros((64, 32), np.float32)
    silent(run(body, [Map(out, (128, 32))]))
    assert out.view(np.uint32).reshape(-1)[:128].tolist() == list(range(128))
    whole = np.zeros((128, 32), np.float32)
    report = run(body, [Map(whole, (128, 32))])
    assert the(report, "uninitialised_read").line == line_of(body, "store")
