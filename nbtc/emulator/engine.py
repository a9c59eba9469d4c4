"""Launching a kernel of a PTX text on the emulator."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from nbtc.layout.shared_pieces import SharedPiece

from ..errors import EmulatorError
from . import progress as progress_line
from . import warp_ops  # noqa: F401  (registers its handlers)
from .arguments import pack_arguments
from .findings import Report, plain_name, user_first
from .float64_use import advise_float64
from .hooks import Hooks
from .launched import EngineMachine
from .loader import load
from .program import Function, Module

_POLICIES = ("random", "earliest", "latest")


def _import_handlers() -> None:
    import nbtc.emulator as package

    for item in pkgutil.iter_modules(package.__path__):
        if item.name.startswith("sync_"):
            importlib.import_module(f"nbtc.emulator.{item.name}")


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
    names: Mapping[int, str] | None = None,
    pieces: Iterable[SharedPiece] = (),
    argument_names: Sequence[str] = (),
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
            about five times a second. None shows a line on stderr once the launch takes over 2 s,
            where stderr is a terminal (``NBTC_PROGRESS=0``: never; ``NBTC_PROGRESS=1``: always).
        dynamic_smem_base: shared address of the dynamic part; default directly after the static
            part.
        names: names of barriers by byte offset in dynamic shared memory, for the messages.
        pieces: pieces of dynamic shared memory, for the messages.
        argument_names: one per PTX parameter, what the messages call it; default its number.

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
    barriers = (SharedPiece(name, offset, 8, 8) for offset, name in (names or {}).items())
    machine.pieces = (*barriers, *pieces)
    machine.argument_names = tuple(argument_names)
    machine.place_module()
    machine.lay_out_shared(int(dynamic_smem), dynamic_smem_base)
    machine.params = pack_arguments(machine, function, args)
    _import_handlers()
    machine.hooks = _hooks(machine, checks)
    gx, gy, gz = (g // c for g, c in zip(machine.grid, machine.cluster_dims, strict=True))
    machine.waiting_clusters = [(x, y, z) for z in range(gz) for y in range(gy) for x in range(gx)]
    watched = (
        nullcontext(progress) if progress else progress_line.launch(plain_name(function.name) or "")
    )
    with np.errstate(all="ignore"), watched as show:
        machine.hooks.begin(machine)
        machine.run(show)
        machine.hooks.end(machine)
    if machine.hooks.wants_memory:
        advise_float64(machine)
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


__all__ = ["launch", "load", "triple"]
