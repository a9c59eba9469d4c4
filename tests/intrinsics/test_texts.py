"""PTX of chosen variants, spelled out by hand from the PTX ISA's syntax."""

from __future__ import annotations

from typing import Any

import pytest

from nbtc.ptx import conformance
from nbtc.ptx.spec import Variant
from nbtc.reference import instructions

ALL = instructions()

TMA = "cp.async.bulk.tensor"
TX = "mbarrier::complete_tx::bytes"

# name, modifiers, optional operands given, lengths of open tuples, text
CASES: list[tuple[str, dict[str, Any], str, dict[str, int], str]] = [
    ("mbarrier.init", {}, "", {}, "mbarrier.init.shared::cta.b64 [%r0], %r1;"),
    ("mbarrier.inval", {}, "", {}, "mbarrier.inval.shared::cta.b64 [%r0];"),
    ("mbarrier.arrive", {}, "", {}, "mbarrier.arrive.shared::cta.b64 %l0, [%r0];"),
    (
        "mbarrier.arrive",
        {"sem": "release", "scope": "cluster"},
        "count",
        {},
        "mbarrier.arrive.release.cluster.shared::cta.b64 %l0, [%r0], %r1;",
    ),
    (
        "mbarrier.arrive_expect_tx",
        {},
        "",
        {},
        "mbarrier.arrive.expect_tx.shared::cta.b64 %l0, [%r0], %r1;",
    ),
    ("mbarrier.arrive_remote", {}, "", {}, "mbarrier.arrive.shared::cluster.b64 _, [%r0];"),
    (
        "mbarrier.arrive_expect_tx_remote",
        {"sem": "relaxed", "scope": "cluster"},
        "",
        {},
        "mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [%r0], %r1;",
    ),
    (
        "mbarrier.arrive_no_complete",
        {"sem": "release", "scope": "cta"},
        "",
        {},
        "mbarrier.arrive.noComplete.release.cta.shared::cta.b64 %l0, [%r0], %r1;",
    ),
    (
        "mbarrier.arrive_drop",
        {},
        "count",
        {},
        "mbarrier.arrive_drop.shared::cta.b64 %l0, [%r0], %r1;",
    ),
    (
        "mbarrier.expect_tx",
        {"sem": "relaxed", "scope": "cta"},
        "",
        {},
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r0], %r1;",
    ),
    (
        "mbarrier.complete_tx_remote",
        {},
        "",
        {},
        "mbarrier.complete_tx.shared::cluster.b64 [%r0], %r1;",
    ),
    (
        "mbarrier.test_wait",
        {"sem": "acquire", "scope": "cta"},
        "",
        {},
        "mbarrier.test_wait.acquire.cta.shared::cta.b64 %p0, [%r0], %l0;",
    ),
    (
        "mbarrier.test_wait_parity",
        {},
        "",
        {},
        "mbarrier.test_wait.parity.shared::cta.b64 %p0, [%r0], %r1;",
    ),
    (
        "mbarrier.try_wait",
        {},
        "hint",
        {},
        "mbarrier.try_wait.shared::cta.b64 %p0, [%r0], %l0, %r1;",
    ),
    (
        "mbarrier.try_wait_parity",
        {"sem": "acquire", "scope": "cluster"},
        "hint",
        {},
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p0, [%r0], %r1, %r2;",
    ),
    ("mbarrier.pending_count", {}, "", {}, "mbarrier.pending_count.b64 %r0, %l0;"),
    (
        "tma.load",
        {},
        "",
        {"coordinates": 2},
        f"{TMA}.2d.shared::cluster.global.{TX} [%r0], [%l0, {{%r1, %r2}}], [%r3];",
    ),
    (
        "tma.load",
        {"cta_group": 2},
        "cta_mask cache_policy",
        {"coordinates": 3},
        f"{TMA}.3d.shared::cluster.global.{TX}.multicast::cluster.cta_group::2.L2::cache_hint "
        "[%r0], [%l0, {%r1, %r2, %r3}], [%r4], %h0, %l1;",
    ),
    (
        "tma.load",
        {"space": "shared::cta"},
        "",
        {"coordinates": 1},
        f"{TMA}.1d.shared::cta.global.{TX} [%r0], [%l0, {{%r1}}], [%r2];",
    ),
    (
        "tma.load_im2col",
        {"mode": "im2col"},
        "",
        {"coordinates": 4, "offsets": 2},
        f"{TMA}.4d.shared::cluster.global.im2col.{TX} "
        "[%r0], [%l0, {%r1, %r2, %r3, %r4}], [%r5], {%h0, %h1};",
    ),
    (
        "tma.load_im2col",
        {"mode": "im2col::w::128"},
        "",
        {"coordinates": 5, "offsets": 2},
        f"{TMA}.5d.shared::cluster.global.im2col::w::128.{TX} "
        "[%r0], [%l0, {%r1, %r2, %r3, %r4, %r5}], [%r6], {%h0, %h1};",
    ),
    (
        "tma.gather4",
        {},
        "",
        {},
        f"{TMA}.2d.shared::cluster.global.tile::gather4.{TX} "
        "[%r0], [%l0, {%r1, %r2, %r3, %r4, %r5}], [%r6];",
    ),
    (
        "tma.store",
        {},
        "cache_policy",
        {"coordinates": 2},
        f"{TMA}.2d.global.shared::cta.bulk_group.L2::cache_hint [%l0, {{%r0, %r1}}], [%r2], %l1;",
    ),
    (
        "tma.scatter4",
        {},
        "",
        {},
        f"{TMA}.2d.global.shared::cta.tile::scatter4.bulk_group "
        "[%l0, {%r0, %r1, %r2, %r3, %r4}], [%r5];",
    ),
    (
        "tma.reduce",
        {"op": "add"},
        "",
        {"coordinates": 2},
        "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group "
        "[%l0, {%r0, %r1}], [%r2];",
    ),
    (
        "tma.prefetch",
        {},
        "",
        {"coordinates": 2},
        "cp.async.bulk.prefetch.tensor.2d.L2.global [%l0, {%r0, %r1}];",
    ),
    (
        "bulk.load",
        {},
        "cta_mask",
        {},
        f"cp.async.bulk.shared::cluster.global.{TX}.multicast::cluster "
        "[%r0], [%l0], %r1, [%r2], %h0;",
    ),
    (
        "bulk.copy_to_cluster",
        {},
        "",
        {},
        f"cp.async.bulk.shared::cluster.shared::cta.{TX} [%r0], [%r1], %r2, [%r3];",
    ),
    (
        "bulk.store",
        {},
        "byte_mask cache_policy",
        {},
        "cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint.cp_mask "
        "[%l0], [%r0], %r1, %l1, %h0;",
    ),
    (
        "bulk.reduce",
        {"op": "add", "type": "bf16"},
        "",
        {},
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16 [%l0], [%r0], %r1;",
    ),
    (
        "bulk.reduce_to_cluster",
        {"op": "xor", "type": "b32"},
        "",
        {},
        f"cp.reduce.async.bulk.shared::cluster.shared::cta.{TX}.xor.b32 [%r0], [%r1], %r2, [%r3];",
    ),
    ("bulk.wait_group", {"n": 1}, "", {}, "cp.async.bulk.wait_group 1;"),
    ("bulk.wait_group_read", {"n": 0}, "", {}, "cp.async.bulk.wait_group.read 0;"),
    ("fence.proxy_async", {}, "", {}, "fence.proxy.async.shared::cta;"),
    ("fence.proxy_async_all", {}, "", {}, "fence.proxy.async;"),
    ("fence.mbarrier_init", {}, "", {}, "fence.mbarrier_init.release.cluster;"),
    (
        "fence.tensormap_acquire",
        {"scope": "sys"},
        "",
        {},
        "fence.proxy.tensormap::generic.acquire.sys [%l0], 128;",
    ),
    ("cluster.arrive", {}, "", {}, "barrier.cluster.arrive.aligned;"),
    (
        "cluster.arrive",
        {"sem": "relaxed", "aligned": False},
        "",
        {},
        "barrier.cluster.arrive.relaxed;",
    ),
    ("cluster.wait", {}, "", {}, "barrier.cluster.wait.aligned;"),
    ("cluster.mapa", {}, "", {}, "mapa.shared::cluster.u32 %r0, %r1, %r2;"),
    ("cluster.cta_rank", {}, "", {}, "mov.u32 %r0, %cluster_ctarank;"),
    (
        "cluster.load",
        {"type": "f32", "vec": "v4"},
        "",
        {},
        "ld.shared::cluster.v4.f32 {%f0, %f1, %f2, %f3}, [%r0];",
    ),
    (
        "cluster.st_async",
        {"type": "b64", "vec": "v2"},
        "",
        {},
        f"st.async.weak.shared::cluster.{TX}.v2.b64 [%r0], {{%l0, %l1}}, [%r1];",
    ),
    (
        "cluster.red_async",
        {"op": "inc", "type": "u32"},
        "",
        {},
        f"red.async.relaxed.cluster.shared::cluster.{TX}.inc.u32 [%r0], %r1, [%r2];",
    ),
    ("sync.elect", {}, "", {}, "elect.sync _|%p0, %r0;"),
    ("sync.elect_lane", {}, "", {}, "elect.sync %r0|%p0, %r1;"),
    ("sync.barrier_sync", {}, "threads", {}, "barrier.sync.aligned %r0, %r1;"),
    ("sync.barrier_arrive", {"aligned": False}, "", {}, "barrier.arrive %r0, %r1;"),
    ("sync.barrier_red", {"op": "or"}, "", {}, "barrier.red.or.aligned.pred %p0, %r0, %p1;"),
    ("sync.setmaxnreg_inc", {"n": 232}, "", {}, "setmaxnreg.inc.sync.aligned.u32 232;"),
    ("sync.grid_wait", {}, "", {}, "griddepcontrol.wait;"),
    ("sync.shfl", {"mode": "bfly"}, "", {}, "shfl.sync.bfly.b32 %r0|%p0, %r1, %r2, %r3, %r4;"),
    (
        "sync.redux_f32",
        {"op": "max", "abs": True, "NaN": True},
        "",
        {},
        "redux.sync.max.abs.NaN.f32 %f0, %f1, %r0;",
    ),
    (
        "cp_async.cg",
        {"l2": "L2::128B"},
        "src_size",
        {},
        "cp.async.cg.shared::cta.global.L2::128B [%r0], [%l0], 16, %r1;",
    ),
    (
        "cp_async.mbarrier_arrive",
        {},
        "",
        {},
        "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r0];",
    ),
    (
        "memory.ld_global",
        {"nc": True, "l1": "L1::no_allocate", "prefetch": "L2::256B", "vec": "v4"},
        "cache_policy",
        {},
        "ld.global.nc.L1::no_allocate.L2::cache_hint.L2::256B.v4.u32 "
        "{%r0, %r1, %r2, %r3}, [%l0], %l1;",
    ),
    (
        "memory.st_global",
        {"l1": "L1::no_allocate", "l2": "L2::evict_first", "vec": "v8", "type": "f32"},
        "",
        {},
        "st.global.L1::no_allocate.L2::evict_first.v8.f32 "
        "[%l0], {%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7};",
    ),
    (
        "memory.createpolicy_fractional",
        {"primary": "evict_first"},
        "fraction",
        {},
        "createpolicy.fractional.L2::evict_first.b64 %l0, %f0;",
    ),
    (
        "atomics.red",
        {"op": "add", "type": "bf16x2"},
        "",
        {},
        "red.global.add.noftz.bf16x2 [%l0], %r0;",
    ),
    (
        "atomics.red_vector",
        {"vec": "v4", "type": "f32"},
        "",
        {},
        "red.global.add.v4.f32 [%l0], {%f0, %f1, %f2, %f3};",
    ),
    (
        "atomics.cas",
        {"space": "shared::cta", "sem": "acquire", "scope": "cta"},
        "",
        {},
        "atom.acquire.cta.shared::cta.cas.b32 %r0, [%r1], %r2, %r3;",
    ),
    (
        "tensormap.replace_global_dim",
        {"dimension": 1, "space": "global"},
        "",
        {},
        "tensormap.replace.tile.global_dim.global.b1024.b32 [%l0], 1, %r0;",
    ),
    (
        "tensormap.cp_fenceproxy",
        {},
        "",
        {},
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
        "[%l0], [%r0], 128;",
    ),
    ("special.globaltimer", {}, "", {}, "mov.u64 %l0, %globaltimer;"),
]


@pytest.mark.parametrize(
    ("name", "modifiers", "given", "counts", "text"), CASES, ids=[c[4][:60] for c in CASES]
)
def test_text(
    name: str, modifiers: dict[str, Any], given: str, counts: dict[str, int], text: str
) -> None:
    instruction = ALL[name]
    values = {**instruction.default(), **modifiers}
    assert set(modifiers) <= {m.name for m in instruction.modifiers}
    variant = Variant(values, frozenset(given.split()), counts)
    instruction.check(variant)
    assert conformance.render(instruction, variant) == text
