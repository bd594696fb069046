"""Intervals to the canonical record. The expected records are what the Prisma Streams server (0.1.11) stored."""

from __future__ import annotations

import contextlib
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given

from headrace.errors import InvalidRequest
from headrace.streams.profiles.metrics import Metrics, registry, system_registry
from tests.unit.profiles.json_values import VALUES, objects

PROFILE = Metrics.parse({"kind": "metrics"})
CANONICAL = jsonschema_rs.validator_for(registry()["schema"])
LEAST = {"metric": "m", "unit": "ms", "windowStart": 0, "windowEnd": 10, "count": 0, "sum": 0}


def interval(**fields: Any) -> dict[str, Any]:
    return PROFILE.normalize({**LEAST, **fields}, 0)[0]


def test_the_whole_record() -> None:
    normal, key = PROFILE.normalize(
        {
            "metric": " latency ",
            "unit": "ms",
            "windowStart": 0,
            "windowEnd": 10,
            "count": 3,
            "sum": 9,
            "instance": "i",
            "tags": {"b": 1, "a": "x", "c": True, "d": None, "e": 1e21, "f": 0.1},
            "buckets": {"1": 2, "4": 1},
        },
        0,
    )
    tags = {"a": "x", "b": "1", "c": "true", "e": "1e+21", "f": "0.1"}
    pairs = ["a=x", "b=1", "c=true", "e=1e+21", "f=0.1"]
    assert normal == {
        "apiVersion": "durable.streams/metrics/v1",
        "kind": "interval",
        "metric": "latency",
        "unit": "ms",
        "metricKind": "summary",
        "temporality": "delta",
        "windowStart": 0,
        "windowEnd": 10,
        "intervalMs": 10,
        "instance": "i",
        "stream": None,
        "tags": tags,
        "attributes": tags,
        "dimensionPairs": pairs,
        "dimensionKey": "\0".join(pairs),
        "seriesKey": "summary|delta|latency|ms||i|" + "\0".join(pairs),
        "count": 3,
        "sum": 9,
        "min": 0,
        "max": 0,
        "avg": 3.0,
        "p50": 1,
        "p95": 4,
        "p99": 4,
        "buckets": {"1": 2, "4": 1},
        "summary": {"count": 3, "sum": 9, "min": 0, "max": 0, "histogram": {"1": 2, "4": 1}},
    }
    assert list(normal["tags"]) == sorted(tags)
    assert key == normal["seriesKey"]
    assert set(normal) == set(registry()["schema"]["properties"])


def test_the_summary_may_stand_below_or_above() -> None:
    below = {name: value for name, value in LEAST.items() if name not in ("count", "sum")}
    summary = {"count": 2, "sum": 5, "min": 1, "max": 4, "histogram": {"2": 5, "x": 1, "3": -1}}
    normal = PROFILE.normalize({**below, "summary": summary}, 0)[0]
    assert normal["count"] == 2
    assert normal["buckets"] == {"2": 5, "x": 1}
    assert normal["summary"] == {**summary, "histogram": {"2": 5, "x": 1}}
    assert normal["p50"] == 2
    assert interval(count=7, summary=summary)["count"] == 7


def test_an_empty_interval_has_no_extremes_and_no_average() -> None:
    normal = interval(min=3, max=4)
    assert (normal["min"], normal["max"], normal["avg"], normal["p50"]) == (None, None, 0, 0)


def test_what_is_given_is_not_computed() -> None:
    normal = interval(count=2, sum=5, avg="2", p50=7, intervalMs=3, windowEnd=7.9)
    assert (normal["avg"], normal["p50"], normal["intervalMs"], normal["windowEnd"]) == (2, 7, 3, 7)


def test_a_percentile_is_the_first_bucket_that_reaches_its_share() -> None:
    normal = interval(count=4, buckets={"10": 1, "2": 1, "x": 5})
    assert (normal["p50"], normal["p95"], normal["p99"]) == (2, 10, 10)


def test_a_window_may_be_a_moment() -> None:
    assert interval(windowStart=10)["intervalMs"] == 0


def test_series_are_told_apart_by_every_part_but_the_window() -> None:
    plain = interval()["seriesKey"]
    assert plain == "summary|delta|m|ms|||"
    assert interval(windowEnd=99, count=5, sum=1)["seriesKey"] == plain
    others = [
        interval(**{name: "o"})["seriesKey"]
        for name in ("metric", "unit", "stream", "instance", "metricKind", "temporality")
    ]
    assert len({plain, *others, interval(tags={"k": "v"})["seriesKey"]}) == 8


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"kind": "event"}, "kind must be interval"),
        ({"metric": " "}, "metrics record.metric"),
        ({"unit": None}, "metrics record.unit"),
        ({"windowStart": "soon"}, "windowStart and windowEnd must be integers"),
        ({"windowEnd": -1}, "windowEnd must be >= windowStart"),
        ({"intervalMs": -1}, "intervalMs must be >= 0"),
        ({"count": -1}, "requires count"),
        ({"count": None}, "requires count"),
        ({"sum": "x"}, "requires sum"),
        ({"sum": 10**400}, "requires sum"),
        ({"count": 1e-300, "sum": 1e300}, "no finite average"),
    ],
    ids=str,
)
def test_what_is_no_interval_is_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        interval(**fields)


FIELDS = (*registry()["schema"]["properties"], "histogram")


@given(objects(*FIELDS))
def test_every_interval_fits_the_canonical_schema_and_stays_as_it_is(document: dict[str, Any]) -> None:
    given_record = {**document, **{name: value for name, value in LEAST.items() if name not in document}}
    try:
        normal, key = PROFILE.normalize(given_record, 0)
    except InvalidRequest:
        return
    assert CANONICAL.is_valid(normal)
    assert PROFILE.normalize(normal, 1) == (normal, key)


@given(VALUES | objects(*FIELDS))
def test_whatever_comes_it_is_normalised_or_refused(document: Any) -> None:
    with contextlib.suppress(InvalidRequest):
        PROFILE.normalize(document, 0)


def test_the_registry() -> None:
    full = registry()
    assert full["routingKey"] == {"jsonPointer": "/seriesKey", "required": True}
    rollup = full["search"]["rollups"]["metrics"]
    assert rollup["timestampField"] == "windowStart"
    assert rollup["dimensions"] == [
        *("metric", "unit", "stream", "instance", "dimensionKey", "metricKind", "temporality")
    ]
    assert rollup["intervals"] == ["10s", "1m", "5m", "1h"]
    assert rollup["measures"]["value"]["kind"] == "summary_parts"
    aggregatable = {name for name, field in full["search"]["fields"].items() if field.get("aggregatable")}
    assert set(rollup["dimensions"]) <= aggregatable
    assert system_registry() == {"schema": full["schema"]}
    assert PROFILE.families == ("mblk",)
