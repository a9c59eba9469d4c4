"""Hand-written PTX parser: text to `Module`.

One regular expression makes tokens; statements are read by recursive descent. Braces open scopes in
which registers, variables and labels shadow outer ones. Debug sections are skipped, except the
strings that name inlined functions.
"""

from __future__ import annotations

import struct

from ..errors import EmulatorError
from .flow import build_blocks
from .parse_instructions import InstructionParser, Scope
from .program import (
    Function,
    Location,
    Module,
    Reg,
    Symbol,
    Variable,
)
from .tokens import to_integer

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


class _Parser(InstructionParser):
    """State of one parse."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.module = Module()
        self.scope = Scope(None)
        self.function: Function | None = None
        self.locations: list[tuple[int, int, int, int, str, int, tuple | None]] = []
        self.strings: dict[str, str] = {}
        self.chain_key: int | None = None
        self.last_loc: dict[tuple[int, int, int], int] = {}
        self.tables: list[tuple[list, Scope]] = []
        self.label_count = 0

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
        number = to_integer(self.take())
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
                data.append(to_integer(token) & 255)
        if label is not None:
            self.strings[label] = bytes(data).split(b"\0")[0].decode("utf-8", "replace")

    def loc(self) -> None:
        # In inline assembly of several lines the compiler counts on from the statement's own line.
        counted = self.in_inline_assembly()
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
        if counted:
            return
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
                number = sign * to_integer(token)
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
        self.scope = Scope(self.scope)
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
                self.scope = Scope(self.scope)
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
        def find(name: str, scope: Scope | None, where: str) -> int:
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
