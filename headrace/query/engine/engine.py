"""What the verbs of the query engine work with, built once per process (or per request, where nothing is kept)."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.clock import Clock
from headrace.index.fetching import CachedRanges
from headrace.index.reading import Runs
from headrace.log.logs import Log
from headrace.log.stores import Stores
from headrace.objects import Objects
from headrace.query.engine.key_pages import KeyPages
from headrace.query.engine.overlay import Budget
from headrace.query.engine.sources import Sources


@dataclass(frozen=True, slots=True)
class Engine:
    """Answers questions about streams: `headrace.query.engine.search.search(engine, …)` and its like. Thread-safe.

    Attributes:
        sources: where records stand.
        runs: readers of index runs.
        ranges: ranges of immutable objects, cached; `ranges.fetches()` for one request.
        objects: the bucket, for what is scanned.
        budget: how much of what is not indexed one request scans.
        key_pages: of segments, cached.
    """

    sources: Sources
    runs: Runs
    ranges: CachedRanges
    objects: Objects
    clock: Clock
    budget: Budget = field(default_factory=Budget)
    key_pages: KeyPages = field(default_factory=KeyPages)


def assemble(stores: Stores, logs: Log, *, budget: Budget | None = None) -> Engine:
    """An engine on these stores.

    Args:
        logs: the verbs of the same stores: what they remember of streams and keep of index runs is used.
        budget: the default one if None.
    """
    runs, ranges = logs.run_cache.opened()
    return Engine(Sources(stores, logs), runs, ranges, stores.objects, stores.clock, budget or Budget())
