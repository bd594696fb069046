"""`_schema`: the registry document, what may be posted, validation on append."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.contract.client import JSON, Api, Stream, expect, refused, succeeded
from tests.conformance.contract.shop import SEARCH

API_VERSION = "durable.streams/schema-registry/v1"
KEY = {"jsonPointer": "/user/id", "required": True}
PERSON = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def test_a_stream_without_a_schema_has_an_empty_registry(stream: Stream) -> None:
    assert expect(stream.registry(), 200).json() == {
        "apiVersion": API_VERSION,
        "schema": stream.name,
        "currentVersion": 0,
        "boundaries": [],
        "schemas": {},
        "lenses": {},
    }


def test_the_registry_of_an_unknown_stream_is_404(api: Api) -> None:
    refused(api.unused().registry(), 404)
    refused(api.unused().define(schema=PERSON), 404)


def test_an_update_answers_the_whole_registry(stream: Stream) -> None:
    answer = expect(stream.define(schema=PERSON, routingKey=KEY, search=SEARCH), 200).json()
    assert answer == stream.registry().json()
    assert answer["apiVersion"] == API_VERSION
    assert answer["schema"] == stream.name
    assert answer["currentVersion"] == 1
    assert answer["boundaries"] == [{"offset": 0, "version": 1}]
    assert answer["schemas"] == {"1": PERSON}
    assert answer["lenses"] == {}
    assert answer["routingKey"] == KEY
    assert answer["search"]["primaryTimestampField"] == "at"
    assert set(answer["search"]["fields"]) == set(SEARCH["fields"])


def test_the_api_version_may_be_given(stream: Stream) -> None:
    expect(stream.define(apiVersion=API_VERSION, schema=PERSON), 200)
    refused(stream.define(apiVersion="durable.streams/schema-registry/v2", routingKey=None), 400)


@pytest.mark.parametrize("schema", [True, False, {}, {"type": "object", "additionalProperties": True}])
def test_a_schema_is_an_object_or_a_truth(stream: Stream, schema: Any) -> None:
    answer = expect(stream.define(schema=schema), 200).json()
    assert answer["schemas"] == {"1": schema}
    assert stream.append([{"a": 1}]).status_code == (400 if schema is False else 204)


@pytest.mark.parametrize(
    "schema",
    [
        None,
        "string",
        7,
        [],
        {"type": "thing"},
        {"type": 7},
        {"properties": []},
        {"minimum": "3"},
        {"pattern": "("},
        {"required": "name"},
        {"allOf": {}},
    ],
)
def test_what_is_no_schema_is_refused(stream: Stream, schema: Any) -> None:
    refused(stream.define(schema=schema), 400)
    assert stream.registry().json()["currentVersion"] == 0


@pytest.mark.parametrize(
    "body",
    [
        {"schemas": {"1": {}}, "lenses": {}},
        {"schemas": {"1": {}}},
        {"schema": {}, "currentVersion": 1},
        {"schema": {}, "boundaries": []},
        {"schema": {}, "routing_key": KEY},
        {"schema": {}, "routingKeyPointer": "/id"},
        {"routingKey": {"json_pointer": "/id", "required": True}},
        {"routingKey": {"jsonPointer": "/id"}},
        {"routingKey": {"jsonPointer": "/id", "required": "yes"}},
        {"routingKey": {"jsonPointer": "id", "required": True}},
        {"routingKey": {"jsonPointer": "/a~2", "required": True}},
        {"routingKey": "/id"},
        {"schema": {}, "routingKey": None},
        {"indexes": []},
        {"schema": {}, "indexes": []},
        {"schema": {}, "profile": {"kind": "evlog"}},
        {"schema": {}, "touch": {"enabled": True}},
        {"touch": {"enabled": True}},
        {"lens": {}},
        {"unknown": 1},
        {},
        [],
        "schema",
    ],
)
def test_other_shapes_are_refused(stream: Stream, body: object) -> None:
    refused(stream.at("POST", "/_schema", JSON, body), 400)
    assert stream.registry().json() == {**stream.registry().json(), "currentVersion": 0, "schemas": {}}
    assert "routingKey" not in stream.registry().json()


@pytest.mark.parametrize("body", [b"", b"{", b'{"schema": NaN}', b"\xff"])
def test_what_is_not_json_is_refused(stream: Stream, body: bytes) -> None:
    refused(stream.at("POST", "/_schema", JSON, body), 400)


def test_the_first_schema_needs_an_empty_stream(stream: Stream) -> None:
    expect(stream.append([{"name": "a"}]), 204)
    refused(stream.define(schema=PERSON), 400)
    assert stream.registry().json()["currentVersion"] == 0


@pytest.mark.sensitive("each process caches the definition")
def test_a_repeated_first_schema_is_not_idempotent(api: Api) -> None:
    stream = api.with_schema(schema=PERSON)
    expect(stream.append([{"name": "a"}]), 204)
    refused(stream.define(schema=PERSON), 400)
    assert stream.registry().json()["currentVersion"] == 1


@pytest.mark.sensitive("each process caches the definition")
def test_appends_are_validated_against_the_current_schema(api: Api) -> None:
    stream = api.with_schema(schema=PERSON)
    expect(stream.append([{"name": "a"}]), 204)
    wrong: object
    for wrong in ([{}], [{"name": 1}], [{"name": "a"}, {}], [7], "text"):
        refused(stream.append(wrong), 400)
    assert stream.records() == [{"name": "a"}]


def test_the_records_of_a_create_come_before_any_schema(api: Api) -> None:
    stream = api.unused()
    succeeded(stream.put(JSON, [{"name": 1}]))
    refused(stream.define(schema=PERSON), 400)


def test_a_refusal_names_every_error(api: Api) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["c"]}
    stream = api.with_schema(schema=schema)
    message = refused(stream.append([{"a": 1, "b": "x"}]), 400)
    assert message.count("; ") >= 2
    assert all(part in message for part in ("a", "b", "c"))


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "integer"}, 3, 3.5),
        ({"type": "integer"}, 12345678901234567890123, "3"),
        ({"type": "number", "exclusiveMinimum": 0}, 0.1, 0),
        ({"enum": ["a", None]}, None, "b"),
        ({"const": {"a": [1]}}, {"a": [1]}, {"a": [2]}),
        ({"type": "string", "pattern": "^a.c$"}, "abc", "abcd"),
        ({"type": "string", "maxLength": 2}, "日本", "abc"),
        ({"type": "array", "items": [{"type": "integer"}], "additionalItems": False}, [1], [1, 2]),
        ({"type": "array", "contains": {"const": 1}}, [2, 1], [2]),
        ({"propertyNames": {"maxLength": 1}}, {"a": 1}, {"ab": 1}),
        ({"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"type": "null"}}, "ab", "a"),
        ({"oneOf": [{"type": "integer"}, {"minimum": 5}]}, 4, 6),
        ({"not": {"type": "null"}}, 1, None),
        ({"dependencies": {"a": ["b"]}}, {"a": 1, "b": 2}, {"a": 1}),
    ],
)
def test_validation_is_that_of_draft_7(api: Api, schema: Any, good: Any, bad: Any) -> None:
    stream = api.with_schema(schema={"properties": {"v": schema}})
    expect(stream.append([{"v": good}]), 204)
    refused(stream.append([{"v": bad}]), 400)
    assert stream.records() == [{"v": good}]


@pytest.mark.parametrize(
    "reference", ["https://example.com/schema.json", "other.json#/definitions/a", "file:///etc/passwd"]
)
def test_an_external_reference_is_refused(stream: Stream, reference: str) -> None:
    refused(stream.define(schema={"properties": {"a": {"$ref": reference}}}), 400)


def test_a_local_reference_works(api: Api) -> None:
    schema = {"definitions": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/definitions/n"}}}
    stream = api.with_schema(schema=schema)
    expect(stream.append([{"a": 1}]), 204)
    refused(stream.append([{"a": "x"}]), 400)


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("2026-03-25T00:00:00Z", True),
        ("2026-03-25T00:00:00.123456789Z", True),
        ("2026-03-25T00:00:00.1+01:30", True),
        ("2024-02-29T23:59:59Z", True),
        ("2026-03-25T00:00Z", False),
        ("2026-03-25T00:00:00", False),
        ("2026-03-25", False),
        ("2026-03-25T00:00:00.1234567890Z", False),
        ("2026-13-25T00:00:00Z", False),
        ("yesterday", False),
    ],
)
def test_the_format_date_time_is_enforced(api: Api, text: str, valid: bool) -> None:
    stream = api.with_schema(schema={"properties": {"at": {"type": "string", "format": "date-time"}}})
    if valid:
        expect(stream.append([{"at": text}]), 204)
    else:
        refused(stream.append([{"at": text}]), 400)


@pytest.mark.parametrize("name", ["email", "uri", "date", "ipv4", "uuid", "made-up"])
def test_other_formats_are_only_annotations(api: Api, name: str) -> None:
    stream = api.with_schema(schema={"properties": {"v": {"type": "string", "format": name}}})
    expect(stream.append([{"v": "anything at all"}]), 204)


def test_a_schema_does_not_change_what_the_stream_is(api: Api) -> None:
    stream = api.with_schema(schema=PERSON, search=SEARCH)
    assert stream.profile().json()["profile"] == {"kind": "generic"}
    refused(stream.touch_meta(), 404)


@pytest.mark.sensitive("each process caches the definition")
def test_the_registry_is_that_of_one_stream(api: Api) -> None:
    one, other = api.with_schema(schema=PERSON), api.with_schema(schema={"type": "integer"})
    expect(one.append([{"name": "a"}]), 204)
    expect(other.append([1]), 204)
    refused(other.append([{"name": "a"}]), 400)


def test_records_with_a_schema_keep_their_text(api: Api) -> None:
    stream = api.with_schema(schema={"type": "object"})
    expect(stream.append(b'[{"z": 9007199254740993, "a": 1.0}]'), 204)
    assert stream.records() == [{"z": 9007199254740993, "a": 1.0}]
    text = stream.read().content
    assert b"9007199254740993" in text
    assert b"1.0" in text
    assert text.index(b'"z"') < text.index(b'"a"')
