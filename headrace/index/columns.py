"""Columns of `col` as NumPy arrays, and tests of their values: equality, comparison, beginning of a keyword."""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.query.language.canonical import Value


class Column(NamedTuple):
    """A field's values, one per record of the run, in the order of offsets.

    Attributes:
        values: int64 (integers, dates as milliseconds), float64, bool, int32 (numbers of words), or for keywords
            unsigned indexes into `dictionary`; arbitrary where there is no value.
        valid: a mask of the rows that have a value; None means all rows.
        dictionary: the distinct keywords, ascending as bytes (and code points); None for other kinds.
    """

    values: NDArray[Any]
    valid: NDArray[np.bool_] | None
    dictionary: list[str] | None

    @property
    def nbytes(self) -> int:
        """The memory that the column takes, approximately."""
        masks = self.valid.nbytes if self.valid is not None else 0
        strings = sum(map(len, self.dictionary)) + 60 * len(self.dictionary) if self.dictionary else 0
        return self.values.nbytes + masks + strings


def column(found: pa.ChunkedArray) -> Column:
    """Converts a column of Arrow rows of `col` to NumPy arrays."""
    if pa.types.is_dictionary(found.type):
        return _keywords(found)
    values = found.combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], found.type)
    valid = _valid(values)
    if pa.types.is_timestamp(values.type):
        values = values.view(pa.int64())
    if valid is not None:
        values = values.fill_null(False if pa.types.is_boolean(values.type) else 0)
    return Column(values.to_numpy(zero_copy_only=False), valid, None)


def _keywords(found: pa.ChunkedArray) -> Column:
    unified = found.unify_dictionaries()
    chunks = [unified.chunk(number) for number in range(unified.num_chunks)]
    dictionary: list[str] = chunks[0].dictionary.to_pylist() if chunks else []
    indices = pa.concat_arrays([chunk.indices for chunk in chunks]) if chunks else pa.array([], pa.int32())
    valid = _valid(indices)
    codes = (indices.fill_null(0) if valid is not None else indices).to_numpy()
    kind = _unsigned(len(dictionary))
    if all(before < behind for before, behind in pairwise(dictionary)):  # as writers leave it
        return Column(codes.astype(kind), valid, dictionary)
    order = sorted(range(len(dictionary)), key=dictionary.__getitem__)
    rank = np.empty(len(order), kind)
    rank[order] = np.arange(len(order), dtype=kind)
    return Column(rank.take(codes), valid, [dictionary[number] for number in order])


def _unsigned(count: int) -> type[np.unsignedinteger[Any]]:
    return np.uint8 if count <= 1 << 8 else np.uint16 if count <= 1 << 16 else np.uint32


def _valid(values: pa.Array) -> NDArray[np.bool_] | None:
    if not values.null_count:
        return None
    found: NDArray[np.bool_] = values.is_valid().to_numpy(zero_copy_only=False)
    return found


_LEAST, _GREATEST = -(2**63), 2**63 - 1  # what a column of integers can hold: other values are lossy


def equal_to(value: Value) -> Callable[[Column], Any]:
    """Returns a function that tests the rows of a column for equality with a canonical value."""

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
    """Returns a function that tests whether the rows of a column are below or above a value; `comparison` is `<`, `<=`,
    `>` or `>=`.
    """
    holds = _HOLDS[comparison]

    def rows(column: Column) -> Any:
        if isinstance(value, int) and not _LEAST <= value <= _GREATEST:
            answer = holds(0, value)  # every value of the column is on the same side
            return np.full(len(column.values), answer)
        return holds(column.values, value)

    return rows


def beginning(column: Column, text: str) -> Any:
    """Returns a mask of the rows whose keyword begins with a text."""
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
