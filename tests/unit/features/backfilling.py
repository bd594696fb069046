"""Back-fills in a world: what relay, folder and job do, without Spark."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from headrace import jobs
from headrace.errors import Damaged
from headrace.features.backfill import Backfills
from headrace.features.events import Entity, Event, read_event
from headrace.features.jobs import FOLD, Counted, FoldInput, FoldResult, Part, PartRow, Source
from headrace.features.pipeline.compiled import compile_pipeline
from headrace.features.register import Registrations
from headrace.features.rows import encode_row, expires_at
from headrace.features.values import lane
from headrace.log.stores import Stores
from headrace.objects import Objects, keys, packed
from tests.unit.features.world import NS, World, table

PART_ROWS = 2  # of a part, so that there are several


def late(**agg: Any) -> dict[str, Any]:
    """Returns the node of a table that wants all events."""
    return {**table("Late", **agg), "backfill": True}


def backfills(stores: Stores) -> Backfills:
    """Returns the verbs, of a process with cold caches."""
    return Backfills(Registrations(stores))


def waiting_jobs(objects: Objects) -> list[str]:
    """Returns the back-fills' jobs that were asked for and have not ended."""
    asked = [keys.requested_job(key) for key in objects.list("jobs/") if key.endswith("request.json.zst")]
    return [
        job_id
        for job_id in filter(None, asked)
        if (request := jobs.load_request(objects, job_id)) is not None
        and request.kind == FOLD
        and jobs.result(objects, job_id, FoldResult) is None
        and jobs.load(objects, keys.job_ended(job_id), jobs.Ended) is None
    ]


def run_job(stores: Stores, job_id: str) -> FoldResult:
    """Runs a job: each part of its result has a few rows of one lane. Raises Damaged if a lane is not what it was when the
    job was asked for.
    """
    request = jobs.load_request(stores.objects, job_id)
    assert request is not None
    given = packed.parse(bytes(request.input), FoldInput, "input")
    parts = [part for source in given.sources for part in _fold(stores, given, source, job_id)]
    (applied,) = given.sources[0].pipelines
    generation = compile_pipeline(applied.document).tables[given.tables[0]].generation
    ends = {source.number: source.end_offset for source in given.sources}
    counted = {source.number: Counted() for source in given.sources}
    result = FoldResult(packed.VERSION, tuple(parts), {given.tables[0]: generation}, ends, counted)
    jobs.note(stores.objects, keys.job_result(job_id), result)
    return result


def run_jobs(world: World) -> None:
    """Runs the jobs that were asked for."""
    for job_id in waiting_jobs(world.stores.objects):
        run_job(world.stores, job_id)


def _fold(stores: Stores, given: FoldInput, source: Source, job_id: str) -> list[Part]:
    (applied,) = source.pipelines
    (name,) = given.tables
    pipeline = compile_pipeline(applied.document)
    at = pipeline.tables[name]
    entities: dict[str, Entity] = {}
    log, which = Registrations(stores), lane(given.namespace, applied.document.event.name, source.number)
    position = source.first_offset
    while position < source.end_offset:
        page = log.records(which, position)
        if page.head.log_id != source.log_id or page.head.state.floor > source.first_offset:
            raise Damaged("events are gone that were there when this job was asked for")
        for record in page.records:
            row = read_event(pipeline, record.data) if record.offset < source.end_offset else None
            placed = at.entity_of(row) if row is not None else None
            if placed is not None:
                entity = entities.setdefault(placed[0], Entity())
                entity.fold(Event(at, placed[1], record.time_ms, record.offset), source.number)
        position = page.next
    rows = [
        PartRow(text, source.end_offset, encode_row(at.features, one.state), expires_at(at, one.state.stamp_ms))
        for text, one in entities.items()
        if one.state is not None
    ]
    parts = []
    for start in range(0, len(rows), PART_ROWS):
        data = msgspec.msgpack.encode(rows[start : start + PART_ROWS])
        key = f"{keys.job_folder(job_id)}rows/{source.number}-{start}"
        stores.objects.put(key, data)
        size, digest = len(data), hashlib.sha256(data).hexdigest()
        parts.append(Part(name, source.number, key, len(rows[start : start + PART_ROWS]), size, digest))
    return parts


def advance(world: World, lanes: int = 1) -> int:
    """Does everything that a relay and a folder do at one time. Returns how many back-fills are left."""
    Registrations(world.stores).finish(NS)
    left = backfills(world.stores).advance(NS)
    for number in range(lanes):
        world.fold(number=number)
    return len(left)


def finish(world: World, lanes: int = 1) -> None:
    """Brings all back-fills to their end."""
    for _ in range(6):
        run_jobs(world)
        if not advance(world, lanes):
            return
    raise AssertionError("it does not end")
