"""Parameters of the GEMM kernels, with every rule that a combination must keep."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

from nbtc.device import shared
from nbtc.device.epilogue import STRIP
from nbtc.device.mma import operand_tile
from nbtc.dtypes import canonical
from nbtc.errors import LayoutError
from nbtc.layout.matrix_descriptor import OperandTile
from nbtc.spelling import checked

REGISTERS_PER_SM = 65536
REGISTERS_BESIDE_WGMMA = 26
"""Registers that ptxas needs beside the accumulators of one wgmma, before setmaxnreg adds any."""
REGISTERS_BESIDE_ACCUMULATORS = 40
"""Registers that a consumer thread needs for addresses and loop state."""
REGISTERS_BESIDE_NARROW = 48
"""The same with two main loops, for wide and narrow tiles."""
REGISTERS_BESIDE_SPLIT = 88
"""The same where partial products are sent or added: ptxas loads many of them at a time."""

POLICIES = {
    "": None,
    "evict_first": 0x12F0000000000000,
    "evict_last": 0x14F0000000000000,
}
"""Encoded L2 cache policies by name, as createpolicy makes them for the whole range."""

EVICT_NORMAL = 0x1000000000000000
"""The policy of a copy without one."""

LAST_USE = "last_use"
"""Policy of A and B: evict_first from a part's last use on, normal before."""

_INTEGERS = (
    "stages", "consumers", "group", "store_buffers", "narrow", "a_rows", "split_k",
    "producer_registers", "consumer_registers",
)  # fmt: skip
_INPUTS = ("bfloat16", "float16")
_OUTPUTS = ("bfloat16", "float16", "float32")
_SCHEDULES = ("grouped", "linear", "hilbert")


def integer(name: str, value: Any) -> int:
    """Return ``value`` as an int, also of NumPy's integers; True and 2.0 are none."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise LayoutError(f"{name}={value!r}; must be an integer")
    return operator.index(value)


def _integers(name: str, value: Any, count: int, meaning: str) -> tuple[int, ...]:
    if not isinstance(value, tuple | list) or len(value) != count:
        raise LayoutError(f"{name}={value!r}; must be {count} integers {meaning}")
    return tuple(integer(f"an entry of {name}", v) for v in value)


@checked
@dataclass(frozen=True)
class HopperConfig:
    """One configuration of the warp-specialised Hopper GEMM, C = A B.

    Attributes:
        dtype: element type of A and B, ``"bfloat16"`` or ``"float16"``.
        out_dtype: element type of C; default as ``dtype``.
        tile: (M, N, K) of the tile that one CTA works on.
        stages: stages of the ring of A and B tiles; 1 is the synchronous form.
        consumers: consumer warpgroups, 1 to 3; each has M / consumers rows of the tile.
        cluster: CTAs of a cluster along M and N; B tiles are multicast along M, A tiles along N.
        schedule: order of output tiles: ``"grouped"`` (raster in groups of tile rows),
            ``"hilbert"`` (along a Hilbert curve, from a list) or ``"linear"``.
        group: tile rows (in clusters) of one raster group.
        a_major: ``"K"`` if A is stored with K contiguous, ``"MN"`` with M contiguous.
        b_major: ``"K"`` if B is stored with K contiguous, ``"MN"`` with N contiguous.
        store_buffers: buffers of each consumer for the pieces of C on their way to memory.
        policies: L2 eviction policies of A, B and C: ``""``, ``"evict_first"``, ``"evict_last"``;
            for A and B also ``"last_use"``, ``"evict_first"`` for what the next tiles do not read.
        narrow: columns of narrower tiles that fill the last wave, see ``scheduler.balance``; 0 for
            none. N - narrow divides N, and is a multiple of 16.
        a_rows: rows of A that are loaded, where a problem has no more (M of the problem <= a_rows <
            M of the tile): TMA takes longer for a row outside of the matrix than for one inside.
            The other rows of the tile are zeros. 0 loads whole tiles.
        split_k: CTAs of a cluster that share the K of each tile, 1 to 8: each multiplies its part,
            one of them adds what the others send.
        producer_registers: registers per thread that the producer keeps.
        consumer_registers: registers per thread of consumers; 0 picks the most that fit.
    """

    dtype: str = "bfloat16"
    out_dtype: str = ""
    tile: tuple[int, int, int] = (128, 256, 64)
    stages: int = 4
    consumers: int = 2
    cluster: tuple[int, int] = (2, 1)
    schedule: str = "grouped"
    group: int = 8
    a_major: str = "K"
    b_major: str = "K"
    store_buffers: int = 2
    policies: tuple[str, str, str] = ("", "", "")
    narrow: int = 0
    a_rows: int = 0
    split_k: int = 1
    producer_registers: int = 40
    consumer_registers: int = 0
    layout: shared.Layout = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the combination and lay out shared memory.

        Raises:
            LayoutError: a rule is broken; the message shows the arithmetic.
        """
        put = lambda name, value: object.__setattr__(self, name, value)  # noqa: E731
        put("dtype", canonical(self.dtype).name)
        put("out_dtype", canonical(self.out_dtype or self.dtype).name)
        put("tile", _integers("tile", self.tile, 3, "(M, N, K)"))
        put("cluster", _integers("cluster", self.cluster, 2, "(CTAs along M, CTAs along N)"))
        for name in _INTEGERS:
            put(name, integer(name, getattr(self, name)))
        if isinstance(self.policies, list):
            put("policies", tuple(self.policies))
        self._check_choices()
        self._check_tile()
        self._check_cluster()
        self._check_narrow()
        self._check_a_rows()
        self._check_split()
        if not self.consumer_registers:
            put("consumer_registers", self._most_registers())
        self._check_registers()
        put("layout", self._layout())

    def _check_choices(self) -> None:
        for name, value, legal in (
            ("dtype", self.dtype, _INPUTS),
            ("out_dtype", self.out_dtype, _OUTPUTS),
            ("schedule", self.schedule, _SCHEDULES),
            ("a_major", self.a_major, ("K", "MN")),
            ("b_major", self.b_major, ("K", "MN")),
            ("consumers", self.consumers, (1, 2, 3)),
        ):
            if value not in legal:
                raise LayoutError(f"{name}={value!r}; legal: {', '.join(map(repr, legal))}")
        policies, legal = self.policies, [*POLICIES, LAST_USE]
        if (
            not isinstance(policies, tuple)
            or len(policies) != 3
            or any(p not in legal for p in policies)
            or policies[2] == LAST_USE
        ):
            raise LayoutError(
                f"policies={policies!r}; needs a tuple of three, for A, B and C, each one of "
                f"{', '.join(map(repr, POLICIES))}; for A and B also {LAST_USE!r}"
            )
        if LAST_USE in policies and self.schedule == "hilbert":
            raise LayoutError(
                f"policies={policies!r} with schedule='hilbert'; {LAST_USE!r} follows the order of "
                "schedule='grouped' or 'linear'"
            )
        for name in ("stages", "group", "store_buffers"):
            value = getattr(self, name)
            if value < 1:
                raise LayoutError(f"{name}={value!r}; must be an integer >= 1")

    def _check_tile(self) -> None:
        m, n, k = self.tile
        if min(self.tile) < 1:
            raise LayoutError(f"tile={self.tile!r}; must be three integers (M, N, K) >= 1")
        if m % (64 * self.consumers):
            raise LayoutError(
                f"tile M={m} with {self.consumers} consumer warpgroups; each takes whole 64-row "
                f"wgmma tiles: M must be a multiple of 64 * {self.consumers} = "
                f"{64 * self.consumers}"
            )
        if n % 32 or not 32 <= n <= 256:
            raise LayoutError(f"tile N={n}; must be a multiple of 32, 32..256 (one wgmma N)")
        if k % 16:
            raise LayoutError(f"tile K={k}; must be a multiple of 16 (one wgmma K)")
        if m > 256:
            raise LayoutError(f"tile M={m}; a TMA box has at most 256 rows")
        for name, tile in (("A", self.a_tile), ("B", self.b_tile)):
            if tile.box[0] > 256:
                raise LayoutError(
                    f"tile K={k}: a TMA box of an MN-major {name} tile has K rows, at most 256"
                )

    def _check_cluster(self) -> None:
        cm, cn = self.cluster
        if min(self.cluster) < 1 or cm * cn > 8:
            raise LayoutError(
                f"cluster={self.cluster!r}; two integers >= 1 whose product is at most 8"
            )
        for what, tile, parts in (("A", self.a_tile, cn), ("B", self.b_tile, cm)):
            unit = tile.mn // 8 if tile.major == "K" else tile.mn // tile.box[1]
            size = 8 if tile.major == "K" else tile.box[1]
            if unit % parts:
                raise LayoutError(
                    f"cluster={self.cluster!r}: {what} tile of {tile.mn} is multicast in {parts} "
                    f"parts of whole {size}-row pieces; {tile.mn} / {size} = {unit} is not a "
                    f"multiple of {parts}"
                )

    def _check_narrow(self) -> None:
        if not self.narrow:
            return
        n, unit = self.tile[1], self.tile[1] - self.narrow
        legal = [
            n - size
            for size in range(STRIP, self.store_columns, STRIP)
            if n % size == 0 and n > size
        ]
        if self.narrow not in legal:
            raise LayoutError(
                f"narrow={self.narrow} with tile N={n}; N - narrow = {unit} must divide N, be a "
                f"multiple of {STRIP} (a strip of C) and less than {self.store_columns} (a piece "
                f"of {self.out_dtype} C); legal: {', '.join(map(str, [0, *legal]))}"
            )
        if self.cluster[1] != 1:
            raise LayoutError(
                f"narrow={self.narrow} with cluster={self.cluster!r}; all CTAs of a cluster work "
                "on the same columns: cluster=(CTAs along M, 1)"
            )
        if self.schedule == "hilbert":
            raise LayoutError(
                f"narrow={self.narrow} with schedule='hilbert'; narrow tiles follow the order of "
                "schedule='grouped' or 'linear'"
            )

    def _check_a_rows(self) -> None:
        if not self.a_rows:
            return
        m = self.tile[0]
        if self.a_rows % 8 or not 8 <= self.a_rows < m:
            raise LayoutError(
                f"a_rows={self.a_rows} with tile M={m}; must be a multiple of 8 (rows of a swizzle "
                f"pattern), 8..{m - 8}, or 0 for whole tiles"
            )
        for name, value, needed in (
            ("a_major", self.a_major, "K"), ("cluster", self.cluster, (1, 1)),
        ):  # fmt: skip
            if value != needed:
                raise LayoutError(f"a_rows={self.a_rows} with {name}={value!r}; needs {needed!r}")

    def _check_split(self) -> None:
        if not 1 <= self.split_k <= 8:
            raise LayoutError(
                f"split_k={self.split_k}; the CTAs of a cluster that share a tile: 1..8"
            )
        if self.split_k > 1:
            for name, value, needed in (
                ("cluster", self.cluster, (1, 1)), ("narrow", self.narrow, 0),
            ):  # fmt: skip
                if value != needed:
                    raise LayoutError(
                        f"split_k={self.split_k} with {name}={value!r}; needs {needed!r}: the "
                        "cluster's CTAs work on one tile"
                    )

    def _most_registers(self) -> int:
        if self.consumers == 1:
            return 232
        left = REGISTERS_PER_SM // 128 - self.producer_registers
        return min(232, left // self.consumers // 8 * 8)

    def _check_registers(self) -> None:
        for name in ("producer_registers", "consumer_registers"):
            value = getattr(self, name)
            if value % 8 or not 24 <= value <= 256:
                raise LayoutError(f"{name}={value}; setmaxnreg takes 24..256 in steps of 8")
        total = 128 * (self.producer_registers + self.consumers * self.consumer_registers)
        if total > REGISTERS_PER_SM:
            raise LayoutError(
                f"128 * ({self.producer_registers} + {self.consumers} * "
                f"{self.consumer_registers}) = {total} registers > {REGISTERS_PER_SM} of an SM"
            )
        if self.accumulators + self._beside > self.consumer_registers:
            m, n, _ = self.tile
            narrow = f" and narrow={self.narrow}" if self.narrow else ""
            narrow += f" and split_k={self.split_k}" if self.split_k > 1 else ""
            raise LayoutError(
                f"tile {m}x{n} with {self.consumers} consumers{narrow} needs {m} / "
                f"{self.consumers} / 64 * {n} / 2 = {self.accumulators} accumulators and about "
                f"{self._beside} more registers per thread > {self.consumer_registers}; take a "
                f"smaller tile or other consumers{', or narrow=0' if self.narrow else ''}"
                f"{', or split_k=1' if self.split_k > 1 else ''}"
            )
        per_thread = REGISTERS_PER_SM // self.threads // 8 * 8
        if self.tile[1] // 2 + REGISTERS_BESIDE_WGMMA > per_thread:
            n = 2 * (per_thread - REGISTERS_BESIDE_WGMMA) // 32 * 32
            raise LayoutError(
                f"tile N={self.tile[1]} with {self.consumers} consumers: one wgmma has N / 2 = "
                f"{self.tile[1] // 2} accumulators and {REGISTERS_BESIDE_WGMMA} more registers, "
                f"and {self.threads} threads start with {per_thread} each; N must be at most {n}"
            )

    def _layout(self) -> shared.Layout:
        a, b = self.a_tile, self.b_tile
        try:
            return shared.Layout(
                a=shared.tile(self.dtype, a.shape, swizzle=a.swizzle, stages=self.stages),
                b=shared.tile(self.dtype, b.shape, swizzle=b.swizzle, stages=self.stages),
                c=shared.tile(
                    self.out_dtype,
                    (self.buffers, 64, self.store_columns),
                    swizzle=self.store_swizzle,
                    stages=self.consumers,
                ),
                full=shared.barriers(self.stages),
                empty=shared.barriers(self.stages),
                c_ready=shared.barriers(self.consumers * self.buffers),
                c_free=shared.barriers(self.consumers * self.buffers),
                **self._partial(),
            )
        except LayoutError as e:
            raise LayoutError(f"stages={self.stages} do not fit: {e}") from None

    def _partial(self) -> dict[str, shared.Piece]:
        if self.split_k == 1:
            return {}
        return {
            "partial": shared.array(
                "float32", (self.split_k - 1, self.tile[0] * self.tile[1]), alignment=128
            ),
            "partial_full": shared.barriers(1),
            "partial_free": shared.barriers(1),
        }

    @property
    def _beside(self) -> int:
        if self.split_k > 1:
            return REGISTERS_BESIDE_SPLIT
        return REGISTERS_BESIDE_NARROW if self.narrow else REGISTERS_BESIDE_ACCUMULATORS

    @property
    def keeps_half(self) -> bool:
        """Whether half of a tile of C waits in registers until the next tile's wgmma run.

        So it is where the other half fills the buffers, and pairs of 16-bit elements fit beside the
        accumulators. A single consumer with narrow tiles writes all at once: ptxas would spill.
        """
        registers = self.accumulators + self.accumulators // 4 + self._beside
        return (
            self.stages > 1
            and self.split_k == 1
            and not (self.narrow and self.consumers == 1)
            and canonical(self.out_dtype).bits == 16
            and self._pieces == 2 * self.buffers
            and registers <= self.consumer_registers
        )

    @property
    def accumulators(self) -> int:
        """Float32 accumulator registers of one consumer thread."""
        m, n, _ = self.tile
        return m // self.consumers // 64 * n // 2

    @property
    def a_tile(self) -> OperandTile:
        """Layout of the A tile in shared memory."""
        return operand_tile(self.tile[0], self.tile[2], self.dtype, self.a_major)

    @property
    def b_tile(self) -> OperandTile:
        """Layout of the B tile in shared memory."""
        return operand_tile(self.tile[1], self.tile[2], self.dtype, self.b_major)

    @property
    def store_columns(self) -> int:
        """Columns of C in one piece: a 128-byte row, or 64 bytes where N leaves no more."""
        wide = 128 // canonical(self.out_dtype).itemsize
        return wide if self.tile[1] % wide == 0 else wide // 2

    @property
    def buffers(self) -> int:
        """Buffers in use: ``store_buffers`` if the pieces of a tile fill them evenly, else 1."""
        return self.store_buffers if self._pieces % self.store_buffers == 0 else 1

    @property
    def _pieces(self) -> int:
        return self.tile[0] // self.consumers // 64 * self.tile[1] // self.store_columns

    @property
    def store_swizzle(self) -> str:
        """Swizzle of the pieces of C."""
        return f"{self.store_columns * canonical(self.out_dtype).itemsize}B"

    @property
    def cluster_size(self) -> int:
        """CTAs of a cluster."""
        return self.cluster[0] * self.cluster[1] * self.split_k

    @property
    def threads(self) -> int:
        """Threads of a CTA: one producer warpgroup and the consumers."""
        return 128 * (1 + self.consumers)

    @property
    def a_box(self) -> tuple[int, int]:
        """TMA box of A in array order: each CTA of a cluster row loads its part."""
        rows, inner = self.a_tile.box
        if self.a_rows:
            return self.a_rows, inner
        return (rows // self.cluster[1], inner) if self.a_major == "K" else (rows, inner)

    @property
    def b_box(self) -> tuple[int, int]:
        """TMA box of B in array order."""
        rows, inner = self.b_tile.box
        return (rows // self.cluster[0], inner) if self.b_major == "K" else (rows, inner)

    @property
    def c_box(self) -> tuple[int, int]:
        """TMA box of C in array order."""
        return 64, self.store_columns

    @property
    def strip_box(self) -> tuple[int, int]:
        """TMA box of C for the strips at the end of a narrow tile, in array order."""
        return 64, STRIP

    @property
    def strip_bytes(self) -> int:
        """Bytes of one strip."""
        return 64 * STRIP * canonical(self.out_dtype).itemsize

    @property
    def strip_swizzle(self) -> str:
        """Swizzle of the strips of C."""
        return f"{STRIP * canonical(self.out_dtype).itemsize}B"

    def replace(self, **changes: Any) -> HopperConfig:
        """Return a copy with other parameters, checked again."""
        names = [f for f in self.__dataclass_fields__ if f != "layout"]
        values = {n: getattr(self, n) for n in names}
        if "consumers" in changes or "producer_registers" in changes:
            values["consumer_registers"] = 0
        return HopperConfig(**{**values, **changes})
