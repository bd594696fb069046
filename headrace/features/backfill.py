"""Back-fills: another generation of a table is computed from all events that there are, beside the one that is read, and is
read in its place once it has all events.

 1. An entry of the registry, then one of each lane, names the generation and the job. The lane's entry is the barrier.
 2. The job `fold` computes the rows of the events before each lane's barrier.
 3. The folder writes these rows, then folds the events from the barrier on into them, until the generation has all that
    the others have; from then on it folds it with the others (`headrace.features.fold`).
 4. When that is so in all lanes, an entry of the registry, and then of each lane, says that the generation is read. The
    rows of the other one are removed, as after any registration that drops state.

Each generation is a function of the log alone, so nothing is lost or doubled. A process that runs `advance` goes on where
another one ended: it only looks at what is there.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from msgspec.structs import replace

from headrace import jobs
from headrace.errors import Conflict, HeadraceError, StoreError
from headrace.features.documents import generation_of
from headrace.features.errors import TableNotFound
from headrace.features.events import Pipelines
from headrace.features.jobs import FOLD, Applied, FoldInput, Source
from headrace.features.pipeline.compiled import Building, Pipeline, PipelineDocument
from headrace.features.pipeline.registry import Registry
from headrace.features.register import Registrations
from headrace.features.values import lane
from headrace.log.requests import Head
from headrace.objects import keys

_log = logging.getLogger(__name__)
_FORGOTTEN_MS = 7 * 86_400_000  # a job's objects are kept for twice as long: one that is not there by then never was


class Left(NamedTuple):
    """A back-fill that is under way.

    Attributes:
        age_ms: since it was asked for.
        heads: its lanes: each may have something for the folder to do.
    """

    table: str
    age_ms: int
    heads: tuple[Head, ...]


class Backfills:
    """The back-fills of all namespaces."""

    def __init__(self, log: Registrations) -> None:
        self._log = log
        self._stores = log.stores

    def start(self, namespace: str, table: str) -> Building:
        """Lets a table be back-filled, if it is not already under way.

        Raises:
            TableNotFound: there is no such table.
            Conflict: it would lose events that the table has.
        """
        registry = self._log.registry(namespace).registry
        if table not in registry.tables:
            raise TableNotFound(table)
        if table not in registry.building:
            for head in self._heads(namespace, registry, table):
                pipelines = self._log.pipelines_of(head, head.state.floor)
                if loses(head.state.floor, pipelines, pipelines.last, table):
                    raise Conflict(
                        f"events before offset {head.state.floor} of '{head.config.name}' are gone, and table '{table}' "
                        "has them: a back-fill would lose them"
                    )
        building = self._log.build(namespace, table)
        self._ask(namespace, table, building, self._heads(namespace, registry, table))
        return building

    def advance(self, namespace: str) -> list[Left]:
        """Goes on with the back-fills of a namespace, and ends those that are done. Returns those that are left, also those
        that could not be looked at.
        """
        registry = self._log.registry(namespace).registry
        found = []
        for table, building in registry.building.items():
            heads: tuple[Head, ...] = ()
            try:
                heads = self._heads(namespace, registry, table)
                ending = self._ending(namespace, table, building, heads)
                if ending is not None:
                    self._log.end_build(namespace, table, building.generation, is_read=ending)
                    continue
            except (HeadraceError, StoreError):  # it must not stop the others
                _log.warning("back-fill was not looked at: table=%s job=%s", table, building.job_id, exc_info=True)
            found.append(Left(table, self._age_ms(building), heads))
        return found

    def _age_ms(self, building: Building) -> int:
        return self._stores.clock.now_ms() - (keys.made_ms(building.job_id) or 0)

    def _ending(self, namespace: str, table: str, building: Building, heads: tuple[Head, ...]) -> bool | None:
        """Returns whether a back-fill has succeeded; None if it goes on."""
        marks = [self._log.mark_of(head) for head in heads]
        rows = [generation_of(table, building.generation, head) for head in heads]
        stops = [stop for mark in marks if mark is not None for stop in mark.stopped if stop.generation in rows]
        if stops:
            return self._give_up(table, building, stops[0].reason)
        if all(mark is not None and one in mark.generations for mark, one in zip(marks, rows, strict=True)):
            return True
        status = jobs.status(self._stores.objects, building.job_id)
        if status is not None and status.state == "failed":
            return self._give_up(table, building, status.reason)
        if status is None and self._age_ms(building) > _FORGOTTEN_MS:
            return self._give_up(table, building, "its job is forgotten")
        if status is None and not self._ask(namespace, table, building, heads):
            return self._give_up(table, building, "it would lose events that the table has")
        return None

    def _give_up(self, table: str, building: Building, reason: str) -> bool:
        _log.error("back-fill is given up: table=%s job=%s reason=%s", table, building.job_id, reason)
        return False

    def _heads(self, namespace: str, registry: Registry, table: str) -> tuple[Head, ...]:
        event = registry.root_of(table)
        assert event is not None, "a table comes from an event"
        return tuple(self._log.head(lane(namespace, event.name, number)) for number in range(event.lanes))

    def _ask(self, namespace: str, table: str, building: Building, heads: tuple[Head, ...]) -> bool:
        """Asks for the job; does nothing if it was asked for. Returns False if it would lose events: from the barrier on no
        more go, so what is here now stays.
        """
        sources = []
        for number, head in enumerate(heads):
            first = head.state.floor
            pipelines = self._log.pipelines_of(head, first)
            document = pipelines.last.document
            state = document.tables.get(table)
            if state is None or state.building != building or document.event.lanes != len(heads):
                return True  # it has ended, or began in other lanes than these: the relay asks for the job then
            end, at = barrier_of(pipelines, head, table, building.generation)
            if loses(first, pipelines, at, table):
                return False
            generation = self._stores.watermarks.get(head.log_id).generation
            applied = (Applied(first, in_generation(at.document, table, building.generation)),)
            sources.append(Source(number, head.log_id, first, max(first, end), (), applied, generation))
        now_ms = self._stores.clock.now_ms()
        what = FoldInput(tuple(sources), (table,), namespace)
        jobs.ask(self._stores.objects, building.job_id, FOLD, now_ms, what)
        return True


def loses(floor: int, pipelines: Pipelines, now: Pipeline, table: str) -> bool:
    """Returns whether a table of a lane may have events below the lane's floor that a back-fill would take from it. Of
    windows it has none, if the event keeps its events for as long.

    Args:
        pipelines: those of the lane that apply from the floor on.
        now: the one of them by which the table is read.
    """
    found = now.tables.get(table)
    if not floor or found is None:
        return False
    window_ms, keep_ms = found.features.longest_window_ms, now.event.keep_events_ms
    if window_ms is not None and keep_ms is not None and window_ms <= keep_ms:
        return False
    oldest = pipelines.at(floor)
    is_older = oldest is not None and oldest.table(table, found.generation) is not None
    return is_older or now.document.tables[table].is_backfilled


def barrier_of(pipelines: Pipelines, head: Head, table: str, generation: str) -> tuple[int, Pipeline]:
    """Returns from which offset on, as far as is known, the pipelines of a lane have a generation of a table, and the first
    that has. The newest one has it.
    """
    for since, _, pipeline in pipelines.spans(0, head.state.next_offset + 1):
        if pipeline.table(table, generation) is not None:
            return since, pipeline
    raise AssertionError("the newest pipeline has it")


def in_generation(document: PipelineDocument, table: str, generation: str) -> PipelineDocument:
    """Returns a pipeline in which a table is read in a generation that it has, perhaps as one that is back-filled."""
    state = document.tables.get(table)
    if state is None or (state.building is None or state.building.generation != generation):
        return document
    own = replace(state, generation=generation, building=None)
    return replace(document, tables={**document.tables, table: own})
