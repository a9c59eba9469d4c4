"""Emitters of floating-point arithmetic in all formats."""

from __future__ import annotations

from .codegen import Gen
from .emit_base import INTS, PLAIN, emitter, operands, rounding
from .program import Instruction, Operand


class Floats:
    """Expression builder for one float type with ``.ftz`` and ``.sat``."""

    def __init__(self, gen: Gen, ins: Instruction, kind: str) -> None:
        """Look at the modifiers."""
        self.gen, self.ins, self.kind = gen, ins, kind
        self.ftz = "ftz" in ins.mods and kind not in ("bf16", "bf16x2", "f64")
        self.sat = "sat" in ins.mods
        self.relu = "relu" in ins.mods
        self.half = kind in ("bf16", "bf16x2")

    def src(self, operand: Operand) -> str:
        """Read an operand; bfloat16 is widened to float32."""
        text = self.gen.src(operand, self.kind)
        if self.half:
            text = f"f_bf16_to_f32({text})"
        return f"f_ftz({text})" if self.ftz else text

    @property
    def plain(self) -> bool:
        """Say whether results need no further treatment."""
        return not (self.ftz or self.sat or self.relu or self.half)

    def put(self, dst: Operand, expr: str) -> None:
        """Finish (flush, saturate, narrow) and write."""
        if self.ftz:
            expr = f"f_ftz({expr})"
        if self.sat:
            expr = f"f_saturate({expr})"
        if self.relu:
            expr = f"f_relu({expr})"
        if self.half:
            expr = f"f_f32_to_bf16({expr})"
        self.gen.put(dst, self.kind, expr)


def mixed(gen: Gen, ins: Instruction, name: str, kind: str) -> None:
    """``add.f32.f16 d, a, c``: the first source is 16 bits wide."""
    dst, a, b = operands(ins, 3)
    x = (
        f"f_bf16_to_f32({gen.src(a, kind)})"
        if kind == "bf16"
        else (f"{gen.src(a, kind)}.astype(np.float32)")
    )
    y = gen.src(b, "f32")
    mode = rounding(ins)
    expr = (
        f"{PLAIN[name]}({x}, {y})" if mode == "rn" else f"f_arith_f32({name!r}, {x}, {y}, {mode!r})"
    )
    gen.put(dst, "f32", f"f_saturate({expr})" if "sat" in ins.mods else expr)


def float_binary(
    gen: Gen, ins: Instruction, name: str, kind: str, dst: Operand, a: Operand, b: Operand
) -> None:
    """``add sub mul`` of any float type and rounding."""
    f = Floats(gen, ins, kind)
    if kind not in ("f16", "bf16", "f32", "f64", "f16x2", "bf16x2", "f32x2"):
        ins.unmodelled(f"type .{kind}")
    x, y = f.src(a), f.src(b)
    mode = rounding(ins)
    if mode == "rn":
        if f.plain:
            gen.put(dst, kind, "", PLAIN[name], f"{x}, {y}")
        else:
            f.put(dst, f"{PLAIN[name]}({x}, {y})")
        return
    width = "f64" if kind == "f64" else "f32"
    if kind not in ("f32", "f64", "f32x2"):
        ins.unmodelled(f"rounding .{mode} of .{kind}")
    f.put(dst, f"f_arith_{width}({name!r}, {x}, {y}, {mode!r})")


@emitter("fma")
def fma(gen: Gen, ins: Instruction) -> None:
    """``fma`` of all float types."""
    kind = ins.parts[-1]
    dst, a, b, c = operands(ins, 4)
    mode = rounding(ins)
    if "oob" in ins.mods:
        ins.unmodelled("fma.rn.oob")
    if len(ins.parts) > 2 and ins.parts[-2] == "f32" and kind in ("f16", "bf16"):
        x, y = (
            f"f_bf16_to_f32({gen.src(o, kind)})"
            if kind == "bf16"
            else f"{gen.src(o, kind)}.astype(np.float32)"
            for o in (a, b)
        )
        expr = f"f_fma_f32({x}, {y}, {gen.src(c, 'f32')}, {mode!r})"
        gen.put(dst, "f32", f"f_saturate({expr})" if "sat" in ins.mods else expr)
        return
    f = Floats(gen, ins, kind)
    x, y, z = f.src(a), f.src(b), f.src(c)
    if kind in ("f32", "f32x2"):
        f.put(dst, f"f_fma_f32({x}, {y}, {z}, {mode!r})")
    elif kind == "f64":
        gen.put(dst, kind, f"f_fma_f64({x}, {y}, {z}, {mode!r})")
    elif kind in ("f16", "f16x2"):
        wide = f"({x}.astype(np.float64) * {y} + {z})"
        f.put(dst, f"{wide}.astype(np.float16)")
    elif f.half:
        wide = f"({x}.astype(np.float64) * {y} + {z})"
        f.put(dst, f"f_odd_f32({wide})")
    else:
        ins.unmodelled(f"type .{kind}")


@emitter("min", "max")
def min_max(gen: Gen, ins: Instruction) -> None:
    """``min``/``max`` of integers and floats, two or three inputs."""
    kind, low = ins.parts[-1], ins.parts[0] == "min"
    dst, sources = ins.operands[0], ins.operands[1:]
    if kind in INTS or kind in ("s16x2", "u16x2"):
        expr = (
            f"{'minimum' if low else 'maximum'}({gen.src(sources[0], kind)}, "
            f"{gen.src(sources[1], kind)})"
        )
        if "relu" in ins.mods:
            expr = f"maximum({expr}, {expr}.dtype.type(0))"
        gen.put(dst, kind, expr)
        return
    f = Floats(gen, ins, kind)
    magnitude = "xorsign" if "xorsign" in ins.mods else ("abs" if "abs" in ins.mods else "")
    expr = f.src(sources[0])
    for source in sources[1:]:
        if "NaN" in ins.mods or magnitude:
            expr = f"f_minmax({expr}, {f.src(source)}, {low}, {'NaN' in ins.mods}, {magnitude!r})"
        else:
            expr = f"f_{'minimum' if low else 'maximum'}({expr}, {f.src(source)})"
    f.relu = False
    f.put(dst, expr)


@emitter("sqrt", "rcp", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh")
def unary(gen: Gen, ins: Instruction) -> None:
    """Square roots, reciprocals and approximations."""
    name, kind = ins.parts[0], ins.parts[-1]
    dst, a = operands(ins, 2)
    f = Floats(gen, ins, kind)
    x = f.src(a)
    mode = rounding(ins)
    approximate = "approx" in ins.mods
    if kind == "f64" and approximate and "ftz" in ins.mods and name in ("rcp", "rsqrt"):
        gen.put(dst, kind, f"f_{name}64h({x})")
    elif name == "sqrt":
        f.put(dst, f"sqrt({x})" if mode == "rn" else f"f_sqrt_mode({x}, {mode!r})")
    elif name == "rcp" and mode != "rn" and not approximate:
        f.put(dst, f"f_arith_{kind}('div', np.ones_like({x}), {x}, {mode!r})")
    else:
        f.put(dst, f"f_{name}({x})")


@emitter("copysign")
def copysign(gen: Gen, ins: Instruction) -> None:
    """``copysign d, a, b``: the sign of a, the rest of b."""
    kind = ins.parts[-1]
    dst, a, b = operands(ins, 3)
    gen.put(dst, kind, "", "copysign", f"{gen.src(b, kind)}, {gen.src(a, kind)}")


@emitter("testp")
def testp(gen: Gen, ins: Instruction) -> None:
    """``testp``."""
    kind = ins.parts[-1]
    dst, a = operands(ins, 2)
    gen.put(dst, "pred", f"f_testp({gen.src(a, kind)}, {ins.parts[1]!r})")
