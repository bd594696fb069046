"""`…/_search` over HTTP: both forms, the shape of answers, headers, refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest

from headrace.errors import DeadlineExceeded, StoreThrottled, StoreTimeout
from tests.unit.api.asgi import JSON, Answer, Server
from tests.unit.search.samples import SEARCH

HEADERS = [
    "timed-out",
    "timeout-ms",
    "took-ms",
    "total-relation",
    "coverage-complete",
    "indexed-segments",
    "indexed-segment-time-ms",
    "fts-section-get-ms",
    "fts-decode-ms",
    "fts-clause-estimate-ms",
    "scanned-segments",
    "scanned-segment-time-ms",
    "scanned-tail-docs",
    "scanned-tail-time-ms",
    "exact-candidate-time-ms",
    "index-families-used",
]
BIG = 2**70


@pytest.fixture
def server() -> Server:
    server = Server()
    assert server("PUT", "/v1/stream/s", JSON).status == 201
    body = {"schema": {"type": "object"}, "search": SEARCH}
    assert server("POST", "/v1/stream/s/_schema", JSON, json.dumps(body).encode()).status == 200
    texts = [
        f'{{"at":"2026-01-01T00:00:0{n}Z","service":"{name}","status":"{200 + n}",'
        f'"n":{BIG},"f":1.0,"message":"job {n}"}}'
        for n, name in enumerate(["Billing", "auth", "Billing"])
    ]
    assert server("POST", "/v1/stream/s", JSON, f"[{','.join(texts)}]".encode()).status == 204
    return server


def post(server: Server, body: Any, name: str = "s") -> Answer:
    return server("POST", f"/v1/stream/{name}/_search", JSON, json.dumps(body).encode())


def get(server: Server, **parameters: Any) -> Answer:
    return server("GET", f"/v1/stream/s/_search?{urlencode(parameters, doseq=True)}")


def test_an_answer_has_every_member(server: Server) -> None:
    answer = post(server, {"q": "service:BILLING", "size": 1})
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    body = answer.json
    assert list(body) == [
        "stream",
        "snapshot_end_offset",
        "took_ms",
        "timed_out",
        "timeout_ms",
        "coverage",
        "total",
        "hits",
        "next_search_after",
    ]
    assert body["total"] == {"value": 2, "relation": "eq"}
    (hit,) = body["hits"]
    assert hit["offset"] == body["snapshot_end_offset"]  # behind the last record
    assert hit["sort"] == body["next_search_after"] == [hit["offset"]]
    assert hit["fields"] == {
        "at": "2026-01-01T00:00:02Z",
        "service": "Billing",
        "status": "202",
        "message": "job 2",
    }
    assert f'"n":{BIG},"f":1.0'.encode() in answer.body  # the text as it was appended
    assert body["coverage"]["scanned_tail_docs"] == 3


def test_every_header_mirrors_the_body(server: Server) -> None:
    answer = get(server, q="has:at")
    shown = {name: answer.headers[f"search-{name}"] for name in HEADERS}
    assert shown["timed-out"] == "false"
    assert shown["timeout-ms"] == "3000"
    assert shown["total-relation"] == "eq"
    assert shown["coverage-complete"] == "true"
    assert shown["scanned-tail-docs"] == "3"
    assert shown["index-families-used"] == ""


def test_both_forms_ask_the_same(server: Server) -> None:
    asked = {"q": "has:at", "size": 2, "sort": ["at:asc", "offset:asc"]}
    by_body = post(server, asked).json["hits"]
    assert get(server, q="has:at", size=2, sort="at:asc, offset:asc").json["hits"] == by_body
    assert get(server, q="has:at", size=2, sort=["at:asc", "offset:asc"]).json["hits"] == by_body


def test_pages_follow_one_another(server: Server) -> None:
    seen: list[Any] = []
    after: Any = None
    for _ in range(4):
        extra = {} if after is None else {"search_after": json.dumps(after)}
        page = get(server, q="job", size=1, **extra).json
        seen += [hit["source"]["status"] for hit in page["hits"]]
        after = page["next_search_after"]
    assert seen == ["202", "201", "200"]
    assert after is None


def test_no_time_is_a_408_with_a_body(server: Server) -> None:
    answer = post(server, {"q": "has:at", "timeout_ms": 0})
    assert answer.status == 408
    assert answer.json["timed_out"] is True
    assert answer.json["timeout_ms"] == 0
    assert answer.json["total"]["relation"] == "gte"
    assert answer.json["coverage"]["complete"] is False
    assert answer.headers["search-timed-out"] == "true"


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (DeadlineExceeded("late"), 408, "request_timeout"),
        (StoreTimeout("no answer"), 503, "unavailable"),
        (StoreThrottled("busy"), 429, "overloaded"),
    ],
)
def test_a_store_that_fails_is_told_as_of_a_read(
    server: Server, error: Exception, status: int, code: str, method: str
) -> None:
    def fail() -> Any:
        raise error

    failing = Server(parts=replace(server.parts, engine=fail))
    answer = get(failing, q="has:at") if method == "GET" else post(failing, {"q": "has:at"})
    assert (answer.status, answer.json["error"]["code"]) == (status, code)


def test_a_browser_may_see_every_header(server: Server) -> None:
    answer = post(server, {"q": "has:at"})
    exposed = {name.strip().lower() for name in answer.headers["access-control-expose-headers"].split(",")}
    assert {name for name in answer.headers if name.startswith("search-")} <= exposed


def test_a_long_wish_is_cut(server: Server) -> None:
    assert post(server, {"q": "has:at", "timeout_ms": 60_000}).json["timeout_ms"] == 3000


def test_explain_shows_the_work(server: Server) -> None:
    explained = get(server, q="has:at", explain="true").json["explain"]
    assert {"plan", "runs", "scanned", "gets", "cache", "stages_ms"} <= set(explained)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "q=",
        "q=has:at&q=has:at",
        "q=nothing:1",
        "q=has:at&size=0",
        "q=has:at&size=x",
        "q=has:at&sort=message",
        "q=has:at&search_after=5",
        "q=has:at&search_after=[",
        "q=has:at&timeout_ms=-1",
        "q=has:at&explain=1",
        "q=has:at&track_total_hits=true",
        "q=contains:x",
        "q=%FF",
    ],
)
def test_what_is_refused(server: Server, query: str) -> None:
    answer = server("GET", f"/v1/stream/s/_search?{query}")
    assert answer.status == 400, answer.body
    assert answer.json["error"]["code"] == "bad_request"


@pytest.mark.parametrize("body", [b"", b"[]", b"5", b'{"q":5}', b"{", b'{"q":"has:at","highlight":{}}'])
def test_what_is_refused_of_bodies(server: Server, body: bytes) -> None:
    assert server("POST", "/v1/stream/s/_search", JSON, body).status == 400


def test_other_methods_and_streams(server: Server) -> None:
    assert server("PUT", "/v1/stream/s/_search", JSON).status == 405
    assert get(server, q="has:at").status == 200
    assert post(server, {"q": "has:at"}, "nobody").status == 404
    assert server("PUT", "/v1/stream/plain", {"content-type": "text/plain"}).status == 201
    assert post(server, {"q": "has:at"}, "plain").status == 400


def test_a_key_needs_the_scope() -> None:
    server = Server(keys="w:write")
    assert server("GET", "/v1/stream/s/_search?q=has:at", key="w").status == 403
