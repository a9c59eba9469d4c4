"""Rules and the packed form of tensor-map descriptions (cases C20-C25, C38)."""

from __future__ import annotations

import dataclasses
import re

import ml_dtypes
import numpy as np
import pytest

from nbtc.errors import TensorMapError
from nbtc.layout.tensormap_description import TensorMapDescription

tiled = TensorMapDescription.tiled
im2col = TensorMapDescription.im2col


def refused(message: str, *args, **kwargs) -> None:
    with pytest.raises(TensorMapError, match=re.escape(message)):
        tiled(*args, **kwargs)


def test_array_order_becomes_map_order():
    m = tiled((7, 512, 64), ml_dtypes.bfloat16, (1, 128, 64), swizzle="128B", address=0x1000)
    assert m.dims == (64, 512, 7)
    assert m.strides == (128, 512 * 128)
    assert m.box == (64, 128, 1)
    assert m.box_bytes == 64 * 128 * 2
    assert m.data_type == "BFLOAT16"
    assert "shape=(7, 512, 64)" in repr(m)
    assert "dims=(64, 512, 7)" in repr(m)


def test_c20_base_alignment_is_16_not_more():
    row = 64 * 2
    refused("is 2 mod 16; must be a multiple of 16. Start the view at a multiple of 8 bfloat16",
            (8, 63), "bfloat16", (8, 8), strides=(row, 2), address=0x1002)  # fmt: skip
    assert tiled((8, 56), "bfloat16", (8, 8), strides=(row, 2), address=0x1010, swizzle="128B")
    m = tiled((8, 56), "bfloat16", (8, 8), strides=(row, 2))
    with pytest.raises(TensorMapError, match="2 mod 16"):
        m.with_address(0x12)


def test_c21_null_base_and_zero_size():
    refused("tensor map for 'c': null base", (8, 64), "float16", (8, 64), address=0, name="c")
    refused("tensor map for 'c': zero-size axis 0", (0, 64), "float16", (8, 64), name="c")


def test_c22_stride_multiple_of_16():
    refused("stride of axis 0 (map dim 1) is 1000 bytes (8 mod 16); must be a multiple of 16: "
            "pad the row to 252 float32", (64, 250), "float32", (8, 8))  # fmt: skip
    refused("below 2**40", (2, 64), "float32", (1, 64), strides=(1 << 40, 4))
    refused("no negative strides", (2, 64), "float32", (1, 64), strides=(-256, 4))


def test_c23_innermost_contiguous():
    refused("innermost stride (axis 1) is 2 elements; TMA needs 1",
            (8, 64), "float16", (8, 64), strides=(256, 4))  # fmt: skip
    assert tiled((8, 1), "float16", (8, 8), strides=(256, 4))


def test_c24_swizzle_span():
    refused("box[1]=128 bfloat16 = 256 B > 128 B span of SWIZZLE_128B; use box[1]<=64 and 2 copies",
            (128, 512), "bfloat16", (64, 128), swizzle="128B")  # fmt: skip
    assert tiled((128, 512), "bfloat16", (64, 32), swizzle="128B").box_bytes == 64 * 64


def test_c25_box_limits():
    refused("box[0]=512 > 256; issue 2 copies of at most 256", (4096,), "int32", (512,))
    refused("box row is 12 B; must be a multiple of 16", (64, 64), "float16", (8, 6))
    refused("box[0]=0; must be 1..256", (64, 64), "float16", (0, 8))
    refused("element_strides[0]=9; must be 1..8", (64, 64), "float16", (8, 8),
            element_strides=(9, 1))  # fmt: skip
    refused("rank 6", (2,) * 6, "float16", (1,) * 6)


def test_c38_box_larger_than_axis_is_legal_but_remarked():
    m = tiled((8, 64), "float16", (64, 8))
    assert m.advice() == [
        "box[0]=64 is larger than the array's axis 0 (8): shape and box are in array order, "
        "outermost first"
    ]
    assert not tiled((64, 64), "float16", (64, 8)).advice()
    narrow = tiled((64, 64), "float16", (64, 32), swizzle="128B")
    assert narrow.advice()[0].startswith("the box row is 64 B, narrower than the 128 B rows")
    assert not tiled((64, 64), "float16", (64, 64), swizzle="128B").advice()


def test_element_strides_and_bytes():
    m = tiled((64, 64, 64), "float32", (7, 8, 16), element_strides=(2, 3, 5))
    assert m.box_shape == (16, 3, 4)  # innermost element stride is ignored
    assert m.box_bytes == 16 * 3 * 4 * 4


def test_other_rules():
    refused("needs rank 3 to 5", (64, 64), "float16", (8, 8), interleave="16B")
    refused("must be '32B'", (4, 64, 64), "float16", (1, 8, 16), interleave="32B", swizzle="64B")
    refused("fill='nan' with UINT8", (64, 64), "float8_e4m3fn", (8, 16), fill="nan")
    refused("innermost axis must be a multiple of 128: use 256",
            (64, 192), "16U4_ALIGN16B", (8, 128))  # fmt: skip
    refused("innermost axis must be 128", (64, 256), "16U4_ALIGN16B", (8, 64))
    refused("swizzle='64B' with 16U4_ALIGN16B", (64, 256), "16U4_ALIGN16B", (8, 128),
            swizzle="64B")  # fmt: skip
    refused("swizzle='256B'", (64, 64), "float16", (8, 8), swizzle="256B")
    refused("must be a multiple of 32", (8, 384), "16U6_ALIGN16B", (8, 128), strides=(304, 1))
    refused("has no tensor-map data type", (8, 64), "float4_e2m1fn", (8, 32))


def test_packed_types_count_packed_bytes():
    four = tiled((64, 256), "16U4_ALIGN16B", (8, 128), swizzle="128B")
    six = tiled((64, 256), "16U6_ALIGN16B", (8, 128))
    assert (four.box_bytes, four.smem_bytes, four.strides) == (8 * 64, 8 * 128, (128,))
    assert (six.box_bytes, six.smem_bytes, six.strides) == (8 * 96, 8 * 128, (192,))


def test_size_one_axis_may_have_any_stride():
    m = tiled((1, 64), "float32", (1, 64), strides=(4, 4))
    assert m.strides[0] % 16 == 0


@pytest.mark.parametrize(
    "m",
    [
        tiled((3, 4, 5, 6, 64), "float8_e5m2", (1, 1, 2, 3, 32), swizzle="32B", address=0x7F0000,
              l2_promotion="256B", element_strides=(1, 2, 3, 4, 1)),
        tiled((1 << 32,), "uint8", (16,)),
        tiled((8, 64), "tfloat32", (8, 32), swizzle="128B_ATOM_32B", fill="nan"),
        im2col((2, 16, 18, 64), "float16", (-1, -2), (-3, 1), channels_per_pixel=64,
               pixels_per_column=32, swizzle="128B"),
        im2col((2, 16, 18, 64), "float16", (-1,), (-3,), channels_per_pixel=64,
               pixels_per_column=128, wide="w128", swizzle="128B"),
    ],
)  # fmt: skip
def test_pack_round_trip(m):
    data = m.pack()
    assert len(data) == 128
    assert TensorMapDescription.unpack(data) == m
    assert TensorMapDescription.unpack(m.pack(address=0x40)).address == 0x40


def test_unpack_refuses_other_bytes():
    with pytest.raises(TensorMapError, match="not a tensor map"):
        TensorMapDescription.unpack(bytes(range(128)))


def test_replace_builds_a_map_from_zeros():
    want = tiled((512, 64), "bfloat16", (128, 64), swizzle="128B", address=0x4000)
    data = bytes(128)
    for field, value, ordinal in [
        ("global_address", 0x4000, 0), ("rank", 1, 0),
        ("box_dim", 64, 0), ("box_dim", 128, 1), ("global_dim", 64, 0), ("global_dim", 512, 1),
        ("global_stride", 128, 0), ("element_stride", 1, 0), ("element_stride", 1, 1),
        ("elemtype", 10, 0), ("interleave_layout", 0, 0), ("swizzle_mode", 3, 0),
        ("fill_mode", 0, 0),
    ]:  # fmt: skip
        data = TensorMapDescription.replace_field(data, field, value, ordinal)
    assert TensorMapDescription.unpack(data) == want


def test_replace_swizzle_atomicity_and_errors():
    data = tiled((512, 64), "float32", (8, 32), swizzle="128B").pack()
    atom = TensorMapDescription.replace_field(data, "swizzle_atomicity", 1)
    assert TensorMapDescription.unpack(atom).swizzle == "128B_ATOM_32B"
    half = TensorMapDescription.replace_field(data, "elemtype", 6)
    assert TensorMapDescription.unpack(half).dtype == "float16"
    with pytest.raises(TensorMapError, match="no field"):
        TensorMapDescription.replace_field(data, "colour", 1)


def test_im2col_rules():
    with pytest.raises(TensorMapError, match=r"lower_corner\[1\]=-129; must be -128..127"):
        im2col(
            (2, 16, 18, 64),
            "float16",
            (-1, -129),
            (0, 0),
            channels_per_pixel=64,
            pixels_per_column=32,
        )
    with pytest.raises(TensorMapError, match="pixels_per_column=1025"):
        im2col(
            (2, 16, 18, 64),
            "float16",
            (-1, -1),
            (0, 0),
            channels_per_pixel=64,
            pixels_per_column=1025,
        )
    m = im2col(
        (2, 16, 18, 64), "float16", (-1, -2), (-3, 1), channels_per_pixel=64, pixels_per_column=32
    )
    assert m.lower_corner == (-2, -1)  # W first
    assert m.box_bytes == 64 * 32 * 2


def test_strides_of_a_numpy_view():
    array = np.zeros((64, 128), np.float32)[:, 32:96]
    m = tiled(array.shape, array.dtype, (8, 32), strides=array.strides, swizzle="128B")
    assert dataclasses.asdict(m)["strides"] == (512,)
