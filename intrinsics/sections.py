"""Chapters of the PTX ISA that several modules belong to, and words that they share."""

from __future__ import annotations

from typing import Literal

from nbtc.ptx.kinds import (
    F32_KIND,
    F64_KIND,
    S32_KIND,
    S64_KIND,
    U16_KIND,
    U32_KIND,
    U64_KIND,
    Kind,
)

DATA_MOVEMENT = "9.7.9 Data Movement and Conversion Instructions"
PARALLEL = "9.7.13 Parallel Synchronization and Communication Instructions"
MISCELLANEOUS = "9.7.19 Miscellaneous Instructions"
SPECIAL_REGISTERS = "10 Special Registers"

Scope = Literal["cta", "cluster", "gpu", "sys"]
ReductionOp = Literal["add", "min", "max", "inc", "dec", "and", "or", "xor"]

TYPE_KINDS: dict[str, Kind] = {
    "u8": U32_KIND,
    "s8": S32_KIND,
    "u16": U16_KIND,
    "b16": U16_KIND,
    "b32": U32_KIND,
    "u32": U32_KIND,
    "s32": S32_KIND,
    "b64": U64_KIND,
    "u64": U64_KIND,
    "s64": S64_KIND,
    "f16": U16_KIND,
    "bf16": U16_KIND,
    "f16x2": U32_KIND,
    "bf16x2": U32_KIND,
    "f32": F32_KIND,
    "f64": F64_KIND,
}
"""Register in which a value of a PTX type travels; f16 and bf16 as their bits."""

TYPE_BITS = {"u8": 8, "s8": 8} | {
    name: kind.bits for name, kind in TYPE_KINDS.items() if name not in ("u8", "s8")
}
"""Size in memory of one value of a PTX type."""
