"""Wrong operands, modifiers and registers: one short message says what was asked, and the cure.

Acceptance cases of the collection of faults that people really hit: C20, C24, C43, C82, C86.
"""

from __future__ import annotations

import collections
import itertools
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from numba import cuda
from numba.cuda.types import uint32

import nbtc
from nbtc import TensorMap, shared
from nbtc.device import math32, pipeline
from nbtc.errors import ArchError, CompileError, InstructionError, LayoutError, TensorMapError
from nbtc.intrinsics import address, mbarrier, sync, tma, wgmma
from nbtc.ptx import registers

from .mistake_helper import compiled, layout, line_of

REGISTERS, PAIR = 40, (40, 232)
named = collections.namedtuple("Named", "registers stages")(40, 2)


# -- the five of the acceptance --------------------------------------------------------------------


def test_c20_a_view_that_starts_off_16_bytes():
    whole = np.zeros((64, 72), ml_dtypes.bfloat16)
    base = -whole.ctypes.data % 16 // 2  # so that column 0 counted from here is aligned
    aligned = whole[:, base : base + 64]
    assert TensorMap.tiled(aligned, (64, 64), swizzle="128B")
    with pytest.raises(TensorMapError) as caught:
        TensorMap.tiled(whole[:, base + 1 :][:, :48], (64, 48), swizzle="128B")
    text = str(caught.value)
    assert "is 2 mod 16; must be a multiple of 16" in text
    assert "Start the view at a multiple of 8 bfloat16 elements" in text


def test_c24_a_box_row_wider_than_its_swizzle():
    with pytest.raises(TensorMapError) as caught:
        TensorMap.tiled(np.zeros((256, 256), ml_dtypes.bfloat16), (64, 128), swizzle="128B")
    text = str(caught.value)
    assert "128 bfloat16 = 256 B > 128 B span of SWIZZLE_128B" in text
    assert "<=64 and 2 copies" in text


def test_c43_an_n_that_wgmma_does_not_have():
    def kernel(out):
        d = wgmma.fence(registers.zeros(6))
        zero = address.descriptor_sm90(0)
        d = wgmma.mma_async_bf16(d, zero, zero, True, n=12)
        out[0] = d[0]

    with pytest.raises(InstructionError) as caught:
        compiled(kernel, "float32[::1]", shared=None)
    assert str(caught.value) == (
        f"{line_of(kernel, 'n=12')}: wgmma.mma_async_bf16: n=12; legal: 8..256 in steps of 8"
    )


def test_c82_a_target_without_its_suffix():
    def kernel(out):
        d = wgmma.fence(registers.zeros(4))
        out[0] = d[0]

    with pytest.raises(ArchError) as caught:
        compiled(kernel, "float32[::1]", shared=None, arch="sm_90")
    text = str(caught.value)
    assert text.startswith(line_of(kernel, "wgmma.fence"))
    assert "needs sm_90a, not sm_90: pass arch='sm_90a'" in text
    with pytest.raises(ArchError, match=r"does not exist on sm_100a .*it needs sm_90a"):
        compiled(kernel, "float32[::1]", shared=None, arch="sm_100a")


@pytest.mark.parametrize("size", [49152, 49153, 200 * 1024, 232448])
def test_c86_dynamic_shared_memory_up_to_the_limit_works(size):
    big = shared.Layout(x=shared.array("uint8", (size,)))

    @nbtc.jit(shared=big, launch_bounds=1)
    def kernel(out):
        big.x.array[size - 1] = 7
        out[0] = big.x.array[size - 1]

    out = np.zeros(1, np.int32)
    kernel[1, 1](out)
    assert out[0] == 7
    assert kernel.compile("int32[::1]").resources.dynamic_smem_bytes == size


def test_c86_over_the_limit():
    with pytest.raises(LayoutError, match=r"232449 B > 232448 B, the most of one CTA .227 KiB"):
        shared.Layout(x=shared.array("uint8", (232449,)))
    most = shared.Layout(x=shared.array("uint8", (232448,)))

    def kernel(out):
        static = cuda.shared.array(4, np.float32)
        static[cuda.threadIdx.x] = 1
        most.x.array[0] = 1
        out[0] = static[3] + most.x.array[5]

    with pytest.raises(LayoutError) as caught:
        compiled(kernel, "float32[::1]", shared=most)
    # The dynamic part starts at a multiple of 1024, so that 16 static bytes take 1024.
    assert "1024 B static + 232448 B dynamic = 233472 B" in str(caught.value)
    assert "> 232448 B opt-in maximum of sm_90a (227 KiB)" in str(caught.value)


# -- operands --------------------------------------------------------------------------------------


def wide_bytes(out, n):
    mbarrier.arrive_expect_tx(layout.full[0], n)  # mistake


def huge_bytes(out, n):
    mbarrier.arrive_expect_tx(layout.full[0], 1 << 33)  # mistake


def float_bytes(out, n):
    mbarrier.arrive_expect_tx(layout.full[0], 16384.0)  # mistake


def number_for_address(out, n):
    mbarrier.init(0, 1)  # mistake


def no_index(out, n):
    mbarrier.init(layout.full, 1)  # mistake


def zero_arrivals(out, n):
    mbarrier.init(layout.full[0], 0)  # mistake


def operand_missing(out, n):
    mbarrier.init(layout.full[0])  # mistake


def operand_too_many(out, n):
    mbarrier.init(layout.full[0], 1, 2)  # mistake


def keyword_wrong(out, n):
    mbarrier.init(layout.full[0], number=1)  # mistake


def array_for_map(out, n):
    tma.load(layout.a[0], out, (0, 0), layout.full[0])  # mistake


def operands_swapped(out, tensor_map):
    tma.load(tensor_map, layout.a[0], (0, 0), layout.full[0])  # mistake


def six_coordinates(out, tensor_map):
    tma.load(layout.a[0], tensor_map, (0, 0, 0, 0, 0, 0), layout.full[0])  # mistake


def bare_coordinate(out, tensor_map):
    tma.load(layout.a[0], tensor_map, 0, layout.full[0])  # mistake


def list_of_coordinates(out, tensor_map):
    tma.load(layout.a[0], tensor_map, [0, 0], layout.full[0])  # mistake


def wide_coordinates(out, tensor_map):
    for i in range(4):
        tma.load(layout.a[0], tensor_map, (i * 64, 0), layout.full[0])  # mistake


def few_registers(out, n):
    zero = address.descriptor_sm90(0)
    wgmma.mma_async_bf16(registers.zeros(16), zero, zero, True, n=64)  # mistake


def integer_registers(out, n):
    zero = address.descriptor_sm90(0)
    wgmma.mma_async_bf16((1, 2, 3, 4), zero, zero, True, n=8)  # mistake


def address_for_descriptor(out, n):
    zero = address.descriptor_sm90(0)
    wgmma.mma_async_bf16(registers.zeros(4), layout.a[0], zero, True, n=8)  # mistake


def runtime_modifier(out, n):
    sync.setmaxnreg_dec(n=n)  # mistake


def modifier_by_expression(out, n):
    sync.setmaxnreg_dec(n=REGISTERS // 2 * 2)  # mistake


def modifier_of_named_tuple(out, n):
    sync.setmaxnreg_dec(n=named.registers)  # mistake


def modifier_out_of_range(out, n):
    sync.setmaxnreg_dec(n=41)  # mistake


def runtime_stages(out, n):
    state = pipeline.advance(pipeline.consumer_start(), n)  # mistake
    out[0] = state.stage


def no_stages(out, n):
    state = pipeline.advance(pipeline.consumer_start(), 0)  # mistake
    out[0] = state.stage


def state_attribute(out, n):
    out[0] = pipeline.consumer_start().phase  # mistake


def state_assigned(out, n):
    state = pipeline.consumer_start()
    state.stage = uint32(1)  # mistake


def division_by_zero(out, n):
    out[0] = math32.div(n, 0)  # mistake


TYPES = {"tensor_map": TensorMap, "n": "int32"}


@pytest.mark.parametrize(
    ("function", "n", "parts"),
    [
        (wide_bytes, "int64", ["tx_bytes is int64, needs int32 or uint32", "as int32(...)"]),
        (huge_bytes, None, ["8589934592", "does not fit in 32 bits"]),
        (float_bytes, None, ["tx_bytes is float64, needs a 32-bit integer"]),
        (number_for_address, None, ["bar is int64", "shared::cta address", "address.shared(...)"]),
        (no_index, None, ["bar is full with 2 barriers: choose one, full[i]"]),
        (zero_arrivals, None, ["count must be 1..1048575, got 0"]),
        (operand_missing, None, ["mbarrier.init(bar, count)", "'count'"]),
        (operand_too_many, None, ["mbarrier.init(bar, count)", "too many"]),
        (keyword_wrong, None, ["mbarrier.init(bar, count): no parameter 'number'"]),
        (array_for_map, None, ["tensor_map is an array", "nbtc.TensorMap.tiled(...)"]),
        (operands_swapped, None, ["dst is a TensorMap argument, needs a shared::cluster"]),
        (six_coordinates, None, ["coordinates has 6 values, takes 1 to 5"]),
        (bare_coordinate, None, ["coordinates is int64, needs a tuple of 1 to 5"]),
        (list_of_coordinates, None, ["needs a tuple of 1 to 5"]),
        (wide_coordinates, None, ["coordinates[0] is int64, needs int32 or uint32"]),
        (few_registers, None, ["d has 16 registers, needs 32"]),
        (integer_registers, None, ["d[0] is int64, needs float32"]),
        (address_for_descriptor, None, ["a_desc is a shared::cta address", "descriptor"]),
        (runtime_modifier, None, ["n is int32, and must be a compile-time constant", "24..256"]),
        (modifier_by_expression, None, ["compile-time constant", "expression such as n // 2"]),
        (modifier_of_named_tuple, None, ["compile-time constant", "attribute of an object"]),
        (modifier_out_of_range, None, ["n=41; legal: 24..256 in steps of 8"]),
        (runtime_stages, None, ["stages is int32", "compile-time constant"]),
        (no_stages, None, ["stages=0; must be an integer >= 1"]),
        (state_attribute, None, ["has no 'phase'; it has stage and parity"]),
        (state_assigned, None, ["state.stage = ...", "state = pipeline.advance(state, STAGES)"]),
        (division_by_zero, None, ["b=0; division by zero"]),
    ],
)
def test_operands(function, n, parts):
    names = function.__code__.co_varnames[1 : function.__code__.co_argcount]
    types = [n or TYPES[name] for name in names]
    kernel = nbtc.jit(shared=layout, launch_bounds=128)(function)
    with pytest.raises(InstructionError) as caught:
        kernel.compile("float32[::1]", *types, arch="sm_90a")
    text = str(caught.value)
    assert text.startswith(f"{line_of(function, '# mistake')}: ")
    for part in parts:
        assert part in text
    assert len(text) < 420


# -- registers -------------------------------------------------------------------------------------


def test_setmaxnreg_without_launch_bounds():
    def kernel(out):
        sync.setmaxnreg_dec(n=40)
        out[0] = 1

    with pytest.raises(CompileError) as caught:
        compiled(kernel, "float32[::1]", shared=None, launch_bounds=None)
    assert line_of(kernel, "setmaxnreg_dec") in str(caught.value)
    assert "launch_bounds=(threads, 1)" in str(caught.value)


def test_constants_that_are_taken():
    def kernel(out):
        sync.setmaxnreg_dec(n=REGISTERS)
        sync.setmaxnreg_dec(n=PAIR[0])

    assert compiled(kernel, "float32[::1]").ptx.count("setmaxnreg.dec.sync.aligned.u32 40;") == 2


def test_stage_and_parity_carried_by_hand():
    """As plain 32-bit values they work; as Python integers the message says what to write."""

    @nbtc.jit(shared=layout, launch_bounds=32)
    def right(out):
        if cuda.threadIdx.x == 0:
            for i in range(2):
                mbarrier.init(layout.full[i], 1)
            stage, parity = uint32(0), uint32(0)
            for _ in range(5):
                mbarrier.arrive(layout.full[stage])
                pipeline.wait(layout.full[stage], parity)
                parity = uint32(parity ^ (stage == 1))
                stage = uint32((stage + 1) % 2)
            out[0], out[1] = stage, parity

    out = np.zeros(2, np.int32)
    right[1, 32](out)
    assert out.tolist() == [1, 0]

    def wrong(out):
        stage, parity = 0, 0
        for _ in range(5):
            pipeline.wait(layout.full[stage], parity)  # mistake
            stage += 1
            if stage == 2:
                stage, parity = 0, parity ^ 1
        out[0] = stage

    with pytest.raises(InstructionError) as caught:
        compiled(wrong, "float32[::1]")
    assert str(caught.value).startswith(line_of(wrong, "# mistake"))
    assert "parity is int64, needs int32 or uint32" in str(caught.value)


# -- messages --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda: mbarrier.init(1, 2),
        lambda: registers.zeros(4),
        lambda: pipeline.advance(1, 2),
        lambda: pipeline.wait(1, 2),
        lambda: address.shared(1),
        lambda: math32.div(1, 2),
    ],
)
def test_instructions_called_from_python(call):
    with pytest.raises(InstructionError, match=r"call it inside a kernel .*not from Python"):
        call()


def test_messages_have_one_line_of_colourless_text():
    for function in (wide_bytes, no_index, keyword_wrong):
        with pytest.raises(InstructionError) as caught:
            compiled(function, "float32[::1] int64")
        text = str(caught.value)
        assert "\n" not in text
        assert not re.search(r"\x1b", text)
        assert caught.value.__cause__ is None
        assert all(c.isprintable() for c in itertools.chain(text))


def test_tracebacks_leave_out_the_frames_of_the_compiler():
    with pytest.raises(InstructionError) as caught:
        compiled(wide_bytes, "float32[::1] int64")
    files = [Path(entry.path).parts for entry in caught.traceback]
    assert not any("numba_cuda" in parts for parts in files)
    assert len(files) < 8
