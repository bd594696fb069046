"""Laws of what a socket is sent about a topic."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.batch import Record
from headrace.errors import Damaged
from headrace.sockets.channel import MAX_MESSAGE_BYTES, Channel, decode, encode, messages
from headrace.sockets.session import find
from headrace.tables.follows import Follow
from headrace.tables.parts import Part
from headrace.tables.sessions import MemorySessions
from headrace.watch.frames import CaughtUp, Frame, Position, Records, Tombstone, TopicDeleted

NAME = "räume/grün"


def record(offset: int, data: bytes = b"1", **members: Any) -> Record:
    return Record(offset, 1000 + offset, members.get("key"), data, members.get("node"), members.get("meta"))


def told(frame: Frame, **options: Any) -> list[dict[str, Any]]:
    return [json.loads(text) for text in messages(Channel(NAME, **options), frame)]


def test_a_channel_is_read_as_it_was_written() -> None:
    channel = Channel(NAME, Position(7, 3, 9, True, True), ("u1", "u2"), 5, 6, data=False, tags=True, meta=False)
    assert decode(Follow("log", "socket", "c", encode(channel))) == channel
    for damaged in (b"{}", b'{"name": "\xed"}', b'{"name":' + b"[" * 5000):
        with pytest.raises(Damaged, match="follower="):
            decode(Follow("log", "socket", "c", damaged))


def test_a_row_that_holds_no_session_is_damage() -> None:
    sessions = MemorySessions()
    for number, damaged in enumerate((b"1", b'{"key_id": "\xed"}', b'{"key_id":' + b"[" * 5000)):
        sessions.put_part(Part("socket", f"c{number}", data=damaged), None)
        with pytest.raises(Damaged, match=f"connection_id=c{number}"):
            find(sessions, f"c{number}")


def test_records_are_told_with_the_cursor_before_and_after_them() -> None:
    frame = Records(5, 2, 9, [record(2, b'{"a": 1.50}', node="n", key="t", meta=b'{"m":1}')])
    [text] = messages(Channel(NAME), frame)
    assert b'"data":{"a": 1.50}' in text, "as it was stored"
    assert json.loads(text) == {
        "op": "record",
        "topic": NAME,
        "from_seq": 2,
        "to_seq": 5,
        "head_seq": 9,
        "records": [{"$seq": 3, "$ts": 1002, "$node": "n", "data": {"a": 1.5}, "meta": {"m": 1}}],
    }


def test_options_say_what_is_shown_of_a_record() -> None:
    frame = Records(1, 0, 1, [record(0, key="t", meta=b'{"m":1}')])
    [shown] = told(frame, data=False, tags=True, meta=False)
    assert shown["records"] == [{"$seq": 1, "$ts": 1000, "$tag": "t"}]


def test_other_frames_are_told_by_their_names() -> None:
    assert told(Tombstone(10, 1, 10, "cap", 11, 43)) == [
        {
            "op": "tombstone",
            "topic": NAME,
            "reason": "cap",
            "gap_from": 1,
            "gap_to": 10,
            "earliest_seq": 11,
            "head_seq": 43,
        }
    ]
    assert told(CaughtUp(43)) == [{"op": "caught_up", "topic": NAME, "head_seq": 43}]
    assert told(TopicDeleted(12, 12)) == [{"op": "topic_deleted", "topic": NAME, "head_seq": 12, "reason": "deleted"}]


@given(st.lists(st.integers(1, MAX_MESSAGE_BYTES + 10), min_size=1, max_size=12), st.integers(0, 3))
def test_messages_are_small_and_their_cursors_touch(sizes: list[int], beyond: int) -> None:
    records = [record(offset, b'"' + b"x" * size + b'"') for offset, size in enumerate(sizes)]
    end = len(records) + beyond
    texts = list(messages(Channel(NAME), Records(end, 0, end, records)))
    assert all(len(text) <= MAX_MESSAGE_BYTES for text in texts)
    cursor, seen = 0, 0
    for one in map(json.loads, texts):
        if one["op"] == "error":
            assert one["code"] == "record_too_large"
            assert sizes[one["seq"] - 1] > MAX_MESSAGE_BYTES - 1024, "it may fit"
            cursor, seen = one["seq"], seen + 1
            continue
        assert one["from_seq"] == cursor
        assert [shown["$seq"] for shown in one["records"]] == list(
            range(cursor + 1, cursor + 1 + len(one["records"]))
        )
        cursor, seen = one["to_seq"], seen + len(one["records"])
    assert seen == len(records), "each is told, or said to be too large"
    assert cursor in (end, len(records))
