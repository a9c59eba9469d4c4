"""Cluster launch control: take over a cluster of the grid that has not started (PTX ISA 9.7.18)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .bulk_copies import shared_write
from .clocks import Access
from .handlers import handler
from .machine import AsyncOp, Sink, Vec
from .mbarrier import CopyRecord
from .race import related, where
from .sync_mbarrier import use_mbarrier

if TYPE_CHECKING:
    from .machine import Cta, Instruction, Warp


class _Cancel(AsyncOp):
    """One request; every destination gets 16 bytes and complete_tx(16)."""

    def __init__(self, warp: Warp, ins: Instruction, places: list[Any]) -> None:
        self.cta, self.warp, self.ins, self.places = warp.cta, warp, ins, places

    def complete(self) -> None:
        """Take a cluster and write the response."""
        machine = self.cta.machine
        taken = machine.take_cluster()
        words = np.zeros(4, np.uint32)
        if taken is not None:
            x, y, z = (c * d for c, d in zip(taken, machine.cluster_dims, strict=True))
            words[:3] = x, y | z << 16, 1
        for cta, offset, barrier, access, copy, clock in self.places:
            cta.shared.write(offset, words.view(np.uint8))
            access.time = barrier.phase + 1
            barrier.complete_tx(16, clock, copy)
        machine.touch_event()

    def describe(self) -> str:
        """Name the request."""
        return f"clusterlaunchcontrol.try_cancel at {where(self.ins)}"


@handler("clusterlaunchcontrol.try_cancel")
def try_cancel(warp: Warp, ins: Instruction) -> None:
    """Ask for one cluster of the grid that has not started."""
    machine = warp.machine
    failed = warp.cta.sync.state.get("clc_failed")
    if failed is not None:
        machine.finding(
            "clc_after_failure",
            f"try_cancel after this CTA observed a failed one at {where(failed)}: a CTA that has "
            "seen a failure must not ask again",
            ins=ins, warp=warp, related=related("failure seen", failed),
        )  # fmt: skip
    cluster = warp.cta.cluster
    for lane in np.flatnonzero(warp.active).tolist():
        home, offset = warp.shared_offset(ins.operands[0], 16, 16, lane=lane)
        _, at = warp.shared_offset(ins.operands[1], 8, 8, lane=lane)
        targets: list[Cta] = [home]
        if "multicast::cluster::all" in ins.mods:
            targets = cluster.ctas
        known = warp.sync.issued()
        places = []
        for cta in targets:
            if cta.exited:
                machine.fatal(
                    "cta_exited",
                    f"try_cancel.multicast to rank {cta.rank} after rank {cta.rank} exited",
                    ins=ins, warp=warp, lanes=1 << lane,
                )  # fmt: skip
            barrier = use_mbarrier(warp, cta, at, ins, lanes=1 << lane, incoming=False)
            access = Access(
                barrier.agent, None, write=True, is_async=True, warp=warp, lanes=1 << lane,
                place=ins, what="try_cancel response", channel=barrier, strict=True,
            )  # fmt: skip
            copy = access.copy = CopyRecord(ins, warp, 16, barrier.phase)
            barrier.copies.append(copy)
            cta.sync.state.setdefault("copies", {})[barrier, id(ins)] = access
            shared_write(warp, ins, cta, (offset, offset + 16), access)
            places.append((cta, offset, barrier, access, copy, known))
        machine.enqueue(_Cancel(warp, ins, places))


def _response(warp: Warp, operand: Any) -> np.ndarray:
    """Give the response of every lane as words (4, 32)."""
    rows = warp.frame.bank[128]
    low, high = rows[2 * operand.index], rows[2 * operand.index + 1]
    return np.stack([low & 0xFFFFFFFF, low >> np.uint64(32), high & 0xFFFFFFFF,
                     high >> np.uint64(32)]).astype(np.uint32)  # fmt: skip


@handler("clusterlaunchcontrol.query_cancel.is_canceled")
def is_canceled(warp: Warp, ins: Instruction) -> None:
    """Say whether the request took a cluster."""
    words = _response(warp, ins.operands[1])
    taken = (words[2] & 1) != 0
    if not taken[warp.active].all():
        warp.cta.sync.state["clc_failed"] = ins
    warp.write(ins.operands[0], taken)


@handler("clusterlaunchcontrol.query_cancel")
def get_first_ctaid(warp: Warp, ins: Instruction) -> None:
    """Give the first CTA of the cluster that was taken."""
    words = _response(warp, ins.operands[1])
    if not (words[2] & 1)[warp.active].all():
        warp.machine.finding(
            "clc_response",
            "get_first_ctaid of a response that cancelled nothing is undefined: test is_canceled "
            "first",
            ins=ins, warp=warp,
        )  # fmt: skip
    values = [words[0], words[1] & 0xFFFF, words[1] >> np.uint32(16), np.zeros(32, np.uint32)]
    part = next((p for p in ins.parts if p.startswith("get_first_ctaid::")), None)
    if part is not None:
        warp.write(ins.operands[0], values["xyz".index(part[-1])])
        return
    target = ins.operands[0]
    items = target.items if isinstance(target, Vec) else [target]
    for item, value in zip(items, values, strict=False):
        if not isinstance(item, Sink):
            warp.write(item, value)
