"""Cases of the section ``agreement``: what both sides run, how, and what may differ."""

from __future__ import annotations

import ctypes
import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
_EMULATOR = ("nbtc/emulator", "nbtc/layout")
_KERNELS = (*_EMULATOR, "nbtc/gemm", "nbtc/device", "intrinsics", "examples")

HEADER = """.version 8.8
.target sm_90a
.address_size 64
"""
REGISTERS = """.reg .pred %p<8>;
.reg .b8 %rb<8>;
.reg .b16 %rs<16>;
.reg .b32 %r<512>;
.reg .f32 %f<16>;
.reg .b64 %rd<64>;
.reg .b32 %thread, %lane;
mov.u32 %thread, %tid.x;
and.b32 %lane, %thread, 31;
"""
START_BARRIER = """mov.u32 %r500, bar;
setp.eq.u32 %p0, %thread, 0;
@%p0 mbarrier.init.shared::cta.b64 [%r500], 1;
@%p0 fence.mbarrier_init.release.cluster;
bar.sync 0;
"""
"""One mbarrier at %r500, and %p0 true in thread 0."""
WAIT_BARRIER = """mov.u32 %r499, 0;
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r500], 0;
@%p1 bra READY;
add.u32 %r499, %r499, 1;
setp.lt.u32 %p2, %r499, 2000;
@%p2 bra WAIT;
READY:
"""
"""Gives up after a while: a wrong count of bytes is then a wrong result, not a hang."""


def module(body: str, maps: int, pointers: int, shared: str = "") -> str:
    """Return a module of the kernel ``k``: maps ``m0``..., then pointers in %rd1..."""
    parameters = [f".param .align 64 .b8 m{i}[128]" for i in range(maps)]
    parameters += [f".param .u64 a{i}" for i in range(pointers)]
    loads = "".join(
        f"ld.param.u64 %rd{i + 1}, [a{i}];\ncvta.to.global.u64 %rd{i + 1}, %rd{i + 1};\n"
        for i in range(pointers)
    )
    loads += "".join(
        f"mov.b64 %rd{40 + i}, m{i};\ncvta.param.u64 %rd{40 + i}, %rd{40 + i};\n"
        for i in range(maps)
    )
    entry = f".visible .entry k({', '.join(parameters)})\n{{\n"
    return HEADER + entry + REGISTERS + shared + loads + body + "ret;\n}\n"


@dataclass(frozen=True)
class Map:
    """A tensor map of (a window of) an array.

    Attributes:
        array: index of the array.
        kind: ``"tiled"`` or ``"im2col"``.
        place: positional arguments after the array.
        options: keyword arguments.
        window: slices of the array that the map covers.
    """

    array: int
    kind: str
    place: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)
    window: tuple[slice, ...] = ()

    def make(self, array: Any) -> Any:
        """Return the tensor map over memory of either side."""
        from nbtc import TensorMap

        part = array[self.window] if self.window else array
        return getattr(TensorMap, self.kind)(part, *self.place, **self.options)


@dataclass(frozen=True)
class Tolerance:
    """As ``dtype``, elements may differ by ``absolute`` plus ``relative`` times the emulator's."""

    dtype: str
    absolute: float
    relative: float = 0.0


class Emulated(Exception):
    """The emulator had findings for a correct kernel."""


@dataclass
class PtxCase:
    """A kernel in PTX text, its arrays, and which of them are results.

    Attributes:
        family: group in the report.
        name: unique in the family.
        ptx: module with one kernel.
        arrays: memory of the kernel, copied before each run.
        args: an array's index, a `Map`, or an integer for the 64-bit parameter.
        results: indices of arrays to compare, with what may differ; None demands equal bits.
        threads: threads of the one CTA.
        grid: CTAs.
        checks: whether the emulator looks for faults.
        entry: name of the kernel.
    """

    family: str
    name: str
    ptx: str
    arrays: list[np.ndarray]
    args: Sequence[int | Map]
    results: dict[int, Tolerance | None]
    threads: int = 128
    grid: int = 1
    checks: bool = True
    entry: str = "k"

    def key(self) -> str:
        """Return a hash of everything that decides the emulator's result."""
        text = repr((self.ptx, self.args, sorted(self.results), self.threads, self.grid))
        digest = hashlib.sha256((fingerprint(_EMULATOR) + text).encode())
        for array in self.arrays:
            digest.update(repr((array.shape, array.dtype.name)).encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:24]

    def cubin(self) -> bytes:
        """Assemble the module."""
        from nbtc import arch, ptxas

        return ptxas.assemble(self.ptx, arch.parse("sm_90a"), lineinfo=False).cubin

    def report(self, seed: int = 0) -> tuple[Any, list[np.ndarray]]:
        """Run on the emulator; return its report and all arrays."""
        from nbtc import emulator

        arrays = [array.copy() for array in self.arrays]
        args = [a.make(arrays[a.array]) if isinstance(a, Map) else arrays[a] for a in self.args]
        report = emulator.launch(
            self.ptx, self.entry, grid=self.grid, block=self.threads, args=args, seed=seed,
            checks=self.checks,
        )  # fmt: skip
        return report, arrays

    def emulate(self, seed: int = 0) -> list[np.ndarray]:
        """Run on the emulator.

        Raises:
            Emulated: it has findings.
        """
        report, arrays = self.report(seed)
        if report.findings:
            raise Emulated("; ".join(str(f.message) for f in report.findings[:3])[:400])
        return [arrays[i] for i in self.results]

    def hardware(self, cubin: bytes) -> list[np.ndarray]:
        """Run the assembled module on the GPU."""
        from nbtc import driver
        from nbtc.device_array import DeviceArray

        driver.ensure_context()
        api = driver.api()
        loaded = api.cuLibraryLoadData(cubin, [], [], 0, [], [], 0)
        library = driver.check(loaded, "loading the kernel")
        found = api.cuLibraryGetKernel(library, self.entry.encode())
        function = api.CUfunction(int(driver.check(found, "finding the kernel")))
        arrays = [DeviceArray.copy_of(array) for array in self.arrays]
        buffers, maps = [], []
        for argument in self.args:
            if isinstance(argument, Map):
                tensor_map = argument.make(arrays[argument.array])
                maps.append(tensor_map)
                raw = ctypes.create_string_buffer(tensor_map.encoded, 128)
            else:
                address = arrays[argument].address
                raw = ctypes.create_string_buffer(address.to_bytes(8, "little"), 8)
            buffers.append(raw)
        pointers = (ctypes.c_void_p * len(buffers))(*map(ctypes.addressof, buffers))
        shape = self.grid, 1, 1, self.threads, 1, 1
        launched = api.cuLaunchKernel(function, *shape, 0, 0, ctypes.addressof(pointers), 0)
        driver.check(launched, f"launching {self.name}")
        driver.synchronize()
        results = [arrays[i].numpy() for i in self.results]
        api.cuLibraryUnload(library)
        return results

    def tolerances(self) -> list[Tolerance | None]:
        """Return what may differ, one per result."""
        return list(self.results.values())


@dataclass
class KernelCase:
    """Kernels of the project, run by a function that returns arrays on either side."""

    family: str
    name: str
    function: Callable[..., list[tuple[np.ndarray, Tolerance | None]]]
    arguments: tuple[Any, ...] = ()

    def key(self) -> str:
        """Return a hash of everything that decides the emulator's result."""
        text = fingerprint(_KERNELS) + repr((self.family, self.name, self.arguments))
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def cubin(self) -> bytes:
        """Return nothing: the kernels are in the disk cache after they were emulated."""
        return b""

    def emulate(self, seed: int = 0) -> list[np.ndarray]:
        """Run on the emulator.

        Raises:
            Emulated: it has findings.
        """
        from nbtc import testing
        from nbtc.errors import FindingsError

        try:
            with testing.emulated(seed):
                found = self.function(*self.arguments)
        except FindingsError as error:
            raise Emulated(str(error)[:400]) from None
        self._found = [tolerance for _, tolerance in found]
        return [array for array, _ in found]

    def hardware(self, cubin: bytes) -> list[np.ndarray]:
        """Run on the GPU."""
        del cubin
        found = self.function(*self.arguments)
        self._found = [tolerance for _, tolerance in found]
        return [array for array, _ in found]

    def tolerances(self) -> list[Tolerance | None]:
        """Return what may differ, one per result of the last run."""
        return self._found


Case = PtxCase | KernelCase


@functools.cache
def fingerprint(folders: tuple[str, ...]) -> str:
    """Return a hash of the Python sources of some folders."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def random_bytes(count: int, seed: int) -> np.ndarray:
    """Return ``count`` random bytes."""
    return np.random.default_rng(seed).integers(0, 256, count).astype(np.uint8)


def copy_shared_out(pointer: str, shared: str, count: int, threads: int = 128) -> Iterator[str]:
    """Yield PTX that copies ``count`` bytes (a multiple of 4) of shared memory to global memory."""
    yield f"mov.u32 %r501, {shared};\nshl.b32 %r502, %thread, 2;\nadd.u32 %r503, %r501, %r502;\n"
    yield f"cvt.u64.u32 %rd50, %r502;\nadd.u64 %rd51, {pointer}, %rd50;\n"
    yield f"OUT: setp.ge.u32 %p2, %r502, {count};\n@%p2 bra OUT_END;\n"
    yield "ld.shared.u32 %r504, [%r503];\nst.global.u32 [%rd51], %r504;\n"
    yield f"add.u32 %r502, %r502, {4 * threads};\nadd.u32 %r503, %r503, {4 * threads};\n"
    yield f"add.u64 %rd51, %rd51, {4 * threads};\nbra OUT;\nOUT_END:\n"


def copy_shared_in(pointer: str, shared: str, count: int, threads: int = 128) -> Iterator[str]:
    """Yield PTX that copies ``count`` bytes of global memory to shared memory."""
    yield f"mov.u32 %r501, {shared};\nshl.b32 %r502, %thread, 2;\nadd.u32 %r503, %r501, %r502;\n"
    yield f"cvt.u64.u32 %rd50, %r502;\nadd.u64 %rd51, {pointer}, %rd50;\n"
    yield f"IN: setp.ge.u32 %p2, %r502, {count};\n@%p2 bra IN_END;\n"
    yield "ld.global.u32 %r504, [%rd51];\nst.shared.u32 [%r503], %r504;\n"
    yield f"add.u32 %r502, %r502, {4 * threads};\nadd.u32 %r503, %r503, {4 * threads};\n"
    yield f"add.u64 %rd51, %rd51, {4 * threads};\nbra IN;\nIN_END:\n"
