"""Numba types for addresses, descriptors and tensor maps.

An address or a descriptor keeps its type through ``+ - & | ^`` with integers, so that a kernel
needs no casts; Numba would otherwise promote every one of them to 64 bits. They do not turn into
each other by accident: a remote barrier address is not a local one, and a wgmma descriptor is not
a tcgen05 one.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba.cuda import types
from numba.cuda.cudadecl import registry as typing_registry
from numba.cuda.cudaimpl import registry as lowering_registry
from numba.cuda.datamodel import models
from numba.cuda.extending import register_model
from numba.cuda.typing.templates import AbstractTemplate, signature


class AddressType(types.Type):
    """An address in one state space, or a matrix descriptor: an integer with a meaning.

    Attributes:
        space: ``"shared"``, ``"cluster"``, ``"tmem"``, ``"descriptor_sm90"``,
            ``"descriptor_sm100"`` or ``"tensor_map"``.
        bits: 32 or 64.
    """

    def __init__(self, space: str, bits: int, words: str, name: str = "") -> None:
        self.space = space
        self.bits = bits
        self.words = words
        super().__init__(name or f"{space}_address")

    def unify(self, typingctx: Any, other: Any) -> Any:
        """Let a piece of shared memory and a plain address meet as the plain address."""
        if isinstance(other, AddressType) and other.space == self.space:
            return BY_SPACE[self.space]
        return None

    def can_convert_to(self, typingctx: Any, other: Any) -> Any:
        """Allow the conversion to the plain address of the same space."""
        if isinstance(other, AddressType) and other is BY_SPACE.get(self.space):
            from numba.cuda.typeconv import Conversion

            return Conversion.safe
        return None


SHARED = AddressType("shared", 32, "a shared::cta address")
CLUSTER = AddressType("cluster", 32, "a shared::cluster address")
TMEM = AddressType("tmem", 32, "a tensor-memory address")
DESCRIPTOR90 = AddressType("descriptor_sm90", 64, "a wgmma descriptor", "wgmma_descriptor")
DESCRIPTOR100 = AddressType("descriptor_sm100", 64, "a tcgen05 descriptor", "tcgen05_descriptor")


class TensorMapType(AddressType):
    """A tensor map passed by value as a kernel parameter; its value is a generic address."""

    def __init__(self) -> None:
        super().__init__("tensor_map", 64, "a TensorMap argument", "TensorMap")


TENSOR_MAP = TensorMapType()

BY_SPACE: dict[str, AddressType] = {
    t.space: t for t in (SHARED, CLUSTER, TMEM, DESCRIPTOR90, DESCRIPTOR100, TENSOR_MAP)
}


class AddressModel(models.PrimitiveModel):
    """One integer register."""

    def __init__(self, dmm: Any, fe_type: AddressType) -> None:
        super().__init__(dmm, fe_type, ir.IntType(fe_type.bits))


class TensorMapModel(AddressModel):
    """The address in a register; 128 bytes by value as an argument of a kernel."""

    def get_argument_type(self) -> Any:
        """Return the pointer that ``nbtc.numba_compat`` marks ``byval`` on kernels."""
        return ir.ArrayType(ir.IntType(64), 16).as_pointer()

    def as_argument(self, builder: Any, value: Any) -> Any:
        """Hand the address on to a device function."""
        return builder.inttoptr(value, self.get_argument_type())

    def from_argument(self, builder: Any, value: Any) -> Any:
        """Take the parameter's address."""
        return builder.ptrtoint(value, ir.IntType(64))


register_model(AddressType)(AddressModel)
register_model(TensorMapType)(TensorMapModel)


def _cast_width(builder: Any, value: Any, from_type: Any, bits: int) -> Any:
    width = value.type.width
    if width == bits:
        return value
    if width > bits:
        return builder.trunc(value, ir.IntType(bits))
    signed = getattr(from_type, "signed", False)
    extend = builder.sext if signed else builder.zext
    return extend(value, ir.IntType(bits))


def _is_address(ty: Any) -> bool:
    return isinstance(ty, AddressType) and not isinstance(ty, TensorMapType)


def _register_arithmetic(op: Any, opcode: str, commutes: bool) -> None:
    class Arithmetic(AbstractTemplate):
        key = op

        def generic(self, args: Any, kws: Any) -> Any:
            if kws or len(args) != 2:
                return None
            a, b = args
            if _is_address(a) and isinstance(b, types.Integer | types.Boolean):
                return signature(BY_SPACE[a.space], a, types.unliteral(b))
            if commutes and _is_address(b) and isinstance(a, types.Integer | types.Boolean):
                return signature(BY_SPACE[b.space], types.unliteral(a), b)
            if opcode == "sub" and _is_address(a) and _is_address(b) and a.space == b.space:
                return signature(types.int32 if a.bits == 32 else types.int64, a, b)
            return None

    typing_registry.register_global(op, types.Function(Arithmetic))

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        bits = max(t.bits for t in sig.args if isinstance(t, AddressType))
        a, b = (_cast_width(builder, v, t, bits) for v, t in zip(args, sig.args, strict=True))
        return getattr(builder, opcode)(a, b)

    for integer in (types.Integer, types.Boolean):
        lowering_registry.lower(op, AddressType, integer)(lower)
        lowering_registry.lower(op, integer, AddressType)(lower)
    lowering_registry.lower(op, AddressType, AddressType)(lower)


for _op, _opcode, _commutes in (
    (operator.add, "add", True),
    (operator.sub, "sub", False),
    (operator.and_, "and_", True),
    (operator.or_, "or_", True),
    (operator.xor, "xor", True),
):
    _register_arithmetic(_op, _opcode, _commutes)
for _op, _opcode, _commutes in (
    (operator.iadd, "add", False),
    (operator.isub, "sub", False),
    (operator.iand, "and_", False),
    (operator.ior, "or_", False),
    (operator.ixor, "xor", False),
):
    _register_arithmetic(_op, _opcode, _commutes)


def _register_comparison(op: Any, predicate: str) -> None:
    class Comparison(AbstractTemplate):
        key = op

        def generic(self, args: Any, kws: Any) -> Any:
            if len(args) == 2 and all(map(_is_address, args)) and args[0].space == args[1].space:
                return signature(types.boolean, *args)
            return None

    typing_registry.register_global(op, types.Function(Comparison))

    @lowering_registry.lower(op, AddressType, AddressType)
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.icmp_unsigned(predicate, *args)


_register_comparison(operator.eq, "==")
_register_comparison(operator.ne, "!=")


@lowering_registry.lower_cast(AddressType, types.Integer)
def _address_to_integer(context: Any, builder: Any, fromty: Any, toty: Any, val: Any) -> Any:
    return _cast_width(builder, val, fromty, toty.bitwidth)


@lowering_registry.lower_cast(AddressType, AddressType)
def _address_to_address(context: Any, builder: Any, fromty: Any, toty: Any, val: Any) -> Any:
    return val
