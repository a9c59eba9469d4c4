"""Launching: load a module, convert arguments, schedule warps and asynchronous work."""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
import random
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from time import monotonic
from typing import Any

import numpy as np

from ..errors import EmulatorError
from . import warp_ops  # noqa: F401  (registers its handlers)
from .arguments import pack_arguments
from .codegen import FunctionCode
from .findings import Report, user_first
from .machine import (
    LANES,
    RANK_SHIFT,
    SHARED_BASE,
    AsyncOp,
    Cluster,
    Cta,
    Hooks,
    Machine,
    MemoryFault,
    Stop,
)
from .memory import GlobalMemory, Region, SharedMemory
from .parser import parse
from .program import Function, Module, Reg, Symbol, Variable, Vec
from .simt import BLOCKED, ActivePath, EngineWarp, Runner

MODULE_BASE = 0x7E00_0000_0000
FUNCTION_BASE = 0x7D00_0000_0000
MAX_SHARED = 227 * 1024
_CACHE: OrderedDict[bytes, Program] = OrderedDict()
_POLICIES = ("random", "earliest", "latest")
_LAZY = (0.0, 0.0, 0.0, 0.3, 0.6, 0.9)


class Program:
    """A parsed module with its layout and generated code; cached by text."""

    def __init__(self, module: Module) -> None:
        """Lay out variables."""
        self.module = module
        module.program = self  # type: ignore[attr-defined]
        self._code: dict[str, FunctionCode] = {}
        self._areas: dict[str, int] = {}
        self._functions = list(module.functions)
        place = MODULE_BASE
        for variable in module.variables.values():
            if variable.space in ("global", "const"):
                place = (place + variable.align + 255) // 256 * 256
                variable.offset = place
                place += max(variable.size, 1) + 4096
        for function in module.functions.values():
            self._lay_out(function)

    def _lay_out(self, function: Function) -> None:
        local, area = 0, 0
        if function.entry:
            offset = 0
            for parameter in function.params:
                offset = (offset + parameter.align - 1) // parameter.align * parameter.align
                parameter.offset = offset
                offset += parameter.size
        else:
            for parameter in [*function.params, *function.returns]:
                if parameter.space == "param":
                    area = (area + 15) // 16 * 16
                    parameter.offset = area
                    area += parameter.size
        for variable in function.variables:
            if variable.space == "local":
                align = max(variable.align, 1)
                local = (local + align - 1) // align * align
                variable.offset = local
                local += variable.size
            elif variable.space == "param":
                area = (area + 15) // 16 * 16
                variable.offset = area
                area += variable.size
            elif variable.space in ("global", "const", "shared"):
                self.module.variables.setdefault(variable.name, variable)
        function.local_size = (local + 15) // 16 * 16
        self._areas[function.name] = area

    def area_size(self, function: Function) -> int:
        """Bytes of the parameter area of a frame."""
        return self._areas[function.name]

    def is_entry_param(self, variable: Variable, function: Function) -> bool:
        """Say whether a variable is a parameter of the kernel itself."""
        return function.entry and any(p is variable for p in function.params)

    def function_address(self, name: str) -> int:
        """Fake address of a function."""
        if name not in self._functions:
            raise EmulatorError(f"{name} is not declared in this module")
        return FUNCTION_BASE + 16 * self._functions.index(name)

    def function_name(self, address: int) -> str | None:
        """Name of the function at a fake address."""
        index, rest = divmod(address - FUNCTION_BASE, 16)
        if rest or not 0 <= index < len(self._functions):
            return None
        return self._functions[index]

    def register_of(self, function: Function, variable: Variable) -> tuple[int, int]:
        """Bank and row of a register parameter."""
        for (bits, index), name in function.register_names.items():
            if name == variable.name:
                return bits, index
        raise EmulatorError(f"{variable.name} is not a register of {function.name}")

    def code(self, function: Function) -> FunctionCode:
        """Generated code of a function."""
        code = self._code.get(function.name)
        if code is None:
            code = self._code[function.name] = FunctionCode(function, self)
        return code

    def shared_variables(self, entry: Function) -> list[Variable]:
        """Shared variables that the entry and its callees name, in order of declaration."""
        seen: set[str] = set()
        names: set[str] = set()
        todo = [entry.name]
        while todo:
            function = self.module.functions.get(todo.pop())
            if function is None or function.name in seen:
                continue
            seen.add(function.name)
            for block in function.blocks:
                for ins in block.instructions:
                    for operand in ins.operands:
                        _collect(operand, names, todo)
        return [
            v for v in self.module.variables.values() if v.space == "shared" and v.name in names
        ]


def _collect(operand: Any, names: set[str], todo: list[str]) -> None:
    if isinstance(operand, Symbol):
        names.add(operand.name)
        todo.append(operand.name)
    elif isinstance(operand, Vec):
        for item in operand.items:
            _collect(item, names, todo)
    elif hasattr(operand, "base"):
        _collect(operand.base, names, todo)


def load(ptx: str | bytes) -> Program:
    """Parse PTX, or give the cached program of the same text."""
    data = ptx if isinstance(ptx, bytes) else ptx.encode()
    key = hashlib.sha256(data).digest()
    program = _CACHE.get(key)
    if program is None:
        program = _CACHE[key] = Program(parse(data.decode()))
        while len(_CACHE) > 16:
            _CACHE.popitem(last=False)
    else:
        _CACHE.move_to_end(key)
    return program


def _import_handlers() -> None:
    import nbtc.emulator as package

    for item in pkgutil.iter_modules(package.__path__):
        if item.name.startswith("sync_"):
            importlib.import_module(f"nbtc.emulator.{item.name}")


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
        self.clock = 1000
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
                self.symbols[variable.name] = start
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

    def run(self, progress: Callable[[float], None] | None) -> None:
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


class Scheduler:
    """Chooses who runs next: seeded, with lazy warps and delayed copies."""

    max_resident = 264

    def __init__(self, machine: EngineMachine, progress: Callable[[float], None] | None) -> None:
        """Start with no cluster alive."""
        self.machine, self.progress = machine, progress
        self.ready: list[Any] = []
        self.blocked: list[Any] = []
        self.running: Any = None
        self.total = max(len(machine.waiting_clusters), 1)
        self.done = 0
        self.beat = monotonic() + 0.2

    def run(self) -> None:
        """Run until every cluster has ended, or nothing can go on."""
        machine = self.machine
        rand = machine.random.random
        runner = machine.runner
        eager = machine.policy == "random"
        picks = 0
        while True:
            if not self.ready and not self.next_work():
                return
            ready = self.ready
            if not ready:
                continue
            picks += 1
            if self.progress is not None and picks & 63 == 0 and monotonic() > self.beat:
                self.beat = monotonic() + 0.2
                self.progress(min(self.done / self.total, 1.0))
            if eager and machine.queue and rand() < 0.25:
                machine.finish_one(True)
            if picks & 7 == 0 and self.blocked:
                self.poll()
            at = int(rand() * len(ready))
            warp = ready[at]
            if warp.laziness and len(ready) > 1 and rand() < warp.laziness:
                continue
            self.running = warp
            path = self.choose_path(warp)
            if path is None:
                ready[at] = ready[-1]
                ready.pop()
                if warp.paths:
                    self.blocked.append(warp)
                else:
                    self.retire(warp)
                continue
            runner.run(path, 64 if rand() < 0.5 else 4)

    def choose_path(self, warp: Any) -> ActivePath | None:
        """Give a path of the warp that can run."""
        events = self.machine.events
        paths = warp.paths
        if len(paths) == 1:
            path = paths[0]
            if path.wait is None:
                return path if path.spin_events != events else None
            return path if path.wait.ready() else None
        found = [
            p for p in paths if (p.spin_events != events if p.wait is None else p.wait.ready())
        ]
        if not found:
            return None
        return found[int(self.machine.random.random() * len(found))]

    def poll(self) -> None:
        """Move warps that can go on from blocked to ready."""
        still = []
        events = self.machine.events
        for warp in self.blocked:
            if warp.seen == events:
                still.append(warp)
            elif self.choose_path(warp) is not None:
                self.ready.append(warp)
            else:
                warp.seen = events
                still.append(warp)
        self.blocked = still

    def retire(self, warp: Any) -> None:
        """A warp has no path left: it ended, with its CTA and cluster perhaps."""
        if warp.live.any():
            self.blocked.append(warp)
            return
        cluster = warp.cta.cluster
        if cluster.running == 0 and cluster in self.machine.clusters:
            self.end_cluster(cluster)

    def end_cluster(self, cluster: Any) -> None:
        """Drain the cluster's asynchronous work and drop it."""
        machine = self.machine
        while True:
            mine = [op for op in machine.queue if op.cta.cluster is cluster and op.ready()]
            if not mine:
                break
            machine.finish(mine[0])
        machine.queue = [op for op in machine.queue if op.cta.cluster is not cluster]
        machine.hooks.end_cluster(cluster)
        machine.instructions += sum(w.count for a in cluster.ctas for w in a.warps)
        machine.clusters.remove(cluster)
        self.done += 1
        if self.progress is not None:
            self.progress(min(self.done / self.total, 1.0))

    def next_work(self) -> bool:
        """Find work when no warp is ready; False when the grid has ended."""
        machine = self.machine
        if self.blocked:
            self.poll()
            if self.ready:
                return True
            if machine.finish_one(machine.policy == "random") or machine.finish_one(False):
                self.poll()
                return True
            if self.expire():
                return True
            if (
                machine.waiting_clusters
                and len(machine.clusters) * len(machine.clusters[0].ctas) < self.max_resident
            ):
                self.start_next()
                return True
            self.deadlock()
        if machine.waiting_clusters:
            self.start_next()
            return True
        return False

    def start_next(self) -> None:
        """Start the next cluster of the grid."""
        machine = self.machine
        cluster = machine.start_cluster(machine.waiting_clusters.pop(0))
        for cta in cluster.ctas:
            self.ready.extend(cta.warps)

    def expire(self) -> bool:
        """Let weak waits fail once per state of the machine."""
        machine = self.machine
        events = machine.events
        found = False
        for warp in list(self.blocked):
            for path in warp.paths:
                wait = path.wait
                if wait is None or not wait.weak:
                    continue
                if path.expired.get(wait.ins) == events:
                    continue
                path.expired[wait.ins] = events
                path.wait = None
                warp.path, warp.frame, warp.active = path, path.frame, wait.mask
                wait.expire(warp)
                found = True
                if warp in self.blocked:
                    self.blocked.remove(warp)
                    self.ready.append(warp)
        return found

    def deadlock(self) -> None:
        """Report that nothing can go on, and end."""
        waiting = [(p, p.wait) for w in self.blocked for p in w.paths if p.wait is not None]
        spinning = [p for w in self.blocked for p in w.paths if p.wait is None]
        self.machine.hooks.deadlock(self.machine, waiting, spinning)
        raise Stop


def launch(
    ptx: str | bytes,
    entry: str | None = None,
    *,
    grid: Any,
    block: Any,
    args: Any,
    cluster: Any = (1, 1, 1),
    dynamic_smem: int = 0,
    seed: int = 0,
    checks: Any = True,
    completion: str = "random",
    progress: Callable[[float], None] | None = None,
    dynamic_smem_base: int | None = None,
) -> Report:
    """Run a kernel of a PTX text on the CPU and report what is wrong with it.

    Args:
        ptx: a whole PTX module.
        entry: name of the kernel; None when the module has exactly one.
        grid: CTAs, an int or up to three ints (x, y, z).
        block: threads of a CTA, an int or up to three ints.
        args: one value per PTX parameter: an array (its emulated address; read and written in
            place), a NumPy or Python number (converted to the parameter's width, range-checked),
            None or 0 for a null pointer, a `TensorMap` or `TensorMapDescription` for a by-value
            map, bytes for any by-value parameter.
        cluster: CTAs of a cluster (x, y, z).
        dynamic_smem: bytes of dynamic shared memory per CTA.
        seed: seed of every choice of the scheduler.
        checks: True, False, or the names of the checks to make.
        completion: when asynchronous work completes: "random" (seeded), "earliest", "latest".
        progress: called with the fraction of the grid that has ended: after every cluster, and
            about five times a second.
        dynamic_smem_base: shared address of the dynamic part; default directly after the static
            part.

    Returns:
        The report. Races, deadlocks and memory faults are findings in it, never exceptions.

    Raises:
        EmulatorError: the call is wrong, or an instruction is not modelled.
    """
    program = load(ptx)
    function = _entry(program.module, entry)
    if completion not in _POLICIES:
        raise EmulatorError(f"completion={completion!r} must be one of {', '.join(_POLICIES)}")
    machine = EngineMachine(program, function, seed, completion)
    machine.grid, machine.block = triple(grid, "grid"), triple(block, "block")
    machine.cluster_dims = triple(cluster, "cluster")
    _check_shape(machine, function)
    machine.report.seed, machine.report.policy = seed, completion
    machine.place_module()
    machine.lay_out_shared(int(dynamic_smem), dynamic_smem_base)
    machine.params = pack_arguments(machine, function, args)
    _import_handlers()
    machine.hooks = _hooks(machine, checks)
    gx, gy, gz = (g // c for g, c in zip(machine.grid, machine.cluster_dims, strict=True))
    machine.waiting_clusters = [(x, y, z) for z in range(gz) for y in range(gy) for x in range(gx)]
    with np.errstate(all="ignore"):
        machine.hooks.begin(machine)
        machine.run(progress)
        machine.hooks.end(machine)
    finish_report(machine)
    return machine.report


def _hooks(machine: EngineMachine, checks: Any) -> Hooks:
    try:
        from .race import create_hooks
    except ImportError:
        return Hooks()
    return create_hooks(machine, checks)


def finish_report(machine: EngineMachine) -> None:
    """Copy the counters into the report."""
    report = machine.report
    report.instructions = machine.instructions
    for space, count in machine.bytes_read.items():
        report.bytes_read[space] = report.bytes_read.get(space, 0) + count
    for space, count in machine.bytes_written.items():
        report.bytes_written[space] = report.bytes_written.get(space, 0) + count
    for ins, extra in machine.conflicts.items():
        frames = user_first(ins.chain)
        key = (frames[0].file, frames[0].line) if frames else ("<ptx>", ins.ptx_line)
        report.bank_conflicts[key] = report.bank_conflicts.get(key, 0) + extra


def _entry(module: Module, name: str | None) -> Function:
    entries = [f.name for f in module.functions.values() if f.entry and f.defined]
    if name is None:
        if len(entries) != 1:
            raise EmulatorError(f"the module has {len(entries)} kernels; name one of {entries}")
        name = entries[0]
    function = module.functions.get(name)
    if function is None or not function.entry or not function.defined:
        raise EmulatorError(f"there is no kernel {name!r} in this module; it has {entries}")
    return function


def triple(value: Any, what: str) -> tuple[int, int, int]:
    """Normalise a dimension."""
    if isinstance(value, (int, np.integer)):
        value = (int(value),)
    out = tuple(int(v) for v in value)
    if not 1 <= len(out) <= 3 or any(v < 1 for v in out):
        raise EmulatorError(f"{what}={value!r} must be 1 to 3 positive integers")
    out = out + (1,) * (3 - len(out))
    return out[0], out[1], out[2]


def _check_shape(machine: EngineMachine, function: Function) -> None:
    block, directives = machine.block, function.directives
    nthreads = block[0] * block[1] * block[2]
    if nthreads > 1024 or block[2] > 64:
        raise EmulatorError(
            f"block={block} has {nthreads} threads; a CTA has at most 1024 (64 in z)"
        )
    required = directives.get("reqntid")
    if required:
        want = tuple(required) + (1,) * (3 - len(required))
        if want != block:
            raise EmulatorError(
                f"block={block}, but kernel {function.name} requires {want} (.reqntid)"
            )
    most = directives.get("maxntid")
    if most and nthreads > int(np.prod(most)):
        raise EmulatorError(
            f"block={block} has {nthreads} threads, but kernel {function.name} "
            f"allows at most {int(np.prod(most))} (.maxntid)"
        )
    fixed = directives.get("reqnctapercluster")
    if fixed:
        want = tuple(fixed) + (1,) * (3 - len(fixed))
        if machine.cluster_dims == (1, 1, 1):
            machine.cluster_dims = want  # type: ignore[assignment]
        elif machine.cluster_dims != want:
            raise EmulatorError(
                f"cluster={machine.cluster_dims}, but kernel {function.name} "
                f"requires {want} (.reqnctapercluster)"
            )
    machine.explicit_cluster = bool(fixed) or machine.cluster_dims != (1, 1, 1)
    size = int(np.prod(machine.cluster_dims))
    if size > 16:
        raise EmulatorError(f"cluster={machine.cluster_dims} has {size} CTAs; at most 16 exist")
    for g, c in zip(machine.grid, machine.cluster_dims, strict=True):
        if g % c:
            raise EmulatorError(
                f"grid={machine.grid} is not a multiple of cluster={machine.cluster_dims}"
            )


__all__ = ["BLOCKED", "Program", "Reg", "launch", "load", "triple"]
