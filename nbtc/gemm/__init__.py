"""Ready-made GEMM kernels: :func:`matmul`, :func:`compile`, and the factories behind them."""

from __future__ import annotations

from typing import Any

from numba.cuda import types

from nbtc import arch as arch_module
from nbtc.compile import Compiled
from nbtc.errors import ArchError
from nbtc.gemm import blackwell
from nbtc.gemm.blackwell_config import BlackwellConfig
from nbtc.gemm.choice import choose
from nbtc.gemm.config import HopperConfig
from nbtc.gemm.hopper import argument_types, make_kernel
from nbtc.gemm.matmul import matmul as _matmul
from nbtc.gemm.quantized import Quantized, quantize
from nbtc.spelling import checked
from nbtc.tensormap import TensorMap

__all__ = [
    "TARGETS",
    "BlackwellConfig",
    "HopperConfig",
    "Quantized",
    "argument_types",
    "choose",
    "compile",
    "make_kernel",
    "matmul",
    "quantize",
]

matmul = checked(_matmul)
matmul.__module__ = __name__  # where pickle finds it

TARGETS = ("sm_90a", "sm_100a")
"""Targets that :func:`compile` has a kernel for, one a chip."""


def compile(dtype: Any = "bfloat16", arch: str = "sm_90a", **parameters: Any) -> Compiled:
    """Compile the GEMM kernel of one configuration; needs no GPU.

    Args:
        dtype: element type of A and B.
        arch: target; ``"sm_100f"`` and ``"sm_103a"`` take the kernels of ``"sm_100a"``.
        **parameters: further fields of :class:`HopperConfig` (``"sm_90a"``) or
            :class:`BlackwellConfig` (``"sm_100a"``).

    Raises:
        LayoutError: the configuration breaks a rule; the message shows the arithmetic.
        ArchError: there is no kernel for the target.
    """
    target = arch_module.parse(arch).name
    i32, extra = types.int32, types.Tuple(())
    if target in arch_module.TCGEN05:
        blocked = BlackwellConfig(dtype=dtype, **parameters)
        scales = TensorMap if blocked.block else types.none
        maps = (TensorMap, TensorMap, TensorMap, scales, scales)
        kernel = blackwell.make_kernel(blocked)
        return kernel.compile(*maps, i32, i32, i32, extra, arch=target)
    if target != "sm_90a":
        raise ArchError(f"gemm.compile: no kernel for {target}; take {' or '.join(TARGETS)}")
    config = HopperConfig(dtype=dtype, **parameters)
    return make_kernel(config).compile(*argument_types(config), arch=target)
