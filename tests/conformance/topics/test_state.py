"""GET /v0/topics/:topic and GET /v0/topics: states and lists (§ 1.2, § 1.3, § 0.7)."""

from __future__ import annotations

import time

import pytest

from tests.conformance.topics.client import Server, Topic, answered, refused
from tests.conformance.topics.test_config import DEFAULTS

STATE = {
    *("topic", "type", "head_seq", "earliest_seq", "next_seq", "count", "bytes", "config", "effective_priority"),
    *("last_write_ts", "last_read_ts", "performance"),
}
LISTED = {"topic", "head_seq", "earliest_seq", "count", "bytes", "durable", "effective_priority"}


def test_a_fresh_topic_is_empty(topic: Topic) -> None:
    state = answered(topic.state(touch=False))
    assert set(state) == STATE
    assert (state["topic"], state["type"], state["config"]) == (topic.name, "log", DEFAULTS)
    assert (state["head_seq"], state["earliest_seq"], state["next_seq"]) == (0, 1, 1)
    assert (state["count"], state["bytes"]) == (0, 0)
    assert (state["last_write_ts"], state["last_read_ts"]) == (None, None)


def test_the_state_follows_each_write(topic: Topic) -> None:
    for written in (1, 2, 3):
        topic.filled({"n": written}, {"n": written})
        state = topic.now()
        assert (state["head_seq"], state["earliest_seq"], state["next_seq"]) == (2 * written, 1, 2 * written + 1)
        assert state["count"] == 2 * written
        assert abs(state["last_write_ts"] - time.time() * 1000) < 60_000
    assert topic.now()["bytes"] >= 6 * len('{"n":1}')


def test_bytes_are_of_data_and_meta(topic: Topic) -> None:
    topic.filled("x" * 1000)
    of_data = topic.now()["bytes"]
    topic.filled("x" * 1000, meta={"m": "y" * 1000})
    of_both = topic.now()["bytes"] - of_data
    assert 1000 <= of_data < 1200
    assert 2000 <= of_both < 2400


def test_the_tail_is_read_from_before_the_next_seq(topic: Topic) -> None:
    topic.filled("old")
    tail = topic.now()["next_seq"] - 1
    topic.filled("new")
    assert topic.data(tail) == ["new"]


def test_a_read_is_noticed_and_a_scrape_is_not(topic: Topic) -> None:
    topic.filled(1)
    cold = topic.now()["effective_priority"]
    for _ in range(3):
        assert topic.now()["effective_priority"] == cold
    assert topic.now()["last_read_ts"] is None
    answered(topic.diff())
    state = topic.now()
    assert abs(state["last_read_ts"] - time.time() * 1000) < 60_000
    assert state["effective_priority"] > cold


def test_a_state_read_makes_a_topic_hot(topic: Topic) -> None:
    cold = topic.now()["effective_priority"]
    answered(topic.state())
    assert topic.now()["effective_priority"] > cold


def test_a_manual_priority_is_the_effective_one(server: Server) -> None:
    topic = server.topic(priority=-7)
    answered(topic.state())
    answered(topic.diff())
    assert topic.now()["effective_priority"] == -7
    answered(topic.put(priority=4000))
    assert topic.now()["effective_priority"] == 1000


def test_a_topic_that_is_not_there_is_not_created(server: Server) -> None:
    topic = server.unused()
    for answer in (topic.state(), topic.state(touch=False), topic.diff(), topic.erase(before_seq=2)):
        assert refused(answer, 404, "topic_not_found").get("detail", {"topic": topic.name}) == {"topic": topic.name}
    assert not topic.exists()


def test_touch_is_true_or_false(topic: Topic) -> None:
    refused(topic.state(touch="perhaps"), 400, "invalid_request")


def test_a_queue_has_counters_and_a_log_has_none(server: Server) -> None:
    queue = server.queue("a", "b")
    queue.jobs()
    state = queue.now()
    assert set(state) == STATE | {"queue"}
    assert state["type"] == state["config"]["type"] == "queue"
    assert state["queue"] == {"ready": 1, "in_flight": 1, "dead_lettered": 0}
    assert "queue" not in server.topic().now()


def test_a_listed_topic_has_a_summary(server: Server) -> None:
    log = server.topic(durable=True, priority=5)
    log.filled("a", "b", "c")
    answered(log.erase(before_seq=2))
    [listed] = answered(server.get("/v0/topics", prefix=log.name))["topics"]
    assert set(listed) >= LISTED
    state = log.now()
    assert {name: listed[name] for name in LISTED - {"durable"}} == {
        name: state[name] for name in LISTED - {"durable"}
    }
    assert (listed["durable"], listed["earliest_seq"], listed["count"]) == (True, 2, 2)


def test_lists_are_paged_by_an_opaque_cursor(server: Server) -> None:
    prefix = server.unused("list-").name
    names = sorted(server.topic(f"{prefix}.{n}").name for n in range(5))
    for size, pages in ((2, 3), (5, 1), (100_000, 1)):
        listed: list[str] = []
        cursors: dict[str, str] = {}
        for page in range(1, pages + 1):
            answer = answered(server.get("/v0/topics", prefix=prefix, page_size=size, **cursors))
            assert len(answer["topics"]) <= size
            listed += [topic["topic"] for topic in answer["topics"]]
            assert ("next_cursor" in answer) == (page < pages), (size, page)
            cursors = {"cursor": answer.get("next_cursor", "")}
        assert sorted(listed) == names, size


def test_a_page_has_a_hundred_topics_unless_asked(server: Server) -> None:
    prefix = server.unused("many-").name
    for n in range(101):
        server.topic(f"{prefix}.{n}")
    answer = answered(server.get("/v0/topics", prefix=prefix))
    assert len(answer["topics"]) == 100
    rest = answered(server.get("/v0/topics", prefix=prefix, cursor=answer["next_cursor"]))
    assert (len(rest["topics"]), "next_cursor" in rest) == (1, False)


def test_a_prefix_selects(server: Server) -> None:
    topic = server.topic("pre-")
    assert [found["topic"] for found in answered(server.get("/v0/topics", prefix=topic.name))["topics"]] == [
        topic.name
    ]
    assert answered(server.get("/v0/topics", prefix=topic.name + "x"))["topics"] == []
    assert answered(server.get("/v0/topics", prefix=topic.name.upper()))["topics"] == []


def test_a_list_does_not_touch(topic: Topic) -> None:
    cold = topic.now()["effective_priority"]
    answered(topic.server.get("/v0/topics", prefix=topic.name))
    assert topic.now()["effective_priority"] == cold
    answered(topic.server.get("/v0/topics", prefix=topic.name, touch=True))
    assert topic.now()["effective_priority"] > cold


@pytest.mark.parametrize("cursor", ["x", "!!!", "e30", "eyJhZnRlciI6Nn0=", "AAAA"])
def test_a_corrupt_cursor_is_refused(server: Server, cursor: str) -> None:
    refused(server.get("/v0/topics", cursor=cursor), 400, "invalid_request")


@pytest.mark.parametrize("size", ["many", "1.5", "-1"])
def test_a_page_size_is_a_number(server: Server, size: str) -> None:
    refused(server.get("/v0/topics", page_size=size), 400, "invalid_request")


def test_a_deleted_topic_is_not_listed(topic: Topic) -> None:
    answered(topic.remove())
    assert answered(topic.server.get("/v0/topics", prefix=topic.name))["topics"] == []
