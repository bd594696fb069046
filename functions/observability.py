"""One logger and one set of metrics for every function: one namespace, names as in the code.

Metrics go out as EMF lines on standard output; `POWERTOOLS_METRICS_DISABLED=true` silences them (the emulator).
"""

from __future__ import annotations

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

NAMESPACE = "Headrace"


def make_logger(service: str) -> Logger:
    """The structured logger of a function. Log events are short names; everything else is a field."""
    return Logger(service=service)


class Meter:
    """Counts what a function did; `flush` writes what was counted since the last flush."""

    def __init__(self, service: str) -> None:
        self._metrics = Metrics(namespace=NAMESPACE, service=service)

    def count(self, name: str, value: int = 1) -> None:
        """Adds to a counter. Zero is not written."""
        if value:
            self._metrics.add_metric(name=name, unit=MetricUnit.Count, value=value)

    def size(self, name: str, value: int) -> None:
        """Adds bytes to a counter. Zero is not written."""
        if value:
            self._metrics.add_metric(name=name, unit=MetricUnit.Bytes, value=value)

    def duration(self, name: str, value_ms: int) -> None:
        """Notes a duration in ms."""
        self._metrics.add_metric(name=name, unit=MetricUnit.Milliseconds, value=value_ms)

    def flush(self) -> None:
        """Writes one EMF line, if anything was counted."""
        if self._metrics.metric_set:
            self._metrics.flush_metrics()
