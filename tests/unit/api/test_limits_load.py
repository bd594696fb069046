"""What a client hears when the server or a store has too much to do, does not answer, or ends: 429, 503 and 408."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Literal

import pytest
import uvicorn
from msgspec import structs

from functions.access import Access
from functions.api.context import assemble
from functions.api.door import requests
from functions.api.door.requests import Load
from functions.api.streams.records import PATH
from functions.metrics import ApiMetric
from headrace import limits
from headrace.clock import MAX_TRIES, check_deadline
from headrace.errors import StoreThrottled, StoreTimeout
from headrace.limits import QUEUE_BYTES, QUEUE_REQUESTS
from headrace.memory import memory_stores
from headrace.settings import Settings
from tests.support.builders import appending
from tests.support.clocks import ManualClock
from tests.support.faults import Faulty
from tests.unit.api.asgi import JSON, TEXT, Answer, Exchange, Server

S = "/v1/stream/s"
QUIET = Settings(metrics_interval_ms=0, request_counts_ms=0)
APPEND_TIMEOUT = {
    "error": {
        "code": "append_timeout",
        "message": "append timed out; append outcome is unknown, check Stream-Next-Offset before retrying",
    }
}
REQUEST_TIMEOUT = {"error": {"code": "request_timeout", "message": "request timed out"}}

# Of each route that writes: a body that is in order for the stream that `Staged` makes.
BODIES = {
    ("PUT", ""): b"[1]",
    ("POST", ""): b'[{"type":"t","key":"k","value":1,"headers":{"operation":"insert"}}]',
    ("DELETE", ""): b"",
    ("POST", "/_schema"): b'{"schema":{"type":"object","additionalProperties":true}}',
    ("POST", "/_profile"): b'{"profile":{"kind":"generic"}}',
    (
        "POST",
        "/touch/templates/activate",
    ): b'{"templates":[{"entity":"t","fields":[{"name":"f","encoding":"string"}]}]}',
}
READS = [
    *(S + below for below in ("", "?offset=-1&live=1", "/pk/k", "/touch/meta")),
    *(S + below for below in ("/_schema", "/_profile", "/_details", "/_index_status")),
    "/v1/streams",
]
# They write into streams of other profiles: `test_otlp.py`.
OTLP = [("POST", "/_otlp/v1/logs"), ("POST", "/_otlp/v1/traces")]
# They write nothing, whatever their method.
READING = frozenset({("POST", "/touch/wait"), ("POST", "/_search"), ("POST", "/_aggregate")})


def write_routes(server: Server) -> list[tuple[str, str]]:
    """Method and resource of every route of a stream that writes, from the application's own table."""
    return sorted(
        (method, route.path.removeprefix(PATH))  # type: ignore[attr-defined]
        for route in server.app.routes[0].routes
        if route.path.startswith(PATH) and route.include_in_schema  # type: ignore[attr-defined]
        for method in route.methods & {"PUT", "POST", "DELETE", "PATCH"}  # type: ignore[attr-defined]
        if (method, route.path.removeprefix(PATH)) not in READING  # type: ignore[attr-defined]
    )


class Staged:
    """A stream with the touch routes, on stores that can be made to fail, under a clock that only sleepers move."""

    def __init__(self, settings: Settings = QUIET) -> None:
        self.clock = ManualClock()
        self.memory = memory_stores(settings, self.clock)
        self.ports = {
            name: Faulty(getattr(self.memory, name))
            for name in ("wal", "catalog", "watermarks", "producers", "objects")
        }
        self.server = self.process()
        assert self.server("PUT", S, JSON).status == 201
        profile = b'{"profile":{"kind":"state-protocol","touch":{"enabled":true}}}'
        assert self.server("POST", S + "/_profile", JSON, profile).status == 200

    def process(self) -> Server:
        """Another process on the same stores; it knows nothing yet."""
        return Server(parts=assemble(replace(self.memory, **self.ports), Access({})))

    def fail(self, error: type[Exception], *methods: str) -> None:
        """Every call fails, or every call of these methods."""
        for port in self.ports.values():
            for method in methods or [name for name in dir(port.target) if not name.startswith("_")]:
                port.fail(method, error, times=10_000)

    def heal(self) -> None:
        for port in self.ports.values():
            port.heal()

    def stored(self) -> tuple[str, ...]:
        server = Server()
        server.stores = self.memory
        return server.dump()

    def write(self, method: str, resource: str, server: Server | None = None) -> Answer:
        name = "/v1/stream/new" if (method, resource) == ("PUT", "") else S
        return (server or self.server)(method, name + resource, JSON, BODIES[method, resource])


def check_overloaded(answer: Answer) -> None:
    assert (answer.status, answer.json["error"]["code"]) == (429, "overloaded"), answer.body
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["cache-control"] == "no-store"


def test_every_route_that_writes_is_known_here() -> None:
    assert write_routes(Server()) == sorted([*BODIES, *OTLP])


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("stage", ["all", "writes"])
@pytest.mark.parametrize(("method", "resource"), sorted(BODIES))
def test_a_throttled_write_is_429_and_can_be_repeated(
    method: str, resource: str, stage: Literal["all", "writes"], warm: bool
) -> None:
    staged = Staged()
    server = staged.server if warm else staged.process()
    if warm:
        server("GET", S)
    before = staged.stored()
    staged.fail(StoreThrottled, *(() if stage == "all" else ("commit", "set_note", "put", "create")))
    check_overloaded(staged.write(method, resource, server))
    assert staged.stored() == before
    staged.heal()
    assert staged.write(method, resource, server).status < 300


@pytest.mark.parametrize("target", READS)
@pytest.mark.parametrize(
    ("error", "expected"), [(StoreThrottled, (429, "overloaded", "1")), (StoreTimeout, (503, "unavailable", "1"))]
)
def test_a_read_that_a_store_refuses_says_when_to_come_again(
    target: str, error: type[Exception], expected: tuple[int, str, str]
) -> None:
    staged = Staged()
    staged.write("POST", "")
    staged.fail(error)
    answer = staged.server("GET", target)
    assert (answer.status, answer.json["error"]["code"], answer.headers["retry-after"]) == expected
    head = staged.server("HEAD", S)
    assert (head.status, head.body, head.headers["retry-after"]) == (expected[0], b"", "1")
    staged.heal()
    assert staged.server("GET", target).status in (200, 204)


@pytest.mark.parametrize(("method", "resource"), sorted(BODIES))
def test_a_write_whose_store_never_answers_is_of_unknown_outcome(method: str, resource: str) -> None:
    staged = Staged()
    staged.fail(StoreTimeout, "commit", "set_note")
    began = staged.clock.monotonic()
    answer = staged.write(method, resource)
    assert (answer.status, answer.json) == (408, APPEND_TIMEOUT)
    assert staged.clock.monotonic() - began < 3.5  # the budget, and one pause


def test_an_append_of_unknown_outcome_may_stand() -> None:
    staged = Staged()
    wal = staged.ports["wal"]
    wal.fail("commit", StoreTimeout, after=True)
    wal.on("commit", lambda: staged.clock.advance(4), call=1, after=False)
    wal.fail("commit", StoreTimeout, call=2, times=10_000)
    assert staged.write("POST", "").json == APPEND_TIMEOUT
    staged.heal()
    assert len(staged.server("GET", S).json) == 1


def test_writers_that_are_always_first_end_in_429_after_so_many_tries() -> None:
    staged = Staged(structs.replace(QUIET, append_timeout_ms=1_000_000))
    rival = staged.process().parts.logs()
    wal = staged.ports["wal"]
    busy = threading.local()

    def be_first() -> None:
        if not getattr(busy, "rival", False):
            busy.rival = True
            record = BODIES["POST", ""].strip(b"[]")
            rival.append("s", appending(record, content_type="application/json"))
            busy.rival = False

    wal.on("commit", be_first, times=10_000)
    log_id = rival.head("s").log_id
    for method, resource in (("POST", ""), ("POST", "/_profile"), ("DELETE", "")):
        tries = len(staged.memory.wal.read(log_id).entries)
        check_overloaded(staged.write(method, resource))
        written = len(staged.memory.wal.read(log_id).entries) - tries
        assert written == MAX_TRIES, (method, resource)


def test_an_append_that_waited_too_long_for_its_turn_is_429() -> None:
    staged = Staged()
    wal, entered, left = staged.ports["wal"], threading.Event(), threading.Event()

    def store_is_slow() -> None:
        entered.set()
        assert left.wait(5)

    wal.on("commit", store_is_slow)
    answers: list[Answer] = []
    first = threading.Thread(target=lambda: answers.append(staged.write("POST", "")))
    first.start()
    assert entered.wait(5)
    second = threading.Thread(target=lambda: answers.append(staged.write("POST", "")))
    second.start()
    group = _wait_for(lambda: [g for g in _logs(staged).appender.groups._groups.values() if g._waiting])
    assert group
    staged.clock.advance(4)
    left.set()
    first.join()
    second.join()
    assert sorted(answer.status for answer in answers) == [204, 429]
    check_overloaded(next(answer for answer in answers if answer.status == 429))
    assert len(staged.server("GET", S).json) == 1


def _logs(staged: Staged) -> Any:
    return staged.server.parts.logs()


def _wait_for(check: Any, within_s: float = 5) -> Any:
    until = time.monotonic() + within_s
    while not (found := check()):
        assert time.monotonic() < until
        time.sleep(0.01)  # polls: other threads change what it checks, without an event
    return found


@pytest.mark.parametrize("load", [Load(QUEUE_REQUESTS, 0, 0), Load(1, QUEUE_BYTES, 0)])
@pytest.mark.parametrize(("method", "resource"), sorted(BODIES))
def test_a_process_with_too_many_writes_takes_no_more(method: str, resource: str, load: Load) -> None:
    staged = Staged()
    traffic = staged.server.parts.traffic
    traffic._add(*load)
    before = staged.stored()
    body = BODIES[method, resource]
    announced = {**JSON, "content-length": str(len(body) or 1)}
    name = "/v1/stream/new" if (method, resource) == ("PUT", "") else S
    check_overloaded(staged.server(method, name + resource, announced, body or b" "))
    if body:
        check_overloaded(staged.server(method, name + resource, JSON, body))  # chunked
    assert staged.stored() == before
    assert staged.server("GET", S).status == 200
    assert staged.server("GET", "/v1/server/_details").json["runtime"]["ingest_queue"]["full"] is (
        traffic.load().full
    )
    traffic._add(*(-one for one in load))
    assert traffic.load() == Load(0, 0, 0)
    assert staged.write(method, resource).status < 300


ANNOUNCED = {**TEXT, "content-length": str(10 * 1024 * 1024)}


async def _arrive(
    server: Server, count: int, exchanges: AsyncExitStack, headers: dict[str, str], *parts: bytes
) -> list[Exchange]:
    """Begins so many appends that have sent some parts of their bodies, and send nothing more."""
    idle = [
        await exchanges.enter_async_context(server.exchange("POST", S, headers, [*parts, None])) for _ in range(count)
    ]
    await _until(lambda: server.parts.traffic.load().write_bytes == count * sum(map(len, parts)))
    return idle


async def _until(check: Callable[[], bool]) -> None:
    for _ in range(1000):
        if check():
            return
        await asyncio.sleep(0)  # lets the other requests run
    raise AssertionError("it does not come to that")


@pytest.mark.parametrize("parts", [(), (b"x" * 1000,)])
def test_what_is_announced_and_does_not_arrive_stops_nobody(parts: tuple[bytes, ...]) -> None:
    server = Server(settings=QUIET)
    server("PUT", S, TEXT)

    async def act() -> None:
        async with AsyncExitStack() as exchanges:
            idle = await _arrive(server, 50, exchanges, ANNOUNCED, *parts)
            load = server.parts.traffic.load()
            assert load == Load(0, 50 * sum(map(len, parts)), 0)
            assert not load.full
            assert (await server.ask("POST", S, {**TEXT, "content-length": "1"}, b"y")).status == 204
            for one in idle:
                one.disconnect()
        assert server.parts.traffic.load() == Load(0, 0, 0)

    asyncio.run(act())


def test_what_arrives_counts_until_its_request_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUEUE_BYTES", 2500)
    server = Server(settings=QUIET)
    server("PUT", S, TEXT)

    async def act() -> None:
        async with AsyncExitStack() as exchanges:
            await _arrive(server, 2, exchanges, TEXT, b"x" * 1000)
            check_overloaded(await server.ask("POST", S, {**TEXT, "content-length": "501"}, b"y" * 501))
            check_overloaded(await server.ask("POST", S, TEXT, [b"y" * 400, b"y" * 101]))
            assert (await server.ask("POST", S, TEXT, [b"y" * 400, b"y" * 99])).status == 204
        assert (await server.ask("POST", S, TEXT, b"y" * 2400)).status == 204

    asyncio.run(act())
    assert len(server("GET", S).body) == 499 + 2400


@pytest.mark.parametrize(("method", "resource"), [one for one in sorted(BODIES) if one[0] != "DELETE"])
def test_a_client_that_leaves_before_the_end_of_its_body_is_no_error(
    method: str, resource: str, caplog: pytest.LogCaptureFixture
) -> None:
    staged = Staged()
    server, before = staged.server, staged.stored()
    name = "/v1/stream/new" if (method, resource) == ("PUT", "") else S

    async def act() -> None:
        async with server.exchange(method, name + resource, {**JSON, "content-length": "99"}, [b"[", None]) as left:
            left.disconnect()
            assert left.task is not None
            await asyncio.wait_for(left.task, 5)
            with pytest.raises(TimeoutError, match="nothing was sent"):
                await left.next()

    added: list[ApiMetric] = []
    server.parts.meter.add = lambda metric, value=1: added.append(metric)  # type: ignore[method-assign]
    asyncio.run(act())
    assert staged.stored() == before
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []
    assert ApiMetric.Failures not in added
    assert server.parts.traffic.load() == Load(0, 0, 0)


def test_a_body_that_does_not_come_is_waited_for_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "BODY_SECONDS", 0.01)
    server = Server(settings=QUIET)
    server("PUT", S, TEXT)

    async def act() -> Answer:
        async with server.exchange("POST", S, ANNOUNCED, [b"x", None]) as slow:
            return await slow.answer()

    answer = asyncio.run(act())
    assert (answer.status, answer.json["error"]["code"]) == (408, "request_timeout")
    assert answer.headers["connection"] == "close", "the rest of the body may still come"
    assert server("GET", S).body == b""


@pytest.mark.parametrize("resource", ["/_search", "/_aggregate"])
def test_a_question_in_a_body_is_no_write(resource: str) -> None:
    server = Server(settings=QUIET)
    server("PUT", S, JSON)
    server.parts.traffic._add(QUEUE_REQUESTS, 0, 0)
    answer = server("POST", S + resource, JSON, b"{}")
    assert (answer.status, answer.json["error"]["code"]) == (400, "bad_request"), "there is no schema"


def test_waiting_for_a_touch_is_no_write() -> None:
    server = Server(settings=QUIET)
    server("PUT", S, JSON)
    server("POST", S + "/_profile", JSON, b'{"profile":{"kind":"state-protocol","touch":{"enabled":true}}}')
    server.parts.traffic._add(QUEUE_REQUESTS, 0, 0)
    body = b'{"cursor":"now","timeoutMs":10,"keys":["0011223344556677"]}'
    assert server("POST", S + "/touch/wait", JSON, body).status == 200


class Late:
    """A port whose calls begin within the request's time or not at all, as those of the real adapters."""

    def __init__(self, port: Any) -> None:
        self._port = port

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            check_deadline()
            return found(*args, **kwargs)

        return call


def test_a_request_over_its_time_is_408() -> None:
    stores = memory_stores(structs.replace(QUIET, request_timeout_ms=50))
    catalog = Faulty(stores.catalog)
    ports = {
        name: Late(catalog if name == "catalog" else getattr(stores, name)) for name in ("wal", "catalog", "objects")
    }
    server = Server(parts=assemble(replace(stores, **ports), Access({})))
    assert server("PUT", S, JSON, b"[1]").status == 201
    cold = Server(parts=assemble(replace(stores, **ports), Access({})))
    catalog.on("get", lambda: time.sleep(0.1), times=10_000)  # twice the request timeout
    for target in ("", "/_schema", "/_profile"):
        answer = cold("GET", S + target)
        assert (answer.status, answer.json) == (408, REQUEST_TIMEOUT), target
    assert cold("HEAD", S).status == 408
    for method, resource in (("PUT", ""), ("POST", "/_profile"), ("DELETE", "")):
        answer = cold(method, S + resource, JSON, BODIES[method, resource])
        assert answer.status == 408, (method, resource)
    catalog.heal()
    assert cold("GET", S).json == [1]


def test_a_wait_longer_than_a_request_may_take_is_408() -> None:
    server = Server(settings=structs.replace(QUIET, request_timeout_ms=100))
    tail = server("PUT", S, TEXT, b"x").offset
    answer = server("GET", f"{S}?offset={tail}&live=1&timeout=6s")
    assert (answer.status, answer.json) == (408, REQUEST_TIMEOUT)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_server_that_ends_says_so_to_those_it_breaks_off(method: str) -> None:
    stores = memory_stores(QUIET)
    wal, left, entered = Faulty(stores.wal), threading.Event(), threading.Event()
    app = Server(parts=assemble(replace(stores, wal=wal), Access({})))
    tail = app("PUT", S, TEXT, b"x").offset
    config = uvicorn.Config(
        app.app, log_level="critical", http="httptools", lifespan="off", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()

    def store_is_slow() -> None:
        entered.set()
        assert left.wait(10)

    wal.on("commit", store_is_slow)
    target = f"{S}?offset={tail}&live=1&timeout=5s" if method == "GET" else S
    request = (
        f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 1\r\n\r\nx"
    )
    with socket.create_connection(listener.getsockname()) as connection:
        connection.settimeout(10)
        connection.sendall(request.encode())
        if method == "POST":
            assert entered.wait(5)
        else:
            _wait_for(lambda: app.parts.traffic.load().reads)
            time.sleep(0.1)  # it is counted before it waits; now it waits
        server.should_exit = True
        answer = b""
        while b"}}" not in answer and (part := connection.recv(65536)):
            answer += part
    left.set()
    thread.join(10)
    listener.close()
    if method == "GET":
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 5\r\n" in answer.lower()
        assert b'{"error":{"code":"unavailable","message":"the server is shutting down"}}' in answer
    else:
        assert answer.startswith(b"HTTP/1.1 408")
        assert b'"append_timeout"' in answer
