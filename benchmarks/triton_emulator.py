"""Compile Triton kernels for Hopper and Blackwell, with no GPU, and emulate their PTX.

    python benchmarks/triton_emulator.py [--seeds 2] [--only mm_tma] [--out FILE]

Needs triton 3.9 beside NumPy and ml_dtypes; numba is not needed. The PTX is made anew and not kept.
Each kernel must give the NumPy result with no finding, under every completion policy.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]
POLICIES = ("random", "earliest", "latest")
TYPES = {
    "fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp8e4nv": ml_dtypes.float8_e4m3fn,
    "fp8e5": ml_dtypes.float8_e5m2, "fp32": np.float32, "i32": np.int32,
}  # fmt: skip
SWIZZLES = ("none", "32B", "64B", "128B")


class Map:
    """A tensor map of a row-major matrix, as the emulator takes it."""

    def __init__(self, array: np.ndarray, meta: dict) -> None:
        """Describe ``array`` as the compiler asked for it."""
        from nbtc.layout.tensormap_description import TensorMapDescription

        name = array.dtype.name
        swizzle = SWIZZLES[meta["swizzle"]]
        self.array = array
        self.description = TensorMapDescription.tiled(
            array.shape, name, tuple(meta["block_size"]), swizzle=swizzle
        )

    @property
    def arguments(self) -> list[Any]:
        """The map, its shape and strides, in the order of the parameters."""
        rows, columns = self.array.shape
        return [self, rows, columns, columns, 1]


@dataclass
class Case:
    """One kernel, compiled for one target, with its data."""

    name: str
    function: str
    cc: int
    signature: dict[str, str]
    constants: dict[str, Any]
    grid: Any
    data: Any  # seed -> (arguments, check of the result)
    options: dict[str, Any] = field(default_factory=dict)
    aligned: bool = False  # pointers and sizes are multiples of 16

    def compile(self) -> tuple[str, Any]:
        """Return PTX and metadata."""
        import triton_kernels
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource, compile

        multiples = {
            (i,): [["tt.divisibility", 16]]
            for i, (name, kind) in enumerate(self.signature.items())
            if self.aligned and (kind.startswith("*") or (kind == "i32" and name in "MNK"))
        }
        source = ASTSource(
            getattr(triton_kernels, self.function),
            signature={**self.signature, **dict.fromkeys(self.constants, "constexpr")},
            constexprs=self.constants,
            attrs=multiples,
        )
        options = {"num_warps": 4, "num_stages": 3, **self.options}
        kernel = compile(source, target=GPUTarget("cuda", self.cc, 32), options=options)
        return kernel.asm["ptx"], kernel.metadata

    def run(self, ptx: str, metadata: Any, seed: int, completion: str) -> Any:
        """Run on the emulator; raise on findings and on a wrong result."""
        from nbtc.emulator import launch, parse

        values, check = self.data(seed)
        maps = iter(metadata.tensordesc_meta or ())
        args: list[Any] = []
        for value, kind in zip(values, self.signature.values(), strict=True):
            args += Map(value, next(maps)).arguments if "desc" in kind else [value]
        entry = next(f for f in parse(ptx).functions.values() if f.entry and f.defined)
        block = entry.directives["reqntid"][0]
        grid, ctas = np.atleast_1d(self.grid).tolist(), metadata.num_ctas
        scratch = metadata.global_scratch_size * int(np.prod(grid)) * ctas
        grid[0] *= ctas
        report = launch(ptx, grid=tuple(grid), block=block, seed=seed, completion=completion,
                        cluster=(ctas, 1, 1), dynamic_smem=metadata.shared,
                        args=[*args, np.zeros(scratch, np.uint8) if scratch else None, None],
                        )  # fmt: skip
        report.raise_for_findings()
        check()
        return report


def _close(got: np.ndarray, want: np.ndarray, tolerance: float) -> None:
    error = np.abs(got.astype(np.float64) - want).max() / np.abs(want).max()
    if not error <= tolerance:
        raise AssertionError(f"relative error {error:.3g} > {tolerance:.3g}")


def _matrices(kind: str, out: str, m: int, n: int, k: int, transposed: bool, tolerance: float):
    def data(seed: int):
        rng = np.random.default_rng(seed)
        a = rng.standard_normal((m, k)).astype(TYPES[kind])
        b = rng.standard_normal((n, k) if transposed else (k, n)).astype(TYPES[kind])
        c = np.zeros((m, n), TYPES[out])
        want = a.astype(np.float64) @ (b.T if transposed else b).astype(np.float64)
        return (a, b, c), lambda: _close(c, want, tolerance)

    return data


def _with(data: Any, *more: Any) -> Any:
    def extended(seed: int):
        args, check = data(seed)
        return (*args, *more), check

    return extended


def matmuls() -> list[Case]:
    """Matmuls by pointers and by TMA, persistent, warp-specialised."""
    cases = []
    for cc in (90, 100):
        for kind, tolerance in (("fp16", 1e-5), ("bf16", 1e-5), ("fp8e4nv", 1e-3),
                                ("fp8e5", 1e-3), ("fp32", 3e-3)):  # fmt: skip
            m, n, k = 80, 72, 96
            block = {"BM": 64, "BN": 32 if kind == "fp32" else 64, "BK": 32}
            cases.append(Case(
                f"mm {kind}", "mm", cc,
                {"a": f"*{kind}", "b": f"*{kind}", "c": "*fp32", "M": "i32", "N": "i32",
                 "K": "i32"},
                {**block, "TF32": "tf32"}, (2, -(-n // block["BN"])),
                _with(_matrices(kind, "fp32", m, n, k, False, tolerance), m, n, k),
            ))  # fmt: skip
        for kind, blocks, warps, stages in (
            ("fp16", (64, 64, 64), 4, 2), ("bf16", (128, 64, 32), 4, 3),
            ("fp16", (128, 128, 64), 8, 2), ("fp8e4nv", (64, 64, 128), 4, 2),
            ("bf16", (64, 32, 16), 4, 4),
        ):  # fmt: skip
            m, n, k = 2 * blocks[0], 2 * blocks[1], 3 * blocks[2] + 16
            out = "fp16" if kind.startswith("fp8") else kind
            box = {"a": (blocks[0], blocks[2]), "b": (blocks[1], blocks[2]),
                   "c": (blocks[0], blocks[1])}  # fmt: skip
            kinds = {"a": kind, "b": kind, "c": out}
            cases.append(Case(
                f"mm_tma {kind} {'x'.join(map(str, blocks))}", "mm_tma", cc,
                {**{x: f"tensordesc<{kinds[x]}[{r}, {c}]>" for x, (r, c) in box.items()},
                 "K": "i32"},
                {**dict(zip(("BM", "BN", "BK"), blocks, strict=True)), "OUT": _type(out)}, (2, 2),
                _with(_matrices(kind, out, m, n, k, True, 8e-3), k),
                {"num_warps": warps, "num_stages": stages},
            ))  # fmt: skip
        # On Hopper, Triton 3.9 warp-specialises 64 rows by computing them twice, and fails for 128.
        for special in (False, True) if cc == 100 else (False,):
            cases.append(Case(
                "mm_persistent" + (" warp-specialised" if special else ""), "mm_persistent", cc,
                {"a": "tensordesc<fp16[64, 64]>", "b": "tensordesc<fp16[64, 64]>",
                 "c": "tensordesc<fp16[64, 64]>", "M": "i32", "N": "i32", "K": "i32"},
                {"BM": 64, "BN": 64, "BK": 64, "OUT": _type("fp16"), "PROGRAMS": 2,
                 "WS": special}, 2,
                _with(_matrices("fp16", "fp16", 192, 128, 160, True, 1e-3), 192, 128, 160),
            ))  # fmt: skip
    return cases


def _type(name: str) -> Any:
    import triton.language as tl

    return {"fp16": tl.float16, "bf16": tl.bfloat16, "fp32": tl.float32}[name]


_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def _operand(rng: Any, rows: int, k: int, form: str) -> tuple[np.ndarray, np.ndarray]:
    """Return storage and values of an operand in e2m1 (packed), e4m3 or e5m2."""
    if form == "e2m1":
        codes = rng.integers(0, 16, (rows, k)).astype(np.uint8)
        return codes[:, ::2] | codes[:, 1::2] << 4, _E2M1[codes]
    values = rng.standard_normal((rows, k)).astype(TYPES["fp8e4nv" if form == "e4m3" else "fp8e5"])
    return values.view(np.uint8), values.astype(np.float64)


def scaled() -> list[Case]:
    """Block-scaled products of 8-bit and 4-bit floats."""
    cases = []
    m, n, k = 128, 128, 384
    forms = (("e4m3", "e4m3", 32), ("e5m2", "e4m3", 32), ("e2m1", "e2m1", 32), ("e4m3", "e2m1", 32),
             ("e2m1", "e2m1", 16))  # fmt: skip
    for left, right, vector in forms:

        def data(seed: int, left=left, right=right, vector=vector):
            rng = np.random.default_rng(seed)
            a, x = _operand(rng, m, k, left)
            b, y = _operand(rng, n, k, right)
            if vector == 32:
                sa, sb = (rng.integers(124, 131, (r, k // 32)).astype(np.uint8) for r in (m, n))
                fa, fb = (2.0 ** (s.astype(np.float64) - 127) for s in (sa, sb))
            else:
                fa, fb = (rng.uniform(0.5, 2, (r, k // 16)).astype(TYPES["fp8e4nv"])
                          for r in (m, n))  # fmt: skip
                sa, sb = fa, fb
                fa, fb = fa.astype(np.float64), fb.astype(np.float64)
            c = np.zeros((m, n), np.float32)
            want = (x * fa.repeat(vector, 1)) @ (y * fb.repeat(vector, 1)).T
            return (a, sa, b, sb, c, k), lambda: _close(c, want, 1e-3)

        kinds = {"e4m3": "*fp8e4nv", "e5m2": "*fp8e5", "e2m1": "*u8"}
        scale = "*u8" if vector == 32 else "*fp8e4nv"
        cases.append(Case(
            f"dot_scaled {left} {right} vector {vector}", "mm_scaled", 100,
            {"a": kinds[left], "sa": scale, "b": kinds[right], "sb": scale, "c": "*fp32",
             "K": "i32"},
            {"BM": 128, "BN": 128, "BK": 128, "N": n, "A_FORMAT": left, "B_FORMAT": right,
             "PACK_A": 1 + (left == "e2m1"), "PACK_B": 1 + (right == "e2m1"), "VECTOR": vector},
            (1, 1), data, {"num_stages": 2},
        ))  # fmt: skip
    return cases


def rows() -> list[Case]:
    """Softmax, layer norm, sums with atomics, histograms."""
    cases = []
    for cc in (90, 100):
        for kind, n in (("fp32", 300), ("bf16", 513)):

            def softmax(seed: int, kind=kind, n=n):
                x = np.random.default_rng(seed).standard_normal((3, n)).astype(TYPES[kind])
                y = np.zeros_like(x)
                e = np.exp(x.astype(np.float64) - x.astype(np.float64).max(1, keepdims=True))
                want = e / e.sum(1, keepdims=True)
                return (x, y, n), lambda: _close(y, want, 8e-3 if kind == "bf16" else 1e-5)

            def norm(seed: int, kind=kind, n=n):
                rng = np.random.default_rng(seed)
                x = rng.standard_normal((3, n)).astype(TYPES[kind])
                w, b = (rng.standard_normal(n).astype(np.float32) for _ in range(2))
                y = np.zeros_like(x)
                v = x.astype(np.float64)
                want = (v - v.mean(1, keepdims=True)) / np.sqrt(v.var(1, keepdims=True) + 1e-5)
                tolerance = 8e-3 if kind == "bf16" else 1e-5
                return (x, w, b, y, n), lambda: _close(y, want * w + b, tolerance)

            block = 1 << (n - 1).bit_length()
            cases.append(Case(f"softmax {kind} {n}", "softmax", cc,
                              {"x": f"*{kind}", "y": f"*{kind}", "n": "i32"}, {"B": block}, 3,
                              softmax))  # fmt: skip
            cases.append(Case(f"layer_norm {kind} {n}", "layer_norm", cc,
                              {"x": f"*{kind}", "w": "*fp32", "b": "*fp32", "y": f"*{kind}",
                               "n": "i32"}, {"B": block}, 3, norm))  # fmt: skip

        def sums(seed: int):
            x = np.random.default_rng(seed).integers(-50, 50, (70, 90)).astype(np.int32)
            y = np.zeros(90, np.int32)
            return (x, y, 70, 90), lambda: np.testing.assert_array_equal(y, x.sum(0))

        def bins(seed: int):
            x = np.random.default_rng(seed).integers(0, 32, 700).astype(np.int32)
            y = np.zeros(32, np.int32)
            want = np.bincount(x, minlength=32)
            return (x, y, 700), lambda: np.testing.assert_array_equal(y, want)

        cases.append(Case("column_sums", "column_sums", cc,
                          {"x": "*i32", "y": "*i32", "M": "i32", "N": "i32"},
                          {"BM": 32, "BN": 64}, (3, 2), sums))  # fmt: skip
        cases.append(Case("histogram", "histogram", cc, {"x": "*i32", "y": "*i32", "n": "i32"},
                          {"B": 256, "BINS": 32}, 3, bins))  # fmt: skip
    return cases


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=2, help="seeds for each policy")
    parser.add_argument("--only", default="", help="cases whose name has this")
    parser.add_argument("--dump", type=Path, help="folder for the PTX of failing cases")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(argv)
    try:
        import triton
    except ImportError:
        print("skipped: triton is not installed (pip install triton==3.9.0)")
        return 0
    table, failed = [], 0
    # This script's own types, under the name by which the cases import them.
    sys.modules["triton_emulator"] = sys.modules[__name__]
    from triton_more import more

    for case in [*rows(), *matmuls(), *scaled(), *more()]:
        name = f"{case.name} (cc {case.cc})"
        if options.only not in name:
            continue
        start, problem, runs = time.perf_counter(), "", 0
        ptx = ""
        try:
            ptx, metadata = case.compile()
            for completion in POLICIES:
                for seed in range(options.seeds):
                    problem = f"{completion}, seed {seed}: "
                    case.run(ptx, metadata, seed, completion)
                    runs += 1
            problem = ""
        except Exception as error:  # one bad kernel must not hide the others
            problem += f"{type(error).__name__}: {str(error)[:600]}"
            failed += 1
            if options.dump and ptx:
                options.dump.mkdir(parents=True, exist_ok=True)
                (options.dump / (name.replace(" ", "_") + ".ptx")).write_text(ptx)
        seconds = time.perf_counter() - start
        table.append({"case": name, "runs": runs, "problem": problem})
        print(f"{'FAIL' if problem else 'ok  '} {name} {seconds:.1f} s {problem}", flush=True)
    print(f"{len(table) - failed} of {len(table)} kernels are right")
    if options.out:
        if options.only and options.out.exists():
            new = {row["case"] for row in table}
            old = json.loads(options.out.read_text())["rows"]
            table = [row for row in old if row["case"] not in new] + table
        result = {"triton": triton.__version__, "seeds": options.seeds, "rows": table}
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
