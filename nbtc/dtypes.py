"""Element types: one table of names, widths and NumPy dtypes for host, kernels and emulator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from nbtc.errors import DtypeError
from nbtc.spelling import meant


@dataclass(frozen=True, slots=True)
class Dtype:
    """An element type.

    Attributes:
        name: canonical name, the one NumPy or ml_dtypes uses where there is one.
        bits: bits of one element's value.
        kind: ``"float"``, ``"int"``, ``"uint"`` or ``"scale"`` (exponent-only).
        numpy: NumPy dtype that holds one element; packed sub-byte types hold one per byte.
        ptx: the type's PTX word (``"bf16"``), empty where PTX has none.
    """

    name: str
    bits: int
    kind: str
    numpy: np.dtype[Any]
    ptx: str

    @property
    def itemsize(self) -> int:
        """Bytes of one element as NumPy stores it."""
        return self.numpy.itemsize

    def __str__(self) -> str:
        return self.name


def _d(name: str, bits: int, kind: str, numpy: Any, ptx: str) -> Dtype:
    return Dtype(name, bits, kind, np.dtype(numpy), ptx)


_ALL = (
    _d("float64", 64, "float", np.float64, "f64"),
    _d("float32", 32, "float", np.float32, "f32"),
    # tf32 lives in float32 words; the hardware ignores the low 13 bits.
    _d("tfloat32", 32, "float", np.float32, "tf32"),
    _d("float16", 16, "float", np.float16, "f16"),
    _d("bfloat16", 16, "float", ml_dtypes.bfloat16, "bf16"),
    _d("float8_e4m3fn", 8, "float", ml_dtypes.float8_e4m3fn, "e4m3"),
    _d("float8_e5m2", 8, "float", ml_dtypes.float8_e5m2, "e5m2"),
    _d("float6_e2m3fn", 6, "float", ml_dtypes.float6_e2m3fn, "e2m3"),
    _d("float6_e3m2fn", 6, "float", ml_dtypes.float6_e3m2fn, "e3m2"),
    _d("float4_e2m1fn", 4, "float", ml_dtypes.float4_e2m1fn, "e2m1"),
    _d("float8_e8m0fnu", 8, "scale", ml_dtypes.float8_e8m0fnu, "ue8m0"),
    _d("int8", 8, "int", np.int8, "s8"),
    _d("uint8", 8, "uint", np.uint8, "u8"),
    _d("int16", 16, "int", np.int16, "s16"),
    _d("uint16", 16, "uint", np.uint16, "u16"),
    _d("int32", 32, "int", np.int32, "s32"),
    _d("uint32", 32, "uint", np.uint32, "u32"),
    _d("int64", 64, "int", np.int64, "s64"),
    _d("uint64", 64, "uint", np.uint64, "u64"),
    _d("bool", 8, "uint", np.bool_, "pred"),
)
DTYPES: dict[str, Dtype] = {d.name: d for d in _ALL}
"""Every element type by canonical name."""

_ALIASES = {
    "bf16": "bfloat16", "f16": "float16", "half": "float16", "fp16": "float16",
    "f32": "float32", "fp32": "float32", "float": "float32", "f64": "float64",
    "double": "float64", "tf32": "tfloat32",
    "e4m3": "float8_e4m3fn", "float8_e4m3": "float8_e4m3fn", "fp8_e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2", "fp8_e5m2": "float8_e5m2",
    "e2m3": "float6_e2m3fn", "float6_e2m3": "float6_e2m3fn",
    "e3m2": "float6_e3m2fn", "float6_e3m2": "float6_e3m2fn",
    "e2m1": "float4_e2m1fn", "float4_e2m1": "float4_e2m1fn",
    "ue8m0": "float8_e8m0fnu", "float8_e8m0": "float8_e8m0fnu",
    "s8": "int8", "u8": "uint8", "s32": "int32", "u32": "uint32", "i32": "int32",
}  # fmt: skip


def canonical(dtype: Any) -> Dtype:
    """Return the element type that ``dtype`` names.

    Args:
        dtype: a name (``"bfloat16"``, ``"e4m3"``), a NumPy or ml_dtypes dtype or scalar type, a
            torch dtype (recognised by its name, torch is not imported), or a :class:`Dtype`.

    Raises:
        DtypeError: nothing in the table has that name.
    """
    if isinstance(dtype, Dtype):
        return dtype
    if isinstance(dtype, str):
        name = dtype.lower()
    else:
        name = str(dtype)
        if name.startswith("torch."):
            name = name[6:]
        else:
            try:
                known = np.dtype(dtype)
            except TypeError:
                name = getattr(dtype, "__name__", name)
            else:
                name = known.name
                if not known.isnative:
                    raise DtypeError(
                        f"dtype {known.str!r} is {name} in the other byte order than this "
                        "machine's and a GPU's: array.astype(array.dtype.newbyteorder('='))"
                    )
    name = _ALIASES.get(name, name)
    found = DTYPES.get(name)
    if found is None:
        raise DtypeError(
            f"dtype {dtype!r} is not known; known: {', '.join(DTYPES)}{meant(name, DTYPES)}"
        )
    return found
