"""Reads one Parquet part by ranges: finds the byte ranges of column chunks, and decodes fetched ranges to Arrow tables.
Columns of `col` become NumPy arrays, with tests of their values: equality, comparison, beginning of a keyword.
"""

from __future__ import annotations

import io
import operator
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from headrace.errors import Damaged
from headrace.index.descriptors import Part
from headrace.objects import Range
from headrace.query.language.canonical import Value


class PartReader:
    """A reader of one part (a Parquet object of an index run), whose footer the descriptor holds. Thread-safe.

    Raises (all members):
        Damaged: the part differs from what its descriptor says.
    """

    def __init__(self, part: Part, *, dictionaries: bool = False) -> None:
        """Creates a reader. With `dictionaries`, texts are read as dictionary indexes."""
        self.part = part
        self._dictionaries = dictionaries

    @cached_property
    def _metadata(self) -> Any:
        with damage(self.part.key):
            found = pq.read_metadata(pa.BufferReader(self.part.footer))
        if found.num_rows != self.part.rows:
            raise Damaged(f"index part has other rows: object={self.part.key} rows={found.num_rows}")
        if found.num_row_groups * found.num_columns != len(self.part.sums):
            raise Damaged(f"index part has other column chunks: object={self.part.key} sums={len(self.part.sums)}")
        return found

    @cached_property
    def _leaves(self) -> dict[str, tuple[int, ...]]:
        """The numbers of the Parquet leaf columns below each column."""
        schema = self._metadata.schema
        found: dict[str, list[int]] = {}
        tops = _tops(schema.to_arrow_schema())
        for number, top in enumerate(tops):
            found.setdefault(top, []).append(number)
        if len(tops) != self._metadata.num_columns:
            raise Damaged(f"index part has other columns: object={self.part.key}")
        return {name: tuple(numbers) for name, numbers in found.items()}

    @property
    def groups(self) -> int:
        """The number of row groups."""
        return int(self._metadata.num_row_groups)

    def has(self, column: str) -> bool:
        """Returns whether the part has this column."""
        return column in self._leaves

    def rows(self, group: int) -> int:
        """Returns the number of rows of a row group."""
        return int(self._metadata.row_group(group).num_rows)

    def statistics(self, group: int, column: str) -> tuple[Any, Any] | None:
        """Returns the least and greatest value of a flat column in a row group: numbers, or texts as bytes; None if the
        part has no statistics of it.
        """
        with damage(self.part.key):
            found = self._metadata.row_group(group).column(self._leaves_of(column)[0]).statistics
            return (found.min_raw, found.max_raw) if found is not None and found.has_min_max else None

    def span(self, group: int, columns: Sequence[str]) -> Range:
        """Returns the byte range that holds these columns of a row group, including what is between them. Raises Damaged if
        a column is missing, or the range is not inside the part.
        """
        starts, ends = [], []
        row_group = self._metadata.row_group(group)
        for column in columns:
            for number in self._leaves_of(column):
                begin, size = extent(row_group.column(number))
                starts.append(begin)
                ends.append(begin + size)
        start, end = min(starts), max(ends)
        if not 0 < start < end <= self.part.size - len(self.part.footer):
            raise Damaged(f"index part says it ends elsewhere: object={self.part.key} range={start}-{end}")
        return Range(self.part.key, start, end - start)

    def table(self, groups: Sequence[int], columns: Sequence[str], spans: Mapping[int, bytes]) -> pa.Table:
        """Decodes the given columns of the given row groups, in these orders.

        Args:
            spans: the fetched bytes, by the start of their range.
        """
        leaves = [number for column in columns for number in self._leaves_of(column)]
        fetched = _Sparse(self.part, spans)
        with damage(self.part.key):
            self._check(fetched, groups, leaves)
            file = pq.ParquetFile(
                pa.PythonFile(fetched, mode="r"),
                metadata=self._metadata,
                read_dictionary=self._texts(columns),
                pre_buffer=False,  # otherwise it would also fetch what is between the column chunks
            )
            found = file.reader.read_row_groups(list(groups), column_indices=leaves, use_threads=False)
            found = found.select(list(columns))
        if found.num_rows != sum(map(self.rows, groups)):
            raise Damaged(f"index part has other rows: object={self.part.key} rows={found.num_rows}")
        return found

    def _check(self, fetched: _Sparse, groups: Sequence[int], leaves: Sequence[int]) -> None:
        """Raises Damaged unless the column chunks have their checksums. Those of Parquet's pages leave out page headers,
        so that an altered header could give other values.
        """
        for group in groups:
            row_group = self._metadata.row_group(group)
            for number in leaves:
                begin, size = extent(row_group.column(number))
                fetched.seek(begin)
                if zlib.crc32(fetched.read(size)) != self.part.sums[group * self._metadata.num_columns + number]:
                    raise Damaged(f"index part is altered: object={self.part.key} row_group={group} column={number}")

    def _texts(self, columns: Sequence[str]) -> list[str]:
        return [name for name in columns if name in self._types and pa.types.is_string(self._types[name])]

    @cached_property
    def _types(self) -> dict[str, pa.DataType]:
        """The Arrow types of columns; empty unless texts are read as dictionary indexes."""
        schema = self._metadata.schema.to_arrow_schema() if self._dictionaries else ()
        return {field.name: field.type for field in schema}

    def _leaves_of(self, column: str) -> tuple[int, ...]:
        found = self._leaves.get(column)
        if found is None:
            raise Damaged(f"index part lacks a column: object={self.part.key} column={column}")
        return found


def extent(chunk: Any) -> tuple[int, int]:
    """Returns where a column chunk begins in its object, and its size, by its metadata."""
    begin = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        begin = min(begin, chunk.dictionary_page_offset)
    return begin, chunk.total_compressed_size


@contextmanager
def damage(source: str) -> Iterator[None]:
    """Converts any error of the Parquet reader in a block to Damaged, naming the object."""
    try:
        yield
    except Damaged:
        raise
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, IndexError, OverflowError) as exc:
        raise Damaged(f"index part can't be read: object={source} reason={exc!s:.200}") from exc


def check_whole(found: Sequence[bytes], asked: Sequence[Range]) -> None:
    """Checks that each fetched range has its full length.

    Raises:
        Damaged: an object ends before the end of a range.
    """
    for data, one in zip(found, asked, strict=True):
        if len(data) != one.length:
            raise Damaged(f"index object is truncated: object={one.key} expected={one.length} found={len(data)}")


def _tops(schema: pa.Schema) -> list[str]:
    """Returns the name of the top-level column of each Parquet leaf, in the order of leaves."""
    return [field.name for field in schema for _ in range(_count_leaves(field.type))]


def _count_leaves(type_: pa.DataType) -> int:
    if pa.types.is_dictionary(type_) or type_.num_fields == 0:
        return 1
    return sum(_count_leaves(type_.field(number).type) for number in range(type_.num_fields))


class _Sparse(io.RawIOBase):
    """A read-only file of which only some ranges have been fetched; reading anything else raises OSError."""

    def __init__(self, part: Part, spans: Mapping[int, bytes]) -> None:
        self._part = part
        self._spans = spans
        self._starts = sorted(spans)
        self._at = 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def size(self) -> int:
        return self._part.size

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._part.size}[whence]
        self._at = base + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            size = self._part.size - self._at
        place = bisect_right(self._starts, self._at) - 1
        start = self._starts[place] if place >= 0 else 0
        span = self._spans[start] if place >= 0 else b""
        low = self._at - start
        if low + size > len(span):
            raise OSError(f"not fetched: start={self._at} length={size}")
        self._at += size
        return span[low : low + size]


# Columns of `col`.


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
    """Returns a function that gives a mask of a column's rows that equal a canonical value; arbitrary for rows without a
    value.
    """

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
    """Returns a function that gives a mask of a column's rows that are below or above a value, arbitrary for rows without a
    value; `comparison` is `<`, `<=`, `>` or `>=`.
    """
    holds = _HOLDS[comparison]

    def rows(column: Column) -> Any:
        if isinstance(value, int) and not _LEAST <= value <= _GREATEST:
            answer = holds(0, value)  # every value of the column is on the same side
            return np.full(len(column.values), answer)
        return holds(column.values, value)

    return rows


def beginning(column: Column, text: str) -> Any:
    """Returns a mask of the rows whose keyword begins with a text; arbitrary for rows without a value."""
    return _of_keywords(column, lambda keyword: keyword.startswith(text))


def containing(column: Column, text: str) -> Any:
    """Returns a mask of the rows whose keyword, in lower case, holds a text; arbitrary for rows without a value."""
    return _of_keywords(column, lambda keyword: text in keyword.lower())


def _of_keywords(column: Column, holds: Callable[[str], bool]) -> Any:
    assert column.dictionary is not None, "a keyword"
    held = np.fromiter(map(holds, column.dictionary), np.bool_, len(column.dictionary))
    if not len(held):
        return np.zeros(len(column.values), np.bool_)
    return held[np.where(column.values < len(held), column.values, 0)]


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
