"""Lanes of events in a bucket, jobs run in this process, and a fold that is as plain as can be: an event at a time, each
row stored and loaded again, as the folder may do it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import orjson
import pyarrow as pa

from emr_jobs import events
from emr_jobs.events import Grouping, Labels, Mapper, Row
from emr_jobs.session import Map
from emr_jobs.stores import Door
from headrace.batch import Record
from headrace.features.errors import EventRefused
from headrace.features.jobs import Applied, FoldResult, Source, load_part
from headrace.features.pipeline.compiled import PipelineDocument
from headrace.features.pipeline.features import State
from headrace.features.pipeline.registry import pipeline_of
from headrace.features.pipeline.tables import Table
from headrace.features.rows import decode_row, encode_row
from headrace.jobs import Request
from headrace.objects import Objects
from tests.unit.emr_jobs import samples
from tests.unit.features.ops import table as every
from tests.unit.features.pipeline import documents
from tests.unit.features.pipeline.documents import registered

FIRST_MS = samples.FIRST_MS
FIELDS = {"f": "f64", "i": "i64", "s": "str", "b": "bool", "lat": "f64", "lon": "f64"}


def aggregations() -> dict[str, Any]:
    """Returns every operator, once for all time and once with a window and a condition, as far as it takes them."""
    found: dict[str, Any] = {}
    for spec in every.specs():
        window = spec.params.get("window")
        if (window is not None) == (spec.where is not None) or spec.op == "first_seen_in_window":
            given = {name: value for name, value in spec.params.items() if value is not None and name != "type"}
            given.update({name: every.PARAMS[spec.op][name] for name in every.PARAMS.get(spec.op, {})})
            if window is not None:
                given["window"] = "1h"
            given.update({"where": "(f > 0)"} if spec.where else {})
            found.setdefault(f"{spec.op}{'_w' if window else ''}", {"op": spec.op, "params": given})
    return found


def document(*tables: Any, event: Any = None) -> PipelineDocument:
    """Returns the pipeline of a lane with these tables."""
    found = event or documents.event(fields=FIELDS, optional=list(FIELDS))
    return pipeline_of(registered(found, *tables), found["name"])


def pushed(count: int, seed: int, entities: int = 5) -> list[Record]:
    """Returns events as clients push them; some do not fit, and several share a stamp."""
    rng = random.Random(seed)
    now, found = FIRST_MS, []
    for offset in range(count):
        now += rng.choice([0, 0, 1, 7, 40, 3_000, 400_000])
        event = {
            "f": rng.choice([rng.uniform(-5, 120), 2.5, None]),
            "i": rng.choice([rng.randrange(-5, 50), 2**63 - 1, None]),
            "s": rng.choice([f"e{rng.randrange(entities)}", f"é|{rng.randrange(3)}", None]),
            "b": rng.choice([True, False, None]),
            "lat": rng.choice([rng.uniform(-80, 80), None]),
            "lon": rng.uniform(-170, 170),
        }
        if rng.random() < 0.03:
            event["f"] = "no number"
        found.append(Record(offset, now, None, orjson.dumps(event)))
    return found


def source(
    objects: Objects,
    records: Sequence[Record],
    pipelines: Sequence[tuple[int, PipelineDocument]],
    cuts: Sequence[int] = (),
    number: int = 0,
    span: tuple[int, int] | None = None,
) -> Source:
    """Seals records, and returns them as a lane."""
    log_id = f"lane-{number}"
    segments = samples.put_segments(objects, list(records), cuts, log_id)
    first, end = span or (records[0].offset, records[-1].offset + 1)
    applied = tuple(Applied(since, found) for since, found in pipelines)
    return Source(number, log_id, first, end, tuple(segments), applied)


def request(job_id: str, kind: str, what: msgspec.Struct) -> Request:
    """Returns the request of a job."""
    return Request(1, job_id, kind, FIRST_MS, msgspec.Raw(msgspec.json.encode(what)))


def run_pass(
    spark: object,
    door: Door,
    sources: Sequence[Source],
    grouping: Grouping,
    finish: Map,
    labels: Labels | None = None,
) -> Iterator[events.Report]:
    """As `events.run_pass`, with the rows sorted here."""
    packs = events.pack(sources)
    numbers = pa.RecordBatch.from_arrays([pa.array(range(len(packs)), pa.int64())], names=["id"])
    mapped = list(Mapper(door, events.slim(sources), packs, grouping)([numbers]))
    if labels is None:
        made = finish(_arranged(mapped))
    else:
        objects = pa.RecordBatch.from_arrays([pa.array(range(labels.objects), pa.int64())], names=["id"])
        made = labels.write(_arranged(finish(_arranged([*mapped, *labels.read([objects])]))))
    for found in made:
        yield from map(events.decode_report, found.column(0).to_pylist())


def _arranged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields rows sorted, in small batches."""
    ordered = sorted(events.rows_of(batches), key=_place)
    batcher = events.Batcher()
    sent = [batch for row in ordered for batch in batcher.add(row)] + list(batcher.flush())
    return (piece for batch in sent for piece in pa.Table.from_batches([batch]).to_batches(5))


def _place(row: Row) -> tuple[Any, ...]:
    return row.bucket, row.entity, row.first, row.second, row.label is not None, row.label or 0


class Live:
    """The rows that a folder would have, event by event."""

    def __init__(self, source: Source) -> None:
        self._lane = events.Lane(source)
        self.number = source.number
        self.stored: dict[tuple[str, str, str], bytes] = {}  # by table, generation, entity
        self.skipped = 0

    def push(self, record: Record) -> None:
        """Folds one event into the rows of all tables."""
        pipeline = self._lane.at(record.offset)
        if pipeline is None:
            return
        try:
            row = pipeline.check(orjson.loads(record.data))
        except EventRefused:
            self.skipped += 1
            return
        for table in pipeline.tables.values():
            found = table.entity_of(row)
            if found is not None:
                state = self.state(table, found[0]) or table.features.new()
                table.features.fold(state, found[1], record.time_ms, self.number, record.offset)
                self.stored[table.name, table.generation, found[0]] = encode_row(table.features, state)

    def state(self, table: Table, entity: str) -> State | None:
        """Returns the state of a row as it is stored."""
        data = self.stored.get((table.name, table.generation, entity))
        return None if data is None else decode_row(table.features, data)

    def newest(self) -> dict[tuple[str, str], bytes]:
        """Returns the rows of the newest generations, by table and entity."""
        current = {(table.name, table.generation) for table in self._lane.last.tables.values()}
        return {(name, entity): data for (name, made, entity), data in self.stored.items() if (name, made) in current}


def live(found: Source, records: Sequence[Record]) -> Live:
    """Returns the rows after all events of a lane's span."""
    rows = Live(found)
    for record in records:
        if found.first_offset <= record.offset < found.end_offset:
            rows.push(record)
    return rows


def installed(objects: Objects, result: FoldResult, lane: int = 0) -> dict[tuple[str, str], bytes]:
    """Returns the rows in the parts of a lane, by table and entity."""
    rows: dict[tuple[str, str], bytes] = {}
    for part in result.parts_of(lane):
        found = load_part(objects, part)
        assert len(found) == part.rows
        assert {row.as_of for row in found} == {result.ends[lane]}
        for row in found:
            assert (part.table, row.entity) not in rows
            rows[part.table, row.entity] = row.data
    return rows


class Living:
    """Counts bodies of rows that are in memory at one time: `most` of them."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def body(self, data: bytes) -> bytes:
        """Returns a body that counts as long as it lives."""
        owner = self

        class Counted(bytes):
            def __del__(self) -> None:
                owner.now -= 1

        self.now += 1
        self.most = max(self.most, self.now)
        return Counted(data)
