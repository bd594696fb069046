"""Writes the parts of a run: sorted rows as Parquet objects, with the facts that the descriptor needs about them.

Terms are front coded, numbers are stored as packed differences, and everything is compressed with zstd; by measurement
the smallest encoding that every Parquet reader supports. A row group is the unit of a ranged read, so row groups are
small in families where single terms are looked up.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from headrace.index import families
from headrace.index.descriptors import Family, Part
from headrace.index.parts import extent

PART_BYTES = 64 * 1024 * 1024
COLUMN_ROWS = 1_000_000  # rows of one row group of `col`: a column is one ranged read
_LEVEL = 3
_GROUP_BYTES: dict[Family, int] = {"kw": 160 << 10, "lex": 160 << 10, "fts": 512 << 10}
_GROUP_MEMORY = 2 * 1024 * 1024  # memory of a row group of `agg` or `mblk`, whose rows compress about ten times
_PAGE_BYTES = 64 * 1024
_COLUMN_PAGE_BYTES = 256 * 1024
_DICTIONARY_BYTES = 16 * 1024 * 1024
_FEW = 65_536  # up to so many distinct numbers, a dictionary is smaller

Floats = NDArray[np.float64]


class WrittenPart(NamedTuple):
    """A finished object that is not stored yet: `part` describes `data`, which belongs under `part.key`."""

    part: Part
    data: bytes


def write(
    family: Family, schema: pa.Schema, batches: Iterable[pa.RecordBatch], keys: Iterator[str]
) -> Iterator[WrittenPart]:
    """Yields the parts that hold the rows of `batches`; none if there are no rows. Each part is complete when it is
    yielded.

    Args:
        family: decides sizes of row groups and pages, and encodings.
        schema: schema of the rows (`headrace.index.families`), to which batches are cast.
        batches: rows in the family's order, across batches.
        keys: yields the key of each part.

    Raises:
        ValueError: rows of `kw`, `fts` or `lex` are out of order, or their docs are, or docs and positions differ in
            number.
    """
    groups: Iterator[pa.Table]
    if family == "col":
        groups = map(_with_sorted_dictionaries, _by_rows(batches, schema, COLUMN_ROWS))
    elif family in _GROUP_BYTES:
        groups = _ordered(_by_weight(batches, schema, _GROUP_BYTES[family], _posting_weights), family)
    else:
        groups = _by_weight(batches, schema, _GROUP_MEMORY, _memory_weights)
    part: _Open | None = None
    for group in groups:
        if part is None:
            part = _Open(family, schema, group)
        part.add(group)
        if part.size >= PART_BYTES:
            yield part.close(next(keys))
            part = None
    if part is not None:
        yield part.close(next(keys))


class _Open:
    """A part that is being written: takes row groups, and becomes a `WrittenPart` when it is closed."""

    def __init__(self, family: Family, schema: pa.Schema, sample: pa.Table) -> None:
        self._family = family
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(self._sink, schema, **_options(family, schema, sample))
        self._first: list[bytes] = []
        self._chunks: list[int] = []
        self._rows = 0

    @property
    def size(self) -> int:
        return int(self._sink.tell())

    def add(self, group: pa.Table) -> None:
        if self._family in _GROUP_BYTES:
            first = group.column(0)[0].as_py()
            self._first.append(families.cut(families.text_bytes(first) if isinstance(first, str) else first))
            self._chunks.append(group.column(1)[0].as_py())
        self._writer.write_table(group, row_group_size=group.num_rows)
        self._rows += group.num_rows

    def close(self, key: str) -> WrittenPart:
        self._writer.close()
        data = self._sink.getvalue().to_pybytes()
        footer = data[-8 - int.from_bytes(data[-8:-4], "little") :]
        part = Part(
            key=key,
            size=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            rows=self._rows,
            footer=footer,
            first=tuple(self._first),
            chunks=tuple(self._chunks),
            sums=tuple(_sums(data, pq.read_metadata(pa.BufferReader(footer)))),
        )
        return WrittenPart(part, data)


def _sums(data: bytes, metadata: Any) -> Iterator[int]:
    """Yields the CRC-32 of each column chunk, by row group and Parquet column."""
    view = memoryview(data)
    for group, column in product(range(metadata.num_row_groups), range(metadata.num_columns)):
        begin, size = extent(metadata.row_group(group).column(column))
        yield zlib.crc32(view[begin : begin + size])


def _options(family: Family, schema: pa.Schema, sample: pa.Table) -> dict[str, Any]:
    common: dict[str, Any] = {
        "compression": "zstd",
        "compression_level": _LEVEL,
        "write_page_checksum": True,
        "store_schema": False,
        "data_page_version": "1.0",
        "data_page_size": _PAGE_BYTES,
    }
    if family in _GROUP_BYTES:
        encodings = {
            schema.field(0).name: "DELTA_BYTE_ARRAY",
            "chunk": "DELTA_BINARY_PACKED",
            "docs.list.element": "DELTA_BINARY_PACKED",
        }
        places = ["pos.list.element"] if family == "fts" else False
        # No statistics: the descriptor says where each row group begins.
        return {**common, "use_dictionary": places, "column_encoding": encodings, "write_statistics": False}
    if family == "col":
        dictionaries = [field.name for field in schema if _repeats(field, sample.column(field.name))]
        differences = [
            field.name
            for field in schema
            if field.name not in dictionaries
            and (pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type))
        ]
        return {
            **common,
            "data_page_size": _COLUMN_PAGE_BYTES,
            "dictionary_pagesize_limit": _DICTIONARY_BYTES,
            "use_dictionary": dictionaries or False,
            "column_encoding": dict.fromkeys(differences, "DELTA_BINARY_PACKED") or None,
            "write_statistics": differences or False,
        }
    return {**common, "use_dictionary": True, "write_statistics": True}


def _repeats(field: pa.Field, column: pa.ChunkedArray) -> bool:
    """Returns whether values repeat so often that a dictionary makes the column smaller."""
    if pa.types.is_dictionary(field.type):
        return True
    if pa.types.is_timestamp(field.type) or pa.types.is_boolean(field.type) or field.name == families.OFFSET:
        return False
    distinct: int = pc.count_distinct(column).as_py()
    return distinct <= min(_FEW, len(column) // 4 + 1)


def _with_sorted_dictionaries(table: pa.Table) -> pa.Table:
    """Returns the table with small dictionaries sorted, so that readers of a column need not renumber them."""
    columns = []
    for column in table.columns:
        array = column.chunk(0)
        if pa.types.is_dictionary(array.type) and len(array.dictionary) <= _FEW:
            order = pc.sort_indices(array.dictionary)
            ranks = np.empty(len(order), np.int32)
            ranks[order.to_numpy()] = np.arange(len(order), dtype=np.int32)
            indices = pa.array(ranks).take(array.indices)
            array = pa.DictionaryArray.from_arrays(indices, array.dictionary.take(order))
        columns.append(array)
    return pa.Table.from_arrays(columns, schema=table.schema)


# Cutting rows into row groups, the same way whatever the batches are.


def _by_rows(batches: Iterable[pa.RecordBatch], schema: pa.Schema, most: int) -> Iterator[pa.Table]:
    held: list[pa.Table] = []
    rows = 0
    for batch in batches:
        table = _as(batch, schema)
        while table.num_rows:
            taken = table.slice(0, most - rows)
            held.append(taken)
            rows += taken.num_rows
            table = table.slice(taken.num_rows)
            if rows == most:
                yield _joined(held)
                held, rows = [], 0
    if rows:
        yield _joined(held)


def _by_weight(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, most: int, weigh: Callable[[pa.Table], Floats]
) -> Iterator[pa.Table]:
    """Cuts rows into groups of `most` bytes by `weigh`; a group exceeds that by less than one row."""
    held: list[pa.Table] = []
    weight = 0.0
    for batch in batches:
        table = _as(batch, schema)
        ends = np.cumsum(weigh(table))
        begin = 0
        passed = 0.0
        while begin < table.num_rows:
            end = int(np.searchsorted(ends, passed + most - weight)) + 1
            held.append(table.slice(begin, end - begin))
            if end > table.num_rows:
                weight += float(ends[-1]) - passed
                break
            yield _joined(held)
            begin, passed, held, weight = end, float(ends[end - 1]), [], 0.0
    if held:
        yield _joined(held)


def _as(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    table = pa.Table.from_batches([batch])
    return table if table.schema.equals(schema) else table.select(schema.names).cast(schema)


def _joined(tables: list[pa.Table]) -> pa.Table:
    """Joins tables to one with a single chunk and a single dictionary per column."""
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def _posting_weights(table: pa.Table) -> Floats:
    """Estimates the bytes of each row in the object; within a third, as measured on a million events."""
    names: Floats = pc.binary_length(table.column(0)).to_numpy() * 0.4
    docs = pc.list_value_length(table.column("docs")).to_numpy().astype(np.float64)
    bits = np.maximum(np.log2(65536.0 / np.maximum(docs, 1.0)), 0.0) + 1.5
    weights: Floats = names + docs * bits / 8 + 0.5
    if "pos" in table.column_names:
        weights = weights + pc.list_value_length(table.column("pos")).to_numpy() * 0.55
    return weights


def _memory_weights(table: pa.Table) -> Floats:
    return np.full(table.num_rows, table.nbytes / max(table.num_rows, 1))


# The order that readers rely on.


def _ordered(groups: Iterator[pa.Table], family: Family) -> Iterator[pa.Table]:
    """Checks the order of each group's rows, also across groups, and yields the groups.

    Raises:
        ValueError: see `write`.
    """
    last: pa.Table | None = None
    for group in groups:
        _check_order(group if last is None else pa.concat_tables([last, group]).combine_chunks())
        _check_docs(group, family)
        last = group.slice(group.num_rows - 1)
        yield group


def _check_order(table: pa.Table) -> None:
    """Raises ValueError unless each row has docs, and rows are strictly ascending by term, chunk and first doc."""
    names, chunks = (_array(table, number) for number in (0, 1))
    docs = _array(table, 2)
    starts = docs.offsets.to_numpy()
    if np.any(starts[:-1] == starts[1:]):
        raise ValueError("a row has no docs")
    places = chunks.to_numpy() * 65536 + docs.values.to_numpy()[starts[:-1]]
    before, behind = names.slice(0, len(names) - 1), names.slice(1)
    rises = pc.less(before, behind).to_numpy(zero_copy_only=False)
    is_equal = pc.equal(before, behind).to_numpy(zero_copy_only=False)
    if not np.all(rises | (is_equal & (places[:-1] < places[1:]))):
        raise ValueError("rows are out of order")


def _check_docs(table: pa.Table, family: Family) -> None:
    """Raises ValueError unless the docs within a row are ascending, and distinct except in `fts`, and a row with
    positions has one for each doc.
    """
    docs = _array(table, 2)
    offsets, values = docs.offsets.to_numpy(), docs.values.to_numpy()[: docs.offsets[-1].as_py()]
    values = values[offsets[0] :]
    steps = np.diff(values)
    steps[offsets[1:-1] - offsets[0] - 1] = 1  # the step from one row to the next may go down
    least = 0 if family == "fts" else 1
    if np.any(steps < least) or (len(values) and (values.min() < 0 or values.max() > families.CHUNK_MASK)):
        raise ValueError("docs are out of order")
    if family == "fts":
        places = _array(table, 3)
        lengths = np.diff(places.offsets.to_numpy())
        if not np.all((lengths == 0) | (lengths == np.diff(offsets))):
            raise ValueError("positions are not beside docs")


def _array(table: pa.Table, column: int) -> Any:
    found = table.column(column)
    return found.chunk(0) if found.num_chunks == 1 else found.combine_chunks()
