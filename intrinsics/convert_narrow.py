"""cvt of 6- and 4-bit floats, ue8m0, s2f6 and stochastic rounding; imported as ``convert``.

Blackwell only. Two e2m3, e3m2 or s2f6 are a uint16, one in each byte (6-bit formats in the low
six bits); two e2m1 are one byte, here the low byte of a uint32: ``hi`` in bits 4-7, ``lo`` in bits
0-3. ue8m0 is a scale factor, a power of two in 8 bits.

Forms that need PTX ISA 9.1 or 9.2 say so; go through float16 or float32 with an older toolkit.
"""

from __future__ import annotations

from typing import Annotated, Literal

from nbtc.arch import TCGEN05
from nbtc.ptx.kinds import F32, F32_KIND, U16, U32, Regs
from nbtc.ptx.spec import ptx

FAMILY = "convert"
SECTION = "9.7.9.22 Data Movement and Conversion Instructions: cvt"
CHIPS = ("sm_100a", "sm_103a")
Flag = Literal[False, True]
Four = Annotated[tuple[float, float, float, float], Regs(F32_KIND, 4)]


@ptx(
    "cvt.rn.satfinite{.relu}.e2m3x2.f32 {ret}, {hi}, {lo};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="pure",
    section=SECTION,
)
def cvt_e2m3x2_f32(hi: F32, lo: F32, *, relu: Flag = False) -> U16:
    """Round two float32 to a pair of e2m3, clamped to +-7.5; ``hi`` in the upper byte."""
    ...


@ptx(
    "cvt.rn.satfinite{.relu}.e3m2x2.f32 {ret}, {hi}, {lo};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="pure",
    section=SECTION,
)
def cvt_e3m2x2_f32(hi: F32, lo: F32, *, relu: Flag = False) -> U16:
    """Round two float32 to a pair of e3m2, clamped to +-28; ``hi`` in the upper byte."""
    ...


@ptx(
    "{{ .reg .b8 %b; cvt.rn.satfinite{.relu}.e2m1x2.f32 %b, {hi}, {lo}; cvt.u32.u8 {ret}, %b; }}",
    isa=(8, 6),
    arch=TCGEN05,
    effects="pure",
    section=SECTION,
)
def cvt_e2m1x2_f32(hi: F32, lo: F32, *, relu: Flag = False) -> U32:
    """Round two float32 to a pair of e2m1, clamped to +-6, in the low byte."""
    ...


@ptx(
    "cvt.rn{.relu}.f16x2.e2m3x2 {ret}, {value};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="pure",
    section=SECTION,
)
def cvt_f16x2_e2m3x2(value: U16, *, relu: Flag = False) -> U32:
    """Widen a pair of e2m3 to a pair of float16, exactly."""
    ...


@ptx(
    "cvt.rn{.relu}.f16x2.e3m2x2 {ret}, {value};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="pure",
    section=SECTION,
)
def cvt_f16x2_e3m2x2(value: U16, *, relu: Flag = False) -> U32:
    """Widen a pair of e3m2 to a pair of float16, exactly."""
    ...


@ptx(
    "{{ .reg .b8 %b; .reg .b8 %b1, %b2, %b3; mov.b32 {{%b, %b1, %b2, %b3}}, {value}; "
    "cvt.rn{.relu}.f16x2.e2m1x2 {ret}, %b; }}",
    isa=(8, 6),
    arch=TCGEN05,
    effects="pure",
    section=SECTION,
)
def cvt_f16x2_e2m1x2(value: U32, *, relu: Flag = False) -> U32:
    """Widen the pair of e2m1 in the low byte to a pair of float16, exactly."""
    ...


@ptx(
    "cvt.rn.satfinite{.relu}.e2m3x2.f16x2 {ret}, {value};",
    isa=(9, 1),
    arch=TCGEN05,
    effects="pure",
    section=SECTION,
)
def cvt_e2m3x2_f16x2(value: U32, *, relu: Flag = False) -> U16:
    """Round a pair of float16 to a pair of e2m3, clamped to +-7.5 (PTX ISA 9.1)."""
    ...


@ptx(
    "cvt.rn.satfinite{.relu}.e3m2x2.f16x2 {ret}, {value};",
    isa=(9, 1),
    arch=TCGEN05,
    effects="pure",
    section=SECTION,
)
def cvt_e3m2x2_f16x2(value: U32, *, relu: Flag = False) -> U16:
    """Round a pair of float16 to a pair of e3m2, clamped to +-28 (PTX ISA 9.1)."""
    ...


@ptx(
    "{{ .reg .b8 %b; cvt.rn.satfinite{.relu}.e2m1x2.f16x2 %b, {value}; cvt.u32.u8 {ret}, %b; }}",
    isa=(9, 1),
    arch=TCGEN05,
    effects="pure",
    section=SECTION,
)
def cvt_e2m1x2_f16x2(value: U32, *, relu: Flag = False) -> U32:
    """Round a pair of float16 to a pair of e2m1, clamped to +-6, in the low byte (PTX ISA 9.1)."""
    ...


@ptx(
    "cvt.rn.satfinite{.relu}.e2m3x2.bf16x2 {ret}, {value};",
    isa=(9, 1),
    arch=TCGEN05,
    effects="pure",
    section=SECTION,
)
def cvt_e2m3x2_bf16x2(value: U32, *, relu: Flag = False) -> U16:
    """Round a pair of bfloat16 to a pair of e2m3, clamped to +-7.5 (PTX ISA 9.1)."""
    ...


@ptx(
    "cvt.rn.satfinite{.relu}.e3m2x2.bf16x2 {ret}, {value};",
    isa=(9, 1),
    arch=TCGEN05,
    effects="pure",
    section=SECTION,
)
def cvt_e3m2x2_bf16x2(value: U32, *, relu: Flag = False) -> U16:
    """Round a pair of bfloat16 to a pair of e3m2, clamped to +-28 (PTX ISA 9.1)."""
    ...


@ptx(
    "{{ .reg .b8 %b; cvt.rn.satfinite{.relu}.e2m1x2.bf16x2 %b, {value}; cvt.u32.u8 {ret}, %b; }}",
    isa=(9, 1),
    arch=TCGEN05,
    effects="pure",
    section=SECTION,
)
def cvt_e2m1x2_bf16x2(value: U32, *, relu: Flag = False) -> U32:
    """Round a pair of bfloat16 to a pair of e2m1, clamped to +-6, in the low byte (PTX ISA 9.1)."""
    ...


@ptx(
    "cvt.rn{.relu}{.satfinite}{?scale:.scaled::n2::ue8m0}.bf16x2.e2m3x2 {ret}, {value}{, scale};",
    isa=(9, 2),
    arch=TCGEN05,
    effects="pure",
    section=SECTION,
)
def cvt_bf16x2_e2m3x2(
    value: U16, scale: U16 | None = None, *, relu: Flag = False, satfinite: Flag = False
) -> U32:
    """Widen a pair of e2m3 to bfloat16, times a pair of ue8m0 if given (PTX ISA 9.2)."""
    ...


@ptx(
    "cvt.rn{.relu}{.satfinite}{?scale:.scaled::n2::ue8m0}.bf16x2.e3m2x2 {ret}, {value}{, scale};",
    isa=(9, 2),
    arch=TCGEN05,
    effects="pure",
    section=SECTION,
)
def cvt_bf16x2_e3m2x2(
    value: U16, scale: U16 | None = None, *, relu: Flag = False, satfinite: Flag = False
) -> U32:
    """Widen a pair of e3m2 to bfloat16, times a pair of ue8m0 if given (PTX ISA 9.2)."""
    ...


@ptx(
    "{{ .reg .b8 %b; .reg .b8 %b1, %b2, %b3; mov.b32 {{%b, %b1, %b2, %b3}}, {value}; "
    "cvt.rn{.relu}{.satfinite}{?scale:.scaled::n2::ue8m0}.bf16x2.e2m1x2 {ret}, %b{, scale}; }}",
    isa=(9, 2),
    arch=TCGEN05,
    effects="pure",
    section=SECTION,
)
def cvt_bf16x2_e2m1x2(
    value: U32, scale: U16 | None = None, *, relu: Flag = False, satfinite: Flag = False
) -> U32:
    """Widen the low byte's pair of e2m1 to bfloat16, times two ue8m0 if given (PTX ISA 9.2)."""
    ...


@ptx(
    "cvt.{rounding}{.satfinite}.ue8m0x2.f32 {ret}, {hi}, {lo};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="pure",
    section=SECTION,
)
def cvt_ue8m0x2_f32(
    hi: F32, lo: F32, *, rounding: Literal["rz", "rp"], satfinite: Flag = False
) -> U16:
    """Round two float32 to powers of two, down (``rz``) or up (``rp``); the sign is dropped."""
    ...


@ptx(
    "cvt.{rounding}{.satfinite}.ue8m0x2.bf16x2 {ret}, {value};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="pure",
    section=SECTION,
)
def cvt_ue8m0x2_bf16x2(
    value: U32, *, rounding: Literal["rz", "rp"], satfinite: Flag = False
) -> U16:
    """Round a pair of bfloat16 to powers of two, down (``rz``) or up (``rp``)."""
    ...


@ptx(
    "cvt.rn.bf16x2.ue8m0x2 {ret}, {value};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="pure",
    section=SECTION,
)
def cvt_bf16x2_ue8m0x2(value: U16) -> U32:
    """Widen a pair of ue8m0 to a pair of bfloat16, exactly."""
    ...


@ptx(
    "cvt.rn.satfinite{.relu}{?scale:.scaled::n2::ue8m0}.s2f6x2.f32 {ret}, {hi}, {lo}{, scale};",
    isa=(9, 1),
    arch=CHIPS,
    effects="pure",
    section=SECTION,
)
def cvt_s2f6x2_f32(hi: F32, lo: F32, scale: U16 | None = None, *, relu: Flag = False) -> U16:
    """Round two float32 to fixed point with 6 fraction bits, scaled by ue8m0 (PTX ISA 9.1)."""
    ...


@ptx(
    "cvt.rn.satfinite{.relu}{?scale:.scaled::n2::ue8m0}.s2f6x2.bf16x2 {ret}, {value}{, scale};",
    isa=(9, 1),
    arch=CHIPS,
    effects="pure",
    section=SECTION,
)
def cvt_s2f6x2_bf16x2(value: U32, scale: U16 | None = None, *, relu: Flag = False) -> U16:
    """Round a pair of bfloat16 to fixed point with 6 fraction bits (PTX ISA 9.1)."""
    ...


@ptx(
    "cvt.rn{.satfinite}{.relu}{?scale:.scaled::n2::ue8m0}.bf16x2.s2f6x2 {ret}, {value}{, scale};",
    isa=(9, 1),
    arch=CHIPS,
    effects="pure",
    section=SECTION,
)
def cvt_bf16x2_s2f6x2(
    value: U16, scale: U16 | None = None, *, relu: Flag = False, satfinite: Flag = False
) -> U32:
    """Widen a pair of fixed point values to a pair of bfloat16 (PTX ISA 9.1)."""
    ...


@ptx(
    "cvt.rs{.relu}{.satfinite}.bf16x2.f32 {ret}, {hi}, {lo}, {random};",
    isa=(8, 7),
    arch=CHIPS,
    effects="pure",
    section=SECTION,
)
def cvt_bf16x2_f32_rs(
    hi: F32, lo: F32, random: U32, *, relu: Flag = False, satfinite: Flag = False
) -> U32:
    """Round two float32 to a pair of bfloat16 stochastically, with 32 random bits."""
    ...


@ptx(
    "cvt.rs{.relu}{.satfinite}.f16x2.f32 {ret}, {hi}, {lo}, {random};",
    isa=(8, 7),
    arch=CHIPS,
    effects="pure",
    section=SECTION,
)
def cvt_f16x2_f32_rs(
    hi: F32, lo: F32, random: U32, *, relu: Flag = False, satfinite: Flag = False
) -> U32:
    """Round two float32 to a pair of float16 stochastically, with 32 random bits."""
    ...


@ptx(
    "cvt.rs{.relu}.satfinite.e4m3x4.f32 {ret}, {values}, {random};",
    isa=(8, 7),
    arch=CHIPS,
    effects="pure",
    section=SECTION,
)
def cvt_e4m3x4_f32_rs(values: Four, random: U32, *, relu: Flag = False) -> U32:
    """Round four float32 (top element first) to e4m3 stochastically, with 32 random bits."""
    ...


@ptx(
    "cvt.rs{.relu}.satfinite.e5m2x4.f32 {ret}, {values}, {random};",
    isa=(8, 7),
    arch=CHIPS,
    effects="pure",
    section=SECTION,
)
def cvt_e5m2x4_f32_rs(values: Four, random: U32, *, relu: Flag = False) -> U32:
    """Round four float32 (top element first) to e5m2 stochastically, with 32 random bits."""
    ...


@ptx(
    "cvt.rs{.relu}.satfinite.e2m3x4.f32 {ret}, {values}, {random};",
    isa=(8, 7),
    arch=CHIPS,
    effects="pure",
    section=SECTION,
)
def cvt_e2m3x4_f32_rs(values: Four, random: U32, *, relu: Flag = False) -> U32:
    """Round four float32 (top element first) to e2m3 stochastically, with 32 random bits."""
    ...


@ptx(
    "cvt.rs{.relu}.satfinite.e3m2x4.f32 {ret}, {values}, {random};",
    isa=(8, 7),
    arch=CHIPS,
    effects="pure",
    section=SECTION,
)
def cvt_e3m2x4_f32_rs(values: Four, random: U32, *, relu: Flag = False) -> U32:
    """Round four float32 (top element first) to e3m2 stochastically, with 32 random bits."""
    ...


@ptx(
    "cvt.rs{.relu}.satfinite.e2m1x4.f32 {ret}, {values}, {random};",
    isa=(8, 7),
    arch=CHIPS,
    effects="pure",
    section=SECTION,
)
def cvt_e2m1x4_f32_rs(values: Four, random: U32, *, relu: Flag = False) -> U16:
    """Round four float32 (top element first) to e2m1 stochastically, with 32 random bits."""
    ...
