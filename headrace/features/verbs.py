"""The verbs of feature tables as one object: registrations, pushes and reads."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from headrace.clock import Bounded, moment
from headrace.errors import HeadraceError, InvalidRequest, NotFound, PayloadTooLarge, RequestTimeout
from headrace.features.documents import Answers, generation_of, read_lane
from headrace.features.errors import (
    EventNotFound,
    EventRefused,
    FeatureNotFound,
    Stopped,
    TableNotFound,
    Unfolded,
    WrongLane,
)
from headrace.features.lanes import PushRequest
from headrace.features.pipeline.compiled import Pipeline
from headrace.features.pipeline.nodes import EventNode
from headrace.features.pipeline.tables import Table
from headrace.features.register import Registrations
from headrace.features.rows import AsOf, lane_for, read_row
from headrace.features.tail import MARK_S, Found, Lanes, Rows, Wanted
from headrace.features.values import (
    FEATURES,
    MAX_BATCH_EVENTS,
    MAX_EVENT_BYTES,
    MAX_READ,
    Ack,
    GetRequest,
    event_name,
    lane,
)
from headrace.log.requests import Head
from headrace.log.seam import Which
from headrace.log.stores import Stores
from headrace.tables.marks import Mark

__all__ = ["FEATURES", "Features"]

_log = logging.getLogger(__name__)

MAX_UNFOLDED_BYTES = 3 * 1024 * 1024  # with one push more it is less than a reader folds
_REMEMBERED = 4096
_LOOKS = 4


class _Target(NamedTuple):
    """A request for features, and where its row is, as `table` has it."""

    place: int
    request: GetRequest
    wanted: Wanted
    table: Table


class Features(Registrations):
    """The operations on feature tables, by namespace. Methods block, and may be called by any thread."""

    def __init__(self, stores: Stores, *, may_reset: bool = False) -> None:
        """Creates the verbs. `may_reset` says whether a namespace may be reset."""
        super().__init__(stores, may_reset=may_reset)
        self._lanes = Lanes(self)
        self._marks: Bounded[str, Mark] = Bounded(_REMEMBERED, clock=stores.clock)

    # Pushes.

    def push(self, namespace: str, event: str, events: Sequence[Any]) -> Ack:
        """Adds events of one lane, all or none: one conditional put, which is the acknowledgement. Every read that begins
        after the answer has them in every table. Events that repeat others within their window are left out.

        Args:
            events: as decoded from JSON.

        Raises:
            EventNotFound; EventRefused: one does not match the event's schema. Nothing was written.
            Unfolded, Overloaded: too much is under way; nothing was written.
            OutcomeUnknown: they may have been written.
        """
        if not events:
            raise InvalidRequest("a batch needs at least one event")
        if len(events) > MAX_BATCH_EVENTS:
            raise PayloadTooLarge(f"a batch has too many events: limit={MAX_BATCH_EVENTS} received={len(events)}")
        request = PushRequest(events, [_text_of(one) for one in events])
        name = event_name(namespace, event)
        pipeline = self._pipeline(name, fresh=False)
        try:
            ack = self._append(namespace, pipeline, request)
        except (WrongLane, EventNotFound, InvalidRequest) as refusal:
            if isinstance(refusal, InvalidRequest) and pipeline.event.lanes == 1:
                raise  # by the newest fields: what it knows is asked for the lane alone
            ack = self._append(namespace, self._pipeline(name, fresh=True), request)
        view = self._views.get(namespace)  # nothing that can fail is done after the acknowledgement
        known = view.state.version if view is not None else 0
        return ack if ack.is_replay or ack.registry_version >= known else ack._replace(registry_version=known)

    def event(self, namespace: str, name: str) -> EventNode:
        """Returns an event as its first lane has it now. Raises EventNotFound."""
        return self._pipeline(event_name(namespace, name), fresh=True).event

    def _append(self, namespace: str, pipeline: Pipeline, request: PushRequest) -> Ack:
        """Appends to the lane that events have by a pipeline."""
        event = pipeline.event.name
        which = lane(namespace, event, self._lane_of(pipeline, request.events))
        self._check_folded(event, which)
        ack: Ack = self.appender.append(which, request).answer
        return ack

    def _pipeline(self, name: str, *, fresh: bool) -> Pipeline:
        """Returns the pipeline of an event's first lane, as this process knows it, or as it is now."""
        picture = self._context.pictures.warm(name) if not fresh else None
        if picture is None:
            with self.in_time():
                picture = self.controls.living(self._context.pictures.look(name))
        definition = self._context.definition(picture.row.log_id, picture.state)
        return definition.derive(read_lane).pipeline

    def _lane_of(self, pipeline: Pipeline, events: Sequence[Any]) -> int:
        """Returns the lane of events. Raises EventRefused; InvalidRequest if they are of several lanes."""
        event = pipeline.event
        if event.lane_key is None or event.lanes == 1:
            return 0
        numbers = set()
        for data in events:
            value = pipeline.check(data)[event.lane_key]
            if value is None:
                raise EventRefused("invalid_event", f"field '{event.lane_key}' decides the lane: it can't be null")
            numbers.add(lane_for(value, event.lanes))
        if len(numbers) > 1:
            raise InvalidRequest(f"the events of a batch must be of one lane: lanes={sorted(numbers)}")
        return numbers.pop()

    def _check_folded(self, event: str, which: Any) -> None:
        """Raises Unfolded if more events wait to be folded than a read would take. Reads the mark if so, at most once a
        second.
        """
        picture = self._context.pictures.warm(which)
        if picture is None:
            return
        head = self._context.head(picture)
        mark = self._marks.get(head.log_id)
        if _unfolded(head, mark) <= MAX_UNFOLDED_BYTES:
            return
        if self._marks.get(head.log_id, max_age_s=MARK_S) is None:
            read = moment(self.stores.clock)
            mark = self.mark_of(head) or Mark(head.log_id, head.incarnation)
            self._marks.put(head.log_id, mark, read=read)
        if _unfolded(head, mark) > MAX_UNFOLDED_BYTES:
            raise Unfolded(event, _unfolded(head, mark))

    # Reads.

    def get(self, namespace: str, requests: Sequence[GetRequest], *, stale: bool = False) -> Answers:
        """Reads the features of entities. Each answer has every event that was acknowledged before the call; all of one
        lane have the same events, and all are as of one time.

        Args:
            stale: whether a row may be some seconds old; it costs less. No lane is named then: each row may have others.

        Raises:
            FeatureNotFound: a table has no such feature.
            Behind: too many events are not folded.
        """
        if len(requests) > MAX_READ:
            raise PayloadTooLarge(f"too many entities in one request: limit={MAX_READ} received={len(requests)}")
        rows: list[dict[str, Any] | HeadraceError] = [{} for _ in requests]
        with self.in_time():
            found, lanes = self._find(namespace, requests, rows, stale=stale)
        stamps = [state.stamp_ms for one in found.values() if (state := one.state) is not None]
        now_ms = max([self.stores.clock.now_ms(), *stamps])
        for place, one in found.items():
            names = requests[place].features
            try:
                rows[place] = read_row(one.table, one.state, now_ms, None if names is None else list(names))
            except Exception as exc:  # noqa: BLE001 - whatever it is, other tables can be read
                _log.exception("table fails: table=%s/%s", namespace, one.table.name)
                rows[place] = Stopped(one.table.name, type(exc).__name__)
        return Answers(rows, AsOf(now_ms, lanes))

    def find_table(self, namespace: str, name: str) -> str | None:
        """Returns the table that has a name, or a feature of this name, as it is now; None if there is none."""
        view = self.registry(namespace)
        if view.has_table(name):
            return name
        return next((table.name for table in view.tables if name in table.ops[-1]["agg"]), None)

    def _find(
        self,
        namespace: str,
        requests: Sequence[GetRequest],
        rows: list[dict[str, Any] | HeadraceError],
        *,
        stale: bool,
    ) -> tuple[dict[int, Found], dict[tuple[str, int], int]]:
        """Finds the rows of requests; errors of single ones go to `rows`. If one of them is not found, all are looked for
        again, so that those of one lane have the same events.
        """
        refused: dict[int, HeadraceError] = {}
        for look in range(_LOOKS):
            left = {place: request for place, request in enumerate(requests) if place not in refused}
            found: dict[int, Found] = {}
            ends: dict[tuple[str, int], int] = {}
            view = self.known(namespace) if not look else self.registry(namespace)
            names = {request.table for request in left.values() if view.has_table(request.table)}
            events = {name: view.registry.root_of(name) for name in names}
            by_lane: dict[tuple[str, int], list[_Target]] = {}
            is_missing, seen = False, set[Which]()
            for place, request in list(left.items()):
                event = events.get(request.table)
                if event is None and not look:
                    is_missing = True
                    continue
                if event is None:
                    refused[place] = TableNotFound(request.table)
                    del left[place]
                    continue
                try:
                    target, number = self._place(namespace, event.name, place, request, seen if look else None)
                except HeadraceError as refusal:
                    if isinstance(refusal, EventNotFound | TableNotFound) or not look:
                        is_missing = True  # perhaps this process knows another table, or a registration is under way
                        continue
                    refused[place] = refusal
                    del left[place]
                else:
                    by_lane.setdefault((event.name, number), []).append(target)
            if is_missing and look < _LOOKS - 1:
                continue
            for (event_of, number), targets in by_lane.items():
                which = lane(namespace, event_of, number)
                wanted = list(dict.fromkeys(target.wanted for target in targets))
                try:
                    read = self._lanes.stored(which, wanted) if stale else self._lanes.read(which, wanted)
                except NotFound:
                    continue
                if read.end is not None:
                    ends[event_of, number] = read.end
                for target in targets:
                    one = read.found[target.wanted]
                    if one is None or _key_of(one.table) != _key_of(target.table):
                        continue  # the table is gone, or its key is another, and so are the row's name and lane
                    try:
                        error = self._check(read, one, target.request)
                    except FeatureNotFound:
                        if stale and not look:
                            continue  # this process may know an older table
                        raise
                    del left[target.place]
                    if error is not None:
                        refused[target.place] = error
                    else:
                        found[target.place] = one
            if not left:
                break
        for place, request in left.items():
            rows[place] = RequestTimeout(f"table '{request.table}' is changed all the time")
        for place, error in refused.items():
            rows[place] = error
        return found, ends

    def _place(
        self, namespace: str, event: str, place: int, request: GetRequest, seen: set[Which] | None
    ) -> tuple[_Target, int]:
        """Returns where the row of a request is: what is wanted, and of which lane. Raises KeyRefused.

        Args:
            seen: the lanes that are known as they are now, which this adds to; None if any state of them will do.
        """
        number = 0
        for _ in range(_LOOKS):
            which = lane(namespace, event, number)
            table = self._lanes.tail(which, fresh=seen is not None and which not in seen).pipelines.last.tables.get(
                request.table
            )
            if seen is not None:
                seen.add(which)
            if table is None:
                raise TableNotFound(request.table)
            entity = table.entity_for(request.key)
            if table.lanes == 1 or (found := lane_for(table.lane_value_for(request.key), table.lanes)) == number:
                return _Target(place, request, Wanted(request.table, entity), table), number
            number = found
        raise RequestTimeout(f"table '{request.table}' is changed all the time")

    def _check(self, read: Rows, found: Found, request: GetRequest) -> HeadraceError | None:
        """Returns the error of one request; None if it can be answered. Raises FeatureNotFound."""
        table = found.table
        missing = [name for name in request.features or () if name not in table.types]
        if missing:
            raise FeatureNotFound(table.name, missing)
        generation = generation_of(table.name, table.generation, read.head)
        for stop in read.mark.stopped if read.mark is not None else ():
            if stop.generation == generation:
                return Stopped(table.name, stop.reason)
        return Stopped(table.name, found.failed) if found.failed else None


def _key_of(table: Table) -> tuple[Any, Any]:
    return table.key_types, table.lane_key_at


def _unfolded(head: Head, mark: Mark | None) -> int:
    """Returns how many bytes of a lane's events are not folded; none at all if there is no mark."""
    return head.state.total_bytes - (mark.total_bytes if mark is not None else 0)


def _text_of(data: Any) -> bytes:
    """Returns the text under which an event is stored. Raises EventRefused if JSON has none for it, PayloadTooLarge if it
    is too large.
    """
    try:
        text = orjson.dumps(data)
    except orjson.JSONEncodeError as exc:
        raise EventRefused("invalid_event", f"an event's numbers must fit 64 bits: {exc}") from exc
    if len(text) > MAX_EVENT_BYTES:
        raise PayloadTooLarge(f"an event is too large: limit={MAX_EVENT_BYTES} bytes={len(text)}")
    return text
