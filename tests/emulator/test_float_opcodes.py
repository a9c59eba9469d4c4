"""Floating-point instructions and conversions against exact rational arithmetic."""

from __future__ import annotations

import math
import zlib
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from opcode_helper import run_op

FORMATS = {  # mantissa bits with the hidden one, smallest normal exponent, largest exponent
    "f16": (11, -14, 15, np.float16),
    "bf16": (8, -126, 127, ml_dtypes.bfloat16),
    "f32": (24, -126, 127, np.float32),
    "f64": (53, -1022, 1023, np.float64),
}


def round_exact(x: Fraction, kind: str, mode: str = "rn") -> float:
    """Round a rational to a format; overflow and signed zero as IEEE asks."""
    digits, low, high, _ = FORMATS[kind]
    if x == 0:
        return 0.0
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    exponent = max(exponent, low)
    unit = Fraction(2) ** (exponent - digits + 1)
    q, r = divmod(size, unit)
    q = int(q)
    negative = x < 0
    up = {"rz": False, "rm": negative, "rp": not negative}.get(mode)
    if up is None:
        half = Fraction(r, unit)
        up = half > Fraction(1, 2) or (half == Fraction(1, 2) and q % 2 == 1)
    if up and r:
        q += 1
    limit = (2 - Fraction(2) ** (1 - digits)) * Fraction(2) ** high
    value = q * unit
    if value > limit:
        to_infinity = mode == "rn" or {"rz": False, "rm": negative, "rp": not negative}[mode]
        result = math.inf if to_infinity else float(limit)
    else:
        result = float(value)
    return -result if negative else result


def floats(kind: str, salt: str, special: bool = True) -> np.ndarray:
    """32 values: specials, subnormals, near-equal magnitudes, random ones."""
    dtype = FORMATS[kind][3]
    rng = np.random.default_rng(zlib.crc32((kind + salt).encode()))
    info = ml_dtypes.finfo(dtype)
    small, big = float(info.smallest_subnormal), float(info.max)
    with np.errstate(all="ignore"):
        x = (rng.standard_normal(32) * 2.0 ** rng.integers(-6, 7, 32)).astype(dtype)
        if special:
            x[:10] = np.array(
                [0.0, -0.0, 1.0, -1.0, small, -small, float(info.tiny), big, -big, 3 * small],
                np.float64,
            ).astype(dtype)
            rng.shuffle(x)
    return x


def raw(x: np.ndarray) -> np.ndarray:
    return x.view(np.uint16) if x.dtype == ml_dtypes.bfloat16 else x


def back(x: np.ndarray, kind: str) -> np.ndarray:
    return x.view(FORMATS[kind][3])


def compare(got: np.ndarray, want: list[float], kind: str, text: str) -> None:
    got = back(got, kind).astype(np.float64)
    for lane, (g, w) in enumerate(zip(got.tolist(), want, strict=True)):
        assert (math.isnan(g) and math.isnan(w)) or (
            g == w and (w != 0 or math.copysign(1, g) == math.copysign(1, w))
        ), (text, lane, g, w)


def exact(name: str, kind: str, mode: str, *args: float) -> float:
    """Reference of add, sub, mul, div, fma."""
    if any(not math.isfinite(a) for a in args) or (name == "div" and args[1] == 0):
        with np.errstate(all="ignore"):
            a = [np.float64(v) for v in args]
            return float(
                {
                    "add": lambda: a[0] + a[1],
                    "sub": lambda: a[0] - a[1],
                    "mul": lambda: a[0] * a[1],
                    "div": lambda: a[0] / a[1],
                    "fma": lambda: a[0] * a[1] + a[2],
                }[name]()
            )
    f = [Fraction(v) for v in args]
    value = {
        "add": lambda: f[0] + f[1],
        "sub": lambda: f[0] - f[1],
        "mul": lambda: f[0] * f[1],
        "div": lambda: f[0] / f[1],
        "fma": lambda: f[0] * f[1] + f[2],
    }[name]()
    if value == 0:
        sign = [math.copysign(1, v) for v in args]
        if name == "mul" or name == "div":
            return math.copysign(0.0, sign[0] * sign[1])
        terms = {
            "add": sign[:2],
            "sub": [sign[0], -sign[1]] if name == "sub" else [],
            "fma": [sign[0] * sign[1], sign[-1]],
        }[name]
        zero_terms = (
            (args[0] == 0 and args[1] == 0)
            if name != "fma"
            else (args[0] * args[1] == 0 and args[2] == 0)
        )
        if zero_terms and terms[0] == terms[1]:
            return math.copysign(0.0, terms[0])
        return -0.0 if mode == "rm" else 0.0
    result = round_exact(value, kind, mode)
    return math.copysign(result, 1 if value > 0 else -1)


CASES = (
    [("f32", m) for m in ("rn", "rz", "rm", "rp")]
    + [("f64", m) for m in ("rn", "rz", "rm", "rp")]
    + [("f16", "rn"), ("bf16", "rn")]
)


@pytest.mark.parametrize(("kind", "mode"), CASES)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "fma"])
def test_arithmetic(kind, mode, name):
    if name == "div" and kind in ("f16", "bf16"):
        pytest.skip("no such instruction")
    count = 3 if name == "fma" else 2
    for round_number in range(3):
        xs = [floats(kind, f"{name}{i}{round_number}") for i in range(count)]
        text = f"{name}.{mode}.{kind} $0, {', '.join(f'${i + 1}' for i in range(count))};"
        got = run_op(text, [raw(xs[0]).dtype], [raw(x) for x in xs])[0]
        want = [exact(name, kind, mode, *(float(x[lane]) for x in xs)) for lane in range(32)]
        compare(got, want, kind, text)


def test_fma_needs_one_rounding():
    a = np.full(32, 1 + 2.0**-12, np.float32)
    c = np.full(32, -(1 + 2.0**-11), np.float32)
    got = run_op("fma.rn.f32 $0, $1, $2, $3;", [np.float32], [a, a, c])[0]
    assert (got == np.float32(2.0**-24)).all()
    a = np.full(32, 1 + 2.0**-27)
    c = np.full(32, -(1 + 2.0**-26))
    got = run_op("fma.rn.f64 $0, $1, $2, $3;", [np.float64], [a, a, c])[0]
    assert (got == 2.0**-54).all()


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_sqrt_and_rcp(kind, mode):
    x = np.abs(floats(kind, "sqrt")) + np.dtype(FORMATS[kind][3]).type(0)
    got = run_op(f"sqrt.{mode}.{kind} $0, $1;", [x.dtype], [x])[0]
    for g, v in zip(got, x, strict=True):
        square = Fraction(float(v))
        here = Fraction(float(g)) ** 2
        up = Fraction(float(np.nextafter(g, x.dtype.type(np.inf))))
        down = Fraction(float(np.nextafter(g, x.dtype.type(-np.inf))))
        if mode in ("rz", "rm"):
            assert here <= square < up**2
        elif mode == "rp":
            assert here >= square
            assert down < 0 or down**2 < square
        else:
            assert ((Fraction(float(g)) + down) / 2) ** 2 <= square <= (
                (Fraction(float(g)) + up) / 2
            ) ** 2 or square == 0
    x = floats(kind, "rcp", special=False)
    got = run_op(f"rcp.{mode}.{kind} $0, $1;", [x.dtype], [x])[0]
    compare(got, [round_exact(1 / Fraction(float(v)), kind, mode) for v in x], kind, mode)


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_min_max_abs_neg(kind):
    a, b = floats(kind, "a"), floats(kind, "b")
    a[:4] = np.array([np.nan, 0.0, -0.0, np.nan]).astype(a.dtype)
    b[:4] = np.array([1.0, -0.0, 0.0, np.nan]).astype(b.dtype)
    b[4] = np.array(np.nan).astype(b.dtype)

    def pick(x, y, low):
        if math.isnan(x) or math.isnan(y):
            return y if math.isnan(x) else x
        if x == y == 0:
            negative = [math.copysign(1, v) < 0 for v in (x, y)]
            return -0.0 if (any(negative) if low else all(negative)) else 0.0
        return min(x, y) if low else max(x, y)

    for name in ("min", "max"):
        got = run_op(f"{name}.{kind} $0, $1, $2;", [raw(a).dtype], [raw(a), raw(b)])[0]
        want = [pick(float(x), float(y), name == "min") for x, y in zip(a, b, strict=True)]
        compare(got, want, kind, name)
        if kind in ("f16", "bf16", "f32"):
            got = run_op(f"{name}.NaN.{kind} $0, $1, $2;", [raw(a).dtype], [raw(a), raw(b)])[0]
            want = [
                math.nan if math.isnan(x) or math.isnan(y) else pick(x, y, name == "min")
                for x, y in zip(a.astype(float).tolist(), b.astype(float).tolist(), strict=True)
            ]
            compare(got, want, kind, name)
    got = run_op(f"abs.{kind} $0, $1;", [raw(a).dtype], [raw(a)])[0]
    compare(got, [abs(float(x)) for x in a], kind, "abs")
    got = run_op(f"neg.{kind} $0, $1;", [raw(a).dtype], [raw(a)])[0]
    compare(got, [-float(x) for x in a], kind, "neg")


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_comparisons(kind):
    a, b = floats(kind, "ca"), floats(kind, "cb")
    b[::4] = a[::4]
    a[1] = b[2] = a[3] = b[3] = np.array(np.nan).astype(a.dtype)
    pairs = list(zip(a.astype(float).tolist(), b.astype(float).tolist(), strict=True))
    ordered = {
        "eq": lambda x, y: x == y,
        "ne": lambda x, y: x != y,
        "lt": lambda x, y: x < y,
        "le": lambda x, y: x <= y,
        "gt": lambda x, y: x > y,
        "ge": lambda x, y: x >= y,
    }
    for name, function in ordered.items():
        for unordered in (False, True):
            op = name + ("u" if unordered else "")
            got = run_op(f"setp.{op}.{kind} $0, $1, $2;", [np.bool_], [raw(a), raw(b)])[0]
            want = [
                unordered if math.isnan(x) or math.isnan(y) else function(x, y) for x, y in pairs
            ]
            assert got.tolist() == want, op
    for op in ("num", "nan"):
        got = run_op(f"setp.{op}.{kind} $0, $1, $2;", [np.bool_], [raw(a), raw(b)])[0]
        want = [(math.isnan(x) or math.isnan(y)) == (op == "nan") for x, y in pairs]
        assert got.tolist() == want, op


def test_flush_and_saturation():
    tiny = np.float32(2.0**-130)
    x = np.full(32, tiny, np.float32)
    got = run_op("add.ftz.f32 $0, $1, $2;", [np.float32], [x, -x * 0])[0]
    assert (got == 0).all()
    got = run_op("mul.ftz.f32 $0, $1, $2;", [np.float32], [x, np.full(32, -1, np.float32)])[0]
    assert (got.view(np.uint32) == 0x80000000).all()
    y = np.linspace(-2, 3, 32).astype(np.float32)
    y[0] = np.nan
    got = run_op("add.sat.f32 $0, $1, 0f00000000;", [np.float32], [y])[0]
    np.testing.assert_array_equal(got, np.where(np.isnan(y), 0, np.clip(y, 0, 1)))
    got = run_op("cvt.sat.f32.f32 $0, $1;", [np.float32], [y])[0]
    np.testing.assert_array_equal(got, np.where(np.isnan(y), 0, np.clip(y, 0, 1)))


def test_approximations():
    x = np.linspace(0.01, 20, 32).astype(np.float32)
    for name, function in {
        "ex2.approx.f32": np.exp2,
        "ex2.approx.ftz.f32": np.exp2,
        "lg2.approx.f32": np.log2,
        "sin.approx.f32": np.sin,
        "cos.approx.f32": np.cos,
        "tanh.approx.f32": np.tanh,
        "rcp.approx.f32": lambda v: 1 / v,
        "sqrt.approx.f32": np.sqrt,
        "rsqrt.approx.f32": lambda v: 1 / np.sqrt(v),
        "rcp.approx.ftz.f32": lambda v: 1 / v,
    }.items():
        got = run_op(f"{name} $0, $1;", [np.float32], [x])[0]
        np.testing.assert_allclose(got, function(x.astype(float)), rtol=2**-20, atol=2**-21)
    y = np.linspace(3, 5, 32).astype(np.float32)
    for name in ("div.approx.f32", "div.full.f32", "div.approx.ftz.f32"):
        got = run_op(f"{name} $0, $1, $2;", [np.float32], [x, y])[0]
        np.testing.assert_allclose(got, x.astype(float) / y, rtol=2**-21)
    wide = np.linspace(0.5, 9, 32)
    for name, function in {
        "rcp.approx.ftz.f64": lambda v: 1 / v,
        "rsqrt.approx.ftz.f64": lambda v: v**-0.5,
    }.items():
        got = run_op(f"{name} $0, $1;", [np.float64], [wide])[0]
        np.testing.assert_allclose(got, function(wide), rtol=2**-18)
        assert not (got.view(np.uint64) & np.uint64(0xFFFFFFFF)).any()


def test_packed_halves():
    a, b, c = (floats("f16", s, special=False) for s in "abc")
    a2, b2, c2 = (np.repeat(v, 2).view(np.uint32) for v in (a, b, c))
    for name in ("add", "sub", "mul"):
        got = run_op(f"{name}.f16x2 $0, $1, $2;", [np.uint32], [a2, b2])[0].view(np.float16)
        compare(
            got[::2].copy(),
            [exact(name, "f16", "rn", float(x), float(y)) for x, y in zip(a, b, strict=True)],
            "f16",
            name,
        )
    got = run_op("fma.rn.f16x2 $0, $1, $2, $3;", [np.uint32], [a2, b2, c2])[0].view(np.float16)
    compare(
        got[1::2].copy(),
        [
            exact("fma", "f16", "rn", float(x), float(y), float(z))
            for x, y, z in zip(a, b, c, strict=True)
        ],
        "f16",
        "fma",
    )
    bits = {k: np.array([0x3C00, 0xBC00] * 32, np.uint16).view(np.uint32) for k in "a"}["a"]
    low, high = run_op(
        "setp.gt.f16x2 $0|$1, $2, $3;", [np.bool_, np.bool_], [bits, np.zeros(32, np.uint32)]
    )
    assert low.all()
    assert not high.any()
    got = run_op("neg.f16x2 $0, $1;", [np.uint32], [a2])[0]
    np.testing.assert_array_equal(got.view(np.float16)[::2], -a)


def test_packed_bfloat_and_single():
    a, b, c = (floats("bf16", s, special=False) for s in "abc")
    a2, b2, c2 = (np.repeat(raw(v), 2).view(np.uint32) for v in (a, b, c))
    for name in ("add", "sub", "mul"):
        got = run_op(f"{name}.bf16x2 $0, $1, $2;", [np.uint32], [a2, b2])[0].view(np.uint16)
        compare(
            got[::2].copy(),
            [exact(name, "bf16", "rn", float(x), float(y)) for x, y in zip(a, b, strict=True)],
            "bf16",
            name,
        )
    got = run_op("fma.rn.relu.bf16x2 $0, $1, $2, $3;", [np.uint32], [a2, b2, c2])[0]
    want = [
        max(exact("fma", "bf16", "rn", float(x), float(y), float(z)), 0.0)
        for x, y, z in zip(a, b, c, strict=True)
    ]
    compare(got.view(np.uint16)[1::2].copy(), want, "bf16", "fma relu")
    x, y, z = (floats("f32", s) for s in "xyz")
    pairs = [np.stack([v, np.roll(v, 1)], axis=1).reshape(-1).view(np.uint64) for v in (x, y, z)]
    got = run_op("fma.rn.f32x2 $0, $1, $2, $3;", [np.uint64], pairs)[0].view(np.float32)
    compare(
        got[::2].copy(),
        [exact("fma", "f32", "rn", *map(float, v)) for v in zip(x, y, z, strict=True)],
        "f32",
        "f32x2",
    )
    for name in ("add", "sub", "mul"):
        got = run_op(f"{name}.f32x2 $0, $1, $2;", [np.uint64], pairs[:2])[0].view(np.float32)
        compare(
            got[::2].copy(),
            [exact(name, "f32", "rn", *map(float, v)) for v in zip(x, y, strict=True)],
            "f32",
            name,
        )


def test_mixed_precision_add():
    h, x = floats("f16", "h", special=False), floats("f32", "x", special=False)
    got = run_op("add.f32.f16 $0, $1, $2;", [np.float32], [h, x])[0]
    np.testing.assert_array_equal(got, h.astype(np.float32) + x)
    b = floats("bf16", "b", special=False)
    got = run_op("fma.rn.f32.bf16 $0, $1, $2, $3;", [np.float32], [raw(b), raw(b), x])[0]
    compare(
        got,
        [
            exact("fma", "f32", "rn", float(v), float(v), float(w))
            for v, w in zip(b, x, strict=True)
        ],
        "f32",
        "mixed fma",
    )


@pytest.mark.parametrize("source", ["f16", "bf16", "f32", "f64"])
def test_float_to_integer(source):
    x = floats(source, "int")
    x[:6] = np.array([np.nan, np.inf, -np.inf, 2.5, -2.5, 3.5]).astype(x.dtype)
    rounds = {"rzi": math.trunc, "rni": round, "rmi": math.floor, "rpi": math.ceil}
    for target in ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"):
        bits = int(target[1:])
        low = -(1 << (bits - 1)) if target[0] == "s" else 0
        high = (1 << (bits - 1)) - 1 if target[0] == "s" else (1 << bits) - 1
        register = max(bits, 16)
        for mode, function in rounds.items():
            got = run_op(f"cvt.{mode}.{target}.{source} $0, $1;", [f"u{register // 8}"], [raw(x)])[
                0
            ]
            for lane in range(32):
                value = float(x[lane])
                if math.isnan(value):
                    want = 1 << (bits - 1) if source == "f64" or bits == 64 else 0
                elif math.isinf(value):
                    want = high if value > 0 else low
                else:
                    want = max(low, min(high, function(value)))
                if target[0] == "s" and want >> (bits - 1) & 1:
                    want -= 1 << bits if want > 0 else 0
                assert int(got[lane]) == want & ((1 << register) - 1), (target, mode, value)


@pytest.mark.parametrize("target", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_integer_to_float(target, mode):
    if target in ("f16", "bf16") and mode != "rn":
        pytest.skip("only .rn here")
    rng = np.random.default_rng(5)
    for source in ("u8", "s16", "u16", "s32", "u32", "s64", "u64"):
        bits = int(source[1:])
        x = rng.integers(0, 2**bits - 1, 32, dtype=np.uint64, endpoint=True)
        x[:8] >>= np.uint64(bits // 2)
        x = x.astype(f"u{max(bits, 16) // 8}")
        dtype = np.uint16 if target == "bf16" else FORMATS[target][3]
        got = run_op(f"cvt.{mode}.{target}.{source} $0, $1;", [dtype], [x])[0]
        want = []
        for v in x.tolist():
            value = v - (1 << bits) if source[0] == "s" and v >> (bits - 1) & 1 else v
            want.append(round_exact(Fraction(value), target, mode))
        compare(got, want, target, f"{target}.{source}")


def test_float_to_float():
    forms = [("f16", "f32"), ("bf16", "f32"), ("f32", "f64"), ("f16", "f64")]
    for target, source in forms:
        x = floats(source, target)
        modes = ("rn", "rz", "rm", "rp") if target == "f32" else ("rn", "rz")
        for mode in modes:
            if (target, source, mode) == ("f16", "f64", "rz"):
                continue
            dtype = np.uint16 if target == "bf16" else FORMATS[target][3]
            got = run_op(f"cvt.{mode}.{target}.{source} $0, $1;", [dtype], [x])[0]
            want = [
                math.copysign(round_exact(Fraction(float(v)), target, mode), float(v)) for v in x
            ]
            compare(got, want, target, f"{target}.{source} {mode}")
    for target, source in (("f32", "f16"), ("f32", "bf16"), ("f64", "f32")):
        x = floats(source, target)
        got = run_op(f"cvt.{target}.{source} $0, $1;", [FORMATS[target][3]], [raw(x)])[0]
        compare(got, [float(v) for v in x], target, source)
    x = floats("f32", "integral")
    x[:4] = [2.5, -0.25, 3.5, -2.5]
    for mode, function in {
        "rni": np.rint,
        "rzi": np.trunc,
        "rmi": np.floor,
        "rpi": np.ceil,
    }.items():
        got = run_op(f"cvt.{mode}.f32.f32 $0, $1;", [np.float32], [x])[0]
        compare(got, [float(v) for v in function(x)], "f32", mode)


def test_two_values_into_one_register():
    a, b = floats("f32", "hi"), floats("f32", "lo")
    a[0], b[1] = np.nan, np.nan
    for target, dtype in (("bf16x2", ml_dtypes.bfloat16), ("f16x2", np.float16)):
        kind = target[:-2]
        for extra in ("", ".relu", ".satfinite"):
            got = run_op(f"cvt.rn{extra}.{target}.f32 $0, $1, $2;", [np.uint32], [a, b])[0]
            halves = got.view(np.uint16).reshape(32, 2)
            for column, source in ((1, a), (0, b)):
                want = []
                for v in source.tolist():
                    if math.isnan(v):
                        want.append(v)
                        continue
                    r = math.copysign(round_exact(Fraction(v), kind), v)
                    if extra == ".relu" and r <= 0:
                        r = 0.0
                    if extra == ".satfinite" and math.isinf(r):
                        r = math.copysign(float(ml_dtypes.finfo(dtype).max), r)
                    want.append(r)
                compare(halves[:, column].copy(), want, kind, target + extra)


def test_tf32():
    x = floats("f32", "tf32")
    for mode in ("rna", "rn", "rz"):
        got = run_op(f"cvt.{mode}.tf32.f32 $0, $1;", [np.uint32], [x])[0]
        assert not (got & 0x1FFF).any()
        for g, v in zip(got.view(np.float32).tolist(), x.tolist(), strict=True):
            if abs(v) > 3.3e38:
                continue
            error = abs(Fraction(g) - Fraction(v))
            exponent = max(math.frexp(v)[1] - 1, -126) if v else -126
            unit = Fraction(2) ** (exponent - 10)
            assert error <= (unit if mode == "rz" else unit / 2)
            if mode == "rz":
                assert abs(g) <= abs(v)


# As an H200 gave them; `.rna.satfinite` and the payload's low bits as ptxas spells them out.
NANS = [
    ("cvt.f32.f16", "u2", "u4", {0x7C01: 0x7FFFFFFF, 0x7E00: 0x7FFFFFFF, 0xFC01: 0x7FFFFFFF}),
    ("cvt.ftz.f32.f16", "u2", "u4", {0x7C01: 0x7FFFFFFF, 0xFE00: 0x7FFFFFFF}),
    ("cvt.sat.f32.f16", "u2", "u4", {0x7C01: 0, 0xFE00: 0}),
    ("cvt.f32.bf16", "u2", "u4", {0x7F81: 0x7F810000, 0xFFC0: 0xFFC00000, 0x7FFF: 0x7FFF0000}),
    ("cvt.ftz.f32.bf16", "u2", "u4", {0x7F81: 0x7FFFFFFF, 0xFFC0: 0x7FFFFFFF}),
    ("cvt.rn.bf16.f16", "u2", "u2", {0x7C01: 0x7FFF, 0xFE00: 0x7FFF}),
    ("cvt.rn.f16.f32", "u4", "u2", {0x7F800001: 0x7FFF, 0xFFC00000: 0x7FFF}),
    ("cvt.rz.f16.f32", "u4", "u2", {0x7F800001: 0x7FFF, 0xFFC00000: 0x7FFF}),
    ("cvt.rn.satfinite.f16.f32", "u4", "u2", {0x7F810000: 0x7FFF, 0xFFC00000: 0x7FFF}),
    ("cvt.rn.relu.f16.f32", "u4", "u2", {0x7F810000: 0x7FFF, 0xFFC00000: 0x7FFF}),
    ("cvt.rn.bf16.f32", "u4", "u2", {0x7F800001: 0x7FFF, 0xFFC00000: 0x7FFF}),
    ("cvt.rz.bf16.f32", "u4", "u2", {0x7F800001: 0x7FFF, 0xFFC00000: 0x7FFF}),
    ("cvt.rn.relu.bf16.f32", "u4", "u2", {0x7F810000: 0x7FFF, 0xFFC00000: 0x7FFF}),
    ("cvt.rna.tf32.f32", "u4", "u4",
     {0x7F810000: 0x7F810000, 0xFFC01FFF: 0xFFC00000, 0x7FFFFFFF: 0x7FFFE000,
      0x7F801FFF: 0x7F800000, 0x7F800000: 0x7F800000, 0xFF800000: 0xFF800000}),
    ("cvt.rna.satfinite.tf32.f32", "u4", "u4",
     {0x7F810000: 0x7F80E000, 0xFFC00000: 0xFFBFE000, 0xFF800000: 0xFF7FE000,
      0x7F7FFFFF: 0x7F7FE000}),
    ("cvt.rn.tf32.f32", "u4", "u4", {0x7F810000: 0x7FFFE000, 0xFFC00000: 0x7FFFE000}),
    ("cvt.rz.tf32.f32", "u4", "u4", {0x7F810000: 0x7FFFE000, 0xFFC00000: 0x7FFFE000}),
    ("cvt.rn.relu.tf32.f32", "u4", "u4", {0x7F810000: 0x7FFFE000, 0xFFC00000: 0x7FFFE000}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "source", "target", "patterns"), NANS, ids=[n[0] for n in NANS])
def test_patterns_of_nan(op, source, target, patterns):
    x = np.resize(np.array(list(patterns), source), 32)
    want = np.resize(np.array(list(patterns.values()), target), 32)
    got = run_op(f"{op} $0, $1;", [np.dtype(target)], [x])[0]
    np.testing.assert_array_equal(got, want)


def test_half_to_single_of_numbers():
    x = np.arange(1 << 16, dtype=np.uint16)
    x = x[~np.isnan(x.view(np.float16))]
    for part in np.resize(x, (1985, 32))[::50]:
        got = run_op("cvt.f32.f16 $0, $1;", [np.float32], [part])[0]
        np.testing.assert_array_equal(got, part.view(np.float16).astype(np.float32))


def test_narrow_formats():
    a, b = floats("f32", "n1", special=False), floats("f32", "n2", special=False)
    for target, dtype in (("e4m3x2", ml_dtypes.float8_e4m3fn), ("e5m2x2", ml_dtypes.float8_e5m2)):
        got = run_op(f"cvt.rn.satfinite.{target}.f32 $0, $1, $2;", [np.uint16], [a, b])[0]
        big = float(ml_dtypes.finfo(dtype).max)
        want = np.stack(
            [
                np.clip(b, -big, big).astype(dtype).view(np.uint8),
                np.clip(a, -big, big).astype(dtype).view(np.uint8),
            ],
            axis=1,
        )
        np.testing.assert_array_equal(got.view(np.uint8).reshape(32, 2), want)
        wide = run_op(f"cvt.rn.f16x2.{target} $0, $1;", [np.uint32], [got])[0]
        np.testing.assert_array_equal(
            wide.view(np.float16).reshape(32, 2), want.view(dtype).astype(np.float16)
        )
    text = "cvt.rn.satfinite.e2m1x2.f32 y, $1, $2; mov.b32 $0, {y, y, y, y};"
    got = run_op(text, [np.uint32], [a, b], registers=".reg .b8 y;")[0]
    octet = got & 0xFF
    want_high = np.clip(a, -6, 6).astype(ml_dtypes.float4_e2m1fn).astype(np.float32)
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    nibble = octet >> 4
    got_high = values[nibble & 7] * np.where(nibble & 8, -1, 1)
    np.testing.assert_array_equal(got_high, want_high)


def test_testp_and_copysign():
    x = floats("f32", "t")
    x[:3] = [np.inf, -np.inf, np.nan]
    for name, function in {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "notanumber": np.isnan,
        "number": lambda v: ~np.isnan(v),
    }.items():
        got = run_op(f"testp.{name}.f32 $0, $1;", [np.bool_], [x])[0]
        np.testing.assert_array_equal(got, function(x))
    y = np.roll(x, 7)
    got = run_op("copysign.f32 $0, $1, $2;", [np.float32], [x, y])[0]
    np.testing.assert_array_equal(got.view(np.uint32), np.copysign(y, x).view(np.uint32))
