"""Parameters of the Blackwell GEMM kernels, with every rule that a combination must keep."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from nbtc.device import shared
from nbtc.device.tcgen05_mma import SCALE_COLUMNS, container, operand, scale_words
from nbtc.device.tmem_epilogue import ROWS
from nbtc.dtypes import canonical
from nbtc.errors import LayoutError
from nbtc.gemm.config import POLICIES, _integers, integer
from nbtc.layout.instruction_descriptor import InstructionDescriptor
from nbtc.layout.matrix_descriptor import OperandTile
from nbtc.layout.scale_factors import TILE_BYTES
from nbtc.layout.tensor_memory import COLUMNS
from nbtc.spelling import checked

EPILOGUE_WARPS = 4
"""Warps that read the accumulator, one for each 32 lanes of tensor memory."""

THREADS = 256
"""Threads of a CTA: TMA, MMA, tensor-memory and scheduler warps, and the epilogue's four."""

_F8F6F4 = ("float8_e4m3fn", "float8_e5m2", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn")
_KINDS = {
    "bfloat16": "f16", "float16": "f16", "tfloat32": "tf32", "int8": "i8", "uint8": "i8",
    **dict.fromkeys(_F8F6F4, "f8f6f4"),
}  # fmt: skip
_OUTPUTS = ("bfloat16", "float16", "float32")
_INTEGERS = (
    "cta_group", "stages", "accumulators", "group", "block", "store_buffers", "claims",
)  # fmt: skip
_BOX_ROWS = 256
_ROW_BYTES = 128
"""Bytes of one row of a k-block in shared memory: one 128B swizzle span, four MMA steps."""


def kind_of(dtype: str, b_dtype: str, block: int, scale: str) -> str:
    """Return the PTX kind of operand types and scale factors.

    Raises:
        LayoutError: no kind takes them.
    """
    for name in (dtype, b_dtype):
        if name not in _KINDS:
            raise LayoutError(f"dtype={name!r}; legal: {', '.join(_KINDS)}")
    if not block:
        if _KINDS[dtype] != _KINDS[b_dtype] or (_KINDS[dtype] == "f16" and dtype != b_dtype):
            raise LayoutError(
                f"dtype={dtype!r} with b_dtype={b_dtype!r}; 8-, 6- and 4-bit floats mix, "
                "other types do not"
            )
        return _KINDS[dtype]
    both = {dtype, b_dtype}
    if not both <= set(_F8F6F4):
        raise LayoutError(
            f"block={block} with dtype={dtype!r}, b_dtype={b_dtype!r}; scaled types are "
            + ", ".join(_F8F6F4)
        )
    if block == 16 or scale == "ue4m3":
        if both != {"float4_e2m1fn"} or block != 16:
            raise LayoutError(
                f"block={block}, scale={scale!r} with {dtype} and {b_dtype}; blocks of 16 and "
                "ue4m3 scales are those of nvfp4, whose elements are float4_e2m1fn on both sides"
            )
        return "mxf4nvf4"
    return "mxf4" if both == {"float4_e2m1fn"} else "mxf8f6f4"


@checked
@dataclass(frozen=True)
class BlackwellConfig:
    """One configuration of the warp-specialised Blackwell GEMM, C = A B.

    Attributes:
        dtype: element type of A.
        b_dtype: element type of B; default as ``dtype``. 8-, 6- and 4-bit floats mix.
        out_dtype: element type of C; default as ``dtype`` for 16-bit types, bfloat16 for narrower
            ones, float32 for tfloat32, int32 for integers.
        tile: (M, N, K) of the tile of one CTA or pair; K 0 is one 128-byte row.
        cta_group: 1, or 2 for CTA pairs, whose two CTAs work on one tile.
        stages: stages of the ring of A and B tiles; 0 takes as many as fit, 6 at most.
        accumulators: accumulators in tensor memory; with 2 the epilogue of a tile overlaps the
            multiplication of the next. 0 takes 2 if they fit, else 1.
        cluster: tiles of a cluster along M and N; A tiles are multicast along N, B tiles along M.
            A cluster has ``cta_group`` times as many CTAs.
        schedule: ``"clc"`` (cluster launch control: one cluster a tile is launched, running ones
            take over those that have not started) or ``"static"`` (a fixed stride).
        group: tile rows (in clusters) of one raster group.
        a_major: ``"K"`` if A is stored with K contiguous, ``"MN"`` with M contiguous.
        b_major: ``"K"`` if B is stored with K contiguous, ``"MN"`` with N contiguous.
        block: elements that share a scale factor, 32 or 16; 0 for none.
        scale: ``"ue8m0"`` or ``"ue4m3"``; default ue8m0 for blocks of 32, ue4m3 for 16.
        store_buffers: buffers of each epilogue warp for the pieces of C on their way to memory.
        policies: L2 eviction policies of A, B and C: ``""``, ``"evict_first"``, ``"evict_last"``.
        claims: responses of cluster launch control that can wait to be read.
        kind: PTX kind of the multiplication.
        asked: the parameters as given, before defaults were filled in.
        layout: shared memory of a CTA.
    """

    dtype: str = "bfloat16"
    b_dtype: str = ""
    out_dtype: str = ""
    tile: tuple[int, int, int] = (0, 0, 0)
    cta_group: int = 2
    stages: int = 0
    accumulators: int = 0
    cluster: tuple[int, int] = (1, 1)
    schedule: str = "clc"
    group: int = 8
    a_major: str = "K"
    b_major: str = "K"
    block: int = 0
    scale: str = ""
    store_buffers: int = 2
    policies: tuple[str, str, str] = ("", "", "")
    claims: int = 3
    kind: str = field(init=False)
    asked: dict[str, Any] = field(init=False, repr=False, compare=False)
    layout: shared.Layout = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the combination and lay out shared and tensor memory.

        Raises:
            LayoutError: a rule is broken; the message shows the arithmetic.
        """
        put = lambda name, value: object.__setattr__(self, name, value)  # noqa: E731
        given = [name for name, f in self.__dataclass_fields__.items() if f.init]
        put("asked", {name: getattr(self, name) for name in given})
        put("dtype", _element(self.dtype))
        put("b_dtype", _element(self.b_dtype or self.dtype))
        put("tile", _integers("tile", self.tile, 3, "(M, N, K)"))
        put("cluster", _integers("cluster", self.cluster, 2, "(tiles along M, tiles along N)"))
        for name in _INTEGERS:
            put(name, integer(name, getattr(self, name)))
        if isinstance(self.policies, list):
            put("policies", tuple(self.policies))
        if self.block not in (0, 16, 32):
            raise LayoutError(f"block={self.block!r}; 32 (mx formats), 16 (nvfp4) or 0")
        if self.scale and not self.block:
            raise LayoutError(f"scale={self.scale!r} without blocks; set block=32 or block=16")
        if self.block and not self.scale:
            put("scale", "ue4m3" if self.block == 16 else "ue8m0")
        put("kind", kind_of(self.dtype, self.b_dtype, self.block, self.scale))
        put("out_dtype", canonical(self.out_dtype or self._default_out()).name)
        self._check_choices()
        put("tile", self._full_tile())
        self._check_tile()
        self._check_cluster()
        if not self.accumulators:
            put("accumulators", 2 if 2 * self.tile[1] + self.scale_columns <= COLUMNS else 1)
        put("stages", self.stages or self._most_stages())
        self._check_tensor_memory()
        put("layout", self._layout())

    def _default_out(self) -> str:
        if self.kind in ("tf32", "i8"):
            return "float32" if self.kind == "tf32" else "int32"
        return self.dtype if self.kind == "f16" else "bfloat16"

    def _check_choices(self) -> None:
        outputs = ("int32",) if self.kind == "i8" else _OUTPUTS
        for name, value, legal in (
            ("out_dtype", self.out_dtype, outputs),
            ("schedule", self.schedule, ("clc", "static")),
            ("cta_group", self.cta_group, (1, 2)),
            ("a_major", self.a_major, ("K", "MN")),
            ("b_major", self.b_major, ("K", "MN")),
            ("accumulators", self.accumulators, (0, 1, 2)),
        ):
            if value not in legal:
                raise LayoutError(
                    f"{name}={value!r}; legal with kind::{self.kind}: {', '.join(map(repr, legal))}"
                )
        policies, known = self.policies, list(POLICIES)
        if (
            not isinstance(policies, tuple)
            or len(policies) != 3
            or any(p not in known for p in policies)
        ):
            raise LayoutError(
                f"policies={policies!r}; needs a tuple of three, for A, B and C, each one of "
                f"{', '.join(map(repr, known))}"
            )
        for name, least in (("stages", 0), ("group", 1), ("store_buffers", 1), ("claims", 1)):
            if getattr(self, name) < least:
                raise LayoutError(f"{name}={getattr(self, name)}; must be an integer >= {least}")
        operands = (("A", self.a_major, self.dtype), ("B", self.b_major, self.b_dtype))
        for name, major, dtype in operands:
            if major == "MN" and (self.block or canonical(dtype).bits < 8):
                raise LayoutError(
                    f"{name} is MN-major {dtype}; block-scaled, 6- and 4-bit operands are K-major "
                    "here (their elements are packed along K)"
                )

    def _full_tile(self) -> tuple[int, int, int]:
        if min(self.tile) < 0:
            raise LayoutError(
                f"tile={self.tile!r}; must be three integers (M, N, K) >= 0, 0 for the default"
            )
        m, n, k = self.tile
        bits = canonical(container(self.kind, self.dtype)).bits
        depth = k or _ROW_BYTES * 8 // bits
        return m or 128 * self.cta_group, n or (128 if self.block else 256), depth

    def _check_tile(self) -> None:
        m, n, k = self.tile
        if m != 128 * self.cta_group:
            raise LayoutError(
                f"tile M={m} with cta_group={self.cta_group}; tensor memory has 128 lanes in each "
                f"CTA: M must be 128 * {self.cta_group} = {128 * self.cta_group}"
            )
        if n % 32 or not 32 <= n <= 256:
            raise LayoutError(f"tile N={n}; must be a multiple of 32, 32..256 (one MMA)")
        if self.block and n % 128:
            raise LayoutError(
                f"tile N={n} with scale factors, which are laid out for 128 columns at a time; "
                "N must be 128 or 256"
            )
        fields = InstructionDescriptor(
            self.kind, m, n, self.dtype, self.b_dtype,
            "s32" if self.kind == "i8" else "f32",
            transpose_a=self.a_major == "MN", transpose_b=self.b_major == "MN",
            scale=self.scale or None,
        )  # fmt: skip
        fields.check(self.cta_group)
        row = k * fields.container_bits // 8
        if k % fields.k or row % _ROW_BYTES:
            wide = _ROW_BYTES * 8 // fields.container_bits
            raise LayoutError(
                f"tile K={k} of {self.dtype} is {k} * {fields.container_bits} / 8 = {row} B a row; "
                f"must be a multiple of {_ROW_BYTES} B: K a multiple of {wide}"
            )
        if self.block and k % (4 * self.block):
            raise LayoutError(
                f"tile K={k} with blocks of {self.block}; scale factors come four in a word: K "
                f"must be a multiple of 4 * {self.block} = {4 * self.block}"
            )
        if self.scale_words * TILE_BYTES // 8 > 256:
            raise LayoutError(
                f"tile K={k} has {self.scale_words} * {TILE_BYTES} B of scale factors for 128 "
                "rows; one TMA box takes 256 8-byte words = 4 * 512 B"
            )
        for name, tile in (("A", self.a_tile), ("B", self.b_tile)):
            if tile.box[0] > _BOX_ROWS:
                raise LayoutError(
                    f"tile K={k}: a TMA box of an MN-major {name} tile has K rows, at most "
                    f"{_BOX_ROWS}"
                )

    def _check_cluster(self) -> None:
        cm, cn = self.cluster
        if min(self.cluster) < 1 or self.ctas > 8:
            raise LayoutError(
                f"cluster={self.cluster!r} of {self.cta_group} CTAs each; two integers >= 1 with "
                f"{self.cta_group} * {cm} * {cn} <= 8"
            )
        for what, tile, parts in (("A", self.a_tile, cn), ("B", self.b_tile, cm)):
            size = 8 if tile.major == "K" else tile.box[1]
            if tile.mn // size % parts:
                raise LayoutError(
                    f"cluster={self.cluster!r}: the {what} tile of {tile.mn} in each CTA is "
                    f"multicast in {parts} parts of whole {size}-row pieces; {tile.mn} / {size} = "
                    f"{tile.mn // size} is not a multiple of {parts}"
                )

    def _most_stages(self) -> int:
        left = shared.MAX_SHARED_BYTES - self._store_bytes() - 1024
        most = left // self.stage_bytes
        if self.block:
            free = COLUMNS - self.accumulators * self.tile[1]
            most = min(most, free // self.scale_columns)
        return max(1, min(6, most))

    def _check_tensor_memory(self) -> None:
        used = self.accumulators * self.tile[1] + self.stages * self.scale_columns
        if used > COLUMNS:
            scales = f" + {self.stages} * {self.scale_columns}" if self.block else ""
            raise LayoutError(
                f"{self.accumulators} accumulators of {self.tile[1]} columns{scales} = {used} > "
                f"{COLUMNS} columns of tensor memory; take fewer stages, accumulators=1 or a "
                "smaller N"
            )

    def _store_bytes(self) -> int:
        width = self.store_columns * canonical(self.out_dtype).itemsize
        return EPILOGUE_WARPS * self.buffers * ROWS * width

    def _layout(self) -> shared.Layout:
        a, b = self.a_tile, self.b_tile
        pieces = {
            "a": shared.tile(a.dtype, a.shape, swizzle=a.swizzle, stages=self.stages),
            "b": shared.tile(b.dtype, b.shape, swizzle=b.swizzle, stages=self.stages),
            "c": shared.tile(
                self.out_dtype, (self.buffers, ROWS, self.store_columns),
                swizzle=self.store_swizzle, stages=EPILOGUE_WARPS,
            ),
            "full": shared.barriers(self.stages),
            "empty": shared.barriers(self.stages),
            "done": shared.barriers(self.accumulators),
            "drained": shared.barriers(self.accumulators),
            "slot": shared.array("uint32", 1),
        }  # fmt: skip
        if self.block:
            pieces["sfa"] = shared.tile("uint8", self.scale_words * TILE_BYTES, stages=self.stages)
            pieces["sfb"] = shared.tile(
                "uint8", self.tile[1] // 128 * self.scale_words * TILE_BYTES, stages=self.stages
            )
        if self.schedule == "clc":
            pieces["clc_full"] = shared.barriers(self.claims)
            pieces["clc_empty"] = shared.barriers(self.claims)
            pieces["clc_response"] = shared.tile("uint8", 16, stages=self.claims)
        try:
            return shared.Layout(**pieces)
        except LayoutError as e:
            raise LayoutError(f"stages={self.stages} do not fit: {e}") from None

    @property
    def ctas(self) -> int:
        """CTAs of a cluster."""
        return self.cta_group * math.prod(self.cluster)

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return THREADS

    @property
    def a_tile(self) -> OperandTile:
        """Layout of the A tile in the shared memory of one CTA."""
        m = self.tile[0] // self.cta_group
        return operand(m, self.tile[2], self.kind, self.dtype, self.a_major)

    @property
    def b_tile(self) -> OperandTile:
        """Layout of the B tile in the shared memory of one CTA."""
        n = self.tile[1] // self.cta_group
        return operand(n, self.tile[2], self.kind, self.b_dtype, self.b_major)

    @property
    def scale_words(self) -> int:
        """Words of four scale factors that a row of a k-block has; 0 without scale factors."""
        return scale_words(self.tile[2], self.block) if self.block else 0

    @property
    def scale_columns(self) -> int:
        """Columns of tensor memory for the scale factors of one stage."""
        return SCALE_COLUMNS * self.scale_words * (1 + self.tile[1] // 128) if self.block else 0

    @property
    def tmem_columns(self) -> int:
        """Columns of tensor memory that a CTA allocates: a power of two, 32 to 512."""
        used = self.accumulators * self.tile[1] + self.stages * self.scale_columns
        return max(32, 1 << (used - 1).bit_length())

    @property
    def stage_bytes(self) -> int:
        """Bytes of shared memory of one stage in one CTA."""
        scales = self.scale_words * TILE_BYTES * (1 + self.tile[1] // 128) if self.block else 0
        return self.a_tile.size_bytes + self.b_tile.size_bytes + scales

    @property
    def transaction_bytes(self) -> int:
        """Bytes that TMA announces for one stage in one CTA: packed ones for 4- and 6-bit types."""
        scales = self.scale_words * TILE_BYTES * (1 + self.tile[1] // 128) if self.block else 0
        total = scales
        for tile, dtype in ((self.a_tile, self.dtype), (self.b_tile, self.b_dtype)):
            total += tile.mn * tile.k * canonical(dtype).bits // 8
        return total

    @property
    def store_columns(self) -> int:
        """Columns of C in one piece: a 128-byte row, or less where N leaves no more."""
        wide = _ROW_BYTES // canonical(self.out_dtype).itemsize
        return math.gcd(wide, self.tile[1])

    @property
    def buffers(self) -> int:
        """Buffers of an epilogue warp in use: the most that the pieces of a tile fill evenly.

        Each tile then starts with the buffer that was stored longest ago.
        """
        pieces = self.tile[1] // self.store_columns
        return next(b for b in range(self.store_buffers, 0, -1) if pieces % b == 0)

    @property
    def store_swizzle(self) -> str:
        """Swizzle of the pieces of C."""
        return f"{self.store_columns * canonical(self.out_dtype).itemsize}B"

    @property
    def a_box(self) -> tuple[int, int]:
        """TMA box of A in array order: each CTA of a cluster row loads its part."""
        return _box(self.a_tile, self.cluster[1])

    @property
    def b_box(self) -> tuple[int, int]:
        """TMA box of B in array order."""
        return _box(self.b_tile, self.cluster[0])

    @property
    def c_box(self) -> tuple[int, int]:
        """TMA box of C in array order: the rows of one epilogue warp."""
        return ROWS, self.store_columns

    def replace(self, **changes: Any) -> BlackwellConfig:
        """Return a copy with other parameters, checked again; defaults are chosen anew."""
        return BlackwellConfig(**{**self.asked, **changes})


def _element(dtype: Any) -> str:
    """Return the name of an operand type; float32 is read as tfloat32."""
    name = canonical(dtype).name
    return "tfloat32" if name == "float32" else name


def _box(tile: OperandTile, parts: int) -> tuple[int, int]:
    rows, inner = tile.box
    return (rows // parts, inner) if tile.major == "K" else (rows, inner)
