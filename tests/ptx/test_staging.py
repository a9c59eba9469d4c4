"""Staged functions: arithmetic of values, constants, variadics, and calls that do not fit."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import pydoc
import re

import numpy as np
import pytest
from numba.cuda import types
from numba.cuda.types import int32, uint32

import nbtc
from nbtc.device import pipeline
from nbtc.errors import InstructionError
from nbtc.intrinsics import mbarrier
from nbtc.ptx import registers
from nbtc.ptx.staging import _Staged, constant_of, staged


@pytest.fixture(autouse=True)
def _emulate(monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")


@staged(lambda a, b: types.UniTuple(types.uint32, 12))
def arithmetic(e, a, b):
    """Every operator of a value, both ways round where that makes a difference."""
    return e.tuple(
        [a + b, a - b, a * b, a & b, a | b, a ^ b, a // b, a % b, a << 3, a >> 3, 7 - a, 5 + a]
    )


MASK = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("a", "b"), [(0, 1), (5, 3), (2**32 - 1, 2), (2**31, 2**31 + 1), (12345, 2**32 - 7)]
)
def test_values_count_modulo_two_to_the_32(a, b):
    @nbtc.jit
    def kernel(source, out):
        results = arithmetic(source[0], source[1])
        for i in range(12):
            out[i] = results[i]

    out = np.zeros(12, np.uint32)
    kernel[1, 1](np.array([a, b], np.uint32), out)
    want = [
        a + b, a - b, a * b, a & b, a | b, a ^ b, a // b, a % b, a << 3, a >> 3, 7 - a, 5 + a,
    ]  # fmt: skip
    assert out.tolist() == [x & MASK for x in want]


@staged(lambda regs, factor, label: regs, constants=("factor", "label"))
def scaled(e, regs, factor=2, label="x"):
    """Shift all registers, with a constant of the call."""
    assert isinstance(factor, int)
    assert isinstance(label, str)
    return e.tuple([r * factor for r in regs])


def test_constants_arrive_as_python_values():
    by_name = 5

    @nbtc.jit
    def kernel(source, out):
        regs = (source[0], source[1])
        a = scaled(regs)
        b = scaled(regs, 3, label="y")
        c = scaled(regs, factor=by_name)
        out[0], out[1], out[2], out[3] = a[0], b[1], c[0], c[1]

    out = np.zeros(4, np.uint32)
    kernel[1, 1](np.array([10, 20], np.uint32), out)
    assert out.tolist() == [20, 60, 50, 100]


@staged(lambda first, *rest: types.uint32)
def total(e, first, *rest):
    """Add any number of values."""
    result = first + 0
    for value in rest:
        result = result + value
    return result


def test_variadic_functions():
    @nbtc.jit
    def kernel(source, out):
        out[0] = total(source[0])
        out[1] = total(source[0], source[1])
        out[2] = total(source[0], source[1], uint32(7), source[1])

    out = np.zeros(3, np.uint32)
    kernel[1, 1](np.array([10, 20], np.uint32), out)
    assert out.tolist() == [10, 30, 57]


@staged(lambda condition, array: types.none)
def store_when(e, condition, array):
    """Write only where a condition holds."""
    with e.when(condition):
        e.call_device(put, array)


@nbtc.device
def put(array):
    array[0] = 9


@pytest.mark.parametrize(("value", "want"), [(3, 9), (4, 0)])
def test_code_under_a_condition(value, want):
    @nbtc.jit
    def kernel(number, out):
        store_when(number == 3, out)

    out = np.zeros(1, np.int32)
    kernel[1, 1](np.int32(value), out)
    assert out[0] == want


def test_minimum_equals_and_special_registers():
    @staged(lambda a, b: types.UniTuple(types.uint32, 2))
    def smaller_and_thread(e, a, b):
        return e.tuple([e.minimum(a, b), e.special_register("tid.x")])

    @nbtc.jit
    def kernel(out):
        low, thread = smaller_and_thread(int32(-1), 4)
        if thread == 31:
            out[0], out[1] = low, thread

    out = np.zeros(2, np.int32)
    kernel[1, 32](out)
    assert out.tolist() == [4, 31]  # -1 is the largest unsigned value


def test_constants_behind_types():
    assert constant_of(types.literal(5)) == 5
    assert constant_of(types.literal("128B")) == "128B"
    assert constant_of(types.Omitted(None)) is None
    assert constant_of(types.none) is None
    assert constant_of(7) == 7
    with pytest.raises(ValueError, match="int32"):
        constant_of(types.int32)


def missing(out):
    registers.take((1, 2, 3), 1)


def surplus(out):
    registers.zeros(4, "float32", 3)


def unknown(out):
    registers.zeros(count=4)


def runtime(out):
    registers.take((1, 2, 3), int32(out[0]), 1)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (missing, r"take\(regs, start, count\): missing a required argument: 'count'"),
        (surplus, r"zeros\(n, dtype='float32'\): too many positional arguments"),
        (unknown, r"zeros\(n, dtype='float32'\): no parameter 'count'"),
        (runtime, r"take: start is int32, and must be a compile-time constant: .* bare name"),
    ],
)
def test_calls_that_do_not_fit(function, text):
    with pytest.raises(InstructionError, match=text) as caught:
        nbtc.jit(function).compile("float32[::1]", arch="sm_90a")
    line = function.__code__.co_firstlineno + 1
    assert str(caught.value).startswith(f"{__file__}:{line}: ")


def test_from_python():
    with pytest.raises(InstructionError, match="arithmetic emits code: call it inside a kernel"):
        arithmetic(1, 2)
    assert arithmetic.__doc__.startswith("Every operator")


def public_staged():
    """Return every staged function that a kernel can name, by ``module.name``."""
    found = {}
    for module in pkgutil.walk_packages(nbtc.__path__, "nbtc."):
        if not module.name.startswith(("nbtc.device.", "nbtc.ptx.", "nbtc.gemm.")):
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, _Staged) and not name.startswith("_"):
                found[f"{value.__module__}.{name}"] = value
    return found


STAGED = public_staged()


def test_the_staged_functions_are_found():
    assert {"nbtc.device.mma.block", "nbtc.ptx.registers.zeros"} <= STAGED.keys()
    assert len(STAGED) > 30


@pytest.mark.parametrize("name", sorted(STAGED))
def test_help_shows_what_a_kernel_passes(name):
    function = STAGED[name]
    written = list(inspect.signature(function.__wrapped__).parameters)
    shown = list(inspect.signature(function).parameters)
    assert shown == written[1:]
    page = pydoc.plain(pydoc.render_doc(function)).splitlines()
    assert page[2] == f"{function.__name__}{inspect.signature(function)}"
    text = "\n".join(page)
    assert "typingctx" not in text
    assert not re.search(r"^\s+e: ", text, re.MULTILINE)
    assert not re.search(r"Args:\n( *\n| *Returns:|\Z)", text)


def test_help_of_instructions_and_helpers_starts_with_their_signature():
    for function in (mbarrier.arrive, pipeline.wait):
        page = pydoc.plain(pydoc.render_doc(function)).splitlines()
        assert page[2] == f"{function.__name__}{inspect.signature(function)}"
