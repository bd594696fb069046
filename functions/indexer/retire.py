"""Verbs that remove: retire, rebuild, generations, orphans.

retire        the objects of runs that were replaced, once no reader can hold a manifest that names them. Objects go
              first, then the manifest that forgets them: a crash in between repeats the removal. A reader that is
              slower still finds an object missing, loads the newest manifest, and asks again.
rebuild       retires every run of a log, so that all of it is built again from its segments. Until that is done
              searches look at the segments, as far as their budget goes, and say so in their coverage.
generations   old generations of an index manifest, once no reader can hold them. The first one stays: it says that
              there are others. The watermark names the newest before any goes, so a reader that asks it meets no
              gap, and one that does not lists again when what it holds is old.
orphans       objects of runs that no index manifest names and none can come to name. A run's id says when it was
              planned. A day later its job is over, published or given up, so what is not named then never will be:
              runs that were refused or never finished, and parts that another attempt of a task left behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from msgspec.structs import replace

from functions.indexer import policy
from functions.indexer.context import Context, made_ms
from functions.indexer.look import is_over, look
from headrace.errors import Damaged, StoreThrottled
from headrace.index.descriptors import Descriptor, Run
from headrace.index.manifest import KEPT_MS, IndexManifest, Retired, without
from headrace.objects import ObjectMissing, keys, packed


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


def remove_generations(context: Context, log_id: str) -> int:
    """Removes what may go; returns how many.

    Raises:
        Damaged: a generation is not what it should be; nothing was removed.
        StoreTimeout, StoreThrottled: repeat later.
    """
    standing = context.indexes.standing(log_id)

    def made_ms(generation: int) -> int:
        found = context.indexes.load(log_id, generation)
        if found is None:
            raise Damaged(f"index manifest is missing: object={keys.index_manifest(log_id, generation)}")
        return found.created_ms

    doomed = policy.outdated(standing, made_ms, context.now_ms() - KEPT_MS)
    if doomed:
        context.stores.watermarks.publish_index(log_id, standing[-1])
        context.stores.objects.delete([keys.index_manifest(log_id, generation) for generation in doomed])
    return len(doomed)


_DAY_MS = 24 * 3600 * 1000


def sweep_orphans(context: Context, log_id: str) -> int:
    """Removes orphans of a living log; returns how many objects."""
    newest = context.stores.wal.newest(log_id)
    if newest is None or is_over(newest.state):
        return 0  # purge removes everything
    prefix = keys.run(log_id, "").removesuffix("/")
    found = list(context.stores.objects.list(prefix))  # before the manifest: what is named since is not in this list
    index = context.indexes.newest(log_id)
    doomed = list(_orphans(context, index, prefix, found))
    if doomed:
        context.stores.objects.delete(doomed)
    return len(doomed)


def _orphans(context: Context, index: IndexManifest, prefix: str, found: list[str]) -> Iterator[str]:
    named = {run.id: run for run in index.runs}
    retired = {one.run.id for one in index.retired}  # their time comes, and then everything of them goes
    for run_id, group in groupby(found, key=lambda key: key.removeprefix(prefix).partition("/")[0]):
        planned_ms = made_ms(run_id)
        if planned_ms is None or context.now_ms() - planned_ms < _DAY_MS or run_id in retired:
            continue
        kept = _named_by(context, index.log_id, named[run_id]) if run_id in named else frozenset()
        yield from (key for key in group if key not in kept)


def _named_by(context: Context, log_id: str, run: Run) -> frozenset[str]:
    try:
        descriptor = packed.decode_msgpack(context.stores.objects.get(run.descriptor), Descriptor, run.descriptor)
    except ObjectMissing as exc:
        raise Damaged(f"descriptor of a run is missing: log_id={log_id} object={run.descriptor}") from exc
    return frozenset({run.descriptor, *(part.key for family in descriptor.parts.values() for part in family)})
