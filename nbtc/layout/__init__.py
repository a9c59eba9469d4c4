"""Layouts of the hardware as pure integer functions, shared by kernels, host code and emulator.

Modules: `swizzle`, `matrix_descriptor`, `instruction_descriptor`, `fragments`, `tensor_memory`,
`scale_factors`, `block_scaling`, `tensormap_description`. Functions that kernels may call take and
return plain integers, and work elementwise on integer arrays too.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbtc.layout.instruction_descriptor import InstructionDescriptor
    from nbtc.layout.matrix_descriptor import MatrixDescriptor, OperandTile
    from nbtc.layout.tensormap_description import TensorMapDescription

_EXPORTS = {
    "InstructionDescriptor": "instruction_descriptor",
    "MatrixDescriptor": "matrix_descriptor",
    "OperandTile": "matrix_descriptor",
    "TensorMapDescription": "tensormap_description",
}
_MODULES = {
    "block_scaling", "fragments", "instruction_descriptor", "matrix_descriptor", "scale_factors",
    "swizzle", "tensor_memory", "tensormap_description",
}  # fmt: skip

__all__ = ["InstructionDescriptor", "MatrixDescriptor", "OperandTile", "TensorMapDescription"]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(f"nbtc.layout.{_EXPORTS[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"nbtc.layout.{name}")
    raise AttributeError(f"module 'nbtc.layout' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS, *_MODULES})
