"""What newcomers write: it works, or one short message says what was asked, the rule and the cure.

Acceptance cases of the collection of faults that people really hit: C20, C24, C43, C82, C86.
"""

from __future__ import annotations

import collections
import copy
import itertools
import pickle
import re
import subprocess
import sys
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from numba import cuda
from numba.cuda.types import float32, int32, uint32

import nbtc
from nbtc import TensorMap, shared
from nbtc.device import math32, pipeline
from nbtc.errors import (
    ArchError,
    CompileError,
    DtypeError,
    FindingsError,
    InstructionError,
    LaunchError,
    LayoutError,
    NbtcError,
    TensorMapError,
)
from nbtc.intrinsics import address, mbarrier, sync, tma, wgmma
from nbtc.ptx import registers


@pytest.fixture(autouse=True)
def _emulate(monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")
    monkeypatch.setenv("NBTC_CACHE_DIR", "")


layout = shared.Layout(
    a=shared.tile("bfloat16", (64, 64), swizzle="128B", stages=2),
    bias=shared.array("float32", (64,)),
    full=shared.barriers(2),
)
REGISTERS, PAIR = 40, (40, 232)
Named = collections.namedtuple("Named", "registers stages")
named, table = Named(40, 2), {"registers": 40}


class Settings:
    registers = 40


settings = Settings()


def compiled(function, types, **options):
    arch = options.pop("arch", "sm_90a")
    options = {"shared": layout, "launch_bounds": 128, **options}
    return nbtc.jit(**options)(function).compile(*types.split(), arch=arch)


def line_of(function, needle):
    """Return ``file:line`` of the line of a function that holds ``needle``."""
    code = function.__code__
    lines = Path(__file__).read_text().splitlines()
    start = code.co_firstlineno
    found = [n for n, text in enumerate(lines[start:], start + 1) if needle in text]
    return f"{Path(__file__)}:{found[0]}"


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


def instruction_wrong(out, n):
    mbarrier.initialise(layout.full[0], 1)  # mistake


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


def constant_of_an_object(out, n):
    sync.setmaxnreg_dec(n=settings.registers)  # mistake


def constant_of_a_class(out, n):
    sync.setmaxnreg_dec(n=Settings.registers)  # mistake


def constant_of_a_dictionary(out, n):
    sync.setmaxnreg_dec(n=table["registers"])  # mistake


def plain(x):
    return x + 1


def helper_without_decorator(out, n):
    out[0] = plain(n)  # mistake


def name_unknown(out, n):
    out[0] = never_defined  # noqa: F821  # mistake


def returns_something(out, n):
    return n  # mistake


def catches(out, n):
    try:
        out[0] = n
    except ZeroDivisionError:
        out[0] = 0


def opens(out, n):
    with open("file"):
        out[0] = n


def makes_a_list(out, n):
    values = [x for x in range(3)]  # mistake
    out[0] = values[0]


def formats(out, n):
    print(f"value {n}")  # mistake


def stores_numba_bfloat16(out, n):
    layout_free = ml_dtypes.bfloat16(1)
    out[0] = layout_free  # mistake


@nbtc.jit
def another_kernel(out):
    out[0] = 1


def calls_a_kernel(out, n):
    another_kernel(out)  # mistake


def launches_a_kernel(out, n):
    another_kernel[1, 1](out)  # mistake


@nbtc.device
def endless(n):
    return n if n < 2 else endless(n - 1)  # the call


def recurses(out, n):
    out[0] = endless(n)  # mistake


@nbtc.device
def two(x, y):
    return x + y


def helper_with_too_few(out, n):
    out[0] = two(n)  # mistake


def helper_with_wrong_keyword(out, n):
    out[0] = two(n, z=3)  # mistake


def piece_assigned(out, n):
    layout.bias = 3  # mistake


@nbtc.device
def misspells(value):
    return value + never_defined  # noqa: F821


@nbtc.device
def calls_misspells(value):
    never_defined = value
    return misspells(never_defined)


def test_an_unknown_name_is_found_in_the_helper():
    def kernel(x, n):
        x[0] = calls_misspells(x[0])  # use

    with pytest.raises(CompileError) as caught:
        compiled(kernel, "float32[::1] int32")
    places = (
        line_of(kernel, "# use"),
        line_of(calls_misspells.py_func, "return misspells"),
        line_of(misspells.py_func, "never_defined"),
    )
    assert str(caught.value) == (
        f"{' -> '.join(places)}: helper misspells does not compile: "
        "NameError: name 'never_defined' is not defined"
    )


@pytest.mark.parametrize(
    ("function", "parts"),
    [
        (constant_of_an_object, ["'settings'", "bare names before the kernel"]),
        (constant_of_a_class, ["'Settings'", "bare names before the kernel"]),
        (constant_of_a_dictionary, ["'table'", "bare names before the kernel"]),
        (helper_without_decorator, ["'plain'", "@nbtc.device"]),
        (name_unknown, ["name 'never_defined' is not defined"]),
        (instruction_wrong, ["nbtc.intrinsics.mbarrier", "'initialise'"]),
        (returns_something, ["A kernel returns nothing; write results to an array"]),
        (catches, ["no try and except"]),
        (opens, ["no with blocks"]),
        (makes_a_list, ["no lists", "tuples"]),
        (formats, ["no formatted strings", 'print("x", value)']),
        (stores_numba_bfloat16, ["take float32", "x[i] = float32(value)"]),
        (calls_a_kernel, ["'another_kernel'", "cannot call or launch a kernel", "@nbtc.device"]),
        (launches_a_kernel, ["'another_kernel'", "cannot call or launch a kernel"]),
        (recurses, ["endless calls itself", "cannot recurse"]),
        (helper_with_too_few, ["two(x, y)", "'y'", f"defined at {Path(__file__)}:"]),
        (helper_with_wrong_keyword, ["two(x, y): no parameter 'z'"]),
        (piece_assigned, ["layout.name.array[...]"]),
    ],
)
def test_python_that_kernels_do_not_have(function, parts):
    element = "bfloat16" if function is stores_numba_bfloat16 else "float32"
    with pytest.raises(CompileError) as caught:
        compiled(function, f"{element}[::1] int32")
    text = str(caught.value)
    assert text.startswith(f"{Path(__file__)}:")
    if "# mistake" in Path(__file__).read_text().splitlines()[function.__code__.co_firstlineno]:
        assert text.startswith(line_of(function, "# mistake"))
    for part in parts:
        assert part in text


# -- shared memory ---------------------------------------------------------------------------------


def stage_below(out):
    mbarrier.init(layout.full[-1], 1)


def stage_above(out):
    mbarrier.init(layout.full[2], 1)


def stage_float(out):
    mbarrier.init(layout.full[out[0]], 1)


def piece_unknown(out):
    out[0] = layout.tile


def swizzled_elements(out):
    out[0] = layout.a.array[0, 0, 0]


def index_without_stages(out):
    out[0] = layout.bias[0]


def layout_forgotten(out):
    out[0] = layout.bias.array[0]


other = shared.Layout(x=shared.array("float32", (8,)))


def two_layouts(out):
    layout.bias.array[0] = 1
    other.x.array[0] = 2
    out[0] = layout.bias.array[0]


def layout_and_dynamic_array(out):
    values = cuda.shared.array(0, float32)
    values[0] = 2
    layout.bias.array[0] = 1
    out[0] = values[0]


@pytest.mark.parametrize(
    ("function", "used", "parts"),
    [
        (stage_below, layout, ["full[-1]: stages are 0..1"]),
        (stage_above, layout, ["full[2]: stages are 0..1"]),
        (stage_float, layout, ["the stage is float32, and must be an integer"]),
        (piece_unknown, layout, ["no piece 'tile'; pieces: a, bias, full"]),
        (swizzled_elements, layout, ["a.array", "swizzled", "shared.array"]),
        (index_without_stages, layout, ["no stages", "bias.array[...]"]),
        (layout_forgotten, None, ["a shared.Layout of 16656 B", "@nbtc.jit(shared=layout)"]),
        (layout_forgotten, other, ["a shared.Layout of 16656 B, but has 32 B"]),
        (two_layouts, layout, ["another shared.Layout", "same memory", "one layout"]),
        (layout_and_dynamic_array, layout, ["cuda.shared.array(0, ...)", "same memory"]),
    ],
)
def test_shared_memory(function, used, parts):
    with pytest.raises(LayoutError) as caught:
        compiled(function, "float32[::1]", shared=used)
    text = str(caught.value)
    assert text.startswith(f"{Path(__file__)}:")
    for part in parts:
        assert part in text


@pytest.mark.parametrize("value", [1024, {"a": 1}, shared.barriers(2)])
def test_something_else_than_a_layout(value):
    with pytest.raises(LayoutError, match=r"shared=.*needs a nbtc.shared.Layout"):
        nbtc.jit(shared=value)


def test_a_global_array_as_a_barrier_is_found_by_the_emulator():
    @nbtc.jit(launch_bounds=32)
    def kernel(out):
        mbarrier.init(out, 1)

    with pytest.raises(FindingsError, match=r"test_user_mistakes\.py:\d+ in kernel"):
        kernel[1, 1](np.zeros(4, np.int64))


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


# -- called from Python, launched wrongly ----------------------------------------------------------


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


@nbtc.jit
def simple(out):
    out[0] = 5


@pytest.mark.parametrize(
    ("launch", "error", "text"),
    [
        (lambda out: simple(out), LaunchError, r"simple: give grid and block, kernel\[grid"),
        (lambda out: simple[1](out), LaunchError, r"kernel\[1\]: give kernel\[grid, block\]"),
        (lambda out: simple[1.5, 32](out), LaunchError, "grid 1.5: .* integer"),
        (lambda out: simple[0, 32](out), LaunchError, "grid 0: .* at least 1"),
        (lambda out: simple[1, 32](), CompileError, r"takes 1 arguments \(out\), 0 types"),
        (lambda out: simple[1, 32](out, 1), CompileError, r"takes 1 arguments \(out\), 2 types"),
        (lambda out: simple[1, 32]([1.0]), LaunchError, "a list cannot be a kernel argument"),
        (lambda out: simple[1, 32]("x"), LaunchError, "a str cannot be a kernel argument"),
        (lambda out: nbtc.jit(launch_bounds=64)(simple.py_func)[1, 128](out), LaunchError,
         r"block \(128,1,1\) has 128 threads > launch_bounds 64"),
        (lambda out: simple[1, 1025](out), LaunchError, r"block\.x=1025 > 1024"),
        (lambda out: simple[1, (32, 64)](out), LaunchError, "2048 threads; at most 1024"),
        (lambda out: simple[(1, 70000), 1](out), LaunchError, r"grid\.y=70000 > 65535"),
        (lambda out: simple[1, 1, "x"](out), LaunchError, "stream='x' is not a stream"),
        (lambda out: simple[1, 1, 0, -1](out), LaunchError, "memory -1: must be a number of bytes"),
        (lambda out: simple[1, 1, 0, 300000](out), NbtcError, "300000 .* 232448"),
        (lambda out: nbtc.jit(cluster=2)(simple.py_func)[3, 32](out), LaunchError,
         "is not a multiple of cluster"),
        (lambda out: nbtc.jit(cluster=16)(simple.py_func), LaunchError, "needs non_portable=True"),
        (lambda out: nbtc.jit(launch_bounds="128"), CompileError, "launch_bounds='128'"),
        (lambda out: nbtc.jit(max_registers=300), CompileError, r"max_registers=300: must be 16"),
        (lambda out: simple.compile("float32[::1]", arch="h100"), ArchError, "Write 'sm_90a'"),
        (lambda out: simple.compile("float32[::1]", arch=90), ArchError, "Write 'sm_90a'"),
        (lambda out: simple.compile("float32[::1]", arch="sm_120a"), ArchError,
         "consumer Blackwell.*supported: sm_90, sm_90a, sm_100, sm_100a, sm_100f, sm_103a"),
        (lambda out: simple.compile("flaot32[::1]"), DtypeError, "'flaot32' is not known"),
    ],
)  # fmt: skip
def test_launches(launch, error, text):
    with pytest.raises(error, match=text):
        launch(np.zeros(4, np.float32))


class Holder:
    """Kernels as attributes of classes."""

    @nbtc.jit
    def bound(self, out):
        out[0] = 1

    @staticmethod
    @nbtc.jit
    def static(out):
        out[0] = 3


def run(kernel):
    out = np.zeros(1, np.float32)
    kernel[1, 1](out)
    return out[0]


def test_kernels_in_classes():
    assert run(Holder.static) == 3
    with pytest.raises(CompileError, match=r"Holder.bound takes 2 arguments \(self, out\)"):
        run(Holder().bound)
    with pytest.raises(CompileError, match=r"write @staticmethod above @nbtc\.jit"):
        nbtc.jit(staticmethod(run))


@pytest.mark.parametrize("thing", [print, Holder, Holder(), "float32[:]", simple, endless])
def test_decorating_what_is_no_function(thing):
    with pytest.raises(CompileError, match=r"nbtc\.jit takes a Python function, got "):
        nbtc.jit(thing)


def test_writing_to_a_read_only_array():
    out = np.zeros(4, np.float32)
    out.flags.writeable = False
    with pytest.raises(CompileError, match="The array is read-only; pass a copy"):
        simple[1, 1](out)


def test_tensor_maps_made_wrongly():
    array = np.zeros((64, 64), np.float32)
    with pytest.raises(TensorMapError, match=r"TensorMap\(ndarray\): use TensorMap\.tiled"):
        TensorMap(array)
    with pytest.raises(TensorMapError, match="box=64; needs a tuple of integers, one per axis"):
        TensorMap.tiled(array, 64)
    with pytest.raises(TensorMapError, match="box has 1 entries for an array of rank 2"):
        TensorMap.tiled(array, (64,))
    with pytest.raises(TensorMapError, match="swizzle=128; must be one of 'none', '32B'"):
        TensorMap.tiled(array, (64, 32), swizzle=128)


def test_functions_that_cannot_be_kernels():
    def many(out, *rest):
        out[0] = rest[0]

    def generator(out):
        yield out

    async def asynchronous(out):
        out[0] = 1

    with pytest.raises(CompileError, match=r"many: \*args and \*\*kwargs are not possible"):
        nbtc.jit(many)
    for function in (generator, asynchronous):
        with pytest.raises(CompileError, match="a generator or async"):
            nbtc.jit(function)


# -- what simply works -----------------------------------------------------------------------------


def test_kernels_without_source_text():
    names = {"nbtc": nbtc}
    exec("@nbtc.jit\ndef made(out):\n    out[0] = 7\n", names)
    assert run(names["made"]) == 7
    store = nbtc.device(lambda x: x * 2)

    @nbtc.jit
    def kernel(out):
        out[0] = store(3)

    assert run(kernel) == 6


def test_a_kernel_typed_at_the_prompt(tmp_path):
    text = (
        "import numpy as np, nbtc\n"
        "@nbtc.jit\n"
        "def typed(out):\n"
        "    out[0] = 9\n"
        "\n"
        "out = np.zeros(1, np.float32)\n"
        "typed[1, 1](out)\n"
        "print('value', out[0])\n"
    )
    done = subprocess.run(
        [sys.executable, "-i", "-q"], input=text, capture_output=True, text=True, check=False,
        cwd=tmp_path,
    )  # fmt: skip
    assert "value 9.0" in done.stdout, done.stderr


@pytest.mark.parametrize(
    "name", ["printf", "vprintf", "malloc", "ret", "add", "_", "WARP_SZ", "größe", "reg", "tid"]
)
def test_any_name_is_a_name_for_a_kernel(name):
    names = {"nbtc": nbtc}
    exec(f"@nbtc.jit\ndef {name}(out):\n    print(out[0])\n    out[0] = 4\n", names)
    assert "entry" in names[name].compile("float32[::1]").ptx


def test_constants_that_change_are_seen():
    factor = 3

    @nbtc.jit
    def kernel(out):
        out[0] = factor

    assert run(kernel) == 3
    factor = 4
    assert run(kernel) == 4


def test_the_first_call_from_many_threads():
    @nbtc.jit
    def kernel(out):
        out[0] = two(out[0], 41)

    results = []
    threads = [threading.Thread(target=lambda: results.append(run(kernel))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [41] * 6


def test_pickling_by_name(tmp_path):
    assert copy.deepcopy(Holder.static) is Holder.static
    (tmp_path / "kernels.py").write_text(
        "import nbtc\n@nbtc.device\ndef helper(x):\n    return x\n"
        "@nbtc.jit\ndef kernel(out):\n    out[0] = helper(1)\n"
    )
    script = (
        "import pickle, kernels\n"
        "for thing in (kernels.kernel, kernels.helper):\n"
        "    assert pickle.loads(pickle.dumps(thing)) is thing\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(nbtc.jit(lambda out: None))


def test_printing_inside_a_kernel_with_wgmma(capfd):
    @nbtc.jit(launch_bounds=128)
    def kernel(out):
        d = wgmma.fence(registers.zeros(4))
        if cuda.threadIdx.x == 0:
            print("d", d[0])
            out[0] = d[0] + 1

    out = np.zeros(1, np.float32)
    kernel[1, 128](out)
    assert out[0] == 1
    assert kernel.compile("float32[::1]").notes == ()
    assert "d 0.0" in capfd.readouterr().out


@pytest.mark.parametrize(
    "dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
)
def test_arithmetic_of_narrow_elements(dtype):
    @nbtc.jit
    def kernel(out):
        out[0] = out[1] * out[2] + out[3]
        out[1] = 2
        out[2] = 0.5

    out = np.array([0, 1.5, 2, 0.25], dtype)
    kernel[1, 1](out)
    assert out.tolist() == np.array([3.25, 2, 0.5, 0.25], dtype).tolist()


def test_numbas_own_half_arithmetic_names_the_way_out():
    def kernel(out):
        out[0] = np.float16(1) * np.float16(out[1])

    with pytest.raises(CompileError, match=r"float16.*use array elements \(they read as float32\)"):
        compiled(kernel, "float16[::1]", shared=None)


def test_two_dynamic_arrays_are_one_memory_as_on_the_device():
    @nbtc.jit
    def kernel(out):
        words = cuda.shared.array(0, int32)
        numbers = cuda.shared.array(0, float32)
        words[0] = 0x40490FDB
        out[0] = numbers[0]

    out = np.zeros(1, np.float32)
    kernel[1, 1, 0, 64](out)
    assert out[0] == np.float32(np.pi)


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
