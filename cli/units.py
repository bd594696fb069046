"""Parses and formats durations and sizes as people write them: 500ms, 1s, 5m; 64KiB, 16MiB."""

from __future__ import annotations

import re
from typing import Any

import click

_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BYTES = {
    "": 1,
    "b": 1,
    "k": 1 << 10,
    "kib": 1 << 10,
    "kb": 1_000,
    "m": 1 << 20,
    "mib": 1 << 20,
    "mb": 1_000_000,
}
_NUMBER_AND_UNIT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*")


def parse_duration_ms(text: str) -> int:
    """Parses a duration with a unit (ms, s, m, h, d) and returns milliseconds. Raises a ValueError that shows the
    expected form.
    """
    return _parse(text, _MILLISECONDS, "a number and a unit, such as 500ms, 1s or 5m")


def parse_bytes(text: str) -> int:
    """Parses a size and returns bytes; the unit is optional (K and M are binary). Raises a ValueError that shows the
    expected form.
    """
    return _parse(text, _BYTES, "bytes, or a number and a unit, such as 65536, 64KiB or 16MiB")


def format_duration(milliseconds: int) -> str:
    """Formats a duration in the largest unit that divides it: 65000 is `65s`, 900000 is `15m`."""
    for unit in ("d", "h", "m", "s"):
        if milliseconds and milliseconds % _MILLISECONDS[unit] == 0:
            return f"{milliseconds // _MILLISECONDS[unit]}{unit}"
    return f"{milliseconds}ms"


def _parse(text: str, units: dict[str, int], expected: str) -> int:
    match = _NUMBER_AND_UNIT.fullmatch(text.lower())
    if match is None or match[2] not in units:
        raise ValueError(f"{text!r} is not {expected}")
    return round(float(match[1]) * units[match[2]])


class Duration(click.ParamType):  # type: ignore[type-arg]
    """A click option type that parses a duration to milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return parse_duration_ms(str(value))
        except ValueError as exc:
            self.fail(str(exc), param, ctx)


class Size(click.ParamType):  # type: ignore[type-arg]
    """A click option type that parses a size to bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return parse_bytes(str(value))
        except ValueError as exc:
            self.fail(str(exc), param, ctx)
