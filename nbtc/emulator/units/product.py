"""Matrix products of a size that BLAS computes on one thread.

OpenBLAS spreads a product over threads above about 2**18 multiply-adds. For tiles of that order
the hand-over costs more than it gains, and on a busy machine twenty times the product itself.
"""

from __future__ import annotations

import numpy as np

_ONE_THREAD = 1 << 18


def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return ``a @ b.T`` as a fresh array, for a of shape (m, k) and b of shape (n, k)."""
    m, k = a.shape
    n = b.shape[0]
    if m * n * k <= _ONE_THREAD:
        return np.dot(a, b.T)
    width = max(_ONE_THREAD // (m * k) & ~7, 8)
    out = np.empty((m, n), np.result_type(a, b))
    for first in range(0, n, width):
        np.matmul(a, b[first : first + width].T, out=out[:, first : first + width])
    return out
