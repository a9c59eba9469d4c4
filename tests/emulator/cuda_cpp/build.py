"""Compile the CUDA C++ files of this folder to the PTX beside them; needs nvcc 13.

    python tests/emulator/cuda_cpp/build.py [nvcc]

The tests read the PTX, so that nvcc is needed only after a change.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def compile_one(nvcc: str, source: Path) -> str:
    """Return the PTX of a file; source files are named without their folders."""
    command = [nvcc, "-std=c++17", "-arch=sm_90a", "-lineinfo", "-ptx", "-o", "-", str(source)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    text = re.sub(r'(\.file\s+\d+ )".*/include/([^"]*)"', r'\1"/include/\2"', text)
    text = re.sub(r'(\.file\s+\d+ )"[^"]*/([^"/]*\.cu)"', r'\1"\2"', text)
    text = re.sub(r'(\.file\s+\d+ "[^"]*"),\s*\d+,\s*\d+', r"\1", text)
    assert str(HERE) not in text
    return text


def main() -> None:
    nvcc = sys.argv[1] if len(sys.argv) > 1 else "nvcc"
    for source in sorted(HERE.glob("*.cu")):
        text = compile_one(nvcc, source)
        source.with_suffix(".ptx").write_text(text)
        print(f"{source.name}: {len(text.splitlines())} lines, {len(text)} bytes")


if __name__ == "__main__":
    main()
