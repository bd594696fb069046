"""The meter writes EMF, one line for an invocation, and calls nobody."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from functions.metrics import (
    DIMENSION,
    METRICS_FILE,
    NAMESPACE,
    REGISTRY,
    STACK_DIMENSION,
    ApiMetric,
    Meter,
    Metric,
    SealerMetric,
    make_meter,
)
from functions.worker import is_poison
from headrace.errors import Damaged, OutcomeUnknown, Overloaded, StoreThrottled, StoreTimeout


def test_a_flush_is_one_line_with_every_metric() -> None:
    lines: list[str] = []
    meter = Meter(ApiMetric, lines.append, stack="headrace-eu")
    meter.add(ApiMetric.Appends)
    meter.add(ApiMetric.Appends)
    meter.add(ApiMetric.AppendedBytes, 10)
    meter.add(ApiMetric.AppendMs, 7)
    meter.add(ApiMetric.AppendMs, 0)
    meter.flush()
    meter.flush()
    (line,) = lines
    document = json.loads(line)
    (directive,) = document["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == NAMESPACE and directive["Dimensions"] == [[STACK_DIMENSION, DIMENSION]]
    assert {metric["Name"]: metric["Unit"] for metric in directive["Metrics"]} == {
        "Appends": "Count",
        "AppendedBytes": "Bytes",
        "AppendMs": "Milliseconds",
    }
    assert (document[DIMENSION], document[STACK_DIMENSION]) == ("api", "headrace-eu")
    assert (document["Appends"], document["AppendedBytes"], document["AppendMs"]) == ([2], [10], [7, 0])


def test_a_line_says_what_it_is_told_beside_its_metrics() -> None:
    lines: list[str] = []
    meter = Meter(ApiMetric, lines.append)
    meter.fields = {"key_id": "2bb80d53"}
    meter.add(ApiMetric.Appends)
    meter.flush()
    document = json.loads(lines[0])
    assert document["key_id"] == "2bb80d53"
    (directive,) = document["_aws"]["CloudWatchMetrics"]
    assert [metric["Name"] for metric in directive["Metrics"]] == ["Appends"], "a metric of its own would be paid for"
    assert directive["Dimensions"] == [[STACK_DIMENSION, DIMENSION]]


def test_a_zero_is_written_only_where_an_alarm_needs_it() -> None:
    lines: list[str] = []
    meter = Meter(SealerMetric, lines.append)
    meter.add(SealerMetric.ItemsTrimmed, 0)
    meter.flush()
    assert lines == []
    meter.add(SealerMetric.StreamEvents, 0)
    meter.flush()
    assert json.loads(lines[0])["StreamEvents"] == [0]


def test_more_values_than_a_line_may_hold_go_into_further_lines() -> None:
    lines: list[str] = []
    meter = Meter(SealerMetric, lines.append)
    for value in range(250):
        meter.add(SealerMetric.SealLagMs, value)
    meter.add(SealerMetric.SegmentsSealed, 250)
    meter.flush()
    documents = [json.loads(line) for line in lines]
    assert [len(document["SealLagMs"]) for document in documents] == [100, 100, 50]
    assert sorted(value for document in documents for value in document["SealLagMs"]) == list(range(250))
    assert [document.get("SegmentsSealed") for document in documents] == [[250], None, None]


def test_threads_lose_no_count() -> None:
    lines: list[str] = []
    meter = Meter(ApiMetric, lines.append)

    def add() -> None:
        for _ in range(1000):
            meter.add(ApiMetric.Requests)

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    meter.flush()
    assert json.loads(lines[0])["Requests"] == [8000]


def test_only_lambda_prints_and_a_file_takes_whole_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "metrics.emf"
    for environment in ({}, {METRICS_FILE: str(path)}, {"AWS_LAMBDA_FUNCTION_NAME": "api"}):
        meter = make_meter(ApiMetric, environment)
        meter.add(ApiMetric.Requests)
        meter.flush()
    (printed,) = capsys.readouterr().out.splitlines()
    (kept,) = path.read_text().splitlines()
    assert json.loads(printed)["Requests"] == json.loads(kept)["Requests"] == [1]


@pytest.mark.parametrize("metrics", REGISTRY, ids=lambda metrics: metrics.service)
def test_every_metric_has_its_own_meaning_and_a_name_that_says_its_unit(metrics: type[Metric]) -> None:
    assert len({metric.spec.meaning for metric in metrics}) == len(list(metrics)) == len(metrics.__members__)
    for metric in metrics:
        assert metric.name.endswith("Ms") == (metric.spec.unit == "Milliseconds"), metric
        assert metric.name.endswith("Bytes") == (metric.spec.unit == "Bytes"), metric
        assert not metric.spec.zeros or metric.spec.kind == "counter", metric


@pytest.mark.parametrize(
    ("error", "poison"),
    [
        (Damaged("object=x"), True),
        (KeyError("kind"), True),
        (StoreTimeout("x"), False),
        (StoreThrottled("x"), False),
        (Overloaded("x"), False),
        (OutcomeUnknown(), False),
        (ClientError({"Error": {"Code": "Throttled"}}, "SendMessageBatch"), False),
        (ReadTimeoutError(endpoint_url="x"), False),
    ],
)
def test_poison_is_what_no_repeat_heals(error: Exception, poison: bool) -> None:
    assert is_poison(error) is poison
