"""Parsing of instructions, operands and register names inside scopes."""

from __future__ import annotations

import re
import struct

from .program import (
    Addr,
    Function,
    Imm,
    Instruction,
    Not,
    Operand,
    Pair,
    Reg,
    Sink,
    Special,
    Symbol,
    Vec,
)
from .tokens import Tokens, to_integer

_SPECIAL = re.compile(
    r"%(?:n?tid|n?ctaid|n?clusterid|cluster_n?ctaid)\.[xyzw]$|%(?:laneid|n?warpid|n?smid|gridid|"
    r"lanemask_(?:eq|le|lt|ge|gt)|clock|clock_hi|clock64|globaltimer(?:_lo|_hi)?|pm\d+(?:_64)?|"
    r"envreg\d+|dynamic_smem_size|total_smem_size|aggr_smem_size|is_explicit_cluster|"
    r"cluster_n?ctarank|reserved_smem_offset_\w+|current_graph_exec)$"
)
_MAX_TOKENS_TEXT = 4000


class Scope:
    """Names of one brace level."""

    __slots__ = ("labels", "names", "parent", "ranges")

    def __init__(self, parent: Scope | None) -> None:
        self.parent = parent
        self.names: dict[str, object] = {}
        self.ranges: dict[str, tuple[int, int, int]] = {}
        self.labels: dict[str, int] = {}


class InstructionParser(Tokens):
    """The part of the parser that reads instructions."""

    scope: Scope
    chain_key: int | None

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.items: list[Instruction | tuple[str, int]] = []
        self.pending: list[tuple[Instruction, int, Scope]] = []

    # -- instructions -----------------------------------------------------------------------

    def instruction(self, function: Function) -> None:
        """Read one instruction."""
        start = self.places[self.at]
        guard: Operand | None = None
        if self.accept("@"):
            negated = self.accept("!")
            guard = self.register(self.take())
            if negated:
                guard = Not(guard)
        op = self.take()
        parts = tuple(op.split("."))
        operands: list[Operand] = []
        branch = parts[0] == "bra" or (parts[0] == "brx")
        calling = parts[0] == "call"
        ins = Instruction(
            op,
            parts,
            operands,
            guard,
            "",
            self.line_of(start),
            mods=frozenset(parts[1:]),
            function=function,
        )
        if calling:
            self.call_operands(operands)
        else:
            while self.peek() != ";":
                if branch and self.kinds[self.at] == "word" and not self.is_register(self.peek()):
                    name = self.take()
                    table = self.lookup(name)
                    if isinstance(table, list):
                        operands.append(Symbol(name, table))
                    else:
                        self.pending.append((ins, len(operands), self.scope))
                        operands.append(Symbol(name))
                else:
                    operands.append(self.operand())
                if not self.accept(","):
                    break
        if self.peek() != ";":
            self.fail(f"`{op}`: expected ';'")
        end = self.places[self.at]
        self.take()
        ins.text = " ".join(self.text[start:end].split())[:_MAX_TOKENS_TEXT]
        ins.chain = self.chain_key if self.chain_key is not None else ()  # type: ignore[assignment]
        ins.index = len(self.items)
        self.items.append(ins)

    def call_operands(self, operands: list[Operand]) -> None:
        """Read ``(ret), target, (args), prototype`` into [Vec ret, target, Vec args, ...]."""
        returns = Vec([])
        if self.peek() == "(":
            returns = Vec(self.argument_list())
            self.expect(",")
        operands.append(returns)
        operands.append(self.operand())
        arguments = Vec([])
        if self.accept(","):
            if self.peek() == "(":
                arguments = Vec(self.argument_list())
                if self.accept(","):
                    name = self.take()
                    operands.append(arguments)
                    operands.append(Symbol(name, self.lookup(name)))
                    return
            else:
                name = self.take()
                operands.append(arguments)
                operands.append(Symbol(name, self.lookup(name)))
                return
        operands.append(arguments)

    def argument_list(self) -> list[Operand]:
        """Read a parenthesised argument list of a call."""
        out: list[Operand] = []
        self.expect("(")
        while not self.accept(")"):
            out.append(self.operand())
            self.accept(",")
        return out

    def lookup(self, name: str) -> object:
        """Find a name in the scopes."""
        scope: Scope | None = self.scope
        while scope is not None:
            found = scope.names.get(name)
            if found is not None:
                return found
            scope = scope.parent
        return None

    def is_register(self, name: str) -> bool:
        """Say whether a name is a register."""
        return self.find_register(name) is not None

    def find_register(self, name: str) -> Reg | None:
        """Find a register in the scopes."""
        scope: Scope | None = self.scope
        prefix = name.rstrip("0123456789")
        number = name[len(prefix) :]
        while scope is not None:
            found = scope.names.get(name)
            if isinstance(found, Reg):
                return found
            if found is not None:
                return None
            span = scope.ranges.get(prefix) if number else None
            if span is not None and int(number) < span[0]:
                reg = Reg(name, span[1], span[2] + int(number))
                scope.names[name] = reg
                return reg
            scope = scope.parent
        return None

    def register(self, name: str) -> Operand:
        """Read the name of a register."""
        found = self.find_register(name)
        if found is None:
            self.at -= 1
            self.fail("unknown register")
        return found

    def operand(self) -> Operand:
        """Read an operand, possibly a pair."""
        first = self.simple_operand()
        if self.accept("|"):
            return Pair(first, self.simple_operand())
        return first

    def simple_operand(self) -> Operand:
        """Read an operand that is not a pair."""
        kind, token = self.kinds[self.at], self.peek()
        if token == "{":
            self.take()
            items = []
            while not self.accept("}"):
                items.append(self.operand())
                self.accept(",")
            return Vec(items)
        if token == "[":
            return self.address()
        if token == "!":
            self.take()
            return Not(self.simple_operand())
        if token == "(":
            self.take()
            value = self.simple_operand()
            self.expect(")")
            return value
        if token in ("-", "+", "~"):
            self.take()
            value = self.simple_operand()
            if not isinstance(value, Imm):
                self.fail("expected a literal after a sign")
            number = {"-": -value.value, "+": value.value, "~": ~value.value}[token]
            return Imm(token + value.text, number)
        if kind == "float":
            self.take()
            return Imm(token, int(token[2:], 16), 32 if token[1] in "fF" else 64)
        if kind == "number":
            self.take()
            if "." in token or ("e" in token.lower() and not token.lower().startswith("0x")):
                bits = struct.unpack("<Q", struct.pack("<d", float(token)))[0]
                return Imm(token, bits, 64)
            return Imm(token, to_integer(token))
        if kind != "word":
            self.fail("expected an operand")
        self.take()
        if token == "_":
            return Sink()
        found = self.find_register(token)
        if found is not None:
            return found
        if token == "WARP_SZ":
            return Imm(token, 32)
        if token[0] == "%" and _SPECIAL.match(token):
            return Special(token)
        target = self.lookup(token)
        offset = 0
        if self.peek() in ("+", "-") and self.kinds[self.at + 1] in ("number", "punct"):
            self.accept("+")
            offset = self.integer()
        if target is None:
            self.at -= 1
            self.fail(f"{token} is not declared")
        return Symbol(token, target, offset)

    def address(self) -> Operand:
        """Read a memory operand."""
        self.expect("[")
        base = self.simple_operand()
        offset = 0
        if isinstance(base, Symbol):
            offset, base.offset = base.offset, 0
        coords: Operand | None = None
        while not self.accept("]"):
            if self.peek() in ("+", "-"):
                offset += self.integer()
            elif self.accept(","):
                coords = self.simple_operand()
            else:
                self.fail("expected ']'")
        return Addr(base, offset, coords)
