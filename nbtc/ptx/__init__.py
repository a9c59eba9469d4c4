"""PTX instructions as typed Python declarations, and their lowering into Numba."""
