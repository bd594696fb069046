"""Draws the dashboard of the committed template over captured metrics, and prints which of its alarms would have been
raised:

    headrace dev --metrics-file metrics.emf --seal-age 5s --index-age 1s --sweep-every 1s
    python -m local.cloudwatch metrics.emf --factor 60 --output dashboard.svg

The ages of such an emulator are a sixtieth of a deployment's, so `--factor 60` makes its time run 60 times as fast.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from local.cloudwatch.picture import Line, Widget, svg
from local.cloudwatch.queries import Math, Query, Stat, alarms_of, referred, states
from local.cloudwatch.samples import Key, Lapse, first_ms, of_emf
from local.template import TEMPLATE_PATH, read_template

_DEFAULT_PERIOD_S = 300


def widgets_of(template: Mapping[str, Any]) -> list[Widget]:
    """Returns the widgets of the template's dashboard; there must be exactly one."""
    (part,) = (part for part in template["Resources"].values() if part["Type"] == "AWS::CloudWatch::Dashboard")
    body = json.loads(_text(part["Properties"]["DashboardBody"]))
    return [
        Widget(
            title=widget["properties"]["title"],
            lines=tuple(_lines(widget["properties"].get("metrics", ()))),
        )
        for widget in body["widgets"]
    ]


def _text(value: Any) -> str:
    """Returns a text in which each reference is replaced by the logical id of the resource it refers to."""
    match value:
        case {"Fn::Join": [str() as separator, list() as parts]}:
            return separator.join(map(_text, parts))
    return referred(value)


def _lines(metrics: Any) -> list[Line]:
    """Returns the visible lines of a graph from its rows, each `[namespace, name, dimension, value, …, {options}]` or
    `[{expression}]`.
    """
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


STACK = "headrace-prod"  # whose template is the committed one
PERIOD_S = 300


def main(arguments: list[str] | None = None) -> None:
    """Writes the dashboard as an SVG file, and prints a line for each alarm that would have been raised."""
    parser = argparse.ArgumentParser(prog="python -m local.cloudwatch", description=__doc__)
    parser.add_argument("emf", type=Path, help="EMF lines, as the functions write them")
    parser.add_argument("--factor", type=float, default=1.0, help="how much faster than the deployment it ran")
    parser.add_argument("--output", type=Path, default=Path("dashboard.svg"))
    parser.add_argument("--template", type=Path, default=TEMPLATE_PATH)
    options = parser.parse_args(arguments)
    lines = options.emf.read_text().splitlines()
    samples = of_emf(lines, Lapse(first_ms(lines), options.factor))
    end_s = int(samples.end_s // PERIOD_S + 1) * PERIOD_S
    template = read_template(options.template)
    options.output.write_text(svg(widgets_of(template), samples, 0, end_s))
    for alarm in alarms_of(template, STACK):
        times = [at for at, state in states(alarm, samples, 0, end_s) if state == "ALARM"]
        if times:
            print(f"{alarm.name}: {len(times)} periods, from {times[0] // 60} min on: {alarm.description}")


if __name__ == "__main__":
    main()
