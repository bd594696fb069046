"""The projection of a queue in the state of its lease log, and one decision's changes to it.

A small projection is part of the state. A larger one is a snapshot object, which the state names, and the events after
it; a reader needs one GET and one query for these, and a process that knows an earlier projection only the query. The
object is written before the entry that names it. The digest in the state says what the fold must give.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from headrace.batch import Batch, Record
from headrace.clock import Bounded
from headrace.errors import Damaged, Overloaded
from headrace.log import seam as rules
from headrace.log.seam import Draft, Ids, Look, NamedObject, Rows
from headrace.objects import keys, packed
from headrace.queues import events
from headrace.queues.events import AnyEvent, Flat, Join, Lost
from headrace.queues.feed import Ahead
from headrace.queues.projection import Back, Grant, Projection, advance, apply, fold, lose, rise
from headrace.queues.timings import measure
from headrace.topics.runs import Runs
from headrace.topics.values import MAX_PAGE_BYTES, topic_of
from headrace.wal.extension import Extension
from headrace.wal.state import LogState, TimeRun, incarnation_of

INLINE_BYTES = 512  # of a projection in the state: every entry has it
MAX_EVENTS = 256  # after a snapshot: some 100 KB of entries in one query, and one large put for as many events
MAX_BYTES = 1024 * 1024  # of events after a snapshot, or as many as it has, if that is more: deletes are large events
KEPT_MS = 30 * 86_400_000  # events stay at least so long, and about twice as long at most
_INLINE_WEIGHT = 12_000  # of a projection in memory above which it surely does not fit into the state
_REMEMBERED_BYTES = 64 * 1024 * 1024  # of projections of one process


class Saved(msgspec.Struct, frozen=True, array_like=True):
    """A projection as it is stored; see `Projection`."""

    incarnation: int
    time_ms: int
    front: int
    cursor: int
    acked: int
    dead: int
    done: Flat
    grants: tuple[tuple[str, str, str, int, int, int, Flat], ...]
    back: tuple[tuple[int, int, Flat], ...]
    joins: tuple[Join, ...]


class Snapshot(msgspec.Struct, frozen=True):
    """The projection of a lease log as an object; `digest` is that of the events before it."""

    digest: str
    projection: Saved
    version: int = packed.VERSION


class Base(msgspec.Struct, frozen=True, array_like=True):
    """A reference to a snapshot.

    Attributes:
        offset: how many records the lease log had.
        nonce: the nonce of the object's key.
        due_bytes: with more bytes of records than this the lease log gets the next snapshot.
    """

    offset: int
    nonce: str
    due_bytes: int


class LeaseState(Extension, msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="leases"):
    """The extension of a lease log's state.

    Attributes:
        digest: `events.chain` of all records.
        front: as in the projection: no reader needs the jobs log below it.
        projection: the projection; None if it is in a snapshot, or no event came yet.
        base: the snapshot, and with the events after it the projection; None if there is none.
        lapsed: the offset after the last job that was passed over because its TTL was over, or that the jobs log lost to a
            cap or the TTL: readers whose picture of the jobs log is older must learn of these, unlike of done jobs.
        kept: an earlier end of the lease log, and the time of the event there (epoch ms): once that is `KEPT_MS` ago, the
            log's floor rises to it, and segments with the events below can be dropped.
        configured: that of the jobs log (`TopicState.configured`), as of the newest event.
    """

    digest: str = ""
    front: int = 0
    projection: Saved | None = None
    base: Base | None = None
    lapsed: int = 0
    kept: tuple[int, int] = (0, 0)
    configured: int = 0

    def named_objects(self, log_id: str) -> tuple[str, ...]:
        """Returns the key of the snapshot, if there is one."""
        return (keys.snapshot(log_id, self.base.offset, self.base.nonce),) if self.base is not None else ()


def leases_of(state: LogState) -> LeaseState:
    """Returns the extension of a lease log's state."""
    return state.extension if isinstance(state.extension, LeaseState) else LeaseState()


def save(projection: Projection) -> Saved:
    """Returns a projection in the form that is stored."""
    return Saved(
        projection.incarnation,
        projection.time_ms,
        projection.front,
        projection.cursor,
        projection.acked,
        projection.dead,
        projection.done.flat(),
        tuple((*grant[:6], grant.jobs.flat()) for grant in projection.grants),
        tuple((*one[:2], one.jobs.flat()) for one in projection.back),
        projection.joins,
    )


def restore(saved: Saved) -> Projection:
    """Returns the projection that was saved."""
    return Projection(
        saved.incarnation,
        saved.time_ms,
        saved.front,
        saved.cursor,
        Runs.of_flat(saved.done),
        tuple(Grant(*grant[:6], Runs.of_flat(grant[6])) for grant in saved.grants),
        tuple(Back(ready_ms, deliveries, Runs.of_flat(jobs)) for ready_ms, deliveries, jobs in saved.back),
        saved.joins,
        saved.acked,
        saved.dead,
    )


class _Point(NamedTuple):
    """A projection, the number and the digest of the events that it is the fold of, and its `weight`."""

    offset: int
    digest: str
    projection: Projection
    weight: int


def decode_snapshot(data: bytes, source: str) -> _Point:
    """Decodes a snapshot from the bytes of its object. Raises Damaged or NewerFormat."""
    snapshot = packed.decode_msgpack(data, Snapshot, source)
    projection = restore(snapshot.projection)
    return _Point(0, snapshot.digest, projection, projection.weight)


class Points:
    """The projections that a process knows, by lease log: that of the newest state that it saw, and the one that its last
    decision led to. That decision may have lost its slot, so it counts only if the state has its digest.

    Attributes:
        ahead: the jobs that it has read ahead.
    """

    def __init__(self) -> None:
        self.ahead = Ahead()
        self._seen: Bounded[str, _Point] = Bounded(_REMEMBERED_BYTES, weigh=attrgetter("weight"))
        self._decided: Bounded[str, _Point] = Bounded(_REMEMBERED_BYTES, weigh=attrgetter("weight"))

    def load(self, look: Look, rows: Rows) -> Projection:
        """Returns the projection of a lease log.

        Raises:
            Damaged: the events after the snapshot are not those that the state is the fold of.
        """
        leases = leases_of(look.state)
        if leases.projection is not None:
            return restore(leases.projection)
        if not leases.digest:
            return Projection()
        decided, seen = self._decided.get(look.log_id), self._seen.get(look.log_id)
        if decided is not None and decided.digest == leases.digest:
            point = decided
        else:
            point = self._follow(seen, look, rows) or _from_snapshot(look, leases, rows)
        self._seen.put(look.log_id, point)
        return point.projection

    def decide(self, log_id: str, point: _Point) -> None:
        """Caches what a decision leads to."""
        self._decided.put(log_id, point)

    def _follow(self, seen: _Point | None, look: Look, rows: Rows) -> _Point | None:
        """Returns the point of a state by the events after one seen before; None if it is not a later one: it is of an
        older picture, the log was recovered, or the events are too old.
        """
        if seen is None or not look.state.floor <= seen.offset <= look.state.next_offset:
            return None
        point = _follow(seen, look, rows)
        return point if point.digest == leases_of(look.state).digest else None


def _from_snapshot(look: Look, leases: LeaseState, rows: Rows) -> _Point:
    """Returns the point of a state by its snapshot and the events after that. Raises Damaged."""
    if leases.base is None:
        raise Damaged(f"lease log has no snapshot: log_id={look.log_id} events={look.state.next_offset}")
    key = keys.snapshot(look.log_id, leases.base.offset, leases.base.nonce)
    point = _follow(rows.object(key, decode_snapshot)._replace(offset=leases.base.offset), look, rows)
    if point.digest != leases.digest:
        raise Damaged(f"lease events do not continue their snapshot: object={key} events={look.state.next_offset}")
    return point


def _follow(point: _Point, look: Look, rows: Rows) -> _Point:
    """Returns the point at the end of the log, by the events after `point`."""
    offset, digest, projection, weight = point
    while offset < look.state.next_offset:
        page = rows.page(look.row, offset, look.state.next_offset - offset, MAX_PAGE_BYTES)
        if not page or page[0].offset != offset:
            raise Overloaded(
                "events of this queue were dropped meanwhile"
            )  # the picture is old: newer ones need them not
        where = f"log_id={look.log_id} offset={offset}"
        digest = events.chain(digest, [record.data for record in page])
        projection = fold(projection, [events.decode(record.data, where) for record in page])
        offset, weight = offset + len(page), 0
    return _Point(offset, digest, projection, weight or projection.weight)


class Ledger:
    """A queue in one decision: who holds what now, and the events that the decision adds.

    Attributes:
        now: the projection at the decision's time, after the events so far.
        jobs: the jobs log.
        events: the events so far.
        lapsed: as in `LeaseState`.
    """

    def __init__(self, leases: Look, jobs: Look, points: Points, rows: Rows, now_ms: int) -> None:
        """Reads the projection, and brings it to the decision's time and to what the jobs log has lost."""
        self.leases, self.jobs = leases, jobs
        self.events: list[AnyEvent] = []
        self._points = points
        self._stored = points.load(leases, rows)
        self.lost = lost_since(self._stored, jobs)
        self.lapsed = max(lapsed_of(leases.state, self.lost), topic_of(jobs.state).evict_floor)
        self.now = bring_up(self._stored, jobs, now_ms)

    @property
    def is_ahead(self) -> bool:
        """Whether the lease log knows a later incarnation or configuration of the jobs log, whose picture is older then."""
        known = (self._stored.incarnation, leases_of(self.leases.state).configured)
        return known > (incarnation_of(self.jobs.config, self.jobs.state), topic_of(self.jobs.state).configured)

    @property
    def at(self) -> int:
        """The time of the decision: that of its events, epoch milliseconds."""
        return self.now.time_ms

    @property
    def end(self) -> int:
        """The offset after the last job."""
        return self.jobs.state.next_offset

    def add(self, event: AnyEvent, records: Sequence[Record] = ()) -> None:
        """Adds an event. The first one also tells what the jobs log has lost since the event before.

        Args:
            records: the jobs that it leases.
        """
        before = self.now
        if not self.events:
            floor, before = self.jobs.state.floor, self._stored
            is_news = self.lost is not None or floor > before.front
            event = replace(event, lost=self.lost, floor=floor if is_news else 0)
        event = replace(event, timings=measure(before, event, {one.offset: one.time_ms for one in records}))
        self.now = apply(before, event)
        self.events.append(event)

    def lapse(self, gone: Sequence[int]) -> None:
        """Notes jobs that were passed over because their TTL is over. An event must say that they are done."""
        self.lapsed = max(self.lapsed, max(gone, default=-1) + 1)

    def draft(self, ids: Ids, requests: tuple[int, ...]) -> tuple[Draft, tuple[NamedObject, ...]]:
        """Returns the draft of the entry with the events, and the snapshot that it names, if it names a new one."""
        state, before = self.leases.state, leases_of(self.leases.state)
        batch = Batch.of([events.encode(event) for event in self.events])
        grown = rules.grow(state, batch, self.at)
        end = grown.state.next_offset
        digest = events.chain(before.digest, batch.slices())
        point = _Point(end, digest, self.now, self.now.weight)
        self._points.decide(self.leases.log_id, point)
        after, objects = self._store(before, point, grown.state.total_bytes, ids)
        after = replace(after, configured=topic_of(self.jobs.state).configured)
        return (
            Draft(
                self.leases.log_id,
                "data",
                self._age(grown.state, before.kept, after),
                (batch,),
                (TimeRun(len(batch), grown.time_ms),),
                requests,
            ),
            objects,
        )

    def _store(
        self, before: LeaseState, point: _Point, total_bytes: int, ids: Ids
    ) -> tuple[LeaseState, tuple[NamedObject, ...]]:
        """Returns the extension after the events, which make the log `total_bytes` long; and the snapshot if one is due."""
        end, digest, front = point.offset, point.digest, self.now.front
        if point.weight <= _INLINE_WEIGHT:
            saved = save(self.now)
            if len(msgspec.json.encode(saved)) <= INLINE_BYTES:
                return LeaseState(digest, front, saved, lapsed=self.lapsed), ()
        base = before.base
        if base is not None and end - base.offset <= MAX_EVENTS and total_bytes <= base.due_bytes:
            return LeaseState(digest, front, None, base, self.lapsed), ()
        data = packed.encode_msgpack(Snapshot(digest, save(self.now)))
        base = Base(end, ids.nonce(data), total_bytes + max(MAX_BYTES, len(data)))
        key = keys.snapshot(self.leases.log_id, base.offset, base.nonce)
        return LeaseState(digest, front, None, base, self.lapsed), (NamedObject(key, data),)

    def _age(self, state: LogState, kept: tuple[int, int], after: LeaseState) -> LogState:
        """Returns the state with its extension `after` the events. If those before the end `kept` are old, its floor rises
        to that, though not past a snapshot, which needs the events after it.
        """
        if self.at - kept[1] < KEPT_MS:
            return replace(state, extension=replace(after, kept=kept))
        floor = min(kept[0], after.base.offset) if after.base is not None else kept[0]
        after = replace(after, kept=(state.next_offset, self.at))
        return replace(state, floor=max(state.floor, floor), extension=after)


def bring_up(projection: Projection, jobs: Look, now_ms: int) -> Projection:
    """Returns a projection as it is at a moment, when the jobs log is `jobs`."""
    lost = lost_since(projection, jobs)
    if lost is not None:
        projection = lose(projection, lost)
    return advance(rise(projection, jobs.state.floor), now_ms)


def lapsed_of(leases: LogState, lost: Lost | None) -> int:
    """Returns the offset after the last job of which readers must learn that it is lost (`LeaseState.lapsed`), given what
    recoveries of the jobs log have lost since. If they have lost that one, it is where they took the log up: only the last
    one is known, so there may be others before it, or none.
    """
    lapsed = leases_of(leases).lapsed
    return lapsed if lost is None else min(lapsed, lost.end)


def lost_since(projection: Projection, jobs: Look) -> Lost | None:
    """Returns what recoveries of the jobs log mean for a projection: what it says from the earliest of their offsets on is
    about other jobs. None if there was none since.
    """
    incarnation = incarnation_of(jobs.config, jobs.state)
    if projection.incarnation >= incarnation:
        return None
    later = [one.at for one in jobs.state.recoveries if one.incarnation > projection.incarnation]
    return Lost(incarnation, min(later, default=jobs.state.next_offset) if projection.incarnation >= 0 else 0)
