"""What launching must do on a real GPU; each function is run in a process of its own.

``python tests/gpu/launch_scenarios.py NAME`` runs one: exit status 0 is success, 77 means that a
library it needs is not installed (the last line says which).
"""

from __future__ import annotations

import sys
import threading

import ml_dtypes
import numpy as np
import pytest
from numba import cuda

import nbtc
from nbtc import arguments, driver, streams, testing
from nbtc.device import shared
from nbtc.device import shared_numba as _shared_numba  # noqa: F401 - teaches Numba layouts
from nbtc.errors import LaunchError
from nbtc.intrinsics import bulk, cluster, mbarrier, sync, tma
from nbtc.launch import LaunchConfig, launch
from nbtc.tensormap import TensorMap
from nbtc.testing import DeviceArray

TILE = 32
TILE_BYTES = TILE * TILE * 4
MOST_SHARED = 227 * 1024

tile_layout = shared.Layout(
    tile=shared.array("float32", (TILE, TILE), alignment=128), bar=shared.barriers(1)
)
big_layout = shared.Layout(words=shared.array("int32", (200 * 256,)))
whole_layout = shared.Layout(words=shared.array("int32", (MOST_SHARED // 4,)))
pixel_layout = shared.Layout(
    pixels=shared.array("float32", (16, 4), alignment=128), bar=shared.barriers(1)
)


class Missing(Exception):
    """A library that the scenario needs is not installed."""


def need(name: str):
    try:
        return __import__(name)
    except ImportError:
        raise Missing(name) from None


# -- kernels -----------------------------------------------------------------------------------


@nbtc.jit
def empty():
    return


@nbtc.jit
def three_arrays(a, b, c):
    return


@nbtc.jit(cluster=2)
def clusters_of_two(count, rank, clusters):
    if cuda.threadIdx.x == 0:
        cuda.atomic.add(count, 0, 1)
        rank[cuda.blockIdx.x] = cluster.cta_rank()
        clusters[cuda.blockIdx.x] = cluster.cluster_id_x()


@nbtc.jit(cluster=(2, 2))
def square_clusters(ranks):
    if cuda.threadIdx.x == 0:
        ranks[cuda.blockIdx.y, cuda.blockIdx.x] = cluster.cta_rank()


@nbtc.jit(cluster=16, non_portable=True)
def clusters_of_sixteen(count):
    if cuda.threadIdx.x == 0:
        cuda.atomic.add(count, 0, cluster.num_ctas())


@nbtc.jit
def scalars(whole, real, i8, i16, i32, i64, u8, u16, u32, u64, f32, f64, flag, pair):
    whole[0] = i8
    whole[1] = i16
    whole[2] = i32
    whole[3] = i64
    whole[4] = u8
    whole[5] = u16
    whole[6] = u32
    whole[7] = u64 >> np.uint64(1)
    whole[8] = 1 if flag else 0
    whole[9] = pair[0]
    real[0] = f32
    real[1] = f64
    real[2] = pair[1]


@nbtc.jit(shared=big_layout)
def reverse_in_big_shared(out):
    words = big_layout.words.array
    n = out.shape[0]
    for i in range(cuda.threadIdx.x, n, cuda.blockDim.x):
        words[n - 1 - i] = i
    cuda.syncthreads()
    for i in range(cuda.threadIdx.x, n, cuda.blockDim.x):
        out[i] = words[i]


@nbtc.jit(shared=whole_layout)
def ends_of_whole_shared(out):
    words = whole_layout.words.array
    last = MOST_SHARED // 4 - 1
    if cuda.threadIdx.x == 0:
        words[0] = 11
        words[last] = 22
    cuda.syncthreads()
    if cuda.threadIdx.x == 1:
        out[0] = words[0]
        out[1] = words[last]


@nbtc.jit
def increment(out):
    out[cuda.grid(1)] += 1


@nbtc.jit
def widen(source, target):
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            target[i, j] = source[i, j]


@nbtc.jit(shared=tile_layout)
def copy_tile(row, source, column, out, target):
    """Load a tile by TMA, write it to ``out``, and store it at the origin of ``target``."""
    tid = cuda.threadIdx.x
    tile = tile_layout.tile.array
    if tid == 0:
        mbarrier.init(tile_layout.bar[0], 1)
    cuda.syncthreads()
    if tid == 0:
        mbarrier.arrive_expect_tx(tile_layout.bar[0], TILE_BYTES)
        tma.load(tile_layout.tile, source, (column, row), tile_layout.bar[0])
    while not mbarrier.try_wait_parity(tile_layout.bar[0], 0):
        pass
    for i in range(TILE):
        out[i, tid] = tile[i, tid]
    cuda.syncthreads()
    if tid == 0:
        tma.store(target, (0, 0), tile_layout.tile)
        bulk.commit_group()
        bulk.wait_group(0)


@nbtc.jit(shared=pixel_layout)
def im2col_pixels(source, out):
    tid = cuda.threadIdx.x
    pixels = pixel_layout.pixels.array
    if tid == 0:
        mbarrier.init(pixel_layout.bar[0], 1)
    cuda.syncthreads()
    if tid == 0:
        mbarrier.arrive_expect_tx(pixel_layout.bar[0], 256)
        tma.load_im2col(pixel_layout.pixels, source, (0, 0, 0, 0), pixel_layout.bar[0], (0, 0))
    while not mbarrier.try_wait_parity(pixel_layout.bar[0], 0):
        pass
    if tid < 16:
        for channel in range(4):
            out[tid, channel] = pixels[tid, channel]


@nbtc.jit(pdl=True)
def dependent(out):
    sync.grid_wait()
    out[cuda.grid(1)] += 1
    sync.launch_dependents()


KERNELS = {
    "empty": (empty, ()),
    "three_arrays": (three_arrays, ("float32[::1]",) * 3),
    "clusters_of_two": (clusters_of_two, ("int32[::1]",) * 3),
    "square_clusters": (square_clusters, ("int32[:, ::1]",)),
    "clusters_of_sixteen": (clusters_of_sixteen, ("int32[::1]",)),
    "scalars": (
        scalars,
        ("int64[::1]", "float64[::1]", "int8", "int16", "int32", "int64", "uint8", "uint16",
         "uint32", "uint64", "float32", "float64", "bool", (1, 2.0)),
    ),
    "reverse_in_big_shared": (reverse_in_big_shared, ("int32[::1]",)),
    "ends_of_whole_shared": (ends_of_whole_shared, ("int32[::1]",)),
    "increment": (increment, ("int32[::1]",)),
    "widen": (widen, ("bfloat16[:, ::1]", "float32[:, ::1]")),
    "copy_tile": (copy_tile, ("int32", "TensorMap", "int32", "float32[:, ::1]", "TensorMap")),
    "im2col_pixels": (im2col_pixels, ("TensorMap", "float32[:, ::1]")),
    "dependent": (dependent, ("int32[::1]",)),
}  # fmt: skip
"""Every kernel here with argument types, so that a test without a GPU can compile them."""


# -- scenarios ---------------------------------------------------------------------------------


def zeros(shape, dtype="int32") -> DeviceArray:
    return DeviceArray(shape, dtype).fill_bytes(0)


def clusters_count_blocks():
    count, rank, clusters = zeros(1), zeros(8), zeros(8)
    clusters_of_two[8, 32](count, rank, clusters)
    assert count.numpy()[0] == 8, "the grid is counted in blocks"
    assert rank.numpy().tolist() == [0, 1] * 4
    assert sorted(clusters.numpy().tolist()) == [0, 0, 1, 1, 2, 2, 3, 3]
    with pytest.raises(LaunchError, match="grid 5 is not a multiple of cluster 2"):
        clusters_of_two[5, 32](count, rank, clusters)


def clusters_in_two_dimensions():
    ranks = zeros((4, 6))
    square_clusters[(6, 4), 32](ranks)
    got = ranks.numpy()
    assert got.tolist() == [[0, 1] * 3, [2, 3] * 3] * 2


def non_portable_clusters():
    count = zeros(1)
    clusters_of_sixteen[32, 64](count)
    assert count.numpy()[0] == 32 * 16


def scalars_of_every_width():
    whole, real = zeros(10, "int64"), zeros(3, "float64")
    scalars[1, 1](
        whole, real, np.int8(-100), np.int16(-30000), np.int32(-(2**31)), -(2**62), np.uint8(200),
        np.uint16(60000), np.uint32(2**32 - 1), np.uint64(2**64 - 2), np.float32(0.1), 0.1, True,
        (7, 2.5),
    )  # fmt: skip
    expected = [-100, -30000, -(2**31), -(2**62), 200, 60000, 2**32 - 1, 2**63 - 1, 1, 7]
    assert whole.numpy().tolist() == expected
    assert real.numpy().tolist() == [float(np.float32(0.1)), 0.1, 2.5]


def big_dynamic_shared_memory():
    out = zeros(200 * 256)
    for _ in range(2):
        reverse_in_big_shared[1, 256](out)
    assert np.array_equal(out.numpy(), np.arange(200 * 256)[::-1])
    ends = zeros(2)
    ends_of_whole_shared[1, 32](ends)
    assert ends.numpy().tolist() == [11, 22]
    most = driver.attribute(0, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
    with pytest.raises(LaunchError, match=f"{most + 1} B > {most} B opt-in maximum of this device"):
        empty[1, 32, 0, most + 1]()


def tensor_maps_by_value():
    a = testing.random_normal((96, 128), "float32", seed=1)
    source = DeviceArray.copy_of(a)
    for row, column in ((0, 0), (32, 64), (7, 100), (80, 0), (-4, -8), (200, 0)):
        out, target = zeros((TILE, TILE), "float32"), zeros((TILE, TILE), "float32")
        out.fill_bytes(0xFF)
        copy_tile[1, TILE](
            np.int32(row), TensorMap.tiled(source, (TILE, TILE)), np.int32(column), out,
            TensorMap.tiled(target, (TILE, TILE)),
        )  # fmt: skip
        expected = np.zeros((TILE, TILE), np.float32)
        for i in range(TILE):
            for j in range(TILE):
                if 0 <= row + i < 96 and 0 <= column + j < 128:
                    expected[i, j] = a[row + i, column + j]
        assert np.array_equal(out.numpy(), expected), (row, column)
        assert np.array_equal(target.numpy(), expected), (row, column)


def tensor_map_of_a_view():
    a = testing.random_normal((64, 256), "float32", seed=2)
    source = DeviceArray.copy_of(a)[8:, 4:132]
    out, target = zeros((TILE, TILE), "float32"), zeros((TILE, TILE), "float32")
    first = TensorMap.tiled(source, (TILE, TILE))
    end = TensorMap.tiled(target, (TILE, TILE))
    copy_tile[1, TILE](np.int32(16), first, np.int32(32), out, end)
    assert np.array_equal(out.numpy(), a[24:56, 36:68])
    other = DeviceArray.copy_of(a * 2)[8:, 4:132]
    copy_tile[1, TILE](np.int32(16), first.rebind(other), np.int32(32), out, end)
    assert np.array_equal(out.numpy(), 2 * a[24:56, 36:68])


def im2col_corners_are_width_first():
    """The bounding box leaves out 3 columns, not 3 rows: the driver takes W first."""
    image = np.arange(8 * 8 * 4, dtype=np.float32).reshape(1, 8, 8, 4)
    source = DeviceArray.copy_of(image)
    out = zeros((16, 4), "float32")
    tensor_map = TensorMap.im2col(
        source, (0, 0), (0, -3), channels_per_pixel=4, pixels_per_column=16
    )
    im2col_pixels[1, 32](tensor_map, out)
    expected = image[0, :, :5].reshape(-1, 4)[:16]
    assert np.array_equal(out.numpy(), expected), out.numpy()


def graph_capture_and_replay():
    api = driver.api()
    driver.ensure_context()
    counter = zeros(64)
    a = testing.random_normal((64, 64), "float32", seed=3)
    source = DeviceArray.copy_of(a)
    out, target = zeros((TILE, TILE), "float32"), zeros((TILE, TILE), "float32")
    maps = TensorMap.tiled(source, (TILE, TILE)), TensorMap.tiled(target, (TILE, TILE))
    stream = driver.check(api.cuStreamCreate(1), "stream")
    mode = api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    driver.check(api.cuStreamBeginCapture(stream, mode), "begin")
    # First launches of both kernels: loading must be possible in the strictest mode too.
    increment[2, 32, stream](counter)
    copy_tile[1, TILE, stream](np.int32(0), maps[0], np.int32(32), out, maps[1])
    graph = driver.check(api.cuStreamEndCapture(stream), "end")
    assert counter.numpy().sum() == 0, "capturing must not run anything"
    ready = driver.check(api.cuGraphInstantiate(graph, 0), "instantiate")
    for _ in range(3):
        driver.check(api.cuGraphLaunch(ready, stream), "replay")
    driver.check(api.cuStreamSynchronize(stream), "wait")
    assert (counter.numpy() == 3).all()
    assert np.array_equal(out.numpy(), a[:32, 32:64])


def captured_nodes(stream, work) -> int:
    """Return how many graph nodes ``work`` put into a capture of ``stream``."""
    api = driver.api()
    handle = api.CUstream(streams.handle(stream))
    mode = api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    driver.check(api.cuStreamBeginCapture(handle, mode), "begin")
    work()
    graph = driver.check(api.cuStreamEndCapture(handle), "end")
    return int(driver.check(api.cuGraphGetNodes(graph, 0), "nodes")[1])


def launches_reach(stream) -> None:
    counter = zeros(32)
    increment[1, 32, stream](counter)
    driver.synchronize()
    assert (counter.numpy() == 1).all()
    assert captured_nodes(stream, lambda: increment[1, 32, stream](counter)) == 1


def numba_streams_and_arrays():
    launches_reach(cuda.stream())
    host = np.arange(12, dtype=np.float32).reshape(3, 4)
    target = cuda.to_device(np.zeros((3, 4), np.float32))
    widen[1, 1](cuda.to_device(host), target)
    assert np.array_equal(target.copy_to_host(), host)


def cuda_core_streams():
    from cuda.core import Device

    device = Device(0)
    device.set_current()
    launches_reach(device.create_stream())


def integer_and_driver_streams():
    driver.ensure_context()
    stream = driver.check(driver.api().cuStreamCreate(1), "stream")
    launches_reach(stream)
    launches_reach(int(stream))


def torch_streams():
    torch = need("torch")
    torch.cuda.init()
    launches_reach(torch.cuda.Stream())
    counter = torch.zeros(32, dtype=torch.int32, device="cuda")
    graph = torch.cuda.CUDAGraph()
    increment[1, 32](counter)  # warm
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        increment[1, 32, torch.cuda.current_stream()](counter)
        increment[1, 32, streams.current_torch_stream()](counter)
    before = counter.clone()
    graph.replay()
    torch.cuda.synchronize()
    assert (counter - before == 2).all()


def cupy_streams_and_arrays():
    cupy = need("cupy")
    launches_reach(cupy.cuda.Stream(non_blocking=True))
    source = cupy.arange(12, dtype=cupy.float32).reshape(3, 4)
    for view in (source, source.T, source[::2, 1:]):
        target = cupy.zeros(view.shape, cupy.float32)
        widen[1, 1](view, target)
        assert (target == view).all()


def torch_dtypes_and_strides():
    torch = need("torch")
    names = [
        "float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64",
        "float8_e4m3fn", "float8_e5m2", "bool",
    ]  # fmt: skip
    for name in names:
        values = torch.randn(6, 8, device="cuda") * 4
        tensor = (values > 0) if name == "bool" else values.to(getattr(torch, name))
        for view in (tensor, tensor.t(), tensor[1:5, 2:7], tensor[::2, ::2]):
            target = torch.full(view.shape, float("nan"), device="cuda")
            widen[1, 1](view, target)
            torch.cuda.synchronize()
            assert torch.equal(target, view.float()), (name, view.shape, view.stride())


def own_arrays_of_every_dtype():
    for name in ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "float32", "int32"):
        host = testing.random_normal((5, 7), name, seed=4)
        target = zeros((5, 7), "float32")
        widen[1, 1](DeviceArray.copy_of(host), target)
        assert np.array_equal(target.numpy(), host.astype(np.float32)), name
    raw = DeviceArray.copy_of(testing.random_normal((4, 4), "bfloat16").view(np.uint16))
    target = zeros((4, 4), "float32")
    widen[1, 1](arguments.as_dtype(raw, "bfloat16"), target)
    expected = raw.numpy().view(ml_dtypes.bfloat16).astype(np.float32)
    assert np.array_equal(target.numpy(), expected)


def programmatic_dependent_launch():
    out = zeros(256)
    configured = dependent[2, 128]
    for _ in range(50):
        configured(out)
    assert (out.numpy() == 50).all()


def thread_without_a_context():
    counter = zeros(32)
    configured = increment[1, 32]
    configured(counter)
    driver.synchronize()
    errors = []

    def work():
        try:
            assert int(driver.check(driver.api().cuCtxGetCurrent(), "context")) == 0
            configured(counter)
            driver.synchronize()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not errors, errors
    assert (counter.numpy() == 2).all()


def many_threads_at_once():
    outs = [zeros((4, 1), "float32") for _ in range(8)]
    sources = [DeviceArray.copy_of(np.full((4, 1), i, np.float32)) for i in range(8)]
    configured = widen[1, 1]
    configured(sources[0], outs[0])

    def work(i):
        for _ in range(200):
            configured(sources[i], outs[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, out in enumerate(outs):
        assert (out.numpy() == i).all(), i


def wrong_device_code():
    compiled = empty.compile(arch="sm_100a")
    if driver.compute_capability() != (9, 0):
        compiled = empty.compile(arch="sm_90a")
    with pytest.raises(LaunchError, match=f"built for {compiled.arch}, device is"):
        launch(compiled, None, 1, 32, None, ())


def host_overhead():
    """Print host microseconds per launch, beside the raw call; at most four times that."""
    api = driver.api()
    arrays = [zeros(1024, "float32") for _ in range(3)]
    source = zeros((64, 64), "float32")
    tiled = TensorMap.tiled(source, (TILE, TILE))

    plan = empty.plan_for(())
    made = plan._launch_config(LaunchConfig(1, 32))
    function = api.CUfunction(int(plan.load()))
    frame = plan._frame()
    rows = {"raw cuLaunchKernelEx, prepacked, no arguments": lambda: api.cuLaunchKernelEx(
        made, function, frame[1], 0)}  # fmt: skip
    three = three_arrays.plan_for(arrays)
    three_made = three._launch_config(LaunchConfig(1, 32))
    three_function = api.CUfunction(int(three.load()))
    three_frame = three._frame()
    raw_name = "raw cuLaunchKernelEx, prepacked, 3 arrays"
    rows[raw_name] = lambda: api.cuLaunchKernelEx(three_made, three_function, three_frame[1], 0)

    no_arguments, configured = empty[1, 32], three_arrays[1, 32]
    out = zeros((TILE, TILE), "float32")
    copier = copy_tile[1, TILE]
    zero = np.int32(0)
    rows["nbtc, no arguments"] = no_arguments
    rows["nbtc, 3 DeviceArrays (__cuda_array_interface__)"] = lambda: configured(*arrays)
    rows["nbtc, 3 DeviceArrays, kernel[...] each time"] = lambda: three_arrays[1, 32](*arrays)
    rows["nbtc, 2 tensor maps, 2 ints, 1 array"] = lambda: copier(zero, tiled, zero, out, tiled)
    numba_arrays = [cuda.to_device(np.zeros(1024, np.float32)) for _ in range(3)]
    rows["nbtc, 3 Numba arrays"] = lambda: configured(*numba_arrays)
    rows["tensor map: make and encode"] = lambda: TensorMap.tiled(source, (TILE, TILE)).encoded
    rows["tensor map: rebind and encode"] = lambda: tiled.rebind(source).encoded
    judged = "nbtc, 3 Numba arrays"
    try:
        import torch

        tensors = [torch.zeros(1024, device="cuda") for _ in range(3)]
        small = [torch.zeros(64, 64, device="cuda") for _ in range(3)]
        rows["nbtc, 3 torch tensors"] = lambda: configured(*tensors)
        rows["torch.mm 64x64"] = lambda: torch.mm(small[0], small[1], out=small[2])
        rows["torch.add"] = lambda: torch.add(tensors[0], tensors[1], out=tensors[2])
        judged = "nbtc, 3 torch tensors"
    except ImportError:
        pass
    times = {name: testing.host_time(function) for name, function in rows.items()}
    for name, microseconds in times.items():
        print(f"{microseconds:8.2f} us  {microseconds / times[raw_name]:5.2f}x  {name}")
    assert times[judged] <= 4 * times[raw_name], f"{judged} is over four times the raw call"


SCENARIOS = {
    function.__name__: function
    for function in (
        clusters_count_blocks, clusters_in_two_dimensions, non_portable_clusters,
        scalars_of_every_width, big_dynamic_shared_memory, tensor_maps_by_value,
        tensor_map_of_a_view, im2col_corners_are_width_first, graph_capture_and_replay,
        numba_streams_and_arrays, cuda_core_streams, integer_and_driver_streams, torch_streams,
        cupy_streams_and_arrays, torch_dtypes_and_strides, own_arrays_of_every_dtype,
        programmatic_dependent_launch, thread_without_a_context, many_threads_at_once,
        wrong_device_code, host_overhead,
    )
}  # fmt: skip


if __name__ == "__main__":
    try:
        SCENARIOS[sys.argv[1]]()
    except Missing as missing:
        print(f"{missing} is not installed")
        sys.exit(77)
