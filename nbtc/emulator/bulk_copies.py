"""What bulk and tensor copies share: accesses, destinations, and the operations themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .bulk_groups import bulk_groups
from .clocks import UNINITIALISED, Access, Clock
from .machine import AsyncOp, MemoryFault
from .mbarrier import CopyRecord, MBarrier
from .race import region_sync, related, where
from .shared_names import address_text, span_text
from .sync_mbarrier import use_mbarrier
from .units import UnitFault

if TYPE_CHECKING:
    from .machine import Cta, Instruction, Warp

__all__ = [
    "Landing",
    "LoadCopy",
    "StoreCopy",
    "count_bytes",
    "fault",
    "find_region",
    "global_boxes",
    "make_landings",
    "multicast_mask",
    "shared_read",
    "shared_write",
    "store_accesses",
]


def fault(warp: Warp, ins: Instruction, error: UnitFault, lane: int = 0) -> None:
    """Turn a broken rule of a unit into a finding that ends the launch."""
    if error.kind == "unmodelled":
        ins.unmodelled(error.message)
    warp.machine.fatal(error.kind, error.message, ins=ins, warp=warp, lanes=1 << lane)


def shared_write(
    warp: Warp, ins: Instruction, cta: Cta, span: tuple[int, int], access: Access
) -> None:
    """Check and record an asynchronous write to ``span`` (byte offsets) of a CTA's memory."""
    launch = warp.machine.sync
    if not access.number:
        launch.table.add(access)
    if "race" in launch.checks:
        found = cta.sync.shadow.span(span[0], span[1], access, warp.sync.clock)
        if found:
            name = f"{span_text(warp.machine, *span)} of CTA rank {cta.rank} "
            warp.machine.hooks.conflicts(
                found, access, warp, ins, space="shared", target=cta, place_text=name
            )
    if not cta.sync.mbarrier_pages.isdisjoint(range(span[0] >> 8, ((span[1] - 1) >> 8) + 1)):
        for barrier in cta.sync.mbarriers.values():
            if barrier.live and span[0] < barrier.offset + 8 and barrier.offset < span[1]:
                warp.machine.finding(
                    "mbarrier_reinit",
                    f"{access.what} over {barrier.place_text}: a live mbarrier "
                    f"(init {where(barrier.init_ins)}) is there; inval first",
                    ins=ins, warp=warp, related=related("init", barrier.init_ins),
                    barrier=barrier.info(),
                )  # fmt: skip


def shared_read(
    warp: Warp, ins: Instruction, cta: Cta, span: tuple[int, int], access: Access, *,
    clipped: bool = False,
) -> None:  # fmt: skip
    """Check and record an asynchronous read of ``span`` (byte offsets) of a CTA's memory.

    Of a box that is ``clipped`` at the edge of the tensor a part need never have been written.
    """
    launch = warp.machine.sync
    if not access.number:
        launch.table.add(access)
    found = cta.sync.shadow.span(span[0], span[1], access, warp.sync.clock)
    if clipped:
        found = [item for item in found if item[1] != UNINITIALISED]
    if found:
        warp.machine.hooks.conflicts(
            found, access, warp, ins, space="shared", target=cta,
            place_text=f"{span_text(warp.machine, *span)} ",
        )  # fmt: skip


def global_boxes(warp: Warp, ins: Instruction, region: Any, boxes: Any, access: Access) -> None:
    """Check and record an access to boxes (address, rows, pitch, width) of global memory."""
    launch = warp.machine.sync
    if "race" not in launch.checks:
        return
    if not access.number:
        launch.table.add(access)
    shadow = region_sync(launch, region).shadow
    for address, rows, pitch, width in boxes:
        found = shadow.box(address - region.base, rows, pitch, width, access, warp.sync.clock)
        if found:
            warp.machine.hooks.conflicts(
                found, access, warp, ins, space="global", target=region,
                place_text=f"of {region.name} ",
            )  # fmt: skip


def find_region(warp: Warp, low: int, high: int, *, write: bool) -> Any:
    """Find the global region of an address range, or raise `MemoryFault`."""
    return warp.global_region(low, high - low, write=write)[0]


def count_bytes(table: dict[str, int], space: str, count: int) -> None:
    """Add to the traffic of a memory space."""
    table[space] = table.get(space, 0) + count


# -- destinations of loads ------------------------------------------------------------------------


class Landing:
    """One destination CTA of a load: where it lands and what it signals."""

    __slots__ = ("access", "barrier", "clock", "copy", "cta", "offset")

    def __init__(self, cta: Cta, offset: int, barrier: MBarrier, access: Access,
                 copy: CopyRecord, clock: Clock) -> None:  # fmt: skip
        """Store the place, the barrier, and the clock that the completion publishes."""
        self.cta, self.offset, self.barrier = cta, offset, barrier
        self.access, self.copy, self.clock = access, copy, clock

    def signal(self, count: int) -> None:
        """Signal the bytes; the write is known complete with the phase that they count for."""
        self.access.time = self.barrier.phase + 1
        self.barrier.complete_tx(count, self.clock, self.copy)


def make_landings(
    warp: Warp, ins: Instruction, lane: int, destination: Any, mbar: Any, count: int,
    mask: int | None, what: str,
) -> list[Landing]:  # fmt: skip
    """Resolve destination and barrier of a load, for every CTA of a multicast mask."""
    cluster = warp.cta.cluster
    home, offset = warp.shared_offset(destination, 1, 1, lane=lane, cluster=True)
    bar_cta, bar_offset = warp.shared_offset(mbar, 8, 8, lane=lane, cluster=True)
    pair = "cta_group::2" in ins.mods
    if mask is None:
        pairs = [(home, bar_cta)]
        if bar_cta is not home and not (pair and bar_cta.rank ^ 1 == home.rank):
            warp.machine.fatal(
                "tma_descriptor",
                f"{what}: destination in CTA rank {home.rank}, mbarrier in rank {bar_cta.rank}; "
                "both must be in one CTA (cta_group::2: in its pair)",
                ins=ins, warp=warp, lanes=1 << lane,
            )  # fmt: skip
    else:
        pairs = []
        for rank in range(16):
            if not mask >> rank & 1:
                continue
            if rank >= len(cluster.ctas):
                warp.machine.fatal(
                    "out_of_bounds",
                    f"{what}: multicast mask {mask:#x} names CTA rank {rank} of a cluster with "
                    f"{len(cluster.ctas)} CTAs",
                    ins=ins, warp=warp, lanes=1 << lane,
                )  # fmt: skip
            target = cluster.ctas[rank]
            signal = cluster.ctas[(rank & ~1) | (bar_cta.rank & 1)] if pair else target
            pairs.append((target, signal))
    landings = []
    known = warp.sync.issued()
    for target, signal in pairs:
        if target.exited:
            warp.machine.fatal(
                "cta_exited",
                f"{what} of rank {warp.cta.rank} writes to rank {target.rank} after rank "
                f"{target.rank} exited; end with a cluster barrier (producer tail)",
                ins=ins, warp=warp, lanes=1 << lane,
            )  # fmt: skip
        barrier = use_mbarrier(warp, signal, bar_offset, ins, lanes=1 << lane, incoming=False)
        if offset + count > target.shared.size:
            raise MemoryFault(
                "out_of_bounds",
                f"{what} of {count} bytes at {address_text(warp.machine, offset)}, but the CTA has "
                f"{target.shared.size} bytes",
            )
        access = Access(
            barrier.agent, None, write=True, is_async=True, warp=warp, lanes=1 << lane,
            place=ins, what=what, channel=barrier,
        )  # fmt: skip
        copy = access.copy = CopyRecord(ins, warp, count, barrier.phase)
        barrier.copies.append(copy)
        target.sync.state.setdefault("copies", {})[barrier, id(ins)] = access
        landings.append(Landing(target, offset, barrier, access, copy, known))
    return landings


class LoadCopy(AsyncOp):
    """A copy into shared memory that signals mbarriers."""

    def __init__(self, warp: Warp, ins: Instruction, landings: list[Landing], count: int,
                 read: Any, write: Any) -> None:  # fmt: skip
        """Store how to read the data and how to write it into one CTA."""
        self.cta, self.warp, self.ins = warp.cta, warp, ins
        self.landings, self.count, self._read, self._write = landings, count, read, write

    def complete(self) -> None:
        """Copy and signal."""
        data = self._read()
        for landing in self.landings:
            self._write(data, landing)
        for landing in self.landings:
            landing.signal(self.count)

    def describe(self) -> str:
        """Name the copy and its barrier."""
        names = ", ".join(landing.barrier.name for landing in self.landings)
        return f"copy of {self.count} bytes at {where(self.ins)} that signals {names}"


def multicast_mask(warp: Warp, ins: Instruction, rest: list[Any], lane: int) -> int | None:
    """Take the CTA mask off the operands of a multicast form; None for other forms."""
    if "multicast::cluster" not in ins.mods:
        return None
    return int(warp.read(rest.pop(0), np.uint16)[lane])


# -- stores ---------------------------------------------------------------------------------------


class StoreCopy(AsyncOp):
    """A copy out of shared memory that completes by bulk groups: a read, then a write stage."""

    def __init__(self, warp: Warp, ins: Instruction, groups: Any, read: Any, write: Any) -> None:
        """Store both stages."""
        self.cta, self.warp, self.ins, self.groups = warp.cta, warp, ins, groups
        self.group = groups.current
        self._read, self._write = read, write
        self.read = self.done = False
        self._data: Any = None

    def complete(self) -> None:
        """Read the source; the write follows as an operation of its own."""
        if not self.read:
            self._data = self._read()
            self.read = True
            self.cta.machine.touch_event()
            self.cta.machine.enqueue(self)
            return
        self._write(self._data)
        self._data = None
        self.done = True
        self.cta.machine.touch_event()

    def ready(self) -> bool:
        """Writes of a later group wait for the groups before."""
        return not self.read or self.groups.finished(self.group - 1, read=False)

    def describe(self) -> str:
        """Name the copy."""
        return f"bulk store at {where(self.ins)}"


def store_accesses(warp: Warp, ins: Instruction, lane: int, what: str) -> tuple[Any, Any, Any]:
    """Give the bulk groups of a thread and the accesses of one store to shared and global."""
    groups = bulk_groups(warp, lane)
    common: dict[str, Any] = {
        "is_async": True, "warp": warp, "lanes": 1 << lane, "place": ins, "what": what,
        "channel": groups,
    }  # fmt: skip
    read = Access(groups.read_agent, groups.current, write=False, **common)
    write = Access(groups.write_agent, groups.current, write=True, **common)
    groups.last_store = read
    return groups, read, write
