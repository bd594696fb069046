"""OTLP/HTTP: spans and logs of exporters in streams; what is malformed changes nothing."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pytest
from google.protobuf.json_format import ParseDict
from google.rpc.status_pb2 import Status
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from functions.access import parse
from functions.api.context import assemble
from functions.api.streams.otlp import export, routes
from headrace.errors import InvalidRequest, PayloadTooLarge, StoreThrottled, StoreTimeout
from headrace.limits import MAX_APPEND_BYTES
from headrace.settings import Settings
from tests.support.clocks import ManualClock
from tests.support.counting import counted_stores
from tests.support.faults import Faulty
from tests.unit.api.asgi import JSON, Answer, Server
from tests.unit.profiles.json_values import VALUES

PROTOBUF = {"content-type": "application/x-protobuf"}
GZIP = {"content-encoding": "gzip"}
TRACE, SPAN = "5b8efff798038103d269b633813fc60c", "086e83747d0e381e"
TRACES, LOGS = "/v1/stream/traces", "/v1/stream/logs"
TO_TRACES, TO_LOGS = f"{TRACES}/_otlp/v1/traces", f"{LOGS}/_otlp/v1/logs"


def attribute(key: str, **value: Any) -> dict[str, Any]:
    return {"key": key, "value": value}


def of_spans(*spans: dict[str, Any]) -> dict[str, Any]:
    resource = {"attributes": [attribute("service.name", stringValue="shop")]}
    scope = {"name": "lib", "version": "1"}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": list(spans)}]}]}


def of_logs(*logs: dict[str, Any]) -> dict[str, Any]:
    resource = {"attributes": [attribute("service.name", stringValue="shop")]}
    return {"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": list(logs)}]}]}


def span(**fields: Any) -> dict[str, Any]:
    return {
        "traceId": TRACE,
        "spanId": SPAN,
        "name": "GET /x",
        "kind": 2,
        "startTimeUnixNano": "1772020800000000001",
        "endTimeUnixNano": "1772020800002500001",
        **fields,
    }


def as_protobuf(request: dict[str, Any]) -> bytes:
    """Returns a request of spans in protobuf, where ids are bytes."""
    document = json.loads(json.dumps(request))
    for spans in document["resourceSpans"]:
        for one in spans["scopeSpans"][0]["spans"]:
            for id_of in (one, *one.get("links", ())):
                for key in ("traceId", "spanId", "parentSpanId"):
                    if key in id_of:
                        id_of[key] = export.b64encode(bytes.fromhex(id_of[key])).decode()
    return ParseDict(document, ExportTraceServiceRequest()).SerializeToString()


def stored(server: Server, path: str = TRACES) -> Any:
    return server("GET", path).json


@pytest.fixture(scope="module")
def installed() -> Server:
    server = Server()
    for path, kind in ((TRACES, "otel-traces"), (LOGS, "evlog"), ("/v1/stream/plain", "generic")):
        server("PUT", path, JSON)
        answer = server("POST", f"{path}/_profile", JSON, json.dumps({"profile": {"kind": kind}}).encode())
        assert answer.status == 200
    return server


@pytest.fixture
def server() -> Server:
    server = Server()
    for path, kind in ((TRACES, "otel-traces"), (LOGS, "evlog"), ("/v1/stream/plain", "generic")):
        server("PUT", path, JSON)
        server("POST", f"{path}/_profile", JSON, json.dumps({"profile": {"kind": kind}}).encode())
    return server


WHOLE = span(
    parentSpanId="0000000000000001",
    traceState="a=b",
    flags=257,
    status={"code": 2, "message": "boom"},
    droppedAttributesCount=3,
    attributes=[
        attribute("request.id", stringValue="r-1"),
        attribute("n", intValue="9007199254740993"),
        attribute("d", doubleValue=0.5),
        attribute("b", boolValue=False),
        attribute("raw", bytesValue="AAE="),
        attribute("list", arrayValue={"values": [{"intValue": "1"}, {"stringValue": ""}]}),
        attribute("map", kvlistValue={"values": [attribute("token", stringValue="hidden")]}),
        attribute("none"),
    ],
    events=[{"timeUnixNano": "1772020800000000002", "name": "e", "attributes": [attribute("k", intValue="1")]}],
    links=[{"traceId": TRACE, "spanId": SPAN}],
)


@pytest.mark.parametrize("encoding", [{}, GZIP], ids=["plain", "gzip"])
@pytest.mark.parametrize("form", ["json", "protobuf"])
def test_a_span_is_stored_whatever_its_form(server: Server, form: str, encoding: dict[str, str]) -> None:
    request = of_spans(WHOLE)
    body = json.dumps(request).encode() if form == "json" else as_protobuf(request)
    headers = JSON if form == "json" else PROTOBUF
    answer = server("POST", TO_TRACES, {**headers, **encoding}, gzip.compress(body) if encoding else body)
    assert answer.status == 200
    assert answer.headers["content-type"] == headers["content-type"]
    assert answer.body == (b"{}" if form == "json" else b"")
    (found,) = stored(server)
    assert found["attributes"] == {
        "request.id": "r-1",
        "n": 9007199254740993,
        "d": 0.5,
        "b": False,
        "raw": "AAE=",
        "list": [1, ""],
        "map": {"token": "[REDACTED]"},
        "none": None,
    }
    assert (found["startUnixNano"], found["duration"], found["kind"]) == ("1772020800000000001", 2.5, "server")
    assert (found["service"], found["requestId"], found["status"]["code"]) == ("shop", "r-1", "error")
    assert (found["parentSpanId"], found["traceState"], found["traceFlags"]["raw"]) == ("0" * 15 + "1", "a=b", 257)
    assert found["instrumentationScope"]["name"] == "lib"
    assert [event["name"] for event in found["events"]] == ["e"]
    assert [link["spanId"] for link in found["links"]] == [SPAN]
    assert found["dropped"]["attributes"] == 3
    assert answer.offset == server("HEAD", TRACES).offset


def test_both_forms_give_the_same_record() -> None:
    request = of_spans(WHOLE)
    in_json = routes.accept(routes.TRACES, request)
    in_protobuf = routes.accept(routes.TRACES, export.parse(export.TRACES, export.PROTOBUF, as_protobuf(request)))
    texts = []
    for accepted in (in_json, in_protobuf):
        ((text,), rejected, _) = accepted
        assert not rejected
        span, _ = routes.profiles.parse({"kind": "otel-traces"}).normalize(json.loads(text), 0)
        texts.append(span)
    assert texts[0] == texts[1]


def test_what_is_no_span_is_rejected_and_the_others_are_stored(server: Server) -> None:
    request = of_spans(span(), span(spanId="0" * 16), span(endTimeUnixNano="1"), span(name="last"))
    answer = server("POST", TO_TRACES, JSON, json.dumps(request).encode())
    assert answer.status == 200
    assert answer.json == {
        "partialSuccess": {"rejectedSpans": "2", "errorMessage": "spanId must not be all zeroes"},
    }
    assert [one["name"] for one in stored(server)] == ["GET /x", "last"]
    answer = server("POST", TO_TRACES, PROTOBUF, as_protobuf(of_spans(span(traceId="0" * 32))))
    told = ExportTraceServiceResponse.FromString(answer.body).partial_success
    assert (answer.status, told.rejected_spans) == (200, 1)
    assert "traceId" in told.error_message
    assert len(stored(server)) == 2


def test_a_request_without_spans_writes_nothing(server: Server) -> None:
    before = server.dump()
    for headers, body in ((JSON, b"{}"), (PROTOBUF, b"")):
        assert server("POST", TO_TRACES, headers, body).status == 200
    assert server.dump() == before
    assert server("POST", "/v1/stream/none/_otlp/v1/traces", JSON, b"{}").status == 404
    assert server("POST", "/v1/stream/plain/_otlp/v1/traces", JSON, b"{}").status == 400


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ({"severityNumber": 17}, {"level": "error"}),
        ({"severityNumber": 14}, {"level": "warn"}),
        ({"severityNumber": 9, "severityText": "ERROR"}, {"level": "info"}),
        ({"severityNumber": 1}, {"level": "debug"}),
        ({"severityText": "Warning"}, {"level": "warn"}),
        ({"severityNumber": "SEVERITY_NUMBER_FATAL2"}, {"level": "error"}),
        ({"body": {"stringValue": "hello"}}, {"message": "hello", "level": "info", "service": "shop"}),
        ({"timeUnixNano": "1772020800000000001"}, {"timestamp": "2026-02-25T12:00:00.000Z"}),
        ({"observedTimeUnixNano": "1772020800000000001"}, {"timestamp": "2026-02-25T12:00:00.000Z"}),
        ({"traceId": TRACE, "spanId": SPAN}, {"traceId": TRACE, "spanId": SPAN}),
        ({"traceId": "0" * 32}, {"traceId": None}),
        ({"attributes": [attribute("http.response.status_code", intValue="404")]}, {"status": 404, "level": "warn"}),
        ({"attributes": [attribute("request.id", stringValue="r")]}, {"requestId": "r"}),
    ],
    ids=str,
)
def test_a_log_becomes_an_event(server: Server, log: dict[str, Any], expected: dict[str, Any]) -> None:
    assert server("POST", TO_LOGS, JSON, json.dumps(of_logs(log)).encode()).status == 200
    (event,) = stored(server, LOGS)
    assert {key: event[key] for key in expected} == expected


def test_the_rest_of_a_log_is_its_context_without_secrets(server: Server) -> None:
    log = {
        "body": {
            "kvlistValue": {"values": [attribute("password", stringValue="hidden"), attribute("a", intValue="1")]}
        },
        "attributes": [
            attribute("http.request.header.authorization", stringValue="hidden"),
            attribute("url.full", stringValue="http://a/b?hidden"),
            attribute("exception.type", stringValue="E"),
            attribute("exception.message", stringValue="card declined"),
        ],
    }
    assert server("POST", TO_LOGS, JSON, json.dumps(of_logs(log)).encode()).status == 200
    (event,) = stored(server, LOGS)
    assert "hidden" not in json.dumps(event)
    assert event["message"] == "card declined"
    assert event["context"]["body"] == {"password": "[REDACTED]", "a": 1}
    assert event["context"]["error"] == {"type": "E", "message": "card declined"}
    assert event["context"]["resource"] == {"service.name": "shop"}
    found = server("GET", f"{LOGS}/_search?q=error.message:declined").json
    assert found["total"]["value"] == 1


def test_the_answer_about_logs_in_protobuf_is_empty(server: Server) -> None:
    answer = server("POST", TO_LOGS, PROTOBUF, b"")
    assert ExportLogsServiceResponse.FromString(answer.body) == ExportLogsServiceResponse()


def check_refused(server: Server, status: int, *request: Any) -> Answer:
    """Sends a request that must be refused with this status and a Status in its form, and must change nothing."""
    before = server.dump()
    answer = server("POST", *request)
    assert answer.status == status, answer
    if request[1].get("content-type") == PROTOBUF["content-type"]:
        assert answer.headers["content-type"] == PROTOBUF["content-type"]
        assert Status.FromString(answer.body).message
    else:
        assert answer.headers["content-type"] == "application/json; charset=utf-8"
        assert set(answer.json["error"]) == {"code", "message"}
        assert answer.json["message"] == answer.json["error"]["message"]
    assert server.dump() == before
    return answer


GOOD = json.dumps(of_spans(span())).encode()


@pytest.mark.parametrize(
    ("status", "target", "headers", "body"),
    [
        (400, TO_TRACES, JSON, b""),
        (400, TO_TRACES, JSON, b"{"),
        (400, TO_TRACES, JSON, b"[]"),
        (400, TO_TRACES, JSON, b'{"resourceSpans": {}}'),
        (400, TO_TRACES, JSON, b'{"resourceSpans": [1]}'),
        (400, TO_TRACES, JSON, json.dumps(of_spans(span(attributes=[{"key": 1}]))).encode()),
        (400, TO_TRACES, JSON, json.dumps(of_spans(span(attributes=[{"key": "a", "value": 1}]))).encode()),
        (400, TO_TRACES, JSON, json.dumps(of_spans(span(attributes=[attribute("a", intValue="x")]))).encode()),
        (400, TO_TRACES, PROTOBUF, b"\x0a"),
        (400, TO_TRACES, PROTOBUF, GOOD),
        (400, TO_TRACES, {**JSON, **GZIP}, GOOD),
        (400, TO_TRACES, {**JSON, **GZIP}, gzip.compress(GOOD)[:-9]),
        (413, TO_TRACES, {**JSON, **GZIP}, gzip.compress(b" " * (MAX_APPEND_BYTES + 1))),
        (415, TO_TRACES, {**JSON, "content-encoding": "br"}, GOOD),
        (415, TO_TRACES, {}, GOOD),
        (415, TO_TRACES, {"content-type": "text/plain"}, GOOD),
        (404, "/v1/stream/none/_otlp/v1/traces", JSON, GOOD),
        (400, "/v1/stream/plain/_otlp/v1/traces", JSON, GOOD),
        (400, f"{LOGS}/_otlp/v1/traces", JSON, GOOD),
        (400, f"{TRACES}/_otlp/v1/logs", JSON, json.dumps(of_logs({})).encode()),
        (400, "/v1/stream/__stream_metrics__/_otlp/v1/traces", JSON, GOOD),
        (404, "/v1/traces", JSON, GOOD),
        (404, "/v1/traces", PROTOBUF, as_protobuf(of_spans(span()))),
        (404, "/v1/logs", JSON, json.dumps(of_logs({})).encode()),
        (404, "/v1/traces", {**JSON, "stream-traces": "none"}, GOOD),
        (400, "/v1/traces", {**JSON, "stream-traces": ""}, GOOD),
        (400, "/v1/traces", {**JSON, "stream-traces": "%"}, GOOD),
        (400, "/v1/traces", {**JSON, "stream-traces": "a/_schema"}, GOOD),
        (400, "/v1/traces", {**JSON, "stream-traces": "__stream_metrics__"}, GOOD),
        (400, "/v1/traces", {**JSON, "stream-traces": "logs"}, GOOD),
        (400, "/v1/logs", {**JSON, "stream-logs": "traces"}, json.dumps(of_logs({})).encode()),
    ],
)
def test_a_request_that_is_refused_changes_nothing(
    installed: Server, status: int, target: str, headers: dict[str, str], body: bytes
) -> None:
    check_refused(installed, status, target, headers, body)


@pytest.mark.parametrize("headers", [JSON, PROTOBUF], ids=["json", "protobuf"])
def test_an_exporter_that_knows_the_server_alone_names_its_stream_or_takes_the_default(
    headers: dict[str, str],
) -> None:
    server = Server()
    for name in ("otel-traces", "team/ä"):
        server("PUT", f"/v1/stream/{name}", JSON)
        server("POST", f"/v1/stream/{name}/_profile", JSON, b'{"profile": {"kind": "otel-traces"}}')
    for span_id, named in (("1" * 16, {}), ("2" * 16, {"stream-traces": "team%2F%C3%A4"})):
        request = of_spans(span(spanId=span_id))
        body = gzip.compress(json.dumps(request).encode() if headers is JSON else as_protobuf(request))
        answer = server("POST", "/v1/traces", {**headers, **GZIP, **named}, body)
        assert (answer.status, answer.headers["content-type"]) == (200, headers["content-type"])
        (found,) = stored(server, f"/v1/stream/{unquote(named.get('stream-traces', 'otel-traces'))}")
        assert found["spanId"] == span_id


def test_the_body_of_a_stream_that_is_named_like_the_root_path_is_not_expanded(server: Server) -> None:
    body = gzip.compress(b"x")
    assert server("PUT", "/v1/stream/v1/traces", {"content-type": "application/gzip"}).status == 201
    assert server("POST", "/v1/stream/v1/traces", {"content-type": "application/gzip", **GZIP}, body).status == 204
    assert server("GET", "/v1/stream/v1/traces").body == body


@pytest.mark.parametrize("headers", [JSON, PROTOBUF], ids=["json", "protobuf"])
def test_a_closed_stream_and_a_wrong_method_are_told_of_in_a_status(server: Server, headers: dict[str, str]) -> None:
    server("POST", TRACES, {"stream-closed": "true"})
    body = GOOD if headers is JSON else as_protobuf(of_spans(span()))
    answer = check_refused(server, 409, "/v1/traces", {**headers, "stream-traces": "traces"}, body)
    assert answer.headers["stream-closed"] == "true"
    assert server("GET", "/v1/traces").json["message"] == "method not allowed"
    assert server("GET", "/v1/traces").headers["allow"] == "OPTIONS, POST"


def test_a_key_needs_to_write_the_stream_that_a_header_names() -> None:
    server = Server("ro:read,team:write:team/")
    for key, named, status in (
        (None, "team/x", 401),
        ("ro", "team/x", 403),
        ("team", "other", 403),
        ("team", "team/x", 404),
    ):
        answer = server("POST", "/v1/traces", {**PROTOBUF, "stream-traces": named}, b"", key)
        assert (answer.status, bool(Status.FromString(answer.body).message)) == (status, True)
    assert server("POST", "/v1/traces", JSON, b"{}", "team").status == 403


def test_a_name_can_not_end_like_the_routes(installed: Server) -> None:
    for sub in ("traces", "logs", "metrics"):
        assert installed("PUT", f"/v1/stream/x/_otlp/v1/{sub}", JSON).status in (400, 405)


@given(body=st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_arbitrary_protobuf_is_read_or_refused(body: bytes) -> None:
    try:
        document = export.parse(export.TRACES, export.PROTOBUF, body)
    except InvalidRequest:
        return
    routes.accept(routes.TRACES, document)


@given(value=VALUES, kind=st.sampled_from(["stringValue", "intValue", "arrayValue", "kvlistValue", "doubleValue"]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_arbitrary_json_is_read_or_refused(installed: Server, value: Any, kind: str) -> None:
    for fields in (
        {"attributes": [attribute("a", **{kind: value})]},
        {"name": value, "events": value, "status": value},
    ):
        answer = installed("POST", TO_TRACES, JSON, json.dumps(of_spans(span(**fields))).encode())
        assert answer.status in (200, 400), answer
        answer = installed("POST", TO_LOGS, JSON, json.dumps(of_logs(fields)).encode())
        assert answer.status in (200, 400), answer


def test_many_empty_messages_and_copies_of_a_resource_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "MAX_MESSAGES", 10)
    with pytest.raises(PayloadTooLarge, match="too many values"):
        export.parse(export.TRACES, export.PROTOBUF, b"\x0a\x00" * 10)
    request = of_spans(*(span() for _ in range(30)))
    request["resourceSpans"][0]["resource"]["attributes"].append(attribute("big", stringValue="x" * MAX_APPEND_BYTES))
    with pytest.raises(PayloadTooLarge, match="records are too large"):
        routes.accept(routes.TRACES, request)


def test_more_spans_than_an_append_may_have_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "MAX_RECORDS_PER_APPEND", 2)
    accepted = routes.accept(routes.TRACES, of_spans(span(), span(), span(), span()))
    assert (len(accepted.records), accepted.rejected, accepted.reason) == (2, 2, "too many records: limit=2")


def test_a_request_is_one_write_and_no_read() -> None:
    with counted_stores(settings=Settings(metrics_interval_ms=0, append_timeout_ms=60_000)) as (stores, calls):
        server = Server(parts=assemble(stores, parse("", "*")))
        server("PUT", TRACES, JSON)
        server("POST", f"{TRACES}/_profile", JSON, b'{"profile": {"kind": "otel-traces"}}')
        with calls.during() as made:
            answer = server("POST", TO_TRACES, JSON, json.dumps(of_spans(*(span() for _ in range(50)))).encode())
        assert answer.status == 200
        assert dict(made) == {"PutItem": 1}


@pytest.mark.parametrize(
    ("path", "document"), [(TO_TRACES, of_spans(span())), (TO_LOGS, of_logs({"body": {"stringValue": "x"}}))]
)
@pytest.mark.parametrize(
    ("error", "refused"), [(StoreThrottled, (429, "overloaded")), (StoreTimeout, (408, "append_timeout"))]
)
def test_a_request_that_the_stores_refuse_can_be_repeated(
    server: Server, path: str, document: Any, error: type[Exception], refused: tuple[int, str]
) -> None:
    clock, faulty = ManualClock(), Faulty(server.stores.wal)
    stores = replace(server.stores, wal=faulty, clock=clock)
    process, body = Server(parts=assemble(stores, parse("", "*"))), json.dumps(document).encode()
    before = server.dump()
    faulty.fail("commit", error, times=10_000)
    answer = process("POST", path, JSON, body)
    assert (answer.status, answer.json["error"]["code"]) == refused
    assert server.dump() == before
    faulty.heal()
    assert process("POST", path, JSON, body).status == 200
    assert len(stored(server, path.partition("/_otlp")[0])) == 1


def test_the_library_of_protobuf_is_imported_by_the_first_request_alone() -> None:
    program = "import sys, functions.api.app; print([name for name in sys.modules if name.startswith('google')])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
