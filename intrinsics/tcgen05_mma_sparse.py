"""tcgen05.mma with a sparse A; imported as ``tcgen05``, whose docstring has the rules."""

from __future__ import annotations

from nbtc.arch import TCGEN05
from nbtc.intrinsics.tcgen05_types import (
    SECTION,
    Collector,
    CtaGroup,
    Flag,
    IdescSpF8f6f4,
    IdescSpF8f6f4Ts,
    IdescSpF16,
    IdescSpF16Ts,
    IdescSpI8,
    IdescSpI8Ts,
    IdescSpTf32,
    IdescSpTf32Ts,
    Lanes,
    ScaleInputD,
    no_shift_with_reuse,
)
from nbtc.ptx.kinds import Descriptor100, Pred, Tmem
from nbtc.ptx.spec import ptx

FAMILY = "tcgen05"


@ptx(
    "tcgen05.mma.sp.cta_group::{cta_group}.kind::f16"
    "{?collector_a:.collector::a::}{collector_a} [{d}], {a_desc}, "
    "{b_desc}, [{metadata}], {idesc}{, disable_lanes}, {scale_d}{, scale_input_d};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory",
    section=SECTION + ": mma",
)
def mma_sp_f16(
    d: Tmem,
    a_desc: Descriptor100,
    b_desc: Descriptor100,
    metadata: Tmem,
    idesc: IdescSpF16,
    scale_d: Pred = True,
    disable_lanes: Lanes | None = None,
    *,
    cta_group: CtaGroup = 1,
    scale_input_d: ScaleInputD = 0,
    collector_a: Collector = "",
) -> None:
    """Start D = A * B + D, sparse A, f16 or bf16, K = 32.

    A and B are f16 or bf16; D is float32, or float16 from float16 operands.

    Args:
        d: address of D in tensor memory.
        a_desc: descriptor of A in shared memory.
        b_desc: descriptor of B in shared memory.
        metadata: address of the sparsity metadata in tensor memory.
        idesc: IdescSpF16 descriptor of kind f16.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        disable_lanes: 4 * cta_group masks of 32 lanes; a set bit leaves its lane of D alone.
        cta_group: 1, or 2 for a CTA pair.
        scale_input_d: D is divided by 2 ** scale_input_d before the addition.
        collector_a: hint to keep or reuse A in the collector buffer.
    """
    ...


@ptx(
    "tcgen05.mma.sp.cta_group::{cta_group}.kind::tf32"
    "{?collector_a:.collector::a::}{collector_a} [{d}], {a_desc}, "
    "{b_desc}, [{metadata}], {idesc}{, disable_lanes}, {scale_d}{, scale_input_d};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory",
    section=SECTION + ": mma",
)
def mma_sp_tf32(
    d: Tmem,
    a_desc: Descriptor100,
    b_desc: Descriptor100,
    metadata: Tmem,
    idesc: IdescSpTf32,
    scale_d: Pred = True,
    disable_lanes: Lanes | None = None,
    *,
    cta_group: CtaGroup = 1,
    scale_input_d: ScaleInputD = 0,
    collector_a: Collector = "",
) -> None:
    """Start D = A * B + D, sparse A, tf32, K = 16.

    A and B are tf32; D is float32.

    Args:
        d: address of D in tensor memory.
        a_desc: descriptor of A in shared memory.
        b_desc: descriptor of B in shared memory.
        metadata: address of the sparsity metadata in tensor memory.
        idesc: IdescSpTf32 descriptor of kind tf32.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        disable_lanes: 4 * cta_group masks of 32 lanes; a set bit leaves its lane of D alone.
        cta_group: 1, or 2 for a CTA pair.
        scale_input_d: D is divided by 2 ** scale_input_d before the addition.
        collector_a: hint to keep or reuse A in the collector buffer.
    """
    ...


@ptx(
    "tcgen05.mma.sp.cta_group::{cta_group}.kind::f8f6f4"
    "{?collector_a:.collector::a::}{collector_a} [{d}], {a_desc}, "
    "{b_desc}, [{metadata}], {idesc}{, disable_lanes}, {scale_d};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory",
    section=SECTION + ": mma",
)
def mma_sp_f8f6f4(
    d: Tmem,
    a_desc: Descriptor100,
    b_desc: Descriptor100,
    metadata: Tmem,
    idesc: IdescSpF8f6f4,
    scale_d: Pred = True,
    disable_lanes: Lanes | None = None,
    *,
    cta_group: CtaGroup = 1,
    collector_a: Collector = "",
) -> None:
    """Start D = A * B + D, sparse A, 8-, 6- and 4-bit floats, K = 64.

    A and B are e4m3, e5m2, e2m3, e3m2 or e2m1, mixed at will; D is float32 or float16.

    Args:
        d: address of D in tensor memory.
        a_desc: descriptor of A in shared memory.
        b_desc: descriptor of B in shared memory.
        metadata: address of the sparsity metadata in tensor memory.
        idesc: IdescSpF8f6f4 descriptor of kind f8f6f4.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        disable_lanes: 4 * cta_group masks of 32 lanes; a set bit leaves its lane of D alone.
        cta_group: 1, or 2 for a CTA pair.
        collector_a: hint to keep or reuse A in the collector buffer.
    """
    ...


@ptx(
    "tcgen05.mma.sp.cta_group::{cta_group}.kind::i8"
    "{?collector_a:.collector::a::}{collector_a} [{d}], {a_desc}, "
    "{b_desc}, [{metadata}], {idesc}{, disable_lanes}, {scale_d};",
    isa=(8, 6),
    arch="sm_100a",
    effects="memory",
    section=SECTION + ": mma",
)
def mma_sp_i8(
    d: Tmem,
    a_desc: Descriptor100,
    b_desc: Descriptor100,
    metadata: Tmem,
    idesc: IdescSpI8,
    scale_d: Pred = True,
    disable_lanes: Lanes | None = None,
    *,
    cta_group: CtaGroup = 1,
    collector_a: Collector = "",
) -> None:
    """Start D = A * B + D, sparse A, int8 or uint8, K = 64.

    A and B are int8 or uint8; D is int32.

    Args:
        d: address of D in tensor memory.
        a_desc: descriptor of A in shared memory.
        b_desc: descriptor of B in shared memory.
        metadata: address of the sparsity metadata in tensor memory.
        idesc: IdescSpI8 descriptor of kind i8.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        disable_lanes: 4 * cta_group masks of 32 lanes; a set bit leaves its lane of D alone.
        cta_group: 1, or 2 for a CTA pair.
        collector_a: hint to keep or reuse A in the collector buffer.
    """
    ...


@ptx(
    "tcgen05.mma.sp.cta_group::{cta_group}.kind::f16{.ashift}"
    "{?collector_a:.collector::a::}{collector_a} [{d}], [{a}], "
    "{b_desc}, [{metadata}], {idesc}{, disable_lanes}, {scale_d}{, scale_input_d};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory",
    check=no_shift_with_reuse,
    section=SECTION + ": mma",
)
def mma_sp_f16_ts(
    d: Tmem,
    a: Tmem,
    b_desc: Descriptor100,
    metadata: Tmem,
    idesc: IdescSpF16Ts,
    scale_d: Pred = True,
    disable_lanes: Lanes | None = None,
    *,
    cta_group: CtaGroup = 1,
    scale_input_d: ScaleInputD = 0,
    collector_a: Collector = "",
    ashift: Flag = False,
) -> None:
    """Start D = A * B + D, sparse A, f16 or bf16, K = 32, A in tensor memory.

    A and B are f16 or bf16; D is float32, or float16 from float16 operands.

    Args:
        d: address of D in tensor memory.
        a: address of A in tensor memory, K-major.
        b_desc: descriptor of B in shared memory.
        metadata: address of the sparsity metadata in tensor memory.
        idesc: IdescSpF16Ts descriptor of kind f16.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        disable_lanes: 4 * cta_group masks of 32 lanes; a set bit leaves its lane of D alone.
        cta_group: 1, or 2 for a CTA pair.
        scale_input_d: D is divided by 2 ** scale_input_d before the addition.
        collector_a: hint to keep or reuse A in the collector buffer.
        ashift: shift the rows of A down by one; M = 128 or 256, not with fill or use.
    """
    ...


@ptx(
    "tcgen05.mma.sp.cta_group::{cta_group}.kind::tf32{.ashift}"
    "{?collector_a:.collector::a::}{collector_a} [{d}], [{a}], "
    "{b_desc}, [{metadata}], {idesc}{, disable_lanes}, {scale_d}{, scale_input_d};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory",
    check=no_shift_with_reuse,
    section=SECTION + ": mma",
)
def mma_sp_tf32_ts(
    d: Tmem,
    a: Tmem,
    b_desc: Descriptor100,
    metadata: Tmem,
    idesc: IdescSpTf32Ts,
    scale_d: Pred = True,
    disable_lanes: Lanes | None = None,
    *,
    cta_group: CtaGroup = 1,
    scale_input_d: ScaleInputD = 0,
    collector_a: Collector = "",
    ashift: Flag = False,
) -> None:
    """Start D = A * B + D, sparse A, tf32, K = 16, A in tensor memory.

    A and B are tf32; D is float32.

    Args:
        d: address of D in tensor memory.
        a: address of A in tensor memory, K-major.
        b_desc: descriptor of B in shared memory.
        metadata: address of the sparsity metadata in tensor memory.
        idesc: IdescSpTf32Ts descriptor of kind tf32.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        disable_lanes: 4 * cta_group masks of 32 lanes; a set bit leaves its lane of D alone.
        cta_group: 1, or 2 for a CTA pair.
        scale_input_d: D is divided by 2 ** scale_input_d before the addition.
        collector_a: hint to keep or reuse A in the collector buffer.
        ashift: shift the rows of A down by one; M = 128 or 256, not with fill or use.
    """
    ...


@ptx(
    "tcgen05.mma.sp.cta_group::{cta_group}.kind::f8f6f4{.ashift}"
    "{?collector_a:.collector::a::}{collector_a} [{d}], [{a}], "
    "{b_desc}, [{metadata}], {idesc}{, disable_lanes}, {scale_d};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory",
    check=no_shift_with_reuse,
    section=SECTION + ": mma",
)
def mma_sp_f8f6f4_ts(
    d: Tmem,
    a: Tmem,
    b_desc: Descriptor100,
    metadata: Tmem,
    idesc: IdescSpF8f6f4Ts,
    scale_d: Pred = True,
    disable_lanes: Lanes | None = None,
    *,
    cta_group: CtaGroup = 1,
    collector_a: Collector = "",
    ashift: Flag = False,
) -> None:
    """Start D = A * B + D, sparse A, 8-, 6- and 4-bit floats, K = 64, A in tensor memory.

    A and B are e4m3, e5m2, e2m3, e3m2 or e2m1, mixed at will; D is float32 or float16.

    Args:
        d: address of D in tensor memory.
        a: address of A in tensor memory, K-major.
        b_desc: descriptor of B in shared memory.
        metadata: address of the sparsity metadata in tensor memory.
        idesc: IdescSpF8f6f4Ts descriptor of kind f8f6f4.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        disable_lanes: 4 * cta_group masks of 32 lanes; a set bit leaves its lane of D alone.
        cta_group: 1, or 2 for a CTA pair.
        collector_a: hint to keep or reuse A in the collector buffer.
        ashift: shift the rows of A down by one; M = 128 or 256, not with fill or use.
    """
    ...


@ptx(
    "tcgen05.mma.sp.cta_group::{cta_group}.kind::i8{.ashift}"
    "{?collector_a:.collector::a::}{collector_a} [{d}], [{a}], "
    "{b_desc}, [{metadata}], {idesc}{, disable_lanes}, {scale_d};",
    isa=(8, 6),
    arch="sm_100a",
    effects="memory",
    check=no_shift_with_reuse,
    section=SECTION + ": mma",
)
def mma_sp_i8_ts(
    d: Tmem,
    a: Tmem,
    b_desc: Descriptor100,
    metadata: Tmem,
    idesc: IdescSpI8Ts,
    scale_d: Pred = True,
    disable_lanes: Lanes | None = None,
    *,
    cta_group: CtaGroup = 1,
    collector_a: Collector = "",
    ashift: Flag = False,
) -> None:
    """Start D = A * B + D, sparse A, int8 or uint8, K = 64, A in tensor memory.

    A and B are int8 or uint8; D is int32.

    Args:
        d: address of D in tensor memory.
        a: address of A in tensor memory, K-major.
        b_desc: descriptor of B in shared memory.
        metadata: address of the sparsity metadata in tensor memory.
        idesc: IdescSpI8Ts descriptor of kind i8.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        disable_lanes: 4 * cta_group masks of 32 lanes; a set bit leaves its lane of D alone.
        cta_group: 1, or 2 for a CTA pair.
        collector_a: hint to keep or reuse A in the collector buffer.
        ashift: shift the rows of A down by one; M = 128 or 256, not with fill or use.
    """
    ...
