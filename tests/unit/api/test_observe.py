"""`/v1/observe/request`: an event and the spans of its trace in one view."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.api.asgi import JSON, Server

PATH = "/v1/observe/request"
WHOLE = Path(__file__).parent / "observed.json"
EVENTS, TRACES = "/v1/stream/events", "/v1/stream/traces"
TRACE, OTHER = "5b8efff798038103d269b633813fc60c", "1" * 32
ROOT, QUERY, REMOTE = "0" * 15 + "1", "0" * 15 + "2", "0" * 15 + "3"
BEGIN = 1_772_020_800_000_000_000  # 2026-02-25T12:00:00Z


def span(one: str, parent: str | None, begin_ms: int, end_ms: int, **fields: Any) -> dict[str, Any]:
    return {
        "traceId": TRACE,
        "spanId": one,
        "parentSpanId": parent,
        "startUnixNano": BEGIN + begin_ms * 1_000_000,
        "endUnixNano": BEGIN + end_ms * 1_000_000,
        "name": f"span {one[-1]}",
        "resource": {"attributes": {"service.name": "shop"}},
        **fields,
    }


SPANS = [
    span(
        ROOT,
        None,
        0,
        100,
        kind="server",
        attributes={"request.id": "r-1", "http.request.method": "GET", "http.route": "/x", "url.full": "http://a/x"},
        events=[{"name": "exception", "timeUnixNano": BEGIN + 95_000_000, "attributes": {"exception.type": "E"}}],
    ),
    span(QUERY, ROOT, 10, 20, kind="client"),
    span(
        REMOTE,
        ROOT,
        15,
        90,
        kind="server",
        resource={"attributes": {"service.name": "stock"}},
        status={"code": "error"},
    ),
    span(ROOT, None, 0, 50, traceId=OTHER),
]
EVENT = {
    "timestamp": "2026-02-25T12:00:00.101Z",
    "requestId": "r-1",
    "traceId": TRACE,
    "method": "GET",
    "path": "/x",
    "status": 500,
    "service": "shop",
    "private": "context",
}


def post(server: Server, path: str, body: Any, key: str | None = None) -> Any:
    return server("POST", path, JSON, json.dumps(body).encode(), key=key)


def create(server: Server, path: str, kind: str, records: list[Any], key: str | None = None, **options: Any) -> None:
    server("PUT", path, JSON, key=key)
    assert post(server, f"{path}/_profile", {"profile": {"kind": kind, **options}}, key).status == 200
    if records:
        assert post(server, path, records, key).status == 204


@pytest.fixture(scope="module")
def server() -> Server:
    server = Server()
    create(server, EVENTS, "evlog", [EVENT, {"requestId": "r-2"}])
    create(server, TRACES, "otel-traces", [*SPANS, SPANS[1]])
    create(server, "/v1/stream/plain", "generic", [])
    return server


def asked(**members: Any) -> dict[str, Any]:
    return {"streams": {"events": "events", "traces": "traces"}, **members}


def view(server: Server, **members: Any) -> Any:
    answer = post(server, PATH, asked(**members))
    assert answer.status == 200, answer
    return answer.json


@pytest.mark.parametrize("lookup", [{"requestId": "r-1"}, {"traceId": TRACE}, {"spanId": QUERY}], ids=str)
def test_any_id_leads_to_the_event_and_its_whole_trace(server: Server, lookup: dict[str, str]) -> None:
    found = view(server, lookup=lookup)
    assert found["lookup"] == {"requestId": "r-1", "traceId": TRACE, "spanId": None, **lookup}
    assert [match["source"]["requestId"] for match in found["evlog"]["matches"]] == ["r-1"]
    trace = found["trace"]
    assert [one["spanId"] for one in trace["spans"]] == [ROOT, QUERY, REMOTE]
    assert (trace["rootSpanId"], trace["duplicateSpans"], trace["missingParents"]) == (ROOT, 1, [])
    (root,) = trace["tree"]
    assert [(child["spanId"], child["depth"]) for child in root["children"]] == [(QUERY, 1), (REMOTE, 1)]
    assert trace["criticalPath"] == [ROOT, REMOTE]
    assert trace["serviceMap"] == [
        {
            "from": "shop",
            "to": "stock",
            "count": 1,
            "errorCount": 1,
            "latency": {"count": 1, "sum": 75.0, "min": 75.0, "max": 75.0},
        }
    ]
    assert [error["spanId"] for error in trace["errors"]] == [ROOT, REMOTE]
    assert not trace["partial"]
    assert found["coverage"]["warnings"] == []
    assert found["coverage"]["traces"]["complete"]
    summary = found["summary"]
    assert (summary["title"], summary["status"], summary["route"]) == ("GET /x", 500, "/x")
    assert summary["error"]["isError"]


def test_the_whole_view_has_each_member_where_clients_look_for_it(server: Server) -> None:
    assert view(server, lookup={"requestId": "r-1"}) == json.loads(WHOLE.read_bytes())


def test_without_an_event_the_root_span_tells() -> None:
    server = Server()
    attributes = {"http.request.method": "PUT", "url.path": "/y", "http.response.status_code": 200}
    retried = [{"name": "retry", "timeUnixNano": BEGIN + 1_000_000, "attributes": {"n": 1}}]
    failed = span(QUERY, ROOT, 0, 9, status={"code": "error", "message": "down"}, events=retried)
    create(server, TRACES, "otel-traces", [span(ROOT, None, 0, 10, attributes=attributes, events=retried), failed])
    body = {"streams": {"traces": "traces"}, "lookup": {"spanId": QUERY}, "include": {"events": False}}
    found = post(server, PATH, body).json
    summary = found["summary"]
    assert (summary["title"], summary["method"], summary["path"], summary["status"]) == ("PUT /y", "PUT", "/y", 200)
    assert (summary["level"], summary["error"]["isError"], summary["duration"]) == (None, True, 10.0)
    severities = {(item["kind"], item["severity"]) for item in found["timeline"] if item["ids"]["spanId"] == ROOT}
    assert severities == {(f"otel.span.{kind}", "info") for kind in ("start", "event", "end")}
    assert {item["severity"] for item in found["timeline"] if item["ids"]["spanId"] == QUERY} == {"error"}
    assert found["trace"]["errors"][0]["message"] == "down"
    assert found["lookup"]["spanId"] == QUERY


@pytest.mark.parametrize(
    ("fields", "is_error"),
    [({"level": "error"}, True), ({"status": 500}, True), ({"status": 499}, False), ({"level": "warn"}, False)],
    ids=str,
)
def test_an_event_says_whether_its_request_failed_and_why(fields: dict[str, Any], is_error: bool) -> None:
    server = Server()
    told = {"message": "no stock", "why": "sold out", "fix": "order", "link": "https://a"}
    level = {} if "level" in fields else {"level": "info"}
    create(server, EVENTS, "evlog", [{"requestId": "r", **told, **level, **fields}])
    body = {"streams": {"events": "events"}, "lookup": {"requestId": "r"}, "include": {"trace": False}}
    summary = post(server, PATH, body).json["summary"]
    assert summary["error"] == {"isError": is_error, "type": None, **told}
    assert summary["title"] == "no stock"


def test_time_that_children_share_is_counted_once() -> None:
    server = Server()
    root, parent, other, *children = (f"{number:016x}" for number in range(1, 6))
    family = [
        span(root, None, 0, 100),
        span(parent, root, 0, 100),
        span(other, root, 0, 90),  # longer than the 60 ms of its sibling's children, and shorter than these and 40 ms
        *(span(child, parent, 0, 60) for child in children),
    ]
    create(server, TRACES, "otel-traces", family)
    body = {"streams": {"traces": "traces"}, "lookup": {"traceId": TRACE}, "include": {"events": False}}
    trace = post(server, PATH, body).json["trace"]
    assert trace["criticalPath"] == [root, parent, children[0]]
    assert trace["serviceMap"] == []


def test_the_timeline_is_in_order_and_names_its_sources(server: Server) -> None:
    items = view(server, lookup={"requestId": "r-1"})["timeline"]
    assert [item["time"] for item in items] == sorted(item["time"] for item in items)
    kinds = [item["kind"] for item in items]
    assert kinds[0] == "otel.span.start"
    assert kinds[-1] == "evlog.event"
    assert kinds.count("otel.exception") == 1
    assert items[-1]["source"] == {"stream": "events", "offset": items[-1]["source"]["offset"], "profile": "evlog"}
    assert not any("data" in item for item in items)
    assert view(server, lookup={"requestId": "r-1"}, include={"timeline": False})["timeline"] == []


def test_records_are_whole_only_if_that_is_asked_for(server: Server) -> None:
    compact = json.dumps(view(server, lookup={"requestId": "r-1"}))
    assert "context" not in compact
    assert "http://a/x" not in compact
    whole = view(server, lookup={"requestId": "r-1"}, include={"raw": True})
    assert whole["evlog"]["primary"]["context"] == {"private": "context"}
    assert whole["trace"]["spans"][0]["http"]["url"] == "http://a/x"
    assert all("data" in item for item in whole["timeline"])


def test_parameters_ask_for_the_same_as_a_body(server: Server) -> None:
    query = "events=events&traces=traces&requestId=r-1&from=2026-02-25&to=2026-02-26&paddingMs=1&maxSpans=2"
    query += "&include=trace,raw"
    by_query = server("GET", f"{PATH}?{query}")
    time = {"from": "2026-02-25", "to": "2026-02-26", "paddingMs": 1}
    parts = {"events": False, "trace": True, "timeline": False, "raw": True}
    body = asked(lookup={"requestId": "r-1"}, time=time, limits={"spans": 2}, include=parts)
    assert by_query.status == 200
    assert by_query.json == post(server, PATH, body).json
    assert by_query.json["evlog"] is None
    assert by_query.json["trace"]["partial"]
    assert by_query.json["coverage"]["traces"]["limit_reached"]
    assert "there are more spans than the limit" in by_query.json["coverage"]["warnings"]


def test_a_time_bounds_what_is_found(server: Server) -> None:
    early = {"to": "2026-02-25T11:59:59.000Z"}
    found = view(server, lookup={"traceId": TRACE}, time=early)
    assert (found["trace"]["spans"], found["evlog"]["matches"]) == ([], [])
    assert found["coverage"]["warnings"] == ["no events were found", "no spans were found"]
    padded = view(server, lookup={"traceId": TRACE}, time={**early, "paddingMs": 1005})
    assert [one["spanId"] for one in padded["trace"]["spans"]] == [ROOT]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ([], "must be an object"),
        (asked(), "exactly one"),
        (asked(lookup={"requestId": "a", "traceId": "b"}), "exactly one"),
        (asked(lookup={"requestId": " "}), "exactly one"),
        (asked(lookup={"requestId": 1}), "must be a string"),
        (asked(lookup={"requestId": "a"}, include={"raw": 1}), "include.raw must be boolean"),
        (asked(lookup={"requestId": "a"}, limits={"spans": 10_001}), "limits.spans"),
        (asked(lookup={"requestId": "a"}, limits={"events": True}), "limits.events"),
        (asked(lookup={"requestId": "a"}, time={"from": "soon"}), "time.from"),
        (asked(lookup={"requestId": "a"}, time={"paddingMs": -1}), "paddingMs"),
        ({"lookup": {"requestId": "a"}}, "streams.events is required"),
        ({"streams": {"events": "events"}, "lookup": {"requestId": "a"}}, "streams.traces is required"),
        (
            {"streams": {"events": "traces", "traces": "traces"}, "lookup": {"requestId": "a"}},
            "streams.events must have",
        ),
        (
            {"streams": {"events": "events", "traces": "plain"}, "lookup": {"requestId": "a"}},
            "streams.traces must have",
        ),
        ({"streams": {"events": "_schema", "traces": "traces"}, "lookup": {"requestId": "a"}}, "reserved"),
    ],
    ids=str,
)
def test_a_wrong_request_is_refused_with_its_place(server: Server, body: Any, says: str) -> None:
    answer = post(server, PATH, body)
    assert answer.status == 400
    assert says in answer.json["error"]["message"]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("events=none&traces=traces&requestId=a", 404),
        ("events=events&traces=traces&requestId=a&maxSpans=x", 400),
        ("events=events&traces=traces&requestId=a&requestId=b", 400),
        ("events=events&traces=traces&requestId=a&include=all", 400),
    ],
)
def test_wrong_parameters_are_refused(server: Server, query: str, status: int) -> None:
    assert server("GET", f"{PATH}?{query}").status == status
    assert server("PUT", PATH).status == 405


def test_the_counterpart_that_a_profile_declares_is_asked_too() -> None:
    server = Server(keys="all,events-only:read:events,no-read:write")
    pair = {"observability": {"request": {"tracesStream": "traces"}}}
    create(server, EVENTS, "evlog", [EVENT], "all", **pair)
    create(server, TRACES, "otel-traces", SPANS, "all")
    target = f"{PATH}?events=events&requestId=r-1"
    assert len(server("GET", target, key="all").json["trace"]["spans"]) == 3
    assert server("GET", target, key="events-only").status == 403
    assert server("GET", target, key="no-read").status == 403
    assert server("GET", f"{target}&include=events", key="events-only").json["trace"] is None
    assert server("GET", target).status == 401


def test_spans_that_make_no_tree_are_shown_all_the_same() -> None:
    server = Server()
    ids = [f"{number:016x}" for number in range(1, 101)]
    chain = [span(one, parent, 0, 1) for one, parent in zip(ids, [None, *ids], strict=False)]
    circle = [span("a" * 16, "b" * 16, 0, 1), span("b" * 16, "a" * 16, 1, 2), span("c" * 16, "d" * 16, 0, 1)]
    create(server, TRACES, "otel-traces", [*chain, *circle])
    body = {"streams": {"traces": "traces"}, "lookup": {"traceId": TRACE}, "include": {"events": False}}
    answer = post(server, PATH, body)
    assert answer.status == 200
    trace = answer.json["trace"]
    assert len(trace["spans"]) == 103
    assert trace["missingParents"] == ["d" * 16]
    assert [node["spanId"] for node in trace["tree"]] == [ids[0], "c" * 16, "a" * 16]
    assert [node["spanId"] for node in trace["tree"][2]["children"]] == ["b" * 16]
    assert trace["partial"]
    assert len(trace["criticalPath"]) == 100
    assert "the tree is cut at a depth of 64: spans has all" in answer.json["coverage"]["warnings"]
