"""Shared-memory swizzles: XOR patterns on absolute shared addresses.

TMA and the tensor cores apply the same patterns, always to the absolute shared address in bytes
and never to an offset inside a tile; the two agree only where the tile starts on the pattern's
repeat. A pattern keeps every bit above its repeat, so ``swizzle(base + x) == base + swizzle(x)``
for a base on the repeat. Every pattern is its own inverse. PTX ISA 5.5.5 (swizzling modes).

The functions take integers or integer arrays and are plain arithmetic, so kernels can call them.
"""

from __future__ import annotations

from typing import Any

from nbtc.errors import LayoutError
from nbtc.spelling import choice


def swizzle_32b(address: Any) -> Any:
    """Return the address under 32B swizzle: bit 4 ^= bit 7."""
    return address ^ ((address >> 3) & 0x10)


def swizzle_64b(address: Any) -> Any:
    """Return the address under 64B swizzle: bits 5:4 ^= bits 8:7."""
    return address ^ ((address >> 3) & 0x30)


def swizzle_128b(address: Any) -> Any:
    """Return the address under 128B swizzle: bits 6:4 ^= bits 9:7."""
    return address ^ ((address >> 3) & 0x70)


def swizzle_128b_atom_32b(address: Any) -> Any:
    """Return the address under 128B swizzle with 32-byte atoms: bits 6:5 ^= bits 8:7."""
    return address ^ ((address >> 2) & 0x60)


def swizzle_128b_atom_32b_flip_8b(address: Any) -> Any:
    """Return the address with 32-byte atoms whose 8-byte halves swap on odd 128-byte lines.

    Which lines are flipped (those with bit 7 set) is not confirmed on hardware.
    """
    return address ^ (((address >> 2) & 0x60) | ((address >> 4) & 0x08))


def swizzle_128b_atom_64b(address: Any) -> Any:
    """Return the address under 128B swizzle with 64-byte atoms: bit 6 ^= bit 7."""
    return address ^ ((address >> 1) & 0x40)


def unswizzled(address: Any) -> Any:
    """Return the address itself (mode "none")."""
    return address


_FUNCTIONS = {
    "none": unswizzled,
    "32B": swizzle_32b,
    "64B": swizzle_64b,
    "96B": swizzle_32b,  # sm_103a; its table repeats the 32B pattern
    "128B": swizzle_128b,
    "128B_ATOM_32B": swizzle_128b_atom_32b,
    "128B_ATOM_32B_FLIP_8B": swizzle_128b_atom_32b_flip_8b,
    "128B_ATOM_64B": swizzle_128b_atom_64b,
}

MODES = tuple(_FUNCTIONS)
"""Names of all swizzles."""

_REPEAT = {
    "none": 16, "32B": 256, "64B": 512, "96B": 256, "128B": 1024, "128B_ATOM_32B": 512,
    "128B_ATOM_32B_FLIP_8B": 512, "128B_ATOM_64B": 256,
}  # fmt: skip
_SPAN = {
    "none": 16, "32B": 32, "64B": 64, "96B": 96, "128B": 128, "128B_ATOM_32B": 128,
    "128B_ATOM_32B_FLIP_8B": 128, "128B_ATOM_64B": 128,
}  # fmt: skip


def _known(mode: str) -> str:
    if mode not in _FUNCTIONS:
        raise LayoutError(
            f"swizzle {mode!r}; must be one of {', '.join(map(repr, MODES))}{choice(mode, MODES)}"
        )
    return mode


def swizzle(address: Any, mode: str) -> Any:
    """Return the swizzled absolute shared address.

    Args:
        address: absolute shared address in bytes, an integer or an integer array.
        mode: name of the swizzle, one of `MODES`.

    Raises:
        LayoutError: the mode is unknown.
    """
    return _FUNCTIONS[_known(mode)](address)


def repeat(mode: str) -> int:
    """Return the bytes after which the pattern repeats: tiles must start on a multiple."""
    return _REPEAT[_known(mode)]


def span(mode: str) -> int:
    """Return the bytes of one swizzled row (16, one chunk, without a swizzle)."""
    return _SPAN[_known(mode)]


def base_offset(address: int, mode: str) -> int:
    """Return the matrix-descriptor base offset of a pattern that starts at an address."""
    return (address >> 7) % max(repeat(mode) >> 7, 1)


def check_base(address: int, mode: str) -> None:
    """Check that a tile starts on the repeat of its swizzle.

    Raises:
        LayoutError: it does not, so its contents look permuted to offset-relative code.
    """
    size = repeat(mode)
    if address % size:
        raise LayoutError(
            f"tile base {address:#x} is {address % size} mod {size}; SWIZZLE_{mode} needs a "
            f"multiple of {size} (128B: 1024, 64B: 512, 32B: 256)"
        )
