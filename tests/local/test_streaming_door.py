"""The streaming door on a Runtime API of loopback: what the application sends arrives at once, and whole or visibly not."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from functions.api.door.routes import TruePath
from functions.api.door.streaming.__main__ import answer, serve
from functions.api.door.streaming.runtime_api import Invocation, RuntimeApiError
from functions.api.door.streaming.runtime_api import RuntimeApi as Client
from headrace.clock import SystemClock
from headrace.settings import Settings
from local.function_url import EVENT_BYTES, REPOSITORY, FunctionUrl, event_of
from local.runtime_api import RuntimeApi
from tests.unit.api.asgi import JSON, TEXT, Answer, Server, http_scope

App = Callable[[Any, Any, Any], Any]
AT = datetime(2026, 11, 21, tzinfo=UTC)
NAMES = ["plain", "a/b", "100%", "%2F", "%25", "a b", "é€😀", "a+b&c=d", "a#b", "../x", "a//b/", "~!*'()"]


class Visitor:
    """A client of the URL: one request, and what came back of it so far."""

    def __init__(self, door: FunctionUrl, method: str, target: str, headers: dict[str, str], body: bytes) -> None:
        self._incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._incoming.put_nowait({"type": "http.request", "body": body, "more_body": False})
        self._outgoing: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        scope = {**http_scope(method, target, headers), "http_version": "1.1"}
        self.task = asyncio.ensure_future(door(scope, self._incoming.get, self._outgoing.put))

    async def next(self) -> dict[str, Any]:
        """Returns the next message. Raises what the connection raises when it breaks."""
        got = asyncio.ensure_future(self._outgoing.get())
        await asyncio.wait((got, self.task), timeout=20, return_when=asyncio.FIRST_COMPLETED)
        if not got.done() and self._outgoing.empty():
            got.cancel()
            self.task.result()
            raise AssertionError("no message")
        return await got

    async def answer(self) -> Answer:
        """Returns the whole answer."""
        start = await self.next()
        body = b""
        while (message := await self.next()).get("more_body"):
            body += message["body"]
        headers = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
        return Answer(start["status"], headers, body + message["body"])

    def leave(self) -> None:
        """Closes the connection."""
        self._incoming.put_nowait({"type": "http.disconnect"})


class Door:
    """A Function URL with one instance behind it."""

    def __init__(self, front: FunctionUrl) -> None:
        self._front = front

    def open(self, method: str, target: str, headers: dict[str, str] | None = None, body: bytes = b"") -> Visitor:
        return Visitor(self._front, method, target, headers or {}, body)

    async def ask(self, method: str, target: str, headers: dict[str, str] | None = None, body: bytes = b"") -> Answer:
        return await self.open(method, target, headers, body).answer()


@asynccontextmanager
async def door_to(app: App, *, timeout_s: float = 30) -> AsyncIterator[Door]:
    """Yields a door to an instance, which runs in a thread with a loop of its own, as it would in a process."""
    api = RuntimeApi(timeout_s)
    endpoint = await api.listen()

    def instance() -> None:
        with suppress(RuntimeApiError):
            serve(TruePath(app), Client(endpoint.address), SystemClock(), begin=lambda _: None, end=lambda _: None)

    thread = threading.Thread(target=instance, daemon=True)
    thread.start()
    try:
        yield Door(FunctionUrl(api))
    finally:
        await endpoint.close()
        await asyncio.to_thread(thread.join, 10)
        assert not thread.is_alive()


async def begin(send: Any, *parts: bytes) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    for part in parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})


def run(scenario: Any) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


def test_each_part_arrives_before_the_next_one_is_made() -> None:
    go_on = threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await begin(send, b"first")
        assert await asyncio.to_thread(go_on.wait, 10)
        await send({"type": "http.response.body", "body": b"second", "more_body": False})

    async def scenario() -> None:
        async with door_to(app) as door:
            client = door.open("GET", "/")
            assert (await client.next())["status"] == 200
            assert (await client.next())["body"] == b"first"
            go_on.set()
            assert (await client.next())["body"] == b"second"
            assert not (await client.next())["more_body"]

    run(scenario())


def test_a_client_that_leaves_is_not_served_on_and_the_instance_takes_the_next() -> None:
    cancelled = threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await begin(send, b"first")
        if scope["path"] == "/short":
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def scenario() -> None:
        async with door_to(app) as door:
            client = door.open("GET", "/long")
            await client.next()
            client.leave()
            assert await asyncio.to_thread(cancelled.wait, 10)
            assert (await door.ask("GET", "/short")).body == b"first"

    run(scenario())


async def fails_before(scope: Any, receive: Any, send: Any) -> None:
    raise ValueError("secret text")


async def fails_within(scope: Any, receive: Any, send: Any) -> None:
    await begin(send, b"half")
    raise ValueError("secret text")


async def ends_early(scope: Any, receive: Any, send: Any) -> None:
    await begin(send, b"half")


async def says_nothing(scope: Any, receive: Any, send: Any) -> None:
    pass


async def never_ends(scope: Any, receive: Any, send: Any) -> None:
    await begin(send, b"half")
    await asyncio.Event().wait()


@pytest.mark.parametrize("app", [fails_before, says_nothing])
def test_an_error_before_the_answer_is_a_502(app: App, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with door_to(app) as door:
            assert (await door.ask("GET", "/")).status == 502
            assert (await door.ask("GET", "/")).status == 502  # the instance lives on

    run(scenario())
    assert "secret text" not in caplog.text


@pytest.mark.parametrize(
    ("app", "kind"),
    [
        (fails_within, "Headrace.ValueError"),
        (ends_early, "Headrace.Incomplete"),
        (never_ends, "Headrace.OutOfTime"),
    ],
)
def test_an_answer_that_breaks_off_breaks_the_connection(
    app: App, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Else half an answer would look like a whole one. An instance that overruns ends by itself: nobody kills it."""

    async def scenario() -> None:
        async with door_to(app, timeout_s=2) as door:
            client = door.open("GET", "/")
            assert (await client.next())["status"] == 200
            assert (await client.next())["body"] == b"half"
            with pytest.raises(ConnectionAbortedError, match=re.escape(kind)):
                await client.next()

    run(scenario())
    assert "secret text" not in caplog.text


@pytest.mark.parametrize("parts", [1, 100])
def test_a_client_that_does_not_read_keeps_no_instance_beyond_the_deadline(parts: int) -> None:
    """One large part leaves the application done and its end unsent; of many, the application waits for the next one."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await begin(send, *[bytes(64 * 1024 * 1024 // parts)] * parts)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    unread: list[asyncio.StreamWriter] = []

    async def never_read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        unread.append(writer)

    async def scenario() -> float:
        server = await asyncio.start_server(never_read, "127.0.0.1", 0)
        client = Client(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        now_ms = SystemClock().now_ms()
        event = event_of(http_scope("GET", "/", {}) | {"http_version": "1.1"}, b"", request_id="id", at=AT)
        await answer(TruePath(app), client, Invocation("id", now_ms + 3_000, event), SystemClock())
        server.close()
        for writer in unread:
            writer.transport.abort()
        await asyncio.sleep(0)
        return (SystemClock().now_ms() - now_ms) / 1000

    assert 1.5 < asyncio.run(asyncio.wait_for(scenario(), 20)) < 3


def test_a_request_that_overran_before_its_answer_is_told_and_not_killed() -> None:
    server = Server(settings=Settings(metrics_interval_ms=0, request_timeout_ms=20_000, trim_age_ms=900_000))
    server("PUT", "/v1/stream/s", TEXT)

    async def scenario() -> None:
        async with door_to(server.app, timeout_s=2) as door:
            answer = await door.ask("GET", "/v1/stream/s?offset=now&live=long-poll&timeout_ms=20000")
            assert answer.status == 503
            assert answer.json["error"]["code"] == "unavailable"

    run(scenario())


def test_an_event_stream_ends_whole_before_the_deadline_and_says_where_to_go_on() -> None:
    server = Server(settings=Settings(metrics_interval_ms=0, sse_seconds=60))
    server("PUT", "/v1/stream/s", TEXT)
    server("POST", "/v1/stream/s", TEXT, b"one")

    async def scenario() -> None:
        async with door_to(server.app, timeout_s=5) as door:
            began = time.monotonic()
            client = door.open("GET", "/v1/stream/s?offset=-1&live=sse")
            assert (await client.next())["headers"][0] == (b"content-type", b"text/event-stream")
            assert b"event: data\ndata:one\n\nevent: control\n" in (await client.next())["body"]
            await asyncio.to_thread(server, "POST", "/v1/stream/s", TEXT, b"two")
            body = (await client.next())["body"]
            while (message := await client.next())["more_body"]:
                body += message["body"]
            assert time.monotonic() - began < 4.5
        event = body.decode().removeprefix("event: data\ndata:two\n\n").split("\n\n")[0]
        control = json.loads(event.removeprefix("event: control\ndata:"))
        assert control["upToDate"] is True
        assert (await server.ask("GET", f"/v1/stream/s?offset={control['streamNextOffset']}")).body == b""

    run(scenario())


@pytest.mark.parametrize("name", NAMES)
def test_a_name_means_the_same_at_the_streaming_door(name: str) -> None:
    server = Server()

    async def scenario() -> None:
        async with door_to(server.app) as door:
            target = f"/v1/stream/{quote(name, safe='')}"
            assert (await door.ask("PUT", target, TEXT)).status == 201
            assert (await door.ask("POST", target, TEXT, name.encode())).status == 204

    run(scenario())
    assert server("GET", f"/v1/stream/{quote(name, safe='')}").body == name.encode()


def test_answers_have_no_limit_and_requests_that_of_an_event() -> None:
    server = Server()
    server("PUT", "/v1/stream/s", {"content-type": "application/octet-stream"})
    large = os.urandom(8 * 1024 * 1024)
    server("POST", "/v1/stream/s", {"content-type": "application/octet-stream"}, large)

    async def scenario() -> None:
        async with door_to(server.app) as door:
            assert (await door.ask("GET", "/v1/stream/s")).body == large
            refused = await door.ask("POST", "/v1/stream/s", JSON, b"x" * 4_600_000)
            assert refused.status == 413
            assert refused.json["error"]["code"] == "payload_too_large"
            by_lambda = await door.ask("POST", "/v1/stream/s", JSON, b"x" * (EVENT_BYTES + 1))
            assert (by_lambda.status, by_lambda.json) == (413, {"Message": "Request Too Long"})

    run(scenario())


def test_an_instance_that_dies_with_an_invocation_fails_it_at_once() -> None:
    async def scenario() -> None:
        api = RuntimeApi(30)
        endpoint = await api.listen()
        visitor = Visitor(FunctionUrl(api), "GET", "/", {}, b"")
        assert await asyncio.to_thread(Client(endpoint.address).next)  # it is killed before it answers
        await endpoint.close()
        assert (await visitor.answer()).status == 502

    run(scenario())


def test_an_instance_that_died_while_it_asked_gets_no_invocation() -> None:
    async def scenario() -> None:
        api = RuntimeApi(30)
        dead, alive = await api.listen(), await api.listen()
        host, port = dead.address.split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /2018-06-01/runtime/invocation/next HTTP/1.1\r\n\r\n")
        await api.asked.acquire()
        visitor = Visitor(FunctionUrl(api), "GET", "/", {}, b"")
        await asyncio.sleep(0)  # the request is there, and not yet handed out
        await dead.close()
        assert await asyncio.to_thread(Client(alive.address).next)
        visitor.leave()
        await alive.close()
        writer.close()

    run(scenario())


def test_an_instance_that_cannot_start_says_why_and_ends() -> None:
    """Started as Lambda starts it; its keys are missing."""

    async def scenario() -> tuple[subprocess.CompletedProcess[str], list[str]]:
        api = RuntimeApi(5)
        endpoint = await api.listen()
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")},
            "AWS_LAMBDA_RUNTIME_API": endpoint.address,
            "AWS_LAMBDA_FUNCTION_NAME": "ApiStreaming",
            "AWS_REGION": "us-east-1",
            "LAMBDA_TASK_ROOT": str(REPOSITORY),
        }
        bootstrap = REPOSITORY / "functions/api/door/streaming/bootstrap"
        done = await asyncio.to_thread(
            lambda: subprocess.run(
                [bootstrap, sys.executable, "/var/runtime/bootstrap.py"],
                env=environment,
                cwd=Path("/"),
                capture_output=True,
                text=True,
                timeout=60,
            )
        )
        await endpoint.close()
        return done, api.failed_starts

    done, told = asyncio.run(scenario())
    assert done.returncode != 0
    (error,) = map(json.loads, told)
    assert error["errorType"] == "Headrace.AccessError"
    assert "HEADRACE_API_KEYS" in error["errorMessage"]
