"""Turn numbers and arrays into addresses and descriptors, inside kernels."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.cuda import types

from nbtc.errors import InstructionError
from nbtc.layout.matrix_descriptor import (
    LAYOUT_CODES_SM90,
    LAYOUT_CODES_SM100,
    encode_sm90,
    encode_sm100,
)
from nbtc.ptx import kinds
from nbtc.ptx.operands import check_operand, to_register
from nbtc.ptx.staging import Emitter, Value, staged
from nbtc.ptx.types_numba import BY_SPACE, DESCRIPTOR90, DESCRIPTOR100, TENSOR_MAP, AddressType


def _returns(space: str, kind: kinds.Kind) -> Any:
    def returns(value: Any) -> Any:
        base = types.unliteral(value)
        integer = kinds.U32_KIND if kind.bits == 32 else kinds.U64_KIND
        if not isinstance(base, types.Array | AddressType):
            check_operand(f"address.{space}: value", integer, value)
        elif isinstance(base, types.Array):
            check_operand(f"address.{space}: value", kind, value)
        return BY_SPACE[space]

    return returns


def _convert(e: Emitter, value: Value, kind: kinds.Kind) -> Value:
    integer = kinds.U32_KIND if kind.bits == 32 else kinds.U64_KIND
    use = kind if isinstance(value.type, types.Array) else integer
    llvm = to_register(e.context, e.builder, use, value.type, value.llvm)
    return Value(e, BY_SPACE[kind.name], llvm)


@staged(_returns("shared", kinds.SHARED_KIND))
def shared(e: Emitter, value: Any) -> Any:
    """Return a shared::cta address, from a shared array or a 32-bit number."""
    return _convert(e, value, kinds.SHARED_KIND)


@staged(_returns("cluster", kinds.CLUSTER_KIND))
def cluster(e: Emitter, value: Any) -> Any:
    """Return a shared::cluster address, from a shared address or a 32-bit number."""
    return _convert(e, value, kinds.CLUSTER_KIND)


@staged(_returns("tmem", kinds.TMEM_KIND))
def tmem(e: Emitter, value: Any) -> Any:
    """Return a tensor-memory address, from a 32-bit number (lane << 16 | column)."""
    return _convert(e, value, kinds.TMEM_KIND)


@staged(_returns("descriptor_sm90", kinds.DESC90_KIND))
def descriptor_sm90(e: Emitter, value: Any) -> Any:
    """Return a wgmma matrix descriptor, from its 64 bits."""
    return _convert(e, value, kinds.DESC90_KIND)


@staged(_returns("descriptor_sm100", kinds.DESC100_KIND))
def descriptor_sm100(e: Emitter, value: Any) -> Any:
    """Return a tcgen05 matrix descriptor, from its 64 bits."""
    return _convert(e, value, kinds.DESC100_KIND)


def _returns_tensor_map(value: Any) -> Any:
    check_operand("address.tensor_map: value", kinds.GENERIC_KIND, value)
    return TENSOR_MAP


@staged(_returns_tensor_map)
def tensor_map(e: Emitter, value: Any) -> Any:
    """Return a tensor map that lies in global memory, from its address or an array of 128 bytes.

    Each block calls ``fence.tensormap_acquire`` on it before its first use.
    """
    llvm = to_register(e.context, e.builder, kinds.GENERIC_KIND, value.type, value.llvm)
    return Value(e, TENSOR_MAP, llvm)


def _returns_bits(value: Any) -> Any:
    if not isinstance(value, AddressType):
        raise InstructionError(f"address.bits: value is {value}, needs an address or a descriptor")
    return types.uint32 if value.bits == 32 else types.uint64


@staged(_returns_bits)
def bits(e: Emitter, value: Any) -> Any:
    """Return an address or descriptor as a plain uint32 or uint64."""
    return Value(e, _returns_bits(value.type), value.llvm)


def _check_descriptor(address: Any, swizzle: Any, leading: Any, stride: Any) -> None:
    check_operand("matrix_descriptor: address", kinds.SHARED_KIND, address)
    for name, value in (("leading_bytes", leading), ("stride_bytes", stride)):
        if not isinstance(value, int) or value % 16 or not 0 <= value < 1 << 18:
            raise InstructionError(
                f"matrix_descriptor: {name}={value!r}; must be a multiple of 16 below 262144 "
                "(the field holds bytes / 16 in 14 bits)"
            )


def _descriptor(e: Emitter, address: Value, constant: int, space: str) -> Value:
    """Put the start address into a descriptor whose other fields are constant."""
    start = to_register(e.context, e.builder, kinds.SHARED_KIND, address.type, address.llvm)
    i32, i64 = ir.IntType(32), ir.IntType(64)
    field = e.builder.and_(e.builder.lshr(start, ir.Constant(i32, 4)), ir.Constant(i32, 0x3FFF))
    value = e.builder.or_(e.builder.zext(field, i64), ir.Constant(i64, constant))
    return Value(e, BY_SPACE[space], value)


def _check_swizzle(swizzle: Any, legal: dict[str, int]) -> None:
    if swizzle not in legal:
        raise InstructionError(
            f"matrix_descriptor: swizzle={swizzle!r}; legal: {', '.join(map(repr, legal))}"
        )


def _returns_sm90(address: Any, swizzle: Any, leading_bytes: Any, stride_bytes: Any) -> Any:
    _check_descriptor(address, swizzle, leading_bytes, stride_bytes)
    _check_swizzle(swizzle, LAYOUT_CODES_SM90)
    return DESCRIPTOR90


@staged(_returns_sm90, constants=("swizzle", "leading_bytes", "stride_bytes"))
def matrix_descriptor_sm90(
    e: Emitter, address: Any, swizzle: str, leading_bytes: int, stride_bytes: int
) -> Any:
    """Return the wgmma descriptor of a matrix in shared memory.

    Args:
        e: given by the compiler.
        address: shared::cta address of the first element; the swizzle's repeat (1024, 512 or 256
            bytes) aligns the tile.
        swizzle: ``"none"``, ``"32B"``, ``"64B"`` or ``"128B"``, the one the data was written with.
        leading_bytes: leading-dimension byte offset; 16 for a swizzled K-major matrix (unused).
        stride_bytes: stride-dimension byte offset; 8 rows of a K-major matrix (1024 with 128B).

    Source: PTX ISA, "Matrix descriptor format" of wgmma.
    """
    constant = encode_sm90(0, leading_bytes, stride_bytes, LAYOUT_CODES_SM90[swizzle])
    return _descriptor(e, address, constant, "descriptor_sm90")


def _returns_sm100(address: Any, swizzle: Any, leading_bytes: Any, stride_bytes: Any) -> Any:
    _check_descriptor(address, swizzle, leading_bytes, stride_bytes)
    _check_swizzle(swizzle, LAYOUT_CODES_SM100)
    return DESCRIPTOR100


@staged(_returns_sm100, constants=("swizzle", "leading_bytes", "stride_bytes"))
def matrix_descriptor_sm100(
    e: Emitter, address: Any, swizzle: str, leading_bytes: int, stride_bytes: int
) -> Any:
    """Return the tcgen05 descriptor of a matrix in shared memory.

    As :func:`matrix_descriptor_sm90`, with the version field and the layout codes of sm_100.

    Source: PTX ISA, "Shared memory descriptor" of tcgen05.
    """
    constant = encode_sm100(0, leading_bytes, stride_bytes, LAYOUT_CODES_SM100[swizzle])
    return _descriptor(e, address, constant, "descriptor_sm100")
