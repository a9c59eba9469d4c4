"""Matrices in narrow formats: packed elements, and scale factors laid out for the tensor cores."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from nbtc.dtypes import canonical
from nbtc.errors import LayoutError
from nbtc.layout import block_scaling, scale_factors
from nbtc.spelling import checked

K_MULTIPLE = 128
"""Elements that rows are padded to with zeros: TMA unpacks 4- and 6-bit types in rows of 128."""

_ALIGNMENT = 128
_ELEMENTS = ("float8_e4m3fn", "float8_e5m2", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn")


@dataclass(frozen=True, eq=False)
class Quantized:
    """A matrix of 8-, 6- or 4-bit floats, with or without block scale factors.

    K, the dimension that a product sums over, is contiguous. Made by :func:`quantize` on the host;
    to run on a GPU, replace the two arrays by copies there (``dataclasses.replace``).

    Attributes:
        data: uint8 array of (rows, bytes of a padded row); 4- and 6-bit elements densely packed,
            low bits first.
        scales: uint8 buffer in the order of ``nbtc.layout.scale_factors``, or None.
        dtype: element type.
        rows: rows of the matrix as stored: M of A, N of B.
        k: elements of a row.
        block: elements that share a scale factor, 32 or 16; 0 without scale factors.
        scale: ``"ue8m0"``, ``"ue4m3"`` or ``""``.
        transposed: whether the matrix is the transpose of what is stored.
    """

    data: Any
    scales: Any
    dtype: str
    rows: int
    k: int
    block: int = 0
    scale: str = ""
    transposed: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        return (self.k, self.rows) if self.transposed else (self.rows, self.k)

    @property
    def T(self) -> Quantized:
        """The transposed matrix, sharing memory: what ``matmul`` takes as ``b``."""
        return dataclasses.replace(self, transposed=not self.transposed)

    @property
    def padded_k(self) -> int:
        """Elements of a row with its padding."""
        return -(-self.k // K_MULTIPLE) * K_MULTIPLE

    @property
    def key(self) -> tuple[Any, ...]:
        """What decides how to multiply it: everything but the addresses."""
        return (
            type(self.data), self.shape, self.dtype, self.block, self.scale, self.transposed,
        )  # fmt: skip

    def __repr__(self) -> str:
        scales = f", {self.scale} for {self.block} each" if self.block else ""
        return f"<Quantized {self.shape[0]} x {self.shape[1]} {self.dtype}{scales}>"

    def dequantize(self) -> np.ndarray[Any, Any]:
        """Return the values as float32, for NumPy arrays."""
        kind = canonical(self.dtype)
        raw = np.asarray(self.data)
        unpacked = block_scaling.unpack_elements(raw, kind) if kind.bits < 8 else raw
        elements = unpacked.view(kind.numpy)
        values = elements.astype(np.float32)
        if self.block:
            kinds = {"ue8m0": ml_dtypes.float8_e8m0fnu, "ue4m3": ml_dtypes.float8_e4m3fn}
            blocks = self.padded_k // self.block
            factors = scale_factors.unpack(np.asarray(self.scales), self.rows, blocks)
            values = block_scaling.dequantize(
                elements, factors.view(kinds[self.scale]), block=self.block
            )
        values = np.ascontiguousarray(values[:, : self.k])
        return values.T if self.transposed else values


@checked
def quantize(
    values: Any, dtype: Any = "float8_e4m3fn", *, block: int = 0, scale: str = ""
) -> Quantized:
    """Round a matrix to 8-, 6- or 4-bit floats, as an operand of ``matmul`` on Blackwell.

    nvfp4 is ``quantize(x, "float4_e2m1fn", block=16)``, mxfp8 ``quantize(x, block=32)``. Without a
    block the elements are rounded as they are, so the values must fit the type.

    Args:
        values: array of finite floats, rows x K.
        dtype: element type.
        block: elements along K that share a scale factor: 32, 16 (nvfp4) or 0.
        scale: type of the scale factors; default ``"ue8m0"`` for blocks of 32, ``"ue4m3"`` for 16.

    Returns:
        The matrix, in NumPy memory; its transpose ``.T`` is what ``matmul`` takes as ``b``.

    Raises:
        LayoutError: not a matrix, or a format that does not exist.
    """
    array = np.asarray(values, np.float32)
    kind = canonical(dtype)
    if array.ndim != 2:
        raise LayoutError(f"quantize: shape {array.shape}; needs two dimensions (rows, K)")
    if kind.name not in _ELEMENTS:
        raise LayoutError(f"quantize: dtype={kind.name}; legal: {', '.join(_ELEMENTS)}")
    if scale and not block:
        raise LayoutError(f"quantize: scale={scale!r} without blocks; set block=32 or block=16")
    rows, k = array.shape
    padded = np.zeros((rows, -(-k // K_MULTIPLE) * K_MULTIPLE), np.float32)
    padded[:, :k] = array
    scales = None
    if block:
        scale = scale or ("ue4m3" if block == 16 else "ue8m0")
        elements, factors = block_scaling.quantize(padded, kind, block=block, scale=scale)
        scales = aligned(scale_factors.pack(factors))
    else:
        most = float(ml_dtypes.finfo(kind.numpy).max)
        elements = np.clip(padded, -most, most).astype(kind.numpy)
    packed = block_scaling.pack_elements(elements) if kind.bits < 8 else elements.view(np.uint8)
    return Quantized(aligned(packed), scales, kind.name, rows, k, block, scale)


def aligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a copy of an array whose data starts at a multiple of 128 bytes."""
    raw = np.empty(array.nbytes + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
