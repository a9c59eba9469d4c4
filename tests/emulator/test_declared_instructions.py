"""The emulator takes every declared instruction, but for a list that says which it does not."""

from __future__ import annotations

import re

import pytest

from nbtc.emulator import engine, load
from nbtc.errors import EmulatorError
from nbtc.ptx import conformance
from nbtc.ptx.spec import Instruction
from nbtc.reference import instructions

ALL = instructions()

# The placement of sparse metadata, and of A shifted by ashift, is only drawn in the PTX ISA; the
# text of s2f6, of scaled conversions and of the NaN that .oob looks for leaves bits open.
NOT_MODELLED = re.compile(
    r"^(mma\.sp|tcgen05\.ld\.red|tcgen05\.mma\S*\.ashift|fma\S*\.oob)|s2f6x2|scaled::n2"
)


def _loads(texts: list[str]) -> None:
    """Compile the lines for the emulator, behind a return, so that none of them runs."""
    module, _ = conformance.module(texts, (9, 2), "sm_100a")
    module = module.replace("  .reg .pred", "  ret;\n  .reg .pred")
    for entry in ("single", "pair"):
        engine.launch(module, entry, grid=1, block=32, args=[])
    load(module).validate()


@pytest.mark.parametrize("instruction", ALL.values(), ids=list(ALL))
def test_the_emulator_takes_it(instruction: Instruction) -> None:
    texts = [case.text for case in conformance.cases(instruction, 12)]
    _loads([text for text in texts if not NOT_MODELLED.search(text)])


def test_an_unknown_instruction_is_refused_by_name() -> None:
    with pytest.raises(EmulatorError, match=r"no\.such\.instruction"):
        _loads(["no.such.instruction %r0;"])
