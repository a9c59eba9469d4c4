"""Correct kernels, faults put into their PTX by rules, and what the emulator says of each."""
