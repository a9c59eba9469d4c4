"""Kernels with and without a race between threads, for racecheck and the emulator."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .agreement_case import START_BARRIER, WAIT_BARRIER, PtxCase, module

THREADS = 64
_SHARED = f".shared .align 16 .b8 box[{16 * THREADS}];\n.shared .align 8 .b64 bar;\n"
_BEGIN = """mul.wide.u32 %rd20, %thread, 16;
add.u64 %rd21, %rd1, %rd20;
add.u64 %rd22, %rd2, %rd20;
mov.u32 %r10, box;
shl.b32 %r11, %thread, 4;
add.u32 %r12, %r10, %r11;
sub.u32 %r13, 1008, %r11;
add.u32 %r14, %r10, %r13;
"""
"""%r12 is this thread's own place, %r14 that of the thread at the other end: another warp's."""
_LOAD = "ld.global.u32 %r20, [%rd21];\n"
_WRITE = "st.shared.u32 [%r12], %r20;\n"
_READ = "ld.shared.u32 %r21, [%r14];\nst.global.u32 [%rd22], %r21;\n"
_SYNC = "bar.sync 0;\n"
_COPY = "cp.async.ca.shared.global [%r12], [%rd21], 16;\ncp.async.commit_group;\n"
_ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [%r500];\n"
_INIT = START_BARRIER.replace("[%r500], 1;", f"[%r500], {THREADS};")
BODIES = {
    "write_sync_read": (_LOAD + _WRITE + _SYNC + _READ, False),
    "no_sync_before_read": (_LOAD + _WRITE + _READ, True),
    "warp_sync_for_block_sync": (_LOAD + _WRITE + "bar.warp.sync 0xffffffff;\n" + _READ, True),
    "read_sync_write": (_LOAD + _WRITE + _SYNC + _READ + _SYNC + _WRITE, False),
    "no_sync_after_read": (_LOAD + _WRITE + _SYNC + _READ + _WRITE, True),
    "two_writers": (_LOAD + _WRITE + "st.shared.u32 [%r14], %r11;\n" + _SYNC + _READ, True),
    "copy_wait_sync": (_COPY + "cp.async.wait_group 0;\n" + _SYNC + _READ, False),
    "copy_no_wait": (_COPY + _SYNC + _READ, True),
    "mbarrier_hand_over": (_INIT + _LOAD + _WRITE + _ARRIVE + WAIT_BARRIER + _READ, False),
    "mbarrier_no_wait": (_INIT + _LOAD + _WRITE + _ARRIVE + _READ, True),
}
"""Body, and whether it has a race."""


def cases() -> Iterator[PtxCase]:
    """Yield the kernels, each with a name of its own."""
    for name, (body, _) in BODIES.items():
        text = module(_BEGIN + body, 0, 2, _SHARED).replace(".entry k(", f".entry race_{name}(")
        source = np.arange(4 * THREADS, dtype=np.uint32)
        arrays = [source, np.zeros(4 * THREADS, np.uint32)]
        yield PtxCase("races", name, text, arrays, (0, 1), {1: None}, THREADS, entry=f"race_{name}")
