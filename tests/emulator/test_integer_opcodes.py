"""Integer, bit and comparison instructions against Python integers."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from opcode_helper import run_op

EDGES = {
    8: [0, 1, 2, 3, 127, 128, 129, 254, 255],
    16: [0, 1, 2, 5, 31, 32, 0x7FFF, 0x8000, 0x8001, 0xFFFE, 0xFFFF],
    32: [0, 1, 2, 7, 31, 32, 33, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF],
    64: [
        0,
        1,
        2,
        63,
        64,
        65,
        2**31,
        2**32 - 1,
        2**32,
        2**63 - 1,
        2**63,
        2**63 + 1,
        2**64 - 2,
        2**64 - 1,
    ],
}


def values(bits: int, salt: str) -> np.ndarray:
    """32 values of a width: edges in random order, then random ones."""
    rng = np.random.default_rng(zlib.crc32(salt.encode()))
    picked = rng.choice(np.array(EDGES[bits], np.uint64), 16)
    rest = rng.integers(0, 2**bits - 1, 16, dtype=np.uint64, endpoint=True)
    rest[:8] >>= rng.integers(0, bits, 8).astype(np.uint64)
    return np.concatenate([picked, rest]).astype(f"u{bits // 8}")


def signed(x: int, bits: int) -> int:
    return x - (1 << bits) if x >> (bits - 1) & 1 else x


def typed(x: int, kind: str) -> int:
    bits = int(kind[1:])
    return signed(x, bits) if kind[0] == "s" else x


def truncate_div(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def check(text: str, kinds: list[str], out: str, reference) -> None:
    """Compare one instruction with a function of Python integers."""
    inputs = [values(int(k[1:]), f"{text}{i}") for i, k in enumerate(kinds)]
    got = run_op(text, [f"u{int(out[1:]) // 8}"], inputs)[0]
    bits = int(out[1:])
    for lane in range(32):
        args = [typed(int(v[lane]), k) for v, k in zip(inputs, kinds, strict=True)]
        want = reference(*args) & ((1 << bits) - 1)
        assert int(got[lane]) == want, (text, args, hex(int(got[lane])), hex(want))


def clamp_shift(a: int, n: int, bits: int, kind: str) -> int:
    if kind == "shl":
        return a << min(n, bits)
    return a >> min(n, bits)


WIDTHS = [k + b for k in "us" for b in ("16", "32", "64")]


@pytest.mark.parametrize("kind", WIDTHS)
def test_add_sub_mul(kind):
    bits = int(kind[1:])
    check(f"add.{kind} $0, $1, $2;", [kind, kind], kind, lambda a, b: a + b)
    check(f"sub.{kind} $0, $1, $2;", [kind, kind], kind, lambda a, b: a - b)
    check(f"mul.lo.{kind} $0, $1, $2;", [kind, kind], kind, lambda a, b: a * b)
    check(f"mul.hi.{kind} $0, $1, $2;", [kind, kind], kind, lambda a, b: a * b >> bits)
    check(f"mad.lo.{kind} $0, $1, $2, $3;", [kind] * 3, kind, lambda a, b, c: a * b + c)
    check(f"mad.hi.{kind} $0, $1, $2, $3;", [kind] * 3, kind, lambda a, b, c: (a * b >> bits) + c)
    if bits < 64:
        wide = f"{kind[0]}{bits * 2}"
        check(f"mul.wide.{kind} $0, $1, $2;", [kind, kind], wide, lambda a, b: a * b)
        check(
            f"mad.wide.{kind} $0, $1, $2, $3;", [kind, kind, wide], wide, lambda a, b, c: a * b + c
        )


@pytest.mark.parametrize("kind", WIDTHS)
def test_min_max_and_comparisons(kind):
    check(f"min.{kind} $0, $1, $2;", [kind, kind], kind, min)
    check(f"max.{kind} $0, $1, $2;", [kind, kind], kind, max)
    for op, function in {
        "eq": int.__eq__,
        "ne": int.__ne__,
        "lt": int.__lt__,
        "le": int.__le__,
        "gt": int.__gt__,
        "ge": int.__ge__,
    }.items():
        a, b = values(int(kind[1:]), op), values(int(kind[1:]), op + "b")
        b[::3] = a[::3]
        got = run_op(f"setp.{op}.{kind} $0, $1, $2;", [np.bool_], [a, b])[0]
        want = [
            function(typed(int(x), kind), typed(int(y), kind)) for x, y in zip(a, b, strict=True)
        ]
        assert got.tolist() == want, op


@pytest.mark.parametrize("kind", WIDTHS)
def test_div_rem(kind):
    bits = int(kind[1:])
    a, b = values(bits, "n"), values(bits, "d")
    b[b == 0] = 3
    for op in ("div", "rem"):
        got = run_op(f"{op}.{kind} $0, $1, $2;", [a.dtype], [a, b])[0]
        for lane in range(32):
            x, y = typed(int(a[lane]), kind), typed(int(b[lane]), kind)
            quotient = truncate_div(x, y)
            want = quotient if op == "div" else x - quotient * y
            assert int(got[lane]) == want & ((1 << bits) - 1), (op, x, y)


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_logic_and_shifts(bits):
    b = f"b{bits}"
    u, s = f"u{bits}", f"s{bits}"
    check(f"and.{b} $0, $1, $2;", [u, u], u, lambda x, y: x & y)
    check(f"or.{b} $0, $1, $2;", [u, u], u, lambda x, y: x | y)
    check(f"xor.{b} $0, $1, $2;", [u, u], u, lambda x, y: x ^ y)
    check(f"not.{b} $0, $1;", [u], u, lambda x: ~x)
    check(f"cnot.{b} $0, $1;", [u], u, lambda x: int(x == 0))
    check(f"shl.{b} $0, $1, $2;", [u, "u32"], u, lambda x, n: clamp_shift(x, n, bits, "shl"))
    check(f"shr.{u} $0, $1, $2;", [u, "u32"], u, lambda x, n: clamp_shift(x, n, bits, "shr"))
    check(f"shr.{s} $0, $1, $2;", [s, "u32"], s, lambda x, n: clamp_shift(x, n, bits, "shr"))
    for n in (0, 1, bits - 1, bits, bits + 5, 4096):
        check(f"shl.{b} $0, $1, {n};", [u], u, lambda x, n=n: clamp_shift(x, n, bits, "shl"))
        check(f"shr.{s} $0, $1, {n};", [s], s, lambda x, n=n: clamp_shift(x, n, bits, "shr"))


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_counting(bits):
    u, s = f"u{bits}", f"s{bits}"
    full = (1 << bits) - 1
    check(f"popc.b{bits} $0, $1;", [u], "u32", int.bit_count)
    check(f"clz.b{bits} $0, $1;", [u], "u32", lambda x: bits - x.bit_length())
    check(f"brev.b{bits} $0, $1;", [u], u, lambda x: int(f"{x:0{bits}b}"[::-1], 2))
    check(f"bfind.{u} $0, $1;", [u], "u32", lambda x: x.bit_length() - 1)
    check(f"bfind.{s} $0, $1;", [s], "u32", lambda x: (x if x >= 0 else ~x).bit_length() - 1)
    check(f"bfind.shiftamt.{u} $0, $1;", [u], "u32", lambda x: bits - x.bit_length() if x else -1)
    check(f"abs.{s} $0, $1;", [s], s, abs)
    check(f"neg.{s} $0, $1;", [s], s, lambda x: -x)
    assert full


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_fields(bits):
    u, s = f"u{bits}", f"s{bits}"

    def extract(x, start, length, sign):
        start, length = start & 255, length & 255
        out = 0
        top = min(start + length - 1, bits - 1)
        fill = (x >> top & 1) if sign and length else 0
        for i in range(bits):
            at = start + i
            out |= ((x >> at & 1) if i < length and at < bits else fill) << i
        return out

    def insert(a, b, start, length):
        start, length = start & 255, length & 255
        for i in range(length):
            if start + i < bits:
                b = b & ~(1 << (start + i)) | (a >> i & 1) << (start + i)
        return b

    check(f"bfe.{u} $0, $1, $2, $3;", [u, "u32", "u32"], u, lambda x, p, n: extract(x, p, n, 0))
    check(f"bfe.{s} $0, $1, $2, $3;", [u, "u32", "u32"], u, lambda x, p, n: extract(x, p, n, 1))
    for p, n in ((0, 8), (5, 3), (16, 16), (31, 1), (20, 30), (4, 0), (bits, 3)):
        check(f"bfe.{u} $0, $1, {p}, {n};", [u], u, lambda x, p=p, n=n: extract(x, p, n, 0))
        check(f"bfe.{s} $0, $1, {p}, {n};", [u], u, lambda x, p=p, n=n: extract(x, p, n, 1))
        check(
            f"bfi.b{bits} $0, $1, $2, {p}, {n};",
            [u, u],
            u,
            lambda a, b, p=p, n=n: insert(a, b, p, n),
        )
    check(f"bfi.b{bits} $0, $1, $2, $3, $4;", [u, u, "u32", "u32"], u, insert)


def test_funnel_shifts():
    def shf(a, b, n, left, wrap):
        n = n & 31 if wrap else min(n, 32)
        both = b << 32 | a
        return (both << n) >> 32 if left else both >> n

    for left in (True, False):
        for wrap in (True, False):
            text = f"shf.{'l' if left else 'r'}.{'wrap' if wrap else 'clamp'}.b32 $0, $1, $2, $3;"
            check(
                text,
                ["u32"] * 3,
                "u32",
                lambda a, b, n, left=left, wrap=wrap: shf(a, b, n, left, wrap),
            )


def test_prmt():
    def generic(a, b, c):
        data = (b << 32 | a).to_bytes(8, "little")
        out = []
        for i in range(4):
            nibble = c >> 4 * i & 15
            byte = data[nibble & 7]
            out.append((255 if byte & 128 else 0) if nibble & 8 else byte)
        return int.from_bytes(bytes(out), "little")

    def moded(mode):
        table = {
            "f4e": lambda n, i: n + i,
            "b4e": lambda n, i: (n - i) % 8,
            "rc8": lambda n, i: n,
            "ecl": lambda n, i: max(n, i),
            "ecr": lambda n, i: min(n, i),
            "rc16": lambda n, i: (n & 1) * 2 + (i & 1),
        }[mode]
        return lambda a, b, c: int.from_bytes(
            bytes((b << 32 | a).to_bytes(8, "little")[table(c & 3, i)] for i in range(4)), "little"
        )

    check("prmt.b32 $0, $1, $2, $3;", ["u32"] * 3, "u32", generic)
    check("prmt.b32 $0, $1, $2, 0x3340U;", ["u32"] * 2, "u32", lambda a, b: generic(a, b, 0x3340))
    for mode in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
        check(f"prmt.b32.{mode} $0, $1, $2, $3;", ["u32"] * 3, "u32", moded(mode))


def test_lop3_and_dot_products():
    def lop3(a, b, c, table):
        return sum(
            (table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1) << i
            for i in range(32)
        )

    for table in (0x80, 0xFE, 0x96, 0xCA, 0x1B):
        check(
            f"lop3.b32 $0, $1, $2, $3, {table};",
            ["u32"] * 3,
            "u32",
            lambda a, b, c, t=table: lop3(a, b, c, t),
        )

    def dot(a, b, c, a_sign, b_sign):
        total = c
        for i in range(4):
            x, y = a >> 8 * i & 255, b >> 8 * i & 255
            total += (signed(x, 8) if a_sign else x) * (signed(y, 8) if b_sign else y)
        return total

    for x in "us":
        for y in "us":
            check(
                f"dp4a.{x}32.{y}32 $0, $1, $2, $3;",
                ["u32"] * 3,
                "u32",
                lambda a, b, c, x=x, y=y: dot(a, b, c, x == "s", y == "s"),
            )


def test_carry_chains():
    text = "add.cc.u32 $0, $2, $4; addc.u32 $1, $3, $5;"
    a, b, c, d = (values(32, s) for s in "abcd")
    low, high = run_op(text, [np.uint32, np.uint32], [a, b, c, d])
    total = (a.astype(object) + (b.astype(object) << 32)) + (
        c.astype(object) + (d.astype(object) << 32)
    )
    assert [int(x) | int(y) << 32 for x, y in zip(low, high, strict=True)] == [
        int(t) & (2**64 - 1) for t in total
    ]
    text = "sub.cc.u32 $0, $2, $4; subc.u32 $1, $3, $5;"
    low, high = run_op(text, [np.uint32, np.uint32], [a, b, c, d])
    total = (a.astype(object) + (b.astype(object) << 32)) - (
        c.astype(object) + (d.astype(object) << 32)
    )
    assert [int(x) | int(y) << 32 for x, y in zip(low, high, strict=True)] == [
        int(t) & (2**64 - 1) for t in total
    ]
    text = "sub.cc.u32 $0, $2, $4; addc.u32 $1, $3, $5;"
    low, high = run_op(text, [np.uint32, np.uint32], [a, b, c, d])
    np.testing.assert_array_equal(low, a - c)
    np.testing.assert_array_equal(high, b + d + (a >= c))  # as ptxas compiles it
    text = "mad.lo.cc.u32 $0, $2, $3, $4; madc.hi.u32 $1, $2, $3, $5;"
    low, high = run_op(text, [np.uint32, np.uint32], [a, b, c, d])
    total = a.astype(object) * b.astype(object) + c.astype(object) + (d.astype(object) << 32)
    assert [int(x) | int(y) << 32 for x, y in zip(low, high, strict=True)] == [
        int(t) & (2**64 - 1) for t in total
    ]


def test_select_and_set():
    p = np.arange(32) % 3 == 0
    a, b = values(32, "a"), values(32, "b")
    got = run_op("selp.b32 $0, $1, $2, $3;", [np.uint32], [a, b, p])[0]
    np.testing.assert_array_equal(got, np.where(p, a, b))
    got = run_op("selp.b32 $0, 0, -1, $1;", [np.uint32], [p])[0]
    np.testing.assert_array_equal(got, np.where(p, 0, 0xFFFFFFFF))
    got = run_op("set.lt.u32.u32 $0, $1, $2;", [np.uint32], [a, b])[0]
    np.testing.assert_array_equal(got, np.where(a < b, 0xFFFFFFFF, 0))
    got = run_op("set.lt.f32.s32 $0, $1, $2;", [np.float32], [a, b])[0]
    np.testing.assert_array_equal(got, (a.view(np.int32) < b.view(np.int32)).astype(np.float32))
    got = run_op("slct.b32.s32 $0, $1, $2, $3;", [np.uint32], [a, b, a])[0]
    np.testing.assert_array_equal(got, np.where(a.view(np.int32) >= 0, a, b))


def test_setp_with_two_results_and_combination():
    a, b = values(32, "x"), values(32, "y")
    c = np.arange(32) % 2 == 0
    less = a < b
    for op, function in (("and", np.logical_and), ("or", np.logical_or), ("xor", np.logical_xor)):
        first, second = run_op(
            f"setp.lt.{op}.u32 $0|$1, $2, $3, $4;", [np.bool_, np.bool_], [a, b, c]
        )
        np.testing.assert_array_equal(first, function(less, c))
        np.testing.assert_array_equal(second, function(~less, c))
        only = run_op(f"setp.lt.{op}.u32 $0, $1, $2, !$3;", [np.bool_], [a, b, c])[0]
        np.testing.assert_array_equal(only, function(less, ~c))
    first, second = run_op("setp.hi.u32 $0|$1, $2, $3;", [np.bool_, np.bool_], [a, b])
    np.testing.assert_array_equal(first, a > b)
    np.testing.assert_array_equal(second, ~(a > b))


def test_predicate_logic():
    p, q = np.arange(32) % 2 == 0, np.arange(32) % 3 == 0
    for op, function in (("and", np.logical_and), ("or", np.logical_or), ("xor", np.logical_xor)):
        got = run_op(f"{op}.pred $0, $1, $2;", [np.bool_], [p, q])[0]
        np.testing.assert_array_equal(got, function(p, q))
    np.testing.assert_array_equal(run_op("not.pred $0, $1;", [np.bool_], [p])[0], ~p)
    assert run_op("mov.pred $0, -1;", [np.bool_], [])[0].all()


def test_packs_and_unpacks():
    a, b = values(32, "a"), values(32, "b")
    got = run_op("mov.b64 $0, {$1, $2};", [np.uint64], [a, b])[0]
    np.testing.assert_array_equal(got, a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32))
    low, high = run_op("mov.b64 {$0, $1}, $2;", [np.uint32, np.uint32], [got])
    np.testing.assert_array_equal(low, a)
    np.testing.assert_array_equal(high, b)
    only = run_op("mov.b64 {_, $0}, $1;", [np.uint32], [got])[0]
    np.testing.assert_array_equal(only, b)
    h = [values(16, c) for c in "wxyz"]
    packed = run_op("mov.b64 $0, {$1, $2, $3, $4};", [np.uint64], h)[0]
    np.testing.assert_array_equal(packed.view(np.uint16).reshape(32, 4), np.stack(h, axis=1))
    bytes_ = run_op(
        "cvt.u8.u32 y0, $1; cvt.u8.u32 y1, $2; mov.b32 $0, {y0, y1, y1, y0};",
        [np.uint32],
        [a, b],
        registers=".reg .b8 y0, y1;",
    )[0]
    want = np.stack([a, b, b, a], axis=1).astype(np.uint8)
    np.testing.assert_array_equal(bytes_.view(np.uint8).reshape(32, 4), want)
    wide = run_op(
        "mov.b128 q, {$2, $3}; mov.b128 {$0, $1}, q;",
        [np.uint64, np.uint64],
        [got, packed],
        registers=".reg .b128 q;",
    )
    np.testing.assert_array_equal(wide[0], got)
    np.testing.assert_array_equal(wide[1], packed)


def test_saturating_and_sad_and_mul24():
    def clip(x):
        return max(-(2**31), min(2**31 - 1, x))

    check("add.sat.s32 $0, $1, $2;", ["s32", "s32"], "s32", lambda a, b: clip(a + b))
    check("sub.sat.s32 $0, $1, $2;", ["s32", "s32"], "s32", lambda a, b: clip(a - b))
    check("sad.u32 $0, $1, $2, $3;", ["u32"] * 3, "u32", lambda a, b, c: c + abs(a - b))
    check("sad.s32 $0, $1, $2, $3;", ["s32"] * 3, "s32", lambda a, b, c: c + abs(a - b))
    low = (1 << 24) - 1
    check("mul24.lo.u32 $0, $1, $2;", ["u32"] * 2, "u32", lambda a, b: (a & low) * (b & low))
    check("mul24.hi.u32 $0, $1, $2;", ["u32"] * 2, "u32", lambda a, b: (a & low) * (b & low) >> 16)
    check(
        "mad24.lo.s32 $0, $1, $2, $3;",
        ["u32"] * 3,
        "u32",
        lambda a, b, c: signed(a & low, 24) * signed(b & low, 24) + c,
    )


def test_packed_integers():
    a, b = values(32, "a"), values(32, "b")
    x, y = a.view(np.int16), b.view(np.int16)
    for kind, view in (("s16x2", np.int16), ("u16x2", np.uint16)):
        x, y = a.view(view), b.view(view)
        for op, function in (("add", np.add), ("min", np.minimum), ("max", np.maximum)):
            got = run_op(f"{op}.{kind} $0, $1, $2;", [np.uint32], [a, b])[0]
            np.testing.assert_array_equal(got.view(view), function(x, y))
    got = run_op("max.relu.s32 $0, $1, $2;", [np.int32], [a, b])[0]
    np.testing.assert_array_equal(
        got, np.maximum(np.maximum(a.view(np.int32), b.view(np.int32)), 0)
    )


def test_integer_conversions():
    for source in ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"):
        for target in ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"):
            a = values(int(source[1:]), source + target)
            bits = max(int(target[1:]), 16)
            # 8-bit values travel in 16-bit registers
            inputs = a.astype(np.uint16) if source.endswith("8") else a
            for sat in ("", ".sat"):
                if source == target:
                    continue
                got = run_op(f"cvt{sat}.{target}.{source} $0, $1;", [f"u{bits // 8}"], [inputs])[0]
                for lane in range(32):
                    x = typed(int(a[lane]), source)
                    width = int(target[1:])
                    if sat:
                        low = -(1 << (width - 1)) if target[0] == "s" else 0
                        high = (1 << (width - 1)) - 1 if target[0] == "s" else (1 << width) - 1
                        x = max(low, min(high, x))
                    x &= (1 << width) - 1
                    want = typed(x, target) & ((1 << bits) - 1)
                    assert int(got[lane]) == want, (target, source, sat, hex(int(a[lane])))
