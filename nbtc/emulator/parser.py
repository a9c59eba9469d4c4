"""Hand-written PTX parser: text to `Module`.

One regular expression makes tokens; statements are read by recursive descent. Braces open scopes in
which registers, variables and labels shadow outer ones. Debug sections are skipped, except the
strings that name inlined functions.
"""

from __future__ import annotations

import bisect
import re
import struct
from typing import NoReturn

from ..errors import EmulatorError
from .flow import build_blocks
from .program import (
    Addr,
    Function,
    Imm,
    Instruction,
    Location,
    Module,
    Not,
    Operand,
    Pair,
    Reg,
    Sink,
    Special,
    Symbol,
    Variable,
    Vec,
)

_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<float>0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b)
    |(?P<number>0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?U?)
    |(?P<word>[A-Za-z_$%.@](?:[A-Za-z0-9_$%.]|::(?=[A-Za-z0-9_]))*)
    |(?P<punct>[{}()\[\];,:+\-|!<>=*/&~^?])""",
    re.VERBOSE | re.DOTALL,
)
_TYPE_SIZE = {
    "pred": 1,
    "b8": 1,
    "u8": 1,
    "s8": 1,
    "b16": 2,
    "u16": 2,
    "s16": 2,
    "f16": 2,
    "bf16": 2,
    "b32": 4,
    "u32": 4,
    "s32": 4,
    "f32": 4,
    "f16x2": 4,
    "bf16x2": 4,
    "b64": 8,
    "u64": 8,
    "s64": 8,
    "f64": 8,
    "f32x2": 8,
    "b128": 16,
}
_REG_BITS = {**{k: v * 8 for k, v in _TYPE_SIZE.items()}, "pred": 1}
_LINKAGE = {".extern", ".visible", ".weak", ".common"}
_SPACES = {
    ".global": "global",
    ".const": "const",
    ".shared": "shared",
    ".local": "local",
    ".param": "param",
    ".shared::cta": "shared",
}
_SPECIAL = re.compile(
    r"%(?:n?tid|n?ctaid|n?clusterid|cluster_n?ctaid)\.[xyzw]$|%(?:laneid|n?warpid|n?smid|gridid|"
    r"lanemask_(?:eq|le|lt|ge|gt)|clock|clock_hi|clock64|globaltimer(?:_lo|_hi)?|pm\d+(?:_64)?|"
    r"envreg\d+|dynamic_smem_size|total_smem_size|aggr_smem_size|is_explicit_cluster|"
    r"cluster_n?ctarank|reserved_smem_offset_\w+|current_graph_exec)$"
)
_MAX_TOKENS_TEXT = 4000


class _Scope:
    """Names of one brace level."""

    __slots__ = ("labels", "names", "parent", "ranges")

    def __init__(self, parent: _Scope | None) -> None:
        self.parent = parent
        self.names: dict[str, object] = {}
        self.ranges: dict[str, tuple[int, int, int]] = {}
        self.labels: dict[str, int] = {}


class _Parser:
    """State of one parse."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = [0]
        for match in re.finditer("\n", text):
            self.starts.append(match.end())
        self.tokens: list[str] = []
        self.kinds: list[str] = []
        self.places: list[int] = []
        position = 0
        scan = _TOKEN.match
        while position < len(text):
            match = scan(text, position)
            if match is None:
                if text[position] == "\0":
                    break
                line = self.line_of(position)
                raise EmulatorError(
                    f"PTX line {line}: cannot read {text[position : position + 20]!r}"
                )
            kind = match.lastgroup
            if kind != "skip":
                word = match.group()
                if word[0] == "@" and len(word) > 1:
                    self.tokens.append("@")
                    self.kinds.append("punct")
                    self.places.append(position)
                    word = word[1:]
                    position += 1
                if word[0] == "." and word.find(".", 1) > 0:  # ".reg.b32"
                    first, *rest = word[1:].split(".")
                    for part in (first, *rest[:-1]):
                        self.tokens.append("." + part)
                        self.kinds.append("word")
                        self.places.append(position)
                    word = "." + rest[-1]
                self.tokens.append(word)
                self.kinds.append(kind or "")
                self.places.append(position)
            position = match.end()
        self.tokens.append("")
        self.kinds.append("end")
        self.places.append(len(text))
        self.at = 0
        self.module = Module()
        self.scope = _Scope(None)
        self.function: Function | None = None
        self.locations: list[tuple[int, int, int, int, str, int, tuple | None]] = []
        self.strings: dict[str, str] = {}
        self.chain_key: int | None = None
        self.last_loc: dict[tuple[int, int, int], int] = {}
        self.items: list[Instruction | tuple[str, int]] = []
        self.pending: list[tuple[Instruction, int, _Scope]] = []
        self.tables: list[tuple[list, _Scope]] = []
        self.label_count = 0

    # -- small tools --------------------------------------------------------------------

    def line_of(self, position: int) -> int:
        return bisect.bisect_right(self.starts, position)

    def fail(self, message: str) -> NoReturn:
        place = self.places[self.at]
        raise EmulatorError(
            f"PTX line {self.line_of(place)}: {message}, got {self.tokens[self.at]!r}"
        )

    def peek(self) -> str:
        return self.tokens[self.at]

    def take(self) -> str:
        token = self.tokens[self.at]
        self.at += 1
        return token

    def accept(self, token: str) -> bool:
        if self.tokens[self.at] == token:
            self.at += 1
            return True
        return False

    def expect(self, token: str) -> None:
        if self.tokens[self.at] != token:
            self.fail(f"expected {token!r}")
        self.at += 1

    def integer(self) -> int:
        sign = -1 if self.accept("-") else 1
        if sign == 1:
            self.accept("+")
            if self.accept("-"):
                sign = -1
        if self.kinds[self.at] != "number":
            self.fail("expected an integer")
        return sign * _integer(self.take())

    # -- module level ---------------------------------------------------------------------

    def parse(self) -> Module:
        while self.kinds[self.at] != "end":
            self.module_item()
        for function in self.module.functions.values():
            if function.defined:
                self.resolve_positions(function)
        return self.module

    def module_item(self) -> None:
        token = self.peek()
        if token == ".version":
            self.take()
            major, _, minor = self.take().partition(".")
            self.module.version = (int(major), int(minor or 0))
        elif token == ".target":
            self.take()
            self.module.target = self.take()
            while self.accept(","):
                self.take()
        elif token == ".address_size":
            self.take()
            self.take()
        elif token == ".file":
            self.file()
        elif token == ".loc":
            self.loc()
        elif token == ".section":
            self.section()
        elif token in (".alias", ".pragma"):
            while self.take() != ";":
                pass
        elif token == ";":
            self.take()
        else:
            self.declaration()

    def file(self) -> None:
        self.take()
        number = _integer(self.take())
        self.module.files[number] = self.take()[1:-1]
        if self.accept(","):
            self.integer()
            self.expect(",")
            self.integer()

    def section(self) -> None:
        self.take()
        name = self.take()
        self.expect("{")
        label: str | None = None
        data: list[int] = []
        while not self.accept("}"):
            if self.kinds[self.at] == "end":
                self.fail("section without closing brace")
            token = self.take()
            if name != ".debug_str":
                continue
            if self.kinds[self.at - 1] == "word" and self.peek() == ":":
                if label is not None:
                    self.strings[label] = bytes(data).split(b"\0")[0].decode("utf-8", "replace")
                label, data = token, []
            elif self.kinds[self.at - 1] == "number":
                data.append(_integer(token) & 255)
        if label is not None:
            self.strings[label] = bytes(data).split(b"\0")[0].decode("utf-8", "replace")

    def loc(self) -> None:
        self.take()
        key = (self.integer(), self.integer(), self.integer())
        function, outer = "", None
        while self.peek() == ",":
            self.take()
            word = self.take()
            if word == "function_name":
                function = self.take()
                if self.accept("+"):
                    self.integer()
            elif word == "inlined_at":
                outer = (self.integer(), self.integer(), self.integer())
            else:
                self.fail("unknown part of .loc")
        parent = self.last_loc.get(outer, -1) if outer is not None else -1
        number = len(self.locations)
        self.locations.append((*key, parent, function, number, outer))
        self.last_loc[key] = number
        self.chain_key = number

    def resolve_positions(self, function: Function) -> None:
        """Turn ``.loc`` numbers into chains, now that ``.file`` names are known."""
        cache: dict[int, tuple[Location, ...]] = {}

        def chain_of(number: int) -> tuple[Location, ...]:
            if number in cache:
                return cache[number]
            file, line, _, parent, name, _, outer = self.locations[number]
            here = Location(
                self.module.files.get(file, f"<file {file}>"), line, self.strings.get(name, name)
            )
            if parent >= 0:
                chain = (here, *chain_of(parent))
            elif outer is not None:
                chain = (here, Location(self.module.files.get(outer[0], "?"), outer[1], ""))
            else:
                chain = (here,)
            if not chain[-1].function:
                chain = (*chain[:-1], Location(chain[-1].file, chain[-1].line, function.name))
            cache[number] = chain
            return chain

        for block in function.blocks:
            for ins in block.instructions:
                if isinstance(ins.chain, int):
                    ins.chain = chain_of(ins.chain)

    def declaration(self) -> None:
        linkage = set()
        while self.peek() in _LINKAGE:
            linkage.add(self.take())
        token = self.peek()
        if token in (".func", ".entry"):
            self.function_item()
        elif token in _SPACES:
            variables = self.variable(".extern" in linkage)
            for variable in variables:
                self.module.variables[variable.name] = variable
                self.scope.names[variable.name] = variable
        else:
            self.fail("expected a module-level statement")

    def variable(self, extern: bool) -> list[Variable]:
        """Read one variable declaration with its declarators, up to ``;``."""
        space = _SPACES[self.take()]
        align, vector, kind = 0, 1, ""
        while self.peek().startswith("."):
            word = self.take()[1:]
            if word == "align":
                align = self.integer()
            elif word in ("v2", "v4"):
                vector = int(word[1])
            elif word == "ptr":
                while self.peek() in (".global", ".shared", ".const", ".local", ".param"):
                    self.take()
            elif word in _TYPE_SIZE:
                kind = word
            elif word in ("attribute",):
                self.skip_parentheses()
            else:
                self.fail(f"unknown variable attribute .{word}")
        out = []
        while True:
            name = self.take()
            size = _TYPE_SIZE.get(kind, 0) * vector
            if not size:
                self.fail(f"variable {name} has no type")
            element = size // vector
            unsized = False
            count = 1
            array = False
            while self.accept("["):
                array = True
                if self.accept("]"):
                    unsized = True
                else:
                    count *= self.integer()
                    self.expect("]")
            variable = Variable(name, space, size * count, align or size, extern=extern, type=kind)
            if self.accept("="):
                data, relocations = self.initialiser(kind, element)
                if unsized:
                    variable.size = len(data)
                    unsized = False
                variable.init = data.ljust(variable.size, b"\0")[: variable.size]
                variable.relocs = relocations
            if unsized:
                variable.size = 0
                variable.dynamic = space == "shared" and extern
            if extern and space == "shared" and array and variable.size == 0:
                variable.dynamic = True
            out.append(variable)
            if self.accept(","):
                continue
            self.expect(";")
            return out

    def skip_parentheses(self) -> None:
        self.expect("(")
        depth = 1
        while depth:
            token = self.take()
            depth += (token == "(") - (token == ")")

    def initialiser(self, kind: str, element: int) -> tuple[bytes, dict[int, str]]:
        data = bytearray()
        relocations: dict[int, str] = {}

        def value() -> None:
            if self.accept("{"):
                while not self.accept("}"):
                    value()
                    self.accept(",")
                return
            sign = -1 if self.accept("-") else 1
            token_kind, token = self.kinds[self.at], self.take()
            if token_kind == "float":
                number = int(token[2:], 16)
                data.extend(number.to_bytes(element, "little"))
            elif token_kind == "number":
                if "." in token:
                    data.extend(struct.pack("<f" if element == 4 else "<d", sign * float(token)))
                    return
                number = sign * _integer(token)
                if kind in ("f32", "f64"):
                    data.extend(struct.pack("<f" if element == 4 else "<d", float(number)))
                else:
                    data.extend((number & ((1 << element * 8) - 1)).to_bytes(element, "little"))
            elif token == "generic":
                self.expect("(")
                value()
                self.expect(")")
            elif token_kind == "word":
                offset = 0
                if self.peek() in ("+", "-"):
                    offset = self.integer()
                relocations[len(data)] = token if not offset else f"{token}+{offset}"
                data.extend(bytes(element))
            elif token_kind == "string":
                data.extend(token[1:-1].encode())
            else:
                self.fail("unknown initialiser")

        value()
        return bytes(data), relocations

    # -- functions ------------------------------------------------------------------------

    def parameters(self, function: Function) -> list[Variable]:
        """Read a parenthesised parameter list."""
        out: list[Variable] = []
        self.expect("(")
        while not self.accept(")"):
            if self.peek() == ".reg":
                self.take()
                kind = self.take()[1:]
                name = self.take()
                reg = self.new_register(name, _REG_BITS[kind])
                variable = Variable(name, "reg", _TYPE_SIZE[kind], _TYPE_SIZE[kind], type=kind)
                variable.init = None
                self.scope.names[name] = reg
                variable.relocs = {0: name}
                out.append(variable)
            elif self.peek() == ".param":
                self.take()
                align, kind = 0, "b8"
                while self.peek().startswith("."):
                    word = self.take()[1:]
                    if word == "align":
                        align = self.integer()
                    elif word in _TYPE_SIZE:
                        kind = word
                name = self.take()
                size = _TYPE_SIZE[kind]
                if self.accept("["):
                    count = 0 if self.peek() == "]" else self.integer()
                    self.expect("]")
                    size *= count
                variable = Variable(name, "param", size, align or _TYPE_SIZE[kind], type=kind)
                self.scope.names[name] = variable
                out.append(variable)
            else:
                self.fail("expected a parameter")
            self.accept(",")
        return out

    def function_item(self) -> None:
        entry = self.take() == ".entry"
        function = Function("", entry, ptx_line=self.line_of(self.places[self.at]))
        self.function = function
        self.scope = _Scope(self.scope)
        if self.peek() == "(":
            function.returns = self.parameters(function)
        function.name = self.take()
        if self.peek() == "(":
            function.params = self.parameters(function)
        while self.peek().startswith("."):
            word = self.take()
            values = []
            while self.kinds[self.at] == "number":
                values.append(self.integer())
                if not self.accept(","):
                    break
            if self.kinds[self.at] == "string":
                self.take()
            function.directives[word[1:]] = tuple(values)
        outer = self.scope.parent
        assert outer is not None
        outer.names.setdefault(function.name, function)
        if self.accept(";"):
            old = self.module.functions.get(function.name)
            if old is None or not old.defined:
                self.module.functions[function.name] = function
        else:
            self.items, self.pending, self.tables = [], [], []
            self.chain_key = None
            self.body(function)
            self.resolve_labels(function)
            function.defined = True
            build_blocks(function, self.items)
            self.module.functions[function.name] = function
            outer.names[function.name] = function
        self.scope = outer
        self.function = None

    def new_register(self, name: str, bits: int) -> Reg:
        function = self.function
        assert function is not None
        index = function.register_count.get(bits, 0)
        function.register_count[bits] = index + 1
        function.register_names[bits, index] = name
        return Reg(name, bits, index)

    def body(self, function: Function) -> None:
        self.expect("{")
        depth = 1
        while depth:
            kind, token = self.kinds[self.at], self.peek()
            if kind == "end":
                self.fail(f"function {function.name} has no closing brace")
            if token == "{":
                self.take()
                depth += 1
                self.scope = _Scope(self.scope)
            elif token == "}":
                self.take()
                depth -= 1
                if depth:
                    assert self.scope.parent is not None
                    self.scope = self.scope.parent
            elif token == ";":
                self.take()
            elif token == ".loc":
                self.loc()
            elif token == ".reg":
                self.registers()
            elif token in _SPACES:
                for variable in self.variable(False):
                    self.scope.names[variable.name] = variable
                    function.variables.append(variable)
            elif token == ".pragma":
                while self.take() != ";":
                    pass
            elif token in _LINKAGE:
                self.take()
            elif kind == "word" and self.tokens[self.at + 1] == ":":
                self.label()
            elif kind == "word" or token == "@":
                self.instruction(function)
            else:
                self.fail("expected a statement")

    def registers(self) -> None:
        self.take()
        vector = 1
        kind = self.take()[1:]
        if kind in ("v2", "v4"):
            vector = int(kind[1])
            kind = self.take()[1:]
        if kind not in _REG_BITS:
            self.fail(f"unknown register type .{kind}")
        if vector > 1:
            self.fail("vector registers are not modelled")
        bits = _REG_BITS[kind]
        function = self.function
        assert function is not None
        while True:
            name = self.take()
            if self.accept("<"):
                count = self.integer()
                self.expect(">")
                base = function.register_count.get(bits, 0)
                function.register_count[bits] = base + count
                self.scope.ranges[name] = (count, bits, base)
                for i in range(count):
                    function.register_names[bits, base + i] = f"{name}{i}"
            else:
                self.scope.names[name] = self.new_register(name, bits)
            if self.accept(","):
                continue
            self.expect(";")
            return

    def label(self) -> None:
        name = self.take()
        self.take()
        if self.peek() == ".branchtargets":
            self.take()
            names = []
            while True:
                names.append(self.take())
                if not self.accept(","):
                    break
            self.expect(";")
            table: list = list(names)
            self.tables.append((table, self.scope))
            self.scope.names[name] = table
            return
        if self.peek() in (".callprototype", ".calltargets"):
            prototype = self.take()
            words = []
            while not self.accept(";"):
                words.append(self.take())
            self.scope.names[name] = (prototype, words)
            return
        self.label_count += 1
        self.scope.labels[name] = self.label_count
        self.items.append((name, self.label_count))

    def resolve_labels(self, function: Function) -> None:
        def find(name: str, scope: _Scope | None, where: str) -> int:
            while scope is not None:
                if name in scope.labels:
                    return scope.labels[name]
                scope = scope.parent
            raise EmulatorError(
                f"function {function.name}: label {name} in `{where}` is not defined"
            )

        for ins, position, scope in self.pending:
            operand = ins.operands[position]
            assert isinstance(operand, Symbol)
            operand.target = find(operand.name, scope, ins.text)
        for table, scope in self.tables:
            table[:] = [find(name, scope, ".branchtargets") for name in table]

    # -- instructions -----------------------------------------------------------------------

    def instruction(self, function: Function) -> None:
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
        out: list[Operand] = []
        self.expect("(")
        while not self.accept(")"):
            out.append(self.operand())
            self.accept(",")
        return out

    def lookup(self, name: str) -> object:
        scope: _Scope | None = self.scope
        while scope is not None:
            found = scope.names.get(name)
            if found is not None:
                return found
            scope = scope.parent
        return None

    def is_register(self, name: str) -> bool:
        return self.find_register(name) is not None

    def find_register(self, name: str) -> Reg | None:
        scope: _Scope | None = self.scope
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
        found = self.find_register(name)
        if found is None:
            self.at -= 1
            self.fail("unknown register")
        return found

    def operand(self) -> Operand:
        first = self.simple_operand()
        if self.accept("|"):
            return Pair(first, self.simple_operand())
        return first

    def simple_operand(self) -> Operand:
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
            return Imm(token, _integer(token))
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


def _integer(token: str) -> int:
    token = token.rstrip("U")
    low = token.lower()
    if low.startswith("0x"):
        return int(token, 16)
    if low.startswith("0b"):
        return int(token, 2)
    if len(token) > 1 and token[0] == "0" and token.isdigit():
        return int(token, 8)
    return int(token)


def parse(text: str) -> Module:
    """Parse PTX text.

    Args:
        text: a whole PTX module of any version.

    Returns:
        The module: functions with basic blocks and post-dominators, variables, file names.

    Raises:
        EmulatorError: the text is not PTX that this parser knows; the message has the line.
    """
    if isinstance(text, bytes):
        text = text.decode()
    return _Parser(text).parse()
