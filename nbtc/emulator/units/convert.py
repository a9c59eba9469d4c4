"""Narrow conversions of ``cvt`` (PTX ISA 9.7.9.21), bit-exact, on arrays of raw bits.

    bits = narrow(values, "e4m3", "rn", satfinite=True)          # float32[] -> patterns uint32[]
    values = widen(bits, "e4m3")                                 # patterns -> float32[], exact
    register = cvt("f16x2", "f32", [a, b], rounding="rn")        # whole instructions, uint32[]

Formats: f16, bf16, tf32 (an f32 pattern), e4m3, e5m2, e2m3, e3m2, e2m1, ue8m0. Packed forms put
the first source on top. NaN results are canonical: 0x7FFF (f16, bf16), 0x7FFFE000 (tf32; ``rna``
keeps the payload's upper bits), 0x7F (e4m3, e5m2), 0xFF (ue8m0); formats without NaN give +MAX.
Where ``rs`` takes its random bits for 8-, 6- and 4-bit results is not documented in text: a and b
use the same upper bits here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nbtc.emulator.units import UnitFault
from nbtc.emulator.units.formats import table


@dataclass(frozen=True)
class Format:
    """A binary format: widths, bias, largest finite pattern, infinity and NaN patterns."""

    width: int
    mantissa: int
    bias: int
    largest: int
    infinity: int | None
    nan: int | None


FORMATS = {
    "f16": Format(16, 10, 15, 0x7BFF, 0x7C00, 0x7FFF),
    "bf16": Format(16, 7, 127, 0x7F7F, 0x7F80, 0x7FFF),
    "tf32": Format(19, 10, 127, 0x3FBFF, 0x3FC00, 0x3FFFF),
    "e4m3": Format(8, 3, 7, 0x7E, None, 0x7F),
    "e5m2": Format(8, 2, 15, 0x7B, 0x7C, 0x7F),
    "e2m3": Format(6, 3, 1, 0x1F, None, None),
    "e3m2": Format(6, 2, 3, 0x1F, None, None),
    "e2m1": Format(4, 1, 1, 0x7, None, None),
}
"""Formats with a sign and a mantissa (tf32 without its 13 low zero bits)."""

_SLOT = {"f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8, "e2m3": 8, "e3m2": 8, "e2m1": 4, "ue8m0": 8}


def _to_ue8m0(bits: np.ndarray, rounding: str, satfinite: bool) -> np.ndarray:
    exponent = bits >> 23 & 0xFF
    mantissa = bits & 0x7FFFFF
    up = np.zeros_like(bits)
    if rounding == "rp":
        # 2**-127 is the subnormal with mantissa 0x400000.
        up = np.where(exponent == 0, mantissa > 0x400000, mantissa > 0).astype(bits.dtype)
    result = exponent + up
    special = exponent == 0xFF
    result = np.where(special, 0xFF, result)
    if satfinite:
        result = np.where((result > 0xFE) & ~(special & (mantissa != 0)), 0xFE, result)
    return np.minimum(result, 0xFF).astype(np.uint32)


def narrow(
    values: np.ndarray,
    kind: str,
    rounding: str = "rn",
    *,
    satfinite: bool = False,
    relu: bool = False,
    random: np.ndarray | None = None,
    random_bits: int = 0,
) -> np.ndarray:
    """Round float32 values to a narrow format.

    Args:
        values: float32 array.
        kind: target format.
        rounding: "rn", "rz", "rna", "rp" (ue8m0) or "rs" (stochastic).
        satfinite: overflow and infinity give the largest finite value.
        relu: negative values give 0.
        random: for "rs": random integers of ``random_bits`` bits.
        random_bits: for "rs": width of ``random``, aligned with the top of the discarded bits.

    Returns:
        uint32 array of patterns; tf32 patterns are whole float32 patterns.
    """
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.int64)
    if kind == "ue8m0":
        return _to_ue8m0(bits, rounding, satfinite)
    if kind not in FORMATS:
        raise UnitFault("unmodelled", f"conversion to {kind!r}")
    form = FORMATS[kind]
    negative = bits >> 31 != 0
    field = bits >> 23 & 0xFF
    mantissa = bits & 0x7FFFFF
    is_nan = (field == 0xFF) & (mantissa != 0)
    is_inf = (field == 0xFF) & (mantissa == 0)
    significand = np.where(field == 0, mantissa, mantissa | 0x800000)
    exponent = np.maximum(field, 1) - 127
    lowest = 1 - form.bias
    scaled = np.maximum(exponent, lowest)
    shift = np.minimum(scaled - form.mantissa - (exponent - 23), 40)
    kept = significand >> shift
    rest = significand - (kept << shift)
    half = np.int64(1) << (shift - 1)
    if rounding == "rn":
        up = (rest > half) | ((rest == half) & (kept & 1 != 0))
    elif rounding == "rna":
        up = rest >= half
    elif rounding == "rz":
        up = np.zeros(rest.shape, bool)
    elif rounding == "rs" and random is not None:
        noise = random.astype(np.int64)
        excess = shift - random_bits
        aligned = np.where(
            excess >= 0, noise << np.maximum(excess, 0), noise >> np.maximum(-excess, 0)
        )
        up = rest + aligned >= np.int64(1) << shift
    else:
        raise UnitFault("unmodelled", f"conversion to {kind} with rounding {rounding!r}")
    pattern = (scaled + form.bias - 1 << form.mantissa) + kept + up
    over = (pattern > form.largest) & ~is_inf
    saturates = satfinite or form.infinity is None
    beyond = form.largest if saturates or form.infinity is None else form.infinity
    # Rounding toward zero never reaches infinity from a finite value.
    pattern = np.where(over, form.largest if rounding == "rz" else beyond, pattern)
    pattern = np.where(is_inf, beyond, pattern)
    sign = np.int64(1) << (form.width - 1)
    pattern = np.where(negative, 0 if relu else pattern | sign, pattern)
    pattern = np.where(is_nan, form.largest if form.nan is None else form.nan, pattern)
    if kind == "tf32":
        pattern = pattern << 13
        if rounding == "rna":
            # Integer instructions do it: they mask, and for satfinite take one unit off.
            masked = (bits & 0xFFFFE000) - (0x2000 if satfinite else 0)
            pattern = np.where(is_nan, masked, pattern)
    return pattern.astype(np.uint32)


def widen(patterns: np.ndarray, kind: str) -> np.ndarray:
    """Return the exact float32 values of patterns (upper bits beyond the format are ignored)."""
    patterns = np.asarray(patterns)
    if kind == "f32":
        return np.ascontiguousarray(patterns, np.uint32).view(np.float32)
    if kind == "bf16":
        return (patterns.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if kind == "f16":
        return table("f16").take(patterns.astype(np.uint32) & 0xFFFF)
    if kind == "tf32":
        return (patterns.astype(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return table(kind).take(patterns.astype(np.uint32) & 0xFF)


def _split(kind: str) -> tuple[str, int]:
    for count in (2, 4):
        if kind.endswith(f"x{count}"):
            return kind[:-2], count
    return kind, 1


def _random(random: np.ndarray, kind: str, place: int) -> tuple[np.ndarray, int]:
    """Random bits of the element at a place (0 = top) and their width."""
    word = np.asarray(random, np.uint32)
    if kind == "f16":
        return word >> np.uint32(16 if place == 0 else 0) & np.uint32(0x1FFF), 13
    if kind == "bf16":
        return word >> np.uint32(16 if place == 0 else 0) & np.uint32(0xFFFF), 16
    if kind == "e2m1":
        return word >> np.uint32((24, 8, 16, 0)[place]) & np.uint32(0xFF), 8
    return word >> np.uint32(16 if place < 2 else 0) & np.uint32(0xFFFF), 16


def cvt(
    target: str,
    source: str,
    registers: Sequence[np.ndarray],
    *,
    rounding: str = "rn",
    satfinite: bool = False,
    relu: bool = False,
    random: np.ndarray | None = None,
) -> np.ndarray:
    """Carry out one narrow ``cvt``.

    Args:
        target: destination type word, such as "tf32", "bf16", "f16x2", "e4m3x2", "e2m1x4", "f32".
        source: source type word, such as "f32", "f16x2", "e5m2x2".
        registers: raw source registers, unsigned integers (float32 bits for f32), in operand
            order: the first goes on top.
        rounding: "rn", "rz", "rna", "rp" or "rs".
        satfinite: as in the instruction.
        relu: as in the instruction.
        random: random register of "rs".

    Returns:
        uint32 array with the destination in its low bits.
    """
    source_kind, source_count = _split(source)
    kind, count = _split(target)
    if source_count == 1:
        values = [widen(register, source_kind) for register in registers]
    else:
        slot = np.uint32(_SLOT[source_kind])
        word = np.asarray(registers[0]).astype(np.uint32)
        mask = np.uint32((1 << int(slot)) - 1)
        values = [
            widen(word >> np.uint32(slot * i) & mask, source_kind)
            for i in reversed(range(source_count))
        ]
    if len(values) != count:
        raise UnitFault("unmodelled", f"cvt.{target}.{source} with {len(values)} elements")
    result = np.zeros(np.shape(values[0]), np.uint32)
    for place, value in enumerate(values):
        noise, width = (None, 0) if random is None else _random(random, kind, place)
        if kind == "f32":
            pattern = np.ascontiguousarray(value).view(np.uint32)
        else:
            pattern = narrow(value, kind, rounding, satfinite=satfinite, relu=relu, random=noise,
                             random_bits=width)  # fmt: skip
        if count > 1:
            result |= pattern << np.uint32(_SLOT[kind] * (count - 1 - place))
        else:
            result |= pattern
    return result
