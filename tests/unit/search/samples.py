"""A configuration with a field of every kind and of every lack, and records for it."""

from __future__ import annotations

from typing import Any

from headrace.json import search_config


def field(kind: str, pointer: str, *capabilities: str, **more: str) -> dict[str, Any]:
    """Returns a field that is bound in version 1."""
    bindings = [{"version": 1, "jsonPointer": pointer}]
    return {"kind": kind, "bindings": bindings, **more, **dict.fromkeys(capabilities, True)}


SEARCH: dict[str, Any] = {
    "primaryTimestampField": "at",
    "aliases": {"svc": "service", "msg": "message"},
    "defaultFields": [{"field": "message", "boost": 2}, {"field": "service"}],
    "fields": {
        "at": field("date", "/at", "exact", "column", "exists", "sortable"),
        "service": field("keyword", "/service", "exact", "prefix", "exists", normalizer="lowercase_v1"),
        "code": field("keyword", "/code", "exact"),
        "path": field("keyword", "/path", "prefix"),
        "column.only": field("keyword", "/c", "column"),
        "seen": field("keyword", "/seen", "exists"),
        "nothing": field("keyword", "/nothing"),
        "status": field("integer", "/status", "exact", "column"),
        "count": field("integer", "/count", "exact"),
        "cost": field("float", "/cost", "column"),
        "paid": field("bool", "/paid", "exact", "column"),
        "message": field("text", "/message", "exists", "positions", analyzer="unicode_word_v1"),
        "why": field("text", "/why", analyzer="unicode_word_v1"),
    },
}
CONFIG = search_config.parse(SEARCH, 1)
