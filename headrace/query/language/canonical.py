"""The form in which a field's values are compared. One definition for records and queries, tail, segments and indexes.

    kind       what counts                                   canonical value
    keyword    a string                                      the string, lower case under `lowercase_v1`
    text       a string                                      its words, in order: a tuple, maybe empty
    integer    a whole number, or its decimal text           int, of any size
    float      a number, or its text                         float, finite
    date       an instant in text, or milliseconds           int: milliseconds since 1970
    bool       true, false, or their names                   bool

Everything else, null included, is no value: the record is as if the field were absent.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from headrace import instants
from headrace.query.language.config import Field

Value = str | int | float | bool | tuple[str, ...]

# White space of JavaScript: what the texts of numbers may be surrounded by, and what separates words of a query.
WHITE_SPACE = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)

_INTEGER = re.compile(r"-?(?:0|[1-9]\d{0,999})", re.ASCII)  # bounded: reading digits takes quadratic time
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_WORD = re.compile(r"[^\W_]+")  # letters and numbers of Unicode: tested against its categories
_NUMBER_TEXT_LENGTH = 1000
_POINT_LIMITS = (-6, 21)  # ECMA-262 § 6.1.6.1.20: outside of these, numbers are printed with an exponent


def reader(field: Field) -> Callable[[Any], Value | None]:
    """Returns what makes a canonical value of a JSON value, or None of what doesn't count."""
    if field.kind == "keyword" and field.normalizer == "lowercase_v1":
        return _lower_keyword
    return _READERS[field.kind]


def words(text: str) -> tuple[str, ...]:
    """Returns the words of `unicode_word_v1`: the longest sequences of letters and numbers, in lower case and in order."""
    return tuple(_WORD.findall(text.lower()))


def text(value: str | int | float | bool) -> str:
    """Returns a canonical value in print, as a term or a group's key: numbers as JavaScript prints them."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else _float_text(value)


def _keyword(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _lower_keyword(value: Any) -> str | None:
    return value.lower() if isinstance(value, str) else None


def _words(value: Any) -> tuple[str, ...] | None:
    return words(value) if isinstance(value, str) else None


def _integer(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return _integer_text(value) if isinstance(value, str) else None


def _integer_text(value: str) -> int | None:
    match = _INTEGER.fullmatch(value.strip(WHITE_SPACE))
    return int(match[0]) if match else None


def _float(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str):
        value = value.strip(WHITE_SPACE)
        if len(value) > _NUMBER_TEXT_LENGTH or not _NUMBER.fullmatch(value):
            return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _date(value: Any) -> int | None:
    if isinstance(value, str):
        stripped = value.strip(WHITE_SPACE)
        instant = instants.parse_ms(stripped)  # first: four digits are a year
        return _integer_text(stripped) if instant is None else instant
    if isinstance(value, float):
        return int(value) if math.isfinite(value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _bool(value: Any) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip(WHITE_SPACE).lower())
    return value if isinstance(value, bool) else None


_READERS: dict[str, Callable[[Any], Value | None]] = {
    "keyword": _keyword,
    "text": _words,
    "integer": _integer,
    "float": _float,
    "date": _date,
    "bool": _bool,
}


def _float_text(number: float) -> str:
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int), "finite"
    if digits == (0,):
        return "0"
    figures = "".join(map(str, digits))
    point = len(figures) + exponent  # figures before the point
    least, most = _POINT_LIMITS
    if not least < point <= most:
        fraction = f".{figures[1:]}" if len(figures) > 1 else ""
        printed = f"{figures[0]}{fraction}e{point - 1:+d}"
    elif point <= 0:
        printed = "0." + "0" * -point + figures
    elif point >= len(figures):
        printed = figures.ljust(point, "0")
    else:
        printed = f"{figures[:point]}.{figures[point:]}"
    return "-" * sign + printed
