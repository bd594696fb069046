"""A stream of orders with a field of every kind, for what filters must find in it."""

from __future__ import annotations

from typing import Any

from tests.conformance.contract.client import Api, Stream, expect


def field(kind: str, pointer: str, *capabilities: str, **more: str) -> dict[str, Any]:
    """Returns a search field that is bound in version 1."""
    bindings = [{"version": 1, "jsonPointer": pointer}]
    return {"kind": kind, "bindings": bindings, **dict.fromkeys(capabilities, True), **more}


SEARCH: dict[str, Any] = {
    "primaryTimestampField": "at",
    "aliases": {"svc": "service", "when": "at"},
    "defaultFields": [{"field": "note", "boost": 2}],
    "fields": {
        "at": field("date", "/at", "exact", "column", "exists", "sortable"),
        "service": field("keyword", "/service", "exact", "prefix", "exists", normalizer="lowercase_v1"),
        "code": field("keyword", "/code", "exact", "exists", "sortable"),
        "id": field("keyword", "/id", "exact"),
        "seen": field("keyword", "/seen", "exists"),
        "status": field("integer", "/status", "exact", "column", "exists", "sortable"),
        "cost": field("float", "/cost", "exact", "column", "exists", "aggregatable"),
        "count": field("integer", "/count", "exact", "exists"),
        "paid": field("bool", "/paid", "exact", "column", "exists"),
        "tag": field("keyword", "/tags", "exact", "exists"),
        "sku": field("keyword", "/lines", "exact", "exists"),
        "note": field("text", "/note", "exists", "positions", analyzer="unicode_word_v1"),
    },
}
SCHEMA: dict[str, Any] = {"type": "object"}

ORDERS: list[dict[str, Any]] = [
    {"id": "r0", "at": "2026-01-01T00:00:00.000Z", "service": "Billing", "code": "A1", "status": 200, "cost": 1.5,
     "paid": True, "note": "card accepted", "tags": ["red", "blue"], "count": 1},
    {"id": "r1", "at": "2026-01-01T00:00:01.000Z", "service": "billing", "code": "a1", "status": 404, "cost": -3,
     "paid": False, "note": "card declined", "tags": ["red"]},
    {"id": "r2", "at": "2026-01-01T00:00:02.500Z", "service": "search", "code": "B2", "status": 500, "cost": 0.25,
     "paid": True, "tags": []},
    {"id": "r3", "at": "2026-01-02T00:00:00.000Z", "service": "search api", "code": "x:y", "status": "503"},
    {"id": "r4", "at": 1767398400000, "service": None, "code": None, "status": None, "paid": "true", "note": None},
    {"id": "r5", "lines": [["s1", ["s2"]], "s3"], "seen": "yes", "code": "star*", "cost": "12.50"},
    {"id": "r6", "at": "not a time", "service": 7, "status": 1.5, "cost": "many", "paid": "maybe", "note": ["deep word"]},
    {"id": "r7", "service": "Été", "status": 9007199254740993, "code": 'quo"te\\back'},
]  # fmt: skip


def shop(api: Api) -> Stream:
    """Returns a stream of the orders: most in a segment, where segments are written, the last two in the tail."""
    stream = api.with_schema(schema=SCHEMA, search=SEARCH)
    expect(stream.append(ORDERS[:6]), 204)
    expect(stream.append([{"id": f"filler{n}"} for n in range(20)]), 204)
    stream.settle()
    expect(stream.append(ORDERS[6:]), 204)
    return stream


def found(stream: Stream, text: str) -> list[str]:
    """Ids of the orders that a filter finds, over all pages."""
    ids = [record["id"] for record in stream.records(filter=text)]
    return [id_ for id_ in ids if not id_.startswith("filler")]
