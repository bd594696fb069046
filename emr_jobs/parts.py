"""From ordered partial rows to the rows of runs, and to their parts, each put under a key that nobody else uses.

A bucket that fails fails its task and no other. Parts of a task that failed, or that was done twice, are named by no
descriptor, and are cleaned up with the orphans.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, groupby
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from emr_jobs import definitions, intervals, postings, reports, rollups, stores, tables
from emr_jobs.arrow import map_in_arrow
from emr_jobs.distinct import Distinct
from emr_jobs.layout import Bucket
from emr_jobs.postings import Postings
from emr_jobs.reports import Report
from emr_jobs.stores import Door
from headrace.index import families, writing
from headrace.index import plan as plans
from headrace.index.descriptors import Family
from headrace.index.job import Task
from headrace.objects import keys
from headrace.query.language import rollup

_NUMBERS_PER_BUCKET = 100  # numbers in keys are for people: the descriptor says the order


def nonce() -> str:
    """48 random bits, hex."""
    return os.urandom(6).hex()


class Sink(Protocol):
    """Takes the rows of a run's family, or of a range of it. It is pickled to get to the workers."""

    def take(
        self,
        door: Door,
        task: Task,
        bucket: Bucket,
        family: Family,
        schema: pa.Schema,
        rows: Iterator[pa.RecordBatch],
    ) -> Iterator[Report]:
        """Does with them what it does; all of them must be taken."""


@dataclass(frozen=True)
class Puts:
    """Puts the rows as parts."""

    nonces: Callable[[], str] = nonce

    def take(
        self,
        door: Door,
        task: Task,
        bucket: Bucket,
        family: Family,
        schema: pa.Schema,
        rows: Iterator[pa.RecordBatch],
    ) -> Iterator[Report]:
        """A report for each part.

        Raises:
            StoreError: the store fails and fails.
        """
        objects = stores.opened(door)
        names = (
            keys.run_part(task.log_id, task.run_id, family, number, self.nonces())
            for number in count(bucket.number * _NUMBERS_PER_BUCKET)
        )
        for number, written in enumerate(writing.write(family, schema, rows, names)):
            part, data = written.part, written.data
            stores.patiently(lambda part=part, data=data: objects.put(part.key, data))  # type: ignore[misc]
            yield reports.Written(bucket.task, family, bucket.number, number, part)


@dataclass(frozen=True)
class Finisher:
    """Makes of each bucket's partial rows those of its family, in a worker."""

    door: Door
    tasks: Sequence[Task]
    buckets: Sequence[Bucket]
    sink: Sink

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Reports, of rows as `layout.arrange` gives them."""
        known = {bucket.id: bucket for bucket in self.buckets}
        for number, rows in groupby(_by_bucket(batches), key=lambda batch: batch.column(0)[0].as_py()):
            bucket = known[number]
            try:
                for report in self._reports(bucket, rows):
                    yield reports.batch([report])
            except Exception as exc:  # noqa: BLE001 a task that fails, for whatever reason, fails no other
                yield reports.batch([reports.encode(reports.failed(bucket.task, exc))])

    def _reports(self, bucket: Bucket, rows: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
        if bucket.family == "notes":
            for batch in rows:
                yield from batch.column(5).to_pylist()
            return
        yield from map(reports.encode, self._finished(bucket, bucket.family, rows))

    def _finished(self, bucket: Bucket, family: Family, rows: Iterator[pa.RecordBatch]) -> Iterator[Report]:
        task = self.tasks[bucket.task]
        definition = definitions.known(self.door, task.definition)
        plan = plans.plan_of(definition)
        take = partial(self.sink.take, self.door, task, bucket, family)
        if family == "col":
            assert plan is not None, "it has columns"
            source = tables.source(self.door, task, [batch.column(5) for batch in rows])
            kept = tables.kept(plan, source)
            schema = families.col(kept)
            counter = tables.Counter(plan, kept)
            yield from take(schema, counter.through(tables.batches(source, schema)))
            yield reports.Columns(bucket.task, tuple(kept))
            yield reports.Distinct(bucket.task, counter.counts)
        elif family == "agg":
            assert definition.search is not None, "it has rollups"
            compiled = rollup.rollups(definition.search)
            groups = (rollups.unpack(body) for batch in rows for body in batch.column(5).to_pylist())
            yield from take(families.AGG, rollups.batches(groups, compiled))
        elif family == "mblk":
            bodies = (body for batch in rows for body in batch.column(5).to_pylist())
            yield from take(intervals.SCHEMA, intervals.batches(bodies))
        else:
            merged = postings.merged((Postings(*batch.columns[1:5]) for batch in rows), family)
            named = [field.name for field in plan.fields if _has_terms(field, family)] if plan else []
            distinct = Distinct(named)
            yield from take(families.POSTINGS[family], distinct.through(merged))
            yield reports.Distinct(bucket.task, distinct.counts)


def _has_terms(field: plans.FieldPlan, family: Family) -> bool:
    return field.words if family == "fts" else field.terms and family == "kw"


def _by_bucket(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows, no batch with those of two buckets."""
    for batch in batches:
        ids = batch.column(0).to_numpy()
        ends = [*(at + 1 for at in (ids[1:] != ids[:-1]).nonzero()[0].tolist()), len(ids)]
        start = 0
        for end in ends:
            if end > start:
                yield batch.slice(start, end - start)
            start = end


def finished(rows: DataFrame, finisher: Finisher) -> DataFrame:
    """What becomes of arranged rows: rows of `reports.SCHEMA`."""
    return map_in_arrow(rows, finisher, reports.SCHEMA)
