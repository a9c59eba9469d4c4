"""Machine code and configurations of the Blackwell GEMM: what is compiled, and what is refused."""

from __future__ import annotations

import re

import pytest

from nbtc import gemm
from nbtc.errors import ArchError, LayoutError
from nbtc.gemm import BlackwellConfig

KERNELS = [
    # parameters, MMA opcode and its count, copies of scale factors, tensor-memory columns
    ({"cta_group": 1, "accumulators": 1, "schedule": "static"}, "UTCHMMA", 4, 0, 256),
    ({"dtype": "float16", "cta_group": 1, "accumulators": 1}, "UTCHMMA", 4, 0, 256),
    ({}, "UTCHMMA", 4, 0, 512),
    ({"schedule": "static"}, "UTCHMMA", 4, 0, 512),
    ({"dtype": "float8_e4m3fn"}, "UTCQMMA", 4, 0, 512),
    ({"dtype": "float8_e5m2", "b_dtype": "float4_e2m1fn"}, "UTCQMMA", 4, 0, 512),
    ({"dtype": "float32"}, "UTCHMMA", 4, 0, 512),
    ({"dtype": "int8"}, "UTCIMMA", 4, 0, 512),
    ({"dtype": "float8_e4m3fn", "block": 32}, "UTCQMMA", 4, 2, 512),
    ({"dtype": "float4_e2m1fn", "block": 32}, "UTCOMMA", 4, 4, 512),
    ({"dtype": "float4_e2m1fn", "block": 16}, "UTCOMMA", 4, 8, 512),
    ({"cluster": (2, 1)}, "UTCHMMA", 4, 0, 512),
]
MMA = ("UTCHMMA", "UTCQMMA", "UTCOMMA", "UTCIMMA")


@pytest.mark.ptxas
@pytest.mark.parametrize(
    ("parameters", "opcode", "count", "copies", "columns"),
    KERNELS,
    ids=[" ".join(f"{k}={v}" for k, v in case[0].items()) or "default" for case in KERNELS],
)
def test_machine_code(parameters, opcode, count, copies, columns):
    config = BlackwellConfig(**parameters)
    made = gemm.compile(arch="sm_100a", **{"dtype": config.dtype, **parameters})
    assert made.notes == ()
    resources = made.resources
    assert resources.spill_bytes == resources.stack_bytes == 0
    assert made.count("LDL") == made.count("STL") == 0
    assert resources.registers * config.threads <= 65536
    assert resources.dynamic_smem_bytes == config.layout.nbytes
    assert {name: made.count(name) for name in MMA if made.count(name)} == {opcode: count}
    assert made.count("UTCCP") == copies
    assert made.count("LDTM") == config.tile[1] // config.store_columns
    assert made.count("UTMASTG") >= 1
    assert made.count("UGETNEXTWORKID") == (config.schedule == "clc")
    listing = made.sass()
    # A stage and an accumulator are handed on by arrivals of the tensor core itself.
    assert len(re.findall(r"\bUTCBAR\b", listing)) >= 2
    assert bool(re.search(r"\bUTCBAR\.2CTA", listing)) == (config.cta_group == 2)
    assert not re.search(r"MEMBAR\.\w+\.(GPU|SYS)", listing)
    assert made.tmem_columns == config.tmem_columns == columns


@pytest.mark.ptxas
@pytest.mark.parametrize("arch", ["sm_100f", "sm_103a"])
def test_other_targets(arch):
    assert gemm.compile(arch=arch).count("UTCHMMA") == 4
    assert gemm.compile("float4_e2m1fn", arch=arch, block=16).count("UTCOMMA") == 4
    with pytest.raises(ArchError, match=f"mma_i8.*sm_100a, not {arch}|mma_i8.*{arch}"):
        gemm.compile("int8", arch=arch)


def test_refused_targets():
    with pytest.raises(ArchError, match="no kernel for sm_100; take sm_90a or sm_100a"):
        gemm.compile(arch="sm_100")
    with pytest.raises(ArchError, match="consumer Blackwell"):
        gemm.compile(arch="sm_120a")


def test_defaults():
    config = BlackwellConfig()
    assert config.tile == (256, 256, 64)
    assert (config.cta_group, config.accumulators, config.schedule) == (2, 2, "clc")
    assert config.stages == 6
    assert config.layout.nbytes <= 227 * 1024
    assert BlackwellConfig(dtype="float32").tile[2] == 32
    assert BlackwellConfig(dtype="float32").dtype == "tfloat32"
    assert BlackwellConfig(dtype="e4m3").out_dtype == "bfloat16"
    assert BlackwellConfig(dtype="int8").out_dtype == "int32"
    nvfp4 = BlackwellConfig(dtype="e2m1", block=16)
    assert (nvfp4.kind, nvfp4.scale, nvfp4.tile) == ("mxf4nvf4", "ue4m3", (256, 128, 256))
    single = nvfp4.replace(cta_group=1)
    assert (single.tile, single.stages) == ((128, 128, 256), 5)
    assert config.replace(dtype="e4m3").tile == (256, 256, 128)


def test_bytes_of_a_stage():
    config = BlackwellConfig(dtype="e3m2", b_dtype="e2m1", block=32, tile=(256, 128, 128))
    scales = 512 * (1 + 1)
    assert config.stage_bytes == 128 * 128 + 64 * 128 + scales  # a byte for each element
    assert config.transaction_bytes == 128 * 96 + 64 * 64 + scales  # TMA counts packed bytes


def test_store_buffers_are_filled_evenly():
    five = BlackwellConfig(tile=(0, 160, 0), out_dtype="float32")  # five pieces of 32 columns
    assert (five.store_columns, five.buffers) == (32, 1)
    assert BlackwellConfig(store_buffers=3).buffers == 2  # four pieces of 64
    assert BlackwellConfig(tile=(0, 192, 0), store_buffers=3).buffers == 3
    assert BlackwellConfig(tile=(0, 64, 0)).buffers == 1


@pytest.mark.parametrize(
    ("wrong", "parts"),
    [
        ({"dtype": "float64"}, ["dtype='float64'", "bfloat16"]),
        ({"dtype": "float16", "b_dtype": "bfloat16"}, ["b_dtype='bfloat16'", "mix"]),
        ({"dtype": "int8", "b_dtype": "e4m3"}, ["b_dtype='float8_e4m3fn'"]),
        ({"out_dtype": "int32"}, ["out_dtype='int32'", "kind::f16", "'float32'"]),
        ({"dtype": "int8", "out_dtype": "float32"}, ["kind::i8", "'int32'"]),
        ({"tile": (128, 256, 64)}, ["tile M=128", "cta_group=2", "128 * 2 = 256"]),
        ({"cta_group": 1, "tile": (256, 128, 64)}, ["tile M=256", "128 * 1 = 128"]),
        ({"cta_group": 3}, ["cta_group=3", "1, 2"]),
        ({"tile": (0, 288, 0)}, ["tile N=288", "32..256"]),
        ({"tile": (0, 40, 0)}, ["tile N=40", "multiple of 32"]),
        ({"tile": (0, 0, 48)}, ["tile K=48", "48 * 16 / 8 = 96 B", "multiple of 64"]),
        ({"tile": (-1, 0, 0)}, ["tile=(-1, 0, 0)", ">= 0"]),
        ({"tile": (0, 64)}, ["tile=(0, 64)", "3 integers"]),
        ({"tile": (0, 32, 512), "a_major": "MN", "stages": 1}, ["K=512", "MN-major A", "256"]),
        ({"dtype": "e2m1", "a_major": "MN"}, ["A is MN-major float4_e2m1fn", "K-major"]),
        ({"dtype": "e4m3", "block": 32, "b_major": "MN"}, ["B is MN-major"]),
        ({"dtype": "e4m3", "block": 64}, ["block=64", "32"]),
        ({"dtype": "e4m3", "block": 16}, ["blocks of 16", "nvfp4"]),
        ({"dtype": "e2m1", "block": 32, "scale": "ue4m3"}, ["block=32", "scale='ue4m3'"]),
        ({"block": 32}, ["block=32", "bfloat16", "float8_e4m3fn"]),
        ({"scale": "ue8m0"}, ["scale='ue8m0'", "without blocks"]),
        ({"dtype": "e4m3", "block": 32, "tile": (0, 64, 0)}, ["tile N=64", "128 or 256"]),
        ({"cluster": (4, 2)}, ["2 * 4 * 2 <= 8"]),
        ({"cluster": (0, 1)}, ["cluster=(0, 1)", ">= 1"]),
        ({"cluster": (1, 3)}, ["A tile of 128", "128 / 8 = 16", "multiple of 3"]),
        ({"stages": 8}, ["stages=8 do not fit", "227 KiB"]),
        ({"stages": -1}, ["stages=-1", ">= 0"]),
        ({"accumulators": 3}, ["accumulators=3", "0, 1, 2"]),
        ({"claims": 0}, ["claims=0", ">= 1"]),
        ({"schedule": "grouped"}, ["schedule='grouped'", "'clc', 'static'"]),
        ({"policies": ("", "", "last")}, ["'last'", "evict_first"]),
        (
            {"dtype": "e2m1", "block": 16, "tile": (0, 256, 0), "accumulators": 2},
            ["2 accumulators of 256", "> 512 columns"],
        ),
    ],
)
def test_refused_configurations(wrong, parts):
    with pytest.raises(LayoutError) as caught:
        BlackwellConfig(**wrong)
    for part in parts:
        assert part in str(caught.value)
