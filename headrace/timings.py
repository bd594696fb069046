"""What the records of a log say about times, and the built-in rollup that adds it up.

A record of such a log is a JSON object with a time, `at` (epoch ms), and `timings`: what it adds to the rollup. Each record
says that by itself, so that indexes, scans and tails add records up without knowing the ones before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from headrace.query.language.canonical import Binding, Field, Rollup, SearchConfig, Summary, SummaryParts
from headrace.query.language.histogram import log2_bucket

ROLLUP = "timings"


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


SUMMARIES = ("wait", "run", "attempts")
COUNTERS = ("redelivered", "nacked", "released", "expired", "dead")


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


SEARCH = SearchConfig(
    primary_timestamp_field="at",
    fields={
        "at": Field(kind="date", bindings=_bound("/at"), column=True),
        **{name: Field(kind="integer", bindings=_bound(f"/timings/{name}"), aggregatable=True) for name in COUNTERS},
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
)
"""The search configuration of a log of such records."""
