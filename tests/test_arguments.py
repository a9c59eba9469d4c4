"""Argument kinds: Numba types, keys and flat values, and the refusals."""

from __future__ import annotations

import collections
import re

import ml_dtypes
import numpy as np
import pytest
from numba.cuda import types

from nbtc import arguments
from nbtc.arguments import as_dtype, layout_of, probe, typeof_argument, types_of, view_of
from nbtc.errors import DtypeError, LaunchError
from nbtc.ptx import narrow_floats
from nbtc.ptx.types_numba import TENSOR_MAP
from nbtc.tensormap import TensorMap


class DeviceArray:
    """An array that a GPU library would hand over, at a made-up address."""

    def __init__(self, array: np.ndarray, address: int = 0x7000_0000, **extra) -> None:
        strides = None if array.flags.c_contiguous else array.strides
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "strides": strides,
            "data": (address, False),
            "version": 3,
            **extra,
        }


class TorchDtype:
    """Prints as torch's dtypes do."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return f"torch.{self.name}"


def torch_like(array: np.ndarray, dtype: str, device: int = 0, address: int = 0x5000_0000):
    """An object with torch.Tensor's interface, found by its class name as the real one is."""
    item = array.dtype.itemsize

    def make(name):
        return type(
            name,
            (),
            {
                "__module__": "torch",
                "shape": array.shape,
                "dtype": _torch_dtypes.setdefault(dtype, TorchDtype(dtype)),
                "device": "cpu" if device < 0 else f"cuda:{device}",
                "stride": lambda self: tuple(s // item for s in array.strides),
                "element_size": lambda self: item,
                "numel": lambda self: array.size,
                "data_ptr": lambda self: address,
                "get_device": lambda self: device,
                "is_contiguous": lambda self: array.flags.c_contiguous,
            },
        )

    return make("Tensor")()


_torch_dtypes: dict[str, TorchDtype] = {}

Pair = collections.namedtuple("Pair", "left right")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, types.int64),
        (-1, types.int64),
        (2**63, types.uint64),
        (True, types.boolean),
        (1.5, types.float64),
        (1j, types.complex128),
        (np.int8(1), types.int8),
        (np.uint32(1), types.uint32),
        (np.float32(1), types.float32),
        (np.complex64(1), types.complex64),
        (np.bool_(True), types.boolean),
        (np.float16(1), types.float32),
        (ml_dtypes.bfloat16(1), types.float32),
        (None, types.none),
        ((1, 2.0), types.Tuple((types.int64, types.float64))),
        ((np.int32(1), np.int32(2)), types.UniTuple(types.int32, 2)),
        (types.float32[::1], types.float32[::1]),
    ],
)
def test_scalars_and_tuples_keep_numbas_meaning(value, expected):
    assert typeof_argument(value) == expected


def test_named_tuple_stays_named():
    found = typeof_argument(Pair(1, 2.0))
    assert found.instance_class is Pair
    assert tuple(found) == (types.int64, types.float64)


def test_too_wide_an_integer_is_refused():
    with pytest.raises(LaunchError, match="does not fit 64 bits"):
        typeof_argument(2**64)


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"])
def test_narrow_float_arrays_have_nbtcs_element_types(name):
    array = np.zeros((4, 8), ml_dtypes.bfloat16 if name == "bfloat16" else name_dtype(name))
    expected = types.Array(narrow_floats.NARROW[name], 2, "C")
    assert typeof_argument(array) == expected
    assert typeof_argument(torch_like(array, name)) == expected


def name_dtype(name: str):
    return getattr(ml_dtypes, name, None) or np.dtype(name)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((4, 8), np.float32),
        np.zeros((4, 8), np.float32).T,
        np.zeros((4, 8), np.float32)[::2, ::2],
        np.zeros((4, 8), np.float32)[1:3],
        np.zeros(5, np.int32),
        np.zeros(10, np.int32)[::2],
        np.zeros((1, 8), np.int64),
        np.zeros((8, 1), np.int64)[:, ::-1],
        np.zeros((3, 0), np.float64),
        np.zeros((2, 3, 4), np.uint8).transpose(2, 1, 0),
        np.zeros((2, 3, 4), np.uint8).transpose(0, 2, 1),
        np.zeros((), np.float32),
    ],
)
def test_layout_agrees_with_numpys_flags(array):
    if array.flags.c_contiguous:
        expected = "C"
    elif array.flags.f_contiguous:
        expected = "F"
    else:
        expected = "A"
    assert layout_of(array.shape, array.strides, array.itemsize) == expected
    host = typeof_argument(array)
    assert (host.layout, host.ndim) == (expected, array.ndim)
    ((_, rank, letter),) = probe([torch_like(array, array.dtype.name)])[0]
    assert (rank, letter) == (array.ndim, expected)
    # The stride of an axis that has no second element means nothing and may differ.
    used = [*range(5 + array.ndim)]
    if array.size:
        used += [5 + array.ndim + axis for axis, n in enumerate(array.shape) if n > 1]
    theirs = probe([DeviceArray(array, 0x5000_0000)])[1]
    ours = probe([torch_like(array, array.dtype.name)])[1]
    assert [ours[i] for i in used] == [theirs[i] for i in used]
    assert typeof_argument(DeviceArray(array)) == host


def test_broadcast_array_is_never_contiguous():
    array = np.broadcast_to(np.float32(1), (4, 8))
    assert layout_of(array.shape, array.strides, 4) == "A"


def test_device_array_becomes_numbas_words():
    array = np.zeros((4, 8), np.float32)[:, :6]
    key, fields = probe([DeviceArray(array, 0x1234_0000)])
    assert fields == [0, 0, 24, 4, 0x1234_0000, 4, 6, 32, 4]
    assert key == probe([DeviceArray(array, 0x9999_0000)])[0]


def test_torch_tensor_becomes_the_same_words_as_any_array():
    array = np.zeros((4, 8), np.float32).T
    _, ours = probe([torch_like(array, "float32", address=0x40)])
    _, theirs = probe([DeviceArray(array, 0x40)])
    assert ours == theirs == [0, 0, 32, 4, 0x40, 8, 4, 4, 32]


def test_keys_tell_apart_what_the_compiler_tells_apart():
    base = np.zeros((4, 8), np.float32)
    values = [
        DeviceArray(base),
        DeviceArray(base.T),
        DeviceArray(base[:, :3]),
        DeviceArray(base.astype(np.float64)),
        DeviceArray(base.reshape(-1)),
        torch_like(base.astype(np.uint16), "bfloat16"),
        torch_like(base.astype(np.uint16), "float16"),
        1, 1.0, True, None, 2**63, np.int32(1), np.float16(1), (1, 2), (1, 2.0), Pair(1, 2),
    ]  # fmt: skip
    seen: dict[object, object] = {}
    for value in values:
        key = probe([value])[0]
        assert seen.setdefault(key, typeof_argument(value)) == typeof_argument(value)
    assert len(seen) == len(values)


def test_equal_keys_for_equal_kinds():
    assert probe([1, 2.0, (3, 4.0)])[0] == probe([7, 8.0, (9, 1.0)])[0]


def test_tuples_and_complex_numbers_are_flat():
    assert probe([(1, (2, 3.0)), 1 - 2j, None])[1] == [1, 2, 3.0, 1.0, -2.0, 0]


def test_empty_array_has_a_null_address():
    array = np.zeros((0, 4), np.float32)
    _, fields = probe([DeviceArray(array, 0)])
    assert fields == [0, 0, 0, 4, 0, 0, 4, 16, 4]


def test_numpy_array_on_a_gpu_is_refused_with_the_remedy():
    with pytest.raises(LaunchError, match=r"argument 1: a NumPy array \(float32, shape \(3,\)\)"):
        probe([1, np.zeros(3, np.float32)])
    with pytest.raises(LaunchError, match=r"numba\.cuda\.to_device.*nbtc\.emulator"):
        probe([np.zeros(3, np.float32)])


def test_cpu_tensor_on_a_gpu_is_refused():
    with pytest.raises(LaunchError, match="a torch tensor on cpu is in host memory"):
        probe([torch_like(np.zeros(3, np.float32), "float32", device=-1)])


@pytest.mark.parametrize("value", ["text", [1, 2], {}, object()])
def test_other_objects_are_refused_by_number(value):
    with pytest.raises(LaunchError, match=r"argument 1: a .* cannot be a kernel argument"):
        types_of([1, value])
    with pytest.raises(LaunchError, match=r"argument 1: a .* cannot be a kernel argument"):
        probe([1, value])


def test_records_by_value_name_the_way_out():
    record = np.zeros((), [("x", np.int32), ("y", np.float32)])[()]
    for look in (types_of, probe):
        with pytest.raises(LaunchError, match=r"argument 0: a record .* pass its fields"):
            look([record])


def test_untyped_bytes_name_the_way_out():
    bare = DeviceArray(np.zeros(4, ml_dtypes.bfloat16))
    with pytest.raises(DtypeError, match=re.escape("as_dtype(array, 'bfloat16')")):
        typeof_argument(bare)


def test_as_dtype_declares_what_the_bytes_are():
    raw = DeviceArray(np.zeros((4, 8), np.uint16), 0x100)
    view = as_dtype(raw, "bfloat16")
    assert typeof_argument(view) == types.Array(narrow_floats.bfloat16, 2, "C")
    assert probe([view])[1] == probe([raw])[1]
    assert probe([view])[0] != probe([raw])[0]
    with pytest.raises(LaunchError, match="view the array as uint16 first"):
        as_dtype(DeviceArray(np.zeros(4, np.uint8)), "bfloat16")


def test_object_dtype_helps_where_the_interface_has_no_code():
    array = DeviceArray(np.zeros(4, ml_dtypes.bfloat16))
    array.dtype = np.dtype(ml_dtypes.bfloat16)
    assert typeof_argument(array) == types.Array(narrow_floats.bfloat16, 1, "C")


def test_unknown_torch_dtype_says_what_to_do():
    tensor = torch_like(np.zeros(4, np.uint8), "quint4x2")
    with pytest.raises(DtypeError, match="view the tensor as uint8"):
        typeof_argument(tensor)


class DlpackOnly:
    """Offers nothing but DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **kwargs):
        return self._array.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def test_dlpack_object_is_an_array():
    array = np.arange(24, dtype=np.float32).reshape(4, 6)[:, :3]
    view = view_of(DlpackOnly(array))
    assert view is not None
    assert (view.address, view.shape, view.strides) == (array.ctypes.data, (4, 3), (24, 4))
    assert not view.on_device
    assert typeof_argument(DlpackOnly(array)).layout == "A"


def test_readonly_arrays_are_typed_so():
    array = np.zeros(4, np.float32)
    array.flags.writeable = False
    assert not typeof_argument(array).mutable
    assert typeof_argument(DeviceArray(np.zeros(4, np.float32))).mutable


def test_tensor_map_is_one_value_of_128_bytes(monkeypatch):
    tensor_map = TensorMap.described((64, 64), None, "bfloat16", (64, 64))
    assert typeof_argument(tensor_map) == TENSOR_MAP
    monkeypatch.setattr(tensor_map, "_encoded", b"m" * 128)
    key, fields = probe([tensor_map])
    assert fields == [b"m" * 128]
    assert key == (TensorMap,)


def test_names_are_added_to_numbered_errors():
    error = arguments.with_names(LaunchError("argument 1: no"), ["a", "b"])
    assert str(error) == "argument 1 ('b'): no"
    assert str(arguments.with_names(LaunchError("other"), ["a"])) == "other"
