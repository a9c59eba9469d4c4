"""Compile plain Numba kernels to PTX without a driver, and flatten their arguments."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
from numba import cuda
from numba.core import types
from numba.cuda import api, compiler, dispatcher
from numba.np import numpy_support

from nbtc.emulator import launch


class _Device:
    compute_capability = (9, 0)


def compile_kernel(function: Any, signature: tuple, cc: tuple[int, int], **options: Any) -> str:
    """PTX of a Python function for a compute capability."""
    device = _Device()
    device.compute_capability = cc
    with (
        mock.patch.object(dispatcher, "get_current_device", return_value=device, create=True),
        mock.patch.object(api, "get_current_device", return_value=device, create=True),
        mock.patch.object(compiler, "get_current_device", return_value=device, create=True),
    ):
        ptx, _ = cuda.compile_ptx(function, signature, cc=cc, **options)
    return ptx


def type_of(value: Any) -> Any:
    """Numba type of an argument."""
    if isinstance(value, np.ndarray):
        return types.Array(numpy_support.from_dtype(value.dtype), value.ndim, "C")
    return numpy_support.from_dtype(np.asarray(value).dtype)


def flatten(values: Any) -> list[Any]:
    """Arguments in the order of the PTX parameters."""
    out: list[Any] = []
    for value in values:
        if isinstance(value, np.ndarray):
            out += [None, None, value.size, value.itemsize, value, *value.shape, *value.strides]
        else:
            out.append(value)
    return out


def run(
    function: Any,
    grid: Any,
    block: Any,
    *args: Any,
    cc: tuple[int, int] = (9, 0),
    options: dict | None = None,
    **kwargs: Any,
) -> Any:
    """Compile for the types of the arguments and run on the emulator."""
    ptx = compile_kernel(function, tuple(type_of(a) for a in args), cc, **(options or {}))
    return launch(ptx, None, grid=grid, block=block, args=flatten(args), **kwargs)
