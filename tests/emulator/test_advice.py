"""Advice about operands, boxes and tensor maps that are legal and give wrong results."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda
from numba.cuda.types import int32
from report_helper import said

import nbtc
from nbtc import TensorMap, shared, testing
from nbtc.device import pipeline
from nbtc.intrinsics import address, fence, mbarrier, tcgen05, tma, wgmma
from nbtc.layout.instruction_descriptor import InstructionDescriptor
from nbtc.ptx import registers

KINDS = {
    "descriptor_swizzle", "descriptor_stride", "descriptor_step", "operand_type", "tma_box",
    "tma_swizzle", "tma_outside",
}  # fmt: skip


def advice_of(report):
    return [f for f in report.advice if f.kind in KINDS]


def product(swizzle="128B", leading=16, stride=1024, step=32, mma=wgmma.mma_async_bf16,
            tile_swizzle="128B", map_swizzle="128B"):  # fmt: skip
    """A times its first 32 rows, transposed."""
    layout = shared.Layout(
        a=shared.tile("bfloat16", (64, 64), swizzle=tile_swizzle), full=shared.barriers(1)
    )

    @nbtc.jit(shared=layout, launch_bounds=128, notes="ignore")
    def kernel(a_map, out):
        thread = int32(cuda.threadIdx.x)
        full = layout.full[0]
        if thread == 0:
            mbarrier.init(full, 1)
            fence.mbarrier_init()
        cuda.syncthreads()
        if thread == 0:
            mbarrier.arrive_expect_tx(full, 8192)
            tma.load(layout.a, a_map, (0, 0), full)  # copy
        pipeline.wait(full, 0)
        d = wgmma.fence(registers.zeros(16))
        for at in range(0, 4 * step, step):
            a = wgmma.matrix_descriptor(layout.a + at, swizzle, leading, stride)
            d = mma(d, a, a, n=32)  # mma
        wgmma.commit_group()
        wgmma.wait_group(n=0)
        for i in range(16):
            out[i, thread] = d[i]

    a = testing.random_normal((64, 64), "bfloat16")
    report = kernel.emulate(
        1, 128, TensorMap.tiled(a, (64, 64), swizzle=map_swizzle), np.zeros((16, 128), np.float32)
    )
    assert report.ok, str(report)
    return report


def test_a_right_product_has_none():
    assert not advice_of(product())


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"stride": 512}, "descriptor_stride", ["8-row groups 512 B apart", "1024 B or more"]),
        ({"stride": 16, "leading": 1024}, "descriptor_stride", ["16 B apart", "swapped"]),
        ({"swizzle": "64B", "stride": 256}, "descriptor_stride", ["64B needs a stride of 512"]),
        ({"swizzle": "32B", "stride": 128}, "descriptor_stride", ["32B needs a stride of 256"]),
        ({"swizzle": "none", "leading": 128, "stride": 64}, "descriptor_stride",
         ["none needs a stride of 128"]),
        ({"step": 16}, "descriptor_step", ["starts 16 B into", "bf16 is 16 elements = 32 B"]),
        ({"mma": wgmma.mma_async_f16}, "operand_type",
         ["filled with bfloat16, the instruction reads it as float16"]),
    ],
)  # fmt: skip
def test_operands_of_wgmma(options, kind, words):
    said(product(**options), kind, *words, at="mma", severity="advice")


def test_the_map_and_the_tile_of_the_layout_disagree():
    report = product(map_swizzle="none")
    said(report, "tma_swizzle", 'writes swizzle "none"', r"a=shared.tile\(..., swizzle=\"128B\"\)",
         at="copy", severity="advice")  # fmt: skip
    said(report, "descriptor_swizzle", "SWIZZLE_NONE", at="mma", severity="advice")


def test_the_instruction_descriptor_of_tcgen05_names_another_type():
    layout = shared.Layout(
        a=shared.tile("bfloat16", (128, 64), swizzle="128B"), full=shared.barriers(2),
        slot=shared.array("uint32", 1),
    )  # fmt: skip

    def run(word):
        code = InstructionDescriptor("f16", 128, 128, word, word).encode()

        @nbtc.jit(shared=layout, launch_bounds=128, arch="sm_100a")
        def kernel(a_map):
            thread = int32(cuda.threadIdx.x)
            if thread == 0:
                mbarrier.init(layout.full[0], 1)
                mbarrier.init(layout.full[1], 1)
                fence.mbarrier_init()
            if thread < 32:
                tcgen05.alloc(layout.slot, 128)
            cuda.syncthreads()
            d = address.tmem(layout.slot.array[0])
            if thread == 0:
                mbarrier.arrive_expect_tx(layout.full[0], 16384)
                tma.load(layout.a, a_map, (0, 0), layout.full[0])
                pipeline.wait(layout.full[0], 0)
                tcgen05.fence_after_thread_sync()
                a = tcgen05.matrix_descriptor(layout.a, "128B", 16, 1024)
                tcgen05.mma_f16(d, a, a, code, False)  # mma
                tcgen05.commit(layout.full[1])
                pipeline.wait(layout.full[1], 0)
            cuda.syncthreads()
            if thread < 32:
                tcgen05.dealloc(d, 128)

        a = testing.random_normal((128, 64), "bfloat16")
        report = kernel.emulate(1, 128, TensorMap.tiled(a, (128, 64), swizzle="128B"))
        assert report.ok, str(report)
        return report

    assert not advice_of(run("bf16"))
    said(run("f16"), "operand_type", "filled with bfloat16", "as float16", at="mma",
         severity="advice")  # fmt: skip


def copies(load_box=(16, 32), store_box=(16, 32), x=0, y=0, load_bytes=2048, load_swizzle="none",
           store_swizzle="none"):  # fmt: skip
    """One tile through shared memory."""
    layout = shared.Layout(
        src=shared.tile("float32", (16, 32), stages=2), dst=shared.tile("float32", (16, 32)),
        full=shared.barriers(1),
    )  # fmt: skip

    @nbtc.jit(shared=layout, launch_bounds=32)
    def kernel(source, target, x, y):
        thread = int32(cuda.threadIdx.x)
        full = layout.full[0]
        if thread == 0:
            mbarrier.init(full, 1)
            mbarrier.arrive_expect_tx(full, load_bytes)
            tma.load(layout.src[1], source, (x, y), full)  # load
        cuda.syncthreads()
        pipeline.wait(full, 0)
        for i in range(16):
            layout.dst.array[i, thread] = layout.src.array[1, i, thread]
        fence.proxy_async()
        cuda.syncthreads()
        if thread == 0:
            tma.store(target, (0, 0), layout.dst)  # store
            tma.commit_group()
            tma.wait_group(0)

    a, b = testing.random_normal((16, 128)), np.zeros((16, 32), np.float32)
    return kernel.emulate(
        1, 32, TensorMap.tiled(a, load_box, swizzle=load_swizzle),
        TensorMap.tiled(b, store_box, swizzle=store_swizzle), np.int32(x), np.int32(y),
    )  # fmt: skip


def test_right_copies_have_none():
    assert not advice_of(copies())
    assert not advice_of(copies(x=32))
    assert not advice_of(copies(x=128))  # beyond the edge, and no swapped coordinates


def test_a_box_larger_than_its_stage():
    report = copies(load_box=(32, 32), load_bytes=4096)
    said(report, "tma_box", r"writes 4096 B at src\[1\], but src\[i\] has 2048 B",
         r"src\[1\] to dst \[0x800, 0x1800\)", at="load", severity="advice")  # fmt: skip


@pytest.mark.parametrize("box", [(16, 16), (8, 32)])
def test_a_box_smaller_than_its_tile(box):
    said(copies(store_box=box), "tma_box", rf"boxes of \({box[0]}, {box[1]}\) float32 store 1024 ",
         "of the 2048 B of dst", at="store", severity="advice")  # fmt: skip


def test_swapped_coordinates():
    said(copies(x=0, y=64), "tma_outside", r"coordinates \(0, 64\) lies wholly outside",
         r"\(128, 16\) elements, innermost first", "swapped", at="load",
         severity="advice")  # fmt: skip


def test_a_tile_without_swizzle_stored_by_a_map_with_one():
    report = copies(store_swizzle="128B")
    said(report, "tma_swizzle", 'map reads swizzle "128B"', "dst=shared.tile", at="store",
         severity="advice")  # fmt: skip
