"""Counts, sums, moments and extremes. Each can have a window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from headrace.features.pipeline.windows import Cell, Columns, View


class Count(Columns):
    """The number of rows."""

    reads = "row"
    result = "i64"

    __slots__ = ()

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        cell[0][-1] += 1

    def read(self, cell: Cell, view: View) -> Any:
        return sum(cell[0][view.start :])


class Sum(Columns):
    """The sum of a field as a float."""

    empty = (0, 0.0)

    __slots__ = ()

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        counts, sums = cell
        counts[-1] += 1
        sums[-1] += value

    def read(self, cell: Cell, view: View) -> Any:
        return sum(cell[1][view.start :]) if any(cell[0][view.start :]) else None


class Mean(Sum):
    """The mean of a field."""

    __slots__ = ()

    def read(self, cell: Cell, view: View) -> Any:
        count = sum(cell[0][view.start :])
        return sum(cell[1][view.start :]) / count if count else None


class Min(Columns):
    """The least value, of the field's own type; strings are compared by their UTF-8 bytes, as code points are."""

    reads = "any"
    result = "same"
    empty = (None,)
    retained = 1

    __slots__ = ()

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        values = cell[0]
        least = values[-1]
        if least is None or value < least:
            values[-1] = value

    def read(self, cell: Cell, view: View) -> Any:
        return min((value for value in cell[0][view.start :] if value is not None), default=None)


class Max(Min):
    """The greatest value, otherwise as `Min`."""

    __slots__ = ()

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        values = cell[0]
        greatest = values[-1]
        if greatest is None or value > greatest:
            values[-1] = value

    def read(self, cell: Cell, view: View) -> Any:
        return max((value for value in cell[0][view.start :] if value is not None), default=None)


class Moments(Columns):
    """Welford's count, mean and sum of squared deviations."""

    empty = (0, 0.0, 0.0)

    __slots__ = ()

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        counts, means, squares = cell[0], cell[1], cell[2]
        count = counts[-1] = counts[-1] + 1
        delta = value - means[-1]
        mean = means[-1] = means[-1] + delta / count
        squares[-1] += delta * (value - mean)


def merge_moments(cell: Cell, start: int) -> tuple[int, float, float]:
    """Returns count, mean and squares of the buckets from index `start` on (Chan's merge)."""
    total, mean, square = 0, 0.0, 0.0
    for count, bucket_mean, bucket_square in zip(cell[0][start:], cell[1][start:], cell[2][start:], strict=True):
        if not count:
            continue
        delta = bucket_mean - mean
        share = count / (total + count)
        square += bucket_square + delta * delta * total * share
        mean += delta * share
        total += count
    return total, mean, square


def root(square: float) -> float:
    """Returns the square root, NaN of what overflowed to less than 0."""
    return math.sqrt(square) if square >= 0 else math.nan


def deviation(count: int, square: float) -> float:
    """Returns the sample standard deviation; 0 below two values."""
    return math.sqrt(square / (count - 1)) if count > 1 and square > 0 else 0.0


class Var(Moments):
    """The sample variance, null below two values."""

    __slots__ = ()

    def read(self, cell: Cell, view: View) -> Any:
        count, _, square = merge_moments(cell, view.start)
        return square / (count - 1) if count > 1 else None


class Std(Moments):
    """The sample standard deviation, null below two values."""

    __slots__ = ()

    def read(self, cell: Cell, view: View) -> Any:
        count, _, square = merge_moments(cell, view.start)
        return root(square / (count - 1)) if count > 1 else None


class Ratio(Columns):
    """The share of rows that match `where`."""

    reads = "match"
    empty = (0, 0)

    __slots__ = ()

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        matched, rows = cell
        matched[-1] += value
        rows[-1] += 1

    def read(self, cell: Cell, view: View) -> Any:
        rows = sum(cell[1][view.start :])
        return sum(cell[0][view.start :]) / rows if rows else None


def z_score(value: float, moments: Sequence[float]) -> float | None:
    """Returns how many sample standard deviations the value is above the mean; null without any deviation."""
    count, mean, square = moments
    spread = deviation(int(count), square)
    return (value - mean) / spread if spread else None
