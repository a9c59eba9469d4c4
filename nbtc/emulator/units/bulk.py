"""Non-tensor bulk copies and reductions: cp.async.bulk, cp.reduce.async.bulk (PTX ISA 9.7.9.25).

The caller finds the memory; these functions check the operands and move the bytes::

    check_copy(size, global_address, shared_address)  # raises UnitFault
    copy(target, source)  # uint8 views of equal size
    reduce(target, source, "add", "f32", to="global")
"""

from __future__ import annotations

import numpy as np

from nbtc.emulator.units import UnitFault
from nbtc.emulator.units.reduce import combine, dtype_of

_GLOBAL_TYPES = {
    "add": ("u32", "s32", "u64", "f32", "f64", "f16", "bf16"),
    "min": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "max": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "inc": ("u32",), "dec": ("u32",),
    "and": ("b32", "b64"), "or": ("b32", "b64"), "xor": ("b32", "b64"),
}  # fmt: skip
_SHARED_TYPES = {
    "add": ("u32", "s32", "u64"), "min": ("u32", "s32"), "max": ("u32", "s32"),
    "inc": ("u32",), "dec": ("u32",), "and": ("b32",), "or": ("b32",), "xor": ("b32",),
}  # fmt: skip


def check_copy(size: int, *addresses: int) -> None:
    """Check the 16-byte rules of a bulk copy.

    Args:
        size: bytes to copy.
        addresses: source and destination addresses.

    Raises:
        UnitFault: kind "tma-alignment".
    """
    if size % 16:
        raise UnitFault(
            "tma-alignment", f"bulk copy of {size} bytes ({size % 16} mod 16); must be a multiple "
            "of 16"
        )  # fmt: skip
    for address in addresses:
        if address % 16:
            raise UnitFault(
                "tma-alignment",
                f"bulk copy address {address:#x} is {address % 16} mod 16; must be a multiple of "
                "16",
            )


def check_reduction(op: str, kind: str, *, to: str) -> None:
    """Check that a reduction exists for a type; ``to`` is "global" or "shared".

    Raises:
        UnitFault: kind "illegal-instruction".
    """
    types = _GLOBAL_TYPES if to == "global" else _SHARED_TYPES
    if kind not in types.get(op, ()):
        legal = ", ".join(types.get(op, ())) or "none"
        raise UnitFault(
            "illegal-instruction", f"cp.reduce.async.bulk .{op}.{kind} to {to}; {op} takes {legal}"
        )


def copy(target: np.ndarray, source: np.ndarray, *, mask: int | None = None) -> None:
    """Copy bytes; with a mask (``.cp_mask``) only byte i of every 16 where bit i is set."""
    if mask is None:
        target[...] = source
        return
    keep = (mask >> np.arange(16) & 1).astype(bool)
    target.reshape(-1, 16)[:, keep] = source.reshape(-1, 16)[:, keep]


def reduce(target: np.ndarray, source: np.ndarray, op: str, kind: str, *, to: str) -> None:
    """Combine the elements of two uint8 views of equal size in place.

    Args:
        target: memory that is updated.
        source: operands.
        op: "add", "min", "max", "inc", "dec", "and", "or" or "xor".
        kind: PTX type ("f16" and "bf16" adds are the ``.noftz`` forms).
        to: "global" or "shared"; f32 add flushes subnormals.

    Raises:
        UnitFault: the reduction does not exist for the type.
    """
    check_reduction(op, kind, to=to)
    dtype = dtype_of(kind)
    old = np.ascontiguousarray(target).view(dtype)
    new = np.ascontiguousarray(source).view(dtype)
    target[...] = np.ascontiguousarray(combine(old, new, op)).view(np.uint8)
