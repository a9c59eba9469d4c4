"""special: registers that tell where a thread runs, and clocks.

Reads are executed by each thread on its own. Thread and block indices are those of Numba
(``cuda.threadIdx``, ``cuda.blockIdx``); indices in a cluster are in ``cluster``.

Not covered: performance counters (``%pm``), ``%envreg``, and the offsets of reserved shared
memory.
"""

from __future__ import annotations

from nbtc.intrinsics.sections import DATA_MOVEMENT, SPECIAL_REGISTERS
from nbtc.ptx.kinds import U32, U64, Generic, Pred
from nbtc.ptx.spec import ptx


@ptx(
    "mov.u32 {ret}, %laneid;",
    isa=(7, 0),
    arch="sm_80",
    effects="pure",
    section=SPECIAL_REGISTERS + ": %laneid",
)
def laneid() -> U32:
    """Return the index of this thread in its warp, 0 to 31."""
    ...


@ptx(
    "mov.u32 {ret}, %warpid;",
    isa=(7, 0),
    arch="sm_80",
    effects="volatile",
    section=SPECIAL_REGISTERS + ": %warpid",
)
def warpid() -> U32:
    """Return the hardware's number of this warp in its block.

    It can change, and need not be the thread index / 32.
    """
    ...


@ptx(
    "mov.u32 {ret}, %nwarpid;",
    isa=(7, 0),
    arch="sm_80",
    effects="pure",
    section=SPECIAL_REGISTERS + ": %nwarpid",
)
def nwarpid() -> U32:
    """Return the largest number of warp ids."""
    ...


@ptx(
    "mov.u32 {ret}, %smid;",
    isa=(7, 0),
    arch="sm_80",
    effects="volatile",
    section=SPECIAL_REGISTERS + ": %smid",
)
def smid() -> U32:
    """Return the SM on which this thread runs; numbers need not be contiguous."""
    ...


@ptx(
    "mov.u32 {ret}, %nsmid;",
    isa=(7, 0),
    arch="sm_80",
    effects="pure",
    section=SPECIAL_REGISTERS + ": %nsmid",
)
def nsmid() -> U32:
    """Return the upper bound of SM numbers."""
    ...


@ptx(
    "mov.u64 {ret}, %gridid;",
    isa=(7, 0),
    arch="sm_80",
    effects="pure",
    section=SPECIAL_REGISTERS + ": %gridid",
)
def gridid() -> U64:
    """Return the number of this grid launch."""
    ...


@ptx(
    "mov.u32 {ret}, %lanemask_eq;",
    isa=(7, 0),
    arch="sm_80",
    effects="pure",
    section=SPECIAL_REGISTERS + ": %lanemask_eq",
)
def lanemask_eq() -> U32:
    """Return the mask of lanes equal to this one."""
    ...


@ptx(
    "mov.u32 {ret}, %lanemask_lt;",
    isa=(7, 0),
    arch="sm_80",
    effects="pure",
    section=SPECIAL_REGISTERS + ": %lanemask_lt",
)
def lanemask_lt() -> U32:
    """Return the mask of lanes below this one."""
    ...


@ptx(
    "mov.u32 {ret}, %lanemask_le;",
    isa=(7, 0),
    arch="sm_80",
    effects="pure",
    section=SPECIAL_REGISTERS + ": %lanemask_le",
)
def lanemask_le() -> U32:
    """Return the mask of lanes below or equal to this one."""
    ...


@ptx(
    "mov.u32 {ret}, %lanemask_gt;",
    isa=(7, 0),
    arch="sm_80",
    effects="pure",
    section=SPECIAL_REGISTERS + ": %lanemask_gt",
)
def lanemask_gt() -> U32:
    """Return the mask of lanes above this one."""
    ...


@ptx(
    "mov.u32 {ret}, %lanemask_ge;",
    isa=(7, 0),
    arch="sm_80",
    effects="pure",
    section=SPECIAL_REGISTERS + ": %lanemask_ge",
)
def lanemask_ge() -> U32:
    """Return the mask of lanes above or equal to this one."""
    ...


@ptx(
    "mov.u32 {ret}, %clock;",
    isa=(7, 0),
    arch="sm_80",
    effects="volatile",
    section=SPECIAL_REGISTERS + ": %clock",
)
def clock() -> U32:
    """Return the low 32 bits of the SM's cycle counter."""
    ...


@ptx(
    "mov.u32 {ret}, %clock_hi;",
    isa=(7, 0),
    arch="sm_80",
    effects="volatile",
    section=SPECIAL_REGISTERS + ": %clock_hi",
)
def clock_hi() -> U32:
    """Return the high 32 bits of the SM's cycle counter."""
    ...


@ptx(
    "mov.u64 {ret}, %clock64;",
    isa=(7, 0),
    arch="sm_80",
    effects="volatile",
    section=SPECIAL_REGISTERS + ": %clock64",
)
def clock64() -> U64:
    """Return the SM's cycle counter."""
    ...


@ptx(
    "mov.u64 {ret}, %globaltimer;",
    isa=(7, 0),
    arch="sm_80",
    effects="volatile",
    section=SPECIAL_REGISTERS + ": %globaltimer",
)
def globaltimer() -> U64:
    """Return the time in nanoseconds, the same on all SMs; the step is the hardware's."""
    ...


@ptx(
    "mov.u32 {ret}, %globaltimer_lo;",
    isa=(7, 0),
    arch="sm_80",
    effects="volatile",
    section=SPECIAL_REGISTERS + ": %globaltimer_lo",
)
def globaltimer_lo() -> U32:
    """Return the low 32 bits of the time in nanoseconds."""
    ...


@ptx(
    "mov.u32 {ret}, %globaltimer_hi;",
    isa=(7, 0),
    arch="sm_80",
    effects="volatile",
    section=SPECIAL_REGISTERS + ": %globaltimer_hi",
)
def globaltimer_hi() -> U32:
    """Return the high 32 bits of the time in nanoseconds."""
    ...


@ptx(
    "mov.u32 {ret}, %dynamic_smem_size;",
    isa=(7, 0),
    arch="sm_80",
    effects="pure",
    section=SPECIAL_REGISTERS + ": %dynamic_smem_size",
)
def dynamic_smem_size() -> U32:
    """Return the bytes of dynamic shared memory of the block."""
    ...


@ptx(
    "mov.u32 {ret}, %total_smem_size;",
    isa=(7, 0),
    arch="sm_80",
    effects="pure",
    section=SPECIAL_REGISTERS + ": %total_smem_size",
)
def total_smem_size() -> U32:
    """Return the bytes of shared memory of the block, static and dynamic, rounded up to 128."""
    ...


@ptx(
    "mov.u32 {ret}, %aggr_smem_size;",
    isa=(8, 1),
    arch="sm_90",
    effects="pure",
    section=SPECIAL_REGISTERS + ": %aggr_smem_size",
)
def aggr_smem_size() -> U32:
    """Return the bytes of shared memory of the block with the reserved part."""
    ...


@ptx(
    "mov.u64 {ret}, %current_graph_exec;",
    isa=(8, 0),
    arch="sm_80",
    effects="pure",
    section=SPECIAL_REGISTERS + ": %current_graph_exec",
)
def current_graph_exec() -> U64:
    """Return the handle of the graph that is executing, 0 outside of one."""
    ...


@ptx(
    "isspacep.global {ret}, {address};",
    isa=(7, 0),
    arch="sm_80",
    effects="pure",
    section=DATA_MOVEMENT + ": isspacep",
)
def is_global(address: Generic) -> Pred:
    """Return whether a generic address points into global memory.

    Args:
        address: generic address.
    """
    ...


@ptx(
    "isspacep.shared::cta {ret}, {address};",
    isa=(7, 8),
    arch="sm_80",
    effects="pure",
    section=DATA_MOVEMENT + ": isspacep",
)
def is_shared(address: Generic) -> Pred:
    """Return whether a generic address points into shared memory of this block.

    Args:
        address: generic address.
    """
    ...


@ptx(
    "isspacep.shared::cluster {ret}, {address};",
    isa=(7, 8),
    arch="sm_90",
    effects="pure",
    section=DATA_MOVEMENT + ": isspacep",
)
def is_cluster(address: Generic) -> Pred:
    """Return whether a generic address points into shared memory of the cluster.

    Args:
        address: generic address.
    """
    ...


@ptx(
    "isspacep.local {ret}, {address};",
    isa=(7, 0),
    arch="sm_80",
    effects="pure",
    section=DATA_MOVEMENT + ": isspacep",
)
def is_local(address: Generic) -> Pred:
    """Return whether a generic address points into local memory.

    Args:
        address: generic address.
    """
    ...
