"""Whatever an alarm or a widget names is written: by our code, as captured from an emulator, or by AWS, as documented."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest

from functions.metrics import (
    DIMENSION,
    NAMESPACE,
    REGISTRY,
    STACK_DIMENSION,
    ApiMetric,
    FolderMetric,
    Meter,
    RelayMetric,
    table,
)
from local.cloudwatch.__main__ import widgets_of
from local.cloudwatch.queries import Stat, alarms_of, stats_of
from local.cloudwatch.samples import Key, Lapse, of_emf
from local.template import read_template
from tests.observability.captures import STACK
from tests.observability.conftest import Staged
from tests.observability.stages import FAULTS, HEALTHY

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
REGISTERED = {(metrics.service, metric.name): metric for metrics in REGISTRY for metric in metrics}

# Names and dimensions of AWS, each from the page that defines them.
# https://docs.aws.amazon.com/lambda/latest/dg/monitoring-metrics-types.html
# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/metrics-dimensions.html
# https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-metrics.html
OF_AWS = {
    "AWS/Lambda": (
        {"Invocations", "Errors", "Throttles", "Duration", "ConcurrentExecutions", "IteratorAge", "Url5xxCount"},
        {"FunctionName"},
    ),
    "AWS/SQS": ({"ApproximateNumberOfMessagesVisible"}, {"QueueName"}),
    "AWS/DynamoDB": ({"ConsumedWriteCapacityUnits"}, {"TableName"}),
    "AWS/ApiGateway": ({"Count", "Latency", "5xx"}, {"ApiId"}),
}
STATISTIC = re.compile(r"Sum|Average|Maximum|Minimum|SampleCount|p\d{2}")


@cache
def _named() -> dict[Stat, str]:
    """Returns every statistic that an alarm or a widget names, with where."""
    template = read_template()
    queries = [(alarm.query, f"alarm {alarm.name}") for alarm in alarms_of(template, STACK)]
    queries += [(line.query, f"widget {w.title}") for w in widgets_of(template) for line in w.lines]
    return {stat: where for query, where in queries for stat in stats_of(query)}


def test_there_are_names_to_look_at() -> None:
    assert {stat.key.namespace for stat in _named()} == {NAMESPACE, *OF_AWS}
    assert all(STATISTIC.fullmatch(stat.statistic) for stat in _named())


@pytest.mark.parametrize("stat", [s for s in _named() if s.key.namespace != NAMESPACE], ids=lambda s: s.key.name)
def test_a_metric_of_aws_is_one(stat: Stat) -> None:
    names, dimensions = OF_AWS[stat.key.namespace]
    assert stat.key.name in names, _named()[stat]
    assert {name for name, _ in stat.key.dimensions} == dimensions, _named()[stat]


@pytest.mark.parametrize("stat", [s for s in _named() if s.key.namespace == NAMESPACE], ids=lambda s: s.key.name)
def test_a_metric_of_ours_is_registered_with_a_statistic_that_fits(stat: Stat) -> None:
    dimensions = dict(stat.key.dimensions)
    assert dimensions.keys() == {DIMENSION, STACK_DIMENSION}
    assert dimensions[STACK_DIMENSION] == STACK, "it would be that of every deployment in the account and region"
    service = dimensions[DIMENSION]
    kind = REGISTERED[service, stat.key.name].spec.kind
    assert (stat.statistic == "Sum") == (kind == "counter"), _named()[stat]


# Written by what no stage does; a counter without `zeros` is not written while nothing happens.
UNSTAGED = {
    *(
        ("sealer", name)
        for name in (
            *("DeadlinesMoved", "LogsExpired", "OrphansRemoved"),
            *("SealRacesLost", "StoreThrottles", "VerbFailures"),
        )
    ),
    *(
        ("indexer", name)
        for name in (
            *("GenerationsRemoved", "OrphansRemoved", "PoisonedLogs", "RunsRetired"),
            *("StoreThrottles", "VerbFailures"),
        )
    ),
    *(("api", name) for name in ("Lists", "Sockets", "SocketCommands")),
    *(("api", name) for name in ("Registrations", "Pushes", "PushedEvents", "PushMs")),
    *(("api", name) for name in ("FeatureReads", "FeatureRows", "FeatureReadMs")),
    *(("folder", metric.name) for metric in FolderMetric),
    *(
        ("relay", metric.name)
        for metric in set(RelayMetric)
        - {
            *(RelayMetric.StreamEvents, RelayMetric.RelayLagMs, RelayMetric.Sweeps),
            *(RelayMetric.Visits, RelayMetric.VisitsContinued),
        }
    ),
}
STALE = "stage the faults again: python -m tests.observability --capture"


def _captured(staged: Staged) -> dict[Key, set[str]]:
    """Returns every metric that any stage wrote, with its units."""
    captured: dict[Key, set[str]] = {}
    for name in (HEALTHY, *FAULTS):
        found = of_emf(staged(name).lines, Lapse(0))
        for key in found.keys:
            captured.setdefault(key, set()).update(found.units[key])
    return captured


def test_a_metric_of_ours_is_written_by_running_code(staged: Staged) -> None:
    captured = _captured(staged)
    wanted = {stat.key: where for stat, where in _named().items() if stat.key.namespace == NAMESPACE}
    unstaged = {Key(NAMESPACE, name, ((DIMENSION, of), (STACK_DIMENSION, STACK))) for of, name in UNSTAGED}
    assert {f"{key.name} of {where}" for key, where in wanted.items() if key not in {*captured, *unstaged}} == set()


def test_captures_have_the_metrics_of_the_registry_with_their_units(staged: Staged) -> None:
    units = {
        Key(NAMESPACE, metric.name, ((DIMENSION, of), (STACK_DIMENSION, STACK))): metric.spec.unit
        for (of, _), metric in REGISTERED.items()
    }
    captured = _captured(staged)
    assert captured == {key: {units.get(key)} for key in captured}, STALE
    missing = {(dict(key.dimensions)[DIMENSION], key.name) for key in units.keys() - captured.keys()}
    assert missing == UNSTAGED, STALE


def test_captured_lines_have_the_shape_of_what_the_meter_writes_now(staged: Staged) -> None:
    lines: list[str] = []
    meter = Meter(ApiMetric, lines.append, stack=STACK)
    meter.add(ApiMetric.Requests)
    meter.flush()
    written = _shape(lines[0])
    assert {_shape(line) for name in (HEALTHY, *FAULTS) for line in staged(name).lines} == {written}, STALE


def _shape(line: str) -> str:
    """Returns the names and types of a line, its metrics aside."""
    document = json.loads(line)
    (directive,) = document["_aws"]["CloudWatchMetrics"]
    metrics = [document.pop(metric["Name"]) for metric in directive["Metrics"]]
    kinds = {
        (metric.keys() == directive["Metrics"][0].keys(), type(values).__name__, type(values[0]).__name__)
        for metric, values in zip(directive["Metrics"], metrics, strict=True)
    }
    directive["Metrics"] = sorted(directive["Metrics"][0])
    document["_aws"]["Timestamp"] = type(document["_aws"]["Timestamp"]).__name__
    document[DIMENSION] = type(document[DIMENSION]).__name__
    return json.dumps([document, sorted(kinds)], sort_keys=True)


def test_what_an_invocation_writes_is_one_line(staged: Staged) -> None:
    lines = [json.loads(line) for line in staged(HEALTHY).lines]
    requests = [line["Requests"] for line in lines if "Requests" in line]
    ticks = [line["Ticks"] for line in lines if "Ticks" in line]
    assert len(requests) > 100 and len(ticks) > 10
    assert all(len(line["_aws"]["CloudWatchMetrics"]) == 1 for line in lines)


def test_every_alarm_leads_to_its_section_in_the_runbook() -> None:
    anchors = set(re.findall(r'<a id="([\w-]+)"></a>', OPERATIONS.read_text()))
    wanted = set()
    for alarm in alarms_of(read_template(), STACK):
        path, _, anchor = alarm.description.rpartition(" ")[2].partition("#")
        assert path == "docs/operations.md", alarm.name
        wanted.add(anchor)
    assert wanted == anchors


def test_the_documented_table_is_the_registry() -> None:
    assert table() in OPERATIONS.read_text(), "write it again: python -m functions.metrics"
