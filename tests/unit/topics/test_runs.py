"""Tests of sets of offsets as runs, compared with Python's sets."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import Damaged, NewerFormat
from headrace.objects import packed
from headrace.topics.runs import NONE, Runs, RunsObject

OFFSETS = st.integers(0, 60)
SETS = st.sets(OFFSETS, max_size=40)


def runs_of(offsets: set[int]) -> Runs:
    return Runs.of_offsets(offsets)


def members(runs: Runs) -> set[int]:
    return {offset for first, end in runs for offset in range(first, end)}


@given(SETS)
def test_runs_are_a_set(offsets: set[int]) -> None:
    runs = runs_of(offsets)
    assert members(runs) == offsets
    assert runs.count_all == len(offsets)
    assert runs.end == max(offsets, default=-1) + 1
    assert [offset in runs for offset in range(62)] == [offset in offsets for offset in range(62)]
    assert all(end < first for (_, end), (first, _) in zip(list(runs), list(runs)[1:], strict=False)), "runs touch"


@given(st.lists(st.tuples(OFFSETS, OFFSETS), max_size=12))
def test_pairs_may_overlap_and_be_empty(pairs: list[tuple[int, int]]) -> None:
    assert members(Runs.of(pairs)) == {offset for first, end in pairs for offset in range(first, end)}


@given(SETS, SETS)
def test_union_minus_and_common(one: set[int], other: set[int]) -> None:
    a, b = runs_of(one), runs_of(other)
    assert a.union(b) == runs_of(one | other) == b.union(a)
    assert a.minus(b) == runs_of(one - other)
    assert a.common(b) == runs_of(one & other)


@given(SETS, OFFSETS, OFFSETS)
def test_ranges(offsets: set[int], first: int, end: int) -> None:
    runs = runs_of(offsets)
    inside = set(range(first, end))
    assert runs.count(first, end) == len(offsets & inside)
    assert runs.within(first, end) == runs_of(offsets & inside)
    assert runs.above(first) == runs_of({offset for offset in offsets if offset >= first})
    assert runs.add(first, end) == runs_of(offsets | inside)
    assert runs.count_below(first) == len({offset for offset in offsets if offset < first})
    assert runs.live_end(end) == max((offset + 1 for offset in range(end) if offset not in offsets), default=0)
    live = {offset for low, high in runs.live_runs(first, end) for offset in range(low, high)}
    assert live == inside - offsets


@given(SETS, OFFSETS, st.integers(0, 70))
def test_the_nth_live_offset(offsets: set[int], first: int, n: int) -> None:
    live = [offset for offset in range(first, 200) if offset not in offsets]
    assert runs_of(offsets).live_at(first, n) == live[n]


@given(SETS)
def test_encodings_come_back(offsets: set[int]) -> None:
    runs = runs_of(offsets)
    assert Runs.of_flat(runs.flat()) == runs
    assert Runs.decode(runs.encode(), "o") == runs
    assert hash(Runs.of_flat(runs.flat())) == hash(runs)
    assert runs.encode() == Runs.decode(runs.encode(), "o").encode()


@pytest.mark.parametrize("steps", [[1], [0, 0], [3, -1], [2, 1, 0, 1], [1, 2**63]])
def test_impossible_steps_are_damage(steps: list[int]) -> None:
    with pytest.raises(Damaged, match="object=o"):
        Runs.decode(packed.encode_msgpack(RunsObject(steps)), "o")


def test_a_newer_release_is_not_read() -> None:
    with pytest.raises(NewerFormat):
        Runs.decode(packed.encode_msgpack(RunsObject([], version=packed.VERSION + 1)), "o")


def test_few_runs_join_many_in_time_of_the_few() -> None:
    many = Runs.of((4 * n, 4 * n + 2) for n in range(300_000))
    assert len(Runs.decode(many.encode(), "o")) == 300_000
    began = time.perf_counter()
    for n in range(50):
        many = many.add(8 * n + 2, 8 * n + 4)
    assert time.perf_counter() - began < 1.0, "each union copies arrays; it must not walk them"
    assert len(many) == 300_000 - 50


def test_nothing() -> None:
    assert not NONE
    assert NONE.live_at(7, 3) == 10
    assert NONE.union(NONE) == NONE == Runs.of([(3, 3)])
    assert repr(Runs.of([(1, 3)])) == "Runs([(1, 3)])"
