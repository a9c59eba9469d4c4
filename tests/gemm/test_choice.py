"""Which configuration ``nbtc.matmul`` takes, and rows of A that are not loaded."""

import itertools
import random

import numpy as np
import pytest

import nbtc
from nbtc import gemm, testing
from nbtc.errors import LayoutError
from nbtc.gemm import choice

SMS = 132
TABLE = (
    (2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192), (16384, 16384, 8192),
    (8192, 28672, 4096), (4096, 4096, 14336),
)  # fmt: skip


@pytest.mark.parametrize("shape", TABLE)
def test_large_problems_get_the_widest_tile_in_clusters(shape):
    config = gemm.choose(*shape, "bfloat16", "bfloat16", "K", "K", SMS)
    assert (config.tile, config.cluster, config.stages) == ((128, 256, 64), (2, 1), 4)


def test_every_problem_has_a_configuration():
    chance = random.Random(3)
    kinds = itertools.product(
        ("bfloat16", "float16"), ("bfloat16", "float16", "float32"), ("K", "MN"), ("K", "MN")
    )
    for kind in kinds:
        for _ in range(20):
            m, n, k = (int(2 ** chance.uniform(0, 14)) for _ in range(3))
            config = gemm.choose(m, n, k, *kind, chance.choice((4, 114, SMS)))
            assert (config.dtype, config.out_dtype, config.a_major, config.b_major) == kind
            assert not config.a_rows or (m <= config.a_rows and config.a_major == "K")
            if "MN" in (config.a_major, config.b_major):
                assert config.b_major == "K" or config.tile[1] % 64 == 0


def test_few_rows_are_loaded_as_they_are():
    """TMA takes longer for rows outside of a matrix than for those inside."""
    found = [
        gemm.choose(m, 4096, 4096, "bfloat16", "bfloat16", "K", "K", SMS)
        for m in (1, 16, 17, 48, 49, 64)
    ]
    assert [config.a_rows for config in found] == [16, 16, 32, 48, 0, 0]
    assert found[1].a_box == (16, 64)


@pytest.mark.parametrize(
    ("m", "parameters"),
    [
        (1, {"tile": (64, 96, 64), "consumers": 1, "stages": 3, "a_rows": 8}),
        (70, {"tile": (128, 128, 128), "stages": 2, "a_rows": 72}),
        (120, {"tile": (128, 64, 32), "b_major": "MN", "a_rows": 120}),
    ],
)
def test_fewer_rows_than_a_tile(m, parameters):
    config = gemm.HopperConfig(cluster=(1, 1), **parameters)
    k, n = 200, 232
    a = testing.random_normal((m, k), "bfloat16")
    b = testing.random_normal((n, k), "bfloat16", seed=1).T
    if config.b_major == "MN":
        b = np.ascontiguousarray(b)
    got = nbtc.matmul(a, b, config=config, out_dtype="float32")
    testing.assert_close(got, testing.matmul_reference(a, b), tol=1e-5)


def test_more_rows_than_are_loaded():
    config = gemm.HopperConfig(tile=(64, 64, 64), consumers=1, cluster=(1, 1), a_rows=16)
    a = testing.random_normal((17, 64), "bfloat16")
    b = testing.random_normal((64, 64), "bfloat16", seed=1).T
    with pytest.raises(
        LayoutError, match=r"the product has 17 rows; config loads a_rows=16: give a_rows >="
    ):
        nbtc.matmul(a, b, config=config)


@pytest.mark.parametrize(
    ("shape", "out_dtype", "parameters"),
    [
        (
            (64, 96, 1024),
            "bfloat16",
            {"tile": (64, 64, 64), "consumers": 1, "split_k": 4},
        ),  # 2 tiles a cluster
        (
            (300, 104, 328),
            "float32",
            {"tile": (128, 96, 64), "stages": 3, "split_k": 2, "b_major": "MN"},
        ),
        (
            (130, 72, 40),
            "bfloat16",
            {"tile": (64, 32, 32), "consumers": 1, "split_k": 8},
        ),  # more CTAs than K
        (
            (100, 64, 300),
            "bfloat16",
            {"tile": (64, 32, 32), "consumers": 1, "stages": 1, "split_k": 2},
        ),
    ],
)
def test_clusters_that_share_k(shape, out_dtype, parameters):
    config = gemm.HopperConfig(cluster=(1, 1), **{"stages": 2, **parameters})
    m, n, k = shape
    a = testing.random_normal((m, -(-k // 8) * 8), "bfloat16")[:, :k]
    b = testing.random_normal((n, -(-k // 8) * 8), "bfloat16", seed=1)[:, :k].T
    if config.b_major == "MN":
        b = np.ascontiguousarray(b)
    got = nbtc.matmul(a, b, config=config, out_dtype=out_dtype)
    tol = 1e-5 if out_dtype == "float32" else 1e-2
    testing.assert_close(got, testing.matmul_reference(a, b), tol=tol)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"m": 0}, "m=0, n=64, k=64, sms=132; each must be 1 or more"),
        ({"n": -5}, "n=-5"),
        ({"sms": 0}, "sms=0"),
        ({"m": 64.5}, r"gemm.choose: m=64.5; must be an integer"),
        ({"m": True}, r"m=True; must be an integer"),
        ({"k": "64"}, r"k='64'; must be an integer"),
        ({"dtype": "float32"}, r"dtype='float32'; legal: 'bfloat16', 'float16'"),
        ({"out_dtype": "float64"}, r"out_dtype='float64'; legal"),
        ({"a_major": "row"}, r"a_major='row'; legal: 'K', 'MN'"),
    ],
)
def test_what_cannot_be_chosen_for(changes, message):
    good = {"m": 64, "n": 64, "k": 64, "dtype": "bfloat16", "out_dtype": "bfloat16",
            "a_major": "K", "b_major": "K", "sms": SMS}  # fmt: skip
    with pytest.raises(LayoutError, match=message):
        gemm.choose(**{**good, **changes})


def test_integers_of_numpy_choose_the_same():
    kinds = ("bfloat16", "bfloat16", "K", "K", SMS)
    for shape in ((16, 19466, 18268), (300, 30000, 32000)):
        for kind in (np.int32, np.uint32, np.int64, np.uint64):
            assert gemm.choose(*map(kind, shape), *kinds) == gemm.choose(*shape, *kinds)


def test_few_tiles_and_a_long_k_are_split():
    config = gemm.choose(64, 1024, 8192, "bfloat16", "bfloat16", "K", "K", SMS)
    assert config.split_k > 1
    tiles = -(-64 // config.tile[0]) * -(-1024 // config.tile[1])
    assert tiles * config.split_k <= SMS
    assert gemm.choose(64, 1024, 256, "bfloat16", "bfloat16", "K", "K", SMS).split_k == 1


def test_an_epilogue_sees_the_whole_sum():
    m, n, parts = 9, 64, 4

    @nbtc.device
    def relu(value, row, column):
        return max(value, np.float32(0))

    config = gemm.HopperConfig(
        tile=(64, 64, 64), consumers=1, cluster=(1, 1), stages=2, split_k=parts, a_rows=16
    )
    a = testing.random_normal((m, 1024), "bfloat16")
    b = testing.random_normal((n, 1024), "bfloat16", seed=1).T
    got = nbtc.matmul(a, b, config=config, epilogue=relu)
    testing.assert_close(got, np.maximum(testing.matmul_reference(a, b), 0), tol=1e-2)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"split_k": 0}, r"split_k=0; the CTAs of a cluster that share a tile: 1\.\.8"),
        ({"split_k": 9}, r"split_k=9"),
        ({"split_k": 2, "cluster": (2, 1)}, r"split_k=2 with cluster=\(2, 1\); needs \(1, 1\)"),
        ({"split_k": 2, "narrow": 240}, r"split_k=2 with narrow=240; needs 0"),
        ({"split_k": 2}, r"stages=4 do not fit"),
        (
            {"tile": (128, 160, 32), "consumers": 1, "stages": 3, "split_k": 2},
            r"split_k=2 needs 128 "
            r"/ 1 / 64 \* 160 / 2 = 160 accumulators and about 88 more .* or split_k=1",
        ),
        ({"tile": (192, 192, 32), "consumers": 3, "stages": 1, "split_k": 2}, r"about 88 more"),
        ({"a_rows": 20}, r"a_rows=20 with tile M=128; must be a multiple of 8 .*8\.\.120"),
        ({"a_rows": 128}, r"a_rows=128 with tile M=128"),
        ({"a_rows": -8}, r"a_rows=-8"),
        ({"a_rows": True}, r"a_rows=True; must be an integer"),
        ({"a_rows": 16, "a_major": "MN"}, r"a_rows=16 with a_major='MN'; needs 'K'"),
        ({"a_rows": 16, "cluster": (2, 1)}, r"a_rows=16 with cluster=\(2, 1\); needs \(1, 1\)"),
    ],
)
def test_refused(parameters, message):
    with pytest.raises(LayoutError, match=message):
        gemm.HopperConfig(**{"cluster": (1, 1), **parameters})


def test_an_estimate_grows_with_the_work():
    tile = choice.Tile(128, 256, 2)
    times = [choice.estimate(tile, 4096, 4096, k, SMS) for k in (64, 1024, 4096, 16384)]
    assert times == sorted(times)
    assert times[-1] > 10 * times[0]
