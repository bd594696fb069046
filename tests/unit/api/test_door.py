"""What every answer carries, and what becomes of an error."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest

from functions.api.app import describe
from functions.api.door import errors
from functions.api.door.requests import BodyTimeout
from functions.api.door.routes import Resources
from functions.api.features import calls
from functions.api.sockets import commands, sockets
from functions.api.streams.records import ERRORS
from headrace import errors as library
from headrace.errors import HeadraceError, StoreThrottled, StoreTimeout
from headrace.features import errors as of_features
from headrace.routers import errors as of_routers
from headrace.settings import Settings
from headrace.streams import errors as of_streams
from headrace.streams.verbs import Streams
from headrace.subscriptions import errors as of_subscriptions
from headrace.topics import errors as of_topics
from headrace.watch import errors as of_watch
from tests.unit.api.asgi import TEXT, Answer, Server

S = "/v1/stream/s"
SECURITY = {"x-content-type-options": "nosniff", "cross-origin-resource-policy": "cross-origin"}
ENVELOPE = "application/json; charset=utf-8"


def test_every_answer_carries_the_browser_headers() -> None:
    server = Server()
    server("PUT", S, TEXT, b"x")
    for method, target in [
        ("GET", S), ("HEAD", S), ("PUT", S), ("POST", S), ("DELETE", S), ("PATCH", S), ("OPTIONS", S), ("GET", "/no"),
        ("GET", "/v1/streams"), ("GET", "/health"), ("GET", "/openapi.json"),
    ]:  # fmt: skip
        headers = server(method, target).headers
        assert SECURITY.items() <= headers.items(), (method, target)
        assert headers["access-control-allow-origin"] == "*"


def test_a_preflight_allows_what_browsers_need() -> None:
    answer = Server()("OPTIONS", S, {"origin": "https://a.example", "access-control-request-method": "PUT"})
    assert answer.status == 204
    allowed = answer.headers["access-control-allow-headers"].lower()
    for name in ("authorization", "if-none-match", "stream-seq", "producer-id", "content-type"):
        assert name in allowed
    assert "DELETE" in answer.headers["access-control-allow-methods"]


@pytest.mark.parametrize("method", ["PATCH", "TRACE", "FOO", "PROPFIND"])
def test_an_unsupported_method_is_405_and_says_what_is(method: str) -> None:
    answer = Server()(method, S)
    assert answer.status == 405
    assert answer.headers["allow"] == "DELETE, GET, HEAD, OPTIONS, POST, PUT"
    assert answer.json["error"]["code"] == "method_not_allowed"


@pytest.mark.parametrize("target", ["/v1", "/v1/stream", "/v1/streams/x", "/v2/stream/s", "/docs/x"])
def test_an_unknown_route_is_404_in_the_envelope(target: str) -> None:
    answer = Server()("GET", target)
    assert (answer.status, answer.headers["content-type"]) == (404, ENVELOPE)
    assert answer.json["error"]["code"] == "not_found"
    assert answer.headers["cache-control"] == "no-store"


class Failing(Streams):
    error: Exception = RuntimeError("secret detail")

    def read(self, *_: object, **__: object) -> None:  # type: ignore[override]
        raise self.error

    def append(self, *_: object, **__: object) -> None:  # type: ignore[override]
        raise self.error


def ask(error: Exception, method: str = "GET") -> Answer:
    server = Server()
    logs = Failing(server.stores)
    logs.error = error
    parts = replace(server.parts, logs=lambda: logs)
    return Server(parts=parts)(method, S, TEXT, b"x" if method == "POST" else b"")


def subclasses(kind: type[HeadraceError]) -> list[type[HeadraceError]]:
    return [kind, *(found for child in kind.__subclasses__() for found in subclasses(child))]


def test_every_error_of_the_library_has_its_own_answer() -> None:
    expected = {
        library.InvalidRequest("m"): 400,
        library.PayloadTooLarge("m"): 413,
        library.NotFound("m"): 404,
        library.Gone("m"): 410,
        library.BelowFloor("0"): 410,
        library.Conflict("m"): 409,
        of_streams.StreamClosed("m"): 409,
        of_streams.SequenceConflict("a", "b"): 409,
        of_streams.ProducerGap(1, 2): 409,
        of_streams.StaleProducer(1): 403,
        library.Overloaded("m"): 429,
        library.LimitReached("m", 1): 429,
        library.OutcomeUnknown(): 408,
        library.RequestTimeout(): 408,
        BodyTimeout(): 408,
        library.NewerFormat("m", 2, 1): 503,
        library.Damaged("m"): 500,
        library.SegmentMissing("m"): 500,
    }
    own = (of_features, calls, of_topics, of_routers, of_subscriptions, of_watch, sockets, commands)
    others = [module.__name__ for module in own]
    shared = {kind for kind in subclasses(HeadraceError) if kind.__module__ not in others}
    assert {type(error) for error in expected} == shared - {HeadraceError}
    for error, status in expected.items():
        answer = errors.response_to(error, "POST", ERRORS)
        assert answer.status_code == status, error
        assert answer.headers["cache-control"] == "no-store"
        assert (answer.body == b"") == isinstance(error, of_streams.StreamClosed)


def test_an_append_of_unknown_outcome_is_told_as_the_contract_says() -> None:
    answer = ask(library.OutcomeUnknown(), "POST")
    message = "append timed out; append outcome is unknown, check Stream-Next-Offset before retrying"
    assert (answer.status, answer.json) == (408, {"error": {"code": "append_timeout", "message": message}})
    assert ask(StoreTimeout("x"), "POST").json == answer.json


def test_refusals_for_load_say_when_to_come_again() -> None:
    overloaded = ask(library.Overloaded("busy", 3), "POST")
    assert (overloaded.status, overloaded.headers["retry-after"]) == (429, "3")
    for error, expected in (
        (StoreThrottled("x"), (429, "overloaded", "1")),
        (StoreTimeout("x"), (503, "unavailable", "1")),
    ):
        answer = ask(error)
        assert (answer.status, answer.json["error"]["code"], answer.headers["retry-after"]) == expected


def test_internal_errors_are_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    for error in (RuntimeError("secret detail"), library.Damaged("secret detail")):
        answer = ask(error)
        assert (answer.status, answer.json["error"]["code"]) == (500, "internal")
        assert b"secret" not in answer.body
    assert "secret detail" in caplog.text


def test_the_document_knows_every_route() -> None:
    server = Server()
    document = server("GET", "/openapi.json").json
    assert document == describe()
    described = {
        (path, method)
        for path, item in document["paths"].items()
        for method in item
        if method not in ("parameters", "servers")
    }
    routed = {
        (route.path.replace(":path", ""), method.lower())  # type: ignore[attr-defined]
        for route in server.app.routes[0].routes
        for method in route.methods  # type: ignore[attr-defined]
        if route.include_in_schema  # type: ignore[attr-defined]
    }
    assert routed - described == {("/health", "head")}
    assert described <= routed


def test_a_request_gets_the_first_route_that_matches() -> None:
    resources = Server().app.routes[0]
    assert isinstance(resources, Resources)
    names = ("a", "a/b", "a/_search", "_schema/a", "", "v1", "{a}", "push")
    paths = {re.sub(r"\{[^}]*\}", name, route.path) for route in resources.routes for name in names}
    for path, method in itertools.product(sorted(paths | {"*", "/", "/none", "none"}), ("GET", "POST", "BREW")):
        scope = {"type": "http", "path": path, "method": method}
        matches = [(route.matches(scope)[0].value, -place, route) for place, route in enumerate(resources.routes)]
        value, _, route = max(matches, key=lambda one: one[:2])
        match, found = resources.matches(scope)
        assert (match.value, found.get("endpoint")) == (value, route.endpoint if value else None), path


def test_a_cold_process_remembers_nothing_between_requests() -> None:
    server = Server(settings=Settings(cold=True))
    assert server.parts.logs() is not server.parts.logs()
    server("PUT", S, TEXT, b"x")
    assert server("GET", S).body == b"x"
