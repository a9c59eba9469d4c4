"""Hopper and Blackwell GPU kernels in Numba's Python syntax, with a CPU emulator of the PTX.

``import nbtc`` is cheap: everything below loads on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbtc import emulator, errors, gemm, intrinsics, testing
    from nbtc.compile import Compiled
    from nbtc.device import shared
    from nbtc.gemm import matmul
    from nbtc.jit import device, jit
    from nbtc.tensormap import TensorMap

__version__ = "0.1.0"

_LAZY = {
    "Compiled": ("nbtc.compile", "Compiled"),
    "TensorMap": ("nbtc.tensormap", "TensorMap"),
    "device": ("nbtc.device", None),
    "emulator": ("nbtc.emulator", None),
    "errors": ("nbtc.errors", None),
    "gemm": ("nbtc.gemm", None),
    "intrinsics": ("nbtc.intrinsics", None),
    "jit": ("nbtc.jit", "jit"),
    "matmul": ("nbtc.gemm", "matmul"),
    "shared": ("nbtc.device.shared", None),
    "testing": ("nbtc.testing", None),
}

__all__ = [
    "Compiled",
    "TensorMap",
    "device",
    "emulator",
    "errors",
    "gemm",
    "intrinsics",
    "jit",
    "matmul",
    "shared",
    "testing",
]


def __getattr__(name: str) -> Any:
    found = _LAZY.get(name)
    if found is None:
        raise AttributeError(f"module 'nbtc' has no attribute {name!r}")
    module = importlib.import_module(found[0])
    value = module if found[1] is None else getattr(module, found[1])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
