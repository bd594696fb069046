"""Compacting runs: reads the parts of several runs as partial rows, which are then merged into one run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from emr_jobs import intervals, layout, postings, rollups, segments, stores
from emr_jobs.extract import Counts, FieldCounts
from emr_jobs.layout import Bucket, Wanted
from emr_jobs.postings import Postings
from headrace.errors import Damaged
from headrace.index.descriptors import Descriptor, Family, Part, Run, decode
from headrace.index.job import Task
from headrace.objects import Objects
from headrace.query.language import rollup

_RANGE_BYTES = 40 * 1024 * 1024  # a part has at most 64 MiB, and ranges are not exact


class Reference(msgspec.Struct, frozen=True):
    """A reference to an object with columns of an index run. The worker that merges fetches the object itself, because
    passing it through Spark would only cost.
    """

    key: str
    sha256: str


def inputs(objects: Objects, task: Task) -> list[Descriptor]:
    """Loads the descriptors of the runs that a task merges.

    Raises:
        Damaged: a descriptor is missing or altered, or the runs don't cover all records of the task in order.
        StoreError: the store still fails after retries.
    """
    at, found = task.first_offset, []
    for run in task.inputs:
        descriptor = stores.retry(lambda run=run: _descriptor(objects, run))  # type: ignore[misc]
        if (descriptor.log_id, descriptor.first_offset, descriptor.plan) != (task.log_id, at, task.plan):
            raise Damaged(f"run is not the next one: log={task.log_id} run={run.id} expected={at}")
        at = descriptor.end_offset
        found.append(descriptor)
    if at != task.end_offset:
        raise Damaged(f"runs end elsewhere: log={task.log_id} expected={task.end_offset} found={at}")
    return found


def _descriptor(objects: Objects, run: Run) -> Descriptor:
    raw = segments.checked(objects, run.descriptor, run.sha256)
    return decode(raw, run.descriptor)


def wanted(number: int, descriptors: Sequence[Descriptor], families: Sequence[Family]) -> list[Wanted]:
    """Returns the buckets (sets of rows, each written by one worker) of a task: for each family one, or for postings
    one for each range of terms, so that no part gets too large; and one for counts and failures.
    """
    found = [Wanted(number, "notes", 0, b"", 0)]
    for family in families:
        parts = [part for one in descriptors for part in one.parts.get(family, ())]
        lows = _lows(parts) if family in ("kw", "fts", "lex") else [b""]
        weight = sum(part.size for part in parts) * 3 // len(lows)
        found += [Wanted(number, family, place, low, weight) for place, low in enumerate(lows)]
    return found


def _lows(parts: Sequence[Part]) -> list[bytes]:
    """Returns the lowest term of each range, empty for the first. Ranges are of about equal size, estimated from the
    first terms of the parts' row groups.
    """
    count = -(-sum(part.size for part in parts) // _RANGE_BYTES)
    groups = sorted((first, part.size / len(part.first)) for part in parts for first in part.first)
    total = sum(size for _, size in groups)
    lows, passed = [b""], 0.0
    for first, size in groups:
        is_due = passed >= total * len(lows) / max(count, 1)
        if is_due and first > max(lows[-1], groups[0][0]):  # so that no range is empty
            lows.append(first)
        passed += size
    return lows


def counts(descriptors: Sequence[Descriptor]) -> list[Counts]:
    """Returns the counts of records and fields that the descriptors hold, one item for each descriptor."""
    return [
        Counts(
            records=one.end_offset - one.first_offset,
            least_timestamp=one.least_timestamp,
            greatest_timestamp=one.greatest_timestamp,
            fields={
                name: FieldCounts(stats.present, stats.lossy, stats.least, stats.greatest)
                for name, stats in one.fields.items()
            },
        )
        for one in descriptors
    ]


def rows(
    door: stores.Door, task: Task, family: Family, part: Part, order: int, buckets: Sequence[Bucket]
) -> Iterator[pa.RecordBatch]:
    """Reads a part of an input run and yields its rows as partial rows (`layout.ARROW`); for `col`, one row that only
    refers to the part.

    Args:
        order: position of this part among the task's parts; tables are joined in this order.
        buckets: the family's buckets, ordered by range.

    Raises:
        Damaged: the object is not what the descriptor says.
        StoreError: the store still fails after retries.
    """
    bucket = buckets[0]
    if family == "col":
        body = msgspec.msgpack.encode(Reference(part.key, part.sha256))
        yield from layout.body_rows(bucket, [(b"", order, body)])
        return
    for batch in batches(door, part.key, part.sha256):
        if family == "agg":
            definition = stores.load_definition_once(door, task.definition)
            assert definition.search is not None, "it has rollups"
            compiled = rollup.rollups(definition.search)
            groups = [(rollups.sort_key(row, compiled), order, rollups.pack(row)) for row in rollups.rows_of(batch)]
            yield from layout.body_rows(bucket, groups)
        elif family == "mblk":
            found = intervals.rows_of(batch)
            yield from layout.body_rows(
                bucket, [(intervals.sort_key(row), row["offset"], intervals.pack(row)) for row in found]
            )
        else:
            for place, slice_ in _split(postings.of_batch(batch), buckets):
                yield from layout.postings_rows(place, slice_)


def batches(door: stores.Door, key: str, sha256: str) -> Iterator[pa.RecordBatch]:
    """Reads a part and yields its rows, one row group at a time.

    Raises:
        Damaged: the object has another hash, or is not Parquet.
        StoreError: the store still fails after retries.
    """
    raw = stores.retry(lambda: segments.checked(stores.open_bucket(door), key, sha256))
    try:
        file = pq.ParquetFile(pa.BufferReader(raw))
        for number in range(file.num_row_groups):
            group = file.read_row_group(number, use_threads=False)
            yield from group.combine_chunks().to_batches()
    except (pa.ArrowException, OSError) as exc:
        raise Damaged(f"part is not Parquet: object={key}") from exc


def _split(found: Postings, buckets: Sequence[Bucket]) -> Iterator[tuple[Bucket, Postings]]:
    """Splits sorted postings by the buckets' ranges of terms; yields only buckets that get rows."""
    starts = [postings.first_from(found.terms, bucket.low) for bucket in buckets]
    for bucket, start, end in zip(buckets, starts, [*starts[1:], len(found.terms)], strict=True):
        if start < end:
            yield bucket, Postings(*(column.slice(start, end - start) for column in found))
