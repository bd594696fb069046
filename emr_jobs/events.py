"""Events of feature tables, from segments to Spark rows: each is checked, taken through the chain of each table, and
becomes a row of the entity that it concerns. The rows of one entity meet in one partition, in the order of the events.

    bucket   int     rows that share it meet in one partition; 0 holds reports
    lane     int     number of the event's lane; -1 for labels
    entity   binary  the entity's stored text
    first    long    what rows are sorted by: the event's stamp and offset, or (`by_offset`) its offset and stamp
    second   long
    label    long    number of a label (`emr_jobs.asof`); null for an event, which comes before a label at its place
    body     binary  what the features see of the event, as MessagePack; of a label, the time for which it asks
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import orjson
import pyarrow as pa
import xxhash
from msgspec.structs import replace
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from emr_jobs import reports, segments, stores
from emr_jobs.session import Map, map_in_arrow
from emr_jobs.stores import Door
from headrace.errors import Damaged
from headrace.features.errors import EventRefused
from headrace.features.events import Pipelines
from headrace.features.jobs import Counted, Part, Source, weigh
from headrace.features.pipeline.compiled import compile_pipeline
from headrace.features.pipeline.tables import Table
from headrace.segment.descriptor import PageIndex, Segment

SCHEMA = StructType(
    [
        StructField("bucket", IntegerType(), False),
        StructField("lane", IntegerType(), False),
        StructField("entity", BinaryType(), False),
        StructField("first", LongType(), False),
        StructField("second", LongType(), False),
        StructField("label", LongType()),
        StructField("body", BinaryType()),
    ]
)
ARROW = pa.schema(
    [
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("lane", pa.int32(), nullable=False),
        pa.field("entity", pa.binary(), nullable=False),
        pa.field("first", pa.int64(), nullable=False),
        pa.field("second", pa.int64(), nullable=False),
        pa.field("label", pa.int64()),
        pa.field("body", pa.binary()),
    ]
)
REPORTS = 0  # the bucket of what mappers report
SHARDS = 256  # buckets of a table
ORDER = ("bucket", "entity", "first", "second", "label")
_NO_PAGES = PageIndex(0, (), (), ())
_PACK_BYTES = 16 * 1024 * 1024
_PARTITION_BYTES = 48 * 1024 * 1024  # of events' text, for each table that they feed
_MAX_PARTITIONS = 1_024
_BATCH_ROWS = 16_384
_BATCH_BYTES = 8 * 1024 * 1024


class Read(msgspec.Struct, frozen=True, tag=True):
    """The report of what became of the events of a segment."""

    lane: int
    counted: Counted


class Wrote(msgspec.Struct, frozen=True, tag=True):
    """The report that a part was written."""

    part: Part


class Broke(msgspec.Struct, frozen=True, tag=True):
    """The report of a failure, which fails the job."""

    reason: str


class Answered(msgspec.Struct, frozen=True, tag=True):
    """The report that an object of an export was written."""

    key: str
    rows: int
    unmatched: int = 0


Report = Read | Wrote | Broke | Answered


class Row(NamedTuple):
    """A row of `SCHEMA`."""

    bucket: int
    lane: int
    entity: bytes
    first: int
    second: int
    label: int | None
    body: bytes | None


class Lane(Pipelines):
    """A lane's pipelines, compiled."""

    def __init__(self, source: Source) -> None:
        self.source = source
        super().__init__([(applied.since, compile_pipeline(applied.document)) for applied in source.pipelines])


@dataclass(frozen=True)
class Grouping:
    """How rows are grouped: which buckets belong to which table.

    Attributes:
        tables: names of the tables.
        orders: for each way in which events are sorted, whether it is by offset. Labels that ask for a time need events by
            stamp, those that ask for an offset need them by offset, and each way has rows of its own.
    """

    tables: tuple[str, ...]
    orders: tuple[bool, ...] = (False,)

    def bucket(self, order: int, table: int, entity: bytes) -> int:
        """Returns the bucket of an entity's rows."""
        return 1 + (order * len(self.tables) + table) * SHARDS + xxhash.xxh64_intdigest(entity) % SHARDS

    def open(self, bucket: int) -> tuple[bool, str]:
        """Returns whether the rows of a bucket are sorted by offset, and their table."""
        order, table = divmod((bucket - 1) // SHARDS, len(self.tables))
        return self.orders[order], self.tables[table]


class Item(NamedTuple):
    """A segment of a source, by the place of the source."""

    source: int
    segment: Segment


def pack(sources: Sequence[Source]) -> list[tuple[Item, ...]]:
    """Groups neighbouring segments into packs of at most 16 MiB of payload; a larger one has a pack of its own."""
    packs: list[list[Item]] = []
    room = 0
    for number, source in enumerate(sources):
        for segment in source.segments:
            if not packs or segment.payload_bytes > room:
                packs.append([])
                room = max(_PACK_BYTES, segment.payload_bytes)
            packs[-1].append(Item(number, replace(segment, pages=_NO_PAGES, meta=None)))
            room -= segment.payload_bytes
    return [tuple(one) for one in packs]


@dataclass(frozen=True)
class Mapper:
    """The function that Spark calls in each worker to read packs of segments; it yields rows of `SCHEMA`."""

    door: Door
    sources: Sequence[Source]
    packs: Sequence[tuple[Item, ...]]
    grouping: Grouping

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Reads the packs whose numbers are in the batches."""
        lanes = [Lane(source) for source in self.sources]
        out = Batcher()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for item in self.packs[number]:
                    lane = lanes[item.source]
                    try:
                        yield from self._read(lane, item.segment, out)
                    except Exception as exc:  # noqa: BLE001 whatever it is, the driver tells it
                        yield from out.add(
                            report_row(Broke(reports.failed(0, exc).reason), item.segment.first_offset)
                        )
        yield from out.flush()

    def _read(self, lane: Lane, segment: Segment, out: Batcher) -> Iterator[pa.RecordBatch]:
        source, objects = lane.source, stores.open_bucket(self.door)
        first, end = max(source.first_offset, segment.first_offset), min(source.end_offset, segment.end_offset)
        if first >= end:
            return
        records = stores.retry(lambda: segments.read(objects, segment, first, end))
        assert records.times is not None, "it reads them"
        stamps = records.times.to_pylist()
        skipped, example = 0, ""
        for start, stop, pipeline in lane.spans(first, end):
            targets = [
                (number, table, by_offset, order)
                for number, table in enumerate(map(pipeline.tables.get, self.grouping.tables))
                if table is not None
                for order, by_offset in enumerate(self.grouping.orders)
            ]
            for offset in range(start, stop):
                try:
                    row = pipeline.check(orjson.loads(records.data[offset - first]))
                except (EventRefused, orjson.JSONDecodeError) as exc:
                    skipped += 1
                    example = example or f"offset {offset}: {exc}"
                    continue
                yield from self._send(source, targets, row, stamps[offset - first], offset, out)
        counted = Counted(end - first, skipped, example)
        yield from out.add(report_row(Read(source.number, counted), first))

    def _send(
        self,
        source: Source,
        targets: Sequence[tuple[int, Table, bool, int]],
        row: Mapping[str, Any],
        stamp_ms: int,
        offset: int,
        out: Batcher,
    ) -> Iterator[pa.RecordBatch]:
        """Adds the rows of one event: one per table and order."""
        for number, table, by_offset, order in targets:
            found = table.entity_of(row)
            if found is None:
                continue
            entity = found[0].encode()
            places = (offset, stamp_ms) if by_offset else (stamp_ms, offset)
            bucket = self.grouping.bucket(order, number, entity)
            yield from out.add(Row(bucket, source.number, entity, *places, None, _encode(found[1])))


_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder().decode
_encode_report = msgspec.msgpack.encode
_report_decoder = msgspec.msgpack.Decoder(Report)


def report_row(report: Report, at: int) -> Row:
    """Returns a report as a row."""
    return Row(REPORTS, 0, b"", at, 0, None, _encode_report(report))


def read_body(body: bytes) -> Any:
    """Returns what the features see of an event."""
    return _decode(body)


def encode_report(report: Report) -> bytes:
    """Encodes a report as bytes."""
    return _encode_report(report)


def decode_report(data: bytes) -> Report:
    """Decodes a report. A `Broke` raises Damaged with its reason."""
    report: Report = _report_decoder.decode(data)
    if isinstance(report, Broke):
        raise Damaged(report.reason)
    return report


class Batcher:
    """Rows that wait to be a batch: bounded in rows and bytes."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._bytes = 0

    def add(self, row: Row) -> Iterator[pa.RecordBatch]:
        """Adds a row; yields a batch if there are enough."""
        self._rows.append(row)
        self._bytes += len(row.body or b"") + len(row.entity)
        if len(self._rows) >= _BATCH_ROWS or self._bytes >= _BATCH_BYTES:
            yield from self.flush()

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yields what is left."""
        if self._rows:
            columns = zip(*self._rows, strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, ARROW, strict=True)]
            self._rows, self._bytes = [], 0
            yield pa.RecordBatch.from_arrays(arrays, schema=ARROW)


def slim(sources: Sequence[Source]) -> list[Source]:
    """Returns sources without their segments, because they are sent with every piece of work."""
    return [replace(source, segments=()) for source in sources]


class Labels(NamedTuple):
    """Labels that are sorted among events, for which `finish` yields rows instead of reports.

    Attributes:
        objects: their number.
        read: yields the labels of objects, by their numbers.
        write: takes what `finish` yields, sorted, with the rows of one bucket together, and yields reports.
    """

    objects: int
    read: Map
    write: Map


def run_pass(
    spark: SparkSession,
    door: Door,
    sources: Sequence[Source],
    grouping: Grouping,
    finish: Map,
    labels: Labels | None = None,
) -> Iterator[Report]:
    """Runs the Spark pass: reads all events, brings the rows of each entity together, in order, and hands them to `finish`.
    Yields the reports that it makes.

    Raises:
        Damaged: a worker has reported a failure.
    """
    packs = pack(sources)
    numbers = spark.range(0, len(packs), 1, max(len(packs), 1))
    rows = map_in_arrow(numbers, Mapper(door, slim(sources), packs, grouping), SCHEMA)
    if labels is not None:
        numbers = spark.range(0, labels.objects, 1, min(labels.objects, _MAX_PARTITIONS))
        rows = rows.union(map_in_arrow(numbers, labels.read, SCHEMA))
    size = weigh(sources) * len(grouping.tables) * len(grouping.orders)
    partitions = min(max(1, -(-size // _PARTITION_BYTES)), _MAX_PARTITIONS)
    arranged = rows.repartition(partitions, "bucket").sortWithinPartitions(*ORDER)
    if labels is None:
        made = map_in_arrow(arranged, finish, reports.SCHEMA)
    else:
        answers = map_in_arrow(arranged, finish, SCHEMA).repartition(min(labels.objects, _MAX_PARTITIONS), "bucket")
        made = map_in_arrow(answers.sortWithinPartitions(*ORDER), labels.write, reports.SCHEMA)
    for row in made.toLocalIterator(prefetchPartitions=True):
        yield decode_report(bytes(row["report"]))


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    """Yields the rows of batches, one by one."""
    for batch in batches:
        yield from map(Row._make, zip(*(column.to_pylist() for column in batch.columns), strict=True))
