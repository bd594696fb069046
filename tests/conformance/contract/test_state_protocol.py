"""The profile state-protocol: change and control records, stored as they came."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.contract.client import ZERO, Api, Stream, expect, refused

INSERT: dict[str, Any] = {"type": "todos", "key": "1", "value": {"id": "1"}, "headers": {"operation": "insert"}}
RESET: dict[str, Any] = {"headers": {"control": "reset"}}


@pytest.fixture
def state(api: Api) -> Stream:
    stream = api.stream()
    expect(stream.set_profile("state-protocol"), 200)
    return stream


@pytest.mark.parametrize(
    "record",
    [
        INSERT,
        {**INSERT, "value": None},
        {**INSERT, "headers": {"operation": "insert", "txid": "7", "timestamp": "2026-03-23T10:30:00Z"}},
        {**INSERT, "old_value": {"id": "0"}, "headers": {"operation": "update"}},
        {"type": "todos", "key": "1", "headers": {"operation": "delete"}},
        {"type": "todos", "key": "1", "old_value": {"id": "1"}, "headers": {"operation": "delete"}},
        RESET,
        {"headers": {"control": "snapshot-start"}},
        {"headers": {"control": "snapshot-end", "offset": ZERO}},
    ],
)
def test_change_and_control_records_are_stored_as_they_came(state: Stream, record: dict[str, Any]) -> None:
    expect(state.append([record]), 204)
    assert state.records() == [record]


@pytest.mark.parametrize(
    "record",
    [
        {},
        7,
        "text",
        {"headers": 7},
        {"headers": {}},
        {**INSERT, "extra": 1},
        {**INSERT, "type": ""},
        {**INSERT, "type": None},
        {**INSERT, "key": ""},
        {**INSERT, "key": 1},
        {**INSERT, "headers": {"operation": "upsert"}},
        {**INSERT, "headers": {"operation": "insert", "extra": 1}},
        {**INSERT, "headers": {"operation": "insert", "txid": ""}},
        {**INSERT, "headers": {"operation": "insert", "timestamp": "yesterday"}},
        {**INSERT, "headers": {"operation": "insert", "control": "reset"}},
        {"type": "todos", "key": "1", "headers": {"operation": "insert"}},
        {"type": "todos", "key": "1", "headers": {"operation": "update"}},
        {"headers": {"control": "begin"}},
        {"headers": {"control": "reset", "offset": "first"}},
        {"headers": {"control": "reset", "extra": 1}},
        {**RESET, "type": "todos"},
    ],
)
def test_anything_else_is_refused_with_its_batch(state: Stream, record: object) -> None:
    refused(state.append([INSERT, record]), 400)
    assert state.records() == []


def test_the_text_of_a_record_survives(state: Stream) -> None:
    text = b'{"type":"t","key":"1","value":{"n":  9007199254740993},"headers":{"operation":"insert"}}'
    expect(state.append(b"[" + text + b"]"), 204)
    assert state.read(format="raw").content == text


def test_a_schema_is_optional_and_may_say_the_routing_key(state: Stream) -> None:
    expect(state.define(schema={"type": "object"}, routingKey={"jsonPointer": "/key", "required": False}), 200)
    expect(state.append([INSERT, {**INSERT, "key": "2"}]), 204)
    assert [record["key"] for record in state.records(key="2")] == ["2"]


def test_it_may_be_installed_after_data(stream: Stream) -> None:
    expect(stream.append([{"n": 1}]), 204)
    expect(stream.set_profile("state-protocol", touch={"enabled": True}), 200)
    expect(stream.append([INSERT]), 204)
    assert len(stream.records()) == 2
    expect(stream.touch_meta(), 200)


@pytest.mark.parametrize(
    "touch",
    [
        {"enabled": True, "unknown": 1},
        {"enabled": True, "onMissingBefore": "guess"},
        {"enabled": True, "memory": {"unknown": 1}},
        {"enabled": True, "memory": 7},
        {"enabled": True, "templates": {"unknown": 1}},
        {"enabled": True, "templates": {"maxActiveTemplatesPerEntity": 0}},
        {"enabled": True, "coarseIntervalMs": 0},
        {"enabled": True, "memory": {"bucketMs": 1.5}},
        7,
    ],
)
def test_a_malformed_touch_configuration_is_refused(stream: Stream, touch: object) -> None:
    refused(stream.set_profile("state-protocol", touch=touch), 400)
    assert stream.profile().json()["profile"] == {"kind": "generic"}


def test_the_touch_configuration_is_shown(stream: Stream) -> None:
    options = {"enabled": True, "onMissingBefore": "skipBefore", "templates": {"maxActiveTemplatesPerEntity": 7}}
    shown = expect(stream.set_profile("state-protocol", touch=options), 200).json()["profile"]
    assert shown == stream.profile().json()["profile"]
    assert shown["touch"]["enabled"] is True
    assert shown["touch"]["onMissingBefore"] == "skipBefore"
    assert shown["touch"]["templates"]["maxActiveTemplatesPerEntity"] == 7
