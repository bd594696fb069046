"""How a queue decides what workers ask: claims, acks, nacks, extends and releases, of which all that a process has at
once share an entry of the lease log.

Who holds a job is judged at the time of the event, by the projection: a worker holds a job if its lease has not ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Literal, NamedTuple

from headrace.batch import Record
from headrace.errors import Overloaded
from headrace.log.seam import Look, Request, Rows
from headrace.queues import events
from headrace.queues.events import lease_id
from headrace.queues.feed import Feed, size_of
from headrace.queues.ledger import Ledger, Points
from headrace.queues.projection import Back, Grant, Projection
from headrace.queues.values import Claimed, ClaimRequest, Job, Settled, SettleRequest
from headrace.topics.errors import NotAQueue, TopicNotFound
from headrace.topics.runs import Runs
from headrace.topics.values import LEASES, TopicConfig, topic_of

_GUESSED_BYTES = 1024  # of a job, to bound a group of claims
_NEAR = 256  # offsets between two jobs that are read at once


class Claim(NamedTuple):
    """A claim, with what was read for it.

    Attributes:
        records: jobs that it will probably get.
        log: the id and the incarnation of the jobs log that they are of.
        is_fresh: whether the end of that log was read for this claim.
    """

    request: ClaimRequest
    records: Sequence[Record] = ()
    log: tuple[str, int] = ("", 0)
    is_fresh: bool = False

    @property
    def size(self) -> int:
        """About how many bytes the answer has."""
        return self.request.max * _GUESSED_BYTES


class Settle(NamedTuple):
    """An ack, nack or extend."""

    verb: Literal["ack", "nack", "extend"]
    request: SettleRequest

    @property
    def size(self) -> int:
        """About how many bytes the event has."""
        return 100 + 16 * len(self.request.seqs)


class Release(NamedTuple):
    """The end of a connection, whose jobs can be claimed at once."""

    node: str
    connection: str

    @property
    def size(self) -> int:
        """About how many bytes the event has."""
        return 1000


class Joined(NamedTuple):
    """The answer to a claim that joined a window: its id, and when the window ends (epoch ms)."""

    id: str
    closes_ms: int


class Dealing(NamedTuple):
    """The request of a member for its share. The answer is a `Taken`, or a `Waiting` before the window ends."""

    claim: Claim
    joined: Joined

    @property
    def size(self) -> int:
        """About how many bytes the answer has."""
        return self.claim.size


class Taken(NamedTuple):
    """The answer to a claim. `dead_letter` is the topic for which jobs wait; None if none do."""

    claimed: Claimed
    dead_letter: str | None


class Queue(NamedTuple):
    """A queue in one decision."""

    ledger: Ledger
    config: TopicConfig
    feed: Feed
    rows: Rows


def open_queue(
    logs: Sequence[Look | None], requests: Sequence[Request], points: Points, rows: Rows, now_ms: int
) -> Queue:
    """Returns the queue that lives in a lease log and a jobs log, for these requests.

    Raises:
        TopicNotFound, NotAQueue: it does not.
        Overloaded: the picture of the jobs log is older than that of the lease log, or of another queue.
    """
    leases, jobs = logs
    assert leases is not None and jobs is not None, "both logs were found"
    if leases.state.ended or jobs.state.ended:
        raise TopicNotFound(jobs.row.name)
    config = topic_of(jobs.state).config
    if config.type != "queue":
        raise NotAQueue(jobs.row.name)
    row = jobs.row.log(LEASES)
    if row is None or row.log_id != leases.log_id:
        raise Overloaded("the queue was created again meanwhile")
    ledger = Ledger(leases, jobs, points, rows, now_ms)
    if ledger.is_ahead:
        raise Overloaded("the queue was recovered or configured meanwhile")
    feed: Feed | None = requests[0].memo
    if feed is None or not feed.is_of(jobs):
        feed = requests[0].memo = Feed(jobs, ledger.now.cursor, points.ahead)
        for asked in requests:
            one = asked.request.claim if isinstance(asked.request, Dealing) else asked.request
            if isinstance(one, Claim) and one.log == feed.log:
                feed.keep(one.records)
    return Queue(ledger, config, feed, rows)


def claim(queue: Queue, request: ClaimRequest, claim_id: str) -> Taken:
    """Leases jobs: those that were given back first, then fresh ones, each by how often it was delivered and then by its
    offset. Nothing is written if there is none.
    """
    ledger = queue.ledger
    records, gone = pick(queue, candidates(ledger.now, queue.config, ledger.end), request.max, request.max_bytes)
    if records:
        until = ledger.at + (request.lease_ms or queue.config.lease_ms)
        ledger.add(
            events.Claim(
                at=ledger.at,
                id=claim_id,
                node=request.node,
                until=until,
                jobs=Runs.of_offsets(record.offset for record in records).flat(),
                gone=Runs.of_offsets(gone).flat(),
                connection=request.connection,
            ),
            records,
        )
    elif gone:
        ledger.add(events.Remove(at=ledger.at, jobs=Runs.of_offsets(gone).flat()))
    return answer(queue, claim_id)


def pick(queue: Queue, offsets: Iterator[int], most: int, room: int) -> tuple[list[Record], list[int]]:
    """Returns the records of the first jobs, at most `most` of them and `room` bytes, but one at least; and the offsets of
    those that were passed over because their TTL is over.
    """
    ledger, feed, ttl_ms = queue.ledger, queue.feed, queue.config.ttl_ms
    cutoff_ms = max(ledger.at, ledger.jobs.state.append_time_ms) - ttl_ms if ttl_ms else 0
    records: list[Record] = []
    gone: list[int] = []
    while len(records) < most and (offset := next(offsets, None)) is not None:
        # The more have expired, the more will have: else a small claim would never get to the end of them.
        record = feed.at(offset, max(most - len(records), len(gone)), ledger.jobs, queue.rows)
        if record is None:
            break
        if record.time_ms < cutoff_ms:
            gone.append(offset)
            continue
        room -= size_of(record)
        if records and room < 0:
            break
        records.append(record)
    ledger.lapse(gone)
    return records, gone


def candidates(now: Projection, config: TopicConfig, end: int) -> Iterator[int]:
    """Yields the offsets of the jobs that can be claimed, in the order in which they are."""
    most = deliveries_limit(config)
    for one in _due(now):
        if one.deliveries < most:
            for first, stop in one.jobs:
                yield from range(first, stop)
    for first, stop in now.done.live_runs(now.cursor, end):
        yield from range(first, stop)


def doomed(now: Projection, config: TopicConfig) -> Runs:
    """Returns the jobs that were given back, and delivered as often as they may be: the dead-letter topic waits."""
    most = deliveries_limit(config)
    return Runs.of(run for one in _due(now) if one.deliveries >= most for run in one.jobs)


def deliveries_limit(config: TopicConfig) -> float:
    """Returns how often a job may be delivered; infinity if the queue has no dead-letter topic."""
    return config.max_deliveries if config.max_deliveries and config.dead_letter is not None else float("inf")


def _due(now: Projection) -> Iterator[Back]:
    """Yields what was given back and can be claimed."""
    return (one for one in now.back if not one.ready_ms)


def ready(queue: Queue) -> int:
    """Returns how many jobs can be claimed, without those for the dead-letter topic."""
    now = queue.ledger.now
    return now.counts(queue.ledger.end).ready - doomed(now, queue.config).count_all


def answer(queue: Queue, claim_id: str) -> Taken:
    """Returns the answer to a claim: the jobs that it holds, ascending; of a share of a claim window that another process
    has dealt, perhaps only the first ones.
    """
    ledger, feed, rows = queue.ledger, queue.feed, queue.rows
    held = [
        (offset, grant)
        for grant in ledger.now.grants
        if grant.id == claim_id
        for first, end in grant.jobs
        for offset in range(first, end)
    ]
    held.sort(key=itemgetter(0))
    # A share of a claim window lies between those of other workers: one stretch has many of its jobs.
    offsets = [offset for offset, _ in held]
    breaks = [offset + 1 for offset, after in pairwise(offsets) if after - offset > _NEAR]
    ends = iter([*breaks, *(offset + 1 for offset in offsets[-1:])])
    jobs, end = [], 0
    for offset, grant in held:
        end = end if offset < end else next(ends)
        record = feed.at(offset, end - offset, ledger.jobs, rows)
        if record is None:
            break  # the share lies in too many places: the rest of it comes back when its leases end
        jobs.append(Job(record, lease_id(claim_id, offset), grant.until_ms, grant.deliveries))
    config = queue.config
    return Taken(Claimed(jobs, ready(queue)), config.dead_letter if doomed(ledger.now, config) else None)


def ack(queue: Queue, request: SettleRequest) -> Settled:
    """Removes jobs that the worker holds."""
    ledger = queue.ledger
    done = _held(ledger.now, request)
    if done:
        ledger.add(events.Ack(at=ledger.at, node=request.node, jobs=Runs.of_offsets(done).flat()))
    return _settled(queue, request, done)


def nack(queue: Queue, request: SettleRequest) -> Settled:
    """Gives back jobs that the worker holds."""
    ledger = queue.ledger
    done = _held(ledger.now, request)
    if done:
        ready_at = ledger.at + request.delay_ms if request.delay_ms else 0
        jobs = Runs.of_offsets(done).flat()
        ledger.add(events.Nack(at=ledger.at, node=request.node, jobs=jobs, ready_at=ready_at))
    return _settled(queue, request, done)


def extend(queue: Queue, request: SettleRequest) -> Settled:
    """Sets the deadlines of jobs that the worker holds; the ids of the leases stay."""
    ledger = queue.ledger
    done = _held(ledger.now, request)
    until = ledger.at + request.lease_ms
    if done:
        jobs = Runs.of_offsets(done).flat()
        ledger.add(events.Extend(at=ledger.at, node=request.node, jobs=jobs, until=until))
    return _settled(queue, request, done)._replace(deadlines={offset + 1: until for offset in done})


def release(queue: Queue, request: Release) -> int:
    """Gives back the jobs that a connection of the worker holds. Returns how many."""
    ledger = queue.ledger
    held = [one.jobs for one in ledger.now.held(request.node) if one.connection == request.connection]
    jobs = Runs.of(run for one in held for run in one)
    if jobs:
        ledger.add(events.Release(at=ledger.at, node=request.node, connection=request.connection, jobs=jobs.flat()))
    return jobs.count_all


def _held(now: Projection, request: SettleRequest) -> list[int]:
    """Returns the offsets of the jobs that the worker asks about and holds, by lease id if the request has them."""
    offsets = [seq - 1 for seq in request.seqs if 0 < seq <= now.cursor]
    grants = _grants(now, request.node, Runs.of_offsets(offsets))
    if request.lease_ids is None:
        return sorted(grants)
    pairs = zip(request.seqs, request.lease_ids, strict=True)
    held = {seq - 1 for seq, token in pairs if seq - 1 in grants and lease_id(grants[seq - 1].id, seq - 1) == token}
    return sorted(held)


def _grants(now: Projection, node: str, jobs: Runs) -> dict[int, Grant]:
    """Returns the lease of each of these jobs that the worker holds, by offset."""
    found: dict[int, Grant] = {}
    for grant in now.held(node):
        if grant.jobs.first < jobs.end and jobs.first < grant.jobs.end:
            for first, end in grant.jobs.common(jobs):
                found.update(dict.fromkeys(range(first, end), grant))
    return found


def _settled(queue: Queue, request: SettleRequest, done: Sequence[int]) -> Settled:
    """Returns the answer to a request that changed these jobs."""
    changed = {offset + 1 for offset in done}
    asked = dict.fromkeys(request.seqs)  # each once, in the order of the request
    return Settled(
        done=tuple(seq for seq in asked if seq in changed),
        skipped=tuple(seq for seq in asked if seq not in changed),
        ready=ready(queue),
        in_flight=queue.ledger.now.counts(queue.ledger.end).in_flight,
        deadlines={},
        durable=queue.config.durable,
    )
