"""Where the command-line tools of the CUDA toolkit are, and which version they have."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from dataclasses import dataclass

from nbtc.errors import CompileError

_WHEELS = {"ptxas": "nvidia-cuda-nvcc", "nvdisasm": "nvidia-cuda-nvdisasm"}

# PTX ISA minor of each CUDA 12 minor; from CUDA 13 on both count alike (13.5 reads PTX 9.5).
_CUDA12_ISA = (0, 1, 2, 3, 4, 5, 5, 6, 7, 8)


@dataclass(frozen=True, slots=True)
class Tool:
    """One executable.

    Attributes:
        name: ``"ptxas"`` or ``"nvdisasm"``.
        path: where it is.
        release: CUDA release it belongs to, ``(13, 5)``.
        version: full version, ``"13.5.37"``.
    """

    name: str
    path: str
    release: tuple[int, int]
    version: str

    @property
    def isa(self) -> tuple[int, int]:
        """Newest PTX ISA that a tool of this release reads."""
        major, minor = self.release
        if major == 12:
            return 8, _CUDA12_ISA[min(minor, len(_CUDA12_ISA) - 1)]
        return major - 4, minor


def find(name: str) -> Tool:
    """Return the tool ``name``: ``NBTC_<NAME>`` if set, else its wheel, a toolkit, or PATH.

    Raises:
        CompileError: it is nowhere; the message names the wheel to install.
    """
    return _find(name, os.environ.get(f"NBTC_{name.upper()}"))


@functools.cache
def _find(name: str, override: str | None) -> Tool:
    from cuda import pathfinder

    path = override or pathfinder.find_nvidia_binary_utility(name) or shutil.which(name)
    if path is None or shutil.which(path) is None:
        asked = f"NBTC_{name.upper()}={override} is not an executable" if override else "not found"
        raise CompileError(f"{name}: {asked}; install it with: pip install {_WHEELS[name]}")
    text = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"release (\d+)\.(\d+), V([\d.]+)", text)
    if match is None:
        raise CompileError(f"{path} --version does not name a CUDA release: {text.strip()!r}")
    return Tool(name, path, (int(match[1]), int(match[2])), match[3])
