"""How large a request and an answer may be, through which door."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mangum.handlers.utils import handle_base64_response_body

from functions.api.door.answers import ANSWER_BYTES, TEXT_TYPES, fits, grown
from functions.api.door.requests import BODY_BYTES
from headrace.limits import MAX_APPEND_BYTES
from tests.unit.api.asgi import JSON, TEXT, Answer, Server
from tests.unit.api.test_doors import LambdaDoor

S = "/v1/stream/s"
BYTES = {"content-type": "application/octet-stream"}
LAMBDA_BYTES = 6_291_556  # what Lambda takes of a result, as JSON text


@pytest.fixture(autouse=True)
def on_lambda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "api")


class Door:
    """The Lambda door; every result is checked to be one that Lambda takes."""

    def __init__(self, server: Server) -> None:
        self._door = LambdaDoor(server)

    def __call__(self, method: str, target: str, headers: dict[str, str] | None = None, body: bytes = b"") -> Answer:
        result = self._door(method, target, headers, body)
        assert len(json.dumps(result)) < LAMBDA_BYTES
        text = result.get("body", "")
        found = base64.b64decode(text) if result["isBase64Encoded"] else text.encode()
        return Answer(result["statusCode"], result["headers"], found)


RANDOM = random.Random(7)
MIXED = [10, 3_000_000, 1_200_000, 5, 2_000_000, 0, 4_400_000, 900_000, 900_000, 900_000, 900_000, 900_000, 1]
SHAPES: dict[str, tuple[dict[str, str], list[bytes]]] = {
    "bytes": (BYTES, [RANDOM.randbytes(size) or b"-" for size in MIXED]),
    "ascii": (TEXT, [b"a" * size or b"-" for size in MIXED]),
    "control characters": (TEXT, [b"\x01" * (size // 6) or b"-" for size in MIXED]),
    "line breaks": (TEXT, [b"\r\n\n" * (size // 24) or b"-" for size in MIXED]),
    "letters of two bytes": (TEXT, ["é".encode() * (size // 6) or b"-" for size in MIXED]),
    "not utf-8": (TEXT, [b"\xff" * size or b"-" for size in MIXED]),
    "half characters": (TEXT, [part for size in MIXED for part in (b"a" * (size // 2) + b"\xc3", b"\xa9")]),
    "json": (JSON, [orjson.dumps(['"\n"'] * (size // 18)) for size in MIXED]),
}


def shape(name: str) -> tuple[Server, Door, dict[str, str], list[bytes]]:
    headers, records = SHAPES[name]
    server = Server()
    assert server("PUT", S, headers).status == 201
    for record in records:
        body = b"[" + record + b"]" if headers is JSON else record
        assert server("POST", S, headers, body).status == 204
    return server, Door(server), headers, records


def pages(door: Door, query: str) -> Iterator[tuple[Answer, str]]:
    """Yields every page from the start, and where the next one begins."""
    offset = "-1"
    while True:
        answer = door("GET", f"{S}?offset={offset}{query}")
        if answer.status == 204:
            return
        assert answer.status == 200, answer.body
        assert answer.offset != offset
        offset = answer.offset
        yield answer, offset
        if answer.headers.get("stream-up-to-date") == "true":
            return


@pytest.mark.parametrize("query", ["", "&live=1", "&format=raw"])
@pytest.mark.parametrize("name", SHAPES)
def test_pages_fit_through_the_door_and_are_complete(name: str, query: str) -> None:
    _, door, headers, records = shape(name)
    bodies = [answer.body for answer, _ in pages(door, query)]
    if headers is JSON and query != "&format=raw":
        found = [element for body in bodies for element in orjson.loads(body)]
        assert found == [orjson.loads(record) for record in records]
    else:
        assert b"".join(bodies) == b"".join(records)
    assert len(bodies) < len(records)  # they are not cut into single records


@pytest.mark.parametrize("name", ["bytes", "line breaks", "letters of two bytes", "json"])
def test_event_streams_fit_through_the_door_and_are_complete(name: str) -> None:
    _, door, headers, records = shape(name)
    offset, found = "-1", []
    while True:
        answer = door("GET", f"{S}?offset={offset}&live=sse")
        assert answer.status == 200, answer.body[:200]
        control: dict[str, Any] = {}
        for event in answer.body.split(b"\n\n")[:-1]:
            kind, *lines = event.split(b"\n")
            data = b"\n".join(line.removeprefix(b"data:").removeprefix(b" ") for line in lines)
            if kind == b"event: data":
                found.append(base64.b64decode(data) if name == "bytes" else data)
            else:
                control = orjson.loads(data)
        assert control["streamNextOffset"] != offset
        offset = control["streamNextOffset"]
        if control.get("upToDate"):
            break
    if headers is JSON:
        elements = [element for body in found for element in orjson.loads(body)]
        assert elements == [orjson.loads(record) for record in records]
    elif name == "line breaks":  # each kind of them ends a line, and comes as the same
        assert b"".join(found) == b"".join(records).replace(b"\r\n", b"\n")
    else:
        assert b"".join(found) == b"".join(records)


@pytest.mark.parametrize("query", ["", "&live=1", "&live=sse"])
def test_a_record_that_fits_no_answer_is_413_and_can_be_passed_over(query: str) -> None:
    server = Server()
    door = Door(server)
    large = RANDOM.randbytes(8_000_000)
    for body in (b"before", large, b"after"):
        server("PUT", S, BYTES)
        assert server("POST", S, BYTES, body).status == 204
    offset = "0000000000000000000G000000"
    assert door("GET", f"{S}?offset=-1").offset == offset
    answer = door("GET", f"{S}?offset={offset}{query}")
    assert (answer.status, answer.json["error"]["code"]) == (413, "payload_too_large")
    assert str(ANSWER_BYTES) in answer.json["error"]["message"]
    assert door("GET", f"{S}?offset={answer.offset}").body == b"after"
    assert server("GET", f"{S}?offset={offset}").body.startswith(large)  # another door has no such bound


def test_a_page_holds_as_many_records_as_fit() -> None:
    server = Server()
    door = Door(server)
    server("PUT", S, TEXT)
    for size in (300_000, 300_000, 300_000, 5_200_000, 10):
        server("POST", S, TEXT, b"a" * size)
    sizes = [len(answer.body) for answer, _ in pages(door, "")]
    assert sizes == [900_000, 5_200_000, 10]


def test_a_large_page_of_a_selection_goes_on_where_it_was_cut() -> None:
    server = Server()
    door = Door(server)
    server("PUT", S, BYTES)
    records = [RANDOM.randbytes(size) for size in (900_000, 4_000_000, 1_000_000, 4_400_000, 10)]
    for record in records:
        server("POST", S, {**BYTES, "stream-key": "k"}, record)
        server("POST", S, {**BYTES, "stream-key": "other"}, record[:1000])
    offset, found = "-1", b""
    while len(found) < sum(map(len, records)):
        answer = door("GET", f"{S}/pk/k?offset={offset}")
        assert answer.status == 200
        assert answer.body
        offset, found = answer.offset, found + answer.body
    assert found == b"".join(records)


@pytest.mark.parametrize(
    ("method", "resource", "headers", "limit"),
    [
        ("POST", "", BYTES, BODY_BYTES),
        ("POST", "", TEXT, BODY_BYTES),
        ("PUT", "-new", BYTES, BODY_BYTES),
        ("POST", "/_schema", JSON, 1024 * 1024),
        ("POST", "/_profile", JSON, 1024 * 1024),
        ("POST", "/touch/wait", JSON, 1024 * 1024),
        ("POST", "/touch/templates/activate", JSON, 1024 * 1024),
    ],
)
def test_a_body_over_the_limit_of_its_door_is_413(
    method: str, resource: str, headers: dict[str, str], limit: int
) -> None:
    server = Server()
    door = Door(server)
    server("PUT", S, headers)
    before = server.dump()
    answer = door(method, S + resource, headers, b"x" * (limit + 1))
    assert (answer.status, answer.json["error"]["code"]) == (413, "payload_too_large")
    other = server(method, S + resource, headers, b"x" * (MAX_APPEND_BYTES + 1))
    assert (other.status, other.json["error"]["code"]) == (413, "payload_too_large")
    assert server.dump() == before
    answer = door(method, S + resource, headers, b"x" * limit)
    if headers is JSON:
        assert answer.status in (400, 404)
        return
    assert answer.status in (201, 204)
    assert door("GET", S + resource).body == b"x" * limit  # what came in through a door goes out through it
    assert server(method, S + resource + "2", headers, b"x" * MAX_APPEND_BYTES).status in (201, 404)


def test_a_document_that_does_not_fit_is_413() -> None:
    server = Server()
    server("PUT", S, JSON)
    for version in range(2):
        name = "ab"[version]
        schema = {"type": "object", "additionalProperties": False, "required": [name], "description": "é" * 520_000}
        update: dict[str, Any] = {"schema": {**schema, "properties": {name: {"type": "string"}}}}
        if version:
            rename = {"op": "rename", "from": "/a", "to": "/b"}
            update["lens"] = {"apiVersion": "durable.lens/v1", "schema": "s", "from": 1, "to": 2, "ops": [rename]}
        answer = server("POST", S + "/_schema", JSON, json.dumps(update, ensure_ascii=False).encode())
        assert answer.status == 200, answer.body[:300]
    answer = Door(server)("GET", S + "/_schema")
    assert (answer.status, answer.json["error"]["code"]) == (413, "payload_too_large")
    assert "stream-next-offset" not in answer.headers
    assert server("GET", S + "/_schema").status == 200


@given(
    st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)),
    st.sampled_from(["text/plain", "application/json", "application/octet-stream", "application/x-text", "a/text/b"]),
)
def test_growth_is_what_the_door_makes_of_a_body(body: bytes, content_type: str) -> None:
    sent, _ = handle_base64_response_body(body, {"content-type": content_type}, list(TEXT_TYPES))
    assert grown(body, content_type) in (len(json.dumps(sent)), len(sent))


def test_the_bound_is_exact() -> None:
    assert fits(b"\x01" * (ANSWER_BYTES // 6), "text/plain")
    assert not fits(b"\x01" * (ANSWER_BYTES // 6 + 1), "text/plain")
    assert fits(b"\x01" * (ANSWER_BYTES // 4 * 3), "image/png")
    assert not fits(b"\x01" * (ANSWER_BYTES // 4 * 3 + 1), "image/png")
    assert fits(b"a", "image/png", ANSWER_BYTES - 4)
    assert not fits(b"a", "image/png", ANSWER_BYTES - 3)
