"""Configurations of the Hopper GEMM: what is refused, and that the rest compiles and is right."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numba.cuda import types

from nbtc import gemm
from nbtc.errors import DtypeError, LaunchError, LayoutError
from nbtc.gemm import HopperConfig

SMALL = {"tile": (64, 32, 32), "stages": 2, "consumers": 1, "cluster": (1, 1)}
"""A kernel that the emulator runs in a fraction of a second."""


@pytest.mark.parametrize(
    ("wrong", "parts"),
    [
        ({"dtype": "float32"}, ["dtype='float32'", "'bfloat16', 'float16'"]),
        ({"out_dtype": "int8"}, ["out_dtype='int8'", "'float32'"]),
        ({"tile": 128}, ["tile=128", "3 integers (M, N, K)"]),
        ({"tile": (128, 256)}, ["tile=(128, 256)", "3 integers"]),
        ({"tile": (128, 256, 64.0)}, ["64.0", "integer"]),
        ({"tile": (-64, 32, 16)}, ["tile=(-64, 32, 16)", ">= 1"]),
        ({"tile": (100, 32, 64)}, ["tile M=100", "2 consumer", "64 * 2 = 128"]),
        ({"tile": (192, 32, 64)}, ["tile M=192", "64 * 2 = 128"]),
        ({"consumers": 3}, ["tile M=128", "64 * 3 = 192"]),
        ({"tile": (384, 64, 64), "consumers": 3}, ["tile M=384", "256 rows"]),
        ({"tile": (128, 40, 64)}, ["tile N=40", "multiple of 32, 32..256"]),
        ({"tile": (128, 288, 64)}, ["tile N=288", "32..256"]),
        ({"tile": (128, 0, 64)}, ["tile=(128, 0, 64)", ">= 1"]),
        ({"tile": (128, 32, 24)}, ["tile K=24", "multiple of 16"]),
        ({**SMALL, "tile": (64, 32, 272), "a_major": "MN"}, ["K=272", "MN-major A", "256"]),
        ({**SMALL, "tile": (64, 32, 512), "b_major": "MN", "stages": 1}, ["K=512", "B", "256"]),
        ({"stages": 0}, ["stages=0", ">= 1"]),
        ({"stages": 2.0}, ["stages=2.0", "integer"]),
        ({"stages": True}, ["stages=True", "integer"]),
        ({"consumers": 4}, ["consumers=4", "1, 2, 3"]),
        ({"cluster": 2}, ["cluster=2", "2 integers (CTAs along M"]),
        ({"cluster": (2, 1, 1)}, ["cluster=(2, 1, 1)", "2 integers"]),
        ({"cluster": (0, 1)}, ["cluster=(0, 1)", ">= 1"]),
        ({"cluster": (4, 4)}, ["cluster=(4, 4)", "at most 8"]),
        ({**SMALL, "cluster": (8, 1)}, ["B tile of 32", "32 / 8 = 4", "multiple of 8"]),
        ({**SMALL, "cluster": (1, 3)}, ["A tile of 64", "64 / 8 = 8", "multiple of 3"]),
        ({**SMALL, "cluster": (2, 1), "b_major": "MN"}, ["B tile of 32", "32 / 32 = 1"]),
        ({"schedule": "x"}, ["schedule='x'", "'hilbert'"]),
        ({"group": 0}, ["group=0", ">= 1"]),
        ({"a_major": "M"}, ["a_major='M'", "'MN'"]),
        ({"b_major": "N"}, ["b_major='N'", "'MN'"]),
        ({"store_buffers": 0}, ["store_buffers=0", ">= 1"]),
        ({"policies": "evict_first"}, ["policies='evict_first'", "tuple of three"]),
        ({"policies": ("often", "", "")}, ["often", "'evict_last'"]),
        ({"policies": ([], "", "")}, ["[]", "tuple of three"]),
        ({"policies": ("", "", "last_use")}, ["for A and B also 'last_use'"]),
        ({"policies": ("last_use", "", ""), "schedule": "hilbert"}, ["'hilbert'", "'grouped'"]),
        ({"consumer_registers": "most"}, ["consumer_registers='most'", "integer"]),
        ({"consumer_registers": 100}, ["consumer_registers=100", "steps of 8"]),
        ({"producer_registers": 16}, ["producer_registers=16", "24..256"]),
        ({"consumer_registers": 240}, ["128 * (40 + 2 * 240) = 66560", "65536"]),
        ({"tile": (256, 256, 64)}, ["256 / 2 / 64 * 256 / 2 = 256 accumulators", "232"]),
        (
            {"tile": (192, 256, 64), "consumers": 3},
            ["192 / 3 / 64 * 256 / 2 = 128 accumulators", "> 152"],
        ),
        (
            {"tile": (192, 224, 64), "consumers": 3},
            ["N=224", "112 accumulators and 26 more", "512 threads", "128 each", "at most 192"],
        ),
        ({"narrow": 240.0}, ["narrow=240.0", "integer"]),
        ({"narrow": 248}, ["narrow=248", "256; N - narrow = 8", "multiple of 16", "0, 240, 224"]),
        ({"narrow": 208}, ["N - narrow = 48", "must divide N", "legal: 0, 240, 224"]),
        ({"narrow": 192}, ["N - narrow = 64", "less than 64 (a piece of bfloat16 C)"]),
        ({"narrow": 224, "out_dtype": "float32"}, ["less than 32", "float32", "legal: 0, 240"]),
        ({"narrow": 272}, ["narrow=272", "legal: 0, 240, 224"]),
        ({"narrow": -16}, ["narrow=-16", "legal: 0, 240, 224"]),
        ({"narrow": 240, "cluster": (1, 2)}, ["narrow=240", "cluster=(1, 2)", "(CTAs along M, 1)"]),
        ({"narrow": 240, "schedule": "hilbert"}, ["narrow=240", "'hilbert'", "'grouped'"]),
        (
            {"narrow": 176, "tile": (128, 192, 64), "consumers": 1},
            ["narrow=176", "192 accumulators and about 48 more", "> 232", "or narrow=0"],
        ),
        ({"stages": 5}, ["stages=5", "278672 B > 232448 B", "227 KiB", "5 x bfloat16 [128, 64]"]),
        ({"store_buffers": 4}, ["262336 B > 232448 B"]),
    ],
)
def test_illegal_parameters_show_the_arithmetic(wrong, parts):
    with pytest.raises(LayoutError) as caught:
        HopperConfig(**wrong)
    for part in parts:
        assert part in str(caught.value)


def test_an_unknown_dtype_lists_the_known_ones():
    with pytest.raises(DtypeError, match=r"'bf17' is not known.*bfloat16"):
        HopperConfig(dtype="bf17")


def test_spellings_of_the_same_configuration_are_one():
    given = HopperConfig(
        dtype=np.float16, out_dtype="f32", tile=[np.int64(128), 128, 64], cluster=[1, 1]
    )
    named = HopperConfig(dtype="float16", out_dtype="float32", tile=(128, 128, 64), cluster=(1, 1))
    assert given == named
    assert hash(given) == hash(named)
    assert gemm.make_kernel(given) is gemm.make_kernel(named)


@pytest.mark.parametrize("function", [gemm.make_kernel, gemm.argument_types])
@pytest.mark.parametrize("config", [None, "bfloat16", gemm.BlackwellConfig()])
def test_what_takes_a_configuration_says_of_which_kind(function, config):
    with pytest.raises(LaunchError) as caught:
        function(config)
    message = f"gemm.{function.__name__}: config is {type(config).__name__}, needs a "
    assert message + "nbtc.gemm.HopperConfig" in str(caught.value)


@pytest.mark.parametrize("extra", [types.float32, [types.float32], (3,)])
def test_extra_types_are_a_tuple_of_types(extra):
    with pytest.raises(LaunchError, match="needs a tuple of Numba types"):
        gemm.argument_types(HopperConfig(), extra)


def test_replace_checks_again_and_picks_registers_again():
    config = HopperConfig(tile=(64, 64, 64), consumers=1)
    assert config.consumer_registers == 232
    three = config.replace(tile=(192, 64, 64), consumers=3)
    assert three.consumer_registers == 152
    assert three.threads == 512
    assert config.consumers == 1
    with pytest.raises(LayoutError, match="stages=0"):
        config.replace(stages=0)
    with pytest.raises(TypeError, match="depth"):
        config.replace(depth=3)


def test_shared_memory_is_what_the_layout_says():
    config = HopperConfig()
    m, n, k = config.tile
    ring = config.stages * (m * k + n * k) * 2
    pieces = config.consumers * config.buffers * 64 * config.store_columns * 2
    barriers = 8 * 2 * (config.stages + config.consumers * config.buffers)
    assert config.layout.nbytes == ring + pieces + barriers
    compiled = gemm.compile(config.dtype)
    assert compiled.resources.dynamic_smem_bytes == config.layout.nbytes


def test_the_most_stages_that_fit_are_accepted_and_one_more_is_not():
    per_stage = (64 + 64) * 64 * 2
    config = HopperConfig(tile=(64, 64, 64), consumers=1, cluster=(1, 1), stages=1)
    fit = (227 * 1024 - (config.layout.nbytes - per_stage)) // per_stage
    assert config.replace(stages=fit).layout.nbytes <= 227 * 1024
    with pytest.raises(LayoutError, match="do not fit"):
        config.replace(stages=fit + 1)


# -- every axis, compiled --------------------------------------------------------------------------

TILES = {
    1: [(64, 32, 16), (64, 96, 32), (64, 160, 48), (64, 256, 64), (128, 128, 128)],
    2: [(128, 256, 64), (128, 224, 64), (128, 192, 128), (256, 128, 64), (256, 64, 32)],
    3: [(192, 192, 64), (192, 128, 64), (192, 32, 80)],
}
CLUSTERS = [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4), (4, 2), (2, 4), (8, 1), (1, 8)]
AXES = {
    "dtype": ["bfloat16", "float16"],
    "out_dtype": ["bfloat16", "float16", "float32"],
    "stages": [1, 2, 3, 4, 5, 6],
    "cluster": CLUSTERS,
    "schedule": ["grouped", "linear", "hilbert"],
    "majors": list(itertools.product(("K", "MN"), repeat=2)),
    "store_buffers": [1, 2, 3, 4],
    "policies": [
        ("", "", ""),
        ("evict_last", "evict_first", "evict_first"),
        ("last_use", "last_use", "evict_first"),
    ],
    "group": [1, 8],
    "narrower": [0, 0, 16, 32],
}


def combinations(count: int, seed: int) -> list[HopperConfig]:
    """Draw legal configurations in which every value of every axis occurs about equally often."""
    rng = np.random.default_rng(seed)
    columns = {n: list(v) for n, v in AXES.items()}
    columns["tiles"] = [(c, t) for c, tiles in TILES.items() for t in tiles]
    found: list[HopperConfig] = []
    while len(found) < count:
        for values in columns.values():
            rng.shuffle(values)
        for i in range(max(map(len, columns.values()))):
            drawn = {n: v[i % len(v)] for n, v in columns.items()}
            consumers, tile = drawn.pop("tiles")
            narrower = int(drawn.pop("narrower"))
            a_major, b_major = (str(m) for m in drawn.pop("majors"))
            rest = {n: v.item() if isinstance(v, np.generic) else v for n, v in drawn.items()}
            try:
                found.append(
                    HopperConfig(
                        **rest,
                        tile=tuple(map(int, tile)),
                        consumers=int(consumers),
                        a_major=a_major,
                        b_major=b_major,
                        narrow=int(tile[1]) - narrower if narrower else 0,
                    )
                )
            except LayoutError:
                continue
    return found[:count]


def shared_by_a_cluster(count: int, seed: int) -> list[HopperConfig]:
    """Draw legal configurations whose CTAs share K, every other one with few rows of A."""
    rng = np.random.default_rng(seed)
    tiles = [(c, t) for c, tiles in TILES.items() for t in tiles]
    found: list[HopperConfig] = []
    while len(found) < count:
        consumers, tile = tiles[rng.integers(len(tiles))]
        rows = int(rng.integers(1, tile[0] // 8)) * 8 if len(found) % 2 else 0
        try:
            found.append(
                HopperConfig(
                    tile=tuple(map(int, tile)),
                    consumers=int(consumers),
                    cluster=(1, 1),
                    stages=int(rng.integers(1, 4)),
                    split_k=int(rng.integers(2, 9)),
                    a_rows=rows,
                    b_major=str(rng.choice(["K", "MN"])),
                    out_dtype=str(rng.choice(["bfloat16", "float32"])),
                    store_buffers=int(rng.integers(1, 4)),
                )
            )
        except LayoutError:
            continue
    return found


def compiles_cleanly(config: HopperConfig) -> None:
    fields = {f: getattr(config, f) for f in config.__dataclass_fields__ if f != "layout"}
    compiled = gemm.compile(**fields)
    assert compiled.notes == ()
    assert compiled.resources.spill_bytes == 0
    assert compiled.resources.stack_bytes == 0
    assert compiled.count("USETMAXREG") == 2
    k_steps = config.tile[2] // 16
    hgmma = k_steps * config.tile[0] // config.consumers // 64
    # The first k-block, another one, and all of a lap, for each width; ptxas may peel a turn.
    copies = compiled.count("HGMMA") / hgmma
    expected = 2 if config.stages == 1 else 2 + config.stages
    expected *= 2 if config.narrow else 1
    assert copies in range(expected, 2 * expected + 1)
    for opcode in ("LDL", "STL"):
        assert compiled.count(opcode) == 0


def name_of(config: HopperConfig) -> str:
    m, n, k = config.tile
    return (
        f"{m}x{n}x{k}-{config.consumers}wg-{config.stages}st-{config.cluster[0]}x"
        f"{config.cluster[1]}-{config.schedule}-{config.a_major}{config.b_major}-"
        f"{config.dtype}-{config.out_dtype}-{config.store_buffers}-{config.narrow}-{config.a_rows}-{config.split_k}"
    )


@pytest.mark.ptxas
@pytest.mark.parametrize("config", [*combinations(3, 1), *shared_by_a_cluster(1, 1)], ids=name_of)
def test_legal_combinations_compile_without_notes_or_local_memory(config):
    compiles_cleanly(config)


@pytest.mark.ptxas
@pytest.mark.slow
@pytest.mark.parametrize(
    "config", [*combinations(220, 2), *shared_by_a_cluster(40, 2)], ids=name_of
)
def test_many_legal_combinations_compile_without_notes_or_local_memory(config):
    compiles_cleanly(config)
