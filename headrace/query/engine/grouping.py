"""Sums the groups of an aggregate as arrays: rows of `agg`, picked records and scanned groups become blocks, and blocks
are added up.

A block has one element per row: the start of its interval, the number of its key, and the values of each shown measure.
Rows with equal start and key are summed, whatever block they come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.index import docsets
from headrace.query.language.rollup import Key, Part, Row, key_text

Int64s = NDArray[np.int64]
Doubles = NDArray[np.float64]

_MOST_NUMBERS = 2**62
_DENSE = 4_000_000  # cells of a histogram table (groups by buckets) up to which it is summed as one


class Numbers:
    """A numbering of values: each distinct value gets the next number from 0 on, in the order in which they are first
    seen.
    """

    def __init__(self) -> None:
        """Creates an empty numbering."""
        self.values: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def of(self, value: Any) -> int:
        """Returns the number of a value; a new value gets the next number."""
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self.values)
            self.values.append(value)
        return found

    def of_all(self, values: Iterable[Any]) -> Int64s:
        """Returns the number of each value; a new value gets the next number."""
        return np.fromiter(map(self.of, values), np.int64)


class Entries(NamedTuple):
    """The histograms of a measure as three arrays: row `rows[i]` has `counts[i]` values in the bucket of number
    `buckets[i]`.
    """

    rows: Int64s
    buckets: Int64s
    counts: Doubles


_NO_ENTRIES = Entries(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


class MeasureBlock(NamedTuple):
    """The values of one measure, by row: counts, sums, least and greatest values, histogram. A row without values has nan
    for everything but the count.
    """

    counts: Doubles
    sums: Doubles
    least: Doubles
    greatest: Doubles
    histogram: Entries = _NO_ENTRIES


class Block(NamedTuple):
    """Groups as arrays: row `i` has the interval start `starts[i]` (milliseconds) and the key of number `keys[i]`.
    `measures` are in the order in which they are shown.
    """

    starts: Int64s
    keys: Int64s
    measures: tuple[MeasureBlock, ...]


class Shape:
    """The dimensions and measures that a request shows, and the numbering of keys and buckets that all blocks of the
    request share.

    Attributes:
        dimensions: positions of the shown dimensions among the rollup's dimensions.
        measures: positions of the shown measures among the rollup's measures.
    """

    def __init__(self, names: Sequence[str], dimensions: Sequence[int], measures: Sequence[int]) -> None:
        """Creates a shape that shows these dimensions, called `names`, and these measures."""
        self.names = tuple(names)
        self.dimensions = tuple(dimensions)
        self.measures = tuple(measures)
        self.keys = Numbers()
        self.buckets = Numbers()

    def project(self, dimensions: Key) -> Key:
        """Returns the shown dimensions of a group."""
        return tuple(dimensions[place] for place in self.dimensions)

    def key_texts(self) -> list[str]:
        """Returns the JSON text of each key, by number."""
        return [key_text(self.names, key) for key in self.keys.values]

    def number_keys(self, codes: Sequence[Int64s], texts: Sequence[Sequence[str]], count: int) -> Int64s:
        """Returns the number of each of `count` keys; a new key gets the next number.

        Args:
            codes: per shown dimension, the index in `texts` of each row's value; -1 for none.
        """
        if not codes:
            return np.full(count, self.keys.of(()), np.int64)
        combined, size = np.zeros(count, np.int64), 1
        for one, found in zip(codes, texts, strict=True):
            if size * (len(found) + 1) > _MOST_NUMBERS:
                combined = np.unique(combined, return_inverse=True)[1].astype(np.int64)
                size = count
            combined = combined * (len(found) + 1) + one + 1
            size *= len(found) + 1
        _, first, back = np.unique(combined, return_index=True, return_inverse=True)
        numbers = self.keys.of_all(
            tuple(None if one[row] < 0 else found[one[row]] for one, found in zip(codes, texts, strict=True))
            for row in first.tolist()
        )
        return numbers[back]


def of_rows(rows: Sequence[Row], shape: Shape) -> Block:
    """Converts rollup rows, summed record by record, to a block."""
    measures = []
    for place in shape.measures:
        parts = [row.parts[place] for row in rows]
        entries = [
            (number, shape.buckets.of(bucket), count)
            for number, part in enumerate(parts)
            for bucket, count in (part.histogram or {}).items()
        ]
        measures.append(
            MeasureBlock(
                np.array([part.count for part in parts], np.float64),
                _doubles([part.sum for part in parts]),
                _doubles([part.min for part in parts]),
                _doubles([part.max for part in parts]),
                Entries(
                    np.array([entry[0] for entry in entries], np.int64),
                    np.array([entry[1] for entry in entries], np.int64),
                    np.array([entry[2] for entry in entries], np.float64),
                ),
            )
        )
    starts = np.array([row.start_ms for row in rows], np.int64)
    return Block(starts, shape.keys.of_all(shape.project(row.dimensions) for row in rows), tuple(measures))


def _doubles(values: Sequence[float | None]) -> Doubles:
    return np.array([np.nan if value is None else value for value in values], np.float64)


def of_starts(block: Block, wanted: Int64s) -> Block:
    """Returns the rows of a block whose interval starts at one of these times."""
    kept = docsets.are_among(block.starts, wanted)
    if kept.all():
        return block
    row_of = np.cumsum(kept) - 1
    measures = []
    for measure in block.measures:
        own = kept[measure.histogram.rows]
        entries = Entries(
            row_of[measure.histogram.rows[own]], measure.histogram.buckets[own], measure.histogram.counts[own]
        )
        measures.append(
            MeasureBlock(
                measure.counts[kept], measure.sums[kept], measure.least[kept], measure.greatest[kept], entries
            )
        )
    return Block(block.starts[kept], block.keys[kept], tuple(measures))


class Sums:
    """The measures of several blocks added up: each group once, ordered by the start of its interval and its key's text.

    Attributes:
        starts, keys: the start and the key's JSON text of each group.
    """

    def __init__(self, blocks: Sequence[Block], shape: Shape) -> None:
        """Adds up the blocks, which all have the same shape."""
        self._shape = shape
        texts = shape.key_texts()
        starts = _joined([block.starts for block in blocks], np.int64)
        numbers = _joined([block.keys for block in blocks], np.int64)
        ranks = np.empty(len(texts), np.int64)
        ranks[np.array(sorted(range(len(texts)), key=texts.__getitem__), np.int64)] = np.arange(len(texts))
        order = np.lexsort((ranks[numbers], starts)) if len(texts) else np.empty(0, np.int64)
        starts, numbers = starts[order], numbers[order]
        is_first = np.ones(len(order), bool)
        is_first[1:] = (starts[1:] != starts[:-1]) | (numbers[1:] != numbers[:-1])
        firsts = np.flatnonzero(is_first)
        self.starts: Int64s = starts[firsts]
        self.keys = [texts[number] for number in numbers[firsts].tolist()]
        group_of = np.empty(len(order), np.int64)
        group_of[order] = np.cumsum(is_first) - 1
        self._measures = [
            self._measure([block.measures[place] for block in blocks], order, firsts, group_of)
            for place in range(len(shape.measures))
        ]

    def _measure(
        self, blocks: Sequence[MeasureBlock], order: Int64s, firsts: Int64s, group_of: Int64s
    ) -> tuple[list[float], list[float], list[float], list[float], Iterator[dict[str, float] | None]]:
        def summed(of: Callable[[MeasureBlock], Doubles], add: np.ufunc) -> list[float]:
            values = _joined([of(block) for block in blocks], np.float64)[order]
            if not len(firsts):
                return []
            if add is np.add:
                values = np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf)
            with np.errstate(all="ignore"):  # an overflow is infinite, and shown as null
                return add.reduceat(values, firsts).tolist()  # type: ignore[no-any-return]

        ends = np.cumsum([0, *(len(block.counts) for block in blocks)])
        histogram = Entries(
            _joined([block.histogram.rows + end for block, end in zip(blocks, ends, strict=False)], np.int64),
            _joined([block.histogram.buckets for block in blocks], np.int64),
            _joined([block.histogram.counts for block in blocks], np.float64),
        )
        return (
            summed(lambda block: block.counts, np.add),
            summed(lambda block: block.sums, np.add),
            summed(lambda block: block.least, np.fmin),
            summed(lambda block: block.greatest, np.fmax),
            self._histograms(histogram, group_of, len(firsts)),
        )

    def _histograms(self, entries: Entries, group_of: Int64s, groups: int) -> Iterator[dict[str, float] | None]:
        names: list[str] = self._shape.buckets.values
        width = len(names)
        if not len(entries.rows):
            return iter([None] * groups)
        places = group_of[entries.rows] * width + entries.buckets
        if groups * width <= _DENSE:
            counted = np.bincount(places, minlength=1)
            cells = np.flatnonzero(counted)
            counts = np.bincount(places, entries.counts)[cells]
        else:
            cells, back = np.unique(places, return_inverse=True)
            counts = np.bincount(back, entries.counts)
        bounds = np.searchsorted(cells, np.arange(groups + 1) * width).tolist()
        buckets = (cells % width).tolist()
        values = counts.tolist()
        return (
            {names[bucket]: count for bucket, count in zip(buckets[a:b], values[a:b], strict=True)} or None
            for a, b in pairwise(bounds)
        )

    def parts(self) -> Iterator[tuple[Part, ...]]:
        """Yields for each group the parts of the shown measures. It can be iterated only once."""
        columns = [
            (Part(*_finite(*numbers), histogram) for *numbers, histogram in zip(*one, strict=True))
            for one in self._measures
        ]
        return zip(*columns, strict=True)


def _finite(
    count: float, total: float, least: float, greatest: float
) -> tuple[float, float | None, float | None, float | None]:
    """Returns the numbers of a part, with None in place of nan."""
    if least != least:
        return count, None, None, None
    return count, total, least, greatest


def _joined(arrays: Sequence[NDArray[Any]], dtype: type) -> NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.empty(0, dtype)
