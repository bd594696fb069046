"""Metrics and expressions as a template states them, and their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from local.cloudwatch import expressions
from local.cloudwatch.samples import Key, Samples, Series

Json = Mapping[str, Any]


class Stat(NamedTuple):
    """A statistic of a metric."""

    key: Key
    statistic: str
    period_s: int


class Math(NamedTuple):
    """Metric math over statistics; all have the period of the expression."""

    expression: str
    stats: tuple[tuple[str, Stat], ...]
    period_s: int


Query = Stat | Math


def stats_of(query: Query) -> Iterator[Stat]:
    """Every statistic that a query asks for."""
    if isinstance(query, Stat):
        yield query
    else:
        yield from (stat for _, stat in query.stats)


def values(query: Query, samples: Samples, start_s: int, end_s: int, *, fills_empty: bool = True) -> Series:
    """The values of a query between two begins of periods. `fills_empty`: as of `expressions.evaluate`."""
    if isinstance(query, Stat):
        return samples.series(query.key, query.statistic, query.period_s, start_s, end_s)
    periods = range(start_s, end_s, query.period_s)
    found = {
        name: samples.series(stat.key, stat.statistic, query.period_s, start_s, end_s) for name, stat in query.stats
    }
    return expressions.evaluate(query.expression, found, periods, fills_empty=fills_empty)


def dimensions(listed: Sequence[Json]) -> tuple[tuple[str, str], ...]:
    """Dimensions of a template; what refers to a resource is named by its logical id."""
    return tuple(sorted((one["Name"], referred(one["Value"])) for one in listed))


def referred(value: Any) -> str:
    """A literal, or the logical id of the resource that an intrinsic function refers to.

    Raises:
        ValueError: it is something else.
    """
    match value:
        case str():
            return value
        case {"Ref": str() as name}:
            return name
        case {"Fn::GetAtt": [str() as name, *_]}:
            return name
    raise ValueError(f"no name of a resource: {value}")
