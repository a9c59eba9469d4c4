"""The kernels of the GPU tests compile without a GPU, so that those tests do not rot."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

_FILE = Path(__file__).parent / "gpu" / "launch_scenarios.py"
_spec = importlib.util.spec_from_file_location("launch_scenarios", _FILE)
assert _spec is not None
assert _spec.loader is not None
scenarios = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(scenarios)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("name", scenarios.KERNELS)
def test_kernel_compiles(name, arch):
    kernel, types = scenarios.KERNELS[name]
    compiled = kernel.compile(*types, arch=arch)
    assert compiled.resources.spill_bytes == 0
    assert len(compiled.argument_types) == len(types)
