"""What a consumer is sent about a topic, page by page."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.log.requests import Head
from headrace.memory import memory_stores
from headrace.topics.diff import resume
from headrace.topics.values import DiffRequest
from headrace.topics.verbs import Topics
from headrace.wal.state import LogConfig, LogState, Recovery
from headrace.watch.frames import (
    CaughtUp,
    Frame,
    Position,
    Records,
    Tombstone,
    TopicDeleted,
    advance,
    end,
    reopen,
)
from tests.unit.topics.world import put, seqs, write


@pytest.fixture
def topics() -> Topics:
    return Topics(memory_stores())


class Consumer:
    """A consumer of the topic "t", and what it was sent."""

    def __init__(self, topics: Topics, position: Position | None = None, **options: Any) -> None:
        self._topics = topics
        self.position = position or Position()
        self._options = options

    def read(self) -> list[Frame]:
        """Reads a page and returns its frames."""
        request = DiffRequest(self.position.seq, incarnation=self.position.incarnation, **self._options)
        before = self.position
        self.position, frames = advance(before, self._topics.diff("t", request))
        cursors = [*(frame.seq for frame in frames), self.position.seq]
        if not any(isinstance(frame, Tombstone) and frame.reason == "recreated" for frame in frames):
            cursors.insert(0, before.seq)
        assert cursors == sorted(cursors), "no frame moves the cursor back"
        return frames


def shown(frames: list[Frame]) -> list[Any]:
    """Returns frames with the seqs of their records."""
    return [frame._replace(records=seqs(frame.records)) if isinstance(frame, Records) else frame for frame in frames]


def test_a_backlog_ends_with_caught_up_and_live_records_have_none(topics: Topics) -> None:
    write(topics, "t", b"1", b"2", b"3")
    consumer = Consumer(topics, limit=2)
    assert shown(consumer.read()) == [Records(2, 0, 3, [1, 2])]
    assert shown(consumer.read()) == [Records(3, 2, 3, [3]), CaughtUp(3)]
    assert consumer.read() == []
    write(topics, "t", b"4", b"5")
    assert shown(consumer.read()) == [Records(5, 3, 5, [4, 5])], "it has not fallen behind"
    write(topics, "t", b"6", b"7", b"8")
    assert shown(consumer.read()) == [Records(7, 5, 8, [6, 7])]
    assert shown(consumer.read()) == [Records(8, 7, 8, [8]), CaughtUp(8)], "now it has caught up again"


def test_an_empty_topic_is_caught_up_at_once(topics: Topics) -> None:
    put(topics, "t")
    assert Consumer(topics).read() == [CaughtUp(0)]


def test_the_cursor_passes_what_is_not_for_the_consumer(topics: Topics) -> None:
    write(topics, "t", b"1", node="n")
    consumer = Consumer(topics, nodes=frozenset({"n"}))
    assert consumer.read() == [CaughtUp(1)]
    write(topics, "t", b"2", node="n")
    assert consumer.read() == []
    assert consumer.position.seq == 2
    write(topics, "t", b"3", node="m")
    assert shown(consumer.read()) == [Records(3, 2, 3, [3])]


def test_the_first_gap_of_a_connection_was_there_before_it(topics: Topics) -> None:
    put(topics, "t", cap_records=2)
    write(topics, "t", b"1", b"2", b"3", b"4", b"5")
    consumer = Consumer(topics)
    assert shown(consumer.read()) == [
        Tombstone(3, 1, 3, "from_seq_too_old", 4, 5),
        Records(5, 3, 5, [4, 5]),
        CaughtUp(5),
    ]
    write(topics, "t", b"6", b"7", b"8", b"9")
    assert shown(consumer.read()) == [Tombstone(7, 6, 7, "cap", 8, 9), Records(9, 7, 9, [8, 9]), CaughtUp(9)]
    consumer.position = reopen(consumer.position)
    assert consumer.read() == [CaughtUp(9)]
    write(topics, "t", b"10", b"11", b"12")
    assert isinstance(gap := consumer.read()[0], Tombstone)
    assert gap.reason == "cap", "the connection has read the topic before"


def test_a_delete_is_no_gap(topics: Topics) -> None:
    write(topics, "t", b"1", b"2", b"3")
    topics.erase("t", 3, None)
    assert shown(Consumer(topics).read()) == [Records(3, 0, 3, [3]), CaughtUp(3)]


def test_a_topic_that_begins_anew_is_told_apart_even_if_it_is_as_long(topics: Topics) -> None:
    write(topics, "t", b"1", b"2")
    consumer = Consumer(topics)
    consumer.read()
    topics.remove("t")
    write(topics, "t", b"a", b"b", b"c")
    assert shown(consumer.read()) == [Tombstone(0, 1, 3, "recreated", 1, 3), Records(3, 0, 3, [1, 2, 3]), CaughtUp(3)]
    assert consumer.read() == []


def test_a_cursor_beyond_the_end_is_of_an_earlier_topic(topics: Topics) -> None:
    write(topics, "t", b"1")
    assert shown(Consumer(topics, Position(seq=7)).read()) == [
        Tombstone(0, 1, 1, "recreated", 1, 1),
        Records(1, 0, 1, [1]),
        CaughtUp(1),
    ]


def test_the_last_frame_tells_the_newest_seq_that_is_known() -> None:
    assert end(Position(1, 5, 9)) == TopicDeleted(5, 9)
    assert end(Position(None, 5)) == TopicDeleted(5, 5)


@pytest.mark.parametrize(
    ("seq", "incarnation", "resumed"),
    [
        (8, None, 8),
        (8, 4, 8),
        (8, 3, 6),  # of the time between the recoveries
        (8, 1, 5),  # before both
        (4, 1, 4),
        (2, 2, 11),  # it never was of this log
        (2, 9, 11),
    ],
)
def test_a_cursor_goes_back_to_what_a_recovery_has_kept(seq: int, incarnation: int | None, resumed: int) -> None:
    state = LogState(next_offset=10, recoveries=(Recovery(5, 3), Recovery(6, 4)))
    head = Head("log", LogConfig("topics", "t", 1, "application/json", 0), state, None)
    assert resume(DiffRequest(seq, incarnation=incarnation), head) == resumed
