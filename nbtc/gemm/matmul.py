"""``nbtc.matmul``: C = A B on the kernels of this package, for arrays of any library."""

from __future__ import annotations

import functools
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nbtc import driver, streams
from nbtc.arguments import ArrayView, view_of
from nbtc.device import scheduler
from nbtc.dtypes import canonical
from nbtc.errors import DtypeError, LaunchError, LayoutError
from nbtc.gemm.config import HopperConfig
from nbtc.gemm.hopper import make_kernel
from nbtc.jit import emulating
from nbtc.layout.tensormap_description import TensorMapDescription
from nbtc.tensormap import TensorMap

_INPUTS = ("bfloat16", "float16")
_SM_COUNT = "MULTIPROCESSOR_COUNT"
_EMULATED_SMS = 4
"""SMs that the emulator pretends to have, so that small problems run several persistent waves."""


def matmul(
    a: Any,
    b: Any,
    out: Any = None,
    *,
    out_dtype: Any = None,
    epilogue: Callable[..., Any] | None = None,
    extra: Sequence[Any] = (),
    config: HopperConfig | None = None,
    stream: Any = None,
) -> Any:
    """Return the matrix product of two arrays, as NumPy's ``a @ b``.

    Any combination of row- and column-contiguous operands is read as it lies; the fast path is an
    ``a`` of M x K with K contiguous and a ``b`` that is the transposed view of an N x K array.

    Args:
        a: M x K, float16 or bfloat16; torch, CuPy, Numba or any DLPack array, or NumPy where the
            emulator runs.
        b: K x N, same dtype.
        out: M x N array to write, float16, bfloat16 or float32; made by the library of ``a`` if
            None.
        out_dtype: dtype of the array made when ``out`` is None; default that of ``a``.
        epilogue: device function (``nbtc.device``) of (float32 value, int32 row, int32 column,
            *extra) applied to each element before rounding.
        extra: arrays and scalars handed to ``epilogue``.
        config: kernel configuration; its majorness is set from the strides. None chooses one.
        stream: CUDA stream of any library; None is the default stream.

    Returns:
        ``out``. Products accumulate in float32; each element is rounded once.

    Raises:
        DtypeError: an element type is not supported.
        LayoutError: shapes do not match, or TMA cannot address an operand.
    """
    key = (_key(a), _key(b), None if out is None else _key(out), out_dtype, epilogue, config)
    plan = _plans.get(key)
    if plan is None:
        plan = _plans.add(key, _Plan(a, b, out, out_dtype, epilogue, config))
    return plan.run(a, b, out, extra, stream)


def _key(array: Any) -> tuple[Any, ...]:
    """Return what of an array decides the plan: everything but its address."""
    cls = type(array)
    if cls.__module__ == "torch" or cls.__module__.startswith("torch."):
        return cls, array.shape, array.stride(), array.dtype, array.device
    view = _view(array, "operand")
    return cls, view.shape, view.strides, view.dtype, view.device


def _view(array: Any, name: str) -> ArrayView:
    view = view_of(array)
    if view is None:
        raise LayoutError(
            f"matmul: {name} is {type(array).__name__}; needs an array (torch, CuPy, Numba, "
            "DLPack, NumPy)"
        )
    return view


class _Recent(OrderedDict[Any, Any]):
    """A small dictionary that forgets what was used longest ago."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def add(self, key: Any, value: Any) -> Any:
        """Keep ``value`` and return it."""
        self[key] = value
        if len(self) > self.size:
            self.popitem(last=False)
        return value


_plans = _Recent(512)


class _Plan:
    """One shape, layout and dtype of a product: kernel, grid, and maps by addresses."""

    def __init__(
        self, a: Any, b: Any, out: Any, out_dtype: Any, epilogue: Any, config: Any
    ) -> None:
        views = [_view(a, "a"), _view(b, "b")]
        _check_shapes(*views)
        self.m, self.k = views[0].shape
        self.n = views[1].shape[1]
        dtypes = [canonical(v.dtype) for v in views]
        if dtypes[0] != dtypes[1] or dtypes[0].name not in _INPUTS:
            raise DtypeError(
                f"matmul: a is {dtypes[0]}, b is {dtypes[1]}; both must be the same of "
                f"{', '.join(_INPUTS)}"
            )
        self.out_dtype = canonical(out_dtype if out_dtype is not None else dtypes[0])
        self.allocate = _allocator(a, (self.m, self.n), self.out_dtype) if out is None else None
        c = _view(out if out is not None else self.allocate(), "out")
        if out is not None:
            if out_dtype is not None and canonical(c.dtype) != self.out_dtype:
                raise DtypeError(f"matmul: out is {c.dtype}, out_dtype={self.out_dtype}")
            self.out_dtype = canonical(c.dtype)
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
        if _majorness(c, "out") == "column":
            if epilogue is not None:
                raise LayoutError("matmul: an epilogue needs an out with contiguous rows")
            # C^T = B^T A^T has contiguous rows.
            self.swapped = True
            views = [_transposed(views[1]), _transposed(views[0])]
            c = _transposed(c)
            self.m, self.n = self.n, self.m
        a_major = "K" if _majorness(views[0], "a") == "row" else "MN"
        b_major = "K" if _majorness(views[1], "b") == "column" else "MN"
        self.emulated = emulating()
        sms = _EMULATED_SMS if self.emulated else driver.attribute(max(c.device, 0), _SM_COUNT)
        dtype, out_name = dtypes[0].name, self.out_dtype.name
        if config is None:
            config = choose(self.m, self.n, self.k, dtype, out_name, a_major, b_major, sms)
        else:
            config = config.replace(
                dtype=dtype, out_dtype=out_name, a_major=a_major, b_major=b_major
            )
        self.config = config
        self.kernel = make_kernel(config, epilogue)
        ctas = math.prod(config.cluster)
        rows = math.ceil(self.m / (config.tile[0] * config.cluster[0]))
        columns = math.ceil(self.n / (config.tile[1] * config.cluster[1]))
        # As many clusters as give every one the same number of tiles: idle SMs save power, and the
        # clock goes up.
        waves = math.ceil(rows * columns / max(sms // ctas, 1))
        grid = math.ceil(rows * columns / waves) * ctas
        self.order = None
        if config.schedule == "hilbert":
            self.order = _constant(scheduler.hilbert_tiles(rows, columns), self.emulated)
        self.launch = functools.lru_cache(maxsize=16)(
            lambda stream: self.kernel[grid, config.threads, stream]
        )
        matrices = ((views[0], a_major == "K"), (_transposed(views[1]), b_major == "K"), (c, True))
        boxes = (config.a_box, config.b_box, config.c_box)
        swizzles = (config.a_tile.swizzle, config.b_tile.swizzle, config.store_swizzle)
        self.descriptions = [
            _describe(view, rows, box, swizzle, name)
            for (view, rows), box, swizzle, name in zip(
                matrices, boxes, swizzles, ("a", "b", "out"), strict=True
            )
        ]
        self.sizes = (np.int32(self.m), np.int32(self.n), np.int32(self.k))
        self.maps = _Recent(64)

    def run(self, a: Any, b: Any, out: Any, extra: Sequence[Any], stream: Any) -> Any:
        """Launch on arrays that lie like the ones of the plan."""
        if out is None:
            assert self.allocate is not None
            out = self.allocate()
        if self.empty:
            return out
        if self.zero:
            _fill_zero(out, stream)
            return out
        operands = (b, a, out) if self.swapped else (a, b, out)
        pointers = tuple(_address(x) for x in operands)
        maps = self.maps.get(pointers)
        if maps is None:
            maps = self._make_maps(operands, pointers)
            if not self.emulated:
                self.maps.add(pointers, maps)
        self.launch(streams.handle(stream) if stream is not None else 0)(
            *maps, *self.sizes, self.order, tuple(extra)
        )
        return out

    def _make_maps(self, operands: Sequence[Any], pointers: Sequence[int]) -> tuple[TensorMap, ...]:
        """Return the maps at these addresses; kept ones must not hold the caller's memory."""
        return tuple(
            TensorMap(d.with_address(p), x if self.emulated else None, _view(x, d.name))
            for d, p, x in zip(self.descriptions, pointers, operands, strict=True)
        )


def _address(array: Any) -> int:
    pointer = getattr(array, "data_ptr", None)
    if pointer is not None:
        return pointer()
    return _view(array, "operand").address


def _check_shapes(a: ArrayView, b: ArrayView) -> None:
    for name, view in (("a", a), ("b", b)):
        if len(view.shape) != 2:
            raise LayoutError(f"matmul: {name} has shape {view.shape}; needs two dimensions")
    if a.shape[1] != b.shape[0]:
        raise LayoutError(
            f"matmul: a is {a.shape[0]} x {a.shape[1]}, b is {b.shape[0]} x {b.shape[1]}; the "
            f"columns of a ({a.shape[1]}) must equal the rows of b ({b.shape[0]})"
        )
    if max(*a.shape, *b.shape) >= 1 << 31:
        raise LayoutError("matmul: a dimension is 2**31 or more; coordinates are 32-bit")


def _transposed(view: ArrayView) -> ArrayView:
    return ArrayView(
        view.address, view.shape[::-1], view.strides[::-1], view.dtype, view.device, view.readonly
    )


def _majorness(view: ArrayView, name: str) -> str:
    """Return which way a matrix is contiguous, ``"row"`` or ``"column"``, as TMA can read it."""
    item = view.dtype.itemsize
    problems = []
    for major, inner, outer in (("row", 1, 0), ("column", 0, 1)):
        inner_ok = view.strides[inner] == item or view.shape[inner] == 1
        pitch = view.strides[outer]
        if inner_ok and (view.shape[outer] == 1 or (pitch % 16 == 0 and pitch > 0)):
            if view.address % 16:
                raise LayoutError(
                    f"matmul: {name} starts at {view.address:#x}, {view.address % 16} mod 16; TMA "
                    f"needs a multiple of 16: start the view at a multiple of {16 // item} elements"
                )
            return major
        if inner_ok:
            padded = -(-pitch // 16) * 16 // item
            problems.append(
                f"its {major} pitch is {pitch} bytes ({pitch % 16} mod 16), and TMA needs a "
                f"multiple of 16: pad it to {padded} elements"
            )
    reason = " and ".join(problems) or (
        f"strides are {view.strides} bytes, and one of them must be {item} (contiguous)"
    )
    raise LayoutError(f"matmul: {name} of shape {view.shape}: {reason}")


def _describe(
    view: ArrayView, rows: bool, box: tuple[int, int], swizzle: str, name: str
) -> TensorMapDescription:
    """Describe a matrix for TMA; ``rows`` says whether its rows are contiguous."""
    if not rows:
        view = _transposed(view)
    item = view.dtype.itemsize
    # The pitch of a single row is never used, but TMA wants a legal one.
    pitch = view.strides[0] if view.shape[0] > 1 else -(-view.shape[1] * item // 16) * 16
    return TensorMapDescription.tiled(
        view.shape,
        canonical(view.dtype).name,
        box,
        strides=(pitch, item),
        address=view.address,
        swizzle=swizzle,
        l2_promotion="128B" if name != "out" else "none",
        name=name,
    )


def choose(
    m: int, n: int, k: int, dtype: str, out_dtype: str, a_major: str, b_major: str, sms: int
) -> HopperConfig:
    """Return the configuration for a problem: the largest tile that still fills the GPU."""
    base = {
        "dtype": dtype, "out_dtype": out_dtype, "a_major": a_major, "b_major": b_major,
    }  # fmt: skip
    for tile, cluster in (((128, 256, 64), (2, 1)), ((128, 128, 64), (2, 1))):
        tiles = math.ceil(m / tile[0]) * math.ceil(n / tile[1])
        if m > tile[0] and tiles >= sms * 3 // 4:
            return HopperConfig(tile=tile, cluster=cluster, **base)
    wide = 128 if n > 64 else 64
    stages = 6 if out_dtype != "float32" else 5
    return HopperConfig(tile=(128, wide, 64), cluster=(1, 1), stages=stages, **base)


def _allocator(like: Any, shape: tuple[int, int], dtype: Any) -> Callable[[], Any]:
    """Return a function that makes an output array in the library of ``like``.

    Rows that are no multiple of 16 bytes are padded; the array is then a view of its first columns.
    """
    m, n = shape
    item = dtype.itemsize
    pitch = -(-n * item // 16) * 16 // item
    module = type(like).__module__.split(".")[0]
    if module == "torch":
        import torch

        kind = getattr(torch, dtype.name)
        device = like.device
        if pitch == n:
            return lambda: torch.empty(shape, dtype=kind, device=device)
        return lambda: torch.empty((m, pitch), dtype=kind, device=device)[:, :n]
    if module == "cupy":
        import cupy

        return lambda: cupy.empty((m, pitch), dtype=dtype.numpy)[:, :n]
    if isinstance(like, np.ndarray):
        return lambda: _numpy_empty(m, n, pitch, dtype.numpy)
    if hasattr(like, "copy_to_host"):
        from numba import cuda

        return lambda: cuda.device_array((m, pitch), dtype=dtype.numpy)[:, :n]
    raise LaunchError(
        f"matmul: cannot make an output for {type(like).__name__}; pass out= (an {m} x {n} array)"
    )


def _numpy_empty(m: int, n: int, pitch: int, dtype: Any) -> Any:
    """Return an uninitialised array whose data starts at a multiple of 16 bytes."""
    raw = np.empty(m * pitch * dtype.itemsize + 16, np.uint8)
    start = -raw.ctypes.data % 16
    whole = raw[start : start + m * pitch * dtype.itemsize].view(dtype).reshape(m, pitch)
    return whole[:, :n]


def _constant(tiles: list[tuple[int, int]], emulated: bool) -> Any:
    """Return the list of tiles where the kernel can read it."""
    packed = scheduler.pack_tiles(tiles)
    return packed if emulated else driver.DeviceArray(packed)


def _fill_zero(out: Any, stream: Any) -> None:
    if type(out).__module__.split(".")[0] == "torch":
        out.zero_()
    elif isinstance(out, np.ndarray) or type(out).__module__.startswith("cupy"):
        out[...] = 0
    else:
        view = _view(out, "out")
        rows, columns = view.shape
        api = driver.api()
        width = columns * view.dtype.itemsize
        status = api.cuMemsetD2D8Async(
            view.address, view.strides[0], 0, width, rows, streams.handle(stream)
        )
        driver.check(status, "zeroing the output")

