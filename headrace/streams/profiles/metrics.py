"""The profile `metrics`: the values of a series between two moments, as count, sum, extremes and histogram.

A metrics stream starts with version 1 of a schema that allows no other fields and requires each, and with its search
configuration and rollup. The names are those of the Prisma Streams server, so that its clients and screens find them.

An interval of any accepted shape becomes the canonical one; normalising twice changes nothing. `count`, `sum` and the
histogram may be at the top or under `summary`; attributes may be called `tags`. Both places are filled in the result.
Keys and pairs are sorted by code point, which every language can do; the Prisma Streams server sorts by locale, so a
series whose attribute names mix case can have another key there.
"""

from __future__ import annotations

from typing import Any, ClassVar

from headrace.errors import InvalidRequest
from headrace.streams.profiles import strict
from headrace.streams.profiles.numbers import Number, is_finite, number_or_none, number_text
from headrace.streams.profiles.profile import Profile, keyword, typed

API_VERSION = "durable.streams/metrics/v1"

_SUMMARY_FIELDS = ("count", "sum", "min", "max")


class Metrics(Profile, frozen=True):
    """The profile of intervals of metric series. The routing key is the series.

    Attributes:
        system: whether this is a stream of the server's own metrics, which has only the schema. With keys or search
            fields they would cause index jobs, which cost far more than the metrics, and cause metrics.
    """

    kind: ClassVar[str] = "metrics"
    reads_records: ClassVar[bool] = True
    needs_json: ClassVar[bool] = True
    needs_empty: ClassVar[bool] = True  # earlier records would not be intervals

    system: bool = False

    @property
    def families(self) -> tuple[str, ...]:
        """Index families in addition to those of the search configuration: metric intervals, or none at all."""
        return () if self.system else ("mblk",)

    @staticmethod
    def parse(document: dict[str, Any]) -> Metrics:
        """Parses the profile document, which has no options.

        Raises:
            InvalidRequest: the document has an option.
        """
        strict.only(document, ("kind",), "profile")
        return Metrics()

    def registry(self) -> dict[str, Any]:
        """Returns the schema update of a metrics stream: the canonical schema and, except for the system stream, routing
        key, search fields and rollup.
        """
        return system_registry() if self.system else registry()

    def normalize(self, document: Any, now_ms: int) -> tuple[dict[str, Any], str | None]:  # noqa: ARG002
        """Converts a record to the canonical interval. The routing key is its series; the system stream has none.

        Raises:
            InvalidRequest: the record is not an interval.
        """
        interval = normalize(document)
        return interval, None if self.system else interval["seriesKey"]


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
    """Returns the schema update of a user's metrics stream: schema, routing key, and search configuration with a rollup.
    The caller must not change it.
    """
    return {
        "schema": _schema(),
        "routingKey": {"jsonPointer": "/seriesKey", "required": True},
        "search": _search(),
    }


def system_registry() -> dict[str, Any]:
    """Returns the schema update of the server's own metrics stream: only the schema, nothing that would be indexed. The
    caller must not change it.
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


# Intervals.


def normalize(record: Any) -> dict[str, Any]:
    """Converts a record to the canonical interval.

    Raises:
        InvalidRequest: the record is not an object, has another `kind` than interval, lacks metric, unit, window, count
            or sum, has a window that ends before it starts, or has numbers whose average a double can't hold.
    """
    given = strict.as_object(record, "metrics record")
    if (strict.text_or_none(given.get("kind")) or "interval") != "interval":
        raise InvalidRequest("metrics record.kind must be interval")
    metric = strict.required_text(given.get("metric"), "metrics record.metric").strip()
    unit = strict.required_text(given.get("unit"), "metrics record.unit").strip()
    start, end, interval_ms = _window(given)
    kind = strict.text_or_none(given.get("metricKind")) or "summary"
    temporality = strict.text_or_none(given.get("temporality")) or "delta"
    instance, stream = strict.text_or_none(given.get("instance")), strict.text_or_none(given.get("stream"))
    attributes = _attributes(given)
    pairs = sorted(f"{key}={value}" for key, value in attributes.items())
    dimension_key = "\0".join(pairs) or None
    summary = _summary(given)
    histogram = summary["histogram"]
    return {
        "apiVersion": API_VERSION,
        "kind": "interval",
        "metric": metric,
        "unit": unit,
        "metricKind": kind,
        "temporality": temporality,
        "windowStart": start,
        "windowEnd": end,
        "intervalMs": interval_ms,
        "instance": instance,
        "stream": stream,
        "tags": attributes,
        "attributes": dict(attributes),
        "dimensionPairs": pairs,
        "dimensionKey": dimension_key,
        "seriesKey": "|".join((kind, temporality, metric, unit, stream or "", instance or "", dimension_key or "")),
        **{field: summary[field] for field in _SUMMARY_FIELDS},
        "avg": _average(given, summary),
        **{name: _percentile(given, name, share, histogram) for name, share in _PERCENTILES.items()},
        "buckets": dict(histogram),
        "summary": summary,
    }


_PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def _window(given: dict[str, Any]) -> tuple[int, int, int]:
    """Returns start, end and length of the interval in milliseconds; fractions are cut off. Raises InvalidRequest if start
    or end is missing, or a length is negative.
    """
    start, end = number_or_none(given.get("windowStart")), number_or_none(given.get("windowEnd"))
    if start is None or end is None:
        raise InvalidRequest("metrics record.windowStart and windowEnd must be integers")
    start, end = int(start), int(end)
    if end < start:
        raise InvalidRequest("metrics record.windowEnd must be >= windowStart")
    length = number_or_none(given.get("intervalMs"))
    interval_ms = end - start if length is None else int(length)
    if interval_ms < 0:
        raise InvalidRequest("metrics record.intervalMs must be >= 0")
    return start, end, interval_ms


def _attributes(given: dict[str, Any]) -> dict[str, str]:
    """Returns those attributes whose value is a string, number or boolean, as text, sorted by key; an empty dict if there
    are none.
    """
    attributes = given.get("attributes")
    if attributes is None:
        attributes = given.get("tags")
    if not isinstance(attributes, dict):
        return {}
    texts = ((key, _attribute_text(attributes[key])) for key in sorted(attributes))
    return {key: text for key, text in texts if text is not None}


def _attribute_text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    number = number_or_none(value)
    return None if number is None else number_text(number)


def _summary(given: dict[str, Any]) -> dict[str, Any]:
    nested = given.get("summary")
    if not isinstance(nested, dict):
        nested = {}

    def number(field: str) -> Number | None:
        top = number_or_none(given.get(field))
        return number_or_none(nested.get(field)) if top is None else top

    count, total = number("count"), number("sum")
    if count is None or count < 0:
        raise InvalidRequest("metrics interval requires count")
    if total is None:
        raise InvalidRequest("metrics interval requires sum")
    return {
        "count": count,
        "sum": total,
        "min": (number("min") or 0) if count else None,
        "max": (number("max") or 0) if count else None,
        "histogram": _histogram(given.get("buckets")) or _histogram(nested.get("histogram")),
    }


def _histogram(value: Any) -> dict[str, Number]:
    """Returns the buckets whose count is above 0, by name; an empty dict if `value` is not an object."""
    if not isinstance(value, dict):
        return {}
    counts = ((bucket, number_or_none(count)) for bucket, count in value.items())
    return {bucket: count for bucket, count in counts if count is not None and count > 0}


def _average(given: dict[str, Any], summary: dict[str, Any]) -> Number:
    average = number_or_none(given.get("avg"))
    if average is not None:
        return average
    if not summary["count"]:
        return 0
    computed = float(summary["sum"]) / float(summary["count"])
    if not is_finite(computed):
        raise InvalidRequest("metrics interval has no finite average")
    return computed


def _percentile(given: dict[str, Any], name: str, share: float, histogram: dict[str, Number]) -> Number:
    """Returns the given percentile; if none is given, the lowest bucket at which `share` of the counts is reached, or
    0.
    """
    value = number_or_none(given.get(name))
    if value is not None:
        return value
    buckets = sorted(
        (bound, float(count)) for text, count in histogram.items() if (bound := number_or_none(text)) is not None
    )
    threshold = sum(count for _, count in buckets) * share
    seen = 0.0
    for bound, count in buckets:
        seen += count
        if seen >= threshold:
            return bound
    return buckets[-1][0] if buckets else 0
