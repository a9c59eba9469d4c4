"""tcgen05.mma of f16, tf32, f8f6f4 and i8; imported as ``tcgen05``, which has the rules."""

from __future__ import annotations

from nbtc.arch import TCGEN05
from nbtc.intrinsics.tcgen05_types import (
    SECTION,
    Collector,
    CtaGroup,
    Flag,
    IdescF8f6f4,
    IdescF8f6f4Ts,
    IdescF16,
    IdescF16Ts,
    IdescI8,
    IdescI8Ts,
    IdescTf32,
    IdescTf32Ts,
    Lanes,
    ScaleInputD,
    no_shift_with_reuse,
)
from nbtc.ptx.kinds import Descriptor100, Pred, Tmem
from nbtc.ptx.spec import ptx

FAMILY = "tcgen05"


@ptx(
    "tcgen05.mma.cta_group::{cta_group}.kind::f16"
    "{?collector_a:.collector::a::}{collector_a} [{d}], {a_desc}, "
    "{b_desc}, {idesc}{, disable_lanes}, {scale_d}{, scale_input_d};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory",
    section=SECTION + ": mma",
)
def mma_f16(
    d: Tmem,
    a_desc: Descriptor100,
    b_desc: Descriptor100,
    idesc: IdescF16,
    scale_d: Pred = True,
    disable_lanes: Lanes | None = None,
    *,
    cta_group: CtaGroup = 1,
    scale_input_d: ScaleInputD = 0,
    collector_a: Collector = "",
) -> None:
    """Start D = A * B + D, f16 or bf16, K = 16.

    A and B are f16 or bf16; D is float32, or float16 from float16 operands.

    Args:
        d: address of D in tensor memory.
        a_desc: descriptor of A in shared memory.
        b_desc: descriptor of B in shared memory.
        idesc: IdescF16 descriptor of kind f16.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        disable_lanes: 4 * cta_group masks of 32 lanes; a set bit leaves its lane of D alone.
        cta_group: 1, or 2 for a CTA pair.
        scale_input_d: D is divided by 2 ** scale_input_d before the addition.
        collector_a: hint to keep or reuse A in the collector buffer.
    """
    ...


@ptx(
    "tcgen05.mma.cta_group::{cta_group}.kind::tf32"
    "{?collector_a:.collector::a::}{collector_a} [{d}], {a_desc}, "
    "{b_desc}, {idesc}{, disable_lanes}, {scale_d}{, scale_input_d};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory",
    section=SECTION + ": mma",
)
def mma_tf32(
    d: Tmem,
    a_desc: Descriptor100,
    b_desc: Descriptor100,
    idesc: IdescTf32,
    scale_d: Pred = True,
    disable_lanes: Lanes | None = None,
    *,
    cta_group: CtaGroup = 1,
    scale_input_d: ScaleInputD = 0,
    collector_a: Collector = "",
) -> None:
    """Start D = A * B + D, tf32, K = 8.

    A and B are tf32; D is float32.

    Args:
        d: address of D in tensor memory.
        a_desc: descriptor of A in shared memory.
        b_desc: descriptor of B in shared memory.
        idesc: IdescTf32 descriptor of kind tf32.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        disable_lanes: 4 * cta_group masks of 32 lanes; a set bit leaves its lane of D alone.
        cta_group: 1, or 2 for a CTA pair.
        scale_input_d: D is divided by 2 ** scale_input_d before the addition.
        collector_a: hint to keep or reuse A in the collector buffer.
    """
    ...


@ptx(
    "tcgen05.mma.cta_group::{cta_group}.kind::f8f6f4"
    "{?collector_a:.collector::a::}{collector_a} [{d}], {a_desc}, "
    "{b_desc}, {idesc}{, disable_lanes}, {scale_d};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory",
    section=SECTION + ": mma",
)
def mma_f8f6f4(
    d: Tmem,
    a_desc: Descriptor100,
    b_desc: Descriptor100,
    idesc: IdescF8f6f4,
    scale_d: Pred = True,
    disable_lanes: Lanes | None = None,
    *,
    cta_group: CtaGroup = 1,
    collector_a: Collector = "",
) -> None:
    """Start D = A * B + D, 8-, 6- and 4-bit floats, K = 32.

    A and B are e4m3, e5m2, e2m3, e3m2 or e2m1, mixed at will; D is float32 or float16.

    Args:
        d: address of D in tensor memory.
        a_desc: descriptor of A in shared memory.
        b_desc: descriptor of B in shared memory.
        idesc: IdescF8f6f4 descriptor of kind f8f6f4.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        disable_lanes: 4 * cta_group masks of 32 lanes; a set bit leaves its lane of D alone.
        cta_group: 1, or 2 for a CTA pair.
        collector_a: hint to keep or reuse A in the collector buffer.
    """
    ...


@ptx(
    "tcgen05.mma.cta_group::{cta_group}.kind::i8"
    "{?collector_a:.collector::a::}{collector_a} [{d}], {a_desc}, "
    "{b_desc}, {idesc}{, disable_lanes}, {scale_d};",
    isa=(8, 6),
    arch="sm_100a",
    effects="memory",
    section=SECTION + ": mma",
)
def mma_i8(
    d: Tmem,
    a_desc: Descriptor100,
    b_desc: Descriptor100,
    idesc: IdescI8,
    scale_d: Pred = True,
    disable_lanes: Lanes | None = None,
    *,
    cta_group: CtaGroup = 1,
    collector_a: Collector = "",
) -> None:
    """Start D = A * B + D, int8 or uint8, K = 32.

    A and B are int8 or uint8; D is int32.

    Args:
        d: address of D in tensor memory.
        a_desc: descriptor of A in shared memory.
        b_desc: descriptor of B in shared memory.
        idesc: IdescI8 descriptor of kind i8.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        disable_lanes: 4 * cta_group masks of 32 lanes; a set bit leaves its lane of D alone.
        cta_group: 1, or 2 for a CTA pair.
        collector_a: hint to keep or reuse A in the collector buffer.
    """
    ...


@ptx(
    "tcgen05.mma.cta_group::{cta_group}.kind::f16{.ashift}"
    "{?collector_a:.collector::a::}{collector_a} [{d}], [{a}], "
    "{b_desc}, {idesc}{, disable_lanes}, {scale_d}{, scale_input_d};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory",
    check=no_shift_with_reuse,
    section=SECTION + ": mma",
)
def mma_f16_ts(
    d: Tmem,
    a: Tmem,
    b_desc: Descriptor100,
    idesc: IdescF16Ts,
    scale_d: Pred = True,
    disable_lanes: Lanes | None = None,
    *,
    cta_group: CtaGroup = 1,
    scale_input_d: ScaleInputD = 0,
    collector_a: Collector = "",
    ashift: Flag = False,
) -> None:
    """Start D = A * B + D, f16 or bf16, K = 16, A in tensor memory.

    A and B are f16 or bf16; D is float32, or float16 from float16 operands.

    Args:
        d: address of D in tensor memory.
        a: address of A in tensor memory, K-major.
        b_desc: descriptor of B in shared memory.
        idesc: IdescF16Ts descriptor of kind f16.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        disable_lanes: 4 * cta_group masks of 32 lanes; a set bit leaves its lane of D alone.
        cta_group: 1, or 2 for a CTA pair.
        scale_input_d: D is divided by 2 ** scale_input_d before the addition.
        collector_a: hint to keep or reuse A in the collector buffer.
        ashift: shift the rows of A down by one; M = 128 or 256, not with fill or use.
    """
    ...


@ptx(
    "tcgen05.mma.cta_group::{cta_group}.kind::tf32{.ashift}"
    "{?collector_a:.collector::a::}{collector_a} [{d}], [{a}], "
    "{b_desc}, {idesc}{, disable_lanes}, {scale_d}{, scale_input_d};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory",
    check=no_shift_with_reuse,
    section=SECTION + ": mma",
)
def mma_tf32_ts(
    d: Tmem,
    a: Tmem,
    b_desc: Descriptor100,
    idesc: IdescTf32Ts,
    scale_d: Pred = True,
    disable_lanes: Lanes | None = None,
    *,
    cta_group: CtaGroup = 1,
    scale_input_d: ScaleInputD = 0,
    collector_a: Collector = "",
    ashift: Flag = False,
) -> None:
    """Start D = A * B + D, tf32, K = 8, A in tensor memory.

    A and B are tf32; D is float32.

    Args:
        d: address of D in tensor memory.
        a: address of A in tensor memory, K-major.
        b_desc: descriptor of B in shared memory.
        idesc: IdescTf32Ts descriptor of kind tf32.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        disable_lanes: 4 * cta_group masks of 32 lanes; a set bit leaves its lane of D alone.
        cta_group: 1, or 2 for a CTA pair.
        scale_input_d: D is divided by 2 ** scale_input_d before the addition.
        collector_a: hint to keep or reuse A in the collector buffer.
        ashift: shift the rows of A down by one; M = 128 or 256, not with fill or use.
    """
    ...


@ptx(
    "tcgen05.mma.cta_group::{cta_group}.kind::f8f6f4{.ashift}"
    "{?collector_a:.collector::a::}{collector_a} [{d}], [{a}], "
    "{b_desc}, {idesc}{, disable_lanes}, {scale_d};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory",
    check=no_shift_with_reuse,
    section=SECTION + ": mma",
)
def mma_f8f6f4_ts(
    d: Tmem,
    a: Tmem,
    b_desc: Descriptor100,
    idesc: IdescF8f6f4Ts,
    scale_d: Pred = True,
    disable_lanes: Lanes | None = None,
    *,
    cta_group: CtaGroup = 1,
    collector_a: Collector = "",
    ashift: Flag = False,
) -> None:
    """Start D = A * B + D, 8-, 6- and 4-bit floats, K = 32, A in tensor memory.

    A and B are e4m3, e5m2, e2m3, e3m2 or e2m1, mixed at will; D is float32 or float16.

    Args:
        d: address of D in tensor memory.
        a: address of A in tensor memory, K-major.
        b_desc: descriptor of B in shared memory.
        idesc: IdescF8f6f4Ts descriptor of kind f8f6f4.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        disable_lanes: 4 * cta_group masks of 32 lanes; a set bit leaves its lane of D alone.
        cta_group: 1, or 2 for a CTA pair.
        collector_a: hint to keep or reuse A in the collector buffer.
        ashift: shift the rows of A down by one; M = 128 or 256, not with fill or use.
    """
    ...


@ptx(
    "tcgen05.mma.cta_group::{cta_group}.kind::i8{.ashift}"
    "{?collector_a:.collector::a::}{collector_a} [{d}], [{a}], "
    "{b_desc}, {idesc}{, disable_lanes}, {scale_d};",
    isa=(8, 6),
    arch="sm_100a",
    effects="memory",
    check=no_shift_with_reuse,
    section=SECTION + ": mma",
)
def mma_i8_ts(
    d: Tmem,
    a: Tmem,
    b_desc: Descriptor100,
    idesc: IdescI8Ts,
    scale_d: Pred = True,
    disable_lanes: Lanes | None = None,
    *,
    cta_group: CtaGroup = 1,
    collector_a: Collector = "",
    ashift: Flag = False,
) -> None:
    """Start D = A * B + D, int8 or uint8, K = 32, A in tensor memory.

    A and B are int8 or uint8; D is int32.

    Args:
        d: address of D in tensor memory.
        a: address of A in tensor memory, K-major.
        b_desc: descriptor of B in shared memory.
        idesc: IdescI8Ts descriptor of kind i8.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        disable_lanes: 4 * cta_group masks of 32 lanes; a set bit leaves its lane of D alone.
        cta_group: 1, or 2 for a CTA pair.
        collector_a: hint to keep or reuse A in the collector buffer.
        ashift: shift the rows of A down by one; M = 128 or 256, not with fill or use.
    """
    ...
