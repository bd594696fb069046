"""Bad input gets a 4xx in the envelope and changes nothing."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
import schemathesis
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import positive_data_acceptance

from headrace.settings import Settings
from tests.support.examples import examples
from tests.unit.api.asgi import JSON, Answer, Server

S = "/v1/stream/s"


def check_refused(answer: Answer, method: str) -> None:
    assert 400 <= answer.status < 500, answer
    if method != "HEAD" and answer.body:
        error = answer.json["error"]
        assert set(error) == {"code", "message"}
        assert answer.headers["content-type"] == "application/json; charset=utf-8"


header_text = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=40)


def is_json(body: bytes) -> bool:
    try:
        json.loads(body.decode(), parse_constant=lambda name: 1 / 0)
    except (ValueError, ZeroDivisionError, RecursionError):
        return False
    return True


@pytest.fixture(scope="module")
def server() -> Server:
    server = Server(settings=Settings(live_timeout_ms=10, request_timeout_ms=20, sse_seconds=0))
    server("PUT", S, JSON, b"[1]")
    return server


@given(body=st.binary(max_size=60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_bodies_that_are_not_json(server: Server, body: bytes) -> None:
    assume(not is_json(body))
    before = server.dump()
    check_refused(server("POST", S, JSON, body), "POST")
    assert server.dump() == before


@given(
    name=st.sampled_from(
        ["stream-timestamp", "producer-id", "producer-epoch", "producer-seq", "content-type", "stream-ttl",
         "stream-expires-at", "stream-fork-offset", "stream-fork-sub-offset", "stream-forked-from"]
    ),
    value=header_text,
)  # fmt: skip
def test_headers_that_are_not_of_their_form(server: Server, name: str, value: str) -> None:
    for method, target, headers in (("POST", S, JSON), ("PUT", "/v1/stream/new", {})):
        before = server.dump()
        answer = server(method, target, {**headers, name: value.encode("latin-1")}, b"[1")
        if answer.status == 201 and method == "PUT":  # bytes, and a header of this form or without meaning here
            ttl = value.strip(" \t") if name == "stream-ttl" else ""
            has_expired = bool(ttl) and not ttl.strip("0hms")  # a time to live of nothing
            assert server("DELETE", target).status == (404 if has_expired else 204), value
        else:
            check_refused(answer, method)
            assert server.dump() == before


@given(offset=st.text(max_size=40), live=st.sampled_from(["", "&live=1", "&live=sse"]))
def test_offsets_that_nobody_issued(server: Server, offset: str, live: str) -> None:
    assume(offset not in ("-1", "now"))
    before = server.dump()
    check_refused(server("GET", f"{S}?offset={quote(offset)}{live}"), "GET")
    assert server.dump() == before


@given(name=st.binary(max_size=60), method=st.sampled_from(["GET", "HEAD", "POST", "DELETE", "PATCH"]))
def test_names_of_nothing(server: Server, name: bytes, method: str) -> None:
    assume(name != b"s")
    before = server.dump()
    check_refused(server(method, "/v1/stream/" + quote(name), JSON, b"1"), method)
    assert server.dump() == before


FAST = Settings(
    live_timeout_ms=10, request_timeout_ms=20, sse_seconds=0, signing_keys="a" * 43, base_url="https://a.example"
)
document = schemathesis.openapi.from_asgi("/openapi.json", Server(settings=FAST).app)


# `document.parametrize()` makes the cases when tests are collected: for seconds, in each process that shares the tests.
# `build_operation_test` makes those of one operation when its test runs. It is private to schemathesis, which may change
# it in any version; uv.lock holds the version that is used here.
@pytest.mark.parametrize(
    "operation", [one.ok() for one in document.get_all_operations()], ids=lambda operation: operation.label
)
def test_the_document_holds(operation: APIOperation[Any, Any, Any, Any]) -> None:
    build_operation_test(
        config=document.config,
        operation=operation,
        test_func=check_against_the_document,
        given_kwargs={},
        feedback=FeedbackSources(),
    )()


@examples(25, suppress_health_check=list(HealthCheck))
def check_against_the_document(case: schemathesis.Case[Any]) -> None:
    # That two headers exclude each other, or that a topic is a queue, is not to be said in OpenAPI.
    case.call_and_validate(excluded_checks=[positive_data_acceptance])
