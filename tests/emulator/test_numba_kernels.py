"""Kernels compiled by Numba for both PTX dialects, against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("numba.cuda")
from numba import cuda, float32, int32
from numba_helper import run

DIALECTS = [(9, 0), (10, 0)]


@pytest.fixture(params=DIALECTS, ids=["sm_90", "sm_100"])
def cc(request):
    """Compute capability: LLVM 7 dialect and modern dialect."""
    return request.param


def test_axpy_with_a_partial_last_warp(cc):
    def kernel(x, y, a):
        i = cuda.grid(1)
        if i < x.size:
            y[i] += a * x[i]

    x = np.arange(100, dtype=np.float32)
    y = np.ones_like(x)
    report = run(kernel, 4, 40, x, y, np.float32(3), cc=cc)
    assert report.ok, str(report)
    np.testing.assert_array_equal(y, 1 + 3 * x)


def test_divergent_loops(cc):
    def kernel(n, out):
        i = cuda.grid(1)
        steps = 0
        value = n[i]
        while value != 1:
            if value % 2 == 0:
                value = value // 2
            else:
                value = 3 * value + 1
            steps += 1
            if steps > 1000:
                break
        out[i] = steps

    n = np.arange(1, 65, dtype=np.int64)
    out = np.zeros(64, np.int64)
    assert run(kernel, 1, 64, n, out, cc=cc).ok

    def collatz(v):
        steps = 0
        while v != 1:
            v = v // 2 if v % 2 == 0 else 3 * v + 1
            steps += 1
        return steps

    np.testing.assert_array_equal(out, [collatz(int(v)) for v in n])


def test_early_return_before_a_barrier(cc):
    def kernel(out):
        shared = cuda.shared.array(64, int32)
        i = cuda.threadIdx.x
        if i >= 40:
            return
        shared[i] = i
        cuda.syncthreads()
        out[i] = shared[39 - i]

    out = np.zeros(64, np.int32)
    report = run(kernel, 1, 64, out, cc=cc)
    np.testing.assert_array_equal(out[:40], np.arange(39, -1, -1))
    assert not any(f.kind == "deadlock" for f in report.findings), report


def test_block_reduction_in_shared_memory(cc):
    def kernel(x, out):
        shared = cuda.shared.array(128, float32)
        i = cuda.threadIdx.x
        shared[i] = x[cuda.grid(1)]
        cuda.syncthreads()
        width = 64
        while width > 0:
            if i < width:
                shared[i] += shared[i + width]
            cuda.syncthreads()
            width //= 2
        if i == 0:
            out[cuda.blockIdx.x] = shared[0]

    x = np.arange(512, dtype=np.float32)
    out = np.zeros(4, np.float32)
    report = run(kernel, 4, 128, x, out, cc=cc)
    assert report.ok, str(report)
    np.testing.assert_array_equal(out, x.reshape(4, 128).sum(axis=1))


def test_missing_barrier_is_a_race(cc):
    def kernel(out):
        shared = cuda.shared.array(128, int32)
        i = cuda.threadIdx.x
        shared[i] = i
        out[i] = shared[127 - i]

    out = np.zeros(128, np.int32)
    report = run(kernel, 1, 128, out, cc=cc, options={"lineinfo": True})
    assert not report.ok
    assert {f.kind for f in report.findings} <= {"race", "uninitialised_read"}
    assert any(f.line for f in report.findings)


def test_dynamic_shared_memory(cc):
    def kernel(out):
        shared = cuda.shared.array(0, int32)
        i = cuda.threadIdx.x
        shared[i] = i * i
        cuda.syncthreads()
        out[i] = shared[(i + 1) % 64]

    out = np.zeros(64, np.int32)
    for base in (None, 4096):
        report = run(kernel, 1, 64, out, cc=cc, dynamic_smem=256, dynamic_smem_base=base)
        assert report.ok, str(report)
        np.testing.assert_array_equal(out, ((np.arange(64) + 1) % 64) ** 2)


def test_shuffle_reduction_and_votes(cc):
    def kernel(x, out):
        i = cuda.threadIdx.x
        value = x[i]
        for k in range(5):
            value += cuda.shfl_down_sync(0xFFFFFFFF, value, 16 >> k)
        if i == 0:
            out[0] = value
        out[1 + i] = cuda.shfl_xor_sync(0xFFFFFFFF, x[i], 3)

    x = np.random.default_rng(0).standard_normal(32)
    out = np.zeros(33)
    report = run(kernel, 1, 32, x, out, cc=cc)
    assert report.ok, str(report)
    np.testing.assert_allclose(out[0], x.sum(), rtol=1e-12)
    np.testing.assert_array_equal(out[1:], x[np.arange(32) ^ 3])


def test_atomics(cc):
    def kernel(x, counts, sums, low, swapped):
        i = cuda.grid(1)
        cuda.atomic.add(counts, x[i] % 8, 1)
        cuda.atomic.add(sums, 0, float32(x[i]))
        cuda.atomic.min(low, 0, x[i])
        cuda.atomic.max(low, 1, x[i])
        cuda.atomic.cas(swapped, 0, -1, x[i])

    x = np.random.default_rng(1).integers(0, 1000, 256).astype(np.int32)
    counts, sums = np.zeros(8, np.int32), np.zeros(1, np.float32)
    low, swapped = np.array([10**6, -1], np.int32), np.array([-1], np.int32)
    report = run(kernel, 2, 128, x, counts, sums, low, swapped, cc=cc)
    assert report.ok, str(report)
    np.testing.assert_array_equal(counts, np.bincount(x % 8, minlength=8))
    assert sums[0] == x.sum()
    assert tuple(low) == (x.min(), x.max())
    assert swapped[0] in x


def test_float_atomic_max_is_a_cas_loop(cc):
    def kernel(x, out):
        cuda.atomic.max(out, 0, x[cuda.grid(1)])

    x = np.random.default_rng(2).standard_normal(64).astype(np.float32)
    out = np.full(1, -np.inf, np.float32)
    report = run(kernel, 1, 64, x, out, cc=cc)
    assert report.ok, str(report)
    assert out[0] == x.max()


def test_spin_lock_between_warps(cc):
    def kernel(lock, total):
        if cuda.threadIdx.x % 32 == 0:
            while cuda.atomic.cas(lock, 0, 0, 1) != 0:
                pass
            cuda.threadfence()
            total[0] += 1
            cuda.threadfence()
            cuda.atomic.exch(lock, 0, 0)

    lock, total = np.zeros(1, np.int32), np.zeros(1, np.int32)
    for seed in range(3):
        total[0] = 0
        report = run(kernel, 2, 128, lock, total, cc=cc, seed=seed)
        assert total[0] == 8, report


@pytest.mark.parametrize(
    "name",
    ["sin", "cos", "tan", "exp", "log", "pow", "atan2", "erf", "fmod", "lgamma", "cbrt", "hypot"],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_math(cc, name, dtype):
    function = getattr(math, name) if hasattr(math, name) else None
    if function is None:
        pytest.skip("not in this Python")
    binary = name in ("pow", "atan2", "fmod", "hypot")
    if binary:

        def kernel(x, y, out):
            i = cuda.grid(1)
            out[i] = function(x[i], y[i])
    elif name == "cbrt":
        pytest.skip("Numba has no math.cbrt")
    else:

        def kernel(x, y, out):
            i = cuda.grid(1)
            out[i] = function(x[i])

    x = np.linspace(0.1, 9, 64).astype(dtype)
    if name in ("sin", "cos", "tan"):
        x[:4] = [1e6, 123456.5, 3e9, 1e-9]
    y = np.linspace(0.5, 3, 64).astype(dtype)
    out = np.zeros_like(x)
    report = run(kernel, 1, 64, x, y, out, cc=cc)
    assert report.ok, str(report)
    want = np.array(
        [
            function(*((float(a), float(b)) if binary else (float(a),)))
            for a, b in zip(x, y, strict=True)
        ]
    )
    tolerance = 3e-6 if dtype == np.float32 else 3e-14
    np.testing.assert_allclose(out, want, rtol=tolerance, atol=tolerance * 1e-2)


def test_integer_division_and_shifts(cc):
    def kernel(a, b, out):
        i = cuda.grid(1)
        x, y = a[i], b[i]
        out[0, i] = x // y
        out[1, i] = x % y
        out[2, i] = x >> (y & 31)
        out[3, i] = x << (y & 31)
        out[4, i] = cuda.popc(x) + cuda.clz(x) + cuda.ffs(x)
        out[5, i] = cuda.brev(x)

    rng = np.random.default_rng(3)
    a = rng.integers(-(2**62), 2**62, 64)
    b = rng.integers(-1000, 1000, 64)
    b[b == 0] = 7
    out = np.zeros((6, 64), np.int64)
    report = run(kernel, 1, 64, a, b, out, cc=cc)
    assert report.ok, str(report)
    np.testing.assert_array_equal(out[0], a // b)
    np.testing.assert_array_equal(out[1], a % b)
    np.testing.assert_array_equal(out[2], a >> (b & 31))
    np.testing.assert_array_equal(out[3], a << (b & 31))
    bits = [int(v) & (2**64 - 1) for v in a]
    want = [v.bit_count() + (64 - v.bit_length()) + ((v & -v).bit_length()) for v in bits]
    np.testing.assert_array_equal(out[4], want)
    reversed_bits = [int(f"{v & 0xFFFFFFFF:032b}"[::-1], 2) for v in bits]  # Numba uses brev.b32
    np.testing.assert_array_equal(out[5], reversed_bits)


def test_device_function_recursion_and_local_arrays(cc):
    @cuda.jit(device=True)
    def fibonacci(n):
        if n < 2:
            return n
        return fibonacci(n - 1) + fibonacci(n - 2)

    def kernel(out):
        i = cuda.threadIdx.x
        scratch = cuda.local.array(8, int32)
        for k in range(8):
            scratch[(k + i) % 8] = k
        out[0, i] = scratch[i % 8]
        out[1, i] = fibonacci(i % 9)

    out = np.zeros((2, 32), np.int64)
    report = run(kernel, 1, 32, out, cc=cc)
    assert report.ok, str(report)
    lanes = np.arange(32)
    scratch = np.zeros((32, 8), int)
    for k in range(8):
        scratch[lanes, (k + lanes) % 8] = k
    np.testing.assert_array_equal(out[0], scratch[lanes, lanes % 8])
    fib = [0, 1, 1, 2, 3, 5, 8, 13, 21]
    np.testing.assert_array_equal(out[1], [fib[i % 9] for i in range(32)])


def test_print(cc, capsys):
    def kernel(x):
        i = cuda.threadIdx.x
        if i < 2:
            print("lane", i, x[i], True)

    x = np.array([1.5, -2.25])
    assert run(kernel, 1, 32, x, cc=cc).ok
    assert capsys.readouterr().out.splitlines() == ["lane 0 1.500000 True", "lane 1 -2.250000 True"]


def test_out_of_bounds_store_names_the_line(cc):
    def kernel(x):
        i = cuda.grid(1)
        x[i] = i

    x = np.zeros(20, np.int32)
    report = run(kernel, 1, 32, x, cc=cc, options={"lineinfo": True})
    assert [f.kind for f in report.findings] == ["out_of_bounds"]
    finding = report.findings[0]
    assert finding.file.endswith("test_numba_kernels.py")
    assert finding.line == kernel.__code__.co_firstlineno + 2
    assert "byte offset 80" in finding.message


def test_debug_build_runs(cc):
    def kernel(x, out):
        i = cuda.grid(1)
        total = 0.0
        for k in range(4):
            total += x[(i + k) % 32]
        out[i] = total

    x = np.arange(32, dtype=np.float64)
    out = np.zeros(32)
    report = run(kernel, 1, 32, x, out, cc=cc, options={"debug": True, "opt": False})
    assert report.ok, str(report)
    want = sum(x[(np.arange(32) + k) % 32] for k in range(4))
    np.testing.assert_array_equal(out, want)


def test_two_dimensional_grid_and_complex(cc):
    def kernel(a, b, out):
        i, j = cuda.grid(2)
        if i < out.shape[0] and j < out.shape[1]:
            total = 0j
            for k in range(a.shape[1]):
                total += a[i, k] * b[k, j]
            out[i, j] = total

    rng = np.random.default_rng(4)
    a = rng.standard_normal((10, 7)) + 1j * rng.standard_normal((10, 7))
    b = rng.standard_normal((7, 9)) + 1j * rng.standard_normal((7, 9))
    out = np.zeros((10, 9), complex)
    report = run(kernel, (2, 2), (8, 8), a, b, out, cc=cc)
    assert report.ok, str(report)
    np.testing.assert_allclose(out, a @ b, rtol=1e-12)


def test_constant_arrays(cc):
    table = np.array([3, 1, 4, 1, 5, 9, 2, 6], np.int32)

    def kernel(out):
        constants = cuda.const.array_like(table)
        i = cuda.threadIdx.x
        out[i] = constants[i % 8]

    out = np.zeros(32, np.int32)
    assert run(kernel, 1, 32, out, cc=cc).ok
    np.testing.assert_array_equal(out, table[np.arange(32) % 8])


def test_match_and_ballot_and_activemask(cc):
    def kernel(x, out):
        i = cuda.threadIdx.x
        out[0, i] = cuda.ballot_sync(0xFFFFFFFF, x[i] > 3)
        out[1, i] = cuda.match_any_sync(0xFFFFFFFF, x[i])
        out[2, i] = cuda.activemask()
        out[3, i] = cuda.lanemask_lt()
        if i < 8:
            out[4, i] = cuda.ballot_sync(0xFF, x[i] > 3)

    x = (np.arange(32) % 7).astype(np.int32)
    out = np.zeros((5, 32), np.int64)
    report = run(kernel, 1, 32, x, out, cc=cc)
    assert report.ok, str(report)
    bits = 1 << np.arange(32)
    assert (out[0] & 0xFFFFFFFF == bits[x > 3].sum()).all()
    np.testing.assert_array_equal(out[1] & 0xFFFFFFFF, [bits[x == v].sum() for v in x])
    assert (out[2] & 0xFFFFFFFF == 0xFFFFFFFF).all()
    np.testing.assert_array_equal(out[3], bits - 1)
    assert (out[4, :8] & 0xFFFFFFFF == bits[:8][x[:8] > 3].sum()).all()
