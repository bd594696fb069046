"""Limits of the server (§ 11), on one with small ones (`configurations.py`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import httpx
import pytest

from tests.conformance.topics.client import Server, Topic, answered, at_once, eventually, refused, shown
from tests.conformance.topics.configurations import LIMITS


def throttled(answer: httpx.Response, limit: str) -> None:
    """Checks that a request was refused because of this limit."""
    error = refused(answer, 429, "throttled")
    assert (error["detail"]["limit"], error["detail"]["max"]) == (limit, LIMITS[limit]), shown(answer)
    assert int(answer.headers["retry-after"]) >= 0, shown(answer)


@pytest.fixture
def full(guarded: Server) -> list[Topic]:
    """Returns as many topics as the server may have."""
    return [guarded.topic(type="queue") for _ in range(LIMITS["max_topics"])]


def test_a_server_has_so_many_topics(guarded: Server, full: list[Topic]) -> None:
    absent = guarded.unused()
    throttled(absent.put(), "max_topics")
    throttled(absent.append("a"), "max_topics")
    assert not absent.exists()
    # What is there can be changed, read and written.
    answered(full[0].put(type="queue", ttl_ms=60_000))
    answered(full[0].append("a"))
    answered(full.pop().remove())
    answered(absent.append("a"), 201)
    throttled(guarded.unused().put(), "max_topics")


def test_the_last_place_is_given_once(guarded: Server, full: list[Topic]) -> None:
    answered(full.pop().remove())
    topics = [guarded.unused() for _ in range(3)]
    answers = at_once([topic.put for topic in topics])
    assert sorted(answer.status_code for answer in answers) == [201, 429, 429]


def test_a_refused_dead_letter_topic_loses_no_job(guarded: Server, full: list[Topic]) -> None:
    queue = full[0]
    answered(queue.put(type="queue", max_deliveries=1, dead_letter="absent-dead"))
    queue.filled("job")
    queue.jobs()
    answered(queue.nack([1]))
    queue.claim()
    assert queue.now()["count"] == 1


def test_a_key_has_so_many_streams_and_a_server_too(guarded: Server) -> None:
    queue = guarded.queue()
    path = queue.path + "/work"

    def refusal(key: str) -> httpx.Response:
        return queue.by(key).send("GET", "/work", None, {"Accept": "text/event-stream"}, node="w")

    def opened(streams: ExitStack, key: str) -> int:
        return streams.enter_context(guarded.with_key(key).stream(path, node="w")).status_code

    with ExitStack() as streams:
        assert [opened(streams, key) for key in ("all", "all", "worker")] == [200, 200, 200]
        throttled(refusal("worker"), "max_sse_connections")
        answered(queue.state())
    with ExitStack() as streams:
        for _ in range(2):  # the server may notice late that the streams above were closed
            eventually(lambda: opened(streams, "all"), lambda status: status == 200, within_s=20)
        throttled(refusal("all"), "max_sse_connections_per_key")


def test_a_key_has_so_many_requests_at_once(guarded: Server) -> None:
    topic, most = guarded.topic(), LIMITS["max_inflight_per_key"]
    calls: list[Callable[[], httpx.Response]] = [topic.state, topic.state]
    calls += [partial(topic.by("reader").diff, wait_ms=1500) for _ in range(most + 1)]
    other, another, *waited = at_once(calls)
    answered(other)
    answered(another)
    [refusal] = [answer for answer in waited if answer.status_code != 200]
    throttled(refusal, "max_inflight_per_key")
    answered(topic.by("reader").state())


def test_a_server_holds_so_many_bytes(guarded: Server) -> None:
    topic, text = guarded.topic(), "x" * 1_000_000
    written = 0
    while (answer := topic.append(text)).status_code == 200:
        written += 1
        assert written * len(text) <= LIMITS["max_total_bytes"]
    throttled(answer, "max_total_bytes")
    assert written >= LIMITS["max_total_bytes"] // len(text) // 2
    assert topic.now()["count"] == written
    answered(topic.erase(before_seq=written))
    eventually(lambda: topic.append(text).status_code, lambda status: status == 200, within_s=20)
