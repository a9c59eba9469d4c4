"""The machine of one launch: memory layout, clusters, asynchronous operations."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from nbtc.layout.shared_pieces import SharedPiece

from ..errors import EmulatorError
from .findings import Report
from .hooks import Hooks
from .loader import Program
from .machine import (
    LANES,
    RANK_SHIFT,
    SHARED_BASE,
    AsyncOp,
    Cluster,
    Cta,
    Machine,
    MemoryFault,
    Stop,
)
from .memory import GlobalMemory, Region, SharedMemory
from .program import Function
from .scheduler import Scheduler
from .simt import Runner
from .warp import EngineWarp

MAX_SHARED = 227 * 1024
_LAZY = (0.0, 0.0, 0.0, 0.3, 0.6, 0.9)


class EngineMachine(Machine):
    """A launch in progress."""

    def __init__(self, program: Program, entry: Function, seed: int, policy: str) -> None:
        """Set up an empty machine."""
        super().__init__()
        self.program, self.module, self.entry = program, program.module, entry
        self.memory = GlobalMemory()
        self.report = Report()
        self.random = random.Random(seed)
        self.policy = policy
        self.hooks = Hooks()
        self.params = np.zeros(0, np.uint8)
        self.pieces: tuple[SharedPiece, ...] = ()
        self.dynamic_start: int | None = None
        self.argument_names: tuple[str, ...] = ()
        self.param_values: dict[tuple[int, int, bool], Any] = {}
        self.special_rows: dict[tuple[str, Any], np.ndarray] = {}
        self.clock = 1000
        self.clock_event = -1
        self.clock_reads = 0
        self.dynamic_smem = 0
        self.explicit_cluster = False
        self.bytes_read: dict[str, int] = defaultdict(int)
        self.bytes_written: dict[str, int] = defaultdict(int)
        self.conflicts: dict[Any, int] = {}
        self.warp_count = 0
        self.symbols: dict[str, int] = {}
        self.shared_size = 0
        self.static_size = 0
        self.runner = Runner(self)
        self.instructions = 0
        self._completing = False
        self.ends = 0  # clusters and asynchronous operations that ended

    # -- asynchronous work ----------------------------------------------------------------------

    def drain_ready(self) -> None:
        """Complete every ready operation, oldest first."""
        if self._completing:
            return
        self._completing = True
        try:
            again = True
            while again:
                again = False
                for op in list(self.queue):
                    if op.ready():
                        self.finish(op)
                        again = True
        finally:
            self._completing = False

    def finish(self, op: AsyncOp) -> None:
        """Complete one operation."""
        self.queue.remove(op)
        self.events += 1
        self.ends += 1
        try:
            op.complete()
        except MemoryFault as error:
            self.fatal(
                error.kind,
                error.message,
                ins=getattr(op, "ins", None),
                warp=getattr(op, "warp", None),
            )

    def finish_one(self, at_random: bool) -> bool:
        """Complete one ready operation; False when none is ready."""
        queue = self.queue
        if not queue:
            return False
        if at_random:
            op = queue[int(self.random.random() * len(queue))]
            if op.ready():
                self.finish(op)
                return True
            return False
        for op in queue:
            if op.ready():
                self.finish(op)
                return True
        return False

    # -- setting up -----------------------------------------------------------------------------

    def lay_out_shared(self, dynamic: int, base: int | None) -> None:
        """Give shared variables their offsets."""
        variables = self.program.shared_variables(self.entry)
        offset = 0
        dynamic_align = 16
        for variable in variables:
            if variable.dynamic:
                dynamic_align = max(dynamic_align, variable.align)
                continue
            offset = (offset + variable.align - 1) // variable.align * variable.align
            self.symbols[variable.name] = offset
            offset += variable.size
        self.static_size = offset
        start = (offset + dynamic_align - 1) // dynamic_align * dynamic_align
        if base is not None:
            if base < SHARED_BASE + start or base % 16:
                raise EmulatorError(
                    f"dynamic_smem_base={base} must be a multiple of 16 and at least "
                    f"{SHARED_BASE + start} (static shared memory ends there)"
                )
            start = base - SHARED_BASE
        for variable in variables:
            if variable.dynamic:
                self.symbols[variable.name] = self.dynamic_start = start
        used = start + dynamic if dynamic else offset
        padding = start - (offset + dynamic_align - 1) // dynamic_align * dynamic_align
        if used - max(padding, 0) > MAX_SHARED:
            raise EmulatorError(
                f"{used} bytes of shared memory asked (static {offset}, dynamic "
                f"{dynamic}); a CTA has at most {MAX_SHARED}"
            )
        self.shared_size = used
        self.dynamic_smem = dynamic

    def place_module(self) -> None:
        """Put module-scope variables into global memory."""
        for variable in self.module.variables.values():
            if variable.space not in ("global", "const") or variable.size == 0:
                continue
            data = np.zeros(variable.size, np.uint8)
            if variable.init:
                data[: len(variable.init)] = np.frombuffer(variable.init, np.uint8)
            for place, name in variable.relocs.items():
                symbol, _, extra = name.partition("+")
                target = self.module.variables.get(symbol)
                address = (
                    target.offset if target is not None else self.program.function_address(symbol)
                ) + int(extra or 0)
                width = min(8, variable.size - place)
                data[place : place + width] = np.frombuffer(
                    address.to_bytes(8, "little"), np.uint8
                )[:width]
            label = f"{variable.space} variable {variable.name}"
            self.memory.add(Region(variable.offset, data, label, variable.space == "global"))

    def start_cluster(self, where: tuple[int, int, int]) -> Cluster:
        """Create a cluster with all its CTAs and warps."""
        cluster = Cluster(self, where, self.cluster_dims)
        cx, cy, cz = self.cluster_dims
        nthreads = self.block[0] * self.block[1] * self.block[2]
        code = self.program.code(self.entry)
        for rank in range(cx * cy * cz):
            inside = (rank % cx, rank // cx % cy, rank // (cx * cy))
            ctaid = tuple(
                w * d + i for w, d, i in zip(where, self.cluster_dims, inside, strict=True)
            )
            cta: Any = Cta(cluster, rank, ctaid)  # type: ignore[arg-type]
            cta.shared = SharedMemory(self.shared_size, self.static_size)
            cta.shared_origin = (rank << RANK_SHIFT) | SHARED_BASE
            cta.symbols = {k: cta.shared_origin + v for k, v in self.symbols.items()}
            cta.nthreads = nthreads
            for index in range((nthreads + LANES - 1) // LANES):
                warp = EngineWarp(cta, index, self.warp_count, min(LANES, nthreads - index * LANES))
                self.warp_count += 1
                warp.laziness = self.random.choice(_LAZY)
                cta.warps.append(warp)
            cta.running = len(cta.warps)
            cluster.ctas.append(cta)
        cluster.running = len(cluster.ctas)  # type: ignore[attr-defined]
        self.clusters.append(cluster)
        for cta in cluster.ctas:
            for warp in cta.warps:
                warp.start(code)  # type: ignore[attr-defined]
        self.hooks.start_cluster(cluster)
        return cluster

    def lanes_exited(self, warp: Any, lanes: np.ndarray) -> None:
        """Tell the checks about ended lanes, and about a CTA that ended with them."""
        self.hooks.exit_lanes(warp, lanes)
        if not warp.live.any():
            cta = warp.cta
            cta.running -= 1
            if cta.running == 0:
                cta.exited = True
                self.hooks.exit_cta(cta)
                cta.cluster.running -= 1

    # -- running --------------------------------------------------------------------------------

    def run(self, progress: Callable[[float], None]) -> None:
        """Run all clusters of the grid."""
        scheduler = Scheduler(self, progress)
        try:
            scheduler.run()
        except Stop:
            pass
        except MemoryFault as error:
            ins = getattr(error, "ins", None) or self.runner.current
            try:
                self.fatal(error.kind, error.message, ins=ins, warp=scheduler.running)
            except Stop:
                pass
        self.instructions += sum(w.count for c in self.clusters for a in c.ctas for w in a.warps)
