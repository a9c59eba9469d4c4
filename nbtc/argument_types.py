"""What ``kernel.compile(...)`` takes for argument types."""

from __future__ import annotations

import re
from typing import Any

from numba.cuda import types

from nbtc import arguments
from nbtc.errors import CompileError, DtypeError
from nbtc.ptx import narrow_floats
from nbtc.ptx.types_numba import TENSOR_MAP

_SPEC = re.compile(r"^\s*([A-Za-z_]\w*)\s*(?:\[([^\]]*)\])?\s*$")


def argument_type(spec: Any) -> Any:
    """Return the Numba type of a kernel argument.

    Args:
        spec: a Numba type; a string in Numba's notation with the names of :mod:`nbtc.dtypes`
            (``"int32"``, ``"float32[:,:]"`` any strides, ``"bfloat16[:, ::1]"`` C order,
            ``"float32[::1, :]"`` Fortran order, ``"TensorMap"``); ``nbtc.TensorMap`` or an
            instance; or a value of the wanted type: NumPy array, tensor, number.

    Raises:
        CompileError: nothing that a kernel can take is meant.
    """
    if isinstance(spec, str):
        return _parse(spec)
    if isinstance(spec, types.Type):
        return own_elements(types.unliteral(spec))
    if isinstance(spec, type):
        return _class(spec)
    return own_elements(arguments.typeof_argument(spec))


def own_elements(ty: Any) -> Any:
    """Replace numba-cuda's 16-bit float elements by ours, which need no external functions."""
    if isinstance(ty, types.Array):
        if ty.dtype == types.float16:
            return ty.copy(dtype=narrow_floats.float16)
        if ty.dtype == types.bfloat16:
            return ty.copy(dtype=narrow_floats.bfloat16)
    return ty


def _class(cls: type) -> Any:
    if any(c.__name__ == "TensorMap" and c.__module__ == "nbtc.tensormap" for c in cls.__mro__):
        return TENSOR_MAP
    if cls in (int, float, bool, complex):
        return arguments.typeof_argument(cls(0))
    try:
        return narrow_floats.element_type(cls)
    except DtypeError:
        raise CompileError(f"{cls.__name__} is not the type of a kernel argument") from None


def _parse(text: str) -> Any:
    match = _SPEC.match(text)
    if match is None:
        raise CompileError(
            f"argument type {text!r} is not understood; write a dtype, or a dtype with one colon "
            'per axis: "float32[:, :]", "bfloat16[:, ::1]"'
        )
    name, axes = match[1], match[2]
    if name == "TensorMap" and axes is None:
        return TENSOR_MAP
    if name.lower().replace("_", "") == "tensormap":
        raise CompileError(
            f'argument type {text!r}; did you mean "TensorMap", or nbtc.TensorMap? It has no axes'
        )
    element = narrow_floats.element_type(name)
    if axes is None:
        return types.float32 if isinstance(element, narrow_floats.NarrowFloat) else element
    parts = [part.strip() for part in axes.split(",")]
    if any(part not in {":", "::1"} for part in parts) or parts.count("::1") > 1:
        raise CompileError(f"argument type {text!r}: each axis is ':' or, for one of them, '::1'")
    layout = "A"
    if parts[-1] == "::1":
        layout = "C"
    elif parts[0] == "::1":
        layout = "F"
    elif "::1" in parts:
        raise CompileError(f"argument type {text!r}: '::1' stands first or last")
    return types.Array(element, len(parts), layout)
