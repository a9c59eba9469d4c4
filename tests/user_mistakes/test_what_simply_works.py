"""What newcomers write and what works as it stands."""

from __future__ import annotations

import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest
from numba import cuda
from numba.cuda.types import float32, int32

import nbtc
from nbtc.errors import CompileError
from nbtc.intrinsics import wgmma
from nbtc.ptx import registers

from .mistake_helper import compiled, run


@nbtc.device
def two(x, y):
    return x + y


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
