"""Sections of ``run_gpu.py``: each runs in a process of its own and returns what it measured."""
