"""The PTX parser: scopes, positions, directives, initialisers, errors."""

from __future__ import annotations

import pytest

from nbtc.emulator import parse
from nbtc.emulator.program import Addr, Imm, Pair, Reg, Sink, Special, Symbol, Vec
from nbtc.errors import EmulatorError

HEAD = ".version 8.8\n.target sm_90a\n.address_size 64\n"


def kernel(body: str, head: str = "", tail: str = "") -> str:
    return f"{HEAD}{head}\n.visible .entry k(.param .u64 p)\n{{\n{body}\nret;\n}}\n{tail}"


def instructions(text: str, name: str = "k"):
    return [i for b in parse(text).functions[name].blocks for i in b.instructions]


def test_operands():
    ins = instructions(
        kernel(
            """
.reg .pred p; .reg .b32 r<4>; .reg .b64 rd<3>; .reg .f32 f;
mov.u32 r0, %tid.x;
@!p ld.global.v2.b32 {r1, r2}, [rd0+-8];
setp.lt.and.s32 p|_, r0, -5, !p;
cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [r0], [rd1, {r1, 64}], [r2];
mov.f32 f, 0f3F800000; mov.b64 rd2, 0d3FF0000000000000; mov.b64 rd2, {r0, r1};
prmt.b32 r0, r1, r2, 0x3340U;
mov.u64 rd0, p1+16;
""",
            head=".global .align 4 .b8 p1[64];",
        )
    )
    assert isinstance(ins[0].operands[1], Special)
    load = ins[1]
    assert load.guard.text == "!p"
    assert [type(o) for o in load.operands] == [Vec, Addr]
    assert (load.operands[1].base.text, load.operands[1].offset) == ("rd0", -8)
    assert isinstance(ins[2].operands[0], Pair)
    assert isinstance(ins[2].operands[0].second, Sink)
    assert ins[2].operands[2].value == -5
    tensor = ins[3].operands[1]
    assert [type(o) for o in tensor.coords.items] == [Reg, Imm]
    assert "shared::cta" in ins[3].mods
    assert "mbarrier::complete_tx::bytes" in ins[3].mods
    assert (ins[4].operands[1].value, ins[4].operands[1].float_bits) == (0x3F800000, 32)
    assert ins[7].operands[3].value == 0x3340
    assert isinstance(ins[8].operands[1], Symbol)
    assert ins[8].operands[1].offset == 16


def test_scopes_shadow_registers_and_labels():
    text = kernel("""
.reg .b32 r; .reg .pred q;
mov.u32 r, 1;
{ .reg .b32 r; .reg .pred done; mov.u32 r, 2;
  wait: setp.eq.u32 done, r, 2; @!done bra.uni wait; }
{ .reg .pred done;
  wait: setp.eq.u32 done, r, 1; @!done bra wait; }
mov.u32 r, 3;
""")
    function = parse(text).functions["k"]
    moves = [i for b in function.blocks for i in b.instructions if i.op == "mov.u32"]
    assert moves[0].operands[0].index == moves[2].operands[0].index
    assert moves[1].operands[0].index != moves[0].operands[0].index
    targets = [
        b.instructions[-1].operands[0].target
        for b in function.blocks
        if b.instructions[-1].op.startswith("bra")
    ]
    assert len(set(targets)) == 2
    assert all(
        b.successors[0] == b.number
        for b in function.blocks
        if b.instructions[-1].op.startswith("bra")
    )


def test_locations_with_inlining_and_names_from_debug_sections():
    text = kernel(
        """
.reg .b32 r;
.loc 1 10 3
mov.u32 r, 1;
.loc 2 20 1, function_name $L__info_string0, inlined_at 1 10 3
mov.u32 r, 2;
.loc 3 30 1, function_name $L__info_string1, inlined_at 2 20 1
mov.u32 r, 3;
""",
        tail="""
.file 1 "/src/kernel.py"
.file 2 "/src/helper.py"
.file 3 "/src/deep.py"
.section .debug_str
{
$L__info_string0:
.b8 104,101,108,112,0
$L__info_string1:
.b8 100,101,101,112
.b8 0
}
.section .debug_info { .b32 $L__info_string0 }
""",
    )
    ins = instructions(text)
    assert [(c.file, c.line) for c in ins[0].chain] == [("/src/kernel.py", 10)]
    assert [(c.file, c.line, c.function) for c in ins[1].chain] == [
        ("/src/helper.py", 20, "help"),
        ("/src/kernel.py", 10, "k"),
    ]
    assert [(c.file, c.line, c.function) for c in ins[2].chain] == [
        ("/src/deep.py", 30, "deep"),
        ("/src/helper.py", 20, "help"),
        ("/src/kernel.py", 10, "k"),
    ]
    assert ins[1].where == "/src/helper.py:20"


def test_variables_and_initialisers():
    module = parse(
        HEAD
        + """
.global .align 8 .u64 table[3] = {f, other+8, 7};
.const .align 4 .b8 short[6] = {1, 2, 3, 4, 255};
.global .f32 real = 0f40490FDB;
.global .u32 matrix[2][2] = {{1, 2}, {3, 4}};
.global .align 1 .b8 text[] = {104, 105, 0};
.common .global .align 8 .u64 common;
.extern .shared .align 128 .b8 dynamic[];
.shared .align 16 .b8 fixed[100];
.global .b8 other[32];
.func f() { ret; }
"""
    )
    v = module.variables
    assert v["table"].size == 24
    assert v["table"].relocs == {0: "f", 8: "other+8"}
    assert v["table"].init[16:] == (7).to_bytes(8, "little")
    assert v["short"].init == bytes([1, 2, 3, 4, 255, 0])
    assert v["real"].init == bytes.fromhex("DB0F4940")
    assert v["matrix"].size == 16
    assert v["matrix"].init[8] == 3
    assert v["text"].size == 3
    assert v["dynamic"].dynamic
    assert v["dynamic"].align == 128
    assert not v["fixed"].dynamic
    assert v["fixed"].size == 100


def test_directives_and_branch_targets():
    module = parse(
        HEAD
        + """
.entry k() .maxntid 128, 2, 1 .minnctapersm 2 .reqnctapercluster 2
{
.reg .b32 r;
.pragma "nounroll";
T: .branchtargets A, B;
mov.u32 r, %tid.x;
brx.idx r, T;
A: mov.u32 r, 1; bra C;
B: mov.u32 r, 2;
C: ret;
}
"""
    )
    function = module.functions["k"]
    assert function.directives["maxntid"] == (128, 2, 1)
    assert function.directives["reqnctapercluster"] == (2,)
    first = function.blocks[0]
    assert first.successors == [1, 2]
    assert first.ipdom == 3
    assert function.blocks[3].exit_only


def test_unused_labels_do_not_split_blocks():
    function = parse(
        kernel("$L__tmp0:\n.reg .b32 r;\nmov.u32 r, 1;\n$L__tmp1:\nmov.u32 r, 2;")
    ).functions["k"]
    assert len(function.blocks) == 1


def test_calls():
    text = (
        HEAD
        + """
.extern .func (.param .b32 out) vprintf(.param .b64 a, .param .b64 b);
.func (.reg .b32 y) twice(.reg .b32 x) { add.s32 y, x, x; ret; }
.entry k() {
.reg .b32 r;
call (r), twice, (5);
{ .param .b64 a; .param .b64 b; .param .b32 c;
  call.uni (c), vprintf, (a, b); }
ret; }
"""
    )
    calls = [i for i in instructions(text) if i.parts[0] == "call"]
    assert [o.text for o in calls[0].operands] == ["{r}", "twice", "{5}"]
    assert calls[1].operands[1].text == "vprintf"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("mov.u32 r9, 1;", "PTX line 7"),
        ("bra nowhere;", "label nowhere"),
        (".reg .b33 r;", "unknown register type"),
        ("mov.u32 §;", "cannot read"),
    ],
)
def test_errors_name_the_line(body, message):
    with pytest.raises(EmulatorError, match=message):
        parse(kernel(body))


def test_missing_brace():
    with pytest.raises(EmulatorError, match="closing brace"):
        parse(HEAD + ".entry k() { ret;")


def test_post_dominators_of_a_loop_with_a_break():
    function = parse(
        kernel("""
.reg .pred p; .reg .b32 r;
L: setp.eq.u32 p, r, 3; @p bra OUT;
setp.eq.u32 p, r, 4; @p bra OUT;
add.u32 r, r, 1; setp.lt.u32 p, r, 9; @p bra L;
OUT: mov.u32 r, 1;
""")
    ).functions["k"]
    out = next(b.number for b in function.blocks if "OUT" in b.labels)
    assert [b.ipdom for b in function.blocks if b.number != out] == [1, 2, out, out][
        : len(function.blocks) - 1
    ] or all(b.ipdom in (b.number + 1, out) for b in function.blocks if b.number != out)
    assert function.blocks[out].ipdom == -1


def test_lines_counted_on_inside_inline_assembly_are_ignored():
    body = """
.reg .b32 r<3>;
.loc 1 7 1
mov.u32 r0, 1;
// begin inline asm
mov.u32 r1, 2;
.loc 1 8 1
mov.u32 r2, 3;
// end inline asm
.loc 1 9 1
"""
    found = instructions(kernel(body, tail='.file 1 "kernel.py"\n'))
    assert [ins.chain[0].line for ins in found] == [7, 7, 7, 9]
