"""What workers report to the driver, encoded as one row of bytes per report, and the run descriptor that the driver
makes from reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructField, StructType

from emr_jobs.extract import Counts, FieldCounts
from headrace.errors import Damaged, HeadraceError, StoreError
from headrace.index.descriptors import VERSION, Descriptor, Family, FieldStats, Part, Plan
from headrace.index.job import Task
from headrace.segment.descriptor import Segment

SCHEMA = StructType([StructField("report", BinaryType(), False)])
_MAX_REASON = 500
_ARROW = pa.schema([pa.field("report", pa.binary(), nullable=False)])


class Written(msgspec.Struct, frozen=True, tag=True):
    """The report that a part was written. `bucket_number` is the number of its bucket's range, and `number` its
    position within the bucket.
    """

    task: int
    family: Family
    bucket_number: int
    number: int
    part: Part


class Distinct(msgspec.Struct, frozen=True, tag=True):
    """The report of how many different values each field has in a bucket."""

    task: int
    fields: dict[str, int]


class Columns(msgspec.Struct, frozen=True, tag=True):
    """The report of the fields for which `col` has a column."""

    task: int
    fields: tuple[str, ...]


class Counted(msgspec.Struct, frozen=True, tag=True):
    """The report of counts of some of a task's records. `first` is their first offset; it distinguishes several reports
    of one task.
    """

    task: int
    first: int
    counts: Counts


class Checked(msgspec.Struct, frozen=True, tag=True):
    """The report that rows of a run were compared. `difference` describes the first difference; it is empty if there is
    none.
    """

    task: int
    family: Family
    rows: int
    difference: str


class Merged(msgspec.Struct, frozen=True, tag=True):
    """The report that a merged segment was written, which replaces the segments of the task."""

    task: int
    segment: Segment


class Compared(msgspec.Struct, frozen=True, tag=True):
    """The report that a merged segment was compared with the segments it replaces. `difference` is empty if the records
    are equal.
    """

    task: int
    records: int
    difference: str


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The report that a task could not make its run or segment (`headrace.index.job.Failure`)."""

    task: int
    damaged: bool
    reason: str


Report = Written | Distinct | Columns | Counted | Checked | Merged | Compared | Failed

_decoder = msgspec.msgpack.Decoder(Report)


def encode(report: Report) -> bytes:
    """Encodes a report as bytes."""
    return msgspec.msgpack.encode(report)


def decode(data: bytes) -> Report:
    """Decodes a report from the bytes that `encode` returned."""
    report: Report = _decoder.decode(data)
    return report


def batch(reports: list[bytes]) -> pa.RecordBatch:
    """Puts encoded reports into an Arrow batch of `SCHEMA`."""
    return pa.RecordBatch.from_arrays([pa.array(reports, pa.binary())], schema=_ARROW)


def collect(frame: DataFrame) -> Iterator[Report]:
    """Runs the Spark job behind this frame, and yields its reports as they arrive."""
    for row in frame.toLocalIterator(prefetchPartitions=True):
        yield decode(bytes(row["report"]))


def failed(task: int, exc: Exception) -> Failed:
    """Returns the report that a task failed with this exception; the reason is cut to 500 characters."""
    reason = str(exc) if isinstance(exc, HeadraceError | StoreError) else f"{type(exc).__name__}: {exc}"
    return Failed(task, isinstance(exc, Damaged), reason[:_MAX_REASON])


N = TypeVar("N", int, float)


def describe_run(
    task: Task,
    plan: Plan | None,
    times: tuple[int, int],
    known: Sequence[Counts],
    found: Sequence[Report],
    created_ms: int,
) -> Descriptor:
    """Builds the descriptor of a task's run from the workers' reports.

    Args:
        times: append times of the first and the last record, in epoch milliseconds.
        known: counts of the records, if runs were compacted; otherwise counts are among the reports.
        found: all reports of the task.

    Raises:
        Damaged: the workers have read other records than the task's.
    """
    counts = [*known, *(report.counts for report in found if isinstance(report, Counted))]
    records = sum(one.records for one in counts)
    if records != task.end_offset - task.first_offset:
        expected = task.end_offset - task.first_offset
        raise Damaged(f"run has other records: run={task.run_id} expected={expected} found={records}")
    columns = {name for report in found if isinstance(report, Columns) for name in report.fields}
    distinct: dict[str, int] = {}
    for report in found:
        if isinstance(report, Distinct):
            for name, count in report.fields.items():
                distinct[name] = distinct.get(name, 0) + count
    names = [field.name for field in plan.fields] if plan else []
    return Descriptor(
        version=VERSION,
        log_id=task.log_id,
        run_id=task.run_id,
        level=task.level,
        plan=task.plan,
        first_offset=task.first_offset,
        end_offset=task.end_offset,
        min_time_ms=times[0],
        max_time_ms=times[1],
        least_timestamp=_least(one.least_timestamp for one in counts),
        greatest_timestamp=_greatest(one.greatest_timestamp for one in counts),
        schema_version=plan.schema_version if plan else 0,
        inputs=tuple(run.id for run in task.inputs),
        parts={family: _parts_of(family, found) for family in (plan.families if plan else ("lex",))},
        fields={
            name: _stats(
                [one.fields[name] for one in counts if name in one.fields], distinct.get(name, 0), name in columns
            )
            for name in names
        },
        rollups=tuple(plan.rollups) if plan else (),
        created_ms=created_ms,
    )


def _parts_of(family: Family, found: Iterable[Report]) -> tuple[Part, ...]:
    written = [report for report in found if isinstance(report, Written) and report.family == family]
    return tuple(one.part for one in sorted(written, key=lambda one: (one.bucket_number, one.number)))


def _stats(counts: Sequence[FieldCounts], distinct: int, is_column: bool) -> FieldStats:
    return FieldStats(
        present=sum(one.present for one in counts),
        distinct=distinct,
        lossy=sum(one.lossy for one in counts),
        column=is_column,
        least=_least(one.least for one in counts) if is_column else None,
        greatest=_greatest(one.greatest for one in counts) if is_column else None,
    )


def _least(numbers: Iterable[N | None]) -> N | None:
    return min((number for number in numbers if number is not None), default=None)


def _greatest(numbers: Iterable[N | None]) -> N | None:
    return max((number for number in numbers if number is not None), default=None)
