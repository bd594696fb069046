"""How a stream of jobs ends: by its door, its slot, its client, its topic or its time; and what becomes of its leases."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from functions.access import parse
from functions.api.context import assemble
from functions.api.door.requests import ENDS_AT
from functions.api.topics import events, jobs
from functions.api.topics.work import Holdings
from headrace.batch import Record
from headrace.clock import SystemClock
from headrace.memory import memory_stores
from headrace.queues.values import Job, Lease
from headrace.settings import Settings
from tests.unit.api.asgi import Server, http_scope
from tests.unit.api.job_stream import QUICK, post, working
from tests.unit.api.topics import T, append, ask


@pytest.fixture
def server() -> Server:
    server = Server()
    ask(server, "PUT", T, {"type": "queue"})
    return server


def test_a_stream_that_ends_by_itself_releases_nothing_and_the_next_one_counts_it() -> None:
    server = Server(settings=QUICK)
    ask(server, "PUT", T, {"type": "queue"})
    append(server, *range(3))

    async def run() -> None:
        async with working(server, "node=w&max=2") as events:
            await events.begin()
            assert [(await events.next() or {})["id"] for _ in range(2)] == ["1", "2"]
            assert await events.next() is None
        assert (await post(server, "claim", node="x", max=1))["claimed"][0]["$seq"] == 3
        await post(server, "nack", node="x", seqs=[3])
        async with working(server, "node=w&max=2", last_event_id="2") as events:
            await events.begin()
            await events.quiet()  # it holds two
            await post(server, "ack", node="w", seqs=[1])
            assert (await events.next() or {})["id"] == "3"

    asyncio.run(run())


def test_a_stream_counts_the_jobs_of_the_one_before_and_no_others_of_its_worker() -> None:
    server = Server(settings=QUICK)
    ask(server, "PUT", T, {"type": "queue"})
    append(server, *range(3))

    async def run() -> None:
        await post(server, "claim", node="w", max=1)
        async with working(server, "node=w&max=1") as events:
            await events.begin()
            assert (await events.next() or {})["id"] == "2"
            assert await events.next() is None
        async with working(server, "node=w&max=2", last_event_id="2") as events:
            await events.begin()
            assert (await events.next() or {})["id"] == "3", "a job that was claimed is not the stream's"

    asyncio.run(run())


def test_a_stream_of_a_topic_that_is_gone_ends_with_an_error(server: Server) -> None:
    async def run() -> None:
        async with working(server, "node=w") as events:
            await events.begin()
            await server.ask("DELETE", T)
            event = await events.next()
            assert event is not None
            assert (event["event"], event["data"]["code"], event["data"]["topic"]) == ("error", 404, "jobs")
            assert event["data"]["error"]
            assert await events.next() is None

    asyncio.run(run())


async def through_lambda(server: Server, query: str, ends_at_ms: int | None) -> bytes:
    """Asks as a Lambda door does; without `ends_at_ms` as the one that buffers."""
    scope = {**http_scope("GET", f"{T}/work?{query}", {}), "aws.event": {}}
    if ends_at_ms is not None:
        scope[ENDS_AT] = ends_at_ms
    sent: list[bytes] = []
    forever = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if not forever.is_set():
            forever.set()
            return {"type": "http.request", "body": b"", "more_body": False}
        return await asyncio.Future()

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    await asyncio.wait_for(server.app(scope, receive, send), 10)
    return b"".join(sent)


def test_a_buffered_door_gives_what_is_there(server: Server) -> None:
    append(server, 1, 2)
    text = asyncio.run(through_lambda(server, "node=w&max=9", None))
    assert text.count(b"event: job") == 2
    assert text.startswith(b"retry: 2000\n\n: hb ")
    assert ask(server, "GET", T).json["queue"]["in_flight"] == 2


def test_a_buffered_door_leases_no_more_than_its_answer_holds(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "BUFFERED_CLAIM_BYTES", 2)
    append(server, 1, 2, 3, 4)
    text = asyncio.run(through_lambda(server, "node=w&max=9", None))
    assert text.count(b"event: job") == 2
    assert ask(server, "GET", T).json["queue"]["in_flight"] == 2, "the others are not leased in vain"


def test_a_stream_ends_before_its_door_closes(server: Server) -> None:
    append(server, 1)
    began = time.monotonic()
    ends_at_ms = server.parts.clock.now_ms() + 300
    assert asyncio.run(through_lambda(server, "node=w", ends_at_ms)).count(b"event: job") == 1
    assert time.monotonic() - began < 2


def test_a_stream_whose_client_nobody_sees_stops_when_a_lease_ends(server: Server) -> None:
    append(server, 1, 2)
    ends_at_ms = server.parts.clock.now_ms() + 60_000
    text = asyncio.run(through_lambda(server, "node=w&lease_ms=100", ends_at_ms))
    assert text.count(b"event: job") == 1
    assert ask(server, "POST", f"{T}/claim", {"node": "x"}).json["claimed"][0]["deliveries"] == 2


def job(seq: int, deadline_ms: int) -> Job:
    return Job(Record(seq - 1, 0, None, b"1"), "lease_1", deadline_ms, 1)


def test_a_lease_that_ended_unheard_is_told_from_one_that_was_settled() -> None:
    held = Holdings()
    held.deliver([job(1, 100), job(2, 100)])
    held.compare({1: Lease(1, "a", 100)}, now_ms=50)  # 2 was acked
    assert (held.deadlines, held.lost_touch) == ({1: 100}, False)
    held.compare({1: Lease(1, "a", 300)}, now_ms=90)  # 1 was extended
    assert (held.deadlines, held.lost_touch) == ({1: 300}, False)
    held.deliver([job(3, 400)])
    held.compare({3: Lease(3, "a", 400)}, now_ms=300)  # 1 has ended
    assert (held.deadlines, held.lost_touch) == ({3: 400}, True)
    held.compare({3: Lease(3, "a", 400)}, now_ms=310)  # nothing was heard
    assert held.lost_touch
    held.compare({}, now_ms=320)  # 3 was acked
    assert (held.deadlines, held.lost_touch) == ({}, False)


class Jump(SystemClock):
    """The machine's clock, which can be set forward."""

    ahead_s = 0.0

    def now_ms(self) -> int:
        return super().now_ms() + round(self.ahead_s * 1000)

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s


def test_a_stream_ends_when_its_slot_expires_however_long_that_took(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Jump()
    server = Server(parts=assemble(memory_stores(Settings(metrics_interval_ms=0), clock), parse("", "*")))
    ask(server, "PUT", T, {"type": "queue"})
    append(server, 1)
    hold = server.parts.slots.hold
    expiries_ms = list[int]()

    async def hold_long(stream: Any, key_id: str, ends_ms: int) -> Any:
        held = await hold(stream, key_id, ends_ms)
        expiries_ms.append(ends_ms)
        clock.ahead_s += 60
        return held

    monkeypatch.setattr(server.parts.slots, "hold", hold_long)
    opened_ms = clock.now_ms()

    async def run() -> None:
        async with working(server, "node=w") as events:
            await events.begin()
            assert (await events.next() or {})["id"] == "1"
            assert await events.next() is None

    asyncio.run(run())
    assert opened_ms <= expiries_ms[0] - 1000 * Settings().sse_seconds <= clock.now_ms() - 60_000


def test_a_stream_that_ended_by_itself_gives_nothing_back_though_the_server_says_that_the_client_has_left(
    server: Server,
) -> None:
    append(server, 1)
    ended = asyncio.Event()
    scope = {**http_scope("GET", f"{T}/work?node=w", {}), ENDS_AT: server.parts.clock.now_ms() + 300}

    async def receive() -> dict[str, Any]:
        await ended.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body" and not message["more_body"]:
            ended.set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(server.app(scope, receive, send), 10))
    assert ended.is_set()
    assert ask(server, "GET", T).json["queue"]["in_flight"] == 1


def test_a_client_that_reads_nothing_keeps_no_stream_beyond_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "LAST_SEND_S", 0.1)
    server = Server(settings=QUICK)
    ask(server, "PUT", T, {"type": "queue"})
    append(server, 1)

    async def receive() -> dict[str, Any]:
        return await asyncio.Future()  # it does not leave either

    async def send(message: Any) -> None:
        if b"event: job" in message.get("body", b""):
            await asyncio.Future()  # as a server does whose buffer is full

    scope = http_scope("GET", f"{T}/work?node=w", {})
    asyncio.run(asyncio.wait_for(server.app(scope, receive, send), 10))
    assert b"topics_sse_connections 0" in server("GET", "/v0/metrics").body
    assert ask(server, "GET", T).json["queue"]["in_flight"] == 1
