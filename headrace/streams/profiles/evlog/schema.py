"""The schema and search configuration with which an evlog stream starts: version 1, no other fields allowed, every
field required.

The names are those of the Prisma Streams server, so that its clients and screens find them.
"""

from __future__ import annotations

from typing import Any

from headrace.streams.profiles.evlog.envelope import FIELDS, LEVELS
from headrace.streams.profiles.fields import keyword, text, typed

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
