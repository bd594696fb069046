"""Alarms of a template, and their states at a time.

As CloudWatch evaluates them, but for one thing: it looks a little further back when values are missing, here exactly the
evaluation periods count.
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from local.cloudwatch.queries import Math, Query, Stat, dimensions, values
from local.cloudwatch.samples import Key, Samples

State = Literal["OK", "ALARM", "INSUFFICIENT_DATA"]
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "GreaterThanOrEqualToThreshold": operator.ge,
    "GreaterThanThreshold": operator.gt,
    "LessThanThreshold": operator.lt,
    "LessThanOrEqualToThreshold": operator.le,
}


class Alarm(NamedTuple):
    """An alarm. `name` is its name in the account, without the stack's."""

    name: str
    description: str
    query: Query
    comparison: str
    threshold: float
    datapoints: int
    periods: int
    missing: str

    @property
    def period_s(self) -> int:
        """Returns the period of the query."""
        return self.query.period_s


def alarms_of(template: Mapping[str, Any], stack_name: str) -> list[Alarm]:
    """Returns every alarm of a template."""
    return [
        _alarm(part["Properties"], f"{stack_name}-")
        for part in template["Resources"].values()
        if part["Type"] == "AWS::CloudWatch::Alarm"
    ]


def state(alarm: Alarm, samples: Samples, now_s: int, *, fills_empty: bool = True) -> State:
    """Returns the state after the last whole period before `now_s`. `fills_empty` has the meaning that `evaluate`
    gives it.
    """
    end_s = now_s - now_s % alarm.period_s
    start_s = end_s - alarm.periods * alarm.period_s
    found = values(alarm.query, samples, start_s, end_s, fills_empty=fills_empty)
    if not found and alarm.missing == "missing":
        return "INSUFFICIENT_DATA"
    breaks = _COMPARISONS[alarm.comparison]
    breaching = sum(breaks(value, alarm.threshold) for value in found.values())
    if alarm.missing == "breaching":
        breaching += alarm.periods - len(found)
    return "ALARM" if breaching >= alarm.datapoints else "OK"


def states(
    alarm: Alarm, samples: Samples, start_s: int, end_s: int, *, fills_empty: bool = True
) -> Iterator[tuple[int, State]]:
    """Returns the state at the end of each period after `start_s`.

    Where missing data are bad, the first state has all its evaluation periods after `start_s`: nothing was captured
    before.
    """
    first = start_s + (alarm.periods if alarm.missing == "breaching" else 1) * alarm.period_s
    for now_s in range(first, end_s + 1, alarm.period_s):
        yield now_s, state(alarm, samples, now_s, fills_empty=fills_empty)


def _alarm(properties: Mapping[str, Any], prefix: str) -> Alarm:
    periods = int(properties["EvaluationPeriods"])
    return Alarm(
        name=str(properties["AlarmName"]).removeprefix(prefix),
        description=properties["AlarmDescription"],
        query=_query(properties),
        comparison=properties["ComparisonOperator"],
        threshold=float(properties["Threshold"]),
        datapoints=int(properties.get("DatapointsToAlarm", periods)),
        periods=periods,
        missing=properties.get("TreatMissingData", "missing"),
    )


def _query(properties: Mapping[str, Any]) -> Query:
    if "MetricName" in properties:
        statistic = properties.get("Statistic") or properties["ExtendedStatistic"]
        return _stat(properties, statistic, int(properties["Period"]))
    (result,) = (part for part in properties["Metrics"] if part.get("ReturnData", True))
    stats = tuple(
        (part["Id"], _of_part(part["MetricStat"])) for part in properties["Metrics"] if "MetricStat" in part
    )
    if "Expression" not in result:
        return _of_part(result["MetricStat"])
    (period_s,) = {stat.period_s for _, stat in stats}
    return Math(result["Expression"], stats, period_s)


def _of_part(part: Mapping[str, Any]) -> Stat:
    return _stat(part["Metric"], part["Stat"], int(part["Period"]))


def _stat(metric: Mapping[str, Any], statistic: str, period_s: int) -> Stat:
    key = Key(metric["Namespace"], metric["MetricName"], dimensions(metric.get("Dimensions", ())))
    return Stat(key, statistic, period_s)
