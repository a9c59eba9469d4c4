"""The disk cache: what shapes the code is in the key, and files survive concurrent use."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import os
import subprocess
import sys
import textwrap
import types
from pathlib import Path

import numpy as np
import pytest

from nbtc import cache, device, fingerprint, jit
from nbtc.arch import parse
from nbtc.compile import CompileOptions, key_of
from nbtc.device import epilogue
from nbtc.dtypes import Dtype
from nbtc.layout.matrix_descriptor import OperandTile
from nbtc.numba_compat import KernelBounds


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("NBTC_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _module(tmp_path, name, source):
    path = tmp_path / f"{name}.py"
    path.write_text(textwrap.dedent(source))
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _files(folder):
    return sorted(folder.rglob("*.nbtc"))


def _fresh(kernel):
    """Return a kernel object that has nothing in memory."""
    return jit(kernel.py_func)


def test_a_kernel_is_loaded_and_is_the_same(folder):
    @jit
    def kernel(out):
        out[0] = 3

    made = kernel.compile("float32[:]", arch="sm_90a")
    assert not made.from_cache
    assert kernel.compile("float32[:]", arch="sm_90a") is made
    found = _fresh(kernel).compile("float32[:]", arch="sm_90a")
    assert found.from_cache
    assert dataclasses.replace(found, from_cache=False) == made
    assert len(_files(folder)) == 1


def test_target_types_and_options_are_in_the_key(folder):
    @jit
    def kernel(out):
        out[0] = 3

    kernel.compile("float32[:]", arch="sm_90a")
    kernel.compile("float32[:]", arch="sm_90")
    kernel.compile("float32[::1]", arch="sm_90a")
    kernel.compile("float16[:]", arch="sm_90a")
    jit(fastmath=True)(kernel.py_func).compile("float32[:]", arch="sm_90a")
    jit(launch_bounds=64)(kernel.py_func).compile("float32[:]", arch="sm_90a")
    assert len(_files(folder)) == 6


def test_closure_integer():
    def make(n):
        @jit
        def kernel(out):
            out[0] = n

        return kernel

    three, four = (make(n).compile("int32[::1]", arch="sm_90a") for n in (3, 4))
    assert not four.from_cache
    assert ", 3;" in three.ptx
    assert ", 4;" in four.ptx
    assert make(3).compile("int32[::1]", arch="sm_90a").from_cache


def test_global_is_seen_by_the_same_kernel_object(tmp_path):
    source = """
        from nbtc import jit
        SIZE = 5

        @jit
        def kernel(out):
            out[0] = SIZE
    """
    module = _module(tmp_path, "nbtc_test_globals", source)
    five = module.kernel.compile("int32[::1]", arch="sm_90a")
    module.SIZE = 6
    six = module.kernel.compile("int32[::1]", arch="sm_90a")
    assert not six.from_cache
    assert ", 5;" in five.ptx
    assert ", 6;" in six.ptx


HELPERS = """
    from nbtc import device
    FACTOR = 2

    @device
    def inner(x):
        return x * FACTOR

    @device
    def outer(x):
        return inner(x) + 1
"""


def test_helper_in_another_module(tmp_path):
    helpers = _module(tmp_path, "nbtc_test_helpers", HELPERS)
    user = _module(
        tmp_path,
        "nbtc_test_user",
        """
        import nbtc_test_helpers
        from nbtc import jit

        @jit
        def kernel(out):
            out[0] = nbtc_test_helpers.outer(out[1])
        """,
    )
    first = user.kernel.compile("int32[::1]", arch="sm_90a")
    assert user.kernel.compile("int32[::1]", arch="sm_90a") is first

    # a global of the helper's helper
    helpers.FACTOR = 12
    second = user.kernel.compile("int32[::1]", arch="sm_90a")
    assert not second.from_cache
    assert second.ptx != first.ptx
    assert "12" in second.ptx.partition("{")[2]

    # the body of the helper's helper, as after editing and reloading the file
    changed = _module(tmp_path, "nbtc_test_helpers", HELPERS.replace("x * FACTOR", "x - FACTOR"))
    user.nbtc_test_helpers = changed
    third = user.kernel.compile("int32[::1]", arch="sm_90a")
    assert not third.from_cache
    assert "mul" not in third.ptx
    assert "shl" not in third.ptx


def test_declarations_text(tmp_path):
    source = '''
        from nbtc import jit
        from nbtc.ptx.kinds import U32
        from nbtc.ptx.spec import ptx

        @ptx("mov.u32 {{ret}}, {register};", isa=(7, 8), arch="sm_90")
        def special() -> U32:
            """Read a register.

            Executes: each thread.
            """

        @jit
        def kernel(out):
            out[0] = special()
    '''
    first = _module(tmp_path, "nbtc_test_ptx_a", source.format(register="%laneid"))
    made = first.kernel.compile("int32[::1]", arch="sm_90a")
    assert "%laneid" in made.ptx
    other = _module(tmp_path, "nbtc_test_ptx_b", source.format(register="%warpid"))
    # only the declaration differs
    first.special = other.special
    again = first.kernel.compile("int32[::1]", arch="sm_90a")
    assert not again.from_cache
    assert "%warpid" in again.ptx


def test_line_table_is_in_the_key(tmp_path):
    source = "from nbtc import jit\n\n@jit\ndef kernel(out):\n    out[0] = 1\n"
    first = _module(tmp_path, "nbtc_test_lines", source)
    first.kernel.compile("int32[::1]", arch="sm_90a")
    moved = _module(tmp_path, "nbtc_test_lines", "\n\n" + source)
    made = moved.kernel.compile("int32[::1]", arch="sm_90a")
    assert not made.from_cache, "findings would show the old lines"


def test_methods_that_staged_functions_use_are_in_the_key(tmp_path):
    """Classes of nbtc are known by name, so the text of their modules counts."""
    package = Path(cache.__file__).parent
    copy = tmp_path / "nbtc"
    for source in package.rglob("*.py"):
        target = copy / source.relative_to(package)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
    before = cache._own_code(copy)
    assert before == cache._own_code()
    for cls in (epilogue._Shape, OperandTile, Dtype):
        edited = copy / Path(inspect.getfile(cls)).relative_to(package)
        edited.write_text(edited.read_text() + "\n")
        after = cache._own_code(copy)
        assert after != before, cls
        before = after


def test_damaged_files_are_misses(folder):
    @jit
    def kernel(out):
        out[0] = 3

    made = kernel.compile("float32[:]", arch="sm_90a")
    (path,) = _files(folder)
    data = path.read_bytes()
    for bad in (b"", data[: len(data) // 2], data[:-1] + bytes([data[-1] ^ 1]), b"x" * 200):
        path.write_bytes(bad)
        again = _fresh(kernel).compile("float32[:]", arch="sm_90a")
        assert not again.from_cache
        assert again.ptx.split("{")[1] == made.ptx.split("{")[1]
    assert _fresh(kernel).compile("float32[:]", arch="sm_90a").from_cache


def test_unusable_folder_is_no_error(monkeypatch, tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    monkeypatch.setenv("NBTC_CACHE_DIR", str(blocker / "below"))

    @jit
    def kernel(out):
        out[0] = 3

    assert kernel.compile("float32[:]", arch="sm_90a").cubin


def test_concurrent_writers(tmp_path, folder):
    script = tmp_path / "script.py"
    script.write_text(
        "from nbtc import jit\n@jit\ndef kernel(out):\n    out[0] = 7\n"
        "assert kernel.compile('int32[::1]', arch='sm_90a').cubin\n"
    )
    running = [
        subprocess.Popen([sys.executable, str(script)], env={**os.environ, "PYTHONPATH": "."})
        for _ in range(3)
    ]
    assert [process.wait() for process in running] == [0, 0, 0]
    (path,) = _files(folder)
    assert cache.load(path.stem) is not None
    assert not list(folder.rglob(".writing-*"))


# -- fingerprints ----------------------------------------------------------------------------------


def _hash(function):
    hasher = fingerprint.Hasher()
    return hasher.function(function), hasher.stable


def _with_closure(value):
    def function(x):
        return (x, value)

    return function


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 2),
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ("a", "b"),
        (None, 0),
        ((1, 2), (2, 1)),
        ((1, (2,)), (1, (3,))),
        ({"a": 1}, {"a": 2}),
        (np.arange(3), np.arange(4)),
        (np.arange(4, dtype=np.int32), np.arange(4, dtype=np.int64)),
        (np.float32(1), np.float64(1)),
        (np.dtype("f4"), np.dtype("f8")),
        (KernelBounds(1), KernelBounds(2)),
        (lambda x: x + 1, lambda x: x + 2),
        (device(lambda x: x + 1), device(lambda x: x + 2)),
        (types.ModuleType("a"), types.ModuleType("b")),
    ],
)
def test_closure_values_differ(one, other):
    assert _hash(_with_closure(one)) != _hash(_with_closure(other))
    assert _hash(_with_closure(one)) == _hash(_with_closure(one))
    assert _hash(_with_closure(one))[1]


def test_unknown_objects_do_not_outlive_the_process(folder):
    class Opaque:
        pass

    function = _with_closure(Opaque())
    assert not _hash(function)[1]
    assert _hash(function) == _hash(function)


def test_recursive_and_shared_references_end():
    def one(x):
        return other(x)

    def other(x):
        return one(x)

    assert _hash(one)[1]


def test_defaults_count():
    def make(one, other):
        def function(x, y=one, *, mode=other):
            return x

        return function

    keys = {
        key_of(fingerprint.Hasher(), make(*defaults), (), parse("sm_90a"), CompileOptions())[0]
        for defaults in ((1, "a"), (2, "a"), (1, "b"), (1, "a"))
    }
    assert len(keys) == 3
