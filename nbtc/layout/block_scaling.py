"""Quantise to the block-scaled formats of tcgen05 (mxf8f6f4, mxf4, mxf4nvf4), and back.

Host-side NumPy references. A block of 16 or 32 elements along the last axis shares one scale
factor; the value of an element is ``element * scale``. Scale factors are laid out for the tensor
cores by `nbtc.layout.scale_factors.pack`.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from nbtc.dtypes import canonical
from nbtc.errors import LayoutError

_ELEMENTS = ("float8_e4m3fn", "float8_e5m2", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn")
_SCALES = {"ue8m0": ml_dtypes.float8_e8m0fnu, "ue4m3": ml_dtypes.float8_e4m3fn}


def _blocks(array: np.ndarray, block: int) -> np.ndarray:
    if block not in (16, 32):
        raise LayoutError(f"block of {block}; must be 16 or 32")
    if array.ndim < 1 or array.shape[-1] % block:
        raise LayoutError(
            f"last axis of shape {array.shape} must be a multiple of the block, {block}"
        )
    return array.reshape(*array.shape[:-1], -1, block)


def quantize(
    values: Any, element: Any = "float8_e4m3fn", *, block: int = 32, scale: str = "ue8m0"
) -> tuple[np.ndarray, np.ndarray]:
    """Round values to a block-scaled format.

    A ue8m0 scale is the smallest power of two with which the block's largest value fits, so
    nothing saturates; a ue4m3 scale (nvfp4: block 16, float4_e2m1fn) is the nearest to
    ``largest / element maximum``, at most 448, and what exceeds it saturates.

    Args:
        values: array of finite floats; the last axis is K.
        element: element dtype, 8, 6 or 4 bits wide.
        block: elements per scale factor along the last axis, 16 or 32.
        scale: "ue8m0" or "ue4m3".

    Returns:
        Elements (ml_dtypes dtype, one per byte, same shape) and scale factors (ml_dtypes dtype,
        last axis divided by ``block``).

    Raises:
        LayoutError: unknown format, or a last axis that is not a multiple of the block.
    """
    kind = canonical(element)
    if kind.name not in _ELEMENTS:
        raise LayoutError(f"element {kind.name}; must be one of {', '.join(_ELEMENTS)}")
    if scale not in _SCALES:
        raise LayoutError(f"scale {scale!r}; must be 'ue8m0' or 'ue4m3'")
    parts = _blocks(np.asarray(values, np.float64), block)
    most = float(ml_dtypes.finfo(kind.numpy).max)
    wanted = np.abs(parts).max(axis=-1) / most
    if scale == "ue8m0":
        mantissa, exponent = np.frexp(wanted)  # wanted = mantissa * 2**exponent, 0.5 <= m < 1
        exponent = np.where(mantissa == 0.5, exponent - 1, exponent)
        exponent = np.where(wanted == 0, 0, np.clip(exponent, -127, 127))
        factors = np.ldexp(1.0, exponent).astype(_SCALES[scale])
    else:
        # A factor of 0 would lose the block, so tiny ones become the least e4m3 value.
        least = 2.0**-9
        wanted = np.where(wanted == 0, 1.0, np.clip(wanted, least, 448.0))
        factors = wanted.astype(_SCALES[scale])
    scaled = parts / factors.astype(np.float64)[..., None]
    elements = np.clip(scaled, -most, most).astype(np.float32).astype(kind.numpy)
    return elements.reshape(np.shape(values)), factors


def dequantize(elements: Any, factors: Any, *, block: int = 32) -> np.ndarray:
    """Return the float32 values of elements and their scale factors, as from `quantize`.

    Raises:
        LayoutError: the shapes do not fit each other.
    """
    parts = _blocks(np.asarray(elements).astype(np.float32), block)
    scales = np.asarray(factors).astype(np.float32)
    if scales.shape != parts.shape[:-1]:
        raise LayoutError(
            f"scale factors of shape {scales.shape}; elements of shape {np.shape(elements)} in "
            f"blocks of {block} need {parts.shape[:-1]}"
        )
    return (parts * scales[..., None]).reshape(np.shape(elements))


def pack_elements(elements: Any) -> np.ndarray:
    """Pack 4- or 6-bit elements, one per byte, densely along the last axis, low bits first.

    This is the order in global memory of the tensor-map types 16U4 and 16U6, and of mxf4 operands
    in shared memory.

    Args:
        elements: array of a 4- or 6-bit ml_dtypes dtype; the last axis is a multiple of 4.

    Returns:
        uint8 array whose last axis has ``bits / 8`` as many bytes.

    Raises:
        LayoutError: another dtype or an odd length.
    """
    array = np.ascontiguousarray(elements)
    bits = canonical(array.dtype).bits
    if bits not in (4, 6) or array.shape[-1] % 4:
        raise LayoutError(
            f"{array.dtype} of shape {array.shape}; must be a 4- or 6-bit type with a last axis "
            "that is a multiple of 4"
        )
    spread = np.unpackbits(array.view(np.uint8)[..., None], axis=-1, bitorder="little")[..., :bits]
    return np.packbits(spread.reshape(*array.shape[:-1], -1), axis=-1, bitorder="little")


def unpack_elements(packed: Any, dtype: Any) -> np.ndarray:
    """Return the elements, one per byte, of bytes made by `pack_elements`."""
    kind = canonical(dtype)
    spread = np.unpackbits(np.ascontiguousarray(packed, np.uint8), axis=-1, bitorder="little")
    groups = spread.reshape(*spread.shape[:-1], -1, kind.bits)
    values = np.packbits(groups, axis=-1, bitorder="little")[..., 0]
    return values.view(kind.numpy)
