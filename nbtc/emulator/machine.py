"""The emulated machine: the contract between the engine, the instruction handlers and the checks.

Who does what
-------------
* The engine (`parser`, `codegen`, `memory`, `simt`, `engine`) runs ordinary instructions itself:
  arithmetic, logic, conversions, loads, stores, atomics, shuffles, votes, branches, calls.
* Every other instruction goes to a *handler*, a plain function registered with
  ``handlers.handler``. Modules named ``nbtc.emulator.sync_*`` are imported by the engine before
  the first launch so that their registrations take effect.
* The checks live behind ``hooks.Hooks``. The engine gets its hooks from
  ``nbtc.emulator.race.create_hooks(machine, checks)``; the default `Hooks` does nothing.
* Results go to ``machine.report`` (class ``Report`` of ``findings.py``) through `Machine.finding`.

How a handler works
-------------------
::

    @handler("mbarrier.try_wait", "mbarrier.test_wait")
    def mbarrier_wait(warp: Warp, ins: Instruction) -> Wait | None: ...

``warp.active`` (bool[32]) holds the lanes that execute: the path's mask, narrowed by the guard
predicate. A handler is not called when no lane is left, except for opcodes registered with
``always=True``. The registered names are dotted prefixes of the opcode; the longest wins.
A handler either finishes (returns None) or returns a `Wait`; then this *path* of the warp stops
after the instruction and goes on when the wait is over. A divergent warp has several paths, each
with its own wait. ``warp.path`` is the running path.

Lanes, values, registers
------------------------
All values are NumPy arrays of 32 lanes. `Warp.read` gives the raw bits in the asked dtype (often a
*view of the register*: never write into it, copy it if it must survive the instruction);
`Warp.write` writes active lanes only.

Asynchronous work
-----------------
``machine.enqueue(AsyncOp)``. The scheduler completes operations at a time of its choice, within
what ``AsyncOp.ready()`` allows: policy ``earliest`` as soon as ready, ``latest`` only when no warp
can run any more, ``random`` at seeded random moments. ``complete()`` does the work (copies bytes,
signals barriers) and may enqueue follow-up operations (so one instruction may have a read stage
and a write stage).

Addresses
---------
* shared: 32-bit, ``(cta rank in cluster << 24) | (SHARED_BASE + offset)``. An address with rank
  bits of another CTA is remote (``shared::cluster``). `Cluster.locate_shared` decodes.
* generic: 64-bit; ``SHARED_WINDOW + shared address``, ``LOCAL_WINDOW + local address``,
  ``PARAM_WINDOW + param address``, anything else is global (const variables are global memory).
* local addresses are per lane; param addresses index the kernel's parameter buffer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from .program import Addr, Imm, Instruction, Location, Not, Operand, Reg, Sink, Special, Symbol, Vec
from .shared_names import address_text

if TYPE_CHECKING:
    import random

    from .hooks import Hooks
    from .memory import GlobalMemory, Region, SharedMemory
    from .program import Module

LANES = 32
SHARED_BASE = 0x400
RANK_SHIFT = 24
SHARED_WINDOW = 0x0100_0000_0000
LOCAL_WINDOW = 0x0200_0000_0000
PARAM_WINDOW = 0x0300_0000_0000
WINDOW_SIZE = 0x0100_0000_0000
PARAM_BASE = 0x210
FULL = np.ones(LANES, bool)
FULL.flags.writeable = False
LANE = np.arange(LANES, dtype=np.int64)
LANE.flags.writeable = False

_UINT = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


class MemoryFault(Exception):
    """Raised by memory helpers for an access out of bounds, misaligned or to a wrong space.

    The engine turns it into a finding of kind ``kind`` and ends the launch; it never escapes from
    `launch`.
    """

    def __init__(self, kind: str, message: str) -> None:
        """Store the finding kind (``out-of-bounds``, ``misaligned``, ...) and the message."""
        super().__init__(message)
        self.kind = kind
        self.message = message


class Stop(Exception):
    """Raised after a fatal finding (`Machine.fatal`): the launch ends with its report."""


class Wait:
    """Why a path does not go on. Subclass it.

    Attributes:
        weak: True for waits that the hardware may end without success (``mbarrier.try_wait``).
            The engine calls `expire` instead of `resume` when nothing else can run (or, seeded, at
            random), and counts this as no progress for the deadlock detection.
        path, ins, mask: filled in by the engine (the waiting path, the instruction, its lanes).
    """

    weak = False
    path: Path
    ins: Instruction
    mask: np.ndarray

    def ready(self) -> bool:
        """Say whether the wait is over. Called often: keep it cheap and free of effects."""
        raise NotImplementedError

    def resume(self, warp: Warp) -> None:
        """Finish the instruction (write results); ``warp.active`` is as at the call."""

    def expire(self, warp: Warp) -> None:
        """End a weak wait without success (write a false predicate)."""

    def describe(self) -> str:
        """Say what is awaited and what would release it (one line, for deadlock reports)."""
        return "an event"

    def barrier_info(self) -> Any:
        """Give the `BarrierInfo` of `findings` for the deadlock report, or None."""
        return None


class AsyncOp:
    """One piece of asynchronous work. Subclass it.

    Attributes:
        cta: the issuing CTA (operations of a cluster are drained before the cluster is dropped).
        ins: the issuing instruction, warp: the issuing warp (for messages).
    """

    cta: Cta
    warp: Warp
    ins: Instruction

    def ready(self) -> bool:
        """Say whether the operation may complete now (order among operations, groups)."""
        return True

    def complete(self) -> None:
        """Do the work. `MemoryFault` raised here becomes a finding at ``ins``."""
        raise NotImplementedError

    def describe(self) -> str:
        """Say what this operation does, for deadlock reports."""
        return "an asynchronous operation"


class Machine:
    """One launch.

    Attributes:
        program: the loaded `Program`; module: its parsed `Module`; entry: the running `Function`.
        grid, block, cluster_dims: (x, y, z) tuples in CTAs, threads, CTAs.
        memory: `GlobalMemory` (regions at emulated addresses).
        clusters: clusters alive now.
        report: `Report` of ``findings.py``.
        hooks: `Hooks`; random: seeded ``random.Random`` for every choice.
        policy: ``"random"``, ``"earliest"`` or ``"latest"``.
        events: progress counter. Anything that may let a waiting path go on must call `touch_event`
            (the engine does it after completing async operations, stores and atomics).
        queue: `AsyncOp` objects not completed, oldest first.
        pending_clusters: count of clusters of the grid that have not started (for
            clusterlaunchcontrol use `take_cluster`).
        sync: free for ``sync_*`` modules (also on Cluster, Cta, Warp).
    """

    program: Any
    module: Module
    entry: Any
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster_dims: tuple[int, int, int]
    memory: GlobalMemory
    report: Any
    hooks: Hooks
    random: random.Random
    policy: str
    sync: Any

    def __init__(self) -> None:
        """Create an empty machine; `engine.launch` fills it."""
        self.clusters: list[Cluster] = []
        self.queue: list[AsyncOp] = []
        self.events = 0
        self.sync = None
        self.waiting_clusters: list[tuple[int, int, int]] = []

    def touch_event(self) -> None:
        """Note that machine state changed, so that waits are polled again."""
        self.events += 1

    def enqueue(self, op: AsyncOp) -> None:
        """Hand an asynchronous operation to the scheduler."""
        self.queue.append(op)
        if self.policy == "earliest":
            self.drain_ready()

    def drain_ready(self) -> None:
        """Complete every ready operation now, oldest first (used by policy ``earliest``)."""
        raise NotImplementedError

    def take_cluster(self) -> tuple[int, int, int] | None:
        """Cancel one not yet started cluster: its cluster coordinates, or None if none is left."""
        if not self.waiting_clusters:
            return None
        return self.waiting_clusters.pop(0)

    def finding(
        self,
        kind: str,
        message: str,
        *,
        ins: Instruction | None = None,
        warp: Warp | None = None,
        cta: Cta | None = None,
        severity: str = "finding",
        chain: tuple[Location, ...] | None = None,
        related: tuple = (),
        barrier: Any = None,
        lanes: Any = None,
    ) -> None:
        """Record a finding (severity ``finding``, ``warning`` or ``advice``).

        ``kind`` is a key of ``findings.KINDS``; ``chain`` is innermost first (without it: the
        position of ``ins`` and the call stack of ``warp``), ``related`` holds `findings.Related`
        items, ``barrier`` a `findings.BarrierInfo`, ``lanes`` bool[32] or a bit mask. Duplicates
        are merged by ``Report.add``.
        """
        if chain is None and ins is not None:
            chain = warp.chain(ins) if warp is not None else ins.chain
        if cta is None and warp is not None:
            cta = warp.cta
        self.report.add(
            severity,
            kind,
            message,
            chain=chain or (),
            related=related,
            cta=cta.ctaid if cta is not None else None,
            warp=warp.index if warp is not None else None,
            lanes=lanes,
            barrier=barrier,
            ptx_line=ins.ptx_line if ins is not None else 0,
        )

    def fatal(self, kind: str, message: str, **where: Any) -> NoReturn:
        """Record a finding after which going on makes no sense, and end the launch."""
        self.finding(kind, message, **where)
        raise Stop


class Cluster:
    """One cluster: all its CTAs are alive together.

    Attributes:
        machine; ctas: list by rank (x fastest); clusterid: (x, y, z) cluster coordinates;
        dims: (x, y, z) CTAs.
    """

    def __init__(
        self, machine: Machine, clusterid: tuple[int, int, int], dims: tuple[int, int, int]
    ) -> None:
        """Create an empty cluster."""
        self.machine, self.clusterid, self.dims = machine, clusterid, dims
        self.ctas: list[Cta] = []
        self.sync: Any = None

    def locate_shared(self, address: int, size: int = 1, align: int = 1) -> tuple[Cta, int]:
        """Decode a 32-bit shared(::cluster) address into (owning CTA, byte offset).

        Raises:
            MemoryFault: rank not in the cluster, out of the CTA's shared memory, misaligned.
        """
        rank = address >> RANK_SHIFT
        offset = (address & ((1 << RANK_SHIFT) - 1)) - SHARED_BASE
        if not 0 <= rank < len(self.ctas):
            raise MemoryFault(
                "out-of-bounds",
                f"shared address {address:#x} names CTA rank {rank} "
                f"of a cluster with {len(self.ctas)} CTAs",
            )
        cta = self.ctas[rank]
        if offset < 0 or offset + size > cta.shared.size:
            raise MemoryFault(
                "out-of-bounds",
                f"shared access of {size} bytes at {address_text(self.machine, offset)} "
                f"(address {address:#x}), but the CTA has {cta.shared.size} bytes",
            )
        if offset % align:
            raise MemoryFault(
                "misaligned",
                f"shared address {address:#x}, {address_text(self.machine, offset)}, is not a "
                f"multiple of {align}",
            )
        return cta, offset


class Cta:
    """One CTA.

    Attributes:
        cluster, machine; rank: in the cluster; ctaid: (x, y, z); warps: list of `Warp`;
        shared: `SharedMemory` (``.data`` uint8[size]; offset = address - SHARED_BASE without the
        rank bits; ``.initialised`` uint8[size], 1 where written: set it after writing bytes
        directly, or use ``shared.write(offset, bytes_array)`` and ``shared.read(offset, n)``);
        exited: all lanes ended; nthreads.
    """

    shared: SharedMemory

    def __init__(self, cluster: Cluster, rank: int, ctaid: tuple[int, int, int]) -> None:
        """Create a CTA without warps."""
        self.cluster, self.machine, self.rank, self.ctaid = cluster, cluster.machine, rank, ctaid
        self.warps: list[Warp] = []
        self.exited = False
        self.nthreads = 0
        self.sync: Any = None

    def shared_address(self, offset: int) -> int:
        """Give the 32-bit shared::cluster address of a byte offset in this CTA."""
        return (self.rank << RANK_SHIFT) | (SHARED_BASE + offset)


class Frame:
    """One function activation of a warp: registers and local memory.

    ``bank[bits]``: matrix (rows, 32) of uint16/uint32/uint64 (bits 16, 32, 64), bool (1),
    uint8 (8), uint64 (128: two rows per register, low half first, row = 2 * index).
    """

    function: Any
    code: Any
    bank: dict[int, np.ndarray]
    caller: Frame | None
    caller_ins: Instruction | None


class Path:
    """Lanes of a warp that share a program counter.

    Attributes:
        warp; mask: bool[32]; frame: `Frame`; wait: `Wait` or None; spin_ins: last instruction of a
        loop that makes no progress, for livelock reports.
    """

    warp: Warp
    mask: np.ndarray
    frame: Frame
    wait: Wait | None
    spin_ins: Instruction


class Warp:
    """One warp.

    Attributes:
        cta, machine; index: warp number in the CTA (tid / 32); id: unique in the machine;
        born: bool[32], lanes that exist; live: those that have not ended; exits: (lanes as bit
        mask, instruction that ended them) in turn; paths: list of `Path`; path: the
        running path; active: bool[32] for the running instruction; frame: running `Frame`;
        full: active covers all 32 lanes; count: warp-instructions executed;
        watch: int bit mask of 32-bit register rows of ``watch_frame`` with work in flight
        (`Hooks.touch`).
    """

    path: Path
    frame: Frame
    active: np.ndarray

    def __init__(self, cta: Cta, index: int, ident: int) -> None:
        """Create a warp without paths."""
        self.cta, self.machine, self.index, self.id = cta, cta.machine, index, ident
        self.live = self.born = np.ones(LANES, bool)
        self.exits: list[tuple[int, Instruction | None]] = []
        self.paths: list[Path] = []
        self.watch = 0
        self.watch_frame: Frame | None = None
        self.count = 0
        self.sync: Any = None

    # -- operands ---------------------------------------------------------------------------

    def read(self, operand: Operand, dtype: Any = None) -> np.ndarray:
        """Read an operand as 32 lanes.

        Args:
            operand: register, literal, special register, symbol, negated predicate.
            dtype: NumPy dtype of the same width as the register (default: unsigned of its width;
                32-bit unsigned for literals unless asked otherwise). Wider unsigned integer types
                zero-extend, narrower ones truncate.
        """
        raise NotImplementedError

    def write(self, operand: Operand, values: Any, mask: np.ndarray | None = None) -> None:
        """Write lanes ``mask`` (default: active) of a destination; a `Sink` is ignored.

        ``values`` is a scalar or 32 lanes; bits are reinterpreted when the item sizes are equal.
        """
        raise NotImplementedError

    def scalar(self, operand: Operand) -> int:
        """Read the value of the first active lane as an unsigned Python int."""
        return int(self.read(operand)[self.lane])

    @property
    def lane(self) -> int:
        """Index of the first active lane."""
        return int(self.active.argmax())

    def signed(self, operand: Operand) -> int:
        """Read the value of the first active lane as a signed Python int of its width."""
        if isinstance(operand, Imm):
            return operand.value
        value = self.read(operand)
        return int(value.view(f"i{value.itemsize}")[self.lane])

    def predicate(self, operand: Operand) -> np.ndarray:
        """Read a predicate operand (register, negated, or literal) as bool[32]."""
        raise NotImplementedError

    def address(self, operand: Operand) -> np.ndarray:
        """Give base + offset of an `Addr` operand as int64[32] (unsigned 32-bit bases are masked).

        Symbols resolve to addresses of their space (shared: with rank bits).
        """
        raise NotImplementedError

    def read_matrix(self, vec: Vec, dtype: Any = np.uint32) -> np.ndarray:
        """Copy the registers (or literals) of a brace list into an array (len, 32)."""
        raise NotImplementedError

    def write_matrix(self, vec: Vec, values: np.ndarray, mask: np.ndarray | None = None) -> None:
        """Write an array (len, 32) into the registers of a brace list (active lanes)."""
        raise NotImplementedError

    def rows(self, vec: Any) -> np.ndarray:
        """Give the register rows (intp[len]) of a brace list of 32-bit registers."""
        raise NotImplementedError

    # -- memory -----------------------------------------------------------------------------

    def shared_offset(
        self,
        operand: Operand,
        size: int = 1,
        align: int = 1,
        lane: int | None = None,
        cluster: bool = False,
    ) -> tuple[Cta, int]:
        """Resolve a shared address operand of one lane to (owning CTA, byte offset), checked.

        Accepts 32-bit shared addresses and generic addresses in the shared window.

        Args:
            operand: `Addr` (or a plain register with an address).
            size: bytes accessed.
            align: required alignment.
            lane: default the first active lane.
            cluster: False: an address of another CTA is a fault.
        """
        raise NotImplementedError

    def global_region(
        self, address: int, size: int = 1, *, write: bool = False
    ) -> tuple[Region, int]:
        """Find the region of a global address range: (region, byte offset), or MemoryFault."""
        return self.machine.memory.locate(address, size, write=write)

    def read_generic(self, address: int, size: int, lane: int = 0) -> np.ndarray:
        """Copy ``size`` bytes at a generic address (param, global, shared, local of lane)."""
        raise NotImplementedError

    # -- position ---------------------------------------------------------------------------

    def chain(self, ins: Instruction) -> tuple[Location, ...]:
        """Give the position of ``ins``: its inlined chain, then the callers, innermost first."""
        chain = ins.chain
        frame = self.frame
        while frame is not None and frame.caller_ins is not None:
            chain = chain + frame.caller_ins.chain
            frame = frame.caller
        return chain


__all__ = [
    "FULL",
    "LANE",
    "LANES",
    "LOCAL_WINDOW",
    "PARAM_BASE",
    "PARAM_WINDOW",
    "RANK_SHIFT",
    "SHARED_BASE",
    "SHARED_WINDOW",
    "WINDOW_SIZE",
    "Addr",
    "AsyncOp",
    "Cluster",
    "Cta",
    "Frame",
    "Imm",
    "Instruction",
    "Machine",
    "MemoryFault",
    "Not",
    "Operand",
    "Path",
    "Reg",
    "Sink",
    "Special",
    "Stop",
    "Symbol",
    "Vec",
    "Wait",
    "Warp",
]
