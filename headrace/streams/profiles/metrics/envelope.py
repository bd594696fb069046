"""Converts a metric interval of any accepted shape to the canonical record. Normalising twice changes nothing.

`count`, `sum` and the histogram may be at the top or under `summary`; attributes may be called `tags`. Both places
are filled in the result. Keys and pairs are sorted by code point, which every language can do; the Prisma Streams
server sorts by locale, so a series whose attribute names mix case can have another key there.
"""

from __future__ import annotations

from typing import Any

from headrace.errors import InvalidRequest
from headrace.streams.profiles import strict
from headrace.streams.profiles.numbers import Number, is_finite, number_or_none, number_text

API_VERSION = "durable.streams/metrics/v1"

_SUMMARY_FIELDS = ("count", "sum", "min", "max")


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
    """Returns start, end and length of the interval in milliseconds; fractions are cut off."""
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
    """Returns those attributes whose value is a string, number or boolean, as text, sorted by key."""
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
    """Returns the buckets that are not empty; their names are numbers as text."""
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
