"""Verb: retire. Removes the objects of runs that were replaced, once no reader can hold a manifest that names them.

Objects first, then the manifest that forgets them: a crash in between repeats the removal. A reader that is slower still
finds an object missing, loads the newest manifest, and asks again.
"""

from __future__ import annotations

from functions.indexer import policy
from functions.indexer.parts import Parts
from headrace.index.manifest import IndexManifest, without
from headrace.objects import keys


def retire(parts: Parts, index: IndexManifest) -> IndexManifest:
    """Removes what may go; the manifest in force afterwards, as far as this function knows."""
    doomed = policy.expired(index, parts.now_ms(), parts.limits)
    if not doomed:
        return index
    for run in doomed:
        remove_run(parts, index.log_id, run.id)
    successor = without(index, {run.id for run in doomed}, parts.now_ms())
    return successor if parts.publish(successor) else parts.indexes.newest(index.log_id, index)


def remove_run(parts: Parts, log_id: str, run_id: str) -> int:
    """Removes everything of a run, its descriptor first; returns how many objects."""
    objects = parts.stores.objects
    descriptor = keys.run_descriptor(log_id, run_id)
    found = sorted(objects.list(keys.run(log_id, run_id)), key=lambda key: key != descriptor)
    if found:
        objects.delete(found)
    return len(found)
