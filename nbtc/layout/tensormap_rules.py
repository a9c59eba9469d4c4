"""The rules of ``cuTensorMapEncodeTiled`` and ``cuTensorMapEncodeIm2col``: each one, none tighter.

Messages name axes in array order (outermost first), as the caller wrote shape and box.
"""

from __future__ import annotations

import math
from typing import NoReturn

from nbtc.errors import TensorMapError
from nbtc.layout import tensormap_description as tmd
from nbtc.layout.tensormap_description import SWIZZLE_SPAN, TensorMapDescription
from nbtc.spelling import choice

_FLOAT_TYPES = frozenset(
    ("FLOAT16", "FLOAT32", "FLOAT64", "BFLOAT16", "FLOAT32_FTZ", "TFLOAT32", "TFLOAT32_FTZ")
)
_ALIGN16B = ("16U4_ALIGN16B", "16U6_ALIGN16B")
_CORNER_BITS = {1: 16, 2: 8, 3: 5}


def check(m: TensorMapDescription) -> None:
    """Raise `TensorMapError` on the first rule that the map breaks."""
    _check_names(m)
    _check_rank(m)
    _check_dims(m)
    check_address(m)
    _check_strides(m)
    _check_element_strides(m)
    if m.mode == "tiled":
        _check_box(m)
    else:
        _check_im2col(m)
    _check_combinations(m)


def check_address(m: TensorMapDescription) -> None:
    """Check the alignment of the base address (an unbound map, address 0, passes)."""
    align = _alignment(m)
    if m.address % align:
        step = align * 8 // m.element_bits
        _fail(
            m,
            f"base {m.address:#x} is {m.address % align} mod {align}; must be a multiple of "
            f"{align}. Start the view at a multiple of {max(step, 1)} {m.dtype} elements",
        )


def check_target(m: TensorMapDescription, compute_capability: tuple[int, int]) -> None:
    """Check what depends on the GPU that uses the map.

    Raises:
        TensorMapError: the GPU does not have the swizzle.
    """
    if "ATOM" in m.swizzle and compute_capability[0] < 10:
        major, minor = compute_capability
        _fail(m, f"swizzle={m.swizzle!r} exists from compute capability 10.0 (Blackwell) on; for "
                 f"{major}.{minor} take '128B'")  # fmt: skip


def _fail(m: TensorMapDescription, message: str) -> NoReturn:
    raise TensorMapError(f"tensor map for {m.name!r}: {message}" if m.name else message)


def _alignment(m: TensorMapDescription) -> int:
    return 32 if m.interleave == "32B" or m.data_type in _ALIGN16B else 16


def _check_names(m: TensorMapDescription) -> None:
    for field, legal in (
        ("interleave", tmd.INTERLEAVES),
        ("swizzle", tmd.SWIZZLES),
        ("l2_promotion", tmd.L2_PROMOTIONS),
        ("fill", tmd.FILLS),
    ):
        value = getattr(m, field)
        if value not in legal:
            hint = choice(value, legal)
            if field == "swizzle" and value == "96B":
                hint = "; 96B exists only as a value of tensormap.replace on sm_103a"
            _fail(m, f"{field}={value!r}; must be one of {', '.join(map(repr, legal))}{hint}")


def _check_rank(m: TensorMapDescription) -> None:
    if not 1 <= m.rank <= 5:
        _fail(m, f"rank {m.rank}; a tensor map has 1 to 5 dimensions")
    if m.rank < 3 and (m.interleave != "none" or m.mode != "tiled"):
        what = f"interleave {m.interleave!r}" if m.mode == "tiled" else "an im2col map"
        _fail(m, f"rank {m.rank} with {what}; needs rank 3 to 5")


def _check_dims(m: TensorMapDescription) -> None:
    for dim in reversed(range(m.rank)):
        size, axis = m.dims[dim], m.axis(dim)
        if size == 0:
            _fail(m, f"zero-size axis {axis}; no map is needed when the operand is absent")
        if not 1 <= size <= 1 << 32:
            _fail(m, f"shape[{axis}]={size}; must be 1..2**32 elements")
    multiple = {"16U4_ALIGN16B": 128, "16U6_ALIGN16B": 128, "16U4_ALIGN8B": 2}.get(m.data_type, 1)
    if m.dims[0] % multiple:
        _fail(
            m,
            f"shape[{m.rank - 1}]={m.dims[0]} of {m.data_type}; the innermost axis must be a "
            f"multiple of {multiple}: use {-(-m.dims[0] // multiple) * multiple}",
        )


def _check_strides(m: TensorMapDescription) -> None:
    align = _alignment(m)
    for index, stride in enumerate(m.strides):
        dim = index + 1
        label = f"stride of axis {m.axis(dim)} (map dim {dim}) is {stride} bytes"
        if stride < 0:
            _fail(m, f"{label}; a tensor map has no negative strides: flip or copy the array")
        if stride % align:
            remedy = f"use {-(-stride // align) * align} bytes"
            if dim == 1:
                step = align * 8 // math.gcd(m.element_bits, align * 8)
                row = -(-(stride * 8 // m.element_bits) // step) * step
                remedy = f"pad the row to {row} {m.dtype}"
            _fail(m, f"{label} ({stride % align} mod {align}); must be a multiple of {align}: "
                     f"{remedy}")  # fmt: skip
        if stride >= 1 << 40:
            _fail(m, f"{label}; must be below 2**40")


def _check_element_strides(m: TensorMapDescription) -> None:
    for dim in reversed(range(m.rank)):
        step = m.element_strides[dim]
        if not 1 <= step <= 8:
            _fail(m, f"element_strides[{m.axis(dim)}]={step}; must be 1..8")


def _check_box(m: TensorMapDescription) -> None:
    for dim in reversed(range(m.rank)):
        size, axis = m.box[dim], m.axis(dim)
        if size < 1:
            _fail(m, f"box[{axis}]={size}; must be 1..256")
        if size > 256:
            _fail(
                m,
                f"box[{axis}]={size} > 256; issue {-(-size // 256)} copies of at most 256 along "
                f"axis {axis}",
            )
    axis = m.rank - 1
    if m.data_type in _ALIGN16B:
        if m.box[0] != 128:
            _fail(m, f"box[{axis}]={m.box[0]} of {m.data_type}; the innermost axis must be 128")
    elif m.interleave == "none":
        _check_inner(m, f"box[{axis}]", m.box[0])


def _check_inner(m: TensorMapDescription, label: str, count: int) -> None:
    """Check the innermost row of a box: 16-byte multiple, and not wider than the swizzle."""
    bits = count * m.element_bits
    if bits % 128:
        step = 128 // m.element_bits
        _fail(
            m,
            f"{label}={count} {m.dtype}: box row is {bits / 8:g} B; must be a multiple of 16: use "
            f"a multiple of {step} elements",
        )
    span = SWIZZLE_SPAN[m.swizzle]
    if span and bits // 8 > span:
        most = span * 8 // m.element_bits
        _fail(
            m,
            f"{label}={count} {m.dtype} = {bits // 8} B > {span} B span of SWIZZLE_{m.swizzle}; "
            f"use {label}<={most} and {-(-count // most)} copies",
        )


def _check_im2col(m: TensorMapDescription) -> None:
    wide = m.mode != "im2col"
    corners = 1 if wide else m.rank - 2
    bits = 16 if wide else _CORNER_BITS[corners]
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    for what, values in (("lower_corner", m.lower_corner), ("upper_corner", m.upper_corner)):
        if len(values) != corners:
            _fail(m, f"{what} has {len(values)} entries; rank {m.rank} needs {corners}")
        for index, value in enumerate(reversed(values)):
            if not low <= value <= high:
                _fail(m, f"{what}[{index}]={value}; must be {low}..{high} for rank {m.rank}")
    channels, pixels = m.box
    if not 1 <= channels <= 256:
        _fail(m, f"channels_per_pixel={channels}; must be 1..256")
    if not 1 <= pixels <= 1024:
        _fail(m, f"pixels_per_column={pixels}; must be 1..1024")
    if m.mode == "im2col_w128" and pixels != 128:
        _fail(m, f"pixels_per_column={pixels}; the w::128 mode always takes 128")
    if wide and m.swizzle not in ("64B", "128B", "128B_ATOM_32B"):
        _fail(m, f"swizzle={m.swizzle!r} with wide im2col; must be '64B', '128B' or "
                 "'128B_ATOM_32B'")  # fmt: skip
    if m.interleave == "none" and m.data_type not in _ALIGN16B:
        _check_inner(m, "channels_per_pixel", channels)


def _check_combinations(m: TensorMapDescription) -> None:
    if m.interleave == "32B" and m.swizzle != "32B":
        _fail(m, f"swizzle={m.swizzle!r} with interleave '32B'; must be '32B'")
    if m.data_type == "16U6_ALIGN16B" and m.interleave != "none":
        _fail(m, f"interleave={m.interleave!r} with 16U6_ALIGN16B; must be 'none'")
    allowed = {
        "16U4_ALIGN16B": ("none", "128B", "128B_ATOM_32B"),
        "16U6_ALIGN16B": ("none", "128B", "128B_ATOM_32B", "128B_ATOM_64B"),
    }.get(m.data_type)
    if allowed and m.swizzle not in allowed:
        _fail(m, f"swizzle={m.swizzle!r} with {m.data_type}; must be one of "
                 f"{', '.join(map(repr, allowed))}")  # fmt: skip
    if m.fill == "nan" and m.data_type not in _FLOAT_TYPES:
        _fail(m, f"fill='nan' with {m.data_type}; the NaN fill exists for floating types only "
                 f"({', '.join(sorted(_FLOAT_TYPES))}): use 'zero'")  # fmt: skip
