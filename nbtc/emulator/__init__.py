"""CPU emulator: run PTX text and name races, deadlocks and memory faults by source line.

`launch` runs a kernel of any PTX module on NumPy arrays and returns a `Report`. The package imports
neither Numba nor CUDA.
"""

from __future__ import annotations

from .engine import launch, load
from .findings import BarrierInfo, Finding, Related, Report
from .parser import parse

__all__ = ["BarrierInfo", "Finding", "Related", "Report", "launch", "load", "parse"]
