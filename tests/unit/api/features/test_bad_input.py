"""Bad input to feature tables gets a 4xx in the contract's form and changes nothing, whatever is wrong."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.unit.api.asgi import JSON, Answer, Server
from tests.unit.api.features.wire import serving
from tests.unit.api.wrong import SHARED, WRONG, is_object, lists, objects, switches, texts, values, words
from tests.unit.features.world import event, table, tx

DATA = {"user": "text", "amount": "amount", "n": "whole", "note": "note"}
AGGREGATION = {"op": "group_by", "keys": ["user"], "agg": {"x": {"op": "sum", "params": {"field": "amount"}}}}
NODE: dict[str, Any] = {**table("New"), "ops": [AGGREGATION]}
WRONG_HERE: dict[str, st.SearchStrategy[Any]] = {
    **WRONG,
    "consistency": words("strong", "stale"),
    "amount": texts | switches | lists | objects | st.none(),
    "whole": st.floats(0.1, 0.9) | st.integers(2**64, 2**80) | texts | switches | lists | objects | st.none(),
    "note": st.integers() | switches | lists | objects,
    "key": objects | st.none(),
    "names": st.integers() | texts | switches | objects | st.just([1]),
    "entries": st.integers() | texts | switches | objects | values.filter(lambda value: value != []),
    "nodes": st.integers() | texts | switches | objects | st.none(),
    "name": st.integers() | switches | texts.filter(lambda text: not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", text)),
    "nonempty": st.integers() | texts | switches | objects | st.none() | st.just([]),
}
# The members of each body, by kind.
BODIES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "/push": ({"event": "Tx", "data": tx()}, {"event": "text", "data": "object"}),
    "/push-sync": ({"event": "Tx", "data": tx()}, {"event": "text", "data": "object"}),
    "/push/Tx": (tx(), DATA),
    "/push-sync/Tx": (tx(), DATA),
    "/get": (
        {"table": "U", "key": "a"},
        {"table": "text", "key": "key", "features": "names", "consistency": "consistency"},
    ),
    "/batch_get": ({"requests": []}, {"requests": "entries", "consistency": "consistency"}),
    "/search": ({"event": "Tx", "q": "has:user"}, {"event": "text", "q": "text"}),
    "/backfill": ({"table": "U"}, {"table": "text", "dry_run": "switch"}),
    "/snapshot": ({"table": "U"}, {"table": "text", "features": "names", "backfill": "switch", "dry_run": "switch"}),
    "/training-set": (
        {"table": "U", "labels": "labels/default/"},
        {"table": "text", "labels": "text", "features": "names", "backfill": "switch", "dry_run": "switch"},
    ),
    "/register": ({"nodes": []}, {"nodes": "nodes", "force": "switch", "dry_run": "switch"}),
}
ROUTES = st.sampled_from(sorted(BODIES))


@pytest.fixture(scope="module")
def server() -> Server:
    fields = {"user": "str", "amount": "f64", "n": "i64", "note": "str"}
    return serving(event(fields=fields, optional=["note"], search=True), table())


def check_refused(answer: Answer) -> None:
    assert 400 <= answer.status < 500, answer
    error = answer.json["error"]
    assert re.fullmatch("[a-z_0-9]+", error["code"]), answer
    assert error.get("message") or error.get("reason") or answer.status == 405, answer
    assert answer.headers["content-type"].startswith("application/json"), answer


def refuses(server: Server, path: str, body: bytes) -> Answer:
    """Sends a request, which must be refused and change nothing that is stored."""
    before = server.dump()
    answer = server("POST", path, JSON, body)
    check_refused(answer)
    assert server.dump() == before
    return answer


@given(path=ROUTES, body=st.binary(max_size=60))
@examples(200, suppress_health_check=SHARED)
def test_bodies_that_are_no_object(server: Server, path: str, body: bytes) -> None:
    assume(not is_object(body))
    assert refuses(server, path, body).status == 400


@given(path=ROUTES, body=values)
@examples(100, suppress_health_check=SHARED)
def test_json_that_is_no_object(server: Server, path: str, body: Any) -> None:
    assert refuses(server, path, json.dumps(body).encode()).status == 400


@given(path=ROUTES, encoding=st.sampled_from(["utf-16", "utf-32", "utf-8-sig", "cp037"]))
@examples(60, suppress_health_check=SHARED)
def test_other_encodings(server: Server, path: str, encoding: str) -> None:
    refuses(server, path, json.dumps(BODIES[path][0]).encode(encoding))


@given(data=st.data(), path=ROUTES)
@examples(600, suppress_health_check=SHARED)
def test_members_of_another_type_or_out_of_range(server: Server, data: st.DataObject, path: str) -> None:
    body, kinds = BODIES[path]
    member = data.draw(st.sampled_from(sorted(kinds)))
    value = data.draw(WRONG_HERE[kinds[member]])
    refuses(server, path, json.dumps({**body, member: value}).encode())


@given(path=ROUTES, data=st.data())
@examples(60, suppress_health_check=SHARED)
def test_members_that_are_missing(server: Server, path: str, data: st.DataObject) -> None:
    body, _ = BODIES[path]
    member = data.draw(st.sampled_from(sorted(body)))
    refuses(server, path, json.dumps({name: body[name] for name in body if name != member}).encode())


@given(
    data=st.data(),
    member=st.sampled_from(
        [
            *(("kind", "list"), ("name", "name"), ("output_kind", "list"), ("upstreams", "nonempty")),
            *(("ops", "nonempty"), ("table_primary_key", "nonempty"), ("backfill", "switch")),
        ]
    ),
)
@examples(200, suppress_health_check=SHARED)
def test_nodes_of_another_form(server: Server, data: st.DataObject, member: tuple[str, str]) -> None:
    node = {**NODE, member[0]: data.draw(WRONG_HERE[member[1]])}
    answer = refuses(server, "/register", json.dumps({"nodes": [node]}).encode())
    assert set(answer.json) == {"error", "registry_version"}
    assert set(answer.json["error"]) == {"code", "path", "reason"}
    assert answer.json["error"]["path"].startswith("nodes[0]")
    assert answer.json["registry_version"] == 1


@given(events=st.lists(values, max_size=3))
@examples(60, suppress_health_check=SHARED)
def test_batches_with_anything_else_than_events(server: Server, events: list[Any]) -> None:
    refuses(server, "/push/Tx/batch", json.dumps([tx(), *events, 1]).encode())


@given(data=st.data(), path=ROUTES.filter(lambda path: path in ("/push", "/get", "/batch_get", "/register")))
@examples(50, suppress_health_check=SHARED)
def test_unknown_members_are_no_error(server: Server, data: st.DataObject, path: str) -> None:
    body = {**BODIES[path][0], "x-" + data.draw(texts): data.draw(lists)}
    assert server("POST", path, JSON, json.dumps(body).encode()).status == 200


@given(key=texts | values)
@examples(100, suppress_health_check=SHARED)
def test_any_key_is_answered(server: Server, key: Any) -> None:
    answer = server("POST", "/get", JSON, json.dumps({"table": "U", "key": key}).encode())
    if answer.status != 200:
        check_refused(answer)
    shown = server("POST", "/batch_get", JSON, json.dumps({"requests": [{"table": "U", "key": key}]}).encode())
    assert (shown.status == 200) == (answer.status in (200, 404))


@given(namespace=st.text(min_size=1, max_size=70), path=ROUTES)
@examples(100, suppress_health_check=SHARED)
def test_namespaces_of_another_form(server: Server, namespace: str, path: str) -> None:
    assume(not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", namespace))
    assume(not any("\ud800" <= letter <= "\udfff" for letter in namespace))
    refuses(server, f"/features/{quote(namespace, safe='')}{path}", json.dumps(BODIES[path][0]).encode())


@given(
    path=st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=30),
    under=st.sampled_from(["/push", "/get"]),
)
@examples(100, suppress_health_check=SHARED)
def test_paths_of_nothing(server: Server, path: str, under: str) -> None:
    name = path.split("?")[0].removeprefix("/").removesuffix("/batch")
    assume(name not in ("", "Tx", "batch"))
    refuses(server, f"{under}/" + quote(path), json.dumps(tx()).encode())
