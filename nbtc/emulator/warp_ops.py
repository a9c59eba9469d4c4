"""Warp-level handlers: shuffles, votes, match, redux, elect, bar.warp.sync, activemask and hints.

An instruction with a member mask waits until all live members are at it. Paths of a split warp that
meet there run it together, then go on separately.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import floats
from .handlers import handler
from .machine import LANE, LANES, Wait
from .program import Imm, Instruction, Operand, Pair, Sink
from .units import matrix_moves

_BITS = (1 << LANE.astype(np.int64)).astype(np.int64)


def mask_bits(lanes: np.ndarray) -> int:
    """Pack bool[32] into an integer."""
    return int(_BITS[lanes].sum())


def lanes_of(bits: int) -> np.ndarray:
    """Unpack an integer into bool[32]."""
    return (bits >> LANE) & 1 != 0


class _Group:
    """Lanes that execute a warp-level instruction with one member mask."""

    __slots__ = ("done", "lanes", "members")

    def __init__(self, lanes: np.ndarray, members: np.ndarray) -> None:
        self.lanes, self.members, self.done = lanes, members, False


class _Meet(Wait):
    """Lanes of one path that wait for other members of a warp-level instruction."""

    def __init__(self, warp: Any, ins: Instruction, groups: list[_Group], run: Callable) -> None:
        self.warp, self.at, self.groups, self.run = warp, ins, groups, run
        self.frame = warp.frame

    def ready(self) -> bool:
        return all(g.done or not self.missing(g).any() for g in self.groups)

    def missing(self, group: _Group) -> np.ndarray:
        """Give the live members that are not at the instruction."""
        together = group.lanes.copy()
        for other in self.partners(group):
            together |= other.lanes
        return group.members & self.warp.live & ~together

    def partners(self, group: _Group) -> list[_Group]:
        """Give groups of other paths at the same instruction with the same mask."""
        out = []
        for path in self.warp.paths:
            wait = path.wait
            if (
                isinstance(wait, _Meet)
                and wait is not self
                and wait.at is self.at
                and (wait.frame is self.frame)
            ):
                out += [
                    g
                    for g in wait.groups
                    if not g.done and g.members.tobytes() == group.members.tobytes()
                ]
        return out

    def resume(self, warp: Any) -> None:
        for group in self.groups:
            if group.done:
                continue
            lanes = group.lanes.copy()
            for other in self.partners(group):
                lanes |= other.lanes
                other.done = True
            warp.machine.events += 1
            self.run(warp, self.at, lanes)

    def describe(self) -> str:
        missing = np.zeros(LANES, bool)
        for group in self.groups:
            if not group.done:
                missing |= self.missing(group)
        return (
            f"`{self.at.text}` waits for lanes {mask_bits(missing):#010x} of its member mask, "
            f"which are elsewhere"
        )


def _collective(mask_position: int, run: Callable) -> Callable:
    """Make a handler that checks the member masks and meets all members.

    Lanes with different masks (tiles of cooperative groups) execute independently.
    """

    def execute(warp: Any, ins: Instruction) -> Wait | None:
        operand = ins.operands[mask_position]
        active = warp.active
        if isinstance(operand, Imm):
            parts = [(operand.value & 0xFFFFFFFF, active)]
        else:
            masks = warp.read(operand)
            first = int(masks[warp.lane])
            parts = [(first, active)]
            if (masks[active] != first).any():
                parts = [(v, active & (masks == v)) for v in np.unique(masks[active]).tolist()]
        waiting = []
        for bits, lanes in parts:
            members = lanes_of(bits)
            outside = lanes & ~members
            if outside.any():
                lane = int(outside.argmax())
                warp.machine.finding(
                    "sync-mask",
                    f"`{ins.text}`: lane {lane} executes it, but its member mask "
                    f"{bits:#010x} does not contain it",
                    ins=ins,
                    warp=warp,
                    lanes=1 << lane,
                )
            if (members & warp.live & ~lanes).any():
                waiting.append(_Group(lanes.copy(), members))
            else:
                run(warp, ins, lanes)
        return _Meet(warp, ins, waiting, run) if waiting else None

    return execute


def _note(warp: Any, ins: Instruction, lanes: np.ndarray) -> None:
    hooks = warp.machine.hooks
    hooks.warp_sync(warp, lanes, ins)


def _shfl(warp: Any, ins: Instruction, lanes: np.ndarray) -> None:
    """``shfl.sync.mode.b32 d{|p}, a, b, c, mask``."""
    _note(warp, ins, lanes)
    dst, a, b, c = ins.operands[:4]
    mode = ins.parts[2]
    value = warp.read(a, np.uint32)
    shift = (warp.read(b, np.uint32) & np.uint32(31)).astype(np.int64)
    control = warp.read(c, np.uint32).astype(np.int64)
    segment, clamp = (control >> 8) & 31, control & 31
    low = LANE & segment
    high = low | (clamp & ~segment)
    if mode == "up":
        source = LANE - shift
        good = source >= high
    elif mode == "down":
        source = LANE + shift
        good = source <= high
    elif mode == "bfly":
        source = LANE ^ shift
        good = source <= high
    else:
        source = low | (shift & ~segment)
        good = source <= high
    source = np.where(good, source, LANE) & 31
    absent = ~lanes[source] & lanes
    if absent.any():
        lane = int(absent.argmax())
        warp.machine.finding(
            "shuffle-inactive",
            f"`{ins.text}`: lane {lane} reads lane {int(source[lane])}, which "
            f"does not take part; its value is undefined",
            ins=ins,
            warp=warp,
            lanes=1 << lane,
        )
    result = value[source]
    first, second = (dst.first, dst.second) if isinstance(dst, Pair) else (dst, Sink())
    warp.write(first, result, lanes)
    warp.write(second, good, lanes)


def _vote(warp: Any, ins: Instruction, lanes: np.ndarray) -> None:
    """``vote.sync.{all,any,uni}.pred`` and ``.ballot.b32``."""
    _note(warp, ins, lanes)
    mode = ins.parts[2]
    values = warp.predicate(ins.operands[1]) & lanes
    if mode == "ballot":
        warp.write(ins.operands[0], mask_bits(values), lanes)
        return
    some, every = bool(values.any()), bool((values | ~lanes).all())
    result = {"any": some, "all": every, "uni": every or not some}[mode]
    warp.write(ins.operands[0], result, lanes)


def _match(warp: Any, ins: Instruction, lanes: np.ndarray) -> None:
    """``match.{any,all}.sync.{b32,b64}``."""
    _note(warp, ins, lanes)
    wide = np.uint64 if ins.parts[-1] == "b64" else np.uint32
    values = warp.read(ins.operands[1], wide)
    dst = ins.operands[0]
    if ins.parts[1] == "any":
        out = np.zeros(LANES, np.uint32)
        for lane in np.nonzero(lanes)[0]:
            out[lane] = mask_bits(lanes & (values == values[lane]))
        warp.write(dst, out, lanes)
        return
    chosen = values[lanes]
    same = bool((chosen == chosen[0]).all())
    first, second = (dst.first, dst.second) if isinstance(dst, Pair) else (dst, Sink())
    warp.write(first, mask_bits(lanes) if same else 0, lanes)
    warp.write(second, same, lanes)


def _redux(warp: Any, ins: Instruction, lanes: np.ndarray) -> None:
    """``redux.sync``."""
    _note(warp, ins, lanes)
    kind = ins.parts[-1]
    op = next(p for p in ins.parts if p in ("add", "min", "max", "and", "or", "xor"))
    dst, a = ins.operands[:2]
    if kind == "f32":
        values = warp.read(a, np.float32)[lanes]
        if "abs" in ins.mods:
            values = np.abs(values)
        nan = np.isnan(values)
        if ("NaN" in ins.mods and nan.any()) or nan.all():
            result: Any = np.float32(floats.NAN32)
        else:
            values = values[~nan]
            order = np.lexsort((~np.signbit(values), values))
            result = values[order[-1] if op == "max" else order[0]]
        warp.write(dst, np.full(LANES, result, np.float32), lanes)
        return
    dtype = np.int32 if kind == "s32" else np.uint32
    values = warp.read(a, dtype)[lanes]
    function = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }[op]
    result = function.reduce(values, dtype=dtype)
    warp.write(dst, np.full(LANES, result, dtype), lanes)


def _elect(warp: Any, ins: Instruction, lanes: np.ndarray) -> None:
    """``elect.sync d|p, mask``: the lowest lane is elected."""
    from .sync_barriers import report_lanes

    _note(warp, ins, lanes)
    dst = ins.operands[0]
    leader = int(lanes.argmax())
    members = int(warp.read(ins.operands[1])[leader]) & mask_bits(warp.born)
    if members & ~mask_bits(warp.live):
        rule = "it needs every lane of its member mask"
        report_lanes(warp, ins, "elect.sync", mask_bits(lanes), members, rule)
    first, second = (dst.first, dst.second) if isinstance(dst, Pair) else (Sink(), dst)
    warp.write(first, leader, lanes)
    warp.write(second, LANE == leader, lanes)


def _barrier(warp: Any, ins: Instruction, lanes: np.ndarray) -> None:
    """``bar.warp.sync``."""
    _note(warp, ins, lanes)


def _check_shfl(ins: Instruction) -> None:
    if ins.parts[1] != "sync" or ins.parts[2] not in ("up", "down", "bfly", "idx"):
        ins.unmodelled("only shfl.sync.{up,down,bfly,idx}.b32")


def _check_vote(ins: Instruction) -> None:
    if ins.parts[1] != "sync" or ins.parts[2] not in ("all", "any", "uni", "ballot"):
        ins.unmodelled("only vote.sync.{all,any,uni,ballot}")


handler("shfl", check=_check_shfl)(_collective(4, _shfl))
handler("vote", check=_check_vote)(_collective(2, _vote))
handler("match")(_collective(2, _match))
handler("redux")(_collective(2, _redux))
handler("elect")(_collective(1, _elect))
handler("bar.warp.sync")(_collective(0, _barrier))


@handler("movmatrix")
def movmatrix(warp: Any, ins: Instruction) -> None:
    """``movmatrix``: transpose an 8x8 b16 fragment; the whole warp must be converged."""
    from .sync_barriers import check_converged

    check_converged(warp, ins, "movmatrix")
    warp.write(ins.operands[0], matrix_moves.movmatrix(warp.read(ins.operands[1], np.uint32)))


@handler("activemask")
def activemask(warp: Any, ins: Instruction) -> None:
    """``activemask.b32``."""
    warp.write(ins.operands[0], mask_bits(warp.active))


@handler("nanosleep")
def nanosleep(warp: Any, ins: Instruction) -> None:
    """``nanosleep``: lets the scheduler switch; time moves on."""
    warp.machine.clock += warp.scalar(ins.operands[0])


@handler("griddepcontrol")
def griddepcontrol(warp: Any, ins: Instruction) -> None:
    """``griddepcontrol``: a single launch has nothing to wait for."""


def member_operand(ins: Instruction) -> Operand:
    """Give the member-mask operand (the last one)."""
    return ins.operands[-1]
