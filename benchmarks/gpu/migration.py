"""The migration table: one problem on three kernels, each against cuBLAS in the same rounds.

An Ampere-style kernel, wgmma without multicast, and the full kernel; examples 5 to 7.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from nbtc import driver
from nbtc.jit import emulating

from .common import Context, hot, relative_error, tn

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SIZES = ((4096, 4096, 4096), (8192, 8192, 8192))


def example(number: int) -> ModuleType:
    """Import an example by its number."""
    path = next(EXAMPLES.glob(f"{number:02}_*.py"))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ampere(library: Any) -> Callable[..., Any]:
    """Return example 5 as a function of (a, b, out)."""
    module = example(5)
    kernel = module.make_kernel()

    def multiply(a: Any, b: Any, out: Any) -> None:
        (m, n), tile = out.shape, module.TILE
        kernel[-(-m // tile) * -(-n // tile), module.THREADS](a, b, library.words(out))

    return multiply


def _on_maps(module: ModuleType, kernel: Any, grid: Callable[[int, int], int], *extra: Any) -> Any:
    """Return a kernel on tensor maps as a function of (a, b, out); maps are made once."""
    kept: dict[int, Any] = {}

    def multiply(a: Any, b: Any, out: Any) -> None:
        key = id(out)
        if key not in kept:
            (m, k), n = a.shape, b.shape[0]
            sizes = [np.int32(x) for x in (m, n, k)]
            kept[key] = (kernel[grid(m, n), module.THREADS], [*module.maps(a, b, out), *sizes])
        launch, arguments = kept[key]
        launch(*arguments, *extra)

    return multiply


def wgmma_alone() -> Callable[..., Any]:
    """Return example 6 as a function of (a, b, out)."""
    module = example(6)
    tile = module.TILE
    return _on_maps(module, module.make_kernel(), lambda m, n: -(-m // tile) * -(-n // tile))


def fused(bias: Any) -> Callable[..., Any]:
    """Return example 7, with bias and GELU, as a function of (a, b, out)."""
    module = example(7)
    blocks = 4 if emulating() else driver.attribute(0, "MULTIPROCESSOR_COUNT") // 2 * 2
    return _on_maps(module, module.make_kernel(), lambda m, n: blocks, bias)


def run(context: Context) -> dict[str, Any]:
    """Time the steps."""
    library = context.library
    tables, wrong = [], []
    if context.dtype != "bfloat16":
        return {"status": "skipped", "summary": f"{library.name} has no bfloat16"}
    sizes = context.sizes if context.smoke else SIZES
    for i, (m, n, k) in enumerate(sizes):
        if context.left < 6:
            break
        data = context.operands(m, n, k)
        bias = library.normal((1, n), "float32")[0]
        functions: dict[str, Callable[..., Any]] = {}
        if library.has_mm:
            functions["cublas"] = lambda a, b, out: library.mm(a, b.T, out)
        functions["Ampere style (example 5)"] = ampere(library)
        functions["wgmma, no multicast (example 6)"] = wgmma_alone()
        functions["full kernel (nbtc.matmul)"] = tn
        a, b, out = data[0]
        want = library.double(a) @ library.double(b.T)
        for name, function in functions.items():
            function(a, b, out)
            error = relative_error(library, out, want)
            if error > 0.01:
                wrong.append(f"{name} at {m}x{n}x{k}: relative error {error:.3g}")
        del want
        functions["full kernel, bias and GELU (example 7)"] = fused(bias)
        timed = hot(
            functions, data, flops=2 * m * n * k, rounds=10,
            seconds=context.left / (len(sizes) - i) * 0.8, smoke=context.smoke,
        )  # fmt: skip
        tables.append({"shape": [m, n, k], **timed})
    lines = []
    for table in tables:
        lines.append("  " + "x".join(map(str, table["shape"])))
        lines += [
            f"    {name:<40} {table['tflops'][name]:6.1f} TFLOP/s  {ratio:.3f}"
            for name, ratio in table["ratio"].items()
        ]
    return {
        "status": "ok" if not wrong and len(tables) == len(sizes) else "failed",
        "failures": wrong,
        "table": tables,
        "summary": "\n" + "\n".join(lines),
    }
