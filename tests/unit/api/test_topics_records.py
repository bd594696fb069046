"""The bytes of records: kept as they came, limited in bytes of UTF-8, and compressed on the way if the client says so."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.api.topics.records import fitting
from headrace.topics.values import MAX_BODY_BYTES
from tests.unit.api.asgi import JSON, Answer, Server
from tests.unit.api.topics import T, append, ask, code, diff

GZIP = {**JSON, "content-encoding": "gzip"}


@pytest.fixture
def server() -> Server:
    return Server()


VERBATIM = [
    b"null",
    b"1.50",
    b"1e2",
    b"-0",
    b"12345678901234567890123456789",
    b'{ "b":1,\n\t"a" :[ ] }',
    b'{"a":1,"a":2}',
    '"\\u00e9 é \\/ \\ud83d\\ude00"'.encode(),
    b'"line\\r\\n"',
    b"[" * 100 + b"]" * 100,
]


@pytest.mark.parametrize("data", VERBATIM)
def test_data_is_answered_as_it_came(server: Server, data: bytes) -> None:
    meta = b'{ "z" : 1.0, "a":' + data + b"}"
    body = b'{"records": [ {"meta" : ' + meta + b' , "data" :  ' + data + b"  } ]}"
    assert server("POST", T, JSON, body).status == 201
    answer = server("POST", f"{T}/diff", JSON, b"{}")
    assert b'"data":' + data + b',"meta":' + meta + b"}" in answer.body


def test_an_empty_meta_is_one_and_null_is_none(server: Server) -> None:
    body = {"records": [{"data": 1, "meta": {}}, {"data": 2, "meta": None, "tag": None, "node": None}]}
    assert ask(server, "POST", T, body).status == 201
    first, second = diff(server, include_tags=True)["records"]
    assert first["meta"] == {}
    assert set(second) == {"$seq", "$ts", "data"}


def refused(server: Server, *records: object, **members: object) -> tuple[int, str]:
    before = ask(server, "GET", T).status
    found = code(ask(server, "POST", T, {"records": records, **members}))
    assert ask(server, "GET", T).status == before == 404  # nothing was created
    return found


def test_limits_are_in_bytes(server: Server) -> None:
    invalid = (400, "invalid_request")
    assert refused(server, {"data": 1, "tag": "é" * 128 + "x"}) == invalid
    assert refused(server, {"data": 1, "node": "é" * 64 + "x"}) == invalid
    assert refused(server, {"data": 1}, node="é" * 64 + "x") == invalid
    assert refused(server, {"data": 1, "meta": {"x": "y" * 16384}}) == invalid
    assert refused(server, {"data": 1, "meta": {f"k{number}": 1 for number in range(65)}}) == invalid
    assert refused(server, {"data": 1, "meta": []}) == invalid
    assert refused(server, {"data": 1}, idempotency_key="x" * 257) == invalid
    assert refused(server, {"data": 1}, idempotency_key="") == invalid
    assert refused(server, {"data": "x" * 1024 * 1024}) == (400, "record_too_large")
    assert refused(server, {"data": "x" * (1024 * 1024 - 20), "meta": {"m": "y" * 20}}) == (400, "record_too_large")
    assert refused(server, *[{"data": 0}] * 10_001) == (400, "batch_too_large")


def test_what_is_at_a_limit_is_accepted(server: Server) -> None:
    record = {
        "data": "x" * (1024 * 1024 - 2 - 16384),
        "tag": "é" * 128,
        "node": "é" * 64,
        "meta": {"x": "y" * (16384 - 9)},
    }
    assert ask(server, "POST", T, {"records": [record], "idempotency_key": "é" * 256}).status == 201
    keys = {"records": [{"data": 1, "meta": {f"key {number}": 1 for number in range(64)}}]}
    assert ask(server, "POST", T, keys).status == 200
    assert append(server, *[0] * 10_000).json["count"] == 10_000


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"records":null}',
        b'{"records":{}}',
        b'{"records":[]}',
        b'{"records":[1]}',
        b'{"records":[{}]}',
        b'{"records":[{"tag":"t"}]}',
        b'{"records":[{"data":1,"tag":1}]}',
        b'{"records":[{"data":1,"node":["n"]}]}',
        b'{"records":[{"data":1,"meta":"m"}]}',
        b'{"records":[{"data":1}],"node":1}',
        b'{"records":[{"data":1}],"create":"yes"}',
        b'{"records":[{"data":1}],"idempotency_key":7}',
        b'{"records":[{"data":1}],"disable_backpressure":1}',
        b'{"records":[{"data":1}],"config":[]}',
        b'{"records":[{"data":1}],"config":{"ttl_ms":-1}}',
        b'{"records":[{"data":1e999}]}',
        b'{"records":[{"data":"\\ud800"}]}',
        b'{"records":[{"data":"\xff"}]}',
        b'{"records":[{"data":01}]}',
        b'{"records":[{"data":1}]} {}',
        b"[" * 100_000,
    ],
)
def test_a_malformed_write_is_refused(server: Server, body: bytes) -> None:
    assert code(server("POST", T, JSON, body)) == (400, "invalid_request")
    assert code(ask(server, "GET", T)) == (404, "topic_not_found")


@pytest.mark.parametrize("member", ["data", "meta"])
def test_what_no_search_and_no_burial_could_parse_is_refused(server: Server, member: str) -> None:
    def nested(levels: int) -> bytes:
        record = {"data": b"1", member: b'{"a":' * levels + b"1" + b"}" * levels}
        return b'{"records":[{%b}]}' % b",".join(b'"%b":%b' % (name.encode(), text) for name, text in record.items())

    for levels in (201, 900):
        assert code(server("POST", T, JSON, nested(levels))) == (400, "invalid_request")
    assert code(ask(server, "GET", T)) == (404, "topic_not_found")
    assert server("POST", T, JSON, nested(200)).status == 201
    assert server("POST", T, JSON, b'{"records":[{"data":[%b]}]}' % b",".join([b"[{}]"] * 5000)).status == 200


def test_members_that_are_not_known_are_ignored(server: Server) -> None:
    body = {"records": [{"data": 1, "$seq": 9, "later": []}], "disable_backpressure": True, "later": {"x": 1}}
    assert ask(server, "POST", T, body).json["seqs"] == [1]
    assert diff(server, later=1)["records"][0]["data"] == 1


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonp"])
def test_a_body_must_say_that_it_is_json(server: Server, kind: str) -> None:
    headers = {"content-type": kind} if kind else {}
    body = b'{"records":[{"data":1}]}'
    assert code(server("POST", T, headers, body)) == (415, "unsupported_media_type")
    assert code(server("PUT", T, {**headers, "content-length": "2"}, b"{}")) == (415, "unsupported_media_type")
    assert server("POST", T, {"content-type": "Application/JSON; charset=utf-8"}, body).status == 201


def test_a_compressed_body_is_expanded(server: Server) -> None:
    body = json.dumps({"records": [{"data": "x" * 1000}] * 2000}).encode()
    whole = gzip.compress(body)
    assert server("POST", T, GZIP, whole).json["count"] == 2000
    pieces = [whole[start : start + 7] for start in range(0, len(whole), 7)]
    assert server("POST", T, GZIP, pieces).json["count"] == 2000
    members = gzip.compress(body[:100]) + gzip.compress(body[100:])
    assert server("POST", T, GZIP, members).json["count"] == 2000
    assert server("POST", T, {**JSON, "content-encoding": "identity"}, body).json["count"] == 2000


@given(body=st.binary(max_size=300), cuts=st.lists(st.integers(0, 300), max_size=5))
def test_a_compressed_body_may_come_in_any_pieces(body: bytes, cuts: list[int]) -> None:
    data = gzip.compress(json.dumps({"records": [{"data": body.hex()}]}).encode())
    places = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    pieces = [data[start:end] for start, end in pairwise(places)]
    server = Server()
    assert server("POST", T, GZIP, pieces).status == 201
    assert diff(server)["records"][0]["data"] == body.hex()


def test_a_body_of_many_gzip_members_is_refused(server: Server) -> None:
    answer = server("POST", T, GZIP, SHORT * 3000)
    assert code(answer) == (400, "invalid_request")
    assert "members" in answer.json["error"]["message"]


def test_of_records_that_come_twice_the_last_ones_count(server: Server) -> None:
    one, many = b'"records":[{"data":1}]', b'"records":[%b]' % b",".join([b'{"data":1}'] * 10_001)
    assert code(server("POST", T, JSON, b"{%b,%b}" % (one, many))) == (400, "batch_too_large")
    assert server("POST", T, JSON, b"{%b,%b}" % (many, one)).json["seqs"] == [1]


def test_an_array_of_more_elements_than_simdjson_can_build_is_refused(server: Server) -> None:
    for body in (b'{"records":[%b0]}', b'{"records":[{"data":[%b0]}]}'):
        assert code(server("POST", T, JSON, body % (b"0," * 2**24)))[0] == 400
    long = b'"records":0.%b1' % (b"0" * 200_000)
    assert code(server("POST", T, JSON, b"{%b}" % long)) == (400, "invalid_request")
    assert server("POST", T, JSON, b'{"x":[%b0],"records":[{"data":1}]}' % (b"0," * 2**24)).status == 201


SHORT = gzip.compress(b"{}", mtime=0)  # without the time: every process of a test run names the same cases


@pytest.mark.parametrize("body", [b"plain", SHORT[:-3], SHORT + b"rest", b"\x1f\x8b"])
def test_a_damaged_compressed_body_is_refused(server: Server, body: bytes) -> None:
    assert code(server("POST", T, GZIP, body)) == (400, "invalid_request")


def test_an_unknown_encoding_is_refused(server: Server) -> None:
    answer = server("POST", T, {**JSON, "content-encoding": "br"}, b'{"records":[{"data":1}]}')
    assert code(answer) == (415, "unsupported_media_type")


def bomb(size: int) -> bytes:
    deflate = zlib.compressobj(9, wbits=31)
    piece = b" " * 1024 * 1024
    return b"".join(deflate.compress(piece) for _ in range(size // len(piece))) + deflate.flush()


def test_a_small_body_that_stands_for_a_huge_one_is_refused(server: Server) -> None:
    small = bomb(MAX_BODY_BYTES + 2 * 1024 * 1024)
    assert len(small) < 100_000
    assert code(server("POST", T, GZIP, small)) == (413, "payload_too_large")
    assert code(server("PUT", T, GZIP, bomb(4 * 1024 * 1024))) == (413, "payload_too_large")
    assert code(server("POST", f"{T}/diff", GZIP, bomb(4 * 1024 * 1024))) == (413, "payload_too_large")


def test_a_body_that_is_announced_as_too_large_is_not_read(server: Server) -> None:
    headers = {**JSON, "content-length": str(MAX_BODY_BYTES + 1)}
    assert code(server("POST", T, headers, b"{}")) == (413, "payload_too_large")
    assert code(server("PUT", T, {**JSON, "content-length": "1048577"}, b"{}")) == (413, "payload_too_large")


def read(server: Server, accepted: str) -> Answer:
    return server("POST", f"{T}/diff", {**JSON, "accept-encoding": accepted}, b"{}")


def test_answers_are_compressed_for_those_who_want_it(server: Server) -> None:
    append(server, "x" * 5000)
    plain = read(server, "identity")
    assert "content-encoding" not in plain.headers
    for accepted in ("gzip", "deflate, gzip;q=0.5", "*"):
        answer = read(server, accepted)
        assert (answer.headers["content-encoding"], answer.headers["vary"]) == ("gzip", "Accept-Encoding")
        assert json.loads(gzip.decompress(answer.body))["records"] == plain.json["records"]
        assert int(answer.headers["content-length"]) == len(answer.body)
    for accepted in ("gzip;q=0", "br"):
        assert "content-encoding" not in read(server, accepted).headers
    assert "content-encoding" not in server("GET", T, {"accept-encoding": "gzip"}).headers  # not worth it


@pytest.mark.parametrize(("items", "count"), [([b"x" * 2_000_000] * 3, 2), ([b"x" * 7_000_000], 1), ([b"x"] * 9, 9)])
def test_a_buffered_answer_has_the_records_that_fit(items: Iterable[bytes], count: int) -> None:
    assert fitting(list(items)) == count
