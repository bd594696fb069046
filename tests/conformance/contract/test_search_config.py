"""`_schema.search`: field ids with their kinds, bindings and capabilities, aliases, default fields, rollups."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.contract.client import Api, Stream, expect, refused
from tests.conformance.contract.shop import SCHEMA, SEARCH, field

ROLLUPS: dict[str, Any] = {
    "requests": {
        "dimensions": ["service"],
        "intervals": ["10s", "1m", "1h"],
        "measures": {
            "requests": {"kind": "count"},
            "cost": {"kind": "summary", "field": "cost", "histogram": "log2_v1"},
        },
    }
}


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Returns the shop's configuration with rollups, changed."""
    search = copy.deepcopy({**SEARCH, "rollups": ROLLUPS})
    change(search)
    return search


def put(path: str, value: Any) -> Callable[[dict[str, Any]], object]:
    """Sets what is at `a/b/c`."""

    def change(search: dict[str, Any]) -> None:
        *parents, last = path.split("/")
        place: Any = search
        for name in parents:
            place = place[int(name) if isinstance(place, list) else name]
        place[last] = value

    return change


def drop(path: str) -> Callable[[dict[str, Any]], object]:
    """Removes what is at `a/b/c`."""

    def change(search: dict[str, Any]) -> None:
        *parents, last = path.split("/")
        place: Any = search
        for name in parents:
            place = place[name]
        del place[last]

    return change


def test_a_full_configuration_is_accepted_and_shown(api: Api) -> None:
    stream = api.with_schema(schema=SCHEMA, search=changed(lambda _: None))
    shown = stream.registry().json()["search"]
    assert shown["primaryTimestampField"] == "at"
    assert shown["aliases"] == SEARCH["aliases"]
    assert shown["defaultFields"] == [{"field": "note", "boost": 2}]
    assert shown["fields"] == SEARCH["fields"]
    rollup = shown["rollups"]["requests"]
    assert rollup["intervals"] == ["10s", "1m", "1h"]
    assert rollup["dimensions"] == ["service"]
    assert rollup["measures"] == ROLLUPS["requests"]["measures"]
    assert rollup["timestampField"] == "at"


def test_a_configuration_alone_needs_a_schema(stream: Stream) -> None:
    refused(stream.define(search=SEARCH), 400)
    expect(stream.define(schema=SCHEMA), 200)
    answer = expect(stream.define(search=SEARCH), 200).json()
    assert answer["currentVersion"] == 1
    assert answer["boundaries"] == [{"offset": 0, "version": 1}]
    assert set(answer["search"]["fields"]) == set(SEARCH["fields"])


@pytest.mark.sensitive("each process caches the definition")
def test_a_configuration_can_be_replaced_and_removed(api: Api) -> None:
    stream = api.with_schema(schema=SCHEMA, search=SEARCH)
    expect(stream.append([{"id": "r0", "other": "x"}]), 204)
    fields = {"at": SEARCH["fields"]["at"], "other": field("keyword", "/other", "exact")}
    expect(stream.define(search={"primaryTimestampField": "at", "fields": fields}), 200)
    assert stream.records(filter="other:x") == [{"id": "r0", "other": "x"}]
    refused(stream.read(filter="status:1"), 400)
    assert "search" not in expect(stream.define(search=None), 200).json()
    refused(stream.read(filter="other:x"), 400)


def test_a_schema_update_keeps_the_configuration(api: Api) -> None:
    one = {
        "type": "object",
        "properties": {"id": {"type": "string"}},
        "required": ["id"],
        "additionalProperties": False,
    }
    two = {**one, "properties": {"id": {"type": "string"}, "n": {"type": "integer"}}}
    fields = {"at": SEARCH["fields"]["at"], "id": SEARCH["fields"]["id"]}
    stream = api.with_schema(schema=one, search={"primaryTimestampField": "at", "fields": fields})
    ops = [{"op": "add", "path": "/n", "schema": {"type": "integer"}, "default": 0}]
    lens = {"apiVersion": "durable.lens/v1", "schema": stream.name, "from": 1, "to": 2, "ops": ops}
    answer = expect(stream.define(schema=two, lens=lens), 200).json()
    assert set(answer["search"]["fields"]) == {"at", "id"}


def test_an_alias_stands_for_its_field(api: Api) -> None:
    stream = api.with_schema(schema=SCHEMA, search=SEARCH)
    expect(stream.append([{"id": "r0", "service": "a"}, {"id": "r1", "service": "b"}]), 204)
    assert stream.records(filter="svc:b") == stream.records(filter="service:b") == [{"id": "r1", "service": "b"}]


def test_the_highest_binding_up_to_the_current_version_applies(api: Api) -> None:
    bindings = [{"version": 1, "jsonPointer": "/a"}, {"version": 2, "jsonPointer": "/b"}]
    fields = {"at": SEARCH["fields"]["at"], "f": {**field("keyword", "/a", "exact"), "bindings": bindings}}
    stream = api.with_schema(schema=SCHEMA, search={"primaryTimestampField": "at", "fields": fields})
    expect(stream.append([{"a": "x", "b": "y"}]), 204)
    assert len(stream.records(filter="f:x")) == 1
    assert stream.records(filter="f:y") == []


VALID = {
    "name of 64 characters": put("fields/" + "n" * 64, field("keyword", "/n", "exact")),
    "name with dots": put("fields/error.message-x_y", field("text", "/e", "exists", analyzer="unicode_word_v1")),
    "identity normalizer": put("fields/code/normalizer", "identity_v1"),
    "no aliases": drop("aliases"),
    "no default fields": drop("defaultFields"),
    "no rollups": drop("rollups"),
    "default field without boost": put("defaultFields", [{"field": "note"}]),
    "rollup of another date": put("rollups/requests/timestampField", "at"),
    "rollup without dimensions": drop("rollups/requests/dimensions"),
    "root pointer": put("fields/id/bindings", [{"version": 1, "jsonPointer": ""}]),
}

INVALID = {
    "no primary timestamp": drop("primaryTimestampField"),
    "unknown primary timestamp": put("primaryTimestampField", "nothing"),
    "primary timestamp of another kind": put("primaryTimestampField", "status"),
    "no fields": put("fields", {}),
    "fields as a list": put("fields", []),
    "unknown key": put("indexes", []),
    "name too long": put("fields/" + "n" * 65, field("keyword", "/n")),
    "name with a space": put("fields/a b", field("keyword", "/n")),
    "name that begins with a dot": put("fields/.a", field("keyword", "/n")),
    "no kind": drop("fields/id/kind"),
    "unknown kind": put("fields/id/kind", "string"),
    "unknown field key": put("fields/id/indexed", True),
    "no bindings": put("fields/id/bindings", []),
    "binding without version": put("fields/id/bindings", [{"jsonPointer": "/id"}]),
    "binding of version 0": put("fields/id/bindings", [{"version": 0, "jsonPointer": "/id"}]),
    "binding of a fractional version": put("fields/id/bindings", [{"version": 1.5, "jsonPointer": "/id"}]),
    "binding twice": put("fields/id/bindings", [{"version": 1, "jsonPointer": p} for p in ("/a", "/b")]),
    "binding with a bad pointer": put("fields/id/bindings", [{"version": 1, "jsonPointer": "id"}]),
    "binding with another key": put("fields/id/bindings", [{"version": 1, "jsonPointer": "/id", "x": 1}]),
    "unknown normalizer": put("fields/id/normalizer", "uppercase_v1"),
    "normalizer on a typed field": put("fields/status/normalizer", "lowercase_v1"),
    "analyzer on a keyword": put("fields/id/analyzer", "unicode_word_v1"),
    "unknown analyzer": put("fields/note/analyzer", "english_v1"),
    "text without analyzer": drop("fields/note/analyzer"),
    "text with column": put("fields/note/column", True),
    "text with sortable": put("fields/note/sortable", True),
    "text with aggregatable": put("fields/note/aggregatable", True),
    "prefix on a typed field": put("fields/status/prefix", True),
    "positions on a keyword": put("fields/id/positions", True),
    "alias of nothing": put("aliases/x", "nothing"),
    "alias that is no name": put("aliases/a b", "id"),
    "default field of nothing": put("defaultFields", [{"field": "nothing"}]),
    "default field with a negative boost": put("defaultFields", [{"field": "note", "boost": -1}]),
    "rollup without intervals": put("rollups/requests/intervals", []),
    "rollup with a bad interval": put("rollups/requests/intervals", ["soon"]),
    "rollup with an interval of nothing": put("rollups/requests/intervals", ["0s"]),
    "rollup without measures": put("rollups/requests/measures", {}),
    "rollup of an unknown dimension": put("rollups/requests/dimensions", ["nothing"]),
    "rollup of an inexact dimension": put("rollups/requests/dimensions", ["seen"]),
    "rollup of a timestamp of another kind": put("rollups/requests/timestampField", "status"),
    "unknown measure": put("rollups/requests/measures/x", {"kind": "median"}),
    "summary of a field that is not aggregatable": put("rollups/requests/measures/cost/field", "status"),
    "summary of a keyword": put("rollups/requests/measures/cost/field", "code"),
    "unknown histogram": put("rollups/requests/measures/cost/histogram", "linear"),
}  # fmt: skip


@pytest.mark.parametrize("case", VALID)
def test_a_valid_variation_is_accepted(stream: Stream, case: str) -> None:
    expect(stream.define(schema=SCHEMA, search=changed(VALID[case])), 200)


@pytest.mark.parametrize("case", INVALID)
def test_an_invalid_configuration_is_refused(stream: Stream, case: str) -> None:
    refused(stream.define(schema=SCHEMA, search=changed(INVALID[case])), 400)
    assert stream.registry().json()["currentVersion"] == 0
