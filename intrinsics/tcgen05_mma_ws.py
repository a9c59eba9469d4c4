"""Weight-stationary tcgen05.mma; imported as ``tcgen05``, whose docstring has the rules."""

from __future__ import annotations

from nbtc.arch import TCGEN05
from nbtc.intrinsics.tcgen05_types import (
    SECTION,
    CollectorB,
    IdescWsF8f6f4,
    IdescWsF8f6f4Ts,
    IdescWsF16,
    IdescWsF16Ts,
    IdescWsI8,
    IdescWsI8Ts,
    IdescWsSpF8f6f4,
    IdescWsSpF8f6f4Ts,
    IdescWsSpF16,
    IdescWsSpF16Ts,
    IdescWsSpI8,
    IdescWsSpI8Ts,
    IdescWsSpTf32,
    IdescWsSpTf32Ts,
    IdescWsTf32,
    IdescWsTf32Ts,
)
from nbtc.ptx.kinds import U64, Descriptor100, Pred, Tmem
from nbtc.ptx.spec import ptx

FAMILY = "tcgen05"


@ptx(
    "tcgen05.mma.ws.cta_group::1.kind::f16{?collector_b:.collector::}{collector_b} "
    "[{d}], {a_desc}, {b_desc}, {idesc}, {scale_d}{, zero_columns};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory",
    section=SECTION + ": mma",
)
def mma_ws_f16(
    d: Tmem,
    a_desc: Descriptor100,
    b_desc: Descriptor100,
    idesc: IdescWsF16,
    scale_d: Pred = True,
    zero_columns: U64 | None = None,
    *,
    collector_b: CollectorB = "",
) -> None:
    """Start D = A * B + D with B stationary, f16, K = 16.

    A and B are f16 or bf16; D is float32, or float16 from float16 operands.

    Args:
        d: address of D in tensor memory.
        a_desc: descriptor of A in shared memory.
        b_desc: descriptor of B in shared memory.
        idesc: IdescWsF16 descriptor of kind f16.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        zero_columns: zero-column mask descriptor: columns of B taken as 0.
        collector_b: buffer b0..b3 and hint, ``"b0::fill"``.
    """
    ...


@ptx(
    "tcgen05.mma.ws.cta_group::1.kind::tf32{?collector_b:.collector::}{collector_b} "
    "[{d}], {a_desc}, {b_desc}, {idesc}, {scale_d}{, zero_columns};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory",
    section=SECTION + ": mma",
)
def mma_ws_tf32(
    d: Tmem,
    a_desc: Descriptor100,
    b_desc: Descriptor100,
    idesc: IdescWsTf32,
    scale_d: Pred = True,
    zero_columns: U64 | None = None,
    *,
    collector_b: CollectorB = "",
) -> None:
    """Start D = A * B + D with B stationary, tf32, K = 8.

    A and B are tf32; D is float32.

    Args:
        d: address of D in tensor memory.
        a_desc: descriptor of A in shared memory.
        b_desc: descriptor of B in shared memory.
        idesc: IdescWsTf32 descriptor of kind tf32.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        zero_columns: zero-column mask descriptor: columns of B taken as 0.
        collector_b: buffer b0..b3 and hint, ``"b0::fill"``.
    """
    ...


@ptx(
    "tcgen05.mma.ws.cta_group::1.kind::f8f6f4{?collector_b:.collector::}{collector_b} "
    "[{d}], {a_desc}, {b_desc}, {idesc}, {scale_d}{, zero_columns};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory",
    section=SECTION + ": mma",
)
def mma_ws_f8f6f4(
    d: Tmem,
    a_desc: Descriptor100,
    b_desc: Descriptor100,
    idesc: IdescWsF8f6f4,
    scale_d: Pred = True,
    zero_columns: U64 | None = None,
    *,
    collector_b: CollectorB = "",
) -> None:
    """Start D = A * B + D with B stationary, f8f6f4, K = 32.

    A and B are e4m3, e5m2, e2m3, e3m2 or e2m1, mixed at will; D is float32 or float16.

    Args:
        d: address of D in tensor memory.
        a_desc: descriptor of A in shared memory.
        b_desc: descriptor of B in shared memory.
        idesc: IdescWsF8f6f4 descriptor of kind f8f6f4.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        zero_columns: zero-column mask descriptor: columns of B taken as 0.
        collector_b: buffer b0..b3 and hint, ``"b0::fill"``.
    """
    ...


@ptx(
    "tcgen05.mma.ws.cta_group::1.kind::i8{?collector_b:.collector::}{collector_b} "
    "[{d}], {a_desc}, {b_desc}, {idesc}, {scale_d}{, zero_columns};",
    isa=(8, 6),
    arch="sm_100a",
    effects="memory",
    section=SECTION + ": mma",
)
def mma_ws_i8(
    d: Tmem,
    a_desc: Descriptor100,
    b_desc: Descriptor100,
    idesc: IdescWsI8,
    scale_d: Pred = True,
    zero_columns: U64 | None = None,
    *,
    collector_b: CollectorB = "",
) -> None:
    """Start D = A * B + D with B stationary, i8, K = 32.

    A and B are int8 or uint8; D is int32.

    Args:
        d: address of D in tensor memory.
        a_desc: descriptor of A in shared memory.
        b_desc: descriptor of B in shared memory.
        idesc: IdescWsI8 descriptor of kind i8.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        zero_columns: zero-column mask descriptor: columns of B taken as 0.
        collector_b: buffer b0..b3 and hint, ``"b0::fill"``.
    """
    ...


@ptx(
    "tcgen05.mma.ws.cta_group::1.kind::f16{?collector_b:.collector::}{collector_b} "
    "[{d}], [{a}], {b_desc}, {idesc}, {scale_d}{, zero_columns};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory",
    section=SECTION + ": mma",
)
def mma_ws_f16_ts(
    d: Tmem,
    a: Tmem,
    b_desc: Descriptor100,
    idesc: IdescWsF16Ts,
    scale_d: Pred = True,
    zero_columns: U64 | None = None,
    *,
    collector_b: CollectorB = "",
) -> None:
    """Start D = A * B + D with B stationary, f16, K = 16, A in tensor memory.

    A and B are f16 or bf16; D is float32, or float16 from float16 operands.

    Args:
        d: address of D in tensor memory.
        a: address of A in tensor memory, K-major.
        b_desc: descriptor of B in shared memory.
        idesc: IdescWsF16Ts descriptor of kind f16.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        zero_columns: zero-column mask descriptor: columns of B taken as 0.
        collector_b: buffer b0..b3 and hint, ``"b0::fill"``.
    """
    ...


@ptx(
    "tcgen05.mma.ws.cta_group::1.kind::tf32{?collector_b:.collector::}{collector_b} "
    "[{d}], [{a}], {b_desc}, {idesc}, {scale_d}{, zero_columns};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory",
    section=SECTION + ": mma",
)
def mma_ws_tf32_ts(
    d: Tmem,
    a: Tmem,
    b_desc: Descriptor100,
    idesc: IdescWsTf32Ts,
    scale_d: Pred = True,
    zero_columns: U64 | None = None,
    *,
    collector_b: CollectorB = "",
) -> None:
    """Start D = A * B + D with B stationary, tf32, K = 8, A in tensor memory.

    A and B are tf32; D is float32.

    Args:
        d: address of D in tensor memory.
        a: address of A in tensor memory, K-major.
        b_desc: descriptor of B in shared memory.
        idesc: IdescWsTf32Ts descriptor of kind tf32.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        zero_columns: zero-column mask descriptor: columns of B taken as 0.
        collector_b: buffer b0..b3 and hint, ``"b0::fill"``.
    """
    ...


@ptx(
    "tcgen05.mma.ws.cta_group::1.kind::f8f6f4{?collector_b:.collector::}{collector_b} "
    "[{d}], [{a}], {b_desc}, {idesc}, {scale_d}{, zero_columns};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory",
    section=SECTION + ": mma",
)
def mma_ws_f8f6f4_ts(
    d: Tmem,
    a: Tmem,
    b_desc: Descriptor100,
    idesc: IdescWsF8f6f4Ts,
    scale_d: Pred = True,
    zero_columns: U64 | None = None,
    *,
    collector_b: CollectorB = "",
) -> None:
    """Start D = A * B + D with B stationary, f8f6f4, K = 32, A in tensor memory.

    A and B are e4m3, e5m2, e2m3, e3m2 or e2m1, mixed at will; D is float32 or float16.

    Args:
        d: address of D in tensor memory.
        a: address of A in tensor memory, K-major.
        b_desc: descriptor of B in shared memory.
        idesc: IdescWsF8f6f4Ts descriptor of kind f8f6f4.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        zero_columns: zero-column mask descriptor: columns of B taken as 0.
        collector_b: buffer b0..b3 and hint, ``"b0::fill"``.
    """
    ...


@ptx(
    "tcgen05.mma.ws.cta_group::1.kind::i8{?collector_b:.collector::}{collector_b} "
    "[{d}], [{a}], {b_desc}, {idesc}, {scale_d}{, zero_columns};",
    isa=(8, 6),
    arch="sm_100a",
    effects="memory",
    section=SECTION + ": mma",
)
def mma_ws_i8_ts(
    d: Tmem,
    a: Tmem,
    b_desc: Descriptor100,
    idesc: IdescWsI8Ts,
    scale_d: Pred = True,
    zero_columns: U64 | None = None,
    *,
    collector_b: CollectorB = "",
) -> None:
    """Start D = A * B + D with B stationary, i8, K = 32, A in tensor memory.

    A and B are int8 or uint8; D is int32.

    Args:
        d: address of D in tensor memory.
        a: address of A in tensor memory, K-major.
        b_desc: descriptor of B in shared memory.
        idesc: IdescWsI8Ts descriptor of kind i8.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        zero_columns: zero-column mask descriptor: columns of B taken as 0.
        collector_b: buffer b0..b3 and hint, ``"b0::fill"``.
    """
    ...


@ptx(
    "tcgen05.mma.ws.sp.cta_group::1.kind::f16{?collector_b:.collector::}{collector_b} "
    "[{d}], {a_desc}, {b_desc}, [{metadata}], {idesc}, {scale_d}{, zero_columns};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory",
    section=SECTION + ": mma",
)
def mma_ws_sp_f16(
    d: Tmem,
    a_desc: Descriptor100,
    b_desc: Descriptor100,
    metadata: Tmem,
    idesc: IdescWsSpF16,
    scale_d: Pred = True,
    zero_columns: U64 | None = None,
    *,
    collector_b: CollectorB = "",
) -> None:
    """Start D = A * B + D with B stationary, sparse A, f16, K = 32.

    A and B are f16 or bf16; D is float32, or float16 from float16 operands.

    Args:
        d: address of D in tensor memory.
        a_desc: descriptor of A in shared memory.
        b_desc: descriptor of B in shared memory.
        metadata: address of the sparsity metadata in tensor memory.
        idesc: IdescWsSpF16 descriptor of kind f16.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        zero_columns: zero-column mask descriptor: columns of B taken as 0.
        collector_b: buffer b0..b3 and hint, ``"b0::fill"``.
    """
    ...


@ptx(
    "tcgen05.mma.ws.sp.cta_group::1.kind::tf32{?collector_b:.collector::}{collector_b} "
    "[{d}], {a_desc}, {b_desc}, [{metadata}], {idesc}, {scale_d}{, zero_columns};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory",
    section=SECTION + ": mma",
)
def mma_ws_sp_tf32(
    d: Tmem,
    a_desc: Descriptor100,
    b_desc: Descriptor100,
    metadata: Tmem,
    idesc: IdescWsSpTf32,
    scale_d: Pred = True,
    zero_columns: U64 | None = None,
    *,
    collector_b: CollectorB = "",
) -> None:
    """Start D = A * B + D with B stationary, sparse A, tf32, K = 16.

    A and B are tf32; D is float32.

    Args:
        d: address of D in tensor memory.
        a_desc: descriptor of A in shared memory.
        b_desc: descriptor of B in shared memory.
        metadata: address of the sparsity metadata in tensor memory.
        idesc: IdescWsSpTf32 descriptor of kind tf32.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        zero_columns: zero-column mask descriptor: columns of B taken as 0.
        collector_b: buffer b0..b3 and hint, ``"b0::fill"``.
    """
    ...


@ptx(
    "tcgen05.mma.ws.sp.cta_group::1.kind::f8f6f4{?collector_b:.collector::}{collector_b} "
    "[{d}], {a_desc}, {b_desc}, [{metadata}], {idesc}, {scale_d}{, zero_columns};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory",
    section=SECTION + ": mma",
)
def mma_ws_sp_f8f6f4(
    d: Tmem,
    a_desc: Descriptor100,
    b_desc: Descriptor100,
    metadata: Tmem,
    idesc: IdescWsSpF8f6f4,
    scale_d: Pred = True,
    zero_columns: U64 | None = None,
    *,
    collector_b: CollectorB = "",
) -> None:
    """Start D = A * B + D with B stationary, sparse A, f8f6f4, K = 64.

    A and B are e4m3, e5m2, e2m3, e3m2 or e2m1, mixed at will; D is float32 or float16.

    Args:
        d: address of D in tensor memory.
        a_desc: descriptor of A in shared memory.
        b_desc: descriptor of B in shared memory.
        metadata: address of the sparsity metadata in tensor memory.
        idesc: IdescWsSpF8f6f4 descriptor of kind f8f6f4.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        zero_columns: zero-column mask descriptor: columns of B taken as 0.
        collector_b: buffer b0..b3 and hint, ``"b0::fill"``.
    """
    ...


@ptx(
    "tcgen05.mma.ws.sp.cta_group::1.kind::i8{?collector_b:.collector::}{collector_b} "
    "[{d}], {a_desc}, {b_desc}, [{metadata}], {idesc}, {scale_d}{, zero_columns};",
    isa=(8, 6),
    arch="sm_100a",
    effects="memory",
    section=SECTION + ": mma",
)
def mma_ws_sp_i8(
    d: Tmem,
    a_desc: Descriptor100,
    b_desc: Descriptor100,
    metadata: Tmem,
    idesc: IdescWsSpI8,
    scale_d: Pred = True,
    zero_columns: U64 | None = None,
    *,
    collector_b: CollectorB = "",
) -> None:
    """Start D = A * B + D with B stationary, sparse A, i8, K = 64.

    A and B are int8 or uint8; D is int32.

    Args:
        d: address of D in tensor memory.
        a_desc: descriptor of A in shared memory.
        b_desc: descriptor of B in shared memory.
        metadata: address of the sparsity metadata in tensor memory.
        idesc: IdescWsSpI8 descriptor of kind i8.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        zero_columns: zero-column mask descriptor: columns of B taken as 0.
        collector_b: buffer b0..b3 and hint, ``"b0::fill"``.
    """
    ...


@ptx(
    "tcgen05.mma.ws.sp.cta_group::1.kind::f16{?collector_b:.collector::}{collector_b} "
    "[{d}], [{a}], {b_desc}, [{metadata}], {idesc}, {scale_d}{, zero_columns};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory",
    section=SECTION + ": mma",
)
def mma_ws_sp_f16_ts(
    d: Tmem,
    a: Tmem,
    b_desc: Descriptor100,
    metadata: Tmem,
    idesc: IdescWsSpF16Ts,
    scale_d: Pred = True,
    zero_columns: U64 | None = None,
    *,
    collector_b: CollectorB = "",
) -> None:
    """Start D = A * B + D with B stationary, sparse A, f16, K = 32, A in tensor memory.

    A and B are f16 or bf16; D is float32, or float16 from float16 operands.

    Args:
        d: address of D in tensor memory.
        a: address of A in tensor memory, K-major.
        b_desc: descriptor of B in shared memory.
        metadata: address of the sparsity metadata in tensor memory.
        idesc: IdescWsSpF16Ts descriptor of kind f16.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        zero_columns: zero-column mask descriptor: columns of B taken as 0.
        collector_b: buffer b0..b3 and hint, ``"b0::fill"``.
    """
    ...


@ptx(
    "tcgen05.mma.ws.sp.cta_group::1.kind::tf32{?collector_b:.collector::}{collector_b} "
    "[{d}], [{a}], {b_desc}, [{metadata}], {idesc}, {scale_d}{, zero_columns};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory",
    section=SECTION + ": mma",
)
def mma_ws_sp_tf32_ts(
    d: Tmem,
    a: Tmem,
    b_desc: Descriptor100,
    metadata: Tmem,
    idesc: IdescWsSpTf32Ts,
    scale_d: Pred = True,
    zero_columns: U64 | None = None,
    *,
    collector_b: CollectorB = "",
) -> None:
    """Start D = A * B + D with B stationary, sparse A, tf32, K = 16, A in tensor memory.

    A and B are tf32; D is float32.

    Args:
        d: address of D in tensor memory.
        a: address of A in tensor memory, K-major.
        b_desc: descriptor of B in shared memory.
        metadata: address of the sparsity metadata in tensor memory.
        idesc: IdescWsSpTf32Ts descriptor of kind tf32.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        zero_columns: zero-column mask descriptor: columns of B taken as 0.
        collector_b: buffer b0..b3 and hint, ``"b0::fill"``.
    """
    ...


@ptx(
    "tcgen05.mma.ws.sp.cta_group::1.kind::f8f6f4{?collector_b:.collector::}{collector_b} "
    "[{d}], [{a}], {b_desc}, [{metadata}], {idesc}, {scale_d}{, zero_columns};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory",
    section=SECTION + ": mma",
)
def mma_ws_sp_f8f6f4_ts(
    d: Tmem,
    a: Tmem,
    b_desc: Descriptor100,
    metadata: Tmem,
    idesc: IdescWsSpF8f6f4Ts,
    scale_d: Pred = True,
    zero_columns: U64 | None = None,
    *,
    collector_b: CollectorB = "",
) -> None:
    """Start D = A * B + D with B stationary, sparse A, f8f6f4, K = 64, A in tensor memory.

    A and B are e4m3, e5m2, e2m3, e3m2 or e2m1, mixed at will; D is float32 or float16.

    Args:
        d: address of D in tensor memory.
        a: address of A in tensor memory, K-major.
        b_desc: descriptor of B in shared memory.
        metadata: address of the sparsity metadata in tensor memory.
        idesc: IdescWsSpF8f6f4Ts descriptor of kind f8f6f4.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        zero_columns: zero-column mask descriptor: columns of B taken as 0.
        collector_b: buffer b0..b3 and hint, ``"b0::fill"``.
    """
    ...


@ptx(
    "tcgen05.mma.ws.sp.cta_group::1.kind::i8{?collector_b:.collector::}{collector_b} "
    "[{d}], [{a}], {b_desc}, [{metadata}], {idesc}, {scale_d}{, zero_columns};",
    isa=(8, 6),
    arch="sm_100a",
    effects="memory",
    section=SECTION + ": mma",
)
def mma_ws_sp_i8_ts(
    d: Tmem,
    a: Tmem,
    b_desc: Descriptor100,
    metadata: Tmem,
    idesc: IdescWsSpI8Ts,
    scale_d: Pred = True,
    zero_columns: U64 | None = None,
    *,
    collector_b: CollectorB = "",
) -> None:
    """Start D = A * B + D with B stationary, sparse A, i8, K = 64, A in tensor memory.

    A and B are int8 or uint8; D is int32.

    Args:
        d: address of D in tensor memory.
        a: address of A in tensor memory, K-major.
        b_desc: descriptor of B in shared memory.
        metadata: address of the sparsity metadata in tensor memory.
        idesc: IdescWsSpI8Ts descriptor of kind i8.
        scale_d: False computes D = A * B, whatever D held; a boolean or a literal.
        zero_columns: zero-column mask descriptor: columns of B taken as 0.
        collector_b: buffer b0..b3 and hint, ``"b0::fill"``.
    """
    ...
