"""`…/_aggregate` and `…/_routing_keys` over HTTP: members, errors and doors."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from functions.api.door import answers
from functions.api.streams import search
from headrace.errors import DeadlineExceeded, StoreThrottled, StoreTimeout
from headrace.settings import Settings
from tests.unit.api.asgi import JSON, Answer, Server
from tests.unit.api.test_doors import LambdaDoor
from tests.unit.api.test_inspection import seal_now

S = "/v1/stream/s"
SCHEMA = {
    "schema": {"type": "object"},
    "routingKey": {"jsonPointer": "/k", "required": False},
    "search": {
        "primaryTimestampField": "t",
        "fields": {
            "t": {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/t"}], "column": True},
            "k": {"kind": "keyword", "bindings": [{"version": 1, "jsonPointer": "/k"}], "exact": True},
            "ms": {
                "kind": "float",
                "bindings": [{"version": 1, "jsonPointer": "/ms"}],
                "aggregatable": True,
            },
        },
        "rollups": {
            "r": {
                "dimensions": ["k"],
                "intervals": ["10s", "1m"],
                "measures": {
                    "requests": {"kind": "count"},
                    "latency": {"kind": "summary", "field": "ms", "histogram": "log2_v1"},
                },
            }
        },
    },
}
ASKED = {"rollup": "r", "from": "1970-01-01T00:00:05Z", "to": "60000000000", "interval": "10s", "group_by": ["k"]}
COVERAGE = {
    "mode", "complete", "stream_head_offset", "visible_through_offset", "visible_through_primary_timestamp_max",
    "oldest_omitted_append_at", "possible_missing_events_upper_bound", "possible_missing_uploaded_segments",
    "possible_missing_sealed_rows", "possible_missing_wal_rows", "used_rollups", "indexed_segments",
    "scanned_segments", "scanned_tail_docs", "index_families_used",
}  # fmt: skip


def a_server(records: int = 4) -> Server:
    server = Server(settings=Settings(metrics_interval_ms=0))
    server("PUT", S, JSON)
    assert server("POST", S + "/_schema", JSON, json.dumps(SCHEMA).encode()).status == 200
    made = [{"t": 5000 + number * 1000, "k": f"k{number % 3}", "ms": 2.5 * number} for number in range(records)]
    for at in range(0, records, 10_000):
        assert server("POST", S, JSON, json.dumps(made[at : at + 10_000]).encode()).status == 204
    return server


def ask(server: Any, body: Any = None, **changed: Any) -> Answer:
    asked = {**ASKED, **changed} if body is None else body
    found: Answer = server("POST", S + "/_aggregate", JSON, json.dumps(asked).encode())
    return found


def test_an_aggregate_has_the_members_of_the_contract() -> None:
    server = a_server()
    answer = ask(server)
    assert answer.status == 200
    assert (answer.headers["content-type"], answer.headers["cache-control"]) == ("application/json", "no-store")
    body = answer.json
    coverage = body.pop("coverage")
    assert set(coverage) == COVERAGE
    head = server("HEAD", S).headers["stream-end-offset"]
    assert coverage["stream_head_offset"] == coverage["visible_through_offset"] == head
    assert (coverage["complete"], coverage["mode"], coverage["scanned_tail_docs"]) == (True, "complete", 4)
    assert coverage["visible_through_primary_timestamp_max"] == "1970-01-01T00:00:08.000Z"
    assert list(body) == ["stream", "rollup", "from", "to", "interval", "buckets"]
    assert (body["from"], body["to"]) == ("1970-01-01T00:00:05.000Z", "1970-01-01T00:01:00.000Z")
    (bucket,) = body["buckets"]
    # The window begins within the interval; the bucket keeps its bounds.
    assert (bucket["start"], bucket["end"]) == ("1970-01-01T00:00:00.000Z", "1970-01-01T00:00:10.000Z")
    assert [group["key"] for group in bucket["groups"]] == [{"k": "k0"}, {"k": "k1"}, {"k": "k2"}]
    assert bucket["groups"][0]["measures"] == {
        "latency": {
            "count": 2, "sum": 7.5, "min": 0, "max": 7.5, "avg": 3.75,
            "p50": 1, "p95": 4, "p99": 4, "histogram": {"1": 1, "4": 1},
        },
        "requests": {"count": 2},
    }  # fmt: skip


def test_a_sealed_segment_is_scanned_and_explained() -> None:
    server = a_server()
    seal_now(server)
    body = ask(server, explain=True).json
    assert body["coverage"]["scanned_segments"] == 1
    assert body["coverage"]["scanned_tail_docs"] == 0
    assert set(body["explain"]) == {"plan", "runs", "gets", "cache", "stages_ms"}
    assert body["buckets"] == ask(a_server()).json["buckets"]


@pytest.mark.parametrize(
    "changed",
    [
        {"rollup": "x"}, {"from": "x"}, {"to": 0}, {"interval": "2m"}, {"q": "zz:1"}, {"q": "contains:k"},
        {"group_by": ["ms"]}, {"measures": []}, {"explain": "yes"},
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_400(changed: Any) -> None:
    answer = ask(a_server(), **changed)
    assert (answer.status, answer.json["error"]["code"]) == (400, "bad_request")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"5"])
def test_a_body_that_is_no_object_is_400(body: bytes) -> None:
    assert a_server()("POST", S + "/_aggregate", JSON, body).status == 400


def test_a_stream_without_a_schema_has_neither_aggregates_nor_keys() -> None:
    server = Server(settings=Settings(metrics_interval_ms=0))
    server("PUT", S, JSON)
    assert ask(server).status == 400
    assert server("GET", S + "/_routing_keys").status == 400
    assert server("GET", "/v1/stream/no/_routing_keys").status == 404
    assert server("POST", "/v1/stream/no/_aggregate", JSON, json.dumps(ASKED).encode()).status == 404


@pytest.mark.parametrize(("method", "resource"), [("GET", "/_aggregate"), ("POST", "/_routing_keys")])
def test_another_method_is_405(method: str, resource: str) -> None:
    assert a_server()(method, S + resource, JSON, b"{}").status == 405


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (DeadlineExceeded("late"), 408, "request_timeout"),
        (StoreTimeout("no answer"), 503, "unavailable"),
        (StoreThrottled("busy"), 429, "overloaded"),
    ],
)
def test_a_store_that_fails_is_told_as_of_a_request_that_wrote_nothing(
    error: Exception, status: int, code: str
) -> None:
    server = a_server()

    def fail() -> Any:
        raise error

    answer = ask(Server(parts=replace(server.parts, engine=fail)))
    assert (answer.status, answer.json["error"]["code"]) == (status, code)


def test_an_answer_that_no_buffered_door_takes_is_refused_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    server = a_server()
    door = LambdaDoor(server)
    body = json.dumps(ASKED).encode()
    assert door("POST", S + "/_aggregate", JSON, body)["statusCode"] == 200
    monkeypatch.setattr(answers, "ANSWER_BYTES", 1000)
    refused = door("POST", S + "/_aggregate", JSON, body)
    assert refused["statusCode"] == 413
    assert "narrower range, a coarser interval" in refused["body"]
    assert ask(server).status == 200, "no such limit on a door that streams"


def test_a_page_of_keys_has_the_members_of_the_contract() -> None:
    server = a_server()
    answer = server("GET", S + "/_routing_keys?limit=2")
    body = answer.json
    assert isinstance(body.pop("took_ms"), int)
    timing = body.pop("timing")
    assert set(timing) == {
        "lexicon_run_get_ms", "lexicon_decode_ms", "lexicon_enumerate_ms", "lexicon_merge_ms", "fallback_scan_ms",
        "fallback_segment_get_ms", "fallback_wal_scan_ms", "lexicon_runs_loaded",
    }  # fmt: skip
    assert body == {
        "stream": "s",
        "source": {"kind": "routing_key", "name": ""},
        "coverage": {
            "complete": True,
            "indexed_segments": 0,
            "scanned_uploaded_segments": 0,
            "scanned_local_segments": 0,
            "scanned_wal_rows": 4,
            "possible_missing_uploaded_segments": 0,
            "possible_missing_local_segments": 0,
            "possible_missing_wal_rows": 0,
        },
        "keys": ["k0", "k1"],
        "next_after": "k1",
    }
    last = server("GET", S + "/_routing_keys?limit=2&after=k1").json
    assert (last["keys"], last["next_after"]) == (["k2"], None)
    assert server("GET", S + "/_routing_keys?after=%C3%A9").json["keys"] == []


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=501", "limit=x", "limit=-1", "limit=", "limit=1&limit=2", "after=%ff"]
)
def test_a_page_that_makes_no_sense_is_400(query: str) -> None:
    assert a_server()("GET", f"{S}/_routing_keys?{query}").status == 400


def test_the_most_and_fewest_keys_of_a_page() -> None:
    server = a_server()
    assert server("GET", S + "/_routing_keys?limit=500").json["keys"] == ["k0", "k1", "k2"]
    assert server("GET", S + "/_routing_keys?limit=1").json["keys"] == ["k0"]
    assert search.DEFAULT_LIMIT == 100
