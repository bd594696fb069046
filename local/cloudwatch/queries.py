"""Evaluates a template's metrics, metric math (arithmetic, comparison, AND, OR, IF, FILL) and alarms over captured
samples.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from local.cloudwatch.samples import Key, Samples, Series

Json = Mapping[str, Any]


class Stat(NamedTuple):
    """A query for one statistic of one metric."""

    key: Key
    statistic: str
    period_s: int


class Math(NamedTuple):
    """A query for metric math over statistics, which all have the expression's period."""

    expression: str
    stats: tuple[tuple[str, Stat], ...]
    period_s: int


Query = Stat | Math


def stats_of(query: Query) -> Iterator[Stat]:
    """Yields every statistic that a query needs."""
    if isinstance(query, Stat):
        yield query
    else:
        yield from (stat for _, stat in query.stats)


def values(query: Query, samples: Samples, start_s: int, end_s: int, *, fills_empty: bool = True) -> Series:
    """Returns the value of a query for each period from `start_s` to `end_s` (exclusive) that has one. For
    `fills_empty` see `evaluate`.
    """
    if isinstance(query, Stat):
        return samples.series(query.key, query.statistic, query.period_s, start_s, end_s)
    periods = range(start_s, end_s, query.period_s)
    found = {
        name: samples.series(stat.key, stat.statistic, query.period_s, start_s, end_s) for name, stat in query.stats
    }
    return evaluate(query.expression, found, periods, fills_empty=fills_empty)


def dimensions(listed: Sequence[Json]) -> tuple[tuple[str, str], ...]:
    """Returns a metric's dimensions in the template as sorted pairs; a reference to a resource becomes its logical id."""
    return tuple(sorted((one["Name"], referred(one["Value"])) for one in listed))


def referred(value: Any) -> str:
    """Returns a literal, or the logical id of the resource that an intrinsic function refers to.

    Raises:
        ValueError: the value is neither.
    """
    match value:
        case str():
            return value
        case {"Ref": str() as name}:
            return name
        case {"Fn::GetAtt": [str() as name, *_]}:
            return name
    raise ValueError(f"no name of a resource: {value}")


Value = float | Series
_Operation = Callable[[float, float], float]

_BINARY: Mapping[type[ast.AST], _Operation] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.And: lambda one, other: float(bool(one) and bool(other)),
    ast.Or: lambda one, other: float(bool(one) or bool(other)),
}


class UnknownExpression(ValueError):
    """The expression has a function or an operator that this module does not evaluate."""


def evaluate(expression: str, metrics: Mapping[str, Series], periods: Sequence[int], *, fills_empty: bool) -> Series:
    """Evaluates metric math for each of `periods`; periods without a value are left out.

    Args:
        metrics: the values of each metric, by its name in the expression.
        fills_empty: whether FILL fills a metric that has no value in any of the periods.

    Raises:
        UnknownExpression: the expression has a function or an operator that this module does not evaluate.
    """
    text = re.sub(r"\bAND\b|&&", " and ", re.sub(r"\bOR\b|\|\|", " or ", expression))
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as exc:
        raise UnknownExpression(expression) from exc
    found = _Evaluation(metrics, periods, fills_empty).of(tree)
    return found if isinstance(found, dict) else dict.fromkeys(periods, found)


class _Evaluation:
    def __init__(self, metrics: Mapping[str, Series], periods: Sequence[int], fills_empty: bool) -> None:
        self._metrics = metrics
        self._periods = periods
        self._fills_empty = fills_empty

    def of(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=int() | float() as number):
                return float(number)
            case ast.Name(id=name) if name in self._metrics:
                return {at: value for at, value in self._metrics[name].items() if at in self._periods}
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return self._divide(self.of(left), self.of(right))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return _combine(_BINARY[type(op)], self.of(left), self.of(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _BINARY:
                return _combine(_BINARY[type(op)], self.of(left), self.of(right))
            case ast.BoolOp(op=op, values=values):
                found = self.of(values[0])
                for value in values[1:]:
                    found = _combine(_BINARY[type(op)], found, self.of(value))
                return found
            case ast.Call(func=ast.Name(id="FILL"), args=[ast.expr() as inner, ast.expr() as filling]):
                return self._fill(self.of(inner), self.of(filling))
            case ast.Call(
                func=ast.Name(id="IF"), args=[ast.expr() as condition, ast.expr() as yes, ast.expr() as no]
            ):
                return self._choose(self.of(condition), self.of(yes), self.of(no))
        raise UnknownExpression(ast.unparse(node))

    def _fill(self, series: Value, filling: Value) -> Value:
        if not isinstance(series, dict) or isinstance(filling, dict):
            raise UnknownExpression("FILL takes a series and a number")
        if not series and not self._fills_empty:
            return series
        return {at: series.get(at, filling) for at in self._periods}

    def _divide(self, one: Value, other: Value) -> Value:
        """Divides two values; the result of a division by zero is missing."""
        if isinstance(other, dict):
            other = {at: value for at, value in other.items() if value}
        elif not other:
            return {}
        return _combine(operator.truediv, one, other)

    def _choose(self, condition: Value, yes: Value, no: Value) -> Value:
        """Evaluates IF: chooses between two values; only the chosen one must be present."""
        if not isinstance(condition, dict):
            condition = dict.fromkeys(self._periods, condition)
        chosen = {at: yes if holds else no for at, holds in condition.items()}
        values = {at: value.get(at) if isinstance(value, dict) else value for at, value in chosen.items()}
        return {at: value for at, value in values.items() if value is not None}


def _combine(operation: _Operation, one: Value, other: Value) -> Value:
    if isinstance(one, dict) and isinstance(other, dict):
        return {at: float(operation(value, other[at])) for at, value in one.items() if at in other}
    if isinstance(one, dict):
        assert not isinstance(other, dict)
        return {at: float(operation(value, other)) for at, value in one.items()}
    if isinstance(other, dict):
        return {at: float(operation(one, value)) for at, value in other.items()}
    return float(operation(one, other))


State = Literal["OK", "ALARM", "INSUFFICIENT_DATA"]
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "GreaterThanOrEqualToThreshold": operator.ge,
    "GreaterThanThreshold": operator.gt,
    "LessThanThreshold": operator.lt,
    "LessThanOrEqualToThreshold": operator.le,
}


class Alarm(NamedTuple):
    """An alarm of the template: it is raised if in `datapoints` of the last `periods` periods the query's value
    compares with `threshold` as `comparison` says. `missing` says how periods without a value count. `name` lacks the
    stack's prefix.
    """

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
        """Returns the period of the alarm's query in seconds."""
        return self.query.period_s


def alarms_of(template: Mapping[str, Any], stack_name: str) -> list[Alarm]:
    """Returns all alarms of a template; the prefix `<stack_name>/` is removed from their names."""
    return [
        _alarm(part["Properties"], f"{stack_name}/")
        for part in template["Resources"].values()
        if part["Type"] == "AWS::CloudWatch::Alarm"
    ]


def state(alarm: Alarm, samples: Samples, now_s: int, *, fills_empty: bool = True) -> State:
    """Returns an alarm's state after the last whole period before `now_s`. For `fills_empty` see `evaluate`."""
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
    """Yields an alarm's state, with its time, at the end of each period after `start_s` (a multiple of the period), up to
    and including `end_s`. For `fills_empty` see `evaluate`.

    If missing data raises the alarm, the first `alarm.periods - 1` of these times are left out: their evaluation would
    begin before `start_s`, where nothing was captured.
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
