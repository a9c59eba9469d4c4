"""st.async and red.async: stores and reductions into the cluster that signal an mbarrier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .bulk_copies import shared_write
from .clocks import Access
from .handlers import handler
from .machine import AsyncOp, Vec
from .mbarrier import CopyRecord
from .race import where
from .sync_mbarrier import use_mbarrier
from .units.reduce import reduce_bytes

if TYPE_CHECKING:
    from .machine import Instruction, Warp

_OPS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
_WIDTHS = {"b32": 4, "u32": 4, "s32": 4, "f32": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8}


class _StoreAsync(AsyncOp):
    """The stores of one instruction of a warp, lane by lane."""

    def __init__(self, warp: Warp, ins: Instruction, parts: list[Any],
                 reduction: tuple[str, str] | None) -> None:  # fmt: skip
        self.cta, self.warp, self.ins = warp.cta, warp, ins
        self.parts, self.reduction = parts, reduction

    def complete(self) -> None:
        """Store and signal."""
        for cta, offset, data, barrier, access, copy, clock in self.parts:
            value = data
            if self.reduction:
                old = cta.shared.read(offset, data.size).copy()
                value = reduce_bytes(old, data, *self.reduction)
            cta.shared.write(offset, value)
            access.time = barrier.phase + 1
            barrier.complete_tx(data.size, clock, copy)
        self.cta.machine.touch_event()

    def describe(self) -> str:
        """Name the instruction."""
        return f"{'.'.join(self.ins.parts[:2])} at {where(self.ins)}"


@handler("st.async", "red.async")
def store_async(warp: Warp, ins: Instruction) -> None:
    """Store or reduce into shared memory of a CTA of the cluster, completing on its mbarrier."""
    if "mbarrier::complete_tx::bytes" not in ins.mods:
        ins.unmodelled("only the shared::cluster forms with mbarrier::complete_tx are modelled")
    target, value, mbar = ins.operands[:3]
    kind = ins.parts[-1]
    width = _WIDTHS[kind]
    items = value.items if isinstance(value, Vec) else [value]
    dtype = np.uint32 if width == 4 else np.uint64
    words = np.stack([warp.read(item, dtype) for item in items], axis=1)
    reduction = None
    if ins.parts[0] == "red":
        reduction = (next(p for p in ins.parts if p in _OPS), kind)
    parts: list[Any] = []
    size = width * len(items)
    known = warp.sync.issued()
    for lane in np.flatnonzero(warp.active).tolist():
        cta, offset = warp.shared_offset(target, size, size, lane=lane, cluster=True)
        home, at = warp.shared_offset(mbar, 8, 8, lane=lane, cluster=True)
        if home is not cta:
            warp.machine.fatal(
                "mbarrier_remote",
                f"`{ins.op}` stores to CTA rank {cta.rank} and signals rank {home.rank}; both must "
                "be in one CTA",
                ins=ins, warp=warp, lanes=1 << lane,
            )  # fmt: skip
        if cta.exited:
            warp.machine.fatal(
                "cta_exited", f"`{ins.op}` to rank {cta.rank} after rank {cta.rank} exited",
                ins=ins, warp=warp, lanes=1 << lane,
            )  # fmt: skip
        barrier = use_mbarrier(warp, cta, at, ins, lanes=1 << lane, incoming=False)
        access = Access(
            barrier.agent, None, write=True, strong=reduction is not None, warp=warp,
            lanes=1 << lane, place=ins, what="red.async" if reduction else "st.async",
            channel=barrier, is_async=False,
        )  # fmt: skip
        shared_write(warp, ins, cta, (offset, offset + size), access)
        copy = access.copy = CopyRecord(ins, warp, size, barrier.phase)
        barrier.copies.append(copy)
        cta.sync.state.setdefault("copies", {})[barrier, id(ins), lane] = access
        data = np.ascontiguousarray(words[lane]).view(np.uint8).copy()
        parts.append((cta, offset, data, barrier, access, copy, known))
    warp.machine.enqueue(_StoreAsync(warp, ins, parts, reduction))
