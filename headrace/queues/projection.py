"""Who holds which job: a fold of the events of a lease log.

A job is done (acked, dead, deleted), leased (it has a grant), delayed (nacked, and not due yet), given back (it can be
claimed again) or fresh (never claimed): exactly one of these. Done jobs are runs, of which those at the front of the
queue are one number. So a projection grows with what is under way, not with what was ever done.

Time is that of the events: a lease ends for every reader alike at its deadline, and nothing is written then. `advance`
applies that to a moment between events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from headrace.queues.events import (
    Ack,
    AnyEvent,
    Claim,
    Configure,
    Dead,
    Deal,
    Dealt,
    Event,
    Extend,
    Join,
    Lost,
    Nack,
    Release,
    Remove,
)
from headrace.topics.runs import NONE, Runs

JOIN_MS = 5_000  # how long after its window a join waits for a deal


class Grant(NamedTuple):
    """Jobs that one claim leased, which have the same deadline and were delivered equally often.

    Attributes:
        id: the id of the claim.
        node, connection: the worker, and its stream; an empty connection for a poll.
        until_ms: when the lease ends, epoch milliseconds, inclusive.
        deliveries: how often the jobs were delivered, this time included.
        claimed_ms: when they were claimed, epoch milliseconds.
    """

    id: str
    node: str
    connection: str
    until_ms: int
    deliveries: int
    claimed_ms: int
    jobs: Runs


class Back(NamedTuple):
    """Jobs that were given back, and can be claimed from `ready_ms` (epoch ms) on; 0 for those that are due, which are
    kept together whatever their time.
    """

    ready_ms: int
    deliveries: int
    jobs: Runs


class Counts(NamedTuple):
    """The counters of a queue: how many of its live jobs can be claimed, are leased, and are delayed."""

    ready: int
    in_flight: int
    delayed: int


class Projection(NamedTuple):
    """Who holds what after some event.

    Attributes:
        incarnation: that of the jobs log, to which all offsets here belong; -1 before the first event.
        time_ms: the time of the event.
        front: the offset below which all jobs are done; `done` has those above.
        cursor: the offset of the first job that was never claimed nor passed over; at least `front`.
        grants: the leases.
        back: the jobs that were given back, by time and deliveries.
        joins: the members of claim windows that are not dealt.
        acked, dead: how many jobs were acked, and moved to the dead-letter topic.
    """

    incarnation: int = -1
    time_ms: int = 0
    front: int = 0
    cursor: int = 0
    done: Runs = NONE
    grants: tuple[Grant, ...] = ()
    back: tuple[Back, ...] = ()
    joins: tuple[Join, ...] = ()
    acked: int = 0
    dead: int = 0

    @property
    def weight(self) -> int:
        """About how many bytes it takes in memory."""
        runs = len(self.done) + sum(len(one.jobs) for one in self.grants) + sum(len(one.jobs) for one in self.back)
        return 16 * runs + 500 * (len(self.grants) + len(self.back) + len(self.joins) + 1)

    def counts(self, end: int) -> Counts:
        """Returns the counters if the jobs log ends at offset `end`, or at the cursor if that is higher, because `end` is
        of an older picture. `advance` to the time first.
        """
        in_flight = sum(grant.jobs.count_all for grant in self.grants)
        delayed = sum(one.jobs.count_all for one in self.back if one.ready_ms)
        ready = sum(one.jobs.count_all for one in self.back if not one.ready_ms)
        fresh = max(0, end - self.cursor) - self.done.count(self.cursor, end)
        return Counts(ready + fresh, in_flight, delayed)

    def live(self, end: int) -> int:
        """Returns how many jobs are not done if the jobs log ends at offset `end`, as in `counts`."""
        end = max(end, self.cursor)
        return end - self.front - self.done.count(self.front, end)

    @property
    def hidden(self) -> Runs:
        """The jobs that are done, and those below the jobs log's floor."""
        return self.done.add(0, self.front)

    def is_done(self, offset: int) -> bool:
        """Returns whether a job is done, or below the jobs log's floor."""
        return offset < self.front or offset in self.done

    def held(self, node: str) -> Iterator[Grant]:
        """Yields the leases of a worker."""
        return (grant for grant in self.grants if grant.node == node)


def fold(projection: Projection, events: Iterable[AnyEvent]) -> Projection:
    """Returns the projection after these events."""
    for event in events:
        projection = apply(projection, event)
    return projection


def apply(projection: Projection, event: AnyEvent) -> Projection:
    """Returns the projection after one event."""
    now = advance(move(projection, event), event.at)
    match event:
        case Claim():
            hand = Dealt(event.id, event.node, event.until, event.jobs, event.connection)
            return _done(_claimed(now, (hand,)), Runs.of_flat(event.gone))
        case Deal():
            joins = tuple(join for join in now.joins if join.closes != event.closes)
            return _done(_claimed(now._replace(joins=joins), event.hands), Runs.of_flat(event.gone))
        case Join():
            return now._replace(joins=(*now.joins, event))
        case Ack():
            jobs = Runs.of_flat(event.jobs)
            return _done(now._replace(acked=now.acked + jobs.count_all), jobs, event.node)
        case Dead():
            jobs = Runs.of_flat(event.jobs)
            return _done(now._replace(dead=now.dead + jobs.count_all), jobs)
        case Remove():
            return _done(now, Runs.of_flat(event.jobs))
        case Nack():
            return _given_back(now, event.node, Runs.of_flat(event.jobs), event.ready_at)
        case Release():
            return _given_back(now, event.node, Runs.of_flat(event.jobs), 0)
        case Extend():
            kept, taken = _split(now.grants, Runs.of_flat(event.jobs), event.node)
            return now._replace(grants=_joined([*kept, *(one._replace(until_ms=event.until) for one in taken)]))
        case Configure():
            return now


def move(projection: Projection, event: Event) -> Projection:
    """Returns the projection without what the jobs log has lost since the event before `event`, at either end."""
    if event.lost is not None:
        projection = lose(projection, event.lost)
    return rise(projection, event.floor)


def advance(projection: Projection, now_ms: int) -> Projection:
    """Returns the projection at a moment, if no event came before; an earlier moment than that of the last event means
    that event's. Leases that ended and delays that are over become jobs that can be claimed, joins lapse.
    """
    time_ms = max(projection.time_ms, now_ms)
    ended = [grant for grant in projection.grants if grant.until_ms < time_ms]
    is_due = any(0 < one.ready_ms <= time_ms for one in projection.back)
    if ended or is_due:
        back = [one._replace(ready_ms=0) if one.ready_ms <= time_ms else one for one in projection.back]
        back += [Back(0, grant.deliveries, grant.jobs) for grant in ended]
        grants = tuple(grant for grant in projection.grants if grant.until_ms >= time_ms) if ended else None
        projection = projection._replace(back=_sorted(back), grants=projection.grants if grants is None else grants)
    joins = projection.joins
    if any(join.closes + JOIN_MS < time_ms for join in joins):
        joins = tuple(join for join in joins if join.closes + JOIN_MS >= time_ms)
    return projection._replace(time_ms=time_ms, joins=joins)


def lose(projection: Projection, lost: Lost) -> Projection:
    """Returns the projection after a recovery of the jobs log: nothing is known about the jobs that it lost."""
    kept = projection._replace(
        incarnation=lost.incarnation,
        front=min(projection.front, lost.end),
        cursor=min(projection.cursor, lost.end),
        done=projection.done.within(0, lost.end),
    )
    return _kept(kept, lambda jobs: jobs.within(0, lost.end))


def before(projection: Projection, end: int) -> Projection:
    """Returns the projection without the jobs from offset `end` on, as a reader sees it whose picture of the jobs log is
    older.
    """
    is_newer = max(projection.cursor, projection.done.end) > end
    return projection if not is_newer else lose(projection, Lost(projection.incarnation, end))


def rise(projection: Projection, floor: int) -> Projection:
    """Returns the projection after the jobs log has dropped its records below `floor`."""
    if floor <= projection.front:
        return projection
    return _kept(_fronted(projection, floor, projection.done), lambda jobs: jobs.above(floor))


def _kept(projection: Projection, keep: Callable[[Runs], Runs]) -> Projection:
    """Returns the projection with only those leased and returned jobs that `keep` returns."""
    grants = (grant._replace(jobs=keep(grant.jobs)) for grant in projection.grants)
    back = (one._replace(jobs=keep(one.jobs)) for one in projection.back)
    return projection._replace(
        grants=tuple(grant for grant in grants if grant.jobs), back=tuple(one for one in back if one.jobs)
    )


def _fronted(projection: Projection, front: int, done: Runs) -> Projection:
    """Returns the projection with these done jobs, whose first ones, from `front` on, become part of the front."""
    front = done.live_at(front)
    return projection._replace(front=front, cursor=max(projection.cursor, front), done=done.above(front))


def _done(projection: Projection, jobs: Runs, node: str | None = None) -> Projection:
    """Returns the projection in which these jobs are done; all of them are leased to one worker, if `node` is given."""
    jobs = jobs.above(projection.front)
    if not jobs:
        return projection
    grants, _ = _split(projection.grants, jobs, node)
    back, _ = _split_back(projection.back, jobs) if node is None else (projection.back, ())
    undone = projection._replace(grants=tuple(grants), back=tuple(back))
    return _fronted(undone, projection.front, projection.done.union(jobs))


def _claimed(projection: Projection, hands: Iterable[Dealt]) -> Projection:
    """Returns the projection in which jobs, which were given back or fresh, are leased. Fresh jobs that are passed over
    are done (`gone`), so the cursor is behind the last one.
    """
    grants, back, cursor = list(projection.grants), list(projection.back), projection.cursor
    at = projection.time_ms
    for hand in hands:
        jobs = Runs.of_flat(hand.jobs)
        back, taken = _split_back(back, jobs)
        fresh = jobs.above(projection.cursor)
        shares = [(one.deliveries + 1, at, one.jobs) for one in taken]
        if fresh:
            shares.append((1, at, fresh))
            cursor = max(cursor, fresh.end)
        grants += (Grant(hand.id, hand.node, hand.connection, hand.until, *share) for share in shares)
    return projection._replace(grants=tuple(grants), back=tuple(back), cursor=cursor)


def _given_back(projection: Projection, node: str, jobs: Runs, ready_ms: int) -> Projection:
    """Returns the projection in which these jobs, which a worker holds, can be claimed from `ready_ms` on."""
    grants, taken = _split(projection.grants, jobs, node)
    ready_ms = ready_ms if ready_ms > projection.time_ms else 0
    back = [*projection.back, *(Back(ready_ms, one.deliveries, one.jobs) for one in taken)]
    return projection._replace(grants=tuple(grants), back=_sorted(back))


def _split(grants: Iterable[Grant], jobs: Runs, node: str | None = None) -> tuple[list[Grant], list[Grant]]:
    """Returns the leases of other jobs than these, and those of these jobs; all of them are those of one worker, if `node`
    is given.
    """
    kept: list[Grant] = []
    taken: list[Grant] = []
    first, end = jobs.first, jobs.end
    for grant in grants:
        held = grant.jobs
        if (node is not None and grant.node != node) or held.end <= first or held.first >= end:
            kept.append(grant)
            continue
        common = held.common(jobs)
        if common:
            taken.append(grant._replace(jobs=common))
        if common != held:
            kept.append(grant._replace(jobs=held.minus(common)))
    return kept, taken


def _split_back(back: Iterable[Back], jobs: Runs) -> tuple[list[Back], list[Back]]:
    """Returns the returned jobs other than these, and these."""
    kept: list[Back] = []
    taken: list[Back] = []
    for one in back:
        common = one.jobs.common(jobs)
        if common:
            taken.append(one._replace(jobs=common))
        if common != one.jobs:
            kept.append(one._replace(jobs=one.jobs.minus(common)))
    return kept, taken


def _joined(grants: Iterable[Grant]) -> tuple[Grant, ...]:
    """Returns the leases with those as one that differ in their jobs alone, in the order of their first ones."""
    found: dict[tuple[str, str, str, int, int, int], Runs] = {}
    for grant in grants:
        what = grant[:6]
        found[what] = found[what].union(grant.jobs) if what in found else grant.jobs
    return tuple(Grant(*what, jobs) for what, jobs in found.items())


def _sorted(back: Iterable[Back]) -> tuple[Back, ...]:
    """Returns what was given back by time, then by deliveries, with those as one that differ in their jobs alone."""
    found: dict[tuple[int, int], Runs] = {}
    for one in back:
        found[one[:2]] = found[one[:2]].union(one.jobs) if one[:2] in found else one.jobs
    return tuple(Back(*what, jobs) for what, jobs in sorted(found.items(), key=lambda item: item[0]))
