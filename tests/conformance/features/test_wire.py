"""What all calls share: methods, paths, envelopes, namespaces, and what operators ask."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conformance.contract.client import expect, shown
from tests.conformance.features.client import Namespace, answered, refused, txn, unused
from tests.unit.features.pipeline.documents import derived, event, table, where

POSTS = ("/register", "/push", "/push-sync", "/push/Txn", "/push-sync/Txn", "/push/Txn/batch", "/get", "/batch_get")
POSTS = (*POSTS, "/ping", "/reset")
GETS = ("/registry", "/ready", "/get/U/a")


@pytest.mark.parametrize("path", [*POSTS, *GETS])
def test_another_method_is_refused_with_its_name_and_path(space: Namespace, path: str) -> None:
    right = "POST" if path in POSTS else "GET"
    for method in {"GET", "POST", "PUT", "DELETE"} - {right}:
        answer = expect(space.send(method, path), 405)
        error = {"code": "method_not_allowed", "method": method, "path": f"/features/{space.name}{path}"}
        assert answer.json() == {"error": error}, shown(answer)
        assert right in answer.headers["allow"]


def test_an_unknown_path_is_refused(space: Namespace) -> None:
    for path in ("/nothing", "/push/Txn/more", "/push/Txn/batch/x", "/get/U", "/", ""):
        answer = expect(space.post(path, {}), 404)
        assert answer.json()["error"]["code"] == "not_found", shown(answer)


def test_ping_says_the_version(space: Namespace) -> None:
    assert space.post("/ping", {}).content == b'{"pong":true,"registry_version":0}'
    space.has(event())
    assert space.post("/ping", {}).content == b'{"pong":true,"registry_version":1}'
    for body in (None, b"", b"nonsense", []):
        assert answered(space.post("/ping", body))["registry_version"] == 1


def test_health_and_readiness(space: Namespace) -> None:
    assert space.server.get("/health").content == b'{"status":"ok"}'
    assert space.server.get("/ready").content == space.send("GET", "/ready").content == b'{"status":"ready"}'


def test_metrics_are_of_the_default_namespace(space: Namespace) -> None:
    answer = expect(space.server.get("/metrics"), 200)
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    numbers = dict(line.split(" ") for line in answer.text.splitlines() if not line.startswith("#"))
    default = Namespace(space.server, None)
    assert int(numbers["beava_registry_version"]) <= default.version()
    assert int(numbers["beava_node_count"]) <= answered(default.send("GET", "/registry"))["node_count"]


def test_the_registry_shows_nodes_that_can_be_registered_elsewhere(space: Namespace) -> None:
    nodes = [event(optional=["n"], dedupe_key="n"), table(), derived("D", where("ok")), table("V", upstream="D")]
    space.has(*nodes[:2]).has(*nodes[2:])
    shown_here = answered(space.send("GET", "/registry"))
    assert (shown_here["node_count"], shown_here["version"]) == (4, 2)
    assert shown_here["tables"] == {"U": {"generation": "1"}, "V": {"generation": "2"}}
    copy = unused(space.server).has(*shown_here["nodes"])
    assert answered(copy.send("GET", "/registry"))["nodes"] == shown_here["nodes"]


def test_namespaces_have_nothing_in_common(space: Namespace) -> None:
    other = unused(space.server)
    space.has(event(), table())
    other.has(event(fields={"user": "str"}), table()).has(event("Second"))
    space.filled(txn())
    other.filled({"user": "a"}, {"user": "a"})
    assert (space.row(), other.row()) == ({"c": 1}, {"c": 2})
    assert (space.version(), other.version()) == (1, 2)


def test_without_a_prefix_calls_are_of_the_namespace_default(space: Namespace) -> None:
    name = f"E{space.name}"
    bare, named = Namespace(space.server, None), Namespace(space.server, "default")
    bare.has(event(name), table(f"T{name}", upstream=name))
    named.filled(txn(), event=name)
    assert bare.row(f"T{name}") == named.row(f"T{name}") == {"c": 1}


@pytest.mark.parametrize("name", ["a b", "a%2Fb", "ünï", "x" * 65, "a:b"])
def test_a_namespace_has_a_name(space: Namespace, name: str) -> None:
    answer = Namespace(space.server, name).push(txn())
    assert answer.status_code in (400, 404), shown(answer)
    assert set(answer.json()) == {"error"}, shown(answer)


def test_answers_are_json_whatever_is_wrong(space: Namespace) -> None:
    """The Python client parses every answer, so one that is not JSON would crash it."""
    wrong: list[tuple[str, Any]] = [
        ("/push", b"x" * (5 * 1024 * 1024)),
        ("/register", b"\xff\xfe"),
        ("/get", b"[" * 100_000),
        ("/batch_get", b'{"requests":' + b"[" * 100_000),
        ("/nothing", b"{"),
        ("/push/%ff", b"{}"),
        ("/get", b'{"table":"\\ud800","key":"a"}'),
    ]
    for path, body in wrong:
        answer = space.post(path, body)
        assert 400 <= answer.status_code < 500, shown(answer)
        assert json.loads(answer.content)["error"]["code"], shown(answer)


def test_an_event_may_have_the_name_of_a_call(space: Namespace) -> None:
    for name in ("batch", "get", "ping", "register"):
        space.has(event(name), table(f"of_{name}", upstream=name))
        answered(space.post(f"/push/{name}", txn()))
        answered(space.post(f"/push/{name}/batch", [txn()]))
        assert space.row(f"of_{name}") == {"c": 2}


def test_a_browser_may_read_the_headers(space: Namespace) -> None:
    answer = space.has(event(), table()).get()
    exposed = {name.strip().lower() for name in answer.headers["access-control-expose-headers"].split(",")}
    assert {"headrace-as-of", "x-beava-idempotent-replay"} <= exposed


def test_an_unknown_event_is_refused_by_push_and_an_unknown_namespace_has_none(space: Namespace) -> None:
    refused(space.push(txn()), 404, "event_not_found")
    refused(space.get(), 404, "unknown_table")
    assert answered(space.get_all(("U", "a")))["results"][0]["error"]["code"] == "unknown_table"
    assert answered(space.send("GET", "/registry")) == {"node_count": 0, "version": 0, "nodes": [], "tables": {}}
