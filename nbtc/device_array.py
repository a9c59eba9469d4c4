"""A plain array in GPU memory, for tests and demonstrations where no array library is at hand.

It knows every element type of `nbtc.dtypes` and has ``__cuda_array_interface__``; it computes
nothing. Real programs use torch, CuPy or Numba arrays.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from nbtc import driver, dtypes
from nbtc.arguments import contiguous_strides


class _Allocation:
    """Device memory that is freed with its last view."""

    def __init__(self, nbytes: int) -> None:
        driver.ensure_context()
        api = driver.api()
        self.nbytes = max(nbytes, 1)
        self.address = int(driver.check(api.cuMemAlloc(self.nbytes), f"allocating {nbytes} B"))
        weakref.finalize(self, api.cuMemFree, self.address)


def _typestr(dtype: np.dtype[Any]) -> str:
    """Return the interface's code of a dtype; it has none for the types of ml_dtypes."""
    return dtype.str if dtype.isbuiltin == 1 else f"|V{dtype.itemsize}"


class DeviceArray:
    """A strided array in GPU memory.

    Attributes:
        shape: elements per axis.
        strides: bytes per axis.
        dtype: NumPy or ml_dtypes dtype.
        address: device address of the first element.
    """

    def __init__(self, shape: int | Sequence[int], dtype: Any) -> None:
        """Allocate uninitialised C-contiguous memory."""
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.dtype = dtypes.canonical(dtype).numpy
        self.strides = contiguous_strides(self.shape, self.dtype.itemsize)
        self._memory = _Allocation(math.prod(self.shape) * self.dtype.itemsize)
        self.address = self._memory.address

    @classmethod
    def copy_of(cls, array: np.ndarray[Any, Any]) -> DeviceArray:
        """Copy a NumPy array to the GPU, C-contiguous."""
        made = cls(array.shape, array.dtype)
        host = np.ascontiguousarray(array)
        if host.nbytes:
            done = driver.api().cuMemcpyHtoD(made.address, host.ctypes.data, host.nbytes)
            driver.check(done, "copying to the device")
        return made

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def T(self) -> DeviceArray:
        """The transposed view."""
        return self._view(self.shape[::-1], self.strides[::-1], self.address)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "strides": self.strides,
            "typestr": _typestr(self.dtype),
            "data": (self.address, False),
            "version": 3,
        }

    def __getitem__(self, key: Any) -> DeviceArray:
        """Return a view by basic slicing; with integers on all axes it has rank 0."""
        # NumPy does the arithmetic on a stand-in whose elements are never touched.
        element = np.empty(1, self.dtype)
        whole = np.lib.stride_tricks.as_strided(element, self.shape, self.strides)
        keys = key if isinstance(key, tuple) else (key,)
        if ... not in keys:
            keys = (*keys, ...)  # makes NumPy return a view, never a scalar
        part = whole[keys]
        offset = part.__array_interface__["data"][0] - element.__array_interface__["data"][0]
        return self._view(part.shape, part.strides, self.address + offset)

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return a copy in host memory, after all work of the device."""
        driver.synchronize()
        host = np.empty(self._memory.nbytes, np.uint8)
        source, target = self._memory.address, host.ctypes.data
        done = driver.api().cuMemcpyDtoH(target, source, self._memory.nbytes)
        driver.check(done, "copying from the device")
        offset = self.address - self._memory.address
        return np.ndarray(self.shape, self.dtype, host.data, offset, self.strides).copy()

    def fill_bytes(self, value: int = 0xFF) -> DeviceArray:
        """Set every byte of the whole allocation; 0xFF is NaN in every float type."""
        done = driver.api().cuMemsetD8(self._memory.address, value, self._memory.nbytes)
        driver.check(done, "filling device memory")
        return self

    def __repr__(self) -> str:
        return f"<DeviceArray {self.dtype.name} {self.shape} at {self.address:#x}>"

    def _view(self, shape: Any, strides: Any, address: int) -> DeviceArray:
        made = object.__new__(DeviceArray)
        made.shape, made.strides, made.address = tuple(shape), tuple(strides), address
        made.dtype, made._memory = self.dtype, self._memory
        return made
