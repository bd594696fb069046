"""The events of a queue: the records of its lease log, as JSON.

Each event says what happened to which jobs, and nothing about their content. Jobs are offsets of the jobs log, as runs
`[first, end, first, end, …]`. An event lists exactly the jobs that it changes: the writer has judged who holds them, so
that a reader that folds the events never has to judge again, nor to read the jobs log.

Offsets belong to an incarnation of the jobs log. If that log was recovered since the event before, `lost` says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from operator import ge
from typing import Annotated

import msgspec

from headrace.errors import Damaged

Offset = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Flat = tuple[Offset, ...]
"""A set of jobs as `Runs.flat` encodes it."""


class Lost(msgspec.Struct, frozen=True, array_like=True):
    """A recovery of the jobs log: it has the incarnation `incarnation` now, and its jobs from offset `end` on are lost or
    other ones.
    """

    incarnation: int
    end: Offset


class Parts(msgspec.Struct, frozen=True, array_like=True):
    """A summary of whole numbers: how many they are, their sum, the least and the greatest, and how many are in each bucket
    of a `log2_v1` histogram.
    """

    count: int
    sum: int
    min: int
    max: int
    buckets: dict[str, int]


class Timings(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one event of a queue adds to its timings; None and 0 where it adds nothing.

    Attributes:
        wait: the milliseconds between append and claim, of jobs that were claimed for the first time.
        run: the milliseconds between the last claim and the ack, of jobs that were acked.
        attempts: how often they were claimed, of the same jobs.
        redelivered: number of jobs that were claimed again.
        nacked, released, dead: number of jobs that were nacked, were given back because a connection ended, and were moved
            to the dead-letter topic.
        expired: number of jobs whose lease had ended since the event before.
    """

    wait: Parts | None = None
    run: Parts | None = None
    attempts: Parts | None = None
    redelivered: int = 0
    nacked: int = 0
    released: int = 0
    expired: int = 0
    dead: int = 0


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event"):
    """What all events have.

    Attributes:
        at: when it happened, epoch milliseconds; never before the event before.
        lost: the recovery of the jobs log since the event before; None if there was none.
        floor: the offset below which the jobs log has no records, if it has risen since the event before; else 0.
        timings: what it adds to the queue's timings; None if it adds nothing. A fold of events ignores it.
    """

    at: int
    lost: Lost | None = None
    floor: Offset = 0
    timings: Timings | None = None


class Claim(Event, frozen=True, tag="claim"):
    """A worker has leased jobs.

    Attributes:
        id: the random id of the claim; with a job's seq it gives the id of the lease (`lease_id`).
        node: the worker.
        until: when the leases end, epoch milliseconds, inclusive.
        jobs: the jobs.
        gone: jobs that were passed over because they have expired by the topic's TTL.
        connection: the id of the stream to which the jobs are pushed; empty for a poll.
    """

    id: str
    node: str
    until: int
    jobs: Flat
    gone: Flat = ()
    connection: str = ""


class Ack(Event, frozen=True, tag="ack"):
    """A worker has done jobs."""

    node: str
    jobs: Flat


class Nack(Event, frozen=True, tag="nack"):
    """A worker gives jobs back; they can be claimed from `ready_at` (epoch ms) on, or at once if it is 0."""

    node: str
    jobs: Flat
    ready_at: int = 0


class Extend(Event, frozen=True, tag="extend"):
    """A worker needs jobs longer: their leases end at `until` (epoch ms)."""

    node: str
    jobs: Flat
    until: int


class Release(Event, frozen=True, tag="release"):
    """A connection has gone, and what it held can be claimed at once."""

    node: str
    connection: str
    jobs: Flat


class Dead(Event, frozen=True, tag="dead"):
    """Jobs were delivered too often, and moved to the dead-letter topic in the same commit."""

    jobs: Flat
    topic: str


class Remove(Event, frozen=True, tag="remove"):
    """Jobs were deleted without being done."""

    jobs: Flat


class Join(Event, frozen=True, tag="join"):
    """A worker joins a claim window, which ends at `closes` (epoch ms).

    Attributes:
        id: the random id of the claim.
        max: how many jobs it takes at most.
        lease_ms: how long its leases last, from the deal on.
        max_bytes: how many bytes of records it takes at most.
    """

    id: str
    node: str
    max: int
    lease_ms: int
    max_bytes: int
    closes: int
    connection: str = ""


class Dealt(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a deal gives to one member of a claim window, as in a claim."""

    id: str
    node: str
    until: int
    jobs: Flat
    connection: str = ""


class Deal(Event, frozen=True, tag="deal"):
    """A claim window is over, and its members, whose joins end with that, get jobs.

    Attributes:
        closes: the end of the window, which identifies it.
        hands: what the members get; those that get nothing are left out.
        gone: as in a claim.
    """

    closes: int
    hands: tuple[Dealt, ...]
    gone: Flat = ()


class Configure(Event, frozen=True, tag="configure"):
    """The queue's configuration has changed in the same commit. It changes no job, but a claim that was decided by the
    configuration before loses its place and is decided again.
    """


AnyEvent = Claim | Ack | Nack | Extend | Release | Dead | Remove | Join | Deal | Configure

_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(AnyEvent)


def encode(event: AnyEvent) -> bytes:
    """Encodes an event as the data of a record."""
    return _encode(event)


def decode(data: bytes, where: str) -> AnyEvent:
    """Decodes an event from the data of a record.

    Args:
        where: names the record, for the error.

    Raises:
        Damaged: the record is no event, or the runs of a set of jobs do not ascend.
    """
    try:
        event: AnyEvent = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise Damaged(f"lease event does not parse: {where} reason={exc}") from exc
    for flat in _sets(event):
        if len(flat) % 2 or any(map(ge, flat, flat[1:])):
            raise Damaged(f"runs of a lease event do not ascend: {where}")
    return event


def _sets(event: AnyEvent) -> tuple[Flat, ...]:
    """Returns all sets of jobs in an event."""
    match event:
        case Claim():
            return event.jobs, event.gone
        case Deal():
            return event.gone, *(hand.jobs for hand in event.hands)
        case Join() | Configure():
            return ()
    return (event.jobs,)


def chain(before: str, records: Iterable[bytes]) -> str:
    """Returns the digest of a lease log that had the digest `before` (empty for an empty log) and got these records.

    The digest is part of the log's state. A reader that folds events knows by it whether they are the ones that the state
    was folded from; and since claims have random ids, it names one history and no other.
    """
    for data in records:
        before = blake2b(data, digest_size=9, key=before.encode()).hexdigest()
    return before


def lease_id(claim_id: str, offset: int) -> str:
    """Returns the id of the lease that a claim has on a job."""
    return f"lease_{blake2b(f'{claim_id} {offset}'.encode(), digest_size=8).hexdigest()}"
