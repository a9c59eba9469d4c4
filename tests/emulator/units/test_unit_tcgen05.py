"""The tcgen05 unit against float64 products, with D read back through the layout functions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from nbtc.emulator.units import UnitFault, tcgen05, tmem
from nbtc.layout import scale_factors as sf
from nbtc.layout import tensor_memory as tm
from nbtc.layout.instruction_descriptor import InstructionDescriptor
from nbtc.layout.matrix_descriptor import OperandTile

BASE = 0x400
NUMPY = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8,
    "u8": np.uint8, "e2m3": ml_dtypes.float6_e2m3fn, "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
}  # fmt: skip
CARRIER = {1: "uint8", 2: "float16", 4: "float32"}
NARROW = {"e2m3": 6, "e3m2": 6, "e2m1": 4}


def random(rng, shape, kind):
    if kind in ("s8", "u8"):
        low, high = (-128, 128) if kind == "s8" else (0, 256)
        return rng.integers(low, high, shape).astype(NUMPY[kind])
    values = rng.standard_normal(shape).astype(np.float32)
    if kind == "tf32":
        return (values.view(np.uint32) & 0xFFFFE000).view(np.float32)
    return values.astype(NUMPY[kind])


def padded(patterns, bits):
    """Pack groups of 16 patterns along the last axis into 16 bytes, the rest poisoned."""
    groups = patterns.reshape(*patterns.shape[:-1], -1, 16)
    unpacked = np.unpackbits(groups[..., None], axis=-1, bitorder="little")[..., :bits]
    data = np.packbits(unpacked.reshape(*groups.shape[:-1], -1), axis=-1, bitorder="little")
    out = np.full(groups.shape, 0xEE, np.uint8)
    out[..., : data.shape[-1]] = data
    return out.reshape(patterns.shape)


class Tile:
    """An operand tile in the shared memory of one CTA."""

    def __init__(self, shared, address, values, kind, major="K", swizzle="128B", packed=False):
        self.address = address
        raw = values.view(f"u{values.dtype.itemsize}")
        if packed:
            raw = raw[:, 0::2] | raw[:, 1::2] << 4
        elif kind in NARROW:
            raw = padded(raw, 4) if NARROW[kind] == 4 else padded(raw, 6)
            if major == "MN":
                raw = padded(values.view(np.uint8).T.copy(), NARROW[kind]).T
        size = raw.dtype.itemsize
        self.tile = OperandTile(*raw.shape, CARRIER[size], major, swizzle, 100)
        rows, columns = np.arange(raw.shape[0])[:, None], np.arange(raw.shape[1])[None, :]
        unit = self.tile.k_per_instruction
        for step in range(raw.shape[1] // unit):
            part = self.tile.descriptor(address, step=step)
            places = part.address(rows, columns[:, :unit], 8 * size, major) - BASE
            data = np.ascontiguousarray(raw[:, step * unit : (step + 1) * unit])
            for byte in range(size):
                shared[places + byte] = data.view(np.uint8).reshape(*data.shape, size)[..., byte]

    def descriptors(self, first=0, count=1):
        return [self.tile.descriptor(self.address, step=first + i).encode() for i in range(count)]


def memories(ctas):
    rng = np.random.default_rng(99)
    shared = [(rng.integers(0, 256, 160 * 1024).astype(np.uint8), BASE) for _ in range(ctas)]
    return shared, [np.full((128, 512), 0x7FC00001, np.uint32) for _ in range(ctas)]


def read_d(op, tensors, d):
    m, n = op.fields.m, op.fields.n
    rows, columns = (a.ravel() for a in np.meshgrid(np.arange(m), np.arange(n), indexing="ij"))
    cta = np.broadcast_to(tm.d_cta(op.layout, rows), rows.shape)
    lanes = tm.d_lane(op.layout, rows, columns, n) + tm.lane_of(d)
    places = tm.d_column(op.layout, rows, columns, n) + tm.column_of(d)
    words = np.stack(tensors)[cta, lanes, places].reshape(m, n)
    if op.fields.d == "f16":
        return words.astype(np.uint16).view(np.float16).astype(np.float64)
    return words.view({"f32": np.float32, "s32": np.int32}[op.fields.d]).astype(np.float64)


def close(got, a, b, extra=0.0):
    want = a @ b.T + extra
    bound = (a.shape[1] + 4) * 2.0**-24 * (np.abs(a) @ np.abs(b).T + np.abs(extra)) + 1e-30
    assert (np.abs(got - want) <= bound).all()


def f64(values):
    return values.astype(np.float32).astype(np.float64)


@pytest.mark.parametrize(
    ("group", "m", "n", "ws", "lane"),
    [(1, 128, 256, False, 0), (1, 64, 24, False, 0), (1, 64, 128, False, 16),
     (2, 256, 64, False, 0), (2, 128, 96, False, 0), (1, 64, 128, True, 0),
     (1, 32, 64, True, 0), (1, 128, 64, True, 0)],
)  # fmt: skip
@pytest.mark.parametrize("major", ["K", "MN"])
def test_f16_every_layout(group, m, n, ws, lane, major):
    rng = np.random.default_rng(m + n)
    unit = 64 if major == "MN" else 8
    shared, tensors = memories(group)
    rows, columns = m // group, n // group
    a = random(rng, (m, 64), "bf16")
    b = random(rng, (n, 64), "bf16")
    for c in range(group):
        part_a = np.zeros((-(-rows // unit) * unit, 64), a.dtype)
        part_b = np.zeros((-(-columns // unit) * unit, 64), b.dtype)
        part_a[:rows] = a[c * rows : (c + 1) * rows]
        part_b[:columns] = b[c * columns : (c + 1) * columns]
        tile_a = Tile(shared[c][0], 0x800, part_a, "bf16", major)
        tile_b = Tile(shared[c][0], 0x8000, part_b, "bf16", major)
    turned = major == "MN"
    fields = InstructionDescriptor("f16", m, n, "bf16", "bf16", transpose_a=turned,
                                   transpose_b=turned)  # fmt: skip
    op = tcgen05.operation(fields.encode(), "f16", cta_group=group, ws=ws)
    d = tm.address(lane, 32)
    exact_a, exact_b = f64(a), f64(b)
    before = [t.copy() for t in tensors]
    for step in range(4):
        tcgen05.mma(op, tensors, d, tile_a.descriptors(step), tile_b.descriptors(step), shared,
                    accumulate=step > 0)  # fmt: skip
    close(read_d(op, tensors, d), exact_a, exact_b)
    outside = np.ones((128, 512), bool)
    for rect in tcgen05.describe_tmem(op, d)["d"]:
        outside[rect.lane : rect.lane + rect.lanes, rect.column : rect.column + rect.columns] = (
            False
        )
    for old, new in zip(before, tensors, strict=True):
        np.testing.assert_array_equal(old[outside], new[outside])
        assert (old[~outside] != new[~outside]).all()
    # All four steps at once, on top.
    tcgen05.mma(op, tensors, d, tile_a.descriptors(0, 4), tile_b.descriptors(0, 4), shared,
                accumulate=True)  # fmt: skip
    close(read_d(op, tensors, d), 2 * exact_a, exact_b)
    negated = InstructionDescriptor("f16", m, n, "bf16", "bf16", transpose_a=turned,
                                    transpose_b=turned, negate_b=True)  # fmt: skip
    op = tcgen05.operation(negated.encode(), "f16", cta_group=group, ws=ws)
    tcgen05.mma(op, tensors, d, tile_a.descriptors(0, 4), tile_b.descriptors(0, 4), shared,
                accumulate=False)  # fmt: skip
    close(read_d(op, tensors, d), -exact_a, exact_b)


@pytest.mark.parametrize(
    ("kind", "kind_a", "kind_b", "major", "swizzle"),
    [
        ("tf32", "tf32", "tf32", "K", "128B"),
        ("tf32", "tf32", "tf32", "MN", "128B_ATOM_32B"),
        ("f8f6f4", "e4m3", "e5m2", "K", "128B"),
        ("f8f6f4", "e4m3", "e5m2", "MN", "128B"),
        ("f8f6f4", "e5m2", "e4m3", "MN", "64B"),
        ("f8f6f4", "e2m1", "e4m3", "K", "128B"),
        ("f8f6f4", "e3m2", "e2m1", "K", "128B"),
        ("f8f6f4", "e2m3", "e3m2", "MN", "128B"),
        ("f16", "f16", "f16", "K", "none"),
        ("i8", "s8", "u8", "K", "128B"),
    ],
)
def test_other_types(kind, kind_a, kind_b, major, swizzle):
    rng = np.random.default_rng(5)
    shared, tensors = memories(1)
    k = {"tf32": 32, "f16": 64}.get(kind, 128)
    a, b = random(rng, (128, k), kind_a), random(rng, (128, k), kind_b)
    tile_a = Tile(shared[0][0], 0x800, a, kind_a, major, swizzle)
    tile_b = Tile(shared[0][0], 0x8000, b, kind_b, major, swizzle)
    fields = InstructionDescriptor(
        kind, 128, 128, kind_a, kind_b, "s32" if kind == "i8" else "f32",
        transpose_a=major == "MN", transpose_b=major == "MN",
    )  # fmt: skip
    op = tcgen05.operation(fields.encode(), kind)
    for step in range(k // fields.k):
        tcgen05.mma(op, tensors, 0, tile_a.descriptors(step), tile_b.descriptors(step), shared,
                    accumulate=step > 0)  # fmt: skip
    got = read_d(op, tensors, 0)
    if kind == "i8":
        np.testing.assert_array_equal(got, f64(a) @ f64(b).T)
    else:
        close(got, f64(a), f64(b))


def test_i8_saturates():
    shared, tensors = memories(1)
    ones = np.full((128, 32), 127, np.int8)
    tile = Tile(shared[0][0], 0x800, ones, "s8", "K", "32B")
    tensors[0][:, :32] = 0x7FFFFFFF
    for saturate, want in ((True, 2**31 - 1), (False, 127 * 127 * 32 - 2**31 - 1)):
        fields = InstructionDescriptor("i8", 128, 32, "s8", "s8", "s32", saturate=saturate)
        tensors[0][:, :32] = 0x7FFFFFFF
        tcgen05.mma(tcgen05.operation(fields.encode(), "i8"), tensors, 0, tile.descriptors(),
                    tile.descriptors(), shared, accumulate=True)  # fmt: skip
        assert (tensors[0][:, :32].view(np.int32) == want).all()


def test_f16_result_scale_d_and_lane_mask():
    rng = np.random.default_rng(6)
    shared, tensors = memories(1)
    a, b = random(rng, (128, 64), "f16"), random(rng, (32, 64), "f16")
    tile_a, tile_b = Tile(shared[0][0], 0x800, a, "f16"), Tile(shared[0][0], 0x8000, b, "f16")
    fields = InstructionDescriptor("f16", 128, 32, "f16", "f16", "f16")
    op = tcgen05.operation(fields.encode(), "f16")
    tcgen05.mma(op, tensors, 0, tile_a.descriptors(), tile_b.descriptors(), shared,
                accumulate=False)  # fmt: skip
    first = f64(a)[:, :16] @ f64(b)[:, :16].T
    np.testing.assert_allclose(read_d(op, tensors, 0), first, rtol=2**-10, atol=2**-10)
    fields = InstructionDescriptor("f16", 128, 32, "f16", "f16")
    op = tcgen05.operation(fields.encode(), "f16")
    start = rng.standard_normal((128, 32)).astype(np.float32)
    tensors[0][:, :32] = start.view(np.uint32)
    mask = [0, 1 << 5, 0xFFFFFFFF, 0]
    tcgen05.mma(op, tensors, 0, tile_a.descriptors(), tile_b.descriptors(), shared,
                accumulate=True, scale_d=3, disable_lanes=mask)  # fmt: skip
    want = first + start.astype(np.float64) / 8
    kept = [37, *range(64, 96)]
    want[kept] = start[kept]
    np.testing.assert_allclose(read_d(op, tensors, 0), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("group", "m", "lane", "kind", "word"),
    [(1, 128, 0, "f16", "bf16"), (1, 64, 16, "f16", "f16"), (2, 256, 0, "f16", "bf16"),
     (2, 128, 0, "f16", "bf16"), (1, 128, 0, "tf32", "tf32"), (1, 128, 0, "f8f6f4", "e4m3")],
)  # fmt: skip
def test_a_in_tmem(group, m, lane, kind, word):
    rng = np.random.default_rng(7)
    shared, tensors = memories(group)
    fields = InstructionDescriptor(kind, m, 64, word, word)
    k = 2 * fields.k
    a, b = random(rng, (m, k), word), random(rng, (64, k), word)
    op = tcgen05.operation(fields.encode(), kind, cta_group=group, a_in_tmem=True)
    for c in range(group):
        part = np.ascontiguousarray(a[c * op.rows : (c + 1) * op.rows]).view(np.uint32)
        for row in range(op.rows):
            where = tm.d_lane("F", row, 0, 64) + lane if m == 64 else row
            tensors[c][where, 256 : 256 + part.shape[1]] = part[row]
        tile_b = Tile(shared[c][0], 0x800, b[c * op.b_rows : (c + 1) * op.b_rows], word, "K", "64B")
    d = tm.address(lane, 0)
    for step in range(2):
        address = tm.address(lane, 256 + 8 * step)
        tcgen05.mma(op, tensors, d, [address], tile_b.descriptors(step), shared,
                    accumulate=step > 0)  # fmt: skip
    close(read_d(op, tensors, d), f64(a), f64(b))
    rects = tcgen05.describe_tmem(op, d, address)["a"]
    assert sum(r.lanes * r.columns for r in rects) == op.rows * 8


def place_scales(tensor, column, scales, pair_n=0):
    """Write scale factors (rows, up to 4) into tensor memory by the layout functions."""
    words = np.zeros((len(scales), 4), np.uint8)
    words[:, : scales.shape[1]] = scales
    for row, word in enumerate(words.view(np.uint32)[:, 0]):
        for rep in range(2 if pair_n else 4):
            if pair_n:
                lane = tm.scale_lane_m128_pair(row, rep, pair_n)
                place = tm.scale_column_m128_pair(row, pair_n)
            else:
                lane, place = tm.scale_lane(row, rep), tm.scale_column(row)
            tensor[lane, column + place] = word


@pytest.mark.parametrize(
    ("kind", "word_a", "word_b", "scale", "vector", "count", "first", "group", "m"),
    [
        ("mxf8f6f4", "e4m3", "e5m2", "ue8m0", "scale_vec::1X", 1, 2, 1, 128),
        ("mxf8f6f4", "e2m1", "e3m2", "ue8m0", "block32", 1, 3, 1, 128),
        ("mxf8f6f4", "e4m3", "e4m3", "ue8m0", None, 1, 0, 2, 256),
        ("mxf8f6f4", "e4m3", "e4m3", "ue8m0", None, 1, 1, 2, 128),
        ("mxf4", "e2m1", "e2m1", "ue8m0", "block32", 2, 2, 1, 128),
        ("mxf4nvf4", "e2m1", "e2m1", "ue4m3", "scale_vec::4X", 4, 0, 1, 128),
        ("mxf4nvf4", "e2m1", "e2m1", "ue4m3", "block16", 4, 0, 2, 256),
        ("mxf4nvf4", "e2m1", "e2m1", "ue8m0", "scale_vec::2X", 2, 0, 1, 128),
    ],
)
def test_block_scaled(kind, word_a, word_b, scale, vector, count, first, group, m):
    rng = np.random.default_rng(8)
    n = 64
    shared, tensors = memories(group)
    packed = kind != "mxf8f6f4"
    fields = InstructionDescriptor(kind, m, n, word_a, word_b, scale=scale, sfa_id=first,
                                   sfb_id=first)  # fmt: skip
    op = tcgen05.operation(fields.encode(), kind, cta_group=group, vector=vector)
    a, b = random(rng, (m, 4 * fields.k), word_a), random(rng, (n, 4 * fields.k), word_b)
    dtype = {"ue8m0": ml_dtypes.float8_e8m0fnu, "ue4m3": ml_dtypes.float8_e4m3fn}[scale]
    low, high = (120, 135) if scale == "ue8m0" else (1, 0x7F)
    scales_a = rng.integers(low, high, (m, 4)).astype(np.uint8)
    scales_b = rng.integers(low, high, (n, 4)).astype(np.uint8)
    for c in range(group):
        tile_a = Tile(shared[c][0], 0x800, a[c * op.rows : (c + 1) * op.rows], word_a,
                      packed=packed)  # fmt: skip
        tile_b = Tile(shared[c][0], 0x8000, b[c * op.b_rows : (c + 1) * op.b_rows], word_b,
                      packed=packed)  # fmt: skip
        place_scales(tensors[c], 256, scales_a[c * op.rows : (c + 1) * op.rows])
        place_scales(tensors[c], 300, scales_b, n if (group, m) == (2, 128) else 0)
    step = 1
    tcgen05.mma(op, tensors, 0, tile_a.descriptors(step), tile_b.descriptors(step), shared,
                accumulate=False, sfa=256, sfb=300)  # fmt: skip
    k = slice(step * fields.k, (step + 1) * fields.k)
    block = fields.k // count
    factors = [
        np.repeat(f64(s[:, first : first + count].view(dtype)), block, axis=1)
        for s in (scales_a, scales_b)
    ]
    close(read_d(op, tensors, 0), f64(a)[:, k] * factors[0], f64(b)[:, k] * factors[1])
    tensors[0][40, 256] ^= 1 << (8 * first)
    with pytest.raises(UnitFault, match="repeated in all four") as caught:
        tcgen05.mma(op, tensors, 0, tile_a.descriptors(), tile_b.descriptors(), shared,
                    accumulate=False, sfa=256, sfb=300)  # fmt: skip
    assert caught.value.kind == "tmem-layout"


def test_scale_factors_by_cp():
    rng = np.random.default_rng(9)
    shared, tensors = memories(1)
    scales = rng.integers(0, 256, (128, 4)).astype(np.uint8)
    shared[0][0][0x800 - BASE : 0x800 - BASE + 512] = sf.pack(scales)
    from nbtc.layout.matrix_descriptor import MatrixDescriptor

    descriptor = MatrixDescriptor(0x800, 16, 128, "none", sm=100).encode()
    tmem.cp(tensors, 256, "32x128b.warpx4", descriptor, shared)
    want = np.zeros((128, 512), np.uint32)
    place_scales(want, 256, scales)
    np.testing.assert_array_equal(tensors[0][:, 256:260], want[:, 256:260])
    assert tmem.describe_cp("32x128b.warpx4", descriptor).high == 0xA00


@pytest.mark.parametrize(
    ("kind", "word"),
    [("f16", "bf16"), ("tf32", "tf32"), ("f8f6f4", "e4m3"), ("i8", "s8"), ("mxf4", "e2m1")],
)
def test_sparse(kind, word):
    rng = np.random.default_rng(10)
    shared, tensors = memories(1)
    fields = InstructionDescriptor(kind, 128, 64, word, word, "s32" if kind == "i8" else "f32",
                                   sparse=True)  # fmt: skip
    packed = kind == "mxf4"
    op = tcgen05.operation(fields.encode(), kind, sparse=True, vector="block32" if packed else None)
    k, size = fields.k, {"tf32": 2, "e2m1": 8}.get(word, 4)
    bits = 4 if packed else np.dtype(NUMPY[word]).itemsize * 8
    stored = random(rng, (128, k // 2), word)
    b = random(rng, (64, k), word)
    dense = np.zeros((128, k), NUMPY[word])
    tensors[0][:, 400:402] = 0
    for row, group in np.ndindex(128, k // size):
        chosen = np.sort(rng.choice(2 if size == 2 else 4, 1 if size == 2 else 2, replace=False))
        nibble = (0xE if chosen[0] else 4) if size == 2 else chosen[0] | chosen[1] << 2
        spots = np.repeat(2 * chosen, 2) + np.tile([0, 1], 2) if size == 8 else chosen
        half = size // 2
        dense[row, group * size + spots] = stored[row, group * half : (group + 1) * half]
        bit = tm.metadata_bit(row, group, bits)
        lane = tm.metadata_lane(row, group, bits)
        tensors[0][lane, 400 + bit // 32] |= np.uint32(int(nibble) << (bit % 32))
    tile_a = Tile(shared[0][0], 0x800, stored, word, "K", "32B", packed)
    tile_b = Tile(shared[0][0], 0x8000, b, word, "K", "64B", packed)
    options = {}
    if packed:
        one = np.full((128, 4), 127, np.uint8)
        place_scales(tensors[0], 256, one)
        place_scales(tensors[0], 300, one)
        options = {"sfa": 256, "sfb": 300}
    tcgen05.mma(op, tensors, 0, tile_a.descriptors(), tile_b.descriptors(), shared,
                accumulate=False, metadata=400, **options)  # fmt: skip
    close(read_d(op, tensors, 0), f64(dense), f64(b))


@pytest.mark.parametrize(
    ("shape", "count"),
    [("32x32b", 128), ("16x64b", 16), ("16x128b", 8), ("16x256b", 4), ("16x32bx2", 8)],
)
@pytest.mark.parametrize("pack", [False, True])
def test_ld_st(shape, count, pack):
    rng = np.random.default_rng(11)
    tensor = rng.integers(0, 1 << 32, (128, 512)).astype(np.uint32)
    warp, lane = 6, 0 if shape == "32x32b" else 16
    options = {"half_split": 100} if shape == "16x32bx2" else {}
    got = tmem.ld(tensor, tm.address(lane, 7), shape, count, warp, pack=pack, **options)
    assert got.shape == (tm.registers(shape, count), 32)
    other = tmem.ld(tensor, tm.address(64 + lane, 7), shape, count, warp, pack=pack, **options)
    np.testing.assert_array_equal(got, other)
    lane_of = getattr(tm, f"lane_{shape}")
    column_of = getattr(tm, f"column_{shape}")
    for reg, thread in np.ndindex(*got.shape):
        row = 64 + lane + lane_of(thread, reg)
        column = column_of(thread, reg, *options.values())
        if pack:
            # The half split counts columns of TMEM (CuTe: N, and 2N with pack).
            column = column_of(thread, 2 * reg, *options.values()) if options else 2 * column
            low, high = tensor[row, 7 + column], tensor[row, 8 + column]
            assert got[reg, thread] == (int(low) & 0xFFFF | (int(high) & 0xFFFF) << 16)
        else:
            assert got[reg, thread] == tensor[row, 7 + column]
    target = np.zeros((128, 512), np.uint32)
    tmem.st(target, tm.address(lane, 7), shape, count, warp, got, unpack=pack, **options)
    again = tmem.ld(target, tm.address(lane, 7), shape, count, warp, pack=pack, **options)
    np.testing.assert_array_equal(again, got)
    inside = np.zeros((128, 512), bool)
    for rect in tmem.access_rects(tm.address(lane, 7), shape, count, warp, packed=pack, **options):
        inside[rect.lane : rect.lane + rect.lanes, rect.column : rect.column + rect.columns] = True
    assert not target[~inside].any()
    assert inside.sum() == got.size * (2 if pack else 1)


def fault(kind, message, function, *args, **options):
    with pytest.raises(UnitFault, match=message) as caught:
        function(*args, **options)
    assert caught.value.kind == kind


def test_c64_quarters_and_bounds():
    tensor = np.zeros((128, 512), np.uint32)
    fault("tmem-lane", r"warp 3 accesses lane base 32; it can only reach 96\.\.127 \(0x600000\)",
          tmem.ld, tensor, tm.address(32, 0), "32x32b", 1, 3)  # fmt: skip
    fault("tmem-lane", "must be 0 in", tmem.ld, tensor, tm.address(16, 0), "32x32b", 1, 3)
    fault("tmem-bounds", r"columns 500\.\.515", tmem.ld, tensor, 500, "32x32b", 16, 0)
    fault("illegal-instruction", "x64", tmem.ld, tensor, 0, "16x256b", 64, 0)


@pytest.mark.parametrize("shape", tm.CP_SHAPES)
@pytest.mark.parametrize("packed", [0, 4, 6])
def test_cp(shape, packed):
    rng = np.random.default_rng(12)
    rows, width = tm.CP_SHAPES[shape]
    shared, tensors = memories(2)
    from nbtc.layout.matrix_descriptor import MatrixDescriptor

    descriptor = MatrixDescriptor(0x800, 2048, 128, "none", sm=100)
    values = rng.integers(0, 1 << (packed or 8), (2, rows, width)).astype(np.uint8)
    for c in range(2):
        source = padded(values[c], packed) if packed else values[c]
        places = descriptor.address(np.arange(rows)[:, None], np.arange(width)[None, :], 8, "K")
        shared[c][0][places - BASE] = source
    lane = 31 if shape == "4x256b" else 0
    tmem.cp(tensors, tm.address(lane, 40), shape, descriptor.encode(), shared, packed=packed)
    for c in range(2):
        for lanes in tm.cp_lanes(shape):
            got = tensors[c][np.array(lanes) + lane, 40 : 40 + width // 4]
            np.testing.assert_array_equal(np.ascontiguousarray(got).view(np.uint8), values[c])
        touched = tensors[c] != 0x7FC00001
        inside = np.zeros((128, 512), bool)
        for rect in tmem.cp_rects(tm.address(lane, 40), shape):
            inside[rect.lane : rect.lane + rect.lanes, rect.column : rect.column + rect.columns] = 1
        assert not touched[~inside].any()


def test_shift():
    tensor = np.arange(128 * 512, dtype=np.uint32).reshape(128, 512)
    before = tensor.copy()
    tmem.shift([tensor], tm.address(32, 8))
    np.testing.assert_array_equal(tensor[32:63, 8:16], before[33:64, 8:16])
    np.testing.assert_array_equal(tensor[63, 8:16], before[63, 8:16])
    np.testing.assert_array_equal(tensor[:32], before[:32])
    np.testing.assert_array_equal(tensor[:, 16:], before[:, 16:])
    fault("tmem-lane", "multiple of 32", tmem.shift, [tensor], tm.address(5, 0))


def test_operation_faults():
    good = InstructionDescriptor("f16", 128, 64, "bf16", "bf16")
    fault("tcgen05-descriptor", "M=32 with kind::f16", tcgen05.operation,
          InstructionDescriptor("f16", 32, 64, "bf16", "bf16").encode(), "f16")  # fmt: skip
    fault("tcgen05-descriptor", "sparse bit clear", tcgen05.operation, good.encode(), "f16",
          sparse=True)  # fmt: skip
    fault("tcgen05-descriptor", "A from TMEM must be K-major", tcgen05.operation,
          InstructionDescriptor("f16", 128, 64, "bf16", "bf16", transpose_a=True).encode(), "f16",
          a_in_tmem=True)  # fmt: skip
    shared, tensors = memories(1)
    op = tcgen05.operation(good.encode(), "f16")
    hopper = OperandTile(128, 64, "bfloat16").descriptor(0x800).encode()
    fault("tcgen05-descriptor", "wgmma descriptor .* passed to tcgen05", tcgen05.mma, op, tensors,
          0, [hopper], [hopper], shared, accumulate=False)  # fmt: skip
    tile = OperandTile(128, 64, "bfloat16", sm=100).descriptor(0x800).encode()
    fault("tmem-bounds", "D of tcgen05.mma", tcgen05.mma, op, tensors, 480, [tile], [tile], shared,
          accumulate=False)  # fmt: skip
    fault("tmem-lane", "D at lane 16", tcgen05.mma, op, tensors, tm.address(16, 0), [tile], [tile],
          shared, accumulate=False)  # fmt: skip


def test_zero_column_mask():
    rng = np.random.default_rng(13)
    shared, tensors = memories(1)
    a, b = random(rng, (64, 64), "f16"), random(rng, (64, 64), "f16")
    tile_a, tile_b = Tile(shared[0][0], 0x800, a, "f16"), Tile(shared[0][0], 0x8000, b, "f16")
    fields = InstructionDescriptor("f16", 64, 64, "f16", "f16")
    op = tcgen05.operation(fields.encode(), "f16", ws=True)
    # First half of N: from column 1 of "3 zero, 5 used"; second half: "5 used, 3 zero".
    mask = 1 | 1 << 32 | 1 << 39 | (3 - 1) << 40 | (5 - 1) << 48
    zero = [column % 8 < 3 for column in range(1, 33)] + [column % 8 >= 5 for column in range(32)]
    assert tcgen05.zero_columns(op, mask).tolist() == zero
    tcgen05.mma(op, tensors, 0, tile_a.descriptors(0, 4), tile_b.descriptors(0, 4), shared,
                accumulate=False, zero_mask=mask)  # fmt: skip
    kept = f64(b)
    kept[np.array(zero)] = 0
    close(read_d(op, tensors, 0), f64(a), kept)
    assert not tcgen05.zero_columns(op, mask & ~(1 << 39)).any()
    fault("unmodelled", "column shift", tcgen05.zero_columns, op, mask | 1 << 56)
