"""Tensor memory accesses: tcgen05.ld, st, cp, shift (PTX ISA 9.7.16.8-9).

Tensor memory of one CTA is ``uint32[128, 512]`` (lane, column).

    registers = ld(tmem, address, "32x32b", 64, warp)             # uint32 (registers, 32)
    st(tmem, address, "16x256b", 8, warp, registers)
    cp([tmem], address, "32x128b.warpx4", descriptor, [(shared, base)])
    shift([tmem], address)
    access_rects(address, "32x32b", 64, warp)                     # [Rect], for the checks
    cp_rects(address, "32x128b.warpx4")

`UnitFault` kinds: "tmem-lane" (not the warp's quarter), "tmem-bounds", "tcgen05-descriptor",
"illegal-instruction". A lane of 0..31 in an address counts from the warp's own first lane; a true
lane must lie in the warp's quarter. ``shift`` moves 31 lanes of every group of 32 (its implicit
shape is 31x256b) and leaves the last one, which ``cp.4x256b`` can refresh.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from nbtc.emulator.units import UnitFault, operands
from nbtc.emulator.units.formats import unpack_padded
from nbtc.errors import LayoutError
from nbtc.layout import tensor_memory as tm


class Rect(NamedTuple):
    """A rectangle of tensor memory: lanes ``lane..lane+lanes-1``, columns likewise."""

    lane: int
    lanes: int
    column: int
    columns: int


def check_rect(rect: Rect, what: str) -> Rect:
    """Return the rectangle if it lies in tensor memory.

    Raises:
        UnitFault: kind "tmem-bounds".
    """
    if rect.lane + rect.lanes > tm.LANES or rect.column + rect.columns > tm.COLUMNS:
        raise UnitFault(
            "tmem-bounds",
            f"{what} touches TMEM lanes {rect.lane}..{rect.lane + rect.lanes - 1}, columns "
            f"{rect.column}..{rect.column + rect.columns - 1}; there are {tm.LANES} lanes and "
            f"{tm.COLUMNS} columns",
        )
    return rect


def _first_lane(address: int, shape: str, warp: int) -> int:
    lane, quarter = tm.lane_of(address), tm.warp_lane(warp)
    if lane >= 32 and lane & ~31 != quarter:
        raise UnitFault(
            "tmem-lane",
            f"warp {warp} accesses lane base {lane}; it can only reach {quarter}..{quarter + 31} "
            f"({quarter << 16:#x}): a warp's quarter is its index in the CTA modulo 4",
        )
    legal = (0,) if shape == "32x32b" else (0, 16)
    if lane % 32 not in legal:
        raise UnitFault(
            "tmem-lane",
            f"tcgen05.ld/st {shape} at lane {lane}; must be {' or '.join(map(str, legal))} in the "
            "warp's 32 lanes",
        )
    return quarter + lane % 32


@cache
def _map(
    shape: str, count: int, half_split: int, packed: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Lane and column of every (register, lane), relative to the address.

    Packed registers spread over two columns, of which this is the first; the half split of
    16x32bx2 counts columns of TMEM, packed or not.
    """
    try:
        total = tm.registers(shape, count)
    except LayoutError as error:
        raise UnitFault("illegal-instruction", str(error)) from None
    register, lane = np.meshgrid(np.arange(total), np.arange(32), indexing="ij")
    width = 2 if packed else 1
    if shape == "16x32bx2":
        columns = width * tm.column_16x32bx2(lane, register, 0) + (lane >> 4) * half_split
        return tm.lane_16x32bx2(lane, register), columns
    lanes = getattr(tm, f"lane_{shape}")(lane, register)
    return lanes, width * getattr(tm, f"column_{shape}")(lane, register)


def access_rects(
    address: int, shape: str, count: int, warp: int, *, half_split: int = 0, packed: bool = False
) -> list[Rect]:
    """Return the rectangles that a ld or st touches, checked against bounds and quarter."""
    _map(shape, count, half_split)
    lane, column = _first_lane(address, shape, warp), tm.column_of(address)
    lanes = 32 if shape == "32x32b" else 16
    span = tm.column_span(shape, count) * (2 if packed else 1)
    starts = [column]
    if shape == "16x32bx2":
        starts = [column, column + half_split]
    what = f"tcgen05.ld/st {shape}.x{count}"
    return [check_rect(Rect(lane, lanes, start, span), what) for start in dict.fromkeys(starts)]


def ld(
    tmem: np.ndarray,
    address: int,
    shape: str,
    count: int,
    warp: int,
    *,
    half_split: int = 0,
    pack: bool = False,
) -> np.ndarray:
    """Return the registers uint32 (registers, 32) of tcgen05.ld.

    Args:
        tmem: uint32[128, 512].
        address: TMEM address.
        shape: "32x32b", "16x64b", "16x128b", "16x256b" or "16x32bx2".
        count: N of ``.xN``.
        warp: index of the warp in its CTA.
        half_split: offset of the second half of 16x32bx2, in columns of TMEM.
        pack: ``.pack::16b``: two columns' low halves in one register.
    """
    access_rects(address, shape, count, warp, half_split=half_split, packed=pack)
    lanes, columns = _map(shape, count, half_split, pack)
    lanes = lanes + _first_lane(address, shape, warp)
    column = tm.column_of(address)
    if not pack:
        return tmem[lanes, columns + column]
    low, high = tmem[lanes, columns + column], tmem[lanes, columns + 1 + column]
    return low & np.uint32(0xFFFF) | high << np.uint32(16)


def st(
    tmem: np.ndarray,
    address: int,
    shape: str,
    count: int,
    warp: int,
    registers: np.ndarray,
    *,
    half_split: int = 0,
    unpack: bool = False,
) -> None:
    """Carry out tcgen05.st; arguments as in `ld`, registers uint32 (registers, 32)."""
    access_rects(address, shape, count, warp, half_split=half_split, packed=unpack)
    lanes, columns = _map(shape, count, half_split, unpack)
    lanes = lanes + _first_lane(address, shape, warp)
    column = tm.column_of(address)
    if not unpack:
        tmem[lanes, columns + column] = registers
        return
    tmem[lanes, columns + column] = registers & np.uint32(0xFFFF)
    tmem[lanes, columns + 1 + column] = registers >> np.uint32(16)


def _cp_size(shape: str) -> tuple[int, int]:
    if shape not in tm.CP_SHAPES:
        raise UnitFault(
            "illegal-instruction",
            f"tcgen05.cp shape {shape!r}; must be one of {', '.join(tm.CP_SHAPES)}",
        )
    return tm.CP_SHAPES[shape]


def cp_rects(address: int, shape: str) -> list[Rect]:
    """Return the rectangles that tcgen05.cp writes in each CTA."""
    rows, width = _cp_size(shape)
    lane, column = tm.lane_of(address), tm.column_of(address)
    what = f"tcgen05.cp {shape}"
    if shape == "4x256b":
        lanes = [lane + offset for offset in tm.cp_lanes(shape)[0]]
        return [check_rect(Rect(at, 1, column, 8), what) for at in lanes]
    lanes = 128 if rows < 128 else rows
    return [check_rect(Rect(lane, lanes, column, width // 4), what)]


def describe_cp(shape: str, descriptor: int) -> operands.Access:
    """Return the shared memory that tcgen05.cp reads."""
    rows, width = _cp_size(shape)
    return operands.describe_access([descriptor], rows, width, 8, "K", sm=100)


def cp(
    tmem: Sequence[np.ndarray],
    address: int,
    shape: str,
    descriptor: int,
    shared: Sequence[tuple[np.ndarray, int]],
    *,
    packed: int = 0,
) -> None:
    """Carry out tcgen05.cp: shared memory to tensor memory, each CTA from its own shared memory.

    Args:
        tmem: tensor memory of the CTA, or of both CTAs of the pair (cta_group::2).
        address: TMEM address of the destination.
        shape: PTX shape with its warpx modifier, for example "32x128b.warpx4".
        descriptor: sm_100 matrix descriptor of the source.
        shared: (bytes, absolute address of byte 0) per CTA.
        packed: 0, 4 (.b8x16.b4x16_p64) or 6 (.b8x16.b6x16_p32): spread to one value per byte.
    """
    cp_rects(address, shape)
    rows, width = _cp_size(shape)
    lane, column = tm.lane_of(address), tm.column_of(address)
    for target, (data, base) in zip(tmem, shared, strict=True):
        raw = operands.gather(data, base, [descriptor], rows, width, 8, "K", sm=100)
        if packed:
            raw = unpack_padded(raw, packed)
        words = np.ascontiguousarray(raw).view(np.uint32)
        for lanes in tm.cp_lanes(shape):
            target[np.asarray(lanes) + lane, column : column + width // 4] = words


def shift_rects(address: int) -> list[Rect]:
    """Return the rectangles that tcgen05.shift touches in each CTA."""
    lane = tm.lane_of(address)
    if lane % 32:
        raise UnitFault("tmem-lane", f"tcgen05.shift at lane {lane}; must be a multiple of 32")
    return [check_rect(Rect(lane, tm.LANES - lane, tm.column_of(address), 8), "tcgen05.shift")]


def shift(tmem: Sequence[np.ndarray], address: int) -> None:
    """Carry out tcgen05.shift.down: every lane takes 8 columns of the next one in its group."""
    rect = shift_rects(address)[0]
    for target in tmem:
        part = target[rect.lane :, rect.column : rect.column + 8].reshape(-1, 32, 8)
        moved = part.copy()
        moved[:, :31] = part[:, 1:]
        target[rect.lane :, rect.column : rect.column + 8] = moved.reshape(-1, 8)
