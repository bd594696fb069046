"""The runs that a job made, into the index manifest of their log: created if absent, merged with what others published.

A compacted run counts only while every run that it was made of is still read: else its content was replaced, by a rebuild
or under another plan, and would come back. What does not fit is left to the orphan sweep.
"""

from __future__ import annotations

from collections.abc import Sequence

from functions.indexer.context import Context
from headrace.errors import StoreThrottled
from headrace.index.descriptors import Run
from headrace.index.manifest import IndexManifest, with_runs

_TRIES = 8


def publish(context: Context, log_id: str, made: Sequence[tuple[Run, tuple[str, ...]]], plan: str) -> int:
    """Publishes runs, each with the ids of its inputs; returns how many were new.

    Args:
        plan: the plan in force.

    Raises:
        StoreThrottled: others published all the time; repeat later. StoreTimeout: it may be published; repeat later.
    """
    index: IndexManifest | None = None
    for _ in range(_TRIES):
        index = context.indexes.newest(log_id, index)
        read = {run.id for run in index.runs}
        fitting = [run for run, inputs in made if read.issuperset(inputs)]
        successor = with_runs(index, fitting, context.now_ms(), plan=plan)
        if successor is index:
            return 0
        if context.publish(successor):
            return len({run.id for run in successor.runs} - read)
    raise StoreThrottled(f"index manifest moves on: log_id={log_id}")
