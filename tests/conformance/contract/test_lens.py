"""Lenses: every operation, the proof against both schemas, promotion of older records on every read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conformance.contract.client import Api, Stream, expect, given, refused
from tests.conformance.contract.shop import field

API_VERSION = "durable.lens/v1"
S: dict[str, Any] = {"type": "string"}
I: dict[str, Any] = {"type": "integer"}  # noqa: E741


def closed(**properties: Any) -> dict[str, Any]:
    """Returns the schema of an object with exactly these properties; those whose name ends in `_` are optional."""
    named = {name.rstrip("_"): schema for name, schema in properties.items()}
    required = [name for name in properties if not name.endswith("_")]
    return {"type": "object", "properties": named, "required": required, "additionalProperties": False}


def array(items: Any, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


def lens(stream: Stream, *ops: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Returns a lens from version 1 to 2."""
    return {"apiVersion": API_VERSION, "schema": stream.name, "from": 1, "to": 2, "ops": list(ops), **changes}


def evolve(stream: Stream, schema: Any, *ops: dict[str, Any]) -> dict[str, Any]:
    """Adds a schema with its lens; returns the registry."""
    version = stream.registry().json()["currentVersion"]
    changes = {"from": version, "to": version + 1}
    answer: dict[str, Any] = expect(stream.define(schema=schema, lens=lens(stream, *ops, **changes)), 200).json()
    return answer


RENAME = {"op": "rename", "from": "/a", "to": "/b"}
TO_TEXT = {"forward": {"builtin": "int_to_string"}, "backward": {"builtin": "string_to_int"}}
NAME = closed(name=S)
OPERATIONS: dict[str, tuple[Any, Any, list[dict[str, Any]], Any, Any]] = {
    "rename": (closed(a=S), closed(b=S), [RENAME], {"a": "x"}, {"b": "x"}),
    "copy": (closed(a=S), closed(a=S, b=S), [{**RENAME, "op": "copy"}], {"a": "x"}, {"a": "x", "b": "x"}),
    "add": (
        closed(a=S), closed(a=S, n=I), [{"op": "add", "path": "/n", "schema": I, "default": 7}],
        {"a": "x"}, {"a": "x", "n": 7},
    ),
    "add with the schema's default": (
        closed(a=S), closed(a=S, n={**I, "default": 5}), [{"op": "add", "path": "/n", "schema": I}],
        {"a": "x"}, {"a": "x", "n": 5},
    ),
    "add an array": (
        closed(a=S), closed(a=S, l=array(S)), [{"op": "add", "path": "/l", "schema": array(S)}],
        {"a": "x"}, {"a": "x", "l": []},
    ),
    "remove": (
        closed(a=S, b=S), closed(a=S), [{"op": "remove", "path": "/b", "schema": S}],
        {"a": "x", "b": "y"}, {"a": "x"},
    ),
    "hoist": (
        closed(user=closed(id=S)), closed(user=closed(), uid=S),
        [{"op": "hoist", "host": "/user", "name": "id", "to": "/uid"}],
        {"user": {"id": "u"}}, {"user": {}, "uid": "u"},
    ),
    "hoist and keep": (
        closed(user=closed(id=S)), closed(user=closed(id=S), uid=S),
        [{"op": "hoist", "host": "/user", "name": "id", "to": "/uid", "removeFromHost": False}],
        {"user": {"id": "u"}}, {"user": {"id": "u"}, "uid": "u"},
    ),
    "plunge": (
        closed(uid=S), closed(user=closed(id=S)),
        [{"op": "plunge", "from": "/uid", "host": "/user", "name": "id"}],
        {"uid": "u"}, {"user": {"id": "u"}},
    ),
    "wrap": (
        closed(t=S), closed(t=array(S)), [{"op": "wrap", "path": "/t", "mode": "singleton"}],
        {"t": "x"}, {"t": ["x"]},
    ),
    "rename and wrap": (
        closed(a=S), closed(b=array(S)), [RENAME, {"op": "wrap", "path": "/b", "mode": "singleton"}],
        {"a": "x"}, {"b": ["x"]},
    ),
    "head": (closed(t=array(S, minItems=1)), closed(t=S), [{"op": "head", "path": "/t"}], {"t": ["x", "y"]}, {"t": "x"}),
    "convert by a builtin": (
        closed(n=I), closed(n=S), [{"op": "convert", "path": "/n", "fromType": "integer", "toType": "string", **TO_TEXT}],
        {"n": 12}, {"n": "12"},
    ),
    "convert by a map": (
        closed(s={**S, "enum": ["open", "done"]}), closed(s=I),
        [{"op": "convert", "path": "/s", "fromType": "string", "toType": "integer",
          "forward": {"map": {"open": 0, "done": 1}}, "backward": {"map": {"0": "open", "1": "done"}}}],
        {"s": "done"}, {"s": 1},
    ),
    "convert by a map with a default": (
        closed(s=S), closed(s=I),
        [{"op": "convert", "path": "/s", "fromType": "string", "toType": "integer",
          "forward": {"map": {"open": 0}, "default": 9}, "backward": {"map": {"0": "open"}, "default": "other"}}],
        {"s": "anything"}, {"s": 9},
    ),
    "in": (
        closed(user=NAME), closed(user=closed(full=S)),
        [{"op": "in", "path": "/user", "ops": [{"op": "rename", "from": "/name", "to": "/full"}]}],
        {"user": {"name": "x"}}, {"user": {"full": "x"}},
    ),
    "map": (
        closed(l=array(NAME)), closed(l=array(closed(full=S))),
        [{"op": "map", "path": "/l", "ops": [{"op": "rename", "from": "/name", "to": "/full"}]}],
        {"l": [{"name": "x"}, {"name": "y"}]}, {"l": [{"full": "x"}, {"full": "y"}]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OPERATIONS)
def test_an_operation_promotes_older_records(api: Api, case: str) -> None:
    old, new, ops, before, after = OPERATIONS[case]
    stream = api.with_schema(schema=old)
    expect(stream.append([before]), 204)
    registry = evolve(stream, new, *ops)
    assert registry["currentVersion"] == 2
    assert registry["schemas"] == {"1": old, "2": new}
    expect(stream.append([after]), 204)
    assert stream.records() == [after, after]


def test_a_derived_default_is_stored_in_the_lens(api: Api) -> None:
    stream = api.with_schema(schema=closed(a=S))
    registry = evolve(stream, closed(a=S, n={**I, "default": 5}), {"op": "add", "path": "/n", "schema": I})
    assert registry["lenses"]["1"]["ops"] == [{"op": "add", "path": "/n", "schema": I, "default": 5}]


UNPROVEN: dict[str, tuple[Any, Any, list[dict[str, Any]]]] = {
    "rename of what may be missing": (closed(a_=S), closed(b=S), [RENAME]),
    "rename of what is not there": (closed(c=S), closed(b=S), [RENAME]),
    "rename to what is not there": (closed(a=S), closed(c_=S), [RENAME]),
    "rename to another type": (closed(a=S), closed(b=I), [RENAME]),
    "rename to a narrower type": (closed(a={"type": "number"}), closed(b=I), [RENAME]),
    "rename out of an enumeration": (closed(a={**S, "enum": ["x", "y"]}), closed(b={**S, "enum": ["x"]}), [RENAME]),
    "rename that leaves a required field behind": (closed(a=S), closed(a=S, b=S), [RENAME]),
    "copy to another type": (closed(a=S), closed(a=S, b=I), [{**RENAME, "op": "copy"}]),
    "add without a default": (closed(a=S), closed(a=S, n=I), [{"op": "add", "path": "/n", "schema": I}]),
    "add with a default of another type": (
        closed(a=S), closed(a=S, n=I), [{"op": "add", "path": "/n", "schema": I, "default": "x"}],
    ),
    "add with a default outside the enumeration": (
        closed(a=S), closed(a=S, s={**S, "enum": ["todo"]}), [{"op": "add", "path": "/s", "schema": S, "default": "oops"}],
    ),
    "remove of what is still required": (closed(a=S, b=S), closed(a=S, b=S), [{"op": "remove", "path": "/b", "schema": S}]),
    "hoist of what may be missing": (
        closed(user=closed(id_=S)), closed(user=closed(), uid=S),
        [{"op": "hoist", "host": "/user", "name": "id", "to": "/uid"}],
    ),
    "plunge that leaves a required field behind": (
        closed(uid=S), closed(uid=S, user=closed(id=S)),
        [{"op": "plunge", "from": "/uid", "host": "/user", "name": "id"}],
    ),
    "wrap into another type": (closed(t=S), closed(t=array(I)), [{"op": "wrap", "path": "/t", "mode": "singleton"}]),
    "a wrap that is missing": (closed(a=S), closed(b=array(S)), [RENAME]),
    "head of what may be empty": (closed(t=array(S)), closed(t=S), [{"op": "head", "path": "/t"}]),
    "a map that is not total": (
        closed(s=S), closed(s=I),
        [{"op": "convert", "path": "/s", "fromType": "string", "toType": "integer",
          "forward": {"map": {"open": 0}}, "backward": {"map": {"0": "open"}}}],
    ),
    "text that may be no number": (
        closed(s=S), closed(s=I),
        [{"op": "convert", "path": "/s", "fromType": "string", "toType": "integer",
          "forward": {"builtin": "string_to_int"}, "backward": {"builtin": "int_to_string"}}],
    ),
    "an unknown builtin": (
        closed(s=S), closed(s=I),
        [{"op": "convert", "path": "/s", "fromType": "string", "toType": "integer",
          "forward": {"builtin": "guess"}, "backward": {"builtin": "int_to_string"}}],
    ),
    "in something that is no object": (
        closed(user=S), closed(user=S), [{"op": "in", "path": "/user", "ops": [RENAME]}],
    ),
    "map over something that is no array": (
        closed(l=S), closed(l=S), [{"op": "map", "path": "/l", "ops": [RENAME]}],
    ),
    "a required field that nothing fills": (closed(a=S), closed(b=S, c=S), [RENAME]),
}  # fmt: skip


@pytest.mark.parametrize("case", UNPROVEN)
def test_a_lens_that_is_not_proven_is_refused(api: Api, case: str) -> None:
    old, new, ops = UNPROVEN[case]
    stream = api.with_schema(schema=old)
    refused(stream.define(schema=new, lens=lens(stream, *ops)), 400)
    assert stream.registry().json()["currentVersion"] == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"apiVersion": "durable.lens/v2"},
        {"schema": "another"},
        {"ops": []},
        {"ops": [{"op": "explode", "path": "/a"}]},
        {"ops": [{**RENAME, "force": True}]},
        {"ops": [{"op": "rename", "from": "/a"}]},
        {"ops": [{"op": "rename", "from": "a", "to": "/b"}]},
        {"ops": "rename"},
        {"ops": [{"op": "wrap", "path": "/a", "mode": "plural"}]},
        {"unknown": 1},
        {"from": "1"},
    ],
)
def test_a_malformed_lens_is_refused(api: Api, changes: dict[str, Any]) -> None:
    stream = api.with_schema(schema=closed(a=S))
    refused(stream.define(schema=closed(b=S), lens=lens(stream, RENAME, **changes)), 400)
    assert stream.registry().json()["currentVersion"] == 1


@pytest.mark.parametrize("versions", [{"from": 2, "to": 3}, {"from": 0, "to": 1}, {"from": 1, "to": 3}])
def test_a_lens_of_other_versions_is_a_conflict(api: Api, versions: dict[str, int]) -> None:
    stream = api.with_schema(schema=closed(a=S))
    message = refused(stream.define(schema=closed(b=S), lens=lens(stream, RENAME, **versions)), 409)
    assert "lens version mismatch" in message


def test_a_further_schema_needs_a_lens(api: Api) -> None:
    stream = api.with_schema(schema=closed(a=S))
    refused(stream.define(schema=closed(b=S)), 400)
    refused(stream.define(lens=lens(stream, RENAME)), 400)
    assert stream.registry().json()["currentVersion"] == 1


def test_the_first_schema_tolerates_a_lens_from_nothing(api: Api) -> None:
    stream = api.stream()
    refused(stream.define(schema=closed(a=S), lens=lens(stream, RENAME)), 409)
    answer = expect(stream.define(schema=closed(a=S), lens=lens(stream, RENAME, **{"from": 0, "to": 1})), 200)
    assert answer.json()["currentVersion"] == 1


@pytest.mark.sensitive("the end is in memory, in another process or only in the store")
def test_a_boundary_stands_at_the_end_offset(api: Api) -> None:
    stream = api.with_schema(schema=closed(a=S))
    expect(stream.append([{"a": "x"}] * 3), 204)
    registry = evolve(stream, closed(b=S), RENAME)
    assert registry["boundaries"] == [{"offset": 0, "version": 1}, {"offset": 3, "version": 2}]
    assert registry["lenses"]["1"]["ops"] == [RENAME]
    expect(stream.append([{"b": "y"}] * 2), 204)
    back = evolve(stream, closed(a=S), {"op": "rename", "from": "/b", "to": "/a"})
    assert back["boundaries"][2] == {"offset": 5, "version": 3}
    assert set(back["schemas"]) == {"1", "2", "3"}
    assert set(back["lenses"]) == {"1", "2"}


@pytest.mark.sensitive("each process caches the definition")
def test_a_chain_of_lenses_promotes_through_every_version(api: Api) -> None:
    stream = api.with_schema(schema=closed(a=S))
    expect(stream.append([{"a": f"x{n}"} for n in range(25)]), 204)
    stream.settle()
    evolve(stream, closed(b=S), RENAME)
    expect(stream.append([{"b": "y"}]), 204)
    evolve(stream, closed(b=array(S)), {"op": "wrap", "path": "/b", "mode": "singleton"})
    expect(stream.append([{"b": ["z", "zz"]}]), 204)
    assert stream.records() == [{"b": [f"x{n}"]} for n in range(25)] + [{"b": ["y"]}, {"b": ["z", "zz"]}]


@pytest.fixture
def evolved(api: Api) -> Stream:
    """Old records and a new one, with keys and a search field that is bound in both versions."""
    at = field("date", "/at", "column")
    bindings = [{"version": 1, "jsonPointer": "/a"}, {"version": 2, "jsonPointer": "/b"}]
    fields = {"at": at, "f": {**field("keyword", "/a", "exact"), "bindings": bindings}}
    stream = api.with_schema(schema=closed(a=S), search={"primaryTimestampField": "at", "fields": fields})
    given(stream.append([{"a": "x"}, {"a": "y"}], {"Stream-Key": "k"}))
    given(stream.define(schema=closed(b=S), lens=lens(stream, RENAME)))
    given(stream.append([{"b": "x"}], {"Stream-Key": "k"}))
    return stream


@pytest.mark.sensitive("records are in the tail or in segments")
def test_every_kind_of_read_promotes(evolved: Stream) -> None:
    whole = [{"b": "x"}, {"b": "y"}, {"b": "x"}]
    assert evolved.records() == whole
    assert evolved.records(key="k") == whole
    assert evolved.records(filter="f:x") == [{"b": "x"}, {"b": "x"}]
    assert evolved.records(since="2001-01-01T00:00:00Z") == whole
    assert expect(evolved.read(offset="-1", live="true", timeout="1s"), 200).json() == whole
    assert expect(evolved.api.get(evolved.path + "/pk/k"), 200).json() == whole
    raw = expect(evolved.read(format="raw"), 200).text
    assert [json.loads(part + "}") for part in raw.split("}")[:-1]] == whole


def test_server_sent_events_are_promoted(evolved: Stream) -> None:
    expect(evolved.append([{"b": "z"}], {"Stream-Closed": "true"}), 204)
    events = expect(evolved.read(offset="-1", live="sse"), 200).text
    data = [line.removeprefix("data:") for line in events.splitlines() if line.startswith("data:[")]
    assert [record for line in data for record in json.loads(line)] == [{"b": v} for v in ("x", "y", "x", "z")]


def test_promotion_keeps_numbers_and_the_order_of_keys(api: Api) -> None:
    stream = api.with_schema(schema=closed(z=I, a=S, m=I))
    expect(stream.append(b'[{"z": 9007199254740993, "a": "x", "m": 123456789012345678901234567890}]'), 204)
    evolve(stream, closed(z=I, b=S, m=I), RENAME)
    text = expect(stream.read(), 200).text
    assert json.loads(text) == [{"z": 9007199254740993, "b": "x", "m": 123456789012345678901234567890}]
    assert text.index('"z"') < text.index('"m"')


def test_records_that_no_schema_ever_saw_are_read_as_they_are(stream: Stream) -> None:
    expect(stream.append([{"k": 1}, "anything"]), 204)
    expect(stream.define(routingKey={"jsonPointer": "/k", "required": False}), 200)
    assert stream.records() == [{"k": 1}, "anything"]
