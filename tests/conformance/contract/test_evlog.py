"""The profile evlog: one canonical envelope for each request log, redacted before it is stored."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.conformance.contract.client import Api, Stream, expect, refused

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
FIELDS = [
    *("timestamp", "level", "service", "environment", "version", "region", "requestId", "traceId", "spanId"),
    *("method", "path", "status", "duration", "message", "why", "fix", "link", "sampling", "redaction", "context"),
]


@pytest.fixture
def logs(api: Api) -> Stream:
    stream = api.stream()
    expect(stream.set_profile("evlog", redactKeys=["SessionToken"]), 200)
    return stream


def normal(stream: Stream, record: dict[str, Any]) -> dict[str, Any]:
    """Appends a record; returns what it became."""
    expect(stream.append([record]), 204)
    found: dict[str, Any] = stream.records()[-1]
    return found


def test_an_event_becomes_the_canonical_envelope(logs: Stream) -> None:
    event = {
        "timestamp": "2026-03-25T10:00:00.000Z",
        "level": " WARN ",
        "service": " api ",
        "environment": "prod",
        "requestId": "r-1",
        "method": "GET",
        "path": "/x",
        "status": "404",
        "duration": "12.5",
        "message": "  ",
        "user": {"id": 7},
        "context": {"a": 1},
    }
    assert normal(logs, event) == {
        **dict.fromkeys(FIELDS),
        "timestamp": "2026-03-25T10:00:00.000Z",
        "level": "warn",
        "service": "api",
        "environment": "prod",
        "requestId": "r-1",
        "method": "GET",
        "path": "/x",
        "status": 404,
        "duration": 12.5,
        "redaction": {"keys": []},
        "context": {"a": 1, "user": {"id": 7}},
    }
    assert list(logs.records()[0]) == FIELDS


def test_an_event_without_a_time_gets_the_present(logs: Stream) -> None:
    stamp = datetime.fromisoformat(normal(logs, {})["timestamp"])
    assert abs((datetime.now(UTC) - stamp).total_seconds()) < 60


@pytest.mark.parametrize(
    ("event", "level"),
    [
        ({}, "info"),
        ({"level": "debug", "status": 500}, "debug"),
        ({"level": "fatal"}, "info"),
        ({"why": "it broke"}, "error"),
        ({"fix": "repair"}, "error"),
        ({"link": "https://x"}, "error"),
        ({"status": 500}, "error"),
        ({"status": 404}, "warn"),
        ({"status": 399}, "info"),
        ({"status": "many"}, "info"),
    ],
)
def test_the_level_is_derived(logs: Stream, event: dict[str, Any], level: str) -> None:
    assert normal(logs, event)["level"] == level


@pytest.mark.parametrize(
    ("event", "ids"),
    [
        ({"requestId": "r", "traceId": "t", "spanId": "s"}, ("r", "t", "s")),
        ({"context": {"requestId": "r"}}, ("r", None, None)),
        ({"traceContext": {"traceId": "t", "spanId": "s"}}, (None, "t", "s")),
        ({"traceparent": f"00-{TRACE}-{SPAN}-01"}, (None, TRACE, SPAN)),
        ({"headers": {"traceparent": f"00-{TRACE.upper()}-{SPAN}-01"}}, (None, TRACE, SPAN)),
        ({"traceparent": f"00-{'0' * 32}-{SPAN}-01"}, (None, None, None)),
        ({"traceparent": "nonsense"}, (None, None, None)),
    ],
)
def test_ids_are_found_where_they_stand(logs: Stream, event: dict[str, Any], ids: tuple[Any, ...]) -> None:
    record = normal(logs, event)
    assert (record["requestId"], record["traceId"], record["spanId"]) == ids


def test_secrets_are_redacted_in_the_context_before_they_are_stored(logs: Stream) -> None:
    event = {
        "Password": "p",
        "context": {"token": "t", "nested": [{"SECRET": "s", "fine": 1}], "sessiontoken": "x"},
        "headers": {"authorization": "a", "Cookie": "c", "apiKey": "k"},
    }
    record = normal(logs, event)
    assert record["context"] == {
        "token": "[REDACTED]",
        "nested": [{"SECRET": "[REDACTED]", "fine": 1}],
        "sessiontoken": "[REDACTED]",
        "Password": "[REDACTED]",
        "headers": {"authorization": "[REDACTED]", "Cookie": "[REDACTED]", "apiKey": "[REDACTED]"},
    }
    assert set(record["redaction"]["keys"]) == {
        "token",
        "nested.0.SECRET",
        "sessiontoken",
        "Password",
        "headers.authorization",
        "headers.Cookie",
        "headers.apiKey",
    }
    assert b'"p"' not in logs.read(format="raw").content


@pytest.mark.parametrize("record", [1, "text", None, [1], True])
def test_an_event_is_an_object(logs: Stream, record: object) -> None:
    refused(logs.append([[record]] if isinstance(record, list) else [record]), 400)
    assert logs.records() == []


def test_the_routing_key_is_the_request_or_else_the_trace(logs: Stream) -> None:
    events = [{"requestId": "r", "traceId": "t"}, {"traceId": "t"}, {"message": "neither"}]
    expect(logs.append(events), 204)
    assert [record["traceId"] for record in logs.records(key="r")] == ["t"]
    assert [record["requestId"] for record in logs.records(key="t")] == [None]


def test_a_routing_key_of_the_schema_goes_first(logs: Stream) -> None:
    expect(logs.define(routingKey={"jsonPointer": "/service", "required": True}), 200)
    expect(logs.append([{"requestId": "r", "service": "api"}]), 204)
    assert len(logs.records(key="api")) == 1
    assert logs.records(key="r") == []


def test_installing_it_installs_schema_and_search(logs: Stream) -> None:
    registry = logs.registry().json()
    assert registry["currentVersion"] == 1
    assert registry["boundaries"] == [{"offset": 0, "version": 1}]
    assert list(registry["schemas"]["1"]["properties"]) == FIELDS
    assert registry["schemas"]["1"]["additionalProperties"] is False
    assert sorted(registry["schemas"]["1"]["required"]) == sorted(FIELDS)
    search = registry["search"]
    assert search["primaryTimestampField"] == "timestamp"
    keywords = {"level", "service", "environment", "method", "requestId", "traceId", "spanId", "path"}
    columns = {"timestamp", "status", "duration"}
    texts = {"message", "why", "fix", "error.message"}
    assert set(search["fields"]) == keywords | columns | texts
    assert all(search["fields"][name]["exact"] and search["fields"][name]["prefix"] for name in keywords)
    assert all(search["fields"][name]["column"] for name in columns)
    assert all(search["fields"][name]["kind"] == "text" for name in texts)
    assert {"req": "requestId", "trace": "traceId", "time": "timestamp"}.items() <= search["aliases"].items()
    assert "routingKey" not in registry


def test_its_fields_can_be_filtered_at_once(logs: Stream) -> None:
    expect(
        logs.append([{"service": "Api", "status": 500, "requestId": "r1"}, {"service": "web", "status": 200}]), 204
    )
    assert [record["requestId"] for record in logs.records(filter="service:api status:>=500")] == ["r1"]
    assert len(logs.records(filter="req:r1")) == 1


def test_it_cannot_be_installed_after_data(stream: Stream) -> None:
    expect(stream.append([{"n": 1}]), 204)
    refused(stream.set_profile("evlog"), 400)
    assert stream.profile().json()["profile"] == {"kind": "generic"}
    assert stream.registry().json()["currentVersion"] == 0


def test_keys_to_redact_are_stored_in_lower_case(logs: Stream) -> None:
    assert logs.profile().json()["profile"] == {"kind": "evlog", "redactKeys": ["sessiontoken"]}
    refused(logs.set_profile("evlog", redactKeys="password"), 400)
    refused(logs.set_profile("evlog", redactKeys=[f"k{n}" for n in range(65)]), 400)
