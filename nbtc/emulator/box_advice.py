"""Advice about TMA boxes: their size, swizzle and place against layout and tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .machine import SHARED_BASE
from .shared_names import piece_at, span_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nbtc.layout.shared_pieces import SharedPiece

    from .machine import Instruction, Machine, Warp
    from .units import tma

__all__ = ["check_all_boxes", "check_box"]


def check_box(warp: Warp, ins: Instruction, plan: tma.Plan, coordinates: Sequence[int],
              lane: int, *, store: bool) -> None:  # fmt: skip
    """Advise about one tensor copy."""
    if "tma" not in warp.machine.sync.checks:
        return
    for kind, text in (
        ("tma_box", _too_large(warp.machine, plan, store=store)),
        ("tma_swizzle", _swizzle(warp.machine, plan, store=store)),
    ):
        if text:
            warp.machine.finding(kind, text, ins=ins, warp=warp, lanes=1 << lane, severity="advice")
    _note(warp, ins, plan, store=store)
    _note_reach(warp, ins, plan, coordinates, store=store)


def _stage(machine: Any, plan: tma.Plan) -> tuple[SharedPiece, int, int] | None:
    """Return the piece that a box starts in, and the stage and the byte inside that."""
    found = piece_at(machine, plan.shared_low - SHARED_BASE)
    if found is None:
        return None
    piece, offset = found
    return (piece, *piece.stage_of(offset))


def _too_large(machine: Any, plan: tma.Plan, *, store: bool) -> str | None:
    found = _stage(machine, plan)
    if found is None:
        return None
    piece, stage, inside = found
    if inside + plan.shared_bytes <= piece.stage_bytes:
        return None
    low = plan.shared_low - SHARED_BASE
    name = piece.stage_name(piece.offset + stage * piece.stride)
    what = piece.name if piece.stages is None else f"{piece.name}[i]"
    return (
        f"the box {'reads' if store else 'writes'} {plan.shared_bytes} B at "
        f"{name}{f'+{inside:#x}' if inside else ''}, but {what} has {piece.stage_bytes} B: it "
        f"covers {span_text(machine, low, low + plan.shared_bytes)}"
    )


def _swizzle(machine: Any, plan: tma.Plan, *, store: bool) -> str | None:
    found = _stage(machine, plan)
    mode = plan.description.swizzle
    if found is None or found[0].swizzle is None or found[0].swizzle == mode:
        return None
    return (
        f'the tensor map {"reads" if store else "writes"} swizzle "{mode}", and the layout says '
        f'{found[0].name}=shared.tile(..., swizzle="{found[0].swizzle}")'
    )


# -- what the boxes of a launch leave out ----------------------------------------------------------


def _note(warp: Warp, ins: Instruction, plan: tma.Plan, *, store: bool) -> None:
    found = _stage(warp.machine, plan)
    if found is None or found[0].swizzle is None:
        return
    piece, _, inside = found
    boxes = warp.machine.sync.boxes.setdefault((piece, store), {})
    boxes.setdefault((inside, inside + plan.shared_bytes), (warp, ins, plan.description))


class _Reach:
    """How far the boxes of one tensor reach, and the first one that lies wholly outside."""

    def __init__(self, dims: Sequence[int], *, store: bool) -> None:
        self.warp: Any = None
        self.ins: Any = None
        self.dims, self.store = tuple(dims), store
        self.ends = [0] * len(dims)
        self.outside: tuple[int, ...] | None = None


def _note_reach(warp: Warp, ins: Instruction, plan: tma.Plan, coordinates: Sequence[int], *,
                store: bool) -> None:  # fmt: skip
    d = plan.description
    if d.mode != "tiled" or len(coordinates) != d.rank or d.rank < 2:
        return
    key = (d.address, d.dims, store)  # unrolled copies share a tensor among instructions
    reach = warp.machine.sync.reaches.get(key)
    if reach is None:
        reach = warp.machine.sync.reaches[key] = _Reach(d.dims, store=store)
    reach.ends = [max(end, c + n) for end, c, n in zip(reach.ends, coordinates, d.box, strict=True)]
    if reach.outside is None and plan.global_high <= plan.global_low:
        turned = coordinates[::-1]
        if all(0 <= c < n for c, n in zip(turned, d.dims, strict=True)):
            reach.outside, reach.warp, reach.ins = tuple(coordinates), warp, ins


def check_all_boxes(machine: Machine) -> None:
    """Advise where the boxes of a launch leave a part of a tile or a tensor out."""
    if not machine.report.ok:
        return  # it may have stopped early
    for (piece, store), boxes in machine.sync.boxes.items():
        reached = 0
        for low, high in sorted(boxes):
            if low > reached:
                break
            reached = max(reached, high)
        if reached >= piece.stage_bytes:
            continue
        warp, ins, description = boxes[min(boxes)]
        what = piece.name if piece.stages is None else f"{piece.name}[i]"
        machine.finding(
            "tma_box",
            f"boxes of {description.box[::-1]} {description.dtype} {'store' if store else 'fill'} "
            f"{reached} of the {piece.stage_bytes} B of {what}",
            ins=ins, warp=warp, severity="advice",
        )  # fmt: skip
    for reach in machine.sync.reaches.values():
        dims = reach.dims
        if reach.outside is None or all(e >= n for e, n in zip(reach.ends, dims, strict=True)):
            continue  # a grid that is rounded up reaches all of the tensor
        done = "nothing is stored" if reach.store else "only the fill is loaded"
        machine.finding(
            "tma_outside",
            f"the box at coordinates {reach.outside} lies wholly outside the tensor, which has "
            f"{dims} elements, innermost first, so that {done}: are the coordinates swapped?",
            ins=reach.ins, warp=reach.warp, severity="advice",
        )  # fmt: skip
