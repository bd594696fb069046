"""The profile `state_protocol`: changes of tables and control messages, stored unchanged. With `touch`, requests can
wait for a change.

A record has one of two forms:

change    {type, key, value, old_value?, headers: {operation, txid?, timestamp?}}
control   {headers: {control, offset?}}
"""

from __future__ import annotations

from typing import Any, ClassVar

from headrace.errors import InvalidRequest
from headrace.instants import is_date_time
from headrace.streams.profiles import strict
from headrace.streams.profiles.profile import Profile
from headrace.streams.profiles.touch.config import TouchConfig, parse_config
from headrace.wal.state import decode_cursor


class StateProtocol(Profile, frozen=True):
    """The profile of records of the State Protocol. A schema is optional, and the user provides it.

    It may be installed on a stream with records: earlier records that are no changes touch nothing.

    Attributes:
        config: the touch settings of the document; None if it has none.
    """

    kind: ClassVar[str] = "state-protocol"
    reads_records: ClassVar[bool] = True
    needs_json: ClassVar[bool] = True

    config: TouchConfig | None = None

    @staticmethod
    def parse(document: dict[str, Any]) -> StateProtocol:
        """Parses the profile document.

        Raises:
            InvalidRequest: there is an unknown option, or touch settings of the wrong form.
        """
        strict.only(document, ("kind", "touch"), "profile")
        return StateProtocol(parse_config(document["touch"]) if "touch" in document else None)

    @property
    def touch(self) -> TouchConfig | None:
        """The touch settings if they are enabled; else None."""
        return self.config if self.config is not None and self.config.enabled else None

    def document(self) -> dict[str, Any]:
        """Returns the document with every touch setting filled in."""
        return {"kind": self.kind, **({} if self.config is None else {"touch": self.config.document()})}

    def normalize(self, document: Any, now_ms: int) -> tuple[Any, str | None]:  # noqa: ARG002
        """Checks the record and returns it unchanged, without a routing key.

        Raises:
            InvalidRequest: the record is neither a change nor a control message.
        """
        _check(document)
        return document, None


OPERATIONS = ("insert", "update", "delete")
CONTROLS = ("snapshot-start", "snapshot-end", "reset")

_RECORD = "state-protocol record"
_HEADERS = f"{_RECORD}.headers"


def _check(record: Any) -> None:
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
            decode_cursor(headers["offset"])
        except InvalidRequest as exc:
            raise InvalidRequest(f"{_HEADERS}.offset must be a valid stream offset string") from exc
