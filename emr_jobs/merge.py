"""Merging segments: the records of several, byte for byte, as one segment with its key page.

Every object that is read is checked against its descriptor, and what was written is counted against the sum of them. The
new segment gets a key of its own with each attempt, so that two at once write two objects; the result names one of them,
and the other is an orphan.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql import SparkSession

from emr_jobs import reports, segments, stores
from emr_jobs.arrow import map_in_arrow
from emr_jobs.reports import Failed, Merged
from emr_jobs.stores import Door
from headrace.errors import Damaged
from headrace.index.job import Task
from headrace.objects import Objects, keys
from headrace.record import Record
from headrace.segment import writer
from headrace.segment.descriptor import Segment


def merged(objects: Objects, task: Task, planned_ms: int, nonce: Callable[[], str]) -> Segment:
    """Writes the segment of a task; its descriptor, with the number of the first segment that it stands for.

    Args:
        planned_ms: when the job was planned.
        nonce: random letters and digits.

    Raises:
        Damaged: an object is missing, or is not what was published, or segments don't follow each other.
        StoreError: the store fails and fails.
    """
    records: list[Record] = []
    for segment in task.segments:
        expected = records[-1].offset + 1 if records else task.first_offset
        if segment.first_offset != expected:
            raise Damaged(f"segments have a gap: log={task.log_id} expected={expected} found={segment.first_offset}")
        records += stores.patiently(lambda one=segment: segments.read_records(objects, one))  # type: ignore[misc]
    if len(task.segments) < 2 or records[-1].offset + 1 != task.end_offset:
        raise Damaged(f"segments are not those of the task: log={task.log_id} expected={task.end_offset}")
    built = writer.build(records, text=writer.is_text(task.content_type), log_id=task.log_id)
    first = task.segments[0]
    key = keys.merged_segment(task.log_id, first.key, planned_ms, nonce())
    whole = built.describe(first.number, key)
    held = (sum(one.count for one in task.segments), sum(one.payload_bytes for one in task.segments))
    if (whole.count, whole.payload_bytes) != held:
        raise Damaged(f"merged segment holds other records: log={task.log_id} expected={held}")
    stores.patiently(lambda: objects.put(key, built.data))
    stores.patiently(lambda: objects.put(keys.segment_keys(key), built.key_page))
    return whole


@dataclass(frozen=True)
class Merger:
    """Does tasks, in a worker."""

    door: Door
    tasks: Sequence[tuple[int, Task]]
    planned_ms: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One report for each of these tasks."""
        for batch in batches:
            for at in batch.column(0).to_pylist():
                yield reports.batch([reports.encode(self._do(*self.tasks[at]))])

    def _do(self, number: int, task: Task) -> Merged | Failed:
        try:
            return Merged(number, merged(stores.opened(self.door), task, self.planned_ms, _nonce))
        except Exception as exc:  # noqa: BLE001 a task that fails, for whatever reason, fails no other
            return reports.failed(number, exc)


def passed(
    spark: SparkSession, door: Door, tasks: Sequence[tuple[int, Task]], planned_ms: int
) -> Iterator[Merged | Failed]:
    """Does tasks, each in one piece, as many at once as there are workers."""
    if not tasks:
        return
    slim = [(number, replace(task, inputs=())) for number, task in tasks]
    rows = spark.range(0, len(slim), 1, len(slim))
    for report in reports.collected(map_in_arrow(rows, Merger(door, slim, planned_ms), reports.SCHEMA)):
        assert isinstance(report, Merged | Failed), "no other is made here"
        yield report


def _nonce() -> str:
    return secrets.token_hex(6)
