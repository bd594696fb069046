"""Where live records begin: the cases that are easy to get wrong, one by one."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest

from headrace.batch import Batch, Record
from headrace.errors import OutcomeUnknown, Overloaded, StoreThrottled
from headrace.log.control import Asked
from headrace.log.marks import Mark
from headrace.log.requests import Head
from headrace.log.seam import Look, Rows
from headrace.memory import memory_stores
from headrace.tables.catalog import Row
from headrace.topics import erase, live, retention
from headrace.topics.decide import TopicSurface
from headrace.topics.errors import TopicFull
from headrace.topics.runs import NONE, Runs
from headrace.topics.values import Gap, Match, TopicConfig, TopicState, WriteRequest, Written, topic_of
from headrace.topics.verbs import Topics
from headrace.wal.state import LogState
from tests.support.clocks import ManualClock
from tests.support.faults import Faulty
from tests.unit.topics.world import put, read, seqs, write


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def topics(clock: ManualClock) -> Topics:
    return Topics(memory_stores(clock=clock))


def state_of(*times: int, config: TopicConfig) -> LogState:
    """A topic with a record of 10 bytes at each of these times."""
    state = LogState(extension=TopicState(config))
    for time_ms in times:
        state = LogState(state.next_offset + 1, time_ms, floor=state.floor, extension=state.extension)
        state = retention.grow(state, 1, 10)
    return state


def test_the_floor_of_losses_stops_at_the_last_record_that_was_lost(topics: Topics) -> None:
    put(topics, "t", cap_records=3)
    write(topics, "t", b"1")
    write(topics, "t", b"2", tag="a")
    write(topics, "t", b"3")
    topics.erase("t", None, Match("a"))
    write(topics, "t", b"4", b"5")  # the first goes, and with it the hole behind it
    assert topics.view("t").earliest_seq == 3
    assert read(topics, "t", 1).gap is None, "record 2 was deleted, which is silent"
    assert read(topics, "t", 0).gap == Gap(1, 2, "cap", 2)


def test_the_cause_of_losses(topics: Topics, clock: ManualClock) -> None:
    put(topics, "t", cap_records=2, ttl_ms=5_000)
    for _ in range(3):
        write(topics, "t", b"1")
    assert read(topics, "t").gap == Gap(1, 1, "cap", 1)
    clock.advance(6)
    write(topics, "t", b"1")
    assert read(topics, "t").gap == Gap(1, 3, "mixed", 3)


def test_hidden_records_count_nowhere_and_are_no_loss() -> None:
    state = state_of(1, 2, 3, 4, config=TopicConfig(cap_records=2))
    hidden = Runs.of([(0, 2)])
    assert retention.counted(state, lambda: NONE, hidden) == (2, 20)
    assert retention.enforce_caps(state, lambda: NONE, lambda: hidden) == state
    capped = retention.enforce_caps(state, lambda: NONE, lambda: Runs.of([(0, 1)]))
    assert (capped.floor, topic_of(capped).evict_floor) == (2, 2)
    gone = retention.lose(state, 2, lambda: NONE, "ttl", hidden)
    assert (gone.floor, topic_of(gone).evict_floor, topic_of(gone).cause) == (2, 0, "")


def test_a_cap_never_takes_the_newest_record() -> None:
    state = state_of(1, 2, config=TopicConfig(cap_bytes=3))
    assert retention.enforce_caps(state, lambda: NONE).floor == 1
    assert retention.enforce_caps(state, lambda: Runs.of([(1, 2)])).floor == 0, "the newest that lives"


@pytest.mark.parametrize("first", range(20))
def test_a_mark_is_cut_where_the_ttl_says(first: int) -> None:
    times = list(range(100, 120))
    state = state_of(*times, config=TopicConfig(ttl_ms=50))
    marks = (Mark(20, 119, 20, 200),)
    one_mark = msgspec.structs.replace(state, extension=msgspec.structs.replace(topic_of(state), marks=marks))
    asked: list[int] = []

    def time_of(offset: int) -> int:
        asked.append(offset)
        return times[offset]

    now_ms = times[first] + 50
    cut = live.expire(one_mark, now_ms, time_of, lambda: NONE)
    assert (cut.floor, topic_of(cut).evict_floor, topic_of(cut).live) == (first, first, 20 - first)
    assert len(asked) <= 1 + 5
    assert live.expire(one_mark, now_ms, time_of, lambda: NONE, wanted=20) == one_mark, "whole marks only"


def test_a_late_clock_goes_by_the_newest_record(topics: Topics, clock: ManualClock) -> None:
    put(topics, "t", ttl_ms=5_000)
    write(topics, "t", b"1")
    clock.advance(6)
    write(topics, "t", b"2")
    clock.set_back(4)
    assert seqs(read(topics, "t").records) == [2]


def test_expired_records_stay_gone_though_nothing_was_written_since(topics: Topics, clock: ManualClock) -> None:
    put(topics, "t", ttl_ms=1_000)
    write(topics, "t", b"1", b"2")
    clock.advance(2)
    put(topics, "t", ttl_ms=100_000)
    page = read(topics, "t")
    assert (page.records, page.gap, page.caught_up) == ([], Gap(1, 2, "ttl", 2), True)


def test_a_delete_does_not_count_what_has_expired(topics: Topics, clock: ManualClock) -> None:
    put(topics, "t", ttl_ms=1_000)
    write(topics, "t", b"1", b"2", tag="a")
    clock.advance(2)
    write(topics, "t", b"3", tag="a", create=False)
    clock.advance(0.9)
    write(topics, "u", b"1", tag="a", config=TopicConfig(ttl_ms=1_000))
    assert topics.erase("t", 10, Match("a")).deleted == 1
    clock.advance(2)
    assert topics.erase("u", 10, None) == (0, 1, 2, 0, 0)
    assert read(topics, "u").gap == Gap(1, 1, "ttl", 1)


def test_marks_live_as_long_as_a_cap_or_ttl(topics: Topics) -> None:
    put(topics, "t", cap_records=5)
    for number in range(50):
        write(topics, "t", b"x" * number)
    state = topic_of(topics.head("t").state)
    assert [mark.live for mark in state.marks] == [1] * 5
    put(topics, "t")
    assert topic_of(topics.head("t").state).marks == ()
    write(topics, "t", b"x" * 50)
    put(topics, "t", cap_bytes=100)
    write(topics, "t", b"")
    view = topics.view("t")
    assert (view.live, view.bytes) == (3, 99), "49 and 50 bytes, and the empty one"


def test_many_appends_keep_few_marks_of_about_the_same_size(topics: Topics) -> None:
    put(topics, "t", ttl_ms=10**9)
    for _ in range(300):
        write(topics, "t", b"x")
    marks = topic_of(topics.head("t").state).marks
    assert len(marks) <= 16
    assert sum(mark.live for mark in marks) == 300
    assert max(mark.live for mark in marks) <= 300 / 16 * 4


def test_a_first_cap_of_a_long_topic_reads_a_record_for_each_mark(clock: ManualClock) -> None:
    stores = memory_stores(clock=clock)
    objects = Faulty(stores.objects)
    topics = Topics(replace(stores, objects=objects))
    for _ in range(11):
        topics.append("t", WriteRequest(records=Batch.of([b"12345"] * 1000)))
        clock.advance(1)
    put(topics, "t", ttl_ms=3_500)
    view = topics.view("t")
    assert (view.live, view.bytes) == (3000, 15_000)


class Measuring(Topics):
    """Topics that count how many records are measured."""

    measured = 0

    def sizes(self, head: Head, first: int, end: int) -> list[int]:
        self.measured += end - first
        return super().sizes(head, first, end)


def test_deletes_by_seq_measure_the_smaller_side() -> None:
    topics = Measuring(memory_stores())
    for number in range(10):
        write(topics, "t", b"x" * number)
    assert topics.erase("t", 3, None)[-1] == 45 - 1
    assert topics.measured == 2
    assert topics.erase("t", 10, None) == (7, 10, 10, 1, 9)
    assert topics.measured == 2 + 1


class Overtaken(Topics):
    """Topics to which another process writes whenever many records are measured."""

    def sizes(self, head: Head, first: int, end: int) -> list[int]:
        if end - first > 3:
            write(Topics(self._stores), "t", b"foreign")
        return super().sizes(head, first, end)


@pytest.mark.parametrize("config", [{}, {"cap_records": 10_000}])
@pytest.mark.parametrize("before", [16, 96])
def test_a_delete_by_seq_measures_once_however_often_others_write(before: int, config: dict[str, int]) -> None:
    topics = Overtaken(memory_stores(clock=ManualClock()))
    put(topics, "t", **config)
    for _ in range(12):
        write(topics, "t", *[b"x" * 3] * 10)
    erased = topics.erase("t", before, None)
    assert erased.deleted == before - 1
    view = topics.view("t")
    assert view.live == topics.head("t").state.next_offset - before + 1
    assert view.bytes == 3 * (121 - before) + 7 * (view.live - 121 + before)


@pytest.mark.parametrize("match", [None, Match("a")])
def test_a_delete_of_very_many_is_done_in_parts(match: Match | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erase, "_PART", 3)
    stores = memory_stores()
    wal = Faulty(stores.wal)
    topics = Topics(replace(stores, wal=wal))
    write(topics, "t", *[b"x" * number for number in range(20)], tag="a")
    assert topics.erase("t", 12, match) == (11, 20, 12, 9, sum(range(11, 20)))
    assert wal.calls["commit"] == 1 + 4


@pytest.mark.parametrize("match", [None, Match("a")])
def test_a_delete_in_parts_that_fails_later_may_have_written(
    match: Match | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erase, "_PART", 3)
    stores = memory_stores()
    wal = Faulty(stores.wal)
    topics = Topics(replace(stores, wal=wal, clock=ManualClock()))
    write(topics, "t", *[b"x"] * 20, tag="a")
    wal.fail("commit", StoreThrottled, call=3, times=100)
    with pytest.raises(OutcomeUnknown):
        topics.erase("t", 12, match)
    with pytest.raises(Overloaded):
        topics.erase("t", 12, match)
    wal.heal()
    assert topics.erase("t", 12, match).deleted == 11 - 6, "a repeat deletes and counts the rest"


def test_newer_removed_runs_join_those_of_the_object(topics: Topics) -> None:
    tags = [f"t{number % 4}" for number in range(2000)]
    topics.append("t", WriteRequest(records=Batch.of([b"x"] * 2000, key=tags)))
    assert topics.erase("t", None, Match("t1")).deleted == 500
    base = topic_of(topics.head("t").state).base
    assert base is not None
    assert (base.records, base.number) == (500, 1)
    assert topics.erase("t", 20, Match("t2")).deleted == 5
    state = topic_of(topics.head("t").state)
    assert (state.base, len(state.removed)) == (base, 10)
    assert seqs(read(topics, "t", limit=5).records) == [1, 4, 5, 8, 9]
    assert topics.erase("t", None, Match("t2")).deleted == 495
    state = topic_of(topics.head("t").state)
    assert state.base is not None
    assert (state.base.records, state.base.number, state.removed) == (1000, 2, ())
    assert topics.view("t").live == 1000
    assert topics.erase("t", 10**6, None).deleted == 1000
    after = topic_of(topics.head("t").state)
    assert (after.removed, after.live, after.bytes) == ((), 0, 0)
    assert after.base == state.base, "the number of the object never falls"


def test_a_name_that_is_used_again_has_a_higher_incarnation(topics: Topics) -> None:
    write(topics, "t", b"1")
    topics.remove("t")
    write(topics, "t", b"1")
    assert topics.head("t").incarnation == 1
    topics.remove("t")
    put(topics, "t")
    assert topics.head("t").incarnation == 2


class Hiding(TopicSurface):
    """Topics of which the first two records are gone, as the done jobs of a queue are."""

    def hidden(self, look: Look, rows: Rows) -> Runs:
        return Runs.of([(0, 2)])


def test_what_a_queue_hides_is_no_loss_when_it_expires(clock: ManualClock) -> None:
    topics = Topics(memory_stores(clock=clock), surface=Hiding())
    for name in ("t", "u"):
        put(topics, name, ttl_ms=1_000)
        write(topics, name, b"1", b"2")
    clock.advance(2)
    write(topics, "t", b"3")
    put(topics, "u", ttl_ms=5_000)
    for name in ("t", "u"):
        state = topics.head(name).state
        assert (state.floor, topic_of(state).evict_floor) == (2, 0)


def test_hidden_records_leave_room(clock: ManualClock) -> None:
    topics = Topics(memory_stores(clock=clock), surface=Hiding())
    put(topics, "t", cap_records=2, discard="reject")
    for _ in range(4):
        write(topics, "t", b"1")
    with pytest.raises(TopicFull):
        write(topics, "t", b"1")
    put(topics, "u", cap_records=2)
    for _ in range(4):
        write(topics, "u", b"1")
    assert topics.head("u").state.floor == 0
    write(topics, "u", b"1")
    assert topics.head("u").state.floor == 3


def test_a_write_of_a_group_finds_the_room_of_what_has_expired(topics: Topics, clock: ManualClock) -> None:
    put(topics, "t", cap_records=21, discard="reject", ttl_ms=30_000)
    for _ in range(20):
        write(topics, "t", b"1")
        clock.advance(1)
    clock.advance(10.5)
    head = topics.head("t")
    look = Look(topics._context.pictures.row("t"), head.state)
    requests = [Asked(WriteRequest(records=Batch.of([b"2"]))) for _ in range(2)]
    attempt = SimpleNamespace(refused=(), nonce=lambda _: "n")
    decision = TopicSurface().decide((look,), requests, topics._context, clock.now_ms(), attempt)
    assert [type(one) for one in decision.answers] == [Written, Written], "the first record has expired"
    state = decision.entries[0].state
    assert (state.floor, topic_of(state).live) == (1, 21)


def test_a_record_that_was_dropped_since_the_state_was_read_counts_as_expired(
    topics: Topics, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(topics, "t", ttl_ms=60_000)
    for _ in range(40):
        write(topics, "t", b"1")
        clock.advance(1)
    clock.advance(25)
    row, reads = topics._context.pictures.row("t"), topics._context.page

    def page(row: Row, position: int, max_records: int, max_bytes: int) -> list[Record]:
        return reads(row, max(position, 3), max_records, max_bytes)  # as `Reader.page` does if three were dropped

    monkeypatch.setattr(topics._context, "page", page)
    time_of = live.times_of(row, topics._context)
    assert (time_of(2), time_of(3) > 0) == (0, True)
    assert topics.view("t").earliest_seq == 6
