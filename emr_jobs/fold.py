"""The job `fold`: computes the rows of feature tables from all events of a lane, or of several, as the folder would have
done. It writes parts, then the result that names them; the folder installs them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from emr_jobs import events, reports, states, stores
from emr_jobs.events import Grouping, Lane, Wrote
from emr_jobs.exports import count, find_segments
from emr_jobs.stores import Door
from headrace.errors import Damaged
from headrace.features.jobs import PART_BYTES, PART_ROWS, FoldInput, FoldResult, Part, PartRow, Source
from headrace.features.rows import encode_row, expires_at
from headrace.jobs import Request
from headrace.objects import keys, packed


def run(spark: SparkSession, door: Door, request: Request) -> FoldResult:
    """Runs the job, and returns what is to be its result.

    Raises:
        Damaged: the input is none, or a segment is not what was published.
        StoreError: the store still fails after retries.
    """
    asked = packed.parse(bytes(request.input), FoldInput, "input of a fold")
    sources, grouping = find_segments(door, asked.sources), Grouping(asked.tables)
    if [source.first_offset for source in sources] != [source.first_offset for source in asked.sources]:
        raise Damaged("events are gone that were there when this job was asked for")
    finisher = Finisher(door, events.slim(sources), grouping, keys.job_folder(request.job_id))
    counted, wrote = count(sources, events.run_pass(spark, door, sources, grouping, finisher), Wrote)
    parts = sorted((report.part for report in wrote), key=_place)
    generations = {
        name: table.generation for name, table in Lane(sources[0]).last.tables.items() if name in asked.tables
    }
    ends = {source.number: source.end_offset for source in sources}
    return FoldResult(packed.VERSION, tuple(parts), generations, ends, counted)


def _place(part: Part) -> tuple[int, str, str]:
    return part.lane, part.table, part.key


@dataclass(frozen=True)
class Finisher:
    """The function that Spark calls in each worker to fold sorted rows and write their entities' rows in parts."""

    door: Door
    sources: Sequence[Source]
    grouping: Grouping
    folder: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Folds the rows, and yields reports: those among the rows, and one for each part."""
        lanes = {source.number: Lane(source) for source in self.sources}
        writer = _Writer(self.door, self.folder)
        for group in states.groups(events.rows_of(batches), self.grouping, lanes):
            if isinstance(group, list):
                yield reports.batch(group)
                continue
            states.fold_all(group)
            entity = group.entity
            finished = entity.finish()
            if finished is not None:
                table, state = finished
                end = lanes[entity.lane].source.end_offset
                data = encode_row(table.features, state)
                row = PartRow(entity.text.decode(), end, data, expires_at(table, state.stamp_ms))
                yield from writer.add(table.name, entity.lane, row)
        yield from writer.flush()


class _Writer:
    """The parts of one worker: a part has rows of one table and lane, and is bounded in rows and bytes."""

    def __init__(self, door: Door, folder: str) -> None:
        self._door = door
        self._folder = folder
        self._rows: dict[tuple[str, int], list[PartRow]] = {}
        self._bytes: dict[tuple[str, int], int] = {}

    def add(self, table: str, lane: int, row: PartRow) -> Iterator[pa.RecordBatch]:
        place = (table, lane)
        rows = self._rows.setdefault(place, [])
        rows.append(row)
        self._bytes[place] = self._bytes.get(place, 0) + len(row.entity) + len(row.data)
        if len(rows) >= PART_ROWS or self._bytes[place] >= PART_BYTES:
            yield self._write(place)

    def flush(self) -> Iterator[pa.RecordBatch]:
        for place in list(self._rows):
            yield self._write(place)

    def _write(self, place: tuple[str, int]) -> pa.RecordBatch:
        rows = self._rows.pop(place)
        del self._bytes[place]
        data = msgspec.msgpack.encode(rows)
        key = f"{self._folder}rows/{place[0]}-{place[1]:02d}-{os.urandom(6).hex()}.msgpack"
        stores.retry(lambda: stores.open_bucket(self._door).put(key, data))
        part = Part(place[0], place[1], key, len(rows), len(data), hashlib.sha256(data).hexdigest())
        return reports.batch([events.encode_report(Wrote(part))])
