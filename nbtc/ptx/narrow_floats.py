"""What ``x[i]`` yields and takes on arrays of bfloat16, float16 and 8-bit floats.

Reading an element gives ``float32``, converted exactly. Storing takes any real number, converts it
to ``float32`` first if it is something else, then rounds to nearest even; the 8-bit types clamp to
their largest finite value (``cvt.rn.satfinite``), NaN stays NaN. The conversions are single PTX
instructions or integer shifts in the kernel itself: numba-cuda's own 16-bit and 8-bit floats call
external functions instead, and one such call makes ptxas serialise every wgmma of a kernel (note
C7509).

The same rule holds for arrays in global, shared and local memory, however their dtype is written
(``cuda.shared.array(n, np.float16)``, ``"bfloat16"``, ``ml_dtypes.float8_e5m2``), for plain loads
and stores only. Tensor cores, TMA and ``ldmatrix`` see the bytes.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba.cuda import cudadecl, cudaimpl, types
from numba.cuda.cudaimpl import registry as lowering_registry
from numba.cuda.datamodel.models import PrimitiveModel
from numba.cuda.descriptor import cuda_target
from numba.cuda.models import register_model
from numba.cuda.np import numpy_support
from numba.cuda.typeconv import Conversion
from numba.cuda.typing.arraydecl import get_array_index_type
from numba.cuda.typing.templates import AbstractTemplate, signature

from nbtc import dtypes
from nbtc.ptx import target

_I8, _I16, _I32 = ir.IntType(8), ir.IntType(16), ir.IntType(32)
_F32 = ir.FloatType()


class NarrowFloat(types.Number):
    """Element type of an array whose elements are handled as ``float32``.

    A value of this type is a 32-bit float already; only its bytes in memory are narrow. So it never
    shows up in a kernel's arithmetic: reading an element is typed as ``float32``.

    Attributes:
        dtype_name: canonical name in :mod:`nbtc.dtypes`.
        bitwidth: bits of one element in memory.
    """

    def __init__(self, dtype_name: str, bitwidth: int) -> None:
        self.dtype_name = dtype_name
        self.bitwidth = bitwidth
        super().__init__(name=f"narrow.{dtype_name}")

    def __str__(self) -> str:
        return self.dtype_name

    def can_convert_from(self, typingctx: Any, other: Any) -> Any:
        """Take any real number; the store rounds it."""
        if isinstance(other, types.Integer | types.Float | types.Boolean):
            return Conversion.unsafe
        return None

    def can_convert_to(self, typingctx: Any, other: Any) -> Any:
        """Become a 32-bit or wider float without loss."""
        if isinstance(other, types.Float) and other.bitwidth >= 32:
            return Conversion.promote if other.bitwidth == 32 else Conversion.safe
        return None

    def unify(self, typingctx: Any, other: Any) -> Any:
        """Meet other numbers as ``float32``."""
        return typingctx.unify_pairs(types.float32, other)


bfloat16 = NarrowFloat("bfloat16", 16)
float16 = NarrowFloat("float16", 16)
float8_e4m3fn = NarrowFloat("float8_e4m3fn", 8)
float8_e5m2 = NarrowFloat("float8_e5m2", 8)

NARROW: dict[str, NarrowFloat] = {
    t.dtype_name: t for t in (bfloat16, float16, float8_e4m3fn, float8_e5m2)
}
"""The narrow element types by the canonical name of their dtype."""


def element_type(dtype: Any) -> Any:
    """Return the Numba element type of an array of ``dtype``.

    Args:
        dtype: anything :func:`nbtc.dtypes.canonical` takes. Sub-byte floats and scales, which have
            no scalar meaning in a kernel, are ``uint8``: one packed byte an element.

    Raises:
        DtypeError: the dtype is not known.
    """
    known = dtypes.canonical(dtype)
    if known.name in NARROW:
        return NARROW[known.name]
    if known.name == "tfloat32":
        return types.float32
    if known.name == "bool":
        return types.boolean
    if known.kind in {"float", "scale"} and known.bits <= 8:
        return types.uint8
    return getattr(types, known.name)


def _asm(builder: Any, result: Any, text: str, constraint: str, *args: Any) -> Any:
    function_type = ir.FunctionType(result, [a.type for a in args])
    return builder.call(ir.InlineAsm(function_type, text, constraint), args)


def widen(builder: Any, kind: NarrowFloat, raw: Any) -> Any:
    """Emit the exact conversion of the bits ``raw`` to a 32-bit float."""
    if kind is bfloat16:
        shifted = builder.shl(builder.zext(raw, _I32), ir.Constant(_I32, 16))
        return builder.bitcast(shifted, _F32)
    if kind is float16:
        return _asm(builder, _F32, "cvt.f32.f16 $0, $1;", "=f,h", raw)
    word = "e4m3x2" if kind is float8_e4m3fn else "e5m2x2"
    pair = _asm(builder, _I32, f"cvt.rn.f16x2.{word} $0, $1;", "=r,h", builder.zext(raw, _I16))
    return _asm(builder, _F32, "cvt.f32.f16 $0, $1;", "=f,h", builder.trunc(pair, _I16))


def narrow(builder: Any, kind: NarrowFloat, value: Any) -> Any:
    """Emit the rounding of a 32-bit float to the bits of ``kind``."""
    if kind is bfloat16:
        return _asm(builder, _I16, "cvt.rn.bf16.f32 $0, $1;", "=h,f", value)
    if kind is float16:
        return _asm(builder, _I16, "cvt.rn.f16.f32 $0, $1;", "=h,f", value)
    word = "e4m3x2" if kind is float8_e4m3fn else "e5m2x2"
    # The first source lands in the upper byte, the second in the lower.
    pair = _asm(
        builder,
        _I16,
        f"cvt.rn.satfinite.{word}.f32 $0, $1, $2;",
        "=h,f,f",
        ir.Constant(_F32, 0.0),
        value,
    )
    return builder.trunc(pair, _I8)


@register_model(NarrowFloat)
class NarrowFloatModel(PrimitiveModel):
    """Holds a 32-bit float as value, the narrow bits in memory."""

    def __init__(self, dmm: Any, fe_type: NarrowFloat) -> None:
        super().__init__(dmm, fe_type, _F32)

    def get_data_type(self) -> Any:
        """Return the integer type of the element's bits."""
        return ir.IntType(self._fe_type.bitwidth)

    def as_data(self, builder: Any, value: Any) -> Any:
        """Round for a store."""
        return narrow(builder, self._fe_type, value)

    def from_data(self, builder: Any, value: Any) -> Any:
        """Widen after a load."""
        return widen(builder, self._fe_type, value)


class NarrowGetItem(AbstractTemplate):
    """Type one element of a narrow array as ``float32``."""

    key = operator.getitem

    def generic(self, args: Any, kws: Any) -> Any:
        """Answer for narrow arrays only, and only where one element is selected."""
        array, index = args
        if not (isinstance(array, types.Array) and isinstance(array.dtype, NarrowFloat)):
            return None
        found = get_array_index_type(array, index)
        if found is None or isinstance(found.result, types.Array):
            return None
        return signature(types.float32, array, found.index)


def _cast_to_narrow(context: Any, builder: Any, fromty: Any, toty: Any, value: Any) -> Any:
    if isinstance(fromty, NarrowFloat):
        return value
    return context.cast(builder, value, fromty, types.float32)


def _cast_from_narrow(context: Any, builder: Any, fromty: Any, toty: Any, value: Any) -> Any:
    return context.cast(builder, value, types.float32, toty)


def _own_element(parse: Any) -> Any:
    """Wrap numba-cuda's reading of an array's dtype, for kernels that nbtc compiles."""

    def parse_dtype(dtype: Any) -> Any:
        if target.current() is not None and isinstance(dtype, types.StringLiteral):
            return element_type(dtype.literal_value)
        found = parse(dtype)
        if target.current() is None:
            return found
        return {types.float16: float16, types.bfloat16: bfloat16}.get(found, found)

    return parse_dtype


def _register() -> None:
    for kind in (types.Integer, types.Float, types.Boolean, NarrowFloat):
        lowering_registry.lower_cast(kind, NarrowFloat)(_cast_to_narrow)
    lowering_registry.lower_cast(NarrowFloat, types.Float)(_cast_from_narrow)
    # Numba asks the templates of a function in order, and its own answers for every array.
    context = cuda_target.typing_context
    context.refresh()
    known = context._lookup_global(operator.getitem)
    context._remove_global(operator.getitem)
    context._insert_global(operator.getitem, types.Function(NarrowGetItem).augment(known))
    # cuda.shared.array and cuda.local.array ask this set which element types may be allocated.
    types.number_domain |= frozenset(NARROW.values())
    for module in (cudadecl, cudaimpl):
        vars(module)["parse_dtype"] = _own_element(module.parse_dtype)
    for kind in (float8_e4m3fn, float8_e5m2):
        numpy_support.FROM_DTYPE.setdefault(dtypes.canonical(kind.dtype_name).numpy, kind)


_register()
