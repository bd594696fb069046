"""The fold of sorted rows: one entity after the other, each from its first event on. An entity with any number of events
takes the memory of its state, and of one batch.

A pipeline that changes in mid-lane is followed: the state goes on in the features that the next pipeline has, as the stored
row of a live table does; with another generation it begins again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from emr_jobs.events import REPORTS, Grouping, Lane, Row, read_body
from headrace.features.events import go_on
from headrace.features.pipeline.features import State
from headrace.features.pipeline.tables import Table


class Entity:
    """An entity of a table while its events are folded.

    Attributes:
        lane: the number of the lane of its events; -1 before the first.
        end: the offset after the newest event.
        table, state: of the generation at that offset; None before the first event.
        row: what the features saw of the newest event.
    """

    def __init__(self, name: str, text: bytes, lanes: Mapping[int, Lane]) -> None:
        self.name = name
        self.text = text
        self._lanes = lanes
        self.lane = -1
        self.end = 0
        self.table: Table | None = None
        self.state: State | None = None
        self.row: Any = None

    def fold(self, lane: int, stamp_ms: int, offset: int, body: bytes) -> None:
        """Folds one event."""
        self.lane, self.end = lane, offset + 1
        self.move(offset)
        assert self.table is not None, "an event of a table comes under a pipeline that has it"
        if self.state is None:
            self.state = self.table.features.new()
        self.row = read_body(body)
        self.table.features.fold(self.state, self.row, stamp_ms, lane, offset)

    def move(self, offset: int) -> None:
        """Goes on with the pipeline that applies at an offset."""
        pipeline = self._lanes[self.lane].at(offset)
        table = None if pipeline is None else pipeline.tables.get(self.name)
        self.state = go_on(self.state, self.table, table)
        self.table = table

    def finish(self) -> tuple[Table, State] | None:
        """Returns the row that the entity has in the end; None if it has none in the newest generation."""
        if self.table is None or self.state is None:
            return None
        last = self._lanes[self.lane].last.tables.get(self.name)
        return (self.table, self.state) if last is not None and last.generation == self.table.generation else None


class Group(NamedTuple):
    """The rows of one entity: events and labels, in order. They must be read before the next group is asked for."""

    entity: Entity
    by_offset: bool
    rows: Iterator[Row]


def groups(rows: Iterable[Row], grouping: Grouping, lanes: Mapping[int, Lane]) -> Iterator[Group | list[bytes]]:
    """Yields sorted rows by entity; for rows that are reports, a list of these."""
    for (bucket, entity), found in groupby(rows, key=lambda row: (row.bucket, row.entity)):
        if bucket == REPORTS:
            yield [row.body for row in found if row.body is not None]
        else:
            by_offset, table = grouping.open(bucket)
            yield Group(Entity(table, entity, lanes), by_offset, found)


def fold_all(group: Group) -> None:
    """Folds all events of a group without labels."""
    for row in group.rows:
        assert row.body is not None, "an event has one"
        group.entity.fold(row.lane, row.first, row.second, row.body)
