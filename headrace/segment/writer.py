"""Segments, records to bytes: format version 1. Only this module imports pyarrow.

Parquet with one row group, zstd level 3, and these columns:

    offset        INT64, DELTA_BINARY_PACKED
    append_time   TIMESTAMP(ms) in UTC, DELTA_BINARY_PACKED; declared without a zone, so that engines show UTC
    key           BYTE_ARRAY (string), PLAIN, optional
    data          BYTE_ARRAY (string for text), PLAIN, required: no levels, no dictionary, no statistics

Every page carries a CRC-32. The file's metadata hold `headrace.version` and `headrace.log_id`.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.record import Record
from headrace.segment import keypage, pageheader
from headrace.segment.descriptor import PageIndex, Segment

VERSION = 1
_LEVEL = 3
_PAGE_BYTES = 48 * 1024
_WINDOW_BYTES = 256 * 1024  # a page ends where a write batch ends: no batch of several records is larger
_BATCHES = (32, 16, 8, 4, 2, 1)


class BuiltSegment(NamedTuple):
    """A segment before it has a place: the object, its key page, and what the manifest must say of them."""

    data: bytes
    key_page: bytes
    pages: PageIndex
    min_time_ms: int
    max_time_ms: int
    payload_bytes: int
    first_offset: int
    records: int

    def describe(self, number: int, key: str) -> Segment:
        """The descriptor of this segment as number `number` of its log, stored under `key`."""
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
        )


def build(records: Sequence[Record], *, text: bool = False, log_id: str = "") -> BuiltSegment:
    """The segment that holds `records`: at least one, contiguous offsets, append times that never fall.

    Args:
        records: up to about 100,000 of up to 64 MiB each; all are in memory at once, and so is the result.
        text: the data are text (a JSON log): declared as a string, so that SQL engines show it. Should one
            record not be UTF-8 after all, the column stays binary.
        log_id: written into the file's metadata.

    Raises:
        ValueError: `records` is empty, has a gap, or its times fall.
    """
    _require_order(records)
    offsets, times, keys, datas = zip(*records, strict=True)
    sizes = [len(data) for data in datas]
    data = _write(_columns(offsets, times, keys, datas, text=text), _batch_size(sizes), log_id)
    return BuiltSegment(
        data=data,
        key_page=keypage.encode(records),
        pages=_page_index(data, sizes),
        min_time_ms=times[0],
        max_time_ms=times[-1],
        payload_bytes=sum(sizes),
        first_offset=offsets[0],
        records=len(records),
    )


def is_text(content_type: str) -> bool:
    """Whether records of this type are text."""
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type == "application/json" or media_type.startswith("text/")


def _require_order(records: Sequence[Record]) -> None:
    if not records:
        raise ValueError("a segment holds at least one record")
    for before, after in pairwise(records):
        if after.offset != before.offset + 1:
            raise ValueError(f"offsets have a gap: expected={before.offset + 1} found={after.offset}")
        if after.time_ms < before.time_ms:
            raise ValueError(f"append time falls: offset={after.offset} {before.time_ms} to {after.time_ms}")


def _columns(
    offsets: Sequence[int],
    times: Sequence[int],
    keys: Sequence[str | None],
    datas: Sequence[bytes],
    *,
    text: bool,
) -> pa.Table:
    payload = pa.array(datas, pa.binary())
    if text:
        # Not UTF-8 after all? A segment that shows bytes is better than a log that can't be sealed.
        with contextlib.suppress(pa.ArrowInvalid):
            payload = payload.cast(pa.string())
    schema = pa.schema(
        [
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("append_time", pa.timestamp("ms"), nullable=False),
            pa.field("key", pa.string()),
            pa.field("data", payload.type, nullable=False),
        ]
    )
    columns = [
        pa.array(offsets, pa.int64()),
        pa.array(times, pa.int64()).cast(pa.timestamp("ms")),
        pa.array(keys, pa.string()),
        payload,
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _batch_size(sizes: Sequence[int]) -> int:
    """Records per write batch: the most with which no batch of several records exceeds the window."""
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
            "offset": "DELTA_BINARY_PACKED",
            "append_time": "DELTA_BINARY_PACKED",
            "key": "PLAIN",
            "data": "PLAIN",
        },
        write_statistics=["offset", "append_time", "key"],
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


def _page_index(data: bytes, sizes: Sequence[int]) -> PageIndex:
    """Walks the page headers of the `data` column, as the reader will."""
    column = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0).column(3)
    start = at = column.data_page_offset
    end = start + column.total_compressed_size
    page_sizes, counts, payload = [], [], []
    row = 0
    while at < end:
        header = pageheader.parse(data, at)
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
