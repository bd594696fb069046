"""Runs one job: reads its input object, writes parts, then descriptors, then the result object.

A crash after a part was written leaves an orphan; after a descriptor, a run that a repeated job finds; after the
result, nothing to do. Two jobs at once each write their own parts, and the first descriptor counts for both. A merged
segment exists only if the result names it: a repeated job writes another one, and the last result counts.

A job reads whole segments to build from, and whole parts of runs to compact. These items are grouped in packs: one
worker reads a pack, one item at a time. The frame that Spark starts from has one row per pack, its number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession

from emr_jobs import build, compact, layout, merge, parts, reports, stores
from emr_jobs.extract import Counts
from emr_jobs.layout import Bucket, Place, Wanted
from emr_jobs.parts import Finisher, Puts, Sink
from emr_jobs.reports import Report
from emr_jobs.session import map_in_arrow
from emr_jobs.stores import Door
from headrace.errors import Damaged, StoreError
from headrace.index import descriptors
from headrace.index.descriptors import Descriptor, Family, Part, Plan, Run
from headrace.index.job import VERSION, Failure, JobInput, JobResult, Task, find_run
from headrace.objects import ObjectMissing, Objects, keys, packed
from headrace.segment.descriptor import PageIndex, Segment

_NO_PAGES = PageIndex(0, (), (), ())
_PACK_BYTES = 16 * 1024 * 1024


class Item(NamedTuple):
    """Something that a worker reads: a segment to build from, or a part of a run to compact.

    Attributes:
        task: number of the task that it belongs to.
        order: position among the items of the task.
        weight: estimated size in decoded bytes.
        segment: the segment to build from; if None, `part` of `family` is to be compacted.
    """

    task: int
    order: int
    weight: int
    segment: Segment | None = None
    family: Family = "kw"
    part: Part | None = None

    def slim(self) -> Item:
        """Returns the item without the fields that only range readers need, because it is sent along with every piece
        of work.
        """
        segment = None if self.segment is None else replace(self.segment, pages=_NO_PAGES)
        part = None if self.part is None else replace(self.part, footer=b"", first=())
        return self._replace(segment=segment, part=part)


def pack_items(items: Iterable[Item]) -> list[tuple[Item, ...]]:
    """Groups neighbouring items into packs of at most 16 MiB; an item that is larger has a pack of its own."""
    found: list[list[Item]] = []
    room = 0
    for item in items:
        if not found or item.weight > room:
            found.append([])
            room = max(_PACK_BYTES, item.weight)
        found[-1].append(item)
        room -= item.weight
    return [tuple(pack) for pack in found]


@dataclass(frozen=True)
class Reader:
    """The function that Spark calls in each worker: it reads packs and returns partial rows."""

    door: Door
    tasks: Sequence[Task]
    buckets: Sequence[Bucket]
    packs: Sequence[tuple[Item, ...]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Reads the segments or index parts of the packs whose numbers are in `batches`, and yields their partial rows
        (`layout.ARROW`); for an item that fails, a report.
        """
        places: dict[int, dict[Place, list[Bucket]]] = {}
        for bucket in sorted(self.buckets, key=lambda bucket: bucket.number):
            places.setdefault(bucket.task, {}).setdefault(bucket.family, []).append(bucket)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for item in self.packs[number]:
                    yield from self._read(item, places[item.task])

    def _read(self, item: Item, places: dict[Place, list[Bucket]]) -> Iterator[pa.RecordBatch]:
        task = self.tasks[item.task]
        try:
            if item.part is None:
                assert item.segment is not None, "it is one of the two"
                yield from build.rows(self.door, task, item.segment, places)
            else:
                yield from compact.rows(self.door, task, item.family, item.part, item.order, places[item.family])
        except Exception as exc:  # noqa: BLE001 a task that fails, for whatever reason, fails no other
            report = reports.encode(reports.failed(item.task, exc))
            yield from layout.body_rows(places["notes"][0], [(b"", item.order, report)])


def read_packs(spark: SparkSession, reader: Reader) -> DataFrame:
    """Returns a Spark frame that reads all packs and holds their partial rows (`layout.SCHEMA`); within each item, the
    rows of a bucket are sorted.
    """
    count = len(reader.packs)
    return map_in_arrow(spark.range(0, count, 1, max(count, 1)), reader, layout.SCHEMA)


class Prepared(NamedTuple):
    """A task whose inputs have been checked, and what is known before its records are read.

    Attributes:
        counts: if the task merges index runs, the counts of records and fields of each of them; else empty.
        times: append times of the first and the last record.
    """

    task: Task
    plan: Plan | None
    wanted: list[Wanted]
    items: list[Item]
    counts: list[Counts]
    times: tuple[int, int]


def run(spark: SparkSession, door: Door, input_key: str) -> JobResult:
    """Runs a job: makes the index runs and segments that its input asks for, and writes the result object. A task that
    fails is reported in the result, and fails no other.

    Args:
        spark: a Spark session (`emr_jobs.session`).
        door: how to reach the bucket.
        input_key: key of the input object.

    Returns:
        The result, as written to the result object.

    Raises:
        Damaged: the input object is missing or invalid.
        StoreError: input or result could not be read or written.
    """
    objects = stores.open_bucket(door)
    job = load(objects, input_key)
    runs: dict[str, Run] = {}
    failures: dict[int, Failure] = {}
    todo: dict[int, Prepared] = {}
    merges: list[tuple[int, Task]] = []
    for number, task in enumerate(job.tasks):
        if task.work == "merge":
            merges.append((number, task))
            continue
        try:
            done = stores.retry(lambda task=task: find_run(objects, task))  # type: ignore[misc]
            if done is not None:
                runs[task.run_id] = done
            else:
                todo[number] = prepare(door, number, task)
        except Exception as exc:  # noqa: BLE001 a task that fails, for whatever reason, fails no other
            failures[number] = _failure(task, reports.failed(number, exc))
    reported: dict[int, list[Report]] = {number: [] for number in todo}
    for report in run_pass(spark, door, job.tasks, todo, Puts()):
        reported[report.task].append(report)
    for number, found in reported.items():
        task = job.tasks[number]
        failed = next((report for report in found if isinstance(report, reports.Failed)), None)
        if failed is not None:
            failures[number] = _failure(task, failed)
            continue
        work = todo[number]
        try:
            descriptor = reports.describe_run(task, work.plan, work.times, work.counts, found, job.created_ms)
            runs[task.run_id] = create_run(objects, task, descriptor)
        except Exception as exc:  # noqa: BLE001 as above
            failures[number] = _failure(task, reports.failed(number, exc))
    merged: dict[str, Segment] = {}
    for report in merge.run_tasks(spark, merge.Merger(door, merges, job.created_ms)):
        task = job.tasks[report.task]
        if isinstance(report, reports.Merged):
            merged[task.run_id] = report.segment
        elif isinstance(report, reports.Failed):
            failures[report.task] = _failure(task, report)
    failed_tasks = tuple(failures[number] for number in sorted(failures))
    result = JobResult(VERSION, job.job_id, runs, failed_tasks, merged)
    stores.retry(lambda: objects.put(keys.job_result(job.job_id), packed.encode(result)))
    return result


def load(objects: Objects, key: str) -> JobInput:
    """Loads a job's input object.

    Raises:
        Damaged: the object is missing or invalid.
        StoreError: the object could not be read.
    """
    try:
        return packed.decode(stores.retry(lambda: objects.get(key)), JobInput, key)
    except ObjectMissing as exc:
        raise Damaged(f"job input is missing: object={key}") from exc


def prepare(door: Door, number: int, task: Task) -> Prepared:
    """Checks that a task's inputs fit it, and returns the buckets and items that it needs.

    Raises:
        Damaged: the definition gives another plan than the task names, or the inputs have a gap.
        StoreError: the store still fails after retries.
    """
    definition = stores.load_definition_once(door, task.definition)
    plan = descriptors.plan_of(definition)
    expected = plan.hash if plan else descriptors.NONE
    if task.plan != expected:
        raise Damaged(f"plan is not that of the definition: run={task.run_id} expected={expected} found={task.plan}")
    families = plan.families if plan else ("lex",)
    if task.work == "build":
        wanted = build.wanted(number, task, plan)
        segments = task.segments
        read = [Item(number, place, build.weight(one, plan), segment=one) for place, one in enumerate(segments)]
        times = (segments[0].min_time_ms, segments[-1].max_time_ms)
        return Prepared(task, plan, wanted, read, [], times)
    merged = compact.inputs(stores.open_bucket(door), task)
    read = [
        Item(number, place, 3 * part.size, family=family, part=part)
        for family in families
        for place, part in enumerate(part for one in merged for part in one.parts.get(family, ()))
    ]
    times = (merged[0].min_time_ms, merged[-1].max_time_ms)
    counts = compact.counts(merged)
    return Prepared(task, plan, compact.wanted(number, merged, families), read, counts, times)


def run_pass(
    spark: SparkSession, door: Door, tasks: Sequence[Task], todo: Mapping[int, Prepared], sink: Sink
) -> Iterator[Report]:
    """Runs the Spark pass: reads all inputs, sorts their rows into buckets, and hands these to the sink. Yields the
    workers' reports, also of tasks that fail.

    Args:
        todo: the prepared tasks by number.
        sink: receives the rows of each bucket.
    """
    if not todo:
        return
    plan = layout.plan([one for task in todo.values() for one in task.wanted])
    packs = pack_items(item.slim() for task in todo.values() for item in task.items)
    slim = [replace(task, segments=(), inputs=()) for task in tasks]  # because it is sent with every piece of work
    rows = read_packs(spark, Reader(door, slim, plan.buckets, packs))
    yield from reports.collect(parts.finish(layout.arrange(rows, plan), Finisher(door, slim, plan.buckets, sink)))


def create_run(objects: Objects, task: Task, descriptor: Descriptor) -> Run:
    """Creates a run by writing its descriptor. If the descriptor exists already, that run is returned.

    Raises:
        Damaged: the existing descriptor is of another run.
        StoreError: it is unknown whether the descriptor was written.
    """
    key = keys.run_descriptor(task.log_id, task.run_id)
    data = descriptors.encode(descriptor)
    if stores.retry(lambda: objects.create(key, data)):
        return descriptors.describe(descriptor, key, data)
    found = stores.retry(lambda: find_run(objects, task))
    if found is None:  # it was cleaned up in between, because the indexer has given the task up
        raise StoreError(f"run was removed: object={key}")
    return found


def _failure(task: Task, report: reports.Failed) -> Failure:
    return Failure(task.log_id, task.run_id, report.damaged, report.reason)
