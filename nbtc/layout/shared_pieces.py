"""Pieces of dynamic shared memory with their places: what tells an address by its Python name."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SharedPiece"]


@dataclass(frozen=True)
class SharedPiece:
    """A named range of dynamic shared memory.

    Attributes:
        name: name in the ``nbtc.shared.Layout``.
        offset: first byte, from the start of dynamic shared memory.
        stage_bytes: bytes of one stage without padding.
        stride: bytes from one stage to the next.
        stages: number of stages, or None for a piece without stages.
        swizzle: swizzle of a tile; None where the data have none (barriers, arrays).
        copies: TMA boxes that fill one stage.
    """

    name: str
    offset: int
    stage_bytes: int
    stride: int
    stages: int | None = None
    swizzle: str | None = None
    copies: int = 1

    @property
    def end(self) -> int:
        """First byte behind the piece."""
        return self.offset + self.stride * ((self.stages or 1) - 1) + self.stage_bytes

    def stage_of(self, offset: int) -> tuple[int, int]:
        """Return the stage that an offset of dynamic memory lies in, and the byte inside it."""
        return divmod(offset - self.offset, self.stride) if self.stages else (
            0, offset - self.offset)  # fmt: skip

    def text(self, offset: int) -> str:
        """Return the Python name of an offset: ``a[1]+0x400``, ``full[0]``, ``slot``."""
        inside = self.stage_of(offset)[1]
        name = self.stage_name(offset)
        return f"{name}+{inside:#x}" if inside else name

    def stage_name(self, offset: int) -> str:
        """Return the Python name of the stage that an offset lies in: ``a[1]``, ``slot``."""
        return self.name if self.stages is None else f"{self.name}[{self.stage_of(offset)[0]}]"
