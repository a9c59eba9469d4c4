"""The wgmma unit against float64 products of tiles written by the TMA unit."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from nbtc.emulator.units import UnitFault, tma, wgmma
from nbtc.emulator.units.formats import BITS
from nbtc.layout import fragments as fr
from nbtc.layout.matrix_descriptor import OperandTile
from nbtc.layout.tensormap_description import TensorMapDescription

SHARED_BASE = 0x400
NAMES = {
    "f16": "float16", "bf16": "bfloat16", "tf32": "tfloat32", "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2", "s8": "int8", "u8": "uint8",
}  # fmt: skip
NUMPY = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8,
    "u8": np.uint8,
}  # fmt: skip


def random(rng, shape, kind):
    if kind in ("s8", "u8"):
        return rng.integers(
            -128 if kind == "s8" else 0, 256 if kind == "u8" else 128, shape
        ).astype(NUMPY[kind])
    return rng.standard_normal(shape).astype(NUMPY[kind])


def truncated(values, kind):
    """Values as the hardware reads them, in float64."""
    if kind == "tf32":
        return (values.view(np.uint32) & 0xFFFFE000).view(np.float32).astype(np.float64)
    return values.astype(np.float64)


def load_tile(shared, address, tile, values):
    """Write a (mn, k) tile through tensor maps of its memory order; one copy per swizzle row."""
    array = values if tile.major == "K" else np.ascontiguousarray(values.T)
    rows, inner = tile.box
    swizzle = tile.swizzle if tile.swizzle != "none" else "none"
    # Boxes have at most 256 rows and one swizzle row of columns.
    m = TensorMapDescription.tiled(array.shape, NAMES_OF[array.dtype], (rows, inner),
                                   swizzle=swizzle, address=0x100000)  # fmt: skip
    memory = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
    for copy in range(tile.copies):
        plan = tma.plan(m, (copy * inner, 0), address + copy * tile.box_bytes)
        plan.write_shared(plan.read_global(memory, 0x100000), shared, SHARED_BASE)


NAMES_OF = {np.dtype(NUMPY[k]): NAMES[k] for k in ("f16", "bf16", "e4m3", "e5m2", "s8", "u8")}
NAMES_OF[np.dtype(np.float32)] = "float32"


def close(got, a, b, extra=0.0):
    want = a @ b.T + extra
    bound = (a.shape[1] + 2) * 2.0**-24 * (np.abs(a) @ np.abs(b).T + np.abs(extra)) + 1e-30
    assert (np.abs(got.astype(np.float64) - want) <= bound).all()


@pytest.mark.parametrize("n", [8, 24, 104, 256])
@pytest.mark.parametrize(
    ("kind_a", "kind_b", "major_a", "major_b", "swizzle"),
    [
        ("bf16", "bf16", "K", "K", "128B"),
        ("f16", "f16", "K", "K", "64B"),
        ("f16", "f16", "K", "K", "32B"),
        ("bf16", "bf16", "K", "K", "none"),
        ("bf16", "bf16", "MN", "MN", "128B"),
        ("f16", "f16", "K", "MN", "64B"),
        ("f16", "f16", "MN", "K", "32B"),
        ("bf16", "bf16", "MN", "MN", "none"),
        ("tf32", "tf32", "K", "K", "128B"),
        ("e4m3", "e5m2", "K", "K", "128B"),
        ("e5m2", "e4m3", "K", "K", "none"),
    ],
)
def test_float_products(n, kind_a, kind_b, major_a, major_b, swizzle):
    rng = np.random.default_rng(n)
    k = 2 * 256 * 4 // BITS[kind_a] // 2
    # MN-major tiles are whole swizzle rows wide; the instruction reads the first N columns.
    unit = {"128B": 64, "64B": 32, "32B": 16, "none": 8}[swizzle] if major_b == "MN" else 8
    tile_a = OperandTile(64, k, NAMES[kind_a], major_a, swizzle)
    tile_b = OperandTile(-(-n // unit) * unit, k, NAMES[kind_b], major_b, swizzle)
    a, b = random(rng, (64, k), kind_a), random(rng, (tile_b.mn, k), kind_b)
    shared = rng.integers(0, 256, 128 * 1024).astype(np.uint8)
    load_tile(shared, 0x800, tile_a, a)
    load_tile(shared, 0x8000, tile_b, b)
    op = wgmma.operation("f32", kind_a, kind_b, n)
    steps = range(k // op.k)
    da = [tile_a.descriptor(0x800, step=s).encode() for s in steps]
    db = [tile_b.descriptor(0x8000, step=s).encode() for s in steps]
    options = {"transpose_a": major_a == "MN", "transpose_b": major_b == "MN"}
    exact_a, exact_b = truncated(a, kind_a), truncated(b[:n], kind_b)
    start = rng.standard_normal((64, n)).astype(np.float32)
    d = start.copy()
    for s in steps:
        d = wgmma.mma(op, d, da[s : s + 1], db[s : s + 1], shared, SHARED_BASE, accumulate=True,
                      **options)  # fmt: skip
    close(d, exact_a, exact_b, start)
    d = wgmma.mma(op, start.copy(), da, db, shared, SHARED_BASE, accumulate=True, **options)
    close(d, exact_a, exact_b, start)
    d = wgmma.mma(op, start, da, db, shared, SHARED_BASE, accumulate=False, negate_a=True,
                  **options)  # fmt: skip
    close(d, -exact_a, exact_b)


@pytest.mark.parametrize(("kind_a", "kind_b"), [("s8", "s8"), ("u8", "s8"), ("s8", "u8")])
def test_integer_products_wrap_or_saturate(kind_a, kind_b):
    rng = np.random.default_rng(3)
    tile_a, tile_b = OperandTile(64, 128, NAMES[kind_a]), OperandTile(48, 128, NAMES[kind_b])
    a, b = random(rng, (64, 128), kind_a), random(rng, (48, 128), kind_b)
    shared = np.zeros(65536, np.uint8)
    load_tile(shared, 0x800, tile_a, a)
    load_tile(shared, 0x4000, tile_b, b)
    op = wgmma.operation("s32", kind_a, kind_b, 48)
    start = np.where(rng.random((64, 48)) < 0.5, 2**31 - 1000, -(2**31) + 1000).astype(np.int32)
    da = [tile_a.descriptor(0x800, step=2).encode()]
    db = [tile_b.descriptor(0x4000, step=2).encode()]
    want = start + a[:, 64:96].astype(np.int64) @ b[:, 64:96].astype(np.int64).T
    got = wgmma.mma(op, start.copy(), da, db, shared, SHARED_BASE, accumulate=True)
    np.testing.assert_array_equal(got, (want & 0xFFFFFFFF).astype(np.uint32).view(np.int32))
    assert (got != want).any()
    got = wgmma.mma(op, start.copy(), da, db, shared, SHARED_BASE, accumulate=True, satfinite=True)
    np.testing.assert_array_equal(got, np.clip(want, -(2**31), 2**31 - 1))


def test_f16_accumulator():
    rng = np.random.default_rng(4)
    tile_a, tile_b = OperandTile(64, 64, "float16"), OperandTile(32, 64, "float16")
    a, b = random(rng, (64, 64), "f16"), random(rng, (32, 64), "f16")
    shared = np.zeros(65536, np.uint8)
    load_tile(shared, 0x800, tile_a, a)
    load_tile(shared, 0x4000, tile_b, b)
    op = wgmma.operation("f16", "f16", "f16", 32)
    d = wgmma.mma(op, None, [tile_a.descriptor(0x800).encode()],
                  [tile_b.descriptor(0x4000).encode()], shared, SHARED_BASE,
                  accumulate=False)  # fmt: skip
    assert d.dtype == np.float16
    want = a[:, :16].astype(np.float64) @ b[:, :16].astype(np.float64).T
    np.testing.assert_allclose(d.astype(np.float64), want, rtol=2**-10, atol=2**-10)


def test_single_bit():
    rng = np.random.default_rng(5)
    a, b = (rng.integers(0, 256, (rows, 32)).astype(np.uint8) for rows in (64, 16))
    shared = np.zeros(65536, np.uint8)
    tile_a, tile_b = (
        OperandTile(64, 32, "uint8", "K", "32B"),
        OperandTile(16, 32, "uint8", "K", "32B"),
    )
    load_tile(shared, 0x800, tile_a, a)
    load_tile(shared, 0x4000, tile_b, b)
    op = wgmma.operation("s32", "b1", "b1", 16)
    got = wgmma.mma(op, None, [tile_a.descriptor(0x800).encode()],
                    [tile_b.descriptor(0x4000).encode()], shared, SHARED_BASE,
                    accumulate=False)  # fmt: skip
    want = np.bitwise_count(a[:, None, :] & b[None, :, :]).sum(axis=2)
    np.testing.assert_array_equal(got, want)


def a_registers(stored, bits):
    """Pack a (64, K) matrix into registers with the layout functions."""
    per = 32 // bits
    kind = np.dtype(f"u{bits // 8}")
    values = stored.view(kind).astype(np.uint64)
    registers = np.zeros((4, 128), np.uint64)
    for reg, thread, element in np.ndindex(4, 128, per):
        row, col = fr.wgmma_a_row(thread, reg), fr.wgmma_a_col(thread, reg, element, bits)
        registers[reg, thread] |= values[row, col] << np.uint64(bits * element)
    return registers.astype(np.uint32)


@pytest.mark.parametrize("kind", ["bf16", "tf32", "e4m3", "s8"])
def test_a_from_registers(kind):
    rng = np.random.default_rng(6)
    d_kind = "s32" if kind == "s8" else "f32"
    op = wgmma.operation(d_kind, kind, kind, 24)
    a = random(rng, (64, op.k), kind)
    tile_b = OperandTile(24, 4 * op.k, NAMES[kind])
    b = random(rng, (24, 4 * op.k), kind)
    shared = np.zeros(65536, np.uint8)
    load_tile(shared, 0x800, tile_b, b)
    db = [tile_b.descriptor(0x800, step=1).encode()]
    got = wgmma.mma(op, None, a_registers(a, BITS[kind]), db, shared, SHARED_BASE,
                    accumulate=False)  # fmt: skip
    close(got, truncated(a, kind), truncated(b[:, op.k : 2 * op.k], kind))


@pytest.mark.parametrize(
    ("d", "n"), [("f32", 8), ("f32", 256), ("s32", 96), ("f16", 8), ("f16", 120)]
)
def test_accumulator_fragments(d, n):
    op = wgmma.operation(d, "s8" if d == "s32" else "f16", "s8" if d == "s32" else "f16", n)
    matrix = np.random.default_rng(7).integers(0, 2000, (64, n)).astype(op.dtype)
    registers = wgmma.matrix_to_fragment(op, matrix)
    assert registers.shape == (op.d_registers, 128)
    threads, regs = np.arange(128)[None, :], np.arange(op.d_registers)[:, None]
    if d == "f16":
        halves = registers.view(np.float16).reshape(op.d_registers, 128, 2)
        for half in range(2):
            want = matrix[fr.wgmma_f16_row(threads, regs), fr.wgmma_f16_col(threads, regs, half)]
            np.testing.assert_array_equal(halves[..., half], want)
    else:
        want = matrix[fr.wgmma_row(threads, regs), fr.wgmma_col(threads, regs)]
        np.testing.assert_array_equal(registers.view(op.dtype), want)
    np.testing.assert_array_equal(wgmma.fragment_to_matrix(op, registers), matrix)


@pytest.mark.parametrize("kind", ["bf16", "tf32", "e5m2", "u8"])
@pytest.mark.parametrize("from_registers", [True, False])
def test_sparse(kind, from_registers):
    rng = np.random.default_rng(8)
    op = wgmma.operation("s32" if kind == "u8" else "f32", kind, kind, 40 if kind != "u8" else 48,
                         sparse=True)  # fmt: skip
    bits, n = BITS[kind], op.n
    size, keep = (2, 1) if kind == "tf32" else (4, 2)
    dense = np.zeros((64, op.k), NUMPY[kind])
    stored = random(rng, (64, op.k // 2), kind)
    nibbles = np.zeros((64, op.k // size), np.uint32)
    for row, group in np.ndindex(*nibbles.shape):
        chosen = np.sort(rng.choice(size, keep, replace=False))
        dense[row, group * size + chosen] = stored[row, group * keep : (group + 1) * keep]
        nibbles[row, group] = (
            (0xE if chosen[0] else 0x4) if size == 2 else chosen[0] | chosen[1] << 2
        )
    selector = int(bits >= 16)
    metadata = rng.integers(0, 1 << 32, 128).astype(np.uint32) & np.uint32(0)
    for thread in range(128):
        if bits >= 16 and (thread & 3) >> 1 != selector:
            continue
        for bit in range(0, 32, 4):
            row = fr.wgmma_metadata_row(thread, bit, bits)
            group = fr.wgmma_metadata_k(thread, bit, bits) // size
            metadata[thread] |= nibbles[row, group] << np.uint32(bit)
    tile_a = OperandTile(64, op.k // 2 * 4, NAMES[kind])
    tile_b = OperandTile(n, op.k * 2, NAMES[kind])
    b = random(rng, (n, op.k * 2), kind)
    shared = np.zeros(65536, np.uint8)
    wide = np.concatenate([stored] * 4, axis=1)
    load_tile(shared, 0x800, tile_a, wide)
    load_tile(shared, 0x8000, tile_b, b)
    a = a_registers(stored, bits) if from_registers else [tile_a.descriptor(0x800, step=1).encode()]
    db = [tile_b.descriptor(0x8000, step=2).encode()]
    got = wgmma.mma(op, None, a, db, shared, SHARED_BASE, accumulate=False, metadata=metadata,
                    selector=selector)  # fmt: skip
    close(got, truncated(dense, kind), truncated(b[:, op.k : 2 * op.k], kind))


def test_shared_memory_at_other_bases():
    rng = np.random.default_rng(9)
    tile = OperandTile(64, 64, "bfloat16")
    a = random(rng, (64, 64), "bf16")
    op = wgmma.operation("f32", "bf16", "bf16", 64)
    results = []
    for base in (0x400, 0x410, 0x408, 0x1400, 0x20400):
        shared = np.zeros(32768, np.uint8)
        m = TensorMapDescription.tiled(
            a.shape, "bfloat16", (64, 64), swizzle="128B", address=0x1000
        )
        address = (base + 0x3FF & ~0x3FF) + 0x400
        plan = tma.plan(m, (0, 0), address)
        plan.write_shared(plan.read_global(a.view(np.uint8).reshape(-1), 0x1000), shared, base)
        d = [tile.descriptor(address, step=s).encode() for s in range(4)]
        results.append(wgmma.mma(op, None, d, d, shared, base, accumulate=False))
    assert all((r == results[0]).all() for r in results)
    close(results[0], truncated(a, "bf16"), truncated(a, "bf16"))


def fault(kind, message, function, *args, **options):
    with pytest.raises(UnitFault, match=message) as caught:
        function(*args, **options)
    assert caught.value.kind == kind


def test_faults():
    fault("illegal-instruction", r"N=12: must be a multiple of 8, 8\.\.256", wgmma.operation,
          "f32", "bf16", "bf16", 12)  # fmt: skip
    fault(
        "illegal-instruction", "N=40: must be 8, 16, 24, 32", wgmma.operation, "s32", "s8", "s8", 40
    )
    fault("illegal-instruction", "D f16, A bf16", wgmma.operation, "f16", "bf16", "bf16", 8)
    op = wgmma.operation("f32", "e4m3", "e4m3", 8)
    shared = np.zeros(4096, np.uint8)
    good = OperandTile(64, 128, "float8_e4m3fn").descriptor(0x400).encode()
    fault("illegal-instruction", "e4m3 operand B must be K-major", wgmma.mma, op, None, [good],
          [good], np.zeros(16384, np.uint8), 0x400, accumulate=False, transpose_b=True)  # fmt: skip
    fault("out-of-bounds", "reads shared addresses 0x400..0x", wgmma.mma, op, None, [good], [good],
          shared, 0x400, accumulate=False)  # fmt: skip
    fault("wgmma-descriptor", "passed to wgmma", wgmma.mma, op, None, [good | 1 << 46], [good],
          shared, 0x400, accumulate=False)  # fmt: skip


def test_describe_access():
    tile = OperandTile(128, 64, "bfloat16")
    op = wgmma.operation("f32", "bf16", "bf16", 128)
    access = wgmma.describe_access(op, "b", [tile.descriptor(0x2400, step=1).encode()])
    assert (access.low, access.high) == (0x2420, 0x2400 + 128 * 128 - 32)
    assert access.swizzle == "128B"
    chunks = access.chunk_addresses()
    assert chunks.size == 128 * 2
    rows = (chunks - 0x2400) // 128
    columns = (chunks // 16 ^ rows) % 8
    assert set(columns.tolist()) == {2, 3}
