"""Checks records of the State Protocol, which have one of two forms.

change    {type, key, value, old_value?, headers: {operation, txid?, timestamp?}}
control   {headers: {control, offset?}}
"""

from __future__ import annotations

from typing import Any

from headrace import offset
from headrace.errors import InvalidRequest
from headrace.instants import is_date_time
from headrace.streams.profiles import strict

OPERATIONS = ("insert", "update", "delete")
CONTROLS = ("snapshot-start", "snapshot-end", "reset")

_RECORD = "state-protocol record"
_HEADERS = f"{_RECORD}.headers"


def check(record: Any) -> None:
    """Checks that `record` is a change or a control message.

    Raises:
        InvalidRequest: it is neither; the message says what is wrong and where.
    """
    if not isinstance(record, dict):
        raise InvalidRequest("state-protocol records must be JSON objects")
    headers = strict.as_object(record.get("headers"), _HEADERS)
    if "control" in headers and "operation" in headers:
        raise InvalidRequest(f"{_HEADERS} cannot mix control and operation")
    if "control" in headers:
        _check_control(record, headers)
    elif "operation" in headers:
        _check_change(record, headers)
    else:
        raise InvalidRequest(f"{_HEADERS} must contain operation or control")


def _check_change(record: dict[str, Any], headers: dict[str, Any]) -> None:
    strict.only(record, ("type", "key", "value", "old_value", "headers"), _RECORD)
    strict.only(headers, ("operation", "txid", "timestamp"), _HEADERS)
    strict.required_text(record.get("type"), f"{_RECORD}.type")
    strict.required_text(record.get("key"), f"{_RECORD}.key")
    operation = headers["operation"]
    if operation not in OPERATIONS:
        raise InvalidRequest(f"{_HEADERS}.operation must be insert, update, or delete")
    if operation != "delete" and "value" not in record:
        raise InvalidRequest(f"state-protocol {operation} records must include value")
    if "txid" in headers:
        strict.required_text(headers["txid"], f"{_HEADERS}.txid")
    if "timestamp" in headers:
        timestamp = headers["timestamp"]
        if not isinstance(timestamp, str) or not is_date_time(timestamp):
            raise InvalidRequest(f"{_HEADERS}.timestamp must be a valid RFC 3339 timestamp")


def _check_control(record: dict[str, Any], headers: dict[str, Any]) -> None:
    strict.only(record, ("headers",), _RECORD)
    strict.only(headers, ("control", "offset"), _HEADERS)
    if headers["control"] not in CONTROLS:
        raise InvalidRequest(f"{_HEADERS}.control must be snapshot-start, snapshot-end, or reset")
    if "offset" in headers:
        try:
            if not isinstance(headers["offset"], str):
                raise InvalidRequest("not a string")
            offset.decode(headers["offset"])
        except InvalidRequest as exc:
            raise InvalidRequest(f"{_HEADERS}.offset must be a valid stream offset string") from exc
