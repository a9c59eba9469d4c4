"""``cvt`` of formats narrower than 16 bits and with random rounding: glue to ``units.convert``."""

from __future__ import annotations

from typing import Any

import numpy as np

from .codegen import Gen
from .program import Instruction, Vec
from .units import UnitFault
from .units import convert as unit

_BITS = {
    "f32": 32,
    "f16x2": 32,
    "bf16x2": 32,
    "e4m3x2": 16,
    "e5m2x2": 16,
    "e2m3x2": 16,
    "e3m2x2": 16,
    "e2m1x2": 8,
    "ue8m0x2": 16,
    "s2f6x2": 16,
    "e4m3x4": 32,
    "e5m2x4": 32,
    "e2m3x4": 32,
    "e3m2x4": 32,
    "e2m1x4": 16,
    "tf32": 32,
    "f16": 16,
    "bf16": 16,
}


class Narrow:
    """One form of a narrow ``cvt``, callable on rows of raw registers."""

    def __init__(self, ins: Instruction, target: str, source: str) -> None:
        """Read the modifiers."""
        self.target, self.source = target, source
        self.rounding = next(
            (m for m in ("rs", "rna", "rn", "rz", "rp", "rm") if m in ins.mods), "rn"
        )
        self.options = {"satfinite": "satfinite" in ins.mods, "relu": "relu" in ins.mods}

    def __call__(self, *rows: np.ndarray) -> np.ndarray:
        """Convert: source rows in operand order, then the random row for ``.rs``."""
        random = None
        if self.rounding == "rs":
            *rows, random = rows  # type: ignore[assignment]
        out = unit.cvt(
            self.target, self.source, rows, rounding=self.rounding, random=random, **self.options
        )
        return out.astype(f"u{_BITS[self.target] // 8}")


def narrow_cvt(gen: Gen, ins: Instruction, to: str, source: str) -> None:
    """Emit a narrow ``cvt``."""
    if to not in _BITS or source not in _BITS or "scaled::n2::ue8m0" in ins.mods:
        ins.unmodelled(f"cvt from {source} to {to}")
    operands: list[Any] = []
    for operand in ins.operands[1:]:
        operands += operand.items if isinstance(operand, Vec) else [operand]
    widths = [_BITS[source]] * len(operands)
    if "rs" in ins.mods:
        widths[-1] = 32
    function = Narrow(ins, to, source)
    zeros = [np.zeros(32, f"u{w // 8}") for w in widths]
    try:
        function(*zeros)
    except (UnitFault, KeyError, ValueError) as error:
        ins.unmodelled(str(error))
    rows = ", ".join(gen.src(o, f"u{w}") for o, w in zip(operands, widths, strict=True))
    gen.put(ins.operands[0], f"u{_BITS[to]}", f"{gen.obj(function)}({rows})")
