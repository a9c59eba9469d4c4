"""Layouts of shared memory: ranges, alignments, addresses in kernels, and what does not fit."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
from numba import cuda
from numba.cuda.types import int32, uint32

import nbtc
from nbtc import shared, testing
from nbtc.device import pipeline
from nbtc.device import swizzle as swizzling
from nbtc.errors import LayoutError
from nbtc.intrinsics import address, mbarrier, memory, tma
from nbtc.layout import OperandTile


@pytest.fixture(autouse=True)
def _emulate(monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")


PIECES = [
    shared.array("uint8", 3),
    shared.barriers(1),
    shared.barriers(5),
    shared.array("float32", (7,), alignment=4),
    shared.array("float64", (3, 3), alignment=64),
    shared.tile("bfloat16", (8, 64), swizzle="128B"),
    shared.tile("bfloat16", (3, 32), swizzle="64B", stages=3),
    shared.tile("float32", (5, 8), swizzle="32B", stages=2),
    shared.tile("int8", (1, 48), stages=4),
    shared.array("float4_e2m1fn", (3,)),
]
NEED = {"128B": 1024, "64B": 512, "32B": 256, "none": 128}


@pytest.mark.parametrize("seed", range(20))
def test_pieces_are_aligned_and_apart(seed):
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(PIECES))[: rng.integers(1, len(PIECES) + 1)]
    pieces = {f"p{i}": PIECES[i] for i in order}
    layout = shared.Layout(**pieces)
    end = 0
    for name, piece in pieces.items():
        start = layout.offsets[name]
        assert start >= end
        assert start - end < piece.alignment
        assert start % piece.alignment == 0
        for stage in range(piece.stages or 1):
            assert (start + stage * piece.stride) % piece.alignment == 0
        size = (piece.stages or 1) - 1
        used = int(np.prod(piece.shape)) * piece.dtype.bits / 8
        assert piece.nbytes >= size * piece.stride + used
        end = start + piece.nbytes
    assert layout.nbytes == end
    assert list(layout) == list(pieces)


def test_alignments_are_those_of_the_hardware():
    for swizzle, need in NEED.items():
        assert shared.tile("bfloat16", (8, 8), swizzle=swizzle).alignment == need
    assert shared.barriers(3).alignment == 8
    assert shared.barriers(3).stride == 8
    ring = shared.tile("float16", (1, 32), stages=2)  # 64 bytes a stage; TMA needs 128
    assert ring.stride == 128
    assert ring.nbytes == 192


layout = shared.Layout(
    odd=shared.array("uint8", 3),
    full=shared.barriers(3),
    tile=shared.tile("bfloat16", (8, 64), swizzle="128B", stages=2),
    plain=shared.tile("float32", (4, 8), stages=2),
    half=shared.array("bfloat16", (2, 5)),
)


def test_addresses_in_kernels_are_the_offsets():
    @nbtc.jit(shared=layout, launch_bounds=32)
    def kernel(out):
        if cuda.threadIdx.x == 0:
            base = address.bits(layout.odd)
            out[0] = base % 1024
            out[1] = address.bits(layout.full[2]) - base
            out[2] = address.bits(layout.tile[1]) - base
            stage = uint32(out[7])
            out[3] = address.bits(layout.plain[stage]) - base
            out[4] = address.bits(layout.half) - base
            out[5] = address.bits(layout.full[int32(stage)]) - base

    out = np.zeros(8, np.int64)
    out[7] = 1
    kernel[1, 32](out)
    offsets = layout.offsets
    assert out[:6].tolist() == [
        0, offsets["full"] + 16, offsets["tile"] + 1024, offsets["plain"] + 128, offsets["half"],
        offsets["full"] + 8,
    ]  # fmt: skip
    ptx = kernel.compile("int64[::1]").ptx
    assert re.search(r"\.extern \.shared \.align 1024 \.b8 nbtc_dynamic_shared", ptx)
    full = next(piece for piece in layout.placed() if piece.name == "full")
    assert [full.text(offsets["full"] + 8 * i) for i in range(3)] == [
        f"full[{i}]" for i in range(3)
    ]


def test_arrays_do_not_touch_each_other():
    @nbtc.jit(shared=layout, launch_bounds=32)
    def kernel(out):
        thread = int32(cuda.threadIdx.x)
        if thread < 3:
            layout.odd.array[thread] = 200 + thread
        if thread < 10:
            layout.half.array[thread // 5, thread % 5] = thread / 4
        for stage in range(2):
            layout.plain.array[stage, thread // 8, thread % 8] = stage * 100 + thread
        cuda.syncthreads()
        out[thread] = layout.plain.array[1, thread // 8, thread % 8]
        if thread < 3:
            out[32 + thread] = layout.odd.array[thread]
        if thread < 10:
            out[40 + thread] = layout.half.array[thread // 5, thread % 5]

    out = np.zeros(50, np.float32)
    kernel[1, 32](out)
    assert out[:32].tolist() == [100 + i for i in range(32)]
    assert out[32:35].tolist() == [200, 201, 202]
    assert out[40:].tolist() == (np.arange(10) / 4).astype(ml_dtypes.bfloat16).tolist()


def test_the_limit_and_its_table():
    most = shared.Layout(x=shared.array("uint8", 232448))
    assert most.nbytes == 227 * 1024
    with pytest.raises(LayoutError) as caught:
        shared.Layout(
            x=shared.tile("bfloat16", (128, 64), swizzle="128B", stages=14),
            bars=shared.barriers(385),
        )
    text = str(caught.value)
    total = 14 * 128 * 64 * 2 + 385 * 8
    assert f"shared memory of {total} B > 232448 B, the most of one CTA (227 KiB)" in text
    assert "14 x bfloat16 [128, 64], swizzle 128B" in text
    assert "385 x mbarrier" in text


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: shared.Layout(), "at least one piece"),
        (lambda: shared.Layout(a=3), "a=3; build it with shared.tile"),
        (lambda: shared.tile("f32", (3, 3), swizzle="256B"), "swizzle '256B'; must be one of"),
        (lambda: shared.tile("f32", (8, 48), swizzle="128B"),
         r"48 float32 is 192 B > 128 B span of swizzle '128B', .*at most 32 columns"),
        (lambda: shared.tile("bf16", (8, 40), swizzle="64B"), "80 B > 64 B span .*at most 32 col"),
        (lambda: shared.tile("f32", (0, 3)), r"shape=\(0, 3\); every dimension"),
        (lambda: shared.tile("f32", (8.0, 8)), r"shape=\(8\.0, 8\); every dimension"),
        (lambda: shared.tile("f32", ()), r"shape=\(\)"),
        (lambda: shared.tile("f32", (8, 8), stages=0), "stages=0; must be an integer >= 1"),
        (lambda: shared.barriers(0), "shared.barriers"),
        (lambda: shared.array("f32", 3, alignment=3), "alignment=3; must be a power of two"),
        (lambda: shared.array("f32", 3, alignment=2048), r"1\.\.1024"),
    ],
)  # fmt: skip
def test_pieces_that_are_refused(make, text):
    with pytest.raises(LayoutError, match=text):
        make()


@pytest.mark.parametrize("swizzle", ["32B", "64B", "128B"])
@pytest.mark.parametrize("major", ["K", "MN"])
@pytest.mark.parametrize("spans", [1, 2, 3])
def test_boxes_are_those_of_an_operand(swizzle, major, spans):
    wide = spans * int(swizzle[:-1]) // 2
    mn, k = (16, wide) if major == "K" else (wide, 16)
    operand = OperandTile(mn, k, "bfloat16", major, swizzle)
    piece = shared.tile("bfloat16", operand.shape, swizzle=swizzle)
    assert (piece.box, piece.copies) == (operand.box, operand.copies)
    assert piece.nbytes == operand.size_bytes


def test_a_tile_wider_than_its_swizzle_is_boxes_side_by_side():
    rows, columns = 16, 96
    wide = shared.Layout(
        tile=shared.tile("float32", (rows, columns), swizzle="128B", stages=2),
        full=shared.barriers(1),
    )
    piece = wide.pieces["tile"]
    assert (piece.box, piece.copies) == ((rows, 32), 3)
    assert "2 x float32 [16, 96], swizzle 128B, 3 boxes of [16, 32]" in str(wide)
    bytes_, box_bytes, width = piece.stage_bytes, piece.stage_bytes // piece.copies, piece.box[-1]

    @nbtc.jit(shared=wide, launch_bounds=32)
    def kernel(source, out):
        lane = cuda.threadIdx.x
        if lane == 0:
            mbarrier.init(wide.full[0], 1)
            mbarrier.arrive_expect_tx(wide.full[0], bytes_)
            for i in range(3):
                at = int32(i)
                tma.load(
                    wide.tile[1] + at * box_bytes, source, (int32(at * width), 0), wide.full[0]
                )
        cuda.syncthreads()
        pipeline.wait(wide.full[0], 0)
        for row in range(rows):
            for box in range(3):
                at = wide.tile[1] + int32(box) * box_bytes + int32(row) * 128 + int32(lane) * 4
                value = memory.ld_shared(swizzling.apply(at, "128B"), type="f32")
                out[row, box * 32 + lane] = value

    source, out = testing.random_normal((rows, columns)), np.zeros((rows, columns), np.float32)
    kernel[1, 32](nbtc.TensorMap.tiled(source, piece.box, swizzle="128B"), out)
    np.testing.assert_array_equal(out, source)


def test_the_fingerprint_tells_layouts_apart():
    one = shared.Layout(a=shared.array("float32", (4,)), b=shared.array("float32", (4,)))
    swapped = shared.Layout(b=shared.array("float32", (4,)), a=shared.array("float32", (4,)))
    same = shared.Layout(a=shared.array("float32", (4,)), b=shared.array("float32", (4,)))
    assert one.fingerprint() == same.fingerprint()
    assert one.fingerprint() != swapped.fingerprint()
