"""Integer and bit operations of PTX on rows of lanes (NumPy arrays).

Every function takes arrays of one integer type and returns a fresh array; callers choose signed or
unsigned views. Shift amounts have the width of the shifted value.
"""

from __future__ import annotations

import numpy as np

U8, U16, U32, U64 = np.uint8, np.uint16, np.uint32, np.uint64
I32, I64 = np.int32, np.int64
_LOW32 = np.uint64(0xFFFFFFFF)
_S32 = np.uint64(32)

_REVERSED = np.array([int(f"{i:08b}"[::-1], 2) for i in range(256)], U8)


def mul_hi(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Upper half of the product, signed or unsigned by dtype, 16 to 64 bits."""
    if a.dtype.itemsize < 8:
        bits = a.dtype.itemsize * 8
        wide = np.dtype(f"{a.dtype.kind}{a.dtype.itemsize * 2}")
        return ((a.astype(wide) * b) >> wide.type(bits)).astype(a.dtype)
    x, y = a.view(U64), b.view(U64)
    xl, xh, yl, yh = x & _LOW32, x >> _S32, y & _LOW32, y >> _S32
    low = xl * yl
    mid = xh * yl + (low >> _S32)
    mid2 = xl * yh + (mid & _LOW32)
    high = xh * yh + (mid >> _S32) + (mid2 >> _S32)
    if a.dtype.kind == "i":
        high -= np.where(a < 0, y, U64(0))
        high -= np.where(b < 0, x, U64(0))
    return high.view(a.dtype)


def mul_wide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Full product in twice the width."""
    wide = np.dtype(f"{a.dtype.kind}{a.dtype.itemsize * 2}")
    return a.astype(wide) * b


def mul24(a: np.ndarray, b: np.ndarray, high: bool) -> np.ndarray:
    """``mul24.lo/hi``: 24-bit product, low 32 bits or bits 47..16."""
    eight = a.dtype.type(8)
    x, y = ((a << eight) >> eight).astype(I64), ((b << eight) >> eight).astype(I64)
    product = x * y
    return ((product >> I64(16)) if high else product).astype(a.dtype)


def div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Quotient truncated towards zero; all ones where the divisor is 0."""
    zero = b == 0
    if zero.any():
        b = np.where(zero, b.dtype.type(1), b)
        out = np.floor_divide(a - np.fmod(a, b), b)
        out[zero] = a.dtype.type(-1) if a.dtype.kind == "i" else np.iinfo(a.dtype).max
        return out
    if a.dtype.kind == "u":
        return np.floor_divide(a, b)
    return np.floor_divide(a - np.fmod(a, b), b)


def rem(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Remainder with the sign of the dividend; the dividend where the divisor is 0."""
    zero = b == 0
    if zero.any():
        return np.where(zero, a, np.fmod(a, np.where(zero, b.dtype.type(1), b)))
    return np.fmod(a, b)


def sad(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """``c + |a - b|``."""
    return c + np.where(a < b, b - a, a - b)


def abs_int(a: np.ndarray) -> np.ndarray:
    """Absolute value (the most negative number stays)."""
    return np.abs(a)


def shl(a: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Shift left; amounts of the width or more give 0. ``n`` is uint32."""
    return np.left_shift(a, amount(n, a.dtype))


def shr(a: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Shift right (arithmetic for signed); amounts are clamped. ``n`` is uint32."""
    return np.right_shift(a, amount(n, a.dtype))


def amount(n: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Bring a uint32 shift amount to the width of the value."""
    if dtype.itemsize == 4:
        return n.view(dtype)
    if dtype.itemsize == 8:
        return n.astype(dtype)
    return np.minimum(n, U32(dtype.itemsize * 8)).astype(dtype)


def shf(low: np.ndarray, high: np.ndarray, n: np.ndarray, left: bool, wrap: bool) -> np.ndarray:
    """Funnel shift of {high, low} (uint32 rows)."""
    n = (n & U32(31)) if wrap else np.minimum(n, U32(32))
    both = (high.astype(U64) << _S32) | low
    if left:
        return (((both << n.astype(U64)) >> _S32) & _LOW32).astype(U32)
    return (both >> n.astype(U64)).astype(U32)


def bfe(a: np.ndarray, start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Bit field extract; ``a`` signed or unsigned 32/64, position and length uint32."""
    bits = a.dtype.itemsize * 8
    position = (start & U32(255)).astype(I64)
    count = (length & U32(255)).astype(I64)
    unsigned = a.view(f"u{a.dtype.itemsize}")
    shifted = unsigned >> position.astype(unsigned.dtype)
    keep = np.minimum(count, bits)
    mask = _ones(keep, unsigned.dtype)
    out = shifted & mask
    if a.dtype.kind == "u":
        return out
    top = np.minimum(position + count - 1, bits - 1)
    sign = (unsigned >> np.maximum(top, 0).astype(unsigned.dtype)) & unsigned.dtype.type(1)
    sign = np.where(count == 0, unsigned.dtype.type(0), sign)
    field = np.minimum(count, np.maximum(bits - position, 0))
    out = (out & _ones(field, unsigned.dtype)) | np.where(
        sign != 0, ~_ones(field, unsigned.dtype), unsigned.dtype.type(0)
    )
    return out.view(a.dtype)


def _ones(count: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Mask of ``count`` low bits."""
    bits = dtype.itemsize * 8
    one = dtype.type(1)
    shift = np.minimum(count, bits).astype(dtype)
    return np.where(count >= bits, ~dtype.type(0), (one << shift) - one)


def bfi(a: np.ndarray, b: np.ndarray, start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Insert the low ``length`` bits of ``a`` into ``b`` at ``start``."""
    position = (start & U32(255)).astype(a.dtype)
    mask = _ones((length & U32(255)).astype(I64), a.dtype) << position
    return (b & ~mask) | ((a << position) & mask)


def bmsk(start: np.ndarray, length: np.ndarray, clamp: bool) -> np.ndarray:
    """``bmsk.clamp/wrap.b32``."""
    if not clamp:
        start, length = start & U32(31), length & U32(31)
    return _ones(np.minimum(length, U32(32)).astype(I64), np.dtype(U32)) << np.minimum(
        start, U32(32)
    )


def szext(a: np.ndarray, n: np.ndarray, clamp: bool) -> np.ndarray:
    """Sign- or zero-extend the low ``n`` bits of ``a`` (dtype decides)."""
    count = np.minimum(n, U32(32)).astype(I64) if clamp else (n & U32(31)).astype(I64)
    low = a.view(U32) & _ones(count, np.dtype(U32))
    if a.dtype.kind == "u":
        return low
    sign = (low >> np.maximum(count - 1, 0).astype(U32)) & U32(1)
    fill = np.where((sign != 0) & (count > 0), ~_ones(count, np.dtype(U32)), U32(0))
    return (low | fill).view(I32)


def popc(a: np.ndarray) -> np.ndarray:
    """Number of set bits, as uint32."""
    return np.bitwise_count(a).astype(U32)


def top_bit(a: np.ndarray) -> np.ndarray:
    """Index of the highest set bit as int64, -1 where there is none (unsigned 32/64)."""
    if a.dtype.itemsize == 4:
        return np.frexp(a.astype(np.float64))[1].astype(I64) - 1
    high = (a >> _S32).astype(U32)
    low = (a & _LOW32).astype(U32)
    return np.where(high != 0, top_bit(high) + 32, top_bit(low))


def clz(a: np.ndarray) -> np.ndarray:
    """Leading zeros, as uint32."""
    return (a.dtype.itemsize * 8 - 1 - top_bit(a)).astype(U32)


def brev(a: np.ndarray) -> np.ndarray:
    """Reverse the bits."""
    width = a.dtype.itemsize
    octets = _REVERSED[np.ascontiguousarray(a).view(U8).reshape(-1, width)][:, ::-1]
    return np.ascontiguousarray(octets).view(a.dtype).reshape(-1)


def bfind(a: np.ndarray, shift_amount: bool) -> np.ndarray:
    """Position of the most significant non-sign bit; 0xFFFFFFFF where none."""
    unsigned = a.view(f"u{a.dtype.itemsize}")
    if a.dtype.kind == "i":
        unsigned = np.where(a < 0, ~unsigned, unsigned)
    top = top_bit(unsigned)
    if shift_amount:
        top = np.where(top < 0, top, a.dtype.itemsize * 8 - 1 - top)
    return top.astype(I32).view(U32)


def prmt(a: np.ndarray, b: np.ndarray, c: np.ndarray, mode: str) -> np.ndarray:
    """Byte permute of {b, a} by selector ``c`` in the given mode ("" for the generic one)."""
    octets = np.stack([a, b], axis=1).view(U8)  # (lanes, 8), little endian
    lanes = np.arange(octets.shape[0])
    out = np.empty((octets.shape[0], 4), U8)
    if not mode:
        for i in range(4):
            nibble = (c >> U32(4 * i)) & U32(15)
            byte = octets[lanes, (nibble & U32(7)).astype(I64)]
            sign = np.where(byte & 0x80, U8(255), U8(0))
            out[:, i] = np.where(nibble & U32(8), sign, byte)
        return out.view(U32).reshape(-1)
    n = (c & U32(3)).astype(I64)
    for i in range(4):
        source = {
            "f4e": n + i,
            "b4e": (n - i) & 7,
            "rc8": n,
            "ecl": np.maximum(n, i),
            "ecr": np.minimum(n, i),
            "rc16": (n & 1) * 2 + (i & 1),
        }[mode]
        out[:, i] = octets[lanes, source]
    return out.view(U32).reshape(-1)


def lop3(a: np.ndarray, b: np.ndarray, c: np.ndarray, table: int) -> np.ndarray:
    """Arbitrary three-input logic function."""
    out = np.zeros_like(a)
    for i in range(8):
        if table >> i & 1:
            out |= (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
    return out


def dp4a(a: np.ndarray, b: np.ndarray, c: np.ndarray, a_type: type, b_type: type) -> np.ndarray:
    """Four-way byte dot product plus accumulate; ``c`` is uint32 (wraps)."""
    x = a.view(a_type).astype(I64).reshape(-1, 4)
    y = b.view(b_type).astype(I64).reshape(-1, 4)
    return (c.astype(I64) + (x * y).sum(axis=1)).astype(U32)


def dp2a(
    a: np.ndarray, b: np.ndarray, c: np.ndarray, a_type: type, b_type: type, high: bool
) -> np.ndarray:
    """Two-way 16x8-bit dot product plus accumulate; ``c`` is uint32 (wraps)."""
    x = a.view(a_type).astype(I64).reshape(-1, 2)
    y = (
        b.view(b_type).astype(I64).reshape(-1, 4)[:, 2:]
        if high
        else (b.view(b_type).astype(I64).reshape(-1, 4)[:, :2])
    )
    return (c.astype(I64) + (x * y).sum(axis=1)).astype(U32)


def fns(mask: np.ndarray, base: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """Find the n-th set bit from ``base`` (offset int32)."""
    out = np.full(mask.shape, 0xFFFFFFFF, U32)
    for lane in range(mask.size):
        bits, start, n = int(mask[lane]), int(base[lane]) & 31, int(offset[lane])
        if n == 0:
            if bits >> start & 1:
                out[lane] = start
            continue
        places = range(start, 32) if n > 0 else range(start, -1, -1)
        left = abs(n)
        for place in places:
            if bits >> place & 1:
                left -= 1
                if left == 0:
                    out[lane] = place
                    break
    return out


def add_carry(a: np.ndarray, b: np.ndarray, carry: np.ndarray | None) -> tuple:
    """Unsigned add with carry in; gives (sum, carry out bool)."""
    total = a + b
    out = total < a
    if carry is not None:
        again = total + carry.astype(a.dtype)
        out = out | (again < total)
        total = again
    return total, out


def sub_carry(a: np.ndarray, b: np.ndarray, carry: np.ndarray | None) -> tuple:
    """Unsigned subtract; the flag is the carry of ``a + ~b + carry``, set when nothing is borrowed.

    So ptxas has it, and nvcc's 128-bit division reads it with ``addc`` after ``subc.cc``.
    """
    total = a - b
    borrowed = a < b
    if carry is not None:
        less = (~carry).astype(a.dtype)
        borrowed = borrowed | (total < less)
        total = total - less
    return total, ~borrowed


def saturate_add(a: np.ndarray, b: np.ndarray, subtract: bool) -> np.ndarray:
    """``add.sat.s32`` / ``sub.sat.s32``."""
    wide = a.astype(I64) - b if subtract else a.astype(I64) + b
    return np.clip(wide, -(1 << 31), (1 << 31) - 1).astype(I32)


__all__ = [name for name in dir() if not name.startswith("_") and name not in ("annotations", "np")]
