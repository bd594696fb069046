"""Merging small segments: writes the records of several segments, byte for byte, as one segment with its key page. And
scrubbing: writes a segment again without the content of records that were removed.

Every object that is read is checked against its descriptor. The segment to be written is read back and compared first.
Each attempt uses a new key, so two attempts at once write two objects; the result names one of them, and the other is
an orphan.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql import SparkSession

from emr_jobs import reports, segments, stores
from emr_jobs.reports import Compared, Merged, Report
from emr_jobs.session import map_in_arrow
from emr_jobs.stores import Door
from headrace.batch import Batch, Record, concat
from headrace.errors import Damaged
from headrace.index.job import Task
from headrace.objects import Objects, keys
from headrace.segment import keypage, writer
from headrace.segment.descriptor import Segment


def merge_segments(objects: Objects, task: Task, planned_ms: int, nonce: Callable[[], str]) -> Segment:
    """Merges the segments of a task into one, in which the task's dead records are blank, writes it, and returns its
    descriptor. It takes the number of the first segment that it replaces.

    Args:
        planned_ms: when the job was planned, in epoch milliseconds.
        nonce: returns random letters and digits for the new key.

    Raises:
        Damaged: an object is missing, or is not what was published, or segments don't follow each other.
        StoreError: the store still fails after retries.
    """
    parts: list[Batch] = []
    expected = task.first_offset
    for segment in task.segments:
        if segment.first_offset != expected:
            raise Damaged(f"segments have a gap: log={task.log_id} expected={expected} found={segment.first_offset}")
        parts.append(stores.retry(lambda one=segment: segments.read_records(objects, one)))  # type: ignore[misc]
        expected = segment.end_offset
    if len(task.segments) < 2 - bool(task.dead) or expected != task.end_offset:
        raise Damaged(f"segments are not those of the task: log={task.log_id} expected={task.end_offset}")
    records = blank(concat(parts), task)
    built = writer.build(task.first_offset, records, text=writer.is_text(task.content_type), log_id=task.log_id)
    first = task.segments[0]
    key = keys.merged_segment(task.log_id, first.key, planned_ms, nonce())
    whole = replace(built.describe(first.number, key), blanked=_count_blank(records, task))
    held = (sum(one.count for one in task.segments), len(records.data))
    if (whole.count, whole.payload_bytes) != held or segments.records_in(built.data, whole) != records:
        raise Damaged(f"merged segment holds other records: log={task.log_id} expected={held}")
    stores.retry(lambda: objects.put(key, built.data))
    stores.retry(lambda: objects.put(keys.segment_keys(key), built.key_page))
    return whole


def blank(records: Batch, task: Task) -> Batch:
    """Returns the records of a task; of the dead ones, nothing is left but their offsets and append times."""
    if not task.dead:
        return records
    gone = {
        row
        for first, end in zip(task.dead[::2], task.dead[1::2], strict=True)
        for row in range(first - task.first_offset, end - task.first_offset)
    }
    rows = list(records.records(0))
    kept = [_BLANK if row in gone else one for row, one in enumerate(rows)]
    return Batch.of(
        [one.data for one in kept],
        key=[one.key for one in kept],
        node=[one.node for one in kept],
        meta=[one.meta for one in kept],
        hops=[one.hops for one in kept],
        time_ms=records.time_ms,
    )


_BLANK = Record(0, 0, None, b"")


def _count_blank(records: Batch, task: Task) -> int:
    """Returns the number of blank records in a new segment; of one that was only merged, what its parts say."""
    if not task.dead:
        return sum(one.blanked for one in task.segments)
    return sum(not (one.data or one.key or one.node or one.meta) for one in records.records(0))


def compare_segments(objects: Objects, task: Task, made: Segment) -> tuple[int, str]:
    """Compares a merged segment with the segments that it replaces. Returns the number of equal records from the start
    on, and the first difference as text (empty if there is none).

    Raises:
        Damaged: an object is missing, or is not what was published.
        StoreError: the store still fails after retries.
    """
    found = stores.retry(lambda: segments.read_records(objects, made))
    at = 0
    for segment in task.segments:
        expected = stores.retry(lambda one=segment: segments.read_records(objects, one))  # type: ignore[misc]
        if found.part(at, at + segment.count) != _of_part(expected, segment, task):
            return at, f"differs from {segment.key}, behind record {at}"
        at += segment.count
    if at != len(found):
        return at, f"has {len(found)} records, not {at}"
    source, expected_page = keys.segment_keys(made.key), keypage.encode(found)
    raw = stores.retry(lambda: segments.checked(objects, source, made.keys_sha256))
    page = keypage.decode(raw, sha256=made.keys_sha256, count=at, source=source)
    right = keypage.decode(expected_page, sha256=sha256(expected_page).hexdigest(), count=at, source=source)
    return at, "" if page == right else "has another key page"


def _of_part(records: Batch, segment: Segment, task: Task) -> Batch:
    """Returns what a merged segment must hold of the records of one of its parts."""
    dead = [
        (max(first, segment.first_offset), min(end, segment.end_offset))
        for first, end in zip(task.dead[::2], task.dead[1::2], strict=True)
    ]
    inside = tuple(bound for pair in dead if pair[0] < pair[1] for bound in pair)
    return blank(records, replace(task, first_offset=segment.first_offset, dead=inside))


@dataclass(frozen=True)
class Worker:
    """The function that Spark calls in each worker; it takes numbers of tasks and handles them one by one."""

    door: Door
    tasks: Sequence[tuple[int, Task]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs `look_at` for each task whose number is in the batches, and yields one report per task, also if it
        fails.
        """
        for batch in batches:
            for at in batch.column(0).to_pylist():
                yield reports.batch([reports.encode(self._report_of(*self.tasks[at]))])

    def _report_of(self, number: int, task: Task) -> Report:
        try:
            return self.look_at(stores.open_bucket(self.door), number, task)
        except Exception as exc:  # noqa: BLE001 a task that fails, for whatever reason, fails no other
            return reports.failed(number, exc)

    def look_at(self, objects: Objects, number: int, task: Task) -> Report:
        """Does the worker's work for one task, and returns its report. Subclasses override it."""
        raise NotImplementedError


@dataclass(frozen=True)
class Merger(Worker):
    """A worker that merges the segments of each task."""

    planned_ms: int

    def look_at(self, objects: Objects, number: int, task: Task) -> Report:
        """Writes the merged segment of a task, and reports it."""
        return Merged(number, merge_segments(objects, task, self.planned_ms, _nonce))


@dataclass(frozen=True)
class Comparer(Worker):
    """A worker that compares the merged segment of each task with the segments that it replaces."""

    made: Mapping[str, Segment]

    def look_at(self, objects: Objects, number: int, task: Task) -> Report:
        """Compares the merged segment of a task with the segments that it replaces, and reports the difference."""
        if task.run_id not in self.made:
            return Compared(number, 0, "segment was not made")
        return Compared(number, *compare_segments(objects, task, self.made[task.run_id]))


def run_tasks(spark: SparkSession, worker: Worker) -> Iterator[Report]:
    """Runs each task as one piece of work, as many at once as Spark has workers, and yields a report for each."""
    count = len(worker.tasks)
    if count:
        rows = spark.range(0, count, 1, count)
        yield from reports.collect(map_in_arrow(rows, worker, reports.SCHEMA))


def _nonce() -> str:
    return secrets.token_hex(6)
