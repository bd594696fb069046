"""Tests of removed records in pages: the set equals Python's, and no delete or question costs more in a larger set."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache, partial
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.errors import Damaged, NewerFormat
from headrace.objects import packed
from headrace.topics import live, removed, retention
from headrace.topics.removed import Page, Removed, Root
from headrace.topics.runs import Runs
from headrace.topics.values import TopicConfig, TopicState, topic_of
from headrace.wal.state import LogState

END = 90
OFFSETS = st.integers(0, END)
DELETES = st.lists(st.tuples(st.sets(OFFSETS, max_size=12), st.integers(0, 12), st.booleans()), max_size=12)


class Bucket:
    """Objects in memory, for a decision: what was written, and what was read since `reads` was cleared."""

    refused = ()

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.reads: list[str] = []
        self.cache: dict[str, Any] = {}

    def object(self, key: str, decode: Callable[[bytes, str], Any]) -> Any:
        """Returns a decoded object, and notes that it was read, unless it is cached."""
        if key not in self.cache:
            self.reads.append(key)
            self.cache[key] = decode(self.objects[key], key)
        return self.cache[key]

    def nonce(self, data: bytes) -> str:
        """Returns a nonce of 16 characters."""
        return sha256(data).hexdigest()[:16]


class Topic:
    """A topic with `end` records of one byte."""

    def __init__(self, end: int) -> None:
        self.bucket: Any = Bucket()
        self.state = LogState(next_offset=end, extension=TopicState(live=end, bytes=end))

    def removed(self) -> removed.Offsets:
        """Returns its removed records."""
        return live.removed_of("log", self.state, self.bucket)()

    def delete(self, victims: Runs) -> int:
        """Deletes records; returns how many bytes of objects that writes."""
        removal = retention.remove(self.state, victims, self.removed(), lambda one: one.dying.count_all)
        self.state, objects = live.pack("log", removal.state, self.bucket, self.bucket)
        for one in objects:
            assert one.key not in self.bucket.objects, "an object never changes"
            self.bucket.objects[one.key] = one.data
        return sum(len(one.data) for one in objects)

    def named(self) -> tuple[list[Page], int]:
        """Returns the pages that its state names, and the bytes of the root."""
        (key,) = self.state.named_objects("log")
        data = self.bucket.objects[key]
        return Root.decode(data, key).pages, len(data)

    def cold(self) -> None:
        """Forgets what was read."""
        self.bucket.cache.clear()
        self.bucket.reads.clear()


@given(DELETES)
def test_pages_are_a_set(deletes: list[tuple[set[int], int, bool]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(removed, "PAGE_RUNS", 3)
        patch.setattr(live, "INLINE_BYTES", 12)
        topic = Topic(END)
        dead: set[int] = set()
        for victims, step, is_cold in deletes:
            if step:
                floor = topic.state.floor + step
                topic.state = retention.lose(topic.state, floor, topic.removed, "cap")
                dead |= set(range(min(floor, END)))
            topic.delete(Runs.of_offsets(victims))
            dead |= {one for one in victims if one < END}
            if is_cold:
                topic.cold()
            check(topic, dead)


def check(topic: Topic, dead: set[int]) -> None:
    """Every question about the removed records of a topic has the answer of Python's set."""
    state, found = topic.state, topic.removed()
    living = [one for one in range(END) if one not in dead]
    assert topic_of(state).live == len(living)
    assert state.floor == min(living, default=END)
    above = range(state.floor, END)
    gone = Runs.of_offsets(dead.intersection(above))
    for first in above:
        assert found.live_at(first) == next((one for one in living if one >= first), END)
        assert found.live_at(first, 5) == [*(one for one in living if one >= first), *range(END, END + 6)][5]
        assert found.live_end(first + 1) == gone.live_end(first + 1)
        for end in (first, first + 1, first + 7, END):
            assert found.count(first, end) == gone.count(first, end)
            assert found.within(first, end) == gone.within(first, end)
    for others in (Runs.of_offsets(above[::7]), Runs.of([(state.floor + 5, state.floor + 9)])):
        others = others.within(state.floor, END)
        assert others.minus(found.near(others)) == others.minus(gone)
        both = found.union(others)
        assert both.within(state.floor, END) == gone.union(others)
        assert both.live_at(state.floor, 2) == gone.union(others).live_at(state.floor, 2)
        assert both.count(state.floor, END) == gone.union(others).count_all
    if topic_of(state).base is not None:
        (key,) = state.named_objects("log")
        pages = topic_of(state).named_pages(key, topic.bucket.objects[key])
        assert topic.bucket.objects.keys() >= set(pages)
        decoded = [Runs.decode(topic.bucket.objects[page], page) for page in pages]
        assert all(0 < len(one) <= removed.PAGE_RUNS for one in decoded)


SIZES = [10_000, 100_000, pytest.param(400_000, marks=pytest.mark.full)]


@cache
def built(runs: int) -> Topic:
    topic = Topic(6 * runs)
    for part in (0, 6):  # the second one splits the pages of the first
        topic.delete(Runs.of((at, at + 1 + (at * 40503 >> 9) % 3) for at in range(1 + part, 6 * runs, 12)))
    return topic


def holes(runs: int) -> Topic:
    """A topic with so many runs of one to three removed records, in pages."""
    topic = Topic(6 * runs)
    topic.state = built(runs).state
    topic.bucket.objects |= built(runs).bucket.objects
    return topic


@pytest.mark.parametrize("runs", SIZES)
def test_a_delete_writes_what_it_touches(runs: int) -> None:
    topic, rng = holes(runs), random.Random(1)
    written = []
    for _ in range(150):
        topic.cold()
        at = 6 * rng.randrange(runs) + 5
        written.append(topic.delete(Runs.of([(at, at + 1)])))
        assert len(topic.bucket.reads) <= 2 or written[-1], "the root, and the page that may have the record already"
    assert sum(1 for one in written if one) < 8, "most deletes fit into the state"
    assert max(written) <= 64 * 1024, "one page for each of those runs at most, which are scattered"
    topic.cold()
    first = 6 * (runs // 2)
    assert topic.delete(Runs.of((at, at + 1) for at in range(first + 5, first + 3000, 6))) <= 64 * 1024
    pages, newest = topic.named()
    assert max(page.runs for page in pages) <= removed.PAGE_RUNS
    assert len(pages) <= 2 * (1 + runs // removed.PAGE_RUNS) + 2
    # The root names all pages: its bytes are a hundredth of those of the runs.
    assert newest <= 1024 + 32 * len(pages)


@pytest.mark.parametrize("runs", SIZES)
def test_a_question_reads_the_root_and_the_pages_that_it_is_about(runs: int) -> None:
    topic, rng = holes(runs), random.Random(2)
    for _ in range(10):
        first = rng.randrange(6 * runs)
        questions: list[Callable[[Any], object]] = [
            partial(Removed.live_at, first=first, n=999),
            partial(Removed.within, first=first, end=first + 2000),
            partial(Removed.live_end, end=first + 1),
            partial(Removed.near, others=Runs.of([(first, first + 9)])),
        ]
        for ask in questions:
            topic.cold()
            ask(topic.removed())
            assert len(topic.bucket.reads) <= 3, "the root and two neighbours"
        topic.cold()
        topic.removed().count(first, 6 * runs - 5)
        assert len(topic.bucket.reads) <= 3, "of the pages between, the root says enough"
    topic.cold()
    assert topic.removed().count(0, 6 * runs) == 6 * runs - topic_of(topic.state).live


@pytest.mark.parametrize("runs", SIZES)
def test_an_eviction_reads_the_pages_at_both_ends_of_the_log(runs: int) -> None:
    topic = holes(runs)
    most = topic_of(topic.state).live - 1000
    extension = replace(topic_of(topic.state), config=TopicConfig(cap_records=most))
    topic.state = replace(topic.state, extension=extension)
    topic.state = retention.build_marks(topic.state, [(6 * runs, 0)], topic.removed())
    for _ in range(5):
        topic.cold()
        grown = replace(topic.state, next_offset=topic.state.next_offset + 1)
        topic.state = retention.enforce_caps(retention.grow(grown, 1, 1), topic.removed)
        assert topic_of(topic.state).live == most
        assert len(topic.bucket.reads) <= 5, "the root, pages where the floor was and is, and one at the end"


@pytest.mark.parametrize(
    "pages",
    [
        [Page(1, "n", 5, 4, 1, 1)],
        [Page(1, "n", 1, 4, 1, 1), Page(1, "m", 3, 6, 1, 1)],
        [Page(1, "n", -1, 4, 1, 1)],
    ],
)
def test_pages_that_do_not_ascend_are_damage(pages: list[Page]) -> None:
    with pytest.raises(Damaged, match="object=o"):
        Root.decode(Root(pages).encode(), "o")


def test_a_newer_root_is_not_read() -> None:
    with pytest.raises(NewerFormat):
        Root.decode(packed.encode_msgpack(Root([], version=packed.VERSION + 1)), "o")
