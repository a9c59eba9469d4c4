"""One compiled kernel, ready to launch: loaded code, parameter block, launch attributes.

A kernel is loaded as a context-free library, so one plan serves every device it was built for, and
its attributes (shared memory above 48 KiB, cluster sizes) are set once per device, never at launch.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol

from nbtc import arch, driver
from nbtc.arguments import probe, types_of, with_names
from nbtc.errors import ArchError, LaunchError
from nbtc.launch_options import PORTABLE_CLUSTER, LaunchConfig, LaunchOptions, show
from nbtc.parameters import ParameterLayout

DEFAULT_SMEM_LIMIT = 48 * 1024
"""Bytes of shared memory that a block may have without opting in."""

_REGISTER_FILE = 64 * 1024
KEPT = 512
"""Entries of a cache of configurations before it starts afresh."""

Run = Callable[[Sequence[Any]], None]
"""Packs flat values of the arguments and launches."""


class Resources(Protocol):
    """What ptxas says that a kernel uses."""

    @property
    def registers(self) -> int:
        """Registers per thread."""
        ...

    @property
    def static_smem_bytes(self) -> int:
        """Static shared memory per block."""
        ...

    @property
    def dynamic_smem_bytes(self) -> int:
        """Dynamic shared memory per block that the kernel needs."""
        ...


class Launchable(Protocol):
    """A compiled kernel."""

    @property
    def cubin(self) -> bytes:
        """Machine code."""
        ...

    @property
    def entry(self) -> str:
        """Symbol of the kernel."""
        ...

    @property
    def arch(self) -> Any:
        """Target it was built for."""
        ...

    @property
    def argument_types(self) -> tuple[Any, ...]:
        """Numba types of the Python arguments."""
        ...

    @property
    def resources(self) -> Resources:
        """Registers and shared memory."""
        ...


class LaunchPlan:
    """One compiled specialisation, ready to launch: parameter block, loaded code, attributes."""

    def __init__(
        self,
        compiled: Launchable,
        options: LaunchOptions | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        """Lay out the parameters; nothing is loaded before the first launch.

        Args:
            compiled: the kernel.
            options: how it is launched.
            names: Python names of its arguments, for messages.
        """
        self.compiled = compiled
        self.options = options or LaunchOptions()
        self.names = names
        self.layout = ParameterLayout(compiled.argument_types)
        self._frames: list[tuple[Any, int, Any]] = []
        self._kernel: Any = None
        self._library: Any = None
        self._smem_set: dict[int, int] = {}
        self._runs: dict[tuple[Any, ...], Run] = {}
        self._accepted: set[tuple[Any, ...]] = set()

    def launch(self, config: LaunchConfig, args: Sequence[Any]) -> None:
        """Launch with these arguments; asynchronous, ordered by the stream."""
        key, fields = probe(args)
        if key not in self._accepted:
            self.check(args)
            self._accepted.add(key)
        self.bind(config)(fields)

    def check(self, args: Sequence[Any]) -> None:
        """Raise LaunchError unless the arguments have the types that the kernel was compiled for.

        Numbers may be of another Python type as long as no meaning is lost (an int for a float);
        whether the value fits is seen when it is packed.
        """
        declared = self.layout.types
        if len(args) != len(declared):
            raise LaunchError(f"the kernel takes {len(declared)} arguments, got {len(args)}")
        for index, (want, have) in enumerate(zip(declared, types_of(args), strict=True)):
            if not _accepts(want, have):
                wrong = LaunchError(
                    f"argument {index} is {have}; the kernel was compiled for {want}"
                )
                raise with_names(wrong, self.names)

    def load(self) -> Any:
        """Load the machine code, once, and return the driver's kernel handle.

        The first launch does it; it may happen while a stream is captured.

        Raises:
            LaunchError: the code does not run on the current device.
        """
        if self._kernel is None:
            self._load()
        return self._kernel

    def bind(self, config: LaunchConfig) -> Run:
        """Return the function that packs flat values (`nbtc.arguments.probe`) and launches.

        All checks of the configuration happen here; equal configurations share one function.

        Raises:
            LaunchError: the configuration breaks a rule of the kernel or of the device.
        """
        key = (config.grid, config.block, config.handle, config.dynamic_smem_bytes)
        run = self._runs.get(key)
        if run is None:
            if len(self._runs) >= KEPT:
                self._runs.clear()
            run = self._runs[key] = self._bind(config)
        return run

    def check_config(self, config: LaunchConfig) -> None:
        """Check a configuration against the kernel, without a device.

        Raises:
            LaunchError: a rule is broken; the message names it and the right value.
        """
        cluster = self.options.cluster
        if cluster is not None:
            for axis in range(3):
                if config.grid[axis] % cluster[axis]:
                    one = cluster[1] == cluster[2] == 1 and config.grid[1:] == (1, 1)
                    where = "" if one else f".{'xyz'[axis]}"
                    raise LaunchError(
                        f"grid{where} {config.grid[axis]} is not a multiple of cluster{where} "
                        f"{cluster[axis]} (the grid is counted in blocks)"
                    )
        threads = config.threads
        bounds = self.options.launch_bounds
        if bounds is not None and threads > bounds[0]:
            raise LaunchError(
                f"block {show(config.block)} has {threads} threads > launch_bounds {bounds[0]}"
            )
        registers = -(-self.compiled.resources.registers // 8) * 8  # allocated in eights
        whole = -(-threads // 32) * 32
        if registers * whole > _REGISTER_FILE:
            most = _REGISTER_FILE // whole // 8 * 8
            raise LaunchError(
                f"{registers} regs x {whole} = {registers * whole} > {_REGISTER_FILE}: "
                f"launch_bounds=({whole}, 1) or max_registers={most}"
            )

    def _dynamic(self, config: LaunchConfig) -> int:
        need = self.compiled.resources.dynamic_smem_bytes
        return need if config.dynamic_smem_bytes is None else config.dynamic_smem_bytes

    # -- with the driver ---------------------------------------------------------------------------

    def _load(self) -> None:
        api = driver.api()
        device = driver.current_device()
        capability = driver.compute_capability(device)
        target = arch.parse(self.compiled.arch)
        if not arch.runs_on(target, capability):
            raise LaunchError(
                f"built for {target}, device is {capability[0]}.{capability[1]} "
                f"({driver.device_name(device)}); rebuild{_rebuild_for(capability)}"
            )
        # The first launch may happen while a stream is captured, which forbids loading unless this
        # thread says that it knows what it does.
        relaxed = api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        changed = api.cuThreadExchangeStreamCaptureMode(relaxed)
        mode = driver.check(changed, "changing the capture mode")
        try:
            self._kernel = self._load_kernel(api)
        finally:
            api.cuThreadExchangeStreamCaptureMode(mode)

    def _load_kernel(self, api: Any) -> Any:
        loaded = api.cuLibraryLoadData(self.compiled.cubin, [], [], 0, [], [], 0)
        self._library = driver.check(loaded, f"loading {self.compiled.entry}")
        found = api.cuLibraryGetKernel(self._library, self.compiled.entry.encode())
        kernel = driver.check(found, f"finding the kernel {self.compiled.entry}")
        # Loads the code into this context now, not at the launch.
        driver.check(api.cuKernelGetFunction(kernel), f"loading {self.compiled.entry}")
        if self.options.cluster_blocks > PORTABLE_CLUSTER:
            name = api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            for index in self._devices():
                set_ = api.cuKernelSetAttribute(name, 1, kernel, driver.device(index))
                driver.check(set_, "allowing a non-portable cluster size")
        return kernel

    def _devices(self) -> list[int]:
        """Return every device that the code runs on."""
        every = range(driver.device_count())
        return [i for i in every if arch.runs_on(self.compiled.arch, driver.compute_capability(i))]

    def _reserve_smem(self, dynamic: int) -> None:
        """Raise the limit of dynamic shared memory on every device, if it is not high enough."""
        static = self.compiled.resources.static_smem_bytes
        current = driver.current_device()
        most = driver.attribute(current, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
        total = static + dynamic
        if total > most:
            parts = f" ({static} static + {dynamic} dynamic)" if static else ""
            raise LaunchError(
                f"shared memory: {total} B{parts} > {most} B opt-in maximum of this device "
                f"({most / 1024:g} KiB)"
            )
        if total <= DEFAULT_SMEM_LIMIT:
            return
        api = driver.api()
        name = api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        for index in self._devices():
            limit = driver.attribute(index, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
            if self._smem_set.get(index, 0) < dynamic <= limit - static:
                set_ = api.cuKernelSetAttribute(name, dynamic, self._kernel, driver.device(index))
                driver.check(set_, f"allowing {dynamic} B of dynamic shared memory")
                self._smem_set[index] = dynamic

    def _launch_config(self, config: LaunchConfig) -> Any:
        api = driver.api()
        made = api.CUlaunchConfig()
        made.gridDimX, made.gridDimY, made.gridDimZ = config.grid
        made.blockDimX, made.blockDimY, made.blockDimZ = config.block
        made.sharedMemBytes = self._dynamic(config)
        made.hStream = api.CUstream(config.handle)
        attributes = []

        def attribute(name: str) -> Any:
            one = api.CUlaunchAttribute()
            one.id = getattr(api.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{name}")
            attributes.append(one)
            return one.value

        if self.options.cluster is not None:
            size = attribute("CLUSTER_DIMENSION").clusterDim
            size.x, size.y, size.z = self.options.cluster
        if self.options.programmatic_launch:
            value = attribute("PROGRAMMATIC_STREAM_SERIALIZATION")
            value.programmaticStreamSerializationAllowed = 1
        if self.options.cooperative:
            attribute("COOPERATIVE").cooperative = 1
        made.attrs = attributes
        made.numAttrs = len(attributes)
        return made

    def _check_clusters(self, made: Any, dynamic: int) -> None:
        """Refuse a cluster that no set of multiprocessors can hold."""
        api = driver.api()
        asked = api.cuOccupancyMaxActiveClusters(api.CUfunction(int(self._kernel)), made)
        if not int(asked[0]) and asked[1] == 0:
            smem = dynamic + self.compiled.resources.static_smem_bytes
            raise LaunchError(
                f"cluster {show(self.options.cluster)} does not fit: with {smem} B smem max "
                "active clusters = 0; use fewer blocks per cluster, less shared memory or fewer "
                "threads"
            )

    def _frame(self) -> tuple[Any, int, Any]:
        """Return a parameter block and the address of its table of pointers."""
        buffer = ctypes.create_string_buffer(max(self.layout.size, 1))
        base = ctypes.addressof(buffer)
        offsets = [p.offset for p in self.layout.parameters]
        pointers = (ctypes.c_void_p * max(len(offsets), 1))(*[base + o for o in offsets])
        return buffer, ctypes.addressof(pointers), pointers

    def _bind(self, config: LaunchConfig) -> Run:
        self.check_config(config)
        kernel = self.load()
        dynamic = self._dynamic(config)
        self._reserve_smem(dynamic)
        made = self._launch_config(config)
        if self.options.cluster_blocks > PORTABLE_CLUSTER:
            self._check_clusters(made, dynamic)
        api = driver.api()
        function = api.CUfunction(int(kernel))
        call = api.cuLaunchKernelEx
        write = self.layout.write
        frames = self._frames
        new_frame = self._frame

        def run(fields: Sequence[Any]) -> None:
            # A frame belongs to one call: the driver reads it while other threads may pack theirs.
            try:
                frame = frames.pop()
            except IndexError:
                frame = new_frame()
            try:
                write(frame[0], 0, *fields)
            except (struct.error, OverflowError, TypeError) as error:
                frames.append(frame)
                raise with_names(self.layout.explain(fields, error), self.names) from None
            status = call(made, function, frame[1], 0)[0]
            if status:
                status = self._again(status, lambda: call(made, function, frame[1], 0)[0])
            frames.append(frame)
            if status:
                self._failed(status, config, made)

        return run

    @staticmethod
    def _again(status: Any, call: Callable[[], Any]) -> Any:
        """Give a thread without a context the first device's, and launch once more."""
        api = driver.api()
        if status != api.CUresult.CUDA_ERROR_INVALID_CONTEXT:
            return status
        driver.ensure_context()
        return call()

    def _failed(self, status: Any, config: LaunchConfig, made: Any) -> NoReturn:
        """Say why the driver refused a launch that had passed every check."""
        dynamic = self._dynamic(config)
        if self.options.cluster is not None:
            self._check_clusters(made, dynamic)
        used = self.compiled.resources
        driver.fail(
            status,
            f"launching {self.compiled.entry} (grid {show(config.grid)}, block "
            f"{show(config.block)}, cluster {self.options.cluster}, {used.registers} registers, "
            f"{used.static_smem_bytes} + {dynamic} B shared memory). An error of an earlier kernel "
            "shows up here too; the launch itself",
        )


def _rebuild_for(capability: tuple[int, int]) -> str:
    try:
        return f" with arch={arch.from_cc(capability).name!r}"
    except ArchError:
        return f"; supported targets: {', '.join(arch.SUPPORTED)}"


def _accepts(want: Any, have: Any) -> bool:
    """Return whether an argument of type ``have`` may go where ``want`` was compiled."""
    from numba.cuda import types

    want = types.unliteral(want)
    if want == have:
        return True
    if isinstance(want, types.Array):
        return (
            isinstance(have, types.Array)
            and want.dtype == have.dtype
            and want.ndim == have.ndim
            and want.layout in ("A", have.layout)
            and (have.mutable or not want.mutable)
        )
    if isinstance(want, types.BaseTuple):
        return (
            isinstance(have, types.BaseTuple)
            and len(want) == len(have)
            and all(_accepts(w, h) for w, h in zip(want, have, strict=True))
        )
    if isinstance(have, types.Complex) or isinstance(want, types.Complex):
        return isinstance(have, types.Complex) and isinstance(want, types.Complex)
    if isinstance(have, types.Integer | types.Boolean):
        # Pointers and address types take integers too.
        return not (want == types.none or getattr(want, "space", "") == "tensor_map")
    if isinstance(have, types.Float):
        return isinstance(want, types.Number) and not isinstance(want, types.Integer)
    return False
