"""The headline of a deadlock is the wait that no other waiter could end."""

from __future__ import annotations

import pytest
from ptx_helper import kernel, line_of, wait

from nbtc.emulator import launch

SHARED = ".shared .align 8 .b64 full; .shared .align 8 .b64 empty;"
INIT = """
setp.ne.u32 %p1, %thread, 0; @%p1 bra READY;
mbarrier.init.shared::cta.b64 [full], 1;
mbarrier.init.shared::cta.b64 [empty], 32;  // init
READY: bar.sync 0;
setp.ne.u32 %p1, %warp, 0; @%p1 bra CONSUMER;
"""


def stuck(body, *, block, seed=0, **more):
    report = launch(kernel(body, **more), "k", grid=2, block=block, args=[], seed=seed)
    found = [f for f in report.findings if f.kind == "deadlock"]
    assert len(found) == 1, str(report)
    return found[0]


@pytest.mark.parametrize("seed", range(4))
def test_a_stage_that_is_never_released(seed):
    body = f"""{INIT}
{wait("empty", 1)}
elect.sync _|%p2, -1; @%p2 mbarrier.arrive.shared::cta.b64 _, [full];
{wait("empty", 0)}  // again
bra DONE;
CONSUMER:
{wait("full", 0)}
{wait("full", 1)}  // next
DONE:
"""
    found = stuck(body, block=64, shared=SHARED, seed=seed)
    assert found.line == line_of(body, "again")
    assert found.message.startswith("barrier empty of CTA")
    assert "arrivals 0/32; nothing arrives on it" in found.message
    assert "Cycle" not in found.message
    assert line_of(body, "next") in [r.line for r in found.related]


def test_a_fresh_empty_barrier_stays_the_cause():
    body = f"""{INIT}
{wait("empty", 0)}  // fresh
bra DONE;
CONSUMER:
{wait("full", 0)}
DONE:
"""
    found = stuck(body, block=64, shared=SHARED)
    assert found.line == line_of(body, "fresh")
    assert "A fresh empty barrier is passed with parity 1" in found.message
    assert "nothing arrives" not in found.message


def test_a_producer_that_ended_early():
    body = f"""{INIT}
elect.sync _|%p2, -1; @%p2 mbarrier.arrive.shared::cta.b64 _, [full];  // last
bra DONE;
CONSUMER:
{wait("full", 0)}
{wait("full", 1)}
DONE:
"""
    found = stuck(body, block=64, shared=SHARED)
    assert f"the arrive at kernel.py:{line_of(body, 'last')}, whose warp has exited" in (
        found.message
    )


@pytest.mark.parametrize(("tail", "where"), [("", "has exited"), ("bar.sync 0;  // end", "waits")])
def test_a_warp_that_never_joins_its_warpgroup(tail, where):
    body = f"""{INIT.replace("%warp, 0", "%warp, 4")}
{wait("empty", 1)}
{wait("empty", 0)}
bra END;
CONSUMER:
setp.eq.u32 %p2, %warp, 3; @%p2 bra END;
wgmma.fence.sync.aligned;
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;  // group
END:
{tail}
"""
    found = stuck(body, block=160, shared=SHARED)
    assert found.line == line_of(body, "group")
    at = f" at kernel.py:{line_of(body, 'end')}" if tail else ""
    assert f"warp 3 of the warpgroup has not committed it: it {where}{at}" in found.message


def test_a_block_smaller_than_the_launch_bounds():
    body = f"""{INIT}
CONSUMER:
{wait("full", 0)}
"""
    say = "The block has 64 threads, the kernel's launch bounds are 160"
    bounds = {"directives": ".maxntid 160", "shared": SHARED}
    assert say in stuck(body, block=64, **bounds).message
    assert "launch bounds" not in stuck(body, block=160, **bounds).message
