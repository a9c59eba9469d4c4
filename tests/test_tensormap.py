"""Tensor maps of arrays, and what the driver is told (the rules are tested in tests/layout)."""

from __future__ import annotations

import ctypes
import logging
import re

import ml_dtypes
import numpy as np
import pytest
from cuda.bindings import driver as bindings

import nbtc
from nbtc import driver, tensormap
from nbtc.arguments import as_dtype
from nbtc.errors import TensorMapError
from nbtc.intrinsics import tensormap as tensormap_ptx
from nbtc.tensormap import TensorMap, clear_bit_85

OK = bindings.CUresult.CUDA_SUCCESS


class Array:
    """Device memory at a made-up, aligned address."""

    def __init__(self, shape, typestr="<f4", address=0x7F0000000, strides=None) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": typestr, "data": (address, False), "strides": strides,
            "version": 3,
        }  # fmt: skip


class FakeDriver:
    """Encodes every map as 128 bytes of ones and keeps what it was told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple]] = []
        self.status = OK

    def __getattr__(self, name):
        return getattr(bindings, name)

    def _encode(self, name, args):
        self.calls.append((name, args))
        made = bindings.CUtensorMap()
        ctypes.memset(made.getPtr(), 0xFF, 128)
        return self.status, made

    def cuTensorMapEncodeTiled(self, *args):
        return self._encode("tiled", args)

    def cuTensorMapEncodeIm2col(self, *args):
        return self._encode("im2col", args)

    def cuTensorMapEncodeIm2colWide(self, *args):
        return self._encode("wide", args)


@pytest.fixture
def fake(monkeypatch):
    """Install the fake driver as a Hopper GPU with driver 580."""
    made = FakeDriver()
    monkeypatch.setattr(driver, "_api", made)
    device(monkeypatch, (9, 0), (13, 0))
    return made


def device(monkeypatch, capability, cuda) -> None:
    monkeypatch.setattr(driver, "ensure_context", lambda index=0: None)
    monkeypatch.setattr(driver, "current_device", lambda: 0)
    monkeypatch.setattr(driver, "compute_capability", lambda index=0: capability)
    monkeypatch.setattr(driver, "cuda_version", lambda: cuda)


def plain(values) -> list[int]:
    return [int(v) for v in values]


def test_driver_is_told_innermost_first(fake):
    array = Array((7, 512, 64), "<u2")
    made = TensorMap.tiled(
        as_dtype(array, "bfloat16"), (1, 128, 64), swizzle="128B", l2_promotion="256B", fill="nan",
        element_strides=(1, 2, 1),
    )  # fmt: skip
    assert fake.calls == []  # nothing is encoded before it is needed
    assert made.encoded == b"\xff" * 128
    assert made.encoded is made.encoded
    ((name, args),) = fake.calls
    kind, rank, address, dims, strides, box, steps, interleave, swizzle, promotion, fill = args
    assert (name, rank, address) == ("tiled", 3, 0x7F0000000)
    assert kind == bindings.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
    assert plain(dims) == [64, 512, 7]
    assert plain(strides) == [128, 65536]
    assert plain(box) == [64, 128, 1]
    assert plain(steps) == [1, 2, 1]
    assert interleave == bindings.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE
    assert swizzle == bindings.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B
    assert promotion == bindings.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B
    nan = bindings.CUtensorMapFloatOOBfill
    assert fill == nan.CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA


def test_a_map_of_rank_1_has_a_stride_for_the_driver(fake):
    """It refuses NULL, which an empty list becomes (seen with driver 580)."""
    assert TensorMap.tiled(Array((1000,), "<i4"), (256,)).encoded == b"\xff" * 128
    ((_, args),) = fake.calls
    assert args[1] == 1
    assert len(args[4]) == 1


def test_swizzles_that_the_gpu_does_not_have(fake, monkeypatch):
    made = TensorMap.tiled(Array((40, 64)), (8, 32), swizzle="128B_ATOM_32B")
    with pytest.raises(TensorMapError, match=r"'128B_ATOM_32B' exists from compute capability 10"):
        _ = made.encoded
    device(monkeypatch, (10, 0), (13, 0))
    assert made.encoded == b"\xff" * 128


@pytest.mark.parametrize(
    ("dtype", "typestr", "expected"),
    [
        ("float8_e4m3fn", "|u1", "UINT8"),
        ("tfloat32", "<f4", "TFLOAT32"),
        ("int32", "<i4", "INT32"),
        ("uint64", "<u8", "UINT64"),
        ("float16", "<f2", "FLOAT16"),
        ("float64", "<f8", "FLOAT64"),
    ],
)
def test_data_types_by_the_drivers_own_names(fake, dtype, typestr, expected):
    made = TensorMap.tiled(Array((64, 64), typestr), (16, 16), dtype=dtype)
    assert made.encoded
    name = f"CU_TENSOR_MAP_DATA_TYPE_{expected}"
    assert fake.calls[0][1][0] == getattr(bindings.CUtensorMapDataType, name)


def test_names_and_numbers_of_the_driver_agree():
    """The position of a name in the description's tables is the driver's value."""
    for names, enumeration, prefix in (
        (tensormap.INTERLEAVES, bindings.CUtensorMapInterleave, "CU_TENSOR_MAP_INTERLEAVE_"),
        (tensormap.SWIZZLES, bindings.CUtensorMapSwizzle, "CU_TENSOR_MAP_SWIZZLE_"),
        (tensormap.DATA_TYPES, bindings.CUtensorMapDataType, "CU_TENSOR_MAP_DATA_TYPE_"),
    ):
        for value, name in enumerate(names):
            assert enumeration(value).name == prefix + name.upper()
    promotions = [e.name.rpartition("_")[2] for e in bindings.CUtensorMapL2promotion]
    assert promotions == [n.upper() for n in tensormap.L2_PROMOTIONS]


def test_im2col_and_wide(fake):
    array = Array((2, 16, 16, 64), "<f2")
    size = {"channels_per_pixel": 64, "pixels_per_column": 128}
    assert TensorMap.im2col(array, (-1, -2), (1, 2), **size).encoded
    assert TensorMap.im2col(array, (-2,), (2,), wide="w", swizzle="128B", **size).encoded
    (name, args), (wide, wide_args) = fake.calls
    assert (name, args[5], args[6], args[7:9]) == ("im2col", [-2, -1], [2, 1], (64, 128))
    assert (wide, wide_args[5:9]) == ("wide", (-2, 2, 64, 128))
    assert wide_args[11] == bindings.CUtensorMapIm2ColWideMode.CU_TENSOR_MAP_IM2COL_WIDE_MODE_W


def test_driver_refusal_shows_the_description(fake):
    fake.status = bindings.CUresult.CUDA_ERROR_INVALID_VALUE
    made = TensorMap.tiled(Array((64, 64)), (8, 32))
    with pytest.raises(TensorMapError) as caught:
        made.encoded  # noqa: B018 - the attribute encodes
    assert "CUDA_ERROR_INVALID_VALUE" in str(caught.value)
    assert repr(made.description) in str(caught.value)


# -- what a map is made of ---------------------------------------------------------------------


def test_map_of_numpy_memory_is_for_the_emulator_only():
    array = np.zeros((64, 64), ml_dtypes.bfloat16)
    made = TensorMap.tiled(array, (8, 64))
    assert made.array is array
    assert made.description.address == array.ctypes.data
    assert (made.shape, made.box) == ((64, 64), (8, 64))
    assert (made.dtype, made.box_bytes) == ("bfloat16", 1024)
    with pytest.raises(TensorMapError, match="maps host memory, which TMA cannot reach"):
        made.encoded  # noqa: B018


def test_described_map_needs_no_memory():
    made = TensorMap.described((512, 64), None, "bfloat16", (128, 64), swizzle="128B")
    assert made.description.strides == (128,)
    assert made.smem_bytes == 16384
    with pytest.raises(TensorMapError, match=r"describes no memory: make it with TensorMap\.tiled"):
        made.encoded  # noqa: B018


def test_strided_view_keeps_its_own_strides():
    base = np.zeros((64, 128), np.float32)
    made = TensorMap.tiled(base[::2, 4:68], (8, 32))
    assert made.description.strides == (1024,)
    assert made.description.dims == (64, 32)
    assert made.description.address == base.ctypes.data + 16


def test_packed_types_count_elements():
    made = TensorMap.tiled(Array((32, 64), "|u1"), (8, 128), dtype="16U4_ALIGN16B")
    assert made.shape == (32, 128)
    assert made.description.strides == (64,)
    with pytest.raises(TensorMapError, match="needs a uint8 array"):
        TensorMap.tiled(Array((32, 64), "<f4"), (8, 128), dtype="16U4_ALIGN8B")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        # C20: an offset view is measured by its address, not by its swizzle.
        (lambda: TensorMap.tiled(Array((64, 64), "<f2", 0x1002), (8, 8)),
         "base 0x1002 is 2 mod 16; must be a multiple of 16. Start the view at a multiple of 8"),
        # C21
        (lambda: TensorMap.tiled(None, (8, 8), name="c"),
         "tensor map for 'c': null base; no map is needed when the operand is absent"),
        (lambda: TensorMap.tiled(Array((0, 64)), (8, 8), name="c"),
         "tensor map for 'c': axis 0 of shape (0, 64) is zero-size"),
        # C22
        (lambda: TensorMap.tiled(Array((64, 250)), (8, 32)), "is 1000 bytes (8 mod 16)"),
        # C23
        (lambda: TensorMap.tiled(Array((64, 64), strides=(4, 256)), (8, 8)),
         "TMA needs 1. Swap axes"),
        (lambda: TensorMap.tiled(Array((64, 64), strides=(512, 8)), (8, 8)),
         "is 2 elements; TMA needs 1"),
        # C24
        (lambda: TensorMap.tiled(Array((64, 256), "<f2"), (8, 128), swizzle="128B"),
         "= 256 B > 128 B span of SWIZZLE_128B"),
        # C25
        (lambda: TensorMap.tiled(Array((4096,), "<i4"), (512,)), "=512 > 256"),
        (lambda: TensorMap.tiled(Array((64, 64), "<f2"), (8, 6)), "12 B; must be a multiple of 16"),
        (lambda: TensorMap.tiled(Array((64, 64)), (8, 32), dtype="bfloat16"),
         "dtype=bfloat16 has 16 bits, the array's float32 has 32"),
        (lambda: TensorMap.tiled("text", (8, 8)), "a str is not an array"),
    ],
)  # fmt: skip
def test_rules_are_checked_before_the_driver(make, message):
    with pytest.raises(TensorMapError, match=re.escape(message)):
        make()


@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
def test_offset_view_of_eight_elements_passes_with_every_swizzle(swizzle):
    TensorMap.tiled(Array((64, 64), "<f2", 0x1010), (8, 16), swizzle=swizzle)


def test_rebind_changes_the_address_only(fake):
    first = TensorMap.tiled(Array((64, 64)), (8, 32), swizzle="128B", name="a")
    second = first.rebind(Array((64, 64), address=0x1230))
    assert second.description.address == 0x1230
    assert second.description.box == first.description.box
    assert second.encoded
    assert fake.calls[0][1][2] == 0x1230
    with pytest.raises(TensorMapError, match="make a new map"):
        first.rebind(Array((64, 32)))
    with pytest.raises(TensorMapError, match="tensor map for 'a': base 0x1234 is 4 mod 16"):
        first.rebind(Array((64, 64), address=0x1234))


def test_array_stays_alive_with_its_map():
    array = Array((64, 64))
    assert TensorMap.tiled(array, (8, 32)).array is array


# -- C37: the driver's fault on Blackwell -------------------------------------------------------

SLICE = {"shape": (64, 64), "strides": (1024, 4)}  # 64 KiB, a column slice
DENSE = {"shape": (64, 64)}
LARGE = {"shape": (512, 64), "strides": (1024, 4)}


@pytest.mark.parametrize(
    ("array", "capability", "cuda", "cleared"),
    [
        (SLICE, (10, 0), (13, 1), True),
        (SLICE, (10, 3), (13, 3), True),
        (SLICE, (10, 0), (13, 4), False),
        (SLICE, (9, 0), (13, 1), False),
        (DENSE, (10, 0), (13, 1), False),
        (LARGE, (10, 0), (13, 1), False),
    ],
)
def test_workaround_applies_to_small_non_dense_maps_on_affected_blackwell_drivers(
    fake, monkeypatch, caplog, array, capability, cuda, cleared
):
    device(monkeypatch, capability, cuda)
    with caplog.at_level(logging.WARNING, logger="nbtc"):
        encoded = TensorMap.tiled(Array(**array), (8, 32)).encoded
    words = int.from_bytes(encoded, "little")
    expected = (1 << 1024) - 1
    assert words == (expected ^ (1 << 85) if cleared else expected)
    assert ("bit 85 cleared" in caplog.text) is cleared


def test_only_bit_85_is_cleared():
    assert clear_bit_85(bytes(128)) == bytes(128)
    changed = int.from_bytes(clear_bit_85(b"\xff" * 128), "little")
    assert changed ^ ((1 << 1024) - 1) == 1 << 85


def test_repr_shows_both_orders():
    text = repr(TensorMap.described((512, 64), None, "float32", (128, 32)))
    assert text.startswith("TensorMap(float32, shape=(512, 64) box=(128, 32)")
    assert "dims=(64, 512)" in text


def test_the_emulator_refuses_swizzles_that_the_target_does_not_have(monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")

    @nbtc.jit
    def kernel(source):
        tensormap_ptx.prefetch(source)

    made = TensorMap.tiled(np.zeros((40, 64), np.float32), (8, 32), swizzle="128B_ATOM_32B")
    with pytest.raises(TensorMapError, match=r"'128B_ATOM_32B' exists from .* 9\.0 take '128B'"):
        kernel.emulate(1, 1, made, arch="sm_90a")
    assert kernel.emulate(1, 1, made, arch="sm_100a").ok
