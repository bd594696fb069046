"""The stream of jobs: what it delivers, how many at a time, and what it refuses."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from functions.access import parse
from functions.api.context import assemble
from headrace.errors import Overloaded
from headrace.settings import Settings
from tests.unit.api.asgi import JSON, Server
from tests.unit.api.job_stream import post, working
from tests.unit.api.topics import ROOT, T, append, ask, code


@pytest.fixture
def server() -> Server:
    server = Server()
    ask(server, "PUT", T, {"type": "queue"})
    return server


def test_a_stream_begins_with_its_headers_and_a_heartbeat(server: Server) -> None:
    async def run() -> None:
        async with working(server, "node=w", accept="text/event-stream") as events:
            first = await events.begin()
            retry, heartbeat, _ = first.split("\n\n")
            assert retry == "retry: 2000"
            assert heartbeat.startswith(": hb ")
            assert abs(int(heartbeat[5:]) / 1000 - time.time()) < 60
            assert events.headers["content-type"].startswith("text/event-stream")
            assert events.headers["cache-control"] == "no-store"
            assert events.headers["x-accel-buffering"] == "no"
            assert "content-length" not in events.headers

    asyncio.run(run())


def test_a_job_comes_as_an_event(server: Server) -> None:
    body = b'{"records":[{"data":{ "a":1.50,\r\n"b":"\\n"},"tag":"t","meta":{"m":1}}]}'
    assert server("POST", T, JSON, body).status == 200

    async def run() -> None:
        async with working(server, "node=w") as events:
            await events.begin()
            event = await events.next()
            assert event is not None
            assert (event["id"], event["event"]) == ("1", "job")
            job = event["data"]
            assert set(job) == {"topic", "$seq", "lease_id", "deadline", "$ts", "$tag", "deliveries", "data", "meta"}
            assert (job["topic"], job["$seq"], job["data"], job["deliveries"]) == (
                "jobs",
                1,
                {"a": 1.5, "b": "\n"},
                1,
            )
            done = await post(server, "ack", node="w", seqs=[1], lease_ids=[job["lease_id"]])
            assert done["acked"] == 1

    asyncio.run(run())


@pytest.mark.parametrize(("asked", "lease_ms"), [("&lease_ms=0", 100), ("&lease_ms=200", 200), ("", 30_000)])
def test_the_lease_of_a_stream_is_clamped_as_that_of_a_claim(server: Server, asked: str, lease_ms: int) -> None:
    append(server, 1)

    async def run() -> None:
        async with working(server, f"node=w{asked}") as events:
            await events.begin()
            job = (await events.next() or {})["data"]
            assert lease_ms <= job["deadline"] - job["$ts"] < lease_ms + 10_000

    asyncio.run(run())


def test_a_stream_holds_at_most_its_maximum(server: Server) -> None:
    append(server, *range(5))

    async def run() -> None:
        async with working(server, "node=w&max=2") as events:
            await events.begin()
            assert [(await events.next() or {})["id"] for _ in range(2)] == ["1", "2"]
            await events.quiet()
            await post(server, "ack", node="w", seqs=[2])
            assert (await events.next() or {})["id"] == "3"
            await post(server, "nack", node="w", seqs=[1], delay_ms=60_000)
            assert (await events.next() or {})["id"] == "4"
            await events.quiet()
            await post(server, "extend", node="w", seqs=[3], lease_ms=60_000)
            await events.quiet()

    asyncio.run(run())


def test_a_new_job_is_delivered_at_once(server: Server) -> None:
    async def run() -> None:
        async with working(server, "node=w") as events:
            await events.begin()
            await asyncio.sleep(0.6)  # its looks are a quarter of a second apart by now
            began = time.monotonic()
            await post(server, "", records=[{"data": 1}])
            assert (await events.next() or {})["id"] == "1"
            assert time.monotonic() - began < 0.2

    asyncio.run(run())


def test_jobs_of_another_process_are_delivered_too(server: Server) -> None:
    other = Server(parts=assemble(server.stores, parse("", "*")))

    async def run() -> None:
        async with working(server, "node=w") as events:
            await events.begin()
            await post(other, "", records=[{"data": 1}, {"data": 2}])
            assert (await events.next() or {})["id"] == "1"
            await post(other, "ack", node="w", seqs=[1])
            assert (await events.next() or {})["id"] == "2"

    asyncio.run(run())


def test_a_job_whose_lease_ended_comes_again(server: Server) -> None:
    append(server, 1)

    async def run() -> None:
        async with working(server, "node=w&lease_ms=100") as events:
            await events.begin()
            first, second = await events.next(), await events.next()
            assert first is not None
            assert second is not None
            assert (first["id"], second["id"]) == ("1", "1")
            assert second["data"]["deliveries"] == 2

    asyncio.run(run())


def test_what_a_client_leaves_can_be_claimed_at_once(server: Server) -> None:
    append(server, *range(3))

    async def run() -> Any:
        await post(server, "claim", node="w", max=1)  # by a poll
        async with working(server, "node=w&max=2") as events:
            await events.begin()
            assert [(await events.next() or {})["id"] for _ in range(2)] == ["2", "3"]
        return await post(server, "claim", node="x", max=9)

    claimed = asyncio.run(run())["claimed"]
    assert [(one["$seq"], one["deliveries"]) for one in claimed] == [(2, 2), (3, 2)]


@pytest.mark.parametrize(
    ("query", "headers", "expected"),
    [
        ("", {}, (400, "invalid_request")),
        ("node=", {}, (400, "invalid_request")),
        ("node=" + "x" * 129, {}, (400, "invalid_request")),
        ("node=w&max=0", {}, (400, "invalid_request")),
        ("node=w&max=x", {}, (400, "invalid_request")),
        ("node=w&max=-1", {}, (400, "invalid_request")),
        ("node=w&lease_ms=x", {}, (400, "invalid_request")),
        ("node=w&node=x", {}, (400, "invalid_request")),
        ("node=w", {"accept": "application/json"}, (406, "not_acceptable")),
    ],
)
def test_a_malformed_request_opens_no_stream(
    server: Server, query: str, headers: dict[str, str], expected: tuple[int, str]
) -> None:
    assert code(server("GET", f"{T}/work?{query}", headers)) == expected


def test_only_queues_have_streams(server: Server) -> None:
    append(server, 1, topic="log")
    assert code(server("GET", f"{ROOT}/absent/work?node=w")) == (404, "topic_not_found")
    assert code(server("GET", f"{ROOT}/log/work?node=w")) == (409, "not_a_queue")


def test_open_streams_are_limited_and_counted() -> None:
    server = Server(settings=Settings(metrics_interval_ms=0, max_sse_connections=1))
    ask(server, "PUT", T, {"type": "queue"})
    append(server, 1)

    async def run() -> None:
        async with working(server, "node=w") as events:
            await events.begin()
            assert b"topics_sse_connections 1" in (await server.ask("GET", "/v0/metrics")).body
            refused = await server.ask("GET", f"{T}/work?node=x")
            assert code(refused) == (429, "throttled")
            assert refused.json["error"]["detail"] == {"limit": "max_sse_connections", "max": 1}
            assert refused.headers["retry-after"]
        assert b"topics_sse_connections 0" in (await server.ask("GET", "/v0/metrics")).body
        async with working(server, "node=x") as events:
            await events.begin()
            assert (await events.next() or {})["id"] == "1"

    asyncio.run(run())


def test_a_throttled_stream_rests(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise Overloaded("too much", 5)

    monkeypatch.setattr(server.parts.topics(), "begin_claim", refuse)

    async def run() -> None:
        async with working(server, "node=w") as events:
            await events.begin()
            assert (await events.next() or {})["data"] == {
                "code": 429,
                "error": "too much",
                "topic": "jobs",
                "retry_after_ms": 5000,
            }
            await events.quiet()

    asyncio.run(run())


def test_a_stream_that_finds_nothing_joins_no_window(server: Server) -> None:
    ask(server, "PUT", T, {"type": "queue", "claim_jitter_ms": 20})

    async def run() -> None:
        async with working(server, "node=w") as events:
            await events.begin()
            await events.quiet()  # the first claim reads all there is
            before = server.dump()[0]
            await events.quiet()
            assert server.dump()[0] == before
            await post(server, "", records=[{"data": 1}])
            assert (await events.next() or {})["id"] == "1"

    asyncio.run(run())
