"""What the verbs of the query engine work with, and how much of a stream one request scans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.bounded import Bounded
from headrace.clock import Clock
from headrace.index.fetching import CachedRanges
from headrace.index.reading import Runs
from headrace.log.logs import Log
from headrace.log.stores import Stores
from headrace.objects import Objects
from headrace.query.engine.sources import SegmentRange, Snapshot, Sources
from headrace.query.language.coverage import Omission
from headrace.segment.keypage import KeyPage

_KEPT_KEYS = 400_000  # of all key pages together; one takes some 70 bytes


class Budget(NamedTuple):
    """How much of what is not indexed one request scans."""

    segments: int = 32  # small ones: each costs a GET
    payload_bytes: int = 64 * 1024 * 1024  # as measured: 16 MiB take 20 to 50 ms


class Overlay(NamedTuple):
    """What is scanned, and what is left out.

    Attributes:
        segments: to be scanned, the newest first.
        omissions: what is neither scanned nor covered by a run, ascending.
        runs: ranges covered by runs, ascending.
    """

    segments: tuple[SegmentRange, ...]
    omissions: tuple[Omission, ...]


def plan_overlay(snapshot: Snapshot, unindexed: Sequence[SegmentRange], budget: Budget) -> Overlay:
    """Chooses segments.

    Args:
        snapshot: the stream.
        unindexed: its segments that no run in use covers, ascending.
        budget: the newest segment is always taken, if it is within the bytes alone.
    """
    taken: list[SegmentRange] = []
    room = budget.payload_bytes
    for found in reversed(unindexed):
        share = found.segment.payload_bytes * (found.end - found.first) // found.segment.count
        if len(taken) >= budget.segments or share > room:
            break
        room -= share
        taken.append(found)
    left = unindexed[: len(unindexed) - len(taken)]
    omissions = [Omission(one.first, one.end, one.segment.min_time_ms, is_published=True, segments=1) for one in left]
    omissions += [
        Omission(part.unread.first, part.unread.end, part.unread_time_ms, is_published=False)
        for part in snapshot.parts
        if part.unread.size
    ]
    return Overlay(tuple(taken), tuple(sorted(omissions, key=lambda one: one.first)))


def _key_pages() -> Bounded[str, KeyPage]:
    return Bounded(_KEPT_KEYS, weigh=lambda page: len(page.keys))


@dataclass(frozen=True, slots=True)
class Engine:
    """Answers questions about streams: `headrace.query.engine.search.search(engine, …)` and its like. Thread-safe.

    Attributes:
        sources: where records stand.
        runs: readers of index runs.
        ranges: ranges of immutable objects, cached; `ranges.fetches()` for one request.
        objects: the bucket, for what is scanned.
        budget: how much of what is not indexed one request scans.
        key_pages: of segments, by the segment's key.
    """

    sources: Sources
    runs: Runs
    ranges: CachedRanges
    objects: Objects
    clock: Clock
    budget: Budget = field(default_factory=Budget)
    key_pages: Bounded[str, KeyPage] = field(default_factory=_key_pages)


def assemble(stores: Stores, logs: Log, *, budget: Budget | None = None) -> Engine:
    """Returns an engine on these stores.

    Args:
        logs: the verbs of the same stores: what they remember of streams and keep of index runs is used.
        budget: the default one if None.
    """
    runs, ranges = logs.run_cache.opened()
    return Engine(Sources(stores, logs), runs, ranges, stores.objects, stores.clock, budget or Budget())
