"""tensormap: prefetching tensor maps and changing their fields on the device.

A tensor map that is a kernel argument needs only :func:`prefetch`, and not even that. To change
one in the kernel: copy the 128 bytes to shared memory, replace fields there, publish the copy with
:func:`cp_fenceproxy`, and in each block that uses it call ``fence.tensormap_acquire`` first.

The numbers that :func:`replace_elemtype` and its kin take are those of the PTX ISA, not those of
the driver's enumerations.

The replace functions are executed by one thread. Their result is complete for that thread at once,
for TMA after the fences above.

Not covered: ``prefetch.param.tensormap`` (it takes a symbol) and ``prefetch.const.tensormap``;
generic addresses in replace.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from nbtc.arch import TCGEN05
from nbtc.intrinsics.sections import DATA_MOVEMENT, PARALLEL, Scope
from nbtc.ptx.kinds import (
    GLOBAL_KIND,
    SHARED_KIND,
    U32,
    U64,
    Generic,
    Global,
    Imm,
    Kind,
    Shared,
    chosen,
)
from nbtc.ptx.spec import Isa, Variant, ptx

SECTION = DATA_MOVEMENT + ": tensormap.replace"
ARCH = ("sm_90a", *TCGEN05)


@ptx(
    "prefetch.tensormap [{tensor_map}];",
    isa=(8, 0),
    arch="sm_90",
    section=DATA_MOVEMENT + ": prefetch",
)
def prefetch(tensor_map: Generic) -> None:
    """Bring a tensor map into the descriptor cache, to hide its latency from the first copy.

    Args:
        tensor_map: a TensorMap argument, or the address of one.

    Executes: one thread. Completion: none; it is a hint.
    """
    ...


@ptx(
    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.{scope}.sync.aligned "
    "[{dst}], [{src}], 128;",
    isa=(8, 3),
    arch="sm_90",
    effects="memory convergent",
    section=PARALLEL + ": tensormap.cp_fenceproxy",
)
def cp_fenceproxy(dst: Global, src: Shared, *, scope: Scope = "gpu") -> None:
    """Copy a tensor map of 128 bytes from shared to global memory and release it to TMA.

    Args:
        dst: global address, 128-byte aligned.
        src: shared address, 128-byte aligned.
        scope: threads that will use the map, after ``fence.tensormap_acquire``.

    Executes: a whole warp, converged.
    """
    ...


def _space_kind(v: Variant) -> Kind:
    return GLOBAL_KIND if v.space == "global" else SHARED_KIND


Map = Annotated[Any, chosen(_space_kind, "a shared or global address, by space")]
Space = Literal["shared::cta", "global"]
Dimension = Annotated[int, Imm(0, 4)]


def _field(field: str, type_: str, ord_: bool = False) -> str:
    ordinal = " {dimension}," if ord_ else ""
    return f"tensormap.replace.tile.{field}.{{space}}.b1024.{type_} [{{map}}],{ordinal} {{value}};"


@ptx(_field("global_address", "b64"), isa=(8, 3), arch=ARCH, section=SECTION)
def replace_global_address(map: Map, value: U64, *, space: Space = "shared::cta") -> None:
    """Replace the tensor's base address.

    Args:
        map: address of the 128 bytes.
        value: global address, 16-byte aligned.
        space: where the map is.

    Executes: one thread.
    """
    ...


@ptx(_field("rank", "b32"), isa=(8, 3), arch=ARCH, section=SECTION)
def replace_rank(map: Map, value: U32, *, space: Space = "shared::cta") -> None:
    """Replace the number of dimensions.

    Args:
        map: address of the 128 bytes.
        value: **rank - 1**.
        space: where the map is.

    Executes: one thread.
    """
    ...


@ptx(_field("box_dim", "b32", True), isa=(8, 3), arch=ARCH, section=SECTION)
def replace_box_dim(
    map: Map, value: U32, *, dimension: Dimension, space: Space = "shared::cta"
) -> None:
    """Replace the box's size along one dimension.

    Args:
        map: address of the 128 bytes.
        value: elements, 1 to 256.
        dimension: 0 is the innermost.
        space: where the map is.

    Executes: one thread.
    """
    ...


@ptx(_field("global_dim", "b32", True), isa=(8, 3), arch=ARCH, section=SECTION)
def replace_global_dim(
    map: Map, value: U32, *, dimension: Dimension, space: Space = "shared::cta"
) -> None:
    """Replace the tensor's size along one dimension.

    Args:
        map: address of the 128 bytes.
        value: elements.
        dimension: 0 is the innermost.
        space: where the map is.

    Executes: one thread.
    """
    ...


@ptx(_field("global_stride", "b64", True), isa=(8, 3), arch=ARCH, section=SECTION)
def replace_global_stride(
    map: Map, value: U64, *, dimension: Annotated[int, Imm(0, 3)], space: Space = "shared::cta"
) -> None:
    """Replace the stride of dimension ``dimension + 1``; the innermost has none.

    Args:
        map: address of the 128 bytes.
        value: bytes, a multiple of 16.
        dimension: 0 to 3, counted from the second innermost.
        space: where the map is.

    Executes: one thread.
    """
    ...


@ptx(_field("element_stride", "b32", True), isa=(8, 3), arch=ARCH, section=SECTION)
def replace_element_stride(
    map: Map, value: U32, *, dimension: Dimension, space: Space = "shared::cta"
) -> None:
    """Replace the traversal stride along one dimension.

    Args:
        map: address of the 128 bytes.
        value: 1 to 8.
        dimension: 0 is the innermost.
        space: where the map is.

    Executes: one thread.
    """
    ...


def _newer(limit: int) -> Any:
    def isa(v: Variant) -> Isa:
        return (8, 7) if v.value > limit else (8, 3)

    return isa


@ptx(
    _field("elemtype", "b32"),
    isa=_newer(12),
    arch=lambda v: TCGEN05 if v.value > 12 else ARCH,
    section=SECTION,
)
def replace_elemtype(
    map: Map, *, value: Annotated[int, Imm(0, 15)], space: Space = "shared::cta"
) -> None:
    """Replace the element type.

    Args:
        map: address of the 128 bytes.
        value: 0 u8, 1 u16, 2 u32, 3 s32, 4 u64, 5 s64, 6 f16, 7 f32, 8 f32.ftz, 9 f64, 10 bf16,
            11 tf32, 12 tf32.ftz, 13 b4x16, 14 b4x16_p64, 15 b6x16_p32 (13 on: Blackwell).
        space: where the map is.

    Executes: one thread.
    """
    ...


@ptx(_field("interleave_layout", "b32"), isa=(8, 3), arch=ARCH, section=SECTION)
def replace_interleave_layout(
    map: Map, *, value: Literal[0, 1, 2], space: Space = "shared::cta"
) -> None:
    """Replace the interleave layout.

    Args:
        map: address of the 128 bytes.
        value: 0 none, 1 16 bytes, 2 32 bytes.
        space: where the map is.

    Executes: one thread.
    """
    ...


@ptx(
    _field("swizzle_mode", "b32"),
    isa=lambda v: (8, 8) if v.value == 4 else (8, 3),
    arch=lambda v: "sm_103a" if v.value == 4 else ARCH,
    section=SECTION,
)
def replace_swizzle_mode(
    map: Map, *, value: Literal[0, 1, 2, 3, 4], space: Space = "shared::cta"
) -> None:
    """Replace the swizzle.

    Args:
        map: address of the 128 bytes.
        value: 0 none, 1 32 bytes, 2 64 bytes, 3 128 bytes, 4 96 bytes (sm_103a).
        space: where the map is.

    Executes: one thread.
    """
    ...


@ptx(_field("swizzle_atomicity", "b32"), isa=(8, 6), arch=TCGEN05, section=SECTION)
def replace_swizzle_atomicity(
    map: Map, *, value: Literal[0, 1, 2, 3], space: Space = "shared::cta"
) -> None:
    """Replace the swizzle's atom.

    Args:
        map: address of the 128 bytes.
        value: 0 16 bytes, 1 32 bytes, 2 32 bytes with an 8-byte flip, 3 64 bytes.
        space: where the map is.

    Executes: one thread.
    """
    ...


@ptx(_field("fill_mode", "b32"), isa=(8, 3), arch=ARCH, section=SECTION)
def replace_fill_mode(map: Map, *, value: Literal[0, 1], space: Space = "shared::cta") -> None:
    """Replace what out-of-bounds elements read as.

    Args:
        map: address of the 128 bytes.
        value: 0 zero, 1 NaN.
        space: where the map is.

    Executes: one thread.
    """
    ...
