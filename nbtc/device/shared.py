"""Dynamic shared memory laid out at compile time: typed, named, aligned pieces.

.. code-block:: python

    layout = shared.Layout(
        a=shared.tile("bfloat16", (128, 64), swizzle="128B", stages=4),
        full=shared.barriers(4),
        bias=shared.array("float32", (256,)),
    )


    @nbtc.jit(shared=layout, launch_bounds=128)
    def kernel(x):
        layout.full[stage]  # shared::cta address of barrier number stage
        layout.a[stage]  # shared::cta address of the tile of a stage
        layout.bias.array  # Numba array of shape (256,)

All dynamic shared memory of a kernel starts at one address, which is aligned to 1024 bytes; two
arrays that both start there would be the same memory. A layout gives every piece its own range.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nbtc.dtypes import Dtype, canonical
from nbtc.errors import LayoutError
from nbtc.layout import swizzle as swizzles
from nbtc.layout.shared_pieces import SharedPiece
from nbtc.spelling import checked, meant

BASE_ALIGNMENT = 1024
"""Alignment in bytes of the start of dynamic shared memory, the repeat of the 128B swizzle."""

MAX_SHARED_BYTES = 227 * 1024
"""Most shared memory that one CTA can have on sm_90 and sm_100, in bytes."""

TMA_ALIGNMENT = 128
"""Alignment in bytes of the shared-memory side of a tensor copy."""


@dataclass(frozen=True)
class Piece:
    """One piece of a layout, before it has an address.

    Attributes:
        dtype: element type; barriers are 8-byte words.
        shape: shape of one stage.
        stages: number of stages, or None for a piece without stages.
        alignment: alignment in bytes of every stage.
        swizzle: swizzle of a tile, ``"none"`` otherwise.
        is_barrier: whether the piece holds mbarriers.
        is_tile: whether the piece is a tile of TMA or the tensor cores.
    """

    dtype: Dtype
    shape: tuple[int, ...]
    stages: int | None
    alignment: int
    swizzle: str = "none"
    is_barrier: bool = False
    is_tile: bool = False

    @property
    def row_bytes(self) -> int:
        """Bytes of one row, along the last dimension."""
        return -(-self.shape[-1] * self.dtype.bits // 8)

    @property
    def copies(self) -> int:
        """Number of TMA boxes of a stage: 1, or one per swizzle span that a row has."""
        if self.swizzle == "none":
            return 1
        return -(-self.row_bytes // swizzles.span(self.swizzle))

    @property
    def box(self) -> tuple[int, ...]:
        """Shape of one TMA box, as wide as a row or as the swizzle's span."""
        return (*self.shape[:-1], self.shape[-1] // self.copies)

    @property
    def stage_bytes(self) -> int:
        """Bytes of one stage without padding."""
        return -(-math.prod(self.shape) * self.dtype.bits // 8)

    @property
    def stride(self) -> int:
        """Distance in bytes between stages."""
        return -(-self.stage_bytes // self.alignment) * self.alignment

    @property
    def nbytes(self) -> int:
        """Bytes of the whole piece."""
        if self.stages is None:
            return self.stage_bytes
        return self.stride * (self.stages - 1) + self.stage_bytes


def _shape(shape: Any, what: str) -> tuple[int, ...]:
    dims = (shape,) if isinstance(shape, int) else tuple(shape)
    if not dims or any(not isinstance(d, int) or d < 1 for d in dims):
        raise LayoutError(f"{what}: shape={shape!r}; every dimension must be an integer >= 1")
    return dims


def _stages(stages: Any, what: str) -> None:
    if stages is not None and (not isinstance(stages, int) or stages < 1):
        raise LayoutError(f"{what}: stages={stages!r}; must be an integer >= 1 or None")


@checked
def tile(dtype: Any, shape: Any, *, swizzle: str = "none", stages: int | None = None) -> Piece:
    """Describe a tile that TMA or the tensor cores read or write.

    With a swizzle, a TMA box is at most one span wide (32, 64 or 128 bytes). A tile of wider rows
    is ``piece.copies`` boxes of shape ``piece.box`` that follow each other without a gap, as
    ``nbtc.layout.OperandTile`` has it: box number i holds columns ``i * piece.box[-1]`` onwards of
    all rows, and is a copy of its own to ``i * piece.stage_bytes / piece.copies`` bytes behind the
    start of the stage.

    Args:
        dtype: element type.
        shape: shape of one stage, the contiguous dimension last.
        swizzle: swizzle of the data; aligns every stage to its repeat (1024, 512, 256 bytes), and
            to the 128 bytes of TMA without one. ``"96B"`` is for maps changed by
            ``tensormap.replace`` on sm_103a; no map of the host has it.
        stages: number of stages of a ring, or None.

    Raises:
        LayoutError: an argument is not usable, or rows are wider than the swizzle's span but no
            whole number of spans.
    """
    _stages(stages, "shared.tile")
    alignment = max(TMA_ALIGNMENT, swizzles.repeat(swizzle))
    piece = Piece(
        canonical(dtype), _shape(shape, "shared.tile"), stages, alignment, swizzle, is_tile=True
    )
    span = swizzles.span(swizzle)
    if piece.copies > 1 and piece.row_bytes % span:
        raise LayoutError(
            f"shared.tile: a row of {piece.shape[-1]} {piece.dtype} is {piece.row_bytes} B > "
            f"{span} B span of swizzle {swizzle!r}, and no whole number of spans: use at most "
            f"{span * 8 // piece.dtype.bits} columns, or a multiple"
        )
    return piece


def barriers(count: int) -> Piece:
    """Describe ``count`` mbarriers of 8 bytes; ``layout.name[i]`` is the address of number i."""
    _stages(count, "shared.barriers")
    return Piece(canonical("uint64"), (1,), count, 8, is_barrier=True)


@checked
def array(dtype: Any, shape: Any, *, alignment: int = 16) -> Piece:
    """Describe an array that threads read and write; ``layout.name.array`` is a Numba array."""
    if alignment < 1 or alignment & (alignment - 1) or alignment > BASE_ALIGNMENT:
        raise LayoutError(
            f"shared.array: alignment={alignment}; must be a power of two, 1..{BASE_ALIGNMENT}"
        )
    return Piece(canonical(dtype), _shape(shape, "shared.array"), None, alignment)


class Layout:
    """Named pieces of a kernel's dynamic shared memory, each with its own byte range.

    Pieces follow each other in the order given, each aligned to its own need.

    Attributes:
        nbytes: dynamic shared memory of the kernel in bytes.
        offsets: byte offset of each piece from the start, by name.
        pieces: the pieces by name.
    """

    def __init__(self, **pieces: Piece) -> None:
        import nbtc.device.shared_numba  # noqa: F401 - teaches Numba layouts

        if not pieces:
            raise LayoutError("shared.Layout needs at least one piece")
        self.pieces = dict(pieces)
        self.offsets: dict[str, int] = {}
        end = 0
        for name, piece in pieces.items():
            if not isinstance(piece, Piece):
                raise LayoutError(
                    f"shared.Layout: {name}={piece!r}; build it with shared.tile, shared.barriers "
                    "or shared.array"
                )
            start = -(-end // piece.alignment) * piece.alignment
            self.offsets[name] = start
            end = start + piece.nbytes
        self.nbytes = end
        if end > MAX_SHARED_BYTES:
            raise LayoutError(
                f"shared memory of {end} B > {MAX_SHARED_BYTES} B, the most of one CTA "
                f"({MAX_SHARED_BYTES // 1024} KiB):\n{self}"
            )

    def __getattr__(self, name: str) -> Any:
        """Refuse: the pieces are attributes inside kernels only.

        Raises:
            AttributeError: always; the message tells the pieces.
        """
        pieces = self.__dict__.get("pieces", {})
        if name in pieces:
            raise AttributeError(
                f"layout.{name} is an address, and exists inside kernels only; outside: "
                f"layout.offsets[{name!r}] and layout.pieces[{name!r}]"
            )
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(
            f"shared.Layout has no piece {name!r}; pieces: {', '.join(pieces)}{meant(name, pieces)}"
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.pieces)

    def __str__(self) -> str:
        rows = []
        for name, piece in self.pieces.items():
            start = self.offsets[name]
            stages = "" if piece.stages is None else f"{piece.stages} x "
            what = "mbarrier" if piece.is_barrier else f"{piece.dtype} {list(piece.shape)}"
            rows.append(
                f"  {name:<12} [{start:>6}, {start + piece.nbytes:>6})  {piece.nbytes:>6} B  "
                f"{stages}{what}"
                + (f", swizzle {piece.swizzle}" if piece.swizzle != "none" else "")
                + (f", {piece.copies} boxes of {list(piece.box)}" if piece.copies > 1 else "")
            )
        return "\n".join([*rows, f"  total {self.nbytes} B"])

    def __repr__(self) -> str:
        return f"<shared.Layout of {self.nbytes} B: {', '.join(self.pieces)}>"

    def fingerprint(self) -> str:
        """Return a text that changes with anything the generated code depends on."""
        return repr(sorted((n, self.offsets[n], repr(p)) for n, p in self.pieces.items()))

    def placed(self) -> tuple[SharedPiece, ...]:
        """Return the pieces with their offsets, for the emulator's messages."""
        return tuple(
            SharedPiece(
                name, self.offsets[name], piece.stage_bytes, piece.stride, piece.stages,
                piece.swizzle if piece.is_tile else None, piece.copies,
            )
            for name, piece in self.pieces.items()
        )  # fmt: skip
