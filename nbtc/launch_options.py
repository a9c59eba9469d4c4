"""How a kernel is launched: its options, and grid, block and stream of one configuration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nbtc import streams
from nbtc.errors import LaunchError

PORTABLE_CLUSTER = 8
"""Largest cluster that every device with clusters takes."""

_MAX_GRID = (2**31 - 1, 65535, 65535)
_MAX_BLOCK = (1024, 1024, 64)
_MAX_THREADS = 1024

Dim3 = tuple[int, int, int]


def dim3(value: Any, what: str) -> Dim3:
    """Return a grid, block or cluster size as three integers; missing ones are 1.

    Raises:
        LaunchError: more than three entries, or one is not a positive integer.
    """
    parts = value if isinstance(value, tuple | list) else (value,)
    try:
        sizes = tuple(part.__index__() for part in parts)
    except AttributeError:
        raise LaunchError(f"{what} {value!r}: every entry must be an integer") from None
    if not 1 <= len(sizes) <= 3:
        raise LaunchError(f"{what} {value!r}: give 1 to 3 entries, (x, y, z)")
    if min(sizes) < 1:
        raise LaunchError(f"{what} {value!r}: every entry must be at least 1")
    return (*sizes, 1, 1)[:3]  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """Options of a kernel that shape its launch.

    Attributes:
        cluster: blocks per cluster, (x, y, z); None without clusters.
        launch_bounds: most threads per block and least blocks per multiprocessor, as compiled.
        programmatic_launch: let the kernel start before the previous one in the stream has ended
            (programmatic dependent launch); it must execute ``griddepcontrol.wait`` before it
            reads what the previous kernel wrote.
        non_portable: allow clusters of more than 8 blocks.
        cooperative: all blocks must be resident at once (grid-wide synchronisation).
    """

    cluster: Any = None
    launch_bounds: tuple[int, int] | None = None
    programmatic_launch: bool = False
    non_portable: bool = False
    cooperative: bool = False

    def __post_init__(self) -> None:
        """Bring the cluster into its three-entry form and check its size."""
        if self.cluster is None:
            return
        cluster = dim3(self.cluster, "cluster")
        object.__setattr__(self, "cluster", cluster)
        blocks = cluster[0] * cluster[1] * cluster[2]
        if blocks > 2 * PORTABLE_CLUSTER:
            raise LaunchError(f"cluster {show(cluster)} has {blocks} blocks; at most 16")
        if blocks > PORTABLE_CLUSTER and not self.non_portable:
            raise LaunchError(
                f"cluster {show(cluster)} needs non_portable=True: more than "
                f"{PORTABLE_CLUSTER} blocks is not possible on every device"
            )

    @property
    def cluster_blocks(self) -> int:
        """Blocks per cluster, 1 without clusters."""
        x, y, z = self.cluster or (1, 1, 1)
        return x * y * z


def show(dims: Dim3) -> str:
    """Return a size as ``(x,y,z)``."""
    return f"({dims[0]},{dims[1]},{dims[2]})"


class LaunchConfig:
    """Grid, block, stream and an optional dynamic shared-memory size, checked once.

    Attributes:
        grid: blocks, (x, y, z), also with clusters.
        block: threads, (x, y, z).
        stream: the stream as it was given; kept alive.
        handle: the driver's stream handle.
        dynamic_smem_bytes: overrides the kernel's own need; None leaves it.
    """

    __slots__ = ("block", "dynamic_smem_bytes", "grid", "handle", "stream")

    def __init__(
        self, grid: Any, block: Any, stream: Any = None, dynamic_smem_bytes: int | None = None
    ) -> None:
        """Check and keep the sizes; see the class."""
        self.grid = dim3(grid, "grid")
        self.block = dim3(block, "block")
        for axis, (size, most) in enumerate(zip(self.grid, _MAX_GRID, strict=True)):
            if size > most:
                raise LaunchError(f"grid.{'xyz'[axis]}={size} > {most}")
        for axis, (size, most) in enumerate(zip(self.block, _MAX_BLOCK, strict=True)):
            if size > most:
                raise LaunchError(f"block.{'xyz'[axis]}={size} > {most}")
        if self.threads > _MAX_THREADS:
            raise LaunchError(
                f"block {show(self.block)} has {self.threads} threads; at most {_MAX_THREADS}"
            )
        self.stream = stream
        self.handle = streams.handle(stream)
        size = dynamic_smem_bytes
        if size is not None and (not hasattr(size, "__index__") or size < 0):
            raise LaunchError(f"dynamic shared memory {size!r}: must be a number of bytes >= 0")
        self.dynamic_smem_bytes = size

    @property
    def threads(self) -> int:
        """Threads per block."""
        return self.block[0] * self.block[1] * self.block[2]


def by_name(kernel: Any, named: Iterable[str]) -> TypeError:
    """Return the error of a launch whose arguments are given by name."""
    names = ", ".join(getattr(kernel, "argument_names", ()))
    what = getattr(kernel, "__qualname__", "a kernel")
    return TypeError(f"{what} takes positional arguments ({names}), got {', '.join(named)} by name")
