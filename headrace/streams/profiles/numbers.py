"""Parses and prints numbers for profiles.

A number that a double can't hold is treated as missing, so that infinities never occur later. Integers keep their exact
value. Printing follows ECMAScript (Number::toString), because clients in that language hash what it prints.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import Any

from headrace.query.language import canonical

Number = int | float

_NUMERIC = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_LONGEST_TEXT = 400  # a double has at most 309 digits before the point; the rest would be precision nobody keeps


def number_or_none(value: Any) -> Number | None:
    """Returns a finite number, also from a string with a decimal number; None for anything else."""
    if isinstance(value, str):
        text = value.strip()
        if len(text) > _LONGEST_TEXT or not _NUMERIC.fullmatch(text):
            return None
        value = int(text) if _INTEGER.fullmatch(text) else float(text)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if is_finite(value) else None


def is_finite(value: Number) -> bool:
    """Returns whether the number is within the range of a double, even if not exactly; False for infinity and NaN."""
    try:
        return isfinite(value)
    except OverflowError:
        return False


def integer_or_none(value: Any) -> int | None:
    """Returns an integer, also from a string; `200.0` counts as one. None for anything else."""
    number = number_or_none(value)
    return int(number) if number is not None and number == int(number) else None


def number_text(value: Number) -> str:
    """Formats a finite number as ECMAScript prints it; an integer below 10^21 keeps every digit."""
    return canonical.text(value if abs(value) < 10**21 else float(value))
