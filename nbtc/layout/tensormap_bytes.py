"""Tensor maps as 128 bytes of nbtc's own format, for the emulator's copies and edits of maps.

The format is not the driver's, which is opaque. Every field has its own bytes, so that
``tensormap.replace`` works on 128 zeroed bytes as well as on a copy of a map.
"""

from __future__ import annotations

import struct

from nbtc.errors import TensorMapError
from nbtc.layout.tensormap_description import (
    DATA_TYPES,
    ELEMENT_NAMES,
    ELEMENTS,
    FILLS,
    INTERLEAVES,
    L2_PROMOTIONS,
    TensorMapDescription,
)

# tensormap.replace numbers elemtype and swizzle in its own way (PTX ISA, tensormap.replace).
_REPLACE_ELEMTYPES = (
    "uint8", "uint16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float32_ftz",
    "float64", "bfloat16", "tfloat32", "tfloat32_ftz",
    "16U4_ALIGN8B", "16U4_ALIGN16B", "16U6_ALIGN16B",
)  # fmt: skip
_MODES = ("tiled", "im2col", "im2col_w", "im2col_w128")
_SWIZZLE_PARTS = {
    "none": (0, 0), "32B": (1, 0), "64B": (2, 0), "128B": (3, 0), "128B_ATOM_32B": (3, 1),
    "128B_ATOM_32B_FLIP_8B": (3, 2), "128B_ATOM_64B": (3, 3), "96B": (4, 0),
}  # fmt: skip
_SWIZZLE_OF_PARTS = {parts: name for name, parts in _SWIZZLE_PARTS.items()}

_MAGIC = 0x4D54424E  # "NBTM"
_FORMAT = struct.Struct("<I8B5Bx5H4xQ5I4x4Q6h2HB15x")


def pack(description: TensorMapDescription, address: int | None = None) -> bytes:
    """Return a map as 128 bytes of nbtc's own format (not the driver's opaque one).

    Args:
        description: the map.
        address: base address to store instead of the map's own.
    """

    def five(values: tuple[int, ...], missing: int) -> list[int]:
        return [*values, *([missing] * (5 - len(values)))]

    def corners(values: tuple[int, ...]) -> list[int]:
        return [*values, *([0] * (3 - len(values)))]

    mode, atomicity = _SWIZZLE_PARTS[description.swizzle]
    tiled = description.mode == "tiled"
    return _FORMAT.pack(
        _MAGIC,
        DATA_TYPES.index(description.data_type),
        description.rank - 1,
        INTERLEAVES.index(description.interleave),
        mode,
        atomicity,
        L2_PROMOTIONS.index(description.l2_promotion),
        FILLS.index(description.fill),
        _MODES.index(description.mode),
        *five(description.element_strides or (1,) * description.rank, 0),
        *five(description.box if tiled else (), 0),
        description.address if address is None else address,
        *(size - 1 if size else 0 for size in five(description.dims, 0)),
        *five(description.strides, 0)[:4],
        *corners(description.lower_corner),
        *corners(description.upper_corner),
        *((0, 0) if tiled else description.box),
        ELEMENT_NAMES.index(description.dtype) + 1,
    )


def unpack(data: bytes | bytearray | memoryview) -> TensorMapDescription:
    """Read back 128 bytes made by `pack`; 128 zero bytes are a blank map of rank 1.

    Raises:
        TensorMapError: the bytes are not a map of this format.
    """
    raw = bytes(data)
    if len(raw) != _FORMAT.size:
        raise TensorMapError(f"a tensor map has 128 bytes, got {len(raw)}")
    (magic, kind, rank, interleave, mode, atomicity, promotion, fill, access, *rest) = (
        _FORMAT.unpack(raw)
    )
    if magic != _MAGIC and any(raw):
        raise TensorMapError(
            "these 128 bytes are not a tensor map: they were neither copied from one nor "
            "zeroed and filled in by tensormap.replace"
        )
    rank += 1
    steps, box, address = rest[0:5], rest[5:10], rest[10]
    dims, strides, lower, upper = rest[11:16], rest[16:20], rest[20:23], rest[23:26]
    channels, pixels, element = rest[26], rest[27], rest[28]
    data_type = DATA_TYPES[kind]
    # The element name is only a refinement (float8 is UINT8) and may be stale after a replace.
    name = ELEMENT_NAMES[element - 1] if element else ""
    if ELEMENTS.get(name) != data_type:
        name = next(key for key, value in ELEMENTS.items() if value == data_type)
    tiled = access == 0
    corners = rank - 2 if _MODES[access] == "im2col" else 1
    return TensorMapDescription(
        dtype=name,
        dims=tuple(size + 1 for size in dims[:rank]),
        strides=tuple(strides[: rank - 1]),
        box=tuple(box[:rank]) if tiled else (channels, pixels),
        address=address,
        element_strides=tuple(steps[:rank]),
        interleave=INTERLEAVES[interleave],
        swizzle=_SWIZZLE_OF_PARTS.get((mode, atomicity), _SWIZZLE_OF_PARTS[mode, 0]),
        l2_promotion=L2_PROMOTIONS[promotion],
        fill=FILLS[fill],
        mode=_MODES[access],
        lower_corner=() if tiled else tuple(lower[:corners]),
        upper_corner=() if tiled else tuple(upper[:corners]),
    )


def replace_field(
    data: bytes | bytearray | memoryview, field: str, value: int, ordinal: int = 0
) -> bytes:
    """Apply one ``tensormap.replace.tile.FIELD`` to 128 packed bytes (PTX ISA 9.7.9.27).

    Args:
        data: the 128 bytes; all zero is a blank map.
        field: PTX name: global_address, rank (value is rank - 1), box_dim, global_dim,
            global_stride (bytes), element_stride, elemtype, interleave_layout, swizzle_mode,
            swizzle_atomicity or fill_mode.
        value: new value in PTX's own numbering.
        ordinal: dimension; ordinal i of global_stride is the stride of dimension i + 1.

    Raises:
        TensorMapError: the bytes are not a map, or the field or value does not exist.
    """
    unpack(data)
    values = list(_FORMAT.unpack(bytes(data)))
    values[0] = _MAGIC
    single = {
        "rank": (2, 5), "interleave_layout": (3, 3), "swizzle_mode": (4, 5),
        "swizzle_atomicity": (5, 4), "fill_mode": (7, 2), "elemtype": (1, 16),
    }  # fmt: skip
    arrays = {
        "element_stride": (9, 5, 8), "box_dim": (14, 5, 0xFFFF),
        "global_dim": (20, 5, 1 << 32), "global_stride": (25, 4, 1 << 40),
    }  # fmt: skip
    if field == "global_address":
        values[19] = value & 0xFFFFFFFFFFFFFFFF
    elif field in single:
        place, count = single[field]
        if not 0 <= value < count:
            raise TensorMapError(f"tensormap.replace {field}={value}; must be 0..{count - 1}")
        if field == "elemtype":
            value = DATA_TYPES.index(ELEMENTS[_REPLACE_ELEMTYPES[value]])
            values[-1] = 0
        values[place] = value
    elif field in arrays:
        place, count, most = arrays[field]
        if not 0 <= ordinal < count:
            raise TensorMapError(f"tensormap.replace {field} ordinal {ordinal}; 0..{count - 1}")
        if not 0 <= value <= most:
            raise TensorMapError(f"tensormap.replace {field}={value}; must be 0..{most}")
        values[place + ordinal] = max(value - 1, 0) if field == "global_dim" else value
    else:
        raise TensorMapError(
            f"tensormap.replace has no field {field!r}; use global_address, "
            f"{', '.join([*single, *arrays])}"
        )
    return _FORMAT.pack(*values)
