"""Valid documents to edit, and the words and keys that edits put into them."""

from __future__ import annotations

from typing import Any

from tests.unit.search.samples import SEARCH as _ALL_KINDS
from tests.unit.search.samples import field

_ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, 2, -1, 0.5, 1.0, 2**53, 2**53 + 1, -(2**70), 1e300, "", " ", "a", "é", "😀", "/a", "a/b",
    "~", "/~0", "/a/0", "\x00", "\u2028", "true", "2026-01-01T00:00:00Z", [], {}, [None], {"a": 1}, [[1]], {"": {}},
)  # fmt: skip
_TYPES = ("string", "number", "integer", "boolean", "null", "object", "array")

RECORD_KEYS = (
    "a", "b", "n", "at", "id", "key", "tags", "context", "timestamp", "level", "status", "duration", "service", "message",
    "requestId", "traceId", "spanId", "traceparent", "headers", "password", "Token", "why", "sampling", "redaction",
    "kind", "metric", "unit", "windowStart", "windowEnd", "count", "sum", "min", "max", "buckets", "summary", "histogram",
    "attributes", "instance", "stream", "metricKind", "temporality", "type", "value", "oldValue", "operation", "txid",
    "control", "offset", "", "__proto__",
)  # fmt: skip
RECORDS: tuple[Any, ...] = (
    None,
    [[1], {"a": 1}],
    {"id": 1, "at": "2026-01-01T00:00:00Z", "name": "Ann", "key": "k", "a": {"b": ["x", ["y"]]}},
    {"id": "1", "at": 5, "name": None, "key": "", "a": 1},
    {"at": [1, [2, [None]]], "name": ["a b", 5], "n": 2**53 + 1, "cost": -0.0},
)

# Schema updates.

SCHEMA_KEYS = (
    "schema", "lens", "routingKey", "search", "apiVersion", "jsonPointer", "required", "type", "properties", "items",
    "additionalProperties", "patternProperties", "enum", "const", "allOf", "anyOf", "oneOf", "not", "if", "then", "else",
    "definitions", "$ref", "$id", "$schema", "minimum", "maximum", "multipleOf", "minLength", "maxLength", "pattern",
    "format", "minItems", "uniqueItems", "contains", "dependencies", "propertyNames", "id", "at", "key", "a", "",
)  # fmt: skip
SCHEMA_WORDS: tuple[Any, ...] = (
    *_ODD, *_TYPES, "#", "#/definitions/d", "#/definitions/missing", "http://x.example/s", "date-time", "email", "^a+$",
    "(", "(a+)+$", {"$ref": "#"}, {"type": "object"}, {"type": list(_TYPES)}, {"not": {}}, True, {"enum": []}, "/key",
    "durable.streams/schema-registry/v1", {"apiVersion": "durable.lens/v1"}, {"jsonPointer": "/a", "required": True},
)  # fmt: skip
_SMALL_SEARCH = {
    "primaryTimestampField": "at",
    "fields": {"at": field("date", "/at", "exact", "column"), "name": field("keyword", "/name", "exact")},
}
UPDATES: tuple[dict[str, Any], ...] = (
    {
        "apiVersion": "durable.streams/schema-registry/v1",
        "schema": {
            "type": "object",
            "required": ["id"],
            "properties": {
                "id": {"type": "integer", "minimum": 0},
                "at": {"type": "string", "format": "date-time"},
                "a": {"$ref": "#/definitions/d"},
                "tags": {"type": "array", "items": {"enum": ["x", "y"]}, "uniqueItems": True},
            },
            "definitions": {"d": {"anyOf": [{"type": "object"}, {"type": "null"}]}},
        },
        "routingKey": {"jsonPointer": "/key", "required": False},
        "search": _SMALL_SEARCH,
    },
    {"routingKey": {"jsonPointer": "/a/b/0", "required": True}},
)

# Lenses.

OLD_RECORD: dict[str, Any] = {
    "n": 1,
    "who": "ann",
    "at": "2026-01-01T00:00:00Z",
    "tags": ["a", "b"],
    "place": {"city": "x", "zip": "1"},
    "lines": [{"sku": "s", "n": 1}],
    "x": 1,
}
OLD_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["n", "who", "at", "tags", "place", "lines"],
    "properties": {
        "n": {"type": "integer"},
        "who": {"type": "string"},
        "at": {"type": "string", "format": "date-time"},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "place": {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}},
        "lines": {
            "type": "array",
            "items": {"type": "object", "required": ["sku"], "properties": {"sku": {"type": "string"}}},
        },
    },
}
NEW_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": ["integer", "string"]},
        "m": {"type": ["integer", "string"]},
        "who": {"type": ["string", "array"]},
        "at": {"type": ["string", "integer"]},
        "tags": {"type": ["array", "string"]},
        "city": {"type": "string"},
        "place": {"type": "object"},
        "lines": {"type": "array", "items": {"type": "object"}},
        "level": {"type": "string", "default": "info"},
    },
}
_STRING = {"type": "string"}
_OPS: list[dict[str, Any]] = [
    {"op": "rename", "from": "/n", "to": "/m"},
    {"op": "copy", "from": "/who", "to": "/level"},
    {"op": "hoist", "host": "/place", "name": "city", "to": "/city", "removeFromHost": False},
    {"op": "plunge", "from": "/who", "host": "/person", "name": "name", "createHost": True},
    {"op": "head", "path": "/tags"},
    {"op": "convert", "path": "/at", "fromType": "string", "toType": "integer",
     "forward": {"builtin": "rfc3339_to_unix_millis"}, "backward": {"builtin": "unix_millis_to_rfc3339"}},
]  # fmt: skip
_MORE_OPS: list[dict[str, Any]] = [
    {"op": "add", "path": "/level", "schema": _STRING, "default": "info"},
    {"op": "remove", "path": "/at", "schema": _STRING},
    {"op": "wrap", "path": "/who", "mode": "singleton", "reverseMode": "first"},
    {"op": "in", "path": "/place", "ops": [{"op": "rename", "from": "/city", "to": "/town"}]},
    {"op": "map", "path": "/lines", "ops": [{"op": "add", "path": "/q", "schema": {"type": "integer"}, "default": 1}]},
    {"op": "convert", "path": "/n", "fromType": "integer", "toType": "string",
     "forward": {"map": {"1": "one"}, "default": "many"}, "backward": {"map": {"one": 1}, "default": 0}},
]  # fmt: skip
_LENS = {"apiVersion": "durable.lens/v1", "schema": "s", "from": 1, "to": 2, "description": "words"}
LENSES: tuple[dict[str, Any], ...] = ({**_LENS, "ops": _OPS}, {**_LENS, "ops": _MORE_OPS})
LENS_KEYS = (
    "op", "from", "to", "path", "schema", "default", "host", "name", "removeFromHost", "removeFromSource", "createHost",
    "mode", "reverseMode", "fromType", "toType", "forward", "backward", "map", "builtin", "ops", "apiVersion", "n", "m",
    "who", "at", "tags", "place", "lines", "city", "x",
)  # fmt: skip
LENS_WORDS: tuple[Any, ...] = (
    *_ODD, *_TYPES, "/n", "/m", "/who", "/at", "/tags", "/tags/0", "/place", "/place/city", "/lines", "/lines/0/sku",
    "/x", "/city", "/level", "/-", "lowercase", "uppercase", "string_to_int", "int_to_string", "rfc3339_to_unix_millis",
    "unix_millis_to_rfc3339", "singleton", "first", {"builtin": "lowercase"}, {"map": {"a": 1}, "default": None},
    *_OPS, *_MORE_OPS,
)  # fmt: skip

# Search configurations and queries.

SEARCH: dict[str, Any] = {
    **_ALL_KINDS,
    "profile": "evlog",
    "containsDefaultFields": ["message"],
    "fields": {
        **_ALL_KINDS["fields"],
        "moved": {
            "kind": "integer",
            "bindings": [{"version": 1, "jsonPointer": "/n"}, {"version": 2, "jsonPointer": "/a/b"}],
            "column": True,
            "aggregatable": True,
        },
    },
    "rollups": {
        "main": {
            "dimensions": ["service", "code"],
            "include": "has:status",
            "intervals": ["10s", "1m"],
            "measures": {
                "events": {"kind": "count", "include": "status:>=400"},
                "n": {"kind": "summary", "field": "moved", "histogram": "log2_v1"},
                "parts": {"kind": "summary_parts", "countJsonPointer": "/c", "sumJsonPointer": "/s",
                          "minJsonPointer": "/a", "maxJsonPointer": "/b"},
            },
        }
    },
}  # fmt: skip
SEARCH_KEYS = (
    "primaryTimestampField", "defaultFields", "containsDefaultFields", "aliases", "fields", "rollups", "profile", "kind",
    "bindings", "version", "jsonPointer", "normalizer", "analyzer", "exact", "prefix", "column", "exists", "sortable",
    "aggregatable", "contains", "positions", "field", "boost", "include", "dimensions", "intervals", "measures",
    "timestampField", "histogram", "at", "service", "status", "message", "has", "moved", "", "a b",
)  # fmt: skip
SEARCH_WORDS: tuple[Any, ...] = (
    *_ODD, "keyword", "text", "integer", "float", "date", "bool", "lowercase_v1", "identity_v1", "unicode_word_v1",
    "count", "summary", "summary_parts", "log2_v1", "1m", "0s", "1000000000ms", "at", "service", "status", "message",
    "moved", "code", "status:>1", "service:a*", 'message:"a b"', "nothing:1", "(", 1_000_000, 1_000_001, 3,
)  # fmt: skip
QUERY_PARTS = (
    "at", "service", "svc", "code", "path", "column.only", "seen", "status", "count", "cost", "paid", "message", "why",
    "nothing", ":", ":", ":", ":=", ":>", ":>=", ":<", ":<=", " ", " ", " AND ", " OR ", " NOT ", "-", "(", ")", '"', "\\",
    "*", "has:", "contains:", "a", "b c", "1", "-1", "1.5", "true", "2026-01-01", "9007199254740993", "é", "\u2028",
)  # fmt: skip
ORDERS: tuple[Any, ...] = (
    {"at": "2026-01-01T00:00:00Z", "service": "A", "code": "a", "status": 1, "cost": 1.5, "paid": True, "message": "a b c"},
    {"at": 1, "service": ["b c", None], "code": ["a", ["b"]], "status": ["1", 2**53 + 1], "cost": "-1", "paid": "false"},
    {"at": "soon", "service": 5, "status": None, "cost": {}, "message": ["é a", "1"], "why": "a", "c": "x", "seen": "y"},
    {},
    [1],
)  # fmt: skip

# Profiles and touch.

_TOUCH = {
    "enabled": True,
    "coarseIntervalMs": 100,
    "onMissingBefore": "coarse",
    "fineTokensPerSecond": 10,
    "memory": {"bucketMs": 100, "filterPow2": 22, "k": 4},
    "templates": {
        "defaultInactivityTtlMs": 1000,
        "maxActiveTemplatesPerStream": 3,
        "activationRateLimitPerMinute": 0,
    },
}
PROFILES: tuple[dict[str, Any], ...] = (
    {"apiVersion": "durable.streams/profile/v1", "profile": {"kind": "generic"}},
    {
        "profile": {
            "kind": "evlog",
            "redactKeys": ["password", "SSN"],
            "correlation": {
                "requestIdFields": ["context.id", "id"],
                "traceContextFields": ["a.traceId"],
                "parseTraceparent": True,
            },
            "observability": {"request": {"tracesStream": "traces"}},
        }
    },
    {"profile": {"kind": "evlog", "redactKeys": ["id"]}},
    {"profile": {"kind": "metrics"}},
    {
        "profile": {
            "kind": "otel-traces",
            "redactKeys": ["id"],
            "requestIdAttributes": ["rid"],
            "attributeLimits": {"maxAttributeValueBytes": 5, "maxAttributesPerSpan": 2, "maxEventsPerSpan": 1},
            "store": {
                "rawResourceAttributes": False,
                "rawSpanAttributes": False,
                "rawEvents": False,
                "rawLinks": False,
            },
            "dbStatementMode": "raw",
            "urlMode": "raw",
        }
    },
    {"profile": {"kind": "state-protocol", "touch": _TOUCH}},
)
PROFILE_KEYS = (
    "apiVersion", "profile", "kind", "redactKeys", "correlation", "requestIdFields", "traceContextFields",
    "parseTraceparent", "observability", "request", "tracesStream", "eventsStream", "requestIdAttributes", "store",
    "attributeLimits", "maxLinksPerSpan", "rawLinks", "dbStatementMode", "urlMode", "touch", *_TOUCH, *_TOUCH["memory"],
    *_TOUCH["templates"], "hotKeyTtlMs", "lagRecoverFineTouchesAtSourceOffsets", "gcIntervalMs", "",
)  # type: ignore[misc]  # fmt: skip
PROFILE_WORDS: tuple[Any, ...] = (
    *_ODD, "generic", "evlog", "metrics", "state-protocol", "otel-traces", "raw", "coarse", "skipBefore",
    "error", "interval", "INFO", "warn",
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "500", " 200.0 ", "1e400", 500, 1e308, "insert", "update",
    "delete", "snapshot-start", {"1": 2, "4": "x"}, {"operation": "insert"}, {"control": "reset"}, {"password": "p"},
    "durable.streams/profile/v1", ["a"] * 65, 10**400,
)  # fmt: skip
EVENTS: tuple[dict[str, Any], ...] = (
    {"timestamp": "2026-01-01T00:00:00Z", "level": "Warn", "service": "s", "status": "500", "duration": 1.5,
     "requestId": "r", "traceparent": "00-" + "4b" * 16 + "-" + "0f" * 8 + "-01",
     "context": {"password": "p", "list": [{"token": 1}]}, "other": {"a": 1}},
    {"kind": "interval", "metric": "m", "unit": "ms", "windowStart": 0, "windowEnd": 10, "count": 3, "sum": 6,
     "min": 1, "max": 3, "buckets": {"1": 2, "4": 1}, "tags": {"b": 1, "a": "x", "c": True, "d": None}, "stream": "s"},
    {"metric": "m", "unit": "ms", "windowStart": 5, "intervalMs": 5, "windowEnd": 10,
     "summary": {"count": 1, "sum": 2.5, "histogram": {"2": 1}}, "attributes": {"é": 1e21}, "metricKind": "gauge"},
    {"type": "t", "key": "1", "value": {"a": 1}, "oldValue": {"a": 2},
     "headers": {"operation": "update", "txid": "7", "timestamp": "2026-01-01T00:00:00Z"}},
    {"headers": {"control": "snapshot-start", "offset": "1"}},
    {"traceId": "5b" * 16, "spanId": "08" * 8, "parentSpanId": "", "name": "n", "kind": 2, "startUnixNano": "1000000",
     "endUnixNano": 2000000, "status": {"code": 2}, "resource": {"attributes": {"service.name": "s"}}, "requestId": "r",
     "attributes": {"rid": "r", "url.full": "http://a/b?c", "db.statement": "select", "a.token": {"b": [1]}, "d": "long"},
     "events": [{"name": "exception", "attributes": {"exception.type": "E"}}, {}], "links": [{"traceId": "5b" * 16}]},
)  # fmt: skip
_KEY = "00112233aabbccdd"
WAIT: dict[str, Any] = {
    "cursor": "0000000000000001:7",
    "timeoutMs": 1000,
    "keys": [_KEY, "orders"],
    "keyIds": [1, 2**32 - 1],
    "interestMode": "fine",
    "exact": False,
    "templateIdsUsed": [_KEY],
    "declareTemplates": [{"entity": "t", "fields": [{"name": "a", "encoding": "string"}]}],
    "inactivityTtlMs": 5000,
}
ACTIVATE: dict[str, Any] = {
    "templates": [
        {"entity": "t", "fields": [{"name": "b", "encoding": "int64"}, {"name": "a", "encoding": "string"}]},
        {"entity": "u", "fields": [{"name": "c", "encoding": "datetime"}]},
    ],
    "inactivityTtlMs": 60_000,
}
BOOK: dict[str, Any] = {
    "version": 1,
    "templates": [[5, "t", ["a"], ["string"], 3, 1_700_000_000_000, 1000]],
    "tokens": 1.5,
    "filled_ms": 1_700_000_000_000,
}
TOUCH_KEYS = (*WAIT, *ACTIVATE, *BOOK, "entity", "fields", "name", "encoding")
TOUCH_WORDS: tuple[Any, ...] = (
    *_ODD, _KEY, _KEY.upper(), "now", "0000000000000001:99999999999999999999", "coarse", "fine", "string", "int64", "bool",
    "datetime", "bytes", 2**32, 1e308, 10**400, "x" * 600, [_KEY] * 17, [_KEY], "t" * 512,
)  # fmt: skip

# Topics and queues.

WRITE: dict[str, Any] = {
    "records": [
        {"data": {"n": 1}, "tag": "a:1", "node": "w", "meta": {"k": "v"}},
        {"data": "text", "tag": None, "meta": None},
        {"data": 0.1},
    ],
    "node": "n",
    "idempotency_key": "k",
    "create": True,
    "config": {"cap_records": 5},
    "disable_backpressure": False,
}
CONFIG: dict[str, Any] = {
    "type": "queue",
    "ttl_ms": 60_000,
    "cap_records": 10,
    "cap_bytes": 1000,
    "discard": "reject",
    "durable": True,
    "durability": "fsync",
    "priority": 1,
    "auto_priority": False,
    "auto_create": False,
    "idempotency_window_ms": 1000,
    "dedupe_node": False,
    "lease_ms": 1000,
    "claim_jitter_ms": 5,
    "max_deliveries": 3,
    "dead_letter": "dead",
    "leases_durable": True,
}
ERASE: dict[str, Any] = {"before_seq": 5, "match": ["tag", "Glob", "a:*"]}
WATCH: dict[str, Any] = {
    "topics": {"a": {"from_seq": 5}, "b.c": {"tail": True}},
    "node": "n",
    "limit": 10,
    "max_batch_bytes": 1000,
    "heartbeat_ms": 2000,
    "include_meta": False,
    "include_tags": True,
    "include_data": False,
    "consistency": "strong",
}
DIFF: dict[str, Any] = {"from_seq": 1, "limit": 5, "node": ["n"], "wait_ms": 10, "max_batch_bytes": 100}
CLAIM: dict[str, Any] = {"node": "w", "max": 5, "lease_ms": 1000}
SETTLE: dict[str, Any] = {"node": "w", "seqs": [1, 2], "lease_ids": ["lease_1"], "delay_ms": 5, "lease_ms": 1000}
COMMANDS: tuple[dict[str, Any], ...] = (
    {
        "op": "subscribe", "request_id": "r1", "topic": "a", "topics": {"b": {"from_seq": 2}, "c": {"tail": True}},
        "from_seq": 3, "tail": False, "node": ["n"], "limit": 10, "max_batch_bytes": 100, "include_tags": True,
        "lenient": True,
    },
    {"op": "unsubscribe", "request_id": 2, "topic": "a", "topics": ["a", "b"]},
    {"op": "publish", "request_id": {"n": [1]}, "topic": "a", "return_seqs": False, **WRITE},
    {"op": "ping", "request_id": None},
)  # fmt: skip
_AT = 1_700_000_000_000
LEASE_EVENTS: tuple[dict[str, Any], ...] = (
    {"event": "claim", "at": _AT, "id": "c1", "node": "w", "until": _AT + 1000, "jobs": [0, 3, 5, 6], "gone": [3, 4]},
    {"event": "ack", "at": _AT + 1, "node": "w", "jobs": [0, 1]},
    {"event": "nack", "at": _AT + 2, "node": "w", "jobs": [1, 2], "ready_at": _AT + 500},
    {"event": "extend", "at": _AT + 3, "node": "w", "jobs": [2, 3], "until": _AT + 9000},
    {"event": "release", "at": _AT + 4, "node": "w", "connection": "", "jobs": [5, 6]},
    {"event": "dead", "at": _AT + 5, "jobs": [1, 2], "topic": "dead"},
    {"event": "remove", "at": _AT + 6, "jobs": [8, 9], "floor": 2},
    {"event": "join", "at": _AT + 7, "id": "j", "node": "v", "max": 2, "lease_ms": 10, "max_bytes": 9, "closes": _AT + 9},
    {
        "event": "deal", "at": _AT + 9, "closes": _AT + 9,
        "hands": [{"id": "j", "node": "v", "until": _AT + 99, "jobs": [9, 11], "connection": "c"}], "gone": [],
    },
    {
        "event": "configure", "at": _AT + 10, "lost": [2, 4],
        "timings": {"wait": [1, 5, 5, 5, {"4": 1}], "redelivered": 1, "dead": 2},
    },
)  # fmt: skip
TOPIC_KEYS = tuple(
    dict.fromkeys(
        key
        for document in (WRITE, WRITE["records"][0], CONFIG, WATCH, DIFF, CLAIM, SETTLE, *COMMANDS, *LEASE_EVENTS)
        for key in document
    )
)
TOPIC_WORDS: tuple[Any, ...] = (
    *_ODD, 2**63 - 1, 2**63, 10**25, 10**400, "n" * 129, "t" * 257, "k" * 257, "a*", "*", "tag", "Eq", "Glob", "log",
    "queue", "old", "reject", "disk", "fsync", "eventual", "strong", "subscribe", "publish", "ping", "\ud800",
    {str(key): key for key in range(65)}, {"data": 1}, [{"data": 1}] * 3, [0, 1], [3, 2], [4], [2**62, 2**63 - 1],
    ["tag", "Eq", "a"], _AT, _AT + 6000, {"m": "x" * 17_000},
)  # fmt: skip
