"""cluster: blocks of a cluster, their barrier, and their shared memory.

All threads of all blocks of a cluster take part in the cluster barrier: each arrives once and
waits once a round. ``mapa`` turns a shared address into the address of the same place in another
block; such an address works in :func:`load`, :func:`store`, remote mbarrier functions and copies.
No block may exit, or end the life of its barriers, while another may still access its shared
memory: end with an arrive and a wait, or with waits for the last phases of its mbarriers
(``nbtc.device.pipeline.drain``).

``arrive`` in its default form is a release and costs a ``MEMBAR.ALL.GPU``; with ``sem="relaxed"``
it costs nothing and orders no memory. It does not even keep a block alive for a peer's stores and
remote arrivals, which are posted: on an H200 the launch fails. The barrier does not wait for
asynchronous copies.

Reads of ids are executed by each thread on its own.

Not covered: ``mapa.u64`` and ``getctarank.u64`` on generic addresses, and symbols as operands of
``mapa``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from nbtc.intrinsics.bulk import cluster_type
from nbtc.intrinsics.sections import (
    DATA_MOVEMENT,
    PARALLEL,
    SPECIAL_REGISTERS,
    TYPE_KINDS,
    ReductionOp,
)
from nbtc.ptx.kinds import U32, Cluster, Kind, Pred, Regs, Shared, chosen
from nbtc.ptx.spec import Variant, ptx

SECTION = PARALLEL + ": barrier.cluster"
Aligned = Literal[True, False]


@ptx(
    "barrier.cluster.arrive{.sem}{.aligned};",
    isa=lambda v: (8, 0) if v.sem else (7, 8),
    arch="sm_90",
    effects="memory convergent",
    section=SECTION,
)
def arrive(*, sem: Literal["", "release", "relaxed"] = "", aligned: Aligned = True) -> None:
    """Arrive on the cluster barrier without waiting.

    Args:
        sem: ``""`` is release: earlier accesses are visible after the others' wait, at the cost
            of a MEMBAR.ALL.GPU. ``"relaxed"`` orders nothing and is cheap.
        aligned: all threads of the warp execute it together.

    Executes: every thread of the cluster, whole warps unless ``aligned=False``.
    """
    ...


@ptx(
    "barrier.cluster.wait{.sem}{.aligned};",
    isa=lambda v: (8, 0) if v.sem else (7, 8),
    arch="sm_90",
    effects="memory convergent",
    section=SECTION,
)
def wait(*, sem: Literal["", "acquire"] = "", aligned: Aligned = True) -> None:
    """Wait until all threads of the cluster have arrived on the cluster barrier.

    Args:
        sem: the default is acquire as well.
        aligned: all threads of the warp execute it together.

    Executes: every thread of the cluster, whole warps unless ``aligned=False``.
    """
    ...


@ptx(
    "mov.u32 {ret}, %cluster_ctarank;",
    isa=(7, 8),
    arch="sm_90",
    effects="pure",
    section=SPECIAL_REGISTERS + ": %cluster_ctarank",
)
def cta_rank() -> U32:
    """Return the rank of this block in its cluster, 0 to :func:`num_ctas` - 1."""
    ...


@ptx(
    "mov.u32 {ret}, %cluster_nctarank;",
    isa=(7, 8),
    arch="sm_90",
    effects="pure",
    section=SPECIAL_REGISTERS + ": %cluster_nctarank",
)
def num_ctas() -> U32:
    """Return the number of blocks in the cluster."""
    ...


@ptx(
    "mov.u32 {ret}, %cluster_ctaid.x;",
    isa=(7, 8),
    arch="sm_90",
    effects="pure",
    section=SPECIAL_REGISTERS + ": %cluster_ctaid",
)
def cta_id_x() -> U32:
    """Return the x index of this block in its cluster."""
    ...


@ptx(
    "mov.u32 {ret}, %cluster_ctaid.y;",
    isa=(7, 8),
    arch="sm_90",
    effects="pure",
    section=SPECIAL_REGISTERS + ": %cluster_ctaid",
)
def cta_id_y() -> U32:
    """Return the y index of this block in its cluster."""
    ...


@ptx(
    "mov.u32 {ret}, %cluster_ctaid.z;",
    isa=(7, 8),
    arch="sm_90",
    effects="pure",
    section=SPECIAL_REGISTERS + ": %cluster_ctaid",
)
def cta_id_z() -> U32:
    """Return the z index of this block in its cluster."""
    ...


@ptx(
    "mov.u32 {ret}, %cluster_nctaid.x;",
    isa=(7, 8),
    arch="sm_90",
    effects="pure",
    section=SPECIAL_REGISTERS + ": %cluster_nctaid",
)
def num_cta_x() -> U32:
    """Return the number of blocks of the cluster along x."""
    ...


@ptx(
    "mov.u32 {ret}, %cluster_nctaid.y;",
    isa=(7, 8),
    arch="sm_90",
    effects="pure",
    section=SPECIAL_REGISTERS + ": %cluster_nctaid",
)
def num_cta_y() -> U32:
    """Return the number of blocks of the cluster along y."""
    ...


@ptx(
    "mov.u32 {ret}, %cluster_nctaid.z;",
    isa=(7, 8),
    arch="sm_90",
    effects="pure",
    section=SPECIAL_REGISTERS + ": %cluster_nctaid",
)
def num_cta_z() -> U32:
    """Return the number of blocks of the cluster along z."""
    ...


@ptx(
    "mov.u32 {ret}, %clusterid.x;",
    isa=(7, 8),
    arch="sm_90",
    effects="pure",
    section=SPECIAL_REGISTERS + ": %clusterid",
)
def cluster_id_x() -> U32:
    """Return the x index of this cluster in the grid."""
    ...


@ptx(
    "mov.u32 {ret}, %clusterid.y;",
    isa=(7, 8),
    arch="sm_90",
    effects="pure",
    section=SPECIAL_REGISTERS + ": %clusterid",
)
def cluster_id_y() -> U32:
    """Return the y index of this cluster in the grid."""
    ...


@ptx(
    "mov.u32 {ret}, %clusterid.z;",
    isa=(7, 8),
    arch="sm_90",
    effects="pure",
    section=SPECIAL_REGISTERS + ": %clusterid",
)
def cluster_id_z() -> U32:
    """Return the z index of this cluster in the grid."""
    ...


@ptx(
    "mov.u32 {ret}, %nclusterid.x;",
    isa=(7, 8),
    arch="sm_90",
    effects="pure",
    section=SPECIAL_REGISTERS + ": %nclusterid",
)
def num_cluster_x() -> U32:
    """Return the number of clusters of the grid along x."""
    ...


@ptx(
    "mov.u32 {ret}, %nclusterid.y;",
    isa=(7, 8),
    arch="sm_90",
    effects="pure",
    section=SPECIAL_REGISTERS + ": %nclusterid",
)
def num_cluster_y() -> U32:
    """Return the number of clusters of the grid along y."""
    ...


@ptx(
    "mov.u32 {ret}, %nclusterid.z;",
    isa=(7, 8),
    arch="sm_90",
    effects="pure",
    section=SPECIAL_REGISTERS + ": %nclusterid",
)
def num_cluster_z() -> U32:
    """Return the number of clusters of the grid along z."""
    ...


@ptx(
    "mov.pred {ret}, %is_explicit_cluster;",
    isa=(7, 8),
    arch="sm_90",
    effects="pure",
    section=SPECIAL_REGISTERS + ": %is_explicit_cluster",
)
def is_explicit() -> Pred:
    """Return whether the launch asked for clusters."""
    ...


@ptx(
    "mapa.shared::cluster.u32 {ret}, {address}, {rank};",
    isa=(7, 8),
    arch="sm_90",
    effects="pure",
    section=DATA_MOVEMENT + ": mapa",
)
def mapa(address: Shared, rank: U32) -> Cluster:
    """Return the cluster address of the same place in the block of rank ``rank``.

    Args:
        address: address in this block's shared memory.
        rank: rank in the cluster, 0 to :func:`num_ctas` - 1.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "getctarank.shared::cluster.u32 {ret}, {address};",
    isa=(7, 8),
    arch="sm_90",
    effects="pure",
    section=DATA_MOVEMENT + ": getctarank",
)
def get_cta_rank(address: Cluster) -> U32:
    """Return the rank of the block that a cluster address points into.

    Args:
        address: a shared or a cluster address.

    Executes: each thread on its own.
    """
    ...


Type = Literal["u8", "s8", "u16", "u32", "s32", "u64", "s64", "f32", "f64"]


def _kind(v: Variant) -> Kind:
    return TYPE_KINDS[v.type]


def _count(v: Variant) -> int | None:
    return int(v.vec[1]) if v.vec else None


Data = Annotated[Any, Regs(_kind, _count, note="one register, or a tuple of 2 or 4 for vec")]


def _strong(v: Variant) -> str | None:
    if bool(v.sem) != bool(v.scope):
        return f"sem={v.sem!r} with scope={v.scope!r}: give both or neither"
    if v.vec == "v4" and v.type in ("u64", "s64", "f64"):
        return f"vec='v4' with type={v.type!r} is 256 bits; shared memory moves at most 128"
    return None


@ptx(
    "ld{.sem}{.scope}.shared::cluster{.vec}.{type} {ret}, [{address}];",
    isa=(7, 8),
    arch="sm_90",
    check=_strong,
    section=DATA_MOVEMENT + ": ld",
)
def load(
    address: Cluster,
    *,
    type: Type = "u32",
    vec: Literal["", "v2", "v4"] = "",
    sem: Literal["", "relaxed", "acquire"] = "",
    scope: Literal["", "cta", "cluster", "gpu", "sys"] = "",
) -> Data:
    """Return a value from shared memory of a block of the cluster.

    Args:
        address: cluster address, aligned to the whole access.
        type: PTX type of one element.
        vec: ``"v2"`` or ``"v4"`` returns a tuple.
        sem: makes it a strong access; give ``scope`` too.
        scope: threads with which it synchronises.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "st{.sem}{.scope}.shared::cluster{.vec}.{type} [{address}], {value};",
    isa=(7, 8),
    arch="sm_90",
    check=_strong,
    section=DATA_MOVEMENT + ": st",
)
def store(
    address: Cluster,
    value: Data,
    *,
    type: Type = "u32",
    vec: Literal["", "v2", "v4"] = "",
    sem: Literal["", "relaxed", "release"] = "",
    scope: Literal["", "cta", "cluster", "gpu", "sys"] = "",
) -> None:
    """Write a value to shared memory of a block of the cluster.

    Args:
        address: cluster address, aligned to the whole access.
        value: one value, or a tuple for ``vec``.
        type: PTX type of one element.
        vec: ``"v2"`` or ``"v4"``.
        sem: makes it a strong access; give ``scope`` too. A release costs a MEMBAR.ALL.GPU beyond
            the CTA.
        scope: threads with which it synchronises.

    Executes: each thread on its own. Completion: a cluster barrier, or release and acquire.
    """
    ...


def _async_check(v: Variant) -> str | None:
    if v.vec == "v4" and v.type in ("b64", "u64", "s64", "f64"):
        return f"vec='v4' with type={v.type!r}: 64-bit types take '' or 'v2'"
    return None


@ptx(
    "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes{.vec}.{type} "
    "[{address}], {value}, [{bar}];",
    isa=(8, 1),
    arch="sm_90",
    check=_async_check,
    section=DATA_MOVEMENT + ": st.async",
)
def st_async(
    address: Cluster,
    value: Data,
    bar: Cluster,
    *,
    type: Literal["b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"] = "b32",
    vec: Literal["", "v2", "v4"] = "",
) -> None:
    """Write a value to another block and signal its bytes on an mbarrier there.

    Args:
        address: cluster address, aligned to the whole access.
        value: one value, or a tuple for ``vec``.
        bar: cluster address of an mbarrier in the same block as ``address``.
        type: PTX type of one element.
        vec: ``"v2"`` or ``"v4"``.

    Executes: each thread on its own. Completion: mbarrier, with the size of the access in bytes.
    """
    ...


@ptx(
    "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{op}.{type} "
    "[{address}], {value}, [{bar}];",
    isa=(8, 1),
    arch="sm_90",
    check=cluster_type,
    section=PARALLEL + ": red.async",
)
def red_async(
    address: Cluster,
    value: Annotated[int, chosen(_kind)],
    bar: Cluster,
    *,
    op: ReductionOp,
    type: Literal["u32", "s32", "u64", "b32"] = "u32",
) -> None:
    """Combine a value into another block's shared memory and signal its bytes on an mbarrier.

    Args:
        address: cluster address, aligned.
        value: the operand.
        bar: cluster address of an mbarrier in the same block as ``address``.
        op: the operation.
        type: PTX type; ``and``, ``or`` and ``xor`` take ``"b32"``, ``add`` also ``"u64"``.

    Executes: each thread on its own. Completion: mbarrier, with 4 or 8 bytes.
    """
    ...
