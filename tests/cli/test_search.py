"""`headrace search`, `keys` and `aggregate` against a server that pages."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.cli.conftest import Shell
from tests.cli.fake_server import FakeServer

COMPLETE = {"mode": "complete", "complete": True, "possible_missing_wal_rows": 0}
PARTIAL = {
    "mode": "published",
    "complete": False,
    "possible_missing_wal_rows": 1200,
    "possible_missing_sealed_rows": 0,
}


class Searched:
    """Answers `_search` from a list of records, in pages, and keeps what it was asked."""

    def __init__(self, records: list[dict[str, Any]], **extra: Any) -> None:
        self.records = records
        self.extra = extra
        self.asked: list[dict[str, Any]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        self.asked.append(body)
        start = body["search_after"][0] if "search_after" in body else 0
        shown = self.records[start : start + body["size"]]
        end = start + len(shown)
        answer = {
            "stream": "logs",
            "coverage": COMPLETE,
            "timed_out": False,
            "total": {"value": len(self.records), "relation": "eq"},
            "hits": [
                {"offset": f"{at:026d}", "score": 0, "sort": [at], "fields": record, "source": record}
                for at, record in enumerate(shown, start=start)
            ],
            "next_search_after": [end] if len(shown) == body["size"] else None,
            **self.extra,
        }
        if body.get("explain"):
            answer["explain"] = {"plan": {"and": [{"clause": "a:1", "family": "kw"}]}, "gets": [{"family": "kw"}]}
        return httpx.Response(408 if answer["timed_out"] else 200, json=answer)


@pytest.fixture
def serve(server: FakeServer) -> Callable[..., Searched]:
    def begin(count: int, **extra: Any) -> Searched:
        records = [{"level": "info", "n": number} for number in range(count)]
        server.resources["logs/_search"] = searched = Searched(records, **extra)
        return searched

    return begin


def test_a_table_has_fields_and_says_how_many_there_are(headrace: Shell, serve: Callable[..., Searched]) -> None:
    searched = serve(3)
    result = headrace("search", "logs", "level:info", "--sort", "n:asc", "--limit", "2")
    assert result.exit_code == 0
    header, *rows = result.stdout.splitlines()
    assert header.split() == ["offset", "level", "n"]
    assert [row.split()[1:] for row in rows] == [["info", "0"], ["info", "1"]]
    assert "2 hits of 3 in" in result.stderr
    assert "--after '[2]'" in result.stderr
    assert searched.asked == [{"q": "level:info", "sort": ["n:asc"], "size": 2}]


def test_going_on_behind_a_hit(headrace: Shell, serve: Callable[..., Searched]) -> None:
    serve(5)
    result = headrace("search", "logs", "level:info", "--after", "[3]", "--field", "n")
    assert [line.split()[-1] for line in result.stdout.splitlines()] == ["n", "3", "4"]
    assert "--after" not in result.stderr
    assert headrace("search", "logs", "x", "--after", "3").exit_code == 2


def test_all_pages_as_lines_keep_the_records(headrace: Shell, serve: Callable[..., Searched]) -> None:
    searched = serve(1100)
    result = headrace("search", "logs", "level:info", "--all", "--records")
    assert [json.loads(line)["n"] for line in result.stdout.splitlines()] == list(range(1100))
    assert [body["size"] for body in searched.asked] == [500, 500, 500]


def test_one_document_has_the_hits_of_all_pages(headrace: Shell, serve: Callable[..., Searched]) -> None:
    serve(700)
    found = json.loads(headrace("search", "logs", "level:info", "--limit", "600", "--json", "--explain").stdout)
    assert [hit["source"]["n"] for hit in found["hits"]] == list(range(600))
    assert found["next_search_after"] == [600]
    assert found["explain"]["gets"]


def test_numbers_keep_their_text(headrace: Shell, server: FakeServer) -> None:
    hit = b'{"offset":"0","score":2.5,"fields":{"n":1.0,"big":123456789012345678901234567890},"source":{"n":1.0}}'
    page = b'{"hits":[' + hit + b'],"total":{"value":1,"relation":"gte"},"next_search_after":null}'
    server.resources["logs/_search"] = lambda request: httpx.Response(200, content=page)
    result = headrace("search", "logs", "word")
    assert result.stdout.splitlines()[1].split() == ["0", "2.5", "1.0", "123456789012345678901234567890"]
    assert "1 hit of at least 1" in result.stderr
    assert headrace("search", "logs", "word", "--records").stdout == '{"n":1.0}\n'


def test_what_is_left_out_is_said(headrace: Shell, serve: Callable[..., Searched]) -> None:
    serve(1, coverage=PARTIAL)
    result = headrace("search", "logs", "level:info")
    assert "warning: not everything was looked at: up to 1,200 wal rows left out" in result.stderr
    serve(1, coverage={**PARTIAL, "possible_missing_events_upper_bound": 1500})
    result = headrace("search", "logs", "level:info")
    assert "warning: not everything was looked at: up to 1,500 records left out" in result.stderr


def test_a_page_that_ran_out_of_time_is_shown(headrace: Shell, serve: Callable[..., Searched]) -> None:
    serve(1, timed_out=True)
    result = headrace("search", "logs", "level:info", "--timeout-ms", "0", "--all")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 2
    assert "the server's time was over" in result.stderr


@pytest.mark.parametrize(
    "command", [["search", "logs", "x"], ["aggregate", "logs", "r", "--last", "1h", "--interval", "1m"]]
)
def test_a_server_that_gives_up_is_an_error(headrace: Shell, server: FakeServer, command: list[str]) -> None:
    body = {"error": {"code": "request_timeout", "message": "request timed out"}}
    for resource in ("_search", "_aggregate"):
        server.resources[f"logs/{resource}"] = lambda request: httpx.Response(408, json=body)
    result = headrace(*command)
    assert result.exit_code == 1
    assert "did not finish in time" in result.stderr
    assert not headrace.slept


def test_a_refused_query_says_why(headrace: Shell, server: FakeServer) -> None:
    body = {"error": {"code": "bad_request", "message": "q: unknown field nope: position=0"}}
    server.resources["logs/_search"] = lambda request: httpx.Response(400, json=body)
    result = headrace("search", "logs", "nope:1")
    assert result.exit_code == 1
    assert "search of logs: q: unknown field nope: position=0 (400)" in result.stderr


def test_explain_is_a_tree(headrace: Shell, serve: Callable[..., Searched]) -> None:
    serve(1)
    result = headrace("search", "logs", "level:info", "--explain")
    assert "clause=a:1  family=kw" in result.stdout
    assert "gets" in result.stdout


def test_foreign_text_moves_no_cursor(headrace: Shell, server: FakeServer) -> None:
    source = {"m": "a\u001b[31mb\nc"}
    page = {"hits": [{"offset": "0", "score": 0, "fields": source, "source": source}], "next_search_after": None}
    server.resources["logs/_search"] = lambda request: httpx.Response(200, json=page)
    assert headrace("search", "logs", "x").stdout.splitlines()[1].split() == ["0", r"a\u001b[31mb\nc"]


# Keys.


def keyed(names: list[str], **extra: Any) -> Callable[[httpx.Request], httpx.Response]:
    def answer(request: httpx.Request) -> httpx.Response:
        params = request.url.params
        left = [name for name in names if name > params.get("after", "")]
        shown = left[: int(params["limit"])]
        more = shown[-1] if len(left) > len(shown) else None
        return httpx.Response(200, json={"keys": shown, "next_after": more, "coverage": COMPLETE, **extra})

    return answer


def test_keys_come_one_a_line(headrace: Shell, server: FakeServer) -> None:
    server.resources["logs/_routing_keys"] = keyed([f"k{number:04d}" for number in range(1203)])
    result = headrace("keys", "logs", "--limit", "2", "--after", "k0009")
    assert result.stdout == "k0010\nk0011\n"
    assert "--after 'k0011'" in result.stderr
    everything = headrace("keys", "logs", "--all")
    assert (len(everything.stdout.splitlines()), everything.stderr) == (1203, "")
    found = json.loads(headrace("keys", "logs", "--all", "--json").stdout)
    assert (len(found["keys"]), found["next_after"], found["complete"]) == (1203, None, True)


def test_keys_that_may_be_missing_are_said(headrace: Shell, server: FakeServer) -> None:
    coverage = {"complete": False, "possible_missing_uploaded_segments": 2}
    server.resources["logs/_routing_keys"] = keyed(["a\nb"], coverage=coverage)
    result = headrace("keys", "logs")
    assert result.stdout == "a\\nb\n"
    assert "up to 2 uploaded segments left out" in result.stderr
    assert json.loads(headrace("keys", "logs", "--json").stdout)["complete"] is False


# Aggregates.

BUCKETS = {
    "coverage": COMPLETE,
    "buckets": [
        {
            "start": "2030-01-01T00:00:00.000Z",
            "end": "2030-01-01T00:01:00.000Z",
            "groups": [
                {
                    "key": {"service": "billing"},
                    "measures": {
                        "latency": {"count": 2, "sum": 30.5, "min": 10, "max": 20.5, "avg": 15.25, "p95": 16},
                        "requests": {"count": 1200},
                    },
                },
                {"key": {"service": None}, "measures": {"latency": {"count": 0}, "requests": {"count": 1}}},
            ],
        }
    ],
}


def test_an_aggregate_is_a_row_for_each_group(headrace: Shell, server: FakeServer) -> None:
    asked: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content))
        return httpx.Response(200, json=BUCKETS)

    server.resources["logs/_aggregate"] = answer
    times = ["--from", "2030-01-01T00:00:00Z", "--to", "2030-01-02T00:00:00Z", "--interval", "1m"]
    result = headrace(
        "aggregate", "logs", "r", *times, "--group-by", "service", "--query", "a:1", "--stat", "count,avg"
    )
    lines = result.stdout.splitlines()
    assert lines[0].split()[:2] == ["start", "service"]
    assert lines[1].split() == ["2030-01-01T00:00:00.000Z", "billing", "2", "15.25", "1,200"]
    assert lines[2].split() == ["2030-01-01T00:00:00.000Z", "-", "0", "1"]
    assert "latency count" in lines[0]
    assert lines[0].rstrip().endswith("requests")
    assert asked == [
        {
            "rollup": "r",
            "interval": "1m",
            "from": "2030-01-01T00:00:00Z",
            "to": "2030-01-02T00:00:00Z",
            "q": "a:1",
            "group_by": ["service"],
        }
    ]
    assert json.loads(headrace("aggregate", "logs", "r", *times, "--json").stdout) == BUCKETS


def test_a_range_can_end_now(headrace: Shell, server: FakeServer) -> None:
    asked: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content))
        return httpx.Response(200, json={"buckets": [], "coverage": PARTIAL})

    server.resources["logs/_aggregate"] = answer
    result = headrace("aggregate", "logs", "r", "--last", "15m", "--interval", "1m")
    assert asked[0]["to"] - asked[0]["from"] == 900_000
    assert "no records in this range" in result.stderr
    assert "1,200 wal rows" in result.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        ["--from", "2030-01-01T00:00:00Z"],
        ["--last", "1"],
        ["--last", "0s"],
        ["--last", "1h", "--to", "5"],
        ["--last", "1h", "--stat", "median"],
    ],
)
def test_a_wrong_range_is_refused_here(headrace: Shell, server: FakeServer, wrong: list[str]) -> None:
    assert headrace("aggregate", "logs", "r", "--interval", "1m", *wrong).exit_code == 2
    assert not server.requests
