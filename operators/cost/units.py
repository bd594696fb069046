"""Computes what one more unit of something costs: the difference between two bills of a busy deployment. Does no
I/O.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from operators.cost.charges import Estimate
from operators.cost.model import bill
from operators.cost.workload import DAYS, GB, SECONDS

SIZES = (100, 500, 2_000, 10_000, 100_000)
BATCHES = (1, 10, 100, 1000)
_MUCH = 1e8
_MILLION = 1e6
_MAX_BODY = 6_000_000  # maximum body of a request through Lambda


class AppendPrice(NamedTuple):
    """The price in US dollars of a million appends, of a million records, and of a GB of record data, for one record
    size and batch. `write_units` is what DynamoDB bills for writing one append; `is_spilled` says whether its payload
    is in the bucket.
    """

    record_bytes: int
    batch: int
    write_units: int
    is_spilled: bool
    million_appends: float
    million_records: float
    gb: float


class UnitPrice(NamedTuple):
    """A price in US dollars; `of` says of what, and how much of it, like `GB of record data indexed`."""

    of: str
    usd: float


def appends(estimate: Estimate) -> Iterator[AppendPrice]:
    """Yields the price of appends by size of record and batch: of writing, sealing and trimming, without reading or
    keeping.
    """
    for size in SIZES:
        for batch in BATCHES:
            if size * batch > _MAX_BODY:
                continue
            at = _busy(estimate, record_bytes=size, batch=batch)
            more = replace(at, work=replace(at.work, appends=2 * _MUCH))
            each = (bill(more).usd - bill(at).usd) / _MUCH
            yield AppendPrice(
                size,
                batch,
                at.item_units,
                at.is_spilled,
                each * _MILLION,
                each * _MILLION / batch,
                each * GB / size / batch,
            )


def others(estimate: Estimate) -> Iterator[UnitPrice]:
    """Yields the price of one more unit of keeping, reading and indexing, each with a text that names the unit."""
    busy = _busy(estimate, record_bytes=500, batch=100)
    gb = busy.work.gb
    kept = _more(busy, retention_days=DAYS)
    yield UnitPrice("GB of record data kept for a month", kept / gb)
    indexed = replace(busy, work=replace(busy.work, indexed=True))
    yield UnitPrice("GB of record data kept for a month, indexed", _more(indexed, retention_days=DAYS) / gb)
    yield UnitPrice("GB of record data indexed", (bill(indexed).usd - bill(busy).usd) / gb)
    stored = (
        estimate.counts.segment_ratio * estimate.prices["s3.storage"].of(1) * estimate.work.noncurrent_days / DAYS
    )
    yield UnitPrice(
        f"GB of record data deleted, kept as old versions for {estimate.work.noncurrent_days:g} days", stored
    )
    single = _busy(estimate, record_bytes=500, batch=1)
    yield UnitPrice("million reads at the tail, 1 record of 500 B", _more(single, readers=1) / _MUCH * _MILLION)
    yield UnitPrice("million reads at the tail, 100 records of 500 B", _more(busy, readers=1) / _MUCH * _MILLION)
    page = min(estimate.assumed.page_bytes, estimate.assumed.page_records * 500)
    pages = _more(busy, replayed_gb=_MUCH * page / GB) / _MUCH
    yield UnitPrice("million pages from segments, 1,000 records of 500 B", pages * _MILLION)
    yield UnitPrice("GB of record data read from segments", pages * GB / page)
    yield UnitPrice("month of a follower that is always connected, on Lambda", _more(busy, followers=1))


def reactions(estimate: Estimate) -> Iterator[UnitPrice]:
    """Yields the price of one more unit of what queues, routers, watches, sockets, webhooks and feature tables do, as
    `others` does: with requests, functions, sealing and trimming.
    """
    single = _busy(estimate, record_bytes=500, batch=1)

    def million(**fields: float) -> float:
        name = next(iter(fields))  # what is counted; the others say how it is done
        at = replace(single, work=replace(single.work, **fields))  # type: ignore[arg-type]
        return _more(at, **{name: 2 * fields[name]}) / fields[name] * _MILLION

    yield UnitPrice("million jobs, enqueued, claimed and acknowledged one by one", million(jobs=_MUCH))
    yield UnitPrice("million jobs, 100 in a request", million(jobs=_MUCH, job_batch=100))
    yield UnitPrice("million appends copied by a router", million(copies=_MUCH))
    yield UnitPrice("minute of an open watch of 1 topic", _more(single, watches=1) / SECONDS * 60)
    many = replace(single, work=replace(single.work, watch_topics=1_000))
    yield UnitPrice("minute of an open watch of 1,000 topics", _more(many, watches=1) / SECONDS * 60)
    yield UnitPrice("month of an open watch of 1 topic", _more(single, watches=1))
    yield UnitPrice("month of an open socket, silent", _more(single, sockets=1))
    yield UnitPrice("million messages pushed to sockets", million(pushes=_MUCH))
    yield UnitPrice("million webhooks delivered", million(webhooks=_MUCH))
    yield UnitPrice("million events pushed one by one, of which each changes a row", million(events=_MUCH))
    yield UnitPrice("million events, three rows each", million(events=_MUCH, feature_tables=3))
    yield UnitPrice("million events with a dedupe value", million(events=_MUCH, deduped=True))
    yield UnitPrice("million events, 100 in a push", million(events=_MUCH, event_batch=100))
    yield UnitPrice("million reads of a row", million(feature_reads=_MUCH))


def searches(estimate: Estimate) -> Iterator[tuple[str, float, float | None]]:
    """Yields for each query class its name and the US dollars of a million searches on a million events: with an opened
    index, and in cold processes (None if that was not measured).
    """
    for name, query in estimate.counts.printed.queries.items():
        warm = _busy(estimate, record_bytes=500, batch=100, query=name, cold_share=0.0)
        cold = replace(warm, work=replace(warm.work, cold_share=1.0))
        opened = _more(warm, searches=_MUCH) / _MUCH * _MILLION
        yield (
            name,
            opened,
            _more(cold, searches=_MUCH) / _MUCH * _MILLION if query.cold_wall_ms is not None else None,
        )


def _busy(estimate: Estimate, **fields: float | str) -> Estimate:
    """Returns the estimate with a workload that appends much, and neither reads, keeps nor searches, except as `fields`
    say.
    """
    calm = replace(
        estimate.work.alone(),
        appends=_MUCH,
        streams=1,
        retention_days=0,
        readers=0,
        replayed_gb=0,
        indexed=False,
        metrics_s=0,
    )
    return replace(estimate, work=replace(calm, **fields))  # type: ignore[arg-type]


def _more(estimate: Estimate, **fields: float) -> float:
    """Returns by how many US dollars the bill grows when these fields of the workload change."""
    return bill(replace(estimate, work=replace(estimate.work, **fields))).usd - bill(estimate).usd  # type: ignore[arg-type]
