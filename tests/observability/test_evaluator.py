"""Metric math and alarm states, by CloudWatch's rules."""

from __future__ import annotations

import json
from typing import Any

import pytest

from local.cloudwatch.queries import Alarm, Math, Stat, State, UnknownExpression, alarms_of, evaluate, state, states
from local.cloudwatch.samples import Key, Lapse, Samples, Series, first_ms, of_emf

PERIODS = (0, 60, 120)
KEY = Key("Headrace", "Appends", (("service", "api"),))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a+b", {0: 5.0}),
        ("a/b", {0: 1.5}),
        ("a/zero", {}),
        ("2*a-1", {0: 5.0, 60: 1.0}),
        ("a>=3 AND b<3", {0: 1.0}),
        ("a>100 || b>0", {0: 1.0}),
        ("a==1 && a==1", {0: 0.0, 60: 1.0}),
        ("FILL(a,0)", {0: 3.0, 60: 1.0, 120: 0.0}),
        ("FILL(a,0)+FILL(b,7)", {0: 5.0, 60: 8.0, 120: 7.0}),
        ("IF(a>=2,b,0)", {0: 2.0, 60: 0.0}),
        ("IF(FILL(a,0)==0,1,0)", {0: 0.0, 60: 0.0, 120: 1.0}),
        ("3", {0: 3.0, 60: 3.0, 120: 3.0}),
    ],
)
def test_metric_math(expression: str, expected: Series) -> None:
    metrics: dict[str, Series] = {"a": {0: 3.0, 60: 1.0}, "b": {0: 2.0}, "zero": {0: 0.0}}
    assert evaluate(expression, metrics, PERIODS, fills_empty=True) == expected


def test_fill_of_nothing_is_what_the_caller_says() -> None:
    assert evaluate("FILL(a,0)", {"a": {}}, PERIODS, fills_empty=True) == {0: 0.0, 60: 0.0, 120: 0.0}
    assert evaluate("FILL(a,0)", {"a": {}}, PERIODS, fills_empty=False) == {}


@pytest.mark.parametrize("expression", ["RATE(a)", "a.b", "missing", "a +", "__import__('os')", "FILL(1,0)"])
def test_what_is_not_known_is_refused(expression: str) -> None:
    with pytest.raises(UnknownExpression):
        evaluate(expression, {"a": {0: 1.0}}, PERIODS, fills_empty=True)


def samples(*values: tuple[float, float]) -> Samples:
    found = Samples()
    for at, value in values:
        found.add(KEY, at, value)
    return found


@pytest.mark.parametrize(
    ("statistic", "expected"),
    [
        ("Sum", 5050),
        ("Average", 50.5),
        ("Maximum", 100),
        ("Minimum", 1),
        ("SampleCount", 100),
        ("p50", 50),
        ("p99", 99),
    ],
)
def test_statistics_of_a_period(statistic: str, expected: float) -> None:
    found = samples(*((30, value) for value in range(1, 101)), (90, 7))
    assert found.series(KEY, statistic, 60, 0, 120) == {0: expected, 60: 1 if statistic == "SampleCount" else 7}


def alarm(comparison: str = "GreaterThanOrEqualToThreshold", **changes: Any) -> Alarm:
    given = {"datapoints": 2, "periods": 3, "missing": "notBreaching", **changes}
    return Alarm("a", "", Stat(KEY, "Sum", 60), comparison, 10.0, **given)


@pytest.mark.parametrize(
    ("values", "missing", "expected"),
    [
        ((10, 10, 0), "notBreaching", "ALARM"),
        ((10, 0, 10), "notBreaching", "ALARM"),
        ((9, 9, 10), "notBreaching", "OK"),
        ((10, None, None), "notBreaching", "OK"),
        ((10, None, None), "breaching", "ALARM"),
        ((None, None, None), "breaching", "ALARM"),
        ((None, None, None), "notBreaching", "OK"),
        ((None, None, None), "missing", "INSUFFICIENT_DATA"),
    ],
)
def test_so_many_of_so_many_periods(values: tuple[float | None, ...], missing: str, expected: State) -> None:
    found = samples(*((60 * n + 30, value) for n, value in enumerate(values) if value is not None))
    assert state(alarm(missing=missing), found, 185) == expected


def test_a_sum_below_its_threshold() -> None:
    silent = alarm("LessThanThreshold", datapoints=3, missing="breaching")
    assert state(silent, samples((30, 10)), 180) == "OK"
    assert state(silent, samples((30, 9)), 180) == "ALARM"


def test_the_period_under_way_is_not_looked_at() -> None:
    assert state(alarm(datapoints=1, periods=1), samples((130, 99)), 179) == "OK"
    assert state(alarm(datapoints=1, periods=1), samples((130, 99)), 180) == "ALARM"


def test_states_begin_where_data_can_be_missing_rightly() -> None:
    found = samples((30, 99), (90, 99), (150, 99), (210, 99))
    assert [at for at, _ in states(alarm(), found, 0, 240)] == [60, 120, 180, 240]
    assert [at for at, _ in states(alarm(missing="breaching"), found, 0, 240)] == [180, 240]


def test_an_alarm_is_read_as_the_template_states_it() -> None:
    stat = {"Metric": {"Namespace": "N", "MetricName": "M", "Dimensions": [{"Name": "q", "Value": {"Ref": "Q"}}]}}
    properties = {
        "AlarmName": "stack/name",
        "AlarmDescription": "",
        "ComparisonOperator": "LessThanThreshold",
        "EvaluationPeriods": 4,
        "Threshold": 1,
        "Metrics": [
            {"Id": "e", "Expression": "m*2", "ReturnData": True},
            {"Id": "m", "MetricStat": {**stat, "Period": 60, "Stat": "p99"}, "ReturnData": False},
        ],
    }
    template = {"Resources": {"A": {"Type": "AWS::CloudWatch::Alarm", "Properties": properties}}}
    (found,) = alarms_of(template, "stack")
    assert found.query == Math("m*2", (("m", Stat(Key("N", "M", (("q", "Q"),)), "p99", 60)),), 60)
    assert (found.name, found.datapoints, found.periods, found.missing) == ("name", 4, 4, "missing")


def test_a_lapse_stretches_times_and_ages_but_neither_counts_nor_latencies() -> None:
    def line(at_ms: int, service: str, **values: int) -> str:
        metrics = [{"Name": name, "Unit": "Count"} for name in values]
        directive = {"Namespace": "Headrace", "Dimensions": [["service"]], "Metrics": metrics}
        return json.dumps(
            {"_aws": {"Timestamp": at_ms, "CloudWatchMetrics": [directive]}, "service": service, **values}
        )

    lines = [line(5_000, "api", AppendMs=7, Appends=2), line(10_000, "sealer", SealLagMs=3)]
    found = of_emf(lines, Lapse(first_ms(lines), 60))

    def of(service: str, name: str) -> Series:
        return found.series(Key("Headrace", name, (("service", service),)), "Sum", 300, 0, 600)

    assert of("api", "AppendMs") == {0: 7.0}
    assert of("api", "Appends") == {0: 2.0}
    assert of("sealer", "SealLagMs") == {300: 180.0}
