"""Encodes records as segments, format version 1. The only module here that imports pyarrow.

A segment is a Parquet object with one row group, zstd level 3, and these columns:

    offset        INT64, DELTA_BINARY_PACKED
    append_time   TIMESTAMP(ms) in UTC, DELTA_BINARY_PACKED; declared without a zone, so that engines show UTC
    key           BYTE_ARRAY (string), PLAIN, optional
    node          BYTE_ARRAY (string), PLAIN, optional; only if a record has one
    hops          INT32, PLAIN, required; only if a record has some
    meta          BYTE_ARRAY (string if it is UTF-8), PLAIN, required: empty for none; only if a record has one
    data          BYTE_ARRAY (string for text), PLAIN, required: no levels, no dictionary, no statistics

Every page has a CRC-32. The file's metadata has `headrace.version` and `headrace.log_id`.
"""

from __future__ import annotations

import contextlib
import hashlib
from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.batch import Batch
from headrace.segment import descriptor, keypage
from headrace.segment.descriptor import PageIndex, Segment

VERSION = 1
_LEVEL = 3
_PAGE_BYTES = 48 * 1024
_WINDOW_BYTES = 256 * 1024  # a page ends where a write batch ends: no batch of several records is larger
_BATCHES = (32, 16, 8, 4, 2, 1)


class BuiltSegment(NamedTuple):
    """An encoded segment that is not stored yet: the bytes of its object and of its key page, and what the manifest
    must say of them.
    """

    data: bytes
    key_page: bytes
    pages: PageIndex
    meta: PageIndex | None
    min_time_ms: int
    max_time_ms: int
    payload_bytes: int
    first_offset: int
    records: int

    def describe(self, number: int, key: str) -> Segment:
        """Returns the segment's descriptor for the manifest, as number `number` of its log, stored under `key`."""
        return Segment(
            number=number,
            key=key,
            first_offset=self.first_offset,
            count=self.records,
            min_time_ms=self.min_time_ms,
            max_time_ms=self.max_time_ms,
            payload_bytes=self.payload_bytes,
            size=len(self.data),
            sha256=hashlib.sha256(self.data).hexdigest(),
            keys_sha256=hashlib.sha256(self.key_page).hexdigest(),
            pages=self.pages,
            meta=self.meta,
        )


def build(first_offset: int, records: Batch, *, text: bool = False, log_id: str = "") -> BuiltSegment:
    """Encodes a segment of these records: at least one, with append times that never decrease.

    Args:
        first_offset: offset of the first record.
        records: up to about 100,000 of up to 64 MiB each, 2 GiB together; the caller keeps these limits, they are not
            checked here. All are in memory at once, and so is the result.
        text: whether the data is text (a JSON log). Then it is declared as a string, so that SQL engines show it; if a
            record is not UTF-8 after all, the column stays binary.
        log_id: written into the file's metadata.

    Raises:
        ValueError: `records` is empty, or its times decrease.
    """
    _require_order(records)
    metas = _meta_sizes(records)
    sizes = records.sizes if metas is None else array("I", map(max, records.sizes, metas))
    data = _write(_columns(first_offset, records, text=text), _batch_size(sizes), log_id)
    times = records.time_ms
    return BuiltSegment(
        data=data,
        key_page=keypage.encode(records),
        pages=_page_index(data, "data", records.sizes),
        meta=None if metas is None else _page_index(data, "meta", metas),
        min_time_ms=times[0] if isinstance(times, list) else times,
        max_time_ms=times[-1] if isinstance(times, list) else times,
        payload_bytes=len(records.data),
        first_offset=first_offset,
        records=len(records),
    )


def is_text(content_type: str) -> bool:
    """Returns whether records of this content type are text: JSON, or any `text/…`."""
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type == "application/json" or media_type.startswith("text/")


def _require_order(records: Batch) -> None:
    if not records:
        raise ValueError("a segment holds at least one record")
    if isinstance(records.time_ms, list) and records.time_ms != sorted(records.time_ms):
        raise ValueError("append times fall")


def _columns(first_offset: int, records: Batch, *, text: bool) -> pa.Table:
    count = len(records)
    columns: list[tuple[str, Any, bool]] = [
        ("offset", pa.array(array("q", range(first_offset, first_offset + count))), False),
        ("append_time", _listed(records.time_ms, count, pa.int64()).cast(pa.timestamp("ms")), False),
        ("key", _listed(records.key, count, pa.string()), True),
    ]
    if records.node is not None:
        columns.append(("node", _listed(records.node, count, pa.string()), True))
    if records.hops:
        columns.append(("hops", _listed(records.hops, count, pa.int32()), False))
    if records.meta is not None:
        meta = [one or b"" for one in records.meta] if isinstance(records.meta, list) else records.meta
        columns.append(("meta", _text(_listed(meta, count, pa.binary())), False))
    payload = _binary(records.data, records.sizes)
    columns.append(("data", _text(payload) if text else payload, False))
    schema = pa.schema([pa.field(name, column.type, is_optional) for name, column, is_optional in columns])
    return pa.Table.from_arrays([column for _, column, _ in columns], schema=schema)


def _text(values: pa.Array) -> pa.Array:
    # Not UTF-8 after all? A segment that shows bytes is better than a log that can't be sealed.
    with contextlib.suppress(pa.ArrowInvalid):
        return values.cast(pa.string())
    return values


def _meta_sizes(records: Batch) -> array[int] | None:
    if records.meta is None:
        return None
    if isinstance(records.meta, list):
        return array("I", [len(one or b"") for one in records.meta])
    return array("I", [len(records.meta)]) * len(records)


def _binary(data: bytes, sizes: array[int]) -> pa.Array:
    """Returns these values as an Arrow array that shares the memory of `data`."""
    ends = array("i", accumulate(sizes, initial=0))
    return pa.BinaryArray.from_buffers(pa.binary(), len(sizes), [None, pa.py_buffer(ends), pa.py_buffer(data)])


def _listed(column: Any, count: int, type_: pa.DataType) -> pa.Array:
    return pa.array(column, type_) if isinstance(column, list) else pa.repeat(pa.scalar(column, type_), count)


def _batch_size(sizes: Sequence[int]) -> int:
    """Returns the number of records per write batch: the largest for which no batch of several records exceeds the
    window.
    """
    if max(sizes) * _BATCHES[0] <= _WINDOW_BYTES:
        return _BATCHES[0]
    ends = list(accumulate(sizes, initial=0))
    for batch in _BATCHES[:-1]:
        starts = ends[::batch]
        if max(after - before for before, after in pairwise([*starts, ends[-1]])) <= _WINDOW_BYTES:
            return batch
    return 1


def _write(table: pa.Table, batch_size: int, log_id: str) -> bytes:
    sink = pa.BufferOutputStream()
    writer = pq.ParquetWriter(
        sink,
        table.schema,
        compression="zstd",
        compression_level=_LEVEL,
        use_dictionary=False,
        column_encoding={
            name: "DELTA_BINARY_PACKED" if name in ("offset", "append_time") else "PLAIN"
            for name in table.column_names
        },
        write_statistics=[name for name in table.column_names if name not in ("meta", "data")],
        write_page_index=True,
        write_page_checksum=True,
        data_page_version="1.0",
        data_page_size=_PAGE_BYTES,
        write_batch_size=batch_size,
        store_schema=False,
    )
    with writer:
        writer.write_table(table, row_group_size=len(table))
        writer.add_key_value_metadata({"headrace.version": str(VERSION), "headrace.log_id": log_id})
    return bytes(sink.getvalue())


def _page_index(data: bytes, name: str, sizes: Sequence[int]) -> PageIndex:
    """Returns the page index of a column by walking its page headers, as a reader does. Raises ValueError if they do not
    fit what was written.
    """
    file = pq.ParquetFile(pa.BufferReader(data))
    column = file.metadata.row_group(0).column(file.schema_arrow.names.index(name))
    start = at = column.data_page_offset
    end = start + column.total_compressed_size
    page_sizes, counts, payload = [], [], []
    row = 0
    while at < end:
        header = descriptor.parse_header(data, at)
        page_sizes.append(header.size + header.body)
        counts.append(header.values)
        payload.append(sum(sizes[row : row + header.values]))
        if header.decoded != payload[-1] + 4 * header.values:
            raise ValueError(f"page is not what was written: at={at} header={header} payload={payload[-1]}")
        row += header.values
        at += page_sizes[-1]
    if at != end or row != len(sizes):
        raise ValueError(f"pages do not cover the column: expected={(end, len(sizes))} found={(at, row)}")
    return PageIndex(start=start, sizes=tuple(page_sizes), counts=tuple(counts), payload=tuple(payload))
