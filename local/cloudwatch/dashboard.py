"""Widgets of a template's dashboard."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from local.cloudwatch.queries import Math, Query, Stat, referred
from local.cloudwatch.samples import Key

_DEFAULT_PERIOD_S = 300


class Line(NamedTuple):
    """One line of a graph."""

    label: str
    query: Query


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
    lines: list[tuple[str, Stat | str]] = []
    for row in metrics:
        options = row[-1] if isinstance(row[-1], dict) else {}
        words = [word for word in row if isinstance(word, str)]
        if "expression" in options:
            expression = str(options["expression"])
            lines.append((str(options.get("label", expression)), expression))
            continue
        dimensions = tuple(sorted(zip(words[2::2], words[3::2], strict=True)))
        stat = Stat(
            Key(words[0], words[1], dimensions),
            options.get("stat", "Average"),
            options.get("period", _DEFAULT_PERIOD_S),
        )
        if "id" in options:
            stats[options["id"]] = stat
        if options.get("visible", True):
            lines.append((str(options.get("label", words[1])), stat))
    return [Line(label, what if isinstance(what, Stat) else _math(what, stats)) for label, what in lines]


def _math(expression: str, stats: Mapping[str, Stat]) -> Math:
    (period_s,) = {stat.period_s for stat in stats.values()}
    return Math(expression, tuple(stats.items()), period_s)
