"""Sets of a run's records: functions on ascending arrays of integers, and `Docs`, which can also hold many rows as one
bit each.

A set of a few ids in a run of millions must not cost millions, and large sets must be intersected without sorting.
numpy's own `unique`, `union1d` and, for numbers far apart, `isin` use hashing, which takes many times as long as
sorting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]


def sort_unique(values: Int64s) -> Int64s:
    """Returns the distinct values in ascending order."""
    return drop_repeats(np.sort(values))


def drop_repeats(values: Int64s) -> Int64s:
    """Returns the distinct values of an array that is already ascending."""
    is_new = np.empty(len(values), np.bool_)
    is_new[:1] = True
    np.not_equal(values[1:], values[:-1], out=is_new[1:])
    return values if is_new.all() else values[is_new]


def unite(one: Int64s, other: Int64s) -> Int64s:
    """Returns the distinct values of two arrays in ascending order."""
    return sort_unique(np.concatenate((one, other)))


def are_among(values: Int64s, wanted: Int64s) -> NDArray[np.bool_]:
    """Returns a mask that tells for each value whether it occurs in `wanted`, which must be ascending."""
    if not len(wanted):
        return np.zeros(len(values), np.bool_)
    at = np.searchsorted(wanted, values)
    at[at == len(wanted)] = 0
    found: NDArray[np.bool_] = wanted[at] == values
    return found


Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]

_DENSE = 32  # a set of more than one row in so many is a mask


class Docs(NamedTuple):
    """A set of row numbers below `size`, held either as `rows` (ascending, distinct) or as `mask` (one bit per row)."""

    size: int
    rows: Rows | None = None
    mask: Mask | None = None

    @staticmethod
    def none(size: int) -> Docs:
        """Returns the empty set."""
        return Docs(size, rows=np.empty(0, np.int64))

    @staticmethod
    def all(size: int) -> Docs:
        """Returns the set of all rows."""
        return Docs(size, mask=np.ones(size, np.bool_))

    @staticmethod
    def of(size: int, rows: NDArray[Any]) -> Docs:
        """Returns the set of these rows, which must be ascending and distinct."""
        if len(rows) * _DENSE <= size:
            return Docs(size, rows=rows.astype(np.int64, copy=False))
        mask = np.zeros(size, np.bool_)
        mask[rows] = True
        return Docs(size, mask=mask)

    def __and__(self, other: Docs) -> Docs:
        """Returns the rows that are in both sets."""
        if self.mask is not None and other.mask is not None:
            return Docs(self.size, mask=self.mask & other.mask)
        if self.mask is not None:
            return other & self
        assert self.rows is not None, "rows or a mask"
        if other.mask is not None:
            return Docs(self.size, rows=self.rows[other.mask[self.rows]])
        assert other.rows is not None, "rows or a mask"
        if len(self.rows) > len(other.rows):
            return other & self
        return Docs(self.size, rows=self.rows[other.has(self.rows)])

    def __or__(self, other: Docs) -> Docs:
        """Returns the rows that are in either set."""
        if other.is_empty:
            return self
        if self.is_empty:
            return other
        if self.rows is not None and other.rows is not None:
            return Docs(self.size, rows=unite(self.rows, other.rows))
        mask = self.to_mask() | other.to_mask()
        return Docs(self.size, mask=mask)

    def __invert__(self) -> Docs:
        """Returns the rows that are not in this set."""
        return Docs(self.size, mask=~self.to_mask())

    def __sub__(self, other: Docs) -> Docs:
        """Returns the rows that are in this set and not in the other."""
        if self.rows is not None:
            return Docs(self.size, rows=self.rows[~other.has(self.rows)])
        assert self.mask is not None, "rows or a mask"
        if other.mask is not None:
            return Docs(self.size, mask=self.mask & ~other.mask)
        mask = self.mask.copy()
        mask[other.rows] = False
        return Docs(self.size, mask=mask)

    def has(self, rows: Rows) -> Mask:
        """Returns a mask that tells for each of the given rows whether it is in the set."""
        if self.mask is not None:
            found: Mask = self.mask[rows]
            return found
        assert self.rows is not None, "rows or a mask"
        return are_among(rows, self.rows)

    @property
    def is_empty(self) -> bool:
        """Whether the set is known to be empty; a mask is not examined, so False may be wrong."""
        return self.rows is not None and not len(self.rows)

    def to_rows(self) -> Rows:
        """Returns the set as ascending row numbers."""
        if self.rows is not None:
            return self.rows
        assert self.mask is not None, "rows or a mask"
        return np.flatnonzero(self.mask)

    def to_mask(self) -> Mask:
        """Returns the set as a mask with a bit per row, which the caller must not change."""
        if self.mask is not None:
            return self.mask
        mask = np.zeros(self.size, np.bool_)
        mask[self.rows] = True
        return mask


class Sets(NamedTuple):
    """Two sets of records: those that certainly match (`sure`), and those that may match (`maybe`), which include the
    first.
    """

    sure: Docs
    maybe: Docs

    def combine(self, other: Sets, operation: Callable[[Docs, Docs], Docs]) -> Sets:
        """Returns the intersection or union with other sets. It is computed once if the run decides every record."""
        sure = operation(self.sure, other.sure)
        is_decided = self.sure is self.maybe and other.sure is other.maybe
        return Sets(sure, sure if is_decided else operation(self.maybe, other.maybe))
