"""`_index_status` and `_details`: documents, tags, and the wait for a change."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from functions.access import Access, parse
from functions.api.context import assemble
from functions.queue import MemoryQueue
from functions.sealer.context import assemble as assemble_sealer
from functions.sealer.seal import seal
from headrace.log.stores import Stores
from headrace.memory import memory_stores
from headrace.settings import Settings
from tests.support.faults import Faulty
from tests.unit.api.asgi import JSON, QUIET, TEXT, Answer, Server

S = "/v1/stream/s"
SCHEMA = {
    "schema": {"type": "object"},
    "routingKey": {"jsonPointer": "/k", "required": False},
    "search": {
        "primaryTimestampField": "t",
        "fields": {
            "t": {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/t"}], "column": True, "exact": True},
            "k": {
                "kind": "keyword",
                "bindings": [{"version": 1, "jsonPointer": "/k"}],
                "exact": True,
                "prefix": True,
            },
            "m": {
                "kind": "text",
                "analyzer": "unicode_word_v1",
                "bindings": [{"version": 1, "jsonPointer": "/m"}],
            },
        },
        "rollups": {"r": {"intervals": ["1m"], "measures": {"n": {"kind": "count"}}}},
    },
}


@pytest.fixture
def server() -> Server:
    return Server()


def other_process(server: Server, stores: Stores | None = None) -> Server:
    """Another process over the same stores."""
    return Server(parts=assemble(stores or server.stores, Access({})))


def define(server: Server, document: dict[str, Any]) -> Answer:
    answer = server("POST", S + "/_schema", JSON, json.dumps(document).encode())
    assert answer.status == 200, answer.body
    return answer


def seal_now(server: Server) -> None:
    """What the sealer does, as another process does it."""
    parts = assemble_sealer(server.stores, MemoryQueue())
    log_id = server.parts.logs().head("s").log_id
    assert seal(parts, log_id, force=True).generations
    parts.counts.flush(server.stores.watermarks)


def details(server: Server) -> dict[str, Any]:
    found: dict[str, Any] = server("GET", S + "/_details").json
    return found


def tag_of(server: Server, resource: str = "/_details") -> str:
    return server("GET", S + resource).headers["etag"]


# Documents.


def test_a_new_stream_is_all_zeros(server: Server) -> None:
    server("PUT", S, TEXT)
    found = details(server)
    summary = found["stream"]
    assert summary["created_at"] == summary["last_append_at"] == summary["last_segment_cut_at"]
    assert {name: summary[name] for name in summary if not name.endswith("_at")} == {
        "name": "s",
        "content_type": "text/plain",
        "profile": "generic",
        "ttl_seconds": None,
        "stream_seq": None,
        "closed": False,
        "epoch": 0,
        "next_offset": "0",
        "sealed_through": "-1",
        "uploaded_through": "-1",
        "segment_count": 0,
        "uploaded_segment_count": 0,
        "pending_rows": "0",
        "pending_bytes": "0",
        "total_size_bytes": "0",
        "wal_rows": "0",
        "wal_bytes": "0",
    }
    assert summary["expires_at"] is None
    assert found["index_status"]["manifest"] == {
        "generation": 0,
        "uploaded_generation": 0,
        "last_uploaded_at": None,
        "last_uploaded_etag": None,
        "last_uploaded_size_bytes": None,
    }
    assert {value for part in found["storage"].values() for value in part.values()} == {"0", 0}
    assert found["object_store_requests"]["puts"] == "0"


def test_what_is_sealed_moves_from_the_tail_to_the_bucket(server: Server) -> None:
    server("PUT", S, TEXT)
    for number, data in enumerate((b"one", b"two2", b"three")):
        server("POST", S, {**TEXT, "stream-seq": str(number)}, data)
    server.stores.watermarks.count(server.parts.logs().head("s").log_id, {"segment.get": 3, "wal_payload.get": 1})
    before = details(server)
    assert (before["stream"]["pending_rows"], before["stream"]["pending_bytes"]) == ("3", "12")
    assert before["storage"]["local_storage"]["wal_retained_bytes"] == "12"

    seal_now(server)
    found = details(server)
    summary, stored = found["stream"], found["storage"]["object_storage"]
    assert summary["stream_seq"] == "2"
    assert (summary["next_offset"], summary["sealed_through"], summary["uploaded_through"]) == ("3", "2", "2")
    assert (summary["pending_rows"], summary["pending_bytes"], summary["total_size_bytes"]) == ("0", "0", "12")
    assert (summary["segment_count"], summary["uploaded_segment_count"]) == (1, 1)
    assert found["index_status"]["segments"] == {"total_count": 1, "uploaded_count": 1}
    objects = server.stores.objects
    sizes = {key: len(objects.get(key)) for key in objects.list("logs/")}
    segments = sum(size for key, size in sizes.items() if key.endswith(".parquet"))
    manifest = sum(size for key, size in sizes.items() if "/manifests/" in key)
    assert (stored["segments_bytes"], stored["manifest_bytes"]) == (str(segments), str(manifest))
    assert stored["total_bytes"] == str(segments + manifest)
    assert found["index_status"]["manifest"]["last_uploaded_size_bytes"] == str(manifest)
    requests = found["object_store_requests"]
    by_artifact = {entry["artifact"]: entry for entry in requests["by_artifact"]}
    assert (by_artifact["segment"]["puts"], by_artifact["segment"]["gets"]) == ("1", "3")
    assert by_artifact["manifest"]["puts"] == "1"
    assert by_artifact["wal_payload"] == {
        "artifact": "wal_payload",
        "puts": "0",
        "gets": "1",
        "heads": "0",
        "lists": "0",
        "deletes": "0",
        "reads": "1",
    }
    assert sum(int(entry["puts"]) for entry in by_artifact.values()) == int(requests["puts"])
    assert int(requests["reads"]) == int(requests["gets"]) + int(requests["heads"]) + int(requests["lists"])


def test_figures_go_on_past_sealed_manifest_pages(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.manifest.manifest.PAGE_SEGMENTS", 2)
    server("PUT", S, TEXT)
    for number in range(7):
        server("POST", S, TEXT, b"x" * (number + 1))
        seal_now(server)
    objects = server.stores.objects
    sizes = {key: len(objects.get(key)) for key in objects.list("logs/")}
    pages = [key for key in sizes if "/pages/" in key]
    newest = max(key for key in sizes if "/manifests/" in key and "/pages/" not in key)
    assert len(pages) == 3
    for process in (server, other_process(server)):
        stored = details(process)["storage"]["object_storage"]
        assert stored["segment_object_count"] == 7
        assert stored["segments_bytes"] == str(sum(size for key, size in sizes.items() if key.endswith(".parquet")))
        assert stored["manifest_bytes"] == str(sizes[newest] + sum(sizes[page] for page in pages))


def test_the_indexes_that_a_schema_asks_for_lag_by_all_that_is_published(server: Server) -> None:
    server("PUT", S, JSON)
    define(server, SCHEMA)
    empty = server("GET", S + "/_index_status").json
    assert empty["routing_key_index"]["configured"]
    assert empty["routing_key_index"]["fully_indexed_uploaded_segments"]
    assert [index["stale_configuration"] for index in empty["exact_indexes"]] == [False, False]

    server("POST", S, {**JSON, "stream-timestamp": "2030-01-01T00:00:00Z"}, b'{"k":"a"}')
    seal_now(server)
    server("POST", S, {**JSON, "stream-timestamp": "2030-01-01T00:00:02.5Z"}, b'{"k":"b"}')
    found = server("GET", S + "/_index_status").json
    lagging = [
        found["routing_key_index"],
        found["routing_key_lexicon"],
        *found["exact_indexes"],
        *found["search_families"],
    ]
    assert {(part["lag_segments"], part["lag_ms"]) for part in lagging} == {(1, "2500")}
    assert not any(part["fully_indexed_uploaded_segments"] for part in [*lagging, found["bundled_companions"]])
    assert [(index["name"], index["kind"]) for index in found["exact_indexes"]] == [("k", "keyword"), ("t", "date")]
    assert {family["family"]: family["fields"] for family in found["search_families"]} == {
        "exact": ["k", "t"],
        "col": ["t"],
        "fts": ["k", "m"],
        "agg": ["r"],
    }
    generations = {family["plan_generation"] for family in found["search_families"]}
    assert generations == {found["desired_index_plan_generation"]} == {1}


def test_what_a_schema_does_not_ask_for_does_not_lag(server: Server) -> None:
    server("PUT", S, JSON)
    server("POST", S, JSON, b"1")
    seal_now(server)
    found = server("GET", S + "/_index_status").json
    assert not found["routing_key_index"]["configured"]
    assert (found["routing_key_index"]["lag_segments"], found["routing_key_index"]["lag_ms"]) == (0, None)
    assert found["bundled_companions"]["fully_indexed_uploaded_segments"]
    assert (found["exact_indexes"], found["search_families"]) == ([], [])


def test_the_metrics_profile_adds_its_family(server: Server) -> None:
    server("PUT", S, JSON)
    body = json.dumps({"profile": {"kind": "metrics"}}).encode()
    assert server("POST", S + "/_profile", JSON, body).status == 200
    found = server("GET", S + "/_index_status").json
    assert found["profile"] == "metrics"
    assert found["search_families"][-1]["family"] == "mblk"


def test_the_parts_are_what_their_own_routes_answer(server: Server) -> None:
    server("PUT", S, JSON)
    define(server, SCHEMA)
    found = details(server)
    for part, resource in (("schema", "/_schema"), ("profile", "/_profile"), ("index_status", "/_index_status")):
        assert found[part] == server("GET", S + resource).json
    definitions = [key for key in server.stores.objects.list("logs/") if "/registry/" in key]
    size = str(len(server.stores.objects.get(definitions[0])))
    assert found["storage"]["object_storage"]["schema_registry_bytes"] == size


def test_numbers_of_any_size_in_a_schema_are_shown(server: Server) -> None:
    server("PUT", S, JSON)
    define(server, {"schema": {"type": "object", "properties": {"n": {"maximum": 2**70}}}})
    assert details(server)["schema"]["schemas"]["1"]["properties"]["n"]["maximum"] == 2**70


def test_a_fork_shows_what_it_holds_itself(server: Server) -> None:
    server("PUT", "/v1/stream/source", TEXT)
    server("POST", "/v1/stream/source", TEXT, b"12345")
    assert server("PUT", S, {**TEXT, "stream-forked-from": "/v1/stream/source"}).status == 201
    summary = details(server)["stream"]
    assert (summary["next_offset"], summary["sealed_through"], summary["pending_rows"]) == ("1", "0", "0")
    server("POST", S, TEXT, b"67")
    summary = details(server)["stream"]
    assert (summary["next_offset"], summary["pending_rows"], summary["total_size_bytes"]) == ("2", "1", "2")


def test_missing_streams_and_other_methods_are_refused(server: Server) -> None:
    for resource in ("/_details", "/_index_status"):
        assert server("GET", S + resource).status == 404
        assert server("POST", S + resource).status == 405
        assert server("GET", S + resource + "?live=sse").status == 400
        assert server("GET", S + resource + "?live=true&timeout=1s&timeout_ms=1").status == 400


def test_reading_needs_the_read_scope() -> None:
    server = Server(keys="w:write,r:read:s,o:read:other,all")
    server("PUT", S, TEXT, key="all")
    for resource in ("/_details", "/_index_status"):
        statuses = {key: server("GET", S + resource, key=key).status for key in ("w", "r", "o")}
        assert statuses == {"w": 403, "r": 200, "o": 403}


# Tags.


@pytest.mark.parametrize("resource", ["/_details", "/_index_status"])
def test_a_tag_is_the_same_on_every_process_until_something_changes(server: Server, resource: str) -> None:
    server("PUT", S, {**JSON, "stream-ttl": "1h"})
    define(server, SCHEMA)
    server("POST", S, JSON, b'{"k":"a"}')
    seal_now(server)
    first = server("GET", S + resource)
    assert first.headers["cache-control"] == "no-store"
    assert first.headers["etag"].startswith(f'W/"{resource[2:]}:')
    again = other_process(server)("GET", S + resource, {"if-none-match": first.headers["etag"]})
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", first.headers["etag"])
    other = server("GET", S + resource, {"if-none-match": 'W/"other"'})
    assert (other.status, other.body) == (200, first.body)


def test_requests_to_the_object_store_change_no_tag(server: Server) -> None:
    """Else a reader of the stream would end every wait for a change of it."""
    server("PUT", S, TEXT, b"x")
    tag = tag_of(server)
    server.stores.watermarks.count(server.parts.logs().head("s").log_id, {"segment.get": 5})
    assert details(server)["object_store_requests"]["gets"] == "5"
    assert tag_of(server) == tag


def test_looking_does_not_renew_a_deadline() -> None:
    server = Server()
    server("PUT", S, {**TEXT, "stream-ttl": "1h"})
    before = details(server)["stream"]["expires_at"]
    log_id = server.parts.logs().head("s").log_id
    for _ in range(3):
        details(server)
    assert server.stores.watermarks.usage(log_id).touched_ms == 0
    assert details(server)["stream"]["expires_at"] == before


def test_a_deadline_that_another_process_renewed_is_seen(server: Server) -> None:
    server("PUT", S, {**TEXT, "stream-ttl": "1h"})
    before = details(server)
    log_id = server.parts.logs().head("s").log_id
    server.stores.watermarks.touch(log_id, server.parts.clock.now_ms() + 60_000)
    after = details(server)
    assert after["stream"]["expires_at"] > before["stream"]["expires_at"]


# Waiting.

Change = Callable[[Server], Awaitable[Answer]]
CHANGES: dict[str, Change] = {
    "append": lambda process: process.ask("POST", S, JSON, b'{"k":"b"}'),
    "schema": lambda process: process.ask("POST", S + "/_schema", JSON, json.dumps(SCHEMA).encode()),
    "profile": lambda process: process.ask("POST", S + "/_profile", JSON, b'{"profile":{"kind":"state-protocol"}}'),
    "close": lambda process: process.ask("POST", S, {"stream-closed": "true"}),
}


async def wait_while(server: Server, change: Callable[[], Awaitable[Any]], query: str) -> tuple[Answer, float]:
    """Makes a change while a request waits; returns the answer, and how long after the change it came."""
    tag = (await server.ask("GET", S + "/_details")).headers["etag"]
    waiting = asyncio.ensure_future(server.ask("GET", f"{S}/_details?{query}", {"if-none-match": tag}))
    await asyncio.sleep(0.15)
    assert not waiting.done()
    await change()
    began = time.monotonic()
    answer = await waiting
    assert answer.headers.get("etag") != tag
    return answer, time.monotonic() - began


@pytest.mark.parametrize("place", ["here", "elsewhere"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_wait_ends_with_a_change_of_any_process(change: str, place: str) -> None:
    server = Server()
    server("PUT", S, JSON)
    process = server if place == "here" else other_process(server)
    answer, late_s = asyncio.run(wait_while(server, lambda: CHANGES[change](process), "live=true&timeout=5s"))
    assert answer.status == 200, answer.body
    assert late_s < 1


def test_a_wait_ends_with_a_publication(server: Server) -> None:
    server("PUT", S, TEXT, b"x")

    async def publish() -> None:
        await asyncio.to_thread(seal_now, server)

    answer, _ = asyncio.run(wait_while(server, publish, "live=long-poll&timeout_ms=5000"))
    assert answer.json["stream"]["segment_count"] == 1


def test_a_wait_ends_when_the_stream_is_deleted(server: Server) -> None:
    server("PUT", S, TEXT, b"x")
    other = other_process(server)
    answer, _ = asyncio.run(wait_while(server, lambda: other.ask("DELETE", S), "live=true&timeout=5s"))
    assert answer.status == 404


def test_a_wait_is_not_ended_by_what_does_not_show(server: Server) -> None:
    server("PUT", S, TEXT, b"x")
    tag = tag_of(server)
    log_id = server.parts.logs().head("s").log_id

    async def run() -> Answer:
        waiting = asyncio.ensure_future(
            server.ask("GET", S + "/_details?live=true&timeout=700ms", {"if-none-match": tag})
        )
        await asyncio.sleep(0.1)
        await server.ask("GET", S)
        server.stores.watermarks.count(log_id, {"segment.get": 1})
        server.parts.logs().wakeups.notify("s")
        return await waiting

    began = time.monotonic()
    answer = asyncio.run(run())
    assert (answer.status, answer.headers["etag"], answer.body) == (304, tag, b"")
    assert time.monotonic() - began >= 0.7


def test_a_wait_for_another_tag_answers_at_once(server: Server) -> None:
    server("PUT", S, TEXT)
    began = time.monotonic()
    assert server("GET", S + "/_details?live=true&timeout=5s").status == 200
    assert server("GET", S + "/_details?live=true&timeout=5s", {"if-none-match": 'W/"x"'}).status == 200
    assert time.monotonic() - began < 2


def test_a_longer_wait_than_a_request_may_take_is_a_timeout() -> None:
    server = Server(settings=Settings(request_timeout_ms=200, live_timeout_ms=100))
    server("PUT", S, TEXT)
    headers = {"if-none-match": tag_of(server)}
    late = server("GET", S + "/_details?live=true&timeout=300ms", headers)
    assert (late.status, late.json["error"]["code"]) == (408, "request_timeout")
    assert server("GET", S + "/_details?live=true", headers).status == 304


def test_a_poll_costs_one_query_and_one_item_read() -> None:
    stores = memory_stores(QUIET)
    wal, watermarks = Faulty(stores.wal), Faulty(stores.watermarks)
    counted = replace(stores, wal=wal, watermarks=watermarks)
    server = Server(parts=assemble(counted, parse("")))
    server("PUT", S, TEXT)
    inspector = server.parts.inspector()
    inspector.look("s")
    for port in (wal, watermarks):
        port.calls.clear()
    inspector.version("s")
    assert (dict(wal.calls), dict(watermarks.calls)) == ({"newest": 1}, {"get": 1})
