"""Operands of ``nbtc.matmul``: where arrays of any library lie, and how TMA reads them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from nbtc import driver, streams
from nbtc.arguments import ArrayView, view_of
from nbtc.dtypes import canonical
from nbtc.errors import LaunchError, LayoutError
from nbtc.layout.tensormap_description import TensorMapDescription

SM_COUNT = "MULTIPROCESSOR_COUNT"
EMULATED_SMS = 4
"""SMs that the emulator pretends to have, so that small problems run several persistent waves."""


def view(array: Any, name: str) -> ArrayView:
    """Return where an operand is and how it lies.

    Raises:
        LayoutError: it is no array.
    """
    found = view_of(array)
    if found is None:
        raise LayoutError(
            f"matmul: {name} is {type(array).__name__}; needs an array (torch, CuPy, Numba, "
            "DLPack, NumPy)"
        )
    return found


class Recent(OrderedDict[Any, Any]):
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


def address(array: Any) -> int:
    """Return the address of an array of any library."""
    pointer = getattr(array, "data_ptr", None)
    if pointer is not None:
        return pointer()
    return view(array, "operand").address


def check_shapes(a: ArrayView, b: ArrayView) -> None:
    """Raise LayoutError unless ``a @ b`` is a product of matrices."""
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


def transposed(view: ArrayView) -> ArrayView:
    """Return the view of the transposed matrix."""
    return ArrayView(
        view.address, view.shape[::-1], view.strides[::-1], view.dtype, view.device, view.readonly
    )


def majorness(view: ArrayView, name: str) -> str:
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
        if inner_ok and pitch <= 0:
            kind = "broadcast" if pitch == 0 else "reversed"
            problems.append(
                f"its {major} pitch is {pitch} bytes (a {kind} view), and TMA needs a positive "
                "one: copy it"
            )
        elif inner_ok:
            padded = -(-pitch // 16) * 16 // item
            problems.append(
                f"its {major} pitch is {pitch} bytes ({pitch % 16} mod 16), and TMA needs a "
                f"multiple of 16: pad it to {padded} elements"
            )
    reason = " and ".join(problems) or (
        f"strides are {view.strides} bytes, and one of them must be {item} (contiguous)"
    )
    raise LayoutError(f"matmul: {name} of shape {view.shape}: {reason}")


def check_output(out: ArrayView, *operands: tuple[str, ArrayView]) -> None:
    """Raise LayoutError if ``out`` may not be written, or shares memory with an operand."""
    if out.readonly:
        raise LayoutError("matmul: out is read-only")
    for name, operand in operands:
        if operand.device == out.device and _overlap(out, operand):
            (low, high), (first, last) = _extent(out), _extent(operand)
            raise LayoutError(
                f"matmul: out [{low:#x}, {high:#x}) overlaps {name} [{first:#x}, {last:#x}), which "
                "other blocks still read while one writes: give out memory of its own"
            )


def _extent(view: ArrayView) -> tuple[int, int]:
    """Return the first byte of a matrix with positive strides, and the one after its last."""
    span = sum((size - 1) * stride for size, stride in zip(view.shape, view.strides, strict=True))
    return view.address, view.address + span + view.dtype.itemsize


def _overlap(x: ArrayView, y: ArrayView) -> bool:
    (low, high), (first, last) = _extent(x), _extent(y)
    if last <= low or high <= first:
        return False
    # Columns of one wider matrix, or rows that take turns, lie between each other.
    pitch = max(x.strides)
    widths = []
    for view in (x, y):
        inner = view.strides.index(min(view.strides))
        widths.append((view.shape[inner] - 1) * view.strides[inner] + view.dtype.itemsize)
    if max(y.strides) != pitch or max(widths) > pitch:
        return True
    distance = (first - low) % pitch
    return distance < widths[0] or distance + widths[1] > pitch


def describe(
    view: ArrayView, rows: bool, box: tuple[int, int], swizzle: str, name: str, element: str = ""
) -> TensorMapDescription:
    """Describe a matrix for TMA.

    Args:
        view: the matrix.
        rows: whether its rows are contiguous (else its columns).
        box: box of one copy in the order of memory, outermost first.
        swizzle: swizzle in shared memory.
        name: name of the operand.
        element: element type of the map if it is not that of the matrix.
    """
    if not rows:
        view = transposed(view)
    item = view.dtype.itemsize
    # The pitch of a single row is never used, but TMA wants a legal one.
    pitch = view.strides[0] if view.shape[0] > 1 else -(-view.shape[1] * item // 16) * 16
    return TensorMapDescription.tiled(
        view.shape,
        element or canonical(view.dtype).name,
        box,
        strides=(pitch, item),
        address=view.address,
        swizzle=swizzle,
        l2_promotion="128B" if name != "out" else "none",
        name=name,
    )


def allocator(like: Any, shape: tuple[int, int], dtype: Any) -> Callable[[], Any]:
    """Return a function that makes an output array in the library of ``like``.

    Rows that are no multiple of 16 bytes are padded; the array is then a view of its first columns.
    """
    m, n = shape
    item = dtype.itemsize
    pitch = -(-n * item // 16) * 16 // item
    module = type(like).__module__.split(".")[0]
    if module == "torch":
        import torch  # pyright: ignore[reportMissingImports]

        kind = getattr(torch, dtype.name)
        device = like.device
        if pitch == n:
            return lambda: torch.empty(shape, dtype=kind, device=device)
        return lambda: torch.empty((m, pitch), dtype=kind, device=device)[:, :n]
    if module == "cupy":
        import cupy  # pyright: ignore[reportMissingImports]

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


def padded(view: ArrayView) -> ArrayView:
    """Return a matrix with contiguous rows as if each took the fewest whole 16-byte pieces."""
    item = view.dtype.itemsize
    strides = (-(-view.shape[1] * item // 16) * 16, item)
    return ArrayView(view.address, view.shape, strides, view.dtype, view.device, view.readonly)


def whole_rows(out: Any) -> Any:
    """Return a padded NumPy output with its padding, which the emulator must know as memory."""
    item = out.itemsize
    columns = -(-out.shape[1] * item // 16) * 16 // item
    return np.lib.stride_tricks.as_strided(out, (out.shape[0], columns))


class Staging:
    """Memory that a kernel writes instead of an output whose rows TMA cannot end exactly.

    A TMA store writes whole 16-byte pieces, also where the tensor ends inside one (measured on an
    H200): rows of an ``out`` that is a view of a wider array would spill into what follows them.
    The kernel writes here, and :meth:`copy_out` copies exactly the elements of the output.

    Args:
        out: the output with contiguous rows.
        emulated: whether the emulator runs the kernel, on NumPy memory.
        stream: CUDA stream handle; memory is allocated and freed in its order.
    """

    def __init__(self, out: ArrayView, emulated: bool, stream: int) -> None:
        self.out, self.stream = out, stream
        rows, columns = out.shape
        item = out.dtype.itemsize
        pitch = padded(out).strides[0]
        self.dtype = out.dtype
        self.host = _numpy_empty(rows, columns, pitch // item, out.dtype) if emulated else None
        if self.host is None:
            driver.ensure_context(max(out.device, 0))
            pointer = driver.api().cuMemAllocAsync(rows * pitch, stream)
            self.address = int(driver.check(pointer, f"allocating {rows * pitch} bytes"))
        self.pitch = pitch

    @staticmethod
    def needed(out: ArrayView) -> bool:
        """Return whether the rows of an output end inside a 16-byte piece."""
        return out.shape[1] * out.dtype.itemsize % 16 != 0

    @property
    def operand(self) -> Any:
        """What to map in place of the output."""
        return self if self.host is None else self.host

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.out.shape,
            "strides": (self.pitch, self.dtype.itemsize),
            "typestr": f"|V{self.dtype.itemsize}",
            "data": (self.address, False),
            "version": 3,
        }

    def copy_out(self, out: Any) -> None:
        """Copy to the output, after the kernel in the order of the stream.

        Args:
            out: the output itself, for the emulator's NumPy memory.
        """
        if self.host is not None:
            out[...] = self.host
            return
        api = driver.api()
        copy = api.CUDA_MEMCPY2D()
        copy.srcMemoryType = copy.dstMemoryType = api.CUmemorytype.CU_MEMORYTYPE_DEVICE
        copy.srcDevice, copy.srcPitch = self.address, self.pitch
        copy.dstDevice, copy.dstPitch = self.out.address, self.out.strides[0]
        copy.WidthInBytes = self.out.shape[1] * self.dtype.itemsize
        copy.Height = self.out.shape[0]
        if self.out.shape[0] == 1:
            copy.dstPitch = self.pitch
        driver.check(api.cuMemcpy2DAsync(copy, self.stream), "copying the output")
        driver.check(api.cuMemFreeAsync(self.address, self.stream), "freeing memory")


def fill_zero(out: Any, stream: Any) -> None:
    """Set an output of any library to zero."""
    if isinstance(out, np.ndarray):
        out[...] = 0
        return
    found = view(out, "out")
    if majorness(found, "out") == "column":
        found = transposed(found)
    rows, columns = found.shape
    width = columns * found.dtype.itemsize
    pitch = max(found.strides[0], width)
    driver.ensure_context(found.device)
    status = driver.api().cuMemsetD2D8Async(
        found.address, pitch, 0, width, rows, streams.handle(stream)
    )
    driver.check(status, "zeroing the output")
