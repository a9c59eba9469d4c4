"""Loads, stores and atomics of every space and width, and their faults."""

from __future__ import annotations

import numpy as np
import pytest

from nbtc.emulator import launch
from nbtc.emulator.memory import GlobalMemory
from nbtc.errors import EmulatorError
from nbtc.layout.tensormap_description import TensorMapDescription

HEAD = ".version 8.8\n.target sm_100a\n.address_size 64\n"


def run(
    body: str,
    args: list,
    *,
    params: int | None = None,
    block: int = 32,
    grid: int = 1,
    top: str = "",
    **kwargs,
):
    """Run a body with pointers p0, p1, ... in a0, a1, ... and the thread in t."""
    count = len(args) if params is None else params
    names = ", ".join(f".param .u64 arg{i}" for i in range(count))
    loads = " ".join(f"ld.param.u64 a{i}, [arg{i}];" for i in range(count))
    text = f"""{HEAD}{top}
.visible .entry k({names}) {{
.reg .b64 a<8>; .reg .b64 d<9>; .reg .b32 r<40>; .reg .b16 h<20>; .reg .f32 f<16>; .reg .pred p<8>;
.reg .f64 g<4>; .reg .b32 t; .reg .b64 t8; .reg .b128 q<3>;
{loads}
mov.u32 t, %tid.x; mul.wide.u32 t8, t, 8;
{body}
ret; }}"""
    return launch(text, "k", grid=grid, block=block, args=args, **kwargs)


def test_widths_and_extension():
    source = np.arange(32 * 8, dtype=np.uint8) * 7 + 100
    out = np.zeros((6, 32), np.int64)
    report = run(
        """
add.u64 d0, a0, t8; mul.wide.u32 d1, t, 8; add.u64 d1, a1, d1;
ld.global.s8 d2, [d0];      st.global.b64 [d1], d2;
ld.global.u8 r0, [d0+1];    cvt.u64.u32 d2, r0; st.global.b64 [d1+256], d2;
ld.global.s16 r0, [d0+2];   cvt.s64.s32 d2, r0; st.global.b64 [d1+512], d2;
ld.global.s32 d2, [d0+4];   st.global.b64 [d1+768], d2;
ld.global.u16 h0, [d0+6];   cvt.u64.u16 d2, h0; st.global.b64 [d1+1024], d2;
ld.global.b64 d2, [d0];     st.global.b64 [d1+1280], d2;
""",
        [source, out],
    )
    assert report.ok, str(report)
    rows = source.reshape(32, 8)
    np.testing.assert_array_equal(out[0], rows[:, 0].view(np.int8))
    np.testing.assert_array_equal(out[1], rows[:, 1])
    np.testing.assert_array_equal(out[2], rows[:, 2:4].copy().view(np.int16)[:, 0])
    np.testing.assert_array_equal(out[3], rows[:, 4:8].copy().view(np.int32)[:, 0])
    np.testing.assert_array_equal(out[4], rows[:, 6:8].copy().view(np.uint16)[:, 0])
    np.testing.assert_array_equal(out[5], source.view(np.int64))


def test_vectors_up_to_256_bits_and_sinks():
    source = np.arange(256, dtype=np.uint32) * 3
    out = np.zeros(256, np.uint32)
    report = run(
        """
mul.wide.u32 d0, t, 32; add.u64 d1, a0, d0; add.u64 d2, a1, d0;
ld.global.nc.L1::no_allocate.v8.b32 {r0,r1,r2,r3,r4,r5,r6,_}, [d1];
st.global.v4.b32 [d2], {r3,r2,r1,r0};
st.global.v2.b32 [d2+16], {r4,r5};
""",
        [source, out],
    )
    assert report.ok, str(report)
    rows, got = source.reshape(32, 8), out.reshape(32, 8)
    np.testing.assert_array_equal(got[:, :4], rows[:, 3::-1])
    np.testing.assert_array_equal(got[:, 4:6], rows[:, 4:6])
    assert not got[:, 6:].any()


def test_128_bit_registers():
    source, out = np.arange(128, dtype=np.uint32), np.zeros(128, np.uint32)
    report = run(
        """
mul.wide.u32 d0, t, 16; add.u64 d1, a0, d0; add.u64 d2, a1, d0;
ld.global.b128 q0, [d1]; st.global.b128 [d2], q0;
""",
        [source, out],
    )
    assert report.ok, str(report)
    np.testing.assert_array_equal(out, source)


def test_predicated_load_keeps_the_destination():
    source, out = np.arange(32, dtype=np.uint32), np.zeros(32, np.uint32)
    report = run(
        """
mul.wide.u32 d0, t, 4; add.u64 d1, a0, d0; add.u64 d2, a1, d0;
setp.lt.u32 p0, t, 10; mov.u32 r0, 77; @p0 ld.global.u32 r0, [d1]; st.global.u32 [d2], r0;
""",
        [source, out],
    )
    assert report.ok
    np.testing.assert_array_equal(out, np.where(source < 10, source, 77))


def test_generic_addresses_reach_every_space():
    out = np.zeros((4, 32), np.uint32)
    report = run(
        """
.local .align 4 .b8 depot[128];
mul.wide.u32 d0, t, 4;
mov.u64 d1, sh; cvta.shared.u64 d1, d1; add.u64 d1, d1, d0;
add.u32 r0, t, 100; st.b32 [d1], r0;
mov.u32 r1, sh; shl.b32 r2, t, 2; add.u32 r1, r1, r2; ld.shared.u32 r3, [r1];
add.u64 d2, a0, d0; st.b32 [d2], r3;
mov.u64 d3, depot; cvta.local.u64 d3, d3; add.u64 d3, d3, d0;
add.u32 r0, t, 200; st.b32 [d3], r0; cvta.to.local.u64 d4, d3; ld.local.u32 r4, [d4];
st.global.u32 [d2+128], r4;
mov.u64 d5, numbers; cvta.const.u64 d5, d5; and.b64 d6, d0, 15; add.u64 d5, d5, d6;
ld.b32 r5, [d5]; st.global.u32 [d2+256], r5;
isspacep.shared p0, d1; isspacep.local p1, d3; isspacep.global p2, d2; isspacep.global p3, d1;
selp.u32 r6, 1, 0, p0; selp.u32 r7, 2, 0, p1; selp.u32 r8, 4, 0, p2; selp.u32 r9, 8, 0, p3;
or.b32 r6, r6, r7; or.b32 r6, r6, r8; or.b32 r6, r6, r9; st.global.u32 [d2+384], r6;
""",
        [out],
        top=".shared .align 4 .b8 sh[128]; .const .align 4 .u32 numbers[4] = {5, 6, 7, 8};",
    )
    assert report.ok, str(report)
    lanes = np.arange(32)
    np.testing.assert_array_equal(out[0], lanes + 100)
    np.testing.assert_array_equal(out[1], lanes + 200)
    np.testing.assert_array_equal(out[2], lanes % 4 + 5)
    assert (out[3] == 7).all()


def test_global_variables_with_addresses():
    out = np.zeros(2, np.uint64)
    top = ".global .align 8 .u32 word[2] = {11, 22};\n.global .align 8 .u64 pointer[1] = {word+4};"
    report = run(
        """
ld.global.u64 d0, [pointer]; ld.global.u32 r0, [d0]; cvt.u64.u32 d1, r0;
setp.eq.u32 p0, t, 0; @p0 st.global.u64 [a0], d1;
""",
        [out],
        top=top,
    )
    assert report.ok, str(report)
    assert out[0] == 22


ATOMS = {
    "add.u32": (np.uint32, lambda v: sum(v) & 0xFFFFFFFF),
    "min.s32": (np.int32, min),
    "max.u32": (np.uint32, max),
    "and.b32": (np.uint32, None),
    "or.b32": (np.uint32, None),
    "xor.b32": (np.uint32, None),
    "add.u64": (np.uint64, lambda v: sum(v) & (2**64 - 1)),
    "max.s64": (np.int64, max),
    "add.f32": (np.float32, sum),
    "add.f64": (np.float64, sum),
}


@pytest.mark.parametrize("name", ATOMS)
@pytest.mark.parametrize("space", ["global", "shared"])
def test_atomics(name, space):
    dtype, reference = ATOMS[name]
    rng = np.random.default_rng(1)
    values = rng.integers(0, 50, 32).astype(dtype)
    start = dtype(40)
    size = np.dtype(dtype).itemsize
    out, old = np.array([start], dtype), np.zeros(32, dtype)
    bank = "r" if size == 4 else "d"
    place = "d2" if space == "global" else "sh"
    body = f"""
mul.wide.u32 d0, t, {size}; add.u64 d1, a1, d0; ld.global.b{size * 8} {bank}7, [d1];
mov.u64 d2, a0; ld.global.b{size * 8} {bank}6, [a0];
setp.eq.u32 p0, t, 0; @p0 st.shared.b{size * 8} [sh], {bank}6; bar.warp.sync -1;
atom.relaxed.gpu.{space}.{name} {bank}5, [{place}], {bank}7;
add.u64 d3, a2, d0; st.global.b{size * 8} [d3], {bank}5; bar.warp.sync -1;
ld.shared.b{size * 8} {bank}6, [sh];
"""
    if space == "shared":
        body += f"@p0 st.global.b{size * 8} [a0], {bank}6;"
    report = run(body, [out, values, old], top=".shared .align 8 .b8 sh[8];")
    assert report.ok, str(report)
    if reference is None:
        function = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[name[:-4]]
        want = function.reduce(np.append(values, start))
    else:
        want = reference([start.item(), *values.tolist()])
    assert out[0] == want
    if name == "add.u32":
        np.testing.assert_array_equal(
            np.sort(old), np.sort(40 + np.concatenate([[0], np.cumsum(values)[:-1]]))
        )


def test_more_atomics():
    words = np.array([5, 5, 3, 9], np.uint32)
    halves = np.zeros(2, np.float16)
    vector = np.zeros(4, np.float32)
    short = np.array([7, 0], np.uint16)
    wide = np.array([1, 2], np.uint64)
    report = run(
        """
mov.u32 r0, 6; mov.u32 r1, 8;
atom.global.inc.u32 r2, [a0], 9; red.global.dec.u32 [a0+4], 100;
atom.global.exch.b32 r3, [a0+8], t; atom.global.cas.b32 r4, [a0+12], 9, 1000;
mov.b32 r5, 0x3C003C00; red.global.add.noftz.f16x2 [a1], r5;
mov.f32 f0, 0f3F800000; red.global.add.v4.f32 [a2], {f0, f0, f0, f0};
mov.b16 h0, 7; mov.b16 h1, 9; atom.global.cas.b16 h2, [a3], h0, h1;
mov.u64 d0, 11; mov.b128 q0, {d0, d0}; atom.global.exch.b128 q1, [a4], q0;
""",
        [words, halves, vector, short, wide],
    )
    assert report.ok or {f.kind for f in report.findings} <= {"race"}, report
    value = 5
    for _ in range(32):
        value = 0 if value >= 9 else value + 1
    assert words[0] == value
    value = 5
    for _ in range(32):
        value = 100 if value == 0 or value > 100 else value - 1
    assert words[1] == value
    assert words[2] == 31
    assert words[3] == 1000
    assert (halves == 32).all()
    assert (vector == 32).all()
    assert short.tolist() == [9, 0]
    assert wide.tolist() == [11, 11]


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        ("add.u64 d0, a0, 2; ld.global.u32 r0, [d0];", "misaligned", "not a multiple of 4"),
        ("ld.global.u32 r0, [a0+128];", "out_of_bounds", "byte offset 128"),
        ("ld.global.v4.u32 {r0,r1,r2,r3}, [a0+120];", "misaligned", "multiple of 16"),
        ("mov.u64 d0, 0; st.global.u32 [d0], t;", "out_of_bounds", "null pointer"),
        ("ld.shared.u32 r0, [4];", "out_of_bounds", "shared"),
        ("mov.u32 r1, sh; ld.shared.u32 r0, [r1+64];", "out_of_bounds", "64 bytes"),
        ("mov.u32 r1, sh; ld.shared.u32 r0, [r1+2];", "misaligned", "multiple of 4"),
        (
            "mov.u32 r1, sh; add.u32 r1, r1, 0x1000000; st.shared.u32 [r1], t;",
            "out_of_bounds",
            "rank 1",
        ),
        ("mov.u64 d0, a0; atom.global.add.u32 r0, [d0+3], 1;", "misaligned", "multiple of 4"),
        ("trap;", "trap", "trap"),
    ],
)
def test_faults_are_findings(body, kind, text):
    report = run(body, [np.zeros(32, np.uint32)], top=".shared .align 4 .b8 sh[64];")
    assert [f.kind for f in report.findings] == [kind], report
    assert text in report.findings[0].message
    assert report.findings[0].cta == (0, 0, 0)
    assert report.findings[0].warp == 0


def test_read_before_write_in_shared_memory():
    out = np.zeros(32, np.uint32)
    report = run(
        """
mov.u32 r1, sh; shl.b32 r2, t, 2; add.u32 r1, r1, r2;
setp.lt.u32 p0, t, 16; @p0 st.shared.u32 [r1], t; ld.shared.u32 r0, [r1];
mul.wide.u32 d0, t, 4; add.u64 d0, a0, d0; st.global.u32 [d0], r0;
""",
        [out],
        top=".shared .align 4 .b8 sh[128];",
    )
    assert [f.kind for f in report.findings] == ["uninitialised_read"]


def test_arrays_that_share_memory_and_views():
    base = np.arange(64, dtype=np.float32)
    body = """
mul.wide.u32 d0, t, 4; add.u64 d1, a0, d0; add.u64 d2, a1, d0; setp.lt.u32 p0, t, 16;
@p0 ld.global.f32 f0, [d1]; @p0 st.global.f32 [d2], f0;
"""
    report = run(body, [base[:16], base[32:48]])
    assert report.ok, str(report)
    np.testing.assert_array_equal(base[32:48], np.arange(16))
    report = run(body.replace("16", "17"), [base[:16], base[32:48]])
    assert [f.kind for f in report.findings] == ["out_of_bounds"]
    report = run("sub.u64 d0, a1, a0; setp.ne.u64 p0, d0, 128; @p0 trap;", [base[:16], base[32:]])
    assert report.ok, str(report)


def test_read_only_array():
    data = np.zeros(32, np.uint32)
    data.flags.writeable = False
    report = run("st.global.u32 [a0], t;", [data])
    assert [f.kind for f in report.findings] == ["out_of_bounds"]
    assert "read-only" in report.findings[0].message


@pytest.mark.parametrize(
    "body",
    [
        "st.global.u32 [a0], t;",
        "st.global.v4.u32 [a0], {t, t, t, t};",
        "red.global.add.u32 [a0], 1;",
        "atom.global.cas.b32 r0, [a0], 0, 1;",
        "discard.global.L2 [a0], 128;",
        "tensormap.replace.tile.global_address.global.b1024.b64 [a0], a0;",
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
        "[a0], [sh], 128;",
        "@p0 cp.async.bulk.global.shared::cta.bulk_group [a0], [sh], 128;\n"
        "@p0 cp.async.bulk.commit_group; @p0 cp.async.bulk.wait_group 0;",
    ],
)
def test_immutable_memory_is_never_written(body):
    content = TensorMapDescription.tiled((64, 64), "float32", (32, 32)).pack(0)
    data, before = np.frombuffer(content, np.uint8), bytes(bytearray(content))
    fill = """
setp.eq.u32 p0, t, 0; mov.u32 r1, sh; shl.b32 r2, t, 2; add.u32 r1, r1, r2;
st.shared.u32 [r1], t; fence.proxy.async.shared::cta; bar.sync 0;
"""
    report = run(fill + body, [data], top=".shared .align 128 .b8 sh[128];\n")
    assert [f.kind for f in report.findings] == ["out_of_bounds"], str(report)
    assert "argument 0 (uint8 128), which is read-only" in report.findings[0].message
    assert data.tobytes() == before


def test_an_engine_that_forgets_to_ask_cannot_write_immutable_memory():
    memory = GlobalMemory()
    content = bytes(range(64))
    memory.add_arrays([("constant", np.frombuffer(content, np.uint8))])
    (region,) = memory.regions
    for view in (region.data, *region.views.values()):
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 99
    assert content == bytes(range(64))


def test_bank_conflicts_are_counted_by_line():
    report = run(
        """
mov.u32 r1, sh; shl.b32 r2, t, 7; add.u32 r1, r1, r2; st.shared.u32 [r1], t;
mov.u32 r1, sh; shl.b32 r2, t, 2; add.u32 r1, r1, r2; st.shared.u32 [r1], t;
""",
        [],
        top=".shared .align 16 .b8 sh[4096];",
    )
    assert sum(report.bank_conflicts.values()) == 31


def test_kernel_parameters_by_value_and_by_address():
    text = (
        HEAD
        + """
.visible .entry k(.param .u64 out, .param .align 16 .b8 block[32], .param .u32 n, .param .f32 x) {
.reg .b64 a, d, e; .reg .b32 r<4>; .reg .f32 f; .reg .b32 t;
ld.param.u64 a, [out]; ld.param.v2.u32 {r0, r1}, [block+8]; ld.param.u32 r2, [n];
ld.param.f32 f, [x]; st.global.v2.u32 [a], {r0, r1}; st.global.u32 [a+8], r2;
st.global.f32 [a+12], f;
mov.b64 d, block; cvta.param.u64 e, d; ld.u32 r3, [e+16]; st.global.u32 [a+16], r3;
ld.param.u32 r3, [d+20]; st.global.u32 [a+20], r3;
ret; }"""
    )
    out = np.zeros(6, np.uint32)
    block = np.arange(8, dtype=np.uint32).tobytes()
    report = launch(text, grid=1, block=1, args=[out, block, -1, 2.5])
    assert report.ok, str(report)
    assert out.tolist() == [2, 3, 0xFFFFFFFF, 0x40200000, 4, 5]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([np.zeros(4), 1], "takes 3 parameters"),
        ([np.zeros(4), 2**32, 1.0], "takes -2147483648..4294967295, got 4294967296"),
        ([np.zeros(4), 1.5, 1.0], "takes an integer"),
        ([np.zeros(4), None, 1.0], "not a pointer"),
        ([np.zeros(4), np.zeros(3), 1.0], "not a pointer"),
        ([np.zeros(4), 1, "x"], "takes a number"),
    ],
)
def test_bad_arguments(args, message):
    text = HEAD + (".visible .entry k(.param .u64 a, .param .u32 n, .param .f32 x) { ret; }")
    with pytest.raises(EmulatorError, match=message):
        launch(text, grid=1, block=32, args=args)


def test_bad_launches():
    text = HEAD + ".visible .entry k() .reqntid 64 { ret; }\n.visible .entry j() { ret; }"
    for kwargs, message in [
        ({"entry": None, "block": 64}, "2 kernels"),
        ({"entry": "x", "block": 64}, "no kernel"),
        ({"entry": "k", "block": 32}, "reqntid"),
        ({"entry": "j", "block": 2048}, "at most 1024"),
        ({"entry": "j", "block": 32, "completion": "soon"}, "completion"),
        ({"entry": "j", "block": 32, "cluster": 2, "grid": 3}, "multiple"),
        ({"entry": "j", "block": 32, "cluster": 32, "grid": 32}, "at most 16"),
    ]:
        with pytest.raises(EmulatorError, match=message):
            launch(text, **{"grid": 1, "args": [], **kwargs})
    with pytest.raises(EmulatorError, match="232448"):
        run("mov.u32 r0, dyn;", [], top=".extern .shared .b8 dyn[];", dynamic_smem=300000)


def test_unmodelled_instruction_is_an_error_with_its_place():
    text = (
        HEAD
        + """
.visible .entry k() { .reg .b32 r;
.loc 1 42 1
vset.s32.s32.eq r, r, r;
ret; }
.file 1 "/src/user.py"
"""
    )
    with pytest.raises(EmulatorError, match=r"vset\.s32.*user\.py:42.*unknown instruction"):
        launch(text, grid=1, block=32, args=[])


def test_bulk_store_zeroes_shared_memory():
    out = np.ones(32, np.uint32)
    body = """
mov.u32 r1, sh; setp.eq.u32 p0, t, 0; mov.u64 d1, {size};
@p0 st.bulk.weak.shared::cta [r1], d1, 0; bar.warp.sync -1;
shl.b32 r2, t, 2; add.u32 r1, r1, r2; ld.shared.u32 r3, [r1];
mul.wide.u32 d0, t, 4; add.u64 d0, d0, a0; st.global.u32 [d0], r3;
"""
    top = ".shared .align 16 .b8 sh[128];"
    report = run(body.format(size=128), [out], top=top)
    assert report.ok, str(report)
    assert not out.any()
    report = run(body.format(size=136), [out], top=top)
    assert [f.kind for f in report.findings] == ["out_of_bounds"]
    report = run(body.format(size=64), [out], top=top)
    assert [f.kind for f in report.findings] == ["uninitialised_read"]


def test_array_at_an_odd_place_in_its_buffer():
    base = np.arange(80, dtype=np.uint32)
    report = run(
        """
mul.wide.u32 d0, t, 8; add.u64 d1, a0, d0; ld.global.u64 d2, [d1+4]; add.u64 d2, d2, 1;
st.global.u64 [d1+4], d2;
""",
        [base[1:70]],
    )
    assert report.ok, str(report)
    want = np.arange(80)
    want[2:66:2] += 1
    np.testing.assert_array_equal(base, want)
