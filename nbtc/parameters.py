"""The parameter block of a kernel: Numba types to PTX ``.param`` offsets, values to bytes.

Numba flattens its arguments: an array of rank n is five 64-bit words (meminfo, parent, item
count, item size, data) followed by n extents and n strides in bytes; complex numbers are two
floats, tuples their parts. Each part is a ``.param`` of its own, at its natural alignment; a
tensor map is one of 128 bytes, 64-byte aligned.

The block on the host is nbtc's own; the driver gets the address of every part and places it. (On
sm_90 a packed buffer would have to differ: ptxas aligns tensor maps within the constant bank, where
parameters start at 0x210.)
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nbtc.errors import LaunchError

TENSOR_MAP_BYTES = 128
TENSOR_MAP_ALIGNMENT = 64

_INTEGERS = {(8, True): "b", (16, True): "h", (32, True): "i", (64, True): "q",
             (8, False): "B", (16, False): "H", (32, False): "I", (64, False): "Q"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Parameter:
    """One ``.param`` of the kernel.

    Attributes:
        argument: index of the Python argument it belongs to.
        code: its ``struct`` format.
        offset: bytes from the start of the block.
        size: bytes.
        type: the Numba type of a scalar, for messages; None inside an array.
    """

    argument: int
    code: str
    offset: int
    size: int
    type: Any = None


class ParameterLayout:
    """Where each value of a kernel's arguments goes, for one tuple of Numba types.

    Attributes:
        types: the Numba types of the arguments.
        parameters: every ``.param`` in order.
        size: bytes of the whole block.
        write: ``write(buffer, 0, *fields)``, the unguarded form of `pack_into`.
    """

    def __init__(self, types: Sequence[Any]) -> None:
        """Lay out the parameters of a kernel compiled for these argument types."""
        self.types = tuple(types)
        self.parameters: list[Parameter] = []
        self.size = 0
        self._format = "<"
        for index, type_ in enumerate(self.types):
            self._add(index, type_)
        self._struct = struct.Struct(self._format)
        self.write = self._struct.pack_into

    def pack_into(self, buffer: Any, fields: Sequence[Any]) -> None:
        """Write the flat values of all arguments (see `nbtc.arguments.probe`) into a buffer.

        Raises:
            LaunchError: a value does not fit its parameter; the message says which and the range.
        """
        try:
            self._struct.pack_into(buffer, 0, *fields)
        except (struct.error, OverflowError, TypeError) as error:
            raise self.explain(fields, error) from None

    def _place(self, argument: int, code: str, align: int, size: int, type_: Any = None) -> None:
        offset = -(-self.size // align) * align
        self._format += "x" * (offset - self.size) + code
        self.parameters.append(Parameter(argument, code, offset, size, type_))
        self.size = offset + size

    def _scalar(self, argument: int, code: str, type_: Any = None) -> None:
        size = struct.calcsize("<" + code)
        self._place(argument, code, size, size, type_)

    def _add(self, argument: int, type_: Any) -> None:
        from numba.cuda import types

        type_ = types.unliteral(type_)
        if isinstance(type_, types.Array):
            for code in "QQqqQ" + "qq" * type_.ndim:
                self._scalar(argument, code)
        elif isinstance(type_, types.BaseTuple):
            for part in type_:
                self._add(argument, part)
        elif isinstance(type_, types.EnumMember):
            self._add(argument, type_.dtype)
        elif isinstance(type_, types.Boolean):
            self._scalar(argument, "?", type_)
        elif isinstance(type_, types.Complex):
            code = "f" if type_.bitwidth == 64 else "d"
            self._scalar(argument, code, type_)
            self._scalar(argument, code, type_)
        elif isinstance(type_, types.Float):
            self._scalar(argument, {16: "e", 32: "f", 64: "d"}[type_.bitwidth], type_)
        elif isinstance(type_, types.Integer):
            self._scalar(argument, _INTEGERS[type_.bitwidth, type_.signed], type_)
        elif isinstance(type_, types.NPDatetime | types.NPTimedelta):
            self._scalar(argument, "q", type_)
        elif type_ == types.none or isinstance(type_, types.RawPointer | types.CPointer):
            self._scalar(argument, "Q", type_)
        else:
            self._add_own(argument, type_)

    def _add_own(self, argument: int, type_: Any) -> None:
        """Place nbtc's own types: tensor maps, narrow floats, addresses."""
        from nbtc.ptx.narrow_floats import NarrowFloat
        from nbtc.ptx.types_numba import TENSOR_MAP

        if type_ == TENSOR_MAP:
            self._place(
                argument, f"{TENSOR_MAP_BYTES}s", TENSOR_MAP_ALIGNMENT, TENSOR_MAP_BYTES, type_
            )
        elif isinstance(type_, NarrowFloat):
            self._scalar(argument, "f", type_)  # a value of it is a 32-bit float
        elif getattr(type_, "bits", None) in (32, 64):
            self._scalar(argument, "I" if type_.bits == 32 else "Q", type_)
        else:
            raise LaunchError(f"argument {argument}: a kernel cannot take a {type_} from the host")

    def explain(self, fields: Sequence[Any], error: Exception) -> LaunchError:
        """Return the error that says which value did not fit."""
        if len(fields) != len(self.parameters):
            return LaunchError(
                f"the arguments have {len(fields)} values, the kernel takes "
                f"{len(self.parameters)}: they are not of the types it was compiled for, "
                f"{self.types}"
            )
        for value, parameter in zip(fields, self.parameters, strict=True):
            try:
                struct.pack("<" + parameter.code, value)
            except (struct.error, OverflowError, TypeError):
                return LaunchError(
                    f"argument {parameter.argument}: {value!r} does not fit "
                    f"{parameter.type or 'a 64-bit word'}{_range(parameter.code)}"
                )
        return LaunchError(f"packing the arguments failed: {error}")


def _range(code: str) -> str:
    size = struct.calcsize("<" + code) * 8
    if code in "bhiq":
        return f" ({-(1 << (size - 1))}..{(1 << (size - 1)) - 1})"
    if code in "BHIQ":
        return f" (0..{(1 << size) - 1})"
    return ""
