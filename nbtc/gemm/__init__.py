"""Ready-made GEMM kernels: :func:`matmul`, :func:`compile`, and the factory behind them."""

from __future__ import annotations

from typing import Any

from numba.cuda import types

from nbtc.compile import Compiled
from nbtc.gemm.config import HopperConfig
from nbtc.gemm.hopper import make_kernel
from nbtc.gemm.matmul import choose, matmul
from nbtc.tensormap import TensorMap

__all__ = ["TARGETS", "HopperConfig", "choose", "compile", "make_kernel", "matmul"]

TARGETS = ("sm_90a",)
"""Targets that :func:`compile` has a kernel for, one a chip."""


def compile(dtype: Any = "bfloat16", arch: str = "sm_90a", **parameters: Any) -> Compiled:
    """Compile the GEMM kernel of one configuration; needs no GPU.

    Args:
        dtype: element type of A and B.
        arch: target.
        **parameters: further fields of :class:`HopperConfig`.
    """
    config = HopperConfig(dtype=dtype, **parameters)
    i32 = types.int32
    order = types.Array(i32, 1, "C") if config.schedule == "hilbert" else types.none
    arguments = (TensorMap, TensorMap, TensorMap, i32, i32, i32, order, types.Tuple(()))
    return make_kernel(config).compile(*arguments, arch=arch)
