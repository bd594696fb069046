"""The schema, search configuration and rollup with which a metrics stream starts: version 1, no other fields allowed,
every field required.

The names are those of the Prisma Streams server, so that its clients and screens find them.
"""

from __future__ import annotations

from typing import Any

from headrace.streams.profiles.fields import keyword, typed
from headrace.streams.profiles.metrics.envelope import API_VERSION

_TEXT = {"type": "string"}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_INTEGER = {"type": "integer"}
_NUMBER = {"type": "number"}
_NUMBER_OR_NULL = {"type": ["number", "null"]}
_TEXT_MAP = {"type": "object", "additionalProperties": _TEXT}
_NUMBER_MAP = {"type": "object", "additionalProperties": _NUMBER}
_SUMMARY = {"count": _NUMBER, "sum": _NUMBER, "min": _NUMBER_OR_NULL, "max": _NUMBER_OR_NULL}

_NAMES = ("prefix", "sortable", "aggregatable")
_DIMENSIONS = ("metric", "unit", "stream", "instance", "dimensionKey", "metricKind", "temporality")


def registry() -> dict[str, Any]:
    """Returns the schema update of a user's metrics stream, which the caller must not change."""
    return {
        "schema": _schema(),
        "routingKey": {"jsonPointer": "/seriesKey", "required": True},
        "search": _search(),
    }


def system_registry() -> dict[str, Any]:
    """Returns the schema update of the server's own metrics stream, without anything that would be indexed. The caller
    must not change it.
    """
    return {"schema": _schema()}


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": list(properties),
    }


def _schema() -> dict[str, Any]:
    return _closed(
        {
            "apiVersion": {"type": "string", "const": API_VERSION},
            "kind": {"type": "string", "const": "interval"},
            **dict.fromkeys(("metric", "unit", "metricKind", "temporality"), _TEXT),
            **dict.fromkeys(("windowStart", "windowEnd", "intervalMs"), _INTEGER),
            **dict.fromkeys(("instance", "stream"), _TEXT_OR_NULL),
            **dict.fromkeys(("tags", "attributes"), _TEXT_MAP),
            "dimensionPairs": {"type": "array", "items": _TEXT},
            "dimensionKey": _TEXT_OR_NULL,
            "seriesKey": _TEXT,
            **_SUMMARY,
            **dict.fromkeys(("avg", "p50", "p95", "p99"), _NUMBER),
            "buckets": _NUMBER_MAP,
            "summary": _closed({**_SUMMARY, "histogram": _NUMBER_MAP}),
        }
    )


def _search() -> dict[str, Any]:
    return {
        "profile": "metrics",
        "primaryTimestampField": "windowStart",
        "aliases": {
            "ts": "windowStart",
            "time": "windowStart",
            "name": "metric",
            "dims": "dimensionKey",
            "series": "seriesKey",
        },
        "defaultFields": [
            {"field": "metric", "boost": 2},
            {"field": "stream", "boost": 1.25},
            {"field": "dimensionPairs", "boost": 1},
        ],
        "fields": {
            "windowStart": typed("date", "/windowStart", "aggregatable"),
            "windowEnd": typed("date", "/windowEnd"),
            "intervalMs": typed("integer", "/intervalMs", "aggregatable"),
            "metric": keyword("/metric", *_NAMES, lowercase=True),
            "unit": keyword("/unit", "prefix", "aggregatable", lowercase=True),
            "metricKind": keyword("/metricKind", "prefix", "aggregatable", lowercase=True),
            "temporality": keyword("/temporality", "prefix", "aggregatable", lowercase=True),
            "stream": keyword("/stream", *_NAMES, lowercase=True),
            "instance": keyword("/instance", *_NAMES),
            "seriesKey": keyword("/seriesKey", "sortable"),
            "dimensionKey": keyword("/dimensionKey", *_NAMES),
            "dimensionPairs": keyword("/dimensionPairs", "prefix"),
            "count": typed("integer", "/count", "aggregatable"),
            "sum": typed("float", "/sum", "aggregatable"),
            **{name: typed("float", f"/{name}") for name in ("min", "max", "avg", "p95", "p99")},
        },
        "rollups": {
            "metrics": {
                "timestampField": "windowStart",
                "dimensions": list(_DIMENSIONS),
                "intervals": ["10s", "1m", "5m", "1h"],
                "measures": {
                    "value": {
                        "kind": "summary_parts",
                        "countJsonPointer": "/count",
                        "sumJsonPointer": "/sum",
                        "minJsonPointer": "/min",
                        "maxJsonPointer": "/max",
                        "histogramJsonPointer": "/buckets",
                    }
                },
            }
        },
    }
