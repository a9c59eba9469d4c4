"""A pipeline's place in its ring: stage and parity in one value that is carried, never reset.

A fresh mbarrier is in phase 0: waiting for parity 1 passes at once, waiting for parity 0 blocks.
So the consumer of a ring starts at parity 0 (it waits for the first fill), the producer at parity 1
(the first lap's stages are free). Both then advance by one stage at a time; the parity flips when
the stage wraps, also across output tiles of a persistent kernel.

.. code-block:: python

    state = pipeline.producer_start()
    for tile in ...:
        for k in range(k_blocks):
            pipeline.wait(layout.empty[state.stage], state.parity)
            ...
            state = pipeline.advance(state, STAGES)
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.cuda import types
from numba.cuda.cudadecl import registry as typing_registry
from numba.cuda.cudaimpl import registry as lowering_registry
from numba.cuda.datamodel import models
from numba.cuda.extending import register_model
from numba.cuda.typing.templates import AttributeTemplate

from nbtc.errors import InstructionError
from nbtc.intrinsics import cluster, fence, mbarrier
from nbtc.jit import device
from nbtc.ptx import kinds
from nbtc.ptx.operands import check_operand
from nbtc.ptx.staging import Emitter, Value, staged


class PipelineStateType(types.Type):
    """Numba type of a pipeline state: stage and parity, two 32-bit registers."""

    def __init__(self) -> None:
        super().__init__("PipelineState")


STATE = PipelineStateType()


class _StateModel(models.StructModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, [("stage", types.uint32), ("parity", types.uint32)])


register_model(PipelineStateType)(_StateModel)
_FIELDS = ("stage", "parity")


@typing_registry.register_attr
class _StateAttributes(AttributeTemplate):
    key = PipelineStateType

    def generic_resolve(self, typ: Any, attr: str) -> Any:
        if attr not in _FIELDS:
            raise InstructionError(f"PipelineState has no {attr!r}; it has stage and parity")
        return types.uint32


@lowering_registry.lower_getattr_generic(PipelineStateType)
def _get_field(context: Any, builder: Any, typ: Any, value: Any, attr: str) -> Any:
    return builder.extract_value(value, _FIELDS.index(attr))


@lowering_registry.lower_setattr_generic(PipelineStateType)
def _set_field(context: Any, builder: Any, sig: Any, args: Any, attr: str) -> Any:
    raise InstructionError(
        f"state.{attr} = ...: a pipeline state is a value: state = pipeline.advance(state, STAGES)"
    )


def _state(e: Emitter, stage: Any, parity: Any) -> Value:
    struct = ir.Constant(e.context.get_value_type(STATE), ir.Undefined)
    struct = e.builder.insert_value(struct, stage, 0)
    return Value(e, STATE, e.builder.insert_value(struct, parity, 1))


@staged(lambda: STATE)
def consumer_start(e: Emitter) -> Any:
    """Return the state of a consumer before its first wait: stage 0, parity 0."""
    return _state(e, e.word(0), e.word(0))


@staged(lambda: STATE)
def producer_start(e: Emitter) -> Any:
    """Return the state of a producer before its first wait: stage 0, parity 1."""
    return _state(e, e.word(0), e.word(1))


def _returns_advance(state: Any, stages: Any) -> Any:
    if not isinstance(state, PipelineStateType):
        raise InstructionError(f"pipeline.advance: state is {state}, needs a PipelineState")
    if not isinstance(stages, int) or stages < 1:
        raise InstructionError(f"pipeline.advance: stages={stages!r}; must be an integer >= 1")
    return STATE


@staged(_returns_advance, constants=("stages",))
def advance(e: Emitter, state: Any, stages: int) -> Any:
    """Return the state of the next stage; the parity flips when the stage wraps to 0.

    Args:
        e: given by the compiler.
        state: a pipeline state.
        stages: number of stages of the ring, a compile-time constant.
    """
    stage = e.builder.extract_value(state.llvm, 0)
    parity = e.builder.extract_value(state.llvm, 1)
    following = e.builder.add(stage, e.word(1))
    wraps = e.builder.icmp_unsigned("==", following, e.word(stages))
    flipped = e.builder.xor(parity, e.builder.zext(wraps, ir.IntType(32)))
    return _state(e, e.builder.select(wraps, e.word(0), following), flipped)


def _returns_advance_lap(state: Any) -> Any:
    if not isinstance(state, PipelineStateType):
        raise InstructionError(f"pipeline.advance_lap: state is {state}, needs a PipelineState")
    return STATE


@staged(_returns_advance_lap)
def advance_lap(e: Emitter, state: Any) -> Any:
    """Return the state one whole lap later: the same stage, the parity flipped.

    Args:
        e: given by the compiler.
        state: a pipeline state.
    """
    stage = e.builder.extract_value(state.llvm, 0)
    parity = e.builder.extract_value(state.llvm, 1)
    return _state(e, stage, e.builder.xor(parity, e.word(1)))


@device
def wait(bar, parity):
    """Wait until the phase of ``parity`` of an mbarrier has completed.

    Executed by each thread for itself. On return, everything ordered before the phase's arrivals
    (CTA scope) and every copy counted in it is visible.

    Args:
        bar: shared::cta address of the mbarrier.
        parity: 0 or 1, a 32-bit value.
    """
    while not mbarrier.try_wait_parity(bar, parity):
        pass


def _stages_of(name: str, piece: Any, function: str = "init") -> int:
    description = getattr(piece, "piece", None)
    if description is None or not description.is_barrier or description.stages is None:
        raise InstructionError(
            f"pipeline.{function}: {name} is {piece}, needs barriers of a shared layout "
            f"(layout.{name}, made by shared.barriers) without an index"
        )
    return description.stages


def _returns_init(full: Any, empty: Any, producers: Any, consumers: Any) -> Any:
    stages = _stages_of("full", full), _stages_of("empty", empty)
    if stages[0] != stages[1]:
        raise InstructionError(
            f"pipeline.init: {stages[0]} full and {stages[1]} empty barriers; a ring has one of "
            "each per stage"
        )
    for name, count in (("producers", producers), ("consumers", consumers)):
        check_operand(f"pipeline.init: {name}", kinds.U32_KIND, count)
    return types.none


@staged(_returns_init)
def init(e: Emitter, full: Any, empty: Any, producers: Any, consumers: Any) -> None:
    """Initialise the barriers of a ring and make that visible to the TMA unit and the cluster.

    Executed by one thread; a barrier of the block (or of the cluster) follows before any use.

    Args:
        e: given by the compiler.
        full: barriers of a shared layout, one per stage.
        empty: likewise.
        producers: arrivals that fill a stage, 1 where one thread starts the copies of TMA.
        consumers: arrivals that empty a stage, those of all blocks that its data went to.
    """
    stride = full.type.piece.stride, empty.type.piece.stride
    for stage in range(full.type.piece.stages):
        e.call(mbarrier.init, full + stage * stride[0], producers)
        e.call(mbarrier.init, empty + stage * stride[1], consumers)
    e.call(fence.mbarrier_init)


@device
def acquire(full, empty, state, tx_bytes):
    """Wait until a stage is empty, expect its bytes, and return its full barrier for the copies.

    Executed by the one thread that starts the copies.

    Args:
        full: barriers of the ring, ``layout.full``.
        empty: barriers of the ring, ``layout.empty``.
        state: the producer's pipeline state.
        tx_bytes: bytes of all copies into this block's stage; whole boxes, also over the edge.
    """
    bar = full[state.stage]
    wait(empty[state.stage], state.parity)
    mbarrier.arrive_expect_tx(bar, tx_bytes)
    return bar


@device
def release(bar, thread, blocks):
    """Arrive once on an empty barrier of each block of the cluster: thread i tells block i.

    Executed by all threads of a warpgroup (or by at least ``blocks`` of them), after the last read
    of the stage: for wgmma, after the ``wait_group`` that covers it.

    Args:
        bar: the stage's barrier, ``layout.empty[stage]``; the same offset in every block.
        thread: number of the thread among those that call, a 32-bit value.
        blocks: blocks of the cluster.
    """
    if thread < blocks:
        mbarrier.arrive_remote(cluster.mapa(bar, thread))


def _returns_drain(empty: Any, state: Any) -> Any:
    _stages_of("empty", empty, "drain")
    if not isinstance(state, PipelineStateType):
        raise InstructionError(f"pipeline.drain: state is {state}, needs a PipelineState")
    return types.none


@staged(_returns_drain)
def drain(e: Emitter, empty: Any, state: Any) -> None:
    """Wait until every stage of a ring that was filled is empty again: the producer's tail.

    Executed by the thread that fills the ring, after its last stage, where other blocks of the
    cluster arrive on ``empty``: such an arrival must find this block alive, and a relaxed cluster
    barrier does not wait for it.

    Args:
        e: given by the compiler.
        empty: barriers of the ring, ``layout.empty``.
        state: the producer's pipeline state, behind the last stage that it filled.
    """
    piece = empty.type.piece
    for _ in range(piece.stages):
        stage = Value(e, types.uint32, e.builder.extract_value(state.llvm, 0))
        parity = Value(e, types.uint32, e.builder.extract_value(state.llvm, 1))
        e.call_device(wait, empty + stage * piece.stride, parity)
        state = e.inline(advance, state, piece.stages)
