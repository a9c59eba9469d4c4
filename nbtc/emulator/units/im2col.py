"""Im2col tensor copies: the pixels of a convolution's column (PTX ISA 5.5.4).

Coordinates are (c, w[, h[, d]], n). Base pixels start at the coordinates and move along W by the
traversal stride; past the upper bound ``size - 1 + upper_corner`` W returns to ``lower_corner``
and H advances, then D, then N. The offsets of the instruction (position in the filter) are added
to every base pixel; what then lies outside the tensor reads as the fill value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nbtc.emulator.units import UnitFault
from nbtc.emulator.units.tma import Block, Plan, check_coordinates, check_shared_address
from nbtc.layout.tensormap_description import TensorMapDescription


def _pixels(m: TensorMapDescription, start: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield base pixels (w[, h[, d]], n) of one column."""
    place = list(start)
    space = m.rank - 2
    steps = m.element_strides or (1,) * m.rank
    for _ in range(m.box[1]):
        yield tuple(place)
        for axis in range(space):
            place[axis] += steps[axis + 1] or 1
            if place[axis] <= m.dims[axis + 1] - 1 + m.upper_corner[axis]:
                break
            place[axis] = m.lower_corner[axis]
        else:
            place[space] += 1


def plan_im2col(
    description: TensorMapDescription,
    coordinates: Sequence[int],
    offsets: Sequence[int],
    shared_address: int,
    *,
    store: bool = False,
) -> Plan:
    """Plan an ``.im2col`` load or an ``.im2col_no_offs`` store.

    Args:
        description: im2col map of rank 3 to 5.
        coordinates: (c, w[, h[, d]], n) of the first base pixel.
        offsets: im2col offsets (w[, h[, d]]); empty for stores.
        shared_address: absolute shared address.
        store: True for stores and reductions.

    Raises:
        UnitFault: see the module docstring of `nbtc.emulator.units.tma`.
    """
    m = description
    if m.mode == "tiled":
        raise UnitFault("tma-descriptor", "an .im2col copy through a tiled map")
    if m.mode != "im2col":
        raise UnitFault("unmodelled", f"tensor copy of mode {m.mode}")
    check_coordinates(m, coordinates, store=store)
    check_shared_address(shared_address)
    space = m.rank - 2
    if store:
        offsets = (0,) * space
        if min(m.lower_corner) < 0 or max(m.upper_corner) > 0:
            raise UnitFault(
                "tma-descriptor",
                f"im2col store with corners {m.lower_corner}, {m.upper_corner}: the bounding box "
                "must lie inside the tensor (lower corner >= 0, upper corner <= 0)",
            )
    if len(offsets) != space:
        raise UnitFault(
            "tma-descriptor",
            f"im2col copy with {len(offsets)} offsets through a map of rank {m.rank}; needs "
            f"{space}",
        )
    size = m.element_bits // 8
    first, channels = coordinates[0], m.box[0]
    low, high = max(first, 0), min(first + channels, m.dims[0])
    blocks: list[Block] = []
    for row, base in enumerate(_pixels(m, coordinates[1:])):
        place = [b + o for b, o in zip(base, (*offsets, 0), strict=True)]
        inside = all(0 <= p < n for p, n in zip(place, m.dims[1:], strict=True))
        if inside and high > low:
            address = m.address + low * size
            address += sum(p * s for p, s in zip(place, m.strides, strict=True))
            width = (high - low) * size
            blocks.append((address, (1, width), (width, 1), (row, (low - first) * size)))
    return Plan(m, _join(blocks), (m.box[1], channels * size), shared_address)


def _join(blocks: list[Block]) -> list[Block]:
    """Merge rows of equal distance that follow each other."""
    joined: list[Block] = []
    for block in blocks:
        if joined:
            address, (rows, width), (pitch, _), (row, byte) = joined[-1]
            distance = block[0] - address - (rows - 1) * pitch
            follows = block[3][0] == row + rows
            if follows and distance > 0 and (rows == 1 or distance == pitch):
                joined[-1] = (address, (rows + 1, width), (distance, 1), (row, byte))
                continue
        joined.append(block)
    return joined
