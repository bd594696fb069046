"""Names that the server keeps for itself."""

from __future__ import annotations

import pytest

from tests.conformance.contract.client import Api, Stream, eventually, expect, refused

pytestmark = pytest.mark.sensitive("each process writes its own metrics")


@pytest.fixture(scope="session")
def system(api: Api) -> Stream:
    """Returns the stream of the server's own metrics, which is there soon after it has worked."""
    stream = Stream(api, "__stream_metrics__")
    expect(api.stream().append([1]), 204)
    eventually(stream.profile, lambda answer: answer.is_success and "metrics" in answer.text, within_s=20)
    return stream


def test_the_stream_of_metrics_has_the_profile_metrics(system: Stream) -> None:
    assert expect(system.profile(), 200).json()["profile"] == {"kind": "metrics"}


def test_it_has_a_schema_but_neither_routing_key_nor_search(system: Stream) -> None:
    registry = expect(system.registry(), 200).json()
    assert registry["currentVersion"] == 1
    assert "seriesKey" in registry["schemas"]["1"]["required"]
    assert "routingKey" not in registry
    assert "search" not in registry


def test_it_builds_no_indexes(system: Stream) -> None:
    status = expect(system.index_status(), 200).json()
    assert status["routing_key_index"]["configured"] is False
    assert status["routing_key_lexicon"]["configured"] is False
    assert status["exact_indexes"] == []
    assert status["search_families"] == []
    assert status["bundled_companions"]["object_count"] == 0
    refused(system.read(filter="metric:x"), 400)


def test_it_holds_canonical_intervals(system: Stream) -> None:
    records = eventually(system.records, bool, within_s=20)
    for record in records:
        assert record["apiVersion"] == "durable.streams/metrics/v1"
        assert record["kind"] == "interval"
        assert record["windowEnd"] >= record["windowStart"]
        assert record["seriesKey"].startswith(
            "|".join((record["metricKind"], record["temporality"], record["metric"]))
        )


@pytest.mark.parametrize("name", ["__registry__", "__stream_stats__"])
def test_other_names_are_reserved(api: Api, name: str) -> None:
    stream = Stream(api, name)
    refused(stream.put(), 400)
    assert stream.read().status_code in (400, 404)
