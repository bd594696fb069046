"""What workers report to the driver: one row of bytes each."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructField, StructType

from emr_jobs.extract import Counts
from headrace.errors import Damaged, HeadraceError, StoreError
from headrace.index.descriptors import Family, Part
from headrace.segment.descriptor import Segment

SCHEMA = StructType([StructField("report", BinaryType(), False)])
_MAX_REASON = 500
_ARROW = pa.schema([pa.field("report", pa.binary(), nullable=False)])


class Written(msgspec.Struct, frozen=True, tag=True):
    """A part was put; `number` is its place among those of its bucket, whose place is `bucket_number`."""

    task: int
    family: Family
    bucket_number: int
    number: int
    part: Part


class Distinct(msgspec.Struct, frozen=True, tag=True):
    """How many different values fields have, in a bucket."""

    task: int
    fields: dict[str, int]


class Columns(msgspec.Struct, frozen=True, tag=True):
    """The fields that stand in `col`."""

    task: int
    fields: tuple[str, ...]


class Counted(msgspec.Struct, frozen=True, tag=True):
    """What some of a task's records say; `first` tells reports of one task apart."""

    task: int
    first: int
    counts: Counts


class Checked(msgspec.Struct, frozen=True, tag=True):
    """Rows of a run were compared; `difference` says where they are others first, and is empty if they are equal."""

    task: int
    family: Family
    rows: int
    difference: str


class Merged(msgspec.Struct, frozen=True, tag=True):
    """A segment was written that stands for those of the task."""

    task: int
    segment: Segment


class Compared(msgspec.Struct, frozen=True, tag=True):
    """A merged segment was compared with those of its task; `difference` is empty if it holds the same records."""

    task: int
    records: int
    difference: str


class Failed(msgspec.Struct, frozen=True, tag=True):
    """A task can't make its run or segment (`headrace.index.job.Failure`)."""

    task: int
    damaged: bool
    reason: str


Report = Written | Distinct | Columns | Counted | Checked | Merged | Compared | Failed

_decoder = msgspec.msgpack.Decoder(Report)


def encode(report: Report) -> bytes:
    """A report as bytes."""
    return msgspec.msgpack.encode(report)


def decode(data: bytes) -> Report:
    """The report in what `encode` made."""
    report: Report = _decoder.decode(data)
    return report


def batch(reports: list[bytes]) -> pa.RecordBatch:
    """Encoded reports as rows of `SCHEMA`."""
    return pa.RecordBatch.from_arrays([pa.array(reports, pa.binary())], schema=_ARROW)


def collected(frame: DataFrame) -> Iterator[Report]:
    """The reports in all rows, as they come in: runs the job."""
    for row in frame.toLocalIterator(prefetchPartitions=True):
        yield decode(bytes(row["report"]))


def failed(task: int, exc: Exception) -> Failed:
    """What an exception says of a task."""
    reason = str(exc) if isinstance(exc, HeadraceError | StoreError) else f"{type(exc).__name__}: {exc}"
    return Failed(task, isinstance(exc, Damaged), reason[:_MAX_REASON])
