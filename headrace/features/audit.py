"""Audits feature tables: computes rows again from the events of their lane, and compares what a reader would see of them
with the rows that are stored. It only reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import xxhash

from headrace.features.backfill import barrier_of, loses
from headrace.features.documents import generation_of
from headrace.features.events import Entity, Event, Pipelines, read_event
from headrace.features.pipeline.compiled import Pipeline
from headrace.features.pipeline.tables import Table
from headrace.features.register import Registrations
from headrace.features.rows import decode_row, read_row
from headrace.features.values import lane_of
from headrace.log.requests import Head
from headrace.log.seam import Which
from headrace.tables import marks
from headrace.tables.features import Key
from headrace.tables.marks import Mark

_AT_ONCE = 100  # rows of one read


class Audited(NamedTuple):
    """What an audit of a lane has found.

    Attributes:
        rows: how many rows were compared.
        moved: how many were not, since events came meanwhile.
        wrong: the rows that are not what the events say, as table and entity.
        left_out: the tables that can't be compared, and why.
    """

    rows: int = 0
    moved: int = 0
    wrong: tuple[tuple[str, str], ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()


class _Audit(NamedTuple):
    """A table that is audited: as it is now, and the pipeline that applies to the events before the offset `barrier`, if
    its rows were back-filled.
    """

    table: Table
    generation: str
    barrier: int
    before: Pipeline | None


def audit(log: Registrations, which: Which, share: int = 1) -> Audited:
    """Compares rows of a lane's tables with its events. Reads every event that is kept, and holds the entities that it
    compares in memory.

    Args:
        share: one of every `share` entities is compared, always the same ones; 1 compares all.

    Raises:
        NotFound, Gone: the lane has ended.
        StoreTimeout, StoreThrottled: repeat later.
    """
    mark = log.mark_of(log.head(which))
    head = log.head(which)  # what the mark has, this state has
    if mark is None or (mark.log_id, mark.incarnation) != (head.log_id, head.incarnation):
        return Audited()
    pipelines = log.pipelines_of(head, head.state.floor)
    left_out = dict(_left_out(head, mark, pipelines))
    audited = [one for one in _audited(head, mark, pipelines) if one.table.name not in left_out]
    entities = _fold(log, which, head, mark.folded, pipelines, audited, share)
    tables = {one.generation: one.table for one in audited}
    rows, moved, wrong = 0, 0, list[tuple[str, str]]()
    keys = list(entities)
    for start in range(0, len(keys), _AT_ONCE):
        some = keys[start : start + _AT_ONCE]
        stored = log.rows.get(some)
        for key in some:
            row, table, entity = stored.get(key), tables[key.generation], entities[key]
            if row is not None and row.as_of > mark.folded:
                moved += 1
                continue
            rows += 1
            entity.move(table)
            now_ms = max(log.stores.clock.now_ms(), entity.state.stamp_ms if entity.state is not None else 0)
            expected, found = read_row(table, entity.state, now_ms), None
            with suppress(Exception):  # damaged data may raise anything
                state = decode_row(table.features, row.data) if row is not None else None
                found = read_row(table, state, now_ms)
            if found != expected:
                wrong.append((table.name, key.entity))
    return Audited(rows, moved, tuple(wrong), tuple(left_out.items()))


def _left_out(head: Head, mark: Mark, pipelines: Pipelines) -> Iterator[tuple[str, str]]:
    for name, table in pipelines.last.tables.items():
        if marks.is_stopped(mark, generation_of(name, table.generation, head)):
            yield name, "it has stopped"
        elif loses(head.state.floor, pipelines, pipelines.last, name):
            yield name, "it has events that are no longer kept"


def _audited(head: Head, mark: Mark, pipelines: Pipelines) -> Iterator[_Audit]:
    for name, table in pipelines.last.tables.items():
        generation = generation_of(name, table.generation, head)
        if generation not in mark.generations:
            continue  # it is not folded yet
        barrier, before = 0, None
        if pipelines.last.document.tables[name].is_backfilled:
            barrier, before = barrier_of(pipelines, head, name, table.generation)
        yield _Audit(table, generation, barrier, before)


def _fold(
    log: Registrations,
    which: Which,
    head: Head,
    end: int,
    pipelines: Pipelines,
    audited: list[_Audit],
    share: int,
) -> dict[Key, Entity]:
    """Returns the entities that are compared, one of every `share`, as the events before the offset `end` make them."""
    found: dict[Key, Entity] = {}
    position, lane = head.state.floor, lane_of(head.config.role)
    while audited and position < end:
        page = log.records(which, position)
        for record in page.records:
            if record.offset >= end:
                break
            read: dict[int, dict[str, Any] | None] = {}
            for one in audited:
                pipeline = one.before if record.offset < one.barrier else pipelines.at(record.offset)
                table = pipeline.table(one.table.name, one.table.generation) if pipeline is not None else None
                if pipeline is None or table is None:
                    continue
                if id(pipeline) not in read:
                    read[id(pipeline)] = read_event(pipeline, record.data)
                row = read[id(pipeline)]
                placed = table.entity_of(row) if row is not None else None
                if placed is not None and xxhash.xxh64_intdigest(placed[0].encode()) % share == 0:
                    entity = found.setdefault(Key(head.log_id, one.generation, placed[0]), Entity())
                    entity.fold(Event(table, placed[1], record.time_ms, record.offset), lane)
        position = page.next
    return found
