"""What each lease event adds to the timings of its queue: how long jobs waited and ran, and what became of them.

It follows from the events before, and from when jobs were appended; and it becomes part of the event, so that nobody has to
fold events to add it up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headrace.queues.events import Ack, AnyEvent, Claim, Dead, Deal, Dealt, Nack, Release
from headrace.queues.projection import Grant, Projection, advance, move
from headrace.timings import Timings, parts
from headrace.topics.runs import Runs

_NOTHING = Timings()


def measure(before: Projection, event: AnyEvent, appended: Mapping[int, int]) -> Timings | None:
    """Returns what an event adds; None if that is nothing.

    Args:
        before: who holds what after the event before.
        appended: when jobs were appended (epoch ms), by offset: at least those that it leases for the first time.
    """
    moved = move(before, event)
    expired = sum(grant.jobs.count_all for grant in moved.grants if grant.until_ms < event.at)
    now = advance(moved, event.at)
    match event:
        case Claim():
            timings = _claimed(now, (event,), appended, expired)
        case Deal():
            timings = _claimed(now, event.hands, appended, expired)
        case Ack():
            done = list(_held(now, event))
            timings = Timings(
                run=parts((now.time_ms - grant.claimed_ms, count) for grant, count in done),
                attempts=parts((grant.deliveries, count) for grant, count in done),
                expired=expired,
            )
        case Nack():
            timings = Timings(nacked=Runs.of_flat(event.jobs).count_all, expired=expired)
        case Release():
            timings = Timings(released=Runs.of_flat(event.jobs).count_all, expired=expired)
        case Dead():
            timings = Timings(dead=Runs.of_flat(event.jobs).count_all, expired=expired)
        case _:
            timings = Timings(expired=expired)
    return timings if timings != _NOTHING else None


def _claimed(now: Projection, hands: tuple[Claim | Dealt, ...], appended: Mapping[int, int], expired: int) -> Timings:
    jobs = [Runs.of_flat(hand.jobs) for hand in hands]
    fresh = [offset for one in jobs for first, end in one.above(now.cursor) for offset in range(first, end)]
    return Timings(
        # The clock of the process that appended may be ahead of this one's.
        wait=parts((max(0, now.time_ms - appended[offset]), 1) for offset in fresh),
        redelivered=sum(one.count_all for one in jobs) - len(fresh),
        expired=expired,
    )


def _held(now: Projection, event: Ack) -> Iterator[tuple[Grant, int]]:
    """Yields the leases of the jobs that were acked, each with how many of its jobs these are."""
    jobs = Runs.of_flat(event.jobs)
    for grant in now.held(event.node):
        if grant.jobs.first < jobs.end and jobs.first < grant.jobs.end:
            count = grant.jobs.common(jobs).count_all
            if count:
                yield grant, count
