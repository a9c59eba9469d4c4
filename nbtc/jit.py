"""Kernels: ``nbtc.jit`` makes one of a Python function, and kernels compile, launch and emulate."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import math
import os
import sys
import types as pytypes
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

import nbtc.ptx.lower  # noqa: F401 - makes declared instructions known to Numba
from nbtc import arch as arch_module
from nbtc import argument_types, arguments, driver, fingerprint, saved
from nbtc.arch import Arch
from nbtc.compile import Compiled, CompileOptions, compile_kernel, key_of
from nbtc.device_function import DeviceFunction, device
from nbtc.errors import CompileError, EmulatorWarning, LaunchError, LayoutError
from nbtc.launch import LaunchOptions, LaunchPlan, LaunchSyntax
from nbtc.launch_options import LaunchConfig, by_name, dim3
from nbtc.layout.shared_pieces import SharedPiece
from nbtc.notes import NotesMode
from nbtc.numba_compat import KernelBounds
from nbtc.spelling import checked, require_options

__all__ = [
    "Compiled",
    "DeviceFunction",
    "EmulatedLaunch",
    "Kernel",
    "device",
    "jit",
    "set_report_hook",
]

DEFAULT_ARCH = "sm_90a"
"""Target where neither the caller, nor the kernel, nor a GPU says another."""


class Kernel(LaunchSyntax):
    """A kernel: compiled per argument types and target, launched as ``kernel[grid, block](...)``.

    Made by :func:`jit`. With no GPU, or with ``NBTC_EMULATE=1``, the launch syntax runs the
    emulator on NumPy arrays in place and raises on findings.

    Attributes:
        py_func: the Python function.
        options: how it is launched.
        arch: target given to :func:`jit`, or None.
        notes: what serious notes of ptxas do: ``"error"``, ``"warn"`` or ``"ignore"``.
        pieces: pieces of the shared layout with their offsets, for reports.
    """

    __name__: str
    __qualname__: str

    def __init__(
        self,
        py_func: Callable[..., Any],
        *,
        options: LaunchOptions,
        compile_options: CompileOptions,
        arch: str | None,
        notes: NotesMode,
    ) -> None:
        _check_function(py_func)
        functools.update_wrapper(self, py_func)
        self.py_func = py_func
        self.options = options
        self.arch = arch
        self.notes: NotesMode = notes
        self.pieces: tuple[SharedPiece, ...] = ()
        self._compile_options = compile_options
        code = py_func.__code__
        self._names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        self._compiled: dict[str, Compiled] = {}
        self._loaded: dict[tuple[Any, ...], Compiled] = {}
        self._plans: dict[tuple[Any, ...], LaunchPlan] = {}

    def __repr__(self) -> str:
        return f"<nbtc kernel {self.__qualname__}>"

    def __reduce__(self) -> str:
        return self.__qualname__  # pickled by name, as functions are

    def __call__(self, *args: Any, **named: Any) -> None:
        """Refuse: a kernel needs a grid and a block."""
        raise LaunchError(f"{self.__qualname__}: give grid and block, kernel[grid, block](...)")

    @checked
    def compile(
        self, *types: Any, arch: str | Arch | None = None, notes: NotesMode | None = None
    ) -> Compiled:
        """Compile for argument types; needs no GPU and no driver.

        Args:
            types: one per argument: Numba types, strings such as ``"float32[:, ::1]"``,
                ``"bfloat16[:]"`` and ``"int32"``, ``nbtc.TensorMap`` or a tensor map, NumPy arrays,
                tensors, numbers. Kernels differ by the memory order of arrays, so write ``::1`` for
                C-contiguous ones.
            arch: target such as ``"sm_90a"``; default: that of :func:`jit`, else of the GPU, else
                ``"sm_90a"``.
            notes: overrides the option of :func:`jit`.

        Raises:
            ArchError, InstructionError, CompileError, VersionError, LayoutError: see
                :func:`nbtc.compile.compile_kernel`. The message starts with the Python line.
        """
        signature = tuple(map(argument_types.argument_type, types))
        if len(signature) != len(self._names):
            raise CompileError(
                f"kernel {self.__qualname__} takes {len(self._names)} arguments "
                f"({', '.join(self._names)}), {len(signature)} types were given"
            )
        target = arch_module.parse(arch or self.arch or default_arch())
        loaded = self._loaded.get((signature, target.name))
        if loaded is not None:
            return loaded
        mode = notes or self.notes
        # Hashed each time, cheaply: a global or a closure value may have changed.
        with fingerprint.session() as hasher:
            identity, _ = key_of(hasher, self.py_func, signature, target, self._compile_options)
            found = self._compiled.get(identity)
            if found is None or mode != self.notes:
                found = self._compiled[identity] = compile_kernel(
                    self.py_func, signature, target, self._compile_options, notes_mode=mode
                )
            return found

    @checked
    def save(self, path: str | Path, *types: Any, arch: str | Arch | None = None) -> Compiled:
        """Compile for argument types and keep the kernel in a file, for a machine that launches it.

        Args:
            path: the file.
            types: as in :meth:`compile`.
            arch: as in :meth:`compile`.

        Returns:
            What was compiled.

        Raises:
            OSError: the file cannot be written; else as :meth:`compile`.
        """
        made = self.compile(*types, arch=arch)
        saved.save(path, made, self.py_func, self._compile_options)
        return made

    def load(self, path: str | Path, *types: Any) -> Compiled:
        """Take the kernel for argument types from a file of :meth:`save`.

        From now on it is what :meth:`compile` returns and what launches run for these types and its
        target: nothing is compiled, and ptxas need not be there. Load before the first launch.

        Args:
            path: the file.
            types: as in :meth:`compile`, the ones it was saved for.

        Raises:
            CompileError: the file does not exist, is damaged, or is of another kernel, other types
                or another version of the source.
        """
        signature = tuple(map(argument_types.argument_type, types))
        found = saved.load(path, signature, self.py_func, self._compile_options)
        self._loaded[signature, found.arch] = found
        return found

    @property
    def argument_names(self) -> tuple[str, ...]:
        """Python names of the arguments, which errors of a launch use."""
        return self._names

    def plan_for(self, args: Sequence[Any]) -> LaunchPlan:
        """Return the launch plan for arguments of these types, compiling if there is none."""
        types = arguments.types_of(args)
        compiled = self.compile(*types, arch=self.arch or device_arch())
        identity = (types, id(compiled))
        plan = self._plans.get(identity)
        if plan is None:
            plan = self._plans[identity] = LaunchPlan(compiled, self.options, self._names)
        return plan

    def __getitem__(self, configuration: Any) -> Any:
        """Return the kernel configured with grid, block and optionally stream and shared memory."""
        if not emulating():
            return super().__getitem__(configuration)
        if not isinstance(configuration, tuple) or not 2 <= len(configuration) <= 4:
            raise LaunchError(f"kernel[{configuration!r}]: give kernel[grid, block]")
        return EmulatedLaunch(self, LaunchConfig(*configuration))

    def emulate(
        self,
        grid: Any,
        block: Any,
        *args: Any,
        seed: int = 0,
        arch: str | Arch | None = None,
        dynamic_smem: int | None = None,
        **options: Any,
    ) -> Any:
        """Run the kernel's PTX on the emulator and return its report.

        Args:
            grid: blocks, 1 to 3 entries, counted in blocks also with clusters.
            block: threads per block, 1 to 3 entries.
            args: the kernel's arguments; NumPy arrays are read and written in place.
            seed: seed of the schedule.
            arch: target to compile for; default as in :meth:`compile`.
            dynamic_smem: bytes, where the kernel's own layout does not say.
            options: passed on to ``nbtc.emulator.launch``.

        Returns:
            The ``Report``: findings, warnings, advice, counts.
        """
        from nbtc import emulator

        parameters = inspect.signature(emulator.launch).parameters
        own = {"pieces", "argument_names"}
        legal = [k for k, p in parameters.items() if p.default is not p.empty and k not in own]
        own_names = [name for name in options if name in self._names and name not in legal]
        if own_names:
            raise by_name(self, own_names)
        require_options(f"{self.__qualname__}.emulate", options, legal)
        compiled = self.compile(*arguments.types_of(args), arch=arch)
        dynamic = compiled.resources.dynamic_smem_bytes if dynamic_smem is None else dynamic_smem
        return emulator.launch(
            compiled.ptx,
            compiled.entry,
            grid=dim3(grid, "grid"),
            block=dim3(block, "block"),
            args=flat_arguments(args),
            cluster=self.options.cluster or (1, 1, 1),
            dynamic_smem=dynamic,
            seed=seed,
            pieces=self.pieces,
            argument_names=_flat_names(self._names, args),
            **options,
        )


def _check_function(function: Any) -> None:
    if isinstance(function, staticmethod | classmethod):
        raise CompileError(
            f"nbtc.jit takes a Python function, got {type(function).__name__}: write "
            "@staticmethod above @nbtc.jit"
        )
    if not isinstance(function, pytypes.FunctionType):
        raise CompileError(f"nbtc.jit takes a Python function, got {type(function).__name__}")
    flags, name = function.__code__.co_flags, function.__qualname__
    if flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        raise CompileError(
            f"kernel {name}: *args and **kwargs are not possible; name every parameter, or take "
            "a tuple"
        )
    if flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise CompileError(f"kernel {name} is a generator or async; a kernel is a plain function")


class EmulatedLaunch:
    """A configured kernel on the emulator: calling it runs it and raises on findings."""

    def __init__(self, kernel: Kernel, config: LaunchConfig) -> None:
        self._kernel = kernel
        self._config = config

    def __call__(self, *args: Any, **named: Any) -> None:
        """Run to the end; arrays are read and written in place.

        ``NBTC_SEED`` sets the seed of the schedule, ``NBTC_COMPLETION`` when asynchronous work
        completes. What is risky without being wrong is issued as an ``EmulatorWarning``.

        Raises:
            FindingsError: the emulator found faults.
            LaunchError: the configuration breaks a rule of the kernel.
            TypeError: arguments were given by name.
        """
        if named:
            raise by_name(self._kernel, named)
        kernel, config = self._kernel, self._config
        compiled = kernel.compile(*arguments.types_of(args))
        LaunchPlan(compiled, kernel.options, kernel.argument_names).check_config(config)
        seed = int(os.environ.get("NBTC_SEED", "0"))
        report = kernel.emulate(
            config.grid, config.block, *args, seed=seed,
            completion=os.environ.get("NBTC_COMPLETION") or "random",
            dynamic_smem=config.dynamic_smem_bytes or None,
        )  # fmt: skip
        if _report_hook is not None:
            _report_hook(self._kernel, report)
        else:
            report.raise_for_findings()
            _last_advice[:] = map(str, report.advice)
            for one in report.warnings:
                warnings.warn(str(one), EmulatorWarning, stacklevel=2)

    def bind(self, *args: Any) -> Callable[[], None]:
        """Return a function that runs the kernel with these arguments, as on a GPU."""
        return functools.partial(self, *args)


_last_advice: list[str] = []


def last_advice() -> tuple[str, ...]:
    """Return the advice of the last emulated launch: what to read when a result is wrong."""
    return tuple(_last_advice)


_report_hook: Callable[[Kernel, Any], None] | None = None


def set_report_hook(hook: Callable[[Kernel, Any], None] | None) -> None:
    """Hand the report of every emulated launch to ``hook(kernel, report)`` instead of raising.

    Args:
        hook: the receiver; None restores raising.
    """
    global _report_hook  # noqa: PLW0603 - one hook of the process
    _report_hook = hook


def emulating() -> bool:
    """Return whether launches run on the emulator: ``NBTC_EMULATE`` if set, else no GPU."""
    asked = os.environ.get("NBTC_EMULATE")
    if asked:
        return asked not in {"0", "false", "no"}
    return not _gpu()


@functools.cache
def _gpu() -> bool:
    return driver.available()


def device_arch() -> str:
    """Return the best target for the current GPU."""
    return arch_module.from_cc(driver.compute_capability(driver.current_device())).name


def default_arch() -> str:
    """Return the target of the current GPU, or ``sm_90a`` where there is none."""
    return DEFAULT_ARCH if emulating() else device_arch()


def flat_arguments(args: Sequence[Any]) -> list[Any]:
    """Return one value per PTX parameter, in Numba's order, as ``nbtc.emulator.launch`` takes them.

    An array is seven or more: two null pointers, element count, item size, the array itself for its
    address, its extents, and its strides in bytes. Tuples are flattened, complex numbers split.
    """
    flat: list[Any] = []
    for value in args:
        flat += _flatten(value)
    return flat


def _flat_names(names: Sequence[str], args: Sequence[Any]) -> list[str]:
    """Return the Python name of every value of :func:`flat_arguments`, as ``scales[1]``."""
    flat: list[str] = []
    for name, value in zip(names, args, strict=True):
        if isinstance(value, tuple):
            flat += _flat_names([f"{name}[{i}]" for i in range(len(value))], value)
        else:
            flat += [name] * len(_flatten(value))
    return flat


def _flatten(value: Any) -> list[Any]:
    if isinstance(value, tuple):
        return flat_arguments(value)
    if isinstance(value, enum.Enum):
        return [value.value]
    if isinstance(value, complex | np.complexfloating):
        return [value.real, value.imag]
    if isinstance(value, np.generic) and value.dtype.kind not in "biuf":
        return [float(value)]  # ml_dtypes scalars are float32 in kernels
    if isinstance(value, arguments.TypedView):
        value = value.array
    if value is None or isinstance(value, int | float | np.generic):
        return [0 if value is None else value]
    if arguments.is_tensor_map(type(value)):
        return [value]
    view = arguments.view_of(value)
    if view is None:
        return [value]
    size = view.dtype.itemsize
    return [0, 0, math.prod(view.shape), size, value, *view.shape, *view.strides]


@overload
def jit(function: Callable[..., Any], /) -> Kernel: ...


@overload
def jit(
    *,
    cluster: Any = None,
    require_cluster: bool = False,
    launch_bounds: int | tuple[int, ...] | None = None,
    max_registers: int | None = None,
    shared: Any = None,
    pdl: bool = False,
    non_portable: bool = False,
    cooperative: bool = False,
    notes: NotesMode = "error",
    fastmath: bool = False,
    lineinfo: bool = True,
    arch: str | None = None,
) -> Callable[[Callable[..., Any]], Kernel]: ...


@checked
def jit(
    function: Callable[..., Any] | None = None,
    /,
    *,
    cluster: Any = None,
    require_cluster: bool = False,
    launch_bounds: int | tuple[int, ...] | None = None,
    max_registers: int | None = None,
    shared: Any = None,
    pdl: bool = False,
    non_portable: bool = False,
    cooperative: bool = False,
    notes: NotesMode = "error",
    fastmath: bool = False,
    lineinfo: bool = True,
    arch: str | None = None,
) -> Any:
    """Make a kernel of a Python function; use as ``@nbtc.jit`` or ``@nbtc.jit(option=...)``.

    Args:
        function: the kernel. It returns nothing.
        cluster: blocks per cluster, 1 to 3 entries; the grid stays counted in blocks.
        require_cluster: write the cluster size into the code too (``.reqnctapercluster``), so that
            the kernel cannot be launched with another one. Not needed for a launch by nbtc.
        launch_bounds: most threads per block, optionally with the least number of blocks per
            multiprocessor (default 1), which is always emitted because setmaxnreg needs it.
        max_registers: most registers per thread at entry.
        shared: layout of dynamic shared memory (``nbtc.device.shared``); its ``nbytes`` are asked
            for at every launch.
        pdl: programmatic dependent launch: start before the previous kernel in the stream has
            ended; the kernel executes ``griddepcontrol.wait`` before it reads what that one wrote.
        non_portable: allow clusters of more than 8 blocks.
        cooperative: all blocks must be resident at once.
        notes: what notes of ptxas about serialised wgmma, injected waits or fences, or an ignored
            setmaxnreg do: ``"error"``, ``"warn"`` or ``"ignore"``.
        fastmath: reassociate, contract, approximate division, flush subnormals.
        lineinfo: keep Python lines in PTX and cubin; costs no speed.
        arch: target; default: that of the GPU.

    Raises:
        CompileError: an option is not usable.
        ArchError: the target is not supported; the message lists all that are.
    """
    if arch is not None:
        arch_module.parse(arch)
    if notes not in {"error", "warn", "ignore"}:
        raise CompileError(f'notes={notes!r}: must be "error", "warn" or "ignore"')
    if require_cluster and cluster is None:
        raise CompileError("require_cluster=True needs cluster=")
    if shared is not None and not (hasattr(shared, "nbytes") and hasattr(shared, "placed")):
        raise LayoutError(
            f"shared={shared!r}: needs a nbtc.shared.Layout(name=piece, ...), with pieces made by "
            "shared.tile, shared.barriers and shared.array"
        )
    bounds = _bounds(launch_bounds, max_registers)
    if require_cluster:
        bounds = dataclasses.replace(bounds, cluster=dim3(cluster, "cluster"))
    launching = LaunchOptions(
        cluster=cluster,
        launch_bounds=None
        if bounds.max_threads is None
        else (bounds.max_threads, bounds.min_blocks),
        programmatic_launch=pdl,
        non_portable=non_portable,
        cooperative=cooperative,
    )
    compiling = CompileOptions(
        bounds=bounds,
        dynamic_smem_bytes=0 if shared is None else int(shared.nbytes),
        lineinfo=lineinfo,
        fastmath=fastmath,
    )

    def decorate(target: Callable[..., Any]) -> Kernel:
        kernel = Kernel(
            target, options=launching, compile_options=compiling, arch=arch, notes=notes
        )
        if shared is not None:
            kernel.pieces = shared.placed()
        return kernel

    return decorate if function is None else decorate(function)


def _bounds(launch_bounds: Any, max_registers: int | None) -> KernelBounds:
    if launch_bounds is None:
        threads, blocks = None, 1
    else:
        parts = launch_bounds if isinstance(launch_bounds, tuple | list) else (launch_bounds,)
        if not 1 <= len(parts) <= 2 or not all(isinstance(p, int) and p > 0 for p in parts):
            raise CompileError(
                f"launch_bounds={launch_bounds!r}: give threads, or (threads, blocks per "
                "multiprocessor)"
            )
        threads, blocks = (*parts, 1)[:2]
        if threads > 1024:
            raise CompileError(f"launch_bounds={launch_bounds!r}: a block has at most 1024 threads")
    if max_registers is not None and not 16 <= max_registers <= 255:
        raise CompileError(f"max_registers={max_registers}: must be 16..255")
    return KernelBounds(max_threads=threads, min_blocks=blocks, max_registers=max_registers)


class _CallableModule(pytypes.ModuleType):
    """Makes the module usable as the decorator whose name it shares."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return jit(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
