"""Layout of block scale factors in memory, ready for ``tcgen05.cp.32x128b.warpx4``.

Scale factors are one byte each. Tiles of 128 rows by 4 scales take 512 bytes, in which the scale
(row, k) lies at byte ``16 * (row % 32) + 4 * (row // 32) + k``; a tile is copied to 4 columns of
tensor memory by one ``cp`` with a descriptor without swizzle and a stride offset of 128 bytes.
Tiles of one group of 128 rows follow each other along K. Rows and scales are padded up.
"""

from __future__ import annotations

from typing import Any

from nbtc.errors import LayoutError

TILE_ROWS = 128
TILE_SCALES = 4
TILE_BYTES = 512


def tile_offset(row: Any, scale: Any) -> Any:
    """Return the byte of scale (row 0..127, scale 0..3) in its 512-byte tile."""
    return 16 * (row % 32) + 4 * (row // 32) + scale


def offset(row: Any, scale: Any, scales: Any) -> Any:
    """Return the byte of a scale factor in the whole buffer.

    Args:
        row: row of A or column of B.
        scale: index of the block along K.
        scales: blocks along K.
    """
    tiles = (scales + 3) // 4
    tile = row // 128 * tiles + scale // 4
    within = row % 128
    return tile * 512 + 16 * (within % 32) + 4 * (within // 32) + scale % 4


def size_bytes(rows: int, scales: int) -> int:
    """Return the bytes of the buffer for ``rows`` rows of ``scales`` scale factors."""
    return -(-rows // 128) * -(-scales // 4) * 512


def pack(scales: Any) -> Any:
    """Lay out scale factors for the tensor cores.

    Args:
        scales: array (rows, blocks along K) of one-byte elements.

    Returns:
        uint8 array of `size_bytes` bytes; padding is zero.

    Raises:
        LayoutError: not a two-dimensional array of bytes.
    """
    import numpy as np

    array = np.asarray(scales)
    if array.ndim != 2 or array.dtype.itemsize != 1:
        raise LayoutError(
            f"scale factors of shape {array.shape}, dtype {array.dtype}; must be (rows, blocks) "
            "of one byte each"
        )
    rows, blocks = array.shape
    out = np.zeros(size_bytes(rows, blocks), np.uint8)
    place = offset(np.arange(rows)[:, None], np.arange(blocks)[None, :], blocks)
    out[place] = np.ascontiguousarray(array).view(np.uint8)
    return out


def unpack(packed: Any, rows: int, blocks: int) -> Any:
    """Return the uint8 array (rows, blocks) of a buffer made by `pack`."""
    import numpy as np

    place = offset(np.arange(rows)[:, None], np.arange(blocks)[None, :], blocks)
    return np.asarray(packed).view(np.uint8).reshape(-1)[place]
