"""Kernels with and without a race between threads, for racecheck and the emulator.

What racecheck sees is in its documentation: hazards in shared memory, byte by byte, of ordinary
accesses, ldmatrix and cp.async, ordered by bar, bar.warp and mbarrier; since 2024.4 also
cp.async.bulk from global to shared memory. Global memory, tensor copies, what a bulk store or wgmma
reads, and fences between proxies (before 2026.4) are outside. So are stmatrix, atomics, and the
shared memory of a peer CTA, as 2025.3 showed on an H200, whatever its notes say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .agreement_case import START_BARRIER, Map, PtxCase, module

THREADS = 64
_SHARED = ".shared .align 1024 .b8 box[4096];\n.shared .align 8 .b64 bar[2];\n"
_BEGIN = """mov.u32 %r9, 0;
mul.wide.u32 %rd20, %thread, 16;
add.u64 %rd21, %rd1, %rd20;
add.u64 %rd22, %rd2, %rd20;
mov.u32 %r10, box;
shl.b32 %r11, %thread, 4;
add.u32 %r12, %r10, %r11;
sub.u32 %r13, 1008, %r11;
add.u32 %r14, %r10, %r13;
xor.b32 %r15, %r12, 16;
setp.eq.u32 %p0, %thread, 0;
setp.lt.u32 %p3, %thread, 32;
"""
"""%r12 is this thread's own place, %r14 that of the thread at the other end: another warp's.

%r15 is the place of the neighbour in the same warp; %p0 is true in thread 0, %p3 in warp 0.
"""
_CLEAR = "".join(
    f"st.shared.v4.u32 [%r12+{place}], {{%r9, %r9, %r9, %r9}};\n" for place in (0, 2048)
)
_LOAD = "ld.global.u32 %r20, [%rd21];\nadd.u32 %r22, %r20, 1;\n"
_WRITE = "st.shared.u32 [%r12], %r20;\n"
_WRITE_OTHER = "st.shared.u32 [%r12], %r22;\n"
_OUT = "st.global.u32 [%rd22], %r21;\n"
_READ = "ld.shared.u32 %r21, [%r14];\n" + _OUT
_SYNC = "bar.sync 0;\n"
_WARP_SYNC = "bar.warp.sync 0xffffffff;\n"
_CLUSTER_SYNC = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"
_COMMIT = "cp.async.commit_group;\n"
_COPY = "cp.async.ca.shared.global [%r12], [%rd21], 16;\n"
_COPY_SECOND = "cp.async.ca.shared.global [%r12+2048], [%rd21], 16;\n"
_READ_SECOND = "ld.shared.u32 %r21, [%r14+2048];\n" + _OUT
_WRITE_ROW = "st.shared.v4.u32 [%r12], {%r20, %r22, %r20, %r22};\n"
_LDMATRIX = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r21, %r23, %r24, %r25}, [%r14];\n" + _OUT
_STMATRIX = "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r12], {%r20, %r22, %r20, %r22};\n"
_COUNT = "atom.shared.add.u32 %r23, [%r10], 1;\n"
_ZERO = "mov.u32 %r24, 7;\n@%p0 st.shared.u32 [%r10], %r24;\n"
_READ_COUNT = "ld.shared.u32 %r21, [%r10];\n" + _OUT
_ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [%r500];\n"
_FREE = "mbarrier.arrive.shared::cta.b64 _, [%r500+8];\n"
_FENCE = "fence.proxy.async;\n"
_BULK_COMMIT = "@%p0 cp.async.bulk.commit_group;\n"
_BULK_WAIT = "@%p0 cp.async.bulk.wait_group 0;\n"
_EXPECT = "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r500], 1024;\n"
_BULK_LOAD = (
    _EXPECT + "@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
    "[%r10], [%rd1], 1024, [%r500];\n"
)
_TENSOR_LOAD = (
    _EXPECT + "mov.u32 %r30, 0;\n@%p0 cp.async.bulk.tensor.1d.shared::cluster.global"
    ".mbarrier::complete_tx::bytes [%r10], [%rd40, {%r30}], [%r500];\n"
)
_BULK_STORE = "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r10], 1024;\n"
_TENSOR_STORE = (
    "mov.u32 %r30, 0;\n@%p0 cp.async.bulk.tensor.1d.global.shared::cta.bulk_group "
    "[%rd40, {%r30}], [%r10];\n"
)
# Operands without swizzle; the values do not matter, only who reads and writes the tile.
_WGMMA = (
    "shr.u32 %r31, %r10, 4;\ncvt.u64.u32 %rd30, %r31;\nor.b64 %rd30, %rd30, 0x0000001000080000;\n"
    + "".join(f"mov.b32 %r{i}, 0;\n" for i in range(40, 44))
    + "wgmma.fence.sync.aligned;\nsetp.eq.u32 %p4, 0, 0;\n"
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r40, %r41, %r42, %r43}, %rd30, %rd30, "
    "%p4, 1, 1, 0, 0;\nwgmma.commit_group.sync.aligned;\n"
)
_WGMMA_WAIT = "wgmma.wait_group.sync.aligned 0;\n"
_WGMMA_OUT = "st.global.u32 [%rd22], %r40;\n"
_FILL_TILE = "".join(f"st.shared.u32 [%r12+{i}], %r20;\n" for i in range(0, 16, 4))
_REMOTE = """mov.u32 %r30, %cluster_ctarank;
mul.wide.u32 %rd23, %r30, 1024;
add.u64 %rd22, %rd22, %rd23;
xor.b32 %r31, %r30, 1;
mapa.shared::cluster.u32 %r32, %r12, %r31;
"""
_READ_REMOTE = "ld.shared::cluster.u32 %r21, [%r32];\n" + _OUT
_PIECES = """and.b32 %r30, %thread, 31;
shr.u32 %r31, %thread, 5;
shl.b32 %r32, %r30, 1;
add.u32 %r32, %r32, %r31;
add.u32 %r32, %r32, %r10;
st.shared.u8 [%r32], %r22;
"""
"""Even bytes are warp 0's, odd ones warp 1's."""

_TOOL = "only shared memory is checked"
_TENSOR = "not seen: tensor copies of the async proxy"
_NO_FENCE = "not seen: fences between proxies, and tensor copies"
_READER = "not seen: the async proxy reads shared memory"
_ATOMIC = "not seen by 2025.3: a plain access and an atomic"
_STORES_MATRIX = "not seen by 2025.3: writes of stmatrix"
_CLUSTER = "not seen by 2025.3: accesses to a peer's shared memory"


def _init(count: int, second: int = 1) -> str:
    """Return PTX that makes two barriers for some arrivals, at %r500 and 8 bytes behind."""
    line = "@%p0 mbarrier.init.shared::cta.b64 [%r500], 1;\n"
    both = f"{line.replace('1;', f'{count};')}{line.replace('], 1;', f'+8], {second};')}"
    return START_BARRIER.replace(line, both)


def _wait(place: str, parity: int, label: str) -> str:
    """Return PTX that waits for a phase and gives up after a while, so that nothing hangs."""
    return (
        f"mov.u32 %r499, 0;\n{label}:\n"
        f"mbarrier.try_wait.parity.shared::cta.b64 %p1, [{place}], {parity};\n"
        f"@%p1 bra {label}_END;\nadd.u32 %r499, %r499, 1;\nsetp.lt.u32 %p2, %r499, 2000;\n"
        f"@%p2 bra {label};\n{label}_END:\n"
    )


_FULL = _wait("%r500", 0, "FULL")


def _roles(writer: str, reader: str) -> str:
    """Return PTX in which warp 0 is the writer and warp 1 the reader."""
    return f"@!%p3 bra READER;\n{writer}bra.uni END;\nREADER:\n{reader}END:\n"


def _ring(parity: int, count: int, end: str = "") -> str:
    """Return a stage that is filled again after a wait for ``parity`` of the free barrier."""
    free = _wait("%r500+8", parity, "FREE")
    return _init(32, count) + _roles(
        _LOAD + _WRITE + _ARRIVE + free + _WRITE_OTHER + end, _FULL + _READ + _FREE
    )


@dataclass(frozen=True)
class Sample:
    """A kernel and what is expected of racecheck.

    Attributes:
        body: PTX after the common beginning.
        racy: whether it has a race by the PTX ISA's memory model.
        outside: why racecheck, by its documentation, does not see such races; empty if it does.
        missed: why the emulator does not report this race; empty if it does.
        threads: threads of a CTA.
        cluster: CTAs, all in one cluster.
        tensor: array that a tensor map describes, if the kernel has one.
    """

    body: str
    racy: bool
    outside: str = ""
    missed: str = ""
    threads: int = THREADS
    cluster: int = 1
    tensor: int | None = None

    @property
    def reported(self) -> bool:
        """Whether the emulator must report it."""
        return self.racy and not self.missed

    @property
    def expected(self) -> bool:
        """Whether racecheck should report it."""
        return self.racy and not self.outside


_NAMED_WRITER = _LOAD + _WRITE + "bar.arrive 1, 64;\n"
_LOADED = _LOAD + _WRITE
SAMPLES = {
    # bar and bar.warp
    "write_sync_read": Sample(_LOADED + _SYNC + _READ, False),
    "no_sync_before_read": Sample(_LOADED + _READ, True),
    "warp_sync_for_block_sync": Sample(_LOADED + _WARP_SYNC + _READ, True),
    "read_sync_write": Sample(_LOADED + _SYNC + _READ + _SYNC + _WRITE_OTHER, False),
    "no_sync_after_read": Sample(_LOADED + _SYNC + _READ + _WRITE_OTHER, True),
    "same_value_twice": Sample(_LOADED + _SYNC + _READ + _WRITE, True),
    "two_writers": Sample(_LOADED + "st.shared.u32 [%r14], %r22;\n" + _SYNC + _READ, True),
    "two_writers_sync": Sample(
        _LOADED + _SYNC + "st.shared.u32 [%r14], %r22;\n" + _SYNC + _READ, False
    ),
    "neighbour_warp_sync": Sample(
        _LOADED + _WARP_SYNC + "ld.shared.u32 %r21, [%r15];\n" + _OUT, False
    ),
    "neighbour_no_sync": Sample(
        _LOADED + "ld.shared.u32 %r21, [%r15];\n" + _OUT, True,
        missed="converged threads of a warp run in step, which the emulator takes as order",
    ),
    "named_barrier": Sample(_roles(_NAMED_WRITER, "bar.sync 1, 64;\n" + _READ), False),
    "named_barrier_late": Sample(_roles(_NAMED_WRITER, _READ + "bar.sync 1, 64;\n"), True),
    "named_barriers_apart": Sample(
        _roles(_LOADED + "bar.sync 1, 32;\n", "bar.sync 2, 32;\n" + _READ), True
    ),
    # bytes, matrix moves, atomics
    "bytes_side_by_side": Sample(
        _LOAD + _PIECES + _SYNC + "ld.shared.u32 %r21, [%r10];\n" + _OUT, False
    ),
    "bytes_overlap": Sample(
        _LOAD + "mov.u32 %r30, 171;\n@%p3 st.shared.u32 [%r12], %r20;\n"
        "@!%p3 st.shared.u8 [%r14+1], %r30;\n", True,
    ),
    "ldmatrix_sync": Sample(_LOAD + _WRITE_ROW + _SYNC + _LDMATRIX, False),
    "ldmatrix_no_sync": Sample(_LOAD + _WRITE_ROW + _LDMATRIX, True),
    "stmatrix_sync": Sample(_LOAD + _STMATRIX + _SYNC + _READ, False),
    "stmatrix_no_sync": Sample(_LOAD + _STMATRIX + _READ, True, outside=_STORES_MATRIX),
    "atomics_sync_read": Sample(_ZERO + _SYNC + _COUNT + _SYNC + _READ_COUNT, False),
    "store_no_sync_atomics": Sample(
        _ZERO + "@!%p3 " + _COUNT + _SYNC + _READ_COUNT, True,
        outside=_ATOMIC,
    ),
    "atomics_no_sync_read": Sample(
        _ZERO + _SYNC + _COUNT + _READ_COUNT, True,
        outside=_ATOMIC,
    ),
    # cp.async
    "copy_wait_sync": Sample(_COPY + _COMMIT + "cp.async.wait_group 0;\n" + _SYNC + _READ, False),
    "copy_no_wait": Sample(_COPY + _COMMIT + _SYNC + _READ, True),
    "copy_wait_no_sync": Sample(_COPY + _COMMIT + "cp.async.wait_group 0;\n" + _READ, True),
    "copies_wait_all": Sample(
        _COPY + _COMMIT + _COPY_SECOND + _COMMIT + "cp.async.wait_group 0;\n" + _SYNC
        + _READ_SECOND, False,
    ),
    "copies_wait_first": Sample(
        _COPY + _COMMIT + _COPY_SECOND + _COMMIT + "cp.async.wait_group 1;\n" + _SYNC
        + _READ_SECOND, True,
    ),
    "copy_mbarrier": Sample(
        _init(THREADS) + _COPY + "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r500];\n"
        + _FULL + _READ, False,
    ),
    "copy_plain_arrive": Sample(_init(THREADS) + _COPY + _ARRIVE + _FULL + _READ, True),
    # mbarrier
    "mbarrier_hand_over": Sample(
        _init(THREADS) + _LOADED + _ARRIVE + _FULL + _READ, False
    ),
    "mbarrier_no_wait": Sample(_init(THREADS) + _LOADED + _ARRIVE + _READ, True),
    "mbarrier_wrong_parity": Sample(
        _init(THREADS)
        + _roles(_LOADED + _ARRIVE, _wait("%r500", 1, "FULL") + _READ + _ARRIVE), True,
    ),
    "mbarrier_early_arrive": Sample(
        _init(32) + _roles(_LOAD + _ARRIVE + _WRITE, _FULL + _READ), True
    ),
    "ring_waits_for_free": Sample(_ring(0, 32), False),
    "ring_wrong_parity": Sample(
        _ring(1, 64, _FREE), True,  # the phase before for certain: it ends behind the writer
    ),
    # clusters, bulk copies
    "cluster_sync": Sample(
        _REMOTE + _LOADED + _CLUSTER_SYNC + _READ_REMOTE + _CLUSTER_SYNC, False, cluster=2
    ),
    "cluster_no_sync": Sample(
        _REMOTE + _CLUSTER_SYNC + _LOADED + _SYNC + _READ_REMOTE + _CLUSTER_SYNC, True,
        outside=_CLUSTER, cluster=2,
    ),
    "bulk_load_wait": Sample(_init(1) + _BULK_LOAD + _FULL + _READ, False),
    "bulk_load_no_wait": Sample(
        _init(1) + _BULK_LOAD + _READ + _FULL, True,
    ),
    # outside
    "global_memory": Sample(
        _LOAD + "st.global.u32 [%rd22], %r22;\nadd.u64 %rd24, %rd2, 1008;\n"
        "sub.u64 %rd24, %rd24, %rd20;\nld.global.u32 %r21, [%rd24];\n"
        "st.global.u32 [%rd22+4], %r21;\n", True, outside=_TOOL,
    ),
    "tensor_load_wait": Sample(
        _init(1) + _TENSOR_LOAD + _FULL + _READ, False, outside=_TENSOR, tensor=0
    ),
    "tensor_load_no_wait": Sample(
        _init(1) + _TENSOR_LOAD + _READ + _FULL, True, outside=_TENSOR, tensor=0
    ),
    "tensor_store_fence": Sample(
        _LOADED + _FENCE + _SYNC + _TENSOR_STORE + _BULK_COMMIT + _BULK_WAIT, False,
        outside=_NO_FENCE, tensor=1,
    ),
    "tensor_store_no_fence": Sample(
        _LOADED + _SYNC + _TENSOR_STORE + _BULK_COMMIT + _BULK_WAIT, True,
        outside=_NO_FENCE, tensor=1,
    ),
    "bulk_store_wait": Sample(
        _LOADED + _FENCE + _SYNC + _BULK_STORE + _BULK_COMMIT + _BULK_WAIT + _SYNC + _WRITE_OTHER,
        False, outside=_READER,
    ),
    "bulk_store_overwritten": Sample(
        _LOADED + _FENCE + _SYNC + _BULK_STORE + _BULK_COMMIT + _SYNC + _WRITE_OTHER + _BULK_WAIT,
        True, outside=_READER,
    ),
    "wgmma_wait": Sample(
        _LOAD + _FILL_TILE + _FENCE + _SYNC + _WGMMA + _WGMMA_WAIT + _WGMMA_OUT + _SYNC
        + _WRITE_OTHER, False, outside=_READER, threads=128,
    ),
    "wgmma_no_wait": Sample(
        _LOAD + _FILL_TILE + _FENCE + _SYNC + _WGMMA + _WRITE_OTHER + _WGMMA_WAIT + _WGMMA_OUT,
        True, outside=_READER, threads=128,
    ),
}  # fmt: skip


def cases() -> Iterator[PtxCase]:
    """Yield the kernels, each with a name of its own."""
    for name, sample in SAMPLES.items():
        yield case_of(name, sample)


def case_of(name: str, sample: Sample) -> PtxCase:
    """Return the kernel of a sample."""
    maps = int(sample.tensor is not None)
    begin = _CLEAR + (_FENCE if "bulk" in sample.body or "wgmma" in sample.body else "") + _SYNC
    text = module(_BEGIN + begin + sample.body, maps, 2, _SHARED)
    text = text.replace(".entry k(", f".entry race_{name}(")
    if sample.cluster > 1:
        # Fixed in the code, so that an ordinary launch makes the cluster.
        shape = f".explicitcluster\n.reqnctapercluster {sample.cluster}, 1, 1\n"
        text = text.replace(")\n{\n", f")\n{shape}{{\n", 1)
    count = 4 * sample.threads * sample.cluster
    arrays = [np.arange(count, dtype=np.uint32), np.zeros(count, np.uint32)]
    args = [Map(sample.tensor, "tiled", ((256,),))] if sample.tensor is not None else []
    return PtxCase(
        "races", name, text, arrays, (*args, 0, 1), {1: None}, sample.threads,
        grid=sample.cluster, entry=f"race_{name}",
    )  # fmt: skip
