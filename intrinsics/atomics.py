"""atomics: read-modify-write on global and shared memory.

``atom`` returns the old value, ``red`` returns nothing and is cheaper. Both are relaxed at GPU
scope unless told otherwise; two operations are atomic towards each other only if each one's scope
includes the other thread. ``sem`` orders other accesses too; release beyond the CTA costs a
``MEMBAR.ALL.GPU``. Every function is executed by each thread on its own.

``type`` decides the arithmetic: f16 and bf16 travel as their bits. f32 ``add`` flushes subnormals
in global memory and not in shared memory, where it is a loop. The order of floating additions is
not fixed.

Not covered: an L2 policy for cas (ptxas refuses it), b128 exchange and compare-and-swap, generic
addresses, multicast addresses (multimem), and ``red.async`` to global memory.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from nbtc.intrinsics.sections import PARALLEL, TYPE_KINDS
from nbtc.ptx.kinds import (
    CLUSTER_KIND,
    GLOBAL_KIND,
    SHARED_KIND,
    U64,
    Global,
    Kind,
    Regs,
    chosen,
)
from nbtc.ptx.spec import Isa, Variant, ptx

Space = Literal["global", "shared::cta", "shared::cluster"]
Scope = Literal["", "cta", "cluster", "gpu", "sys"]
Type = Literal[
    "u32", "s32", "u64", "s64", "b32", "b64", "f32", "f64", "f16", "f16x2", "bf16", "bf16x2"
]

ATOM = PARALLEL + ": atom"
RED = PARALLEL + ": red"

_TYPES: dict[str, tuple[str, ...]] = {
    "add": ("u32", "s32", "u64", "f32", "f64", "f16", "f16x2", "bf16", "bf16x2"),
    "min": ("u32", "s32", "u64", "s64"),
    "max": ("u32", "s32", "u64", "s64"),
    "inc": ("u32",),
    "dec": ("u32",),
    "and": ("b32", "b64"),
    "or": ("b32", "b64"),
    "xor": ("b32", "b64"),
    "exch": ("b32", "b64"),
}
_SPACES = {"global": GLOBAL_KIND, "shared::cta": SHARED_KIND, "shared::cluster": CLUSTER_KIND}
_HALF = ("f16", "f16x2", "bf16", "bf16x2")


def _space(v: Variant) -> Kind:
    return _SPACES[v.space]


def _kind(v: Variant) -> Kind:
    return TYPE_KINDS[v.type]


def _count(v: Variant) -> int:
    return int(v.vec[1])


Address = Annotated[Any, chosen(_space, "an address in space")]
Value = Annotated[Any, chosen(_kind, "by type")]
Values = Annotated[Any, Regs(_kind, _count, note="2, 4 or 8 by vec")]


def _check(v: Variant) -> str | None:
    legal = _TYPES[v.op]
    if v.type not in legal:
        return f"op={v.op!r} with type={v.type!r}: {v.op} takes {', '.join(map(repr, legal))}"
    return _policy(v)


def _policy(v: Variant) -> str | None:
    if v.has("cache_policy") and v.space != "global":
        return f"cache_policy with space={v.space!r}: policies are for global memory"
    return None


def _isa(v: Variant) -> Isa:
    if v.scope == "cluster" or v.space != "global" or v.type.startswith("bf16"):
        return (7, 8)
    return (7, 4) if v.has("cache_policy") else (7, 0)


def _arch(v: Variant) -> str:
    newer = v.scope == "cluster" or v.space == "shared::cluster" or v.type.startswith("bf16")
    return "sm_90" if newer else "sm_80"


def _noftz(v: Variant) -> str:
    return ".noftz" if v.type in _HALF else ""


@ptx(
    lambda v: (
        "atom{.sem}{.scope}.{space}.{op}"
        + _noftz(v)
        + "{?cache_policy:.L2::cache_hint}.{type} {ret}, [{address}], {value}{, cache_policy};"
    ),
    isa=_isa,
    arch=_arch,
    check=_check,
    section=ATOM,
)
def atom(
    address: Address,
    value: Value,
    cache_policy: U64 | None = None,
    *,
    op: Literal["add", "min", "max", "inc", "dec", "and", "or", "xor", "exch"],
    type: Type = "u32",
    space: Space = "global",
    sem: Literal["", "relaxed", "acquire", "release", "acq_rel"] = "",
    scope: Scope = "",
) -> Value:
    """Combine ``value`` into memory and return what was there before.

    Args:
        address: aligned to the type.
        value: the operand. ``inc`` gives 0 once the old value reaches it, ``dec`` wraps to it.
        cache_policy: L2 policy, global memory only.
        op: the operation; ``exch`` replaces.
        type: PTX type.
        space: where ``address`` points.
        sem: relaxed by default.
        scope: GPU by default.

    Executes: each thread on its own.
    """
    ...


@ptx(
    "atom{.sem}{.scope}.{space}.cas.{type} {ret}, [{address}], {compare}, {value};",
    isa=_isa,
    arch=_arch,
    section=ATOM,
)
def cas(
    address: Address,
    compare: Value,
    value: Value,
    *,
    type: Literal["b16", "b32", "b64"] = "b32",
    space: Space = "global",
    sem: Literal["", "relaxed", "acquire", "release", "acq_rel"] = "",
    scope: Scope = "",
) -> Value:
    """Replace memory by ``value`` if it equals ``compare``; return what was there before.

    Args:
        address: aligned to the type.
        compare: expected bits.
        value: new bits.
        type: PTX type.
        space: where ``address`` points.
        sem: relaxed by default.
        scope: GPU by default.

    Executes: each thread on its own.
    """
    ...


@ptx(
    lambda v: (
        "red{.sem}{.scope}.{space}.{op}"
        + _noftz(v)
        + "{?cache_policy:.L2::cache_hint}.{type} [{address}], {value}{, cache_policy};"
    ),
    isa=_isa,
    arch=_arch,
    check=_check,
    section=RED,
)
def red(
    address: Address,
    value: Value,
    cache_policy: U64 | None = None,
    *,
    op: Literal["add", "min", "max", "inc", "dec", "and", "or", "xor"],
    type: Type = "u32",
    space: Space = "global",
    sem: Literal["", "relaxed", "release"] = "",
    scope: Scope = "",
) -> None:
    """Combine ``value`` into memory.

    A ``red`` followed by a fence is not an acquire; :func:`atom` is what a lock needs.

    Args:
        address: aligned to the type.
        value: the operand.
        cache_policy: L2 policy, global memory only.
        op: the operation.
        type: PTX type.
        space: where ``address`` points.
        sem: relaxed by default.
        scope: GPU by default.

    Executes: each thread on its own.
    """
    ...


VectorType = Literal["f32", "f16", "f16x2", "bf16", "bf16x2"]


def _vector_check(v: Variant) -> str | None:
    if v.type == "f32" and v.op != "add":
        return f"op={v.op!r} with type='f32': f32 takes 'add'"
    if v.vec == "v8" and v.type not in ("f16", "bf16"):
        return f"vec='v8' with type={v.type!r}: v8 takes 'f16' and 'bf16'"
    return None


@ptx(
    lambda v: (
        "red{.sem}{.scope}.global.{op}"
        + _noftz(v)
        + "{?cache_policy:.L2::cache_hint}.{vec}.{type} [{address}], {values}{, cache_policy};"
    ),
    isa=(8, 1),
    arch="sm_90",
    check=_vector_check,
    section=RED,
)
def red_vector(
    address: Global,
    values: Values,
    cache_policy: U64 | None = None,
    *,
    op: Literal["add", "min", "max"] = "add",
    type: VectorType = "f32",
    vec: Literal["v2", "v4", "v8"] = "v4",
    sem: Literal["", "relaxed", "release"] = "",
    scope: Scope = "",
) -> None:
    """Combine 2, 4 or 8 neighbouring values into global memory, each atomically.

    Args:
        address: aligned to the whole vector.
        values: a tuple.
        cache_policy: L2 policy.
        op: the operation; f32 has ``add`` only.
        type: PTX type of one element.
        vec: how many.
        sem: relaxed by default.
        scope: GPU by default.

    Executes: each thread on its own.
    """
    ...


@ptx(
    lambda v: (
        "atom{.sem}{.scope}.global.{op}"
        + _noftz(v)
        + "{?cache_policy:.L2::cache_hint}.{vec}.{type} "
        + "{ret}, [{address}], {values}{, cache_policy};"
    ),
    isa=(8, 1),
    arch="sm_90",
    check=_vector_check,
    section=ATOM,
)
def atom_vector(
    address: Global,
    values: Values,
    cache_policy: U64 | None = None,
    *,
    op: Literal["add", "min", "max"] = "add",
    type: VectorType = "f32",
    vec: Literal["v2", "v4", "v8"] = "v4",
    sem: Literal["", "relaxed", "acquire", "release", "acq_rel"] = "",
    scope: Scope = "",
) -> Values:
    """Combine 2, 4 or 8 neighbouring values, each atomically, and return the old ones.

    Args:
        address: aligned to the whole vector.
        values: a tuple.
        cache_policy: L2 policy.
        op: the operation; f32 has ``add`` only.
        type: PTX type of one element.
        vec: how many.
        sem: relaxed by default.
        scope: GPU by default.

    Executes: each thread on its own.
    """
    ...
