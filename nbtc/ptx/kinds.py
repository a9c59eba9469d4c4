"""Operand kinds of PTX instructions, written as annotations in their declarations.

A kind says what register a PTX operand lives in and what a kernel may pass for it. To an editor
every kind is a plain ``int``, ``float``, ``bool`` or ``tuple``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

if TYPE_CHECKING:
    from nbtc.ptx.spec import Variant


@dataclass(frozen=True, slots=True)
class Kind:
    """What one scalar operand is.

    Attributes:
        name: short name, also the key of the lowering.
        bits: width of the register; 1 for a predicate.
        reg: PTX register type, as in ``.reg .b32``.
        constraint: LLVM inline-assembly constraint letter.
        words: what to pass, for error messages and the reference.
    """

    name: str
    bits: int
    reg: str
    constraint: str
    words: str


@dataclass(frozen=True, slots=True)
class Imm:
    """A compile-time integer that becomes part of the instruction's text.

    Attributes:
        low: smallest legal value.
        high: largest legal value.
        step: legal values are ``low, low + step, ...``.
        extra: further legal values outside the range.
    """

    low: int
    high: int
    step: int = 1
    extra: tuple[int, ...] = ()

    def __contains__(self, value: int) -> bool:
        in_range = self.low <= value <= self.high and (value - self.low) % self.step == 0
        return in_range or value in self.extra

    @property
    def words(self) -> str:
        """The legal values in words."""
        if self.low == self.high:
            text = f"{self.low}"
        elif self.step == 1:
            text = f"{self.low}..{self.high}"
        else:
            text = f"{self.low}..{self.high} in steps of {self.step}"
        return text + "".join(f" or {v}" for v in self.extra)

    def problem(self, value: int, variant: Variant) -> str | None:
        """Return what is wrong with ``value`` as an operand, or None."""
        return None if value in self else f"must be {self.words}, got {value}"

    def samples(self) -> tuple[int, ...]:
        """Values to test: both ends, one in the middle, the extras."""
        middle = self.low + (self.high - self.low) // self.step // 2 * self.step
        return tuple(dict.fromkeys((self.low, middle, self.high, *self.extra)))

    def all(self) -> tuple[int, ...]:
        """Every legal value."""
        return (*range(self.low, self.high + 1, self.step), *self.extra)


@dataclass(frozen=True, slots=True)
class Checked:
    """A rule for the value of an operand where that is known at compile time.

    Attributes:
        rule: returns what is wrong with a value in a variant, or None.
        words: the rule in words.
    """

    rule: Callable[[int, Variant], str | None]
    words: str

    def problem(self, value: int, variant: Variant) -> str | None:
        """Return what is wrong with ``value``, or None."""
        return self.rule(value, variant)


@dataclass(frozen=True, slots=True)
class Regs:
    """A tuple of registers, a PTX vector ``{r, r, ...}``.

    Attributes:
        kind: kind of each register, or a function of the variant.
        count: number of registers, a function of the variant, or None for "as many as given". A
            function that returns None means one register, not a tuple.
        low: fewest registers when ``count`` is None.
        high: most registers when ``count`` is None.
        note: the count in words, for the reference (``"n / 2"``).
    """

    kind: Kind | Callable[[Variant], Kind] | None
    count: int | Callable[[Variant], int | None] | None
    low: int = 1
    high: int = 256
    note: str = ""

    def is_scalar(self, variant: Variant) -> bool:
        """Return whether this variant has one register and no tuple."""
        return callable(self.count) and self.count(variant) is None

    def resolve(self, variant: Variant) -> tuple[Kind | None, int | None]:
        """Return the register kind and count for one variant."""
        kind = self.kind if self.kind is None or isinstance(self.kind, Kind) else self.kind(variant)
        count = self.count(variant) if callable(self.count) else self.count
        return kind, count


def chosen(kind: Callable[[Variant], Kind], note: str = "") -> Regs:
    """Return one register whose kind depends on the variant."""
    return Regs(kind, _no_count, note=note)


def _no_count(variant: Variant) -> None:
    return None


U16_KIND = Kind("u16", 16, "b16", "h", "a 16-bit integer")
U32_KIND = Kind("u32", 32, "b32", "r", "a 32-bit integer")
S32_KIND = Kind("s32", 32, "b32", "r", "a 32-bit integer")
U64_KIND = Kind("u64", 64, "b64", "l", "a 64-bit integer")
S64_KIND = Kind("s64", 64, "b64", "l", "a 64-bit integer")
F32_KIND = Kind("f32", 32, "f32", "f", "a float32")
F64_KIND = Kind("f64", 64, "f64", "d", "a float64")
PRED_KIND = Kind("pred", 1, "pred", "b", "a boolean")
SHARED_KIND = Kind(
    "shared", 32, "b32", "r", "a shared::cta address (a piece of shared memory or a shared array)"
)
CLUSTER_KIND = Kind(
    "cluster", 32, "b32", "r", "a shared::cluster address (from cluster.mapa, or a local one)"
)
TMEM_KIND = Kind("tmem", 32, "b32", "r", "a tensor-memory address")
GLOBAL_KIND = Kind("global", 64, "b64", "l", "a global array or a 64-bit global address")
GENERIC_KIND = Kind("generic", 64, "b64", "l", "a 64-bit generic address")
TENSOR_MAP_KIND = Kind("tensor_map", 64, "b64", "l", "a TensorMap argument of the kernel")
DESC90_KIND = Kind(
    "descriptor_sm90", 64, "b64", "l", "a wgmma matrix descriptor (wgmma.matrix_descriptor)"
)
DESC100_KIND = Kind(
    "descriptor_sm100", 64, "b64", "l", "a tcgen05 matrix descriptor (tcgen05.matrix_descriptor)"
)

U16 = Annotated[int, U16_KIND]
U32 = Annotated[int, U32_KIND]
S32 = Annotated[int, S32_KIND]
U64 = Annotated[int, U64_KIND]
S64 = Annotated[int, S64_KIND]
F32 = Annotated[float, F32_KIND]
F64 = Annotated[float, F64_KIND]
Pred = Annotated[bool, PRED_KIND]
Shared = Annotated[Any, SHARED_KIND]
Cluster = Annotated[Any, CLUSTER_KIND]
Tmem = Annotated[Any, TMEM_KIND]
Global = Annotated[Any, GLOBAL_KIND]
Generic = Annotated[Any, GENERIC_KIND]
TensorMapArg = Annotated[Any, TENSOR_MAP_KIND]
Descriptor90 = Annotated[int, DESC90_KIND]
Descriptor100 = Annotated[int, DESC100_KIND]
Coordinates = Annotated[tuple[int, ...], Regs(U32_KIND, None, 1, 5, "1 to 5, innermost first")]
AnyRegisters = Annotated[Any, Regs(None, None, 1, 256, "any")]
