"""tma: asynchronous copies of boxes of a tensor between global and shared memory.

A tensor map (``nbtc.TensorMap``, passed to the kernel by value) describes a tensor of 1 to 5
dimensions and the shape of its box. One thread issues a copy by giving the coordinates of the
box's first element, **innermost dimension first**, in elements; the hardware computes addresses,
swizzles, fills out-of-bounds elements on loads and drops them on stores.

Loads signal an mbarrier with the bytes of the whole box, also where it is out of bounds::

    mbarrier.arrive_expect_tx(full, box_bytes)
    tma.load(tile, tensor_map, (k, m), full)

Stores and reductions belong to bulk groups of the issuing thread; the tile must be made visible to
the async proxy first::

    fence.proxy_async()  # each writing thread
    sync.barrier_sync(1, 128)
    if elected:
        tma.store(tensor_map, (n, m), tile)
        tma.commit_group()
        tma.wait_group_read(0)  # the tile may be overwritten

Shared addresses are 128-byte aligned; a swizzled box starts at a multiple of 1024, 512 or 256
bytes for 128B, 64B and 32B. The inner coordinate times the element size is a multiple of 16 bytes.

``commit_group``, ``wait_group`` and ``wait_group_read`` are those of ``bulk``.

Not covered: the ``.tile`` spelling, which is the default, and generic shared addresses.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from nbtc.arch import TCGEN05
from nbtc.intrinsics.bulk import (
    commit_group,
    local_has_no_multicast,
    wait_group,
    wait_group_read,
)
from nbtc.intrinsics.sections import DATA_MOVEMENT, ReductionOp
from nbtc.ptx.kinds import (
    U16,
    U16_KIND,
    U32_KIND,
    U64,
    Cluster,
    Coordinates,
    Regs,
    Shared,
    TensorMapArg,
)
from nbtc.ptx.spec import Isa, Variant, ptx

__all__ = [
    "commit_group",
    "gather4",
    "load",
    "load_im2col",
    "prefetch",
    "prefetch_gather4",
    "prefetch_im2col",
    "reduce",
    "reduce_im2col",
    "scatter4",
    "store",
    "store_im2col",
    "wait_group",
    "wait_group_read",
]

Space = Literal["shared::cluster", "shared::cta"]
CtaGroup = Literal["", 1, 2]
Im2colCoordinates = Annotated[
    tuple[int, ...], Regs(U32_KIND, None, 3, 5, "3 to 5, innermost first")
]
Im2colOffsets = Annotated[
    tuple[int, ...], Regs(U16_KIND, None, 1, 3, "one per dimension but the first and the last")
]
Rows = Annotated[tuple[int, int, int, int, int], Regs(U32_KIND, 5, note="column, then four rows")]
Im2colMode = Literal["im2col", "im2col::w", "im2col::w::128"]

SECTION = DATA_MOVEMENT + ": cp.async.bulk.tensor"
PREFETCH_SECTION = DATA_MOVEMENT + ": cp.async.bulk.prefetch.tensor"
REDUCE_SECTION = DATA_MOVEMENT + ": cp.reduce.async.bulk.tensor"


def _load_check(v: Variant) -> str | None:
    if v.space == "shared::cta" and v.cta_group:
        return f"space='shared::cta' with cta_group={v.cta_group}: leave one of them out"
    return local_has_no_multicast(v)


def _load_isa(v: Variant) -> Isa:
    return (8, 6) if v.space == "shared::cta" or v.cta_group else (8, 0)


def _load_text(mode: str, tail: str = "", dimensions: str = "{#coordinates}") -> Any:
    def text(v: Variant) -> str:
        group = f".cta_group::{int(v.cta_group)}" if v.cta_group else ""
        return (
            f"cp.async.bulk.tensor.{dimensions}d.{{space}}.global{mode}"
            f".mbarrier::complete_tx::bytes{{?cta_mask:.multicast::cluster}}{group}"
            "{?cache_policy:.L2::cache_hint} "
            f"[{{dst}}], [{{tensor_map}}, {{coordinates}}], [{{bar}}]{tail}{{, cta_mask}}"
            "{, cache_policy};"
        )

    return text


@ptx(
    _load_text(""),
    isa=_load_isa,
    arch=lambda v: TCGEN05 if v.cta_group else "sm_90",
    check=_load_check,
    section=SECTION,
)
def load(
    dst: Cluster,
    tensor_map: TensorMapArg,
    coordinates: Coordinates,
    bar: Cluster,
    cta_mask: U16 | None = None,
    cache_policy: U64 | None = None,
    *,
    space: Space = "shared::cluster",
    cta_group: CtaGroup = "",
) -> None:
    """Copy a box of a tensor into shared memory; ``bar`` gets the bytes of the whole box.

    Args:
        dst: destination, 128-byte aligned (1024 for the 128B swizzle), in the CTA of ``bar``.
        tensor_map: a TensorMap argument of the kernel.
        coordinates: first element of the box, innermost first, in elements; may be negative.
        bar: mbarrier that expects the bytes.
        cta_mask: bit r stands for the CTA of rank r in the cluster: each gets the box at the same
            offset as ``dst`` and the bytes on its barrier at the same offset as ``bar``.
        cache_policy: L2 policy, see ``bulk``.
        space: spelling of the destination; ``"shared::cta"`` cannot multicast.
        cta_group: 2 lets ``bar`` be in the peer CTA of the pair (rank ^ 1); with multicast every
            signal goes to the CTA of each pair that has the parity of ``bar``'s CTA.

    Executes: one thread. Completion: mbarrier; the data is then visible without a fence.
    """
    ...


def _im2col_check(v: Variant) -> str | None:
    wanted = v.count("coordinates") - 2 if v.mode == "im2col" else 2
    if v.count("offsets") != wanted:
        return (
            f"mode={v.mode!r} with {v.count('coordinates')} coordinates takes {wanted} offsets, "
            f"got {v.count('offsets')}"
        )
    return _load_check(v) if "space" in v else None


def _im2col_isa(v: Variant) -> Isa:
    return _load_isa(v) if v.mode == "im2col" else (8, 6)


def _im2col_arch(v: Variant) -> str | tuple[str, ...]:
    if v.cta_group or v.mode == "im2col::w::128":
        return TCGEN05
    if v.mode == "im2col":
        return "sm_90"
    return "sm_100" if v.space == "shared::cta" else TCGEN05


@ptx(
    _load_text(".{mode}", ", {offsets}"),
    isa=_im2col_isa,
    arch=_im2col_arch,
    check=_im2col_check,
    section=SECTION,
)
def load_im2col(
    dst: Cluster,
    tensor_map: TensorMapArg,
    coordinates: Im2colCoordinates,
    bar: Cluster,
    offsets: Im2colOffsets,
    cta_mask: U16 | None = None,
    cache_policy: U64 | None = None,
    *,
    mode: Im2colMode = "im2col",
    space: Space = "shared::cluster",
    cta_group: CtaGroup = "",
) -> None:
    """Copy im2col pixels of a 3D to 5D tensor into shared memory.

    Args:
        dst: destination, 128-byte aligned.
        tensor_map: a TensorMap in im2col (or im2col wide) mode.
        coordinates: 3 to 5, innermost first.
        bar: mbarrier that expects the bytes.
        offsets: 16-bit filter offsets, one per spatial dimension; ``(w_halo, w_offset)`` for the
            ``w`` modes.
        cta_mask: multicast, as in :func:`load`.
        cache_policy: L2 policy.
        mode: ``"im2col::w"`` and ``"im2col::w::128"`` need Blackwell.
        space: spelling of the destination.
        cta_group: as in :func:`load`.

    Executes: one thread. Completion: mbarrier.
    """
    ...


@ptx(
    _load_text(".tile::gather4", dimensions="2"),
    isa=(8, 6),
    arch=lambda v: "sm_100" if v.space == "shared::cta" else TCGEN05,
    check=_load_check,
    section=SECTION,
)
def gather4(
    dst: Cluster,
    tensor_map: TensorMapArg,
    coordinates: Rows,
    bar: Cluster,
    cta_mask: U16 | None = None,
    cache_policy: U64 | None = None,
    *,
    space: Space = "shared::cluster",
    cta_group: CtaGroup = "",
) -> None:
    """Copy four rows of a 2D tensor, each given by its own coordinate, into shared memory.

    Args:
        dst: destination, 128-byte aligned.
        tensor_map: a 2D TensorMap whose box has one row.
        coordinates: ``(column, row0, row1, row2, row3)``.
        bar: mbarrier that expects four rows of the box.
        cta_mask: multicast, as in :func:`load`.
        cache_policy: L2 policy.
        space: spelling of the destination.
        cta_group: as in :func:`load`.

    Executes: one thread. Completion: mbarrier.
    """
    ...


@ptx(
    "cp.async.bulk.tensor.{#coordinates}d.global.shared::cta.bulk_group"
    "{?cache_policy:.L2::cache_hint} [{tensor_map}, {coordinates}], [{src}]{, cache_policy};",
    isa=(8, 0),
    arch="sm_90",
    section=SECTION,
)
def store(
    tensor_map: TensorMapArg,
    coordinates: Coordinates,
    src: Shared,
    cache_policy: U64 | None = None,
) -> None:
    """Copy a box from shared memory into a tensor; elements out of bounds are not written.

    With one exception, measured on an H200: where the innermost dimension of the tensor is not a
    multiple of 16 bytes, the hardware writes the whole last 16-byte piece of each row. Rows must
    therefore be padded to 16 bytes, or what follows them is overwritten.

    Args:
        tensor_map: a TensorMap argument of the kernel.
        coordinates: first element of the box, innermost first; not negative.
        src: source, 128-byte aligned, made visible by ``fence.proxy_async``.
        cache_policy: L2 policy.

    Executes: one thread. Completion: bulk group.
    """
    ...


@ptx(
    "cp.async.bulk.tensor.{#coordinates}d.global.shared::cta.im2col_no_offs.bulk_group"
    "{?cache_policy:.L2::cache_hint} [{tensor_map}, {coordinates}], [{src}]{, cache_policy};",
    isa=(8, 0),
    arch="sm_90",
    section=SECTION,
)
def store_im2col(
    tensor_map: TensorMapArg,
    coordinates: Im2colCoordinates,
    src: Shared,
    cache_policy: U64 | None = None,
) -> None:
    """Copy im2col pixels from shared memory into a 3D to 5D tensor (``im2col_no_offs``).

    Args:
        tensor_map: a TensorMap in im2col mode whose bounding box lies inside the tensor.
        coordinates: 3 to 5, innermost first; not negative.
        src: source, 128-byte aligned.
        cache_policy: L2 policy.

    Executes: one thread. Completion: bulk group.
    """
    ...


@ptx(
    "cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group"
    "{?cache_policy:.L2::cache_hint} [{tensor_map}, {coordinates}], [{src}]{, cache_policy};",
    isa=(8, 6),
    arch=TCGEN05,
    section=SECTION,
)
def scatter4(
    tensor_map: TensorMapArg, coordinates: Rows, src: Shared, cache_policy: U64 | None = None
) -> None:
    """Copy four rows from shared memory to four rows of a 2D tensor, each with its coordinate.

    Args:
        tensor_map: a 2D TensorMap whose box has one row.
        coordinates: ``(column, row0, row1, row2, row3)``.
        src: source, 128-byte aligned.
        cache_policy: L2 policy.

    Executes: one thread. Completion: bulk group.
    """
    ...


@ptx(
    "cp.reduce.async.bulk.tensor.{#coordinates}d.global.shared::cta.{op}.bulk_group"
    "{?cache_policy:.L2::cache_hint} [{tensor_map}, {coordinates}], [{src}]{, cache_policy};",
    isa=(8, 0),
    arch="sm_90",
    section=REDUCE_SECTION,
)
def reduce(
    tensor_map: TensorMapArg,
    coordinates: Coordinates,
    src: Shared,
    cache_policy: U64 | None = None,
    *,
    op: ReductionOp,
) -> None:
    """Combine a box of shared memory into a tensor, atomically element by element.

    Args:
        tensor_map: a TensorMap argument; its element type decides the arithmetic.
        coordinates: first element of the box, innermost first; not negative.
        src: source, 128-byte aligned.
        cache_policy: L2 policy.
        op: the operation. Floating types take ``add``, f16 and bf16 also ``min`` and ``max``.

    Executes: one thread. Completion: bulk group; each element is relaxed at GPU scope.
    """
    ...


@ptx(
    "cp.reduce.async.bulk.tensor.{#coordinates}d.global.shared::cta.{op}.im2col_no_offs.bulk_group"
    "{?cache_policy:.L2::cache_hint} [{tensor_map}, {coordinates}], [{src}]{, cache_policy};",
    isa=(8, 0),
    arch="sm_90",
    section=REDUCE_SECTION,
)
def reduce_im2col(
    tensor_map: TensorMapArg,
    coordinates: Im2colCoordinates,
    src: Shared,
    cache_policy: U64 | None = None,
    *,
    op: ReductionOp,
) -> None:
    """Combine im2col pixels of shared memory into a 3D to 5D tensor.

    Args:
        tensor_map: a TensorMap in im2col mode; its element type decides the arithmetic.
        coordinates: 3 to 5, innermost first; not negative.
        src: source, 128-byte aligned.
        cache_policy: L2 policy.
        op: the operation, as in :func:`reduce`.

    Executes: one thread. Completion: bulk group.
    """
    ...


@ptx(
    "cp.async.bulk.prefetch.tensor.{#coordinates}d.L2.global{?cache_policy:.L2::cache_hint} "
    "[{tensor_map}, {coordinates}]{, cache_policy};",
    isa=(8, 0),
    arch="sm_90",
    section=PREFETCH_SECTION,
)
def prefetch(
    tensor_map: TensorMapArg, coordinates: Coordinates, cache_policy: U64 | None = None
) -> None:
    """Ask for a box of a tensor to be brought into L2.

    Args:
        tensor_map: a TensorMap argument of the kernel.
        coordinates: first element of the box, innermost first.
        cache_policy: L2 policy.

    Executes: one thread. Completion: none; it is a hint.
    """
    ...


@ptx(
    "cp.async.bulk.prefetch.tensor.{#coordinates}d.L2.global.{mode}"
    "{?cache_policy:.L2::cache_hint} [{tensor_map}, {coordinates}], {offsets}{, cache_policy};",
    isa=lambda v: (8, 0) if v.mode == "im2col" else (8, 6),
    arch=lambda v: "sm_90" if v.mode == "im2col" else TCGEN05,
    check=_im2col_check,
    section=PREFETCH_SECTION,
)
def prefetch_im2col(
    tensor_map: TensorMapArg,
    coordinates: Im2colCoordinates,
    offsets: Im2colOffsets,
    cache_policy: U64 | None = None,
    *,
    mode: Im2colMode = "im2col",
) -> None:
    """Ask for im2col pixels of a 3D to 5D tensor to be brought into L2.

    Args:
        tensor_map: a TensorMap in im2col mode.
        coordinates: 3 to 5, innermost first.
        offsets: as in :func:`load_im2col`.
        cache_policy: L2 policy.
        mode: as in :func:`load_im2col`.

    Executes: one thread. Completion: none; it is a hint.
    """
    ...


@ptx(
    "cp.async.bulk.prefetch.tensor.2d.L2.global.tile::gather4{?cache_policy:.L2::cache_hint} "
    "[{tensor_map}, {coordinates}]{, cache_policy};",
    isa=(8, 6),
    arch=TCGEN05,
    section=PREFETCH_SECTION,
)
def prefetch_gather4(
    tensor_map: TensorMapArg, coordinates: Rows, cache_policy: U64 | None = None
) -> None:
    """Ask for four rows of a 2D tensor to be brought into L2.

    Args:
        tensor_map: a 2D TensorMap whose box has one row.
        coordinates: ``(column, row0, row1, row2, row3)``.
        cache_policy: L2 policy.

    Executes: one thread. Completion: none; it is a hint.
    """
    ...
