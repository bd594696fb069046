"""The first rows of a run in an order: numbers all the way, and never a sort of everything."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.index.columns import Column
from headrace.index.docsets import Mask, Rows
from headrace.query.language.sorting import Key, SortTerm

Numbers = NDArray[Any]


class Ranked(NamedTuple):
    """What one sort term says of some rows.

    Attributes:
        numbers: that rise in the term's order, or fall if it is descending; arbitrary where there is no value.
        valid: where there is a value; None: everywhere.
        dictionary: of keywords: `numbers` are places in it.
    """

    numbers: Numbers
    valid: Mask | None
    dictionary: list[str] | None

    def at(self, places: Any) -> Ranked:
        """Of some of the rows."""
        valid = None if self.valid is None else self.valid[places]
        return Ranked(self.numbers[places], valid, self.dictionary)

    def value(self, place: int) -> Any:
        """The value as hits show it."""
        if self.valid is not None and not self.valid[place]:
            return None
        found = self.numbers[place].item()
        return found if self.dictionary is None else self.dictionary[found]


def of_column(column: Column, rows: Rows) -> Ranked:
    """A field's values in some rows."""
    numbers = column.values[rows]
    valid = None if column.valid is None else column.valid[rows]
    if column.dictionary is not None:
        numbers = numbers.astype(np.int64)
    return Ranked(numbers, valid, column.dictionary)


def absent(rows: Rows) -> Ranked:
    """Of a field that no record of the run has."""
    return Ranked(np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_), None)


def of_numbers(numbers: Numbers) -> Ranked:
    """Of offsets or scores."""
    return Ranked(numbers, None, None)


def behind(ranked: Sequence[Ranked], sort: Sequence[SortTerm], after: Key) -> Mask:
    """Which rows stand behind the place `after`."""
    size = len(ranked[0].numbers)
    found, level = np.zeros(size, np.bool_), np.ones(size, np.bool_)
    for one, term, bound in zip(ranked, sort, after, strict=True):
        above, equal = _against(one, bound)
        if one.valid is not None:  # an absent value stands above every other
            above, equal = above | ~one.valid, equal & one.valid
        if bound is None:
            equal = np.zeros(size, np.bool_) if one.valid is None else ~one.valid
            above = np.zeros(size, np.bool_)
        passed = ~above & ~equal if term.descending else above
        found |= level & passed
        level &= equal
    return found


def _against(one: Ranked, bound: Any) -> tuple[Mask, Mask]:
    """Where the numbers are above a value, and where they equal it."""
    size = len(one.numbers)
    if bound is None:
        return np.zeros(size, np.bool_), np.zeros(size, np.bool_)
    if one.dictionary is not None:
        place = bisect_left(one.dictionary, bound)
        is_there = place < len(one.dictionary) and one.dictionary[place] == bound
        if is_there:
            return one.numbers > place, one.numbers == place
        return one.numbers >= place, np.zeros(size, np.bool_)
    if isinstance(bound, int) and not -(2**63) <= bound < 2**63:
        return np.full(size, bound < 0), np.zeros(size, np.bool_)
    if isinstance(bound, str):  # the field has no value here at all
        return np.zeros(size, np.bool_), np.zeros(size, np.bool_)
    return one.numbers > bound, one.numbers == bound


def first(ranked: Sequence[Ranked], sort: Sequence[SortTerm], size: int) -> NDArray[np.int64]:
    """Places of the first `size` rows, in no order."""
    keys: list[Numbers] = []
    for one, term in zip(ranked, sort, strict=True):
        if one.valid is not None:
            keys.append(one.valid.astype(np.int8) if term.descending else (~one.valid).astype(np.int8))
        rising = one.numbers if not term.descending else _falling(one.numbers)
        keys.append(rising if one.valid is None else np.where(one.valid, rising, 0))
    return _first(np.arange(len(ranked[0].numbers)), keys, size)


def _falling(numbers: Numbers) -> Numbers:
    """Numbers in the reverse order; the least integer has no negative."""
    if numbers.dtype == np.bool_:
        return ~numbers
    return -numbers if np.issubdtype(numbers.dtype, np.floating) else ~numbers.astype(np.int64)


def _first(places: NDArray[np.int64], keys: list[Numbers], size: int) -> NDArray[np.int64]:
    if len(places) <= size or not keys:
        return places[:size]
    key = keys[0]
    limit = np.partition(key, size - 1)[size - 1]
    better = np.flatnonzero(key < limit)
    ties = np.flatnonzero(key == limit)
    rest = _first(places[ties], [one[ties] for one in keys[1:]], size - len(better))
    return np.concatenate([places[better], rest])
