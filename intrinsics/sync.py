"""sync: electing a lane, named barriers, warp operations, registers per thread, dependent launch.

A block has 16 named barriers; id 0 is the one of ``cuda.syncthreads()``. A barrier counts whole
warps: ``threads`` is the number of threads of all participating warps, those that arrive and those
that wait, and every participant of one round gives the same number. It orders ordinary accesses of
its participants (the generic proxy), not asynchronous copies. Producer and consumer: the producers
call :func:`barrier_arrive`, the consumers :func:`barrier_sync`, both with the total.

Functions with a ``mask`` are executed by all lanes in the mask together; ``aligned`` ones by whole
warps. Write a single-thread section of a warp as ``if sync.elect():`` rather than by a lane
number: the compiler then knows that one lane runs, which uniform instructions need.

Not covered: votes, matches and shuffles without ``.sync``, which do not exist on these targets;
``bar.cta`` and ``bar`` spellings of the same barriers; the negated predicate of ``barrier.red``;
``pmevent``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from nbtc.arch import TCGEN05
from nbtc.intrinsics.sections import MISCELLANEOUS, PARALLEL, TYPE_KINDS
from nbtc.ptx.kinds import (
    F32,
    U32,
    U32_KIND,
    Imm,
    Kind,
    Pred,
    chosen,
)
from nbtc.ptx.spec import Variant, ptx

BarrierId = Annotated[int, U32_KIND, Imm(0, 15)]
Threads = Annotated[int, U32_KIND, Imm(32, 1024, 32)]
Aligned = Literal[True, False]
ALL = 0xFFFFFFFF
"""Mask of all 32 lanes."""

BARRIER = PARALLEL + ": bar / barrier"


@ptx(
    "elect.sync _|{ret}, {mask};",
    isa=(8, 0),
    arch="sm_90",
    effects="memory convergent",
    section=PARALLEL + ": elect.sync",
)
def elect(mask: U32 = ALL) -> Pred:
    """Return True in exactly one lane of ``mask``, the same one for the same mask.

    Args:
        mask: lanes that take part; all by default.

    Executes: all lanes in ``mask`` together. Which lane is elected is not specified.
    """
    ...


@ptx(
    "elect.sync {ret0}|{ret1}, {mask};",
    isa=(8, 0),
    arch="sm_90",
    effects="memory convergent",
    section=PARALLEL + ": elect.sync",
)
def elect_lane(mask: U32 = ALL) -> tuple[U32, Pred]:
    """Return the lane that is elected and whether this thread is it.

    Args:
        mask: lanes that take part; all by default.

    Executes: all lanes in ``mask`` together.
    """
    ...


@ptx(
    "barrier.sync{.aligned} {id}{, threads};",
    isa=(7, 0),
    arch="sm_80",
    effects="memory convergent",
    section=BARRIER,
)
def barrier_sync(id: BarrierId, threads: Threads | None = None, *, aligned: Aligned = True) -> None:
    """Arrive on a named barrier of the block and wait for all its participants.

    Args:
        id: 0 to 15.
        threads: threads of all participating warps, a multiple of 32; all of the block when left
            out.
        aligned: all threads of the warp execute it together.

    Executes: whole warps. Completion: the participants' earlier ordinary accesses are visible.
    """
    ...


@ptx(
    "barrier.arrive{.aligned} {id}, {threads};",
    isa=(7, 0),
    arch="sm_80",
    effects="memory convergent",
    section=BARRIER,
)
def barrier_arrive(id: BarrierId, threads: Threads, *, aligned: Aligned = True) -> None:
    """Arrive on a named barrier of the block without waiting.

    Args:
        id: 0 to 15.
        threads: threads of all participating warps, the waiting ones included.
        aligned: all threads of the warp execute it together.

    Executes: whole warps. It does not wait, so a second arrival of the same warp needs a barrier
    in between.
    """
    ...


@ptx(
    "barrier.red.popc{.aligned}.u32 {ret}, {id}{, threads}, {predicate};",
    isa=(7, 0),
    arch="sm_80",
    effects="memory convergent",
    section=BARRIER,
)
def barrier_red_popc(
    id: BarrierId, predicate: Pred, threads: Threads | None = None, *, aligned: Aligned = True
) -> U32:
    """Wait on a named barrier and return in how many threads ``predicate`` is true.

    Args:
        id: 0 to 15.
        predicate: this thread's vote.
        threads: threads of all participating warps; all of the block when left out.
        aligned: all threads of the warp execute it together.

    Executes: whole warps.
    """
    ...


@ptx(
    "barrier.red.{op}{.aligned}.pred {ret}, {id}{, threads}, {predicate};",
    isa=(7, 0),
    arch="sm_80",
    effects="memory convergent",
    section=BARRIER,
)
def barrier_red(
    id: BarrierId,
    predicate: Pred,
    threads: Threads | None = None,
    *,
    op: Literal["and", "or"],
    aligned: Aligned = True,
) -> Pred:
    """Wait on a named barrier and return whether ``predicate`` is true in all, or in any, thread.

    Args:
        id: 0 to 15.
        predicate: this thread's vote.
        threads: threads of all participating warps; all of the block when left out.
        op: ``"and"`` for all, ``"or"`` for any.
        aligned: all threads of the warp execute it together.

    Executes: whole warps.
    """
    ...


@ptx(
    "bar.warp.sync {mask};",
    isa=(7, 0),
    arch="sm_80",
    effects="memory convergent",
    section=PARALLEL + ": bar.warp.sync",
)
def warp_sync(mask: U32 = ALL) -> None:
    """Wait for the lanes in ``mask`` and make their ordinary accesses visible to each other.

    Args:
        mask: lanes that take part, the caller among them; all by default.

    Executes: all lanes in ``mask``.
    """
    ...


_SETMAXNREG = ("sm_90a", *TCGEN05)
Registers = Annotated[int, Imm(24, 256, 8)]


@ptx(
    "setmaxnreg.inc.sync.aligned.u32 {n};",
    isa=(8, 0),
    arch=_SETMAXNREG,
    effects="memory convergent",
    section=MISCELLANEOUS + ": setmaxnreg",
)
def setmaxnreg_inc(n: Registers) -> None:
    """Raise the registers of each thread to ``n``, waiting until the block's pool has them.

    Ignored by ptxas unless the kernel has launch bounds with a minimum of blocks.

    Args:
        n: 24 to 256 in steps of 8.

    Executes: all warps of a warpgroup, each as a whole.
    """
    ...


@ptx(
    "setmaxnreg.dec.sync.aligned.u32 {n};",
    isa=(8, 0),
    arch=_SETMAXNREG,
    effects="memory convergent",
    section=MISCELLANEOUS + ": setmaxnreg",
)
def setmaxnreg_dec(n: Registers) -> None:
    """Give registers back to the block's pool, keeping ``n`` for each thread.

    Args:
        n: 24 to 256 in steps of 8, at most what the kernel was compiled for.

    Executes: all warps of a warpgroup, each as a whole.
    """
    ...


@ptx(
    "griddepcontrol.launch_dependents;",
    isa=(7, 8),
    arch="sm_90",
    section=PARALLEL + ": griddepcontrol",
)
def launch_dependents() -> None:
    """Allow the next kernel to be launched once all blocks have said so or have finished.

    It orders no memory: the next kernel must :func:`grid_wait`.

    Executes: any thread of each block; the first call of a block counts.
    """
    ...


@ptx("griddepcontrol.wait;", isa=(7, 8), arch="sm_90", section=PARALLEL + ": griddepcontrol")
def grid_wait() -> None:
    """Wait until the kernels that this one depends on are complete and their memory is visible.

    Returns at once in a launch without programmatic dependence.

    Executes: each thread that uses their results.
    """
    ...


@ptx(
    "nanosleep.u32 {ns};",
    isa=(7, 0),
    arch="sm_80",
    effects="volatile",
    section=MISCELLANEOUS + ": nanosleep",
)
def nanosleep(ns: U32) -> None:
    """Sleep for about ``ns`` nanoseconds.

    Args:
        ns: the sleep takes 0 to twice that, at most 1 ms.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "activemask.b32 {ret};",
    isa=(7, 0),
    arch="sm_80",
    effects="volatile convergent",
    section=PARALLEL + ": activemask",
)
def activemask() -> U32:
    """Return the lanes that are executing this very instruction.

    It synchronises nothing and promises nothing about the next instruction.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "vote.sync.{op}.pred {ret}, {predicate}, {mask};",
    isa=(7, 0),
    arch="sm_80",
    effects="memory convergent",
    section=PARALLEL + ": vote.sync",
)
def vote(predicate: Pred, mask: U32 = ALL, *, op: Literal["all", "any", "uni"]) -> Pred:
    """Return whether ``predicate`` is true in all or any lane, or the same in all lanes (uni).

    Args:
        predicate: this lane's vote.
        mask: lanes that take part.
        op: the question.

    Executes: all lanes in ``mask`` together.
    """
    ...


@ptx(
    "vote.sync.ballot.b32 {ret}, {predicate}, {mask};",
    isa=(7, 0),
    arch="sm_80",
    effects="memory convergent",
    section=PARALLEL + ": vote.sync",
)
def vote_ballot(predicate: Pred, mask: U32 = ALL) -> U32:
    """Return the mask of lanes in which ``predicate`` is true.

    Args:
        predicate: this lane's vote.
        mask: lanes that take part; others give 0.

    Executes: all lanes in ``mask`` together.
    """
    ...


def _kind(v: Variant) -> Kind:
    return TYPE_KINDS[v.type]


@ptx(
    "match.any.sync.{type} {ret}, {value}, {mask};",
    isa=(7, 0),
    arch="sm_80",
    effects="memory convergent",
    section=PARALLEL + ": match.sync",
)
def match_any(
    value: Annotated[int, chosen(_kind)], mask: U32 = ALL, *, type: Literal["b32", "b64"] = "b32"
) -> U32:
    """Return the mask of lanes that hold the same value as this one.

    Args:
        value: this lane's value.
        mask: lanes that take part.
        type: width of the value.

    Executes: all lanes in ``mask`` together.
    """
    ...


@ptx(
    "match.all.sync.{type} {ret0}|{ret1}, {value}, {mask};",
    isa=(7, 0),
    arch="sm_80",
    effects="memory convergent",
    section=PARALLEL + ": match.sync",
)
def match_all(
    value: Annotated[int, chosen(_kind)], mask: U32 = ALL, *, type: Literal["b32", "b64"] = "b32"
) -> tuple[U32, Pred]:
    """Return ``(mask, True)`` if all lanes hold the same value, else ``(0, False)``.

    Args:
        value: this lane's value.
        mask: lanes that take part.
        type: width of the value.

    Executes: all lanes in ``mask`` together.
    """
    ...


def _redux_check(v: Variant) -> str | None:
    legal = ("b32",) if v.op in ("and", "or", "xor") else ("u32", "s32")
    if v.type in legal:
        return None
    return f"op={v.op!r} with type={v.type!r}: {v.op} takes {' or '.join(map(repr, legal))}"


@ptx(
    "redux.sync.{op}.{type} {ret}, {value}, {mask};",
    isa=(7, 0),
    arch="sm_80",
    check=_redux_check,
    effects="memory convergent",
    section=PARALLEL + ": redux.sync",
)
def redux(
    value: Annotated[int, chosen(_kind)],
    mask: U32 = ALL,
    *,
    op: Literal["add", "min", "max", "and", "or", "xor"],
    type: Literal["u32", "s32", "b32"] = "u32",
) -> Annotated[int, chosen(_kind)]:
    """Return the values of all lanes in ``mask`` combined.

    Args:
        value: this lane's value.
        mask: lanes that take part.
        op: the operation; ``add`` wraps.
        type: ``"u32"`` or ``"s32"`` for arithmetic, ``"b32"`` for bitwise operations.

    Executes: all lanes in ``mask`` together.
    """
    ...


@ptx(
    "redux.sync.{op}{.abs}{.NaN}.f32 {ret}, {value}, {mask};",
    isa=(8, 6),
    arch=TCGEN05,
    effects="memory convergent",
    section=PARALLEL + ": redux.sync",
)
def redux_f32(
    value: F32,
    mask: U32 = ALL,
    *,
    op: Literal["min", "max"],
    abs: Literal[False, True] = False,
    NaN: Literal[False, True] = False,
) -> F32:
    """Return the smallest or largest float32 of all lanes in ``mask``.

    Args:
        value: this lane's value.
        mask: lanes that take part.
        op: the operation; +0 is larger than -0.
        abs: compare absolute values.
        NaN: any NaN makes the result NaN; otherwise NaNs are skipped.

    Executes: all lanes in ``mask`` together.
    """
    ...


@ptx(
    "shfl.sync.{mode}.b32 {ret0}|{ret1}, {value}, {lane}, {clamp}, {mask};",
    isa=(7, 0),
    arch="sm_80",
    effects="memory convergent",
    section=PARALLEL + ": shfl.sync",
)
def shfl(
    value: U32,
    lane: U32,
    clamp: U32 = 31,
    mask: U32 = ALL,
    *,
    mode: Literal["idx", "up", "down", "bfly"] = "idx",
) -> tuple[U32, Pred]:
    """Return the value of another lane, and whether that lane was in range.

    ``cuda.shfl_sync`` and its kin move other types; this is the instruction as it is.

    Args:
        value: this lane's 32 bits.
        lane: source lane, distance, or XOR mask.
        clamp: last lane in bits 0-4 (0 for ``"up"``, else 31), segment mask in bits 8-12.
        mask: lanes that take part.
        mode: what ``lane`` means.

    Executes: all lanes in ``mask`` together; a source outside ``mask`` gives rubbish.
    """
    ...


@ptx("trap;", isa=(7, 0), arch="sm_80", section=MISCELLANEOUS + ": trap")
def trap() -> None:
    """Abort the kernel; the host sees an error and the context is lost.

    Executes: any thread.
    """
    ...


@ptx("brkpt;", isa=(7, 0), arch="sm_80", section=MISCELLANEOUS + ": brkpt")
def brkpt() -> None:
    """Stop in the debugger.

    Executes: any thread.
    """
    ...


@ptx("exit;", isa=(7, 0), arch="sm_80", section="9.7.12 Control Flow Instructions: exit")
def exit() -> None:
    """End this thread; it counts as gone for barriers and masks.

    Executes: each thread on its own.
    """
    ...
