"""How kernels see a shared-memory layout: pieces as addresses, stages by index, arrays."""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba.cuda import cgutils, types
from numba.cuda.cudadecl import registry as typing_registry
from numba.cuda.cudaimpl import registry as lowering_registry
from numba.cuda.datamodel import models
from numba.cuda.extending import register_model, typeof_impl
from numba.cuda.typing.templates import AbstractTemplate, AttributeTemplate, signature

from nbtc.device.shared import BASE_ALIGNMENT, Layout, Piece
from nbtc.errors import LayoutError
from nbtc.ptx import narrow_floats
from nbtc.ptx.kinds import U32_KIND
from nbtc.ptx.operands import to_register
from nbtc.ptx.types_numba import SHARED, AddressModel, AddressType
from nbtc.spelling import meant

SYMBOL = "nbtc_dynamic_shared"
"""Name of the dynamic shared-memory symbol in PTX, before the bytes of the layout."""


class LayoutType(types.Opaque):
    """The Numba type of one shared-memory layout."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        super().__init__(f"shared.Layout({layout.fingerprint()})")


class PieceType(AddressType):
    """A piece of shared memory: an address that knows its stages and its element type."""

    def __init__(self, piece: Piece, name: str) -> None:
        self.piece = piece
        self.piece_name = name
        super().__init__("shared", 32, "a piece of shared memory", f"shared_piece({name}, {piece})")


register_model(LayoutType)(models.OpaqueModel)
register_model(PieceType)(AddressModel)


@typeof_impl.register(Layout)
def _typeof_layout(value: Layout, c: Any) -> LayoutType:
    return LayoutType(value)


@lowering_registry.lower_constant(LayoutType)
def _constant(context: Any, builder: Any, ty: Any, value: Any) -> Any:
    return context.get_dummy_value()


@typing_registry.register_attr
class _LayoutAttributes(AttributeTemplate):
    key = LayoutType

    def generic_resolve(self, typ: Any, attr: str) -> Any:
        if attr not in typ.layout.pieces:
            raise LayoutError(
                f"shared memory has no piece {attr!r}; pieces: {', '.join(typ.layout)}"
                f"{meant(attr, typ.layout)}"
            )
        return PieceType(typ.layout.pieces[attr], attr)


def _base(builder: Any, layout: Layout) -> Any:
    # The size in the name tells nbtc.compile which layout the code uses.
    module, name = builder.module, f"{SYMBOL}_{layout.nbytes}"
    if name in module.globals:
        return module.globals[name]
    variable = cgutils.add_global_variable(module, ir.ArrayType(ir.IntType(8), 0), name, 3)
    variable.linkage = "external"
    variable.align = BASE_ALIGNMENT
    return variable


@lowering_registry.lower_getattr_generic(LayoutType)
def _get_piece(context: Any, builder: Any, typ: Any, value: Any, attr: str) -> Any:
    i32 = ir.IntType(32)
    start = builder.ptrtoint(_base(builder, typ.layout), i32)
    return builder.add(start, ir.Constant(i32, typ.layout.offsets[attr]))


@typing_registry.register_global(operator.getitem)
class _StageAddress(AbstractTemplate):
    prefer_literal = True  # so that a constant stage is checked

    def generic(self, args: Any, kws: Any) -> Any:
        if len(args) != 2 or not isinstance(args[0], PieceType):
            return None
        piece, name = args[0].piece, args[0].piece_name
        if piece.stages is None:
            raise LayoutError(
                f"{name}[...]: the piece has no stages; its address is {name} itself, its "
                f"elements are {name}.array[...]"
            )
        index = args[1]
        if not isinstance(index, types.Integer):
            raise LayoutError(f"{name}[...]: the stage is {index}, and must be an integer")
        if isinstance(index, types.IntegerLiteral) and not 0 <= index.literal_value < piece.stages:
            raise LayoutError(f"{name}[{index.literal_value}]: stages are 0..{piece.stages - 1}")
        return signature(SHARED, args[0], types.unliteral(index))


@lowering_registry.lower(operator.getitem, PieceType, types.Integer)
def _stage_address(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    index_type = sig.args[1]
    index = args[1]
    i32 = ir.IntType(32)
    if index.type.width > 32:
        index = builder.trunc(index, i32)
    else:
        index = to_register(context, builder, U32_KIND, index_type, index)
    stride = ir.Constant(i32, sig.args[0].piece.stride)
    return builder.add(args[0], builder.mul(index, stride))


@typing_registry.register_attr
class _PieceAttributes(AttributeTemplate):
    key = PieceType

    def resolve_array(self, typ: Any) -> Any:
        piece = typ.piece
        shape = piece.shape if piece.stages is None else (piece.stages, *piece.shape)
        if piece.swizzle != "none" or (
            piece.stages is not None and piece.stride != piece.stage_bytes
        ):
            raise LayoutError(
                f"{typ.piece_name}.array: the piece is swizzled or padded, so it is no plain "
                "array; use shared.array for data that threads index"
            )
        return types.Array(narrow_floats.element_type(piece.dtype), len(shape), "C")


@lowering_registry.lower_getattr(PieceType, "array")
def _piece_array(context: Any, builder: Any, typ: Any, value: Any) -> Any:
    piece = typ.piece
    shape = piece.shape if piece.stages is None else (piece.stages, *piece.shape)
    array_type = types.Array(narrow_floats.element_type(piece.dtype), len(shape), "C")
    data_type = context.get_data_type(array_type.dtype)
    pointer = builder.inttoptr(value, ir.PointerType(data_type, 3))
    generic = builder.addrspacecast(pointer, ir.PointerType(data_type, 0))
    result = context.make_array(array_type)(context, builder)
    intp = context.get_value_type(types.intp)
    itemsize = context.get_abi_sizeof(data_type)
    strides, step = [], itemsize
    for dim in reversed(shape):
        strides.insert(0, step)
        step *= dim
    context.populate_array(
        result,
        data=generic,
        shape=[ir.Constant(intp, d) for d in shape],
        strides=[ir.Constant(intp, s) for s in strides],
        itemsize=ir.Constant(intp, itemsize),
        meminfo=None,
    )
    return result._getvalue()
