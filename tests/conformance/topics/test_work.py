"""GET /v0/topics/:q/work: jobs pushed over SSE (§ 10.8)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx
import pytest

from tests.conformance.topics.client import SSE, Server, Topic, answered, eventually, refused, shown
from tests.conformance.topics.events import blocks_of


class Frame(NamedTuple):
    """A frame of SSE: the fields that it has, its comments under an empty name."""

    fields: dict[str, str]

    @property
    def job(self) -> dict[str, Any]:
        assert self.fields.get("event") == "job", self.fields
        found: dict[str, Any] = json.loads(self.fields["data"])
        return found


@contextmanager
def working(queue: Topic, node: str = "w", **params: object) -> Iterator[Iterator[Frame]]:
    """Opens a stream; yields its frames without the heading, which must be right."""
    with queue.server.stream(queue.path + "/work", SSE, node=node, **params) as answer:
        if answer.status_code != 200:
            answer.read()
        assert answer.status_code == 200, shown(answer)
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-accel-buffering"] == "no"
        frames = map(Frame, blocks_of(answer))
        heading = next(frames).fields
        if heading == {"retry": "2000"}:
            heading |= next(frames).fields
        assert heading["retry"] == "2000"
        kind, _, at = heading[""].partition(" ")
        assert kind == "hb"
        assert abs(int(at) - time.time() * 1000) < 60_000
        yield frames


def job_of(frames: Iterator[Frame]) -> dict[str, Any]:
    """Returns the next job; heartbeats are passed over."""
    return next(frame.job for frame in frames if set(frame.fields) != {""})


def test_jobs_are_pushed(server: Server) -> None:
    queue = server.queue(lease_ms=7000)
    queue.filled({"n": 1.0}, tag="t", meta={"m": 1})
    queue.filled("b")
    with working(queue, max=2) as frames:
        frame = next(frame for frame in frames if "event" in frame.fields)
        assert set(frame.fields) == {"id", "event", "data"}
        assert frame.fields["id"] == "1"
        job = frame.job
        plain = job_of(frames)
    assert set(plain) == {"topic", "$seq", "lease_id", "deadline", "$ts", "deliveries", "data"}
    assert set(job) == set(plain) | {"$tag", "meta"}
    assert (job["topic"], job["$seq"], job["$tag"], job["meta"], job["data"]) == (
        queue.name,
        1,
        "t",
        {"m": 1},
        {"n": 1},
    )
    assert '{"n":1.0}' in frame.fields["data"]
    assert (job["deliveries"], plain["$seq"], plain["data"]) == (1, 2, "b")
    assert abs(job["deadline"] - time.time() * 1000 - 7000) < 5000


def test_at_most_as_many_jobs_as_asked_are_in_flight(queue: Topic) -> None:
    with working(queue, max=2) as frames:
        assert [job_of(frames)["$seq"] for _ in range(2)] == [1, 2]
        assert queue.counters() == {"ready": 3, "in_flight": 2, "dead_lettered": 0}
        assert answered(queue.ack([1]))["acked"] == 1
        assert job_of(frames)["$seq"] == 3
        answered(queue.ack([2, 3]))
        assert [job_of(frames)["$seq"] for _ in range(2)] == [4, 5]
        assert queue.counters() == {"ready": 0, "in_flight": 2, "dead_lettered": 0}


def test_a_stream_holds_one_job_unless_asked(queue: Topic) -> None:
    with working(queue) as frames:
        assert job_of(frames)["$seq"] == 1
        answered(queue.ack([1]))
        assert job_of(frames)["$seq"] == 2
        assert queue.counters() == {"ready": 3, "in_flight": 1, "dead_lettered": 0}


def test_jobs_that_come_later_are_pushed(server: Server) -> None:
    queue = server.queue()
    with working(queue, max=5) as frames:
        for n in range(3):
            queue.filled(n)
            job = job_of(frames)
            assert (job["$seq"], job["data"]) == (n + 1, n)


def test_a_nacked_job_comes_back(queue: Topic) -> None:
    with working(queue) as frames:
        job = job_of(frames)
        answered(queue.nack([job["$seq"]], lease_ids=[job["lease_id"]]))
        again = job_of(frames)
        assert (again["$seq"], again["deliveries"]) == (1, 2)


def test_a_lease_of_a_stream_has_the_length_that_it_asked_for(queue: Topic) -> None:
    with working(queue, lease_ms=50_000) as frames:
        job = job_of(frames)
        assert abs(job["deadline"] - time.time() * 1000 - 50_000) < 5000
        asked = time.time() * 1000
        longer = answered(queue.extend([job["$seq"]], lease_ms=80_000))["deadlines"]["1"]
        assert abs(longer - asked - 80_000) < 5000


def test_a_disconnect_releases_what_the_stream_delivered(queue: Topic) -> None:
    [polled] = queue.seqs("w", lease_ms=60_000)
    with working(queue, max=3, lease_ms=60_000) as frames:
        assert [job_of(frames)["$seq"] for _ in range(3)] == [2, 3, 4]
    counters = eventually(queue.counters, lambda counters: counters["in_flight"] == 1, within_s=10)
    assert counters["ready"] == 4
    assert [(job["$seq"], job["deliveries"]) for job in queue.jobs("b", max=5)] == [(2, 2), (3, 2), (4, 2), (5, 1)]
    assert answered(queue.ack([polled]))["acked"] == 1


def test_two_streams_share_the_jobs(server: Server) -> None:
    queue = server.queue()
    with working(queue, "a", max=3) as first, working(queue, "b", max=3) as second:
        queue.filled(*range(6))
        seqs = [job_of(frames)["$seq"] for frames in (first, second) for _ in range(3)]
    assert sorted(seqs) == [1, 2, 3, 4, 5, 6]


def test_a_stream_ends_when_its_topic_is_a_log(server: Server) -> None:
    queue = server.queue()
    with working(queue) as frames:
        answered(queue.remove())
        answered(queue.put(), 201)
        last = [frame for frame in frames if "event" in frame.fields]
    assert last[-1].fields["event"] == "error"
    assert json.loads(last[-1].fields["data"])["code"] in (404, 409)


def test_a_stream_is_refused_before_it_opens(queue: Topic) -> None:
    def send(topic: Topic = queue, accept: str = "text/event-stream", **params: object) -> httpx.Response:
        return topic.send("GET", "/work", None, {"Accept": accept}, **params)

    refused(send(), 400, "invalid_request")
    for most in ("many", 0, -1, 1.5):
        refused(send(node="w", max=most), 400, "invalid_request")
    refused(send(node="w", lease_ms="long"), 400, "invalid_request")
    refused(send(node="n" * 129), 400, "invalid_request")
    refused(send(node="w", accept="application/json"), 406, "not_acceptable")
    refused(send(queue.server.unused(), node="w"), 404, "topic_not_found")
    refused(send(queue.server.topic(), node="w"), 409, "not_a_queue")
    assert queue.counters()["in_flight"] == 0


@pytest.mark.parametrize("most", [1000, 10**6])
def test_the_depth_is_clamped(server: Server, most: int) -> None:
    queue = server.queue("a")
    with working(queue, max=most) as frames:
        assert job_of(frames)["$seq"] == 1
