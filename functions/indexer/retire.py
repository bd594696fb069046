"""Verb: retire. Removes the objects of runs that were replaced, once no reader can hold a manifest that names them.

Objects first, then the manifest that forgets them: a crash in between repeats the removal. A reader that is slower still
finds an object missing, loads the newest manifest, and asks again.
"""

from __future__ import annotations

from functions.indexer import policy
from functions.indexer.context import Context
from headrace.index.manifest import IndexManifest, without
from headrace.objects import keys


def retire(context: Context, index: IndexManifest) -> IndexManifest:
    """Removes what may go; the manifest in force afterwards, as far as this function knows."""
    doomed = policy.expired(index, context.now_ms(), context.limits)
    if not doomed:
        return index
    for run in doomed:
        remove_run(context, index.log_id, run.id)
    successor = without(index, {run.id for run in doomed}, context.now_ms())
    return successor if context.publish(successor) else context.indexes.newest(index.log_id, index)


def remove_run(context: Context, log_id: str, run_id: str) -> int:
    """Removes everything of a run, its descriptor first; returns how many objects."""
    objects = context.stores.objects
    descriptor = keys.run_descriptor(log_id, run_id)
    found = sorted(objects.list(keys.run(log_id, run_id)), key=lambda key: key != descriptor)
    if found:
        objects.delete(found)
    return len(found)
