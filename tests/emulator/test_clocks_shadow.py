"""Clocks, proxy-fence log and shadow memory, against a byte-by-byte model."""

from __future__ import annotations

import random

import numpy as np
import pytest

from nbtc.emulator.clocks import (
    ORDER,
    PROXY,
    UNINITIALISED,
    Access,
    AccessTable,
    FenceLog,
    conflict,
    happened,
    join,
)
from nbtc.emulator.shadow import PAGE, ByteShadow, PagedShadow


def test_join_keeps_the_larger_time():
    clock = {1: 4, 2: 1}
    join(clock, {1: 2, 2: 7, 3: 1})
    assert clock == {1: 4, 2: 7, 3: 1}


def test_access_without_time_has_not_happened():
    access = Access(3, None, write=True)
    assert not happened(access, {3: 1000})
    access.time = 5
    assert not happened(access, {3: 4})
    assert happened(access, {3: 5})


def test_fence_must_follow_the_write_and_be_known():
    log = FenceLog()
    log.add(6, 0x0F)
    log.add(8, 0xF0)
    assert log.uncovered(0xFF, 5, 8) == 0
    assert log.uncovered(0xFF, 5, 7) == 0xF0
    assert log.uncovered(0xFF, 6, 8) == 0x0F
    assert log.uncovered(0x01, 6, 100) == 0x01


def test_proxy_conflict_only_for_ordered_generic_writes():
    log = FenceLog()
    old = Access(1, 3, write=True, lanes=0b11, fences=log)
    tma = Access(9, None, write=False, is_async=True)
    assert conflict(old, tma, {1: 2}) == ORDER
    assert conflict(old, tma, {1: 5}) == PROXY
    log.add(4, 0b01)
    assert conflict(old, tma, {1: 5}) == PROXY
    log.add(4, 0b10)
    assert conflict(old, tma, {1: 5}) is None
    assert conflict(old, tma, {1: 3}) == PROXY


@pytest.fixture
def table():
    return AccessTable()


def access(table, agent, time, *, write, **more):
    new = Access(agent, time, write=write, **more)
    table.add(new)
    return new


def test_concurrent_readers_are_all_kept(table):
    shadow = PagedShadow(4096, table)
    writer = access(table, 1, 1, write=True)
    assert shadow.span(0, 1024, writer, {1: 1}) == []
    first = access(table, 2, 1, write=False)
    second = access(table, 3, 1, write=False)
    assert shadow.span(0, 1024, first, {1: 1, 2: 1}) == []
    assert shadow.span(0, 1024, second, {1: 1, 3: 1}) == []
    again = access(table, 1, 2, write=True)
    found = shadow.span(512, 768, again, {1: 2, 2: 1})
    assert found == [(second, ORDER)]


def test_reader_ordered_before_a_later_reader_is_dropped(table):
    shadow = PagedShadow(1024, table)
    shadow.span(0, 512, access(table, 1, 1, write=True), {1: 1})
    shadow.span(0, 512, access(table, 2, 1, write=False), {1: 1, 2: 1})
    last = access(table, 3, 1, write=False)
    shadow.span(0, 512, last, {1: 1, 2: 1, 3: 1})
    found = shadow.span(0, 512, access(table, 1, 2, write=True), {1: 2})
    assert found == [(last, ORDER)]


def test_poison_of_shared_memory(table):
    shadow = PagedShadow(1024, table)
    shadow.span(0, 100, access(table, 1, 1, write=True), {1: 1})
    reader = access(table, 1, 1, write=False)
    assert shadow.span(0, 100, reader, {1: 1}) == []
    assert [why for _, why in shadow.span(96, 104, reader, {1: 1})] == [UNINITIALISED]


def test_atomics_do_not_race_with_each_other(table):
    shadow = ByteShadow(64, table)
    one = access(table, 1, 1, write=True, strong=True)
    two = access(table, 2, 1, write=True, strong=True)
    plain = access(table, 3, 1, write=False)
    assert shadow.span(0, 4, one, {1: 1}) == []
    assert shadow.span(0, 4, two, {2: 1}) == []
    assert shadow.span(0, 4, plain, {3: 1}) == [(two, ORDER)]


def test_box_of_global_memory_touches_only_its_rows(table):
    shadow = ByteShadow(4096, table)
    one = access(table, 1, 1, write=True)
    two = access(table, 2, 1, write=True)
    assert shadow.box(0, 8, 64, 32, one, {1: 1}) == []
    assert shadow.box(32, 8, 64, 32, two, {2: 1}) == []
    three = access(table, 3, 1, write=True)
    found = shadow.box(31, 2, 64, 2, three, {3: 1})
    assert {old.agent for old, _ in found} == {1, 2}


class Model:
    """Byte-by-byte reference: last write and reads since, no interning, no pages."""

    def __init__(self, size):
        self.writer = [None] * size
        self.readers = [set() for _ in range(size)]

    def apply(self, places, new, clock):
        found = set()
        for place in places:
            old = self.writer[place]
            if old is not None and not happened(old, clock):
                found.add(old.number)
            if new.write:
                found |= {r.number for r in self.readers[place] if not happened(r, clock)}
                self.writer[place] = new
                self.readers[place] = set()
            else:
                self.readers[place].add(new)
        return found


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", [ByteShadow, PagedShadow])
def test_shadow_equals_the_byte_model(seed, kind):
    rng = random.Random(seed)
    size = 6 * PAGE
    table = AccessTable()
    shadow, model = kind(size, table), Model(size)
    shadow.poison = False
    clocks = {agent: {agent: 1} for agent in (1, 2, 3)}
    for _ in range(300):
        agent = rng.choice((1, 2, 3))
        clock = clocks[agent]
        if rng.random() < 0.3:
            other = rng.choice((1, 2, 3))
            join(clock, clocks[other])
            clocks[other][other] += 1
        new = access(table, agent, clock[agent], write=rng.random() < 0.5)
        form = rng.randrange(4)
        if form == 0:
            low, high = sorted(rng.sample(range(7), 2))
            low, high = low * PAGE, high * PAGE
            places = range(low, high)
            found = shadow.span(low, high, new, clock)
        elif form == 1:
            low, high = sorted(rng.sample(range(size), 2))
            places = range(low, high)
            found = shadow.span(low, high, new, clock)
        elif form == 2:
            width = rng.choice((1, 2, 4, 8, 16))
            where = np.array([rng.randrange(size // width) * width for _ in range(32)])
            places = sorted({int(w) + i for w in where for i in range(width)})
            found = shadow.lanes(where, width, new, clock)
        else:
            base, rows, pitch, width = rng.randrange(64), rng.randrange(1, 9), 128, 48
            places = [base + r * pitch + i for r in range(rows) for i in range(width)]
            found = shadow.box(base, rows, pitch, width, new, clock)
        expected = model.apply(places, new, clock)
        # A reader ordered before a later reader may be dropped: it is implied by the later one.
        got = {old.number for old, _ in found}
        assert got <= expected
        assert bool(got) == bool(expected)
