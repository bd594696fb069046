"""A job run in this process: the steps of a job, with the frame sorted here instead of by Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from emr_jobs import job, layout, reports
from emr_jobs.job import Prepared, Reader
from emr_jobs.merge import Worker
from emr_jobs.parts import Finisher, Sink
from emr_jobs.reports import Report
from emr_jobs.stores import Door
from headrace.index.job import Task

_ORDER = [("bucket", "ascending"), ("term", "ascending"), ("first", "ascending")]


def run_pass(
    spark: object, door: Door, tasks: Sequence[Task], todo: Mapping[int, Prepared], sink: Sink
) -> Iterator[Report]:
    """As `emr_jobs.job.run_pass`; give it None for Spark."""
    if not todo:
        return
    plan = layout.plan([one for work in todo.values() for one in work.wanted])
    packs = job.pack_items(item for work in todo.values() for item in work.items)
    numbers = pa.RecordBatch.from_arrays([pa.array(range(len(packs)), pa.int64())], names=["id"])
    rows = pa.Table.from_batches(Reader(door, tasks, plan.buckets, packs)([numbers]), layout.ARROW)
    ordered = rows.sort_by(_ORDER).combine_chunks().to_batches(max_chunksize=7)
    for batch in Finisher(door, tasks, plan.buckets, sink)(ordered):
        yield from map(reports.decode, batch.column(0).to_pylist())


def looked_at(spark: object, worker: Worker) -> Iterator[Report]:
    """As `emr_jobs.merge.run_tasks`; give it None for Spark."""
    numbers = pa.RecordBatch.from_arrays([pa.array(range(len(worker.tasks)), pa.int64())], names=["id"])
    for batch in worker([numbers]):
        yield from map(reports.decode, batch.column(0).to_pylist())
