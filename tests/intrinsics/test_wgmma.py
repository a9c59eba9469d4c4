"""wgmma in kernels: machine code without detours, and every illegal use named."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
from numba import cuda, types

from nbtc import jit
from nbtc.errors import ArchError, InstructionError
from nbtc.intrinsics import address, fence, tcgen05, wgmma
from nbtc.ptx import registers
from nbtc.ptx.spec import REGISTRY


@pytest.fixture(autouse=True)
def _no_disk_cache(monkeypatch):
    monkeypatch.setenv("NBTC_CACHE_DIR", "")


def _bf16(n, count, pending):
    @jit
    def kernel(out, start, stages):
        base = address.shared(start)
        a = wgmma.matrix_descriptor(base, swizzle="128B", leading_bytes=16, stride_bytes=1024)
        d = registers.zeros(count)
        for stage in range(stages):
            d = wgmma.fence(d)
            d = wgmma.mma_async_bf16(d, a, a + 512, stage != 0, n=n)
            d = wgmma.mma_async_bf16(d, a + 2, a + 514, n=n)
            d = wgmma.mma_async_bf16(d, a + 4, a + 516, True, n=n)
            d = wgmma.mma_async_bf16(d, a + 6, a + 518, 1, n=n)
            wgmma.commit_group()
            d = wgmma.wait_group(d, n=pending)
        d = wgmma.wait_group(d, n=0)
        out[0] = d[0]
        out[1] = d[count - 1]

    return kernel.compile("float32[::1]", "uint32", "int32", arch="sm_90a")


@pytest.mark.parametrize(("n", "pending"), [(128, 0), (256, 0), (256, 1)])
def test_the_main_loop_is_what_was_written(n, pending):
    made = _bf16(n, n // 2, pending)
    assert made.notes == ()
    assert made.resources.spill_bytes == made.resources.stack_bytes == 0
    # The accumulator stays in its registers from the fence to the end of the loop.
    start = made.ptx.index("wgmma.fence")
    loop = made.ptx[start : made.ptx.index(" bra ", start)]
    stages = loop.count("wgmma.fence")  # libNVVM may unroll
    assert loop.count("wgmma.mma_async") == 4 * stages
    assert loop.count("wgmma.wait_group") == stages
    assert "mov.f32" not in loop
    assert made.count("HGMMA") == made.ptx.count("wgmma.mma_async")
    assert made.count("WARPGROUP.ARRIVE") == made.ptx.count("wgmma.fence")
    assert made.count("LDL") == made.count("STL") == 0


def _int8(out, start):
    a = address.descriptor_sm90(start)
    d = registers.zeros(48, "int32")
    for _ in range(int(out[1])):
        d = wgmma.fence(d)
        d = wgmma.mma_async_int8(d, a, a, n=96, a_type="u8", b_type="s8", satfinite=True)
        wgmma.commit_group()
        d = wgmma.wait_group(d, n=0)
    out[0] = d[47]


def _fp8_halves(out, start):
    a = address.descriptor_sm90(start)
    d = registers.zeros(16, "uint32")
    d = wgmma.fence(d)
    d = wgmma.mma_async_fp8(d, a, a, False, n=64, a_type="e4m3", b_type="e5m2", d_type="f16")
    wgmma.commit_group()
    d = wgmma.wait_group(d, n=0)
    out[0] = d[15]


def _f16_registers(out, start):
    b = address.descriptor_sm90(start)
    x = registers.zeros(4, "uint32")
    d = registers.zeros(4)
    x = wgmma.fence(x)
    d = wgmma.fence(d)
    d = wgmma.mma_async_f16_ra(d, x, b, n=8, scale_a=-1, trans_b=1)
    d = wgmma.mma_async_tf32_ra(d, x, b, n=8)
    wgmma.commit_group()
    d = wgmma.wait_group(d, n=0)
    out[0] = d[3]


def _sparse(out, start):
    a = address.descriptor_sm90(start)
    d = registers.zeros(4)
    d = wgmma.fence(d)
    d = wgmma.mma_async_sp_bf16(d, a, a, 0x44444444, n=8, selector=1)
    wgmma.commit_group()
    d = wgmma.wait_group(d, n=0)
    out[0] = d[3]


@pytest.mark.parametrize(
    ("body", "wanted", "opcode"),
    [
        (_int8, r"m64n96k32\.satfinite\.s32\.u8\.s8 \{.*\}, %rd\d+, %rd\d+, %q_scale_d;", "IGMMA"),
        (
            _fp8_halves,
            r"m64n64k32\.f16\.e4m3\.e5m2 \{.*\}, %rd\d+, %rd\d+, %q_scale_d, 1, 1;",
            "QGMMA",
        ),
        (
            _f16_registers,
            r"m64n8k16\.f32\.f16\.f16 \{.*\}, \{.*\}, %rd\d+, %q_scale_d, -1, 1, 1;",
            "HGMMA",
        ),
        (
            _sparse,
            r"mma_async\.sp\.sync\.aligned\.m64n8k32\.f32\.bf16\.bf16 \{.*\}, %rd\d+, "
            r"%rd\d+, %r\d+, 1, %q_scale_d, 1, 1, 0, 0;",
            "HGMMA",
        ),
    ],
    ids=["int8", "fp8", "registers", "sparse"],
)
def test_each_type_reaches_its_machine_instruction(body, wanted, opcode):
    made = jit(body).compile("float32[::1]", "uint64", arch="sm_90a")
    assert made.notes == ()
    assert re.search(wanted, made.ptx)
    assert made.count(opcode) == made.ptx.count("wgmma.mma_async")


def _use(**modifiers):
    """Compile one mma_async_bf16-like call whose modifiers are bare names of a closure."""
    n = modifiers.pop("n", 8)
    count = modifiers.pop("count", 4)
    scale = modifiers.pop("scale_d", True)

    @jit
    def kernel(out, start):
        a = address.descriptor_sm90(start)
        d = registers.zeros(count)
        d = wgmma.mma_async_bf16(d, a, a, scale, n=n)
        out[0] = d[0]

    kernel.compile("float32[::1]", "uint64", arch="sm_90a", notes="ignore")


@pytest.mark.parametrize("scale_d", [True, False, 0, 1])
def test_scale_d_takes_literals(scale_d):
    _use(scale_d=scale_d)


def _fp8_transposed(out, start):
    a = address.descriptor_sm90(start)
    d = registers.zeros(4)
    d = wgmma.mma_async_fp8(d, a, a, n=8, a_type="e4m3", b_type="e4m3", trans_b=1)
    out[0] = d[0]


def _tf32_transposed(out, start):
    a = address.descriptor_sm90(start)
    d = registers.zeros(4)
    d = wgmma.mma_async_tf32(d, a, a, n=8, trans_a=1)
    out[0] = d[0]


def _int8_n40(out, start):
    a = address.descriptor_sm90(start)
    d = registers.zeros(20, "int32")
    d = wgmma.mma_async_int8(d, a, a, n=40, a_type="s8", b_type="s8")
    out[0] = d[0]


def _blackwell_descriptor(out, start):
    a = address.descriptor_sm100(start)
    d = registers.zeros(4)
    d = wgmma.mma_async_bf16(d, a, a, n=8)
    out[0] = d[0]


def _number_as_descriptor(out, start):
    d = registers.zeros(4)
    d = wgmma.mma_async_bf16(d, start, start, n=8)
    out[0] = d[0]


def _wait_too_many(out, start):
    wgmma.wait_group(n=8)


def _wait_register(out, start):
    wgmma.wait_group(n=start)


def _forgot_n(out, start):
    a = address.descriptor_sm90(start)
    d = registers.zeros(4)
    d = wgmma.mma_async_bf16(d, a, a)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (_fp8_transposed, ["trans_b=1", "operand B must be K-major", "8-bit"]),
        (_tf32_transposed, ["trans_a=1", "operand A must be K-major", "tf32"]),
        (_int8_n40, ["n=40", "16..256 in steps of 16 or 8 or 24"]),
        (_blackwell_descriptor, ["a_desc", "tcgen05 descriptor", "wgmma", "sm_90"]),
        (_number_as_descriptor, ["a_desc", "uint64", "descriptor_sm90"]),
        (_wait_too_many, ["n=8", "0..7"]),
        (_wait_register, ["n is uint64", "compile-time constant"]),
        (_forgot_n, ["missing a required", "'n'"]),
    ],
)
def test_errors_name_the_rule_and_the_right_value(body, words):
    with pytest.raises(InstructionError) as info:
        jit(body).compile("float32[::1]", "uint64", arch="sm_90a")
    for word in words:
        assert word in str(info.value)


@pytest.mark.parametrize("n", [12, 0, 264, 4])
def test_illegal_n(n):
    with pytest.raises(InstructionError, match=rf"n={n}.*8\.\.256 in steps of 8"):
        _use(n=n)


def test_wrong_number_of_registers():
    with pytest.raises(InstructionError, match=r"d has 4 registers, needs 8 \(n / 2\)"):
        _use(n=16)


@pytest.mark.parametrize(("arch", "hint"), [("sm_90", "arch='sm_90a'"), ("sm_100a", "sm_90a")])
def test_other_targets_are_refused_before_ptxas(arch, hint):
    def body(out, start):
        wgmma.commit_group()

    with pytest.raises(ArchError, match=f"wgmma.*{hint}"):
        jit(body).compile("float32[::1]", "uint64", arch=arch)


def test_registers_and_shapes_of_every_variant():
    """Register counts by the table of the reference, independent of how they are declared."""
    bits = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "b1": 1}
    seen = 0
    for name, instruction in REGISTRY.items():
        if not name.startswith("wgmma.mma_async"):
            continue
        for v in instruction.variants():
            (d,) = instruction.results
            _, count = d.resolve(v)
            names = {o.name: "x" for o in instruction.operands} | {"ret": "x"}
            text = instruction.render(v, names)
            shape, types = re.search(
                r"aligned\.m64(n\d+k\d+)(?:\.satfinite)?\.([a-z0-9.]+) ", text
            ).groups()
            n, k = map(int, re.fullmatch(r"n(\d+)k(\d+)", shape).groups())
            d_type, a_type = types.split(".")[:2]
            assert count == (n // 4 if d_type == "f16" else n // 2)
            assert k * bits[a_type] == (512 if "_sp_" in name else 256)
            seen += 1
    assert seen > 1000


def test_a_tensor_memory_name_does_not_leak():
    assert not set(wgmma.__all__) & set(tcgen05.__all__) - {"matrix_descriptor"}


def _one_tile(out, a, b, fragments):
    t = cuda.threadIdx.x
    sa = cuda.shared.array(1024, types.uint16, alignment=128)
    sb = cuda.shared.array(128, types.uint16, alignment=128)
    for i in range(8):
        sa[t + 128 * i] = a[t + 128 * i]
    sb[t] = b[t]
    fence.proxy_async()
    cuda.syncthreads()
    a_desc = wgmma.matrix_descriptor(sa, swizzle="none", leading_bytes=128, stride_bytes=256)
    b_desc = wgmma.matrix_descriptor(sb, swizzle="none", leading_bytes=128, stride_bytes=256)
    ra = (fragments[t, 0], fragments[t, 1], fragments[t, 2], fragments[t, 3])
    ra = wgmma.fence(ra)
    d = wgmma.fence(registers.full(4, 7))
    d = wgmma.mma_async_bf16(d, a_desc, b_desc, False, n=8)  # what D held does not count
    d = wgmma.mma_async_bf16(d, a_desc, b_desc, n=8, scale_b=-1)
    d = wgmma.mma_async_bf16_ra(d, ra, b_desc, n=8)
    d = wgmma.mma_async_bf16_ra(d, ra, b_desc, n=8)
    wgmma.commit_group()
    d = wgmma.wait_group(d, n=0)
    row = 16 * (t // 32) + t % 32 // 4
    for j in range(2):
        out[row, 2 * (t % 4) + j] = d[0] if j == 0 else d[1]
        out[row + 8, 2 * (t % 4) + j] = d[2] if j == 0 else d[3]


def _core_matrices(x):
    """Rows of 16 bytes in 8-row core matrices, the next 16 bytes of K 128 bytes on."""
    rows, k = x.shape
    return x.reshape(rows // 8, 8, k // 8, 8).transpose(0, 2, 1, 3).ravel()


def test_a_tile_from_shared_memory_and_from_registers():
    rng = np.random.default_rng(1)
    a = rng.standard_normal((64, 16)).astype(ml_dtypes.bfloat16)
    b = rng.standard_normal((8, 16)).astype(ml_dtypes.bfloat16)  # row n holds B[:, n]
    thread, register, half = np.meshgrid(np.arange(128), np.arange(4), np.arange(2), indexing="ij")
    rows = 16 * (thread // 32) + thread % 32 // 4 + 8 * (register & 1)
    columns = 8 * (register >> 1) + 2 * (thread % 4) + half
    fragments = np.ascontiguousarray(a[rows, columns]).view(np.uint32)[..., 0]
    out = np.zeros((64, 8), np.float32)
    tiles = [_core_matrices(x).view(np.uint16).copy() for x in (a, b)]
    report = jit(_one_tile).emulate(1, 128, out, *tiles, fragments, arch="sm_90a")
    assert not report.findings
    wanted = 2 * a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5)
