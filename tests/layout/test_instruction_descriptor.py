"""Instruction descriptors against the reference's vectors and the shape table (case C67)."""

from __future__ import annotations

import pytest

from nbtc.errors import LayoutError
from nbtc.layout.instruction_descriptor import KINDS, InstructionDescriptor

ID = InstructionDescriptor


@pytest.mark.parametrize(
    ("descriptor", "value"),
    [
        (ID("f16", 128, 256, "float16", "float16", "float32"), 0x08400010),
        (ID("f16", 128, 256, "bfloat16", "bfloat16", "float32"), 0x08400490),
        (ID("tf32", 128, 128, "tfloat32", "tf32", "f32"), 0x08200910),
        (ID("i8", 128, 128, "int8", "int8", "int32"), 0x082004A0),
        (ID("mxf8f6f4", 128, 128, "e4m3", "e4m3", scale="ue8m0"), 0x08A00000),
        (ID("mxf4nvf4", 128, 128, "e2m1", "e2m1", scale="ue4m3"), 0x08200480),
    ],
)
def test_vectors(descriptor, value):
    assert descriptor.encode() == value
    assert ID.decode(value, descriptor.kind) == descriptor


@pytest.mark.parametrize(
    "descriptor",
    [
        ID("f16", 64, 8, "f16", "f16", "f16", negate_a=True, transpose_b=True),
        ID("f16", 32, 64, "bf16", "bf16", max_shift=32, sparse=True, selector=1),
        ID("f8f6f4", 256, 240, "e2m1", "e3m2", transpose_a=True, negate_b=True),
        ID("i8", 64, 24, "u8", "s8", "s32", saturate=True),
        ID("mxf8f6f4", 256, 256, "e5m2", "e2m3", sfa_id=3, sfb_id=1, transpose_a=True),
        ID("mxf4", 128, 8, "e2m1", "e2m1", sfa_id=2, k96=True),
    ],
)
def test_round_trip(descriptor):
    assert ID.decode(descriptor.encode(), descriptor.kind) == descriptor
    assert descriptor.encode() < 1 << 32


def refused(message, function, *args, **options):
    with pytest.raises(LayoutError, match=message):
        function(*args, **options)


def test_c67_shapes():
    refused("N=512: one instruction takes at most 256; split", ID, "f16", 128, 512, "bf16", "bf16")
    refused("N=12: must be a multiple of 8", ID, "f16", 128, 12, "bf16", "bf16")
    f16 = ID("f16", 128, 24, "bf16", "bf16")
    f16.check(1)
    refused(r"N=24 with kind::f16, cta_group::2: must be a multiple of 16", f16.check, 2)
    refused("M=256 with kind::f16, cta_group::1: must be 64 or 128",
            ID("f16", 256, 64, "bf16", "bf16").check, 1)  # fmt: skip
    refused("M=64 with kind::mxf4, cta_group::1: must be 128",
            ID("mxf4", 64, 64, "e2m1", "e2m1").check, 1)  # fmt: skip
    refused("N=40 with kind::i8", ID("i8", 128, 40, "s8", "s8", "s32").check, 1)
    ID("i8", 128, 24, "s8", "s8", "s32").check(1)
    refused("N=48 with kind::i8, cta_group::2: must be a multiple of 32",
            ID("i8", 128, 48, "s8", "s8", "s32").check, 2)  # fmt: skip
    ws = ID("f16", 32, 64, "f16", "f16")
    ws.check(ws=True)
    refused("M=32 with kind::f16, cta_group::1", ws.check)
    refused(
        "N=256 with kind::f16, ws", ID("f16", 32, 256, "f16", "f16", sparse=True).check, ws=True
    )
    refused("transposed 8-bit B: must be a multiple of 16",
            ID("f8f6f4", 128, 24, "e4m3", "e4m3", transpose_b=True).check)  # fmt: skip
    refused("M=128 with kind::mxf4, cta_group::2: must be 256 when sparse",
            ID("mxf4", 128, 64, "e2m1", "e2m1", sparse=True).check, 2)  # fmt: skip


def test_c70_a_in_tmem():
    descriptor = ID("f16", 128, 64, "bf16", "bf16", transpose_a=True)
    descriptor.check()
    refused("A from TMEM must be K-major", descriptor.check, a_in_tmem=True)


def test_types_and_modifiers():
    refused("operand A f16 with kind::tf32", ID, "tf32", 128, 64, "f16", "tf32")
    refused("D f16 with A bf16", ID, "f16", 128, 64, "bf16", "bf16", "f16")
    refused("D f32 with kind::i8", ID, "i8", 128, 64, "s8", "s8")
    refused("kind::i8 cannot negate", ID, "i8", 128, 64, "s8", "s8", "s32", negate_a=True)
    refused("scale type ue4m3 with kind::mxf8f6f4", ID, "mxf8f6f4", 128, 64, "e4m3", "e4m3",
            scale="ue4m3")  # fmt: skip
    refused("must be K-major", ID, "mxf4", 128, 64, "e2m1", "e2m1", transpose_b=True)
    refused("takes no scale factors", ID, "f16", 128, 64, "f16", "f16", scale="ue8m0")
    refused("kind 'f64'", ID, "f64", 128, 64, "f16", "f16")


@pytest.mark.parametrize("kind", KINDS)
def test_decode_refuses_reserved_bits(kind):
    value = {"f16": 0x08400490, "tf32": 0x08200910, "f8f6f4": 0x08200010, "i8": 0x082004A0,
             "mxf8f6f4": 0x08A00000, "mxf4": 0x08A00480, "mxf4nvf4": 0x08200480}[kind]  # fmt: skip
    assert ID.decode(value, kind).encode() == value
    refused("reserved bits 0x40 are set", ID.decode, value | 1 << 6, kind)
    refused("A type code", ID.decode, value & ~(7 << 7) | 6 << 7, kind)


def test_k():
    assert [ID(k, 128, 64, a, a, d).k for k, a, d in [
        ("f16", "f16", "f32"), ("tf32", "tf32", "f32"), ("i8", "s8", "s32"),
        ("mxf4", "e2m1", "f32"),
    ]] == [16, 8, 32, 64]  # fmt: skip
    assert ID("f16", 128, 64, "f16", "f16", sparse=True).k == 32
