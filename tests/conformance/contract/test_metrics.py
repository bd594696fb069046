"""The profile metrics: intervals in one canonical envelope, keyed by their series."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.contract.client import Api, Stream, expect, refused

INTERVAL: dict[str, Any] = {
    "metric": "append.bytes",
    "unit": "bytes",
    "windowStart": 1761396000000,
    "windowEnd": 1761396010000,
    "count": 4,
    "sum": 2048,
    "min": 128,
    "max": 1024,
    "buckets": {"128": 1, "512": 2, "1024": 1},
    "stream": "orders",
    "instance": "i-1",
    "tags": {"zone": "b", "env": "prod", "n": 7, "ok": True},
}
PAIRS = ["env=prod", "n=7", "ok=true", "zone=b"]
SERIES = "summary|delta|append.bytes|bytes|orders|i-1|" + "\0".join(PAIRS)


@pytest.fixture
def metrics(api: Api) -> Stream:
    stream = api.stream()
    expect(stream.set_profile("metrics"), 200)
    return stream


def test_an_interval_becomes_the_canonical_envelope(metrics: Stream) -> None:
    expect(metrics.append([INTERVAL]), 204)
    attributes = {"env": "prod", "n": "7", "ok": "true", "zone": "b"}
    histogram = {"128": 1, "512": 2, "1024": 1}
    assert metrics.records() == [
        {
            "apiVersion": "durable.streams/metrics/v1",
            "kind": "interval",
            "metric": "append.bytes",
            "unit": "bytes",
            "metricKind": "summary",
            "temporality": "delta",
            "windowStart": 1761396000000,
            "windowEnd": 1761396010000,
            "intervalMs": 10000,
            "instance": "i-1",
            "stream": "orders",
            "tags": attributes,
            "attributes": attributes,
            "dimensionPairs": PAIRS,
            "dimensionKey": "\0".join(PAIRS),
            "seriesKey": SERIES,
            "count": 4,
            "sum": 2048,
            "min": 128,
            "max": 1024,
            "avg": 512,
            "p50": 512,
            "p95": 1024,
            "p99": 1024,
            "buckets": histogram,
            "summary": {"count": 4, "sum": 2048, "min": 128, "max": 1024, "histogram": histogram},
        }
    ]


def test_a_short_interval_gets_defaults(metrics: Stream) -> None:
    short = {"metric": "m", "unit": "u", "windowStart": 1000, "windowEnd": 1000, "summary": {"count": 0, "sum": 0}}
    expect(metrics.append([short]), 204)
    (record,) = metrics.records()
    assert record["seriesKey"] == "summary|delta|m|u|||"
    assert (record["count"], record["sum"], record["min"], record["max"]) == (0, 0, None, None)
    assert (record["instance"], record["stream"], record["dimensionKey"], record["dimensionPairs"]) == (
        None,
        None,
        None,
        [],
    )
    assert record["intervalMs"] == 0


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "point"},
        {"metric": ""},
        {"metric": 7},
        {"unit": None},
        {"windowStart": None},
        {"windowStart": "soon"},
        {"windowEnd": 1},
        {"count": None},
        {"count": -1},
        {"sum": None},
    ],
)
def test_what_is_no_interval_is_refused(metrics: Stream, change: dict[str, Any]) -> None:
    refused(metrics.append([INTERVAL, {**INTERVAL, **change}]), 400)
    assert metrics.records() == []


@pytest.mark.parametrize("record", [1, "text", None])
def test_an_interval_is_an_object(metrics: Stream, record: object) -> None:
    refused(metrics.append([record]), 400)


def test_the_routing_key_is_the_series(metrics: Stream) -> None:
    expect(metrics.append([INTERVAL, {**INTERVAL, "instance": "i-2"}]), 204)
    assert [record["instance"] for record in metrics.records(key=SERIES)] == ["i-1"]


def test_installing_it_installs_schema_search_and_rollups(metrics: Stream) -> None:
    registry = metrics.registry().json()
    assert registry["currentVersion"] == 1
    assert registry["routingKey"] == {"jsonPointer": "/seriesKey", "required": True}
    assert registry["schemas"]["1"]["additionalProperties"] is False
    assert "seriesKey" in registry["schemas"]["1"]["required"]
    search = registry["search"]
    assert search["primaryTimestampField"] == "windowStart"
    assert {"metric", "unit", "stream", "instance", "seriesKey", "windowStart", "count", "sum"} <= set(
        search["fields"]
    )
    rollup = search["rollups"]["metrics"]
    assert rollup["timestampField"] == "windowStart"
    assert rollup["intervals"] == ["10s", "1m", "5m", "1h"]
    dimensions = ["metric", "unit", "stream", "instance", "dimensionKey", "metricKind", "temporality"]
    assert sorted(rollup["dimensions"]) == sorted(dimensions)
    assert rollup["measures"]["value"]["kind"] == "summary_parts"


def test_its_fields_can_be_filtered_at_once(metrics: Stream) -> None:
    expect(metrics.append([INTERVAL, {**INTERVAL, "metric": "read.bytes", "max": 5}]), 204)
    assert [record["metric"] for record in metrics.records(filter="metric:read.bytes max:<100")] == ["read.bytes"]
