"""The correct kernels: how each is compiled once, launched small with two waves, and checked."""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from mutations import blackwell
from mutations.base import COPY, STORE, TRY, Base
from mutations.kernels_copy import COPIES
from mutations.kernels_mma import WGMMA_SMALL
from mutations.kernels_sync import SYNCS
from mutations.rules_epilogue import SPLIT
from nbtc import TensorMap, testing
from nbtc.device import scheduler
from nbtc.gemm.config import HopperConfig
from nbtc.gemm.hopper import make_kernel

EXAMPLES = Path(__file__).absolute().parents[2] / "examples"
BF16 = ml_dtypes.bfloat16


@functools.cache
def example(number: int) -> Any:
    """Import an example by its number."""
    path = next(EXAMPLES.glob(f"{number:02d}_*.py"))
    name = f"nbtc_example_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


# -- GEMM -------------------------------------------------------------------------------------

GEMM_ROLES = {
    "init_full": (r"mbarrier\.init", r"layout\.full"),
    "init_empty": (r"mbarrier\.init", r"layout\.empty"),
    "init_ready": (r"mbarrier\.init", r"c_ready"),
    "init_free": (r"mbarrier\.init", r"c_free"),
    "full_wait": (TRY, r"layout\.full"),
    "empty_wait": (TRY, r"layout\.empty\["),
    "expect": (r"mbarrier\.arrive\.expect_tx", "STAGE_BYTES"),
    "copy_a": (COPY, r"tma\.load\(a"),
    "copy_b": (COPY, r"tma\.load\(b"),
    "mma_fence": (r"wgmma\.fence", ""),
    "mma": (r"wgmma\.mma_async", ""),
    "mma_commit": (r"wgmma\.commit_group", ""),
    "mma_wait": (r"wgmma\.wait_group", r"n=1|STAGES|n=0"),
    "mma_loop_wait": (r"wgmma\.wait_group", r"n=1"),
    "release": (r"mbarrier\.arrive", r"layout\.empty"),
    "free_wait": (TRY, r"epilogue\.write"),
    "write": (r"stmatrix|st\.shared", r"epilogue\.write"),
    "write_fence": (r"fence\.proxy\.async", r"epilogue\.write"),
    "write_warp": (r"bar\.warp\.sync", r"epilogue\.write"),
    "ready_arrive": (r"mbarrier\.arrive", r"epilogue\.write"),
    "ready_wait": (TRY, r"c_ready"),
    "store": (STORE, r"tma\.store"),
    "store_commit": (r"cp\.async\.bulk\.commit_group", ""),
    "store_wait": (r"cp\.async\.bulk\.wait_group", r"KEPT"),
    "store_tail": (r"cp\.async\.bulk\.wait_group", r"n=0"),
    "free_arrive": (r"mbarrier\.arrive", r"c_free"),
    "read": (r"cvt\.rn\.bf16x2|st\.shared|stmatrix", r"epilogue\.write"),
    "elect": (r"elect\.sync", ""),
    "setmaxnreg_dec": (r"setmaxnreg\.dec", ""),
    "setmaxnreg_inc": (r"setmaxnreg\.inc", ""),
}
CLUSTER_ROLES = {
    "init_fence": (r"fence\.mbarrier_init", ""),
    "cluster_arrive": (r"barrier\.cluster\.arrive", ""),
    "cluster_wait": (r"barrier\.cluster\.wait", ""),
    "mapa": (r"mapa", ""),
}
TAIL_ROLES = {"tail_wait": (TRY, r"pipeline\.drain")}
SPLIT_ROLES = {
    "partial_expect": (r"mbarrier\.arrive\.expect_tx", "SENT_BYTES"),
    "partial_send": (r"st\.async", ""),
    "partial_wait": (TRY, "partial_full"),
    "partial_read": (r"ld\.shared", r"reduction\.add"),
    "partial_release": (r"mbarrier\.arrive", "partial_free"),
    "partial_free_wait": (TRY, r"partial_free\[0\], parity"),
    "partial_tail_wait": (TRY, r"partial_free\[0\], uint32"),
}
ZERO_ROLES = {
    "zero": (r"st\.shared", r"memory\.st_shared"),
    "zero_fence": (r"fence\.proxy\.async", r"fence\.proxy_async\(\)"),
}
CTA_ROLES = {"init_sync": (r"bar(rier)?\.(cta\.)?sync", r"syncthreads")}


SPLIT_RULES = (
    *(rule.name for rule in SPLIT),
    "last wgmma wait dropped",
    "wait for empty dropped",
    "wait for full dropped",
    "release dropped",
    "cluster does not wait at the start",
    "barrier init not fenced for the cluster",
    "init not fenced for the peer",
)
"""What concerns CTAs that share K; the rest is as in the other kernels."""


def gemm(
    name: str, size: tuple[int, int, int], blocks: int, rules: tuple[str, ...] = (), **choice: Any
) -> Base:
    """A configuration of the GEMM factory."""
    config = HopperConfig(**choice)
    m, n, k = size

    def data():
        a = testing.random_normal((m, k), config.dtype, seed=1)
        b = testing.random_normal((n, k), config.dtype, seed=2)
        c = np.full((m, n), np.nan, testing.dtypes.canonical(config.out_dtype).numpy)
        maps = (
            TensorMap.tiled(a, config.a_box, swizzle=config.a_tile.swizzle),
            TensorMap.tiled(b, config.b_box, swizzle=config.b_tile.swizzle),
            TensorMap.tiled(c, config.c_box, swizzle=config.store_swizzle),
        )
        strips = order = None
        if config.narrow:
            strips = TensorMap.tiled(c, config.strip_box, swizzle=config.strip_swizzle)
            rows = -(-m // (config.tile[0] * config.cluster[0]))
            clusters = blocks // config.cluster_size
            order = scheduler.balance(
                rows, n, config.tile[1], config.narrow, clusters, config.group
            ).order
        want = testing.matmul_reference(a, b.T)
        return (*maps, strips, *map(np.int32, size), order, ()), lambda: testing.assert_close(
            c, want
        )

    roles = {**GEMM_ROLES, **(CLUSTER_ROLES if config.cluster_size > 1 else CTA_ROLES)}
    if config.cluster != (1, 1):
        roles |= TAIL_ROLES
    if config.split_k > 1:
        roles |= SPLIT_ROLES
        reads, where = roles["read"]
        roles["read"] = rf"{reads}|st\.async|ld\.shared", rf"{where}|reduction\."
    if config.a_rows:
        roles |= ZERO_ROLES
    if config.stages == 1:
        del roles["mma_loop_wait"]
    return Base(
        name, lambda: make_kernel(config), (blocks, config.threads), data, roles, rules=rules
    )


# -- examples ---------------------------------------------------------------------------------


def _example1():
    source = testing.random_normal((5, 32))
    target = np.full_like(source, np.nan)
    return (source, target), lambda: testing.assert_close(target, 2 * source[:, ::-1], tol=0)


def _example2():
    source = testing.random_normal((80, 68))
    target = np.full((68, 80), np.nan, np.float32)
    maps = [TensorMap.tiled(x, (32, 32), swizzle="128B") for x in (source, target)]
    return tuple(maps), lambda: testing.assert_close(target, source.T, tol=0)


def _example3():
    a, b = (testing.random_normal((r, 64), "float16", seed=r) for r in (64, 32))
    d = np.full((64, 32), np.nan, np.float32)
    maps = [TensorMap.tiled(x, x.shape, swizzle="128B") for x in (a, b)]
    return (*maps, d), lambda: testing.assert_close(d, testing.matmul_reference(a, b.T))


def _example4():
    source = testing.random_normal((107, 200))
    sums = np.full(200, np.nan, np.float32)
    want = source.astype(np.float64).sum(axis=0)
    args = (TensorMap.tiled(source, (16, 128)), sums, np.int32(107))
    return args, lambda: testing.assert_close(sums, want)


def _example5():
    a, b = (testing.random_normal((rows, 264), "bfloat16", seed=rows) for rows in (130, 72))
    c = np.full((130, 36), 0xFFFFFFFF, np.uint32)
    want = testing.matmul_reference(a, b.T)
    return (a, b, c), lambda: testing.assert_close(c.view(BF16), want)


def _example6():
    m, n, k = 130, 72, 328
    a, b = (testing.random_normal((rows, k), "bfloat16", seed=rows) for rows in (m, n))
    c = np.full((m, n), np.nan, BF16)
    maps = example(6).maps(a, b, c)
    want = testing.matmul_reference(a, b.T)
    return (*maps, *map(np.int32, (m, n, k))), lambda: testing.assert_close(c, want)


def _example7():
    m, n, k = 300, 264, 136
    a, b = (testing.random_normal((rows, k), "bfloat16", seed=rows) for rows in (m, n))
    bias = testing.random_normal(n)
    c = np.full((m, n), np.nan, BF16)
    maps = example(7).maps(a, b, c)
    want = example(7).reference(a, b, bias)
    return (*maps, *map(np.int32, (m, n, k)), bias), lambda: testing.assert_close(c, want)


PIPE_ROLES = {
    "init_full": (r"mbarrier\.init", r"layout\.full"),
    "init_empty": (r"mbarrier\.init", r"layout\.empty"),
    "full_wait": (TRY, r"layout\.full"),
    "empty_wait": (TRY, r"layout\.empty\[|pipeline\.acquire"),
    "expect": (r"mbarrier\.arrive\.expect_tx", ""),
    "release": (r"mbarrier\.arrive\.(shared|release)", r"layout\.empty"),
    **CTA_ROLES,
}
HOPPER_EXAMPLES = [
    Base(
        "hand-over",
        lambda: example(1).make_kernel(5),
        (1, 64),
        _example1,
        {
            "init_full": (r"mbarrier\.init", r"\(full"),
            "init_empty": (r"mbarrier\.init", r"\(empty"),
            "full_wait": (TRY, r"wait\(full"),
            "empty_wait": (TRY, r"wait\(empty"),
            "arrive_full": (r"mbarrier\.arrive", r"\(full"),
            "release": (r"mbarrier\.arrive", r"\(empty"),
            "write": (r"st\.shared", r"box\["),
            "read": (r"ld\.shared", r"box\["),
            **CTA_ROLES,
        },
    ),
    Base(
        "transpose",
        lambda: example(2).make_kernel(),
        ((3, 3), 128),
        _example2,
        {
            "init_full": (r"mbarrier\.init", ""),
            "init_sync": (r"bar(rier)?\.(cta\.)?sync", ""),
            "expect": (r"mbarrier\.arrive\.expect_tx", ""),
            "copy_a": (COPY, ""),
            "full_wait": (TRY, ""),
            "read": (r"ld\.shared", ""),
            "write": (r"st\.shared", ""),
            "write_fence": (r"fence\.proxy\.async", ""),
            "store": (STORE, ""),
            "store_commit": (r"cp\.async\.bulk\.commit_group", ""),
            "store_tail": (r"cp\.async\.bulk\.wait_group", ""),
        },
    ),
    Base(
        "wgmma-tile",
        lambda: example(3).make_kernel(32),
        (1, 128),
        _example3,
        {
            "init_full": (r"mbarrier\.init", ""),
            "init_sync": (r"bar(rier)?\.(cta\.)?sync", ""),
            "expect": (r"mbarrier\.arrive\.expect_tx", ""),
            "copy_a": (COPY, "layout.a"),
            "copy_b": (COPY, "layout.b"),
            "full_wait": (TRY, ""),
            "mma_fence": (r"wgmma\.fence", ""),
            "mma": (r"wgmma\.mma_async", ""),
            "mma_commit": (r"wgmma\.commit_group", ""),
            "mma_wait": (r"wgmma\.wait_group", ""),
            "mma_loop_wait": (r"wgmma\.wait_group", ""),
            "read": (r"st\.global", ""),
        },
    ),
    Base(
        "column-sums",
        lambda: example(4).make_kernel(2),
        (2, 160),
        _example4,
        {
            **PIPE_ROLES,
            "copy_a": (COPY, ""),
            "read": (r"ld\.shared", ""),
            "elect": (r"elect\.sync", ""),
        },
    ),
    Base(
        "ampere-gemm",
        lambda: example(5).make_kernel(3),
        (2, 128),
        _example5,
        {
            "copy_a": (r"cp\.async\.cg", r"layout\.a|cp_async\.cg"),
            "commit": (r"cp\.async\.commit_group", ""),
            "wait": (r"cp\.async\.wait_group", ""),
            "sync": (r"bar(rier)?\.(cta\.)?sync", ""),
            "read": (r"ldmatrix", ""),
        },
    ),
    Base(
        "wgmma-gemm",
        lambda: example(6).make_kernel(3),
        (2, 160),
        _example6,
        {
            **PIPE_ROLES,
            "copy_a": (COPY, r"layout\.a"),
            "copy_b": (COPY, r"layout\.b"),
            "init_full": (r"mbarrier\.init", "", "0"),
            "init_empty": (r"mbarrier\.init", "", "1"),
            "mma_loop_wait": (r"wgmma\.wait_group", "n=1"),
            "mma_fence": (r"wgmma\.fence", ""),
            "mma": (r"wgmma\.mma_async", ""),
            "mma_commit": (r"wgmma\.commit_group", ""),
            "mma_wait": (r"wgmma\.wait_group", ""),
            "read": (r"cvt\.rn\.bf16x2|stmatrix", ""),
            "write": (r"stmatrix", ""),
            "write_fence": (r"fence\.proxy\.async", ""),
            "barrier": (r"bar(rier)?\.(cta\.)?sync", r"epilogue\.store"),
            "store": (STORE, ""),
            "store_commit": (r"cp\.async\.bulk\.commit_group", ""),
            "store_tail": (r"cp\.async\.bulk\.wait_group", r"wait_group_read"),
            "store_wait": (r"cp\.async\.bulk\.wait_group", r"epilogue\.store"),
            "elect": (r"elect\.sync", ""),
        },
    ),
    Base(
        "fused-gemm",
        lambda: example(7).make_kernel(4),
        (2, 384),
        _example7,
        {
            **{r: v for r, v in PIPE_ROLES.items() if r != "init_sync"},
            "copy_b": (COPY, r"b_map"),
            "copy_a": (COPY, r"a_map"),
            "mma": (r"wgmma\.mma_async", ""),
            "mma_fence": (r"wgmma\.fence", ""),
            "mma_loop_wait": (r"wgmma\.wait_group", r"n=1"),
            "init_full": (r"mbarrier\.init", "", "0"),
            "init_empty": (r"mbarrier\.init", "", "1"),
            "barrier": (r"bar(rier)?\.(cta\.)?sync", r"epilogue\.store"),
            "write": (r"stmatrix", ""),
            "write_fence": (r"fence\.proxy\.async", ""),
            "store": (STORE, ""),
            **CLUSTER_ROLES,
        },
        rules=(
            "named barrier before the store dropped",
            "named barrier before the writes dropped",
            "proxy fence dropped",
            "release reaches only rank 0",
            "multicast misses rank 1",
            "cluster does not wait at the start",
            "wgmma.fence dropped",
            "empty counts only the own CTA's consumers",
        ),
    ),
]
HOPPER_GEMMS = [
    gemm("gemm-s1", (64, 64, 128), 1, tile=(64, 32, 32), stages=1, consumers=1, cluster=(1, 1)),
    gemm("gemm-s2", (128, 128, 160), 1, tile=(64, 128, 32), stages=2, consumers=1, cluster=(1, 1)),
    gemm("gemm-c21", (256, 64, 160), 2, tile=(64, 32, 32), stages=2, consumers=1, cluster=(2, 1)),
    gemm("gemm-c12", (128, 256, 192), 2, tile=(64, 128, 32), stages=4, consumers=1, cluster=(1, 2),
         dtype="float16"),
    gemm("gemm-w2", (128, 240, 96), 1, tile=(128, 128, 32), stages=2, consumers=2, cluster=(1, 1),
         store_buffers=1, narrow=112),
    gemm("gemm-w3", (192, 64, 128), 1, tile=(192, 32, 32), stages=2, consumers=3, cluster=(1, 1),
         out_dtype="float32"),
    gemm("gemm-k3", (64, 64, 224), 3, SPLIT_RULES, tile=(64, 32, 32), stages=2, consumers=1,
         cluster=(1, 1), split_k=3),
    gemm("gemm-r40", (40, 64, 128), 1,
         ("zeros not fenced for wgmma", "expect 16 bytes more", "expect 16 bytes less"),
         tile=(64, 32, 32), stages=2, consumers=1, cluster=(1, 1), a_rows=40),
]  # fmt: skip
HOPPER = [*HOPPER_EXAMPLES, *HOPPER_GEMMS, *SYNCS, *COPIES, *WGMMA_SMALL]
BLACKWELL = blackwell.bases(example)
ALL = [*HOPPER, *BLACKWELL]
"""Every kernel: those of each architecture."""
