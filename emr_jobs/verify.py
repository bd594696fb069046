"""Verifies runs: builds or compacts each one again, and compares the result with the run in the bucket.

Writes nothing but its report, `jobs/<job id>/verified.json.zst`. Every row of every family is compared, in order; sums
of measures may differ in their last digits, since they depend on the order of addition. A merged segment is compared
with the small segments that it replaced, as long as these still exist.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from emr_jobs import compact, job, merge, reports, segments, stores
from emr_jobs.layout import Bucket
from emr_jobs.reports import Report
from emr_jobs.stores import Door
from headrace.index.descriptors import Descriptor, Family, decode
from headrace.index.job import JobInput, JobResult, Task, find_run
from headrace.objects import ObjectMissing, Objects, keys, packed
from headrace.segment.descriptor import Segment

VERSION = 1

_TOLERANCE = 1e-9
_MEASURED = ("measures", "fragment")


class Verdict(msgspec.Struct, frozen=True):
    """The result for one run, or one merged segment. `problem` is empty if nothing is wrong.

    Attributes:
        rows: number of compared rows, for a run.
        records: number of compared records, for a merged segment.
    """

    log_id: str
    run_id: str
    rows: dict[Family, int]
    problem: str
    records: int = 0


class Verified(msgspec.Struct, frozen=True):
    """The result of a verifying job: a verdict for each index run and each merged segment."""

    version: int
    job_id: str
    runs: tuple[Verdict, ...]


def run(spark: SparkSession, door: Door, input_key: str) -> Verified:
    """Verifies the index runs and merged segments that a job's input asked for. Returns the result and writes it to the
    bucket; reports progress on standard error.

    Raises:
        Damaged: the input object is missing or invalid.
        StoreError: the store still fails after retries.
    """
    objects = stores.open_bucket(door)
    found = job.load(objects, input_key)
    problems: dict[int, str] = {}
    todo: dict[int, job.Prepared] = {}
    descriptors: dict[int, Descriptor] = {}
    for number, task in enumerate(found.tasks):
        if task.work == "merge":
            continue
        try:
            descriptors[number] = _descriptor(objects, task)
            work = job.prepare(door, number, task)
            todo[number] = work._replace(
                wanted=[one for one in work.wanted if not one.number]
            )  # families that are not split
        except Exception as exc:  # noqa: BLE001 one that can't be verified leaves the others
            problems[number] = reports.failed(number, exc).reason
    rows: dict[int, dict[Family, int]] = {number: {} for number in range(len(found.tasks))}
    for report in job.run_pass(spark, door, found.tasks, todo, Compares(descriptors)):
        if isinstance(report, reports.Failed):
            problems.setdefault(report.task, report.reason)
        elif isinstance(report, reports.Checked):
            rows[report.task][report.family] = rows[report.task].get(report.family, 0) + report.rows
            if report.difference:
                problems.setdefault(report.task, report.difference)
            _say(found.tasks[report.task], report)
    merges = [(number, task) for number, task in enumerate(found.tasks) if task.work == "merge"]
    records: dict[int, int] = {}
    made_segments = _merged(objects, found) if merges else {}
    for report in merge.run_tasks(spark, merge.Comparer(door, merges, made_segments)):
        if isinstance(report, reports.Failed):
            problems[report.task] = report.reason
        elif isinstance(report, reports.Compared):
            records[report.task] = report.records
            problems[report.task] = report.difference
    verdicts = tuple(
        Verdict(task.log_id, task.run_id, rows[number], problems.get(number, ""), records.get(number, 0))
        for number, task in enumerate(found.tasks)
    )
    verified = Verified(VERSION, found.job_id, verdicts)
    data = packed.encode(verified)
    stores.retry(lambda: objects.put(f"{keys.JOBS}{found.job_id}/verified.json.zst", data))
    return verified


def _merged(objects: Objects, found: JobInput) -> dict[str, Segment]:
    """Returns the merged segments that a job's result names, by run id.

    Raises:
        Damaged: its result does not parse.
    """
    key = keys.job_result(found.job_id)
    try:
        return packed.decode(stores.retry(lambda: objects.get(key)), JobResult, key).merged
    except ObjectMissing:
        return {}


def _descriptor(objects: Objects, task: Task) -> Descriptor:
    key = keys.run_descriptor(task.log_id, task.run_id)
    run_ = stores.retry(lambda: find_run(objects, task))
    if run_ is None:
        raise ValueError(f"run does not exist: object={key}")
    raw = stores.retry(lambda: segments.checked(objects, key, run_.sha256))
    return decode(raw, key)


def _say(task: Task, report: reports.Checked) -> None:
    verdict = report.difference or "as it should be"
    print(f"{task.log_id} {task.run_id} {report.family}: {report.rows} rows, {verdict}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Compares:
    """A sink that compares rows with those of the existing run."""

    descriptors: dict[int, Descriptor]

    def take(
        self,
        door: Door,
        task: Task,  # noqa: ARG002 others ask for it
        bucket: Bucket,
        family: Family,
        schema: pa.Schema,
        rows: Iterator[pa.RecordBatch],
    ) -> Iterator[Report]:
        """Compares the rows of a bucket, which must hold the whole family, and yields one report."""
        stored = (
            batch
            for part in self.descriptors[bucket.task].parts.get(family, ())
            for batch in compact.batches(door, part.key, part.sha256)
        )
        compared, difference = compare(_Rows(rows, schema), _Rows(stored, schema))
        for _ in rows:  # all rows must be consumed, because they are counted as they pass
            pass
        yield reports.Checked(bucket.task, family, compared, difference and f"{family} {difference}")


class _Rows:
    """A buffer over a stream of batches, from which any number of rows can be taken at a time."""

    def __init__(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        self._batches = batches
        self._schema = pa.schema([field.with_type(_plain(field.type)) for field in schema])
        self._held = self._schema.empty_table()

    def ready(self) -> int:
        """Returns how many rows can be taken at once; 0 at the end."""
        while not self._held.num_rows and (batch := next(self._batches, None)) is not None:
            self._held = pa.Table.from_batches([batch]).cast(self._schema)
        return int(self._held.num_rows)

    def take(self, count: int) -> pa.Table:
        taken = self._held.slice(0, count)
        self._held = self._held.slice(count)
        return taken


def _plain(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def compare(expected: _Rows, found: _Rows) -> tuple[int, str]:
    """Compares two streams of rows. Returns about how many rows are equal from the start, and the first difference
    (empty if there is none).
    """
    compared = 0
    while some := min(expected.ready(), found.ready()):
        left, right = expected.take(some), found.take(some)
        if not _same(left, right):
            return compared, f"differs between rows {compared} and {compared + some}"
        compared += some
    if expected.ready() or found.ready():
        return compared, f"has {'fewer' if expected.ready() else 'more'} rows than the {compared} that are equal"
    return compared, ""


def _same(left: pa.Table, right: pa.Table) -> bool:
    exact = [name for name in left.column_names if name not in _MEASURED]
    if not left.select(exact).equals(right.select(exact)):
        return False
    if len(exact) == len(left.column_names):
        return True
    pairs = zip(left.column("measures").to_pylist(), right.column("measures").to_pylist(), strict=True)
    return all(_close(one, other) for one, other in pairs)


def _close(one: Any, other: Any) -> bool:
    """Returns whether two measures are equal, except for the last digits of their numbers."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_close, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_close(value, other[name]) for name, value in one.items())
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return bool(one == other)
