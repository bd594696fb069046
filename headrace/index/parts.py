"""Reads one Parquet part by ranges: finds the byte ranges of column chunks, and decodes fetched ranges to Arrow
tables.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import Damaged
from headrace.index.descriptors import Part
from headrace.objects import Range


class PartReader:
    """A reader of a part, whose footer the descriptor holds. Thread-safe.

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
        """Returns the byte range that holds these columns of a row group, including what is between them."""
        starts, ends = [], []
        row_group = self._metadata.row_group(group)
        for column in columns:
            for number in self._leaves_of(column):
                chunk = row_group.column(number)
                begin = chunk.data_page_offset
                if chunk.has_dictionary_page and chunk.dictionary_page_offset:
                    begin = min(begin, chunk.dictionary_page_offset)
                starts.append(begin)
                ends.append(begin + chunk.total_compressed_size)
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
        with damage(self.part.key):
            file = pq.ParquetFile(
                pa.PythonFile(_Sparse(self.part, spans), mode="r"),
                metadata=self._metadata,
                read_dictionary=self._texts(columns),
                page_checksum_verification=True,
                pre_buffer=False,  # otherwise it would also fetch what is between the column chunks
            )
            found = file.reader.read_row_groups(list(groups), column_indices=leaves, use_threads=False)
            found = found.select(list(columns))
        if found.num_rows != sum(map(self.rows, groups)):
            raise Damaged(f"index part has other rows: object={self.part.key} rows={found.num_rows}")
        return found

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


@contextmanager
def damage(source: str) -> Iterator[None]:
    """Converts any error of the Parquet reader to Damaged, naming the object."""
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
