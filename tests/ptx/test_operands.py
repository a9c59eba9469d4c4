"""Which Numba types each kind of operand takes, and that conversions keep the value."""

from __future__ import annotations

import numpy as np
import pytest
from numba.cuda import types

import nbtc
from nbtc.errors import InstructionError
from nbtc.intrinsics import sync
from nbtc.ptx import kinds
from nbtc.ptx.operands import binding_problem, check_operand
from nbtc.ptx.types_numba import BY_SPACE, DESCRIPTOR90, DESCRIPTOR100, SHARED, TENSOR_MAP

U16, U32, U64 = kinds.U16_KIND, kinds.U32_KIND, kinds.U64_KIND
ARRAY = types.Array(types.float32, 1, "C")


def accepted(kind, ty):
    try:
        check_operand("x: operand", kind, ty)
    except InstructionError as error:
        return not str(error).startswith("x: operand ")
    return True


INTEGERS = [
    types.int8, types.uint8, types.int16, types.uint16, types.int32, types.uint32, types.int64,
    types.uint64,
]  # fmt: skip


@pytest.mark.parametrize("kind", [U16, U32, U64, kinds.S32_KIND], ids=lambda kind: kind.name)
def test_integers_are_never_cut(kind):
    for ty in INTEGERS:
        assert accepted(kind, ty) == (ty.bitwidth <= kind.bits)
    assert accepted(kind, types.boolean)
    for ty in (types.float32, types.float64, ARRAY, types.none, types.unicode_type):
        assert not accepted(kind, ty)


@pytest.mark.parametrize("kind", [U16, U32, U64], ids=lambda kind: kind.name)
def test_literals_fit_by_value(kind):
    top = 1 << kind.bits
    for value in (0, 1, top - 1, -(top // 2), -1):
        assert accepted(kind, types.literal(value))
    if kind is U64:
        return  # Numba has no wider literals
    for value in (top, -(top // 2) - 1):
        with pytest.raises(InstructionError, match=f"is {value}, which does not fit in"):
            check_operand("x: n", kind, types.literal(value))


def test_the_cure_names_the_signedness_of_the_operand():
    with pytest.raises(InstructionError, match=r"wrap it as uint32\(\.\.\.\)"):
        check_operand("x: n", U32, types.uint64)
    with pytest.raises(InstructionError, match=r"wrap it as int32\(\.\.\.\)"):
        check_operand("x: n", U32, types.int64)
    with pytest.raises(InstructionError, match=r"wrap it as int32\(\.\.\.\)"):
        check_operand("x: n", kinds.S32_KIND, types.int64)


def test_floats_and_predicates():
    for ty in (types.float32, types.float64, types.literal(3)):
        assert accepted(kinds.F32_KIND, ty)
    assert not accepted(kinds.F32_KIND, types.int32)
    predicate = kinds.PRED_KIND
    for ty in (types.boolean, types.literal(0), types.literal(1), types.literal(True)):
        assert accepted(predicate, ty)
    for ty in (types.literal(2), types.int32, types.float32):
        assert not accepted(predicate, ty)


ADDRESSES = {
    "shared": kinds.SHARED_KIND, "cluster": kinds.CLUSTER_KIND, "tmem": kinds.TMEM_KIND,
    "descriptor_sm90": kinds.DESC90_KIND, "descriptor_sm100": kinds.DESC100_KIND,
}  # fmt: skip


@pytest.mark.parametrize("wanted", ADDRESSES)
@pytest.mark.parametrize("given", ADDRESSES)
def test_addresses_are_types_of_their_own(wanted, given):
    fits = wanted == given or (wanted, given) == ("cluster", "shared")
    assert accepted(ADDRESSES[wanted], BY_SPACE[given]) == fits


@pytest.mark.parametrize("wanted", ADDRESSES)
def test_numbers_are_no_addresses(wanted):
    for ty in (types.int32, types.uint64, types.literal(0), types.float32):
        with pytest.raises(InstructionError, match=rf"address\.{wanted}\(\.\.\.\)"):
            check_operand("x: a", ADDRESSES[wanted], ty)


@pytest.mark.parametrize(
    ("kind", "ty", "text"),
    [
        (kinds.SHARED_KIND, BY_SPACE["cluster"], "a remote mbarrier takes only the remote arrive"),
        (kinds.DESC90_KIND, DESCRIPTOR100, "build it for sm_90"),
        (kinds.DESC100_KIND, DESCRIPTOR90, "build it for sm_100"),
        (kinds.DESC100_KIND, BY_SPACE["tmem"], "B must be in shared memory"),
        (kinds.TENSOR_MAP_KIND, ARRAY, r"pass nbtc\.TensorMap\.tiled"),
        (kinds.TENSOR_MAP_KIND, SHARED, "needs a TensorMap argument"),
        (U32, SHARED, r"write address\.bits\(\.\.\.\)"),
        (U64, DESCRIPTOR90, r"write address\.bits\(\.\.\.\)"),
    ],
)
def test_mix_ups_say_what_to_write(kind, ty, text):
    with pytest.raises(InstructionError, match=text):
        check_operand("x: a", kind, ty)


def test_arrays_and_maps_as_addresses():
    for name in ("global", "generic"):
        kind = next(k for k in vars(kinds).values() if isinstance(k, kinds.Kind) and k.name == name)
        assert accepted(kind, ARRAY)
        assert accepted(kind, types.uint64)
        assert not accepted(kind, types.uint32)
        assert accepted(kind, TENSOR_MAP) == (name == "generic")
    assert accepted(kinds.SHARED_KIND, ARRAY)
    assert not accepted(kinds.TMEM_KIND, ARRAY)


def test_keywords_that_do_not_exist_are_named():
    signature = nbtc.intrinsics.mbarrier.init.written_signature
    assert binding_problem(signature, ["bar", "number"], "missing") == "no parameter 'number'"
    assert binding_problem(signature, ["bar"], "missing") == "missing"


@pytest.mark.parametrize("ty", INTEGERS[:6], ids=str)
def test_conversions_keep_the_value(ty, monkeypatch):
    """A warp reduction takes and gives uint32: sign-extended or zero-extended from the source."""
    monkeypatch.setenv("NBTC_EMULATE", "1")
    name = str(ty)

    @nbtc.jit(launch_bounds=32)
    def kernel(source, out):
        value = source[0]
        out[0] = sync.redux(value, op="min", type="u32")

    lowest = np.array([np.iinfo(name).min or 5], name)
    out = np.zeros(1, np.uint32)
    kernel[1, 32](lowest, out)
    assert int(out[0]) == int(lowest[0]) % 2**32
