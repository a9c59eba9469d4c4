"""Compiling with no driver: targets, parameters, bounds, resources and refusals."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from numba import cuda
from numba.cuda import types

from nbtc import device, jit
from nbtc.arch import SUPPORTED
from nbtc.argument_types import argument_type
from nbtc.errors import (
    ArchError,
    CompileError,
    InstructionError,
    LayoutError,
    VersionError,
)
from nbtc.intrinsics import address, tcgen05, wgmma
from nbtc.ptx import narrow_floats, registers
from nbtc.ptx.kinds import U32
from nbtc.ptx.spec import ptx
from nbtc.ptx.types_numba import TENSOR_MAP


@pytest.fixture(autouse=True)
def _no_disk_cache(monkeypatch):
    monkeypatch.setenv("NBTC_CACHE_DIR", "")


@jit(launch_bounds=128)
def scale(out, source, factor, n):
    i = cuda.grid(1)
    if i < n:
        out[i] = source[i] * factor


SCALE = ("float32[::1]", "float32[::1]", "float32", "int32")


@pytest.mark.parametrize("arch", list(SUPPORTED))
def test_every_target_compiles_without_a_driver(arch):
    compiled = scale.compile(*SCALE, arch=arch)
    assert f".target {arch}\n" in compiled.ptx
    assert compiled.arch == arch
    assert compiled.entry == "scale"
    assert re.search(r"\.entry scale\(", compiled.ptx)
    assert compiled.cubin.startswith(b"\x7fELF")
    assert f".target\t{arch.rstrip('f')}\n" in compiled.sass()
    assert compiled.count("STG") >= 1
    assert compiled.notes == ()
    resources = compiled.resources
    assert 4 <= resources.registers <= 64
    assert (resources.spill_bytes, resources.stack_bytes, resources.static_smem_bytes) == (0, 0, 0)


def test_compiling_loads_no_driver():
    script = (
        "import sys\n"
        "from numba import cuda\n"
        "from nbtc import device, jit\n"
        "@device\n"
        "def twice(x, *, mode='b'):\n"
        "    return x * 2 if mode == 'b' else x\n"
        "@jit\n"
        "def k(a):\n"
        "    a[0] = twice(a[1])\n"
        "k.compile('float32[:]', arch='sm_90a')\n"
        "text = open('/proc/self/maps').read()\n"
        "sys.exit('libcuda.so' in text)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _as_file(script)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def _as_file(script: str) -> str:
    # Kernels need source positions, so the script runs as a module of its own.
    return (
        "import tempfile, runpy, os\n"
        "path = os.path.join(tempfile.mkdtemp(), 'script.py')\n"
        f"open(path, 'w').write({script!r})\n"
        "runpy.run_path(path, run_name='__main__')\n"
    )


def test_unknown_target_lists_all():
    with pytest.raises(ArchError) as caught:
        scale.compile(*SCALE, arch="sm_86")
    assert all(name in str(caught.value) for name in SUPPORTED)


def test_launch_bounds_always_have_min_blocks():
    ptx = scale.compile(*SCALE).ptx
    assert re.search(r"\.maxntid 128", ptx)
    assert re.search(r"\.minnctapersm 1\b", ptx)
    two = jit(launch_bounds=(256, 2), max_registers=64)(scale.py_func).compile(*SCALE).ptx
    assert re.search(r"\.minnctapersm 2\b", two)
    assert re.search(r"\.maxnreg 64\b", two)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_cluster_size_in_the_code_on_request(arch):
    plain = jit(cluster=(2, 1))(scale.py_func).compile(*SCALE, arch=arch).ptx
    assert "cluster" not in plain
    ptx = jit(cluster=(2, 1), require_cluster=True)(scale.py_func).compile(*SCALE, arch=arch).ptx
    assert re.search(r"\.reqnctapercluster 2, 1, 1", ptx)
    with pytest.raises(CompileError, match="needs cluster="):
        jit(require_cluster=True)(scale.py_func)


def test_impossible_register_cap_is_refused():
    with pytest.raises(CompileError, match=r"200 regs x 384 = 76800 > 65536.*max_registers=168"):
        jit(launch_bounds=384, max_registers=200)(scale.py_func).compile(*SCALE)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_tensor_map_is_one_aligned_parameter(arch):
    from nbtc.intrinsics import tma

    def kernel(n, descriptor, x, out):
        tma.prefetch(descriptor, (0, 0))
        out[0] = n * x

    compiled = jit(kernel).compile("int32", "TensorMap", "float32", "float32[::1]", arch=arch)
    parameters = re.findall(r"\.param ([^\n,]*kernel_param_\d+(?:\[128\])?)", compiled.ptx)
    assert parameters[1] == ".align 64 .b8 kernel_param_1[128]"
    # int32, map, float32, then meminfo, parent, count, item size, data, shape, stride
    assert len(parameters) == 3 + 7
    assert "cvta.param.u64" in compiled.ptx
    assert not re.search(r"\.local", compiled.ptx), "a local copy is out of reach of TMA"


def test_python_lines_in_the_ptx():
    first = scale.py_func.__code__.co_firstlineno
    assert re.search(rf"\.loc\s+1 {first + 4} ", scale.compile(*SCALE).ptx)
    assert __file__ in scale.compile(*SCALE).ptx
    bare = jit(lineinfo=False)(scale.py_func).compile(*SCALE).ptx
    assert ".loc" not in bare


def test_static_shared_memory_limit_depends_on_the_suffix():
    @jit
    def kernel(out):
        tile = cuda.shared.array(16384, np.float32)
        tile[cuda.threadIdx.x] = 1
        cuda.syncthreads()
        out[0] = tile[5]

    assert kernel.compile("float32[:]", arch="sm_90a").resources.static_smem_bytes == 65536
    message = r"static shared 65536 B > 49152 B for sm_90; use dynamic or sm_90a"
    with pytest.raises(CompileError, match=message):
        kernel.compile("float32[:]", arch="sm_90")


def test_static_and_dynamic_shared_memory_are_summed():
    class Layout:
        nbytes = 232448
        placed = staticmethod(tuple)

    @jit(shared=Layout)
    def kernel(out):
        tile = cuda.shared.array(4, np.float32)
        tile[cuda.threadIdx.x] = 1
        cuda.syncthreads()
        out[0] = tile[1]

    with pytest.raises(LayoutError, match=r"16 B static \+ 232448 B dynamic = 232464 B"):
        kernel.compile("float32[:]", arch="sm_90a")


def test_wgmma_names_the_right_target_before_ptxas():
    @jit(launch_bounds=128)
    def kernel(out):
        acc = wgmma.fence(registers.zeros(4))
        out[0] = acc[0]

    with pytest.raises(ArchError, match=r"test_compile.py:\d+: .*needs sm_90a.*arch='sm_90a'"):
        kernel.compile("float32[:]", arch="sm_90")
    with pytest.raises(ArchError, match="sm_90a"):
        kernel.compile("float32[:]", arch="sm_100a")


def test_old_ptxas_is_named_with_the_remedy(monkeypatch, tmp_path):
    old = tmp_path / "ptxas"
    old.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n")
    old.chmod(0o755)
    monkeypatch.setenv("NBTC_PTXAS", str(old))
    message = (
        r"NVVM 13\.\d+ writes PTX 9\.\d+, ptxas 13\.0 .*reads 9\.0: install "
        r"nvidia-cuda-nvcc>=13\.\d+ or pin nvidia-nvvm"
    )
    with pytest.raises(VersionError, match=message):
        scale.compile(*SCALE)


def test_missing_tool_names_the_wheel(monkeypatch):
    monkeypatch.setenv("NBTC_PTXAS", "/nowhere/ptxas")
    with pytest.raises(CompileError, match="pip install nvidia-cuda-nvcc"):
        scale.compile(*SCALE)


def test_external_functions_of_numbas_half_are_refused():
    @jit
    def kernel(out, x):
        out[0] = np.float16(x) * np.float16(2.0)

    with pytest.raises(CompileError, match=r"calls .*external functions.*read as float32"):
        kernel.compile("float32[:]", "float32")


def test_numba_errors_come_as_one_located_error():
    @device
    def helper(x):
        return x.missing

    @jit
    def kernel(out):
        out[0] = helper(out[1])

    line = kernel.py_func.__code__.co_firstlineno + 2
    with pytest.raises(CompileError) as caught:
        kernel.compile("float32[:]")
    text = str(caught.value)
    assert text.startswith(f"{__file__}:{line} -> {__file__}:{line - 4}: ")
    assert "Unknown attribute 'missing'" in text
    assert len(text.splitlines()) == 1
    assert caught.value.__cause__ is not None


def _undecorated(x):
    return x + 1


class _Config:
    stages = 4


_config = _Config()


def _calls_undecorated(out):
    out[0] = _undecorated(1)


def _reads_attribute(out):
    out[0] = _config.stages


def _makes_list(out):
    out[0] = [1, 2, 3][out.size]


def _returns(out):
    return out[0]


def _stores_text(out):
    out[0] = "text"


def _undefined(out):
    out[0] = missing_name  # noqa: F821


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_calls_undecorated, r"'_undecorated'.*needs the decorator @nbtc\.device"),
        (_reads_attribute, r"'_config'.*bind the attributes of an object to bare names"),
        (_makes_list, r"no lists.*use tuples"),
        (_returns, r"A kernel returns nothing"),
        (_stores_text, r"setitem\(array\(float32, 1d, A\), Literal\[int\]\(0\), Literal\[str\]"),
        (_undefined, r"NameError.*'missing_name'"),
    ],
)
def test_common_mistakes_are_named_with_line_and_remedy(function, message):
    with pytest.raises(CompileError, match=message) as caught:
        jit(function).compile("float32[:]")
    text = str(caught.value)
    first = function.__code__.co_firstlineno
    assert text.startswith((f"{__file__}:{first}: ", f"{__file__}:{first + 1}: "))
    assert "\n" not in text


def test_wrong_number_of_types_names_the_arguments():
    with pytest.raises(CompileError, match=r"takes 4 arguments \(out, source, factor, n\), 1 type"):
        scale.compile("float32[:]")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("int32", types.int32),
        ("float64", types.float64),
        ("bool", types.boolean),
        ("bfloat16", types.float32),
        ("float32[:]", types.Array(types.float32, 1, "A")),
        ("float32[:, ::1]", types.Array(types.float32, 2, "C")),
        ("float32[::1, :]", types.Array(types.float32, 2, "F")),
        ("e4m3[::1]", types.Array(narrow_floats.float8_e4m3fn, 1, "C")),
        ("TensorMap", TENSOR_MAP),
        (types.int64, types.int64),
        (types.float16[:], types.Array(narrow_floats.float16, 1, "A")),
        (np.int16, types.int16),
        (np.zeros((2, 3), np.uint8), types.Array(types.uint8, 2, "C")),
        (np.zeros((2, 3), np.float16), types.Array(narrow_floats.float16, 2, "C")),
        (
            np.zeros((2, 3), ml_dtypes.bfloat16).T,
            types.Array(narrow_floats.bfloat16, 2, "F"),
        ),
        (np.float32(3), types.float32),
        (True, types.boolean),
    ],
)
def test_argument_types(spec, expected):
    assert argument_type(spec) == expected


@pytest.mark.parametrize("spec", ["float32[3]", "float32[::1, ::1]", "float32[", "nothing", object])
def test_bad_argument_types(spec):
    with pytest.raises((CompileError, TypeError)):
        argument_type(spec)


@ptx("bogus.u32 {ret};", isa=(7, 8), arch="sm_90")
def bogus() -> U32:
    """Be no instruction.

    Executes: each thread.
    """


def test_what_ptxas_refuses_is_named_by_python_line():
    @jit
    def kernel(out):
        out[0] = bogus()

    line = kernel.py_func.__code__.co_firstlineno + 2
    with pytest.raises(CompileError, match=rf"test_compile.py:{line}: Not a name.*'bogus'"):
        kernel.compile("uint32[:]")


def test_compute_capability_reaches_numbas_own_overloads():
    @cuda.jit(device=True)
    def numbas(x):
        return x + 5

    @jit
    def kernel(out):
        out[0] = numbas(out[1]) + min(out[2], 3) + abs(out[3])

    for arch in ("sm_90a", "sm_100a"):
        assert "call" not in kernel.compile("int32[::1]", arch=arch).ptx.partition("{")[2]


def only_a_docstring(x):
    """Nothing else."""


def test_a_kernel_may_be_only_a_docstring():
    assert jit(only_a_docstring).compile("float32[::1]", arch="sm_90a").resources.spill_bytes == 0


def commits_as_a_pair(bar):
    tcgen05.commit(bar, cta_group=2)


def mixes_group_sizes(x):
    slot = cuda.shared.array(4, types.uint32)
    tcgen05.alloc(slot, 64, cta_group=1)
    commits_as_a_pair_helper(slot)
    tcgen05.dealloc(address.tmem(slot[0]), 64, cta_group=1)


commits_as_a_pair_helper = device(commits_as_a_pair)


def test_one_cta_group_per_kernel():
    with pytest.raises(InstructionError) as e:
        jit(mixes_group_sizes).compile("float32[::1]", arch="sm_100a")
    text = str(e.value)
    line = mixes_group_sizes.__code__.co_firstlineno + 3
    assert f":{line}" in text
    assert "tcgen05.commit has cta_group=2, but tcgen05.alloc at" in text


_AFTER_DEBUG = """
import re
from numba import cuda
from numba.cuda import types
from nbtc import TensorMap, jit
from nbtc.intrinsics import tensormap

def any_kernel(x):
    x[0] = 1

def two_maps(a, b):
    tensormap.prefetch(a)
    tensormap.prefetch(b)

cuda.compile_ptx(any_kernel, types.void(types.float32[:]), cc=(10, 0), debug=True, opt=False)
ptx = jit(two_maps).compile(TensorMap, TensorMap, arch="sm_100a").ptx
found = re.findall(r"cvta[.]param[.]u64\\s+(%\\w+), (%\\w+);", ptx)
assert len(found) == 2, found
assert not {a for a, _ in found} & {b for _, b in found}, found
"""


def test_an_address_is_converted_once_after_a_debug_compilation():
    """The debug option of libNVVM stays in force for the process."""
    environment = {**os.environ, "NBTC_CACHE_DIR": ""}
    done = subprocess.run(
        [sys.executable, "-c", _AFTER_DEBUG], capture_output=True, text=True, check=False,
        env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
