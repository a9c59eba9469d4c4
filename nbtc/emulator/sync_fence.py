"""Fences, grid dependencies and register redistribution.

Fences order memory (PTX ISA 9.7.13.4), proxies, and mbarrier inits; ``setmaxnreg`` moves registers
between warps through a pool of the CTA (9.7.19.5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .handlers import handler
from .machine import Wait
from .race import AT_CLUSTER_START, lane_bits, where

if TYPE_CHECKING:
    from .machine import Cluster, Instruction, Warp

REGISTER_FILE = 65536


@handler("fence", "membar")
def memory_fence(warp: Warp, ins: Instruction) -> None:
    """``fence.sc``, ``fence.acq_rel``, ``fence.acquire``, ``fence.release`` and ``membar``."""
    mods = ins.mods
    warp.sync.fence(release="acquire" not in mods, acquire="release" not in mods)


@handler("fence.mbarrier_init")
def fence_mbarrier_init(warp: Warp, ins: Instruction) -> None:
    """Publish the mbarrier inits of this thread, and nothing else, to the cluster."""
    sync = warp.sync
    known = sync.clock.get(sync.init_agent)
    if known:
        sync.released = {**sync.released, sync.init_agent: known}


@handler("fence.proxy", "membar.proxy")
def fence_proxy(warp: Warp, ins: Instruction) -> None:
    """``fence.proxy.async`` orders generic accesses of the executing lanes with the async proxy."""
    mods = ins.mods
    sync = warp.sync
    if "alias" in mods:
        return
    if any(part.startswith("tensormap") for part in ins.parts):
        _tensormap_fence(warp, ins)
        return
    lanes = lane_bits(warp.active)
    sync.tick()
    spaces = mods & {"global", "shared::cta", "shared::cluster"}
    if not spaces or "global" in spaces:
        sync.global_fences.add(sync.time, lanes)
    if not spaces or spaces - {"global"} or "async::generic" in mods:
        sync.shared_fences.add(sync.time, lanes, sync.clock)
        if "cp" in sync.state:
            sync.state["cp"].fence(warp, lanes)
    if "async::generic" in mods or any(part.startswith("sync_restrict") for part in ins.parts):
        sync.fence(release="release" in mods, acquire="acquire" in mods)


def _tensormap_fence(warp: Warp, ins: Instruction) -> None:
    sync = warp.sync
    if "acquire" in ins.mods:
        sync.fence(release=False)
        address = int(warp.address(ins.operands[0])[warp.lane])
        fences = warp.cta.sync.state.setdefault("tensormap_fences", {})
        sync.tick()
        fences.setdefault(address, []).append((sync.agent, sync.time, dict(sync.clock)))
        del fences[address][:-8]
    else:
        sync.fence(acquire=False)


@handler("griddepcontrol")
def griddepcontrol(warp: Warp, ins: Instruction) -> None:
    """Nothing to wait for: one grid runs at a time."""


# -- setmaxnreg -----------------------------------------------------------------------------------


def entry_registers(cluster: Cluster) -> int | None:
    """Registers per thread at entry as ptxas fixes them, or None when it cannot know them.

    ptxas takes what the launch bounds leave, but no more than the largest ``setmaxnreg.inc``.
    """
    directives = cluster.machine.entry.directives
    limit = directives.get("maxnreg")
    if limit:
        return int(limit[0])
    threads = directives.get("reqntid") or directives.get("maxntid")
    if not threads or "minnctapersm" not in directives:
        return None
    total = 1
    for size in threads:
        total *= size
    share = REGISTER_FILE // (max(total, 1) * max(directives["minnctapersm"][0], 1))
    return min(share // 8 * 8, 255, *_increases(cluster.machine.module))


def _increases(module: Any) -> list[int]:
    """Return the largest count of a ``setmaxnreg.inc`` in the module, if there is one."""
    counts = [
        ins.operands[0].value
        for function in module.functions.values()
        for block in function.blocks
        for ins in block.instructions
        if ins.parts[:2] == ("setmaxnreg", "inc")
    ]
    return [max(counts)] if counts else []


class RegisterWait(Wait):
    """A warp whose ``setmaxnreg.inc`` waits for registers."""

    def __init__(self, warp: Warp, ins: Instruction, plan: dict[str, Any], wanted: int) -> None:
        """Store what is wanted."""
        self.warp, self.ins, self.plan, self.wanted = warp, ins, plan, wanted

    def _extra(self) -> int:
        return (self.wanted - self.plan["held"].get(self.warp, self.plan["entry"])) * 32

    def ready(self) -> bool:
        """Say whether the pool holds enough registers."""
        return self._extra() <= self.plan["free"]

    def resume(self, warp: Warp) -> None:
        """Take the registers."""
        self.plan["free"] -= self._extra()
        self.plan["held"][warp] = self.wanted

    def describe(self) -> str:
        """Say what the plan adds up to."""
        plan = self.plan
        warps = self.warp.cta.warps
        held = sum(32 * plan["held"].get(w, plan["entry"]) for w in warps)
        total = 32 * plan["entry"] * len(warps)
        return (
            f"setmaxnreg.inc {self.wanted} at {where(self.ins)} waits for {self._extra()} "
            f"registers, {plan['free']} are free: the warps hold {held} of the {total} registers "
            f"the CTA was launched with ({plan['entry']} per thread)"
        )


@handler("setmaxnreg")
def setmaxnreg(warp: Warp, ins: Instruction) -> Wait | None:
    """Give registers to, or take them from, the pool of the CTA."""
    from .sync_barriers import check_converged

    machine = warp.machine
    check_converged(warp, ins, "setmaxnreg")
    plan = warp.cta.sync.state["registers"]
    wanted = warp.scalar(ins.operands[0])
    if wanted % 8 or not 24 <= wanted <= 256:
        machine.finding(
            "setmaxnreg", f"setmaxnreg {wanted}: must be a multiple of 8 in 24..256",
            ins=ins, warp=warp,
        )  # fmt: skip
        return None
    if plan["entry"] is None:
        machine.finding(
            "setmaxnreg",
            "setmaxnreg needs the entry register count: give launch_bounds=(threads, 1) or "
            "max_registers, else ptxas drops it",
            ins=ins, warp=warp, severity="warning",
        )  # fmt: skip
        return None
    held = plan["held"].get(warp, plan["entry"])
    if "dec" in ins.mods:
        if wanted > held:
            machine.finding(
                "setmaxnreg",
                f"setmaxnreg.dec {wanted} but the warp holds {held} registers per thread: dec "
                "must not raise the count, use inc",
                ins=ins, warp=warp,
            )  # fmt: skip
            return None
        if not _increases(machine.module):
            machine.finding(
                "setmaxnreg",
                f"setmaxnreg.dec {wanted} frees registers that nothing takes: the kernel has no "
                "setmaxnreg.inc, and no other CTA can use them",
                ins=ins, warp=warp, severity="advice",
            )  # fmt: skip
        plan["free"] += (held - wanted) * 32
        plan["held"][warp] = wanted
        machine.touch_event()
        return None
    if wanted < held:
        machine.finding(
            "setmaxnreg",
            f"setmaxnreg.inc {wanted} but the warp holds {held} registers per thread: inc must "
            "not lower the count, use dec",
            ins=ins, warp=warp,
        )  # fmt: skip
        return None
    wait = RegisterWait(warp, ins, plan, wanted)
    if wait.ready():
        wait.resume(warp)
        return None
    return wait


def _start(cluster: Cluster) -> None:
    entry = entry_registers(cluster)
    for cta in cluster.ctas:
        cta.sync.state["registers"] = {"entry": entry, "free": 0, "held": {}}


AT_CLUSTER_START.append(_start)
