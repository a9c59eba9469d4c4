"""Building blocks of kernels; the package itself is the ``nbtc.device`` decorator of helpers.

``@nbtc.device`` makes a Python function callable from kernels, see
:func:`nbtc.device_function.device`. The submodules hold pipeline state, shared-memory layouts, tile
schedulers and epilogues.
"""

from __future__ import annotations

import sys
import types
from typing import Any


class _CallableModule(types.ModuleType):
    """Makes the package usable as the decorator whose name it shares."""

    def __call__(self, function: Any) -> Any:
        from nbtc.jit import device

        return device(function)


sys.modules[__name__].__class__ = _CallableModule
