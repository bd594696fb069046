"""A routing key taken from each record by the schema's pointer."""

from __future__ import annotations

import pytest

from tests.conformance.contract.client import Api, Stream, expect, refused

KEY = {"jsonPointer": "/user/id", "required": True}


def test_keys_are_taken_from_the_records(api: Api) -> None:
    stream = api.with_schema(schema={"type": "object"}, routingKey=KEY)
    expect(stream.append([{"user": {"id": name}, "n": n} for n, name in enumerate(["a", "b", "a", "ключ"])]), 204)
    assert [record["n"] for record in stream.records(key="a")] == [0, 2]
    assert [record["n"] for record in stream.records(key="ключ")] == [3]


def test_stream_key_is_refused_where_the_schema_says_the_key(api: Api) -> None:
    stream = api.with_schema(schema={"type": "object"}, routingKey=KEY)
    refused(stream.append([{"user": {"id": "a"}}], {"Stream-Key": "a"}), 400)
    assert stream.records() == []


def test_a_required_key_that_is_missing_is_refused(api: Api) -> None:
    stream = api.with_schema(schema={"type": "object"}, routingKey=KEY)
    assert "routing key missing" in refused(stream.append([{"user": {}}]), 400)
    refused(stream.append([{"user": {"id": "a"}}, {}]), 400)
    assert stream.records() == []


@pytest.mark.parametrize("value", [7, True, None, ["a"], {"a": 1}])
def test_a_key_is_a_string(api: Api, value: object) -> None:
    stream = api.with_schema(schema={"type": "object"}, routingKey=KEY)
    refused(stream.append([{"user": {"id": value}}]), 400)


def test_a_key_that_is_not_required_may_be_missing(api: Api) -> None:
    stream = api.with_schema(schema={"type": "object"}, routingKey={"jsonPointer": "/k", "required": False})
    expect(stream.append([{"k": "a"}, {"n": 1}]), 204)
    assert stream.records(key="a") == [{"k": "a"}]
    assert stream.records() == [{"k": "a"}, {"n": 1}]


@pytest.mark.parametrize(
    ("pointer", "record"),
    [("/a~1b", {"a/b": "k"}), ("/m~0n", {"m~n": "k"}), ("/a/1", {"a": ["x", "k"]}), ("", "k"), ("/", {"": "k"})],
)
def test_the_pointer_is_that_of_rfc_6901(api: Api, pointer: str, record: object) -> None:
    stream = api.with_schema(schema={}, routingKey={"jsonPointer": pointer, "required": True})
    expect(stream.append([record]), 204)
    assert stream.records(key="k") == [record]


def test_a_routing_key_alone_can_be_set_and_removed(stream: Stream) -> None:
    expect(stream.append([{"k": "a", "n": 0}]), 204)
    answer = expect(stream.define(routingKey={"jsonPointer": "/k", "required": True}), 200).json()
    assert answer["routingKey"] == {"jsonPointer": "/k", "required": True}
    assert answer["currentVersion"] == 0
    expect(stream.append([{"k": "a", "n": 1}]), 204)
    assert "routingKey" not in expect(stream.define(routingKey=None), 200).json()
    expect(stream.append([{"k": "a", "n": 2}]), 204)
    expect(stream.append([{"n": 3}], {"Stream-Key": "a"}), 204)
    assert [record["n"] for record in stream.records(key="a")] == [1, 3]


@pytest.mark.sensitive("each process caches the definition")
def test_a_changed_routing_key_applies_to_new_records_only(api: Api) -> None:
    stream = api.with_schema(schema={}, routingKey={"jsonPointer": "/a", "required": True})
    expect(stream.append([{"a": "x", "b": "y"}]), 204)
    expect(stream.define(routingKey={"jsonPointer": "/b", "required": True}), 200)
    expect(stream.append([{"a": "x", "b": "z"}]), 204)
    assert stream.records(key="x") == [{"a": "x", "b": "y"}]
    assert stream.records(key="z") == [{"a": "x", "b": "z"}]
    assert stream.records(key="y") == []


def test_a_schema_update_keeps_the_routing_key(api: Api) -> None:
    one = {
        "type": "object",
        "properties": {"k": {"type": "string"}},
        "required": ["k"],
        "additionalProperties": False,
    }
    two = {**one, "properties": {**one["properties"], "n": {"type": "integer"}}}  # type: ignore[dict-item]
    stream = api.with_schema(schema=one, routingKey={"jsonPointer": "/k", "required": True})
    lens = {
        "apiVersion": "durable.lens/v1",
        "schema": stream.name,
        "from": 1,
        "to": 2,
        "ops": [{"op": "add", "path": "/n", "schema": {"type": "integer"}, "default": 0}],
    }
    answer = expect(stream.define(schema=two, lens=lens), 200).json()
    assert answer["routingKey"] == {"jsonPointer": "/k", "required": True}
