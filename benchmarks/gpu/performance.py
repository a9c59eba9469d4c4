"""bf16 GEMM against cuBLAS, and Triton if there is one, at the six sizes of the project's table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nbtc.gemm import choose

from .common import Context, hot, precompile, relative_error, tn

SUSTAINED = 200
"""Milliseconds of a batch that is as long as a card needs to settle at its clock."""


def _peer(context: Context) -> Callable[..., Any] | None:
    """Return a Triton product that works here, or None."""
    if context.library.name != "torch":
        return None
    try:
        import peer_triton

        a, b, out = context.operands(512, 512, 512)[0]
        peer_triton.matmul(a, b, out)
        error = relative_error(context.library, out, a @ b.T)
    except Exception as reason:  # whatever goes wrong in another compiler is not our failure
        print(f"triton: not compared ({type(reason).__name__}: {str(reason)[:200]})")
        return None
    if error > 0.01:
        print(f"triton: not compared (relative error {error:.2g})")
        return None
    return peer_triton.matmul


def run(context: Context) -> dict[str, Any]:
    """Time all sizes."""
    library = context.library
    peer = None if context.smoke else _peer(context)
    kind = context.dtype
    chosen = [choose(*size, kind, kind, "K", "K", context.sms) for size in context.sizes]
    precompile(chosen, 60)
    rows: list[dict[str, Any]] = []
    wrong = []
    for i, (m, n, k) in enumerate(context.sizes):
        share = context.left / (len(context.sizes) - i)
        if context.left < 4:
            break
        data = context.operands(m, n, k)
        a, b, out = data[0]
        tn(a, b, out)
        row: dict[str, Any] = {"shape": [m, n, k], "dtype": kind, "config": str(chosen[i])}
        functions: dict[str, Callable[..., Any]] = {"nbtc": tn}
        if library.has_mm:
            functions = {"cublas": lambda a, b, out: library.mm(a, b.T, out), "nbtc": tn}
            want = library.mm(a, b.T, library.poison((m, n), kind))
            row["relative_error"] = relative_error(library, out, want)
            row["equal_to_cublas"] = bool((out == want).all())
            del want
            if row["relative_error"] > 0.01:
                wrong.append(f"{m}x{n}x{k}: relative error {row['relative_error']:.3g}")
        if peer is not None:
            functions["triton"] = peer
        rounds, flops = 30 if m * n * k < 1e12 else 16, 2 * m * n * k
        row |= hot(
            functions, data, flops=flops, rounds=rounds, seconds=share * 0.4, smoke=context.smoke
        )
        # Each kernel settles at the clock that the power limit leaves it.
        row["sustained"] = hot(
            functions, data, flops=flops, rounds=6, milliseconds=SUSTAINED, seconds=share * 0.4,
            smoke=context.smoke,
        )  # fmt: skip
        rows.append(row)
        del data, a, b, out
        print(_line(row), flush=True)
    complete = len(rows) == len(context.sizes) and not wrong
    return {
        "status": "ok" if complete else "failed",
        "failures": wrong,
        "table": rows,
        "summary": "\n" + "\n".join(map(_line, rows)),
    }


def _line(row: dict[str, Any]) -> str:
    size = "x".join(map(str, row["shape"]))
    parts = [f"{name} {row['tflops'][name]:6.1f}" for name in row["tflops"]]
    ratios = [f"{name} {ratio:.3f}" for name, ratio in list(row["ratio"].items())[1:]]
    line = f"  {size:<18} TFLOP/s {'  '.join(parts)}   ratio {'  '.join(ratios)}"
    long = row["sustained"]["ratio"].get("nbtc")
    return f"{line}   (batches of {SUSTAINED} ms: nbtc {long:.3f})"
