"""PTX instructions for kernels: one Python function per instruction, a module per ISA chapter."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

if __name__ != "nbtc.intrinsics":
    raise ImportError(f"import nbtc.intrinsics, not {__name__}")


def __getattr__(name: str) -> ModuleType:
    if name in __dir__():
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__))
