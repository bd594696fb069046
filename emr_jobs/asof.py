"""The job `asof`: adds to each label the features that `/get` would have answered at the label's own time: a training set
without a glance at what came later.

Labels are sorted among the events of their entities. An entity is folded from its first event on, and each label reads the
state between the events before it and those after. Answers are brought back into the order of the labels, and each object
of labels becomes one of the training set.

A label sees the events with a stamp up to its own time. One with the header `Headrace-As-Of` of an answer sees the events
below the offset of its lane there, at the time there: exactly what that answer saw.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from emr_jobs import events, exports, reports, segments, states, stores
from emr_jobs.events import REPORTS, Answered, Batcher, Grouping, Labels, Lane, Row
from emr_jobs.exports import Sheet
from emr_jobs.states import Entity, Group
from emr_jobs.stores import Door
from headrace.errors import Damaged, InvalidRequest
from headrace.features.errors import KeyRefused
from headrace.features.jobs import AS_OF, TIMESTAMP, AsOfInput, ExportResult, Source, features_of
from headrace.features.pipeline.tables import Table
from headrace.features.rows import lane_for, parse_as_of, read_row
from headrace.jobs import Request
from headrace.objects import ObjectMissing, keys, packed

MAX_LABELS = 1 << 22  # of one object, which one worker reads
_NUMBERS = 1 << 24
_LAST = 2**63 - 1
_UNMATCHED = b"\xff"  # the entity of labels that ask for nothing that there is: no text of an entity has this byte


def run(spark: SparkSession, door: Door, request: Request) -> ExportResult:
    """Runs the job, and returns what is to be its result.

    Raises:
        InvalidRequest: the labels do not fit the table.
        Damaged: the input is none, or a segment is not what was published.
        StoreError: events are still not sealed, or the store still fails after retries.
    """
    asked = packed.parse(bytes(request.input), AsOfInput, "input of a training set")
    orders = check_labels(door, asked)
    sources = exports.find_segments(door, asked.sources)
    begins = [begins_of(door, source) for source in sources]
    grouping = Grouping((asked.table,), orders)
    slim = events.slim(sources)
    labels = Labels(
        len(asked.labels),
        Reader(door, slim, begins, grouping, asked),
        Writer(door, slim, asked, f"{keys.job_folder(request.job_id)}rows/"),
    )
    answerer = Answerer(slim, grouping, asked)
    return exports.collect(sources, events.run_pass(spark, door, sources, grouping, answerer, labels))


def check_labels(door: Door, asked: AsOfInput) -> tuple[bool, ...]:
    """Returns in which orders labels need the events (`Grouping.orders`). Raises InvalidRequest if they do not fit."""
    table = Lane(asked.sources[0]).last.tables[asked.table]
    needed, known = set(), None
    for key in asked.labels:
        file = open_labels(door, key)
        schema, rows = file.schema_arrow.remove_metadata(), file.metadata.num_rows
        if known is not None and not schema.equals(known):
            raise InvalidRequest(f"labels have other columns than {asked.labels[0]}: object={key}")
        known = schema
        missing = [name for name in (*table.keys, TIMESTAMP) if name not in schema.names]
        if missing:
            raise InvalidRequest(f"labels have no column '{missing[0]}': object={key} columns={schema.names}")
        doubled = [name for name in features_of(table, asked.names) if name in schema.names]
        if doubled:
            raise InvalidRequest(f"labels have a column with the name of the feature '{doubled[0]}': object={key}")
        kind = schema.field(TIMESTAMP).type
        if not (pa.types.is_timestamp(kind) or pa.types.is_integer(kind)):
            raise InvalidRequest(f"column '{TIMESTAMP}' must be a timestamp, or epoch ms: object={key} type={kind}")
        if rows > MAX_LABELS:
            raise InvalidRequest(f"one object has too many labels: limit={MAX_LABELS} object={key} rows={rows}")
        texts = file.read(columns=[AS_OF])[AS_OF].null_count if AS_OF in schema.names else rows
        needed |= {by_offset for by_offset, count in ((False, texts), (True, rows - texts)) if count}
    return tuple(sorted(needed)) or (False,)


def open_labels(door: Door, key: str) -> pq.ParquetFile:
    """Returns an object of labels. Raises InvalidRequest if it is missing, or no Parquet."""
    try:
        return pq.ParquetFile(pa.BufferReader(stores.retry(lambda: stores.open_bucket(door).get(key))))
    except ObjectMissing:
        raise InvalidRequest(f"labels are missing: object={key}") from None
    except pa.ArrowException as exc:
        raise InvalidRequest(f"labels are no Parquet: object={key}") from exc


def begins_of(door: Door, source: Source) -> list[int]:
    """Returns the stamp of the first event that each pipeline of a lane applies to: from then on it is that of labels."""
    return [_begin(door, source, applied.since) for applied in source.pipelines]


def _begin(door: Door, source: Source, since: int) -> int:
    if since <= source.first_offset:
        return 0
    for segment in source.segments:
        if segment.first_offset <= since < min(segment.end_offset, source.end_offset):
            objects = stores.open_bucket(door)
            records = stores.retry(partial(segments.read, objects, segment, since, since + 1))
            assert records.times is not None, "it reads them"
            begin: int = records.times[0].as_py()
            return begin
    return _LAST  # no event has come since


class Moment(NamedTuple):
    """What a label asks for: the state under the pipeline that applies at an offset, read at a time."""

    offset: int
    now_ms: int


_encode = msgspec.msgpack.encode
_moment = msgspec.msgpack.Decoder(Moment)
_values = msgspec.msgpack.Decoder(list[Any])


@dataclass(frozen=True)
class Reader:
    """The function that Spark calls in each worker to read labels; it yields rows among which those of events come.

    Attributes:
        begins: of each source, what `begins_of` returns.
    """

    door: Door
    sources: Sequence[Source]
    begins: Sequence[Sequence[int]]
    grouping: Grouping
    asked: AsOfInput

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Reads the objects whose numbers are in the batches."""
        table = Lane(self.sources[0]).last.tables[self.asked.table]
        lanes = {source.number: (source, begins) for source, begins in zip(self.sources, self.begins, strict=True)}
        out = Batcher()
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            label = number * _NUMBERS
            for values, time_ms, text in read_labels(open_labels(self.door, self.asked.labels[number]), table):
                row = self._place(table, lanes, values, time_ms, text)
                yield from out.add(row._replace(label=label))
                label += 1
        yield from out.flush()

    def _place(
        self,
        table: Table,
        lanes: Mapping[int, tuple[Source, Sequence[int]]],
        values: list[Any],
        time_ms: int | None,
        text: str | None,
    ) -> Row:
        """Returns the row of a label, without its number, at its place among the events of its entity."""
        by_offset = text is not None
        order = self.grouping.orders.index(by_offset)
        none = Row(self.grouping.bucket(order, 0, _UNMATCHED), -1, _UNMATCHED, 0, 0, None, b"")
        try:
            if None in values:
                return none
            entity = table.entity_for(values).encode()
            number = lane_for(table.lane_value_for(values), table.lanes) if table.lanes > 1 else 0
            as_of = parse_as_of(text) if text is not None else None
        except (KeyRefused, InvalidRequest):
            return none
        bucket = self.grouping.bucket(order, 0, entity)
        source, begins = lanes[number]
        if as_of is None:
            if time_ms is None:
                return none
            at = bisect_right(begins, time_ms) - 1
            offset = source.pipelines[at].since if at >= 0 else -1
            return Row(bucket, -1, entity, time_ms, _LAST, None, _encode(Moment(offset, time_ms)))
        end = as_of.lanes.get((self.asked.event, number))
        if end is None or end > source.end_offset:
            return none
        return Row(bucket, -1, entity, end, -1, None, _encode(Moment(end - 1, as_of.now_ms)))


def read_labels(file: pq.ParquetFile, table: Table) -> Iterator[tuple[list[Any], int | None, str | None]]:
    """Yields of each label the values of the key, the time in epoch ms, and the text of the header."""
    for batch in file.iter_batches(exports.BATCH_ROWS, use_threads=False):
        times = batch.column(TIMESTAMP)
        if pa.types.is_timestamp(times.type):
            times = times.cast(pa.timestamp("ms", times.type.tz), safe=False)
        texts = batch.column(AS_OF).to_pylist() if AS_OF in batch.schema.names else [None] * len(times)
        columns = [batch.column(key).to_pylist() for key in table.keys]
        rows = zip(*columns, strict=True) if columns else iter([()] * len(times))
        for values, time_ms, text in zip(rows, times.cast(pa.int64()).to_pylist(), texts, strict=True):
            yield list(values), time_ms, text


@dataclass(frozen=True)
class Answerer:
    """The function that Spark calls in each worker to fold sorted rows, and to read for each label between them; it yields
    rows of `events.SCHEMA` in which the bucket is that of the label's object, and the body has the values.
    """

    sources: Sequence[Source]
    grouping: Grouping
    asked: AsOfInput

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields answers, and the reports that are among the rows."""
        lanes = {source.number: Lane(source) for source in self.sources}
        newest = lanes[self.sources[0].number].last.tables[self.asked.table]
        types = features_of(newest, self.asked.names)
        out = Batcher()
        for group in states.groups(events.rows_of(batches), self.grouping, lanes):
            if isinstance(group, list):
                for report in group:
                    yield from out.add(Row(REPORTS, -1, b"", 0, 0, None, report))
                continue
            for label, body in answers(group, newest.keys, types):
                number, place = divmod(label, _NUMBERS)
                yield from out.add(Row(number + 1, -1, b"", place, 0, label, body))
        yield from out.flush()


def answers(group: Group, key: tuple[str, ...], types: Mapping[str, str]) -> Iterator[tuple[int, bytes | None]]:
    """Yields the labels of an entity, each with the encoded values of its features: None if there was no row then, and
    nothing if the label asks for nothing that there is.
    """
    entity = group.entity
    for row in group.rows:
        assert row.body is not None, "events and labels have one"
        if row.label is None:
            stamp_ms, offset = (row.second, row.first) if group.by_offset else (row.first, row.second)
            entity.fold(row.lane, stamp_ms, offset, row.body)
        else:
            yield row.label, _read(entity, _moment.decode(row.body), key, types) if row.body else b""


def _read(entity: Entity, moment: Moment, key: tuple[str, ...], types: Mapping[str, str]) -> bytes | None:
    """Returns the encoded values of an entity's features; null for those that its table did not have then."""
    if entity.state is None:
        return None
    entity.move(moment.offset)
    table, state = entity.table, entity.state
    if table is None or state is None or table.keys != key:
        return None
    names = [name for name, kind in types.items() if table.types.get(name) == kind]
    row = read_row(table, state, max(moment.now_ms, state.stamp_ms), names)
    return _encode([row.get(name) for name in types]) if row else None


@dataclass(frozen=True)
class Writer:
    """The function that Spark calls in each worker to write sorted answers beside their labels."""

    door: Door
    sources: Sequence[Source]
    asked: AsOfInput
    folder: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields reports: those among the rows, and one for each object."""
        types = features_of(Lane(self.sources[0]).last.tables[self.asked.table], self.asked.names)
        for bucket, rows in groupby(events.rows_of(batches), key=lambda row: row.bucket):
            if bucket == REPORTS:
                yield reports.batch([row.body for row in rows if row.body is not None])
            else:
                yield reports.batch([events.encode_report(self._write(bucket - 1, rows, types))])

    def _write(self, number: int, rows: Iterator[Row], types: Mapping[str, str]) -> Answered:
        file = open_labels(self.door, self.asked.labels[number])
        sheet = Sheet(pa.schema([*file.schema_arrow.remove_metadata(), *exports.fields_of(types)]))
        unmatched = 0
        for batch in file.iter_batches(exports.BATCH_ROWS, use_threads=False):
            found = list(islice(rows, batch.num_rows))
            if [row.first for row in found] != list(range(sheet.rows, sheet.rows + batch.num_rows)):
                raise Damaged(f"labels changed while they were read: object={self.asked.labels[number]}")
            unmatched += sum(row.body == b"" for row in found)
            values = [_values.decode(row.body) if row.body else None for row in found]
            sheet.add([*batch.columns, *exports.columns_of(values, types)])
        key = f"{self.folder}{number:05d}.parquet"
        sheet.put(self.door, key)
        return Answered(key, sheet.rows, unmatched)
