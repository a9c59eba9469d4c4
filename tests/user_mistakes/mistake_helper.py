"""A shared-memory layout, and compiling and finding lines of wrong kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import nbtc
from nbtc import shared

layout = shared.Layout(
    a=shared.tile("bfloat16", (64, 64), swizzle="128B", stages=2),
    bias=shared.array("float32", (64,)),
    full=shared.barriers(2),
)


def compiled(function, types, **options):
    arch = options.pop("arch", "sm_90a")
    options = {"shared": layout, "launch_bounds": 128, **options}
    return nbtc.jit(**options)(function).compile(*types.split(), arch=arch)


def line_of(function, needle):
    """Return ``file:line`` of the line of a function that holds ``needle``."""
    code = function.__code__
    lines = Path(code.co_filename).read_text().splitlines()
    start = code.co_firstlineno
    found = [n for n, text in enumerate(lines[start:], start + 1) if needle in text]
    return f"{code.co_filename}:{found[0]}"


def run(kernel):
    out = np.zeros(1, np.float32)
    kernel[1, 1](out)
    return out[0]
