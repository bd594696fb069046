"""Retention of streams over HTTP: headers, answers below the floor, and what searches see."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from functions.access import parse
from functions.api.context import assemble
from functions.api.streams.live import waiters
from functions.queue import MemoryQueue
from functions.sealer.context import assemble as assemble_sealer
from functions.sealer.seal import seal
from headrace.memory import memory_stores
from headrace.settings import Settings
from tests.support.clocks import ManualClock
from tests.support.index_runs import index
from tests.unit.api.asgi import JSON, Server

S = "/v1/stream/s"
AGE = {**JSON, "stream-retention-age": "60"}
SEARCH = {
    "primaryTimestampField": "at",
    "fields": {
        "at": {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/at"}], "column": True, "sortable": True},
        "n": {"kind": "integer", "bindings": [{"version": 1, "jsonPointer": "/n"}], "exact": True, "column": True},
    },
    "rollups": {"all": {"intervals": ["1h"], "measures": {"count": {"kind": "count"}}}},
}


class World:
    """A server, its clock, and a sealer of its stores."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        settings = Settings(metrics_interval_ms=0, seal_records=5)
        self.stores = memory_stores(settings, self.clock)
        self.server = Server(parts=assemble(self.stores, parse("", "*")))
        self.sealer = assemble_sealer(self.stores, MemoryQueue())

    def create(self, headers: dict[str, str] = AGE, path: str = S) -> Any:
        return self.server("PUT", path, headers)

    def append(self, *numbers: int, path: str = S) -> None:
        records = [{"n": number, "at": 1000 + number} for number in numbers]
        assert self.server("POST", path, JSON, json.dumps(records).encode()).status == 204

    def numbers(self, target: str = S) -> list[int]:
        answer = self.server("GET", target)
        assert answer.status == 200, answer
        return [record["n"] for record in answer.json]

    def found(self, q: str = "has:n", path: str = S) -> list[int]:
        body = {"q": q, "sort": ["offset:asc"], "size": 100}
        answer = self.server("POST", f"{path}/_search", JSON, json.dumps(body).encode())
        assert answer.status == 200, answer
        assert answer.json["total"] == {"value": len(answer.json["hits"]), "relation": "eq"}
        return [hit["source"]["n"] for hit in answer.json["hits"]]

    def counted(self, path: str = S) -> int:
        asked = {"rollup": "all", "from": "1970-01-01T00:00:00Z", "to": "1970-01-02T00:00:00Z", "interval": "1h"}
        answer = self.server("POST", f"{path}/_aggregate", JSON, json.dumps(asked).encode())
        assert answer.status == 200, answer
        groups = [group for bucket in answer.json["buckets"] for group in bucket["groups"]]
        return sum(group["measures"]["count"]["count"] for group in groups)

    def seal(self, name: str = "s") -> None:
        seal(self.sealer, self.server.parts.logs().head(name).log_id, force=True)


@pytest.fixture
def world() -> World:
    return World()


def test_a_retention_is_shown_and_changed(world: World) -> None:
    created = world.create()
    assert (created.status, created.headers["stream-retention-age"]) == (201, "60")
    assert "stream-retention-bytes" not in created.headers
    changed = world.create({**JSON, "stream-retention-age": "2h", "stream-retention-bytes": "1000"})
    assert (changed.status, changed.headers["stream-retention-bytes"]) == (200, "1000")
    head = world.server("HEAD", S)
    assert (head.headers["stream-retention-age"], head.headers["stream-retention-bytes"]) == ("7200", "1000")
    assert "stream-earliest-offset" not in head.headers
    assert world.create(JSON).status == 200
    assert world.server("HEAD", S).headers["stream-retention-age"] == "7200"
    gone = world.create({**JSON, "stream-retention-age": "none"})
    assert gone.status == 200
    assert not [name for name in gone.headers if name.startswith("stream-retention")]
    assert world.create({"content-type": "text/plain", "stream-retention-age": "60"}).status == 409


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("age", "0"),
        ("age", "soon"),
        ("age", "-1"),
        ("age", ""),
        ("bytes", "0"),
        ("bytes", "1.5"),
        ("bytes", "10MB"),
        ("bytes", "99999999999999999999"),
    ],
)
def test_a_wrong_retention_is_refused_and_changes_nothing(world: World, name: str, value: str) -> None:
    world.create()
    before = world.server.dump()
    for path in (S, "/v1/stream/new"):
        answer = world.create({**JSON, f"stream-retention-{name}": value}, path)
        assert answer.status == 400, answer
        assert set(answer.json["error"]) == {"code", "message"}
    assert world.server.dump() == before


def test_below_the_floor_a_read_is_410_and_names_the_earliest_offset(world: World) -> None:
    world.create()
    world.append(0, 1)
    first = world.server("GET", f"{S}?offset=-1")
    world.clock.advance(61)
    below = world.server("POST", S, JSON, b'[{"n": 2}]').headers["stream-next-offset"]
    head = world.server("HEAD", S).headers["stream-earliest-offset"]
    assert head == first.headers["stream-next-offset"]
    for query in ("", "&live=long-poll&timeout=0", "&live=sse", "&key=a"):
        answer = world.server("GET", f"{S}?offset=0000000000000000000G000000{query}")
        assert answer.status == 410, query
        assert answer.headers["stream-earliest-offset"] == head
        assert answer.json["error"]["code"] == "gone"
    assert world.numbers() == world.numbers(f"{S}?offset=-1") == world.numbers(f"{S}?offset={head}") == [2]
    assert world.numbers(f"{S}?since=0") == [2]
    assert world.server("GET", f"{S}?offset={below}").json == []
    assert world.server("GET", f"{S}?offset={head}").headers["cache-control"] == "no-cache"
    fork = {"stream-forked-from": S, "stream-fork-offset": "0000000000000000000G000000"}
    assert world.create(fork, "/v1/stream/f").status == 410


def test_a_touch_cursor_below_the_floor_is_stale(world: World) -> None:
    world.create()
    profile = b'{"profile":{"kind":"state-protocol","touch":{"enabled":true}}}'
    assert world.server("POST", f"{S}/_profile", JSON, profile).status == 200
    change = b'[{"type":"t","key":"k","value":1,"headers":{"operation":"insert"}}]'

    def wait(cursor: str) -> bytes:
        return json.dumps({"cursor": cursor, "keys": ["0123456789abcdef"], "timeoutMs": 0}).encode()

    def waited(cursor: str) -> dict[str, Any]:
        answer = world.server("POST", f"{S}/touch/wait", JSON, wait(cursor))
        assert answer.status == 200, answer
        return dict(answer.json)

    beginning = world.server("GET", f"{S}/touch/meta").json["cursor"]
    assert world.server("POST", S, JSON, change).status == 204
    floor = world.server("GET", f"{S}/touch/meta").json["cursor"]
    assert (waited(beginning)["touched"], waited(floor)["touched"]) == (False, False)
    world.clock.advance(61)
    stale = waited(beginning)
    assert (stale["stale"], stale["cursor"], stale["error"]["code"]) == (True, floor, "stale")
    assert stale["error"]["message"].startswith("cursor is below the floor")
    assert waited(floor)["touched"] is False
    assert world.server("GET", f"{S}/touch/meta").json["waitStaleTotal"] == 1

    async def act() -> Any:
        body = wait(floor).replace(b'"timeoutMs": 0', b'"timeoutMs": 5000')
        async with world.server.exchange("POST", f"{S}/touch/wait", JSON, body) as waiting:
            while not waiters():
                await asyncio.sleep(0)
            old = {**JSON, "stream-timestamp": "1970-01-01T00:00:00Z"}
            assert (await world.server.ask("POST", S, old, change)).status == 204
            return (await waiting.answer()).json

    during = asyncio.run(act())
    assert (during["stale"], during["generation"]) == (True, 2)


def test_searches_see_what_readers_see_on_the_tail_in_segments_and_in_runs(world: World) -> None:
    world.create()
    update = {"schema": {"type": "object"}, "search": SEARCH}
    assert world.server("POST", f"{S}/_schema", JSON, json.dumps(update).encode()).status == 200
    for start in (0, 5, 10):
        world.append(*range(start, start + 5))
        world.clock.advance(25)
    assert world.found() == list(range(5, 15))
    for stage in ("tail", "segments", "runs", "dropped"):
        if stage == "segments":
            world.seal()
        if stage == "runs":
            index(world.stores, world.server.parts.logs(), "s", span=3)
        if stage == "dropped":
            world.append(15)
            world.seal()
        left = world.numbers()
        assert (world.found(), world.counted()) == (left, len(left)), stage
        assert 0 < len(left) < 15
        if stage != "segments":
            world.clock.advance(5)
    fork = {"stream-forked-from": S, "stream-fork-offset": world.server("HEAD", S).headers["stream-next-offset"]}
    left = world.numbers()
    assert left[0] > 0
    assert world.create(fork, "/v1/stream/f").status == 201
    for _ in range(2):
        assert world.numbers("/v1/stream/f") == left
        assert (world.found(path="/v1/stream/f"), world.counted("/v1/stream/f")) == (left, len(left))
        world.seal("f")
    world.clock.advance(100)
    assert (world.found(), world.counted(), world.numbers()) == ([], 0, [])
    assert (world.found(path="/v1/stream/f"), world.numbers("/v1/stream/f")) == ([], [])
