"""Run every kernel and example on the emulator under many seeds and every completion policy.

    python benchmarks/emulator_seeds.py [--seeds 20] [--out benchmarks/results/emulator_seeds.json]

A kernel passes when it gives the NumPy result with no finding under each of them. Sizes are small,
with at least two waves. The result says for each kernel how many runs passed, and what was found
in the others.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
POLICIES = ("random", "earliest", "latest")


def measure(base, seeds: int) -> dict:
    """Run one kernel under every seed and policy."""
    runs = passed = instructions = 0
    problems: list[str] = []
    notes: set[str] = set()
    start = time.perf_counter()
    for completion in POLICIES:
        for seed in range(seeds):
            runs += 1
            report, check = base.run(completion=completion, seed=seed)
            instructions += report.instructions
            notes |= {f"{f.kind} at line {f.line}" for f in (*report.warnings, *report.advice)}
            wrong = ""
            try:
                check()
            except AssertionError as error:
                wrong = str(error)
            if report.ok and not wrong:
                passed += 1
            else:
                said = wrong or f"{report.findings[0].kind}: {report.findings[0].message}"
                problems.append(f"{completion}, seed {seed}: {said[:200]}")
    return {
        "kernel": base.name, "arch": base.arch, "runs": runs, "passed": passed,
        "problems": problems[:5], "warnings_and_advice": sorted(notes)[:5],
        "instructions": instructions, "seconds": round(time.perf_counter() - start, 1),
    }  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only", default="", help="names of kernels, with commas")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/emulator_seeds.json")
    options = parser.parse_args(argv)
    from mutations.bases import ALL

    names = set(filter(None, options.only.split(",")))
    done = {}
    if names and options.out.exists():  # a part is run again: keep the other rows
        old = json.loads(options.out.read_text())
        if old["seeds"] == options.seeds:
            done = {row["kernel"]: row for row in old["rows"]}
    chosen = [base for base in ALL if not names or base.name in names]
    for base in chosen:
        row = done[base.name] = measure(base, options.seeds)
        line = f"{row['kernel']:24} {row['passed']:3}/{row['runs']} {row['seconds']:7} s"
        print(line, flush=True)
        write(options.out, options.seeds, [done[b.name] for b in ALL if b.name in done])
    wrong = [row for row in done.values() if row["passed"] != row["runs"]]
    print(f"{len(done) - len(wrong)} of {len(done)} kernels pass")
    return 1 if wrong else 0


def write(path: Path, seeds: int, rows: list[dict]) -> None:
    """Write the rows that are there, so that a stopped run is not lost."""
    result = {
        "seeds": seeds, "policies": POLICIES, "kernels": len(rows),
        "kernels_passed": sum(r["passed"] == r["runs"] for r in rows),
        "runs": sum(r["runs"] for r in rows), "rows": rows,
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
