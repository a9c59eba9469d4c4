"""Agreement of copies: tensor loads, stores, reductions, im2col, and bulk copies."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from .agreement_case import (
    START_BARRIER,
    WAIT_BARRIER,
    Map,
    PtxCase,
    copy_shared_in,
    copy_shared_out,
    module,
    random_bytes,
)

GUARD = 256
_FENCE = "fence.proxy.async;\nbar.sync 0;\n"
_COMMIT = "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nDONE:\n"

# shape, dtype, box, start (array order), options
_BOXES: list[tuple[Any, ...]] = [
    ((1000,), "int32", (256,), (900,), {}),
    ((1000,), "uint8", (64,), (-16,), {}),
    ((40, 72), "float16", (16, 64), (8, 8), {"swizzle": "128B"}),
    ((40, 72), "float16", (16, 64), (32, 16), {"swizzle": "128B"}),
    ((40, 72), "float16", (16, 64), (-3, -8), {"swizzle": "128B"}),
    ((40, 72), "float16", (16, 64), (100, 0), {}),
    ((40, 72), "uint16", (16, 32), (-40, -80), {"swizzle": "64B"}),
    ((40, 64), "uint8", (8, 32), (4, 16), {"swizzle": "32B"}),
    ((40, 64), "uint8", (9, 16), (35, 48), {"swizzle": "32B"}),
    ((40, 64), "float32", (8, 16), (36, 52), {"swizzle": "64B"}),
    ((40, 64), "float32", (13, 8), (36, 52), {"swizzle": "64B"}),
    ((40, 64), "float32", (13, 12), (2, 4), {"swizzle": "128B"}),
    ((40, 64), "float32", (9, 32), (38, 44), {"swizzle": "128B", "fill": "nan"}),
    ((40, 64), "float16", (9, 32), (-2, -8), {"swizzle": "64B", "fill": "nan"}),
    ((40, 64), "bfloat16", (9, 32), (38, 48), {"fill": "nan"}),
    ((40, 64), "float64", (9, 16), (38, 56), {"swizzle": "128B", "fill": "nan"}),
    ((5, 9, 16), "int32", (2, 4, 8), (-1, 7, 4), {}),
    ((5, 9, 16), "int32", (4, 6, 8), (1, 2, 4), {"element_strides": (2, 3, 1)}),
    ((5, 9, 16), "int32", (4, 6, 8), (-1, -2, 4), {"element_strides": (2, 4, 1)}),
    ((9, 72), "int32", (8, 32), (3, 8), {"element_strides": (3, 1), "swizzle": "128B"}),
    ((3, 4, 5, 32), "uint16", (2, 3, 2, 16), (2, -1, 4, 24), {"swizzle": "32B"}),
    ((3, 4, 5, 32), "uint16", (2, 3, 2, 64), (1, 2, 2, 8), {"swizzle": "128B"}),
    ((2, 3, 4, 5, 16), "float64", (1, 2, 3, 2, 4), (1, 2, 2, 4, 14), {}),
    ((2, 3, 4, 5, 16), "float64", (2, 2, 3, 2, 4), (-1, -1, -1, -1, -2), {}),
    ((6, 64), "int64", (4, 16), (1, 2), {"swizzle": "128B"}),
    ((6, 64), "uint32", (4, 8), (1, 4), {"swizzle": "32B", "l2_promotion": "256B"}),
]
# window of the columns, dtype, box, start: rows that end inside a piece of 16 bytes
_RAGGED: list[tuple[Any, ...]] = [
    (13, "uint16", (16, 16), (0, 0)), (13, "uint16", (16, 16), (8, 8)),
    (1, "uint16", (4, 8), (0, 0)), (21, "uint16", (16, 32), (3, 0)),
    (3, "float32", (8, 8), (0, 0)), (5, "float32", (8, 8), (18, 4)),
    (17, "uint8", (8, 16), (0, 16)), (5, "uint8", (8, 32), (1, 0)),
    (31, "uint8", (8, 32), (1, 0)), (3, "float64", (8, 4), (1, 0)),
    (13, "bfloat16", (16, 64), (0, 0)), (9, "float16", (4, 8), (17, 8)),
]  # fmt: skip
_REDUCTIONS = {
    "add": ("uint32", "int32", "uint64", "float32", "float16", "bfloat16"),
    "min": ("uint32", "int32", "uint64", "int64", "float16", "bfloat16"),
    "max": ("uint32", "int32", "uint64", "int64", "float16", "bfloat16"),
    "inc": ("uint32",),
    "dec": ("uint32",),
    "and": ("uint32", "uint64"),
    "or": ("uint32", "uint64"),
    "xor": ("uint32", "uint64"),
}
_PTX = {
    "uint32": "u32", "int32": "s32", "uint64": "u64", "int64": "s64", "float32": "f32",
    "float16": "f16", "bfloat16": "bf16", "float64": "f64",
}  # fmt: skip


def _dtype(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def _tensor(shape: tuple[int, ...], name: str, seed: int) -> np.ndarray:
    """Return random elements; floats are finite."""
    dtype = _dtype(name)
    if dtype.kind not in "iu":
        return np.random.default_rng(seed).standard_normal(shape).astype("f4").astype(dtype)
    return random_bytes(math.prod(shape) * dtype.itemsize, seed).view(dtype).reshape(shape)


def _shared(count: int) -> str:
    return f".shared .align 1024 .b8 tile[{count}];\n.shared .align 8 .b64 bar;\n"


def _coordinates(start: tuple[int, ...]) -> tuple[str, str]:
    moves = "".join(f"mov.u32 %r{510 - i}, {value};\n" for i, value in enumerate(start[::-1]))
    return moves, "{" + ", ".join(f"%r{510 - i}" for i in range(len(start))) + "}"


def _load(name: str, array: np.ndarray, tensor_map: Map, start: tuple[int, ...],
          offsets: tuple[int, ...] = ()) -> PtxCase:  # fmt: skip
    """Return a case that loads one box over random bytes and compares all of the memory."""
    made = tensor_map.make(array)
    size = -(-made.smem_bytes // 1024) * 1024 + GUARD
    moves, coordinates = _coordinates(start)
    mode, tail = (".im2col" if offsets else ""), ""
    if offsets:
        tail = ", {" + ", ".join(f"%rs{i}" for i in range(len(offsets))) + "}"
        moves += "".join(f"mov.u16 %rs{i}, {value};\n" for i, value in enumerate(offsets))
    text = "".join(copy_shared_in("%rd1", "tile", size)) + START_BARRIER + _FENCE
    text += "@!%p0 bra LOADED;\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [%r500], "
    text += f"{made.box_bytes};\nmov.u32 %r505, tile;\n{moves}"
    text += (
        f"cp.async.bulk.tensor.{len(start)}d.shared::cluster.global{mode}"
        f".mbarrier::complete_tx::bytes [%r505], [%rd40, {coordinates}], [%r500]{tail};\n"
    )
    text += "LOADED:\n" + WAIT_BARRIER + "".join(copy_shared_out("%rd2", "tile", size))
    arrays = [array, random_bytes(size, 7), np.zeros(size, np.uint8)]
    return PtxCase(
        "tma load", name, module(text, 1, 2, _shared(size)), arrays, (tensor_map, 1, 2), {2: None}
    )


def _store(family: str, name: str, target: np.ndarray, tensor_map: Map, start: tuple[int, ...],
           values: np.ndarray, op: str = "", mode: str = "") -> PtxCase:  # fmt: skip
    """Return a case that stores or combines one box and compares all of the target."""
    made = tensor_map.make(target)
    size = -(-made.smem_bytes // 1024) * 1024  # the swizzle may move chunks behind an odd box
    moves, coordinates = _coordinates(start)
    head = "cp.reduce" if op else "cp"
    text = "".join(copy_shared_in("%rd1", "tile", size)) + _FENCE
    text += "setp.eq.u32 %p0, %thread, 0;\n@!%p0 bra DONE;\nmov.u32 %r505, tile;\n" + moves
    text += (
        f"{head}.async.bulk.tensor.{len(start)}d.global.shared::cta{op and '.' + op}{mode}"
        f".bulk_group [%rd40, {coordinates}], [%r505];\n"
    )
    text += _COMMIT
    raw = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
    source = np.resize(raw, size)
    # The whole target is an argument too: a window's neighbours are the kernel's to write.
    return PtxCase(
        family, name, module(text, 1, 2, _shared(size)), [target, source], (tensor_map, 1, 0),
        {0: None},
    )  # fmt: skip


def _tiled(array: int, box: tuple[int, ...], options: dict[str, Any],
           window: tuple[slice, ...] = ()) -> Map:  # fmt: skip
    return Map(array, "tiled", (box,), options, window)


def loads() -> Iterator[PtxCase]:
    """Yield tensor loads."""
    for i, (shape, dtype, box, start, options) in enumerate(_BOXES):
        name = f"{i}: {dtype} {shape} box {box} at {start} {options}"
        yield _load(name, _tensor(shape, dtype, i), _tiled(0, box, options), start)
    rng = np.random.default_rng(11)
    for i in range(40):
        dtype = ("uint8", "float16", "float32", "int64")[i % 4]
        size = _dtype(dtype).itemsize
        swizzle = ("none", "32B", "64B", "128B")[i // 4 % 4]
        span = {"none": 256, "32B": 32, "64B": 64, "128B": 128}[swizzle]
        rank = int(rng.integers(2, 6))
        inner = int(rng.integers(1, span // 16 + 1)) * 16 // size
        shape = (*(int(v) for v in rng.integers(1, 7, rank - 1)), int(rng.integers(3, 9)) * 16)
        box = (*(int(v) for v in rng.integers(1, 5, rank - 1)), inner)
        step = 16 // size
        start = (*(int(v) for v in rng.integers(-3, 6, rank - 1)),
                 int(rng.integers(-3, shape[-1] // step)) * step)  # fmt: skip
        name = f"random {i}: {dtype} {shape} box {box} at {start} {swizzle}"
        yield _load(name, _tensor(shape, dtype, i), _tiled(0, box, {"swizzle": swizzle}), start)
    for columns, dtype, box, start in _RAGGED:
        window = (slice(2, 22), slice(0, columns))
        name = f"ragged row of {columns} {dtype}, box {box} at {start}"
        target = _tensor((24, 64), dtype, 5)
        yield _load(name, target, _tiled(0, box, {}, window), start)


def stores() -> Iterator[PtxCase]:
    """Yield tensor stores."""
    for i, (shape, dtype, box, start, options) in enumerate(_BOXES):
        if options.get("fill"):
            continue
        place = tuple(max(s, 0) for s in start)
        name = f"{i}: {dtype} {shape} box {box} at {place} {options}"
        values = random_bytes(16384, i)
        yield _store("tma store", name, _tensor(shape, dtype, i), _tiled(0, box, options), place,
                     values)  # fmt: skip
    for columns, dtype, box, start in _RAGGED:
        window = (slice(2, 22), slice(0, columns))
        name = f"ragged row of {columns} {dtype}, box {box} at {start}"
        yield _store("tma store ragged", name, _tensor((24, 64), dtype, 5),
                     _tiled(0, box, {}, window), start, random_bytes(4096, 9))  # fmt: skip


def reductions() -> Iterator[PtxCase]:
    """Yield tensor reductions, of whole boxes, over the edge, and of ragged rows."""
    for op, kinds in _REDUCTIONS.items():
        for dtype in kinds:
            values = _tensor((1024,), dtype, 3)
            size = _dtype(dtype).itemsize
            box = (8, 64 // size)
            for start in ((2, 0), (20, 48)):
                target = _tensor((24, 64), dtype, 4)
                name = f"{op} {dtype} at {start}"
                yield _store("tma reduce", name, target, _tiled(0, box, {"swizzle": "64B"}), start,
                             values, op)  # fmt: skip
    for (columns, dtype, box, start), op in itertools.product(_RAGGED, ("add", "max", "xor")):
        if dtype not in _REDUCTIONS[op]:
            continue
        window = (slice(2, 22), slice(0, columns))
        name = f"{op}, ragged row of {columns} {dtype}, box {box} at {start}"
        yield _store("tma reduce ragged", name, _tensor((24, 64), dtype, 5),
                     _tiled(0, box, {}, window), start, _tensor((4096,), dtype, 9), op)  # fmt: skip
    for columns, op in itertools.product((3, 5, 13), ("add", "xor")):
        window = (slice(2, 22), slice(0, columns))
        name = f"{op}, ragged row of {columns} uint32"
        yield _store("tma reduce ragged", name, _tensor((24, 64), "uint32", 5),
                     _tiled(0, (8, 16), {}, window), (0, 0), _tensor((4096,), "uint32", 9),
                     op)  # fmt: skip


def im2col() -> Iterator[PtxCase]:
    """Yield im2col loads with unequal corners, so that their order shows, and stores."""
    shapes = (((2, 9, 16), 1), ((2, 7, 9, 16), 2), ((2, 3, 5, 6, 16), 3))
    for (shape, spatial), swizzle in itertools.product(shapes, ("none", "64B")):
        image = _tensor(shape, "float32", spatial)
        for i, (low, high) in enumerate((((0, 0, 0), (0, 0, -2)), ((-1, 0, -1), (-1, -2, 0)),
                                         ((-2, -1, 0), (0, 0, -1)))):  # fmt: skip
            corners = low[3 - spatial :], high[3 - spatial :]
            tensor_map = Map(0, "im2col", corners, {
                "channels_per_pixel": 16, "pixels_per_column": 20, "swizzle": swizzle,
            })  # fmt: skip
            place = (0, *corners[0], 0)
            offsets = tuple((1, 0, 2)[:spatial]) if i else (0,) * spatial
            name = f"{shape} corners {corners} offsets {offsets} {swizzle}"
            case = _load(name, image, tensor_map, place, offsets)
            case.family = "im2col"
            yield case


def bulk() -> Iterator[PtxCase]:
    """Yield bulk copies and reductions."""
    for size, offset in ((16, 0), (48, 16), (1024, 0), (4096, 32), (12288, 16)):
        text = "".join(copy_shared_in("%rd2", "tile", size + GUARD)) + START_BARRIER + _FENCE
        text += "@!%p0 bra LOADED;\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [%r500], "
        text += f"{size};\nmov.u32 %r505, tile;\nadd.u64 %rd10, %rd1, {offset};\n"
        text += (
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r505+16], "
            f"[%rd10], {size}, [%r500];\nLOADED:\n"
        )
        text += WAIT_BARRIER + "".join(copy_shared_out("%rd3", "tile", size + GUARD))
        arrays = [random_bytes(size + 64, size), random_bytes(size + GUARD, 1),
                  np.zeros(size + GUARD, np.uint8)]  # fmt: skip
        yield PtxCase("bulk", f"load of {size} B at {offset}",
                      module(text, 0, 3, _shared(size + GUARD)), arrays, (0, 1, 2),
                      {2: None})  # fmt: skip
        yield _bulk_store(f"store of {size} B at {offset}", size, offset, "cp", "",
                          random_bytes(size + 64, 1), random_bytes(size, 2))  # fmt: skip
    for op, kinds in _REDUCTIONS.items():
        for dtype in (*kinds, *(("float64",) if op == "add" else ())):
            kind = _PTX[dtype]
            if op in ("and", "or", "xor"):
                kind = "b" + kind[1:]
            noftz = ".noftz" if op == "add" and dtype in ("float16", "bfloat16") else ""
            yield _bulk_store(f"{op} {dtype}", 512, 16, "cp.reduce", f".{op}{noftz}.{kind}",
                              _tensor((512,), dtype, 1), _tensor((512,), dtype, 2))  # fmt: skip


def _bulk_store(name: str, size: int, offset: int, head: str, tail: str, target: np.ndarray,
                source: np.ndarray) -> PtxCase:  # fmt: skip
    text = "".join(copy_shared_in("%rd2", "tile", size)) + _FENCE
    text += "setp.eq.u32 %p0, %thread, 0;\n@!%p0 bra DONE;\nmov.u32 %r505, tile;\n"
    text += f"add.u64 %rd10, %rd1, {offset};\n"
    text += f"{head}.async.bulk.global.shared::cta.bulk_group{tail} [%rd10], [%r505], {size};\n"
    text += _COMMIT
    return PtxCase("bulk", name, module(text, 0, 2, _shared(size)), [target, source], (0, 1),
                   {0: None})  # fmt: skip


def cases(smoke: bool) -> Iterator[PtxCase]:
    """Yield all copies; in ``smoke`` a few of each kind."""
    for kind in (loads, stores, reductions, im2col, bulk):
        every = list(kind())
        yield from every[::15] if smoke else every
