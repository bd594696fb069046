"""Tests of the verbs of topics, one after the other, on stores in memory."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.batch import Batch, Record
from headrace.errors import InvalidRequest, LimitReached
from headrace.memory import memory_stores
from headrace.tables.catalog import Row
from headrace.topics.errors import Incompatible, NotEmpty, TopicFull, TopicNotFound
from headrace.topics.priority import effective_priority
from headrace.topics.values import Gap, Match, TopicConfig, WriteRequest
from headrace.topics.verbs import Topics
from headrace.wal.memory import MemoryWal
from tests.support.clocks import ManualClock
from tests.unit.topics.world import put, read, seqs, write


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def tables() -> MemoryWal:
    return MemoryWal()


@pytest.fixture
def topics(tables: MemoryWal, clock: ManualClock) -> Topics:
    return Topics(memory_stores(wal=tables, clock=clock))


def test_a_write_creates_its_topic_once(topics: Topics) -> None:
    first = write(topics, "t", b"1", b"2")
    assert (first.first_seq, first.last_seq, first.head_seq, first.created) == (1, 2, 2, True)
    second = write(topics, "t", b"3")
    assert (second.first_seq, second.last_seq, second.head_seq, second.created) == (3, 3, 3, False)
    page = read(topics, "t")
    assert [record.data for record in page.records] == [b"1", b"2", b"3"]
    assert (page.next_seq, page.head_seq, page.earliest_seq, page.gap, page.caught_up) == (3, 3, 1, None, True)


def test_a_write_that_may_not_create(topics: Topics) -> None:
    with pytest.raises(TopicNotFound):
        write(topics, "t", b"1", create=False)
    with pytest.raises(TopicNotFound):
        write(topics, "t", b"1", config=TopicConfig(auto_create=False))
    assert write(topics, "t", b"1", create=True, config=TopicConfig(auto_create=False, cap_records=5)).created
    assert topics.view("t").config.cap_records == 5
    with pytest.raises(InvalidRequest, match="topic name"):
        write(topics, "_t", b"1")


def test_put_replaces_the_configuration(topics: Topics) -> None:
    assert put(topics, "t", cap_records=3, lease_ms=1)
    assert topics.view("t").config == TopicConfig(cap_records=3, lease_ms=100)
    assert not put(topics, "t", ttl_ms=5000)
    assert topics.view("t").config == TopicConfig(ttl_ms=5000)
    with pytest.raises(Incompatible):
        put(topics, "t", type="queue")
    with pytest.raises(InvalidRequest, match="dead-letter"):
        put(topics, "q", type="queue", dead_letter="q")
    assert put(topics, "q", type="queue")


def test_a_removed_topic_begins_anew(topics: Topics) -> None:
    assert not topics.remove("t")
    write(topics, "t", b"1", b"2", b"3")
    with pytest.raises(NotEmpty):
        topics.remove("t", if_empty=True)
    assert topics.remove("t")
    assert not topics.remove("t")
    with pytest.raises(TopicNotFound):
        topics.view("t")
    with pytest.raises(TopicNotFound):
        read(topics, "t")
    assert write(topics, "t", b"4").first_seq == 1
    page = read(topics, "t", 3)
    assert page.gap == Gap(1, 1, "recreated", 1)
    assert (seqs(page.records), page.next_seq) == ([1], 1)
    topics.erase("t", 2, None)
    assert topics.remove("t", if_empty=True)


def test_caps_evict_the_oldest(topics: Topics) -> None:
    put(topics, "t", cap_records=3)
    for data in (b"1", b"22", b"333", b"4444", b"55555"):
        write(topics, "t", data)
    view = topics.view("t")
    assert (view.live, view.bytes, view.earliest_seq, view.head_seq) == (3, 12, 3, 5)
    page = read(topics, "t")
    assert page.gap == Gap(1, 2, "cap", 2)
    assert seqs(page.records) == [3, 4, 5]
    assert read(topics, "t", 2).gap is None
    assert read(topics, "t", 1).gap == Gap(2, 2, "cap", 1)


def test_a_cap_of_bytes_evicts_as_much_as_needed(topics: Topics) -> None:
    put(topics, "t", cap_bytes=10)
    for _ in range(6):
        write(topics, "t", b"123")
    view = topics.view("t")
    assert (view.live, view.bytes, view.earliest_seq) == (3, 9, 4)
    write(topics, "t", b"12345678901234567890")
    assert topics.view("t").live == 1, "the newest record stays"


def test_a_cap_of_bytes_cuts_into_a_batch_by_what_is_too_much(topics: Topics) -> None:
    put(topics, "t", cap_bytes=100)
    write(topics, "t", *[b"0123456789"] * 10)
    write(topics, "t", b"0123456789ab")
    view = topics.view("t")
    assert (view.live, view.bytes, view.earliest_seq) == (9, 92, 3)


def test_a_full_topic_that_rejects(topics: Topics) -> None:
    put(topics, "t", cap_records=2, discard="reject")
    write(topics, "t", b"1")
    with pytest.raises(TopicFull) as full:
        write(topics, "t", b"2", b"3")
    assert full.value.detail == {"topic": "t", "cap_records": 2, "cap_bytes": 0, "count": 1, "bytes": 1}
    assert write(topics, "t", b"2").last_seq == 2
    with pytest.raises(TopicFull):
        write(topics, "t", b"3")
    assert topics.erase("t", 2, None).deleted == 1
    assert write(topics, "t", b"3").last_seq == 3
    with pytest.raises(TopicFull):
        write(topics, "new", b"1", b"2", config=TopicConfig(discard="reject", cap_records=1))
    with pytest.raises(TopicNotFound):
        topics.view("new")


def test_records_expire_when_they_are_read(topics: Topics, clock: ManualClock) -> None:
    put(topics, "t", ttl_ms=10_000)
    for data in (b"1", b"2", b"3"):
        write(topics, "t", data)
        clock.advance(4)
    page = read(topics, "t")  # 12 s, 8 s and 4 s old
    assert (seqs(page.records), page.gap, page.earliest_seq) == ([2, 3], Gap(1, 1, "ttl", 1), 2)
    view = topics.view("t")
    assert (view.live, view.bytes, view.earliest_seq) == (2, 2, 2)
    clock.advance(20)
    view = topics.view("t")
    assert (view.live, view.bytes, view.earliest_seq, view.head_seq) == (0, 0, 4, 3)
    page = read(topics, "t", 1)
    assert (page.records, page.gap, page.next_seq, page.caught_up) == ([], Gap(2, 3, "ttl", 2), 3, True)
    assert read(topics, "t", 3).gap is None


def test_what_has_expired_stays_gone_when_the_ttl_rises(topics: Topics, clock: ManualClock) -> None:
    put(topics, "t", ttl_ms=1_000)
    write(topics, "t", b"1")
    clock.advance(2)
    write(topics, "t", b"2")
    put(topics, "t", ttl_ms=100_000)
    assert seqs(read(topics, "t").records) == [2]
    put(topics, "t")
    page = read(topics, "t")
    assert (seqs(page.records), page.gap) == ([2], Gap(1, 1, "ttl", 1))


def test_a_full_topic_makes_room_of_what_has_expired(topics: Topics, clock: ManualClock) -> None:
    put(topics, "t", ttl_ms=10_000, cap_records=20, discard="reject")
    for _ in range(20):
        write(topics, "t", b"1")
        clock.advance(1)
    assert write(topics, "t", b"2").last_seq == 21
    assert topics.view("t").live == 11


def test_a_first_cap_marks_what_is_there(topics: Topics, clock: ManualClock) -> None:
    for number in range(40):
        write(topics, "t", b"x" * number)
        clock.advance(1)
    topics.erase("t", None, Match("nothing"))
    put(topics, "t", ttl_ms=10_500)
    view = topics.view("t")
    assert (view.live, view.bytes) == (10, sum(range(30, 40)))
    put(topics, "u", cap_records=1)


def test_erase_by_seq_and_by_tag(topics: Topics) -> None:
    for number in range(1, 11):
        write(topics, "t", b"x" * number, tag=f"k:{number % 3}")
    erased = topics.erase("t", None, Match("k:1"))
    assert (erased.deleted, erased.earliest_seq, erased.live, erased.bytes) == (4, 2, 6, 55 - 1 - 4 - 7 - 10)
    assert topics.erase("t", None, Match("k:1")).deleted == 0
    assert topics.erase("t", 6, Match("k:", is_prefix=True)).deleted == 3  # 2, 3, 5
    view = topics.view("t")
    assert (view.live, view.bytes, view.earliest_seq) == (3, 6 + 8 + 9, 6)
    page = read(topics, "t")
    assert (seqs(page.records), page.gap, page.next_seq) == ([6, 8, 9], None, 10)
    assert topics.erase("t", 9, None).deleted == 2
    assert topics.erase("t", 10**15, None) == (1, 10, 11, 0, 0)
    assert topics.erase("t", 0, None).deleted == 0
    page = read(topics, "t")
    assert (page.records, page.next_seq, page.caught_up, page.gap) == ([], 10, True, None)
    with pytest.raises(InvalidRequest):
        topics.erase("t", None, None)


def test_many_removed_records_become_an_object(topics: Topics, tables: MemoryWal) -> None:
    write(topics, "t", *[b"1", b"2"] * 400, tag="a")
    for number in range(2, 700, 2):
        assert topics.erase("t", number, Match("a")).deleted == (1 if number == 2 else 2)
    write(topics, "u", *[b"%d" % number for number in range(500)], tag=None)
    tags = [f"t{number % 2}" for number in range(2000)]

    topics.append("v", WriteRequest(records=Batch.of([b"x"] * 2000, key=tags)))
    assert topics.erase("v", None, Match("t1")).deleted == 1000
    state = topics.head("v").state
    assert state.extension is not None
    assert state.extension.base is not None and state.extension.removed == ()
    assert Topics(memory_stores(wal=tables, objects=topics._stores.objects)).view("v").live == 1000
    assert topics.erase("v", 11, None).deleted == 5
    page = read(topics, "v", limit=5)
    assert (seqs(page.records), page.next_seq) == ([11, 13, 15, 17, 19], 20)


def test_own_records_are_passed_over(topics: Topics) -> None:
    write(topics, "t", b"1", b"2", node="a")
    write(topics, "t", b"3", node="b")
    write(topics, "t", b"4", b"5", node="a")
    page = read(topics, "t", nodes=frozenset({"a"}))
    assert (seqs(page.records), page.next_seq, page.caught_up, page.examined) == ([3], 5, True, 5)
    put(topics, "t", dedupe_node=False)
    assert seqs(read(topics, "t", nodes=frozenset({"a"})).records) == [1, 2, 3, 4, 5]


def test_pages_are_bounded_and_have_one_record(topics: Topics) -> None:
    for _ in range(5):
        write(topics, "t", b"x" * 100, b"y" * 100)
    assert seqs(read(topics, "t", max_bytes=1).records) == [1]
    assert seqs(read(topics, "t", 1, max_bytes=101).records) == [2, 3]
    assert seqs(read(topics, "t", 3, limit=4).records) == [4, 5, 6, 7]


def test_an_idempotency_key_counts_from_the_first_write(topics: Topics, clock: ManualClock) -> None:
    first = write(topics, "t", b"1", b"2", key="k")
    assert first.created and not first.deduped
    clock.advance(100)
    again = write(topics, "t", b"3", key="k")
    assert (again.first_seq, again.last_seq, again.deduped, again.created) == (1, 2, True, False)
    clock.advance(21)  # the window does not slide
    assert write(topics, "t", b"4", key="k").first_seq == 3
    topics.remove("t")
    assert write(topics, "t", b"5", key="k").first_seq == 1, "another topic knows no keys"


def test_a_failed_write_burns_no_key(topics: Topics) -> None:
    put(topics, "t", cap_records=1, discard="reject")
    write(topics, "t", b"1")
    with pytest.raises(TopicFull):
        write(topics, "t", b"2", key="k")
    topics.erase("t", 2, None)
    assert not write(topics, "t", b"2", key="k").deduped
    assert write(topics, "t", b"2", key="k").deduped


def test_topics_are_listed_by_prefix(topics: Topics) -> None:
    for name in ("a1", "a2", "b1", "c1"):
        write(topics, name, b"1")
    found, more = topics.topics(limit=2)
    assert ([one.name for one in found], more) == (["a1", "a2"], "a2")
    found, more = topics.topics(after="a2", limit=2)
    assert ([one.name for one in found], more) == (["b1", "c1"], None)
    found, more = topics.topics(["a", "a1", "c"], limit=10)
    assert ([one.name for one in found], more) == (["a1", "a2", "c1"], None)


def test_a_limit_of_topics(topics: Topics) -> None:
    config = TopicConfig()
    assert topics.put("a", config, limit=1).created
    assert not topics.put("a", config, limit=1).created
    with pytest.raises(LimitReached):
        topics.put("b", config, limit=1)
    topics.remove("a")
    assert topics.put("b", config, limit=1).created


def test_priority_falls_while_nobody_reads(topics: Topics, clock: ManualClock) -> None:
    write(topics, "t", b"1")
    assert topics.view("t", touch=False).effective_priority == 0
    first = topics.view("t")
    assert (first.effective_priority, first.last_read_ts) == (500, None)
    read_ms = clock.now_ms()
    clock.advance(30)
    view = topics.view("t", touch=False)
    assert (view.effective_priority, view.last_read_ts, view.last_write_ts) == (250, read_ms, read_ms)
    assert effective_priority(TopicConfig(priority=5000), None, 0) == 1000
    assert effective_priority(TopicConfig(auto_priority=False), 0, 0) == 0
    assert effective_priority(TopicConfig(), 0, 300_001) == 0


def test_a_small_page_passes_many_own_records(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    put(topics, "t", dedupe_node=True)
    for _ in range(10):
        write(topics, "t", *(b"1" for _ in range(100)), node="me")
    write(topics, "t", b"2", node="other")
    context = topics._context
    reads = context.page
    asked: list[int] = []

    def page(row: Row, position: int, max_records: int, max_bytes: int) -> list[Record]:
        asked.append(max_records)
        return reads(row, position, max_records, max_bytes)

    monkeypatch.setattr(context, "page", page)
    found = read(topics, "t", limit=1, nodes=frozenset({"me"}))
    assert (seqs(found.records), found.next_seq) == ([1001], 1001)
    assert len(asked) < 12


def test_a_topic_that_was_created_again_meanwhile_is_not_removed_as_empty(
    topics: Topics, tables: MemoryWal, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Topics(memory_stores(wal=tables, clock=clock))
    put(topics, "t")
    write(topics, "t", b"1")
    topics.erase("t", 2, None)
    delete = topics.controls.delete

    def create_again(name: str, *args: Any) -> bool:
        other.remove(name)
        write(other, name, b"2")
        return delete(name, *args)

    monkeypatch.setattr(topics.controls, "delete", create_again)
    with pytest.raises(NotEmpty):
        topics.remove("t", if_empty=True)
    assert [record.data for record in read(other, "t").records] == [b"2"]


@pytest.mark.parametrize("are_any_left", [False, True])
def test_records_that_are_dropped_during_a_read_are_not_passed_over_in_silence(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, *, are_any_left: bool
) -> None:
    put(topics, "t", dedupe_node=True)
    write(topics, "t", *(b"1" for _ in range(10)), node="me")
    write(topics, "t", *(b"2" for _ in range(90)))
    reads = topics._context.page

    def page(row: Row, position: int, max_records: int, max_bytes: int) -> list[Record]:
        return reads(row, 50, max_records, max_bytes) if are_any_left else []  # as `Reader.page` does then

    monkeypatch.setattr(topics._context, "page", page)
    found = read(topics, "t", limit=10, nodes=frozenset({"me"}))
    assert (found.records, found.next_seq) == ([], 10), "the next read finds the floor, and so the gap"
