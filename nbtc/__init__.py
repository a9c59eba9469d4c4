"""Hopper and Blackwell GPU kernels in Numba's Python syntax."""
