"""Python lines of instructions in PTX and SASS, also where one call is several statements."""

from __future__ import annotations

from pathlib import Path

import pytest
from numba import cuda

import nbtc
from nbtc import sass
from nbtc.intrinsics import address, sync, tcgen05
from nbtc.source_lines import LineTable


def votes(out, n):
    i = cuda.threadIdx.x
    out[i] = sync.vote_ballot(out[i] > n)  # vote.sync.ballot
    out[i + 32] = n
    out[i + 64] = sync.vote_ballot(i < n)  # vote.sync.ballot
    out[i + 96] = n


def multiplies(out, n):
    out[0] = n
    descriptor = address.descriptor_sm100(out[1])
    tcgen05.mma_f16(address.tmem(n), descriptor, descriptor, n, n > 3)  # tcgen05.mma
    out[2] = n
    tcgen05.mma_f16(address.tmem(n), descriptor, descriptor, n, True)  # tcgen05.mma
    out[3] = n


@pytest.mark.parametrize(
    ("function", "arch", "instruction", "opcode"),
    [
        (votes, "sm_90a", "vote.sync.ballot", "VOTE"),
        (votes, "sm_100a", "vote.sync.ballot", "VOTE"),
        (multiplies, "sm_100a", "tcgen05.mma", "UTCHMMA"),
    ],
)
def test_an_instruction_with_a_predicate_keeps_its_line(function, arch, instruction, opcode):
    compiled = nbtc.jit(launch_bounds=32)(function).compile("int32[::1]", "int32", arch=arch)
    start = function.__code__.co_firstlineno
    lines = Path(__file__).read_text().splitlines()[start : start + 7]
    wanted = [n for n, text in enumerate(lines, start + 1) if text.endswith(f"# {instruction}")]
    assert len(wanted) == 2

    table = LineTable(compiled.ptx)
    used = [n for n, text in enumerate(compiled.ptx.splitlines(), 1) if f" {instruction}" in text]
    assert [table.at(n)[-1].line for n in used] == wanted
    assert all(table.at(n)[-1].file == __file__ for n in used)

    found = [
        where.line
        for name, where in sass.opcodes(compiled.sass(lines=True))
        if name.split(".")[0] == opcode
    ]
    assert sorted(found) == wanted
