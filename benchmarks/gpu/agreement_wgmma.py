"""Agreement of wgmma: every type, majorness, swizzle and form, one warpgroup a case."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from nbtc.layout import fragments
from nbtc.layout.matrix_descriptor import OperandTile

from .agreement_case import (
    START_BARRIER,
    WAIT_BARRIER,
    Map,
    PtxCase,
    Tolerance,
    module,
)

COLUMNS = (8, 24, 64, 128, 256)
SWIZZLES = ("128B", "64B", "32B", "none")
NUMPY: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8,
    "u8": np.uint8, "b1": np.uint8,
}  # fmt: skip
LAYOUTS = {
    "f16": "float16", "bf16": "bfloat16", "tf32": "float32", "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2", "s8": "int8", "u8": "uint8", "b1": "uint8",
}  # fmt: skip
K_BYTES = 128
_FP8_SLACK = 2.0**-12
"""The tensor core aligns products of 8-bit floats with 13 bits behind the point."""


def operand(seed: int, shape: tuple[int, int], kind: str, exact: bool) -> np.ndarray:
    """Return random numbers; ``exact`` ones are small integers, whose sums have no rounding."""
    rng = np.random.default_rng(seed)
    dtype = NUMPY[kind]
    if kind == "s8":
        return rng.integers(-128, 128, shape).astype(dtype)
    if kind in ("u8", "b1"):
        return rng.integers(0, 256, shape).astype(dtype)
    if exact:
        return rng.integers(-3, 4, shape).astype(np.float32).astype(dtype)
    return rng.standard_normal(shape).astype(np.float32).astype(dtype)


def build(
    name: str, d: str, a: str, b: str, n: int, *, major_a: str = "K", major_b: str = "K",
    swizzle_a: str = "128B", swizzle_b: str = "128B", exact: bool = False, registers: bool = False,
    negate: tuple[int, int] = (1, 1), satfinite: bool = False, accumulate: bool = True,
) -> PtxCase:  # fmt: skip
    """Return the case of one form: TMA loads, wgmma over 128 bytes of K, registers to memory."""
    size = np.dtype(NUMPY[a]).itemsize
    depth = K_BYTES // size
    unit = {"128B": 128, "64B": 64, "32B": 32, "none": 16}[swizzle_b] // size
    rows_b = -(-n // unit) * unit if major_b == "MN" else n
    tiles = (
        OperandTile(64, depth, LAYOUTS[a], major_a, swizzle_a),
        OperandTile(rows_b, depth, LAYOUTS[b], major_b, swizzle_b),
    )
    seed = sum(map(ord, name))
    values = operand(seed, (64, depth), a, exact), operand(seed + 1, (rows_b, depth), b, exact)
    stored = [
        np.ascontiguousarray(v.T) if tile.major == "MN" else v
        for v, tile in zip(values, tiles, strict=True)
    ]
    count = n // 4 if d == "f16" else n // 2
    start = _start(seed + 2, d, count, exact, satfinite)
    steps = depth // (32 // size)
    in_registers = _registers_of_a(values[0], steps) if registers else np.zeros(4, np.uint32)
    arrays = [*stored, start, in_registers]
    maps = [Map(i, "tiled", (tile.box,), {"swizzle": tile.swizzle}) for i, tile in enumerate(tiles)]
    ptx = _text(d, a, b, n, count, tiles, registers, negate, satfinite, accumulate)
    tolerance = None
    if d in ("f32", "f16") and not exact:
        sizes = [np.abs(v.astype(np.float64)) for v in values]
        scale = float((sizes[0] @ sizes[1].T).max()) + 4
        factor = {"f32": (depth + 1) * 2.0**-23, "f16": 2.0**-9}[d]
        if size == 1:
            factor += _FP8_SLACK
        tolerance = Tolerance({"f32": "float32", "f16": "float16"}[d], factor * scale)
    return PtxCase("wgmma", name, ptx, arrays, (*maps, 2, 3), {2: tolerance})


def _start(seed: int, d: str, count: int, exact: bool, satfinite: bool) -> np.ndarray:
    rng = np.random.default_rng(seed)
    shape = (count, 128)
    if d == "s32":
        edge = np.where(rng.random(shape) < 0.5, 2**31 - 9000, -(2**31) + 9000)
        small = rng.integers(-1000, 1000, shape)
        return (edge if satfinite else np.where(rng.random(shape) < 0.3, edge, small)).astype("i4")
    width = (*shape, 2) if d == "f16" else shape
    values = rng.integers(-4, 5, width) if exact else rng.standard_normal(width)
    if d == "f16":
        return values.astype(np.float16).view(np.uint32)[..., 0]
    return values.astype(np.float32)


def _registers_of_a(a: np.ndarray, steps: int) -> np.ndarray:
    """Return A as the four registers of each step: uint32[steps * 4, 128]."""
    size = a.dtype.itemsize
    per = 4 // size
    raw = np.zeros((steps * 4, 128, per), a.dtype)
    threads = np.arange(128)
    for step, register, element in itertools.product(range(steps), range(4), range(per)):
        row = fragments.wgmma_a_row(threads, register)
        column = fragments.wgmma_a_col(threads, register, element, 8 * size)
        raw[step * 4 + register, :, element] = a[row, step * (32 // size) + column]
    return raw.view(np.uint8).reshape(steps * 4, 128, 4).view(np.uint32)[..., 0]


def _text(
    d: str, a: str, b: str, n: int, count: int, tiles: tuple[OperandTile, OperandTile],
    registers: bool, negate: tuple[int, int], satfinite: bool, accumulate: bool,
) -> str:  # fmt: skip
    place_b = -(-tiles[0].size_bytes // 1024) * 1024
    total = tiles[0].size_bytes + tiles[1].size_bytes
    text = START_BARRIER + "mov.u32 %r501, tiles;\n"
    text += f"@!%p0 bra LOADED;\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [%r500], {total};\n"
    for i, (tile, place) in enumerate(zip(tiles, (0, place_b), strict=True)):
        inner = tile.box[1]
        for copy in range(tile.copies):
            text += (
                f"add.u32 %r502, %r501, {place + copy * tile.box_bytes};\n"
                f"mov.u32 %r503, {copy * inner};\nmov.u32 %r504, 0;\n"
                "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                f"[%r502], [%rd{40 + i}, {{%r503, %r504}}], [%r500];\n"
            )
    text += "LOADED:\n" + WAIT_BARRIER
    text += "cvt.u64.u32 %rd20, %thread;\nshl.b64 %rd20, %rd20, 2;\nadd.u64 %rd21, %rd1, %rd20;\n"
    text += "add.u64 %rd22, %rd2, %rd20;\n"
    for i in range(count):
        text += f"ld.global.b32 %r{i}, [%rd21+{512 * i}];\n"
    # The start address in units of 16 bytes, at both operands.
    text += "shr.u32 %r502, %r501, 4;\ncvt.u64.u32 %rd23, %r502;\n"
    steps = tiles[0].k // tiles[0].k_per_instruction
    if registers:
        for i in range(4 * steps):
            text += f"ld.global.b32 %r{200 + i}, [%rd22+{512 * i}];\n"
    for step in range(steps):
        start_a = tiles[0].descriptor(0, step=step).encode()
        start_b = tiles[1].descriptor(0, step=step).encode() + (place_b >> 4)
        text += f"add.u64 %rd{24 + 2 * step}, %rd23, {start_a};\n"
        text += f"add.u64 %rd{25 + 2 * step}, %rd23, {start_b};\n"
    text += f"setp.ne.u32 %p3, {int(accumulate)}, 0;\nsetp.eq.u32 %p4, 0, 0;\n"
    text += "wgmma.fence.sync.aligned;\n"
    k = 256 if a == "b1" else tiles[0].k_per_instruction
    head = f"wgmma.mma_async.sync.aligned.m64n{n}k{k}" + (".satfinite" if satfinite else "")
    head += f".{d}.{a}.{b}" + (".and.popc" if a == "b1" else "")
    listed = ", ".join(f"%r{i}" for i in range(count))
    for step in range(steps):
        of_a = f"%rd{24 + 2 * step}"
        if registers:
            of_a = "{" + ", ".join(f"%r{200 + 4 * step + i}" for i in range(4)) + "}"
        text += f"{head} {{{listed}}}, {of_a}, %rd{25 + 2 * step}, %p{3 if step == 0 else 4}"
        if d != "s32":
            text += f", {negate[0]}, {negate[1]}"
        if a in ("f16", "bf16"):
            transposes = [int(tile.major == "MN") for tile in tiles]
            text += "".join(f", {t}" for t in transposes[int(registers) :])
        text += ";\n"
    text += "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n"
    for i in range(count):
        text += f"st.global.b32 [%rd21+{512 * i}], %r{i};\n"
    shared = f".shared .align 1024 .b8 tiles[{place_b + tiles[1].size_bytes}];\n"
    return module(text, 2, 2, shared + ".shared .align 8 .b64 bar;\n")


def cases(smoke: bool) -> Iterator[PtxCase]:
    """Yield every form; in ``smoke`` a few."""
    every = list(_cases())
    yield from every[::37] if smoke else every


def _cases() -> Iterator[PtxCase]:
    types = [("f32", "f16", "f16"), ("f32", "bf16", "bf16"), ("f16", "f16", "f16"),
             ("f32", "tf32", "tf32")]  # fmt: skip
    types += [(d, a, b) for d in ("f32", "f16") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")]
    types += [("s32", a, b) for a in ("s8", "u8") for b in ("s8", "u8")] + [("s32", "b1", "b1")]
    for (d, a, b), n in itertools.product(types, COLUMNS):
        text = f"{d} {a} {b} n={n}"
        yield build(text + (" exact" if d != "s32" else ""), d, a, b, n, exact=d != "s32")
        if d != "s32":
            yield build(text, d, a, b, n)
        elif a != "b1":
            yield build(text + " satfinite", d, a, b, n, satfinite=True)
        if n in (24, 128):
            yield build(text + " A in registers", d, a, b, n, registers=True, exact=d != "s32")
            yield build(text + " scale-d 0", d, a, b, n, accumulate=False, exact=d != "s32")
            if d != "s32":
                for negate in ((-1, 1), (1, -1), (-1, -1)):
                    yield build(f"{text} scale {negate}", d, a, b, n, negate=negate, exact=True)
        if n == 64:
            for swizzle_a, swizzle_b in zip(SWIZZLES, (*SWIZZLES[1:], SWIZZLES[0]), strict=True):
                yield build(f"{text} {swizzle_a} {swizzle_b}", d, a, b, n, swizzle_a=swizzle_a,
                            swizzle_b=swizzle_b, exact=True)  # fmt: skip
    for kind, majors, swizzle, n in itertools.product(
        ("f16", "bf16"), (("K", "MN"), ("MN", "K"), ("MN", "MN")), SWIZZLES, (8, 64, 128, 256)
    ):
        if n == 256 and kind == "bf16":
            continue  # the layout does not depend on the type
        name = f"f32 {kind} n={n} A {majors[0]}-major B {majors[1]}-major {swizzle}"
        yield build(name, "f32", kind, kind, n, major_a=majors[0], major_b=majors[1],
                    swizzle_a=swizzle, swizzle_b=swizzle, exact=True)  # fmt: skip
    for kind in ("f16", "bf16"):
        yield build(f"f32 {kind} n=64 A in registers B MN-major", "f32", kind, kind, 64,
                    major_b="MN", registers=True, exact=True)  # fmt: skip
