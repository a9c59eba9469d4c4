"""clusterlaunchcontrol: take over the work of a cluster that has not started (Blackwell).

A running cluster asks for another one of the same grid. On success that cluster never runs, and
the asker computes its tile. One elected thread of a cluster issues :func:`try_cancel`; under
``threadIdx.x == 0`` instead of ``elect`` the machine code loops over lanes. The response is 16
bytes in shared memory::

    mbarrier.arrive_expect_tx(bar, 16)              # in every CTA that gets a response
    clc.try_cancel(response, bar, multicast=True)   # one thread of the cluster
    ... wait for bar ...
    r = clc.load_response(response)
    if clc.query_is_canceled(r):
        x = clc.query_first_ctaid_x(r)              # first CTA of the cluster; add %cluster_ctaid

After a failure has been seen, do not ask again: undefined. Before the response is overwritten by
the next request, the readers need ``fence.proxy_async``, because it is written by the async proxy.

Not covered: generic-address forms of ``try_cancel``, the same as these for shared memory.
"""

from __future__ import annotations

from typing import Annotated, Literal

from nbtc.arch import TCGEN05, Requirement
from nbtc.ptx.kinds import U32, U64, U64_KIND, Pred, Regs, Shared
from nbtc.ptx.spec import Variant, ptx

TRY = "9.7.13.17 Parallel Synchronization: clusterlaunchcontrol.try_cancel"
QUERY = "9.7.13.17 Parallel Synchronization: clusterlaunchcontrol.query_cancel"
Response = Annotated[tuple[int, int], Regs(U64_KIND, 2)]
"""A response in registers, as :func:`load_response` gives it."""
WHOLE = "{{ .reg .b128 %response; mov.b128 %response, {response};\n"
QUERY_CTAID = WHOLE + "clusterlaunchcontrol.query_cancel.get_first_ctaid"


def _multicast_arch(v: Variant) -> Requirement:
    return TCGEN05 if v.multicast else "sm_100"


@ptx(
    "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
    "{?multicast:.multicast::cluster::all}.b128 [{response}], [{bar}];",
    isa=(8, 6),
    arch=_multicast_arch,
    effects="memory",
    section=TRY,
)
def try_cancel(response: Shared, bar: Shared, *, multicast: Literal[False, True] = False) -> None:
    """Ask for a cluster that has not started. One thread of the cluster executes it.

    Args:
        response: 16 bytes in shared memory, 16-byte aligned, written asynchronously.
        bar: mbarrier that gets complete_tx(16), on success and on failure alike; it must expect
            16 bytes. Wait for it before reading the response.
        multicast: write the response, and complete the mbarrier, at the same offset in every CTA
            of the cluster.
    """
    ...


@ptx(
    "ld.shared::cta.v2.b64 {{{ret0}, {ret1}}}, [{response}];",
    isa=(7, 8),
    arch="sm_80",
    effects="memory",
    section="9.7.9.8 Data Movement and Conversion Instructions: ld",
)
def load_response(response: Shared) -> tuple[U64, U64]:
    """Load the 16 bytes of a response from shared memory, after waiting for its mbarrier."""
    ...


@ptx(
    WHOLE + "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 {ret}, %response; }}",
    isa=(8, 6),
    arch="sm_100",
    effects="pure",
    section=QUERY,
)
def query_is_canceled(response: Response) -> Pred:
    """Return whether the request took a cluster; if not, no tile is left for this cluster."""
    ...


@ptx(
    QUERY_CTAID + "::x.b32.b128 {ret}, %response; }}",
    isa=(8, 6),
    arch="sm_100",
    effects="pure",
    section=QUERY,
)
def query_first_ctaid_x(response: Response) -> U32:
    """Return blockIdx.x of the first CTA of the taken cluster; undefined after a failure."""
    ...


@ptx(
    QUERY_CTAID + "::y.b32.b128 {ret}, %response; }}",
    isa=(8, 6),
    arch="sm_100",
    effects="pure",
    section=QUERY,
)
def query_first_ctaid_y(response: Response) -> U32:
    """Return blockIdx.y of the first CTA of the taken cluster; undefined after a failure."""
    ...


@ptx(
    QUERY_CTAID + "::z.b32.b128 {ret}, %response; }}",
    isa=(8, 6),
    arch="sm_100",
    effects="pure",
    section=QUERY,
)
def query_first_ctaid_z(response: Response) -> U32:
    """Return blockIdx.z of the first CTA of the taken cluster; undefined after a failure."""
    ...


@ptx(
    QUERY_CTAID + ".v4.b32.b128 {{{ret0}, {ret1}, {ret2}, _}}, %response; }}",
    isa=(8, 6),
    arch="sm_100",
    effects="pure",
    section=QUERY,
)
def query_first_ctaid(response: Response) -> tuple[U32, U32, U32]:
    """Return blockIdx (x, y, z) of the first CTA of the taken cluster."""
    ...
