"""PTX instructions for kernels: one Python function per instruction, a module per ISA chapter."""

from __future__ import annotations

if __name__ != "nbtc.intrinsics":
    raise ImportError(f"import nbtc.intrinsics, not {__name__}")
