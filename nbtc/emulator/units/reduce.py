"""Element-wise reductions of cp.reduce, red.async and atomics on raw bytes."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from nbtc.emulator.units import UnitFault

_DTYPES = {
    "u8": np.uint8, "s8": np.int8, "u16": np.uint16, "s16": np.int16,
    "u32": np.uint32, "s32": np.int32, "u64": np.uint64, "s64": np.int64,
    "b8": np.uint8, "b16": np.uint16, "b32": np.uint32, "b64": np.uint64,
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip
_TINY = np.finfo(np.float32).tiny


def _flush(values: np.ndarray) -> np.ndarray:
    """Flush float32 subnormals to zero of the same sign."""
    return np.where(np.abs(values) < _TINY, np.copysign(np.float32(0), values), values)


def _extreme(old: np.ndarray, new: np.ndarray, largest: bool) -> np.ndarray:
    """Minimum or maximum with the rules of PTX: NaN loses, -0 is below +0."""
    better = new > old if largest else new < old
    if old.dtype.kind in "iu":
        return np.where(better, new, old)
    signs = np.signbit(old.astype(np.float32)) != np.signbit(new.astype(np.float32))
    zero = (old == new) & signs
    prefers_new = np.signbit(old.astype(np.float32)) == largest
    better = better | (zero & prefers_new) | (np.isnan(old) & ~np.isnan(new))
    return np.where(better, new, old)


def combine(old: np.ndarray, new: np.ndarray, op: str, *, flush: bool = True) -> np.ndarray:
    """Return ``old op new`` element by element; integers wrap.

    Args:
        old: values in memory.
        new: operands of the same dtype.
        op: "add", "min", "max", "inc", "dec", "and", "or", "xor".
        flush: flush float32 subnormals in "add", as global memory does.

    Raises:
        UnitFault: the operation is unknown.
    """
    with np.errstate(all="ignore"):
        if op == "add":
            if old.dtype == np.float32 and flush:
                return _flush(_flush(old) + _flush(new))
            return (old + new).astype(old.dtype)
        if op in ("min", "max"):
            return _extreme(old, new, op == "max")
        if op == "inc":
            return np.where(old >= new, old.dtype.type(0), old + old.dtype.type(1))
        if op == "dec":
            return np.where((old == 0) | (old > new), new, old - old.dtype.type(1))
        if op == "and":
            return old & new
        if op == "or":
            return old | new
        if op == "xor":
            return old ^ new
    raise UnitFault("unmodelled", f"reduction {op!r}")


def dtype_of(kind: str) -> np.dtype:
    """Return the NumPy dtype of a PTX element type."""
    return np.dtype(_DTYPES[kind])


def reduce_bytes(old: np.ndarray, new: np.ndarray, op: str, kind: str) -> np.ndarray:
    """Return ``old op new`` on uint8 arrays whose last axis holds whole elements.

    Args:
        old: bytes in memory, C-contiguous.
        new: operand bytes of the same shape, C-contiguous.
        op: operation, see `combine`.
        kind: PTX type of the elements ("f16", "u32", ...).
    """
    dtype = dtype_of(kind)
    if op in ("and", "or", "xor"):
        dtype = np.dtype(f"u{dtype.itemsize}")
    result = combine(old.view(dtype), new.view(dtype), op)
    return np.ascontiguousarray(result).view(np.uint8)
