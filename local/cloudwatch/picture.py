"""Draws a dashboard over captured metrics as an SVG picture: a panel for each graph that has data, with its axes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from local.cloudwatch.queries import Query, Stat, values
from local.cloudwatch.samples import Samples, Series


class Line(NamedTuple):
    """One line of a graph; `right` says whether it uses the axis on the right."""

    label: str
    query: Query
    right: bool = False


class Widget(NamedTuple):
    """A graph, or (if it has no lines) a list of alarm states."""

    title: str
    lines: tuple[Line, ...]


class Panel(NamedTuple):
    """A graph with its lines that have data."""

    title: str
    lines: tuple[tuple[Line, Series], ...]


ACROSS, WIDTH, GAP, MARGIN = 3, 380, 10, 10  # panels in a row; pixels
_TITLE, _PLOT, _TIMES, _LEGEND_LINE = (
    40,
    110,
    34,
    15,
)  # heights: title and units, curves, axis of time, line of a legend
_LEFT, _RIGHT = 52, 42  # room for the numbers of an axis
_CHARACTER = 6.6  # most that one takes on average, in 11 pixels
_SAMPLE = 14  # room for a line's colour in the legend
_COLORS = (
    *("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#e8710a", "#8c564b", "#0e9aa7", "#5f6a72", "#8a8d0f"),
    *("#c2185b", "#004d7a", "#7b5e00"),
)


def svg(widgets: Sequence[Widget], samples: Samples, start_s: int, end_s: int) -> str:
    """Returns the graphs from `start_s` to `end_s` as the text of an SVG picture. Those without data are named at the
    bottom; lines without data are left out.
    """
    panels, empty = [], []
    for widget in widgets:
        found = [(line, values(line.query, samples, start_s, end_s)) for line in widget.lines]
        if any(series for _, series in found):
            panels.append(Panel(widget.title, tuple((line, series) for line, series in found if series)))
        elif widget.lines:
            empty.append(widget.title)
    parts: list[str] = []
    y = GAP
    for first in range(0, len(panels), ACROSS):
        row = panels[first : first + ACROSS]
        height = max(map(_height, row))
        parts += [_panel(panel, GAP + at * (WIDTH + GAP), y, height, start_s, end_s) for at, panel in enumerate(row)]
        y += height + GAP
    width = GAP + ACROSS * (WIDTH + GAP)
    for number, text in enumerate(_wrapped("Without data in this run: ", empty, width - 2 * GAP) if empty else ()):
        y += _LEGEND_LINE if number else GAP
        parts.append(f'<text x="{GAP}" y="{y}" fill="#555555">{escape(text)}</text>')
    height = y + GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11" fill="#222222">\n'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _panel(panel: Panel, across: int, down: int, height: int, start_s: int, end_s: int) -> str:
    left, right, ceiling, floor = _LEFT, WIDTH - _RIGHT, _TITLE, _TITLE + _PLOT
    parts = [
        f'<g transform="translate({across},{down})">',
        f'<rect width="{WIDTH}" height="{height}" fill="none" stroke="#cccccc"/>',
        f'<text x="{MARGIN}" y="16" font-weight="bold">{escape(panel.title)}</text>',
    ]
    tops: dict[bool, float] = {}
    for side in sorted({line.right for line, _ in panel.lines}):
        own = [(line, series) for line, series in panel.lines if line.right is side]
        step, tops[side] = scale(max(value for _, series in own for value in series.values()))
        at, anchor = (right + 6, "start") if side else (left - 6, "end")
        units = ", ".join(dict.fromkeys(unit_of(line) for line, _ in own))
        edge = WIDTH - MARGIN if side else MARGIN
        begins = "end" if side else "start"
        parts.append(f'<text x="{edge}" y="{ceiling - 9}" text-anchor="{begins}" fill="#555555">{units}</text>')
        for number in range(round(tops[side] / step) + 1):
            level = floor - number * step / tops[side] * _PLOT
            parts.append(f'<text x="{at}" y="{level + 4:.1f}" text-anchor="{anchor}">{shown(number * step)}</text>')
            if side is panel.lines[0][0].right:
                parts.append(f'<line x1="{left}" y1="{level:.1f}" x2="{right}" y2="{level:.1f}" stroke="#e2e2e2"/>')
    for minute in _times(start_s, end_s):
        x = left + (minute * 60 - start_s) / (end_s - start_s) * (right - left)
        parts.append(f'<line x1="{x:.1f}" y1="{floor}" x2="{x:.1f}" y2="{floor + 4}" stroke="#777777"/>')
        parts.append(f'<text x="{x:.1f}" y="{floor + 16}" text-anchor="middle">{minute}</text>')
    parts.append(f'<text x="{WIDTH - MARGIN}" y="{floor + 16}" text-anchor="end" fill="#555555">min</text>')
    parts.append(f'<polyline points="{left},{ceiling} {left},{floor} {right},{floor}" fill="none" stroke="#777777"/>')
    for number, (line, series) in enumerate(panel.lines):
        color = _COLORS[number % len(_COLORS)]
        points = [
            (
                left + (at + line.query.period_s / 2 - start_s) / (end_s - start_s) * (right - left),
                floor - value / tops[line.right] * _PLOT,
            )
            for at, value in sorted(series.items())
        ]
        parts += _curve(points, color)
    parts += _legend(panel, floor + _TIMES)
    return "\n".join([*parts, "</g>"])


def _curve(points: Sequence[tuple[float, float]], color: str) -> list[str]:
    if len(points) == 1:
        ((x, y),) = points
        return [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{color}"/>']
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return [f'<polyline points="{drawn}" fill="none" stroke="{color}" stroke-width="1.5"/>']


def _legend(panel: Panel, y: int) -> Iterator[str]:
    """Yields a legend that begins at `y`: each line's colour, name and newest value, one after the other."""
    for number, ((line, series), (row, x)) in enumerate(zip(panel.lines, _places(panel), strict=True)):
        at = y + row * _LEGEND_LINE
        color = _COLORS[number % len(_COLORS)]
        yield f'<rect x="{x:.0f}" y="{at - 8}" width="9" height="9" fill="{color}"/>'
        yield f'<text x="{x + _SAMPLE:.0f}" y="{at}">{escape(_told(line, series))}</text>'


def _places(panel: Panel) -> list[tuple[int, float]]:
    """Returns the row and the x of each entry of a panel's legend."""
    places: list[tuple[int, float]] = []
    row, x = 0, float(MARGIN)
    for line, series in panel.lines:
        width = _SAMPLE + len(_told(line, series)) * _CHARACTER + MARGIN
        if x > MARGIN and x + width > WIDTH:
            row, x = row + 1, float(MARGIN)
        places.append((row, x))
        x += width
    return places


def _told(line: Line, series: Series) -> str:
    return f"{line.label} {shown(series[max(series)])}"


def _height(panel: Panel) -> int:
    return _TITLE + _PLOT + _TIMES + _LEGEND_LINE * _places(panel)[-1][0] + MARGIN


def _wrapped(intro: str, titles: Sequence[str], width: int) -> Iterator[str]:
    """Yields the lines of a list of titles, none wider than `width`."""
    line = intro
    for number, title in enumerate(titles):
        text = title + ("." if number == len(titles) - 1 else "; ")
        if len(line + text) * _CHARACTER > width:
            yield line.rstrip()
            line = ""
        line += text
    yield line


def _times(start_s: int, end_s: int) -> range:
    """Returns the minutes that are written below a graph: at most eight of them."""
    step = next(step for step in (1, 2, 5, 10, 15, 30, 60, 120, 360, 720, 1440) if (end_s - start_s) / 60 / step <= 8)
    return range(math.ceil(start_s / 60), end_s // 60 + 1, step)


def scale(top: float) -> tuple[float, float]:
    """Returns the step and the end of an axis on which `top` fits: at most five steps of 1, 2 or 5 times a power of ten."""
    if top <= 0:
        return 1.0, 1.0
    power = 10.0 ** math.floor(math.log10(top / 5))
    step = next(factor * power for factor in (1, 2, 5, 10) if top / (factor * power) <= 5)
    return step, step * max(1, math.ceil(top / step - 1e-9))


def unit_of(line: Line) -> str:
    """Returns the unit of a line, which the names of metrics tell."""
    if not isinstance(line.query, Stat):
        return "ratio"
    name = line.query.key.name
    if name.endswith("Ms") or name in ("Latency", "Duration", "IteratorAge"):
        return "ms"
    return "bytes" if name.endswith("Bytes") else "units" if name.endswith("CapacityUnits") else "count"


def shown(value: float) -> str:
    """Formats a number for people: three digits, and a letter for thousands."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{letter}"
    return f"{value:.3g}"
