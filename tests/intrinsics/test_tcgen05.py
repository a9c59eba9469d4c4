"""tcgen05 and cluster launch control in kernels: text, machine code, and every illegal use."""

from __future__ import annotations

import re

import pytest
from numba import cuda, types

from nbtc import arch as arch_module
from nbtc import jit
from nbtc.errors import ArchError, InstructionError
from nbtc.intrinsics import address, clc, tcgen05, wgmma
from nbtc.ptx import registers
from nbtc.ptx.spec import REGISTRY

BF16_128_256 = 0x08400490  # bf16 x bf16 -> f32, M 128, N 256, K-major
BF16_256_256 = 0x10400490
SPARSE_A = BF16_128_256 | 1 << 2
TRANSPOSED_A = BF16_128_256 | 1 << 15


@pytest.fixture(autouse=True)
def _no_disk_cache(monkeypatch):
    monkeypatch.setenv("NBTC_CACHE_DIR", "")


def _tile(out, start, stages):
    slot = cuda.shared.array(1, types.uint32)
    bar = cuda.shared.array(1, types.uint64)
    tcgen05.alloc(slot, 256)
    tcgen05.relinquish_alloc_permit()
    cuda.syncthreads()
    d = address.tmem(slot[0])
    a = tcgen05.matrix_descriptor(
        address.shared(start), swizzle="128B", leading_bytes=16, stride_bytes=1024
    )
    for stage in range(stages):
        tcgen05.mma_f16(d, a, a + 1024, BF16_128_256, stage != 0)
        tcgen05.mma_f16(d, a + 2, a + 1026, BF16_128_256)
    tcgen05.commit(bar)
    tcgen05.fence_after_thread_sync()
    lane = cuda.threadIdx.x
    for half in range(2):
        r = tcgen05.wait_ld(tcgen05.ld_32x32b(d + 128 * half, num=128))
        out[lane, 2 * half] = r[0]
        out[lane, 2 * half + 1] = r[127]
    cuda.syncthreads()
    tcgen05.dealloc(d, 256)


@pytest.mark.parametrize("arch", ["sm_100a", "sm_100f", "sm_103a"])
def test_a_tile(arch):
    made = jit(_tile).compile("float32[:, ::1]", "uint32", "int32", arch=arch)
    assert made.notes == ()
    assert made.resources.spill_bytes == made.resources.stack_bytes == 0
    assert made.count("UTCHMMA") == made.ptx.count("tcgen05.mma")
    assert made.count("LDTM") == made.ptx.count("tcgen05.ld") >= 1
    assert made.count("LDL") == made.count("STL") == 0
    # Nothing comes between the load and its wait.
    load = made.ptx.index("tcgen05.ld")
    between = made.ptx[load : made.ptx.index("tcgen05.wait::ld", load)]
    code = [line.strip() for line in between.splitlines() if not line.strip().startswith("//")]
    assert not [line for line in code[1:] if line and not line.startswith(".loc")]


def _every_kind(out, start, mask):
    a = address.descriptor_sm100(start)
    d = address.tmem(0)
    tcgen05.mma_tf32(d, a, a, 0x08200910, True, (mask, 0, 0, 1), scale_input_d=3)
    tcgen05.mma_i8(d, a, a, 0x082004A0, False, collector_a="fill")
    tcgen05.mma_f8f6f4_ts(d, d + 256, a, 0x08200010, ashift=True, collector_a="lastuse")
    tcgen05.mma_sp_f16(d, a, a, d + 300, 0x08400494)
    tcgen05.mma_mxf8f6f4(d, a, a, 0x08A00000, d + 400, d + 404, scale_vec="scale_vec::1X")
    tcgen05.mma_mxf4nvf4(d, a, a, 0x08200480, d + 400, d + 404, mask != 0, scale_vec="block16")
    tcgen05.mma_ws_f16(d, a, a, 0x04400490, True, start, collector_b="b1::use")
    tcgen05.cp(d, a, shape="32x128b", multicast="warpx4")
    tcgen05.cp(d, a, shape="128x256b", decompress="b4x16_p64")
    tcgen05.shift_down(d)


_EVERY_KIND = [
    r"mma\.cta_group::1\.kind::tf32 \[T\], L, L, R, \{R, R, R, R\}, P, 3;",
    r"mma\.cta_group::1\.kind::i8\.collector::a::fill \[T\], L, L, R, P;",
    r"mma\.cta_group::1\.kind::f8f6f4\.ashift\.collector::a::lastuse \[T\], \[T\], L, R, P;",
    r"mma\.sp\.cta_group::1\.kind::f16 \[T\], L, L, \[T\], R, P;",
    r"mma\.cta_group::1\.kind::mxf8f6f4\.block_scale\.scale_vec::1X \[T\], L, L, R, \[T\], "
    r"\[T\], P;",
    r"mma\.cta_group::1\.kind::mxf4nvf4\.block_scale\.block16 \[T\], L, L, R, \[T\], \[T\], P;",
    r"mma\.ws\.cta_group::1\.kind::f16\.collector::b1::use \[T\], L, L, R, P, L;",
    r"cp\.cta_group::1\.32x128b\.warpx4 \[T\], L;",
    r"cp\.cta_group::1\.128x256b\.b8x16\.b4x16_p64 \[T\], L;",
    r"shift\.cta_group::1\.down \[T\];",
]


def test_texts_as_the_isa_writes_them():
    made = jit(_every_kind).compile("float32[::1]", "uint64", "uint32", arch="sm_100a")
    for text in _EVERY_KIND:
        pattern = "tcgen05\\." + re.sub(r"(?<![A-Za-z0-9])[TR](?![A-Za-z0-9])", r"%r\\d+", text)
        pattern = re.sub(r"(?<![A-Za-z0-9])L(?![A-Za-z0-9])", r"%rd\\d+", pattern)
        pattern = re.sub(r"(?<![A-Za-z0-9])P(?![A-Za-z0-9])", r"%q_scale_d", pattern)
        assert re.search(pattern, made.ptx), pattern


def test_register_counts_of_loads():
    """By the table of the ISA: 1, 1, 2, 4 and 1 registers a repetition."""
    per = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}
    largest = {"32x32b": 128, "16x64b": 128, "16x128b": 64, "16x256b": 32, "16x32bx2": 128}
    for shape, factor in per.items():
        load, store = REGISTRY[f"tcgen05.ld_{shape}"], REGISTRY[f"tcgen05.st_{shape}"]
        numbers = set()
        for v in load.variants():
            assert load.results[0].resolve(v)[1] == factor * v.num
            numbers.add(v.num)
        assert max(numbers) == largest[shape]
        (regs,) = (o.kind for o in store.operands if o.name == "regs")
        assert all(regs.resolve(v)[1] == factor * v.num for v in store.variants())


def _hopper_descriptor(out, start):
    a = wgmma.matrix_descriptor(
        address.shared(0), swizzle="128B", leading_bytes=16, stride_bytes=1024
    )
    tcgen05.mma_f16(address.tmem(0), a, a, BF16_128_256)


def _b_in_tensor_memory(out, start):
    a = address.descriptor_sm100(start)
    tcgen05.mma_f16(address.tmem(0), a, address.tmem(256), BF16_128_256)


def _transposed_from_tensor_memory(out, start):
    a = address.descriptor_sm100(start)
    tcgen05.mma_f16_ts(address.tmem(0), address.tmem(256), a, TRANSPOSED_A)


def _pair_shape_alone(out, start):
    a = address.descriptor_sm100(start)
    tcgen05.mma_f16(address.tmem(0), a, a, BF16_256_256)


def _another_kind(out, start):
    a = address.descriptor_sm100(start)
    tcgen05.mma_f16(address.tmem(0), a, a, 0x08200910)


def _sparse_bit(out, start):
    a = address.descriptor_sm100(start)
    tcgen05.mma_f16(address.tmem(0), a, a, SPARSE_A)


def _240_columns(out, start):
    tcgen05.alloc(address.shared(0), 240)


def _short_mask(out, start):
    a = address.descriptor_sm100(start)
    tcgen05.mma_f16(address.tmem(0), a, a, BF16_128_256, True, (0, 0, 0, 0), cta_group=2)


def _shift_with_fill(out, start):
    a = address.descriptor_sm100(start)
    d = address.tmem(0)
    tcgen05.mma_f16_ts(d, d + 256, a, BF16_128_256, ashift=True, collector_a="fill")


def _copy_without_warps(out, start):
    tcgen05.cp(address.tmem(0), address.descriptor_sm100(start), shape="64x128b")


def _copy_with_warps(out, start):
    d, a = address.tmem(0), address.descriptor_sm100(start)
    tcgen05.cp(d, a, shape="128x256b", multicast="warpx4")


def _packed_floats(out, start):
    out[0] = tcgen05.ld_32x32b(address.tmem(0), num=8, pack=True)[0]


def _x128_of_256b(out, start):
    out[0] = tcgen05.ld_16x256b(address.tmem(0), num=64)[0]


def _wrong_registers(out, start):
    tcgen05.st_16x128b(address.tmem(0), registers.zeros(8), num=8)


def _no_vector_size(out, start):
    a = address.descriptor_sm100(start)
    d = address.tmem(0)
    tcgen05.mma_mxf4nvf4(d, a, a, 0x08200480, d + 400, d + 404)


def _number_as_address(out, start):
    tcgen05.dealloc(start, 256)


def _group_three(out, start):
    tcgen05.commit(address.shared(0), cta_group=3)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (_hopper_descriptor, ["a_desc", "wgmma descriptor", "build it for sm_100"]),
        (_b_in_tensor_memory, ["b_desc", "B must be in shared memory"]),
        (_transposed_from_tensor_memory, ["idesc", "A from TMEM must be K-major"]),
        (_pair_shape_alone, ["idesc", "M=256", "must be 64 or 128"]),
        (_another_kind, ["idesc", "of kind::f16", "A type code 2"]),
        (_sparse_bit, ["idesc", "is for a sparse A", "mma_sp_"]),
        (_240_columns, ["columns", "240", "32", "64", "128", "256", "512"]),
        (_short_mask, ["disable_lanes has 4 registers, needs 8 (4 * cta_group)"]),
        (_shift_with_fill, ["ashift=True", "'fill'", "'lastuse' or 'discard'"]),
        (_copy_without_warps, ["64x128b", "'warpx2::02_13' or 'warpx2::01_23'"]),
        (_copy_with_warps, ["128x256b", "multicast=''"]),
        (_packed_floats, ["pack=True", "dtype='u32'"]),
        (_x128_of_256b, ["num=64", "1, 2, 4, 8, 16, 32"]),
        (_wrong_registers, ["regs has 8 registers, needs 16 (2 * num)"]),
        (_no_vector_size, ["missing a required", "'scale_vec'"]),
        (_number_as_address, ["taddr is uint64", "address.tmem"]),
        (_group_three, ["cta_group=3", "1, 2"]),
    ],
)
def test_errors_name_the_rule_and_the_right_value(body, words):
    with pytest.raises(InstructionError) as info:
        jit(body).compile("float32[::1]", "uint64", arch="sm_100a")
    for word in words:
        assert word in str(info.value)


def _i8(out, start):
    a = address.descriptor_sm100(start)
    tcgen05.mma_i8(address.tmem(0), a, a, 0x082004A0)


def _scale_vec(out, start):
    a = address.descriptor_sm100(start)
    d = address.tmem(0)
    tcgen05.mma_mxf4(d, a, a, 0x08A00480, d + 400, d + 404, scale_vec="scale_vec::2X")


def _plain(out, start):
    tcgen05.wait_st()


@pytest.mark.parametrize(
    ("body", "arch", "words"),
    [
        (_plain, "sm_90a", "sm_100a"),
        (_plain, "sm_100", "arch='sm_100a'"),
        (_i8, "sm_103a", "sm_100a"),
        (_i8, "sm_100f", "sm_100a"),
        (_scale_vec, "sm_100f", "sm_100a or sm_103a"),
    ],
)
def test_targets_are_named_before_ptxas(body, arch, words):
    with pytest.raises(ArchError, match=words):
        jit(body).compile("float32[::1]", "uint64", arch=arch)


def test_consumer_blackwell_is_told_apart():
    with pytest.raises(ArchError, match="neither wgmma nor tcgen05"):
        arch_module.parse("sm_120a")


def _next_tile(out):
    response = cuda.shared.array(2, types.uint64)
    bar = cuda.shared.array(1, types.uint64)
    clc.try_cancel(response, bar)
    clc.try_cancel(response, bar, multicast=True)
    r = clc.load_response(response)
    if clc.query_is_canceled(r):
        x, y, z = clc.query_first_ctaid(r)
        out[0] = x
        out[1] = y
        out[2] = z
        out[3] = clc.query_first_ctaid_x(r)
        out[4] = clc.query_first_ctaid_y(r)
        out[5] = clc.query_first_ctaid_z(r)


def test_cluster_launch_control():
    made = jit(_next_tile).compile("uint32[::1]", arch="sm_100a")
    assert made.ptx.count("clusterlaunchcontrol.try_cancel.async.shared::cta") == 2
    assert made.ptx.count(".multicast::cluster::all.b128") == 1
    assert made.count("UGETNEXTWORKID") >= 2
    with pytest.raises(ArchError, match="sm_100"):
        jit(_next_tile).compile("uint32[::1]", arch="sm_90a")
