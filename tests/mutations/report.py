"""Judge every mutant and write the table: ``python tests/mutations/report.py`` -> RESULTS.md."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent)]


def table(title: str, bases: list) -> list[str]:
    """Rows of one architecture."""
    from mutations.corpus import judged

    lines = [f"## {title}", "", "| kernel | mutants | caught | right kind | right kind and line |",
             "|---|---|---|---|---|"]  # fmt: skip
    sums = [0, 0, 0, 0]
    for base in bases:
        verdicts = judged(base)
        if not verdicts:
            continue
        row = [len(verdicts), *(sum(getattr(v, k) for v in verdicts)
                                for k in ("caught", "kind", "right"))]  # fmt: skip
        sums = [a + b for a, b in zip(sums, row, strict=True)]
        lines.append(f"| {base.name} | " + " | ".join(map(str, row)) + " |")
        print(base.name, row, flush=True)
    lines.append("| **all** | " + " | ".join(f"**{n}**" for n in sums) + " |")
    lines.append(f"\n{100 * sums[3] / sums[0]:.1f} % are caught with a right kind and line.\n")
    return lines


def main() -> None:
    from mutations.bases import ALL, BLACKWELL, HOPPER
    from mutations.rules import EQUIVALENT, MISSED

    lines = [
        "# Mutants of correct kernels", "",
        "Written by `python tests/mutations/report.py`; `test_mutations.py` checks the same. A "
        "mutant is a fault put into the PTX of a correct kernel by a rule of `rules*.py`. It "
        "counts as right when a finding has one of the kinds that describe the fault and names "
        "one of the lines that belong to it. Changes that give another legal program (other "
        "coordinates, another step of K) show only in the result; they are not made here.", "",
        *table("Hopper", HOPPER), *table("Blackwell", BLACKWELL),
        "## Not named", "", "| kernel | fault | reason |", "|---|---|---|",
        *(f"| {b} | {r} | {why} |" for (b, r), why in MISSED.items()), "",
        "## Not counted: still correct", "", "| kernel | change | reason |", "|---|---|---|",
        *(f"| {b} | {r} | {why} |" for (b, r), why in EQUIVALENT.items()), "",
        "## Correct kernels", "",
        f"{len(ALL)} kernels, each with no finding and no warning under every completion policy "
        "(`test_correct_kernels.py`; many seeds: `benchmarks/emulator_seeds.py`).",
    ]  # fmt: skip
    (HERE / "RESULTS.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
