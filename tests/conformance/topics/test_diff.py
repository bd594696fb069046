"""POST /v0/topics/:topic/diff: reads (§ 3), and the filter by node (§ 4.5)."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tests.conformance.topics.client import Server, Topic, answered, at_once, refused

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def long(server: Server) -> Topic:
    """Returns a topic of 1,100 records, which begins to be sealed after a second. Tests only read it."""
    topic = server.topic()
    for first in range(0, 1100, 100):
        topic.filled(*range(first, first + 100), tag="t", node="n", meta={"m": 1})
    return topic


def numbers(page: dict[str, Any]) -> list[int]:
    return [record["$seq"] for record in page["records"]]


def test_the_answer_to_a_read(topic: Topic) -> None:
    topic.filled("a", "b", "c")
    page = topic.page(1, limit=1)
    performance = page.pop("performance")
    assert performance["records_scanned"] >= 1
    [record] = page.pop("records")
    assert (record["$seq"], record["data"]) == (2, "b")
    assert page == {
        "topic": topic.name,
        "next_from_seq": 2,
        "head_seq": 3,
        "earliest_seq": 1,
        "caught_up": False,
        "tombstone": None,
        "lag": 1,
    }


def test_a_cursor_is_exclusive(topic: Topic) -> None:
    topic.filled("a", "b", "c")
    assert [topic.data(cursor) for cursor in range(4)] == [["a", "b", "c"], ["b", "c"], ["c"], []]


def test_nothing_is_needed_in_the_body(topic: Topic) -> None:
    topic.filled("a")
    assert numbers(answered(topic.send("POST", "/diff", {}))) == [1]
    assert numbers(answered(topic.send("POST", "/diff"))) == [1]


def test_a_drained_reader_is_caught_up(topic: Topic) -> None:
    assert (topic.page()["caught_up"], topic.page()["next_from_seq"]) == (True, 0)
    topic.filled("a", "b")
    page = topic.page()
    assert (page["next_from_seq"], page["head_seq"], page["caught_up"], page["lag"]) == (2, 2, True, 0)
    page = topic.page(2)
    assert (page["records"], page["next_from_seq"], page["caught_up"]) == ([], 2, True)


@pytest.mark.parametrize(("limit", "most"), [(None, 256), (0, 256), (1, 1), (300, 300), (1000, 1000), (10**6, 1000)])
def test_a_limit_has_a_default_and_is_clamped(long: Topic, limit: int | None, most: int) -> None:
    page = long.page(50, **({} if limit is None else {"limit": limit}))
    assert numbers(page) == list(range(51, 51 + most))
    assert (page["next_from_seq"], page["lag"], page["caught_up"]) == (50 + most, 1050 - most, False)


def test_pages_follow_each_other(long: Topic) -> None:
    assert long.data(limit=333) == list(range(1100))


def test_readers_at_once_read_the_same(long: Topic) -> None:
    pages = at_once([lambda: long.page(700, limit=300, include_tags=True)["records"]] * 4)
    assert all(page == pages[0] for page in pages)
    assert [record["$seq"] for record in pages[0]] == list(range(701, 1001))


def test_tags_are_shown_if_asked_and_meta_unless_refused(topic: Topic) -> None:
    topic.filled("a", tag="t", node="n", meta={"m": 1})
    for asked, expected in [
        ({}, {"$node", "meta"}),
        ({"include_tags": True}, {"$node", "$tag", "meta"}),
        ({"include_meta": False}, {"$node"}),
        ({"include_tags": True, "include_meta": False}, {"$node", "$tag"}),
    ]:
        [record] = topic.page(**asked)["records"]
        assert set(record) - {"$seq", "$ts", "data"} == expected, asked


def test_a_node_does_not_read_its_own_records(topic: Topic) -> None:
    for node in ("a", "b", "c", "a"):
        topic.filled(node, node=node)
    topic.filled("none")
    assert topic.data(node="a") == ["b", "c", "none"]
    assert topic.data(node=["a", "b"]) == ["c", "none"]
    assert topic.data(node=["a", "b", "c"]) == ["none"]
    assert topic.data(node=[]) == ["a", "b", "c", "a", "none"]
    assert topic.data() == ["a", "b", "c", "a", "none"]


def test_nodes_are_equal_only_byte_by_byte(topic: Topic) -> None:
    topic.filled("x", node="worker")
    for node in ("work", "worker ", "Worker", "workers", "", "*", "worker*"):
        assert topic.data(node=node) == ["x"], node


def test_a_cursor_moves_past_what_is_filtered(topic: Topic) -> None:
    topic.filled(*range(10), node="mine")
    page = topic.page(node="mine")
    assert (page["records"], page["next_from_seq"], page["caught_up"]) == ([], 10, True)
    assert (page["tombstone"], page["lag"]) == (None, 0)
    topic.filled("other")
    page = topic.page(3, node="mine")
    assert (numbers(page), page["next_from_seq"]) == ([11], 11)


def test_what_is_filtered_does_not_count_against_the_limit_of_progress(topic: Topic) -> None:
    topic.filled(*range(6), node="mine")
    topic.filled("last")
    assert topic.data(node="mine", limit=2) == ["last"]


def test_the_filter_can_be_turned_off(server: Server) -> None:
    topic = server.topic(dedupe_node=False)
    topic.filled("a", node="mine")
    assert topic.data(node="mine") == ["a"]
    answered(topic.put())
    assert topic.data(node="mine") == []


@pytest.mark.parametrize("budget", [1, 150_000, 250_000])
def test_a_page_stops_at_its_bytes_but_has_a_record(topic: Topic, budget: int) -> None:
    texts = [letter * 100_000 for letter in "abcd"]
    topic.filled(*texts)
    page = topic.page(max_batch_bytes=budget)
    assert 1 <= len(page["records"]) <= 1 + budget // 100_000
    assert page["next_from_seq"] == len(page["records"])
    assert topic.data(max_batch_bytes=budget) == texts


@pytest.mark.parametrize(("budget", "most"), [(None, MIB), (0, MIB), (2**31, 8 * MIB)])
def test_the_bytes_of_a_page_have_a_default_and_a_bound(server: Server, budget: int | None, most: int) -> None:
    topic, text = server.topic(), "x" * 990_000
    fitting = most // len(text)
    for _ in range(fitting + 2):
        topic.filled(text)
    page = topic.page(**({} if budget is None else {"max_batch_bytes": budget}))
    assert fitting <= len(page["records"]) <= fitting + 1
    assert (page["next_from_seq"], page["caught_up"]) == (len(page["records"]), False)


def test_a_wait_ends_with_a_record(topic: Topic) -> None:
    topic.filled("old")
    writer = threading.Timer(0.3, lambda: topic.filled("new"))
    writer.start()
    started = time.monotonic()
    page = topic.page(1, wait_ms=20_000)
    took = time.monotonic() - started
    writer.join()
    assert [record["data"] for record in page["records"]] == ["new"]
    assert 0.2 < took < 10


def test_a_wait_ends_with_its_time(topic: Topic) -> None:
    started = time.monotonic()
    page = topic.page(wait_ms=300)
    assert time.monotonic() - started >= 0.25
    assert (page["records"], page["caught_up"], page["next_from_seq"]) == ([], True, 0)


def test_nothing_waits_while_there_are_records(topic: Topic) -> None:
    topic.filled("a")
    started = time.monotonic()
    assert topic.page(wait_ms=10**9)["records"]
    assert time.monotonic() - started < 10


BAD = [
    {"from_seq": -1},
    {"from_seq": "1"},
    {"from_seq": 1.5},
    {"from_seq": 2**64},
    {"from_seq": True},
    {"limit": -1},
    {"limit": "many"},
    {"wait_ms": -1},
    {"wait_ms": None},
    {"max_batch_bytes": -1},
    {"node": 7},
    {"node": [7]},
    {"node": {}},
    {"include_tags": "yes"},
    {"include_meta": 1},
]


def test_a_bad_read_is_refused(topic: Topic) -> None:
    for body in BAD:
        refused(topic.send("POST", "/diff", body), 400, "invalid_request")


def test_a_read_changes_nothing(topic: Topic) -> None:
    topic.filled("a", "b")
    before = topic.now()
    for _ in range(3):
        assert topic.data() == ["a", "b"]
    after = topic.now()
    noticed = {"last_read_ts", "effective_priority", "performance"}
    assert {k: v for k, v in after.items() if k not in noticed} == {
        k: v for k, v in before.items() if k not in noticed
    }


def test_a_cursor_beyond_the_head_is_of_another_topic(topic: Topic) -> None:
    topic.filled("a", "b")
    page = topic.page(99)
    assert page["tombstone"]["reason"] == "recreated"
    assert numbers(page) == [1, 2]
