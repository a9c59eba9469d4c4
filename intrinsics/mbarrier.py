"""mbarrier: barriers in shared memory that count arrivals of threads and bytes of async copies.

An mbarrier is 8 bytes of shared memory, 8-byte aligned, that only these functions may touch. It
holds a phase, the arrivals still pending in it, and a signed count of bytes (tx-count). A phase
completes when no arrival is pending and the tx-count is zero; the next phase then starts with the
same number of arrivals. A fresh barrier is in phase 0, so waiting for parity 1 returns at once and
for parity 0 blocks: a consumer of full stages starts with parity 0, a producer that waits for empty
ones with parity 1.

One stage fed by TMA::

    mbarrier.arrive_expect_tx(full, bytes)  # one thread, count 1
    tma.load(dst, tensor_map, (x, y), full)
    ...
    while not mbarrier.try_wait_parity(full, parity):
        pass

Every function is executed by each thread on its own: a whole warp that calls ``arrive`` arrives 32
times. ``sem`` and ``scope`` are given together or not at all; the defaults (release or acquire at
CTA scope) cost nothing extra. An arrive with ``sem="release", scope="cluster"`` costs a
``MEMBAR.ALL.GPU`` also on a local barrier; the remote forms without ``sem`` do not.

Only the CTA that owns a barrier may initialise it or wait on it. Another CTA of the cluster has
:func:`arrive_remote`, :func:`arrive_expect_tx_remote`, the drop forms, :func:`expect_tx_remote` and
:func:`complete_tx_remote`.

Not covered: spellings without ``::cta`` and generic addresses, which name the same operations, and
the sink ``_`` on local barriers (an unused state costs no register).
"""

from __future__ import annotations

from typing import Annotated, Literal

from nbtc.intrinsics.sections import PARALLEL
from nbtc.ptx.kinds import U32, U32_KIND, U64, Cluster, Imm, Pred, Shared
from nbtc.ptx.spec import Isa, Variant, ptx

Count = Annotated[int, U32_KIND, Imm(1, 1048575)]
Bytes = Annotated[int, U32_KIND, Imm(0, 1048575)]
Parity = Annotated[int, U32_KIND, Imm(0, 1)]

SECTION = PARALLEL + ": mbarrier"


def _sem_with_scope(v: Variant) -> str | None:
    if bool(v.sem) != bool(v.scope):
        return f"sem={v.sem!r} with scope={v.scope!r}: give both or neither"
    return None


def _isa(v: Variant) -> Isa:
    if v.sem == "relaxed" and v.scope:
        return (8, 6)
    return (8, 0)


def _wait_isa(v: Variant) -> Isa:
    return _isa(v) if v.sem else (7, 8)


def _arrive_isa(v: Variant) -> Isa:
    return _isa(v) if v.sem else (7, 8)


def _arch(v: Variant) -> str:
    return "sm_90" if v.scope == "cluster" or v.sem == "relaxed" else "sm_80"


def _arrive_arch(v: Variant) -> str:
    return "sm_90" if v.has("count") else _arch(v)


@ptx(
    "mbarrier.init.shared::cta.b64 [{bar}], {count};",
    isa=(7, 8),
    arch="sm_80",
    section=SECTION + ".init",
)
def init(bar: Shared, count: Count) -> None:
    """Make ``bar`` a barrier in phase 0 that expects ``count`` arrivals a phase.

    Others may use the barrier after a synchronisation: a CTA barrier inside the CTA; for a cluster
    ``fence.mbarrier_init`` by this thread and then a cluster barrier. The async proxy needs no
    fence of its own. A live barrier in that place must be invalidated first.

    Args:
        bar: address of 8 bytes, 8-byte aligned.
        count: arrivals a phase, 1 to 1048575.

    Executes: one thread.
    """
    ...


@ptx(
    "mbarrier.inval.shared::cta.b64 [{bar}];", isa=(7, 8), arch="sm_80", section=SECTION + ".inval"
)
def inval(bar: Shared) -> None:
    """End the life of a barrier, so that its memory may hold something else.

    Not needed at the end of a kernel.

    Args:
        bar: the barrier; nobody may be using it.

    Executes: one thread.
    """
    ...


@ptx(
    "mbarrier.arrive{.sem}{.scope}.shared::cta.b64 {ret}, [{bar}]{, count};",
    isa=_arrive_isa,
    arch=_arrive_arch,
    check=_sem_with_scope,
    section=SECTION + ".arrive",
)
def arrive(
    bar: Shared,
    count: Count | None = None,
    *,
    sem: Literal["", "release", "relaxed"] = "",
    scope: Literal["", "cta", "cluster"] = "",
) -> U64:
    """Arrive on a barrier of this CTA and return the state of the phase arrived in.

    Accesses of this thread before it are visible to whoever waits for the phase.

    Args:
        bar: the barrier.
        count: arrivals to make at once; 1 when left out.
        sem: ``"relaxed"`` orders nothing; ``""`` is release at CTA scope.
        scope: threads that the release reaches; ``"cluster"`` costs a MEMBAR.ALL.GPU.

    Returns:
        The state, for :func:`test_wait` and :func:`try_wait`. Unused, it costs nothing.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "mbarrier.arrive.expect_tx{.sem}{.scope}.shared::cta.b64 {ret}, [{bar}], {tx_bytes};",
    isa=_isa,
    arch="sm_90",
    check=_sem_with_scope,
    section=SECTION + ".arrive",
)
def arrive_expect_tx(
    bar: Shared,
    tx_bytes: Bytes,
    *,
    sem: Literal["", "release", "relaxed"] = "",
    scope: Literal["", "cta", "cluster"] = "",
) -> U64:
    """Expect ``tx_bytes`` more bytes in this phase, then arrive once.

    The usual call of a producer, before or right after it issues the copies that signal ``bar``.

    Args:
        bar: the barrier.
        tx_bytes: bytes that copies will deliver, up to 1048575. A TMA copy delivers its whole box,
            also where it is out of bounds.
        sem: ``"relaxed"`` orders nothing; ``""`` is release at CTA scope.
        scope: threads that the release reaches; ``"cluster"`` costs a MEMBAR.ALL.GPU.

    Returns:
        The state of the phase arrived in.

    Executes: each thread on its own; one thread as a rule.
    """
    ...


@ptx(
    "mbarrier.arrive{.sem}{.scope}.shared::cluster.b64 _, [{bar}]{, count};",
    isa=_isa,
    arch="sm_90",
    check=_sem_with_scope,
    section=SECTION + ".arrive",
)
def arrive_remote(
    bar: Cluster,
    count: Count | None = None,
    *,
    sem: Literal["", "release", "relaxed"] = "",
    scope: Literal["", "cta", "cluster"] = "",
) -> None:
    """Arrive on a barrier of any CTA of the cluster.

    Args:
        bar: cluster address of the barrier, from ``cluster.mapa``.
        count: arrivals to make at once; 1 when left out.
        sem: leave it out in a main loop: ``"release"`` with ``scope="cluster"`` costs a
            MEMBAR.ALL.GPU. The default is enough to hand back a buffer that was read.
        scope: threads that the release reaches.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "mbarrier.arrive.expect_tx{.sem}{.scope}.shared::cluster.b64 _, [{bar}], {tx_bytes};",
    isa=_isa,
    arch="sm_90",
    check=_sem_with_scope,
    section=SECTION + ".arrive",
)
def arrive_expect_tx_remote(
    bar: Cluster,
    tx_bytes: Bytes,
    *,
    sem: Literal["", "release", "relaxed"] = "",
    scope: Literal["", "cta", "cluster"] = "",
) -> None:
    """Expect bytes on a barrier of any CTA of the cluster, then arrive on it once.

    Args:
        bar: cluster address of the barrier.
        tx_bytes: bytes that copies will deliver, up to 1048575.
        sem: as in :func:`arrive_remote`.
        scope: as in :func:`arrive_remote`.

    Executes: each thread on its own.
    """
    ...


def _release_cta(v: Variant) -> str | None:
    if (v.sem, v.scope) not in (("", ""), ("release", "cta")):
        return f"sem={v.sem!r} with scope={v.scope!r}: give both or neither"
    return None


def _no_complete_isa(v: Variant) -> Isa:
    return (8, 0) if v.sem else (7, 8)


@ptx(
    "mbarrier.arrive.noComplete{.sem}{.scope}.shared::cta.b64 {ret}, [{bar}], {count};",
    isa=_no_complete_isa,
    arch=_arch,
    check=_release_cta,
    section=SECTION + ".arrive",
)
def arrive_no_complete(
    bar: Shared,
    count: Count,
    *,
    sem: Literal["", "release"] = "",
    scope: Literal["", "cta"] = "",
) -> U64:
    """Arrive without completing the phase; undefined if it would complete.

    Args:
        bar: the barrier.
        count: arrivals to make.
        sem: the default is release as well.
        scope: the default is the CTA as well.

    Returns:
        The state before the arrival, for :func:`pending_count`.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "mbarrier.arrive_drop{.sem}{.scope}.shared::cta.b64 {ret}, [{bar}]{, count};",
    isa=_arrive_isa,
    arch=_arrive_arch,
    check=_sem_with_scope,
    section=SECTION + ".arrive_drop",
)
def arrive_drop(
    bar: Shared,
    count: Count | None = None,
    *,
    sem: Literal["", "release", "relaxed"] = "",
    scope: Literal["", "cta", "cluster"] = "",
) -> U64:
    """Arrive, and expect that many arrivals less from the next phase on.

    Args:
        bar: the barrier.
        count: arrivals to make and to drop; 1 when left out.
        sem: ``"relaxed"`` orders nothing; ``""`` is release at CTA scope.
        scope: threads that the release reaches.

    Returns:
        The state of the phase arrived in.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "mbarrier.arrive_drop.expect_tx{.sem}{.scope}.shared::cta.b64 {ret}, [{bar}], {tx_bytes};",
    isa=_isa,
    arch="sm_90",
    check=_sem_with_scope,
    section=SECTION + ".arrive_drop",
)
def arrive_drop_expect_tx(
    bar: Shared,
    tx_bytes: Bytes,
    *,
    sem: Literal["", "release", "relaxed"] = "",
    scope: Literal["", "cta", "cluster"] = "",
) -> U64:
    """Expect bytes, arrive once, and expect one arrival less from the next phase on.

    Args:
        bar: the barrier.
        tx_bytes: bytes that copies will deliver, up to 1048575.
        sem: ``"relaxed"`` orders nothing; ``""`` is release at CTA scope.
        scope: threads that the release reaches.

    Returns:
        The state of the phase arrived in.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "mbarrier.arrive_drop{.sem}{.scope}.shared::cluster.b64 _, [{bar}]{, count};",
    isa=_isa,
    arch="sm_90",
    check=_sem_with_scope,
    section=SECTION + ".arrive_drop",
)
def arrive_drop_remote(
    bar: Cluster,
    count: Count | None = None,
    *,
    sem: Literal["", "release", "relaxed"] = "",
    scope: Literal["", "cta", "cluster"] = "",
) -> None:
    """Arrive on a barrier of any CTA of the cluster, and drop those arrivals for later phases.

    Args:
        bar: cluster address of the barrier.
        count: arrivals to make and to drop; 1 when left out.
        sem: as in :func:`arrive_remote`.
        scope: as in :func:`arrive_remote`.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "mbarrier.arrive_drop.expect_tx{.sem}{.scope}.shared::cluster.b64 _, [{bar}], {tx_bytes};",
    isa=_isa,
    arch="sm_90",
    check=_sem_with_scope,
    section=SECTION + ".arrive_drop",
)
def arrive_drop_expect_tx_remote(
    bar: Cluster,
    tx_bytes: Bytes,
    *,
    sem: Literal["", "release", "relaxed"] = "",
    scope: Literal["", "cta", "cluster"] = "",
) -> None:
    """Expect bytes on a barrier of the cluster, arrive once, and drop that arrival for later.

    Args:
        bar: cluster address of the barrier.
        tx_bytes: bytes that copies will deliver, up to 1048575.
        sem: as in :func:`arrive_remote`.
        scope: as in :func:`arrive_remote`.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "mbarrier.arrive_drop.noComplete{.sem}{.scope}.shared::cta.b64 {ret}, [{bar}], {count};",
    isa=_no_complete_isa,
    arch=_arch,
    check=_release_cta,
    section=SECTION + ".arrive_drop",
)
def arrive_drop_no_complete(
    bar: Shared,
    count: Count,
    *,
    sem: Literal["", "release"] = "",
    scope: Literal["", "cta"] = "",
) -> U64:
    """Arrive and drop without completing the phase; undefined if it would complete.

    Args:
        bar: the barrier.
        count: arrivals to make and to drop.
        sem: the default is release as well.
        scope: the default is the CTA as well.

    Returns:
        The state before the arrival, for :func:`pending_count`.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "mbarrier.expect_tx{.sem}{.scope}.shared::cta.b64 [{bar}], {tx_bytes};",
    isa=(8, 0),
    arch="sm_90",
    check=_sem_with_scope,
    section=SECTION + ".expect_tx",
)
def expect_tx(
    bar: Shared,
    tx_bytes: Bytes,
    *,
    sem: Literal["", "relaxed"] = "",
    scope: Literal["", "cta", "cluster"] = "",
) -> None:
    """Expect ``tx_bytes`` more bytes in this phase, without arriving.

    The phase still needs its arrivals: :func:`arrive_expect_tx` does both.

    Args:
        bar: the barrier.
        tx_bytes: bytes that copies will deliver, up to 1048575.
        sem: the default is relaxed as well.
        scope: the default is the CTA.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "mbarrier.expect_tx{.sem}{.scope}.shared::cluster.b64 [{bar}], {tx_bytes};",
    isa=(8, 0),
    arch="sm_90",
    check=_sem_with_scope,
    section=SECTION + ".expect_tx",
)
def expect_tx_remote(
    bar: Cluster,
    tx_bytes: Bytes,
    *,
    sem: Literal["", "relaxed"] = "",
    scope: Literal["", "cta", "cluster"] = "",
) -> None:
    """Expect bytes on a barrier of any CTA of the cluster, without arriving.

    Args:
        bar: cluster address of the barrier.
        tx_bytes: bytes that copies will deliver, up to 1048575.
        sem: the default is relaxed as well.
        scope: the default is the CTA.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "mbarrier.complete_tx{.sem}{.scope}.shared::cta.b64 [{bar}], {tx_bytes};",
    isa=(8, 0),
    arch="sm_90",
    check=_sem_with_scope,
    section=SECTION + ".complete_tx",
)
def complete_tx(
    bar: Shared,
    tx_bytes: Bytes,
    *,
    sem: Literal["", "relaxed"] = "",
    scope: Literal["", "cta", "cluster"] = "",
) -> None:
    """Count ``tx_bytes`` as delivered, as a copy does when it completes.

    Args:
        bar: the barrier.
        tx_bytes: bytes, up to 1048575.
        sem: the default is relaxed as well.
        scope: the default is the CTA.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "mbarrier.complete_tx{.sem}{.scope}.shared::cluster.b64 [{bar}], {tx_bytes};",
    isa=(8, 0),
    arch="sm_90",
    check=_sem_with_scope,
    section=SECTION + ".complete_tx",
)
def complete_tx_remote(
    bar: Cluster,
    tx_bytes: Bytes,
    *,
    sem: Literal["", "relaxed"] = "",
    scope: Literal["", "cta", "cluster"] = "",
) -> None:
    """Count bytes as delivered on a barrier of any CTA of the cluster.

    Args:
        bar: cluster address of the barrier.
        tx_bytes: bytes, up to 1048575.
        sem: the default is relaxed as well.
        scope: the default is the CTA.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "mbarrier.test_wait{.sem}{.scope}.shared::cta.b64 {ret}, [{bar}], {state};",
    isa=_wait_isa,
    arch=_arch,
    check=_sem_with_scope,
    section=SECTION + ".test_wait",
)
def test_wait(
    bar: Shared,
    state: U64,
    *,
    sem: Literal["", "acquire", "relaxed"] = "",  # noqa: PT028
    scope: Literal["", "cta", "cluster"] = "",  # noqa: PT028
) -> Pred:
    """Return at once whether the phase of ``state`` has completed.

    After True, what the arriving threads and the copies wrote before the phase completed is
    visible to this thread.

    Args:
        bar: the barrier, of this CTA.
        state: from an arrive of the current or the previous phase.
        sem: ``"relaxed"`` orders nothing; ``""`` is acquire at CTA scope.
        scope: ``"cluster"`` costs a ``CCTL.IVALL`` after success.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "mbarrier.test_wait.parity{.sem}{.scope}.shared::cta.b64 {ret}, [{bar}], {parity};",
    isa=_wait_isa,
    arch=_arch,
    check=_sem_with_scope,
    section=SECTION + ".test_wait",
)
def test_wait_parity(
    bar: Shared,
    parity: Parity,
    *,
    sem: Literal["", "acquire", "relaxed"] = "",  # noqa: PT028
    scope: Literal["", "cta", "cluster"] = "",  # noqa: PT028
) -> Pred:
    """Return at once whether the phase of this parity has completed.

    Args:
        bar: the barrier, of this CTA.
        parity: 0 for even phases, 1 for odd ones.
        sem: ``"relaxed"`` orders nothing; ``""`` is acquire at CTA scope.
        scope: ``"cluster"`` costs a ``CCTL.IVALL`` after success.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "mbarrier.try_wait{.sem}{.scope}.shared::cta.b64 {ret}, [{bar}], {state}{, hint};",
    isa=_wait_isa,
    arch="sm_90",
    check=_sem_with_scope,
    section=SECTION + ".try_wait",
)
def try_wait(
    bar: Shared,
    state: U64,
    hint: U32 | None = None,
    *,
    sem: Literal["", "acquire", "relaxed"] = "",
    scope: Literal["", "cta", "cluster"] = "",
) -> Pred:
    """Return whether the phase of ``state`` has completed, after a wait of bounded time.

    May return False early: call it in a loop.

    Args:
        bar: the barrier, of this CTA.
        state: from an arrive of the current or the previous phase.
        hint: longest sleep in nanoseconds.
        sem: ``"relaxed"`` orders nothing; ``""`` is acquire at CTA scope.
        scope: ``"cluster"`` costs a ``CCTL.IVALL`` after success.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "mbarrier.try_wait.parity{.sem}{.scope}.shared::cta.b64 {ret}, [{bar}], {parity}{, hint};",
    isa=_wait_isa,
    arch="sm_90",
    check=_sem_with_scope,
    section=SECTION + ".try_wait",
)
def try_wait_parity(
    bar: Shared,
    parity: Parity,
    hint: U32 | None = None,
    *,
    sem: Literal["", "acquire", "relaxed"] = "",
    scope: Literal["", "cta", "cluster"] = "",
) -> Pred:
    """Return whether the phase of this parity has completed, after a wait of bounded time.

    May return False early: call it in a loop. After True, what the arriving threads wrote before
    they arrived, and what copies delivered to this phase, is visible to this thread without a
    further fence.

    Args:
        bar: the barrier, of this CTA.
        parity: 0 for even phases, 1 for odd ones; only the current and the previous phase can be
            told apart.
        hint: longest sleep in nanoseconds.
        sem: ``"relaxed"`` orders nothing; ``""`` is acquire at CTA scope.
        scope: ``"cluster"`` costs a ``CCTL.IVALL`` after success.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "mbarrier.pending_count.b64 {ret}, {state};",
    isa=(7, 0),
    arch="sm_80",
    effects="pure",
    section=SECTION + ".pending_count",
)
def pending_count(state: U64) -> U32:
    """Return the arrivals that were pending when ``state`` was taken.

    Args:
        state: from :func:`arrive_no_complete` or :func:`arrive_drop_no_complete`; undefined for
            others.

    Executes: each thread on its own.
    """
    ...
