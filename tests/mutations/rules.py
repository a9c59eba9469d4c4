"""Faults of pipelines, wgmma, epilogues and clusters; the mutants that are left out or missed."""

from __future__ import annotations

from mutations.rule import (
    EARLY,
    HANG,
    NEIGHBOUR,
    READERS,
    REUSE,
    SHORT,
    Rule,
    become,
    before,
    behind,
    behind_block,
    change,
    double,
    drop,
    everyone,
    kinds,
    leave_before,
    passes,
    wait_after,
)
from mutations.rules_small import SMALL_RULES

RING = [
    Rule("wait for full dropped", "full_wait", passes, EARLY, READERS, skip=("hand-over",)),
    Rule(
        "wait for full dropped",
        "full_wait",
        passes,
        kinds("race uninitialised_read"),
        ("read", "write"),
        only=("hand-over",),
    ),
    Rule(
        "wait for full with the other parity",
        "full_wait",
        change(2, "^1"),
        EARLY | kinds("mbarrier_overrun deadlock race"),
        (*READERS, "full_wait", "empty_wait"),
    ),
    Rule(
        "wait for empty dropped",
        "empty_wait",
        passes,
        REUSE | kinds("race mbarrier_overrun"),
        ("copy_a", "copy_b", "expect", "write", "full_wait", "arrive_full"),
    ),
    Rule(
        "wait for empty with the other parity",
        "empty_wait",
        change(2, "^1"),
        HANG | REUSE | kinds("mbarrier_overrun"),
        ("empty_wait", "full_wait", "copy_a"),
    ),
    Rule(
        "wait for the neighbour's full",
        "full_wait",
        change(1, "+8"),
        EARLY | NEIGHBOUR | kinds("mbarrier_overrun"),
        (*READERS, "full_wait", "empty_wait"),
        needs=("expect",),
    ),
    Rule(
        "read before the wait",
        "full_wait",
        wait_after("read"),
        EARLY | kinds("race"),
        ("read",),
        only=("column-sums", "transpose", "hand-over"),
    ),
    Rule("expect 16 bytes more", "expect", change(2, "+16"), HANG, ("full_wait", "expect")),
    Rule(
        "expect 16 bytes less",
        "expect",
        change(2, "+-16"),
        SHORT,
        ("expect", "copy_a", "copy_b", "full_wait", *READERS),
    ),
    Rule(
        "expect half",
        "expect",
        become(
            "shr.u32 %mutr31, {2}, 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, {1}, %mutr31;"
        ),
        SHORT,
        ("expect", "copy_a", "copy_b", "full_wait", *READERS),
    ),
    Rule(
        "arrive without expect",
        "expect",
        become("mbarrier.arrive.shared::cta.b64 {0}, {1};"),
        SHORT,
        ("expect", "copy_a", "copy_b", "full_wait", *READERS),
    ),
    Rule(
        "expect without arrive",
        "expect",
        become("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 {1}, {2};"),
        HANG,
        ("full_wait", "expect"),
    ),
    Rule("expect dropped", "expect", drop, HANG, ("full_wait",)),
    Rule(
        "expect twice",
        "expect",
        double,
        HANG | kinds("mbarrier_arrivals mbarrier_overrun mbarrier_tx_mismatch read_in_flight"),
        ("full_wait", "expect", *READERS),
    ),
    Rule("copy dropped", "copy_a", drop, HANG, ("full_wait",), needs=("full_wait",)),
    Rule("second copy dropped", "copy_b", drop, HANG, ("full_wait",)),
    Rule(
        "copy twice",
        "copy_a",
        double,
        kinds("mbarrier_tx_mismatch write_in_flight"),
        ("copy_a", "expect", "full_wait", *READERS),
        needs=("full_wait",),
    ),
    Rule(
        "copy signals the neighbouring barrier",
        "copy_a",
        change(2, "+8"),
        NEIGHBOUR | kinds("mbarrier_tx_mismatch"),
        ("full_wait", "copy_a", "empty_wait"),
        needs=("full_wait",),
    ),
    Rule(
        "copy lands 16 bytes off",
        "copy_a",
        change(0, "+16"),
        kinds("tma_alignment"),
        ("copy_a",),
        needs=("full_wait",),
    ),
    Rule(
        "copy's column not on 16 bytes",
        "copy_a",
        change(1, "x+1"),
        kinds("tma_coordinate"),
        ("copy_a",),
        needs=("full_wait",),
    ),
    Rule(
        "init of full dropped",
        "init_full@0",
        drop,
        kinds("mbarrier_uninitialised"),
        ("full_wait", "expect", "empty_wait", "copy_a", "arrive_full"),
    ),
    Rule(
        "init of empty dropped",
        "init_empty@0",
        drop,
        kinds("mbarrier_uninitialised"),
        ("release", "empty_wait"),
    ),
    Rule(
        "full expects an arrival too many",
        "init_full",
        change(1, "+1"),
        HANG,
        ("full_wait",),
        skip=("wgmma-gemm",),
    ),
    Rule(
        "empty expects an arrival too many",
        "init_empty",
        change(1, "+1"),
        HANG,
        ("empty_wait", "full_wait"),
    ),
    Rule(
        "empty expects no arrival",
        "init_empty@0",
        change(1, "=0"),
        kinds("mbarrier_count"),
        ("init_empty",),
    ),
    Rule(
        "empty expects an arrival too few",
        "init_empty",
        change(1, "+-1"),
        REUSE | kinds("mbarrier_overrun mbarrier_count mbarrier_arrivals race"),
        ("copy_a", "copy_b", "empty_wait", "release", "init_empty", "write"),
    ),
    Rule(
        "barrier initialised twice", "init_full@0", double, kinds("mbarrier_reinit"), ("init_full",)
    ),
    Rule(
        "no synchronisation after the init",
        "init_sync@0",
        drop,
        kinds("mbarrier_init_order mbarrier_uninitialised"),
        (
            "full_wait",
            "empty_wait",
            "expect",
            "copy_a",
            "release",
            "arrive_full",
            "free_wait",
            "ready_wait",
        ),
    ),
    Rule("release dropped", "release", drop, HANG, ("empty_wait", "full_wait")),
    Rule(
        "release twice",
        "release",
        double,
        REUSE | kinds("mbarrier_overrun mbarrier_arrivals race deadlock"),
        ("release", "copy_a", "copy_b", "empty_wait", "full_wait", "write"),
    ),
    Rule(
        "release of the neighbour",
        "release",
        change(-1, "+8"),
        NEIGHBOUR | REUSE | kinds("mbarrier_overrun mbarrier_arrivals"),
        ("release", "empty_wait", "full_wait", "copy_a", "copy_b"),
    ),
    Rule(
        "release before the reads",
        "release",
        before("read"),
        REUSE | kinds("race"),
        ("copy_a", "write", "read"),
        only=("column-sums", "hand-over"),
    ),
    Rule(
        "release is relaxed",
        "release",
        become("mbarrier.arrive.relaxed.cta.shared::cta.b64 {0}, {1};"),
        REUSE | kinds("race"),
        ("copy_a", "write", "read"),
        only=("column-sums", "hand-over"),
    ),
    Rule(
        "every lane issues",
        "elect@0",
        everyone,
        kinds(
            "mbarrier_arrivals mbarrier_overrun mbarrier_tx_mismatch write_in_flight "
            "read_in_flight mbarrier_tx_range"
        ),
        ("expect", "copy_a", "copy_b", "full_wait", *READERS),
    ),
    Rule("arrive on full dropped", "arrive_full", drop, HANG, ("full_wait", "empty_wait")),
    Rule(
        "arrive on full before the write",
        "arrive_full",
        before("write"),
        kinds("race uninitialised_read"),
        ("read", "write"),
    ),
    Rule(
        "arrive on full is relaxed",
        "arrive_full",
        become("mbarrier.arrive.relaxed.cta.shared::cta.b64 {0}, {1};"),
        kinds("race missing_acquire_fence"),
        ("read", "write"),
    ),
    Rule(
        "wait for full is relaxed",
        "full_wait",
        become("mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 {0}, {1}, {2};"),
        kinds("race missing_acquire_fence read_in_flight"),
        ("read", "full_wait", "mma"),
        only=("hand-over", "column-sums", "gemm-s2"),
    ),
]

WGMMA = [
    Rule("wgmma.fence dropped", "mma_fence", drop, kinds("wgmma_fence"), ("mma",)),
    Rule(
        "wgmma.fence behind the mma",
        "mma_fence",
        behind("mma"),
        kinds("wgmma_fence"),
        ("mma",),
        only=("wgmma-tile", "wgmma-gemm", "gemm-s2"),
    ),
    Rule(
        "commit dropped",
        "mma_commit",
        drop,
        kinds("wgmma_uncommitted wgmma_in_flight overwrite_while_read write_in_flight"),
        ("mma", "read", "mma_wait", "copy_a", "copy_b", "store", "write"),
    ),
    Rule(
        "commit before the mma",
        "mma_commit",
        lambda b, s: b.text.moved(s, b.sites("mma")[0].line - 2, before=True),
        kinds("wgmma_uncommitted wgmma_in_flight overwrite_while_read write_in_flight"),
        ("mma", "read", "mma_wait", "copy_a", "copy_b", "write"),
    ),
    Rule(
        "every wgmma wait dropped",
        "mma_wait",
        drop,
        kinds("wgmma_in_flight wgmma_uncommitted overwrite_while_read write_in_flight"),
        ("mma", "read", "copy_a", "copy_b", "write"),
        skip=("fused-gemm",),
    ),
    Rule(
        "last wgmma wait dropped",
        "mma_wait@-1",
        drop,
        kinds("wgmma_in_flight"),
        ("read", "write", "mma"),
        skip=("gemm-s1", "fused-gemm"),
    ),
    Rule(
        "wgmma wait leaves one group more",
        "mma_loop_wait",
        change(0, "+1"),
        REUSE | kinds("wgmma_in_flight"),
        ("copy_a", "copy_b", "read", "mma", "write"),
        skip=("gemm-s1",),
    ),
    Rule(
        "release before the wgmma wait",
        "mma_loop_wait",
        behind_block("release@0"),
        REUSE,
        ("copy_a", "copy_b", "mma"),
        needs=("release",),
        skip=("gemm-s1",),
    ),
    Rule(
        "descriptor of A without its swizzle",
        "mma@0",
        change(1, "^0x4000000000000000"),
        kinds("descriptor_swizzle wgmma_descriptor"),
        ("mma",),
    ),
    Rule(
        "descriptor of B with another swizzle",
        "mma@-1",
        change(2, "^0xC000000000000000"),
        kinds("descriptor_swizzle wgmma_descriptor"),
        ("mma",),
    ),
    Rule(
        "descriptor of A leaves the CTA's memory",
        "mma@0",
        change(1, "=0x4000004000013F00"),
        kinds("out_of_bounds uninitialised_read wgmma_descriptor"),
        ("mma",),
    ),
    Rule(
        "descriptor's reserved bits set",
        "mma@0",
        change(1, "^0x0000400000000000"),
        kinds("wgmma_descriptor"),
        ("mma",),
    ),
    Rule(
        "stride of B not divided by 16",
        "mma@0",
        change(2, "^0x0000044000000000"),
        kinds(
            "out_of_bounds uninitialised_read wgmma_descriptor read_in_flight "
            "overwrite_while_read descriptor_swizzle"
        ),
        ("mma", "copy_a", "copy_b"),
    ),
]

EPILOGUE = [
    Rule(
        "proxy fence dropped",
        "write_fence",
        drop,
        kinds("missing_proxy_fence"),
        ("store", "write", "bulk_copy"),
    ),
    Rule(
        "wait for a free buffer dropped",
        "free_wait",
        passes,
        REUSE | kinds("race"),
        ("write", "store"),
    ),
    Rule(
        "wait for a free buffer with the other parity",
        "free_wait",
        change(2, "^1"),
        HANG | REUSE | kinds("mbarrier_overrun"),
        ("free_wait", "ready_wait", "write", "store", "free_arrive"),
    ),
    Rule("announcement dropped", "ready_arrive@0", drop, HANG, ("ready_wait", "free_wait")),
    Rule(
        "announced before it is written",
        "write_fence@0",
        behind("ready_arrive@0"),
        kinds("missing_proxy_fence"),
        ("store", "write"),
        needs=("ready_arrive",),
    ),
    Rule(
        "lanes not synchronised before the announcement",
        "write_warp",
        drop,
        kinds("missing_proxy_fence race"),
        ("store", "write"),
    ),
    Rule(
        "wait for a written buffer dropped",
        "ready_wait",
        passes,
        kinds(
            "missing_proxy_fence race uninitialised_read mbarrier_overrun read_in_flight"
            " write_in_flight overwrite_while_read"
        ),
        ("store", "write", "free_wait", "free_arrive", "ready_arrive"),
    ),
    Rule(
        "store not committed",
        "store_commit",
        drop,
        kinds("bulk_incomplete write_in_flight overwrite_while_read"),
        ("store", "write"),
    ),
    Rule(
        "store's wait dropped",
        "store_wait",
        drop,
        REUSE | kinds("bulk_incomplete"),
        ("write", "store", "bulk_copy"),
    ),
    Rule(
        "store's wait leaves one group more",
        "store_wait",
        change(0, "+1"),
        REUSE,
        ("write", "store", "bulk_copy"),
        skip=("wgmma-gemm",),
    ),
    Rule(
        "last wait for the stores dropped",
        "store_tail",
        drop,
        kinds("bulk_incomplete cta_exited"),
        ("store",),
    ),
    Rule(
        "buffer handed back before the store has read it",
        "store_wait@0",
        behind_block("free_arrive@0"),
        REUSE,
        ("write", "store"),
        needs=("free_arrive",),
    ),
    Rule("buffer never handed back", "free_arrive", drop, HANG, ("free_wait", "ready_wait")),
    Rule(
        "ready expects an arrival too few",
        "init_ready",
        change(1, "+-1"),
        kinds("missing_proxy_fence race mbarrier_overrun mbarrier_arrivals"),
        ("store", "write", "ready_arrive", "ready_wait"),
    ),
    Rule(
        "ready expects an arrival too many",
        "init_ready",
        change(1, "+1"),
        HANG,
        ("ready_wait", "free_wait"),
    ),
    Rule(
        "store from 16 bytes further",
        "store",
        change(1, "+16"),
        kinds("tma_alignment"),
        ("store",),
        skip=("bulk-copies",),
    ),
    Rule(
        "store's column not on 16 bytes",
        "store",
        change(0, "x+1"),
        kinds("tma_coordinate"),
        ("store",),
        skip=("bulk-copies",),
    ),
    Rule(
        "named barrier before the store dropped",
        "barrier@1",
        drop,
        kinds("missing_proxy_fence race barrier_partial barrier_mismatch deadlock"),
        ("store", "write", "barrier"),
    ),
    Rule(
        "named barrier before the writes dropped",
        "barrier@0",
        drop,
        kinds("overwrite_while_read write_in_flight race barrier_partial deadlock"),
        ("store", "write", "barrier"),
    ),
    Rule(
        "setmaxnreg asks for more than there is",
        "setmaxnreg_inc",
        change(0, "=256"),
        kinds("deadlock setmaxnreg"),
        ("setmaxnreg_inc",),
    ),
    Rule(
        "setmaxnreg gives nothing back",
        "setmaxnreg_dec",
        drop,
        kinds("deadlock setmaxnreg"),
        ("setmaxnreg_inc",),
        only=("gemm-w2", "gemm-w3"),
    ),
    Rule(
        "setmaxnreg of 20 registers",
        "setmaxnreg_dec",
        change(0, "=20"),
        kinds("setmaxnreg"),
        ("setmaxnreg_dec",),
        only=("gemm-w2",),
    ),
]

CLUSTER = [
    Rule(
        "barrier init not fenced for the cluster",
        "init_fence",
        drop,
        kinds("mbarrier_init_order"),
        ("copy_a", "copy_b", "release", "full_wait", "empty_wait", "expect"),
    ),
    Rule(
        "cluster does not wait at the start",
        "cluster_wait@0|cluster_arrive@0",
        drop,
        kinds("mbarrier_init_order mbarrier_uninitialised"),
        ("copy_a", "copy_b", "release", "full_wait", "empty_wait", "expect"),
        needs=("init_full",),
    ),
    Rule(
        "cluster does not wait at the end",
        "cluster_wait@-1|cluster_arrive@-1",
        drop,
        kinds("cta_exited"),
        ("copy_a", "copy_b", "release"),
    ),
    Rule(
        "arrive without wait at the end",
        "cluster_wait@-1",
        drop,
        kinds("cta_exited cluster_barrier_order"),
        ("copy_a", "copy_b", "release", "cluster_arrive"),
    ),
    Rule(
        "wait without arrive at the start",
        "cluster_arrive@0",
        drop,
        kinds("cluster_barrier_order cluster_barrier_partial deadlock"),
        ("cluster_wait", "cluster_arrive"),
    ),
    Rule(
        "multicast misses rank 1",
        "copy_b",
        change(3, "=1"),
        HANG | kinds("mbarrier_tx_mismatch"),
        ("full_wait", "copy_b", "expect", "empty_wait"),
        only=("gemm-c21", "fused-gemm"),
    ),
    Rule(
        "multicast misses rank 0",
        "copy_a",
        change(3, "=2"),
        HANG | kinds("mbarrier_tx_mismatch"),
        ("full_wait", "copy_a", "expect", "empty_wait"),
        only=("gemm-c12",),
    ),
    Rule(
        "multicast to a rank that is not there",
        "copy_b",
        change(3, "=7"),
        kinds("out_of_bounds illegal_instruction tma_bounds"),
        ("copy_b",),
        only=("gemm-c21",),
    ),
    Rule(
        "release reaches only rank 0",
        "mapa",
        change(2, "=0"),
        HANG | REUSE | kinds("mbarrier_overrun mbarrier_arrivals"),
        ("empty_wait", "full_wait", "release", "copy_a", "copy_b"),
    ),
    Rule(
        "release of the own CTA only",
        "mapa",
        become("mov.u32 {0}, {1};"),
        HANG | REUSE | kinds("mbarrier_overrun mbarrier_arrivals mbarrier_remote"),
        ("empty_wait", "full_wait", "release", "copy_a", "copy_b"),
    ),
    Rule(
        "empty counts only the own CTA's consumers",
        "init_empty",
        change(1, "=1"),
        REUSE | kinds("mbarrier_overrun mbarrier_arrivals"),
        ("copy_a", "copy_b", "empty_wait", "release"),
        needs=("mapa",),
    ),
    Rule(
        "a CTA leaves before the cluster's last barrier",
        "cluster_arrive@-1",
        leave_before,
        kinds("cta_exited cluster_barrier_partial deadlock"),
        ("copy_a", "copy_b", "release", "cluster_arrive", "cluster_wait"),
    ),
]

AMPERE = [
    Rule("cp.async commit dropped", "commit", drop, EARLY, ("read",)),
    Rule("cp.async wait dropped", "wait", drop, EARLY, ("read",)),
    Rule("cp.async wait leaves one group more", "wait@0", change(0, "+1"), EARLY, ("read",)),
    Rule("block barrier dropped", "sync", drop, EARLY | REUSE | kinds("race"), ("read", "copy_a")),
    Rule(
        "cp.async to an address off by 8",
        "copy_a@0",
        change(0, "+8"),
        kinds("misaligned"),
        ("copy_a",),
        needs=("wait",),
    ),
]
RULES = [*RING, *WGMMA, *EPILOGUE, *CLUSTER, *AMPERE, *SMALL_RULES]

_ONE_BUFFER = "C has one buffer: the wait in the loop already waits for every store"
_ONE_CONSUMER = "with 256 threads there are 255 registers for everyone: the plan is still legal"
EQUIVALENT: dict[tuple[str, str], str] = {
    (
        "wgmma-gemm",
        "named barrier before the writes dropped",
    ): "the CTA stores one tile, so that no buffer is written twice",
    **{
        ("async-stores", rule): "each CTA already waits for all that its peer sends"
        for rule in (
            "cluster does not wait at the end",
            "arrive without wait at the end",
            "a CTA leaves before the cluster's last barrier",
        )
    },
    (
        "bw-multicast",
        "cluster does not wait at the end",
    ): "the TMA warp already waits for the last arrivals of its peer",
    **{
        (name, "last wait for the stores dropped"): _ONE_BUFFER
        for name in ("gemm-s1", "gemm-c21", "gemm-w2", "gemm-w3")
    },
    **{
        (name, "setmaxnreg asks for more than there is"): _ONE_CONSUMER
        for name in ("gemm-s1", "gemm-s2", "gemm-c21", "gemm-c12")
    },
}
"""Mutants that are still correct, with the reason; they are not counted."""

_LANES = (
    "the lanes of a warp run in step and share a clock, so that the order of lane 0's arrive after "
    "the other lanes' writes, which __syncwarp makes, is always there"
)
MISSED: dict[tuple[str, str], str] = {
    **{
        (f"gemm-{name}", "lanes not synchronised before the announcement"): _LANES
        for name in ("s1", "s2", "c21", "c12", "w2", "w3")
    },
}
"""Mutants that the emulator does not name rightly, with the reason; they count as missed."""
