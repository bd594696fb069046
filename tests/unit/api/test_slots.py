"""What clients may have open at once: streams over all processes, requests of a key in one."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any, ParamSpec

import msgspec
import pytest
from starlette.responses import Response, StreamingResponse
from starlette.types import Message

from functions.api.door.errors import response_to
from functions.api.door.slots import InFlight, StreamSlots
from headrace.errors import LimitReached, StoreTimeout
from headrace.memory import memory_stores
from headrace.settings import Settings
from headrace.tables.sessions import MemorySessions
from tests.support.clocks import ManualClock

P = ParamSpec("P")


def in_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Returns a test that runs in an event loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


LIMITS = Settings(max_sse_connections=3, max_sse_connections_per_key=2)


class World:
    """Slots as two processes take them."""

    def __init__(self, settings: Settings = LIMITS) -> None:
        self.clock = ManualClock()
        self.sessions = memory_stores().sessions
        self.here, self.there = (StreamSlots(self.sessions, settings, self.clock) for _ in range(2))

    def held(self, what: str = "streams") -> int:
        return sum(self.sessions.counts(what))

    async def open(self, key: str, process: StreamSlots | None = None, lasts_ms: int = 60_000) -> Response:
        return await (process or self.here).hold(Response(b"x"), key, self.clock.now_ms() + lasts_ms)


async def sent(response: Response) -> list[Message]:
    messages: list[Message] = []

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        messages.append(message)

    scope: Any = {"type": "http", "method": "GET", "asgi": {"spec_version": "2.4"}}
    await response(scope, receive, send)
    return messages


@in_a_loop
async def test_a_key_has_as_many_streams_as_it_may_in_all_processes() -> None:
    world = World()
    first = await world.open("k1")
    await world.open("k1", world.there)
    with pytest.raises(LimitReached) as raised:
        await world.open("k1", world.there)
    refused = response_to(raised.value, "GET")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    told = msgspec.json.decode(refused.body)["error"]
    assert told["code"] == "throttled"
    assert told["detail"] == {"limit": "max_sse_connections_per_key", "max": 2}
    await world.open("k2")
    with pytest.raises(LimitReached, match="max_sse_connections=3"):
        await world.open("k3")
    assert (await sent(first))[1]["body"] == b"x"
    await world.open("k3")


@in_a_loop
async def test_without_keys_only_the_limit_of_all_counts() -> None:
    world = World()
    for _ in range(3):
        await world.open("")
    with pytest.raises(LimitReached, match="max_sse_connections=3"):
        await world.open("")


@in_a_loop
async def test_without_limits_nothing_is_written() -> None:
    world = World(Settings(max_sse_connections=0, max_sse_connections_per_key=0))
    plain = Response(b"x")
    assert await world.here.hold(plain, "k", 0) is plain
    assert world.held() == world.held("streams/k") == 0


@in_a_loop
async def test_a_slot_is_freed_when_a_client_goes() -> None:
    world = World()

    async def endless() -> Any:
        while True:
            yield b"event"
            await asyncio.sleep(0)

    response = await world.here.hold(StreamingResponse(endless()), "k", world.clock.now_ms() + 1_000)
    assert world.held() == world.held("streams/k") == 1
    task = asyncio.create_task(sent(response))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert world.held() == world.held("streams/k") == 0


@in_a_loop
async def test_a_slot_is_freed_when_the_stream_fails() -> None:
    world = World()

    class Broken(Response):
        async def __call__(self, *_: Any) -> None:
            raise OSError

    response = await world.here.hold(Broken(), "k", world.clock.now_ms() + 1_000)
    with pytest.raises(OSError):
        await sent(response)
    assert world.held() == 0


@in_a_loop
async def test_a_slot_that_could_not_be_freed_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    streams = [await world.open("", lasts_ms=1_000) for _ in range(3)]

    def fail(*_: Any) -> None:
        raise StoreTimeout("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(MemorySessions, "commit", fail)
        assert (await sent(streams[0]))[0]["status"] == 200
    with pytest.raises(LimitReached):
        await world.open("")
    world.clock.advance(1)
    await world.open("")
    assert world.held() == 1


@in_a_loop
async def test_the_answer_is_that_of_the_stream() -> None:
    world = World()
    stream = Response(b"x", 200, {"content-type": "text/event-stream"})
    held = await world.here.hold(stream, "k", world.clock.now_ms() + 1_000)
    assert held.status_code == 200
    assert held.headers["content-type"] == "text/event-stream"


def test_a_key_has_as_many_requests_in_one_process_as_it_may() -> None:
    flight = InFlight(2)
    with ExitStack() as running:
        running.enter_context(flight.request("k"))
        with flight.request("k"):
            with pytest.raises(LimitReached) as raised, flight.request("k"):
                raise AssertionError
            assert raised.value.detail == {"limit": "max_inflight_per_key", "max": 2}
            with flight.request("other"), flight.request(""), flight.request(""), flight.request(""):
                pass
        with flight.request("k"):
            pass
    assert not flight._requests


def test_without_a_limit_requests_are_not_counted() -> None:
    with InFlight(0).request("k"), InFlight(0).request("k"):
        pass
