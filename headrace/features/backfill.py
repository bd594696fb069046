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
from headrace.errors import Conflict
from headrace.features.documents import RegistryView
from headrace.features.errors import TableNotFound
from headrace.features.events import Pipelines
from headrace.features.jobs import FOLD, Applied, FoldInput, Source
from headrace.features.pipeline.compiled import Building
from headrace.features.register import Registrations
from headrace.features.values import lane
from headrace.log.requests import Head
from headrace.objects import keys

_log = logging.getLogger(__name__)


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
            Conflict: the table has features of all time, and events that it has are gone: it would lose them.
        """
        view = self._log.registry(namespace)
        if table not in view.registry.tables:
            raise TableNotFound(table)
        for head in self._heads(namespace, view, table):
            pipelines = self._log.pipelines_of(head, head.state.floor)
            serving = pipelines.last.tables.get(table)
            if serving is None or serving.features.longest_window_ms is not None:
                continue
            if head.state.floor > _since(pipelines, head, table, serving.generation):
                raise Conflict(
                    f"table '{table}' has features of all time, and events before offset {head.state.floor} are gone: "
                    "a back-fill would lose them"
                )
        building = self._log.build(namespace, table)
        self._ask(namespace, self._log.registry(namespace), table, building)
        return building

    def advance(self, namespace: str) -> list[Left]:
        """Goes on with the back-fills of a namespace, and ends those that are done. Returns those that are left."""
        view = self._log.registry(namespace)
        found = []
        for table, building in view.building.items():
            heads = self._heads(namespace, view, table)
            ending = self._ending(namespace, view, table, building, heads)
            if ending is None:
                age_ms = self._stores.clock.now_ms() - (keys.made_ms(building.job_id) or 0)
                found.append(Left(table, age_ms, heads))
            else:
                self._log.end_build(namespace, table, building.generation, is_read=ending)
        return found

    def _ending(
        self, namespace: str, view: RegistryView, table: str, building: Building, heads: tuple[Head, ...]
    ) -> bool | None:
        """Returns whether a back-fill has succeeded; None if it goes on."""
        marks = [self._log.mark_of(head) for head in heads]
        rows = [f"{table}.{building.generation}.{head.incarnation}" for head in heads]
        if all(mark is not None and one in mark.generations for mark, one in zip(marks, rows, strict=True)):
            return True
        if any(stop.generation in rows for mark in marks if mark is not None for stop in mark.stopped):
            _log.error("back-fill is given up: table=%s reason=%s", table, "an event makes its features fail")
            return False
        status = jobs.status(self._stores.objects, building.job_id)
        if status is None:
            self._ask(namespace, view, table, building)
        elif status.state == "failed":
            _log.error("back-fill is given up: table=%s job=%s reason=%s", table, building.job_id, status.reason)
            return False
        return None

    def _heads(self, namespace: str, view: RegistryView, table: str) -> tuple[Head, ...]:
        event = view.root_of(table)
        assert event is not None, "a table comes from an event"
        return tuple(self._log.head(lane(namespace, event.name, number)) for number in range(event.lanes))

    def _ask(self, namespace: str, view: RegistryView, table: str, building: Building) -> None:
        """Asks for the job. Does nothing if it was asked for."""
        sources = []
        for number, head in enumerate(self._heads(namespace, view, table)):
            first = head.state.floor
            pipelines = self._log.pipelines_of(head, first)
            state = pipelines.last.document.tables.get(table)
            if state is None or state.building != building:
                return  # it has ended meanwhile
            end = _since(pipelines, head, table, building)
            document = pipelines.last.document
            own = replace(state, generation=building.generation, building=None)
            document = replace(document, tables={**document.tables, table: own})
            generation = self._stores.watermarks.get(head.log_id).generation
            applied = (Applied(first, document),)
            sources.append(Source(number, head.log_id, first, max(first, end), (), applied, generation))
        now_ms = self._stores.clock.now_ms()
        jobs.ask(
            self._stores.objects, building.job_id, FOLD, now_ms, FoldInput(tuple(sources), (table,), namespace, table)
        )


def _since(pipelines: Pipelines, head: Head, table: str, what: str | Building) -> int:
    """Returns from which offset on the pipelines of a lane have a generation of a table, or a back-fill. The newest has."""
    for since, _, pipeline in pipelines.spans(0, head.state.next_offset + 1):
        state = pipeline.document.tables.get(table)
        if state is not None and what in (state.generation, state.building):
            return since
    raise AssertionError("the newest pipeline has it")
