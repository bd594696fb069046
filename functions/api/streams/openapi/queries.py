"""Paths of the OpenAPI document that ask what is in a stream: search, aggregates, routing keys."""

from __future__ import annotations

from functions.api.streams.openapi.words import (
    COMMON,
    COUNT,
    NAME,
    NUMBER,
    OFFSET,
    TEXT,
    Json,
    operation,
    parameter,
    query,
    response,
)

_SEARCH_BODY: Json = {
    "type": "object",
    "required": ["q"],
    "properties": {
        "q": TEXT,
        "size": {"type": "integer", "minimum": 1, "maximum": 500, "default": 50},
        "sort": {"type": "array", "items": TEXT},
        "search_after": {"type": ["array", "null"]},
        "timeout_ms": {"type": ["number", "null"], "minimum": 0},
        "explain": {"type": ["boolean", "null"]},
    },
}
SEARCH_RESULT: Json = {
    "type": "object",
    "required": [
        "stream",
        "snapshot_end_offset",
        "took_ms",
        "timed_out",
        "timeout_ms",
        "coverage",
        "total",
        "hits",
        "next_search_after",
    ],
    "properties": {
        "stream": TEXT,
        "snapshot_end_offset": OFFSET,
        "took_ms": COUNT,
        "timed_out": {"type": "boolean"},
        "timeout_ms": COUNT,
        "coverage": {"type": "object"},
        "total": {
            "type": "object",
            "required": ["value", "relation"],
            "properties": {"value": COUNT, "relation": {"enum": ["eq", "gte"]}},
        },
        "hits": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["offset", "score", "sort", "fields", "source"],
                "properties": {
                    "offset": OFFSET,
                    "score": {"type": "number"},
                    "sort": {"type": "array"},
                    "fields": {"type": "object"},
                    "source": {},
                },
            },
        },
        "next_search_after": {"type": ["array", "null"]},
        "explain": {"type": "object"},
    },
}
SEARCH_HEADERS: Json = {
    "search-timed-out": {"enum": ["true", "false"]},
    "search-timeout-ms": NUMBER,
    "search-took-ms": NUMBER,
    "search-total-relation": {"enum": ["eq", "gte"]},
    "search-coverage-complete": {"enum": ["true", "false"]},
    "search-indexed-segments": NUMBER,
    "search-indexed-segment-time-ms": NUMBER,
    "search-fts-section-get-ms": NUMBER,
    "search-fts-decode-ms": NUMBER,
    "search-fts-clause-estimate-ms": NUMBER,
    "search-scanned-segments": NUMBER,
    "search-scanned-segment-time-ms": NUMBER,
    "search-scanned-tail-docs": NUMBER,
    "search-scanned-tail-time-ms": NUMBER,
    "search-exact-candidate-time-ms": NUMBER,
    "search-index-families-used": TEXT,
}


def search() -> Json:
    """`…/_search`."""
    found = {"application/json": {"schema": {"$ref": "#/components/schemas/SearchResult"}}}
    answers: Json = {
        "200": response("What was found.", SEARCH_HEADERS, found),
        "408": response("The time was over: what was found until then, or an error.", SEARCH_HEADERS, found),
    }
    errors = (*COMMON, "413")
    return {
        "parameters": [parameter("name", "path", NAME, required=True)],
        "get": operation(
            "searchStream",
            "Records that a query matches.",
            answers,
            errors,
            parameters=[
                parameter("q", "query", TEXT, "The query (docs/search.md).", required=True),
                query("size", {"type": "integer", "minimum": 1, "maximum": 500, "default": 50}, "Hits wanted."),
                query("sort", TEXT, "`field:asc`, `offset:desc`, `_score:desc`, `_bm25:desc`; commas between."),
                query("search_after", TEXT, "`next_search_after` of the page before, as JSON."),
                query("timeout_ms", {"type": "integer", "minimum": 0}, "Never more than 3000."),
                query("explain", {"type": "string", "enum": ["true", "false"]}, "How it was answered."),
            ],
        ),
        "post": operation(
            "searchStreamByBody",
            "Records that a query matches.",
            answers,
            errors,
            requestBody={"required": True, "content": {"application/json": {"schema": _SEARCH_BODY}}},
        ),
    }


def aggregate() -> Json:
    """`…/_aggregate`."""
    time: Json = {"oneOf": [TEXT, {"type": "number"}]}
    names: Json = {"type": "array", "items": TEXT}
    asked: Json = {
        "type": "object",
        "required": ["rollup", "from", "to", "interval"],
        "properties": {
            "rollup": TEXT,
            "from": time,
            "to": time,
            "interval": TEXT,
            "q": {"type": ["string", "null"]},
            "group_by": names,
            "measures": {**names, "minItems": 1},
            "explain": {"type": ["boolean", "null"]},
        },
    }
    shown = {"application/json": {"schema": {"type": "object"}}}
    return {
        "parameters": [parameter("name", "path", NAME, required=True)],
        "post": operation(
            "aggregate",
            "The groups of a rollup over a window of time.",
            {"200": response("Buckets of groups, and how much of the stream they were made from.", content=shown)},
            (*COMMON, "408", "413", "429"),
            requestBody={"required": True, "content": {"application/json": {"schema": asked}}},
        ),
    }


def routing_keys() -> Json:
    """`…/_routing_keys`."""
    shown = {"application/json": {"schema": {"type": "object"}}}
    return {
        "parameters": [parameter("name", "path", NAME, required=True)],
        "get": operation(
            "listRoutingKeys",
            "Distinct routing keys in the order of their UTF-8 bytes.",
            {"200": response("A page.", content=shown)},
            (*COMMON, "408", "429"),
            parameters=[
                query("limit", {"type": "integer", "minimum": 1, "maximum": 500, "default": 100}),
                query("after", TEXT, "Only keys above this one."),
            ],
        ),
    }
