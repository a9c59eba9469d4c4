"""A pure description of a tensor map: what ``cuTensorMapEncode*`` is told, with every rule checked.

No driver and no GPU. The host side encodes a description with the driver
(`nbtc.tensormap`), the emulator packs it into 128 bytes of nbtc's own format and reads it back.

Arguments of the constructors are in *array order*, outermost axis first, as NumPy writes a shape.
The fields of the object are in *map order*, innermost dimension first, as the driver and PTX
coordinates have them; axis ``a`` of an array of rank ``r`` is map dimension ``r - 1 - a``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from nbtc.dtypes import canonical
from nbtc.errors import TensorMapError
from nbtc.layout.swizzle import span

DATA_TYPES = (
    "UINT8", "UINT16", "UINT32", "INT32", "UINT64", "INT64", "FLOAT16", "FLOAT32", "FLOAT64",
    "BFLOAT16", "FLOAT32_FTZ", "TFLOAT32", "TFLOAT32_FTZ",
    "16U4_ALIGN8B", "16U4_ALIGN16B", "16U6_ALIGN16B",
)  # fmt: skip
"""CUtensorMapDataType names; the index is the value of the driver's enumeration."""

INTERLEAVES = ("none", "16B", "32B")
"""CUtensorMapInterleave names by value."""

SWIZZLES = (
    "none", "32B", "64B", "128B", "128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B",
)  # fmt: skip
"""CUtensorMapSwizzle names by value. PTX's 96B (sm_103a) exists only in ``tensormap.replace``."""

L2_PROMOTIONS = ("none", "64B", "128B", "256B")
"""CUtensorMapL2promotion names by value."""

FILLS = ("zero", "nan")
"""CUtensorMapFloatOOBfill names by value."""

_ALIGN16B = ("16U4_ALIGN16B", "16U6_ALIGN16B")
_PACKED_BITS = {"16U4_ALIGN8B": 4, "16U4_ALIGN16B": 4, "16U6_ALIGN16B": 6}
_BITS = {
    "UINT8": 8, "UINT16": 16, "UINT32": 32, "INT32": 32, "UINT64": 64, "INT64": 64,
    "FLOAT16": 16, "FLOAT32": 32, "FLOAT64": 64, "BFLOAT16": 16, "FLOAT32_FTZ": 32,
    "TFLOAT32": 32, "TFLOAT32_FTZ": 32, **_PACKED_BITS,
}  # fmt: skip

# The index of a name is stored in the packed form, so only append.
ELEMENTS: dict[str, str] = {
    "uint8": "UINT8", "int8": "UINT8", "bool": "UINT8",
    "uint16": "UINT16", "int16": "UINT16",
    "uint32": "UINT32", "int32": "INT32", "uint64": "UINT64", "int64": "INT64",
    "float16": "FLOAT16", "float32": "FLOAT32", "float64": "FLOAT64", "bfloat16": "BFLOAT16",
    "tfloat32": "TFLOAT32", "float32_ftz": "FLOAT32_FTZ", "tfloat32_ftz": "TFLOAT32_FTZ",
    "float8_e4m3fn": "UINT8", "float8_e5m2": "UINT8", "float8_e8m0fnu": "UINT8",
    "16U4_ALIGN8B": "16U4_ALIGN8B", "16U4_ALIGN16B": "16U4_ALIGN16B",
    "16U6_ALIGN16B": "16U6_ALIGN16B",
}  # fmt: skip
ELEMENT_NAMES = tuple(ELEMENTS)
"""Element names that a map can have."""

SWIZZLE_SPAN = {
    "none": 0, "32B": 32, "64B": 64, "96B": 96, "128B": 128, "128B_ATOM_32B": 128,
    "128B_ATOM_32B_FLIP_8B": 128, "128B_ATOM_64B": 128,
}  # fmt: skip
"""Bytes of one swizzled row, 0 without a swizzle."""


def element_name(dtype: Any) -> str:
    """Return the element name of a dtype: `nbtc.dtypes` names plus the driver's own type names.

    Raises:
        TensorMapError: the type has no tensor-map data type.
        DtypeError: the type is not known at all.
    """
    name = dtype if isinstance(dtype, str) and dtype in ELEMENTS else canonical(dtype).name
    if name not in ELEMENTS:
        raise TensorMapError(
            f"element type {name!r} has no tensor-map data type; packed 4- and 6-bit arrays use "
            "'16U4_ALIGN8B', '16U4_ALIGN16B' or '16U6_ALIGN16B' with shapes in elements, one "
            f"element per byte is 'uint8'. Known: {', '.join(ELEMENT_NAMES)}"
        )
    return name


@dataclass(frozen=True, repr=False)
class TensorMapDescription:
    """What a tensor map says. Build one with `tiled` or `im2col`; fields are innermost first.

    The class itself checks nothing, because ``tensormap.replace`` passes through states that are
    not legal maps; `tiled`, `im2col` and `validate` apply the rules of the driver.

    Attributes:
        dtype: canonical element name ("bfloat16", "float8_e4m3fn", "16U4_ALIGN16B", ...).
        dims: elements per dimension, innermost first.
        strides: bytes between elements of dimensions 1.., ``rank - 1`` entries.
        box: elements per dimension that one copy covers (im2col: channels per pixel, pixels per
            column).
        address: global base address; 0 while not bound.
        element_strides: traversal stride per dimension.
        interleave, swizzle, l2_promotion, fill: names in `INTERLEAVES`, `SWIZZLES`,
            `L2_PROMOTIONS`, `FILLS`.
        mode: "tiled", "im2col", "im2col_w" or "im2col_w128".
        lower_corner, upper_corner: bounding box of im2col, innermost (W) first.
    """

    dtype: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    address: int = 0
    element_strides: tuple[int, ...] = ()
    interleave: str = "none"
    swizzle: str = "none"
    l2_promotion: str = "none"
    fill: str = "zero"
    mode: str = "tiled"
    lower_corner: tuple[int, ...] = ()
    upper_corner: tuple[int, ...] = ()
    name: str = dataclasses.field(default="", compare=False)

    @classmethod
    def tiled(
        cls,
        shape: Sequence[int],
        dtype: Any,
        box: Sequence[int],
        *,
        strides: Sequence[int] | None = None,
        address: int | None = None,
        swizzle: str = "none",
        interleave: str = "none",
        l2_promotion: str = "none",
        fill: str = "zero",
        element_strides: Sequence[int] | None = None,
        name: str = "",
    ) -> TensorMapDescription:
        """Describe a tiled map of an array.

        Args:
            shape: array shape, outermost axis first, in elements.
            dtype: element type; packed 4- and 6-bit arrays use the driver's names, for example
                "16U4_ALIGN16B", with shapes counted in elements.
            box: elements per axis that one copy covers, outermost axis first.
            strides: bytes per axis, outermost first, all axes; None means C-contiguous.
            address: global base address in bytes; None leaves the map unbound (a compile or a
                description needs none), see `with_address`.
            swizzle: "none", "32B", "64B", "128B", "128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B" or
                "128B_ATOM_64B".
            interleave: "none", "16B" or "32B".
            l2_promotion: "none", "64B", "128B" or "256B".
            fill: what out-of-bounds elements read as: "zero" or "nan".
            element_strides: traversal stride per axis, outermost first; None means 1.
            name: name of the operand for error messages.

        Raises:
            TensorMapError: a rule of ``cuTensorMapEncodeTiled`` is broken; the message names the
                axis in array order, the value, the rule and a right value.
        """
        element = element_name(dtype)
        rank = len(shape)
        _check_lengths(name, rank, box=box, element_strides=element_strides, strides=strides)
        steps = (1,) * rank if element_strides is None else tuple(element_strides)
        description = cls(
            dtype=element,
            dims=_integers(name, "shape", shape)[::-1],
            strides=_map_strides(name, element, shape, strides),
            box=_integers(name, "box", box)[::-1],
            address=_bound(name, address),
            element_strides=_integers(name, "element_strides", steps)[::-1],
            interleave=interleave,
            swizzle=swizzle,
            l2_promotion=l2_promotion,
            fill=fill,
            name=name,
        )
        description.validate()
        return description

    @classmethod
    def im2col(
        cls,
        shape: Sequence[int],
        dtype: Any,
        lower_corner: Sequence[int],
        upper_corner: Sequence[int],
        *,
        channels_per_pixel: int,
        pixels_per_column: int,
        wide: str | None = None,
        strides: Sequence[int] | None = None,
        address: int | None = None,
        swizzle: str = "none",
        interleave: str = "none",
        l2_promotion: str = "none",
        fill: str = "zero",
        element_strides: Sequence[int] | None = None,
        name: str = "",
    ) -> TensorMapDescription:
        """Describe an im2col map of an N[D[H]]WC array (rank 3 to 5, channels last).

        Args:
            shape: array shape, outermost (N) first.
            dtype: element type.
            lower_corner: offset of the bounding box from the first pixel, in array order
                ([D, [H,]] W); with ``wide`` only W.
            upper_corner: offset of the bounding box from the last pixel, in the same order.
            channels_per_pixel: channels of one access, at most 256.
            pixels_per_column: pixels of one access, at most 1024.
            wide: None, "w" or "w128" for the wide modes of compute capability 10.0.
            strides: as in `tiled`.
            address: as in `tiled`.
            swizzle: as in `tiled`.
            interleave: as in `tiled`.
            l2_promotion: as in `tiled`.
            fill: as in `tiled`.
            element_strides: traversal stride per axis, outermost first.
            name: as in `tiled`.

        Raises:
            TensorMapError: a rule of ``cuTensorMapEncodeIm2col`` is broken.
        """
        element = element_name(dtype)
        rank = len(shape)
        if wide not in (None, "w", "w128"):
            _fail(name, f"wide={wide!r}; must be None, 'w' or 'w128'")
        _check_lengths(name, rank, strides=strides, element_strides=element_strides)
        steps = (1,) * rank if element_strides is None else tuple(element_strides)
        description = cls(
            dtype=element,
            dims=_integers(name, "shape", shape)[::-1],
            strides=_map_strides(name, element, shape, strides),
            box=(int(channels_per_pixel), int(pixels_per_column)),
            address=_bound(name, address),
            element_strides=_integers(name, "element_strides", steps)[::-1],
            interleave=interleave,
            swizzle=swizzle,
            l2_promotion=l2_promotion,
            fill=fill,
            mode="im2col" if wide is None else f"im2col_{wide}",
            lower_corner=_integers(name, "lower_corner", lower_corner)[::-1],
            upper_corner=_integers(name, "upper_corner", upper_corner)[::-1],
            name=name,
        )
        description.validate()
        return description

    @cached_property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    @cached_property
    def data_type(self) -> str:
        """Name of the driver's CUtensorMapDataType, in `DATA_TYPES`."""
        return ELEMENTS[self.dtype]

    @cached_property
    def element_bits(self) -> int:
        """Bits of one element in global memory."""
        return _BITS[self.data_type]

    @cached_property
    def box_shape(self) -> tuple[int, ...]:
        """Elements per dimension that reach shared memory, innermost first."""
        if self.mode != "tiled":
            return self.box
        steps = self.element_strides or (1,) * self.rank
        # A stride of 0 is a field that tensormap.replace has not written yet.
        counts = [-(-size // (step or 1)) for size, step in zip(self.box, steps, strict=True)]
        if self.interleave == "none":
            counts[0] = self.box[0]  # the driver ignores the innermost element stride here
        return tuple(counts)

    @cached_property
    def box_bytes(self) -> int:
        """Bytes that one copy adds to ``complete_tx``: the whole box, out of bounds or not.

        Packed 4- and 6-bit types count packed bytes, not their padded form in shared memory.
        """
        return self._box_elements * self.element_bits // 8

    @cached_property
    def smem_bytes(self) -> int:
        """Bytes that one copy occupies in shared memory.

        The ALIGN16B types are padded, and rows narrower than the swizzle's span lie a span apart.
        """
        # 16 elements of an ALIGN16B type take 16 bytes.
        wide = self.data_type in _ALIGN16B
        total = self._box_elements if wide else self.box_bytes
        row = self.box_shape[0] if wide else self.box_shape[0] * self.element_bits // 8
        if self.swizzle == "none" or self.mode != "tiled" or row >= span(self.swizzle):
            return total
        return (total // row - 1) * span(self.swizzle) + row

    @property
    def _box_elements(self) -> int:
        total = 1
        for count in self.box_shape:
            total *= count
        return total

    def axis(self, dim: int) -> int:
        """Return the array axis of a map dimension."""
        return self.rank - 1 - dim

    def with_address(self, address: int) -> TensorMapDescription:
        """Return this map bound to a global base address, checked as in `tiled`."""
        bound = dataclasses.replace(self, address=_bound(self.name, address))
        _check_address(bound)
        return bound

    def validate(self) -> None:
        """Check every rule of the driver; raise `TensorMapError` on the first one broken."""
        from nbtc.layout import tensormap_rules

        tensormap_rules.check(self)

    def advice(self) -> list[str]:
        """Return remarks on legal but suspicious maps, axes in array order."""
        remarks = []
        if self.mode == "tiled":
            for dim in reversed(range(self.rank)):
                if self.box[dim] > self.dims[dim]:
                    axis = self.axis(dim)
                    remarks.append(
                        f"box[{axis}]={self.box[dim]} is larger than the array's axis {axis} "
                        f"({self.dims[dim]}): shape and box are in array order, outermost first"
                    )
            row, span = self.box[0] * self.element_bits // 8, SWIZZLE_SPAN[self.swizzle]
            if self.interleave == "none" and row < span:
                remarks.append(
                    f"the box row is {row} B, narrower than the {span} B rows of "
                    f"SWIZZLE_{self.swizzle}: matrix descriptors expect full rows"
                )
        return remarks

    def pack(self, address: int | None = None) -> bytes:
        """Return the map as 128 bytes of nbtc's own format (not the driver's opaque one).

        Args:
            address: base address to store instead of the map's own.
        """
        from nbtc.layout import tensormap_bytes

        return tensormap_bytes.pack(self, address)

    @classmethod
    def unpack(cls, data: bytes | bytearray | memoryview) -> TensorMapDescription:
        """Read back 128 bytes made by `pack`; 128 zero bytes are a blank map of rank 1.

        Raises:
            TensorMapError: the bytes are not a map of this format.
        """
        from nbtc.layout import tensormap_bytes

        return tensormap_bytes.unpack(data)

    @staticmethod
    def replace_field(
        data: bytes | bytearray | memoryview, field: str, value: int, ordinal: int = 0
    ) -> bytes:
        """Apply one ``tensormap.replace``; see `tensormap_bytes.replace_field`."""
        from nbtc.layout import tensormap_bytes

        return tensormap_bytes.replace_field(data, field, value, ordinal)

    def __repr__(self) -> str:
        """Show both orders."""
        text = (
            f"TensorMap({self.dtype}, shape={self.dims[::-1]} box={self.box[::-1]} in array order "
            f"(outermost first); map order: dims={self.dims} strides={self.strides} bytes "
            f"box={self.box}, swizzle={self.swizzle!r}, box_bytes={self.box_bytes}, "
            f"address={self.address:#x}"
        )
        if any(step != 1 for step in self.element_strides):
            text += f", element_strides={self.element_strides}"
        for field, usual in (("interleave", "none"), ("fill", "zero"), ("mode", "tiled")):
            value = getattr(self, field)
            if value != usual:
                text += f", {field}={value!r}"
        return text + ")"


def _fail(name: str, message: str) -> None:
    raise TensorMapError(f"tensor map for {name!r}: {message}" if name else message)


def _integers(name: str, what: str, values: Sequence[int]) -> tuple[int, ...]:
    try:
        return tuple(value.__index__() for value in values)
    except AttributeError:
        _fail(name, f"{what}={tuple(values)!r}; every entry must be an integer")
        raise


def _check_lengths(name: str, rank: int, **lists: Sequence[int] | None) -> None:
    if not 1 <= rank <= 5:
        _fail(name, f"rank {rank}; a tensor map has 1 to 5 dimensions")
    for what, values in lists.items():
        if values is not None and not hasattr(values, "__len__"):
            _fail(name, f"{what}={values!r}; needs a tuple of integers, one per axis")
        if values is not None and len(values) != rank:
            _fail(name, f"{what} has {len(values)} entries for an array of rank {rank}")


def _bound(name: str, address: int | None) -> int:
    if address is None:
        return 0
    if address == 0:
        _fail(name, "null base; no map is needed when the operand is absent")
    return int(address)


def _check_address(description: TensorMapDescription) -> None:
    from nbtc.layout import tensormap_rules

    tensormap_rules.check_address(description)


def _map_strides(
    name: str, element: str, shape: Sequence[int], strides: Sequence[int] | None
) -> tuple[int, ...]:
    """Turn array-order byte strides of all axes into the map's strides of dimensions 1.."""
    bits = _BITS[ELEMENTS[element]]
    sizes = _integers(name, "shape", shape)
    if strides is None:
        result, pitch = [], bits
        for size in reversed(sizes[1:]):
            pitch *= size
            result.append(-(-pitch // 8))
        return tuple(result)
    given = _integers(name, "strides", strides)
    packed = element in _PACKED_BITS
    inner = 1 if packed else bits // 8
    if sizes[-1] > 1 and given[-1] != inner:
        shown = f"{given[-1] // inner} elements" if given[-1] % inner == 0 else f"{given[-1]} bytes"
        _fail(
            name,
            f"innermost stride (axis {len(sizes) - 1}) is {shown}; TMA needs 1. Swap axes so that "
            "the contiguous one is last (map dims are innermost first) or copy the array",
        )
    # The stride of an axis of size 1 is never used, so a value the driver refuses is replaced.
    return tuple(
        -(-max(stride, 16) // 32) * 32
        if size == 1 and (stride % 32 or stride < 0 or stride >= 1 << 40)
        else stride
        for size, stride in zip(reversed(sizes[:-1]), reversed(given[:-1]), strict=True)
    )
