"""The package stands alone and prints nothing by itself."""

from __future__ import annotations

import subprocess
import sys


def test_import_loads_neither_numba_nor_cuda():
    code = (
        "import sys, nbtc.emulator; "
        "bad = {m.split('.')[0] for m in sys.modules} & {'numba', 'llvmlite', 'cuda', 'cupy'}; "
        "assert not bad, bad; "
        "nbtc.emulator.launch('.version 8.8\\n.target sm_90a\\n.address_size 64\\n"
        ".visible .entry k() { bar.sync 0; ret; }', grid=1, block=64, args=[]); "
        "bad = {m.split('.')[0] for m in sys.modules} & {'numba', 'llvmlite', 'cuda', 'cupy'}; "
        "assert not bad, bad"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
