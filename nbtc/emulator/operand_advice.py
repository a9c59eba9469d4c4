"""Advice about matrix operands in shared memory that are legal and seldom meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nbtc.dtypes import DTYPES
from nbtc.layout.swizzle import repeat, span

from .machine import SHARED_BASE
from .race import related

if TYPE_CHECKING:
    from nbtc.layout.tensormap_description import TensorMapDescription

    from .machine import Cta, Instruction, Warp
    from .units.operands import Access

__all__ = ["check_operand"]

_STEP = 32  # bytes along K that one instruction reads of a K-major operand
_NAMES = {dtype.ptx: dtype for dtype in DTYPES.values() if dtype.kind == "float"}


def check_operand(warp: Warp, cta: Cta, ins: Instruction, name: str, found: Access) -> None:
    """Advise where a descriptor does not fit itself, or the data that were put there."""
    operand = f"operand {name.upper()}"
    for kind, text in (
        ("descriptor_swizzle", _leaves_row(found)),
        ("descriptor_step", _step(found)),
        ("descriptor_stride", _overlap(found)),
    ):
        if text:
            warp.machine.finding(kind, f"{operand} {text}", ins=ins, warp=warp, severity="advice")
    _check_filling(warp, cta, ins, operand, found)


def _leaves_row(found: Access) -> str | None:
    if found.swizzle == "none":
        return None
    row, atom = span(found.swizzle), repeat(found.swizzle)
    into = found.start % atom
    if into < row:
        return None
    return (
        f"starts {into} B into the {atom} B atom: the k-step leaves the {row} B swizzle row; the "
        f"next {row} B of K are one atom column further (rows * {row} B)"
    )


def _step(found: Access) -> str | None:
    """Tell a start that no number of k-steps leads to."""
    if found.major != "K" or found.swizzle == "none":
        return None
    into = found.start % span(found.swizzle)
    if into % _STEP == 0:
        return None
    dtype = found.word or f"{found.bits}-bit"
    return (
        f"starts {into} B into its swizzle row, which is no whole k-step: a k-step of {dtype} is "
        f"{_STEP * 8 // found.bits} elements = {_STEP} B"
    )


def _overlap(found: Access) -> str | None:
    """Tell rows that share bytes."""
    if not found.overlaps:
        return None
    if found.major != "K":
        return (
            f"is read twice in places: MN-major with stride {found.stride} and leading "
            f"{found.leading} lets its atoms overlap"
        )
    need = 128 if found.swizzle == "none" else 8 * span(found.swizzle)
    if found.stride >= need:
        return f"is read twice in places: leading {found.leading} lets its core matrices overlap"
    text = (
        f"has 8-row groups {found.stride} B apart, which overlap: swizzle {found.swizzle} needs a "
        f"stride of {need} B or more"
    )
    if found.leading >= need:
        text += f"; leading is {found.leading}: are leading and stride swapped?"
    return text


def _check_filling(warp: Warp, cta: Cta, ins: Instruction, operand: str, found: Access) -> None:
    """Compare the descriptor and the instruction with the tensor map that filled the memory."""
    at = found.start - SHARED_BASE
    if not 0 <= at < cta.shared.size:
        return
    accesses = warp.machine.sync.table.accesses
    for number in cta.sync.shadow.writers(at, at + 16):
        access = accesses[number]
        filled: TensorMapDescription | None = getattr(access.copy, "filled", None)
        if filled is None:
            continue
        where: dict[str, Any] = {
            "ins": ins, "warp": warp, "severity": "advice",
            "related": related("filled", access.place),
        }  # fmt: skip
        if filled.swizzle != found.swizzle:
            warp.machine.finding(
                "descriptor_swizzle",
                f"{operand} was filled with SWIZZLE_{filled.swizzle.upper()}, descriptor says "
                f"{found.swizzle}", **where,
            )  # fmt: skip
        want, have = _NAMES.get(found.word), DTYPES.get(filled.dtype)
        if (want is not None and have is not None and have.kind == "float"
                and want.bits == have.bits and want is not have):  # fmt: skip
            warp.machine.finding(
                "operand_type",
                f"{operand} was filled with {have.name}, the instruction reads it as {want.name}",
                **where,
            )
