"""What may wait for what: CTAs that start later, copies of others, under every policy."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_helper import kernel

from nbtc.emulator import launch


@pytest.mark.parametrize("completion", ["random", "earliest", "latest"])
@pytest.mark.parametrize("seed", range(2))
def test_spinning_with_a_block_barrier_on_a_later_cta(completion, seed):
    """A compiler shares what one thread polled through shared memory: the loop has barriers."""
    body = """
ld.param.u64 %rd1, [flag]; ld.param.u64 %rd2, [x]; ld.param.u64 %rd3, [y];
mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %thread, 0; setp.ne.u32 %p2, %r1, 0; @%p2 bra OTHER;
SPIN: @%p1 atom.global.acquire.gpu.cas.b32 %r2, [%rd1], 1, 1;
@%p1 st.shared.u32 [slot], %r2;
bar.sync 0; ld.shared.u32 %r3, [slot]; bar.sync 0;
setp.ne.u32 %p3, %r3, 1; @%p3 bra SPIN;
ld.global.u32 %r4, [%rd3]; mul.wide.u32 %rd4, %thread, 4; add.s64 %rd3, %rd3, %rd4;
add.u32 %r4, %r4, %thread; @!%p1 st.global.u32 [%rd3], %r4; bra DONE;
OTHER: mov.u32 %r5, tile; shl.b32 %r6, %thread, 2; add.u32 %r5, %r5, %r6;
mul.wide.u32 %rd4, %thread, 4; add.s64 %rd2, %rd2, %rd4;
cp.async.ca.shared.global [%r5], [%rd2], 4; cp.async.commit_group; cp.async.wait_group 0;
bar.sync 0;
ld.shared.u32 %r4, [tile+252]; @%p1 st.global.u32 [%rd3], %r4;
@%p1 atom.global.release.gpu.exch.b32 %r7, [%rd1], 1;
DONE: mov.u32 %r9, 0;
"""
    shared = ".shared .align 4 .b8 slot[4]; .shared .align 16 .b8 tile[256];"
    ptx = kernel(body, shared=shared, params=".param .u64 flag, .param .u64 x, .param .u64 y")
    x, y = np.arange(64, dtype=np.int32) + 7, np.zeros(64, np.int32)
    report = launch(ptx, "k", grid=2, block=64, args=[np.zeros(1, np.int32), x, y], seed=seed,
                    completion=completion)  # fmt: skip
    assert report.ok, str(report)
    np.testing.assert_array_equal(y, 70 + np.arange(64))
