"""The profile `evlog`: one wide event per request, in a canonical envelope that is redacted before it is stored.

options   parses the profile document
envelope  converts an event of any shape to the canonical envelope

An evlog stream starts with version 1 of a schema that allows no other fields and requires each, and with its search
configuration. The names are those of the Prisma Streams server, so that its clients and screens find them.
"""

from __future__ import annotations

from typing import Any, ClassVar

from headrace.streams.profiles.evlog import envelope
from headrace.streams.profiles.evlog.envelope import FIELDS, LEVELS
from headrace.streams.profiles.evlog.options import Options, parse_options
from headrace.streams.profiles.fields import keyword, text, typed
from headrace.streams.profiles.profile import Profile


class Evlog(Profile, frozen=True):
    """The profile of events of requests. The routing key is the request id, or else the trace id."""

    kind: ClassVar[str] = "evlog"
    reads_records: ClassVar[bool] = True
    needs_json: ClassVar[bool] = True
    needs_empty: ClassVar[bool] = True

    options: Options = Options()

    @staticmethod
    def parse(document: dict[str, Any]) -> Evlog:
        """Parses the profile document.

        Raises:
            InvalidRequest: there is an unknown option, or one of the wrong form.
        """
        return Evlog(parse_options(document))

    def document(self) -> dict[str, Any]:
        """Returns the document with `redactKeys` in lower case."""
        return {"kind": self.kind, **self.options.document()}

    def registry(self) -> dict[str, Any]:
        """Returns the canonical schema with its search fields; the schema declares no routing key."""
        return registry()

    def normalize(self, document: Any, now_ms: int) -> tuple[dict[str, Any], str | None]:
        """Converts an event to the canonical envelope. The routing key is the request id, or else the trace id.

        Raises:
            InvalidRequest: the record is not an object, or is nested too deeply.
        """
        event = envelope.normalize(document, self.options, now_ms)
        return event, event["requestId"] or event["traceId"]

    def observability(self, stream: str) -> dict[str, Any] | None:
        """Returns the names of this stream and of the trace stream that the options declare; None if they declare
        none.
        """
        traces = self.options.traces_stream
        return {"request": {"events_stream": stream, "traces_stream": traces}} if traces is not None else None


_OPEN_OBJECT = {"type": "object", "additionalProperties": True}
_TYPES: dict[str, dict[str, Any]] = {
    "timestamp": {"type": "string"},
    "level": {"type": "string", "enum": list(LEVELS)},
    "status": {"type": ["integer", "null"]},
    "duration": {"type": ["number", "null"]},
    "sampling": {**_OPEN_OBJECT, "type": ["object", "null"]},
    "redaction": {
        "type": "object",
        "additionalProperties": False,
        "properties": {"keys": {"type": "array", "items": {"type": "string"}}},
        "required": ["keys"],
    },
    "context": _OPEN_OBJECT,
}
_NAMES = ("prefix", "sortable", "aggregatable")


def registry() -> dict[str, Any]:
    """Returns the schema update of an evlog stream, which the caller must not change."""
    return {"schema": _schema(), "search": _search()}


def _schema() -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {field: dict(_TYPES.get(field, {"type": ["string", "null"]})) for field in FIELDS},
        "required": list(FIELDS),
    }


def _search() -> dict[str, Any]:
    return {
        "profile": "evlog",
        "primaryTimestampField": "timestamp",
        "aliases": {
            "env": "environment",
            "msg": "message",
            "req": "requestId",
            "span": "spanId",
            "time": "timestamp",
            "trace": "traceId",
            "ts": "timestamp",
        },
        "defaultFields": [
            {"field": "message", "boost": 2},
            {"field": "why", "boost": 1.5},
            {"field": "fix", "boost": 1.25},
            {"field": "error.message", "boost": 2},
        ],
        "fields": {
            "timestamp": typed("date", "/timestamp", "aggregatable"),
            "level": keyword("/level", *_NAMES, lowercase=True),
            "service": keyword("/service", *_NAMES, lowercase=True),
            "environment": keyword("/environment", *_NAMES, lowercase=True),
            "requestId": keyword("/requestId", "prefix", "sortable"),
            "traceId": keyword("/traceId", "prefix", "sortable"),
            "spanId": keyword("/spanId", "prefix", "sortable"),
            "path": keyword("/path", *_NAMES),
            "method": keyword("/method", *_NAMES, lowercase=True),
            "status": typed("integer", "/status", "aggregatable"),
            "duration": typed("float", "/duration", "aggregatable"),
            "message": text("/message"),
            "why": text("/why"),
            "fix": text("/fix"),
            "error.message": text("/context/error/message"),
        },
    }
