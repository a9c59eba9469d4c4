"""fence: what makes accesses of one thread, or of one proxy, visible to another.

Ordinary loads and stores go through the generic proxy; TMA, bulk copies, wgmma and tcgen05 read
and write shared memory through the async proxy. A barrier orders threads, not proxies: data that
stores wrote and a TMA store or an MMA shall read needs :func:`proxy_async` by each writing thread,
then a barrier. Data that TMA loaded needs nothing beyond the wait on its mbarrier.

What they cost on sm_90a and sm_100a (ptxas 13.5):

====================================================  ==============================================
``proxy_async()``                                     ``MEMBAR.ALL.CTA`` and a proxy fence
``proxy_async(space="global")``                       the proxy fence only
``proxy_async(space="shared::cluster")``, ``_all``    ``MEMBAR.ALL.GPU`` and a proxy fence
``acq_rel(scope="cta")``                              ``MEMBAR.ALL.CTA``
``acq_rel`` of a wider scope                          ``MEMBAR.ALL.GPU`` and an L1 invalidate
``acquire`` of a wider scope                          the L1 invalidate only
``mbarrier_init()``                                   nothing
====================================================  ==============================================

Every function is executed by each thread whose accesses it shall order, and is complete when it
returns.

Not covered: ``membar``, which is ``fence.sc`` in older words.
"""

from __future__ import annotations

from typing import Literal

from nbtc.intrinsics.sections import PARALLEL, Scope
from nbtc.ptx.kinds import Generic
from nbtc.ptx.spec import Isa, ptx

SECTION = PARALLEL + ": membar / fence"


@ptx("fence.proxy.async.{space};", isa=(8, 0), arch="sm_90", section=SECTION)
def proxy_async(
    *, space: Literal["shared::cta", "shared::cluster", "global"] = "shared::cta"
) -> None:
    """Order this thread's ordinary accesses and the async proxy, in both directions.

    Args:
        space: memory that it covers. The default is this CTA's shared memory and is cheap;
            ``"shared::cluster"`` costs a MEMBAR.ALL.GPU.

    Executes: each thread whose accesses shall be ordered, before the barrier.
    """
    ...


@ptx("fence.proxy.async;", isa=(8, 0), arch="sm_90", section=SECTION)
def proxy_async_all() -> None:
    """Order this thread's ordinary accesses and the async proxy in all state spaces.

    Costs a MEMBAR.ALL.GPU: prefer :func:`proxy_async`.

    Executes: each thread whose accesses shall be ordered.
    """
    ...


@ptx(
    "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;",
    isa=(8, 6),
    arch="sm_90",
    section=SECTION,
)
def proxy_async_acquire() -> None:
    """One-way: later async-proxy accesses to shared memory of the cluster stay behind it.

    The pair of :func:`proxy_async_release`.

    Executes: the thread that issues the async operations.
    """
    ...


@ptx(
    "fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;",
    isa=(8, 6),
    arch="sm_90",
    section=SECTION,
)
def proxy_async_release() -> None:
    """One-way: this thread's earlier accesses to its CTA's shared memory stay before it.

    Executes: each thread whose accesses shall be ordered.
    """
    ...


@ptx(
    "fence.acquire.sync_restrict::shared::cluster.cluster;",
    isa=(8, 6),
    arch="sm_90",
    section=SECTION,
)
def acquire_sync_restrict() -> None:
    """Acquire at cluster scope through synchronising objects in shared memory of the cluster.

    Together with relaxed waits on an mbarrier.

    Executes: each thread that shall see the data.
    """
    ...


@ptx("fence.release.sync_restrict::shared::cta.cluster;", isa=(8, 6), arch="sm_90", section=SECTION)
def release_sync_restrict() -> None:
    """Release at cluster scope through synchronising objects in shared memory of this CTA.

    Together with relaxed arrives on an mbarrier.

    Executes: each thread whose accesses shall be ordered.
    """
    ...


@ptx("fence.mbarrier_init.release.cluster;", isa=(8, 0), arch="sm_90", section=SECTION)
def mbarrier_init() -> None:
    """Make this thread's earlier ``mbarrier.init`` visible to the cluster.

    A cluster barrier (arrive and wait) must follow before another CTA uses the barriers.

    Executes: the thread that initialised them.
    """
    ...


@ptx("fence.proxy.tensormap::generic.release.{scope};", isa=(8, 3), arch="sm_90", section=SECTION)
def tensormap_release(*, scope: Scope = "gpu") -> None:
    """Make this thread's earlier changes of a tensor map in memory available to TMA.

    Args:
        scope: threads that will use the map.

    Executes: the thread that wrote the map.
    """
    ...


@ptx(
    "fence.proxy.tensormap::generic.acquire.{scope} [{tensor_map}], 128;",
    isa=(8, 3),
    arch="sm_90",
    section=SECTION,
)
def tensormap_acquire(tensor_map: Generic, *, scope: Scope = "gpu") -> None:
    """Make a tensor map that was changed in global memory fit for use by this thread.

    Each block needs it before its first use of the map. A map that is a kernel argument needs
    none.

    Args:
        tensor_map: address of the 128 bytes.
        scope: where the writer is; ``"sys"`` when the host wrote it.

    Executes: the thread that issues the copies.
    """
    ...


@ptx(
    "fence.acq_rel.{scope};",
    isa=lambda v: _isa(v.scope),
    arch=lambda v: _arch(v.scope),
    section=SECTION,
)
def acq_rel(*, scope: Scope) -> None:
    """Order this thread's earlier accesses before its later ones, as seen by ``scope``.

    Args:
        scope: ``"cta"`` is cheap; the others cost a MEMBAR.ALL.GPU and invalidate L1.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "fence.sc.{scope};", isa=lambda v: _isa(v.scope), arch=lambda v: _arch(v.scope), section=SECTION
)
def sc(*, scope: Scope) -> None:
    """Order like :func:`acq_rel`, and put all such fences into one total order.

    Args:
        scope: threads among which the order holds.

    Executes: each thread on its own.
    """
    ...


@ptx("fence.acquire.{scope};", isa=(8, 6), arch="sm_90", section=SECTION)
def acquire(*, scope: Scope) -> None:
    """Keep this thread's later accesses behind its earlier strong reads.

    Args:
        scope: threads among which the order holds; beyond ``"cta"`` it invalidates L1.

    Executes: each thread on its own.
    """
    ...


@ptx("fence.release.{scope};", isa=(8, 6), arch="sm_90", section=SECTION)
def release(*, scope: Scope) -> None:
    """Keep this thread's earlier accesses before its later strong writes.

    Args:
        scope: threads among which the order holds; beyond ``"cta"`` it costs a MEMBAR.ALL.GPU.

    Executes: each thread on its own.
    """
    ...


@ptx("fence.proxy.alias;", isa=(7, 5), arch="sm_80", section=SECTION)
def proxy_alias() -> None:
    """Order accesses to one memory location through different virtual addresses.

    Executes: each thread on its own.
    """
    ...


def _isa(scope: str) -> Isa:
    return (7, 8) if scope == "cluster" else (7, 0)


def _arch(scope: str) -> str:
    return "sm_90" if scope == "cluster" else "sm_80"
