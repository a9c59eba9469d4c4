"""Floating-point operations of PTX on rows of lanes: rounding modes, fma, min/max, approximations.

float16 rows are ``np.float16``; bfloat16 values travel as uint16 bit patterns in rows and as
float32 in between. Everything is exact (correctly rounded) except the ``approx`` functions, which
are computed in float64 and rounded once.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

F16, F32, F64 = np.float16, np.float32, np.float64
U16, U32, U64 = np.uint16, np.uint32, np.uint64
NAN32 = np.array(0x7FFFFFFF, U32).view(F32)[()]
_TINY32 = np.finfo(F32).tiny
_TINY16 = np.finfo(F16).tiny
_SPLIT = 134217729.0


def bf16_to_f32(bits: np.ndarray) -> np.ndarray:
    """Widen bfloat16 bit patterns."""
    return (bits.astype(U32) << U32(16)).view(F32)


@cache
def f16_widened() -> np.ndarray:
    """Give the float32 of every float16 pattern as hardware widens it: every NaN is 0x7FFFFFFF."""
    out = np.arange(1 << 16, dtype=U16).view(F16).astype(F32)
    out[np.isnan(out)] = NAN32
    out.flags.writeable = False
    return out


def f32_to_bf16(x: np.ndarray, mode: str = "rn") -> np.ndarray:
    """Round float32 to bfloat16 bit patterns (NaN becomes 0x7FFF)."""
    bits = np.ascontiguousarray(x, F32).view(U32)
    if mode == "rn":
        out = (bits + U32(0x7FFF) + ((bits >> U32(16)) & U32(1))) >> U32(16)
    else:
        out = bits >> U32(16)
        inexact = (bits & U32(0xFFFF)) != 0
        negative = (bits >> U32(31)) != 0
        if mode == "rp":
            out = out + (inexact & ~negative)
        elif mode == "rm":
            out = out + (inexact & negative)
        elif mode == "rna":
            out = (bits + U32(0x8000)) >> U32(16)
    return np.where(np.isnan(x), U16(0x7FFF), out.astype(U16))


def odd_f32(x: np.ndarray) -> np.ndarray:
    """Round float64 to float32 towards odd (a later rounding to fewer bits is then exact)."""
    near = x.astype(F32)
    back = near.astype(F64)
    wrong = (back != x) & np.isfinite(x)
    if not wrong.any():
        return near
    bits = near.view(U32).copy()
    away = np.abs(back) > np.abs(x)
    bits = np.where(wrong & away, bits - U32(1), bits)
    return np.where(wrong, bits | U32(1), bits).view(F32)


def f64_to_bf16(x: np.ndarray, mode: str = "rn") -> np.ndarray:
    """Round float64 to bfloat16 bit patterns in one rounding."""
    return f32_to_bf16(odd_f32(x), mode)


def ftz(x: np.ndarray) -> np.ndarray:
    """Flush subnormals to zero of the same sign."""
    tiny = _TINY16 if x.dtype == F16 else _TINY32
    small = np.abs(x) < tiny
    return np.where(small, np.copysign(x.dtype.type(0), x), x) if small.any() else x


def saturate(x: np.ndarray) -> np.ndarray:
    """Clamp to [0, 1]; NaN becomes +0."""
    one = x.dtype.type(1)
    return np.where(x > 0, np.minimum(x, one), x.dtype.type(0))


def relu(x: np.ndarray) -> np.ndarray:
    """Clamp negative values to +0; NaN becomes the canonical NaN."""
    return np.where(np.isnan(x), canonical(x.dtype), np.where(x > 0, x, x.dtype.type(0)))


def canonical(dtype: np.dtype) -> Any:
    """Canonical NaN of a float type (all mantissa bits set)."""
    if dtype == F16:
        return np.array(0x7FFF, U16).view(F16)[()]
    if dtype == F32:
        return NAN32
    return np.array(0x7FFFFFFFFFFFFFFF, U64).view(F64)[()]


def round_f32(x: np.ndarray, mode: str, error: np.ndarray | None = None) -> np.ndarray:
    """Round float64 (plus the sign of an ``error`` term) to float32 in ``mode``."""
    if mode == "rn":
        if error is not None and error.any():
            x = _to_odd(x, error)
        return x.astype(F32)
    near = x.astype(F32)
    back = near.astype(F64)
    err = np.zeros_like(x) if error is None else error
    above = (back > x) | ((back == x) & (err < 0))
    below = (back < x) | ((back == x) & (err > 0))
    if mode == "rz":
        toward = np.where(x > 0, above, below) & np.isfinite(x)
        return np.where(toward, np.nextafter(near, F32(0)), near)
    if mode == "rm":
        return np.where(above & np.isfinite(x), np.nextafter(near, F32(-np.inf)), near)
    return np.where(below & np.isfinite(x), np.nextafter(near, F32(np.inf)), near)


def _to_odd(total: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Make the last bit of ``total`` odd where the exact value differs by ``error``."""
    bits = total.view(U64)
    fix = (error != 0) & ((bits & U64(1)) == 0) & np.isfinite(total)
    if not fix.any():
        return total
    toward = np.where(error > 0, np.inf, -np.inf)
    return np.where(fix, np.nextafter(total, toward), total)


def _two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def fma_f32(a: np.ndarray, b: np.ndarray, c: np.ndarray, mode: str = "rn") -> np.ndarray:
    """Fused multiply-add of float32 rows, rounded once."""
    product = a.astype(F64) * b
    wide = c.astype(F64)
    total = product + wide
    part = total - product
    error = (product - (total - part)) + (wide - part)
    if mode == "rn" and not error.any():
        return total.astype(F32)
    error = np.where(np.isfinite(error), error, 0.0)
    out = round_f32(total, mode, error)
    return _down_zero(out, product, wide) if mode == "rm" else out


def _down_zero(out: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Give exact zero sums ``a + b`` the sign that rounding down asks for."""
    positive = (a == 0) & (b == 0) & ~np.signbit(a) & ~np.signbit(b)
    return np.where((out == 0) & (a == -b) & ~positive, out.dtype.type(-0.0), out)


def fma_f64(a: np.ndarray, b: np.ndarray, c: np.ndarray, mode: str = "rn") -> np.ndarray:
    """Fused multiply-add of float64 rows, rounded once."""
    magnitude_a, magnitude_b, magnitude_c = np.abs(a), np.abs(b), np.abs(c)
    product = a * b
    size = np.abs(product)
    safe = (
        (magnitude_a < 1e140)
        & (magnitude_b < 1e140)
        & (magnitude_c < 1e280)
        & ((size > 1e-250) | (a == 0) | (b == 0))
        & ((magnitude_c > 1e-250) | (c == 0))
    )
    if mode == "rn":
        t = _SPLIT * a
        ah = t - (t - a)
        al = a - ah
        t = _SPLIT * b
        bh = t - (t - b)
        bl = b - bh
        low = ((ah * bh - product) + ah * bl + al * bh) + al * bl
        total, rest = _two_sum(product, c)
        small, lost = _two_sum(rest, low)
        out = total + _to_odd(small, lost)
        zero = (a == 0) | (b == 0)
        out = np.where(zero, product + c, out)
        if safe.all():
            return out
    else:
        out = product + c
        safe = np.zeros(a.shape, bool)
    for lane in np.nonzero(~safe)[0]:
        x, y, z = float(a[lane]), float(b[lane]), float(c[lane])
        if not (np.isfinite(x) and np.isfinite(y) and np.isfinite(z)):
            out[lane] = a[lane] * b[lane] + c[lane]
            continue
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        if exact == 0:
            out[lane] = (
                a[lane] * b[lane] + c[lane] if x == 0 or y == 0 else (-0.0 if mode == "rm" else 0.0)
            )
        else:
            out[lane] = round_fraction(exact, mode)
    return out


def round_fraction(exact: Fraction, mode: str) -> float:
    """Round an exact rational to float64 in any mode."""
    try:
        near = float(exact)
    except OverflowError:
        near = np.inf if exact > 0 else -np.inf
        limit = float(np.finfo(F64).max)
        if (mode == "rz") or (mode == "rm" and exact > 0) or (mode == "rp" and exact < 0):
            return limit if exact > 0 else -limit
        return near
    back = Fraction(near) if np.isfinite(near) else None
    if mode == "rn" or back is None or back == exact:
        return near
    if mode == "rm" or (mode == "rz" and exact > 0):
        return near if back < exact else float(np.nextafter(near, -np.inf))
    return near if back > exact else float(np.nextafter(near, np.inf))


def arith_f32(name: str, a: np.ndarray, b: np.ndarray, mode: str) -> np.ndarray:
    """``add sub mul div`` of float32 rows in a directed rounding mode."""
    x, y = a.astype(F64), b.astype(F64)
    if name in ("add", "sub"):
        y = y if name == "add" else -y
        total, error = _two_sum(x, y)
        out = round_f32(total, mode, np.where(np.isfinite(error), error, 0.0))
        return _down_zero(out, x, y) if mode == "rm" else out
    if name == "mul":
        return round_f32(x * y, mode)
    quotient = x / y
    with np.errstate(all="ignore"):
        residue = x - _exact_product_high(quotient, y)
        error = np.where(np.isfinite(residue), residue * np.sign(y), 0.0)
    return round_f32(quotient, mode, error)


def _exact_product_high(q: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Product used for the sign of a division residue (q has 53 bits, y 24)."""
    high = q.astype(F32).astype(F64)
    return high * y + (q - high) * y


def arith_f64(name: str, a: np.ndarray, b: np.ndarray, mode: str) -> np.ndarray:
    """``add sub mul div`` of float64 rows in a directed rounding mode (lane by lane)."""
    plain = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}[name](a, b)
    out = plain.copy()
    for lane in range(out.size):
        x, y = float(a[lane]), float(b[lane])
        if not (np.isfinite(x) and np.isfinite(y)) or (name == "div" and y == 0):
            continue
        fx, fy = Fraction(x), Fraction(y)
        exact = {"add": fx + fy, "sub": fx - fy, "mul": fx * fy}.get(name)
        if exact is None:
            exact = fx / fy
        if exact == 0:
            continue
        out[lane] = round_fraction(exact, mode)
    if mode == "rm" and name in ("add", "sub"):
        return _down_zero(out, a, b if name == "add" else -b)
    return out


def sqrt_mode(a: np.ndarray, mode: str) -> np.ndarray:
    """Square root in a directed mode."""
    if a.dtype == F32:
        root = np.sqrt(a.astype(F64))
        residue = a.astype(F64) - root * root
        exact = root.astype(F32).astype(F64) == root
        error = np.where(exact | ~np.isfinite(residue), 0.0, residue)
        return round_f32(root, mode, error)
    out = np.sqrt(a)
    for lane in range(out.size):
        x, r = float(a[lane]), float(out[lane])
        if not np.isfinite(r) or r == 0:
            continue
        sign = Fraction(r) * Fraction(r) - Fraction(x)
        if sign > 0 and mode in ("rz", "rm"):
            out[lane] = np.nextafter(r, 0.0)
        elif sign < 0 and mode == "rp":
            out[lane] = np.nextafter(r, np.inf)
    return out


def minimum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """PTX ``min``: the operand that is not NaN; -0 below +0."""
    out = np.fmin(a, b)
    return _zeros_and_nans(out, a, b, True)


def maximum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """PTX ``max``: the operand that is not NaN; +0 above -0."""
    out = np.fmax(a, b)
    return _zeros_and_nans(out, a, b, False)


def _zeros_and_nans(out: np.ndarray, a: np.ndarray, b: np.ndarray, low: bool) -> np.ndarray:
    zero = out == 0
    if zero.any():
        unsigned = f"u{a.dtype.itemsize}"
        x, y = a.view(unsigned), b.view(unsigned)
        bits = (x | y) if low else (x & y)
        out = np.where(zero & (a == b), bits.view(a.dtype), out)
    nan = np.isnan(out)
    if nan.any():
        out = np.where(nan, canonical(a.dtype), out)
    return out


def minmax(a: np.ndarray, b: np.ndarray, low: bool, nan: bool, magnitude: str) -> np.ndarray:
    """``min``/``max`` with ``.NaN``, ``.abs`` or ``.xorsign.abs``."""
    unsigned = f"u{a.dtype.itemsize}"
    sign = None
    if magnitude == "xorsign":
        top = np.dtype(unsigned).type(1 << (a.dtype.itemsize * 8 - 1))
        sign = (a.view(unsigned) ^ b.view(unsigned)) & top
    if magnitude:
        a, b = np.abs(a), np.abs(b)
    out = minimum(a, b) if low else maximum(a, b)
    if sign is not None:
        out = (out.view(unsigned) | sign).view(a.dtype)
    if nan:
        out = np.where(np.isnan(a) | np.isnan(b), canonical(a.dtype), out)
    return out


def ex2(a: np.ndarray) -> np.ndarray:
    """``ex2.approx``."""
    return np.exp2(a.astype(F64)).astype(a.dtype)


def lg2(a: np.ndarray) -> np.ndarray:
    """``lg2.approx``."""
    return np.log2(a.astype(F64)).astype(a.dtype)


def sin(a: np.ndarray) -> np.ndarray:
    """``sin.approx``."""
    return np.sin(a.astype(F64)).astype(a.dtype)


def cos(a: np.ndarray) -> np.ndarray:
    """``cos.approx``."""
    return np.cos(a.astype(F64)).astype(a.dtype)


def tanh(a: np.ndarray) -> np.ndarray:
    """``tanh.approx``."""
    return np.tanh(a.astype(F64)).astype(a.dtype)


def rcp(a: np.ndarray) -> np.ndarray:
    """Reciprocal."""
    return a.dtype.type(1) / a


def rcp64h(a: np.ndarray) -> np.ndarray:
    """``rcp.approx.ftz.f64``: only the upper 32 bits of input and result count."""
    cut = (a.view(U64) & U64(0xFFFFFFFF00000000)).view(F64)
    return ((1.0 / cut).view(U64) & U64(0xFFFFFFFF00000000)).view(F64)


def rsqrt64h(a: np.ndarray) -> np.ndarray:
    """``rsqrt.approx.ftz.f64``: only the upper 32 bits of input and result count."""
    cut = (a.view(U64) & U64(0xFFFFFFFF00000000)).view(F64)
    return ((1.0 / np.sqrt(cut)).view(U64) & U64(0xFFFFFFFF00000000)).view(F64)


def rsqrt(a: np.ndarray) -> np.ndarray:
    """``rsqrt.approx``."""
    return (1.0 / np.sqrt(a.astype(F64))).astype(a.dtype)


def testp(a: np.ndarray, kind: str) -> np.ndarray:
    """``testp``."""
    if kind == "finite":
        return np.isfinite(a)
    if kind == "infinite":
        return np.isinf(a)
    if kind == "number":
        return ~np.isnan(a)
    if kind == "notanumber":
        return np.isnan(a)
    tiny = np.finfo(a.dtype).tiny
    if kind == "normal":
        return np.isfinite(a) & (np.abs(a) >= tiny)
    return (np.abs(a) < tiny) & (a != 0)
