"""What every declaration must keep: effects, documentation, uniqueness, error texts."""

from __future__ import annotations

import functools
import inspect
import re
import sys

import pytest
from numba.cuda import types

from nbtc import arch as arch_module
from nbtc.errors import InstructionError
from nbtc.ptx import conformance
from nbtc.ptx.kinds import Imm, Kind, Regs
from nbtc.ptx.lower import make_plan
from nbtc.ptx.operands import numba_type
from nbtc.ptx.spec import Instruction, Variant
from nbtc.reference import instructions, modules

ALL = instructions()
BY_NAME = pytest.mark.parametrize("instruction", ALL.values(), ids=list(ALL))

# Read an address as a number, and touch no memory.
_ADDRESS_ONLY = re.compile(r"^(mapa|getctarank|isspacep)")
_REGISTERS_ONLY = re.compile(r"^(activemask|mma|movmatrix)\b")
_COLLECTIVE = re.compile(
    r"\.sync\.aligned|\.aligned\b|^(elect|barrier|bar|vote|match|redux|shfl|activemask)\b"
)


@functools.cache
def _texts(instruction: Instruction) -> list[str]:
    return [case.text for case in conformance.cases(instruction, 60)]


@BY_NAME
def test_has_a_legal_variant(instruction: Instruction) -> None:
    assert conformance.cases(instruction, 5)


@BY_NAME
def test_touching_an_address_is_a_memory_effect(instruction: Instruction) -> None:
    for text in _texts(instruction):
        if "[" in text and not _ADDRESS_ONLY.match(text):
            assert "memory" in instruction.effects, text
            assert "pure" not in instruction.effects, text


@BY_NAME
def test_collective_is_convergent(instruction: Instruction) -> None:
    for text in _texts(instruction):
        if _COLLECTIVE.search(text):
            assert "convergent" in instruction.effects, text
            assert "memory" in instruction.effects or _REGISTERS_ONLY.match(text), text


@BY_NAME
def test_clocks_and_timers_are_not_pure(instruction: Instruction) -> None:
    if re.search(r"%(clock|globaltimer|smid|warpid)", _texts(instruction)[0]):
        assert instruction.effects == {"volatile"}


def test_no_text_is_declared_twice() -> None:
    owner: dict[str, str] = {}
    for name, instruction in ALL.items():
        for text in _texts(instruction):
            assert owner.setdefault(text, name) == name, f"{text}: {owner[text]} and {name}"


@BY_NAME
def test_one_variant_is_one_text(instruction: Instruction) -> None:
    """Different modifiers never render the same text: none of them is ignored."""
    seen: dict[tuple[str, str], Variant] = {}
    kinds = [*(o.kind for o in instruction.operands), *instruction.results]
    for variant in _few(instruction):
        text = conformance.render(instruction, variant)
        # int32 and uint32 are one register of PTX and two types of a kernel.
        types_ = repr([k.resolve(variant) if isinstance(k, Regs) else k for k in kinds])
        other = seen.setdefault((text, types_), variant)
        assert dict(other) == dict(variant), f"{other} and {variant} are both {text}"


@functools.cache
def _few(instruction: Instruction) -> list[Variant]:
    variants = list(instruction.variants())
    return variants[:: max(1, len(variants) // 200)]


@BY_NAME
def test_is_documented(instruction: Instruction) -> None:
    doc = instruction.__doc__ or ""
    module = sys.modules[instruction.__module__]
    family = modules()[instruction.name.split(".")[0]]
    context = "\n".join([doc, module.__doc__ or "", family.__doc__ or ""])
    assert doc.strip().splitlines()[0].rstrip().endswith((".", "::"))
    assert re.search(r"execute|issue|(one|each|a single) thread|warp", context), "who executes it?"
    assert instruction.section, "which section of the PTX ISA?"


@pytest.mark.parametrize("name", sorted({n.split(".")[0] for n in ALL}))
def test_module_says_what_it_leaves_out(name: str) -> None:
    doc = inspect.getdoc(modules()[name]) or ""
    assert "Not covered" in doc


@BY_NAME
def test_parameters_are_explained(instruction: Instruction) -> None:
    doc = instruction.__doc__ or ""
    if "Args:" not in doc:
        return
    missing = [p for p in instruction.signature.parameters if not re.search(rf"\b{p}\b", doc)]
    assert not missing


@BY_NAME
def test_targets_are_known(instruction: Instruction) -> None:
    for variant in _few(instruction):
        arch_module.requirement_text(instruction.arch(variant))
        lowest = conformance.lowest_arch(instruction, variant)
        assert lowest in conformance.FLOORS
        need = instruction.arch(variant)
        assert any(arch_module.satisfies(target, need) for target in arch_module.SUPPORTED)


@BY_NAME
def test_illegal_modifier_names_itself_and_the_legal_values(instruction: Instruction) -> None:
    good = next(iter(instruction.variants()))
    for modifier in instruction.modifiers:
        bad = Variant({**good, modifier.name: "bogus"}, good.given)
        with pytest.raises(InstructionError) as caught:
            instruction.check(bad)
        message = str(caught.value)
        assert message.startswith(f"{instruction.name}: {modifier.name}='bogus'")
        assert modifier.legal_words in message


# -- operands through typing --------------------------------------------------------------------


def _argument_types(instruction: Instruction, variant: Variant) -> dict[str, object]:
    given: dict[str, object] = {}
    for modifier in instruction.modifiers:
        value = variant[modifier.name]
        given[modifier.name] = types.literal(value)
    for operand in instruction.operands:
        if operand.optional and not variant.has(operand.name):
            given[operand.name] = types.none
        else:
            given[operand.name] = _type_of(operand.kind, variant, operand.name)
    return given


def _type_of(kind: Kind | Regs, variant: Variant, name: str) -> object:
    if isinstance(kind, Kind):
        return numba_type(kind)
    one, count = kind.resolve(variant)
    member = types.float32 if one is None else numba_type(one)
    if kind.is_scalar(variant):
        return member
    return types.UniTuple(member, count if count is not None else variant.count(name))


def _plan(instruction: Instruction, given: dict[str, object]) -> object:
    return make_plan(instruction, tuple(given[p] for p in instruction.signature.parameters))


@BY_NAME
def test_legal_operands_are_accepted(instruction: Instruction) -> None:
    for variant in _few(instruction)[:40]:
        _plan(instruction, _argument_types(instruction, variant))


def _scalar(kind: Kind | Regs, variant: Variant) -> Kind | None:
    if isinstance(kind, Kind):
        return kind
    return kind.resolve(variant)[0] if kind.is_scalar(variant) else None


@BY_NAME
def test_a_wide_value_never_becomes_a_narrow_operand(instruction: Instruction) -> None:
    variant = _few(instruction)[-1]
    good = _argument_types(instruction, variant)
    for operand in instruction.operands:
        if operand.optional and not variant.has(operand.name):
            continue
        kind = _scalar(operand.kind, variant)
        wide: object = types.int64
        if kind is None:
            one, _ = operand.kind.resolve(variant)
            if one is None or one.bits >= 64:
                continue
            wide = types.UniTuple(types.int64, len(good[operand.name]))
        elif kind.bits >= 64:
            continue
        with pytest.raises(InstructionError) as caught:
            _plan(instruction, {**good, operand.name: wide})
        message = str(caught.value)
        assert message.startswith(f"{instruction.name}: {operand.name}")
        assert "int64" in message
        assert "needs" in message


@BY_NAME
def test_literals_out_of_range_are_refused(instruction: Instruction) -> None:
    variant = _few(instruction)[-1]
    good = _argument_types(instruction, variant)
    for operand in instruction.operands:
        if operand.optional and not variant.has(operand.name):
            continue
        if not isinstance(operand.literal, Imm):
            continue
        for value in (operand.literal.low, operand.literal.high):
            _plan(instruction, {**good, operand.name: types.literal(value)})
        too_much = operand.literal.high + operand.literal.step
        with pytest.raises(InstructionError) as caught:
            _plan(instruction, {**good, operand.name: types.literal(too_much)})
        expected = f"{instruction.name}: {operand.name} must be {operand.literal.words}, got"
        assert str(caught.value) == f"{expected} {too_much}"


@pytest.mark.parametrize(
    ("name", "operand", "value", "words"),
    [
        ("mbarrier.init", "count", 0, "mbarrier.init: count must be 1..1048575, got 0"),
        (
            "mbarrier.arrive_expect_tx",
            "tx_bytes",
            1048576,
            "mbarrier.arrive_expect_tx: tx_bytes must be 0..1048575, got 1048576",
        ),
        ("bulk.load", "size", 24, "bulk.load: size must be 0..1048560 in steps of 16, got 24"),
        ("sync.barrier_sync", "id", 16, "sync.barrier_sync: id must be 0..15, got 16"),
        (
            "sync.barrier_arrive",
            "threads",
            100,
            "sync.barrier_arrive: threads must be 32..1024 in steps of 32, got 100",
        ),
    ],
)
def test_messages_of_literals(name: str, operand: str, value: int, words: str) -> None:
    instruction = ALL[name]
    good = _argument_types(instruction, next(iter(instruction.variants())))
    with pytest.raises(InstructionError) as caught:
        _plan(instruction, {**good, operand: types.literal(value)})
    assert str(caught.value) == words


def test_calling_one_in_python_says_where_it_belongs() -> None:
    from nbtc.intrinsics import mbarrier

    with pytest.raises(InstructionError, match="call it inside a kernel"):
        mbarrier.init(0, 1)


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("mbarrier.arrive", {"sem": "release"}, "sem='release' with scope='': give both"),
        ("bulk.reduce", {"op": "add", "type": "b32"}, "add takes 'u32', 's32', 'u64', 'f32'"),
        ("memory.ld_shared", {"type": "u64", "vec": "v4"}, "256 bits; at most 128"),
        ("memory.ld_global", {"cop": "cg", "l1": "L1::evict_first"}, "give one of them"),
        ("atomics.atom", {"op": "min", "type": "f32"}, "min takes 'u32'"),
        ("sync.redux", {"op": "and", "type": "s32"}, "and takes 'b32'"),
        ("cluster.st_async", {"type": "b64", "vec": "v4"}, "64-bit types take '' or 'v2'"),
    ],
)
def test_rules_of_combinations(name: str, changes: dict[str, object], words: str) -> None:
    instruction = ALL[name]
    good = next(iter(instruction.variants()))
    with pytest.raises(InstructionError) as caught:
        instruction.check(Variant({**good, **changes}))
    assert words in str(caught.value)


def test_offsets_of_im2col_follow_the_coordinates() -> None:
    instruction = ALL["tma.load_im2col"]
    good = next(v for v in instruction.variants() if v.mode == "im2col")
    bad = Variant(dict(good), good.given, {"coordinates": 4, "offsets": 1})
    with pytest.raises(InstructionError, match="with 4 coordinates takes 2 offsets, got 1"):
        instruction.check(bad)
