"""Tensor maps for TMA: described and checked without a GPU, encoded by the driver when launched.

``TensorMap.tiled(array, box)`` is what kernels take as an argument. Shape and box are in array
order, outermost axis first, as NumPy writes them. Coordinates inside a kernel follow PTX, innermost
first.
"""

from __future__ import annotations

import ctypes
import dataclasses
import logging
import math
from collections.abc import Sequence
from typing import Any

from nbtc import driver
from nbtc.arguments import ArrayView, view_of
from nbtc.errors import TensorMapError
from nbtc.layout import tensormap_rules
from nbtc.layout.tensormap_description import (
    DATA_TYPES,
    FILLS,
    INTERLEAVES,
    L2_PROMOTIONS,
    SWIZZLES,
    TensorMapDescription,
    element_name,
)
from nbtc.spelling import checked

_log = logging.getLogger("nbtc")

_WIDE_MODES = {"im2col_w": 0, "im2col_w128": 1}  # CUtensorMapIm2ColWideMode
_PACKED_BITS = {"16U4_ALIGN8B": 4, "16U4_ALIGN16B": 4, "16U6_ALIGN16B": 6}
_SMALL = 128 * 1024
_LAST_FAULTY_CUDA = (13, 3)
_EVERY_ALIGNMENT = 32  # meets every rule about base addresses


class TensorMap:
    """A tensor map: pass it to a kernel by value, or describe one without memory.

    Made by `tiled`, `im2col` or `described`. The driver encodes it at the first launch that uses
    it; until then no GPU is needed, and the emulator never needs one.

    Attributes:
        array: the array it maps, kept alive; None for a mere description.
    """

    __slots__ = ("_encoded", "_encoder", "_first", "_view", "array")

    def __init__(
        self, description: TensorMapDescription, array: Any = None, view: ArrayView | None = None
    ) -> None:
        """Wrap a description; use `tiled`, `im2col` or `described` instead."""
        if not isinstance(description, TensorMapDescription):
            raise TensorMapError(
                f"TensorMap({type(description).__name__}): use TensorMap.tiled(array, box, ...) or "
                "TensorMap.im2col"
            )
        self._first = description  # of the array that the map was made for, before any rebind
        self.array = array
        self._view = view
        self._encoded: bytes | None = None
        self._encoder: list[Encoder] = []  # shared by all maps that differ by address only

    @classmethod
    @checked
    def tiled(
        cls,
        array: Any,
        box: Sequence[int],
        *,
        swizzle: str = "none",
        interleave: str = "none",
        l2_promotion: str = "none",
        fill: str = "zero",
        element_strides: Sequence[int] | None = None,
        dtype: Any = None,
        name: str = "",
    ) -> TensorMap:
        """Map an array for TMA copies of boxes.

        Args:
            array: device memory (torch, CuPy, Numba, DLPack, ``__cuda_array_interface__``), or
                NumPy memory where only the emulator or a compile needs the map. Any strides that
                TMA can address: the innermost one 1 element, the others multiples of 16 bytes.
            box: elements per axis that one copy moves, outermost axis first, each 1 to 256. The
                bytes of a whole box count for ``expect_tx`` even where it hangs over the edge.
            swizzle: "none", "32B", "64B", "128B", "128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B" or
                "128B_ATOM_64B": how 16-byte chunks are permuted in shared memory.
            interleave: "none", "16B" or "32B".
            l2_promotion: "none", "64B", "128B" or "256B": least size of an L2 fetch.
            fill: what elements out of bounds read as, "zero" or "nan".
            element_strides: traversal stride per axis, outermost first, 1 to 8; None means 1.
            dtype: element type if it is not the array's own: "tfloat32" for a float32 array,
                "bfloat16" for uint16, "16U4_ALIGN16B" and its kin for packed uint8.
            name: name of the operand for error messages.

        Raises:
            TensorMapError: a rule of ``cuTensorMapEncodeTiled`` is broken; the message names the
                axis in array order, the value, the rule and a right value.
        """
        view = _view(array, name)
        element, shape = _elements(view, dtype, name)
        description = TensorMapDescription.tiled(
            shape,
            element,
            box,
            strides=view.strides,
            address=view.address,
            swizzle=swizzle,
            interleave=interleave,
            l2_promotion=l2_promotion,
            fill=fill,
            element_strides=element_strides,
            name=name,
        )
        return cls(description, array, view)

    @classmethod
    @checked
    def im2col(
        cls,
        array: Any,
        lower_corner: Sequence[int],
        upper_corner: Sequence[int],
        *,
        channels_per_pixel: int,
        pixels_per_column: int,
        wide: str | None = None,
        swizzle: str = "none",
        interleave: str = "none",
        l2_promotion: str = "none",
        fill: str = "zero",
        element_strides: Sequence[int] | None = None,
        dtype: Any = None,
        name: str = "",
    ) -> TensorMap:
        """Map an N[D[H]]WC array (rank 3 to 5, channels last) for im2col copies.

        Args:
            array: as in `tiled`.
            lower_corner: offset of the bounding box from the first pixel, in array order
                ([D, [H,]] W); with ``wide`` only W.
            upper_corner: offset of the bounding box from the last pixel, in the same order.
            channels_per_pixel: channels of one access, at most 256.
            pixels_per_column: pixels of one access, at most 1024.
            wide: None, "w" or "w128" for the wide modes of compute capability 10.0.
            swizzle: as in `tiled`.
            interleave: as in `tiled`.
            l2_promotion: as in `tiled`.
            fill: as in `tiled`.
            element_strides: as in `tiled`.
            dtype: as in `tiled`.
            name: as in `tiled`.

        Raises:
            TensorMapError: a rule of ``cuTensorMapEncodeIm2col`` is broken.
        """
        view = _view(array, name)
        element, shape = _elements(view, dtype, name)
        description = TensorMapDescription.im2col(
            shape,
            element,
            lower_corner,
            upper_corner,
            channels_per_pixel=channels_per_pixel,
            pixels_per_column=pixels_per_column,
            wide=wide,
            strides=view.strides,
            address=view.address,
            swizzle=swizzle,
            interleave=interleave,
            l2_promotion=l2_promotion,
            fill=fill,
            element_strides=element_strides,
            name=name,
        )
        return cls(description, array, view)

    @classmethod
    @checked
    def described(
        cls,
        shape: Sequence[int],
        strides: Sequence[int] | None,
        dtype: Any,
        box: Sequence[int],
        *,
        swizzle: str = "none",
        interleave: str = "none",
        l2_promotion: str = "none",
        fill: str = "zero",
        element_strides: Sequence[int] | None = None,
        name: str = "",
    ) -> TensorMap:
        """Describe a map with no memory and no GPU, to check it or to compile for it.

        Args:
            shape: array shape in elements, outermost axis first.
            strides: bytes per axis, outermost first; None means C-contiguous.
            dtype: element type.
            box: elements per axis of one copy, outermost first.
            swizzle: as in `tiled`.
            interleave: as in `tiled`.
            l2_promotion: as in `tiled`.
            fill: as in `tiled`.
            element_strides: as in `tiled`.
            name: as in `tiled`.

        Raises:
            TensorMapError: a rule of ``cuTensorMapEncodeTiled`` is broken.
        """
        description = TensorMapDescription.tiled(
            shape,
            _element(dtype),
            box,
            strides=strides,
            swizzle=swizzle,
            interleave=interleave,
            l2_promotion=l2_promotion,
            fill=fill,
            element_strides=element_strides,
            name=name,
        )
        return cls(description)

    def rebind(self, array: Any) -> TensorMap:
        """Return this map over another array of the same shape, strides and dtype.

        Cheaper than a new map: only the base address is checked and changed.

        Raises:
            TensorMapError: the array lies differently, or its base address is not aligned.
        """
        name = self._first.name
        view = _view(array, name)
        old = self._view
        if (
            old is None
            or view.shape != old.shape
            or view.strides != old.strides
            or view.dtype != old.dtype
        ):
            have = "no array" if old is None else old.describe()
            raise TensorMapError(
                f"rebind: {view.describe()} given, the map was made for {have}; make a new map"
            )
        if view.address % _EVERY_ALIGNMENT:
            self._first.with_address(view.address)  # raises, or a smaller alignment will do
        made = TensorMap(self._first, array, view)
        made._encoder = self._encoder
        return made

    @property
    def description(self) -> TensorMapDescription:
        """Everything the map says, checked against the rules of the driver."""
        view = self._view
        if view is None or view.address == self._first.address:
            return self._first
        return self._first.with_address(view.address)

    @property
    def box_bytes(self) -> int:
        """Bytes that one copy adds to ``complete_tx`` of its barrier; what ``expect_tx`` takes."""
        return self._first.box_bytes

    @property
    def smem_bytes(self) -> int:
        """Bytes that one box occupies in shared memory."""
        return self._first.smem_bytes

    @property
    def shape(self) -> tuple[int, ...]:
        """Array shape in elements, outermost axis first."""
        return self._first.dims[::-1]

    @property
    def box(self) -> tuple[int, ...]:
        """Elements per axis of one copy, outermost axis first."""
        return self._first.box[::-1]

    @property
    def dtype(self) -> str:
        """Name of the element type."""
        return self._first.dtype

    @property
    def encoded(self) -> bytes:
        """The 128 bytes that the hardware reads, encoded by the driver at first use.

        Raises:
            TensorMapError: the map has no device memory, or the driver refuses it.
            DriverError: there is no driver.
        """
        found = self._encoded
        if found is None:
            found = self._encoded = self._encode()
        return found

    def __repr__(self) -> str:
        """Show the description, in both orders."""
        return repr(self.description)

    def _encode(self) -> bytes:
        view = self._view
        if view is None:
            raise TensorMapError(
                f"{self!r} describes no memory: make it with TensorMap.tiled(array, ...) to launch"
            )
        if not view.on_device:
            raise TensorMapError(
                f"{self!r} maps host memory, which TMA cannot reach; only the emulator uses it. "
                "Move the array to the GPU"
            )
        if not self._encoder:
            driver.ensure_context(view.device)
            self._encoder.append(Encoder(self._first, driver.current_device()))
        return self._encoder[0](view.address)


class Encoder:
    """Encodes one description for any base address: the driver's arguments, converted once."""

    def __init__(self, description: TensorMapDescription, device: int = 0) -> None:
        """Convert the arguments.

        Args:
            description: a checked description.
            device: index of the GPU that will use it (for the workaround of a driver fault).
        """
        api = driver.api()
        d = self._description = description
        tensormap_rules.check_target(d, driver.compute_capability(device))
        self._before = (api.CUtensorMapDataType(DATA_TYPES.index(d.data_type)), d.rank)
        sizes = (
            [api.cuuint64_t(v) for v in d.dims],
            # The driver refuses NULL, which is what an empty list becomes; rank 1 has no strides.
            [api.cuuint64_t(v) for v in d.strides or (16,)],
        )
        steps = [api.cuuint32_t(v) for v in d.element_strides or (1,) * d.rank]
        interleave = api.CUtensorMapInterleave(INTERLEAVES.index(d.interleave))
        tail = (
            api.CUtensorMapSwizzle(SWIZZLES.index(d.swizzle)),
            api.CUtensorMapL2promotion(L2_PROMOTIONS.index(d.l2_promotion)),
            api.CUtensorMapFloatOOBfill(FILLS.index(d.fill)),
        )
        if d.mode == "tiled":
            self._call = api.cuTensorMapEncodeTiled
            box = [api.cuuint32_t(v) for v in d.box]
            self._after = (*sizes, box, steps, interleave, *tail)
        elif d.mode == "im2col":
            # The driver takes corners as the description keeps them, innermost (W) first.
            self._call = api.cuTensorMapEncodeIm2col
            corners = (list(d.lower_corner), list(d.upper_corner))
            self._after = (*sizes, *corners, *d.box, steps, interleave, *tail)
        else:
            self._call = api.cuTensorMapEncodeIm2colWide
            corners = (d.lower_corner[0], d.upper_corner[0])
            mode = api.CUtensorMapIm2ColWideMode(_WIDE_MODES[d.mode])
            self._after = (*sizes, *corners, *d.box, steps, interleave, mode, *tail)
        self._faulty = _is_faulty(d, device)

    def __call__(self, address: int) -> bytes:
        """Return the 128 bytes for a base address.

        Raises:
            TensorMapError: the driver refuses the map although every known rule holds.
        """
        status, made = self._call(*self._before, address, *self._after)
        if status:
            raise TensorMapError(
                f"the driver refuses this tensor map ({status.name}) although every rule that "
                f"nbtc knows holds: {self._description!r}, encoded for address {address:#x}"
            )
        encoded = ctypes.string_at(made.getPtr(), 128)
        if self._faulty:
            _log.warning(
                "tensor map %r: this driver encodes small non-dense maps wrongly on Blackwell; "
                "bit 85 cleared",
                self._description,
            )
            encoded = clear_bit_85(encoded)
        return encoded


def clear_bit_85(encoded: bytes) -> bytes:
    """Return an encoded map with bit 85 cleared."""
    byte = encoded[10] & ~(1 << 5) & 0xFF
    return encoded[:10] + bytes((byte,)) + encoded[11:]


def _is_faulty(description: TensorMapDescription, device: int) -> bool:
    """Return whether the driver gets this map wrong.

    Known issue in the notes of driver 595: on Blackwell, maps of allocations below 128 KiB that are
    not dense may fault sporadically until bit 85 is cleared. The tensor's own extent stands for the
    allocation, which is never smaller. Drivers up to CUDA 13.3 are taken as affected.
    """
    if driver.compute_capability(device)[0] != 10 or driver.cuda_version() > _LAST_FAULTY_CUDA:
        return False
    bits = description.element_bits
    dims, strides = description.dims, description.strides
    extent = dims[0] * bits // 8
    dense = True
    pitch = dims[0] * bits // 8
    for size, stride in zip(dims[1:], strides, strict=True):
        dense = dense and (size == 1 or stride == pitch)
        pitch *= size
        extent += (size - 1) * stride
    return extent < _SMALL and not dense


def _view(array: Any, name: str) -> ArrayView:
    what = f"tensor map for {name!r}: " if name else "tensor map: "
    if array is None:
        raise TensorMapError(f"{what}null base; no map is needed when the operand is absent")
    view = view_of(array)
    if view is None:
        raise TensorMapError(
            f"{what}a {type(array).__name__} is not an array: pass a torch, CuPy, Numba or NumPy "
            "array, or use TensorMap.described(shape, strides, dtype, box)"
        )
    if math.prod(view.shape) == 0:
        axis = view.shape.index(0)
        raise TensorMapError(
            f"{what}axis {axis} of shape {view.shape} is zero-size; no map is needed when the "
            "operand is absent"
        )
    return view


def _element(dtype: Any) -> str:
    name = str(dtype)
    return element_name(name.removeprefix("torch.") if name.startswith("torch.") else dtype)


def _elements(view: ArrayView, dtype: Any, name: str) -> tuple[str, tuple[int, ...]]:
    """Return element name and shape in those elements, for a dtype that may not be the array's.

    Packed 4- and 6-bit types count elements, their arrays bytes.
    """
    element = _element(view.dtype if dtype is None else dtype)
    if dtype is None:
        return element, view.shape
    what = f"tensor map for {name!r}: " if name else "tensor map: "
    item = view.dtype.itemsize
    if element in _PACKED_BITS:
        if item != 1:
            raise TensorMapError(f"{what}dtype={element} needs a uint8 array, got {view.dtype}")
        return element, (*view.shape[:-1], view.shape[-1] * 8 // _PACKED_BITS[element])
    bits = dataclasses.replace(_BLANK, dtype=element).element_bits
    if bits != 8 * item:
        raise TensorMapError(
            f"{what}dtype={element} has {bits} bits, the array's {view.dtype.name} has {8 * item}"
        )
    return element, view.shape


_BLANK = TensorMapDescription(dtype="uint8", dims=(1,), strides=(), box=(1,))
