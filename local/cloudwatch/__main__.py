"""Draws the dashboard of the committed template over captured metrics, and prints which of its alarms would have been
raised:

    headrace dev --metrics-file metrics.emf --seal-age 5s --index-age 1s --sweep-every 1s
    python -m local.cloudwatch metrics.emf --factor 60 --output dashboard.svg

The ages of such an emulator are a sixtieth of a deployment's, so `--factor 60` makes its time run 60 times as fast.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from local.cloudwatch.queries import Math, Query, Stat, alarms_of, referred, states, values
from local.cloudwatch.samples import Key, Lapse, Samples, Series, first_ms, of_emf
from local.template import TEMPLATE_PATH, read_template

_DEFAULT_PERIOD_S = 300


class Line(NamedTuple):
    """One line of a graph; `right` says whether it uses the axis on the right."""

    label: str
    query: Query
    right: bool = False


class Widget(NamedTuple):
    """A graph, or (if it has no lines) a list of alarm states. Place and size are in the dashboard's units."""

    title: str
    x: int
    y: int
    width: int
    height: int
    lines: tuple[Line, ...]


def widgets_of(template: Mapping[str, Any]) -> list[Widget]:
    """Returns the widgets of the template's dashboard; there must be exactly one."""
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


UNIT_X, UNIT_Y, GAP = 40, 32, 8  # pixels of a dashboard's unit, and between widgets
_COLORS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf", "#7f7f7f", "#bcbd22")
_TITLE, _LEGEND_LINE, _MARGIN = 22, 13, 10


def svg(widgets: Sequence[Widget], samples: Samples, start_s: int, end_s: int) -> str:
    """Returns the dashboard's graphs from `start_s` to `end_s` as the text of an SVG picture; widgets without lines
    (alarm states) are left out.
    """
    graphs = [widget for widget in widgets if widget.lines]
    top = min(widget.y for widget in graphs)
    width = max(widget.x + widget.width for widget in graphs) * UNIT_X
    height = (max(widget.y + widget.height for widget in graphs) - top) * UNIT_Y
    parts = [_graph(widget, top, samples, start_s, end_s) for widget in graphs]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">\n'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _graph(widget: Widget, top: int, samples: Samples, start_s: int, end_s: int) -> str:
    width, height = widget.width * UNIT_X - GAP, widget.height * UNIT_Y - GAP
    found = [(line, values(line.query, samples, start_s, end_s)) for line in widget.lines]
    tops = {
        right: max((value for line, series in found if line.right is right for value in series.values()), default=0.0)
        for right in (False, True)
    }
    floor = height - _MARGIN - _LEGEND_LINE * ((len(found) + 1) // 2)
    ceiling = _TITLE + _LEGEND_LINE
    scales = " / ".join(shown(tops[right]) for right in sorted({line.right for line in widget.lines}))
    parts = [
        f'<g transform="translate({widget.x * UNIT_X},{(widget.y - top) * UNIT_Y})">',
        f'<rect width="{width}" height="{height}" fill="none" stroke="#cccccc"/>',
        f'<text x="{_MARGIN}" y="{_TITLE - 6}" font-weight="bold">{escape(widget.title)}</text>',
        f'<text x="{width - _MARGIN}" y="{_TITLE - 6}" text-anchor="end" fill="#666666">{scales}</text>',
        f'<line x1="{_MARGIN}" y1="{floor}" x2="{width - _MARGIN}" y2="{floor}" stroke="#999999"/>',
    ]
    for number, (line, series) in enumerate(found):
        color = _COLORS[number % len(_COLORS)]
        points = [
            (
                _MARGIN + (at - start_s) / max(1, end_s - line.query.period_s - start_s) * (width - 2 * _MARGIN),
                floor - (value / tops[line.right] if tops[line.right] else 0) * (floor - ceiling),
            )
            for at, value in series.items()
        ]
        parts += _line(points, color)
        x = _MARGIN + (number % 2) * (width - 2 * _MARGIN) / 2
        parts.append(_legend(line, series, color, x, floor + _LEGEND_LINE * (number // 2 + 1)))
    return "\n".join([*parts, "</g>"])


def _line(points: list[tuple[float, float]], color: str) -> list[str]:
    if len(points) == 1:
        (x, y) = points[0]
        return [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{color}"/>']
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return [f'<polyline points="{drawn}" fill="none" stroke="{color}" stroke-width="1.5"/>'] if points else []


def _legend(line: Line, series: Series, color: str, x: float, y: float) -> str:
    newest = shown(series[max(series)]) if series else "–"
    return f'<text x="{x:.0f}" y="{y}" fill="{color if series else "#999999"}">{escape(line.label)}: {newest}</text>'


def shown(value: float) -> str:
    """Formats a number for people: three digits, and a letter for thousands."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{letter}"
    return f"{value:.3g}"


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
