"""More cases of triton_emulator.py: attention, tensor maps made on the device, stream-K, clusters.

Pointers and sizes are given as multiples of 16 here, so that Triton vectorises and copies by
``cp.async``, as it does for real tensors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from triton_emulator import TYPES, Case, _close, _matrices, _type, _with


def _attention(n: int, d: int, seed: int):
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal((2, n, d)).astype(np.float16) for _ in range(3))
    out = np.zeros((2, n, d), np.float32)
    q64, k64, v64 = (x.astype(np.float64) for x in (q, k, v))
    scores = np.where(np.tri(n, dtype=bool), q64 @ k64.swapaxes(1, 2) / d**0.5, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    want = p @ v64 / p.sum(-1, keepdims=True)
    scale = 1 / (d**0.5 * np.log(2))
    return (q, k, v, out, n, scale), lambda: _close(out, want, 2e-3)


def _copy(kind: str, shape: tuple[int, ...], seed: int):
    x = np.random.default_rng(seed).integers(-20, 20, shape).astype(TYPES[kind])
    y = np.zeros_like(x)
    want = x + np.ones((), x.dtype)
    return (x, y, *shape), lambda: np.testing.assert_array_equal(y, want)


def _gather(m: int, n: int, rows: int, seed: int):
    rng = np.random.default_rng(seed)
    x = rng.integers(-20, 20, (m, n)).astype(np.float16)
    index = rng.permutation(m)[:rows].astype(np.int32)
    y, want = np.zeros_like(x), np.zeros_like(x)
    want[index ^ 1] = x[index] + np.float16(1)
    return (x, y, index, m, n), lambda: np.testing.assert_array_equal(y, want)


def more() -> list[Case]:
    """Return the cases, for both targets."""
    cases: list[Case] = []

    def add(name: str, function: str, cc: int, *rest: Any, **options: Any) -> None:
        cases.append(Case(name, function, cc, *rest, options, aligned=True))

    sizes = {"M": "i32", "N": "i32", "K": "i32"}
    for cc in (90, 100):
        for d, bm, bn, warps in ((64, 64, 64, 4), (64, 128, 32, 8), (16, 16, 32, 4)):
            add(f"attention {bm}x{bn}x{d}", "attention", cc,
                {**dict.fromkeys("qkv", "*fp16"), "o": "*fp32", "n": "i32", "scale": "fp32"},
                {"D": d, "BM": bm, "BN": bn}, (2, 2),
                lambda seed, n=2 * bm, d=d: _attention(n, d, seed),
                num_warps=warps, num_stages=2)  # fmt: skip
        half = _with(_matrices("fp16", "fp16", 128, 64, 96, False, 4e-3), 128, 64, 96)
        add("mm_half", "mm_half", cc, {**dict.fromkeys("abc", "*fp16"), **sizes},
            {"BM": 64, "BN": 64, "BK": 32}, 2, half)  # fmt: skip
        for kind, shape, box in (
            ("i32", (5, 7, 36), (2, 4, 32)),
            ("fp16", (3, 20, 104), (1, 8, 64)),
        ):
            add(f"descriptor_copy {kind}", "descriptor_copy", cc,
                {"x": f"*{kind}", "y": f"*{kind}", **dict.fromkeys(("D0", "D1", "D2"), "i32")},
                dict(zip(("B0", "B1", "B2"), box, strict=True)), 2,
                lambda seed, kind=kind, shape=shape: _copy(kind, shape, seed))  # fmt: skip
        if cc == 100:
            add("gather_scatter", "gather_scatter", cc,
                {"x": "*fp16", "y": "*fp16", "index": "*i32", "M": "i32", "N": "i32"},
                {"BN": 64, "ROWS": 32}, 2, lambda seed: _gather(40, 128, 32, seed))  # fmt: skip
        for kind, blocks, ctas in (("bf16", (128, 128, 64), 2), ("fp16", (256, 128, 64), 4)):
            m, n, k = blocks[0], 2 * blocks[1], 3 * blocks[2]
            boxes = {"a": (blocks[0], blocks[2]), "b": (blocks[1], blocks[2]), "c": blocks[:2]}
            add(f"mm_tma {ctas} CTAs", "mm_tma", cc,
                {**{x: f"tensordesc<{kind}[{r}, {s}]>" for x, (r, s) in boxes.items()}, "K": "i32"},
                {**dict(zip(("BM", "BN", "BK"), blocks, strict=True)), "OUT": _type(kind)}, (1, 2),
                _with(_matrices(kind, kind, m, n, k, True, 8e-3), k),
                num_ctas=ctas, num_stages=2)  # fmt: skip

        def stream(seed: int):
            m, n, k = 128, 64, 160
            (a, b, c), check = _matrices("fp16", "fp32", m, n, k, False, 1e-5)(seed)
            partial, locks = np.zeros((3, 64, 64), np.float32), np.zeros(3, np.int32)
            return (a, b, c, partial, locks, m, n, k), check

        add("stream_k", "stream_k", cc,
            {"a": "*fp16", "b": "*fp16", "c": "*fp32", "partial": "*fp32", "locks": "*i32",
             **sizes},
            {"BM": 64, "BN": 64, "BK": 32, "PROGRAMS": 3}, 3, stream, num_stages=2)  # fmt: skip
    return cases
