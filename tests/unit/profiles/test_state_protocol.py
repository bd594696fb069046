"""Records of the State Protocol: stored as given, or refused."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidRequest
from headrace.streams.profiles.state_protocol import StateProtocol
from tests.unit.profiles.json_values import VALUES, objects

PROFILE = StateProtocol.parse({"kind": "state-protocol"})


def change(operation: Any = "insert", **fields: Any) -> dict[str, Any]:
    return {"type": "posts", "key": "1", "value": {"id": 1}, "headers": {"operation": operation}, **fields}


ACCEPTED: list[dict[str, Any]] = [
    change(),
    change("update", old_value=None),
    {"type": "posts", "key": "1", "headers": {"operation": "delete"}},
    change(value=None),
    change(headers={"operation": "insert", "txid": "7", "timestamp": "2026-03-23T10:30:00.123456789+02:00"}),
    {"headers": {"control": "reset"}},
    {"headers": {"control": "snapshot-start", "offset": "-1"}},
    {"headers": {"control": "snapshot-end", "offset": "0000000000000000000G000000"}},
]


@pytest.mark.parametrize("record", ACCEPTED, ids=str)
def test_a_record_is_stored_as_given(record: dict[str, Any]) -> None:
    stored, key = PROFILE.normalize(record, 0)
    assert stored is record
    assert key is None


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ([], "must be JSON objects"),
        ({}, "headers must be an object"),
        ({"headers": {}}, "must contain operation or control"),
        ({"headers": {"operation": "insert", "control": "reset"}}, "cannot mix"),
        (change("upsert"), "operation must be insert, update, or delete"),
        (change(["insert"]), "operation must be insert, update, or delete"),
        (change(extra=1), "record.extra is not supported"),
        (change(headers={"operation": "insert", "by": "me"}), "headers.by is not supported"),
        (change(type=" "), "record.type"),
        (change(key=5), "record.key"),
        ({"type": "posts", "key": "1", "headers": {"operation": "update"}}, "update records must include value"),
        (change(headers={"operation": "insert", "txid": ""}), "txid"),
        (change(headers={"operation": "insert", "timestamp": "2026-03-23 10:30"}), "RFC 3339"),
        (change(headers={"operation": "insert", "timestamp": "2026-02-30T00:00:00Z"}), "RFC 3339"),
        (change(headers={"operation": "insert", "timestamp": "2026-02-03T00:00:00+24:00"}), "RFC 3339"),
        ({"headers": {"control": "stop"}}, "control must be"),
        ({"headers": {"control": "reset"}, "type": "posts"}, "record.type is not supported"),
        ({"headers": {"control": "reset", "offset": 3}}, "offset must be a valid stream offset"),
        ({"headers": {"control": "reset", "offset": "12"}}, "offset must be a valid stream offset"),
    ],
    ids=str,
)
def test_what_is_neither_change_nor_control_is_refused(record: Any, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        PROFILE.normalize(record, 0)


RECORDS = st.builds(
    lambda record, headers: {**record, "headers": headers},
    objects("type", "key", "value", "old_value"),
    objects("operation", "control", "txid", "timestamp", "offset"),
)


@given(VALUES | RECORDS)
def test_whatever_comes_it_is_accepted_as_it_is_or_refused(record: Any) -> None:
    with contextlib.suppress(InvalidRequest):
        assert PROFILE.normalize(record, 0)[0] is record
