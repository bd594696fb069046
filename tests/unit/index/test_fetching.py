"""Routines in step, and the cache that they are fetched through."""

from __future__ import annotations

import threading
from collections.abc import Generator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import Damaged
from headrace.index import fetching
from headrace.index.fetching import CachedRanges, FetchStats, Routine, join_neighbours
from headrace.objects import ObjectMissing, Range
from headrace.objects.memory import MemoryObjects
from tests.support.examples import examples

BODY = bytes(range(256)) * 1000


class _Rounds(MemoryObjects):
    """Remembers each round."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds: list[list[Range]] = []
        self.put("k", BODY)

    def get_ranges(self, ranges: Any, /) -> list[bytes]:
        self.rounds.append(list(ranges))
        return super().get_ranges(ranges)


def _steps(*sizes: int) -> Routine[list[int]]:
    """Asks for as many ranges as each size says, and ends with how many it was sent."""
    found = []
    for number, size in enumerate(sizes):
        sent = yield [Range("k", number, 1 + at) for at in range(size)]
        assert [len(one) for one in sent] == [1 + at for at in range(size)]
        found.append(len(sent))
    return found


@given(shapes=st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=5))
def test_routines_share_their_rounds(shapes: list[list[int]]) -> None:
    objects = _Rounds()
    assert fetching.run(fetching.gather([_steps(*shape) for shape in shapes]), objects) == shapes
    rounds = max(map(len, shapes), default=0)
    asked = [sum(shape[number] for shape in shapes if number < len(shape)) for number in range(rounds)]
    assert [len(one) for one in objects.rounds] == [count for count in asked if count]


def test_gathered_routines_can_be_gathered() -> None:
    objects = _Rounds()
    inner = [fetching.gather([_steps(1, 2), _steps(1)]), fetching.gather([_steps(3)])]
    assert fetching.run(fetching.gather(inner), objects) == [[[1, 2], [1]], [[3]]]
    assert [len(one) for one in objects.rounds] == [5, 2]


def test_a_routine_that_fails_ends_the_others() -> None:
    ended = []

    def endless() -> Generator[list[Range], list[bytes], None]:
        try:
            while True:
                yield [Range("k", 0, 1)]
        finally:
            ended.append(True)

    def failing() -> Generator[list[Range], list[bytes], None]:
        yield [Range("k", 0, 1)]
        raise Damaged("no")

    with pytest.raises(Damaged):
        fetching.run(fetching.gather([endless(), failing(), endless()]), _Rounds())
    assert ended == [True, True]


def test_a_missing_object_is_damage_with_its_name() -> None:
    def reading() -> Generator[list[Range], list[bytes], None]:
        yield [Range("lost", 0, 1)]

    with pytest.raises(Damaged, match="lost"):
        fetching.run(reading(), MemoryObjects())


ranges = st.lists(
    st.builds(Range, st.sampled_from("ab"), st.integers(0, 400_000), st.integers(1, 100_000)), max_size=12
)


@given(asked=ranges)
def test_joined_ranges_hold_what_was_asked_and_little_more(asked: list[Range]) -> None:
    found = join_neighbours(asked)
    assert sorted(one for _, members in found for one in members) == sorted(asked)
    for whole, members in found:
        assert whole.start == min(one.start for one in members)
        assert whole.start + whole.length == max(one.start + one.length for one in members)
        assert {one.key for one in members} == {whole.key}
    for (before, _), (behind, _) in pairwise(found):
        is_far = behind.start - before.start - before.length > fetching._GAP
        assert before.key != behind.key or is_far


def test_ranges_are_not_joined_without_end() -> None:
    found = join_neighbours([Range("k", number << 20, 1 << 20) for number in range(20)])
    assert max(whole.length for whole, _ in found) == fetching._LARGEST


@examples(60)
@given(rounds=st.lists(ranges, max_size=5), memory=st.sampled_from([0, 150_000, 10**9]))
def test_the_cache_says_what_the_store_says(rounds: list[list[Range]], memory: int) -> None:
    objects = MemoryObjects()
    objects.put("a", BODY)
    objects.put("b", BODY[::-1])
    shared = CachedRanges(objects, memory_bytes=memory)
    for asked in rounds:
        assert shared.fetches().get_ranges(asked) == objects.get_ranges(asked)
    assert sum(kept.weight for kept in shared._memory._values.values()) == shared._memory._weight <= memory


def test_what_is_kept_is_not_fetched_again_and_counted() -> None:
    objects = _Rounds()
    times = iter(range(100))
    shared = CachedRanges(objects, monotonic=lambda: next(times))
    asked = [Range("k", 0, 10), Range("k", 5000, 10), Range("k", 200_000, 10)]
    fetches = shared.fetches()
    fetches.get_ranges(asked)
    assert fetches.stats == FetchStats(rounds=1, gets=2, bytes=5010 + 10, wait_s=1)
    fetches.get_ranges([*asked[:2], asked[0]])
    assert fetches.stats == FetchStats(rounds=1, gets=2, bytes=5020, memory_hits=2, wait_s=1)
    assert len(objects.rounds) == 1
    assert shared.fetches().stats == FetchStats()


def test_what_leaves_memory_goes_to_the_directory(tmp_path: Path) -> None:
    (tmp_path / "left.range").write_bytes(b"of another process")
    objects = _Rounds()
    shared = CachedRanges(objects, memory_bytes=25, directory=tmp_path, directory_bytes=35)
    asked = [Range("k", number * 150_000, 10) for number in range(2)] + [
        Range("k", number, 10) for number in range(4)
    ]
    for one in asked:
        shared.fetches().get_ranges([one])
    assert len(list(tmp_path.iterdir())) == 3  # 60 bytes: 20 in memory, 30 here, and one forgotten
    fetches = shared.fetches()
    assert fetches.get_ranges(asked) == [BODY[one.start : one.start + 10] for one in asked]
    assert (fetches.stats.memory_hits, fetches.stats.directory_hits, fetches.stats.gets) != (0, 0, 0)
    assert fetches.stats.memory_hits + fetches.stats.directory_hits < 6


def test_a_file_that_was_altered_is_not_taken(tmp_path: Path) -> None:
    objects = _Rounds()
    shared = CachedRanges(objects, memory_bytes=10, directory=tmp_path, directory_bytes=1000)
    asked = [Range("k", number, 10) for number in range(3)]
    for one in asked:
        shared.fetches().get_ranges([one])
    for file in tmp_path.iterdir():
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert shared.fetches().get_ranges(asked) == [BODY[one.start : one.start + 10] for one in asked]
    for file in tmp_path.iterdir():
        file.unlink()
    assert shared.fetches().get_ranges(asked) == [BODY[one.start : one.start + 10] for one in asked]


def test_short_answers_are_not_kept() -> None:
    objects = _Rounds()
    shared = CachedRanges(objects)
    for _ in range(2):
        assert shared.fetches().get_ranges([Range("k", len(BODY) - 3, 10)]) == [BODY[-3:]]
    assert len(objects.rounds) == 2
    with pytest.raises(ObjectMissing):
        shared.fetches().get_ranges([Range("none", 0, 1)])


def test_many_threads_share_a_cache(tmp_path: Path) -> None:
    objects = MemoryObjects()
    objects.put("k", BODY)
    shared = CachedRanges(objects, memory_bytes=3000, directory=tmp_path, directory_bytes=9000)
    wrong: list[Range] = []

    def read(seed: int) -> None:
        for number in range(300):
            one = Range("k", (seed * 31 + number * 17) % 50 * 1000, 500)
            if shared.fetches().get_ranges([one]) != [BODY[one.start : one.start + 500]]:
                wrong.append(one)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
