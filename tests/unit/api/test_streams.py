"""Create, append, describe, delete, list and catch-up reads, as a client sees them."""

from __future__ import annotations

import pytest

from headrace.limits import MAX_APPEND_BYTES
from tests.unit.api.asgi import JSON, TEXT, Server

S = "/v1/stream/s"
ZERO = "0" * 26


@pytest.fixture
def server() -> Server:
    return Server()


def test_create_answers_201_then_200_then_409(server: Server) -> None:
    first = server("PUT", S, TEXT)
    assert (first.status, first.headers["location"], first.offset) == (201, "http://localhost/v1/stream/s", ZERO)
    again = server("PUT", S, {"content-type": "Text/Plain; charset=utf-8"})
    assert again.status == 200
    assert "location" not in again.headers
    assert server("PUT", S, JSON).status == 409
    assert server("PUT", S, {**TEXT, "stream-ttl": "60"}).status == 409


def test_location_is_ascii_whatever_the_client_sent(server: Server) -> None:
    answer = server("PUT", b"/v1/stream/a%2Fb/\xc3\xa9", {**TEXT, "host": "ex\u00e4mple"})
    assert answer.headers["location"] == "/v1/stream/a%2Fb/%C3%A9"


def test_an_absolute_expiry_in_the_past_is_accepted_and_final(server: Server) -> None:
    assert server("PUT", S, {**TEXT, "stream-expires-at": "2001-01-01T00:00:00Z"}).status == 201
    assert server("GET", S).status == 404


def test_describe_tells_ttl_expiry_and_end(server: Server) -> None:
    server("PUT", S, {**TEXT, "stream-ttl": "1h"}, b"x")
    head = server("HEAD", S)
    assert head.status == 200
    assert head.body == b""
    assert "content-length" not in head.headers
    assert head.headers["stream-ttl"] == "3600"
    assert head.headers["stream-expires-at"].endswith("Z")
    assert head.headers["cache-control"] == "no-store"
    assert head.headers["stream-end-offset"] == head.offset != ZERO


def test_append_answers_204_and_200_to_producers(server: Server) -> None:
    server("PUT", S, TEXT)
    assert server("POST", S, TEXT, b"a").status == 204
    producer = {**TEXT, "producer-id": "p", "producer-epoch": "0", "producer-seq": "0"}
    first, again = server("POST", S, producer, b"b"), server("POST", S, producer, b"b")
    assert (first.status, again.status) == (200, 204)
    assert again.headers["producer-seq"] == "0"
    gap = server("POST", S, {**producer, "producer-seq": "5"}, b"c")
    assert (gap.status, gap.headers["producer-expected-seq"], gap.headers["producer-received-seq"]) == (409, "1", "5")
    assert server("POST", S, {**producer, "producer-epoch": "1"}, b"c").status == 200
    stale = server("POST", S, {**producer, "producer-seq": "1"}, b"d")
    assert (stale.status, stale.headers["producer-epoch"]) == (403, "1")


def test_a_sequence_that_does_not_rise_names_both(server: Server) -> None:
    server("PUT", S, TEXT)
    server("POST", S, {**TEXT, "stream-seq": "b"}, b"x")
    answer = server("POST", S, {**TEXT, "stream-seq": "a"}, b"x")
    assert answer.status == 409
    assert (answer.headers["stream-expected-seq"], answer.headers["stream-received-seq"]) == ("b", "a")
    odd = server("POST", S, {**TEXT, "stream-seq": "é"}, b"x")
    assert odd.status == 204
    assert server("POST", S, {**TEXT, "stream-seq": "a"}, b"x").headers["stream-expected-seq"] == "\\xe9"


@pytest.mark.parametrize("header", ["stream-key", "stream-seq", "producer-id"])
@pytest.mark.parametrize("value", ["a\x01b", "a\x7fb", "a\x9b31m"])
def test_no_name_in_a_header_has_a_control_character(server: Server, header: str, value: str) -> None:
    server("PUT", S, TEXT)
    before = server.dump()
    answer = server(
        "POST", S, {**TEXT, "producer-epoch": "0", "producer-seq": "0", "producer-id": "p", header: value}, b"x"
    )
    assert (answer.status, answer.json["error"]["message"]) == (400, f"{header.title()} has a control character")
    assert server.dump() == before


def test_a_closed_stream_says_so_without_a_body(server: Server) -> None:
    server("PUT", S, TEXT, b"x")
    closed = server("POST", S, {"stream-closed": "true"})
    assert (closed.status, closed.headers["stream-closed"]) == (204, "true")
    refused = server("POST", S, JSON, b"[1]")
    assert (refused.status, refused.body, refused.headers["stream-closed"]) == (409, b"", "true")
    assert refused.offset == closed.offset


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (TEXT, b""),
        ({}, b"x"),
        (JSON, b"[]"),
        (JSON, b"{"),
        ({"content-type": "nonsense"}, b"x"),
        ({**TEXT, "stream-seq": ""}, b"x"),
        ({**TEXT, "stream-timestamp": "yesterday"}, b"x"),
        ({**TEXT, "stream-key": "k" * 5000}, b"x"),
        ({**TEXT, "producer-id": "p"}, b"x"),
        ({**JSON, "stream-closed": "true"}, b"[]"),
    ],
)
def test_a_malformed_append_changes_nothing(server: Server, headers: dict[str, str], body: bytes) -> None:
    server("PUT", S, JSON)
    before = server.dump()
    answer = server("POST", S, headers, body)
    assert (answer.status, answer.json["error"]["code"]) == (400, "bad_request")
    assert server.dump() == before


def test_bodies_are_limited_as_announced_and_as_received(server: Server) -> None:
    server("PUT", S, TEXT)
    announced = server("POST", S, {**TEXT, "content-length": str(MAX_APPEND_BYTES + 1)})
    chunk = bytes(1024 * 1024)
    received = server("POST", S, TEXT, [chunk] * 10 + [b"x"])
    assert (announced.status, received.status) == (413, 413)
    assert received.json["error"]["code"] == "payload_too_large"
    assert server("POST", S, TEXT, [chunk] * 10).status == 204
    assert len(server("GET", S).body) == MAX_APPEND_BYTES


def test_json_reads_as_an_array_or_raw(server: Server) -> None:
    server("PUT", S, JSON, b'[{"b":1.0,"a":12345678901234567890}, 2]')
    assert server("GET", S).body == b'[{"b":1.0,"a":12345678901234567890},2]'
    assert server("GET", S + "?format=json").body == server("GET", S).body
    raw = server("GET", S + "?format=raw")
    assert raw.headers["content-type"] == "application/octet-stream"  # JSON texts in a row are no JSON text
    assert raw.body == b'{"b":1.0,"a":12345678901234567890}2'
    server("PUT", "/v1/stream/t", TEXT)
    assert server("GET", "/v1/stream/t?format=json").status == 400


def test_a_fork_cuts_its_body_as_its_source_would(server: Server) -> None:
    server("PUT", S, JSON, b"[1]")
    assert server("PUT", "/v1/stream/f", {"stream-forked-from": S}, b"[2,3]").status == 201
    assert server("GET", "/v1/stream/f").body == b"[1,2,3]"


@pytest.mark.parametrize(
    "query",
    ["offset=", "offset=a&offset=b", "offset=0", "offset=0,1", "offset=%ff", "format=xml", "live=maybe", "live=true",
     "live=sse", "offset=-1&timeout=x", "offset=-1&timeout=1&timeout_ms=1", "since=today", "format=raw&live=sse&offset=-1",
     "offset=" + "Z" * 26, "offset=%00", "&".join(f"a{i}=1" for i in range(101))],
)  # fmt: skip
def test_a_malformed_read_is_refused(server: Server, query: str) -> None:
    server("PUT", S, JSON, b"[1]")
    answer = server("GET", f"{S}?{query}")
    assert (answer.status, answer.json["error"]["code"]) == (400, "bad_request")


def test_since_finds_records_by_time_and_an_offset_wins(server: Server) -> None:
    server("PUT", S, JSON)
    server("POST", S, {**JSON, "stream-timestamp": "2090-01-01T00:00:00.5Z"}, b"[1]")
    server("POST", S, {**JSON, "stream-timestamp": "2090-01-02T00:00:00Z"}, b"[2]")
    assert server("GET", S + "?since=2090-01-01T01:00:00.6+01:00").body == b"[2]"
    assert server("GET", S + "?since=3786912000500000000").body == b"[1,2]"
    assert server("GET", S + "?since=2091-01-01T00:00:00Z").body == b"[]"
    assert server("GET", S + "?since=2090-01-02T00:00:00Z&offset=-1").body == b"[1,2]"


RECORD = b'"' + b"x" * 4094 + b'"'  # a page of 4 MiB holds 1,024 of them


def fill(server: Server) -> str:
    """Writes a page of records and half of one; returns the cursor of the first page's end."""
    server("PUT", S, JSON, b"[" + b",".join([RECORD] * 1500) + b"]")
    return server("GET", S).offset


def test_only_a_page_that_can_never_change_is_immutable(server: Server) -> None:
    middle = fill(server)
    explicit = server("GET", f"{S}?offset={ZERO}")
    assert explicit.headers["cache-control"] == "immutable, max-age=31536000"
    assert "stream-up-to-date" not in explicit.headers
    for query in ("", "?offset=-1", "?since=0", f"?offset={middle}"):
        assert server("GET", S + query).headers["cache-control"] == "no-cache", query
    assert server("GET", S + "?offset=now").headers["cache-control"] == "no-store"
    server("POST", S, {"stream-closed": "true"})
    assert server("GET", f"{S}?offset={middle}").headers["cache-control"].startswith("immutable")


def test_what_expires_is_never_immutable(server: Server) -> None:
    server("PUT", S, {**JSON, "stream-ttl": "1h", "stream-closed": "true"}, b"[1]")
    assert server("GET", f"{S}?offset={ZERO}").headers["cache-control"] == "no-cache"


def test_an_entity_tag_changes_with_whatever_a_reader_must_learn(server: Server) -> None:
    server("PUT", S, JSON, b"[" + b",".join([RECORD] * 1024) + b"]")
    tail = server("GET", S).headers["etag"]
    same = server("GET", S, {"if-none-match": f'"other", {tail}'})
    assert (same.status, same.body, same.headers["etag"]) == (304, b"", tail)
    raw = server("GET", S + "?format=raw").headers["etag"]
    server("POST", S, JSON, b"2")
    more_follows = server("GET", S, {"if-none-match": tail})  # the same page, but not the end any more
    assert more_follows.status == 200
    end = server("GET", f"{S}?offset={more_follows.offset}").headers["etag"]
    server("POST", S, {"stream-closed": "true"})
    closed = server("GET", f"{S}?offset={more_follows.offset}", {"if-none-match": end})
    assert (closed.status, closed.headers["stream-closed"]) == (200, "true")
    tags = {tail, raw, more_follows.headers["etag"], end, closed.headers["etag"]}
    assert len(tags) == 5
    assert "etag" not in server("GET", S + "?offset=now").headers


def test_a_recreated_stream_has_other_tags_and_refuses_old_cursors(server: Server) -> None:
    server("PUT", S, JSON, b"[1]")
    old = server("GET", S)
    assert server("DELETE", S).status == 204
    assert server("DELETE", S).status == 204
    assert server("GET", S).status == 404
    assert server("PUT", S, JSON, b"[1]").status == 201
    assert server("GET", S).headers["etag"] != old.headers["etag"]
    gone = server("GET", f"{S}?offset={old.offset}")
    assert (gone.status, gone.json["error"]["code"]) == (410, "gone")
    assert server("DELETE", "/v1/stream/never").status == 404


def test_streams_are_listed_in_pages(server: Server) -> None:
    for name in ("b", "a", "a%2Fx", "%E2%82%AC"):
        server("PUT", f"/v1/stream/{name}", {**TEXT, "stream-ttl": "60"})
    rows = server("GET", "/v1/streams").json
    assert [row["name"] for row in rows] == ["a", "a/x", "b", "€"]
    assert set(rows[0]) == {
        "name",
        "created_at",
        "expires_at",
        "epoch",
        "next_offset",
        "sealed_through",
        "uploaded_through",
        "content_type",
        "profile",
    }

    def names(query: str) -> list[str]:
        return [row["name"] for row in server("GET", "/v1/streams?" + query).json]

    assert names("limit=1&offset=1") == ["a/x"]
    assert names("after=a/x") == ["b", "€"]
    assert names("prefix=a") == ["a", "a/x"]
    for bad in ("limit=0", "limit=1001", "limit=x", "offset=-1", "limit=1&limit=2"):
        assert server("GET", "/v1/streams?" + bad).status == 400
