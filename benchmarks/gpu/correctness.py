"""Correctness sweep of ``nbtc.matmul`` on random normal inputs against a float64 product.

The output is a window of a larger array full of NaN: an element that is not written stays NaN, and
one that is written outside of the window no longer is.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import nbtc
from nbtc.errors import DriverError, NbtcError
from nbtc.gemm import HopperConfig, choose

from .common import Context, precompile

RAGGED = (
    1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 128, 129, 200, 255, 256, 257,
    511, 513, 777, 1000, 1023, 1025, 2047, 2049, 3000, 4095, 4096,
)  # fmt: skip
CONFIGS = (
    {"stages": 1},
    {"stages": 2},
    {"tile": (128, 128, 64), "stages": 6, "cluster": (1, 1)},
    {"tile": (64, 256, 64), "consumers": 1, "cluster": (1, 2)},
    {"tile": (192, 128, 64), "consumers": 3, "stages": 4},
    {"tile": (256, 128, 64)},
    {"tile": (128, 128, 64), "cluster": (2, 2)},
    {"tile": (128, 128, 64), "cluster": (4, 1)},
    {"tile": (128, 160, 128), "stages": 2, "cluster": (1, 1)},
    {"tile": (128, 64, 32), "cluster": (1, 1), "stages": 3},
    {"schedule": "hilbert", "cluster": (2, 1)},
    {"schedule": "linear", "store_buffers": 1},
    {"narrow": 240},
    {"narrow": 224, "cluster": (1, 1)},
    {"tile": (256, 128, 64), "narrow": 112},
    {"tile": (64, 64, 64), "consumers": 1, "cluster": (1, 1), "split_k": 4},
    {"tile": (128, 128, 64), "cluster": (1, 1), "stages": 3, "split_k": 2},
    {"tile": (64, 32, 32), "consumers": 1, "cluster": (1, 1), "stages": 1, "split_k": 8},
)
# Half a unit in the last place, and a tenth; float32 sums are not rounded again.
ROUNDING = {"bfloat16": 1.1 * 2.0**-8, "float16": 1.1 * 2.0**-11, "float32": 2.0**-20}
PADDING = 8


@dataclass(frozen=True)
class Case:
    """One product."""

    m: int
    n: int
    k: int
    dtype: str
    out_dtype: str
    a_major: str = "K"
    b_major: str = "K"
    config: HopperConfig | None = None

    def __str__(self) -> str:
        text = f"{self.m}x{self.n}x{self.k} {self.dtype}->{self.out_dtype}"
        text += f" A {self.a_major}-major B {self.b_major}-major"
        return text + (f" {self.config}" if self.config else "")


def cases(context: Context) -> Iterator[Case]:
    """Yield all products of the sweep, the cheap and telling ones first."""
    chance = random.Random(1)
    kinds = context.library.dtypes
    majors = [(a, b) for a in ("K", "MN") for b in ("K", "MN")]
    shapes = ((200, 264, 136), (1, 1, 1), (513, 777, 1023))
    if context.smoke:
        kinds, majors, shapes = kinds[:1], majors[:3:2], ((65, 40, 24),)
    for shape in shapes:
        for kind in kinds:
            for out in (kind, "float32", *(k for k in ("bfloat16", "float16") if k != kind)):
                for a, b in majors:
                    yield Case(*shape, kind, out, a, b)
    for parameters in CONFIGS[: 1 if context.smoke else None]:
        for a, b in majors:
            for shape in ((300, 520, 200), (1024, 1536, 512))[: 1 if context.smoke else None]:
                try:
                    config = HopperConfig(dtype=kinds[0], a_major=a, b_major=b, **parameters)
                except NbtcError:
                    continue  # this tile has no such majorness
                yield Case(*shape, kinds[0], kinds[0], a, b, config)
    for _ in range(1 if context.smoke else 60):
        m, n, k = (chance.choice(RAGGED[: 12 if context.smoke else None]) for _ in range(3))
        yield Case(m, n, k, kinds[0], kinds[0])
    for _ in range(1 if context.smoke else 200):
        m, n, k = (int(2 ** chance.uniform(0, 6 if context.smoke else 12)) for _ in range(3))
        kind = chance.choice(kinds)
        yield Case(m, n, k, kind, chance.choice((kind, "float32")), *chance.choice(majors))


def config_of(case: Case, sms: int) -> HopperConfig:
    """Return the configuration that the product will use."""
    if case.config is not None:
        return case.config
    return choose(
        case.m, case.n, case.k, case.dtype, case.out_dtype, case.a_major, case.b_major, sms
    )


def _matrix(library: Any, rows: int, columns: int, dtype: str, transposed: bool) -> Any:
    """Return a rows x columns matrix whose pitch is a multiple of 16 bytes."""
    if transposed:
        return _matrix(library, columns, rows, dtype, False).T
    pitch = -(-columns // 8) * 8
    return library.normal((rows, pitch), dtype)[:, :columns]


def run_case(library: Any, case: Case) -> float:
    """Return the worst error of a product, in units of what is allowed; raise if it is not written.

    Raises:
        AssertionError: an element inside is missing, or one outside was written.
    """
    a = _matrix(library, case.m, case.k, case.dtype, case.a_major == "MN")
    b = _matrix(library, case.k, case.n, case.dtype, case.b_major == "K")
    pitch = -(-case.n // 8) * 8 + PADDING
    whole = library.poison((case.m + 2, pitch), case.out_dtype)
    out = whole[1 : case.m + 1, : case.n]
    nbtc.matmul(a, b, out, config=case.config)
    everything = library.double(whole)
    got = everything[1 : case.m + 1, : case.n]
    want = library.double(a) @ library.double(b)
    written = everything == everything  # noqa: PLR0124 - false for NaN in any library
    inside, total = int(written[1 : case.m + 1, : case.n].sum()), int(written.sum())
    if inside != case.m * case.n:
        raise AssertionError(f"{case.m * case.n - inside} elements are NaN or not written")
    if total != inside:
        raise AssertionError(f"{total - inside} elements outside of the output were written")
    # The tensor core adds 16 products at a time and truncates: an error that grows with K.
    slack = math.sqrt(case.k) * (1e-6 + 1.5e-8 * case.k)
    return float((abs(got - want) / (abs(want) * ROUNDING[case.out_dtype] + slack)).max())


def run(context: Context) -> dict[str, Any]:
    """Run the sweep."""
    library = context.library
    every = list(cases(context))
    compiled = precompile((config_of(c, context.sms) for c in every), min(120.0, context.left / 2))
    failures: list[str] = []
    worst, worst_case, done = 0.0, "", 0
    for case in every:
        if context.left < 3:
            break
        try:
            error = run_case(library, case)
            if error > worst:
                worst, worst_case = error, str(case)
            if error > 1:
                failures.append(f"{case}: error {error:.3g} times what is allowed")
        except DriverError as lost:
            failures.append(f"{case}: {lost}")
            break  # the context is gone
        except Exception as wrong:  # one product must not stop the others
            failures.append(f"{case}: {type(wrong).__name__}: {wrong}")
        done += 1
    for line in failures[:20]:
        print("WRONG", line)
    return {
        "status": "ok" if not failures and done == len(every) else "failed",
        "cases": len(every),
        "run": done,
        "configurations": compiled,
        "failures": failures[:50],
        "worst_error_of_allowed": round(worst, 4),
        "worst_case": worst_case,
        "summary": f"{done}/{len(every)} products, {len(failures)} wrong, worst error "
        f"{worst:.2f} of what is allowed",
    }
