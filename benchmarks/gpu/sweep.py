"""Stages 1 to 6 and 1 to 3 consumer warpgroups, each against cuBLAS in the same run."""

from __future__ import annotations

from typing import Any

from nbtc.errors import NbtcError
from nbtc.gemm import HopperConfig

from .common import Context, hot, precompile, relative_error, tn

SIZE = (4096, 4096, 4096)


def configurations(dtype: str) -> dict[str, HopperConfig | str]:
    """Return the configurations by name; a text says why one is not possible."""
    wanted: dict[str, dict[str, Any]] = {}
    for stages in range(1, 7):
        wanted[f"128x256x64, {stages} stages"] = {"stages": stages}
        wanted[f"128x128x64, {stages} stages"] = {"stages": stages, "tile": (128, 128, 64)}
    wanted["128x256x64, narrow=240"] = {"narrow": 240}
    for consumers, tile in ((1, (64, 256, 64)), (2, (128, 256, 64)), (3, (192, 192, 64))):
        name = f"{consumers} consumers, {tile[0]}x{tile[1]}x64"
        wanted[name] = {"consumers": consumers, "tile": tile, "stages": 3}
    for consumers, tile in ((1, (64, 128, 64)), (2, (128, 128, 64)), (3, (192, 128, 64))):
        name = f"{consumers} consumers, {tile[0]}x{tile[1]}x64"
        wanted[name] = {"consumers": consumers, "tile": tile, "stages": 4}
    found: dict[str, HopperConfig | str] = {}
    for name, parameters in wanted.items():
        try:
            found[name] = HopperConfig(dtype=dtype, **parameters)
        except NbtcError as reason:
            found[name] = str(reason).splitlines()[0]
    return found


def run(context: Context) -> dict[str, Any]:
    """Time all configurations, cuBLAS among them in every round."""
    library = context.library
    m, n, k = context.sizes[0] if context.smoke else SIZE
    every = configurations(context.dtype)
    if context.smoke:
        every = dict(list(every.items())[:3])
    impossible = {name: c for name, c in every.items() if isinstance(c, str)}
    possible = {name: c for name, c in every.items() if isinstance(c, HopperConfig)}
    precompile(possible.values(), context.left / 2)
    data = context.operands(m, n, k)
    a, b, out = data[0]
    want = library.double(a) @ library.double(b.T)
    functions: dict[str, Any] = {}
    if library.has_mm:
        functions["cublas"] = lambda a, b, out: library.mm(a, b.T, out)
    wrong = []
    for name, config in possible.items():
        if context.left < 10:
            impossible[name] = "no time left"
            continue
        tn(a, b, out, config)
        error = relative_error(library, out, want)
        if error > 0.01:
            wrong.append(f"{name}: relative error {error:.3g}")
        functions[name] = lambda a, b, out, config=config: tn(a, b, out, config)
    timed = hot(
        functions, data, flops=2 * m * n * k, rounds=8, milliseconds=10,
        seconds=context.left * 0.7, smoke=context.smoke,
    )  # fmt: skip
    table = {
        name: {"tflops": timed["tflops"][name], "ratio": timed["ratio"][name]} for name in functions
    }
    lines = [
        f"  {name:<28} {t['tflops']:6.1f} TFLOP/s  {t['ratio']:.3f}" for name, t in table.items()
    ]
    return {
        "status": "ok" if not wrong else "failed",
        "failures": wrong,
        "shape": [m, n, k],
        "table": table,
        "not_possible": impossible,
        "rounds": timed["rounds"],
        "sm_clock_mhz": timed["sm_clock_mhz"],
        "summary": "\n" + "\n".join(lines),
    }
