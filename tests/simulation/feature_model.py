"""What the world of feature tables knows: each lane as its chain of entries says, and what clients were told. The laws of
entries and of answers are judged against it, by the oracle of rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import orjson

from headrace.features.documents import Answers, generation_of, read_lane
from headrace.features.errors import TableNotFound
from headrace.features.register import Registrations
from headrace.features.rows import lane_for
from headrace.features.values import Ack, GetRequest, lane_of, lane_state_of
from headrace.features.values import lane as which_of
from headrace.log.join import read_payload
from headrace.log.requests import Head
from headrace.log.stores import Stores
from headrace.wal.memory import MemoryWal
from headrace.wal.state import Entry, LogConfig
from tests.simulation.relay_world import Simulation
from tests.unit.features.oracle import Event, Shape, barriers, is_same, row, shape_of
from tests.unit.features.world import rows_of

ROW = "an answer is that of the prefix that it names"
NEWEST = "a prefix has all that was there when the read began"
BACK = "prefixes never shrink"
WRITTEN = "acknowledged is written, once"
WHOLE = "a push is whole or absent"
EFFECT = "one effect of each dedupe value and window"
REPEAT = "a repeat was written before"
SHAPE = "an event fits the pipeline at its offset"
RISES = "pipelines only rise"
FORCE = "a registration is in force when it is answered"
WHOLLY = "a back-fill is read when all lanes have it"
KEPT = "a back-fill takes no event from its table"
STAYS = "no event goes while a back-fill reads it"
NS = "default"
WINDOWED = ("W",)  # tables whose windows are shorter than events are kept
Lane = tuple[str, int]


@dataclass
class Log:
    """A lane as its entries say. Of each thing it is known at which store call it came.

    Attributes:
        main: the log whose dedupe values it shares.
        floor: events below were gone when a disaster came.
    """

    log_id: str
    config: LogConfig
    events: list[Event] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    shaped: list[int] = field(default_factory=list)
    versions: list[tuple[int, int]] = field(default_factory=list)
    slot: int = -1
    floor: int = 0
    ended: int | None = None
    told: int = 0

    @property
    def main(self) -> str:
        """The id of the log whose dedupe values it shares."""
        return self.config.main or self.log_id

    @property
    def end(self) -> int:
        """The offset after the last event."""
        return self.events[-1].offset + 1 if self.events else self.floor

    def end_at(self, call: int) -> int:
        """Returns the end as it was when a store call began."""
        count = bisect_right(self.calls, call)
        return self.events[count - 1].offset + 1 if count else self.floor


class SurveyedWal(MemoryWal):
    """A write-ahead log that the model hears of."""

    heard: Any = None

    def put(self, entry: Entry) -> None:
        super().put(entry)
        if self.heard is not None:
            self.heard(entry)


class Model:
    """All lanes, and all that clients know of them."""

    def __init__(self, simulation: Simulation, stores: Stores, dedupe_ms: int) -> None:
        self._simulation, self._stores = simulation, stores
        self._registrations = Registrations(stores)
        self._dedupe_ms = dedupe_ms
        self.logs: dict[str, Log] = {}
        self.lanes: dict[Lane, list[Log]] = {}
        self.effects: dict[tuple[str, str], list[int]] = {}  # stamps, by main log and dedupe value
        self.places: dict[str, list[tuple[Log, int]]] = {}  # of events, by id
        self.pushed: dict[str, Sequence[dict[str, Any]]] = {}  # batches, by the id of their first event
        self.tries: Counter[str] = Counter()
        self.refused = set[str]()
        self.was_reset = False

    # What is written.

    def heard(self, entry: Entry) -> None:
        """Takes an entry into account. What comes into a slot that the log has passed is no part of it."""
        note, call = self._simulation.note, self._simulation.calls
        if entry.config is not None and entry.config.name.endswith("/Tx"):
            log = self.logs[entry.log_id] = Log(entry.log_id, entry.config)
            self.lanes.setdefault(("Tx", lane_of(entry.config.role)), []).append(log)
        found = self.logs.get(entry.log_id)
        if found is None or entry.slot <= found.slot:
            return
        found.slot = entry.slot
        if entry.state.ended:
            found.ended = call
            return
        registered = lane_state_of(entry.state).registered
        if entry.kind in ("create", "define"):
            note(RISES, not found.versions or registered > found.versions[-1], registered, found.versions)
            found.shapes.append(shape_of(found.end, self._definition(entry), entry.state.floor))
            found.shaped.append(call)
            self._switched(found)
            found.versions.append(registered)
        elif entry.kind == "retain":
            building = {name: node.building for name, node in found.shapes[-1].tables.items() if node.building}
            note(STAYS, not building, entry.state.floor, building)
        elif entry.count:
            self._added(found, entry, call)

    def _switched(self, log: Log) -> None:
        """Judges the end of back-fills: the newest shape reads what the one before built."""
        note, after = self._simulation.note, log.shapes[-1]
        before = log.shapes[-2].tables if len(log.shapes) > 1 else {}
        for name, node in after.tables.items():
            old = before.get(name)
            if old is None or old.building != node.generation:
                continue
            without = [
                one.log_id for logs in self.lanes.values() if not self._has(one := logs[-1], name, node.generation)
            ]
            note(WHOLLY, not without, name, node.generation, without)
            if name not in WINDOWED:
                begin, floor = _begin(log.shapes[:-1], name), _begin(log.shapes, name)
                lost = [event.offset for event in log.events if begin <= event.offset < floor]
                note(KEPT, not lost, name, begin, floor, lost)

    def _has(self, log: Log, table: str, generation: str) -> bool:
        """Returns whether a generation is folded with the others in a lane, if the lane lives."""
        mark = rows_of(self._stores).mark(log.log_id)
        if log.ended is not None or mark is None:
            return log.ended is not None
        head = Head(log.log_id, log.config, self._stores.wal.newest(log.log_id).state, None)
        return generation_of(table, generation, head) in mark.generations

    def _definition(self, entry: Entry) -> Any:
        definition = self._registrations._context.definition(entry.log_id, entry.state)
        return definition.derive(read_lane).document.pipeline

    def _added(self, log: Log, entry: Entry, call: int) -> None:
        note = self._simulation.note
        for record in read_payload(self._stores, entry, {}).records(entry.offset):
            data = orjson.loads(record.data)
            log.events.append(Event(record.offset, record.time_ms, data))
            log.calls.append(call)
            self.places.setdefault(data["id"], []).append((log, record.offset))
            note(SHAPE, log.shapes[-1].fits(data), record, log.shapes[-1])
            if data.get("once") is not None:
                stamps = self.effects.setdefault((log.main, data["once"]), [])
                free = not stamps or stamps[-1] + self._dedupe_ms <= record.time_ms
                note(EFFECT, free, data, stamps, record.time_ms)
                stamps.append(record.time_ms)

    def recover(self, lane: Lane, registrations: Registrations) -> None:
        """Takes over a lane as it is after a disaster."""
        which = which_of(NS, *lane)
        head, newest = registrations.newest(which)
        log = Log(head.log_id, head.config, slot=newest.slot, floor=head.state.floor)
        at = log.floor
        while at < head.state.next_offset:
            page = registrations.records(which, at)
            log.events += [Event(one.offset, one.time_ms, orjson.loads(one.data)) for one in page.records]
            at = page.next
        spans = registrations.pipelines_of(head, log.floor)
        log.shapes = [
            shape_of(since, one.document, log.floor)
            for since, one in zip(spans._sinces, spans._pipelines, strict=True)
        ]
        log.calls, log.shaped = [0] * len(log.events), [0] * len(log.shapes)
        log.versions = [lane_state_of(head.state).registered]
        self.logs[log.log_id], self.lanes[lane] = log, [log]
        for event in log.events:
            self.places.setdefault(event.data["id"], []).append((log, event.offset))

    def _alive_since(self, lane: Lane, call: int) -> list[Log]:
        """Returns the logs of a lane that were alive at a store call or later."""
        return [log for log in self.lanes.get(lane, ()) if log.ended is None or log.ended >= call]

    # What is answered.

    def acknowledged(self, events: Sequence[dict[str, Any]], ack: Ack, began_ms: int) -> None:
        """Judges the answer to a push that began at a time, by the slowest clock."""
        note = self._simulation.note
        for event in events:
            at = self.places.get(event["id"], [])
            stamps = [
                stamp
                for (_, value), found in self.effects.items()
                if value == event.get("once") is not None
                for stamp in found
            ]
            is_repeat = any(stamp + self._dedupe_ms > began_ms for stamp in stamps)
            law = WRITTEN if at or not stamps else REPEAT
            is_once = len(at) == 1 or (at and event.get("once") is not None)  # or once in each window
            note(law, is_once or (not at and is_repeat), event, at, stamps, ack)
            told = [(log, offset + 1) for log, offset in at if lane_of(log.config.role) == ack.lane]
            is_there = any(end <= ack.end for _, end in told)
            note(WRITTEN, is_there or is_repeat or ack.is_replay, event, at, ack)
            for log, end in told:
                log.told = max(log.told, end)

    def registered(self, touched: dict[str, int], version: int, call: int) -> None:
        """Judges the answer to a registration that began at a store call: every lane has the pipeline, or a later one."""
        for (event, number), logs in self.lanes.items():
            log = logs[-1]
            is_gone = log.ended is not None and (log.ended >= call or number > 0)
            holds = is_gone or log.versions[-1][1] >= touched.get(event, 0)
            self._simulation.note(FORCE, holds, number, log.versions, touched, version)

    def answered(self, requests: Sequence[GetRequest], answers: Answers, call: int, told: dict[str, int]) -> None:
        """Judges the answer to a read that began at a store call, when these ends of logs were known to somebody."""
        note, now_ms = self._simulation.note, answers.as_of.now_ms
        for request, found in zip(requests, answers.rows, strict=True):
            if isinstance(found, Exception):
                missing = isinstance(found, TableNotFound) and self._has_all_the_time(request.table, call)
                note("what is registered is found", not missing, request, found)
                continue
            lanes = [lane for lane in answers.as_of.lanes if self.holds(lane, request)]
            for lane in lanes:
                end = answers.as_of.lanes[lane]
                logs = self._alive_since(lane, call)
                note(NEWEST, any(log.end_at(call) <= end <= log.end for log in logs), request, lane, end, logs)
                note(BACK, any(told.get(log.log_id, 0) <= end for log in logs), request, lane, end, told)
                wanted, holds = list[Any](), False
                for one in chain.from_iterable(self._rows(log, request, end, now_ms, call) for log in reversed(logs)):
                    wanted.append(one)
                    holds = one is not None and is_same(found, _chosen(one, request))
                    if holds:
                        break
                note(ROW, holds, request, answers.as_of, "is", found, "and should be", wanted)
                for log in logs:
                    log.told = max(log.told, end if log.end_at(call) <= end <= log.end else 0)
            note(ROW, bool(lanes), request, "no prefix is named", answers.as_of)

    def holds(self, lane: Lane, request: GetRequest) -> bool:
        """Returns whether the row of a request is, or was, in a lane."""
        counts = {shape.lanes for log in self.lanes.get(lane, ()) for shape in log.shapes}
        return any(lanes == 1 or lane_for(request.key, lanes) == lane[1] for lanes in counts)

    def _has_all_the_time(self, table: str, call: int) -> bool:
        """Returns whether a table was registered when a store call began, and in all that time since."""
        if self.was_reset:  # which begins in the registry
            return False
        log = self.lanes["Tx", 0][-1]
        place = bisect_right(log.shaped, call) - 1
        return place >= 0 and log.ended is None and all(table in shape.tables for shape in log.shapes[place:])

    def _rows(
        self, log: Log, request: GetRequest, end: int, now_ms: int, call: int
    ) -> Iterator[dict[str, Any] | None]:
        """Yields what a row can be: of registrations at the end of the prefix, those that came while the read was under way
        may be in force, or not yet.
        """
        prefix = [event for event in log.events if event.offset < end]
        for place, shape in reversed(list(enumerate(log.shapes, 1))):
            is_last = place == len(log.shapes)
            if shape.since <= end and (is_last or (log.shapes[place].since >= end and log.shaped[place] >= call)):
                shapes, which = log.shapes[:place], lane_of(log.config.role)
                for barrier in barriers(shapes, request.table) or [None]:
                    yield row(shapes, prefix, request.table, _key(request), now_ms, which, barrier)

    def at_rest(self) -> None:
        """Judges what became of all pushes. Events that repeat others are left out of their batch."""
        require = self._simulation.require
        for first, events in self.pushed.items():
            at = [place for one in events for place in self.places.get(one["id"], ())]
            left = [one for one in events if one["id"] not in self.places]
            is_once = len(at) + len(left) == len(events)
            require(WRITTEN, is_once or events[0].get("once") is not None, events, at)
            if first in self.refused and self.tries[first] == 1:
                require("refused is not written", not at, events, at)
            if at:
                (log, offset), *_ = at
                is_repeat = all((log.main, one.get("once")) in self.effects for one in left)
                together = at == [(log, offset + place) for place in range(len(at))]
                require(WHOLE, is_repeat and (together or self.tries[first] > 1), events, at)


def _begin(shapes: Sequence[Shape], table: str) -> int:
    """Returns from which offset on a table has events, in the generation that the last shape reads."""
    for barrier in barriers(shapes, table):
        return barrier.floor
    generation = shapes[-1].tables[table].generation
    return next(shape.since for shape in shapes if shape.has(table, generation))


def _key(request: GetRequest) -> list[Any]:
    if request.key == "":
        return []
    return [int(request.key) if request.key.isdigit() else request.key]


def _chosen(found: dict[str, Any], request: GetRequest) -> dict[str, Any]:
    if request.features is None or not found:
        return found
    return {name: found[name] for name in request.features}
