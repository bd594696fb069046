"""The stream of jobs: what it delivers, how many at a time, when it ends, and what becomes of its leases."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from functions.api.context import assemble
from functions.api.door.access import parse
from functions.api.door.requests import ENDS_AT
from functions.api.topics import jobs, work
from functions.api.topics.work import Holdings
from headrace.batch import Record
from headrace.clock import SystemClock
from headrace.errors import Overloaded
from headrace.memory import memory_stores
from headrace.queues.values import Job, Lease
from headrace.settings import Settings
from tests.unit.api.asgi import JSON, Exchange, Server, http_scope, text_headers
from tests.unit.api.topics import ROOT, T, append, ask, code

QUICK = Settings(metrics_interval_ms=0, sse_seconds=1)


@pytest.fixture
def server() -> Server:
    server = Server()
    ask(server, "PUT", T, {"type": "queue"})
    return server


async def post(server: Server, what: str, **body: Any) -> Any:
    answer = await server.ask("POST", f"{T}/{what}".rstrip("/"), JSON, json.dumps(body).encode())
    assert answer.status < 300, answer.body
    return answer.json


class Events:
    """The events of a stream, as a browser would read them."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.headers: dict[str, str] = {}
        self._text = ""

    async def begin(self) -> str:
        """Reads the beginning of the answer, and returns its first chunk."""
        start = await self.exchange.next()
        assert start["status"] == 200
        self.headers = text_headers(start)
        return str((await self.exchange.next())["body"].decode())

    async def next(self, within_s: float = 5) -> dict[str, Any] | None:
        """Returns the next event that is no comment, its data parsed; None at the end of the stream."""
        while "\n\n" not in self._text:
            message = await self.exchange.next(within_s)
            self._text += message["body"].decode()
            if not message["more_body"]:
                return None
        block, self._text = self._text.split("\n\n", 1)
        if block.startswith(":"):
            return await self.next(within_s)
        fields: dict[str, str] = {}
        for line in block.split("\n"):
            name, _, value = line.partition(": ")
            fields[name] = fields[name] + "\n" + value if name in fields else value
        return {**fields, "data": json.loads(fields["data"])}

    async def quiet(self, for_s: float = 0.3) -> None:
        """Checks that no event comes for a while."""
        with pytest.raises(TimeoutError):
            await self.next(for_s)


@asynccontextmanager
async def working(server: Server, query: str, **headers: str) -> AsyncIterator[Events]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with server.exchange("GET", f"{T}/work?{query}", named) as exchange:
        yield Events(exchange)


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


def test_a_client_that_reads_nothing_keeps_no_stream_beyond_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "LAST_SEND_S", 0.1)
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
