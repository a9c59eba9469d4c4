"""Code generation: one Python function per straight run of instructions.

A block becomes a list of *steps*: generated code (`CodeStep`), a handler call, a function call, or
the terminator. Code is generated when a step first runs, in two variants: ``plain`` writes all 32
lanes of registers (all live lanes are here; the others no longer matter), ``masked`` writes lanes
of ``m`` only. Memory operations take the mask ``m`` in both (None: all 32 lanes).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import access, access_shared, arith, convert, floats
from .flow import undefined_reads
from .handlers import find_handler
from .machine import LANES
from .program import (
    Block,
    Function,
    Imm,
    Instruction,
    Not,
    Operand,
    Reg,
    Special,
    Symbol,
    writes_operand,
)

ROWS = {
    "p": (1, np.bool_),
    "u8": (8, np.uint8),
    "s8": (8, np.int8),
    "u16": (16, np.uint16),
    "s16": (16, np.int16),
    "f16": (16, np.float16),
    "u32": (32, np.uint32),
    "s32": (32, np.int32),
    "f32": (32, np.float32),
    "u64": (64, np.uint64),
    "s64": (64, np.int64),
    "f64": (64, np.float64),
    "x16": (32, np.uint16),
    "xs16": (32, np.int16),
    "xf16": (32, np.float16),
    "xf32": (64, np.float32),
    "q": (128, np.uint64),
}
TYPE_ROW = {
    "pred": "p",
    "b8": "u8",
    "u8": "u8",
    "s8": "s8",
    "b16": "u16",
    "u16": "u16",
    "s16": "s16",
    "f16": "f16",
    "bf16": "u16",
    "b32": "u32",
    "u32": "u32",
    "s32": "s32",
    "f32": "f32",
    "tf32": "u32",
    "b64": "u64",
    "u64": "u64",
    "s64": "s64",
    "f64": "f64",
    "f16x2": "xf16",
    "bf16x2": "x16",
    "u16x2": "x16",
    "s16x2": "xs16",
    "f32x2": "xf32",
}
BITS = {name: ROWS[row][0] for name, row in TYPE_ROW.items()}
DTYPE = {name: np.dtype(ROWS[row][1]) for name, row in TYPE_ROW.items()}
UNSIGNED = {8: "u8", 16: "u16", 32: "u32", 64: "u64", 1: "p"}
SIGNED = {8: "s8", 16: "s16", 32: "s32", 64: "s64"}
DYNAMIC_SPECIAL = {
    "clock",
    "clock_hi",
    "clock64",
    "globaltimer",
    "globaltimer_lo",
    "globaltimer_hi",
}
CODE, HANDLER, CALL, BRANCH, JUMP, TABLE, RETURN, EXIT, TRAP = range(9)


class Step:
    """One step of a block.

    ``kind`` is one of the constants above; code steps have ``plain``/``masked`` functions, made on
    first use. ``masks``: (reads, writes) bit masks of 32-bit register rows per instruction,
    ``regs`` their union;
    ``undefined``: reads of registers that no path has written; ``count``: instructions.
    """

    __slots__ = (
        "code",
        "count",
        "entry",
        "instructions",
        "kind",
        "masked",
        "masks",
        "plain",
        "regs",
        "target",
        "undefined",
    )

    def __init__(self, kind: int, instructions: list[Instruction], code: Any) -> None:
        """Store the instructions."""
        self.kind, self.instructions, self.code = kind, instructions, code
        self.count = len(instructions)
        self.plain: Any = None
        self.masked: Any = None
        self.entry: Any = None
        self.target: Any = None
        self.undefined: list[tuple[Instruction, str]] | None = None
        self.masks = [register_masks(ins) for ins in instructions]
        self.regs = 0
        for reads, writes in self.masks:
            self.regs |= reads | writes

    def make_plain(self) -> Any:
        """Generate the variant for converged warps."""
        self.plain = self.code.generate(self.instructions, False)
        return self.plain

    def make_masked(self) -> Any:
        """Generate the variant for partial masks."""
        self.masked = self.code.generate(self.instructions, True)
        return self.masked


def register_masks(ins: Instruction) -> tuple[int, int]:
    """Give bit masks of 32-bit rows read and written by an instruction."""
    reads = writes = 0
    for position, operand in enumerate(ins.operands):
        destination = writes_operand(ins, position)
        for reg in operand.registers():
            if reg.bits == 32:
                if destination:
                    writes |= 1 << reg.index
                else:
                    reads |= 1 << reg.index
    if ins.parts[0] in ("mma", "wgmma", "mbarrier", "tcgen05") or (
        ins.guard is not None and writes
    ):
        reads |= writes
    return reads, writes


class FunctionCode:
    """Steps of all blocks of one function."""

    def __init__(self, function: Function, program: Any) -> None:
        """Split the blocks into steps."""
        self.function, self.program = function, program
        self.names: dict[str, Any] = dict(_BASE_NAMES)
        self.constants: dict[Any, str] = {}
        self.objects: dict[int, str] = {}
        self.serial = 0
        self.blocks: list[list[Step]] = [self.split(block) for block in function.blocks]
        undefined = undefined_reads(function)
        self.poisoned = bool(undefined)
        for steps in self.blocks if undefined else ():
            for step in steps:
                found = [(i, undefined[id(i)]) for i in step.instructions if id(i) in undefined]
                step.undefined = found or None

    def split(self, block: Block) -> list[Step]:
        """Make the steps of a block."""
        steps: list[Step] = []
        run: list[Instruction] = []

        def flush() -> None:
            if run:
                steps.append(Step(CODE, list(run), self))
                run.clear()

        for ins in block.instructions:
            base = ins.parts[0]
            if base in ("bra", "brx", "ret", "exit", "trap"):
                flush()
                steps.append(self.terminator(ins))
                continue
            if base == "call":
                flush()
                steps.append(Step(CALL, [ins], self))
                continue
            entry = find_handler(ins)
            if entry is not None:
                flush()
                if entry.check is not None:
                    entry.check(ins)
                step = Step(HANDLER, [ins], self)
                step.entry = entry
                steps.append(step)
                continue
            from .emit_base import find_emitter

            if find_emitter(ins) is None:
                ins.unmodelled("unknown instruction")
            run.append(ins)
            if len(run) >= 400:
                flush()
        flush()
        last = block.instructions[-1].parts[0] if block.instructions else ""
        guarded = bool(block.instructions) and block.instructions[-1].guard is not None
        if last not in ("bra", "brx", "ret", "exit", "trap") or guarded:
            step = Step(JUMP, [], self)
            step.target = block.number + 1 if block.number + 1 < len(self.function.blocks) else -1
            if step.target < 0:
                step = Step(RETURN, [], self)
            steps.append(step)
        return steps

    def terminator(self, ins: Instruction) -> Step:
        """Make the step of a control transfer."""
        kind = {"bra": BRANCH, "brx": TABLE, "ret": RETURN, "exit": EXIT, "trap": TRAP}[
            ins.parts[0]
        ]
        step = Step(kind, [ins], self)
        if kind == BRANCH:
            step.target = ins.operands[0].target  # type: ignore[attr-defined]
            if ins.guard is None:
                step.kind = JUMP
        return step

    def generate(self, instructions: list[Instruction], masked: bool) -> Any:
        """Generate and compile the function of a run of instructions."""
        from .emit_base import find_emitter

        gen = Gen(self, masked)
        for ins in instructions:
            gen.begin(ins)
            emitter = find_emitter(ins)
            emitter(gen, ins)
        source = gen.source()
        self.serial += 1
        scope: dict[str, Any] = {}
        exec(compile(source, f"<{self.function.name}:{self.serial}>", "exec"), self.names, scope)
        return scope["run"]

    def validate(self) -> None:
        """Emit every instruction once without compiling, so that unmodelled forms raise now."""
        from .emit_base import find_emitter

        for steps in self.blocks:
            for step in steps:
                if step.kind != CODE:
                    continue
                gen = Gen(self, False)
                for ins in step.instructions:
                    gen.begin(ins)
                    find_emitter(ins)(gen, ins)

    def constant(self, value: Any, dtype: np.dtype, lanes: int = LANES) -> str:
        """Name a constant row."""
        key = (value, dtype.str, lanes)
        name = self.constants.get(key)
        if name is None:
            name = f"K{len(self.constants)}"
            row = np.full(lanes, value, dtype)
            row.flags.writeable = False
            self.constants[key] = name
            self.names[name] = row
        return name

    def object(self, value: Any) -> str:
        """Name any Python object used by generated code."""
        name = self.objects.get(id(value))
        if name is None:
            name = f"O{len(self.objects)}"
            self.objects[id(value)] = name
            self.names[name] = value
        return name


class Gen:
    """Source of one generated function; the emitters of ``emit*.py`` write to it."""

    def __init__(self, code: FunctionCode, masked: bool) -> None:
        """Start an empty body."""
        self.code, self.masked = code, masked
        self.program = code.program
        self.lines: list[str] = []
        self.used: set[str] = set()
        self.guarded = False
        self.temporaries = 0
        self.ins: Instruction = None  # type: ignore[assignment]

    def begin(self, ins: Instruction) -> None:
        """Start an instruction: compute its guard."""
        self.ins = ins
        self.guarded = ins.guard is not None
        if ins.guard is not None:
            self.lines.append(f"g = {self.src(ins.guard, 'pred')}")
            self.lines.append("if m is not None: g = g & m")

    @property
    def mask(self) -> str | None:
        """Mask expression for register writes, or None."""
        if self.guarded:
            return "g"
        return "m" if self.masked else None

    @property
    def memory_mask(self) -> str:
        """Mask expression for memory operations (may be None at run time)."""
        return "g" if self.guarded else "m"

    def line(self, text: str) -> None:
        """Append a statement."""
        self.lines.append(text)

    def temporary(self, expr: str) -> str:
        """Bind an expression to a fresh local."""
        self.temporaries += 1
        name = f"t{self.temporaries}"
        self.lines.append(f"{name} = {expr}")
        return name

    def row(self, kind: str, index: int) -> str:
        """Name a register row."""
        self.used.add(kind)
        return f"{kind}[{index}]"

    def obj(self, value: Any) -> str:
        """Name an object."""
        return self.code.object(value)

    def const(self, value: Any, kind: str) -> str:
        """Name a constant row of PTX type ``kind`` (value is an int or a float bit pattern)."""
        dtype = DTYPE[kind]
        width = dtype.itemsize * 8
        if kind == "pred":
            return self.code.constant(bool(value), dtype)
        if kind.endswith("x2"):
            bits = BITS[kind]
            row = np.full(LANES, value & ((1 << bits) - 1), f"u{bits // 8}").view(dtype)
            return self.code.object(_keep(self.code, row))
        bits = int(value) & ((1 << width) - 1)
        return self.code.constant(np.array(bits, f"u{width // 8}").view(dtype)[()], dtype)

    def immediate(self, operand: Imm, kind: str) -> str:
        """Constant row of a literal for a PTX type."""
        value = operand.value
        if operand.float_bits == 64 and kind == "f32":
            value = int(np.float32(np.array(value, np.uint64).view(np.float64)).view(np.uint32))
        elif operand.float_bits == 32 and kind == "f64":
            value = int(np.float64(np.array(value, np.uint32).view(np.float32)).view(np.uint64))
        elif operand.float_bits == 0 and kind in ("f32", "f64", "f16") and value not in (0,):
            value = int(np.array(value, DTYPE[kind]).view(f"u{DTYPE[kind].itemsize}"))
        return self.const(value, kind)

    def src(self, operand: Operand, kind: str) -> str:
        """Expression of an operand as a row of PTX type ``kind``."""
        if isinstance(operand, Reg):
            bits = BITS[kind]
            name = TYPE_ROW[kind]
            if operand.bits == bits:
                return self.row(name, operand.index)
            if operand.bits > bits > 1:
                dtype = DTYPE[kind]
                source = self.row(UNSIGNED[operand.bits], operand.index)
                low = f"{source}.astype({self.obj(np.dtype(f'u{bits // 8}'))})"
                return low if dtype.kind == "u" else f"{low}.view({self.obj(dtype)})"
            if operand.bits > 1 and bits > 1:
                source = self.row(
                    (SIGNED if kind[0] == "s" else UNSIGNED)[operand.bits], operand.index
                )
                return f"{source}.astype({self.obj(DTYPE[kind])})"
            self.ins.unmodelled(f"operand {operand.text} has {operand.bits} bits, not {bits}")
        if isinstance(operand, Not):
            return f"(~{self.src(operand.reg, kind)})"
        if isinstance(operand, Imm):
            return self.immediate(operand, kind)
        if isinstance(operand, Special):
            if operand.name in DYNAMIC_SPECIAL:
                text = f"w.timer({operand.name!r})"
            else:
                text = f"w.special({operand.name!r})"
            return f"{text}.astype({self.obj(DTYPE[kind])})"
        if isinstance(operand, Symbol):
            return self.symbol(operand, kind)
        self.ins.unmodelled(f"operand {operand.text}")

    def symbol(self, operand: Symbol, kind: str) -> str:
        """Address row of a symbol."""
        target = operand.target
        if target is None:
            target = self.program.module.variables.get(operand.name) or (
                self.program.module.functions.get(operand.name)
            )
        if target is None:
            self.ins.unmodelled(f"{operand.name} is not declared")
        if isinstance(target, Function):
            return self.const(self.program.function_address(operand.name), kind)
        space = target.space
        dtype = self.obj(DTYPE[kind])
        if space in ("global", "const"):
            return self.const(target.offset + operand.offset, kind)
        if space == "shared":
            base = f"w.cta.symbols[{target.name!r}]"
        elif space == "local":
            base = f"(f.local_base + {target.offset})"
        elif space == "param" and self.program.is_entry_param(target, self.code.function):
            from .machine import PARAM_BASE

            return self.const(PARAM_BASE + target.offset + operand.offset, kind)
        else:
            self.ins.unmodelled(f"address of {space} variable {target.name}")
        return f"full({base} + {operand.offset}, {dtype})"

    def put(self, dst: Operand, kind: str, expr: str, ufunc: str = "", args: str = "") -> None:
        """Write a row of PTX type ``kind`` to a destination register.

        With ``ufunc`` the plain variant calls ``ufunc(args, destination)``; ``expr`` may then be
        empty and is built from the ufunc.
        """
        if not isinstance(dst, Reg):
            if dst.text == "_":
                return
            self.ins.unmodelled(f"destination {dst.text}")
        if ufunc and not expr:
            expr = f"{ufunc}({args})"
        bits, name = BITS[kind], TYPE_ROW[kind]
        mask = self.mask
        if dst.bits != bits:
            if dst.bits < bits or bits == 1:
                self.ins.unmodelled(f"destination {dst.text} has {dst.bits} bits, not {bits}")
            dtype = DTYPE[kind]
            if dtype.kind == "f":
                expr = f"{expr}.view({self.obj(np.dtype(f'u{bits // 8}'))})"
            name = (SIGNED if kind[0] == "s" else UNSIGNED)[dst.bits]
            ufunc = ""
            if mask is not None:
                expr = f"{expr}.astype({self.obj(np.dtype(ROWS[name][1]))})"
        elif name[0] == "x" and mask is not None:
            name = UNSIGNED[dst.bits]
            expr = f"({expr}).view({self.obj(np.dtype(ROWS[name][1]))})"
        target = self.row(name, dst.index)
        if mask is not None:
            self.lines.append(f"putmask({target}, {mask}, {expr})")
        elif ufunc:
            self.lines.append(f"{ufunc}({args}, {target})")
        else:
            self.lines.append(f"{target}[:] = {expr}")

    def source(self) -> str:
        """Give the text of the function."""
        head = ["def run(w, f, m):"]
        head += [f" {name} = f.{name}" for name in sorted(self.used)]
        return "\n".join(head + [" " + line for line in self.lines] + [" return"])


def _keep(code: FunctionCode, row: np.ndarray) -> np.ndarray:
    """Share equal packed constants."""
    key = ("x", row.tobytes(), row.dtype.str)
    found = code.names.get("_packed")
    if found is None:
        found = code.names["_packed"] = {}
    return found.setdefault(key, row)


_BASE_NAMES: dict[str, Any] = {
    "np": np,
    "putmask": np.putmask,
    "full": lambda v, d: np.full(LANES, v, d),
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "invert": np.invert,
    "negative": np.negative,
    "absolute": np.abs,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "where": np.where,
    "sqrt": np.sqrt,
    "copysign": np.copysign,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "isnan": np.isnan,
    "left_shift": np.left_shift,
    "right_shift": np.right_shift,
    "logical_not": np.logical_not,
}
for _module, _prefix in (
    (arith, "i_"),
    (floats, "f_"),
    (access_shared, "m_"),
    (access, "m_"),
    (convert, "c_"),
):
    for _name in dir(_module):
        if not _name.startswith("_") and callable(getattr(_module, _name)):
            _BASE_NAMES[_prefix + _name] = getattr(_module, _name)
