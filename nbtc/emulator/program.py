"""Program representation of parsed PTX: operands, instructions, blocks, functions, variables.

Produced by `parser.py`, executed by `codegen.py`, read by the handlers of `machine.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import EmulatorError

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Location:
    """One frame of a source position.

    Attributes:
        file: path of the source file, or ``"<ptx>"`` where there is no ``.loc``.
        line: 1-based line; for ``"<ptx>"`` the line of the PTX text.
        function: name of the function at this place, or ``""``.
    """

    file: str
    line: int
    function: str = ""


class Operand:
    """Base class of operands; ``text`` is the spelling in the PTX."""

    __slots__ = ("text",)
    text: str

    def registers(self) -> Iterator[Reg]:
        """Yield every register inside this operand (addresses and lists included)."""
        return iter(())


class Reg(Operand):
    """A register: ``bits`` (1 for predicates, 8, 16, 32, 64, 128) and row ``index``.

    Registers of one width share a matrix ``frame.bank[bits]`` of shape (count, 32); the declared
    type of a register has no meaning, the opcode decides.
    """

    __slots__ = ("bits", "index")

    def __init__(self, text: str, bits: int, index: int) -> None:
        """Store name, width and row."""
        self.text, self.bits, self.index = text, bits, index

    def registers(self) -> Iterator[Reg]:
        """Yield itself."""
        yield self

    def __repr__(self) -> str:
        return f"Reg({self.text})"


class Not(Operand):
    """A negated predicate operand ``!p``."""

    __slots__ = ("reg",)

    def __init__(self, reg: Operand) -> None:
        """Wrap the predicate."""
        self.text, self.reg = "!" + reg.text, reg

    def registers(self) -> Iterator[Reg]:
        """Yield the predicate."""
        return self.reg.registers()


class Imm(Operand):
    """An integer literal, or a float literal given as its bit pattern (``float_bits`` 32 or 64)."""

    __slots__ = ("float_bits", "value")

    def __init__(self, text: str, value: int, float_bits: int = 0) -> None:
        """Store the Python integer value."""
        self.text, self.value, self.float_bits = text, value, float_bits

    def __repr__(self) -> str:
        return f"Imm({self.text})"


class Special(Operand):
    """A special register such as ``%tid.x``; ``name`` has no ``%``."""

    __slots__ = ("name",)

    def __init__(self, text: str) -> None:
        """Store the name."""
        self.text, self.name = text, text[1:]


class Symbol(Operand):
    """The address of a variable, parameter, function or branch-target list."""

    __slots__ = ("name", "offset", "target")

    def __init__(self, name: str, target: Any = None, offset: int = 0) -> None:
        """Store the name, what it resolves to (Variable, Function, ...) and a byte offset."""
        self.text = name if not offset else f"{name}+{offset}"
        self.name, self.target, self.offset = name, target, offset


class Sink(Operand):
    """The ``_`` operand: a result that is not wanted."""

    __slots__ = ()

    def __init__(self) -> None:
        """Set the spelling."""
        self.text = "_"


class Vec(Operand):
    """A brace list ``{a, b, ...}`` in ``items``."""

    __slots__ = ("index_cache", "items")

    def __init__(self, items: list[Operand]) -> None:
        """Store the elements."""
        self.text = "{" + ", ".join(i.text for i in items) + "}"
        self.items = items
        self.index_cache: Any = None

    def registers(self) -> Iterator[Reg]:
        """Yield the registers of all elements."""
        for item in self.items:
            yield from item.registers()


class Pair(Operand):
    """A double destination ``a|b`` (``r|p``, ``p|q``); either may be a `Sink`."""

    __slots__ = ("first", "second")

    def __init__(self, first: Operand, second: Operand) -> None:
        """Store both parts."""
        self.text = f"{first.text}|{second.text}"
        self.first, self.second = first, second

    def registers(self) -> Iterator[Reg]:
        """Yield the registers of both parts."""
        yield from self.first.registers()
        yield from self.second.registers()


class Addr(Operand):
    """A memory operand ``[base+offset]`` or ``[base, {c0, c1, ...}]`` (tensor coordinates).

    ``base`` is a `Reg`, `Symbol` or `Imm`; ``coords`` is a `Vec` for tensor addresses, a `Reg`
    or `Imm` for a second scalar part (``tcgen05.st``-like forms), else None.
    """

    __slots__ = ("base", "coords", "offset")

    def __init__(self, base: Operand, offset: int = 0, coords: Operand | None = None) -> None:
        """Store the parts."""
        tail = f"+{offset}" if offset else ""
        self.text = f"[{base.text}{tail}{', ' + coords.text if coords else ''}]"
        self.base, self.offset, self.coords = base, offset, coords

    def registers(self) -> Iterator[Reg]:
        """Yield base and coordinate registers."""
        yield from self.base.registers()
        if self.coords is not None:
            yield from self.coords.registers()


@dataclass(eq=False)
class Instruction:
    """One PTX instruction.

    Attributes:
        op: full dotted opcode, for example ``mbarrier.try_wait.parity.shared::cta.b64``.
        parts: ``op`` split at dots, for example ``("mbarrier", "try_wait", "parity", ...)``.
        operands: operands in PTX order, destination first where there is one.
        guard: predicate `Reg` or `Not`, or None. Handlers need not look at it: ``warp.active``
            is already narrowed.
        text: the statement as written (one line).
        ptx_line: 1-based line in the PTX text.
        chain: source position, innermost frame first (``.loc`` with its ``inlined_at`` frames).
        index: number of the instruction inside its function.
        info: free for the owner of the opcode's handler: put parsed modifiers here once.
    """

    op: str
    parts: tuple[str, ...]
    operands: list[Operand]
    guard: Operand | None
    text: str
    ptx_line: int
    chain: tuple[Location, ...] = ()
    index: int = 0
    info: Any = None
    function: Any = None
    mods: frozenset[str] = frozenset()

    def has(self, modifier: str) -> bool:
        """Say whether a modifier (a dotted part of the opcode) is present."""
        return modifier in self.mods

    @property
    def sem(self) -> str:
        """Memory semantics: weak, relaxed, acquire, release, acq_rel, volatile or mmio."""
        for word in ("acquire", "release", "acq_rel", "volatile", "mmio", "relaxed"):
            if word in self.mods:
                return word
        return "weak"

    @property
    def scope(self) -> str:
        """Memory scope: cta, cluster, gpu, sys, or an empty string when none is written."""
        for word in ("cta", "cluster", "gpu", "sys"):
            if word in self.mods:
                return word
        return ""

    @property
    def where(self) -> str:
        """Position for messages: file:line of the innermost frame, or the PTX line."""
        if self.chain:
            return f"{self.chain[0].file}:{self.chain[0].line}"
        return f"<ptx>:{self.ptx_line}"

    def unmodelled(self, why: str) -> NoReturn:
        """Raise the error for an instruction or form that the emulator does not model."""
        raise EmulatorError(
            f"the emulator does not model `{self.text}` (PTX line {self.ptx_line}, "
            f"source {self.where}): {why}"
        )


_NO_DESTINATION = frozenset(
    (
        "st",
        "red",
        "bra",
        "brx",
        "bar",
        "barrier",
        "cp",
        "fence",
        "membar",
        "prefetch",
        "prefetchu",
        "discard",
        "applypriority",
        "nanosleep",
        "stmatrix",
        "setmaxnreg",
        "tensormap",
        "stackrestore",
        "multimem",
        "griddepcontrol",
        "pmevent",
    )
)
_ASIDE = frozenset(
    (
        "wait_group",
        "commit",
        "st",
        "cp",
        "shift",
        "dealloc",
        "mma",
        "alloc",
        "relinquish_alloc_permit",
        "wait::ld",
        "wait::st",
        "commit_group",
        "fence",
    )
)


def writes_operand(ins: Instruction, position: int) -> bool:
    """Say whether operand ``position`` of an instruction is (also) written."""
    base = ins.parts[0]
    if position or isinstance(ins.operands[0], Addr):
        return False
    if base in ("bar", "barrier"):
        return "red" in ins.mods
    if base == "tcgen05":
        return not _ASIDE & set(ins.parts[1:2])
    if base == "wgmma":
        return "mma_async" in ins.mods
    return base not in _NO_DESTINATION


@dataclass
class Variable:
    """A declared variable.

    Attributes:
        name: symbol name.
        space: global, const, shared, local, param.
        size: bytes (0 for an ``.extern`` array without size).
        align: alignment in bytes.
        init: initial bytes, or None; ``relocs`` maps byte offsets to symbol names whose 64-bit
            address goes there.
        extern: declared ``.extern``.
        offset: place in its space once laid out (shared: offset from the CTA's window base;
            local: offset in the frame's depot; param: offset in the parameter buffer;
            global/const: emulated address).
    """

    name: str
    space: str
    size: int
    align: int
    init: bytes | None = None
    relocs: dict[int, str] = field(default_factory=dict)
    extern: bool = False
    offset: int = -1
    type: str = "b8"
    dynamic: bool = False


@dataclass
class Block:
    """A basic block: instructions, successors (block numbers) and immediate post-dominator.

    ``ipdom`` is -1 for the virtual exit.
    """

    number: int
    instructions: list[Instruction] = field(default_factory=list)
    successors: list[int] = field(default_factory=list)
    ipdom: int = -1
    labels: list[str] = field(default_factory=list)
    exit_only: bool = False


@dataclass
class Function:
    """A ``.func`` or ``.entry``: parameters, returns, blocks, register counts per width."""

    name: str
    entry: bool
    params: list[Variable] = field(default_factory=list)
    returns: list[Variable] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    register_count: dict[int, int] = field(default_factory=dict)
    register_names: dict[tuple[int, int], str] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    defined: bool = False
    ptx_line: int = 0
    local_size: int = 0
    code: Any = None


@dataclass
class Module:
    """A parsed PTX module: version, target, functions and module-scope variables by name."""

    version: tuple[int, int] = (0, 0)
    target: str = ""
    functions: dict[str, Function] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    files: dict[int, str] = field(default_factory=dict)
