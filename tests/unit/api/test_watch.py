"""The stream of a watch at its door: how it ends, what slow clients and failing stores get, and what logs show."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

import pytest

from functions.access import parse
from functions.api.context import assemble
from functions.api.door.requests import ENDS_AT
from functions.api.topics import events, watch
from headrace.errors import Damaged, StoreThrottled
from headrace.memory import memory_stores
from headrace.settings import Settings
from headrace.tables.sessions import MemorySessions
from headrace.topics.verbs import Topics
from headrace.wal.memory import MemoryWal
from tests.unit.api.asgi import JSON, Answer, Exchange, Server, http_scope
from tests.unit.api.job_stream import Events
from tests.unit.topics.world import write

QUICK = Settings(metrics_interval_ms=0, sse_seconds=2)


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs an asynchronous test."""

    @wraps(test)
    def run(*args: Any, **options: Any) -> None:
        asyncio.run(test(*args, **options))

    return run


async def post(server: Server, path: str, body: object, key: str | None = None) -> Any:
    answer = await server.ask("POST", path, JSON, json.dumps(body).encode(), key)
    assert answer.status < 300, answer.body
    return answer.json


async def append(server: Server, name: str, *data: object) -> None:
    await post(server, f"/v0/topics/{name}", {"records": [{"data": one} for one in data]})


async def create(server: Server, *names: str, key: str | None = None, **options: object) -> str:
    body = {"topics": {name: {} for name in names}, **options}
    return str((await post(server, "/v0/watch", body, key))["stream_url"])


@asynccontextmanager
async def opened(server: Server, path: str, **headers: str) -> AsyncIterator[Events]:
    async with server.exchange(
        "GET", path, {name.replace("_", "-"): value for name, value in headers.items()}
    ) as one:
        events = Events(one)
        assert await events.begin() == "retry: 2000\n\n"
        yield events


def seqs(event: dict[str, Any] | None) -> list[int]:
    assert event is not None
    return [record["$seq"] for record in event["data"]["records"]]


@in_a_loop
async def test_a_stream_ends_with_its_time_and_the_next_goes_on() -> None:
    server = Server(settings=QUICK)
    await append(server, "t", "a")
    path = await create(server, "t")
    async with opened(server, path) as first:
        assert seqs(await first.next()) == [1]
        assert (await first.next() or {})["event"] == "caught-up"
        assert await first.next() is None
    assert b"topics_watch_sessions 1\n" in (await server.ask("GET", "/v0/metrics")).body
    await append(server, "t", "b")
    async with opened(server, path) as second:
        assert seqs(await second.next()) == [2]


@in_a_loop
async def test_a_stream_ends_before_its_door_does() -> None:
    server = Server(settings=Settings(metrics_interval_ms=0, sse_seconds=3600))
    await append(server, "t", "a")
    path = await create(server, "t")
    scope = {**http_scope("GET", path, {}), ENDS_AT: server.parts.clock.now_ms() + 400}
    exchange = Exchange([b""])
    exchange.task = asyncio.ensure_future(server.app(scope, exchange.receive, exchange.send))
    read = Events(exchange)
    await read.begin()
    assert seqs(await read.next()) == [1]
    await read.next()
    assert await read.next(within_s=2) is None
    await exchange.task
    row = server.stores.sessions.part("watch", path.rpartition("/")[2])
    assert row is not None
    assert row.expires_ms <= server.parts.clock.now_ms() + 300_000
    async with opened(server, path) as later:
        assert (await later.next() or {})["event"] == "caught-up", "it was saved"


@in_a_loop
async def test_an_event_that_was_not_sent_is_sent_by_the_next_stream() -> None:
    """Cursors are saved after the send (hazard: cursor saved before the flush)."""
    server = Server(settings=QUICK)
    await append(server, "t", "a")
    await append(server, "u", "b")
    path = await create(server, "t", "u")
    sent: list[bytes] = []

    async def send(message: Any) -> None:
        if b"event: record" in message.get("body", b"") and any(b"event: record" in one for one in sent):
            raise OSError("the connection is gone")
        sent.append(message.get("body", b""))

    exchange = Exchange([b""])
    with pytest.raises(OSError, match="gone"):
        await server.app(http_scope("GET", path, {}), exchange.receive, send)
    got = "t" if b'"t"' in b"".join(sent) else "u"
    async with opened(server, path) as read:
        found = [await read.next() for _ in range(3)]
    again = [one["data"]["topic"] for one in found if one is not None and one["event"] == "record"]
    assert again == ["u" if got == "t" else "t"]


@in_a_loop
async def test_a_client_that_reads_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch.WatchStream, "slow_s", 0.2)
    monkeypatch.setattr(events, "LAST_SEND_S", 0.1)
    server = Server(settings=Settings(metrics_interval_ms=0, sse_seconds=3600))
    await append(server, "t", "a")
    path = await create(server, "t")
    last: list[bytes] = []

    async def send(message: Any) -> None:
        if b"event: record" in message.get("body", b""):
            await asyncio.Future()  # as a server does whose buffer is full
        last.append(message.get("body", b""))

    exchange = Exchange([b""])
    await asyncio.wait_for(server.app(http_scope("GET", path, {}), exchange.receive, send), 5)
    assert b'event: error\ndata: {"code":408' in last[-1]
    async with opened(server, path) as read:
        assert seqs(await read.next()) == [1]


@in_a_loop
async def test_records_that_wait_for_a_slow_client_come_in_fewer_frames() -> None:
    server = Server(settings=QUICK)
    await append(server, "t", "a")
    path = await create(server, "t")
    gate, blocked, bodies = asyncio.Event(), asyncio.Event(), []

    async def send(message: Any) -> None:
        body = message.get("body", b"")
        bodies.append(body)
        if b"event: record" in body and not gate.is_set():
            blocked.set()
            await gate.wait()

    exchange = Exchange([b""])
    task = asyncio.ensure_future(server.app(http_scope("GET", path, {}), exchange.receive, send))
    await asyncio.wait_for(blocked.wait(), 5)
    for number in range(5):
        await append(server, "t", number)
    gate.set()
    await asyncio.wait_for(task, 5)
    assert [body.count(b'"$seq"') for body in bodies if b"event: record" in body] == [1, 5]


@in_a_loop
async def test_a_throttled_store_is_told_and_the_stream_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_REST_S", 0.1)
    server = Server(settings=QUICK)
    await append(server, "t", "a")
    wal = server.stores.wal
    assert isinstance(wal, MemoryWal)
    async with opened(server, await create(server, "t")) as read:
        assert seqs(await read.next()) == [1]
        await read.next()
        with monkeypatch.context() as patch:

            def throttled(*_: object, **__: object) -> None:
                raise StoreThrottled("slow down")

            patch.setattr(wal, "read", throttled)
            error = await read.next()
        assert error is not None
        assert (error["event"], error["data"]["code"], error["data"]["topics"]) == ("error", 429, ["t"])
        assert error["data"]["retry_after_ms"] == 1000
        assert "id" not in error
        await append(server, "t", "b")
        while (event := await read.next()) is not None and event["event"] == "error":
            pass
        assert seqs(event) == [2]


@in_a_loop
async def test_a_damaged_topic_ends_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(settings=QUICK)
    await append(server, "t", "a")
    async with opened(server, await create(server, "t")) as read:
        await read.next()
        await read.next()

        def broken(*_: object, **__: object) -> None:
            raise Damaged("secret")

        monkeypatch.setattr(server.stores.wal, "read", broken)
        error = await read.next()
        assert error is not None
        assert (error["event"], error["data"]["code"]) == ("error", 500)
        assert "secret" not in str(error)
        assert await read.next() is None


@in_a_loop
async def test_a_session_that_vanished_ends_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_CHECK_S", 0.2)
    server = Server(settings=QUICK)
    await append(server, "t", "a")
    async with opened(server, await create(server, "t")) as read:
        await read.next()
        await read.next()
        sessions = server.stores.sessions
        assert isinstance(sessions, MemorySessions)
        sessions.rows.clear()
        error = await read.next()
        assert error is not None
        assert (error["event"], error["data"]["code"]) == ("error", 410)
        assert await read.next() is None


@pytest.mark.parametrize(("left", "code"), [("other", 401), ("k:read:u", 403)])
@in_a_loop
async def test_a_key_that_may_no_longer_read_ends_its_stream_at_the_next_event(left: str, code: int) -> None:
    server = Server("k,other", QUICK)
    await post(server, "/v0/topics/t", {"records": [{"data": 1}]}, "k")
    async with opened(server, await create(server, "t", key="k"), authorization="Bearer k") as read:
        assert seqs(await read.next()) == [1]
        await read.next()
        server.parts.access.grants = parse(left).grants
        write(Topics(server.stores), "t", b"2")
        error = await read.next()
        assert error is not None
        assert (error["event"], error["data"]["code"]) == ("error", code)
        assert await read.next() is None


@in_a_loop
async def test_a_buffered_door_answers_with_what_is_there() -> None:
    server = Server(settings=QUICK)
    for name in "tu":
        await append(server, name, *range(3))
    path = await create(server, "t", "u", limit=2)

    async def answer(**headers: str) -> Answer:
        scope = {**http_scope("GET", path, {k.replace("_", "-"): v for k, v in headers.items()}), "aws.event": {}}
        exchange = Exchange([b""])
        exchange.task = asyncio.ensure_future(server.app(scope, exchange.receive, exchange.send))
        found = await exchange.answer()
        await exchange.task
        return found

    body = (await answer()).body.decode()
    assert (body.count("event: record"), body.count("event: caught-up")) == (4, 2)
    assert "event: record" not in (await answer()).body.decode(), "the session has it"
    first = body.split("id: ")[1].split("\n")[0]
    assert (await answer(last_event_id=first)).body.decode().count('"$seq"') == 4, "unless the client has not"


def test_no_log_shows_a_token(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        stores = memory_stores(QUICK)
        server = Server(parts=assemble(stores, parse("secret-key", "*")))
        await post(server, "/v0/topics/t", {"records": [{"data": 1}]}, "secret-key")
        path = await create(server, "t", key="secret-key")
        scope = http_scope("GET", f"{path}?token=secret-key", {})
        exchange = Exchange([b""])
        exchange.task = asyncio.ensure_future(server.app(scope, exchange.receive, exchange.send))
        read = Events(exchange)
        await read.begin()
        assert seqs(await read.next()) == [1]
        assert b"secret-key" not in scope["query_string"]
        exchange.disconnect()
        await exchange.task
        refusal = await server.ask("GET", f"{path}?token=wrong-key")
        assert refusal.status == 401

    with caplog.at_level(logging.DEBUG):
        asyncio.run(run())
    assert "secret-key" not in caplog.text
    assert "wrong-key" not in caplog.text


@in_a_loop
async def test_a_ring_that_was_lost_is_healed() -> None:
    """Another process appends, and no relay rings: the topic is read in its turn."""
    server = Server(settings=Settings(metrics_interval_ms=0, sse_seconds=3600))
    names = [f"t{number}" for number in range(12)]
    for name in names:
        await append(server, name, "a")
    other = Server(parts=assemble(server.stores, parse("", "*")))
    async with opened(server, await create(server, *names)) as read:
        for _ in range(24):
            await read.next()
        for name in names[::5]:
            await append(other, name, "b")
        found = [await read.next() for _ in range(3)]
        assert sorted(event["data"]["topic"] for event in found if event is not None) == ["t0", "t10", "t5"]
        assert all(seqs(event) == [2] for event in found)


@pytest.mark.parametrize(
    ("topics", "a_second"),
    [
        (1, {"wal.read": 4, "sessions.part": 0.5}),
        (8, {"wal.read": 32, "sessions.part": 0.5}),
        (1000, {"wal.read": 12, "sessions.part": 0.5, "sessions.peek_bell": 4}),
    ],
)
@in_a_loop
async def test_what_an_idle_stream_reads(
    topics: int, a_second: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of up to 8 topics four times a second; of more the bell, and twelve topics in turn (docs/benchmarks.md). Each is
    a call to AWS. Every other second it looks for a newer stream, in place of a topic if there are many.
    """
    server = Server(settings=Settings(metrics_interval_ms=0, sse_seconds=3600, max_watch_topics=1000))
    names = [f"t{number}" for number in range(topics)]
    for name in names:
        await append(server, name, "a")
    calls = Counter[str]()

    def counted(plain: Callable[..., Any], what: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            calls[what] += 1
            return plain(*args, **options)

        return call

    for port in ("wal", "sessions", "follows", "catalog", "watermarks", "producers", "objects"):
        store = getattr(server.stores, port)
        for name, plain in inspect.getmembers(store, inspect.ismethod):
            if not name.startswith("_"):
                monkeypatch.setattr(store, name, counted(plain, f"{port}.{name}"))
    async with opened(server, await create(server, *names, limit=1)) as read:
        caught_up = 0
        while caught_up < topics:
            caught_up += (await read.next() or {})["event"] == "caught-up"
        await read.quiet(1.5)
        before, began = calls.copy(), server.parts.clock.monotonic()
        await read.quiet(3)
        took_s = server.parts.clock.monotonic() - began
        made = calls - before
    assert made.keys() <= a_second.keys(), made
    assert all(made[what] <= most * took_s + 2 for what, most in a_second.items()), (made, took_s)
    assert made["wal.read"] > 3
