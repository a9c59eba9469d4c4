"""How a kernel's values become operands of PTX instructions: typing rules and conversions."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from llvmlite import ir
from numba.cuda import types

from nbtc.errors import InstructionError
from nbtc.ptx.kinds import Kind
from nbtc.ptx.types_numba import (
    BY_SPACE,
    AddressType,
    TensorMapType,
    _cast_width,
)
from nbtc.spelling import meant

_SCALARS = {
    "u16": types.uint16,
    "u32": types.uint32,
    "s32": types.int32,
    "u64": types.uint64,
    "s64": types.int64,
    "f32": types.float32,
    "f64": types.float64,
    "pred": types.boolean,
    "global": types.uint64,
    "generic": types.uint64,
}


def numba_type(kind: Kind) -> Any:
    """Return the Numba type of a result of this kind."""
    return _SCALARS.get(kind.name) or BY_SPACE[kind.name]


def llvm_type(kind: Kind) -> Any:
    """Return the LLVM type in which inline assembly takes this kind."""
    if kind.name == "f32":
        return ir.FloatType()
    if kind.name == "f64":
        return ir.DoubleType()
    return ir.IntType(kind.bits)


def _fits(value: int, bits: int) -> bool:
    return -(1 << (bits - 1)) <= value < (1 << bits)


def binding_problem(signature: inspect.Signature, keywords: Iterable[str], error: object) -> str:
    """Return what is wrong with a call that does not fit a signature.

    Args:
        signature: the signature.
        keywords: names of the keyword arguments given.
        error: what binding raised; the answer if no keyword is to blame.
    """
    unknown = [name for name in keywords if name not in signature.parameters]
    if unknown:
        return f"no parameter {unknown[0]!r}{meant(unknown[0], signature.parameters)}"
    return str(error)


def check_operand(where: str, kind: Kind, ty: Any) -> None:
    """Raise InstructionError unless a value of Numba type ``ty`` may be passed for ``kind``.

    Args:
        where: instruction and operand, for the message (``"mbarrier.init: count"``).
        kind: what the operand is.
        ty: Numba type of the argument.
    """
    problem = _problem(kind, ty)
    if problem:
        raise InstructionError(f"{where} {problem}")


def _problem(kind: Kind, ty: Any) -> str | None:
    if isinstance(ty, types.Omitted):
        ty = types.literal(ty.value)
    base = types.unliteral(ty) if isinstance(ty, types.Literal) else ty
    if kind.name in ("u16", "u32", "u64", "s32", "s64"):
        return _integer_problem(kind, ty, base)
    if kind.name == "pred":
        if isinstance(base, types.Boolean):
            return None
        if isinstance(ty, types.IntegerLiteral) and ty.literal_value in (0, 1):
            return None
        return f"is {base}, needs a boolean: write a comparison, or True / False"
    if kind.name in ("f32", "f64"):
        if isinstance(base, types.Float) or isinstance(ty, types.IntegerLiteral):
            return None
        return f"is {base}, needs {kind.words}: wrap it as float{kind.bits}(...)"
    return _address_problem(kind, base)


def _integer_problem(kind: Kind, ty: Any, base: Any) -> str | None:
    bits = kind.bits
    if isinstance(ty, types.IntegerLiteral):
        if _fits(ty.literal_value, bits):
            return None
        return f"is {ty.literal_value}, which does not fit in {bits} bits"
    if isinstance(base, types.Boolean) or (
        isinstance(base, types.Integer) and base.bitwidth <= bits
    ):
        return None
    if isinstance(base, types.Integer):
        # The sign of the value: it is kept, and mixes with other int32 as int32. Masks are 16 bits.
        signed = kind.name.startswith("s") or (base.signed and bits == 32)
        sign = "" if signed else "u"
        return (
            f"is {base}, needs int{bits} or uint{bits}: wrap it as {sign}int{bits}(...); "
            "literals that fit are accepted as they are"
        )
    if isinstance(base, AddressType):
        return f"is {base.words}, needs {kind.words}: write address.bits(...) if that is meant"
    return f"is {base}, needs {kind.words}"


def _address_problem(kind: Kind, base: Any) -> str | None:
    space = kind.name
    piece = getattr(base, "piece", None)
    if piece is not None and (piece.stages or 1) > 1:
        what = "barriers" if piece.is_barrier else "stages"
        name = base.piece_name  # pyright: ignore[reportAttributeAccessIssue]
        return f"is {name} with {piece.stages} {what}: choose one, {name}[i]"
    if isinstance(base, AddressType):
        if base.space == space or (space == "cluster" and base.space == "shared"):
            return None
        if space == "generic" and isinstance(base, TensorMapType):
            return None
        if space == "shared" and base.space == "cluster":
            return (
                "is a shared::cluster address, needs a shared::cta one: a remote mbarrier takes "
                "only the remote arrive and expect_tx forms; nobody can wait on it or initialise "
                "it from another CTA"
            )
        if {space, base.space} == {"descriptor_sm90", "descriptor_sm100"}:
            target = "sm_90" if space.endswith("90") else "sm_100"
            return f"is {base.words}, needs {kind.words}: build it for {target}"
        if space == "descriptor_sm100" and base.space == "tmem":
            return (
                f"is {base.words}, needs {kind.words}: B must be in shared memory; A may come from "
                "tensor memory with the form named ..._ts"
            )
        return f"is {base.words}, needs {kind.words}"
    if space in ("shared", "cluster", "global", "generic") and isinstance(base, types.Array):
        return None
    wide = isinstance(base, types.Integer) and base.bitwidth == 64
    if space in ("global", "generic") and (wide or isinstance(base, types.RawPointer)):
        return None
    if space == "tensor_map" and isinstance(base, types.Array):
        return (
            "is an array, needs a TensorMap argument of the kernel: pass nbtc.TensorMap.tiled(...) "
            "to the launch; a map in global memory is address.tensor_map(...), after "
            "fence.tensormap_acquire"
        )
    return f"is {base}, needs {kind.words}" + _address_hint(space)


def _address_hint(space: str) -> str:
    if space in ("shared", "cluster", "tmem"):
        return f"; turn a number into one with address.{space}(...)"
    if space.startswith("descriptor"):
        return "; turn a number into one with address." + space + "(...)"
    return ""


def to_register(context: Any, builder: Any, kind: Kind, ty: Any, value: Any) -> Any:
    """Return ``value`` of Numba type ``ty`` as the LLVM value that ``kind`` takes."""
    if isinstance(ty, types.Omitted):
        ty, value = types.literal(ty.value), None
    if isinstance(ty, types.IntegerLiteral | types.BooleanLiteral):
        number = ty.literal_value
        if kind.name in ("f32", "f64"):
            return ir.Constant(llvm_type(kind), float(number))
        return ir.Constant(ir.IntType(kind.bits), int(number))
    if isinstance(ty, types.Array):
        return _array_address(context, builder, kind, ty, value)
    if isinstance(ty, types.RawPointer):
        return builder.ptrtoint(value, ir.IntType(64))
    if isinstance(ty, types.Float):
        return context.cast(builder, value, ty, numba_type(kind))
    if kind.name == "pred":
        return value
    return _cast_width(builder, value, ty, kind.bits)


def _array_address(context: Any, builder: Any, kind: Kind, ty: Any, value: Any) -> Any:
    data = context.make_array(ty)(context, builder, value).data
    if kind.name in ("global", "generic"):
        return builder.ptrtoint(data, ir.IntType(64))
    pointee = data.type.pointee if not data.type.is_opaque else None
    target = ir.PointerType(pointee, 3) if pointee is not None else ir.PointerType(None, 3)
    return builder.ptrtoint(builder.addrspacecast(data, target), ir.IntType(32))
