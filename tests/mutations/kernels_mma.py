"""Small correct wgmma kernels: chains, several accumulators, operands from threads."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from numba import cuda
from numba.cuda.types import int32

import nbtc
from mutations.base import COPY, TRY, Base
from nbtc import TensorMap, testing
from nbtc.device import epilogue, pipeline, shared, swizzle
from nbtc.intrinsics import fence, mbarrier, memory, tma, wgmma
from nbtc.ptx import registers

GROUP = 8 * 128  # bytes from one group of 8 rows to the next, 128-byte swizzle


@nbtc.device
def store_element(value, row, column, d):
    d[row, column] = value


def chain():
    """Two groups on one accumulator without a fence between, waited for one after the other."""
    layout = shared.Layout(
        a=shared.tile("bfloat16", (64, 64), swizzle="128B"),
        b=shared.tile("bfloat16", (32, 64), swizzle="128B"),
        full=shared.barriers(1),
    )

    @nbtc.jit(shared=layout, launch_bounds=128)
    def kernel(a_map, b_map, out):
        full = layout.full[0]
        if cuda.threadIdx.x == 0:
            mbarrier.init(full, 1)
        cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            mbarrier.arrive_expect_tx(full, (64 + 32) * 128)
            tma.load(layout.a, a_map, (0, 0), full)
            tma.load(layout.b, b_map, (0, 0), full)
        pipeline.wait(full, 0)
        d = wgmma.fence(registers.zeros(16))
        for k in range(0, 64, 16):
            a = wgmma.matrix_descriptor(layout.a + 2 * k, "128B", 16, GROUP)
            b = wgmma.matrix_descriptor(layout.b + 2 * k, "128B", 16, GROUP)
            d = wgmma.mma_async_bf16(d, a, b, n=32)
            wgmma.commit_group()  # a group for each, all on one accumulator
        d = wgmma.wait_group(d, n=2)
        d = wgmma.wait_group(d, n=0)
        epilogue.each(store_element, d, 0, 0, out)

    return kernel


def chain_data():
    a, b = (testing.random_normal((r, 64), "bfloat16", seed=r) for r in (64, 32))
    d = np.full((64, 32), np.nan, np.float32)
    maps = [TensorMap.tiled(x, x.shape, swizzle="128B") for x in (a, b)]
    return (*maps, d), lambda: testing.assert_close(d, testing.matmul_reference(a, b.T))


def two_accumulators():
    """Two accumulators in flight in turn; one is read while the other is still computed."""
    layout = shared.Layout(
        a=shared.tile("bfloat16", (128, 64), swizzle="128B"),
        b=shared.tile("bfloat16", (32, 64), swizzle="128B"),
        full=shared.barriers(1),
    )

    @nbtc.jit(shared=layout, launch_bounds=128)
    def kernel(a_map, b_map, out):
        full = layout.full[0]
        if cuda.threadIdx.x == 0:
            mbarrier.init(full, 1)
        cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            mbarrier.arrive_expect_tx(full, (128 + 32) * 128)
            tma.load(layout.a, a_map, (0, 0), full)
            tma.load(layout.b, b_map, (0, 0), full)
        pipeline.wait(full, 0)
        top, bottom = wgmma.fence(registers.zeros(16)), wgmma.fence(registers.zeros(16))
        for k in range(0, 64, 16):
            a = wgmma.matrix_descriptor(layout.a + 2 * k, "128B", 16, GROUP)
            b = wgmma.matrix_descriptor(layout.b + 2 * k, "128B", 16, GROUP)
            top = wgmma.mma_async_bf16(top, a, b, n=32)
        wgmma.commit_group()
        for k in range(0, 64, 16):
            a = wgmma.matrix_descriptor(layout.a + (2 * k + 64 * 128), "128B", 16, GROUP)
            b = wgmma.matrix_descriptor(layout.b + 2 * k, "128B", 16, GROUP)
            bottom = wgmma.mma_async_bf16(bottom, a, b, n=32)
        wgmma.commit_group()
        top = wgmma.wait_group(top, n=1)
        epilogue.each(store_element, top, 0, 0, out)
        bottom = wgmma.wait_group(bottom, n=0)
        epilogue.each(store_element, bottom, 64, 0, out)

    return kernel


def two_accumulators_data():
    a, b = (testing.random_normal((r, 64), "bfloat16", seed=r) for r in (128, 32))
    d = np.full((128, 32), np.nan, np.float32)
    maps = [TensorMap.tiled(x, x.shape, swizzle="128B") for x in (a, b)]
    return (*maps, d), lambda: testing.assert_close(d, testing.matmul_reference(a, b.T))


def from_threads():
    """B is written by the threads (generic proxy), A comes from registers."""
    layout = shared.Layout(b=shared.tile("bfloat16", (32, 64), swizzle="128B"))

    @nbtc.jit(shared=layout, launch_bounds=128)
    def kernel(a, b, out):
        thread = int32(cuda.threadIdx.x)
        for i in range(8):
            word = thread + 128 * i
            at = swizzle.apply(layout.b + word // 32 * 128 + word % 32 * 4, "128B")
            memory.st_shared(at, b[word // 32, word % 32])
        fence.proxy_async()  # each writer, before the barrier
        cuda.syncthreads()
        row, column = thread // 32 * 16 + thread % 32 // 4, thread % 4
        d = registers.zeros(16)
        for k in range(4):
            words = (a[row, 8 * k + column], a[row + 8, 8 * k + column],
                     a[row, 8 * k + column + 4], a[row + 8, 8 * k + column + 4])  # fmt: skip
            words = wgmma.fence(words)
            d = wgmma.fence(d)
            desc = wgmma.matrix_descriptor(layout.b + 32 * k, "128B", 16, GROUP)
            d = wgmma.mma_async_bf16_ra(d, words, desc, n=32)
            wgmma.commit_group()
            d = wgmma.wait_group(d, n=0)
        epilogue.each(store_element, d, 0, 0, out)

    return kernel


def from_threads_data():
    a, b = (testing.random_normal((r, 64), "bfloat16", seed=r) for r in (64, 32))
    d = np.full((64, 32), np.nan, np.float32)
    words = a.view(np.uint32), b.view(np.uint32)
    return (*words, d), lambda: testing.assert_close(d, testing.matmul_reference(a, b.T))


def narrow(kind):
    """8-bit operands by TMA: e4m3 into float32, s8 into int32."""
    item = "float8_e4m3fn" if kind == "fp8" else "int8"
    zero = "float32" if kind == "fp8" else "int32"
    layout = shared.Layout(
        a=shared.tile(item, (64, 128), swizzle="128B"),
        b=shared.tile(item, (32, 128), swizzle="128B"),
        full=shared.barriers(1),
    )
    fp8 = kind == "fp8"

    @nbtc.jit(shared=layout, launch_bounds=128)
    def kernel(a_map, b_map, out):
        thread = int32(cuda.threadIdx.x)
        full = layout.full[0]
        if thread == 0:
            mbarrier.init(full, 1)
        cuda.syncthreads()
        if thread == 0:
            mbarrier.arrive_expect_tx(full, (64 + 32) * 128)
            tma.load(layout.a, a_map, (0, 0), full)
            tma.load(layout.b, b_map, (0, 0), full)
        pipeline.wait(full, 0)
        d = wgmma.fence(registers.zeros(16, zero))
        for k in range(0, 128, 32):
            a = wgmma.matrix_descriptor(layout.a + k, "128B", 16, GROUP)
            b = wgmma.matrix_descriptor(layout.b + k, "128B", 16, GROUP)
            if fp8:
                d = wgmma.mma_async_fp8(d, a, b, n=32, a_type="e4m3", b_type="e4m3")
            else:
                d = wgmma.mma_async_int8(d, a, b, n=32, a_type="s8", b_type="s8")
        wgmma.commit_group()
        d = wgmma.wait_group(d, n=0)
        for i in range(16):
            row = thread // 32 * 16 + thread % 32 // 4 + i // 2 % 2 * 8
            out[row, i // 4 * 8 + thread % 4 * 2 + i % 2] = d[i]

    return kernel


def narrow_data(kind):
    rng = np.random.default_rng(5)
    if kind == "fp8":
        a, b = (rng.standard_normal((r, 128)).astype(ml_dtypes.float8_e4m3fn) for r in (64, 32))
        d = np.full((64, 32), np.nan, np.float32)
    else:
        a, b = (rng.integers(-128, 128, (r, 128)).astype(np.int8) for r in (64, 32))
        d = np.full((64, 32), -1, np.int32)
    maps = [TensorMap.tiled(x, x.shape, swizzle="128B") for x in (a, b)]
    want = a.astype(np.float64) @ b.astype(np.float64).T
    return (*maps, d), lambda: testing.assert_close(d, want, tol=1e-6 if kind == "fp8" else 0)


MMA_ROLES = {
    "init_full": (r"mbarrier\.init", ""), "init_sync": (r"bar(rier)?\.(cta\.)?sync", ""),
    "expect": (r"mbarrier\.arrive\.expect_tx", ""), "copy_a": (COPY, "layout.a"),
    "copy_b": (COPY, "layout.b"), "full_wait": (TRY, ""), "mma_fence": (r"wgmma\.fence", ""),
    "mma": (r"wgmma\.mma_async", ""), "mma_commit": (r"wgmma\.commit_group", ""),
    "mma_wait": (r"wgmma\.wait_group", ""), "read": (r"st\.global", "store_element|each|value"),
}  # fmt: skip
WGMMA_SMALL = [
    Base("wgmma-chain", chain, (1, 128), chain_data, {
        **MMA_ROLES, "mma_loop_wait": (r"wgmma\.wait_group", "n=0"),
    }, rules=("wgmma.fence dropped", "last wgmma wait dropped", "commit dropped",
              "descriptor of B with another swizzle", "second copy dropped")),
    Base("two-accumulators", two_accumulators, (1, 128), two_accumulators_data, {
        **MMA_ROLES, "mma_loop_wait": (r"wgmma\.wait_group", "n=1"),
    }, rules=("wgmma.fence dropped", "wgmma wait leaves one group more", "last wgmma wait dropped",
              "wait for full dropped")),
    Base("operands-from-threads", from_threads, (1, 128), from_threads_data, {
        "write": (r"st\.shared", ""), "write_fence": (r"fence\.proxy", ""),
        "store": (r"wgmma\.mma_async", ""), "mma": (r"wgmma\.mma_async", ""),
        "mma_fence": (r"wgmma\.fence", ""), "block_sync": (r"bar(rier)?\.(cta\.)?sync", ""),
    }, rules=("proxy fence dropped", "wgmma.fence dropped",
              "barrier before the bulk store dropped")),
    Base("wgmma-fp8", lambda: narrow("fp8"), (1, 128), lambda: narrow_data("fp8")),
    Base("wgmma-int8", lambda: narrow("int8"), (1, 128), lambda: narrow_data("int8")),
]  # fmt: skip
