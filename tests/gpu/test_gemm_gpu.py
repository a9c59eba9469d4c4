"""``nbtc.matmul`` on a GPU: random normal inputs against float64, outputs poisoned and guarded.

Operands lie in wider arrays whose padding is NaN: what TMA reads beyond an edge would show. Every
test runs in seconds; the whole file in about two minutes, most of it compiling.
"""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
from numba import cuda
from numba.cuda.types import float32

import nbtc
from nbtc import gemm, shared, testing
from nbtc.errors import LaunchError, LayoutError, NbtcError, TensorMapError
from nbtc.gemm import HopperConfig

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(not testing.has_gpu((9, 0)), reason="needs a Hopper GPU"),
]

ROUNDING = {torch.bfloat16: 1.1 * 2.0**-8, torch.float16: 1.1 * 2.0**-11, torch.float32: 2.0**-20}
GUARD = 8


@pytest.fixture(autouse=True)
def _same_numbers_each_time():
    torch.manual_seed(0)


def matrix(rows, columns, dtype=torch.bfloat16, order="row"):
    """Return random numbers with rows or columns contiguous, in an array of NaN."""
    shape = (rows, columns) if order == "row" else (columns, rows)
    pitch = -(-shape[1] // 8) * 8 + GUARD
    whole = torch.full((shape[0], pitch), math.nan, dtype=dtype, device="cuda")
    whole[:, : shape[1]] = torch.randn(shape, device="cuda", dtype=torch.float32).to(dtype)
    view = whole[:, : shape[1]]
    return view if order == "row" else view.T


def output(rows, columns, dtype, order="row"):
    """Return a window of an array of NaN, and the array."""
    shape = (rows, columns) if order == "row" else (columns, rows)
    whole = torch.full(
        (shape[0] + 2, -(-shape[1] // 8) * 8 + GUARD), math.nan, dtype=dtype, device="cuda"
    )
    view = whole[1:-1, : shape[1]]
    return (view if order == "row" else view.T), whole


def is_right(got, a, b, transform=None):
    want = a.double() @ b.double()
    allowed = want.abs() * ROUNDING[got.dtype]
    if transform is not None:
        want = transform(want)
        allowed = allowed + want.abs() * ROUNDING[got.dtype]
    # The tensor core adds 16 products at a time and truncates: an error that grows with K.
    k = a.shape[1]
    allowed = allowed + math.sqrt(k) * (1e-6 + 1.5e-8 * k)
    worst = ((got.double() - want).abs() / allowed).max().item()
    assert worst <= 1, f"{worst:.3g} times the allowed error (NaN: not written)"


def check(m, n, k, dtype=torch.bfloat16, out=None, orders=("row", "column", "row"), config=None):
    a, b = matrix(m, k, dtype, orders[0]), matrix(k, n, dtype, orders[1])
    c, whole = output(m, n, out or dtype, orders[2])
    assert nbtc.matmul(a, b, c, config=config) is c
    is_right(c, a, b)
    written = whole.numel() - int(whole.isnan().sum())
    assert written == m * n, "elements outside of the output were written"


SIZES = [
    (1, 1, 1), (1, 1, 8), (2, 3, 5), (1, 4096, 64), (4096, 1, 64), (63, 65, 31), (64, 64, 64),
    (128, 256, 64), (129, 257, 65), (255, 511, 1023), (777, 333, 555), (1000, 1000, 1000),
    (1, 1, 4096), (17, 4096, 4096), (2048, 2048, 2048), (4096, 4096, 4096), (4095, 4097, 1111),
]  # fmt: skip


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_sizes(m, n, k):
    check(m, n, k)


@pytest.mark.parametrize("batch", range(10))
def test_random_shapes(batch):
    """Two hundred shapes in all, their sizes even on a logarithmic scale."""
    rng = np.random.default_rng(batch)
    for _ in range(20):
        check(*(int(2 ** rng.uniform(0, 12)) for _ in range(3)))


@pytest.mark.parametrize("narrow", [240, 224])
def test_random_shapes_of_narrow_tiles(narrow):
    """Tiles of two widths, in shapes that have either alone and both."""
    rng = np.random.default_rng(narrow)
    config = HopperConfig(narrow=narrow)
    for out in (torch.bfloat16, torch.float32):
        if out is torch.float32 and narrow != 240:
            continue  # a narrow tile of float32 has whole strips of 16 columns only
        for _ in range(15):
            m, n, k = (int(2 ** rng.uniform(0, 12)) for _ in range(3))
            check(m, n, k, out=out, config=config)
    check(4096, 4096, 192, config=config)


@pytest.mark.parametrize("orders", [*itertools.product(("row", "column"), repeat=3)])
@pytest.mark.parametrize(("m", "n", "k"), [(200, 264, 136), (513, 777, 1023)])
def test_every_order_of_operands_and_output(m, n, k, orders):
    check(m, n, k, orders=orders)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("out", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_dtypes(dtype, out):
    check(300, 500, 700, dtype, out)


CONFIGS = [
    *({"stages": s} for s in (1, 2, 3)),
    *({"tile": (128, 128, 64), "stages": s} for s in (5, 6)),
    {"tile": (64, 256, 64), "consumers": 1, "cluster": (1, 2)},
    {"tile": (64, 32, 16), "consumers": 1, "cluster": (1, 1), "stages": 6},
    {"tile": (192, 128, 64), "consumers": 3},
    {"tile": (192, 192, 64), "consumers": 3, "stages": 3, "cluster": (1, 1)},
    {"tile": (256, 128, 64)},
    {"tile": (128, 128, 64), "cluster": (2, 2)},
    {"tile": (128, 128, 64), "cluster": (4, 2)},
    {"tile": (128, 128, 64), "cluster": (1, 8)},
    {"tile": (128, 160, 128), "stages": 2, "cluster": (1, 1)},
    {"tile": (128, 224, 80), "stages": 2, "cluster": (2, 1), "group": 3},
    {"schedule": "hilbert"},
    {"schedule": "hilbert", "tile": (128, 128, 64), "cluster": (2, 2)},
    {"schedule": "linear", "store_buffers": 1},
    {"tile": (128, 96, 32), "cluster": (1, 1), "store_buffers": 3, "stages": 4},
    {"policies": ("evict_last", "evict_first", "evict_first")},
    {"tile": (64, 64, 64), "consumers": 1, "cluster": (1, 1), "split_k": 4},
    {"tile": (192, 96, 64), "consumers": 3, "cluster": (1, 1), "stages": 2, "split_k": 2},
]


@pytest.mark.parametrize("parameters", CONFIGS, ids=str)
def test_configurations(parameters):
    config = HopperConfig(**parameters)
    check(300, 520, 200, config=config)
    check(2050, 3000, 520, config=config)
    check(1, 1, 8, config=config)


@pytest.mark.parametrize("orders", [("row", "row"), ("column", "column"), ("column", "row")])
def test_majorness_with_multicast(orders):
    for cluster in ((2, 1), (1, 2), (2, 2)):
        config = HopperConfig(tile=(128, 128, 64), cluster=cluster)
        check(1500, 1300, 264, orders=(*orders, "row"), config=config)


# -- what a caller does ----------------------------------------------------------------------------


@pytest.mark.parametrize("n", [64, 37])
def test_an_output_of_its_own(n):
    a, b = matrix(100, 72), matrix(72, n, order="column")
    got = nbtc.matmul(a, b)
    assert got.dtype == torch.bfloat16
    assert got.device == a.device
    is_right(got, a, b)
    is_right(nbtc.matmul(a, b, out_dtype=torch.float32), a, b)


def test_no_depth_no_rows():
    a, b = matrix(5, 8)[:, :0], matrix(8, 16)[:0]
    for order in ("row", "column"):
        out, whole = output(5, 16, torch.float32, order)
        nbtc.matmul(a, b, out)
        torch.cuda.synchronize()
        assert (out == 0).all()
        assert whole.numel() - int(whole.isnan().sum()) == 80
    assert nbtc.matmul(matrix(5, 8)[:0], matrix(8, 16)).shape == (0, 16)


@pytest.mark.parametrize("split_k", [1, 3])
@pytest.mark.parametrize(("m", "a_rows"), [(1, 8), (16, 16), (40, 48), (100, 104)])
def test_fewer_rows_than_a_tile(m, a_rows, split_k):
    rows = 64 if m <= 64 else 128
    config = HopperConfig(
        tile=(rows, 64, 64), consumers=rows // 64, cluster=(1, 1), a_rows=a_rows, split_k=split_k
    )
    check(m, 520, 1000, config=config)


@pytest.mark.parametrize("split_k", [2, 3, 4, 6])
def test_many_short_launches_of_clusters_that_share_k(split_k):
    """A CTA that left before the last arrival of its peer made the launch fail."""
    config = HopperConfig(tile=(64, 64, 64), consumers=1, cluster=(1, 1), split_k=split_k)
    a, b = matrix(16, 2048), matrix(2048, 2048, order="column")
    first = nbtc.matmul(a, b, config=config)
    is_right(first, a, b)
    out = torch.empty_like(first)
    for _ in range(2000):
        nbtc.matmul(a, b, out, config=config)
    torch.cuda.synchronize()
    assert torch.equal(out, first)


def test_results_are_the_same_every_time():
    a, b = matrix(1000, 1032), matrix(1032, 1500, order="column")
    first = nbtc.matmul(a, b)
    for _ in range(20):
        assert torch.equal(nbtc.matmul(a, b), first)


def test_a_chain_of_products_waits_for_each_other():
    """Each launch may start early (programmatic dependent launch), but reads what came before."""
    n = 384
    b = torch.linalg.qr(torch.randn(n, n, device="cuda"))[0].bfloat16()
    a = matrix(n, n).contiguous()
    buffers = [a.clone(), torch.empty_like(a)]
    for i in range(100):
        nbtc.matmul(buffers[i % 2], b, buffers[(i + 1) % 2])
    want = a.clone()
    for _ in range(100):
        want = (want.double() @ b.double()).bfloat16()
    # One rounding may fall the other way and is carried on; garbage would be of another size.
    difference = (buffers[0].double() - want.double()).norm() / want.double().norm()
    assert difference < 0.05


def test_streams():
    stream = torch.cuda.Stream()
    a, b = matrix(1024, 1024), matrix(1024, 1024, order="column")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        got = torch.full((1024, 1024), math.nan, dtype=torch.bfloat16, device="cuda")
        nbtc.matmul(a, b, got, stream=stream)
        copied = got.clone()
    stream.synchronize()
    is_right(copied, a, b)


def test_graph_capture_replays_with_new_values():
    a, b = matrix(512, 264), matrix(264, 520, order="column")
    out = torch.empty((512, 520), dtype=torch.bfloat16, device="cuda")
    nbtc.matmul(a, b, out)  # compiled and loaded before the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        nbtc.matmul(a, b, out, stream=torch.cuda.current_stream())
    a.copy_(torch.randn_like(a.float()))
    out.fill_(math.nan)
    graph.replay()
    torch.cuda.synchronize()
    is_right(out, a, b)


@nbtc.device
def bias_gelu(value, row, column, bias):
    x = value + bias[column]
    return x * float32(0.5) * (float32(1) + math.erf(x * float32(0.7071067811865476)))


@nbtc.device
def lower_triangle(value, row, column):
    return value if column <= row else float32(0)


def test_epilogues():
    m, n, k = 700, 1000, 520
    a, b = matrix(m, k), matrix(k, n, order="column")
    # Columns of the last tile beyond N are computed too, and read the bias there.
    bias = torch.randn(1280, device="cuda")
    out, whole = output(m, n, torch.float32)
    nbtc.matmul(a, b, out, epilogue=bias_gelu, extra=(bias,))
    gelu = torch.nn.functional.gelu
    is_right(out, a, b, lambda product: gelu(product + bias[:n].double()))
    assert whole.numel() - int(whole.isnan().sum()) == m * n
    nbtc.matmul(a, b, out, epilogue=lower_triangle)
    is_right(out, a, b, torch.tril)


def test_emulator_and_gpu_give_the_same_bits_of_rounding():
    """Small integers have exact products and sums: every element must agree."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 9, shape).astype(np.float16) for shape in ((70, 40), (40, 66)))
    b = np.asfortranarray(b)
    with testing.emulated():
        want = nbtc.matmul(a, b, out_dtype="float32")
    got = nbtc.matmul(
        torch.from_numpy(a).cuda(), torch.from_numpy(b.T.copy()).cuda().T, out_dtype="float32"
    )
    assert np.array_equal(got.cpu().numpy(), want)
    assert np.array_equal(want, a.astype(np.float64) @ b.astype(np.float64))


# -- refused, and still usable afterwards ----------------------------------------------------------


def test_host_memory_is_refused():
    a, b = torch.zeros(64, 64, dtype=torch.bfloat16), torch.zeros(64, 64, dtype=torch.bfloat16)
    with pytest.raises(NbtcError, match="host memory"):
        nbtc.matmul(a, b)
    with pytest.raises((LaunchError, TensorMapError), match="host memory"):
        nbtc.matmul(a.half().numpy(), b.half().numpy())


def test_misuse_leaves_the_device_usable():
    a, b = matrix(64, 64), matrix(64, 64, order="column")
    with pytest.raises(LayoutError, match="2 mod 16"):
        nbtc.matmul(matrix(64, 65)[:, 1:], b)
    with pytest.raises(LayoutError, match="overlaps a"):
        nbtc.matmul(a, b, a)
    with pytest.raises(LayoutError, match="columns of a"):
        nbtc.matmul(a, matrix(72, 64))
    is_right(nbtc.matmul(a, b), a, b)


@pytest.mark.parametrize("size", [49152, 49153, 200 * 1024, 232448])
def test_dynamic_shared_memory_up_to_the_limit(size):
    layout = shared.Layout(x=shared.array("uint8", (size,)))

    @nbtc.jit(shared=layout, launch_bounds=32)
    def kernel(out):
        thread = cuda.threadIdx.x
        layout.x.array[size - 1 - thread] = thread
        cuda.syncthreads()
        out[thread] = layout.x.array[size - 32 + thread]

    out = torch.zeros(32, dtype=torch.int32, device="cuda")
    kernel[1, 32](out)
    assert out.tolist() == list(range(31, -1, -1))


def test_a_block_larger_than_its_bounds_is_refused():
    @nbtc.jit(launch_bounds=64)
    def kernel(out):
        out[0] = 1

    with pytest.raises(LaunchError, match="64"):
        kernel[1, 128](torch.zeros(1, device="cuda"))


def test_the_cubin_of_compile_is_the_one_that_runs():
    config = HopperConfig()
    a, b = matrix(256, 128), matrix(128, 512, order="column")
    nbtc.matmul(a, b, config=config)
    assembled = gemm.compile("bfloat16", arch="sm_90a")
    kernel = gemm.make_kernel(config)
    assert assembled.cubin in {c.cubin for c in kernel._compiled.values()}
