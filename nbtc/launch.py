"""Launch compiled kernels: packed and cached arguments, clusters, big shared memory, PDL.

How the layers meet (``nbtc.jit`` is the caller):

``Launchable``
    What the launcher needs of a compiled kernel (``nbtc.compile.Compiled`` has it): ``cubin``
    (bytes), ``entry`` (symbol), ``arch`` ("sm_90a"), ``argument_types`` (tuple of Numba types, one
    per Python argument of the kernel) and ``resources`` with ``registers``, ``static_smem_bytes``
    and ``dynamic_smem_bytes``.

``LaunchOptions``
    Options of the kernel that shape its launch: cluster, launch bounds, programmatic dependent
    launch, non-portable cluster sizes, cooperative launch. Frozen and hashable.

``LaunchPlan(compiled, options, names=None)``
    One per compiled specialisation; keep it. Owns the packed parameter block, the loaded module and
    the launch attributes. ``names`` are the Python parameter names, for error texts.
    ``plan.launch(config, args)`` launches.

``Configured(kernel, grid, block, stream=None, dynamic_smem_bytes=None)``
    What ``kernel[grid, block, stream]`` returns. Callable, reusable, and the fast path: it looks
    the argument kinds up in its own table and asks ``kernel.plan_for(args)`` only for kinds it has
    not seen. ``plan_for`` computes ``arguments.types_of(args)``, compiles, and returns a
    ``LaunchPlan`` (the same object for the same types). A kernel class gets the ``kernel[...]``
    syntax, with its cache, from the base class ``LaunchSyntax``.

``launch(compiled, options, grid, block, stream, args)``
    The plain function; plans are cached.

The grid is counted in blocks, also with clusters, as in CUDA C and Numba. ``stream=None`` or 0 is
the legacy default stream; see ``nbtc.streams`` for what else is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nbtc.arguments import probe, with_names
from nbtc.errors import DtypeError, LaunchError
from nbtc.launch_options import LaunchConfig, LaunchOptions, by_name
from nbtc.launch_plan import KEPT, Launchable, LaunchPlan, Resources, Run

__all__ = [
    "Configured", "LaunchConfig", "LaunchOptions", "LaunchPlan", "LaunchSyntax", "Launchable",
    "Resources", "launch",
]  # fmt: skip


class Configured:
    """A kernel with its grid, block and stream: call it to launch.

    Keep it and call it again; it remembers the kinds of arguments it has seen.

    Attributes:
        config: the checked configuration.
    """

    __slots__ = ("_kernel", "_runs", "config")

    def __init__(
        self,
        kernel: Any,
        grid: Any,
        block: Any,
        stream: Any = None,
        dynamic_smem_bytes: int | None = None,
    ) -> None:
        """Configure ``kernel``, which has ``plan_for(args) -> LaunchPlan``.

        If it has ``argument_names``, they are used in error texts.
        """
        self._kernel = kernel
        self.config = LaunchConfig(grid, block, stream, dynamic_smem_bytes)
        self._runs: dict[tuple[Any, ...], Run] = {}

    def __call__(self, *args: Any, **named: Any) -> None:
        """Launch; returns before the kernel has run.

        Raises:
            TypeError: arguments were given by name.
            LaunchError: an argument or the configuration is not right.
            DriverError: the driver refused the launch.
        """
        if named:
            raise by_name(self._kernel, named)
        run, fields = self._prepare(args)
        run(fields)

    def bind(self, *args: Any) -> Callable[[], None]:
        """Return a function that launches with these arguments: they are converted once, here.

        It costs little more than the driver's own call. Arrays are read at their present address,
        so they must not be reallocated; the function keeps them alive.

        Raises:
            LaunchError: an argument or the configuration is not right.
        """
        run, fields = self._prepare(args)

        def launch(_keep: tuple[Any, ...] = args) -> None:
            run(fields)

        return launch

    def _prepare(self, args: tuple[Any, ...]) -> tuple[Run, Sequence[Any]]:
        try:
            key, fields = probe(args)
        except (LaunchError, DtypeError) as error:
            names = getattr(self._kernel, "argument_names", None)
            raise with_names(error, names) from None
        run = self._runs.get(key)
        if run is None:
            run = self._first(key, args)
        return run, fields

    def plan(self, *args: Any) -> LaunchPlan:
        """Return the plan that these arguments would use, compiling if needed."""
        return self._kernel.plan_for(args)

    def _first(self, key: tuple[Any, ...], args: Sequence[Any]) -> Run:
        plan: LaunchPlan = self._kernel.plan_for(args)
        plan.check(args)
        run = self._runs[key] = plan.bind(self.config)
        return run


class LaunchSyntax:
    """Base class that gives a kernel ``kernel[grid, block, stream, dynamic_smem_bytes]``.

    Subclasses have ``plan_for(args) -> LaunchPlan``. Configurations are kept, so writing
    ``kernel[grid, block](...)`` in a loop costs one look-up.
    """

    _configured: dict[Any, Configured] | None = None

    def plan_for(self, args: Sequence[Any]) -> LaunchPlan:
        """Return the plan for arguments of these types, compiling if there is none."""
        raise NotImplementedError

    def __getitem__(self, key: Any) -> Configured:
        """Return the kernel configured with grid, block and optionally stream and shared memory."""
        known = self._configured
        if known is None:
            known = self._configured = {}
        try:
            return known[key]
        except (KeyError, TypeError):
            pass
        if not isinstance(key, tuple) or not 2 <= len(key) <= 4:
            raise LaunchError(
                f"kernel[{key!r}]: give kernel[grid, block], optionally a stream and the bytes of "
                "dynamic shared memory"
            )
        made = Configured(self, *key[:3], dynamic_smem_bytes=(key[3] or None) if key[3:] else None)
        if len(known) >= KEPT:
            known.clear()
        try:
            known[key] = made
        except TypeError:  # a list as grid, a stream that is not hashable
            pass
        return made


_plans: dict[tuple[int, LaunchOptions], LaunchPlan] = {}


def launch(
    compiled: Launchable,
    options: LaunchOptions | None,
    grid: Any,
    block: Any,
    stream: Any,
    args: Sequence[Any],
) -> None:
    """Launch a compiled kernel; asynchronous, ordered by the stream.

    Args:
        compiled: the kernel.
        options: cluster and the like; None for a plain launch.
        grid: blocks, 1 to 3 entries (x, y, z), counted in blocks also with clusters.
        block: threads per block, 1 to 3 entries.
        stream: see `nbtc.streams.handle`; None is the legacy default stream.
        args: one value per Python argument.

    Raises:
        LaunchError: an argument or the configuration is not right.
        DriverError: the driver refused the launch.
    """
    key = (id(compiled), options or LaunchOptions())
    plan = _plans.get(key)
    if plan is None:  # the plan holds the kernel, so its id stays its own
        if len(_plans) >= KEPT:
            _plans.clear()
        plan = _plans[key] = LaunchPlan(compiled, key[1])
    plan.launch(LaunchConfig(grid, block, stream), args)
