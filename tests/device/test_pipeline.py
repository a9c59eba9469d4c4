"""Pipeline state and rings: the laws of stage and parity, and rings that run on the emulator."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda
from numba.cuda.types import int32

import nbtc
from nbtc import shared
from nbtc.device import pipeline
from nbtc.errors import FindingsError, InstructionError
from nbtc.intrinsics import mbarrier


@pytest.fixture(autouse=True)
def _emulate(monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 7])
def test_states_follow_the_law(stages):
    """Step i is at stage i mod S; the parity of lap l is l & 1, for producers the other one."""
    steps = 3 * stages + 2

    @nbtc.jit
    def kernel(out):
        full, empty = pipeline.consumer_start(), pipeline.producer_start()
        for i in range(steps):
            out[i, 0], out[i, 1] = full.stage, full.parity
            out[i, 2], out[i, 3] = empty.stage, empty.parity
            full = pipeline.advance(full, stages)
            empty = pipeline.advance(empty, stages)

    out = np.zeros((steps, 4), np.int32)
    kernel[1, 1](out)
    for i, row in enumerate(out.tolist()):
        lap = i // stages
        assert row == [i % stages, lap & 1, i % stages, 1 - (lap & 1)]


def test_states_are_carried_through_branches_and_helpers():
    @nbtc.device
    def skip(state, times):
        for _ in range(times):
            state = pipeline.advance(state, 3)
        return state

    @nbtc.jit
    def kernel(out):
        state = pipeline.consumer_start()
        for i in range(10):
            state = skip(state, 2) if i % 2 else pipeline.advance(state, 3)
        out[0], out[1] = state.stage, state.parity

    out = np.zeros(2, np.int32)
    kernel[1, 1](out)
    assert out.tolist() == [15 % 3, 15 // 3 & 1]


def ring(stages, producer_starts=pipeline.producer_start, count=None):
    """Return a kernel in which one thread hands numbers to a warp through a ring of stages."""
    arrivals = 32 if count is None else count
    layout = shared.Layout(
        box=shared.array("int32", (stages,)),
        full=shared.barriers(stages),
        empty=shared.barriers(stages),
    )

    @nbtc.jit(shared=layout, launch_bounds=64)
    def kernel(source, out):
        thread = int32(cuda.threadIdx.x)
        if thread == 0:
            pipeline.init(layout.full, layout.empty, 1, arrivals)
        cuda.syncthreads()
        if thread == 32:
            state = producer_starts()
            for i in range(source.size):
                pipeline.wait(layout.empty[state.stage], state.parity)
                layout.box.array[state.stage] = source[i]
                mbarrier.arrive(layout.full[state.stage])
                state = pipeline.advance(state, stages)
        elif thread < 32:
            state = pipeline.consumer_start()
            for i in range(source.size):
                pipeline.wait(layout.full[state.stage], state.parity)
                out[i, thread] = layout.box.array[state.stage]
                mbarrier.arrive(layout.empty[state.stage])
                state = pipeline.advance(state, stages)

    return kernel


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_a_ring_hands_over_every_value(stages):
    source = np.arange(100, 111, dtype=np.int32)
    out = np.zeros((11, 32), np.int32)
    ring(stages)[1, 64](source, out)
    assert (out == source[:, None]).all()


def test_a_producer_that_starts_like_a_consumer_deadlocks():
    kernel = ring(2, producer_starts=pipeline.consumer_start)
    with pytest.raises(FindingsError, match=r"deadlock.*empty\[0\]"):
        kernel[1, 64](np.arange(5, dtype=np.int32), np.zeros((5, 32), np.int32))


def test_a_count_that_does_not_fit_is_found():
    with pytest.raises(FindingsError, match=r"empty\[0\]"):
        ring(2, count=33)[1, 64](np.arange(5, dtype=np.int32), np.zeros((5, 32), np.int32))


layout = shared.Layout(
    full=shared.barriers(2), empty=shared.barriers(3), data=shared.array("float32", (4,))
)


def unequal(out):
    pipeline.init(layout.full, layout.empty, 1, 1)


def no_barriers(out):
    pipeline.init(layout.full, layout.data, 1, 1)


def one_barrier(out):
    pipeline.init(layout.full[0], layout.full, 1, 1)


def wide_count(out):
    pipeline.init(layout.full, layout.full, 1, out.size)


def no_arrivals(out):
    pipeline.init(layout.full, layout.full, 1, 0)


def no_state(out):
    pipeline.advance(3, 2)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (unequal, "2 full and 3 empty barriers; a ring has one of each per stage"),
        (no_barriers, "empty is .*needs barriers of a shared layout"),
        (one_barrier, "full is shared_address, needs barriers"),
        (wide_count, "consumers is int64, needs int32 or uint32"),
        (no_arrivals, "count must be 1..1048575, got 0"),
        (no_state, "state is .*needs a PipelineState"),
    ],
)
def test_wrong_arguments(function, text):
    with pytest.raises(InstructionError, match=text):
        nbtc.jit(shared=layout)(function).compile("float32[::1]", arch="sm_90a")


def test_a_lap_later_is_the_same_stage_with_the_other_parity(monkeypatch):
    monkeypatch.setenv("NBTC_EMULATE", "1")

    @nbtc.jit
    def kernel(out):
        state = pipeline.advance(pipeline.consumer_start(), 4)
        later = pipeline.advance_lap(state)
        out[0], out[1], out[2] = later.stage, later.parity, pipeline.advance_lap(later).parity

    out = np.full(3, -1, np.int32)
    kernel[1, 1](out)
    assert out.tolist() == [1, 1, 0]

    @nbtc.jit
    def wrong(out):
        out[0] = pipeline.advance_lap(out[0]).stage

    with pytest.raises(InstructionError, match=r"advance_lap: state is int32, needs a Pipeline"):
        wrong.compile("int32[::1]", arch="sm_90a")
