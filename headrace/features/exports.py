"""The Spark jobs of feature tables (`headrace.jobs`): exports, which are snapshots and training sets, and back-fills. This
module plans them, asks for them, and tells what became of them.

A job is told which events to read, not where they are: it waits until they are sealed, which is asked for here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import NamedTuple

import msgspec

from headrace import jobs
from headrace.errors import InvalidRequest
from headrace.features.backfill import Backfills, barrier_of, in_generation
from headrace.features.errors import JobNotFound, TableNotFound
from headrace.features.events import Pipelines
from headrace.features.jobs import (
    ASOF,
    FOLD,
    LABELS,
    SNAPSHOT,
    Applied,
    AsOfInput,
    Estimate,
    ExportResult,
    FoldResult,
    SnapshotInput,
    Source,
    estimate,
    features_of,
)
from headrace.features.pipeline.compiled import Pipeline
from headrace.features.register import Registrations
from headrace.features.rows import AsOf, lane_text
from headrace.features.values import lane
from headrace.jobs import Status
from headrace.log.requests import Head
from headrace.objects import keys, packed

MAX_OBJECTS = 1_000  # of labels


class Request(NamedTuple):
    """What both kinds of exports are asked for.

    Attributes:
        names: the features; empty for all.
        is_backfilled: whether all events count as if the table had always been as it is now.
    """

    namespace: str
    table: str
    names: Sequence[str] = ()
    is_backfilled: bool = False


class Plan(NamedTuple):
    """What an export will do.

    Attributes:
        job_id: the job; empty if it was not asked for.
        segments: number of the segments that it reads, those that must be sealed first not counted.
        as_of: the events that it has, and the time for which it reads a snapshot.
        first_offsets: of the first event of each lane, by the lane as the header has it; what is older is gone.
    """

    job_id: str
    segments: int
    as_of: AsOf
    first_offsets: dict[str, int]
    estimate: Estimate


class Job(NamedTuple):
    """A job that was asked for. `result` is None until it has succeeded: a back-fill has once its rows are read."""

    table: str
    status: Status
    result: ExportResult | FoldResult | None


class _Owner(msgspec.Struct, frozen=True):
    """What says whose a job is: the input of an export has its table, that of a back-fill tables."""

    namespace: str
    table: str = ""
    tables: tuple[str, ...] = ()


class _Lanes(NamedTuple):
    """The lanes of a table's event, as a job is to read them."""

    event: str
    sources: tuple[Source, ...]
    plan: Plan
    unsealed: tuple[str, ...]


class Exports:
    """The exports of all namespaces."""

    def __init__(self, log: Registrations, seal: Callable[[str], None]) -> None:
        """Creates the verbs. `seal` asks that all entries of a log be sealed soon, and never raises."""
        self._log = log
        self._stores = log.stores
        self._seal = seal

    def snapshot(self, asked: Request, as_of: AsOf | None = None, *, is_dry: bool = False) -> Plan:
        """Asks for the rows of a table: as they are now, or as an answer with `as_of` saw them.

        Raises:
            TableNotFound: there is no such table, or there was none then.
            FeatureNotFound, InvalidRequest: it can not be exported so.
        """
        found = self._look(SNAPSHOT, asked, as_of)
        now_ms = self._stores.clock.now_ms()
        bucket = self._stores.settings.bucket
        given = found.sources, asked.namespace, found.event, asked.table, tuple(asked.names)
        return self._ask(found, SNAPSHOT, SnapshotInput(*given, found.plan.as_of.now_ms, now_ms, bucket), is_dry)

    def training_set(self, asked: Request, labels: str, *, is_dry: bool = False) -> Plan:
        """Asks for the features of labels, each as of its own time.

        Args:
            labels: key of a Parquet object, or the beginning of several keys if it ends with a slash.

        Raises:
            TableNotFound: there is no such table.
            FeatureNotFound, InvalidRequest: it can not be exported so, or there are no such labels.
        """
        found = self._look(ASOF, asked)
        objects = self._find_labels(asked.namespace, labels)
        given = found.sources, asked.namespace, found.event, asked.table, tuple(asked.names)
        return self._ask(found, ASOF, AsOfInput(*given, objects), is_dry)

    def backfill(self, namespace: str, table: str, *, is_dry: bool = False) -> Plan:
        """Lets a table be computed from all events (`headrace.features.backfill`).

        Raises:
            TableNotFound: there is no such table.
            Conflict: it would lose events that are gone.
            HeadraceError: it may have begun.
        """
        found = self._look(FOLD, Request(namespace, table, (), is_backfilled=True))
        if is_dry:
            return found.plan
        building = Backfills(self._log).start(namespace, table)
        for log_id in found.unsealed:
            self._seal(log_id)
        return found.plan._replace(job_id=building.job_id)

    def show(self, namespace: str, job_id: str) -> Job:
        """Returns what is known about a job. Raises JobNotFound."""
        objects = self._stores.objects
        request = jobs.load_request(objects, job_id) if keys.made_ms(job_id) is not None else None
        if request is None or request.kind not in (SNAPSHOT, ASOF, FOLD):
            raise JobNotFound(job_id)
        owner = packed.parse(bytes(request.input), _Owner, "input of a job")
        status = jobs.status(objects, job_id)
        if owner.namespace != namespace or status is None:
            raise JobNotFound(job_id)
        (table,) = owner.tables or (owner.table,)
        if request.kind == FOLD:
            return self._show_backfill(namespace, table, job_id, status)
        result = jobs.result(objects, job_id, ExportResult) if status.state == "succeeded" else None
        return Job(table, status, result)

    def _show_backfill(self, namespace: str, table: str, job_id: str, status: Status) -> Job:
        """Returns what is known about a back-fill: it goes on after its job, until the table is read with all events."""
        view = self._log.registry(namespace)
        state = view.registry.tables.get(table)
        is_building = state is not None and state.building is not None and state.building.job_id == job_id
        if status.state == "succeeded" and (is_building or view.state.is_open):
            return Job(table, status._replace(state="running", ended_ms=0), None)
        if is_building:
            return Job(table, status, None)
        result = jobs.result(self._stores.objects, job_id, FoldResult)
        if result is not None and state is not None and state.generation == result.generations[table]:
            return Job(table, status._replace(state="succeeded"), result)
        reason = status.reason or "the table was changed since, or the back-fill was given up"
        return Job(table, status._replace(state="failed", reason=reason), None)

    def _ask(self, found: _Lanes, kind: str, what: SnapshotInput | AsOfInput, is_dry: bool) -> Plan:
        if is_dry:
            return found.plan
        now_ms = self._stores.clock.now_ms()
        job_id = keys.made_id(now_ms, self._stores.log_ids())
        jobs.ask(self._stores.objects, job_id, kind, now_ms, what)
        for log_id in found.unsealed:
            self._seal(log_id)
        return found.plan._replace(job_id=job_id)

    def _find_labels(self, namespace: str, labels: str) -> tuple[str, ...]:
        if not labels.startswith(f"{LABELS}{namespace}/"):
            raise InvalidRequest(f"keys of labels begin with {LABELS}{namespace}/: {labels[:200]!r}")
        is_folder = labels.endswith("/")
        listed = takewhile(lambda key: is_folder or key == labels, self._stores.objects.list(labels))
        found = tuple(key for key, _ in zip(listed, range(MAX_OBJECTS + 1), strict=False) if not key.endswith("/"))
        if not found:
            raise InvalidRequest(f"the bucket has no such labels: {labels[:200]!r}")
        if len(found) > MAX_OBJECTS:
            raise InvalidRequest(f"labels have too many objects: limit={MAX_OBJECTS} prefix={labels[:200]!r}")
        return found

    def _look(self, kind: str, asked: Request, as_of: AsOf | None = None) -> _Lanes:
        """Looks at the lanes of a table's event, for a job of this kind."""
        view = self._log.registry(asked.namespace)
        event = view.registry.root_of(asked.table)
        if event is None or not view.has_table(asked.table):
            raise TableNotFound(asked.table)
        manifests = self._stores.manifests()
        sources, tables, unsealed = [], [], []
        segments = size = 0
        for number in range(event.lanes):
            head = self._log.head(lane(asked.namespace, event.name, number))
            first = head.state.floor
            end = head.state.next_offset if as_of is None else as_of.lanes.get((event.name, number), -1)
            if not first <= end <= head.state.next_offset:
                raise InvalidRequest(f"no offset of '{event.name}' that there is: lane={number} offset={end}")
            pipelines = self._log.pipelines_of(head, first)
            newest = pipelines.last if as_of is None or asked.is_backfilled else pipelines.at(end - 1)
            if newest is None or asked.table not in newest.tables:
                raise TableNotFound(asked.table)
            tables.append(newest.tables[asked.table])
            applied = (
                (Applied(first, newest.document),)
                if asked.is_backfilled
                else _applied(pipelines, newest, head, first, end, asked.table, for_labels=kind == ASOF)
            )
            generation = self._stores.watermarks.get(head.log_id).generation
            manifest = manifests.newest(head.log_id, None, generation) if generation else None
            sealed_end = first
            for segment in manifests.segments_from(manifest, first) if manifest is not None else ():
                if segment.first_offset >= end:
                    break
                segments, size, sealed_end = segments + 1, size + segment.payload_bytes, segment.end_offset
            if sealed_end < end:
                unsealed.append(head.log_id)
                size += head.state.total_bytes - (manifest.sealed_bytes if manifest is not None else 0)
            sources.append(Source(number, head.log_id, first, end, (), applied, generation))
        if len({(table.generation, *table.types.items()) for table in tables}) > 1:
            raise InvalidRequest(f"the lanes of '{event.name}' have different registrations: repeat in a moment")
        features = tables[0].types if kind == FOLD else features_of(tables[0], asked.names)
        events = sum(source.end_offset - source.first_offset for source in sources)
        ends = {(event.name, source.number): source.end_offset for source in sources}
        now = as_of.now_ms if as_of is not None else self._stores.clock.now_ms()
        firsts = {lane_text(event.name, source.number): source.first_offset for source in sources}
        plan = Plan("", segments, AsOf(now, ends), firsts, estimate(events, size, len(features)))
        return _Lanes(event.name, tuple(sources), plan, tuple(unsealed))


def _applied(
    pipelines: Pipelines, newest: Pipeline, head: Head, first: int, end: int, table: str, *, for_labels: bool
) -> tuple[Applied, ...]:
    """Returns the pipelines of the events `[first, end)`, and last the newest, which is that of the answer. A table that
    was back-filled has the events before the barrier by the pipeline that it had there.

    Raises:
        InvalidRequest: labels are of times before and after a back-fill, which have other rows.
    """
    found = [Applied(start, pipeline.document) for start, _, pipeline in pipelines.spans(first, end)]
    if not found or found[-1].document is not newest.document:
        found.append(Applied(end, newest.document))
    if not newest.document.tables[table].is_backfilled:
        return tuple(found)
    generation = newest.tables[table].generation
    barrier, at = barrier_of(pipelines, head, table, generation)
    if for_labels and barrier > first:
        raise InvalidRequest(
            f"table '{table}' was back-filled, so answers before and after that differ: ask with `backfill`, for features "
            "as they are computed now"
        )
    before = [Applied(first, in_generation(at.document, table, generation))] if barrier > first else []
    after = [one for one in found if one.since >= barrier]
    return (*before, *(Applied(one.since, in_generation(one.document, table, generation)) for one in after))
