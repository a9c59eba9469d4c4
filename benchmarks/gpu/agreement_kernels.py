"""Agreement of whole kernels: the examples, and random shapes through ``nbtc.matmul``."""

from __future__ import annotations

import importlib.util
import math
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from .agreement_case import ROOT, KernelCase, Tolerance

SHAPES = 100
SMS = 132
"""Multiprocessors that configurations are chosen for, the same on both sides."""
_ULPS = {"bfloat16": 2.0**-7, "float16": 2.0**-10}
"""One rounding unit, relative: two sums that differ in the last bit may round apart."""


def example(path: str) -> list[tuple[np.ndarray, Tolerance | None]]:
    """Run an example with its own sizes and return what it checks.

    Where the example itself demands equality, so do we.
    """
    from nbtc import testing

    spec = importlib.util.spec_from_file_location("example", ROOT / "examples" / path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    seen: list[tuple[np.ndarray, Tolerance | None]] = []
    real = testing.assert_close

    def record(got: Any, want: Any, *, tol: float | None = None, what: str = "result") -> float:
        have = np.array(testing.to_numpy(got))
        limit = testing.tolerance(have.dtype) if tol is None else tol
        scale = float(np.abs(np.asarray(want, np.float64)).max())
        seen.append((have, Tolerance(have.dtype.name, 2 * limit * scale) if limit else None))
        return real(got, want, tol=tol, what=what)

    testing.assert_close = record
    try:
        loaded.check()
    finally:
        testing.assert_close = real
    return seen


def product(
    m: int, n: int, k: int, dtype: str, out_dtype: str, a_major: str, b_major: str
) -> list[tuple[np.ndarray, Tolerance | None]]:
    """Return one product of ``nbtc.matmul``, and what rounding explains."""
    import nbtc
    from nbtc import testing
    from nbtc.dtypes import canonical
    from nbtc.gemm import choose

    def operand(rows: int, columns: int, transposed: bool, seed: int) -> Any:
        if transposed:
            return operand(columns, rows, False, seed).T
        pitch = -(-columns // 8) * 8
        values = testing.random_normal((rows, pitch), dtype, seed=seed)
        return testing.on_device(values)[:, :columns]

    seed = m * 7 + n * 3 + k
    a = operand(m, k, a_major == "MN", seed)
    b = operand(k, n, b_major == "K", seed + 1)
    pitch = -(-n // 8) * 8 + 8
    whole = testing.on_device(np.full((m + 2, pitch), np.nan, canonical(out_dtype).numpy))
    config = choose(m, n, k, dtype, out_dtype, a_major, b_major, SMS)
    nbtc.matmul(a, b, whole[1 : m + 1, :n], config=config)
    # Of each side, as in the section "correctness": sums of normal numbers, added 16 at a time.
    slack = 2 * math.sqrt(k) * (1e-6 + 1.5e-8 * k)
    tolerance = Tolerance(out_dtype, slack, _ULPS.get(out_dtype, 0.0))
    return [(np.array(testing.to_numpy(whole)), tolerance)]


def shapes(count: int) -> Iterator[tuple[Any, ...]]:
    """Yield random products of at most 300 in each dimension, in all types and majornesses."""
    chance = random.Random(7)
    ragged = (1, 3, 8, 17, 31, 64, 65, 100, 127, 128, 129, 200, 255, 256, 257, 300)
    majors = [(a, b) for a in ("K", "MN") for b in ("K", "MN")]
    for i in range(count):
        pick = (lambda: chance.choice(ragged)) if i % 2 else (lambda: chance.randint(1, 300))
        dtype = ("bfloat16", "float16")[i % 2]
        out = (dtype, "float32", "float16" if dtype == "bfloat16" else "bfloat16")[i // 2 % 3]
        yield (pick(), pick(), pick(), dtype, out, *majors[i // 6 % 4])


def configurations() -> list[Any]:
    """Return the configurations of all products."""
    from nbtc.gemm import choose

    return [choose(*arguments, SMS) for arguments in shapes(SHAPES)]


def cases(smoke: bool) -> Iterator[KernelCase]:
    """Yield the examples, then the products."""
    # Those whose `compiled` says Hopper; the others do not run on it.
    every = sorted((ROOT / "examples").glob("[0-9]*.py"))
    paths = [path.name for path in every if 'arch: str = "sm_90a"' in path.read_text()]
    for path in paths[:2] if smoke else paths:
        yield KernelCase("examples", path, example, (path,))
    for arguments in shapes(2 if smoke else SHAPES):
        yield KernelCase("products", "x".join(map(str, arguments)), product, arguments)
