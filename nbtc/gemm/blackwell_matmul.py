"""The plan of ``nbtc.matmul`` on Blackwell: kernel, grid and tensor maps of one product."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nbtc import driver, streams
from nbtc.arguments import ArrayView
from nbtc.dtypes import canonical
from nbtc.errors import DtypeError, LayoutError
from nbtc.gemm import arrays
from nbtc.gemm.blackwell import make_kernel
from nbtc.gemm.blackwell_config import BlackwellConfig
from nbtc.gemm.quantized import Quantized
from nbtc.jit import emulating
from nbtc.layout.scale_factors import TILE_BYTES, TILE_ROWS, TILE_SCALES
from nbtc.layout.tensormap_description import TensorMapDescription
from nbtc.tensormap import TensorMap

_INPUTS = (
    "bfloat16", "float16", "float32", "float8_e4m3fn", "float8_e5m2", "int8", "uint8",
)  # fmt: skip
_PACKED_MAPS = {4: "16U4_ALIGN16B", 6: "16U6_ALIGN16B"}


class _Operand:
    """A or B as the kernel reads it: ``rows`` rows (M or N) of K elements."""

    def __init__(self, value: Any, name: str) -> None:
        """Read an array or a `Quantized`; ``b`` is taken transposed."""
        self.name = name
        transpose = name == "b"
        self.block, self.scale = 0, ""
        if isinstance(value, Quantized):
            if value.transposed != transpose:
                raise LayoutError(
                    f"matmul: {name} is {value!r}, whose K is not contiguous; "
                    + ("pass b as the .T of an N x K matrix" if transpose else "pass a as M x K")
                )
            self.rows, self.k, self.dtype, self.major = value.rows, value.k, value.dtype, "K"
            self.block, self.scale = value.block, value.scale
            self.quantized: Quantized | None = value
            return
        view = arrays.view(value, name)
        self.view: ArrayView = arrays.transposed(view) if transpose else view
        self.quantized = None
        self.rows, self.k = self.view.shape
        self.dtype = canonical(view.dtype).name
        if self.dtype not in _INPUTS:
            raise DtypeError(
                f"matmul: {name} is {self.dtype}; on Blackwell {', '.join(_INPUTS)}, or a matrix "
                "of nbtc.gemm.quantize for block-scaled, 6- and 4-bit formats"
            )

    def find_major(self) -> None:
        """Find out which dimension is contiguous, as TMA can read it."""
        if self.quantized is None:
            self.major = "K" if arrays.majorness(self.view, self.name) == "row" else "MN"

    def describe(self, config: BlackwellConfig, box: tuple[int, int], swizzle: str) -> Any:
        """Return the description of the tensor map, without address."""
        if self.quantized is None:
            name = "tfloat32" if self.dtype == "float32" else self.dtype
            return arrays.describe(
                self.view, self.major == "K", box, swizzle, self.name, element=name
            )
        q, bits = self.quantized, canonical(self.dtype).bits
        element = "uint8" if bits == 8 else _PACKED_MAPS[bits]
        if config.kind in ("mxf4", "mxf4nvf4"):
            element = "16U4_ALIGN8B"
        row = q.padded_k * bits // 8
        return TensorMapDescription.tiled(
            (q.rows, q.padded_k), element, box, strides=(row, 1), swizzle=swizzle,
            l2_promotion="128B", name=self.name,
        )  # fmt: skip

    def describe_scales(self, config: BlackwellConfig, groups: int) -> TensorMapDescription:
        """Return the description of the map of the scale factors, in 8-byte words."""
        q = self.quantized
        assert q is not None  # only quantised operands have scale factors
        tiles = -(-q.padded_k // (self.block * TILE_SCALES))
        words = TILE_BYTES // 8
        return TensorMapDescription.tiled(
            (-(-q.rows // TILE_ROWS), tiles * words), "uint64",
            (groups, config.scale_words * words), strides=(tiles * TILE_BYTES, 8),
            name=f"scale factors of {self.name}",
        )  # fmt: skip


class BlackwellPlan:
    """One shape, layout and dtype of a product: kernel, grid, and how to make its maps."""

    def __init__(
        self, a: Any, b: Any, out: Any, out_dtype: Any, epilogue: Any, config: Any, arch: str
    ) -> None:
        """Check the operands and choose a kernel; see ``nbtc.matmul`` for the arguments."""
        left, right = _Operand(a, "a"), _Operand(b, "b")
        self.m, self.n, self.k = left.rows, right.rows, left.k
        if left.k != right.k:
            raise LayoutError(
                f"matmul: a is {left.rows} x {left.k}, b is {right.k} x {right.rows}; the columns "
                f"of a ({left.k}) must equal the rows of b ({right.k})"
            )
        if (left.block, left.scale) != (right.block, right.scale):
            raise DtypeError(
                f"matmul: a has {left.scale or 'no'} scale factors in blocks of {left.block}, b "
                f"{right.scale or 'none'} of {right.block}; both must agree"
            )
        name = canonical(out_dtype).name if out_dtype is not None else _default_out(left)
        self.out_dtype = canonical(name)
        like = a.data if isinstance(a, Quantized) else a
        shape = (self.m, self.n)
        self.allocate = arrays.allocator(like, shape, self.out_dtype) if out is None else None
        c = arrays.view(self.allocate() if self.allocate is not None else out, "out")
        if out is not None:
            if out_dtype is not None and canonical(c.dtype) != self.out_dtype:
                raise DtypeError(f"matmul: out is {c.dtype}, out_dtype={self.out_dtype}")
            self.out_dtype = canonical(c.dtype)
        if c.shape != shape:
            raise LayoutError(f"matmul: out is {c.shape}; a @ b is {shape}")
        self.empty = self.m == 0 or self.n == 0
        self.zero = self.k == 0
        if self.zero and epilogue is not None:
            raise LayoutError(
                "matmul: K = 0 with an epilogue: there are no operands to map; apply it to zeros"
            )
        if self.empty or self.zero:
            return
        left.find_major()
        right.find_major()
        self.swapped = arrays.majorness(c, "out") == "column"
        if self.swapped:
            if epilogue is not None:
                raise LayoutError("matmul: an epilogue needs an out with contiguous rows")
            # C^T = B^T A^T has contiguous rows.
            left, right = right, left
            c = arrays.transposed(c)
            self.m, self.n = self.n, self.m
        self.spills = arrays.Staging.needed(c)
        if self.spills:
            c = arrays.padded(c)
        self.emulated = emulating()
        sms = arrays.EMULATED_SMS
        if not self.emulated:
            sms = driver.attribute(max(c.device, 0), arrays.SM_COUNT)
        fixed = {
            "dtype": left.dtype, "b_dtype": right.dtype, "out_dtype": self.out_dtype.name,
            "a_major": left.major, "b_major": right.major, "block": left.block,
            "scale": left.scale,
        }  # fmt: skip
        if config is None:
            config = choose(self.m, self.n, sms, **fixed)
        else:
            config = config.replace(**fixed)
        self.config = config
        self.kernel = make_kernel(config, epilogue, arch)
        self._set_launch(sms)
        self._describe(left, right, c)

    def _set_launch(self, sms: int) -> None:
        config = self.config
        rows = math.ceil(self.m / (config.tile[0] * config.cluster[0]))
        columns = math.ceil(self.n / (config.tile[1] * config.cluster[1]))
        clusters = rows * columns
        if config.schedule == "static":
            waves = math.ceil(clusters / max(sms // config.ctas, 1))
            clusters = math.ceil(clusters / waves)
        self.grid = clusters * config.ctas
        self.launch: Any = functools.lru_cache(maxsize=16)(
            lambda stream: self.kernel[self.grid, config.threads, stream]
        )
        self.sizes = (np.int32(self.m), np.int32(self.n), np.int32(self.k))

    def _describe(self, left: _Operand, right: _Operand, c: ArrayView) -> None:
        config = self.config
        self.descriptions = [
            left.describe(config, config.a_box, config.a_tile.swizzle),
            right.describe(config, config.b_box, config.b_tile.swizzle),
            arrays.describe(c, True, config.c_box, config.store_swizzle, "out"),
        ]
        if config.block:
            self.descriptions += [
                left.describe_scales(config, 1),
                right.describe_scales(config, config.tile[1] // TILE_ROWS),
            ]
        self.maps: Any = arrays.Recent(64)

    def run(self, a: Any, b: Any, out: Any, extra: Sequence[Any], stream: Any) -> Any:
        """Launch on operands that lie like the ones of the plan."""
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
            inputs = (("a", _memory(a)), ("b", _memory(b)))
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
        first, second = (b, a) if self.swapped else (a, b)
        operands = [_memory(first), _memory(second), out]
        if self.config.block:
            operands += [first.scales, second.scales]
        pointers = tuple(arrays.address(x) for x in operands)
        maps = self.maps.get(pointers)
        if maps is None:
            views = [
                arrays.view(x, d.name) for d, x in zip(self.descriptions, operands, strict=True)
            ]
            names = ("b", "a") if self.swapped else ("a", "b")
            arrays.check_output(views[2], *zip(names, views[:2], strict=True))
            # Kept maps must not hold the caller's memory; emulated ones need it.
            maps = tuple(
                TensorMap(d.with_address(p), x if self.emulated else None, view)
                for d, p, x, view in zip(self.descriptions, pointers, operands, views, strict=True)
            )
            if not self.emulated:
                self.maps.add(pointers, maps)
        scales = maps[3:] or (None, None)
        self.launch(streams.handle(stream) if stream is not None else 0)(
            *maps[:3], *scales, *self.sizes, tuple(extra)
        )


def _memory(operand: Any) -> Any:
    return operand.data if isinstance(operand, Quantized) else operand


def _default_out(left: _Operand) -> str:
    if left.dtype in ("int8", "uint8"):
        return "int32"
    return left.dtype if left.dtype in ("bfloat16", "float16", "float32") else "bfloat16"


def choose(m: int, n: int, sms: int, **fixed: Any) -> BlackwellConfig:
    """Return the configuration for a problem: CTA pairs where there are two tiles of rows.

    Args:
        m: rows of C.
        n: columns of C.
        sms: multiprocessors.
        fixed: types and layouts, as fields of the configuration.
    """
    wide: Callable[[int], tuple[int, int, int]] = lambda columns: (0, columns, 0)  # noqa: E731
    group = 2 if m > 128 else 1
    if fixed.get("block"):
        return BlackwellConfig(cta_group=group, tile=wide(128), **fixed)
    tiles = math.ceil(m / (128 * group)) * math.ceil(n / 256)
    columns = 256 if n > 128 and tiles >= sms // group * 3 // 4 else 128
    return BlackwellConfig(cta_group=group, tile=wide(columns), **fixed)
