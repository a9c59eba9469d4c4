"""Declared instructions as callables in Numba kernels: typing and inline assembly.

Importing this module makes every :class:`~nbtc.ptx.spec.Instruction` usable in kernels, both of
``nbtc.jit`` and of ``numba.cuda.jit``.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.cuda import types
from numba.cuda.cudaimpl import registry as lowering_registry
from numba.cuda.datamodel import models
from numba.cuda.extending import register_model, typeof_impl
from numba.cuda.typing.templates import signature

from nbtc import arch as arch_module
from nbtc.errors import InstructionError
from nbtc.ptx import target
from nbtc.ptx.kinds import Kind, Regs
from nbtc.ptx.operands import binding_problem, check_operand, llvm_type, numba_type, to_register
from nbtc.ptx.spec import Instruction, Modifier, Variant


class InstructionType(types.Callable, types.Opaque):
    """The Numba type of one declared instruction."""

    def __init__(self, instruction: Instruction) -> None:
        self.instruction = instruction
        super().__init__(f"instruction({instruction.name})")

    @property
    def key(self) -> Any:
        """Identity of the type: the declaration itself."""
        return self.instruction

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        """Type one use: check operands, modifiers and target, or raise InstructionError."""
        instruction = self.instruction
        bound = _bind(instruction, args, kws)
        plan = make_plan(instruction, bound)
        return signature(plan.return_type, *bound).replace(pysig=instruction.signature)

    def get_call_signatures(self) -> Any:
        """Return no fixed signatures; every use is typed on its own."""
        return [], True

    def get_impl_key(self, sig: Any) -> Any:
        """Return the key under which the lowering is registered."""
        return self.instruction


register_model(InstructionType)(models.OpaqueModel)


@typeof_impl.register(Instruction)
def typeof_instruction(value: Instruction, c: Any = None) -> InstructionType:
    """Return the type of an instruction in kernels, with its lowering registered."""
    _register_lowering(value)
    return InstructionType(value)


@functools.cache
def _register_lowering(instruction: Instruction) -> None:
    def implementation(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _codegen(instruction, context, builder, sig, args)

    lowering_registry.lower(instruction, types.VarArg(types.Any))(implementation)


def _bind(instruction: Instruction, args: Any, kws: Any) -> tuple[Any, ...]:
    """Return one Numba type per parameter, ``Omitted`` where the default holds."""
    try:
        bound = instruction.written_signature.bind(*args, **kws)
    except TypeError as e:
        written = instruction.written_signature
        problem = binding_problem(written, kws, e)
        raise InstructionError(f"{instruction.name}{written}: {problem}") from None
    return tuple(
        bound.arguments[p.name] if p.name in bound.arguments else types.Omitted(p.default)
        for p in instruction.signature.parameters.values()
    )


@dataclass(frozen=True)
class Plan:
    """Everything typing decided about one use.

    Attributes:
        variant: the compile-time choices.
        inputs: (operand name, position among the arguments, Numba type, kind per register).
        results: kind per register of each result.
        return_type: Numba type of the call.
    """

    variant: Variant
    inputs: tuple[tuple[str, int, Any, tuple[Kind, ...]], ...]
    results: tuple[tuple[Kind, ...], ...]
    return_type: Any


def make_plan(instruction: Instruction, argument_types: tuple[Any, ...]) -> Plan:
    """Check one use of an instruction and decide its variant, registers and return type.

    Raises:
        InstructionError: an operand or a modifier is illegal.
        ArchError: the current target does not have this variant.
    """
    names = list(instruction.signature.parameters)
    by_name = dict(zip(names, argument_types, strict=True))
    values = {m.name: _constant(instruction, m, by_name[m.name]) for m in instruction.modifiers}
    given = frozenset(
        o.name for o in instruction.operands if o.optional and not _is_absent(by_name[o.name])
    )
    counts = {
        o.name: len(by_name[o.name])
        for o in instruction.operands
        if isinstance(o.kind, Regs)
        and o.kind.count is None
        and isinstance(by_name[o.name], types.BaseTuple)
    }
    variant = Variant(values, given, counts)
    instruction.check_modifiers(variant)

    inputs = []
    for o in instruction.operands:
        ty = by_name[o.name]
        if o.optional and o.name not in given:
            continue
        if isinstance(ty, types.Omitted):
            ty = types.literal(ty.value)
        where = f"{instruction.name}: {o.name}"
        kinds = _input_kinds(where, o.kind, variant, ty)
        if o.literal is not None and isinstance(ty, types.IntegerLiteral):
            problem = o.literal.problem(ty.literal_value, variant)
            if problem:
                raise InstructionError(f"{where} {problem}")
        inputs.append((o.name, names.index(o.name), ty, kinds))
    instruction.check(variant)

    current = target.current()
    if current is not None:
        what = f"{instruction.name} ({instruction.opcode})"
        arch_module.check_requirement(what, current, instruction.arch(variant))

    results, return_types = [], []
    tied = {result: name for name, result in instruction.ties.items()}
    for i, kind in enumerate(instruction.results):
        source = next((x for x in inputs if x[0] == tied.get(instruction.result_name(i))), None)
        if isinstance(kind, Regs) and kind.kind is None:
            if source is None:
                continue
            results.append(source[3])
            return_types.append(types.unliteral(source[2]))
            continue
        one, count = kind.resolve(variant) if isinstance(kind, Regs) else (kind, None)
        assert one is not None
        results.append((one,) * (1 if count is None else count))
        ty = numba_type(one)
        return_types.append(ty if count is None else types.UniTuple(ty, count))
    if not return_types:
        return_type: Any = types.none
    elif len(return_types) == 1:
        return_type = return_types[0]
    else:
        return_type = types.Tuple(return_types)
    return Plan(variant, tuple(inputs), tuple(results), return_type)


def _is_absent(ty: Any) -> bool:
    return isinstance(ty, types.NoneType) or (isinstance(ty, types.Omitted) and ty.value is None)


def _constant(instruction: Instruction, modifier: Modifier, ty: Any) -> Any:
    if isinstance(ty, types.Omitted):
        return ty.value
    if isinstance(ty, types.Literal):
        value = ty.literal_value
        if isinstance(modifier.default, bool) and value in (0, 1):
            return bool(value)
        return value
    raise InstructionError(
        f"{instruction.name}: {modifier.name} is {ty}, and must be a compile-time constant "
        f"(legal: {modifier.legal_words}): write it out, or bind it to a bare name outside the "
        "kernel; an expression such as n // 2 or an attribute of an object is not a constant"
    )


def _input_kinds(where: str, kind: Kind | Regs, variant: Variant, ty: Any) -> tuple[Kind, ...]:
    if isinstance(kind, Kind):
        check_operand(where, kind, ty)
        return (kind,)
    one, count = kind.resolve(variant)
    if one is not None and kind.is_scalar(variant):
        check_operand(where, one, ty)
        return (one,)
    if not isinstance(ty, types.BaseTuple):
        wanted = f"{count} registers" if count is not None else f"{kind.low} to {kind.high} values"
        raise InstructionError(f"{where} is {types.unliteral(ty)}, needs a tuple of {wanted}")
    if count is None and not kind.low <= len(ty) <= kind.high:
        raise InstructionError(f"{where} has {len(ty)} values, takes {kind.low} to {kind.high}")
    if count is not None and len(ty) != count:
        note = f" ({kind.note})" if kind.note else ""
        raise InstructionError(f"{where} has {len(ty)} registers, needs {count}{note}")
    if one is None:
        return tuple(_kind_of(where, t) for t in ty)
    for i, t in enumerate(ty):
        if one.name == "f32" and not isinstance(types.unliteral(t), types.Float):
            raise InstructionError(f"{where}[{i}] is {types.unliteral(t)}, needs float32")
        check_operand(f"{where}[{i}]", one, t)
    return (one,) * len(ty)


def _kind_of(where: str, ty: Any) -> Kind:
    from nbtc.ptx import kinds

    base = types.unliteral(ty)
    for kind in (kinds.F32_KIND, kinds.F64_KIND, kinds.U32_KIND, kinds.U64_KIND, kinds.U16_KIND):
        numba = numba_type(kind)
        if base == numba or (
            isinstance(base, types.Integer)
            and isinstance(numba, types.Integer)
            and base.bitwidth == kind.bits
        ):
            return kind
    raise InstructionError(f"{where} holds {base}, needs 16-, 32- or 64-bit registers")


def _codegen(instruction: Instruction, context: Any, builder: Any, sig: Any, args: Any) -> Any:
    plan = make_plan(instruction, tuple(sig.args))
    groups = []
    for name, position, ty, kinds in plan.inputs:
        values = _registers_of(context, builder, ty, args[position], kinds)
        groups.append((name, kinds, values))
    predicates = _predicate_inputs(builder, groups)
    llvm_args = [v for _, _, values in groups for v in values]
    outputs = [k for kinds in plan.results for k in kinds]
    constraints = ["=" + k.constraint for k in outputs]
    numbers: dict[str, str | list[str]] = {}
    first = 0
    result_start = {}
    for i, kinds in enumerate(plan.results):
        name = instruction.result_name(i)
        result_start[name] = first
        texts = [f"${first + j}" for j in range(len(kinds))]
        numbers[name] = texts if _is_tuple(instruction.results[i], plan.variant) else texts[0]
        first += len(kinds)
    for name, kinds, values in groups:
        if not values:
            continue
        texts = [f"${first + j}" for j in range(len(kinds))]
        tied = instruction.ties.get(name)
        if tied is not None:
            start = result_start[tied]
            constraints += [str(start + j) for j in range(len(kinds))]
        else:
            constraints += ["r" if k.name == "pred" else k.constraint for k in kinds]
        operand = next(o for o in instruction.operands if o.name == name)
        numbers[name] = texts if _is_tuple(operand.kind, plan.variant) else texts[0]
        first += len(kinds)
    if "memory" in instruction.effects:
        constraints.append("~{memory}")

    out_types = [llvm_type(k) for k in outputs]
    if not out_types:
        result_type: Any = ir.VoidType()
    elif len(out_types) == 1:
        result_type = out_types[0]
    else:
        result_type = ir.LiteralStructType(out_types)
    text = _with_predicates(instruction, plan.variant, numbers, predicates)
    asm = ir.InlineAsm(
        ir.FunctionType(result_type, [v.type for v in llvm_args]),
        text,
        ",".join(constraints),
        side_effect="pure" not in instruction.effects,
    )
    # Without readnone LLVM keeps every one of several equal reads.
    attrs = tuple(
        word
        for effect, word in (("convergent", "convergent"), ("pure", "readnone"))
        if effect in instruction.effects
    )
    value = builder.call(asm, llvm_args, attrs=attrs)
    return _pack(context, builder, plan, sig.return_type, outputs, value)


def _predicate_inputs(builder: Any, groups: list[Any]) -> dict[str, str | None]:
    """Turn predicate inputs into what inline assembly can take; libNVVM refuses i1 inputs.

    Returns:
        Per predicate operand, ``"0"`` or ``"1"`` for a constant, None for a 32-bit register.
    """
    found: dict[str, str | None] = {}
    for i, (name, kinds, values) in enumerate(groups):
        if len(kinds) != 1 or kinds[0].name != "pred":
            continue
        (value,) = values
        if isinstance(value, ir.Constant):
            found[name] = str(int(value.constant))
            groups[i] = (name, kinds, [])
        else:
            found[name] = None
            groups[i] = (name, kinds, [builder.zext(value, ir.IntType(32))])
    return found


def _with_predicates(
    instruction: Instruction,
    variant: Variant,
    numbers: dict[str, str | list[str]],
    predicates: dict[str, str | None],
) -> str:
    """Return the text of the instruction, with predicate inputs made from their values."""
    if not predicates:
        return instruction.render(variant, numbers)
    names = ", ".join(f"%q_{name}" for name in predicates)
    lines = [f"{{ .reg .pred {names};"]
    for name, constant in predicates.items():
        value = numbers[name] if constant is None else constant
        lines.append(f"setp.ne.b32 %q_{name}, {value}, 0;")
    numbers = {**numbers, **{name: f"%q_{name}" for name in predicates}}
    # One line: libNVVM counts the lines of inline assembly as lines of the Python file.
    return " ".join([*lines, instruction.render(variant, numbers), "}"])


def _is_tuple(kind: Kind | Regs, variant: Variant) -> bool:
    return isinstance(kind, Regs) and not kind.is_scalar(variant)


def _registers_of(context: Any, builder: Any, ty: Any, value: Any, kinds: tuple[Kind, ...]) -> Any:
    if isinstance(ty, types.BaseTuple):
        return [
            to_register(context, builder, kind, t, builder.extract_value(value, i))
            for i, (kind, t) in enumerate(zip(kinds, ty, strict=True))
        ]
    return [to_register(context, builder, kinds[0], ty, value)]


def _pack(
    context: Any, builder: Any, plan: Plan, return_type: Any, outputs: list[Kind], value: Any
) -> Any:
    if not outputs:
        return context.get_dummy_value()
    if len(outputs) == 1:
        parts = [value]
    else:
        parts = [builder.extract_value(value, i) for i in range(len(outputs))]

    def one(ty: Any, values: list[Any]) -> Any:
        if isinstance(ty, types.BaseTuple):
            return context.make_tuple(builder, ty, values)
        return values[0]

    if len(plan.results) == 1:
        return one(return_type, parts)
    members, start = [], 0
    for ty, kinds in zip(return_type, plan.results, strict=True):
        members.append(one(ty, parts[start : start + len(kinds)]))
        start += len(kinds)
    return context.make_tuple(builder, return_type, members)


def emit(
    instruction: Instruction,
    context: Any,
    builder: Any,
    arguments: list[tuple[Any, Any]],
    modifiers: dict[str, Any],
) -> tuple[Any, Any]:
    """Emit one instruction from compiler code: ``(Numba type, LLVM value)`` in and out.

    Args:
        instruction: the declaration.
        context: Numba target context.
        builder: LLVM builder.
        arguments: positional operands; the LLVM value of a literal may be None.
        modifiers: modifiers by name, plain Python values.
    """
    kws = {name: types.literal(value) for name, value in modifiers.items()}
    bound = _bind(instruction, [t for t, _ in arguments], kws)
    values = dict(zip(instruction.signature.parameters, (v for _, v in arguments), strict=False))
    args = [values.get(name) for name in instruction.signature.parameters]
    sig = signature(make_plan(instruction, bound).return_type, *bound)
    return sig.return_type, _codegen(instruction, context, builder, sig, args)
