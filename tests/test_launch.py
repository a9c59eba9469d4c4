"""Launching, against a stand-in for the driver: what it is told, and what is refused before."""

from __future__ import annotations

import ctypes
import gc
import re
import struct
import threading
import weakref
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest
from cuda.bindings import driver as bindings
from numba.cuda import types

from nbtc import driver, streams
from nbtc.arguments import types_of
from nbtc.errors import ArchError, DriverError, LaunchError
from nbtc.launch import (
    Configured,
    LaunchConfig,
    LaunchOptions,
    LaunchPlan,
    LaunchSyntax,
    launch,
)

OK = bindings.CUresult.CUDA_SUCCESS
FUNCTION = bindings.CUfunction_attribute
LAUNCH = bindings.CUlaunchAttributeID
CAPTURE = bindings.CUstreamCaptureMode
OPT_IN = 232448


class FakeDriver:
    """cuda.bindings.driver with the functions that need a GPU replaced and their calls kept."""

    def __init__(self, capabilities=((9, 0),)) -> None:
        self.capabilities = capabilities
        self.launches: list[SimpleNamespace] = []
        self.attributes: list[tuple[str, int, int]] = []
        self.loads = 0
        self.capture_mode = CAPTURE.CU_STREAM_CAPTURE_MODE_GLOBAL
        self.contexts = 0
        self.has_context = True
        self.statuses: list[object] = []
        self.active_clusters = 4
        self.sizes: list[int] = []

    def __getattr__(self, name):
        return getattr(bindings, name)

    def cuDeviceGetCount(self):
        return OK, len(self.capabilities)

    def cuDeviceGet(self, index):
        return OK, index

    def cuDeviceGetName(self, length, device):
        return OK, b"Fake GPU\0\0"

    def cuDeviceGetAttribute(self, key, device):
        name = key.name.removeprefix("CU_DEVICE_ATTRIBUTE_")
        major, minor = self.capabilities[device]
        values = {
            "COMPUTE_CAPABILITY_MAJOR": major,
            "COMPUTE_CAPABILITY_MINOR": minor,
            "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": OPT_IN,
        }
        return OK, values[name]

    def cuCtxGetCurrent(self):
        return OK, 1 if self.has_context else 0

    def cuCtxSetCurrent(self, context):
        self.has_context = True
        self.contexts += 1
        return (OK,)

    def cuDevicePrimaryCtxRetain(self, device):
        return OK, 77

    def cuCtxGetDevice(self):
        return OK, 0

    def cuThreadExchangeStreamCaptureMode(self, mode):
        before, self.capture_mode = self.capture_mode, mode
        return OK, before

    def cuLibraryLoadData(self, code, *rest):
        assert self.capture_mode == CAPTURE.CU_STREAM_CAPTURE_MODE_RELAXED
        self.loads += 1
        return OK, 0x70

    def cuLibraryGetKernel(self, library, name):
        return OK, 0x80

    def cuKernelGetFunction(self, kernel):
        return OK, 0x90

    def cuKernelSetAttribute(self, attribute, value, kernel, device):
        self.attributes.append((attribute.name, value, device))
        return (OK,)

    def cuOccupancyMaxActiveClusters(self, function, config):
        return OK, self.active_clusters

    def cuGetErrorString(self, status):
        return OK, b"a reason"

    def cuLaunchKernelEx(self, config, function, parameters, extra):
        pointers = (ctypes.c_void_p * len(self.sizes)).from_address(parameters)
        self.launches.append(
            SimpleNamespace(
                grid=(config.gridDimX, config.gridDimY, config.gridDimZ),
                block=(config.blockDimX, config.blockDimY, config.blockDimZ),
                smem=config.sharedMemBytes,
                stream=int(config.hStream),
                attributes=list(config.attrs),
                function=int(function),
                values=[ctypes.string_at(p, n) for p, n in zip(pointers, self.sizes, strict=True)],
            )
        )
        if not self.has_context:
            return (bindings.CUresult.CUDA_ERROR_INVALID_CONTEXT,)
        return (self.statuses.pop(0) if self.statuses else OK,)


@pytest.fixture
def fake(monkeypatch):
    """Install one fake driver with a Hopper GPU."""
    return install(monkeypatch, FakeDriver())


def install(monkeypatch, fake: FakeDriver) -> FakeDriver:
    monkeypatch.setattr(driver, "_api", fake)
    for name in ("device_count", "device", "attribute", "device_name", "_primary"):
        getattr(driver, name).cache_clear()
    return fake


@pytest.fixture(autouse=True)
def _forget_fakes():
    """Keep answers of a fake driver out of other tests."""
    yield
    for name in ("device_count", "device", "attribute", "device_name", "_primary"):
        getattr(driver, name).cache_clear()


@dataclass
class FakeResources:
    """What ptxas would say."""

    registers: int = 32
    static_smem_bytes: int = 0
    dynamic_smem_bytes: int = 0


@dataclass
class FakeCompiled:
    """A compiled kernel with nothing in it."""

    argument_types: tuple
    resources: FakeResources = field(default_factory=FakeResources)
    arch: str = "sm_90a"
    cubin: bytes = b"cubin"
    entry: str = "kernel"


def plan_of(*args_types, names=None, arch="sm_90a", **options_and_resources) -> LaunchPlan:
    resources = {
        name: options_and_resources.pop(name)
        for name in ("registers", "static_smem_bytes", "dynamic_smem_bytes")
        if name in options_and_resources
    }
    compiled = FakeCompiled(args_types, FakeResources(**resources), arch)
    return LaunchPlan(compiled, LaunchOptions(**options_and_resources), names)


def attribute_values(launched) -> dict:
    return {a.id: a.value for a in launched.attributes}


class Array:
    """Device memory at a made-up address."""

    def __init__(self, shape, typestr="<f4", address=0x1000) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": typestr, "data": (address, False), "version": 3,
        }  # fmt: skip


# -- configuration -----------------------------------------------------------------------------


def test_sizes_are_completed_to_three():
    config = LaunchConfig(4, (8, 2))
    assert (config.grid, config.block, config.threads) == ((4, 1, 1), (8, 2, 1), 16)
    assert LaunchConfig(np.int64(4), [32]).grid == (4, 1, 1)


@pytest.mark.parametrize(
    ("grid", "block", "message"),
    [
        (0, 32, "grid 0: every entry must be at least 1"),
        (1, (32, -1), "block (32, -1): every entry must be at least 1"),
        (1.0, 32, "grid 1.0: every entry must be an integer"),
        ((1, 1, 1, 1), 32, "give 1 to 3 entries"),
        (1, 2048, "block.x=2048 > 1024"),
        (1, (1, 1, 65), "block.z=65 > 64"),
        (1, (64, 32), "block (64,32,1) has 2048 threads; at most 1024"),
        ((1, 65536), 32, "grid.y=65536 > 65535"),
        (2**31, 32, "grid.x=2147483648 > 2147483647"),
    ],
)
def test_impossible_sizes_are_refused(grid, block, message):
    with pytest.raises(LaunchError, match=re.escape(message)):
        LaunchConfig(grid, block)


def test_grid_counts_blocks_and_must_hold_whole_clusters():
    plan = plan_of(cluster=2)
    plan.check_config(LaunchConfig(4, 128))
    with pytest.raises(LaunchError, match="grid 5 is not a multiple of cluster 2"):
        plan.check_config(LaunchConfig(5, 128))
    with pytest.raises(LaunchError, match=r"grid\.y 3 is not a multiple of cluster\.y 2"):
        plan_of(cluster=(1, 2)).check_config(LaunchConfig((4, 3), 128))


def test_cluster_above_eight_must_be_asked_for():
    message = "cluster (16,1,1) needs non_portable=True"
    with pytest.raises(LaunchError, match=re.escape(message)):
        LaunchOptions(cluster=16)
    assert LaunchOptions(cluster=(4, 4), non_portable=True).cluster_blocks == 16
    with pytest.raises(LaunchError, match="32 blocks; at most 16"):
        LaunchOptions(cluster=32, non_portable=True)


def test_more_threads_than_launch_bounds():
    plan = plan_of(launch_bounds=(384, 1))
    plan.check_config(LaunchConfig(1, 384))
    with pytest.raises(LaunchError, match="512 threads > launch_bounds 384"):
        plan.check_config(LaunchConfig(1, 512))


def test_registers_times_threads():
    message = "200 regs x 384 = 76800 > 65536: launch_bounds=(384, 1) or max_registers=168"
    with pytest.raises(LaunchError, match=re.escape(message)):
        plan_of(registers=200).check_config(LaunchConfig(1, 384))
    plan_of(registers=168).check_config(LaunchConfig(1, 384))
    plan_of(registers=64).check_config(LaunchConfig(1, 1024))
    # Registers are given out in eights: 65 take the room of 72.
    with pytest.raises(LaunchError, match="72 regs x 1024"):
        plan_of(registers=65).check_config(LaunchConfig(1, 1024))


# -- what the driver is told -------------------------------------------------------------------


def test_launch_passes_sizes_stream_and_values(fake):
    plan = plan_of(types.int32, types.float64, types.boolean)
    fake.sizes = [p.size for p in plan.layout.parameters]
    plan.launch(LaunchConfig((4, 2), (128, 2), 0x55), (7, 2.5, True))
    (done,) = fake.launches
    assert (done.grid, done.block) == ((4, 2, 1), (128, 2, 1))
    assert (done.stream, done.function) == (0x55, 0x80)
    assert done.values == [struct.pack("<i", 7), struct.pack("<d", 2.5), b"\x01"]
    assert done.attributes == []


def test_loading_is_allowed_during_a_capture_and_the_mode_restored(fake):
    plan_of().launch(LaunchConfig(1, 32), ())
    assert fake.loads == 1
    assert fake.capture_mode == CAPTURE.CU_STREAM_CAPTURE_MODE_GLOBAL


def test_array_arrives_as_numbas_seven_words(fake):
    plan = plan_of(types.float32[::1])
    fake.sizes = [8] * 7
    plan.launch(LaunchConfig(1, 32), (Array((10,), address=0xABCD00),))
    words = [int.from_bytes(v, "little") for v in fake.launches[0].values]
    assert words == [0, 0, 10, 4, 0xABCD00, 10, 4]


def test_cluster_pdl_and_cooperative_are_launch_attributes(fake):
    plan = plan_of(cluster=(2, 2), programmatic_launch=True, cooperative=True)
    plan.launch(LaunchConfig((4, 2), 128), ())
    values = attribute_values(fake.launches[0])
    size = values[LAUNCH.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION].clusterDim
    assert (size.x, size.y, size.z) == (2, 2, 1)
    pdl = values[LAUNCH.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION]
    assert pdl.programmaticStreamSerializationAllowed == 1
    assert values[LAUNCH.CU_LAUNCH_ATTRIBUTE_COOPERATIVE].cooperative == 1
    assert fake.launches[0].grid == (4, 2, 1)  # blocks, not clusters


def test_big_shared_memory_is_allowed_once_per_device(monkeypatch):
    fake = install(monkeypatch, FakeDriver(((9, 0), (9, 0), (10, 0))))
    plan = plan_of(dynamic_smem_bytes=200 * 1024)
    for stream in range(5):
        plan.launch(LaunchConfig(1, 128, stream), ())
    name = FUNCTION.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES.name
    # The third device cannot run sm_90a code, so nothing is set there.
    assert fake.attributes == [(name, 204800, 0), (name, 204800, 1)]
    assert fake.loads == 1
    assert {done.smem for done in fake.launches} == {204800}


@pytest.mark.parametrize(
    ("static", "dynamic", "raised"),
    [(0, 48 * 1024, False), (16, 48 * 1024, True), (0, 48 * 1024 + 1, True), (0, OPT_IN, True)],
)
def test_limit_is_raised_above_48_kib_of_static_and_dynamic(fake, static, dynamic, raised):
    plan = plan_of(static_smem_bytes=static, dynamic_smem_bytes=dynamic)
    plan.launch(LaunchConfig(1, 128), ())
    assert bool(fake.attributes) is raised


def test_shared_memory_over_the_device_limit(fake):
    message = "232449 B > 232448 B opt-in maximum of this device (227 KiB)"
    with pytest.raises(LaunchError, match=re.escape(message)):
        plan_of(dynamic_smem_bytes=232449).launch(LaunchConfig(1, 128), ())
    message = "232464 B (16 static + 232448 dynamic) > 232448 B"
    with pytest.raises(LaunchError, match=re.escape(message)):
        plan_of(static_smem_bytes=16, dynamic_smem_bytes=OPT_IN).launch(LaunchConfig(1, 128), ())
    assert fake.launches == []


def test_launch_may_ask_for_more_shared_memory(fake):
    plan = plan_of(dynamic_smem_bytes=1024)
    plan.launch(LaunchConfig(1, 128, None, 100 * 1024), ())
    assert fake.launches[0].smem == 100 * 1024
    assert [value for _, value, _ in fake.attributes] == [100 * 1024]


def test_non_portable_cluster_is_allowed_and_checked(fake):
    plan = plan_of(cluster=16, non_portable=True, dynamic_smem_bytes=OPT_IN)
    name = FUNCTION.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED.name
    plan.launch(LaunchConfig(16, 128), ())
    assert (name, 1, 0) in fake.attributes
    fake.active_clusters = 0
    message = "cluster (16,1,1) does not fit: with 229376 B smem max active clusters = 0"
    other = plan_of(cluster=16, non_portable=True, dynamic_smem_bytes=229376)
    with pytest.raises(LaunchError, match=re.escape(message)):
        other.launch(LaunchConfig(16, 128), ())


@pytest.mark.parametrize(
    ("built", "device", "message"),
    [
        ("sm_90a", (10, 0), "built for sm_90a, device is 10.0 (Fake GPU); rebuild with "
         "arch='sm_100a'"),
        ("sm_100a", (9, 0), "built for sm_100a, device is 9.0 (Fake GPU); rebuild with "
         "arch='sm_90a'"),
        ("sm_100a", (10, 3), "built for sm_100a, device is 10.3"),
        ("sm_90a", (12, 0), "built for sm_90a, device is 12.0 (Fake GPU); rebuild; supported"),
    ],
)  # fmt: skip
def test_code_for_another_device_is_refused(monkeypatch, built, device, message):
    fake = install(monkeypatch, FakeDriver((device,)))
    with pytest.raises(LaunchError, match=re.escape(message)):
        plan_of(arch=built).launch(LaunchConfig(1, 32), ())
    assert fake.loads == 0


@pytest.mark.parametrize(("built", "device"), [("sm_100f", (10, 3)), ("sm_90", (9, 0))])
def test_code_for_the_family_runs(monkeypatch, built, device):
    fake = install(monkeypatch, FakeDriver((device,)))
    plan_of(arch=built).launch(LaunchConfig(1, 32), ())
    assert len(fake.launches) == 1


def test_unknown_arch_is_an_error(fake):
    with pytest.raises(ArchError, match="supported: sm_90, "):
        plan_of(arch="sm_80").launch(LaunchConfig(1, 32), ())


def test_thread_without_context_gets_one_and_launches(fake):
    plan = plan_of(types.int32)
    fake.sizes = [4]
    config = LaunchConfig(1, 32)
    plan.launch(config, (1,))
    fake.has_context = False
    plan.launch(config, (2,))
    assert fake.contexts == 1
    assert [v.values[0][0] for v in fake.launches] == [1, 2, 2]


def test_driver_refusal_tells_the_configuration(fake):
    fake.statuses = [bindings.CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES]
    plan = plan_of(cluster=2, dynamic_smem_bytes=1000)
    with pytest.raises(DriverError) as caught:
        plan.launch(LaunchConfig(4, 96), ())
    text = str(caught.value)
    assert "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (a reason)" in text
    assert "grid (4,1,1), block (96,1,1), cluster (2, 1, 1), 32 registers, 0 + 1000 B" in text


def test_parameter_blocks_are_not_shared_by_running_launches(fake):
    """Two threads inside the driver at once must see their own values."""
    plan = plan_of(types.int64)
    fake.sizes = [8]
    inside = threading.Barrier(2, timeout=20)
    original = fake.cuLaunchKernelEx

    def slow(config, function, parameters, extra):
        inside.wait()
        return original(config, function, parameters, extra)

    fake.cuLaunchKernelEx = slow
    run = plan.bind(LaunchConfig(1, 32))
    threads = [threading.Thread(target=run, args=([value],)) for value in (11, 22)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    got = sorted(int.from_bytes(done.values[0], "little") for done in fake.launches)
    assert got == [11, 22]


def test_frame_returns_to_the_pool_after_an_error(fake):
    plan = plan_of(types.int32, names=["n"])
    fake.sizes = [4]
    run = plan.bind(LaunchConfig(1, 32))
    for _ in range(3):
        with pytest.raises(LaunchError, match=r"argument 0 \('n'\): 4294967296 does not fit int32"):
            run([2**32])
    run([5])
    assert len(plan._frames) == 1
    assert len(fake.launches) == 1


# -- arguments against the compiled types ------------------------------------------------------


@pytest.mark.parametrize(
    ("want", "value", "message"),
    [
        (types.float32[::1], Array((4,), "<f8"), "argument 0 ('x') is array(float64, 1d, C); the "
         "kernel was compiled for array(float32, 1d, C)"),
        (types.float32[:, ::1], Array((4,)), "is array(float32, 1d, C)"),
        (types.float32[::1], 1, "is int64; the kernel was compiled for array"),
        (types.int32, 1.5, "is float64; the kernel was compiled for int32"),
        (types.int32, None, "is none"),
        (types.complex64, 1.0, "is float64; the kernel was compiled for complex64"),
        (types.float32, 1j, "is complex128"),
        (types.UniTuple(types.int32, 2), (1, 2, 3), "is UniTuple(int64 x 3)"),
    ],
)  # fmt: skip
def test_argument_of_another_type_is_refused(fake, want, value, message):
    with pytest.raises(LaunchError, match=re.escape(message)):
        plan_of(want, names=["x"]).launch(LaunchConfig(1, 32), (value,))
    assert fake.launches == []


@pytest.mark.parametrize(
    ("want", "value"),
    [
        (types.float32[:], Array((4,))),
        (types.int32, 3),
        (types.float32, 3),
        (types.float32, np.float64(0.5)),
        (types.boolean, 1),
        (types.complex64, 1j),
        (types.UniTuple(types.int32, 2), (1, 2)),
        (types.none, None),
    ],
)
def test_argument_that_loses_nothing_is_taken(fake, want, value):
    plan = plan_of(want)
    plan.launch(LaunchConfig(1, 32), (value,))
    assert len(fake.launches) == 1


def test_wrong_number_of_arguments(fake):
    with pytest.raises(LaunchError, match="the kernel takes 2 arguments, got 1"):
        plan_of(types.int32, types.int32).launch(LaunchConfig(1, 32), (1,))


# -- kernel[...] -------------------------------------------------------------------------------


class Kernel(LaunchSyntax):
    """A kernel that compiles to nothing, one plan per tuple of types."""

    argument_names = ("a", "n")

    def __init__(self, **options) -> None:
        self.options = LaunchOptions(**options)
        self.plans: dict[tuple, LaunchPlan] = {}
        self.asked = 0

    def plan_for(self, args):
        self.asked += 1
        key = types_of(args)
        if key not in self.plans:
            self.plans[key] = LaunchPlan(FakeCompiled(key), self.options, self.argument_names)
        return self.plans[key]


def test_kernel_syntax_keeps_configurations_and_plans(fake):
    kernel = Kernel()
    for n in range(4):
        kernel[2, 64, 9](Array((8,)), n)
    assert kernel[2, 64, 9] is kernel[2, 64, 9]
    assert (kernel.asked, fake.loads, len(fake.launches)) == (1, 1, 4)
    kernel[2, 64, 9](Array((8,), "<f8"), 1)
    assert (kernel.asked, len(kernel.plans)) == (2, 2)
    kernel[4, 64](Array((8,)), 1)
    assert fake.launches[-1].grid == (4, 1, 1)
    assert fake.launches[-1].stream == 0
    kernel[(1, 2), (32, 2), 0, 4096](Array((8,)), 1)
    assert (fake.launches[-1].grid, fake.launches[-1].smem) == ((1, 2, 1), 4096)


def test_bound_arguments_are_converted_once(fake):
    kernel = Kernel()
    array = Array((8,))
    launch = kernel[2, 64, 9].bind(array, 5)
    assert fake.launches == []
    for _ in range(3):
        launch()
    kernel[2, 64, 9](array, 5)
    assert len(fake.launches) == 4
    assert len({tuple(one.values) for one in fake.launches}) == 1
    assert {one.stream for one in fake.launches} == {9}
    kept = weakref.ref(array)
    del array
    gc.collect()
    assert kept() is not None  # its memory must live as long as the launch
    with pytest.raises(LaunchError, match="argument 1"):
        kernel[2, 64].bind(Array((8,)), "five")


def test_unhashable_sizes_work(fake):
    Kernel()[[2, 2], [32]](Array((8,)), 1)
    assert fake.launches[0].grid == (2, 2, 1)


@pytest.mark.parametrize("key", [4, (4,), (1, 2, 3, 4, 5)])
def test_kernel_syntax_says_what_it_takes(key):
    with pytest.raises(LaunchError, match=r"give kernel\[grid, block\]"):
        Kernel()[key]


def test_refused_argument_is_named(fake):
    with pytest.raises(LaunchError, match=r"argument 0 \('a'\): a NumPy array"):
        Kernel()[1, 32](np.zeros(4, np.float32), 1)


def test_value_error_on_the_fast_path_is_named(fake):
    class Narrow(Kernel):
        def plan_for(self, args):
            return LaunchPlan(FakeCompiled((types.int8, types.int8)), None, self.argument_names)

    configured = Configured(Narrow(), 1, 32)
    configured(1, 2)
    with pytest.raises(LaunchError, match=r"argument 1 \('n'\): 300 does not fit int8"):
        configured(1, 300)


def test_plain_function_keeps_the_plan(fake):
    compiled = FakeCompiled((types.int32,))
    fake.sizes = [4]
    for value in range(3):
        launch(compiled, None, 1, 32, None, (value,))
    assert fake.loads == 1
    assert [d.values[0][0] for d in fake.launches] == [0, 1, 2]


# -- without a driver --------------------------------------------------------------------------


def test_missing_driver_is_an_error_that_says_what_still_works(monkeypatch):
    def no_driver(flags):
        raise RuntimeError("libcuda.so.1 not found")

    monkeypatch.setattr(driver, "_api", None)
    monkeypatch.setattr(driver, "_bindings", lambda: SimpleNamespace(cuInit=no_driver))
    with pytest.raises(DriverError, match=r"no CUDA driver.*Compiling and the emulator need none"):
        plan_of().launch(LaunchConfig(1, 32), ())
    driver.device_count.cache_clear()
    assert not driver.available()


# -- streams -----------------------------------------------------------------------------------


class ProtocolStream:
    """A stream by the ``__cuda_stream__`` protocol."""

    def __cuda_stream__(self):
        return 0, 0x42


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (None, 0),
        (0, 0),
        (2, 2),
        (0x7F00, 0x7F00),
        (ProtocolStream(), 0x42),
        (SimpleNamespace(__cuda_stream__=(0, 0x43)), 0x43),
        (SimpleNamespace(cuda_stream=0x44), 0x44),
        (SimpleNamespace(ptr=0x45), 0x45),
        (bindings.CUstream(0x46), 0x46),
    ],
)
def test_stream_handles(stream, handle):
    assert streams.handle(stream) == handle


def test_numba_stream_handle():
    from numba.cuda.cudadrv.driver import Stream

    assert streams.handle(Stream(bindings.CUstream(0x47))) == 0x47
    assert streams.handle(Stream(bindings.CUstream(0))) == 0


@pytest.mark.parametrize("stream", ["0", 1.5, True, -1, object()])
def test_other_objects_are_no_streams(stream):
    with pytest.raises(LaunchError, match="stream"):
        LaunchConfig(1, 32, stream)


def test_current_torch_stream_without_torch(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    assert streams.current_torch_stream() == 0
