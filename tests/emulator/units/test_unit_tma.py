"""The TMA unit against element-by-element references."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from nbtc.emulator.units import UnitFault, tma
from nbtc.layout.swizzle import swizzle
from nbtc.layout.tensormap_description import TensorMapDescription

BASE = 0x7000_0000
SHARED_BASE = 0x400
RNG = np.random.default_rng(1)


def tensor(shape, dtype):
    array = RNG.integers(0, 256, (*shape, np.dtype(dtype).itemsize)).astype(np.uint8)
    return array.view(dtype)[..., 0]


def describe(array, box, **options):
    return TensorMapDescription.tiled(
        array.shape, array.dtype, box, strides=array.strides, address=BASE, **options
    )


def flat(array):
    return array.view(np.uint8).reshape(-1)


def expected_box(array, box, start, steps=None):
    """Box read element by element in array order; zero outside."""
    steps = steps or (1,) * array.ndim
    counts = [-(-b // s) for b, s in zip(box, steps, strict=True)]
    counts[-1] = box[-1]
    out = np.zeros(counts, array.dtype)
    for place in np.ndindex(*counts):
        at = [s + p * (t if i < array.ndim - 1 else 1)
              for i, (s, p, t) in enumerate(zip(start, place, steps, strict=True))]  # fmt: skip
        if all(0 <= a < n for a, n in zip(at, array.shape, strict=True)):
            out[place] = array[tuple(at)]
    return out


def swizzled_bytes(box, mode, address):
    """Shared-memory image of a box: byte by byte."""
    data = np.ascontiguousarray(box).view(np.uint8).reshape(-1)
    image = {}
    for i, byte in enumerate(data.tolist()):
        image[int(swizzle(address + i, mode))] = byte
    return image


CASES = [
    # shape, dtype, box, start (array order), options
    ((1000,), np.int32, (256,), (900,), {}),
    ((40, 72), np.float16, (16, 64), (8, 8), {"swizzle": "128B"}),
    ((40, 72), np.float16, (16, 64), (32, 16), {"swizzle": "128B"}),
    ((40, 72), np.float16, (16, 64), (-3, -8), {"swizzle": "128B"}),
    ((40, 72), np.float16, (16, 64), (100, 0), {}),
    ((40, 64), np.uint8, (8, 32), (4, 16), {"swizzle": "32B"}),
    ((40, 64), np.float32, (8, 16), (36, 52), {"swizzle": "64B"}),
    ((40, 64), np.float32, (9, 32), (1, 4), {"swizzle": "128B_ATOM_32B"}),
    ((40, 64), np.float32, (9, 32), (1, 4), {"swizzle": "128B_ATOM_64B"}),
    ((40, 64), np.float32, (9, 32), (1, 4), {"swizzle": "128B_ATOM_32B_FLIP_8B"}),
    ((5, 9, 16), np.int32, (2, 4, 8), (-1, 7, 4), {}),
    ((5, 9, 16), np.int32, (4, 6, 8), (1, 2, 4), {"element_strides": (2, 3, 1)}),
    ((5, 9, 16), np.int32, (4, 6, 8), (-1, -2, 4), {"element_strides": (2, 4, 1)}),
    ((3, 4, 5, 32), np.uint16, (2, 3, 2, 16), (2, -1, 4, 24), {"swizzle": "32B"}),
    ((2, 3, 4, 5, 16), np.float64, (1, 2, 3, 2, 4), (1, 2, 2, 4, 14), {}),
]


@pytest.mark.parametrize(("shape", "dtype", "box", "start", "options"), CASES)
def test_load(shape, dtype, box, start, options):
    array = tensor(shape, dtype)
    m = describe(array, box, **options)
    shared = np.full(8192, 0xAA, np.uint8)
    address = 0x800
    plan = tma.plan(m, start[::-1], address)
    want = expected_box(array, box, start, options.get("element_strides"))
    assert plan.transaction_bytes == want.nbytes == m.box_bytes
    data = plan.read_global(flat(array), BASE)
    np.testing.assert_array_equal(data, flat(want))
    plan.write_shared(data, shared, SHARED_BASE)
    image = swizzled_bytes(want, options.get("swizzle", "none"), address)
    reference = np.full(8192, 0xAA, np.uint8)
    for place, byte in image.items():
        reference[place - SHARED_BASE] = byte
    np.testing.assert_array_equal(shared, reference)
    assert {int(a) for a in plan.shared_chunks()} == {a & ~15 for a in image}
    np.testing.assert_array_equal(plan.read_shared(shared, SHARED_BASE), data)


@pytest.mark.parametrize(("shape", "dtype", "box", "start", "options"), CASES)
def test_store_writes_in_bounds_only(shape, dtype, box, start, options):
    start = tuple(max(s, 0) for s in start)
    array = tensor(shape, dtype)
    m = describe(array, box, **options)
    want = array.copy()
    steps = options.get("element_strides", (1,) * array.ndim)
    counts = m.box_shape[::-1]
    values = tensor(counts, dtype)
    touched = np.zeros(array.shape, bool)
    for place in np.ndindex(*counts):
        at = tuple(
            s + p * (t if i < array.ndim - 1 else 1)
            for i, (s, p, t) in enumerate(zip(start, place, steps, strict=True))
        )
        if all(a < n for a, n in zip(at, array.shape, strict=True)):
            want[at] = values[place]
            touched[at] = True
    shared = np.zeros(8192, np.uint8)
    plan = tma.plan(m, start[::-1], 0x1400, store=True)
    plan.write_shared(flat(values), shared, SHARED_BASE)
    plan.write_global(plan.read_shared(shared, SHARED_BASE), flat(array), BASE)
    np.testing.assert_array_equal(flat(array), flat(want))
    covered = np.zeros(array.nbytes, bool)
    for first, rows, pitch, width in plan.global_boxes:
        for row in range(rows):
            covered[first - BASE + row * pitch :][:width] = True
    np.testing.assert_array_equal(covered, np.repeat(touched.reshape(-1), array.itemsize))
    if covered.any():
        where = np.nonzero(covered)[0]
        assert (plan.global_low - BASE, plan.global_high - BASE) == (where[0], where[-1] + 1)
    else:
        assert plan.global_low == plan.global_high == 0


@pytest.mark.parametrize("address", [0x480, 0x500, 0x600, 0x780])
@pytest.mark.parametrize("mode", ["32B", "64B", "128B"])
def test_tile_off_its_repeat(address, mode):
    inner = {"32B": 16, "64B": 32, "128B": 64}[mode]
    array = tensor((64, 64), np.uint16)
    plan = tma.plan(describe(array, (24, inner), swizzle=mode), (0, 8), address)
    shared = np.zeros(8192, np.uint8)
    plan.write_shared(plan.read_global(flat(array), BASE), shared, 0x400)
    image = swizzled_bytes(array[8:32, :inner], mode, address)
    assert all(shared[a - 0x400] == byte for a, byte in image.items())
    assert plan.shared_low == min(image) & ~15
    assert plan.shared_high == (max(image) & ~15) + 16
    size = {"32B": 256, "64B": 512, "128B": 1024}[mode]
    assert (plan.swizzle_advice() is None) == (address % size == 0)


def test_shared_memory_at_an_odd_base():
    array = tensor((64, 64), np.uint16)
    plan = tma.plan(describe(array, (16, 64), swizzle="128B"), (0, 0), 0xC00)
    shared = np.zeros(8192, np.uint8)
    plan.write_shared(plan.read_global(flat(array), BASE), shared, 0x408)
    image = swizzled_bytes(array[:16], "128B", 0xC00)
    assert all(shared[a - 0x408] == byte for a, byte in image.items())
    np.testing.assert_array_equal(plan.read_shared(shared, 0x408), flat(array[:16]))


@pytest.mark.parametrize(
    ("dtype", "check"),
    [(np.float32, np.isnan), (ml_dtypes.bfloat16, np.isnan), (np.float16, np.isnan)],
)
def test_nan_fill(dtype, check):
    array = np.ones((16, 64), dtype)
    plan = tma.plan(describe(array, (16, 32), fill="nan"), (48, 8), 0x400)
    box = plan.read_global(flat(array), BASE).view(dtype).reshape(16, 32)
    assert check(box[8:].astype(np.float32)).all()
    assert check(box[:, 16:].astype(np.float32)).all()
    assert (box[:8, :16] == 1).all()


def fault(kind, message, function, *args, **options):
    with pytest.raises(UnitFault, match=message) as caught:
        function(*args, **options)
    assert caught.value.kind == kind


def test_c26_inner_coordinate():
    m = describe(np.zeros((64, 64), np.int32), (8, 8))
    for first, offset in ((1, 4), (2, 8), (-1, -4)):
        fault("tma-coordinate", rf"coordinate\[0\]={first} -> byte offset {offset}, must be a "
              r"multiple of 16 \(4 int32\)", tma.plan, m, (first, 0), 0x400)  # fmt: skip
    assert tma.plan(m, (-4, -3), 0x400)
    fault("tma-coordinate", "store coordinate", tma.plan, m, (0, -1), 0x400, store=True)
    fault("tma-descriptor", "3 coordinates through a map of rank 2", tma.plan, m, (0, 0, 0), 0x400)


def test_c27_shared_alignment():
    m = describe(np.zeros((64, 64), np.int32), (8, 8))
    fault("tma-alignment", "0x440 is 64 mod 128", tma.plan, m, (0, 0), 0x440)


def test_gather4_and_scatter4():
    array = tensor((32, 64), np.float16)
    m = describe(array, (1, 32), swizzle="64B")
    rows = (3, 40, 0, -1)
    plan = tma.plan_gather4(m, (16, *rows), 0x800)
    want = np.stack([array[r, 16:48] if 0 <= r < 32 else np.zeros(32, np.float16) for r in rows])
    data = plan.read_global(flat(array), BASE)
    np.testing.assert_array_equal(data, flat(want))
    assert plan.transaction_bytes == 4 * 32 * 2
    target = array.copy()
    scatter = tma.plan_gather4(m, (16, 5, 31, 99, 2), 0x800, store=True)
    values = tensor((4, 32), np.float16)
    scatter.write_global(flat(values), flat(target), BASE)
    want = array.copy()
    want[[5, 31, 2], 16:48] = values[[0, 1, 3]]
    np.testing.assert_array_equal(flat(target), flat(want))
    fault("tma-descriptor", "box of one row", tma.plan_gather4,
          describe(array, (2, 32)), (0, 0, 0, 0, 0), 0x400)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "data", "bits"), [("16U4_ALIGN16B", 8, 4), ("16U6_ALIGN16B", 12, 6)]
)
def test_packed_types_are_padded(name, data, bits):
    row = 256 * bits // 8
    memory = RNG.integers(0, 256, 16 * row).astype(np.uint8)
    m = TensorMapDescription.tiled((16, 256), name, (4, 128), address=BASE, swizzle="128B")
    plan = tma.plan(m, (128, 14), 0x800)
    shared = np.zeros(4096, np.uint8)
    plan.write_shared(plan.read_global(memory, BASE), shared, 0x400)
    assert plan.transaction_bytes == 4 * 128 * bits // 8
    for i, j, byte in itertools.product(range(4), range(8), range(16)):
        place = int(swizzle(0x800 + i * 128 + j * 16 + byte, "128B")) - 0x400
        want = 0
        if byte < data and i < 2:
            want = memory[(14 + i) * row + row // 2 + j * data + byte]
        assert shared[place] == want
    fault("tma-coordinate", "multiple of 128", tma.plan, m, (64, 0), 0x800)


@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        *itertools.product(
            ("add", "min", "max"),
            (np.uint32, np.int32, np.float32, np.float16, ml_dtypes.bfloat16),
        ),
        *itertools.product(("and", "xor"), (np.uint32, np.uint64)),
    ],
)
def test_reduce(op, dtype):
    values = RNG.integers(-100, 100, (2, 40, 32))
    if np.dtype(dtype).kind == "u":
        values += 100
    array, added = values[0].astype(dtype), values[1, :16].astype(dtype)
    plan = tma.plan(describe(array, (16, 32)), (0, 32), 0x400, store=True)
    want = array.copy()
    function = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
                "xor": np.bitwise_xor}[op]  # fmt: skip
    want[32:] = function(array[32:], added[:8])
    plan.reduce_global(flat(added), flat(array), BASE, op)
    np.testing.assert_array_equal(flat(array), flat(want))


def test_mode_mismatch():
    m = TensorMapDescription.im2col((1, 8, 8, 64), "float16", (0, 0), (0, 0),
                                    channels_per_pixel=64, pixels_per_column=8)  # fmt: skip
    fault("tma-descriptor", "im2col map", tma.plan, m, (0, 0, 0, 0), 0x400)


def test_store_writes_whole_16_byte_pieces_behind_a_row():
    """On an H200 a store into rows of 777 bfloat16 wrote 7 more elements behind each row."""
    columns, pitch = 13, 24
    description = TensorMapDescription.tiled(
        (4, columns), "bfloat16", (4, 16), strides=(pitch * 2, 2), address=0x1000
    )
    made = tma.plan(description, (0, 0), 0x400, store=True)
    memory = np.zeros(4 * pitch * 2, np.uint8)
    made.write_global(np.full(4 * 32, 7, np.uint8), memory, 0x1000)
    rows = memory.view(np.uint16).reshape(4, pitch)
    assert (rows[:, :16] == 0x0707).all()
    assert (rows[:, 16:] == 0).all()
    assert "6 B behind each row" in made.spill_advice()


def test_rows_narrower_than_the_swizzle_span_lie_a_span_apart():
    """On an H200 a 9 x 16 byte box with the 32B swizzle had its second row 32 bytes on."""
    array = np.arange(40 * 64, dtype=np.uint8).reshape(40, 64)
    description = TensorMapDescription.tiled(
        (40, 64), "uint8", (9, 16), swizzle="32B", address=0x1000
    )
    made = tma.plan(description, (16, 2), 0x400)
    assert made.transaction_bytes == 9 * 16
    assert made.shared_bytes == 8 * 32 + 16
    shared = np.zeros(1024, np.uint8)
    made.write_shared(made.read_global(array.reshape(-1), 0x1000), shared, 0x400)
    for row in range(9):
        place = int(swizzle(0x400 + 32 * row, "32B")) - 0x400
        assert (shared[place : place + 16] == array[2 + row, 16:32]).all()
    assert (made.read_shared(shared, 0x400).reshape(9, 16) == array[2:11, 16:32]).all()
