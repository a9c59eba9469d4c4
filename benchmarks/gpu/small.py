"""A few small products for compute-sanitizer; needs no array library, so that it starts fast."""

from __future__ import annotations

import numpy as np

import nbtc
from nbtc import testing
from nbtc.gemm import HopperConfig


def main() -> None:
    """Multiply with clusters, several waves and ragged edges, and compare with NumPy."""
    for m, n, k, config in (
        (320, 272, 136, None),
        (600, 520, 264, HopperConfig()),
        (300, 264, 200, HopperConfig(stages=1)),
    ):
        a = testing.random_normal((m, k), "bfloat16", 1)
        b = testing.random_normal((n, k), "bfloat16", 2)
        out = testing.on_device(np.full((m, n), np.nan, a.dtype))
        nbtc.matmul(testing.on_device(a), testing.on_device(b).T, out, config=config)
        testing.assert_close(out, testing.matmul_reference(a, b.T))
    print("small: done")


if __name__ == "__main__":
    main()
