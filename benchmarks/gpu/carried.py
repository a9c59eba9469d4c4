"""Run cubins that another machine assembled: nothing is compiled here, and there is no ptxas.

``python benchmarks/gpu/carried.py prepare [FOLDER]`` saves the GEMM kernels, on a machine that may
have no GPU; the section loads them from ``build/carried``, compares the hash of the machine code,
and checks a product.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    ROOT = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]
    __package__ = "gpu"

from nbtc import tools
from nbtc.gemm import HopperConfig, argument_types, choose, make_kernel

from .agreement_case import ROOT
from .common import Context, relative_error, tn

FOLDER = ROOT / "build" / "carried"
SIZE = (4096, 4096, 4096)
SMALL = (512, 384, 256)
SMS = 132


def _config(size: tuple[int, int, int], dtype: str) -> HopperConfig:
    return choose(*size, dtype, dtype, "K", "K", SMS)


def prepare(folder: Path) -> None:
    """Save the kernels of both sizes and types, and a list of their hashes."""
    folder.mkdir(parents=True, exist_ok=True)
    listed = {}
    for size in (SIZE, SMALL):
        for dtype in ("bfloat16", "float16"):
            name = f"{dtype}-{'x'.join(map(str, size))}"
            config = _config(size, dtype)
            kernel, signature = make_kernel(config), argument_types(config)
            made = kernel.save(folder / f"{name}.nbtc", *signature, arch="sm_90a")
            listed[name] = hashlib.sha256(made.cubin).hexdigest()
    listed["ptxas"] = str(tools.find("ptxas").version)
    (folder / "list.json").write_text(json.dumps(listed, indent=1))
    print(json.dumps(listed, indent=1))


def run(context: Context) -> dict[str, Any]:
    """Load, launch and check them."""
    if context.smoke:
        return {"status": "unavailable", "summary": "needs a GPU"}
    if not (FOLDER / "list.json").exists():
        return {"status": "unavailable", "summary": "run `gpu/carried.py prepare` first"}
    listed = json.loads((FOLDER / "list.json").read_text())
    os.environ["NBTC_PTXAS"] = "/nowhere/ptxas"
    os.environ["NBTC_CACHE_DIR"] = ""
    rows, wrong = [], []
    for size in (SIZE, SMALL):
        for dtype in context.library.dtypes:
            name = f"{dtype}-{'x'.join(map(str, size))}"
            config = _config(size, dtype)
            kernel, signature = make_kernel(config), argument_types(config)
            loaded = kernel.load(FOLDER / f"{name}.nbtc", *signature)
            digest = hashlib.sha256(loaded.cubin).hexdigest()
            m, n, k = size
            a, b = (context.library.normal(s, dtype) for s in ((m, k), (n, k)))
            out = tn(a, b, context.library.poison((m, n), dtype))
            want = context.library.double(a) @ context.library.double(b).T
            error = relative_error(context.library, out, want)
            good = digest == listed[name] and error < 0.01
            wrong += [] if good else [name]
            rows.append({"name": name, "sha256": digest[:16], "relative_error": error})
    summary = f"{len(rows) - len(wrong)} of {len(rows)} cubins of ptxas {listed['ptxas']} ran"
    return {
        "status": "failed" if wrong else "ok", "failures": wrong, "table": rows,
        "summary": summary + ", assembled elsewhere, with no ptxas here",
    }  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:2] != ["prepare"]:
        sys.exit(__doc__)
    prepare(Path(sys.argv[2]) if len(sys.argv) > 2 else FOLDER)
