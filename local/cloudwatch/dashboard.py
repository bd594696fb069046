"""Widgets of a template's dashboard."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from local.cloudwatch.queries import Math, Query, Stat, referred
from local.cloudwatch.samples import Key

_DEFAULT_PERIOD_S = 300


class Line(NamedTuple):
    """One line of a graph; `right` if the axis on the right is its own."""

    label: str
    query: Query
    right: bool = False


class Widget(NamedTuple):
    """A graph, or (without lines) the states of alarms. Place and size in the dashboard's units."""

    title: str
    x: int
    y: int
    width: int
    height: int
    lines: tuple[Line, ...]


def widgets_of(template: Mapping[str, Any]) -> list[Widget]:
    """The widgets of the only dashboard."""
    (part,) = (part for part in template["Resources"].values() if part["Type"] == "AWS::CloudWatch::Dashboard")
    body = json.loads(_text(part["Properties"]["DashboardBody"]))
    return [
        Widget(
            title=widget["properties"]["title"],
            x=widget["x"],
            y=widget["y"],
            width=widget["width"],
            height=widget["height"],
            lines=tuple(_lines(widget["properties"].get("metrics", ()))),
        )
        for widget in body["widgets"]
    ]


def _text(value: Any) -> str:
    """A text with each reference replaced by the logical id of what it refers to."""
    match value:
        case {"Fn::Join": [str() as separator, list() as parts]}:
            return separator.join(map(_text, parts))
    return referred(value)


def _lines(metrics: Any) -> list[Line]:
    """Rows of a graph: `[namespace, name, dimension, value, …, {options}]`, or `[{expression}]`."""
    stats: dict[str, Stat] = {}
    rows = [(row, row[-1] if isinstance(row[-1], dict) else {}) for row in metrics]
    for row, options in rows:
        if "id" in options and "expression" not in options:
            stats[options["id"]] = _stat(row, options)
    lines = []
    for row, options in rows:
        if "expression" in options:
            query: Query = _math(options["expression"], stats)
            label = options.get("label", options["expression"])
        else:
            query, label = _stat(row, options), options.get("label", row[1])
        if options.get("visible", True):
            lines.append(Line(str(label), query, options.get("yAxis") == "right"))
    return lines


def _stat(row: Any, options: Mapping[str, Any]) -> Stat:
    namespace, name, *pairs = (word for word in row if isinstance(word, str))
    dimensions = tuple(sorted(zip(pairs[::2], pairs[1::2], strict=True)))
    return Stat(
        Key(namespace, name, dimensions), options.get("stat", "Average"), options.get("period", _DEFAULT_PERIOD_S)
    )


def _math(expression: str, stats: Mapping[str, Stat]) -> Math:
    (period_s,) = {stat.period_s for stat in stats.values()}
    return Math(expression, tuple(stats.items()), period_s)
