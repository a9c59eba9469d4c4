"""Correct kernels, usual and unusual: the NumPy result, no finding, no warning, whatever order."""

from __future__ import annotations

import pytest

from mutations.bases import ALL

POLICIES = ("random", "earliest", "latest")
LARGE = ("fused-gemm", "ampere-gemm", "tcgen05-gemm", "scaled-gemm")


@pytest.mark.parametrize("completion", POLICIES)
@pytest.mark.parametrize("base", ALL, ids=lambda b: b.name)
def test_no_false_alarm(base, completion):
    for seed in range(1 if base.name in LARGE else 2):
        report, check = base.run(completion=completion, seed=seed)
        assert report.ok, f"seed {seed}:\n{report}"
        assert not report.warnings, f"seed {seed}:\n{report}"
        check()


def test_enough_kernels():
    assert len({base.name for base in ALL}) >= 25
