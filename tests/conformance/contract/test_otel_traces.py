"""The profile otel-traces: one canonical span for each record, redacted before it is stored."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.contract.client import Api, Stream, expect, refused

TRACE, SPAN = "5b8efff798038103d269b633813fc60c", "086e83747d0e381e"


@pytest.fixture
def traces(api: Api) -> Stream:
    stream = api.stream()
    expect(stream.set_profile("otel-traces"), 200)
    return stream


def span(**fields: Any) -> dict[str, Any]:
    return {"traceId": TRACE, "spanId": SPAN, "startUnixNano": "1772020800000000001", "name": "n", **fields}


def test_a_span_becomes_canonical_and_is_read_by_its_trace(traces: Stream) -> None:
    other = "0" * 31 + "1"
    expect(traces.append([span(endUnixNano=1772020800002500001, kind=2), span(traceId=other)]), 204)
    (found,) = expect(traces.at("GET", f"/pk/{TRACE}"), 200).json()
    assert (found["schemaVersion"], found["signal"], found["kind"]) == (1, "trace.span", "server")
    assert (found["startUnixNano"], found["endUnixNano"]) == ("1772020800000000001", "1772020800002500001")
    assert (found["timestamp"], found["duration"]) == ("2026-02-25T12:00:00.000Z", 2.5)
    assert [one["traceId"] for one in traces.records()] == [TRACE, other]
    hits = expect(traces.at("POST", "/_search", None, {"q": f"trace:{TRACE} duration_ms:>2"}), 200).json()["hits"]
    assert [hit["source"] for hit in hits] == [found]


@pytest.mark.parametrize(
    "fields",
    [
        {"traceId": "5b8e"},
        {"traceId": "0" * 32},
        {"spanId": None},
        {"spanId": "z" * 16},
        {"parentSpanId": "1"},
        {"endUnixNano": "1"},
    ],
    ids=str,
)
def test_what_is_no_span_changes_nothing(traces: Stream, fields: dict[str, Any]) -> None:
    refused(traces.append([span(), span(**fields)]), 400)
    assert traces.records() == []


def test_secrets_statements_and_queries_are_not_stored(traces: Stream) -> None:
    attributes = {
        "http.request.header.authorization": "hidden-1",
        "db.statement": "select 'hidden-2'",
        "url.full": "https://a/b?c=hidden-3#hidden-4",
    }
    expect(traces.append([span(attributes=attributes, resource={"attributes": {"my.token": "hidden-5"}})]), 204)
    (stored,) = traces.records()
    assert "hidden" not in str(stored)
    assert (stored["http"]["url"], stored["db"]["statement"]) == ("https://a/b", None)
    assert "attributes.http.request.header.authorization" in stored["redaction"]["keys"]


def test_spans_are_added_up(traces: Stream) -> None:
    failed = {"http.response.status_code": 500, "http.route": "/x"}
    expect(traces.append([span(kind="server", attributes=failed), span(kind="client"), span(kind="server")]), 204)
    asked = {"from": "2026-02-25T12:00:00Z", "to": "2026-02-25T13:00:00Z", "interval": "1h"}
    for rollup, counted, count in (("spans", "spans", 3), ("http_server", "requests", 2)):
        answer = expect(traces.at("POST", "/_aggregate", None, {"rollup": rollup, **asked}), 200).json()
        ((group,),) = [bucket["groups"] for bucket in answer["buckets"]]
        assert group["measures"][counted] == {"count": count}
        assert group["measures"]["errors"] == {"count": 1}


def test_it_can_not_be_installed_after_data(stream: Stream) -> None:
    expect(stream.append([{"n": 1}]), 204)
    refused(stream.set_profile("otel-traces"), 400)


def test_an_event_and_its_spans_are_joined(api: Api, traces: Stream) -> None:
    events = api.stream()
    expect(events.set_profile("evlog"), 200)
    expect(events.append([{"requestId": "r", "traceId": TRACE, "message": "hello"}]), 204)
    expect(traces.append([span(), span(spanId="1" * 16, parentSpanId=SPAN)]), 204)
    found = expect(api.get("/v1/observe/request", events=events.name, traces=traces.name, requestId="r"), 200).json()
    assert found["summary"]["title"] == "hello"
    assert [child["spanId"] for child in found["trace"]["tree"][0]["children"]] == ["1" * 16]
    refused(api.get("/v1/observe/request", events=traces.name, traces=traces.name, requestId="r"), 400)
