"""Sums over the CTAs of a cluster: accumulators that one CTA collects from its peers (split-K)."""

from __future__ import annotations

from typing import Any

from numba.cuda import types

from nbtc.errors import InstructionError
from nbtc.ptx.staging import Emitter, Value, staged

BYTES = 16
"""Of one access: four float32."""


def _check(name: str, d: Any, threads: int) -> None:
    if not isinstance(d, types.UniTuple) or d.dtype != types.float32 or len(d) % 4:
        raise InstructionError(
            f"reduction.{name}: d is {d}, needs float32 accumulators, a multiple of 4 of them"
        )
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise InstructionError(
            f"reduction.{name}: threads={threads!r}; needs the number of threads that call it"
        )


def _returns_send(d: Any, address: Any, bar: Any, threads: Any) -> Any:
    _check("send", d, threads)
    return types.none


@staged(_returns_send, constants=("threads",))
def send(e: Emitter, d: Any, address: Any, bar: Any, threads: int) -> None:
    """Write a thread's accumulators to shared memory of another CTA, by ``st.async``.

    Executed by ``threads`` threads, each with an address of its own. Completion: the mbarrier, with
    ``4 * len(d)`` bytes of each thread.

    Args:
        e: given by the compiler.
        d: float32 accumulators, a multiple of 4.
        address: cluster address of the place of the thread's first 16 bytes: that of ``threads *
            len(d)`` float32 plus 16 times the number of the thread. The next 16 bytes go ``16 *
            threads`` bytes further, so that a warp writes whole lines.
        bar: cluster address of an mbarrier in the same CTA as ``address``.
        threads: number of threads that call it, a compile-time constant.
    """
    from nbtc.intrinsics import cluster

    for i in range(0, len(d), 4):
        place = address + i // 4 * BYTES * threads
        e.call(cluster.st_async, place, d[i : i + 4], bar, type="f32", vec="v4")


def _returns_add(d: Any, address: Any, count: Any, threads: Any) -> Any:
    _check("add", d, threads)
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InstructionError(
            f"reduction.add: count={count!r}; needs the number of CTAs that sent"
        )
    return d


@staged(_returns_add, constants=("count", "threads"))
def add(e: Emitter, d: Any, address: Any, count: int, threads: int) -> Any:
    """Return a thread's accumulators plus those that ``count`` other CTAs sent, in their order.

    Executed by ``threads`` threads, each with an address of its own, after the mbarrier of
    :func:`send`.

    Args:
        e: given by the compiler.
        d: float32 accumulators, as many as each CTA sent.
        address: shared address of what the first CTA sent, plus 16 times the number of the thread;
            what the others sent follows.
        count: CTAs that sent, a compile-time constant.
        threads: number of threads that sent, a compile-time constant.
    """
    from nbtc.intrinsics import memory

    sums = list(d)
    for source in range(count):
        for i in range(0, len(d), 4):
            place = address + (source * len(d) * 4 * threads + i // 4 * BYTES * threads)
            for j, part in enumerate(e.call(memory.ld_shared, place, type="f32", vec="v4")):
                total = e.builder.fadd(sums[i + j].llvm, part.llvm)
                sums[i + j] = Value(e, types.float32, total)
    return e.tuple(sums)
