"""Building a run from segments: what one segment adds to each family of the run, as partial rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from emr_jobs import extract, intervals, layout, reports, rollups, segments, stores
from emr_jobs.extract import Extracted
from emr_jobs.layout import Bucket, Place, Wanted
from headrace.definition import Definition
from headrace.errors import Damaged
from headrace.index import descriptors
from headrace.index.descriptors import Family, Plan
from headrace.index.job import Task
from headrace.query.language import rollup
from headrace.segment.descriptor import Segment

# How large the rows of a family are in Spark, for each byte of records. Rough: it only shares out the work.
_SHARES: dict[Family, float] = {"kw": 0.4, "fts": 0.4, "lex": 0.1, "col": 0.1, "agg": 0.05, "mblk": 0.5}

_KEY_BYTES = 32
_IPC = pa.ipc.IpcWriteOptions(compression="zstd")

Places = Mapping[Place, Sequence[Bucket]]


def wanted(number: int, task: Task, plan: Plan | None) -> list[Wanted]:
    """Returns the buckets (sets of rows, each written by one worker) of a task: one for each family of the run, and one
    for its counts and failures.

    Raises:
        Damaged: the segments don't hold all records of the task, without a gap.
    """
    at = task.first_offset
    for segment in task.segments:
        if not segment.first_offset <= at < segment.end_offset:
            raise Damaged(f"segments have a gap: log={task.log_id} expected={at} found={segment.first_offset}")
        at = segment.end_offset
    if at < task.end_offset:
        raise Damaged(f"segments end too soon: log={task.log_id} expected={task.end_offset} found={at}")
    total = sum(weight(segment, plan) for segment in task.segments)
    families = plan.families if plan else ("lex",)
    found = [Wanted(number, family, 0, b"", int(total * _SHARES[family])) for family in families]
    return [*found, Wanted(number, "notes", 0, b"", 0)]


def weight(segment: Segment, plan: Plan | None) -> int:
    """Estimates how many decoded bytes of a segment a build reads: payloads if there is a plan, otherwise keys only."""
    return segment.payload_bytes if plan else segment.count * _KEY_BYTES


def rows(door: stores.Door, task: Task, segment: Segment, places: Places) -> Iterator[pa.RecordBatch]:
    """Reads a segment and yields the partial rows (`layout.ARROW`) that it adds to each family of the run.

    Raises:
        Damaged: an object is not what was published, or a record is one that an append would have refused.
        StoreError: the store still fails after retries.
    """
    definition = stores.load_definition_once(door, task.definition)
    objects = stores.open_bucket(door)
    plan = descriptors.plan_of(definition)
    read = segments.read if plan else segments.read_keys
    records = stores.retry(lambda: read(objects, segment, task.first_offset, task.end_offset))
    found = extract.extract(records, definition, plan)
    yield from _rows(
        found, definition, records.first_offset, {place: buckets[0] for place, buckets in places.items()}
    )


def _rows(
    found: Extracted, definition: Definition, first_offset: int, places: dict[Place, Bucket]
) -> Iterator[pa.RecordBatch]:
    for family, rows_ in (("kw", found.kw), ("fts", found.fts), ("lex", found.lex)):
        if len(rows_.terms):
            yield from layout.postings_rows(places[family], rows_)  # type: ignore[index]
    if found.col is not None:
        yield from layout.body_rows(places["col"], [(b"", first_offset, _table_bytes(found.col))])
    if found.agg:
        assert definition.search is not None, "it has rollups"
        compiled = rollup.rollups(definition.search)
        groups = sorted((rollups.sort_key(row, compiled), first_offset, rollups.pack(row)) for row in found.agg)
        yield from layout.body_rows(places["agg"], groups)
    if found.mblk:
        metrics = [(intervals.sort_key(row), row["offset"], intervals.pack(row)) for row in found.mblk]
        yield from layout.body_rows(places["mblk"], sorted(metrics))
    note = reports.encode(reports.Counted(places["notes"].task, first_offset, found.counts))
    yield from layout.body_rows(places["notes"], [(b"", first_offset, note)])


def _table_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_IPC) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def table(data: Any) -> pa.Table:
    """Decodes the body of a partial row of `col`, an Arrow stream, to a table."""
    return pa.ipc.open_stream(data).read_all()
