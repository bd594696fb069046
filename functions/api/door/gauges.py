"""The text format of Prometheus, for metrics that are read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4"


class Gauge(NamedTuple):
    """A metric, and its values, each with its labels as text (empty without labels)."""

    name: str
    meaning: str
    values: Sequence[tuple[str, float]]


def text_of(gauges: Iterable[Gauge]) -> str:
    """Returns metrics as text."""
    lines: list[str] = []
    for gauge in gauges:
        lines += (f"# HELP {gauge.name} {gauge.meaning}", f"# TYPE {gauge.name} gauge")
        lines += (
            f"{gauge.name}{{{labels}}} {value}" if labels else f"{gauge.name} {value}"
            for labels, value in gauge.values
        )
    return "\n".join(lines) + "\n"
