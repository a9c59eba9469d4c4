"""Emitters of arithmetic, logic, comparison, conversion and move instructions."""

from __future__ import annotations

import numpy as np

from . import convert
from .codegen import BITS, DTYPE, Gen
from .emit_base import INTS, PLAIN, emitter, operands, rounding
from .emit_float import Floats, float_binary, fma, mixed
from .program import Imm, Instruction, Operand, Pair, Reg


@emitter("add", "sub")
def add_sub(gen: Gen, ins: Instruction) -> None:
    """``add``/``sub``: integers, carry chains, floats, packed and mixed forms."""
    name, kind = ins.parts[0], ins.parts[-1]
    dst, a, b = operands(ins, 3)
    if "cc" in ins.mods:
        carry_chain(gen, ins)
        return
    if kind in INTS or kind in ("s16x2", "u16x2"):
        x, y = gen.src(a, kind), gen.src(b, kind)
        if "sat" in ins.mods:
            gen.put(dst, kind, f"i_saturate_add({x}, {y}, {name == 'sub'})")
        else:
            gen.put(dst, kind, "", PLAIN[name], f"{x}, {y}")
        return
    if len(ins.parts) > 2 and ins.parts[-2] == "f32" and kind in ("f16", "bf16"):
        mixed(gen, ins, name, kind)
        return
    float_binary(gen, ins, name, kind, dst, a, b)


@emitter("addc", "subc")
def carry_chain(gen: Gen, ins: Instruction) -> None:
    """``add.cc addc{.cc} sub.cc subc{.cc}``; the flag is a row of the frame."""
    kind = ins.parts[-1].replace("s", "u").replace("b", "u")
    dst, a, b = operands(ins, 3)
    subtract = ins.parts[0].startswith("sub")
    takes = ins.parts[0] in ("addc", "subc")
    function = "i_sub_carry" if subtract else "i_add_carry"
    carry = "f.carry" if takes else "None"
    gen.line(f"r, c = {function}({gen.src(a, kind)}, {gen.src(b, kind)}, {carry})")
    finish_carry(gen, ins, dst, kind)


def finish_carry(gen: Gen, ins: Instruction, dst: Operand, kind: str) -> None:
    """Store result ``r`` and, with ``.cc``, the flag ``c``."""
    gen.put(dst, kind, "r")
    if "cc" in ins.mods:
        if gen.mask is None:
            gen.line("f.carry = c")
        else:
            gen.line(f"f.carry = where({gen.mask}, c, f.carry)")


def low_high(gen: Gen, ins: Instruction, kind: str, a: str, b: str) -> tuple[str, str]:
    """Product expression and its type for lo/hi/wide."""
    if "wide" in ins.mods:
        return f"i_mul_wide({a}, {b})", f"{kind[0]}{int(kind[1:]) * 2}"
    if "hi" in ins.mods:
        return f"i_mul_hi({a}, {b})", kind
    return f"multiply({a}, {b})", kind


@emitter("mul")
def mul(gen: Gen, ins: Instruction) -> None:
    """``mul``."""
    kind = ins.parts[-1]
    dst, a, b = operands(ins, 3)
    if kind not in INTS:
        float_binary(gen, ins, "mul", kind, dst, a, b)
        return
    x, y = gen.src(a, kind), gen.src(b, kind)
    if "lo" in ins.mods:
        gen.put(dst, kind, "", "multiply", f"{x}, {y}")
        return
    expr, wide = low_high(gen, ins, kind, x, y)
    gen.put(dst, wide, expr)


@emitter("mad", "madc")
def mad(gen: Gen, ins: Instruction) -> None:
    """``mad`` integer (lo, hi, wide, carry) and float (as fma)."""
    kind = ins.parts[-1]
    if kind not in INTS:
        fma(gen, ins)
        return
    dst, a, b, c = operands(ins, 4)
    product, wide = low_high(gen, ins, kind, gen.src(a, kind), gen.src(b, kind))
    if "cc" in ins.mods or ins.parts[0] == "madc":
        unsigned = wide.replace("s", "u")
        carry = "f.carry" if ins.parts[0] == "madc" else "None"
        view = gen.obj(DTYPE[unsigned])
        gen.line(f"r, c = i_add_carry({product}.view({view}), {gen.src(c, unsigned)}, {carry})")
        finish_carry(gen, ins, dst, unsigned)
        return
    if "sat" in ins.mods:
        gen.put(dst, kind, f"i_saturate_add({product}, {gen.src(c, wide)}, False)")
        return
    gen.put(dst, wide, "", "add", f"{product}, {gen.src(c, wide)}")


@emitter("mul24", "mad24")
def mul24(gen: Gen, ins: Instruction) -> None:
    """24-bit multiply."""
    kind = ins.parts[-1]
    expr = (
        f"i_mul24({gen.src(ins.operands[1], kind)}, {gen.src(ins.operands[2], kind)}, "
        f"{'hi' in ins.mods})"
    )
    if ins.parts[0] == "mad24":
        expr = f"{expr} + {gen.src(ins.operands[3], kind)}"
    gen.put(ins.operands[0], kind, expr)


@emitter("div", "rem")
def div(gen: Gen, ins: Instruction) -> None:
    """``div``/``rem``."""
    kind = ins.parts[-1]
    dst, a, b = operands(ins, 3)
    if kind in INTS:
        gen.put(dst, kind, f"i_{ins.parts[0]}({gen.src(a, kind)}, {gen.src(b, kind)})")
        return
    f = Floats(gen, ins, kind)
    mode = rounding(ins)
    if mode != "rn":
        f.put(dst, f"f_arith_{kind}('div', {f.src(a)}, {f.src(b)}, {mode!r})")
    else:
        f.put(dst, f"divide({f.src(a)}, {f.src(b)})")


@emitter("abs", "neg")
def abs_neg(gen: Gen, ins: Instruction) -> None:
    """``abs``/``neg``: floats by sign bit."""
    kind, negate = ins.parts[-1], ins.parts[0] == "neg"
    dst, a = operands(ins, 2)
    if kind in INTS:
        gen.put(dst, kind, "", "negative" if negate else "absolute", gen.src(a, kind))
        return
    bits = BITS[kind]
    element = {"f16": 16, "bf16": 16, "f16x2": 16, "bf16x2": 16, "f32": 32, "f64": 64}[kind]
    sign = sum(1 << (i + element - 1) for i in range(0, bits, element))
    unsigned = f"u{bits}"
    text = gen.src(a, kind)
    if "ftz" in ins.mods:
        text = f"f_ftz({text}).view({gen.obj(DTYPE[unsigned])})"
    else:
        text = gen.src(a, unsigned)
    if negate:
        gen.put(dst, unsigned, "", "bitwise_xor", f"{text}, {gen.const(sign, unsigned)}")
    else:
        keep = ((1 << bits) - 1) ^ sign
        gen.put(dst, unsigned, "", "bitwise_and", f"{text}, {gen.const(keep, unsigned)}")


_LOGIC = {"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor"}


@emitter("and", "or", "xor")
def logic(gen: Gen, ins: Instruction) -> None:
    """Bitwise logic."""
    kind = ins.parts[-1]
    dst, a, b = operands(ins, 3)
    gen.put(dst, kind, "", _LOGIC[ins.parts[0]], f"{gen.src(a, kind)}, {gen.src(b, kind)}")


@emitter("not", "cnot")
def invert(gen: Gen, ins: Instruction) -> None:
    """``not`` and ``cnot`` (1 where zero)."""
    kind = ins.parts[-1]
    dst, a = operands(ins, 2)
    if ins.parts[0] == "cnot":
        gen.put(dst, kind, f"equal({gen.src(a, kind)}, 0).astype({gen.obj(DTYPE[kind])})")
    else:
        gen.put(dst, kind, "", "invert", gen.src(a, kind))


@emitter("shl", "shr")
def shift(gen: Gen, ins: Instruction) -> None:
    """``shl``/``shr`` with clamped amounts."""
    kind = ins.parts[-1]
    dst, a, n = operands(ins, 3)
    bits = BITS[kind]
    name = "left_shift" if ins.parts[0] == "shl" else "right_shift"
    if isinstance(n, Imm):
        amount = min(n.value & 0xFFFFFFFF, bits)
        gen.put(dst, kind, "", name, f"{gen.src(a, kind)}, {gen.const(amount, kind)}")
    elif bits == 32:
        view = "s32" if kind == "s32" else "u32"
        gen.put(dst, kind, "", name, f"{gen.src(a, kind)}, {gen.src(n, view)}")
    else:
        gen.put(dst, kind, f"i_{ins.parts[0]}({gen.src(a, kind)}, {gen.src(n, 'u32')})")


@emitter("shf")
def funnel(gen: Gen, ins: Instruction) -> None:
    """``shf.{l,r}.{clamp,wrap}.b32``."""
    dst, a, b, c = operands(ins, 4)
    gen.put(
        dst,
        "u32",
        f"i_shf({gen.src(a, 'u32')}, {gen.src(b, 'u32')}, {gen.src(c, 'u32')}, "
        f"{'l' in ins.mods}, {'wrap' in ins.mods})",
    )


@emitter("bfe")
def bfe(gen: Gen, ins: Instruction) -> None:
    """``bfe``."""
    kind = ins.parts[-1]
    dst, a, b, c = operands(ins, 4)
    gen.put(dst, kind, f"i_bfe({gen.src(a, kind)}, {gen.src(b, 'u32')}, {gen.src(c, 'u32')})")


@emitter("bfi")
def bfi(gen: Gen, ins: Instruction) -> None:
    """``bfi``."""
    kind = ins.parts[-1].replace("b", "u")
    dst, a, b, c, d = operands(ins, 5)
    gen.put(
        dst,
        kind,
        f"i_bfi({gen.src(a, kind)}, {gen.src(b, kind)}, {gen.src(c, 'u32')}, {gen.src(d, 'u32')})",
    )


@emitter("bmsk", "szext")
def mask_extend(gen: Gen, ins: Instruction) -> None:
    """``bmsk`` and ``szext``."""
    kind = ins.parts[-1].replace("b", "u")
    dst, a, b = operands(ins, 3)
    gen.put(
        dst,
        kind,
        f"i_{ins.parts[0]}({gen.src(a, kind)}, {gen.src(b, 'u32')}, {'clamp' in ins.mods})",
    )


@emitter("popc", "clz")
def count_bits(gen: Gen, ins: Instruction) -> None:
    """``popc``/``clz``: the result is 32 bits wide."""
    kind = ins.parts[-1].replace("b", "u")
    dst, a = operands(ins, 2)
    gen.put(dst, "u32", f"i_{ins.parts[0]}({gen.src(a, kind)})")


@emitter("brev")
def brev(gen: Gen, ins: Instruction) -> None:
    """``brev``."""
    kind = ins.parts[-1].replace("b", "u")
    dst, a = operands(ins, 2)
    gen.put(dst, kind, f"i_brev({gen.src(a, kind)})")


@emitter("bfind")
def bfind(gen: Gen, ins: Instruction) -> None:
    """``bfind{.shiftamt}``."""
    kind = ins.parts[-1]
    dst, a = operands(ins, 2)
    gen.put(dst, "u32", f"i_bfind({gen.src(a, kind)}, {'shiftamt' in ins.mods})")


@emitter("fns")
def fns(gen: Gen, ins: Instruction) -> None:
    """``fns.b32``."""
    dst, a, b, c = operands(ins, 4)
    gen.put(dst, "u32", f"i_fns({gen.src(a, 'u32')}, {gen.src(b, 'u32')}, {gen.src(c, 's32')})")


@emitter("prmt")
def prmt(gen: Gen, ins: Instruction) -> None:
    """``prmt.b32{.mode}``."""
    dst, a, b, c = operands(ins, 4)
    mode = ins.parts[2] if len(ins.parts) > 2 else ""
    gen.put(
        dst,
        "u32",
        f"i_prmt({gen.src(a, 'u32')}, {gen.src(b, 'u32')}, {gen.src(c, 'u32')}, {mode!r})",
    )


@emitter("lop3")
def lop3(gen: Gen, ins: Instruction) -> None:
    """``lop3.b32`` and ``lop3.{or,and}.b32 d|p, a, b, c, imm, q``."""
    dst = ins.operands[0]
    a, b, c = (gen.src(o, "u32") for o in ins.operands[1:4])
    table = ins.operands[4]
    if not isinstance(table, Imm):
        ins.unmodelled("lop3 with a table in a register")
    value = gen.temporary(f"i_lop3({a}, {b}, {c}, {table.value & 255})")
    if isinstance(dst, Pair):
        q = gen.src(ins.operands[5], "pred")
        gate = "&" if "and" in ins.mods else "|"
        gen.put(dst.second, "pred", f"(({value} != 0) {gate} {q})")
        dst = dst.first
    gen.put(dst, "u32", value)


@emitter("sad")
def sad(gen: Gen, ins: Instruction) -> None:
    """``sad``."""
    kind = ins.parts[-1]
    dst, a, b, c = operands(ins, 4)
    gen.put(dst, kind, f"i_sad({gen.src(a, kind)}, {gen.src(b, kind)}, {gen.src(c, kind)})")


@emitter("dp4a", "dp2a")
def dot_product(gen: Gen, ins: Instruction) -> None:
    """``dp4a``/``dp2a``."""
    dst, a, b, c = operands(ins, 4)
    a_kind, b_kind = ins.parts[-2], ins.parts[-1]
    types = {"dp4a": (np.int8, np.uint8), "dp2a": (np.int16, np.uint16)}[ins.parts[0]]
    a_type = gen.obj(types[a_kind[0] == "u"])
    b_type = gen.obj((np.int8, np.uint8)[b_kind[0] == "u"])
    tail = f", {'hi' in ins.mods}" if ins.parts[0] == "dp2a" else ""
    gen.put(
        dst,
        "u32",
        f"i_{ins.parts[0]}({gen.src(a, 'u32')}, {gen.src(b, 'u32')}, "
        f"{gen.src(c, 'u32')}, {a_type}, {b_type}{tail})",
    )


_COMPARE = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "lo": "less",
    "ls": "less_equal",
    "hi": "greater",
    "hs": "greater_equal",
}
_OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}


def compare(gen: Gen, ins: Instruction, kind: str, a: Operand, b: Operand) -> tuple[str, str]:
    """Give (ufunc, args) or ("", expression) of a comparison."""
    op = ins.parts[1]
    if kind in ("f16", "bf16", "f32", "f64", "f16x2", "bf16x2"):
        f = Floats(gen, ins, kind)
        x, y = f.src(a), f.src(b)
        if op == "num":
            return "", f"~(isnan({x}) | isnan({y}))"
        if op == "nan":
            return "", f"(isnan({x}) | isnan({y}))"
        if op == "ne":
            return "", f"(less({x}, {y}) | greater({x}, {y}))"
        if op == "neu":
            return "not_equal", f"{x}, {y}"
        if op == "equ":
            return "", f"~(less({x}, {y}) | greater({x}, {y}))"
        if op.endswith("u") and op[:-1] in _OPPOSITE:
            return "", f"~{_COMPARE[_OPPOSITE[op[:-1]]]}({x}, {y})"
        return _COMPARE[op], f"{x}, {y}"
    if op in ("lo", "ls", "hi", "hs"):
        kind = "u" + kind[1:]
    return _COMPARE[op], f"{gen.src(a, kind)}, {gen.src(b, kind)}"


def combined(gen: Gen, ins: Instruction, expr: str) -> str:
    """Apply ``.and .or .xor`` with the third source of setp/set."""
    for name, sign in (("and", "&"), ("or", "|"), ("xor", "^")):
        if ins.parts[2] == name:
            return f"({expr} {sign} {gen.src(ins.operands[3], 'pred')})"
    return expr


@emitter("setp")
def setp(gen: Gen, ins: Instruction) -> None:
    """``setp`` with one or two destinations and boolean combination."""
    kind = ins.parts[-1]
    dst, a, b = ins.operands[:3]
    ufunc, args = compare(gen, ins, kind, a, b)
    joined = ins.parts[2] in ("and", "or", "xor")
    if kind in ("f16x2", "bf16x2"):
        value = gen.temporary(f"{ufunc}({args})" if ufunc else args)
        if not isinstance(dst, Pair):
            ins.unmodelled("packed setp needs p|q")
        gen.put(dst.first, "pred", combined(gen, ins, f"{value}[0::2]"))
        gen.put(dst.second, "pred", combined(gen, ins, f"{value}[1::2]"))
        return
    if not isinstance(dst, Pair) and not joined:
        gen.put(dst, "pred", "" if ufunc else args, ufunc, args)
        return
    value = gen.temporary(f"{ufunc}({args})" if ufunc else args)
    if isinstance(dst, Pair):
        first = gen.temporary(combined(gen, ins, value))
        second = gen.temporary(combined(gen, ins, f"(~{value})"))
        gen.put(dst.first, "pred", first)
        gen.put(dst.second, "pred", second)
    else:
        gen.put(dst, "pred", combined(gen, ins, value))


@emitter("set")
def set_(gen: Gen, ins: Instruction) -> None:
    """``set``: all ones or 1.0 where true."""
    to, kind = ins.parts[-2], ins.parts[-1]
    dst, a, b = ins.operands[:3]
    ufunc, args = compare(gen, ins, kind, a, b)
    expr = combined(gen, ins, f"{ufunc}({args})" if ufunc else args)
    if to in ("f16x2", "bf16x2"):
        one = {"f16x2": 0x3C00, "bf16x2": 0x3F80}[to]
        packed = f"where({expr}, np.uint16({one}), np.uint16(0)).view(np.uint32)"
        gen.put(dst, "u32", packed)
        return
    bits = BITS[to]
    one = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80, "f64": 0x3FF0000000000000}.get(
        to, (1 << bits) - 1
    )
    gen.put(
        dst, f"u{bits}", f"where({expr}, {gen.const(one, f'u{bits}')}, {gen.const(0, f'u{bits}')})"
    )


@emitter("selp")
def selp(gen: Gen, ins: Instruction) -> None:
    """``selp``."""
    kind = ins.parts[-1]
    dst, a, b, p = operands(ins, 4)
    gen.put(dst, kind, f"where({gen.src(p, 'pred')}, {gen.src(a, kind)}, {gen.src(b, kind)})")


@emitter("slct")
def slct(gen: Gen, ins: Instruction) -> None:
    """``slct d, a, b, c``: a where c >= 0."""
    kind, test = ins.parts[-2], ins.parts[-1]
    dst, a, b, c = operands(ins, 4)
    gen.put(dst, kind, f"where({gen.src(c, test)} >= 0, {gen.src(a, kind)}, {gen.src(b, kind)})")


@emitter("cvt.pack")
def cvt_pack(gen: Gen, ins: Instruction) -> None:
    """``cvt.pack.sat``."""
    to = ins.parts[3]
    a, b = gen.src(ins.operands[1], "s32"), gen.src(ins.operands[2], "s32")
    c = gen.src(ins.operands[3], "u32") if len(ins.operands) > 3 else gen.const(0, "u32")
    gen.put(ins.operands[0], "u32", f"c_pack_sat({a}, {b}, {c}, {to!r})")


@emitter("cvt")
def cvt(gen: Gen, ins: Instruction) -> None:
    """``cvt``: scalar, packed and narrow formats."""
    to, source = convert.types_of(ins)
    dst = ins.operands[0]
    if to in ("f16x2", "bf16x2") and source == "f32" and "rs" not in ins.mods:
        function = gen.obj(convert.pack2(ins, to))
        a, b = gen.src(ins.operands[1], "f32"), gen.src(ins.operands[2], "f32")
        gen.put(dst, "u32", f"{function}({a}, {b})")
        return
    if (to in convert.DTYPES and source in convert.DTYPES) or (to == "tf32"):
        to, source, function = convert.scalar(ins)
        a = ins.operands[1]
        if to in INTS and source in INTS and "sat" not in ins.mods:
            integer_cvt(gen, dst, to, a, source)
            return
        gen.put(dst, to, f"{gen.obj(function)}({gen.src(a, source)})")
        return
    from .narrow import narrow_cvt

    narrow_cvt(gen, ins, to, source)


def integer_cvt(gen: Gen, dst: Operand, to: str, a: Operand, source: str) -> None:
    """Integer to integer: the assignment to the register row converts."""
    expr = gen.src(a, source)
    if isinstance(dst, Reg) and dst.bits == BITS[to] and gen.mask is None:
        gen.line(f"{gen.row(to, dst.index)}[:] = {expr}")
        return
    gen.put(dst, to, f"{expr}.astype({gen.obj(DTYPE[to])})")
