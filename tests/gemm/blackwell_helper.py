"""Run a Blackwell product on the emulator with a chosen seed and completion policy."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbtc import testing
from nbtc.dtypes import canonical
from nbtc.gemm.blackwell_config import BlackwellConfig
from nbtc.gemm.blackwell_matmul import BlackwellPlan
from nbtc.gemm.quantized import Quantized, quantize

ARCH = "sm_100a"
NARROW = ("float8_e4m3fn", "float8_e5m2", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn")


def operand(rows: int, k: int, dtype: str, block: int, scale: str, seed: int) -> Any:
    """Return random numbers as an operand of rows x K, its rows at multiples of 16 bytes."""
    kind = canonical(dtype)
    if block or kind.bits < 8:
        values = testing.random_normal((rows, k), "float32", seed)
        return quantize(values, dtype, block=block, scale=scale)
    pitch = -(-k * kind.itemsize // 16) * 16 // kind.itemsize
    name = "float32" if dtype == "tfloat32" else dtype
    values = testing.random_normal((rows, pitch), name, seed)
    if dtype == "tfloat32":  # exactly representable, so that only the sum is rounded
        values = (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return values[:, :k]


def values_of(matrix: Any) -> np.ndarray:
    """Return the values of an operand in float64."""
    found = matrix.dequantize() if isinstance(matrix, Quantized) else matrix
    return np.asarray(found).astype(np.float64)


def transposed_storage(matrix: np.ndarray) -> np.ndarray:
    """Return the same matrix with its columns contiguous."""
    rows, columns = matrix.shape
    pitch = -(-rows * matrix.itemsize // 16) * 16 // matrix.itemsize
    whole = np.zeros((columns, pitch), matrix.dtype)
    whole[:, :rows] = matrix.T
    return whole[:, :rows].T


def product(
    shape: tuple[int, int, int], config: BlackwellConfig, seed: int = 0,
    completion: str = "random",
) -> Any:  # fmt: skip
    """Multiply random matrices, compare with float64, and return the report."""
    m, n, k = shape
    a = operand(m, k, config.dtype, config.block, config.scale, 2 * seed + 1)
    b = operand(n, k, config.b_dtype, config.block, config.scale, 2 * seed + 2)
    want = values_of(a) @ values_of(b).T
    if config.a_major == "MN":
        a = transposed_storage(a)
    if config.b_major == "MN":
        b = transposed_storage(b)
    plan = BlackwellPlan(a, b.T, None, config.out_dtype, None, config, ARCH)
    reports = []

    def launch(stream: int) -> Any:
        def call(*args: Any) -> None:
            reports.append(
                plan.kernel.emulate(
                    plan.grid, config.threads, *args, seed=seed, completion=completion, arch=ARCH
                )
            )

        return call

    plan.launch = launch
    out = plan.run(a, b.T, None, (), None)
    (report,) = reports
    assert not report.findings, str(report)
    assert not report.warnings, str(report)
    testing.assert_close(out, want, what=f"{shape} {config.kind}")
    return report
