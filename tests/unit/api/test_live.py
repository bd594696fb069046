"""Long-poll and server-sent events."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from typing import Any

import pytest

from headrace.settings import Settings
from tests.unit.api.asgi import JSON, TEXT, Answer, Exchange, Server, text_headers

S = "/v1/stream/s"
QUICK = Settings(live_timeout_ms=150, request_timeout_ms=300, sse_seconds=1)


@pytest.fixture
def server() -> Server:
    return Server(settings=QUICK)


def test_a_poll_answers_at_once_when_there_is_data(server: Server) -> None:
    server("PUT", S, JSON, b"[1]")
    answer = server("GET", S + "?offset=-1&live=true")
    assert (answer.status, answer.body, answer.headers["cache-control"]) == (200, b"[1]", "no-store")
    assert answer.headers["stream-up-to-date"] == "true"
    later = server("GET", S + f"?offset=-1&live=long-poll&cursor={answer.headers['stream-cursor']}")
    assert int(later.headers["stream-cursor"]) > int(answer.headers["stream-cursor"])


def test_a_quiet_poll_ends_with_204_and_where_it_stands(server: Server) -> None:
    tail = server("PUT", S, TEXT, b"x").offset
    answer = server("GET", S + "?offset=now&live=1")
    assert (answer.status, answer.body, answer.offset) == (204, b"", tail)
    assert answer.headers["stream-up-to-date"] == "true"
    assert answer.headers["stream-cursor"].isdigit()
    assert server("GET", S + f"?offset={tail}&live=1&timeout=0").status == 204


def test_a_longer_wait_than_a_request_may_take_is_408(server: Server) -> None:
    server("PUT", S, TEXT)
    began = time.monotonic()
    answer = server("GET", S + "?offset=now&live=1&timeout=10s")
    assert (answer.status, answer.json["error"]["code"]) == (408, "request_timeout")
    assert 0.25 < time.monotonic() - began < 2


def test_a_closed_end_is_not_waited_at(server: Server) -> None:
    tail = server("PUT", S, {**TEXT, "stream-closed": "true"}).offset
    answer = server("GET", S + f"?offset={tail}&live=1&timeout=10s")
    assert (answer.status, answer.headers["stream-closed"]) == (204, "true")


async def while_polling(server: Server, query: str, *then: tuple[Any, ...]) -> Answer:
    poll = asyncio.ensure_future(server.ask("GET", S + query))
    await asyncio.sleep(0.05)
    for request in then:
        await server.ask(*request)
    return await poll


def test_a_write_wakes_a_poll(server: Server) -> None:
    server("PUT", S, TEXT, b"old")
    answer = asyncio.run(while_polling(server, "?offset=now&live=1", ("POST", S, TEXT, b"new")))
    assert (answer.status, answer.body) == (200, b"new")


def test_a_close_and_a_delete_end_a_poll(server: Server) -> None:
    server("PUT", S, TEXT)
    closed = asyncio.run(while_polling(server, "?offset=-1&live=1", ("POST", S, {"stream-closed": "true"})))
    assert (closed.status, closed.headers["stream-closed"]) == (204, "true")
    server("DELETE", S)
    server("PUT", S, TEXT)
    assert asyncio.run(while_polling(server, "?offset=-1&live=1", ("DELETE", S))).status == 404


def test_a_poll_of_nothing_is_404_at_once(server: Server) -> None:
    for live in ("long-poll", "sse"):
        assert server("GET", S + f"?offset=now&live={live}").status == 404


def parse(text: bytes) -> list[tuple[str, str]]:
    """Events as a browser would see them."""
    events = []
    for block in text.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n\n"):
        fields = [line.partition(":") for line in block.split("\n") if line and not line.startswith(":")]
        kind = "".join(value.removeprefix(" ") for name, _, value in fields if name == "event")
        if kind:
            data = "\n".join(value.removeprefix(" ") for name, _, value in fields if name == "data")
            events.append((kind, data))
    return events


def follow(server: Server, query: str = "?offset=-1&live=sse") -> tuple[Answer, list[tuple[str, str]]]:
    answer = server("GET", S + query)
    return answer, parse(answer.body)


def test_a_closed_stream_is_told_whole_and_ends(server: Server) -> None:
    server("PUT", S, {**JSON, "stream-closed": "true"}, b'[1, {"a":\r\n2}]')
    answer, events = follow(server)
    assert answer.headers["content-type"] == "text/event-stream"
    assert "no-cache" in answer.headers["cache-control"]
    assert "content-length" not in answer.headers
    assert [kind for kind, _ in events] == ["data", "control"]
    assert json.loads(events[0][1]) == [1, {"a": 2}]
    control = json.loads(events[1][1])
    assert (control["streamClosed"], control["upToDate"]) == (True, True)
    assert "streamCursor" not in control


def test_every_page_is_a_pair_and_the_last_says_up_to_date(server: Server) -> None:
    records = [f"{number:04}" + "x" * 4090 for number in range(2500)]  # a page of 4 MiB holds 1,024 of them
    server("PUT", S, JSON, json.dumps(records, separators=(",", ":")).encode())
    _, events = follow(server)
    assert [kind for kind, _ in events] == ["data", "control"] * 3
    assert [n for kind, data in events if kind == "data" for n in json.loads(data)] == records
    assert ["upToDate" in json.loads(data) for kind, data in events if kind == "control"] == [False, False, True]
    cursors = [int(json.loads(data)["streamCursor"]) for kind, data in events if kind == "control"]
    assert cursors == sorted(set(cursors))


@pytest.mark.parametrize(
    "payload",
    [
        b"a\nb",
        b"a\r\n\r\nevent: control\r\ndata: {}",
        b"x\r\revent: data\r",
        b" leading\n  two",
        b"\n",
        b"data: x\n\n\n",
    ],
)
def test_no_payload_can_end_an_event(server: Server, payload: bytes) -> None:
    server("PUT", S, {**TEXT, "stream-closed": "true"}, payload)
    _, events = follow(server)
    assert [kind for kind, _ in events] == ["data", "control"]
    assert events[0][1] == payload.decode().replace("\r\n", "\n").replace("\r", "\n")


def test_bytes_go_as_base64(server: Server) -> None:
    server("PUT", S, {"content-type": "image/png", "stream-closed": "true"}, bytes(range(256)))
    answer, events = follow(server)
    assert answer.headers["stream-sse-data-encoding"] == "base64"
    assert base64.b64decode(events[0][1]) == bytes(range(256))


async def chunk(exchange: Exchange) -> list[tuple[str, str]]:
    while True:
        message = await exchange.next()
        events = parse(message.get("body", b""))
        if events or not message.get("more_body", False):
            return events


def test_a_reader_follows_writes_and_sees_the_close(server: Server) -> None:
    async def scenario() -> None:
        await server.ask("PUT", S, TEXT, b"old")
        async with server.exchange("GET", S + "?offset=now&live=sse") as exchange:
            assert text_headers(await exchange.next())["content-type"] == "text/event-stream"
            (first,) = await chunk(exchange)
            assert json.loads(first[1])["upToDate"] is True
            await server.ask("POST", S, TEXT, b"new")
            assert (await chunk(exchange))[0] == ("data", "new")
            await server.ask("POST", S, {**TEXT, "stream-closed": "true"}, b"last")
            data, control = await chunk(exchange)
            assert data == ("data", "last")
            assert json.loads(control[1])["streamClosed"] is True
            assert await chunk(exchange) == []

    asyncio.run(scenario())


def test_a_reader_is_let_go_when_time_is_up_or_the_stream_is_deleted(server: Server) -> None:
    began = time.monotonic()
    server("PUT", S, TEXT)
    _, events = follow(server)
    assert [kind for kind, _ in events] == ["control"]
    assert 0.9 < time.monotonic() - began < 3

    async def scenario() -> None:
        async with server.exchange("GET", S + "?offset=now&live=sse") as exchange:
            await exchange.next()
            await chunk(exchange)
            await server.ask("DELETE", S)
            assert await chunk(exchange) == []

    asyncio.run(scenario())


def test_a_reader_that_leaves_is_not_served_on(server: Server) -> None:
    async def scenario() -> float:
        async with server.exchange("GET", S + "?offset=now&live=sse") as exchange:
            await exchange.next()
            began = time.monotonic()
        return time.monotonic() - began

    server("PUT", S, TEXT)
    assert asyncio.run(scenario()) < 0.5
    assert not server.parts.logs().wakeups._listeners
