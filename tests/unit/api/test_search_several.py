"""`/v1/search`: one search of several streams, by names and patterns."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.api.asgi import JSON, Answer, Server

PATH = "/v1/search"


def field(kind: str, name: str, *capabilities: str, **more: str) -> dict[str, Any]:
    bindings = [{"version": 1, "jsonPointer": f"/{name}"}]
    return {"kind": kind, "bindings": bindings, **more, **dict.fromkeys(capabilities, True)}


def search_of(at: str = "at", **fields: Any) -> dict[str, Any]:
    own = {
        at: field("date", at, "exact", "column", "sortable"),
        "n": field("integer", "n", "exact", "column", "sortable"),
        "level": field("keyword", "level", "exact", "sortable"),
        "note": field("text", "note", "exists", analyzer="unicode_word_v1"),
    }
    return {"primaryTimestampField": at, "fields": {**own, **fields}}


def post(server: Server, path: str, body: Any, key: str | None = None) -> Answer:
    return server("POST", path, JSON, json.dumps(body).encode(), key=key)


def create(
    server: Server, name: str, records: list[Any], search: dict[str, Any] | None = None, key: str | None = None
) -> None:
    path = f"/v1/stream/{name}"
    server("PUT", path, JSON, key=key)
    if search is not None:
        assert post(server, f"{path}/_schema", {"schema": {"type": "object"}, "search": search}, key).status == 200
    if records:
        assert post(server, path, records, key).status == 204


@pytest.fixture(scope="module")
def server() -> Server:
    server = Server()
    for number, name in enumerate(("app/eu", "app/us", "app/us/blue")):
        records = [{"at": 10 * at + number, "n": at, "level": "info" if at % 2 else "warn"} for at in range(10)]
        create(server, name, records, search_of())
    create(server, "other", [{"when": 1000, "n": 3, "note": "card declined"}], search_of("when"))
    create(server, "app/plain", [{"n": 3}])
    server("PUT", "/v1/stream/app/bytes", {"content-type": "text/plain"})
    return server


def found(server: Server, streams: Any, **asked: Any) -> Any:
    answer = post(server, PATH, {"streams": streams, "q": "has:n", **asked})
    assert answer.status == 200, answer
    return answer.json


def places(answer: Any) -> list[tuple[str, int]]:
    return [(hit["stream"], hit["source"]["n"]) for hit in answer["hits"]]


def test_the_newest_of_all_streams_come_first(server: Server) -> None:
    answer = found(server, "app/*", size=4)
    assert places(answer) == [("app/us", 9), ("app/eu", 9), ("app/us", 8), ("app/eu", 8)]
    assert answer["total"] == {"value": 20, "relation": "eq"}
    assert answer["coverage"]["streams"] == ["app/eu", "app/us"]
    assert [one["stream"] for one in answer["coverage"]["streams_skipped"]] == ["app/bytes", "app/plain"]
    assert answer["coverage"]["complete"]


def test_patterns_and_names_are_joined_and_no_stream_is_searched_twice(server: Server) -> None:
    answer = found(server, ["app/**", "other", "app/us"], q="n:3")
    assert places(answer) == [("other", 3), ("app/us/blue", 3), ("app/us", 3), ("app/eu", 3)]
    assert answer["hits"][0]["source"]["note"] == "card declined"


@pytest.mark.parametrize(
    ("sort", "key"),
    [
        (["n:asc"], lambda one: one[1]),
        (["n:desc", "_time:asc"], lambda one: -one[1]),
        (["level:asc", "n:asc"], lambda one: (one[1] % 2 == 0, one[1])),
    ],
    ids=["one field", "two fields", "a keyword first"],
)
def test_pages_lose_nothing_and_repeat_nothing(server: Server, sort: list[str], key: Any) -> None:
    seen: list[tuple[str, int]] = []
    after: Any = None
    while True:
        page = found(server, "app/**", sort=sort, size=7, search_after=after)
        seen += places(page)
        after = page["next_search_after"]
        if after is None:
            break
    assert len(seen) == len(set(seen)) == 30
    assert [key(one) for one in seen] == sorted(key(one) for one in seen)


def test_words_snippets_and_explanations_work_as_for_one_stream(server: Server) -> None:
    answer = found(server, ["other"], q="note:declined", snippet=True, explain=True, sort=["_score:desc"])
    (hit,) = answer["hits"]
    assert hit["snippet"] == {"note": ["card declined"]}
    assert hit["score"] == 1
    assert set(answer["explain"]) == {"other"}


def test_parameters_ask_for_the_same(server: Server) -> None:
    by_query = server("GET", f"{PATH}?streams=app/*,other&q=n:3&size=2&sort=n:asc")
    assert by_query.status == 200
    assert places(by_query.json) == places(found(server, ["app/*", "other"], q="n:3", size=2, sort=["n:asc"]))


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ([], 400),
        ({"q": "n:1"}, 400),
        ({"streams": [], "q": "n:1"}, 400),
        ({"streams": ["x"] * 17, "q": "n:1"}, 400),
        ({"streams": [1], "q": "n:1"}, 400),
        ({"streams": "app//x", "q": "n:1"}, 400),
        ({"streams": "_schema", "q": "n:1"}, 400),
        ({"streams": "app/*"}, 400),
        ({"streams": "app/*", "q": "("}, 400),
        ({"streams": "app/*", "q": "unknown:1"}, 400),
        ({"streams": "app/plain", "q": "n:1"}, 400),
        ({"streams": ["app/*", "none"], "q": "n:1"}, 404),
        ({"streams": "nothing/*", "q": "n:1"}, 404),
        ({"streams": "app/*", "q": "n:1", "sort": ["offset:desc"]}, 400),
        ({"streams": "app/*", "q": "n:1", "sort": ["_bm25"]}, 400),
        ({"streams": "app/*", "q": "n:1", "sort": "n"}, 400),
        ({"streams": "app/*", "q": "n:1", "search_after": [1]}, 400),
        ({"streams": "app/*", "q": "n:1", "timeout_ms": -1}, 400),
    ],
    ids=str,
)
def test_a_wrong_request_is_refused(server: Server, body: Any, status: int) -> None:
    before = server.dump()
    answer = post(server, PATH, body)
    assert answer.status == status, answer
    assert set(answer.json["error"]) == {"code", "message"}
    assert server.dump() == before


def test_fields_of_other_kinds_have_no_order(server: Server) -> None:
    create(server, "kinds/a", [{"at": 1, "x": 1}], search_of(x=field("integer", "x", "column", "sortable")))
    create(server, "kinds/b", [{"at": 1, "x": "1"}], search_of(x=field("keyword", "x", "exact", "sortable")))
    create(server, "kinds/c/d", [{"at": 2, "x": 1.5}], search_of(x=field("float", "x", "column", "sortable")))
    answer = post(server, PATH, {"streams": "kinds/*", "q": "has:at", "sort": ["x:asc"]})
    assert answer.status == 400
    assert "x" in answer.json["error"]["message"]
    answer = post(server, PATH, {"streams": ["kinds/a", "kinds/c/*"], "q": "has:at", "sort": ["x:asc"]})
    assert [hit["source"]["x"] for hit in answer.json["hits"]] == [1, 1.5]


def test_a_key_finds_only_what_it_may_read() -> None:
    server = Server(keys="all,eu:read:app/eu,writer:write")
    for name in ("app/eu", "app/us"):
        create(server, name, [{"at": 1, "n": 1}], search_of(), key="all")
    body = {"streams": "app/*", "q": "n:1"}
    assert len(post(server, PATH, body, key="all").json["hits"]) == 2
    assert [hit["stream"] for hit in post(server, PATH, body, key="eu").json["hits"]] == ["app/eu"]
    assert post(server, PATH, {**body, "streams": ["app/us"]}, key="eu").status == 403
    assert post(server, PATH, {**body, "streams": ["app/us/*"]}, key="eu").status == 404
    assert post(server, PATH, body, key="writer").status == 403
    assert post(server, PATH, body).status == 401


def test_too_many_streams_are_refused(server: Server) -> None:
    for number in range(65):
        server("PUT", f"/v1/stream/many/{number}", JSON)
    answer = post(server, PATH, {"streams": "many/*", "q": "n:1"})
    assert answer.status == 400
    assert "too many streams" in answer.json["error"]["message"]


def test_what_was_not_searched_in_time_is_said(server: Server) -> None:
    answer = post(server, PATH, {"streams": "app/*", "q": "has:n", "timeout_ms": 0})
    assert answer.status == 408
    assert answer.json["timed_out"]
    assert not answer.json["coverage"]["complete"]
    assert answer.json["total"]["relation"] == "gte"
