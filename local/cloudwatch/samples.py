"""Captured metric values, from EMF lines or other sources, and their statistics by period."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from functions.metrics import REGISTRY

_AGES = {(metrics.service, metric.name) for metrics in REGISTRY for metric in metrics if metric.spec.kind == "age"}

Series = dict[int, float]
"""The value of each period that has one, keyed by the start of the period (seconds)."""


class Key(NamedTuple):
    """What identifies a metric in CloudWatch: namespace, name, and dimensions as sorted pairs."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]


class Lapse(NamedTuple):
    """A scale of time: captured time runs `factor` times as fast, starting at `start_ms`, which becomes `begin_s`. A
    minute of an emulator whose ages are a sixtieth of the deployment's is then an hour of the deployment.

    Metrics that are ages are multiplied, too, because the clock determines them; latencies and counts are not.
    """

    start_ms: int
    factor: float = 1.0
    begin_s: int = 0

    def at(self, at_ms: float) -> float:
        """Converts a captured time to seconds in the deployment."""
        return self.begin_s + (at_ms - self.start_ms) * self.factor / 1000

    def value(self, key: Key, value: float) -> float:
        """Converts a captured value to what it would be in the deployment: ages are multiplied by `factor`, all other
        metrics are unchanged.
        """
        return value * self.factor if (dict(key.dimensions).get("service"), key.name) in _AGES else value


class Samples:
    """Values of metrics with their times in seconds."""

    def __init__(self) -> None:
        self._values: dict[Key, list[tuple[float, float]]] = defaultdict(list)
        self.units: dict[Key, set[str]] = defaultdict(set)

    def add(self, key: Key, at_s: float, value: float, unit: str = "None") -> None:
        """Adds a value of a metric."""
        self._values[key].append((at_s, value))
        self.units[key].add(unit)

    @property
    def keys(self) -> set[Key]:
        """Returns the keys of all metrics that have a value."""
        return set(self._values)

    @property
    def end_s(self) -> float:
        """Returns the time of the newest value in seconds; 0 if there are no values."""
        return max((at for values in self._values.values() for at, _ in values), default=0.0)

    def series(self, key: Key, statistic: str, period_s: int, start_s: int, end_s: int) -> Series:
        """Returns the statistic of each whole period from `start_s` to `end_s` that has values.

        Raises:
            ValueError: CloudWatch has no such statistic.
        """
        periods: dict[int, list[float]] = defaultdict(list)
        for at, value in self._values.get(key, ()):
            if start_s <= at < end_s:
                periods[start_s + int((at - start_s) // period_s) * period_s].append(value)
        return {begin: _statistic(statistic, values) for begin, values in sorted(periods.items())}


def of_emf(lines: Iterable[str], lapse: Lapse) -> Samples:
    """Reads metrics from EMF lines by the rules of the format: each value counts for each metric under each set of
    dimensions.
    """
    found = Samples()
    for line in lines:
        document = json.loads(line)
        at_s = lapse.at(document["_aws"]["Timestamp"])
        for directive in document["_aws"]["CloudWatchMetrics"]:
            for names in directive["Dimensions"]:
                dimensions = tuple(sorted((name, str(document[name])) for name in names))
                for metric in directive["Metrics"]:
                    key = Key(directive["Namespace"], metric["Name"], dimensions)
                    values = document[metric["Name"]]
                    for value in values if isinstance(values, list) else [values]:
                        found.add(key, at_s, lapse.value(key, value), metric.get("Unit", "None"))
    return found


def first_ms(lines: Iterable[str]) -> int:
    """Returns the earliest time of EMF lines. Raises ValueError if there is none."""
    return min(int(json.loads(line)["_aws"]["Timestamp"]) for line in lines)


def _statistic(name: str, values: list[float]) -> float:
    match name:
        case "Sum":
            return math.fsum(values)
        case "Average":
            return math.fsum(values) / len(values)
        case "Maximum":
            return max(values)
        case "Minimum":
            return min(values)
        case "SampleCount":
            return float(len(values))
    if name.startswith("p"):
        share = float(name[1:]) / 100
        return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
    raise ValueError(f"no such statistic: {name}")
