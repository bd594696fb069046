"""Reads whole segments: one GET each, and every byte is checked against the descriptor."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.batch import Batch
from headrace.errors import Damaged
from headrace.objects import ObjectMissing, Objects
from headrace.objects import keys as object_keys
from headrace.segment import keypage
from headrace.segment.descriptor import Segment

# All of them, in their order, some of them optional: a merge must not leave one out.
_COLUMNS = ("offset", "append_time", "key", "node", "hops", "meta", "data")
_OPTIONAL = frozenset({"node", "hops", "meta"})
_SEARCHED = ["append_time", "key", "node", "data"]  # one that is not there is left out


class Records(NamedTuple):
    """Consecutive records of a log.

    Attributes:
        first_offset: the offset of the first record.
        keys: their routing keys, strings with nulls.
        data: their payloads; empty if only keys were read.
        nodes, times: their nodes (strings with nulls) and append times (epoch ms); None if only keys were read.
    """

    first_offset: int
    keys: pa.Array
    data: list[bytes]
    nodes: pa.Array | None = None
    times: pa.Array | None = None


def read(objects: Objects, segment: Segment, first_offset: int, end_offset: int) -> Records:
    """Reads the records of a segment that are in a range of offsets, which must overlap the segment.

    Raises:
        Damaged: the object is missing, or is not the one that was published.
        StoreTimeout, StoreThrottled: from the store.
    """
    raw = checked(objects, segment.key, segment.sha256)
    try:
        table = pq.ParquetFile(pa.BufferReader(raw)).read(columns=_SEARCHED, use_threads=False)
        if "node" not in table.column_names:
            table = table.append_column("node", pa.nulls(table.num_rows, pa.string()))
    except (pa.ArrowException, OSError, KeyError) as exc:
        raise Damaged(f"segment is not Parquet: object={segment.key}") from exc
    if table.num_rows != segment.count:
        raise Damaged(f"segment has other records: object={segment.key} rows={table.num_rows}")
    start = max(first_offset - segment.first_offset, 0)
    end = min(end_offset, segment.end_offset) - segment.first_offset
    part = table.slice(start, end - start)
    keys, nodes, times, data = (_whole(part[name]) for name in ("key", "node", "append_time", "data"))
    times = times.cast(pa.timestamp("ms")).cast(pa.int64())
    return Records(segment.first_offset + start, keys, data.cast(pa.binary()).to_pylist(), nodes, times)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.array([], column.type)  # of nothing, it stays chunked


def read_records(objects: Objects, segment: Segment) -> Batch:
    """Reads every record of a segment, with all its columns.

    Raises:
        Damaged: the object is missing, or is not the one that was published, or has other records than it should.
        StoreTimeout, StoreThrottled: from the store.
    """
    return records_in(checked(objects, segment.key, segment.sha256), segment)


def records_in(raw: bytes, segment: Segment) -> Batch:
    """Decodes every record from the bytes of a segment.

    Raises:
        Damaged: it has other records than it should, or columns that this version does not know.
    """
    try:
        table = pq.read_table(pa.BufferReader(raw), use_threads=False)
        names = frozenset(table.column_names)
        if tuple(table.column_names) != tuple(one for one in _COLUMNS if one not in _OPTIONAL or one in names):
            raise Damaged(f"segment has other columns: object={segment.key} found={table.column_names}")
        offsets = table["offset"].to_pylist()
        records = Batch.of(
            table["data"].cast(pa.binary()).to_pylist(),
            key=table["key"].to_pylist(),
            node=table["node"].to_pylist() if "node" in names else None,
            meta=[one or None for one in table["meta"].cast(pa.binary()).to_pylist()] if "meta" in names else None,
            hops=table["hops"].to_pylist() if "hops" in names else 0,
            time_ms=table["append_time"].cast(pa.timestamp("ms")).cast(pa.int64()).to_pylist(),
        )
    except (pa.ArrowException, OSError, KeyError) as exc:
        raise Damaged(f"segment is not Parquet: object={segment.key}") from exc
    times = records.time_ms if isinstance(records.time_ms, list) else [records.time_ms]
    found = (offsets, len(records.data), times[0], times[-1])
    expected = list(range(segment.first_offset, segment.end_offset))
    if found != (expected, segment.payload_bytes, segment.min_time_ms, segment.max_time_ms):
        raise Damaged(f"segment has other records: object={segment.key} rows={len(records)}")
    return records


def read_keys(objects: Objects, segment: Segment, first_offset: int, end_offset: int) -> Records:
    """Reads the routing keys of a range of records from the segment's key page, which is much smaller than the segment.
    Returns records without payloads.

    Raises:
        Damaged: the page is missing, or is not the one that was published.
        StoreTimeout, StoreThrottled: from the store.
    """
    source = object_keys.segment_keys(segment.key)
    raw = checked(objects, source, segment.keys_sha256)
    page = keypage.decode(raw, sha256=segment.keys_sha256, count=segment.count, source=source)
    keys = page.key_by_row()
    start = max(first_offset - segment.first_offset, 0)
    end = min(end_offset, segment.end_offset) - segment.first_offset
    return Records(segment.first_offset + start, pa.array(keys[start:end], pa.string()), [])


def checked(objects: Objects, key: str, sha256: str) -> bytes:
    """Loads an object and checks that it has this hash.

    Raises:
        Damaged: the object is missing, or has another hash.
        StoreTimeout, StoreThrottled: from the store.
    """
    try:
        raw = objects.get(key)
    except ObjectMissing as exc:
        raise Damaged(f"object is missing: object={key}") from exc
    found = hashlib.sha256(raw).hexdigest()
    if found != sha256:
        raise Damaged(f"object is not the one published: object={key} expected={sha256} found={found}")
    return raw
