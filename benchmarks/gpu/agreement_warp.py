"""Agreement of warp-level instructions: matrix moves, mma.sync, and conversions, exhaustively."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import ml_dtypes
import numpy as np

from .agreement_case import PtxCase, Tolerance, module, random_bytes
from .agreement_wgmma import NUMPY

_LANE_ADDRESS = (
    "mul.wide.u32 %rd20, %lane, 4;\nadd.u64 %rd21, %rd2, %rd20;\nld.global.u32 %r50, [%rd21];\n"
    "mov.u32 %r51, tile;\nadd.u32 %r50, %r50, %r51;\nadd.u64 %rd22, %rd3, %rd20;\n"
)
_FILL = "".join(
    f"ld.global.u32 %r60, [%rd23+{128 * i}];\nst.shared.u32 [%r61+{128 * i}], %r60;\n"
    for i in range(8)
)
_START = (
    _LANE_ADDRESS + "add.u64 %rd23, %rd1, %rd20;\nshl.b32 %r61, %lane, 2;\n"
    "add.u32 %r61, %r61, %r51;\n" + _FILL + "bar.warp.sync 0xffffffff;\n"
)
_SHARED = ".shared .align 128 .b8 tile[1024];\n"


def matrix_moves() -> Iterator[PtxCase]:
    """Yield ldmatrix, stmatrix and movmatrix; rows are in random order."""
    rng = np.random.default_rng(5)
    for num, trans in itertools.product((1, 2, 4), ("", ".trans")):
        rows = (rng.permutation(64)[:32] * 16).astype(np.uint32)
        memory, words = random_bytes(1024, num), random_bytes(512, num + 9).view(np.uint32)
        listed = "{" + ", ".join(f"%r{i}" for i in range(num)) + "}"
        form = f"sync.aligned.m8n8.x{num}{trans}.shared.b16"
        text = _START + f"ldmatrix.{form} {listed}, [%r50];\n"
        text += "".join(f"st.global.u32 [%rd22+{128 * i}], %r{i};\n" for i in range(num))
        yield PtxCase("matrix moves", f"ldmatrix x{num}{trans}", module(text, 0, 3, _SHARED),
                      [memory, rows, words], (0, 1, 2), {2: None}, 32)  # fmt: skip
        text = _START
        text += "".join(f"ld.global.u32 %r{i}, [%rd22+{128 * i}];\n" for i in range(num))
        text += f"stmatrix.{form} [%r50], {listed};\nbar.warp.sync 0xffffffff;\n"
        text += "".join(
            f"ld.shared.u32 %r60, [%r61+{128 * i}];\nst.global.u32 [%rd23+{128 * i}], %r60;\n"
            for i in range(8)
        )
        yield PtxCase("matrix moves", f"stmatrix x{num}{trans}", module(text, 0, 3, _SHARED),
                      [memory, rows, words], (0, 1, 2), {0: None}, 32)  # fmt: skip
    text = _LANE_ADDRESS + "ld.global.u32 %r0, [%rd22];\n"
    text += "movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r0;\nst.global.u32 [%rd22], %r1;\n"
    arrays = [random_bytes(1024, 1), rows, words.copy()]
    text = module(text, 0, 3, _SHARED)
    yield PtxCase("matrix moves", "movmatrix", text, arrays, (0, 1, 2), {2: None}, 32)


_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4,
         "u4": 4, "b1": 1, "f64": 64}  # fmt: skip
_PRODUCTS = [
    (8, "f32", "f16", "f16"), (16, "f32", "f16", "f16"), (8, "f16", "f16", "f16"),
    (16, "f16", "f16", "f16"), (8, "f32", "bf16", "bf16"), (16, "f32", "bf16", "bf16"),
    (4, "f32", "tf32", "tf32"), (8, "f32", "tf32", "tf32"), (4, "f64", "f64", "f64"),
    (8, "f64", "f64", "f64"), (16, "f64", "f64", "f64"),
    *((32, "f32", a, b) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
    *((k, "s32", a, b) for k in (16, 32) for a in ("s8", "u8") for b in ("s8", "u8")),
    *((k, "s32", a, b) for k in (32, 64) for a in ("s4", "u4") for b in ("s4", "u4")),
    (128, "s32", "b1", "b1"), (256, "s32", "b1", "b1"),
]  # fmt: skip


def _words(kind: str, registers: int, seed: int, exact: bool) -> np.ndarray:
    """Return random registers [register, lane] of one operand."""
    if kind in ("s8", "u8", "s4", "u4", "b1"):
        return random_bytes(registers * 128, seed).view(np.uint32).reshape(registers, 32)
    rng = np.random.default_rng(seed)
    shape = (registers, 32, max(1, 32 // _BITS[kind]))
    values = rng.integers(-3, 4, shape) if exact else rng.standard_normal(shape)
    if kind == "f64":
        return values.astype(np.float64)[..., 0]
    raw = np.ascontiguousarray(values.astype(np.float32).astype(NUMPY[kind]))
    return raw.view(np.uint8).reshape(registers, 32, 4).view(np.uint32)[..., 0]


def products() -> Iterator[PtxCase]:
    """Yield every type of mma.sync, in small integers (exact) and in normal numbers."""
    for (k, d, a, b), exact in itertools.product(_PRODUCTS, (True, False)):
        integer = d == "s32"
        modes = [""]
        if integer:
            modes = [".and.popc", ".xor.popc"] if a == "b1" else ["", ".satfinite"]
            if not exact:
                continue
        width = 64 if d == "f64" else 32
        of_a = 16 * k * _BITS[a] // 32 // width
        of_b = 8 * k * _BITS[b] // 32 // width
        of_d = 2 if d == "f16" else 4
        registers = [_words(a, of_a, k, exact), _words(b, of_b, k + 1, exact),
                     _start(d, of_d, exact)]  # fmt: skip
        tolerance = None
        if not exact:
            factor = {"f32": (k + 1) * 2.0**-23, "f16": 2.0**-9, "f64": (k + 1) * 2.0**-52}[d]
            factor += 2.0**-12 if _BITS[a] == 8 else 0
            kind = {"f32": "float32", "f16": "float16", "f64": "float64"}[d]
            tolerance = Tolerance(kind, factor * (k + 4))
        for mode in modes:
            text = _product(k, d, a, b, (of_a, of_b, of_d), mode, width // 8)
            name = f"k={k} {d} {a} {b}{mode}" + (" exact" if exact and not integer else "")
            yield PtxCase("mma.sync", name, text, [r.copy() for r in registers], (0, 1, 2),
                          {2: tolerance}, 32)  # fmt: skip


def _start(d: str, count: int, exact: bool) -> np.ndarray:
    rng = np.random.default_rng(3)
    if d == "s32":
        edge = np.where(rng.random((count, 32)) < 0.5, 2**31 - 900, -(2**31) + 900)
        return edge.astype(np.int32)
    if d == "f16":
        return _words("f16", count, 3, exact)
    values = rng.integers(-4, 5, (count, 32)) if exact else rng.standard_normal((count, 32))
    return values.astype(np.float64 if d == "f64" else np.float32)


def _product(k: int, d: str, a: str, b: str, counts: tuple[int, int, int], mode: str,
             size: int) -> str:  # fmt: skip
    prefix, load = ("%rd", "f64") if size == 8 else ("%r", "b32")
    if size == 8:
        prefix = "%dd"
    text = ".reg .f64 %dd<64>;\n" if size == 8 else ""
    text += f"mul.wide.u32 %rd20, %lane, {size};\n"
    lists = []
    for operand, count in enumerate(counts):
        names = [f"{prefix}{20 * operand + i}" for i in range(count)]
        text += f"add.u64 %rd{21 + operand}, %rd{1 + operand}, %rd20;\n"
        for i, name in enumerate(names):
            text += f"ld.global.{load} {name}, [%rd{21 + operand}+{32 * size * i}];\n"
        lists.append("{" + ", ".join(names) + "}")
    saturate = mode if mode == ".satfinite" else ""
    tail = mode if mode.endswith("popc") else ""
    text += f"mma.sync.aligned.m16n8k{k}.row.col{saturate}.{d}.{a}.{b}.{d}{tail} "
    text += f"{lists[2]}, {lists[0]}, {lists[1]}, {lists[2]};\n"
    for i in range(counts[2]):
        text += f"st.global.{load} [%rd23+{32 * size * i}], {prefix}{40 + i};\n"
    return module(text, 0, 3)


_INTEGERS = ("s8", "u8", "s16", "u16", "s32", "u32")
_NARROW = [f"{r}{s}.{t}" for r in ("rn", "rz") for s in ("", ".relu", ".satfinite")
           for t in ("f16", "bf16")]  # fmt: skip
# Name, code from %f1 (and %f2, its partner) or %r1 to %r3; "f32", "b16" or "b32" patterns.
_CONVERSIONS: list[tuple[str, str, str]] = [
    *((f"cvt.{n}.f32", "cvt.{0}.f32 %rs1, %f1; cvt.u32.u16 %r3, %rs1;", "f32") for n in _NARROW),
    *((f"cvt.{n}x2.f32", "cvt.{0}.f32 %r3, %f2, %f1;", "f32") for n in _NARROW),
    *(
        (f"cvt.rn.satfinite{r}.{t}x2.f32", "cvt.{0}.f32 %rs1, %f2, %f1; cvt.u32.u16 %r3, %rs1;",
         "f32")
        for r in ("", ".relu") for t in ("e4m3", "e5m2")
    ),
    *(
        (f"cvt.{m}.tf32.f32", "cvt.{0}.f32 %r3, %f1;", "f32")
        for m in ("rna", "rn", "rz", "rn.relu")
    ),
    *(
        (f"cvt.{m}.{t}.f32", "cvt.{0}.f32 %r3, %f1;", "f32")
        for m in ("rni", "rzi", "rmi", "rpi") for t in _INTEGERS
    ),
    *(
        (f"cvt.rn.satfinite{r}.{t}x2.f16x2", "cvt.{0}.f16x2 %rs1, %r1; cvt.u32.u16 %r3, %rs1;",
         "b16")
        for r in ("", ".relu") for t in ("e4m3", "e5m2")
    ),
    *(
        (f"cvt.rn{r}.f16x2.{t}x2", "cvt.u16.u32 %rs1, %r1; cvt.rn" + r + ".f16x2." + t
         + "x2 %r3, %rs1;", "b16")
        for r in ("", ".relu") for t in ("e4m3", "e5m2")
    ),
    *(
        (f"cvt{z}.f32.{t}", "cvt.u16.u32 %rs1, %r1; cvt" + z + ".f32." + t
         + " %f3, %rs1; mov.b32 %r3, %f3;", "b16")
        for z in ("", ".ftz") for t in ("f16", "bf16")
    ),
    ("cvt.rn.bf16.f16", "cvt.u16.u32 %rs1, %r1; cvt.rn.bf16.f16 %rs2, %rs1; cvt.u32.u16 %r3, %rs2;",
     "b16"),
    ("cvt.rzi.s32.bf16", "cvt.u16.u32 %rs1, %r1; cvt.rzi.s32.bf16 %r3, %rs1;", "b16"),
    ("cvt.rn.bf16.s32", "cvt.rn.bf16.s32 %rs1, %r1; cvt.u32.u16 %r3, %rs1;", "b32"),
    ("cvt.rn.f32.s32", "cvt.rn.f32.s32 %f3, %r1; mov.b32 %r3, %f3;", "b32"),
    ("cvt.rz.f32.u32", "cvt.rz.f32.u32 %f3, %r1; mov.b32 %r3, %f3;", "b32"),
]  # fmt: skip


def floats() -> np.ndarray:
    """Return float32 that tell roundings apart: every 16- and 8-bit value, ties, neighbours."""
    every = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(over="ignore", invalid="ignore"):
        halves = every.view(np.float16).astype(np.float32)
        brains = every.view(ml_dtypes.bfloat16).astype(np.float32)
        narrow = every[:256].astype(np.uint8)
        small = [
            narrow.view(kind).astype(np.float32)
            for kind in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
        ]
    patterns = [brains.view(np.uint32), halves.view(np.uint32)[::9]]
    for values, step in zip((halves, *small), (23, 1, 1), strict=True):
        finite = np.sort(values[np.isfinite(values)]).astype(np.float64)
        ties = ((finite[1:] + finite[:-1]) / 2).astype(np.float32).view(np.uint32)[::step]
        patterns += [ties, ties + 1, ties - 1]
    patterns += [(brains.view(np.uint32) | 0x8000)[::11]]
    found = np.concatenate(patterns)
    return np.resize(found, -(-found.size // _CTA) * _CTA)


_CTA, _FORMS = 1024, 8


def conversions() -> Iterator[PtxCase]:
    """Yield conversions over all 16-bit patterns, or over the float32 that matter.

    A case has several forms: row i of its result is that of the i-th.
    """
    edges = np.concatenate([2 ** np.arange(32, dtype=np.uint64) + d for d in (0, 1)])
    low = np.arange(1 << 16, dtype=np.uint32)
    inputs = {
        "f32": floats(),
        "b16": low | ((low * 40503 + 1) & 0xFFFF) << 16,
        "b32": np.concatenate([edges.astype(np.uint32), random_bytes(4 * 32704, 3).view("u4")]),
    }
    for source, words in inputs.items():
        forms = [(name, template) for name, template, kind in _CONVERSIONS if kind == source]
        for first in range(0, len(forms), _FORMS):
            part = forms[first : first + _FORMS]
            arrays = [words, np.roll(words, 12345), np.zeros((len(part), words.size), np.uint32)]
            text = "mov.u32 %r10, %ctaid.x;\nmov.u32 %r11, %ntid.x;\n"
            text += "mad.lo.u32 %r12, %r10, %r11, %thread;\nmul.wide.u32 %rd20, %r12, 4;\n"
            text += "add.u64 %rd21, %rd1, %rd20;\nadd.u64 %rd22, %rd2, %rd20;\n"
            text += "add.u64 %rd23, %rd3, %rd20;\nld.global.u32 %r1, [%rd21];\n"
            text += "ld.global.u32 %r2, [%rd22];\nmov.b32 %f1, %r1;\nmov.b32 %f2, %r2;\n"
            for i, (name, template) in enumerate(part):
                form = name.removeprefix("cvt.").rpartition(".")[0]
                text += template.replace("{0}", form).replace("; ", ";\n")
                text += f"\nst.global.u32 [%rd23+{4 * i * words.size}], %r3;\n"
            yield PtxCase("conversions", ", ".join(name for name, _ in part), module(text, 0, 3),
                          arrays, (0, 1, 2), {2: None}, _CTA, words.size // _CTA,
                          checks=False)  # fmt: skip


def cases(smoke: bool) -> Iterator[PtxCase]:
    """Yield all; in ``smoke`` a few of each kind."""
    for kind in (matrix_moves, products, conversions):
        every = list(kind())
        yield from every[::11] if smoke else every
