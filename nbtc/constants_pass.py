"""A compiler pass: constant arguments of helpers and comparisons of constant strings are constants.

Numba knows a literal argument only as a type, so it compiles both arms of ``if mode == "x"`` in a
helper, and a string comparison, which takes seconds. Here the argument becomes the constant itself
before anything is typed, and the untaken arm is gone.
"""

from __future__ import annotations

from typing import Any

from numba.cuda import compiler, types
from numba.cuda.core import ir
from numba.cuda.core.compiler_machinery import FunctionPass, register_pass
from numba.cuda.core.ir_utils import build_definitions
from numba.cuda.core.untyped_passes import IRProcessing

_UNKNOWN: Any = object()


def _argument(ty: Any) -> Any:
    """Return the value of a constant argument type, or the unknown marker."""
    if isinstance(ty, types.Literal) and isinstance(ty.literal_value, bool | int | str):
        return ty.literal_value
    if isinstance(ty, types.Omitted) and isinstance(ty.value, bool | int | str | type(None)):
        return ty.value
    return _UNKNOWN


@register_pass(mutates_CFG=False, analysis_only=False)
class ConstantArguments(FunctionPass):
    """Replace constant arguments by their values and fold comparisons of strings."""

    _name = "nbtc_constant_arguments"

    def __init__(self) -> None:
        """Make the pass."""
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        """Rewrite the function's IR in place."""
        function = state.func_ir
        changed = False
        for _, block in sorted(function.blocks.items()):
            previous = None
            for assign in list(block.body):
                if isinstance(assign, ir.assign_types):
                    known = self._known(state, assign.value, previous)
                    if known is not _UNKNOWN:
                        if previous is not None and previous.target.name == assign.target.name:
                            block.remove(previous)
                        assign.value = ir.Const(known, assign.loc)
                        function._definitions = build_definitions(function.blocks)
                        changed = True
                    previous = assign
                else:
                    previous = None
        return changed

    def _known(self, state: Any, value: Any, previous: Any) -> Any:
        if isinstance(value, ir.arg_types):
            return _argument(state.args[value.index])
        if not isinstance(value, ir.expr_types):
            return _UNKNOWN
        if value.op == "binop":
            operands = [self._value(state.func_ir, v) for v in (value.lhs, value.rhs)]
            if all(map(_is_text, operands)):
                return self._apply(value.fn, *operands)
        elif value.op == "unary":
            # "a not in b" assigns the same variable twice in a row.
            if previous is not None and previous.target.name == value.value.name:
                known = previous.value
                operand = known.value if isinstance(known, ir.const_types) else _UNKNOWN
            else:
                operand = self._value(state.func_ir, value.value)
            if isinstance(operand, bool):
                return self._apply(value.fn, operand)
        return _UNKNOWN

    def _apply(self, operator_: Any, *operands: Any) -> Any:
        try:
            result = operator_(*operands)
        except Exception:  # the same error comes, with its place, when the code is typed
            return _UNKNOWN
        return result if isinstance(result, bool) else _UNKNOWN

    def _value(self, function: Any, variable: Any) -> Any:
        """Return the constant in a variable that is assigned once, or the unknown marker."""
        definitions = function._definitions.get(variable.name, [])
        if len(definitions) != 1:
            return _UNKNOWN
        (value,) = definitions
        if isinstance(value, ir.const_types + ir.global_types + ir.freevar_types):
            return value.value
        if isinstance(value, ir.var_types):
            return self._value(function, value)
        if isinstance(value, ir.expr_types) and value.op == "build_tuple":
            items = tuple(self._value(function, item) for item in value.items)
            return _UNKNOWN if _UNKNOWN in items else items
        return _UNKNOWN


def _is_text(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_text, value))
    return isinstance(value, str)


class Pipeline(compiler.CUDACompiler):
    """numba-cuda's pipeline with :class:`ConstantArguments` in front of the branch pruning."""

    def define_pipelines(self) -> Any:
        """Return the passes."""
        pipelines = super().define_pipelines()
        for passes in pipelines:
            passes.add_pass_after(ConstantArguments, IRProcessing)
            passes.finalize()
        return pipelines
