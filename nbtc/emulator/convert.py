"""``cvt``: one function per form, from rows of the source type to rows of the destination type."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from . import floats
from .program import Instruction

_INT = {"s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"}
_FLOAT = {"f16", "bf16", "f32", "f64"}
_TYPES = (
    _INT
    | _FLOAT
    | {
        "f16x2",
        "bf16x2",
        "tf32",
        "e4m3x2",
        "e5m2x2",
        "e2m3x2",
        "e3m2x2",
        "e2m1x2",
        "ue8m0x2",
        "e4m3x4",
        "e5m2x4",
        "e2m3x4",
        "e3m2x4",
        "e2m1x4",
        "s2f6x2",
        "b8",
        "b16",
        "b32",
        "b64",
    }
)
_ROUND_INT = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
DTYPES = {
    "s8": np.int8,
    "u8": np.uint8,
    "s16": np.int16,
    "u16": np.uint16,
    "s32": np.int32,
    "u32": np.uint32,
    "s64": np.int64,
    "u64": np.uint64,
    "f16": np.float16,
    "bf16": np.uint16,
    "f32": np.float32,
    "f64": np.float64,
}
Row = np.ndarray


def types_of(ins: Instruction) -> tuple[str, str]:
    """Give (destination, source) type of a ``cvt``."""
    found = [p for p in ins.parts[1:] if p in _TYPES]
    if len(found) < 2:
        ins.unmodelled("cvt without two types")
    return found[0], found[1]


def scalar(ins: Instruction) -> tuple[str, str, Callable[[Row], Row]]:
    """Give (destination type, source type, function) of a scalar ``cvt``."""
    dst, src = types_of(ins)
    mods = ins.mods
    ftz, sat = "ftz" in mods, "sat" in mods
    mode = next(
        (m for m in ("rni", "rzi", "rmi", "rpi", "rna", "rn", "rz", "rm", "rp") if m in mods), ""
    )
    if dst in _INT and src in _INT:
        return dst, src, _int_to_int(dst, src, sat)
    if dst in _INT:
        if mode not in _ROUND_INT:
            ins.unmodelled("float to integer needs .rni .rzi .rmi or .rpi")
        return dst, src, _float_to_int(dst, src, mode, ftz)
    if src in _INT:
        return dst, src, _int_to_float(dst, src, mode or "rn", sat)
    if dst in _FLOAT and src in _FLOAT:
        return (
            dst,
            src,
            _float_to_float(dst, src, mode, ftz, sat, "relu" in mods, "satfinite" in mods),
        )
    if dst == "tf32" and src == "f32":
        return "u32", "f32", _tf32(mode, "relu" in mods, "satfinite" in mods)
    ins.unmodelled(f"cvt from {src} to {dst}")


def _int_to_int(dst: str, src: str, sat: bool) -> Callable[[Row], Row]:
    to = DTYPES[dst]
    if not sat:
        return lambda x: x.astype(to)
    info, have = np.iinfo(to), np.iinfo(DTYPES[src])
    low, high = max(int(info.min), int(have.min)), min(int(info.max), int(have.max))
    return lambda x: np.clip(x, x.dtype.type(low), x.dtype.type(high)).astype(to)


def _widen(src: str) -> Callable[[Row], Row]:
    if src == "bf16":
        return lambda x: floats.bf16_to_f32(x).astype(np.float64)
    return lambda x: x.astype(np.float64)


def _float_to_int(dst: str, src: str, mode: str, ftz: bool) -> Callable[[Row], Row]:
    to = np.dtype(DTYPES[dst])
    info = np.iinfo(to)
    rounding, widen = _ROUND_INT[mode], _widen(src)
    nan = (1 << (to.itemsize * 8 - 1)) if src == "f64" or to.itemsize == 8 else 0
    nan_bits = np.array(nan, f"u{to.itemsize}").view(to)
    low, limit = float(info.min), float(info.max) + (1.0 if to.itemsize < 8 else 0.0)

    def convert(x: Row) -> Row:
        if ftz and src == "f32":
            x = floats.ftz(x)
        value = rounding(widen(x))
        isnan = np.isnan(value)
        over, under = value >= limit, value < low
        safe = np.where(isnan | over | under, 0.0, value)
        if dst == "u64":
            big = safe >= 2.0**63
            out = np.where(big, safe - 2.0**63, safe).astype(np.int64).view(np.uint64)
            out = np.where(big, out | np.uint64(1 << 63), out)
        else:
            out = safe.astype(np.int64).astype(to)
        out = np.where(over, to.type(info.max), out)
        out = np.where(under, to.type(info.min), out)
        return np.where(isnan, nan_bits, out)

    return convert


def _int_to_float(dst: str, src: str, mode: str, sat: bool) -> Callable[[Row], Row]:
    def convert(x: Row) -> Row:
        if dst == "f64":
            out = x.astype(np.float64)
            if mode != "rn" and x.dtype.itemsize == 8:
                out = _directed_int(x, out, mode)
        elif dst == "f32":
            if x.dtype.itemsize < 8:
                out = floats.round_f32(x.astype(np.float64), mode)
            else:
                out = x.astype(np.float32)
                if mode != "rn":
                    out = _directed_int(x, out, mode)
        elif x.dtype.itemsize < 8:
            wide = x.astype(np.float64)
            out = wide.astype(np.float16) if dst == "f16" else floats.f64_to_bf16(wide, mode)
        else:
            out = _big_int_small_float(x, dst, mode)
        return floats.saturate(out) if sat and dst != "bf16" else out

    return convert


def _directed_int(x: Row, near: Row, mode: str) -> Row:
    out = near.copy()
    for lane in range(x.size):
        exact, value = int(x[lane]), int(near[lane])
        if value == exact:
            continue
        up = mode == "rp" or (mode == "rz" and exact < 0)
        if up and value < exact:
            out[lane] = np.nextafter(near[lane], near.dtype.type(np.inf))
        elif not up and value > exact:
            out[lane] = np.nextafter(near[lane], near.dtype.type(-np.inf))
    return out


def _big_int_small_float(x: Row, dst: str, mode: str) -> Row:
    """64-bit integers to 16-bit floats: keep the top bits and a sticky bit."""
    sticky = np.array([_sticky(int(v)) for v in x], np.float64)
    return sticky.astype(np.float16) if dst == "f16" else floats.f64_to_bf16(sticky, mode)


def _sticky(value: int) -> float:
    size = abs(value)
    drop = max(size.bit_length() - 50, 0)
    kept = (size >> drop) | (1 if size & ((1 << drop) - 1) else 0)
    return float((kept << drop) * (1 if value >= 0 else -1))


def _float_to_float(
    dst: str, src: str, mode: str, ftz: bool, sat: bool, relu: bool, satfinite: bool
) -> Callable[[Row], Row]:
    integral = _ROUND_INT.get(mode)

    def finish(x: Row) -> Row:
        if ftz and x.dtype == np.float32:
            x = floats.ftz(x)
        if sat:
            x = floats.saturate(x)
        return floats.relu(x) if relu else x

    def load(x: Row) -> Row:
        if src == "bf16":
            x = floats.bf16_to_f32(x)
        return floats.ftz(x) if ftz and src == "f32" else x

    if (dst, src) == ("f32", "f16") and integral is None:
        widened = floats.f16_widened()
        return lambda x: finish(widened.take(x.view(np.uint16)))

    def convert(x: Row) -> Row:
        value = load(x)
        if integral is not None:
            value = np.copysign(integral(value), value)
            if dst == "bf16":
                return floats.f32_to_bf16(finish(value))
            return finish(value.astype(DTYPES[dst]))
        if dst == "f64":
            return finish(value.astype(np.float64))
        if dst == "f32":
            if src == "f64" and mode not in ("", "rn"):
                return finish(floats.round_f32(value, mode))
            if src == "bf16" and ftz:
                value = np.where(np.isnan(value), floats.NAN32, value)
            return finish(value.astype(np.float32))
        return narrow16(finish(value), dst, mode or "rn", satfinite)

    return convert


def narrow16(value: Row, dst: str, mode: str, satfinite: bool) -> Row:
    """Round float32/float64 rows to f16 (np.float16) or bf16 (uint16 bits)."""
    if dst == "bf16":
        single = (
            value
            if value.dtype == np.float32
            else (floats.odd_f32(value) if value.dtype == np.float64 else value.astype(np.float32))
        )
        bits = floats.f32_to_bf16(single, mode)
        if satfinite:
            over = ((bits & np.uint16(0x7F80)) == 0x7F80) & ~np.isnan(single)
            bits = np.where(over, (bits & np.uint16(0x8000)) | np.uint16(0x7F7F), bits)
        return bits
    out = value.astype(np.float16)
    if mode == "rz":
        past = (np.abs(out.astype(np.float64)) > np.abs(value.astype(np.float64))) & np.isfinite(
            value
        )
        out = np.where(past, np.nextafter(out, np.float16(0)), out)
    elif mode in ("rm", "rp"):
        wide, exact = out.astype(np.float64), value.astype(np.float64)
        if mode == "rm":
            out = np.where(wide > exact, np.nextafter(out, np.float16(-np.inf)), out)
        else:
            out = np.where(wide < exact, np.nextafter(out, np.float16(np.inf)), out)
    nan = np.isnan(out)
    if nan.any():
        out = np.where(nan, floats.canonical(np.dtype(np.float16)), out)
    if satfinite:
        out = np.where(np.isinf(out), np.copysign(np.float16(65504), out), out)
    return out


def _tf32(mode: str, relu: bool, satfinite: bool) -> Callable[[Row], Row]:
    """Round to tf32; ``.rna`` consists of integer instructions, which keep the payload of a NaN."""
    kept, exponent = np.uint32(0xFFFFE000), np.uint32(0x7F800000)

    def away(x: Row) -> Row:
        bits = x.view(np.uint32)
        out = np.where(np.isfinite(x), bits + np.uint32(0x1000), bits) & kept
        if satfinite:
            out = np.where(out & exponent == exponent, out - np.uint32(0x2000), out)
        return out

    def convert(x: Row) -> Row:
        bits = x.view(np.uint32)
        out = bits
        if mode == "rn":
            out = bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
        out = np.where(np.isinf(x), bits, out & kept)
        if satfinite:
            over = out & exponent == exponent
            out = np.where(over, (bits & np.uint32(0x80000000)) | np.uint32(0x7F7FE000), out)
        if relu:
            out = np.where(bits >> np.uint32(31) != 0, np.uint32(0), out)
        return np.where(np.isnan(x), np.uint32(0x7FFFE000), out)

    return away if mode == "rna" else convert


def pack2(ins: Instruction, dst: str) -> Callable[[Row, Row], Row]:
    """``cvt.{rn,rz}.{f16x2,bf16x2}.f32 d, a, b``: uint32 rows from float32 rows a (upper), b."""
    mode = "rz" if "rz" in ins.mods else "rn"
    relu, satfinite, ftz = "relu" in ins.mods, "satfinite" in ins.mods, "ftz" in ins.mods
    half = dst[:-2]
    if half == "bf16" and mode == "rn" and not (relu or satfinite or ftz):
        return _pack_bf16_rn

    def convert(a: Row, b: Row) -> Row:
        parts = []
        for source in (a, b):
            x = floats.ftz(source) if ftz else source
            x = floats.relu(x) if relu else x
            parts.append(narrow16(x, half, mode, satfinite).view(np.uint16).astype(np.uint32))
        return (parts[0] << np.uint32(16)) | parts[1]

    return convert


def _pack_bf16_rn(a: Row, b: Row) -> Row:
    high, low = a.view(np.uint32), b.view(np.uint32)
    one, bias, sixteen = np.uint32(1), np.uint32(0x7FFF), np.uint32(16)
    top = (high + bias + ((high >> sixteen) & one)) & np.uint32(0xFFFF0000)
    bottom = (low + bias + ((low >> sixteen) & one)) >> sixteen
    out = top | bottom
    total = a + b
    if np.isnan(total).any():
        out = np.where(np.isnan(a), (out & np.uint32(0xFFFF)) | np.uint32(0x7FFF0000), out)
        out = np.where(np.isnan(b), (out & np.uint32(0xFFFF0000)) | np.uint32(0x7FFF), out)
    return out


def pack_sat(a: Row, b: Row, c: Row, to: str) -> Row:
    """``cvt.pack.sat.{s8,u8,s16,u16}.s32.b32 d, a, b, c``."""
    info = np.iinfo(DTYPES[to])
    bits = 8 if to.endswith("8") else 16
    high = np.clip(a, info.min, info.max).astype(np.int64) & ((1 << bits) - 1)
    low = np.clip(b, info.min, info.max).astype(np.int64) & ((1 << bits) - 1)
    both = (high << bits) | low
    if bits == 8:
        both = (c.astype(np.int64) << 16) | both
    return both.astype(np.uint32)
