"""Rules for tcgen05 kernels: tensor memory, commits, launch control."""

from __future__ import annotations

from mutations.rule import (
    EARLY,
    HANG,
    READERS,
    REUSE,
    SHORT,
    Rule,
    become,
    behind_block,
    change,
    double,
    drop,
    kinds,
    passes,
)

TMEM = kinds("tmem_race tmem_in_flight")
COPIES = ("copy_a", "copy_b", "expect")
MMA = ("mma",)

RING = [
    Rule("wait for full dropped", "full_wait", passes, EARLY, MMA),
    Rule(
        "wait for full with the other parity",
        "full_wait",
        change(2, "^1"),
        EARLY | kinds("mbarrier_overrun deadlock"),
        (*MMA, "full_wait", "empty_wait"),
    ),
    Rule(
        "wait for empty dropped",
        "empty_wait",
        passes,
        REUSE | kinds("mbarrier_overrun"),
        (*COPIES, "full_wait", "empty_wait"),
    ),
    Rule(
        "wait for empty with the other parity",
        "empty_wait",
        change(2, "^1"),
        HANG | REUSE | kinds("mbarrier_overrun"),
        ("empty_wait", "full_wait", *COPIES),
    ),
    Rule("expect 16 bytes more", "expect", change(2, "+16"), HANG, ("full_wait", "expect")),
    Rule(
        "expect 16 bytes less", "expect", change(2, "+-16"), SHORT, (*COPIES, "full_wait", *READERS)
    ),
    Rule(
        "expect half",
        "expect",
        become(
            "shr.u32 %mutr31, {2}, 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, {1}, %mutr31;"
        ),
        SHORT,
        (*COPIES, "full_wait", *READERS),
    ),
    Rule(
        "expect without arrive",
        "expect",
        become("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 {1}, {2};"),
        HANG,
        ("full_wait", "expect"),
    ),
    Rule("expect dropped", "expect", drop, HANG, ("full_wait",)),
    Rule("copy dropped", "copy_a", drop, HANG, ("full_wait",)),
    Rule("second copy dropped", "copy_b", drop, HANG, ("full_wait",)),
    Rule(
        "copy twice",
        "copy_a",
        double,
        kinds("mbarrier_tx_mismatch write_in_flight deadlock"),
        (*COPIES, "full_wait", *READERS),
    ),
    Rule(
        "copy lands 16 bytes off", "copy_a", change(0, "+16"), kinds("tma_alignment"), ("copy_a",)
    ),
    Rule(
        "copy's column not on 16 bytes",
        "copy_a",
        change(1, "x+1"),
        kinds("tma_coordinate"),
        ("copy_a",),
        skip=("scaled-gemm",),
    ),
    Rule(
        "init of full dropped",
        "init_full@0",
        drop,
        kinds("mbarrier_uninitialised"),
        ("full_wait", *COPIES),
    ),
    Rule(
        "full expects an arrival too many",
        "init_full",
        change(1, "+1"),
        HANG,
        ("full_wait",),
        skip=("tcgen05-gemm", "scaled-gemm"),
    ),
    Rule(
        "empty expects an arrival too many",
        "init_empty",
        change(1, "+1"),
        HANG,
        ("empty_wait", "full_wait"),
    ),
    Rule(
        "no synchronisation after the init",
        "init_sync@0",
        drop,
        kinds("mbarrier_init_order mbarrier_uninitialised tmem_slot uninitialised_read"),
        ("full_wait", "empty_wait", "done_wait", "slot_read", *COPIES),
    ),
]
ACCUMULATOR = [
    Rule("commit on empty dropped", "commit_empty", drop, HANG, ("empty_wait", "full_wait")),
    Rule(
        "commit on empty twice",
        "commit_empty",
        double,
        REUSE | kinds("mbarrier_overrun mbarrier_arrivals deadlock"),
        ("commit_empty", "empty_wait", "full_wait", *COPIES, "mma"),
    ),
    Rule(
        "commit on empty before the mma",
        "commit_empty",
        lambda b, s: b.text.hoisted(s[0], _before_mma(b)),
        REUSE,
        (*COPIES, "mma"),
    ),
    Rule(
        "commit on done dropped",
        "commit_done",
        drop,
        HANG,
        ("done_wait", "drained_wait", "empty_wait", "full_wait"),
    ),
    Rule(
        "wait for done dropped",
        "done_wait",
        passes,
        TMEM | kinds("tmem_uninitialised"),
        ("tmem_ld", "mma"),
    ),
    Rule(
        "wait for done with the other parity",
        "done_wait",
        change(2, "^1"),
        TMEM | HANG | kinds("tmem_uninitialised mbarrier_overrun"),
        ("tmem_ld", "mma", "done_wait", "drained_wait"),
    ),
    Rule(
        "wait for done is relaxed, with no fence",
        "done_wait|fence_after@-1",
        lambda b, s: {
            x.line: (
                []
                if "fence" in x.op
                else [
                    "\tmbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 "
                    f"{', '.join(x.operands)};"
                ]
            )
            for x in s
        },
        TMEM | kinds("tcgen05_fence missing_acquire_fence"),
        ("tmem_ld", "mma", "done_wait"),
        needs=("fence_after",),
    ),
    Rule(
        "wait for drained dropped",
        "drained_wait",
        passes,
        TMEM | kinds("mbarrier_overrun"),
        ("mma", "tmem_ld", "done_wait", "commit_done"),
    ),
    Rule(
        "drained never announced",
        "drained_arrive",
        drop,
        HANG,
        ("drained_wait", "done_wait", "empty_wait"),
    ),
    Rule(
        "drained announced twice",
        "drained_arrive",
        double,
        TMEM | kinds("mbarrier_overrun mbarrier_arrivals"),
        ("drained_arrive", "mma", "tmem_ld", "drained_wait"),
    ),
    Rule(
        "drained expects an arrival too few",
        "init_drained",
        change(1, "+-1"),
        TMEM | kinds("mbarrier_overrun mbarrier_arrivals"),
        ("drained_arrive", "mma", "tmem_ld", "drained_wait", "init_drained"),
    ),
    Rule(
        "drained expects an arrival too many",
        "init_drained",
        change(1, "+1"),
        HANG,
        ("drained_wait", "done_wait", "empty_wait", "full_wait"),
    ),
    Rule(
        "drained before wait::ld",
        "wait_ld",
        behind_block("drained_arrive"),
        TMEM,
        ("tmem_ld", "mma", "drained_arrive", "dealloc"),
        needs=("drained_arrive",),
    ),
    Rule(
        "wait::ld dropped",
        "wait_ld",
        drop,
        TMEM | kinds("tcgen05_ld_early"),
        ("tmem_ld", "mma", "dealloc", "wait_ld", "write", "store"),
    ),
    Rule(
        "ld from another warp's lanes",
        "tmem_ld",
        change(1, "^0x200000"),
        kinds("tmem_lane"),
        ("tmem_ld",),
    ),
    Rule(
        "ld beyond the allocation",
        "tmem_ld",
        change(1, "+480"),
        kinds("tmem_bounds tmem_unallocated"),
        ("tmem_ld",),
    ),
    Rule(
        "mma beyond the allocation",
        "mma",
        change(0, "+448"),
        kinds("tmem_bounds tmem_unallocated"),
        MMA,
    ),
    Rule("alloc of 48 columns", "alloc", change(1, "=48"), kinds("tmem_columns"), ("alloc",)),
    Rule(
        "alloc of half the columns",
        "alloc",
        change(1, "=32"),
        kinds("tmem_unallocated tmem_bounds tmem_dealloc"),
        ("mma", "tmem_ld", "dealloc", "copy_scales"),
    ),
    Rule(
        "alloc dropped",
        "alloc",
        drop,
        kinds("tmem_slot tmem_unallocated uninitialised_read tmem_dealloc"),
        ("slot_read", "mma", "tmem_ld", "dealloc"),
    ),
    Rule("dealloc dropped", "dealloc", drop, kinds("tmem_leak"), ("alloc", "dealloc")),
    Rule(
        "dealloc of other columns",
        "dealloc",
        change(1, "=32"),
        kinds("tmem_dealloc tmem_leak"),
        ("dealloc", "alloc"),
    ),
    Rule(
        "dealloc does not wait for the epilogue",
        "init_sync@-1",
        drop,
        TMEM | kinds("tmem_dealloc tcgen05_pair_order tmem_unallocated"),
        ("dealloc", "tmem_ld", "mma"),
        only=("tcgen05-gemm", "scaled-gemm", "bw-one"),
    ),
    Rule(
        "descriptor of Hopper",
        "mma@0",
        change(1, "^0x0000400000000000"),
        kinds("tcgen05_descriptor"),
        MMA,
    ),
    Rule(
        "descriptor of B without its swizzle",
        "mma@-1",
        change(2, "^0x4000000000000000"),
        kinds("descriptor_swizzle tcgen05_descriptor"),
        MMA,
    ),
    Rule(
        "instruction descriptor of another N",
        "mma",
        change(3, "^0x00020000"),
        kinds(
            "tcgen05_descriptor out_of_bounds uninitialised_read tmem_uninitialised "
            "tmem_unallocated tmem_layout tmem_bounds"
        ),
        (*MMA, "tmem_ld"),
        skip=("scaled-gemm",),
    ),
    Rule(
        "instruction descriptor of another type",
        "mma",
        change(3, "^0x00000100"),
        kinds("tcgen05_descriptor"),
        MMA,
        skip=("scaled-gemm",),
    ),
    Rule(
        "commit of the other group size",
        "commit_done",
        lambda b, s: {
            x.line: [
                str(x)
                .replace("group::1", "group::3")
                .replace("group::2", "group::1")
                .replace("group::3", "group::2")
            ]
            for x in s
        },
        kinds("tcgen05_cta_group"),
        ("commit_done", "mma", "alloc"),
    ),
    Rule("scale factors not copied", "copy_scales", drop, kinds("tmem_uninitialised"), MMA),
    Rule(
        "scale factors go elsewhere",
        "copy_scales",
        change(0, "+8"),
        kinds("tmem_uninitialised tmem_unallocated tmem_in_flight tmem_race tmem_layout"),
        ("mma", "copy_scales"),
    ),
    Rule("scale factors not loaded", "load_scales@0", drop, HANG, ("full_wait",)),
]
STORE = [
    Rule(
        "proxy fence dropped", "write_fence", drop, kinds("missing_proxy_fence"), ("store", "write")
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
        ("write", "store"),
    ),
    Rule(
        "last wait for the stores dropped",
        "store_tail",
        drop,
        kinds("bulk_incomplete cta_exited"),
        ("store",),
    ),
    Rule(
        "store's column not on 16 bytes",
        "store",
        change(0, "x+1"),
        kinds("tma_coordinate"),
        ("store",),
    ),
    Rule(
        "store from 16 bytes further", "store", change(1, "+16"), kinds("tma_alignment"), ("store",)
    ),
]
CLUSTER = [
    Rule(
        "cluster does not wait at the start",
        "cluster_wait@0|cluster_arrive@0",
        drop,
        kinds("mbarrier_init_order mbarrier_uninitialised tcgen05_pair_order"),
        (
            *COPIES,
            "commit_empty",
            "commit_done",
            "full_wait",
            "drained_arrive",
            "mma",
            "claim_free",
            "try_cancel",
            "dealloc",
            "alloc",
        ),
    ),
    Rule(
        "barrier init not fenced for the cluster",
        "init_fence",
        drop,
        kinds("mbarrier_init_order"),
        (
            *COPIES,
            "commit_empty",
            "commit_done",
            "drained_arrive",
            "claim_free",
            "try_cancel",
            "mma",
        ),
    ),
    Rule(
        "cluster does not wait at the end",
        "cluster_wait@-1|cluster_arrive@-1",
        drop,
        kinds("cta_exited tcgen05_pair_order tmem_in_flight tmem_race tmem_dealloc"),
        (
            *COPIES,
            "commit_empty",
            "commit_done",
            "drained_arrive",
            "dealloc",
            "mma",
            "claim_free",
            "try_cancel",
            "alloc",
        ),
    ),
    Rule(
        "multicast commit misses rank 1",
        "commit_empty",
        change(1, "=1"),
        HANG,
        ("empty_wait", "full_wait"),
        needs=("cluster_arrive",),
    ),
    Rule(
        "try_cancel dropped",
        "try_cancel",
        drop,
        HANG,
        ("claim_wait", "claim_empty_wait", "full_wait", "empty_wait", "done_wait"),
    ),
    Rule(
        "wait for the claim dropped",
        "claim_wait",
        passes,
        EARLY | kinds("race mbarrier_overrun deadlock"),
        ("claim_read", "claim_wait", "claim_free", "claim_expect"),
    ),
    Rule("claim not given back", "claim_free", drop, HANG, ("claim_empty_wait", "claim_wait")),
    Rule(
        "wait for a free claim dropped",
        "claim_empty_wait",
        passes,
        REUSE | kinds("mbarrier_overrun race"),
        ("try_cancel", "claim_wait", "claim_read", "claim_expect", "claim_free"),
    ),
    Rule(
        "claim of 8 bytes",
        "claim_expect",
        change(2, "=8"),
        SHORT | kinds("mbarrier_overrun"),
        ("claim_expect", "claim_wait", "try_cancel", "claim_read"),
    ),
]
BLACKWELL_RULES = [*RING, *ACCUMULATOR, *STORE, *CLUSTER]


def _before_mma(base) -> int:
    return base.sites("mma")[0].line - 2
