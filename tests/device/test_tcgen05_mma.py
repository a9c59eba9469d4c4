"""The tcgen05 instructions of a k-block: which are issued on what, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

from nbtc import jit
from nbtc.device import tcgen05_mma, tmem_epilogue
from nbtc.errors import DtypeError, InstructionError, LayoutError
from nbtc.intrinsics import address, tcgen05
from nbtc.ptx import registers

BF16_128_256 = 0x08400490  # bf16 x bf16 -> f32, M 128, N 256, K-major


def _block(kind="f16", a="bfloat16", b="bfloat16", m=128, n=256, k=64, group: Any = 1, a_major="K"):
    d_type = "int32" if kind == "i8" else "float32"

    def kernel(d, start):
        tmem, tile = address.tmem(d), address.shared(start)
        tcgen05_mma.block(tmem, tile, tile + 65536, start == 0, kind, a, b, d_type, m, n, k, group,
                          a_major)  # fmt: skip
        tcgen05.commit(tile, cta_group=group)

    return jit(kernel).compile("uint32", "uint32", arch="sm_100a")


def _mma(compiled):
    return re.findall(r"tcgen05\.mma\S+ \[(%\w+)\], (%\w+), (%\w+), (%\w+|\d+)", compiled.ptx)


@pytest.mark.ptxas
def test_k_steps_of_a_block():
    made = _block()
    found = _mma(made)
    assert len(found) == made.count("UTCHMMA") == 4
    assert len({d for d, *_ in found}) == 1
    assert str(BF16_128_256) in made.ptx
    # The start field moves by 32 bytes, in units of 16, from one step to the next.
    steps = [re.search(rf"add\.s64 \s*{a}, %\w+, (\d+);", made.ptx) for _, a, *_ in found[1:]]
    assert [m and int(m[1]) & 0x3FFF for m in steps] == [2, 4, 6]
    # Only the first one may start the sum; the others always add.
    assert len(re.findall(r"setp\.ne\.b32 %q_scale_d, 1, 0;", made.ptx)) == 3


@pytest.mark.ptxas
@pytest.mark.parametrize(
    ("parameters", "opcode", "count"),
    [
        ({"kind": "tf32", "a": "tfloat32", "b": "tfloat32", "k": 32}, "UTCHMMA", 4),
        ({"kind": "i8", "a": "int8", "b": "uint8", "k": 128}, "UTCIMMA", 4),
        ({"kind": "f8f6f4", "a": "e4m3", "b": "e2m1", "k": 256}, "UTCQMMA", 8),
        ({"m": 256, "group": 2, "k": 128, "a_major": "MN"}, "UTCHMMA", 8),
    ],
)
def test_kinds(parameters, opcode, count):
    assert _block(**parameters).count(opcode) == count


def test_refused_blocks():
    with pytest.raises(InstructionError, match="kind='f64'; legal: f16, tf32"):
        _block(kind="f64")
    with pytest.raises(InstructionError, match="'mxf4' has scales; use block_scaled"):
        _block(kind="mxf4")
    with pytest.raises(LayoutError, match="M=256 with kind::f16, cta_group::1: must be 64 or 128"):
        _block(m=256)
    with pytest.raises(LayoutError, match=r"k-block of 72.*multiple of 16"):
        _block(k=72)
    with pytest.raises(LayoutError, match="operand A s8 with kind::f16"):
        _block(a="int8")

    def not_tensor_memory(start):
        tile = address.shared(start)
        tcgen05_mma.block(tile, tile, tile, True, "f16", "float16", "float16", "float32", 128, 64,
                          64)  # fmt: skip

    with pytest.raises(InstructionError, match="needs a tensor-memory address"):
        jit(not_tensor_memory).compile("uint32", arch="sm_100a")


def _scaled(kind, dtype, scale, size, k, n=128):
    words = tcgen05_mma.scale_words(k, size)

    def kernel(d, start):
        tmem, tile = address.tmem(d), address.shared(start)
        tcgen05_mma.copy_scales(tmem + 256, tile, 128, words)
        tcgen05_mma.copy_scales(tmem + 384, tile, n, words)
        tcgen05_mma.block_scaled(tmem, tile, tile + 65536, tmem + 256, tmem + 384, start == 0, kind,
                                 dtype, dtype, scale, size, 128, n, k)  # fmt: skip
        tcgen05.commit(tile)

    return jit(kernel).compile("uint32", "uint32", arch="sm_100a")


@pytest.mark.ptxas
@pytest.mark.parametrize(
    ("arguments", "opcode", "count", "copies", "codes"),
    [
        # One factor a step: each step takes another byte (bits 4-5 and 29-30) of the same word.
        (("mxf8f6f4", "e4m3", "ue8m0", 32, 128), "UTCQMMA", 4, 2, 4),
        (("mxf8f6f4", "e4m3", "ue8m0", 32, 128, 256), "UTCQMMA", 4, 3, 4),
        # Two factors a step: the halves of a word in turn.
        (("mxf4", "e2m1", "ue8m0", 32, 256), "UTCOMMA", 4, 4, 2),
        # Four: a word each.
        (("mxf4nvf4", "e2m1", "ue4m3", 16, 256), "UTCOMMA", 4, 8, 1),
    ],
)
def test_scale_factors(arguments, opcode, count, copies, codes):
    made = _scaled(*arguments)
    assert made.count(opcode) == count
    assert made.count("UTCCP") == copies
    words = {code for *_, code in _mma(made)}
    assert len(words) == codes


def test_refused_scale_factors():
    with pytest.raises(InstructionError, match="'mxf8f6f4' with blocks of 16; legal: mxf8f6f4"):
        _scaled("mxf8f6f4", "e4m3", "ue8m0", 16, 128)
    with pytest.raises(LayoutError, match="scale type ue4m3 with kind::mxf4; must be ue8m0"):
        _scaled("mxf4", "e2m1", "ue4m3", 32, 256)


def test_containers():
    assert tcgen05_mma.container("f8f6f4", "e2m1") == "uint8"
    assert tcgen05_mma.container("mxf8f6f4", "e3m2") == "uint8"
    assert tcgen05_mma.container("mxf4nvf4", "e2m1") == "float4_e2m1fn"
    assert tcgen05_mma.container("f8f6f4", "e4m3") == "float8_e4m3fn"
    assert tcgen05_mma.operand(128, 32, "tf32", "tfloat32", "MN").swizzle == "128B_ATOM_32B"
    assert tcgen05_mma.operand(64, 128, "f8f6f4", "e4m3", "MN").swizzle == "64B"


def test_refused_stores():
    def kernel(out, start):
        values = registers.zeros(32)
        tmem_epilogue.store(values, out, address.shared(start), 0, 0, "int32")

    with pytest.raises(DtypeError, match="float32 registers cannot be stored as int32"):
        jit(kernel).compile("TensorMap", "uint32", arch="sm_100a")

    def wide(out, start):
        values = registers.zeros(64)
        tmem_epilogue.store(values, out, address.shared(start), 0, 0, "float32")

    with pytest.raises(InstructionError, match="64 columns of float32 are 256 bytes"):
        jit(wide).compile("TensorMap", "uint32", arch="sm_100a")
