"""The array library that makes inputs, references and the cuBLAS time: torch, else CuPy, else none.

All have the same methods. Comparisons use operators only, so they run wherever the arrays are.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from nbtc import driver, testing
from nbtc.dtypes import canonical
from nbtc.jit import emulating


class Torch:
    """torch: its ``mm`` is cuBLAS."""

    name = "torch"
    dtypes = ("bfloat16", "float16")
    has_mm = True

    def __init__(self) -> None:
        self.torch = importlib.import_module("torch")
        self.version = self.torch.__version__
        self.torch.manual_seed(0)

    def normal(self, shape: tuple[int, int], dtype: str) -> Any:
        """Return standard normal numbers."""
        values = self.torch.randn(shape, device="cuda", dtype=self.torch.float32)
        return values.to(getattr(self.torch, dtype))

    def poison(self, shape: tuple[int, int], dtype: str) -> Any:
        """Return an array full of NaN."""
        kind = getattr(self.torch, dtype)
        return self.torch.full(shape, float("nan"), device="cuda", dtype=kind)

    def mm(self, a: Any, b: Any, out: Any) -> Any:
        """Multiply with cuBLAS."""
        return self.torch.mm(a, b, out=out)

    def double(self, array: Any) -> Any:
        """Return the array in float64."""
        return array.double()

    def words(self, array: Any) -> Any:
        """Return pairs of 16-bit elements as 32-bit integers."""
        return array.view(self.torch.int32)

    def stream(self) -> Any:
        """Return the stream that the library works on now."""
        return self.torch.cuda.current_stream()

    def capture(self, batch: Callable[[], None]) -> Callable[[], None]:
        """Make a CUDA graph of what ``batch`` launches; return what replays it."""
        cuda = self.torch.cuda
        stream = cuda.Stream()
        with cuda.stream(stream):
            batch()  # what cuBLAS allocates for a stream must be there
        cuda.synchronize()
        graph = cuda.CUDAGraph()
        with cuda.graph(graph, stream=stream):
            batch()
        return graph.replay


class Cupy:
    """CuPy: its ``matmul`` is cuBLAS; it has no bfloat16."""

    name = "cupy"
    dtypes = ("float16",)
    has_mm = True

    def __init__(self) -> None:
        self.cupy = importlib.import_module("cupy")
        self.version = self.cupy.__version__
        self.cupy.random.seed(0)

    def normal(self, shape: tuple[int, int], dtype: str) -> Any:
        """Return standard normal numbers."""
        return self.cupy.random.standard_normal(shape, dtype=np.float32).astype(dtype)

    def poison(self, shape: tuple[int, int], dtype: str) -> Any:
        """Return an array full of NaN."""
        return self.cupy.full(shape, np.nan, dtype=dtype)

    def mm(self, a: Any, b: Any, out: Any) -> Any:
        """Multiply with cuBLAS."""
        return self.cupy.matmul(a, b, out=out)

    def double(self, array: Any) -> Any:
        """Return the array in float64."""
        return array.astype(np.float64)

    def words(self, array: Any) -> Any:
        """Return pairs of 16-bit elements as 32-bit integers."""
        return array.view(np.int32)

    def stream(self) -> Any:
        """Return the stream that the library works on now."""
        return self.cupy.cuda.get_current_stream()

    def capture(self, batch: Callable[[], None]) -> Callable[[], None]:
        """Make a CUDA graph of what ``batch`` launches; return what replays it."""
        stream = self.cupy.cuda.Stream(non_blocking=True)
        with stream:
            batch()
            stream.synchronize()
            stream.begin_capture()
            batch()
            graph = stream.end_capture()
        return graph.launch


class Plain:
    """No library: NumPy on the host, nbtc's own arrays on the GPU; cuBLAS is not compared with."""

    name = "none"
    version = ""
    dtypes = ("bfloat16", "float16")

    def __init__(self) -> None:
        self.has_mm = emulating()
        self._seed = 0

    def normal(self, shape: tuple[int, int], dtype: str) -> Any:
        """Return standard normal numbers."""
        self._seed += 1
        return testing.on_device(_aligned(testing.random_normal(shape, dtype, self._seed)))

    def poison(self, shape: tuple[int, int], dtype: str) -> Any:
        """Return an array full of NaN."""
        return testing.on_device(_aligned(np.full(shape, np.nan, canonical(dtype).numpy)))

    def mm(self, a: Any, b: Any, out: Any) -> Any:
        """Multiply with NumPy; for a run without a GPU."""
        out[...] = (a.astype(np.float32) @ b.astype(np.float32)).astype(out.dtype)
        return out

    def double(self, array: Any) -> Any:
        """Return the array in float64, on the host."""
        return testing.to_numpy(array).astype(np.float64)

    def stream(self) -> None:
        """Return the default stream."""

    def capture(self, batch: Callable[[], None]) -> Callable[[], None]:
        """Return the batch itself: there are no graphs."""
        return batch

    def words(self, array: Any) -> Any:
        """Return pairs of 16-bit elements as 32-bit integers."""
        if isinstance(array, np.ndarray):
            return array.view(np.int32)
        made = array[...]
        made.dtype, made.shape = np.dtype(np.int32), (array.shape[0], array.shape[1] // 2)
        made.strides = (array.strides[0], 4)
        return made


def _aligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the array at a multiple of 16 bytes, which TMA needs."""
    raw = np.empty(array.nbytes + 16, np.uint8)
    start = -raw.ctypes.data % 16
    made = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def pick() -> Any:
    """Return the best library that is installed and has a GPU."""
    if not emulating():
        driver.ensure_context()
        for kind in (Torch, Cupy):
            try:
                return kind()
            except ImportError:
                continue
    return Plain()
