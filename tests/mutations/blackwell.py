"""The Blackwell kernels: how each is launched small, with several waves."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from mutations.base import COPY, STORE, TRY, Base
from nbtc import TensorMap, gemm, testing
from nbtc.gemm.blackwell import make_kernel
from nbtc.gemm.blackwell_config import BlackwellConfig

BF16 = ml_dtypes.bfloat16
ARCH = "sm_100a"
SYNC = r"bar(rier)?\.(cta\.)?sync"
COMMON = {
    "init_full": (r"mbarrier\.init", r"layout\.full"),
    "init_empty": (r"mbarrier\.init", r"layout\.empty"),
    "init_sync": (SYNC, r"syncthreads"),
    "full_wait": (TRY, r"layout\.full"),
    "empty_wait": (TRY, r"layout\.empty|pipeline\.acquire"),
    "expect": (r"mbarrier\.arrive\.expect_tx", r"layout\.full|acquire"),
    "copy_a": (COPY, r"tma\.load\(.*\ba_map"),
    "copy_b": (COPY, r"tma\.load\(.*\bb_map"),
    "mma": (r"tcgen05\.mma", ""),
    "commit_empty": (r"tcgen05\.commit", r"layout\.empty"),
    "commit_done": (r"tcgen05\.commit", r"layout\.done"),
    "done_wait": (TRY, r"layout\.done"),
    "fence_after": (r"tcgen05\.fence::after", ""),
    "tmem_ld": (r"tcgen05\.ld", ""),
    "wait_ld": (r"tcgen05\.wait::ld", ""),
    "alloc": (r"tcgen05\.alloc", ""),
    "dealloc": (r"tcgen05\.dealloc", ""),
    "slot_read": (r"ld\.shared", "slot"),
    "write": (r"st\.shared", "tmem_epilogue"),
    "write_fence": (r"fence\.proxy\.async", ""),
    "store": (STORE, ""),
    "store_commit": (r"cp\.async\.bulk\.commit", ""),
    "store_wait": (r"cp\.async\.bulk\.wait_group", "tmem_epilogue"),
    "store_tail": (r"cp\.async\.bulk\.wait_group", r"tma\.wait"),
}
FACTORY = {
    **COMMON,
    "init_done": (r"mbarrier\.init", r"layout\.done"),
    "init_drained": (r"mbarrier\.init", r"layout\.drained"),
    "drained_wait": (TRY, r"layout\.drained"),
    "drained_arrive": (r"mbarrier\.arrive", r"drained"),
    "fence_before": (r"tcgen05\.fence::before", ""),
}
CLUSTER = {
    "init_fence": (r"fence\.mbarrier_init", ""),
    "cluster_arrive": (r"barrier\.cluster\.arrive", ""),
    "cluster_wait": (r"barrier\.cluster\.wait", ""),
}
CLAIM = {
    "try_cancel": (r"clusterlaunchcontrol\.try_cancel", ""),
    "claim_wait": (TRY, r"next_tile"),
    "claim_read": (r"ld\.shared", r"next_tile"),
    "claim_free": (r"mbarrier\.arrive", r"next_tile"),
    "claim_expect": (r"mbarrier\.arrive\.expect_tx", r"clc_full"),
    "claim_empty_wait": (TRY, r"clc_empty"),
}


def factory(name: str, size: tuple[int, int, int], grid: int, **choice: Any) -> Base:
    """A configuration of the GEMM factory."""
    config = BlackwellConfig(**choice)
    m, n, k = size
    roles = dict(FACTORY)
    if config.ctas > 1:
        roles |= CLUSTER
    if config.schedule == "clc":
        roles |= CLAIM

    def data():
        a = testing.random_normal((m, k), config.dtype, seed=1)
        b = testing.random_normal((n, k), config.dtype, seed=2)
        c = np.full((m, n), np.nan, testing.dtypes.canonical(config.out_dtype).numpy)
        maps = (
            TensorMap.tiled(a, config.a_box, swizzle=config.a_tile.swizzle),
            TensorMap.tiled(b, config.b_box, swizzle=config.b_tile.swizzle),
            TensorMap.tiled(c, config.c_box, swizzle=config.store_swizzle),
        )
        want = testing.matmul_reference(a, b.T)
        args = (*maps, None, None, *map(np.int32, size), ())
        return args, lambda: testing.assert_close(c, want)

    return Base(name, lambda: make_kernel(config), (grid, config.threads), data, roles, ARCH)


def example_gemm(module: Any) -> Base:
    """Example 11."""

    def data():
        m, n, k = 130, 264, 328
        a, b = (testing.random_normal((rows, k), "bfloat16", seed=rows) for rows in (m, n))
        c = np.full((m, n), np.nan, BF16)
        boxes = (128, 64), (256, 64), (32, 64)
        maps = [TensorMap.tiled(x, box, swizzle="128B") for x, box in zip((a, b, c), boxes,
                                                                        strict=True)]  # fmt: skip
        want = testing.matmul_reference(a, b.T)
        return (*maps, *map(np.int32, (m, n, k))), lambda: testing.assert_close(c, want)

    rules = ("commit on done dropped", "wait for done dropped", "wait for full dropped",
             "dealloc does not wait for the epilogue", "ld from another warp's lanes",
             "store's wait dropped", "alloc dropped", "commit on empty before the mma")  # fmt: skip
    kernel = (lambda: module().make_kernel(4), (4, 192), data, COMMON, ARCH, rules)
    return Base("tcgen05-gemm", *kernel)


def example_scaled(module: Any) -> Base:
    """Example 12."""

    def data():
        m, n, k = 130, 200, 600
        numbers = (testing.random_normal((rows, k), seed=rows) for rows in (m, n))
        a, b = (gemm.quantize(x, "float4_e2m1fn", block=16) for x in numbers)
        c = np.full((m, n), np.nan, np.float32)
        c_map = TensorMap.tiled(c, (32, 32), swizzle="128B")
        want = module().reference(a, b)
        args = (*module().maps(a), *module().maps(b), c_map, np.int32(k))
        return args, lambda: testing.assert_close(c, want)

    roles = {
        **COMMON,
        "copy_scales": (r"tcgen05\.cp", ""),
        "load_scales": (COPY, r"layout\.s[ab]"),
    }
    rules = ("scale factors not copied", "scale factors go elsewhere", "scale factors not loaded",
             "descriptor of Hopper", "dealloc dropped", "expect half", "wait for done dropped",
             "alloc of half the columns")  # fmt: skip
    kernel = (lambda: module().make_kernel(2), ((2, 2), 192), data, roles, ARCH, rules)
    return Base("scaled-gemm", *kernel)


def bases(example: Any) -> list[Base]:
    """Every Blackwell kernel."""
    return [
        example_gemm(lambda: example(11)),
        example_scaled(lambda: example(12)),
        factory("bw-one", (256, 128, 192), 1, tile=(128, 64, 64), cta_group=1, stages=2,
                accumulators=1, schedule="static"),
        factory("bw-pair", (512, 128, 192), 2, tile=(256, 64, 64), cta_group=2, stages=2,
                accumulators=2, schedule="static"),
        factory("bw-clc", (512, 128, 128), 8, tile=(256, 64, 64), cta_group=2, stages=2,
                accumulators=2, schedule="clc"),
        factory("bw-multicast", (512, 64, 192), 2, tile=(128, 64, 64), cta_group=1, stages=2,
                accumulators=1, schedule="static", cluster=(2, 1)),
    ]  # fmt: skip
