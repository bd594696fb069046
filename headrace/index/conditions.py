"""Which rows of a column hold a condition: equality, comparison, the begin of a keyword."""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace.index.reading import Column
from headrace.query.language.canonical import Value

_LEAST, _GREATEST = -(2**63), 2**63 - 1  # what a column of integers can hold: other values are lossy


def equal_to(value: Value) -> Callable[[Column], Any]:
    """The value is this one, canonical."""

    def rows(column: Column) -> Any:
        if column.dictionary is not None:
            code = _code(column.dictionary, value)
            if code is None:
                return np.zeros(len(column.values), np.bool_)
            return column.values == code
        if isinstance(value, int) and not _LEAST <= value <= _GREATEST:
            return np.zeros(len(column.values), np.bool_)  # such values are lossy
        return column.values == value

    return rows


def compared(comparison: str, value: Value) -> Callable[[Column], Any]:
    """The value stands on that side of this one."""
    holds = _HOLDS[comparison]

    def rows(column: Column) -> Any:
        if isinstance(value, int) and not _LEAST <= value <= _GREATEST:
            answer = holds(0, value)  # every value of the column stands on the same side
            return np.full(len(column.values), answer)
        return holds(column.values, value)

    return rows


def beginning(column: Column, text: str) -> Any:
    """Values that begin with a text stand next to each other in the dictionary."""
    assert column.dictionary is not None, "a keyword"
    begins = np.fromiter((one.startswith(text) for one in column.dictionary), np.bool_, len(column.dictionary))
    if not len(begins):
        return np.zeros(len(column.values), np.bool_)
    codes = np.where(column.values < len(begins), column.values, 0)
    return begins[codes]


def _code(dictionary: Sequence[str], value: Value) -> int | None:
    assert isinstance(value, str), "a keyword"
    at = bisect_left(dictionary, value)
    return at if at < len(dictionary) and dictionary[at] == value else None


_HOLDS: dict[str, Callable[[Any, Any], Any]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
