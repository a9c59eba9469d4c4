"""Block-scaled tcgen05.mma; imported as ``tcgen05``, whose docstring has the rules."""

from __future__ import annotations

from nbtc.intrinsics.tcgen05_types import (
    SECTION,
    Collector,
    CtaGroup,
    IdescMxf4,
    IdescMxf4nvf4,
    IdescMxf4nvf4Ts,
    IdescMxf4Ts,
    IdescMxf8f6f4,
    IdescMxf8f6f4Ts,
    IdescSpMxf4,
    IdescSpMxf4nvf4,
    IdescSpMxf4nvf4Ts,
    IdescSpMxf4Ts,
    IdescSpMxf8f6f4,
    IdescSpMxf8f6f4Ts,
    VecMxf4,
    VecMxf4nvf4,
    VecMxf8f6f4,
    block_arch,
    block_arch_sparse,
    block_isa,
    nvf4_isa,
)
from nbtc.ptx.kinds import Descriptor100, Pred, Tmem
from nbtc.ptx.spec import ptx

FAMILY = "tcgen05"


@ptx(
    "tcgen05.mma.cta_group::{cta_group}.kind::mxf8f6f4.block_scale{.scale_vec}"
    "{?collector_a:.collector::a::}{collector_a} [{d}], {a_desc}, "
    "{b_desc}, {idesc}, [{sfa}], [{sfb}], {scale_d};",
    isa=block_isa,
    arch=block_arch,
    effects="memory",
    section=SECTION + ": mma",
)
def mma_mxf8f6f4(
    d: Tmem,
    a_desc: Descriptor100,
    b_desc: Descriptor100,
    idesc: IdescMxf8f6f4,
    sfa: Tmem,
    sfb: Tmem,
    scale_d: Pred = True,
    *,
    cta_group: CtaGroup = 1,
    scale_vec: VecMxf8f6f4 = "",
    collector_a: Collector = "",
) -> None:
    """Start D = (A * SFA) * (B * SFB) + D, mxf8f6f4, K = 32.

    A and B are e4m3, e5m2, e2m3, e3m2 or e2m1, mixed at will, with ue8m0 scales, one a 32
    elements; D is float32.

    Args:
        d: address of D in tensor memory.
        a_desc: descriptor of A in shared memory.
        b_desc: descriptor of B in shared memory.
        idesc: IdescMxf8f6f4 descriptor of kind mxf8f6f4.
        sfa: address of the scale factors of A in tensor memory.
        sfb: address of the scale factors of B in tensor memory.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        cta_group: 1, or 2 for a CTA pair.
        scale_vec: one scale a row and instruction (``scale_vec::1X``), or the block size
            (``block32``). ``blockN`` also exists for sm_100f.
        collector_a: hint to keep or reuse A in the collector buffer.
    """
    ...


@ptx(
    "tcgen05.mma.cta_group::{cta_group}.kind::mxf4.block_scale{.scale_vec}"
    "{?collector_a:.collector::a::}{collector_a} [{d}], {a_desc}, "
    "{b_desc}, {idesc}, [{sfa}], [{sfb}], {scale_d};",
    isa=block_isa,
    arch=block_arch,
    effects="memory",
    section=SECTION + ": mma",
)
def mma_mxf4(
    d: Tmem,
    a_desc: Descriptor100,
    b_desc: Descriptor100,
    idesc: IdescMxf4,
    sfa: Tmem,
    sfb: Tmem,
    scale_d: Pred = True,
    *,
    cta_group: CtaGroup = 1,
    scale_vec: VecMxf4 = "",
    collector_a: Collector = "",
) -> None:
    """Start D = (A * SFA) * (B * SFB) + D, mxf4, K = 64.

    A and B are e2m1, with ue8m0 scales, one a 32 elements; D is float32.

    Args:
        d: address of D in tensor memory.
        a_desc: descriptor of A in shared memory.
        b_desc: descriptor of B in shared memory.
        idesc: IdescMxf4 descriptor of kind mxf4.
        sfa: address of the scale factors of A in tensor memory.
        sfb: address of the scale factors of B in tensor memory.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        cta_group: 1, or 2 for a CTA pair.
        scale_vec: two scales a row and instruction (``scale_vec::2X``), or the block size
            (``block32``). ``blockN`` also exists for sm_100f.
        collector_a: hint to keep or reuse A in the collector buffer.
    """
    ...


@ptx(
    "tcgen05.mma.cta_group::{cta_group}.kind::mxf4nvf4.block_scale{.scale_vec}"
    "{?collector_a:.collector::a::}{collector_a} [{d}], {a_desc}, "
    "{b_desc}, {idesc}, [{sfa}], [{sfb}], {scale_d};",
    isa=nvf4_isa,
    arch=block_arch,
    effects="memory",
    section=SECTION + ": mma",
)
def mma_mxf4nvf4(
    d: Tmem,
    a_desc: Descriptor100,
    b_desc: Descriptor100,
    idesc: IdescMxf4nvf4,
    sfa: Tmem,
    sfb: Tmem,
    scale_d: Pred = True,
    *,
    cta_group: CtaGroup = 1,
    scale_vec: VecMxf4nvf4,
    collector_a: Collector = "",
) -> None:
    """Start D = (A * SFA) * (B * SFB) + D, mxf4nvf4, K = 64.

    A and B are e2m1, with ue8m0 or ue4m3 scales, one a 16 or 32 elements; D is float32.

    Args:
        d: address of D in tensor memory.
        a_desc: descriptor of A in shared memory.
        b_desc: descriptor of B in shared memory.
        idesc: IdescMxf4nvf4 descriptor of kind mxf4nvf4.
        sfa: address of the scale factors of A in tensor memory.
        sfb: address of the scale factors of B in tensor memory.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        cta_group: 1, or 2 for a CTA pair.
        scale_vec: scales a row and instruction (``scale_vec::2X``, ``4X``), or the block size.
            ``blockN`` also exists for sm_100f.
        collector_a: hint to keep or reuse A in the collector buffer.
    """
    ...


@ptx(
    "tcgen05.mma.cta_group::{cta_group}.kind::mxf8f6f4.block_scale{.scale_vec}"
    "{?collector_a:.collector::a::}{collector_a} [{d}], [{a}], "
    "{b_desc}, {idesc}, [{sfa}], [{sfb}], {scale_d};",
    isa=block_isa,
    arch=block_arch,
    effects="memory",
    section=SECTION + ": mma",
)
def mma_mxf8f6f4_ts(
    d: Tmem,
    a: Tmem,
    b_desc: Descriptor100,
    idesc: IdescMxf8f6f4Ts,
    sfa: Tmem,
    sfb: Tmem,
    scale_d: Pred = True,
    *,
    cta_group: CtaGroup = 1,
    scale_vec: VecMxf8f6f4 = "",
    collector_a: Collector = "",
) -> None:
    """Start D = (A * SFA) * (B * SFB) + D, mxf8f6f4, K = 32, A in tensor memory.

    A and B are e4m3, e5m2, e2m3, e3m2 or e2m1, mixed at will, with ue8m0 scales, one a 32
    elements; D is float32.

    Args:
        d: address of D in tensor memory.
        a: address of A in tensor memory, K-major.
        b_desc: descriptor of B in shared memory.
        idesc: IdescMxf8f6f4Ts descriptor of kind mxf8f6f4.
        sfa: address of the scale factors of A in tensor memory.
        sfb: address of the scale factors of B in tensor memory.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        cta_group: 1, or 2 for a CTA pair.
        scale_vec: one scale a row and instruction (``scale_vec::1X``), or the block size
            (``block32``). ``blockN`` also exists for sm_100f.
        collector_a: hint to keep or reuse A in the collector buffer.
    """
    ...


@ptx(
    "tcgen05.mma.cta_group::{cta_group}.kind::mxf4.block_scale{.scale_vec}"
    "{?collector_a:.collector::a::}{collector_a} [{d}], [{a}], "
    "{b_desc}, {idesc}, [{sfa}], [{sfb}], {scale_d};",
    isa=block_isa,
    arch=block_arch,
    effects="memory",
    section=SECTION + ": mma",
)
def mma_mxf4_ts(
    d: Tmem,
    a: Tmem,
    b_desc: Descriptor100,
    idesc: IdescMxf4Ts,
    sfa: Tmem,
    sfb: Tmem,
    scale_d: Pred = True,
    *,
    cta_group: CtaGroup = 1,
    scale_vec: VecMxf4 = "",
    collector_a: Collector = "",
) -> None:
    """Start D = (A * SFA) * (B * SFB) + D, mxf4, K = 64, A in tensor memory.

    A and B are e2m1, with ue8m0 scales, one a 32 elements; D is float32.

    Args:
        d: address of D in tensor memory.
        a: address of A in tensor memory, K-major.
        b_desc: descriptor of B in shared memory.
        idesc: IdescMxf4Ts descriptor of kind mxf4.
        sfa: address of the scale factors of A in tensor memory.
        sfb: address of the scale factors of B in tensor memory.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        cta_group: 1, or 2 for a CTA pair.
        scale_vec: two scales a row and instruction (``scale_vec::2X``), or the block size
            (``block32``). ``blockN`` also exists for sm_100f.
        collector_a: hint to keep or reuse A in the collector buffer.
    """
    ...


@ptx(
    "tcgen05.mma.cta_group::{cta_group}.kind::mxf4nvf4.block_scale{.scale_vec}"
    "{?collector_a:.collector::a::}{collector_a} [{d}], [{a}], "
    "{b_desc}, {idesc}, [{sfa}], [{sfb}], {scale_d};",
    isa=nvf4_isa,
    arch=block_arch,
    effects="memory",
    section=SECTION + ": mma",
)
def mma_mxf4nvf4_ts(
    d: Tmem,
    a: Tmem,
    b_desc: Descriptor100,
    idesc: IdescMxf4nvf4Ts,
    sfa: Tmem,
    sfb: Tmem,
    scale_d: Pred = True,
    *,
    cta_group: CtaGroup = 1,
    scale_vec: VecMxf4nvf4,
    collector_a: Collector = "",
) -> None:
    """Start D = (A * SFA) * (B * SFB) + D, mxf4nvf4, K = 64, A in tensor memory.

    A and B are e2m1, with ue8m0 or ue4m3 scales, one a 16 or 32 elements; D is float32.

    Args:
        d: address of D in tensor memory.
        a: address of A in tensor memory, K-major.
        b_desc: descriptor of B in shared memory.
        idesc: IdescMxf4nvf4Ts descriptor of kind mxf4nvf4.
        sfa: address of the scale factors of A in tensor memory.
        sfb: address of the scale factors of B in tensor memory.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        cta_group: 1, or 2 for a CTA pair.
        scale_vec: scales a row and instruction (``scale_vec::2X``, ``4X``), or the block size.
            ``blockN`` also exists for sm_100f.
        collector_a: hint to keep or reuse A in the collector buffer.
    """
    ...


@ptx(
    "tcgen05.mma.sp.cta_group::{cta_group}.kind::mxf8f6f4.block_scale{.scale_vec}"
    "{?collector_a:.collector::a::}{collector_a} [{d}], {a_desc}, "
    "{b_desc}, [{metadata}], {idesc}, [{sfa}], [{sfb}], {scale_d};",
    isa=block_isa,
    arch=block_arch,
    effects="memory",
    section=SECTION + ": mma",
)
def mma_sp_mxf8f6f4(
    d: Tmem,
    a_desc: Descriptor100,
    b_desc: Descriptor100,
    metadata: Tmem,
    idesc: IdescSpMxf8f6f4,
    sfa: Tmem,
    sfb: Tmem,
    scale_d: Pred = True,
    *,
    cta_group: CtaGroup = 1,
    scale_vec: VecMxf8f6f4 = "",
    collector_a: Collector = "",
) -> None:
    """Start D = (A * SFA) * (B * SFB) + D, sparse A, mxf8f6f4, K = 64.

    A and B are e4m3, e5m2, e2m3, e3m2 or e2m1, mixed at will, with ue8m0 scales, one a 32
    elements; D is float32.

    Args:
        d: address of D in tensor memory.
        a_desc: descriptor of A in shared memory.
        b_desc: descriptor of B in shared memory.
        metadata: address of the sparsity metadata in tensor memory.
        idesc: IdescSpMxf8f6f4 descriptor of kind mxf8f6f4.
        sfa: address of the scale factors of A in tensor memory.
        sfb: address of the scale factors of B in tensor memory.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        cta_group: 1, or 2 for a CTA pair.
        scale_vec: one scale a row and instruction (``scale_vec::1X``), or the block size
            (``block32``). ``blockN`` also exists for sm_100f.
        collector_a: hint to keep or reuse A in the collector buffer.
    """
    ...


@ptx(
    "tcgen05.mma.sp.cta_group::{cta_group}.kind::mxf4.block_scale{.scale_vec}"
    "{?collector_a:.collector::a::}{collector_a} [{d}], {a_desc}, "
    "{b_desc}, [{metadata}], {idesc}, [{sfa}], [{sfb}], {scale_d};",
    isa=block_isa,
    arch=block_arch_sparse,
    effects="memory",
    section=SECTION + ": mma",
)
def mma_sp_mxf4(
    d: Tmem,
    a_desc: Descriptor100,
    b_desc: Descriptor100,
    metadata: Tmem,
    idesc: IdescSpMxf4,
    sfa: Tmem,
    sfb: Tmem,
    scale_d: Pred = True,
    *,
    cta_group: CtaGroup = 1,
    scale_vec: VecMxf4 = "",
    collector_a: Collector = "",
) -> None:
    """Start D = (A * SFA) * (B * SFB) + D, sparse A, mxf4, K = 128.

    A and B are e2m1, with ue8m0 scales, one a 32 elements; D is float32.

    Args:
        d: address of D in tensor memory.
        a_desc: descriptor of A in shared memory.
        b_desc: descriptor of B in shared memory.
        metadata: address of the sparsity metadata in tensor memory.
        idesc: IdescSpMxf4 descriptor of kind mxf4.
        sfa: address of the scale factors of A in tensor memory.
        sfb: address of the scale factors of B in tensor memory.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        cta_group: 1, or 2 for a CTA pair.
        scale_vec: two scales a row and instruction (``scale_vec::2X``), or the block size
            (``block32``). ``blockN`` also exists for sm_100f.
        collector_a: hint to keep or reuse A in the collector buffer.
    """
    ...


@ptx(
    "tcgen05.mma.sp.cta_group::{cta_group}.kind::mxf4nvf4.block_scale{.scale_vec}"
    "{?collector_a:.collector::a::}{collector_a} [{d}], {a_desc}, "
    "{b_desc}, [{metadata}], {idesc}, [{sfa}], [{sfb}], {scale_d};",
    isa=nvf4_isa,
    arch=block_arch_sparse,
    effects="memory",
    section=SECTION + ": mma",
)
def mma_sp_mxf4nvf4(
    d: Tmem,
    a_desc: Descriptor100,
    b_desc: Descriptor100,
    metadata: Tmem,
    idesc: IdescSpMxf4nvf4,
    sfa: Tmem,
    sfb: Tmem,
    scale_d: Pred = True,
    *,
    cta_group: CtaGroup = 1,
    scale_vec: VecMxf4nvf4,
    collector_a: Collector = "",
) -> None:
    """Start D = (A * SFA) * (B * SFB) + D, sparse A, mxf4nvf4, K = 128.

    A and B are e2m1, with ue8m0 or ue4m3 scales, one a 16 or 32 elements; D is float32.

    Args:
        d: address of D in tensor memory.
        a_desc: descriptor of A in shared memory.
        b_desc: descriptor of B in shared memory.
        metadata: address of the sparsity metadata in tensor memory.
        idesc: IdescSpMxf4nvf4 descriptor of kind mxf4nvf4.
        sfa: address of the scale factors of A in tensor memory.
        sfb: address of the scale factors of B in tensor memory.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        cta_group: 1, or 2 for a CTA pair.
        scale_vec: scales a row and instruction (``scale_vec::2X``, ``4X``), or the block size.
            ``blockN`` also exists for sm_100f.
        collector_a: hint to keep or reuse A in the collector buffer.
    """
    ...


@ptx(
    "tcgen05.mma.sp.cta_group::{cta_group}.kind::mxf8f6f4.block_scale{.scale_vec}"
    "{?collector_a:.collector::a::}{collector_a} [{d}], [{a}], "
    "{b_desc}, [{metadata}], {idesc}, [{sfa}], [{sfb}], {scale_d};",
    isa=block_isa,
    arch=block_arch,
    effects="memory",
    section=SECTION + ": mma",
)
def mma_sp_mxf8f6f4_ts(
    d: Tmem,
    a: Tmem,
    b_desc: Descriptor100,
    metadata: Tmem,
    idesc: IdescSpMxf8f6f4Ts,
    sfa: Tmem,
    sfb: Tmem,
    scale_d: Pred = True,
    *,
    cta_group: CtaGroup = 1,
    scale_vec: VecMxf8f6f4 = "",
    collector_a: Collector = "",
) -> None:
    """Start D = (A * SFA) * (B * SFB) + D, sparse A, mxf8f6f4, K = 64, A in tensor memory.

    A and B are e4m3, e5m2, e2m3, e3m2 or e2m1, mixed at will, with ue8m0 scales, one a 32
    elements; D is float32.

    Args:
        d: address of D in tensor memory.
        a: address of A in tensor memory, K-major.
        b_desc: descriptor of B in shared memory.
        metadata: address of the sparsity metadata in tensor memory.
        idesc: IdescSpMxf8f6f4Ts descriptor of kind mxf8f6f4.
        sfa: address of the scale factors of A in tensor memory.
        sfb: address of the scale factors of B in tensor memory.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        cta_group: 1, or 2 for a CTA pair.
        scale_vec: one scale a row and instruction (``scale_vec::1X``), or the block size
            (``block32``). ``blockN`` also exists for sm_100f.
        collector_a: hint to keep or reuse A in the collector buffer.
    """
    ...


@ptx(
    "tcgen05.mma.sp.cta_group::{cta_group}.kind::mxf4.block_scale{.scale_vec}"
    "{?collector_a:.collector::a::}{collector_a} [{d}], [{a}], "
    "{b_desc}, [{metadata}], {idesc}, [{sfa}], [{sfb}], {scale_d};",
    isa=block_isa,
    arch=block_arch_sparse,
    effects="memory",
    section=SECTION + ": mma",
)
def mma_sp_mxf4_ts(
    d: Tmem,
    a: Tmem,
    b_desc: Descriptor100,
    metadata: Tmem,
    idesc: IdescSpMxf4Ts,
    sfa: Tmem,
    sfb: Tmem,
    scale_d: Pred = True,
    *,
    cta_group: CtaGroup = 1,
    scale_vec: VecMxf4 = "",
    collector_a: Collector = "",
) -> None:
    """Start D = (A * SFA) * (B * SFB) + D, sparse A, mxf4, K = 128, A in tensor memory.

    A and B are e2m1, with ue8m0 scales, one a 32 elements; D is float32.

    Args:
        d: address of D in tensor memory.
        a: address of A in tensor memory, K-major.
        b_desc: descriptor of B in shared memory.
        metadata: address of the sparsity metadata in tensor memory.
        idesc: IdescSpMxf4Ts descriptor of kind mxf4.
        sfa: address of the scale factors of A in tensor memory.
        sfb: address of the scale factors of B in tensor memory.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        cta_group: 1, or 2 for a CTA pair.
        scale_vec: two scales a row and instruction (``scale_vec::2X``), or the block size
            (``block32``). ``blockN`` also exists for sm_100f.
        collector_a: hint to keep or reuse A in the collector buffer.
    """
    ...


@ptx(
    "tcgen05.mma.sp.cta_group::{cta_group}.kind::mxf4nvf4.block_scale{.scale_vec}"
    "{?collector_a:.collector::a::}{collector_a} [{d}], [{a}], "
    "{b_desc}, [{metadata}], {idesc}, [{sfa}], [{sfb}], {scale_d};",
    isa=nvf4_isa,
    arch=block_arch_sparse,
    effects="memory",
    section=SECTION + ": mma",
)
def mma_sp_mxf4nvf4_ts(
    d: Tmem,
    a: Tmem,
    b_desc: Descriptor100,
    metadata: Tmem,
    idesc: IdescSpMxf4nvf4Ts,
    sfa: Tmem,
    sfb: Tmem,
    scale_d: Pred = True,
    *,
    cta_group: CtaGroup = 1,
    scale_vec: VecMxf4nvf4,
    collector_a: Collector = "",
) -> None:
    """Start D = (A * SFA) * (B * SFB) + D, sparse A, mxf4nvf4, K = 128, A in tensor memory.

    A and B are e2m1, with ue8m0 or ue4m3 scales, one a 16 or 32 elements; D is float32.

    Args:
        d: address of D in tensor memory.
        a: address of A in tensor memory, K-major.
        b_desc: descriptor of B in shared memory.
        metadata: address of the sparsity metadata in tensor memory.
        idesc: IdescSpMxf4nvf4Ts descriptor of kind mxf4nvf4.
        sfa: address of the scale factors of A in tensor memory.
        sfb: address of the scale factors of B in tensor memory.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        cta_group: 1, or 2 for a CTA pair.
        scale_vec: scales a row and instruction (``scale_vec::2X``, ``4X``), or the block size.
            ``blockN`` also exists for sm_100f.
        collector_a: hint to keep or reuse A in the collector buffer.
    """
    ...
