"""What goes to the Runtime API, byte by byte, and what comes from it, as a request."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from functions.api.door.requests import ENDS_AT, is_buffered, is_event
from functions.api.door.streaming import runtime_api
from functions.api.door.streaming.__main__ import body_of, scope_of
from local.http1 import parse_head

EVENT: dict[str, Any] = {
    "version": "2.0",
    "rawPath": "/v1/stream/a%2Fb",
    "rawQueryString": "offset=-1&live=sse",
    "headers": {"Host": "x.lambda-url.eu-west-1.on.aws", "X-Many": "1,2", "x-forwarded-proto": "https"},
    "requestContext": {
        "domainName": "x.lambda-url.eu-west-1.on.aws",
        "http": {"method": "GET", "path": "/v1/stream/a%2Fb", "sourceIp": "1.2.3.4"},
    },
}


def test_the_head_announces_a_stream_and_its_trailers() -> None:
    head = parse_head(runtime_api.head("127.0.0.1:9001", "id-1"))
    assert head.start == (b"POST", b"/2018-06-01/runtime/invocation/id-1/response", b"HTTP/1.1")
    assert head.get(b"lambda-runtime-function-response-mode") == b"streaming"
    assert head.get(b"content-type") == b"application/vnd.awslambda.http-integration-response"
    assert head.get(b"transfer-encoding") == b"chunked"
    assert head.get(b"trailer") == b"Lambda-Runtime-Function-Error-Type, Lambda-Runtime-Function-Error-Body"


def test_the_prelude_is_json_and_eight_zeros_with_joined_headers_and_cookies_apart() -> None:
    headers = [(b"ETag", b'"1"'), (b"vary", b"a"), (b"Vary", b"b"), (b"set-cookie", b"c=1"), (b"set-cookie", b"d=2")]
    text, zeros, rest = runtime_api.prelude(201, headers).partition(b"\0" * 8)
    assert json.loads(text) == {
        "statusCode": 201,
        "headers": {"etag": '"1"', "vary": "a, b"},
        "cookies": ["c=1", "d=2"],
    }
    assert (zeros, rest) == (b"\0" * 8, b"")


def test_chunks_are_sized_in_hexadecimal_and_none_is_empty() -> None:
    assert runtime_api.chunk(b"x" * 26) == b"1a\r\n" + b"x" * 26 + b"\r\n"
    assert runtime_api.chunk(b"") == b""  # the bytes of an empty chunk would end the answer
    assert runtime_api.END == b"0\r\n\r\n"


def test_an_answer_that_broke_off_says_so_in_its_trailers() -> None:
    first, rest = runtime_api.failed_end("Headrace.Kind", "message").split(b"\r\n", 1)
    assert first == b"0"
    trailers = parse_head(b"a b c\r\n" + rest)
    assert trailers.get(b"lambda-runtime-function-error-type") == b"Headrace.Kind"
    told = json.loads(base64.b64decode(trailers.get(b"lambda-runtime-function-error-body") or b""))
    assert told == {"errorMessage": "message", "errorType": "Headrace.Kind", "stackTrace": []}


def test_an_event_becomes_the_request_that_it_was() -> None:
    scope = scope_of({**EVENT, "cookies": ["a=1", "b=2"]}, 1_000)
    assert (scope["method"], scope["raw_path"], scope["scheme"]) == ("GET", b"/v1/stream/a%2Fb", "https")
    assert scope["query_string"] == b"offset=-1&live=sse"
    assert scope["client"] == ("1.2.3.4", 0)
    assert dict(scope["headers"]) == {
        b"host": b"x.lambda-url.eu-west-1.on.aws",
        b"x-many": b"1,2",
        b"x-forwarded-proto": b"https",
        b"cookie": b"a=1; b=2",
    }


def test_a_streamed_answer_has_no_limit_but_its_request_came_as_an_event() -> None:
    scope = scope_of(EVENT, 1_000)
    assert scope[ENDS_AT] == 1_000
    assert is_event(scope)
    assert not is_buffered(scope)


@pytest.mark.parametrize(
    ("event", "body"),
    [
        ({}, b""),
        ({"body": None, "isBase64Encoded": False}, b""),
        ({"body": "é", "isBase64Encoded": False}, "é".encode()),
        ({"body": base64.b64encode(b"\0\xff").decode(), "isBase64Encoded": True}, b"\0\xff"),
    ],
)
def test_a_body_is_the_bytes_that_were_sent(event: dict[str, Any], body: bytes) -> None:
    assert body_of(event) == body
