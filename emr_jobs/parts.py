"""Writes the parts of runs: turns sorted partial rows into the rows of a family, and puts each part under a key of its
own.

A bucket that fails fails its task and no other. Parts of a failed or repeated task are named by no descriptor, and are
removed with the orphans.

Rows of `col` arrive as whole tables, one for each segment or input run, and are joined to the tables of the new run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, groupby
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from emr_jobs import build, intervals, postings, reports, rollups, segments, stores
from emr_jobs.compact import Reference
from emr_jobs.layout import Bucket
from emr_jobs.postings import Postings, first_from, new_terms
from emr_jobs.reports import Report
from emr_jobs.session import map_in_arrow
from emr_jobs.stores import Door
from headrace import decoding
from headrace.errors import Damaged
from headrace.index import descriptors, families, writing
from headrace.index.descriptors import MAX_DICTIONARY, Family, Plan
from headrace.index.job import Task
from headrace.objects import keys
from headrace.query.language import rollup
from headrace.query.language.canonical import Kind


class TermCounter:
    """A counter of the different terms of each field in the postings of a family."""

    def __init__(self, fields: Sequence[str]) -> None:
        """Creates a counter for these fields."""
        self.counts = dict.fromkeys(fields, 0)
        self._ranges = {name: (low := families.word_term(name, ""), families.after(low)) for name in fields}
        self._last: bytes | None = None

    def through(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Counts terms in batches, which must be sorted, and passes the batches on unchanged."""
        for batch in batches:
            if self.counts and batch.num_rows:
                self._count(batch.column(0))
            yield batch

    def _count(self, found: pa.Array) -> None:
        passed = np.concatenate(([0], np.cumsum(new_terms(found, self._last))))
        self._last = found[-1].as_py()
        for name, (low, high) in self._ranges.items():
            self.counts[name] += int(passed[first_from(found, high)] - passed[first_from(found, low)])


_ROWS = 1_000_000  # rows of a batch; all of its columns are in memory
_MOST_COUNTED = 65_536  # different values are counted only up to this number

Source = Callable[[], Iterator[pa.Table]]


def open_tables(door: Door, task: Task, bodies: Sequence[pa.Array]) -> Source:
    """Returns a function that yields the tables of `col` from partial rows, in order. It can be called several times.

    Raises (while its tables are read):
        Damaged: a part is not what the descriptor says.
        StoreError: the store still fails after retries.
    """
    if task.work == "build":
        return lambda: (build.table(body.as_buffer()) for array in bodies for body in array)
    references = [decoding.from_msgpack(body.as_py(), Reference) for array in bodies for body in array]
    return lambda: (_read_table(door, reference) for reference in references)


def _read_table(door: Door, reference: Reference) -> pa.Table:
    raw = stores.retry(lambda: segments.checked(stores.open_bucket(door), reference.key, reference.sha256))
    try:
        buffer = pa.BufferReader(raw)
        schema = pq.read_schema(buffer)
        texts = [
            field.name for field in schema if pa.types.is_dictionary(field.type) or pa.types.is_string(field.type)
        ]
        return pq.read_table(pa.BufferReader(raw), read_dictionary=texts, use_threads=False)
    except (pa.ArrowException, OSError) as exc:
        raise Damaged(f"part is not Parquet: object={reference.key}") from exc


def choose_columns(plan: Plan, tables: Source) -> dict[str, Kind]:
    """Returns the fields that get a column, with their kinds: those for which the plan always asks, and keywords with
    few different values in these tables.
    """
    candidates: dict[str, set[str]] = {field.name: set() for field in plan.fields if field.column == "few"}
    if candidates:
        for table in tables():
            for name in list(candidates):
                if name in table.column_names:
                    candidates[name].update(*(chunk.dictionary.to_pylist() for chunk in table.column(name).chunks))
                if name not in table.column_names or len(candidates[name]) > MAX_DICTIONARY:
                    del candidates[name]
    return {field.name: field.kind for field in plan.fields if field.column == "always" or field.name in candidates}


def join_batches(tables: Source, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Joins tables and yields their rows in batches of up to a million, with one dictionary per column."""
    held: list[pa.Table] = []
    rows = 0
    for table in tables():
        held.append(table.select(schema.names))
        rows += table.num_rows
        while rows >= _ROWS:
            whole = pa.concat_tables(held)
            yield from _joined(whole.slice(0, _ROWS), schema)
            held, rows = [whole.slice(_ROWS)], rows - _ROWS
    if rows:
        yield from _joined(pa.concat_tables(held), schema)


def _joined(table: pa.Table, schema: pa.Schema) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = table.unify_dictionaries().combine_chunks().cast(schema).to_batches()
    return found


class ValueCounter:
    """A counter of the different values of fields without postings. It stops counting a field above `_MOST_COUNTED`
    values.
    """

    def __init__(self, plan: Plan, fields: Mapping[str, Kind]) -> None:
        """Creates a counter for the `fields` for which the plan has neither terms nor words."""
        named = {field.name: field.kind for field in plan.fields if not field.terms and not field.words}
        self._seen: dict[str, pa.Array | None] = {
            families.column_name(name, kind): None for name, kind in named.items() if name in fields
        }

    @property
    def counts(self) -> dict[str, int]:
        """The number of different values counted so far, by column; above 65,536 it no longer rises."""
        return {name: 0 if seen is None else len(seen) for name, seen in self._seen.items()}

    def through(self, batches_: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Counts values in batches, and passes the batches on unchanged."""
        for batch in batches_:
            for name, seen in self._seen.items():
                if seen is None or len(seen) <= _MOST_COUNTED:
                    column = batch.column(name)
                    values = (
                        column.dictionary if pa.types.is_dictionary(column.type) else pc.unique(column.drop_null())
                    )
                    self._seen[name] = values if seen is None else pc.unique(pa.concat_arrays([seen, values]))
            yield batch


_NUMBERS_PER_BUCKET = 100  # numbers in keys are only for people: the descriptor has the order


def nonce() -> str:
    """Returns 48 random bits as hex digits."""
    return os.urandom(6).hex()


class Sink(Protocol):
    """A receiver of finished rows: what to do with the rows of a bucket. It is pickled to be sent to the workers."""

    def take(
        self,
        door: Door,
        task: Task,
        bucket: Bucket,
        family: Family,
        schema: pa.Schema,
        rows: Iterator[pa.RecordBatch],
    ) -> Iterator[Report]:
        """Takes the rows of a bucket, and yields reports. It must consume all rows."""


@dataclass(frozen=True)
class Puts:
    """A sink that writes the rows as parts of a run to the object store."""

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
        """Writes the rows as parts, and yields a report for each part.

        Raises:
            StoreError: the store still fails after retries.
        """
        objects = stores.open_bucket(door)
        names = (
            keys.run_part(task.log_id, task.run_id, family, number, self.nonces())
            for number in count(bucket.number * _NUMBERS_PER_BUCKET)
        )
        for number, written in enumerate(writing.write(family, schema, rows, names)):
            part, data = written.part, written.data
            stores.retry(lambda part=part, data=data: objects.put(part.key, data))  # type: ignore[misc]
            yield reports.Written(bucket.task, family, bucket.number, number, part)


@dataclass(frozen=True)
class Finisher:
    """The function that Spark calls in each worker to merge the partial rows of each bucket into rows of its family,
    and give them to the sink.
    """

    door: Door
    tasks: Sequence[Task]
    buckets: Sequence[Bucket]
    sink: Sink

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Merges rows that `layout.arrange` has sorted, and yields reports."""
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
        definition = stores.load_definition_once(self.door, task.definition)
        plan = descriptors.plan_of(definition)
        take = partial(self.sink.take, self.door, task, bucket, family)
        if family == "col":
            assert plan is not None, "it has columns"
            source = open_tables(self.door, task, [batch.column(5) for batch in rows])
            kept = choose_columns(plan, source)
            schema = families.col(kept)
            counter = ValueCounter(plan, kept)
            yield from take(schema, counter.through(join_batches(source, schema)))
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
            distinct = TermCounter(named)
            yield from take(families.POSTINGS[family], distinct.through(merged))
            yield reports.Distinct(bucket.task, distinct.counts)


def _has_terms(field: descriptors.FieldPlan, family: Family) -> bool:
    return field.words if family == "fts" else field.terms and family == "kw"


def _by_bucket(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Splits batches so that each batch holds rows of one bucket only."""
    for batch in batches:
        ids = batch.column(0).to_numpy()
        ends = [*(at + 1 for at in (ids[1:] != ids[:-1]).nonzero()[0].tolist()), len(ids)]
        start = 0
        for end in ends:
            if end > start:
                yield batch.slice(start, end - start)
            start = end


def finish(rows: DataFrame, finisher: Finisher) -> DataFrame:
    """Applies the finisher to arranged rows; the result holds reports (`reports.SCHEMA`)."""
    return map_in_arrow(rows, finisher, reports.SCHEMA)
