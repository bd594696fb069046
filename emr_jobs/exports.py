"""What the exports of feature tables (`emr_jobs.snapshot`, `emr_jobs.asof`) have in common: which segments they read, and
the Parquet objects that they write.

An object's key follows from what is in it, so a piece of work that Spark repeats writes the same object again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, takewhile
from typing import Any, TypeVar

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from emr_jobs import stores
from emr_jobs.events import Answered, Read, Report
from emr_jobs.stores import Door
from headrace.errors import Damaged, StoreTimeout
from headrace.features.jobs import Counted, ExportResult, Source
from headrace.manifest.manifest import Manifest
from headrace.manifest.store import ManifestStore
from headrace.objects import packed
from headrace.segment.descriptor import Segment

BATCH_ROWS = 8_192
_TYPES = {"i64": pa.int64(), "f64": pa.float64(), "bool": pa.bool_()}
T = TypeVar("T")
_WAIT_S = 2.0
_WAITS = 450  # 15 minutes: a sealer that misses the request seals by age


def find_segments(door: Door, sources: Sequence[Source], sleep: Callable[[float], None] = time.sleep) -> list[Source]:
    """Returns sources with their segments, of the events that were not dropped meanwhile. Waits until all are sealed.

    Raises:
        StoreTimeout: they are still not.
    """
    manifests = ManifestStore(stores.open_bucket(door))
    return [_find(manifests, source, sleep) for source in sources]


def _find(manifests: ManifestStore, source: Source, sleep: Callable[[float], None]) -> Source:
    if source.segments or source.first_offset >= source.end_offset:
        return source
    manifest: Manifest | None = None
    for _ in range(_WAITS):
        manifest = stores.retry(partial(manifests.newest, source.log_id, manifest, source.generation))
        if manifest is not None and manifest.end_offset >= source.end_offset:
            first = min(max(source.first_offset, manifest.begin_offset), source.end_offset)
            found = stores.retry(partial(_segments, manifests, manifest, first, source.end_offset))
            return replace(source, first_offset=first, segments=found)
        sleep(_WAIT_S)
    raise StoreTimeout(f"events are not sealed: log_id={source.log_id} end_offset={source.end_offset}")


def _segments(manifests: ManifestStore, manifest: Manifest, first: int, end: int) -> tuple[Segment, ...]:
    return tuple(takewhile(lambda one: one.first_offset < end, manifests.segments_from(manifest, first)))


def collect(sources: Sequence[Source], reports: Iterable[Report], view: str = "") -> ExportResult:
    """Returns the result of an export from what the workers report. Raises Damaged if they did not read all events."""
    counted, objects = count(sources, reports, Answered)
    keys = tuple(sorted(one.key for one in objects))
    rows, unmatched = sum(one.rows for one in objects), sum(one.unmatched for one in objects)
    return ExportResult(packed.VERSION, keys, rows, counted, unmatched, view)


def count(sources: Sequence[Source], reports: Iterable[Report], kind: type[T]) -> tuple[dict[int, Counted], list[T]]:
    """Returns what became of the events of each lane, by its number, and the reports of a kind. Raises Damaged if workers
    did not read all events.
    """
    counted = {source.number: Counted() for source in sources}
    made: list[T] = []
    for report in reports:
        if isinstance(report, kind):
            made.append(report)
        elif isinstance(report, Read):
            counted[report.lane] = counted[report.lane].plus(report.counted)
    for source in sources:
        expected, found = source.end_offset - source.first_offset, counted[source.number].events
        if found != expected:
            raise Damaged(f"lane has other events: log_id={source.log_id} expected={expected} found={found}")
    return counted, made


def fields_of(types: Mapping[str, str]) -> list[pa.Field]:
    """Returns the columns for values of these types."""
    return [pa.field(name, _TYPES.get(kind, pa.string())) for name, kind in types.items()]


def columns_of(rows: Sequence[Sequence[Any] | None], types: Mapping[str, str]) -> list[pa.Array]:
    """Returns the columns of rows that have these values; of None, nulls. JSON is written as text."""
    return [
        pa.array([None if row is None else _value(row[at], kind) for row in rows], _TYPES.get(kind, pa.string()))
        for at, kind in enumerate(types.values())
    ]


def _value(value: Any, kind: str) -> Any:
    return orjson.dumps(value).decode() if kind == "json" and value is not None else value


@dataclass
class Sheet:
    """A Parquet object that is written batch by batch: in memory are its compressed bytes."""

    schema: pa.Schema
    rows: int = 0

    def __post_init__(self) -> None:
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(self._sink, self.schema, compression="zstd")

    def add(self, columns: Sequence[pa.Array]) -> None:
        """Adds a batch of rows."""
        batch = pa.RecordBatch.from_arrays(list(columns), schema=self.schema)
        self._writer.write_batch(batch)
        self.rows += batch.num_rows

    def put(self, door: Door, key: str) -> None:
        """Writes the object."""
        self._writer.close()
        data = self._sink.getvalue().to_pybytes()
        stores.retry(lambda: stores.open_bucket(door).put(key, data))


def batches_of(rows: Iterable[T]) -> Iterator[list[T]]:
    """Yields rows in batches of `BATCH_ROWS`."""
    left = iter(rows)
    while batch := list(islice(left, BATCH_ROWS)):
        yield batch
