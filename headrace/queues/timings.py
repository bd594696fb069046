"""What each lease event adds to the timings of its queue: how long jobs waited and ran, and what became of them.

It follows from the events before, and from when jobs were appended; and it becomes part of the event, so that nobody has to
fold events to add it up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from headrace.definition import build_in
from headrace.query.language.canonical import Binding, Field, Rollup, SearchConfig, Summary, SummaryParts
from headrace.query.language.histogram import log2_bucket
from headrace.queues.events import Ack, AnyEvent, Claim, Dead, Deal, Dealt, Nack, Parts, Release, Timings
from headrace.queues.projection import Grant, Projection, advance, move
from headrace.topics.runs import Runs

ROLLUP = "timings"  # the built-in one of a lease log, and the name of the definition that has it
SUMMARIES = ("wait", "run", "attempts")
COUNTERS = ("redelivered", "nacked", "released", "expired", "dead")
_NOTHING = Timings()


def _bound(name: str) -> tuple[Binding, ...]:
    return (Binding(version=1, json_pointer=name),)


def _merged(name: str) -> SummaryParts:
    count, total, least, greatest, buckets = (f"/timings/{name}/{place}" for place in range(5))
    return SummaryParts(
        count_json_pointer=count,
        sum_json_pointer=total,
        min_json_pointer=least,
        max_json_pointer=greatest,
        histogram_json_pointer=buckets,
    )


build_in(
    ROLLUP,
    SearchConfig(
        primary_timestamp_field="at",
        fields={
            "at": Field(kind="date", bindings=_bound("/at"), column=True),
            **{
                name: Field(kind="integer", bindings=_bound(f"/timings/{name}"), aggregatable=True)
                for name in COUNTERS
            },
        },
        rollups={
            ROLLUP: Rollup(
                timestamp_field="at",
                intervals=("1m", "5m", "1h", "1d"),
                measures={
                    **{name: _merged(name) for name in SUMMARIES},
                    **{name: Summary(field=name) for name in COUNTERS},
                },
            )
        },
    ),
)


def parts(values: Iterable[tuple[int, int]]) -> Parts | None:
    """Returns the summary of values, each with how often it occurs; None if there are none."""
    counts: Counter[int] = Counter()
    buckets: Counter[str] = Counter()
    for value, count in values:
        counts[value] += count
        buckets[log2_bucket(value)] += count
    if not counts:
        return None
    total = sum(value * count for value, count in counts.items())
    return Parts(counts.total(), total, min(counts), max(counts), dict(buckets))


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
