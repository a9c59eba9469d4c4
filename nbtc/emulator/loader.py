"""Loading PTX: layout of variables, generated code, a cache by text."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Any

from ..errors import EmulatorError
from .codegen import FunctionCode
from .late_moves import sink_unpacking
from .parser import parse
from .program import Function, Instruction, Module, Symbol, Variable, Vec

MODULE_BASE = 0x7E00_0000_0000
FUNCTION_BASE = 0x7D00_0000_0000
_CACHE: OrderedDict[bytes, Program] = OrderedDict()


class Program:
    """A parsed module with its layout and generated code; cached by text."""

    def __init__(self, module: Module) -> None:
        """Lay out variables."""
        self.module = module
        module.program = self  # type: ignore[attr-defined]
        self._code: dict[str, FunctionCode] = {}
        self._areas: dict[str, int] = {}
        self._functions = list(module.functions)
        place = MODULE_BASE
        for variable in module.variables.values():
            if variable.space in ("global", "const"):
                place = (place + variable.align + 255) // 256 * 256
                variable.offset = place
                place += max(variable.size, 1) + 4096
        self.late_moves: list[Instruction] = []
        for function in module.functions.values():
            self._lay_out(function)
            self.late_moves += sink_unpacking(function)

    def _lay_out(self, function: Function) -> None:
        local, area = 0, 0
        if function.entry:
            offset = 0
            for parameter in function.params:
                offset = (offset + parameter.align - 1) // parameter.align * parameter.align
                parameter.offset = offset
                offset += parameter.size
        else:
            for parameter in [*function.params, *function.returns]:
                if parameter.space == "param":
                    area = (area + 15) // 16 * 16
                    parameter.offset = area
                    area += parameter.size
        for variable in function.variables:
            if variable.space == "local":
                align = max(variable.align, 1)
                local = (local + align - 1) // align * align
                variable.offset = local
                local += variable.size
            elif variable.space == "param":
                area = (area + 15) // 16 * 16
                variable.offset = area
                area += variable.size
            elif variable.space in ("global", "const", "shared"):
                self.module.variables.setdefault(variable.name, variable)
        function.local_size = (local + 15) // 16 * 16
        self._areas[function.name] = area

    def area_size(self, function: Function) -> int:
        """Bytes of the parameter area of a frame."""
        return self._areas[function.name]

    def is_entry_param(self, variable: Variable, function: Function) -> bool:
        """Say whether a variable is a parameter of the kernel itself."""
        return function.entry and any(p is variable for p in function.params)

    def function_address(self, name: str) -> int:
        """Fake address of a function."""
        if name not in self._functions:
            raise EmulatorError(f"{name} is not declared in this module")
        return FUNCTION_BASE + 16 * self._functions.index(name)

    def function_name(self, address: int) -> str | None:
        """Name of the function at a fake address."""
        index, rest = divmod(address - FUNCTION_BASE, 16)
        if rest or not 0 <= index < len(self._functions):
            return None
        return self._functions[index]

    def register_of(self, function: Function, variable: Variable) -> tuple[int, int]:
        """Bank and row of a register parameter."""
        for (bits, index), name in function.register_names.items():
            if name == variable.name:
                return bits, index
        raise EmulatorError(f"{variable.name} is not a register of {function.name}")

    def code(self, function: Function) -> FunctionCode:
        """Generated code of a function."""
        code = self._code.get(function.name)
        if code is None:
            code = self._code[function.name] = FunctionCode(function, self)
        return code

    def made(self, function: Function) -> FunctionCode | None:
        """Code of a function if a launch, or `validate`, has asked for it."""
        return self._code.get(function.name)

    def validate(self) -> None:
        """Check that every instruction of every function is modelled.

        Raises:
            EmulatorError: the first that is not; a launch raises only for what it reaches.
        """
        for function in self.module.functions.values():
            if function.defined:
                self.code(function).validate()

    def shared_variables(self, entry: Function) -> list[Variable]:
        """Shared variables that the entry and its callees name, in order of declaration."""
        seen: set[str] = set()
        names: set[str] = set()
        todo = [entry.name]
        while todo:
            function = self.module.functions.get(todo.pop())
            if function is None or function.name in seen:
                continue
            seen.add(function.name)
            for block in function.blocks:
                for ins in block.instructions:
                    for operand in ins.operands:
                        _collect(operand, names, todo)
        return [
            v for v in self.module.variables.values() if v.space == "shared" and v.name in names
        ]


def _collect(operand: Any, names: set[str], todo: list[str]) -> None:
    if isinstance(operand, Symbol):
        names.add(operand.name)
        todo.append(operand.name)
    elif isinstance(operand, Vec):
        for item in operand.items:
            _collect(item, names, todo)
    elif hasattr(operand, "base"):
        _collect(operand.base, names, todo)


def load(ptx: str | bytes) -> Program:
    """Parse PTX, or give the cached program of the same text."""
    data = ptx if isinstance(ptx, bytes) else ptx.encode()
    key = hashlib.sha256(data).digest()
    program = _CACHE.get(key)
    if program is None:
        program = _CACHE[key] = Program(parse(data.decode()))
        while len(_CACHE) > 16:
            _CACHE.popitem(last=False)
    else:
        _CACHE.move_to_end(key)
    return program
