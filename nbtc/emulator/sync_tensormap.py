"""Tensor maps in the emulator: reading, changing and fencing them (PTX ISA 9.7.9.28)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nbtc.errors import TensorMapError
from nbtc.layout.tensormap_description import TensorMapDescription

from .clocks import Access, happened
from .handlers import handler
from .machine import PARAM_WINDOW, WINDOW_SIZE
from .race import lane_bits, region_sync, related
from .sync_barriers import check_converged

if TYPE_CHECKING:
    from .machine import Instruction, Warp

__all__ = ["read_tensor_map", "tensor_map_of"]


def tensor_map_of(data: bytes) -> TensorMapDescription:
    """Unpack the 128 bytes of a map; equal bytes give the same object."""
    found = _MAPS.get(data)
    if found is None:
        if len(_MAPS) > 256:
            _MAPS.clear()
        found = _MAPS[data] = TensorMapDescription.unpack(data)
    return found


_MAPS: dict[bytes, TensorMapDescription] = {}


def read_tensor_map(warp: Warp, ins: Instruction, operand: Any, lane: int) -> TensorMapDescription:
    """Read the tensor map that an instruction names, and check its acquire fence."""
    address = int(warp.address(operand)[lane])
    data = warp.read_generic(address, 128, lane).tobytes()
    if not PARAM_WINDOW <= address < PARAM_WINDOW + WINDOW_SIZE:
        _check_map_fence(warp, ins, address, lane)
    try:
        return tensor_map_of(data)
    except TensorMapError as error:
        warp.machine.fatal(
            "tma_descriptor", f"the 128 bytes at {address:#x} are not a tensor map: {error}",
            ins=ins, warp=warp, lanes=1 << lane,
        )  # fmt: skip
        raise


def _check_map_fence(warp: Warp, ins: Instruction, address: int, lane: int) -> None:
    machine = warp.machine
    region = machine.memory.find(address)
    if region is None or "tma" not in machine.sync.checks:
        return
    if region.name.startswith("const variable"):
        return
    clock = warp.sync.clock
    accesses = machine.sync.table.accesses
    writers: list[Access] = []
    if region.sync is not None:
        offset = address - region.base
        writers = [accesses[n] for n in region.sync.shadow.writers(offset, offset + 128) if n]
    fences = [
        fence
        for cta in warp.cta.cluster.ctas
        for fence in cta.sync.state.get("tensormap_fences", {}).get(address, ())
        if cta is warp.cta
    ]
    for agent, time, snapshot in fences:
        if clock.get(agent, 0) >= time and all(happened(w, snapshot) for w in writers):
            return
    machine.finding(
        "missing_tensormap_fence",
        f"tensor map at {address:#x} used through a pointer without fence_tensormap_acquire: "
        "descriptors in global memory go through the tensormap proxy; fence in every CTA before "
        "use, or pass the map by value",
        ins=ins, warp=warp, lanes=1 << lane,
        related=tuple(r for w in writers[:2] for r in related("written", w.place)),
    )  # fmt: skip


@handler("tensormap.replace")
def tensormap_replace(warp: Warp, ins: Instruction) -> None:
    """Change one field of a map in shared or global memory."""
    field = next(p for p in ins.parts[2:] if p not in ("tile", "global", "shared::cta"))
    for lane in np.flatnonzero(warp.active).tolist():
        address = int(warp.address(ins.operands[0])[lane])
        ordinal = warp.scalar(ins.operands[1]) if len(ins.operands) > 2 else 0
        value = int(warp.read(ins.operands[-1])[lane])
        place = _map_bytes(warp, ins, address, lane)
        data = place.tobytes()
        place[...] = np.frombuffer(
            TensorMapDescription.replace_field(data, field, value, ordinal), np.uint8
        )
        _note_map_write(warp, ins, address, lane, shared=_in_shared(ins, address))


def _in_shared(ins: Instruction, address: int) -> bool:
    return "shared::cta" in ins.mods or address < 1 << 32


def _map_bytes(warp: Warp, ins: Instruction, address: int, lane: int) -> np.ndarray:
    if _in_shared(ins, address):
        cta, offset = warp.cta.cluster.locate_shared(address & 0xFFFFFFFF, 128, 8)
        cta.shared.initialised[offset : offset + 128] = 1
        return cta.shared.data[offset : offset + 128]
    region, offset = warp.global_region(address, 128, write=True)
    return region.data[offset : offset + 128]


def _note_map_write(warp: Warp, ins: Instruction, address: int, lane: int, *, shared: bool) -> None:
    sync = warp.sync
    fences = sync.shared_fences if shared else sync.global_fences
    access = sync.access(warp, ins, 1 << lane, write=True, strong=False, fences=fences)
    if shared:
        cta, offset = warp.cta.cluster.locate_shared(address & 0xFFFFFFFF, 128, 8)
        cta.sync.shadow.span(offset, offset + 128, access, sync.clock)
    else:
        region, offset = warp.global_region(address, 128)
        state = region_sync(warp.machine.sync, region)
        found = state.shadow.span(offset, offset + 128, access, sync.clock)
        if found:
            warp.machine.hooks.conflicts(found, access, warp, ins, space="global", target=region)


@handler("tensormap.cp_fenceproxy")
def tensormap_copy(warp: Warp, ins: Instruction) -> None:
    """Copy a map from shared to global memory and release it to the tensormap proxy."""
    check_converged(warp, ins, "tensormap.cp_fenceproxy")
    lane = warp.lane
    target = int(warp.address(ins.operands[0])[lane])
    source, start = warp.shared_offset(ins.operands[1], 128, 16, lane=lane)
    region, offset = warp.global_region(target, 128, write=True)
    sync = warp.sync
    read = sync.access(warp, ins, lane_bits(warp.active), write=False, strong=False, fences=None)
    found = source.sync.shadow.span(start, start + 128, read, sync.clock)
    if found:
        warp.machine.hooks.conflicts(found, read, warp, ins, space="shared", target=source)
    region.data[offset : offset + 128] = source.shared.read(start, 128)
    _note_map_write(warp, ins, target, lane, shared=False)
    sync.fence(acquire=False)
