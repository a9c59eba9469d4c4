"""Kernel objects and device functions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from numba import cuda
from numba.cuda import types

import nbtc
from nbtc import device, jit
from nbtc.errors import CompileError, EmulatorWarning, FindingsError, InstructionError, LaunchError
from nbtc.intrinsics import mbarrier, tma
from nbtc.jit import DeviceFunction, Kernel, emulating, flat_arguments, set_report_hook
from nbtc.layout import matrix_descriptor
from nbtc.ptx.addresses import shared
from nbtc.ptx.types_numba import TENSOR_MAP


@pytest.fixture(autouse=True)
def _no_disk_cache(monkeypatch):
    monkeypatch.setenv("NBTC_CACHE_DIR", "")


def test_the_names_are_decorators_and_packages():
    import nbtc.device as package

    assert isinstance(nbtc.device(lambda x: x), DeviceFunction)
    assert package(lambda x: x)(3) == 3
    assert isinstance(nbtc.jit(lambda x: None), Kernel)


@device
def scaled(x, factor, *, offset=0, mode="plain"):
    if mode == "plain":
        return x * factor + offset
    if mode == "negative":
        return -(x * factor) - offset
    return x


def test_device_functions_run_as_python():
    assert scaled(3, 4, offset=5) == 17
    assert scaled(3, 4, mode="negative") == -12


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_helpers_are_inlined_with_lines_of_their_own(arch):
    @jit
    def kernel(out):
        out[0] = scaled(out[1], out[2], offset=7, mode="negative")

    ptx = kernel.compile("int32[::1]", arch=arch).ptx
    assert not re.search(r"^\s*call", ptx, re.MULTILINE)
    assert ".func" not in ptx
    call = kernel.py_func.__code__.co_firstlineno + 2
    body = scaled.py_func.__code__.co_firstlineno + 5
    assert re.search(rf"\.loc\s+1 {body} \d+, function_name [^,]+, inlined_at 1 {call} ", ptx)


def test_helpers_of_plain_numba_kernels():
    def kernel(out):
        out[0] = scaled(out[1], 3, mode="negative")

    ptx, _ = cuda.compile_ptx(kernel, (types.int32[::1],), cc=(9, 0, "a"))
    assert "call" not in ptx.partition("{")[2]


def test_instructions_in_plain_numba_kernels_need_no_registration(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from numba import cuda\n"
        "from numba.cuda import types\n"
        "from nbtc.intrinsics import address, mbarrier\n"
        "def kernel(out):\n"
        "    mbarrier.init(address.shared(0), 4)\n"
        "    out[0] = 1\n"
        "ptx, _ = cuda.compile_ptx(kernel, (types.float32[::1],), cc=(9, 0, 'a'))\n"
        "assert 'mbarrier.init.shared::cta.b64' in ptx\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(nbtc.__file__).parents[1])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_compile_time_branch_leaves_no_trace():
    @jit
    def kernel(out):
        out[0] = scaled(out[1], out[2], mode="other")

    body = kernel.compile("int32[::1]").ptx.partition("{")[2]
    assert "mul" not in body


@device
def chosen(x, *, mode, extra=None, deep=False):
    special = mode in ("a", "b")
    if special and extra is None:
        return x + 11
    if mode not in ("c", "d") and mode != "e":
        return undefined_name  # noqa: F821 - never compiled
    if deep:
        return undefined_name  # noqa: F821
    return x + 22


@pytest.mark.parametrize(("mode", "number"), [("a", 11), ("b", 11), ("c", 22), ("e", 22)])
def test_constant_strings_choose_at_compile_time(mode, number):
    @jit
    def kernel(out):
        out[0] = chosen(out[1], mode=mode)

    body = kernel.compile("int32[::1]").ptx.partition("{")[2]
    assert re.search(rf"add\.\w+ .*, {number};", body)
    assert "setp" not in body


def test_a_constant_that_is_assigned_again_is_a_variable():
    @device
    def count_down(n):
        steps = 0
        while n > 0:
            n = n - 2
            steps = steps + 1
        return steps

    @jit
    def kernel(out):
        out[0] = count_down(7)

    out = np.zeros(1, np.int64)
    assert kernel.emulate(1, 1, out).ok
    assert out[0] == 4


@device
def init(bar, count):
    mbarrier.init(bar, count)


def test_literals_pass_through_helpers():
    zero = 0

    @jit
    def kernel(n):
        init(shared(0), zero)

    with pytest.raises(InstructionError) as caught:
        kernel.compile("int32")
    text = str(caught.value)
    line = kernel.py_func.__code__.co_firstlineno + 2
    helper = init.py_func.__code__.co_firstlineno + 2
    assert text.startswith(f"{__file__}:{line} -> {__file__}:{helper}: mbarrier.init")
    assert "0" in text
    assert "1048575" in text


def test_the_users_line_comes_first_and_only_once():
    @jit
    def kernel(n):
        mbarrier.init(shared(0), 0)

    line = kernel.py_func.__code__.co_firstlineno + 2
    for _ in range(2):
        with pytest.raises(InstructionError) as caught:
            kernel.compile("int32")
        assert str(caught.value).count(f"{__file__}:{line}: ") == 1


def test_recursion_is_refused():
    @device
    def forever(x):
        return forever(x - 1)

    @jit
    def kernel(out):
        out[0] = forever(out[0])

    with pytest.raises(CompileError, match="cannot recurse"):
        kernel.compile("int64[:]")


def test_wrong_call_of_a_helper():
    @jit
    def kernel(out):
        out[0] = scaled(out[0])

    with pytest.raises(CompileError, match=r"scaled\(x, factor, .*missing.*'factor'"):
        kernel.compile("int64[:]")


def test_functions_as_arguments():
    @device
    def apply(function, x):
        return function(x, 3)

    @jit
    def kernel(out):
        out[0] = apply(scaled, out[1])

    ptx = kernel.compile("int32[::1]").ptx
    assert not re.search(r"^\s*call", ptx, re.MULTILINE)
    assert re.search(r"mul\.\w+\.?\w*\s+%\w+, %\w+, 3;|mad\.", ptx)


def test_layout_functions_serve_kernels_as_they_are():
    @jit
    def kernel(out, address):
        out[0] = matrix_descriptor.encode_sm90(address, 16, 1024, 1)

    body = kernel.compile("uint64[::1]", "int64").ptx.partition("{")[2]
    constant = matrix_descriptor.encode_sm90(0, 16, 1024, 1)
    assert str(constant) in body


def test_a_kernel_called_without_grid():
    @jit
    def kernel(out):
        out[0] = 1

    with pytest.raises(LaunchError, match=r"kernel\[grid, block\]"):
        kernel(np.zeros(1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"launch_bounds": 2048}, "at most 1024"),
        ({"launch_bounds": (128, 0)}, "launch_bounds"),
        ({"max_registers": 300}, "16..255"),
        ({"notes": "maybe"}, '"error", "warn" or "ignore"'),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(CompileError, match=message):
        jit(**options)(lambda x: None)


def test_bad_cluster():
    with pytest.raises(LaunchError, match="non_portable"):
        jit(cluster=16)(lambda x: None)


def test_emulation_is_chosen_by_the_environment(monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")
    assert emulating()
    monkeypatch.setenv("NBTC_EMULATE", "0")
    assert not emulating()


def test_flat_arguments_follow_numbas_order():
    array = np.zeros((3, 4), np.float32)[:, ::2]
    flat = flat_arguments([array, 5, (1.5, None), np.int16(3), 2 + 3j])
    assert flat[:4] == [0, 0, 6, 4]
    assert flat[4] is array
    assert flat[5:] == [3, 2, 16, 8, 5, 1.5, 0, np.int16(3), 2.0, 3.0]


def test_flat_arguments_match_the_parameters_of_the_ptx():
    @jit
    def kernel(a, b, c):
        a[0, 0] = b + c[0]

    args = (np.zeros((3, 4), np.float32), 5, (1.5, 2))
    ptx = kernel.compile(*args).ptx
    assert len(re.findall(r"\.param ", ptx.partition(")")[0])) == len(flat_arguments(args))


@jit
def racy(out):
    tile = cuda.shared.array(64, np.float32)
    i = cuda.threadIdx.x
    tile[i] = i
    out[i] = tile[63 - i]


@jit
def clean(out, factor):
    tile = cuda.shared.array(64, np.float32)
    i = cuda.threadIdx.x
    tile[i] = i
    cuda.syncthreads()
    out[i] = tile[63 - i] * factor


def test_launch_syntax_emulates_on_numpy_arrays(monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")
    out = np.zeros(64, np.float32)
    clean[1, 64](out, 2)
    np.testing.assert_array_equal(out, 2 * np.arange(64)[::-1])


def test_launch_syntax_raises_on_findings(monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")
    line = racy.py_func.__code__.co_firstlineno + 5
    with pytest.raises(FindingsError, match=rf"test_jit.py:{line}"):
        racy[1, 64](np.zeros(64, np.float32))


def test_emulate_returns_the_report():
    assert clean.emulate(1, 64, np.zeros(64, np.float32), 2).ok
    report = racy.emulate((1,), (64, 1), np.zeros(64, np.float32), seed=3)
    assert not report.ok


def test_a_hook_takes_the_reports(monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")
    seen = []
    set_report_hook(lambda kernel, report: seen.append((kernel, report.ok)))
    try:
        racy[1, 64](np.zeros(64, np.float32))
    finally:
        set_report_hook(None)
    assert seen == [(racy, False)]


@device
def total(n, start):
    result = start
    for i in range(n):
        result += i
    return result


@device
def advance(stage, phase, stages):
    stage = stage + 1
    if stage == stages:
        stage = 0
        phase = phase ^ 1
    return stage, phase


@device
def optional(x, y=None):
    if y is None:
        return x
    return x + y


@device
def variadic(*args):
    return args[0] + args[1]


@device
def stores(out, x):
    out[4] = x


@jit
def helpers(out, n):
    out[0] = total(n, 0)
    stage, phase = 0, 0
    for _ in range(n):
        stage, phase = advance(stage, phase, 4)
    out[1] = stage
    out[2] = phase
    out[3] = optional(n) + optional(n, 5) + variadic(n, 2)
    stores(out, 7)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_constant_arguments_may_become_variables(arch):
    out = np.zeros(5, np.int64)
    assert helpers.emulate(1, 1, out, np.int32(6), arch=arch).ok
    assert out.tolist() == [15, 2, 1, 25, 7]


def test_threads_compile_for_different_targets():
    made = {}

    def work(arch):
        made[arch] = jit(helpers.py_func).compile("int64[::1]", "int32", arch=arch)

    threads = [threading.Thread(target=work, args=(arch,)) for arch in ("sm_90a", "sm_100a")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for arch, compiled in made.items():
        assert f".target {arch}\n" in compiled.ptx
    assert len(made) == 2


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_tensor_maps_in_a_tuple(arch):
    @device
    def prefetch(descriptor, x):
        tma.prefetch(descriptor, (x, 0))

    @jit
    def kernel(maps, n):
        for descriptor in maps:
            prefetch(descriptor, n)
        prefetch(maps[1], 3)

    ptx = kernel.compile(types.UniTuple(TENSOR_MAP, 2), "int32", arch=arch).ptx
    assert len(re.findall(r"\.param \.align 64 \.b8 kernel_param_[01]\[128\]", ptx)) == 2
    assert ptx.count("cp.async.bulk.prefetch.tensor") == 3
    assert ".local" not in ptx


def test_a_bound_launch_runs_on_the_emulator_too(monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")

    @nbtc.jit
    def count(x):
        x[0] += 1

    x = np.zeros(1, np.int32)
    again = count[1, 1].bind(x)
    for _ in range(3):
        again()
    assert x[0] == 3


def test_what_is_risky_is_a_warning_of_the_launch(monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")

    class Report:
        findings, warnings, advice = (), ("t.py:3: risky",), ()

        def raise_for_findings(self):
            pass

    @nbtc.jit
    def kernel(x):
        x[0] += 1

    seen = {}
    monkeypatch.setattr(
        kernel, "emulate", lambda *args, **options: seen.update(options) or Report()
    )
    monkeypatch.setenv("NBTC_COMPLETION", "latest")
    with pytest.warns(EmulatorWarning, match=r"t\.py:3: risky"):
        kernel[1, 1](np.zeros(1, np.int32))
    assert seen["completion"] == "latest"
