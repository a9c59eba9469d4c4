"""Shared-memory matrix descriptors of wgmma (sm_90) and tcgen05 (sm_100): 64-bit values.

A descriptor holds start address, leading byte offset (LBO), stride byte offset (SBO), swizzle and
base offset; addresses and offsets are stored in units of 16 bytes. The two architectures differ
in bit 46 (1 on sm_100) and in the width of the layout code, so a descriptor of one is never right
for the other. PTX ISA 9.7.15.5.1.2 (wgmma) and 9.7.16.4.1 (tcgen05).

`encode_sm90`, `encode_sm100`, `advance` and `k_major_offset` and its kin are plain integer
arithmetic for kernels and arrays; `MatrixDescriptor` and `OperandTile` are for host code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nbtc.dtypes import canonical
from nbtc.errors import LayoutError
from nbtc.layout.swizzle import base_offset as pattern_offset
from nbtc.layout.swizzle import span as swizzle_span
from nbtc.layout.swizzle import swizzle as apply_swizzle

LAYOUT_CODES_SM90 = {"none": 0, "128B": 1, "64B": 2, "32B": 3}
"""Swizzle codes at bits 62-63 of a wgmma descriptor."""

LAYOUT_CODES_SM100 = {"none": 0, "128B_ATOM_32B": 1, "128B": 2, "64B": 4, "32B": 6}
"""Swizzle codes at bits 61-63 of a tcgen05 descriptor; 3, 5 and 7 are invalid."""

_NAMES_SM90 = {code: name for name, code in LAYOUT_CODES_SM90.items()}
_NAMES_SM100 = {code: name for name, code in LAYOUT_CODES_SM100.items()}


def encode_sm90(start: Any, leading: Any, stride: Any, layout: Any, base_offset: Any = 0) -> Any:
    """Return a wgmma descriptor; offsets in bytes, layout a code of `LAYOUT_CODES_SM90`."""
    return (
        ((start & 0x3FFFF) >> 4)
        | ((leading & 0x3FFFF) >> 4) << 16
        | ((stride & 0x3FFFF) >> 4) << 32
        | (base_offset & 7) << 49
        | (layout & 3) << 62
    )


def encode_sm100(start: Any, leading: Any, stride: Any, layout: Any, base_offset: Any = 0) -> Any:
    """Return a tcgen05 descriptor; offsets in bytes, layout a code of `LAYOUT_CODES_SM100`."""
    return (
        ((start & 0x3FFFF) >> 4)
        | ((leading & 0x3FFFF) >> 4) << 16
        | ((stride & 0x3FFFF) >> 4) << 32
        | 1 << 46
        | (base_offset & 7) << 49
        | (layout & 7) << 61
    )


def advance(descriptor: Any, offset: Any) -> Any:
    """Return the descriptor with its start moved by a byte offset (a multiple of 16).

    The sum stays inside the 14-bit start field, so that it never reaches the LBO.
    """
    field = ((descriptor & 0x3FFF) + (offset >> 4)) & 0x3FFF
    return descriptor - (descriptor & 0x3FFF) + field


def k_major_offset(mn: Any, kb: Any, leading: Any, stride: Any) -> Any:
    """Return the linear offset of (row, K byte) without a swizzle: 8 x 16-byte core matrices."""
    return (mn % 8) * 16 + (mn // 8) * stride + kb % 16 + (kb // 16) * leading


def k_major_swizzled_offset(mn: Any, kb: Any, stride: Any, width: Any) -> Any:
    """Return the linear offset of (row, K byte) in rows of ``width`` bytes, before the XOR."""
    return (mn % 8) * width + (mn // 8) * stride + kb


def mn_major_offset(mb: Any, k: Any, leading: Any, stride: Any) -> Any:
    """Return the linear offset of (MN byte, k) without a swizzle."""
    return mb % 16 + (mb // 16) * stride + (k % 8) * 16 + (k // 8) * leading


def mn_major_swizzled_offset(
    mb: Any, k: Any, leading: Any, stride: Any, width: Any, group: Any = 8
) -> Any:
    """Return the linear offset of (MN byte, k) in rows of ``width`` bytes, before the XOR.

    ``group`` is the number of k per atom: 8, or 4 with 32-byte atoms.
    """
    return mb % width + (mb // width) * leading + (k % group) * width + (k // group) * stride


@dataclass(frozen=True)
class MatrixDescriptor:
    """A decoded matrix descriptor.

    Attributes:
        start: start address in bytes, modulo 2**18.
        leading: leading byte offset (LBO) in bytes.
        stride: stride byte offset (SBO) in bytes.
        swizzle: "none", "32B", "64B", "128B" or, on sm_100, "128B_ATOM_32B".
        base_offset: 0 where the swizzle pattern starts on its repeat.
        sm: 90 or 100.
        absolute_leading: sm_103a only: the LBO is an absolute address.
    """

    start: int
    leading: int
    stride: int
    swizzle: str
    base_offset: int = 0
    sm: int = 90
    absolute_leading: bool = False

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            LayoutError: a field does not fit its bits or its unit of 16 bytes.
        """
        if self.sm not in (90, 100):
            raise LayoutError(f"matrix descriptor for sm {self.sm}; must be 90 or 100")
        codes = LAYOUT_CODES_SM90 if self.sm == 90 else LAYOUT_CODES_SM100
        if self.swizzle not in codes:
            raise LayoutError(
                f"swizzle {self.swizzle!r} has no sm_{self.sm} matrix-descriptor code; use "
                f"{', '.join(map(repr, codes))}"
            )
        for name in ("start", "leading", "stride"):
            value = getattr(self, name)
            if value % 16:
                raise LayoutError(
                    f"descriptor {name} {value:#x} is {value % 16} mod 16; must be a multiple of 16"
                )
        for name in ("leading", "stride"):
            value = getattr(self, name)
            if not 0 <= value < 1 << 18:
                raise LayoutError(
                    f"descriptor {name} is {value} bytes; must be 0..{(1 << 18) - 16}"
                )
        if not 0 <= self.base_offset < 8:
            raise LayoutError(f"descriptor base offset {self.base_offset}; must be 0..7")

    def encode(self) -> int:
        """Return the 64-bit value."""
        if self.sm == 90:
            code = LAYOUT_CODES_SM90[self.swizzle]
            return encode_sm90(self.start, self.leading, self.stride, code, self.base_offset)
        code = LAYOUT_CODES_SM100[self.swizzle]
        value = encode_sm100(self.start, self.leading, self.stride, code, self.base_offset)
        return value | self.absolute_leading << 52

    @classmethod
    def decode(cls, value: int, sm: int | None = None) -> MatrixDescriptor:
        """Decode a 64-bit value.

        Args:
            value: the descriptor.
            sm: 90 or 100 to demand one kind; None reads it from bit 46.

        Raises:
            LayoutError: the value is of the other kind, or reserved bits are set.
        """
        value = int(value)
        found = 100 if value >> 46 & 7 == 1 else 90
        if sm == 100 and found == 90:
            raise LayoutError(
                f"wgmma descriptor {value:#018x} passed to tcgen05.mma (bit 46 is 0); build it "
                f"for sm_100: {value | 1 << 46:#018x}"
            )
        if sm == 90 and found == 100:
            raise LayoutError(
                f"tcgen05 descriptor {value:#018x} passed to wgmma (bit 46 is 1); build it for "
                "sm_90"
            )
        code = value >> 62 if found == 90 else value >> 61
        names = _NAMES_SM90 if found == 90 else _NAMES_SM100
        if code not in names:
            raise LayoutError(
                f"descriptor {value:#018x}: layout code {code} is invalid; use "
                f"{', '.join(f'{c} ({n})' for c, n in sorted(names.items()))}"
            )
        reserved = 0x1FFC_0000_0000_0000 | 3 << 14 | 3 << 30
        reserved |= 7 << 46 | 1 << 61 | 1 << 52 if found == 90 else 0
        reserved &= ~(7 << 49) & ~(1 << 52 if found == 100 else 0)
        if value & reserved:
            raise LayoutError(
                f"descriptor {value:#018x}: reserved bits {value & reserved:#x} are set; addresses "
                "and offsets are stored divided by 16, in 14 bits each"
            )
        return cls(
            start=(value & 0x3FFF) << 4,
            leading=(value >> 16 & 0x3FFF) << 4,
            stride=(value >> 32 & 0x3FFF) << 4,
            swizzle=names[code],
            base_offset=value >> 49 & 7,
            sm=found,
            absolute_leading=bool(found == 100 and value >> 52 & 1),
        )

    def linear_offset(self, mn: Any, k: Any, bits: int, major: str) -> Any:
        """Return the byte offset of element (mn, k) from the start, before the swizzle.

        Args:
            mn: row of A or column of B, an integer or array.
            k: index along K, an integer or array.
            bits: bits of one element in shared memory (4-bit pairs: the byte of the pair).
            major: "K" or "MN".
        """
        width = swizzle_span(self.swizzle)
        if major == "K":
            kb = k * bits // 8
            if self.swizzle == "none":
                return k_major_offset(mn, kb, self.leading, self.stride)
            return k_major_swizzled_offset(mn, kb, self.stride, width)
        mb = mn * bits // 8
        if self.swizzle == "none":
            return mn_major_offset(mb, k, self.leading, self.stride)
        group = 4 if self.swizzle == "128B_ATOM_32B" else 8
        return mn_major_swizzled_offset(mb, k, self.leading, self.stride, width, group)

    def address(self, mn: Any, k: Any, bits: int, major: str) -> Any:
        """Return the absolute shared address (modulo 2**18) of element (mn, k)."""
        linear = self.start + self.linear_offset(mn, k, bits, major)
        if not self.base_offset:
            return apply_swizzle(linear, self.swizzle)
        # The pattern starts base_offset lines late: its phase counts from there.
        late = self.base_offset << 7
        return apply_swizzle(linear - late, self.swizzle) + late


@dataclass(frozen=True)
class OperandTile:
    """An operand tile in shared memory as TMA boxes lay it out, and its descriptors.

    The tile is made of boxes whose innermost row is exactly the swizzle span (16 bytes without a
    swizzle): K-major boxes hold all ``mn`` rows of one span of K, MN-major boxes hold all ``k``
    of one span of MN; boxes follow each other without gaps.

    Attributes:
        mn: rows of A or columns of B in the tile.
        k: elements along K in the tile.
        dtype: element type.
        major: "K" or "MN".
        swizzle: name of the swizzle, TMA's and the descriptor's.
        sm: 90 (wgmma) or 100 (tcgen05).
    """

    mn: int
    k: int
    dtype: Any
    major: str = "K"
    swizzle: str = "128B"
    sm: int = 90

    def __post_init__(self) -> None:
        """Check that the tile has a descriptor.

        Raises:
            LayoutError: the rows do not fill the swizzle row, or the type has no such majorness.
        """
        name, bits = canonical(self.dtype).name, self.bits
        if self.major not in ("K", "MN"):
            raise LayoutError(f"major {self.major!r}; must be 'K' or 'MN'")
        codes = LAYOUT_CODES_SM90 if self.sm == 90 else LAYOUT_CODES_SM100
        if self.swizzle not in codes:
            raise LayoutError(
                f"swizzle {self.swizzle!r} has no sm_{self.sm} matrix-descriptor code; use "
                f"{', '.join(map(repr, codes))}"
            )
        if self.major == "MN":
            if self.sm == 90 and bits != 16:
                raise LayoutError(
                    f"{name} operand must be K-major (no transpose bit for 8-bit/tf32); got "
                    "MN-major"
                )
            if (bits == 32) != (self.swizzle == "128B_ATOM_32B"):
                raise LayoutError(
                    f"MN-major {name} with swizzle {self.swizzle!r}; 32-bit types take exactly "
                    "'128B_ATOM_32B', 8- and 16-bit types any other"
                )
        elif self.swizzle == "128B_ATOM_32B":
            raise LayoutError("swizzle '128B_ATOM_32B' is for MN-major operands only")
        inner, what = (self.k, "K") if self.major == "K" else (self.mn, "MN")
        width = swizzle_span(self.swizzle)
        if inner * bits // 8 % width:
            raise LayoutError(
                f"tile row of {inner} {name} along {what} is {inner * bits // 8} B; must fill the "
                f"{width} B rows of swizzle {self.swizzle!r}: use a multiple of {width * 8 // bits}"
            )
        if self.major == "K" and self.mn % 8:
            raise LayoutError(f"tile of {self.mn} rows; must be a multiple of 8")
        if self.major == "MN" and self.k % 8:
            raise LayoutError(f"tile of {self.k} along K; must be a multiple of 8")

    @property
    def bits(self) -> int:
        """Bits of one element."""
        return canonical(self.dtype).bits

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole tile."""
        return self.mn * self.k * self.bits // 8

    @property
    def shape(self) -> tuple[int, int]:
        """Shape with the contiguous dimension last, as arrays have it."""
        return (self.mn, self.k) if self.major == "K" else (self.k, self.mn)

    @property
    def box(self) -> tuple[int, int]:
        """TMA box of one copy in array order: (rows, elements of one span)."""
        inner = swizzle_span(self.swizzle) * 8 // self.bits
        return (self.mn if self.major == "K" else self.k, inner)

    @property
    def copies(self) -> int:
        """Number of TMA boxes that fill the tile."""
        return self.size_bytes // self.box_bytes

    @property
    def box_bytes(self) -> int:
        """Bytes of one TMA box, also the distance between boxes."""
        return self.box[0] * swizzle_span(self.swizzle)

    @property
    def leading(self) -> int:
        """LBO in bytes; 16 ("assumed 1") where the hardware ignores it."""
        if self.swizzle == "none":
            return 16 * self.mn if self.major == "K" else 128
        return 16 if self.major == "K" else self.box_bytes

    @property
    def stride(self) -> int:
        """SBO in bytes."""
        if self.swizzle == "none":
            return 128 if self.major == "K" else 16 * self.k
        return swizzle_span(self.swizzle) * self._group

    @property
    def _group(self) -> int:
        return 4 if self.swizzle == "128B_ATOM_32B" else 8

    @property
    def k_per_instruction(self) -> int:
        """Elements along K that one dense instruction takes: 32 bytes."""
        return 256 // self.bits

    def k_offset(self, step: int) -> int:
        """Return the byte offset of K-step ``step`` (one dense instruction each).

        Raises:
            LayoutError: the step lies outside the tile.
        """
        if not 0 <= step * self.k_per_instruction < self.k:
            steps = self.k // self.k_per_instruction
            raise LayoutError(f"K-step {step} of a tile with {steps} steps")
        kb = 32 * step
        if self.major == "K":
            if self.swizzle == "none":
                return 2 * step * self.leading
            width = swizzle_span(self.swizzle)
            return kb // width * self.box_bytes + kb % width
        groups = step * self.k_per_instruction // self._group
        return groups * (self.leading if self.swizzle == "none" else self.stride)

    def mn_offset(self, mn: int) -> int:
        """Return the byte offset of row or column ``mn`` (a multiple of the atom).

        Raises:
            LayoutError: the row is not the first of an atom.
        """
        if self.major == "K":
            if mn % 8:
                raise LayoutError(f"row {mn} does not start an 8-row core matrix")
            return mn // 8 * self.stride
        width = swizzle_span(self.swizzle)
        mb = mn * self.bits // 8
        if mb % width:
            raise LayoutError(f"column {mn} does not start a {width} B swizzle row")
        return mb // width * (self.stride if self.swizzle == "none" else self.leading)

    def descriptor(self, start: int, *, mn: int = 0, step: int = 0) -> MatrixDescriptor:
        """Return the descriptor of a part of the tile.

        Args:
            start: shared address of the tile in bytes.
            mn: first row or column of the part.
            step: K-step of the part.
        """
        return MatrixDescriptor(
            start=start + self.mn_offset(mn) + self.k_offset(step),
            leading=self.leading,
            stride=self.stride,
            swizzle=self.swizzle,
            base_offset=pattern_offset(start, self.swizzle) if self.swizzle != "none" else 0,
            sm=self.sm,
        )

    def check(self, value: int) -> None:
        """Compare a 64-bit descriptor with this tile, whatever its start address.

        Raises:
            LayoutError: a field differs from what the tile needs.
        """
        got = MatrixDescriptor.decode(value, self.sm)
        fields = [("SBO", got.stride, self.stride)]
        if self.major == "MN" or self.swizzle == "none":
            fields.append(("LBO", got.leading, self.leading))
        for name, found, wanted in fields:
            if found != wanted:
                raise LayoutError(
                    f"descriptor {name} field {found >> 4:#x} = {found} B; expected {wanted} B "
                    f"for a {self.major}-major {self.mn}x{self.k} tile of "
                    f"{canonical(self.dtype).name} with swizzle {self.swizzle!r}"
                )
        if got.swizzle != self.swizzle:
            raise LayoutError(
                f"descriptor says swizzle {got.swizzle!r}; the tile was filled with "
                f"{self.swizzle!r}"
            )
