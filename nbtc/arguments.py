"""Kernel arguments: what they are to Numba, and the values that go into the parameter block.

Three questions about an argument, one function each:

- `view_of`: where is an array and how does it lie (used by tensor maps too)?
- `typeof_argument`: which Numba type does the compiler see?
- `probe`: the fast path, a hashable key of the kinds of all arguments and their flat values, in the
  order of `nbtc.parameters.ParameterLayout`.

Arrays may come from torch, CuPy, Numba, or anything with ``__cuda_array_interface__`` or DLPack.
torch and CuPy are recognised by name and never imported.
"""

from __future__ import annotations

import enum
import functools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nbtc import dtypes
from nbtc.errors import DtypeError, LaunchError, NbtcError

_HOST = -1


@dataclass(slots=True, unsafe_hash=True)  # frozen would triple the time to make one
class ArrayView:
    """Where an array is and how it lies; not to be changed.

    Attributes:
        address: address of the first element; 0 for an empty array.
        shape: elements per axis, outermost first.
        strides: bytes per axis.
        dtype: NumPy or ml_dtypes dtype of an element.
        device: index of the GPU that holds the array, -1 for host memory.
        readonly: whether the owner forbids writing.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    device: int
    readonly: bool = False

    @property
    def on_device(self) -> bool:
        """Whether a GPU can reach the memory."""
        return self.device != _HOST

    @property
    def layout(self) -> str:
        """Numba's layout letter: "C", "F" or "A"."""
        return layout_of(self.shape, self.strides, self.dtype.itemsize)

    def describe(self) -> str:
        """Return shape, dtype and layout in words."""
        return f"{self.dtype.name} array of shape {self.shape} and strides {self.strides} bytes"


@dataclass(frozen=True, slots=True)
class TypedView:
    """An array whose elements are to be read as another dtype of the same width."""

    array: Any
    dtype: np.dtype[Any]


def as_dtype(array: Any, dtype: Any) -> TypedView:
    """Pass an array to a kernel (or a tensor map) under another element type of the same width.

    For libraries without bfloat16 or float8: give them a uint16 or uint8 array and declare what is
    in it, ``as_dtype(array, "bfloat16")``. Nothing is copied.

    Raises:
        LaunchError: the element widths differ.
    """
    view = view_of(array)
    if view is None:
        raise LaunchError(f"as_dtype: {type(array).__name__} is not an array")
    declared = dtypes.canonical(dtype).numpy
    if declared.itemsize != view.dtype.itemsize:
        raise LaunchError(
            f"as_dtype: {view.dtype.name} has {view.dtype.itemsize} bytes and {declared.name} has "
            f"{declared.itemsize}; view the array as uint{8 * declared.itemsize} first"
        )
    return TypedView(array, declared)


def layout_of(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> str:
    """Return Numba's layout letter for a shape and strides of the same unit as ``itemsize``."""
    expected = itemsize
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size == 0:
            return "C"
        if size != 1:
            if stride != expected:
                break
            expected *= size
    else:
        return "C"
    expected = itemsize
    for size, stride in zip(shape, strides, strict=True):
        if size != 1:
            if stride != expected:
                return "A"
            expected *= size
    return "F"


def contiguous_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return the byte strides of a C-contiguous array."""
    strides = []
    for size in reversed(shape):
        strides.append(itemsize)
        itemsize *= max(size, 1)
    return tuple(reversed(strides))


def view_of(value: Any) -> ArrayView | None:
    """Return where an array is and how it lies, or None if ``value`` is no array.

    Raises:
        DtypeError: it is an array with an element type that has no NumPy or ml_dtypes dtype.
    """
    if isinstance(value, TypedView):
        inner = view_of(value.array)
        assert inner is not None  # as_dtype has looked
        return ArrayView(
            inner.address, inner.shape, inner.strides, value.dtype, inner.device, inner.readonly
        )
    if _is_torch(type(value)):
        item = value.element_size()
        return ArrayView(
            value.data_ptr(),
            tuple(value.shape),
            tuple(s * item for s in value.stride()),
            _numpy_dtype(value.dtype),
            value.get_device(),
        )
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        return _view_of_interface(value, interface)
    if isinstance(value, np.ndarray):
        return ArrayView(
            value.__array_interface__["data"][0],
            value.shape,
            value.strides,
            value.dtype,
            _HOST,
            not value.flags.writeable,
        )
    if not isinstance(value, np.generic) and hasattr(value, "__dlpack__"):
        return _view_of_dlpack(value)
    return None


def _view_of_interface(value: Any, interface: dict[str, Any]) -> ArrayView:
    address, readonly = interface["data"]
    shape = tuple(interface["shape"])
    dtype = _typestr(interface["typestr"])
    # The interface has no code for bfloat16 and float8 (they show as void); the object may know.
    if dtype.kind == "V":
        own = getattr(value, "dtype", None)
        if isinstance(own, np.dtype) and own.itemsize == dtype.itemsize:
            dtype = own
    strides = interface.get("strides")
    if strides is None:
        strides = contiguous_strides(shape, dtype.itemsize)
    return ArrayView(address or 0, shape, tuple(strides), dtype, 0, bool(readonly))


@functools.cache
def _typestr(text: str) -> np.dtype[Any]:
    return np.dtype(text)


def _view_of_dlpack(value: Any) -> ArrayView:
    from cuda.core.utils import StridedMemoryView  # pyright: ignore[reportMissingImports]

    view = StridedMemoryView.from_dlpack(value, stream_ptr=-1)
    dtype = view.dtype
    if dtype is None:
        raise DtypeError(
            f"the element type of this {type(value).__name__} has no NumPy or ml_dtypes dtype: "
            "view it as an unsigned integer of the same width and wrap it in "
            "nbtc.arguments.as_dtype(array, dtype)"
        )
    dtype = np.dtype(dtype)
    shape = tuple(view.shape)
    strides = view.strides
    if strides is None:
        bytes_ = contiguous_strides(shape, dtype.itemsize)
    else:
        bytes_ = tuple(s * dtype.itemsize for s in strides)  # DLPack counts elements
    device = view.device_id if view.is_device_accessible else _HOST
    return ArrayView(view.ptr, shape, bytes_, dtype, device, view.readonly)


@functools.cache
def _is_torch(cls: type) -> bool:
    return any(c.__name__ == "Tensor" and c.__module__ == "torch" for c in cls.__mro__)


@functools.cache
def _numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the NumPy dtype of a torch dtype."""
    name = str(dtype).removeprefix("torch.")
    if name in ("complex64", "complex128"):
        return np.dtype(name)
    try:
        return dtypes.canonical(name).numpy
    except DtypeError:
        raise DtypeError(
            f"{dtype} elements are not supported; view the tensor as uint8 or one of "
            f"{', '.join(dtypes.DTYPES)}"
        ) from None


# --------------------------------------------------------------------------------------------------
# Numba types


def numba_dtype(dtype: Any) -> Any:
    """Return the Numba element type of an array of ``dtype``.

    Args:
        dtype: a name, a NumPy, ml_dtypes or torch dtype.

    Raises:
        DtypeError: kernels have no such element.
    """
    from numba.cuda.np import numpy_support

    from nbtc.ptx import narrow_floats

    if isinstance(dtype, np.dtype):
        if dtype.kind in "cmM" or dtype.names is not None:
            return numpy_support.from_dtype(dtype)
        if dtype.kind == "V" and dtype.type is np.void:
            raise DtypeError(
                f"elements of {dtype.itemsize} untyped bytes (bfloat16 or float8 without their "
                f"dtype?): view the array as uint{8 * dtype.itemsize} and wrap it in "
                "nbtc.arguments.as_dtype(array, 'bfloat16')"
            )
    return narrow_floats.element_type(dtype)


def typeof_argument(value: Any) -> Any:
    """Return the Numba type that the compiler sees for an argument.

    Python integers are int64 (uint64 above 2**63 - 1), floats float64, as in Numba; NumPy and
    ml_dtypes scalars keep their width. Arrays get dtype, rank and layout ("C", "F", "A"). Host
    arrays are typed too: a compile and the emulator take them, a launch does not. A Numba type
    stands for itself.

    Raises:
        LaunchError: kernels take no such argument.
        DtypeError: its element type is not usable.
    """
    from numba.cuda import types

    if isinstance(value, types.Type):
        return value
    if value is None:
        return types.none
    if isinstance(value, tuple):
        parts = [typeof_argument(v) for v in value]
        if hasattr(value, "_fields"):
            return types.BaseTuple.from_types(parts, type(value))
        return types.BaseTuple.from_types(parts)
    if is_tensor_map(type(value)):
        from nbtc.ptx.types_numba import TENSOR_MAP

        return TENSOR_MAP
    if isinstance(value, np.void):
        raise LaunchError(
            f"a record ({value.dtype}) by value is not taken: pass its fields, a namedtuple of "
            "them, or an array of one record in device memory"
        )
    if isinstance(value, np.generic):
        # Narrow floats are float32 as values, like the elements of an array.
        return types.float32 if _is_narrow(type(value)) else numba_dtype(value.dtype)
    if isinstance(value, bool | int | float | complex | enum.Enum):
        from numba.cuda.typing.typeof import typeof

        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            raise LaunchError(f"{value} does not fit 64 bits")
        return typeof(value)
    view = view_of(value)
    if view is None:
        raise _unsupported(type(value))
    return types.Array(
        numba_dtype(view.dtype), len(view.shape), view.layout, readonly=view.readonly
    )


def types_of(args: Sequence[Any]) -> tuple[Any, ...]:
    """Return the Numba types of all arguments."""
    return tuple(_numbered(index, typeof_argument, value) for index, value in enumerate(args))


def _numbered(index: int, function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except (LaunchError, DtypeError) as error:
        raise type(error)(f"argument {index}: {error}") from None


def _unsupported(cls: type) -> LaunchError:
    return LaunchError(
        f"a {cls.__name__} cannot be a kernel argument: pass numbers, tuples of them, device "
        "arrays (torch, CuPy, Numba, DLPack, __cuda_array_interface__) or an nbtc.TensorMap"
    )


def _refuse_host(what: str) -> LaunchError:
    return LaunchError(
        f"{what} is in host memory; a launch on the GPU needs device memory: move it with "
        "numba.cuda.to_device(x), x.cuda() (torch) or cupy.asarray(x). Only the emulator uses "
        "NumPy arrays in place: nbtc.emulator"
    )


# --------------------------------------------------------------------------------------------------
# The fast path: one probe function per Python class, which appends to key and fields.
#
# Arrays are Numba's: meminfo, parent, item count, item size, data, shape, strides in bytes.

_Probe = Callable[[Any, list[Any], list[Any]], None]


def probe(args: Sequence[Any]) -> tuple[tuple[Any, ...], list[Any]]:
    """Return a hashable key of the arguments' kinds, and their flat values.

    Equal keys mean equal Numba types. The values go into the parameter block in this order.

    Raises:
        LaunchError: an argument is not usable on a GPU, for example host memory.
    """
    key: list[Any] = []
    fields: list[Any] = []
    value = None
    try:
        for value in args:
            cls = type(value)
            function = _PROBES.get(cls)
            if function is None:
                function = _PROBES[cls] = _find_probe(cls)
            function(value, key, fields)
    except (LaunchError, DtypeError) as error:
        index = next(i for i, one in enumerate(args) if one is value)
        raise type(error)(f"argument {index}: {error}") from None
    return tuple(key), fields


def with_names(error: NbtcError, names: Sequence[str] | None) -> NbtcError:
    """Return an error about "argument 2" with the argument's Python name added."""
    text = str(error)
    found = re.match(r"argument (\d+)", text)
    if found is None or not names or int(found[1]) >= len(names):
        return error
    return type(error)(f"{found[0]} ({names[int(found[1])]!r}){text[found.end() :]}")


def _find_probe(cls: type) -> _Probe:
    if _is_torch(cls):
        return _probe_torch
    package = cls.__module__.partition(".")[0]
    if package == "cupy" and cls.__name__ == "ndarray":
        return _probe_cupy
    if package in ("numba", "numba_cuda") and cls.__name__ == "DeviceNDArray":
        return _probe_numba
    if is_tensor_map(cls):
        return _probe_tensor_map
    if issubclass(cls, tuple):
        return _probe_tuple
    if issubclass(cls, enum.Enum):
        return _probe_enum
    if issubclass(cls, complex | np.complexfloating):
        return _probe_complex
    if issubclass(cls, np.void):
        return _probe_record
    if _is_narrow(cls):
        return _probe_narrow
    if issubclass(cls, int | float | np.generic):
        return _probe_scalar
    return _probe_array


def is_tensor_map(cls: type) -> bool:
    """Return whether instances of a class are tensor maps (without importing `nbtc.tensormap`)."""
    return any(c.__name__ == "TensorMap" and c.__module__ == "nbtc.tensormap" for c in cls.__mro__)


def _probe_scalar(value: Any, key: list[Any], fields: list[Any]) -> None:
    key.append(type(value))
    fields.append(value)


def _is_narrow(cls: type) -> bool:
    if not issubclass(cls, np.generic) or issubclass(cls, np.void):
        return False
    return cls is np.float16 or cls.__module__ == "ml_dtypes"


def _probe_record(value: Any, key: list[Any], fields: list[Any]) -> None:
    typeof_argument(value)  # raises


def _probe_narrow(value: Any, key: list[Any], fields: list[Any]) -> None:
    key.append(type(value))
    fields.append(float(value))


def _probe_int(value: int, key: list[Any], fields: list[Any]) -> None:
    key.append(int if value < 0x8000000000000000 else "uint64")
    fields.append(value)


def _probe_complex(value: Any, key: list[Any], fields: list[Any]) -> None:
    key.append(type(value))
    fields += (value.real, value.imag)


def _probe_enum(value: Any, key: list[Any], fields: list[Any]) -> None:
    key.append(type(value))
    fields.append(value.value)


def _probe_none(value: None, key: list[Any], fields: list[Any]) -> None:
    key.append(None)
    fields.append(0)  # Numba passes none as a null pointer


def _probe_tuple(value: tuple[Any, ...], key: list[Any], fields: list[Any]) -> None:
    inner, flat = probe(value)
    key.append((type(value), inner))
    fields += flat


def _probe_tensor_map(value: Any, key: list[Any], fields: list[Any]) -> None:
    key.append(type(value))
    fields.append(value.encoded)


def _probe_torch(value: Any, key: list[Any], fields: list[Any]) -> None:
    if value.get_device() < 0:
        raise _refuse_host(f"a torch tensor on {value.device}")
    dtype = value.dtype
    size = _torch_sizes.get(dtype)
    if size is None:
        size = _torch_sizes[dtype] = value.element_size()
    shape = value.shape
    strides = value.stride()
    rank = len(shape)
    # Vectors and matrices are spelled out: this is a third of the time of a launch.
    if rank == 2:
        m, n = shape
        row, column = strides
        layout = "C" if column == 1 and row == n else layout_of(shape, strides, 1)
        fields += (0, 0, m * n, size, value.data_ptr(), m, n, row * size, column * size)
    elif rank == 1:
        n, step = shape[0], strides[0]
        layout = "C" if step == 1 or n < 2 else "A"
        fields += (0, 0, n, size, value.data_ptr(), n, step * size)
    else:
        layout = "C" if value.is_contiguous() else layout_of(shape, strides, 1)
        fields += (0, 0, value.numel(), size, value.data_ptr(), *shape)
        fields += [s * size for s in strides]
    key.append((dtype, rank, layout))


_torch_sizes: dict[Any, int] = {}


def _probe_cupy(value: Any, key: list[Any], fields: list[Any]) -> None:
    shape = value.shape
    strides = value.strides
    size = value.itemsize
    key.append((value.dtype, len(shape), layout_of(shape, strides, size)))
    fields += (0, 0, value.size, size, value.data.ptr, *shape, *strides)


def _probe_numba(value: Any, key: list[Any], fields: list[Any]) -> None:
    shape = value.shape
    strides = value.strides
    dtype = value.dtype
    size = dtype.itemsize
    key.append((dtype, len(shape), layout_of(shape, strides, size)))
    pointer = value.device_ctypes_pointer.value or 0
    fields += (0, 0, value.size, size, pointer, *shape, *strides)


def _probe_array(value: Any, key: list[Any], fields: list[Any]) -> None:
    view = view_of(value)
    if view is None:
        raise _unsupported(type(value))
    if not view.on_device:
        name = "a NumPy array" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
        raise _refuse_host(f"{name} ({view.dtype.name}, shape {view.shape})")
    shape = view.shape
    size = view.dtype.itemsize
    key.append((view.dtype, len(shape), view.layout, view.readonly))
    fields += (0, 0, math.prod(shape), size, view.address, *shape, *view.strides)


_PROBES: dict[type, _Probe] = {
    int: _probe_int,
    float: _probe_scalar,
    bool: _probe_scalar,
    complex: _probe_complex,
    type(None): _probe_none,
    tuple: _probe_tuple,
}
