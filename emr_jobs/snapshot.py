"""The job `snapshot`: writes the rows of a feature table as Parquet, with the values of its features at one time, as
`/batch_get` of all entities would have answered then. Feast reads them as a `FileSource`.

Columns: those of the key, the features, `event_timestamp` (the time for which they were read) and `created`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import xxhash
from pyspark.sql import SparkSession

from emr_jobs import events, exports, reports, states
from emr_jobs.events import Answered, Grouping, Lane
from emr_jobs.exports import Sheet
from emr_jobs.states import Entity
from emr_jobs.stores import Door
from headrace.features.feast import feature_view
from headrace.features.jobs import CREATED, TIMESTAMP, ExportResult, SnapshotInput, Source, features_of
from headrace.features.rows import read_row
from headrace.jobs import Request
from headrace.objects import keys, packed

_ROWS = 524_288  # of an object
_TIME = pa.timestamp("ms", "UTC")


def run(spark: SparkSession, door: Door, request: Request) -> ExportResult:
    """Runs the job, and returns what is to be its result.

    Raises:
        Damaged: the input is none, or a segment is not what was published.
        StoreError: events are still not sealed, or the store still fails after retries.
    """
    asked = packed.parse(bytes(request.input), SnapshotInput, "input of a snapshot")
    sources, grouping = exports.find_segments(door, asked.sources), Grouping((asked.table,))
    folder = f"{keys.job_folder(request.job_id)}rows/"
    finisher = Finisher(door, events.slim(sources), grouping, asked, folder)
    table = Lane(sources[0]).last.tables[asked.table]
    types = features_of(table, asked.names)
    view = feature_view(table, types, f"s3://{asked.bucket}/{folder}")
    return exports.collect(sources, events.run_pass(spark, door, sources, grouping, finisher), view)


@dataclass(frozen=True)
class Finisher:
    """The function that Spark calls in each worker to fold sorted rows, and to write what a reader sees of each entity."""

    door: Door
    sources: Sequence[Source]
    grouping: Grouping
    asked: SnapshotInput
    folder: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields reports: those among the rows, and one for each object."""
        lanes = {source.number: Lane(source) for source in self.sources}
        table = lanes[self.sources[0].number].last.tables[self.asked.table]
        types = {**dict(zip(table.keys, table.key_types, strict=True)), **features_of(table, self.asked.names)}
        schema = pa.schema([*exports.fields_of(types), pa.field(TIMESTAMP, _TIME), pa.field(CREATED, _TIME)])
        told: list[bytes] = []
        sheet, key = Sheet(schema), ""
        groups = states.groups(events.rows_of(batches), self.grouping, lanes)
        for rows in exports.batches_of(self._rows(groups, told)):
            key = key or f"{self.folder}{xxhash.xxh64_hexdigest(rows[0][0])}.parquet"
            times = [pa.array([at] * len(rows), _TIME) for at in (self.asked.now_ms, self.asked.created_ms)]
            sheet.add([*exports.columns_of([values for _, values in rows], types), *times])
            if sheet.rows >= _ROWS:
                told.append(self._put(sheet, key))
                sheet, key = Sheet(schema), ""
        if key:
            told.append(self._put(sheet, key))
        if told:
            yield reports.batch(told)

    def _put(self, sheet: Sheet, key: str) -> bytes:
        sheet.put(self.door, key)
        return events.encode_report(Answered(key, sheet.rows))

    def _rows(
        self, groups: Iterable[states.Group | list[bytes]], told: list[bytes]
    ) -> Iterator[tuple[bytes, list[Any]]]:
        """Yields the entities that have a row, each with its values; reports among the groups go to `told`."""
        for group in groups:
            if isinstance(group, list):
                told += group
                continue
            states.fold_all(group)
            values = read_entity(group.entity, self.asked)
            if values is not None:
                yield group.entity.text, values


def read_entity(entity: Entity, asked: SnapshotInput) -> list[Any] | None:
    """Returns the key and the features of an entity at the end of its events; None if it has no row."""
    finished = entity.finish()
    if finished is None:
        return None
    table, state = finished
    names = list(features_of(table, asked.names))
    row = read_row(table, state, max(asked.now_ms, state.stamp_ms), names)
    return [*(entity.row[key] for key in table.keys), *(row[name] for name in names)] if row else None
