"""Python that kernels do not have: the message has its line and what to write instead."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import pytest

import nbtc
from nbtc.errors import CompileError
from nbtc.intrinsics import mbarrier, sync

from .mistake_helper import compiled, layout, line_of

table = {"registers": 40}


class Settings:
    registers = 40


settings = Settings()


def instruction_wrong(out, n):
    mbarrier.initialise(layout.full[0], 1)  # mistake


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
