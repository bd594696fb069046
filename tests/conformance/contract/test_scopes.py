"""Which scope each route demands, and that a key bound to prefixes sees nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import httpx
import pytest

from tests.conformance.contract.client import JSON, TEXT, Api, Stream, expect, given, refused, shown
from tests.support.emulated_cloud import dev_server

SCOPES = ("read", "write", "delete", "admin")
KEYS = ",".join([*(f"key-{scope}:{scope}" for scope in SCOPES), "key-all", "key-bound::mine."])
TODOS = {"entity": "todos", "fields": [{"name": "id", "encoding": "string"}]}
WAIT = {"cursor": "now", "keys": ["0123456789abcdef"], "timeoutMs": 0}


class Route(NamedTuple):
    """A request, and the scopes that its key needs: all of them."""

    send: Callable[[Stream], httpx.Response]
    needs: frozenset[str]


def route(needs: str, method: str, sub: str = "", body: object = None) -> Route:
    """Returns a request to a part of a stream, with the scopes that it needs, separated by spaces in `needs`."""
    return Route(
        lambda stream: stream.at(method, sub, None if body is None else JSON, body), frozenset(needs.split())
    )


def fork_of(stream: Stream) -> httpx.Response:
    return stream.api.unused().put({"Stream-Forked-From": stream.path})


RESET = [{"headers": {"control": "reset"}}]
ROUTES = {
    "create": route("admin", "PUT", "", RESET),
    "fork": Route(lambda stream: fork_of(stream), frozenset({"admin", "read"})),
    "append": route("write", "POST", "", RESET),
    "close": Route(lambda stream: stream.at("POST", "", {"Stream-Closed": "true"}), frozenset({"write"})),
    "read": route("read", "GET"),
    "read by key": route("read", "GET", "/pk/a"),
    "read by filter": route("read", "GET", "?filter=x:1"),
    "long-poll": route("read", "GET", "?offset=now&live=true&timeout=1ms"),
    "describe": route("read", "HEAD"),
    "delete": route("delete", "DELETE"),
    "show schema": route("read", "GET", "/_schema"),
    "set schema": route("admin", "POST", "/_schema", {"routingKey": None}),
    "show profile": route("read", "GET", "/_profile"),
    "set profile": route("admin", "POST", "/_profile", {"profile": {"kind": "generic"}}),
    "index status": route("read", "GET", "/_index_status"),
    "details": route("read", "GET", "/_details"),
    "spans of an exporter": route("write", "POST", "/_otlp/v1/traces", {}),
    "logs of an exporter": route("write", "POST", "/_otlp/v1/logs", {}),
    "spans of an exporter, named in a header": Route(
        lambda stream: stream.api.request("POST", "/v1/traces", {**JSON, "Stream-Traces": stream.name}, {}),
        frozenset({"write"}),
    ),
    "logs of an exporter, named in a header": Route(
        lambda stream: stream.api.request("POST", "/v1/logs", {**JSON, "Stream-Logs": stream.name}, {}),
        frozenset({"write"}),
    ),
    "search several streams": Route(
        lambda stream: stream.api.get("/v1/search", streams=stream.name, q="a:1"), frozenset({"read"})
    ),
    "observe a request": Route(
        lambda stream: stream.api.get("/v1/observe/request", events=stream.name, requestId="r"), frozenset({"read"})
    ),
    "touch meta": route("read", "GET", "/touch/meta"),
    "touch wait": route("read", "POST", "/touch/wait", WAIT),
    "touch wait that declares": route("read write", "POST", "/touch/wait", {**WAIT, "declareTemplates": [TODOS]}),
    "touch templates": route("write", "POST", "/touch/templates/activate", {"templates": [TODOS]}),
    "list": Route(lambda stream: stream.api.get("/v1/streams"), frozenset({"read"})),
    "server details": Route(lambda stream: stream.api.get("/v1/server/_details"), frozenset({"admin"})),
    "server memory": Route(lambda stream: stream.api.get("/v1/server/_mem"), frozenset({"admin"})),
}  # fmt: skip


@pytest.fixture(scope="module")
def door() -> Iterator[Api]:
    """Yields a server of its own that has keys, asked with the key that may do everything."""
    with dev_server(environment={"HEADRACE_API_KEYS": KEYS}) as server, Api(server.url, key="key-all") as api:
        yield api


@pytest.fixture
def subject(door: Api) -> Stream:
    """Returns a stream with the profile `state-protocol`, created with the key that may do everything."""
    stream = door.stream()
    given(stream.set_profile("state-protocol", touch={"enabled": True}))
    return stream


def as_key(stream: Stream, key: str | None) -> Stream:
    return Stream(stream.api.with_key(key), stream.name)


@pytest.mark.parametrize("name", ROUTES)
@pytest.mark.parametrize("scope", SCOPES)
def test_a_route_demands_its_scope(subject: Stream, name: str, scope: str) -> None:
    answer = ROUTES[name].send(as_key(subject, f"key-{scope}"))
    if ROUTES[name].needs == {scope}:
        assert answer.status_code not in (401, 403, 404, 405), shown(answer)
    elif answer.request.method == "HEAD":
        expect(answer, 403)
    else:
        refused(answer, 403)


@pytest.mark.parametrize("name", ROUTES)
def test_a_key_with_every_scope_may_do_everything(subject: Stream, name: str) -> None:
    answer = ROUTES[name].send(subject)
    assert answer.status_code not in (401, 403, 404, 405), shown(answer)


@pytest.mark.parametrize("name", ROUTES)
@pytest.mark.parametrize("key", [None, "wrong", "key-rea"])
def test_without_a_known_key_nothing_is_answered(subject: Stream, name: str, key: str | None) -> None:
    answer = ROUTES[name].send(as_key(subject, key))
    expect(answer, 401)
    assert answer.headers["www-authenticate"] == "Bearer"


def test_an_unknown_route_needs_a_key_too(door: Api) -> None:
    refused(door.with_key(None).get("/v1/nothing"), 401)
    refused(door.with_key("key-read").get("/v1/nothing"), 404)
    expect(door.with_key(None).get("/health"), 200)


@pytest.mark.parametrize("name", [name for name in ROUTES if name not in ("list", "server details", "server memory")])
def test_a_key_bound_to_a_prefix_may_touch_no_other_name(subject: Stream, name: str) -> None:
    answer = ROUTES[name].send(as_key(subject, "key-bound"))
    assert answer.status_code == 403, shown(answer)


def test_a_bound_key_lists_its_own_names_only(door: Api, subject: Stream) -> None:
    bound = door.with_key("key-bound")
    mine = bound.stream(TEXT, prefix="mine.")
    names = [row["name"] for row in expect(bound.get("/v1/streams"), 200).json()]
    assert mine.name in names
    assert subject.name not in names
    assert [row["name"] for row in expect(bound.get("/v1/streams", prefix=subject.name), 200).json()] == []


def test_a_bound_key_does_not_see_the_largest_streams_of_others(door: Api, subject: Stream) -> None:
    for path in ("/v1/server/_details", "/v1/server/_mem"):
        answer = door.with_key("key-bound").get(path)
        assert answer.status_code == 403 or subject.name not in answer.text
