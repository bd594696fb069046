"""Verb: rebuild. Retires every run of a log, so that all of it is unindexed and built anew from its segments.

Until that is done searches look at the segments, as far as their budget goes, and say so in their coverage.
"""

from __future__ import annotations

from msgspec.structs import replace

from functions.indexer.context import Context
from functions.indexer.look import look
from headrace.errors import StoreThrottled
from headrace.index.manifest import IndexManifest, Retired

_TRIES = 8


def rebuild(context: Context, log_id: str) -> int:
    """Retires the runs and asks for new ones; returns how many were retired.

    Raises:
        StoreThrottled: others published all the time; repeat later.
    """
    index: IndexManifest | None = None
    for _ in range(_TRIES):
        index = context.indexes.newest(log_id, index)
        if not index.runs or context.publish(_emptied(index, context.now_ms())):
            look(context, log_id)
            return len(index.runs)
    raise StoreThrottled(f"index manifest moves on: log_id={log_id}")


def _emptied(index: IndexManifest, now_ms: int) -> IndexManifest:
    generation = index.generation + 1
    retired = tuple(Retired(run, generation, now_ms) for run in index.runs)
    return replace(index, generation=generation, created_ms=now_ms, runs=(), retired=(*index.retired, *retired))
