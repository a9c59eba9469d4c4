"""Swizzled shared addresses inside kernels: where an element of a TMA tile really lies."""

from __future__ import annotations

from typing import Any

from nbtc.layout import swizzle as patterns
from nbtc.ptx import kinds
from nbtc.ptx.operands import check_operand
from nbtc.ptx.staging import Emitter, Value, staged
from nbtc.ptx.types_numba import SHARED


def _returns(address: Any, mode: Any) -> Any:
    check_operand("swizzle.apply: address", kinds.SHARED_KIND, address)
    patterns.repeat(mode)  # raises for an unknown mode
    return SHARED


@staged(_returns, constants=("mode",))
def apply(e: Emitter, address: Any, mode: str) -> Any:
    """Return the shared address at which TMA with this swizzle put an element.

    Executed by each thread for itself; three integer instructions. The pattern is its own inverse.

    Args:
        e: given by the compiler.
        address: where the element would lie without the swizzle: the tile's base plus the plain
            row-major offset, in bytes. The base must be aligned to the swizzle's repeat.
        mode: ``"none"``, ``"32B"``, ``"64B"`` or ``"128B"``, as in the tensor map.
    """
    return Value(e, SHARED, patterns.swizzle(Value(e, SHARED, address.llvm), mode).llvm)
