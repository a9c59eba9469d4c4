"""Number formats of MMA operands: raw memory to float32 values, exactly.

Every operand format up to 19 significant bits converts to float32 without loss; integers up to 8
bits too, and a product sum of one instruction stays exact in float32 (at most 256 terms of
255 * 255), so that one matrix product serves all types.
"""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy as np

from nbtc.emulator.units import UnitFault

BITS = {
    "f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "b1": 1,
    "e2m3": 6, "e3m2": 6, "e2m1": 4,
}  # fmt: skip
"""Bits of one value."""

_NARROW = {
    "e4m3": (ml_dtypes.float8_e4m3fn, 8), "e5m2": (ml_dtypes.float8_e5m2, 8),
    "e2m3": (ml_dtypes.float6_e2m3fn, 6), "e3m2": (ml_dtypes.float6_e3m2fn, 6),
    "e2m1": (ml_dtypes.float4_e2m1fn, 4), "ue8m0": (ml_dtypes.float8_e8m0fnu, 8),
}  # fmt: skip


@cache
def table(kind: str) -> np.ndarray:
    """Return float32 values of every pattern (256 entries; bits above the format are ignored)."""
    if kind == "s8":
        values = np.arange(256, dtype=np.uint8).view(np.int8).astype(np.float32)
    elif kind == "u8":
        values = np.arange(256, dtype=np.float32)
    elif kind == "f16":
        values = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    elif kind == "ue4m3":
        # Unsigned e4m3: the sign bit of e4m3 does not exist; patterns with it are e4m3's own.
        values = table("e4m3").copy()
        values[128:] = values[:128]
    else:
        dtype, bits = _NARROW[kind]
        patterns = (np.arange(256) & ((1 << bits) - 1)).astype(np.uint8)
        values = patterns.view(dtype).astype(np.float32)
    values.flags.writeable = False
    return values


_SCRATCH: dict[tuple[str, tuple[int, ...]], np.ndarray] = {}


def _bf16(raw: np.ndarray, role: str) -> np.ndarray:
    # Only the upper halves are ever written, so the lower halves of the scratch stay zero.
    key = (role, raw.shape)
    scratch = _SCRATCH.get(key)
    if scratch is None:
        scratch = _SCRATCH[key] = np.zeros(raw.shape, np.float32)
    scratch.view(np.uint16)[..., 1::2] = raw
    return scratch


def decode(raw: np.ndarray, kind: str, role: str = "") -> np.ndarray:
    """Return the float32 values of gathered operand bytes.

    Args:
        raw: uint8 array whose last axis is contiguous in memory order.
        kind: PTX operand type; 4- and 6-bit types are one value per byte here.
        role: with a role ("a", "b") the result may be a scratch buffer, valid until the next call
            with the same role.
    """
    if kind == "bf16":
        return _bf16(raw.view(np.uint16), role) if role else decode_copy(raw)
    if kind == "f16":
        return table("f16").take(raw.view(np.uint16))
    if kind == "tf32":
        return (raw.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    if kind == "b1":
        return np.unpackbits(raw, axis=-1, bitorder="little").astype(np.float32)
    if kind in BITS:
        return table(kind).take(raw)
    raise UnitFault("unmodelled", f"operand type {kind!r}")


def decode_copy(raw: np.ndarray) -> np.ndarray:
    """Return bf16 bytes as a fresh float32 array."""
    return (raw.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def unpack_pairs(raw: np.ndarray) -> np.ndarray:
    """Split bytes into two 4-bit patterns each, low half first, along the last axis."""
    out = np.empty((*raw.shape[:-1], raw.shape[-1] * 2), np.uint8)
    out[..., 0::2] = raw & 15
    out[..., 1::2] = raw >> 4
    return out


def unpack_padded(raw: np.ndarray, bits: int) -> np.ndarray:
    """Split 16-byte groups of 16 packed 4- or 6-bit values (rest padding) into one per byte.

    Args:
        raw: uint8 array, last axis a multiple of 16.
        bits: 4 (8 data bytes of 16) or 6 (12 data bytes of 16).
    """
    groups = raw.reshape(*raw.shape[:-1], -1, 16)
    if bits == 4:
        values = unpack_pairs(groups[..., :8])
    else:
        a, b, c = (groups[..., i:12:3].astype(np.uint32) for i in range(3))
        word = a | b << 8 | c << 16
        values = np.stack([word >> (6 * i) & 63 for i in range(4)], axis=-1).astype(np.uint8)
        values = values.reshape(*groups.shape[:-1], 16)
    return values.reshape(raw.shape)
