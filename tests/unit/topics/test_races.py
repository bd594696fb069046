"""Verbs of topics that meet: the one that loses a slot decides again on what is there then."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.batch import Batch
from headrace.errors import Overloaded
from headrace.memory import memory_stores
from headrace.topics.errors import NotEmpty, TopicNotFound
from headrace.topics.values import Match, TopicConfig, WriteRequest
from headrace.topics.verbs import Topics
from tests.support.clocks import ManualClock
from tests.support.faults import Faulty
from tests.unit.topics.world import put, read, seqs, write


class Two:
    """A process whose next commit is preceded by something that another one does."""

    def __init__(self) -> None:
        stores = memory_stores(clock=ManualClock())
        self.wal = Faulty(stores.wal)
        self.one, self.other = Topics(replace(stores, wal=self.wal)), Topics(stores)

    def first(self, action: Callable[[], object]) -> None:
        """Runs this right before the next commit of the one."""
        self.wal.on("commit", action)


def tagged(topics: Topics, name: str, tags: str) -> None:
    topics.append(name, WriteRequest(records=Batch.of([b"x"] * len(tags), key=list(tags))))


def test_a_delete_that_lost_its_slot_counts_only_what_it_removed() -> None:
    two = Two()
    tagged(two.one, "t", "abababab")
    two.first(lambda: two.other.erase("t", 4, None))
    erased = two.one.erase("t", None, Match("a"))
    assert (erased.deleted, erased.earliest_seq, erased.live, erased.bytes) == (2, 4, 3, 3)
    two.first(lambda: two.other.erase("t", None, Match("b")))
    assert two.one.erase("t", 100, None) == (0, 8, 9, 0, 0)


def test_a_delete_never_removes_what_came_after_it() -> None:
    two = Two()
    tagged(two.one, "t", "aa")
    two.first(lambda: tagged(two.other, "t", "aa"))
    erased = two.one.erase("t", None, Match("a"))
    assert (erased.deleted, erased.head_seq, erased.earliest_seq) == (2, 4, 3)
    two.first(lambda: tagged(two.other, "t", "aa"))
    assert two.one.erase("t", 1000, None) == (2, 6, 5, 2, 2)


def test_a_delete_does_not_touch_another_topic_of_the_name() -> None:
    two = Two()
    tagged(two.one, "t", "aa")

    def create_anew() -> None:
        two.other.remove("t")
        tagged(two.other, "t", "aaa")

    two.first(create_anew)
    assert two.one.erase("t", None, Match("a")) == (0, 3, 1, 3, 3)


def test_what_a_cap_took_meanwhile_is_no_deletion() -> None:
    two = Two()
    put(two.one, "t", cap_records=3)
    tagged(two.one, "t", "aaa")
    two.first(lambda: tagged(two.other, "t", "bb"))
    erased = two.one.erase("t", None, Match("a"))
    assert (erased.deleted, erased.earliest_seq, erased.live) == (1, 4, 2)
    page = read(two.one, "t")
    assert page.gap is not None
    assert (page.gap.first, page.gap.last, seqs(page.records)) == (1, 3, [4, 5])


def test_two_that_create_one_topic() -> None:
    two = Two()
    two.first(lambda: put(two.other, "t", cap_records=5))
    written = write(two.one, "t", b"1")
    assert (written.first_seq, written.created) == (1, False)
    assert two.one.view("t").config == TopicConfig(cap_records=5)
    two.first(lambda: write(two.other, "u", b"1"))
    assert not put(two.one, "u", cap_records=7)
    assert two.one.view("u").config == TopicConfig(cap_records=7)


def test_a_topic_that_went_is_created_again_by_a_write() -> None:
    two = Two()
    write(two.one, "t", b"1")
    two.other.remove("t")
    assert write(two.one, "t", b"2").created
    two.other.remove("t")
    with pytest.raises(TopicNotFound):
        write(two.one, "t", b"3", create=False)


def test_a_topic_that_gets_a_record_is_not_empty() -> None:
    two = Two()
    put(two.one, "t")
    two.first(lambda: write(two.other, "t", b"1"))
    with pytest.raises(NotEmpty):
        two.one.remove("t", if_empty=True)
    assert two.one.view("t").live == 1


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 40)), min_size=1, max_size=12))
def test_deletes_of_many_add_up(deletes: list[tuple[str, int]]) -> None:
    stores = memory_stores()
    workers = [Topics(stores) for _ in range(3)]
    tagged(workers[0], "t", "ab" * 15)

    def work(number: int) -> int:
        tag, before = deletes[number % len(deletes)]
        topics = workers[number % 3]
        try:
            if number % 5 == 4:
                tagged(topics, "t", "ab")
                return 0
            return topics.erase("t", before if number % 2 else None, Match(tag)).deleted
        except Overloaded:
            return 0

    with ThreadPoolExecutor(4) as threads:
        deleted = sum(threads.map(work, range(len(deletes) * 2)))
    view = workers[0].view("t")
    assert deleted == view.head_seq - view.live
    page = read(workers[1], "t", limit=1000)
    assert len(page.records) == view.live == view.bytes
    assert (page.gap, page.caught_up) == (None, True)
