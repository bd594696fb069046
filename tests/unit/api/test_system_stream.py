"""`__stream_metrics__`: made when it is needed, written by the server, read by clients, in nobody's way."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
from msgspec import structs

from functions.access import Access
from functions.api.context import assemble
from functions.api.streams.system import emitter
from functions.queue import MemoryQueue
from functions.sealer.context import assemble as assemble_sealer
from functions.sealer.seal import seal
from headrace.errors import StoreThrottled, StoreTimeout
from headrace.index.descriptors import NONE, hash_of
from headrace.log.stores import Stores
from headrace.memory import memory_stores
from headrace.settings import Settings
from headrace.streams.values import METRIC_STREAMS, OWN_STREAMS, SYSTEM_STREAM
from headrace.streams.verbs import Streams
from tests.support.clocks import ManualClock
from tests.support.faults import Faulty
from tests.unit.api.asgi import JSON, TEXT, Server
from tests.unit.api.test_limits_load import write_routes

METRICS = f"/v1/stream/{SYSTEM_STREAM}"
NEVER_BY_ITSELF = Settings(metrics_interval_ms=3_600_000, request_counts_ms=0)
SPILLING = structs.replace(NEVER_BY_ITSELF, spill_bytes=10)


def server_on(stores: Stores) -> Server:
    return Server(parts=assemble(stores, Access({})))


@pytest.fixture
def server() -> Server:
    return server_on(memory_stores(NEVER_BY_ITSELF))


def intervals(server: Server, metric: str = "", stream: str | None = None) -> list[dict[str, Any]]:
    answer = server("GET", METRICS)
    found: list[dict[str, Any]] = answer.json if answer.status == 200 else []
    return [one for one in found if metric in ("", one["metric"]) and stream in (None, one["stream"])]


def eventually(check: Callable[[], object], within_s: float = 5) -> None:
    deadline = time.monotonic() + within_s
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.01)  # polls: a background thread flushes, without an event


def test_appends_and_reads_become_intervals_of_their_stream(server: Server) -> None:
    server("PUT", "/v1/stream/a", JSON, b"[1]")
    server("POST", "/v1/stream/a", JSON, b"[22,33]")
    server("POST", "/v1/stream/a", JSON, b"[4444]")
    server("PUT", "/v1/stream/b", TEXT, b"x")
    server("GET", "/v1/stream/a")
    server("GET", "/v1/stream/a?offset=now")
    server.parts.metrics.flush()

    (appended,) = intervals(server, "tieredstore.append.bytes", "a")
    assert (appended["unit"], appended["count"], appended["sum"], appended["max"]) == ("bytes", 3, 9, 4)
    assert appended["buckets"] == {"1": 1, "4": 2}
    (entries,) = intervals(server, "tieredstore.append.entries", "a")
    assert (entries["count"], entries["sum"]) == (3, 4)
    (read,) = intervals(server, "tieredstore.read.entries", "a")
    assert (read["count"], read["sum"]) == (2, 4)
    (took,) = intervals(server, "tieredstore.ingest.flush.latency", "a")
    assert (took["unit"], took["count"]) == ("ns", 3)
    assert 0 < took["min"] <= took["p50"] * 2 <= took["max"] * 2
    assert [one["sum"] for one in intervals(server, "tieredstore.append.bytes", "b")] == [1]
    (memory,) = intervals(server, "process.rss.bytes")
    assert memory["stream"] is None
    assert memory["sum"] > 1024 * 1024
    assert len({one["instance"] for one in intervals(server)}) == 1


def test_looking_again_for_one_who_waits_is_no_read(server: Server) -> None:
    tail = server("PUT", "/v1/stream/a", TEXT, b"x").offset
    assert server("GET", f"/v1/stream/a?offset={tail}&live=1&timeout=300ms").status == 204
    server.parts.metrics.flush()
    assert [one["count"] for one in intervals(server, "tieredstore.read.entries", "a")] == [1]


def test_its_definition_is_the_lean_one(server: Server) -> None:
    server("PUT", "/v1/stream/a", TEXT, b"x")
    server.parts.metrics.flush()
    assert server("GET", METRICS + "/_profile").json["profile"] == {"kind": "metrics"}
    schema = server("GET", METRICS + "/_schema").json
    assert schema["currentVersion"] == 1
    assert not schema.get("routingKey")
    assert not schema.get("search")
    status = server("GET", METRICS + "/_index_status").json
    assert status["search_families"] == []
    assert status["exact_indexes"] == []
    assert status["routing_key_index"]["configured"] is False
    (row,) = [row for row in server("GET", "/v1/streams").json if row["name"] == SYSTEM_STREAM]
    assert row["profile"] == "metrics"
    assert len(intervals(server, "tieredstore.append.bytes")) == 1


def test_nothing_of_it_is_indexed() -> None:
    stores = memory_stores(NEVER_BY_ITSELF)
    server, other = server_on(stores), server_on(stores)
    server("PUT", "/v1/stream/a", TEXT, b"x")
    server.parts.metrics.flush()
    other("POST", "/v1/stream/a", TEXT, b"y")
    other.parts.metrics.flush()  # under the definition as it is stored
    found = intervals(server, "tieredstore.append.bytes")
    assert len(found) == 2
    assert hash_of(Streams(stores).definition(SYSTEM_STREAM)) == NONE
    for interval in found:
        assert server("GET", f"{METRICS}/pk/{quote(interval['seriesKey'], safe='')}").json == []


def test_instances_of_a_function_share_a_few_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    writers = Counter(emitter.share(f"{number}-{number * 7:08x}", METRIC_STREAMS) for number in range(4000))
    assert set(writers) == set(METRIC_STREAMS)
    assert max(writers.values()) < 2 * 4000 / len(METRIC_STREAMS)
    stores = memory_stores(NEVER_BY_ITSELF)
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "api")
    instances = [server_on(stores) for _ in range(12)]
    for number, instance in enumerate(instances):
        monkeypatch.setattr(emitter, "instance_id", lambda number=number: f"i-{number}")
        instance("PUT", f"/v1/stream/s{number}", TEXT, b"x")
        instance.parts.metrics.flush()
        assert instance.parts.metrics.stream == emitter.share(f"i-{number}", METRIC_STREAMS)
    listed = {row["name"] for row in instances[0]("GET", "/v1/streams?prefix=__stream_metrics__").json}
    assert listed == {instance.parts.metrics.stream for instance in instances}
    assert 1 < len(listed) <= len(METRIC_STREAMS)
    for instance in instances:
        target = f"/v1/stream/{instance.parts.metrics.stream}"
        assert instance("GET", target + "/_profile").json["profile"] == {"kind": "metrics"}
        assert instance("DELETE", target).status == 400


def test_processes_that_need_it_at_once_make_one() -> None:
    stores = memory_stores(NEVER_BY_ITSELF)
    processes = [server_on(stores) for _ in range(6)]
    for number, process in enumerate(processes):
        process("PUT", f"/v1/stream/s{number}", TEXT, b"x")
    threads = [threading.Thread(target=process.parts.metrics.flush) for process in processes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = intervals(processes[0], "tieredstore.append.bytes")
    assert sorted(one["stream"] for one in found) == [f"s{number}" for number in range(6)]
    assert len({one["instance"] for one in found}) == 6
    assert processes[0]("GET", METRICS + "/_schema").json["boundaries"] == [{"offset": 0, "version": 1}]


def test_reading_it_writes_nothing_to_it() -> None:
    stores = memory_stores(NEVER_BY_ITSELF)
    server = server_on(stores)
    for _ in range(2):
        server("PUT", "/v1/stream/a", TEXT, b"x")
        server.parts.metrics.flush()
    log_id = server.parts.logs().head(SYSTEM_STREAM).log_id
    seal(assemble_sealer(stores, MemoryQueue()), log_id, force=True)
    stores.wal.remove(log_id, [entry.slot for entry in stores.wal.read(log_id).entries[:-1]])  # as trimming does
    before = intervals(server)
    for _ in range(3):
        server("GET", METRICS)
        server("GET", METRICS + "?offset=-1&live=long-poll")
        server.parts.metrics.flush()
    assert intervals(server) == before


def test_it_does_not_feed_on_itself_when_its_batch_goes_to_the_bucket() -> None:
    server = server_on(memory_stores(SPILLING))
    server("PUT", "/v1/stream/a", TEXT, b"x")
    for _ in range(4):
        server.parts.metrics.flush()
        server("GET", METRICS)
    assert len(intervals(server, "process.rss.bytes")) == 1


def test_requests_to_the_object_store_are_timed_by_kind_and_outcome() -> None:
    stores = memory_stores(SPILLING)
    objects = Faulty(stores.objects)
    server = server_on(replace(stores, objects=objects))
    incompressible = bytes(range(256))
    server("PUT", "/v1/stream/a", TEXT, incompressible)
    objects.fail("get", StoreTimeout)
    assert server("GET", "/v1/stream/a").status == 503
    assert server("GET", "/v1/stream/a").body == incompressible
    server.parts.metrics.flush()
    (put,) = intervals(server, "tieredstore.objectstore.put.latency")
    assert (put["tags"], put["unit"], put["count"]) == ({"artifact": "wal_payload", "outcome": "ok"}, "ns", 1)
    outcomes = [one["tags"]["outcome"] for one in intervals(server, "tieredstore.objectstore.get.latency")]
    assert sorted(outcomes) == ["error", "ok"]


def test_throttled_requests_are_counted() -> None:
    stores = memory_stores(NEVER_BY_ITSELF, ManualClock())
    wal = Faulty(stores.wal)
    server = server_on(replace(stores, wal=wal))
    server("PUT", "/v1/stream/a", TEXT)
    wal.fail("commit", StoreThrottled, times=1000)
    assert server("POST", "/v1/stream/a", TEXT, b"x").status == 429
    wal.heal()
    server.parts.metrics.flush()
    (over,) = intervals(server, "tieredstore.backpressure.over_limit", "a")
    assert (over["count"], over["unit"]) == (1, "count")
    assert intervals(server, "tieredstore.append.bytes") == []


@pytest.mark.parametrize("error", [StoreThrottled, StoreTimeout, ValueError])
def test_a_failing_metrics_append_hurts_nobody(error: type[Exception], caplog: pytest.LogCaptureFixture) -> None:
    stores = memory_stores(NEVER_BY_ITSELF, ManualClock())
    wal = Faulty(stores.wal)
    server = server_on(replace(stores, wal=wal))
    server("PUT", "/v1/stream/a", TEXT, b"x")
    wal.fail("commit", error, times=1000)
    server.parts.metrics.flush()
    assert "metrics" in caplog.text
    wal.heal()
    assert server("POST", "/v1/stream/a", TEXT, b"yy").status == 204
    server.parts.metrics.flush()
    (appended,) = intervals(server, "tieredstore.append.bytes", "a")
    # What was refused comes later, what may be already does not come twice.
    assert appended["sum"] == (3 if error is StoreThrottled else 2)


def test_a_server_appends_an_interval_after_the_first_value() -> None:
    server = server_on(memory_stores(Settings(metrics_interval_ms=50)))
    server("PUT", "/v1/stream/a", TEXT, b"x")
    eventually(lambda: intervals(server, "tieredstore.append.bytes", "a"))
    server("POST", "/v1/stream/a", TEXT, b"x")
    eventually(lambda: len(intervals(server, "tieredstore.append.bytes", "a")) == 2)


def test_on_lambda_metrics_are_appended_at_the_end_of_an_invocation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread did it beside the next request, and was frozen with it in mid-write."""
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "api")
    monkeypatch.setattr(emitter, "share", lambda _, streams: streams[0])
    clock = ManualClock()
    server = server_on(memory_stores(Settings(metrics_interval_ms=10_000, request_counts_ms=0), clock))
    threads = set(threading.enumerate())
    server("PUT", "/v1/stream/a", TEXT, b"x")
    server.parts.invocation_ended(28_000)
    clock.advance(10.1)
    assert server("POST", "/v1/stream/a", TEXT, b"x").status == 204
    assert intervals(server) == []
    server.parts.invocation_ended(28_000)
    assert intervals(server, "tieredstore.append.bytes", "a")
    assert set(threading.enumerate()) <= threads


def test_a_waiting_reader_hears_of_new_intervals(server: Server) -> None:
    server("PUT", "/v1/stream/a", TEXT, b"x")
    server.parts.metrics.flush()
    tail = server("HEAD", METRICS).offset

    async def wait() -> Any:
        asked = asyncio.ensure_future(server.ask("GET", f"{METRICS}?offset={tail}&live=long-poll"))
        await asyncio.sleep(0.05)
        await server.ask("POST", "/v1/stream/a", TEXT, b"x")
        await asyncio.to_thread(server.parts.metrics.flush)
        return await asked

    assert {one["stream"] for one in asyncio.run(wait()).json} == {"a", None}


def test_it_can_be_switched_off() -> None:
    server = server_on(memory_stores(Settings(metrics_interval_ms=0)))
    server("PUT", "/v1/stream/a", TEXT, b"x")
    server.parts.finish()
    assert server("GET", METRICS).status == 404


def test_a_server_that_ends_in_good_order_appends_what_is_left(server: Server) -> None:
    server("PUT", "/v1/stream/a", TEXT, b"x")

    async def live_and_end() -> None:
        async with server.app.router.lifespan_context(server.app):
            pass

    asyncio.run(live_and_end())
    assert intervals(server, "tieredstore.append.bytes", "a")


@pytest.mark.parametrize("name", sorted(OWN_STREAMS))
def test_clients_write_no_stream_of_the_servers_own(server: Server, name: str) -> None:
    server("PUT", "/v1/stream/a", TEXT, b"x")
    server.parts.metrics.flush()
    before = server("GET", METRICS).body
    target = f"/v1/stream/{name}"
    for method, resource in write_routes(server):
        answer = server(method, target + resource, JSON, b"{}")
        assert (answer.status, answer.json["error"]["code"]) == (400, "bad_request"), (method, resource)
        assert "reserved" in answer.json["error"]["message"]
    assert server("GET", METRICS).body == before
    expected = 200 if name == SYSTEM_STREAM else 404
    for resource in ("", "/_schema", "/_profile", "/_details", "/_index_status"):
        assert server("GET", target + resource).status == expected, resource
    for resource, body in (("/_search", b'{"q":"x"}'), ("/_aggregate", b"{}")):
        asked = server("POST", target + resource, JSON, body)  # only asks, and there is no schema to ask by
        assert asked.status == (400 if name == SYSTEM_STREAM else 404), resource
        assert "reserved" not in asked.json["error"]["message"]
    assert server("PUT", target + "x", TEXT).status == 201  # only these names


def test_a_key_reads_it_only_if_it_may(server: Server) -> None:
    server("PUT", "/v1/stream/a", TEXT, b"x")
    server.parts.metrics.flush()
    guarded = Server("reader:read,narrow:read:a,writer:write,admin", parts=None)
    guarded.parts.metrics.flush()
    for key, status in (("reader", 404), ("narrow", 403), ("writer", 403), ("admin", 404)):
        assert guarded("GET", METRICS, key=key).status == status
    assert guarded("PUT", METRICS, JSON, key="admin").status == 400
    assert guarded("PUT", METRICS, JSON, key="writer").status == 403


def test_a_fork_of_it_is_a_stream_like_any_other(server: Server) -> None:
    server("PUT", "/v1/stream/a", TEXT, b"x")
    server.parts.metrics.flush()
    assert server("PUT", "/v1/stream/copy", {"stream-forked-from": METRICS}).status == 201
    assert server("GET", "/v1/stream/copy").json == intervals(server)
    assert server("DELETE", "/v1/stream/copy").status == 204
