"""Events of a lane, under the pipeline that applies to each: the folder, readers and jobs all go through here. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from headrace.features.errors import EventRefused
from headrace.features.pipeline.compiled import Pipeline
from headrace.features.pipeline.features import State
from headrace.features.pipeline.tables import Table


class Pipelines:
    """The pipelines of a lane, each from the offset on where it begins to apply."""

    def __init__(self, spans: Sequence[tuple[int, Pipeline]]) -> None:
        """`spans` are ascending; of several that begin at one offset the last one applies."""
        self._sinces = [since for since, _ in spans]
        self._pipelines = [pipeline for _, pipeline in spans]

    def at(self, offset: int) -> Pipeline | None:
        """Returns the pipeline that applies to the event at an offset; None before the first."""
        place = bisect_right(self._sinces, offset)
        return self._pipelines[place - 1] if place else None

    def spans(self, first: int, end: int) -> Iterator[tuple[int, int, Pipeline]]:
        """Yields the parts of `[first, end)` to which one pipeline applies, with it."""
        ends = [*self._sinces[1:], max(end, self._sinces[-1])] if self._sinces else []
        for since, until, pipeline in zip(self._sinces, ends, self._pipelines, strict=True):
            start, stop = max(first, since), min(end, until)
            if start < stop:
                yield start, stop, pipeline

    @property
    def last(self) -> Pipeline:
        """The pipeline that applies at the end."""
        return self._pipelines[-1]


def read_event(pipeline: Pipeline, data: bytes) -> dict[str, Any] | None:
    """Returns the row of a stored event; None if the pipeline refuses it, which can be if it is older than the pipeline."""
    try:
        return pipeline.check(orjson.loads(data))
    except (EventRefused, orjson.JSONDecodeError):
        return None


def go_on(state: State | None, before: Table | None, after: Table | None) -> State | None:
    """Returns the state of an entity as it goes on under another pipeline: its features are those that this one has; with
    another generation it begins again.
    """
    if before is after or state is None:
        return state
    if before is None or after is None or before.generation != after.generation:
        return None
    return after.features.decode(before.features.encode(state))


class Event(NamedTuple):
    """An event for one entity of a table: what the features see of it, and where it is."""

    table: Table
    row: Any
    stamp_ms: int
    offset: int


class Entity:
    """An entity of a table while its events are folded.

    Attributes:
        table, state: under the pipeline of the newest event; None before the first.
    """

    def __init__(self, table: Table | None = None, state: State | None = None) -> None:
        self.table = table
        self.state = state

    def move(self, table: Table | None) -> None:
        """Goes on under the pipeline that has this table, or None that has it no longer."""
        self.state = go_on(self.state, self.table, table)
        self.table = table

    def fold(self, event: Event, lane: int) -> None:
        """Folds an event of a lane."""
        features = event.table.features
        self.move(event.table)
        if self.state is None:
            self.state = features.new()
        features.fold(self.state, event.row, event.stamp_ms, lane, event.offset)
