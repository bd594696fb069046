"""Caps, TTLs, and the tombstones that tell of them (§ 0.10, § 3.3)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.topics.client import Server, Topic, answered, eventually, refused

GONE = {"gap_from", "gap_to", "reason", "missed_estimate", "earliest_seq", "head_seq"}


def expired(topic: Topic) -> dict[str, Any]:
    """Waits until no record lives; returns the state."""
    return eventually(topic.now, lambda state: state["count"] == 0, within_s=10)


def test_a_cap_of_records_evicts_the_oldest(server: Server) -> None:
    topic = server.topic(cap_records=3)
    for n in range(10):
        topic.filled(n)
    state = topic.now()
    assert (state["head_seq"], state["earliest_seq"], state["count"]) == (10, 8, 3)
    assert topic.data() == [7, 8, 9]


def test_a_batch_larger_than_the_cap_keeps_its_newest_records(server: Server) -> None:
    topic = server.topic(cap_records=3)
    assert answered(topic.append(*range(8)))["seqs"] == list(range(1, 9))
    assert topic.data() == [5, 6, 7]


def test_a_cap_of_bytes_evicts(server: Server) -> None:
    topic = server.topic(cap_bytes=5000)
    for _ in range(20):
        topic.filled("x" * 1000)
    state = topic.now()
    assert 1 <= state["count"] <= 5
    assert state["bytes"] <= 5000
    assert state["earliest_seq"] == 21 - state["count"]
    assert len(topic.data()) == state["count"]


@pytest.mark.parametrize(("config", "count"), [({"cap_records": 2, "cap_bytes": 10**6}, 2)])
def test_the_cap_that_is_hit_first_evicts(server: Server, config: dict[str, int], count: int) -> None:
    topic = server.topic(**config)
    topic.filled("x" * 1000, "x" * 1000, "x" * 1000)
    assert topic.now()["count"] == count
    topic = server.topic(cap_records=1000, cap_bytes=2500)
    topic.filled("x" * 1000, "x" * 1000, "x" * 1000)
    assert topic.now()["count"] <= 2


def test_a_reader_learns_what_a_cap_took(server: Server) -> None:
    topic = server.topic(cap_records=3)
    topic.filled(*range(10))
    for cursor in range(7):
        page = topic.page(cursor)
        tombstone = page["tombstone"]
        assert set(tombstone) == GONE
        assert (tombstone["gap_from"], tombstone["gap_to"], tombstone["reason"]) == (cursor + 1, 7, "cap")
        assert (tombstone["earliest_seq"], tombstone["head_seq"]) == (8, 10)
        assert 1 <= tombstone["missed_estimate"] <= 7 - cursor
        assert [record["$seq"] for record in page["records"]] == [8, 9, 10]
        assert (page["next_from_seq"], page["caught_up"]) == (10, True)
    for cursor in (7, 8, 10):
        assert topic.page(cursor)["tombstone"] is None


def test_the_gap_is_told_once_and_reading_goes_on(server: Server) -> None:
    topic = server.topic(cap_records=4)
    topic.filled(*range(10))
    first = topic.page(limit=2)
    assert (first["tombstone"]["gap_to"], first["next_from_seq"]) == (6, 8)
    second = topic.page(first["next_from_seq"])
    assert (second["tombstone"], [record["$seq"] for record in second["records"]]) == (None, [9, 10])


def test_expired_records_are_not_delivered(server: Server) -> None:
    topic = server.topic(ttl_ms=400)
    topic.filled("a", "b", tag="t")
    assert topic.data() == ["a", "b"]
    state = expired(topic)
    assert (state["head_seq"], state["earliest_seq"], state["next_seq"], state["bytes"]) == (2, 3, 3, 0)
    page = topic.page()
    assert (page["records"], page["next_from_seq"], page["caught_up"]) == ([], 2, True)
    assert (page["tombstone"]["gap_from"], page["tombstone"]["gap_to"], page["tombstone"]["reason"]) == (1, 2, "ttl")
    assert topic.page(2)["tombstone"] is None
    assert answered(topic.erase(match="t"))["deleted"] == 0
    topic.filled("c")
    page = topic.page(2)
    assert (page["tombstone"], [record["data"] for record in page["records"]]) == (None, ["c"])


def test_each_record_expires_by_its_own_time(server: Server) -> None:
    topic = server.topic(ttl_ms=1500)
    topic.filled("old")
    first = topic.page()["records"][0]["$ts"]
    eventually(lambda: topic.append("tick").json(), lambda _: topic.page()["records"][-1]["$ts"] > first + 700)
    state = eventually(topic.now, lambda state: state["earliest_seq"] > 1)
    assert state["count"] > 0
    page = topic.page()
    assert page["records"][0]["$seq"] == page["tombstone"]["gap_to"] + 1
    assert page["records"][0]["$ts"] > first


def test_a_cap_and_a_ttl_together_are_mixed(server: Server) -> None:
    topic = server.topic(cap_records=2, ttl_ms=400)
    topic.filled(*range(5))
    assert topic.page()["tombstone"]["reason"] == "cap"
    expired(topic)
    tombstone = topic.page()["tombstone"]
    assert (tombstone["gap_from"], tombstone["gap_to"], tombstone["reason"]) == (1, 5, "mixed")


def test_a_change_makes_stored_records_evictable(topic: Topic) -> None:
    topic.filled(*range(6))
    answered(topic.put(cap_records=4))
    topic.filled(6)
    assert topic.data() == [3, 4, 5, 6]
    assert topic.page()["tombstone"]["reason"] == "cap"


def test_a_ttl_that_comes_later_holds_for_stored_records(topic: Topic) -> None:
    topic.filled("a")
    answered(topic.put(ttl_ms=300))
    expired(topic)
    assert topic.page()["tombstone"]["reason"] == "ttl"


def test_what_expired_stays_gone_if_the_ttl_is_raised(server: Server) -> None:
    topic = server.topic(ttl_ms=300)
    topic.filled("a")
    expired(topic)
    answered(topic.put(ttl_ms=0))
    assert topic.data() == []
    assert topic.now()["earliest_seq"] == 2
    assert topic.page()["tombstone"]["reason"] == "ttl"


def test_deleted_records_do_not_count_against_a_cap(server: Server) -> None:
    topic = server.topic(cap_records=3)
    topic.filled("a")
    topic.filled("b", tag="t")
    topic.filled("c")
    answered(topic.erase(match="t"))
    topic.filled("d")
    assert topic.data() == ["a", "c", "d"]
    assert topic.page()["tombstone"] is None


def test_deletes_are_silent_beside_evictions(server: Server) -> None:
    topic = server.topic(cap_records=5)
    topic.filled(*range(8))
    answered(topic.erase(before_seq=6))
    assert topic.now()["earliest_seq"] == 6
    below = topic.page()["tombstone"]
    assert (below["gap_from"], below["gap_to"], below["earliest_seq"]) == (1, 5, 6)
    for cursor in (3, 4, 5):
        page = topic.page(cursor)
        assert (page["tombstone"], page["records"][0]["$seq"]) == (None, 6)


def test_a_full_topic_that_discards_nothing_refuses(server: Server) -> None:
    topic = server.topic(cap_records=3, discard="reject")
    topic.filled("a", "b")
    error = refused(topic.append("c", "d"), 422, "topic_full")
    assert error.get("detail", {}).get("topic", topic.name) == topic.name
    assert topic.data() == ["a", "b"]
    topic.filled("c")
    refused(topic.append("d"), 422, "topic_full")
    state = topic.now()
    assert (state["head_seq"], state["count"], state["earliest_seq"]) == (3, 3, 1)
    answered(topic.erase(before_seq=2))
    assert answered(topic.append("d"))["seqs"] == [4]
    assert topic.data() == ["b", "c", "d"]


def test_a_cap_of_bytes_refuses_too(server: Server) -> None:
    topic = server.topic(cap_bytes=2500, discard="reject")
    topic.filled("x" * 1000)
    topic.filled("x" * 1000)
    refused(topic.append("x" * 1000), 422, "topic_full")
    assert topic.now()["head_seq"] == 2


@pytest.mark.parametrize("config", [{"cap_records": 2}, {"cap_bytes": 1000}], ids=repr)
def test_a_write_that_can_never_fit_is_refused_as_full(server: Server, config: dict[str, int]) -> None:
    topic = server.topic(discard="reject", **config)
    refused(topic.append("x" * 500, "x" * 500, "x" * 500), 422, "topic_full")
    assert topic.now()["head_seq"] == 0


def test_room_returns_when_records_expire(server: Server) -> None:
    topic = server.topic(cap_records=1, ttl_ms=400, discard="reject")
    topic.filled("a")
    refused(topic.append("b"), 422, "topic_full")
    answer = eventually(lambda: topic.append("b"), lambda answer: answer.status_code == 200, within_s=10)
    assert answered(answer)["seqs"] == [2]


def test_a_write_creates_no_topic_that_refuses_it(server: Server) -> None:
    topic = server.unused()
    refused(topic.append("a", "b", config={"cap_records": 1, "discard": "reject"}), 422, "topic_full")
    assert not topic.exists() or topic.now()["head_seq"] == 0


def test_the_floor_never_falls(server: Server) -> None:
    topic = server.topic(cap_records=3)
    floors = []
    for n in range(8):
        topic.filled(n)
        floors.append(topic.now()["earliest_seq"])
    answered(topic.put(cap_records=100))
    floors.append(topic.now()["earliest_seq"])
    assert floors == [1, 1, 1, 2, 3, 4, 5, 6, 6]
