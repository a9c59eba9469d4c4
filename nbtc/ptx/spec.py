"""What a declared PTX instruction is: one typed ``def`` carrying its PTX text.

A declaration knows neither Numba nor llvmlite. From it come the symbol in the editor, the typing
rule and inline assembly (``nbtc.ptx.lower``), the error texts, the reference row and the ptxas
conformance cases.

Template syntax (PTX text of one instruction):

=====================  ===========================================================================
``{name}``             operand registers, or a modifier's value
``{.name}``            the modifier with its dot; nothing when its value is ``""`` or False. True
                       stands for the modifier's own name
``{, name}``           the operand or modifier after a comma; nothing when an optional operand is
                       not given or the modifier is ``""``, 0 or False
``{?name:text}``       ``text`` when optional operand ``name`` is given or modifier ``name`` is on
``{#name}``            number of registers in the tuple operand ``name``
``{ret}`` ``{ret0}``   the result, or result number 0 when there are several
``{{`` ``}}``          braces of PTX
=====================  ===========================================================================
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import itertools
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, ParamSpec, TypeVar, get_args, get_origin

from nbtc.arch import Requirement
from nbtc.errors import InstructionError
from nbtc.ptx.kinds import Checked, Imm, Kind, Regs
from nbtc.routine import Routine

P = ParamSpec("P")
R = TypeVar("R")

Isa = tuple[int, int]


class Variant(Mapping[str, Any]):
    """The compile-time choices of one use: modifier values, immediates, and operands given.

    Values are attributes (``v.sem``) and items; ``v.has("hint")`` says whether an optional operand
    is present; ``v.count("coordinates")`` is the length of a tuple operand that takes as many
    registers as given.
    """

    __slots__ = ("_counts", "_given", "_values")

    def __init__(
        self,
        values: Mapping[str, Any],
        given: frozenset[str] = frozenset(),
        counts: Mapping[str, int] | None = None,
    ) -> None:
        self._values = dict(values)
        self._given = given
        self._counts = dict(counts or {})

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(name) from None

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def has(self, operand: str) -> bool:
        """Return whether the optional operand was given."""
        return operand in self._given

    def count(self, operand: str) -> int:
        """Return the number of registers given for a tuple operand of open length."""
        return self._counts[operand]

    @property
    def given(self) -> frozenset[str]:
        """Names of the optional operands given."""
        return self._given

    def __repr__(self) -> str:
        parts = [f"{k}={v!r}" for k, v in self._values.items() if v not in ("", False)]
        parts += [f"{n} x {k}" for k, n in self._counts.items()]
        return ", ".join(parts + sorted(self._given)) or "plain"


@dataclass(frozen=True)
class Operand:
    """A register operand.

    Attributes:
        name: name of the parameter.
        kind: what register or registers it takes.
        optional: whether it may be left out.
        literal: legal values, checked where the value is known at compile time.
    """

    name: str
    kind: Kind | Regs
    optional: bool = False
    literal: Imm | Checked | None = None


@dataclass(frozen=True)
class Modifier:
    """A compile-time choice: one of ``choices``, or any value of ``imm``."""

    name: str
    choices: tuple[Any, ...] | None
    imm: Imm | None
    default: Any

    @property
    def legal_words(self) -> str:
        """The legal values in words."""
        if self.imm is not None:
            return self.imm.words
        return ", ".join(repr(c) for c in self.choices or ())

    def accepts(self, value: Any) -> bool:
        """Return whether ``value`` is legal (True and 1 count as equal, as in Python)."""
        if self.imm is not None:
            return isinstance(value, int) and value in self.imm
        return value in (self.choices or ())


_REQUIRED = inspect.Parameter.empty
MISSING = object()
"""Default, in :attr:`Instruction.signature`, of a keyword that must be given."""


@dataclass(eq=False)
class Instruction(Routine):
    """A declared PTX instruction. Calling one outside a kernel is an error."""

    func: Callable[..., Any]
    template: str | Callable[[Variant], str]
    isa_rule: Isa | Callable[[Variant], Isa]
    arch_rule: Requirement | Callable[[Variant], Requirement]
    effects: frozenset[str]
    check_rule: Callable[[Variant], str | None] | None
    ties: Mapping[str, str]
    section: str
    operands: tuple[Operand, ...] = ()
    modifiers: tuple[Modifier, ...] = ()
    results: tuple[Kind | Regs, ...] = ()
    signature: inspect.Signature = field(default_factory=inspect.Signature)
    written_signature: inspect.Signature = field(default_factory=inspect.Signature)

    def __post_init__(self) -> None:
        self.__name__ = self.func.__name__
        self.__qualname__ = self.func.__qualname__
        self.__module__ = self.func.__module__
        self.__doc__ = self.func.__doc__
        self.__wrapped__ = self.func
        hints = typing.get_type_hints(self.func, include_extras=True)
        sig = inspect.signature(self.func)
        self.operands, self.modifiers = _parameters(self.name, sig, hints)
        self.results = _results(hints.get("return", type(None)))
        # Numba's argument folding cannot take keyword-only parameters, and binds positions in this
        # order; a required one behind an optional one gets a placeholder (see nbtc.ptx.lower).
        self.written_signature = sig.replace(
            parameters=[p.replace(annotation=_REQUIRED) for p in sig.parameters.values()],
            return_annotation=_REQUIRED,
        )
        params: list[inspect.Parameter] = []
        optional_seen = False
        for p in self.written_signature.parameters.values():
            optional_seen = optional_seen or p.default is not _REQUIRED
            default = MISSING if optional_seen and p.default is _REQUIRED else p.default
            params.append(p.replace(kind=p.POSITIONAL_OR_KEYWORD, default=default))
        self.signature = inspect.Signature(params)

    @property
    def name(self) -> str:
        """Name as a kernel writes it, ``"mbarrier.init"``.

        A module that another one re-exports names that one in its global ``FAMILY``.
        """
        module = self.func.__module__.rsplit(".", 1)[-1]
        return f"{self.func.__globals__.get('FAMILY', module)}.{self.func.__name__}"

    @property
    def opcode(self) -> str:
        """First word of the PTX text without modifiers, for listings."""
        text = self.template if isinstance(self.template, str) else self.template(self.default())
        text = re.sub(r"\{\{.*?\.reg.*?;", "", text, count=1).strip()
        return re.split(r"[\s{]", text, maxsplit=1)[0].rstrip(";.")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: instructions exist in kernels only."""
        raise InstructionError(
            f"{self.name} is a PTX instruction: call it inside a kernel (nbtc.jit or "
            "numba.cuda.jit), not from Python"
        )

    def __repr__(self) -> str:
        return f"<instruction {self.name}>"

    def __hash__(self) -> int:
        return id(self)

    def __reduce__(self) -> Any:
        return _lookup, (self.__module__, self.name)

    def __deepcopy__(self, memo: Any) -> Instruction:
        return self

    @property
    def _numba_type_(self) -> Any:
        """Type in kernels.

        Numba asks every object that it does not know for this attribute, so that a plain
        ``numba.cuda.jit`` kernel finds the lowering with nothing else imported.
        """
        from nbtc.ptx import lower

        return lower.typeof_instruction(self)

    def fingerprint(self) -> str:
        """Return a hash of everything in the declaration that shapes code."""
        parts = [self.name, sorted(self.effects), sorted(self.ties.items())]
        rules = (self.template, self.isa_rule, self.arch_rule, self.check_rule)
        for rule in rules:
            parts.append(_code_text(rule))
        for kind in (*(o.kind for o in self.operands), *self.results):
            if isinstance(kind, Regs):
                parts += [_code_text(kind.kind), _code_text(kind.count), kind.low, kind.high]
            else:
                parts.append(repr(kind))
        parts += [(o.name, o.optional) for o in self.operands]
        parts.append(repr([(m.name, m.choices, m.imm) for m in self.modifiers]))
        parts.append(str(self.written_signature))
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    # -- variants -------------------------------------------------------------------------------

    def default(self) -> Variant:
        """Return the variant with every default, and the first choice where there is none."""
        values = {
            m.name: m.default if m.default is not _REQUIRED else _choices(m)[0]
            for m in self.modifiers
        }
        return Variant(values)

    def isa(self, variant: Variant) -> Isa:
        """Return the lowest PTX ISA version that has this variant."""
        return self.isa_rule(variant) if callable(self.isa_rule) else self.isa_rule

    def arch(self, variant: Variant) -> Requirement:
        """Return the targets that have this variant."""
        return self.arch_rule(variant) if callable(self.arch_rule) else self.arch_rule

    def check_modifiers(self, variant: Variant) -> None:
        """Raise InstructionError if one modifier is illegal by itself."""
        for m in self.modifiers:
            value = variant[m.name]
            if not m.accepts(value):
                raise InstructionError(f"{self.name}: {m.name}={value!r}; legal: {m.legal_words}")

    def check(self, variant: Variant) -> None:
        """Raise InstructionError if a modifier is illegal, naming the rule and right values."""
        self.check_modifiers(variant)
        message = self.check_rule(variant) if self.check_rule else None
        if message:
            raise InstructionError(f"{self.name}: {message}")

    def is_legal(self, variant: Variant) -> bool:
        """Return whether the variant passes :meth:`check`."""
        try:
            self.check(variant)
        except InstructionError:
            return False
        return True

    def variants(self, exhaustive: bool = False) -> Iterator[Variant]:
        """Yield every legal variant; immediates at their ends only unless ``exhaustive``."""
        axes = [[(m.name, v) for v in _choices(m, exhaustive)] for m in self.modifiers]
        optional = [o.name for o in self.operands if o.optional]
        lengths = [
            [(o.name, n) for n in _lengths(o.kind)]
            for o in self.operands
            if isinstance(o.kind, Regs) and o.kind.count is None
        ]
        counts = range(len(optional) + 1)
        subsets = [frozenset(c) for k in counts for c in itertools.combinations(optional, k)]
        for values in itertools.product(*axes):
            for given, counts in itertools.product(subsets, itertools.product(*lengths)):
                variant = Variant(dict(values), given, dict(counts))
                if self.is_legal(variant):
                    yield variant

    # -- text -----------------------------------------------------------------------------------

    def render(self, variant: Variant, registers: Mapping[str, str | list[str]]) -> str:
        """Return the PTX text of a variant.

        Args:
            variant: the compile-time choices.
            registers: text of each operand given and each result (``ret``, or ``ret0``...), a
                list for register tuples.
        """
        template = self.template if isinstance(self.template, str) else self.template(variant)

        def value(name: str) -> str:
            if name in registers:
                text = registers[name]
                return text if isinstance(text, str) else "{" + ", ".join(text) + "}"
            got = variant[name]
            return str(int(got)) if isinstance(got, bool) else str(got)

        def substitute(match: re.Match[str]) -> str:
            token = match[0]
            if token == "{{":
                return "{"
            if token == "}}":
                return "}"
            body = token[1:-1]
            if body[0] == "?":
                name, text = body[1:].split(":", 1)
                return text if name in registers or variant.get(name) else ""
            if body[0] == "#":
                return str(len(registers[body[1:]]))
            if body[0] == ".":
                got = variant[body[1:]]
                if got is False or got == "":
                    return ""
                return f".{body[1:]}" if got is True else f".{got}"
            if body[0] == ",":
                name = body[1:].strip()
                given = name in registers or variant.get(name)
                return f", {value(name)}" if given else ""
            return value(body)

        return re.sub(r"\{\{|\}\}|\{[^{}]*\}", substitute, template)

    def result_name(self, index: int) -> str:
        """Return the template name of result ``index``."""
        return "ret" if len(self.results) == 1 else f"ret{index}"


def _code_text(rule: Any) -> str:
    if callable(rule):
        code = rule.__code__
        cells = [_code_text(c.cell_contents) for c in rule.__closure__ or ()]
        consts = [c for c in code.co_consts if not hasattr(c, "co_code")]
        return repr((code.co_code, consts, code.co_names, rule.__defaults__, cells))
    return repr(rule)


def _lengths(regs: Regs) -> tuple[int, ...]:
    if regs.high - regs.low < 8:
        return tuple(range(regs.low, regs.high + 1))
    return regs.low, regs.high


def _choices(modifier: Modifier, exhaustive: bool = False) -> tuple[Any, ...]:
    if modifier.imm is None:
        return modifier.choices or ()
    return modifier.imm.all() if exhaustive else modifier.imm.samples()


def _parameters(
    name: str, sig: inspect.Signature, hints: Mapping[str, Any]
) -> tuple[tuple[Operand, ...], tuple[Modifier, ...]]:
    operands: list[Operand] = []
    modifiers: list[Modifier] = []
    for p in sig.parameters.values():
        hint = hints[p.name]
        optional = False
        if type(None) in get_args(hint):
            (hint,) = (a for a in get_args(hint) if a is not type(None))
            optional = True
        if get_origin(hint) is Literal:
            modifiers.append(Modifier(p.name, get_args(hint), None, p.default))
            continue
        extra = _metadata(hint)
        if isinstance(extra, Imm):
            modifiers.append(Modifier(p.name, None, extra, p.default))
        elif isinstance(extra, Kind | Regs):
            operands.append(Operand(p.name, extra, optional, _literal_range(hint)))
        else:
            raise TypeError(f"{name}: parameter {p.name} has no operand kind")
    return tuple(operands), tuple(modifiers)


def _results(hint: Any) -> tuple[Kind | Regs, ...]:
    if hint is type(None):
        return ()
    extra = _metadata(hint)
    if extra is not None:
        return (extra,)
    return tuple(_metadata(a) for a in get_args(hint))


def _metadata(hint: Any) -> Any:
    for extra in getattr(hint, "__metadata__", ()):
        if isinstance(extra, Kind | Regs | Imm):
            return extra
    return None


def _literal_range(hint: Any) -> Imm | Checked | None:
    extras = getattr(hint, "__metadata__", ())
    return next((extra for extra in extras if isinstance(extra, Imm | Checked)), None)


REGISTRY: dict[str, Instruction] = {}
"""Every declared instruction by name."""


def _lookup(module: str, name: str) -> Instruction:
    importlib.import_module(module)
    return REGISTRY[name]


def ptx(
    template: str | Callable[[Variant], str],
    *,
    isa: Isa | Callable[[Variant], Isa],
    arch: Requirement | Callable[[Variant], Requirement],
    effects: str = "memory",
    check: Callable[[Variant], str | None] | None = None,
    ties: Mapping[str, str] | None = None,
    section: str = "",
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Declare a PTX instruction by a typed function with a docstring and no body.

    Args:
        template: PTX text in the syntax of this module's docstring.
        isa: lowest PTX ISA version, or a function of the variant.
        arch: targets that have it (see :func:`nbtc.arch.satisfies`), or a function of the variant.
        effects: words out of ``memory`` (reads or writes memory, orders memory, or must not move
            across memory accesses), ``volatile`` (must not be removed or duplicated, touches no
            memory), ``convergent`` (all active threads together) and ``pure``.
        check: returns what is wrong with a combination of modifiers, or None.
        ties: input operand -> result that shares its registers.
        section: section of the PTX ISA.
    """
    words = frozenset(effects.split())
    unknown = words - {"memory", "volatile", "convergent", "pure"}
    if unknown:
        raise ValueError(f"unknown effects {sorted(unknown)}")

    def declare(func: Callable[P, R]) -> Callable[P, R]:
        made = Instruction(func, template, isa, arch, words, check, dict(ties or {}), section)
        if made.name in REGISTRY:
            raise ValueError(f"{made.name} is declared twice")
        REGISTRY[made.name] = made
        return typing.cast("Callable[P, R]", made)

    return declare
