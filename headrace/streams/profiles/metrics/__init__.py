"""The profile `metrics`: the values of a series between two moments, as count, sum, extremes and histogram.

envelope  converts an interval of any accepted shape to the canonical one

A metrics stream starts with version 1 of a schema that allows no other fields and requires each, and with its search
configuration and rollup. The names are those of the Prisma Streams server, so that its clients and screens find them.
"""

from __future__ import annotations

from typing import Any, ClassVar

from headrace.streams.profiles import strict
from headrace.streams.profiles.fields import keyword, typed
from headrace.streams.profiles.metrics import envelope
from headrace.streams.profiles.metrics.envelope import API_VERSION
from headrace.streams.profiles.profile import Profile


class Metrics(Profile, frozen=True):
    """The profile of intervals of metric series. The routing key is the series.

    Attributes:
        system: whether this is the server's own stream, which has only the schema. With a routing key or search fields,
            the server's own metrics would cause index jobs, which cause metrics.
    """

    kind: ClassVar[str] = "metrics"
    reads_records: ClassVar[bool] = True
    needs_json: ClassVar[bool] = True
    needs_empty: ClassVar[bool] = True  # earlier records would not be intervals
    families: ClassVar[tuple[str, ...]] = ("mblk",)

    system: bool = False

    @staticmethod
    def parse(document: dict[str, Any]) -> Metrics:
        """Parses the profile document, which has no options.

        Raises:
            InvalidRequest: the document has an option.
        """
        strict.only(document, ("kind",), "profile")
        return Metrics()

    def registry(self) -> dict[str, Any]:
        """Returns the canonical schema, for all but the system stream with routing key, search fields and rollup."""
        return system_registry() if self.system else registry()

    def normalize(self, document: Any, now_ms: int) -> tuple[dict[str, Any], str | None]:  # noqa: ARG002
        """Converts a record to the canonical interval. The routing key is its series.

        Raises:
            InvalidRequest: the record is not an interval.
        """
        interval = envelope.normalize(document)
        return interval, interval["seriesKey"]


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
