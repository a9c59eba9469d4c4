"""Instruction descriptors of tcgen05.mma: 32-bit values, one format per kind (PTX ISA 9.7.16.4.2).

    InstructionDescriptor("f16", 128, 256, "bfloat16", "bfloat16", "float32").encode()

ptxas takes any literal, so `InstructionDescriptor.check` is the only guard against a shape or type
that the hardware refuses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nbtc.dtypes import canonical
from nbtc.errors import LayoutError

KINDS = ("f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4")
"""PTX ``.kind`` names."""

BLOCK_SCALED = frozenset(("mxf8f6f4", "mxf4", "mxf4nvf4"))
"""Kinds that take scale factors."""

_F8F6F4 = {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}
_OPERANDS: dict[str, dict[str, int]] = {
    "f16": {"f16": 0, "bf16": 1},
    "tf32": {"tf32": 2},
    "f8f6f4": _F8F6F4,
    "i8": {"u8": 0, "s8": 1},
    "mxf8f6f4": _F8F6F4,
    "mxf4": {"e2m1": 1},
    "mxf4nvf4": {"e2m1": 1},
}
_RESULTS: dict[str, tuple[str, ...]] = {
    "f16": ("f32", "f16"), "tf32": ("f32",), "f8f6f4": ("f32", "f16"), "i8": ("s32",),
    "mxf8f6f4": ("f32",), "mxf4": ("f32",), "mxf4nvf4": ("f32",),
}  # fmt: skip
_D_CODES = {"f16": 0, "f32": 1, "s32": 2}
_DENSE_K = {
    "f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64,
}  # fmt: skip
_SHIFTS = {0: 0, 8: 1, 16: 2, 32: 3}


def _word(dtype: Any) -> str:
    """Return the PTX word of a dtype."""
    if dtype == "ue4m3":
        return "ue4m3"
    return canonical(dtype).ptx


@dataclass(frozen=True)
class InstructionDescriptor:
    """The fields of an instruction descriptor.

    Attributes:
        kind: PTX kind, one of `KINDS`.
        m: rows of D (both CTAs of a pair together).
        n: columns of D.
        a: PTX type of A; any dtype name is accepted ("bfloat16", "bf16").
        b: PTX type of B.
        d: PTX type of D.
        negate_a: negate A (not for i8).
        negate_b: negate B (not for i8).
        transpose_a: A is MN-major.
        transpose_b: B is MN-major.
        sparse: A is sparse.
        selector: sparsity selector 0..3.
        saturate: clamp s32 results (i8 only).
        max_shift: B row shift of ``.ws``: 0, 8, 16 or 32.
        scale: "ue8m0" or "ue4m3" for block-scaled kinds, else None.
        sfa_id: byte of the scale-factor word of A, 0..3.
        sfb_id: byte of the scale-factor word of B, 0..3.
        k96: mxf4 kinds on sm_103a: K is 96 instead of 64.
    """

    kind: str
    m: int
    n: int
    a: str
    b: str
    d: str = "f32"
    negate_a: bool = False
    negate_b: bool = False
    transpose_a: bool = False
    transpose_b: bool = False
    sparse: bool = False
    selector: int = 0
    saturate: bool = False
    max_shift: int = 0
    scale: str | None = None
    sfa_id: int = 0
    sfb_id: int = 0
    k96: bool = False

    def __post_init__(self) -> None:
        """Normalise type names and check the fields against the kind.

        Raises:
            LayoutError: a type, size or modifier that the kind does not have.
        """
        if self.kind not in KINDS:
            raise LayoutError(f"kind {self.kind!r}; must be one of {', '.join(KINDS)}")
        for name in ("a", "b", "d"):
            object.__setattr__(self, name, _word(getattr(self, name)))
        scaled = self.kind in BLOCK_SCALED
        if scaled:
            object.__setattr__(self, "scale", self._scale_word())
        elif self.scale is not None:
            raise LayoutError(f"kind::{self.kind} takes no scale factors")
        types = _OPERANDS[self.kind]
        for name in ("a", "b"):
            if getattr(self, name) not in types:
                raise LayoutError(
                    f"operand {name.upper()} {getattr(self, name)} with kind::{self.kind}; must be "
                    f"{', '.join(types)}"
                )
        if self.d not in _RESULTS[self.kind]:
            raise LayoutError(
                f"D {self.d} with kind::{self.kind}; must be {', '.join(_RESULTS[self.kind])}"
            )
        if self.kind == "f16" and self.d == "f16" and (self.a, self.b) != ("f16", "f16"):
            raise LayoutError(f"D f16 with A {self.a} and B {self.b}; both must be f16")
        self._check_modifiers()
        if self.n > 256:
            raise LayoutError(f"N={self.n}: one instruction takes at most 256; split")
        if self.n < 8 or self.n % 8:
            raise LayoutError(f"N={self.n}: must be a multiple of 8, 8..256")
        if self.m not in (32, 64, 128, 256):
            raise LayoutError(f"M={self.m}: must be 64 or 128 (pair: 128, 256; ws: 32, 64, 128)")

    def _scale_word(self) -> str:
        word = "ue8m0" if self.scale is None else _word(self.scale)
        word = {"e4m3": "ue4m3"}.get(word, word)
        legal = ("ue8m0", "ue4m3") if self.kind == "mxf4nvf4" else ("ue8m0",)
        if word not in legal:
            raise LayoutError(
                f"scale type {word} with kind::{self.kind}; must be {' or '.join(legal)}"
            )
        return word

    def _check_modifiers(self) -> None:
        if self.saturate and self.kind != "i8":
            raise LayoutError(f"saturate with kind::{self.kind}; exists for i8 only")
        if (self.negate_a or self.negate_b) and self.kind == "i8":
            raise LayoutError("kind::i8 cannot negate operands")
        packed = self.kind in ("mxf4", "mxf4nvf4")
        if packed and (self.transpose_a or self.transpose_b):
            raise LayoutError(f"kind::{self.kind} operands must be K-major")
        if self.k96 and (not packed or self.sparse):
            raise LayoutError("K=96 exists for dense mxf4 and mxf4nvf4 only")
        if self.max_shift not in _SHIFTS:
            raise LayoutError(f"max_shift {self.max_shift}; must be 0, 8, 16 or 32")
        for name in ("sfa_id", "sfb_id"):
            value = getattr(self, name)
            legal = (0, 2) if packed else (0, 1, 2, 3)
            if value not in legal or (value and self.kind not in BLOCK_SCALED):
                raise LayoutError(f"{name}={value} with kind::{self.kind}; must be one of {legal}")
        if not 0 <= self.selector < 4 or (self.selector and not self.sparse):
            raise LayoutError(f"sparsity selector {self.selector}; must be 0..3, 0 when dense")

    @property
    def k(self) -> int:
        """Elements along K of one instruction (sparse: of the dense matrix)."""
        if self.k96:
            return 96
        return _DENSE_K[self.kind] * (2 if self.sparse else 1)

    @property
    def container_bits(self) -> int:
        """Bits that one element of A or B takes in shared memory (padding included)."""
        return {"f16": 16, "tf32": 32, "mxf4": 4, "mxf4nvf4": 4}.get(self.kind, 8)

    def check(self, cta_group: int = 1, *, ws: bool = False, a_in_tmem: bool = False) -> None:
        """Check the shape for a form of the instruction (PTX ISA 9.7.16.2.1).

        Args:
            cta_group: 1, or 2 for a CTA pair.
            ws: the ``.ws`` form.
            a_in_tmem: A comes from tensor memory.

        Raises:
            LayoutError: the shape does not exist for this form; the message gives those that do.
        """
        if a_in_tmem and self.transpose_a:
            raise LayoutError("A from TMEM must be K-major")
        form = f"kind::{self.kind}, {'ws, ' if ws else ''}cta_group::{cta_group}"
        if ws and (cta_group != 1 or self.kind in BLOCK_SCALED):
            raise LayoutError(f"{form}: the ws form exists for cta_group::1 without block scaling")
        rows = self._legal_m(cta_group, ws)
        if self.m not in rows:
            raise LayoutError(
                f"M={self.m} with {form}: must be {' or '.join(map(str, rows))}"
                + (" when sparse" if self.sparse and self.kind in BLOCK_SCALED else "")
            )
        columns, words = self._legal_n(cta_group, ws)
        if self.n not in columns:
            raise LayoutError(f"N={self.n} with {form}: must be {words}")
        if self.transpose_b and self.container_bits == 8 and not ws:
            step = 16 * cta_group
            if self.n % step:
                raise LayoutError(
                    f"N={self.n} with {form} and a transposed 8-bit B: must be a multiple of {step}"
                )

    def _legal_m(self, cta_group: int, ws: bool) -> tuple[int, ...]:
        if ws:
            return (32, 64, 128)
        if cta_group == 2:
            return (256,) if self.sparse and self.kind in BLOCK_SCALED else (128, 256)
        return (128,) if self.kind in BLOCK_SCALED else (64, 128)

    def _legal_n(self, cta_group: int, ws: bool) -> tuple[range | tuple[int, ...], str]:
        if ws:
            legal = (64, 128) if self.sparse else (64, 128, 256)
            return legal, ", ".join(map(str, legal))
        if self.kind == "i8":
            if cta_group == 2:
                return range(32, 257, 32), "a multiple of 32, 32..256"
            return (8, 24, *range(16, 257, 16)), "8, 16, 24, 32, then a multiple of 16 up to 256"
        step = 8 * cta_group
        return range(step, 257, step), f"a multiple of {step}, {step}..256"

    def encode(self) -> int:
        """Return the 32-bit value."""
        codes = _OPERANDS[self.kind]
        value = codes[self.a] << 7 | codes[self.b] << 10 | (self.n >> 3) << 17
        value |= self.sparse << 2 | self.negate_a << 13 | self.negate_b << 14
        value |= self.transpose_a << 15 | self.transpose_b << 16
        if self.kind in BLOCK_SCALED:
            value |= self.sfb_id << 4 | (self.scale == "ue8m0") << 23
            return value | (self.m >> 7) << 27 | self.sfa_id << 29 | self.k96 << 31
        value |= self.selector | self.saturate << 3 | _D_CODES[self.d] << 4
        return value | (self.m >> 4) << 24 | _SHIFTS[self.max_shift] << 30

    @classmethod
    def decode(cls, value: int, kind: str) -> InstructionDescriptor:
        """Decode a 32-bit value for the kind of its instruction.

        Raises:
            LayoutError: reserved bits are set, or a field holds no legal code.
        """
        if kind not in KINDS:
            raise LayoutError(f"kind {kind!r}; must be one of {', '.join(KINDS)}")
        value = int(value)
        scaled, packed = kind in BLOCK_SCALED, kind in ("mxf4", "mxf4nvf4")
        reserved = 1 << 6 | (1 << 23 | 1 << 29 if not scaled else 7 << 24 | 0b1011)
        reserved |= (1 << 12 | 3 << 15) if packed else (1 << 31 if scaled else 0)
        if value & reserved:
            raise LayoutError(
                f"instruction descriptor {value:#010x} of kind::{kind}: reserved bits "
                f"{value & reserved:#x} are set"
            )

        def name(what: str, code: int, names: dict[str, int]) -> str:
            for word, number in names.items():
                if number == code:
                    return word
            raise LayoutError(
                f"instruction descriptor {value:#010x} of kind::{kind}: {what} code {code} is "
                f"invalid; use {', '.join(f'{c} ({w})' for w, c in names.items())}"
            )

        codes = _OPERANDS[kind]
        common: dict[str, Any] = {
            "kind": kind,
            "n": (value >> 17 & 63) << 3,
            "a": name("A type", value >> 7 & 7, codes),
            "b": name("B type", value >> 10 & (3 if packed else 7), codes),
            "negate_a": bool(value >> 13 & 1),
            "negate_b": bool(value >> 14 & 1),
            "transpose_a": bool(value >> 15 & 1),
            "transpose_b": bool(value >> 16 & 1),
            "sparse": bool(value >> 2 & 1),
        }
        if scaled:
            return cls(
                **common, m=(value >> 27 & 3) << 7, scale=("ue4m3", "ue8m0")[value >> 23 & 1],
                sfa_id=value >> 29 & 3, sfb_id=value >> 4 & 3, k96=bool(packed and value >> 31),
            )  # fmt: skip
        shifts = {code: shift for shift, code in _SHIFTS.items()}
        return cls(
            **common,
            m=(value >> 24 & 31) << 4,
            d=name("D type", value >> 4 & 3, _D_CODES),
            selector=value & 3,
            saturate=bool(value >> 3 & 1),
            max_shift=shifts[value >> 30 & 3],
        )
