"""``nbtc.matmul``: C = A B on the kernels of this package, for arrays of any library."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nbtc import arch as arch_module
from nbtc import driver, streams
from nbtc.device import scheduler
from nbtc.device_array import DeviceArray
from nbtc.dtypes import canonical
from nbtc.errors import ArchError, DtypeError, LaunchError, LayoutError
from nbtc.gemm import arrays
from nbtc.gemm.choice import balance, choose, cluster_waves, tile_rows
from nbtc.gemm.config import HopperConfig
from nbtc.gemm.hopper import make_kernel
from nbtc.gemm.quantized import Quantized
from nbtc.jit import DeviceFunction, default_arch, emulating
from nbtc.tensormap import TensorMap

if TYPE_CHECKING:
    from nbtc.gemm.blackwell_config import BlackwellConfig

_INPUTS = ("bfloat16", "float16")
_OUTPUTS = ("bfloat16", "float16", "float32")


def matmul(
    a: Any,
    b: Any,
    out: Any = None,
    *,
    out_dtype: Any = None,
    epilogue: Callable[..., Any] | None = None,
    extra: Sequence[Any] = (),
    config: HopperConfig | BlackwellConfig | None = None,
    stream: Any = None,
    arch: str | None = None,
) -> Any:
    """Return the matrix product of two arrays, as NumPy's ``a @ b``.

    Any combination of row- and column-contiguous operands is read as it lies; the fast path is an
    ``a`` of M x K with K contiguous and a ``b`` that is the transposed view of an N x K array.

    Args:
        a: M x K, float16 or bfloat16; torch, CuPy, Numba or any DLPack array, or NumPy where the
            emulator runs. On Blackwell also float32 (read as tf32), float8_e4m3fn, float8_e5m2,
            int8, uint8, and matrices of ``nbtc.gemm.quantize``, with or without scale factors.
        b: K x N, same dtype; 8-, 6- and 4-bit floats mix.
        out: M x N array to write, float16, bfloat16 or float32 (int32 for integers); made by the
            library of ``a`` if None.
        out_dtype: dtype of the array made when ``out`` is None; default that of ``a``, bfloat16
            for narrower floats, int32 for integers.
        epilogue: device function (``nbtc.device``) of (float32 value, int32 row, int32 column,
            *extra) applied to each element before rounding. It also sees the elements of a tile
            that lie outside of the result: clamp an index, ``bias[min(column, bias.size - 1)]``.
        extra: arrays and scalars handed to ``epilogue``.
        config: kernel configuration; element types and majorness are those of the arrays. None
            chooses one.
        stream: CUDA stream of any library; None is the default stream.
        arch: target, ``"sm_90a"`` or ``"sm_100a"``; default that of the GPU, Hopper's on the
            emulator.

    Returns:
        ``out``. Products accumulate in float32; each element is rounded once.

    Raises:
        DtypeError: an element type is not supported.
        LayoutError: shapes do not match, TMA cannot address an operand, or ``out`` is read-only
            or overlaps an operand.
        LaunchError: ``epilogue``, ``extra`` or ``config`` is of the wrong kind.
        ArchError: there is no kernel for the target.
    """
    if type(extra) is not tuple or (extra and epilogue is None):
        extra = _checked_extra(extra, epilogue)
    where = _key(a, "a"), _key(b, "b"), None if out is None else _key(out, "out")
    key = (*where, out_dtype, epilogue, config, arch)
    try:
        plan = _plans.get(key)
    except TypeError:  # something is not hashable
        _check_options(epilogue, config)
        raise
    if plan is None:
        _check_options(epilogue, config)
        plan = _plans.add(key, _make_plan(arch, a, b, out, out_dtype, epilogue, config))
    return plan.run(a, b, out, extra, stream)


def _checked_extra(extra: Any, epilogue: Any) -> tuple[Any, ...]:
    if not isinstance(extra, tuple | list):
        raise LaunchError(
            f"matmul: extra is {type(extra).__name__}; needs a tuple of what the epilogue takes "
            "after (value, row, column), such as extra=(bias,)"
        )
    if extra and epilogue is None:
        raise LaunchError("matmul: extra without an epilogue; only an epilogue reads it")
    return tuple(extra)


def _check_options(epilogue: Any, config: Any) -> None:
    if epilogue is not None and not isinstance(epilogue, DeviceFunction):
        name = getattr(epilogue, "__name__", type(epilogue).__name__)
        raise LaunchError(
            f"matmul: epilogue is {name}, needs a device function of (value, row, column, *extra): "
            "decorate it with @nbtc.device"
        )
    if config is not None and not hasattr(config, "replace"):
        raise LaunchError(
            f"matmul: config is {type(config).__name__}, needs a nbtc.gemm.HopperConfig"
        )


def _make_plan(arch: str | None, *args: Any) -> Any:
    target = arch_module.parse(arch or default_arch()).name
    config = args[-1]
    wanted = "BlackwellConfig" if target in arch_module.TCGEN05 else "HopperConfig"
    if config is not None and type(config).__name__ != wanted:
        raise LaunchError(
            f"matmul: config is {type(config).__name__}; {target} takes a nbtc.gemm.{wanted}"
        )
    if target in arch_module.TCGEN05:
        from nbtc.gemm.blackwell_matmul import BlackwellPlan

        return BlackwellPlan(*args, arch=target)
    if target != "sm_90a":
        raise ArchError(
            f"matmul: no kernel for {target}; there are some for sm_90a and "
            + ", ".join(arch_module.TCGEN05)
        )
    for name, operand in zip(("a", "b"), args, strict=False):
        if isinstance(operand, Quantized):
            raise DtypeError(f"matmul: {name} is {operand!r}; {target} has no tensor cores for it")
    return _Plan(*args)


def _key(array: Any, name: str) -> tuple[Any, ...]:
    """Return what of an array decides the plan: everything but its address."""
    cls = type(array)
    if cls.__module__ == "torch" or cls.__module__.startswith("torch."):
        return cls, array.shape, array.stride(), array.dtype, array.device
    if cls is Quantized:
        return array.key
    view = arrays.view(array, name)
    # Host memory is for the emulator only, which the environment may turn on and off.
    return cls, view.shape, view.strides, view.dtype, view.device, view.device < 0 and emulating()


_plans = arrays.Recent(512)


class _Plan:
    """One shape, layout and dtype of a product: kernel, grid, and maps by addresses."""

    def __init__(
        self, a: Any, b: Any, out: Any, out_dtype: Any, epilogue: Any, config: Any
    ) -> None:
        views = [arrays.view(a, "a"), arrays.view(b, "b")]
        arrays.check_shapes(*views)
        self.m, self.k = views[0].shape
        self.n = views[1].shape[1]
        dtypes = [canonical(v.dtype) for v in views]
        if dtypes[0] != dtypes[1] or dtypes[0].name not in _INPUTS:
            raise DtypeError(
                f"matmul: a is {dtypes[0]}, b is {dtypes[1]}; both must be the same of "
                f"{', '.join(_INPUTS)}"
            )
        self.out_dtype = canonical(out_dtype if out_dtype is not None else dtypes[0])
        shape = (self.m, self.n)
        self.allocate = arrays.allocator(a, shape, self.out_dtype) if out is None else None
        c = arrays.view(self.allocate() if self.allocate is not None else out, "out")
        if out is not None:
            if out_dtype is not None and canonical(c.dtype) != self.out_dtype:
                raise DtypeError(f"matmul: out is {c.dtype}, out_dtype={self.out_dtype}")
            self.out_dtype = canonical(c.dtype)
        if self.out_dtype.name not in _OUTPUTS:
            raise DtypeError(
                f"matmul: the result of {dtypes[0]} operands can be {', '.join(_OUTPUTS)}, not "
                f"{self.out_dtype}"
            )
        if c.shape != (self.m, self.n):
            raise LayoutError(f"matmul: out is {c.shape}; a @ b is {(self.m, self.n)}")
        self.empty = self.m == 0 or self.n == 0
        self.zero = self.k == 0
        if self.zero and epilogue is not None:
            raise LayoutError(
                "matmul: K = 0 with an epilogue: there are no operands to map; apply it to zeros"
            )
        self.swapped = False
        if self.empty or self.zero:
            return
        majors = [arrays.majorness(v, name) for v, name in zip(views, ("a", "b"), strict=True)]
        if arrays.majorness(c, "out") == "column":
            if epilogue is not None:
                raise LayoutError("matmul: an epilogue needs an out with contiguous rows")
            # C^T = B^T A^T has contiguous rows.
            self.swapped = True
            views = [arrays.transposed(views[1]), arrays.transposed(views[0])]
            majors = ["row" if major == "column" else "column" for major in reversed(majors)]
            c = arrays.transposed(c)
            self.m, self.n = self.n, self.m
        a_major = "K" if majors[0] == "row" else "MN"
        b_major = "K" if majors[1] == "column" else "MN"
        self.spills = arrays.Staging.needed(c)
        if self.spills:
            c = arrays.padded(c)
        self.emulated = emulating()
        sms = arrays.EMULATED_SMS
        if not self.emulated:
            sms = driver.attribute(max(c.device, 0), arrays.SM_COUNT)
        dtype, out_name = dtypes[0].name, self.out_dtype.name
        if config is None:
            config = choose(self.m, self.n, self.k, dtype, out_name, a_major, b_major, sms)
        else:
            config = config.replace(
                dtype=dtype, out_dtype=out_name, a_major=a_major, b_major=b_major
            )
        if config.a_rows and self.m > config.a_rows:
            what = "the product"
            if self.swapped:
                what = "out is column-major, and its transpose, which is computed,"
            raise LayoutError(
                f"matmul: {what} has {self.m} rows; config loads a_rows={config.a_rows}: give "
                f"a_rows >= {self.m} where the tile has more, else 0"
            )
        self.config = config
        self.kernel = make_kernel(config, epilogue)
        rows = tile_rows(config, self.m)
        columns = math.ceil(self.n / (config.tile[1] * config.cluster[1]))
        # As many clusters as give every one the same number of tiles: idle SMs save power, and the
        # clock goes up.
        clusters = math.ceil(rows * columns / cluster_waves(config, self.m, self.n, sms))
        self.order: Any = None
        if config.narrow:
            # Or all that there are, with narrower tiles that give every one as much to do.
            balanced = balance(config, self.m, self.n, sms)
            self.order, clusters = balanced.order, balanced.clusters
        elif config.schedule == "hilbert":
            self.order = _constant(scheduler.hilbert_tiles(rows, columns), self.emulated)
        grid = clusters * config.cluster_size
        self.launch = functools.lru_cache(maxsize=16)(
            lambda stream: self.kernel[grid, config.threads, stream]
        )
        right = arrays.transposed(views[1])
        maps = [
            (0, views[0], a_major == "K", config.a_box, config.a_tile.swizzle, "a"),
            (1, right, b_major == "K", config.b_box, config.b_tile.swizzle, "b"),
            (2, c, True, config.c_box, config.store_swizzle, "out"),
        ]
        if config.narrow:
            maps.append((2, c, True, config.strip_box, config.strip_swizzle, "out"))
        self.descriptions = [
            (operand, arrays.describe(view, rows, box, swizzle, name))
            for operand, view, rows, box, swizzle, name in maps
        ]
        self.sizes = (np.int32(self.m), np.int32(self.n), np.int32(self.k))
        self.maps = arrays.Recent(64)
        self.bound = arrays.Recent(64)

    def run(self, a: Any, b: Any, out: Any, extra: Sequence[Any], stream: Any) -> Any:
        """Launch on arrays that lie like the ones of the plan."""
        if out is None:
            assert self.allocate is not None
            # Rows made here are padded: what a store adds to them lands in the padding.
            out, padded = self.allocate(), True
        else:
            padded = False
        if self.empty:
            return out
        if self.zero:
            arrays.fill_zero(out, stream)
            return out
        if self.spills and not padded:
            lies = arrays.view(out, "out")
            inputs = (("a", a), ("b", b))
            arrays.check_output(lies, *((name, arrays.view(x, name)) for name, x in inputs))
            rows = arrays.transposed(lies) if self.swapped else lies
            staging = arrays.Staging(rows, self.emulated, streams.handle(stream))
            self.start(a, b, staging.operand, extra, stream)
            staging.copy_out(out.T if self.swapped and self.emulated else out)
            return out
        self.start(a, b, out, extra, stream)
        return out

    def start(self, a: Any, b: Any, out: Any, extra: Sequence[Any], stream: Any) -> None:
        """Launch the kernel on an output whose rows may be written in whole 16-byte pieces."""
        if self.spills and self.emulated:
            out = arrays.whole_rows(out)
        operands = (b, a, out) if self.swapped else (a, b, out)
        pointers = tuple([arrays.address(x) for x in operands])
        handle = 0 if stream is None else streams.handle(stream)
        bound = None if extra else self.bound.get((pointers, handle))
        if bound is None:
            bound = self._bind(operands, pointers, handle, extra)
        bound()

    def _bind(self, operands: Any, pointers: Any, handle: int, extra: Any) -> Callable[[], None]:
        """Return the launch on operands at these addresses; it is kept if nothing else changes."""
        maps = self.maps.get(pointers)
        if maps is None:
            maps = self._make_maps(operands, pointers)
            if not self.emulated:
                self.maps.add(pointers, maps)
        strips = maps[3] if self.config.narrow else None
        bound = self.launch(handle).bind(*maps[:3], strips, *self.sizes, self.order, tuple(extra))
        if not extra and not self.emulated:
            self.bound.add((pointers, handle), bound)
        return bound

    def _make_maps(self, operands: Sequence[Any], pointers: Sequence[int]) -> tuple[TensorMap, ...]:
        """Return the maps at these addresses; kept ones must not hold the caller's memory."""
        left, right, out = (arrays.view(x, "operand") for x in operands)
        names = ("b", "a") if self.swapped else ("a", "b")
        arrays.check_output(out, (names[0], left), (names[1], right))
        views = left, right, out
        return tuple(
            TensorMap(d.with_address(pointers[i]), operands[i] if self.emulated else None, views[i])
            for i, d in self.descriptions
        )


def _constant(tiles: list[tuple[int, int]], emulated: bool) -> Any:
    """Return the list of tiles where the kernel can read it."""
    packed = scheduler.pack_tiles(tiles)
    return packed if emulated else DeviceArray.copy_of(packed)
